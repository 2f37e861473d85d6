"""What an array needs that keeps a value of every iteration: no iteration lies outside, whatever bounds its loops have."""

from __future__ import annotations

import random
from collections.abc import Iterator

import hypothesis.strategies as st
from hypothesis import given, settings

from weft.language import TensorType, parse
from weft.loops.affine import evaluate
from weft.loops.extents import expanded_index, extents
from weft.loops.ir import Expr, For, Function, Ref
from weft.loops.normalize import normalize
from weft.loops.types import FLOAT64, INT64

TYPES = {"x": TensorType(FLOAT64, 1), "a": TensorType(FLOAT64, 2), "ends": TensorType(INT64, 1), "w": INT64}


def _parsed(*lines: str) -> Function:
    source = "def f(x, a, ends, w: int):\n    n, m = a.shape\n    y = torch.zeros_like(a)\n"
    return normalize(parse(source + "".join(f"    {line}\n" for line in lines) + "    return y\n", TYPES))


def _nest(function: Function) -> tuple[For, ...]:
    """The loops around the first store."""
    out: list[For] = []
    body = function.body
    while True:
        loop = next((s for s in body if isinstance(s, For)), None)
        if loop is None:
            return tuple(out)
        out.append(loop)
        body = loop.body


def _iterations(loops: tuple[For, ...], names: dict[str, int]) -> Iterator[dict[str, int]]:
    if not loops:
        yield names
        return
    first, *rest = loops
    for value in range(evaluate(first.start, names), evaluate(first.stop, names), first.step):
        yield from _iterations(tuple(rest), {**names, first.var: value})


def _bound(r: random.Random, outer: list[str]) -> str:
    leaf = [str(r.randint(-2, 3)), "n", "m", "w", *outer, *outer]
    match r.randint(0, 7):
        case 0:
            return f"max({r.choice(leaf)}, {r.choice(leaf)} - {r.choice(leaf)})"
        case 1:
            return f"min({r.choice(leaf)}, {r.choice(leaf)} + {r.choice(leaf)})"
        case 2:
            return f"({r.choice(leaf)} - {r.choice(leaf)}) // {r.randint(1, 3)}"
        case 3:
            return f"{r.choice(leaf)} % {r.randint(1, 4)}"
        case 4:
            return f"{r.choice(leaf)} + ({r.choice(leaf)} // 2) * {r.choice([2, -2, 4, 3])}"
        case 5:
            return f"({r.choice(leaf)} if {r.choice(leaf)} < {r.choice(leaf)} else {r.choice(leaf)})"
    return f"{r.choice(leaf)} + {r.randint(-1, 1)}"


@given(st.integers(0, 10**9))
@settings(max_examples=150, deadline=None)
def test_iterations_lie_inside(seed: int) -> None:
    r = random.Random(seed)
    lines = []
    outer: list[str] = []
    for depth, var in enumerate(("i", "j", "k")[: r.randint(1, 3)]):
        step = r.choice(["", "", ", 2", ", -1", ", -2", ", 3"])
        lines.append("    " * depth + f"for {var} in range({_bound(r, outer)}, {_bound(r, outer)}{step}):")
        outer.append(var)
    function = _parsed(*lines, "    " * len(outer) + "y[0, 0] = 1.0")
    body: tuple[For, ...] = _nest(function)
    found = extents(function, body)
    assert found is not None
    names = {s.name: r.randint(0, 5) for s in function.sizes} | {"w": r.randint(-2, 4)}
    for at in _iterations(body, names):
        index = expanded_index(found, (Ref(f.var, INT64) for f in body))
        for extent, i in zip(found, index, strict=True):
            assert 0 <= evaluate(i, at) < evaluate(extent.size, at), (lines, at, extent)


def _sizes(function: Function) -> list[str]:
    from weft.loops.show import show_expr

    found = extents(function, _nest(function))
    assert found is not None
    return [show_expr(e.size) for e in found]


def test_a_window_needs_its_own_width() -> None:
    function = _parsed("for i in range(n):", "    for j in range(max(0, i - w + 1), i + 1):", "        y[i, j] = a[i, j]")
    n = function.array("a").shape[0]
    assert isinstance(n, Ref)
    found = extents(function, _nest(function))
    assert found is not None
    assert evaluate(found[1].size, {n.name: 100, "w": 4}) == 4
    assert evaluate(found[1].size, {n.name: 3, "w": 4}) == 3


def test_elements_that_every_iteration_touches_bound_ranges_that_data_decide() -> None:
    row = _parsed("for i in range(n):", "    for t in range(ends[i]):", "        y[i, t] = a[i, t]")
    packed = _parsed("for i in range(n):", "    for t in range(ends[i]):", "        y[i, 0] += x[ends[i] + t]")
    segments = _parsed("for i in range(n):", "    for t in range(ends[i], ends[i + 1]):", "        y[i, 0] += x[t]")
    assert _sizes(row) == ["n", "m"]
    assert _sizes(packed) == ["n", "2 * x_size_0"]  # negative indices count from the end
    assert _sizes(segments) == ["n", "x_size_0"]


def test_elements_that_a_loop_inside_touches_bound_a_range_if_it_surely_runs() -> None:
    lines = "for i in range(n):", "    for t in range(ends[i]):", "        for k in range(2):", "            y[i, k] += a[i, t]"
    pairs, columns = (_parsed(*lines[:2], loop, lines[3]) for loop in (lines[2], lines[2].replace("2", "m")))
    assert _sizes(pairs)[:2] == ["n", "m"]
    assert extents(columns, _nest(columns)) is None
    asked: list[Expr] = []
    found = extents(columns, _nest(columns), asked)
    assert found is not None and [f.size for f in found][:2] == [Ref("n", INT64), Ref("m", INT64)]
    assert asked == [Ref("m", INT64)]  # where there is a column, it shows how far the rows go


def test_elements_under_a_condition_bound_nothing() -> None:
    function = _parsed(
        "for i in range(n):",
        "    for t in range(ends[i]):",
        "        if t < m:",
        "            y[i, t] = a[i, t]",
    )
    assert extents(function, _nest(function)) is None
    chosen = _parsed(
        "for i in range(n):", "    for t in range(ends[i]):", "        y[i, 0] = a[i, t] if t < m else 0.0"
    )
    assert extents(chosen, _nest(chosen)) is None
