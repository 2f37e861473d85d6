"""Wavefronts: two nested loops that both carry what memory holds, with a step for each point that all it needs is before.

`d[i, j] = c[i, j] + min(d[i - 1, j], d[i, j - 1])` needs the row before and the point before, so no loop of it is parallel.
But where the point (i, j) happens at step `slope * i + j`, a dependence of distance (di, dj) takes `slope * di + dj` steps.
If that is 1 or more for all of them, points of one step need nothing of each other: they are a hyperplane (Lamport, 1974).
Each row is gone through as it is written, by one thread: what it carries stays in registers, and its operations in their
order; only rows beside each other run at once, each some steps behind the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from weft.loops.accesses import Access, Nested, Pair, collect, pairs_in
from weft.loops.affine import affine
from weft.loops.ir import Expr, For, Function, Let, Op, Ref, Stmt, Store, free_names, loaded_arrays, walk
from weft.loops.schedule import Nest
from weft.loops.types import INT64

STEEPEST = 4  # steps that a row may begin after the one before


@dataclass(frozen=True)
class Dependence:
    """Points that touch an element of an array, one of them writing, or carry a scalar: how many rows later the second is, and
    how many points along; None where that differs.
    """

    name: str
    rows: int | None
    points: int | None


@dataclass(frozen=True)
class Wavefront:
    """The loop `rows` of a nest's body, whose iterations are rows of points, those of the one loop in it: point j of row i
    happens at step `slope * i + j`, where both count from 0 in the direction of their loops. before: the names of values that
    rows read, before their first point, of what other rows write. dependences: what makes the slope.
    """

    rows: str
    points: str
    slope: int
    before: frozenset[str]
    dependences: tuple[Dependence, ...]


def wavefront(function: Function, nest: Nest) -> Wavefront | None:
    """The wavefront of a nest whose body is two such loops, and values before them; None where it is no such."""
    *lets, rows = nest.body or (None,)
    if not isinstance(rows, For) or not all(isinstance(s, Let) for s in lets):
        return None
    if loaded_arrays(tuple(s for s in lets if isinstance(s, Let))) & _stored(rows):
        return None  # who comes later would find what rows have written already
    return wavefront_of(function, nest, rows)


def wavefront_of(function: Function, nest: Nest, rows: For) -> Wavefront | None:
    """The wavefront of a loop of a nest's body."""
    points = points_of(rows)
    if points is None or rows.carries or abs(rows.step) != 1 or abs(points.step) != 1:
        return None
    if nest.verdict(rows).kind != "sequential" or nest.verdict(points).kind == "parallel":
        return None
    known = {s.name for s in function.sizes} | {s.name for s in function.scalars} | {a.var for a in nest.axes}
    ends = (points.start, points.stop)
    if any(affine(e) is None for e in ends) or not set().union(*map(free_names, ends)) <= known | {rows.var}:
        return None
    if not free_names(rows.start) | free_names(rows.stop) <= known:
        return None
    if any(rows.var in a.within and points.var not in a.within for a in function.arrays):
        return None
    pairs = tuple(pairs_in(function, Nested(rows, nest.around(), ())))
    slope = _slope(function, rows, points, pairs)
    if slope is None:
        return None
    stored = _stored(rows)
    before: set[str] = set()
    for s in rows.body[: _place(rows.body, points)]:
        if isinstance(s, Let) and (loaded_arrays((s,)) & stored or free_names(s.value) & before):
            before.add(s.name)
    dependences = tuple(dict.fromkeys(_dependences(function, rows, points, pairs)))
    return Wavefront(rows.var, points.var, slope, frozenset(before), dependences)


def points_of(rows: For) -> For | None:
    """The one loop in a loop's body, beside which there are values before it, and values and stores after it."""
    loops = [s for s in rows.body if isinstance(s, For)]
    if len(loops) != 1:
        return None
    at = _place(rows.body, loops[0])
    before, after = rows.body[:at], rows.body[at + 1 :]
    whole = all(isinstance(s, Let) for s in before) and all(isinstance(s, Let | Store) for s in after)
    return loops[0] if whole else None


def _stored(rows: For) -> set[str]:
    return {s.array for s in walk((rows,)) if isinstance(s, Store)}


def _place(statements: tuple[Stmt, ...], stmt: Stmt) -> int:
    return next(k for k, s in enumerate(statements) if s is stmt)


def _slope(function: Function, rows: For, points: For, pairs: Sequence[Pair]) -> int | None:
    """The least slope by which each access comes a step later than all that have to be before it."""
    from weft.loops.polyhedra import Polyhedra  # a call that was compiled before needs none

    polyhedra = Polyhedra(function)
    start = replace(points, carries=tuple(replace(c, next=Ref(c.name, c.type)) for c in points.carries), body=())
    first = len(collect((replace(rows, body=(*rows.body[: _place(rows.body, points)], start)),)))

    def late(a: Access, b: Access, private: frozenset[str], slope: int) -> bool:
        return polyhedra.late(a, b, rows, private, slope, (_step(a, points, first), _step(b, points, first)))

    for slope in range(1, STEEPEST + 1):
        if not any(late(a, b, private, slope) or late(b, a, private, slope) for a, b, private in pairs):
            return slope
    return None


def _inside(access: Access, points: For) -> bool:
    return any(f.var == points.var for f in access.loops)


def _step(access: Access, points: For, first: int) -> Expr:
    """The step of its row at which an access happens: of one before the loop with the first point, after it one later than the
    last. first: the position of the first access in it, or after it.
    """
    if _inside(access, points):
        return counted(Ref(points.var, INT64), points)
    start, stop = counted(points.start, points), counted(points.stop, points)
    return Op("min", (start, stop), INT64) if access.position < first else stop


def counted(place: Expr, loop: For) -> Expr:
    """A place of a loop's variable as one that grows from iteration to iteration."""
    if loop.step > 0:
        return place
    form = affine(place)
    assert form is not None
    return (form * -1).expr()


def _dependences(function: Function, rows: For, points: For, pairs: Sequence[Pair]) -> Iterator[Dependence]:
    """Those between rows, and between points of a row by way of what these carry."""
    from weft.loops.automatic.residues import distance
    from weft.loops.polyhedra import Polyhedra

    polyhedra = Polyhedra(function)
    for a, b, private in pairs:
        if polyhedra.carried(a, b, rows, private) is not None:
            over, along = (distance(a, b, f.var) for f in (rows, points))
            over, along = (None if d is None else d * f.step for d, f in ((over, rows), (along, points)))
            if over is not None and over < 0:
                over, along = -over, None if along is None else -along
            yield Dependence(a.array, over, along)
    for carry in points.carries:
        if carry.next != Ref(carry.name, carry.type):
            yield Dependence(carry.name, 0, 1)
