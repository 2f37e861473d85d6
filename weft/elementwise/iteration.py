"""How PyTorch iterates over the operands of a pointwise operator on a GPU, as functions of their shapes and strides.

The shape of the results is what the operands broadcast to. Their strides follow the operands: a new result is packed in the
order of axes in which the operands lie in memory. The axes that a kernel then counts along are as few as one affine map for
each operand allows.

PyTorch's CPU operators copy an operand to the common dtype before they look at its strides, so that a result of mixed dtypes
may lie otherwise there; on a GPU, and here, dtypes say nothing about strides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from weft.elementwise.layouts import CHANNELS_LAST, contiguous_strides, is_channels_last, is_contiguous, is_dense, packed
from weft.elementwise.operands import Operand, Shape, Strides
from weft.errors import ShapeMismatch

# The largest offset that a signed 32-bit number holds.
_MOST = 2**31 - 1


@dataclass(frozen=True)
class Iteration:
    """Where every operand's element lies for every element of the results.

    shape: of the results. order: their axes as they lie in memory, outermost first. results: the strides of each result.
    sizes: of the axes that are counted along, outermost first: none of size 1, no two that are one axis for every operand;
    () for one element and (0,) for none. strides: of each operand along these axes, the results first, then the inputs;
    0 where it is repeated. All strides count elements.
    """

    shape: Shape
    order: tuple[int, ...]
    results: tuple[Strides, ...]
    sizes: tuple[int, ...]
    strides: tuple[Strides, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.sizes)

    def wide(self, widths: Sequence[int]) -> bool:
        """Whether offsets need 64 bits: more than 2**31 - 1 elements, or bytes from the first to behind the last start of an
        operand's. widths: the bytes of an element of each operand, as in `strides`."""
        return self.elements > _MOST or any(
            1 + width * sum((n - 1) * stride for n, stride in zip(self.sizes, strides, strict=True)) > _MOST
            for width, strides in zip(widths, self.strides, strict=True)
        )


def iterate(inputs: Sequence[Operand], outs: Sequence[Operand | None] = (None,)) -> Iteration:
    """The iteration of an operator over its inputs, Python numbers among them, into its results.

    outs: one for each result: None for a new one; an operand that is given keeps its strides, unless it has no elements and
    is resized. One that is also an input (the same object) is updated in place. A number that an operator has as a parameter
    (`alpha` of torch.add, `min` of torch.clamp) is none of its inputs.

    Raises ShapeMismatch where inputs do not broadcast, or results that are given have another shape.
    """
    shape = broadcast([operand.shape for operand in inputs], [operand.name for operand in inputs])
    for out in outs:
        if out is not None:
            _check_shape(out, shape, inputs)
    given = [out if out is not None and out.shape == shape else None for out in outs]
    order, new = arrange(shape, [operand for operand in (*given, *inputs) if operand is not None])
    results = tuple(new if out is None else out.strides for out in given)
    sizes, strides = coalesce(shape, order, [*results, *(operand.across(shape) for operand in inputs)])
    return Iteration(shape, order, results, sizes, strides)


def broadcast(shapes: Sequence[Shape], names: Sequence[str] = ()) -> Shape:
    """The shape that all broadcast to, aligned at their last axes; ShapeMismatch where sizes differ and neither is 1."""
    rank = max(map(len, shapes), default=0)
    sizes, source = [1] * rank, [0] * rank  # source: whose size it is
    for k, shape in enumerate(shapes):
        for axis, size in enumerate(shape, rank - len(shape)):
            if size != 1 and sizes[axis] == 1:
                sizes[axis], source[axis] = size, k
            elif size not in (1, sizes[axis]):
                raise _do_not_broadcast(shapes, names, source[axis], k, rank - axis)
    return tuple(sizes)


def _do_not_broadcast(shapes: Sequence[Shape], names: Sequence[str], a: int, b: int, from_end: int) -> ShapeMismatch:
    def called(k: int) -> str:
        return names[k] if names else f"operand {k}"

    facts = [f"{called(k)} has shape {list(shapes[k])}, size {shapes[k][-from_end]} along axis {-from_end}" for k in (a, b)]
    return ShapeMismatch(
        f"{called(a)} and {called(b)} do not broadcast",
        evidence=facts,
        remedy=f"make their sizes along axis {-from_end} agree, or one of them 1 (unsqueeze where an axis is missing)",
    )


