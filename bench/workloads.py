"""Six workloads of language models as tensor graphs: of operators alone, and where a block graph is natural, as one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from weft.graph import BlockGraph, KernelGraph
from weft.tensors.builder import Value

EPS = 1e-5
Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Workload:
    """graph: of these sizes, in float16; eager: the same by PyTorch. small: sizes for tests; cases: those that are measured."""

    name: str
    graph: Callable[..., KernelGraph]
    eager: Callable[..., torch.Tensor]
    small: Sizes
    cases: tuple[Sizes, ...]


def rms_linear(b: int, k: int, n: int) -> KernelGraph:
    """`rms_norm(x) @ w`: the root of a row is known when its product is."""
    g = KernelGraph("rms_linear")
    x, w = g.input("x", (b, k), "float16"), g.input("w", (k, n), "float16")
    squares = g.reduction(g.square(x), 1)
    rms = g.sqrt(g.add(g.mul_scalar(squares, 1 / k), EPS), name="rms")
    g.output(g.div(g.matmul(x, w), rms))
    return g


def rms_linear_block(b: int, k: int, n: int) -> KernelGraph:
    """The same by blocks along n that go through k in turns of 64."""
    g = KernelGraph("rms_linear_block")
    x, w = g.input("x", (b, k), "float16"), g.input("w", (k, n), "float16")
    block = BlockGraph((math.ceil(n / 64),), math.ceil(k / 64))
    rows = block.input(x, (-1,), 1)
    weights = block.input(w, (1,), 0)
    product = block.accumulate(block.matmul(rows, weights), name="product")
    rms = block.accumulate(rows, "rms", eps=EPS, name="rms")
    block.output(block.div(product, rms), (1,), name="y")
    g.output(*g.customized((x, w), block))
    return g


def _rms_linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x, x.shape[-1:], eps=EPS) @ w


def gated_mlp(b: int, k: int, n: int) -> KernelGraph:
    g = KernelGraph("gated_mlp")
    x = g.input("x", (b, k), "float16")
    gate, up = (g.input(name, (k, n), "float16") for name in ("gate", "up"))
    g.output(g.mul(g.silu(g.matmul(x, gate)), g.matmul(x, up)))
    return g


def gated_mlp_block(b: int, k: int, n: int) -> KernelGraph:
    g = KernelGraph("gated_mlp_block")
    x = g.input("x", (b, k), "float16")
    gate, up = (g.input(name, (k, n), "float16") for name in ("gate", "up"))
    block = BlockGraph((math.ceil(n / 64),), math.ceil(k / 64))
    rows = block.input(x, (-1,), 1)
    first, second = (block.accumulate(block.matmul(rows, block.input(w, (1,), 0))) for w in (gate, up))
    block.output(block.mul(block.silu(first), second), (1,))
    g.output(*g.customized((x, gate, up), block))
    return g


def _gated_mlp(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return functional.silu(x @ gate) * (x @ up)


def lora(b: int, k: int, n: int, rank: int) -> KernelGraph:
    """`x @ w + (x @ down) @ up`; what the low rank leaves of x is a float16 as in PyTorch."""
    g = KernelGraph("lora")
    x, w = g.input("x", (b, k), "float16"), g.input("w", (k, n), "float16")
    down, up = g.input("down", (k, rank), "float16"), g.input("up", (rank, n), "float16")
    low = g.to(g.matmul(x, down), "float16", name="low")
    g.output(g.add(g.matmul(x, w), g.matmul(low, up)))
    return g


def _lora(x: torch.Tensor, w: torch.Tensor, down: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return x @ w + (x @ down) @ up


def _attended(g: KernelGraph, scores: Value, v: Value) -> None:
    """Return the softmax of scores times v, with the exponentials rounded for the product."""
    weights = g.to(g.exp(g.sub(scores, g.reduction_max(scores, -1))), "float16", name="weights")
    g.output(g.div(g.matmul(weights, v), g.reduction(weights, -1)))


def gqa_decode(heads: int, queries: int, keys: int, d: int) -> KernelGraph:
    """Attention of a group's queries to all keys, which lie as [d, keys]."""
    g = KernelGraph("gqa_decode")
    q, k = g.input("q", (heads, queries, d), "float16"), g.input("k", (heads, d, keys), "float16")
    v = g.input("v", (heads, keys, d), "float16")
    _attended(g, g.matmul(q, k), v)
    return g


