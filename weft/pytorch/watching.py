"""Guards of what functions read from outside."""

from __future__ import annotations

from weft.errors import Location, StateChanged
from weft.language import MISSING, Capture
from weft.runtime.guard import Guard


def watch(guard: Guard, captured: Capture) -> None:
    """Have a guard hold for as long as the places of a capture do."""
    watches = captured.watches
    places = [(w.holder, w.name, w.value) for w in watches if w.simple]
    others = [w for w in watches if not w.simple]
    ask = (lambda: all(w.holds() for w in others)) if others else None
    guard.watch(places, MISSING, ask, lambda: all(w.holds() for w in watches))


def stale(name: str, captured: Capture, location: Location | None) -> StateChanged:
    """What a graph that calls a function by what it read from outside raises, once that has changed."""
    changed = captured.changed()
    return StateChanged(
        f"{name} is called from a graph that was made before what it reads from outside changed",
        location=location,
        evidence=[f"{', '.join(changed)} {'have' if len(changed) > 1 else 'has'} changed"],
        remedy="call torch.compiler.reset() after such a change, or pass the value as an argument",
    )
