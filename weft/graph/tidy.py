"""The end of building a graph: what no write needs goes, scans of which only the last state is needed are folds, folds of folds
are one, and every value gets its axes and comes after those that it uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace

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
    mapped,
    mapped_write,
    names_of,
    needed_by,
    uses,
    uses_of_write,
)
from weft.loops.algebra.table import ALGEBRAS, EXTREMA
from weft.loops.ir import (
    Const,
    Expr,
    Op,
    Ref,
    free_names,
    free_names_of,
    operands,
    reachable,
    substitute,
    walk_expr,
    with_operands,
)
from weft.loops.names import Names
from weft.loops.operators import COSTLY
from weft.loops.types import BOOL


@dataclass(frozen=True)
class Notes:
    """What is known of values besides what they are. seen: of each read, whether it is certain to be evaluated where it stands,
    and the axes of the loops around it, for each place where it stands. helpers: maps that have no name in the program.
    arguments: the names of sizes and scalars. unsettled: what sums are, by the names of their states, where these are needed.
    """

    seen: Mapping[str, list[tuple[bool, frozenset[str]]]]
    helpers: Collection[str]
    arguments: Collection[str]
    unsettled: Mapping[str, Scan]


def tidied(name: str, axes: list[Axis], values: dict[str, Value], writes: list[Write], notes: Notes) -> TileGraph:
    """The graph of these values and writes, whose axes are not yet known."""
    while True:
        needed = _needed(axes, values, writes)
        again = {n: v for n, v in notes.unsettled.items() if n in needed and values[n] is not v}
        if not again:
            break
        values = {**values, **{n: v for v in again.values() for n in names_of(v)}}
    folds = {id(v): _as_fold(v, needed) for v in values.values() if needed & set(names_of(v))}
    taken = Names({*values, *(a.name for a in axes), *notes.arguments})
    draft = _Draft(axes, [v for v in folds.values()], writes)
    draft = _shared(_named_as_states(_flattened(_written_out(_each_once(draft), notes.helpers))), taken)
    axes, kept, writes = draft.axes, draft.values, draft.writes
    by_name = {n: v for v in kept for n in names_of(v)}
    needed = _needed(axes, by_name, writes)
    nodes = [v for v in kept if needed & set(names_of(v))]
    axes = _axes_in_order([a for a in axes if a.name in needed], by_name)
    order = [a.name for a in axes]
    found = _dependence(axes, nodes)
    writes = [replace(w, axes=_sorted(w.axes, order)) for w in writes]
    everywhere = _everywhere(axes, writes, found)
    alike = _alike(axes, by_name)
    done = [_placed(v, found, order, notes, everywhere, alike) for v in nodes]
    return TileGraph(name, tuple(axes), tuple(_in_order(done)), tuple(writes))


def renewed(graph: TileGraph) -> TileGraph:
    """A graph of changed values: each of them once, with the axes that it has now, and none that no write needs."""
    known: dict[object, str] = {}
    same: dict[str, Expr] = {}
    values: list[Value] = []
    needed = _needed(graph.axes, dict(graph.made), graph.writes)
    for v in _in_order([_as_fold(v, needed) for v in graph.values if needed & {*names_of(v)}]):
        v = mapped(v, lambda e: substitute(e, same))
        match v:
            case Read():
                key: object = (v.array, v.index)
            case Map():
                key = v.value
            case Fold():
                key = (v.algebra, v.over, v.parts, v.inits, v.reverse)
            case _:
                key = v
        first = known.setdefault(key, names_of(v)[0])
        if first != names_of(v)[0] and len(names_of(v)) == 1:
            same[names_of(v)[0]] = Ref(first, v.types[0] if isinstance(v, Fold) else v.type)  # type: ignore[union-attr]
        else:
            values.append(v)
    # a state's next value may be of values after it
    values = [mapped(v, lambda e: substitute(e, same)) if isinstance(v, Scan) else v for v in values]
    draft = _Draft([*graph.axes], [], [*graph.writes]).mapped(lambda e: substitute(e, same))
    by_name = {n: v for v in values for n in names_of(v)}
    needed = _needed(draft.axes, by_name, draft.writes)
    nodes = [v for v in values if needed & {*names_of(v)}]
    axes = _axes_in_order([a for a in draft.axes if a.name in needed], by_name)
    order, depends = [a.name for a in axes], _dependence(axes, nodes)
    placed = [replace(v, axes=_sorted(depends.of_value(v), order)) for v in nodes]
    placed = [replace(v, given=None) if isinstance(v, Read) else v for v in placed]
    writes = tuple(replace(w, axes=_sorted(w.axes, order)) for w in draft.writes)
    return replace(graph, axes=tuple(axes), values=tuple(_in_order(placed)), writes=writes)


def flattened(graph: TileGraph) -> TileGraph:
    """A graph whose folds of folds by one operator are one."""
    draft = _flattened(_Draft([*graph.axes], [*graph.values], [*graph.writes]))
    return replace(graph, values=tuple(draft.values), writes=tuple(draft.writes), axes=tuple(draft.axes))


@dataclass(frozen=True)
class _Draft:
    axes: list[Axis]
    values: list[Value]
    writes: list[Write]

    def uses(self) -> Counter[str]:
        """How often expressions refer to each name."""
        exprs = [e for a in self.axes for e in (a.start, a.stop)]
        exprs += [e for v in self.values for e in (*uses(v), *(v.nexts if isinstance(v, Scan) else ()))]
        exprs += [e for w in self.writes for e in uses_of_write(w)]
        return Counter(x.name for e in exprs for x in walk_expr(e) if isinstance(x, Ref))

    def mapped(self, change: Callable[[Expr], Expr]) -> _Draft:
        axes = [_mapped_axis(a, change) for a in self.axes]
        return _Draft(axes, [mapped(v, change) for v in self.values], [mapped_write(w, change) for w in self.writes])


def _mapped_axis(axis: Axis, change: Callable[[Expr], Expr]) -> Axis:
    segment = axis.segment and axis.segment.mapped(change)
    return replace(axis, start=change(axis.start), stop=change(axis.stop), segment=segment)


def _written_out(draft: _Draft, helpers: Collection[str]) -> _Draft:
    """The maps that have no name in the program written out where they are used once."""
    count = draft.uses()
    alone: dict[str, Expr] = {
        v.name: v.value for v in draft.values if isinstance(v, Map) and v.name in helpers and count[v.name] == 1
    }

    def change(e: Expr) -> Expr:
        while names := {n: alone[n] for n in free_names(e) if n in alone}:
            e = substitute(e, names)
        return e

    return replace(draft, values=[v for v in draft.values if not (isinstance(v, Map) and v.name in alone)]).mapped(change)


def _shared(draft: _Draft, names: Names) -> _Draft:
    """What is costly to compute and needed more than once is a value of its own."""
    count: Counter[Expr] = Counter()

    def look(e: Expr) -> Expr:
        count.update(x for x in walk_expr(e) if isinstance(x, Op) and x.name in COSTLY)
        return e

    draft.mapped(look)
    again = {e for e, n in count.items() if n > 1}
    # what is inside another one as often as that is not needed by itself
    again -= {x for e in again for x in walk_expr(e) if x != e and count[x] == count[e]}
    whole = {v.value: v.name for v in draft.values if isinstance(v, Map)}
    given: dict[Expr, str] = {e: whole.get(e) or names.fresh(e.name) for e in count if e in again and isinstance(e, Op)}

    def named(e: Expr) -> Expr:
        if e in given:
            return Ref(given[e], e.type)
        below = operands(e)
        return with_operands(e, tuple(map(named, below))) if below else e

    def inside(e: Expr) -> Expr:
        below = operands(e)
        return with_operands(e, tuple(map(named, below))) if below else e

    shared = draft.mapped(named)
    values: list[Value] = []
    for old, new in zip(draft.values, shared.values, strict=True):
        itself = isinstance(old, Map) and isinstance(new, Map) and given.get(old.value) == old.name
        values.append(Map(old.name, (), inside(old.value), old.location) if itself and isinstance(old, Map) else new)
    values += [Map(n, (), inside(e)) for e, n in given.items() if e not in whole]
    return replace(shared, values=values)


def _named_as_states(draft: _Draft) -> _Draft:
    """Folds, whose states nobody sees, by the name that the program has for them."""
    folds = [v for v in draft.values if isinstance(v, Fold)]
    names = {r: s for v in folds for s, r in zip(v.names, v.results, strict=True)}
    refs: dict[str, Expr] = {r: Ref(names[r], t) for v in folds for r, t in zip(v.results, v.types, strict=True)}
    draft = draft.mapped(lambda e: substitute(e, refs))
    values = [replace(v, results=tuple(names[r] for r in v.results)) if isinstance(v, Fold) else v for v in draft.values]
    return replace(draft, values=values)


def _everywhere(axes: list[Axis], writes: list[Write], depends: Dependence) -> frozenset[str]:
    """The axes without whose points nothing is written, and those that have points by their bounds."""
    ends = [(a.name, a.start, a.stop) for a in axes]
    there = {n for n, a, b in ends if isinstance(a, Const) and isinstance(b, Const) and a.value < b.value}
    steady = {a.name for a in axes if not depends.of((a.start, a.stop))}
    return frozenset(there | steady.intersection(*(w.axes for w in writes)) if writes else there)


def _needed(axes: Iterable[Axis], values: dict[str, Value], writes: Iterable[Write]) -> set[str]:
    by_name = {a.name: a for a in axes}

    def after(name: str) -> set[str]:
        if name in by_name:
            return free_names_of((by_name[name].start, by_name[name].stop))
        if name not in values:
            return set()
        value = values[name]
        found = free_names_of(uses(value)) | set(value.over if isinstance(value, Carried) else ())
        if isinstance(value, Scan) and (name in value.names or value.algebra == IN_ORDER):
            found |= free_names_of(value.nexts) | set(value.names)
        return found

    return reachable(needed_by(writes), after)


def _as_fold(value: Value, needed: set[str]) -> Value:
    if not isinstance(value, Scan) or value.algebra == IN_ORDER or needed & set(value.names):
        return value
    kept = {f.name: getattr(value, f.name) for f in fields(Carried)}
    return Fold(**{**kept, "reverse": value.reverse and value.algebra not in ALGEBRAS})  # one operator: in any order


def _flattened(draft: _Draft) -> _Draft:
    """Folds whose part is a fold by the same algebra, that starts with its identity, are one over all the axes."""
    draft = _each_once(draft)
    count, values = draft.uses(), draft.values
    while True:
        by_name = {n: v for v in values for n in names_of(v)}
        pairs = ((v, by_name.get(v.parts[0].name)) for v in values
                 if isinstance(v, Fold) and v.algebra in (*ALGEBRAS, *EXTREMA) and isinstance(v.parts[0], Ref))  # fmt: skip
        found = next(((v, w) for v, w in pairs if isinstance(w, Fold) and _continues(v, w, count)), None)
        if found is None:
            return replace(draft, values=values)
        outer, inner = found
        made = replace(outer, over=(*outer.over, *inner.over), parts=inner.parts)
        values = [made if v is outer else v for v in values if v is not inner]


def _each_once(draft: _Draft) -> _Draft:
    """The same fold, made for each of its results, is one."""
    first: dict[tuple[object, ...], Fold] = {}
    same: dict[str, Expr] = {}
    for v in draft.values:
        if isinstance(v, Fold):
            known = first.setdefault((v.algebra, v.over, v.parts, v.inits, v.reverse), v)
            if known is not v:
                same |= {n: Ref(k, e.type) for n, k, e in zip(v.results, known.results, v.inits, strict=True)}
    if not same:
        return draft
    kept = [v for v in draft.values if not isinstance(v, Fold) or v.results[0] not in same]
    return replace(draft, values=kept).mapped(lambda e: substitute(e, same))


def _continues(outer: Fold, inner: Fold, count: Counter[str]) -> bool:
    """Whether a fold goes on with what another one makes at each of its points, and nothing else needs that."""
    if inner.algebra != outer.algebra or inner.reverse != outer.reverse or set(inner.over) & set(outer.over):
        return False
    least = {"argmin": "min", "argmax": "max"}.get(inner.algebra, inner.algebra)
    if least not in ALGEBRAS:
        return False
    init, identity = inner.inits[0], ALGEBRAS[least].identity(inner.inits[0].type)
    neutral = isinstance(init, Const) and repr(init.value) == repr(identity.value)
    if inner.algebra in ALGEBRAS:
        return neutral and count[inner.results[0]] == 1
    value, valid, *others = outer.parts
    taken = [value, *others] == [Ref(n, e.type) for n, e in zip(inner.results, inner.inits, strict=True)]
    return neutral and taken and valid == Const(True, BOOL) and all(count[n] == 1 for n in inner.results)


def _axes_in_order(axes: list[Axis], values: dict[str, Value]) -> list[Axis]:
    """Axes after those that their bounds use, by themselves or through values; else as they were found."""
    by_name = {a.name: a for a in axes}

    def after(name: str) -> set[str]:
        if name not in values:
            return set()
        value = values[name]
        over = value.over if isinstance(value, Carried) else ()
        return free_names_of((*uses(value), *(e for a in over for e in (by_name[a].start, by_name[a].stop))))

    def before(axis: Axis) -> set[str]:
        seen = reachable(free_names_of((axis.start, axis.stop)), after)
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


def _alike(axes: list[Axis], by_name: Mapping[str, Value]) -> dict[str, frozenset[str]]:
    """For each axis those with its range, where that is the same everywhere: they have points where it has."""
    varying = {*by_name, *(a.name for a in axes)}
    ranges = {a.name: (a.start, a.stop) for a in axes if not (free_names(a.start) | free_names(a.stop)) & varying}
    return {a: frozenset(b for b in ranges if ranges[b] == own) for a, own in ranges.items()}


def _placed(
    value: Value,
    depends: Dependence,
    order: list[str],
    notes: Notes,
    everywhere: frozenset[str],
    alike: Mapping[str, frozenset[str]],
) -> Value:
    axes = _sorted(depends.of_value(value), order)
    if isinstance(value, Read):
        # where a loop around it has no iteration it is not loaded, though it has an element for each point of the others
        own = {*axes, *everywhere}
        own |= {b for a in own for b in alike.get(a, ())}
        loaded = [around - own for certain, around in notes.seen.get(value.name, ()) if certain]
        given = min(map(tuple, map(sorted, loaded)), key=len, default=None)
        return replace(value, axes=axes, always=given == () and not value.checked, given=given)
    return replace(value, axes=axes)


def _in_order(values: list[Value]) -> list[Value]:
    by_name = {n: v for v in values for n in names_of(v)}
    done: dict[int, Value] = {}

    def visit(value: Value) -> None:
        stack: list[tuple[Value, bool]] = [(value, False)]
        while stack:
            v, ready = stack.pop()
            if id(v) in done:
                continue
            if ready:
                done[id(v)] = v
                continue
            stack.append((v, True))
            names = [n for e in uses(v) for n in sorted(free_names(e))]
            for n in reversed(names):
                if n in by_name and id(by_name[n]) not in done:
                    stack.append((by_name[n], False))

    for v in values:
        visit(v)
    return list(done.values())
