"""How many points the axes of a graph have in a call."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from weft.graph.even import Box
from weft.graph.tile import Axis
from weft.loops.accesses import counted_from_end
from weft.loops.affine import affine, evaluate
from weft.loops.intervals import bounds, farthest_apart
from weft.loops.ir import Expr, Function, Op, Ref, free_names
from weft.loops.types import INT64
from weft.plan.facts import Geometry

# Points of an axis whose bounds data decide.
UNKNOWN = 1024
# Points of a box for each that a program has in it, at the most.
_MOST_WASTED = 4


def extents_of(axes: Mapping[str, Axis], names: Mapping[str, int]) -> dict[str, int]:
    """The most points of each axis. names: the values of sizes and integers."""
    found: dict[str, int] = {}
    ends: dict[str, tuple[int, int]] = {}
    for axis in axes.values():
        corners = [{**names, **{a: e[k] for a, e in ends.items()}} for k in (0, 1)]
        try:
            starts, stops = ([evaluate(e, at) for at in corners] for e in (axis.start, axis.stop))
        except KeyError:
            found[axis.name], ends[axis.name] = UNKNOWN, (0, UNKNOWN - 1)
            continue
        alike = affine(Op("sub", (axis.stop, axis.start), INT64))  # as a tile of some points has, wherever it begins
        points = max(stops) - min(starts) if alike is None or alike.names & ends.keys() else stops[0] - starts[0]
        found[axis.name] = int(max(0, min(points, _apart(axis, names, ends))))
        ends[axis.name] = (min(starts), max(stops) - 1)
    return found


def _apart(axis: Axis, names: Mapping[str, int], ends: Mapping[str, tuple[int, int]]) -> float:
    """The most points of an axis whose ends move together."""
    try:
        return farthest_apart(axis.start, axis.stop, names, ends)
    except KeyError:
        return math.inf


def ranges_of(axes: Mapping[str, Axis], names: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """The first and the last point of the axes whose bounds sizes tell."""
    ranges: dict[str, tuple[int, int]] = {}
    for axis in axes.values():
        if not any(free_names(e) - names.keys() - ranges.keys() for e in (axis.start, axis.stop)):
            try:
                ends = bounds(axis.start, names, ranges), bounds(axis.stop, names, ranges)
            except KeyError:  # of what is not told
                continue
            ranges[axis.name] = ends[0][0], ends[1][1] - 1
    return ranges


def are_inside(told: Iterable[tuple[Expr, int]], names: Mapping[str, int], ranges: Mapping[str, tuple[int, int]]) -> bool:
    """Whether integers are known to be subscripts of so many elements."""
    try:
        return all(low >= 0 and high < size for e, size in told for low, high in [bounds(e, names, ranges)])
    except KeyError:
        return False


def fits(axes: Mapping[str, Axis], box: Box | None, names: Mapping[str, int], arrays: Mapping[str, Geometry]) -> bool:
    """Whether what is read at points of a box is inside its arrays, and the program has enough of these points."""
    if box is None:
        return True
    ranges, wasted = ranges_of(axes, names), 1.0
    if any(not are_inside(zip(read.index, arrays[read.array].shape, strict=True), names, ranges) for read in box.asked):
        return False
    for axis in box.uneven:
        corners = [{**names, **{a: ends[k] for a, ends in ranges.items()}} for k in (0, 1)]
        try:
            own = sum(max(0, evaluate(axis.stop, at) - evaluate(axis.start, at)) for at in corners) / 2
        except KeyError:
            return False
        low, high = ranges[axis.name]
        wasted *= (high + 1 - low) / max(own, 1)
    return wasted <= _MOST_WASTED


def typical(
    function: Function,
    axis: str,
    rows: Iterable[str],
    extents: Mapping[str, int],
    accesses: Iterable[tuple[str, tuple[Expr, ...], frozenset[str]]],
    names: Mapping[str, int],
    most: int = UNKNOWN,
) -> int:
    """About how many points an axis has, where data decide it for each of some rows: these share what it is a subscript of by
    itself, if they are no subscripts of that. accesses: arrays, subscripts and axes. most: where that tells nothing.
    """
    found = [most]
    for array, index, _ in accesses:
        told = [counted_from_end(i)[0] for i in index]
        if Ref(axis, INT64) in told:
            size = evaluate(function.array(array).shape[told.index(Ref(axis, INT64))], names)
            sharing = math.prod(extents[r] for r in rows if Ref(r, INT64) not in told)
            found.append(-(-size // max(1, sharing)))
    return max(1, min(found))
