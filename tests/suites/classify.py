"""The suites, what the oracle found for them, and how much of it the analysis finds.

The oracle takes minutes, so its findings are kept in tests/golden/suites; `python -m tests.suites --update` makes them anew.
"""

from __future__ import annotations

import inspect
import random
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import weft
from tests.fuzz_oracle import replay
from tests.suites import polybench, tsvc
from tests.suites.case import Case
from tests.suites.oracle import KINDS, Finding, Kind, find
from weft.language import infer_types, parse
from weft.loops.analyze import schedule
from weft.loops.interpret import interpret
from weft.loops.ir import Function
from weft.loops.schedule import Verdict

GOLDEN = Path(__file__).parent.parent / "golden" / "suites"
SUITES: dict[str, dict[str, Case]] = {"tsvc": tsvc.SUITE, "polybench": polybench.SUITE}
# Inputs that the oracle draws for each setting of a case. The control of most of PolyBench depends on sizes alone.
DRAWS = {"tsvc": 3, "polybench": 2}

# ---------------------------------------------------------------- what the oracle found


def digest(case: Case) -> str:
    """A fingerprint of what a finding depends on, up to the oracle itself: the text of the program and its inputs."""
    drawn = [{k: v.tolist() if isinstance(v, torch.Tensor) else v for k, v in a.items()} for a in case.arguments(1)]
    return f"{zlib.crc32(f'{inspect.getsource(case.function)}{drawn}'.encode()):08x}"


def written(case: Case, found: dict[str, Finding]) -> str:
    """The lines of the golden file for one case."""
    return "".join([f"{case.name} {digest(case)}\n", *(f"    {var}: {finding}\n" for var, finding in found.items())])


def golden(suite: str) -> dict[str, str]:
    """The lines of each case, by its name."""
    lines: dict[str, str] = {}
    name = ""
    for line in (GOLDEN / f"{suite}.txt").read_text().splitlines(keepends=True):
        if not line.startswith(" "):
            name = line.split()[0]
        lines[name] = lines.get(name, "") + line
    return lines


def update(suite: str, names: list[str]) -> None:
    """Ask the oracle about some cases (all of them where none is named) and keep what it says."""
    path = GOLDEN / f"{suite}.txt"
    lines = golden(suite) if path.is_file() else {}
    for name, case in SUITES[suite].items():
        if not names or name in names:
            lines[name] = written(case, find(case, DRAWS[suite]))
            print(lines[name], end="", flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines[name] for name in SUITES[suite] if name in lines))


def expected(suite: str, name: str) -> dict[str, Finding]:
    """The class of every loop of a case, by loop variable, as the oracle found it when its golden file was made."""
    found: dict[str, Finding] = {}
    for line in golden(suite)[name].splitlines()[1:]:
        var, _, text = line.strip().partition(": ")
        kind, _, needs = text.partition(" (")
        found[var] = Finding(kind, tuple(needs.rstrip(")").split(", ")) if needs else ())  # type: ignore[arg-type]
    return found


# ---------------------------------------------------------------- what the analysis finds


@dataclass(frozen=True)
class Judgement:
    """One loop: what the oracle and the analysis say; found is None where the analysis fails, with the failure in why."""

    program: str
    var: str
    true: Finding
    found: Kind | None
    why: str = ""

    @property
    def unsound(self) -> bool:
        """The analysis claims more freedom than there is."""
        return self.found is not None and KINDS.index(self.found) < KINDS.index(self.true.kind)

    @property
    def reached(self) -> bool:
        return self.found == self.true.kind

    def __str__(self) -> str:
        return f"{self.program} {self.var}: {self.true}, the analysis says {self.found or 'nothing'} ({self.why})"


