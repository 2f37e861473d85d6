"""Programs whose rows go through their points in order and fold their states at each of them."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - as PyTorch's own documents import it
from torch import Tensor

import weft


@weft.kernel
def last_states(x, w, first):
    """Backwards, from states that are given to states that are returned, with a largest one and a state of the row alone."""
    rows, length, width = x.shape
    y = torch.empty(rows, length, dtype=x.dtype)
    last = torch.empty_like(first)
    peaks = torch.empty(rows, dtype=x.dtype)
    for r in range(rows):
        h = torch.empty(width, dtype=x.dtype)
        for n in range(width):
            h[n] = first[r, n]
        peak = 1.0
        for l in range(length - 1, -1, -1):
            largest = -1.0
            for n in range(width):
                largest = max(largest, h[n] * w[n])
            peak = 0.5 * peak + torch.tanh(largest)
            for n in range(width):
                h[n] = torch.tanh(h[n] - 0.1 * largest) + x[r, l, n]
            y[r, l] = largest + peak
        for n in range(width):
            last[r, n] = h[n]
        peaks[r] = peak
    return y, last, peaks


@weft.kernel
def rotating(u, real, imaginary):
    """Complex states by their parts, each of which needs the other one."""
    rows, length = u.shape
    y = torch.empty_like(u)
    for r in range(rows):
        for l in range(length):
            y[r, l] = 0.0
        for n in range(real.shape[1]):
            a = 0.0
            b = 0.0
            for l in range(length):
                turned = real[r, n] * a - imaginary[r, n] * b + u[r, l]
                b = real[r, n] * b + imaginary[r, n] * a
                a = turned
                y[r, l] += a - b
    return y


def tokens(heads: int, length: int, width: int, lanes: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """Arguments of a gated delta rule; of linear attention all but the last one."""
    torch.manual_seed(0)
    q, k = (torch.randn(1, heads, length, width, dtype=torch.float64) for _ in range(2))
    v = torch.randn(1, heads, length, lanes, dtype=torch.float64)
    g = F.logsigmoid(torch.randn(1, heads, length, dtype=torch.float64) + 3)
    beta = torch.rand(1, heads, length, dtype=torch.float64)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    q, k, v, beta = (t.to(dtype) for t in (q * width**-0.5, F.normalize(k, dim=-1), v, beta))
    return q, k, v, g.to(wide), beta


def in_steps(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor | None = None) -> Tensor:
    """A gated delta rule in PyTorch, a step at a time; linear attention without beta."""
    state = torch.zeros(*q.shape[:2], q.shape[-1], v.shape[-1], dtype=q.dtype, device=q.device)
    found = []
    for t in range(q.shape[2]):
        state = torch.exp(g[:, :, t, None, None]) * state
        new = v[:, :, t]
        if beta is not None:
            new = beta[:, :, t, None] * (new - (k[:, :, t, :, None] * state).sum(-2))
        state = state + k[:, :, t, :, None] * new[..., None, :]
        found.append((q[:, :, t, :, None] * state).sum(-2))
    return torch.stack(found, 2)
