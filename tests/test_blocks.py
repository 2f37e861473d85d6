"""Nests that are one launch, whose blocks keep every value's tile: chains, order, layouts, and what the CUDA computes."""

from __future__ import annotations

import gc
import itertools
import math
import random
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import weft
from tests.kernels_of_blocks import mlp, normed_attention, two_norms
from weft.compiler import launches
from weft.compiler.analysis import Analysis
from weft.compiler.blocks import runs_as_blocks
from weft.graph import BlockGraph, KernelGraph
from weft.graph.blocks import Blocks
from weft.loops.types import FLOAT16, FLOAT32, ScalarType
from weft.plan.block import BlockPlan, Tile
from weft.plan.fusion import chains, stages
from weft.plan.layouts import Layout, Walk, laid_out, moved
from weft.plan.leaning import LEANINGS
from weft.plan.order import Task, levels, peak
from weft.pytorch.inspection import examine


def rms_linear(rows: int, width: int, columns: int, blocks: int, turns: int, fixed: bool = True) -> KernelGraph:
    graph = KernelGraph("rms_linear")
    x, w = graph.input("x", (rows, width), "float16"), graph.input("w", (width, columns), "float16")
    block = BlockGraph(grid=(blocks,), loop=turns, fixed=fixed)
    tile = block.input(x, input_map=(-1,), forloop_dim=1)
    product = block.accumulate(block.matmul(tile, block.input(w, input_map=(1,), forloop_dim=0)))
    rms = block.accumulate(tile, "rms", eps=1e-5)
    block.output(block.div(product, rms), output_map=(1,))
    graph.output(*graph.customized((x, w), block))
    return graph


def blocks_of(kernel: weft.Kernel, *specs: str) -> Blocks:
    (found,) = runs_as_blocks(examine(kernel, specs).analysis)
    assert isinstance(found[2], Analysis) and found[2].lowered[0].blocks is not None
    return found[2].lowered[0].blocks


def plans(kernel: weft.Kernel, *args: Any) -> list[object]:
    return [launch.variant.plan for launch in examine(kernel, args).launches()]


# ---------------------------------------------------------------- stages, as data


def test_axes_are_what_they_are_for() -> None:
    """The columns of a square weight are as many as its rows, and x is read once for its norm and for the product."""
    found = blocks_of(rms_linear(16, 64, 64, 4, 2).kernel, "float16[16,64]", "float16[64,64]")
    (product,) = found.products
    total = next(f for f in found.folds if f.results[0] not in found.multiplied)
    assert product.columns != product.over == total.over
    assert sum(getattr(v, "array", "") == "x" for v in found.graph.values) == 1


def test_chains_of_a_norm_before_a_product() -> None:
    found = blocks_of(rms_linear(16, 256, 512, 8, 4).kernel, "float16[16,256]", "float16[256,512]")
    (axis,) = found.products[0].over
    told = [(s.turns, {c.name: (c.kind, sorted(c.needs)) for c in s.chains}) for s in stages(chains(found, {axis}))]
    assert told == [
        (axis, {"w": ("copy", []), "x": ("copy", []), "total": ("fold", ["x"]), "accumulate": ("product", ["w", "x"])}),
        ("", {"total after": ("finish", []), "accumulate after": ("finish", ["total_2"])}),
    ]


def test_what_lies_between_two_products_goes_through_registers() -> None:
    specs = ("float16[48,64]", "float16[64,32]", "float16[32,48]")
    (stage,) = stages(chains(blocks_of(weft.kernel(mlp), *specs)))
    first, second = (c for c in stage.chains if c.kind == "product")
    assert (len(first.makes), first.writes) == (1, ()) and (second.makes, second.writes) == ((), (0,))
    assert first.makes[0] in second.needs


@pytest.mark.parametrize("seed", range(8))
def test_order_is_the_best_of_all(seed: int) -> None:
    numbers = random.Random(seed)
    tasks: list[Task] = []
    for k in range(numbers.randint(2, 6)):
        made = [tile for t in tasks for tile in t.makes]
        needs = frozenset(numbers.sample(made, numbers.randint(0, min(2, len(made)))))
        tasks.append(Task(f"t{k}", {f"v{k}": numbers.randint(1, 9)}, needs))
    numbers.shuffle(tasks)
    makers = {tile: t.name for t in tasks for tile in t.makes}
    every = []
    for at in itertools.product(range(len(tasks)), repeat=len(tasks)):
        level = dict(zip((t.name for t in tasks), at, strict=True))
        if all(level[makers[n]] < level[t.name] for t in tasks for n in t.needs):
            every.append((max(at), peak(tasks, level)))
    found = levels(tasks)
    taken = {name: k for k, names in enumerate(found) for name in names}
    assert sorted(taken) == sorted(t.name for t in tasks)
    assert (len(found) - 1, peak(tasks, taken)) == min(every)


