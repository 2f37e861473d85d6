"""Graphs whose reads and maps may be computed wherever their axes are known. Others are written out where they are needed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from weft.graph.tile import Carried, Fold, Map, NotTiles, Read, Scan, TileGraph, Value, Write, names_of, uses, uses_of_write
from weft.loops.algebra.table import FIRST
from weft.loops.faults import Faults
from weft.loops.ir import (
    Check,
    Expr,
    Function,
    Load,
    Op,
    Ref,
    Store,
    free_arrays,
    free_names,
    operands,
    reachable,
    statement_exprs,
    substitute,
    trapping_alone,
    walk,
    walk_expr,
)
from weft.loops.schedule import Nest

# Nodes of an expression that is evaluated where it is needed, written out in each of them.
_LARGEST = 400


def by_need(graph: TileGraph, early: Callable[[Read], bool] = lambda read: False) -> TileGraph:
    """The graph with reads that are not inside everywhere, and what is made of them, written out where they are used: as
    loads in the expressions. early: reads that stay values all the same, since whoever runs the graph looks whether they are
    inside. Raises NotTiles where what is carried may not be needed, and be undefined then.
    """
    written: dict[str, Expr] = {}
    values: list[Value] = []
    for value in graph.values:
        match value:
            case Read():
                read = replace(value, index=tuple(_written_out(i, written) for i in value.index))
                if (value.always or early(value)) and not any(map(_at_need, read.index)):
                    values.append(read)
                else:
                    written[value.name] = Load(value.array, read.index, value.type)
            case Map():
                made = _written_out(value.value, written)
                if _at_need(made):
                    written[value.name] = made
                else:
                    values.append(replace(value, value=made))
            case Fold() | Scan():
                parts, inits = (tuple(_written_out(e, written) for e in es) for es in (value.parts, value.inits))
                values.append(replace(value, parts=parts, inits=inits))
            case _:
                raise NotTiles(f"{value.of} is read at other points", None)
    # a state's next value may be of values that are made of the state
    after = {v: replace(v, nexts=tuple(_written_out(e, written) for e in v.nexts)) for v in values if isinstance(v, Scan)}
    values = [after[v] if isinstance(v, Scan) else v for v in values]
    writes = []
    for w in graph.writes:
        guard = None if w.guard is None else _written_out(w.guard, written)
        index = tuple(_written_out(i, written) for i in w.index)
        writes.append(replace(w, index=index, value=_written_out(w.value, written), guard=guard))
    if any(free_names(e) & written.keys() for a in graph.axes for e in (a.start, a.stop)):
        raise NotTiles("bounds are read where they may not be there")
    out = replace(graph, values=tuple(values), writes=tuple(writes))
    if len(writes) > 1 or any(isinstance(v, Carried) for v in values):  # what a state starts with comes before all writes
        stored = {w.array for w in writes}
        exprs = [e for v in out.values for e in (v.parts if isinstance(v, Carried) else uses(v))]
        exprs += [e for v in out.values if isinstance(v, Scan) for e in v.nexts]
        exprs += [e for w in writes for e in uses_of_write(w)]
        late = {a for e in exprs for a in free_arrays(e)} & stored
        if late:
            raise NotTiles(f"{min(late)} is read where it is needed, which may be after it is written")
    sure = certain(out)
    for value in values:
        risky = [e for e in (*value.parts, *value.inits) if _at_need(e)] if isinstance(value, Fold | Scan) else []
        if not isinstance(value, Fold | Scan) or not risky:
            continue
        known = set(names_of(value)) & sure or _guarded_alike(out, value, risky) or _looked_at_anyway(out, value, sure)
        known = known or _without_points_elsewhere(out, value)
        if not known:
            raise NotTiles(f"{value.results[0]} may not be needed, and be undefined then", value.location)
        if value.algebra in ("and", "or", FIRST):
            raise NotTiles(f"{value.results[0]} may be decided before points that are undefined then", value.location)
    return out


def refuse_unused(function: Function, nest: Nest) -> None:
    """Raise NotTiles where a nest computes what may stop a GPU and nothing uses: a graph has no values for that."""
    loads = {e.array for s in walk(nest.body) for x in statement_exprs(s) for e in walk_expr(x) if isinstance(e, Load)}
    local = {a.name for a in function.arrays if a.within} - loads
    faults = Faults(function)
    for stmt in walk(nest.body):
        if isinstance(stmt, Store) and stmt.array in local and faults.of(trapping_alone(stmt.value)):
            why = "what nothing uses fails in Python for some data, so each iteration has to look"
            raise NotTiles(why, stmt.location, kind="a value that nothing uses may fail")


def _written_out(expr: Expr, written: dict[str, Expr]) -> Expr:
    expr = trapping_alone(substitute(expr, written))
    if sum(1 for _ in walk_expr(expr)) > _LARGEST:
        raise NotTiles("what is computed by need is too large to be written out")
    return expr


def _at_need(expr: Expr) -> bool:
    """Whether an expression is evaluated only where its value is needed."""
    return any(isinstance(e, (Load, Check)) for e in walk_expr(expr))


def _guarded_alike(graph: TileGraph, value: Fold | Scan, risky: list[Expr]) -> bool:
    """Whether what may be undefined of a value is looked at only where a write, under the same guard, needs the value."""

    def behind(e: Expr, guard: Expr) -> bool:
        return isinstance(e, Op) and e.name == "where" and e.args[0] == guard and not _at_need(e.args[2])

    return any(
        w.guard is not None and set(names_of(value)) & certain(graph, w) and all(behind(e, w.guard) for e in risky)
        for w in graph.writes
    )


def _without_points_elsewhere(graph: TileGraph, value: Fold | Scan) -> bool:
    """Whether a value has points only where the guard of a write holds that needs it then: `range(a, a if met else b)`, where
    what is stored is stored under `not met`.
    """

    def told(e: Expr) -> Expr:
        made = graph.made.get(e.name) if isinstance(e, Ref) else None
        return told(made.value) if isinstance(made, Map) else e

    def none_where(condition: Expr) -> bool:
        ends = [(told(graph.axis(a).start), told(graph.axis(a).stop)) for a in value.over]
        return any(
            isinstance(stop, Op) and stop.name == "where" and told(stop.args[0]) == condition and told(stop.args[1]) == start
            for start, stop in ends
        )

    return not any(map(_at_need, value.inits)) and any(
        isinstance(guard := told(w.guard), Op)
        and guard.name == "not"
        and none_where(told(guard.args[0]))
        and set(names_of(value)) & certain(graph, w)
        for w in graph.writes
        if w.guard is not None
    )


def _looked_at_anyway(graph: TileGraph, value: Fold | Scan, sure: Collection[str]) -> bool:
    """Whether a fold that is needed looks at all that a value looks at, at the same points and wherever that does: of the
    largest element of a window and its place, which only some windows need.
    """
    folds = [v for v in graph.values if isinstance(v, Fold) and {*v.results} & {*sure}]
    alike = [v for v in folds if (v.over, v.axes) == (value.over, value.axes)]
    there = [own for v in alike for e in v.parts for own in _looks(e)]
    own = [look for e in (*value.parts, *value.inits) for look in _looks(e)]
    return all(any(e == other and under <= when for other, under in there) for e, when in own)


def _looks(e: Expr) -> list[tuple[Expr, frozenset[tuple[Expr, bool]]]]:
    """What an expression looks at where that is needed, with the conditions under which it does, and what they are then."""
    match e:
        case Op(name="where", args=(condition, then, orelse)):
            below = [(then, {(condition, True)}), (orelse, {(condition, False)})]
        case Op(name="and" | "or" as name, args=(condition, then)):
            below = [(then, {(condition, name == "and")})]
        case _:
            own = [(e, frozenset[tuple[Expr, bool]]())] if isinstance(e, Load | Check) else []
            return own + [look for o in operands(e) for look in _looks(o)]
    return _looks(condition) + [(x, under | when) for o, when in below for x, under in _looks(o)]


def certain(graph: TileGraph, under: Write | None = None) -> set[str]:
    """The values that are needed at every point of their axes. under: at every one at which this write's guard holds."""
    writes = [w for w in graph.writes if w.guard is None or w is under]
    start = {n for w in writes for e in (*w.index, w.value) for n in _needed(graph, e)}
    start |= {n for w in graph.writes if w.guard is not None for n in _behind_points(graph, w.guard, w.value)}

    def after(name: str) -> set[str]:
        value = graph.made[name]
        found = {n for e in (value.inits if isinstance(value, Carried) else uses(value)) for n in _needed(graph, e)}
        return graph.made.keys() & (found | {*_at_its_points(graph, value)} if isinstance(value, Carried) else found)

    return reachable(graph.made.keys() & start, after)


