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
