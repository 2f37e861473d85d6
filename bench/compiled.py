"""`torch.compile(backend="weft")` against eager mode and PyTorch's own backend, as CUDA graphs: norms, chains, rotations and
losses of models alone, and models with their products and attention; forward, and a training step.

Inputs rotate among enough sets that none is in L2; parameters stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft
from bench.harness import Options, Row, need_gpu, rows_of
from tests.compiled import Block, GatedMLP
from weft.runtime.timing import Call, rotations, times_in_turn


def add_norm(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    total = x + y
    return F.layer_norm(total, (total.shape[-1],), weight, bias) + total


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight, 1e-6)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(x + bias)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def cross_entropy(x: Tensor) -> Tensor:
    return F.cross_entropy(x, torch.arange(x.shape[0], device=x.device))


@dataclass(frozen=True)
class Work:
    """shapes: of what the function takes. steps: "forward", "training" or both."""

    name: str
    function: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...]
    steps: tuple[str, ...] = ("forward", "training")


def _works(options: Options) -> Iterator[Work]:
    rows, width, tokens = (64, 128, 500) if options.quick else (4096, 4096, 32000)
    yield Work("x + y, layer norm, residual", add_norm, ((rows, width), (rows, width), (width,), (width,)))
    yield Work("rms norm", rms_norm, ((rows, width), (width,)))
    yield Work("silu(gate) * up", swiglu, ((rows, width), (rows, width)))
    yield Work("gelu(x + bias)", bias_gelu, ((rows, width), (width,)))
    yield Work("rotated queries", rotated, ((4, 16, rows // 4, 64), (rows // 4, 64), (rows // 4, 64)))
    yield Work("cross entropy", cross_entropy, ((rows, tokens),))
    model = partial(_model, options.device)
    yield Work("gated MLP, 8 rows", model(GatedMLP(width)), ((8, 1, width),), ("forward",))
    yield Work("gated MLP", model(GatedMLP(width // 4)), ((4, rows // 4, width // 4),))
    yield Work("block of a transformer", model(Block(width // 4, 16, rows // 4)), ((4, rows // 4, width // 4),))


def _model(device: torch.device, module: nn.Module) -> nn.Module:
    return module.to(device, torch.bfloat16)


def run(options: Options) -> Iterator[Row]:
    need_gpu(options)
    for work in (w for w in _works(options) if options.wants(w.name)):
        moved = sum(2 * torch.Size(s).numel() for s in work.shapes)
        sets = [_tensors(work, options.device, seed) for seed in range(min(8, rotations(2 * moved)))]
        for step in work.steps:
            torch.compiler.reset()
            ways = [_calls(work, step, peer, sets) for peer in ("weft", "torch eager", "torch.compile")]
            times = times_in_turn(ways, options.device, seconds=min(0.2, options.seconds), graph=True)
            case = {"work": work.name, "of": ", ".join(" x ".join(map(str, s)) for s in work.shapes), "step": step}
            yield from rows_of("compiled", case, times, ["torch eager", "torch.compile"])


def _tensors(work: Work, device: torch.device, seed: int) -> list[Tensor]:
    generator = torch.Generator(device).manual_seed(seed)
    made = [torch.randn(s, generator=generator, device=device).bfloat16() for s in work.shapes]
    return [t.requires_grad_() for t in made]


def _calls(work: Work, step: str, peer: str, sets: list[list[Tensor]]) -> list[Call]:
    backend: Any = weft.Backend() if peer == "weft" else "inductor"
    function = work.function if peer == "torch eager" else torch.compile(work.function, backend=backend, dynamic=False)
    run = _training if step == "training" else torch.no_grad()(_forward)
    leaves = [p for p in work.function.parameters()] if isinstance(work.function, nn.Module) else []
    return [partial(run, function, own, leaves) for own in sets]


def _forward(function: Callable[..., Tensor], own: list[Tensor], _: list[Tensor]) -> Tensor:
    return function(*own)


def _training(function: Callable[..., Tensor], own: list[Tensor], leaves: list[Tensor]) -> tuple[Tensor, ...]:
    result = function(*own)
    return torch.autograd.grad(result, [*own, *leaves], torch.ones_like(result))
