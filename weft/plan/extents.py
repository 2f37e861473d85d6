"""How many points the axes of a graph have in a call."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from weft.graph.tile import Axis
from weft.loops.accesses import counted_from_end
from weft.loops.affine import affine, evaluate
from weft.loops.ir import Expr, Function, Op, Ref
from weft.loops.steps import farthest_apart
from weft.loops.types import INT64

# Points of an axis whose bounds data decide.
UNKNOWN = 1024


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
