"""The operators that work element by element, and the kinds of accumulators: names, attributes and meaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Elementwise:
    """text: in weft's language, of operands "{0}" and "{1}" and attributes by name. meaning: in PyTorch, of the same."""

    operands: int
    text: str
    meaning: Callable[..., Any]
    attributes: tuple[str, ...] = ()

    @property
    def infix(self) -> bool:
        """Whether operands that are sums or products need parentheses."""
        return self.text.startswith("{0}")


ELEMENTWISE = {
    "exp": Elementwise(1, "torch.exp({0})", torch.exp),
    "silu": Elementwise(1, "F.silu({0})", torch.nn.functional.silu),
    "gelu": Elementwise(1, "F.gelu({0})", torch.nn.functional.gelu),
    "relu": Elementwise(1, "torch.relu({0})", torch.relu),
    "clamp": Elementwise(1, "torch.clamp({0}, {low}, {high})", torch.clamp, ("low", "high")),
    "sqrt": Elementwise(1, "torch.sqrt({0})", torch.sqrt),
    "square": Elementwise(1, "torch.square({0})", torch.square),
    "mul_scalar": Elementwise(1, "{0} * {scalar}", torch.mul, ("scalar",)),
    "add": Elementwise(2, "{0} + {1}", torch.add),
    "sub": Elementwise(2, "{0} - {1}", torch.sub),
    "mul": Elementwise(2, "{0} * {1}", torch.mul),
    "div": Elementwise(2, "{0} / {1}", torch.div),
    "pow": Elementwise(2, "torch.pow({0}, {1})", torch.pow),
}

# How the tiles of the turns of a loop become one. none: their sum, element by element. sum, mean, rms: of all elements along
# the last dimension of all tiles. sum_to_dim: the last dimension is summed in groups of neighbours until it has `size`
# elements. max: the largest, element by element. rescaled_sum: what there is times the turn's scale, and the turn's tile added.
ACCUMULATORS = ("none", "sum", "mean", "rms", "sum_to_dim", "max", "rescaled_sum")
DTYPES = ("float16", "bfloat16", "float32", "float64")


def opmath(dtype: str) -> str:
    """What values of a dtype are computed in."""
    return "float64" if dtype == "float64" else "float32"


def promoted(dtypes: list[str]) -> str:
    """The dtype of what is made of these."""
    if len(set(dtypes)) == 1:
        return dtypes[0]
    return "float64" if "float64" in dtypes else "float32"
