"""A tile graph as loops again: a pass for each of its folds, and one for each of its writes.

Loops say when, so several programs have one graph: online softmax and the plain passes of it, a product inside of a fold and
one that was stored before. These loops are the plain ones. What is folded over axes of its own lies in memory, an element for
each point of its axes, where later passes find it; passes over the same axes that follow each other are one loop nest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from weft.graph.axes import plus
from weft.graph.needs import by_need
from weft.graph.steady import steady
from weft.graph.tile import (
    Axis,
    Fold,
    Map,
    NotTiles,
    Read,
    Scan,
    TileGraph,
    Value,
    Write,
    dependence,
    starts_neutral,
    uses,
    uses_of_write,
)
from weft.graph.two_steps import in_two_steps
from weft.loops.algebra.meaning import changed
from weft.loops.algebra.table import ALGEBRAS
from weft.loops.extents import expanded, expanded_index, extents
from weft.loops.ir import (
    Array,
    Carry,
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Merge,
    Op,
    Ref,
    Round,
    Stmt,
    Store,
    free_arrays,
    free_names,
    free_names_of,
    has_check,
    reachable,
    substitute,
)
from weft.loops.names import Names
from weft.loops.types import INT64, ScalarType


@dataclass(frozen=True)
class Passes:
    """nests: loop nests that run one after another. memory: the arrays through which they tell each other values, none of which
    has any at first.
    """

    nests: tuple[tuple[Stmt, ...], ...]
    memory: tuple[Array, ...]


def passes(graph: TileGraph, function: Function, names: Names, together: bool = False) -> Passes:
    """The loops of a graph that is of a nest of the function. names: those that are taken there. together: the axes that all
    passes have are loops around them all, so that there is one nest, and what has these axes alone is in no memory. Raises
    NotTiles.
    """
    graph = folded_alone(by_need(graph))
    if not graph.writes:
        raise NotTiles("it writes nothing")
    if not together:
        graph = in_two_steps(graph)
    return _Passes(graph, function, names, together).made()


def in_turn(graph: TileGraph, function: Function, names: Names) -> Passes:
    """The loops of a graph by need, of folds and scans: a nest for each of these, and for each write. What they tell each
    other, states at points among it, is in memory. Raises NotTiles.
    """
    return _Passes(graph, function, names, together=False).in_turn()


def folded_alone(graph: TileGraph) -> TileGraph:
    """A graph by need, of which folds by one operator begin with its identity, and have nothing that is the same for all of
    their points. Raises NotTiles where it has other values than reads, maps and folds, checks as it goes, or joins.
    """
    graph = steady(_from_nothing(graph), every=True)
    for value in graph.values:
        if not isinstance(value, Read | Map | Fold):
            raise NotTiles("a scan has values at each of its points")
    exprs = [e for w in graph.writes for e in uses_of_write(w)] + [e for v in graph.values for e in uses(v)]
    if any(map(has_check, exprs)) or any(w.join or w.checked for w in graph.writes):
        raise NotTiles("it is checked as it goes, or joins values to an array")
    if graph.copied:
        raise NotTiles(f"{graph.copied[0]} is read at other elements than it is written at")
    return graph


def _from_nothing(graph: TileGraph) -> TileGraph:
    """The graph, whose folds by one operator begin with its identity: what they began with is joined to them at their end."""
    made, depends = graph.made, dependence(graph)
    taken = Names({*made, *(a.name for a in graph.axes), *(n for v in graph.values for e in uses(v) for n in free_names(e))})
    values: list[Value] = []
    for v in graph.values:
        if not isinstance(v, Fold) or v.algebra not in ALGEBRAS or starts_neutral(v):
            values.append(v)
            continue
        (init,), (result,), algebra = v.inits, v.results, ALGEBRAS[v.algebra]
        alone = replace(v, results=(taken.fresh(f"{result}_alone"),), inits=(algebra.identity(init.type),))
        inside = depends.of_value(alone)
        alone = replace(alone, axes=tuple(a for a in v.axes if a in inside), relative=(), scale=None)
        joined = Op(algebra.join, (init, Ref(alone.results[0], init.type)), init.type)
        values += [alone, Map(result, v.axes, joined, v.location)]
    return replace(graph, values=tuple(values))


def _uses(item: Value | Write) -> tuple[Expr, ...]:
    return uses_of_write(item) if isinstance(item, Write) else uses(item)


# Passes over these axes, one after another.
_Group = tuple[tuple[str, ...], list["Fold | Write"]]


@dataclass
class _Passes:
    graph: TileGraph
    function: Function
    names: Names
    together: bool
    memory: list[Array] = field(default_factory=list)
    left: dict[str, Expr] = field(default_factory=dict)  # where results lie, over the names of axes
    stored: dict[str, tuple[int, Load]] = field(default_factory=dict)  # maps that a group writes: after which, and where
    rounded: dict[str, Map] = field(default_factory=dict)  # results that are used rounded alone, as these maps

    def made(self) -> Passes:
        self.axes: dict[str, Axis] = {a.name: a for a in self.graph.axes}
        self.maps = {v.name: v for v in self.graph.values if isinstance(v, Map)}
        self.reads = {v.name: v for v in self.graph.values if isinstance(v, Read)}
        folds = self.one_after_another()
        axes = [*(set(f.axes) for f in folds), *(set(w.axes) for w in self.graph.writes)]
        self.common = self.ordered(set.intersection(*axes) if self.together else ())
        groups: list[_Group] = [(own, [*group]) for own, group in groupby(folds, lambda f: self.ordered(f.axes))]
        for write in self.graph.writes:
            self.put(write, groups)
        self.stored = self.as_written(groups)
        self.rounded = self.as_rounded()
        if not self.together:
            nests: list[tuple[Stmt, ...]] = []
            beside = {k for k in range(len(groups) - 1) if self.of_the_same_rows(*groups[k : k + 2])}
            for k, (own, group) in enumerate(groups):
                if k - 1 not in beside:
                    nests.append(self.rows(groups, k) if k in beside else self.nest(own, group, self.needed(groups, k), {}))
            return Passes(tuple(nests), tuple(self.memory))

        def inside(known: dict[str, Expr]) -> tuple[Stmt, ...]:
            body: list[Stmt] = []
            for k, (own, group) in enumerate(groups):
                inner = [a for a in own if a not in self.common]
                body += self.nest(inner, group, self.needed(groups, k), known)
            return tuple(body)

        return Passes((self.loops(self.common, {}, inside),), tuple(self.memory))

    def in_turn(self) -> Passes:
        self.axes = {a.name: a for a in self.graph.axes}
        self.maps = {v.name: v for v in self.graph.values if isinstance(v, Map)}
        self.reads = {v.name: v for v in self.graph.values if isinstance(v, Read)}
        everything = {*self.graph.made}
        items = (*(v for v in self.graph.values if isinstance(v, Fold | Scan)), *self.graph.writes)
        return Passes(tuple(self.nest(self.ordered(i.axes), [i], everything, {}) for i in items), tuple(self.memory))

    def one_after_another(self) -> list[Fold]:
        """The folds, each after those that it needs; those over the same axes follow each other where they may, and those with
        fewer axes come first: what is written of all of them is so where the last one is found.
        """
        left = {v.results: v for v in self.graph.values if isinstance(v, Fold)}
        folded = {r for results in left for r in results}
        needs = {results: self.needs(v) & folded for results, v in left.items()}
        done: list[Fold] = []
        found: set[str] = set()
        while left:
            ready = [v for results, v in left.items() if needs[results] <= found]
            alike = (v for v in ready if done and v.axes == done[-1].axes)
            done.append(next(alike, min(ready, key=lambda v: len(v.axes))))
            found |= {*done[-1].results}
            del left[done[-1].results]
        return done

    def of_the_same_rows(self, folds: _Group, writes: _Group) -> bool:
        """Whether what follows folds writes at the points that they fold, for each of their results: one nest reads a row for
        both.
        """
        (axes, group), (across, after) = folds, writes
        if not axes or not all(isinstance(w, Write) for w in after):
            return False
        over = {self.ordered(f.over) if isinstance(f, Fold) else () for f in group}
        return over == {across[len(axes) :]} and across[: len(axes)] == axes and len(across) > len(axes)

    def rows(self, groups: Sequence[_Group], k: int) -> tuple[Stmt, ...]:
        """The folds of a group, and for each of their results the writes of the next one."""
        (axes, folds), (across, writes), later = groups[k], groups[k + 1], self.needed(groups, k + 1)

        def inside(known: dict[str, Expr]) -> tuple[Stmt, ...]:
            body = [s for f in folds if isinstance(f, Fold) for s in self.fold(f, known, later)]
            return (*body, *self.nest(across[len(axes) :], writes, later, known))

        return self.loops(axes, {}, inside)

    def put(self, write: Write, groups: list[_Group]) -> None:
        """A write in the last group with its axes in which all that it needs is there, if nothing after it reads what was there
        before it; else in a group of its own.
        """
        axes, needs = self.ordered(write.axes), self.needs(write)
        if self.arrays(write) & {i.array for _, group in groups for i in group if isinstance(i, Write)}:
            raise NotTiles(f"{write.array} is written of what was written before")
        for k in reversed(range(len(groups))):
            own, group = groups[k]
            if own == axes:
                group.append(write)
                return
            if any(write.array in self.arrays(i) or (isinstance(i, Fold) and needs & {*i.results}) for i in group):
                break
        groups.append((axes, [write]))

    def as_written(self, groups: Sequence[_Group]) -> dict[str, tuple[int, Load]]:
        """Maps of results that a group writes as they are, each element once: groups after it read them instead of what they
        are made of.
        """
        found: dict[str, tuple[int, Load]] = {}
        writes = [(k, i) for k, (_, group) in enumerate(groups) for i in group if isinstance(i, Write)]
        arrays, types = [w.array for _, w in writes], {a.name: a.dtype for a in self.function.arrays}
        folded = {r for v in self.graph.values if isinstance(v, Fold) for r in v.results}
        for k, write in writes:
            value = self.maps.get(write.value.name) if isinstance(write.value, Ref) else None
            if value is None or write.guard is not None or arrays.count(write.array) > 1 or not self.needs(write) & folded:
                continue
            held = value.value.to if isinstance(value.value, Round) else value.type
            plain = all(isinstance(i, Ref) for i in write.index) and len(set(write.index)) == len(write.index)
            plain = plain and {i.name for i in write.index if isinstance(i, Ref)} == {*value.axes}
            if plain and types.get(write.array) == held:
                found[value.name] = (k, Load(write.array, write.index, value.type, write.location))
        return found

    def as_rounded(self) -> dict[str, Map]:
        """Results that nothing uses but a map that rounds them, by their names: that is what is left of them."""
        users: dict[str, list[Value | Write]] = {}
        for item in (*self.graph.values, *self.graph.writes):
            for name in {n for e in _uses(item) for n in free_names(e)}:
                users.setdefault(name, []).append(item)
        rounding = {n: own[0] for n, own in users.items() if len(own) == 1 and isinstance(own[0], Map)}
        return {n: m for n, m in rounding.items() if isinstance(m.value, Round) and m.value.value == Ref(n, m.type)}

    def needed(self, groups: Sequence[_Group], k: int) -> set[str]:
        """What groups after the k-th need."""
        later = list(enumerate(groups))[k + 1 :]
        return {n for after, (_, group) in later for item in group for n in self.needs(item, self.there(after))}

    def there(self, group: int) -> set[str]:
        """Maps that groups before this one have written."""
        return {name for name, (k, _) in self.stored.items() if k < group}

    def ordered(self, names: Collection[str]) -> tuple[str, ...]:
        return tuple(a for a in self.axes if a in names)

    def as_in_memory(self, names: Collection[str]) -> tuple[str, ...]:
        """Axes in the order in which the first array lies that is read or written at points of all of them: what is kept over
        the same axes is gone through with it.
        """
        for index in (*(r.index for r in self.reads.values()), *(w.index for w in self.graph.writes)):
            found = tuple(i.name for i in index if isinstance(i, Ref) and i.name in names)
            if {*found} == {*names} and len(found) == len(names):
                return found
        return self.ordered(names)

    def needs(self, item: Fold | Write, there: Collection[str] = ()) -> set[str]:
        """The names of reads, maps and results that an item is made of, those that its axes need among them. there: what is in
        memory.
        """

        def after(name: str) -> Iterable[str]:
            value = self.graph.made.get(name)
            return free_names_of(uses(value)) if name not in there and isinstance(value, Read | Map) else ()

        return reachable(free_names_of(_uses(item)), after)

    def arrays(self, item: Fold | Write) -> set[str]:
        """The arrays that an item reads."""
        read = [self.graph.made[n] for n in self.needs(item) if n in self.reads or n in self.maps]
        exprs = [e for v in (*read, item) for e in _uses(v)]
        return {v.array for v in read if isinstance(v, Read)} | {a for e in exprs for a in free_arrays(e)}

    # ---- a nest

    def nest(
        self, axes: Sequence[str], group: Sequence[Fold | Scan | Write], later: set[str], around: dict[str, Expr]
    ) -> tuple[Stmt, ...]:
        """The passes of a group in loops over these axes. later: what other nests need. around: what is known around them."""

        def inside(known: dict[str, Expr]) -> tuple[Stmt, ...]:
            body: list[Stmt] = []
            for item in group:
                body += self.write(item, known) if isinstance(item, Write) else self.fold(item, known, later)
            return tuple(body)

        return self.loops(axes, around, inside)

    def loops(
        self, axes: Sequence[str], known: Mapping[str, Expr], inside: Callable[[dict[str, Expr]], tuple[Stmt, ...]]
    ) -> tuple[Stmt, ...]:
        if not axes:
            return inside(dict(known))
        lets, loop = self.loop(axes[0], inner := dict(known))
        body = self.loops(axes[1:], {**inner, axes[0]: Ref(loop.var, INT64)}, inside)
        return (*lets, replace(loop, body=body))

    def loop(self, axis: str, known: dict[str, Expr]) -> tuple[tuple[Stmt, ...], For]:
        """The loop over an axis, and what comes before it: the names of its bounds."""
        own = self.axes[axis]
        lets = self.lets((own.start, own.stop), known)
        start, stop = (self.expr(e, known) for e in (own.start, own.stop))
        if (free_names(start) | free_names(stop)) & (self.graph.made.keys() | self.axes.keys()) - self.bound(known):
            raise NotTiles(f"folds or other axes decide the bounds of {axis}")
        segment = own.segment and own.segment.mapped(lambda e: self.expr(e, known))
        return lets, For(self.names.fresh(axis), start, stop, 1, (), (), segment=segment)

    def bound(self, known: Mapping[str, Expr]) -> set[str]:
        """The names of the loops that are being made, as far as they are there."""
        return {n for e in known.values() for n in free_names(e)}

    def lets(self, exprs: Sequence[Expr], known: dict[str, Expr]) -> tuple[Stmt, ...]:
        """What expressions need of the maps, with whose names they are known from then on."""
        out: list[Stmt] = []
        for name in dict.fromkeys(n for e in exprs for n in sorted(free_names(e))):
            if name in self.maps and name not in known and name not in self.left:
                value = self.maps[name]
                out += self.lets((value.value,), known)
                made = Let(self.names.fresh(name), self.expr(value.value, known), value.location)
                known[name] = Ref(made.name, value.type)
                out.append(made)
            elif name in self.reads:
                out += self.lets(self.reads[name].index, known)
        return tuple(out)

    def expr(self, e: Expr, known: Mapping[str, Expr]) -> Expr:
        found: dict[str, Expr] = {}
        for name in free_names(e):
            if name in known:
                found[name] = known[name]
            elif name in self.reads:
                read = self.reads[name]
                index = tuple(self.expr(i, known) for i in read.index)
                found[name] = Load(read.array, index, read.type, read.location)
            elif name in self.left:
                found[name] = substitute(self.left[name], {a: known[a] for a in self.axes if a in known})
        return substitute(e, found)

    # ---- passes

    def write(self, write: Write, known: dict[str, Expr]) -> tuple[Stmt, ...]:
        guarded = () if write.guard is None else self.lets((write.guard,), known)
        inner = dict(known) if guarded or write.guard is not None else known
        lets = self.lets((*write.index, write.value), inner)
        index = tuple(self.expr(i, inner) for i in write.index)
        store = (*lets, Store(write.array, index, self.expr(write.value, inner), write.location))
        if isinstance(write.value, Ref) and write.value.name in self.stored:
            self.left[write.value.name] = self.stored[write.value.name][1]
        if write.guard is None:
            return store
        return (*guarded, If(self.expr(write.guard, known), store, (), (), write.location))

    def fold(self, fold: Fold | Scan, known: dict[str, Expr], later: set[str]) -> tuple[Stmt, ...]:
        out = [*self.lets(fold.inits, known)]
        for name, type_ in zip(fold.names if isinstance(fold, Scan) else (), fold.types, strict=False):
            self.left[name] = self.place(name, type_, self.as_in_memory((*fold.axes, *fold.over)))
        results = [self.names.fresh(r) for r in fold.results]
        types = [e.type for e in fold.inits]
        out += self.carried(fold, self.ordered(fold.over), known, [self.expr(e, known) for e in fold.inits], results)
        for name, result, type_ in zip(fold.results, results, types, strict=True):
            known[name] = Ref(result, type_)
            if name not in later:
                continue
            if self.together and self.ordered(fold.axes) == self.common:
                self.left[name] = known[name]
                continue
            rounding = self.rounded.get(name)
            kept: Expr = known[name]
            if rounding is not None and isinstance(rounding.value, Round):
                name, kept = rounding.name, Round(kept, rounding.value.to)
                type_ = rounding.value.to
            place = self.place(name, type_, self.as_in_memory(fold.axes))
            self.left[name] = place
            index = tuple(substitute(i, {a: known[a] for a in fold.axes}) for i in place.index)
            out.append(Store(place.array, index, kept, fold.location))
        return tuple(out)

    def carried(
        self, fold: Fold | Scan, over: Sequence[str], known: Mapping[str, Expr], inits: Sequence[Expr], results: Sequence[str]
    ) -> tuple[Stmt, ...]:
        """The loop over the first of these axes, which carries the states from these values on to these results."""
        before, loop = self.loop(over[0], inner := dict(known))
        inner |= {over[0]: Ref(loop.var, INT64)}
        start, stop, step = loop.start, loop.stop, 1
        if fold.reverse:
            start, stop, step = plus(loop.stop, -1), plus(loop.start, -1), -1
        names = [self.names.fresh(n) for n in fold.names]
        states: list[Expr] = [Ref(n, e.type) for n, e in zip(names, inits, strict=True)]
        nexts: tuple[Expr, ...]
        if over[1:]:
            after = [self.names.fresh(r) for r in fold.results]
            body = self.carried(fold, over[1:], inner, states, after)
            nexts = tuple(Ref(n, e.type) for n, e in zip(after, inits, strict=True))
        elif isinstance(fold, Scan):
            inner |= dict(zip(fold.names, states, strict=True))
            places = {a: inner[a] for a in (*fold.axes, *fold.over)}
            cells = [substitute(self.left[n], places) for n in fold.names]
            kept = (Store(c.array, c.index, s) for c, s in zip(cells, states, strict=True) if isinstance(c, Load))
            body = (*kept, *self.lets(fold.nexts, inner))
            nexts = tuple(self.expr(e, inner) for e in fold.nexts)
        elif self.together and (own := _conditional(fold)) is not None:
            condition, part = own
            body = self.lets((condition,), inner)
            asked, within = self.expr(condition, inner), dict(inner)
            then = self.lets((part,), within)
            (more,), name = changed(fold.algebra, states, [self.expr(part, within)]), self.names.fresh(fold.names[0])
            body = (*body, If(asked, then, (), (Merge(name, more, states[0]),), fold.location))
            nexts = (Ref(name, more.type),)
        else:
            body = self.lets(fold.parts, inner)
            nexts = changed(fold.algebra, states, [self.expr(e, inner) for e in fold.parts])
        carries = tuple(Carry(*own) for own in zip(names, inits, nexts, results, strict=True))
        made = replace(loop, start=start, stop=stop, step=step, carries=carries, body=body, location=fold.location)
        return (*before, made)

    def place(self, name: str, type_: ScalarType, axes: Sequence[str]) -> Load:
        """Memory for a result, an element for each point of its axes."""
        loops = [For(a, _from_nought(self.axes[a].start), self.axes[a].stop, 1, (), ()) for a in axes]
        found = extents(self.function, loops)
        if found is None:
            raise NotTiles(f"it is not told how many elements {name} has")
        array = expanded(self.names.fresh(name), type_, found)
        self.memory.append(array)
        return Load(array.name, expanded_index(found, [Ref(a, INT64) for a in axes]), type_.opmath)


def _conditional(fold: Fold) -> tuple[Expr, Expr] | None:
    """The condition on which a sum has a part, and this."""
    match fold.parts:
        case (Op(name="where", args=(condition, part, Const(value=0))),) if fold.algebra == "sum":
            return condition, part
    return None


def _from_nought(start: Expr) -> Expr:
    """Where places for an axis begin: from 0 on where that is a maximum with 0, so that subscripts stay sums."""
    nought = Const(0, INT64)
    return nought if isinstance(start, Op) and start.name in ("max", "maximum") and nought in start.args else start
