"""Kernels of rows at [16384, 4096] bfloat16, and of long rows, against PyTorch eager, torch.compile and a copy of the bytes.

Bytes are counted once each: every input of the rows' size read, the outputs written. Gradients are timed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from bench.folds import cross_entropy
from bench.harness import Options, Row, copies, need_gpu, rows_of
from weft.kernels import LIBRARY
from weft.runtime.timing import Backward, gradients_ms, rotations, times_in_turn

Inputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Work:
    """A kernel of the library, the same in PyTorch, the inputs besides x (functions of shape), tensors of x's size that are
    moved. gradient: of all inputs that have one.
    """

    kernel: str
    eager: Callable[..., torch.Tensor]
    extra: tuple[str, ...]
    arrays: int
    shape: tuple[int, int] = (16384, 4096)
    gradient: bool = False

    @property
    def ours(self) -> Callable[..., torch.Tensor]:
        return cross_entropy if self.kernel == "cross_entropy" else LIBRARY[self.kernel]


def _rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], weight, 1e-6)


def _layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, 1e-5)


def _gelu_bias_residual(x: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    return F.gelu(x + bias) + residual


def _cross_entropy(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, target, reduction="none")


_softmax, _log_softmax = partial(torch.softmax, dim=-1), partial(torch.log_softmax, dim=-1)
_SHORT = (
    Work("softmax", _softmax, (), 2),
    Work("log_softmax", _log_softmax, (), 2),
    Work("rms_norm", _rms_norm, ("column",), 2),
    Work("layer_norm", _layer_norm, ("column", "column"), 2),
    Work("gelu_bias_residual", _gelu_bias_residual, ("column", "full"), 3),
    Work("softmax", _softmax, (), 3, gradient=True),
    Work("log_softmax", _log_softmax, (), 3, gradient=True),
    Work("rms_norm", _rms_norm, ("column",), 3, gradient=True),
    Work("layer_norm", _layer_norm, ("column", "column"), 3, gradient=True),
)
_LONG = tuple(
    Work(name, eager, extra, arrays, shape, gradient)
    for shape in ((8192, 32000), (2048, 128256))
    for name, eager, extra, arrays, gradient in (
        ("softmax", _softmax, (), 2, False),
        ("log_softmax", _log_softmax, (), 2, False),
        ("cross_entropy", _cross_entropy, ("target",), 1, False),
        ("softmax", _softmax, (), 3, True),
        ("log_softmax", _log_softmax, (), 3, True),
        ("cross_entropy", _cross_entropy, ("target",), 2, True),
    )
)
WORKS = (*_SHORT, *_LONG)


def run(options: Options) -> Iterator[Row]:
    need_gpu(options)
    seconds = min(0.15, options.seconds)  # of kernels of a millisecond, of which there are many
    for work in WORKS[: len(_SHORT) + 6] if options.quick else WORKS:
        shape = (64, 512) if options.quick else work.shape
        bytes_moved = work.arrays * 2 * shape[0] * shape[1]
        case = {"kernel": work.kernel, "shape": list(shape), "dtype": "bfloat16", "bytes": bytes_moved}
        case |= {"gradient": True} if work.gradient else {}
        sets = [inputs(work, shape, options.device, seed) for seed in range(rotations(bytes_moved))]
        functions = {"weft": work.ours, "torch eager": work.eager}
        if options.device.type == "cuda" and not work.gradient:
            torch._dynamo.reset()
            functions["torch.compile"] = torch.compile(work.eager, fullgraph=True)
        yardstick = copies(bytes_moved, options)
        if work.gradient:
            passes = [[partial(_forward, f, tensors) for tensors in sets] for f in functions.values()]
            found = gradients_ms(passes, options.device, seconds=seconds, beside=[yardstick])
            times, case = found.times, {**case, **found.note}
        else:
            ways = [[partial(f, *tensors) for tensors in sets] for f in functions.values()]
            with torch.no_grad():
                times = times_in_turn([*ways, yardstick], options.device, seconds=seconds)
        yield from rows_of("rows", case, times, [*list(functions)[1:], "copy of equal bytes"])


def inputs(work: Work, shape: tuple[int, int], device: torch.device, seed: int) -> Inputs:
    """x of the shape, then the work's other inputs: "column" [length], "full" [rows, length], "target" int64 [rows]."""
    generator = torch.Generator(device).manual_seed(seed)
    found = [torch.randn(shape, device=device, generator=generator).bfloat16()]
    for kind in work.extra:
        if kind == "target":
            found.append(torch.randint(0, shape[1], shape[:1], device=device, generator=generator))
        else:
            size = shape if kind == "full" else shape[1:]
            found.append(torch.randn(size, device=device, generator=generator).bfloat16())
    return tuple(found)


def _forward(function: Callable[..., Any], tensors: Inputs) -> Backward:
    given = [t.detach().requires_grad_(t.is_floating_point()) for t in tensors]
    out = function(*given)
    return out, [t for t in given if t.requires_grad], torch.randn_like(out)
