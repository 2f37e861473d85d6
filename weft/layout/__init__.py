"""The layout algebra: functions from coordinates to offsets as shape:stride, right or refused.

Depends on nothing else in weft. `docs/layouts.md` teaches it from nothing.
"""

from weft.layout.complement import complement
from weft.layout.composition import composition
from weft.layout.coordinates import Coordinates, axis
from weft.layout.divide import flat_divide, logical_divide, tiled_divide, zipped_divide
from weft.layout.errors import LayoutError
from weft.layout.inverse import right_inverse
from weft.layout.layout import Layout, concatenate
from weft.layout.parse import parse
from weft.layout.slicing import slice, slice_and_offset
from weft.layout.swizzle import ComposedLayout, Swizzle
from weft.layout.symbolic import Size, Undecided, symbol

__all__ = [
    "ComposedLayout",
    "Coordinates",
    "Layout",
    "LayoutError",
    "Size",
    "Swizzle",
    "Undecided",
    "axis",
    "complement",
    "composition",
    "concatenate",
    "flat_divide",
    "logical_divide",
    "parse",
    "right_inverse",
    "slice",
    "slice_and_offset",
    "symbol",
    "tiled_divide",
    "zipped_divide",
]
