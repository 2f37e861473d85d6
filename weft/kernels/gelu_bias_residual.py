"""A bias, the exact GELU and a residual in one pass over memory."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - as PyTorch's own documents import it

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
            y[r, l] = F.gelu(x[r, l] + bias[l]) + residual[r, l]
    return y
