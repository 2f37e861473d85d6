"""Cumulative sums."""

from __future__ import annotations

import torch

import weft
from weft.kernels.rows import over_rows


@over_rows("x")
@weft.kernel(example={"x": "float32[64,1024]"})
def cumsum(x: torch.Tensor) -> torch.Tensor:
    """`torch.cumsum(x, -1)` in x's dtype.

    x: [..., length]. Returns [..., length] of x's dtype; float16 and bfloat16 are summed in float32.
    """
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        total = 0
        for l in range(length):
            total = total + x[r, l]
            y[r, l] = total
    return y
