"""Tensors as the axes of an iteration have them, and results as the user's dimensions have them."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def axes_of(strides: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """The axes of the iteration that an operand is no broadcast along. strides: its own along each, in elements."""
    return tuple(axis for axis, (stride, size) in enumerate(zip(strides, sizes, strict=True)) if stride or size == 0)


def as_it_lies(tensor: torch.Tensor, sizes: Sequence[int], strides: Sequence[int], axes: Sequence[int]) -> torch.Tensor:
    """The elements of a tensor over these axes of the iteration, of which it has these strides."""
    return tensor.as_strided([sizes[a] for a in axes], [strides[a] for a in axes])


def by_dimensions(tensor: torch.Tensor, shape: Sequence[int], order: Sequence[int], sizes: Sequence[int]) -> torch.Tensor:
    """The same of a tensor that is broadcast to a shape, by views that PyTorch differentiates and records.

    order: the dimensions of the shape, the outermost of the iteration first. sizes: of the axes that it has.
    """
    if 0 in shape:  # axes without elements are all tensors' own, as `axes_of` has it
        tensor = tensor.expand(list(shape))
    leading = len(shape) - tensor.dim()
    dims = [d - leading for d in order if d >= leading]
    return tensor.permute(dims).reshape(list(sizes))


def result_of(made: torch.Tensor, shape: Sequence[int], order: Sequence[int], strides: Sequence[int] | None) -> torch.Tensor:
    """What the loops made, contiguous along the axes of the iteration, as a tensor of the user's shape.

    strides: those that PyTorch gives it; they differ from the ones that the order tells in dimensions of size 1 alone. None:
    whatever comes out.
    """
    if tuple(order) == tuple(range(len(shape))):
        out = made if made.shape == torch.Size(shape) else made.view(list(shape))
    else:
        inverse = [0] * len(order)
        for position, dim in enumerate(order):
            inverse[dim] = position
        out = made.view([shape[d] for d in order]).permute(inverse)
    if strides is None or out.stride() == tuple(strides):
        return out
    return out.as_strided(list(shape), list(strides))
