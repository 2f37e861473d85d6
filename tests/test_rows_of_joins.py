"""Sums to elements that data choose in the points' own row (`x[i, index[i, j]]`, `x[b, parent[b, k], d]`): each row is joined
by itself, in the order of its points.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from tests.test_segments import launches_of
from weft.plan.join import JoinPlan, RowsPlan


@weft.kernel
def along(y, index, x):
    for i in range(index.shape[0]):
        for j in range(index.shape[1]):
            y[i, index[i, j]] += x[i, j]


@weft.kernel
def beams(y, parent, x):
    for b in range(parent.shape[0]):
        for k in range(parent.shape[1]):
            for d in range(x.shape[2]):
                y[b, parent[b, k], d] += x[b, k, d]


@weft.kernel
def kept(y, index, x):
    """Only some are joined, of two axes of points, to two axes of elements."""
    for a in range(index.shape[1]):
        for i in range(index.shape[0]):
            for b in range(index.shape[2]):
                if x[i, a, b] > 0:
                    y[index[i, a, b], i, a] += x[i, a, b]


def whole(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(-high, high, shape, generator=torch.Generator().manual_seed(1))


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "along": (along, (torch.randn(1030, 6), whole(6, 1030, 40), torch.randn(1030, 40))),
    "beams": (beams, (torch.randn(70, 3, 500), whole(3, 70, 11), torch.randn(70, 11, 500))),
    "kept": (kept, (torch.randn(5, 300, 4), whole(5, 300, 4, 9), torch.randn(300, 4, 9))),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_are_joined_as_the_loops_do(name: str) -> None:
    kernel, args = CASES[name]
    report = kernel.check(*args)
    assert not report.findings and report.ok, str(report)


@pytest.mark.parametrize("name", CASES)
def test_rows_are_joined_in_shared_memory(name: str) -> None:
    kernel, args = CASES[name]
    (launch,) = launches_of(kernel, *args)
    assert isinstance(launch.variant.plan, JoinPlan)
    assert [type(g) for g in launch.variant.plan.groups] == [RowsPlan]


@pytest.mark.parametrize("rows, elements, points", [(90, 6, 40), (2000, 99999, 400), (2000, 999, 4)])
def test_few_rows_and_long_ones_are_sorted(rows: int, elements: int, points: int) -> None:
    found = launches_of(along, f"float32[{rows},{elements}]", f"int64[{rows},{points}]", f"float32[{rows},{points}]")
    assert not any(isinstance(g, RowsPlan) for launch in found for g in launch.variant.plan.groups)
