"""Folds of parts that are folded again are folds of the whole, whoever wrote them: loops, or block graphs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import weft
from bench.workloads import gqa_decode, gqa_decode_split, tensors
from weft.compiler.analysis import Lowered
from weft.graph import BlockGraph, KernelGraph
from weft.pytorch.inspection import examine

pytestmark = pytest.mark.usefixtures("quickly_compiled")


@weft.kernel
def in_parts(q, k, v, scale: float):
    batch, heads, width = q.shape
    keys = k.shape[2]
    group = heads // k.shape[1]
    parts = (keys + 15) // 16
    largest = torch.empty(batch, heads, parts)
    total = torch.empty(batch, heads, parts)
    sums = torch.empty(batch, heads, parts, width)
    out = torch.empty_like(q)
    for b in range(batch):
        for h in range(heads):
            for p in range(parts):
                scores = torch.empty(16)
                for j in range(16):
                    if p * 16 + j < keys:
                        dot = 0.0
                        for d in range(width):
                            dot += q[b, h, d] * k[b, h // group, p * 16 + j, d]
                        scores[j] = dot * scale
                    else:
                        scores[j] = -math.inf
                m = -math.inf
                for j in range(16):
                    m = max(m, scores[j])
                s = 0.0
                for j in range(16):
                    s += torch.exp(scores[j] - m)
                largest[b, h, p] = m
                total[b, h, p] = s
                for d in range(width):
                    a = 0.0
                    for j in range(16):
                        if p * 16 + j < keys:
                            a += torch.exp(scores[j] - m).to(q.dtype) * v[b, h // group, p * 16 + j, d]
                    sums[b, h, p, d] = a
    for b in range(batch):
        for h in range(heads):
            m = -math.inf
            for p in range(parts):
                m = max(m, largest[b, h, p])
            s = 0.0
            for p in range(parts):
                s += total[b, h, p] * torch.exp(largest[b, h, p] - m)
            for d in range(width):
                a = 0.0
                for p in range(parts):
                    a += sums[b, h, p, d] * torch.exp(largest[b, h, p] - m)
                out[b, h, d] = a / s
    return out


@weft.kernel
def online_in_parts(q, k, v, parts: int):
    batch, rows, width = q.shape
    keys = k.shape[1]
    size = (keys + parts - 1) // parts
    largest = torch.empty(batch, rows, parts)
    total = torch.empty(batch, rows, parts)
    sums = torch.zeros(batch, rows, parts, 8)
    out = torch.empty(batch, rows, 8)
    for b in range(batch):
        for i in range(rows):
            for p in range(parts):
                m, s = -math.inf, 0.0
                for j in range(p * size, min(p * size + size, keys)):
                    dot = 0.0
                    for d in range(width):
                        dot += q[b, i, d] * k[b, j, d]
                    new = max(m, dot)
                    old = torch.exp(m - new)
                    w = torch.exp(dot - new)
                    s = s * old + w
                    for d in range(8):
                        sums[b, i, p, d] = sums[b, i, p, d] * old + w * v[b, j, d]
                    m = new
                largest[b, i, p] = m
                total[b, i, p] = s
    for b in range(batch):
        for i in range(rows):
            m = -math.inf
            for p in range(parts):
                m = max(m, largest[b, i, p])
            s = 0.0
            for p in range(parts):
                s += total[b, i, p] * (torch.exp(largest[b, i, p] - m) if largest[b, i, p] > -math.inf else 0.0)
            for d in range(8):
                a = 0.0
                for p in range(parts):
                    a += sums[b, i, p, d] * (torch.exp(largest[b, i, p] - m) if largest[b, i, p] > -math.inf else 0.0)
                out[b, i, d] = a / s
    return out


@weft.kernel
def online_in_tiles(q, k, v):
    rows, width = q.shape
    keys = k.shape[0]
    out = torch.empty(rows, 8)
    for i in range(rows):
        m, s = -math.inf, 0.0
        acc = torch.zeros(8)
        for t in range((keys + 15) // 16):
            scores = torch.empty(keys)
            new = m
            for j in range(t * 16, min(t * 16 + 16, keys)):
                dot = 0.0
                for d in range(width):
                    dot += q[i, d] * k[j, d]
                scores[j] = dot
                new = max(new, dot)
            old = torch.exp(m - new)
            own = 0.0
            for j in range(t * 16, min(t * 16 + 16, keys)):
                own += torch.exp(scores[j] - new)
            s = s * old + own
            for d in range(8):
                a = 0.0
                for j in range(t * 16, min(t * 16 + 16, keys)):
                    a += torch.exp(scores[j] - new) * v[j, d]
                acc[d] = acc[d] * old + a
            m = new
        for d in range(8):
            out[i, d] = acc[d] / s
    return out


@weft.kernel
def softmax_in_parts(x):
    rows, n = x.shape
    parts = (n + 15) // 16
    largest = torch.empty(rows, parts)
    total = torch.empty(rows, parts)
    out = torch.empty_like(x)
    for r in range(rows):
        for p in range(parts):
            m = -math.inf
            for j in range(p * 16, min(p * 16 + 16, n)):
                m = max(m, x[r, j])
            s = 0.0
            for j in range(p * 16, min(p * 16 + 16, n)):
                s += torch.exp(x[r, j] - m)
            largest[r, p] = m
            total[r, p] = s
    for r in range(rows):
        m = -math.inf
        for p in range(parts):
            m = max(m, largest[r, p])
        s = 0.0
        for p in range(parts):
            s += total[r, p] * torch.exp(largest[r, p] - m)
        for j in range(n):
            out[r, j] = torch.exp(x[r, j] - m) / s
    return out


SUMS = """
def sums(x):
    rows, n = x.shape
    largest = torch.empty(rows, 4)
    total = torch.empty(rows, 4, dtype=torch.DTYPE)
    out = torch.empty(rows)
    for r in range(rows):
        for p in range(4):
            m = -math.inf
            for j in range(p * 8, p * 8 + 8):
                m = max(m, x[r, j])
            s = 0.0
            for j in range(p * 8, p * 8 + 8):
                s += torch.exp(x[r, j] - m)
            largest[r, p] = m
            total[r, p] = s
    for r in range(rows):
        m = -math.inf
        for p in range(4):
            m = max(m, largest[r, p])
        s = 0.0
        for p in range(4):
            s += total[r, p] * torch.exp(EXPONENT)
        out[r] = s
    return RESULT
