"""The array accesses of a loop nest, each with the iterations in which it happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from weft.errors import Location
from weft.loops.affine import Affine, affine, is_bound
from weft.loops.ir import (
    FALSE,
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
    operands,
    rewrite,
    substitute,
    walk_expr,
    with_operands,
)
from weft.loops.types import BOOL, INT64

# A conjunction of conditions, each (expression, whether it holds).
Guard = tuple[tuple[Expr, bool], ...]


@dataclass(frozen=True)
class Access:
    """One textual read or write of an array.

    loops: the loops around it, outermost first. guard: what else must hold for it to happen. subscript: its affine
    index by axis, None where an axis is not affine (it may then be anything). position: its textual order.
    """

    array: str
    subscript: tuple[Affine | None, ...]
    index: tuple[Expr, ...]
    write: bool
    loops: tuple[For, ...]
    guard: Guard
    position: int
    location: Location | None


def counted_from_end(index: Expr) -> tuple[Expr, bool]:
    """The subscript before one that is below 0 counts from the end, and whether it does (`k + n if k < 0 else k`)."""
    match index:
        case Op(name="where", args=(Op(name="lt", args=(a, Const(value=0))), _, b)) if a == b:
            return a, True
    return index, False


def not_below_0(expr: Expr, var: Ref) -> Expr:
    """An expression where a variable is not below 0: its subscripts by it do not count from the end."""
    below = Op("lt", (var, Const(0, INT64)), BOOL)
    return rewrite(expr, lambda e: e.args[2] if isinstance(e, Op) and e.name == "where" and e.args[0] == below else None)


def rewrite_loads(expr: Expr, rule: Callable[[Load, Guard], Expr | None], guard: Guard = ()) -> Expr:
    """Replace loads, each seen with the conditions under which it is evaluated; None keeps it."""
    match expr:
        case Op(name="where", args=(condition, then, orelse)):
            new: tuple[Expr, ...] = (
                rewrite_loads(condition, rule, guard),
                rewrite_loads(then, rule, (*guard, (condition, True))),
                rewrite_loads(orelse, rule, (*guard, (condition, False))),
            )
        case Op(name="and" | "or" as name, args=(left, right)):
            new = (rewrite_loads(left, rule, guard), rewrite_loads(right, rule, (*guard, (left, name == "and"))))
        case _:
            new = tuple(rewrite_loads(o, rule, guard) for o in operands(expr))
    if new != operands(expr):
        expr = with_operands(expr, new)
    if isinstance(expr, Load):
        return rule(expr, guard) or expr
    return expr


# What is known of the conditions that have names is written out up to this size.
_LONGEST_CONDITION = 64


class Conditions:
    """The conditions that statements name (`inside = i + 1 < n`, or a chained comparison), followed on a walk through them:
    a guard then says what a name stands for.
    """

    def __init__(self) -> None:
        self._meanings: dict[str, Expr] = {}

    def bind(self, name: str, value: Expr) -> None:
        """Remember what a name is; names that are no conditions are let alone."""
        if value.type == BOOL:
            value = substitute(value, self._meanings)
            if sum(1 for _ in walk_expr(value)) <= _LONGEST_CONDITION:
                self._meanings[name] = value

    def merge(self, condition: Expr, merge: Merge) -> None:
        """The same for what a branch leaves."""
        self.bind(merge.name, _choice(condition, merge.then, merge.orelse))

    def guard(self, condition: Expr, holds: bool) -> Guard:
        """That a condition holds, or its contrary, written out; of one that data decide in part, also what the rest says."""
        written_out = substitute(condition, self._meanings)
        if written_out == condition:
            return ((condition, holds),)
        facts = _conjuncts(written_out, holds)
        plain = tuple(f for f in facts if not any(isinstance(e, Load) for e in walk_expr(f[0])))
        return ((written_out, holds),) if len(plain) == len(facts) else ((condition, holds), *plain)


def _choice(condition: Expr, then: Expr, orelse: Expr) -> Expr:
    if orelse == FALSE:
        return Op("and", (condition, then), BOOL)
    if then == FALSE:
        return Op("and", (Op("not", (condition,), BOOL), orelse), BOOL)
    if then == Const(True, BOOL):
        return Op("or", (condition, orelse), BOOL)
    return Op("where", (condition, then, orelse), then.type)


def _conjuncts(condition: Expr, holds: bool) -> Guard:
    """The facts that together say that a condition holds, or its contrary."""
    match condition:
        case Op(name="not", args=(inner,)):
            return _conjuncts(inner, not holds)
        case Op(name="and" | "or" as name, args=(a, b)) if (name == "and") == holds:
            return _conjuncts(a, holds) + _conjuncts(b, holds)
    return ((condition, holds),)


def _loads(expr: Expr) -> tuple[tuple[Load, Guard], ...]:
    """Loads of an expression, each with the conditions in it under which it is evaluated, which are looked into for loads
    alone. The expression remembers them.
    """
    if not free_arrays(expr):
        return ()
    found: tuple[tuple[Load, Guard], ...] | None = expr.__dict__.get("_loads")
    if found is None:
        found = tuple(_walk_loads(expr, ()))
        object.__setattr__(expr, "_loads", found)
    return found


def _walk_loads(expr: Expr, around: Guard) -> Iterator[tuple[Load, Guard]]:
    if not free_arrays(expr):
        return
    match expr:
        case Op(name="where", args=(condition, then, orelse)):
            yield from _walk_loads(condition, around)
            yield from _walk_loads(then, (*around, (condition, True)))
            yield from _walk_loads(orelse, (*around, (condition, False)))
        case Op(name="and" | "or" as name, args=(left, right)):
            yield from _walk_loads(left, around)
            yield from _walk_loads(right, (*around, (left, name == "and")))
        case _:
            if isinstance(expr, Load):
                yield expr, around
            for operand in operands(expr):
                yield from _walk_loads(operand, around)


class _Collector:
    def __init__(self) -> None:
        self.accesses: list[Access] = []
        self.conditions = Conditions()

    def add(self, array: str, index: tuple[Expr, ...], write: bool, loops: tuple[For, ...], guard: Guard,
            location: Location | None) -> None:  # fmt: skip
        subscript = tuple(affine(i) for i in index)
        self.accesses.append(Access(array, subscript, index, write, loops, guard, len(self.accesses), location))

    def expr(self, expr: Expr, loops: tuple[For, ...], guard: Guard, location: Location | None) -> None:
        loads = _loads(expr)
        if not loads:
            return
        said: dict[tuple[int, bool], Guard] = {}  # what holds where a condition does: many loads stand under one
        for load, around in loads:
            for condition, holds in around:
                if (id(condition), holds) not in said:
                    said[id(condition), holds] = self.conditions.guard(condition, holds)
            within = (*guard, *(fact for c, holds in around for fact in said[id(c), holds])) if around else guard
            self.add(load.array, load.index, False, loops, within, load.location or location)

    def block(self, statements: tuple[Stmt, ...], loops: tuple[For, ...], guard: Guard) -> None:
        for stmt in statements:
            match stmt:
                case Let(name=name, value=value):
                    self.expr(value, loops, guard, stmt.location)
                    self.conditions.bind(name, value)
                case Store():
                    for e in (*stmt.index, stmt.value):
                        self.expr(e, loops, guard, stmt.location)
                    self.add(stmt.array, stmt.index, True, loops, guard, stmt.location)
                case If():
                    self.expr(stmt.condition, loops, guard, stmt.location)
                    then, orelse = (self.conditions.guard(stmt.condition, holds) for holds in (True, False))
                    self.block(stmt.then, loops, (*guard, *then))
                    self.block(stmt.orelse, loops, (*guard, *orelse))
                    for m in stmt.merges:
                        self.expr(m.then, loops, (*guard, *then), stmt.location)
                        self.expr(m.orelse, loops, (*guard, *orelse), stmt.location)
                        self.conditions.merge(stmt.condition, m)
                case For():
                    self.expr(stmt.start, loops, guard, stmt.location)
                    self.expr(stmt.stop, loops, guard, stmt.location)
                    for c in stmt.carries:
                        self.expr(c.init, loops, guard, stmt.location)
                    self.block(stmt.body, (*loops, stmt), guard)
                    for c in stmt.carries:
                        self.expr(c.next, (*loops, stmt), guard, stmt.location)


def collect(statements: tuple[Stmt, ...], loops: tuple[For, ...] = (), guard: Guard = ()) -> tuple[Access, ...]:
    """All accesses, in textual order (a statement's reads before its write). loops, guard: what lies around them."""
    collector = _Collector()
    collector.block(statements, loops, guard)
    return tuple(collector.accesses)


@dataclass(frozen=True)
class Nested:
    """A loop with the loops around it, outermost first, and what must hold for it to run."""

    loop: For
    loops: tuple[For, ...]
    guard: Guard


def loops_in(statements: tuple[Stmt, ...], loops: tuple[For, ...] = (), guard: Guard = ()) -> Iterator[Nested]:
    """All loops of some statements, a loop before those in it. loops, guard: what lies around them."""
    yield from _loops_in(statements, loops, guard, Conditions())


def _loops_in(
    statements: tuple[Stmt, ...], loops: tuple[For, ...], guard: Guard, conditions: Conditions
) -> Iterator[Nested]:
    for stmt in statements:
        match stmt:
            case Let(name=name, value=value):
                conditions.bind(name, value)
            case For():
                yield Nested(stmt, loops, guard)
                yield from _loops_in(stmt.body, (*loops, stmt), guard, conditions)
            case If(condition=condition):
                yield from _loops_in(stmt.then, loops, (*guard, *conditions.guard(condition, True)), conditions)
                yield from _loops_in(stmt.orelse, loops, (*guard, *conditions.guard(condition, False)), conditions)
                for m in stmt.merges:
                    conditions.merge(condition, m)


# Two accesses to one array, and the loops in whose every iteration it is a fresh one.
Pair = tuple[Access, Access, frozenset[str]]


def pairs_in(function: Function, nested: Nested) -> Iterator[Pair]:
    """The pairs of accesses in the iterations of a loop that may conflict: to one array, one of them writing. An array that
    is a fresh one in each iteration is left out.
    """
    loop = nested.loop
    accesses = collect((loop,), nested.loops, nested.guard)
    accesses = tuple(a for a in accesses if any(f.var == loop.var for f in a.loops))
    written = {a.array for a in accesses if a.write}
    for i, a in enumerate(accesses):
        if a.array not in written:
            continue
        within = frozenset(function.array(a.array).within)
        if loop.var in within:
            continue
        for b in accesses[i:]:
            if a.array == b.array and (a.write or b.write):
                yield a, b, within


def unknown_ranges(function: Function, access: Access) -> set[str]:
    """The loops around an access whose bounds data decide."""
    known = {s.name for s in function.sizes} | {s.name for s in function.scalars}
    unknown = set()
    for loop in access.loops:
        if is_bound(loop.start, known) and is_bound(loop.stop, known):
            known.add(loop.var)
        else:
            unknown.add(loop.var)
    return unknown
