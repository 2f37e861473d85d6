"""How a call iterates: over the axes of memory, as PyTorch's operators do, or over the dimensions of its tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from weft.elementwise.iteration import iterate
from weft.elementwise.memory import check_memory
from weft.elementwise.operands import Operand as Facts
from weft.elementwise.views import axes_of
from weft.loops.types import Typed


@dataclass(frozen=True)
class Given:
    """The arguments of a call by parameter: tensors; numbers, with what each weighs in promotion; constants of the program."""

    tensors: dict[str, torch.Tensor]
    numbers: dict[str, tuple[bool | int | float | complex, Typed]]
    constants: tuple[tuple[str, Any], ...]
    operands: tuple[str, ...]


@dataclass(frozen=True)
class Loops:
    """How a call iterates. shape: of the results. order: its dimensions, the outermost of the iteration first. sizes: of the
    iteration's axes. axes: of each tensor, and of each given result, those that it has. strides: along all axes, where the
    tensors are taken as they lie. made: the strides of new results.
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    sizes: tuple[int, ...]
    axes: tuple[tuple[int, ...], ...]
    strides: tuple[tuple[int, ...], ...] | None
    made: tuple[int, ...] | None


def by_shape(tensors: Sequence[torch.Tensor], outs: Sequence[torch.Tensor]) -> Loops:
    """The iteration over the dimensions of the result, in their order: of tensors that only PyTorch knows where they lie."""
    shape = torch.broadcast_shapes(*(t.shape for t in tensors))  # type: ignore[no-untyped-call]
    axes = []
    for t in (*tensors, *outs):
        leading = len(shape) - t.dim()
        axes.append(tuple(leading + d for d in range(t.dim()) if not (t.shape[d] == 1 and shape[leading + d] != 1)))
    return Loops(tuple(shape), tuple(range(len(shape))), tuple(shape), tuple(axes), None, None)


def as_they_lie(
    given: Given, outs: Mapping[str, torch.Tensor], reads: Sequence[str], apart: frozenset[str]
) -> Loops:
    """The iteration in the order of memory, over as few axes as may be. reads: the operands as the function reads them. apart:
    those of which numbers take no part in it.
    """
    tensors = given.tensors
    iterated = [n for n in given.operands if n in tensors or n not in apart]
    order = sorted(iterated, key=lambda n: reads.index(n) if n in reads else len(reads))
    facts = {n: Facts.of(n, tensors[n] if n in tensors else given.numbers[n][0]) for n in order}
    targets = [Facts.of(name, t) for name, t in outs.items()]
    found = iterate([*facts.values()], targets or (None,))
    if targets:
        check_memory(targets, [facts[n] for n in tensors], found.shape)
    for out, wanted in zip(outs.values(), found.results, strict=False):
        if out.shape != torch.Size(found.shape):  # it has no elements
            out.resize_(found.shape).as_strided_(found.shape, wanted)
    results = max(1, len(targets))
    along = dict(zip(facts, found.strides[results:], strict=True))
    strides = (*(along[n] for n in tensors), *(found.strides[:results] if targets else ()))
    every = tuple(range(len(found.sizes)))
    axes = [axes_of(own, found.sizes) if k < len(tensors) else every for k, own in enumerate(strides)]
    repeated = {*every}.difference(*axes)  # by all of them: one has to tell how often
    axes[0] = tuple(sorted((*axes[0], *repeated)))
    return Loops(found.shape, found.order, found.sizes, tuple(axes), strides, None if targets else found.results[0])
