"""`kernel.check` and `weft check`: what is run, what it is held against, how the report reads; the texts are in
golden/check (`pytest --update-golden`).
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import weft
from weft.check.found import Comparison, Launched, Resources, costs
from weft.check.limits import TARGETS, occupancy, refusals
from weft.check.report import Report
from weft.cli import main
from weft.errors import NotDifferentiable, OutOfRange, ShapeMismatch, TypeMismatch
from weft.kernels import LIBRARY, linrec
from weft.pytorch import simulated
from weft.pytorch.call import analysis_for
from weft.pytorch.check import in_memory
from weft.pytorch.reference import compare, iterations
from weft.runtime.simulator import Finding, Place, Simulation, Site

Golden = Callable[[str, str], None]
ROOT = Path(__file__).parent.parent
LINREC = f"{ROOT}/weft/kernels/linrec.py:linrec"


@weft.kernel(example={"x": "float32[3,40]"})
def transposed_copy(x):
    rows, length = x.shape
    y = torch.empty(length, rows)
    for r in range(rows):
        for l in range(length):
            y[l, r] = x[r, l]
    return y


@weft.kernel
def every_eighth(x):
    y = torch.empty(x.shape[0] // 8)
    for i in range(x.shape[0] // 8):
        y[i] = x[8 * i]
    return y


@weft.kernel
def scale_(x, by: float):
    for i in range(x.shape[0]):
        x[i] = by * x[i]


@weft.kernel
def count_up(n: int):
    y = torch.empty(n, dtype=torch.int64)
    for i in range(n):
        y[i] = 3 * i
    return y


@weft.kernel
def logistic(x):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = 0.5
        for l in range(length):
            h = 3.5 * h * (1.0 - h) + x[r, l]
            y[r, l] = h
    return y


@weft.kernel
def online_softmax(x):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        largest = -math.inf
        total = 0.0
        for l in range(length):
            new = max(largest, x[r, l])
            total = total * math.exp(largest - new) + math.exp(x[r, l] - new)
            largest = new
        for l in range(length):
            y[r, l] = math.exp(x[r, l] - largest) / total
    return y


@weft.kernel
def all_but_the_first(x):
    y = torch.empty_like(x)
    for i in range(1, x.shape[0]):
        y[i] = x[i] - x[i - 1]
    return y


# ---------------------------------------------------------------- a report made by hand

SOURCE = """\
#include "weft/team.cuh"

// sums.py:7: def sums(x):
extern "C" __global__ void __launch_bounds__(128) sums(const float* __restrict__ x, float* __restrict__ y) {
    __shared__ float parts[4];
    // sums.py:13: total = total + x[r, l]
    const float own = weft::reduce<weft::Sum<float>, 32>(x[128 * threadIdx.x + blockIdx.x]);
    if (threadIdx.x % 32 == 0) {
        parts[threadIdx.x / 32] = own;
    }
    // sums.py:14: y[r] = total
    y[blockIdx.x] = parts[0] + parts[1] + parts[2] + parts[3];
}
"""
USER = """\
import torch

import weft


@weft.kernel
def sums(x):
    rows, length = x.shape
    y = torch.empty(rows)
    for r in range(rows):
        total = 0.0
        for l in range(length):
            total = total + x[r, l]
        y[r] = total
    return y
