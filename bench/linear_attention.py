"""Linear attention with a decay and the gated delta rule, as loops over tokens, and their gradients, against their chunked
forms in PyTorch under torch.compile.

Chunks of linear attention lie side by side, and a matrix of decays takes states from chunk to chunk: one compiled function.
Those of a delta rule come one after another; what is made of all of them at once, and of each, are compiled functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch._functorch.config
import torch.nn.functional as F  # noqa: N812 - as PyTorch's own documents import it
from torch import Tensor

from bench.harness import Options, Row, need_gpu, rows_of
from weft.kernels import gated_delta_rule, linear_attention
from weft.runtime.timing import times_in_turn

CHUNK = 64
# (heads, tokens, width and lanes)
SHAPES = ((16, 16384, 64), (128, 2048, 64))
Function = Callable[..., Any]


def decays(g: Tensor) -> tuple[Tensor, Tensor]:
    """Of each chunk, the logarithms of the decays to its tokens, and those from token to later token."""
    total = g.cumsum(-1)
    within = torch.ones(g.shape[-1], g.shape[-1], dtype=torch.bool, device=g.device).tril()
    return total, torch.exp((total[..., :, None] - total[..., None, :]).masked_fill(~within, float("-inf")))


def chunked_linear(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Tensor:
    shape = v.shape
    q, k, v, g = (t.unflatten(2, (-1, CHUNK)) for t in (q, k, v, g))  # type: ignore[no-untyped-call]
    total, across = decays(g)
    made = (k * torch.exp(total[..., -1:] - total)[..., None].to(k.dtype)).transpose(-1, -2) @ v
    ends = F.pad(total[..., -1].cumsum(-1), (1, 0))
    earlier = torch.ones(g.shape[2], g.shape[2], dtype=torch.bool, device=g.device).tril(-1)
    steps = torch.exp((ends[..., :-1, None] - ends[..., None, 1:]).masked_fill(~earlier, float("-inf"))).to(v.dtype)
    before = (steps @ made.flatten(-2)).view_as(made)
    scores = ((q @ k.transpose(-1, -2)) * across).to(v.dtype)
    return (scores @ v + (q * torch.exp(total)[..., None].to(q.dtype)) @ before).view(shape)


def prepared(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
    """What all chunks of a delta rule are made of, and the matrices that are to be inverted."""
    q, k, v, g, beta = (t.unflatten(2, (-1, CHUNK)) for t in (q, k, v, g, beta))  # type: ignore[no-untyped-call]
    total, across = decays(g)
    own = k * beta[..., None]
    lower = ((own @ k.transpose(-1, -2)).float() * across).tril(-1)
    scores = ((q @ k.transpose(-1, -2)) * across).to(v.dtype)
    grown, last = torch.exp(total)[..., None].to(k.dtype), torch.exp(total[..., -1:] - total)[..., None].to(k.dtype)
    return lower, own * grown, v * beta[..., None], scores, q * grown, (k * last).transpose(-1, -2), torch.exp(total[..., -1])


def chunk_step(
    state: Tensor, w: Tensor, u: Tensor, scores: Tensor, q: Tensor, k: Tensor, kept: Tensor
) -> tuple[Tensor, Tensor]:
    own = state.to(u.dtype)
    new = u - w @ own
    return q @ own + scores @ new, kept[..., None, None] * state + k @ new


def chunked_delta(prepare: Function, step: Function, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    lower, w, u, *others = prepare(q, k, v, g, beta)
    eye = torch.eye(CHUNK, dtype=lower.dtype, device=q.device)
    inverse = torch.linalg.solve_triangular(eye + lower, eye.expand_as(lower), upper=False, unitriangular=True).to(w.dtype)
    state = torch.zeros(*q.shape[:2], q.shape[-1], v.shape[-1], dtype=lower.dtype, device=q.device)
    found = []
    for own in zip(*(t.unbind(2) for t in (inverse @ w, inverse @ u, *others)), strict=True):
        o, state = step(state, *own)
        found.append(o)
    return torch.stack(found, 2).view(v.shape)


def arguments(heads: int, length: int, width: int, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    rand = torch.Generator(device).manual_seed(0)
    q, k, v = (torch.randn(1, heads, length, width, generator=rand, device=device) for _ in range(3))
    g, beta = (torch.randn(1, heads, length, generator=rand, device=device) for _ in range(2))
    drawn = [t.to(dtype) for t in (q * width**-0.5, F.normalize(k, dim=-1), v, torch.sigmoid(beta))]
    return [*drawn[:3], F.logsigmoid(g + 3), drawn[3]]


def run(options: Options) -> Iterator[Row]:
    need_gpu(options)
    torch._functorch.config.donated_buffer = False  # gradients are taken many times of one call
    on_gpu = options.device.type == "cuda"
    compiled: Function = torch.compile if on_gpu else (lambda f: f)
    programs: dict[str, tuple[Function, Function, int]] = {
        "linear_attention": (linear_attention, compiled(chunked_linear), 4),
        "gated_delta_rule": (gated_delta_rule, partial(chunked_delta, compiled(prepared), compiled(chunk_step)), 5),
    }
    programs = {name: program for name, program in programs.items() if options.wants(name)}
    _check(options.device, programs)
    for shape in SHAPES if on_gpu else ((2, 128, 16),):
        given = [arguments(*shape, torch.bfloat16, options.device) for _ in range(2 if on_gpu else 1)]
        for name, (own, peer, count) in programs.items():
            case = {"kernel": name, "heads": shape[0], "tokens": shape[1], "width": shape[2], "dtype": "bfloat16"}
            for direction in ("forward", "backward"):
                ways: list[list[Callable[[], Any]]] = [[partial(f, *one[:count]) for one in given] for f in (own, peer)]
                if direction == "backward":
                    ways = [[_gradient(f, given[0][:count])] for f in (own, peer)]
                # as graphs where that can be captured: the host's time to launch is never twice the same
                graph = direction == "forward" and name == "linear_attention"
                times = times_in_turn(ways, options.device, seconds=min(0.2, options.seconds), graph=graph)
                yield from rows_of("linear_attention", {**case, "pass": direction}, times, ["chunks, torch.compile"])


def _gradient(function: Function, given: list[Tensor]) -> Callable[[], Any]:
    leaves = [t.detach().clone().requires_grad_() for t in given]
    y = function(*leaves)
    return partial(torch.autograd.grad, y, leaves, torch.randn_like(y), retain_graph=True)


def _check(device: torch.device, programs: dict[str, tuple[Function, Function, int]]) -> None:
    """Raise where a kernel or its gradient is not what the chunked form makes of the same in float64."""
    references = {"linear_attention": chunked_linear, "gated_delta_rule": partial(chunked_delta, prepared, chunk_step)}
    for name, (own, _, count) in programs.items():
        given = [t.requires_grad_() for t in arguments(3, 128, 24, torch.float32, device)[:count]]
        wide = [t.detach().double().requires_grad_() for t in given]
        y, want = own(*given), references[name](*wide)
        seed = torch.randn_like(y)
        found = (y, *torch.autograd.grad(y, given, seed))
        for one, other in zip(found, (want, *torch.autograd.grad(want, wide, seed.double())), strict=True):
            worst = (one.double() - other).abs().max() / other.abs().max()
            assert worst < 1e-4, f"{name} is off by {worst:.1e} of the largest"
