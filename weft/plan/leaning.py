"""How a plan leans away from what the planner takes by its cost, for `kernel.tune` to measure: each planner reads of a leaning
what it has a say in, so that every plan there is comes from its planner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Who combines the parts of a row that several blocks have: a launch after, all of them, as a cluster, or the one that comes
# last, as tickets tell it. "": there are no parts.
Meeting = Literal["", "after", "cluster", "tickets"]


@dataclass(frozen=True)
class Leaning:
    """packets: how often the neighbours that a thread moves at a time are halved. points: how often what it holds or has on
    its way is doubled (below 0: halved). parts: the same of the blocks that share a row. again: rows are read again where
    threads could hold them. blocks: the size of the blocks that stay, by its place among those that there are. alone: no blocks
    share rows of chained products; meetings: where they do, who may combine what they have; apart: a nest is its passes, whose
    launches tell each other through memory.
    """

    name: str
    packets: int = 0
    points: int = 0
    parts: int = 0
    again: bool = False
    blocks: int | None = None
    alone: bool = False
    meetings: tuple[Meeting, ...] = ("after", "cluster", "tickets")
    apart: bool = False

    def shared_by(self, parts: int, most: int) -> int:
        """So many blocks, where a planner would have `parts` of them share a row."""
        return max(2, min(shifted(parts, self.parts), most)) if parts > 1 else parts


def shifted(number: int, doublings: int) -> int:
    """A number doubled so many times, or halved."""
    return number << doublings if doublings >= 0 else number >> -doublings


PLANNED = Leaning("as planned")
# Eight plans of a nest are measured at the most.
LEANINGS = (
    PLANNED,
    Leaning("packets of half the width", packets=1),
    Leaning("twice as many points a thread", points=1),
    Leaning("half as many points a thread", points=-1),
    Leaning("twice as many blocks a row", parts=1),
    Leaning("half as many blocks a row", parts=-1),
    Leaning("rows are read again", again=True),
    Leaning("large blocks that stay", blocks=0),
    Leaning("small blocks that stay", blocks=1),
    Leaning("single elements, twice as many", packets=3, points=1),
    Leaning("one block a row", alone=True),
    Leaning("blocks of a cluster a row", meetings=("cluster",)),
    Leaning("blocks a row, the last of which combines parts", meetings=("tickets",)),
    Leaning("blocks a row, and a launch after", meetings=("after",)),
    Leaning("passes through memory", apart=True),
)
