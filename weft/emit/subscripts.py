"""Integer expressions of subscripts and bounds: folded, taken apart as linear functions."""

from __future__ import annotations

from collections.abc import Collection

from weft.loops.faults import may_fail
from weft.loops.ir import Cast, Const, Expr, Op, Ref, free_names, rewrite, substitute
from weft.loops.types import INT64


def constant(value: int) -> Const:
    return Const(value, INT64)


def simplify(expr: Expr) -> Expr:
    """Constants folded, neutral elements dropped, for expressions that stay far from overflow (subscripts, bounds)."""
    return rewrite(expr, _fold)


def _fold(expr: Expr) -> Expr | None:
    if isinstance(expr, Cast) and expr.value.type == expr.type:
        return expr.value
    if not isinstance(expr, Op) or expr.type != INT64:
        return None
    match expr.name, *(_number(a) for a in expr.args):
        case "neg", int(a):
            return constant(-a)
        case "add", int(a), int(b):
            return constant(a + b)
        case "sub", int(a), int(b):
            return constant(a - b)
        case "mul", int(a), int(b):
            return constant(a * b)
        case ("mul", 1, None) | ("add", 0, None):
            return expr.args[1]
        case ("mul", 0, None) | ("mul", None, 0):
            return None if may_fail(expr) else constant(0)
        case "mul", None, 1:
            return expr.args[0]
        case "add", None, int(b):
            return _shifted(expr.args[0], b)
        case "sub", None, int(b):
            return _shifted(expr.args[0], -b)
    return None


def _number(expr: Expr) -> int | None:
    return int(expr.value) if isinstance(expr, Const) else None


def _shifted(expr: Expr, by: int) -> Expr:
    """expr + by, one constant for all that are added."""
    match expr:
        case Op(name="add", args=(inner, Const(value=b))):
            return _shifted(inner, int(b) + by)
        case Op(name="sub", args=(inner, Const(value=b))):
            return _shifted(inner, by - int(b))
    if by == 0:
        return expr
    return Op("add", (expr, constant(by)), INT64) if by > 0 else Op("sub", (expr, constant(-by)), INT64)


def add(a: Expr, b: Expr) -> Expr:
    return simplify(Op("add", (a, b), INT64))


def sub(a: Expr, b: Expr) -> Expr:
    return simplify(Op("sub", (a, b), INT64))


def coefficient(expr: Expr, name: str) -> int | None:
    """The constant factor of `name` in an expression linear in it; 0 where it does not occur; None where not linear."""
    if name not in free_names(expr):
        return 0
    match expr:
        case Ref():
            return 1
        case Op(name="add" | "sub" as operator, args=(a, b)):
            left, right = coefficient(a, name), coefficient(b, name)
            if left is None or right is None:
                return None
            return left + right if operator == "add" else left - right
        case Op(name="neg", args=(a,)):
            inner = coefficient(a, name)
            return None if inner is None else -inner
        case Op(name="mul", args=(a, Const(value=factor))) | Op(name="mul", args=(Const(value=factor), a)):
            inner = coefficient(a, name)
            return None if inner is None else inner * int(factor)
    return None


def at(expr: Expr, name: str, value: Expr) -> Expr:
    """The expression with `value` in place of `name`."""
    return simplify(substitute(expr, {name: value}))


def affine(expr: Expr, names: Collection[str]) -> bool:
    """Whether the expression is a sum of these names, each times a constant."""
    match expr:
        case Const():
            return True
        case Ref(name=name):
            return name in names
        case Op(name="add" | "sub" | "neg", args=args):
            return all(affine(a, names) for a in args)
        case Op(name="mul", args=(a, Const())) | Op(name="mul", args=(Const(), a)):
            return affine(a, names)
    return False
