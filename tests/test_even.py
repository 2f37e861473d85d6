"""Rows that bound one another, as those of a triangle do: products and folds of the points of a box around them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from tests.test_pages import plan_of
from weft.plan.fold import FoldPlan
from weft.plan.product import ProductPlan
from weft.plan.threads import ThreadPlan

pytestmark = pytest.mark.usefixtures("quickly_compiled")


@weft.kernel
def causal_scores(q, k):
    batch, length, width = q.shape
    out = torch.zeros((batch, length, length), dtype=q.dtype, device=q.device)
    for b in range(batch):
        for t in range(length):
            for s in range(t + 1):
                dot = 0.0
                for j in range(width):
                    dot += q[b, t, j] * k[b, s, j]
                out[b, t, s] = dot
    return out


@weft.kernel
def both_halves(x):
    n, width = x.shape
    out = torch.zeros((n, n), dtype=torch.float32, device=x.device)
    for i in range(n):
        for j in range(i + 1):
            dot = 0.0
            for k in range(width):
                dot += x[i, k] * x[j, k]
            out[i, j] = dot
            out[j, i] = dot
    return out


@weft.kernel
def later_than(x, y):
    n, width = x.shape
    out = torch.zeros((n, y.shape[0]), dtype=torch.float32, device=x.device)
    for i in range(n):
        for j in range(max(i - 2, 0), y.shape[0]):
            dot = 0.0
            for k in range(width):
                dot += x[i, k] * y[j, k]
            out[i, j] = dot
    return out


@weft.kernel
def row_sums(x):
    n, m, width = x.shape
    out = torch.zeros((n, m), dtype=x.dtype, device=x.device)
    for i in range(n):
        for j in range(min(i + 1, m)):
            total = 0.0
            for k in range(j + 1, width):
                total += x[i, j, k]
            out[i, j] = total
    return out


@weft.kernel
def beyond(x):
    """At points beyond the triangle there would be no element of x."""
    n, width = x.shape
    out = torch.zeros((n, n), dtype=x.dtype, device=x.device)
    for i in range(n):
        for j in range(i + 1):
            total = 0.0
            for k in range(width):
                total += x[i - j, k]
            out[i, j] = total
    return out


@weft.kernel
def beyond_twice(x):
    """The same, of an axis that is bounded by one that a triangle bounds."""
    n, width = x.shape
    out = torch.zeros((n, n), dtype=x.dtype, device=x.device)
    for i in range(n):
        for j in range(i + 1):
            total = 0.0
            for k in range(j + 1):
                for m in range(k + 1):
                    total += x[i - m, 0]
            out[i, j] = total
    return out


@weft.kernel
def near(x, width):
    n, m = x.shape
    out = torch.zeros((n, n), dtype=x.dtype, device=x.device)
    for i in range(n):
        for j in range(max(i - width, 0), min(i + width, n)):
            total = 0.0
            for k in range(m):
                total += x[i, k] * x[j, k]
            out[i, j] = total
    return out


def many(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape).to(dtype)


CASES: dict[str, tuple[Any, Any, tuple[str, ...], type]] = {
    "scores": (
        causal_scores,
        lambda: (many(2, 21, 16, dtype=torch.bfloat16), many(2, 23, 16, dtype=torch.bfloat16)),
        ("bfloat16[64,4096,64]",) * 2,
        ProductPlan,
    ),
    "both_halves": (both_halves, lambda: (many(19, 7),), ("float32[4096,512]",), ProductPlan),
    "later_than": (later_than, lambda: (many(13, 9), many(20, 9)), ("float32[3000,500]", "float32[3001,500]"), ProductPlan),
    "row_sums": (row_sums, lambda: (many(9, 6, 11),), ("float32[500,600,700]",), FoldPlan),
}


@pytest.mark.parametrize("name", CASES)
def test_points_of_a_triangle_are_computed_in_a_box(name: str) -> None:
    kernel, make, large, kind = CASES[name]
    assert isinstance(plan_of(kernel, *large), kind)
    assert "unused" not in str(kernel.explain(*large))
    torch.manual_seed(1)
    args = make()
    assert kernel.check(*args).ok


def test_gradients_of_a_triangle() -> None:
    q, k = (torch.randn(2, 9, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(causal_scores, (q, k))


def test_boxes_end_where_arrays_or_the_program_s_points_do() -> None:
    args = torch.randn(9, 8), torch.randn(7, 8)  # fewer rows of y than of x: a call without a box around its points would do
    assert later_than.check(*args).ok
    assert isinstance(plan_of(beyond, "float32[3000,500]"), ThreadPlan)
    assert "the bounds of j are not the same everywhere" in str(beyond.explain("float32[3000,500]"))
    assert beyond.check(torch.randn(11, 5)).ok
    assert beyond_twice.check(torch.randn(9, 5)).ok
    assert isinstance(plan_of(near, "float32[8000,500]", 64), ThreadPlan)  # a box would have 60 points for each of them
    assert isinstance(plan_of(near, "float32[8000,500]", 4000), ProductPlan)
    assert near.check(torch.randn(17, 5), 12).ok
