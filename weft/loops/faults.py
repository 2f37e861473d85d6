"""What Python raises in an expression, apart from its value: what a transform that no longer evaluates it still has to.

A fault that only data decide is a check in an expression (`Check`), or a subscript that the kernel looks at. Where the value of
the expression is of no use, its faults alone are stored into an element that nobody reads, one of every iteration's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from weft.loops.affine import affine, is_bound
from weft.loops.ir import (
    ONE,
    TRUE,
    ZERO,
    Array,
    Check,
    Const,
    Expr,
    Fault,
    For,
    Function,
    Let,
    Load,
    Op,
    Stmt,
    Store,
    free_arrays,
    operands,
    statement_exprs,
    walk,
    walk_expr,
)
from weft.loops.names import Names
from weft.loops.types import BOOL, INT64

OVERFLOW = Fault("overflow", "a Python int leaves 64 bits")


def leaves_64_bits(expr: Expr) -> bool:
    """Whether an expression is a check that an int fits into 64 bits, of which Python knows nothing."""
    return isinstance(expr, Check) and expr.fault.what == OVERFLOW.what


def may_fail(expr: Expr) -> bool:
    """Whether an expression has anything in it that Python, or the call, may refuse."""
    return bool(free_arrays(expr)) or any(isinstance(e, Check) for e in walk_expr(expr))


def fails_as_it_runs(expr: Expr, checked: frozenset[str] = frozenset()) -> bool:
    """Whether an expression has a check, or a subscript that the call does not look at. checked: the arrays whose subscripts
    the kernels look at.
    """
    return may_fail(expr) and any(
        isinstance(e, Check) or (isinstance(e, Load) and (e.array in checked or any(affine(i) is None for i in e.index)))
        for e in walk_expr(expr)
    )


class Faults:
    """The faults in the expressions of a function, and what is stored of them. A subscript at which the call looks is none:
    there it is told whether or not anything of the iterations is left.

    around: the loops around the statements of the function. names: those that are taken there. every: what the call looks at
    is to be kept too.
    """

    def __init__(
        self, function: Function, around: tuple[For, ...] = (), names: Names | None = None, every: bool = False
    ) -> None:
        self.function, self.around, self.names, self.every = function, around, names or Names.of(function), every
        self.arrays: list[Array] = []
        self.known = {s.name for s in function.sizes} | {s.name for s in function.scalars if s.type == INT64}
        for stmt in (*self.around, *walk(function.body)):
            match stmt:
                case Let(name=name, value=value) if is_bound(value, self.known):
                    self.known.add(name)
                case For(var=var) if is_bound(stmt.start, self.known) and is_bound(stmt.stop, self.known):
                    self.known.add(var)

    @property
    def possible(self) -> bool:
        """Whether the function has any."""
        exprs = (e for s in walk(self.function.body) for e in statement_exprs(s) if may_fail(e))
        return any(self.of(e) for e in exprs)

    def of(self, expr: Expr) -> tuple[Expr, ...]:
        """The faults of an expression, each an expression that has it and is evaluated where that would be; a sum that leaves
        64 bits is no fault of Python's.
        """
        return tuple(dict.fromkeys(self._of(expr))) if may_fail(expr) else ()

    def _of(self, expr: Expr) -> list[Expr]:
        match expr:
            case Op(name="where", args=(condition, then, orelse)):
                sides = [_where(condition, True, f) for f in self.of(then)]
                sides += [_where(condition, False, f) for f in self.of(orelse)]
                return sides or list(self.of(condition))
            case Op(name="and" | "or" as name, args=(left, right)):
                return [_where(left, name == "and", f) for f in self.of(right)] or list(self.of(left))
            case Load() if self._is_fault(expr):
                return [expr]
            case Check(args=(value, condition)) if not leaves_64_bits(expr):
                return [*self.of(value), replace(expr, args=(TRUE, condition), type=BOOL)]
        return [f for o in operands(expr) for f in self.of(o)]

    def _is_fault(self, load: Load) -> bool:
        if self.every or load.array in self.function.checked:
            return True
        told = self.function.sized.axes
        return not all(
            (load.array, axis) in told or ((form := affine(i)) is not None and form.names <= self.known)
            for axis, i in enumerate(load.index)
        )

    def stores(self, exprs: Iterable[Expr], loops: tuple[str, ...], stmt: Stmt) -> tuple[Store, ...]:
        """Statements that have the faults of these expressions and nothing else. loops: the variables around them, in the
        statements of the function.
        """
        out = []
        loops = (*(f.var for f in self.around), *loops)
        for fault in dict.fromkeys(f for e in exprs for f in self.of(e)):
            array = Array(
                self.names.fresh("unused"), fault.type, (ONE,), "local", None, loops, stmt.location, contiguous=True
            )
            self.arrays.append(array)
            out.append(Store(array.name, (ZERO,), fault, stmt.location))
        return tuple(out)

    def stored_in(self, body: tuple[Stmt, ...]) -> Function:
        """The function with this body, in which such statements are."""
        stored = {s.array for s in walk(body) if isinstance(s, Store)}
        arrays = tuple(a for a in self.arrays if a.name in stored)
        return replace(self.function, body=body, arrays=(*self.function.arrays, *arrays))


def _where(condition: Expr, holds: bool, value: Expr) -> Expr:
    """A value where a condition holds, or does not."""
    other = Const(0.0 if value.type.category == "float" else False if value.type == BOOL else 0, value.type)
    return Op("where", (condition, value, other) if holds else (condition, other, value), value.type)
