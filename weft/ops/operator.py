"""What makes an operator of a scalar function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from weft.elementwise.pointwise import Pointwise
from weft.language.capture import ONE_OPERATION


def operator(function: Callable[..., Any], parameters: str = "") -> Pointwise:
    """A scalar function that is one operator of PyTorch's: in a strict chain it rounds once, where it ends.

    parameters: names, apart from those that have defaults, of which PyTorch takes a number as a parameter of the operator and
    not as one of the operands that it iterates over.
    """
    setattr(function, ONE_OPERATION, True)
    defaults = {n for n, p in inspect.signature(function).parameters.items() if p.default is not p.empty}
    return Pointwise(function, parameters=frozenset(parameters.split()) | defaults)


def with_parameters(parameters: str) -> Callable[[Callable[..., Any]], Pointwise]:
    """A decorator: an operator with these parameters."""
    return lambda function: operator(function, parameters)
