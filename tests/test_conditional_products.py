"""Sums of products on conditions, and of what results have of their own, by squares of results."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import weft
from tests.test_segments import launches_of
from weft.plan.product import ProductPlan

R = torch.randn


@weft.kernel
def bordered(x, w):
    batch, ins, height, width = x.shape
    outs = w.shape[0]
    y = torch.empty(batch, outs, height, width, dtype=x.dtype)
    for n in range(batch):
        for o in range(outs):
            for i in range(height):
                for j in range(width):
                    s = 0.0
                    for c in range(ins):
                        for a in range(3):
                            for b in range(3):
                                if 0 <= i + a - 1 < height and 0 <= j + b - 1 < width:
                                    s += w[o, c, a, b] * x[n, c, i + a - 1, j + b - 1]
                    y[n, o, i, j] = s
    return y


@weft.kernel
def differences(g, x, c):
    n, width = x.shape
    y = torch.empty_like(x)
    for i in range(n):
        for d in range(width):
            s = 0.0
            for k in range(c.shape[0]):
                s += g[i, k] * (x[i, d] - c[k, d]) ** 2
            y[i, d] = s
    return y


@weft.kernel
def weighed(x, w, v):
    """Weights below a diagonal, which are nowhere else: what multiplies them asks of no others."""
    n, width = v.shape
    weights = torch.empty(n, n)
    out = torch.empty(n, width)
    for i in range(n):
        for j in range(i + 1):
            dot = 0.0
            for d in range(width):
                dot += x[i, d] * w[j, d]
            weights[i, j] = dot
    for i in range(n):
        for d in range(width):
            acc = 0.0
            for j in range(i + 1):
                acc += weights[i, j] * v[j, d]
            out[i, d] = acc
    return out


def plans(kernel: Any, *shapes: tuple[int, ...]) -> set[type]:
    return {type(launch.variant.plan) for launch in launches_of(kernel, *(torch.empty(s, device="meta") for s in shapes))}


def test_they_are_products():
    assert plans(bordered, (4, 32, 28, 28), (32, 32, 3, 3)) == {ProductPlan}
    assert plans(differences, (3000, 200), (3000, 64), (200, 64)) == {ProductPlan}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_border_adds_nothing(dtype):
    x, w = R(1, 2, 4, 5).to(dtype), R(17, 2, 3, 3).to(dtype)
    assert bordered.check(x, w, gradients=dtype == torch.float32).ok
    w[3, 1, 0, 0], w[5, 0, 2, 1] = math.inf, math.nan  # times 0, these are no numbers
    assert bordered.check(x, w).ok


def test_results_have_values_of_their_own():
    assert differences.check(R(34, 9), R(34, 18), R(9, 18)).ok


@weft.kernel
def spread_apart(x, w, size: int):
    """Each side has conditions of its own, which keep it inside: rows those of what is made before, as long as a quotient."""
    outs, ins, taps = w.shape
    many = x.shape[1] // size
    h = torch.empty(outs, many)
    for o in range(outs):
        for t in range(many):
            h[o, t] = max(x[o, t * size], 0.0)
    y = torch.empty(ins, many + taps // 2, 2)
    for c in range(ins):
        for q in range(many + taps // 2):
            for r in range(2):
                s = 0.0
                for o in range(outs):
                    for j in range((taps + 1) // 2):
                        if r + 2 * j < taps and 0 <= q - j < many:
                            s += w[o, c, r + 2 * j] * h[o, q - j]
                y[c, q, r] = s
    return y


def test_conditions_of_both_sides():
    shapes = [torch.empty(s, device="meta") for s in ((96, 9000), (96, 80, 5))]
    assert type(launches_of(spread_apart, *shapes, 3)[-1].variant.plan) is ProductPlan
    report = spread_apart.check(R(3, 11), R(3, 4, 3), 2)
    assert report.ok, str(report)


@pytest.mark.parametrize("rows", [40, pytest.param(77, marks=pytest.mark.long)])  # lines of whole packets, and packed ones
def test_nothing_reads_memory_that_nobody_asks_of(rows):
    """What was beside the diagonal came with the packets across it: no value was wrong, and reads told of nobody's memory."""
    torch.manual_seed(0)
    report = weighed.check(*(R(rows, 16) for _ in range(3)), arch="sm_80", gradients=True)
    assert report.ok, report.text()
