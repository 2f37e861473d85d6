"""Ranges that data give to rows: side by side where no two have a number in common, as the loops say where they have."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import weft
from tests.graphs import parsed
from weft.loops.adjoint import adjoint
from weft.loops.analyze import schedule
from weft.plan.fold import FoldPlan
from weft.plan.join import JoinPlan
from weft.plan.map import MapPlan
from weft.plan.threads import ThreadPlan
from weft.pytorch.inspection import examine

pytestmark = pytest.mark.usefixtures("quickly_compiled")

R = torch.randn

# As they should be; with gaps; ranges that meet; that go down; below 0; without a number.
STARTS = [[0, 3, 3, 7, 12], [2, 3, 9, 11], [0, 5, 3, 8, 12], [9, 4, 6, 2, 12], [-3, 0, 4, 9], [5, 5, 5, 6], [4]]


@weft.kernel
def edge_softmax(starts, scores):
    y = torch.zeros_like(scores)
    for r in range(starts.shape[0] - 1):
        m = -math.inf
        for j in range(starts[r], starts[r + 1]):
            m = max(m, scores[j])
        s = 0.0
        for j in range(starts[r], starts[r + 1]):
            s += torch.exp(scores[j] - m)
        for j in range(starts[r], starts[r + 1]):
            y[j] = torch.exp(scores[j] - m) / s
    return y


@weft.kernel
def normalised(starts, x):
    """In place: what rows that meet find is what those before them have left."""
    for r in range(starts.shape[0] - 1):
        s = 1.0
        for j in range(starts[r], starts[r + 1]):
            s += x[j] * x[j]
        for j in range(starts[r], starts[r + 1]):
            x[j] = x[j] / s


@weft.kernel
def sparse_product(starts, columns, values, x):
    y = torch.empty(starts.shape[0] - 1)
    for r in range(starts.shape[0] - 1):
        s = 0.0
        for j in range(starts[r], starts[r + 1]):
            s += values[j] * x[columns[j]]
        y[r] = s
    return y


@weft.kernel
def sparse_lines(starts, columns, values, x):
    y = torch.empty(starts.shape[0] - 1, x.shape[1])
    for r in range(starts.shape[0] - 1):
        for d in range(x.shape[1]):
            total = 0.0
            for j in range(starts[r], starts[r + 1]):
                total += values[j] * x[columns[j], d]
            y[r, d] = total
    return y


@weft.kernel
def sparse_times_dense(starts, columns, values, x):
    """Both gradients are joined, one of them a sum over the columns of x."""
    y = torch.zeros(starts.shape[0] - 1, x.shape[1])
    for r in range(starts.shape[0] - 1):
        for j in range(starts[r], starts[r + 1]):
            for d in range(x.shape[1]):
                y[r, d] += values[j] * x[columns[j], d]
    return y


@weft.kernel
def attended(starts, columns, scores, x):
    """The mean of neighbours, by a softmax of the scores of a row."""
    y = torch.empty(starts.shape[0] - 1, x.shape[1])
    a = torch.empty_like(scores)
    for r in range(starts.shape[0] - 1):
        m = -math.inf
        for j in range(starts[r], starts[r + 1]):
            m = max(m, scores[j])
        s = 0.0
        for j in range(starts[r], starts[r + 1]):
            s += torch.exp(scores[j] - m)
        for j in range(starts[r], starts[r + 1]):
            a[j] = torch.exp(scores[j] - m) / s
        for d in range(x.shape[1]):
            total = 0.0
            for j in range(starts[r], starts[r + 1]):
                total += a[j] * x[columns[j], d]
            y[r, d] = total
    return y


@weft.kernel
def column_means(starts, x):
    y = torch.zeros(starts.shape[0] - 1, x.shape[1])
    for r in range(starts.shape[0] - 1):
        for d in range(x.shape[1]):
            s = 0.0
            for j in range(starts[r], starts[r + 1]):
                s += x[j, d]
            y[r, d] = s / max(starts[r + 1] - starts[r], 1)
    return y


@weft.kernel
def between(first, last, x):
    """Ranges with starts and ends of their own."""
    y = torch.zeros_like(x)
    for r in range(first.shape[0]):
        s = 0.0
        for j in range(first[r], last[r]):
            s += x[j]
        for j in range(first[r], last[r]):
            y[j] = x[j] - s
    return y


@weft.kernel
def scaled(starts, x, w):
    y = torch.zeros_like(x)
    for r in range(starts.shape[0] - 1):
        for j in range(starts[r], starts[r + 1]):
            y[j] = x[j] * w[r]
    return y


@weft.kernel
def online(starts, x):
    y = torch.zeros_like(x)
    for r in range(starts.shape[0] - 1):
        m, s = -math.inf, 0.0
        for j in range(starts[r], starts[r + 1]):
            n = max(m, x[j])
            s = s * torch.exp(m - n) + torch.exp(x[j] - n)
            m = n
        for j in range(starts[r], starts[r + 1]):
            y[j] = torch.exp(x[j] - m) / s
    return y


@weft.kernel
def of_batches(starts, x):
    """Rows of each batch meet rows of others in nothing but their numbers."""
    y = torch.zeros_like(x)
    for b in range(x.shape[0]):
        for r in range(starts.shape[1] - 1):
            s = 0.0
            for j in range(starts[b, r], starts[b, r + 1]):
                s += x[b, j]
            for j in range(starts[b, r], starts[b, r + 1]):
                y[b, j] = x[b, j] * s
    return y


@weft.kernel
def over_all_batches(starts, x):
    """The same, but the elements are those of all batches: rows of one meet those of another."""
    y = torch.zeros_like(x)
    for b in range(starts.shape[0]):
        for r in range(starts.shape[1] - 1):
            for j in range(starts[b, r], starts[b, r + 1]):
                y[j] = x[j] + b
    return y


@weft.kernel
def counted(starts, items, n: int):
    y = torch.zeros(n, dtype=torch.int64)
    for r in range(starts.shape[0] - 1):
        for j in range(starts[r], starts[r + 1]):
            y[items[j]] += r
    return y


def same(kernel: Any, *args: Any) -> None:
    """A call and its gradients are those of the plain Python."""
    made = []
    for function in (kernel, kernel.py):
        own = [a.clone().requires_grad_() if torch.is_tensor(a) and a.is_floating_point() else a for a in args]
        leaves = [a for a in own if torch.is_tensor(a) and a.requires_grad]
        y = function(*own)
        torch.manual_seed(3)
        if leaves and y.requires_grad:
            (y * R(y.shape)).sum().backward()
        made.append([y.detach(), *(torch.zeros_like(a) if a.grad is None else a.grad for a in leaves)])
    for ours, theirs in zip(*made, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("starts", STARTS)
def test_rows_find_what_the_loops_do(starts: list[int]) -> None:
    torch.manual_seed(0)
    told, scores, columns = torch.tensor(starts), R(12), torch.randint(-9, 9, (12,))
    same(edge_softmax, told, scores)
    same(online, told, scores)
    same(scaled, told, scores, R(max(1, len(starts) - 1)))
    same(sparse_product, told, columns, scores, R(9))
    same(sparse_times_dense, told, columns, scores, R(9, 3))
    same(column_means, told, R(12, 5))
    same(between, told[:-1], told[1:], scores)
    same(between, told[:-1].flip(0), told[1:].flip(0), scores)
    same(counted, told, columns % 9, 9)
    ours, theirs = scores.clone(), scores.clone()
    normalised(told, ours)
    normalised.py(told, theirs)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("starts", [[[0, 4, 9], [3, 3, 7]], [[2, 9, 5], [0, 9, 4]]])
def test_rows_of_batches(starts: list[list[int]]) -> None:
    same(of_batches, torch.tensor(starts), R(2, 9))
    same(over_all_batches, torch.tensor(starts), R(9))


@pytest.mark.parametrize("starts", [[0, 3, 3, 7, 12], [0, 5, 3, 8, 12], [-3, 0, 4, 9]])
@pytest.mark.parametrize("kernel", [edge_softmax, sparse_product, column_means], ids=lambda k: k.name)
def test_the_kernels_compute_what_the_loops_do(kernel: Any, starts: list[int]) -> None:
    torch.manual_seed(1)
    told, columns = torch.tensor(starts), torch.randint(-9, 9, (12,))
    args = {"edge_softmax": (R(12),), "sparse_product": (columns, R(12), R(9)), "column_means": (R(12, 5),)}[kernel.name]
    report = kernel.check(told, *args, seeds=2, gradients=True)
    assert not report.findings and report.ok, str(report)


def test_a_range_that_leaves_its_array_is_an_error() -> None:
    with pytest.raises(IndexError):
        edge_softmax(torch.tensor([0, 5, 13]), R(12))
    with pytest.raises(IndexError):
        edge_softmax(torch.tensor([-13, 5, 12]), R(12))


def test_rows_have_a_team_and_the_loops_as_they_are_one_thread() -> None:
    args = "int64[300002]", "float32[9000000]"
    found = launches_of(edge_softmax, *args)
    rows = next(launch for launch in found if isinstance(launch.variant.plan, FoldPlan) and launch.variant.plan.rows)
    assert rows.variant.plan.threads == 8  # of 30 numbers, about
    assert [launch.nest.rare for launch in found if isinstance(launch.variant.plan, ThreadPlan)] == [True]
    text = edge_softmax.explain(*args, detail=True)
    assert "the ranges of j and j_1 and j_2 have nothing in common is looked at first" in text
    assert "unused parallelism" not in text.lower()
    assert "weft::inside" not in edge_softmax.source(*args, arch="sm_90a").split("edge_softmax_3")[0]


def test_what_rows_join_to_elements_has_a_point_for_each_number() -> None:
    found = launches_of(counted, "int64[100001]", "int32[3000000]", 500)
    plans = [(launch.nest.rare, type(launch.variant.plan)) for launch in found]
    assert (False, ThreadPlan) not in plans and (False, JoinPlan) in plans
    points = [launch for launch in found if launch.entry == "counted_5"]
    assert [launch.parts for launch in points] == [3000000]


def test_a_grid_has_room_for_rows_as_they_are_on_average() -> None:
    found = launches_of(scaled, "int64[300002]", "float32[9000000]", "float32[300001]")
    (grid,) = (launch.grid for launch in found if isinstance(launch.variant.plan, MapPlan))
    assert grid[0] * grid[1] < 20000


def test_sums_of_rows_look_at_their_bounds_once() -> None:
    args = "int64[300002]", "int64[9000000]", "float32[9000000]", "float32[300001]"
    launch, *_ = launches_of(sparse_product, *args)
    assert isinstance(launch.variant.plan, FoldPlan) and launch.variant.plan.threads == 8
    _, own, *_ = sparse_product.source(*args, arch="sm_90a").split("// all subscripts are inside")
    quick, *_ = own.split("else {")
    assert "values[j]" in quick and "values_size_0, 3, outside" not in quick


@pytest.mark.parametrize("kernel", [edge_softmax, sparse_product])
def test_a_row_much_longer_than_the_others_has_a_block(kernel: Any) -> None:
    starts, n = with_long_rows()
    rest = (R(n),) if kernel is edge_softmax else (torch.randint(0, 9, (n,)), R(n), R(9))
    found = launches_of(kernel, starts, *rest)
    launch, *_ = (one for one in found if isinstance(one.variant.plan, FoldPlan) and one.variant.plan.longer)
    assert launch.variant.plan.longer < 600 and launch.variant.plan.threads < 32 and launch.block == (256, 1, 1)
    report = kernel.check(starts, *rest)
    assert not report.findings and report.ok, str(report)


@pytest.mark.parametrize("width", [9, 16])
def test_points_that_have_lines_of_memory_are_read_along_these(width: int) -> None:
    starts, n = with_long_rows()
    args = starts, torch.randint(-9, 9, (n,)), R(n), R(9, width)
    launch, *others = launches_of(sparse_lines, *args)
    plan = launch.variant.plan
    assert isinstance(plan, FoldPlan) and plan.lane == "d" and plan.longer < 600
    assert [one.entry for one in others] == ["sparse_lines_share", "sparse_lines_join"]
    assert plan.vector == (4 if width == 16 else 1) and plan.threads <= 32
    report = sparse_lines.check(*args)
    assert not report.findings and report.ok, str(report)


def test_what_rows_share_is_a_pass_of_its_own() -> None:
    *found, in_order = launches_of(attended, "int64[100001]", "int64[2000000]", "float32[2000000]", "float32[100000, 64]")
    assert not any(isinstance(one.variant.plan, ThreadPlan) for one in found) and in_order.nest.rare
    for starts in ([0, 3, 3, 7, 12], [0, 5, 3, 8, 12]):
        report = attended.check(torch.tensor(starts), torch.randint(0, 9, (12,)), R(12), R(9, 8))
        assert not report.findings and report.ok, str(report)


def with_long_rows() -> tuple[torch.Tensor, int]:
    torch.manual_seed(3)
    lengths = torch.tensor([3, 700, 0, *[9] * 1100, 601, 5])
    starts = torch.cat((torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)))
    return starts, int(starts[-1])


def test_gradients_of_sums_are_gathered_by_the_numbers_of_rows() -> None:
    derived = adjoint(parsed(column_means.py, (torch.tensor([0, 2]), R(2, 3))), ("x",))
    found = schedule(derived)
    assert {v.kind for v in found.loops if v.var in ("j", "d")} <= {"parallel"}
    assert next(a for a in found.function.arrays if a.name == "grad_x").fill is None


def launches_of(kernel: Any, *args: Any) -> tuple[Any, ...]:
    return examine(kernel, args).launches()
