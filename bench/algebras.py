"""Loops that carry more than sums: [16384, 4096] float32 against PyTorch, where it has the same, and a copy of equal bytes.

Bytes are counted once each: every input read, every result written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import weft
from bench.harness import Options, Row, copies, need_gpu, rows_of
from weft.runtime.timing import rotations, times_in_turn


@weft.kernel
def argmax(x):  # type: ignore[no-untyped-def]
    rows, n = x.shape
    best = torch.empty(rows, dtype=x.dtype, device=x.device)
    where = torch.empty(rows, dtype=torch.int64, device=x.device)
    for r in range(rows):
        m = float("-inf")
        k = 0
        for i in range(n):
            if x[r, i] > m:
                m = x[r, i]
                k = i
        best[r] = m
        where[r] = k
    return best, where


@weft.kernel
def running_argmax(x):  # type: ignore[no-untyped-def]
    rows, n = x.shape
    best = torch.empty_like(x)
    where = torch.empty(rows, n, dtype=torch.int64, device=x.device)
    for r in range(rows):
        m = float("-inf")
        k = 0
        for i in range(n):
            if x[r, i] >= m:
                m = x[r, i]
                k = i
            best[r, i] = m
            where[r, i] = k
    return best, where


@weft.kernel
def second_order(x, a, b):  # type: ignore[no-untyped-def]
    rows, n = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        earlier = 0.0
        before = 0.0
        for i in range(n):
            value = a[r, i] * before + b[r, i] * earlier + x[r, i]
            earlier = before
            before = value
            y[r, i] = value
    return y


@weft.kernel
def segmented_sum(x, starts):  # type: ignore[no-untyped-def]
    rows, n = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        s = 0.0
        for i in range(n):
            if starts[r, i] > 0.99:
                s = 0.0
            s = s + x[r, i]
            y[r, i] = s
    return y


@weft.kernel
def saturating(x):  # type: ignore[no-untyped-def]
    rows, n = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = 0.0
        for i in range(n):
            h = min(max(h + x[r, i], -2.0), 2.0)
            y[r, i] = h
    return y


@weft.kernel
def compaction(x):  # type: ignore[no-untyped-def]
    rows, n = x.shape
    y = torch.zeros_like(x)
    count = torch.empty(rows, dtype=torch.int64, device=x.device)
    for r in range(rows):
        k = 0
        for i in range(n):
            if x[r, i] > 0:
                y[r, k] = x[r, i]
                k += 1
        count[r] = k
    return y, count


@dataclass(frozen=True)
class Work:
    """A kernel, how many arrays of x's size it takes, the bytes it moves for each element of x, the same in PyTorch."""

    kernel: Callable[..., Any]
    inputs: int
    bytes: int
    eager: Callable[..., Any] | None = None


WORKS = (
    Work(argmax, 1, 4, partial(torch.max, dim=1)),
    Work(running_argmax, 1, 16, partial(torch.cummax, dim=1)),
    Work(second_order, 3, 16),
    Work(segmented_sum, 2, 12),
    Work(saturating, 1, 8),
    Work(compaction, 1, 12),  # y is filled with zeros first
)


def run(options: Options) -> list[Row]:
    need_gpu(options)
    rows, n = (64, 512) if options.quick else (16384, 4096)
    measured: list[Row] = []
    for work in WORKS:
        moved = work.bytes * rows * n
        sets = [_inputs(work, rows, n, options.device, seed) for seed in range(rotations(moved))]
        case = {"kernel": work.kernel.__name__, "shape": [rows, n], "dtype": "float32", "bytes": moved}
        with torch.no_grad():
            ways = [[partial(work.kernel, *tensors) for tensors in sets], copies(moved, options)]
            peers = ["copy of equal bytes"]
            if work.eager is not None:
                ways.append([partial(work.eager, *tensors) for tensors in sets])
                peers.append(f"torch.{work.eager.func.__name__}")  # type: ignore[attr-defined]
            times = times_in_turn(ways, options.device, seconds=options.seconds)
        measured += rows_of("algebras", case, times, peers)
    return measured


def _inputs(work: Work, rows: int, n: int, device: torch.device, seed: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator(device).manual_seed(seed)
    x = torch.randn(rows, n, device=device, generator=generator)
    others = (torch.rand(rows, n, device=device, generator=generator) for _ in range(work.inputs - 1))
    return (x, *(o if work.inputs == 2 else o - 0.5 for o in others))
