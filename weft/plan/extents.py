"""How many points the axes of a graph have in a call."""

from __future__ import annotations

from collections.abc import Mapping

from weft.graph.tile import Axis
from weft.loops.affine import evaluate

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
        found[axis.name] = max(0, max(stops) - min(starts))
        ends[axis.name] = (min(starts), max(stops) - 1)
    return found
