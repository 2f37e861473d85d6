"""Segments: ranges that data give to rows, where no two rows have a number in common.

`for r: for j in range(starts[r], starts[r + 1]): y[j] = ...` must run in order only for starts that go down, where a later row
stores over what an earlier one has. Nobody has such starts, and the call does not know: the data do. So a loop asks them first,
and leaves a flag in memory. Where the ranges have nothing in common, rows run side by side, by loops that are empty otherwise;
after them are the loops as they were, under the flag.

What is asked is where each range starts and ends, which the loops read as well; so it is only asked where they do so for sure.

Where rows join values to elements that data choose (the gradient of `x[columns[j]]`), rows side by side do not help: sums are
sorted, and no one knows how many points there are. There is one for each number of all ranges at the most. So the starts are
counted, the counts added up to the row that each number is of, and the points are the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from weft.loops.accesses import counted_from_end, not_below_0
from weft.loops.accumulate import accumulation
from weft.loops.affine import Affine, affine, is_bound
from weft.loops.algebra.accumulation import accumulated
from weft.loops.automatic.joins_apart import joins_apart
from weft.loops.automatic.rewriting import Rewriting, at_one, copied, keeps_array
from weft.loops.ir import (
    FALSE,
    ONE,
    ZERO,
    Array,
    Carry,
    Cast,
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Op,
    Ref,
    Segment,
    Stmt,
    Store,
    bodies,
    bound_names,
    filtered,
    free_arrays,
    free_names,
    has_check,
    loaded_arrays,
    map_statement,
    rewrite,
    statement_exprs,
    substitute,
    substitute_statements,
    walk,
    walk_expr,
)
from weft.loops.names import Names
from weft.loops.normalize import drop_unused
from weft.loops.simplify import number
from weft.loops.types import BOOL, INT32, INT64

_LARGEST = 200  # nodes of what is written out at each number


def segments(function: Function, stuck: frozenset[str]) -> Iterator[Rewriting]:
    """The function with the rows of a loop of `stuck` side by side, where data give them ranges without a common number."""
    for position, stmt in enumerate(function.body):
        if not isinstance(stmt, For) or stmt.carries or keeps_array(function, stmt):
            continue
        for rows in walk((stmt,)):
            if isinstance(rows, For) and rows.var in stuck and not rows.carries and abs(rows.step) == 1:
                made = _Segmented(function, position, stmt, rows).made()
                if made is not None:
                    yield made


@dataclass(frozen=True)
class _Owners:
    """Whose row each number of some ranges is: in memory, where the flag is not set. made: what finds it."""

    flag: Array
    owner: Array
    made: tuple[Stmt, ...] = ()
    arrays: tuple[Array, ...] = ()


def flattened(function: Function) -> Function:
    """The function with loops over the numbers of all ranges instead of those that join values to elements which data choose,
    and do nothing else. Ranges of memory that is never stored to are looked at once.
    """
    known: dict[object, _Owners] = {}
    position = 0
    while position < len(function.body):
        stmt = function.body[position]
        loops = [s for s in walk((stmt,)) if isinstance(s, For) and not s.carries and abs(s.step) == 1]
        if isinstance(stmt, For) and not stmt.carries and not keeps_array(function, stmt):
            tried = (_Segmented(function, position, stmt, rows).flat(known) for rows in loops)
            made = next((m for m in tried if m is not None), None)
            if made is not None:
                position += len(made.body) - len(function.body)
                function = made
        position += 1
    return function


@dataclass(frozen=True)
class _Whole:
    """What a number stores in loops over all of its elements."""

    over: tuple[For, ...]
    store: Store

    def loops(self, here: Expr, to_row: Mapping[str, Expr]) -> Stmt:
        """Where the number is not of a row, zeros."""
        type_ = self.store.value.type
        value = Op("where", (here, substitute(self.store.value, dict(to_row)), number(0, type_)), type_)
        made: Stmt = replace(self.store, value=value)
        for loop in reversed(self.over):
            made = replace(loop, body=(made,))
        return made


def _from_0(statements: tuple[Stmt, ...], var: Ref) -> tuple[Stmt, ...]:
    """Statements for values of a variable that are not below 0."""
    out: list[Stmt] = []
    for stmt in statements:
        match stmt:
            case If(condition=Op(name="lt", args=(x, Const(value=0))), orelse=orelse, merges=()) if x == var:
                out += _from_0(orelse, var)
            case _:
                out.append(map_statement(stmt, lambda e: not_below_0(e, var), lambda body: _from_0(body, var)))
    return tuple(out)


@dataclass(frozen=True)
class _Ranged:
    """A loop whose bounds data decide for a row: these, free of names of the row's own; the loops around it, and its row's."""

    loop: For
    start: Expr
    stop: Expr
    around: tuple[For, ...]


class _Segmented:
    """Loops over rows, `rows`, in a statement of the function, `top`, in which loops go over ranges of theirs."""

    def __init__(self, function: Function, position: int, top: For, rows: For) -> None:
        self.function, self.position, self.top, self.rows = function, position, top, rows
        self.as_written = top  # for where ranges meet, or are not inside
        self.names = Names.of(function)
        self.known = {s.name for s in function.sizes} | {s.name for s in function.scalars}
        self.stored = {s.array for s in walk((top,)) if isinstance(s, Store)}
        self.ranged: list[_Ranged] = []
        self.outer = self._outer()

    def made(self) -> Rewriting | None:
        if self.outer is None or not self._find(self.rows.body, {}, (*self.outer, self.rows)) or not self.ranged:
            return None
        if not self._steady_elsewhere():
            return None
        kinds: dict[tuple[Expr, Expr], str] = {}
        for r in self.ranged:
            kinds.setdefault((r.start, r.stop), self.names.fresh(f"{r.loop.var}_of_{self.rows.var}"))
        known: dict[str, Segment] = {}
        for (start, stop), name in kinds.items():
            own = [r.loop for r in self.ranged if (r.start, r.stop) == (start, stop)]
            among = tuple(Ref(f.var, INT64) for f in self.outer if f.var in free_names(start) | free_names(stop))
            segment = Segment(name, Ref(self.rows.var, INT64), among, self._limits(own))
            known |= {loop.var: segment for loop in own}
        flag, asked = self.asked({r.loop.var: known[r.loop.var].limits for r in self.ranged})
        (free,) = self._freed((self.top,), Load(flag.name, (ZERO,), BOOL), known, False)
        ranges = " and ".join(dict.fromkeys(r.loop.var for r in self.ranged))
        reason = f"segments: that the ranges of {ranges} have nothing in common is looked at first"
        made = self.instead((flag,), (*asked, free), flag)
        return Rewriting(made, {self.rows.var: (reason,)}, frees=frozenset({self.rows.var}))

    def flat(self, known: dict[object, _Owners]) -> Function | None:
        """The function with a point for each number of the ranges. known: those that were looked at before."""
        if self.outer is None or not self._find(self.rows.body, {}, (*self.outer, self.rows)) or len(self.ranged) != 1:
            return None
        (ranged,), outside = self.ranged, {f.var for f in self.outer}
        (plain,) = _from_0((self.top,), Ref(ranged.loop.var, INT64))
        if plain != self.top and isinstance(plain, For):  # ranges that begin below 0 set the flag
            rows = next(s for s in walk((plain,)) if isinstance(s, For) and s.var == self.rows.var)
            other = _Segmented(self.function, self.position, plain, rows)
            other.as_written = self.top
            return other.flat(known)
        limits = self._limits([ranged.loop])
        if not limits or (free_names(ranged.start) | free_names(ranged.stop)) & outside or not self._joins_alone(ranged.loop):
            return None
        to_any: dict[str, Expr] = {self.rows.var: Ref("", INT64)}
        key = *(substitute(e, to_any) for e in (ranged.start, ranged.stop)), *_range(self.rows), limits
        inputs = {a.name for a in self.function.arrays if a.role == "input"}
        arrays = dict.fromkeys(s.array for s in walk(ranged.loop.body) if isinstance(s, Store))
        whole = {a: store for a in arrays if (store := self._whole(a, ranged, limits[0])) is not None}
        if not self._joins_elsewhere(ranged.loop) and whole.keys() != arrays.keys():
            return None
        found = known.get(key) or self.owners(ranged, limits)
        if free_arrays(ranged.start) | free_arrays(ranged.stop) <= inputs:
            known[key] = replace(found, made=(), arrays=())
        points = self.points(ranged, limits[0], found, whole)
        filled = tuple(replace(a, fill=None) if a.name in whole else a for a in self.function.arrays)
        made = self.instead(found.arrays, (*found.made, *points), found.flag)
        return replace(made, arrays=(*filled, *found.arrays))

    def owners(self, ranged: _Ranged, limits: tuple[Expr, ...]) -> _Owners:
        """What finds whose row each number is: rows are counted where they begin, and the counts added up."""
        location, limit, (low, high) = self.rows.location, limits[0], _range(self.rows)
        many = less(Const((1 << 31) - 1, INT64), high if low == ZERO else Op("sub", (high, low), INT64))
        flag, asked = self.asked({ranged.loop.var: limits}, many)
        begun = Array(self.names.fresh("begun"), INT32, (_plus(limit, 1),), "local", location=location)
        owner = Array(self.names.fresh("owner"), INT32, (limit,), "local", location=location)
        k, at, row = (Ref(self.names.fresh(n), INT64) for n in ("k", "at", self.rows.var))
        total, whole = (Ref(self.names.fresh(n), INT32) for n in ("rows_begun", "all_begun"))
        empty = For(k.name, ZERO, begun.shape[0], 1, (), (Store(begun.name, (k,), Const(0, INT32)),), location=location)
        cell = Load(begun.name, (substitute(ranged.start, {self.rows.var: row}),), INT32)
        count = Store(begun.name, cell.index, Op("add", (cell, Const(1, INT32)), INT32), location)
        counted = replace(self.rows, var=row.name, body=(If(_apart(flag), (count,), (), (), location),))
        after = Op("add", (total, Load(begun.name, (at,), INT32)), INT32)
        known = Store(owner.name, (at,), Op("sub", (after, Const(1, INT32)), INT32))
        carry = Carry(total.name, Const(0, INT32), after, whole.name)
        added = For(at.name, ZERO, limit, 1, (carry,), (known,), location=location)
        return _Owners(flag, owner, (*asked, empty, counted, added), (flag, begun, owner))

    def points(self, ranged: _Ranged, limit: Expr, found: _Owners, whole: Mapping[str, _Whole]) -> list[For]:
        """For each array that is joined to a loop over all numbers, in which the row is looked up. whole: those whose elements
        are the numbers'.
        """
        location, var, (low, _) = self.rows.location, ranged.loop.var, _range(self.rows)
        row = Ref(self.names.fresh(f"{self.rows.var}_of"), INT64)
        place: Expr = Cast(Load(found.owner.name, (Ref(var, INT64),), INT32), INT64)
        place = place if low == ZERO else Op("add", (place, low), INT64)
        to_row: dict[str, Expr] = {self.rows.var: row}
        inside = less(Ref(var, INT64), substitute(ranged.stop, to_row))
        here = reduce(lambda a, b: Op("and", (a, b), BOOL), (_apart(found.flag), Op("le", (low, row), BOOL), inside))
        inner, points = substitute_statements(_opened(self.rows.body, ranged.loop), to_row), list[For]()
        for array in dict.fromkeys(s.array for s in walk(inner) if isinstance(s, Store)):
            if array in whole:
                body = whole[array].loops(here, to_row)
            else:
                body = If(here, drop_unused(_storing(inner, array)), (), (), location)
            own = replace(ranged.loop, start=ZERO, stop=limit, step=1, body=(Let(row.name, place, location), body))
            for loop in reversed(self.outer or ()):
                own = replace(loop, body=(own,))
            points.append(copied(own, self.names)[0] if points else own)
        return points

    def _joins_alone(self, loop: For) -> bool:
        """Whether rows do nothing but join values to elements, in the one loop over their range, and evaluate nothing else that
        may fail.
        """
        around = self.known | {f.var for f in (*(self.outer or ()), self.rows)}

        def plain(statements: tuple[Stmt, ...]) -> bool:
            for stmt in statements:
                if isinstance(stmt, For) and stmt.var == loop.var:
                    if stmt.carries:
                        return False
                    continue
                exprs = statement_exprs(stmt)
                loads = [x for e in exprs for x in walk_expr(e) if isinstance(x, Load)]
                told = [affine(i) for x in loads for i in x.index]
                if any(map(has_check, exprs)) or any(f is None or not f.names <= around for f in told):
                    return False
                if not isinstance(stmt, Let) and not (isinstance(stmt, For) and not stmt.carries):
                    return False
                if isinstance(stmt, For):
                    around.add(stmt.var)
                    if not plain(stmt.body):
                        return False
            return True

        arrays = {s.array for s in walk(loop.body) if isinstance(s, Store)}
        joined = all(accumulated(self.function, loop, array) is not None for array in arrays)
        apart = not any(
            free_arrays(e) & arrays - ({s.array} if isinstance(s, Store) else set())
            for s in walk(loop.body)
            for e in statement_exprs(s)
        )
        return plain(self.rows.body) and joined and apart

    def _joins_elsewhere(self, loop: For) -> bool:
        """Whether values are joined to elements that data choose, or loops of a row's, which decide no others, join several of
        them to one: a thread for each row has all of these then.
        """
        own = Ref(loop.var, INT64)

        def decides(around: For) -> bool:
            told = {around.var}
            for s in walk(around.body):
                if isinstance(s, Let) and free_names(s.value) & told:
                    told.add(s.name)
                if isinstance(s, For) and s.var != loop.var and (free_names(s.start) | free_names(s.stop)) & told:
                    return True
            return False

        def found(statements: tuple[Stmt, ...], over: frozenset[str]) -> bool:
            for s in statements:
                match s:
                    case Store(index=index):
                        told = {n for i in index for n in free_names(i)}
                        if not over <= told or not any(counted_from_end(i)[0] == own for i in index):
                            return True
                    case For() if found(s.body, over if decides(s) else over | {s.var}):
                        return True
                    case _ if any(found(body, over) for body in bodies(s) if not isinstance(s, For)):
                        return True
            return False

        return found(self.rows.body, frozenset())

    def _whole(self, array: str, ranged: _Ranged, limit: Expr) -> _Whole | None:
        """What is stored to each element of an array of zeros, where the numbers, and loops over all of its other axes, are the
        elements; None where that is not so.
        """
        own, before = self.function.array(array), self.function.body[: self.position]
        filled = own.fill is not None and own.fill.value == 0 and own.role in ("result", "local") and not own.within
        if not filled or any(isinstance(s, Store) and s.array == array for s in walk(before)) or array in loaded_arrays(before):
            return None
        known, loops, here = dict[str, Expr](), list[For](), _opened(self.rows.body, ranged.loop)
        while True:
            for let in here:
                known |= {let.name: substitute(let.value, known)} if isinstance(let, Let) else {}
            rest = [s for s in _storing(here, array) if not isinstance(s, Let)]
            if len(rest) != 1 or not isinstance(rest[0], For):
                break
            loops.append(rest[0])
            here = rest[0].body
        added = accumulation(rest[0]) if len(rest) == 1 and isinstance(rest[0], Store) else None
        if added is None or added.type != own.dtype:
            return None
        store = rest[0]
        assert isinstance(store, Store)
        over = {f.var: (f.start, f.stop) for f in (*(self.outer or ()), *loops)} | {ranged.loop.var: (ZERO, limit)}
        vars_ = [i.name for i in store.index if isinstance(i, Ref)]
        every = sorted(vars_) == sorted(over) and len(vars_) == len(own.shape) and all(f.step == 1 for f in loops)
        if not every or any(over[v][0] != ZERO or not alike(over[v][1], n) for v, n in zip(vars_, own.shape, strict=True)):
            return None
        value = substitute(added, known)
        return _Whole(tuple(loops), replace(store, value=value)) if sum(1 for _ in walk_expr(value)) < _LARGEST else None

    def asked(self, limits: Mapping[str, tuple[Expr, ...]], at_first: Expr = FALSE) -> tuple[Array, tuple[Stmt, ...]]:
        """The flag, and what sets it where ranges of one kind meet, or leave their limits, or where `at_first` holds."""
        flag = Array(self.names.fresh("meet"), BOOL, (ONE,), "local", location=self.rows.location)
        asked: list[Stmt] = []
        told, seen = _counted(at_first), set[tuple[Expr, Expr]]()
        for r in self.ranged:
            if (r.start, r.stop) not in seen:
                seen.add((r.start, r.stop))
                loop, told = self._asking(r, limits[r.loop.var], told)
                asked.append(loop)
        return flag, (*asked, Store(flag.name, (ZERO,), less(ZERO, told), self.rows.location))

    def instead(self, arrays: tuple[Array, ...], made: tuple[Stmt, ...], flag: Array) -> Function:
        """The function with these statements instead of the loops, which come after them where the flag is set."""
        again, _ = copied(self.as_written, self.names)
        joined = at_one(again)  # elements that data choose: what is joined to them needs no order
        whole = joins_apart(replace(self.function, arrays=(*self.function.arrays, *arrays), body=(joined,)))
        rare = joined == again
        late = (If(Load(flag.name, (ZERO,), BOOL), (s,), (), (), self.top.location, rare=rare) for s in whole.body)
        before, after = self.function.body[: self.position], self.function.body[self.position + 1 :]
        return replace(whole, body=(*before, *made, *late, *after))

    def _outer(self) -> tuple[For, ...] | None:
        """The loops around the rows'; None where one of them carries something, or a condition is among them."""
        path: list[For] = []
        here = self.top
        while here.var != self.rows.var:
            path.append(here)
            if here.carries:
                return None
            inner = [s for s in here.body if any(isinstance(w, For) and w.var == self.rows.var for w in walk((s,)))]
            if len(inner) != 1 or not isinstance(inner[0], For):
                return None
            here = inner[0]
        fixed = {*self.known}
        for loop in (*path, self.rows):
            if not (is_bound(loop.start, fixed) and is_bound(loop.stop, fixed)):
                return None
            fixed.add(loop.var)
        return tuple(path)

    def _find(self, statements: tuple[Stmt, ...], lets: dict[str, Expr], around: tuple[For, ...]) -> bool:
        """Find the loops whose bounds data decide; whether all of them are understood."""
        lets, fixed = dict(lets), self.known | {f.var for f in around}
        for stmt in statements:
            match stmt:
                case Let():
                    lets[stmt.name] = substitute(stmt.value, lets)
                case For():
                    start, stop = (substitute(e, lets) for e in _range(stmt))
                    if is_bound(start, fixed) and is_bound(stop, fixed):
                        if not self._find(stmt.body, lets, (*around, stmt)):
                            return False
                    elif not self._understood(stmt, start, stop, around):
                        return False
                    else:
                        self.ranged.append(_Ranged(stmt, start, stop, around))
                case If():
                    if any(isinstance(s, For) for s in walk((stmt,))):
                        return False
        return True

    def _understood(self, loop: For, start: Expr, stop: Expr, around: tuple[For, ...]) -> bool:
        """Whether a row alone decides the bounds of a loop, and memory that nothing stores to meanwhile."""
        names = {f.var for f in around}
        inside = names - {f.var for f in (*(self.outer or ()), self.rows)}
        for e in (start, stop):
            if not free_names(e) <= self.known | names or free_names(e) & inside:
                return False
            if has_check(e) or free_arrays(e) & self.stored:
                return False
        return abs(loop.step) == 1 and self.rows.var in free_names(start)

    def _steady_elsewhere(self) -> bool:
        """Whether what rows evaluate outside of their ranges is as safe where these are empty: subscripts and checks depend on
        no result of a loop over them.
        """
        ranged = {r.loop.var for r in self.ranged}
        unsteady: set[str] = set()

        def steady(statements: tuple[Stmt, ...]) -> bool:
            for stmt in statements:
                if isinstance(stmt, For) and stmt.var in ranged:
                    unsteady.update(bound_names(stmt))
                    continue
                for e in statement_exprs(stmt):
                    found = [x for x in walk_expr(e) if isinstance(x, Load) or has_check(x)]
                    if any(free_names(x) & unsteady for x in found):
                        return False
                if isinstance(stmt, Store) and any(free_names(i) & unsteady for i in stmt.index):
                    return False
                if isinstance(stmt, Let) and free_names(stmt.value) & unsteady:
                    unsteady.add(stmt.name)
                if isinstance(stmt, For):
                    if (free_names(stmt.start) | free_names(stmt.stop)) & unsteady:
                        return False
                    unsteady.update(n for c in stmt.carries for n in (c.name, c.result))
                if isinstance(stmt, If):
                    unsteady.update(bound_names(stmt))
                if not all(steady(b) for b in bodies(stmt)):
                    return False
            return True

        return steady((self.top,))

    def _limits(self, loops: Sequence[For]) -> tuple[Expr, ...]:
        """The sizes of what the variables of loops are subscripts of by themselves."""
        found: dict[Expr, None] = {}
        for loop in loops:
            own = Ref(loop.var, INT64)
            for stmt in walk(loop.body):
                places = [(x.array, x.index) for e in statement_exprs(stmt) for x in walk_expr(e) if isinstance(x, Load)]
                places += [(stmt.array, stmt.index)] if isinstance(stmt, Store) else []
                for array, index in places:
                    shape = self.function.array(array).shape
                    found |= {n: None for i, n in zip(index, shape, strict=True) if counted_from_end(i)[0] == own}
        return tuple(found)

    def _asking(self, ranged: _Ranged, limits: tuple[Expr, ...], before: Expr) -> tuple[For, Expr]:
        """Loops that ask whether ranges meet, or go down, or leave what they are in; and the answer, 1 or 0, with that before:
        the largest one, which is asked of all rows at once, where a disjunction would end with the first that does.
        """
        fresh = {f.var: self.names.fresh(f.var) for f in ranged.around}
        names: dict[str, Expr] = {old: Ref(new, INT64) for old, new in fresh.items()}
        row, rows = names[self.rows.var], self.rows
        start, stop = substitute(ranged.start, names), substitute(ranged.stop, names)
        after = substitute(start, {fresh[rows.var]: Op("add", (row, ONE), INT64)})
        asked = [less(start, ZERO), less(stop, start), *(less(limit, stop) for limit in limits)]
        if not alike(after, stop):
            end = substitute(rows.stop if rows.step > 0 else Op("add", (rows.start, ONE), INT64), names)
            asked.append(Op("and", (less(Op("add", (row, ONE), INT64), end), less(after, stop)), BOOL))
        found = reduce(lambda a, b: Op("or", (a, b), BOOL), asked)
        used = free_names(ranged.start) | free_names(ranged.stop)
        used |= {n for f in ranged.around for e in (f.start, f.stop) for n in free_names(e)}
        over = [f for f in ranged.around if f.var in used]
        for loop in ranged.around:
            if loop.var not in used:  # it is asked at all where the loop has an iteration
                found = Op("and", (less(*(substitute(e, names) for e in _range(loop))), found), BOOL)
        carried = [self.names.fresh("meeting") for _ in over]
        made: For | None = None
        for k, loop in reversed(list(enumerate(over))):
            name, result = carried[k], self.names.fresh("met")
            first = before if k == 0 else Ref(carried[k - 1], INT64)
            if made is None:
                body: tuple[Stmt, ...] = ()
                last: Expr = Op("max", (Ref(name, INT64), _counted(found)), INT64)
            else:
                body, last = (made,), Ref(made.carries[0].result, INT64)
            low, high = (substitute(e, names) for e in _range(loop))
            made = For(fresh[loop.var], low, high, 1, (Carry(name, first, last, result),), body, location=rows.location)
        assert made is not None
        return made, Ref(made.carries[0].result, INT64)

    def _freed(self, statements: tuple[Stmt, ...], met: Expr, known: dict[str, Segment], inside: bool) -> tuple[Stmt, ...]:
        """The statements with empty ranges, and without stores, where the flag is set."""
        out: list[Stmt] = []
        for stmt in statements:
            if isinstance(stmt, For) and stmt.var in known:
                low, high = _range(stmt)
                end = Ref(self.names.fresh(f"{stmt.var}_end"), INT64)
                out.append(Let(end.name, Op("where", (met, low, high), INT64), stmt.location))
                start, stop = (low, end) if stmt.step > 0 else (_plus(end, -1), _plus(low, -1))
                out.append(replace(stmt, start=start, stop=stop, body=_opened((stmt,), stmt), segment=known[stmt.var]))
            elif isinstance(stmt, Store) and not inside:
                out.append(If(Op("not", (met,), BOOL), (stmt,), (), (), stmt.location))
            else:
                out.append(map_statement(stmt, lambda e: e, lambda b: self._freed(b, met, known, inside)))
        return tuple(out)


