"""Kernels that people write, against what they would write in PyTorch: norms, losses, masks, pairs, images, sequences.

Sizes are those of data, not of powers of two. Where a call takes less than 100 us, both are measured as CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bench import ordinary_kernels as kernels
from bench.harness import Options, Row, need_gpu, rows_of
from weft.runtime.timing import median_ms, rotations, times_in_turn

# Milliseconds of a call below which the host's time to launch counts.
_SHORT = 0.1


class Maker:
    """Makes arguments. small: sizes are cut down."""

    def __init__(self, device: torch.device, small: bool) -> None:
        self.device, self.small = device, small
        self._generator = torch.Generator(device).manual_seed(0)

    def shape(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(min(n, 12) for n in sizes) if self.small else sizes

    def normal(self, *sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(self.shape(sizes), device=self.device, generator=self._generator).to(dtype)

    def uniform(self, *sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.rand(self.shape(sizes), device=self.device, generator=self._generator).to(dtype)

    def integers(self, stop: int, *sizes: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.randint(0, stop, self.shape(sizes), device=self.device, generator=self._generator, dtype=dtype)


Make = Callable[[Maker], tuple[Any, ...]]
Peer = Callable[..., Any]


@dataclass(frozen=True)
class Work:
    """A kernel, the same in PyTorch, and how its arguments are made. close: how far results may be apart. graph: PyTorch's part
    may be captured.
    """

    kernel: Any
    peer: Peer
    make: Make
    close: float = 1e-4
    graph: bool = True


BF16, FP16 = torch.bfloat16, torch.float16


def _group_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    n, g, c, p = x.shape
    return F.group_norm(x.view(n, g * c, p), g, weight.flatten(), bias.flatten()).view_as(x)


def _statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    variance, mean = torch.var_mean(x, (0, 2), correction=0)
    return mean, variance


def _residual_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    total = x + residual
    return total, F.rms_norm(total, (x.shape[1],), weight, 1e-6)


def _modulated_norm(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[2],), eps=1e-6) * (1 + scale[:, None]) + shift[:, None]


def _swiglu(x: Tensor, bias: Tensor) -> Tensor:
    gate, up = (x + bias).chunk(2, 1)
    return F.silu(gate) * up


def _adamw(parameter: Tensor, gradient: Tensor, first: Tensor, second: Tensor, rate: float, step: int) -> None:
    first.mul_(0.9).add_(gradient, alpha=0.1)
    second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
    root = (second / (1 - 0.999**step)).sqrt_().add_(1e-8)
    parameter.mul_(1 - rate * 0.01).addcdiv_(first / (1 - 0.9**step), root, value=-rate)


def _complex_product(a: Tensor, b: Tensor) -> Tensor:
    return torch.view_as_real(torch.view_as_complex(a) * torch.view_as_complex(b))


def _rotary(qkv: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    q, v = qkv[:, :, :2], qkv[:, :, 2:]
    c, s = cosine[None, :, None, None], sine[None, :, None, None]
    a, b = q.chunk(2, -1)
    return torch.cat((torch.cat((a * c - b * s, b * c + a * s), -1).to(qkv.dtype), v), 2)


def _alibi(scores: Tensor, slopes: Tensor) -> Tensor:
    n, m = scores.shape[1:]
    i, j = torch.arange(n, device=scores.device)[:, None], torch.arange(m, device=scores.device)
    return (scores - slopes[:, None, None] * (i - j)).masked_fill(j > i, -torch.inf)


def _causal_softmax(scores: Tensor) -> Tensor:
    later = torch.ones(scores.shape[1:], dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(later, -torch.inf).softmax(-1)


def _padded(x: Tensor, lengths: Tensor) -> Tensor:
    there = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
    return x * there[..., None]


def _focal_loss(x: Tensor, target: Tensor) -> Tensor:
    p = x.sigmoid()
    right = p * target + (1 - p) * (1 - target)
    return (F.binary_cross_entropy_with_logits(x, target, reduction="none") * (1 - right) ** 2).mean()


def _total_variation(image: Tensor) -> Tensor:
    corner = image[:-1, :-1]
    return (image[1:, :-1] - corner).abs().sum() + (image[:-1, 1:] - corner).abs().sum()


def _advantages(rewards: Tensor, values: Tensor, done: Tensor, gamma: float, decay: float) -> Tensor:
    alive = 1 - done
    delta = rewards + gamma * values[:, 1:] * alive - values[:, :-1]
    y = torch.empty_like(rewards)
    a = torch.zeros_like(rewards[:, 0])
    for l in range(rewards.shape[1] - 1, -1, -1):
        a = delta[:, l] + gamma * decay * alive[:, l] * a
        y[:, l] = a
    return y


def _gated_recurrence(x: Tensor, gate: Tensor) -> Tensor:
    f = gate.sigmoid()
    new = (1 - f) * x
    y = torch.empty_like(x)
    h = torch.zeros_like(x[:, 0])
    for l in range(x.shape[1]):
        h = torch.addcmul(new[:, l], f[:, l], h)
        y[:, l] = h
    return y


def _causal_conv(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.silu(F.conv1d(F.pad(x, (3, 0)), weight[:, None], bias, groups=len(bias)))


def _depthwise(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(x, weight[:, None], padding=1, groups=len(weight))


def _bilinear(image: Tensor, places: Tensor) -> Tensor:
    size = torch.tensor([image.shape[1] - 1, image.shape[2] - 1], device=image.device)
    grid = (2 * places / size - 1).flip(1)[None, None]
    return F.grid_sample(image[None], grid, align_corners=True)[0, :, 0]


def _normalised_image(image: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    return ((image.permute(2, 0, 1) / 255 - mean[:, None, None]) / deviation[:, None, None]).contiguous()


def _game_of_life(alive: Tensor) -> Tensor:
    n, m = alive.shape
    count = sum(alive[a : n - 2 + a, b : m - 2 + b] for a in range(3) for b in range(3) if (a, b) != (1, 1))
    inner = alive[1:-1, 1:-1]
    return F.pad(((count == 3) | ((count == 2) & (inner == 1))).to(alive.dtype), (1, 1, 1, 1))


def _heat(u: Tensor) -> Tensor:
    y, inner = u.clone(), u[1:-1, 1:-1, 1:-1]
    around = u[:-2, 1:-1, 1:-1] + u[2:, 1:-1, 1:-1] + u[1:-1, :-2, 1:-1] + u[1:-1, 2:, 1:-1]
    around = around + u[1:-1, 1:-1, :-2] + u[1:-1, 1:-1, 2:]
    y[1:-1, 1:-1, 1:-1] = inner + 0.1 * (around - 6 * inner)
    return y


def _overlaps(a: Tensor, b: Tensor) -> Tensor:
    low, high = torch.maximum(a[:, None, :2], b[:, :2]), torch.minimum(a[:, None, 2:], b[:, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    one, two = ((t[:, 2:] - t[:, :2]).prod(-1) for t in (a, b))
    return shared / (one[:, None] + two - shared)


def _stored_keys(cache: Tensor, slots: Tensor, keys: Tensor) -> None:
    cache[slots] = keys


def _segment_sums(x: Tensor, starts: Tensor) -> Tensor:
    return torch.segment_reduce(x, "sum", offsets=starts, axis=0)


def _top_expert(logits: Tensor) -> tuple[Tensor, Tensor]:
    weight, place = logits.softmax(-1).max(-1)
    return place, weight


def _quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(1).clamp(min=1e-8) / 127
    return (x / scale[:, None]).round().to(torch.int8), scale


def _packed(m: Maker) -> tuple[Any, ...]:
    qkv = m.normal(6, 2047, 3, 20, 96, dtype=BF16)
    angles = m.uniform(qkv.shape[1], qkv.shape[4] // 2)
    return qkv, angles.cos(), angles.sin()


def _rollouts(m: Maker) -> tuple[Any, ...]:
    rewards, values = m.normal(4096, 301), m.normal(4096, 301)
    done = (m.uniform(4096, 301) < 0.05).float()
    return rewards, torch.cat((values, values[:, :1]), 1), done, 0.99, 0.95


def _boxes(m: Maker, n: int) -> Tensor:
    corner, size = m.uniform(n, 2), m.uniform(n, 2)
    return torch.cat((corner, corner + size), 1)


def _pages(m: Maker) -> tuple[Any, ...]:
    pages = m.normal(3001, 16, 8, 128, dtype=BF16)
    return pages, m.integers(len(pages), 37, 75)


def _slots(m: Maker) -> tuple[Any, ...]:
    cache, keys = m.normal(50003, 8, 128, dtype=BF16), m.normal(7001, 8, 128, dtype=BF16)
    return cache, torch.randperm(len(cache), device=m.device)[: len(keys)], keys


def _segments(m: Maker) -> tuple[Any, ...]:
    x = m.normal(300007, 130)
    ends = m.integers(len(x), 5000).sort().values
    return x, torch.cat((ends.new_zeros(1), ends, ends.new_full((1,), len(x))))


def _places(m: Maker) -> tuple[Any, ...]:
    image = m.normal(24, 700, 1100)
    size = torch.tensor([image.shape[1] - 1.001, image.shape[2] - 1.001], device=m.device)
    return image, m.uniform(500_000, 2) * size


def _classes(m: Maker) -> tuple[Any, ...]:
    logits = m.normal(6000, 10007)
    return logits, m.integers(logits.shape[1], 6000), 0.1


WORKS = (
    Work(kernels.group_norm, _group_norm, lambda m: (m.normal(24, 32, 10, 45 * 45), m.normal(32, 10), m.normal(32, 10))),
    Work(kernels.instance_norm, lambda x: F.instance_norm(x), lambda m: (m.normal(12, 96, 127, 131),)),
    Work(kernels.batch_statistics, _statistics, lambda m: (m.normal(50, 333, 3001),)),
    Work(kernels.batch_norm, lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b),
         lambda m: (m.normal(50, 333, 3001), m.normal(333), m.uniform(333), m.normal(333), m.normal(333))),
    Work(kernels.residual_rms_norm, _residual_rms_norm,
         lambda m: (m.normal(20000, 3000, dtype=BF16), m.normal(20000, 3000, dtype=BF16), m.normal(3000, dtype=BF16)), 2e-2),
    Work(kernels.modulated_norm, _modulated_norm,
        
         lambda m: (m.normal(20, 1025, 1152, dtype=BF16),
                    m.normal(20, 1152, dtype=BF16), m.normal(20, 1152, dtype=BF16)), 4e-2),
    Work(kernels.unit_rows, lambda x: F.normalize(x), lambda m: (m.normal(200003, 300),)),
    Work(kernels.swiglu, _swiglu, lambda m: (m.normal(9000, 11008, dtype=BF16), m.normal(11008, dtype=BF16)), 4e-2),
    Work(kernels.geglu, lambda x, g: x * F.gelu(g, approximate="tanh"),
         lambda m: (m.normal(9000, 10008, dtype=BF16)[:, :5003], m.normal(9000, 5003, dtype=BF16)), 4e-2),
    Work(kernels.dropout, lambda x, keep, p: x * keep / (1 - p),
         lambda m: (m.normal(9999, 5001, dtype=FP16), m.uniform(9999, 5001) > 0.1, 0.1), 1e-2),
    Work(kernels.mish, F.mish, lambda m: (m.normal(9999, 5001, dtype=FP16),), 1e-2),
    Work(kernels.soft_cap, lambda s, cap: cap * torch.tanh(s / cap),
         lambda m: (m.normal(50, 1003, 1003, dtype=BF16), 30.0), 2e-2),
    Work(kernels.adamw, _adamw, lambda m: (*(m.normal(30_000_001) for _ in range(3)), m.uniform(30_000_001), 1e-3, 10)),
    Work(kernels.complex_product, _complex_product, lambda m: (m.normal(20_000_003, 2), m.normal(20_000_003, 2))),
    Work(kernels.rotary, _rotary, _packed, 3e-2),
    Work(kernels.alibi, _alibi, lambda m: (m.normal(40, 1200, 1200), m.uniform(40))),
    Work(kernels.causal_softmax, _causal_softmax, lambda m: (m.normal(40, 1500, 1500, dtype=BF16),), 2e-2),
    Work(kernels.padded, _padded, lambda m: (m.normal(50, 1000, 770, dtype=BF16), m.integers(1000, 50)), 1e-2),
    Work(kernels.smoothed_cross_entropy,
         lambda x, t, s: F.cross_entropy(x, t, reduction="none", label_smoothing=s), _classes),
    Work(kernels.divergence, lambda q, p: F.kl_div(q, p, reduction="none", log_target=True).sum(-1),
         lambda m: (m.normal(6000, 10007).log_softmax(-1), m.normal(6000, 10007).log_softmax(-1))),
    Work(kernels.focal_loss, _focal_loss, lambda m: (m.normal(30000, 1003), m.uniform(30000, 1003).round())),
    Work(kernels.huber, F.smooth_l1_loss, lambda m: (m.normal(30000, 1003), m.normal(30000, 1003))),
    Work(kernels.total_variation, _total_variation, lambda m: (m.normal(7001, 5003),), 1e-3),
    Work(kernels.cosine_similarity, F.cosine_similarity, lambda m: (m.normal(100_003, 300), m.normal(100_003, 300))),
    Work(kernels.log_sum_exp_of_columns, lambda x: x.logsumexp(1), lambda m: (m.normal(60, 1000, 700),)),
    Work(kernels.running_product, lambda x: x.cumprod(1), lambda m: (m.uniform(20000, 1500) * 0.01 + 0.995,)),
    Work(kernels.running_maximum, lambda x: x.cummax(1).values, lambda m: (m.normal(20000, 1500),)),
    Work(kernels.advantages, _advantages, _rollouts),
    Work(kernels.gated_recurrence, _gated_recurrence, lambda m: (m.normal(20, 700, 1000), m.normal(20, 700, 1000))),
    Work(kernels.causal_conv, _causal_conv, lambda m: (m.normal(20, 1536, 2001), m.normal(1536, 4), m.normal(1536))),
    Work(kernels.depthwise, _depthwise, lambda m: (m.normal(20, 192, 90, 130), m.normal(192, 3, 3)), 1e-3),
    Work(kernels.max_pool, lambda x: F.max_pool2d(x[None], 2)[0], lambda m: (m.normal(1000, 226, 310),)),
    Work(kernels.pixel_shuffle, lambda x: x.permute(0, 1, 4, 2, 5, 3).contiguous(),
         lambda m: (m.normal(10, 24, 2, 2, 250, 330),)),
    Work(kernels.unfold, lambda x, k: x.unfold(1, k, 1).transpose(1, 2).contiguous(), lambda m: (m.normal(3000, 2001), 9)),
    Work(kernels.bilinear, _bilinear, _places, 2e-2),
    Work(kernels.normalised_image, _normalised_image,
         lambda m: (m.integers(256, 4001, 6003, 3, dtype=torch.uint8), m.uniform(3), m.uniform(3) + 0.5)),
    Work(kernels.game_of_life, _game_of_life, lambda m: (m.integers(2, 9001, 9003, dtype=torch.uint8),)),
    Work(kernels.heat, _heat, lambda m: (m.normal(301, 403, 505),)),
    Work(kernels.outer, torch.outer, lambda m: (m.normal(9001), m.normal(7003))),
    Work(kernels.distances, lambda a, b: (a[:, None] - b).square().sum(-1).sqrt(),
         lambda m: (m.normal(6001, 3), m.normal(7001, 3))),
    Work(kernels.overlaps, _overlaps, lambda m: (_boxes(m, 3001), _boxes(m, 4003))),
    Work(kernels.nearest, lambda x, c: torch.cdist(x, c, compute_mode="donot_use_mm_for_euclid_dist").argmin(1),
         lambda m: (m.normal(200_003, 8), m.normal(100, 8))),
    Work(kernels.gathered_pages, lambda pages, table: pages[table], _pages),
    Work(kernels.stored_keys, _stored_keys, _slots),
    Work(kernels.segment_sums, _segment_sums, _segments, 1e-3),
    Work(kernels.top_expert, _top_expert, lambda m: (m.normal(300_001, 60),)),
    Work(kernels.levels, lambda image: torch.bincount(image.flatten(), minlength=256),
         lambda m: (m.integers(256, 7001, 5003, dtype=torch.uint8),), graph=False),
    Work(kernels.quantised, _quantised, lambda m: (m.normal(20000, 3001),), 1.0),
)  # fmt: skip


def run(options: Options, works: tuple[Work, ...] = WORKS) -> Iterator[Row]:
    need_gpu(options)
    yield from (measured(work, options) for work in works if options.wants(work.kernel.name))


def measured(work: Work, options: Options) -> Row:
    """One comparison. Raises AssertionError where results differ."""
    maker = Maker(options.device, options.quick)
    first = work.make(maker)
    with torch.no_grad():
        compare(work, first)
        moved = sum(t.numel() * t.element_size() for t in first if isinstance(t, Tensor))
        sets = [first, *(work.make(maker) for _ in range(rotations(moved) - 1))]
        calls = [[partial(f, *s) for s in sets] for f in (work.kernel, work.peer)]
        short = work.graph and median_ms(calls[0], options.device, seconds=0.01) < _SHORT
        times = times_in_turn(calls, options.device, seconds=options.seconds, graph=short)
    sizes = [list(t.shape) for t in first if isinstance(t, Tensor)]
    case = {"kernel": work.kernel.name, "shape": max(sizes, key=lambda s: torch.Size(s).numel()),
            "dtype": str(first[0].dtype).removeprefix("torch.")}  # fmt: skip
    (row,) = rows_of("ordinary", case, times, ["torch eager"])
    return row


def compare(work: Work, given: tuple[Any, ...]) -> None:
    """Raises AssertionError where the kernel's results, or what it has written to, are not PyTorch's."""
    both = [[a.clone() if isinstance(a, Tensor) and a.is_contiguous() else a for a in given] for _ in range(2)]
    found, wanted = work.kernel(*both[0]), work.peer(*both[1])
    torch.testing.assert_close(found, wanted, rtol=work.close, atol=work.close, check_dtype=False)
    torch.testing.assert_close(both[0], both[1], rtol=work.close, atol=work.close)
