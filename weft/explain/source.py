"""The user's source as a page shows it: the functions that statements come from, line by line, in their loops."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from weft.errors import Location
from weft.explain.explained import Explained
from weft.loops.graph import DependenceGraph
from weft.loops.schedule import Verdict

_DEFINITION = re.compile(r"\s*(async\s+)?def\s")


@dataclass(frozen=True)
class Line:
    """A line of a file. rails: the loops around it, outermost first. verdicts: of the loops that begin here. statements:
    the labels of those that stand here. quoted: it is part of a documentation text.
    """

    number: int
    text: str
    rails: tuple[Verdict, ...]
    verdicts: tuple[Verdict, ...]
    statements: tuple[str, ...]
    quoted: bool


@dataclass(frozen=True)
class Passage:
    """A function of a file."""

    file: str
    lines: tuple[Line, ...]


def passages(explained: Explained) -> tuple[Passage, ...]:
    """The function, and those it inlines."""
    graph = explained.graph
    located = [explained.written.location, *(s.location for s in graph.statements), *(v.location for v in explained.loops)]
    return tuple(_passage(file, first, last, explained.loops, graph) for file, first, last in _functions(located))


def _functions(locations: Iterable[Location | None]) -> list[tuple[str, int, int]]:
    """(file, first line, last line) of the functions that hold some places, in their order."""
    found: dict[tuple[str, int], tuple[str, int, int]] = {}
    for place in locations:
        lines = linecache.getlines(place.file) if place is not None else []
        if place is None or not 0 < place.line <= len(lines):
            continue
        first = _definition(lines, place.line)
        last = max(_end(lines, first), place.line)
        found[place.file, first] = (place.file, first, max(last, found.get((place.file, first), ("", 0, 0))[2]))
    return list(found.values())


def _definition(lines: Sequence[str], number: int) -> int:
    """The line of the `def` around a line."""
    indent = _indent(lines[number - 1]) + 1 if _DEFINITION.match(lines[number - 1]) else _indent(lines[number - 1])
    for k in range(number, 0, -1):
        if _DEFINITION.match(lines[k - 1]) and _indent(lines[k - 1]) < indent:
            return k
    return number


def _end(lines: Sequence[str], number: int) -> int:
    """The last line of the block that a line opens: what is indented more than it."""
    last = number
    for k in range(number + 1, len(lines) + 1):
        text = lines[k - 1]
        if text.strip() and _indent(text) <= _indent(lines[number - 1]) and not text.lstrip().startswith((")", "]", "}", "#")):
            break
        last = k if text.strip() else last
    return last


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _at(location: Location | None, file: str, number: int) -> bool:
    return location is not None and (location.file, location.line) == (file, number)


def _passage(file: str, first: int, last: int, loops: Sequence[Verdict], graph: DependenceGraph) -> Passage:
    lines = linecache.getlines(file)
    spans = []
    for v in loops:
        if v.location is not None and v.location.file == file:
            begins = v.location.line
            opens = re.match(r"\s*for\s", lines[begins - 1])
            spans.append((v, begins, _end(lines, begins) if opens else begins))
    common = min((_indent(t) for t in lines[first - 1 : last] if t.strip()), default=0)
    out = []
    quoted = False
    for number in range(first, last + 1):
        text = lines[number - 1]
        fences = len(re.findall(r'"""|\'\'\'', text))
        around = [v for v, low, high in spans if low <= number <= high]
        here = tuple(v for v, low, _ in spans if low == number)
        labels = [s.label for s in graph.statements if _at(s.location, file, number)]
        out.append(Line(number, text.rstrip()[common:], tuple(around), here, tuple(labels), quoted or fences > 0))
        quoted = quoted != (fences % 2 == 1)
    return Passage(file, tuple(out))
