"""Searches: loops that `break` or `return` at a first match, how they may run, and that they stop there."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

import weft
from tests.fuzz_programs import compiled
from weft.pytorch.simulated import simulate_call

pytestmark = pytest.mark.usefixtures("quickly_compiled")

HEAD = """
def program(x, t: float):
    rows, n = x.shape
    y = torch.zeros(rows, dtype=x.dtype, device=x.device)
    for r in range(rows):
"""

FIRST = """
        k = -1
        for j in range(n):
            if x[r, j] > t:
                k = j
                break
        y[r] = k
"""
VALUES = """
        k, v, w = -1, 0.0, 1.0
        for j in range(n):
            if x[r, j] > t:
                k = j
                v = 2 * x[r, j]
                break
            if x[r, j] < -t:
                k = j + 5
                w = x[r, j]
                break
        y[r] = k + v * w
"""
BACKWARDS = """
        k = -1
        for j in range(n - 1, -1, -1):
            if x[r, j] < 0:
                continue
            if x[r, j] > t:
                k = j
                break
        else:
            k = 99
        y[r] = k
"""
ANY = """
        for j in range(n):
            if x[r, j] > t:
                y[r] = 1
                break
        else:
            y[r] = 2
"""
ALL = """
        good = True
        for j in range(n):
            if not x[r, j] < t:
                good = False
                break
        if good:
            y[r] = 3
"""
COUNTED = """
        k, j = -1, 0
        while j < n:
            if x[r, j] > t:
                k = j
                break
            j += 1
        y[r] = k
"""
UPTO = """
        count, s = 0, 0.0
        for j in range(n):
            if x[r, j] > t:
                break
            count += 1
            s = s + x[r, j]
        y[r] = count + s
"""
LEFT = """
        i = -1
        for i in range(n):
            if x[r, i] > t:
                break
        y[r] = i
"""
SUMMED = """
        k, c = -1, 0.0
        for j in range(n):
            c = c + abs(x[r, j])
            if c > t:
                k = j
                break
        y[r] = k
"""
ITERATED = """
        z, count = 0.25, 0
        for j in range(n):
            if z > t:
                break
            z = 0.5 * z + x[r, j]
            count += 1
        y[r] = count
"""
RETURNED = """
        y[r] = found(x[r], t)
    return y


def found(row, t):
    for j in range(row.shape[0]):
        if row[j] > t:
            return j
    return -1
"""

SEARCHES = {
    "first": (FIRST, "reduction", ("first",)),
    "values": (VALUES, "reduction", ("first",)),
    "backwards": (BACKWARDS, "reduction", ("first",)),
    "any": (ANY, "reduction", ("first",)),
    "all": (ALL, "reduction", ("first",)),
    "counted": (COUNTED, "reduction", ("first",)),
    "returned": (RETURNED, "reduction", ("first",)),
    "upto": (UPTO, "scan", ("first", "sum", "sum")),
    "left": (LEFT, "scan", ("first", "select")),
    "summed": (SUMMED, "sequential", ()),
    "iterated": (ITERATED, "sequential", ()),
}


def program(name: str) -> Callable[..., torch.Tensor]:
    body = SEARCHES[name][0]
    return compiled(HEAD + body + ("" if "return y" in body else "    return y\n"), f"<search {name}>")


def inputs(n: int, t: float) -> torch.Tensor:
    """Rows without a match, with one at either end or in the middle, with NaNs, and with several."""
    x = torch.linspace(-0.9 * t, 0.9 * t, n).repeat(7, 1) if n else torch.zeros(7, 0)
    if n:
        x[1, 0] = x[2, -1] = x[3, n // 2] = 2 * t
        x[4, : n // 3] = x[5, ::2] = math.nan
        x[5, n // 3] = x[6, n // 4] = x[6, n // 2] = 2 * t
    return x


@pytest.mark.parametrize("name", SEARCHES)
def test_verdicts(name: str) -> None:
    _, kind, algebra = SEARCHES[name]
    *_, loop = weft.analyze(program(name)).loops.values()
    assert (loop.kind, loop.algebra) == (kind, algebra)


def test_a_search_in_two_loops_is_one_of_searches() -> None:
    source = """
def found(x, b, t):
    for i in range(x.shape[1]):
        for j in range(x.shape[2]):
            if x[b, i, j] > t:
                return 10 * i + j
    return -1

def program(x, t: float):
    y = torch.zeros(x.shape[0], dtype=torch.int64)
    for b in range(x.shape[0]):
        y[b] = found(x, b, t)
    return y
