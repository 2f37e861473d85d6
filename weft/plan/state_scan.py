"""The plan of scans of many states a row: how many threads a row has, and which rows a block has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from weft.graph.factors import regrouped
from weft.graph.state_scans import StateScans
from weft.graph.tile import Map, Read, Scan, Value, names_of, uses
from weft.loops.ir import Const, Function, free_names
from weft.loops.types import FLOAT32, INT64, ScalarType
from weft.plan.arguments import Facts
from weft.plan.extents import extents_of
from weft.plan.fold import PACKET_BYTES, is_run, power_of_two
from weft.plan.machine import Machine

# Neighbouring points that a thread has; threads of a row, where there are many rows; threads of a block of rows that share
# nothing (small ones fill a multiprocessor), and of rows that meet.
POINTS, TEAM, BLOCK, MEETING = 8, 32, 128, 512
# The most points that a thread has, so many bytes of what is read of each state: the threads of a warp then read from few lines
# of the cache at a time. Values that a thread may hold of each of them; blocks that then fit a multiprocessor.
MORE_POINTS, RUN_BYTES, HELD, RESIDENT = 16, 32, 6, 4
# Blocks that fit where threads have fewer points.
MOST_RESIDENT = 7
# States whose points are in shared memory, or on their way: a power of two.
STAGES = 2
# Of an element that comes there: of 16-bit types a warp reads from L1 as quickly (measured: 3 % quicker).
STAGED_BYTES = 4
# A thread has more points where rows become no longer than this by it.
_PADDED = 1.1
# Threads of a row, where there are few.
LONG_TEAM = 256
# Rows from which on the threads of a warp for each fill the machine.
MANY_ROWS = 1024
# Bytes of shared memory of a block that leave room for as many others as there may be.
_SMALL = 8192
_LARGEST_GRID = (1 << 31) - 1


@dataclass(frozen=True)
class StatePlan:
    """threads: of a row, side by side along it, each of them with so many neighbouring points of a tile. teams: rows of a
    block, neighbours along the last axis of the rows. whole: a row is a number of whole tiles. full: all blocks have as many
    rows. spread: what is summed of each state is so by each thread, and the threads' sums at the end of a row. resident: blocks
    that a multiprocessor is to have at once, for which threads have registers enough; 0 where that is of no account. stages: of
    how many states shared memory has what the rows of a block read alike.
    """

    threads: int
    teams: int
    points: int
    whole: bool
    full: bool = False
    spread: bool = False
    resident: int = 0
    stages: int = 0

    @property
    def apart(self) -> StatePlan:
        """The plan of a launch in which rows do not meet."""
        return replace(self, teams=max(1, min(self.teams, BLOCK // self.threads)), spread=False, resident=0, stages=0)

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
    function: Function, scans: StateScans, facts: Facts, names: Mapping[str, int], machine: Machine
) -> tuple[StatePlan, StateExtents] | None:
    """The plan for a call; None where its states have no room. names: the values of sizes and integers."""
    extents = extents_of(scans.axes, names)
    *others, last = [extents[a] for a in scans.rows] or [1]
    found = StateExtents(last, math.prod(others), math.prod(extents[a] for a in scans.states), extents[scans.along])
    threads = TEAM if found.rows * found.others >= MANY_ROWS else LONG_TEAM
    threads = max(TEAM, min(threads, power_of_two(-(-found.length // POINTS))))
    block = MEETING if scans.crossed else BLOCK
    teams = max(1, min(block // threads, power_of_two(found.rows))) if threads == TEAM and scans.rows else 1
    held = _held(regrouped(scans)) if threads == TEAM and not scans.crossed else None
    from_zero = scans.axes[scans.along].start == Const(0, INT64)
    shared = staged(function, scans, facts) if from_zero and threads == TEAM else []
    points = _points(function, scans, facts, found.length, held, shared)
    whole = from_zero and found.length % (threads * points) == 0
    plan = StatePlan(threads, teams, points, whole, found.rows % teams == 0)
    if whole and shared:
        plan = replace(plan, stages=STAGES)
    if held is not None and held <= HELD:
        blocks = -(-found.groups(plan) * found.others // machine.multiprocessors)
        plan = replace(plan, resident=RESIDENT if points > POINTS else max(RESIDENT, min(blocks, MOST_RESIDENT)))
    if found.groups(plan) * found.others > _LARGEST_GRID:
        return None
    room = machine.shared if scans.crossed else _SMALL  # where rows meet, a block has a multiprocessor for itself
    for one, most in ((replace(plan, spread=True), room), (plan, machine.shared), (replace(plan, stages=0), machine.shared)):
        if shared_bytes(function, scans, one, facts, found.states) <= most:
            return one, found
    return None


def _points(
    function: Function, scans: StateScans, facts: Facts, length: int, held: int | None, shared: list[Read]
) -> int:
    """Neighbouring points that a thread has. held: values that it holds of each of them, where a warp has a row. shared: what
    goes through shared memory.
    """
    sizes = [t.size for s in (*scans.early, *scans.scans) for t in s.types]
    if held is None or held > HELD or max(sizes) > FLOAT32.size:
        return POINTS
    reads = [v for v in scans.values if isinstance(v, Read) and {scans.along, *scans.states} & set(v.axes) > {scans.along}]
    sizes = [function.array(v.array).dtype.size for v in reads]
    if any(facts.vector(v.array) * size < PACKET_BYTES for v, size in zip(reads, sizes, strict=True)):
        return POINTS
    if len(shared) == len(reads) and length % (TEAM * MORE_POINTS) == 0:
        return MORE_POINTS
    points = max(POINTS, min(MORE_POINTS, RUN_BYTES // max(sizes, default=FLOAT32.size)))
    padded = [-(-length // (TEAM * p)) * TEAM * p for p in (POINTS, points)]
    return points if padded[1] <= _PADDED * padded[0] else POINTS


def _held(scans: StateScans) -> int:
    """Values that a thread holds of each of its points while it goes through the states."""
    made = {n: v for v in scans.values for n in names_of(v)}
    of_states = [f for f in scans.sums if set(f.axes) & set(scans.states)]
    pending = [e for v in (*scans.early, *scans.scans, *scans.totals, *of_states) for e in v.parts]
    pending += [e for s in (*scans.early, *scans.scans) for e in s.nexts]
    names, held = {n for e in pending for n in free_names(e)}, set()
    seen: set[str] = set()
    while names - seen:
        name = (names - seen).pop()
        seen.add(name)
        value = made.get(name)
        if not isinstance(value, Read | Map) or scans.along not in value.axes:
            continue
        inner = isinstance(value, Map) and bool(set(value.axes) & set(scans.states))
        if not inner or not _moved(value, made):
            held.add(name)
        if inner:
            names |= {n for e in uses(value) for n in free_names(e)}
    return len(held) + len(scans.totals)


def _moved(value: Value, made: Mapping[str, Value]) -> bool:
    """Whether a value is made of states."""
    used = [made[n] for e in uses(value) for n in free_names(e) if n in made]
    return any(isinstance(v, Scan) or (isinstance(v, Map) and _moved(v, made)) for v in used)


def kept(scans: StateScans, plan: StatePlan) -> list[tuple[str, ScalarType, int]]:
    """What a row keeps of each state in shared memory: (name, type, how often), the widest first."""
    each = plan.threads if plan.spread else 1
    found = [(n, t, 2) for s in (*scans.early, *scans.scans) for n, t in zip(s.names, s.types, strict=True)]
    found += [(f.results[0], f.types[0], each) for f in scans.sums if set(f.axes) & set(scans.states)]
    return sorted(found, key=lambda one: -one[1].size)


def staged(function: Function, scans: StateScans, facts: Facts) -> list[Read]:
    """What all rows of a block read alike of each state at its points, that copies of packets bring to shared memory: what has
    several packets for a thread's points, so that a warp would read from many lines of the cache at a time.
    """
    found = []
    for read in scans.values:
        if not isinstance(read, Read) or not read.always or not {*scans.states, scans.along} <= set(read.axes):
            continue
        size = function.array(read.array).dtype.size
        apart = bool(scans.rows) and scans.rows[-1] in read.axes
        packets = size == STAGED_BYTES and facts.vector(read.array) * size >= PACKET_BYTES
        if packets and not apart and is_run(read.array, read.index, scans.along, facts) and len(scans.states) == 1:
            found.append(read)
    return found


def ring_bytes(function: Function, scans: StateScans, plan: StatePlan, facts: Facts) -> int:
    sizes = [function.array(r.array).dtype.size for r in staged(function, scans, facts)] if plan.stages else []
    return plan.stages * plan.tile * sum(sizes)


def shared_bytes(
    function: Function, scans: StateScans, plan: StatePlan, facts: Facts, states: int, meets: bool = True
) -> int:
    """Bytes of shared memory of a block: what rows meet in, where they do, and what they keep of each state."""
    each = sum(t.size * count for _, t, count in kept(scans, plan)) * plan.teams
    return ring_bytes(function, scans, plan, facts) + met_bytes(scans, plan) * meets + each * states


def met_bytes(scans: StateScans, plan: StatePlan) -> int:
    """Bytes of what rows meet in: two places, in turn, so that one barrier does."""
    return sum(2 * plan.teams * plan.slot * f.types[0].size for f in scans.crossed)


def state_memory(scans: StateScans, plan: StatePlan, extents: StateExtents) -> list[tuple[str, ScalarType, int]]:
    """(name, type, elements) of what launches leave for each other: early states before each tile, what blocks have met in."""
    before = extents.rows * extents.others * extents.tiles(plan) * extents.states
    found = [(f"{n}.before", t, before) for s in scans.early for n, t in zip(s.names, s.types, strict=True)]
    points = extents.groups(plan) * extents.others * extents.states * extents.length
    return found + [(f"{f.results[0]}.parts", f.types[0], points) for f in scans.crossed]

