"""Plans that the planner would not take, what they compute, and which of them later calls take."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.kernels_of_folds import CASES as FOLDS
from tests.kernels_of_maps import CASES as MAPS
from tests.kernels_of_scans import CASES as SCANS
from weft.check.report import Report
from weft.cli import main
from weft.compiler import tuned
from weft.compiler.planning import MOST_CANDIDATES, candidates
from weft.errors import DeviceMismatch
from weft.kernels import LIBRARY
from weft.plan.leaning import LEANINGS, PLANNED
from weft.plan.machine import Machine
from weft.pytorch import executable, tuning
from weft.pytorch.inspection import Examined, examine
from weft.pytorch.machines import machine_for
from weft.pytorch.tuning import Measured, Tuned, Tuning, _fastest

SOFTMAX, LINREC = LIBRARY["softmax"].kernel, LIBRARY["linrec"].kernel


def plans(examined: Examined, nest: int = 0, machine: Machine | None = None) -> dict[str, Any]:
    found = candidates(examined.analysis, nest, examined.arrays, examined.names, machine or machine_for("sm_90a"))
    return {leaning.name: launches for leaning, launches in found}


def test_the_planner_s_own_choice_is_first_and_no_plan_is_listed_twice() -> None:
    examined = examine(SOFTMAX, ("float32[4096,1024]",))
    found = plans(examined)
    assert next(iter(found)) == "as planned" and 3 < len(found) <= MOST_CANDIDATES
    assert found["as planned"] == examined.launches()
    assert len({launches[0].variant.key for launches in found.values()}) == len(found)


def test_blocks_that_wait_for_each_other_are_never_more_than_run_at_once() -> None:
    examined = examine(LINREC, ("float32[1,67108864]",) * 2)
    machine = machine_for("sm_90a")
    for (one,) in plans(examined, machine=machine).values():
        resident = one.variant.plan.resident
        assert one.together and one.grid[0] * one.grid[1] <= resident * machine.multiprocessors


@pytest.mark.parametrize("leaning", [one for one in LEANINGS if one is not PLANNED], ids=lambda one: one.name)
def test_every_plan_computes_what_the_python_does(leaning: Any) -> None:
    """Where it has a say: in a row that is held, sums that blocks share, elements on their way, rows that are scanned."""
    x = torch.randn(3, 300)
    given: list[tuple[Any, tuple[Any, ...]]] = [(SOFTMAX, (x,)), (MAPS["add"][0], MAPS["add"][1][0]())]
    given += [(FOLDS["total"][0], ("float32[700,100]",)), (SCANS["cumsum"][0], (torch.randn(2, 40000),))]
    for kernel, args in given:
        examined = examine(kernel, args)
        if all(leaning.name not in plans(examined, k) for k in range(len(examined.analysis.schedule.nests))):
            continue
        with tuned.asking({k: leaning for k in range(9)}):
            report: Report = kernel.check(*args)
        assert report.ok, f"{kernel.name}, {leaning.name}: {report.text()}"


def test_what_was_measured_is_known_to_calls_of_its_class_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    examined, machine, again = examine(SOFTMAX, ("float32[4096,1024]",)), machine_for("sm_80"), LEANINGS[6]
    own = examined.analysis, 0, examined.names
    tuned.keep(*own, machine, again)
    monkeypatch.setattr(tuned, "_known", {})  # as in another process
    assert tuned.leaning_of(*own, machine) is again
    assert tuned.leaning_of(*own, machine_for("sm_86")) is PLANNED
    for shape, leaning in (((3000, 1000), again), ((3000, 2048), PLANNED)):
        other = examine(SOFTMAX, (torch.empty(shape, device="meta"),))
        assert tuned.leaning_of(other.analysis, 0, other.names, machine) is leaning


def test_calls_are_planned_anew_after_a_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[Any] = []
    prepare = executable.prepare
    monkeypatch.setattr(executable, "prepare", lambda *args: prepared.append(args) or prepare(*args))
    x = torch.randn(3, 37)  # as no other test has it
    examined = examine(SOFTMAX, (x,))

    def measure(*_: Any, **__: Any) -> None:
        tuned.keep(examined.analysis, 0, examined.names, machine_for("sm_80"), PLANNED)

    monkeypatch.setattr(tuning, "tune_call", measure)
    # of the kernel and of its gradient; calls of rows of three dimensions are calls of those of two, which are prepared
    for softmax, rows, before, after in ((SOFTMAX, x, 2, 4), (LIBRARY["softmax"], x[:, None], 0, 2)):
        rows = rows.detach().requires_grad_()
        prepared.clear()
        for measured, times in ((False, before), (False, before), (True, after)):
            if measured:
                SOFTMAX.tune(x)
            torch.autograd.grad(softmax(rows).sum(), rows)
            assert len(prepared) == times


def test_a_plan_that_is_hardly_faster_is_not_taken() -> None:
    rows = [(one, Measured("nest", one.name, ms, 32, 0)) for one, ms in zip(LEANINGS, (1.0, 0.99, 1.2), strict=False)]
    assert _fastest(rows) is PLANNED
    assert _fastest([*rows, (LEANINGS[4], Measured("nest", "", 0.9, 32, 0))]) is LEANINGS[4]


def test_the_table_tells_rates_and_resources() -> None:
    rows = (Measured("sum", "as planned", 0.02, 32, 0), Measured("sum", "rows are read again", 0.01, 40, 8, chosen=True))
    text = Tuning((Tuned("softmax", "a GPU", rows, 24_000_000, 0.005),)).text()
    assert "softmax on a GPU: 24.0 MB, at least 5.0 us" in text
    (told,) = [line for line in text.splitlines() if "read again" in line]
    assert told.split() == ["sum", "rows", "are", "read", "again", "10.0", "2,400", "0.50", "40", "8"]
    assert "None" not in Tuning((Tuned("softmax", "a GPU", rows, None, None),)).text()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_there_is_nothing_to_measure(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DeviceMismatch, match="no GPU here"):
        SOFTMAX.tune("float32[64,64]")
    assert main(["tune", "weft/kernels/softmax.py:softmax", "x=float32[64,64]"]) == 2
    assert "no GPU here" in capsys.readouterr().err


@pytest.mark.gpu
def test_a_tuned_call_computes_the_same() -> None:
    x = torch.randn(2048, 1000, device="cuda")
    before = SOFTMAX(x)
    told = SOFTMAX.tune(x, gradients=True, seconds=0.01, progress=False)
    assert sum(row.chosen for row in told.calls[0].rows) == 1 and len(told.calls) == 2
    torch.testing.assert_close(SOFTMAX(x), before)
