"""Attention as users write it, in plain passes: full, causal, near keys alone, of several lengths, and with scores changed."""

from __future__ import annotations

import math

import torch

import weft
from bench.attention import causal

__all__ = [
    "between", "biased", "by_batch", "causal", "decode", "divided", "from_first", "full", "grouped", "log_sums", "near",
    "of_keys", "of_lengths", "prefix", "ragged", "sharpened", "squared", "squared_turned", "tempered", "values_of_two",
]  # fmt: skip


@weft.kernel
def full(q, k, v, scale: float):
    batch, queries, width = q.shape
    keys = k.shape[1]
    out = torch.empty(batch, queries, v.shape[2], dtype=q.dtype)
    for b in range(batch):
        for i in range(queries):
            scores = torch.empty(keys)
            for j in range(keys):
                dot = 0.0
                for d in range(width):
                    dot += q[b, i, d] * k[b, j, d]
                scores[j] = dot * scale
            largest = -math.inf
            for j in range(keys):
                largest = max(largest, scores[j])
            total = 0.0
            for j in range(keys):
                total += torch.exp(scores[j] - largest)
            for e in range(v.shape[2]):
                acc = 0.0
                for j in range(keys):
                    acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, j, e]
                out[b, i, e] = acc / total
    return out


@weft.kernel
def of_keys(q, k, scale: float, lanes: int):
    """The first numbers of a key are its value."""
    batch, queries, width = q.shape
    keys = k.shape[1]
    out = torch.empty(batch, queries, lanes, dtype=q.dtype)
    for b in range(batch):
        for i in range(queries):
            scores = torch.empty(keys)
            for j in range(keys):
                dot = 0.0
                for d in range(width):
                    dot += q[b, i, d] * k[b, j, d]
                scores[j] = dot * scale
            largest = -math.inf
            for j in range(keys):
                largest = max(largest, scores[j])
            total = 0.0
            for j in range(keys):
                total += torch.exp(scores[j] - largest)
            for e in range(lanes):
                acc = 0.0
                for j in range(keys):
                    acc += torch.exp(scores[j] - largest).to(q.dtype) * k[b, j, e]
                out[b, i, e] = acc / total
    return out


@weft.kernel
def near(q, k, v, scale: float, reach: int):
    """Each query has the keys up to `reach` before it; the logarithm of its sum is a result too."""
    batch, queries, width = q.shape
    out = torch.empty_like(q)
    sums = torch.empty(batch, queries)
    for b in range(batch):
        for i in range(queries):
            scores = torch.empty(queries)
            for j in range(max(0, i - reach), i + 1):
                dot = 0.0
                for d in range(width):
                    dot += q[b, i, d] * k[b, j, d]
                scores[j] = dot * scale
            largest = -math.inf
            for j in range(max(0, i - reach), i + 1):
                largest = max(largest, scores[j])
            total = 0.0
            for j in range(max(0, i - reach), i + 1):
                total += torch.exp(scores[j] - largest)
            sums[b, i] = largest + torch.log(total)
            for d in range(width):
                acc = 0.0
                for j in range(max(0, i - reach), i + 1):
                    acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, j, d]
                out[b, i, d] = acc / total
    return out, sums


@weft.kernel
def biased(q, k, v, bias, slope, scale: float, cap: float):
    """Scores are capped, biased by a tensor and by the distance of the key, and masked where the bias is large."""
    batch, heads, queries, width = q.shape
    keys = k.shape[2]
    out = torch.empty_like(q)
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                scores = torch.empty(keys)
                for j in range(keys):
                    dot = 0.0
                    for d in range(width):
                        dot += q[b, h, i, d] * k[b, h, j, d]
                    capped = cap * torch.tanh(dot * scale / cap) - slope[h] * abs(i - j)
                    scores[j] = capped + bias[b, i, j] if bias[b, i, j] < 2.0 else -math.inf
                largest = -math.inf
                for j in range(keys):
                    largest = max(largest, scores[j])
                total = 0.0
                for j in range(keys):
                    total += torch.exp(scores[j] - largest)
                for d in range(width):
                    acc = 0.0
                    for j in range(keys):
                        acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, h, j, d]
                    out[b, h, i, d] = acc / total
    return out