"""
    function = compiled(source, "<two loops>")
    assert [v.algebra for v in weft.analyze(function).loops.values()] == [(), ("first",), ("first",)]
    x = torch.linspace(-1, 1, 60).reshape(4, 3, 5)
    for t in (-2.0, 0.3, 2.0):
        assert torch.equal(weft.kernel(function)(x, t), function(x, t))


@pytest.mark.parametrize("name", SEARCHES)
def test_values(name: str) -> None:
    function = program(name)
    kernel = weft.kernel(function)
    for n in (0, 1, 2, 33, 1000):
        for t in (0.5, 4.0, math.nan):
            torch.testing.assert_close(kernel(inputs(n, t), t), function(inputs(n, t), t), equal_nan=True)


@pytest.mark.parametrize("n", [33, 1000])
@pytest.mark.parametrize("name", ["values", "backwards", "any", "upto", "left", "iterated"])
def test_the_kernels_of_a_gpu(name: str, n: int) -> None:
    function = program(name)
    report = weft.kernel(function).check(inputs(n, 0.5), 0.5)
    assert report.ok, str(report)


def test_a_column_that_nothing_takes_is_counted_all_the_same() -> None:
    source = HEAD + "        m, v = -1.0, 0.0\n        for j in range(n):\n            if x[r, j] > m:\n"
    source += "                m = x[r, j]\n                v = x[r, j] * 3\n        y[r] = m + v\n    return y\n"
    function = compiled(source, "<extremum without its place>")
    run = simulate_call(weft.kernel(function), [inputs(33, 0.5), 0.5], "sm_90a", 0, "forward")
    torch.testing.assert_close(run.arrays[run.results[0]], function(inputs(33, 0.5), 0.5), equal_nan=True)


GUARDED = """
def program(x: torch.Tensor, starts: torch.Tensor, divisors: torch.Tensor):
    y = torch.zeros(starts.shape[0], dtype=torch.int64)
    for r in range(starts.shape[0]):
        k = -1
        for j in range(x.shape[0]):
            if TEST:
                k = j
                break
        y[r] = k
    return y
"""
LAZY = """
def program(x: torch.Tensor, starts: torch.Tensor, divisors: torch.Tensor):
    y = torch.zeros(starts.shape[0])
    for r in range(starts.shape[0]):
        found = False
        for j in range(x.shape[0]):
            found = found or TEST
        y[r] = 1.0 if found else 0.0
    return y
"""


@pytest.mark.parametrize("source", [GUARDED, LAZY], ids=["break", "or"])
@pytest.mark.parametrize("test", ["x[starts[r] + j] > 0.5", "10 // divisors[j] > 3", "x[2 * j] > 0.5"])
def test_what_follows_a_match_is_not_evaluated(source: str, test: str) -> None:
    """It would lie outside, or divide by zero."""
    function = compiled(source.replace("TEST", test), f"<{test} {len(source)}>")
    x = torch.zeros(50)
    x[40] = 1.0
    divisors = torch.full((50,), 9)
    divisors[30], divisors[31:] = 2, 0
    args = (x, torch.tensor([0, 20, 35, 40]), divisors)
    kernel = weft.kernel(function)
    assert torch.equal(kernel(*args), function(*args))
    run = simulate_call(kernel, list(args), "sm_90a", 0, "forward")
    assert torch.equal(run.arrays[run.results[0]], function(*args))
    divisors[30] = 9
    with pytest.raises((IndexError, ZeroDivisionError)):
        kernel(torch.zeros(50), args[1], divisors)


@pytest.mark.parametrize("arch", ["cpu", "sm_90a"])
def test_a_loop_in_order_ends_at_the_match(arch: str) -> None:
    assert "&& running" in weft.kernel(program("iterated")).source("float32[4,100]", 0.5, arch=arch)
    assert "&& running" in weft.kernel(program("first")).source("float32[4,100]", 0.5, arch="cpu")


def test_lanes_end_when_none_is_left() -> None:
    source = """
def program(x, t: float):
    y = torch.zeros(x.shape[1])
    for c in range(x.shape[1]):
        z = 0.0
        for l in range(x.shape[0]):
            z = 0.5 * z + x[l, c]
            if z > t:
                break
        y[c] = z
    return y
"""
    function = compiled(source, "<lanes that leave>")
    kernel = weft.kernel(function)
    assert "if (!going) break;" in kernel.source("float32[40,70]", 0.5, arch="cpu")
    x = torch.linspace(-1, 1, 40 * 70).reshape(40, 70)
    for t in (-3.0, 0.5, 3.0):
        torch.testing.assert_close(kernel(x, t), function(x, t))


def test_a_loop_with_more_to_do_does_not_end() -> None:
    source = HEAD + "        low, s = True, 0.0\n        for j in range(n):\n            if low and x[r, j] > t:\n"
    source += "                low = False\n            s = s * s * 0.1 + (x[r, j] if low else 1.0)\n"
    source += "        y[r] = s\n    return y\n"
    function = compiled(source, "<more to do>")
    text = weft.kernel(function).source("float32[4,100]", 0.5, arch="sm_90a")
    assert "bool low = true" in text and "; j < n; ++j)" in text and "break" not in text
    torch.testing.assert_close(weft.kernel(function)(inputs(33, 0.5), 0.5), function(inputs(33, 0.5), 0.5), equal_nan=True)


@pytest.mark.parametrize("result", ["x[r, k] * 3.0", "v", "s"])
def test_gradients_reach_what_was_found(result: str) -> None:
    source = HEAD + "        k, v, s = 0, x[r, 0] * 0.5, x[r, 0]\n        for j in range(n):\n            if x[r, j] > t:\n"
    source += "                k = j\n                v = x[r, j] * x[r, j]\n                break\n"
    source += f"            s = s + x[r, j] * x[r, j]\n        y[r] = {result}\n    return y\n"
    function = compiled(source, f"<gradients {result}>")
    found = []
    for f in (weft.kernel(function), function):
        x = inputs(33, 0.5).double().nan_to_num(0.1).requires_grad_()
        (gradient,) = torch.autograd.grad(f(x, 0.5).sum(), x)
        found.append(gradient)
    torch.testing.assert_close(*found)
