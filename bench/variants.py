"""Variants of attention, each a few changes of its loops, against FlexAttention under torch.compile.

In bfloat16, forward and backward: a window of 1,024 keys, ALiBi, capped scores, documents in a sequence, and a sink, of 32
heads of 64 or 16 of 128. FlexAttention is given masks as a block mask and the rest as a change of the scores, and searches no
configurations. `weft.kernels.attention` is measured against scaled_dot_product_attention, whose signature it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch._functorch.config
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import weft
from bench.harness import Options, Row, need_gpu, rows_of
from weft.kernels.attention import attention
from weft.runtime.timing import times_in_turn

WINDOW, CAP = 1024, 30.0


@weft.kernel
def window(q, k, v, scale: float, reach: int):
    batch, heads, queries, width = q.shape
    out = torch.empty_like(q)
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                scores = torch.empty(queries)
                for j in range(max(0, i - reach + 1), i + 1):
                    dot = 0.0
                    for d in range(width):
                        dot += q[b, h, i, d] * k[b, h, j, d]
                    scores[j] = dot * scale
                largest = -math.inf
                for j in range(max(0, i - reach + 1), i + 1):
                    largest = max(largest, scores[j])
                total = 0.0
                for j in range(max(0, i - reach + 1), i + 1):
                    total += torch.exp(scores[j] - largest)
                for d in range(width):
                    acc = 0.0
                    for j in range(max(0, i - reach + 1), i + 1):
                        acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, h, j, d]
                    out[b, h, i, d] = acc / total
    return out


@weft.kernel
def alibi(q, k, v, slopes, scale: float):
    batch, heads, queries, width = q.shape
    out = torch.empty_like(q)
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                scores = torch.empty(queries)
                for j in range(i + 1):
                    dot = 0.0
                    for d in range(width):
                        dot += q[b, h, i, d] * k[b, h, j, d]
                    scores[j] = dot * scale + slopes[h] * (j - i)
                largest = -math.inf
                for j in range(i + 1):
                    largest = max(largest, scores[j])
                total = 0.0
                for j in range(i + 1):
                    total += torch.exp(scores[j] - largest)
                for d in range(width):
                    acc = 0.0
                    for j in range(i + 1):
                        acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, h, j, d]
                    out[b, h, i, d] = acc / total
    return out


@weft.kernel
def capped(q, k, v, scale: float, cap: float):
    batch, heads, queries, width = q.shape
    out = torch.empty_like(q)
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                scores = torch.empty(queries)
                for j in range(i + 1):
                    dot = 0.0
                    for d in range(width):
                        dot += q[b, h, i, d] * k[b, h, j, d]
                    scores[j] = cap * torch.tanh(dot * scale / cap)
                largest = -math.inf
                for j in range(i + 1):
                    largest = max(largest, scores[j])
                total = 0.0
                for j in range(i + 1):
                    total += torch.exp(scores[j] - largest)
                for d in range(width):
                    acc = 0.0
                    for j in range(i + 1):
                        acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, h, j, d]
                    out[b, h, i, d] = acc / total
    return out


@weft.kernel
def documents(q, k, v, first, scale: float):
    """first: of each place of the sequence, that at which its document begins."""
    batch, heads, queries, width = q.shape
    out = torch.empty_like(q)
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                scores = torch.empty(queries)
                for j in range(max(0, first[b, i]), i + 1):
                    dot = 0.0
                    for d in range(width):
                        dot += q[b, h, i, d] * k[b, h, j, d]
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
                        acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, h, j, d]
                    out[b, h, i, d] = acc / total
    return out


@weft.kernel
def documents_by_number(q, k, v, document, scale: float):
    """document: of each place of the sequence, the number of its document."""
    batch, heads, queries, width = q.shape
    out = torch.empty_like(q)
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                scores = torch.empty(queries)
                for j in range(i + 1):
                    dot = 0.0
                    for d in range(width):
                        dot += q[b, h, i, d] * k[b, h, j, d]
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
                        acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, h, j, d]
                    out[b, h, i, d] = acc / total
    return out


@weft.kernel
def sink(q, k, v, sinks, scale: float):
    """sinks: of each head, a score that takes its part of the sum and has no value."""
    batch, heads, queries, width = q.shape
    out = torch.empty_like(q)
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                scores = torch.empty(queries)
                for j in range(i + 1):
                    dot = 0.0
                    for d in range(width):
                        dot += q[b, h, i, d] * k[b, h, j, d]
                    scores[j] = dot * scale
                largest = -math.inf
                for j in range(i + 1):
                    largest = max(largest, scores[j])
                total = 0.0
                for j in range(i + 1):
                    total += torch.exp(scores[j] - largest)
                total += torch.exp(sinks[h] - largest)
                for d in range(width):
                    acc = 0.0
                    for j in range(i + 1):
                        acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, h, j, d]
                    out[b, h, i, d] = acc / total
    return out


@dataclass(frozen=True)
class Variant:
    """kernel: takes q, k, v and `more`. mask, score: of FlexAttention, where there are such; sunk: of each head, its sink."""

    kernel: Callable[..., Any]
    more: tuple[Any, ...]
    mask: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    score: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor] | None = None
    sunk: Tensor | None = None


NAMES = ("window", "alibi", "capped", "documents", "documents_by_number", "sink")
SHAPES = tuple((16384 // n, heads, n, width) for n in (4096, 16384) for heads, width in ((32, 64), (16, 128)))


def variant(name: str, shape: tuple[int, int, int, int], device: torch.device) -> Variant:
    """A variant for queries, keys and values of this shape."""
    batch, heads, length, width = shape
    scale = 1 / math.sqrt(width)
    slopes = 2.0 ** (-8 / heads * torch.arange(1, heads + 1, device=device))
    sinks = torch.randn(heads, device=device)
    begins = torch.rand(batch, length, device=device) < 1 / WINDOW  # a document of so many tokens, on average
    document = begins.cumsum(1)
    places = torch.arange(length, device=device)
    first = torch.where(begins, places, 0).cummax(1).values

    def causal(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return i >= j

    match name:
        case "window":
            return Variant(window, (scale, WINDOW), lambda b, h, i, j: (i >= j) & (i - j < WINDOW))
        case "alibi":
            return Variant(alibi, (slopes, scale), causal, lambda s, b, h, i, j: s + slopes[h] * (j - i))
        case "capped":
            return Variant(capped, (scale, CAP), causal, lambda s, b, h, i, j: CAP * torch.tanh(s / CAP))
        case "documents" | "documents_by_number":
            kernel, told = (documents, first) if name == "documents" else (documents_by_number, document)
            return Variant(kernel, (told, scale), lambda b, h, i, j: (i >= j) & (document[b, i] == document[b, j]))
    return Variant(sink, (sinks, scale), causal, sunk=sinks)


def flex(own: Variant, shape: tuple[int, int, int, int], device: torch.device) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """FlexAttention of a variant, compiled, its block mask made before."""
    batch, _, length, _ = shape
    blocks = create_block_mask(own.mask, batch, None, length, length, device=device)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Any:
        if own.sunk is None:
            return flex_attention(q, k, v, score_mod=own.score, block_mask=blocks)
        out, sums = flex_attention(q, k, v, score_mod=own.score, block_mask=blocks, return_lse=True)
        return (out * torch.sigmoid(sums - own.sunk[:, None])[..., None]).to(q.dtype)

    return torch.compile(attend, dynamic=False)


def run(options: Options) -> Iterator[Row]:
    need_gpu(options)
    torch._functorch.config.donated_buffer = False  # gradients are taken many times of one call
    shapes = ((1, 2, 256, 64),) if options.quick else SHAPES
    for name in filter(options.wants, NAMES):
        for shape in shapes:
            yield from _cell(name, shape, options)
    if options.wants("library"):
        yield from _library(options)


def _cell(name: str, shape: tuple[int, int, int, int], options: Options) -> list[Row]:
    device = options.device
    torch.compiler.reset()  # FlexAttention recompiles a few times, and then keeps all scores
    own = variant(name, shape, device)
    q, k, v = (torch.randn(shape, device=device).bfloat16().requires_grad_() for _ in range(3))
    peer = flex(own, shape, device) if device.type == "cuda" else partial(_by_mask, own)
    return _compared(name, partial(own.kernel, q, k, v, *own.more), partial(peer, q, k, v), (q, k, v), "FlexAttention", options)


def _by_mask(own: Variant, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A variant by PyTorch's operators, its scores in memory."""
    b, h, i, j = torch.meshgrid(*(torch.arange(n) for n in (*q.shape[:3], q.shape[2])), indexing="ij")
    scores = q.float() @ k.float().transpose(-1, -2) / math.sqrt(q.shape[-1])
    scores = scores if own.score is None else own.score(scores, b, h, i, j)
    scores = scores.masked_fill(~own.mask(b, h, i, j), -math.inf)
    if own.sunk is None:
        return (torch.softmax(scores, -1) @ v.float()).to(q.dtype)
    sums = torch.logaddexp(scores.logsumexp(-1), own.sunk[:, None])
    return (torch.exp(scores - sums[..., None]) @ v.float()).to(q.dtype)


