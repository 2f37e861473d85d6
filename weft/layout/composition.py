"""Composition of all that can be composed: layouts, swizzles, composed layouts, by mode with tuples of tilers."""

from __future__ import annotations

from typing import Any, overload

from weft.layout.compose import compose
from weft.layout.errors import LayoutError
from weft.layout.layout import Layout
from weft.layout.linear import as_layout, linear
from weft.layout.swizzle import IDENTITY, AnyLayout, ComposedLayout, Swizzle, composed
from weft.layout.tilers import as_tiler, by_mode


@overload
def composition(a: Layout, b: Layout | int | tuple[Any, ...]) -> Layout: ...
@overload
def composition(a: Layout | ComposedLayout | Swizzle, b: Any) -> Any: ...
def composition(a: Layout | ComposedLayout | Swizzle, b: Any) -> Any:
    """The function c -> a(b(c)), of a shape that refines b's.

    a: a layout (of all integers: its last mode extends without bound), a composed layout or a swizzle. b: the same, an
    int n for n:1, or a tuple of these for the modes of a, None leaving its mode whole. Raises LayoutError, with a
    coordinate at which every layout of that shape is wrong, where there is no such function; after a swizzle, where
    there is no layout behind one swizzle.
    """
    if type(a) is Layout and type(b) is Layout:
        return compose(a, b)
    if isinstance(b, (tuple, list)):
        return _by_mode(a, tuple(b))
    if isinstance(a, Swizzle):
        return _swizzled(a, b)
    if isinstance(a, ComposedLayout):
        inner = composition(a.layout, b)
        if isinstance(inner, Layout):
            return composed(a.swizzle, a.offset, inner)
        if isinstance(inner, ComposedLayout) and inner.swizzle.is_identity:
            return composed(a.swizzle, a.offset + inner.offset, inner.layout)
        raise _no_form(a, b)
    if isinstance(b, ComposedLayout):
        return _onto_composed(a, b)
    return compose(a, as_tiler(b, "composition"))


def _by_mode(a: Layout | ComposedLayout | Swizzle, tilers: tuple[Any, ...]) -> AnyLayout:
    if isinstance(a, Swizzle):
        raise LayoutError(f"{a} has no modes", operation="composition", remedy="compose it with one layout")
    if isinstance(a, ComposedLayout):
        return a.with_layout(_modes(a.layout, tilers))
    return _modes(a, tilers)


def _modes(a: Layout, tilers: tuple[Any, ...]) -> Layout:
    return by_mode(a, tilers, lambda mode, tiler: compose(mode, as_tiler(tiler, "composition")), "composition")


def _swizzled(a: Swizzle, b: Any) -> Any:
    if isinstance(b, Layout):
        return composed(a, 0, b)
    if isinstance(b, Swizzle):
        return _product(a, b)
    if isinstance(b, ComposedLayout):
        return composed(_product(a, b.swizzle), b.offset, b.layout)
    return composed(a, 0, as_tiler(b, "composition"))


def _product(a: Swizzle, b: Swizzle) -> Swizzle:
    if a.is_identity:
        return b
    if b.is_identity:
        return a
    if a == b:
        return IDENTITY
    raise _no_form(a, b)


def _onto_composed(a: Layout, b: ComposedLayout) -> AnyLayout:
    if b.swizzle.is_identity:
        return composed(IDENTITY, a(b.offset), compose(a, b.layout, b.offset))
    # Powers of two: a on as many bits as b's values have, and b, are maps over F2; so is a after b.
    inner = linear(b)
    width = max(inner.constant, *inner.bases, 1).bit_length()
    result = as_layout(linear(compose(a, Layout(1 << width, 1))).after(inner))
    if isinstance(result, Layout):
        return compose(result, Layout(b.shape))
    return result.with_layout(compose(result.layout, Layout(b.shape)))


def _no_form(a: Any, b: Any) -> LayoutError:
    return LayoutError(
        f"{a} after {b} is no swizzle of an offset layout",
        operation="composition",
        remedy="compose the layouts first and swizzle last",
    )
