"""The layout algebra: functions from coordinates to offsets as shape:stride, right or refused.

Depends on nothing else in weft. `docs/layouts.md` teaches it from nothing.
"""

from weft.layout.atoms import (
    Arrangement,
    Atom,
    MatrixCopy,
    arrange,
    fragment,
    ldmatrix,
    mma,
    shared_atom,
    shared_swizzle,
    stmatrix,
    wgmma,
)
from weft.layout.banks import Access, Conflicts, bank_conflicts, find_padding, find_swizzle
from weft.layout.complement import complement
from weft.layout.composition import composition
from weft.layout.convert import AMPERE, HOPPER, Conversion, Cost, Machine, Registers, SharedTrip, convert, registers
from weft.layout.coordinates import Coordinates, axis
from weft.layout.divide import flat_divide, logical_divide, tiled_divide, zipped_divide
from weft.layout.draw import draw_svg, draw_text, draw_threads_svg, draw_threads_text
from weft.layout.errors import LayoutError
from weft.layout.functions import coalesce, cosize, depth, filter, flatten, normal_form, rank, size
from weft.layout.inverse import left_inverse, right_inverse
from weft.layout.layout import Jumps, Layout, concatenate
from weft.layout.linear import LinearLayout, as_layout, linear
from weft.layout.parse import parse
from weft.layout.predicates import collision, equivalent, is_bijective, is_compatible, is_injective
from weft.layout.product import blocked_product, flat_product, logical_product, raked_product, tiled_product, zipped_product
from weft.layout.recast import downcast, nullspace, recast, upcast
from weft.layout.refine import common_refinement, layout_add
from weft.layout.shuffle import Round, Shuffles
from weft.layout.slicing import slice, slice_and_offset
from weft.layout.swizzle import ComposedLayout, Swizzle
from weft.layout.symbolic import Size, Undecided, symbol
from weft.layout.vector import max_common_vector, vector_width

__all__ = [
    "AMPERE",
    "HOPPER",
    "Access",
    "Arrangement",
    "Atom",
    "ComposedLayout",
    "Conflicts",
    "Conversion",
    "Coordinates",
    "Cost",
    "Jumps",
    "Layout",
    "LayoutError",
    "LinearLayout",
    "Machine",
    "MatrixCopy",
    "Registers",
    "Round",
    "SharedTrip",
    "Shuffles",
    "Size",
    "Swizzle",
    "Undecided",
    "arrange",
    "as_layout",
    "axis",
    "bank_conflicts",
    "blocked_product",
    "coalesce",
    "collision",
    "common_refinement",
    "complement",
    "composition",
    "concatenate",
    "convert",
    "cosize",
    "depth",
    "downcast",
    "draw_svg",
    "draw_text",
    "draw_threads_svg",
    "draw_threads_text",
    "equivalent",
    "filter",
    "find_padding",
    "find_swizzle",
    "flat_divide",
    "flat_product",
    "flatten",
    "fragment",
    "is_bijective",
    "is_compatible",
    "is_injective",
    "layout_add",
    "ldmatrix",
    "left_inverse",
    "linear",
    "logical_divide",
    "logical_product",
    "max_common_vector",
    "mma",
    "normal_form",
    "nullspace",
    "parse",
    "raked_product",
    "rank",
    "recast",
    "registers",
    "right_inverse",
    "shared_atom",
    "shared_swizzle",
    "size",
    "slice",
    "slice_and_offset",
    "stmatrix",
    "symbol",
    "tiled_divide",
    "tiled_product",
    "upcast",
    "vector_width",
    "wgmma",
    "zipped_divide",
    "zipped_product",
]
