"""Transforms that free loops: each is proven, told in the verdict, and computes what the plain Python does."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.examples import chunks, examples
from tests.fuzz_oracle import replay
from tests.fuzz_programs import compiled
from weft.language import infer_types, parse, read_signature
from weft.loops.analyze import schedule
from weft.loops.automatic.guards import guarded
from weft.loops.schedule import Schedule
from weft.pytorch.call import argument_types

pytestmark = pytest.mark.usefixtures("quickly_compiled")

# ---------------------------------------------------------------- random programs

_ALONG = ("i", "i + 1", "i - 1", "i + 2", "i - 3", "i - 4", "n - 1 - i", "n // 2", "0", "n - 1", "2", "i // 2")
_ROWS = ("i", "i", "i - 1", "i + 1", "0", "m // 2", "m - 1 - i")
_COLUMNS = ("j", "j", "j - 1", "j + 1", "j - 2", "n - 1 - j", "n // 2", "0")
_FLAT = ("i * n + j", "i * n + j", "i * n + j - 1", "(i - 1) * n + j", "j * m + i", "i * n")


def _reach(lines: list[str], var: str) -> tuple[int, int]:
    """How far below and above the variable subscripts go."""
    text = "\n".join(lines)
    found = [int(s + k) for s, k in re.findall(rf"\b{var} ([+-]) (\d)", text)]
    return -min([0, *found]), max([0, *found])


def _draw(random_: random.Random, seed: int) -> str:
    """A loop, or two, over elements that other iterations touch too; the ranges keep most subscripts inside."""
    shape = seed % 3
    pick = random_.choice

    def element(written: bool) -> str:
        if shape == 0:
            name, half = pick("aab") if written else pick("aabc"), stop == "n // 2" and random_.random() < 0.4
            return f"{name}[{'i + n // 2' if half else pick(_ALONG)}]"
        if shape == 2 and random_.random() < 0.35:
            return f"w[{pick(_FLAT)}]"
        if random_.random() < 0.25:
            return f"{pick('ab')}[{pick(('i', 'i - 1', 'j', 'j - 1', 'j + 1', '0'))}]"
        name = "aa" if written else pick(("aa", "aa", "bb"))
        return f"{name}[{pick(_ROWS)}, {pick(_COLUMNS)}]"

    def statements() -> list[str]:
        body: list[str] = []
        for _ in range(pick((1, 1, 2, 2, 3))):
            value = " + ".join(f"{pick(('', '0.5 * ', '-0.5 * '))}{element(False)}" for _ in range(pick((1, 2, 2, 3))))
            statement = f"{element(True)} {pick(('=', '=', '=', '+='))} {value}"
            guarded = random_.random() < 0.12
            body += [f"if {element(False)} > 0.1:", f"    {statement}"] if guarded else [statement]
        return body

    stop = "n // 2" if random_.random() < 0.2 else ""
    body = statements()
    if shape == 0:
        low, high = _reach(body, "i")
        ahead = f"range({low}, {stop or f'n - {high}'}{pick(('', '', '', ', 2'))})"
        back = f"range({stop or f'n - {high}'} - 1, {low} - 1, -1)"
        lines = [f"    for i in {ahead if random_.random() < 0.75 else back}:", *(f"        {s}" for s in body)]
    else:
        first = [f"{pick('ab')}[{pick(('0', 'i'))}] = 0.5 * {element(False)}".replace("j", "0")] if pick((0, 0, 1)) else []
        last = [f"{pick(('bb[i, k]', 'aa[i, k]'))} = {pick(('a[k]', 'b[k]', 'aa[i, k]'))}"] if pick((0, 0, 1)) else []
        low, high = _reach([*first, *body], "i")
        below, above = _reach(body, "j")
        lines = [f"    for i in range({low}, m - {high}):", *(f"        {s}" for s in first)]
        lines += [f"        for j in range({below}, n - {above}):", *(f"            {s}" for s in body)]
        lines += [f"        for k in range({below}, n - {above}):", *(f"            {s}" for s in last)] if last else []
    used = [name for name in ("a", "b", "c", "aa", "bb", "w") if re.search(rf"\b{name}\[", "\n".join(lines))]
    sizes = "m, n = aa.shape" if "aa" in used else "m, n = bb.shape" if "bb" in used else "m, n = w.shape[0], w.shape[0]"
    if shape == 0:
        sizes = f"n = {used[0]}.shape[0]"
    elif used[0] in "ab" and "aa" not in used and "bb" not in used:
        sizes = "m, n = u.shape"
        used.append("u")
    return "\n".join([f"def program({', '.join(f'{u}: torch.Tensor' for u in used)}):", f"    {sizes}", *lines]) + "\n"


def _draw_rare(random_: random.Random, seed: int) -> str:
    """Loops of the kinds that random subscripts seldom make: far distances, diagonals, rows written before they are read."""
    pick = random_.choice
    if seed % 3 == 0:
        d, sign, step = pick((3, 5, 6)), pick("-+"), pick((1, 1, 2, 3))
        reads = [f"{pick(('0.5', '-0.25'))} * b[i {sign} {d * step * k}]" for k in random_.sample((1, 2, 3), pick((1, 2)))]
        edge = 3 * d * step
        bounds = f"{edge}, n, {step}" if sign == "-" else f"n - {edge} - 1, -1, {-step}"
        target = pick(("b[i]", "b[i]", "b[i + 0]"))
        lines = [
            f"    for i in range({bounds}):",
            f"        {target} = {' + '.join(reads)} + a[{pick(('i', '0', 'n - 1 - i'))}]",
        ]
        return "\n".join(["def program(a: torch.Tensor, b: torch.Tensor):", "    n = a.shape[0]", *lines]) + "\n"
    head = ["def program(a: torch.Tensor, aa: torch.Tensor, bb: torch.Tensor):", "    m, n = aa.shape"]
    if seed % 3 == 1:
        sign, far = pick("-+"), pick(((1,), (1,), (2,), (1, 2), (2, 4)))
        across = pick(("", "", " - aa[i - 1, j]", " + aa[i, j - 1]")) if random_.random() < 0.3 else ""
        reads = " + ".join(f"0.5 * aa[i - {k}, j {sign} {k}]" for k in far)
        low, high = (max(far), 0) if sign == "-" else (1, max(far))
        lines = [f"    for i in range({max(far)}, m - {pick((0, 1))}):"]
        lines += ["        x = bb[i, 0]"] if random_.random() < 0.5 else ["        x = 0.5"]
        lines += [
            f"        for j in range({low}, n - {high}):",
            f"            aa[i, j] = {reads} * {pick(('x', 'bb[i, j]'))}{across} + bb[i, j]",
        ]
        return "\n".join([*head, *lines]) + "\n"
    first = pick(("0, n", "0, n", "1, n", "0, n - 1", "0, min(n, i + 1)", "i, n"))
    second = pick(("0, n", "1, n", "1, n - 1", "0, min(n, i + 1)", "i, n"))
    lines = [
        f"    for i in range({pick((0, 1))}, m):",
        f"        for j in range({first}):",
        f"            a[j] = {pick(('aa', 'bb'))}[i, j]",
    ]
    if random_.random() < 0.5:
        lines += [f"            for k in range({pick((0, 1))}, n):", "                a[j] += 0.5 * aa[i, k]"]
    if random_.random() < 0.3:
        lines += ["        if bb[i, 0] > 0.0:", "            a[0] = bb[i, 0]"]
    lines += [
        f"        for j in range({second}):",
        f"            aa[i, j] = {pick(('a[j]', 'a[j]', 'a[j] + a[n - 1]', 'a[0]'))} * 0.5",
    ]
    return "\n".join([*head, *lines]) + "\n"


def _arguments(names: list[str], m: int, n: int, seed: int) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)

    def values(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, dtype=torch.float64, generator=generator) - 0.5

    shapes = {"aa": (m, n), "bb": (m, n), "u": (m, n), "w": (m * n,)}
    found = [values(*shapes.get(name, (n if m < n else m,))) for name in names]
    if seed % 5 == 0:
        for tensor in found[1:]:
            tensor.view(-1)[1::4] = float("nan")
            tensor.view(-1)[2::7] = float("inf")
    return found


def _leaves(source: str, names: list[str], m: int, n: int, seed: int) -> bool:
    """Whether a subscript leaves its array, or would be wrapped around."""
    seen: list[bool] = []

    class Watched:
        def __init__(self, tensor: torch.Tensor) -> None:
            self.tensor, self.shape = tensor, tensor.shape

        def __getitem__(self, at: Any) -> torch.Tensor:
            seen.append(any(k < 0 for k in (at if isinstance(at, tuple) else (at,))))
            return self.tensor[at]

        def __setitem__(self, at: Any, value: Any) -> None:
            seen.append(any(k < 0 for k in (at if isinstance(at, tuple) else (at,))))
            self.tensor[at] = value

    try:
        compiled(source, "<watched>")(*[Watched(t) for t in _arguments(names, m, n, seed)])
    except IndexError:
        return True
    return any(seen)


_SIZES = ((4, 7), (6, 6), (5, 12), (1, 1), (2, 3), (0, 4), (3, 0), (9, 2), (3, 41))


def _check(seed: int, rare: bool = False) -> dict[str, tuple[str, tuple[str, ...]]]:
    source = (_draw_rare if rare else _draw)(random.Random(seed), seed)
    function = compiled(source, f"<freed {seed}>")
    names = [p.name for p in read_signature(function).parameters]
    types = argument_types(read_signature(function), _arguments(names, 4, 7, 0))
    parsed = parse(function, dict(zip(names, types, strict=True)))
    found = schedule(parsed)
    for m, n in _SIZES:
        if _leaves(source, names, m, n, seed):
            continue
        ours, theirs = _arguments(names, m, n, seed), _arguments(names, m, n, seed)
        replay(parsed, found, ours, random.Random(seed))
        function(*theirs)
        for name, a, b in zip(names, ours, theirs, strict=True):
            if not torch.allclose(a, b, rtol=1e-9, atol=1e-9, equal_nan=True):
                raise AssertionError(f"{name} differs at {m} x {n}:\n{source}{found.loops}")
    return {v.var: (v.kind, v.requires) for v in found.loops}


@examples(4)
@given(st.integers(0, 10**6), st.booleans())
def test_what_is_freed_computes_what_the_python_does(seed: int, rare: bool) -> None:
    _check(seed, rare)


@pytest.mark.fuzz
@pytest.mark.parametrize("first", chunks(40, 10, 10))
def test_random_loops_in_any_order(first: int) -> None:
    for seed in range(10**7 + first, 10**7 + first + 10):
        _check(seed)
        _check(seed, rare=True)


# ---------------------------------------------------------------- loops that everyone knows


def every_fifth(b, a):
    for i in range(5, b.shape[0]):
        b[i] = 0.5 * b[i - 5] + a[i]


def fourth_and_sixth(b, a):
    for i in range(6, b.shape[0]):
        b[i] = 0.5 * b[i - 6] - 0.25 * b[i - 4] + a[i]


def backwards_by_twelve(b, a):
    for i in range(b.shape[0] - 13, -1, -3):
        b[i] = b[i + 12] * a[i]


def diagonal(aa, bb):
    for i in range(1, aa.shape[0]):
        for j in range(1, aa.shape[1]):
            aa[i, j] = 0.5 * aa[i - 1, j - 1] + bb[i, j]


def other_diagonal(aa, bb):
    for i in range(2, aa.shape[0]):
        x = bb[i, 0]
        for j in range(aa.shape[1] - 2):
            aa[i, j] = aa[i - 2, j + 2] * bb[i, j] + x


def two_diagonals(aa, bb):
    for i in range(1, aa.shape[0]):
        for j in range(1, aa.shape[1] - 1):
            aa[i, j] = 0.5 * aa[i - 1, j - 1] + aa[i - 1, j + 1] * bb[i, j] * aa[i, j - 1] * aa[i, j - 1]


def overwritten_next(a, b):
    for i in range(a.shape[0] - 1):
        a[i] = b[i] * 0.5
        b[i] = b[i] + 1.0
        a[i + 1] = b[i] - a[i + 1]


def overwritten_three_later(a, b):
    for i in range(3, a.shape[0]):
        a[i] = b[i]
        a[i - 3] = b[i - 1] * 2.0


def overwritten_but_read(a, b):
    for i in range(a.shape[0] - 2):
        a[i + 2] = b[i] * a[i + 1] * a[i + 1]
        a[i] = b[i]


def row_of_the_last(a, aa):
    for i in range(aa.shape[0]):
        for j in range(1, aa.shape[1]):
            a[j] = 1.0 - 0.5 * a[j - 1]
            aa[i, j] = a[j] + aa[i, j]


def shrinking_rows(a, aa):
    for i in range(aa.shape[0]):
        for j in range(i, aa.shape[1]):
            a[j] = aa[i, j]


def middle(a, b):
    n = a.shape[0]
    for i in range(n):
        a[i] = a[n // 2] * 0.5 + b[i]


def mirrored(a, b):
    for i in range(a.shape[0] - 1, -1, -1):
        a[i] = a[a.shape[0] - 1 - i] * 0.5 + b[i]


def from_the_first(a, b):
    total = 0.0
    for i in range(a.shape[0]):
        total += b[i]
        a[i] = a[0] * b[i]
    b[0] = total


def shortest_paths(aa):
    n = aa.shape[0]
    for k in range(n):
        for i in range(n):
            for j in range(n):
                aa[i, j] = min(aa[i, j], aa[i, k] + aa[k, j])


def products(aa, bb, a):
    for i in range(aa.shape[0]):
        for j in range(aa.shape[1]):
            a[j] = 0.0
            for k in range(aa.shape[1]):
                a[j] += aa[i, k] * bb[k, j]
        for j in range(aa.shape[1]):
            aa[i, j] = a[j]


def kept_from_before(aa, a):
    for i in range(aa.shape[0]):
        for j in range(1, aa.shape[1]):
            a[j] = aa[i, j]
        for j in range(aa.shape[1]):
            aa[i, j] = a[j] * a[j]


def flattened(w, aa):
    m, n = aa.shape
    k = 0
    for i in range(m):
        for j in range(n):
            w[k] = aa[i, j] * 2.0
            k += 1


def blocks(w, cube: torch.Tensor):
    m, n, p = cube.shape
    for i in range(m):
        for j in range(n):
            for k in range(p):
                w[i * n * p + j * p + k] += cube[i, j, k]


def overlapping(w, aa):
    m, n = aa.shape
    for i in range(m - 1):
        for j in range(n + 1):
            w[i * n + j] = w[i * n + j] * aa[0, 0] * w[i * n + j] + 1.0


def upper_half(a, b):
    half = a.shape[0] // 2
    for i in range(half):
        a[i + half] = a[i] + b[i]


SEQUENTIAL = {
    two_diagonals: {"i", "j"},
    overwritten_but_read: {"i"},
    shrinking_rows: {"i"},
    shortest_paths: {"k"},
    kept_from_before: {"i"},
    overlapping: {"i"},
}
TOLD = {
    every_fifth: {"i": "residue classes: iterations 5 apart make 5 independent loops"},
    fourth_and_sixth: {"i": "residue classes: iterations 2 apart make 2 independent loops"},
    backwards_by_twelve: {"i": "residue classes: iterations 4 apart make 4 independent loops"},
    diagonal: {"i": "skewing: over the diagonals of (i, j)"},
    other_diagonal: {"i": "skewing: over the diagonals of (i, j)"},
    overwritten_next: {"i": "last value: a written by the last iterations only"},
    row_of_the_last: {"i": "last value: a written by the last iterations only"},
    middle: {"i": "splitting: its range is parted at n // 2 and n // 2 + 1"},
    mirrored: {"i": "splitting: its range is parted at a_size_0 // 2"},
    from_the_first: {"i": "splitting: its range is parted at 0 and 1"},
    shortest_paths: {
        "i": "splitting: its range is parted at k and k + 1",
        "j": "splitting: its range is parted at k and k + 1",
    },
    products: {"i": "privatisation: a of its own for every iteration"},
}
KNOWN = (*TOLD, *(f for f in SEQUENTIAL if f not in TOLD), overwritten_three_later, flattened, blocks, upper_half)


def _inputs(function: Callable[..., Any], m: int, n: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(m + n)
    square = function in (shortest_paths, products)
    shapes = {"aa": (n, n) if square else (m, n), "bb": (n, n) if square else (m, n), "w": (m * n * 3,), "cube": (m, n, 3)}
    names = [p.name for p in read_signature(function).parameters]
    return [torch.rand(*shapes.get(x, (n,)), dtype=torch.float64, generator=generator) - 0.5 for x in names]


def _analysed(function: Callable[..., Any]) -> Schedule:
    return schedule(parse(function, infer_types(function)))


@pytest.mark.parametrize("function", KNOWN, ids=lambda f: f.__name__)
def test_known_loops_compute_the_same_in_any_order(function: Callable[..., Any]) -> None:
    names = [p.name for p in read_signature(function).parameters]
    types = argument_types(read_signature(function), _inputs(function, 4, 5))
    parsed = parse(function, dict(zip(names, types, strict=True)))
    found = schedule(parsed)
    for m, n in ((5, 17), (6, 18), (7, 7), (1, 1), (2, 1), (3, 13), (0, 0), (1, 2)):
        ours, theirs = _inputs(function, m, n), _inputs(function, m, n)
        try:
            function(*theirs)
        except IndexError:
            continue
        replay(parsed, found, ours, random.Random(m))
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b)
    assert {v.var for v in found.loops if v.kind == "sequential"} == SEQUENTIAL.get(function, set())


@pytest.mark.parametrize("function", TOLD, ids=lambda f: f.__name__)
def test_a_verdict_tells_what_freed_the_loop(function: Callable[..., Any]) -> None:
    told = {v.var: v.requires for v in _analysed(function).loops}
    for var, reason in TOLD[function].items():
        assert reason in told[var]


@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler")
@pytest.mark.parametrize(
    "function",
    [every_fifth, other_diagonal, overwritten_next, row_of_the_last, middle, from_the_first, products, flattened, upper_half],
    ids=lambda f: f.__name__,
)
def test_freed_loops_as_kernels(function: Callable[..., Any]) -> None:
    kernel = weft.kernel(function)
    for m, n in ((5, 33), (6, 16), (1, 1)):
        ours, theirs = _inputs(function, m, n), _inputs(function, m, n)
        function(*theirs)
        kernel(*ours)
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b)


# ---------------------------------------------------------------- scalars of the whole call


def smoothed_both_ways(x, y, width: float):
    decay = 1.0 / (1.0 + width)
    gain = 1.0 - decay
    for i in range(x.shape[0]):
        h = 0.0
        for j in range(x.shape[1]):
            h = decay * h + gain * x[i, j]
            y[i, j] = h
    for j in range(x.shape[1]):
        h = 0.0
        for i in range(x.shape[0]):
            h = decay * h + gain * y[i, j]
            y[i, j] = h


def test_a_scalar_of_the_call_ties_no_two_loops() -> None:
    found = _analysed(smoothed_both_ways)
    assert [[a.var for a in nest.axes] for nest in found.nests] == [["i"], ["j_1"]]
    parsed = parse(smoothed_both_ways, infer_types(smoothed_both_ways))
    for m, n in ((4, 5), (1, 3), (0, 2)):
        generator = torch.Generator().manual_seed(m)
        x = torch.rand(m, n, dtype=torch.float64, generator=generator)
        ours, theirs = torch.zeros(m, n, dtype=torch.float64), torch.zeros(m, n, dtype=torch.float64)
        smoothed_both_ways(x, theirs, 0.5)
        replay(parsed, found, [x, ours, 0.5], random.Random(m))
        torch.testing.assert_close(ours, theirs)


# ---------------------------------------------------------------- strides that a call gives


def strided(a, b, step: int):
    for t in range(b.shape[0]):
        a[t * step] += b[t]


def pitched(w, aa, pitch: int):
    for i in range(aa.shape[0]):
        for j in range(aa.shape[1]):
            w[i * pitch + j] = aa[i, j]


@pytest.mark.parametrize(
    ("function", "free", "bound"),
    [(strided, {"step": 3}, {"step": 0}), (pitched, {"pitch": 9, "n": 9}, {"pitch": 4, "n": 9})],
    ids=["strided", "pitched"],
)
def test_a_symbolic_stride_is_a_guard(function: Callable[..., Any], free: dict[str, int], bound: dict[str, int]) -> None:
    found = guarded(parse(function, infer_types(function)))
    assert found.assumption is not None
    condition = re.sub(r"\b\w*size_0\b", "64", re.sub(r"\b(n|\w*size_1)\b", "n", found.assumption.condition))
    assert eval(condition, {}, dict(free))
    assert not eval(condition, {}, dict(bound))
    assert {v.kind for v in schedule(found).loops} == {"parallel"}
    assert {v.kind for v in _analysed(function).loops} != {"parallel"}


def test_a_loop_that_one_transform_made_may_be_parted_by_another() -> None:
    """The residue classes of k are a loop of no one's; splitting j copies it."""
    text = """
def f(v, w):
    m = v.shape[0]
    for j in range(m):
        for k in range(4, m):
            v[k] = v[k - 4] + 1.0
        w[j] = w[m - 1 - j] + v[j]
"""
    assert weft.analyze(text).loops.keys() == {"j", "k"}
