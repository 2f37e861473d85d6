"""What a condition says of integers: comparisons that hold where it does, and whether these say all of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.loops.affine import Affine, affine
from weft.loops.ir import Const, Expr, Op
from weft.loops.types import INT64

SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=", "ne": "!="}
OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}  # with the sides exchanged

# (left - right, comparison sign): what isl is told.
Constraint = tuple[Affine, str]


@dataclass(frozen=True)
class Comparisons:
    """Comparisons of integers that all hold where a condition does. exact: the condition holds wherever they do, too."""

    all: tuple[Op, ...]
    exact: bool


def comparisons(condition: Expr, holds: bool) -> Comparisons:
    """What a condition says, or its contrary where `holds` is false."""
    match condition:
        case Const(value=value) if bool(value) == holds:
            return Comparisons((), True)
        case Op(name="not", args=(inner,)):
            return comparisons(inner, not holds)
        case Op(name="and" | "or" as name, args=(a, b)) if (name == "and") == holds:
            first, second = comparisons(a, holds), comparisons(b, holds)
            return Comparisons(first.all + second.all, first.exact and second.exact)
        case Op(name=name, args=(a, _)) if name in SIGNS and a.type == INT64:
            return Comparisons((condition if holds else replace(condition, name=OPPOSITE[name]),), True)
    return Comparisons((), False)


def constraints(condition: Expr, holds: bool) -> tuple[Constraint, ...]:
    """The affine ones among the comparisons of a condition: a superset of where it holds."""
    sides = ((affine(c.args[0]), affine(c.args[1]), SIGNS[c.name]) for c in comparisons(condition, holds).all)
    return tuple((left - right, sign) for left, right, sign in sides if left is not None and right is not None)
