"""The layouts of tiles, and along which axis threads that go through them have neighbours: choices that depend on each other.

What products and packets demand leaves a tile a few layouts; a chain may go along any of its axes. Neighbours that lie side by
side, in memory or in a tile, move together, others one by one, so what a chain costs is told by its own axis and by the layouts
of the tiles that it takes and leaves: a 0/1 programme (`weft.plan.choices`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.plan.choices import Choice, Pair, Peak, choose

# How often as long an element takes that is moved by itself as one that is moved with its neighbours.
ALONE = 8


@dataclass(frozen=True)
class Layout:
    """A line for each point of `lines`, with those of `along` side by side. bytes: of the tile; cost: of bringing it there, in
    elements that are moved with their neighbours.
    """

    lines: tuple[str, ...]
    along: tuple[str, ...]
    bytes: int
    cost: int = 0


@dataclass(frozen=True)
class Walk:
    """A chain. sides: the axes along which its threads may have neighbours, and what that costs in memory, of each; tiles: what
    it takes or leaves, and at how many points.
    """

    name: str
    sides: tuple[str, ...]
    costs: tuple[int, ...]
    tiles: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class LaidOut:
    """The layout of each tile, by its place among those that it may have, and the side of each chain."""

    layouts: Mapping[str, int]
    sides: Mapping[str, str]
    cost: int


def laid_out(
    tiles: Mapping[str, Sequence[Layout]], walks: Sequence[Walk], together: Sequence[frozenset[str]] = (), limit: int = 1 << 62
) -> LaidOut:
    """The layouts and sides that cost least. together: tiles that are there at one step, of at most so many bytes. Raises
    `NoChoice`.
    """
    choices = [Choice(f"tile {n}", tuple(o.cost for o in own)) for n, own in tiles.items()]
    choices += [Choice(f"side {w.name}", w.costs) for w in walks]
    pairs = [
        Pair(f"tile {n}", f"side {w.name}", tuple(tuple(moved(o, side, points) for side in w.sides) for o in tiles[n]))
        for w in walks
        for n, points in w.tiles
    ]
    peaks = [Peak({f"tile {n}": tuple(o.bytes for o in tiles[n]) for n in own}, limit) for own in together]
    found = choose(choices, pairs, peaks)
    sides = {w.name: w.sides[found.options[f"side {w.name}"]] for w in walks}
    return LaidOut({n: found.options[f"tile {n}"] for n in tiles}, sides, found.cost)


def moved(layout: Layout, side: str, points: int) -> int:
    """What it costs to go through so many points of a tile along an axis, of which it may have none."""
    return points if layout.along[-1:] == (side,) or side not in (*layout.lines, *layout.along) else ALONE * points

