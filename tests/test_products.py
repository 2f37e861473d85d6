"""Products: what sweeps are read as, which plans they get, what the kernels compute, and which bugs the simulator would see."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

import weft
from tests import kernels_of_products as kernels
from tests.examples import examples
from tests.kernels_of_products import drawn
from tests.test_runtime import StandIn, axpb_slots, stand_in, stand_in_library  # noqa: F401  the fixtures
from weft.check import limits
from weft.compiler import Launch, planning
from weft.compiler import launches as planned
from weft.compiler.boxes import tensor_map
from weft.compiler.kernels import whole_launches
from weft.compiler.launch import Where
from weft.graph.products import Products, products
from weft.loops.ir import Const
from weft.loops.schedule import Axis
from weft.loops.types import BFLOAT16, FLOAT32, INT64
from weft.plan import product_search
from weft.plan.box import Box
from weft.plan.facts import Geometry
from weft.plan.machine import Machine
from weft.plan.product import ProductPlan, Staged
from weft.pytorch import inspection, simulated
from weft.pytorch.call import argument_types
from weft.pytorch.executable import adjoint_of, keeping_of
from weft.pytorch.inspection import examine
from weft.pytorch.machines import machine_for
from weft.runtime import cuda
from weft.runtime.tensor_map import BYTES

pytestmark = pytest.mark.usefixtures("quickly_compiled")

Golden = Callable[[str, str], None]
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
HALVES = (torch.bfloat16, torch.float16)


def launches(kernel: Any, *args: Any, arch: str = "sm_90a") -> list[Launch]:
    found = examine(kernel, args)
    nests = range(len(found.analysis.schedule.nests))
    return [one for k in nests for one in planned(found.analysis, k, found.arrays, found.names, machine_for(arch))]


def plan_of(kernel: Any, *args: Any, arch: str = "sm_90a") -> ProductPlan | None:
    """The only plan of a call, if it is one of products."""
    plans = {launch.variant.plan for launch in launches(kernel, *args, arch=arch)}
    (plan,) = (p for p in plans if len(plans) == 1 or isinstance(p, ProductPlan))
    return plan if isinstance(plan, ProductPlan) else None


def multiplied(kernel: Any, *args: Any, arch: str = "sm_90a") -> ProductPlan:
    plan = plan_of(kernel, *args, arch=arch)
    assert plan is not None
    return plan


def checked(kernel: Any, *args: Any, **options: Any) -> Any:
    report = kernel.check(*args, **options)
    assert not report.findings and report.ok, str(report)
    return report


# ---------------------------------------------------------------- graphs


@dataclass(frozen=True)
class Shape:
    """A reading of sweeps, as its axes and the names of its operands."""

    batch: str
    rows: str
    columns: str
    over: str
    left: str
    right: str
    neutral: bool = True


def read(kernel: Any, *specs: str, lane: str) -> Products | None:
    (lowered,) = examine(kernel, specs).analysis.lowered
    return products(lowered.sweeps, lane) if lowered.sweeps is not None else None


SQUARE, CUBE = "float32[64,64]", "float32[4,64,64]"
READINGS: list[tuple[Any, tuple[str, ...], str, Shape | None]] = [
    (kernels.product, (SQUARE, SQUARE), "j", Shape("", "i", "j", "k", "a", "b")),
    (kernels.product, (SQUARE, SQUARE), "i", Shape("", "j", "i", "k", "b", "a")),
    (kernels.columns_first, (SQUARE, SQUARE), "j", Shape("", "i", "j", "k", "a", "b")),
    (kernels.points_first, (SQUARE, SQUARE), "j", Shape("", "i", "j", "k", "a", "b")),
    (kernels.points_between, (SQUARE, SQUARE), "j", Shape("", "i", "j", "k", "a", "b")),
    (kernels.by_operator, (SQUARE, SQUARE), "i1", Shape("", "i0", "i1", "i2", "a", "b")),
    (kernels.of_transposed, (SQUARE, SQUARE), "j", Shape("", "i", "j", "k", "a", "b")),
    (kernels.stored_transposed, (SQUARE, SQUARE), "i", Shape("", "j", "i", "k", "w", "x")),
    (kernels.linear_gelu, (SQUARE, SQUARE, "float32[64]"), "n", Shape("", "b", "n", "k", "x", "w")),
    (kernels.gated, (SQUARE, SQUARE, SQUARE), "n", Shape("", "b", "n", "k", "x", "gate up")),
    (kernels.accumulated, (SQUARE, SQUARE, SQUARE), "j", Shape("", "i", "j", "k", "a", "b")),
    (kernels.batched, (CUBE, CUBE), "j", Shape("z", "i", "j", "k", "a", "b")),
    (kernels.batched, (CUBE, CUBE), "z", None),
    (kernels.of_one, (CUBE, SQUARE), "n", Shape("", "z i", "n", "k", "x", "w")),
    (kernels.of_heads, ("float32[2,64,4,64]",) * 2, "j", Shape("b h", "i", "j", "d", "q", "k")),
    (kernels.convolution, ("float32[4,8,20,20]", "float32[16,8,3,3]"), "j", Shape("", "f", "n i j", "c p q", "w", "x")),
    (kernels.contracted, (CUBE, "float32[64,4,64]"), "j", Shape("", "i", "j", "p q", "a", "b")),
    (kernels.squared_distances, (SQUARE, SQUARE), "j", Shape("", "i", "j", "k", "x", "y", neutral=False)),
    (kernels.longest_paths, (SQUARE, SQUARE), "j", Shape("", "i", "j", "k", "a", "b", neutral=False)),
    (kernels.reachable, ("bool[64,64]",) * 2, "j", Shape("", "i", "j", "k", "a", "b", neutral=False)),
    (kernels.of_integers, ("int32[64,64]",) * 2, "j", Shape("", "i", "j", "k", "a", "b")),
    (kernels.scaled, (SQUARE, "float32[64]", SQUARE), "n", Shape("", "b", "n", "k", "operand.0", "w")),
    (kernels.rounded, (SQUARE, SQUARE), "n", Shape("", "b", "n", "k", "operand.0", "operand.1")),
    (kernels.gathered, (SQUARE, SQUARE, "int64[64]"), "j", Shape("", "i", "j", "k", "operand.0", "x")),
    (kernels.inner, (SQUARE, SQUARE), "n", Shape("", "b", "n", "k", "x", "w")),
    (kernels.causal, (SQUARE, SQUARE), "j", Shape("", "i", "j", "k", "operand.0 a", "b", neutral=False)),  # of rows
    (kernels.with_factor, (SQUARE, SQUARE, "float32[64,64,64]"), "j", None),
    (kernels.of_vector, (SQUARE, "float32[64]"), "i", None),
    (kernels.of_columns, (CUBE, CUBE), "j", None),
]


@pytest.mark.parametrize(
    ("kernel", "specs", "lane", "want"), [pytest.param(*each, id=f"{each[0].name}-{each[2]}") for each in READINGS]
)
def test_sweeps_are_read_as_products(kernel: Any, specs: tuple[str, ...], lane: str, want: Shape | None) -> None:
    found = read(kernel, *specs, lane=lane)
    if want is None or found is None:
        assert found is want
        return
    groups = [" ".join(axes) for axes in (found.batch, found.rows, found.columns, found.over)]
    sides = [" ".join(o.name for o in side) for side in (found.left, found.right)]
    assert Shape(*groups, *sides, neutral=all(map(found.neutral, found.folds))) == want


def test_products_that_share_an_operand_are_of_one_square() -> None:
    found = read(kernels.gated, SQUARE, SQUARE, SQUARE, lane="n")
    assert found is not None
    assert [f.names for f in found.folds] == [("g",), ("u",)]


# ---------------------------------------------------------------- plans


HALF, LARGE = "bfloat16[512,512]", "float32[2048,2048]"


def test_which_instructions_multiply() -> None:
    for arch in ("sm_90a", "sm_80"):
        assert multiplied(kernels.product, LARGE, LARGE, arch=arch).engine == "floats"
        assert multiplied(kernels.product, LARGE, "float16[2048,2048]", arch=arch).engine == "floats"
    assert multiplied(kernels.product, "float32[512,512]", "float32[512,512]").engine == "fma"  # few squares
    assert multiplied(kernels.product, HALF, "float16[512,512]").engine == "fma"
    assert multiplied(kernels.longest_paths, HALF, HALF).engine == "fma"
    assert multiplied(kernels.squared_distances, HALF, HALF).engine == "fma"
    assert multiplied(kernels.scaled, HALF, "bfloat16[512]", HALF).engine == "fma"  # the product of two is no value of bfloat16
    for dtype in ("bfloat16", "float16"):
        spec = f"{dtype}[512,512]"
        plan = multiplied(kernels.product, spec, spec)
        assert (plan.engine, plan.boxes, plan.packed) == ("wgmma", True, (False, False)) and plan.resident > 0
        assert plan.staged == (Staged(True, 8), Staged(False, 8))
        for arch in ("sm_80", "sm_86", "sm_89"):
            plan = multiplied(kernels.product, spec, spec, arch=arch)
            assert (plan.engine, plan.boxes, plan.packed, plan.resident) == ("mma", False, (False, False), 0)


def packed(kernel: Any, *specs: str, arch: str = "sm_90a") -> tuple[bool, ...]:
    plan = multiplied(kernel, *specs, arch=arch)
    names = [launch.entry for launch in launches(kernel, *specs, arch=arch)]
    assert len(names) == 1 + sum(plan.packed) and names[-1] == kernel.name
    return plan.packed


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_what_does_not_lie_in_packets_is_packed(arch: str) -> None:
    assert packed(kernels.product, "bfloat16[512,512]:(520,1)", "bfloat16[512,512]:(1,512)", arch=arch) == (False, False)
    assert packed(kernels.product, "bfloat16[512,512]:(515,1)", HALF, arch=arch) == (True, False)
    assert packed(kernels.product, HALF, "bfloat16[512,512]:(1024,2)", arch=arch) == (False, True)
    assert packed(kernels.product, "bfloat16[512,509]", "bfloat16[509,512]", arch=arch) == (True, False)
    assert packed(kernels.product, "bfloat16[512,512]", "bfloat16[512,509]", arch=arch) == (False, True)
    assert packed(kernels.rounded, "float32[512,512]", "float32[512,512]", arch=arch) == (True, True)
    assert packed(kernels.gathered, HALF, HALF, "int64[512]", arch=arch) == (True, False)
    assert packed(kernels.inner, HALF, HALF, arch=arch) == (True, True)  # points begin between packets


def test_boxes_have_one_axis_of_rows_and_one_of_points() -> None:
    apart = "bfloat16[4,500,512]:(262144,512,1)", "bfloat16[512,512]"  # of a batch, all of which have the other operand
    assert packed(kernels.of_one, *apart) == packed(kernels.of_one, *apart, arch="sm_80") == (False, False)
    assert multiplied(kernels.of_one, *apart).apart == ("z",) and not multiplied(kernels.of_one, *apart, arch="sm_80").apart
    assert packed(kernels.of_one, "bfloat16[500,4,512]:(8,4000,1)", "bfloat16[512,512]") == (True, False)  # few rows of each
    same = "bfloat16[4,512,512]:(0,512,1)"  # which is no stride of a box
    assert packed(kernels.batched, same, "bfloat16[4,512,512]") == (True, False)
    assert packed(kernels.convolution, "bfloat16[4,16,30,30]", "bfloat16[32,16,3,3]")[1]


def test_axes_that_follow_each_other_in_memory_are_one_of_rows() -> None:
    for dtype in ("bfloat16", "float32"):
        plan = multiplied(kernels.of_one, f"{dtype}[4,512,512]", f"{dtype}[512,512]")
        assert plan.merged == (("z", "i"),) and not any(plan.packed)
        assert multiplied(kernels.of_one, f"{dtype}[4,500,512]:(262144,512,1)", f"{dtype}[512,512]").merged == ()
        assert multiplied(kernels.of_one, f"{dtype}[1,512,512]:(7,512,1)", f"{dtype}[512,512]").tile[0] > 16
    assert multiplied(kernels.batched, "float32[4,64,64]", "float32[4,64,64]").merged == ()
    (launch,) = launches(kernels.of_one, "bfloat16[4,500,512]", HALF)
    assert launch.boxes[0].shape == (512, 2000, 4)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_rows_of_several_axes(arch: str, dtype: torch.dtype) -> None:
    """Squares have the end of one matrix and the begin of the next one, but where matrices are boxes."""
    checked(kernels.of_one, drawn(3, 41, 72, dtype=dtype), drawn(80, 72, dtype=dtype), arch=arch)
    checked(kernels.of_one, drawn(3, 72, 41, dtype=dtype).transpose(1, 2), drawn(80, 72, dtype=dtype), arch=arch)
    if dtype == torch.bfloat16 and arch == "sm_90a":
        args = drawn(3, 72, 48, dtype=dtype).transpose(1, 2), drawn(80, 72, dtype=dtype)
        assert multiplied(kernels.of_one, *args).apart == ("z",)
        checked(kernels.of_one, *args)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_batch_of_several_axes(arch: str) -> None:
    """What is counted as one has more elements than the array's own axis, of which a box would bring nothing."""
    q, k = (torch.randn(2, 2, 16, 64).bfloat16() for _ in range(2))
    report = kernels.of_each_head.check(q, k, arch=arch)
    assert report.ok and not report.findings, str(report)


