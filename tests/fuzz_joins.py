"""Random programs that join values to elements which the data choose, or store them there."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch

_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True)
class Program:
    """source: of a function `program(y, k, x, w, lengths)`; arguments: for it."""

    source: str
    arguments: tuple[Any, ...]


def generate(seed: int) -> Program:
    draw = random.Random(f"joins {seed}")
    dtype = draw.choice((*_FLOATS[:2], *_FLOATS, *_INTEGERS, torch.bool))
    n, m, size = draw.choice((0, 1, 5, 40)), draw.choice((1, 3, 8)), draw.choice((1, 4, 30))
    wide = draw.random() < 0.5
    lines = ["def program(y, k, x, w, lengths):"]
    last = draw.random() < 0.3
    stored = not last and draw.random() < 0.3
    lines += ["    z = torch.empty_like(x)"] if stored else []
    inner = draw.choice(("range(x.shape[1])", "range(x.shape[1])", "range(min(i, x.shape[1]))", "range(lengths[i])"))
    stored = stored and inner == "range(x.shape[1])"
    lines += ["    for i in range(x.shape[0]):", f"        for j in {inner}:"]
    for _ in range(1 if last else draw.choice((1, 1, 2))):
        lines += [f"            {line}" for line in _joined(draw, dtype, wide, last)]
    lines += ["            z[i, j] = x[i, j]"] if stored else []
    lines += ["    return z"] if stored else []
    generator = torch.Generator().manual_seed(seed)
    shape = (size, m) if wide else (size,)
    y, x, w = (_drawn(dtype, s, generator) for s in (shape, (n, m), (size,)))
    if wide and draw.random() < 0.3:
        y = _drawn(dtype, (m, size), generator).T
    k = torch.randint(-size if draw.random() < 0.5 else 0, size, (n, m), generator=generator)
    k = k.to(draw.choice((torch.int64, torch.int32)))
    if draw.random() < 0.2:
        k = torch.zeros_like(k)
    lengths = torch.randint(0, m + 1, (n,), generator=generator)
    return Program("\n".join(lines) + "\n", (y, k, x, w, lengths))


def _drawn(dtype: torch.dtype, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    high = 2 if dtype == torch.bool else min(torch.iinfo(dtype).max, 1 << 40)
    return torch.randint(0, high, shape, generator=generator).to(dtype)


def _joined(draw: random.Random, dtype: torch.dtype, wide: bool, last: bool) -> list[str]:
    """A join, perhaps under a condition; or a store, of which the last one counts."""
    key = draw.choice(("k[i, j]", "k[i, j]", "k[i, 0]", "k[i, j] % y.shape[0]"))
    index = f"{key}, j" if wide and draw.random() < 0.7 else f"{key}, k[i, j] % y.shape[1]" if wide else key
    value = draw.choice(("x[i, j]", "x[i, j]", "x[i, 0]", "w[k[i, j]]", "w[0]"))
    if last:
        line = f"y[{index}] = {value}"
    elif dtype == torch.bool:
        operator = draw.choice(("|", "&", "^", "or", "and"))
        line = f"y[{index}] = y[{index}] {operator} {value}"
    elif draw.random() < 0.3:
        extremum = draw.choice(("max", "min", "torch.maximum", "torch.minimum"))
        line = f"y[{index}] = {extremum}(y[{index}], {value})"
    elif dtype.is_floating_point:
        line = f"y[{index}] {draw.choice(('+=', '+=', '-='))} {value}"
    else:
        line = f"y[{index}] {draw.choice(('+=', '+=', '-=', '*=', '|=', '^=', '&='))} {value}"
    guard = draw.choice(("", "", "x[i, j] > 0", "k[i, j] != 0", "i > j", "x[i, 0] > 0"))
    return [line] if not guard else [f"if {guard}:", f"    {line}"]