@weft.kernel
def of_lengths(q, k, v, lengths, scale: float):
    """Each of the batch has as many keys as `lengths` says."""
    batch, queries, width = q.shape
    keys = k.shape[1]
    out = torch.empty_like(q)
    for b in range(batch):
        for i in range(queries):
            scores = torch.empty(keys)
            for j in range(keys):
                dot = 0.0
                for d in range(width):
                    dot += q[b, i, d] * k[b, j, d]
                scores[j] = dot * scale if j < lengths[b] else -math.inf
            largest = -math.inf
            for j in range(keys):
                largest = max(largest, scores[j])
            total = 0.0
            for j in range(keys):
                total += torch.exp(scores[j] - largest)
            for d in range(width):
                acc = 0.0
                for j in range(keys):
                    acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, j, d]
                out[b, i, d] = acc / total
    return out


@weft.kernel
def squared(q, k, v):
    """No softmax: scores are squared, and nothing is relative to anything."""
    batch, queries, width = q.shape
    keys = k.shape[1]
    out = torch.empty_like(q)
    for b in range(batch):
        for i in range(queries):
            for e in range(width):
                acc = 0.0
                for j in range(keys):
                    dot = 0.0
                    for d in range(width):
                        dot += q[b, i, d] * k[b, j, d]
                    acc += (dot * dot).to(q.dtype) * v[b, j, e]
                out[b, i, e] = acc
    return out


@weft.kernel
def squared_turned(q, k, v):
    """The same with its factors in another order."""
    batch, queries, width = q.shape
    keys = k.shape[1]
    out = torch.empty_like(q)
    for b in range(batch):
        for i in range(queries):
            for e in range(width):
                acc = 0.0
                for j in range(keys):
                    dot = 0.0
                    for d in range(width):
                        dot += k[b, j, d] * q[b, i, d]
                    acc += v[b, j, e] * (dot * dot).to(q.dtype)
                out[b, i, e] = acc
    return out


@weft.kernel
def by_batch(q, k, v, scale: float):
    """Each of the batch has one key more than the one before it."""
    batch, queries, width = q.shape
    out = torch.empty_like(q)
    for b in range(batch):
        for i in range(queries):
            scores = torch.empty(batch)
            for j in range(b + 1):
                dot = 0.0
                for d in range(width):
                    dot += q[b, i, d] * k[b, j, d]
                scores[j] = dot * scale
            largest = -math.inf
            for j in range(b + 1):
                largest = max(largest, scores[j])
            total = 0.0
            for j in range(b + 1):
                total += torch.exp(scores[j] - largest)
            for d in range(width):
                acc = 0.0
                for j in range(b + 1):
                    acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, j, d]
                out[b, i, d] = acc / total
    return out


@weft.kernel
def named(q, k, v, exp_pair: float, exp_own_pair: float):
    """Numbers that are named as a thread's own might be."""
    batch, queries, width = q.shape
    keys = k.shape[1]
    out = torch.empty_like(q)
    for b in range(batch):
        for i in range(queries):
            scores = torch.empty(keys)
            for j in range(keys):
                dot = 0.0
                for d in range(width):
                    dot += q[b, i, d] * k[b, j, d]
                scores[j] = dot
            largest = -math.inf
            for j in range(keys):
                largest = max(largest, scores[j])
            for d in range(width):
                acc = 0.0
                for j in range(keys):
                    acc += (torch.exp(scores[j] - largest) * (exp_pair * exp_own_pair)).to(q.dtype) * v[b, j, d]
                out[b, i, d] = acc
    return out


