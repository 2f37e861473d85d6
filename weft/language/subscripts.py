"""Positions: subscripts and bounds of loops, whose arithmetic is checked where an int may leave 64 bits."""

from __future__ import annotations

from dataclasses import replace

from weft.language.builder import Builder
from weft.language.spans import span, surely_fits
from weft.loops.affine import affine
from weft.loops.faults import leaves_64_bits
from weft.loops.ir import (
    Cast,
    Check,
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
    checks_in,
    free_names,
    operands,
    rewrite,
    unchecked,
    walk,
    walk_expr,
    with_operands,
)
from weft.loops.types import INT64


def position(b: Builder, expr: Expr) -> Expr:
    """An int as a subscript or a bound, without the checks for overflow that need not be made: what leaves 64 bits by one sum
    or multiple is in no array. Other products, and remainders of what overflowed, may be. What is no int, as that of a nan,
    stops a GPU too.
    """
    if not any(isinstance(e, Check) for e in walk_expr(expr)):
        return expr

    def rule(e: Expr, summand: bool = True) -> Expr:
        if leaves_64_bits(e):
            value = operands(e)[0]
            if _leaves_every_array(b, value) if summand else _fits_in_calls(b, value):
                return rule(value, summand)
        parts = _summands(e)
        if not parts and isinstance(e, Op) and e.name in ("min", "max", "floordiv", "mod") and e.type == INT64:
            parts, summand = e.args, False  # the largest or a part of what overflowed may be inside
        if not parts:
            return e
        return with_operands(e, tuple(rule(o, summand) if o in parts else o for o in operands(e)))

    return rewrite(rule(expr), _stopping)


def _fits_in_calls(b: Builder, expr: Expr) -> bool:
    """Whether an int of sizes, loops and scalars fits into 64 bits in calls with ordinary ones, to which calls then see."""
    value = unchecked(expr)
    numbers = frozenset(n for n in free_names(b.in_sizes(value)) if n in b.integers)
    return not b.is_dynamic(value) and surely_fits(b, lambda: span(b, value) is not None, numbers)


def _stopping(expr: Expr) -> Expr | None:
    if not isinstance(expr, Check) or expr.fault.kind == "division" or expr.fault.traps:
        return None
    return replace(expr, fault=replace(expr.fault, traps=True))


def _leaves_every_array(b: Builder, expr: Expr) -> bool:
    """Whether an int that 64 bits do not hold is not inside an array by what they hold instead: a sum of which sizes, loops or
    scalars are a part; a product of two sums of such, which leaves the array in an early iteration.
    """
    match expr:
        case Op(name="add" | "sub", args=(x, y)):
            return not (b.is_dynamic(x) and b.is_dynamic(y))
        case Op(name="mul", args=(x, y)) if not isinstance(x, Const) and not isinstance(y, Const):
            return not b.is_dynamic(expr) and affine(x) is not None and affine(y) is not None
    return isinstance(expr, Op) and expr.name in ("neg", "mul")


def _summands(expr: Expr) -> tuple[Expr, ...]:
    """The operands of an int that is a sum, a multiple or one of several: where they leave 64 bits, it leaves every array."""
    match expr:
        case Op(name="add" | "sub" | "neg", args=args, type=type_) if type_ == INT64:
            return args
        case Op(name="mul", args=(x, Const()), type=type_) | Op(name="mul", args=(Const(), x), type=type_) if type_ == INT64:
            return (x,)
        case Op(name="where", args=(_, *args), type=type_) if type_ == INT64:
            return tuple(args)
        case Op(name="check", args=(value, _), type=type_) if type_ == INT64:
            return (value,)
        case Cast(value=value, type=type_) if type_ == value.type == INT64:
            return (value,)
    return ()


def subscripts_unchecked(b: Builder, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The same for names that are summands of subscripts and bounds alone."""
    made: dict[str, tuple[Expr, ...]] = {}
    used: set[str] = set()
    for stmt in walk(body):
        match stmt:
            case Let(name=name, value=value):
                made[name] = (value,)
            case Store(value=value, index=index):
                used |= _values(value) | _parts_of(index)
            case For(carries=carries):
                made |= {n: (c.init, c.next) for c in carries for n in (c.name, c.result)}
                used |= _parts_of((stmt.start, stmt.stop))
            case If(condition=condition, merges=merges):
                used |= _values(condition)
                made |= {m.name: (m.then, m.orelse) for m in merges}
    for values in made.values():
        used |= _parts_of(values)
    pending = list(used)
    while pending:
        more = {n for e in made.get(pending.pop(), ()) for n in _values(e)} - used
        used |= more
        pending += more

    def clean(expr: Expr, *names: str) -> Expr:
        return position(b, expr) if expr.type == INT64 and not used.intersection(names) else expr

    def cleaned(stmt: Stmt) -> Stmt:
        match stmt:
            case Let():
                return replace(stmt, value=clean(stmt.value, stmt.name))
            case For():
                carries = tuple(
                    replace(c, init=clean(c.init, c.name, c.result), next=clean(c.next, c.name, c.result))
                    for c in stmt.carries
                )
                return replace(stmt, carries=carries, body=block(stmt.body))
            case If():
                merges = tuple(
                    replace(m, then=clean(m.then, m.name), orelse=clean(m.orelse, m.name)) for m in stmt.merges
                )
                return replace(stmt, then=block(stmt.then), orelse=block(stmt.orelse), merges=merges)
        return stmt

    def block(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map(cleaned, statements))

    return block(body) if checks_in(body) else body


def _parts_of(exprs: tuple[Expr, ...]) -> set[str]:
    """The names that subscripts compute with other than by adding them."""
    found: set[str] = set()
    for e in exprs:
        parts = _summands(e)
        if parts:
            found |= _parts_of(parts)
            match e:  # of one below 0, the end is a part too
                case Op(name="where", args=(Op(name="lt", args=(x, Const())), *_)):
                    found |= _parts_of((x,))
                case Op(name="where", args=(condition, *_)):
                    found |= _values(condition)
        elif not isinstance(e, Ref):
            found |= _values(e)
    return found


def _values(expr: Expr) -> set[str]:
    """The names that an expression computes with, those left out that are but added up in a subscript."""
    match expr:
        case Load(index=index):
            return _parts_of(index)
        case Ref(name=name):
            return {name}
        case Check(args=(value, _)) if leaves_64_bits(expr):
            return _values(value)
    return {n for e in operands(expr) for n in _values(e)}
