"""One query a head whose keys lie in pages behind a table, in bfloat16: `weft bench attention --pages`.

Its peers are weft on keys that lie beside each other, PyTorch's attention on such keys, PyTorch's on keys that it has to gather
first, and a copy of as many bytes as the keys and values have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.harness import Options, Row, copies, need_gpu, rows_of
from weft.kernels.attention import attended, attended_in_pages
from weft.runtime.timing import rotations, times_in_turn

HEADS, GROUP, WIDTH = 4, 8, 128
CASES = ((8, 4096, 16), (8, 4096, 64), (8, 32768, 16), (8, 32768, 64), (8, 32768, 256), (8, 131072, 64))  # batch, keys, page


def run(options: Options) -> Iterator[Row]:
    need_gpu(options)
    for batch, keys, page in ((1, 200, 8),) if options.quick else CASES:
        yield from _case(batch, keys, page, options)


def _case(batch: int, keys: int, page: int, options: Options) -> list[Row]:
    device, scale, memory = options.device, 1 / math.sqrt(WIDTH), 4 * batch * HEADS * keys * WIDTH
    pages = -(-keys // page)
    lengths = torch.full((batch,), keys, dtype=torch.int32, device=device)
    paged, beside = [], []
    for _ in range(rotations(memory)):
        q = torch.randn(batch, HEADS, GROUP, 1, WIDTH, device=device).bfloat16()
        k, v = (torch.randn(batch * pages, page, HEADS, WIDTH, device=device).bfloat16() for _ in range(2))
        table = torch.randperm(batch * pages, device=device).reshape(batch, pages).int()
        paged.append((q, k, v, table))
        beside.append((q, *(gathered(t, table)[:, :, :keys].contiguous() for t in (k, v))))
    ways = [
        [partial(attended_in_pages, *own, lengths, scale) for own in paged],
        [partial(attended, *own, scale) for own in beside],
        [partial(sdpa, *own, scale) for own in beside],
        [partial(sdpa_of_gathered, *own, keys, scale) for own in paged],
        copies(memory, options),
    ]
    results = [way[0]() for way in ways[:3]]
    for other in results[1:]:
        torch.testing.assert_close(results[0].float().flatten(), other.float().flatten(), rtol=2e-2, atol=2e-2)
    case = {"kernel": "attended_in_pages", "keys": [batch, HEADS, keys, WIDTH], "group": GROUP, "page": page, "bytes": memory}
    peers = ["keys beside each other", "scaled_dot_product_attention", "the same of gathered keys", "copy of equal bytes"]
    return rows_of("attention_pages", case, times_in_turn(ways, device, seconds=options.seconds), peers)


def gathered(pages: Tensor, table: Tensor) -> Tensor:
    """[batch, heads, keys, width] of the pages that a table tells."""
    return pages[table.long()].flatten(1, 2).transpose(1, 2)


def sdpa(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    return F.scaled_dot_product_attention(q.flatten(1, 2), k, v, scale=scale, enable_gqa=True)


def sdpa_of_gathered(q: Tensor, k: Tensor, v: Tensor, table: Tensor, keys: int, scale: float) -> Tensor:
    return sdpa(q, *(gathered(t, table)[:, :, :keys] for t in (k, v)), scale)
