"""Kernels that the tests share: one for each road that a nest can take to a GPU."""

from __future__ import annotations

import math

import torch

import weft


@weft.kernel
def reference_loop(x, c):
    """The recurrence as people write it over `...`, through memory."""
    y = torch.empty_like(x)
    y[..., 0] = x[..., 0]
    for l in range(1, x.shape[-1]):
        y[..., l] = y[..., l - 1] * c[..., l] + x[..., l]
    return y


@weft.kernel
def cloned_loop(x, c):
    y = x.clone()
    for l in range(1, x.shape[-1]):
        y[..., l] += c[..., l] * y[..., l - 1]
    return y


@weft.kernel
def state_and_last(x, c):
    """Two results: every state, and the last one of each row."""
    rows, length = x.shape
    y = torch.empty_like(x)
    last = torch.empty(rows, dtype=x.dtype)
    for r in range(rows):
        h = 0.0
        for l in range(length):
            h = c[r, l] * h + x[r, l]
            y[r, l] = h
        last[r] = h
    return y, last


@weft.kernel
def running_max_and_sum(x):
    """Online softmax's two cycles: a maximum that is scanned, and a sum that is rescaled by it."""
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        m = -math.inf
        s = 0.0
        for l in range(length):
            m_new = max(m, x[r, l])
            s = s * math.exp(m - m_new) + math.exp(x[r, l] - m_new)
            m = m_new
            y[r, l] = m + math.log(s)
    return y


@weft.kernel
def gathered(x, index):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        for l in range(length):
            y[r, l] = x[r, index[l]]
    return y


@weft.kernel
def in_place_scale(x, w, alpha: float):
    rows, length = x.shape
    for r in range(rows):
        for l in range(length):
            x[r, l] = x[r, l] * w[l] + alpha


@weft.kernel
def masked(x, threshold: float):
    rows, length = x.shape
    y = torch.zeros_like(x)
    count = torch.zeros(rows, dtype=torch.int64)
    for r in range(rows):
        n = 0
        for l in range(length):
            if x[r, l] > threshold:
                y[r, l] = x[r, l]
                n += 1
        count[r] = n
    return y, count


@weft.kernel
def column_sums(x):
    rows, length = x.shape
    y = torch.empty(length, dtype=x.dtype)
    for l in range(length):
        s = 0.0
        for r in range(rows):
            s += x[r, l]
        y[l] = s
    return y


@weft.kernel
def logistic_map(x):
    """A cycle that no algebra knows: in order."""
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = 0.5
        for l in range(length):
            h = 0.5 * h * (1.0 - h) + 0.1 * x[r, l]
            y[r, l] = h
    return y


@weft.kernel
def neighbours(x):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        for l in range(length):
            left = x[r, l - 1] if l > 0 else 0.0
            right = x[r, l + 1] if l < length - 1 else 0.0
            y[r, l] = 0.25 * left + 0.5 * x[r, l] + 0.25 * right
    return y


@weft.kernel
def running_neighbours(x):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        s = 0.0
        for l in range(length):
            left = x[r, l - 1] if l > 0 else 0.0
            right = x[r, l + 1] if l < length - 1 else 0.0
            s = s + (x[r, l] - left) * right
            y[r, l] = s
    return y


@weft.kernel
def triangle(x):
    rows, length = x.shape
    y = torch.zeros_like(x)
    for r in range(rows):
        for l in range(min(r + 1, length)):
            y[r, l] = x[r, l]
    return y


@weft.kernel
def polynomial(x):
    """A small array of its own in every iteration."""
    (n,) = x.shape
    y = torch.empty_like(x)
    for i in range(n):
        powers = torch.zeros(4, dtype=x.dtype)
        powers[0] = 1.0
        for k in range(1, 4):
            powers[k] = powers[k - 1] * x[i]
        s = 0.0
        for k in range(4):
            s += powers[k] / (k + 1)
        y[i] = s
    return y


@weft.kernel
def total(x):
    """One number from all rows."""
    rows, length = x.shape
    y = torch.empty(1, dtype=x.dtype)
    s = 0.0
    for r in range(rows):
        for l in range(length):
            s += x[r, l]
    y[0] = s
    return y


@weft.kernel
def reversed_running_product(x):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        p = 1.0
        for l in range(length - 1, -1, -1):
            p = p * x[r, l]
            y[r, l] = p
    return y


@weft.kernel
def matmul(a, b):
    n, k = a.shape
    k2, m = b.shape
    out = torch.empty(n, m, dtype=a.dtype)
    for i in range(n):
        for j in range(m):
            s = 0.0
            for q in range(k):
                s += a[i, q] * b[q, j]
            out[i, j] = s
    return out
