"""Ranges that data decide and that may meet: elements look for the rows that reach them.

`for r: for p in range(top[r], bottom[r]): x[p] += v[r]` joins values to elements in the order of its rows, since any two may
have elements in common: boxes that are drawn, the gradient of means over regions. But an element is in a row's range if its
number is, so all elements may ask all rows, side by side, and add what those that reach them have, in the order of the rows.
What decides that is found first, once for each row; so is whether all ranges are inside, or else the loops run as they are.

That asks far more than the loops do, so it is for those that would run in order otherwise, and for arrays that are not large.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce

from weft.loops.accesses import counted_from_end
from weft.loops.accumulate import accumulate_into, accumulation, all_of, upwards
from weft.loops.affine import affine, is_bound
from weft.loops.automatic.segments import alike, less
from weft.loops.extents import Extent, expanded, expanded_index, extents
from weft.loops.ir import (
    ZERO,
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
    Stmt,
    Store,
    free_arrays,
    free_names,
    has_check,
    name_of,
    statement_exprs,
    substitute,
    walk,
    walk_expr,
)
from weft.loops.names import Names, names_bound_in
from weft.loops.schedule import Nest
from weft.loops.simplify import number
from weft.loops.steps import Apart, one_after_another
from weft.loops.types import BOOL, INT64, ScalarType

_LARGEST = 500  # nodes of what a name stands for
_FAR = Const(1 << 62, INT64)


def reached(function: Function, nest: Nest) -> Apart | None:
    """A nest whose elements look for the rows that reach them, in the last part but one; None where it does not join values by
    ranges that data decide.
    """
    found = _Nest.of(function, nest)
    return None if found is None else found.made()


@dataclass(frozen=True)
class _Axis:
    """An axis of what values are joined to. loop: over its elements, where these are told by a loop's variable; its bounds are
    low and high where data decide them. place: the one element of it that rows choose.
    """

    loop: For | None = None
    low: Expr | None = None
    high: Expr | None = None
    place: Expr | None = None

    @property
    def told(self) -> tuple[Expr, ...]:
        """What is found for each row."""
        return tuple(e for e in (self.low, self.high, self.place) if e is not None)


@dataclass(frozen=True)
class _Nest:
    """Loops, with what is named in each before the next one, around a store that joins a value; the axes of the array. when:
    what has to hold for them to run at all. body: what then runs.
    """

    function: Function
    nest: Nest
    when: Expr | None
    body: tuple[Stmt, ...]
    loops: tuple[For, ...]
    lets: tuple[Let, ...]
    store: Store
    value: Expr
    axes: tuple[_Axis, ...]
    names: Names

    @staticmethod
    def of(function: Function, nest: Nest) -> _Nest | None:
        axes = tuple(For(a.var, a.start, a.stop, a.step, (), ()) for a in nest.axes)
        loops, lets, body = [*axes], list[Let](), nest.body
        when: Expr | None = None
        match body:
            case (If(condition=condition, then=then, orelse=(), rare=True),) if not free_names(condition):
                body, when = then, condition
        whole, not_below = body, set[str]()
        while True:
            lets += (s for s in body if isinstance(s, Let))
            rest = [s for s in body if not isinstance(s, Let)]
            if len(rest) != 1:
                return None
            (inner,) = rest
            match inner:  # elements counted from the end, of which there are none where all ranges are inside
                case If(condition=Op(name="lt", args=(Ref(name=var), Const(value=0))), orelse=orelse, merges=()):
                    not_below.add(var)
                    body = orelse
                    continue
            if not isinstance(inner, For):
                break
            if inner.carries or abs(inner.step) != 1 or body[-1] is not inner:
                return None
            loops.append(upwards(inner))
            body = inner.body
        named = next((s for s in lets if isinstance(inner, Store) and inner.value == Ref(s.name, s.value.type)), None)
        if named is not None and isinstance(inner, Store):
            lets.remove(named)
            inner = replace(inner, value=named.value)
        value = accumulation(inner) if isinstance(inner, Store) else None
        if not isinstance(inner, Store) or value is None or function.array(inner.array).within:
            return None
        if function.array(inner.array).dtype != value.type:  # each sum would be rounded
            return None
        exprs = [e for s in walk(nest.body) for e in statement_exprs(s)]
        if any(map(has_check, exprs)) or any(inner.array in free_arrays(e) for e in (*(s.value for s in lets), value)):
            return None
        known: dict[str, Expr] = {}
        for s in lets:
            known[s.name] = substitute(s.value, known)
            if sum(1 for _ in walk_expr(known[s.name])) > _LARGEST:
                return None
        told = _axes(function, loops, inner, known)
        names = Names.of(function)
        names.taken |= names_bound_in(nest.body) | {a.var for a in nest.axes}
        if told is None or not not_below <= {a.loop.var for a in told if a.loop is not None and a.low is not None}:
            return None
        found = _Nest(function, nest, when, whole, tuple(loops), tuple(lets), inner, value, told, names)
        beside = {f.var for f in found.rows} <= {a.var for a in nest.axes}
        return None if beside or (when is not None and found._follow_each_other()) else found

    @property
    def rows(self) -> tuple[For, ...]:
        """The loops over what may reach an element."""
        over = {a.loop.var for a in self.axes if a.loop is not None}
        return tuple(f for f in self.loops if f.var not in over)

    def _follow_each_other(self) -> bool:
        """Whether each range begins where the one before it ends: nobody has such that meet."""
        ranged = [(a.low, a.high) for a in self.axes if a.low is not None and a.high is not None]
        after = [{f.var: Op("add", (Ref(f.var, INT64), Const(1, INT64)), INT64)} for f in self.rows]
        return any(alike(substitute(low, {**one}), high) for low, high in ranged for one in after)

    def made(self) -> Apart | None:
        told = self._tables()
        if told is None:
            return None
        many = Const(len(self.axes), INT64)
        flags = Array(self.names.fresh("outside"), BOOL, (many,), "local", location=self.store.location)
        kinds = [k for k, a in enumerate(self.axes) if a.told]
        finding, ends = self._within(told)
        nests = [*self._found(told), *finding, *(self._asked(told, k, flags) for k in kinds)]
        each: list[Expr] = [Load(flags.name, (Const(k, INT64),), BOOL) for k in kinds]
        away = reduce(lambda a, b: Op("or", (a, b), BOOL), each)
        still: Expr = Op("not", (away,), BOOL)
        if self.when is not None:
            away, still = (Op("and", (self.when, e), BOOL) for e in (away, still))
        nests.append((self._gathering(told, ends, still),))
        body = self.body
        for a in reversed(self.nest.axes):
            body = (For(a.var, a.start, a.stop, a.step, (), body),)
        nests.append((If(away, body, (), (), self.store.location, rare=True),))
        memory = (*(t.array for t in told.values()), *(t.array for _, *own in ends for t in own), flags)
        return one_after_another(self.function, self.nest.name, nests, memory)

    # ------------------------------------------------------------ what is found first

    def _tables(self) -> dict[Expr, _Table] | None:
        """Where what tells the axes is kept, and what is joined, if that is computed and the same for all of a row's elements;
        or other integers that rows alone decide.
        """
        known: dict[str, Expr] = {}
        kept = list(dict.fromkeys(e for a in self.axes for e in a.told))
        for s in self.lets:
            value = known[s.name] = substitute(s.value, known)
            rows = {f.var for f in self.rows}
            if value.type == INT64 and isinstance(value, Op) and free_names(value) & rows and self._of_rows(value):
                kept.append(value)
        joined = substitute(self.value, known)
        if not isinstance(joined, Load) and self._of_rows(joined, joins=True):
            kept = [*(e for a in self.axes for e in a.told), joined]
        told: dict[Expr, _Table] = {}
        for e in dict.fromkeys(kept):
            own = tuple(f for f in self.loops if f.var in free_names(e))
            if (reach := extents(self.function, own)) is None:
                return None
            told[e] = self._table(own, reach, e.type)
        return told

    def _table(self, over: tuple[For, ...], reach: tuple[Extent, ...], type_: ScalarType) -> _Table:
        name = self.names.fresh("told")
        if not over:
            return _Table(Array(name, type_, (Const(1, INT64),), "local"), (ZERO,), ())
        return _Table(expanded(name, type_, reach), expanded_index(reach, [Ref(f.var, INT64) for f in over]), over)

    def _of_rows(self, e: Expr, joins: bool = False) -> bool:
        """Whether rows alone decide a value, or also elements of axes that they all reach; whose reads are where loops say."""
        fixed = {s.name for s in self.function.sizes} | {s.name for s in self.function.scalars}
        fixed |= {f.var for f in self.rows} | {a.loop.var for a in self.axes if joins and a.loop is not None and a.low is None}
        loads = [x for x in walk_expr(e) if isinstance(x, Load)]
        return free_names(e) <= fixed and all(affine(i) is not None for x in loads for i in x.index)

    def _within(self, told: Mapping[Expr, _Table]) -> tuple[list[tuple[Stmt, ...]], list[tuple[int, _Table, _Table]]]:
        """Between which elements all ranges are that inner loops over rows have: these need not be gone through for others.
        What finds it, and where it is, for an axis.
        """
        nests: list[tuple[Stmt, ...]] = []
        found: list[tuple[int, _Table, _Table]] = []
        for k, axis in enumerate(self.axes):
            if axis.low is None or axis.high is None:
                continue
            low, high = told[axis.low], told[axis.high]
            over = tuple(f for f in self.rows if f in low.over or f in high.over)
            if len(over) < 2:
                continue
            outer, *inner = over
            reach = extents(self.function, (outer,))
            assert reach is not None, "it is one of the rows'"
            least, most = (self._table((outer,), reach, INT64) for _ in range(2))
            fresh: dict[str, Expr] = {f.var: Ref(self.names.fresh(f.var), INT64) for f in over}
            some = substitute(less(low.load, high.load), fresh)
            values: list[Expr] = []
            for own, at in ((low, _FAR), (high, ZERO)):
                values.append(Op("where", (some, substitute(own.load, fresh), at), INT64))
            body: tuple[Stmt, ...] = ()
            for loop in reversed(inner):
                names = [(self.names.fresh("end"), self.names.fresh("end_of_all")) for _ in range(2)]
                carries = tuple(
                    Carry(name, start, value if body else Op(how, (Ref(name, INT64), value), INT64), result)
                    for (name, result), value, start, how in zip(names, values, (_FAR, ZERO), ("min", "max"), strict=True)
                )
                if body:  # an inner loop goes on from where the one around it is
                    (last,) = body
                    assert isinstance(last, For)
                    pairs = zip(last.carries, carries, strict=True)
                    body = (replace(last, carries=tuple(replace(c, init=Ref(o.name, INT64)) for c, o in pairs)),)
                body = (replace(loop, var=name_of(fresh[loop.var]), carries=carries, body=body),)
                values = [Ref(result, INT64) for _, result in names]
            stores = tuple(
                Store(t.array.name, tuple(substitute(i, fresh) for i in t.index), v)
                for t, v in zip((least, most), values, strict=True)
            )
            nests.append((replace(outer, var=name_of(fresh[outer.var]), body=(*body, *stores)),))
            found.append((k, least, most))
        return nests, found

    def _found(self, told: Mapping[Expr, _Table]) -> list[tuple[Stmt, ...]]:
        """What fills the tables: for those of the same rows, one nest."""
        nests: list[tuple[Stmt, ...]] = []
        for over in dict.fromkeys(t.over for t in told.values()):
            fresh: dict[str, Expr] = {f.var: Ref(self.names.fresh(f.var), INT64) for f in over}
            made: tuple[Stmt, ...] = tuple(
                Store(t.array.name, tuple(substitute(i, fresh) for i in t.index), substitute(e, fresh))
                for e, t in told.items()
                if t.over == over
            )
            for f in reversed(over):
                made = (replace(f, var=name_of(fresh[f.var]), body=made),)
            nests.append(made)
        return nests

    def _asked(self, told: Mapping[Expr, _Table], kind: int, flags: Array) -> tuple[Stmt, ...]:
        """What sets the flag of an axis where some row is outside of it."""
        axis, extent = self.axes[kind], self.function.array(self.store.array).shape[kind]
        asked: Expr = Const(False, BOOL)
        over: tuple[For, ...] = ()
        if axis.place is not None:
            table, at = told[axis.place], told[axis.place].load
            asked, over = Op("or", (less(at, ZERO), Op("le", (extent, at), BOOL)), BOOL), table.over
        elif axis.low is not None and axis.high is not None:
            low, high = told[axis.low], told[axis.high]
            away = Op("or", (less(low.load, ZERO), less(extent, high.load)), BOOL)
            asked = Op("and", (less(low.load, high.load), away), BOOL)
            over = tuple(f for f in self.rows if f in low.over or f in high.over)
        fresh: dict[str, Expr] = {f.var: Ref(self.names.fresh(f.var), INT64) for f in over}
        answer: Expr = Op("where", (substitute(asked, fresh), Const(1, INT64), ZERO), INT64)
        carried = [(self.names.fresh("away"), self.names.fresh("any_away")) for _ in over]
        made: tuple[Stmt, ...] = ()
        for k, loop in reversed([*enumerate(over)]):
            (name, result), first = carried[k], ZERO if k == 0 else Ref(carried[k - 1][0], INT64)
            last = answer if made else Op("max", (Ref(name, INT64), answer), INT64)
            made = (replace(loop, var=name_of(fresh[loop.var]), carries=(Carry(name, first, last, result),), body=made),)
            answer = Ref(result, INT64)
        return (*made, Store(flags.name, (Const(kind, INT64),), less(ZERO, answer), self.store.location))

    # ------------------------------------------------------------ what elements look for

    def _gathering(self, told: Mapping[Expr, _Table], ends: list[tuple[int, _Table, _Table]], still: Expr) -> Stmt:
        known: dict[str, Expr] = {f.var: Ref(self.names.fresh(f.var), INT64) for f in self.loops}
        over, index, conditions = list[For](), list[Expr](), list[Expr]()
        for axis, extent in zip(self.axes, self.function.array(self.store.array).shape, strict=True):
            if axis.loop is not None:
                own = known[axis.loop.var]
                ranged = axis.low is not None
                start, stop = (ZERO, extent) if ranged else (axis.loop.start, axis.loop.stop)
                over.append(For(name_of(own), start, stop, 1, (), (), location=axis.loop.location))
                if axis.low is not None and axis.high is not None:
                    conditions += [Op("le", (told[axis.low].load, own), BOOL), less(own, told[axis.high].load)]
            else:
                assert axis.place is not None
                own = Ref(self.names.fresh("element"), INT64)
                over.append(For(own.name, ZERO, extent, 1, (), (), location=self.loops[0].location))
                conditions.append(Op("eq", (told[axis.place].load, own), BOOL))
            index.append(own)
        for k, least, most in ends:
            conditions += [Op("le", (least.load, index[k]), BOOL), less(index[k], most.load)]
        rows, type_ = self.rows, self.value.type
        sums = [(self.names.fresh("sum"), self.names.fresh("sum_of_all")) for _ in rows]
        level = {f.var: k for k, f in enumerate(rows)}
        at = [max((level[n] for n in free_names(c) & level.keys()), default=0) for c in conditions]
        named = {s.name: Ref(self.names.fresh(s.name), s.value.type) for s in self.lets}
        known |= named
        meant: dict[str, Expr] = {}
        statements: tuple[Stmt, ...] = ()
        for s in self.lets:
            whole = meant[s.name] = substitute(s.value, meant)
            value = told[whole].load if whole in told else s.value
            statements += (Let(named[s.name].name, substitute(value, known), s.location),)
        joined = substitute(self.value, meant)
        value = substitute(told[joined].load if joined in told else self.value, known)
        statements = _used(statements, value)
        for k, loop in reversed([*enumerate(rows)]):
            before = Ref(sums[k][0], type_)
            if k == len(rows) - 1:
                value = Op("add", (before, value), type_)
            asked = [substitute(c, known) for c, n in zip(conditions, at, strict=True) if n == k]
            if asked:
                merge = Merge(self.names.fresh("sum"), value, before)
                statements = (If(all_of(asked), statements, (), (merge,), self.store.location),)
                value = Ref(merge.name, type_)
            first = number(0, type_) if k == 0 else Ref(sums[k - 1][0], type_)
            carry = Carry(sums[k][0], first, value, sums[k][1])
            statements = (replace(loop, var=name_of(known[loop.var]), carries=(carry,), body=statements),)
            value = Ref(sums[k][1], type_)
        store = accumulate_into(self.store.array, tuple(index), value, self.store)
        body: tuple[Stmt, ...] = (If(still, (*statements, store), (), (), self.store.location),)
        for loop in reversed(over):
            body = (replace(loop, body=body),)
        return body[0]


@dataclass(frozen=True)
class _Table:
    """What is found for each iteration of some of the rows' loops, in memory. index: where it is."""

    array: Array
    index: tuple[Expr, ...]
    over: tuple[For, ...]

    @property
    def load(self) -> Load:
        return Load(self.array.name, self.index, self.array.dtype)


