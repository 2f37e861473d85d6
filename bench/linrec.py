"""The linear recurrence, forward and backward, against a torch.add that moves equal bytes.

Bytes are counted as the algorithm needs them, once each: forward reads x and c and writes y (12 an element in float32);
backward reads dy, c and y and writes dx and dc (20); half of that in bfloat16.
"""

from __future__ import annotations

from functools import partial

import torch

from bench.harness import Options, Row, rows_of
from weft.kernels.linrec import linrec
from weft.runtime.timing import Backward, adds_of_equal_bytes, gradients_ms, rotations, times_in_turn

LENGTHS = (256, 1024, 4096, 16384, 65536)
DTYPES = (torch.float32, torch.bfloat16)


def run(options: Options) -> list[Row]:
    rows = 64 if options.quick or options.device.type == "cpu" else 132 * 100
    lengths = LENGTHS[:2] if options.quick or options.device.type == "cpu" else LENGTHS
    return [row for dtype in DTYPES for length in lengths for row in _length(rows, length, dtype, options)]


def _length(rows: int, length: int, dtype: torch.dtype, options: Options) -> list[Row]:
    device = options.device
    generator = torch.Generator(device).manual_seed(length)
    forward_bytes, backward_bytes = (n * dtype.itemsize * rows * length for n in (3, 5))
    sets = [_inputs(rows, length, dtype, generator) for _ in range(rotations(forward_bytes))]
    small = forward_bytes < 2**28  # where the host's time to launch would show
    with torch.no_grad():
        forward = [partial(linrec.kernel, x, c) for x, c, _ in sets]
        ways = [forward, adds_of_equal_bytes(forward_bytes, device)]
        forward_times = times_in_turn(ways, device, seconds=options.seconds, graph=small)
    del forward, ways
    passes, yardstick = [partial(_forward, *tensors) for tensors in sets], adds_of_equal_bytes(backward_bytes, device)
    backward = gradients_ms([passes], device, seconds=options.seconds, beside=[yardstick])
    measured, word = [], str(dtype).removeprefix("torch.")
    found = (("forward", forward_bytes, forward_times, {}), ("backward", backward_bytes, backward.times, backward.note))
    for direction, bytes_moved, times, note in found:
        case = {"pass": direction, "rows": rows, "length": length, "dtype": word, "bytes": bytes_moved, **note}
        measured += rows_of("linrec", case, times, ["torch.add of equal bytes"])
    return measured


def _forward(x: torch.Tensor, c: torch.Tensor, dy: torch.Tensor) -> Backward:
    leaves = (x.detach().requires_grad_(), c.detach().requires_grad_())
    return linrec(*leaves), leaves, dy


def _inputs(rows: int, length: int, dtype: torch.dtype, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    shape, device = (rows, length), generator.device
    x = torch.randn(shape, device=device, generator=generator, dtype=dtype)
    c = torch.rand(shape, device=device, generator=generator, dtype=dtype)
    return x, c, torch.randn(shape, device=device, generator=generator, dtype=dtype)
