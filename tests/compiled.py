"""Functions and models that torch.compile is tried on."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_RANDOM = torch.Generator().manual_seed(0)


def _r(*shape: int) -> Tensor:
    return torch.randn(shape, generator=_RANDOM)


_TARGETS = torch.tensor([0, 3, 10, -100, 2, 5])
_INDEX = torch.tensor([1, 2, 3, 4])
_LATER = torch.triu(torch.ones(9, 9, dtype=torch.bool), 1)


def _chunks(x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return F.gelu(a, approximate="tanh") * b


def _activations(x: Tensor) -> Tensor:
    y = F.mish(x) + F.elu(x) + F.leaky_relu(x) + F.hardswish(x) + F.softplus(x)
    return y + F.logsigmoid(x) + F.selu(x) + F.hardtanh(x) + F.relu6(x)


def _rotated(q: Tensor, c: Tensor, s: Tensor) -> Tensor:
    return q * c + torch.cat((-q[..., 4:], q[..., :4]), -1) * s


def _distributed(x: Tensor) -> Tensor:
    return (x - x.amin(-1, keepdim=True)) / (x.amax(-1, keepdim=True) - x.amin(-1, keepdim=True))


def _running(x: Tensor, dt: Tensor) -> Tensor:
    decay = torch.cumsum(dt, 1)
    return torch.cumsum(torch.exp(-decay) * x, 1) * torch.exp(decay)


# Each with its arguments
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "activations": (_activations, (_r(4, 8),)),
    "adjacent_dtypes": (lambda x, y: (x + y).float() * y, (_r(4, 8).bfloat16(), _r(4, 8))),
    "any_all": (lambda x: (x > 2).any(-1) | (x < 0).all(-1), (_r(4, 8),)),
    "batch_norm": (lambda x, m, v: F.relu(F.batch_norm(x, m.detach(), v.abs().detach() + 1)), (_r(2, 8, 5), _r(8), _r(8))),
    "binary_cross_entropy": (lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), (_r(4, 8), _r(4, 8))),
    "booleans": (lambda x: ((x > 0) & (x < 1)) | x.isnan(), (_r(4, 8),)),
    "causal_softmax": (lambda x: F.softmax(x.masked_fill(_LATER, -torch.inf), -1), (_r(2, 9, 9),)),
    "channels_last": (lambda x: F.silu(x) * 2, (_r(2, 3, 4, 5).to(memory_format=torch.channels_last),)),
    "clamp": (lambda x: x.clamp(-0.5) + x.clamp(max=0.3) + x.clamp(-0.1, 0.1), (_r(4, 8),)),
    "convolution_by_taps": (lambda x: sum(F.pad(x, (3, 0))[:, k : k + 8] * (k + 0.5) for k in range(4)), (_r(4, 8),)),
    "cosine_similarity": (F.cosine_similarity, (_r(7, 5), _r(7, 5))),
    "cross_entropy": (lambda x: F.cross_entropy(x, _TARGETS), (_r(6, 11),)),
    "cross_entropy_smoothed": (lambda x: F.cross_entropy(x, _TARGETS, label_smoothing=0.1), (_r(6, 11),)),
    "cumprod": (lambda x: torch.cumprod(x.exp(), -1) + 1, (_r(4, 8) / 4,)),
    "cumsum": (lambda x: torch.cumsum(F.softplus(x), 1) * 2, (_r(3, 17, 5),)),
    "cumsum_last": (lambda x: torch.exp(torch.cumsum(x, -1)), (_r(3, 17),)),
    "distributed": (_distributed, (_r(4, 8),)),
    "double": (lambda x: (x * 0.1).exp() + x, (_r(4, 8).double(),)),
    "embedding": (lambda w, p: F.embedding(_INDEX[None], w) * 2 + p, (_r(10, 8), _r(4, 8))),
    "flip": (lambda x: x.flip(1) * 2 + x, (_r(4, 8),)),
    "gather": (lambda x: x.exp().gather(1, _INDEX[:, None]).squeeze(1) * 2, (_r(4, 8),)),
    "gelu_of_chunks": (_chunks, (_r(4, 34),)),
    "glu": (lambda x: F.glu(x) + 1, (_r(4, 8),)),
    "group_norm": (lambda x, w, b: F.group_norm(x, 4, w, b).relu(), (_r(2, 8, 5, 5), _r(8), _r(8))),
    "halves": (lambda x, y: (x + y) * x.sigmoid(), (_r(4, 8).bfloat16(), _r(4, 8).bfloat16())),
    "huber": (lambda x, y: F.huber_loss(x, y), (_r(4, 8), _r(4, 8))),
    "in_place": (lambda x: x.clone().mul_(2).add_(1).relu_(), (_r(4, 8),)),
    "integers": (lambda x: (x * 3 + 1) // 2 + (x % 5), (torch.arange(40).reshape(5, 8),)),
    "integers_and_halves": (lambda k, x: x + k * 2, (torch.arange(2040, 2048), _r(8).half())),
    "kl_div": (lambda x, y: F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1), reduction="batchmean"), (_r(4, 8), _r(4, 8))),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (64,), w, b) * 2, (_r(4, 64), _r(64), _r(64))),
    "log_softmax": (lambda x: F.log_softmax(x, 1), (_r(4, 8, 33),)),
    "logsumexp": (lambda x: torch.logsumexp(x, -1) * 2, (_r(7, 5),)),
    "mse": (lambda x, y: F.mse_loss(x, y), (_r(4, 8), _r(4, 8))),
    "normalized": (lambda x: F.normalize(x, dim=1), (_r(7, 5),)),
    "number_without_dimensions": (lambda x, a: x * a + a, (_r(4, 8), _r())),
    "permuted": (lambda x: (x.permute(0, 2, 1, 3) * 2 + 1).exp(), (_r(2, 3, 4, 5),)),
    "prod": (lambda x: x.prod(-1) + 1, (_r(4, 8),)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (33,), w) * 2, (_r(4, 8, 33), _r(33))),
    "rotated": (_rotated, (_r(2, 3, 8), _r(3, 8), _r(3, 8))),
    "running": (_running, (_r(2, 7, 3), _r(2, 7, 3).abs())),
    "selected": (lambda x: x[:, 2].exp() + x[:, 3], (_r(4, 8),)),
    "shifted": (lambda x: torch.cat((x[:, :1] * 0, x[:, :-1]), 1) + x, (_r(4, 8),)),
    "sliced": (lambda x: x[:, 2:5].exp() + x[:, :3], (_r(4, 8),)),
    "softmax": (lambda x: F.softmax(x * 2, -1), (_r(4, 8, 33),)),
    "standardized": (lambda x: (x - x.mean(0)) / (x.std(0) + 1e-5), (_r(7, 5),)),
    "sum_of_all": (lambda x: (x * x).sum() / x.numel(), (_r(4, 8),)),
    "swiglu": (lambda x, y: F.silu(x) * y, (_r(4, 33), _r(4, 33))),
    "transposed": (lambda x: (x.transpose(1, 2).contiguous() + 1).view(2, 12), (_r(2, 3, 4),)),
    "trigonometry": (lambda x: x.sin() + x.cos().tanh() + x.abs().sqrt() + x.erf() + torch.atan2(x, x + 1), (_r(4, 8),)),
    "variances": (lambda x: x.var(-1) + x.var((0, 2))[None, :], (_r(7, 5, 3),)),
    "where": (lambda x, y: torch.where(x > y, x, 2.0) + torch.where(x > 0, 1.0, 0.0), (_r(4, 8), _r(4, 8))),
}  # fmt: skip


class GeluMLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = x + self.down(F.gelu(self.up(self.norm(x))))
        return made


class GatedMLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.gate, self.up = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm(x)
        made: Tensor = x + self.down(F.silu(self.gate(normed)) * self.up(normed))
        return made


class Block(nn.Module):
    """Of a transformer, with rotated queries and keys."""

    def __init__(self, width: int, heads: int, longest: int = 64) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.out, self.mlp = nn.Linear(width, 3 * width), nn.Linear(width, width), GeluMLP(width)
        size = width // heads
        angles = torch.arange(longest)[:, None] * 10000.0 ** (-torch.arange(0, size, 2) / size)
        self.register_buffer("cos", torch.cat((angles.cos(), angles.cos()), -1))
        self.register_buffer("sin", torch.cat((angles.sin(), angles.sin()), -1))

    def rotated(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        length = x.shape[2]
        made: Tensor = x * self.cos[:length] + torch.cat((-b, a), -1) * self.sin[:length]  # type: ignore[index]
        return made

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(self.rotated(q), self.rotated(k).to(q.dtype), v, is_causal=True)
        made: Tensor = self.mlp(x + self.out(y.transpose(1, 2).reshape(batch, length, width)))
        return made


class Selective(nn.Module):
    """A selective scan by sums, with a causal convolution and a gate."""

    def __init__(self, width: int, states: int = 4) -> None:
        super().__init__()
        self.norm, self.enter, self.step = nn.RMSNorm(width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.states, self.leave = nn.Linear(width, 2 * states), nn.Linear(width, width)
        self.rates, self.taps = nn.Parameter(-torch.rand(width, states)), nn.Parameter(torch.randn(4, width) * 0.3)

    def forward(self, x: Tensor) -> Tensor:
        u, z = self.enter(self.norm(x)).chunk(2, -1)
        padded = F.pad(u, (0, 0, 3, 0))
        u = F.silu(sum(padded[:, k : k + x.shape[1]] * self.taps[k] for k in range(4)))
        dt = F.softplus(self.step(u))
        b, c = self.states(u).chunk(2, -1)
        decay = torch.cumsum(dt[..., None] * self.rates, 1)
        h = torch.exp(decay) * torch.cumsum(torch.exp(-decay) * (dt * u)[..., None] * b[:, :, None], 1)
        made: Tensor = x + self.leave((h * c[:, :, None]).sum(-1) * F.silu(z))
        return made


class Language(nn.Module):
    """Embedding, a block, and the loss of the next token."""

    def __init__(self, width: int, heads: int, tokens: int) -> None:
        super().__init__()
        self.enter, self.block, self.leave = nn.Embedding(tokens, width), Block(width, heads), nn.Linear(width, tokens)

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.leave(self.block(self.enter(tokens[:, :-1])))
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


# Each with what makes its input for a batch
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor]]] = {
    "gelu_mlp": (lambda: GeluMLP(32), lambda n: torch.randn(n, 7, 32)),
    "gated_mlp": (lambda: GatedMLP(32), lambda n: torch.randn(n, 7, 32)),
    "block": (lambda: Block(32, 4), lambda n: torch.randn(n, 7, 32)),
    "selective": (lambda: Selective(16), lambda n: torch.randn(n, 7, 16) / 2),
    "language": (lambda: Language(32, 4, 50), lambda n: torch.randint(0, 50, (n, 9))),
}


def _steps(a: Tensor, b: Tensor) -> list[Callable[[], Tensor]]:
    return [
        a.sigmoid, a.abs, lambda: a + 1.5, lambda: a * 2, lambda: torch.sort(a, -1).values,
        lambda: a - a.mean(-1, keepdim=True), lambda: a.softmax(-1), lambda: a.transpose(0, -1),
        lambda: a.reshape(-1, a.shape[0]), lambda: torch.cat((a, a * 0.5), 0)[: a.shape[0]],
        lambda: a[1:] if a.shape[0] > 2 else a.tanh(), lambda: torch.cumsum(a, 0),
        lambda: a.sum(0, keepdim=True) + a, lambda: a.contiguous().view(-1).sin().view(a.shape),
        lambda: a * b if a.shape == b.shape else a, lambda: torch.where(a > b, a, b) if a.shape == b.shape else a,
    ]  # fmt: skip


def random_program(seed: int) -> Callable[[Tensor, Tensor], tuple[Tensor, ...]]:
    """Operators that weft has and one that it has not, views, and several results; of two matrices."""

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        draw = random.Random(seed)
        values = [x, y]
        for _ in range(draw.randint(4, 22)):
            values.append(draw.choice(_steps(draw.choice(values[-6:]), draw.choice(values)))())
        return tuple(draw.sample(values[2:], min(3, len(values) - 2)))

    return function
