"""Guards of what functions read from outside."""

from __future__ import annotations

from weft.language import MISSING, Capture
from weft.runtime.guard import Guard


def watch(guard: Guard, captured: Capture) -> None:
    """Have a guard hold for as long as the places of a capture do."""
    watches = captured.watches
    places = [(w.holder, w.name, w.value) for w in watches if w.simple]
    others = [w for w in watches if not w.simple]
    ask = (lambda: all(w.holds() for w in others)) if others else None
    guard.watch(places, MISSING, ask, lambda: all(w.holds() for w in watches))
