"""What is known of the signs of values."""

from __future__ import annotations

from weft.language.builder import Builder
from weft.language.spans import span
from weft.loops.ir import Cast, Const, Expr, Op, Ref
from weft.loops.types import BOOL, INT64


def in_domain(b: Builder, name: str, x: Expr) -> bool:
    if name in ("sqrt", "log1p"):
        return is_at_least_zero(b, x)
    return name in ("log", "log2", "log10") and is_positive(b, x)


def meaning(b: Builder, expr: Expr) -> Expr:
    """What a name stands for, where it is one thing; exact conversions between floats, and checks, left out."""
    for _ in range(20):
        match expr:
            case Ref(name=name) if len(b.choices.get(name, ())) == 1 and name not in b.carried:
                expr = b.choices[name][0]
            case Cast(value=value) if value.type.category == "float" and value.type.size <= expr.type.size:
                if expr.type.category != "float":
                    return expr
                expr = value
            case Op(name="check", args=(value, _)):
                expr = value
            case _:
                break
    return expr


def is_at_least_zero(b: Builder, expr: Expr) -> bool:
    """Whether a number is 0 or more, or not a number."""
    expr = meaning(b, expr)
    if expr.type.category == "int":
        found = span(b, expr)
        return found is not None and found[0] >= 0
    match expr:
        case Const(value=value):
            return value >= 0
        case Cast(value=value) if value.type.category != "float":
            return value.type == BOOL or is_at_least_zero(b, value)
        case Op(name="exp" | "exp2" | "abs" | "sqrt" | "cosh" | "hypot" | "sigmoid"):
            return True
        case Op(name="mul", args=(x, y)) if meaning(b, x) == meaning(b, y):
            return True
        case Op(name="add" | "mul" | "min" | "minimum", args=args):
            return all(is_at_least_zero(b, a) for a in args)
        case Op(name="maximum", args=args):
            return any(is_at_least_zero(b, a) for a in args)
        case Op(name="where", args=(_, x, y)):
            return is_at_least_zero(b, x) and is_at_least_zero(b, y)
    return False


def is_positive(b: Builder, expr: Expr) -> bool:
    """Whether a float is more than 0, or not a number."""
    match meaning(b, expr):
        case Const(value=value):
            return value > 0
        case Cast(value=value) if value.type.category == "int":
            found = span(b, value)
            return found is not None and found[0] > 0
        case Op(name="cosh"):
            return True
        case Op(name="add", args=args):
            return all(is_at_least_zero(b, a) for a in args) and any(is_positive(b, a) for a in args)
        case Op(name="sqrt", args=(x,)):
            return is_positive(b, x)
    return False


def is_at_most_zero(b: Builder, expr: Expr) -> bool:
    """Whether a number is 0 or less, or not a number: less the greatest of several, itself among them."""
    match meaning(b, expr):
        case Const(value=value):
            return value <= 0
        case Op(name="neg", args=(x,)):
            return is_at_least_zero(b, x)
        case Op(name="sub", args=(x, y)):
            x, y = meaning(b, x), meaning(b, y)
            return isinstance(y, Op) and y.name in ("max", "maximum") and any(meaning(b, a) == x for a in y.args)
    return False


def is_not_zero(b: Builder, expr: Expr) -> bool:
    if isinstance(expr, Const):
        return expr.value != 0
    if isinstance(expr, Cast) and expr.value.type.category == "int":
        return is_not_zero(b, expr.value)
    if expr.type.category != "int":
        return is_positive(b, expr)
    found = span(b, expr)
    if found is not None and not found[0] <= 0 <= found[1]:
        return True
    # a loop that runs has a bound that is not zero, and so is each factor of it
    return any(
        loop.start == Const(0, INT64) and loop.step > 0 and b.canonical(expr) in _factors(b.canonical(loop.stop))
        for loop in b.loops
    )


def _factors(expr: Expr) -> list[Expr]:
    match expr:
        case Op(name="mul", args=(a, c)):
            return [expr, *_factors(a), *_factors(c)]
    return [expr]
