"""Chained products whose columns lie in pages: read as such, brought page by page, and checked as the Python checks them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import weft
from tests.test_chains import BF16, close, inputs, plan_of, ran, read, reference
from weft.errors import ShapeMismatch
from weft.graph.pages import Pages
from weft.kernels.attention import attended_in_pages, paged_attention
from weft.loops.ir import Ref
from weft.loops.types import INT64
from weft.plan.chain import ChainPlan
from weft.pytorch import simulated


def paged(page: int, pages: int, lengths: list[int], queries: int = 1, heads: int = 2, group: int = 4) -> list[Any]:
    """Arguments of `attended_in_pages` of keys in pages that lie anywhere; what no query has is no page, or no number."""
    batch, own = len(lengths), max(lengths) // page + 1
    q, k, v = inputs((batch, heads, group, queries, 64), *((pages, page, heads, 64),) * 2)
    table = torch.randint(-pages, pages, (batch, own), generator=torch.Generator().manual_seed(1), dtype=torch.int32)
    for b, length in enumerate(lengths):
        table[b, -(-length // page) :] = 10**6 * (b + 1)
    return [q, k, v, table, torch.tensor(lengths, dtype=torch.int32), 0.2]


def expected(q: Tensor, k: Tensor, v: Tensor, table: Tensor, lengths: Tensor, scale: float) -> Tensor:
    batch, _, _, queries, _ = q.shape
    own = table.clamp(-k.shape[0], k.shape[0] - 1).long()
    keys, values = (t[own].flatten(1, 2).transpose(1, 2)[:, :, None] for t in (k, v))
    last = lengths[:, None] - queries + torch.arange(queries) + 1
    seen = (torch.arange(keys.shape[3]) < last[..., None])[:, None, None]
    return reference(q, keys, values, scale, seen.expand(batch, 1, 1, *seen.shape[3:])).nan_to_num(0.0).permute(0, 3, 1, 2, 4)


def test_what_is_read() -> None:
    found = read(attended_in_pages, *paged(16, 5, [40, 3]))
    assert found.pages == tuple(Pages(name, "j", Ref("page", INT64), 1, 0, ("table",)) for name in "kv")
    assert found.divisors == (Ref("page", INT64),)
    assert found.bounded


@pytest.mark.parametrize(
    ("page", "lengths", "queries"), [(8, [50, 3, 0], 1), (64, [130, 64], 3), (256, [300, 255], 1), (48, [40, 150], 70)], ids=str
)
def test_keys_in_pages(page: int, lengths: list[int], queries: int) -> None:
    """Some pages a turn, or several turns a page; few queries have heads as the rows of a tile, many their own places."""
    args = paged(page, 7, lengths, queries, group=2 if queries > 1 else 8)
    plan = plan_of(attended_in_pages, *args)
    assert isinstance(plan, ChainPlan)
    assert plan.box_columns == min(page, plan.sums.tile[2])
    close(ran(attended_in_pages, *args)["out"], expected(*args))


def test_the_widest_heads() -> None:
    shapes = "bfloat16[2,2,8,1,256]", "bfloat16[100,16,2,256]", "bfloat16[100,16,2,256]", "int32[2,60]", "int32[2]"
    assert isinstance(plan_of(attended_in_pages, *shapes, 0.1), ChainPlan)


def test_what_nobody_has_of_a_page_may_be_anything() -> None:
    args = paged(16, 1, [5])
    clean = ran(attended_in_pages, *args)["out"]
    args[1][:, 5:], args[2][:, 5:9], args[2][:, 9:] = math.nan, math.inf, math.nan
    assert torch.equal(ran(attended_in_pages, *args)["out"], clean)


@pytest.mark.parametrize("wrong", ["entry", "length", "far"])
def test_subscripts_that_leave_their_arrays_stop_the_kernel(wrong: str) -> None:
    args = paged(16, 5, [40, 30])
    if wrong == "entry":
        args[3][1, 1] = -6
    else:
        args[4][1] = 16 * args[3].shape[1] + 1 if wrong == "length" else 2**31 - 1
    found = simulated.simulate_call(attended_in_pages.program, args, "sm_90a", 0, "call")
    kinds = {f.kind for launch in found.launches for s in launch.simulations for f in s.findings}
    assert "trap" in kinds


@weft.kernel
def all_pages(q, k, v, table, keys: int):
    """As many keys as an argument says, in pages of 16, of tables beside each other in memory."""
    batch, heads, width = q.shape
    out = torch.empty_like(q)
    for b in range(batch):
        for h in range(heads):
            scores = torch.empty(table.shape[1] * 16)
            for j in range(keys):
                dot = 0.0
                for d in range(width):
                    dot += q[b, h, d] * k[table[b, j // 16], h // 4, j % 16, d]
                scores[j] = dot
            for d in range(width):
                acc = 0.0
                for j in range(keys):
                    acc += scores[j].to(q.dtype) * v[table[b, j // 16], h // 4, j % 16, d]
                out[b, h, d] = acc
    return out


@pytest.mark.parametrize("keys", [64, 41])
def test_pages_of_numbers_that_sizes_tell(keys: int) -> None:
    """A last page that is not whole holds what no query has."""
    q, k, v = (t / 8 for t in inputs((2, 8, 64), (6, 2, 16, 64), (6, 2, 16, 64)))
    table = torch.tensor([[3, 1, 0, 2], [0, 4, 1, 4]])
    if keys == 41:
        k[2], v[2], v[4, :, 9:], k[5] = math.nan, math.inf, math.nan, math.nan
        table[1] = torch.tensor([0, 1, 4, 5])
    args = (q, k, v, table, keys)
    assert isinstance(plan_of(all_pages, *args), ChainPlan)
    rows = [t[table].transpose(1, 2).flatten(2, 3)[:, :, :keys].double().repeat_interleave(4, 1) for t in (k, v)]
    scores = torch.einsum("bhd,bhjd->bhj", q.double(), rows[0])
    close(ran(all_pages, *args)["out"], torch.einsum("bhj,bhjd->bhd", scores, rows[1]))


def test_other_pages_run_in_passes() -> None:
    """Of sizes that are no boxes, and before sm_90a."""
    assert not isinstance(plan_of(attended_in_pages, *paged(12, 5, [40])), ChainPlan)
    args = paged(16, 5, [20], group=2)
    found = simulated.simulate_call(attended_in_pages.program, args, "sm_80", 0, "call")
    assert not [f for launch in found.launches for s in launch.simulations for f in s.findings]
    close(found.arrays["out"], expected(*args))


def test_paged_attention_checks_what_it_is_given() -> None:
    q, k, v, table, lengths, _ = paged(16, 5, [40, 3], queries=2)
    out = paged_attention(q.flatten(1, 2), k, v, table, lengths)
    close(out, expected(q, k, v, table, lengths, 0.125).permute(0, 2, 3, 1, 4).flatten(1, 2))
    with pytest.raises(ShapeMismatch, match="do not fit"):
        paged_attention(q.flatten(1, 2), k, v[:, :8], table, lengths)
    with pytest.raises(ShapeMismatch, match="evenly"):
        paged_attention(q.flatten(1, 2)[:, :3], k, v, table, lengths)


def test_gradients_of_keys_in_pages() -> None:
    """On a CPU, against PyTorch's of what is gathered; a page that two sequences share has both."""
    q, k, v = (t.double().requires_grad_() for t in inputs((2, 4, 1, 8), (3, 8, 2, 8), (3, 8, 2, 8)))
    table, lengths = torch.tensor([[1, 2], [2, 0]]), torch.tensor([11, 16])
    ours = torch.autograd.grad(paged_attention(q, k, v, table, lengths).square().sum(), (q, k, v))
    made = expected(q.unflatten(1, (2, 2)), k, v, table, lengths, 8**-0.5)
    for a, b in zip(ours, torch.autograd.grad(made.square().sum(), (q, k, v)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.gpu
def test_keys_in_pages_on_a_gpu() -> None:
    args = paged(16, 300, [4000, 77, 0], queries=2)
    found = [attended_in_pages(*(t.cuda() for t in args[:-1]), 0.2).cpu() for _ in range(3)]
    assert all(torch.equal(one, found[0]) for one in found)
    assert found[0].dtype == BF16
    close(found[0], expected(*args))
