"""Block graphs and plans as data: what a nest is lowered to, and how the calls of a kernel share their work."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from weft.compiler import Launch
from weft.graph.block import BlockGraph, Input, Map, Output, Scan, Stage
from weft.kernels import LIBRARY
from weft.loops.ir import Let, Store
from weft.plan.fold import FoldPlan
from weft.plan.tile import TilePlan
from weft.pytorch.inspection import examine


@weft.kernel
def scaled(x):
    """A product that scales, and no row."""
    s = 1.0
    for i in range(x.shape[0]):
        s = s * 0.5 + x[i]
    y = torch.empty(1)
    y[0] = s
    return y


def launches(kernel: Any, *args: Any) -> tuple[Launch, ...]:
    return examine(getattr(kernel, "kernel", kernel), args).launches()


def graph_of(kernel: Any, *args: Any) -> BlockGraph:
    (launch,) = launches(kernel, *args)
    assert launch.variant.graph is not None
    return launch.variant.graph


def kinds(stage: Stage) -> list[type]:
    return [type(o) for o in stage.operators]


def test_a_recurrence_is_one_stage_of_a_scan() -> None:
    graph = graph_of(LIBRARY["linrec"], "float32[64,1024]", "float32[64,1024]")
    assert [a.var for a in graph.rows] == ["r"]
    (stage,) = graph.stages()
    assert (stage.column, stage.reverse) == ("l", False)
    assert kinds(stage) == [Input, Input, Scan, Map, Output]
    (scan,) = stage.scans()
    assert (scan.names, scan.algebra) == (("h",), "affine")


def test_a_backward_recurrence_starts_at_the_last_column() -> None:
    (stage,) = graph_of(LIBRARY["linrec_reverse"], "float32[64,1024]", "float32[64,1024]").stages()
    assert stage.reverse and stage.scans()[0].reverse


def test_a_nest_without_rows_is_its_steps_alone() -> None:
    graph = graph_of(scaled, "float32[100]")
    assert graph.rows == ()
    assert [type(s) for s in graph.steps if not isinstance(s, Let)] == [Stage, Store]


@pytest.mark.parametrize(
    "name, specs, plan, entry, grid, block",
    [
        # in tiles: scans; a team by the length and the number of the rows
        ("cumsum", ("float32[64,500]",), TilePlan(256, 4, 4), "cumsum_32", 16, (32, 4)),
        ("cumsum", ("float32[64,2048]",), TilePlan(256, 4, 4), "cumsum_128", 64, (128, 1)),
        ("cumsum", ("float32[64,9000]",), TilePlan(256, 4, 4), "cumsum_256", 64, (256, 1)),
        ("cumsum", ("float32[9000,9000]",), TilePlan(256, 4, 4), "cumsum_128", 9000, (128, 1)),
    ],
)
def test_the_plan_of_rows(
    name: str, specs: tuple[str, ...], plan: TilePlan, entry: str, grid: int, block: tuple[int, int]
) -> None:
    (launch,) = launches(LIBRARY[name], *specs)
    assert launch.variant.plan == plan
    assert (launch.entry, launch.grid[0], launch.block[:2]) == (entry, grid, block)


@pytest.mark.parametrize(
    "specs, held, exact, grid, block",
    [
        # as many threads a row as keep 16 points each, but 128 bytes side by side
        ("float32[64,20]", (4, 1), False, 4, (8, 16)),
        ("float32[64,100]", (4, 4), False, 4, (8, 16)),
        ("bfloat16[64,16]", (8, 1), False, 1, (2, 64)),
        ("float32[64,101]", (1, 4), False, 16, (32, 4)),
        ("float32[64,1024]", (4, 4), True, 64, (64, 1)),
        ("bfloat16[64,1024]", (8, 2), True, 64, (64, 1)),
        ("bfloat16[64,1000]", (8, 2), False, 64, (64, 1)),
        ("bfloat16[64,1001]", (1, 16), False, 64, (64, 1)),
        ("bfloat16[640,16384]", (8, 2), True, 640, (1024, 1)),
    ],
)
def test_threads_hold_rows_that_fit(
    specs: str, held: tuple[int, int], exact: bool, grid: int, block: tuple[int, int]
) -> None:
    (launch,) = launches(LIBRARY["softmax"], specs)
    plan = launch.variant.plan
    assert isinstance(plan, FoldPlan) and launch.resident
    assert ((plan.vector, plan.chunks), plan.exact) == (held, exact)
    assert (launch.grid[0], launch.block[:2]) == (grid, block)


def test_what_is_too_long_to_be_held_is_swept_twice() -> None:
    """The maximum and the sum relative to it in one sweep, what is written in the other."""
    (launch,) = launches(LIBRARY["softmax"], "float32[512,262144]")
    assert isinstance(launch.variant.plan, FoldPlan) and launch.variant.plan.running
    assert (launch.grid, launch.block) == ((512, 1, 1), (256, 1, 1))


def test_the_layout_of_a_plan_covers_every_column_once() -> None:
    for plan in (TilePlan(64, 4, 4, held=True), TilePlan(256, 8, 2), TilePlan(32, 1, 1, teams=4, held=True)):
        layout = plan.layout
        assert sorted(layout(i) for i in range(layout.size())) == list(range(plan.threads * plan.vector * plan.chunks))
