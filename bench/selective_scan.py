"""A selective scan and its gradient, as loops, with a skip and a gate: of many channels, few, and many states.

The peer's times are of mamba_ssm's CUDA kernels, measured apart on an H200 at these shapes; `eager_ms` is the same program in
PyTorch, a step at a time, which no one would wait for on longer rows.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812 - as PyTorch's own documents import it
from torch import Tensor

import weft
from bench.harness import Options, Row, need_gpu
from weft.runtime.timing import median_ms

Shape = tuple[int, int, int, int]
# (batch, channels, length, states): milliseconds of the peer, forward and backward.
TIMES: dict[torch.dtype, dict[Shape, tuple[float, float]]] = {
    torch.float32: {
        (8, 2048, 2048, 16): (1.18, 2.77),
        (1, 2048, 16384, 16): (1.46, 3.34),
        (1, 4096, 65536, 16): (10.9, 23.6),
        (8, 2048, 2048, 64): (4.05, 9.72),
    },
    torch.bfloat16: {
        (8, 2048, 2048, 16): (0.60, 2.33),
        (1, 2048, 16384, 16): (0.75, 2.92),
        (1, 4096, 65536, 16): (5.97, 20.5),
        (8, 2048, 2048, 64): (2.00, 8.88),
    },
}
PEER = "mamba_ssm, measured apart"
LONGEST_EAGER = 2048


@weft.kernel
def selective_scan(u, delta, a, b, c, skip, z):
    batch, channels, length = u.shape
    states = a.shape[1]
    y = torch.empty_like(u)
    for i in range(batch):
        for d in range(channels):
            h = torch.zeros(states)
            for t in range(length):
                dt = F.softplus(delta[i, d, t])
                total = 0.0
                for n in range(states):
                    h[n] = torch.exp(dt * a[d, n]) * h[n] + dt * b[i, n, t] * u[i, d, t]
                    total += h[n] * c[i, n, t]
                y[i, d, t] = (total + skip[d] * u[i, d, t]) * F.silu(z[i, d, t])
    return y


def eager(u: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, skip: Tensor, z: Tensor) -> Tensor:
    """The same, tensors of all channels at a time."""
    dt = F.softplus(delta)
    h = torch.zeros(*u.shape[:2], a.shape[1], dtype=a.dtype, device=u.device)
    found = []
    for t in range(u.shape[2]):
        h = torch.exp(dt[:, :, t, None] * a) * h + (dt * u)[:, :, t, None] * b[:, None, :, t]
        found.append((h * c[:, None, :, t]).sum(-1))
    return (torch.stack(found, -1) + skip[:, None] * u) * F.silu(z)


def arguments(shape: Shape, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    batch, channels, length, states = shape
    rand = torch.Generator(device).manual_seed(0)

    def drawn(*sizes: int, kind: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(*sizes, generator=rand, device=device).to(kind)

    row, each = (batch, channels, length), (batch, states, length)
    u, delta, z = (drawn(*row, kind=dtype) for _ in range(3))
    b, c = (drawn(*each, kind=dtype) for _ in range(2))
    return [u, delta - 1, -torch.exp(drawn(channels, states) * 0.5), b, c, drawn(channels), z]


def run(options: Options) -> list[Row]:
    need_gpu(options)
    _check(options.device)
    measured: list[Row] = []
    for dtype, shapes in list(TIMES.items())[: 1 if options.quick else None]:
        for shape, (forward_peer, backward_peer) in shapes.items():
            own: Shape = (1, 8, 30, shape[3]) if options.quick else shape
            given = arguments(own, dtype, options.device)  # more than caches keep, but for the quick ones
            seconds = options.seconds
            forward = median_ms([partial(selective_scan, *given)], options.device, seconds=seconds)
            case = {"kernel": "selective_scan", "shape": list(own), "dtype": str(dtype).removeprefix("torch.")}
            step = {}
            if own[2] <= LONGEST_EAGER and dtype == torch.float32:
                step = {"eager_ms": round(median_ms([partial(eager, *given)], options.device, seconds=seconds), 3)}
            leaves = [g.requires_grad_() for g in given]
            y = selective_scan(*leaves)
            gradient = partial(torch.autograd.grad, y, leaves, torch.randn_like(y), retain_graph=True)
            backward = median_ms([gradient], options.device, seconds=seconds)
            for direction, ms, peer in (("forward", forward, forward_peer), ("backward", backward, backward_peer)):
                more = step if direction == "forward" else {}
                measured.append(Row("selective_scan", {**case, "pass": direction, **more}, ms, PEER, peer))
            del given, leaves, y, gradient
    return measured


def _check(device: torch.device) -> None:
    """Raise where the kernel and its gradient are not what PyTorch makes of the same in float64, of rows enough to run as those
    that are measured.
    """
    given = [g.requires_grad_() for g in arguments((2, 600, 270, 5), torch.float32, device)]
    wide = [g.detach().double().requires_grad_() for g in given]
    y, want = selective_scan(*given), eager(*wide)
    seed = torch.randn_like(y)
    found = (y, *torch.autograd.grad(y, given, seed))
    wanted = (want, *torch.autograd.grad(want, wide, seed.double()))
    for one, other in zip(found, wanted, strict=True):
        worst = (one.double() - other).abs().max() / other.abs().max()
        assert worst < 1e-4, f"off by {worst:.1e} of the largest"