"""
RACE = Finding(
    kind="race",
    message="parts[1] is read by thread 0 while thread 32 writes it",
    evidence=("thread 32 of block 0 writes it at sums.cu:9", "no __syncthreads lies between the two"),
    remedy="put a barrier between sums.cu:9 and sums.cu:12",
    place=Place("sums.cu", 12),
    header=Place("weft/team.cuh", 2),
    user=Place("sums.py", 14),
    times=3,
)
_SITE = Site(
    place=Place("sums.cu", 7), header=None, user=Place("sums.py", 13), space="global", action="load", width=4, array="x",
    requests=256, bytes=256 * 128, turns=0, ideal_turns=0, degree=1, sectors=256 * 32, ideal_sectors=256 * 4,
)  # fmt: skip
SITES = (
    _SITE,
    replace(_SITE, place=Place("sums.cu", 12), user=Place("sums.py", 14), action="store", array="y", sectors=1, ideal_sectors=1,
            requests=1),
    replace(_SITE, place=Place("sums.cu", 9), user=None, space="shared", action="store", array="parts", requests=10,
            turns=40, ideal_turns=10, degree=8, sectors=0, ideal_sectors=0),
)  # fmt: skip
SIMULATION = Simulation(findings=(), sites=SITES, barriers=0, blocks=64, threads=128, shared_bytes=16, seconds=0.25)
LAUNCH = Launched(
    "sums.cu", "sums", SOURCE, "forward", (64, 1, 1), (128, 1, 1), Resources(32, 0, 0, 16, 16, "threads"), (SIMULATION,) * 2
)
EQUAL = Comparison("y", "float32", (64,), 64, 0, 0, (5,), 1.0000001, 1.0, 1e-7, 1.0, 2e-5)


def a_report(findings: tuple[tuple[Finding, ...], ...] = ((), ()), comparison: Comparison = EQUAL, **more: Any) -> Report:
    simulations = tuple(replace(SIMULATION, findings=f) for f in findings)
    report = Report(
        kernel="sums",
        arch="sm_90a",
        device="H200",
        arguments=("x = float32[64,128]",),
        inputs="random inputs: floats normal, integers in [0, 8), bools fair, from seed 0",
        reference="the plain Python in float64",
        seeds=(0, 1),
        launches=(replace(LAUNCH, simulations=simulations),),
        comparisons=(comparison,),
        files=(("sums.py", USER), ("weft/team.cuh", "first\n    second line of the header\n")),
    )
    return replace(report, **more)


def a_bad_report() -> Report:
    wrong = replace(EQUAL, differing=2, index=(63,), got=7.5, want=9.25, error=1.75, ulps=1.8e6, differing_seeds=(1,))
    return a_report(((), (RACE, RACE)), wrong)


def test_text_of_a_clean_report(golden: Golden) -> None:
    report = a_report()
    assert report.ok and not report.findings
    golden("check/clean.txt", report.text())


def test_text_of_findings(golden: Golden) -> None:
    report = a_bad_report()
    assert not report.ok
    golden("check/race.txt", report.text())


def test_the_verdict_comes_first() -> None:
    assert a_report().text().startswith("sums on sm_90a: no findings; equal to the plain Python in float64\n")
    assert a_bad_report().text().startswith("sums on sm_90a: 1 finding; y differs\n")


def test_findings_of_several_seeds_are_one() -> None:
    found = a_report(((RACE,), (RACE, replace(RACE, place=Place("sums.cu", 9))))).findings
    assert [(f.finding.place.line, f.finding.times, f.seeds) for f in found] == [(12, 6, (0, 1)), (9, 3, (1,))]


@pytest.mark.parametrize(
    "change",
    [
        {"differing": 1},
        {"unwritten": 1},
        {"differing_seeds": (1,)},
    ],
)
def test_a_difference_of_any_kind_fails_the_check(change: dict[str, Any]) -> None:
    report = a_report(comparison=replace(EQUAL, **change))
    assert not report.ok and "y differs" in report.text()


def test_registers_that_spill_are_a_note() -> None:
    resources = replace(LAUNCH.resources, notes=("registers spill: 8 bytes stored and 8 loaded a thread",))
    report = a_report(launches=(replace(LAUNCH, resources=resources),))
    assert report.ok and "registers spill" in report.text() and "registers spill" in report.html()


def test_a_kernel_that_cannot_be_launched_fails_the_check() -> None:
    resources = replace(LAUNCH.resources, problems=("a block has 2,048 threads; sm_90a allows 1,024",))
    report = a_report(launches=(replace(LAUNCH, resources=resources),))
    assert not report.ok and "sums: a block has 2,048 threads" in report.text()


def test_costs_are_ordered_by_what_is_wasted() -> None:
    every = costs(a_report())
    assert [c.site.array for c in every] == ["x", "parts", "y"]
    assert [c.ratio for c in every] == [8, 4, 1]
    assert every[0].moved == 256 * 32 * 32 and every[0].excess == 256 * 28 * 32


def test_a_report_prints_with_rich_travels_and_is_saved(tmp_path: Path) -> None:
    report = a_bad_report()
    console = Console(record=True, width=100, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(report)
    assert "race" in console.export_text()
    assert pickle.loads(pickle.dumps(report)) == report
    report.save(tmp_path / "check.html")
    report.save(str(tmp_path / "check.txt"))
    assert (tmp_path / "check.html").read_text() == report.html()
    assert (tmp_path / "check.txt").read_text() == report.text()
    with pytest.raises(TypeMismatch, match="says no format"):
        report.save(tmp_path / "check.pdf")


# ---------------------------------------------------------------- the page


class _Page(HTMLParser):
    """Elements nest and close, ids are unique; what is linked and what is shown."""

    EMPTY = ("meta",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        assert len(given) == len(attrs), (tag, attrs)
        self.attributes.append((tag, given))
        self.ids += [str(given["id"])] if "id" in given else []
        self.links += [str(given["href"])] if "href" in given else []
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in self.EMPTY, tag

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data: str) -> None:
        self.text += data


def well_formed(text: str) -> _Page:
    """A page whose elements nest, whose ids are unique and whose links lead to lines of its own."""
    page = _Page(text)
    assert len(set(page.ids)) == len(page.ids)
    strays = [link for link in page.links if not link.startswith("#") or link[1:] not in page.ids]
    assert page.links and not strays, strays
    return page


@pytest.mark.parametrize("report", [a_report(), a_bad_report()], ids=["clean", "race"])
def test_the_page_is_well_formed_and_complete_in_itself(report: Report) -> None:
    page = well_formed(report.html())
    assert not any(tag in ("script", "link", "img", "iframe") or "src" in given for tag, given in page.attributes)
    assert "http" not in report.html() and "url(" not in report.html() and "@import" not in report.html()
    assert "prefers-color-scheme: dark" in report.html()
    regions = [given for _, given in page.attributes if given.get("role") == "region"]
    assert len(regions) == 2 and all(r.get("aria-label") and r.get("tabindex") == "0" for r in regions)


def test_the_page_shows_the_code_beside_its_source() -> None:
    text = a_bad_report().html()
    page = _Page(text)
    for line in (*SOURCE.splitlines(), *USER.splitlines()[4:]):
        assert line in page.text
    assert "kernel-0-7" in page.ids and "user-0-13" in page.ids and "finding-0" in page.ids
    assert "kernel-0-7" in {link[1:] for link in page.links}
    assert RACE.message in page.text and RACE.remedy in page.text and "second line of the header" in page.text
    assert "x8.0" in page.text, "the line that moves eight times what it needs says so"


def test_lines_that_belong_together_light_up_together() -> None:
    text = a_report().html()
    rule = "body:has(.g0-sums_py-13:hover, .g0-sums_py-13:focus-within) .g0-sums_py-13"
    assert rule in text
    assert text.count('g0-sums_py-13" id="kernel-0-') + text.count('g0-sums_py-13" id="user-0-13"') == 6


def test_in_a_notebook_the_page_is_in_a_frame() -> None:
    shown = a_report()._repr_html_()
    frame = _Page(shown).attributes[0]
    assert frame[0] == "iframe" and frame[1]["srcdoc"] == a_report().html() and frame[1]["title"]


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks", "limit"),
    [
        (256, 32, 0, 8, "threads"),
        (128, 104, 0, 4, "registers"),  # 4 warps of 3,328 registers: 13,312 of 65,536 a block
        (128, 32, 100 * 1024, 2, "shared memory"),  # 101 KB each with what the system takes
        (32, 16, 0, 32, "blocks"),
        (1024, 65, 0, 0, "registers"),
    ],
)
def test_occupancy_of_an_h200(threads: int, registers: int, shared: int, blocks: int, limit: str) -> None:
    found = occupancy(TARGETS["sm_90a"], threads, registers, shared)
    assert (found.blocks, found.limit) == (blocks, limit)


def test_what_cannot_be_launched_says_why() -> None:
    target = TARGETS["sm_86"]
    assert refusals(target, 256, 64, 48 * 1024) == ()
    assert "allows 1,024" in refusals(target, 2048, 32, 0)[0]
    assert "allows 101,376" in refusals(target, 256, 32, 200 * 1024)[0]
    assert "1,024 threads of 80 registers" in refusals(target, 1024, 80, 0)[0]


# ---------------------------------------------------------------- the comparison


def test_equal_within_the_tolerance_names_the_worst_element() -> None:
    want = torch.linspace(1, 2, 6, dtype=torch.float64).reshape(2, 3)
    got = want.float()
    got[1, 0] += 2 * 2.0**-23
    found = compare("y", [got], [0], want, None)
    assert found.ok and found.index == (1, 0) and 1 <= found.ulps <= 3 and found.tolerance == 2e-5
    assert not compare("y", [got], [0], want, 1e-8).ok
    got[0, 1] += 1e-3
    found = compare("y", [got], [0], want, None)
    assert not found.ok and found.differing == 1 and found.index == (0, 1)


def test_elements_that_no_one_wrote_are_told_apart() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        got = torch.empty(4, dtype=dtype)
        simulated.fill_unwritten(got)
        assert got.isnan().all()
        want = torch.tensor([1.0, 2.0, float("nan"), 4.0], dtype=torch.float64)
        got[0] = 1.0
        found = compare("y", [got], [0], want, None)
        assert found.unwritten == 2, "the Python leaves the third unwritten too"
        got[1], got[3] = 2.0, float("nan")
        found = compare("y", [got], [0], want, None)
        assert (found.unwritten, found.differing) == (0, 1), "a NaN that arithmetic gave is a difference"


def test_numbers_that_overflow() -> None:
    infinity = float("inf")
    want = torch.tensor([1e300, infinity, float("nan"), -infinity], dtype=torch.float64)
    assert compare("y", [torch.tensor([infinity, infinity, float("nan"), -infinity])], [0], want, None).ok
    assert not compare("y", [torch.tensor([3e38, infinity, float("nan"), -infinity])], [0], want, None).ok
    assert not compare("y", [torch.tensor([infinity, 0.0, float("nan"), -infinity])], [0], want, None).ok


def test_integers_and_bools_are_equal_or_not() -> None:
    want = torch.tensor([3, -4])
    assert compare("n", [want.clone()], [0], want, 1.0).ok
    found = compare("n", [torch.tensor([3, -3])], [0], want, 1.0)
    assert not found.ok and found.index == (1,) and found.differing == 1
    assert not compare("n", [torch.tensor([True])], [0], torch.tensor([False]), None).ok
    assert compare("n", [torch.empty(0, 3)], [0], torch.empty(0, 3), None).ok
    assert compare("n", [torch.tensor(2.0)], [0], torch.tensor(2.0), None).ok


def test_other_bits_under_another_schedule_are_a_difference() -> None:
    first = torch.ones(3)
    other = first.clone()
    other[1] += 2.0**-23
    found = compare("y", [first, first.clone(), other], [0, 1, 2], torch.ones(3, dtype=torch.float64), None)
    assert not found.ok and found.differing_seeds == (2,) and not found.differing


def test_what_rounding_moves_may_differ_as_much() -> None:
    want = torch.tensor([1.0, 2.0], dtype=torch.float64)
    got = torch.tensor([1.0, 2.001])
    assert compare("y", [got], [0], want, None, lambda: [want]).differing == 1
    found = compare("y", [got], [0], want, None, lambda: [want, want + torch.tensor([0.0, 1e-4])])
    assert found.ok and found.sensitive and found.index == (1,)
    assert compare("y", [got], [0], want, None, lambda: [want + torch.tensor([1e-4, 1e-5])]).differing == 1


def test_iterations_of_the_python() -> None:
    def of(kernel: weft.Kernel, *args: Any) -> int:
        analysis, bound = analysis_for(kernel.specializable, kernel.signature, args)
        return iterations(analysis.function, bound.names)

    assert of(transposed_copy, torch.empty(3, 40)) == 120
    assert of(scale_, torch.empty(7), 2.0) == 7


# ---------------------------------------------------------------- what is run


@pytest.mark.parametrize("make", [lambda: torch.randn(5, 7), lambda: torch.randn(7, 5).t(), lambda: torch.randn(40)[3:9],
                                  lambda: torch.randn(5, 1).expand(5, 7), lambda: torch.randn(0, 3), lambda: torch.tensor(2.0),
                                  lambda: torch.arange(12).reshape(3, 4)[:, ::2]])  # fmt: skip
def test_copies_keep_strides_and_alignment(make: Callable[[], torch.Tensor]) -> None:
    tensor = make()
    own = in_memory(tensor)
    assert torch.equal(own, tensor) and own.stride() == tensor.stride() and own.dtype == tensor.dtype
    if tensor.numel():
        assert own.data_ptr() != tensor.data_ptr() and (own.data_ptr() - tensor.data_ptr()) % 32 == 0


class _Recorder:
    """Stands for the simulator: records what it is given, computes nothing."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def __call__(self, source: str, **options: Any) -> Simulation:
        self.calls.append({"source": source, **options})
        return SIMULATION


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> _Recorder:
    recorder = _Recorder()
    monkeypatch.setattr(simulated.simulator, "simulate", recorder)
    return recorder


