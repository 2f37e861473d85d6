"""A small GPT learns the reference manual of Python, with weft's attention, norms and cross entropy, or with PyTorch's.

The same weights, the same batches: the losses are the same but for rounding.

    python examples/gpt.py [STEPS]
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pydoc_data.topics import topics
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import weft
from weft.kernels import attention, rms_norm


@weft.kernel(example={"logits": "float32[64,256]", "target": "int64[64]"})
def cross_entropy(logits, target):
    """How many nats a byte costs, on average."""
    rows, bytes_ = logits.shape
    total = 0.0
    for r in range(rows):
        largest = -math.inf
        for b in range(bytes_):
            largest = max(largest, logits[r, b])
        s = 0.0
        for b in range(bytes_):
            s += torch.exp(logits[r, b] - largest)
        total += torch.log(s) + largest - logits[r, target[r]]
    return total / rows


@dataclass(frozen=True)
class Functions:
    """What a model is made of besides its linear layers."""

    attention: Callable[..., Tensor]
    norm: Callable[[Tensor, Tensor], Tensor]
    cross_entropy: Callable[[Tensor, Tensor], Tensor]


WEFT = Functions(attention, rms_norm, cross_entropy)
PYTORCH = Functions(F.scaled_dot_product_attention, lambda x, w: F.rms_norm(x, w.shape, w, 1e-6), F.cross_entropy)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, functions: Functions) -> None:
        super().__init__()
        self.heads, self.functions = heads, functions
        self.before, self.between = (nn.Parameter(torch.ones(width)) for _ in range(2))
        self.queries_keys_values = nn.Linear(width, 3 * width, bias=False)
        self.mixed = nn.Linear(width, width, bias=False)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        made = self.queries_keys_values(self.functions.norm(x, self.before))
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in made.chunk(3, -1))
        x = x + self.mixed(self.functions.attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))
        return x + self.narrow(F.gelu(self.wide(self.functions.norm(x, self.between))))


class Model(nn.Module):
    def __init__(self, functions: Functions, width: int, heads: int, blocks: int, length: int) -> None:
        super().__init__()
        self.functions = functions
        self.bytes, self.places = nn.Embedding(256, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads, functions) for _ in range(blocks)))
        self.last = nn.Parameter(torch.ones(width))
        self.logits = nn.Linear(width, 256, bias=False)

    def forward(self, text: Tensor) -> Tensor:
        """The loss of foretelling each byte of text, [batch, length + 1], from those before it."""
        x = self.bytes(text[:, :-1]) + self.places.weight[: text.shape[1] - 1]
        made = self.logits(self.functions.norm(self.blocks(x), self.last))
        return self.functions.cross_entropy(made.flatten(0, 1).float(), text[:, 1:].flatten())


def trained(functions: Functions, steps: int, device: str) -> tuple[list[float], float]:
    """The losses of the steps, and the milliseconds that one takes."""
    large = device == "cuda"
    length, batch = (1024, 16) if large else (64, 4)
    torch.manual_seed(0)
    model = Model(functions, *((512, 8, 6) if large else (64, 2, 2)), length).to(device)
    text = torch.frombuffer(bytearray("\n".join(topics.values()).encode()), dtype=torch.uint8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    places, losses, begun = torch.Generator().manual_seed(0), [], 0.0
    for step in range(steps):
        first = torch.randint(len(text) - length - 1, (batch,), generator=places).tolist()
        window: Any = torch.stack([text[i : i + length + 1] for i in first]).long().to(device)
        with torch.autocast(device, torch.bfloat16, enabled=large):
            loss = model(window)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step == min(10, steps // 2):  # what is compiled has been compiled
            begun = time.perf_counter()
    return losses, (time.perf_counter() - begun) / max(1, steps - min(10, steps // 2) - 1) * 1e3


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    steps = int(sys.argv[1]) if sys.argv[1:] else 200 if device == "cuda" else 12
    ours, our_ms = trained(WEFT, steps, device)
    theirs, their_ms = trained(PYTORCH, steps, device)
    for step in range(0, steps, max(1, steps // 10)):
        print(f"step {step:4}  loss {ours[step]:.4f} with weft, {theirs[step]:.4f} with PyTorch")
    print(f"largest difference of a loss: {max(abs(a - b) for a, b in zip(ours, theirs, strict=True)):.1e}")
    print(f"a step takes {our_ms:.1f} ms with weft, {their_ms:.1f} ms with PyTorch")


if __name__ == "__main__":
    main()
