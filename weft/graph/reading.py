"""What the expressions of a nest are over values and axes: a load is what stores have left there, or a value that is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from weft.errors import Location
from weft.graph.axes import plus
from weft.graph.copies import Copies
from weft.graph.draft import Draft
from weft.graph.places import Meeting, Place, Untold, all_of, meeting
from weft.loops.algebra.linear import negation
from weft.loops.ir import Check, Const, Expr, Load, Op, Ref, operands, with_operands
from weft.loops.types import BOOL, INT64, ScalarType


@dataclass
class Reader(Draft):
    """Expressions are either the nest's, or over values and axes, which `expr` makes of them.

    env: what the names of the nest stand for. guards: the conditions around the statement that is read. places: what stores
    have left, in their order. cells: the arrays that values are joined to here, and by which algebra; joined: those where that
    is over.
    """

    env: dict[str, Expr] = field(default_factory=dict)
    guards: list[Expr] = field(default_factory=list)
    places: dict[str, list[Place]] = field(default_factory=dict)
    cells: dict[str, str] = field(default_factory=dict)
    joined: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.copies = Copies(self)

    def at(self, e: Expr, mapping: Mapping[str, Expr]) -> Expr:
        return self.copies.at(e, mapping)

    def decided(self, names: Collection[str], axes: Collection[str]) -> bool:
        known = {a.name for a in self.axes.axes}
        return any(not self.copies.axes(n, {}).isdisjoint(axes) for n in set(names) - known)

    def pinned(self, place: Place, axis: str) -> Expr | None:
        """The one point of an axis at which a store is done, as its guard says it: the last, or the first."""
        start, stop = self.bounds(axis)
        loops, guard = self.domain({*place.axes}), tuple((g, True) for g in place.guard)
        for only in (plus(stop, -1), start):
            beside = [(Op(name, (Ref(axis, INT64), only), BOOL), True) for name in ("lt", "gt")]
            if not any(self.polyhedra.possible(loops, (*guard, b)) for b in beside):
                return only
        return None

    def expr(self, e: Expr, certain: bool = True) -> Expr:
        """The expression over values and axes. certain: it is evaluated whenever the statement is run."""
        match e:
            case Ref(name=name):
                return self.env.get(name, e)
            case Load():
                index = tuple(self.expr(i, certain) for i in e.index)
                return self.load(e.array, index, e.type, certain and not self.guards, e.location or self.location)
            case Op(name="where", args=(condition, then, orelse)):
                return chosen(self.expr(condition, certain), self.expr(then, False), self.expr(orelse, False))
            case Op(name="and" | "or", args=(a, b)):
                return replace(e, args=(self.expr(a, certain), self.expr(b, False)))
            case Check(args=(value, holds)):
                return replace(e, args=(self.expr(value, False), self.expr(holds, certain)))
        below = operands(e)
        return with_operands(e, tuple(self.expr(o, certain) for o in below)) if below else e

    def load(
        self, array: str, index: tuple[Expr, ...], type_: ScalarType, certain: bool, location: Location | None = None
    ) -> Expr:
        """What a load finds here."""
        if array in self.joined or array in self.cells:
            raise self.refuse(f"{array} is read where iterations join values to it", "reads what it joins values to")
        places = self.places.get(array, [])
        found: list[tuple[Expr, Expr]] = []
        value: Expr | None = None
        for place in reversed(places):
            met = self.meets(place, index, self.path, {*self.open_axes}, tuple(self.guards))
            if met is None:
                continue
            left = self.at(place.value, met.at)
            condition = all_of(met.when)
            if condition is None:
                value = left
                break
            found.append((condition, left))
        if value is None:
            value = self.before(array, index, type_, certain and not found, location)
        for condition, left in reversed(found):
            value = chosen(condition, left, value)
        return value

    def meets(
        self, place: Place, index: tuple[Expr, ...], path: tuple[str, ...], within: set[str], guards: tuple[Expr, ...]
    ) -> Meeting | None:
        """How the element is one of a place, with the guard of the place among the conditions."""
        try:
            met = meeting(place, index, path, within, self)
        except Untold as why:
            raise self.refuse(str(why), "it cannot be told which store a load finds") from None
        if met is None:
            return None
        when = [c for c in (*met.when, *(self.at(g, met.at) for g in place.guard)) if c not in guards]
        if any(c == Const(False, BOOL) or negation(c) in guards for c in when):
            return None
        loops = self.domain(within)
        holding = tuple((g, True) for g in guards)
        left = []
        for c in when:
            if c == Const(True, BOOL) or not self.polyhedra.possible(loops, (*holding, (c, False))):
                continue
            if not self.polyhedra.possible(loops, (*holding, (c, True))):
                return None
            left.append(c)
        return Meeting(met.at, tuple(left))


def chosen(condition: Expr, then: Expr, orelse: Expr) -> Expr:
    if then == orelse:
        return then
    if isinstance(condition, Const):
        return then if condition.value else orelse
    if (then, orelse) == (Const(True, BOOL), Const(False, BOOL)):
        return condition
    return Op("where", (condition, then, orelse), then.type)
