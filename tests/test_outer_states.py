"""States that grow by outer products: which programs have such, and what their chunks compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from tests.gradients import examined_gradient
from tests.kernels_of_outer_states import carried_on, gated, given_decays, grouped, retention, shared_by_heads
from tests.kernels_of_recurrences import tokens
from weft.kernels import gated_delta_rule, linear_attention
from weft.plan.outer_states import OuterPlan
from weft.pytorch import simulated
from weft.pytorch.inspection import examine

Golden = Callable[[str, str], None]
HALF = "bfloat16[1,16,16384,64]", "bfloat16[1,16,16384,64]", "bfloat16[1,16,16384,64]", "float32[1,16,16384]"


def plan_of(kernel: Any, *args: Any) -> Any:
    return examine(kernel, args).launches()[-1].variant.plan


def clean(kernel: Any, *args: Tensor, gradients: bool = False) -> set[str]:
    """The entries that a check launches, all of whose results are right."""
    assert isinstance(plan_of(kernel, *args), OuterPlan)
    with mock.patch.object(simulated, "_resources", lambda *_: None):  # what NVRTC says is asked in test_every_plan
        report = kernel.check(*args, gradients=gradients)
    assert report.ok and not report.findings, str(report)
    return {launch.entry for launch in report.launches}


def drawn(*sizes: tuple[int, ...], dtype: torch.dtype = torch.bfloat16) -> list[Tensor]:
    rand = torch.Generator().manual_seed(0)
    return [torch.randn(size, generator=rand).to(dtype) for size in sizes]


def test_blocks_share_the_points_of_a_row() -> None:
    few = plan_of(linear_attention, *HALF)
    many = plan_of(linear_attention, *("bfloat16[1,512,2048,64]",) * 3, "float32[1,512,2048]")
    assert isinstance(few, OuterPlan) and few.shared and few.packets == (True, True)
    assert isinstance(many, OuterPlan) and not many.shared


@pytest.mark.parametrize(
    ("kernel", "sizes"),
    [
        (gated, [(2, 256, 32)] * 4),  # a decay of each row of the states
        (gated_delta_rule, [(1, 2, 256, 32)] * 3 + [(1, 2, 256)] * 2),  # what is added needs the states
        (linear_attention, [(1, 2, 256, 32)] * 2 + [(1, 2, 256, 8), (1, 2, 256)]),  # few lanes
        (linear_attention, [(1, 2, 60, 32)] * 3 + [(1, 2, 60)]),  # few points
    ],
)
def test_others_go_on_as_before(kernel: Any, sizes: list[tuple[int, ...]]) -> None:
    assert not isinstance(plan_of(kernel, *drawn(*sizes, dtype=torch.float32)), OuterPlan)


def test_gradients_whose_last_chunk_lacks_points() -> None:
    """Blocks share points, and two sums over the states have four warps each."""
    entries = clean(linear_attention, *tokens(1, 210, 64, 64, torch.bfloat16)[:4], gradients=True)
    assert {"linear_attention_before", "linear_attention_adjoint_early", "linear_attention_adjoint"} <= entries


def test_sides_that_leave_warps_without_states() -> None:
    clean(linear_attention, *tokens(1, 210, 40, 16, torch.bfloat16)[:4])


@pytest.mark.parametrize(
    ("kernel", "specs"),
    [
        (shared_by_heads, ("bfloat16[4,4096,32,64]", "float32[4,4096,32]", *("bfloat16[4,4096,128]",) * 2)),
        (grouped, ("bfloat16[16,4096,64]", "bfloat16[4,4096,64]", "bfloat16[16,4096,64]", "float32[16,4096]")),
    ],
)
def test_gradients_of_what_heads_have_in_common(kernel: Any, specs: tuple[str, ...]) -> None:
    """The states of a head hand back as if its keys were its own; a launch after sums that over heads."""
    *first, last = examined_gradient(kernel, *specs).launches()
    assert first and all(isinstance(launch.variant.plan, OuterPlan) for launch in first)
    assert not isinstance(last.variant.plan, OuterPlan)


def test_gradients_of_heads_that_share_keys() -> None:
    x, keys, queries = drawn((1, 130, 2, 16), (1, 130, 16), (1, 130, 16))
    assert "shared_by_heads_adjoint_2" in clean(shared_by_heads, x, -torch.rand(1, 130, 2), keys, queries, gradients=True)


def test_gradients_of_decays_that_are_given() -> None:
    """What early and late states make together at a point is without the point's own decay; what blocks leave is joined."""
    q, k, v = drawn((1, 600, 16), (1, 600, 16), (1, 600, 16))
    entries = clean(given_decays, q, k, v, 0.9 + 0.1 * torch.rand(1, 600), gradients=True)
    assert {"given_decays_adjoint_early", "given_decays_adjoint_joined"} <= entries


def test_what_is_not_finite_stays_with_those_that_have_it() -> None:
    q, k, v, g = (t.clone() for t in tokens(2, 150, 16, 16, torch.bfloat16)[:4])
    q[0, 0, 20, 1] = k[0, 0, 70, 3] = torch.inf
    v[0, 0, 75, 2] = torch.nan
    g[0, 1, 30] = -torch.inf
    clean(linear_attention, q, k, v, g, gradients=True)


def test_nothing_grows_to_nothing_though_its_growth_has_no_number() -> None:
    q, k, v, g = (t.clone() for t in tokens(2, 150, 16, 16, torch.bfloat16)[:4])
    g[0, 1, 90:120] = 5.0
    k[0, 1, :125] = 0.0
    clean(linear_attention, q, k, v, g)


def test_states_that_are_given_and_returned_backwards() -> None:
    """What many blocks of a row leave is joined by a launch of its own."""
    q, v, k, first = drawn((2, 600, 16), (2, 600, 24), (600, 16), (2, 16, 24))
    assert "carried_on_joined" in clean(carried_on, q, k, v, 0.9 + 0.1 * torch.rand(2, 600), first.float())


def test_other_loops_and_float32() -> None:
    clean(retention, *drawn((2, 140, 20), (2, 140, 20), (2, 140, 16), dtype=torch.float32), torch.rand(2))


def test_the_words() -> None:
    words = str(linear_attention.explain(*HALF, detail=True))
    assert "chunks of 64" in words


def test_the_text(golden: Golden) -> None:
    golden("cuda/outer_states_linear_attention.cu", linear_attention.source(*HALF, arch="sm_90a"))
