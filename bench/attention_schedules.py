"""The schedules of attention's key loop, all from one program: blocks that go through all keys of their queries, blocks that
share these and are combined after, and passes through memory without an order among their blocks.

Each is a plan that `kernel.tune` measures; the one that the planner takes is first. `weft bench attention --schedules`
"""

from __future__ import annotations

import math
from typing import Any

import torch

from bench.attention import causal, decode, in_passes
from bench.harness import Options, Row, need_gpu
from weft.pytorch.tuning import tune_call

# kernel, shape of the queries, shape of the keys and values
CASES: tuple[tuple[Any, tuple[int, ...], tuple[int, ...]], ...] = (
    (in_passes, (128, 4096, 64), (128, 4096, 64)),
    (causal, (128, 4096, 64), (128, 4096, 64)),
    (in_passes, (8, 64, 128), (8, 32768, 128)),
    (decode, (8, 32, 128), (8, 4, 4096, 128)),
    (decode, (8, 32, 128), (8, 4, 32768, 128)),
)


def run(options: Options) -> list[Row]:
    need_gpu(options)
    rows = []
    for kernel, queries, keys in CASES[3:4] if options.quick else CASES:
        q, k, v = (torch.randn(s, device=options.device).bfloat16() for s in (queries, keys, keys))
        (call,) = tune_call(kernel, (q, k, v, 1 / math.sqrt(q.shape[-1])), seconds=options.seconds, progress=False).calls
        first = call.rows[0]
        for row in call.rows:
            case = {"kernel": kernel.name, "queries": list(queries), "keys": list(keys), "schedule": row.plan}
            rows.append(Row("attention_schedules", case, row.ms, first.plan, first.ms))
    return rows
