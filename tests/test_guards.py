"""Loops that may run in parallel for some integer arguments: analysed for those, and run in order for the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from weft.language import parse
from weft.language.types import TensorType
from weft.loops import analyze
from weft.loops.automatic.guards import guarded
from weft.loops.ir import Function
from weft.loops.types import FLOAT32


@weft.kernel
def shifted_ahead(a, b, k: int):
    for i in range(b.shape[0]):
        a[i + k] = a[i] * 0.5 + b[i]


@weft.kernel
def every_row_from_another(a, k: int):
    for i in range(a.shape[0] - 2):
        for j in range(1, a.shape[1]):
            a[i + k, j] = a[i, j - 1] + 1.0


@weft.kernel
def halves(a, b):
    for i in range(b.shape[0]):
        a[i + b.shape[0]] = a[i] + b[i]


def test_the_verdict_names_its_guard() -> None:
    verdict = weft.analyze(shifted_ahead).loops["i"]
    assert verdict.kind == "parallel"
    (guard,) = [r for r in verdict.requires if r.startswith("guard: ")]
    for k, n, free in ((0, 100, True), (1, 100, False), (99, 100, False), (100, 100, True)):
        assert eval(guard.removeprefix("guard: "), {}, {"k": k, "b_size_0": n, "a_size_0": 300}) is free


def test_what_needs_no_guard_has_none() -> None:
    verdict = weft.analyze(halves).loops["i"]
    assert verdict.kind == "parallel" and not any(r.startswith("guard") for r in verdict.requires)


def test_what_no_argument_frees_is_sequential() -> None:
    source = "def f(a, k: int):\n    for i in range(1, a.shape[0]):\n        a[i] = a[i - 1] * a[i - 1] + k\n"
    assert weft.analyze(source).loops["i"].kind == "sequential"


@pytest.mark.parametrize("k", [0, 1, 2, 6, 7, 8, 12])
def test_both_ways_are_the_python(k: int) -> None:
    a, b = torch.arange(20.0), torch.arange(7.0) + 1
    mine, theirs = a.clone(), a.clone()
    shifted_ahead(mine, b, k)
    shifted_ahead.py(theirs, b, k)
    assert torch.equal(mine, theirs)


@pytest.mark.parametrize("k", [0, 1, 2])
def test_rows_that_depend_on_others(k: int) -> None:
    a = torch.randn(9, 12)
    mine, theirs = a.clone(), a.clone()
    every_row_from_another(mine, k)
    every_row_from_another.py(theirs, k)
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(("kernel", "args"), [
    (shifted_ahead, ("float32[300]", "float32[130]", 3)),
    (shifted_ahead, ("float32[300]", "float32[130]", 130)),
    (every_row_from_another, ("float32[9,40]", 0)),
    (every_row_from_another, ("float32[9,40]", 1)),
])  # fmt: skip
def test_the_cuda_of_both_is_sound(kernel: Any, args: tuple[Any, ...]) -> None:
    report = kernel.check(*args, seeds=3)
    assert report.ok, report.text()


def test_what_no_guard_helps_is_analysed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Function] = []
    made = analyze._transformed
    monkeypatch.setattr(analyze, "_transformed", lambda function: seen.append(function) or made(function))

    def scaled(x):
        y = torch.empty_like(x)
        for i in range(x.shape[0]):
            y[i] = 2 * x[i]
        return y

    function = parse(scaled, {"x": TensorType(FLOAT32, 1)})
    assert guarded(function) is function
    found = analyze.schedule(function)
    assert seen == [function]
    # another function of the same text keeps its own places in it
    again = parse(scaled, {"x": TensorType(FLOAT32, 1)})
    assert again == function and analyze.schedule(again) is not found
    assert len(seen) == 2
