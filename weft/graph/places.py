"""Places: elements of arrays that a nest has stored, and the values that a load of them finds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from weft.loops.affine import Affine, affine
from weft.loops.ir import Const, Expr, Op, Ref, free_names, substitute
from weft.loops.normalize import simplify
from weft.loops.types import BOOL, INT64


class Untold(Exception):
    """It cannot be told which points of a store touch an element."""


@dataclass(frozen=True)
class Place:
    """What a store left: `array[index]` is `value` wherever all of the guard hold.

    path: the loops around it, by their own variables, outermost first. axes: the axis of each, and after them those that the
    place also runs over. index, value and guard are over these axes.
    """

    array: str
    index: tuple[Expr, ...]
    value: Expr
    guard: tuple[Expr, ...]
    path: tuple[str, ...]
    axes: tuple[str, ...]
    number: int = 0


@dataclass(frozen=True)
class Meeting:
    """Where a place is the element that is asked for: its own axes in terms of those that ask, and what must hold."""

    at: dict[str, Expr]
    when: tuple[Expr, ...]


def meeting(
    place: Place,
    index: tuple[Expr, ...],
    path: tuple[str, ...],
    bounds: Callable[[str], tuple[Expr, Expr]],
    within: Collection[str],
) -> Meeting | None:
    """How an element is one of a place; None where it never is. Raises Untold.

    path: the loops around what asks. bounds: of axes. within: the axes whose ranges what asks is in.
    """
    common = 0
    for a, b in zip(place.path, path, strict=False):
        if a != b:
            break
        common += 1
    own = list(dict.fromkeys(a for a in place.axes[common:]))
    renamed: dict[str, Expr] = {a: Ref(f"{a}?", INT64) for a in own}
    unknown = {f"{a}?" for a in own}
    at: dict[str, Expr] = {}
    when: list[Expr] = []
    pending = [(substitute(i, renamed), j) for i, j in zip(place.index, index, strict=True)]
    while pending:
        k = next((k for k, (i, _) in enumerate(pending) if len(free_names(i) & unknown) <= 1), None)
        if k is None:
            raise Untold(f"several loops decide a subscript of {place.array}")
        i, j = pending.pop(k)
        names = free_names(i) & unknown
        if not names:
            condition = _equal(i, j)
            if condition == Const(False, BOOL):
                return None
            if condition != Const(True, BOOL):
                when.append(condition)
            continue
        (name,) = names
        form = affine(i)
        if form is None:
            raise Untold(f"a subscript of {place.array} that it stores to is no affine form")
        coefficient = form.coefficient(name)
        rest = form - Affine(((name, 1),), 0) * coefficient
        wanted = _difference(j, rest)
        if abs(coefficient) == 1:
            solved = wanted if coefficient == 1 else _difference(Const(0, INT64), affine(wanted) or Affine((), 0))
            if coefficient == -1 and affine(wanted) is None:
                solved = Op("neg", (wanted,), INT64)
        else:
            divisor = Const(abs(coefficient), INT64)
            if coefficient < 0:
                wanted = Op("neg", (wanted,), INT64)
            remainder = simplify(Op("mod", (wanted, divisor), INT64))
            known = _constant_remainder(wanted, abs(coefficient))
            if known is not None and known != 0:
                return None
            if known is None:
                when.append(Op("eq", (remainder, Const(0, INT64)), BOOL))
            solved = simplify(Op("floordiv", (wanted, divisor), INT64))
        at[name] = solved
        unknown.discard(name)
        pending = [(substitute(x, {name: solved}), y) for x, y in pending]
    if unknown:
        raise Untold(f"several iterations store to one element of {place.array}")
    mapping = {name[:-1]: solved for name, solved in at.items()}
    for axis, solved in mapping.items():
        start, stop = (substitute(e, mapping) for e in bounds(axis))
        if solved == Ref(axis, INT64) and axis in within and (start, stop) == bounds(axis):
            continue
        for condition in (compare("le", start, solved), compare("lt", solved, stop)):
            if condition == Const(False, BOOL):
                return None
            if condition != Const(True, BOOL):
                when.append(condition)
    return Meeting({a: e for a, e in mapping.items() if e != Ref(a, INT64)}, tuple(when))


def _difference(a: Expr, b: Affine) -> Expr:
    form = affine(a)
    if form is not None:
        return (form - b).expr()
    return a if not b.terms and not b.constant else Op("sub", (a, b.expr()), INT64)


def _equal(a: Expr, b: Expr) -> Expr:
    return Const(True, BOOL) if a == b else compare("eq", a, b)


def compare(name: str, a: Expr, b: Expr) -> Expr:
    """A comparison of integers, decided where they differ by a constant."""
    left, right = affine(a), affine(b)
    if left is not None and right is not None:
        apart = left - right
        if not apart.terms:
            holds = {"eq": apart.constant == 0, "le": apart.constant <= 0, "lt": apart.constant < 0}[name]
            return Const(holds, BOOL)
        a, b = left.expr(), right.expr()
    return Op(name, (a, b), BOOL)


def _constant_remainder(e: Expr, divisor: int) -> int | None:
    form = affine(e)
    if form is None or any(c % divisor for _, c in form.terms):
        return None
    return form.constant % divisor


def all_of(conditions: Collection[Expr]) -> Expr | None:
    total: Expr | None = None
    for c in conditions:
        total = c if total is None else Op("and", (total, c), BOOL)
    return total


def names_in(mapping: Mapping[str, Expr]) -> frozenset[str]:
    return frozenset(n for e in mapping.values() for n in free_names(e))
