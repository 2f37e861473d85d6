"""The plan of scans of many states a row: how many threads a row has, and which rows a block has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from weft.graph.state_scans import StateScans
from weft.loops.ir import Const
from weft.loops.types import INT64, ScalarType
from weft.plan.extents import extents_of
from weft.plan.fold import power_of_two
from weft.plan.machine import Machine

# Neighbouring points that a thread has; threads of a row, where there are many rows; threads of a block of rows that share
# nothing (small ones fill a multiprocessor), and of rows that meet.
POINTS, TEAM, BLOCK, MEETING = 8, 32, 128, 512
# Threads of a row, where there are few.
LONG_TEAM = 256
# Rows from which on the threads of a warp for each fill the machine.
MANY_ROWS = 1024
_LARGEST_GRID = (1 << 31) - 1


@dataclass(frozen=True)
class StatePlan:
    """threads: of a row, side by side along it, each of them with so many neighbouring points of a tile. teams: rows of a
    block, neighbours along the last axis of the rows. whole: a row is a number of whole tiles.
    """

    threads: int
    teams: int
    points: int
    whole: bool

    @property
    def apart(self) -> StatePlan:
        """The plan of a launch in which rows do not meet."""
        return replace(self, teams=max(1, min(self.teams, BLOCK // self.threads)))

    @property
    def tile(self) -> int:
        """Points that the threads of a row take at a time."""
        return self.threads * self.points

    @property
    def pitch(self) -> int:
        """Places from one of a thread's points to its next one where rows meet: they lie in other banks than those of the
        threads beside it, both as they are left and as they are taken.
        """
        return self.threads + 32 // self.points

    @property
    def slot(self) -> int:
        """Places of a row where rows meet."""
        return self.points * self.pitch


@dataclass(frozen=True)
class StateExtents:
    """How a plan meets a call. rows: of the last axis; others: how often these are there."""

    rows: int
    others: int
    states: int
    length: int

    def groups(self, plan: StatePlan) -> int:
        """Blocks that share the rows along the last axis."""
        return -(-self.rows // plan.teams)

    def tiles(self, plan: StatePlan) -> int:
        return -(-self.length // plan.tile)


def plan_states(
    scans: StateScans, names: Mapping[str, int], machine: Machine
) -> tuple[StatePlan, StateExtents] | None:
    """The plan for a call; None where its states have no room. names: the values of sizes and integers."""
    extents = extents_of(scans.axes, names)
    *others, last = [extents[a] for a in scans.rows] or [1]
    found = StateExtents(last, math.prod(others), math.prod(extents[a] for a in scans.states), extents[scans.along])
    threads = TEAM if found.rows * found.others >= MANY_ROWS else LONG_TEAM
    threads = max(TEAM, min(threads, power_of_two(-(-found.length // POINTS))))
    block = MEETING if scans.crossed else BLOCK
    teams = max(1, min(block // threads, power_of_two(found.rows))) if threads == TEAM and scans.rows else 1
    from_zero = scans.axes[scans.along].start == Const(0, INT64)
    plan = StatePlan(threads, teams, POINTS, from_zero and found.length % (threads * POINTS) == 0)
    if shared_bytes(scans, plan, found.states) > machine.shared or found.groups(plan) * found.others > _LARGEST_GRID:
        return None
    return plan, found


def kept(scans: StateScans) -> list[tuple[str, ScalarType, int]]:
    """What a row keeps of each state in shared memory: (name, type, how often), the widest first."""
    found = [(n, t, 2) for s in (*scans.early, *scans.scans) for n, t in zip(s.names, s.types, strict=True)]
    found += [(f.results[0], f.types[0], 1) for f in scans.sums if set(f.axes) & set(scans.states)]
    return sorted(found, key=lambda one: -one[1].size)


def shared_bytes(scans: StateScans, plan: StatePlan, states: int) -> int:
    """Bytes of shared memory of a block: what rows meet in, and what they keep of each state."""
    each = sum(t.size * count for _, t, count in kept(scans)) * plan.teams
    return met_bytes(scans, plan) + each * states


def met_bytes(scans: StateScans, plan: StatePlan) -> int:
    """Bytes of what rows meet in: two places, in turn, so that one barrier does."""
    return sum(2 * plan.teams * plan.slot * f.types[0].size for f in scans.crossed)


def state_memory(scans: StateScans, plan: StatePlan, extents: StateExtents) -> list[tuple[str, ScalarType, int]]:
    """(name, type, elements) of what launches leave for each other: early states before each tile, what blocks have met in."""
    before = extents.rows * extents.others * extents.tiles(plan) * extents.states
    found = [(f"{n}.before", t, before) for s in scans.early for n, t in zip(s.names, s.types, strict=True)]
    points = extents.groups(plan) * extents.others * extents.states * extents.length
    return found + [(f"{f.results[0]}.parts", f.types[0], points) for f in scans.crossed]