def _check_shape(out: Operand, shape: Shape, inputs: Sequence[Operand]) -> None:
    """Raise ShapeMismatch where a result that is given can neither be written nor resized."""
    if out.shape == shape:
        return
    facts = [f"{operand.name} has shape {list(operand.shape)}" for operand in (out, *(i for i in inputs if i is not out))]
    if any(out is operand for operand in inputs):
        raise ShapeMismatch(
            f"{out.name} is updated in place, and the operands broadcast to {list(shape)}",
            evidence=facts,
            remedy=f"keep the result as a new tensor, or write it into one of shape {list(shape)} with out=",
        )
    if out.elements:
        raise ShapeMismatch(
            f"{out.name} has another shape than the result, {list(shape)}",
            evidence=facts,
            remedy=f"pass a tensor of shape {list(shape)}, or {out.name}.resize_(0), which is then resized",
        )


def arrange(shape: Shape, operands: Sequence[Operand]) -> tuple[tuple[int, ...], Strides]:
    """The order of the axes, outermost first, and the strides of a new result.

    operands: the results that are given and keep their strides, then the inputs. If all of them have one shape, a new result
    is contiguous where they all are, else channels-last where they all are, else strided as they are where their elements
    lie densely and all alike. Otherwise it is packed in the order of `permutation`.
    """
    if operands and all(operand.shape == shape for operand in operands):
        strides = operands[-1].strides
        if all(is_contiguous(shape, operand.strides) for operand in operands):
            return tuple(range(len(shape))), contiguous_strides(shape)
        if all(is_channels_last(shape, operand.strides) for operand in operands):
            return CHANNELS_LAST, packed(shape, CHANNELS_LAST)
        if is_dense(shape, strides) and all(operand.strides == strides for operand in operands):
            return permutation(shape, [strides]), strides
    order = permutation(shape, [operand.across(shape) for operand in operands])
    in_order = order == tuple(range(len(shape)))
    return order, contiguous_strides(shape) if in_order else packed(shape, order)


def permutation(shape: Shape, strides: Sequence[Strides]) -> tuple[int, ...]:
    """The axes from the largest stride to the smallest, by the first operand that can tell.

    strides: of each operand along the axes of the shape, 0 where it is repeated. Whether an axis lies outside another is told
    by the first operand that has strides along both that differ, or equal ones and more elements along the outer. Where no
    operand tells, axes keep their places; comparisons like these are no order, so the way of sorting is part of the rule:
    from the innermost axis to the outermost, each sinks inwards past all that it lies inside of, until it meets one that it
    lies outside of.
    """
    order: list[int] = []  # innermost first
    for axis in reversed(range(len(shape))):
        place = len(order)
        order.append(axis)
        for k in reversed(range(place)):
            lies = _compare(shape, strides, order[k], axis)
            if lies < 0:
                break
            if lies > 0:
                order[k], order[place] = axis, order[k]
                place = k
    return tuple(reversed(order))


def _compare(shape: Shape, strides: Sequence[Strides], a: int, b: int) -> int:
    """1 where axis a lies outside axis b, -1 inside of it, 0 where no operand tells."""
    for along in strides:
        one, other = along[a], along[b]
        if one and other:
            if one != other:
                return 1 if one > other else -1
            if shape[a] > shape[b]:
                return 1
    return 0


def coalesce(shape: Shape, order: Sequence[int], strides: Sequence[Strides]) -> tuple[tuple[int, ...], tuple[Strides, ...]]:
    """The sizes of the axes to count along, outermost first, and the strides of each operand along them.

    Axes of size 1 are left out, and an axis that steps, in every operand, by what all of the next one inside it spans is one
    axis with it.
    """
    if 0 in shape:
        return (0,), tuple((0,) for _ in strides)
    sizes: list[int] = []  # innermost first, as `steps`, which has a row for each axis
    steps: list[Strides] = []
    for axis in reversed(order):
        step = tuple(along[axis] for along in strides)
        if shape[axis] == 1:
            continue
        if sizes and all(outer == sizes[-1] * inner for outer, inner in zip(step, steps[-1], strict=True)):
            sizes[-1] *= shape[axis]
        else:
            sizes.append(shape[axis])
            steps.append(step)
    return tuple(reversed(sizes)), tuple(tuple(row[k] for row in reversed(steps)) for k in range(len(strides)))
