"""Programs whose states grow by outer products: other loops, other decays, states that are given and returned."""

from __future__ import annotations

import torch

import weft


@weft.kernel
def retention(q, k, v, slope):
    """The lanes outside, the state before its point is read, a decay that a head has for all points."""
    heads, length, width = q.shape
    y = torch.empty(heads, length, v.shape[2])
    for e in range(v.shape[2]):
        for n in range(heads):
            state = torch.zeros(width)
            for l in range(length):
                total = 0.0
                for d in range(width):
                    total += state[d] * (q[n, l, d] * 0.125)
                    state[d] = k[n, l, d] * v[n, l, e] + slope[n] * state[d]
                y[n, l, e] = 2.0 * total
    return y


@weft.kernel
def carried_on(q, k, v, a, first):
    """Backwards, from states that are given to states that are returned; k has no heads, and is added in part."""
    heads, length, width = q.shape
    y = torch.empty(heads, length, v.shape[2], dtype=q.dtype)
    last = torch.empty_like(first)
    for n in range(heads):
        for e in range(v.shape[2]):
            state = torch.empty(width)
            for d in range(width):
                state[d] = first[n, d, e]
            for l in range(length - 1, -1, -1):
                total = 0.0
                for d in range(width):
                    state[d] = a[n, l] * state[d] + (1.0 - a[n, l]) * (k[l, d] * v[n, l, e])
                    total += q[n, l, d] * state[d]
                y[n, l, e] = total
            for d in range(width):
                last[n, d, e] = state[d]
    return y, last


@weft.kernel
def gated(q, k, v, a):
    """Each row of the states decays by a number of its own."""
    heads, length, width = q.shape
    y = torch.empty(heads, length, v.shape[2])
    for n in range(heads):
        for e in range(v.shape[2]):
            state = torch.zeros(width)
            for l in range(length):
                total = 0.0
                for d in range(width):
                    state[d] = a[n, l, d] * state[d] + k[n, l, d] * v[n, l, e]
                    total += q[n, l, d] * state[d]
                y[n, l, e] = total
    return y


@weft.kernel
def shared_by_heads(x, a, keys, queries):
    """Mamba's second: heads have keys and queries in common."""
    batch, length, heads, width = x.shape
    y = torch.empty_like(x)
    for i in range(batch):
        for n in range(heads):
            for e in range(width):
                state = torch.zeros(keys.shape[2])
                for t in range(length):
                    total = 0.0
                    for d in range(keys.shape[2]):
                        state[d] = torch.exp(a[i, t, n]) * state[d] + keys[i, t, d] * x[i, t, n, e]
                        total += queries[i, t, d] * state[d]
                    y[i, t, n, e] = total
    return y


@weft.kernel
def grouped(q, k, v, a):
    """Groups of heads have keys in common, and keys and values are as wide."""
    heads, length, width = q.shape
    y = torch.empty_like(v)
    for n in range(heads):
        for e in range(width):
            state = torch.zeros(width)
            for l in range(length):
                total = 0.0
                for d in range(width):
                    state[d] = a[n, l] * state[d] + k[n // (heads // k.shape[0]), l, d] * v[n, l, e]
                    total += q[n, l, d] * state[d]
                y[n, l, e] = total
    return y


@weft.kernel
def given_decays(q, k, v, a):
    """Decays that are no function of anything else."""
    heads, length, width = q.shape
    y = torch.empty(heads, length, v.shape[2])
    for n in range(heads):
        for e in range(v.shape[2]):
            state = torch.zeros(width)
            for l in range(length):
                total = 0.0
                for d in range(width):
                    state[d] = a[n, l] * state[d] + k[n, l, d] * v[n, l, e]
                    total += q[n, l, d] * state[d]
                y[n, l, e] = total
    return y
