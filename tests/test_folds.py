"""Folds that threads share: the sweeps of graphs, their plans, and what the kernels compute, simulated and on a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.examples import examples
from tests.fuzz_programs import arguments, compiled, generate
from tests.kernels_of_folds import CASES, norm_of_heads
from weft.compiler import Launch
from weft.errors import WeftError
from weft.graph.sweeps import Sweeps
from weft.kernels import layer_norm, softmax
from weft.loops.show import show_expr
from weft.plan import fold
from weft.plan.fold import FoldPlan
from weft.pytorch import inspection, simulated
from weft.pytorch.inspection import examine
from weft.pytorch.machines import machine_for

pytestmark = pytest.mark.usefixtures("quickly_compiled")

Golden = Callable[[str, str], None]
EVERY = [pytest.param(name, k, id=f"{name}-{k}") for name, (_, makes) in CASES.items() for k in range(len(makes))]


def case(name: str, k: int) -> tuple[Any, tuple[Any, ...]]:
    kernel, makes = CASES[name]
    return kernel, makes[k]()


def launches(kernel: Any, *args: Any) -> tuple[Launch, ...]:
    return examine(kernel, args).launches()


def sweeps_of(name: str) -> Sweeps:
    kernel, args = case(name, 0)
    (lowered,) = examine(kernel, args).analysis.lowered
    assert lowered.sweeps is not None
    return lowered.sweeps


def plans(kernel: Any, *args: Any) -> list[FoldPlan]:
    return [x.variant.plan for x in launches(kernel, *args) if isinstance(x.variant.plan, FoldPlan)]


@weft.kernel
def filter_gradient(x, g, bias):
    """Of a filter of images, one for each channel: rows that read the same, or neighbours."""
    images, channels, height, width = x.shape
    size = 5
    y = torch.empty(channels, size, size)
    for c in range(channels):
        for a in range(size):
            for b in range(size):
                s = 0.0
                for n in range(images):
                    for i in range(height - 4):
                        for j in range(width - 4):
                            if g[n, c, i, j] > bias[b]:
                                s += g[n, c, i, j] * x[n, c, i + a, j + b]
                y[c, a, b] = s + bias[a]
    return y


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("most", [3, 8])
def test_threads_have_several_rows_that_have_most_in_common(most: int, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five rows by threes: the last of a group is another group's, and stored once."""
    monkeypatch.setattr(fold, "MOST_SEVERAL", most)
    monkeypatch.setattr(fold, "MANY_POINTS", 16)
    monkeypatch.setattr(fold, "POINTS_OF_A_PART", 16 if shared else 1 << 20)
    channels = 3 if shared else 60
    args = torch.randn(2, channels, 7, 40), torch.randn(2, channels, 3, 36), torch.randn(5)
    plan, *_ = plans(filter_gradient, *args)
    assert 1 < plan.several <= most and plan.shared == shared
    report = filter_gradient.check(*args)
    assert not report.findings and report.ok, str(report)


def test_blocks_that_share_few_lines_have_them_side_by_side() -> None:
    plan, *_ = plans(filter_gradient, "float32[1,2,24,4000]", "float32[1,2,20,3996]", "float32[5]")
    assert plan.shared and plan.across == ((256,),)


def test_rows_of_as_many_points_as_a_number_says_are_read_in_packets() -> None:
    @weft.kernel
    def norm(x):
        y = torch.empty_like(x)
        for i in range(x.shape[0]):
            s = 0.0
            for j in range(1024):
                s += x[i, j] * x[i, j]
            for j in range(1024):
                y[i, j] = x[i, j] / torch.sqrt(s)
        return y

    (plan,) = plans(norm, "float16[8,1024]")
    assert plan.vector == 8
    assert norm.check(torch.randn(3, 1024).half()).ok