def gqa_decode_split(heads: int, queries: int, keys: int, d: int, parts: int = 4, turns: int = 4) -> KernelGraph:
    """The same split over the keys: blocks go through a part of them online, and a second block graph puts these together."""
    g = KernelGraph("gqa_decode_split")
    q, k = g.input("q", (heads, queries, d), "float16"), g.input("k", (heads, d, keys), "float16")
    v = g.input("v", (heads, keys, d), "float16")
    part = BlockGraph((heads, parts), turns, name="part")
    rows = part.input(q, (0, -1))
    scores = part.matmul(rows, part.input(k, (0, 2), 2), name="scores")
    largest = part.reduction_max(scores, -1, name="largest")
    so_far = part.running_max(largest, name="so_far")
    scale = part.exp(part.sub(part.previous(so_far, -math.inf), so_far), name="scale")
    weights = part.to(part.exp(part.sub(scores, so_far)), "float16", name="weights")
    total = part.accumulate(part.reduction(weights, -1), "rescaled_sum", scale=scale)
    summed = part.accumulate(part.matmul(weights, part.input(v, (0, 1), 1)), "rescaled_sum", scale=scale)
    part.output(part.accumulate(largest, "max"), (0, 2), name="largest_of_parts")
    part.output(total, (0, 2), name="totals")
    part.output(summed, (0, 2), name="sums")
    largest_of_parts, totals, sums = g.customized((q, k, v), part)
    whole = BlockGraph((heads,), parts, name="whole")
    peak = g.reduction_max(largest_of_parts, 2)
    of_all = whole.input(peak, (0,))
    share = whole.exp(whole.sub(whole.input(largest_of_parts, (0,), 2), of_all))
    top, below = (whole.accumulate(whole.mul(whole.input(t, (0,), 2), share)) for t in (sums, totals))
    whole.output(whole.div(top, below), (0,))
    g.output(*g.customized((peak, largest_of_parts, sums, totals), whole))
    return g


def _gqa_decode(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k, -1) @ v


def qk_norm(heads: int, queries: int, keys: int, d: int) -> KernelGraph:
    """Attention with rows of q and columns of k divided by their roots."""
    g = KernelGraph("qk_norm")
    q, k = g.input("q", (heads, queries, d), "float16"), g.input("k", (heads, d, keys), "float16")
    v = g.input("v", (heads, keys, d), "float16")
    rows = g.to(g.rms_norm(q, eps=EPS), "float16")
    squares = g.reduction(g.square(k), 1)
    columns = g.to(g.div(k, g.sqrt(g.add(g.mul_scalar(squares, 1 / d), EPS))), "float16")
    _attended(g, g.mul_scalar(g.matmul(rows, columns), d**-0.5), v)
    return g


def _qk_norm(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    rows = functional.rms_norm(q, q.shape[-1:], eps=EPS)
    columns = functional.rms_norm(k.mT, q.shape[-1:], eps=EPS)
    return functional.scaled_dot_product_attention(rows[None], columns[None], v[None])[0]


def n_trans(b: int, n: int) -> KernelGraph:
    """`rms_norm(x + alpha * (rms_norm(h) + x))`."""
    g = KernelGraph("n_trans")
    x, h, alpha = g.input("x", (b, n), "float16"), g.input("h", (b, n), "float16"), g.input("alpha", (1, n), "float16")
    g.output(g.rms_norm(g.add(x, g.mul(alpha, g.add(g.rms_norm(h, eps=EPS), x))), eps=EPS))
    return g


def _n_trans(x: torch.Tensor, h: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    shape = x.shape[-1:]
    return functional.rms_norm(x + alpha * (functional.rms_norm(h, shape, eps=EPS) + x), shape, eps=EPS)


WORKLOADS = (
    Workload("RMSNorm + matmul", rms_linear, _rms_linear, (4, 130, 70), ((2, 4096, 6144), (16, 4096, 4096))),
    Workload("RMSNorm + matmul, blocks", rms_linear_block, _rms_linear, (4, 130, 70), ((16, 4096, 4096),)),
    Workload("gated MLP", gated_mlp, _gated_mlp, (8, 70, 90), ((8, 4096, 4096), (16, 4096, 4096))),
    Workload("gated MLP, blocks", gated_mlp_block, _gated_mlp, (8, 70, 90), ((16, 4096, 4096),)),
    Workload("LoRA", lora, _lora, (5, 40, 60, 16), ((16, 256, 4096, 16), (1, 4096, 4096, 16))),
    Workload("GQA decode", gqa_decode, _gqa_decode, (2, 12, 40, 16), ((2, 256, 4096, 64), (16, 256, 4096, 64))),
    Workload("GQA decode, split", gqa_decode_split, _gqa_decode, (2, 12, 48, 16), ((2, 256, 4096, 64),)),
    Workload("QKNorm attention", qk_norm, _qk_norm, (2, 4, 40, 32), ((32, 4, 4096, 128),)),
    Workload("nTrans", n_trans, _n_trans, (5, 70), ((8, 4096), (64, 4096))),
)


def tensors(graph: KernelGraph, device: torch.device | None = None, seed: int = 0) -> list[torch.Tensor]:
    """Random tensors for a graph, so scaled that what it makes is about as large as they are."""
    device = device or torch.device("cpu")
    generator = torch.Generator(device).manual_seed(seed)
    made = []
    for node in graph.graph.inputs:
        shape = [d.size for d in node.dims if isinstance(d.size, int)]
        weight = node.name not in ("x", "h", "q", "alpha")
        t = torch.randn(shape, generator=generator, device=device) / (shape[-2] ** 0.5 if weight else 1.0)
        made.append(t.half())
    return made
