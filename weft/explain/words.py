"""The words of an explanation: the class of a loop, its cycles and transforms."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft.compiler import Unused
from weft.errors import Location
from weft.loops.ir import For, Function, Stmt, bodies
from weft.loops.schedule import Schedule, Verdict
from weft.loops.show import renamed, show_expr, user_names

_LONGEST = 104  # letters of a line under a loop
_KEPT = "\u00a0"  # a space at which no line ends


def kind_text(verdict: Verdict) -> str:
    """The class of a loop: `scan (affine)`."""
    return f"{verdict.kind} ({', '.join(verdict.algebra)})" if verdict.algebra else verdict.kind


def cycles(verdict: Verdict) -> list[str]:
    """The cycles of a loop: each scalar that an algebra understands is one, what none does is one together."""
    if not verdict.cycle:
        return []
    if verdict.updates:
        return [f"{name} -> {name}" for name in verdict.cycle]
    return [" -> ".join((*verdict.cycle, verdict.cycle[0]))]


def details(verdict: Verdict, function: Function) -> list[tuple[str, str]]:
    """What else there is to say of a loop: (what it is, the words), in the user's names. The first has no name: why."""
    shown = user_names(function)
    found = [("", verdict.why), *(("cycle", cycle) for cycle in cycles(verdict))]
    found += [("transform", transform) for transform in verdict.requires]
    found.append(("remedy", verdict.remedy))
    return [(what, renamed(text, shown)) for what, text in found if text]


def signature_text(function: Function) -> str:
    """`name(x: float32[rows, length], eps: float) -> y: float32[rows, length]`."""
    scalars = {s.name: s.type.category for s in function.scalars}

    def typed(name: str) -> str:
        if name in scalars:
            return f"{name}: {scalars[name]}"
        array = function.array(name)
        if name in function.numbers:
            return f"{name}: {array.dtype.category}"
        return f"{name}: {array.dtype}[{', '.join(map(show_expr, array.shape))}]"

    results = ", ".join(map(typed, function.results))
    return f"{function.name}({', '.join(map(typed, function.parameters))})" + (f" -> {results}" if results else "")


def sizes_text(signature: str, sizes: Mapping[str, object]) -> str:
    """`rows = 64, length = 1024`: the sizes and numbers that a signature names."""
    return ", ".join(f"{n} = {v}" for n, v in sizes.items() if re.search(rf"\b{n}\b", signature))


def loop_lines(schedule: Schedule, detail: bool = True) -> list[str]:
    """For each loop its variable, class, place and source line; with detail, under it why, the cycles, the transforms and
    the remedy.
    """
    depths = _depths(schedule.function.body)
    width = max((len(v.var) for v in schedule.loops), default=1)
    kinds = max((len(kind_text(v)) for v in schedule.loops), default=1)
    places = max((len(place(v.location)) for v in schedule.loops), default=1)
    lines: list[str] = []
    for v in schedule.loops:
        depth, implied = depths.get(v.var, (0, False))
        source = v.location.text().strip() if v.location is not None else ""
        head = f"{v.var:<{width}}  {kind_text(v):<{kinds}}  {place(v.location):<{places}}  {'  ' * depth}{source}"
        lines.append((head + ("  (implied)" if implied else "")).rstrip())
        if detail:
            for what, text in details(v, schedule.function):
                first, *rest = wrapped(f"{what}: {text}" if what else text)
                lines += [f"{'':<{width}}  {first}", *(f"{'':<{width}}    {line}" for line in rest)]
    return lines or ["no loops"]


def double_lines(function: Function) -> list[str]:
    """What is computed in double precision of narrower elements, a line for each place."""
    return [f"{place(w.location)}  {w.text} of {w.dtype} is computed in double: {w.instead}" for w in function.widenings]


def unused_text(unused: Unused) -> str:
    """Which loop is left in order inside a thread, and why."""
    at = place(unused.loop.location)
    there = f" ({place(unused.where)})" if unused.where is not None and place(unused.where) != at else ""
    head = f"{unused.name}{f' ({at})' if at else ''}, {kind_text(unused.loop)}"
    return f"{head}, runs in order inside a thread: {unused.why}{there}"


def unused_lines(found: Sequence[Unused]) -> list[str]:
    """A line for each loop that could run in parallel and does not, with its remedy."""
    return [f"unused parallelism: {unused_text(u)}" + (f"; remedy: {u.remedy}" if u.remedy else "") for u in found]


def unbroken(text: str) -> str:
    """A sentence whose lines do not end inside `(i = 0, j = 1)` or `n = 2`."""
    text = re.sub(r"\([^()]*=[^()]*\)", lambda m: m.group().replace(" ", _KEPT), text)
    return text.replace(" = ", f"{_KEPT}={_KEPT}")


def wrapped(text: str) -> list[str]:
    lines = textwrap.wrap(unbroken(text), _LONGEST, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_KEPT, " ") for line in lines]


def place(location: Location | None) -> str:
    """`file.py:12`."""
    return f"{Path(location.file).name}:{location.line}" if location is not None else ""


def _depths(statements: tuple[Stmt, ...], depth: int = 0) -> dict[str, tuple[int, bool]]:
    """How many loops lie around each loop, and whether it is implied by a slice."""
    found: dict[str, tuple[int, bool]] = {}
    for stmt in statements:
        if isinstance(stmt, For):
            found[stmt.var] = (depth, stmt.implied)
        for body in bodies(stmt):
            found |= _depths(body, depth + isinstance(stmt, For))
    return found
