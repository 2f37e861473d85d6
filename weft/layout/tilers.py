"""Tilers: what a layout may be composed with or divided by, mode by mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.layout.errors import LayoutError
from weft.layout.layout import Layout, concatenate
from weft.layout.symbolic import Size
from weft.layout.tuples import as_integer


def as_tiler(x: Any, operation: str) -> Layout:
    """The layout that a tiler stands for: itself, or n:1 for a size n. Raises LayoutError for anything else."""
    if type(x) is Layout:
        return x
    if isinstance(x, Size):
        return Layout(x, 1)
    if isinstance(x, bool) or not hasattr(x, "__index__"):
        raise LayoutError(f"{x!s} is no tiler", operation=operation, remedy="give a Layout, an int or a tuple of them")
    return Layout(as_integer(x, "sizes of tiles"), 1)


def by_mode(layout: Layout, tilers: tuple[Any, ...], operation: Callable[[Layout, Any], Layout], name: str) -> Layout:
    """The layout with the operation applied to each of its first modes and its tiler; None leaves a mode whole.

    Tuples of tilers reach into the modes of modes. Modes without a tiler stay as they are. Raises LayoutError where
    there are more tilers than modes.
    """
    if len(tilers) > layout.rank():
        raise LayoutError(
            f"{len(tilers)} tilers for the {layout.rank()} modes of {layout}",
            operation=name,
            remedy="give at most one tiler a mode",
        )
    modes = list(layout)
    cut = []
    for mode, tiler in zip(modes, tilers, strict=False):
        if tiler is None:
            cut.append(mode)
        elif isinstance(tiler, (tuple, list)):
            cut.append(by_mode(mode, tuple(tiler), operation, name))
        else:
            cut.append(operation(mode, tiler))
    return concatenate(*cut, *modes[len(tilers) :])


def unzip(layout: Layout, tiler: Any, whole: int) -> tuple[Layout, Layout]:
    """The first parts, and the second ones, of modes that tilers made two of. whole: among which modes without a tiler are."""
    if not isinstance(tiler, (tuple, list)):
        return layout[0], layout[1]
    parts: tuple[list[Layout], list[Layout]] = [], []
    for mode, t in zip(layout, tiler, strict=False):
        if t is None:
            parts[whole].append(mode)
        else:
            for part, own in zip(parts, unzip(mode, t, whole), strict=True):
                part.append(own)
    parts[whole].extend(list(layout)[len(tiler) :])
    return concatenate(*parts[0]), concatenate(*parts[1])
