"""Elements as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

Subscripts = tuple[str, ...]


@dataclass(frozen=True)
class Term:
    """An element, or a number of Python's that the loops or the program know."""

    text: str
    number: bool = False


def number(value: Any, dtype: torch.dtype) -> str:
    """A number of the program, as one of a dtype's kind."""
    if dtype is torch.bool:
        return str(bool(value))
    if not dtype.is_floating_point:
        return str(int(value))
    made = float(value)
    if made != made:
        return "math.nan"
    if made in (float("inf"), float("-inf")):
        return "math.inf" if made > 0 else "-math.inf"
    return repr(made)
