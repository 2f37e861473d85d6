"""How a tensor lies in memory, by its shape and strides alone, as PyTorch names it.

An axis of one element has a stride that says nothing, and a tensor without elements lies any way one likes.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.elementwise.operands import Shape, Strides

CHANNELS_LAST = (0, 2, 3, 1)


def packed(shape: Shape, order: Sequence[int]) -> Strides:
    """The strides of elements without gaps, the axes in an order, outermost first (those inside an axis of none are 1)."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def contiguous_strides(shape: Shape) -> Strides:
    """The strides of `torch.empty(shape)`: as if an axis of no element had one."""
    return packed(tuple(max(size, 1) for size in shape), range(len(shape)))


def is_contiguous(shape: Shape, strides: Strides) -> bool:
    """`tensor.is_contiguous()`."""
    return 0 in shape or _follows(shape, strides, range(len(shape)))


def is_channels_last(shape: Shape, strides: Strides) -> bool:
    """`tensor.is_contiguous(memory_format=torch.channels_last)`."""
    return len(shape) == 4 and _follows(shape, strides, CHANNELS_LAST)


def is_dense(shape: Shape, strides: Strides) -> bool:
    """Whether the elements fill a stretch of memory, each its own place (PyTorch: non-overlapping and dense)."""
    return 0 in shape or _follows(shape, strides, sorted(range(len(shape)), key=lambda k: -strides[k]))


def _follows(shape: Shape, strides: Strides, order: Sequence[int]) -> bool:
    """Whether the strides are those of elements without gaps, the axes in an order, outermost first."""
    step = 1
    for axis in reversed(order):
        if shape[axis] != 1:
            if strides[axis] != step:
                return False
            step *= shape[axis]
    return True
