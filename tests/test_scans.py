"""Scans that threads share: which plan they have, and what the kernels compute, simulated and on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.examples import examples
from tests.kernels_of_scans import CASES, HALF, in_place, linrec, time_major
from weft.check import limits
from weft.compiler import launches
from weft.plan import facts, machine, scan
from weft.plan.machine import Machine
from weft.plan.scan import ScanPlan
from weft.pytorch.inspection import examine
from weft.pytorch.machines import machine_for

Golden = Callable[[str, str], None]
EVERY = [pytest.param(name, k, id=f"{name}-{k}") for name, (_, makes) in CASES.items() for k in range(len(makes))]


def case(name: str, k: int) -> tuple[Any, tuple[Any, ...]]:
    kernel, makes = CASES[name]
    return kernel, makes[k]()


def plan_of(kernel: Any, *args: Any) -> ScanPlan:
    (launch,) = examine(kernel, args).launches()
    assert isinstance(launch.variant.plan, ScanPlan)
    return launch.variant.plan


@pytest.fixture
def few_multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks have several turns in rows that are simulated in no time."""
    small = {name: replace(target, multiprocessors=3) for name, target in limits.TARGETS.items()}
    monkeypatch.setattr(limits, "TARGETS", small)


@pytest.fixture(params=[2, 6])
def clusters_of_two(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """One of them, or three."""
    small = {name: replace(target, multiprocessors=request.param) for name, target in limits.TARGETS.items()}
    monkeypatch.setattr(limits, "TARGETS", small)
    monkeypatch.setattr(machine, "LARGEST_CLUSTER", 2)
    monkeypatch.setattr(scan, "CLUSTERS_COST", 9.0)


def checked_in_clusters(x: torch.Tensor, c: torch.Tensor, **given: Any) -> None:
    found = examine(time_major, (x, c))
    (launch,) = launches(found.analysis, 0, found.arrays, found.names, machine_for("sm_90a"))
    assert isinstance(launch.variant.plan, ScanPlan) and launch.variant.plan.cluster == 2
    report = time_major.check(x, c, **given)
    assert report.ok and not report.findings, str(report)


# ---------------------------------------------------------------- plans


def test_blocks_share_few_long_rows() -> None:
    one = plan_of(linrec.kernel, *["float32[1,67108864]"] * 2)
    assert one.shared and one.stages > 2 and one.delayed and not one.beside
    alone = plan_of(linrec.kernel, *["float32[132,500000]"] * 2)
    assert alone.stages > 1 and not alone.shared
    beside = plan_of(time_major, *["float32[1,131072,512]"] * 2)
    assert beside.shared and beside.beside and beside.stages > 2 and beside.delayed
    enough = plan_of(time_major, *["float32[64,1024,1024]"] * 2)
    assert enough.beside and not enough.shared


def test_large_blocks_share_rows_where_they_have_less_to_tell_each_other() -> None:
    """Of few channels small blocks would read 32 bytes of each point; of short rows large ones would be few."""
    assert plan_of(linrec.kernel, *["float32[1,67108864]"] * 2).threads == 512
    assert plan_of(linrec.kernel, *["float32[1,300000]"] * 2).threads == 256
    few = plan_of(time_major, *["float32[1,1048576,64]"] * 2)
    assert (few.threads, few.wide, few.delayed) == (512, 16, True)
    several = plan_of(time_major, *["float32[1,131072,512]"] * 2)
    assert (several.threads, several.wide, several.delayed) == (256, 32, True)


def test_blocks_that_share_rows_side_by_side_are_clusters() -> None:
    """About as many blocks as run at once, by few clusters, where they would have much to tell each other."""
    for spec in ("bfloat16[1,1048576,64]", "float32[1,1032444,65]"):
        found = examine(time_major, [spec] * 2)
        (launch,) = launches(found.analysis, 0, found.arrays, found.names, replace(Machine(), clusters=15))
        plan = launch.variant.plan
        assert isinstance(plan, ScanPlan) and (plan.cluster, launch.parts, launch.grid) == (8, 120, (120, 1, 1))
        (launch,) = launches(found.analysis, 0, found.arrays, found.names, replace(Machine(), bulk=False))
        assert isinstance(launch.variant.plan, ScanPlan) and launch.variant.plan.shared and launch.variant.plan.cluster == 1
    for spec in ("bfloat16[8,8192,1024]", "bfloat16[1,131072,512]"):
        assert plan_of(time_major, *[spec] * 2).cluster == 1
    assert plan_of(linrec.kernel, *["float32[1,67108864]"] * 2).cluster == 1


def test_rows_that_begin_anywhere_are_copied_too() -> None:
    one = plan_of(linrec.kernel, *["float32[3,20000001]"] * 2)
    assert one.shared and one.stages > 2 and one.delayed
    alone = plan_of(linrec.kernel, *["float32[132,500001]"] * 2)
    assert alone.stages > 1 and not alone.shared


def test_rows_side_by_side_lie_in_lines_as_in_memory() -> None:
    """As far past a line where a tile leaves shared memory at once, else as far past a packet."""
    for spec, past in (("float32[8,8193,1023]", 32), ("float32[1,65537,1023]", 4), ("bfloat16[8,8193,1023]", 8)):
        assert f"weft::past_packet<{past}>" in time_major.source(*[spec] * 2, arch="sm_90a")
    assert "past_packet" not in time_major.source(*["float32[8,8192,1024]"] * 2, arch="sm_90a")


def test_points_are_one_run_where_a_block_has_all_rows() -> None:
    """Of any number of channels, with few threads too many: also where blocks share them."""
    for spec, side in (("float32[16,66576,63]", 64), ("bfloat16[8,129055,65]", 72)):
        plan = plan_of(time_major, *[spec] * 2)
        assert (plan.full, plan.side, plan.shared) == (True, side, True) and plan.threads % 32 == 0
        assert "at_once" in time_major.source(*[spec] * 2, arch="sm_90a")
    for spec in ("float32[16,65536,64]", "float32[8,8193,1023]"):
        assert not plan_of(time_major, *[spec] * 2).full


def test_blocks_have_as_many_rows_as_others() -> None:
    """Of 513 channels, of which a block could have 64, each has 57."""
    assert "d_wide" in time_major.source(*["float32[2,65537,513]"] * 2, arch="sm_90a")


def test_threads_without_a_row_go_along_where_rows_begin_anywhere() -> None:
    """So that no warp goes through its points twice; elsewhere nothing is asked about what is written."""
    for channels, goes_along in ((1023, True), (1000, False)):
        text = time_major.source(*[f"float32[8,8193,{channels}]"] * 2, arch="sm_90a")
        assert ("d_beside" in text, "t_stop" in text) == (goes_along, not goes_along)


def test_blocks_that_share_no_rows_have_few_threads_below_each_other() -> None:
    for channels, below in ((1023, 4), (4097, 4), (1024, 8)):  # those of 1024 channels begin with packets
        plan = plan_of(time_major, *[f"float32[8,8193,{channels}]"] * 2)
        assert not plan.shared and plan.threads // plan.side == below


def test_places_of_many_points_are_found_from_one_to_the_next() -> None:
    """Those of fewer stay in registers."""
    for spec, found in (("float32[8,8193,1023]", True), ("bfloat16[8,8193,1023]", True), ("float32[8,129055,65]", False)):
        assert ("one_pitch_of" in time_major.source(*[spec] * 2, arch="sm_90a")) == found


def test_what_is_stored_comes_in_registers() -> None:
    plan = plan_of(in_place, "float32[3000000,3]")
    assert plan.shared and not plan.stages


def test_loops_of_a_step_do_not_tell_each_other() -> None:
    found = examine(linrec.kernel, ["float32[1,67108864]"] * 2)
    (launch,) = launches(found.analysis, 0, found.arrays, found.names, Machine(bulk=False))
    assert isinstance(launch.variant.plan, ScanPlan) and launch.variant.plan.shared and not launch.variant.plan.stages


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("name, k", EVERY)
@pytest.mark.usefixtures("few_multiprocessors")
def test_nothing_is_found(name: str, k: int) -> None:
    kernel, args = case(name, k)
    report = kernel.check(*args)
    assert report.ok and not report.findings, str(report)


@pytest.mark.usefixtures("few_multiprocessors")
def test_nothing_is_found_where_places_take_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows that begin between packets, whose first run begins before them."""
    monkeypatch.setattr(facts, "MANY", 1)
    x, c = (torch.randint(-1, 2, (2, 2501)).float() for _ in range(2))
    assert "const int64_t l = " in linrec.kernel.source(x, c, arch="sm_90a")
    report = linrec.kernel.check(x, c)
    assert report.ok and not report.findings, str(report)


@pytest.mark.parametrize("name, k", [("linrec", 0), ("time_major", 0), ("one_decay_a_channel", 0), ("steps_in_common", 0)])
@pytest.mark.usefixtures("few_multiprocessors")
def test_nothing_is_found_in_gradients(name: str, k: int) -> None:
    kernel, args = case(name, k)
    report = kernel.check(*args, gradients=True)
    assert report.ok and not report.findings, str(report)


@pytest.mark.parametrize("channels", [61, 63])
@pytest.mark.usefixtures("few_multiprocessors")
def test_nothing_is_found_where_rows_lie_in_lines(monkeypatch: pytest.MonkeyPatch, channels: int) -> None:
    """Of tiles inside of an array, of its first and last ones, and of slices; there and backwards."""
    monkeypatch.setattr(scan, "FEW_LINES", (256,))
    x, c = (torch.randint(-1, 2, (3, 600, channels + k)).float() for k in (0, 2))
    for decay in (c[..., 2:].contiguous(), c[..., 1:-1]):
        report = time_major.check(x, decay, gradients=True)
        assert report.ok and not report.findings, str(report)


@pytest.mark.parametrize("channels, dtype", [(17, torch.float64), (37, torch.float32), (65, HALF)])
@pytest.mark.usefixtures("few_multiprocessors")
def test_nothing_is_found_where_points_are_one_run(monkeypatch: pytest.MonkeyPatch, channels: int, dtype: torch.dtype) -> None:
    """Of rows without gaps and with them; there and backwards."""
    monkeypatch.setattr(scan, "FEW_LINES", ())
    x, c = (torch.randint(-1, 2, (1, 600, channels + k)).to(dtype) for k in (0, 1))
    for decay in (c[..., 1:].contiguous(), c[..., 1:]):
        assert plan_of(time_major, x, decay).full
        report = time_major.check(x, decay, gradients=decay.is_contiguous())
        assert report.ok and not report.findings, str(report)


@pytest.mark.usefixtures("clusters_of_two")
def test_nothing_is_found_in_clusters() -> None:
    """Of turns enough that places are used again, and of rows for which one warp has too few lanes."""
    checked_in_clusters(*(torch.randint(-1, 2, (1, 3000, 66)).to(HALF) for _ in range(2)), seeds=2)


@pytest.mark.parametrize("arch, seeds", [("sm_80", 1), ("sm_90a", 3)])
@pytest.mark.usefixtures("few_multiprocessors")
def test_for_other_architectures_and_schedules(arch: str, seeds: int) -> None:
    kernel, args = case("linrec_reverse", 0)
    assert not kernel.check(*args, arch=arch, seeds=seeds).findings


def overflowing(n: int, form: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Coefficients whose product is infinite meet a state of 0; what is infinite or no number stays where it is."""
    x, c = torch.zeros(n, 1), torch.full((n, 1), 1e30)
    if form == "overflow between":  # each tile can be composed, several of them cannot
        c[:] = 1.0
        c[:: n // 7] = 1e30
    if form in ("nan", "infinite"):
        c[:] = 0.5
        x[n // 3] = float("nan") if form == "nan" else float("inf")
    if form == "overflow within":
        c[n // 2], x[n // 2 + 1], c[n // 2 + 2 :] = 0.0, 1.0, 0.5
    return x, c


FORMS = ("nan", "infinite", "overflow between", "overflow within")


@pytest.mark.usefixtures("clusters_of_two")
def test_nothing_is_found_in_clusters_there_and_backwards() -> None:
    """Of rows that follow each other in memory, in gradients too, and of rows with gaps between them."""
    x, c = (torch.randint(-1, 2, (1, 1201, 9)).to(HALF) for _ in range(2))
    checked_in_clusters(x, c, gradients=True)
    rows = torch.randint(-1, 2, (1, 1201, 30)).to(HALF)
    checked_in_clusters(rows[:, :, :17], rows[:, :, 9:26])


@pytest.mark.usefixtures("clusters_of_two")
@pytest.mark.parametrize("form", FORMS[2:])
def test_states_as_in_order_where_what_clusters_compose_overflows(form: str) -> None:
    x, c = overflowing(6000, form)
    checked_in_clusters(x.expand(6000, 5)[None].contiguous(), c.expand(6000, 5)[None].contiguous())


@pytest.mark.usefixtures("few_multiprocessors")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("layout", ["one row", "side by side"])
def test_states_as_in_order_where_composing_overflows(form: str, layout: str) -> None:
    n = 30_000 if layout == "one row" else 700
    x, c = overflowing(n, form)
    if layout == "one row":
        report = linrec.kernel.check(x.t().contiguous(), c.t().contiguous())
    else:
        report = time_major.check(x.expand(n, 5)[None].contiguous(), c.expand(n, 5)[None].contiguous())
    assert report.ok and not report.findings, str(report)


@examples(3)
@given(
    batch=st.integers(1, 3),
    length=st.integers(1, 900),
    channels=st.integers(1, 80),
    dtype=st.sampled_from([torch.float32, torch.float64, HALF]),
    offset=st.integers(0, 1),
)
def test_rows_of_any_size_side_by_side(batch: int, length: int, channels: int, dtype: torch.dtype, offset: int) -> None:
    wide = torch.randn(batch, length, channels + offset).to(dtype)[:, :, offset:]
    report = time_major.check(wide, torch.rand(batch, length, channels).to(dtype))
    assert report.ok and not report.findings, str(report)


@weft.kernel
def of_numbers(x):
    """The number of a point in functions of integers, of subscripts too, and in products; squares of numbers from 46,341 on
    take 64 bits.
    """
    y = torch.zeros_like(x)
    best = 0.0
    count = 0
    for i in range(x.shape[0]):
        best = max(best, x[i] * ((i + 1) % 3) + i * i)
        count = 1 if i % 1000 == 0 else count + i // 3
        y[i] = best + count + x[(i + 1) // 2]
    return y


def test_numbers_of_points_that_are_values() -> None:
    x = torch.rand(46500, dtype=torch.float64)
    assert isinstance(examine(of_numbers, (x,)).launches()[0].variant.plan, ScanPlan)
    report = of_numbers.check(x)
    assert report.ok, report.text()


@pytest.mark.parametrize(
    "name, specs",
    [
        ("linrec", ("float32[1,67108864]",) * 2),
        ("time_major", ("float32[1,131072,512]",) * 2),
        ("time_major_in_clusters", ("bfloat16[1,1048576,64]",) * 2),
        ("log_cumulative", ("float32[1,67108864]",)),
    ],
)
def test_the_text(name: str, specs: tuple[str, ...], golden: Golden) -> None:
    golden(f"cuda/scans_{name}.cu", CASES[name.removesuffix("_in_clusters")][0].source(*specs, arch="sm_90a"))


# ---------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("name, k", EVERY)
def test_on_a_gpu_twice_the_same_bits(name: str, k: int) -> None:
    kernel, args = case(name, k)
    wide = [a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    want = kernel.py(*wide)
    made = []
    for _ in range(2):
        given = [a.cuda() if isinstance(a, torch.Tensor) else a for a in args]
        result = kernel(*given)
        made.append([t.cpu() for t in ((given[0],) if result is None else result if isinstance(result, tuple) else (result,))])
    wanted = (wide[0],) if want is None else want if isinstance(want, tuple) else (want,)
    for first, second, exact in zip(*made, wanted, strict=True):
        tolerance = 2e-2 if first.dtype == HALF else 1e-3
        torch.testing.assert_close(first.double(), exact.double(), rtol=tolerance, atol=tolerance)
        assert torch.equal(first, second)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(1, 1 << 22), (5, 3_000_001)])
def test_on_a_gpu_rows_of_many_turns(shape: tuple[int, int]) -> None:
    x, c = torch.randn(shape, device="cuda"), torch.rand(shape, device="cuda")
    y = linrec(x, c).double()
    torch.testing.assert_close(y[:, 1:], y[:, :-1] * c[:, 1:] + x[:, 1:], rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, HALF])
def test_on_a_gpu_rows_side_by_side_in_clusters(dtype: torch.dtype) -> None:
    """Of numbers that are exact, forwards and in gradients."""
    x, c, dy = (torch.randint(-1, 2, (1, 300_000, 65), device="cuda").to(dtype) for _ in range(3))
    assert plan_of(time_major, *[f"{str(dtype).removeprefix('torch.')}[1,300000,65]"] * 2).cluster == 8
    y = time_major(x.requires_grad_(), c.requires_grad_())
    dx, dc = torch.autograd.grad(y, (x, c), dy)
    with torch.no_grad():
        assert torch.equal(y[:, 0], x[:, 0]) and torch.equal(y[:, 1:], c[:, 1:] * y[:, :-1] + x[:, 1:])
        assert torch.equal(dx[:, :-1], c[:, 1:] * dx[:, 1:] + dy[:, :-1]) and torch.equal(dc[:, 1:], dx[:, 1:] * y[:, :-1])


@pytest.mark.gpu
def test_on_a_gpu_a_scan_in_place_is_repeated() -> None:
    x = torch.randn(5000, 40)
    want = x.clone()
    in_place.py(want[:200])
    given = x[:200].cuda()
    in_place(given)
    torch.testing.assert_close(given.cpu(), want[:200], rtol=1e-4, atol=1e-4)
