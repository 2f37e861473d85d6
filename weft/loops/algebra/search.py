"""Searches: a flag that falls once, as at a `break`, and the values that are taken as it falls.

An iteration's element says whether it lets the flag fall, and which values it then gives. The first one that does decides,
so two elements combine to the former where that one does, and to the latter otherwise.
"""

from __future__ import annotations

from weft.loops.algebra.linear import both, choice, either, negation
from weft.loops.ir import FALSE, TRUE, Carry, Const, Expr, Op, Ref, free_names, rewrite, substitute
from weft.loops.types import BOOL


def kept(name: str, e: Expr) -> Expr | None:
    """Whether a flag stays up in an iteration that it is up in, where `name = e` never raises it again; else None."""
    if e.type != BOOL or known(e, Ref(name, BOOL), False) != FALSE:
        return None
    up = known(e, Ref(name, BOOL), True)
    return None if name in free_names(up) or up == TRUE else up


def taken(carry: Carry, e: Expr, flag: str, stays: Expr) -> Expr | None:
    """The value that `carry.name = e` takes in the iteration in which a flag falls; None where it may change in another one.

    stays: whether the flag stays up.
    """
    if not isinstance(carry.init, (Const, Ref)):
        return None  # an element that the loop may overwrite
    # until it is taken, the value is the one before the loop
    now = substitute(known(e, Ref(flag, BOOL), True), {carry.name: carry.init})
    if known(e, Ref(flag, BOOL), False) != Ref(carry.name, carry.type) or free_names(now) & {flag, carry.name}:
        return None
    try:
        found = _when_falling(now, stays, carry.init)
    except _Changes:
        return None
    return carry.init if found is None else found


class _Changes(Exception):
    """The value changes where the flag stays up."""


def _when_falling(e: Expr, stays: Expr, before: Expr) -> Expr | None:
    """The value of e where the flag falls; None where it never does."""
    if stays == TRUE:
        if e != before:
            raise _Changes
        return None
    match e:
        case Op(name="where", args=(condition, then, orelse)) if stays != FALSE:
            sides = [
                _when_falling(x, known(stays, condition, holds), before) for x, holds in ((then, True), (orelse, False))
            ]
            if None in sides:
                return sides[0] or sides[1]
            return choice(condition, sides[0], sides[1])  # type: ignore[arg-type]
    if stays != FALSE and e != before:
        raise _Changes
    return e


def known(e: Expr, condition: Expr, holds: bool) -> Expr:
    """e where a condition is known to hold, or not to: branches decided, conditions as short as can be."""
    facts: dict[Expr, bool] = {}
    _decide(condition, holds, facts)

    def rule(x: Expr) -> Expr | None:
        if x.type == BOOL and x in facts:
            return Const(facts[x], BOOL)
        match x:
            case Op(name="where", args=(c, then, orelse)):
                made = choice(c, then, orelse)
                return made if made != x else None
            case Op(name="not", args=(Const() as a,)):
                return negation(a)
            case Op(name="and", args=(a, b)) if isinstance(a, Const) or isinstance(b, Const):
                return both(a, b)
            case Op(name="or", args=(a, b)) if isinstance(a, Const) or isinstance(b, Const):
                return either(a, b)
        return None

    return rewrite(e, rule)


def _decide(condition: Expr, holds: bool, facts: dict[Expr, bool]) -> None:
    match condition:
        case Op(name="not", args=(inner,)):
            _decide(inner, not holds, facts)
        case Op(name="and" | "or" as name, args=(a, b)) if holds == (name == "and"):
            _decide(a, holds, facts)
            _decide(b, holds, facts)
    facts[condition] = holds
