"""Kernels whose loops carry states of every algebra beyond sums and single affine maps; plain Python besides."""

from __future__ import annotations

import torch


def argmax(x):
    rows, n = x.shape
    best = torch.empty(rows, dtype=x.dtype, device=x.device)
    where = torch.empty(rows, dtype=torch.int64, device=x.device)
    for r in range(rows):
        m = x[r, 0]
        k = 0
        for i in range(n):
            if x[r, i] > m:
                m = x[r, i]
                k = i
        best[r] = m
        where[r] = k
    return best, where


def last_argmin(x, z):
    rows, n = x.shape
    best = torch.empty(rows, dtype=x.dtype, device=x.device)
    where = torch.empty(rows, dtype=torch.int64, device=x.device)
    other = torch.empty(rows, dtype=x.dtype, device=x.device)
    for r in range(rows):
        m = float("inf")
        k = -1
        o = 0.0
        for i in range(n):
            if z[r, i] > 0 and x[r, i] <= m:
                m = x[r, i]
                k = i
                o = z[r, i]
        best[r] = m
        where[r] = k
        other[r] = o
    return best, where, other


def argmax_from_the_end(x):
    rows, n = x.shape
    where = torch.empty(rows, dtype=torch.int64, device=x.device)
    for r in range(rows):
        m = float("-inf")
        k = -1
        for i in range(n - 1, -1, -1):
            if x[r, i] > m:
                m = x[r, i]
                k = i
        where[r] = k
    return where


def running_argmax(x):
    rows, n = x.shape
    where = torch.empty(rows, n, dtype=torch.int64, device=x.device)
    for r in range(rows):
        m = float("-inf")
        k = -1
        for i in range(n):
            if x[r, i] > m:
                m = x[r, i]
                k = i
            where[r, i] = k
    return where


def second_order(x, a, b):
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


def rotation(x, angle):
    rows, n = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        p = 1.0
        q = 0.0
        for i in range(n):
            c = torch.cos(angle[r, i])
            s = torch.sin(angle[r, i])
            old = p
            p = c * p - s * q + x[r, i]
            q = s * old + c * q
            y[r, i] = p + q
    return y


def third_order(x):
    rows, n = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        a = 0.0
        b = 0.0
        c = 0.0
        for i in range(n):
            a, b, c = b, c, 0.5 * a - 0.25 * b + 0.125 * c + x[r, i]
            y[r, i] = c
    return y


def filled_forward(x, given):
    rows, n = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = 0.0
        for i in range(n):
            if given[r, i] > 0:
                h = x[r, i]
            y[r, i] = h
    return y


def last_positive(x):
    rows, n = x.shape
    y = torch.empty(rows, dtype=x.dtype, device=x.device)
    for r in range(rows):
        h = -1.0
        for i in range(n):
            if x[r, i] > 0:
                h = x[r, i]
        y[r] = h
    return y


def segmented_sum(x, starts):
    rows, n = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        s = 0.0
        for i in range(n):
            if starts[r, i] > 0.5:
                s = 0.0
            s = s + x[r, i]
            y[r, i] = s
    return y


def segmented_max(x, starts):
    rows, n = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        m = float("-inf")
        for i in range(n):
            m = max(x[r, i] if starts[r, i] > 0.5 else m, x[r, i])
            y[r, i] = m
    return y


def segmented_decay(x, decay, starts):
    rows, n = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = 0.0
        for i in range(n):
            h = x[r, i] if starts[r, i] > 0.5 else decay[r, i] * h + x[r, i]
            y[r, i] = h
    return y


def saturating(x):
    rows, n = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = 0.0
        for i in range(n):
            h = min(max(h + x[r, i], -2.0), 2.0)
            y[r, i] = h
    return y


def queue(x):
    """Lindley's recursion: waiting times, max-plus."""
    rows, n = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        w = 0.0
        for i in range(n):
            w = max(w + x[r, i], 0.0)
            y[r, i] = w
    return y


def parity(x):  # of int64
    rows, n = x.shape
    y = torch.empty(rows, dtype=torch.int64, device=x.device)
    for r in range(rows):
        p = 0
        for i in range(n):
            p = p ^ x[r, i]
        y[r] = p
    return y


def compaction(x):
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


def expansion(x, mask):
    rows, n = x.shape
    y = torch.zeros_like(x)
    for r in range(rows):
        k = 0
        for i in range(n):
            if mask[r, i] > 0:
                y[r, i] = x[r, k]
                k += 1
    return y


def online_softmax(x):
    rows, n = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        m = float("-inf")
        total = 0.0
        for i in range(n):
            m_new = max(m, x[r, i])
            total = total * torch.exp(m - m_new) + torch.exp(x[r, i] - m_new)
            m = m_new
        for i in range(n):
            y[r, i] = torch.exp(x[r, i] - m) / total
    return y
