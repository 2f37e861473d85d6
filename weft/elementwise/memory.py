"""Whether results may be written where they lie: PyTorch's rules of overlap, and what they leave undefined.

PyTorch refuses a result with a stride of 0, and a densely lying result and input whose bytes meet unless both are one view. Of
memory with gaps it says nothing, and what threads then read depends on their order. Here such memory is looked at
element by element: what would depend on the order is refused too.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.elementwise.layouts import is_dense
from weft.elementwise.operands import Operand, Shape
from weft.errors import OverlapError
from weft.pytorch.overlap import meet, meet_elsewhere


def check_memory(outs: Sequence[Operand | None], inputs: Sequence[Operand], shape: Shape) -> None:
    """Raise OverlapError where a result that is given shares memory with itself, with another, or with an input elsewhere.

    shape: of the results, as `iterate` gives it. Results of other shapes have no elements and share nothing. An input may be
    the view that a result is, and may share an element with it that both have at the same index.
    """
    given = [out for out in outs if out is not None and out.shape == shape and out.elements and out.address is not None]
    for k, out in enumerate(given):
        own = out.view(shape)
        assert own is not None
        if meet_elsewhere(own, own):
            raise OverlapError(
                f"{out.name} is written, and two of its elements share memory",
                evidence=[_where(out)],
                remedy=f"write into a new tensor, or {out.name}.clone()",
            )
        for other in given[:k]:
            view = other.view(shape)
            if view is not None and meet(own, view):
                raise _shared(out, other, f"{other.name} is written too")
        for other in inputs:
            view = other.view(shape)
            if view is not None and (_partly(out, other) or (view != own and meet_elsewhere(own, view))):
                raise _shared(out, other, "elements of different indices share memory")


def _partly(out: Operand, other: Operand) -> bool:
    """Whether two densely lying tensors have bytes in common and are not one view (equal strides between equal ends)."""
    if not (other.elements and is_dense(out.shape, out.strides) and is_dense(other.shape, other.strides)):
        return False
    first, second = out.view(out.shape), other.view(other.shape)
    assert first is not None and second is not None
    one_view = (first.address, first.end, out.strides) == (second.address, second.end, other.strides)
    return first.space == second.space and first.address < second.end and second.address < first.end and not one_view


def _where(operand: Operand) -> str:
    shape, strides = list(operand.shape), list(operand.strides)
    return f"{operand.name} has shape {shape} and strides {strides} of {operand.dtype}, from {operand.address:#x}"


def _shared(out: Operand, other: Operand, how: str) -> OverlapError:
    return OverlapError(
        f"{out.name} is written, and {other.name} shares memory with it",
        evidence=[how, _where(out), _where(other)],
        remedy=f"pass {other.name}.clone(), or write into a new tensor",
    )
