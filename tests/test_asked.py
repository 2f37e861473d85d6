"""Loops that blocks ask for all of their elements at once: which iterations reach any of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from weft.compiler import kernels
from weft.plan.threads import ThreadPlan
from weft.pytorch.inspection import examine


@weft.kernel
def covered(x, on, low, high, weight):
    """Sums of the ranges that are on and that a point is in, with what is counted from its middle."""
    n = x.shape[0]
    y = torch.empty(n)
    for i in range(n):
        total = 0.0
        for r in range(low.shape[0]):
            begins = low[r]
            if on[r] and begins - 0.5 < i + 0.5 and i < high[r]:
                total += weight[r] * x[i]
        y[i] = total
    return y


@weft.kernel
def painted(x, boxes, colours):
    """The last box over each point of an image with channels beside each other, and how many there are."""
    height, width, channels = x.shape
    y = torch.empty_like(x)
    many = torch.empty(height, width, dtype=torch.int64)
    for i in range(height):
        for j in range(width):
            count = 0
            for r in range(boxes.shape[0]):
                if boxes[r, 0] <= i and i <= boxes[r, 2] and boxes[r, 1] <= j and boxes[r, 3] > j:
                    count += 1
            many[i, j] = count
            for c in range(channels):
                colour = x[i, j, c]
                for r in range(boxes.shape[0]):
                    if boxes[r, 0] <= i and i <= boxes[r, 2] and boxes[r, 1] <= j and boxes[r, 3] > j:
                        colour = 0.5 * colour + colours[r, c]
                y[i, j, c] = colour
    return y, many


@weft.kernel
def of_groups(x, group, scale):
    """What members of each group, of a batch, add to each channel of it."""
    batch, many, channels = x.shape
    y = torch.empty(batch, 3, channels)
    for b in range(batch):
        for g in range(3):
            for c in range(channels):
                total = 0.0
                for k in range(many):
                    if group[k] == g:
                        total += x[b, k, c] * scale[g]
                y[b, g, c] = total
    return y


def ranges(many: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    low = torch.randint(-3, size, (many,))
    return low, low + torch.randint(-2, 9, (many,))


def boxes_of(many: int, height: int, width: int) -> torch.Tensor:
    (top, bottom), (left, right) = ranges(many, height), ranges(many, width)
    return torch.stack([top, left, bottom, right], 1)


CALLS: list[tuple[Any, tuple[Any, ...]]] = [
    (covered, (torch.randn(141), torch.randn(131) > -1, *ranges(131, 141), torch.randn(131))),
    (painted, (torch.randn(6, 35, 2), boxes_of(66, 6, 35), torch.randn(66, 2))),
    (of_groups, (torch.randn(2, 65, 9), torch.randint(0, 4, (65,)), torch.randn(3))),
]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks ask however few elements there are."""
    monkeypatch.setattr(kernels, "ASKING", 0)


@pytest.mark.usefixtures("always", "quickly_compiled")
@pytest.mark.parametrize(("kernel", "args"), CALLS, ids=lambda v: getattr(v, "__name__", ""))
def test_those_that_reach_a_block_are_all_that_reach_its_elements(kernel: Any, args: tuple[Any, ...]) -> None:
    plans = [one.variant.plan for one in examine(kernel, [a.to("meta") for a in args]).launches()]
    assert any(isinstance(p, ThreadPlan) and p.tile for p in plans)
    report = kernel.check(*args)
    assert report.ok, report


@pytest.mark.usefixtures("always")
def test_an_iteration_that_may_fail_is_gone_through_by_all() -> None:
    @weft.kernel
    def through(x, low, place, weight):
        y = torch.empty(x.shape[0])
        for i in range(x.shape[0]):
            total = 0.0
            for r in range(low.shape[0]):
                if low[place[r]] <= i:
                    total += weight[r]
            y[i] = total
        return y

    shapes = ("float32[3000]", "int64[99]", "int64[99]", "float32[99]")
    assert not any(getattr(one.variant.plan, "tile", ()) for one in examine(through, shapes).launches())


@weft.kernel
def shorter(x, begins, ends, weight):
    """Elements of short ints: places that are compared with them, or added to them, become such, and 130 is -126 then."""
    n = x.shape[0]
    y = torch.zeros_like(x)
    for i in range(5, n):
        total = 0.0
        for r in range(begins.shape[0]):
            if begins[r] <= i + 60 and ends[r] + i > begins[r]:
                total = 0.5 * total + weight[r] * x[i]
        y[i] = total
    return y


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32], ids=str)
def test_ints_that_become_shorter_may_begin_again(dtype: torch.dtype) -> None:
    begins = torch.randint(90, 120, (90,), generator=torch.Generator().manual_seed(1)).to(dtype)
    report = shorter.check(torch.randn(517), begins, begins.flip(0), torch.randn(90))
    assert report.ok, report.text()
