"""Graphs that join values to elements which the data choose: histograms, scatters. Their points may come in any order, or are
put in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from weft.graph.needs import by_need
from weft.graph.tile import (
    LAST,
    Axis,
    Dependence,
    Map,
    NotTiles,
    Read,
    TileGraph,
    Write,
    dependence,
    names_of,
)
from weft.loops.affine import is_bound
from weft.loops.ir import Check, Const, Function, Load, Ref, free_names, walk_expr
from weft.loops.types import ScalarType

# The algebras of which what is left of a value in a narrower integer is told by what is left of the operands.
_MODULAR = ("sum", "product", "bitand", "bitor", "bitxor")


@dataclass(frozen=True)
class Points:
    """The points of some axes, and what is written at each. over: axes with the same bounds everywhere; inside: those whose
    bounds depend on others, or on data.
    """

    over: tuple[str, ...]
    inside: tuple[str, ...]
    writes: tuple[Write, ...]


@dataclass(frozen=True)
class Ordered:
    """A write whose values are joined in an order that the elements decide: sums and products of floats are rounded. keys: the
    axes of the array whose subscripts tell a key, which `points` decide: axes whose points are put in the order of keys. lanes:
    axes that are subscripts by themselves, so that each of their points is an element of its own. rows: those of the points
    that are subscripts, too, and tell others besides (`x[i, index[i, j]]`). alike: all points add the same number, so that an
    element is what so many additions leave, whichever point is the first.
    """

    points: tuple[str, ...]
    lanes: tuple[str, ...]
    keys: tuple[int, ...]
    write: Write
    alike: bool
    rows: tuple[str, ...]

    def unordered(self) -> Points:
        """The points in any order, as those may be that are alike."""
        return Points((*self.points, *self.lanes), (), (self.write,))

    @property
    def of_a_row(self) -> Ordered:
        """The same of one row: its points, and the subscripts that tell a key of its own."""
        keys = tuple(k for k in self.keys if not (isinstance(i := self.write.index[k], Ref) and i.name in self.rows))
        return replace(self, points=tuple(a for a in self.points if a not in self.rows), keys=keys)


@dataclass(frozen=True)
class Joins:
    """values: in order, to be computed wherever their axes are known; the rest is written out where it is needed. groups: one
    after another.
    """

    axes: Mapping[str, Axis]
    values: tuple[Read | Map, ...]
    groups: tuple[Points | Ordered, ...]

    @property
    def inside(self) -> tuple[str, ...]:
        """The axes that a thread goes through in order."""
        return tuple(a for g in self.groups if isinstance(g, Points) for a in g.inside)

    @property
    def writes(self) -> tuple[Write, ...]:
        return tuple(w for g in self.groups for w in (g.writes if isinstance(g, Points) else (g.write,)))


def joins(graph: TileGraph, function: Function) -> Joins:
    """The points of a graph that joins values. Raises NotTiles where it has anything that is no point's own."""
    graph = by_need(graph)
    values = []
    for value in graph.values:
        if not isinstance(value, Read | Map):
            raise NotTiles(
                f"{names_of(value)[0]} is carried in a nest that joins values to an array", getattr(value, "location", None),
                "store it in an array, and join its elements in loops after it",
            )  # fmt: skip
        values.append(value)
    if graph.copied:
        remedy = f"read a copy: old = {graph.copied[0]}.clone() before the loops"
        raise NotTiles(f"{graph.copied[0]} is read at other elements than it is written at", None, remedy)
    axes = {a.name: a for a in graph.axes}
    groups: dict[tuple[str, ...], list[Write]] = {}
    ordered: list[Write] = []
    for write in graph.writes:
        dtype = function.array(write.array).dtype
        if write.join:
            _check(write, dtype)
        if write.join and not in_any_order(write, dtype):
            ordered.append(write)
        else:
            groups.setdefault(write.axes, []).append(write)
    for write in graph.writes:
        if len(groups) + len(ordered) > 1 and write.array in graph.read:
            raise NotTiles(f"{write.array} is read and written over different axes", write.location)
        if write.join and write.array in graph.read:
            raise NotTiles(f"{write.array} is read where values are joined to it", write.location)
    if len({(w.array, w.join) for w in graph.writes}) > len({w.array for w in graph.writes}):
        raise NotTiles("values are joined to an array in two ways")
    varies = axes.keys() | graph.made.keys()
    steady = {a.name for a in graph.axes if not any(free_names(e) & varies for e in (a.start, a.stop))}
    found: list[Points | Ordered] = []
    for names, writes in groups.items():
        over, inside = ([n for n in names if (n in steady) == is_steady] for is_steady in (True, False))
        found.append(Points(tuple(over), tuple(inside), tuple(writes)))
    depends = dependence(graph)
    for write in ordered:
        found.append(_ordered(write, function, steady, depends))
    return Joins(axes, tuple(values), tuple(found))


def _ordered(write: Write, function: Function, steady: set[str], depends: Dependence) -> Ordered:
    array = function.array(write.array)
    for name in write.axes:
        if name not in steady:
            raise NotTiles(f"the bounds of {name} are not the same everywhere, and the order of sums shows", write.location)
    alone = {
        i.name: k
        for k, i in enumerate(write.index)
        if isinstance(i, Ref) and i.name in write.axes and is_bound(array.shape[k], free_names(array.shape[k]))
    }
    if array.name in function.checked:
        alone = {}
    others = [i for k, i in enumerate(write.index) if k not in alone.values()]
    told = depends.of((*others, *(() if write.guard is None else (write.guard,))))
    lanes = [a for a in write.axes if a in alone and a not in told and sum(a in free_names(i) for i in write.index) == 1]
    one = {alone[a] for a in lanes} | {
        k for k, i in enumerate(write.index) if isinstance(i, Const) and array.name not in function.checked
    }
    keys = [k for k in range(len(write.index)) if k not in one]
    alike = _adds_a_number(write) and array.dtype.opmath == array.dtype
    points = tuple(a for a in write.axes if a not in lanes)
    rows = tuple(a for a in points if a in alone and sum(a in free_names(i) for i in write.index) == 1)
    return Ordered(points, tuple(lanes), tuple(keys), write, alike, rows)


def _adds_a_number(write: Write) -> bool:
    """Whether all points add the same number. It is no less than 1: atomics on a GPU take what is far below for 0."""
    return write.join == "sum" and isinstance(write.value, Const) and abs(write.value.value) >= 1


def _check(write: Write, dtype: ScalarType) -> None:
    """Raise NotTiles where the order of the values that are joined shows."""
    if write.join == LAST:
        return
    type_ = write.value.type
    if type_ != dtype.opmath and not (type_.category == dtype.category == "int" and write.join in _MODULAR):
        raise NotTiles(f"{write.array} rounds what is joined to it", write.location)
    if write.join in ("and", "or") and any(isinstance(e, Load | Check) for e in walk_expr(write.value)):
        raise NotTiles(f"{write.array} may be decided before values that are undefined then", write.location)


def in_any_order(write: Write, dtype: ScalarType) -> bool:
    """Whether the bits that joins leave are the same whatever their order: sums and products of floats are rounded, and of what
    is stored the last counts.
    """
    if write.join == LAST:
        return False
    return dtype.category != "float" or write.join not in ("sum", "product")