def test_tiles_have_as_many_points_wherever_they_begin() -> None:
    @weft.kernel
    def largest(x):
        y = torch.empty(x.shape[0], 4, 16)
        for i in range(x.shape[0]):
            for b in range(4):
                for t in range(16):
                    m = -1e30
                    for j in range(b * 2048 + t * 128, b * 2048 + t * 128 + 128):
                        m = torch.maximum(m, x[i, j])
                    y[i, b, t] = m
        return y

    (plan,) = plans(largest, "float32[64,8192]")
    assert plan.threads <= 32


# ---------------------------------------------------------------- axes that are counted as one


def test_a_launch_has_the_shared_memory_in_which_rows_of_several_axes_lie() -> None:
    (one,) = launches(CASES["grouped_norm"][0], "float32[768,10,2025]", "float32[10]", "float32[768,10]")
    assert one.variant.plan.inside and one.cluster == 2
    assert one.shared >= one.variant.plan.holds // one.cluster * 4


def test_rows_are_held_though_one_of_their_axes_tells_a_weight() -> None:
    (plan,) = plans(CASES["grouped_norm"][0], "float32[768,10,2025]", "float32[10]", "float32[768,10]")
    assert plan.merged == (("c", "p"),) and (plan.lane, plan.vector, plan.holds) == ("c.p", 1, 20480)
    (plan,) = plans(CASES["grouped_norm"][0], "bfloat16[768,10,1024]", "float32[10]", "float32[768,10]")
    assert plan.merged == (("c", "p"),) and (plan.vector, plan.holds) == (8, 10240)
    (plan,) = plans(CASES["placed_softmax"][0], "float32[768,4,5,6]", "float32[6]", "float32[4,5]", "float32[5]")
    assert plan.merged == (("i", "j"), ("i.j", "d")) and plan.chunks
    found = plans(CASES["grouped_norm"][0], "float32[768,1000,1000]", "float32[1000]", "float32[768,1000]")
    assert not any(p.merged or p.chunks for p in found)  # no registers hold them


