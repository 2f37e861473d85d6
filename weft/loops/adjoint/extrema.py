"""Carried maxima and minima whose last value alone is used, as the loops of a function have them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from weft.loops.algebra.recurrences import dependents
from weft.loops.ir import Carry, Expr, For, Let, Op, Ref, free_names, statement_exprs, walk
from weft.loops.simplify import bound_inside
from weft.loops.types import BOOL


@dataclass(frozen=True)
class Extremum:
    """A carried maximum or minimum of which the last value alone is used: `element` where `condition` holds.

    ties: who has the adjoint among the elements that attain the extremum. Python's max(h, x) keeps the object it has, so the
    first one; max(x, h) takes the last one; all have equal shares in torch.amax. None: what torch.maximum makes of them, who
    halves it at every tie, hangs on every value carried. nan: of an extremum that is NaN, who has it: no element, those that
    are NaN, or all of them a NaN. update: the best after an element. wins: the comparison of a better element with the best so
    far, where that decides. nested: the loop in the body that carries the same one on, and what it is there. around: the loops
    around it of which it is the same one. kept: the name under which the adjoint has saved the elements, if it has.
    """

    carry: Carry
    element: Expr
    condition: Expr | None
    ties: Literal["first", "last", "shared"] | None
    update: Op
    nan: Literal["none", "nan", "all"] = "none"
    wins: Literal["gt", "lt", "ge", "le", ""] = ""
    nested: tuple[For, Extremum] | None = None
    around: tuple[For, ...] = ()
    kept: str = ""

    @property
    def loops(self) -> tuple[For, ...]:
        """The loops in the body that lead to the elements."""
        return () if self.nested is None else (self.nested[0], *self.nested[1].loops)

    @property
    def names(self) -> frozenset[str]:
        """What it is called in its loops."""
        return frozenset({self.carry.name}) | (frozenset() if self.nested is None else self.nested[1].names)


_SHARED: dict[str, Literal["nan", "all"]] = {"amax": "all", "amin": "all", "max_of_all": "nan", "min_of_all": "nan"}


_EXTREMA = frozenset({"max", "min", "maximum", "minimum", "fmax", "fmin"})


def extremum_of(loop: For, carry: Carry) -> Extremum | None:
    nested = _nested_extremum(loop, carry)
    if nested is not None:
        return nested
    lets = {s.name: s.value for s in loop.body if isinstance(s, Let)}
    own = dependents(loop.body, carry.name) - {carry.name}
    value = carry.next
    chain = set()
    while isinstance(value, Ref) and value.name in lets and value.name in own:
        chain.add(value.name)
        value = lets[value.name]
    # where it is, and whether it has changed, are numbers through which no derivative passes
    told = {s.name for s in loop.body if isinstance(s, Let) and s.name in own - chain and s.value.type.category != "float"}
    used = [
        n
        for s in walk(loop.body)
        if not (isinstance(s, Let) and s.name in chain | told)
        for e in statement_exprs(s)
        for n in free_names(e)
    ]
    used += [n for c in loop.carries if c is not carry and c.type.category == "float" for n in free_names(c.next)]
    if own - chain - told or any(n in chain or n == carry.name for n in used):
        return None
    condition: Expr | None = None
    itself = Ref(carry.name, carry.type)
    match value:
        case Op(name="where", args=(test, then, orelse), derivative="") if carry.name not in free_names(test):
            if itself == orelse:
                condition, value = test, then
            elif itself == then:
                condition, value = Op("not", (test,), BOOL), orelse
    match value:
        case Op(name=name, args=(a, b), derivative=rule) as update if name in _EXTREMA and itself in (a, b):
            element = b if a == itself else a
            ties: Literal["first", "last", "shared"] | None = "first" if a == itself else "last"
            nan: Literal["none", "nan", "all"] = "nan" if ties == "last" else "none"
            if name in ("maximum", "minimum"):
                ties = "shared" if rule in _SHARED else None
                nan = _SHARED.get(rule, "none")
            wins: dict[str, Literal["gt", "lt"]] = {"max": "gt", "min": "lt"} if nan == "none" else {}
            found = Extremum(carry, element, condition, ties, update, nan, wins.get(name, ""))
        case Op(name="where", args=(Op(name="ge" | "le" as order, args=(a, b)), then, orelse), derivative="") as update if (
            orelse == itself and itself in (a, b) and then in (a, b)
        ):  # x if x >= h else h
            found = Extremum(carry, then, condition, "last", update, wins="ge" if (order == "ge") == (a == then) else "le")
        case _:
            return None
    free = free_names(found.element) | (set() if condition is None else free_names(condition))
    return None if carry.name in free else found


def _nested_extremum(loop: For, carry: Carry) -> Extremum | None:
    """An extremum over several axes: a loop in the body goes on with the same one."""
    for stmt in loop.body:
        for c in stmt.carries if isinstance(stmt, For) else ():
            if (c.init, carry.next) != (Ref(carry.name, carry.type), Ref(c.result, c.type)):
                continue
            uses = [n for s in walk(loop.body) for e in statement_exprs(s) for n in free_names(e)]
            uses += [n for k in loop.carries for n in free_names(k.next)]
            inner = extremum_of(stmt, c)  # type: ignore[arg-type]
            if inner is None or uses.count(carry.name) + uses.count(c.result) != 2:
                return None
            bounds = free_names(stmt.start) | free_names(stmt.stop)  # type: ignore[union-attr]
            if inner.ties != "shared" and (bounds & bound_inside(loop) or (loop.step, stmt.step) != (1, 1)):  # type: ignore[union-attr]
                return None
            return replace(inner, carry=carry, nested=(stmt, inner))  # type: ignore[arg-type]
    return None