"""


def rnd(*shape: int, dtype: torch.dtype = torch.float32, by: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return (torch.randn(*shape, generator=generator) * by).to(dtype)


def lowered(kernel: Any, *args: Any) -> tuple[Lowered, ...]:
    """What is known of the nests of a call."""
    return examine(kernel, args).analysis.lowered


def attended(q: Tensor, k: Tensor, v: Tensor, scale: float = 1.0) -> Tensor:
    q, k, v = q.double(), k.double(), v.double()
    return torch.softmax(q @ k.mT * scale, -1) @ v


def close(made: Tensor, exact: Tensor, tolerance: float) -> None:
    assert (made.double() - exact).abs().max() <= tolerance * exact.abs().max()


@pytest.mark.parametrize(("keys", "dtype"), [(1, torch.float16), (37, torch.bfloat16)])
def test_split_keys_are_one_chain(keys: int, dtype: torch.dtype) -> None:
    q, k, v = rnd(2, 4, 16, dtype=dtype, by=3.0), rnd(2, 2, keys, 16, dtype=dtype), rnd(2, 2, keys, 16, dtype=dtype, by=2.0)
    (found,) = lowered(in_parts, q, k, v, 0.25)
    assert found.chain is not None and found.chain.together is not None
    k2, v2 = (t.repeat_interleave(2, 1) for t in (k, v))
    close(in_parts(q, k, v, 0.25), attended(q[:, :, None], k2, v2, 0.25)[:, :, 0], 1e-2)


@pytest.mark.parametrize(("keys", "parts"), [(37, 4), (5, 7)])
def test_parts_that_are_online(keys: int, parts: int) -> None:
    """Some parts may have nothing: their sums are brought to 0."""
    q, k, v = rnd(2, 3, 4, by=3.0), rnd(2, keys, 4), rnd(2, keys, 8)
    assert len(lowered(online_in_parts, q, k, v, parts)) == 1
    close(online_in_parts(q, k, v, parts), attended(q, k, v), 1e-5)


@pytest.mark.parametrize("keys", [1, 37])
def test_tiles_that_are_online(keys: int) -> None:
    q, k, v = rnd(37, 4, by=3.0), rnd(keys, 4), rnd(keys, 8)  # as many rows as keys, which stay apart
    assert len(lowered(online_in_tiles, q, k, v)) == 1
    close(online_in_tiles(q, k, v), attended(q, k, v), 1e-5)


def test_softmax_in_parts() -> None:
    x = rnd(5, 50, by=4.0)
    assert len(lowered(softmax_in_parts, x)) == 1
    close(softmax_in_parts(x), torch.softmax(x.double(), -1), 1e-6)


@pytest.mark.parametrize(
    ("exponent", "dtype", "result", "one"),
    [
        ("largest[r, p] - m", "float32", "out", True),
        ("2 * (largest[r, p] - m)", "float32", "out", False),  # which no term relative to m is
        ("largest[r, p] - m - p", "float32", "out", False),  # each part weighs by where it is
        ("largest[r, p] - m", "float16", "out", False),  # a part is rounded
        ("largest[r, p] - m", "float32", "out, total", False),  # parts are wanted
    ],
)
def test_what_is_no_sum_of_the_whole(exponent: str, dtype: str, result: str, one: bool) -> None:
    text = SUMS.replace("EXPONENT", exponent).replace("DTYPE", dtype).replace("RESULT", result)
    kernel, x = weft.kernel(text), rnd(3, 32, by=3.0)
    assert (lowered(kernel, x)[0].sweeps is not None) == one
    own = x.double().reshape(3, 4, 8)
    m = own.amax(-1, keepdim=True)
    total = (own - m).exp().sum(-1)
    total = total.half().double() if dtype == "float16" else total
    away = eval(exponent.replace("largest[r, p]", "a"), {"a": m[..., 0], "m": m.amax(1), "p": torch.arange(4.0)})
    made = kernel(x)
    close(made[0] if result != "out" else made, (total * away.exp()).sum(-1), 1e-6)
    if result != "out":
        close(made[1], total, 1e-6)


def online(heads: int, queries: int, keys: int, d: int, turns: int, rows: int = 1, dtype: str = "float16") -> KernelGraph:
    """Attention by blocks, each of which goes through all keys online; blocks share the queries of a head, if any."""
    g = KernelGraph("online")
    q, k, v = (g.input(n, s, dtype) for n, s in (("q", (heads, queries, d)), ("k", (heads, d, keys)), ("v", (heads, keys, d))))
    block = BlockGraph((heads, rows), turns)
    along = 1 if rows > 1 else -1
    scores = block.mul_scalar(block.matmul(block.input(q, (0, along)), block.input(k, (0, -1), 2)), 0.25)
    so_far = block.running_max(block.reduction_max(scores, -1))
    scale = block.exp(block.sub(block.previous(so_far, -math.inf), so_far))
    weights = block.to(block.exp(block.sub(scores, so_far)), dtype)
    total = block.accumulate(block.reduction(weights, -1), "rescaled_sum", scale=scale)
    sums = block.accumulate(block.matmul(weights, block.input(v, (0, -1), 1)), "rescaled_sum", scale=scale)
    block.output(block.div(sums, total), (0, along))
    g.output(*g.customized((q, k, v), block))
    return g


@pytest.mark.parametrize(
    "graph",
    [
        online(2, 12, 37, 16, 4, dtype="bfloat16"),
        online(2, 12, 40, 16, 4, rows=3),
        online(2, 40, 40, 16, 1),
        gqa_decode_split(2, 12, 48, 16),
        gqa_decode_split(2, 12, 37, 16, 3, 2),
        gqa_decode(1, 12, 40, 16),  # of one head, which some of its nests have no loop for
    ],
)
def test_block_graphs_that_are_chains(graph: KernelGraph) -> None:
    given = [t.to(torch.bfloat16) if "bfloat16" in graph.program else t for t in tensors(graph)]
    (found,) = lowered(graph.kernel, *given)
    assert found.chain is not None
    close(graph(*given), graph.reference(*given, double=True), 1e-2)


def test_a_running_value_that_the_terms_are_not_relative_to() -> None:
    g = KernelGraph("twice")
    x = g.input("x", (3, 24))
    block = BlockGraph((1,), 3)
    tile = block.input(x, (-1,), 1)
    so_far = block.running_max(block.reduction_max(tile, -1))
    scale = block.exp(block.sub(block.previous(so_far, -math.inf), so_far))
    terms = block.reduction(block.exp(block.mul_scalar(block.sub(tile, so_far), 2.0)), -1)
    block.output(block.accumulate(terms, "rescaled_sum", scale=scale), (-1,))
    g.output(*g.customized((x,), block))
    assert "at_last" not in g.program
    given = rnd(3, 24, by=2.0)
    close(g(given), g.reference(given, double=True), 1e-5)
