"""Which loops of a nest are one axis: siblings that run over the same range."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from weft.graph.tile import Axis
from weft.loops.accesses import collect
from weft.loops.affine import affine
from weft.loops.ir import Const, Expr, For, Op, Ref, Segment
from weft.loops.names import Names
from weft.loops.normalize import simplify
from weft.loops.types import INT64

# The dimensions of arrays, (array, number), that the variable of a loop runs along.
Along = frozenset[tuple[str, int]]


def along(loop: For) -> Along:
    return frozenset(
        (a.array, k)
        for a in collect((loop,))
        for k, form in enumerate(a.subscript)
        if form is not None and form.coefficient(loop.var)
    )


@dataclass
class Axes:
    """The axes of a graph in the making. along: the dimensions that their loops run along."""

    names: Names
    axes: list[Axis] = field(default_factory=list)
    along: dict[str, Along] = field(default_factory=dict)

    def take(
        self,
        name: str,
        start: Expr,
        stop: Expr,
        taken: Collection[str],
        dimensions: Along,
        segment: Segment | None = None,
    ) -> str:
        """The axis of a loop inside those that are `taken`: one of the same range, of these the one that runs along the same
        dimensions, or else a new one.
        """
        same = [a for a in self.axes if _same(a.start, start) and _same(a.stop, stop) and a.name not in taken]
        same = [a for a in same if a.segment == segment]
        if same:
            found = max(same, key=lambda a: len(self.along[a.name] & dimensions)).name
        else:
            found = self.names.fresh(name)
            self.axes.append(Axis(found, start, stop, segment))
            self.along[found] = frozenset()
        self.along[found] |= dimensions
        return found

    def __getitem__(self, name: str) -> Axis:
        return next(a for a in self.axes if a.name == name)


def _same(a: Expr, b: Expr) -> bool:
    if a == b:
        return True
    left, right = affine(a), affine(b)
    return left is not None and left == right


def plus(e: Expr, constant: int) -> Expr:
    form = affine(e)
    if form is not None:
        return (form + affine(Const(constant, INT64))).expr()  # type: ignore[operator]
    return simplify(Op("add", (e, Const(constant, INT64)), INT64))


@dataclass(frozen=True)
class Counting:
    """How the variable of a loop follows from its axis. reverse: the loop goes down it."""

    start: Expr
    stop: Expr
    value_at: tuple[Expr, int] | None  # start and step, where the axis counts iterations
    reverse: bool

    def variable(self, axis: str) -> Expr:
        if self.value_at is None:
            return Ref(axis, INT64)
        start, step = self.value_at
        form = affine(start)
        counted: Expr = Op("mul", (Const(abs(step), INT64), Ref(axis, INT64)), INT64)
        if form is not None:
            return (form + affine(Ref(axis, INT64)) * step).expr()  # type: ignore[operator]
        return Op("add" if step > 0 else "sub", (start, counted), INT64)


def counting(start: Expr, stop: Expr, step: int) -> Counting:
    """The axis of `range(start, stop, step)`, counted up by one."""
    if step == 1:
        return Counting(start, stop, None, False)
    if step == -1:
        return Counting(plus(stop, 1), plus(start, 1), None, True)
    ends = (stop, start) if step > 0 else (start, stop)
    span = plus(_difference(*ends), abs(step) - 1)
    count = Op("floordiv", (span, Const(abs(step), INT64)), INT64)
    form = affine(span)
    if form is not None and not form.terms:
        count_: Expr = Const(form.constant // abs(step), INT64)
    else:
        count_ = count
    return Counting(Const(0, INT64), count_, (start, step), False)


def _difference(a: Expr, b: Expr) -> Expr:
    left, right = affine(a), affine(b)
    if left is not None and right is not None:
        return (left - right).expr()
    return Op("sub", (a, b), INT64)
