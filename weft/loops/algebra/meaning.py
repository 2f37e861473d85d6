"""What an element of an algebra does to a state, as expressions."""

from __future__ import annotations

from collections.abc import Sequence

from weft.loops.algebra.linear import both
from weft.loops.algebra.table import AFFINE, ALGEBRAS, CLAMP, EXTREMA, FIRST, LINEAR, SELECT, segmented
from weft.loops.ir import Const, Expr, Op
from weft.loops.types import BOOL

_WINS = {"argmax": "gt", "argmin": "lt", "argmax_last": "ge", "argmin_last": "le"}


def arity(algebra: str, states: int) -> int:
    """How many parts an element has that changes so many values together."""
    inner = segmented(algebra)
    if inner is not None:
        return 2 + arity(inner, states)
    if algebra in ALGEBRAS:
        return 1
    if algebra in EXTREMA:
        return 1 + states
    return {AFFINE: 2, SELECT: 2, CLAMP: 3, LINEAR: 2 * states * states + states}[algebra]


def changed(algebra: str, states: Sequence[Expr], parts: Sequence[Expr]) -> tuple[Expr, ...]:
    """The state after an element, whose parts are in the order of `weft.loops.algebra.table`."""
    h, n = states[0], len(states)
    inner = segmented(algebra)
    if inner is not None:
        return (_where(parts[0], parts[1], changed(inner, states, parts[2:])[0]),)
    if algebra in ALGEBRAS:
        return (Op(ALGEBRAS[algebra].join, (h, parts[0]), h.type),)
    if algebra == AFFINE:
        return (_add(_mul(parts[0], h), parts[1]),)
    if algebra == SELECT:
        return (_where(parts[0], parts[1], h),)
    if algebra == CLAMP:
        return (Op("min", (Op("max", (_add(h, parts[0]), parts[1]), h.type), parts[2]), h.type),)
    if algebra in EXTREMA:
        value, valid, *others = parts
        if algebra == FIRST:
            wins = both(both(valid, h), Op("not", (value,), BOOL))
        else:
            wins = both(valid, Op(_WINS[algebra], (value, h), BOOL))
        return tuple(_where(wins, new, old) for new, old in zip((value, *others), states, strict=True))
    assert algebra == LINEAR
    coefficients, present, addends = parts[: n * n], parts[n * n : 2 * n * n], parts[2 * n * n :]
    out = []
    for i in range(n):
        total = addends[i]
        for j, state in enumerate(states):
            total = _where(present[i * n + j], _add(total, _mul(coefficients[i * n + j], state)), total)
        out.append(total)
    return tuple(out)


def _add(a: Expr, b: Expr) -> Expr:
    return Op("add", (a, b), a.type)


def _mul(a: Expr, b: Expr) -> Expr:
    return Op("mul", (a, b), a.type)


def _where(condition: Expr, then: Expr, orelse: Expr) -> Expr:
    if isinstance(condition, Const):
        return then if condition.value else orelse
    return Op("where", (condition, then, orelse), then.type)