def judgements(suite: str) -> list[Judgement]:
    """Every loop of a suite."""
    out: list[Judgement] = []
    for name, case in SUITES[suite].items():
        true = expected(suite, name)
        try:
            analysis = weft.analyze(case.function)
            loops = analysis.loops
            if not all(_satisfies(analysis.schedule.function, a) for a in case.arguments(1)):
                # the oracle saw calls that take the other analysis
                loops = {v.var: v for v in schedule(parse(case.function, infer_types(case.function))).loops}
        except Exception as error:  # whatever it is: the analysis found nothing
            why = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            out += [Judgement(name, var, finding, None, why) for var, finding in true.items()]
            continue
        none = Verdict("", "parallel", why="the loop was dropped: nothing depends on it")
        for var, finding in true.items():
            verdict = loops.get(var, none)
            out.append(Judgement(name, var, finding, verdict.kind, verdict.why))
    return out


def _satisfies(function: Function, arguments: dict[str, Any]) -> bool:
    """Whether a call is one of those that a function is for."""
    if function.assumption is None:
        return True
    names = {n: a for n, a in arguments.items() if isinstance(a, int)}
    names |= {z.name: arguments[z.array].shape[z.axis] for z in function.sizes}
    return bool(eval(function.assumption.condition, {}, names))


def wrong(case: Case) -> str:
    """What differs where the schedule of a case is executed, all that it calls free of order in a random order; "" if
    nothing does, or if there is no schedule.
    """
    try:
        function = parse(case.function, infer_types(case.function))
        found = weft.analyze(case.function).schedule
    except Exception:
        return ""
    for seed, arguments in enumerate(case.arguments(1)):
        given = [arguments[name] for name in function.parameters]
        if not _satisfies(found.function, arguments):
            continue  # a call of these arguments takes the other analysis
        ours, theirs = ([a.clone() if isinstance(a, torch.Tensor) else a for a in given] for _ in range(2))
        interpret(function, *theirs)
        try:
            replay(function, found, ours, random.Random(seed))
            for name, a, b in zip(function.parameters, ours, theirs, strict=True):
                if isinstance(a, torch.Tensor):
                    torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6, equal_nan=True, msg=f"{name} differs")
        except Exception as error:  # a Mismatch, a difference, or a schedule that cannot be executed at all
            return f"{case.name}: {type(error).__name__}: {str(error).splitlines()[0]}"
    return ""


def report(suite: str) -> str:
    """The score of the analysis: the matrix of oracle and analysis, what is unsound, and what it misses, by what it needs."""
    loops = judgements(suite)
    count = Counter((j.true.kind, j.found) for j in loops)
    columns: tuple[Any, ...] = (*KINDS, None)
    width = 12
    lines = [f"{suite}: {len(SUITES[suite])} programs, {len(loops)} loops", ""]
    lines.append("oracle \\ analysis".ljust(18) + "".join((c or "failed").rjust(width) for c in columns))
    for kind in KINDS:
        lines.append(kind.ljust(18) + "".join(str(count[kind, c] or ".").rjust(width) for c in columns))
    reached = sum(j.reached for j in loops)
    free = [j for j in loops if j.true.kind != "sequential"]
    freed = sum(j.found not in (None, "sequential") for j in free)
    whole = {j.program for j in loops} - {j.program for j in loops if not j.reached}
    lines += [
        "",
        f"as the oracle      {reached} of {len(loops)} loops ({reached / len(loops):.1%})",
        f"not sequential     {freed} of the {len(free)} that need not be ({freed / len(free):.1%})",
        f"whole programs     {len(whole)} of {len(SUITES[suite])} ({len(whole) / len(SUITES[suite]):.1%})",
        "",
    ]
    unsound = [str(j) for j in loops if j.unsound]
    lines += [f"unsound: {len(unsound)}", *(f"    {text}" for text in unsound)]
    failed = [w for case in SUITES[suite].values() if (w := wrong(case))]
    lines += [f"schedules that compute something else: {len(failed)}", *(f"    {text}" for text in failed)]
    missed: dict[str, list[str]] = {}
    for j in loops:
        if not j.reached and not j.unsound:
            text = f"{j.program}.{j.var}" + ("" if j.found == "sequential" else f" [{j.found or 'failed'}]")
            missed.setdefault(str(j.true), []).append(text)
    lines.append(f"missed: {sum(map(len, missed.values()))}, by what they are and need")
    lines += [f"    {need}: {', '.join(names)}" for need, names in sorted(missed.items(), key=lambda m: -len(m[1]))]
    return "\n".join(lines)
