"""The plan of recurrences: how many threads share the states of a row, and which rows a block has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from weft.graph.recurrences import Recurrences
from weft.graph.tile import Read
from weft.loops.ir import Const, Function
from weft.loops.types import INT64, ScalarType
from weft.plan.arguments import Facts
from weft.plan.extents import extents_of
from weft.plan.fold import PACKET_BYTES, WARP, is_run, power_of_two
from weft.plan.machine import Machine

# Neighbouring states that a thread has, and the most of a long row; threads of a block, which has several rows.
STATES, MORE_STATES, BLOCK = 8, 16, 128
# Points whose reads are in shared memory at a time, the most bytes of these, and of what a thread has on its way there.
POINTS, MOST_BYTES, MOST_AHEAD = 32, 40 * 1024, 160
# Where there are more blocks than multiprocessors, two of them fit on one; so many points at a time are enough for that.
FEW_POINTS = 8
# Blocks have more rows, which read alike, where this part of the multiprocessors still has one.
_FILLED = 0.75
_OTHER_SHARED = 2048
_LARGEST_GRID = (1 << 31) - 1


@dataclass(frozen=True)
class RecurrencePlan:
    """threads: of a row, each with so many neighbouring states. teams: rows of a block, neighbours along `last`. points: as
    many as are in shared memory at a time. whole: threads have all of their states; full: blocks have all of their rows.
    """

    last: str
    threads: int
    states: int
    teams: int
    points: int
    whole: bool
    full: bool

    @property
    def block(self) -> int:
        return self.threads * self.teams

    @property
    def width(self) -> int:
        """Places for the states of a row."""
        return self.threads * self.states

    @property
    def folded(self) -> int:
        """Rows of a warp that shuffles fold where rows meet; 1 where all meet in shared memory."""
        rows = WARP // self.threads
        return rows if self.block >= WARP and 1 < rows <= self.states else 1

    @property
    def slots(self) -> int:
        """Places at a point where rows of a block meet, each for all states."""
        return self.teams // self.folded

    @property
    def pitch(self) -> int:
        """From one such place to the next: rows beside each other are in other banks."""
        return self.width + (self.threads if self.folded == 1 else 0)


@dataclass(frozen=True)
class RecurrenceExtents:
    """How a plan meets a call. rows: along the last axis; others: how often these are there."""

    rows: int
    others: int
    length: int
    states: int

    def groups(self, plan: RecurrencePlan) -> int:
        """Blocks that share the rows along the last axis."""
        return -(-self.rows // plan.teams)

    def blocks(self, plan: RecurrencePlan) -> int:
        return self.groups(plan) * self.others


def plan_recurrences(
    function: Function, found: Recurrences, names: Mapping[str, int], machine: Machine
) -> tuple[RecurrencePlan, RecurrenceExtents] | None:
    """The plan for a call; None where a warp has no room for the states of a row, or there is nothing to do."""
    extents = extents_of(found.axes, names)
    width = extents[found.state]
    # the rows of a block read alike what has not their last axis
    alike = min(reversed(found.rows), key=lambda a: sum({a, found.state} <= {*r.axes} for r in found.reads))
    last = found.meeting or alike
    others = math.prod(extents[a] for a in found.rows if a != last)
    extent = RecurrenceExtents(extents[last], others, extents[found.along], width)
    states = min(STATES, power_of_two(width))
    states = states if width <= WARP * states else MORE_STATES
    threads = power_of_two(-(-width // states))
    if threads > WARP or not min(extents[a] for a in (*found.rows, found.state, found.along)):
        return None
    teams = min(WARP // threads, power_of_two(extent.rows))
    while teams * threads < BLOCK and teams < extent.rows and _fill(extent, 2 * teams, machine):
        teams *= 2
    full = extent.rows % teams == 0
    plan = RecurrencePlan(last, threads, states, teams, POINTS, width == threads * states, full)
    while True:
        bytes_ = plan.points * sum(
            units(found, r, plan) * function.array(r.array).dtype.size for r in found.reads if brought(r)
        )
        two = plan.points > FEW_POINTS and extent.blocks(plan) > machine.multiprocessors
        room = machine.shared // (2 if two else 1) - bytes_ - _OTHER_SHARED
        if bytes_ <= min(MOST_BYTES, MOST_AHEAD * plan.block) and shared_bytes(found, plan) <= room:
            return (plan, extent) if extent.blocks(plan) <= _LARGEST_GRID else None
        if plan.points == 1:
            return None
        plan = replace(plan, points=plan.points // 2)


def _fill(extent: RecurrenceExtents, teams: int, machine: Machine) -> bool:
    return extent.others * -(-extent.rows // teams) >= _FILLED * machine.multiprocessors


def brought(read: Read) -> bool:
    """Whether a read that has points is read ahead: not what an array had before, which is read where it is written."""
    return read.always or (read.given is not None and not read.checked)


def units(found: Recurrences, read: Read, plan: RecurrencePlan) -> int:
    """Elements of a read that a block has at a point."""
    own = plan.width if found.state in read.axes else 1
    return own * (plan.teams if plan.last in read.axes else 1)


def packet(function: Function, found: Recurrences, read: Read, plan: RecurrencePlan, facts: Facts) -> int:
    """Neighbouring states that come by one instruction."""
    from_first = found.axes[found.state].start == Const(0, INT64)
    if not from_first or not is_run(read.array, read.index, found.state, facts):
        return 1
    return min(facts.vector(read.array), plan.states, PACKET_BYTES // function.array(read.array).dtype.size)


def kept_bytes(found: Recurrences, plan: RecurrencePlan) -> list[tuple[str, int]]:
    """Bytes of shared memory that each early state takes at the points there: each thread has its own."""
    own = [(n, s, t) for s in found.early for n, t in zip(s.names, s.types, strict=True)]
    return [(n, plan.points * plan.block * t.size * (plan.states if found.state in s.axes else 1)) for n, s, t in own]


def met_bytes(found: Recurrences, plan: RecurrencePlan) -> list[tuple[str, int]]:
    """Bytes of shared memory in which the rows of a block meet, of each fold over them."""
    own = {True: plan.slots * plan.pitch, False: plan.teams}
    return [(f.results[0], plan.points * f.types[0].size * own[found.state in f.axes]) for f in found.crossed]


def shared_bytes(found: Recurrences, plan: RecurrencePlan) -> int:
    return sum(-(-size // 16) * 16 for _, size in (*kept_bytes(found, plan), *met_bytes(found, plan)))


def recurrence_memory(
    found: Recurrences, plan: RecurrencePlan, extent: RecurrenceExtents
) -> list[tuple[str, ScalarType, int]]:
    """(name, type, elements) of what launches leave for each other: early states before each tile of points, what the rows of
    blocks have met in.
    """
    tiles = extent.rows * extent.others * -(-extent.length // plan.points)
    memory = [
        (f"{n}.before", t, tiles * (extent.states if found.state in s.axes else 1))
        for s in found.early
        for n, t in zip(s.names, s.types, strict=True)
    ]
    points = extent.groups(plan) * extent.others * extent.length
    each = [(f, extent.states if found.state in f.axes else 1) for f in found.crossed]
    return memory + [(f"{f.results[0]}.parts", f.types[0], points * own) for f, own in each]
