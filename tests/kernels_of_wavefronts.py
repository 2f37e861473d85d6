"""Loops in order whose points of a step need nothing of each other, and arguments for their kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import weft


@weft.kernel
def warped(cost):
    n, p, q = cost.shape
    d = torch.full((n, p + 1, q + 1), float("inf"))
    for r in range(n):
        d[r, 0, 0] = 0.0
        for i in range(p):
            for j in range(q):
                d[r, i + 1, j + 1] = cost[r, i, j] + min(d[r, i, j], min(d[r, i, j + 1], d[r, i + 1, j]))
    return d


@weft.kernel
def swept(u, steps: int):
    n, m = u.shape
    for _ in range(steps):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                u[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
    return u


@weft.kernel
def leaning(x):
    """What a row needs of the row before lies to its right."""
    n, m = x.shape
    y = torch.zeros(n, m + 2)
    for i in range(1, n):
        for j in range(m - 1):
            y[i, j + 1] = max(torch.sin(x[i, j]), 0.5 * y[i - 1, j + 2] - y[i, j])
    return y


@weft.kernel
def solved(a, b):
    n = len(b)
    x = torch.empty(n)
    for i in range(n):
        s = b[i]
        for j in range(i):
            s = s - a[i, j] * x[j]
        x[i] = s / a[i, i]
    return x


@weft.kernel
def backwards(w):
    n, m = w.shape
    y = torch.ones(n, m)
    for i in range(n - 2, -1, -1):
        for j in range(m - 2, -1, -1):
            y[i, j] = max(y[i + 1, j] * w[i, j], min(y[i, j + 1], y[i + 1, j + 1]) - w[i, 0])
    return y


@weft.kernel
def one_row(a, b):
    """Distances of words in one row of memory, which the next row overwrites."""
    n, m = len(a), len(b)
    d = torch.empty(m + 1, dtype=torch.int64)
    for j in range(m + 1):
        d[j] = j
    for i in range(n):
        before = d[0]
        d[0] = i + 1
        for j in range(m):
            other = before + (1 if a[i] != b[j] else 0)
            before = d[j + 1]
            d[j + 1] = min(other, min(d[j + 1], d[j]) + 1)
    return d


@weft.kernel
def whole_row_before(w):
    """A row begins with what the row before ended with."""
    n, m = w.shape
    x = torch.zeros(n + 1)
    for i in range(n):
        first = x[i]
        s = 0.0
        for j in range(m):
            s = max(w[i, j] * first, s * 0.5)
        x[i + 1] = s
    return x


CASES: dict[str, tuple[Any, Callable[[], tuple[Any, ...]]]] = {
    "warped": (warped, lambda: (torch.rand(2, 70, 45, dtype=torch.float64),)),
    "swept": (swept, lambda: (torch.rand(40, 30), 2)),
    "leaning": (leaning, lambda: (torch.rand(70, 40),)),
    "solved": (solved, lambda: (torch.rand(70, 70) / 70 + torch.eye(70), torch.rand(70))),
    "backwards": (backwards, lambda: (torch.rand(70, 40),)),
    "one_row": (one_row, lambda: (torch.randint(3, (70,)), torch.randint(3, (50,)))),
}
