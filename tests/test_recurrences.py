"""Rows that go through their points in order and fold their states: which programs do, and what the kernels compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.kernels_of_recurrences import in_steps, last_states, rotating, tokens
from weft.compiler import planning
from weft.kernels import gated_delta_rule, linear_attention
from weft.plan.recurrence import RecurrencePlan
from weft.plan.state_scan import StatePlan
from weft.pytorch.inspection import examine

Golden = Callable[[str, str], None]


def specs(heads: int, length: int, width: int = 64, strides: str = "") -> tuple[str, ...]:
    own = f"bfloat16[1,{heads},{length},{width}]"
    return own + strides, own + strides, own, f"float32[1,{heads},{length}]", f"bfloat16[1,{heads},{length}]"


def plan_of(kernel: Any, *args: Any) -> Any:
    (launch,) = examine(kernel, args).launches()
    return launch.variant.plan


def test_blocks_have_rows_that_read_alike_while_all_multiprocessors_have_one() -> None:
    few, many = plan_of(gated_delta_rule, *specs(16, 16384)), plan_of(gated_delta_rule, *specs(128, 2048))
    assert isinstance(few, RecurrencePlan)
    assert isinstance(many, RecurrencePlan)
    assert (few.last, few.threads, few.states, few.teams) == ("e", 8, 8, 8)
    assert (many.threads, many.teams) == (8, 16)
    assert few.whole
    assert few.full


def test_scans_whose_reads_lie_apart_from_point_to_point() -> None:
    assert isinstance(plan_of(linear_attention, *specs(16, 120)[:4]), RecurrencePlan)
    along = f":({16 * 120 * 64},{120 * 64},1,120)"
    assert isinstance(plan_of(linear_attention, *specs(16, 120, strides=along)[:4]), StatePlan)


def test_points_of_states_that_need_each_other_are_composed_where_rows_are_few() -> None:
    """What several points do to them are matrices."""
    assert isinstance(plan_of(rotating, "float32[8192,4096]", *("float32[8192,32]",) * 2), RecurrencePlan)
    assert isinstance(plan_of(rotating, "float32[64,4096]", *("float32[64,32]",) * 2), StatePlan)


def test_rows_of_more_states_than_a_warp_has_room_for() -> None:
    assert not isinstance(examine(gated_delta_rule, specs(16, 64, 1024)).launches()[0].variant.plan, RecurrencePlan)


@pytest.mark.parametrize(
    ("sizes", "dtype"), [((2, 40, 12, 5), torch.float32), ((1, 33, 64, 16), torch.bfloat16)], ids=["odd", "whole"]
)
def test_a_gated_delta_rule_and_its_gradients(sizes: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    report = gated_delta_rule.check(*tokens(*sizes, dtype=dtype), gradients=True)
    assert report.ok and not report.findings, str(report)
    assert {launch.entry for launch in report.launches} >= {"gated_delta_rule", "gated_delta_rule_adjoint_before"}


def test_linear_attention_and_its_gradients() -> None:
    report = linear_attention.check(*tokens(2, 20, 12, 5)[:4], gradients=True, seeds=2)
    assert report.ok and not report.findings, str(report)


def test_first_and_last_states_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "WORTH_SECONDS", 0.0)
    x, w, first = torch.randn(3, 37, 11), torch.randn(11), torch.randn(3, 11)
    assert isinstance(plan_of(last_states, x, w, first), RecurrencePlan)
    report = last_states.check(x, w, first)
    assert report.ok and not report.findings, str(report)


@pytest.mark.parametrize("length", [0, 1])
def test_few_points(length: int) -> None:
    report = gated_delta_rule.check(*tokens(2, length, 8, 3))
    assert report.ok and not report.findings, str(report)


@pytest.mark.parametrize("delta", [False, True])
def test_the_loops_mean_what_pytorch_computes_in_steps(delta: bool) -> None:
    given = [t.requires_grad_() for t in tokens(2, 9, 4, 3, torch.float64)[: 4 + delta]]
    kernel = gated_delta_rule if delta else linear_attention
    y, want = kernel(*given), in_steps(*given)
    assert torch.allclose(y, want, rtol=1e-12, atol=1e-14)
    seed = torch.randn_like(want)
    for one, other in zip(torch.autograd.grad(y, given, seed), torch.autograd.grad(want, given, seed), strict=True):
        assert torch.allclose(one, other, rtol=1e-10, atol=1e-13)
    assert torch.autograd.gradcheck(kernel, given)


def test_the_text(golden: Golden) -> None:
    golden("cuda/recurrences_gated_delta_rule.cu", gated_delta_rule.source(*specs(16, 16384), arch="sm_90a"))
