"""Programs whose scans threads share: rows side by side, few long rows, several scans that wait for one another."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

import weft
from weft.kernels.cumsum import cumsum
from weft.kernels.linrec import linrec, linrec_reverse


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
def states_in_memory(x, c):
    batch, length, channels = x.shape
    y = torch.zeros_like(x)
    for b in range(batch):
        for t in range(1, length):
            for d in range(channels):
                y[b, t, d] = c[b, t, d] * y[b, t - 1, d] + x[b, t, d]
    return y


@weft.kernel
def one_decay_a_channel(x, a, start):
    batch, length, channels = x.shape
    y = torch.empty_like(x)
    last = torch.empty_like(start)
    for b in range(batch):
        for d in range(channels):
            h = start[b, d]
            for t in range(length):
                h = torch.exp(-a[d]) * h + x[b, t, d]
                y[b, t, d] = h
            last[b, d] = h
    return y, last


@weft.kernel
def steps_in_common(x, g):
    length, channels = x.shape
    y = torch.empty_like(x)
    for d in range(channels):
        h = 1.0
        for t in range(length - 1, -1, -1):
            h = g[t] * h + x[t, d]
            y[t, d] = h
    return y


@weft.kernel
def log_cumulative(x):
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


@weft.kernel
def two_scans(x):
    rows, length = x.shape
    y, last = torch.empty_like(x), torch.empty(rows)
    for r in range(rows):
        a, b = 0.0, 0.0
        for t in range(length):
            a = a + x[r, t]
            b = 0.5 * b + a
            y[r, t] = b
        last[r] = a
    return y, last


@weft.kernel
def segments(x, starts):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        s = 0.0
        for t in range(length):
            if starts[r, t]:
                s = 0.0
            s = s + x[r, t]
            y[r, t] = s
    return y


@weft.kernel
def sum_of_states(x, c):
    rows, length = x.shape
    total = torch.empty(rows)
    for r in range(rows):
        h, s = 0.0, 1.0
        for t in range(length):
            h = c[r, t] * h + x[r, t]
            s += h * h
        total[r] = s
    return total


@weft.kernel
def counted(x):
    length, channels = x.shape
    y = torch.empty(length, channels, dtype=torch.int64)
    for d in range(channels):
        n = 0
        for t in range(length):
            n = n + (1 if x[t, d] > 0 else 0)
            y[t, d] = n
    return y


@weft.kernel
def running_argmax(x):
    rows, length = x.shape
    best, where, where_from_behind = torch.empty_like(x), torch.empty(rows, length), torch.empty(rows, length)
    for r in range(rows):
        m, k = -math.inf, -1
        for i in range(length):
            if x[r, i] >= m:
                m, k = x[r, i], i
            best[r, i] = m
            where[r, i] = k
    for r in range(rows):
        m, k = 0.5, -1
        for i in range(length - 1, -1, -1):
            if x[r, i] < m:
                m, k = x[r, i], i
            where_from_behind[r, i] = k
    return best, where, where_from_behind


@weft.kernel
def carried_on(x, w, total):
    """A row starts from what it replaces; what all rows have in common is found in each."""
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = total[r]
        for t in range(length):
            h = 0.9 * h + x[r, t]
            y[r, t] = h
        total[r] = h
    z = torch.empty_like(x)
    for r in range(rows):
        s = 0.0
        for t in range(length):
            s = s + w[t]
            z[r, t] = s * x[r, t]
    return y, z


@weft.kernel
def other_points(x, c):
    """What is read at other points than the ones that are written: every second one, and from the end on."""
    length, channels = c.shape
    y, z = torch.empty_like(c), torch.empty_like(c)
    for d in range(channels):
        h = 0.0
        for t in range(length):
            h = c[t, d] * h + x[2 * t, d]
            y[t, d] = h
    for d in range(channels):
        h = 0.0
        for t in range(length):
            h = c[length - 1 - t, d] * h + x[t + 1, d]
            z[t, d] = h
    return y, z


@weft.kernel
def in_place(x):
    length, channels = x.shape
    for d in range(channels):
        for t in range(1, length):
            x[t, d] = 0.9 * x[t - 1, d] + x[t, d]


def _random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _decay(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


HALF = torch.bfloat16
Make = Callable[[], tuple[Any, ...]]
# Each with arguments of several forms: few long rows, many, unaligned, none.
CASES: dict[str, tuple[Any, tuple[Make, ...]]] = {
    "linrec": (
        linrec.kernel,
        (
            lambda: (_random(1, 40_000), _decay(1, 40_000)),
            lambda: (_random(3, 33_002)[:, 1:33_000], _decay(3, 32_999)),
            lambda: (_random(20_000, 5).t(), _decay(20_000, 5).t()),
            lambda: (_random(1, 40_000, dtype=HALF), _decay(1, 40_000, dtype=HALF)),
            lambda: (_random(3, 9003)[:, 3:], _decay(3, 9001)[:, 1:]),
            lambda: (_random(3, 20_001, dtype=HALF), _decay(3, 20_005, dtype=HALF)[:, 2:20_003]),
            lambda: (_random(9, 101, dtype=HALF), _decay(9, 101, dtype=HALF)),
        ),
    ),
    "linrec_reverse": (
        linrec_reverse.kernel,
        (lambda: (_random(2, 40_000), _decay(2, 40_000)), lambda: (_random(5, 77), _decay(5, 77))),
    ),
    "cumsum": (cumsum.kernel, (lambda: (_random(1, 50_000),), lambda: (_random(700, 9).t(),))),
    "time_major": (
        time_major,
        (
            lambda: (_random(2, 300, 70), _decay(2, 300, 70)),
            lambda: (_random(1, 2100, 8, dtype=HALF), _decay(1, 2100, 8, dtype=HALF)),
            lambda: (_random(70, 33, 64), _decay(70, 33, 64)),
            lambda: (_random(2, 0, 3), _decay(2, 0, 3)),
            lambda: (_random(2, 700, 1), _decay(2, 700, 1)),
            lambda: (_random(1, 1700, 33), _decay(1, 1700, 33)),
            lambda: (_random(1, 1500, 35, dtype=HALF)[:, :, 1:34], _decay(1, 1500, 33, dtype=HALF)),
            lambda: (_random(2, 900, 71)[:, :, 1:], _decay(2, 900, 72)[:, :, 2:]),
            lambda: (_random(1, 1500, 66, dtype=HALF), _decay(1, 1500, 66, dtype=HALF)),
            lambda: (_random(2, 37, 75), _decay(2, 37, 75)),
            lambda: (_random(2, 37, 131, dtype=HALF), _decay(2, 37, 131, dtype=HALF)),
            lambda: (_random(1, 300, 197), _decay(1, 300, 197)),
        ),
    ),
    "states_in_memory": (
        states_in_memory,
        (lambda: (_random(2, 600, 33), _decay(2, 600, 33)), lambda: (_random(1, 1, 3),) * 2),
    ),
    "one_decay_a_channel": (
        one_decay_a_channel,
        (lambda: (_random(2, 500, 36), _decay(36), _random(2, 36)), lambda: (_random(2, 500, 7), _decay(7), _random(2, 7))),
    ),
    "steps_in_common": (steps_in_common, (lambda: (_random(900, 40), _decay(900)),)),
    "log_cumulative": (log_cumulative, (lambda: (_random(1, 30_000),), lambda: (_random(400, 40).t(),))),
    "two_scans": (two_scans, (lambda: (_random(2, 30_000),), lambda: (_random(500, 20).t(),))),
    "segments": (
        segments,
        (
            lambda: (_random(1, 30_000), _decay(1, 30_000) > 0.99),
            lambda: (_random(600, 12).t(), _decay(600, 12).t() > 0.9),
            lambda: (_random(3, 20_001), _decay(3, 20_001) > 0.99),
        ),
    ),
    "sum_of_states": (sum_of_states, (lambda: (_random(500, 20).t(), _decay(500, 20).t()),)),
    "counted": (counted, (lambda: (_random(900, 20),),)),
    "running_argmax": (running_argmax, (lambda: (_random(3, 700).round(decimals=1),), lambda: (_random(500, 12).t(),))),
    "carried_on": (carried_on, (lambda: (_random(3, 700), _random(700), _random(3)),)),
    "other_points": (
        other_points,
        (
            lambda: (_random(4000, 8), _decay(2000, 8)),
            lambda: (_random(4000, 21), _decay(2000, 21)),
            lambda: (_random(4001, 9, dtype=HALF)[1:, 2:], _decay(2000, 7, dtype=HALF)),
        ),
    ),
    "in_place": (in_place, (lambda: (_random(500, 40),),)),
}
