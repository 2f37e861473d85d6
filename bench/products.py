"""Products of matrices from their loops, and what goes with them, against cuBLAS, cuDNN and torch eager, as CUDA graphs; steps
of training through layers (a call and its gradients) against torch.compile too.

Inputs rotate among enough sets that none is in L2. float32 is that of both sides: no tfloat32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn import functional

import weft
from bench.harness import Options, Row, need_gpu, rows_of
from weft.runtime.timing import rotations, times_in_turn


@weft.kernel
def matmul(a, b):
    n, m, depth = a.shape[0], b.shape[1], a.shape[1]
    c = torch.empty(n, m, dtype=a.dtype)
    for i in range(n):
        for j in range(m):
            total = 0.0
            for k in range(depth):
                total += a[i, k] * b[k, j]
            c[i, j] = total
    return c


@weft.kernel
def batched(a, b):
    c = torch.empty(a.shape[0], a.shape[1], b.shape[2], dtype=a.dtype)
    for n in range(a.shape[0]):
        for i in range(a.shape[1]):
            for j in range(b.shape[2]):
                total = 0.0
                for k in range(a.shape[2]):
                    total += a[n, i, k] * b[n, k, j]
                c[n, i, j] = total
    return c


@weft.kernel
def linear_gelu(x, w, bias):
    y = torch.empty(x.shape[0], w.shape[0], dtype=x.dtype)
    for i in range(x.shape[0]):
        for j in range(w.shape[0]):
            total = 0.0
            for k in range(x.shape[1]):
                total += x[i, k] * w[j, k]
            v = total + bias[j]
            y[i, j] = 0.5 * v * (1.0 + torch.tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)))
    return y


@weft.kernel
def linear_residual(x, w, r):
    y = torch.empty_like(r)
    for i in range(x.shape[0]):
        for j in range(w.shape[0]):
            total = 0.0
            for k in range(x.shape[1]):
                total += x[i, k] * w[j, k]
            y[i, j] = total + r[i, j]
    return y


@weft.kernel
def linear_normed(x, w, bias, g):
    y = torch.empty(x.shape[0], w.shape[0], dtype=x.dtype)
    for i in range(x.shape[0]):
        t = torch.empty(w.shape[0])
        squares = 0.0
        for j in range(w.shape[0]):
            total = 0.0
            for k in range(x.shape[1]):
                total += x[i, k] * w[j, k]
            t[j] = total + bias[j]
            squares += t[j] * t[j]
        for j in range(w.shape[0]):
            y[i, j] = t[j] * torch.rsqrt(squares / w.shape[0] + 1e-6) * g[j]
    return y


@weft.kernel
def gated(x, w_gate, w_up):
    y = torch.empty(x.shape[0], w_gate.shape[0], dtype=x.dtype)
    for i in range(x.shape[0]):
        for j in range(w_gate.shape[0]):
            gate = 0.0
            up = 0.0
            for k in range(x.shape[1]):
                gate += x[i, k] * w_gate[j, k]
                up += x[i, k] * w_up[j, k]
            y[i, j] = gate / (1.0 + torch.exp(-gate)) * up
    return y


@weft.kernel
def convolution(x, w):
    y = torch.empty(x.shape[0], w.shape[0], x.shape[2] - w.shape[2] + 1, x.shape[3] - w.shape[3] + 1, dtype=x.dtype)
    for n in range(x.shape[0]):
        for o in range(w.shape[0]):
            for h in range(y.shape[2]):
                for v in range(y.shape[3]):
                    total = 0.0
                    for c in range(x.shape[1]):
                        for r in range(w.shape[2]):
                            for s in range(w.shape[3]):
                                total += x[n, c, h + r, v + s] * w[o, c, r, s]
                    y[n, o, h, v] = total
    return y


@weft.kernel
def distances(a, b):
    d = torch.empty(a.shape[0], b.shape[0], dtype=a.dtype)
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            total = 0.0
            for k in range(a.shape[1]):
                total += abs(a[i, k] - b[j, k])
            d[i, j] = total
    return d


@weft.kernel
def of_bytes(a, b):
    c = torch.empty(a.shape[0], b.shape[1], dtype=torch.int32)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            s = torch.zeros((), dtype=torch.int32)
            for k in range(a.shape[1]):
                s += a[i, k].to(torch.int32) * b[k, j].to(torch.int32)
            c[i, j] = s
    return c


@weft.kernel
def quantised_linear(x, w, of_rows, of_columns):
    y = torch.empty(x.shape[0], w.shape[0], dtype=torch.bfloat16)
    for i in range(x.shape[0]):
        for j in range(w.shape[0]):
            s = torch.zeros((), dtype=torch.int32)
            for k in range(x.shape[1]):
                s += x[i, k].to(torch.int32) * w[j, k].to(torch.int32)
            y[i, j] = s.to(torch.float32) * of_rows[i] * of_columns[j]
    return y


@weft.kernel
def scaled_linear(x, w, of_rows, of_columns):
    y = torch.empty(x.shape[0], w.shape[0], dtype=torch.bfloat16)
    for i in range(x.shape[0]):
        for j in range(w.shape[0]):
            s = 0.0
            for k in range(x.shape[1]):
                s += x[i, k].float() * w[j, k].float()
            y[i, j] = s * of_rows[i] * of_columns[j]
    return y


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


def _linear_gelu(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return functional.gelu(functional.linear(x, w, bias), approximate="tanh")


def _linear_residual(x: torch.Tensor, w: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    return functional.linear(x, w) + r


def _linear_normed(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(functional.linear(x, w, bias), bias.shape, g, 1e-6)


def _gated(x: torch.Tensor, w_gate: torch.Tensor, w_up: torch.Tensor) -> torch.Tensor:
    return functional.silu(functional.linear(x, w_gate)) * functional.linear(x, w_up)


def _quantised(x: torch.Tensor, w: torch.Tensor, of_rows: torch.Tensor, of_columns: torch.Tensor) -> torch.Tensor:
    return (torch._int_mm(x, w.T).float() * of_rows[:, None] * of_columns).bfloat16()


def _scaled(x: torch.Tensor, w: torch.Tensor, of_rows: torch.Tensor, of_columns: torch.Tensor) -> torch.Tensor:
    return torch._scaled_mm(x, w.T, of_rows[:, None], of_columns[None], out_dtype=torch.bfloat16)


def _scaled_exactly(x: torch.Tensor, w: torch.Tensor, of_rows: torch.Tensor, of_columns: torch.Tensor) -> torch.Tensor:
    return x @ w.T * of_rows[:, None] * of_columns


def _distances(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.cdist(a, b, p=1.0)


@dataclass(frozen=True)
class Work:
    """shapes: of the tensors; turned: those that lie the other way round in memory. exactly: the peer in float64, where it
    has none itself.
    """

    kernel: Any
    peer: Callable[..., torch.Tensor]
    name: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype = torch.bfloat16
    turned: tuple[bool, ...] = ()
    exactly: Callable[..., torch.Tensor] | None = None


def _works() -> Iterator[Work]:
    for n in (1024, 2048, 4096, 8192):
        for turned in ((False, False), (False, True), (True, False), (True, True)):
            yield Work(matmul, _product, "cuBLAS", ((n, n), (n, n)), turned=turned)
    ragged = ((129, 4097, 333), (1000, 777, 1500), (333, 5000, 1001), (4099, 127, 4099), (77, 12345, 513), (2047, 2049, 2050),
              (512, 4096, 512), (64, 65536, 64), (16384, 64, 16384), (1000, 776, 1504))  # fmt: skip
    for dtype in (torch.bfloat16, torch.float32):
        for m, k, n in ragged:
            yield Work(matmul, _product, "cuBLAS", ((m, k), (k, n)), dtype)
    for n in (1024, 4096):
        yield Work(matmul, _product, "cuBLAS", ((n, n), (n, n)), torch.float32)
        yield Work(matmul, _product, "cuBLAS", ((n, n), (n, n)), torch.float16)
    for m, k, n in ((1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), *ragged[:6]):
        yield Work(matmul, _product, "cuBLAS", ((m, k), (k, n)), torch.float64)
    for n in (1024, 2048, 4096, 8192):
        for turned in ((False, True), (False, False)):
            yield Work(of_bytes, torch._int_mm, "cuBLAS", ((n, n), (n, n)), torch.int8, turned, _product)
        shapes = ((n, n), (n, n), (n,), (n,))
        yield Work(quantised_linear, _quantised, "torch eager", shapes, torch.int8, exactly=_scaled_exactly)
        yield Work(scaled_linear, _scaled, "torch._scaled_mm", shapes, torch.float8_e4m3fn, exactly=_scaled_exactly)
    for dtype in (torch.bfloat16, torch.float32):
        yield Work(batched, _product, "cuBLAS", ((64, 512, 512), (64, 512, 512)), dtype)
        yield Work(batched, _product, "cuBLAS", ((300, 100, 65), (300, 65, 130)), dtype)
        yield Work(convolution, functional.conv2d, "cuDNN", ((8, 64, 66, 66), (64, 64, 3, 3)), dtype)
    yield Work(convolution, functional.conv2d, "cuDNN", ((8, 256, 34, 34), (256, 256, 3, 3)))
    yield Work(linear_gelu, _linear_gelu, "torch eager", ((4096, 1024), (4096, 1024), (4096,)))
    yield Work(linear_residual, _linear_residual, "torch eager", ((4096, 4096), (4096, 4096), (4096, 4096)))
    yield Work(gated, _gated, "torch eager", ((2048, 1024), (4096, 1024), (4096, 1024)))
    yield Work(gated, _gated, "torch eager", ((16, 4096), (4096, 4096), (4096, 4096)))
    yield Work(distances, _distances, "torch.cdist", ((2048, 256), (2048, 256)), torch.float32)


def run(options: Options) -> Iterator[Row]:
    need_gpu(options)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for work in (w for w in _works() if options.wants(w.kernel.name)):
        shapes = [tuple(min(n, 20) for n in s) for s in work.shapes] if options.quick else work.shapes
        bytes_ = sum(math.prod(s) for s in shapes) * work.dtype.itemsize
        sets = [_made(work, shapes, options.device, k) for k in range(max(4, min(12, rotations(bytes_))))]
        with torch.no_grad():
            result = work.kernel(*sets[0])
            got, want = result.double(), (work.exactly or work.peer)(*(t.double() for t in sets[0]))
            off = (got - want).abs().max() / want.abs().max()
            if off > (2 * torch.finfo(result.dtype).eps + 1e-5 if result.dtype.is_floating_point else 0.0):
                raise AssertionError(f"{work.kernel.name} {shapes} is off by {off:.2g} of the largest element")
            del result, got, want
            calls = [[partial(f, *t) for t in sets] for f in (work.kernel, work.peer)]
            times = times_in_turn(calls, options.device, seconds=min(0.1, options.seconds), graph=True)
        sizes = " ".join("x".join(map(str, s)) for s in shapes)
        case = {"kernel": work.kernel.name, "shapes": sizes, "dtype": str(work.dtype).removeprefix("torch.")}
        if work.turned:
            case["transposed"] = "".join("yn"[not t] for t in work.turned)
        yield from rows_of("products", case, times, [work.name])
        del sets, calls
        torch.cuda.empty_cache()
    yield from _tuned(options)
    yield from _steps(options)


def _tuned(options: Options) -> Iterator[Row]:
    """What follows a product, against what PyTorch tunes."""
    for kernel, peer, shapes in (
        (linear_gelu, _linear_gelu, ((4096, 1024), (4096, 1024), (4096,))),
        (linear_residual, _linear_residual, ((4096, 4096), (4096, 4096), (4096, 4096))),
        *((linear_normed, _linear_normed, ((4096, n), (n, n), (n,), (n,))) for n in (1024, 2048, 4096)),
    ):
        if not options.wants(kernel.name):
            continue
        work = Work(kernel, peer, "torch eager", tuple(tuple(min(n, 20) for n in s) if options.quick else s for s in shapes))
        sets = [_made(work, work.shapes, options.device, k) for k in range(4)]
        with torch.no_grad():
            found, want = kernel(*sets[0]), peer(*(t.double() for t in sets[0]))
            if (off := (found - want).norm() / want.norm()) > 1e-2:
                raise AssertionError(f"{kernel.name} is off by {off:.2g} of its norm")
            del found, want
            torch.compiler.reset()
            tuned = peer if options.quick else torch.compile(peer, dynamic=False, mode="max-autotune-no-cudagraphs")
            calls = [[partial(f, *t) for t in sets] for f in (kernel, tuned)]
            times = times_in_turn(calls, options.device, seconds=min(0.1, options.seconds), graph=True)
        sizes = " ".join("x".join(map(str, s)) for s in work.shapes)
        case = {"kernel": kernel.name, "shapes": sizes, "dtype": "bfloat16"}
        yield from rows_of("products", case, times, ["max-autotune"])
        del sets, calls
        torch.cuda.empty_cache()


def _steps(options: Options) -> Iterator[Row]:
    """Steps of training."""
    for kernel, peer, shapes in (
        (linear_gelu, _linear_gelu, ((4096, 1024), (4096, 1024), (4096,))),
        (linear_gelu, _linear_gelu, ((4096, 4096), (4096, 4096), (4096,))),
        (gated, _gated, ((2048, 1024), (4096, 1024), (4096, 1024))),
    ):
        work = Work(kernel, peer, "torch eager", tuple(tuple(min(n, 20) for n in s) if options.quick else s for s in shapes))
        sets = [[t.requires_grad_() for t in _made(work, work.shapes, options.device, k)] for k in range(4)]
        seed = torch.randn_like(kernel(*sets[0]))
        exact = [t.detach().double().requires_grad_() for t in sets[0]]
        for found, want in zip(_step(kernel, sets[0], seed), _step(peer, exact, seed.double()), strict=True):
            off = (found - want).norm() / want.norm()
            if off > 1e-2:
                raise AssertionError(f"a gradient of {kernel.name} is off by {off:.2g} of its norm")
        del exact
        ways = (kernel, peer) if options.quick else (kernel, peer, torch.compile(peer, dynamic=False))
        calls = [[partial(_step, f, own, seed) for own in sets] for f in ways]
        times = times_in_turn(calls, options.device, seconds=min(0.1, options.seconds), graph=True)
        sizes = " ".join("x".join(map(str, s)) for s in work.shapes)
        case = {"kernel": kernel.name, "shapes": sizes, "dtype": "bfloat16", "step": "training"}
        yield from rows_of("products", case, times, ["torch eager", "torch.compile"][: len(ways) - 1])
        del sets, calls
        torch.cuda.empty_cache()


def _step(function: Callable[..., torch.Tensor], own: Sequence[torch.Tensor], seed: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(function(*own), own, seed)


def _made(work: Work, shapes: Sequence[tuple[int, ...]], device: torch.device, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator(device).manual_seed(seed)
    made = []
    for k, shape in enumerate(shapes):
        turned = bool(work.turned) and work.turned[k]
        if len(shape) > 1 and work.dtype == torch.int8:
            t = torch.randint(-128, 128, shape[::-1] if turned else shape, device=device, generator=generator, dtype=torch.int8)
            made.append(t.T if turned else t)
            continue
        dtype = torch.float32 if len(shape) == 1 and work.dtype.itemsize == 1 else work.dtype
        t = torch.randn(shape[::-1] if turned else shape, device=device, generator=generator) / shape[-1] ** 0.25
        made.append(t.to(dtype).T if turned else t.to(dtype))
    return made
