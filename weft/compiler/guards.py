"""Conditions of loops' variables, evaluated before anything runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from weft.loops.affine import affine, evaluate
from weft.loops.intervals import Ranges
from weft.loops.ir import Const, Expr, Op, free_names, rewrite, walk_expr
from weft.loops.types import INT64


@dataclass(frozen=True)
class Guard:
    """Whether something runs in an iteration of loops. turns: (variable, its first value, after how many values it is the same
    again) of those that decide it; taken: 1 or 0 for each of their values, the last variable's the fastest.
    """

    turns: tuple[tuple[str, int, int], ...]
    taken: bytes
    condition: Expr

    def holds(self, values: Mapping[str, int]) -> bool:
        place = 0
        for var, first, period in self.turns:
            place = place * period + (values[var] - first) % period
        return bool(self.taken[place])


_MOST_GUARDED = 1 << 16  # values of variables for which a condition is evaluated before anything runs


def guard_of(condition: Expr, names: Mapping[str, int], ranges: Ranges) -> Guard:
    """A condition, for all the iterations in which it is asked for. Raises KeyError where it is evaluated for too many."""
    turns = []
    for var in sorted(free_names(condition) & ranges.keys()):
        first, last = ranges[var]
        count = last - first + 1
        turns.append((var, first, min(count, _period(condition, var) or count)))
    if math.prod(period for *_, period in turns) > _MOST_GUARDED:
        raise KeyError(condition)
    variables = [var for var, *_ in turns]
    values = itertools.product(*(range(first, first + period) for _, first, period in turns))
    taken = bytes(bool(evaluate(condition, {**names, **dict(zip(variables, v, strict=True))})) for v in values)
    return Guard(tuple(turns), taken, condition)


def _period(condition: Expr, var: str) -> int:
    """After how many steps of a variable a condition is the same again, by its remainders; 0 where they do not tell."""
    divisors = {
        e: int(e.args[1].value) for e in walk_expr(condition)
        if isinstance(e, Op) and e.name == "mod" and isinstance(e.args[1], Const) and affine(e.args[0]) is not None
    }  # fmt: skip
    rest = rewrite(condition, lambda e: Const(0, INT64) if e in divisors else None)
    return 0 if var in free_names(rest) else math.lcm(*divisors.values())
