"""Graphs of rows with many states each, which are scanned along one axis and folded at each of its points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from weft.graph.needs import by_need
from weft.graph.scans import ahead
from weft.graph.tile import (
    IN_ORDER,
    Axis,
    Carried,
    Fold,
    Map,
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
from weft.loops.ir import Expr, Op, Ref, free_arrays, free_names, has_check, rewrite


@dataclass(frozen=True)
class StateScans:
    """Every row is a point of `rows`, and has a state for each point of `states`. All are scanned along one axis. values: in
    order. early: scans that go the other way than `scans`, which need their states. totals: folds over the states, at each
    point of a row. sums: folds over the points of a row, of each state or of what has none. crossed: folds over the last axis
    of `rows`, for each state and point. writes: at each point, of each state or of what has none; ends: once a row; after: of
    what all rows have crossed.
    """

    axes: Mapping[str, Axis]
    rows: tuple[str, ...]
    states: tuple[str, ...]
    along: str
    reverse: bool
    values: tuple[Value, ...]
    early: tuple[Scan, ...]
    scans: tuple[Scan, ...]
    totals: tuple[Fold, ...]
    sums: tuple[Fold, ...]
    crossed: tuple[Fold, ...]
    writes: tuple[Write, ...]
    ends: tuple[Write, ...]
    after: tuple[Write, ...]

    @property
    def arrays(self) -> frozenset[str]:
        """The arrays that are read or written."""
        exprs = [e for v in self.values for e in (*uses(v), *(v.nexts if isinstance(v, Scan) else ()))]
        writes = (*self.writes, *self.ends, *self.after)
        exprs += [e for w in writes for e in uses_of_write(w)]
        found = {v.array for v in self.values if isinstance(v, Read)} | {w.array for w in writes}
        return frozenset(found | {a for e in exprs for a in free_arrays(e)})


def step_of(read: Read, along: str) -> int | None:
    """The axis of its array along which a read goes with the points, one element for each; None where there is no such."""
    places = [k for k, i in enumerate(read.index) if along in free_names(i)]
    form = affine(read.index[places[0]]) if len(places) == 1 else None
    return places[0] if form is not None and form.coefficient(along) == 1 else None


def state_scans(graph: TileGraph) -> StateScans:
    """The scans of the states of a graph. Raises NotTiles where it is made of something else, or of more."""
    stored = {w.array for w in graph.writes}
    axes = {a.name: a for a in graph.axes}
    scans = [v for v in graph.values if isinstance(v, Scan)]
    if not scans:
        raise NotTiles("nothing is scanned")
    if graph.copied:
        raise NotTiles(f"{graph.copied[0]} is read at other elements than it is written at")
    (along,) = scans[0].over if len(scans[0].over) == 1 else (None,)
    made = graph.made.keys()

    def early(read: Read) -> bool:
        if along is None or read.array in stored or any(free_names(i) & made for i in read.index):
            return False
        return ahead(read, axes) and step_of(read, along) is not None

    graph = _by_name(by_need(graph, early))
    scans = [v for v in graph.values if isinstance(v, Scan)]
    folds = [v for v in graph.values if isinstance(v, Fold)]
    for value in (*scans, *folds):
        _known(value, along)
    if along is None or any(set(s.axes) != set(scans[0].axes) for s in scans):
        raise NotTiles("scans have other axes than each other", scans[0].location)
    states = _states(graph, set(scans[0].axes), along)
    crossed = [f for f in folds if along in f.axes and set(f.over) != states]
    rows = _rows([a for a in scans[0].axes if a not in states], crossed)
    for name in scans[0].axes:
        if any(free_names(e) & (axes.keys() | made) for e in (axes[name].start, axes[name].stop)):
            raise NotTiles(f"the bounds of {name} are not the same everywhere")
    if any(free_names(e) & (axes.keys() | made) for e in (axes[along].start, axes[along].stop)):
        raise NotTiles("rows are not all as long")
    return _sorted(graph, axes, rows, tuple(a for a in scans[0].axes if a in states), along, scans, folds)


def _by_name(graph: TileGraph) -> TileGraph:
    """The graph with the names of maps in the place of what they are where it is written out again."""
    names: dict[Expr, Ref] = {}

    def named(expr: Expr) -> Expr:
        return rewrite(expr, names.get)

    values: list[Value] = []
    for value in graph.values:
        match value:
            case Map():
                value = replace(value, value=named(value.value))
                if isinstance(value.value, Op) and not free_arrays(value.value) and not has_check(value.value):
                    names.setdefault(value.value, Ref(value.name, value.type))
            case Fold() | Scan():
                value = replace(value, parts=tuple(map(named, value.parts)))
        values.append(value)
    values = [replace(v, nexts=tuple(map(named, v.nexts))) if isinstance(v, Scan) else v for v in values]
    return replace(graph, values=tuple(values), writes=tuple(replace(w, value=named(w.value)) for w in graph.writes))


def _known(value: Carried, along: str | None) -> None:
    if isinstance(value, Scan) and value.over != (along,):
        raise NotTiles(f"{value.names[0]} goes over another axis than {along}", value.location)
    if value.algebra == IN_ORDER or value.algebra in EXTREMA:
        raise NotTiles(f"{value.names[0]} changes in an order that is kept", value.location)
    if isinstance(value, Fold) and (value.algebra not in ALGEBRAS or value.relative):
        raise NotTiles(f"{value.results[0]} is folded by {value.algebra}", value.location)


def _states(graph: TileGraph, axes: set[str], along: str) -> set[str]:
    """The axes of the states: of those that are folded at points of rows, those of which least is read."""
    folds = [v for v in graph.values if isinstance(v, Fold) and along in v.axes]
    found = {frozenset(v.over) for v in folds if set(v.over) < axes}
    if not found:
        raise NotTiles("no fold joins the states at a point")
    reads = [v.axes for v in graph.values if isinstance(v, Read) and along in v.axes]
    _, _, over = min((sum(bool(over & set(r)) for r in reads), sorted(over), over) for over in found)
    return set(over)


def _rows(rows: list[str], crossed: list[Fold]) -> tuple[str, ...]:
    """The axes of rows in order, the one over which rows meet the last."""
    over = {f.over for f in crossed}
    if len(over) > 1 or any(len(o) != 1 or o[0] not in rows for o in over):
        raise NotTiles("folds go over other axes than each other", crossed[0].location)
    meeting = over.pop()[0] if over else rows[-1] if rows else ""
    return (*(a for a in rows if a != meeting), meeting) if rows else ()


def _sorted(
    graph: TileGraph,
    axes: dict[str, Axis],
    rows: tuple[str, ...],
    states: tuple[str, ...],
    along: str,
    scans: list[Scan],
    folds: list[Fold],
) -> StateScans:
    """The graph by what is done when."""
    totals = [f for f in folds if set(f.over) == set(states) and along in f.axes]
    crossed = [f for f in folds if along in f.axes and f not in totals]
    sums = [f for f in folds if f not in totals and f not in crossed]
    of_row, of_state = set(rows), {*rows, *states}
    for f in totals:
        _limited(f, f.axes, of_row | {along})
    for f in crossed:
        if set(f.axes) != (of_state | {along}) - set(f.over):
            raise NotTiles(f"{f.results[0]} has not the axes of its points", f.location)
    for f in sums:
        if f.over != (along,) or set(f.axes) not in (of_row, of_state):
            raise NotTiles(f"{f.results[0]} has axes that not all results have", f.location)
    late = backwards(graph, scans)
    early = [s for s in scans if s.reverse != late]
    ended = using(graph, {n for v in (*scans, *sums) for n in v.results})
    at_points = using(graph, {n for f in totals for n in f.results})
    after = using(graph, {n for f in crossed for n in f.results})
    whole = of_state | {along}
    for value in graph.values:
        own = ended & set(names_of(value)), at_points & set(names_of(value)), after & set(names_of(value))
        if not isinstance(value, Carried) and sum(map(bool, own)) > 1:
            raise NotTiles(f"{names_of(value)[0]} needs what is known at a point, and what is known later")
        if isinstance(value, Map) and own[0]:
            _limited(value, value.axes, of_state)
        if isinstance(value, Map) and own[1]:
            _limited(value, value.axes, of_row | {along})
        _limited(value, value.axes, whole)
    of_states = [f for f in sums if set(f.axes) == of_state]
    within = [e for v in (*scans, *totals, *crossed, *of_states) for e in v.parts]
    within += [e for s in scans for e in (*s.nexts, *s.inits)] + [e for f in folds for e in f.inits]
    if any(free_names(e) & (ended | at_points | after) for e in within):
        raise NotTiles("a state needs what is folded of others")
    if any(free_names(e) & (ended | after) for f in sums for e in f.parts):
        raise NotTiles("a sum needs what is known at the end of a row")
    if early and ended & _used(graph, {n for s in early for n in s.results}):
        raise NotTiles("the last states of scans that others need are used")
    return StateScans(
        axes, rows, states, along, late, graph.values, tuple(early), tuple(s for s in scans if s not in early),
        tuple(totals), tuple(sums), tuple(crossed), *_writes(graph, (ended, at_points, after), of_row, of_state, along),
    )  # fmt: skip


def _writes(
    graph: TileGraph, known: tuple[set[str], set[str], set[str]], of_row: set[str], of_state: set[str], along: str
) -> tuple[tuple[Write, ...], tuple[Write, ...], tuple[Write, ...]]:
    """Writes at points, at the end of rows, and of what all rows have met in."""
    ended, at_points, later = known
    writes, ends, after = [], [], []
    for w in graph.writes:
        used = set().union(*(free_names(e) for e in uses_of_write(w)))
        own = set(w.axes)
        if w.join:
            raise NotTiles(f"{w.array} is joined to", w.location)
        if used & later:
            if used & (ended | at_points) or not _alone(graph, used, own):
                raise NotTiles(f"{w.array} needs what is known of a row beside what all rows meet in", w.location)
            after.append(w)
        elif own in (of_row, of_state) and not used & at_points:
            ends.append(w)
        elif not used & ended and (own == of_row | {along} or (own == of_state | {along} and not used & at_points)):
            writes.append(w)
        else:
            raise NotTiles(f"{w.array} is written otherwise than once a row or a point", w.location)
    for w in (*writes, *ends, *after):  # each element by the thread that writes it, before it does
        alike = all(v.index == w.index for v in graph.values if isinstance(v, Read) and v.array == w.array)
        if w.array in graph.read and (w in after or not alike or w.array in graph.loaded):
            raise NotTiles(f"{w.array} is read and written", w.location)
    return tuple(writes), tuple(ends), tuple(after)


def _alone(graph: TileGraph, names: set[str], axes: set[str]) -> bool:
    """Whether names are of crossed folds, and of reads and maps with no other axes than these."""
    pending, found = list(names), set()
    while pending:
        name = pending.pop()
        value = graph.made.get(name)
        if value is None or name in found:
            continue
        found.add(name)
        if isinstance(value, Fold):
            if set(value.axes) != axes:
                return False
            continue
        if isinstance(value, Scan) or not set(value.axes) <= axes:
            return False
        pending += [n for e in uses(value) for n in free_names(e)]
    return True


def backwards(graph: TileGraph, scans: list[Scan]) -> bool:
    """Whether the scans that others do not wait for go backwards."""
    first, second = ([s for s in scans if s.reverse == way] for way in (False, True))
    if not second:
        return False
    if not first:
        return True
    forward, backward = (using(graph, {n for s in some for n in names_of(s)}, carried=True) for some in (first, second))
    if not any(free_names(e) & backward for s in first for e in (*s.parts, *s.nexts, *s.inits)):
        return True
    if not any(free_names(e) & forward for s in second for e in (*s.parts, *s.nexts, *s.inits)):
        return False
    raise NotTiles("scans of both directions need each other's states", second[0].location)


def using(graph: TileGraph, names: set[str], carried: bool = False) -> set[str]:
    """These names and those of values that use them. carried: of folds and scans too."""
    found = set(names)
    for value in graph.values:
        exprs: Iterable[Expr] = (*uses(value), *(value.nexts if isinstance(value, Scan) else ()))
        if (carried or not isinstance(value, Carried)) and any(free_names(e) & found for e in exprs):
            found |= set(names_of(value))
    return found


def _used(graph: TileGraph, names: set[str]) -> set[str]:
    """Those of the names that something uses."""
    exprs = [e for v in graph.values for e in uses(v)] + [e for w in graph.writes for e in uses_of_write(w)]
    exprs += [e for v in graph.values if isinstance(v, Scan) for e in v.nexts]
    return names & set().union(*map(free_names, exprs))


def _limited(value: Value, axes: Iterable[str], limit: set[str]) -> None:
    if not set(axes) <= limit:
        raise NotTiles(f"{names_of(value)[0]} has axes that not all results have", getattr(value, "location", None))
