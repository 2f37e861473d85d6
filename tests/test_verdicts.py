"""What the verdict of a loop tells people: the dependence in its way, two iterations that show it, and a remedy that helps."""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.suites.classify import SUITES
from weft.analysis import LoopAnalysis
from weft.loops.analyze import schedule
from weft.loops.automatic.guards import guarded
from weft.loops.ir import Expr, For, Function, Load, Stmt, map_statement, rewrite
from weft.loops.schedule import Evidence, Verdict


def test_the_sentence_names_both_statements_the_distance_and_two_iterations() -> None:
    def smoothed(a, b):
        for i in range(1, a.shape[0]):
            a[i] = math.sin(b[i]) + 1.0
            b[i] = a[i - 1] * b[i - 1] + math.cos(b[i - 1])

    analysis = weft.analyze(smoothed)
    verdict = analysis.loops["i"]
    first = smoothed.__code__.co_firstlineno + 2
    assert verdict.kind == "sequential"
    said = f"S2 (line {first + 1}) reads b[i - 1], which it wrote an iteration before: RAW at distance (1)"
    assert verdict.why.startswith(said)
    assert "e.g. (i = 1) then (i = 2) with a_size_0 = 3" in verdict.why
    e = verdict.evidence
    assert isinstance(e, Evidence)
    assert (e.kind, e.name, e.source, e.sink, e.loops, e.distance, e.sure) == ("RAW", "b", "S2", "S2", ("i",), (1,), True)
    assert e.witness is not None and (e.witness.first, e.witness.second) == ((("i", 1),), (("i", 2),))


def test_of_several_reads_the_one_that_collides_is_named() -> None:
    def relaxed(a):
        for i in range(1, a.shape[0] - 1):
            a[i] = math.sin(a[i + 1]) + math.sin(a[i - 1])

    assert "reads a[i - 1], which it wrote an iteration before" in weft.analyze(relaxed).loops["i"].why


def test_two_statements_of_a_cycle_are_told_apart() -> None:
    def relay(a, b):
        for i in range(2, a.shape[0]):
            a[i] = math.tanh(b[i - 2])
            b[i] = math.tanh(a[i])

    verdict = weft.analyze(relay).loops["i"]
    first = relay.__code__.co_firstlineno + 2
    assert verdict.evidence is not None and (verdict.evidence.source, verdict.evidence.sink) == ("S2", "S1")
    assert f"S1 (line {first}) reads b[i - 2], which S2 (line {first + 1}) wrote 2 iterations before" in verdict.why


def test_a_scalar_says_why_no_algebra_has_it_and_what_it_waits_for() -> None:
    def logistic(x):
        y = torch.empty_like(x)
        h = 0.5
        for l in range(x.shape[0]):
            h = 3.5 * h * (1.0 - h) + x[l]
            y[l] = h
        return y

    verdict = weft.analyze(logistic).loops["l"]
    assert verdict.evidence is not None and verdict.evidence.name == "h" and verdict.evidence.distance == (1,)
    assert "reads h, which it wrote an iteration before: RAW at distance (1), e.g. (l = 0) then (l = 1)" in verdict.why


def test_what_cannot_be_excluded_is_no_certainty() -> None:
    def scattered(x, index):
        y = torch.zeros_like(x)
        for i in range(x.shape[0]):
            y[int(index[i])] = x[i]
        return y

    verdict = weft.analyze(scattered).loops["i"]
    assert verdict.evidence is not None and not verdict.evidence.sure
    assert "which it may have written in an earlier iteration" in verdict.why and "if that is the same element" in verdict.why


def test_a_scalar_that_a_branch_decides_has_a_witness_too() -> None:
    def now_and_then(x):
        h = 0.5
        for i in range(x.shape[0]):
            if x[i] > 0:
                h = math.sin(h) * h
            x[i] = h

    verdict = weft.analyze(now_and_then).loops["i"]
    assert verdict.evidence is not None and verdict.evidence.name == "h" and verdict.evidence.witness is not None
    assert "reads h, which" in verdict.why and "e.g. (i = 0) then (i = 1)" in verdict.why and "element" not in verdict.why


def test_a_loop_that_counts_down_counts_its_iterations() -> None:
    def back(a):
        for i in range(a.shape[0] - 5, -1, -2):
            a[i] = math.tanh(a[i + 4])

    verdict = weft.analyze(back).loops["i"]
    assert "wrote 2 iterations before: RAW at distance (4)" in verdict.why


