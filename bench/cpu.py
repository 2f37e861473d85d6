"""Kernels of every kind on the CPU, against PyTorch's own; the linear recurrence against the plain Python too."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import weft
from bench import folds, joins, maps, scans
from bench.harness import Options, Row, rows_of
from bench.pointwise_chains import gelu_dropout_residual
from weft import ops
from weft.kernels import LIBRARY
from weft.kernels.linrec import linrec
from weft.runtime.timing import adds_of_equal_bytes, rotations, times_in_turn

CPU_ONLY = True

# The plain Python takes microseconds an element: it runs on these rows, and its time counts by the element.
PYTHON_ROWS = 4


@weft.kernel
def product(a, b):
    n, m, p = a.shape[0], a.shape[1], b.shape[1]
    c = torch.zeros(n, p, dtype=a.dtype)
    for i in range(n):
        for j in range(p):
            for k in range(m):
                c[i, j] += a[i, k] * b[k, j]
    return c


@weft.kernel
def attention(q, k, v):
    heads, length, size = q.shape
    y = torch.empty_like(q)
    for h in range(heads):
        for i in range(length):
            high, total = -math.inf, 0.0
            seen = torch.zeros(size, dtype=q.dtype)
            for j in range(length):
                score = 0.0
                for d in range(size):
                    score += q[h, i, d] * k[h, j, d]
                score = score / math.sqrt(size)
                new = max(high, score)
                old, now = torch.exp(high - new), torch.exp(score - new)
                total = total * old + now
                for d in range(size):
                    seen[d] = seen[d] * old + now * v[h, j, d]
                high = new
            for d in range(size):
                y[h, i, d] = seen[d] / total
    return y


@dataclass(frozen=True)
class Work:
    """A kernel, the same in PyTorch, and how its arguments are made from what makes random tensors. title: where the name of
    the kernel does not tell. close: how far results may be apart.
    """

    kernel: Any
    peer: Callable[..., Any]
    make: Callable[[Callable[..., Tensor]], tuple[Any, ...]]
    title: str = ""
    close: float = 1e-4


def _rows(n: int, m: int, *more: str) -> Callable[[Callable[..., Tensor]], tuple[Any, ...]]:
    """x[n, m]; more: row, a tensor of its columns; like x, a second one; places, a column for each row."""

    def make(new: Callable[..., Tensor]) -> tuple[Any, ...]:
        x = new(n, m)
        other = {
            "row": lambda: new(x.shape[1]),
            "like x": lambda: new(n, m),
            "transposed": lambda: new(m, n).T,
            "places": lambda: torch.randint(0, x.shape[1], x.shape[:1]),
        }
        return (x, *(other[kind]() for kind in more))

    return make


def _table(new: Callable[..., Tensor]) -> tuple[Any, ...]:
    w = new(20_000, 1024)
    return w, torch.randint(0, len(w), (16_384,))


def _added(new: Callable[..., Tensor]) -> tuple[Any, ...]:
    y, x = new(20_000, 256), new(40_000, 256)
    return y, torch.randint(0, len(y), x.shape[:1]), x


def _of_a_block(new: Callable[..., Tensor]) -> tuple[Any, ...]:
    x = new(4096, 4096)
    return x, new(x.shape[1]), new(*x.shape) > -1.2, new(x.shape[1]), new(*x.shape), 0.1


def _index_add(y: Tensor, index: Tensor, x: Tensor) -> Tensor:
    joins.index_add(y, index, x)
    return y


ELEMENTARY = {"silu": F.silu, "tanh": torch.tanh, "sin": torch.sin, "softplus": F.softplus}

WORKS = (
    Work(maps.add, torch.add, _rows(4096, 4096, "like x")),
    Work(maps.add, torch.add, _rows(4096, 4096, "row"), "add a row"),
    Work(maps.add, torch.add, _rows(4096, 4096, "transposed"), "add a transposed one"),
    Work(maps.add, torch.add, _rows(3001, 5003, "transposed"), "add a transposed one"),
    Work(maps.transposed_copy, lambda x: x.T.contiguous(), _rows(4096, 4096)),
    Work(maps.heads_first, lambda x: x.transpose(1, 2).contiguous(), lambda new: (new(4, 1000, 32, 64),)),
    Work(maps.embedding, lambda w, i: F.embedding(i, w), _table),
    Work(maps.five_points_inside, maps._five_points_inside, _rows(4096, 4096)),
    Work(LIBRARY["gelu_bias_residual"], lambda x, b, r: F.gelu(x + b) + r, _rows(4096, 4096, "row", "like x")),
    Work(ops.add, torch.add, lambda new: (new(2**24), new(2**24)), "weft.ops.add"),
    Work(ops.gelu, F.gelu, lambda new: (new(2**24),), "weft.ops.gelu"),
    *(Work(getattr(ops, name), peer, lambda new: (new(2**24),), f"weft.ops.{name}") for name, peer in ELEMENTARY.items()),
    Work(ops.remainder, torch.remainder, lambda new: (new(2**24), new(2**24)), "weft.ops.remainder"),
    Work(weft.pointwise(gelu_dropout_residual), gelu_dropout_residual, _of_a_block, "a fused chain of 6 operators"),
    Work(folds.total, torch.sum, _rows(4096, 4096), close=1.0),
    Work(folds.of_rows, partial(torch.sum, dim=1), _rows(4096, 4096), close=1e-2),
    Work(folds.of_columns, partial(torch.sum, dim=0), _rows(4096, 4096), close=1e-2),
    Work(folds.of_the_middle, partial(torch.sum, dim=1), lambda new: (new(64, 500, 513),), close=1e-2),
    Work(folds.argmax_of_rows, partial(torch.argmax, dim=1), _rows(4096, 4096)),
    Work(folds.argmax_of_columns, partial(torch.argmax, dim=0), _rows(4096, 4096)),
    Work(folds.cross_entropy, lambda x, t: F.cross_entropy(x, t, reduction="none"), _rows(2000, 10_007, "places")),
    Work(LIBRARY["softmax"], partial(torch.softmax, dim=-1), _rows(4096, 4096)),
    Work(LIBRARY["rms_norm"], lambda x, w: F.rms_norm(x, w.shape, w, 1e-6), _rows(4096, 4096, "row")),
    Work(LIBRARY["layer_norm"], lambda x, w, b: F.layer_norm(x, w.shape, w, b, 1e-5), _rows(4096, 4096, "row", "row")),
    Work(LIBRARY["cumsum"], partial(torch.cumsum, dim=-1), _rows(4096, 4096), close=1e-2),
    Work(scans.cummax, lambda x: x.cummax(1).values, _rows(4096, 4096)),
    Work(scans.logcumsumexp, partial(torch.logcumsumexp, dim=1), _rows(4096, 4096)),
    Work(joins.histogram, lambda x, bins: torch.bincount(x, minlength=bins),
         lambda new: (torch.randint(0, 256, (20_000_003,)), 256)),
    Work(_index_add, lambda y, i, x: y.index_add_(0, i, x), _added, "index_add", 1e-3),
    Work(product, torch.mm, lambda new: (new(1000, 1100), new(1100, 1200)), close=1e-2),
    Work(attention, lambda q, k, v: F.scaled_dot_product_attention(q[None], k[None], v[None])[0],
         lambda new: (new(8, 700, 64), new(8, 700, 64), new(8, 700, 64))),
)  # fmt: skip


def run(options: Options) -> list[Row]:
    shapes = ((64, 1024),) if options.quick else ((2048, 4096), (16384, 1024), (256, 65536))
    rows = [row for shape in shapes for row in _linrec(*shape, options)]
    return rows + [_measured(work, options) for work in WORKS]


def _measured(work: Work, options: Options) -> Row:
    generator = torch.Generator().manual_seed(0)

    def new(*shape: int) -> Tensor:
        return torch.randn(tuple(min(n, 40) for n in shape) if options.quick else shape, generator=generator)

    first = work.make(new)
    copies = [[tuple(a.clone() if isinstance(a, Tensor) else a for a in first) for _ in range(2)] for _ in range(2)]
    with torch.no_grad():
        found, want = work.kernel(*copies[0][0]).flatten(), work.peer(*copies[0][1]).flatten()
        torch.testing.assert_close(found, want, atol=work.close, rtol=work.close)
        ways = [[partial(f, *first), partial(f, *copies[1][k])] for k, f in enumerate((work.kernel, work.peer))]
        times = times_in_turn(ways, options.device, seconds=2 * options.seconds)
    case = {"kernel": work.title or work.kernel.name, "shapes": [list(a.shape) for a in first if isinstance(a, Tensor)]}
    (row,) = rows_of("cpu", case, times, ["torch eager"])
    return row


def _linrec(rows: int, length: int, options: Options) -> list[Row]:
    generator = torch.Generator().manual_seed(length)
    bytes_moved = 12 * rows * length
    sets = [
        (torch.randn(rows, length, generator=generator), torch.rand(rows, length, generator=generator))
        for _ in range(rotations(bytes_moved))
    ]
    case = {"pass": "forward", "rows": rows, "length": length, "dtype": "float32", "bytes": bytes_moved}
    with torch.no_grad():
        ways = [[partial(linrec.kernel, *s) for s in sets], adds_of_equal_bytes(bytes_moved, options.device)]
        times = times_in_turn(ways, options.device, seconds=4 * options.seconds)
        python_ms = _python_ms(*sets[0]) * rows / PYTHON_ROWS
    return [
        *rows_of("cpu", case, times, ["torch.add of equal bytes"]),
        Row("cpu", case, times.ms[0], f"the plain Python ({PYTHON_ROWS} rows, scaled)", python_ms),
    ]


def _python_ms(x: Tensor, c: Tensor) -> float:
    start = time.perf_counter()
    linrec.py(x[:PYTHON_ROWS, :4096], c[:PYTHON_ROWS, :4096])
    elapsed = time.perf_counter() - start
    return 1e3 * elapsed * x.shape[1] / min(4096, x.shape[1])