def _axes(function: Function, loops: list[For], store: Store, known: Mapping[str, Expr]) -> tuple[_Axis, ...] | None:
    """The axes of what a store joins values to; None where data decide no range of them, or elements do not tell it."""
    fixed = {s.name for s in function.sizes} | {s.name for s in function.scalars}
    by_name = {f.var: f for f in loops}
    ends = {f.var: tuple(substitute(e, dict(known)) for e in (f.start, f.stop)) for f in loops}
    ranged = {v for v, own in ends.items() if not all(is_bound(e, fixed) for e in own)}
    index = [substitute(counted_from_end(i)[0], dict(known)) for i in store.index]
    plain = [i.name for i in index if isinstance(i, Ref) and i.name in by_name]
    if not ranged or not ranged <= {*plain} or len({*plain}) != len(plain):
        return None
    rows = by_name.keys() - {*plain}
    if not rows:
        return None
    axes: list[_Axis] = []
    for i, own in zip(index, store.index, strict=True):
        if isinstance(i, Ref) and i.name in ranged:
            low, high = ends[i.name]
            axes.append(_Axis(by_name[i.name], low, high))
        elif isinstance(i, Ref) and i.name in by_name:
            if counted_from_end(own)[1]:
                return None
            axes.append(_Axis(by_name[i.name]))
        else:
            axes.append(_Axis(place=i))
    told = [e for a in axes for e in a.told]
    names, arrays = fixed | rows, reduce(frozenset.union, map(free_arrays, told))
    if store.array in arrays or any(e.type != INT64 or not free_names(e) <= names for e in told):
        return None
    bounds = [e for v in rows for e in ends[v]]
    if any(free_names(e) & by_name.keys() for e in bounds):
        return None
    return tuple(axes)


def _used(lets: tuple[Stmt, ...], value: Expr) -> tuple[Stmt, ...]:
    """Those that a value is made of."""
    used, kept = set(free_names(value)), list[Stmt]()
    for s in reversed(lets):
        if isinstance(s, Let) and s.name in used:
            used |= free_names(s.value)
            kept.append(s)
    return tuple(reversed(kept))
