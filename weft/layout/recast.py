"""Layouts in other units: the same memory counted in wider or narrower elements; and the indices that do not move."""

from __future__ import annotations

from math import gcd
from typing import Any

from weft.layout.coordinates import Coordinates
from weft.layout.errors import LayoutError
from weft.layout.layout import Layout, from_modes
from weft.layout.predicates import collision
from weft.layout.swizzle import AnyLayout, ComposedLayout, Kind, Swizzle
from weft.layout.tuples import as_integer, unflatten


def upcast(layout: Kind, count: int) -> Kind:
    """The layout in units of `count` elements: the value at each coordinate of the result is that of a whole unit.

    The elements of a unit must be reached together, by the modes whose strides divide `count`: these shrink, to 1 where
    a unit covers them. All other strides are multiples of `count`, or 0. A swizzle must leave units whole. Raises
    LayoutError otherwise.
    """
    count = _count(count, "upcast")
    if isinstance(layout, ComposedLayout):
        offset, rest = divmod(layout.offset, count)
        if rest:
            raise LayoutError(f"the offset of {layout} is within a unit of {count}", operation="upcast")
        return ComposedLayout(_shifted(layout.swizzle, count, wider=True), offset, _upcast(layout.layout, count))
    return _upcast(layout, count)


def _upcast(layout: Layout, count: int) -> Layout:
    sizes: list[Any] = []
    strides: list[Any] = []
    inside: list[tuple[int, int]] = []
    for m, (s, d) in enumerate(zip(layout.flat_shape, layout.flat_stride, strict=True)):
        if isinstance(d, Coordinates):
            raise _refused(layout, count, m, "it walks along axes")
        if s == 1:
            sizes.append(1)
            strides.append(0)
        elif d % count == 0:
            sizes.append(s)
            strides.append(d // count)
        else:
            # Steps until the mode comes back to the start of a unit, where it does.
            steps, rest = divmod(count, d) if d > 0 else (0, 1)
            if rest or s % steps and steps % s:
                raise _refused(layout, count, m, f"its stride {d} neither divides a unit nor is divided by it")
            steps = steps if s % steps == 0 else s
            inside.append((d, steps))
            sizes.append(s // steps)
            strides.append(1 if s != steps else 0)
    covered = 1
    for d, s in sorted(inside):
        covered = covered * s if d == covered else 0
    if covered != count:
        raise LayoutError(
            f"{layout} does not reach the elements of each unit of {count} once each",
            operation="upcast",
            boundary=count,
            remedy="count in units that the layout covers",
        )
    return Layout(unflatten(sizes, layout.shape), unflatten(strides, layout.shape))


def downcast(layout: Kind, count: int) -> Kind:
    """The layout in units `count` times as narrow: the mode of stride 1 grows by `count`, all other strides do.

    Raises LayoutError where no mode, or more than one, has stride 1: the elements of a unit belong to that mode.
    """
    count = _count(count, "downcast")
    if isinstance(layout, ComposedLayout):
        swizzle = _shifted(layout.swizzle, count, wider=False)
        return ComposedLayout(swizzle, layout.offset * count, _downcast(layout.layout, count))
    return _downcast(layout, count)


def _shifted(swizzle: Swizzle, count: int, *, wider: bool) -> Swizzle:
    """The swizzle of offsets in units `count` times as wide or as narrow."""
    if swizzle.is_identity:
        return swizzle
    bits = count.bit_length() - 1
    base = swizzle.base - bits if wider else swizzle.base + bits
    if count & (count - 1) or base < 0:
        raise LayoutError(
            f"{swizzle} does not keep units of {count} whole",
            operation="recast",
            remedy="count in units of a power of two that the swizzle moves as a whole",
        )
    return Swizzle(swizzle.bits, base, swizzle.shift)


def _downcast(layout: Layout, count: int) -> Layout:
    modes = list(zip(layout.flat_shape, layout.flat_stride, strict=True))
    ones = [m for m, (s, d) in enumerate(modes) if s != 1 and d == 1]
    if count == 1:
        return layout
    if len(ones) != 1:
        raise LayoutError(
            f"{layout} has {len(ones)} modes of stride 1: the parts of an element belong to no mode in particular",
            operation="downcast",
            remedy="say which, with logical_product(Layout(count), layout)",
        )
    sizes = [s * count if m in ones else s for m, (s, _) in enumerate(modes)]
    strides = [d if m in ones else d * count for m, (_, d) in enumerate(modes)]
    return Layout(unflatten(sizes, layout.shape), unflatten(strides, layout.shape))


def recast(layout: Kind, old_bits: int, new_bits: int) -> Kind:
    """The layout of elements of `old_bits` as one of elements of `new_bits` over the same memory."""
    old, new = _count(old_bits, "recast"), _count(new_bits, "recast")
    common = gcd(old, new)
    # Narrow to the unit that both are made of only where neither is made of the other.
    return upcast(downcast(layout, old // common), new // common)


def nullspace(layout: AnyLayout) -> Layout:
    """The layout of the indices with value zero: layout(N(i)) == 0 for all i, and for no other index below its size.

    These are the modes of stride 0. Strides of both signs may cancel; a LayoutError says so where they do. A swizzle
    moves nothing to 0; an offset must be 0.
    """
    if isinstance(layout, ComposedLayout):
        if layout.offset != 0:
            raise LayoutError(f"{layout} starts at an offset: its zeros are no layout", operation="nullspace")
        layout = layout.layout
    sizes: list[Any] = []
    strides: list[Any] = []
    moving: list[tuple[Any, Any]] = []
    index: Any = 1
    for s, d in zip(layout.flat_shape, layout.flat_stride, strict=True):
        if s != 1 and d == 0:
            sizes.append(s)
            strides.append(index)
        elif s != 1:
            moving.append((s, d))
        index = index * s
    signs = {d > 0 for _, d in moving if not isinstance(d, Coordinates)}
    if len(signs) == 2:
        rest = from_modes([s for s, _ in moving], [d for _, d in moving])
        if collision(rest) is not None:
            values = rest.values()
            again = next((i for i, v in enumerate(values) if i and v == 0), None)
            if again is not None:
                raise LayoutError(
                    f"strides of both signs cancel in {layout}: the indices of value 0 are not its modes of stride 0",
                    operation="nullspace",
                    witness=rest.coordinate(again),
                )
    return from_modes(sizes, strides).coalesce()


def _count(count: Any, operation: str) -> int:
    known = as_integer(count, "units")
    if known < 1:
        raise LayoutError(f"there is no unit of {known} elements", operation=operation)
    return known


def _refused(layout: Layout, count: int, mode: int, why: str) -> LayoutError:
    return LayoutError(
        f"mode {mode} of {layout} cannot be counted in units of {count}: {why}",
        operation="upcast",
        mode=mode,
        boundary=count,
        load=layout.flat_stride[mode],
    )