def test_what_the_compiler_says_is_told(compiled_whole: None) -> None:
    report = linrec.check("float32[3,40]", "float32[3,40]")
    (launch,) = report.launches
    assert launch.resources is not None and 0 < launch.resources.registers <= 255 and launch.resources.blocks > 0
    assert f"{launch.resources.registers} registers" in report.text()


def test_the_launch_is_the_one_of_the_cuda_road(recorder: _Recorder) -> None:
    x, c = torch.randn(6, 512), torch.rand(6, 1024)[:, ::2]
    report = linrec.kernel.check(x, c)
    (call,) = recorder.calls
    assert call["source"] == linrec.source(x, c, arch="sm_90a")
    assert (call["name"], call["entry"], call["grid"], call["block"]) == ("linrec.cu", "linrec", (6, 1, 1), (64, 1, 1))
    tensors = {a.name: a for a in call["arguments"] if hasattr(a, "role")}
    assert {n: (a.role, a.bytes, a.element_bytes) for n, a in tensors.items()} == {
        "x": ("input", 6 * 512 * 4, 4),
        "c": ("input", (6 * 1024 - 1) * 4, 4),
        "y": ("output", 6 * 512 * 4, 4),
    }
    assert not report.ok and report.comparisons[0].unwritten == 6 * 512, "nothing was computed"
    assert report.arguments == ("x = float32[6,512]", "c = float32[6,512]:(1024,2)") and report.inputs == ""