def test_small_ones_stay_sweeps() -> None:
    def is_product(rows: int, columns: int, points: int) -> bool:
        return plan_of(kernels.product, f"float32[{rows},{points}]", f"float32[{points},{columns}]") is not None

    assert is_product(16, 16, 8)
    assert not is_product(15, 64, 64) and not is_product(64, 15, 64) and not is_product(64, 64, 7)
    assert not is_product(1, 64, 64) and not is_product(0, 64, 64) and not is_product(64, 64, 0)


def test_a_few_rows_meet_columns_that_are_read_once() -> None:
    def plan(rows: int, columns: int, points: int = 4096, dtype: str = "bfloat16", way: str = "") -> ProductPlan:
        specs = f"{dtype}[{rows},{points}]", f"{dtype}[{points},{columns}]{way}"
        return multiplied(kernels.product, *specs, arch="sm_80")

    for rows in (1, 8, 16):
        found = plan(rows, 4096, way=":(1,4096)")
        assert (found.streamed, found.engine) == (True, "mma")
        assert found.staged == (Staged(True, 8), Staged(True, 8)) and found.tile[0] == (8 if rows <= 8 else 16)
        assert plan(rows, 4096).staged == (Staged(True, 4), Staged(False, 8))
        assert plan(rows, 4096, dtype="float32").engine == "fma"
    assert not plan(17, 4096).streamed and plan(1, 64, 128).streamed
    assert plan(3, 4096, dtype="float32").tile[0] == 4
    turned = plan(4096, 3)  # the columns are few
    assert turned.streamed and turned.lane == "i"
    odd = plan(3, 4099)
    assert odd.streamed and not odd.staged[1].aligned
    assert multiplied(kernels.scaled, "bfloat16[4,4096]", "bfloat16[4096]", "bfloat16[4096,4096]").engine == "fma"


def test_a_few_rows_are_columns_of_narrow_tiles_of_warpgroups() -> None:
    def plan(rows: int, columns: int, way: str = "", x: str = "") -> ProductPlan:
        return multiplied(kernels.product, f"bfloat16[{rows},4096]{x}", f"bfloat16[4096,{columns}]{way}")

    for rows, width in ((1, 8), (8, 8), (9, 16), (16, 16), (17, 32), (32, 32)):
        found = plan(rows, 4096)
        assert (found.engine, found.tile[1], found.lane, found.packed) == ("wgmma", width, "i", (False, False))
    assert plan(16, 4096, ":(1,4096)").streamed  # along the points, registers are as fast
    assert plan(32, 4096, ":(1,4096)").tile[1] == 32
    assert plan(33, 4096).lane == "j"
    turned = plan(4096, 3)  # the columns are few
    assert turned.streamed and turned.lane == "i"
    assert plan(4, 4096, x=":(1,4)").packed == (False, True)  # a tile has no line of four columns
    assert plan(4, 4099).streamed  # what is read once is not packed


def test_blocks_of_a_cluster_share_the_points_of_few_columns() -> None:
    specs = "float32[4,4096]", "float32[4096,1024]"
    plan = multiplied(kernels.product, *specs)
    (launch,) = launches(kernels.product, *specs)
    assert plan.together and plan.parts == launch.cluster == 8 and launch.grid[0] == 8 * 1024 // plan.tile[1]
    plan = multiplied(kernels.product, *specs, arch="sm_80")
    assert plan.streamed and plan.parts == 1


def test_squares_that_are_few_are_shared() -> None:
    specs = "bfloat16[128,16384]", "bfloat16[16384,128]"
    plan = multiplied(kernels.product, *specs)
    assert plan.parts > 1 and not plan.together  # a cluster of so many blocks costs more than a launch
    specs = "bfloat16[64,65536]", "bfloat16[65536,64]"
    plan = multiplied(kernels.product, *specs)
    assert plan.parts > 8 and not plan.together
    parts, whole = launches(kernels.product, *specs)
    assert (parts.grid, whole.grid) == ((plan.parts, 1, 1), (plan.pieces, 1, 1)) and parts.partial == whole.partial


