"""Folds over the rows of sweeps, which the next nest finds at the same points: the gradient of a weight beside that of x.

One nest goes through rows, and leaves something of each; the next one goes through the same points by columns, and folds what
it makes of them. As the points of a row are there in the first nest, it can fold them too: each block has its own part of every
column, and the second nest is left to combine the parts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from weft.graph.sweeps import Sweep, Sweeps
from weft.graph.tile import Fold, Map, Read, Write
from weft.loops.algebra.table import ALGEBRAS
from weft.loops.ir import Expr, Function, Ref, free_names, substitute
from weft.loops.types import INT64


@dataclass(frozen=True)
class Columns:
    """values: what the points of the folds are made of beside the values of the sweeps, in order. folds: over the rows, by the
    names that they have in the nest which combines their parts. unread: arrays of which only that nest would read, which does
    not where parts are left.
    """

    values: tuple[Map, ...]
    folds: tuple[Fold, ...]
    unread: frozenset[str] = frozenset()

    def beside(self, rows: Sweeps) -> Sweeps:
        """The sweeps of the rows with the values of the columns."""
        return replace(rows, values=(*rows.values, *self.values))


def columns(function: Function, rows: Sweeps, other: Sweeps, elsewhere: Collection[str] = ()) -> Columns | None:
    """The folds of `other`, the sweeps of the nest after that of `rows`, in terms of the values of `rows`; None where they need
    other points, or memory as it is between the nests. elsewhere: the arrays of other nests.
    """
    every = [s for stage in rows.stages for s in stage]
    if not rows.rows or len({s.over for s in every}) != 1 or len(every[0].over) != 1 or rows.apart or other.apart:
        return None
    if len(other.rows) != 1 or len(other.stages) != 1 or len(other.stages[0]) != 1:
        return None
    below = other.stages[0][0]
    if len(below.over) != len(rows.rows) or below.writes or any(not _plain(f) for f in below.folds):
        return None
    pairs = tuple(zip((*rows.rows, *every[0].over), (*below.over, *other.rows), strict=True))
    for own, its in pairs:
        a, b = rows.axes[own], other.axes[its]
        if (a.start, a.stop) != (b.start, b.stop) or (free_names(a.start) | free_names(a.stop)) & rows.axes.keys():
            return None
    found = _renamed(function, rows, other, below, {its: Ref(own, INT64) for own, its in pairs})
    read = {v.array for v in rows.values if isinstance(v, Read)} | rows.loaded | {*elsewhere}
    unread = {w.array for w in rows.last if function.array(w.array).role == "local"} - read
    return found and replace(found, unread=frozenset(unread))


def _plain(fold: Fold) -> bool:
    return fold.algebra in ALGEBRAS and fold.types[0].category in ("float", "int")


def _renamed(
    function: Function, rows: Sweeps, other: Sweeps, below: Sweep, names: Mapping[str, Expr]
) -> Columns | None:
    known: dict[str, Expr] = dict(names)
    stored = {w.array: w for w in rows.writes}
    read = {(v.array, v.index): v for v in rows.values if isinstance(v, Read)}
    touched = stored.keys() | {v.array for v in rows.values if isinstance(v, Read)} | rows.loaded
    if touched & {w.array for w in other.writes} or other.loaded:
        return None
    values: list[Map] = []
    for value in other.values:
        if isinstance(value, Read):
            index = tuple(substitute(i, known) for i in value.index)
            found = _kept(function, rows, stored, value, index) if value.array in stored else read.get((value.array, index))
            if found is None or value.checked:
                return None
            known[value.name] = found if not isinstance(found, Read) else Ref(found.name, found.type)
        elif isinstance(value, Map):
            axes = tuple(n.name if isinstance(n := known.get(a), Ref) else a for a in value.axes)
            own = replace(value, name=f"{value.name}_below", axes=axes, value=substitute(value.value, known))
            known[value.name] = Ref(own.name, own.type)
            values.append(own)
    (lane,) = rows.stages[0][0].over
    folds = tuple(
        replace(f, axes=(lane,), over=rows.rows, parts=tuple(substitute(e, known) for e in f.parts)) for f in below.folds
    )
    return Columns(tuple(values), folds)


def _kept(
    function: Function, rows: Sweeps, stored: Mapping[str, Write], read: Read, index: tuple[Expr, ...]
) -> Expr | None:
    """What was stored once a row where the other nest reads it, if memory does not round it."""
    write = stored[read.array]
    once = write in rows.last and sum(w.array == read.array for w in rows.writes) == 1
    same = write.index == index and write.guard is None and not write.join
    exact = function.array(read.array).dtype == write.value.type == read.type
    return write.value if once and same and exact else None
