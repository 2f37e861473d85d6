"""Arguments of a simulated launch."""

from __future__ import annotations

from dataclasses import dataclass

from weft.runtime.tensor_map import TensorMap


@dataclass(frozen=True)
class Tensor:
    """An array in host memory, which the kernel reads and writes in place.

    bytes: from its first to its last element. role: "input", "output" or "inout". shape, strides (in elements): where
    elements lie, for an array that does not fill its bytes. written: for each element place of those bytes whether it
    has a value; kept up to date, so that it can be handed to the next launch. None: all have, or none of an "output".
    """

    name: str
    address: int
    bytes: int
    element_bytes: int
    role: str
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    written: bytearray | None = None


@dataclass(frozen=True)
class Integer:
    value: int


@dataclass(frozen=True)
class Real:
    value: float
    bits: int = 64


@dataclass(frozen=True)
class Map:
    """A tensor map over a tensor of the same launch, by value."""

    map: TensorMap
    tensor: Tensor


Argument = Tensor | Integer | Real | Map
