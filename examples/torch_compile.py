"""A gated layer by torch.compile(backend="weft"): what went where, the loops of one group, and a training step."""

from __future__ import annotations

import copy

import torch
from torch import nn

import weft


class Gated(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        return x + self.down(nn.functional.silu(self.gate(normed)) * self.up(normed))


def main() -> None:
    torch.manual_seed(0)
    model = Gated(32)
    own, backend = copy.deepcopy(model), weft.Backend()
    compiled = torch.compile(own, backend=backend)
    x = torch.randn(4, 7, 32)
    model(x).square().mean().backward()
    compiled(x).square().mean().backward()
    print(backend.report)
    print(backend.report.graphs[0].taken[0].program)
    off = max((p.grad - q.grad).abs().max() for p, q in zip(model.parameters(), own.parameters(), strict=True))
    print("gradients are those of eager mode:", bool(off < 1e-5))


if __name__ == "__main__":
    main()
