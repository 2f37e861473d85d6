"""Division: a layout cut into tiles. The first part of a result walks within a tile, the second over the tiles."""

from __future__ import annotations

from typing import Any

from weft.layout.complement import complement_and_extent
from weft.layout.compose import compose
from weft.layout.errors import LayoutError
from weft.layout.layout import Layout, concatenate
from weft.layout.swizzle import Kind, behind
from weft.layout.tilers import as_tiler, by_mode, unzip


def logical_divide(layout: Kind, tiler: Any, *, partial: bool = False) -> Kind:
    """(layout o tiler, layout o complement of tiler): at (i, j) element i of tile j.

    tiler: a layout of indices of `layout`; an int n for n:1; or a tuple of tilers, one for each of the first modes, and
    None to leave a mode whole. Each mode is cut in place. partial: let the last tiles run over the end (the last mode
    goes on past the size, for the caller to mask) instead of refusing a tiler that does not divide the layout.
    Raises LayoutError where it does not, where the tiler overlaps itself, or where a composition has no layout.
    """
    return behind(layout, lambda inner: _logical(inner, tiler, partial))


def zipped_divide(layout: Kind, tiler: Any, *, partial: bool = False) -> Kind:
    """((tile, ...), (rest, ...)): logical_divide with the parts within tiles gathered first.

    Modes that no tiler cuts belong to the rest.
    """
    return behind(layout, lambda inner: concatenate(*_zipped(inner, tiler, partial)))


def tiled_divide(layout: Kind, tiler: Any, *, partial: bool = False) -> Kind:
    """((tile, ...), rest, ...)."""

    def operation(inner: Layout) -> Layout:
        tile, rest = _zipped(inner, tiler, partial)
        return concatenate(tile, *rest)

    return behind(layout, operation)


def flat_divide(layout: Kind, tiler: Any, *, partial: bool = False) -> Kind:
    """(tile, ..., rest, ...)."""

    def operation(inner: Layout) -> Layout:
        tile, rest = _zipped(inner, tiler, partial)
        return concatenate(*tile, *rest)

    return behind(layout, operation)


def _logical(layout: Layout, tiler: Any, partial: bool) -> Layout:
    if type(tiler) is not Layout:
        if isinstance(tiler, (tuple, list)):
            return by_mode(layout, tuple(tiler), lambda m, t: _logical(m, t, partial), "logical_divide")
        tiler = as_tiler(tiler, "logical_divide")
    size = layout.size()
    rest, extent = complement_and_extent(tiler, size)
    if extent != size and not partial:
        raise LayoutError(
            f"{tiler} does not divide the {size} elements of {layout}: its translates cover {extent}",
            operation="logical_divide",
            boundary=size,
            load=extent,
            witness=size,
            remedy="choose a tile that divides the layout, or pass partial=True and mask what runs over the end",
        )
    return compose(layout, concatenate(tiler, rest))


def _zipped(layout: Layout, tiler: Any, partial: bool) -> tuple[Layout, Layout]:
    return unzip(_logical(layout, tiler, partial), tiler, 1)
