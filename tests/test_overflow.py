"""Scans whose coefficients overflow when they are composed, where no state does: the states are what the Python gives, on
the CPU and in the simulated CUDA code, infinities and NaN among them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.pytorch.simulated import simulate_call


def recurrence(x, c):
    rows, n = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = 0.0
        for i in range(n):
            h = c[r, i] * h + x[r, i]
            y[r, i] = h
    return y


def backwards_in_place(x, c):
    rows, n = x.shape
    for r in range(rows):
        h = 0.0
        for i in range(n - 1, -1, -1):
            h = c[r, i] * h + x[r, i]
            x[r, i] = h
    return x


def last_value(x, c):
    rows, n = x.shape
    y = torch.empty(rows, dtype=x.dtype)
    for r in range(rows):
        h = 0.0
        for i in range(n):
            h = c[r, i] * h + x[r, i]
        y[r] = h
    return y


def factored(x, c):
    """The addend of the composed form overflows too: (h + x) * c is c * h + c * x."""
    rows, n = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = 0.0
        for i in range(n):
            h = (h + x[r, i]) * c[r, i]
            y[r, i] = h
    return y


def product(x, c):
    rows, n = x.shape
    y = torch.empty(rows, dtype=x.dtype)
    for r in range(rows):
        p = 1.0
        for i in range(n):
            p = p * c[r, i]
        y[r] = p
    return y


def running_product(x, c):
    rows, n = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        p = x[r, 0]
        for i in range(n):
            p = p * c[r, i]
            y[r, i] = p
    return y


def second_order(x, c):
    rows, n = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        earlier = 0.0
        before = 0.0
        for i in range(n):
            value = c[r, i] * before + 0.5 * earlier + x[r, i]
            earlier = before
            before = value
            y[r, i] = value
    return y


def segmented(x, c):
    rows, n = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = 0.0
        for i in range(n):
            h = x[r, i] if c[r, i] < 0.0 else c[r, i] * h + x[r, i]
            y[r, i] = h
    return y


def two_scans(x, c):
    """The second scan's terms are states of the first."""
    rows, n = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = 0.0
        g = 0.0
        for i in range(n):
            h = c[r, i] * h + x[r, i]
            g = c[r, i] * g + h
            y[r, i] = g
    return y


PROGRAMS = (
    recurrence, backwards_in_place, last_value, factored, product, running_product, second_order, segmented, two_scans,
)  # fmt: skip
EXTREME = (0.0, 0.0, 1.0, -1.0, 2.0, 1e20, -1e20, 1e38, float("inf"), float("nan"))


def rows_of(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of growth over zeros, of numbers that hold each other, of extremes and of ordinary numbers, with coefficients."""
    generator = torch.Generator().manual_seed(n)
    quiet = torch.zeros(n)
    quiet[-2:] = 1.0
    alternating = torch.full((n,), 1e-20)
    alternating[::2] = 1e20
    some = torch.tensor(EXTREME)
    ordinary = torch.randn(n, generator=generator)
    extremes = [some[torch.randint(len(some), (n,), generator=generator)] for _ in range(2)]
    seldom = torch.where(torch.rand(n, generator=generator) < 3 / n, extremes[1], 0.5)
    x = torch.stack([quiet, quiet, ordinary, ordinary, extremes[0], ordinary])
    c = torch.stack([torch.full((n,), 2.0), torch.full((n,), 1e20), alternating, seldom, extremes[1], ordinary.cos()])
    return x, c


def alike(found: torch.Tensor, wanted: torch.Tensor, fused: bool = False) -> None:
    """Equal but for rounding. A fused multiply-add may leave an infinity where Python subtracts two. fused: it may also
    leave a number where a product that Python rounds by itself is beyond the largest.
    """
    finite = wanted.isfinite()
    assert (found.isfinite() | ~finite).all()
    assert fused or not found.isfinite()[~finite].any()
    torch.testing.assert_close(found[finite], wanted[finite], rtol=5e-3, atol=1e-3)


@pytest.mark.parametrize("n", [5, 37, 300])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_states_are_those_of_the_python(program: Callable[..., Any], n: int) -> None:
    x, c = rows_of(n)
    alike(weft.kernel(program)(x.clone(), c), program(x.clone(), c))


@pytest.mark.parametrize("n", [70, 2100])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_so_they_are_in_cuda(program: Callable[..., Any], n: int) -> None:
    x, c = rows_of(n)
    run = simulate_call(weft.kernel(program), [x.clone(), c], "sm_90a", 0, "forward")
    assert not any(s.findings for launch in run.launches for s in launch.simulations)
    (result,) = run.results
    alike(run.arrays[result], program(x.clone(), c))


@given(
    pairs=st.lists(st.tuples(st.sampled_from(EXTREME), st.sampled_from(EXTREME)), min_size=1, max_size=40),
    program=st.sampled_from(PROGRAMS),
)
def test_any_sequence_of_extremes(pairs: list[tuple[float, float]], program: Callable[..., Any]) -> None:
    x, c = torch.tensor(pairs).t().contiguous()[:, None]
    alike(weft.kernel(program)(x.clone(), c), program(x.clone(), c), fused=True)
