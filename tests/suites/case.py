"""One program of a suite, and the small inputs on which its loops are judged."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

Arrays = dict[str, torch.Tensor]
Number = bool | int | float


@dataclass(frozen=True)
class Case:
    """function: a plain function in weft's language. inputs: draws its tensors (float64 with integer values, int64 where
    the elements are subscripts). settings: the numbers it also takes, each set of them tried with inputs of its own.
    """

    function: Callable[..., Any]
    inputs: Callable[[random.Random], Arrays]
    settings: tuple[dict[str, Number], ...] = ({},)

    @property
    def name(self) -> str:
        return str(self.function.__name__).strip("_").replace("__", "-")

    def arguments(self, draws: int) -> Iterator[dict[str, Any]]:
        """All arguments by name: `draws` sets of tensors for each setting, the same ones every time."""
        for k, setting in enumerate(self.settings):
            for draw in range(draws):
                generator = random.Random(f"{self.name} {k} {draw}")
                yield {**self.inputs(generator), **setting}


def values(generator: random.Random, *shape: int) -> torch.Tensor:
    """Integers of both signs, none of them 0, hardly any two of them equal."""
    count = int(torch.Size(shape).numel())
    drawn = [generator.choice((-1, 1)) * generator.randint(2, 60) for _ in range(count)]
    return torch.tensor(drawn, dtype=torch.float64).view(shape)


def near_zero(generator: random.Random, *shape: int) -> torch.Tensor:
    """-1, 0 and 1: for programs that tell the signs apart."""
    count = int(torch.Size(shape).numel())
    return torch.tensor([generator.randint(-1, 1) for _ in range(count)], dtype=torch.float64).view(shape)


def subscripts(generator: random.Random, count: int, size: int) -> torch.Tensor:
    """`count` positions in an array of `size` elements, the first and the last of them equal."""
    drawn = [generator.randrange(size) for _ in range(count)]
    return torch.tensor([*drawn[:-1], drawn[0]], dtype=torch.int64)
