"""The methods of layouts as functions, and the normal form of a function."""

from __future__ import annotations

from typing import Any

from weft.layout.errors import LayoutError
from weft.layout.layout import Layout
from weft.layout.linear import as_layout, linear
from weft.layout.swizzle import IDENTITY, AnyLayout, composed


def size(layout: AnyLayout) -> Any:
    """The number of coordinates."""
    return layout.size()


def cosize(layout: AnyLayout) -> Any:
    """The length of the smallest interval that holds all values."""
    return layout.cosize()


def rank(layout: AnyLayout) -> int:
    """The number of modes at the top."""
    return layout.rank()


def depth(layout: AnyLayout) -> int:
    """0 for one mode alone, 1 for a flat tuple of modes, and so on."""
    return layout.depth()


def flatten(layout: AnyLayout) -> AnyLayout:
    """The same function with every mode at the top."""
    return layout.flatten()


def coalesce(layout: AnyLayout, profile: Any = None) -> AnyLayout:
    """The shortest layout of the same values; with a profile, of each of the modes at its leaves."""
    return layout.coalesce(profile)


def filter(layout: AnyLayout) -> AnyLayout:
    """Without the modes of size 1 or stride 0, coalesced."""
    return layout.filter()


def normal_form(layout: AnyLayout) -> AnyLayout:
    """The simplest form of the same function of the index: coalesced, no swizzle or offset that does nothing.

    Two layouts are the same function exactly if their coalesced forms are equal. Behind a swizzle that holds for powers
    of two without carries, where the form is the swizzle of fewest bits; elsewhere ask `equivalent`.
    """
    if isinstance(layout, Layout):
        return layout.coalesce()
    if layout.swizzle.is_identity:
        return composed(IDENTITY, layout.offset, layout.layout.coalesce())
    try:
        return as_layout(linear(layout))
    except LayoutError:
        return layout.coalesce()
