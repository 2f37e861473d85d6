"""Launches of which one begins before the one before it has ended, as CUDA C++."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from weft.emit.text import Writer


@dataclass(frozen=True)
class Dependence:
    """Whether a launch may begin before the one before it has ended, and whether the one after it may."""

    awaits: bool = False
    allows: bool = False

    def begin(self, writer: Writer) -> None:
        """What comes before all else: the next launch is not allowed before this one has the memory of the last one, so that
        no more than two overlap.
        """
        if self.awaits:
            writer.line("weft::await_launch_before();")
        if self.allows:
            writer.line("weft::allow_launch_after();")


def include(writer: Writer, launches: Iterable[Dependence]) -> None:
    """What these need."""
    if any(d.awaits or d.allows for d in launches):
        writer.line('#include "weft/dependent.cuh"')


def dependences(dependent: Sequence[bool]) -> tuple[Dependence, ...]:
    """Of launches in order, of which these may begin before the one before them has ended."""
    return tuple(Dependence(own, after) for own, after in zip(dependent, (*dependent[1:], False), strict=True))