def _opened(statements: tuple[Stmt, ...], loop: For) -> tuple[Stmt, ...]:
    """The statements with the body of a loop instead of it, in which its variable is a subscript that is not below 0."""
    own, out = Ref(loop.var, INT64), list[Stmt]()
    for stmt in statements:
        if isinstance(stmt, For) and stmt.var == loop.var:
            out += _mapped(loop, lambda e: not_below_0(e, own)).body
        else:
            out.append(map_statement(stmt, lambda e: e, lambda b: _opened(b, loop)))
    return tuple(out)


def _counted(condition: Expr) -> Expr:
    """1 where a condition holds, 0 elsewhere."""
    if isinstance(condition, Const):
        return ONE if condition.value else ZERO
    return Op("where", (condition, ONE, ZERO), INT64)


def _apart(flag: Array) -> Expr:
    return Op("not", (Load(flag.name, (ZERO,), BOOL),), BOOL)


def _storing(statements: tuple[Stmt, ...], array: str) -> tuple[Stmt, ...]:
    """The statements with the stores to one array alone."""
    return filtered(statements, lambda s: not isinstance(s, Store) or s.array == array)


def _range(loop: For) -> tuple[Expr, Expr]:
    """The least number of a loop, and the one after the largest."""
    return (loop.start, loop.stop) if loop.step > 0 else (_plus(loop.stop, 1), _plus(loop.start, 1))


def _plus(e: Expr, number: int) -> Expr:
    form = affine(e)
    return Op("add", (e, Const(number, INT64)), INT64) if form is None else (form + Affine((), number)).expr()


def _mapped(loop: For, rule: Callable[[Expr], Expr]) -> For:
    def block(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map_statement(s, rule, block) for s in statements)

    made = map_statement(loop, rule, block)
    assert isinstance(made, For)
    return made


def less(a: Expr, b: Expr) -> Expr:
    return Op("lt", (a, b), BOOL)


def alike(a: Expr, b: Expr) -> bool:
    """Whether two expressions are the same, up to the form of sums."""

    def plain(e: Expr) -> Expr:
        def rule(x: Expr) -> Expr | None:
            form = affine(x) if isinstance(x, Op) else None
            return None if form is None else form.expr()

        return rewrite(e, rule)

    return plain(a) == plain(b)
