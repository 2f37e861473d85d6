"""Maps of 2^28 elements (2^26 of embeddings and stencils) against PyTorch's own expression and a copy of equal bytes.

Bytes are counted once each: every element that is read, every one that is written; what is broadcast as often as it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

import weft
from bench.harness import Options, Row, copies, need_gpu, rows_of
from weft.runtime.timing import rotations, times_in_turn

Tensors = tuple[torch.Tensor, ...]
Make = Callable[[Callable[..., torch.Tensor], bool], Tensors]
HALVES = (torch.float32, torch.float16, torch.bfloat16)


@weft.kernel
def add(x, z):
    return x + z


@weft.kernel
def transposed_copy(x):
    n, m = x.shape
    y = torch.empty(m, n, dtype=x.dtype)
    for i in range(n):
        for j in range(m):
            y[j, i] = x[i, j]
    return y


@weft.kernel
def heads_first(x):
    b, s, h, d = x.shape
    y = torch.empty(b, h, s, d, dtype=x.dtype)
    for i in range(b):
        for j in range(h):
            for k in range(s):
                for c in range(d):
                    y[i, j, k, c] = x[i, k, j, c]
    return y


@weft.kernel
def embedding(w, places):
    y = torch.empty(places.shape[0], w.shape[1], dtype=w.dtype)
    for i in range(places.shape[0]):
        for d in range(w.shape[1]):
            y[i, d] = w[places[i], d]
    return y


@weft.kernel
def five_points(x):
    n, m = x.shape
    y = torch.empty(n - 2, m - 2, dtype=x.dtype)
    for i in range(n - 2):
        for j in range(m - 2):
            y[i, j] = 0.25 * (x[i, j + 1] + x[i + 2, j + 1] + x[i + 1, j] + x[i + 1, j + 2])
    return y


@weft.kernel
def five_points_inside(x):
    """The same with the edges as they are: rows begin at a packet."""
    n, m = x.shape
    y = torch.empty_like(x)
    for i in range(n):
        for j in range(m):
            if i > 0 and i < n - 1 and j > 0 and j < m - 1:
                y[i, j] = 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])
            else:
                y[i, j] = x[i, j]
    return y


def _five_points(x: torch.Tensor) -> torch.Tensor:
    return 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])


def _five_points_inside(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[1:-1, 1:-1] = _five_points(x)
    return y


@dataclass(frozen=True)
class Work:
    """A kernel, the same in PyTorch, and how its arguments are made: of (a tensor of a shape, whether they are small)."""

    title: str
    kernel: Any
    peer: Callable[..., torch.Tensor]
    make: Make
    dtypes: tuple[torch.dtype, ...] = HALVES


def _square(small: bool) -> int:
    return 256 if small else 16384


def _two(first: Callable[[int], tuple[int, ...]], second: Callable[[int], tuple[int, ...]], view: Any = lambda t: t) -> Make:
    def make(new: Callable[..., torch.Tensor], small: bool) -> Tensors:
        n = _square(small)
        return new(*first(n)), view(new(*second(n)))

    return make


def _permuted(new: Callable[..., torch.Tensor], small: bool) -> Tensors:
    b, s, h, d = (2, 32, 4, 64) if small else (16, 4096, 64, 64)
    return new(b, h, s, d), new(b, s, h, d).transpose(1, 2)


def _last_first(new: Callable[..., torch.Tensor], small: bool) -> Tensors:
    b, c, p = (2, 64, 128) if small else (64, 256, 16384)
    return new(b, p, c), new(b, c, p).transpose(1, 2)


def _sequences(new: Callable[..., torch.Tensor], small: bool) -> Tensors:
    return (new(*((2, 32, 4, 64) if small else (16, 4096, 64, 64))),)


def _table(new: Callable[..., torch.Tensor], small: bool) -> Tensors:
    rows, width, places = (100, 64, 50) if small else (50304, 1024, 65536)
    w = new(rows, width)
    return w, torch.randint(0, rows, (places,), device=w.device)


def _grid(new: Callable[..., torch.Tensor], small: bool) -> Tensors:
    n = 256 if small else 8192
    return (new(n, n),)


def _sliced(n: int) -> tuple[int, int]:
    return n, n + 64


WORKS = (
    Work("equal", add, torch.add, _two(lambda n: (n, n), lambda n: (n, n))),
    Work("with a row", add, torch.add, _two(lambda n: (n, n), lambda n: (n,))),
    Work("with a column", add, torch.add, _two(lambda n: (n, n), lambda n: (n, 1), lambda t: t.expand(-1, len(t)))),
    Work("with a transposed one", add, torch.add, _two(lambda n: (n, n), lambda n: (n, n), lambda t: t.T)),
    Work("permuted [B, H, S, D]", add, torch.add, _permuted),
    Work("channels last with first", add, torch.add, _last_first),
    Work("rows of 4095 with a row", add, torch.add, _two(lambda n: (4 * n, n // 4 - 1), lambda n: (n // 4 - 1,))),
    Work("rows of 4095 of longer ones", add, torch.add, _two(
        lambda n: (4 * n, n // 4 - 1), lambda n: (4 * n, n // 4 + 2), lambda t: t[:, 2:-1])),
    Work("parts of longer rows", add, torch.add, _two(lambda n: (n, n), _sliced, lambda t: t[:, 64:])),
    Work("every other element", add, torch.add, _two(lambda n: (n, n // 2), lambda n: (n, n), lambda t: t[:, ::2])),
    Work("transposed", transposed_copy, lambda x: x.T.contiguous(), lambda new, small: (new(_square(small), _square(small)),)),
    Work("heads first", heads_first, lambda x: x.transpose(1, 2).contiguous(), _sequences),
    Work("embedding", embedding, lambda w, i: F.embedding(i, w), _table),
    Work("five points", five_points, _five_points, _grid, (torch.float32,)),
    Work("five points and edges", five_points_inside, _five_points_inside, _grid, (torch.float32,)),
)  # fmt: skip


def run(options: Options) -> Iterator[Row]:
    need_gpu(options)
    seconds = min(0.15, options.seconds)  # of kernels of a millisecond, of which there are many
    for work in WORKS:
        for dtype in work.dtypes:
            sets = [inputs(work, dtype, options)]
            with torch.no_grad():
                moved = bytes_of(work, sets[0])
                sets += [inputs(work, dtype, options) for _ in range(rotations(moved) - 1)]
                ways = [*([partial(f, *s) for s in sets] for f in (work.kernel, work.peer)), copies(moved, options)]
                times = times_in_turn(ways, options.device, seconds=seconds)
            case = {"maps": work.title, "dtype": str(dtype).removeprefix("torch."), "bytes": moved}
            yield from rows_of("maps", case, times, ["torch eager", "copy of equal bytes"])


def inputs(work: Work, dtype: torch.dtype, options: Options) -> Tensors:
    def new(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=options.device).to(dtype)

    return work.make(new, options.quick)


def bytes_of(work: Work, given: Tensors) -> int:
    """The bytes that have to be moved. Raises where the kernel's result is not PyTorch's."""
    found = work.kernel(*given)
    torch.testing.assert_close(found, work.peer(*given))
    own = [given[1], found] if work.kernel is embedding else [*given, found]
    read = [t.numel() // max(1, _repeated(t)) * t.element_size() for t in own]
    return sum(read) + (found.numel() * found.element_size() if work.kernel is embedding else 0)


def _repeated(t: torch.Tensor) -> int:
    """How often a tensor has each of its elements."""
    often = 1
    for n, stride in zip(t.shape, t.stride(), strict=True):
        often *= n if stride == 0 else 1
    return often
