"""First-order linear recurrences, forwards and in reverse."""

from __future__ import annotations

import torch

import weft
from weft.kernels.rows import over_rows


@over_rows("x", "c")
@weft.kernel(example={"x": "float32[64,1024]", "c": "float32[64,1024]"})
def linrec(x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """`y[..., l] = c[..., l] * y[..., l-1] + x[..., l]`, starting from zero.

    x, c: [..., length], floating point. Returns [..., length] of x's dtype; the state is kept in the op-math type.
    """
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = 0.0
        for l in range(length):
            h = c[r, l] * h + x[r, l]
            y[r, l] = h
    return y


@over_rows("x", "c")
@weft.kernel(example={"x": "float32[64,1024]", "c": "float32[64,1024]"})
def linrec_reverse(x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """`y[..., l] = c[..., l] * y[..., l+1] + x[..., l]`, from the last element to the first, starting from zero.

    x, c: [..., length], floating point. Returns [..., length] of x's dtype; the state is kept in the op-math type.
    """
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = 0.0
        for l in range(length - 1, -1, -1):
            h = c[r, l] * h + x[r, l]
            y[r, l] = h
    return y
