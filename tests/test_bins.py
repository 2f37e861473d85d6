"""Sums to few elements that the data choose: joined in their order in shared memory, without a sort."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from tests.test_segments import launches_of
from weft.plan.join import BinsPlan, SortPlan
from weft.pytorch.simulated import simulate_call

R = torch.randn


@weft.kernel
def weighted(x, w, n: int):
    count = torch.zeros(n, dtype=w.dtype)
    for i in range(len(x)):
        count[x[i]] += w[i]
    return count


@weft.kernel
def products(x, w, y):
    """Under a condition, from what is there on."""
    for i in range(x.shape[0]):
        if w[i] > 0:
            y[x[i]] *= 1 + w[i] / 64


@weft.kernel
def of_two_axes(x, w, n: int):
    y = torch.zeros(n, 3, dtype=torch.float64)
    for i in range(x.shape[0]):
        for k in range(x.shape[1]):
            y[x[i, k], k % 3] += w[i]
    return y


def plan_of(kernel: Any, *args: Any) -> Any:
    (plan,) = {launch.variant.plan for launch in launches_of(kernel, *args)}
    return plan.groups[0]


def test_elements_are_few_where_each_warp_has_room_for_them() -> None:
    def planned(n: int, points: int = 20_000_000) -> Any:
        return plan_of(weighted, f"int64[{points}]", f"float32[{points}]", n)

    assert planned(1000) == BinsPlan(1024, 8)
    assert planned(3000) == BinsPlan(4096, 2)
    assert isinstance(planned(6000), SortPlan)
    assert isinstance(planned(1000, 5000), SortPlan)  # so few that no block has many of one element
    text = weighted.explain("int64[20000000]", "float32[20000000]", 1000, detail=True)
    assert "joined in order in shared memory, in 2 steps" in weighted.explain("int64[20000000]", "float32[20000000]", 1000)
    assert "by each warp to elements of its own in shared memory" in text


@pytest.mark.parametrize("points, n", [(40000, 10), (5000, 1), (300, 7), (33, 3), (9000, 600), (70001, 5)])
def test_the_kernels_compute_what_the_loops_do(points: int, n: int) -> None:
    torch.manual_seed(points)
    x = torch.randint(-n, n, (points,))
    for args in (x, R(points), n), (x[: points // 2], R(points // 2).double(), n):
        report = weighted.check(*args, seeds=2)
        assert not report.findings and report.ok, str(report)


def test_conditions_and_several_subscripts() -> None:
    torch.manual_seed(0)
    report = products.check(torch.randint(0, 5, (3000,)), R(3000), R(5))
    assert not report.findings and report.ok, str(report)
    args = torch.randint(0, 5, (700, 4)), R(700), 5
    assert isinstance(plan_of(of_two_axes, *args), BinsPlan)
    report = of_two_axes.check(*args)
    assert not report.findings and report.ok, str(report)


def test_the_same_inputs_give_the_same_bits_whatever_warps_do_when() -> None:
    torch.manual_seed(0)
    args = [torch.randint(0, 9, (30000,)), R(30000), 9]
    ran = [simulate_call(weighted.program, args, "sm_90a", seed, "call") for seed in (1, 2, 3)]
    first, *others = (r.arrays[r.results[0]] for r in ran)
    assert all(torch.equal(first, other) for other in others)


def test_a_subscript_outside_ends_the_kernel() -> None:
    args = [torch.full((3000,), 5), R(3000), 5]
    with pytest.raises(IndexError):
        weighted(*args)
    ran = simulate_call(weighted.program, args, "sm_90a", 1, "call")
    assert {f.kind for launch in ran.launches for s in launch.simulations for f in s.findings} >= {"trap"}
