"""Gradients of what is read by quotients and remainders (`x[c * r + i % r, i // r]`): an element tells the iterations that read
it, so it gathers what they hand back.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from tests.test_joins_apart import function_of
from tests.test_segments import same
from weft.compiler.analysis import lower_nest
from weft.loops.adjoint import adjoint
from weft.loops.analyze import schedule
from weft.loops.ir import Op, free_names, statement_exprs, walk, walk_expr

R = torch.randn


@weft.kernel
def shuffled_up(x, r: int):
    many, height, width = x.shape
    channels = many // (r * r)
    y = torch.empty(channels, height * r, width * r)
    for c in range(channels):
        for i in range(height * r):
            for j in range(width * r):
                y[c, i, j] = x[c * r * r + (i % r) * r + j % r, i // r, j // r]
    return y


@weft.kernel
def windows(x, size: int):
    height, width = x.shape
    across = width // size
    down = height // size
    y = torch.empty(down * across, size * size)
    for w in range(down * across):
        for t in range(size * size):
            y[w, t] = x[w // across * size + t // size, w % across * size + t % size] * (w + t)
    return y


@weft.kernel
def columns(x, size: int):
    channels, height, width = x.shape
    h, w = height - size + 1, width - size + 1
    y = torch.empty(channels * size * size, h * w)
    for k in range(channels * size * size):
        for p in range(h * w):
            y[k, p] = x[k // (size * size), p // w + k // size % size, p % w + k % size]
    return y


@weft.kernel
def turned(x, far: int):
    n, m = x.shape
    y = torch.empty(n, m)
    for i in range(n):
        for j in range(m):
            y[i, j] = x[(i + far) % n, (far - j) % m] * (i + 2 * j)
    return y


@weft.kernel
def cycled(x, n: int, period: int):
    y = torch.empty(n)
    for i in range(n):
        y[i] = x[i % period] * x[i % period] * (i + 1)
    return y


@weft.kernel
def interleaved(x, n: int):
    """Digits of which some are left out: elements between them get nothing."""
    y = torch.empty(n)
    for i in range(n):
        y[i] = x[i // 6 * 3 + i % 2] * (i + 1)
    return y


@weft.kernel
def upsampled(x, w, up: int):
    """Zeros between samples and a filter: of the filter's places one digit is a loop, the other one of the time."""
    rows, n = x.shape
    taps = w.shape[0]
    y = torch.empty(rows, n * up)
    for r in range(rows):
        for t in range(n * up):
            s = 0.0
            for k in range(taps // up):
                if t // up - k >= 0:
                    s += x[r, t // up - k] * w[k * up + t % up]
            y[r, t] = s
    return y


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "pixel shuffle": (shuffled_up, (R(9, 2, 3), 2)),
    "windows": (windows, (R(5, 7), 2)),
    "columns of an image": (columns, (R(2, 4, 5), 2)),
    "turned": (turned, (R(4, 5), -7)),
    "cycled": (cycled, (R(5), 13, 5)),
    "fewer than a cycle": (cycled, (R(5), 3, 5)),
    "cycled from the end": (cycled, (R(5), 9, -3)),
    "no cycle": (cycled, (R(5), 0, 0)),
    "upsampled": (upsampled, (R(2, 7), R(6), 2)),
    "upsampled, less of a filter": (upsampled, (R(2, 4), R(8), 3)),
    "interleaved": (interleaved, (R(8), 13)),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_loops(name: str) -> None:
    kernel, args = CASES[name]
    same(kernel, *args)


@pytest.mark.parametrize("name", ["pixel shuffle", "columns of an image"])
def test_the_kernels_compute_what_the_loops_do(name: str) -> None:
    kernel, args = CASES[name]
    report = kernel.check(*args, gradients=True)
    assert not report.findings and report.ok, str(report)


@pytest.mark.parametrize("name", ["pixel shuffle", "windows", "columns of an image", "turned", "cycled"])
def test_an_element_gathers_what_it_gets(name: str) -> None:
    kernel, args = CASES[name]
    found = schedule(adjoint(function_of(kernel, args), ("x",)))
    assert all(lower_nest(found, nest).joins is None for nest in found.nests if not nest.rare)


def test_digits_by_one_divisor_are_told_wherever_a_program_has_them() -> None:
    """The subscript has remainders alone; quotients by the same are digits, too, and no division is left of the time."""
    found = schedule(adjoint(function_of(*CASES["upsampled"]), ("x", "w")))
    for nest in (nest for nest in found.nests if not nest.rare):
        assert lower_nest(found, nest).joins is None
        sums = {loop.var for loop in nest.loops()} - {axis.var for axis in nest.axes}
        exprs = (e for s in walk(nest.body) for x in statement_exprs(s) for e in walk_expr(x) if isinstance(e, Op))
        assert not any(free_names(e) & sums for e in exprs if e.name in ("floordiv", "mod"))


@weft.kernel
def biased(scores, table, place):
    """A table by relative places: what all windows hand back to an element of it is summed before it is joined."""
    windows, n = scores.shape
    y = torch.empty(windows, n)
    for w in range(windows):
        for i in range(n):
            y[w, i] = scores[w, i] * table[place[i]]
    return y


def test_what_iterations_hand_back_to_one_element_is_summed_before_it_is_joined() -> None:
    args = R(6, 5), R(3), torch.tensor([0, 2, 2, -3, 1])
    same(biased, *args)
    same(biased, args[0][:0], args[1], torch.tensor([0, 9, 9, 9, 9]))  # no window reads the table
    found = schedule(adjoint(function_of(biased, args), ("table",)))
    (joined,) = (x for nest in found.nests if (x := lower_nest(found, nest).joins) is not None)
    assert [len(g.points) for g in joined.groups] == [1]
