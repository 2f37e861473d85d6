"""How many points axes have, and how large arrays are, whatever the variables of the loops around them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from weft.loops.intervals import Ranges, bounds, farthest_apart
from weft.loops.ir import Array, Expr
from weft.loops.schedule import Axis
from weft.plan.facts import Geometry


def fewest_points(axis: Axis, names: Mapping[str, int], ranges: Ranges) -> int:
    """The fewest points of an axis, whatever the values of the variables around it."""
    (start_low, start_high), (stop_low, stop_high) = bounds(axis.start, names, ranges), bounds(axis.stop, names, ranges)
    return len(range(start_high, stop_low, axis.step) if axis.step > 0 else range(start_low, stop_high, axis.step))


def dense_geometry(array: Array, names: Mapping[str, int], ranges: Ranges) -> Geometry:
    """Where an array lies that the call makes for a nest alone."""
    shape = [max(0, bounds(e, names, ranges)[1]) for e in array.shape]
    strides = [math.prod(max(1, n) for n in shape[k + 1 :]) for k in range(len(shape))]
    return Geometry(array.dtype, tuple(shape), tuple(strides), 0)


def most_points(start: Expr, stop: Expr, step: int, names: Mapping[str, int], ranges: Ranges) -> int:
    """The most iterations of a loop, whatever the values of the variables around it."""
    (start_low, start_high), (stop_low, stop_high) = bounds(start, names, ranges), bounds(stop, names, ranges)
    apart = len(range(start_low, stop_high, step) if step > 0 else range(start_high, stop_low, step))
    low, high = (start, stop) if step > 0 else (stop, start)
    return min(apart, max(0, -(-farthest_apart(low, high, names, ranges) // abs(step))))
