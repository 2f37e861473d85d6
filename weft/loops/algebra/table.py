"""The algebra table: what iterations may do to the values that a loop carries and still be combined in any grouping.

An iteration's effect on a state is an element of an algebra. Elements combine associatively, so any range of iterations
is one element, and applying it to the state before the range gives the state after it. `Update.parts` of a loop are the
parts of one iteration's element, in the order given here:

  sum, product, max, ...  (value,)                  h -> h (join) value
  affine                  (coefficient, addend)     h -> coefficient * h + addend
  select                  (given, value)            h -> value if given else h
  segmented A             (starts, *parts of A)     as A; where it starts, the state before is not looked at and the
                                                    last part is the state itself
  clamp                   (shift, low, high)        h -> min(max(h + shift, low), high), low <= high; of integers without
                                                    shifts, whose sum may wrap where no state does
  argmax, argmin          (value, valid, *others)   (m, *k) -> (value, *others) if valid and value > m (< m) else (m, *k);
                                                    the first of equals wins, in `argmax_last`, `argmin_last` the last
  first                   (stays, valid, *others)   (up, *k) -> (False, *others) if valid and up and not stays else (up, *k):
                                                    an argmin of a flag that falls once, with what is taken as it does
  linear                  (coefficients, present, addends), of n values: h[i] -> sum of coefficients[i, j] * h[j] over the
                          j with present[i, j], + addends[i]; coefficients and present are n * n, row after row

Absent coefficients are no zeros: what is not looked at may be infinite.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.loops.ir import Const
from weft.loops.types import ScalarType


@dataclass(frozen=True)
class Algebra:
    """An associative operation: its operator, its identity by category, the words for it.

    combine: the operator that merges the totals of two parts. join: the operator of the update itself, where it differs
    (Python's max keeps a NaN it starts with but drops those it meets: parts are merged by fmax, the start joins last).
    """

    name: str
    combine: str
    join: str
    words: str
    identity_float: float
    identity_int: int | None = None  # None: the type's own extreme (low for max, high for min)
    bool_identity: bool | None = None

    def identity(self, type_: ScalarType) -> Const:
        if type_.category == "bool":
            assert self.bool_identity is not None
            return Const(self.bool_identity, type_)
        if type_.category == "float":
            return Const(self.identity_float, type_)
        if self.identity_int is not None:
            return Const(self.identity_int, type_)
        bits = 8 * type_.size - (1 if type_.signed else 0)
        low, high = (-(1 << bits) if type_.signed else 0), (1 << bits) - 1
        return Const(low if self.identity_float < 0 else high, type_)


_INF = float("inf")
_TABLE = (
    Algebra("sum", "add", "add", "a sum", 0.0, 0),
    Algebra("product", "mul", "mul", "a product", 1.0, 1),
    Algebra("max", "fmax", "max", "a maximum", -_INF),
    Algebra("min", "fmin", "min", "a minimum", _INF),
    Algebra("maximum", "maximum", "maximum", "a maximum (NaN wins)", -_INF),
    Algebra("minimum", "minimum", "minimum", "a minimum (NaN wins)", _INF),
    Algebra("fmax", "fmax", "fmax", "a maximum (NaN dropped)", float("nan")),
    Algebra("fmin", "fmin", "fmin", "a minimum (NaN dropped)", float("nan")),
    Algebra("and", "and", "and", "a conjunction", 1.0, 1, True),
    Algebra("or", "or", "or", "a disjunction", 0.0, 0, False),
    # bits of integers: the identity of `and` is all ones
    Algebra("bitand", "bitand", "bitand", "a bitwise conjunction", 0.0, -1, True),
    Algebra("bitor", "bitor", "bitor", "a bitwise disjunction", 0.0, 0, False),
    Algebra("bitxor", "bitxor", "bitxor", "a bitwise exclusive disjunction", 0.0, 0, False),
)
# The algebras of one operator; elements and states are of the same type.
ALGEBRAS: dict[str, Algebra] = {a.name: a for a in _TABLE}

AFFINE, LINEAR, SELECT, CLAMP, FIRST, SEGMENTED = "affine", "linear", "select", "clamp", "first", "segmented "
EXTREMA = ("argmax", "argmin", "argmax_last", "argmin_last", FIRST)
WIDEST = 4  # values that one linear map transforms


def segmented(algebra: str) -> str | None:
    """The algebra whose segmented form this is."""
    return algebra.removeprefix(SEGMENTED) if algebra.startswith(SEGMENTED) else None


def in_order(algebra: str) -> bool:
    """Whether elements combine in the order of their iterations only: another order gives another result."""
    return algebra not in ALGEBRAS


def overflows(algebra: str, type_: ScalarType) -> bool:
    """Whether elements that are composed may be infinite where no state is: a product of coefficients, which a state of 0
    would never have met. (So may a sum, where its states come near the largest number; that much is reassociation.)
    """
    return type_.category == "float" and (segmented(algebra) or algebra) in (AFFINE, LINEAR, "product")


def words(algebra: str, values: int = 1) -> str:
    """What a loop carries a state of so many values by."""
    inner = segmented(algebra)
    if inner is not None:
        return f"{words(inner)} that starts anew"
    if algebra in ALGEBRAS:
        return ALGEBRAS[algebra].words
    return {
        AFFINE: "affine composition",
        LINEAR: f"affine composition of {values} values together",
        SELECT: "the last value given",
        CLAMP: "a sum between bounds",
        FIRST: "a search (the first match)",
        "argmax": "a maximum with where it is (the first)",
        "argmin": "a minimum with where it is (the first)",
        "argmax_last": "a maximum with where it is (the last)",
        "argmin_last": "a minimum with where it is (the last)",
    }[algebra]
