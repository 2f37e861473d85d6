"""The types of arguments."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from weft.loops.types import FLOAT32, SCALAR_TYPES, ScalarType


@dataclass(frozen=True)
class TensorType:
    """The type of a tensor argument: the memory type of its elements and its number of dimensions.

    same: the parameter before it whose elements are its own, one of the two being written.
    """

    dtype: ScalarType
    rank: int
    same: str | None = None

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(':' * self.rank)}]"


# The type of an argument: a tensor's, or a scalar's.
ArgumentType = TensorType | ScalarType


def default_float() -> ScalarType:
    """PyTorch's default dtype, float32 while PyTorch is not loaded."""
    torch = sys.modules.get("torch")
    if torch is None:
        return FLOAT32
    name = str(torch.get_default_dtype()).removeprefix("torch.")
    return SCALAR_TYPES.get(name, FLOAT32)
