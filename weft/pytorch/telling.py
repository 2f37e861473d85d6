"""What a call is slower than it need be for, told once for each place of a kernel, there."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from weft.compiler import Unused
from weft.errors import Location, PerformanceWarning

Place = tuple[Location | None, str]


def tell(message: str, where: Location, place: Place, told: set[Place]) -> None:
    """Warn at a line of the user's, unless it was done. told: the places that were warned of."""
    if place not in told:
        told.add(place)
        warnings.warn_explicit(PerformanceWarning(message), None, where.file, where.line)


def tell_unused(meaning: str, unused: Sequence[Unused], where: Location | None, told: set[Place]) -> None:
    """Warn of the loops that could run in parallel and run in order inside a thread, in a message for each line. meaning: what
    runs, as the user knows it; where: it.
    """
    for u in unused:
        at = u.loop.location or where or Location(meaning, 1)
        seen = f", at {u.where.file}:{u.where.line}" if u.where is not None and u.where.line != at.line else ""
        message = f"{meaning} leaves loop {u.name} ({u.loop.kind}) in order inside a thread: {u.why}{seen}"
        tell(f"{message}; {u.remedy}" if u.remedy else message, at, (at, u.loop.kind), told)
