"""Plans as data: how the calls of a kernel share their work."""

from __future__ import annotations

from typing import Any

import pytest

from weft.compiler import Launch
from weft.kernels import LIBRARY
from weft.plan.fold import FoldPlan
from weft.plan.scan import ScanPlan
from weft.pytorch.inspection import examine


def launches(kernel: Any, *args: Any) -> tuple[Launch, ...]:
    return examine(getattr(kernel, "kernel", kernel), args).launches()


@pytest.mark.parametrize(
    "spec, runs, single, grid, block",
    [
        # a row is one tile where a block holds it: as many threads as keep 16 points each, but 128 bytes side by side
        ("float32[64,20]", (4, 1), True, 4, (8, 16)),
        ("float32[64,500]", (4, 4), True, 16, (32, 4)),
        ("float32[64,2048]", (4, 4), True, 64, (128, 1)),
        ("float32[64,2047]", (4, 4), True, 64, (256, 1)),
        ("bfloat16[64,4096]", (8, 2), True, 64, (256, 1)),
        ("float32[64,9000]", (4, 4), False, 64, (256, 1)),
        ("float32[9000,9000]", (4, 4), False, 9000, (256, 1)),
    ],
)
def test_teams_scan_rows(
    spec: str, runs: tuple[int, int], single: bool, grid: int, block: tuple[int, int]
) -> None:
    (launch,) = launches(LIBRARY["cumsum"], spec)
    plan = launch.variant.plan
    assert isinstance(plan, ScanPlan)
    assert ((plan.vector, plan.runs), plan.single) == (runs, single)
    assert (launch.grid[0], launch.block[:2]) == (grid, block)


@pytest.mark.parametrize(
    "specs, held, exact, grid, block",
    [
        # as many threads a row as keep 32 points each, but 128 bytes side by side
        ("float32[64,20]", (4, 1), False, 4, (8, 16)),
        ("float32[64,100]", (4, 4), False, 4, (8, 16)),
        ("bfloat16[64,16]", (8, 1), False, 1, (2, 64)),
        ("float32[64,101]", (1, 4), False, 16, (32, 4)),
        ("float32[640,1024]", (4, 8), True, 160, (32, 4)),
        ("bfloat16[640,1024]", (8, 4), True, 160, (32, 4)),
        ("bfloat16[640,1000]", (8, 4), False, 160, (32, 4)),
        # or 16, where each row has a multiprocessor for itself
        ("float32[64,1024]", (4, 4), True, 64, (64, 1)),
        ("bfloat16[64,4096]", (8, 2), True, 64, (256, 1)),
        ("bfloat16[64,1001]", (1, 16), False, 64, (64, 1)),
        ("bfloat16[640,16384]", (8, 4), True, 640, (512, 1)),
        # as few threads as rows of their length need
        ("bfloat16[640,5120]", (8, 4), True, 640, (160, 1)),
        # longer rows lie in shared memory, of a cluster of blocks if need be
        ("bfloat16[640,32000]", (8, 16), False, 640, (256, 1)),
        ("bfloat16[640,50304]", (8, 13), False, 2 * 640, (256, 1)),
        ("bfloat16[640,128256]", (8, 16), False, 4 * 640, (256, 1)),
        ("float32[640,128256]", (4, 16), False, 8 * 640, (256, 1)),
        ("bfloat16[640,50257]", (1, 99), False, 2 * 640, (256, 1)),
    ],
)
def test_threads_hold_rows_that_fit(
    specs: str, held: tuple[int, int], exact: bool, grid: int, block: tuple[int, int]
) -> None:
    (launch,) = launches(LIBRARY["softmax"], specs)
    plan = launch.variant.plan
    assert isinstance(plan, FoldPlan) and launch.cluster == plan.cluster
    assert ((plan.vector, plan.chunks), plan.whole == plan.chunks) == (held, exact)
    assert (launch.grid[0], launch.block[:2]) == (grid, block)


def test_what_is_too_long_to_be_held_is_swept_twice() -> None:
    """The maximum and the sum relative to it in one sweep, what is written in the other."""
    (launch,) = launches(LIBRARY["softmax"], "float32[1024,262144]")
    assert isinstance(launch.variant.plan, FoldPlan) and launch.variant.plan.running
    assert (launch.grid, launch.block) == ((1024, 1, 1), (256, 1, 1))
