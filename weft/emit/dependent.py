"""Launches of which one begins before the one before it has ended, as CUDA C++."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from weft.emit.text import Writer

_AWAIT, _ALLOW = "weft::await_launch_before();", "weft::allow_launch_after();"


@dataclass(frozen=True)
class Dependence:
    """Whether a launch may begin before the one before it has ended, and whether the one after it may. late: it needs that one
    only in its end, and awaits it there. ahead: the one after it may begin while this one waits, as it may be late, too; not of
    the first launch of a call, before which anything may be written that launches after it read. Every launch awaits the one
    before it, early or late: who has awaited the last one has the memory of all. full: its blocks leave no room on their
    multiprocessors, so that those of the one after it would crowd on the few that have none; it begins when these are done.
    """

    awaits: bool = False
    allows: bool = False
    late: bool = False
    ahead: bool = False
    full: bool = False

    @property
    def early(self) -> bool:
        """Whether nothing but its own setting up comes before it awaits the one before it, and nobody waits for that."""
        return self.awaits and not (self.late or self.ahead)

    def begin(self, writer: Writer) -> None:
        """What comes before all else."""
        lines = [(self.allows and not self.full, _ALLOW), (self.awaits and not self.late, _AWAIT)]
        for needed, text in lines if self.ahead else reversed(lines):
            if needed:
                writer.line(text)

    def end(self, writer: Writer) -> None:
        """What comes before the first access to what launches before may write, or read, where that is late."""
        if self.awaits and self.late:
            writer.line(_AWAIT)

    def done(self, writer: Writer) -> None:
        """What comes after all else."""
        if self.allows and self.full:
            writer.line(_ALLOW)


ALONE = Dependence()


def include(writer: Writer, launches: Iterable[Dependence]) -> None:
    """What these need."""
    if any(d.awaits or d.allows for d in launches):
        writer.line('#include "weft/dependent.cuh"')


def dependences(dependent: Sequence[bool], around: Dependence = ALONE) -> tuple[Dependence, ...]:
    """Of launches in order, of which these may begin before the one before them has ended. around: of all of them, among those
    of a call.
    """
    own = (dependent[0] or around.awaits, *dependent[1:])
    ahead = (around.ahead, *(around.awaits for _ in own[1:]))
    triples = zip(own, (*own[1:], around.allows), ahead, strict=True)
    return tuple(Dependence(awaits, allows, ahead=early) for awaits, allows, early in triples)
