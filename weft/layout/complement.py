"""Complement: the layout that walks over the translates of another, so that the two together cover an interval once."""

from __future__ import annotations

from typing import Any

from weft.layout.coordinates import Coordinates
from weft.layout.errors import LayoutError
from weft.layout.layout import Layout, from_modes
from weft.layout.symbolic import Size
from weft.layout.tuples import as_integer, unflatten


def complement(layout: Layout, size: Any = None) -> Layout:
    """The layout R such that every integer from 0 to at least `size` is layout(i) + R(j) for exactly one value of each.

    size: a positive integer, the cosize of the layout where left out. Modes of stride 0 or size 1 count once. The
    values of R ascend. A sum of progressions covers an interval once only if, sorted by stride, each stride is a
    multiple of what the progressions before it cover; anything else, and negative strides, is a LayoutError.
    """
    if size is None:
        size = layout.cosize()
    elif type(size) is not int and not isinstance(size, Size):
        size = as_integer(size, "sizes")
    if size < 1:
        raise LayoutError(f"there is no interval of {size} integers to cover", operation="complement")
    return complement_and_extent(layout, size)[0]


def complement_and_extent(layout: Layout, size: Any) -> tuple[Layout, Any]:
    """The complement, and the length of the interval from 0 that it covers together with the layout."""
    modes = [(d, s) for s, d in zip(layout._flat_shape, layout._flat_stride, strict=True) if s != 1 and d != 0]
    if len(modes) > 1:
        modes.sort(key=_stride)
    sizes: list[Any] = []
    strides: list[Any] = []
    covered: Any = 1
    for d, s in modes:
        if isinstance(d, Coordinates):
            raise _refused(layout, d, s, covered, "it walks along axes, not over integers")
        if d < 0:
            raise _refused(layout, d, s, covered, "it is negative")
        gap, rest = divmod(d, covered)
        if rest or gap == 0:
            raise _refused(layout, d, s, covered, f"{covered} divides it not, and is what smaller strides cover")
        if gap != 1:
            sizes.append(gap)
            strides.append(covered)
        covered = d * s
    rest = -(-size // covered)
    if rest != 1:
        sizes.append(rest)
        strides.append(covered)
    return from_modes(sizes, strides), covered * rest


def _stride(mode: tuple[Any, Any]) -> Any:
    return mode[0]


def _refused(layout: Layout, stride: Any, size: Any, covered: Any, why: str) -> LayoutError:
    mode = list(zip(layout.flat_shape, layout.flat_stride, strict=True)).index((size, stride))
    first = unflatten([int(i == mode) for i in range(len(layout.flat_shape))], layout.shape)
    return LayoutError(
        f"no translates of {layout} cover an interval once: its stride {stride} is at fault, {why}",
        operation="complement",
        mode=mode,
        boundary=covered,
        load=stride,
        witness=first,
        remedy="give each mode a stride that is a multiple of the extent of the modes before it",
    )
