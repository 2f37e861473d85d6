"""The operands of a pointwise operator as plain facts: what every rule of this room is a function of."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from weft.pytorch.overlap import View

Shape = tuple[int, ...]
Strides = tuple[int, ...]
Number = bool | int | float | complex
_NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}


@dataclass(frozen=True)
class Operand:
    """A tensor or a Python number: its name in messages, shape, strides in elements and dtype.

    address: where the first element lies, in bytes, of the memory `space` (0: the machine's own); None where nothing else
    lies in the operand's memory. number: whether it is a Python number (of bool, int64, float64 or complex128).
    """

    name: str
    shape: Shape
    strides: Strides
    dtype: torch.dtype
    address: int | None = None
    space: int = 0
    number: bool = False

    @staticmethod
    def of(name: str, value: torch.Tensor | Number) -> Operand:
        """The facts of a tensor (on any device, without memory too) or of a Python number."""
        if isinstance(value, torch.Tensor):
            view = View.of(value)
            return Operand(name, tuple(value.shape), value.stride(), value.dtype, view.address, view.space)
        return Operand(name, (), (), _NUMBERS[type(value)], number=True)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    def across(self, shape: Shape) -> Strides:
        """The strides along the axes of a shape that the operand broadcasts to: 0 where it is repeated or has no axis."""
        missing = len(shape) - len(self.shape)
        own = zip(self.shape, shape[missing:], self.strides, strict=True)
        return (0,) * missing + tuple(0 if n == 1 and wanted != 1 else stride for n, wanted, stride in own)

    def view(self, shape: Shape) -> View | None:
        """The operand's memory, broadcast to a shape; None where nothing else lies in it."""
        if self.address is None:
            return None
        width = self.dtype.itemsize
        return View(self.address, shape, tuple(stride * width for stride in self.across(shape)), width, self.space)
