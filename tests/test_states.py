"""Scans of many states a row: which programs have them, and what the kernels compute, simulated and on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.gradients import examined_gradient
from tests.kernels_of_states import (
    ORDERS,
    PRODUCTS,
    first_and_last,
    of_products,
    selective,
    selective_scan,
    selective_specs,
)
from weft.emit.rough import rough_scans
from weft.graph.factors import regrouped
from weft.graph.state_scans import StateScans
from weft.graph.tile import Map
from weft.loops.ir import Op, walk_expr
from weft.plan import state_scan
from weft.plan.fold import FoldPlan
from weft.plan.state_scan import StatePlan
from weft.plan.threads import ThreadPlan
from weft.pytorch.inspection import examine, sources

Golden = Callable[[str, str], None]


def drawn(batch: int, length: int, dim: int, states: int) -> tuple[torch.Tensor, ...]:
    """Arguments of `first_and_last`."""
    torch.manual_seed(0)
    first = torch.randn(batch, length, dim), torch.rand(batch, length, states)
    return *first, torch.randn(states), torch.randn(batch, dim, states)


def plan_of(kernel: Any, *args: Any) -> StatePlan:
    (launch,) = examine(kernel, args).launches()
    assert isinstance(launch.variant.plan, StatePlan)
    return launch.variant.plan


@pytest.mark.parametrize("name", ORDERS)
def test_the_order_of_loops_is_of_no_account(name: str) -> None:
    many = plan_of(ORDERS[name], *selective_specs(8, 2048, 2048, 16))
    assert (many.threads, many.teams, many.whole) == (32, 4, True)
    few = plan_of(ORDERS[name], *selective_specs(1, 100, 10_001, 64))
    assert (few.threads, few.teams, few.whole) == (256, 1, False)


@pytest.mark.parametrize("name", ORDERS)
def test_gradients_keep_no_states_of_all_points(name: str) -> None:
    """They are found again where they are needed: sums of what each point has are no products, which read it from memory."""
    found = examined_gradient(ORDERS[name], *selective_specs(8, 2048, 2048, 16))
    kinds = [type(launch.variant.plan) for launch in found.launches()]
    assert kinds.count(StatePlan) == 3 and set(kinds[3:]) <= {FoldPlan, ThreadPlan}
    text = "".join(text for _, text in sources(found, "sm_90a"))
    assert "_saved" not in text and "grad_b_parts" not in text


def test_rows_that_meet_and_states_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_scan, "MANY_ROWS", 1)  # several rows a block, the last of them with fewer
    for size in (2, 270, 5, 3), (1, 40, 2, 3):  # what the second gives is held against autograd
        report = first_and_last.check(*drawn(*size), gradients=True)
        assert report.ok and not report.findings, str(report)


@pytest.mark.parametrize(("dim", "length"), [(2, 256), (8, 256), (16, 8)])
def test_blocks_of_any_number_of_rows(dim: int, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer threads than points of a tile, as many, and more."""
    monkeypatch.setattr(state_scan, "MANY_ROWS", 1)
    report = selective_scan.check(*selective(1, dim, length, 1), gradients=True)
    assert report.ok and not report.findings, str(report)


def test_states_as_in_order_where_composing_overflows() -> None:
    """Decays whose product is infinite meet a state of 0; the launch before finds its states in the same way."""
    x, decay, weight, start = drawn(1, 300, 2, 3)
    x[:], start[:], decay[:, ::7, 1] = 0.0, 0.0, 1e30
    report = first_and_last.check(x, decay, weight, start)
    assert report.ok and not report.findings, str(report)


@pytest.mark.parametrize("many", [True, False])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_in_any_grouping(name: str, many: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_scan, "MANY_ROWS", 1 if many else 1024)  # a warp has a row, or a block
    report = PRODUCTS[name].check(*of_products(name, 1, 2, 270, 2), gradients=many)
    assert report.ok and not report.findings, str(report)


def multiplied(kernel: Any, *args: Any) -> tuple[int, int]:
    """What is multiplied at each point of each state of a kernel as it is written, and in its text."""
    (lowered,) = examine(kernel, args).analysis.lowered
    assert lowered.states is not None
    scans = rough_scans(lowered.states)
    return at_each_point(scans), at_each_point(regrouped(scans))


def at_each_point(scans: StateScans) -> int:
    """Multiplications at each point of each state, once as states are found and once as they are used; those that are added
    to something, or summed, take none of their own.
    """
    inner = [v for v in scans.values if isinstance(v, Map) and {*scans.states, scans.along} <= set(v.axes)]
    exprs = [v.value for v in inner] + [e for f in scans.totals for e in f.parts]
    found = sum(isinstance(e, Op) and e.name in ("mul", "exp_flushed") for x in exprs for e in walk_expr(x))
    added = [a for x in exprs for e in walk_expr(x) if isinstance(e, Op) and e.name == "add" for a in e.args[:1]]
    added += [e for f in scans.totals for e in f.parts]
    return found - sum(isinstance(e, Op) and e.name == "mul" for e in added)


