"""Gradients of what is read once for several iterations (`scale[c // group]`): an element's are those of a strip of iterations,
which are summed where the element is stored.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from tests.test_joins_apart import function_of
from weft.compiler.analysis import lower_nest
from weft.loops.adjoint import adjoint
from weft.loops.analyze import schedule

pytestmark = pytest.mark.usefixtures("quickly_compiled")

R = torch.randn


@weft.kernel
def grouped_heads(q, k):
    """Several heads share keys: how many, sizes say."""
    together = q.shape[1] // k.shape[1]
    y = torch.empty(q.shape[0], q.shape[1], q.shape[2])
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for s in range(q.shape[2]):
                t = 0.0
                for d in range(q.shape[3]):
                    t += q[b, h, s, d] * k[b, h // together, s, d]
                y[b, h, s] = t
    return y


@weft.kernel
def upsampled(x):
    n, h, w = x.shape
    y = torch.empty(n, 2 * h, 2 * w)
    for a in range(n):
        for i in range(2 * h):
            for j in range(2 * w):
                y[a, i, j] = x[a, i // 2, j // 2] * (1 + i % 2)
    return y


@weft.kernel
def stretched(x, factor: int):
    """Between neighbours of the strip and of the next one."""
    b_, l_, c_ = x.shape
    y = torch.empty(b_, (l_ - 1) * factor, c_)
    for b in range(b_):
        for l in range((l_ - 1) * factor):
            for c in range(c_):
                i = l // factor
                u = (l % factor) / factor
                y[b, l, c] = x[b, i, c] * (1 - u) + x[b, i + 1, c] * u
    return y


@weft.kernel
def scaled(x, scale, group: int):
    r_, c_ = x.shape
    y = torch.empty(r_, c_)
    for r in range(r_):
        for c in range(c_):
            if x[r, c] > -1:
                y[r, c] = x[r, c] * scale[r, c // group]
            else:
                y[r, c] = 0.0
    return y


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "heads": (grouped_heads, (R(2, 8, 5, 3), R(2, 2, 5, 3))),
    "upsampled": (upsampled, (R(2, 3, 5),)),
    "stretched": (stretched, (R(2, 5, 3), 3)),
    "a strip is one": (stretched, (R(2, 5, 3), 1)),
    "whole strips": (scaled, (R(3, 12), R(3, 4), 3)),
    "the last strip is shorter": (scaled, (R(3, 10), R(3, 4), 3)),
    "elements without a strip": (scaled, (R(3, 10), R(3, 9), 3)),
    "one strip": (scaled, (R(3, 10), R(3, 1), 100)),
    "strips from the end": (scaled, (R(3, 7), R(3, 4), -3)),
    "one after another from the end": (scaled, (R(3, 4), R(3, 4), -1)),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_loops(name: str) -> None:
    kernel, args = CASES[name]
    found = []
    for run in (kernel, kernel.py):
        own = [a.clone().requires_grad_() if isinstance(a, torch.Tensor) else a for a in args]
        y = run(*own)
        torch.manual_seed(0)
        found.append(torch.autograd.grad(y, [a for a in own if isinstance(a, torch.Tensor)], R(y.shape)))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", ["heads", "upsampled", "stretched", "the last strip is shorter", "one strip"])
def test_the_kernels_compute_what_the_loops_do(name: str) -> None:
    kernel, args = CASES[name]
    report = kernel.check(*args, gradients=True)
    assert not report.findings and report.ok, str(report)


@pytest.mark.parametrize("name, wanted", [("heads", ("q", "k")), ("upsampled", ("x",)), ("one strip", ("x", "scale"))])
def test_what_an_element_gets_is_summed_where_it_is_stored(name: str, wanted: tuple[str, ...]) -> None:
    kernel, args = CASES[name]
    found = schedule(adjoint(function_of(kernel, args), wanted))
    assert all(lower_nest(found, nest).joins is None for nest in found.nests if not nest.rare)
