"""Attention whose masks compare a value of the query with one of the key."""

from __future__ import annotations

import math

import torch

import weft


@weft.kernel
def causal_documents(q, k, v, document, scale: float):
    """Each query has the keys of its document up to its own place."""
    batch, queries, width = q.shape
    out = torch.empty_like(q)
    for b in range(batch):
        for i in range(queries):
            scores = torch.empty(queries)
            for j in range(i + 1):
                dot = 0.0
                for d in range(width):
                    dot += q[b, i, d] * k[b, j, d]
                scores[j] = dot * scale if document[b, i] == document[b, j] else -math.inf
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
                out[b, i, d] = acc / total
    return out


@weft.kernel
def until(q, k, v, time, when, lengths, reach: int, scale: float):
    """Each query has the keys that are not later than it, not too far before it, and those that there are."""
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
                near = time[b, j] <= when[b, i] and i - j < reach
                scores[j] = dot * scale if near and j < lengths[b] else -math.inf
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
def since(q, k, v, time, when, scale: float):
    """Each query has the keys that are not later than it, the less the longer ago they are."""
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
                scores[j] = dot * scale - (when[b, i] - time[b, j]) if time[b, j] <= when[b, i] else -math.inf
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
