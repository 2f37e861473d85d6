"""Boxes of a call's arrays as what the driver and the simulator take."""

from __future__ import annotations

from collections.abc import Mapping

from weft.plan.box import Box
from weft.plan.facts import Geometry
from weft.runtime.tensor_map import TensorMap

_SWIZZLE = 128


def tensor_map(box: Box, arrays: Mapping[str, Geometry]) -> TensorMap:
    """How a bulk copy finds a box of one of these arrays, or of memory that launches share."""
    geometry = arrays[box.array] if box.packed is None else box.packed
    size = geometry.dtype.size
    # what has one element has no next one: its stride may be anything
    strides = tuple(geometry.strides[k] * size if n > 1 else 16 for k, n in list(zip(box.axes, box.shape, strict=True))[1:])
    return TensorMap(geometry.dtype.name, box.shape, strides, box.extents, swizzle=_SWIZZLE, promotion=256)