@weft.kernel
def sharpened(q, k, v, sharp):
    """Each query has a scale of its own."""
    batch, queries, width = q.shape
    keys = k.shape[1]
    out = torch.empty_like(q)
    for b in range(batch):
        for i in range(queries):
            scores = torch.empty(keys)
            for j in range(keys):
                dot = 0.0
                for d in range(width):
                    dot += q[b, i, d] * k[b, j, d]
                scores[j] = dot * sharp[b, i]
            largest = -math.inf
            for j in range(keys):
                largest = max(largest, scores[j])
            total = 0.0
            for j in range(keys):
                total += torch.exp(scores[j] - largest)
            for d in range(width):
                acc = 0.0
                for j in range(keys):
                    acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, j, d]
                out[b, i, d] = acc / total
    return out


@weft.kernel
def divided(q, k, v, by: float):
    """Scores are divided."""
    batch, queries, width = q.shape
    keys = k.shape[1]
    out = torch.empty_like(q)
    for b in range(batch):
        for i in range(queries):
            scores = torch.empty(keys)
            for j in range(keys):
                dot = 0.0
                for d in range(width):
                    dot += q[b, i, d] * k[b, j, d]
                scores[j] = dot / by
            largest = -math.inf
            for j in range(keys):
                largest = max(largest, scores[j])
            total = 0.0
            for j in range(keys):
                total += torch.exp(scores[j] - largest)
            for d in range(width):
                acc = 0.0
                for j in range(keys):
                    acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, j, d]
                out[b, i, d] = acc / total
    return out


@weft.kernel
def grouped(q, k, v, scale: float):
    """As many heads of queries as there are for each of the keys share it."""
    batch, heads, queries, width = q.shape
    keys = k.shape[2]
    group = heads // k.shape[1]
    out = torch.empty_like(q)
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                scores = torch.empty(keys)
                for j in range(keys):
                    dot = 0.0
                    for d in range(width):
                        dot += q[b, h, i, d] * k[b, h // group, j, d]
                    scores[j] = dot * scale
                largest = -math.inf
                for j in range(keys):
                    largest = max(largest, scores[j])
                total = 0.0
                for j in range(keys):
                    total += torch.exp(scores[j] - largest)
                for d in range(width):
                    acc = 0.0
                    for j in range(keys):
                        acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, h // group, j, d]
                    out[b, h, i, d] = acc / total
    return out


@weft.kernel
def values_of_two(q, k, v, scale: float):
    """All queries have the same keys, and two neighbours the same values."""
    batch, queries, width = q.shape
    keys = k.shape[1]
    out = torch.empty_like(q)
    for b in range(batch):
        for i in range(queries):
            scores = torch.empty(keys)
            for j in range(keys):
                dot = 0.0
                for d in range(width):
                    dot += q[b, i, d] * k[b, j, d]
                scores[j] = dot * scale
            largest = -math.inf
            for j in range(keys):
                largest = max(largest, scores[j])
            total = 0.0
            for j in range(keys):
                total += torch.exp(scores[j] - largest)
            for d in range(width):
                acc = 0.0
                for j in range(keys):
                    acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, i // 2, j, d]
                out[b, i, d] = acc / total
    return out


@weft.kernel
def decode(q, k, v, scale: float):
    """One query of each head, and few heads of keys; the logarithms of sums are a result too."""
    batch, heads, width = q.shape
    keys = k.shape[2]
    group = heads // k.shape[1]
    out = torch.empty_like(q)
    sums = torch.empty(batch, heads)
    for b in range(batch):
        for h in range(heads):
            scores = torch.empty(keys)
            for j in range(keys):
                dot = 0.0
                for d in range(width):
                    dot += q[b, h, d] * k[b, h // group, j, d]
                scores[j] = dot * scale
            largest = -math.inf
            for j in range(keys):
                largest = max(largest, scores[j])
            total = 0.0
            for j in range(keys):
                total += torch.exp(scores[j] - largest)
            sums[b, h] = largest + torch.log(total)
            for d in range(width):
                acc = 0.0
                for j in range(keys):
                    acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, h // group, j, d]
                out[b, h, d] = acc / total
    return out, sums


@weft.kernel
def ragged(q, k, v, lengths, scale: float):
    """Each of the batch has the first keys alone, of which no query has a later one."""
    batch, queries, width = q.shape
    out = torch.empty_like(q)
    for b in range(batch):
        for i in range(queries):
            scores = torch.empty(queries)
            for j in range(min(i + 1, lengths[b])):
                dot = 0.0
                for d in range(width):
                    dot += q[b, i, d] * k[b, j, d]
                scores[j] = dot * scale
            largest = -math.inf
            for j in range(min(i + 1, lengths[b])):
                largest = max(largest, scores[j])
            total = 0.0
            for j in range(min(i + 1, lengths[b])):
                total += torch.exp(scores[j] - largest)
            for d in range(width):
                acc = 0.0
                for j in range(min(i + 1, lengths[b])):
                    acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, j, d]
                out[b, i, d] = acc / total
    return out


@weft.kernel
def log_sums(q, k, scale: float):
    """The logarithms of sums alone: nothing is multiplied with what is made of scores."""
    batch, queries, width = q.shape
    keys = k.shape[1]
    sums = torch.empty(batch, queries)
    for b in range(batch):
        for i in range(queries):
            scores = torch.empty(keys)
            for j in range(keys):
                dot = 0.0
                for d in range(width):
                    dot += q[b, i, d] * k[b, j, d]
                scores[j] = dot * scale
            largest = -math.inf
            for j in range(keys):
                largest = max(largest, scores[j])
            total = 0.0
            for j in range(keys):
                total += torch.exp(scores[j] - largest)
            sums[b, i] = largest + torch.log(total)
    return sums


@weft.kernel
def from_first(q, k, v, first, scale: float):
    """Each query has the keys from one of its own on up to its place: those of its document."""
    batch, queries, width = q.shape
    out = torch.empty_like(q)
    for b in range(batch):
        for i in range(queries):
            scores = torch.empty(queries)
            for j in range(max(0, first[b, i]), i + 1):
                dot = 0.0
                for d in range(width):
                    dot += q[b, i, d] * k[b, j, d]
                scores[j] = dot * scale
            largest = -math.inf
            for j in range(max(0, first[b, i]), i + 1):
                largest = max(largest, scores[j])
            total = 0.0
            for j in range(max(0, first[b, i]), i + 1):
                total += torch.exp(scores[j] - largest)
            for d in range(width):
                acc = 0.0
                for j in range(max(0, first[b, i]), i + 1):
                    acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, j, d]
                out[b, i, d] = acc / total
    return out


