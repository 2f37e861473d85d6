"""The element that all iterations of a loop make together, part by part, each as a fold that starts somewhere known.

An element is told by what it does to states: the addend of an affine map is what becomes of 0, its coefficient the product of
all coefficients. The names of parts are those by which `weft.loops.algebra.recurrences` asks for them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from weft.loops.algebra.table import AFFINE, ALGEBRAS, CLAMP, EXTREMA, FIRST, LINEAR, SELECT, segmented
from weft.loops.ir import Const, Expr
from weft.loops.simplify import number, zero
from weft.loops.types import BOOL


@dataclass(frozen=True)
class Composed:
    """A fold by an algebra from some start, and which of its results is the part."""

    algebra: str
    parts: tuple[Expr, ...]
    inits: tuple[Expr, ...]
    result: int = 0


def composed(algebra: str, parts: tuple[Expr, ...], part: str) -> Composed | None:
    """A part of the element that a loop makes of elements with these parts; None where no fold gives it."""
    inner = segmented(algebra)
    if inner is not None:
        if part == "starts":
            return Composed("or", parts[:1], (Const(False, BOOL),))
        if part == "state":
            return Composed(algebra, parts, (zero(parts[1].type),))
        return composed(inner, parts[2:], part)  # asked for where no iteration starts
    if algebra in ALGEBRAS:
        return Composed(algebra, parts, (ALGEBRAS[algebra].identity(parts[0].type),))
    if algebra == AFFINE:
        if part == "coefficient":
            return Composed("product", parts[:1], (number(1, parts[0].type),))
        return Composed(AFFINE, parts, (number(0, parts[1].type),))
    if algebra == SELECT:
        if part == "given":
            return Composed("or", parts[:1], (Const(False, BOOL),))
        return Composed(SELECT, parts, (zero(parts[1].type),))
    if algebra == CLAMP:
        if part == "shift":
            return Composed("sum", parts[:1], (number(0, parts[0].type),))
        extreme = ALGEBRAS["max" if part == "low" else "min"]
        return Composed(CLAMP, parts, (extreme.identity(parts[0].type),))
    if algebra in EXTREMA:
        if algebra.endswith("_last"):
            return None  # the last of equals: what is no element at all would win against the least of all
        rest = tuple(zero(e.type) for e in parts[2:])
        if algebra == FIRST:
            return Composed(FIRST, parts, (Const(True, BOOL), *rest), 0 if part == "stays" else int(part) + 1)
        least = ALGEBRAS["max" if algebra == "argmax" else "min"].identity(parts[0].type)
        return Composed(algebra, parts, (least, *rest), 0 if part == "value" else int(part) + 1)
    assert algebra == LINEAR
    n = (math.isqrt(1 + 8 * len(parts)) - 1) // 4
    type_ = parts[0].type
    zeros = tuple(number(0, type_) for _ in range(n))
    if part.startswith("addend"):
        return Composed(LINEAR, parts, zeros, int(part.rpartition("_")[2]))
    found = re.fullmatch(r"(\d+)_(\d+)", part)
    assert found is not None
    i, j = int(found[1]), int(found[2])
    unit = tuple(number(int(k == j), type_) for k in range(n))
    return Composed(LINEAR, (*parts[: 2 * n * n], *zeros), unit, i)
