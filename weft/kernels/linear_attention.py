"""Linear attention with a decay, and the gated delta rule: a matrix of states a head, which each token changes and reads."""

from __future__ import annotations

from typing import Any

import torch

import weft

_TENSORS = {
    "q": "bfloat16[1,16,1024,64]",
    "k": "bfloat16[1,16,1024,64]",
    "v": "bfloat16[1,16,1024,64]",
    "g": "float32[1,16,1024]",
}


@weft.kernel(example=dict(_TENSORS))
def linear_attention(q: Any, k: Any, v: Any, g: Any) -> Any:
    """`S = exp(g[t]) S + k[t] v[t]^T; o[t] = S^T q[t]`, from a state of zeros.

    q, k: [batch, heads, length, width]; v: [batch, heads, length, lanes], floating point; g, the logarithms of the decays:
    [batch, heads, length]. Returns [batch, heads, length, lanes] of v's dtype; states are float32 (float64 of float64).
    """
    batch, heads, length, width = q.shape
    o = torch.empty_like(v)
    for b in range(batch):
        for h in range(heads):
            for e in range(v.shape[3]):
                state = torch.zeros(width, dtype=torch.float64 if q.dtype == torch.float64 else torch.float32)
                for t in range(length):
                    total = 0.0
                    for d in range(width):
                        state[d] = torch.exp(g[b, h, t]) * state[d] + k[b, h, t, d] * v[b, h, t, e]
                        total += q[b, h, t, d] * state[d]
                    o[b, h, t, e] = total
    return o


@weft.kernel(example={**_TENSORS, "beta": "bfloat16[1,16,1024]"})
def gated_delta_rule(q: Any, k: Any, v: Any, g: Any, beta: Any) -> Any:
    """`S = exp(g[t]) (S - beta[t] k[t] (k[t]^T S)) + beta[t] k[t] v[t]^T; o[t] = S^T q[t]`, from a state of zeros.

    q, k, v, g and the result: as of `linear_attention`; beta, how much of a token is written: [batch, heads, length].
    """
    batch, heads, length, width = q.shape
    o = torch.empty_like(v)
    for b in range(batch):
        for h in range(heads):
            for e in range(v.shape[3]):
                state = torch.zeros(width, dtype=torch.float64 if q.dtype == torch.float64 else torch.float32)
                for t in range(length):
                    decay = torch.exp(g[b, h, t])
                    found = 0.0
                    for d in range(width):
                        found += k[b, h, t, d] * state[d]
                    new = beta[b, h, t] * (v[b, h, t, e] - decay * found)
                    total = 0.0
                    for d in range(width):
                        state[d] = decay * state[d] + k[b, h, t, d] * new
                        total += q[b, h, t, d] * state[d]
                    o[b, h, t, e] = total
    return o
