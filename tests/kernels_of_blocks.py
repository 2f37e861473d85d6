"""Programs of several nests that tell each other what nobody else reads."""

from __future__ import annotations

import math

import torch


def mlp(x, w1, w2):  # type: ignore[no-untyped-def]
    rows, width = x.shape
    h = torch.empty(rows, w1.shape[1], dtype=x.dtype)
    for i in range(rows):
        for j in range(w1.shape[1]):
            acc = 0.0
            for k in range(width):
                acc += x[i, k] * w1[k, j]
            h[i, j] = torch.nn.functional.gelu(acc)
    y = torch.empty(rows, w2.shape[1], dtype=x.dtype)
    for i in range(rows):
        for n in range(w2.shape[1]):
            acc = 0.0
            for j in range(w1.shape[1]):
                acc += h[i, j] * w2[j, n]
            y[i, n] = acc
    return y


def two_norms(x, g):  # type: ignore[no-untyped-def]
    rows, width = x.shape
    y = torch.empty(rows, width, dtype=x.dtype)
    most = torch.empty(rows)
    for i in range(rows):
        total = 0.0
        for j in range(width):
            total += x[i, j] * x[i, j]
        scale = torch.rsqrt(total / width + 1e-6)
        largest = 0.0
        for j in range(width):
            largest = max(largest, abs(x[i, j] * scale * g[j]))
        most[i] = largest
        for j in range(width):
            y[i, j] = x[i, j] * scale * g[j] / largest
    return y, most


def normed_attention(q, k, v):  # type: ignore[no-untyped-def]
    heads, rows, width = q.shape
    qn, kn, o = torch.empty_like(q), torch.empty_like(k), torch.empty_like(q)
    for b in range(heads):
        for i in range(rows):
            total = 0.0
            for d in range(width):
                total += q[b, i, d] * q[b, i, d]
            for d in range(width):
                qn[b, i, d] = q[b, i, d] * torch.rsqrt(total / width + 1e-6)
    for b in range(heads):
        for i in range(rows):
            total = 0.0
            for d in range(width):
                total += k[b, i, d] * k[b, i, d]
            for d in range(width):
                kn[b, i, d] = k[b, i, d] * torch.rsqrt(total / width + 1e-6)
    for b in range(heads):
        for i in range(rows):
            scores = torch.empty(rows)
            largest = -math.inf
            for j in range(rows):
                dot = 0.0
                for d in range(width):
                    dot += qn[b, i, d] * kn[b, j, d]
                scores[j] = dot
                largest = max(largest, dot)
            total = 0.0
            for j in range(rows):
                total += torch.exp(scores[j] - largest)
            for d in range(width):
                acc = 0.0
                for j in range(rows):
                    acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, j, d]
                o[b, i, d] = acc / total
    return o
