"""Graphs that carry nothing: every point of the axes is computed for itself, in any order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from weft.graph.needs import by_need, certain
from weft.graph.tile import (
    Axis,
    Carried,
    Map,
    Moved,
    NotTiles,
    Read,
    TileGraph,
    Write,
    dependence,
    names_of,
    uses,
    uses_of_write,
)
from weft.graph.within import Within, conditional_reads
from weft.loops.ir import Expr, Load, Op, Ref, free_arrays, free_names, substitute, walk_expr
from weft.loops.types import BOOL, INT64


@dataclass(frozen=True)
class Course:
    """What is written over the same axes, and the values that it needs, in order. ragged: the axis whose bounds depend on
    others of them, or on values over these; "" where there is none. within: the reads that happen on conditions.
    """

    axes: tuple[Axis, ...]
    values: tuple[Read | Map, ...]
    writes: tuple[Write, ...]
    ragged: str = ""
    within: tuple[Within, ...] = ()

    def expressions(self) -> tuple[Expr, ...]:
        """All that is computed at a point."""
        return (*(e for v in self.values for e in uses(v)), *(e for w in self.writes for e in uses_of_write(w)))


@dataclass(frozen=True)
class Maps:
    """courses: in any order; none reads what another writes."""

    courses: tuple[Course, ...]


def maps(graph: TileGraph) -> Maps:
    """The courses of a graph. Raises NotTiles where it carries values, or its axes are bounded by one another."""
    for value in graph.values:
        if isinstance(value, (Carried, Moved)):
            raise NotTiles(f"{names_of(value)[0]} is carried", getattr(value, "location", None))
    if graph.copied:
        raise NotTiles(f"{graph.copied[0]} is read at other elements than it is written at")
    if not graph.axes:
        raise NotTiles("there is one point")
    needed = certain(graph)  # where such a read is outside, the program ends with an error
    graph = by_need(graph, lambda read: read.name in needed)
    grouped: dict[tuple[str, ...], list[Write]] = {}
    for w in graph.writes:
        if w.join:
            raise NotTiles("values are joined to an array", w.location)
        grouped.setdefault(tuple(a.name for a in graph.axes if a.name in w.axes), []).append(w)
    courses = tuple(_course(graph, axes, writes) for axes, writes in grouped.items())
    for k, course in enumerate(courses):
        if not course.axes:
            raise NotTiles("some elements are stored once, others by a loop", course.writes[0].location)
        written = {w.array for w in course.writes}
        for other in courses[:k] + courses[k + 1 :]:
            if written & (_loaded(other) | {w.array for w in other.writes}):
                raise NotTiles("an array is written over some axes, and used over others", course.writes[0].location)
    return Maps(courses)


def _course(graph: TileGraph, axes: tuple[str, ...], writes: list[Write]) -> Course:
    own = tuple(graph.axis(a) for a in axes)
    varying = {a.name for a in graph.axes} | graph.made.keys()
    ragged = [a for a in own if (free_names(a.start) | free_names(a.stop)) & varying]
    if len(ragged) > 1:
        raise NotTiles(f"the bounds of {ragged[0].name} and of {ragged[1].name} are not the same everywhere")
    bounds = [e for a in ragged for e in (a.start, a.stop)]
    if dependence(graph).of(bounds) - (set(axes) - {a.name for a in ragged}):
        raise NotTiles(f"the bounds of {ragged[0].name} depend on what is not there")
    wanted = graph.below((*bounds, *(e for w in writes for e in uses_of_write(w))))
    values = tuple(_told(v for v in graph.values if isinstance(v, (Read, Map)) and v.name in wanted))
    reads, stored, within = ((), tuple(writes), ()) if ragged else conditional_reads(own, values, writes)
    told, stored = _told_apart(graph, axes, stored)
    course = Course(own, (*values, *reads, *told), stored, ragged[0].name if ragged else "", within)
    read = _loaded(course)
    for w in writes:
        if w.array not in read:
            continue
        if set(axes) - {n for i in w.index for n in free_names(i)}:
            raise NotTiles(f"{w.array} is read by other points than write it", w.location)
    return course


def _told_apart(
    graph: TileGraph, axes: tuple[str, ...], writes: tuple[Write, ...]
) -> tuple[tuple[Map, ...], tuple[Write, ...]]:
    """The conditions that choose what is written, as values of their own where data tell them for all points of some axis: they
    are looked at once. The writes with these.
    """
    depends, found, made = dependence(graph), list[Map](), list[Write]()
    for w in writes:
        match w.value:
            case Op(name="where", args=(condition, then, orelse)) if w.guard is None and free_arrays(condition):
                own = depends.of((condition,))
                if own < {*axes} and not free_arrays(condition) & {other.array for other in writes}:
                    found.append(Map(f"{w.array}.chosen", tuple(a for a in axes if a in own), condition, w.location))
                    w = replace(w, value=replace(w.value, args=(Ref(found[-1].name, BOOL), then, orelse)))  # noqa: PLW2901
        made.append(w)
    return tuple(found), tuple(made)


def read_at_need(course: Course, names: Collection[str]) -> Course:
    """The course with these reads, which happen on conditions, as loads where they are needed."""
    if not names:
        return course
    loads = {v.name: Load(v.array, v.index, v.type) for v in course.values if isinstance(v, Read) and v.name in names}
    return replace(
        course,
        values=tuple(v for v in course.values if v.name not in names),
        writes=tuple(replace(w, value=substitute(w.value, dict(loads))) for w in course.writes),
        within=tuple(w for w in course.within if w.read not in names),
    )


def _told(values: Iterable[Read | Map]) -> Iterator[Read | Map]:
    """The values, with subscripts that data decide as values of their own."""
    axes: dict[str, tuple[str, ...]] = {}
    for v in values:
        axes[v.name] = v.axes
        if not isinstance(v, Read):
            yield v
            continue
        index = []
        for k, i in enumerate(v.index):
            names = free_names(i) & axes.keys()
            if not names or isinstance(i, Ref):
                index.append(i)
                continue
            own = tuple(a for a in v.axes if a in free_names(i) or any(a in axes[n] for n in names))
            place = Map(f"{v.name}.at.{k}", own, i, v.location)
            axes[place.name] = own
            yield place
            index.append(Ref(place.name, INT64))
        yield replace(v, index=tuple(index))


def _loaded(course: Course) -> set[str]:
    """The arrays that a course reads."""
    return {v.array for v in course.values if isinstance(v, Read)} | {x.array for x in _loads(course.expressions())}


def _loads(exprs: Iterable[Expr]) -> list[Load]:
    return [x for e in exprs for x in walk_expr(e) if isinstance(x, Load)]
