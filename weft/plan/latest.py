"""What is stored to elements that data choose: the last point of each stores, along its lanes as a course of maps does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from weft.graph.joins import Joins, Ordered
from weft.graph.maps import Course
from weft.graph.tile import Map, Read, uses
from weft.loops.ir import ZERO, Array, Cast, Expr, Function, Op, Ref, free_names
from weft.loops.types import BOOL, INT32, INT64
from weft.plan.facts import Geometry
from weft.plan.map import CoursePlan, plan_course

# Words of 4 bytes, one for each element, in which the last point of each is found: so many whatever the points are, and so many
# for each of them, which is what sorting them takes. Where there are more elements, points are sorted.
MOST_WORDS, WORDS_A_POINT = 1 << 24, 4
# What a launch has of those before it: a key of each point, or what `LAST` has of each key.
KEYS, LAST_OF = "own.keys", "own.last"


@dataclass(frozen=True)
class LastPlan:
    """The last point of each key stores. digits: of keys, by each of which points are sorted; 0: the last of each key is found
    in a word of its own, by atomics. few, rounds: as of a sort. store: how points and their lanes are gone through.
    """

    digits: int
    few: bool
    rounds: int
    store: CoursePlan


def finds(elements: int, points: int) -> bool:
    """Whether the last point of each element is found without sorting."""
    return elements <= max(MOST_WORDS, WORDS_A_POINT * points)


def stored(function: Function, joins: Joins, group: Ordered, found: bool) -> tuple[Function, Course]:
    """What the points that are the last of their keys store, as a course, and the function with arrays that it reads besides.
    KEYS has the key of each point; of those that are not the last it is below 0, or, where LAST_OF has the last of each key
    (found), the number of keys, whose last is below 0.
    """
    w, shape = group.write, function.array(group.write.array).shape
    place: Expr = ZERO
    for a in (joins.axes[name] for name in group.points):
        own = _less(Ref(a.name, INT64), a.start)
        place = own if place == ZERO else _op("add", _op("mul", place, _less(a.stop, a.start)), own)
    read = Read("own.read", group.points, KEYS, (place,), INT32, True, location=w.location)
    key = Map("own.key", group.points, Cast(Ref(read.name, INT32), INT64), w.location)
    last = Read("own.last_of_key", group.points, LAST_OF, (Ref(key.name, INT64),), INT32, True, location=w.location)
    index, places = list(w.index), []
    rest: Expr = Ref(key.name, INT64)
    for n, k in enumerate(reversed(group.keys), 1):
        own = rest if n == len(group.keys) else _op("mod", rest, shape[k])
        rest = _op("floordiv", rest, shape[k])
        if own != Ref(key.name, INT64):
            places.append(Map(f"own.at.{k}", group.points, own, w.location))
            own = Ref(places[-1].name, INT64)
        index[k] = own
    compared: tuple[Expr, Expr] = (Cast(Ref(last.name, INT32), INT64), place) if found else (Ref(key.name, INT64), ZERO)
    guard = Op("eq" if found else "ge", compared, BOOL)
    write = replace(w, axes=(*group.points, *group.lanes), index=tuple(index), guard=guard, join="")
    values = (*_needed(joins, write.value), read, key, *((last,) if found else ()), *places)
    axes = tuple(joins.axes[a] for a in (*group.points, *group.lanes))
    inner = tuple(Array(name, INT32, (Ref("own.count", INT64),), "input") for name in (KEYS, LAST_OF))
    return replace(function, arrays=(*function.arrays, *inner)), Course(axes, values, (write,))


def plan_store(
    function: Function, joins: Joins, group: Ordered, arrays: Mapping[str, Geometry], names: Mapping[str, int], found: bool
) -> tuple[CoursePlan, tuple[int, int, int]]:
    """How they are stored, and the grid."""
    own, course = stored(function, joins, group, found)
    words = {name: Geometry(INT32, (1,), (1,), 0) for name in (KEYS, LAST_OF)}
    return plan_course(own, course, {**arrays, **words}, names)


def elements_of(group: Ordered, arrays: Mapping[str, Geometry]) -> int:
    """How many keys there are."""
    return math.prod(arrays[group.write.array].shape[k] for k in group.keys)


def _needed(joins: Joins, value: Expr) -> tuple[Read | Map, ...]:
    """The values that an expression needs, in order."""
    wanted, found = free_names(value), []
    for v in reversed(joins.values):
        if v.name in wanted:
            found.append(v)
            wanted = wanted.union(*(free_names(e) for e in uses(v)))
    return tuple(reversed(found))


def _less(a: Expr, b: Expr) -> Expr:
    return a if b == ZERO else _op("sub", a, b)


def _op(name: str, *args: Expr) -> Op:
    return Op(name, args, INT64)
