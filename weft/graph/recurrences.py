"""Graphs whose rows go through the points of one axis in order, with folds over a row's states in between.

A delta rule is one: what is added to the states at a point is made of a sum over all of them. No law lets points be grouped
then, but rows have nothing to tell each other. Its gradient goes back through the points and needs their states.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from weft.graph.needs import by_need
from weft.graph.scans import ahead
from weft.graph.state_scans import backwards, using
from weft.graph.tidy import renewed
from weft.graph.tile import (
    Axis,
    Fold,
    Map,
    Moved,
    NotTiles,
    Read,
    Scan,
    TileGraph,
    Value,
    Write,
    all_uses,
    axes_of_name,
    mapped,
    names_of,
    uses_of_write,
)
from weft.loops.algebra.table import ALGEBRAS
from weft.loops.faults import may_fail
from weft.loops.ir import Expr, Op, Ref, free_names, free_names_of, reachable, substitute
from weft.loops.types import INT64

_MOST_TRIED = 8  # ways to name the axes of states


@dataclass(frozen=True)
class Recurrences:
    """Every row is a point of `rows` and goes through the points of `along` in order; it has states for each point of `state`,
    or one for all of them. values: in order. early: scans that go the other way than `scans`, which need their states. totals:
    folds over `state` at a point; crossed: folds over the rows along `meeting`, for each point. writes: at points; ends: when a
    row has gone through all of them; after: of what rows have met in.
    """

    axes: Mapping[str, Axis]
    rows: tuple[str, ...]
    state: str
    along: str
    reverse: bool
    values: tuple[Read | Map | Fold | Scan, ...]
    early: tuple[Scan, ...]
    scans: tuple[Scan, ...]
    totals: tuple[Fold, ...]
    crossed: tuple[Fold, ...]
    writes: tuple[Write, ...]
    ends: tuple[Write, ...]
    after: tuple[Write, ...]

    @property
    def meeting(self) -> str:
        """The axis of rows that meet, "" where none do."""
        return self.crossed[0].over[0] if self.crossed else ""

    @property
    def arrays(self) -> frozenset[str]:
        """The arrays that are read or written."""
        writes = (*self.writes, *self.ends, *self.after)
        return frozenset({v.array for v in self.values if isinstance(v, Read)} | {w.array for w in writes})

    @property
    def reads(self) -> tuple[Read, ...]:
        """What is read at each point."""
        return tuple(v for v in self.values if isinstance(v, Read) and self.along in v.axes)


def recurrences(graph: TileGraph) -> Recurrences:
    """The recurrences of a graph. Raises NotTiles where it is made of something else, or of more."""
    axes = {a.name: a for a in graph.axes}
    made = graph.made.keys()

    def early(read: Read) -> bool:
        return not any(free_names(i) & made for i in read.index) and ahead(read, axes)

    graph, reasons = by_need(graph, early), list[NotTiles]()
    for one in itertools.islice(_of_one_axis(graph), _MOST_TRIED):
        try:
            return _along_one_axis(one)
        except NotTiles as no:
            reasons.append(no)
    raise reasons[0]


def _along_one_axis(graph: TileGraph) -> Recurrences:
    """The recurrences of a graph as its axes are. Raises NotTiles."""
    scans = [v for v in graph.values if isinstance(v, Scan)]
    folds = [v for v in graph.values if isinstance(v, Fold)]
    if not scans or graph.copied:
        raise NotTiles("nothing is carried in order")
    if len({s.over for s in scans}) != 1 or len(scans[0].over) != 1 or any(not s.nexts for s in scans):
        raise NotTiles("states are carried along several axes", scans[0].location)
    (along,) = scans[0].over
    needed = _needed(graph, [e for s in scans for e in s.nexts])
    over = dict.fromkeys(f.over for f in folds if {*f.results} & needed)
    over = over or dict.fromkeys(f.over for f in folds if len(f.over) == 1)
    why, where = "no fold joins the states of a row", scans[0].location
    for states in over:
        try:
            return _sorted(graph, scans, folds, along, states, needed)
        except NotTiles as no:
            why, where = no.why, no.where
    raise NotTiles(why, where)


def _sorted(
    graph: TileGraph, scans: list[Scan], folds: list[Fold], along: str, states: tuple[str, ...], needed: set[str]
) -> Recurrences:
    """The graph by what is done when, with these axes of states. needed: the names of what scans need."""
    axes = {a.name: a for a in graph.axes}
    if len(states) != 1 or any({*f.results} & needed and f.over != states for f in folds):
        raise NotTiles("folds over several axes join the states of a row", scans[0].location)
    (state,) = states
    whole = max((s.axes for s in scans), key=len)
    rows = tuple(a.name for a in graph.axes if a.name in whole and a.name != state)
    graph = _in_each_row(_one_by_one(_summed_in_order(graph, scans, {*rows, state}), state), rows)
    scans = [v for v in graph.values if isinstance(v, Scan)]
    folds = [v for v in graph.values if isinstance(v, Fold)]
    totals = [f for f in folds if f.over == (state,)]
    crossed = [f for f in folds if f not in totals]
    if not rows or along in (state, *rows):
        raise NotTiles("there is one row", scans[0].location)
    for s in scans:
        if not set(rows) <= {*s.axes} <= {*rows, state}:
            raise NotTiles(f"{s.names[0]} has other axes than a row and its states", s.location)
    for f in folds:
        own = {*rows, along} if f in totals else {*rows, along, state} - {*f.over}
        meets = f in totals or (len(f.over) == 1 and f.over == crossed[0].over and f.over[0] in rows)
        if f.algebra not in ALGEBRAS or f.relative or along not in f.axes or not {*f.axes} <= own or not meets:
            raise NotTiles(f"{f.results[0]} is no fold of the states, or the rows, at a point", f.location)
    for f in crossed:
        if {*rows} - {*f.axes} != {*f.over}:
            raise NotTiles(f"{f.results[0]} has not the axes of its points", f.location)
    for name in (*rows, state, along):
        if any(free_names(e) & (axes.keys() | graph.made.keys()) for e in (axes[name].start, axes[name].stop)):
            raise NotTiles(f"the bounds of {name} are not the same everywhere")
    met = using(graph, {n for f in crossed for n in f.results})
    _plain(graph, {*rows, state, along}, met)
    reverse = backwards(graph, scans)
    first, last = (tuple(s for s in scans if (s.reverse == reverse) == late) for late in (False, True))
    ended = using(graph, {n for s in last for n in s.results})
    if first and using(graph, {n for s in first for n in s.results}) & _used(graph):
        raise NotTiles("the last states of scans that others need are used")
    for v in graph.values:
        if {*names_of(v)} & ended and not isinstance(v, Scan) and along in v.axes:
            raise NotTiles(f"{names_of(v)[0]} needs what is known at the end of a row")
    if met & needed or any(free_names(e) & met for f in folds for e in f.parts):
        raise NotTiles("a row needs what others have", crossed[0].location)
    moving = using(graph, {n for s in scans for n in names_of(s)} | {n for f in totals for n in f.results}, carried=False)
    writes: list[Write] = []
    ends: list[Write] = []
    after: list[Write] = []
    for w in graph.writes:
        names = {n for e in uses_of_write(w) for n in free_names(e)}
        if w.join or w.checked or (along in w.axes and names & ended):
            raise NotTiles(f"{w.array} is written otherwise than once a row or a point", w.location)
        if names & met:
            own = {*rows, along} - {*crossed[0].over}
            if names & ended or names & (moving - met) or not own <= {*w.axes} <= own | {state}:
                raise NotTiles(f"{w.array} needs what is known of a row beside what all rows meet in", w.location)
            after.append(w)
        elif {*rows} <= {*w.axes} <= {*rows, along, state}:
            (writes if along in w.axes else ends).append(w)
        else:
            raise NotTiles(f"{w.array} is written otherwise than once a row or a point", w.location)
    values = tuple(v for v in graph.values if isinstance(v, Read | Map | Fold | Scan))
    return Recurrences(
        axes, rows, state, along, reverse, values, first, last, tuple(totals), tuple(crossed),
        tuple(writes), tuple(ends), tuple(after),
    )  # fmt: skip


def _of_one_axis(graph: TileGraph) -> Iterator[TileGraph]:
    """The graph, and where some states have not all axes of others, as those of what normalises a matrix: with each axis of the
    same points for theirs.
    """
    yield graph
    scans = [v for v in graph.values if isinstance(v, Scan)]
    widest = max((s.axes for s in scans), key=len, default=())
    for scan in scans:
        for own, other in ((a, b) for a in scan.axes for b in reversed(widest) if b not in scan.axes):
            here, there = graph.axis(own), graph.axis(other)
            if (here.start, here.stop, here.segment) == (there.start, there.stop, None):
                renamed = _along(graph, scan, own, other)
                if renamed is not None:
                    yield renamed


def _along(graph: TileGraph, scan: Scan, own: str, other: str) -> TileGraph | None:
    """The graph with another axis of the same points for one of a scan's states, and for what is made of them up to folds over
    these; None where something of it has both, or has to be written as it is.
    """

    def has(v: Value) -> bool:
        return own in v.axes or (isinstance(v, Fold) and own in v.over)

    made_of: dict[str, Value] = {n: scan for n in scan.names}
    ends: set[str] = set()
    for v in graph.values:
        if v is not scan and has(v) and any(free_names(e) & made_of.keys() for e in all_uses(v)):
            if isinstance(v, Scan | Moved) or other in v.axes:
                return None
            made_of |= {n: v for n in names_of(v)} if own in v.axes else {}
            ends |= {*names_of(v)} if own not in v.axes else set()
    if any(own in w.axes and any(free_names(e) & made_of.keys() for e in uses_of_write(w)) for w in graph.writes):
        return None
    changed = made_of.keys() | ends
    below = _needed(graph, [e for n in changed for e in all_uses(graph.made[n])]) - changed
    needed = [v for v in graph.values if {*names_of(v)} & below and own in v.axes]
    copies = [v for v in needed if isinstance(v, Read | Map) and other not in v.axes]
    if len(copies) < len(needed):
        return None
    names = {v.name: f"{v.name}_{other}" for v in copies}
    at: dict[str, Expr] = {own: Ref(other, INT64)}
    at |= {v.name: Ref(names[v.name], v.type) for v in copies}

    def changed_axes(axes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(a.name for a in graph.axes if a.name in {other if x == own else x for x in axes})

    def renamed(v: Value) -> Value:
        new = replace(mapped(v, lambda e: substitute(e, at)), axes=changed_axes(v.axes))
        return replace(new, over=changed_axes(new.over)) if isinstance(new, Fold) else new

    values: list[Value] = []
    for v in graph.values:
        if v in copies:
            copy = renamed(v)
            assert isinstance(copy, Read | Map)
            values += [v, replace(copy, name=names[copy.name])]
        else:
            values.append(renamed(v) if {*names_of(v)} & changed else v)
    return renewed(replace(graph, values=tuple(values)))


def _summed_in_order(graph: TileGraph, scans: list[Scan], own: set[str]) -> TileGraph:
    """The graph whose rows and states add up over their points in order what has their axes alone."""
    over, reverse = scans[0].over, backwards(graph, scans)

    def in_order(v: Value) -> Value:
        if not isinstance(v, Fold) or v.algebra != "sum" or v.over != over or not {*v.axes} <= own:
            return v
        before, type_ = Ref(v.names[0], v.types[0]), v.types[0]
        nexts = (Op("add", (before, v.parts[0]), type_),)
        return Scan(v.names, v.results, v.axes, over, "sum", v.parts, v.inits, reverse, v.location, nexts)

    return replace(graph, values=tuple(map(in_order, graph.values)))


def _in_each_row(graph: TileGraph, rows: tuple[str, ...]) -> TileGraph:
    """The graph with states that rows have in common, as the normaliser of a matrix, as such of each row."""

    def own(value: Value) -> Value:
        if not isinstance(value, Scan) or {*rows} <= {*value.axes}:
            return value
        return replace(value, axes=tuple(a.name for a in graph.axes if a.name in {*rows, *value.axes}))

    return replace(graph, values=tuple(map(own, graph.values)))


def _one_by_one(graph: TileGraph, state: str) -> TileGraph:
    """The graph with folds over states and rows as such over the states, and over the rows what these make."""
    values: list[Value] = []
    for value in graph.values:
        if isinstance(value, Fold) and len(value.over) == 2 and state in value.over and value.algebra in ALGEBRAS:
            (other,) = {*value.over} - {state}
            own = f"{value.results[0]}_row"
            identity = ALGEBRAS[value.algebra].identity(value.types[0])
            inner = replace(
                value, names=(f"{own}_before",), results=(own,), axes=(*value.axes, other), over=(state,), inits=(identity,)
            )
            values += [inner, replace(value, over=(other,), parts=(Ref(own, value.types[0]),))]
        else:
            values.append(value)
    return replace(graph, values=tuple(values))


def _plain(graph: TileGraph, axes: set[str], met: Collection[str]) -> None:
    """Raise NotTiles where a value may not be computed at every point, or memory changes while rows read it. met: what is made
    of what rows have met in: a thread of its own reads for that what it writes.
    """
    stored = {w.array for w in graph.writes}
    folds = {v for v in graph.values if isinstance(v, Fold) and {*v.results} & {*met}}
    last = {n for f in folds for e in f.inits for n in free_names(e)}
    others = {n for v in graph.values for e in (v.parts if v in folds else all_uses(v)) for n in free_names(e)}
    places = {w.array: w.index for w in graph.writes}
    for value in graph.values:
        if any(map(may_fail, all_uses(value))) or any(not set(axes_of_name(value, n)) <= axes for n in names_of(value)):
            raise NotTiles(f"{names_of(value)[0]} is not known at every point of a row")
        if isinstance(value, Read):
            told = value.always or (not value.checked and value.given is not None and axes >= set(value.given))
            alone = value.name in last - others and places.get(value.array) == value.index
            if not (told or alone) or (value.array in stored and not alone):
                raise NotTiles(f"{value.array} is not read at every point, or is written", value.location)
    for w in graph.writes:
        if any(map(may_fail, uses_of_write(w))) or not set(w.axes) <= axes:
            raise NotTiles(f"{w.array} is not written from what rows have", w.location)
    if len(places) < len(graph.writes):
        raise NotTiles("an array is written in several places")


def _needed(graph: TileGraph, exprs: Iterable[Expr]) -> set[str]:
    """The names of values that expressions need, at their points too."""

    def made(names: Iterable[str]) -> set[str]:
        return graph.made.keys() & names

    return reachable(made(free_names_of(exprs)), lambda name: made(free_names_of(all_uses(graph.made[name]))))


def _used(graph: TileGraph) -> set[str]:
    """The names that something uses."""
    exprs = [e for v in graph.values for e in all_uses(v)] + [e for w in graph.writes for e in uses_of_write(w)]
    return {n for e in exprs for n in free_names(e)}
