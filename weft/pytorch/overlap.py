"""Whether strided views of memory meet: decided from addresses, sizes and steps alone, never from what lies there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch._subclasses.fake_tensor import FakeTensor

# How many distances are tried before two views are taken to meet.
_MOST_DISTANCES = 10_000


@dataclass(frozen=True)
class View:
    """Elements of memory: how many along each axis; in bytes, how far apart and how wide, and the address of the first.

    space: which memory the address counts in; 0: the machine's own.
    """

    address: int
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    width: int
    space: int = 0

    @staticmethod
    def of(tensor: torch.Tensor) -> View:
        """Where a tensor lies. A storage without memory is a space of its own."""
        width = tensor.element_size()
        shape, steps = tuple(tensor.shape), tuple(s * width for s in tensor.stride())
        if tensor.is_meta or isinstance(tensor, FakeTensor):
            offset = cast(int, tensor.storage_offset())  # under torch.compile a symbol, and no number is asked of it here
            return View(offset * width, shape, steps, width, tensor.untyped_storage()._cdata)
        return View(tensor.data_ptr(), shape, steps, width)

    @property
    def end(self) -> int:
        """The address behind the last byte, of a view that has elements."""
        return self.address + sum((n - 1) * s for n, s in zip(self.shape, self.steps, strict=True)) + self.width


@dataclass(frozen=True)
class _Axis:
    """What a distance in memory is a sum of: `step` times a number from `least` to `most`."""

    step: int
    least: int
    most: int


def share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether an element of one tensor lies where one of the other does."""
    return meet(View.of(a), View.of(b))


def meet(a: View, b: View) -> bool:
    """Whether an element of one view lies where one of the other does."""
    if _apart(a, b):
        return False
    spans: dict[int, tuple[int, int]] = {}  # axes of one step are one axis
    for view, sign in ((a, -1), (b, 1)):
        for size, step in zip(view.shape, view.steps, strict=True):
            least, most = spans.get(step, (0, 0))
            spans[step] = (least, most + size - 1) if sign > 0 else (least - size + 1, most)
    axes = [_Axis(step, least, most) for step, (least, most) in spans.items() if step]
    return _within(axes, *_touching(a, b), lambda _: True)


def meet_elsewhere(a: View, b: View) -> bool:
    """Whether an element of one view lies where one of the other view does that has another index (of one shape).

    A view meets itself elsewhere where two of its elements share memory.
    """
    if _apart(a, b):
        return False
    axes: list[_Axis] = []
    indices: list[int] = []  # the axis of the views that each of `axes` is of
    for k, (size, first, second) in enumerate(zip(a.shape, a.steps, b.steps, strict=True)):
        if size == 1:
            continue
        if 0 in (first, second):
            return meet(a, b)  # where they meet they do so at any index of this axis
        if first == second:
            axes.append(_Axis(first, 1 - size, size - 1))
            indices.append(k)
        else:
            axes += [_Axis(first, 1 - size, 0), _Axis(second, 0, size - 1)]
            indices += [k, k]

    def differ(values: Sequence[int]) -> bool:
        between = dict.fromkeys(indices, 0)
        for k, value in zip(indices, values, strict=True):
            between[k] += value
        return any(between.values())

    return _within(axes, *_touching(a, b), differ)


def _apart(a: View, b: View) -> bool:
    return a.space != b.space or 0 in a.shape or 0 in b.shape or a.end <= b.address or b.end <= a.address


def _touching(a: View, b: View) -> tuple[int, int]:
    """The least and the most that an element of b lies behind one of a where they touch, less what the first ones do."""
    return 1 - b.width - (b.address - a.address), a.width - 1 - (b.address - a.address)


def _within(axes: Sequence[_Axis], low: int, high: int, holds: Callable[[Sequence[int]], bool]) -> bool:
    """Whether numbers of the axes for which `holds` make a distance between low and high (or that is too long to find out)."""
    order = sorted(range(len(axes)), key=lambda k: -axes[k].step)
    below, above = [0], [0]
    for k in reversed(order):
        below.append(below[-1] + axes[k].step * axes[k].least)
        above.append(above[-1] + axes[k].step * axes[k].most)
    values, left = [0] * len(axes), _MOST_DISTANCES

    def found(depth: int, low: int, high: int) -> bool:
        nonlocal left
        if depth == len(order):
            return low <= 0 <= high and holds(values)
        left -= 1
        if left < 0:
            return True
        axis, inner = axes[order[depth]], len(order) - depth - 1
        first = max(axis.least, -((above[inner] - low) // axis.step))
        last = min(axis.most, (high - below[inner]) // axis.step)
        for value in range(first, last + 1):
            values[order[depth]] = value
            if found(depth + 1, low - axis.step * value, high - axis.step * value):
                return True
        return False

    return found(0, low, high)