def _needed(graph: TileGraph, e: Expr) -> set[str]:
    """The names whose values an expression needs, whatever they are, or wherever they have points."""
    return _strictly(e) | _with_points(graph, e)


def _with_points(graph: TileGraph, e: Expr) -> set[str]:
    """The folds that an expression needs where they have points: `total if start < stop else 0`."""
    match e:
        case Op(name="where", args=(condition, then, _)):
            return _behind_points(graph, condition, then)
    return set()


def _behind_points(graph: TileGraph, condition: Expr, e: Expr) -> set[str]:
    """The folds that an expression needs where a condition holds, which asks whether they have points and nothing else."""
    match condition:
        case Op(name="and", args=(a, b)):
            return _behind_points(graph, a, e) & _behind_points(graph, b, e)
        case Op(name="lt", args=ends):
            folds = {n: v for n in _strictly(e) if isinstance(v := graph.made.get(n), Fold)}
            return {n for n, v in folds.items() if any((graph.axis(a).start, graph.axis(a).stop) == ends for a in v.over)}
    return set()


def _at_its_points(graph: TileGraph, value: Carried) -> list[str]:
    """The folds that the points of a carried value need, and that go over the same points, or are others at each: where it has
    no points, neither have they, and nothing of them is undefined.
    """
    pending, seen, found = [n for e in value.parts for n in _needed(graph, e)], set[str](), []
    while pending:
        name = pending.pop()
        other = graph.made.get(name)
        if other is None or name in seen:
            continue
        seen.add(name)
        if isinstance(other, Fold):
            found += [name] if other.over == value.over or set(value.over) <= set(other.axes) else []
        elif isinstance(other, Read | Map):
            pending += [n for e in uses(other) for n in _needed(graph, e)]
    return found


def _strictly(expr: Expr) -> set[str]:
    """The names whose values an expression needs, whatever they are."""
    match expr:
        case Ref(name=name):
            return {name}
        case Op(name="where", args=(condition, then, orelse)):
            return _strictly(condition) | (_strictly(then) & _strictly(orelse))
        case Op(name="and" | "or", args=(first, _)):
            return _strictly(first)
    return set().union(*map(_strictly, operands(expr)))
