"""Which iterations of a loop give a subscript one value, where it never turns: they follow each other then, and of sums, bounds
and quotients they are told by the value.
"""

from __future__ import annotations

from typing import Literal

from weft.loops.ir import Cast, Const, Expr, Op, Ref, Round, free_names
from weft.loops.simplify import add, fold, mul, neg, sub
from weft.loops.types import BOOL, INT64

# How a value goes with a variable: either way, if it is not known which.
Course = Literal["steady", "up", "down", "either"]

_BACK: dict[Course, Course] = {"steady": "steady", "up": "down", "down": "up", "either": "either"}


def course(e: Expr, var: str) -> Course | None:
    """How e goes with a variable, all other names fixed; None where it may turn. Roundings never turn."""
    if var not in free_names(e):
        return "steady"
    match e:
        case Ref():
            return "up"
        case Cast(value=value) | Round(value=value) if value.type.category != "bool":
            return course(value, var)
        case Op(name="floor" | "ceil" | "trunc" | "round", args=(a,)):
            return course(a, var)
        case Op(name="neg", args=(a,)):
            return _back(course(a, var))
        case Op(name="add" | "min" | "max", args=(a, b)):
            return _both(course(a, var), course(b, var))
        case Op(name="sub", args=(a, b)):
            return _both(course(a, var), _back(course(b, var)))
        case Op(name="mul", args=(a, b)) if var not in free_names(b):
            return _scaled(course(a, var), b)
        case Op(name="mul", args=(a, b)) if var not in free_names(a):
            return _scaled(course(b, var), a)
        case Op(name="div" | "floordiv", args=(a, b)) if var not in free_names(b):
            return _scaled(course(a, var), b)
    return None


def _back(one: Course | None) -> Course | None:
    return None if one is None else _BACK[one]


def _both(one: Course | None, other: Course | None) -> Course | None:
    if "steady" in (one, other):
        return other if one == "steady" else one
    return one if one == other and one != "either" else None


def _scaled(one: Course | None, factor: Expr) -> Course | None:
    if isinstance(factor, Const):
        return one if factor.value >= 0 else _back(one)
    return "either" if one in ("up", "down") else one


def first_reaching(e: Expr, var: str, target: Expr, start: Expr, stop: Expr) -> Expr | None:
    """The first value of a variable from start on at which e, which goes up with it, is no less than a target: maybe one
    before start, where it is no less there, and stop where it is less for all. None where that is not told.
    """
    if var not in free_names(e):
        return Op("where", (Op("le", (target, e), BOOL), start, stop), INT64)
    match e:
        case Ref():
            return target
        case Op(name="add", args=(a, b)) if var not in free_names(b):
            return first_reaching(a, var, fold(sub(target, b)), start, stop)
        case Op(name="add", args=(a, b)) if var not in free_names(a):
            return first_reaching(b, var, fold(sub(target, a)), start, stop)
        case Op(name="sub", args=(a, b)) if var not in free_names(b):
            return first_reaching(a, var, fold(add(target, b)), start, stop)
        case Op(name="mul", args=(a, Const(value=k) as by)) | Op(name="mul", args=(Const(value=k) as by, a)) if k > 0:
            least = target if k == 1 else neg(Op("floordiv", (neg(target), by), INT64))
            return first_reaching(a, var, least, start, stop)
        case Op(name="floordiv", args=(a, Const(value=k) as by)) if k > 0:
            return first_reaching(a, var, fold(mul(target, by)), start, stop)
        case Op(name="max" | "min" as name, args=(a, b)) if var not in free_names(a) or var not in free_names(b):
            own, bound = (a, b) if var in free_names(a) else (b, a)
            inner = first_reaching(own, var, target, start, stop)
            if inner is None:
                return None
            reached = Op("le", (target, bound), BOOL)
            return Op("where", (reached, *((start, inner) if name == "max" else (inner, stop))), INT64)
    return None
