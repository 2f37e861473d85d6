"""Expressions as linear forms of some carried scalars: coefficients, which of them are there at all, and what is added."""

from __future__ import annotations

from dataclasses import dataclass

from weft.loops.ir import FALSE, TRUE, Const, Expr, Op, Ref, free_names
from weft.loops.simplify import is_number, number
from weft.loops.types import BOOL


@dataclass(frozen=True)
class Term:
    """coefficient * (a carried scalar), where `present` holds; elsewhere the scalar is not looked at."""

    coefficient: Expr
    present: Expr


@dataclass(frozen=True)
class Linear:
    """The sum of the terms, by carried scalar, and the addend, which depends on none of them."""

    terms: dict[str, Term]
    addend: Expr

    def coefficient(self, name: str) -> Expr:
        term = self.terms.get(name)
        return number(0, self.addend.type) if term is None else term.coefficient

    def present(self, name: str) -> Expr:
        term = self.terms.get(name)
        return FALSE if term is None else term.present


def linear(names: frozenset[str], e: Expr) -> Linear | None:
    """e as a linear form of the names; None where it is none."""
    if not free_names(e) & names:
        return Linear({}, e)
    match e:
        case Ref(name=name, type=type_):
            return Linear({name: Term(number(1, type_), TRUE)}, number(0, type_))
        case Op(name="add" | "sub" as op, args=(x, y)):
            left, right = linear(names, x), linear(names, y)
            if left is None or right is None:
                return None
            terms = {n: Term(_combine(op, left.coefficient(n), right.coefficient(n)), either(left.present(n), right.present(n)))
                     for n in dict.fromkeys((*left.terms, *right.terms))}  # fmt: skip
            return Linear(terms, _combine(op, left.addend, right.addend))
        case Op(name="neg", args=(x,)):
            inner = linear(names, x)
            return None if inner is None else _mapped(inner, _negate)
        case Op(name="mul", args=(x, y)) if not (free_names(x) & names and free_names(y) & names):
            own, factor = (x, y) if free_names(x) & names else (y, x)
            inner = linear(names, own)
            return None if inner is None else _mapped(inner, lambda a: _scale(a, factor))
        case Op(name="div", args=(x, y)) if not free_names(y) & names:
            inner = linear(names, x)
            if inner is None:
                return None
            terms = {n: Term(Op("div", (t.coefficient, y), e.type), t.present) for n, t in inner.terms.items()}
            return Linear(terms, inner.addend if is_number(inner.addend, 0) else Op("div", (inner.addend, y), e.type))
        case Op(name="where", args=(condition, x, y)) if not free_names(condition) & names:
            left, right = linear(names, x), linear(names, y)
            if left is None or right is None:
                return None
            if condition == FALSE:
                return right
            terms = {
                n: Term(
                    choice(condition, left.coefficient(n), right.coefficient(n)),
                    choice(condition, left.present(n), right.present(n)),
                )
                for n in dict.fromkeys((*left.terms, *right.terms))
            }
            return Linear(terms, choice(condition, left.addend, right.addend))
    return None


def _mapped(form: Linear, change) -> Linear:  # type: ignore[no-untyped-def]
    terms = {n: Term(change(t.coefficient), t.present) for n, t in form.terms.items()}
    return Linear(terms, change(form.addend))


# ---------------------------------------------------------------- conditions


def choice(condition: Expr, then: Expr, orelse: Expr) -> Expr:
    """`then if condition else orelse`; of conditions, as short as can be."""
    if then == orelse:
        return then
    if isinstance(condition, Const):
        return then if condition.value else orelse
    if (then, orelse) == (TRUE, FALSE):
        return condition
    if (then, orelse) == (FALSE, TRUE):
        return negation(condition)
    return Op("where", (condition, then, orelse), then.type)


def negation(a: Expr) -> Expr:
    match a:
        case Const(value=value):
            return Const(not value, BOOL)
        case Op(name="not", args=(inner,)):
            return inner
    return Op("not", (a,), BOOL)


def either(a: Expr, b: Expr) -> Expr:
    if TRUE in (a, b):
        return TRUE
    if a in (FALSE, b):
        return b
    return a if b == FALSE else Op("or", (a, b), BOOL)


def both(a: Expr, b: Expr) -> Expr:
    if FALSE in (a, b):
        return FALSE
    if a in (TRUE, b):
        return b
    return a if b == TRUE else Op("and", (a, b), BOOL)


def _combine(op: str, a: Expr, b: Expr) -> Expr:
    if is_number(b, 0):
        return a
    if is_number(a, 0):
        return b if op == "add" else _negate(b)
    return Op(op, (a, b), a.type)


def _negate(a: Expr) -> Expr:
    if isinstance(a, Const):
        return Const(-a.value, a.type)
    return Op("neg", (a,), a.type)


def _scale(a: Expr, factor: Expr) -> Expr:
    if is_number(a, 0):
        return a
    if is_number(a, 1):
        return factor
    return Op("mul", (a, factor), a.type)
