"""The host's time for a warm call on small tensors without autograd, against torch.add.

The inputs are small enough that a GPU is done before the next call arrives; on the CPU the work itself is included.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from bench.harness import Options, Row, rows_of
from weft.kernels import cumsum, linrec, softmax
from weft.runtime.timing import host_times_in_turn


def run(options: Options) -> list[Row]:
    device = options.device
    x, c = torch.randn(4, 64, device=device), torch.rand(4, 64, device=device)
    calls: dict[str, Callable[[], object]] = {
        "linrec": partial(linrec.kernel, x, c),
        "linrec of any leading dimensions": partial(linrec, x, c),
        "softmax": partial(softmax.kernel, x),
        "cumsum": partial(cumsum.kernel, x),
    }
    rows = []
    with torch.no_grad():
        for name, call in calls.items():
            times = host_times_in_turn([call, partial(torch.add, x, c)], device, seconds=options.seconds)
            rows += rows_of("host_overhead", {"kernel": name, "shape": [4, 64]}, times, ["torch.add"])
    return rows