def test_quotients_of_places_are_exact() -> None:
    """As the text computes them, in float32: of the places beside each multiple, where roundings would show first."""
    small = (size for size in range(3, 300) if size & (size - 1))  # powers of two have exact inverses
    for size in (*small, 1023, 1024, 1025, 2025, 4097, 65537, 262143, 262144, 1 << 20, 3_000_001):
        turns = torch.arange(0, (1 << 22) // size + 1, dtype=torch.int64) * size
        places = torch.cat((turns, turns - 1, turns + size // 2))
        places = places[(places >= 0) & (places < 1 << 22)]
        inverse = torch.ones((), dtype=torch.float32) / torch.tensor(size, dtype=torch.float32)
        found = ((places.float() + 0.5) * inverse).to(torch.int32)
        assert torch.equal(found.long(), places // size), size


# ---------------------------------------------------------------- what is gone through, and in which order


@pytest.mark.parametrize(
    "name, rows, stages",
    [
        ("total", "", [["i j"]]),
        ("column_sums", "j", [["i"]]),
        ("middle_maximum", "i k", [["j"]]),
        ("cross_entropy", "r", [["j"], ["j"]]),
        ("mean_taken_away", "", [["i j"], ["i j"]]),
        ("in_place", "r", [["j"], ["j"]]),
        ("largest_of_all", "", [["i j"]]),
    ],
)
def test_a_stage_needs_the_folds_of_those_before(name: str, rows: str, stages: list[list[str]]) -> None:
    found = sweeps_of(name)
    assert found.rows == tuple(rows.split())
    assert [[" ".join(s.over) for s in stage] for stage in found.stages] == stages


def test_what_is_needed_somewhere_only_is_written_out_there() -> None:
    """The gather of the target is evaluated once a row, where the loss is; the elements of the row are values."""
    found = sweeps_of("cross_entropy")
    (loss,) = found.last
    assert "target" in str(loss.value)
    assert [v.array for v in found.values if hasattr(v, "array")] == ["x", "target"]


def test_an_axis_that_others_bound_is_the_fastest() -> None:
    ((sweep,),) = sweeps_of("triangle_sums").stages
    assert sweep.over == ("i", "j") and sweep.bounded


@pytest.mark.parametrize(
    "name, found",
    [
        ("cross_entropy", ["high, s relative to high by exp(high' - high)"]),
        ("log_sum_exp", ["high, s relative to high by exp((high' - high) * 0.5)"]),
        ("softmin_mean", ["low, s relative to low by exp(low - low'), t relative to low by exp(low - low')"]),
        ("log_softmax_of_some", ["high, s relative to high by exp(high' - high)", ""]),
    ],
)
def test_sums_are_found_beside_what_they_are_relative_to(name: str, found: list[str]) -> None:
    running = sweeps_of(name).running
    assert running is not None
    told = []
    for (sweep,) in running.stages:
        factors = {r.sum: f" relative to {r.extremum} by {show_expr(r.factor)}" for r in sweep.repairs}
        told.append(", ".join(f.results[0] + factors.get(f.results[0], "") for f in sweep.folds))
    assert told == found


# ---------------------------------------------------------------- plans


def test_rows_side_by_side_have_several_threads_while_they_are_few() -> None:
    kernel = CASES["column_sums"][0]
    (plan, _) = plans(kernel, "float32[100000,65]")
    assert plan.beside and plan.lane == "j" and (plan.across, plan.vector) == (((32,),), 1) and plan.shared
    (plan, _) = plans(kernel, "bfloat16[100000,64]")
    assert (plan.across, plan.vector) == (((8,),), 8)
    assert plans(kernel, "float32[1000,1000000]") == []  # a thread a row fills the machine


@weft.kernel
def standardised(x, weight):
    """Of each column: what is written at points needs roots and quotients of the column."""
    rows, width = x.shape
    y = torch.empty_like(x)
    for j in range(width):
        s = 0.0
        for i in range(rows):
            s += x[i, j]
        mean = s / rows
        v = 0.0
        for i in range(rows):
            v += (x[i, j] - mean) ** 2
        r = 1 / torch.sqrt(v / rows + 1e-5)
        for i in range(rows):
            y[i, j] = (x[i, j] - mean) * r * weight[j]
    return y


def test_rows_side_by_side_are_written_in_packets() -> None:
    assert {p.vector for p in plans(standardised, "float32[60000,252]", "float32[252]")} == {4}
    assert {p.vector for p in plans(standardised, "float32[60000,250]", "float32[250]")} == {2}
    report = standardised.check(torch.randn(37, 36), torch.randn(36), arch="sm_90a")
    assert report.ok and not report.findings, report.text()
    text = standardised.source("float32[60000,252]", "float32[252]", arch="sm_90a")
    assert "weft::store<4>" in text and text.index("r_rows[v] = r;") < text.index("* r_rows[v]")  # once a column, not a point


def test_blocks_share_rows_that_are_few() -> None:
    kernel = CASES["cross_entropy"][0]
    assert [p.shared for p in plans(kernel, "float32[8192,32000]", "int64[8192]")] == [False]
    assert [p.shared for p in plans(kernel, "float32[8,32000]", "int64[8]")] == [True] * 2


def test_few_rows_have_all_that_they_need_on_its_way_from_the_beginning() -> None:
    """Each has a multiprocessor for itself: few points a thread, and what is the same for all rows is read with them."""

    @weft.kernel
    def norm(x, w):
        y = torch.empty_like(x)
        for i in range(x.shape[0]):
            s = 0.0
            for j in range(x.shape[1]):
                s += x[i, j] * x[i, j]
            for j in range(x.shape[1]):
                y[i, j] = x[i, j] * torch.rsqrt(s / x.shape[1] + 1e-5) * w[j]
        return y

    (few,), (many,) = plans(norm, "float16[64,4096]", "float16[4096]"), plans(norm, "float16[4096,4096]", "float16[4096]")
    assert (few.alike, few.threads, few.vector * few.chunks) == (True, 256, 16)
    assert (many.alike, many.threads, many.vector * many.chunks) == (False, 128, 32)
    assert norm.check(torch.randn(3, 1000).half(), torch.randn(1000).half(), seeds=2).ok


def test_what_is_aligned_moves_in_packets() -> None:
    kernel = CASES["total"][0]
    assert [p.vector for p in plans(kernel, "bfloat16[4096,4096]")] == [8, 8]
    assert [p.vector for p in plans(kernel, "float32[4096,4096]")] == [4, 4]
    assert [p.vector for p in plans(kernel, "float32[4096,4095]")] == [1, 1]


# ---------------------------------------------------------------- what the kernels compute


@pytest.mark.parametrize("name, k", EVERY)
def test_the_kernels_compute_what_the_loops_do(name: str, k: int) -> None:
    kernel, args = case(name, k)
    report = kernel.check(*args)
    assert not report.findings and report.ok, str(report)


@given(st.integers(0, 2**31), st.sampled_from([301, 2100]), st.sampled_from([torch.float32, torch.bfloat16]))
@examples(3)
def test_exponentials_of_any_values_relative_to_the_largest(seed: int, width: int, dtype: torch.dtype) -> None:
    """Each row is of a few values, infinities and NaN among them, the rare ones anywhere."""
    random = torch.Generator().manual_seed(seed)
    largest = torch.finfo(dtype).max
    values = torch.tensor([0.0, 1.5, -20.0, 90.0, -1e30, largest, -largest, -math.inf, math.inf, math.nan])
    few = torch.randint(0, len(values), (40, 3), generator=random)
    taken = (torch.rand(40, width, generator=random) ** 12 * 3).long()
    x = values[few.gather(1, taken)].to(dtype)
    report = CASES["log_sum_exp_of_two"][0].check(x.reshape(40, 7, -1)) if width % 7 == 0 else CASES["log_sum_exp"][0].check(x)
    assert not report.findings and report.ok, str(report)


@pytest.mark.parametrize("arch", ["sm_80"])
def test_for_other_architectures_too(arch: str) -> None:
    for name, k in (("mean_taken_away", 1), ("in_place", 2), ("largest_of_rows", 2)):
        kernel, args = case(name, k)
        assert not kernel.check(*args, arch=arch, seeds=3).findings


def test_random_programs_whose_folds_are_shared_by_all_means(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "FEW_POINTS", 1)
    monkeypatch.setattr(fold, "POINTS_OF_A_PART", 4)
    monkeypatch.setattr(fold, "MANY_ROWS", 1 << 40)
    met = 0
    for seed in (14, 122, 168, 310):
        program = generate(seed)
        kernel = weft.kernel(compiled(program.source, f"shared folds {seed}"))
        args = arguments(program, {"n": 21, "m": 17, "d": 3}, seed)
        try:
            met += bool(plans(kernel, *args))
        except WeftError:
            continue
        report = kernel.check(*args)
        assert not report.differences, str(report)
    assert met >= 3


@pytest.mark.parametrize(
    "name, specs",
    [
        ("total", ("bfloat16[4096,4096]",)),
        ("column_sums", ("float32[100000,64]",)),
        ("cross_entropy", ("float32[8192,32000]", "int64[8192]")),
        ("mean_taken_away", ("float32[1000,1001]",)),
        ("largest_of_all", ("bfloat16[4096,4096]",)),
        ("below_the_largest", ("bfloat16[4096,4000]",)),
    ],
)
def test_the_text(name: str, specs: tuple[str, ...], golden: Golden) -> None:
    golden(f"cuda/folds_{name}.cu", CASES[name][0].source(*specs, arch="sm_90a"))


@pytest.mark.gpu
@pytest.mark.parametrize("name, k", EVERY)
def test_on_a_gpu_twice_the_same_bits(name: str, k: int) -> None:
    kernel, args = case(name, k)
    wide = [a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    want = results_of(kernel.py(*wide), wide)
    first, second = [], []
    for made in (first, second):
        given = [a.cuda() if isinstance(a, torch.Tensor) else a for a in args]
        made += [r.cpu() for r in results_of(kernel(*given), given)]
    for one, other, exact in zip(first, second, want, strict=True):
        near = max(1e-4, torch.finfo(one.dtype).eps) if one.is_floating_point() else 0
        torch.testing.assert_close(one.double(), exact.double(), rtol=near, atol=near, equal_nan=True)
        assert torch.equal(one.nan_to_num(), other.nan_to_num())


def results_of(result: Any, given: list[Any]) -> tuple[torch.Tensor, ...]:
    """What a kernel gave: its results, or what it changed in place."""
    if result is None:
        return (given[0],)
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("spec", ["bfloat16[2,9000]", "float32[2,6001]"])
def test_a_cluster_of_blocks_holds_a_long_row(monkeypatch: pytest.MonkeyPatch, spec: str) -> None:
    monkeypatch.setattr(fold, "FEW_BLOCKS", 0)
    monkeypatch.setattr(fold, "HOLDERS", ((1, 64, 2), (2, 64, 2), (4, 64, 2)))
    monkeypatch.setattr(fold, "REGISTERS", 12288)
    monkeypatch.setattr(fold, "FEWEST_INSIDE", 1 << 20)
    report = softmax.check(spec, gradients=True)
    assert report.ok
    assert "__cluster_dims__" in softmax.source(spec, arch="sm_90a")
    assert "__cluster_dims__" not in softmax.source(spec, arch="sm_80")


@pytest.mark.parametrize("room", [227, 24])
@pytest.mark.parametrize("spec", ["bfloat16[3,9000]", "float32[2,6001]", "bfloat16[3,9003]", "float16[2,8192]"])
def test_rows_that_registers_do_not_hold_lie_in_shared_memory(monkeypatch: pytest.MonkeyPatch, spec: str, room: int) -> None:
    """Of a block, or where a multiprocessor has less of it, of the blocks of a cluster; rows may begin between packets."""
    monkeypatch.setattr(fold, "FEW_BLOCKS", 0)
    monkeypatch.setattr(fold, "HOLDERS", ((1, 64, 2), (8, 64, 2)))
    monkeypatch.setattr(fold, "REGISTERS", 4096)
    for module in (inspection, simulated):
        monkeypatch.setattr(module, "machine_for", lambda arch: replace(machine_for(arch), shared=room * 1024))
    report = softmax.check(spec, gradients=True)
    assert report.ok
    assert all("lies in shared memory" in launched.source for launched in report.launches)
    assert all(("__cluster_dims__" in launched.source) == (room < 100) for launched in report.launches)
    assert "bulk_load" not in softmax.source(spec, arch="sm_80")


@pytest.mark.parametrize(
    ("rows", "length", "in_bulk"), [(37, 1024, True), (37, 1000, True), (37, 1001, False), (150, 200, False), (73, 512, False)]
)
def test_columns_are_folded_beside_the_rows_that_are_held(
    monkeypatch: pytest.MonkeyPatch, rows: int, length: int, in_bulk: bool
) -> None:
    """The gradients of a weight and a bias: blocks that stay leave their parts, the next nest combines them. Rows of whole
    packets are on their way in shared memory, others in registers; the teams that have short rows leave one part together.
    """
    monkeypatch.setattr(fold, "FEW_BLOCKS", 0)
    monkeypatch.setattr(fold, "FEWEST_TURNS", 0)
    monkeypatch.setattr(fold, "REGISTERS", 1 << 14)
    for module in (inspection, simulated):
        monkeypatch.setattr(module, "machine_for", lambda arch: replace(machine_for(arch), multiprocessors=2))
    specs = (f"bfloat16[{rows},{length}]", f"bfloat16[{length}]", f"bfloat16[{length}]")
    report = layer_norm.check(*specs, gradients=True)
    assert report.ok
    (folded,) = [launched.source for launched in report.launches if "of each column" in launched.source]
    assert ("bulk_load" in folded) == in_bulk
    assert ("of_teams" in folded) == (length <= 512)
    report = layer_norm.check(*specs, gradients=True, arch="sm_80")
    assert report.ok
    assert not any("bulk_load" in launched.source for launched in report.launches)


def test_columns_of_rows_of_several_axes_are_folded_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (inspection, simulated):
        monkeypatch.setattr(module, "machine_for", lambda arch: replace(machine_for(arch), multiprocessors=1))
    monkeypatch.setattr(fold, "FEWEST_TURNS", 0)
    turned = torch.randn(20, 2, 600, generator=torch.Generator().manual_seed(0)).bfloat16().transpose(0, 1)
    for x, length in (("bfloat16[8,8,128]", 128), ("bfloat16[2,20,600]", 600), (turned, 600)):
        report = norm_of_heads.check(x, f"bfloat16[{length}]", f"bfloat16[{length}]", gradients=True)
        assert report.ok
        assert sum("of each column" in launched.source for launched in report.launches) == 1


@weft.kernel
def up_to_their_own(x, w, g):
    """Neighbouring rows have different points of one fold, and the same of another."""
    y = torch.empty(w.shape[0], x.shape[1], dtype=x.dtype)
    for j in range(w.shape[0]):
        for i in range(x.shape[1]):
            s = 0.0
            for k in range(min(i + 1, x.shape[0])):
                s += x[k, i] * w[j, k]
            r = 0.0
            for k in range(x.shape[0]):
                r += x[k, i] * g[j, k]
            y[j, i] = s * r
    return y


def test_rows_with_points_of_their_own_are_in_no_packets() -> None:
    report = up_to_their_own.check("float32[40,32]", "float32[3,40]", "float32[3,40]")
    assert report.ok and not report.findings, report.text()


@weft.kernel
def from_below_0(x):
    n, m, length = x.shape
    y = torch.empty(n - 2, m - 2)
    for i in range(n - 2):
        for j in range(m - 2):
            s = 0.0
            for a in range(-1, 2):
                for b in range(-1, 2):
                    for c in range(length):
                        s += x[i + 1 + a, j + 1 + b, c] * (a + b)
            y[i, j] = s
    return y


@weft.kernel
def columns_of_ranges(x, starts):
    y = torch.empty(x.shape[1])
    for d in range(x.shape[1]):
        s = 0.0
        for r in range(starts.shape[0] - 1):
            for k in range(starts[r], starts[r + 1]):
                s += x[k, d] * (r + 1)
        y[d] = s
    return y


def test_loops_that_a_fold_goes_through_at_once_may_begin_below_0() -> None:
    report = from_below_0.check("float32[3,4,70]")
    assert report.ok and not report.findings, report.text()


def test_ranges_that_another_folded_loop_tells_are_gone_through_inside_of_it() -> None:
    x = torch.randn(20, 40, generator=torch.Generator().manual_seed(0))
    report = columns_of_ranges.check(x, torch.tensor([0, 3, 3, 10, 20]))
    assert report.ok and not report.findings, report.text()


@weft.kernel
def counted_from_the_diagonal(x):
    """Rows begin at their own number, which is a sum where a row's first element is not its first."""
    y = torch.zeros_like(x)
    for r in range(x.shape[0]):
        count = 0
        for i in range(r, x.shape[1]):
            if x[r, i] > 0:
                count += 1
        for i in range(r, x.shape[1]):
            y[r, i] = x[r, i] * count
    return y


def test_rows_that_begin_later_in_columns_that_lie_apart() -> None:
    report = counted_from_the_diagonal.check(torch.randn(3, 64)[:, ::2])
    assert report.ok and not report.findings, str(report)