def test_short_rows_share_blocks(recorder: _Recorder) -> None:
    softmax = LIBRARY["softmax"].kernel
    softmax.check("float32[40000,64]", tolerance=1.0)
    softmax.check("float32[48,64]")
    assert [call["grid"][0] for call in recorder.calls] == [2500, 3], "16 rows a block"


def test_every_seed_starts_from_the_same_memory(recorder: _Recorder) -> None:
    report = scale_.check(torch.ones(5), 2.0, seeds=3)
    assert [call["seed"] for call in recorder.calls] == [0, 1, 2] and report.seeds == (0, 1, 2)
    x = [call["arguments"][0] for call in recorder.calls]
    assert all(a.role == "inout" for a in x) and len({a.address for a in x}) == 3
    (found,) = report.comparisons
    assert found.name == "x" and found.differing == 5 and found.got == 1.0 and found.want == 2.0


def test_a_call_without_blocks_launches_nothing(recorder: _Recorder) -> None:
    report = linrec.kernel.check("float32[0,8]", "float32[0,8]", seeds=2)
    assert recorder.calls == [] and report.ok and "no elements" in report.text()


def test_errors_of_a_call_are_those_of_the_call() -> None:
    with pytest.raises((ShapeMismatch, OutOfRange)):
        linrec.check(torch.ones(2, 3), torch.ones(2, 4)[:, :2])
    with pytest.raises(TypeMismatch, match="cannot be simulated"):
        linrec.check(arch="sm_70")
    with pytest.raises(TypeMismatch, match="seeds"):
        linrec.check(seeds=0)
    with pytest.raises(NotDifferentiable, match="in place"):
        scale_.check("float32[4]", 2.0, gradients=True)


