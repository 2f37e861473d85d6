"""Launches of a call that begin before the ones before them have ended: what awaits what, and that it does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import weft
from tests import kernels_of_products as kernels
from tests.kernels_of_products import drawn
from weft.compiler import Launch, of_a_call
from weft.compiler import launches as planned
from weft.pytorch import simulated
from weft.pytorch.inspection import examine
from weft.pytorch.machines import machine_for

pytestmark = pytest.mark.usefixtures("separate_launches")

AWAITS, ALLOWS = "weft::await_launch_before();", "weft::allow_launch_after();"


def nests(kernel: Any, *args: Any) -> list[tuple[Launch, ...]]:
    found = examine(kernel, args)
    count = len(found.analysis.schedule.nests)
    return [planned(found.analysis, k, found.arrays, found.names, machine_for("sm_90a")) for k in range(count)]


def texts(*args: Any) -> list[tuple[str, str]]:
    """The entries of a call of `normed`, and their texts."""
    found = []
    for one in (launch for own in nests(kernels.normed, *args) for launch in own):
        assert one.where is not None
        text = simulated.cuda_source(one.where.analysis, one.variant)
        found.append((one.entry, text.partition(f" {one.entry}(")[2].partition('extern "C"')[0]))
    return found


FEW = drawn(16, 512, dtype=torch.float16), drawn(512, 256, dtype=torch.float16, seed=1)
MANY = drawn(80, 512, dtype=torch.float16), drawn(512, 72, dtype=torch.float16, seed=1)


@pytest.mark.parametrize("args", [FEW, MANY, tuple(t.float() for t in MANY), tuple(t.float() for t in FEW)])
def test_every_launch_may_begin_early(args: tuple[torch.Tensor, torch.Tensor]) -> None:
    every = [launch.dependent for own in of_a_call(nests(kernels.normed, *args)) for launch in own]
    assert all(every) and len(every) > 1
    report = kernels.normed.check(*args, seeds=2)
    assert not report.findings and report.ok, str(report)


def test_a_product_awaits_what_only_its_results_need_after_its_points() -> None:
    _, (_, second), *others = texts(*FEW)
    assert second.index(ALLOWS) < second.index("weft::wgmma_commit();") < second.index(AWAITS)
    assert all(text.index(ALLOWS) < text.index(AWAITS) for _, text in others)


def test_what_follows_blocks_that_would_crowd_begins_when_they_have_ended() -> None:
    """Of a call of one launch: where there are more than multiprocessors. Those that stay have their places."""
    for dtype, crowded in (("bfloat16", False), ("float64", True)):
        shapes = [weft.TensorSpec(dtype, (1024, 1024))] * 2
        ((launch,),) = nests(kernels.product, *shapes)
        assert launch.dependent and launch.grid[0] > machine_for("sm_90a").multiprocessors
        text = kernels.product.source(*shapes, arch="sm_90a")
        assert AWAITS in text and (ALLOWS in text) is not crowded


def test_the_first_launch_awaits_what_is_on_the_stream_before_others_begin() -> None:
    """Whatever ran before may have written the arguments, which launches after it read before they await anything."""
    (_, first), *_ = texts(*FEW)
    assert first.index(AWAITS) < first.index(ALLOWS)


def test_what_a_launch_before_writes_is_read_where_that_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    (_, text), *_ = texts(*FEW)[1:]
    assert "const weft::float16* __restrict__ x" in text and "float* __restrict__" not in text  # nobody reads sums early
    emitted = simulated.cuda_source
    monkeypatch.setattr(simulated, "cuda_source", lambda *args: emitted(*args).replace(AWAITS, ""))
    ran = simulated.simulate_call(kernels.normed.program, FEW, "sm_90a", 0, "call")
    found = [{f.kind for s in launch.simulations for f in s.findings} for launch in ran.launches]
    assert all("launch not awaited" in kinds for kinds in (found[0], found[-1]))  # the first reads arguments alone


def test_a_call_begins_when_all_before_it_has_ended_where_nothing_awaits_that() -> None:
    """Where its first launch has no blocks, none of its launches has awaited what was on the stream."""
    first, second, *rest = (launch for own in nests(kernels.normed, *FEW) for launch in own)
    assert second.dependent
    empty = replace(first, grid=(0, 1, 1))
    (_,), (one, *others) = of_a_call([(empty,), (second, *rest)])
    assert not one.dependent and all(launch.dependent for launch in others)


@weft.kernel
def bump(y):
    for i in range(y.shape[0]):
        y[i] = y[i] + 1


@weft.kernel
def gathered(y, places):
    z = torch.empty(places.shape[0], dtype=y.dtype, device=y.device)
    for i in range(places.shape[0]):
        z[i] = y[places[i]]
    return z


@pytest.mark.gpu
def test_a_call_sees_what_the_call_before_it_has_written() -> None:
    """Also what shares a sector of memory with what its own multiprocessor has read in that call."""
    length = 200_003
    y, places = torch.zeros(length + 1, device="cuda")[1:], torch.randperm(length, device="cuda")
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for k in range(100):
        bump(y)
        wrong += (gathered(y, places) != k + 1).sum()
    assert not wrong.item()
