"""Loops that stay in order around parallel ones: steps of a stencil, shortest paths, the likeliest states, small steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import weft
from bench.harness import Options, Row, need_gpu, rows_of
from weft.runtime.timing import times_in_turn


@weft.kernel
def jacobi(u, steps: int):
    """Two arrays, the second copied back: two passes over both a step."""
    n, m = u.shape
    a = u.clone()
    b = u.clone()
    for _ in range(steps):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                b[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                a[i, j] = b[i, j]
    return a


@weft.kernel
def taking_turns(u, steps: int):
    """Two arrays that take turns: one pass over both a step."""
    n, m = u.shape
    a = u.clone()
    b = u.clone()
    for t in range(steps):
        if t % 2 == 0:
            for i in range(1, n - 1):
                for j in range(1, m - 1):
                    b[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])
        else:
            for i in range(1, n - 1):
                for j in range(1, m - 1):
                    a[i, j] = 0.25 * (b[i - 1, j] + b[i + 1, j] + b[i, j - 1] + b[i, j + 1])
    return a, b


@weft.kernel
def shortest_paths(d):
    n = d.shape[0]
    e = d.clone()
    for k in range(n):
        for i in range(n):
            for j in range(n):
                e[i, j] = min(e[i, j], e[i, k] + e[k, j])
    return e


@weft.kernel
def likeliest(a, b):
    """The best score of each state after each observation, and from which state it came."""
    size, count = a.shape[0], b.shape[0]
    v = torch.empty(count, size)
    back = torch.zeros(count, size, dtype=torch.int64)
    for s in range(size):
        v[0, s] = b[0, s]
    for t in range(1, count):
        for s in range(size):
            best = -math.inf
            arg = 0
            for p in range(size):
                score = v[t - 1, p] + a[s, p]
                if score > best:
                    best = score
                    arg = p
            v[t, s] = best + b[t, s]
            back[t, s] = arg
    return v, back


@weft.kernel
def tanh_rnn(x, w_in, w, bias):
    """h[t + 1] = tanh(x[t] w_in' + h[t] w' + bias): the products with x do not wait for each other."""
    steps, batch, width = x.shape[0], x.shape[1], w.shape[0]
    given = torch.empty(steps, batch, width)
    h = torch.zeros(steps + 1, batch, width)
    for t in range(steps):
        for b in range(batch):
            for i in range(width):
                total = 0.0
                for k in range(x.shape[2]):
                    total += x[t, b, k] * w_in[i, k]
                given[t, b, i] = total + bias[i]
    for t in range(steps):
        for b in range(batch):
            for i in range(width):
                total = 0.0
                for k in range(width):
                    total += h[t, b, k] * w[i, k]
                h[t + 1, b, i] = torch.tanh(total + given[t, b, i])
    return h


def torch_rnn(x: torch.Tensor, w_in: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    start = torch.zeros(1, x.shape[1], len(w), device=x.device)
    return torch.rnn_tanh(x, start, [w_in, w, bias, torch.zeros_like(bias)], True, 1, 0.0, False, False, False)[0]


def rnn_of_tfloat32(*given: torch.Tensor) -> torch.Tensor:
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=False, allow_tf32=True):
        return torch_rnn(*given)


def rnn_of_float32(*given: torch.Tensor) -> torch.Tensor:
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=False, allow_tf32=False):
        return torch_rnn(*given)


def _stencil(a: torch.Tensor, b: torch.Tensor) -> None:
    b[1:-1, 1:-1] = 0.25 * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:])


def eager_jacobi(u: torch.Tensor, steps: int) -> torch.Tensor:
    a, b = u.clone(), u.clone()
    for _ in range(steps):
        _stencil(a, b)
        a[1:-1, 1:-1] = b[1:-1, 1:-1]
    return a


def eager_turns(u: torch.Tensor, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = u.clone(), u.clone()
    for t in range(steps):
        _stencil(a, b) if t % 2 == 0 else _stencil(b, a)
    return a, b


def eager_paths(d: torch.Tensor) -> torch.Tensor:
    e = d.clone()
    for k in range(len(d)):
        e = torch.minimum(e, e[:, k : k + 1] + e[k : k + 1])
    return e


def eager_likeliest(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    v, back = [b[0]], [torch.zeros(len(a), dtype=torch.int64, device=a.device)]
    for t in range(1, len(b)):
        best, arg = (v[-1] + a).max(1)
        v.append(best + b[t])
        back.append(arg)
    return torch.stack(v), torch.stack(back)


def copies(u: torch.Tensor, steps: int, each: int) -> torch.Tensor:
    """As many copies as the steps must move bytes for."""
    b = torch.empty_like(u)
    for _ in range(steps * each):
        b.copy_(u)
    return b


@dataclass(frozen=True)
class Work:
    """A kernel, its peer, the shapes of its tensors, its steps (0: it takes none). graph: as a CUDA graph, since it is small.
    exact: the peer computes the same.
    """

    kernel: Any
    name: str
    peer: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    steps: int = 0
    graph: bool = False
    exact: bool = True


RNN = ((4096, 256, 512), (512, 512), (512, 512), (512,))
LARGE, SMALL = ((8192, 8192),), ((256, 256),)
WORKS = (
    Work(jacobi, "two copies a step", partial(copies, each=2), LARGE, 100, exact=False),
    Work(jacobi, "torch eager", eager_jacobi, LARGE, 100),
    Work(taking_turns, "a copy a step", partial(copies, each=1), LARGE, 100, exact=False),
    Work(taking_turns, "torch eager", eager_turns, LARGE, 100),
    Work(taking_turns, "torch eager, a CUDA graph", eager_turns, SMALL, 1000, graph=True),
    Work(taking_turns, "torch eager", eager_turns, SMALL, 1000),
    Work(shortest_paths, "torch eager", eager_paths, ((1024, 1024),)),
    Work(tanh_rnn, "torch.nn.RNN", rnn_of_float32, RNN, exact=False),
    Work(tanh_rnn, "torch.nn.RNN, tfloat32", rnn_of_tfloat32, RNN, exact=False),
    Work(likeliest, "torch eager", eager_likeliest, ((512, 512), (1000, 512))),
)


def run(options: Options) -> list[Row]:
    need_gpu(options)
    measured: list[Row] = []
    for work in WORKS:
        shapes = [tuple(min(n, 40) for n in s) for s in work.shapes] if options.quick else work.shapes
        steps = (min(work.steps, 3) if options.quick else work.steps,) if work.steps else ()
        generator = torch.Generator(options.device).manual_seed(0)
        given = [torch.rand(s, device=options.device, generator=generator) for s in shapes]
        if work.kernel is tanh_rnn:  # numbers that leave the states apart
            given = [(g - 0.5) / 16 for g in given]
            got, want = tanh_rnn(*given)[1:], rnn_of_float32(*given)
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)
        with torch.no_grad():
            if work.exact:
                torch.testing.assert_close(work.kernel(*given, *steps), work.peer(*given, *steps), rtol=1e-4, atol=1e-4)
            calls = [[partial(f, *given, *steps)] for f in (work.kernel, work.peer)]
            times = times_in_turn(calls, options.device, seconds=options.seconds, graph=work.graph)
        case = {"kernel": work.kernel.name, "shape": list(shapes[0]), "dtype": "float32", "steps": steps[0] if steps else 0}
        measured += rows_of("steps", case, times, [work.name])
    return measured
