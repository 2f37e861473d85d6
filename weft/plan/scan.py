"""The plan of scans: how many threads a row has, which of its points each of them holds, and whether blocks share it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from weft.graph.scans import Scanned, ahead
from weft.graph.tile import Read, Scan
from weft.loops.affine import affine, evaluate
from weft.loops.algebra.table import overflows
from weft.loops.ir import Const, Expr, Function, free_names
from weft.loops.types import INT64
from weft.plan.arguments import Facts
from weft.plan.fold import BLOCK, PACKET_BYTES, Extents, axis_along, is_run, power_of_two
from weft.plan.machine import Machine

# Points of a tile that a thread holds; threads of a row.
POINTS, TEAMS = 16, (32, 128, 256)
# Bytes of neighbouring rows that a thread reads with one instruction, and that neighbouring threads read side by side: of
# many rows; of few, where what blocks tell each other grows with them.
ROWS_BYTES, LINE_BYTES, SHORT_LINE_BYTES = 8, 256, 128
# Rows from which on a team of a part of a block fills the machine.
MANY_ROWS = 2048
# Threads of blocks, and how many of them a multiprocessor has at a time, where these are few and stay: a large one waits less
# often for others, small ones fit better, which counts from a part of all on.
FEW_BLOCKS, SLACK = ((512, 1), (256, 2)), 0.05
# Points of a row from which on few rows are so; values that a thread of these holds of all that it reads, points at most.
LONG_ROW, VALUES, MOST_POINTS = 1 << 14, 48, 32
# Tiles that are in shared memory at a time, where each begins; bytes of it that a block has for other things.
MOST_STAGES, SLOT_ALIGNMENT, OTHER_SHARED = 4, 128, 2 * 1024
WARP = 32
# Turns whose words blocks have at a time.
TURNS_TOLD = 4


@dataclass(frozen=True)
class ScanPlan:
    """lane: the axis along which neighbouring threads lie, the scanned one or the fastest of the rows. threads: of a row, or,
    where rows lie side by side, of a block, `side` of them beside each other. teams: rows of a block that have threads for
    themselves. vector: neighbours along the lane that a thread moves at a time; runs: so many of them, apart from each
    other along the scanned axis (of a warp's lanes, side by side), or one after another where rows lie side by side.
    shared: blocks share a row, a tile each; all of them run at once. stages: so many tiles are on their way or there in shared
    memory, where reads of whole runs of memory bring them; 0: the next tile is on its way in registers. resident: blocks that
    a multiprocessor has at a time, where that is planned. delayed: a block goes through a tile in the turn after the one in
    which it has told what that does, since the others may be late.
    """

    rows: tuple[str, ...]
    lane: str
    threads: int
    side: int
    teams: int
    vector: int
    runs: int
    shared: bool = False
    stages: int = 0
    resident: int = 0
    delayed: bool = False

    @property
    def beside(self) -> bool:
        """Whether neighbouring threads have rows of their own."""
        return self.lane in self.rows

    @property
    def wide(self) -> int:
        """Rows that lie side by side in a block."""
        return self.side * self.vector if self.beside else 1

    @property
    def tile(self) -> int:
        """Points along the scanned axis that a block takes at a time."""
        return self.threads // self.side * self.runs * (1 if self.beside else self.vector)


def plan_scan(
    function: Function, scans: Scanned, facts: Facts, names: Mapping[str, int], machine: Machine | None
) -> tuple[ScanPlan, Extents]:
    """The plan for a call. names: the values of sizes and integers. machine: None where blocks may not share rows."""
    extents = {a: _extent(scans, a, names) for a in (*scans.rows, scans.along)}
    length, rows = extents[scans.along], math.prod(extents[a] for a in scans.rows)
    lane = _lane(scans, facts, extents)
    plan = _beside(function, scans, facts, lane, extents) if lane in scans.rows else _along(function, scans, length, rows)
    groups = _groups(plan, extents)
    most = 0 if machine is None else 2 * machine.multiprocessors
    if machine is None or not 0 < groups < most or length < LONG_ROW // plan.wide or scans.bounded:
        return plan, Extents(rows, -(-groups // plan.teams), 1)
    if plan.beside and plan.side < WARP:  # lanes of a warp would hear different parts
        return plan, Extents(rows, groups, 1)
    states = all(len(s.names) == 1 or not overflows(s.algebra, s.types[0]) for s in scans.scans)
    found = []
    for threads, resident in FEW_BLOCKS:
        few = _few(function, scans, facts, plan, threads, resident)
        groups, blocks = _groups(few, extents), machine.multiprocessors * resident
        parts = min(blocks // groups, -(-length // few.tile), threads) if groups and states and not scans.folds else 1
        few = replace(few, shared=parts > 1)
        if machine.bulk:
            few = _with_ring(function, scans, facts, few, machine.shared // resident - OTHER_SHARED)
        parts = max(1, min(parts, -(-length // few.tile)))
        few = replace(few, shared=parts > 1, delayed=few.delayed and parts > 1)
        found.append((groups * parts / blocks, few, Extents(rows, groups, parts)))
    (used, large, own), (others, small, theirs) = found
    # a block that waits for no other is best; of those that hear of others late, two do not wait at a time
    waits = large.shared and small.delayed
    return (small, theirs) if waits or used < others - SLACK else (large, own)


def _with_ring(function: Function, scans: Scanned, facts: Facts, plan: ScanPlan, room: int) -> ScanPlan:
    """The plan with tiles in shared memory, if there is room for two of them, or for three where a tile stays a turn longer."""

    def stages(given: ScanPlan) -> int:
        each = sum(slot_bytes(function, given, r) for r in ring_reads(function, scans, given, facts))
        return min(MOST_STAGES, room // each) if each else 0

    swept = [v for v in scans.values if isinstance(v, Read) and scans.along in v.axes]
    whole = set(swept) == set(ring_reads(function, scans, plan, facts))
    if plan.shared and whole and len(scans.levels) == 1:
        for runs in range(plan.runs, 0, -1):
            given = replace(plan, runs=runs, delayed=True)
            if stages(given) > 2:
                return replace(given, stages=stages(given))
    return replace(plan, stages=stages(plan)) if stages(plan) > 1 else plan


def _along(function: Function, scans: Scanned, length: int, rows: int) -> ScanPlan:
    """Neighbouring threads along the scanned axis."""
    vector = _vector_along(function, scans)
    runs = max(1, POINTS // vector // len(scans.scans))
    small, middle, large = TEAMS
    each = runs * vector
    threads = middle if rows >= MANY_ROWS or length <= middle * each else large
    threads = small if length <= small * each else threads
    while runs > 1 and length <= threads * vector * runs // 2:
        runs //= 2
    teams = 128 // threads if threads < 128 and scans.rows else 1
    return ScanPlan(scans.rows, scans.along, threads, 1, teams, vector, runs)


def _beside(function: Function, scans: Scanned, facts: Facts, lane: str, extents: Mapping[str, int]) -> ScanPlan:
    """Neighbouring threads along an axis of rows."""
    order = tuple(a for a in scans.rows if a != lane) + (lane,)
    vector = _vector_of_rows(function, scans, facts, lane)
    size = min(function.array(a).dtype.size for a, _, _ in _accesses(scans))
    side = max(1, min(BLOCK, power_of_two(-(-extents[lane] // vector)), LINE_BYTES // (size * vector)))
    return ScanPlan(order, lane, BLOCK, side, 1, vector, max(1, POINTS // vector))


def _few(function: Function, scans: Scanned, facts: Facts, plan: ScanPlan, threads: int, resident: int) -> ScanPlan:
    """The plan for few rows, whose blocks stay."""
    reads = sum(isinstance(v, Read) and scans.along in v.axes for v in scans.values)
    points = min(MOST_POINTS, VALUES // max(1, reads)) // len(scans.scans)
    if plan.beside:
        size = min(function.array(a).dtype.size for a, _, _ in _accesses(scans))
        vector = max(1, min(plan.vector, 4 // size))
        side = min(plan.side * plan.vector // vector, max(WARP, SHORT_LINE_BYTES // (size * vector)))
        points = min(points, POINTS)  # the next ones are on their way in registers
        return replace(plan, threads=threads, resident=resident, vector=vector, side=side, runs=max(1, points // vector))
    return replace(plan, threads=threads, teams=1, resident=resident, runs=max(1, points // plan.vector))


def _groups(plan: ScanPlan, extents: Mapping[str, int]) -> int:
    """Rows, or how many times those that a block has side by side."""
    if not plan.beside:
        return math.prod(extents[a] for a in plan.rows)
    return -(-extents[plan.lane] // plan.wide) * math.prod(extents[a] for a in plan.rows if a != plan.lane)


def _vector_along(function: Function, scans: Scanned) -> int:
    size = min((function.array(a).dtype.size for a, _, axes in _accesses(scans) if scans.along in axes), default=4)
    return min(8, PACKET_BYTES // size)


def ring_reads(function: Function, scans: Scanned, plan: ScanPlan, facts: Facts) -> tuple[Read, ...]:
    """The reads whose tiles are runs of memory that can be copied as they are: aligned, and as long as the row."""
    return tuple(v for v in scans.values if isinstance(v, Read) and _in_runs(function, scans, plan, facts, v))


def _in_runs(function: Function, scans: Scanned, plan: ScanPlan, facts: Facts, read: Read) -> bool:
    array, axis = function.array(read.array), scans.axes[plan.lane]
    if plan.beside or not set(read.axes) <= {*scans.rows, scans.along} or scans.along not in read.axes:
        return False
    if any(w.array == read.array for w in scans.writes) or facts.vector(read.array) * array.dtype.size < PACKET_BYTES:
        return False
    if axis.start != Const(0, INT64) or not ahead(read, scans.axes):
        return False
    places = [k for k, i in enumerate(read.index) if plan.lane in free_names(i)]
    form = affine(read.index[places[0]]) if len(places) == 1 else None
    if form is None or form.names != {plan.lane} or form.coefficient(plan.lane) != 1:
        return False
    along = [f.coefficient(scans.along) for f in map(affine, read.index) if f is not None and scans.along in f.names]
    shift = form.constant
    if along != [1] or (read.array, places[0]) not in facts.unit or array.shape[places[0]] != axis.stop:
        return False
    return abs(shift) <= 1


def shift_of(read: Read, lane: str) -> int:
    """How far from the lane's point a read in runs is."""
    form = next(f for f in map(affine, read.index) if f is not None and lane in f.names)
    return form.constant


def slot_elements(plan: ScanPlan, read: Read, size: int) -> int:
    """Elements of a tile of a read in shared memory: with those beside it, where it is shifted. size: bytes of one."""
    beside = 2 * (PACKET_BYTES // size) if shift_of(read, plan.lane) else 0
    return plan.tile + beside


def slot_bytes(function: Function, plan: ScanPlan, read: Read) -> int:
    size = function.array(read.array).dtype.size
    return -(-slot_elements(plan, read, size) * size // SLOT_ALIGNMENT) * SLOT_ALIGNMENT


def ring_bytes(function: Function, scans: Scanned | None, plan: ScanPlan, facts: Facts) -> int:
    """Bytes of all tiles that are in shared memory at a time."""
    if scans is None or not plan.stages:
        return 0
    return plan.stages * sum(slot_bytes(function, plan, r) for r in ring_reads(function, scans, plan, facts))


def _extent(scans: Scanned, axis: str, names: Mapping[str, int]) -> int:
    own = scans.axes[axis]
    try:
        return max(0, evaluate(own.stop, names) - evaluate(own.start, names))
    except KeyError:
        return 1024  # other axes or data decide


def _accesses(scans: Scanned) -> Iterator[tuple[str, tuple[Expr, ...], frozenset[str]]]:
    """Arrays, subscripts, and the axes of the points at which they are loaded or stored."""
    for v in scans.values:
        if isinstance(v, Read):
            yield v.array, v.index, frozenset(v.axes)
    for w in (*scans.writes, *scans.last):
        yield w.array, w.index, frozenset(w.axes)


def _lane(scans: Scanned, facts: Facts, extents: Mapping[str, int]) -> str:
    """The axis along which most of what is loaded and stored lies side by side; of rows, where they are all as long."""
    votes = dict.fromkeys((scans.along, *scans.rows), 0)
    for array, index, axes in _accesses(scans):
        for k, i in enumerate(index):
            form = affine(i)
            if (array, k) in facts.unit and form is not None:
                for a in axes & form.names & votes.keys():
                    if abs(form.coefficient(a)) == 1:
                        votes[a] += math.prod(extents[x] for x in axes if x in extents)
    best = max(votes, key=lambda a: votes[a])
    return scans.along if scans.bounded else best


def _vector_of_rows(function: Function, scans: Scanned, facts: Facts, lane: str) -> int:
    """How many neighbouring rows all that is read and written at points has in whole packets, of which rows are a multiple."""
    swept = [(a, i) for a, i, axes in _accesses(scans) if scans.along in axes and lane in axes]
    if not swept or scans.axes[lane].start != Const(0, INT64) or not all(is_run(a, i, lane, facts) for a, i in swept):
        return 1
    if not any(function.array(a).shape[axis_along(i, lane)] == scans.axes[lane].stop for a, i in swept):
        return 1
    if any(w.guard is not None and lane in free_names(w.guard) for w in scans.writes):
        return 1
    widest = max(1, ROWS_BYTES // min(function.array(a).dtype.size for a, _ in swept))
    return min(widest, *(facts.vector(a) for a, _ in swept))


def told_words(scan: Scan) -> int:
    """Words of 8 bytes by which a block tells what its tile does to a scan's states, and the state after it, at the most."""
    widest = max(4, *(e.type.size for e in (*scan.parts, *scan.inits)))
    return (len(scan.parts) + 2 * len(scan.inits) + 1) * widest // 4
