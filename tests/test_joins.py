"""Values joined to elements that the data choose: the points of graphs, their plans, and what the kernels compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

import weft
from tests.examples import examples
from tests.fuzz_joins import generate
from tests.fuzz_programs import compiled
from tests.kernels_of_joins import (
    CASES,
    drawn,
    histogram,
    joined_twice,
    largest,
    looked_up,
    offsets,
    rows_added,
    stored_rows,
    whole,
)
from weft.compiler import Launch, planning
from weft.loops.types import INT32
from weft.plan import join, latest
from weft.plan.join import BinsPlan, JoinPlan, Own, PointsPlan, SortPlan
from weft.pytorch.inspection import examine
from weft.pytorch.simulated import simulate_call

Golden = Callable[[str, str], None]
EVERY = [pytest.param(name, k, id=f"{name}-{k}") for name, (_, makes) in CASES.items() for k in range(len(makes))]


def case(name: str, k: int) -> tuple[Any, tuple[Any, ...]]:
    kernel, makes = CASES[name]
    return kernel, makes[k]()


def launches(kernel: Any, *args: Any) -> tuple[Launch, ...]:
    return examine(kernel, args).launches()


def plan_of(kernel: Any, *args: Any) -> JoinPlan:
    found = {launch.variant.plan for launch in launches(kernel, *args) if isinstance(launch.variant.plan, JoinPlan)}
    return found.pop() if found else JoinPlan(())


# ---------------------------------------------------------------- plans


def test_few_elements_are_joined_to_in_shared_memory_first() -> None:
    (group,) = plan_of(histogram, "int32[1000000]", 256).groups
    assert (group.vector, group.own) == (4, (Own("count", 256, 8, INT32),))
    (group,) = plan_of(histogram, "int32[1000000]", 8192).groups
    assert group.own == (Own("count", 8192, 1, INT32),)
    (group,) = plan_of(histogram, "int32[1000000]", 65536).groups
    assert group.own == ()


def test_elements_that_few_points_are_joined_to_stay_in_memory() -> None:
    (group,) = plan_of(histogram, "int32[500]", 256).groups
    assert group.own == ()


def test_blocks_are_as_many_as_have_several_points_for_each_element() -> None:
    (launch,) = launches(histogram, "int32[1000000]", 8192)
    assert launch.grid[0] == 1000000 // (4 * 8192)


def test_floats_are_sorted_by_element_first() -> None:
    (plan,) = plan_of(rows_added, "float32[50257,1024]", "int64[16384]", "float32[16384,1024]").groups
    assert plan == SortPlan(("d",), digits=2, chunks=(64, 64, 64), few=True, rounds=4)
    text = rows_added.explain("float32[50257,1024]", "int64[16384]", "float32[16384,1024]")
    assert "sorted by element and joined in order, in 7 steps" in text


@weft.kernel
def degrees(ends, d):
    for e in range(len(ends)):
        d[ends[e]] += 1


def test_floats_that_all_add_the_same_number_are_joined_by_atomics() -> None:
    """An element is what so many additions leave, also where these are rounded. Of few elements each warp has its own."""
    assert plan_of(degrees, "int64[400000]", "float32[30000]").groups == (PointsPlan(("e",), 2, ()),)
    assert isinstance(plan_of(degrees, "int64[400000]", "float32[300]").groups[0], BinsPlan)
    for dtype in (torch.float32, torch.float64):
        many = 2.0 ** (24 if dtype == torch.float32 else 53) - 10  # some of the additions are lost
        args = torch.arange(100) % 3 * 7, torch.full((40,), many, dtype=dtype)
        assert isinstance(plan_of(degrees, *args).groups[0], PointsPlan)
        report = degrees.check(*args, seeds=2)
        assert report.ok, report.text()
        made = [simulate_call(degrees.program, [args[0], args[1].clone()], "sm_90a", 1, "call").arrays["d"], args[1].clone()]
        degrees(args[0], made[1])
        assert torch.equal(*made)
    assert "joined by atomics" in degrees.explain("int64[400000]", "float32[30000]")


def test_the_last_of_each_element_is_found_without_sorting() -> None:
    args = "bfloat16[50003,8,128]", "int64[7001]", "bfloat16[7001,8,128]"
    plan = plan_of(stored_rows, *args)
    (group,) = plan.groups
    assert [s.kind for s in join.join_steps(plan)] == ["keys", "last", "store"]
    assert (group.digits, group.store.axes, group.store.vector, group.store.down) == (0, (("i",), ("h", "d")), 8, 2)
    assert "the last of each element found and stored, in 3 steps" in stored_rows.explain(*args)


def test_points_are_sorted_where_a_word_for_each_element_takes_too_much() -> None:
    args = "float32[100000000,1,4]", "int64[7001]", "float32[7001,1,4]"
    plan = plan_of(stored_rows, *args)
    assert [s.kind for s in join.join_steps(plan)] == ["keys", "move", *["count", "move"] * 3, "last", "store"]
    assert "sorted by element, the last of each stored, in 10 steps" in stored_rows.explain(*args)
    assert plan_of(stored_rows, "float32[100000000,1,4]", "int64[30000000]", "float32[30000000,1,4]").groups[0].digits == 0


STORES = [param for param in EVERY if str(param.id).startswith("stored")]


@pytest.mark.parametrize("name, k", STORES)
def test_what_is_sorted_stores_the_same(name: str, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latest, "MOST_WORDS", 1)
    monkeypatch.setattr(latest, "WORDS_A_POINT", 0)
    kernel, args = case(name, k)
    report = kernel.check(*args, seeds=2)
    assert not report.findings and report.ok, str(report)


def test_points_that_a_thread_takes_in_order_are_told() -> None:
    (line,) = [
        line for line in CASES["of_lists"][0].explain("int64[40]", "int64[30]", "int64[30,10]").split("\n") if "unused" in line
    ]
    assert "k (kernels_of_joins.py" in line and line.endswith("the bounds of k are not the same everywhere")


def test_explain_says_how() -> None:
    text = histogram.explain("int32[1000000]", 256, detail=True)
    assert "values are joined to count by atomics, in any order: the same bits in each" in text
    assert "joined to count first in shared memory, 8 copies a block" in text
    assert "joined by atomics, in shared memory first" in histogram.explain("int32[1000000]", 256)


# ---------------------------------------------------------------- what the kernels compute


@pytest.mark.parametrize("name, k", EVERY)
def test_the_kernels_compute_what_the_loops_do(name: str, k: int) -> None:
    kernel, args = case(name, k)
    assert plan_of(kernel, *args).groups or 0 in [a.numel() for a in args if isinstance(a, torch.Tensor)]
    report = kernel.check(*args)
    assert not report.findings and report.ok, str(report)


def test_what_is_joined_is_read_by_kernels_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [type(x.variant.plan).__name__ for x in launches(offsets, "int64[100000]", 99)] == ["JoinPlan", "ScanPlan"]
    assert {type(x.variant.plan) for x in launches(joined_twice, "float32[100000]", "int64[100000]")} == {JoinPlan}
    monkeypatch.setattr(planning, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(planning, "GAIN", float("inf"))
    for kernel, args in ((offsets, (whole(99, 700), 99)), (joined_twice, (drawn(700), whole(100, 700)))):
        assert any(isinstance(x.variant.plan, JoinPlan) for x in launches(kernel, *args))
        report = kernel.check(*args)
        assert not report.findings and report.ok, str(report)


def test_for_other_architectures_too() -> None:
    kernel, args = case("histograms_of_rows", 0)
    assert not kernel.check(*args, arch="sm_80", seeds=3).findings


@given(st.integers(0, 1 << 20))
def test_random_programs_by_all_means(seed: int) -> None:
    program = generate(seed)
    kernel = weft.kernel(compiled(program.source, f"joins {seed}"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(join, "CHUNK", 4)
        patched.setattr(join, "POINTS_OF_AN_ELEMENT", 1)
        patched.setattr(join, "FEW_POINTS", 1)
        if seed % 2:
            patched.setattr(latest, "MOST_WORDS", 1)
            patched.setattr(latest, "WORDS_A_POINT", 0)
        report = kernel.check(*program.arguments)
    assert not report.findings and report.ok, f"{program.source}{report}"


@given(st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, float("nan"), float("inf")]), min_size=1, max_size=40), st.booleans())
def test_extrema_of_floats_are_the_same_bits_in_any_order(values: list[float], few: bool) -> None:
    y = torch.tensor([-1.0, -0.0, float("nan"), 0.0])
    x = torch.tensor(values * (8 if few else 1))
    index = torch.arange(len(x)) % 4
    made = []
    for seed in (1, 2, 3):
        ran = simulate_call(largest.program, [y.clone(), index, x], "sm_90a", seed, "call")
        made.append(ran.arrays["y"].view(torch.int32))
    assert all(torch.equal(made[0], other) for other in made)
    want = y.clone()
    largest.py(want, index, x)
    assert torch.equal(made[0].view(torch.float32).nan_to_num(7.0), want.nan_to_num(7.0))


@examples(4)
@given(st.lists(st.integers(0, 4), min_size=40, max_size=50), st.sampled_from([1, 3]), st.booleans())
def test_floats_are_summed_in_one_order(places: list[int], wide: int, abreast: bool) -> None:
    """Few elements, so that sums go through many threads; whatever these do, the bits are the same."""
    dtype = torch.float64 if wide == 1 else torch.float32
    x = drawn(len(places) * wide, dtype=dtype).view(-1, wide) * 10.0 ** (torch.arange(len(places)) % 7)[:, None].to(dtype)
    y, index = drawn(5 * wide, dtype=dtype).view(5, wide), torch.tensor(places, dtype=torch.int64)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(join, "CHUNK", 4)
        patched.setattr(join, "RUNS_ABREAST", 1)
        patched.setattr(join, "LANES_BESIDE", 4 if abreast else 1)
        made = [
            simulate_call(rows_added.program, [y.clone(), index, x], "sm_90a", seed, "call").arrays["y"] for seed in (1, 2)
        ]
    assert torch.equal(made[0], made[1])
    want = y.double()
    rows_added.py(want, index, x.double())
    scale = x.abs().sum().double() + 1
    assert ((made[0].double() - want).abs() <= 1e-6 * scale).all()


def test_rounds_are_as_many_as_threads_leave_sums_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warp leaves two sums of its points to others at the most, in a round after."""
    monkeypatch.setattr(join, "RUNS_ABREAST", 1)
    for index in (whole(30, 1500), torch.zeros(1500, dtype=torch.int64), torch.arange(1500) // 5):
        args = drawn(500), index, drawn(1500)
        report = CASES["added"][0].check(*args, seeds=2)
        assert not report.findings and report.ok, str(report)
    assert [s.kind for s in join.join_steps(plan_of(CASES["added"][0], *args))].count("sum") == 3


def test_many_blocks_that_sort_have_their_counts_added_up_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "FEW_TILES", 2)
    monkeypatch.setattr(join, "BIN_WARPS", ())
    kernel, args = case("added_floats", 1)
    assert [s.kind for s in join.join_steps(plan_of(kernel, *args))][:4] == ["keys", "place", "move", "sum"]
    report = kernel.check(*args)
    assert not report.findings and report.ok, str(report)