@weft.kernel
def between(q, k, v, first, last, scale: float):
    """Each query has the keys from one of its own up to another."""
    batch, queries, width = q.shape
    keys = k.shape[1]
    out = torch.empty_like(q)
    for b in range(batch):
        for i in range(queries):
            scores = torch.empty(keys)
            for j in range(max(0, first[b, i]), min(last[b, i], keys)):
                dot = 0.0
                for d in range(width):
                    dot += q[b, i, d] * k[b, j, d]
                scores[j] = dot * scale
            largest = -math.inf
            for j in range(max(0, first[b, i]), min(last[b, i], keys)):
                largest = max(largest, scores[j])
            total = 0.0
            for j in range(max(0, first[b, i]), min(last[b, i], keys)):
                total += torch.exp(scores[j] - largest)
            for d in range(width):
                acc = 0.0
                for j in range(max(0, first[b, i]), min(last[b, i], keys)):
                    acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, j, d]
                out[b, i, d] = acc / total if total != 0.0 else 0.0
    return out


@weft.kernel
def prefix(q, k, v, prefix: int, scale: float):
    """All queries have the first keys, and each those up to its place."""
    batch, queries, width = q.shape
    out = torch.empty_like(q)
    for b in range(batch):
        for i in range(queries):
            scores = torch.empty(queries)
            for j in range(min(max(i + 1, prefix), queries)):
                dot = 0.0
                for d in range(width):
                    dot += q[b, i, d] * k[b, j, d]
                scores[j] = dot * scale
            largest = -math.inf
            for j in range(min(max(i + 1, prefix), queries)):
                largest = max(largest, scores[j])
            total = 0.0
            for j in range(min(max(i + 1, prefix), queries)):
                total += torch.exp(scores[j] - largest)
            for d in range(width):
                acc = 0.0
                for j in range(min(max(i + 1, prefix), queries)):
                    acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, j, d]
                out[b, i, d] = acc / total
    return out


