"""The six workloads of bench/workloads.py as tensor graphs, against torch eager and torch.compile, as CUDA graphs.

Inputs rotate among enough sets that none is in L2. `floor_ms` of a case is the time that a copy of the bytes of its tensors
takes, half of them read and half written.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from bench.harness import Options, Row, copy_ms, need_gpu, rows_of
from bench.workloads import WORKLOADS, tensors
from weft.runtime.timing import rotations, times_in_turn


def run(options: Options) -> Iterator[Row]:
    need_gpu(options)
    for work in (w for w in WORKLOADS if options.wants(w.name)):
        for sizes in (work.small,) if options.quick else work.cases:
            graph = work.graph(*sizes)
            first = tensors(graph, options.device)
            with torch.no_grad():
                got, want = graph(*first), work.eager(*(t.double() for t in first))
            off = ((got - want).abs().max() / want.abs().max()).item()
            if off > 4e-3:
                raise AssertionError(f"{work.name} {sizes} is off by {off:.2g} of the largest element")
            moved = sum(t.numel() * t.element_size() for t in (*first, got))
            sets = [first, *(tensors(graph, options.device, seed) for seed in range(1, max(4, min(12, rotations(moved)))))]
            torch.compiler.reset()
            compiled = torch.compile(work.eager, dynamic=False)
            with torch.no_grad():
                ways = [[partial(f, *t) for t in sets] for f in (graph, work.eager, compiled)]
                times = times_in_turn(ways, options.device, seconds=min(0.1, options.seconds), graph=True)
            case = {"workload": work.name, "sizes": " x ".join(map(str, sizes))}
            if not options.quick:
                case["floor_ms"] = f"{copy_ms(moved, options, seconds=0.05):.4f}"
            yield from rows_of("tensor_graphs", case, times, ["torch eager", "torch.compile"])
            del sets, first, got, want, ways
