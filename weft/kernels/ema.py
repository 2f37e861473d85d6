"""Exponential moving averages."""

from __future__ import annotations

import torch

import weft
from weft.kernels.rows import over_rows


@over_rows("x")
@weft.kernel(example={"x": "float32[64,1024]", "alpha": 0.1})
def ema(x: torch.Tensor, alpha: float) -> torch.Tensor:
    """The average `y[..., l] = (1 - alpha) * y[..., l-1] + alpha * x[..., l]`, with `y[..., 0] = x[..., 0]`.

    x: [..., length], floating point; alpha: the weight of the newest element, in [0, 1].
    Returns [..., length] of x's dtype; the average is kept in the op-math type.
    """
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        average = 0.0
        for l in range(length):
            weight = 1.0 if l == 0 else alpha  # the first element is the first average
            average = (1.0 - weight) * average + weight * x[r, l]
            y[r, l] = average
    return y
