# ruff: noqa: B007
"""Programs whose tile graphs are told in tests/test_tile.py, as one would write them first."""

from __future__ import annotations

import math

import torch


def softmax(x):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        m = -math.inf
        for j in range(length):
            m = max(m, x[r, j])
        l = 0.0
        for j in range(length):
            l += torch.exp(x[r, j] - m)
        for j in range(length):
            y[r, j] = torch.exp(x[r, j] - m) / l
    return y


def online_softmax_sum(x):
    rows, length = x.shape
    y = torch.empty(rows, dtype=x.dtype)
    for r in range(rows):
        m = -math.inf
        l = 0.0
        for j in range(length):
            m_new = max(m, x[r, j])
            l = l * torch.exp(m - m_new) + torch.exp(x[r, j] - m_new)
            m = m_new
        y[r] = m + torch.log(l)
    return y


def rms_norm(x, weight, eps: float):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        squares = 0.0
        for j in range(length):
            squares += x[r, j] * x[r, j]
        scale = torch.rsqrt(squares / length + eps)
        for j in range(length):
            y[r, j] = x[r, j] * scale * weight[j]
    return y


def linrec(x, c):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = 0.0
        for l in range(length):
            h = c[r, l] * h + x[r, l]
            y[r, l] = h
    return y


def matmul(a, b):
    rows, inner = a.shape
    columns = b.shape[1]
    y = torch.empty((rows, columns), dtype=a.dtype)
    for i in range(rows):
        for j in range(columns):
            acc = 0.0
            for k in range(inner):
                acc += a[i, k] * b[k, j]
            y[i, j] = acc
    return y


def matmul_bias_gelu(a, b, bias):
    rows, inner = a.shape
    columns = b.shape[1]
    y = torch.empty((rows, columns), dtype=a.dtype)
    for i in range(rows):
        for j in range(columns):
            acc = 0.0
            for k in range(inner):
                acc += a[i, k] * b[k, j]
            z = acc + bias[j]
            y[i, j] = 0.5 * z * (1.0 + torch.erf(z * math.sqrt(0.5)))
    return y


def gated_mlp(x, wg, wu):
    rows, inner = x.shape
    columns = wg.shape[0]
    y = torch.empty((rows, columns), dtype=x.dtype)
    for b in range(rows):
        for n in range(columns):
            u = 0.0
            for k in range(inner):
                u += x[b, k] * wg[n, k]
            v = 0.0
            for k in range(inner):
                v += x[b, k] * wu[n, k]
            y[b, n] = u / (1.0 + torch.exp(-u)) * v
    return y


def attention(q, k, v):
    queries, width = q.shape
    keys = k.shape[0]
    o = torch.empty_like(q)
    for i in range(queries):
        s = torch.empty(keys, dtype=q.dtype)
        for j in range(keys):
            dot = 0.0
            for d in range(width):
                dot += q[i, d] * k[j, d]
            s[j] = dot
        m = -math.inf
        for j in range(keys):
            m = max(m, s[j])
        l = 0.0
        for j in range(keys):
            l += torch.exp(s[j] - m)
        for d in range(width):
            acc = 0.0
            for j in range(keys):
                acc += torch.exp(s[j] - m) * v[j, d]
            o[i, d] = acc / l
    return o


def causal_attention_scores(q, k):
    queries, width = q.shape
    y = torch.empty(queries, dtype=q.dtype)
    for i in range(queries):
        m = -math.inf
        for j in range(i + 1):
            dot = 0.0
            for d in range(width):
                dot += q[i, d] * k[j, d]
            m = max(m, dot)
        y[i] = m
    return y


def tensors(x, v):
    y = x.softmax(-1) @ v
    return y


def transpose(x):
    rows, columns = x.shape
    y = torch.empty((columns, rows), dtype=x.dtype)
    for i in range(rows):
        for j in range(columns):
            y[j, i] = 2.0 * x[i, j]
    return y