def _compared(
    name: str,
    ours: Callable[[], Tensor],
    theirs: Callable[[], Tensor],
    inputs: tuple[Tensor, ...],
    peer: str,
    options: Options,
) -> list[Row]:
    """The forward pass, and the backward pass."""
    outs = [f() for f in (ours, theirs)]
    torch.testing.assert_close(*(out.float() for out in outs), rtol=2e-2, atol=2e-2)
    seed = torch.randn_like(outs[1])
    backward = [partial(torch.autograd.grad, out, inputs, seed, retain_graph=True) for out in outs]
    for x, y in zip(*(f() for f in backward), strict=True):
        assert (x.float() - y.float()).norm() <= 1e-2 * y.float().norm()
    rows = []
    for direction, pair in (("forward", (ours, theirs)), ("backward", backward)):
        with torch.no_grad():
            times = times_in_turn([[f] for f in pair], options.device, seconds=min(0.2, options.seconds))
        case = {"kernel": name, "shape": list(inputs[0].shape), "dtype": "bfloat16", "pass": direction}
        rows += rows_of("variants", case, times, [peer])
    return rows


def _library(options: Options) -> list[Row]:
    """The library's attention: all keys, causal, masked, and one query of each of 32 heads that share 4 heads of keys."""
    device, rows = options.device, []
    shape = (1, 2, 256, 64) if options.quick else (4, 32, 4096, 64)
    batch, _, length, _ = shape
    q, k, v = (torch.randn(shape, device=device).bfloat16().requires_grad_() for _ in range(3))
    mask = torch.rand(batch, 1, length, length, device=device) < 0.5
    peer = "scaled_dot_product_attention"
    for name, more in (("attention", {}), ("causal", {"is_causal": True}), ("masked", {"attn_mask": mask})):
        pair = (partial(f, q, k, v, **more) for f in (attention, F.scaled_dot_product_attention))
        rows += _compared(f"weft.kernels.attention, {name}", *pair, (q, k, v), peer, options)
    own, keys = (1, 200) if options.quick else (8, 32768)
    one = torch.randn(own, 32, 1, 128, device=device).bfloat16()
    k, v = (torch.randn(own, 4, keys, 128, device=device).bfloat16() for _ in range(2))
    pair = [partial(f, one, k, v, enable_gqa=True) for f in (attention, F.scaled_dot_product_attention)]
    torch.testing.assert_close(*(f().float() for f in pair), rtol=2e-2, atol=2e-2)
    times = times_in_turn([[f] for f in pair], device, seconds=min(0.2, options.seconds))
    case = {"kernel": "weft.kernels.attention, one query", "shape": [own, 32, 4, keys, 128]}
    case |= {"dtype": "bfloat16", "pass": "forward"}
    return rows + rows_of("variants", case, times, [peer])
