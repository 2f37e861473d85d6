"""Root-mean-square normalisation over the last dimension."""

from __future__ import annotations

import torch

import weft
from weft.kernels.rows import over_rows


@over_rows("x")
@weft.kernel(example={"x": "float32[64,1024]", "weight": "float32[1024]", "eps": 1e-6})
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """`torch.nn.functional.rms_norm(x, [length], weight, eps)`.

    x: [..., length], floating point; weight: [length]; eps: added to the mean square.
    Returns [..., length] of x's dtype; computed in the op-math type.
    """
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        squares = 0.0
        for l in range(length):
            squares = squares + x[r, l] * x[r, l]
        scale = torch.rsqrt(squares / length + eps)
        for l in range(length):
            y[r, l] = x[r, l] * scale * weight[l]
    return y
