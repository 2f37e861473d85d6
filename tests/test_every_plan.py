"""Every kind of plan is among the programs that are simulated, and clean in any order of the threads on any machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests import kernels_of_folds, kernels_of_joins, kernels_of_maps, kernels_of_scans, kernels_of_steps, kernels_of_wavefronts
from tests.kernels_of_recurrences import tokens
from tests.kernels_of_states import ORDERS, selective
from weft.compiler import Launch, planning
from weft.kernels import gated_delta_rule, linear_attention
from weft.plan.fold import FoldPlan
from weft.plan.join import JoinPlan, SortPlan
from weft.plan.map import MapPlan
from weft.plan.outer_states import OuterPlan
from weft.plan.recurrence import RecurrencePlan
from weft.plan.scan import ScanPlan
from weft.plan.state_scan import StatePlan
from weft.plan.wavefront import WavefrontPlan
from weft.pytorch.inspection import examine

SEEDS = 20
Make = Callable[[], tuple[Any, ...]]
PROGRAMS: dict[str, tuple[Any, Make]] = {
    f"{room}-{name}-{k}": (kernel, make)
    for room, cases in {
        "maps": kernels_of_maps.CASES, "folds": kernels_of_folds.CASES,
        "scans": kernels_of_scans.CASES, "joins": kernels_of_joins.CASES,
    }.items()
    for name, (kernel, makes) in cases.items() for k, make in enumerate(makes)
}  # fmt: skip
PROGRAMS |= {f"states-{name}": (kernel, lambda: selective(2, 3, 270, 5)) for name, kernel in ORDERS.items()}
PROGRAMS |= {"recurrences-gated": (gated_delta_rule, lambda: tokens(2, 20, 12, 5))}
PROGRAMS |= {"outer_states-linear": (linear_attention, lambda: tokens(2, 150, 16, 16, torch.bfloat16)[:4])}
PROGRAMS |= {f"steps-{name}": (kernel, make) for name, (kernel, make, _) in kernels_of_steps.CASES.items()}
PROGRAMS |= {f"wavefronts-{name}": case for name, case in kernels_of_wavefronts.CASES.items()}

KINDS: dict[str, Callable[[Launch], bool]] = {
    "flat maps": lambda one: isinstance(p := one.variant.plan, MapPlan) and not p.courses[one.course].turned,
    "turned maps": lambda one: isinstance(p := one.variant.plan, MapPlan) and bool(p.courses[one.course].turned),
    "held rows": lambda one: isinstance(p := one.variant.plan, FoldPlan) and p.chunks > 0,
    "rows read again": lambda one: isinstance(p := one.variant.plan, FoldPlan) and not p.chunks and not p.shared,
    "rows that blocks share": lambda one: isinstance(p := one.variant.plan, FoldPlan) and p.shared,
    "folds of rows side by side": lambda one: isinstance(p := one.variant.plan, FoldPlan) and p.beside,
    "scans along memory": lambda one: isinstance(p := one.variant.plan, ScanPlan) and not p.beside,
    "scans of rows side by side": lambda one: isinstance(p := one.variant.plan, ScanPlan) and p.beside,
    "scans that blocks share": lambda one: isinstance(p := one.variant.plan, ScanPlan) and p.shared,
    "scans of many states": lambda one: isinstance(one.variant.plan, StatePlan),
    "recurrences": lambda one: isinstance(one.variant.plan, RecurrencePlan),
    "states that grow by outer products": lambda one: isinstance(one.variant.plan, OuterPlan),
    "wavefronts": lambda one: isinstance(one.variant.plan, WavefrontPlan),
    "joins": lambda one: isinstance(one.variant.plan, JoinPlan),
    "joins in an order": lambda one: isinstance(p := one.variant.plan, JoinPlan)
    and any(isinstance(group, SortPlan) for group in p.groups),
    "steps": lambda one: bool(one.steps),
}
SAMPLE = (
    "maps-add-0", "maps-transposed-0", "folds-shares-0", "folds-total-0", "folds-total-1",
    "folds-column_sums-1", "folds-cross_entropy-0",
    "scans-linrec-1", "scans-time_major-1", "joins-histogram-0", "joins-added_floats-2", "steps-jacobi",
    "states-selective_scan", "recurrences-gated", "outer_states-linear", "wavefronts-warped",
)  # fmt: skip


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are launches of their own, however small they are."""
    monkeypatch.setattr(planning, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(planning, "GAIN", 1e12)


def test_every_kind_of_plan_is_among_them(always: None) -> None:
    met = set()
    for name in SAMPLE:
        kernel, make = PROGRAMS[name]
        met |= {kind for kind, is_so in KINDS.items() for one in examine(kernel, make()).launches() if is_so(one)}
    assert met == set(KINDS)


def test_every_kind_of_plan_is_compiled_whole(always: None) -> None:
    for name in SAMPLE:
        kernel, make = PROGRAMS[name]
        for made in kernel.resources(*make(), arch="sm_90a"):
            assert made.registers <= 255 and made.shared <= 48 << 10


@pytest.mark.long
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_found_under_any_seed(name: str, arch: str, always: None) -> None:
    kernel, make = PROGRAMS[name]
    report = kernel.check(*make(), seeds=SEEDS, arch=arch)
    assert not report.findings and report.ok, report.text()
