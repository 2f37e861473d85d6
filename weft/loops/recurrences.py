"""Recognising what a loop does to the scalars it carries: the algebra table and the matcher.

A carried scalar is understood if its update is `h = h (algebra) e` for an associative algebra, or an affine map
`h = a*h + b`, which composes associatively: (a2, b2) after (a1, b1) is (a2*a1, a2*b1 + b2). Everything else is unknown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.loops.accesses import FALSE
from weft.loops.ir import (
    Carry,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    Op,
    Ref,
    Stmt,
    Store,
    free_names,
    statement_exprs,
    substitute,
    walk,
    walk_expr,
)
from weft.loops.schedule import Update
from weft.loops.types import ScalarType


@dataclass(frozen=True)
class Algebra:
    """An associative operation: its operator, its identity by category, the words for it.

    combine: the operator that merges the totals of two parts. join: the operator of the update itself, where it differs
    (Python's max keeps a NaN it starts with but drops those it meets: parts are merged by fmax, the start joins last).
    """

    name: str
    combine: str
    join: str
    words: str
    identity_float: float
    identity_int: int | None = None  # None: the type's own extreme (low for max, high for min)
    bool_identity: bool | None = None

    def identity(self, type_: ScalarType) -> Const:
        if type_.category == "bool":
            assert self.bool_identity is not None
            return Const(self.bool_identity, type_)
        if type_.category == "float":
            return Const(self.identity_float, type_)
        if self.identity_int is not None:
            return Const(self.identity_int, type_)
        bits = 8 * type_.size - (1 if type_.signed else 0)
        low, high = (-(1 << bits) if type_.signed else 0), (1 << bits) - 1
        return Const(low if self.identity_float < 0 else high, type_)


_INF = float("inf")
ALGEBRAS: dict[str, Algebra] = {
    a.name: a
    for a in (
        Algebra("sum", "add", "add", "a sum", 0.0, 0),
        Algebra("product", "mul", "mul", "a product", 1.0, 1),
        Algebra("max", "fmax", "max", "a maximum", -_INF),
        Algebra("min", "fmin", "min", "a minimum", _INF),
        Algebra("maximum", "maximum", "maximum", "a maximum (NaN wins)", -_INF),
        Algebra("minimum", "minimum", "minimum", "a minimum (NaN wins)", _INF),
        Algebra("fmax", "fmax", "fmax", "a maximum (NaN dropped)", float("nan"), None),
        Algebra("fmin", "fmin", "fmin", "a minimum (NaN dropped)", float("nan"), None),
        Algebra("and", "and", "and", "a conjunction", 1.0, 1, True),
        Algebra("or", "or", "or", "a disjunction", 0.0, 0, False),
    )
}
# The affine algebra has two components and lives in `Update.coefficient`.
AFFINE = "affine"
WORDS = {**{name: a.words for name, a in ALGEBRAS.items()}, AFFINE: "affine composition"}

_BY_OPERATOR = {"add": "sum", "mul": "product", **{n: n for n in ("maximum", "minimum", "fmax", "fmin", "and", "or")}}


def definitions(body: tuple[Stmt, ...]) -> dict[str, Expr]:
    """The Lets at the top of a loop body, by name."""
    return {s.name: s.value for s in body if isinstance(s, Let)}


def expand(expr: Expr, lets: dict[str, Expr], through: set[str]) -> Expr:
    """Substitute the Lets named in `through` into an expression, repeatedly."""
    while True:
        names = {n: lets[n] for n in free_names(expr) if n in through}
        if not names:
            return expr
        expr = substitute(expr, names)


def dependents(body: tuple[Stmt, ...], name: str) -> set[str]:
    """Names bound in the body whose value depends on `name` (itself included)."""
    tainted = {name}

    def visit(statements: tuple[Stmt, ...]) -> None:
        for s in statements:
            match s:
                case Let():
                    if free_names(s.value) & tainted:
                        tainted.add(s.name)
                case For():
                    before = len(tainted)
                    for _ in range(2 + len(s.carries)):
                        for c in s.carries:
                            if (free_names(c.init) | free_names(c.next)) & tainted:
                                tainted.update((c.name, c.result))
                        visit(s.body)
                        if len(tainted) == before:
                            break
                        before = len(tainted)
                case If():
                    visit(s.then)
                    visit(s.orelse)
                    condition = free_names(s.condition) & tainted
                    for m in s.merges:
                        if condition or (free_names(m.then) | free_names(m.orelse)) & tainted:
                            tainted.add(m.name)
                case Store():
                    pass

    visit(body)
    return tainted


def match_updates(loop: For) -> tuple[tuple[Update, ...], str, tuple[str, ...]]:
    """The updates of all carries of a loop, in an order in which each needs only those before it.

    Returns (updates, "", ()) or, where one is not understood, ((), why, the names on its cycle).
    """
    lets = definitions(loop.body)
    tainted = {c.name: dependents(loop.body, c.name) for c in loop.carries}
    needs = {c.name: {d.name for d in loop.carries if free_names(c.next) & tainted[d.name]} for c in loop.carries}
    order: list[Carry] = []
    waiting = list(loop.carries)
    while waiting:
        ready = [c for c in waiting if needs[c.name] - {c.name} <= {o.name for o in order}]
        if not ready:
            cycle = tuple(c.name for c in waiting)
            return (), f"{' and '.join(cycle)} each need the other's value of the iteration before", cycle
        order += ready
        waiting = [c for c in waiting if c not in ready]
    updates = []
    for carry in order:
        own = tainted[carry.name] - {carry.name}
        chain = _feeding(carry, lets, own)
        overwritten = next((a for n in sorted(chain) for a in overwritten_after(loop.body, n)), None)
        if overwritten is not None:
            return (
                (),
                f"the update of {carry.name} reads {overwritten}, which the iteration then overwrites",
                (carry.name,),
            )
        next_ = expand(carry.next, lets, chain)
        matched = None if free_names(next_) & own else _match(carry, next_)
        if matched is None:
            why = f"the update of {carry.name} is no associative operation on {carry.name}"
            return (), why, (carry.name,)
        algebra, coefficient, addend = matched
        if coefficient is not None and carry.type.category == "float" and _forgets(loop, carry, next_):
            why = f"{carry.name} starts anew in some iterations, and 0 * {carry.name} is NaN where {carry.name} is infinite"
            return (), why, (carry.name,)
        updates.append(Update(carry.name, algebra, addend, coefficient, _used(loop, carry, tainted[carry.name], lets)))
    return tuple(updates), "", ()


def _used(loop: For, carry: Carry, tainted: set[str], lets: dict[str, Expr]) -> bool:
    """Whether anything but the carry's own update reads a value of it before the loop ends."""
    chain = _feeding(carry, lets, tainted)
    for other in loop.carries:
        if other is not carry and free_names(other.next) & tainted:
            return True
    for stmt in walk(loop.body):
        if isinstance(stmt, Let) and stmt.name in chain:
            continue
        if any(free_names(e) & tainted for e in statement_exprs(stmt)):
            return True
    return False


def _feeding(carry: Carry, lets: dict[str, Expr], tainted: set[str]) -> set[str]:
    """The Lets through which a carry reaches its own update."""
    chain: set[str] = set()
    pending = free_names(carry.next)
    while pending:
        name = pending.pop()
        if name in lets and name in tainted and name not in chain:
            chain.add(name)
            pending |= free_names(lets[name])
    return chain


def overwritten_after(body: tuple[Stmt, ...], name: str) -> list[str]:
    """Arrays that the Let of `name`, at the top of a loop body, loads and that later statements of the body store."""
    at = next(k for k, s in enumerate(body) if isinstance(s, Let) and s.name == name)
    stored = {s.array for s in walk(body[at + 1 :]) if isinstance(s, Store)}
    let = body[at]
    assert isinstance(let, Let)
    return [e.array for e in walk_expr(let.value) if isinstance(e, Load) and e.array in stored]


def _match(carry: Carry, next_: Expr) -> tuple[str, Expr | None, Expr] | None:
    name = carry.name
    for term_matcher in (_match_operator, _match_affine):
        found = term_matcher(name, next_)
        if found is not None:
            return found
    return None


def _forgets(loop: For, carry: Carry, e: Expr) -> bool:
    """Whether some iteration gives the carry a value without looking at the one before, so that `0 * h + e` is not what
    the program does. In the first iteration that is harmless where h starts as a finite number.
    """
    if carry.name not in free_names(e):
        return True
    match e:
        case Op(name="where", args=(condition, then, orelse)):
            finite = isinstance(carry.init, Const) and math.isfinite(carry.init.value)
            at_start = _at_start(condition, loop) if finite else None
            sides = [x for x, here in ((then, True), (orelse, False)) if at_start is not here]
            return any(_forgets(loop, carry, x) for x in sides)
        case Op(name="add" | "sub" | "neg" | "mul" | "div", args=args):
            return any(_forgets(loop, carry, a) for a in args if carry.name in free_names(a))
    return False


def _at_start(condition: Expr, loop: For) -> bool | None:
    """The value that a condition has in the first iteration alone; None where it is no such condition."""
    var, start = Ref(loop.var, loop.start.type), loop.start
    match condition:
        case Op(name="eq" | "ne" as name, args=args) if set(args) == {var, start}:
            return name == "eq"
        case Op(name="gt" | "lt" as name, args=args) if set(args) == {var, start}:
            grows = (name == "gt") == (args[0] == var)
            return False if grows == (loop.step > 0) else None
    return None


def _match_operator(name: str, e: Expr) -> tuple[str, Expr | None, Expr] | None:
    """h (op) e, e (op) h, and conditional forms `where(c, h (op) e, h)`."""
    match e:
        case Op(name="max" | "min" as op, args=(Ref(name=n), other)) if n == name and name not in free_names(other):
            return op, None, other
        case Op(name="max" | "min" as op, args=(other, Ref(name=n))) if n == name and name not in free_names(other):
            # Python's max(e, h) keeps a NaN e until the next element: only without NaNs is it the same
            return (op, None, other) if e.type.category == "int" else None
        case Op(name=op, args=(a, b)) if op in _BY_OPERATOR and op != "add":
            for own, other in ((a, b), (b, a)):
                if own == Ref(name, e.type) and name not in free_names(other):
                    return _BY_OPERATOR[op], None, other
        case Op(name="where", args=(condition, then, orelse)) if name not in free_names(condition):
            own = Ref(name, e.type)
            if orelse == own or then == own:
                inner = _match_operator(name, then if orelse == own else orelse)
                if inner is None or inner[0] not in ALGEBRAS:
                    return None
                algebra = ALGEBRAS[inner[0]]
                if algebra.name in ("sum", "product"):
                    return None  # the affine matcher does these
                neutral = algebra.identity(e.type)
                choice = (condition, inner[2], neutral) if orelse == own else (condition, neutral, inner[2])
                return inner[0], None, Op("where", choice, e.type)
    return None


def _match_affine(name: str, e: Expr) -> tuple[str, Expr | None, Expr] | None:
    if e.type.category == "bool":
        return None
    parts = _linear(name, e)
    if parts is None:
        return None
    coefficient, addend = parts
    if _is_number(coefficient, 1):
        return "sum", None, addend
    if _is_number(addend, 0) and not _is_number(coefficient, 0):
        return "product", None, coefficient
    return AFFINE, coefficient, addend


def _is_number(e: Expr, value: int) -> bool:
    return isinstance(e, Const) and e.value == value


def _number(value: int, type_: ScalarType) -> Const:
    return Const(float(value) if type_.category == "float" else value, type_)


def _linear(name: str, e: Expr) -> tuple[Expr, Expr] | None:
    """(a, b) with e == a*h + b and neither depending on h; None where e is not of that form."""
    type_ = e.type
    if name not in free_names(e):
        return _number(0, type_), e
    match e:
        case Ref():
            return _number(1, type_), _number(0, type_)
        case Op(name="add" | "sub" as op, args=(x, y)):
            left, right = _linear(name, x), _linear(name, y)
            if left is None or right is None:
                return None
            return _combine(op, left[0], right[0]), _combine(op, left[1], right[1])
        case Op(name="neg", args=(x,)):
            inner = _linear(name, x)
            return None if inner is None else (_negate(inner[0]), _negate(inner[1]))
        case Op(name="mul", args=(x, y)):
            if name in free_names(x) and name in free_names(y):
                return None
            own, factor = (x, y) if name in free_names(x) else (y, x)
            inner = _linear(name, own)
            return None if inner is None else (_scale(inner[0], factor), _scale(inner[1], factor))
        case Op(name="div", args=(x, y)) if name not in free_names(y):
            inner = _linear(name, x)
            if inner is None:
                return None
            a = Op("div", (inner[0], y), type_)
            return a, inner[1] if _is_number(inner[1], 0) else Op("div", (inner[1], y), type_)
        case Op(name="where", args=(condition, x, y)) if name not in free_names(condition):
            left, right = _linear(name, x), _linear(name, y)
            if left is None or right is None:
                return None
            if condition == FALSE:
                return right
            return tuple(  # type: ignore[return-value]
                u if u == v else Op("where", (condition, u, v), type_) for u, v in zip(left, right, strict=True)
            )
    return None


def _combine(op: str, a: Expr, b: Expr) -> Expr:
    if _is_number(b, 0):
        return a
    if _is_number(a, 0):
        return b if op == "add" else _negate(b)
    return Op(op, (a, b), a.type)


def _negate(a: Expr) -> Expr:
    if isinstance(a, Const):
        return Const(-a.value, a.type)
    return Op("neg", (a,), a.type)


def _scale(a: Expr, factor: Expr) -> Expr:
    if _is_number(a, 0):
        return a
    if _is_number(a, 1):
        return factor
    return Op("mul", (a, factor), a.type)