def test_every_product_of_a_gated_layer_is_of_the_same_tiles() -> None:
    plan = multiplied(kernels.gated, HALF, HALF, HALF)
    assert (plan.engine, len(plan.staged), plan.packed) == ("wgmma", 3, (False,) * 3)
    sums = plan.each[0] * plan.each[1] * 2 // 128
    assert sums <= product_search.MOST_SUMS


def test_blocks_stay_where_there_are_more_squares_than_multiprocessors() -> None:
    (launch,) = launches(kernels.product, "bfloat16[8192,512]", "bfloat16[512,8192]")
    plan = launch.variant.plan
    assert isinstance(plan, ProductPlan) and launch.grid == (plan.resident * Machine().multiprocessors, 1, 1)
    (launch,) = launches(kernels.product, "bfloat16[64,512]", "bfloat16[512,64]")
    assert launch.grid == (1, 1, 1)


def test_the_axis_of_the_columns_is_that_which_is_stored_together() -> None:
    assert multiplied(kernels.product, HALF, HALF).lane == "j"
    assert multiplied(kernels.stored_transposed, HALF, HALF).lane == "i"


@pytest.mark.parametrize("tile", product_search.TILES, ids=str)
def test_threads_have_every_result_of_a_tile_once(tile: Any) -> None:
    whole, each, groups = tile
    plan = ProductPlan("j", whole, each, groups, ())
    threads = plan.threads // groups
    assert threads % 32 == 0 and plan.threads <= 256
    had = [
        (plan.rows(t, u), plan.columns(t, v)) for t in range(threads) for u in range(each[0]) for v in range(each[1])
    ]
    assert len(had) == len(set(had)) == whole[0] * whole[1]
    assert set(had) == {(r, c) for r in range(whole[0]) for c in range(whole[1])}


def test_explain_says_how() -> None:
    assert "of i and j, a thread" in kernels.product.explain("float32[512,512]", "float32[512,512]", detail=True)
    text = kernels.product.explain(LARGE, LARGE, detail=True)
    assert "of i and j, a warp" in text and "floats as sums of three bfloat16" in text and "tiles of" in text
    assert "sum over k of" in text and "shared memory, by tiles" in text


def test_what_has_no_plan_of_products_runs_as_before() -> None:
    checked(kernels.causal, drawn(24, 24), drawn(24, 20))
    checked(kernels.with_factor, drawn(20, 16), drawn(16, 18), drawn(20, 18, 16))


# ---------------------------------------------------------------- what the kernels compute


@dataclass(frozen=True)
class Sizes:
    """Of a product. ways: how its operands lie."""

    rows: int
    columns: int
    points: int
    dtype: torch.dtype
    ways: tuple[str, str]

    def left(self, *order: int) -> torch.Tensor:
        return drawn(*(order or (self.rows, self.points)), dtype=self.dtype, way=self.ways[0])

    def right(self, *order: int) -> torch.Tensor:
        return drawn(*(order or (self.points, self.columns)), dtype=self.dtype, way=self.ways[1], seed=1)

    def other(self, *order: int) -> torch.Tensor:
        return drawn(*order, dtype=self.dtype, seed=2)


def matrices(s: Sizes) -> tuple[Any, ...]:
    return s.left(), s.right()


def lines(s: Sizes) -> tuple[Any, ...]:
    """Both have the points last."""
    return s.left(), s.right(s.columns, s.points)


def of_columns(s: Sizes) -> tuple[Any, ...]:
    return s.left(s.points, s.rows), s.right(s.columns, s.points)