def jacobi(x):
    n, m = x.shape
    y = torch.zeros_like(x)
    for i in range(1, n - 1):
        for j in range(1, m - 1):
            y[i, j] = 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])
    return y


def jacobi_steps(u, v, steps: int):
    n = u.shape[0]
    for t in range(steps):
        for i in range(1, n - 1):
            v[i] = 0.5 * (u[i - 1] + u[i + 1])
        for i in range(1, n - 1):
            u[i] = v[i]


def selective_scan(u, dt, a, b, c):
    batch, length, channels = u.shape
    states = a.shape[1]
    y = torch.empty_like(u)
    for i in range(batch):
        for d in range(channels):
            h = torch.zeros(states, dtype=u.dtype)
            for t in range(length):
                total = 0.0
                for n in range(states):
                    h[n] = torch.exp(dt[i, t, d] * a[d, n]) * h[n] + dt[i, t, d] * b[i, t, n] * u[i, t, d]
                    total += h[n] * c[i, t, n]
                y[i, t, d] = total
    return y


def cross_entropy(x, target):
    rows, classes = x.shape
    y = torch.empty(rows, dtype=x.dtype)
    for r in range(rows):
        m = -math.inf
        for j in range(classes):
            m = max(m, x[r, j])
        l = 0.0
        for j in range(classes):
            l += torch.exp(x[r, j] - m)
        y[r] = m + torch.log(l) - x[r, target[r]]
    return y


def column_sums(x):
    rows, columns = x.shape
    y = torch.zeros(columns, dtype=x.dtype)
    for i in range(rows):
        for j in range(columns):
            y[j] += x[i, j]
    return y


def whole_sum(x):
    rows, columns = x.shape
    y = torch.empty(1, dtype=x.dtype)
    total = 0.0
    for i in range(rows):
        for j in range(columns):
            total += x[i, j]
    y[0] = total
    return y


def argmax(x):
    rows, length = x.shape
    y = torch.empty(rows, dtype=torch.int64)
    for r in range(rows):
        m = -math.inf
        at = 0
        for j in range(length):
            if x[r, j] > m:
                m = x[r, j]
                at = j
        y[r] = at
    return y


def histogram(values, bins: int):
    count = torch.zeros(bins, dtype=torch.int64)
    for i in range(values.shape[0]):
        count[values[i]] += 1
    return count


def ragged_sums(x, starts):
    rows = starts.shape[0] - 1
    y = torch.empty(rows, dtype=x.dtype)
    for r in range(rows):
        total = 0.0
        for j in range(starts[r], starts[r + 1]):
            total += x[j]
        y[r] = total
    return y


def distances(x):
    """A value of a row, read at the row and at another one."""
    n, m = x.shape
    y = torch.empty((n, n), dtype=x.dtype)
    for b in range(1):
        norm = torch.empty(n, dtype=x.dtype)
        for i in range(n):
            s = 0.0
            for k in range(m):
                s += x[i, k] * x[i, k]
            norm[i] = s
        for i in range(n):
            for j in range(n):
                y[i, j] = norm[i] + norm[j]
    return y


def tanh_rnn(x, w):
    batch, length, width = x.shape
    y = torch.empty_like(x)
    for b in range(batch):
        h = torch.zeros(width, dtype=x.dtype)
        for t in range(length):
            new = torch.empty(width, dtype=x.dtype)
            for d in range(width):
                total = x[b, t, d] + 0.0
                for k in range(width):
                    total += w[d, k] * h[k]
                new[d] = torch.tanh(total)
            for d in range(width):
                h[d] = new[d]
                y[b, t, d] = new[d]
    return y


def forward_substitution(lower, x):
    n = x.shape[0]
    for i in range(n):
        total = x[i] + 0.0
        for j in range(i):
            total = total - lower[i, j] * x[j]
        x[i] = total / lower[i, i]
