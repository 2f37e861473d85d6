"""Loads that happen only where conditions on axes hold, as reads: what lies side by side is then moved in packets."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from weft.errors import Location
from weft.graph.tile import Axis, Map, Read, Write
from weft.loops.affine import Affine, affine
from weft.loops.conditions import MIRRORED, OPPOSITE, comparisons
from weft.loops.ir import Expr, Load, Op, Ref, free_names, operands, substitute, with_operands

# Such reads of a point: a thread has registers of each for all of its points.
_MOST = 8

# What has to hold together; None where that cannot be told.
_Conditions = tuple[Expr, ...] | None


@dataclass(frozen=True)
class Within:
    """The read of this name happens where all conditions hold, comparisons of sums of axes, with factors of 1 or -1, and sizes.
    Elsewhere it is 0, and nothing needs it.
    """

    read: str
    conditions: tuple[Expr, ...]


def conditional_reads(
    axes: Sequence[Axis], values: Sequence[Read | Map], writes: Sequence[Write]
) -> tuple[tuple[Read, ...], tuple[Write, ...], tuple[Within, ...]]:
    """The reads that loads of these writes are which happen on conditions, and the writes with their values instead."""
    stored = {w.array for w in writes}
    found = _Found({a.name for a in axes}, {v.name for v in values}, stored)
    made = []
    for w in writes:
        where = () if w.guard is None else found.both((), w.guard, True)
        found.location = w.location
        made.append(replace(w, value=found.hoisted(w.value, where)))
    instead = found.merged()
    if not 0 < len(found.reads) <= _MOST:
        return (), tuple(writes), ()
    reads = tuple(
        Read(name, _of(axes, (*load.index, *where)), load.array, load.index, load.type, False, location=location)
        for (load, where), (name, location) in found.reads.items()
    )
    stores = tuple(replace(w, value=substitute(w.value, instead)) for w in made)
    return reads, stores, tuple(Within(name, where) for (_, where), (name, _) in found.reads.items())


def limits(conditions: Iterable[Expr], axis: str) -> list[Expr]:
    """The points of an axis from which on conditions hold, or no longer hold."""
    found: list[Expr] = []
    for c in conditions:
        assert isinstance(c, Op)
        left, right = map(affine, c.args)
        assert left is not None and right is not None
        apart = left - right  # compared with 0
        factor = apart.coefficient(axis)
        if factor == 0:
            continue
        rest = apart * -factor  # what the axis is compared with, less the axis
        terms = {n: k for n, k in rest.terms if n != axis}
        at, after = (Affine.make(terms, rest.constant + k).expr() for k in (0, 1))
        name = c.name if factor > 0 else MIRRORED[c.name]
        found += [at, after] if name == "eq" else [at] if name in ("ge", "lt") else [after]
    return found


@dataclass
class _Found:
    """reads: the names of loads under their conditions, and where the first of each is."""

    axes: Collection[str]
    values: Collection[str]
    stored: Collection[str]
    reads: dict[tuple[Load, tuple[Expr, ...]], tuple[str, Location | None]] = field(default_factory=dict)
    location: Location | None = None

    def hoisted(self, e: Expr, where: _Conditions) -> Expr:
        match e:
            case Op(name="where", args=(condition, then, orelse)):
                under = (where, self.both(where, condition, True), self.both(where, condition, False))
                new = tuple(map(self.hoisted, (condition, then, orelse), under))
            case Op(name="and" | "or", args=(first, second)):
                new = self.hoisted(first, where), self.hoisted(second, None)
            case Load() if where and self.plain(e):
                e = replace(e, index=tuple(form.expr() for form in map(affine, e.index) if form is not None))
                name, _ = self.reads.setdefault((e, where), (f"{e.array}.within.{len(self.reads)}", self.location))
                return Ref(name, e.type)
            case _:
                new = tuple(self.hoisted(o, where) for o in operands(e))
        return with_operands(e, new) if new != operands(e) else e

    def merged(self) -> dict[str, Expr]:
        """Make one of two reads of the same that happen where a condition holds and where it does not; what others are then."""
        instead: dict[str, Expr] = {}
        while (pair := next(self.pairs(), None)) is not None:
            (load, where), other = pair
            (name, location), (gone, _) = self.reads.pop((load, where)), self.reads.pop((load, other))
            common = tuple(c for c in where if c in other)
            kept, _ = self.reads.setdefault((load, common), (name, location))
            old = {n: Ref(kept, load.type) for n in (name, gone) if n != kept}
            instead = {n: substitute(e, dict(old)) for n, e in instead.items()} | old
        return instead

    def pairs(self) -> Iterator[tuple[tuple[Load, tuple[Expr, ...]], tuple[Expr, ...]]]:
        for (load, where), (again, other) in itertools.combinations(self.reads, 2):
            if load == again and len(apart := {*where} ^ {*other}) == 2:
                a, b = apart
                if isinstance(a, Op) and replace(a, name=OPPOSITE[a.name]) == b:
                    yield (load, where), other

    def plain(self, load: Load) -> bool:
        """Whether where a load looks is told by axes and sizes, and nothing is stored there."""
        told = all(affine(i) is not None for i in load.index) and not _names(load.index) & {*self.values}
        return told and load.array not in self.stored

    def both(self, where: _Conditions, condition: Expr, holds: bool) -> _Conditions:
        """The conditions, and that this one holds, or does not."""
        more = comparisons(condition, holds)
        if where is None or not more.exact or not all(map(self.told, more.all)):
            return None
        return tuple(dict.fromkeys((*where, *more.all)))

    def told(self, condition: Op) -> bool:
        """Whether a comparison is one of those that `Within` has."""
        left, right = map(affine, condition.args)
        if condition.name == "ne" or left is None or right is None or _names(condition.args) & {*self.values}:
            return False
        return all(abs(k) == 1 for n, k in (left - right).terms if n in self.axes)


def _of(axes: Sequence[Axis], exprs: Iterable[Expr]) -> tuple[str, ...]:
    named = _names(exprs)
    return tuple(a.name for a in axes if a.name in named)


def _names(exprs: Iterable[Expr]) -> set[str]:
    return {n for e in exprs for n in free_names(e)}
