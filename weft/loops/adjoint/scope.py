"""A place in the adjoint: the loops around it, and what the function's names and arrays are called there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from weft.errors import Location
from weft.loops.ir import Expr, For


@dataclass(frozen=True)
class Scope:
    """A place in the adjoint.

    loops: the function's loops around it. root: how many of them are around the block whose sweep this is.
    names: the function's names that have a value here, and which. copies: the local copy of each written array that
    this place reads. sweeping: the arrays whose copies hold what the function's own array held at the same moment.
    adjoints: the array that holds the adjoint of each array here.
    """

    loops: tuple[For, ...] = ()
    root: int = 0
    names: dict[str, Expr] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)
    sweeping: frozenset[str] = frozenset()
    adjoints: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(f.var for f in self.loops)

    def fork(self) -> Scope:
        return replace(self, names=dict(self.names), copies=dict(self.copies), adjoints=dict(self.adjoints))


# A load of an array under this name yields what the function returned in the end, whenever it is evaluated.
RETURNED = "returned "


def returned(array: str) -> str:
    return RETURNED + array


@dataclass(frozen=True)
class Lost:
    """A value that cannot be had in the adjoint: why, where, and what to write instead."""

    why: str
    location: Location | None
    remedy: str = "keep every such value in an element of its own, or differentiate the plain Python function"


def without_bound(name: str, loop: For) -> Lost:
    """The values that a name takes in a loop of which nothing bounds the iterations."""
    return Lost(
        f"{name} takes a new value in every iteration of the loop over {loop.var}, and data decide how many there are: "
        "how much memory would keep them all is not known before the run",
        loop.location,
        f"run the loop to a size of a tensor and put its body under a condition, or read or store an element of the "
        f"iteration's own (x[{loop.var}]) in it, which shows how far it goes, outside of loops that may have no iteration",
    )
