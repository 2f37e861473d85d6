"""Ranges that data decide and that may meet: elements look for the rows that reach them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from weft.compiler import planning
from weft.pytorch.inspection import examine


@weft.kernel
def drawn(boxes, colours, height: int, width: int):
    """Boxes (top, left, bottom, right) over each other on a canvas."""
    y = torch.zeros(colours.shape[1], height, width)
    for r in range(boxes.shape[0]):
        for c in range(colours.shape[1]):
            for i in range(boxes[r, 0], boxes[r, 2]):
                for j in range(boxes[r, 1], boxes[r, 3]):
                    y[c, i, j] += colours[r, c]
    return y


@weft.kernel
def spans(x, first, last):
    """Sums of parts of rows that may have points in common."""
    batch, width = x.shape
    many = first.shape[0]
    y = torch.empty(batch, many)
    for n in range(batch):
        for s in range(many):
            total = 0.0
            for i in range(first[s], last[s] + 1):
                total += x[n, i] * x[n, i]
            y[n, s] = total
    return y


@weft.kernel
def regions(x, boxes, size: int):
    """Means over the bins of boxes (image, top, left, bottom, right)."""
    channels = x.shape[1]
    y = torch.empty(boxes.shape[0], channels, size)
    for r in range(boxes.shape[0]):
        for c in range(channels):
            for i in range(size):
                n = boxes[r, 0]
                top = boxes[r, 1] + i * (boxes[r, 3] - boxes[r, 1]) // size
                bottom = boxes[r, 1] + (i + 1) * (boxes[r, 3] - boxes[r, 1]) // size
                s = 0.0
                for p in range(top, bottom):
                    for q in range(boxes[r, 2], boxes[r, 4]):
                        s += x[n, c, p, q]
                y[r, c, i] = s / max((bottom - top) * (boxes[r, 4] - boxes[r, 2]), 1)
    return y


def values(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


BOXES = torch.tensor([[0, 1, 3, 4], [1, 0, 5, 3], [2, 2, 2, 6], [0, 0, 5, 6]])
CASES: dict[str, tuple[Any, tuple[Any, ...], bool]] = {
    "drawn": (drawn, (BOXES, values(4, 3), 5, 6), False),
    "below 0": (drawn, (BOXES - torch.tensor([2, 0, 2, 0]), values(4, 2), 5, 6), False),
    "spans": (spans, (values(2, 9), torch.tensor([0, 3, 3, 8, 5]), torch.tensor([4, 6, 2, 8, 8])), True),
    "regions": (regions, (values(2, 3, 5, 6), torch.cat([torch.tensor([[0], [1], [1], [0]]), BOXES], 1), 2), True),
}


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements look for rows however little that saves."""
    monkeypatch.setattr(planning, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(planning, "LAUNCH_SECONDS", 0.0)
    monkeypatch.setattr(planning, "seconds_of_looking", lambda *_: 0.0)


@pytest.mark.usefixtures("always", "quickly_compiled")
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_the_python(name: str) -> None:
    kernel, args, gradients = CASES[name]
    report = kernel.check(*args, gradients=gradients)
    assert report.ok, report


@pytest.mark.usefixtures("always")
def test_all_elements_look_at_once() -> None:
    launches = examine(drawn, CASES["drawn"][1]).launches()
    assert not any(one.steps for one in launches)
    assert any(one.where.analysis.lowered[0].looking and len(one.nest.axes) == 3 for one in launches)
