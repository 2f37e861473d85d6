"""The linear recurrence on the CPU: against a torch.add that moves equal bytes, and against the plain Python."""

from __future__ import annotations

import time
from functools import partial

import torch

from bench.harness import Options, Row
from weft.kernels.linrec import linrec
from weft.runtime.timing import add_of_equal_bytes, median_ms, rotations

CPU_ONLY = True

# The plain Python takes microseconds an element: it runs on these rows, and its time counts by the element.
PYTHON_ROWS = 4


def run(options: Options) -> list[Row]:
    device = torch.device("cpu")
    shapes = ((64, 1024),) if options.quick else ((2048, 4096), (16384, 1024), (256, 65536))
    return [row for shape in shapes for row in _shape(*shape, device, options)]


def _shape(rows: int, length: int, device: torch.device, options: Options) -> list[Row]:
    generator = torch.Generator(device).manual_seed(length)
    bytes_moved = 12 * rows * length
    sets = [
        (torch.randn(rows, length, generator=generator), torch.rand(rows, length, generator=generator))
        for _ in range(rotations(bytes_moved))
    ]
    case = {"pass": "forward", "rows": rows, "length": length, "dtype": "float32", "bytes": bytes_moved}
    with torch.no_grad():
        weft_ms = median_ms([partial(linrec.kernel, *tensors) for tensors in sets], device, seconds=4 * options.seconds)
        add_ms = add_of_equal_bytes(bytes_moved, device, seconds=4 * options.seconds)
        python_ms = _python_ms(*sets[0]) * rows / PYTHON_ROWS
    return [
        Row("cpu", case, weft_ms, "torch.add of equal bytes", add_ms),
        Row("cpu", case, weft_ms, f"the plain Python ({PYTHON_ROWS} rows, scaled)", python_ms),
    ]


def _python_ms(x: torch.Tensor, c: torch.Tensor) -> float:
    start = time.perf_counter()
    linrec.py(x[:PYTHON_ROWS, :4096], c[:PYTHON_ROWS, :4096])
    elapsed = time.perf_counter() - start
    return 1e3 * elapsed * x.shape[1] / min(4096, x.shape[1])