# ---------------------------------------------------------------- with the simulator itself


def test_inputs_are_never_changed() -> None:
    x = torch.randn(9)
    before = x.clone()
    report = scale_.check(x, 3.0)
    assert report.ok, report.text()
    assert torch.equal(x, before)


def test_other_kinds_of_calls() -> None:
    assert (found := count_up.check(37)).ok, found.text()
    assert (found := linrec.check(torch.randn(2, 3, 16), torch.rand(2, 3, 16), seeds=2)).ok, found.text()
    assert (found := linrec.check(torch.randn(40), torch.rand(40))).ok, found.text()
    assert (found := linrec.check("bfloat16[3,70]", "bfloat16[3,70]:(1,3)")).ok, found.text()


def test_an_unstable_recurrence_is_not_held_to_every_digit() -> None:
    report = logistic.check("float32[40,33]")
    assert report.ok and "what rounding does" in report.text(), report.text()
    assert not logistic.check("float32[40,33]", tolerance=2e-5).ok, "a tolerance that is given is meant as it stands"


def test_gradients_where_the_python_leaves_autograd() -> None:
    report = online_softmax.check("float32[3,20]", gradients=True)
    assert report.ok and "autograd cannot follow" in report.reference, report.text()


def test_large_inputs_are_compared_with_the_cpu_kernel() -> None:
    report = transposed_copy.check("float32[300,1000]")
    assert report.ok and report.reference.startswith("weft's CPU kernel in float64 (the plain Python would run 300,000")


