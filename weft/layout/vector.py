"""Vectors: how many elements lie side by side in two layouts at once, and may be copied together."""

from __future__ import annotations

from math import gcd
from typing import Any, NamedTuple

from weft.layout.errors import LayoutError
from weft.layout.functions import normal_form
from weft.layout.layout import Layout
from weft.layout.refine import same_size
from weft.layout.swizzle import AnyLayout, ComposedLayout

# The widest access of a thread, in bytes.
WIDEST = 16


class _Common(NamedTuple):
    """run: elements that both layouts count 0, 1, 2 ... together. strides: all other strides of both."""

    run: Any
    strides: list[Any]


def max_common_vector(a: AnyLayout, b: AnyLayout) -> Any:
    """The most elements V that lie side by side in both: V coordinates at which both count 0 ... V - 1. At least 1.

    The coordinates need not be neighbours: two row-major matrices have a row in common. Raises LayoutError where the
    sizes differ. Whether the rest of the layouts goes in steps of V is what `vector_width` adds.
    """
    a, b = normal_form(a), normal_form(b)
    if any(isinstance(x, ComposedLayout) and x.offset != 0 for x in (a, b)):
        return 1
    run = _common(_plain(a), _plain(b)).run
    blocks = [block for x in (a, b) if (block := _block(x)) is not None]
    return min([run, *blocks]) if blocks else run


def vector_width(
    source: AnyLayout,
    target: AnyLayout,
    element_bytes: int,
    *,
    widest: int = WIDEST,
    source_alignment: int = WIDEST,
    target_alignment: int = WIDEST,
) -> int:
    """The most elements that every access of a copy may move at once: a power of two, at least 1.

    They lie side by side on both sides, and each vector starts at a multiple of its bytes, given the alignment in bytes
    of both base addresses. Behind a swizzle of other sizes than powers of two, a width that is safe but perhaps not the
    most. Raises LayoutError for element sizes that are no power of two up to 16, or unequal sizes.
    """
    if element_bytes not in (1, 2, 4, 8, 16):
        raise LayoutError(f"an element of {element_bytes} bytes cannot be copied", operation="vector_width")
    source, target = normal_form(source), normal_form(target)
    common = _common(_plain(source), _plain(target))
    width = gcd(min(widest, WIDEST), source_alignment, target_alignment) // element_bytes
    width = 1 << max(0, width.bit_length() - 1)
    steps = [common.run, *common.strides]
    for x in (source, target):
        if isinstance(x, ComposedLayout):
            steps += [x.offset]
        if (block := _block(x)) is not None:
            steps.append(block)
    while width > 1 and not all(_divides(width, step) for step in steps):
        width //= 2
    return max(1, width)


def _common(a: Layout, b: Layout) -> _Common:
    same_size(a, b, "max_common_vector")
    modes, strides = _common_modes(a, b)
    run: Any = 1
    while (mode := next((m for m in modes if m[1] == run and m[2] == run), None)) is not None:
        modes.remove(mode)
        run = run * mode[0]
    return _Common(run, strides + [d for _, *both in modes for d in both])


def _common_modes(a: Layout, b: Layout) -> tuple[list[tuple[Any, Any, Any]], list[Any]]:
    """(size, stride in a, stride in b) of the modes in common, and the strides after the first that do not fit."""
    modes: list[tuple[Any, Any, Any]] = []
    lists = []
    for x in (a, b):
        flat = x.coalesce()
        lists.append([m for m in zip(flat.flat_shape, flat.flat_stride, strict=True) if m[0] != 1])
    while all(lists):
        sizes = [modes_left[0][0] for modes_left in lists]
        step = _common_divisor(*sizes)
        if step != 1:
            modes.append((step, lists[0][0][1], lists[1][0][1]))
        for modes_left in lists:
            s, d = modes_left[0]
            modes_left[:1] = [(s // step, d * step)] if s != step else []
        if step not in sizes:
            break
    return modes, [d for modes_left in lists for _, d in modes_left]


def _common_divisor(s: Any, t: Any) -> Any:
    if type(s) is int and type(t) is int:
        return gcd(s, t)
    if s == t:
        return s
    for small, large in ((s, t), (t, s)):
        if _divides(small, large):
            return small
    return 1


def _divides(a: Any, b: Any) -> bool:
    """Whether b is known to be a multiple of a."""
    try:
        return bool(b % a == 0)
    except (LayoutError, TypeError):
        return False


def _plain(x: AnyLayout) -> Layout:
    return x.layout if isinstance(x, ComposedLayout) else x


def _block(x: AnyLayout) -> int | None:
    """The elements that a swizzle keeps side by side; None for all of them."""
    if not isinstance(x, ComposedLayout) or x.swizzle.is_identity:
        return None
    fields = x.swizzle.target | x.swizzle.source
    return fields & -fields
