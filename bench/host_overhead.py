"""The host's time for a warm call on small tensors without autograd, against torch.add; and for one that autograd records and
goes back through, against a `torch.autograd.Function` of one launch each way.

The inputs are small enough that a GPU is done before the next call arrives; on the CPU the work itself is included.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from bench.harness import Options, Row, rows_of
from weft import ops
from weft.kernels import cumsum, linrec, rms_norm, softmax
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
    return [*rows, *_there_and_back(options)]


class _OfOneLaunch(torch.autograd.Function):
    """The least that a function with a derivative can be in Python."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, c)
        return torch.add(x, c)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, c = ctx.saved_tensors
        return torch.mul(gradient, c), torch.empty_like(x)


def _there_and_back(options: Options) -> list[Row]:
    def leaf(*shape: int) -> torch.Tensor:
        return torch.rand(shape, device=options.device, requires_grad=True)

    calls = {
        "linrec": (linrec, leaf(4, 64), leaf(4, 64)),
        "rms_norm of any leading dimensions": (rms_norm, leaf(2, 4, 64), leaf(64)),
        "weft.ops.mul": (ops.mul, leaf(4, 64), leaf(64)),
    }
    rows = []
    for name, (function, x, c) in calls.items():
        gradient = torch.ones_like(x)

        def ours(f: Callable[..., torch.Tensor] = function, x: Any = x, c: Any = c, g: torch.Tensor = gradient) -> None:
            torch.autograd.grad(f(x, c), (x, c), g)

        def theirs(x: torch.Tensor = x, c: torch.Tensor = c, g: torch.Tensor = gradient) -> None:
            torch.autograd.grad(_OfOneLaunch.apply(x, c), (x, c), g)

        times = host_times_in_turn([ours, theirs], options.device, seconds=options.seconds)
        case = {"kernel": name, "shape": list(x.shape), "with": "gradients"}
        rows += rows_of("host_overhead", case, times, ["torch.autograd.Function"])
    return rows
