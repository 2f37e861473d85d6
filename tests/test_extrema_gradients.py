"""Gradients of extrema beside which a loop carries where they are: one element has it, and no state of the loop is kept."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import weft
from tests.test_joins_apart import function_of
from weft.loops.adjoint import adjoint

pytestmark = pytest.mark.usefixtures("quickly_compiled")


@weft.kernel
def first_of_a_row(x):
    """The largest, the first place of it, and whether there was one."""
    y = torch.empty(x.shape[0])
    place = torch.empty(x.shape[0], dtype=torch.int64)
    for r in range(x.shape[0]):
        best, at, found = -1.0, -1, False
        for i in range(x.shape[1]):
            if x[r, i] > best:
                best, at, found = x[r, i], i, True
        y[r] = best * best if found else 3.0
        place[r] = at
    return y, place


@weft.kernel
def last_of_a_row(x):
    y = torch.empty(x.shape[0])
    place = torch.empty(x.shape[0], dtype=torch.int64)
    for r in range(x.shape[0]):
        best, at = math.inf, 0
        for i in range(x.shape[1]):
            if x[r, i] <= best:
                best, at = x[r, i], i
        y[r] = 2 * best
        place[r] = at
    return y, place


@weft.kernel
def of_two_axes(a, x):
    y = torch.empty(x.shape[0])
    place = torch.empty(x.shape[0], 2, dtype=torch.int64)
    for r in range(x.shape[0]):
        best, p, q = -math.inf, 0, 0
        for i in range(x.shape[1]):
            for j in range(x.shape[2]):
                s = a[r, i] + x[r, i, j]
                if s > best:
                    best, p, q = s, i, j
        y[r] = best
        place[r, 0] = p
        place[r, 1] = q
    return y, place


@weft.kernel
def of_a_triangle(x):
    """The inner loop is bounded by the outer one."""
    y = torch.empty(x.shape[0])
    for r in range(x.shape[0]):
        best, p = -math.inf, 0
        for i in range(x.shape[1]):
            for j in range(i + 1):
                if x[r, i, j] > best:
                    best, p = x[r, i, j], i
        y[r] = best + p
    return y


@weft.kernel
def asked_on_the_way(x):
    """What the place is decides a float: every state counts."""
    y = torch.empty(x.shape[0])
    for r in range(x.shape[0]):
        best, at, s = -math.inf, 0, 0.0
        for i in range(x.shape[1]):
            if x[r, i] > best:
                best, at = x[r, i], i
            s += x[r, at] * best
        y[r] = s + best
    return y


def few(*shape: int) -> torch.Tensor:
    """Numbers among which there are equals."""
    return torch.randint(-2, 3, shape).float()


CASES: dict[str, tuple[Any, Any]] = {
    "first": (first_of_a_row, lambda: (few(6, 9),)),
    "last": (last_of_a_row, lambda: (few(6, 9),)),
    "two axes": (of_two_axes, lambda: (few(5, 3), few(5, 3, 4))),
    "a triangle": (of_a_triangle, lambda: (few(4, 5, 5),)),
    "on the way": (asked_on_the_way, lambda: (few(4, 6),)),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_python(name: str) -> None:
    torch.manual_seed(0)
    kernel, make = CASES[name]
    for _ in range(4):
        args, found = make(), []
        for run in (kernel, kernel.py):
            own = [a.clone().requires_grad_() for a in args]
            y = run(*own)
            y = y[0] if isinstance(y, tuple) else y
            found.append(torch.autograd.grad(y, own, torch.arange(1.0, 1 + len(y))))
        for ours, theirs in zip(*found, strict=True):
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", ["first", "last", "two axes"])
def test_no_state_of_the_loop_is_kept(name: str) -> None:
    kernel, make = CASES[name]
    args = make()
    derived = adjoint(function_of(kernel, args), tuple(kernel.signature.names))
    assert all(len(a.shape) < 2 for a in derived.arrays if a.role == "local")


@pytest.mark.parametrize("name", ["first", "two axes"])
def test_the_kernels_compute_what_the_loops_do(name: str) -> None:
    kernel, make = CASES[name]
    report = kernel.check(*make(), gradients=True)
    assert not report.findings and report.ok, str(report)


@weft.kernel
def of_what_a_loop_inside_carries(x, c):
    """The elements of an extremum of two loops are made of what the inner one carries, from one element to the next."""
    y = torch.zeros(x.shape[0], dtype=x.dtype)
    for i in range(x.shape[0]):
        best = 0.25
        for j in range(c.shape[0]):
            s = 0.5
            t = 1.0
            for k in range(c.shape[1]):
                best = max(best, s * x[i, k] + t)
                s = s * c[j, k] + t
                t = t * 0.5 + c[j, k]
        y[i] = best
    return y


@pytest.mark.parametrize("seed", range(4))
def test_elements_that_are_made_of_what_a_loop_inside_carries(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x, c = (torch.randn(s, 4, dtype=torch.float64, generator=generator).requires_grad_() for s in (3, 2))
    kernel = of_what_a_loop_inside_carries
    own, plain = (torch.autograd.grad(f(x, c).sum() + x.sum() + c.sum(), (x, c)) for f in (kernel, kernel.py))
    for ours, theirs in zip(own, plain, strict=True):
        torch.testing.assert_close(ours, theirs)


def drawdown(x):
    """The elements are made of what a scan carries, whose sums may be grouped otherwise wherever they are added up again."""
    y = torch.empty(x.shape[0], dtype=x.dtype)
    for i in range(x.shape[0]):
        total, peak, worst = 0.0, -math.inf, 0.0
        for t in range(x.shape[1]):
            total = total + x[i, t]
            peak = max(peak, total)
            worst = max(worst, peak - total)
        y[i] = worst
    return y


def the_last_of_equals(x):
    y = torch.empty(x.shape[0], dtype=x.dtype)
    for i in range(x.shape[0]):
        total, peak, worst = 0.0, -math.inf, x[i, 0] * x[i, 1]
        for t in range(x.shape[1] - 1, -1, -1):
            total = total + x[i, t]
            peak = max(peak, total)
            worst = peak - total if peak - total >= worst else worst
        y[i] = worst
    return y


def of_nan_too(x):
    y = torch.empty(x.shape[0], dtype=x.dtype)
    for i in range(x.shape[0]):
        total, peak, worst = 0.0, -math.inf, 0.0
        for t in range(x.shape[1]):
            total = total + x[i, t]
            peak = max(peak, total)
            if x[i, t] * total > 0.1:
                worst = max(peak - total, worst)
        y[i] = worst
    return y


def on_a_condition_the_least(x):
    y = torch.empty(x.shape[0], dtype=x.dtype)
    for i in range(x.shape[0]):
        total, peak, worst = 0.0, -math.inf, x[i, 0] * x[i, 1]
        for t in range(x.shape[1]):
            total = total + x[i, t]
            peak = max(peak, total)
            if x[i, t] * total > 0.1:
                worst = min(worst, total - peak)
        y[i] = worst
    return y


def shared_out(x):
    y = torch.empty(x.shape[0], dtype=x.dtype)
    for i in range(x.shape[0]):
        fallen = torch.empty(x.shape[1], dtype=x.dtype)
        total, peak = 0.0, -math.inf
        for t in range(x.shape[1]):
            total = total + x[i, t]
            peak = max(peak, total)
            fallen[t] = peak - total
        y[i] = torch.amax(fallen)
    return y


def of_two_loops(x):
    y = torch.empty(2, dtype=x.dtype)
    first, last = 0.0, 0.0
    for i in range(x.shape[0]):
        h = 0.0
        for t in range(x.shape[1]):
            h = h * 0.9 + x[i, t]
            first = max(first, abs(h) - 0.1 * h)
            last = max(abs(h) - 0.1 * h, last)
    y[0] = first
    y[1] = last
    return y


COMPUTED = (drawdown, the_last_of_equals, of_nan_too, on_a_condition_the_least, shared_out, of_two_loops)


@pytest.mark.parametrize("program", COMPUTED, ids=lambda p: p.__name__)
def test_who_attains_an_extremum_is_asked_of_elements_that_one_loop_computes(program: Any) -> None:
    """Its value in the end, added up in another order, may be none of the elements."""
    kernel = weft.kernel(program)
    for seed in range(2):
        x = torch.randn(6, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        ours, theirs = (torch.autograd.grad(f(x).sum() + x.sum(), x)[0] for f in (kernel, program))
        torch.testing.assert_close(ours, theirs)


def test_a_simulated_gpu_finds_them_too() -> None:
    """Forward and gradient group the scan's sums by plans of their own."""
    report = weft.kernel(drawdown).check(torch.randn(3, 300, generator=torch.Generator().manual_seed(0)), gradients=True)
    assert not report.findings and report.ok, str(report)
