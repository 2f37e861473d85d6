"""Sums, maxima and losses over all, the last, the first and the middle axes, 2^28 elements, against PyTorch's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

import weft
from bench.harness import Options, Row, need_gpu, rows_of
from weft.runtime.timing import rotations, times_in_turn

Shape = tuple[int, ...]


@weft.kernel
def total(x):
    y = torch.empty(1, dtype=torch.float32)
    s = 0.0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            s += x[i, j]
    y[0] = s
    return y


@weft.kernel
def total_of_a_vector(x):
    y = torch.empty(1, dtype=torch.float32)
    s = 0.0
    for i in range(len(x)):
        s += x[i]
    y[0] = s
    return y


@weft.kernel
def largest(x):
    y = torch.empty(1, dtype=torch.float32)
    m = -math.inf
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            m = max(m, x[i, j])
    y[0] = m
    return y


@weft.kernel
def of_rows(x):
    n, m = x.shape
    y = torch.empty(n, dtype=torch.float32)
    for i in range(n):
        s = 0.0
        for j in range(m):
            s += x[i, j]
        y[i] = s
    return y


@weft.kernel
def of_columns(x):
    n, m = x.shape
    y = torch.empty(m, dtype=torch.float32)
    for j in range(m):
        s = 0.0
        for i in range(n):
            s += x[i, j]
        y[j] = s
    return y


@weft.kernel
def of_the_middle(x):
    a, b, c = x.shape
    y = torch.empty(a, c, dtype=torch.float32)
    for i in range(a):
        for k in range(c):
            s = 0.0
            for j in range(b):
                s += x[i, j, k]
            y[i, k] = s
    return y


@weft.kernel
def argmax_of_all(x):
    n, m = x.shape
    y = torch.empty(1, dtype=torch.int64)
    best, at = -math.inf, 0
    for i in range(n):
        for j in range(m):
            if x[i, j] > best:
                best, at = x[i, j], i * m + j
    y[0] = at
    return y


@weft.kernel
def argmax_of_rows(x):
    n, m = x.shape
    y = torch.empty(n, dtype=torch.int64)
    for i in range(n):
        best, at = -math.inf, 0
        for j in range(m):
            if x[i, j] > best:
                best, at = x[i, j], j
        y[i] = at
    return y


@weft.kernel
def argmax_of_columns(x):
    n, m = x.shape
    y = torch.empty(m, dtype=torch.int64)
    for j in range(m):
        best, at = -math.inf, 0
        for i in range(n):
            if x[i, j] > best:
                best, at = x[i, j], i
        y[j] = at
    return y


@weft.kernel
def argmax_of_the_middle(x):
    a, b, c = x.shape
    y = torch.empty(a, c, dtype=torch.int64)
    for i in range(a):
        for k in range(c):
            best, at = -math.inf, 0
            for j in range(b):
                if x[i, j, k] > best:
                    best, at = x[i, j, k], j
            y[i, k] = at
    return y


@weft.kernel
def dot(x, z):
    y = torch.empty(1, dtype=torch.float32)
    s = 0.0
    for i in range(len(x)):
        s += x[i] * z[i]
    y[0] = s
    return y


@weft.kernel
def centred(x):
    n, m = x.shape
    y = torch.empty_like(x)
    s = 0.0
    for i in range(n):
        for j in range(m):
            s += x[i, j]
    mean = s / (n * m)
    for i in range(n):
        for j in range(m):
            y[i, j] = x[i, j] - mean
    return y


@weft.kernel
def cross_entropy(x, target):
    n, m = x.shape
    loss = torch.empty(n, dtype=torch.float32)
    for r in range(n):
        high = -math.inf
        for j in range(m):
            high = max(high, x[r, j])
        s = 0.0
        for j in range(m):
            s += torch.exp(x[r, j] - high)
        loss[r] = torch.log(s) + high - x[r, target[r]]
    return loss


@dataclass(frozen=True)
class Work:
    """A kernel, the same in PyTorch, the shape of x, how often each byte must at least be moved. also: the second input."""

    kernel: Any
    peer: Callable[..., Any]
    shape: Shape
    passes: int = 1
    also: str = ""


WORKS = (
    Work(total, torch.sum, (16384, 16384)),
    Work(total_of_a_vector, torch.sum, (1 << 28,)),
    Work(largest, torch.max, (16384, 16384)),
    Work(of_rows, partial(torch.sum, dim=1), (16384, 16384)),
    Work(of_rows, partial(torch.sum, dim=1), (8, 1 << 25)),
    Work(of_columns, partial(torch.sum, dim=0), (16384, 16384)),
    Work(of_columns, partial(torch.sum, dim=0), (1 << 22, 64)),
    Work(of_the_middle, partial(torch.sum, dim=1), (64, 4096, 1024)),
    Work(of_the_middle, partial(torch.sum, dim=1), (1024, 2621, 100)),
    Work(argmax_of_all, torch.argmax, (16384, 16384)),
    Work(argmax_of_rows, partial(torch.argmax, dim=1), (16384, 16384)),
    Work(argmax_of_columns, partial(torch.argmax, dim=0), (16384, 16384)),
    Work(argmax_of_the_middle, partial(torch.argmax, dim=1), (64, 4096, 1024)),
    Work(dot, torch.dot, (1 << 28,), also="like x"),
    Work(centred, lambda x: x - x.mean(), (16384, 16384), passes=2),
    Work(cross_entropy, lambda x, t: F.cross_entropy(x, t, reduction="none"), (8192, 32000), also="targets"),
)


def run(options: Options) -> list[Row]:
    need_gpu(options)
    measured: list[Row] = []
    for work in WORKS:
        shape = tuple(min(n, 300) for n in work.shape) if options.quick else work.shape
        for dtype in (torch.float32, torch.bfloat16):
            moved = math.prod(shape) * dtype.itemsize * work.passes * (2 if work.also == "like x" else 1)
            kind = str(dtype).removeprefix("torch.")
            case = {"kernel": work.kernel.name, "shape": list(shape), "dtype": kind, "bytes": moved}
            sets = [inputs(work, shape, dtype, options.device, seed) for seed in range(rotations(moved))]
            with torch.no_grad():
                close(work, sets[0])
                calls = [[partial(f, *s) for s in sets] for f in (work.kernel, work.peer)]
                times = times_in_turn(calls, options.device, seconds=options.seconds)
            measured += rows_of("folds", case, times, ["torch eager"])
    return measured


def inputs(work: Work, shape: Shape, dtype: torch.dtype, device: torch.device, seed: int) -> tuple[torch.Tensor, ...]:
    """x of the shape, and the second input of the work if it has one."""
    generator = torch.Generator(device).manual_seed(seed)
    x = torch.randn(shape, device=device, generator=generator).to(dtype)
    if work.also == "targets":
        return x, torch.randint(0, shape[1], shape[:1], device=device, generator=generator)
    return (x, torch.randn(shape, device=device, generator=generator).to(dtype)) if work.also else (x,)


def close(work: Work, given: tuple[torch.Tensor, ...]) -> None:
    """Raise where the kernel's result is not PyTorch's of wider inputs. Sums of n random numbers are of size sqrt(n)."""
    wide = [t.double() if t.is_floating_point() else t for t in given]
    want, found = work.peer(*wide), work.kernel(*given)
    scale = 1e-4 * math.sqrt(given[0].numel() / max(1, found.numel()))
    torch.testing.assert_close(found.double().reshape(want.shape), want.double(), rtol=1e-2, atol=scale + 1e-2)
