"""A bias, the exact GELU and a residual in one pass over memory."""

from __future__ import annotations

import math

import torch

import weft
from weft.kernels.rows import over_rows


@over_rows("x", "residual")
@weft.kernel(example={"x": "float32[64,1024]", "bias": "float32[1024]", "residual": "float32[64,1024]"})
def gelu_bias_residual(x: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    """`torch.nn.functional.gelu(x + bias) + residual`, with the exact (erf) GELU.

    x, residual: [..., length], floating point; bias: [length]. Returns [..., length] of x's dtype; computed in the
    op-math type with one rounding at the end.
    """
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        for l in range(length):
            z = x[r, l] + bias[l]
            y[r, l] = 0.5 * z * (1.0 + torch.erf(z * math.sqrt(0.5))) + residual[r, l]
    return y
