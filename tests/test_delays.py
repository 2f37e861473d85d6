"""Rings of what was stored a while ago (`ring[t % m] = x[t]`) are read where that came from."""

from __future__ import annotations

import pytest
import torch

import weft
from tests.test_joins_apart import function_of
from tests.test_segments import same
from weft.loops.analyze import schedule

R = torch.randn


@weft.kernel
def filtered(x, w, taps: int):
    n, width = x.shape
    y = torch.empty_like(x)
    ring = torch.zeros(taps, width)
    for t in range(n):
        for d in range(width):
            ring[t % taps, d] = x[t, d]
            s = 0.0
            for k in range(taps):
                s += w[k] * ring[(t - k) % taps, d].clone()
            y[t, d] = s
    return y


@weft.kernel
def late(x, steps: int, more: int):
    """Read before it is stored, and at any place; it begins with ones."""
    n = x.shape[0]
    y = torch.empty_like(x)
    ring = torch.ones(steps)
    for t in range(n):
        s = ring[t % steps].clone() - 2 * ring[(t + more) % steps].clone()
        ring[t % steps] = x[t] * 2
        y[t] = s * ring[(t + more + 1) % steps].clone()
    return y


@weft.kernel
def rows_apart(x, steps: int):
    """A ring for each row, stored in a loop of its own and read in another."""
    rows, n, width = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        ring = torch.zeros(steps, width)
        for t in range(n):
            for d in range(width):
                ring[t % steps, d] = x[r, t, d]
            for d in range(width):
                s = 0.0
                for e in range(width):
                    s += ring[(t - 1) % steps, e]
                y[r, t, d] = s
    return y


@weft.kernel
def kept_over(x, steps: int):
    """A ring that one row leaves to the next."""
    rows, n = x.shape
    y = torch.empty_like(x)
    ring = torch.zeros(steps)
    for r in range(rows):
        for t in range(n):
            y[r, t] = ring[t % steps]
            ring[t % steps] = x[r, t]
    return y


@weft.kernel
def neighbours(x, steps: int):
    """Places that this iteration has stored already, or has not yet."""
    n, width = x.shape
    y = torch.empty_like(x)
    ring = torch.zeros(steps, width)
    for t in range(n):
        for d in range(width):
            ring[t % steps, d] = x[t, d]
            y[t, d] = ring[t % steps, max(d - 1, 0)] + ring[t % steps, min(d + 1, width - 1)]
    return y


@weft.kernel
def at_times(x, mask, steps: int):
    """Stored now and then."""
    n = x.shape[0]
    y = torch.empty_like(x)
    ring = torch.zeros(steps)
    for t in range(n):
        if mask[t]:
            ring[t % steps] = x[t]
        y[t] = ring[(t + 1) % steps]
    return y


@pytest.mark.parametrize("taps", [1, 2, 5, 9])
def test_filters_over_rings(taps: int) -> None:
    same(filtered, R(7, 3), R(taps), taps)


@pytest.mark.parametrize(("steps", "more"), [(1, 0), (3, 0), (3, -1), (4, 2), (5, -7), (9, 3)])
def test_any_place_before_and_after_the_store(steps: int, more: int) -> None:
    same(late, R(7), steps, more)


def test_rings_of_rows_and_those_that_stay_rings() -> None:
    same(rows_apart, R(2, 5, 3), 2)
    same(kept_over, R(3, 4), 3)
    same(neighbours, R(5, 4), 2)
    same(at_times, R(8), torch.rand(8) < 0.5, 3)


def test_no_iteration_hangs_on_another() -> None:
    found = schedule(function_of(filtered, (R(7, 3), R(4), 4)))
    assert [v.kind for v in found.loops] == ["parallel", "parallel", "reduction"]
    assert [a.name for a in found.function.arrays if a.role == "local"] == []


def test_a_ring_of_no_places_is_refused() -> None:
    for function in (filtered, filtered.py):
        with pytest.raises(ZeroDivisionError):
            function(R(3, 2), R(0), 0)
