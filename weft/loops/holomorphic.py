"""The derivatives of functions of complex numbers, each an operator for either part of what it gives.

Such a function has one derivative f' at a point, a complex number, from which the partial derivatives of its parts u and v by
those of its operand x and y follow (Cauchy and Riemann): u has Re f' by x and -Im f' by y, v has Im f' and Re f'.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.loops.ir import Expr, Op
from weft.loops.simplify import add, mul, neg, number, select, sub
from weft.loops.types import BOOL

Pair = tuple[Expr, Expr]
Contributions = tuple[Expr | None, ...]
# The derivatives by each operand, of the operands and the result.
Derivative = Callable[[tuple[Pair, ...], Pair], tuple[Pair, ...]]


def _function(name: str, *operands: Pair) -> Pair:
    args = tuple(part for z in operands for part in z)
    type_ = args[0].type
    return Op(f"complex_{name}_re", args, type_), Op(f"complex_{name}_im", args, type_)


def _real(value: float, like: Pair) -> Pair:
    type_ = like[0].type
    return number(value, type_), number(0, type_)


def _one(z: Pair) -> Pair:
    return _real(1, z)


def _sum(a: Pair, b: Pair) -> Pair:
    return add(a[0], b[0]), add(a[1], b[1])


def _difference(a: Pair, b: Pair) -> Pair:
    return sub(a[0], b[0]), sub(a[1], b[1])


def _negative(a: Pair) -> Pair:
    return neg(a[0]), neg(a[1])


def _product(a: Pair, b: Pair) -> Pair:
    return sub(mul(a[0], b[0]), mul(a[1], b[1])), add(mul(a[0], b[1]), mul(a[1], b[0]))


def _inverse(a: Pair) -> Pair:
    return _function("divide", _one(a), a)


def _turned(a: Pair) -> Pair:
    """i a."""
    return neg(a[1]), a[0]


def _zero_where(condition: Expr, a: Pair) -> Pair:
    zero = number(0, a[0].type)
    return select(condition, zero, a[0]), select(condition, zero, a[1])


def _roots(one: Pair, other: Pair) -> Pair:
    """1 / (sqrt(one) sqrt(other))."""
    return _inverse(_product(_function("sqrt", one), _function("sqrt", other)))


def _is_zero(z: Pair) -> Expr:
    zero = number(0, z[0].type)
    return Op("and", (Op("eq", (z[0], zero), BOOL), Op("eq", (z[1], zero), BOOL)), BOOL)


def _power(operands: tuple[Pair, ...], r: Pair) -> tuple[Pair, ...]:
    z, w = operands
    lowered = _function("power", z, _difference(w, _one(w)))
    at_least_zero = Op("ge", (w[0], number(0, w[0].type)), BOOL)
    nought = Op("and", (_is_zero(z), at_least_zero), BOOL)
    return _zero_where(_is_zero(w), _product(w, lowered)), _zero_where(nought, _product(r, _function("log", z)))


_DERIVATIVES: dict[str, Derivative] = {
    "exp": lambda z, r: (r,),
    "expm1": lambda z, r: (_sum(r, _one(r)),),
    "log": lambda z, r: (_inverse(z[0]),),
    "log1p": lambda z, r: (_inverse(_sum(z[0], _one(z[0]))),),
    "sqrt": lambda z, r: (_function("divide", _real(0.5, r), r),),
    "sinh": lambda z, r: (_function("cosh", z[0]),),
    "cosh": lambda z, r: (_function("sinh", z[0]),),
    "tanh": lambda z, r: (_product(_difference(_one(r), r), _sum(_one(r), r)),),
    "asinh": lambda z, r: (_roots(_difference(_one(z[0]), _turned(z[0])), _sum(_one(z[0]), _turned(z[0]))),),
    "acos": lambda z, r: (_negative(_roots(_difference(_one(z[0]), z[0]), _sum(_one(z[0]), z[0]))),),
    "acosh": lambda z, r: (_roots(_difference(z[0], _one(z[0])), _sum(z[0], _one(z[0]))),),
    "atanh": lambda z, r: (_inverse(_product(_difference(_one(z[0]), z[0]), _sum(_one(z[0]), z[0]))),),
    "divide": lambda z, r: (_inverse(z[1]), _negative(_function("divide", r, z[1]))),
    "power": _power,
}


def _rule(name: str, imaginary: bool) -> Callable[[Expr, tuple[Expr, ...], Expr], Contributions]:
    def rule(g: Expr, args: tuple[Expr, ...], r: Expr) -> Contributions:
        operands = tuple((args[k], args[k + 1]) for k in range(0, len(args), 2))
        result = _function(name, *operands)
        result = (result[0], r) if imaginary else (r, result[1])
        handed: list[Expr] = []
        for re, im in _DERIVATIVES[name](operands, result):
            handed += (mul(g, im), mul(g, re)) if imaginary else (mul(g, re), neg(mul(g, im)))
        return tuple(handed)

    return rule


RULES = {f"complex_{name}_{part}": _rule(name, part == "im") for name in _DERIVATIVES for part in ("re", "im")}
