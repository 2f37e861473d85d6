"""Planted bugs are found, in their line; the same kernels without them are left alone."""

from __future__ import annotations

from collections import Counter
from unittest import mock

import pytest

from tests.mutants import CALLS, DEVICE, MUTANTS, WRONG, Mutant, found, runs
from weft.pytorch import simulated
from weft.runtime.simulator import Finding

SEEDS = 20


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found_in_its_line(mutant: Mutant) -> None:
    told: list[Finding] = []
    for outcome in runs(mutant, mutant.seeds):
        if found(mutant, outcome):
            return
        told += outcome.findings
    pytest.fail(f"{' or '.join(mutant.kinds)} at {mutant.lines} is not among {[(f.kind, str(f.place)) for f in told]}")


def test_the_catalogue_is_what_it_says() -> None:
    names = Counter(m.name for m in MUTANTS)
    assert max(names.values()) == 1
    assert len(MUTANTS) >= 48
    assert sum(m.kinds == WRONG for m in MUTANTS) <= 8, "bugs that only a comparison finds"
    assert all(m.lines for m in MUTANTS if m.kinds != WRONG)
    assert {m.kernel for m in MUTANTS} <= {*DEVICE, *CALLS}


@pytest.mark.long  # under one it is where the kernels' own tests are
@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_found_in_emitted_code_under_any_seed(name: str) -> None:
    call = CALLS[name]
    with mock.patch.object(simulated, "_resources", lambda *_: None):  # what NVRTC says of registers is not asked here
        report = call.kernel.check(*call.args(), seeds=SEEDS)
    assert report.ok, report.text()
    assert {launch.block[0] * launch.block[1] for launch in report.launches} == {call.threads}
