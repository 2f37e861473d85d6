"""Slices: a layout with some of its coordinates held fixed."""

from __future__ import annotations

from typing import Any

from weft.layout.errors import LayoutError
from weft.layout.layout import Layout, concatenate, is_outside
from weft.layout.swizzle import IDENTITY, AnyLayout, ComposedLayout, composed
from weft.layout.tuples import show


def slice(layout: AnyLayout, coordinate: Any) -> AnyLayout:
    """The function of the coordinates that are None, the others held at their values: the values are those of `layout`.

    Where the fixed coordinates add an offset, the result is a ComposedLayout that carries it. Raises LayoutError for a
    coordinate outside its mode or one that does not fit the shape.
    """
    inner = layout.layout if isinstance(layout, ComposedLayout) else layout
    kept, offset = slice_and_offset(inner, coordinate)
    if isinstance(layout, ComposedLayout):
        return composed(layout.swizzle, layout.offset + offset, kept)
    return composed(IDENTITY, offset, kept)


def slice_and_offset(layout: Layout, coordinate: Any) -> tuple[Layout, Any]:
    """The layout of the modes whose coordinate is None, and the offset that the other coordinates give."""
    kept, offset = _walk(layout, coordinate)
    if coordinate is None:
        return layout, 0
    return (kept[0] if len(kept) == 1 else concatenate(*kept)), offset


def _walk(layout: Layout, c: Any) -> tuple[list[Layout], Any]:
    if c is None:
        return [layout], 0
    if not isinstance(c, (tuple, list)):
        if type(c) is int and is_outside(c, layout.size()):
            raise LayoutError(
                f"{c} is outside the mode {layout}",
                operation="slice",
                boundary=layout.size(),
                witness=c,
                remedy=f"coordinates of this mode run from 0 to {layout.size()} - 1",
            )
        return [], layout(c)
    if type(layout.shape) is not tuple or len(c) != len(layout):
        raise LayoutError(f"coordinate {show(tuple(c))} does not fit the shape {show(layout.shape)}", operation="slice")
    kept: list[Layout] = []
    offset: Any = 0
    for mode, part in zip(layout, c, strict=True):
        inner, step = _walk(mode, part)
        offset += step
        if isinstance(part, (tuple, list)) and len(inner) > 1:
            kept.append(concatenate(*inner))
        else:
            kept += inner
    return kept, offset
