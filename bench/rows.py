"""Kernels of rows at [16384, 4096] bfloat16, against PyTorch eager, torch.compile and the bandwidth of a copy.

Bytes are counted once each: every input of the rows' size read, the output written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from bench.harness import Options, Row, need_gpu
from weft.kernels import LIBRARY
from weft.runtime.timing import median_ms, rotations

Inputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Work:
    """A kernel of the library, the same in PyTorch, the inputs besides x (functions of shape), tensors of x's size."""

    kernel: str
    eager: Callable[..., torch.Tensor]
    extra: tuple[str, ...]
    arrays: int


def _rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], weight, 1e-6)


def _layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, 1e-5)


def _gelu_bias_residual(x: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    return F.gelu(x + bias) + residual


WORKS = (
    Work("softmax", partial(torch.softmax, dim=-1), (), 2),
    Work("rms_norm", _rms_norm, ("column",), 2),
    Work("layer_norm", _layer_norm, ("column", "column"), 2),
    Work("gelu_bias_residual", _gelu_bias_residual, ("column", "full"), 3),
)


def run(options: Options) -> list[Row]:
    need_gpu(options)
    shape = (64, 512) if options.quick else (16384, 4096)
    measured: list[Row] = []
    for work in WORKS:
        bytes_moved = work.arrays * 2 * shape[0] * shape[1]
        case = {"kernel": work.kernel, "shape": list(shape), "dtype": "bfloat16", "bytes": bytes_moved}
        with torch.no_grad():
            sets = [inputs(work, shape, options.device, seed) for seed in range(rotations(bytes_moved))]
            time = partial(_time, sets=sets, options=options)
            weft_ms = time(LIBRARY[work.kernel])
            peers = {"torch eager": time(work.eager), "copy of equal bytes": _copy_ms(bytes_moved, options)}
            if options.device.type == "cuda":
                torch._dynamo.reset()
                peers["torch.compile"] = time(torch.compile(work.eager, fullgraph=True))
        measured += [Row("rows", case, weft_ms, peer, peer_ms) for peer, peer_ms in peers.items()]
    return measured


def inputs(work: Work, shape: tuple[int, int], device: torch.device, seed: int) -> Inputs:
    """x of the shape, then the work's other inputs: "column" [length], "full" [rows, length]."""
    generator = torch.Generator(device).manual_seed(seed)
    shapes = [shape, *(shape if kind == "full" else shape[1:] for kind in work.extra)]
    return tuple(torch.randn(s, device=device, generator=generator).bfloat16() for s in shapes)


def _time(function: Callable[..., Any], sets: list[Inputs], options: Options) -> float:
    return median_ms([partial(function, *tensors) for tensors in sets], options.device, seconds=options.seconds)


def _copy_ms(bytes_moved: int, options: Options) -> float:
    """A device-to-device copy that reads half of the bytes and writes the other half."""
    numel = bytes_moved // 4
    pairs = []
    for _ in range(rotations(bytes_moved)):
        source = torch.randn(numel, device=options.device).bfloat16()
        pairs.append((torch.empty_like(source), source))
    return median_ms([partial(to.copy_, of) for to, of in pairs], options.device, seconds=options.seconds)