@weft.kernel
def tempered(q, k, v, heat):
    """Each query has a number of its own, which its scores and its result are multiplied by."""
    batch, queries, width = q.shape
    out = torch.empty_like(q)
    for b in range(batch):
        for i in range(queries):
            scores = torch.empty(queries)
            for j in range(i + 1):
                dot = 0.0
                for d in range(width):
                    dot += q[b, i, d] * k[b, j, d]
                scores[j] = dot * heat[b, i]
            largest = -math.inf
            for j in range(i + 1):
                largest = max(largest, scores[j])
            total = 0.0
            for j in range(i + 1):
                total += torch.exp(scores[j] - largest)
            for d in range(width):
                acc = 0.0
                for j in range(i + 1):
                    acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, j, d]
                out[b, i, d] = acc / total * heat[b, i]
    return out


@weft.kernel
def in_parts(q, k, v, scale: float):
    batch, queries, width = q.shape
    out = torch.empty(batch, 3, queries, v.shape[2], dtype=q.dtype)
    sums = torch.empty(batch, 3, queries)
    for b in range(batch):
        for p in range(3):
            for i in range(queries):
                scores = torch.empty(k.shape[1])
                for j in range(p * 32, p * 32 + 32):
                    dot = 0.0
                    for d in range(width):
                        dot += q[b, i, d] * k[b, j, d]
                    scores[j] = dot * scale
                largest = -math.inf
                for j in range(p * 32, p * 32 + 32):
                    largest = max(largest, scores[j])
                total = 0.0
                for j in range(p * 32, p * 32 + 32):
                    total += torch.exp(scores[j] - largest)
                sums[b, p, i] = torch.log(total) + largest
                for e in range(v.shape[2]):
                    acc = 0.0
                    for j in range(p * 32, p * 32 + 32):
                        acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, j, e]
                    out[b, p, i, e] = acc / total
    return out, sums


@weft.kernel
def counted_in_parts(q, k, v, scale: float):
    batch, queries, width = q.shape
    out = torch.empty(batch, 3, queries, v.shape[2], dtype=q.dtype)
    sums = torch.empty(batch, 3, queries)
    for b in range(batch):
        for p in range(3):
            for i in range(queries):
                scores = torch.empty(32)
                for j in range(32):
                    dot = 0.0
                    for d in range(width):
                        dot += q[b, i, d] * k[b, p * 32 + j, d]
                    scores[j] = dot * scale
                largest = -math.inf
                for j in range(32):
                    largest = max(largest, scores[j])
                total = 0.0
                for j in range(32):
                    total += torch.exp(scores[j] - largest)
                sums[b, p, i] = torch.log(total) + largest
                for e in range(v.shape[2]):
                    acc = 0.0
                    for j in range(32):
                        acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, p * 32 + j, e]
                    out[b, p, i, e] = acc / total
    return out, sums


@weft.kernel
def counted_from_row(q, k, v, window: int):
    queries, width = q.shape
    out = torch.empty(queries, v.shape[1], dtype=q.dtype)
    for i in range(queries):
        scores = torch.empty(window)
        for j in range(window):
            dot = 0.0
            for d in range(width):
                dot += q[i, d] * k[i + j, d]
            scores[j] = dot * 0.125
        largest = -math.inf
        for j in range(window):
            largest = max(largest, scores[j])
        total = 0.0
        for j in range(window):
            total += torch.exp(scores[j] - largest)
        for e in range(v.shape[1]):
            acc = 0.0
            for j in range(window):
                acc += torch.exp(scores[j] - largest).to(q.dtype) * v[i + j, e]
            out[i, e] = acc / total
    return out
