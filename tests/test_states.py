"""Scans of many states a row: which programs have them, and what the kernels compute, simulated and on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.kernels_of_states import ORDERS, first_and_last, selective, selective_scan, selective_specs
from weft.plan import state_scan
from weft.plan.state_scan import StatePlan
from weft.pytorch.inspection import examine

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


def test_rows_that_meet_and_states_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_scan, "MANY_ROWS", 1)  # several rows a block, the last of them with fewer
    report = first_and_last.check(*drawn(2, 270, 5, 3), gradients=True)
    assert report.ok and not report.findings, str(report)


def test_states_as_in_order_where_composing_overflows() -> None:
    """Decays whose product is infinite meet a state of 0; the launch before finds its states in the same way."""
    x, decay, weight, start = drawn(1, 300, 2, 3)
    x[:], start[:], decay[:, ::7, 1] = 0.0, 0.0, 1e30
    report = first_and_last.check(x, decay, weight, start)
    assert report.ok and not report.findings, str(report)


def test_the_text(golden: Golden) -> None:
    golden("cuda/states_selective_scan.cu", selective_scan.source(*selective_specs(8, 2048, 2048, 16), arch="sm_90a"))


def test_the_explanation_tells_what_each_state_needs() -> None:
    told = selective_scan.explain(*selective_specs(8, 2048, 2048, 16), detail=True)
    lines = [" ".join(line.split()) for line in told.splitlines()]
    assert "b{i,n,t} = b[i, n, t] registers, a thread's points of the tile, anew for each n" in lines
    assert "u{i,d,t} = u[i, d, t] registers, a thread's points of the tile" in lines
    assert "a{d,n} = a[d, n] a register, anew for each n" in lines
    assert "memory: 405 MB read, 134 MB written" in told


def test_no_registers_are_spilled() -> None:
    (made,) = selective_scan.resources(*selective_specs(8, 2048, 2048, 16), arch="sm_90a")
    assert made.registers <= 80 and not made.spill_stores


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
