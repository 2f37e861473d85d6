"""Graphs of rows whose states are scanned along one axis: what is read, the scans that wait for others, what is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

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
from weft.loops.algebra.table import ALGEBRAS, overflows
from weft.loops.ir import Expr, Load, free_arrays, free_names, walk_expr


@dataclass(frozen=True)
class Scanned:
    """Every row is a point of `rows`; it is gone through along one axis. values: in order; reads that may leave their arrays
    are those that `ahead` says are looked at whether they are inside, others are written out. levels: scans of one level wait
    for the states of those before. folds: over the same axis. writes: at each point; last: once a row. continues: a row begins
    with what it replaces at its end.
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
    continues: bool = False

    @property
    def scans(self) -> tuple[Scan, ...]:
        return tuple(s for level in self.levels for s in level)

    @property
    def arrays(self) -> frozenset[str]:
        """The arrays that are read or written."""
        exprs = [e for v in self.values for e in (*uses(v), *(v.nexts if isinstance(v, Scan) else ()))]
        exprs += [e for w in (*self.writes, *self.last) for e in uses_of_write(w)]
        exprs += [e for a in self.axes.values() for e in (a.start, a.stop)]
        found = {v.array for v in self.values if isinstance(v, Read)} | {w.array for w in (*self.writes, *self.last)}
        return frozenset(found | {a for e in exprs for a in free_arrays(e)})

    @property
    def bounded(self) -> bool:
        """Whether rows are not all as long."""
        own = {n for v in self.values for n in names_of(v)} | self.axes.keys()
        return any(free_names(e) & own for e in self.bounds(self.along))

    def bounds(self, axis: str) -> tuple[Expr, Expr]:
        return self.axes[axis].start, self.axes[axis].stop


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
    graph = replace(graph, values=tuple(map(_in_their_order, graph.values)))
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
    common = set.intersection(*(set(w.axes) for w in graph.writes)) - {along}
    rows = tuple(a for a in axes if a in common)
    for value in (*scans, *folds):
        if not set(value.axes) <= common:  # what has fewer is found for each row anew
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
    continues = _continues(graph, last, set(rows))
    if any(free_names(e) & ended for v in (*scans, *folds) for e in (*v.parts, *v.inits)):
        raise NotTiles("one scan needs what is known at the end of another")
    levels = _levels(graph, scans)
    return Scanned(
        axes, rows, along, first.reverse, graph.values,
        tuple(tuple(s for s in scans if levels[s.names[0]] == k) for k in range(1, max(levels.values()) + 1)),
        tuple(folds), tuple(w for w in graph.writes if along in w.axes), last, continues,
    )  # fmt: skip


def _in_their_order(value: Value) -> Value:
    """A fold whose points are combined in their order as a scan of which only the end is used."""
    if not isinstance(value, Fold) or value.algebra in ALGEBRAS or value.relative or overflows(value.algebra, value.types[0]):
        return value
    names, of = (value.names, value.results), (value.axes, value.over)
    return Scan(*names, *of, value.algebra, value.parts, value.inits, value.reverse, value.location)


def _known(value: Carried, first: Scan) -> None:
    if value.over != first.over or len(value.over) != 1:
        raise NotTiles(f"{value.names[0]} goes over another axis than {first.names[0]}", value.location)
    if value.reverse != first.reverse and isinstance(value, Scan):
        raise NotTiles(f"{value.names[0]} goes the other way than {first.names[0]}", value.location)
    if value.algebra == IN_ORDER:
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


def _continues(graph: TileGraph, last: tuple[Write, ...], rows: set[str]) -> bool:
    """Whether what is written at the end of a row is read, which only that row may do. Raises NotTiles where others do."""
    inits = [e for v in graph.values if isinstance(v, Carried) for e in v.inits]
    exprs = [e for v in graph.values for e in (v.parts if isinstance(v, Carried) else uses(v))]
    exprs += [e for v in graph.values if isinstance(v, Scan) for e in v.nexts]
    exprs += [e for w in graph.writes for e in uses_of_write(w)]
    late = {a for e in exprs for a in free_arrays(e)}
    reads = [(v.array, v.index) for v in graph.values if isinstance(v, Read) and set(v.axes) <= rows]
    swept = {v.array for v in graph.values if isinstance(v, Read) and not set(v.axes) <= rows}
    reads += [(e.array, e.index) for i in inits for e in walk_expr(i) if isinstance(e, Load)]
    inside = graph.made.keys() | {a.name for a in graph.axes} - rows
    found = False
    for w in last:
        own = [index for array, index in reads if array == w.array]
        several = sum(x.array == w.array for x in last) > 1 or any(free_names(i) & inside for i in w.index)
        if w.array in late | swept or (own and several) or any(index != w.index for index in own):
            raise NotTiles(f"{w.array} is written at the end of a row and read by others")
        found = found or bool(own)
    return found


def _levels(graph: TileGraph, scans: list[Scan]) -> dict[str, int]:
    """Of each scan, one more than of the states that its parts need."""
    levels: dict[str, int] = {}
    for value in graph.values:
        level = max((levels.get(n, 0) for e in uses(value) for n in free_names(e)), default=0)
        levels |= dict.fromkeys(names_of(value), level + isinstance(value, Scan))
    return {s.names[0]: levels[s.names[0]] for s in scans}
