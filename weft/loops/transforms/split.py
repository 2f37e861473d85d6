"""Splitting a reduction by its algebra: parts of the loop start anew, and what they give is combined."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from weft.errors import InapplicableTransform
from weft.loops.accesses import loops_in
from weft.loops.algebra.elements import Elements, elements
from weft.loops.algebra.flow import Flow
from weft.loops.algebra.linear import both, choice, either
from weft.loops.algebra.recurrences import match_updates
from weft.loops.algebra.table import AFFINE, ALGEBRAS, SELECT, words
from weft.loops.analyze import conflicts
from weft.loops.ir import (
    TRUE,
    Array,
    Carry,
    Const,
    Expr,
    For,
    Function,
    Let,
    Load,
    Op,
    Ref,
    Stmt,
    Store,
    free_names,
    map_statement,
    name_of,
    rewrite,
    substitute,
    substitute_statements,
)
from weft.loops.names import Names
from weft.loops.schedule import Update
from weft.loops.show import user_names
from weft.loops.simplify import number
from weft.loops.transforms.nest import Proposal, find_loop, replaced
from weft.loops.types import BOOL, INT64, ScalarType

_LARGEST = {2: 65504.0, 4: 3.4028234663852886e38, 8: 1.7976931348623157e308}


def split(function: Function, var: str, size: int) -> Proposal:
    """A loop over parts of `size` iterations, each of which starts as if nothing had happened before; after each, what it
    gives is combined with what there was.
    """
    what = f"split of {var} by {size}"
    loop = find_loop(function, var)
    if size < 1:
        raise InapplicableTransform(f"{what}: a part has no iteration", remedy="use a size of at least 1")
    nested = next(n for n in loops_in(function.body) if n.loop is loop)
    found = {a.array: witness for a, _, witness in conflicts(function, nested)}
    carried = elements(function, loop, found)
    updates, why, _ = match_updates(loop if carried is None else carried.loop)
    shown = user_names(function)
    late = [u for u in updates if u.used]
    if carried is None:
        array, witness = next(iter(found.items()))
        why = f"{witness} touch the same element of {array}"
    elif not carried.loop.carries:
        why = "it carries nothing"
    elif late:
        disorder = [u.disorder for u in updates if u.disorder]
        own = " and ".join(map(shown, late[0].names))
        why = disorder[0] if disorder else f"values of {own} are used before the loop ends"
    if why or carried is None:
        raise InapplicableTransform(
            f"{what}: the loop is no reduction",
            location=loop.location,
            evidence=[why],
            remedy="repair what depends on the order, or strip-mine the loop, which keeps it",
        )
    parts = _Parts(function, loop, carried, Names.of(function), what)
    made = parts.made(updates, size)
    by = ", ".join(f"{' and '.join(map(shown, u.names))} by {words(u.algebra, len(u.names))}" for u in updates)
    repaired = "".join(f"; {shown(u.name)} is repaired by {u.repair}" for u in updates if u.repair)
    changed = replaced(function, loop, (made,))
    changed = replace(changed, arrays=(*changed.arrays, *parts.arrays))
    return Proposal(what, changed, f"the loop is a reduction of {by}{repaired}")


@dataclass
class _Parts:
    """The loop over parts under construction. before, part, after: each state as it was before a part, as the part gives
    it, and combined; inside: its name within a part. start: what is done before the iterations of a part, combined: after.
    """

    function: Function
    loop: For
    carried: Elements
    names: Names
    what: str
    before: dict[str, Expr] = field(default_factory=dict)
    part: dict[str, Expr] = field(default_factory=dict)
    after: dict[str, Expr] = field(default_factory=dict)
    inside: dict[str, Expr] = field(default_factory=dict)
    inner: list[Carry] = field(default_factory=list)
    start: list[Stmt] = field(default_factory=list)
    combined: list[Stmt] = field(default_factory=list)
    arrays: list[Array] = field(default_factory=list)

    def made(self, updates: tuple[Update, ...], size: int) -> For:
        loop, names = self.loop, self.names
        carries = {c.name: c for c in loop.carries}
        for c in loop.carries:
            self.before[c.name] = Ref(c.name, c.type)
            self.inside[c.name] = Ref(names.fresh(f"{c.name}_part"), c.type)
            self.part[c.name] = Ref(names.fresh(f"{c.name}_part"), c.type)
        for u in updates:
            if u.name not in self.carried.states:
                self._update(u, [carries[n] for n in u.names])
        empty = {u.name for u in updates if u.feeds and (u.repair or u.algebra == "sum")}
        body = substitute_statements(_weighed(loop.body, Flow.of(loop.body, empty).names), self.inside)
        for u in updates:
            if u.name in self.carried.states:
                body = self._elements(u, self.carried.states[u.name], body)
        block = names.fresh(f"{loop.var}_block")
        here, past = Ref(block, INT64), Const(size * loop.step, INT64)
        end = Op("min" if loop.step > 0 else "max", (Op("add", (here, past), INT64), loop.stop), INT64)
        inside = replace(loop, start=here, stop=end, carries=tuple(self.inner), body=body)
        outer = tuple(replace(c, next=self.after[c.name]) for c in loop.carries)
        return replace(
            loop, var=block, step=size * loop.step, carries=outer, body=(*self.start, inside, *self.combined)
        )

    def _elements(self, u: Update, array: str, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """The body with the elements of a part in an array of their own; loops that begin and combine them."""
        if not u.repair and u.algebra not in ALGEBRAS:
            raise self._refused(u.algebra, 1)
        own = self.function.array(array)
        other = self.names.fresh(f"{array}_part")
        self.arrays.append(replace(own, name=other, role="local", fill=None))
        over, index = self.carried.over[array]
        type_ = own.dtype.opmath
        zero = number(0, type_) if u.repair else ALGEBRAS[u.algebra].identity(type_)

        def each(statement: Callable[[tuple[Expr, ...]], Stmt]) -> For:
            var = self.names.fresh(over.var)
            here = tuple(substitute(i, {over.var: Ref(var, INT64)}) for i in index)
            return replace(over, var=var, body=(statement(here),))

        def together(here: tuple[Expr, ...]) -> Stmt:
            before, part = Load(array, here, type_), Load(other, here, type_)
            if u.repair:
                assert u.factor is not None
                ways = (self._factor(u.factor, self.before), self._factor(u.factor, self.part))
                old, new = (Op("mul", (state, way), type_) for state, way in zip((before, part), ways, strict=True))
                return Store(array, here, Op("add", (old, new), type_))
            return Store(array, here, Op(ALGEBRAS[u.algebra].join, (before, part), type_))

        self.start.append(each(lambda here: Store(other, here, zero)))
        self.combined.append(each(together))
        return _in_array(body, array, other)

    def _carry(self, c: Carry, start: Expr) -> None:
        name, result = name_of(self.inside[c.name]), name_of(self.part[c.name])
        self.inner.append(Carry(name, start, substitute(c.next, self.inside), result))

    def _let(self, c: Carry, value: Expr) -> None:
        name = self.names.fresh(c.name)
        self.combined.append(Let(name, value, self.loop.location))
        self.after[c.name] = Ref(name, c.type)

    def _update(self, u: Update, own: list[Carry]) -> None:
        c = own[0]
        before, part = self.before[c.name], self.part[c.name]
        if u.repair:
            assert u.factor is not None
            self._carry(c, number(0, c.type))
            ways = (self._factor(u.factor, self.before), self._factor(u.factor, self.part))
            old, new = (Op("mul", (state, way), c.type) for state, way in zip((before, part), ways, strict=True))
            self._let(c, Op("add", (old, new), c.type))
        elif u.algebra in ALGEBRAS:
            start = _finite(u.algebra, c.type) if u.feeds else ALGEBRAS[u.algebra].identity(c.type)
            self._carry(c, start)
            self._let(c, Op(ALGEBRAS[u.algebra].join, (before, part), c.type))
        elif u.algebra == AFFINE and u.parts:
            self._carry(c, number(0, c.type))
            factor, total = self.names.fresh(f"{c.name}_factor"), self.names.fresh(f"{c.name}_factor_part")
            product = Op("mul", (Ref(factor, c.type), substitute(u.parts[0], self.inside)), c.type)
            self.inner.append(Carry(factor, number(1, c.type), product, total))
            self._let(c, Op("add", (Op("mul", (before, Ref(total, c.type)), c.type), part), c.type))
        elif u.algebra == SELECT and u.parts:
            self._carry(c, _nothing(c.type))
            given, any_ = self.names.fresh(f"{c.name}_given"), self.names.fresh(f"{c.name}_given_part")
            now = either(Ref(given, BOOL), substitute(u.parts[0], self.inside))
            self.inner.append(Carry(given, Const(False, BOOL), now, any_))
            self._let(c, choice(Ref(any_, BOOL), part, before))
        elif u.algebra in ("argmax", "argmin"):
            self._carry(c, ALGEBRAS[u.algebra.removeprefix("arg")].identity(c.type))
            better = Op("gt" if u.algebra == "argmax" else "lt", (part, before), BOOL)
            for other in own[1:]:
                self._carry(other, _nothing(other.type))
                self._let(other, choice(both(TRUE, better), self.part[other.name], self.before[other.name]))
            self._let(c, Op(u.algebra.removeprefix("arg"), (before, part), c.type))
        else:
            raise self._refused(u.algebra, len(own))

    def _refused(self, algebra: str, values: int) -> InapplicableTransform:
        return InapplicableTransform(
            f"{self.what}: parts of {words(algebra, values)} are not combined here",
            location=self.loop.location,
            remedy="strip-mine the loop; the compiler combines them by itself",
        )

    def _factor(self, factor: Expr, state: Mapping[str, Expr]) -> Expr:
        """What brings a state from its own running values to the combined ones."""
        new = {f"{n}'": e for n, e in self.after.items()}
        return substitute(factor, {**state, **new})


def _weighed(statements: tuple[Stmt, ...], sums: set[str]) -> tuple[Stmt, ...]:
    """The statements with 1 in the place of divisors that depend on a running sum and are 0: a part may have no weight at
    all, and what is divided is then 0 too.
    """

    def rule(e: Expr) -> Expr | None:
        match e:
            case Op(name="div", args=(a, by)) if free_names(by) & sums:
                divisor = Op("where", (Op("ne", (by, number(0, by.type)), BOOL), by, number(1, by.type)), by.type)
                return Op("div", (a, divisor), e.type)
        return None

    return tuple(map_statement(s, lambda e: rewrite(e, rule), lambda b: _weighed(b, sums)) for s in statements)


def _in_array(statements: tuple[Stmt, ...], array: str, other: str) -> tuple[Stmt, ...]:
    """The statements with the elements of another array in the place of those of one."""

    def expr(e: Expr) -> Expr:
        return rewrite(e, lambda x: replace(x, array=other) if isinstance(x, Load) and x.array == array else None)

    out: list[Stmt] = []
    for s in statements:
        s = map_statement(s, expr, lambda b: _in_array(b, array, other))
        out.append(replace(s, array=other) if isinstance(s, Store) and s.array == array else s)
    return tuple(out)


def _finite(algebra: str, type_: ScalarType) -> Const:
    """The start of a running extremum in a part: finite, so that its difference to another one is a number."""
    if type_.category != "float":
        return ALGEBRAS[algebra].identity(type_)
    start = ALGEBRAS[algebra].identity(type_)
    largest = _LARGEST[type_.size]
    return Const(-largest if start.value == -float("inf") else largest if start.value == float("inf") else start.value, type_)


def _nothing(type_: ScalarType) -> Const:
    return Const(False, type_) if type_.category == "bool" else number(0, type_)