INTEGERS = (torch.int32, torch.int64)
CASES: dict[str, tuple[Any, tuple[torch.dtype, ...], Callable[[Sizes], tuple[Any, ...]]]] = {
    "product": (kernels.product, FLOATS, matrices),
    "columns_first": (kernels.columns_first, FLOATS, matrices),
    "points_first": (kernels.points_first, FLOATS, matrices),
    "points_between": (kernels.points_between, FLOATS, matrices),
    "by_operator": (kernels.by_operator, FLOATS, matrices),
    "of_transposed": (kernels.of_transposed, FLOATS, of_columns),
    "stored_transposed": (kernels.stored_transposed, FLOATS, lines),
    "linear_gelu": (kernels.linear_gelu, FLOATS, lambda s: (*lines(s), s.other(s.columns))),
    "residual": (kernels.residual, FLOATS, lambda s: (*lines(s), s.other(s.rows, s.columns))),
    "gated": (kernels.gated, FLOATS, lambda s: (*lines(s), s.other(s.columns, s.points))),
    "accumulated": (kernels.accumulated, FLOATS, lambda s: (drawn(s.rows, s.columns), *matrices(s))),
    "from_bias": (kernels.from_bias, FLOATS, lambda s: (*lines(s), s.other(s.columns))),
    "scaled_in_place": (kernels.scaled_in_place, FLOATS, lambda s: (s.other(s.rows, s.columns), *matrices(s), 0.5)),
    "batched": (kernels.batched, FLOATS, lambda s: (s.left(2, s.rows, s.points), s.right(2, s.points, s.columns))),
    "of_one": (kernels.of_one, FLOATS, lambda s: (s.left(2, s.rows, s.points), s.right(s.columns, s.points))),
    "of_heads": (
        kernels.of_heads, FLOATS, lambda s: (s.left(2, s.rows, 2, s.points), s.right(2, s.columns, 2, s.points)),
    ),
    "convolution": (
        kernels.convolution, FLOATS, lambda s: (s.left(2, 3, 5, s.rows), s.right(s.columns, 3, 2, 1 + s.points // 8)),
    ),
    "contracted": (
        kernels.contracted, FLOATS, lambda s: (s.left(3, s.rows, s.points // 2), s.right(s.points // 2, 3, s.columns)),
    ),
    "squared_distances": (kernels.squared_distances, (*FLOATS, *INTEGERS), lines),
    "absolute_distances": (kernels.absolute_distances, FLOATS, lines),
    "longest_paths": (kernels.longest_paths, FLOATS, matrices),
    "shortest_paths": (kernels.shortest_paths, FLOATS, matrices),
    "of_integers": (kernels.of_integers, INTEGERS, matrices),
    "reachable": (kernels.reachable, (torch.bool,), matrices),
    "scaled": (kernels.scaled, FLOATS, lambda s: (s.left(), s.other(s.points), s.right(s.columns, s.points))),
    "rounded": (kernels.rounded, (torch.float32,), lines),
    "gathered": (
        kernels.gathered, FLOATS, lambda s: (s.left(), s.right(s.columns, s.points), torch.arange(70) * 7 % s.columns),
    ),
    "powers": (kernels.powers, FLOATS, lines),
    "inner": (kernels.inner, FLOATS, lines),
    "recurrent": (
        kernels.recurrent, FLOATS,
        lambda s: (s.left(4, s.rows, s.points), s.right(s.points, s.points), s.other(3, s.rows, s.points)),
    ),
}  # fmt: skip
WAYS = ("", "transposed", "sliced", "offset")


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, Sizes, str]:
    name = draw(st.sampled_from(sorted(CASES)))
    dtype = draw(st.sampled_from(CASES[name][1]))
    side = st.one_of(st.integers(16, 80), st.sampled_from([24, 32, 40, 64, 72, 80]))
    points = draw(st.one_of(st.integers(8, 90), st.sampled_from([16, 40, 64, 72, 88])))
    rows, columns = draw(side), draw(side)
    if draw(st.booleans()):
        rows, columns, points = draw(st.integers(1, 16)), draw(st.integers(64, 140)), draw(st.integers(128, 300))
    ways = draw(st.sampled_from(WAYS)), draw(st.sampled_from(WAYS))
    return name, Sizes(rows, columns, points, dtype, ways), draw(st.sampled_from(["sm_90a", "sm_80"]))


@examples(6)
@given(calls())
def test_the_kernels_compute_what_the_loops_do(call: tuple[str, Sizes, str]) -> None:
    name, sizes, arch = call
    kernel, _, make = CASES[name]
    checked(kernel, *make(sizes), arch=arch)


def test_all_of_them_are_products() -> None:
    for name, (kernel, dtypes, make) in CASES.items():
        for dtype in {dtypes[0], dtypes[-1]}:
            if (name, dtype) != ("recurrent", torch.float16):  # what it stores is rounded between the steps
                assert plan_of(kernel, *make(Sizes(64, 72, 40, dtype, ("", "")))) is not None, name


RAGGED = 300, 136, 328


def several_tiles(dtype: torch.dtype, k: int, sizes: tuple[int, int, int] = RAGGED) -> tuple[torch.Tensor, torch.Tensor]:
    """Operands of which one, both or none is transposed."""
    rows, columns, points = sizes
    ways = ("transposed" if k & 1 else "", "transposed" if k & 2 else "")
    return drawn(rows, points, dtype=dtype, way=ways[0]), drawn(points, columns, dtype=dtype, way=ways[1])


@pytest.mark.parametrize("k", range(len(product_search.TILES)), ids=lambda k: str(product_search.TILES[k]))
def test_every_tile_of_threads(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (tile,) = own = product_search.TILES[k : k + 1]
    monkeypatch.setattr(product_search, "TILES", own)
    monkeypatch.setattr(product_search, "OF_FLOATS", ())
    args = several_tiles(torch.float32, k, (136, 136, 40))
    assert multiplied(kernels.product, *args).tile == tile[0]
    checked(kernels.product, *args)


@pytest.mark.parametrize("k", range(len(product_search.OF_FLOATS)), ids=lambda k: str(product_search.OF_FLOATS[k]))
def test_every_tile_of_floats(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (tile,) = own = product_search.OF_FLOATS[k : k + 1]
    monkeypatch.setattr(product_search, "OF_FLOATS", own)
    monkeypatch.setattr(product_search, "TILES", ())
    args = several_tiles(torch.float32, k, (136, 136, 40))
    plan = multiplied(kernels.product, *args)
    assert (plan.engine, plan.tile) == ("floats", tile[0])
    checked(kernels.product, *args)


@pytest.mark.parametrize("parts", [1, 2])
def test_floats_are_sums_of_three_numbers_of_bfloat16(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every bit counts, also of the largest floats; what is infinite or no number is so where it is in the loops."""
    monkeypatch.setattr(product_search, "TILES", ())
    monkeypatch.setattr(product_search, "PARTS", (parts,) if parts > 1 else ())
    monkeypatch.setattr(product_search, "PART_BYTES", 1e9)
    monkeypatch.setattr(product_search, "LAUNCH_CYCLES", 0)
    a, b = drawn(72, 160), drawn(160, 80)
    a[0], b[:, 0] = 0.0, 0.0
    a[0, 0], b[0, 0] = 1 + 2.0**-23, 1 + 2.0**-22
    a[1, 1], a[2, 2], a[3, 3] = torch.finfo(torch.float32).max, torch.inf, torch.nan
    b[1, 0], b[1, 3], b[2, 5] = 0.5, 1e-3, -torch.inf
    assert multiplied(kernels.product, a, b).parts == parts
    checked(kernels.product, a, b)
    ran = simulated.simulate_call(kernels.product.program, [a, b], "sm_90a", 0, "call").arrays["c"]
    want = (a.double() @ b.double()).float()
    assert ran[0, 0] == want[0, 0] and ran[1, 0] == want[1, 0]
    finite = want.isfinite()
    assert torch.equal(ran.isfinite(), finite) and torch.equal(ran.isnan(), want.isnan()) and 0 < finite.sum() < finite.numel()


@pytest.mark.parametrize("k", range(len(product_search.BY_WARPGROUPS)), ids=lambda k: str(product_search.BY_WARPGROUPS[k]))
def test_every_tile_of_warpgroups(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (tile,) = own = product_search.BY_WARPGROUPS[k : k + 1]
    monkeypatch.setattr(product_search, "BY_WARPGROUPS", own)
    monkeypatch.setattr(product_search, "BY_CREWS", ())
    args = several_tiles(HALVES[k % 2], k)
    plan = multiplied(kernels.product, *args)
    assert plan.tile[:2] == tile[0] and plan.packed == (bool(k & 1), False)  # 300 rows are no packets
    checked(kernels.product, *args)


@pytest.fixture
def one_multiprocessor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small device: blocks that stay have several squares of few results."""
    small = {arch: replace(target, multiprocessors=1) for arch, target in limits.TARGETS.items()}
    monkeypatch.setattr(limits, "TARGETS", small)


@pytest.mark.usefixtures("one_multiprocessor")
@pytest.mark.parametrize("k", range(len(product_search.BY_CREWS)), ids=lambda k: str(product_search.BY_CREWS[k]))
def test_every_tile_of_crews(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Squares in odd and even numbers, whose turns go around the ring."""
    (tile,) = own = product_search.BY_CREWS[k : k + 1]
    monkeypatch.setattr(product_search, "BY_WARPGROUPS", ())
    monkeypatch.setattr(product_search, "BY_CREWS", own)
    monkeypatch.setattr(product_search, "MOST_BOXES", 3)
    rows, columns = (tile[0] + 8, tile[1] + 8) if k % 2 else (2 * tile[0] + 8, tile[1])
    args = several_tiles(HALVES[k % 2], k, (rows, columns, 136))
    plan = multiplied(kernels.product, *args)
    assert (plan.tile[:2], plan.crews, plan.threads) == (tile, 2, 288)
    checked(kernels.product, *args)


@pytest.mark.parametrize("k", range(len(product_search.BY_WARPS)), ids=lambda k: str(product_search.BY_WARPS[k]))
def test_every_tile_of_warps(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (tile,) = own = product_search.BY_WARPS[k : k + 1]
    monkeypatch.setattr(product_search, "BY_WARPS", own)
    args = several_tiles(HALVES[k % 2], k + 1, (200, 136, 328))
    assert multiplied(kernels.product, *args, arch="sm_80").tile[:2] == tile[0]
    checked(kernels.product, *args, arch="sm_80")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rows", [1, 3, 13])
def test_a_few_rows(rows: int, way: str) -> None:
    """Every number of rows and every layout in both dtypes, each on one architecture."""
    dtypes = (torch.bfloat16, torch.float32)
    for dtype, arch in zip(dtypes[:: 1 if (rows // 3 + WAYS.index(way)) % 2 else -1], ("sm_90a", "sm_80"), strict=True):
        args = drawn(rows, 264, dtype=dtype), drawn(264, 104, dtype=dtype, way=way, seed=1)
        plan = multiplied(kernels.product, *args, arch=arch)
        assert plan.streamed or (plan.engine, plan.tile[1]) == ("wgmma", 8 if rows <= 8 else 16)
        checked(kernels.product, *args, arch=arch)


FEW: list[tuple[Any, tuple[Any, ...]]] = [
    (kernels.product, (drawn(5, 1064), drawn(1064, 72, way="transposed"))),
    (kernels.product, (drawn(5, 1064, dtype=torch.float16), drawn(1064, 72, dtype=torch.float16))),
    (kernels.product, (drawn(100, 300, dtype=torch.float64), drawn(300, 7, dtype=torch.float64))),  # few columns
    (kernels.gated, (drawn(3, 256), drawn(100, 256, seed=1), drawn(100, 256, seed=2))),
    (kernels.gated, tuple(drawn(n, 256, dtype=torch.bfloat16, seed=k) for k, n in enumerate((3, 100, 100)))),
    (kernels.linear_gelu, (drawn(3, 256), drawn(101, 256, seed=1), drawn(101, seed=2))),
    (kernels.scaled, (drawn(3, 256), drawn(256, seed=1), drawn(101, 256, seed=2))),
    (kernels.longest_paths, (drawn(3, 259), drawn(259, 101, seed=1))),
    (kernels.longest_paths, (drawn(3, 259, dtype=torch.bfloat16), drawn(259, 101, dtype=torch.bfloat16, way="transposed"))),
    (kernels.batched, (drawn(3, 7, 256, dtype=torch.bfloat16), drawn(3, 256, 64, dtype=torch.bfloat16, seed=1))),
    (kernels.of_integers, (drawn(3, 259, dtype=torch.int64), drawn(259, 101, dtype=torch.int64, seed=1))),
    (kernels.accumulated, (drawn(3, 101), drawn(3, 259, seed=1), drawn(259, 101, seed=2))),
    (kernels.low_rank, (drawn(3, 256), drawn(256, 104, seed=1), drawn(3, 16, seed=2), drawn(16, 104, seed=3))),
    (kernels.low_rank, tuple(
        drawn(*shape, dtype=torch.float16, seed=k) for k, shape in enumerate(((5, 1064), (1064, 72), (5, 9), (9, 72))))),
    (kernels.divided_columns, (drawn(3, 256, dtype=torch.bfloat16), drawn(256, 101, seed=1), drawn(101, seed=2).exp())),
    (kernels.divided_columns, (drawn(3, 259, dtype=torch.bfloat16), drawn(259, 104, seed=1), drawn(104, seed=2).exp())),
    (kernels.divided_points, (drawn(3, 256), drawn(101, 256, seed=1), drawn(256, seed=2).exp())),
    (kernels.gated_by_rows, (drawn(3, 256), drawn(3, 256, seed=1), drawn(256, 101, seed=2))),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "args"), FEW, ids=lambda v: getattr(v, "name", ""))
@pytest.mark.usefixtures("separate_launches")
def test_a_few_rows_of(kernel: Any, args: tuple[Any, ...]) -> None:
    plan = multiplied(kernel, *args)
    assert plan.streamed or (plan.engine, plan.tile[1]) == ("wgmma", 8)
    checked(kernel, *args)


def test_few_rows_of_few_columns() -> None:
    """As what a low rank leaves of the rows: a cluster goes through the points."""
    half, brain = torch.float16, torch.bfloat16
    for rows, points, columns, dtype in ((5, 2056, 16, half), (12, 1024, 40, brain), (3, 4104, 9, half), (1, 3072, 8, brain)):
        args = drawn(rows, points, dtype=dtype), drawn(points, columns, dtype=dtype, seed=1)
        plan = multiplied(kernels.product, *args)
        assert plan.streamed and plan.engine == "mma"
        checked(kernels.product, *args)
    assert plan_of(kernels.product, drawn(5, 900, dtype=half), drawn(900, 16, dtype=half, seed=1)) is None


@pytest.mark.usefixtures("separate_launches")
def test_few_rows_in_parts() -> None:
    """What a result has beside its product is made while parts of that are on their way."""
    args = tuple(t.half() for t in (drawn(3, 1544), drawn(1544, 200, seed=1), drawn(3, 16, seed=2), drawn(16, 200, seed=3)))
    assert multiplied(kernels.low_rank, *args).parts > 1
    checked(kernels.low_rank, *args)


def test_a_few_rows_in_any_order_of_the_threads() -> None:
    for dtype in (torch.bfloat16, torch.float32):
        checked(kernels.product, drawn(5, 2056, dtype=dtype), drawn(2056, 64, dtype=dtype, seed=1), seeds=3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_parts_of_squares(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_search, "LAUNCH_CYCLES", 0)
    for kernel, args in (
        (kernels.product, (drawn(70, 520, dtype=dtype), drawn(520, 81, dtype=dtype, seed=1))),
        (kernels.longest_paths, (drawn(70, 263, dtype=dtype), drawn(263, 81, dtype=dtype, seed=1))),
        (kernels.gated, (drawn(40, 552, dtype=dtype), *(drawn(64, 552, dtype=dtype, seed=k) for k in (1, 2)))),
        (kernels.batched, (drawn(2, 64, 552, dtype=dtype), drawn(2, 552, 64, dtype=dtype, seed=1))),
    ):
        plan = multiplied(kernel, *args)
        assert plan.parts > 1
        checked(kernel, *args)


ODD: list[tuple[Any, tuple[Any, ...]]] = [
    (kernels.product, (drawn(300, 136, dtype=torch.bfloat16), drawn(136, 133, dtype=torch.bfloat16, seed=1))),
    (kernels.product, (drawn(70, 72), drawn(72, 133, seed=1))),
    (kernels.linear_gelu, (drawn(70, 256), drawn(101, 256, seed=1), drawn(101, seed=2))),
    (kernels.linear_gelu, tuple(drawn(*n, dtype=torch.float16, seed=len(n)) for n in ((70, 256), (101, 256), (101,)))),
    (kernels.gated, tuple(drawn(n, 72, dtype=torch.bfloat16, seed=k) for k, n in enumerate((70, 99, 99)))),
    (kernels.longest_paths, (drawn(70, 123), drawn(123, 81, seed=1))),
    (kernels.batched, (drawn(3, 70, 64, dtype=torch.bfloat16), drawn(3, 64, 65, dtype=torch.bfloat16, seed=1))),
    (kernels.accumulated, (drawn(65, 101), drawn(65, 40, seed=1), drawn(40, 101, seed=2))),
    (kernels.batched, (drawn(3, 100, 65, dtype=torch.bfloat16), drawn(3, 65, 130, dtype=torch.bfloat16, seed=1))),  # four bytes
]  # fmt: skip


@pytest.mark.parametrize("k", range(len(ODD)), ids=lambda k: ODD[k][0].name)
def test_columns_in_no_packets_are_written_by_lines_of_a_warp(k: int) -> None:
    """Every plan, of which those of multiply-adds are alike on both architectures, each simulated on one."""
    kernel, args = ODD[k]
    architectures = ("sm_90a", "sm_80")
    plans = [multiplied(kernel, *args, arch=arch) for arch in architectures]
    for plan in plans:
        assert (plan.lines and plan.vector == 1) or (plan.engine, plan.vector) == ("mma", 2)  # which is all that a thread has
    for arch, plan in zip(architectures, plans, strict=True):
        if plan.engine != "fma" or arch == architectures[k % 2]:
            checked(kernel, *args, arch=arch)


def test_columns_in_packets_are_written_by_threads() -> None:
    for kernel, dtype, columns, vector in (
        (kernels.product, "bfloat16", 512, 8),
        (kernels.product, "bfloat16", 516, 4),
        (kernels.product, "float32", 512, 4),
        (kernels.product, "float32", 514, 2),
    ):
        plan = multiplied(kernel, f"{dtype}[512,512]", f"{dtype}[512,{columns}]")
        assert (plan.lines, plan.vector) == (False, vector)
    assert multiplied(kernels.product, "bfloat16[512,512]", "bfloat16[512,514]").lines  # of four bytes


PACKED: list[tuple[Any, tuple[Any, ...], tuple[bool, ...]]] = [
    (kernels.product, (drawn(170, 73), drawn(73, 133, seed=1)), (True, True)),
    (kernels.product, (drawn(73, 170).T, drawn(133, 73, seed=1).T), (False, True)),
    (kernels.longest_paths, tuple(drawn(*n, dtype=torch.float64) for n in ((70, 73), (73, 133))), (True, True)),
    (kernels.longest_paths, (drawn(70, 123), drawn(123, 81, seed=1)), (True, True)),
    (kernels.batched, (drawn(2, 64, 65), drawn(2, 65, 68, seed=1)), (True, False)),
    (kernels.scaled, (drawn(30, 257), drawn(257, seed=1), drawn(104, 257, seed=2)), (True, True)),
    (kernels.convolution, (drawn(2, 8, 12, 13), drawn(24, 8, 3, 3, seed=1)), (True, True)),
    (kernels.of_integers, tuple(drawn(*n, dtype=torch.int32) for n in ((33, 259), (259, 101))), (True, True)),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "args", "packed_"), PACKED, ids=lambda v: getattr(v, "name", ""))
def test_what_multiply_adds_take_may_be_packed(
    kernel: Any, args: tuple[Any, ...], packed_: tuple[bool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(product_search, "PACK_CYCLES", -1e9)
    plan = multiplied(kernel, *args)
    assert plan.engine in ("fma", "floats") and plan.packed == packed_
    checked(kernel, *args)


def test_packing_pays_where_operands_are_taken_often() -> None:
    assert multiplied(kernels.product, "float32[2047,2049]", "float32[2049,2051]").packed == (True, True)
    assert not any(multiplied(kernels.product, "float32[64,65]", "float32[65,66]").packed)
    assert not any(multiplied(kernels.product, "float32[2048,2048]", "float32[2048,2048]").packed)


@pytest.mark.usefixtures("separate_launches")
def test_few_rows_fold_a_few_other_points_for_each_result() -> None:
    """In the launch of the product, if they are few."""
    for rank, whole in ((64, True), (72, False)):
        specs = "float16[16,512]", "float16[512,4096]", f"float16[16,{rank}]", f"float16[{rank},4096]"
        plans = {launch.variant.plan for launch in launches(kernels.low_rank, *specs)}
        assert (len(plans) == 1) == whole


def test_products_that_fold_different_axes_are_passes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = "bfloat16[512,1024]", "bfloat16[1024,4096]", "bfloat16[512,16]", "bfloat16[16,4096]"
    plans = [launch.variant.plan for launch in launches(kernels.low_rank, *specs)]
    assert [isinstance(p, ProductPlan) and p.engine == "wgmma" for p in plans] == [True, True, False]
    few = launches(kernels.low_rank, *["bfloat16[16,16]"] * 4)
    assert not any(isinstance(launch.variant.plan, ProductPlan) for launch in few)
    monkeypatch.setattr(planning, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(planning, "GAIN", 1e3)
    checked(kernels.low_rank, drawn(40, 72), drawn(72, 50, seed=1), drawn(40, 16, seed=2), drawn(16, 50, seed=3))


@pytest.fixture
def two_multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (inspection, simulated):
        monkeypatch.setattr(module, "machine_for", lambda arch: replace(machine_for(arch), multiprocessors=2))


@pytest.mark.usefixtures("two_multiprocessors")
@pytest.mark.parametrize("batch", [False, True])
def test_blocks_go_from_square_to_square(batch: bool) -> None:
    """More squares than blocks; those of some tiles of rows come after each other, also where fewer are left."""
    if batch:
        report = checked(kernels.batched, drawn(3, 200, 72, dtype=torch.bfloat16), drawn(3, 72, 136, dtype=torch.bfloat16))
    else:
        report = checked(kernels.product, *several_tiles(torch.bfloat16, 2, (600, 200, 136)))
    (launch,) = report.launches
    assert launch.grid[0] <= 8


@pytest.mark.usefixtures("two_multiprocessors")
def test_in_any_order_of_the_threads() -> None:
    checked(kernels.product, *several_tiles(torch.bfloat16, 0, (200, 136, 328)), seeds=3)
    checked(kernels.rounded, drawn(100, 70), drawn(72, 70), seeds=3)


@pytest.mark.parametrize("kernel", [kernels.product, kernels.gated, kernels.squared_distances], ids=lambda k: k.name)
def test_gradients_are_products_too(kernel: Any) -> None:
    if kernel is kernels.gated:
        weights = [drawn(32, 16, dtype=torch.bfloat16, seed=k) for k in (1, 2)]
        args: tuple[Any, ...] = (drawn(24, 16, dtype=torch.bfloat16), *weights)
    elif kernel is kernels.product:
        args = drawn(24, 16, dtype=torch.bfloat16), drawn(16, 32, dtype=torch.bfloat16)
    else:
        args = drawn(24, 16), drawn(32, 16)
    checked(kernel, *args, gradients=True)


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("kernel", [kernels.linear_gelu, kernels.gated], ids=lambda k: k.name)
def test_what_derivatives_are_taken_at_is_kept(kernel: Any) -> None:
    """What is handed back to the sums of a layer is made of them, elements alone: no product is computed again."""
    x, w = drawn(24, 16, dtype=torch.bfloat16), drawn(32, 16, dtype=torch.bfloat16, seed=1)
    args = x, w, drawn(32, dtype=torch.bfloat16, seed=2) if kernel is kernels.linear_gelu else w.flip(0)
    types = argument_types(kernel.signature, args)
    keeping = keeping_of(kernel.program, types)
    assert keeping is not None and not keeping.pays(args)
    assert keeping.pays((x.repeat(1, 40), w.repeat(1, 40), w.repeat(1, 40) if kernel is kernels.gated else args[2]))
    first, *kept = keeping.execute(args)
    assert torch.equal(first, kernel(*args)) and all(t.dtype == torch.float32 for t in kept)
    torch.testing.assert_close(kept[0], (x.float() @ w.float().T), rtol=1e-4, atol=1e-4)
    made = adjoint_of(keeping, types, kernel.signature.names, (0,))
    assert len(made.specializable.analysis((), True).schedule.nests) == 4
    seed = drawn(24, 32, dtype=torch.bfloat16)
    plain = adjoint_of(kernel.program, types, kernel.signature.names).execute((*args, first, seed))
    for own, expected in zip(made.execute((*args, first, *kept, seed)), plain, strict=True):
        torch.testing.assert_close(own, expected, rtol=2e-2, atol=2e-2)


def test_what_no_derivative_is_taken_at_is_not_kept() -> None:
    x, w, r = drawn(6, 4), drawn(5, 4), drawn(6, 5)
    for kernel, args in ((kernels.residual, (x, w, r)), (kernels.product, (x, w.T))):
        assert keeping_of(kernel.program, argument_types(kernel.signature, args)) is None


BEYOND = [
    (kernels.product, torch.float32, "sm_90a"),
    (kernels.product, torch.bfloat16, "sm_90a"),
    (kernels.product, torch.bfloat16, "sm_80"),
    (kernels.longest_paths, torch.float32, "sm_90a"),
]


@pytest.mark.parametrize(("kernel", "dtype", "arch"), BEYOND, ids=lambda v: getattr(v, "name", str(v)))
@pytest.mark.parametrize("points", [72, 67])
def test_infinities_and_nan_stay_where_they_are(kernel: Any, dtype: torch.dtype, arch: str, points: int) -> None:
    """Nothing of what a tile has beyond the last row, column or point meets them: rows, columns and points end in tiles."""
    a, b = drawn(72, points, dtype=dtype), drawn(points, 88, dtype=dtype)
    a[-1, -1], a[3, 0], b[-1, -1], b[0, 5] = torch.inf, torch.nan, -torch.inf, torch.inf
    report = checked(kernel, a, b, arch=arch)
    assert report.comparisons
    if kernel is kernels.product:
        ran = simulated.simulate_call(kernel.program, [a, b], arch, 0, "call")
        finite = ran.arrays["c"].isfinite()
        want = (a.double() @ b.double()).isfinite()
        assert torch.equal(finite, want) and 0 < want.sum() < want.numel()


@pytest.mark.usefixtures("quickly_compiled")
def test_rows_with_ever_more_points() -> None:
    """A product of all points, of which each row takes its own: what it does not have may be anything."""
    lower, b = drawn(40, 44), drawn(40, 24)
    lower[5, 20] = torch.nan
    b[30, 3], b[39] = torch.inf, -torch.inf
    assert multiplied(kernels.lower, lower, b).tile[2] > 1
    checked(kernels.lower, lower, b)
    assert plan_of(kernels.earlier, drawn(40), b) is None


def test_memory_beside_the_operands_is_not_looked_at() -> None:
    """What lies beyond the points of a sliced tensor is NaN."""
    for arch, dtype in (("sm_90a", torch.bfloat16), ("sm_80", torch.bfloat16), ("sm_90a", torch.float32)):
        wide_a, wide_b = drawn(72, 128, dtype=dtype), drawn(136, 72, dtype=dtype)
        a, b = wide_a[:, :72], wide_b[:72]
        wide_a[:, 72:], wide_b[72:] = torch.nan, torch.nan
        for kernel in (kernels.product, kernels.longest_paths):
            if kernel is kernels.product or arch == "sm_90a":
                c = simulated.simulate_call(kernel.program, [a, b], arch, 0, "call").arrays["c"]
                assert c.isfinite().all()


@pytest.mark.parametrize("sizes", [(1, 40, 24), (40, 1, 24), (40, 48, 1), (0, 48, 24), (40, 0, 24), (40, 48, 0)], ids=str)
def test_few_or_no_rows_columns_and_points(sizes: tuple[int, int, int]) -> None:
    rows, columns, points = sizes
    checked(kernels.product, drawn(rows, points), drawn(points, columns))


def test_numbers_of_rows_and_columns_are_no_factors_of_matrices() -> None:
    for dtype in (torch.bfloat16, torch.float32):
        checked(kernels.triangle, drawn(66, 40, dtype=dtype), drawn(40, 70, dtype=dtype, seed=1))


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_no_batch(arch: str) -> None:
    for points in (64, 67):
        sizes = (0, 64, points), (0, points, 64)
        checked(kernels.batched, *(torch.empty(*s, dtype=torch.bfloat16) for s in sizes), arch=arch)


def test_one_of_a_batch_for_all() -> None:
    """A stride of 0, and one that means nothing."""
    a, b = (drawn(3, 40, 40, dtype=torch.bfloat16, way=way) for way in ("expanded", ""))
    checked(kernels.batched, a, b)
    checked(kernels.batched, b[:1].as_strided((1, 40, 40), (7, 40, 1)), b[1:2])


def test_names_that_texts_declare_may_be_arguments() -> None:
    args = drawn(20, 3, 13, dtype=torch.bfloat16), drawn(3, 13, 17, dtype=torch.bfloat16, seed=1)
    assert multiplied(kernels.of_names_of_ours, *args).packed == (True, True)
    checked(kernels.of_names_of_ours, *args)


def test_operands_that_are_one_tensor() -> None:
    x = drawn(72, 72, dtype=torch.bfloat16)
    checked(kernels.product, x, x)
    checked(kernels.product, x, x.T, arch="sm_80")


# ---------------------------------------------------------------- windows


@pytest.mark.parametrize(
    ("kernel", "shapes", "parts"),
    [
        (kernels.convolution, ((2, 64, 12, 11), (24, 64, 3, 3)), False),
        (kernels.convolution, ((3, 70, 9, 13), (70, 70, 2, 3)), False),
        (kernels.dilated, ((2, 14, 13, 72), (3, 3, 72, 40)), True),
        (kernels.along_time, ((5, 100, 50), (48, 100, 5), (48,)), False),
    ],
    ids=["convolution", "of odd sizes", "dilated", "along_time"],
)
def test_what_windows_move_over_is_packed_once(
    kernel: Any, shapes: tuple[tuple[int, ...], ...], parts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not once for each of their points; places at which none begins are rows that are not written."""
    monkeypatch.setattr(product_search, "PACK_BYTES", 0.01)
    args = [drawn(*s, dtype=torch.bfloat16, seed=k) for k, s in enumerate(shapes)]
    found = launches(kernel, *args)
    plan = found[-1].variant.plan
    assert isinstance(plan, ProductPlan)
    assert plan.window is not None
    assert (plan.window.operand, plan.parts > 1) == (0 if kernel is kernels.dilated else 1, parts)
    elements = {name: count for name, _, count in found[-1].partial}
    lines = math.prod(n for k, n in enumerate(shapes[0]) if k != (3 if kernel is kernels.dilated else 1))
    assert elements["x.packed"] == lines * -(-args[0].shape[3 if kernel is kernels.dilated else 1] // 64) * 64
    checked(kernel, *args)


def test_windows_of_few_channels_are_packed_for_each_of_their_points() -> None:
    plan = multiplied(kernels.convolution, *(drawn(*s, dtype=torch.bfloat16) for s in ((1, 3, 40, 40), (64, 3, 7, 7))))
    assert plan.window is None


# ---------------------------------------------------------------- rows that fold results


@pytest.mark.parametrize(
    ("kernel", "shapes", "across"),
    [
        (kernels.normed_linear, ((150, 96), (264, 96), (264,), (264,)), 5),
        (kernels.normed_linear, ((70, 64), (40, 64), (40,), (40,)), 1),
        (kernels.weights, ((70, 64), (520, 64)), 9),
        (kernels.centred, ((2, 67, 72), (136, 72), (2, 67, 136)), 3),
    ],
    ids=lambda v: v.name if hasattr(v, "name") else "",
)
def test_rows_fold_results_that_several_blocks_have(
    kernel: Any, shapes: tuple[tuple[int, ...], ...], across: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All blocks run at once, and tell each other what their columns fold to; results stay in registers meanwhile."""
    monkeypatch.setattr(product_search, "MEETING_CYCLES", -1e9)
    monkeypatch.setattr(product_search, "BY_WARPGROUPS", (((64, 64), (64, 64), 2),))
    monkeypatch.setattr(product_search, "BY_CREWS", ())
    args = [drawn(*s, dtype=torch.bfloat16, seed=k) for k, s in enumerate(shapes)]
    (launch,) = launches(kernel, *args)
    plan = launch.variant.plan
    assert isinstance(plan, ProductPlan)
    assert (plan.across, launch.together, launch.grid[0] % across) == (across, across > 1, 0)
    checked(kernel, *args)


@pytest.mark.parametrize("tile", [((128, 256), (64, 256), 1), ((128, 128), (64, 128), 2), None], ids=["roomy", "two", "crews"])
def test_rows_fold_results_of_every_kind_of_block(
    tile: product_search.Square | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(product_search, "MEETING_CYCLES", -1e9)
    monkeypatch.setattr(product_search, "BY_WARPGROUPS", (tile,) if tile else ())
    monkeypatch.setattr(product_search, "BY_CREWS", () if tile else ((64, 128),))
    monkeypatch.setattr(product_search, "CREWS", 2)
    shapes = ((5 * 128 + 3, 64), (264, 64), (264,), (264,))
    args = [drawn(*s, dtype=torch.bfloat16, seed=k) for k, s in enumerate(shapes)]
    few = Machine(multiprocessors=4)
    monkeypatch.setattr("weft.pytorch.simulated.machine_for", lambda arch: few)
    found = examine(kernels.normed_linear, args)
    (launch,) = planned(found.analysis, 0, found.arrays, found.names, few)
    plan = launch.variant.plan
    assert isinstance(plan, ProductPlan)
    assert (plan.roomy, plan.crews) == ((tile or ((0, 0),))[0] == (128, 256), 1 if tile else 2)
    checked(kernels.normed_linear, *args)


def test_rows_fold_results_in_another_launch_where_that_is_quicker() -> None:
    """Few rows leave most of the multiprocessors without a block; a result of an odd number of columns is in no packets."""
    for rows, columns, points in ((64, 4096, 4096), (4000, 333, 64)):
        shapes = (rows, points), (columns, points), (columns,), (columns,)
        assert len(launches(kernels.normed_linear, *(weft.TensorSpec("bfloat16", s) for s in shapes))) > 1


def test_rows_fold_results_inside_of_a_loop() -> None:
    """Each launch clears what its blocks tell each other through."""
    shapes = (4096, 1024), (1024, 1024), (1024,), (1024,)
    found = examine(kernels.normed_linear, [weft.TensorSpec("bfloat16", s) for s in shapes])
    where = Where(found.analysis, found.arrays)
    (once,) = whole_launches(where, 0, found.names)
    assert once.together
    turns = Axis("turn", Const(0, INT64), Const(3, INT64), 1)
    (again,) = whole_launches(replace(where, steps=(turns,), ranges={"turn": (0, 2)}), 0, found.names)
    assert again.together and not again.zero


def test_what_is_read_of_results_is_on_its_way_before_they_are_there() -> None:
    """To L2 while their square is multiplied, to registers some runs of columns ahead."""
    halves = [drawn(*s, dtype=torch.bfloat16, seed=k) for k, s in enumerate(((203, 72), (264, 72), (203, 264)))]
    text = kernels.residual.source(*halves, arch="sm_90a")
    assert "weft::prefetch_line(r +" in text
    assert "weft::fetch_if<8, 8>(" in text
    checked(kernels.residual, *halves)


# ---------------------------------------------------------------- texts


@pytest.mark.parametrize(
    ("title", "kernel", "specs", "arch"),
    [
        ("float32", kernels.product, ("float32[512,512]", "float32[512,512]"), "sm_90a"),
        ("floats", kernels.product, (LARGE, LARGE), "sm_90a"),
        ("bfloat16", kernels.linear_gelu, (HALF, HALF, "bfloat16[512]"), "sm_90a"),
        ("bfloat16_sm_80", kernels.linear_gelu, (HALF, HALF, "bfloat16[512]"), "sm_80"),
        ("convolution", kernels.convolution, ("bfloat16[4,16,30,30]", "bfloat16[32,16,3,3]"), "sm_90a"),
        ("gated", kernels.gated, (HALF, HALF, HALF), "sm_90a"),
        ("of_few_rows", kernels.linear_gelu, ("bfloat16[8,4096]", "bfloat16[4096,4096]", "bfloat16[4096]"), "sm_90a"),
        ("of_few_rows_float32", kernels.product, ("float32[3,4096]", "float32[4096,1024]"), "sm_90a"),
        ("in_parts", kernels.product, ("float32[64,65536]", "float32[65536,64]"), "sm_90a"),
        ("normed", kernels.normed_linear, ("bfloat16[4096,1024]", "bfloat16[1024,1024]", *["bfloat16[1024]"] * 2), "sm_90a"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_the_text_of_plans(title: str, kernel: Any, specs: tuple[str, ...], arch: str, golden: Golden) -> None:
    golden(f"cuda/product_{title}.cu", kernel.source(*specs, arch=arch))


# ---------------------------------------------------------------- planted bugs


@dataclass(frozen=True)
class Planted:
    """A change of the emitted text. kinds: the findings that tell of it, any of them; none: the results do."""

    name: str
    old: str
    new: str
    kinds: tuple[str, ...] = ()
    arch: str = "sm_90a"


BY_WARPGROUPS = (
    Planted("tiles_are_not_awaited", "full[place].wait(step / 4 % 2);", "", ("race", "uninitialised read")),
    Planted("tiles_of_the_turn_before_are_awaited", "full[place].wait(step / 4 % 2);", "full[place].wait((step / 4 % 2) ^ 1);",
            ("race", "uninitialised read")),
    Planted("fewer_bytes_are_expected", "arrive_expect(16384)", "arrive_expect(8192)"),
    Planted("more_bytes_are_expected", "arrive_expect(16384)", "arrive_expect(24576)"),
    Planted("places_are_taken_early", "empty[place].wait((step / 4 % 2) ^ 1);", "", ("race",)),
    Planted("places_are_given_back_early", "weft::wgmma_wait<1>();", "", ("slot reused",)),
    Planted("the_turn_is_given_back_with_the_one_before", "empty[(step - 1) % 4].arrive_if(", "empty[step % 4].arrive_if("),
    Planted("sums_are_not_awaited", "weft::wgmma_wait<0>(s_own[0]);", "", ("registers in flight",)),
    Planted("rows_lie_as_points", "MatrixTile<weft::bfloat16, 64, true>*>(memory)",
            "MatrixTile<weft::bfloat16, 64, false>*>(memory)"),
    Planted("barriers_are_not_made_known", "weft::fence_mbarrier_init();", ""),
    Planted("barriers_are_not_awaited", "    __syncthreads();\n    weft::await", "    weft::await"),
)  # fmt: skip
BY_CREWS = (
    Planted("crews_are_not_called", "called[crew].wait(called_before % 2);", ""),
    Planted("the_first_crew_waits_to_be_called", "called_before = crew == 0;", "called_before = 0;"),
    Planted("crews_call_themselves", "called[(crew + 1) % 2].arrive_if(", "called[crew].arrive_if("),
    Planted("turns_of_the_other_crew_are_counted_once_less", "step += turns;", "step += turns - 1;"),
)  # fmt: skip
LINES = (
    Planted("lines_are_not_awaited", "__syncwarp();\n            const int32_t first_line",
            "const int32_t first_line", ("race",)),
    Planted("lines_are_replaced_early", "__syncwarp();  // all have read", "// all have read", ("race",)),
)  # fmt: skip
BY_WARPS = (
    Planted("copies_are_not_awaited", "weft::wait_copies<2>();", "", arch="sm_80"),
    Planted("copies_are_awaited_late", "weft::wait_copies<2>();", "weft::wait_copies<3>();", arch="sm_80"),
    Planted("threads_are_not_awaited", "__syncthreads();  // all", "// all", arch="sm_80"),
    Planted("the_place_of_this_turn_is_replaced", "bring(turn + 3);", "bring(turn + 4);", arch="sm_80"),
    Planted("rows_lie_as_points_for_warps", "MatrixTile<weft::bfloat16, 64, true>*>(memory)",
            "MatrixTile<weft::bfloat16, 64, false>*>(memory)", arch="sm_80"),
)  # fmt: skip


@pytest.fixture
def text_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """`text_of(old, new)`: kernels that are simulated from here on are changed so."""

    def change(old: str, new: str) -> None:
        emitted = simulated.cuda_source

        def changed(*args: Any) -> str:
            text = emitted(*args)
            assert old in text, f"{old!r} is not there:\n{text}"
            return text.replace(old, new)

        monkeypatch.setattr(simulated, "cuda_source", changed)

    yield change


def seen(planted: Planted, args: tuple[torch.Tensor, torch.Tensor]) -> list[str] | None:
    """The kinds of findings where a planted bug is seen by none; None where it is seen."""
    for seed in (0, 1, 2):
        ran = simulated.simulate_call(kernels.product.program, args, planted.arch, seed, "call")
        findings = [f for launch in ran.launches for s in launch.simulations for f in s.findings]
        wrong = not torch.allclose(ran.arrays["c"].double(), args[0].double() @ args[1].double(), rtol=2e-2, atol=2e-1)
        if any(f.kind in planted.kinds for f in findings) if planted.kinds else findings or wrong:
            return None
    return [f.kind for f in findings]


@pytest.mark.parametrize("planted", BY_WARPGROUPS + BY_WARPS, ids=lambda p: p.name)
def test_planted_bugs_are_seen(planted: Planted, text_of: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_search, "BY_WARPGROUPS", (((64, 64), (64, 64), 3),))
    monkeypatch.setattr(product_search, "BY_CREWS", ())
    monkeypatch.setattr(product_search, "BY_WARPS", (((64, 64), (32, 32), 0),))
    monkeypatch.setattr(product_search, "MOST_BOXES", 4)
    text_of(planted.old, planted.new)
    assert seen(planted, several_tiles(torch.bfloat16, 0, (72, 64, 448))) is None


@pytest.mark.usefixtures("one_multiprocessor")
@pytest.mark.parametrize("planted", BY_CREWS, ids=lambda p: p.name)
def test_planted_bugs_of_crews_are_seen(
    planted: Planted, text_of: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(product_search, "BY_WARPGROUPS", ())
    monkeypatch.setattr(product_search, "BY_CREWS", ((64, 64),))
    monkeypatch.setattr(product_search, "MOST_BOXES", 3)
    text_of(planted.old, planted.new)
    assert seen(planted, several_tiles(torch.bfloat16, 0, (136, 128, 136))) is None


@pytest.mark.parametrize("planted", LINES, ids=lambda p: p.name)
def test_planted_bugs_of_lines_are_seen(planted: Planted, text_of: Callable[[str, str], None]) -> None:
    text_of(planted.old, planted.new)
    assert seen(planted, several_tiles(torch.float32, 0, (70, 133, 72))) is None


# ---------------------------------------------------------------- boxes


def test_the_map_of_a_box() -> None:
    arrays = {"x": Geometry(BFLOAT16, (3, 320, 128), (128 * 400, 128, 1), 64)}
    found = tensor_map(Box("x", (2, 1, 0), (64, 128, 1), (128, 320, 3)), arrays)
    assert (found.shape, found.strides, found.box) == ((128, 320, 3), (256, 128 * 400 * 2), (64, 128, 1))
    assert (found.dtype, found.swizzle) == ("bfloat16", 128)


def test_what_has_one_element_may_have_any_stride() -> None:
    for stride in (0, 3, 7, 1 << 45):
        arrays = {"x": Geometry(BFLOAT16, (1, 320, 128), (stride, 128, 1), 64)}
        found = tensor_map(Box("x", (2, 1, 0), (64, 64, 1), (128, 320, 1)), arrays)
        assert found.shape == (128, 320, 1) and found.strides == (256, 16)


def test_memory_that_launches_share_is_mapped_as_it_lies() -> None:
    own = Geometry(BFLOAT16, (2, 70, 72), (70 * 72, 72, 1), 0)
    found = tensor_map(Box("x.packed", (2, 1, 0), (64, 64, 1), (72, 70, 2), own), {"x": Geometry(FLOAT32, (2,), (1,), 4)})
    assert (found.dtype, found.shape, found.strides) == ("bfloat16", (72, 70, 2), (144, 70 * 72 * 2))


def test_boxes_of_sliced_and_transposed_operands() -> None:
    (launch,) = launches(kernels.batched, "bfloat16[2,512,512]:(524288,1024,1)", "bfloat16[2,512,512]:(262144,1,512)")
    assert all(box.shape == (512, 512, 2) for box in launch.boxes)
    assert launch.where is not None
    first, second = launch.boxes
    assert (first.axes, second.axes) == ((2, 1, 0), (1, 2, 0))
    assert tensor_map(first, launch.where.arrays).strides == (2048, 1048576)
    assert tensor_map(second, launch.where.arrays).strides == (1024, 524288)


def test_maps_are_encoded_anew_where_a_tensor_lies_elsewhere(stand_in: StandIn) -> None:  # noqa: F811
    encoded: list[int] = []

    def encode(address: int) -> bytes:
        encoded.append(address)
        return address.to_bytes(8, "little") * (BYTES // 8)

    boxes = [cuda.GivenMap(1, encode), cuda.GivenMap(0, encode)]
    launcher = cuda.Launcher(stand_in.handle(), (1, 1, 1), (32, 1, 1), 0, axpb_slots(4), boxes=boxes)
    assert launcher.parts() is not None
    tensors = [torch.zeros(4) for _ in range(3)]
    x, y, z = (t.data_ptr() for t in tensors)

    def maps() -> list[bytes]:
        addresses = list(launcher._frames[0].parameters)[4:]
        assert len(addresses) == 2 and all(a is not None and a % 64 == 0 for a in addresses)
        return [ctypes.string_at(a, BYTES) for a in addresses if a is not None]

    launcher.launch(0, x, y)
    assert encoded == [y, x] and maps() == [encode(y), encode(x)]
    encoded.clear()
    launcher.launch(0, x, y)
    assert encoded == []  # they lie where they lay
    launcher.launch(0, z, y)
    assert encoded == [z] and maps() == [encode(y), encode(z)]
    launcher.launch(0, x, y)
    assert maps() == [encode(y), encode(x)]


def test_each_frame_has_maps_of_its_own(stand_in: StandIn) -> None:  # noqa: F811
    boxes = [cuda.GivenMap(0, lambda address: address.to_bytes(8, "little") * (BYTES // 8))]
    launcher = cuda.Launcher(stand_in.handle(), (1, 1, 1), (32, 1, 1), 0, axpb_slots(0), boxes=boxes)
    frames = [launcher.taken()[0] for _ in range(2)]
    places = []
    for k, frame in enumerate(frames, 1):
        frame.write(k << 8, 0)
        places.append(list(frame.parameters)[-1])
    assert len(set(places)) == 2
    assert [ctypes.string_at(p, 8) for p in places if p is not None] == [(k << 8).to_bytes(8, "little") for k in (1, 2)]
