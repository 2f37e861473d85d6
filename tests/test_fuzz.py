"""Random programs: what weft computes is what the plain Python computes, and what it refuses it refuses by name.

A sample of what `python -m tests.fuzz` looks at, a failure made small. `pytest -m fuzz --programs 2000` runs that many through
the compiler of the machine, two and a half times as many gradients against autograd's, and ten times as many verdicts against
what they claim.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace

import pytest
import torch

from tests import fuzz_gradients, fuzz_mechanisms, fuzz_oracle, fuzz_reference, mechanisms
from tests.fuzz import Outcome, Tally
from tests.fuzz_batch import Batch
from tests.fuzz_mixed import MixedProgram, program_of
from tests.fuzz_oracle import Mismatch, Road, check
from tests.fuzz_programs import Program, generate
from tests.fuzz_programs import compiled as compiled_function
from tests.fuzz_shrink import shrink
from weft.errors import WeftError
from weft.loops.ir import Const, Expr, Function, Load, Op, Stmt, map_statement, rewrite
from weft.loops.schedule import Wrapped
from weft.loops.types import INT64

pytestmark = [pytest.mark.fuzz, pytest.mark.usefixtures("quickly_compiled")]

_CHUNK = 10
_KERNELS, _SCHEDULES, _PARTS, _GRADIENTS, _MECHANISMS = 10, 30, 10, 10, 5  # in the ordinary suite
_SCHEDULES_A_KERNEL = 10  # where a number of kernels is asked for: no compiler runs
_GRADIENTS_A_KERNEL = 2.5  # of few of them kernels are made
_MOST_REFUSED = 0.5  # of a chunk; about 8 in 100 are


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    asked = metafunc.config.getoption("--programs")
    if "first" in metafunc.fixturenames:
        usual, each = {
            "test_random_programs_as_kernels": (_KERNELS, 1.0),
            "test_random_programs_of_many_dtypes": (_KERNELS, 1.0),
            "test_random_mechanisms": (_MECHANISMS, 0.1),
            "test_random_gradients": (_GRADIENTS, _GRADIENTS_A_KERNEL),
            "test_random_programs_taken_apart_around_loops_in_order": (_PARTS, _SCHEDULES_A_KERNEL),
        }.get(metafunc.function.__name__, (_SCHEDULES, _SCHEDULES_A_KERNEL))
        count = int(each * asked) if asked else usual
        metafunc.parametrize("first", range(0, count, _CHUNK))


def _check_all(seeds: range, road: Road, tries: int) -> None:
    outcomes: Counter[str] = Counter()
    refusals: list[tuple[int, WeftError]] = []
    for seed in seeds:
        program = generate(seed)
        try:
            result = check(program, road)
        except Mismatch as mismatch:
            pytest.fail(_report(program, road, mismatch, tries), pytrace=False)
        outcomes[result.outcome] += 1
        if result.refusal is not None:
            refusals.append((seed, result.refusal))
    told = "\n".join(f"{seed}: {error}" for seed, error in refusals)
    assert outcomes["refused"] <= _MOST_REFUSED * len(seeds), f"too many programs are refused:\n{told}"


def _report(program: Program, road: Road, mismatch: Mismatch, tries: int) -> str:
    kind = str(mismatch)[:10]

    def fails(candidate: Program) -> bool:
        try:
            check(candidate, road)
        except Mismatch as again:
            return str(again)[:10] == kind
        return False

    small = shrink(program, fails, tries)
    try:
        check(small, road)
    except Mismatch as again:
        mismatch = again
    return f"program {program.seed} ({program.dtype}), by the {road}: {mismatch}\n\n{small.source}"


compiled = pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler")


@compiled
def test_random_programs_as_kernels(first: int) -> None:
    _check_all(range(first, first + _CHUNK), "kernel", tries=100)


@compiled
def test_random_programs_of_many_dtypes(first: int) -> None:
    """The odd seeds: narrow integers, rounding stores, subscripts from memory, shared storage, names of several kinds."""
    found: dict[int, str] = {}

    def look(seed: int) -> None:
        try:
            found[seed] = check(program_of(seed), "kernel").outcome
        except Mismatch as mismatch:
            found[seed] = str(mismatch)

    seeds = [200_001 + 2 * k for k in range(first, first + _CHUNK)]
    batch = Batch()
    with batch.installed():
        batch.map(look, seeds, len(seeds))
    assert batch.units < len(seeds)
    for seed in seeds:
        if found[seed] not in ("equal", "refused", "skipped"):
            pytest.fail(_report(program_of(seed), "kernel", Mismatch(found[seed]), tries=100), pytrace=False)
    assert list(found.values()).count("refused") <= _MOST_REFUSED * len(seeds)


def test_random_programs_as_schedules_in_any_order(first: int) -> None:
    """Loops called parallel, reductions that commute, and iterations of scans that are given their states, give the same in a
    random order; every update is the element that it claims to be.
    """
    _check_all(range(100_000 + first, 100_000 + first + _CHUNK), "schedule", tries=1000)


def test_random_programs_taken_apart_around_loops_in_order(first: int) -> None:
    """The same with each nest in parts: what stays in order around other loops is a loop around schedules of its own."""
    _check_all(range(300_000 + first, 300_000 + first + _CHUNK), "parts", tries=1000)


BACKWARDS = """
import torch
def program(x, c):
    n, m = x.shape
    y = torch.zeros_like(x)
    for i in range(n):
        h = 0.0
        for j in range(m):
            h = 0.5 * h + x[i, j - 1]
            y[i, j] = h
    return y
