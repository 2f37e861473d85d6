"""The host's time for a warm call on small tensors without autograd, against torch.add.

The inputs are small enough that a GPU is done before the next call arrives; on the CPU the work itself is included.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch

from bench.harness import Options, Row
from weft.kernels import cumsum, linrec, softmax


def run(options: Options) -> list[Row]:
    device = options.device
    x, c = torch.randn(4, 64, device=device), torch.rand(4, 64, device=device)
    calls: dict[str, Callable[[], object]] = {
        "linrec": partial(linrec.kernel, x, c),
        "linrec of any leading dimensions": partial(linrec, x, c),
        "softmax": partial(softmax.kernel, x),
        "cumsum": partial(cumsum.kernel, x),
    }
    with torch.no_grad():
        add_ms = host_ms(partial(torch.add, x, c), options)
        return [
            Row("host_overhead", {"kernel": name, "shape": [4, 64]}, host_ms(call, options), "torch.add", add_ms)
            for name, call in calls.items()
        ]


def host_ms(call: Callable[[], object], options: Options) -> float:
    """The median over batches of 100 calls, the device drained between batches so that its queue never fills."""
    batches = 20 if options.quick else 300
    for _ in range(100):
        call()
    times = []
    for _ in range(batches):
        if options.device.type == "cuda":
            torch.cuda.synchronize(options.device)
        start = time.perf_counter()
        for _ in range(100):
            call()
        times.append((time.perf_counter() - start) / 100)
    return 1e3 * median(times)
