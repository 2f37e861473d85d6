"""Chains of elementwise operators as programs have them: scalar functions, which PyTorch takes tensors for as they are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

import weft

New = Callable[..., torch.Tensor]  # a random tensor of a shape; dtype=, where it is not the chain's own


def gelu_dropout_residual(x, bias, kept, scale, residual, rate):
    """The end of a block: kept is the mask of a dropout, scale that of a layer."""
    h = torch.where(kept, F.gelu(x + bias), 0.0) / (1.0 - rate)
    return residual + scale * h


def rotary(first, second, cosine, sine):
    """The halves of queries, turned by an angle for each position and frequency."""
    return first * cosine - second * sine, second * cosine + first * sine


def adam(weight, gradient, mean, square, rate, decay, correction, square_correction):
    """A step of Adam with decoupled decay. The corrections: 1 - beta ** step of both averages."""
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.95 * square + 0.05 * gradient * gradient
    step = (mean / correction) / (torch.sqrt(square / square_correction) + 1e-8)
    return weight - rate * (step + decay * weight), mean, square


def clamped_swiglu(gate, up, gate_bias, up_bias):
    """A gated unit whose branches are kept from growing."""
    g = torch.clamp(gate + gate_bias, max=7.0)
    u = torch.clamp(up + up_bias, -7.0, 7.0)
    return g * torch.sigmoid(1.702 * g) * (u + 1.0)


def weighted_smooth_l1(found, wanted, weight, counted):
    """A loss an element: quadratic near 0, linear beyond, with a weight, where it counts."""
    distance = torch.abs(found - wanted)
    near = 0.5 * distance * distance / 0.25
    far = distance - 0.125
    return torch.where(counted, weight * torch.where(distance < 0.25, near, far), 0.0)


def switched_potential(square, left, right):
    """The energy of pairs at squared distances, which a polynomial of the fifth degree takes to 0 without a jump."""
    inverse = 1.0 / square
    sixth = inverse * inverse * inverse
    t = torch.clamp((square - 1.0) / 8.0, 0.0, 1.0)
    switch = 1.0 - t * t * t * (10.0 + t * (6.0 * t - 15.0))
    return left * right * (sixth * sixth - sixth) * switch


@dataclass(frozen=True)
class Chain:
    """A chain, how many operators it has, and its arguments: of (a random tensor of a shape, whether they are small)."""

    function: Callable[..., Any]
    operators: int
    make: Callable[[New, bool], tuple[Any, ...]]

    @property
    def title(self) -> str:
        return self.function.__name__.replace("_", " ")

    @functools.cached_property
    def fused(self) -> weft.Pointwise:
        return weft.pointwise(self.function)


def _rows(small: bool) -> tuple[int, int]:
    return (48, 64) if small else (16384, 4096)


def _of_a_block(new: New, small: bool) -> tuple[Any, ...]:
    n, m = _rows(small)
    return new(n, m), new(m), new(n, m) > -1.2, new(m), new(n, m), 0.1


def _queries(new: New, small: bool) -> tuple[Any, ...]:
    batch, length, heads, width = (2, 16, 4, 32) if small else (8, 4096, 16, 128)
    q, angle = new(batch, length, heads, width), new(length, 1, width // 2, dtype=torch.float32)
    dtype = q.dtype
    return q[..., : width // 2], q[..., width // 2 :], torch.cos(angle).to(dtype), torch.sin(angle).to(dtype)


def _of_a_step(new: New, small: bool) -> tuple[Any, ...]:
    n, m = _rows(small)
    weight, mean, square = (new(n, m, dtype=torch.float32) for _ in range(3))
    return weight, new(n, m), mean, square.square_(), 1e-3, 0.01, 0.3, 0.15


def _of_a_gate(new: New, small: bool) -> tuple[Any, ...]:
    n, m = _rows(small)
    both = new(n, 2 * m)
    return both[:, :m], both[:, m:], new(m), new(m)


def _of_a_loss(new: New, small: bool) -> tuple[Any, ...]:
    n, m = _rows(small)
    return new(n, m), new(n, m), new(n, 1, dtype=torch.float32), new(n, m) > 0


def _of_pairs(new: New, small: bool) -> tuple[Any, ...]:
    n, m = _rows(small)
    square, left, right = (new(n, m, dtype=torch.float32) for _ in range(3))
    return square.square_().add_(0.5), left, right


CHAINS = (
    Chain(gelu_dropout_residual, 6, _of_a_block),
    Chain(rotary, 6, _queries),
    Chain(adam, 16, _of_a_step),
    Chain(clamped_swiglu, 9, _of_a_gate),
    Chain(weighted_smooth_l1, 10, _of_a_loss),
    Chain(switched_potential, 19, _of_pairs),
)
