"""What makes an operator of a scalar function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.elementwise.pointwise import Pointwise
from weft.language.capture import ONE_OPERATION


def operator(function: Callable[..., Any]) -> Pointwise:
    """A scalar function that is one operator of PyTorch's: in a strict chain it rounds once, where it ends."""
    setattr(function, ONE_OPERATION, True)
    return Pointwise(function)
