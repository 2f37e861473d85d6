"""Places: elements of arrays that a nest has stored, and the values that a load of them finds."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from weft.loops.affine import Affine, affine
from weft.loops.ir import Const, Expr, Op, Ref, free_names, substitute
from weft.loops.types import BOOL, INT64


class Making(Protocol):
    """What is asked of the graph in the making."""

    def at(self, e: Expr, mapping: Mapping[str, Expr]) -> Expr:
        """An expression where axes are these expressions."""
        ...

    def bounds(self, axis: str) -> tuple[Expr, Expr]: ...

    def range(self, axis: str) -> tuple[int, int] | None:
        """The bounds of an axis where these are numbers."""
        ...

    def pinned(self, place: Place, axis: str) -> Expr | None:
        """The one point of an axis at which a place is stored to, where its guard tells it."""
        ...

    def decided(self, names: Collection[str], axes: Collection[str]) -> bool:
        """Whether names are of values that depend on these axes."""
        ...


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


@dataclass(frozen=True)
class Meeting:
    """Where a place is the element that is asked for: its own axes in terms of those that ask, and what must hold."""

    at: dict[str, Expr]
    when: tuple[Expr, ...]


def meeting(
    place: Place, index: tuple[Expr, ...], path: tuple[str, ...], within: Collection[str], graph: Making
) -> Meeting | None:
    """How an element is one of a place; None where it never is. Raises Untold.

    path: the loops around what asks. within: the axes whose ranges what asks is in.
    """
    common = sum(1 for _ in itertools.takewhile(lambda p: p[0] == p[1], zip(place.path, path, strict=False)))
    own = set(place.axes[common:])
    at: dict[str, Expr] = {}
    when: list[Expr] = []
    pending = list(zip(place.index, index, strict=True))
    while pending:
        # a subscript by one axis that is not known yet tells it
        k = next((k for k, (i, _) in enumerate(pending) if len(own & free_names(i) - at.keys()) == 1), None)
        if k is None and (told := _by_digits(pending, own - at.keys(), at, graph)) is not None:
            at |= told
            continue
        if k is None:
            break
        i, j = pending.pop(k)
        (axis,) = own & free_names(i) - at.keys()
        form = affine(i)
        if form is None or graph.decided(form.names - {axis}, own):
            raise Untold(f"a subscript that {place.array} is stored at is no affine form")
        rest = substitute((form - Affine(((axis, form.coefficient(axis)),), 0)).expr(), at)
        solved = _solved(form.coefficient(axis), rest, j, when)
        if solved is None:
            return None
        at[axis] = solved
    for axis in own - at.keys():
        only = graph.pinned(place, axis)
        if only is None or own & free_names(only):
            raise Untold(f"several iterations store to one element of {place.array}")
        at[axis] = only
    moved = {a: e for a, e in at.items() if e != Ref(a, INT64)}
    conditions = [_equal(graph.at(i, moved), j) for i, j in pending]
    for axis, solved in at.items():
        start, stop = (graph.at(e, moved) for e in graph.bounds(axis))
        if axis in within and axis not in moved and (start, stop) == graph.bounds(axis):
            continue
        conditions += (compare("le", start, solved), compare("lt", solved, stop))
    when += conditions
    if Const(False, BOOL) in when:
        return None
    return Meeting(moved, tuple(c for c in when if c != Const(True, BOOL)))


def _by_digits(
    pending: list[tuple[Expr, Expr]], own: Collection[str], at: Mapping[str, Expr], graph: Making
) -> dict[str, Expr] | None:
    """What a subscript by several axes tells of the one that counts the most: where all that is left of it is from 0 on and
    below its coefficient, as of what asks, it is the quotient of both (`part * 64 + lane`).
    """
    for i, j in pending:
        form, wanted = affine(substitute(i, dict(at))), affine(j)
        axes = [(c, n) for n, c in form.terms if n in own] if form is not None else []
        if form is None or wanted is None or len(axes) < 2:
            continue
        size, axis = max(axes)
        rest = form - Affine(((axis, size),), 0)
        whole = Affine(tuple((n, c) for n, c in wanted.terms if c % size == 0), 0)
        if _below(rest, size, graph) and _below(wanted - whole, size, graph):
            return {axis: Affine(tuple((n, c // size) for n, c in whole.terms), 0).expr()}
    return None


def _below(form: Affine, size: int, graph: Making) -> bool:
    """Whether an affine form of axes is from 0 on and below a number."""
    largest = form.constant
    for axis, coefficient in form.terms:
        ends = graph.range(axis)
        if ends is None or coefficient < 0 or ends[0] < 0:
            return False
        largest += coefficient * (ends[1] - 1)
    return form.constant >= 0 and largest < size


def _solved(coefficient: int, rest: Expr, wanted: Expr, when: list[Expr]) -> Expr | None:
    """x where coefficient * x + rest == wanted; None where there is none. Conditions for there to be one go to `when`."""
    form, other = affine(wanted), affine(rest)
    apart = wanted
    if form is not None and other is not None:
        apart = ((form - other) * (-1 if coefficient < 0 else 1)).expr()
    else:
        if other != Affine((), 0):
            apart = Op("sub", (apart, rest), INT64)
        if coefficient < 0:
            apart = Op("neg", (apart,), INT64)
    size = abs(coefficient)
    if size == 1:
        return apart
    left = _remainder(apart, size)
    if left is None:
        when.append(Op("eq", (Op("mod", (apart, Const(size, INT64)), INT64), Const(0, INT64)), BOOL))
    elif left:
        return None
    form = affine(apart)
    if left == 0 and form is not None:
        return Affine(tuple((n, c // size) for n, c in form.terms), form.constant // size).expr()
    return Op("floordiv", (apart, Const(size, INT64)), INT64)


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


def _remainder(e: Expr, divisor: int) -> int | None:
    form = affine(e)
    if form is None or any(c % divisor for _, c in form.terms):
        return None
    return form.constant % divisor


def all_of(conditions: Collection[Expr]) -> Expr | None:
    total: Expr | None = None
    for c in conditions:
        total = c if total is None else Op("and", (total, c), BOOL)
    return total
