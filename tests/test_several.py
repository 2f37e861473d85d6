"""Threads that take several iterations of an axis at once: these share where they read, what holds there, how far loops go."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import weft
from weft.plan import several
from weft.plan.fold import FoldPlan
from weft.plan.threads import ThreadPlan
from weft.pytorch.call import argument_types
from weft.pytorch.executable import keeping_of
from weft.pytorch.inspection import examine


@weft.kernel
def turned(x, cos: float, sin: float):
    """An image by an angle around its centre, bilinear; 0 outside."""
    channels, height, width = x.shape
    y = torch.empty_like(x)
    for c in range(channels):
        for i in range(height):
            for j in range(width):
                u = (i - height / 2) * cos - (j - width / 2) * sin + height / 2
                v = (i - height / 2) * sin + (j - width / 2) * cos + width / 2
                top = math.floor(u)
                left = math.floor(v)
                s = 0.0
                for a in range(2):
                    for b in range(2):
                        if 0 <= top + a < height and 0 <= left + b < width:
                            s += x[c, top + a, left + b] * (1 - abs(u - top - a)) * (1 - abs(v - left - b))
                y[c, i, j] = s
    return y


@weft.kernel
def means_of_seen(x, seen):
    """Means over what a mask leaves of windows: a count that channels share beside a sum that they do not."""
    channels, height, width = x.shape
    y = torch.empty_like(x)
    for c in range(channels):
        for i in range(height):
            for j in range(width):
                total = 0.0
                count = 0
                for a in range(max(i - 1, 0), min(i + 2, height)):
                    for b in range(max(j - 1, 0), min(j + 2, width)):
                        if seen[a, b]:
                            total += x[c, a, b]
                            count += 1
                y[c, i, j] = total / max(count, 1)
    return y


@weft.kernel
def adaptive(x, height: int, width: int):
    """Adaptive average pooling."""
    channels, h, w = x.shape
    y = torch.empty(channels, height, width)
    for c in range(channels):
        for i in range(height):
            for j in range(width):
                s = 0.0
                top, bottom = i * h // height, -(-(i + 1) * h // height)
                left, right = j * w // width, -(-(j + 1) * w // width)
                for p in range(top, bottom):
                    for q in range(left, right):
                        s += x[c, p, q]
                y[c, i, j] = s / ((bottom - top) * (right - left))
    return y


@weft.kernel
def ranks(x):
    """How many of a row come before each: of the axis along which neighbours lie a thread has several, too."""
    rows, width = x.shape
    y = torch.empty(rows, width, dtype=torch.int64)
    for r in range(rows):
        for i in range(width):
            before = 0
            for j in range(width):
                if x[r, j] < x[r, i] or (x[r, j] == x[r, i] and j < i):
                    before += 1
            y[r, i] = before
    return y


@weft.kernel
def looked_up(x, table, place):
    """A condition and a value that all channels share, and one that each has for itself, in branches."""
    channels, n = x.shape
    y = torch.empty_like(x)
    for c in range(channels):
        for i in range(n):
            s = 0.0
            for k in range(3):
                p = place[i, k]
                if p >= 0:
                    weight = table[p] * table[p] + 1.0
                    v = x[c, p] * weight
                    if v > 0:
                        s += torch.sqrt(v)
                    else:
                        s -= v
                else:
                    s += 1.0
            y[c, i] = s
    return y


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


CASES: dict[str, tuple[Any, tuple[Any, ...], bool]] = {
    "turned": (turned, (drawn(5, 6, 7), 0.8, 0.6), False),
    "means_of_seen": (means_of_seen, (drawn(11, 4, 5), drawn(4, 5) > 0), True),
    "adaptive": (adaptive, (drawn(9, 7, 5), 3, 4), False),
    "ranks": (ranks, (torch.randint(0, 4, (5, 6)).float(),), False),
    "looked_up": (looked_up, (drawn(10, 6), drawn(6), torch.randint(-1, 6, (6, 3))), True),
}


@pytest.fixture
def few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads have several iterations however few threads that leaves."""
    monkeypatch.setattr(several, "THREADS", 0)
    monkeypatch.setattr(several, "GAIN", 0.9)


@pytest.mark.usefixtures("few_threads", "quickly_compiled")
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_the_python(name: str) -> None:
    kernel, args, gradients = CASES[name]
    (launch,) = examine(kernel, args).launches()
    assert isinstance(launch.variant.plan, ThreadPlan) and launch.variant.plan.several[1] > 1
    report = kernel.check(*args, gradients=gradients)
    assert report.ok, report


@weft.kernel
def largest(x, k: int):
    """The squares of the k largest of each row, 0 elsewhere."""
    rows, width = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        for i in range(width):
            above = 0
            for j in range(width):
                if x[r, j] > x[r, i] or (x[r, j] == x[r, i] and j < i):
                    above += 1
            y[r, i] = x[r, i] * x[r, i] if above < k else 0.0
    return y


def test_counts_that_gradients_ask_for_are_kept() -> None:
    x = drawn(3, 70).requires_grad_()
    kept = keeping_of(largest.program, argument_types(largest.signature, (x, 5)))
    assert kept is not None and kept.pays((x, 5)) and not kept.pays((x[:, :50], 5))
    seeds = drawn(70, 3).t()
    (found,) = torch.autograd.grad(largest(x, 5), x, seeds)
    values, places = x.detach().topk(5, 1)
    assert torch.equal(found, torch.zeros_like(x).scatter(1, places, 2 * values * seeds.gather(1, places)))


@weft.kernel
def sums_of_segments(x, starts):
    """How far a loop goes is the same for all columns, along which neighbours read."""
    y = torch.empty(starts.shape[0] - 1, x.shape[1])
    for s in range(starts.shape[0] - 1):
        for d in range(x.shape[1]):
            total = 0.0
            for i in range(starts[s], starts[s + 1]):
                total += x[i, d]
            y[s, d] = total
    return y


def test_neighbours_stay_along_what_they_read() -> None:
    rows, *_ = examine(sums_of_segments, ("float32[300007,130]", "int64[5002]")).launches()
    assert isinstance(rows.variant.plan, FoldPlan) and rows.variant.plan.lane == "d"
