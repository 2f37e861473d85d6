"""Histograms, scatters and the gradient of an embedding, against PyTorch's own: deterministic where weft is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

import weft
from bench.harness import Options, Row, need_gpu, rows_of
from weft.runtime.timing import rotations, times_in_turn


@weft.kernel
def histogram(x, bins: int):
    count = torch.zeros(bins, dtype=torch.int64)
    for i in range(len(x)):
        count[int(x[i])] += 1
    return count


@weft.kernel
def scatter_add(y, index, x):
    for i in range(len(index)):
        y[index[i]] += x[i]


@weft.kernel
def index_add(y, index, x):
    for i in range(x.shape[0]):
        for d in range(x.shape[1]):
            y[index[i], d] += x[i, d]


@weft.kernel
def embedding(table, index):
    y = torch.empty(index.shape[0], table.shape[1], dtype=table.dtype)
    for i in range(index.shape[0]):
        y[i, :] = table[index[i], :]
    return y


@dataclass(frozen=True)
class Work:
    """ours, theirs: of the inputs; bytes: that at least are moved. exact: the results are equal."""

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    inputs: Callable[[torch.device, int, int], tuple[Any, ...]]
    bytes: Callable[[int], int]
    size: int
    exact: bool = True


def _added(y: torch.Tensor, index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    scatter_add(y, index, x)
    return y


def _rows_added(y: torch.Tensor, index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    index_add(y, index, x)
    return y


def _gradient(which: int, table: torch.Tensor, g: torch.Tensor, *looked_up: torch.Tensor) -> torch.Tensor:
    """Of the table, from what was looked up in it by weft (0) or PyTorch (1)."""
    (made,) = torch.autograd.grad(looked_up[which], table, g, retain_graph=True)
    return made


def _torch_added(y: torch.Tensor, index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return y.index_add_(0, index, x)


def _whole(device: torch.device, high: int, n: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randint(0, high, (n,), device=device, generator=generator).to(dtype)


def _counted(dtype: torch.dtype, bins: int) -> Work:
    kind = str(dtype).removeprefix("torch.")
    return Work(
        f"histogram of {kind}, {bins:,} bins",
        lambda x: histogram(x, bins),
        lambda x: torch.bincount(x, minlength=bins),
        lambda device, n, seed: (_whole(device, bins, n, dtype, seed),),
        lambda n: n * dtype.itemsize,
        1 << 26,
    )


def _scattered(dtype: torch.dtype, elements: int) -> Work:
    kind = str(dtype).removeprefix("torch.")

    def inputs(device: torch.device, n: int, seed: int) -> tuple[torch.Tensor, ...]:
        index = _whole(device, elements, n, torch.int64, seed)
        return torch.zeros(elements, device=device, dtype=dtype), index, _whole(device, 100, n, dtype, seed + 1)

    return Work(
        f"scatter-add of {kind} into {elements:,}", _added, _torch_added, inputs,
        lambda n: n * (8 + dtype.itemsize) + 2 * elements * dtype.itemsize, 1 << 24, dtype.is_floating_point is False,
    )  # fmt: skip


def _rows(dtype: torch.dtype, rows: int, columns: int) -> Work:
    kind = str(dtype).removeprefix("torch.")

    def inputs(device: torch.device, n: int, seed: int) -> tuple[torch.Tensor, ...]:
        x = _whole(device, 100, n * columns, dtype, seed + 1).view(n, columns)
        return torch.zeros(rows, columns, device=device, dtype=dtype), _whole(device, rows, n, torch.int64, seed), x

    return Work(
        f"index_add of {kind} rows [{rows:,}, {columns:,}]", _rows_added, _torch_added, inputs,
        lambda n: 3 * n * columns * dtype.itemsize, 1 << 16, dtype.is_floating_point is False,
    )  # fmt: skip


def _embedded(dtype: torch.dtype) -> Work:
    kind = str(dtype).removeprefix("torch.")
    vocabulary, width = 50257, 1024

    def inputs(device: torch.device, n: int, seed: int) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator(device).manual_seed(seed)
        table = torch.zeros(vocabulary, width, device=device, dtype=dtype, requires_grad=True)
        g = torch.randn(n, width, device=device, generator=generator).to(dtype)
        index = _whole(device, vocabulary, n, torch.int64, seed)
        return table, g, embedding(table, index), F.embedding(index, table)

    return Work(
        f"gradient of an embedding, {kind}",
        partial(_gradient, 0),
        partial(_gradient, 1),
        inputs,
        lambda n: (n + vocabulary) * width * dtype.itemsize,
        16384,
        False,
    )


WORKS = (
    *(_counted(dtype, 256) for dtype in (torch.uint8, torch.int32)),
    _counted(torch.int32, 65536),
    *(_scattered(dtype, 1 << 20) for dtype in (torch.int32, torch.float32)),
    *(_rows(dtype, 1 << 16, 256) for dtype in (torch.int32, torch.float32)),
    *(_embedded(dtype) for dtype in (torch.float32, torch.bfloat16)),
)


def run(options: Options) -> list[Row]:
    need_gpu(options)
    measured: list[Row] = []
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        for work in WORKS:
            n = min(work.size, 1000) if options.quick else work.size
            sets = [work.inputs(options.device, n, seed) for seed in range(rotations(work.bytes(n)))]
            _close(work, options.device, n)
            calls = [[partial(f, *s) for s in sets] for f in (work.ours, work.theirs)]
            times = times_in_turn(calls, options.device, seconds=options.seconds)
            case = {"kernel": work.name, "n": n, "bytes": work.bytes(n)}
            measured += rows_of("joins", case, times, ["torch eager, deterministic"])
    finally:
        torch.use_deterministic_algorithms(before)
    return measured


def _close(work: Work, device: torch.device, n: int) -> None:
    """Raise where the results are not PyTorch's."""
    found, want = work.ours(*work.inputs(device, n, 0)), work.theirs(*work.inputs(device, n, 0))
    tolerance = 0.0 if work.exact else 2e-2
    torch.testing.assert_close(found, want, rtol=tolerance, atol=tolerance, check_dtype=False)
