"""Graphs of rows whose states are scanned along one axis: what is read, the scans that wait for others, what is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weft.graph.needs import by_need
from weft.graph.tile import (
    IN_ORDER,
    Axis,
    Carried,
    Fold,
    NotTiles,
    Read,
    Scan,
    TileGraph,
    Value,
    Write,
    names_of,
    uses,
    uses_of_write,
)
from weft.loops.affine import affine
from weft.loops.algebra.table import ALGEBRAS, EXTREMA
from weft.loops.ir import Expr, free_arrays, free_names


@dataclass(frozen=True)
class Scanned:
    """Every row is a point of `rows`; it is gone through along one axis. values: in order; reads that may leave their arrays
    are those that `ahead` says are looked at whether they are inside, others are written out. levels: scans of one level wait
    for the states of those before. folds: over the same axis. writes: at each point; last: once a row.
    """

    axes: Mapping[str, Axis]
    rows: tuple[str, ...]
    along: str
    reverse: bool
    values: tuple[Value, ...]
    levels: tuple[tuple[Scan, ...], ...]
    folds: tuple[Fold, ...]
    writes: tuple[Write, ...]
    last: tuple[Write, ...]

    @property
    def scans(self) -> tuple[Scan, ...]:
        return tuple(s for level in self.levels for s in level)

    @property
    def bounded(self) -> bool:
        """Whether rows are not all as long."""
        axis = self.axes[self.along]
        own = {n for v in self.values for n in names_of(v)} | self.axes.keys()
        return bool((free_names(axis.start) | free_names(axis.stop)) & own)


def ahead(read: Read, axes: Mapping[str, Axis]) -> bool:
    """Whether a read can be made before it is known that it is needed, where it is inside: axes alone decide which it is."""
    forms = [affine(i) for i in read.index]
    values = {n for i in read.index for n in free_names(i)} - axes.keys()
    return not read.checked and all(f is not None for f in forms) and not any("." in n for n in values)


def scanned(graph: TileGraph) -> Scanned:
    """The scans of a graph. Raises NotTiles where it is made of something else, or of more."""
    stored = {w.array for w in graph.writes}
    axes = {a.name: a for a in graph.axes}
    made = graph.made.keys()

    def early(read: Read) -> bool:
        alone = not any(free_names(i) & made for i in read.index)
        return read.array not in stored and alone and ahead(read, axes)

    graph = by_need(graph, early)
    scans = [v for v in graph.values if isinstance(v, Scan)]
    folds = [v for v in graph.values if isinstance(v, Fold)]
    if not scans:
        raise NotTiles("nothing is scanned")
    if graph.copied:
        raise NotTiles(f"{graph.copied[0]} is read at other elements than it is written at")
    first = scans[0]
    for value in (*scans, *folds):
        _known(value, first)
    (along,) = first.over
    common = set.intersection(*(set(v.axes) for v in (*scans, *folds)), *(set(w.axes) for w in graph.writes)) - {along}
    rows = tuple(a for a in axes if a in common)
    for value in (*scans, *folds):
        if set(value.axes) != common:
            raise NotTiles(f"{value.names[0]} has axes that not all results have", value.location)
    for name in rows:
        if any(free_names(e) & (axes.keys() | graph.made.keys()) for e in (axes[name].start, axes[name].stop)):
            raise NotTiles(f"the bounds of {name} are not the same everywhere")
    results = {n for v in (*scans, *folds) for n in v.results}
    ended = _using(graph, results)
    for w in graph.writes:
        if w.join or not set(w.axes) <= common | {along}:
            raise NotTiles(f"{w.array} is written otherwise than once a row or a point", w.location)
        if along in w.axes and any(free_names(e) & ended for e in uses_of_write(w)):
            raise NotTiles(f"{w.array} needs what is known at the end of a row", w.location)
    last = tuple(w for w in graph.writes if along not in w.axes)
    if {w.array for w in last} & _read(graph):
        raise NotTiles("what is written at the end of a row is read")
    if any(free_names(e) & ended for v in (*scans, *folds) for e in (*v.parts, *v.inits)):
        raise NotTiles("one scan needs what is known at the end of another")
    levels = _levels(graph, scans)
    return Scanned(
        axes, rows, along, first.reverse, graph.values,
        tuple(tuple(s for s in scans if levels[s.names[0]] == k) for k in range(1, max(levels.values()) + 1)),
        tuple(folds), tuple(w for w in graph.writes if along in w.axes), last,
    )  # fmt: skip


def _known(value: Carried, first: Scan) -> None:
    if value.over != first.over or len(value.over) != 1:
        raise NotTiles(f"{value.names[0]} goes over another axis than {first.names[0]}", value.location)
    if value.reverse != first.reverse and isinstance(value, Scan):
        raise NotTiles(f"{value.names[0]} goes the other way than {first.names[0]}", value.location)
    if value.algebra == IN_ORDER or value.algebra in EXTREMA:
        raise NotTiles(f"{value.names[0]} changes in an order that is kept", value.location)
    if isinstance(value, Fold) and value.algebra not in ALGEBRAS:
        raise NotTiles(f"{value.results[0]} is folded by {value.algebra}", value.location)


def _using(graph: TileGraph, names: set[str]) -> set[str]:
    """These names and those of values that use them."""
    found = set(names)
    for value in graph.values:
        if not isinstance(value, Carried) and any(free_names(e) & found for e in uses(value)):
            found |= set(names_of(value))
    return found


def _read(graph: TileGraph) -> set[str]:
    found = {v.array for v in graph.values if isinstance(v, Read)}
    exprs: list[Expr] = [e for v in graph.values for e in uses(v)] + [e for w in graph.writes for e in uses_of_write(w)]
    exprs += [e for v in graph.values if isinstance(v, Scan) for e in v.nexts]
    return found | {a for e in exprs for a in free_arrays(e)}


def _levels(graph: TileGraph, scans: list[Scan]) -> dict[str, int]:
    """Of each scan, one more than of the states that its parts need."""
    levels: dict[str, int] = {}
    for value in graph.values:
        level = max((levels.get(n, 0) for e in uses(value) for n in free_names(e)), default=0)
        levels |= dict.fromkeys(names_of(value), level + isinstance(value, Scan))
    return {s.names[0]: levels[s.names[0]] for s in scans}
