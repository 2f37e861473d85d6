"""Adjoints of values, on their way back: what was handed to a value, and where anything was."""

from __future__ import annotations

from dataclasses import dataclass

from weft.loops.ir import Expr, Op
from weft.loops.simplify import add, number, select
from weft.loops.types import BOOL, ScalarType


@dataclass(frozen=True)
class Seed:
    """The adjoint of a value.

    when: where something was handed to it at all; always, if None. In PyTorch nothing passes through what no result was made
    of: no 0 times infinity, as in `1 / sqrt(x)` on the branch that was not taken. The value is 0 elsewhere, unless it is
    `spoilt`: an operator may have made NaN of the 0. across: `when` speaks of iterations of a loop, too many words for
    products, which make NaN of infinite operands alone (those that the function's own constants make infinite are known).
    """

    value: Expr
    when: Expr | None = None
    across: bool = False
    spoilt: bool = False

    @property
    def settled(self) -> Expr:
        """The value, 0 where nothing was handed to it."""
        return select(self.when, self.value, number(0, self.type)) if self.when is not None and self.spoilt else self.value

    @property
    def type(self) -> ScalarType:
        return self.value.type

    def __add__(self, other: Seed) -> Seed:
        if self.when == other.when:
            value, spoilt = add(self.value, other.value), self.spoilt or other.spoilt
        else:
            value, spoilt = add(self.settled, other.settled), False
        return Seed(value, either(self.when, other.when), self.across or other.across, spoilt)


Seeds = dict[str, Seed]


def negated(condition: Expr) -> Expr:
    return condition.args[0] if isinstance(condition, Op) and condition.name == "not" else Op("not", (condition,), BOOL)


def either(a: Expr | None, b: Expr | None) -> Expr | None:
    """a or b; None is what always holds."""
    if a is None or b is None or a == negated(b):
        return None
    match a, b:
        case Op(name="and", args=(x, p)), Op(name="and", args=(y, q)) if x == y:
            rest = either(p, q)
            return x if rest is None else Op("and", (x, rest), BOOL)
    return a if a == b else Op("or", (a, b), BOOL)


def both(a: Expr | None, b: Expr) -> Expr:
    """a and b; None is what always holds."""
    return b if a is None or a == b else Op("and", (a, b), BOOL)