def test_the_fewest_multiplications() -> None:
    """dt * a and 2 to the power of it for exp(dt * a), and (dt * u) * b for dt * b * u."""
    assert multiplied(selective_scan, *selective_specs(8, 2048, 2048, 16)) == (4, 2)
    assert multiplied(PRODUCTS["decays_alike"], *of_products("decays_alike", 2, 5, 300, 3)) == (4, 1)
    assert multiplied(PRODUCTS["many_factors"], *of_products("many_factors", 2, 5, 300, 3)) == (7, 2)


def test_the_text(golden: Golden) -> None:
    golden("cuda/states_selective_scan.cu", selective_scan.source(*selective_specs(8, 2048, 2048, 16), arch="sm_90a"))


def test_the_explanation_tells_what_each_state_needs() -> None:
    told = selective_scan.explain(*selective_specs(8, 2048, 2048, 16), detail=True)
    lines = [" ".join(line.split()) for line in told.splitlines()]
    assert "b{i,n,t} = b[i, n, t] registers, a thread's points of the tile, anew for each n" in lines
    assert "u{i,d,t} = u[i, d, t] registers, a thread's points of the tile" in lines
    assert "a{d,n} = a[d, n] a register, anew for each n" in lines
    assert "memory: 405 MB read, 134 MB written" in told


@pytest.mark.parametrize(
    ("dtype", "length", "points", "resident"),
    [("float32", 2048, 16, 4), ("bfloat16", 2048, 16, 4), ("float32", 2056, 8, 7), ("bfloat16", 20_008, 16, 4)],
)
def test_as_many_blocks_as_registers_let(dtype: str, length: int, points: int, resident: int) -> None:
    """Few registers are spilled for them, and none where a thread goes through the states."""
    specs = selective_specs(8, 2048, length, 16)
    halves = [s.replace("float32", dtype) if k in (0, 1, 3, 4, 6) else s for k, s in enumerate(specs)]
    plan = plan_of(selective_scan, *halves)
    assert (plan.points, plan.resident, plan.stages) == (points, resident, 2 if (dtype, length) == ("float32", 2048) else 0)
    (made,) = selective_scan.resources(*halves, arch="sm_90a")
    assert made.registers * plan.threads * plan.teams * resident <= 65536 and made.spill_stores <= 128


def test_points_of_a_thread() -> None:
    def points(*specs: str) -> tuple[int, int]:
        plan = plan_of(selective_scan, *specs)
        return plan.points, plan.resident

    def halves(*shape: int) -> list[str]:
        return [s.replace("float32", "bfloat16") for s in selective_specs(*shape)]

    assert points(*halves(8, 2048, 10_000, 16)) == (16, 4)
    assert points(*halves(8, 2048, 600, 16)) == (8, 7)  # three tiles of 256 points, and not two of 512
    assert points(*halves(8, 2048, 10_001, 16)) == (8, 7)  # rows are not all aligned
    assert points(*selective_specs(1, 2048, 16_384, 16)) == (16, 4)  # what is read of states goes through shared memory
    assert points(*selective_specs(1, 2048, 16_388, 16)) == (8, 4)  # a multiprocessor has four blocks at the most


@pytest.mark.parametrize(("dtype", "stages"), [(torch.float32, 2), (torch.bfloat16, 0)])
def test_what_rows_read_alike_comes_to_shared_memory(
    dtype: torch.dtype, stages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_scan, "MANY_ROWS", 1)
    args = selective(1, 5, 1024, 3, dtype)
    plan = plan_of(selective_scan, *args)
    assert (plan.points, plan.stages) == (16, stages)
    report = selective_scan.check(*args, seeds=2)
    assert report.ok and not report.findings, str(report)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(2, 37, 300, 5), (2, 600, 270, 5), (1, 1030, 512, 16), (1, 3, 5000, 70)])
def test_on_a_gpu_twice_the_same_bits(shape: tuple[int, ...]) -> None:
    args = selective(*shape)
    wide = [a.double().requires_grad_() for a in args]
    want = selective_scan(*wide)  # on the CPU
    seed = torch.randn_like(want)
    wanted = [want, *torch.autograd.grad(want, wide, seed)]
    found = []
    for _ in range(2):
        given = [a.cuda().requires_grad_() for a in args]
        y = selective_scan(*given)
        found.append([y, *torch.autograd.grad(y, given, seed.cuda().float())])
    for first, second, exact in zip(*found, wanted, strict=True):
        torch.testing.assert_close(first.cpu().double(), exact, rtol=1e-3, atol=1e-3)
        assert torch.equal(first, second)