@pytest.mark.parametrize("rounds", [4, 8, 16])
def test_threads_sort_as_few_points_as_leave_few_blocks(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, args = CASES["added"][0], (drawn(300), whole(300, 9001), drawn(9001))
    monkeypatch.setattr(join, "FEW_TILES", -(-9001 // (256 * rounds)))
    monkeypatch.setattr(join, "BIN_WARPS", ())
    (plan,) = plan_of(kernel, *args).groups
    assert (plan.rounds, plan.few) == (rounds, True)
    report = kernel.check(*args)
    assert not report.findings and report.ok, str(report)


def test_few_points_have_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of neighbours in the order of keys a warp, or a thread of those side by side, has as few as take no more rounds."""
    monkeypatch.setattr(join, "BIN_WARPS", ())
    for n, chunks in ((1000, (32, 256)), (30000, (256, 256)), (100000, (32, 256, 256)), (1 << 24, (256, 256, 256, 256))):
        (plan,) = plan_of(CASES["added"][0], "float32[1000]", f"int64[{n}]", f"float32[{n}]").groups
        assert (plan.chunks, plan.abreast) == (chunks, 1)
    for n, chunks in ((1000, (32, 64)), (16384, (16, 64, 64))):
        (plan,) = plan_of(rows_added, "float32[1000,32]", f"int64[{n}]", f"float32[{n},32]").groups
        assert (plan.chunks, plan.abreast) == (chunks, 0)


@weft.kernel
def planes_added(x, index, y):
    for c in range(x.shape[0]):
        for i in range(x.shape[1]):
            if index[i] >= 0:
                y[c, index[i]] += x[c, i] * index[i]


@pytest.mark.parametrize("channels", [1, 2, 5, 11])
def test_planes_are_added_some_at_once(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "BIN_WARPS", ())
    monkeypatch.setattr(join, "RUNS_ABREAST", 2)
    index = torch.cat([whole(40, 70, low=-9), torch.full((90,), 3), torch.arange(40)])
    args = drawn(channels, 200), index, drawn(channels, 40)
    (plan,) = plan_of(planes_added, *args).groups
    assert plan.abreast == min(4, 1 << channels.bit_length() - 1)
    report = planes_added.check(*args)
    assert not report.findings and report.ok, str(report)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_of_an_embedding_is_such_a_sum(dtype: torch.dtype) -> None:
    table, index = drawn(30, 6, dtype=dtype), whole(30, 80, low=-30)
    report = looked_up.check(table, index, gradients=True)
    assert not report.findings and report.ok, str(report)


@pytest.mark.parametrize("n", [1 << 31, 31])
def test_points_that_cannot_be_counted_and_few_are_joined_in_order(n: int) -> None:
    found = launches(CASES["added"][0], "float32[9]", f"int64[{n}]", f"float32[{n}]")
    assert not any(isinstance(x.variant.plan, JoinPlan) for x in found)


@pytest.mark.parametrize("n, bins", [(100000, 256), (100000, 65536)])
def test_the_text(n: int, bins: int, golden: Golden) -> None:
    golden(f"cuda/joins_histogram_{bins}.cu", histogram.source(f"int32[{n}]", bins, arch="sm_90a"))


def test_the_text_of_rows(golden: Golden) -> None:
    text = CASES["rows_added"][0].source("int32[5000,64]", "int64[900]", "int32[900,64]", arch="sm_90a")
    golden("cuda/joins_rows.cu", text)


def test_the_text_of_sums(golden: Golden) -> None:
    text = CASES["added"][0].source("float32[1048576]", "int64[100]", "float32[100]", arch="sm_90a")
    golden("cuda/joins_of_floats.cu", text)


def test_the_text_of_stores(golden: Golden) -> None:
    text = stored_rows.source("bfloat16[5000,3,40]", "int64[900]", "bfloat16[900,3,40]", arch="sm_90a")
    golden("cuda/joins_of_stores.cu", text)


@pytest.mark.gpu
@pytest.mark.parametrize("name, k", EVERY)
def test_on_a_gpu(name: str, k: int) -> None:
    kernel, args = case(name, k)
    want = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    returned = kernel.py(*want)
    given_ = [a.cuda() if isinstance(a, torch.Tensor) else a for a in args]
    made = kernel(*given_)
    again = [a.cuda() if isinstance(a, torch.Tensor) else a for a in args]
    kernel(*again)
    for a, b, c in zip([*given_, made], [*want, returned], [*again, made], strict=True):
        if isinstance(a, torch.Tensor):
            tolerance = 1e-4 if a.is_floating_point() else 0.0
            torch.testing.assert_close(a.cpu(), b, rtol=tolerance, atol=tolerance, equal_nan=True)
            assert torch.equal(a.nan_to_num(), c.nan_to_num()), "the same bits"


@pytest.mark.gpu
def test_a_subscript_outside_ends_the_kernel() -> None:
    """In another process: what is launched after a trap fails."""
    import subprocess
    import sys

    program = (
        "import torch; from tests.kernels_of_joins import histogram\n"
        "histogram(torch.tensor([0, 9], device='cuda'), 9); torch.cuda.synchronize()"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode != 0
