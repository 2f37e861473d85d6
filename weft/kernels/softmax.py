"""Softmax over the last dimension."""

from __future__ import annotations

import math

import torch

import weft
from weft.kernels.rows import over_rows


@over_rows("x")
@weft.kernel(example={"x": "float32[64,1024]"})
def softmax(x: torch.Tensor) -> torch.Tensor:
    """`torch.softmax(x, -1)`.

    x: [..., length], floating point. Returns [..., length] of x's dtype; computed in the op-math type.
    """
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        largest = -math.inf
        for l in range(length):
            largest = max(largest, x[r, l])
        total = 0.0
        for l in range(length):
            total = total + torch.exp(x[r, l] - largest)
        for l in range(length):
            y[r, l] = torch.exp(x[r, l] - largest) / total
    return y
