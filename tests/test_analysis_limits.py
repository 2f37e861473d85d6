"""What is too large to be understood runs as it stands: searches end, questions are given up, and results stay right."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

import weft
from tests import fuzz_gradients
from weft.language import TensorType, infer_types, parse
from weft.loops import analyze
from weft.loops.adjoint import adjoint
from weft.loops.analyze import requirements, schedule
from weft.loops.automatic.guards import guarded
from weft.loops.ir import statement_exprs, walk, walk_expr
from weft.loops.polyhedra import Search, SearchOver, systems
from weft.loops.polyhedra import patience as patience_of_isl
from weft.loops.types import SCALAR_TYPES

_HEAD = "def program(x, y):\n    h = 0.0\n    g = 1.0\n    k = 0\n    n = x.shape[0]\n    for i in range(n):\n"


def repeated(lines: str, last: str = "") -> Callable[[int], str]:
    """A program with so many copies of some lines, {j} being which."""

    def source(count: int) -> str:
        body = [line.replace("{j}", str(j)) for j in range(count) for line in lines.splitlines()]
        return _HEAD + "".join(f"        {line}\n" for line in (*body, *last.splitlines()))

    return source


LARGE = {
    "branches on a state": repeated("if x[i] > 0.{j}:\n    h = h * 0.5 + {j}.0", "y[i] = h"),
    "branches on two states": repeated("if x[i] > 0.{j}:\n    h = h * 0.5 + g\nelse:\n    g = g * 0.25 + h", "y[i] = h + g"),
    "branches on the state itself": repeated("if h > {j}.0:\n    h = h - {j}.5", "h = h + x[i]\ny[i] = h"),
    "a counter": repeated("if x[i] > 0.{j} and k < n:\n    y[k] = {j}.0\n    k = k + 1"),
    "shifted stores": repeated("if i > {j}:\n    y[i - {j}] = y[i] + x[i]"),
    "holes": repeated("if i != {j} and i + {j} < n or i == {j} + 2:\n    y[i] = y[i] + x[i]"),
    "mirrored": repeated("if i != 2 * {j} and i != 3 * {j} + 1:\n    y[n - 1 - i] += 0.1 * x[i] * y[i]"),
}


def compiled(source: str, label: str) -> Callable[..., None]:
    linecache.cache[label] = (len(source), None, source.splitlines(True), label)
    scope: dict[str, object] = {"torch": torch}
    exec(compile(source, label, "exec"), scope)
    return scope["program"]  # type: ignore[return-value]


@pytest.mark.parametrize("name", sorted(LARGE))
def test_no_analysis_asks_without_end(name: str) -> None:
    """Twice the statements may cost some four times the questions, never a power of their number."""
    asked = []
    for count in (7, 14):
        program = compiled(LARGE[name](count), f"<{count} times {name}>")
        whole = Search(1_000_000)
        with whole.going_on():
            function = parse(program, infer_types(program))
            schedule(guarded(function))
            requirements(function)
        asked.append(1_000_000 - whole.left)
    assert asked[1] <= 6 * asked[0] + 1_000, asked


@pytest.mark.parametrize("name", ["branches on a state", "a counter", "mirrored"])
def test_what_is_not_understood_runs_as_it_stands(name: str) -> None:
    program = compiled(LARGE[name](12), f"<12 times {name} as a kernel>")
    kernel = weft.kernel(program)
    x = torch.rand(50)
    mine, theirs = torch.rand(2, 50).unbind()
    theirs.copy_(mine)
    kernel(x, mine)
    program(x, theirs)
    torch.testing.assert_close(mine, theirs)


def blur(x, mask):
    n, m = x.shape
    y = torch.zeros_like(x)
    for i in range(n):
        h = 0.0
        for j in range(m):
            if j + 1 < m:
                h = 0.5 * h + x[i, j + 1]
            if mask[i, j]:
                y[i, j] = h + x[i, j]
    return y


def test_questions_that_are_given_up_make_kernels_slow_and_not_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    x, mask = torch.randn(7, 9), torch.rand(7, 9) > 0.5
    want = blur(x, mask)
    kernels = []
    for patience in (1, 30, 300, 200_000):
        monkeypatch.setattr(patience_of_isl, "_PATIENCE", patience)
        monkeypatch.setenv("WEFT_CACHE", "")
        systems.set_of.cache_clear()
        systems._points.cache_clear()
        function = parse(blur, infer_types(blur))
        kernels.append({v.var: v.kind for v in schedule(function).loops})
        torch.testing.assert_close(weft.kernel(blur)(x, mask), want)
    assert kernels[0]["i"] == "sequential"
    assert kernels[-1]["i"] == "parallel"


def test_a_search_ends_after_its_questions() -> None:
    function = parse(blur, infer_types(blur))
    few = Search(1)
    with pytest.raises(SearchOver), few.going_on():
        schedule(function)
    schedule(function)  # outside of the block nothing counts


def test_an_analysis_gives_the_same_verdicts_again() -> None:
    program = compiled(LARGE["shifted stores"](10), "<10 shifted stores>")
    function = parse(program, infer_types(program))
    first, again = schedule(function), schedule(function)
    assert first.loops == again.loops


def many_nests(x, y, z):
    n = x.shape[0]
    for i in range(n):  # three nests that are in order, whatever is tried
        x[i] = x[i] + x[0]
    for i in range(n):
        y[i] = y[i] * y[n - 1]
    for i in range(n):
        z[i] = z[i] - z[z.shape[0] // 2]
    for i in range(n):  # and one that is freed by parts
        x[i] = x[i] * 2
        y[i] = x[n - 1 - i] + y[i]


def test_what_a_transform_leaves_as_it_is_is_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[int] = []
    judge = analyze._judged
    monkeypatch.setattr(analyze, "_judged", lambda *args: judged.append(1) or judge(*args))  # type: ignore[func-returns-value]
    function = parse(many_nests, infer_types(many_nests))
    schedule(function)
    once = len(judged)
    monkeypatch.setattr(analyze._Known, "judged", lambda self, *args: analyze._judged(*args))
    schedule(replace(function))
    assert 0 < once < (len(judged) - once) / 2


@pytest.mark.parametrize("seed", [1, 7, 12, pytest.param(25, marks=pytest.mark.long)])
def test_what_was_judged_before_is_what_would_be_found_again(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analyze, "_MOST_QUESTIONS", 1_000_000)  # the search would end elsewhere: what is known costs nothing
    function = fuzz_gradients.Roads(fuzz_gradients.generate(seed)).parsed.made
    wanted = tuple(a.name for a in function.arrays if a.role == "input" and a.dtype.category == "float")
    functions = [function, adjoint(function, wanted)]
    known = [schedule(f) for f in functions]
    monkeypatch.setattr(analyze._Known, "judged", lambda self, *args: analyze._judged(*args))
    monkeypatch.setattr(analyze._Known, "axes", lambda self, *args: analyze.find_axes(*args))
    for function, found in zip(functions, known, strict=True):
        assert schedule(replace(function)).loops == found.loops


def test_what_a_value_is_on_many_paths_is_told_once() -> None:
    """s is one of five kinds, chosen twice in each iteration: their tests have names, and are not written out in each other."""
    function = parse(
        """
def pick(a, b, c):
    if c > 1:
        return a
    return 0 if a == b else b - c

def program(x, b):
    n, m = x.shape
    y = torch.full((n, m), 2, dtype=torch.int8)
    for i in range(n):
        s = y[i, -1] + 0
        for j in range(m):
            s = (s < y[i, j]) + s
            s = min(min(7, s), s)
            y[i, j] = (s - y[i, j]) - min(-1, b[j])
            if pick(b[j], y[i, j], s) > s:
                s = pick(b[j], y[i, j], s) + 0
    return y
""",
        {"x": TensorType(SCALAR_TYPES["float32"], 2), "b": TensorType(SCALAR_TYPES["int16"], 1)},
    )
    assert sum(1 for s in walk(function.body) for e in statement_exprs(s) for _ in walk_expr(e)) < 20_000
