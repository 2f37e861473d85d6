"""Scans of every shape: few long rows, channels side by side, sums and extrema, against torch.

Bytes are counted as the algorithm needs them, once each. A linear recurrence and its gradient are held against a torch.add of
equal bytes, the rest against torch's own function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import weft
from bench.harness import Options, Row, need_gpu, rows_of
from weft.kernels.cumsum import cumsum
from weft.kernels.linrec import linrec
from weft.runtime.timing import Backward, adds_of_equal_bytes, gradients_ms, rotations, times_in_turn

Shape = tuple[int, ...]


@weft.kernel
def time_major(x, c):
    batch, length, channels = x.shape
    y = torch.empty_like(x)
    for b in range(batch):
        for d in range(channels):
            h = 0.0
            for t in range(length):
                h = c[b, t, d] * h + x[b, t, d]
                y[b, t, d] = h
    return y


@weft.kernel
def cummax(x):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        best = -math.inf
        for t in range(length):
            best = max(best, x[r, t])
            y[r, t] = best
    return y


@weft.kernel
def logcumsumexp(x):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        high, total = -math.inf, 0.0
        for t in range(length):
            new = max(high, x[r, t])
            total = total * torch.exp(high - new) + torch.exp(x[r, t] - new)
            high = new
            y[r, t] = torch.log(total) + high
    return y


@dataclass(frozen=True)
class Recurrence:
    """A linear recurrence and the shape of its inputs."""

    kernel: Any
    shape: Shape
    dtype: torch.dtype = torch.float32


RECURRENCES = (
    *(Recurrence(linrec, (rows, (1 << 26) // rows)) for rows in (132, 8, 1)),
    *(Recurrence(time_major, (batch, (1 << 26) // (batch * channels), channels))
      for batch, channels in ((8, 64), (8, 1024), (1, 64), (1, 512), (1, 8192), (64, 1024))),
    Recurrence(time_major, (8, 8192, 1024), torch.bfloat16),
    Recurrence(time_major, (1, 1048576, 64), torch.bfloat16),
    Recurrence(time_major, (1, 1032444, 65), torch.bfloat16),
    Recurrence(time_major, (8, 8193, 1023)),
)  # fmt: skip


@dataclass(frozen=True)
class Work:
    """A kernel, the same in PyTorch, the shape of x."""

    kernel: Any
    peer: Callable[..., Any]
    shape: Shape


WORKS = (
    *(Work(cumsum, partial(torch.cumsum, dim=1), shape) for shape in ((1, 1 << 26), (4096, 1 << 14))),
    *(Work(cummax, lambda x: torch.cummax(x, dim=1).values, shape) for shape in ((1, 1 << 26), (4096, 1 << 14))),
    *(Work(logcumsumexp, partial(torch.logcumsumexp, dim=1), shape) for shape in ((1, 1 << 26), (4096, 1 << 14))),
)


def run(options: Options) -> list[Row]:
    need_gpu(options)
    measured: list[Row] = []
    for work in RECURRENCES:
        measured += _recurrence(work, options)
    for own in WORKS:
        shape = tuple(min(n, 30000) for n in own.shape) if options.quick else own.shape
        moved = 8 * math.prod(shape)
        sets = [torch.randn(shape, device=options.device) for _ in range(rotations(moved))]
        with torch.no_grad():
            torch.testing.assert_close(own.kernel(sets[0]).double(), own.peer(sets[0].double()), rtol=1e-3, atol=1.0)
            calls = [[partial(f, x) for x in sets] for f in (own.kernel, own.peer)]
            times = times_in_turn(calls, options.device, seconds=options.seconds)
        case = {"kernel": own.kernel.name, "shape": list(shape), "dtype": "float32", "bytes": moved}
        measured += rows_of("scans", case, times, ["torch eager"])
    return measured


def _recurrence(work: Recurrence, options: Options) -> list[Row]:
    device = options.device
    shape = tuple(min(n, 3000) for n in work.shape) if options.quick else work.shape
    elements = math.prod(shape) * work.dtype.itemsize
    generator = torch.Generator(device).manual_seed(0)

    def made(function: Callable[..., Tensor]) -> Tensor:
        return function(shape, device=device, generator=generator).to(work.dtype)

    sets = [(made(torch.randn), made(torch.rand), made(torch.randn)) for _ in range(rotations(3 * elements))]
    x, c, _ = sets[0]
    along = shape.index(max(shape)) if len(shape) == 2 else 1
    _close(work.kernel(x, c), x, c, along)
    name = getattr(work.kernel, "name", "linrec")
    kind = str(work.dtype).removeprefix("torch.")
    with torch.no_grad():
        ways = [[partial(work.kernel, x, c) for x, c, _ in sets], adds_of_equal_bytes(3 * elements, device)]
        forward = times_in_turn(ways, device, seconds=options.seconds)
    del ways
    passes, yardstick = [partial(_forward, work.kernel, *s) for s in sets], adds_of_equal_bytes(5 * elements, device)
    backward = gradients_ms([passes], device, seconds=options.seconds, beside=[yardstick])
    found = []
    for direction, moved, times, note in (
        ("forward", 3 * elements, forward, {}),
        ("backward", 5 * elements, backward.times, backward.note),
    ):
        case = {"kernel": name, "pass": direction, "shape": list(shape), "dtype": kind, "bytes": moved, **note}
        found += rows_of("scans", case, times, ["torch.add of equal bytes"])
    return found


def _forward(kernel: Callable[..., Tensor], x: Tensor, c: Tensor, dy: Tensor) -> Backward:
    leaves = (x.detach().requires_grad_(), c.detach().requires_grad_())
    return kernel(*leaves), leaves, dy


def _close(y: Tensor, x: Tensor, c: Tensor, along: int) -> None:
    """Raise where the states do not follow from one another."""
    x, c, y = (t.detach().double().movedim(along, 0) for t in (x, c, y))
    torch.testing.assert_close(y[1:], y[:-1] * c[1:] + x[1:], rtol=2e-2, atol=2e-2)
