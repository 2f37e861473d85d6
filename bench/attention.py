"""Attention as loops, in plain passes and in one over the keys, against PyTorch's scaled_dot_product_attention.

In 16-bit types the passes are one kernel, against cuDNN where PyTorch has it: 16,384 tokens, 32 heads of 64 or 16 of 128; and
one query of each of 32 heads that share 4 heads of keys, also against a copy of as many bytes as these have. In others weft
makes scores, softmax and outputs one after another in memory; its peer never holds the scores. So do gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import weft
from bench.harness import Options, Row, copies, need_gpu, rows_of
from weft.runtime.timing import rotations, times_in_turn


@weft.kernel
def in_passes(q, k, v, scale: float):
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
                    acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, j, d]
                out[b, i, d] = acc / total
    return out


@weft.kernel
def causal(q, k, v, scale: float):
    batch, queries, width = q.shape
    out = torch.empty_like(q)
    for b in range(batch):
        for i in range(queries):
            scores = torch.empty(queries)
            for j in range(i + 1):
                dot = 0.0
                for d in range(width):
                    dot += q[b, i, d] * k[b, j, d]
                scores[j] = dot * scale
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
def online(q, k, v, scale: float):
    batch, queries, width = q.shape
    keys = k.shape[1]
    out = torch.empty_like(q)
    for b in range(batch):
        for i in range(queries):
            largest, total = -math.inf, 0.0
            acc = torch.zeros(64)
            for j in range(keys):
                dot = 0.0
                for d in range(width):
                    dot += q[b, i, d] * k[b, j, d]
                score = dot * scale
                new = max(largest, score)
                old = torch.exp(largest - new)
                p = torch.exp(score - new)
                total = total * old + p
                for d in range(64):
                    acc[d] = acc[d] * old + p * v[b, j, d]
                largest = new
            for d in range(64):
                out[b, i, d] = acc[d] / total
    return out


@weft.kernel
def decode(q, k, v, scale: float):
    batch, heads, width = q.shape
    keys = k.shape[2]
    group = heads // k.shape[1]
    out = torch.empty_like(q)
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
            for d in range(width):
                acc = 0.0
                for j in range(keys):
                    acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, h // group, j, d]
                out[b, h, d] = acc / total
    return out


PARTS = ("schedules", "pages")  # which have a benchmark of their own
SHAPE = (16, 1024, 64)
GRID = tuple((heads * 16384 // n, n, width) for width, heads in ((64, 32), (128, 16)) for n in (1024, 4096, 16384))
DECODED = ((8, 4096), (8, 32768), (8, 131072))  # of the batch, and keys


def sdpa(q: Tensor, k: Tensor, v: Tensor, scale: float, *, is_causal: bool = False) -> Tensor:
    return F.scaled_dot_product_attention(q[None], k[None], v[None], scale=scale, is_causal=is_causal)[0]


def cudnn(q: Tensor, k: Tensor, v: Tensor, scale: float, *, is_causal: bool = False) -> Tensor:
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return sdpa(q, k, v, scale, is_causal=is_causal)


def run(options: Options) -> Iterator[Row]:
    need_gpu(options)
    for kernel in (in_passes, causal):
        for shape in GRID:
            yield from _cell(kernel, (2, 200, shape[2]) if options.quick else shape, options)
    for batch, keys in DECODED:
        yield from _decoded(*((1, 200) if options.quick else (batch, keys)), options)
    for kernel in (in_passes, online):
        yield from _attention(kernel, (2, 20, 64) if options.quick else SHAPE, options)


def _cell(kernel: Callable[..., Any], shape: tuple[int, int, int], options: Options) -> list[Row]:
    """One cell of the grid, in bfloat16: the forward pass, and the backward pass, of two and a half times as many products."""
    device, scale = options.device, 1 / math.sqrt(shape[2])
    q, k, v = (torch.randn(shape, device=device).bfloat16().requires_grad_() for _ in range(3))
    peer = partial(cudnn if device.type == "cuda" else sdpa, is_causal=kernel is causal)
    seed = torch.randn_like(q)
    outs = [f(q, k, v, scale) for f in (kernel, peer)]
    torch.testing.assert_close(*(out.float() for out in outs), rtol=2e-2, atol=2e-2)
    with torch.no_grad():
        forward = times_in_turn([[partial(f, q, k, v, scale)] for f in (kernel, peer)], device, seconds=options.seconds)
    gradients = [[partial(torch.autograd.grad, out, (q, k, v), seed, retain_graph=True)] for out in outs]
    backward = times_in_turn(gradients, device, seconds=options.seconds)
    operations = 4 * shape[0] * shape[1] ** 2 * shape[2] / (2 if kernel is causal else 1)
    rows = []
    for direction, more, times in (("forward", 1, forward), ("backward", 2.5, backward)):
        case = {"kernel": kernel.name, "shape": list(shape), "dtype": "bfloat16", "pass": direction}
        case["TFLOP/s"] = round(more * operations / times.ms[0] / 1e9)
        rows += rows_of("attention", case, times, ["cuDNN"])
    return rows


def _decoded(batch: int, keys: int, options: Options) -> list[Row]:
    """One query a head, in bfloat16: all time goes to the keys and the values."""
    device, (heads, shared, width) = options.device, (32, 4, 128)
    scale, memory = 1 / math.sqrt(width), 4 * batch * shared * keys * width
    sets = []
    for _ in range(rotations(memory)):
        q = torch.randn(batch, heads, width, device=device).bfloat16()
        sets.append((q, *(torch.randn(batch, shared, keys, width, device=device).bfloat16() for _ in range(2))))

    def peer(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q[:, :, None], k, v, scale=scale, enable_gqa=True)[:, :, 0]

    torch.testing.assert_close(decode(*sets[0], scale).float(), peer(*sets[0]).float(), rtol=2e-2, atol=2e-2)
    ways = [[partial(f, *own, *more) for own in sets] for f, more in ((decode, (scale,)), (peer, ()))]
    times = times_in_turn([*ways, copies(memory, options)], device, seconds=options.seconds)
    case = {"kernel": "decode", "shape": [batch, heads, shared, keys, width], "dtype": "bfloat16", "pass": "forward"}
    case["bytes"] = memory
    return rows_of("attention", case, times, ["scaled_dot_product_attention", "copy of equal bytes"])


def _attention(kernel: Callable[..., Any], shape: tuple[int, int, int], options: Options) -> list[Row]:
    """In float32, by passes."""
    device, scale = options.device, 1 / math.sqrt(shape[2])
    q, k, v = (torch.randn(shape, device=device, requires_grad=True) for _ in range(3))
    outs = [f(q, k, v, scale) for f in (kernel, sdpa)]
    torch.testing.assert_close(*(out.float() for out in outs), rtol=2e-2, atol=2e-2)
    seed = torch.ones_like(outs[0])
    with torch.no_grad():
        forward = times_in_turn([[partial(f, q, k, v, scale)] for f in (kernel, sdpa)], device, seconds=options.seconds)
    gradients = [[partial(torch.autograd.grad, out, (q, k, v), seed, retain_graph=True)] for out in outs]
    backward = times_in_turn(gradients, device, seconds=options.seconds)
    case = {"kernel": getattr(kernel, "name", ""), "shape": list(shape), "dtype": "float32"}
    passes = (("forward", forward), ("backward", backward))
    peer = ["scaled_dot_product_attention"]
    return [row for name, times in passes for row in rows_of("attention", {**case, "pass": name}, times, peer)]
