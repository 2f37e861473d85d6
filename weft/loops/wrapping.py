"""Subscripts below 0 count from the end, as Python's do.

Sizes decide whether `x[i - 1]` is ever below 0. For calls in which it is, the program is written out with both elements that
it may mean: `x[i - 1 + n] if i - 1 < 0 else x[i - 1]`. The analysis then sees two accesses as plain as any other.
What the kernel itself checks, as it is no sum or in a range that data decide, is one access still, whose subscript chooses:
`x[k + n if k < 0 else k]`, which is what the language makes of subscripts that tensors hold.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from weft.loops.accesses import Access, collect, counted_from_end, unknown_ranges
from weft.loops.affine import Affine, affine
from weft.loops.ir import ZERO, Expr, Function, If, Load, Op, Stmt, Store, map_statement, rewrite
from weft.loops.normalize import fold_index_arithmetic
from weft.loops.polyhedra import Polyhedra
from weft.loops.schedule import Wrapped
from weft.loops.types import BOOL, INT64

A = TypeVar("A", Load, Store)


def wrapped(function: Function, axes: Wrapped) -> Function:
    """The function with every subscript of these axes written out as what it means below 0, unless it never is."""
    if not axes:
        return function
    function = fold_index_arithmetic(function)
    polyhedra = Polyhedra(function)
    found: set[tuple[str, int, Expr]] = set()
    chosen: set[tuple[str, int, Expr]] = set()
    fixed = {s.name for s in function.sizes} | {s.name for s in function.scalars}
    for access in dict.fromkeys(collect(function.body)):
        for array, axis in axes & function.direct:
            if array != access.array or from_end(function, access, axis):
                continue
            form = access.subscript[axis]
            told = fixed | {f.var for f in access.loops} - unknown_ranges(function, access)
            if form is None or not form.names <= told:
                if kernel_wraps(function, access, axis) and polyhedra.below_when(access, axis) is not None:
                    chosen.add((array, axis, access.index[axis]))
            elif polyhedra.below(access, axis):
                found.add((array, axis, access.index[axis]))
    return replace(function, body=_Writer(function, frozenset(found), frozenset(chosen)).block(function.body))


def kernel_wraps(function: Function, access: Access, axis: int) -> bool:
    """Whether a subscript that the kernel checks is one of the Python's own, which does not count from the end yet."""
    if (access.array, axis) not in function.direct or counted_from_end(access.index[axis])[1]:
        return False
    return not from_end(function, access, axis)


def from_end(function: Function, access: Access, axis: int) -> bool:
    """Whether a subscript is one that the Python counts from the end already."""
    form, extent = access.subscript[axis], affine(function.array(access.array).shape[axis])
    if form is None or extent is None:
        return False
    counts = (n for array, of, n in function.ends if (array, of) == (access.array, axis))
    return any(form == extent + Affine((), -n) for n in counts)


class _Writer:
    """found: the subscripts of which both meanings are written out. chosen: those that choose one as the kernel runs."""

    def __init__(
        self, function: Function, found: frozenset[tuple[str, int, Expr]], chosen: frozenset[tuple[str, int, Expr]]
    ) -> None:
        self.function, self.found, self.chosen = function, found, chosen

    def from_end(self, array: str, index: tuple[Expr, ...], axis: int) -> tuple[Expr, ...]:
        below = Op("add", (index[axis], self.function.array(array).shape[axis]), INT64)
        form = affine(below)
        return (*index[:axis], below if form is None else form.expr(), *index[axis + 1 :])

    def load(self, load: Load, done: tuple[int, ...] = ()) -> Expr | None:
        for axis, e in enumerate(load.index):
            if axis not in done and (load.array, axis, e) in self.found:
                parts = tuple(
                    self.load(replace(load, index=index), (*done, axis)) or replace(load, index=index)
                    for index in (self.from_end(load.array, load.index, axis), load.index)
                )
                return Op("where", (Op("lt", (e, ZERO), BOOL), *parts), load.type)
        return None

    def expr(self, expr: Expr) -> Expr:
        def rule(e: Expr) -> Expr | None:
            return (self.load(chosen := self.choosing(e)) or chosen) if isinstance(e, Load) else None

        return rewrite(expr, rule)

    def choosing(self, access: A) -> A:
        """The access with those of its subscripts that choose as the kernel runs."""
        index = tuple(
            Op("where", (Op("lt", (e, ZERO), BOOL), Op("add", (e, size), INT64), e), INT64)
            if (access.array, axis, e) in self.chosen
            else e
            for axis, (e, size) in enumerate(zip(access.index, self.function.array(access.array).shape, strict=True))
        )
        return access if index == access.index else replace(access, index=index)

    def block(self, statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(self.statement(s) for s in statements)

    def statement(self, stmt: Stmt) -> Stmt:
        stmt = map_statement(stmt, self.expr, self.block)
        return self.store(self.choosing(stmt)) if isinstance(stmt, Store) else stmt

    def store(self, stmt: Store, done: tuple[int, ...] = ()) -> Stmt:
        """A store into what a subscript means, in a branch for each: an update of an element is then one in both."""
        for axis, e in enumerate(stmt.index):
            if axis not in done and (stmt.array, axis, e) in self.found:
                condition = Op("lt", (e, ZERO), BOOL)
                then, orelse = (
                    self.store(replace(stmt, index=index, value=_where(stmt.value, condition, holds)), (*done, axis))
                    for holds, index in ((True, self.from_end(stmt.array, stmt.index, axis)), (False, stmt.index))
                )
                return If(condition, (then,), (orelse,), (), stmt.location)
        return stmt


def _where(expr: Expr, condition: Expr, holds: bool) -> Expr:
    """The expression where a condition is known."""

    def rule(e: Expr) -> Expr | None:
        chosen = isinstance(e, Op) and e.name == "where" and e.args[0] == condition
        return e.args[1 if holds else 2] if chosen else None  # type: ignore[union-attr]

    return rewrite(expr, rule)