def test_compiling_asks_for_no_evidence() -> None:
    def relaxed(a):
        for i in range(1, a.shape[0]):
            a[i] = math.sin(a[i - 1])

    found = weft.analyze(relaxed).schedule
    assert [v.evidence for v in found.loops] == [None]


@given(
    st.integers(-3, 3), st.integers(-3, 3), st.sampled_from([1, 2, -1, -2]), st.integers(1, 3), st.integers(0, 3)
)  # fmt: skip
def test_the_witness_collides(write: int, read: int, step: int, factor: int, low: int) -> None:
    """Both iterations are of the loop, in its order, as far apart as it says, and touch one element of the array."""
    bounds = f"{low}, a.shape[0] - 3" if step > 0 else f"a.shape[0] - 4, {low - 1}"
    body = f"a[{factor} * i + {write}] = math.sin(a[{factor} * i + {read}])"
    verdict = weft.analyze(f"def shifted(a):\n    for i in range({bounds}, {step}):\n        {body}\n").loops["i"]
    apart = (write - read) / factor / step  # iterations from the write to the read
    assert (verdict.kind == "sequential") == (apart == int(apart) and apart > 0), verdict
    e = verdict.evidence
    if e is None:
        return
    assert e.witness is not None and e.sure and e.kind == "RAW" and e.distance == (abs((write - read) // factor),)
    ((_, n),), ((_, first),), ((_, second),) = e.witness.sizes, e.witness.first, e.witness.second
    iterations = list(range(low, n - 3, step)) if step > 0 else list(range(n - 4, low - 1, step))
    assert iterations.index(second) - iterations.index(first) == apart
    assert factor * first + write == factor * second + read


@functools.cache
def analyses(suite: str) -> dict[str, LoopAnalysis]:
    """The programs of a suite that are in the language."""
    found = {}
    for name, case in SUITES[suite].items():
        with contextlib.suppress(weft.errors.WeftError):
            found[name] = weft.analyze(case.function)
    return found


def _sequential(analysis: LoopAnalysis) -> list[Verdict]:
    return [v for v in analysis.loops.values() if v.kind == "sequential"]


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES)
def test_every_sequential_loop_of_the_suites_has_evidence_among_the_dependences(suite: str) -> None:
    told = 0
    for name, analysis in analyses(suite).items():
        for verdict in _sequential(analysis):
            e = verdict.evidence
            assert e is not None, f"{name} {verdict.var}: {verdict.why}"
            kinds = ("flow",) if e.kind == "RAW" else (e.kind,)
            same = [
                d for d in analysis.dependences
                if (d.name, d.source, d.sink, d.distance) == (e.name, e.source, e.sink, e.distance) and d.kind in kinds
            ]  # fmt: skip
            assert same and verdict.var in e.loops, f"{name} {verdict.var}: {verdict.why}"
            assert re.search(rf"\b{e.sink} \(line \d+\)", verdict.why) and f"{e.kind} at distance (" in verdict.why
            assert e.witness is not None and "e.g. (" in verdict.why, f"{name} {verdict.var}: {verdict.why}"
            if e.sure:
                told += 1
                ends = dict(e.witness.first), dict(e.witness.second)
                for var, d in zip(e.loops, e.distance, strict=True):
                    moved = ends[1][var] - ends[0][var]
                    assert not isinstance(d, int) or abs(moved) == abs(d), f"{name} {verdict.var}: {verdict.why}"
    assert told


# ---------------------------------------------------------------- remedies: what is said, and what happens when it is done


def scatter(x, index):
    y = torch.zeros_like(x)
    for i in range(x.shape[0]):
        y[int(index[i])] = x[i]
    return y


def gather(x, index):
    y = torch.zeros_like(x)
    for j in range(x.shape[0]):
        last = 0.0
        for i in range(x.shape[0]):
            last = x[i] if index[i] == j else last
        y[j] = last
    return y


def gauss_seidel(a):
    for i in range(1, a.shape[0] - 1):
        a[i] = math.sin(a[i - 1]) + a[i + 1]


def jacobi(a):
    old = a.clone()
    for i in range(1, a.shape[0] - 1):
        a[i] = math.sin(old[i - 1]) + old[i + 1]


def drops_nan(x):
    y = torch.zeros(1)
    m = -math.inf
    for i in range(x.shape[0]):
        m = max(x[i], m)
    y[0] = m
    return y


def keeps_largest(x):
    y = torch.zeros(1)
    m = -math.inf
    for i in range(x.shape[0]):
        m = max(m, x[i])
    y[0] = m
    return y


def unscaled(x):
    y = torch.zeros(1)
    m = -math.inf
    total = 0.0
    for i in range(x.shape[0]):
        m = max(m, x[i])
        total = total + math.exp(x[i] - m)
    y[0] = total
    return y


def rescaled(x):
    y = torch.zeros(1)
    m = -math.inf
    total = 0.0
    for i in range(x.shape[0]):
        new = max(m, x[i])
        total = total * math.exp(m - new) + math.exp(x[i] - new)
        m = new
    y[0] = total
    return y


REMEDIES = [
    (scatter, "i", "loop over the elements of y instead, and let each collect what belongs to it", gather, "j"),
    (gauss_seidel, "i", "read a copy: old = a.clone() before the loop, old[i - 1] and so on in it", jacobi, "i"),
    (drops_nan, "i", "write max(m, x[i])", keeps_largest, "i"),
    (unscaled, "i", "rescale total when m grows", rescaled, "i"),
]


@pytest.mark.parametrize(("before", "var", "remedy", "after", "other"), REMEDIES, ids=lambda v: getattr(v, "__name__", ""))
def test_a_remedy_followed_changes_the_verdict(
    before: Callable[..., Any], var: str, remedy: str, after: Callable[..., Any], other: str
) -> None:
    stuck, freed = weft.analyze(before).loops[var], weft.analyze(after).loops[other]
    assert remedy in stuck.remedy, stuck
    assert (freed.kind, freed.algebra) != (stuck.kind, stuck.algebra) and freed.kind != "sequential", freed
    assert not freed.remedy


def reading_a_copy(function: Function, var: str, name: str) -> Function:
    """The function whose loop `var` reads another array in place of one."""

    def read(e: Expr) -> Expr:
        return rewrite(e, lambda x: Load("old", x.index, x.type) if isinstance(x, Load) and x.array == name else None)

    def block(body: tuple[Stmt, ...], inside: bool) -> tuple[Stmt, ...]:
        out = []
        for s in body:
            here = inside or (isinstance(s, For) and s.var == var)
            out.append(map_statement(s, read if here else lambda e: e, lambda b, here=here: block(b, here)))
        return tuple(out)

    old = replace(function.array(name), name="old", role="local")
    return replace(function, arrays=(*function.arrays, old), body=block(function.body, False))


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES)
def test_reading_a_copy_frees_every_loop_of_the_suites_that_is_told_to(suite: str) -> None:
    told = 0
    for name, analysis in analyses(suite).items():
        for verdict in _sequential(analysis):
            if verdict.remedy.startswith("if it is meant to read"):
                assert verdict.evidence is not None
                copied = reading_a_copy(analysis.function, verdict.var, verdict.evidence.name)
                kinds = {v.var: v.kind for v in schedule(guarded(copied)).loops}
                assert kinds[verdict.var] != "sequential", f"{name} {verdict.var}: {verdict.remedy}"
                told += 1
    assert told


