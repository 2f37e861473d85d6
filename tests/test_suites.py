"""The suites of loops: the oracle tells a loop's class by running it, and the analysis claims nothing that it refutes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.fuzz_programs import arguments, compiled, generate
from tests.suites import tsvc
from tests.suites.case import Arrays, Case, subscripts, values
from tests.suites.classify import DRAWS, SUITES, Judgement, digest, expected, golden, judgements, written, wrong
from tests.suites.oracle import KINDS, Finding, find, judge
from weft.errors import WeftError
from weft.language import parse, read_signature
from weft.loops.analyze import schedule
from weft.loops.ir import For, walk
from weft.pytorch.call import argument_types

# What the analysis reaches today. These numbers only grow; the sets only shrink.
AS_THE_ORACLE = {"tsvc": 171, "polybench": 154}
NOT_SEQUENTIAL = {"tsvc": 166, "polybench": 131}
WHOLE_PROGRAMS = {"tsvc": 142, "polybench": 29}
# Programs that the analysis fails on, and those whose schedule cannot be executed as it stands.
FAILED: dict[str, set[str]] = {"tsvc": set(), "polybench": set()}
BROKEN: dict[str, set[str]] = {"tsvc": set(), "polybench": set()}

_judgements = cache(judgements)
_EACH = [(suite, name) for suite, cases in SUITES.items() for name in cases]


# ---------------------------------------------------------------- the suites


def test_every_program_of_the_suites_is_here_or_told_why_not() -> None:
    assert len(SUITES["tsvc"]) + len(tsvc.NOT_EXPRESSIBLE) == 151
    assert not SUITES["tsvc"].keys() & tsvc.NOT_EXPRESSIBLE.keys()
    assert len(SUITES["polybench"]) == 30


@pytest.mark.parametrize("suite", SUITES)
def test_kept_findings_are_of_the_programs_as_they_are(suite: str) -> None:
    kept = golden(suite)
    assert list(kept) == list(SUITES[suite])
    stale = [name for name, case in SUITES[suite].items() if kept[name].split()[1] != digest(case)]
    assert not stale, f"python -m tests.suites --update {' '.join(stale)}"


def _in_order(text: str) -> str:
    """The lines of a case, what each loop needs sorted: in which order the oracle meets it does not matter."""
    return re.sub(r"\((.*)\)", lambda m: f"({', '.join(sorted(m[1].split(', ')))})", text)


@pytest.mark.parametrize(
    ("suite", "name"),
    [pytest.param(s, n, marks=[pytest.mark.long] if s == "polybench" else [], id=f"{s}-{n}") for s, n in _EACH],
)
def test_the_oracle_finds_what_was_kept(suite: str, name: str) -> None:
    case = SUITES[suite][name]
    assert _in_order(written(case, find(case, DRAWS[suite]))) == _in_order(golden(suite)[name])


# ---------------------------------------------------------------- the analysis against the oracle


@pytest.mark.parametrize("suite", SUITES)
def test_no_verdict_claims_more_than_there_is(suite: str) -> None:
    assert [str(j) for j in _judgements(suite) if j.unsound] == []


@pytest.mark.parametrize("suite", SUITES)
def test_schedules_compute_what_the_program_does(suite: str) -> None:
    failed = {name: why for name, case in SUITES[suite].items() if (why := wrong(case))}
    assert not failed.keys() - BROKEN[suite], failed
    assert not BROKEN[suite] - failed.keys(), "these are whole now: take them out of BROKEN"


@pytest.mark.parametrize("suite", SUITES)
def test_analysis_fails_on_nothing_new(suite: str) -> None:
    failed = {j.program: j.why for j in _judgements(suite) if j.found is None}
    assert not failed.keys() - FAILED[suite], failed
    assert not FAILED[suite] - failed.keys(), "these are analysed now: take them out of FAILED"


@pytest.mark.parametrize("suite", SUITES)
def test_score_is_no_lower_than_it_was(suite: str) -> None:
    loops = _judgements(suite)
    missed = {j.program for j in loops if not j.reached}
    assert sum(j.reached for j in loops) >= AS_THE_ORACLE[suite]
    assert sum(_freed(j) for j in loops) >= NOT_SEQUENTIAL[suite]
    assert len(SUITES[suite]) - len(missed) >= WHOLE_PROGRAMS[suite]


def _freed(judgement: Judgement) -> bool:
    return judgement.true.kind != "sequential" and judgement.found not in (None, "sequential")


def test_a_verdict_that_claims_too_much_is_seen() -> None:
    scan = Finding("scan", ("sum",))
    assert Judgement("p", "i", scan, "parallel").unsound
    assert Judgement("p", "i", scan, "reduction").unsound
    assert not Judgement("p", "i", scan, "scan").unsound
    assert not Judgement("p", "i", scan, "sequential").unsound
    assert not Judgement("p", "i", scan, None).unsound


# ---------------------------------------------------------------- the oracle on loops that everyone knows


def third_order(a):
    for i in range(3, a.shape[0]):
        a[i] = a[i] + 2.0 * a[i - 1] - a[i - 2] + 3.0 * a[i - 3]


def fifth_order(a):
    for i in range(5, a.shape[0]):
        a[i] = a[i] + a[i - 1] - 2.0 * a[i - 2] + a[i - 3] + a[i - 4] - a[i - 5]


def interleaved(a):
    for i in range(5, a.shape[0]):
        a[i] = a[i] + 2.0 * a[i - 5]


def logistic(a, b):
    x = b[0]
    for i in range(7):
        x = x * (1.0 - x)
        a[i] = x


def quotient(a, b):
    x = b[0]
    for i in range(a.shape[0]):
        x = 1.0 / (x + b[i])
        a[i] = x


def limited(a, b):
    x = 0.0
    for i in range(a.shape[0]):
        x = min(max(x + b[i], -20.0), 20.0)
        a[i] = x


def running_maximum(a, b):
    x = b[0]
    for i in range(a.shape[0]):
        x = max(x, b[i])
        a[i] = x


def records(a, out):
    largest = a[0]
    count = 0
    for i in range(a.shape[0]):
        if a[i] > largest:
            largest = a[i]
            count += 1
    out[0] = largest + count


def second_of_two(a, out):
    largest = a[0]
    before = a[0]
    for i in range(a.shape[0]):
        if a[i] > largest:
            before = largest
            largest = a[i]
    out[0] = largest + before


def horner(a, out):
    x = 0.0
    for i in range(a.shape[0]):
        x = 3.0 * x + a[i]
    out[0] = x


def all_positive(a, out):
    holds = True
    for i in range(a.shape[0]):
        holds = holds and a[i] > 0.0
    out[0] = 1.0 if holds else 0.0


def histogram(a, b, ip):
    for i in range(ip.shape[0]):
        a[ip[i]] += b[i]


def histogram_read(a, b, c, ip):
    for i in range(ip.shape[0]):
        a[ip[i]] += b[i]
        c[i] = a[ip[i]]


def scatter(a, b, ip):
    for i in range(ip.shape[0]):
        a[ip[i]] = b[i]


def chase(a, ip):
    k = 0
    for i in range(a.shape[0]):
        k = ip[k]
        a[i] = k


def private_array(a, b):
    for i in range(a.shape[0]):
        row = torch.empty(4)
        for k in range(4):
            row[k] = a[i] * k
        for j in range(4):
            b[i] += row[j] * row[3 - j]


def shifted(a):
    for i in range(a.shape[0] - 1):
        a[i] = a[i + 1]


def wave(aa):
    for i in range(1, aa.shape[0]):
        for j in range(1, aa.shape[1]):
            aa[i, j] += aa[i - 1, j] + aa[i, j - 1]


def conditional_reset(a, b, c):
    s = 0.0
    for i in range(a.shape[0]):
        s = b[i] if c[i] > 0.0 else s + b[i]
        a[i] = s


def guarded_by_state(a, b):
    s = 0.0
    for i in range(a.shape[0]):
        if s < 30.0:
            s += b[i] * b[i]
        a[i] = s


KNOWN: dict[Callable[..., Any], dict[str, str]] = {
    third_order: {"i": "scan (affine, 3 cells, element state)"},
    fifth_order: {"i": "sequential (wide state)"},
    interleaved: {"i": "scan (affine, array state)"},
    logistic: {"i": "sequential (no algebra)"},
    quotient: {"i": "sequential (no algebra)"},
    limited: {"i": "scan (clamp)"},
    running_maximum: {"i": "scan (clamp)"},
    # how often a maximum was broken depends on the order, so it is no part of a reduction
    records: {"i": "scan (clamp, sum)"},
    horner: {"i": "reduction (affine)"},
    all_positive: {"i": "reduction (logic)"},
    histogram: {"i": "reduction (sum, array state)"},
    histogram_read: {"i": "scan (sum, array state)"},
    scatter: {"i": "parallel (last value)"},
    private_array: {"i": "parallel", "k": "parallel", "j": "reduction (sum, element state)"},
    shifted: {"i": "parallel (renaming)"},
    wave: {"i": "sequential (wide state)", "j": "scan (sum, element state)"},
    conditional_reset: {"i": "scan (affine)"},
    guarded_by_state: {"i": "sequential (no algebra)"},
}


def _case(function: Callable[..., Any]) -> Case:
    names = function.__code__.co_varnames[: function.__code__.co_argcount]

    def draw(generator: random.Random) -> Arrays:
        shapes = {"aa": (7, 8), "out": (1,)}
        return {
            name: subscripts(generator, 21, 6) if name == "ip" else values(generator, *shapes.get(name, (21,)))
            for name in names
        }

    return Case(function, draw)


@pytest.mark.parametrize("function", KNOWN, ids=lambda f: f.__name__)
def test_the_oracle_knows_a_loop_by_what_it_does(function: Callable[..., Any]) -> None:
    assert {var: str(finding) for var, finding in find(_case(function)).items()} == KNOWN[function]


@pytest.mark.parametrize("function", [second_of_two, chase], ids=lambda f: f.__name__)
def test_what_depends_on_the_order_is_no_reduction(function: Callable[..., Any]) -> None:
    assert find(_case(function))["i"].kind in ("scan", "sequential")


def test_a_loop_of_few_iterations_is_not_judged() -> None:
    short = Case(shifted, lambda generator: {"a": values(generator, 3)})
    with pytest.raises(ValueError, match="too few iterations"):
        find(short)


def test_a_finding_survives_its_golden_line() -> None:
    assert expected("tsvc", "s322") == {"i": Finding("scan", ("affine", "2 cells", "element state"))}
    assert expected("tsvc", "s000") == {"i": Finding("parallel")}


# ---------------------------------------------------------------- the analysis against the oracle, on random programs


@pytest.mark.fuzz
@examples(8)
@given(st.integers(0, 10**6))
def test_no_verdict_of_a_random_program_claims_more_than_there_is(seed: int) -> None:
    program = generate(seed)
    function = compiled(program.source, f"<program {seed} for the oracle>")
    runs = []
    for k, size in enumerate(({"n": 5, "m": 6, "d": 4}, {"n": 6, "m": 5, "d": 4})):
        sizes = {"n": 6, "m": 6, "d": 4} if program.square else size
        runs.append(dict(zip(program.parameters, map(_whole, arguments(program, sizes, k)), strict=True)))
    types = argument_types(read_signature(function), list(runs[0].values()))
    try:
        parsed = parse(function, dict(zip(program.parameters, types, strict=True)))
        # the oracle takes a scalar for an induction variable only if it starts with the same value in every run
        # and knows no sums that are repaired when a running value changes
        judged = [v for v in schedule(parsed).loops if not any(r.startswith("induction:") for r in v.requires)]
        judged = [v for v in judged if not any(u.repair for u in v.updates)]
        verdicts = {v.var: v.kind for v in judged}
        loops = [s for s in walk(parsed.body) if isinstance(s, For) and s.var in verdicts]
        found = {loop.var: judge(parsed, loop, runs)[0] for loop in loops}
    except (WeftError, IndexError, OverflowError):
        return  # refused, or it leaves an array, or squares a number too often: there is nothing to judge
    # by their values alone it cannot pair an extremum with what is taken with it, where that is always the same value
    paired = {v.var for v in judged if any(u.algebra.startswith("arg") for u in v.updates)}
    claimed = {
        var: (verdicts[var], str(f))
        for var, f in found.items()
        if KINDS.index(verdicts[var]) < KINDS.index(f.kind) and not (var in paired and {"clamp", "select"} <= {*f.needs})
    }
    assert claimed == {}, program.source


def _whole(value: Any) -> Any:
    """The argument with integers for its elements, which keeps exact arithmetic short."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return (value * 8).round().nan_to_num(3.0, 9.0, -9.0)
    return 2.0 if isinstance(value, float) and not abs(value) < 1e9 else value
