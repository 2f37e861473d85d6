"""Layer normalisation over the last dimension."""

from __future__ import annotations

import torch

import weft
from weft.kernels.rows import over_rows


@over_rows("x")
@weft.kernel(
    example={"x": "float32[64,1024]", "weight": "float32[1024]", "bias": "float32[1024]", "eps": 1e-5},
)
def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """`torch.nn.functional.layer_norm(x, [length], weight, bias, eps)`.

    x: [..., length], floating point; weight, bias: [length]; eps: added to the variance.
    Returns [..., length] of x's dtype; computed in the op-math type, the variance around the mean in a second pass.
    """
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        total = 0.0
        for l in range(length):
            total = total + x[r, l]
        mean = total / length
        squares = 0.0
        for l in range(length):
            squares = squares + (x[r, l] - mean) * (x[r, l] - mean)
        scale = torch.rsqrt(squares / length + eps)
        for l in range(length):
            y[r, l] = (x[r, l] - mean) * scale * weight[l] + bias[l]
    return y