"""


def test_schedules_count_subscripts_below_zero_from_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that means another element is seen."""
    program = Program(3, BACKWARDS, "float64")
    assert check(program, "schedule").outcome == "equal"
    right = fuzz_oracle.wrapped

    def last_but_one(function: Function, axes: Wrapped) -> Function:
        return right(replace(function, body=_shifted(function.body)) if axes else function, axes)

    monkeypatch.setattr(fuzz_oracle, "wrapped", last_but_one)
    with pytest.raises(Mismatch):
        check(program, "schedule")


def _shifted(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Statements that read the element before the one that they should."""

    def before(e: Expr) -> Expr | None:
        if not isinstance(e, Load):
            return None
        return replace(e, index=(*e.index[:-1], Op("sub", (e.index[-1], Const(1, INT64)), INT64)))

    return tuple(map_statement(s, lambda e: rewrite(e, before), _shifted) for s in body)


TOLD_WRONG = {
    "a float64 result that float32 sums of integers go into": 12325,
    "a maximum from the least int64, which is stored into int16": 12971,
    "an integer that is too large for the half that it meets": 20761,
    "what only the first iteration computes, and others could not": 3183,
}


@pytest.mark.parametrize("seed", TOLD_WRONG.values(), ids=TOLD_WRONG)
def test_schedules_that_were_told_wrong(seed: int) -> None:
    """Programs whose schedules are right, by a meaning or a reference that was not."""
    assert check(program_of(seed), "schedule").outcome == "equal"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_the_reference_rounds_what_pytorch_rounds(dtype: torch.dtype) -> None:
    """Integers and numbers where they meet elements of a half type, and nothing where those are numbers. One operation is
    rounded once, by either.
    """
    values = ("x[i]", "(x[i] if i % 2 else 0.1)", "max(x[i], 3.0)", "-x[i]", "abs(x[i])")
    compares = ("==", "!=", "<", "<=", ">", ">=")
    expressions = [f"{a} {s} {b}" for v in values for s in ("+", "-", "*", "/", "//", "%", *compares)
                   for a, b in ((v, "w[i]"), ("w[i]", v))]  # fmt: skip
    expressions += [f"{v} {s} 0.1" for v in values for s in compares]
    pairs = (("x", "w"), ("x", "w[i]"), ("x[i]", "w"), ("x[1:]", "w[:-1]"))
    expressions += [f"({a} {s} {b})[{k}]" for pair in pairs for s in ("+", "-", "*", "/", "%", *compares)
                    for a, b in (pair, pair[::-1]) for k in (0, -1)]  # fmt: skip
    expressions += [f"(x {s} 0.1)[i]" for s in compares]
    made = "".join(f"        y[i, {k}] = {e}\n" for k, e in enumerate(expressions))
    source = f"def program(x, w):\n    y = torch.zeros(7, {len(expressions) + 7}, dtype=x.dtype)\n    for i in range(7):\n"
    source += made + "        z = x.clone()\n        z[1:] += w[:-1]\n        z[2:4] -= w[i]\n        y[i, -7:] = z\n"
    source += "        w[i] = x[i]\n    return y, w\n"
    expressions += ["what is added in place"] * 7
    x = torch.tensor([3.0, 0.1, -1.0, 2048.0, 258.0, 7.0, -0.1]).to(dtype)
    w = torch.tensor([70000, 2049, -70000, 257, 3, 1, -2049], dtype=torch.int32)
    found, stored, *_ = fuzz_reference.run(MixedProgram(0, source, "mixed", ()), [x, w])
    want, kept = compiled_function(source, "<program>", {"torch": torch})(x, w)
    assert torch.equal(stored, kept)
    differ = ~torch.isclose(found, want, rtol=0, atol=0, equal_nan=True)
    assert not differ.any(), [(expressions[k], i, found[i, k], want[i, k]) for i, k in differ.nonzero().tolist()]


def test_random_gradients(first: int) -> None:
    """First and second derivatives are those of autograd for the plain Python; of some programs as kernels too."""
    found = fuzz_gradients.check_all(range(first, first + _CHUNK), tries=100)
    if found.failures:
        pytest.fail(found.failures[0], pytrace=False)
    told = "\n".join(f"{seed}: {error}" for seed, error in found.refusals)
    assert found.outcomes["refused"] <= _MOST_REFUSED * _CHUNK, f"too many gradients are refused:\n{told}"
    assert found.outcomes["skipped"] < _CHUNK, "autograd follows none of the programs"


def test_what_an_array_hands_back_is_judged_element_by_element() -> None:
    """weft hands back 0 of some arrays, where PyTorch hands back nothing: a derivative may be NaN there, in no other place."""
    nan = float("nan")
    plain = {"gradient 0": torch.tensor([1.0, 0.0]), "second derivative 0": torch.tensor([0.0, 2.0])}
    zeros = {"gradient 0": torch.tensor([nan, 0.0]), "second derivative 0": torch.tensor([nan, 2.0])}
    found = plain | {"second derivative 0": torch.tensor([nan, 2.0])}
    assert fuzz_gradients.difference(plain, found) and fuzz_gradients.difference(zeros, found)
    assert fuzz_gradients.difference(plain, found, zeros) is None
    for wrong in (torch.tensor([1.0, nan]), torch.tensor([0.5, 0.0])):
        assert fuzz_gradients.difference(plain, found | {"gradient 0": wrong}, zeros)


@compiled
@pytest.mark.usefixtures("quickly_compiled")
def test_random_mechanisms(first: int) -> None:
    """Programs for what plans are made of, and their gradients, on operands of any strides and sizes."""
    found: dict[int, str] = {}

    def look(seed: int) -> None:
        try:
            found[seed] = fuzz_mechanisms.check(mechanisms.generate(seed))[0]
        except Mismatch as mismatch:
            found[seed] = f"{mismatch}\n\n{mechanisms.generate(seed).source}"

    batch = Batch()
    with batch.installed():
        batch.map(look, range(first, first + _MECHANISMS), _MECHANISMS)
    wrong = [told for told in found.values() if told not in ("equal", "refused", "skipped")]
    assert len(found) == _MECHANISMS and not wrong, wrong[0]


def test_a_seed_is_a_program() -> None:
    assert generate(17) == generate(17)
    assert generate(17).source != generate(18).source


def test_a_tally_tells_what_is_wrong() -> None:
    tally = Tally()
    for seed in range(7):
        tally.add(Outcome(seed, "equal", seconds=0.1 * seed))
    tally.add(Outcome(7, "refused", "OutOfRange: f reads x outside"))
    assert tally.good
    assert "7 equal, 1 refused" in str(tally) and "refused: 1 OutOfRange" in str(tally)
    assert "0.60 s (program 6), 0.50 s (program 5)" in str(tally)
    tally.add(Outcome(8, "equal", seconds=11.0))
    assert not tally.good
    tally = Tally()
    tally.add(Outcome(9, "mismatch", "1, the Python gives 2", "def program(x): ..."))
    assert not tally.good and "wrong: 9 (mismatch)" in str(tally)
