"""Folds of parts that are folded again, as folds of the whole: attention whose keys are split, and then combined.

A loop over parts goes through tiles of an axis, `range(part * size, part * size + size)`: both together are one axis. A sum of
a part is kept relative to the part's maximum, and what adds the parts up brings each to the maximum of all: by the law of
`weft.loops.algebra.cascades` the terms are then relative to that one from the start, and nothing of a part is left. A program
says so how work is shared; here a plan does that.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from weft.graph.axes import plus
from weft.graph.tidy import flattened, renewed
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
    dependence,
    mapped,
    mapped_write,
    names_of,
    starts_neutral,
)
from weft.loops.algebra.cascades import Running, cascade, rescales, unrounded
from weft.loops.algebra.table import AFFINE, ALGEBRAS
from weft.loops.ir import Cast, Const, Expr, Op, Ref, Round, free_names, operands, rewrite, substitute, walk_expr, with_operands
from weft.loops.names import Names
from weft.loops.normalize import simplify
from weft.loops.polynomials import Polynomial, difference, polynomial
from weft.loops.simplify import is_number
from weft.loops.types import BOOL, INT64, ScalarType

_LEAST, _LARGEST = ("min", "minimum"), ("max", "maximum")


def whole(graph: TileGraph, sizes: Collection[str]) -> TileGraph | None:
    """The graph without the axes of parts; None where it has none, or some of them are left. sizes: names of numbers that are
    not below 0.
    """
    found = _Whole(graph, frozenset(sizes))
    found.telescope()
    return None if any(isinstance(v, Scan | Moved) for v in found.graph.values) else found.made()


def from_the_start(graph: TileGraph) -> TileGraph | None:
    """The graph, whose axes of tiles count from the start of their arrays (`k[p * size + j]`); None where none counts from the
    start of a tile.
    """
    if any(isinstance(v, Scan | Moved) for v in graph.values):
        return None
    found = _Whole(graph, frozenset())
    found.counted_from_the_start()
    return found.graph if {*found.axes} - {a.name for a in graph.axes} else None


def without_single_points(graph: TileGraph) -> TileGraph:
    """The graph without axes of one point that nothing is folded over: some values have them, and others are of their point."""
    folded = {a for v in graph.values if isinstance(v, Scan | Fold) for a in v.over}
    single = {a.name: a.start for a in graph.axes if a.stop == plus(a.start, 1) and a.name not in folded}
    if any(isinstance(v, Moved) for v in graph.values) or not single:
        return graph

    def change(e: Expr) -> Expr:
        return _plain(e, single)

    writes = (mapped_write(w, change) for w in graph.writes)
    alone = tuple(replace(w, axes=tuple(a for a in w.axes if a not in single)) for w in writes)
    axes = tuple(replace(a, start=change(a.start), stop=change(a.stop)) for a in graph.axes if a.name not in single)
    return renewed(replace(graph, axes=axes, values=tuple(mapped(v, change) for v in graph.values), writes=alone))


def _is_sum(value: Value) -> bool:
    return isinstance(value, Fold) and value.algebra == "sum" and len(value.names) == 1


@dataclass
class _Whole:
    graph: TileGraph
    sizes: frozenset[str]
    gone: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        taken = {n for v in self.graph.values for n in (*names_of(v), *(v.names if isinstance(v, Fold) else ()))}
        used = {n for v in self.graph.values for e in _exprs(v) for n in free_names(e)}
        self.names = Names({*taken, *used, *self.sizes, *(a.name for a in self.graph.axes)})

    def made(self) -> TileGraph | None:
        """The graph when nothing is left of parts; None where something is, or where there are none."""
        self.counted_from_the_start()
        self.relative()
        self.graph = renewed(flattened(renewed(self.graph)))
        merged = set[str]()
        while (step := next(self.tiles(), None)) is not None:
            self.gone |= {step[0]}
            merged.add(self.merge(*step))
        for axis in sorted(merged & {*self.axes}):
            self.trim(axis)
        return self.graph if self.gone and not self.gone & {*self.axes} else None

    # ---- sums that turns rescale

    def telescope(self) -> None:
        """Sums that are kept relative to a state of a scan, and rescaled as it changes, relative to its last one instead."""
        if not any(isinstance(v, Scan) for v in self.graph.values):
            return
        values: list[Value] = []
        for v in self.graph.values:
            found = self.telescoped(v) if isinstance(v, Fold) and v.algebra == AFFINE else None
            values += found or (v,)
        self.graph = renewed(replace(self.graph, values=tuple(values)))

    def telescoped(self, fold: Fold) -> tuple[Value, ...] | None:
        """A fold of `state * scale + part` as a sum of what parts are relative to the last state of a scan."""
        states = [s for s in self.graph.values if isinstance(s, Scan) and s.over == fold.over and len(s.names) == 1]
        states = [s for s in states if s.reverse == fold.reverse]
        if len(fold.names) != 1 or not is_number(fold.inits[0], 0):
            return None
        scale, part = (self.written_out(e, {*fold.over}) for e in fold.parts)
        for scan, (inner, by) in itertools.product(states, self.factored(part)):
            (after,), own = scan.nexts, self.written_out(inner.parts[0], {*fold.over})
            if not isinstance(after, Ref) or not is_number(by, 1) or not starts_neutral(inner):
                continue
            running = Running(scan.names[0], (after,))
            if not {*inner.over} & {*fold.over} and cascade(fold.names[0], scale, unrounded(own), (running,)).repair:
                copies = _Copies(self, {after.name: Ref(scan.results[0], after.type)})
                term = copies.expr(inner.parts[0])
                made = replace(fold, algebra="sum", over=(*fold.over, *inner.over), parts=(term,), relative=(), scale=None)
                return *copies.made, made
        return None

    # ---- sums of parts

    def relative(self) -> None:
        """Bring the terms of sums of parts to what their sums are brought to."""
        while (found := next(self.rescaled(), None)) is not None:
            outer, made, values = found
            own = list(self.graph.values)
            at = own.index(outer)
            self.graph = replace(self.graph, values=(*own[:at], *values, made, *own[at + 1 :]))
            self.gone |= {*outer.over}

    def rescaled(self) -> Iterator[tuple[Fold, Fold, tuple[Value, ...]]]:
        """Sums over parts of what a sum of a part is times its scale; as one sum, and the values that are new for its terms."""
        depends = dependence(self.graph)
        for outer in self.graph.values:
            if not _is_sum(outer):
                continue
            assert isinstance(outer, Fold)
            part = self.written_out(outer.parts[0], {*outer.over})
            for inner, scale in self.factored(part):
                if {*inner.over} & {*outer.over} or not starts_neutral(inner):
                    continue
                term = self.written_out(inner.parts[0], {*outer.over})
                of_part = [n for n in sorted(free_names(scale)) if self.is_fold(n) and depends.values[n] & {*outer.over}]
                of_all = [n for n in sorted(free_names(scale)) if self.is_fold(n) and not depends.values[n] & {*outer.over}]
                for before, after in ((b, a) for b in of_part for a in of_all):
                    if rescales(term, _unguarded(scale, before), before, after):
                        copies = _Copies(self, {before: Ref(after, self.type(after))})
                        made = replace(outer, over=(*outer.over, *inner.over), parts=(copies.expr(inner.parts[0]),))
                        ends = self.ends(made.parts[0], copies.made)
                        if all(isinstance(v, Map) for v in copies.made) and not {*outer.over} & depends.of(ends):
                            yield outer, replace(made, relative=(), scale=None), tuple(copies.made)

    def ends(self, e: Expr, new: Collection[Value]) -> tuple[Expr, ...]:
        """What a term is of, with new values written out."""
        values = {v.name: v.value for v in new if isinstance(v, Map)}
        while own := {n: values[n] for n in free_names(e) if n in values}:
            e = substitute(e, own)
        return (e,)

    def is_fold(self, name: str) -> bool:
        return isinstance(self.graph.made.get(name), Fold)

    def type(self, name: str) -> ScalarType:
        value = self.graph.made[name]
        assert isinstance(value, Fold)
        return value.types[value.results.index(name)]

    def written_out(self, e: Expr, axes: Collection[str]) -> Expr:
        """e with the maps over these axes written out."""
        made = self.graph.made
        while own := {n: v.value for n in free_names(e) if isinstance(v := made.get(n), Map) and {*v.axes} & {*axes}}:
            e = substitute(e, own)
        return e

    def factored(self, e: Expr) -> Iterator[tuple[Fold, Expr]]:
        """The sums that an expression is a product of, each with all that is multiplied with it."""
        match e:
            case Ref(name=name, type=type_):
                value = self.graph.made.get(name)
                if value is not None and _is_sum(value):
                    assert isinstance(value, Fold)
                    yield value, Const(1.0, type_)
            case Op(name="mul" | "div" as name, args=(a, b)):
                yield from ((fold, Op(name, (rest, b), e.type)) for fold, rest in self.factored(a))
                if name == "mul":
                    yield from ((fold, Op(name, (a, rest), e.type)) for fold, rest in self.factored(b))

    # ---- axes

    def counted_from_the_start(self) -> None:
        """Axes that count from where a tile starts, from where its array does."""
        written = {a for w in self.graph.writes for a in w.axes}
        for axis in self.graph.axes:
            if axis.name in written or axis.segment is not None or free_names(axis.start) & {*self.axes}:
                continue
            base = next((b for r in self.graph.values if (b := self.base(r, axis.name)) is not None), None)
            folds = [v for v in self.graph.values if isinstance(v, Fold) and axis.name in v.over]
            if base is not None and all(free_names(base) & {*self.axes} <= {*v.axes, *v.over} for v in folds):
                name = self.names.fresh(axis.name)
                start, stop = (_plus(e, base) for e in (axis.start, axis.stop))
                self.rename({axis.name: _minus(Ref(name, INT64), base)}, Axis(name, start, _above(stop, start)))

    @property
    def axes(self) -> Mapping[str, Axis]:
        return {a.name: a for a in self.graph.axes}

    def base(self, read: Value, axis: str) -> Expr | None:
        """What is added to an axis in a subscript, which other axes are in; None where nothing is."""
        for index in read.index if isinstance(read, Read) else ():
            form = polynomial(index)
            if form is not None and axis in free_names(index):
                one, rest = form.divided(axis)
                if one == _ONE and any(n in self.axes for m, _ in rest.terms for n in m) and axis not in _names(rest):
                    return rest.expr()
        return None

    def rename(self, at: Mapping[str, Expr], new: Axis) -> None:
        """Have an axis instead of another one: one of the same bounds, where there is such."""
        (old,) = at
        same = self.same(new, old)
        if same is not None:
            at, new = {old: substitute(at[old], {new.name: Ref(same.name, INT64)})}, same
        axes = tuple(new if a.name == old else a for a in self.graph.axes if a.name != new.name or a.name == old)

        def change(e: Expr) -> Expr:
            return _plain(e, at) if old in free_names(e) else e

        values = [mapped(v, change) for v in self.graph.values]
        values = [
            replace(v, over=tuple(new.name if a == old else a for a in v.over)) if isinstance(v, Fold) else v for v in values
        ]
        self.graph = renewed(replace(self.graph, axes=axes, values=tuple(values)))

    def same(self, axis: Axis, instead: str) -> Axis | None:
        """An axis of the same points, that nothing has beside the one that it would be instead of."""

        def apart(name: str) -> bool:
            return not any({name, instead} <= {*v.axes, *(v.over if isinstance(v, Fold) else ())} for v in self.graph.values)

        alike = (a for a in self.graph.axes if _equal(a.start, axis.start) and _equal(a.stop, axis.stop))
        return next((a for a in alike if a.segment is None and apart(a.name)), None)

    def tiles(self) -> Iterator[tuple[str, str, Axis]]:
        """Axes of parts and of what is in each, that are one axis; and that one."""
        for fold in self.graph.values:
            if not isinstance(fold, Fold) or fold.algebra not in ALGEBRAS or fold.reverse:
                continue
            for part, inner in ((p, i) for p in fold.over for i in fold.over if p != i):
                made = self.joined(self.axes[part], self.axes[inner])
                if made is not None and part not in dependence(self.graph).of(fold.parts):
                    yield part, inner, made

    def joined(self, part: Axis, inner: Axis) -> Axis | None:
        """The axis of all tiles: where each starts a size after the one before it, and ends where the next one starts, or
        where all end.
        """
        start = polynomial(inner.start)
        if part.start != Const(0, INT64) or start is None or part.segment is not None or inner.segment is not None:
            return None
        size, first = start.divided(part.name)
        if part.name in _names(size) or part.name in _names(first) or not size.terms:
            return None
        each, following = _least(inner.stop), _plus(inner.start, size.expr())
        others = [e for e in each if not _equal(e, following)]
        if len(others) == len(each) or any(part.name in free_names(e) for e in others):
            return None
        if first.terms or not any(_covered(e, size.expr(), part.stop) for e in others):
            others.append(_plus(_times(size.expr(), self.count(part.stop)), first.expr()))
        stop = _least_of(others)
        return Axis(self.names.fresh(inner.name), first.expr(), stop)

    def count(self, stop: Expr) -> Expr:
        """How many parts there are, where a range ends there that begins with 0."""
        known = isinstance(stop, Const) and stop.value >= 0 or isinstance(stop, Ref) and stop.name in self.sizes
        return stop if known else Op("max", (stop, Const(0, INT64)), INT64)

    def merge(self, part: str, inner: str, new: Axis) -> str:
        """Have folds over the parts and what is in each fold over all. Returns the axis of these."""
        same = self.same(new, inner)
        axis = same or new
        if same is None:
            self.graph = replace(self.graph, axes=(*self.graph.axes, new))
        depends = dependence(self.graph)
        copies = _Copies(self, {inner: Ref(axis.name, INT64)})
        values: list[Value] = []
        for v in self.graph.values:
            both = isinstance(v, Fold) and {part, inner} <= {*v.over} and v.algebra in ALGEBRAS and not v.reverse
            if both and isinstance(v, Fold) and part not in depends.of(v.parts):
                parts = tuple(map(copies.expr, v.parts))
                values += copies.made
                copies.made.clear()
                over = tuple(axis.name if a == inner else a for a in v.over if a != part)
                v = replace(v, over=over, parts=parts, relative=(), scale=None)
            values.append(v)
        self.graph = renewed(replace(self.graph, values=tuple(values)))
        return axis.name

    def trim(self, name: str) -> None:
        """End an axis where a condition ends that all of its points need to change what is folded (`j < keys`)."""
        folds = [v for v in self.graph.values if isinstance(v, Fold) and name in v.over]
        parts = [self.written_out(e, {name}) for f in folds for e in f.parts]
        asked = dict.fromkeys(e for p in parts for e in walk_expr(p) if isinstance(e, Op) and _end(e, name) is not None)
        for condition in asked:
            if all(self.left(self.written_out(e, {name}), condition, name) == _nothing(f) for f in folds for e in f.parts):
                end = _end(condition, name)
                assert end is not None

                def change(e: Expr, condition: Expr = condition) -> Expr:
                    return simplify(_decided(e, condition, True)) if condition in walk_expr(e) else e

                axes = tuple(replace(a, stop=_least_of((end, a.stop))) if a.name == name else a for a in self.graph.axes)
                values = tuple(mapped(v, change) for v in self.graph.values)
                self.graph = renewed(replace(self.graph, axes=axes, values=values))
                return

    def left(self, e: Expr, condition: Expr, axis: str) -> float | None:
        """The number that an expression is where a condition does not hold, if no data along an axis make a difference."""
        depends = dependence(self.graph)

        def found(e: Expr) -> float | None:
            match e:
                case Const(value=value):
                    return float(value)
                case Cast(value=a) | Round(value=a):
                    return found(a)
                case Op(name="exp" | "exp2", args=(a,)):
                    return 0.0 if found(a) == -math.inf else None
                case Op(name="sub", args=(a, b)) if axis not in depends.of((b,)):
                    return -math.inf if found(a) == -math.inf else None
            return None

        return found(simplify(_decided(e, condition, False)))


@dataclass
class _Copies:
    """Values with other names instead of these, made once."""

    of: _Whole
    instead: dict[str, Expr]
    made: list[Value] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.known: dict[str, Expr] = dict(self.instead)

    def expr(self, e: Expr) -> Expr:
        changed = {n: made for n in sorted(free_names(e)) if (made := self.named(n)) is not None}
        return _plain(e, changed) if changed else e

    def named(self, name: str) -> Expr | None:
        if name in self.known:
            return self.known[name]
        value = self.of.graph.made.get(name)
        if value is None or not self.reaches(value):
            return None
        if isinstance(value, Scan | Moved):
            raise NotTiles("a scan has values at each of its points")
        own = mapped(value, self.expr)
        if isinstance(own, Fold):
            results = tuple(self.of.names.fresh(r) for r in own.results)
            own = replace(own, names=tuple(map(self.of.names.fresh, own.names)), results=results, relative=(), scale=None)
            self.known |= {o: Ref(n, t) for o, n, t in zip(names_of(value), results, own.types, strict=True)}
        else:
            assert isinstance(own, Read | Map)
            own = replace(own, name=self.of.names.fresh(name))
            self.known[name] = Ref(own.name, own.type)
        self.made.append(own)
        return self.known[name]

    def reaches(self, value: Value) -> bool:
        """Whether a value is made of one that has another name: of an axis, if it is one of its own."""
        graph, axes = self.of.graph, self.of.axes
        if any(name in value.axes for name in self.instead):
            return True
        pending, seen = [n for e in _exprs(value) for n in free_names(e)], set[str]()
        while pending:
            name = pending.pop()
            if name in self.instead and name not in axes:
                return True
            if name not in seen and name in graph.made:
                pending += [n for e in _exprs(graph.made[name]) for n in free_names(e)]
            seen.add(name)
        return False


_ONE = Polynomial.make([((), 1)])


def _exprs(value: Value) -> tuple[Expr, ...]:
    match value:
        case Read():
            return value.index
        case Map():
            return (value.value,)
        case Fold():
            return (*value.parts, *value.inits)
    return ()


def _end(condition: Expr, axis: str) -> Expr | None:
    """Where an axis ends, all of whose points have a condition on integers that others have not; None where it is no such."""
    match condition:
        case Op(name="lt", args=(a, b)) | Op(name="gt", args=(b, a)) if a.type == b.type == INT64:
            form = polynomial(Op("sub", (a, b), INT64))
            if form is not None and axis in _names(form):
                one, rest = form.divided(axis)
                end = Polynomial.make((m, -c) for m, c in rest.terms)
                return end.expr() if one == _ONE and axis not in _names(rest) else None
    return None


def _decided(e: Expr, condition: Expr, holds: bool) -> Expr:
    return rewrite(e, lambda x: Const(holds, BOOL) if x == condition else None)


def _nothing(fold: Fold) -> float | None:
    """The part that does not change a fold."""
    return float(ALGEBRAS[fold.algebra].identity(fold.types[0]).value) if fold.algebra in ALGEBRAS else None


def _names(form: Polynomial) -> set[str]:
    return {n for m, _ in form.terms for n in m}


def _equal(a: Expr, b: Expr) -> bool:
    return a == b or {repr(e) for e in _least(a)} == {repr(e) for e in _least(b)} or not difference(a, b).terms


def _least(e: Expr) -> list[Expr]:
    """What an expression is the least of."""
    if isinstance(e, Op) and e.name in _LEAST:
        return [x for a in e.args for x in _least(a)]
    return [e]


def _plus(e: Expr, other: Expr) -> Expr:
    """A sum, inside of extrema."""
    if is_number(other, 0):
        return e
    if isinstance(e, Op) and e.name in (*_LEAST, *_LARGEST):
        return replace(e, args=tuple(_plus(a, other) for a in e.args))
    form = polynomial(Op("add", (e, other), INT64))
    if form is not None:
        return form.expr()
    match e:
        case Op(name="sub", args=(a, b)) if not difference(b, other).terms:
            return a
        case Op(name="sub", args=(Op(name=name) as a, b)) if name in (*_LEAST, *_LARGEST):
            return _plus(a, Op("sub", (other, b), INT64))
    return Op("add", (e, other), INT64)


def _times(e: Expr, other: Expr) -> Expr:
    form = polynomial(Op("mul", (e, other), INT64))
    return form.expr() if form is not None else Op("mul", (e, other), INT64)


def _least_of(ends: Sequence[Expr]) -> Expr:
    """The least of some ends, without those that are above another one whatever their names are."""
    kept: list[Expr] = []
    for e in dict.fromkeys(x for end in ends for x in _least(end)):
        if not any(_above_by(e, k) for k in kept):
            kept = [*(k for k in kept if not _above_by(k, e)), e]
    return reduce(lambda a, b: Op("min", (a, b), INT64), kept)


def _above_by(a: Expr, b: Expr) -> bool:
    apart = difference(a, b).affine
    return apart is not None and not apart.terms and apart.constant >= 0


def _covered(end: Expr, size: Expr, count: Expr) -> bool:
    """Whether tiles from 0 on reach so far: of one of both, the other is that by which the end is divided, rounded up."""
    for each, times in ((size, count), (count, size)):
        match each, times:
            case Const(value=value), Op(name="floordiv", args=(whole, by)) if by == each and value > 0:
                if not difference(whole, _plus(end, Const(value - 1, INT64))).terms:
                    return True
    return False


def _minus(e: Expr, other: Expr) -> Expr:
    form = polynomial(Op("sub", (e, other), INT64))
    return form.expr() if form is not None else Op("sub", (e, other), INT64)


def _above(stop: Expr, start: Expr) -> Expr:
    """Where an axis ends that starts there: `max(start, x)` is x."""
    match stop:
        case Op(name=name, args=(a, b)) if name in _LARGEST and _equal(a, start):
            return b
        case Op(name=name, args=(a, b)) if name in _LARGEST and _equal(b, start):
            return a
    return stop


def _plain(e: Expr, at: Mapping[str, Expr]) -> Expr:
    """An expression with others instead of names, its integers as sums of products."""
    if not free_names(e) & at.keys():
        return e
    form = polynomial(substitute(e, dict(at))) if e.type == INT64 else None
    if form is not None:
        return form.expr()
    return at[e.name] if isinstance(e, Ref) else with_operands(e, tuple(_plain(o, at) for o in operands(e)))


def _unguarded(scale: Expr, extremum: str) -> Expr:
    """A scale where a part's extremum is finite: it is 0 for others, whose terms are."""

    def asks(e: Expr) -> bool:
        match e:
            case Op(name="eq" | "ne" | "gt" | "lt", args=(Ref(name=name), Const(value=bound))):
                return name == extremum and math.isinf(bound)
        return False

    match scale:
        case Op(name="mul", args=(a, b)):
            return replace(scale, args=(_unguarded(a, extremum), _unguarded(b, extremum)))
        case Op(name="where", args=(condition, Const(value=0), x)) | Op(name="where", args=(condition, x, Const(value=0))):
            return x if asks(condition) else scale
    return scale