def test_an_uncoalesced_access_is_the_first_of_the_costs() -> None:
    report = every_eighth.check("float32[4096]")
    assert report.ok, report.text()
    worst = costs(report)[0]
    assert worst.ratio >= 2 and worst.site.user is not None and worst.site.user.file == "test_check.py"


def test_an_element_that_no_one_writes_is_found() -> None:
    report = all_but_the_first.check("float32[10]")
    assert [f.finding.kind for f in report.findings] == ["unwritten output"] and not report.ok
    assert "1 of 10 elements of y are never written" in report.text() and "the first is y[0]" in report.text()
    well_formed(report.html())
    assert not report.differences, "the Python leaves it unwritten too"


def test_a_missing_barrier_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's text without its second buffer in turn: what one tile reads, the next overwrites."""
    real = simulated.cuda_source
    monkeypatch.setattr(simulated, "cuda_source", lambda *args: real(*args).replace("[tile & 1]", "[0]"))
    report = LIBRARY["cumsum"].kernel.check("float32[1,12000]", seeds=2)
    assert "race" in {f.finding.kind for f in report.findings}, report.text()
    assert all(f.finding.evidence and f.finding.remedy for f in report.findings)
    assert {f.finding.user.file for f in report.findings if f.finding.user is not None} == {"cumsum.py"}
    well_formed(report.html())


def test_other_architectures() -> None:
    for arch in ("sm_80", "sm_86", "sm_89"):
        report = linrec.check("float32[3,64]", "float32[3,64]", arch=arch)
        assert report.ok and report.text().startswith(f"linrec on {arch}: no findings"), report.text()


@pytest.mark.gpu
def test_tensors_of_a_gpu_are_copied() -> None:
    x, c = torch.randn(5, 64, device="cuda").t().contiguous().t(), torch.rand(5, 64, device="cuda")
    report = linrec.check(x, c)
    assert report.ok and report.arguments[0] == "x = float32[5,64]:(1,5)", report.text()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "linrec.html"
    small = ["x=float32[4,64]", "c=float32[4,64]"]
    assert main(["check", LINREC, *small, "--seeds", "2", "--html", str(page)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("linrec on sm_90a: no findings; equal to the plain Python in float64\n") and "\x1b" not in text
    well_formed(page.read_text())
    assert main(["check", LINREC, *small, "--tolerance", "0"]) == 1
    assert "y differs" in capsys.readouterr().out
    assert main(["check", LINREC, "x=float32[4"]) == 2
    assert "remedy:" in capsys.readouterr().err
