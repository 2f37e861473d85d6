"""The end of building a graph: what no write needs goes, scans of which only the last state is needed are folds, folds of folds
are one, and every value gets its axes and comes after those that it uses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from weft.graph.tile import (
    IN_ORDER,
    Axis,
    Carried,
    Dependence,
    Fold,
    Map,
    Read,
    Scan,
    TileGraph,
    Value,
    Write,
    axes_of_name,
    names_of,
    uses,
    uses_of_write,
)
from weft.loops.algebra.table import ALGEBRAS
from weft.loops.ir import Const, Expr, Ref, free_names


def tidied(
    name: str, axes: list[Axis], values: dict[str, Value], writes: list[Write], always: dict[str, list[tuple[bool, frozenset[str]]]]
) -> TileGraph:
    """The graph of these values and writes, whose axes are not yet known. always: of each read, whether it is certain to be
    evaluated where it is, and the axes of the loops around it there.
    """
    needed = _needed(axes, values, writes)
    kept = {n: _as_fold(v, needed) for n, v in values.items() if needed & set(names_of(v))}
    kept = _flattened(kept, writes)
    needed = _needed(axes, kept, writes)
    nodes = list({id(v): v for n, v in kept.items() if n in needed}.values())
    axes = _axes_in_order([a for a in axes if a.name in needed], kept)
    order = [a.name for a in axes]
    found = _dependence(axes, nodes)
    done = [_placed(v, found, order, always) for v in nodes]
    writes = [replace(w, axes=_sorted(w.axes, order)) for w in writes]
    return TileGraph(name, tuple(axes), tuple(_in_order(done)), tuple(writes))


def _needed(axes: Iterable[Axis], values: dict[str, Value], writes: Iterable[Write]) -> set[str]:
    by_name = {a.name: a for a in axes}
    pending = [n for w in writes for n in (*w.axes, *(n for e in uses_of_write(w) for n in free_names(e)))]
    needed: set[str] = set()
    while pending:
        name = pending.pop()
        if name in needed:
            continue
        needed.add(name)
        exprs: list[Expr] = []
        if name in by_name:
            exprs += (by_name[name].start, by_name[name].stop)
        elif name in values:
            value = values[name]
            exprs += uses(value)
            if isinstance(value, Carried):
                pending += value.over
            if isinstance(value, Scan) and (name in value.names or value.algebra == IN_ORDER):
                exprs += value.nexts
                pending += value.names
        pending += [n for e in exprs for n in free_names(e)]
    return needed


def _as_fold(value: Value, needed: set[str]) -> Value:
    if not isinstance(value, Scan) or value.algebra == IN_ORDER or needed & set(value.names):
        return value
    return Fold(
        value.names, value.results, value.axes, value.over, value.algebra, value.parts, value.inits, value.reverse, value.location
    )


def _flattened(values: dict[str, Value], writes: Iterable[Write]) -> dict[str, Value]:
    """Folds whose part is a fold by the same algebra, that starts with its identity, are one over all the axes."""
    count: dict[str, int] = {}
    everything = {id(v): v for v in values.values()}.values()
    exprs = [e for v in everything for e in (*uses(v), *(v.nexts if isinstance(v, Scan) else ()))]
    for e in (*exprs, *(e for w in writes for e in uses_of_write(w))):
        for n in free_names(e):
            count[n] = count.get(n, 0) + 1
    changed = True
    while changed:
        changed = False
        for v in list({id(v): v for v in values.values()}.values()):
            if not isinstance(v, Fold) or v.algebra not in ALGEBRAS or not isinstance(v.parts[0], Ref):
                continue
            inner = values.get(v.parts[0].name)
            if not isinstance(inner, Fold) or inner.algebra != v.algebra or count[v.parts[0].name] != 1 or set(inner.over) & set(v.over):
                continue
            init = inner.inits[0]
            identity = ALGEBRAS[v.algebra].identity(init.type)
            if isinstance(init, Const) and repr(init.value) == repr(identity.value):
                made = replace(v, over=(*v.over, *inner.over), parts=inner.parts)
                values = {n: made if o is v else o for n, o in values.items() if o is not inner}
                changed = True
                break
    return values


def _axes_in_order(axes: list[Axis], values: dict[str, Value]) -> list[Axis]:
    """Axes after those that their bounds use, by themselves or through values; else as they were found."""
    by_name = {a.name: a for a in axes}

    def before(axis: Axis) -> set[str]:
        pending = [n for e in (axis.start, axis.stop) for n in free_names(e)]
        seen: set[str] = set()
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in values:
                value = values[name]
                pending += [n for e in uses(value) for n in free_names(e)]
                if isinstance(value, Carried):
                    pending += [n for a in value.over for e in (by_name[a].start, by_name[a].stop) for n in free_names(e)]
        bound = {a for n in seen if n in values and isinstance(v := values[n], Carried) for a in v.over}
        return (seen & by_name.keys()) - bound

    done: list[Axis] = []
    left = list(axes)
    while left:
        placed = {a.name for a in done}
        ready = next((a for a in left if before(a) - {a.name} <= placed), left[0])
        done.append(ready)
        left.remove(ready)
    return done


def _dependence(axes: list[Axis], values: list[Value]) -> Dependence:
    """The axes of all values: the smallest sets that agree with each other (states in order use themselves)."""
    known: dict[str, frozenset[str]] = {n: frozenset() for v in values for n in names_of(v)}
    depends = Dependence({a.name: a for a in axes}, known)
    while True:
        before = dict(known)
        for v in values:
            own = depends.of_value(v)
            for n in names_of(v):
                known[n] = own | set(v.over) if isinstance(v, Scan) and n in v.names else own
        if known == before:
            return depends


def _sorted(names: Iterable[str], order: list[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names), key=order.index))


def _placed(value: Value, depends: Dependence, order: list[str], always: dict[str, list[tuple[bool, frozenset[str]]]]) -> Value:
    axes = _sorted(depends.of_value(value), order)
    if isinstance(value, Read):
        # where a loop around it has no iteration it is not loaded, though it may be of an element for each point of others
        sure = any(certain and around <= set(axes) for certain, around in always.get(value.name, ()))
        return replace(value, axes=axes, always=sure)
    return replace(value, axes=axes)


def _in_order(values: list[Value]) -> list[Value]:
    by_name = {n: v for v in values for n in names_of(v)}
    done: dict[int, Value] = {}
    visiting: set[int] = set()

    def visit(value: Value) -> None:
        stack: list[tuple[Value, bool]] = [(value, False)]
        while stack:
            v, ready = stack.pop()
            if id(v) in done:
                continue
            if ready:
                done[id(v)] = v
                continue
            visiting.add(id(v))
            stack.append((v, True))
            names = [n for e in uses(v) for n in sorted(free_names(e))]
            for n in reversed(names):
                if n in by_name and id(by_name[n]) not in done:
                    stack.append((by_name[n], False))

    for v in values:
        visit(v)
    return list(done.values())


__all__ = ["Map", "axes_of_name", "tidied"]
