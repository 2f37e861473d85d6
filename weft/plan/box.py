"""Boxes of arrays, which bulk copies bring to shared memory by themselves (TMA, from sm_90 on)."""

from __future__ import annotations

from dataclasses import dataclass

from weft.plan.facts import Geometry


@dataclass(frozen=True)
class Box:
    """axes: of the array, the contiguous one first; extents: how many elements of each a copy brings; shape: how many there
    are, zeros beyond. Lines of 128 bytes are swizzled. packed: how the array lies, if it is memory that the launches share.
    """

    array: str
    axes: tuple[int, ...]
    extents: tuple[int, ...]
    shape: tuple[int, ...]
    packed: Geometry | None = None