@pytest.mark.parametrize(
    ("before", "after", "arguments"),
    [
        (scatter, gather, (torch.arange(6.0) + 1.0, torch.tensor([3, 0, 3, 5, 0, 2]))),
        (drops_nan, keeps_largest, (torch.tensor([1.0, 4.0, -2.0]),)),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_a_remedy_that_keeps_the_meaning_keeps_the_result(
    before: Callable[..., Any], after: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    torch.testing.assert_close(before(*arguments), after(*arguments))
    torch.testing.assert_close(before(*arguments), weft.kernel(after)(*arguments))


def test_an_element_whose_update_no_algebra_has_gets_no_such_remedy() -> None:
    def squared(x):
        rows, keys = x.shape
        out = torch.empty(rows, 4)
        for i in range(rows):
            acc = torch.zeros(4)
            for j in range(keys):
                score = 0.0
                for d in range(keys):
                    score = score + x[i, d] * x[i, j]
                for e in range(4):
                    acc[e] = math.sin(acc[e]) + score
            for e in range(4):
                out[i, e] = acc[e]
        return out

    verdict = weft.analyze(squared).loops["j"]
    assert verdict.kind == "sequential" and verdict.remedy == ""


def test_where_nothing_is_known_to_help_nothing_is_said() -> None:
    def logistic(x):
        h = 0.5
        for l in range(x.shape[0]):
            h = 3.5 * h * (1.0 - h) + x[l]
            x[l] = h

    assert weft.analyze(logistic).loops["l"].remedy == ""