@pytest.mark.parametrize("type_", [FLOAT16, FLOAT32], ids=str)
@pytest.mark.parametrize("length", [16, 32, 48, 64, 80, 96, 128, 256])
def test_no_two_packets_of_eight_lines_meet_a_bank(length: int, type_: ScalarType) -> None:
    """ldmatrix reads 16 bytes at one place of eight lines at once."""
    tile, packet = Tile("x", ("i",), ("j",), (16, length), type_), 16 // type_.size
    packets = length // packet
    ways = min(packets, 8) if tile.swizzled else 1
    for first, at in itertools.product((0, 8), range(packets)):
        turned = [at ^ line // (8 // ways) % ways if tile.swizzled else at for line in range(first, first + 8)]
        places = {(line * tile.step // packet + p) % 8 for line, p in zip(range(first, first + 8), turned, strict=True)}
        assert len(places) == 8


@pytest.mark.parametrize("seed", range(6))
def test_layouts_are_the_best_of_all(seed: int) -> None:
    numbers = random.Random(seed)
    axes = ("i", "j", "k")
    tiles = {}
    for n in range(numbers.randint(1, 3)):
        own = numbers.sample(axes, numbers.randint(1, 3))
        options = [tuple(a for a in own if a != side) for side in own]
        sizes = [numbers.randint(1, 9) for _ in own]
        tiles[f"v{n}"] = [
            Layout(lines, (side,), size, numbers.choice([0, 40]))
            for lines, side, size in zip(options, own, sizes, strict=True)
        ]
    walks = []
    for n in range(numbers.randint(1, 3)):
        sides = tuple(numbers.sample(axes, numbers.randint(1, 3)))
        taken = tuple((t, numbers.randint(1, 9)) for t in tiles if numbers.random() < 0.7)
        walks.append(Walk(f"c{n}", sides, tuple(numbers.randint(0, 30) for _ in sides), taken))
    limit = max(sum(min(o.bytes for o in own) for own in tiles.values()), 12)
    costs = []
    for taken_layouts in itertools.product(*tiles.values()):
        if sum(o.bytes for o in taken_layouts) > limit:
            continue
        layout = dict(zip(tiles, taken_layouts, strict=True))
        for sides in itertools.product(*(range(len(w.sides)) for w in walks)):
            cost = sum(o.cost for o in taken_layouts)
            for w, s in zip(walks, sides, strict=True):
                cost += w.costs[s] + sum(moved(layout[t], w.sides[s], points) for t, points in w.tiles)
            costs.append(cost)
    assert laid_out(tiles, walks, [frozenset(tiles)], limit).cost == min(costs)


# ---------------------------------------------------------------- what the CUDA computes


@pytest.mark.parametrize("sizes, arch", [((16, 128, 192, 3, 2), "sm_90a"), ((13, 200, 100, 3, 3), "sm_80")])
def test_a_grid_that_is_given_by_hand(sizes: tuple[int, ...], arch: str) -> None:
    """Of so many blocks and turns, in whole fragments; tiles that divide nothing, too."""
    rows, width, columns, blocks, turns = sizes
    graph = rms_linear(*sizes)
    report = graph.check(arch=arch)
    assert report.ok, report
    (launch,) = examine(graph.kernel, [f"float16[{rows},{width}]", f"float16[{width},{columns}]"]).launches()
    assert isinstance(launch.variant.plan, BlockPlan) and launch.grid == (blocks, 1, 1)
    assert [-(-width // c.extent) for c in launch.variant.plan.cuts if c.by == "turns"] == [turns]
    assert KernelGraph.from_json(graph.to_json()) == graph


@pytest.mark.parametrize(
    "function, tiles, specs",
    [
        (mlp, [("y", 0, "grid", 2)], ("bfloat16[19,33]", "bfloat16[33,21]", "bfloat16[21,35]")),
        (mlp, [("y", 0, "grid", 3), ("w2", 0, "turns", 2)], ("float16[40,48]", "float16[48,64]", "float16[64,24]")),
        (mlp, [("y", 0, "grid", 19)], ("float32[19,33]", "float32[33,21]", "float32[21,35]")),  # no tensor cores
        (two_norms, [("x", 0, "grid", 5)], ("bfloat16[5,512]", "float32[512]")),
        (two_norms, [("x", 0, "grid", 1), ("x", 1, "turns", 4)], ("float32[3,301]", "float32[301]")),
        (two_norms, [("x", 0, "grid", 2), ("x", 1, "turns", 2)], ("bfloat16[2,2048]", "float32[2048]")),  # a row a block
        (normed_attention, [("q", 1, "grid", 2)], ("float16[2,24,16]",) * 3),
        (normed_attention, [("q", 1, "grid", 1)], ("float16[1,21,12]",) * 3),
    ],
)
def test_programs_as_one_launch(
    function: Callable[..., Any], tiles: list[tuple[str, int, str, int]], specs: tuple[str, ...]
) -> None:
    kernel = weft.kernel(function, tiles=tiles)  # type: ignore[arg-type]
    assert [type(p) for p in plans(kernel, *specs)] == [BlockPlan]
    report = kernel.check(*specs)
    assert report.ok, report


def test_an_infinity_beyond_the_end_is_nobody_s() -> None:
    """What fills tiles up is 0 on both sides of a product: rows of x end between infinities."""
    wide = torch.full((16, 64), math.inf).half()
    x, w1, w2 = wide[:, :40], torch.randn(40, 24).half(), torch.randn(24, 20).half()
    x.copy_(torch.randn(16, 40))
    report = weft.kernel(mlp, tiles=[("y", 0, "grid", 1)]).check(x, w1, w2)
    assert report.ok, report


# ---------------------------------------------------------------- the planner's choice


def test_small_products_are_one_launch_and_large_ones_are_not() -> None:
    kernel = weft.kernel(mlp)
    small = plans(kernel, "bfloat16[256,256]", "bfloat16[256,64]", "bfloat16[64,256]")
    large = plans(kernel, "bfloat16[8192,4096]", "bfloat16[4096,4096]", "bfloat16[4096,4096]")
    assert [type(p) for p in small] == [BlockPlan]
    assert len(large) > 1 and not any(isinstance(p, BlockPlan) for p in large)


def test_why_there_is_no_plan_keeps_nothing_of_the_call_that_asked() -> None:
    """An exception that is kept would: its frames have the call's tensors, and those their graph."""

    class Held:
        pass

    found = examine(weft.kernel(mlp), ("bfloat16[4096,512]", "bfloat16[512,128]", "bfloat16[128,512]"))

    def asked() -> weakref.ref[Held]:
        held = Held()
        (first,) = launches(found.analysis, 0, found.arrays, found.names)
        assert not isinstance(first.variant.plan, BlockPlan)
        return weakref.ref(held)

    gc.disable()
    try:
        assert asked()() is None
    finally:
        gc.enable()


def test_nests_of_one_launch_lean_together() -> None:
    """Measuring plans of one nest leaves none of the others out."""
    found = examine(weft.kernel(mlp), ("bfloat16[256,256]", "bfloat16[256,64]", "bfloat16[64,256]"))
    for leaning in LEANINGS:
        first, second = (launches(found.analysis, k, found.arrays, found.names, leaning=leaning) for k in range(2))
        assert isinstance(first[0].variant.plan, BlockPlan) and second == ()


def test_explain_says_how_and_why_not() -> None:
    graph = rms_linear(16, 256, 512, 8, 4)
    told = str(graph.explain(detail=True))
    assert "in each turn along j: x, w copied" in told and "then, after a barrier: total -> result[...]" in told
    assert "w, 64 lines of 64 float16 along j_1, swizzled" in told and "KB of shared memory" in told
    specs = ("bfloat16[4096,512]", "bfloat16[512,128]", "bfloat16[128,512]")
    assert "separate launches are quicker" in str(weft.kernel(mlp).explain(*specs, detail=True))


def test_the_text_of_two_products(golden: Callable[[str, str], None]) -> None:
    kernel = weft.kernel(mlp, tiles=[("y", 0, "grid", 4), ("w2", 0, "turns", 4)])
    golden("cuda/blocks_mlp.cu", kernel.source("float16[100,64]", "float16[64,128]", "float16[128,64]", arch="sm_90a"))
