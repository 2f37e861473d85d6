"""The plan of scans: how many threads a row has, which of its points each of them holds, and whether blocks share it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from weft.graph.scans import Scanned, ahead
from weft.graph.tile import Read, Scan, Write, names_of
from weft.loops.affine import affine, evaluate
from weft.loops.algebra.table import EXTREMA, overflows
from weft.loops.ir import Const, Expr, Function, free_names
from weft.loops.types import INT64
from weft.plan.arguments import Facts
from weft.plan.fold import (
    BLOCK,
    PACKET_BYTES,
    SIDE_BYTES,
    SMALL_BLOCK,
    Extents,
    axis_along,
    is_run,
    power_of_two,
    stored_in_packets,
)
from weft.plan.leaning import PLANNED, Leaning, shifted
from weft.plan.machine import Machine
from weft.plan.neighbours import neighbours

# Points of a tile that a thread holds, and of a row that is one tile; the most threads that it has.
POINTS, LONGEST_TILE, BIGGEST = 16, 4096, 512
# Values that a thread holds of all that it reads at its points: of half types fewer, since as many bytes are more work.
VALUES, HALF_VALUES = 48, 32
# Bytes of neighbouring rows that a thread reads with one instruction, and that neighbouring threads read side by side. Of few
# rows: a word, and those that a block may have; memory comes in sectors.
ROWS_BYTES, LINE_BYTES = 8, 256
WORD_BYTES, SECTOR_BYTES, FEW_LINES = 4, 32, (32, 64, 128, 256, 512)
# Bytes that a piece of memory costs more than those it has; what a byte costs that blocks tell each other, which the caches
# have; what asking other blocks again costs of all time; parts that a thread asks at a time.
PIECE_COST, TOLD_COST, TRIP_COST, PARTS_ASKED = 12, 0.25, 0.15, 2


@dataclass(frozen=True)
class Staying:
    """Blocks that are few and stay: their threads, how many of them a multiprocessor has at a time; by what all takes longer
    where they wait for others, and turns in which nothing else runs, while the first is on its way and after the last.
    """

    threads: int
    resident: int
    waits: float
    idle: int


# A large one waits less often for others, small ones fit better, which counts from a part of all on.
FEW_BLOCKS, SLACK = (Staying(512, 1, 1.08, 3), Staying(256, 2, 1.04, 1)), 0.05
# Tiles of a row that each block has at least, where large ones share it.
FEWEST_TURNS = 4
# Points of a row from which on few rows are so; those of a thread at most.
LONG_ROW, MOST_POINTS = 1 << 14, 32
# Points of a tile that a thread has where they stay in shared memory, of rows side by side.
MORE_POINTS = 32
# Threads below each other of blocks that share no rows, where rows begin anywhere and so many lie side by side: of more, more
# waits for barriers.
FEW_BELOW, FEW_BESIDE = 4, 64
# Tiles that are in shared memory at a time, where each begins; bytes of it that a block has for other things.
MOST_STAGES, SLOT_ALIGNMENT, OTHER_SHARED = 4, 128, 2 * 1024
# Turns whose words blocks have at a time.
TURNS_TOLD = 4
# Where blocks are clusters: threads of a group that goes through points, few where tiles can wait for the most turns, else as
# many as are done sooner; of all groups, which are so many; points of each thread; tiles that a block has, at least and at the
# most, of which so many are on their way where there are more than few; turns after which blocks have heard of others, at the
# most; tiles of results at a time, a multiple of the groups.
NEAR_THREADS, POINT_THREADS, MOST_GROUPS, ROLE_POINTS = (128, 256, 512), 512, 2, (16, 12, 8, 6, 4)
FEWEST_STAGES, MOST_ROLE_STAGES, MOST_COMING, MOST_LATE, MOST_SENT = 7, 12, 3, 6, 2
# Warps that take turns to pass on what clusters do to the same rows; runs of a tile that a thread composes.
FEWEST_IN_TURN, MOST_IN_TURN, RUNS_COMPOSED = 3, 6, 16
# The part of the blocks that could run at once that clusters have to have; of what others cost, what they may cost at the most,
# since their tiles wait for what is passed on.
FEWEST_NEAR, CLUSTERS_COST = 0.85, 0.87
# Parts of a multiprocessor, of which each has registers for as many warps.
PARTITIONS = 4
# Bytes of shared memory that its banks have side by side.
WARP, BANKS_BYTES = 32, 128


@dataclass(frozen=True)
class ScanPlan:
    """lane: the axis along which neighbouring threads lie, the scanned one or the fastest of the rows. threads: of a row, or,
    where rows lie side by side, of a block, `side` of them beside each other. teams: rows of a block that have threads for
    themselves. vector: neighbours along the lane that a thread moves at a time; runs: so many of them, apart from each
    other along the scanned axis (of a warp's lanes, side by side), or one after another where rows lie side by side.
    shared: blocks share a row, a tile each; all of them run at once. stages: so many tiles are on their way or there in shared
    memory, where reads of whole runs of memory bring them; 0: the next tile is on its way in registers. resident: blocks that
    a multiprocessor has at a time, where that is planned. late: a block goes through a tile so many turns after the one
    in which it has told what that does, since the others may be late. single: a row is one tile. lines: rows side by side that
    begin anywhere lie in shared memory as far past a line as in memory; else as far past a packet. full: a block has all rows
    that lie side by side, so that points which follow each other in memory are one run. cluster: blocks that run together, of
    which one hears of the others for all of them, and warps of each pass on what they hear; heard: clusters that a lane has;
    in_turn: such warps that take turns. groups: of threads that go through tiles in turn there. sends: tiles of results that
    leave by way of shared memory, at a time.
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
    late: int = 0
    single: bool = False
    lines: bool = False
    full: bool = False
    cluster: int = 1
    heard: int = 0
    in_turn: int = 0
    sends: int = 0
    groups: int = 1

    @property
    def kept(self) -> int:
        """Turns of which blocks of clusters have what has been told at a time."""
        return self.late + self.groups

    @property
    def delayed(self) -> bool:
        """Whether it does so in a later turn."""
        return self.late > 0

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
    function: Function,
    scans: Scanned,
    facts: Facts,
    names: Mapping[str, int],
    machine: Machine | None,
    leaning: Leaning = PLANNED,
) -> tuple[ScanPlan, Extents]:
    """The plan for a call. names: the values of sizes and integers. machine: None where blocks may not share rows."""
    extents = {a: _extent(scans, a, names) for a in (*scans.rows, scans.along)}
    length, rows = extents[scans.along], math.prod(extents[a] for a in scans.rows)
    lane = _lane(scans, facts, extents)
    known = told(scans, names)
    if lane in scans.rows:
        plan = _beside(function, scans, facts, lane, extents)
    else:
        plan = _along(function, scans, facts, extents, known, leaning)
    groups = _groups(plan, extents)
    most = 0 if machine is None else 2 * machine.multiprocessors
    if machine is None or not 0 < groups < most or length < LONG_ROW // plan.wide or not known or scans.continues:
        return plan, Extents(rows, -(-groups // plan.teams), 1)
    states = all(len(s.names) == 1 or not overflows(s.algebra, s.types[0]) for s in scans.scans)
    states = states and not any(s.algebra in EXTREMA for s in scans.scans)
    relayed = plan.beside and states and not scans.folds and len(scans.levels) == 1
    relayed = relayed and all(len(s.names) == 1 for s in scans.scans)

    def stays(staying: Staying, clusters: Machine | None) -> tuple[float, ScanPlan, Extents]:
        """What it costs, where rows lie side by side, and the plan of blocks that stay."""
        few, cost = _few(function, scans, plan, staying.threads, staying.resident), 0.0
        blocks = machine.multiprocessors * staying.resident
        if plan.beside:
            cost, few = _few_side(function, scans, facts, few, extents, blocks, states and not scans.folds, staying, clusters)
        groups = _groups(few, extents)
        parts = min(blocks // groups, -(-length // few.tile), staying.threads) if groups and states and not scans.folds else 1
        parts = min(parts, leaning.shared_by(parts, parts))  # all of them run at once
        cluster = 1
        if clusters is not None:
            cluster, parts = in_clusters(clusters, groups, parts)
            few = replace(few, cluster=cluster, heard=clusters_heard(few.wide, cluster, parts))
        few = replace(few, shared=parts > 1)
        if few.beside and not few.shared and any(begins_anywhere(function, a, facts) for a in _swept(scans, few)):
            down = FEW_BELOW * -(-FEW_BESIDE // few.side)
            few = replace(few, threads=min(few.threads, few.side * down))
        if machine.bulk:
            few = _with_ring(function, scans, facts, few, machine.shared // few.resident)
        parts = max(1, min(parts, -(-length // few.tile) // cluster * cluster))
        few = replace(few, shared=parts > 1, late=few.late if parts > 1 else 0, full=few.full and few.stages > 0)
        return cost, few, Extents(rows, groups, parts)

    found = [stays(staying, None) for staying in FEW_BLOCKS]
    if leaning.blocks is not None:
        return found[leaning.blocks][1:]
    (cost, large, own), (other_cost, small, theirs) = found
    used, others = (e.blocks * e.parts / (machine.multiprocessors * p.resident) for _, p, e in found)
    # a block that waits for no other is best; of those that hear of others late, two do not wait at a time; but half as many
    # blocks have less to tell each other
    fewer = large.delayed and length >= FEWEST_TURNS * large.tile * own.parts
    if plan.beside and fewer:
        fewer = cost < other_cost
    waits = large.shared and small.delayed and not fewer
    best = (small, theirs) if waits or used < others - SLACK else (large, own)
    if best[0].shared and relayed and machine.cluster > 1:
        near_cost = stays(FEW_BLOCKS[0], machine)[0]
        nears = [stays(replace(FEW_BLOCKS[0], threads=threads), machine)[1:] for threads in NEAR_THREADS]
        near, those = max(nears, key=lambda n: (n[0].delayed, n[0].late == MOST_LATE, n[0].threads * n[0].groups))
        enough = those.blocks * those.parts >= FEWEST_NEAR * best[1].blocks * best[1].parts / best[0].resident
        if near.delayed and enough and near_cost < CLUSTERS_COST * min(cost, other_cost):
            return near, those
    return best


def _other_shared(scans: Scanned, plan: ScanPlan) -> int:
    """Bytes of shared memory that a block has beside its tiles: what its threads, and what others, tell each other."""
    places = plan.side * plan.vector * (plan.threads // max(WARP, plan.side)) if plan.beside else 0
    if plan.cluster > 1:
        relayed = plan.kept * (places_of_runs(plan) + 2 * (plan.wide + plan.cluster)) + 3 * plan.wide
        return OTHER_SHARED + sum(relayed * max(8, _value_bytes(s)) for s in scans.scans)
    return OTHER_SHARED + sum(4 * places * _value_bytes(s) for s in scans.scans)


def whole_ring(function: Function, scans: Scanned, plan: ScanPlan, facts: Facts) -> bool:
    """Whether all that is read at points comes to shared memory by itself."""
    swept = {v for v in scans.values if isinstance(v, Read) and scans.along in v.axes}
    return swept == set(ring_reads(function, scans, plan, facts))


def in_clusters(machine: Machine, groups: int, most: int) -> tuple[int, int]:
    """Of how many blocks clusters are that share rows, and how many blocks do so, of so many at the most. Of smaller clusters
    there would be more, which pass on more rows each: those of 2 and of 5 blocks were slower than where all tell each other.
    """
    parts = min(machine.at_once // groups, most // machine.cluster) * machine.cluster
    return (machine.cluster, parts) if parts else (1, 1)


def clusters_heard(wide: int, cluster: int, parts: int) -> int:
    """Clusters of which a lane hears, of the warp that passes on what they do to a share of the rows."""
    return -(-parts // cluster // (WARP // min(WARP, power_of_two(-(-wide // cluster)))))


def _value_bytes(scan: Scan) -> int:
    """Bytes of what points do to a scan's states."""
    return len(scan.parts) * max(4, *(e.type.size for e in scan.parts))


def _with_ring(function: Function, scans: Scanned, facts: Facts, plan: ScanPlan, room: int) -> ScanPlan:
    """The plan with tiles in shared memory, if there is room for two of them, or for three where a tile stays a turn longer."""

    def stages(given: ScanPlan) -> int:
        each = sum(slot_bytes(function, scans, given, r, facts) for r in ring_reads(function, scans, given, facts))
        left = room - _other_shared(scans, given) - sum(made_bytes(function, scans, given, facts).values())
        return min(MOST_STAGES if given.cluster == 1 else MOST_ROLE_STAGES, left // each) if each else 0

    if plan.shared and whole_ring(function, scans, plan, facts) and len(scans.levels) == 1:
        if plan.cluster > 1:
            sent = set(scans.writes) == set(sent_writes(scans, plan, facts))
            groups = max(1, min(MOST_GROUPS, POINT_THREADS // plan.threads))
            for runs in ROLE_POINTS:
                for late in range(MOST_LATE // groups * groups, 0, -groups):
                    given = replace(plan, runs=runs, late=late, groups=groups, sends=MOST_SENT if sent else 0)
                    given = with_relays(scans, given)
                    there = stages(given)
                    if there >= FEWEST_STAGES and there - late - groups >= (MOST_COMING if there > FEWEST_STAGES + 1 else 1):
                        return replace(given, stages=there)
            return plan
        for runs in range(MORE_POINTS // plan.vector if plan.beside else plan.runs, 0, -1):
            given = replace(plan, runs=runs, late=1)
            if stages(given) >= 3:
                return replace(given, stages=stages(given))
    for lines in (True, False) if plan.beside and not plan.shared else (False,):
        for runs in range(plan.runs, plan.runs // 2 if plan.beside else plan.runs - 1, -1):
            given = replace(plan, runs=runs, lines=lines)
            if stages(given) > 1:
                return replace(given, stages=stages(given))
    return plan


def told(scans: Scanned, names: Mapping[str, int]) -> bool:
    """Whether sizes and integers decide how long rows are: not other rows, data, or loops around."""
    return all(free_names(e) <= names.keys() for e in scans.bounds(scans.along))


def _along(
    function: Function, scans: Scanned, facts: Facts, extents: Mapping[str, int], known: bool, leaning: Leaning
) -> ScanPlan:
    """Neighbouring threads along the scanned axis. Where it is known that a block holds a row, that is one tile, of as few
    threads as keep `POINTS` of it each.
    """
    sizes = [function.array(a).dtype.size for a, _, axes in _accesses(scans) if scans.along in axes]
    vector = min(8, PACKET_BYTES // min(sizes, default=4))
    reads = sum(isinstance(v, Read) and scans.along in v.axes for v in scans.values)
    points = POINTS if reads * POINTS <= (HALF_VALUES if vector == 8 else VALUES) else POINTS // 2
    runs = max(1, shifted(points, leaning.points) // vector // len(scans.scans))
    length, threads = extents[scans.along], BLOCK
    start = scans.axes[scans.along].start
    before = max(0, int(start.value)) if isinstance(start, Const) else 0  # tiles begin at 0 there
    aligned = all(facts.vector(a) >= vector for a, _, axes in _accesses(scans) if scans.along in axes)
    columns = power_of_two(before + length + (0 if aligned else vector - 1))
    single = known and columns <= LONGEST_TILE
    if single:
        side = SIDE_BYTES // (vector * min(sizes, default=4))
        threads = min(BIGGEST, max(1, columns // (runs * vector), min(columns // vector, side)))
        runs = max(1, columns // (threads * vector))
    teams = SMALL_BLOCK // threads if threads <= WARP and scans.rows else 1
    return ScanPlan(scans.rows, scans.along, threads, 1, teams, vector, runs, single=single)


def _beside(function: Function, scans: Scanned, facts: Facts, lane: str, extents: Mapping[str, int]) -> ScanPlan:
    """Neighbouring threads along an axis of rows."""
    order = tuple(a for a in scans.rows if a != lane) + (lane,)
    vector = _vector_of_rows(function, scans, facts, lane)
    size = min(function.array(a).dtype.size for a, _, _ in _accesses(scans))
    side = max(1, min(BLOCK, power_of_two(-(-extents[lane] // vector)), LINE_BYTES // (size * vector)))
    return ScanPlan(order, lane, BLOCK, side, 1, vector, max(1, POINTS // vector))


def _few(function: Function, scans: Scanned, plan: ScanPlan, threads: int, resident: int) -> ScanPlan:
    """The plan for few rows, whose blocks stay."""
    reads = sum(isinstance(v, Read) and scans.along in v.axes for v in scans.values)
    points = min(MOST_POINTS, VALUES // max(1, reads)) // len(scans.scans)
    if plan.beside:
        size = min(function.array(a).dtype.size for a, _, _ in _accesses(scans))
        vector = max(1, min(plan.vector, WORD_BYTES // size))
        return replace(plan, threads=threads, resident=resident, vector=vector, runs=_few_runs(scans, vector))
    return replace(plan, threads=threads, teams=1, resident=resident, runs=max(1, points // plan.vector), single=False)


def _few_runs(scans: Scanned, vector: int) -> int:
    """Points of a row that a thread has where rows lie side by side."""
    sizes = [max(WORD_BYTES, v.type.size) for v in scans.values if isinstance(v, Read) and scans.along in v.axes]
    words = max(1, sum(sizes) // WORD_BYTES) * vector
    return max(1, min(POINTS, VALUES // words) // len(scans.scans))


def _few_side(
    function: Function,
    scans: Scanned,
    facts: Facts,
    plan: ScanPlan,
    extents: Mapping[str, int],
    blocks: int,
    shares: bool,
    staying: Staying,
    clusters: Machine | None,
) -> tuple[float, ScanPlan]:
    """What it costs, and the plan with as many rows side by side as cost least: more of them are whole sectors where rows are
    not aligned, of fewer there is less that blocks tell each other, as fewer have the same ones.
    """
    swept = [function.array(a) for a in _swept(scans, plan)]
    words = 2 * sum(map(_value_bytes, scans.scans))

    def cost(given: ScanPlan) -> tuple[float, int]:
        groups = _groups(given, extents)
        parts, cluster = max(1, min(blocks // groups, given.threads)) if shares and groups else 1, 1
        if clusters is not None and groups:
            cluster, parts = in_clusters(clusters, groups, parts)
        waves = -(-groups * parts // blocks)
        rows = extents[given.lane] / -(-extents[given.lane] // given.wide)  # of a block
        moved = 0.0
        for array in swept:
            line, aligned = rows * array.dtype.size, facts.vector(array.name) * array.dtype.size
            edges = SECTOR_BYTES - aligned if aligned < PACKET_BYTES and not given.full else 0
            moved += array.dtype.size * (line + edges + PIECE_COST) / line
        if parts > 1:
            trips = -(-parts * given.side // (PARTS_ASKED * given.threads)) if cluster == 1 else 1
            moved += (parts if cluster == 1 else 2 + parts // cluster / cluster) * words / given.tile * TOLD_COST
            turns = max(1.0, extents[scans.along] / (given.tile * parts))
            moved *= (staying.waits + TRIP_COST * (trips - 1)) * (turns + staying.idle) / turns
        lanes = (rows + given.wide) / 2  # those without rows take part in turns
        return waves * lanes / parts * moved * staying.resident, waves

    size = min((a.dtype.size for a in swept), default=4)
    most = max(SECTOR_BYTES // size, power_of_two(extents[plan.lane]))
    wide = {max(plan.vector, min(line // size, most, plan.threads * plan.vector)) for line in FEW_LINES}
    given = [replace(plan, side=w // plan.vector) for w in sorted(wide)]
    side = fitting_side(-(-extents[plan.lane] // plan.vector))
    if any(begins_anywhere(function, a.name, facts) for a in swept):
        given = [g for g in given if g.wide >= min(WARP, most)]  # fewer are mostly edges
        whole = WARP // math.gcd(side, WARP)  # so many threads below each other make whole warps
        down = round(plan.threads / (side * whole))
        down -= side * whole * down > plan.threads * 9 // 8  # registers are for about as many
        down = max(down, clusters is not None)
        given += [replace(plan, side=side, threads=side * whole * down, full=True)] if down else []
    best = min(given, key=cost) if extents[plan.lane] else given[0]
    return cost(best)[0] if extents[plan.lane] else 0.0, best


def fitting_side(lanes: int) -> int:
    """Threads for so many lanes: one of few sizes, of which four below each other at the most make whole warps."""
    if lanes <= WARP:
        return power_of_two(lanes)
    step = max(8, power_of_two(lanes) // 16)
    return -(-lanes // step) * step


def _groups(plan: ScanPlan, extents: Mapping[str, int]) -> int:
    """Rows, or how many times those that a block has side by side."""
    if not plan.beside:
        return math.prod(extents[a] for a in plan.rows)
    return -(-extents[plan.lane] // plan.wide) * math.prod(extents[a] for a in plan.rows if a != plan.lane)


def ring_reads(function: Function, scans: Scanned, plan: ScanPlan, facts: Facts) -> tuple[Read, ...]:
    """The reads whose tiles are runs of memory that can be copied as they are: as long as the row."""
    return tuple(v for v in scans.values if isinstance(v, Read) and _in_runs(function, scans, plan, facts, v))


def _in_runs(function: Function, scans: Scanned, plan: ScanPlan, facts: Facts, read: Read) -> bool:
    array, axis = function.array(read.array), scans.axes[plan.lane]
    if plan.beside:
        return _in_rows(function, scans, plan, facts, read)
    if not set(read.axes) <= {*scans.rows, scans.along} or scans.along not in read.axes:
        return False
    if any(w.array == read.array for w in scans.writes):
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


def _in_rows(function: Function, scans: Scanned, plan: ScanPlan, facts: Facts, read: Read) -> bool:
    """Whether the rows' elements at a point lie side by side, so that threads can copy them."""
    if not {scans.along, plan.lane} <= set(read.axes) <= {*scans.rows, scans.along} or not ahead(read, scans.axes):
        return False
    if any(w.array == read.array for w in scans.writes) or scans.axes[plan.lane].start != Const(0, INT64):
        return False
    in_packets = plan.wide * function.array(read.array).dtype.size % PACKET_BYTES == 0
    return in_packets and is_run(read.array, read.index, plan.lane, facts)


def anchor_of(scans: Scanned, plan: ScanPlan, facts: Facts) -> tuple[str, tuple[Expr, ...]] | None:
    """The access at whose packets the runs of a thread begin, where rows are not known to be aligned: of what is written, or
    else of what is read.
    """
    start = scans.axes[scans.along].start
    near = isinstance(start, Const) and 0 <= int(start.value) < plan.tile
    made = {n for v in scans.values for n in names_of(v)}
    runs = [(w.array, w.index) for w in scans.writes]
    runs += [(v.array, v.index) for v in scans.values if isinstance(v, Read)]
    runs = [r for r in runs if is_run(*r, scans.along, facts) and not any(free_names(i) & made for i in r[1])]
    if plan.beside or plan.vector == 1 or not near or not runs or facts.vector(runs[0][0]) >= plan.vector:
        return None
    return runs[0]


def anywhere(function: Function, scans: Scanned, plan: ScanPlan, read: Read, facts: Facts) -> bool:
    """Whether what is read along the lane, and lies side by side, may begin between packets, or where a tile begins may be."""
    return begins_anywhere(function, read.array, facts) or anchor_of(scans, plan, facts) is not None


def begins_anywhere(function: Function, array: str, facts: Facts) -> bool:
    """Whether rows of an array are not known to begin with packets."""
    return facts.vector(array) * function.array(array).dtype.size < PACKET_BYTES


def _swept(scans: Scanned, plan: ScanPlan) -> list[str]:
    """The arrays that have rows side by side at the points."""
    return [a for a, _, axes in _accesses(scans) if {scans.along, plan.lane} <= axes]


@dataclass(frozen=True)
class Laid:
    """How rows side by side lie in a tile in shared memory, in elements of so many bytes. pitch: from a point to the next one;
    of rows that begin `anywhere` in memory the most, as the kernel chooses it: they lie as far past a frame as in memory, and
    so does each point's from the one before. skew: between the runs of threads below each other, which keep the lanes of a
    warp in banks of their own. frame: a packet, or a line where bulk copies bring them, which ask L2 once for what lies in one
    line of both memories.
    """

    size: int
    anywhere: bool
    pitch: int
    skew: int
    frame: int
    least: int  # of the pitch: no packet has elements of two points

    @property
    def packet(self) -> int:
        """Elements of a packet."""
        return PACKET_BYTES // self.size

    def elements(self, plan: ScanPlan) -> int:
        """Elements of a tile, and of what it begins past a frame."""
        past = self.frame if self.anywhere else 0
        return past + plan.tile * self.pitch + plan.threads // plan.side * self.skew


def sent_writes(scans: Scanned, plan: ScanPlan, facts: Facts) -> tuple[Write, ...]:
    """What is written at all points, side by side, into arrays that nothing else touches: it can leave by way of shared
    memory.
    """
    touched = [a for a, _, _ in _accesses(scans)]

    def can_be_sent(w: Write) -> bool:
        forms = [f for f in map(affine, w.index) if f is not None]
        steps = [f.coefficient(scans.along) for f in forms if scans.along in f.names]
        names = {n for f in forms for n in f.names}
        plain = len(forms) == len(w.index) and steps == [1] and names <= {*scans.rows, scans.along} and not w.join
        return plain and stored_in_packets(w, plan.lane, facts) and touched.count(w.array) == 1

    return tuple(filter(can_be_sent, scans.writes))


def laid(function: Function, scans: Scanned, plan: ScanPlan, read: Read, facts: Facts) -> Laid:
    """How the tiles of a read lie whose rows are side by side."""
    return laid_of(function, plan, read.array, anywhere(function, scans, plan, read, facts))


def laid_of(function: Function, plan: ScanPlan, array: str, anywhere: bool) -> Laid:
    """The same of what is read or written; anywhere: it may begin between packets."""
    size = function.array(array).dtype.size
    packet = PACKET_BYTES // size
    if anywhere:
        by_lines = plan.lines and in_bulk(plan, size) and size >= WORD_BYTES  # of less, more is computed than that spares
        frame = BANKS_BYTES // size if by_lines else packet
        least = plan.wide + 2 * (packet - 1)
        return Laid(size, True, least + frame - 1, 0, frame, least)
    skew = (plan.wide - plan.runs * plan.wide) % (BANKS_BYTES // size) if plan.side < WARP else 0
    return Laid(size, False, plan.wide, skew, packet, plan.wide)


def in_bulk(plan: ScanPlan, size: int) -> bool:
    """Whether bulk copies bring rows of so many bytes an element that begin anywhere: of short ones they would be too many."""
    return plan.wide * size >= LINE_BYTES


def shift_of(read: Read, lane: str) -> int:
    """How far from the lane's point a read in runs is."""
    form = next(f for f in map(affine, read.index) if f is not None and lane in f.names)
    return form.constant


def slot_bytes(function: Function, scans: Scanned, plan: ScanPlan, read: Read, facts: Facts) -> int:
    """Bytes of a tile of a read in shared memory: with the packets beside it, where it is shifted or begins between packets."""
    size = function.array(read.array).dtype.size
    if plan.beside:
        bytes_ = laid(function, scans, plan, read, facts).elements(plan) * size
    else:
        packets = 3 if anywhere(function, scans, plan, read, facts) else 2 if shift_of(read, plan.lane) else 0
        bytes_ = plan.tile * size + packets * PACKET_BYTES
    return -(-bytes_ // SLOT_ALIGNMENT) * SLOT_ALIGNMENT


def made_bytes(function: Function, scans: Scanned, plan: ScanPlan, facts: Facts) -> dict[str, int]:
    """Bytes of the tiles of what is written that leave by way of shared memory."""

    def bytes_of(array: str) -> int:
        own = laid_of(function, plan, array, begins_anywhere(function, array, facts))
        return -(-own.elements(plan) * own.size // SLOT_ALIGNMENT) * SLOT_ALIGNMENT

    return {w.array: plan.sends * bytes_of(w.array) for w in (sent_writes(scans, plan, facts) if plan.sends else ())}


def ring_bytes(function: Function, scans: Scanned | None, plan: ScanPlan, facts: Facts) -> int:
    """Bytes of all tiles that are in shared memory at a time."""
    if scans is None or not plan.stages:
        return 0
    brought = plan.stages * sum(slot_bytes(function, scans, plan, r, facts) for r in ring_reads(function, scans, plan, facts))
    return brought + sum(made_bytes(function, scans, plan, facts).values())


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
        for a in neighbours(array, index, facts):
            if a in axes and a in votes:
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


def block_threads(scans: Scanned, plan: ScanPlan) -> int:
    """Threads of a block: those that have points, and where blocks are clusters, those that pass on what all do."""
    if plan.cluster == 1:
        return plan.threads * plan.teams
    others = composing_threads(plan) + WARP * (2 if plan.sends else 1) + WARP * relaying_warps(scans, plan)
    return plan.threads * plan.groups + others


def relaying_warps(scans: Scanned, plan: ScanPlan) -> int:
    """Both of all scans."""
    return (gathering_warps(plan) + passing_warps(plan)) * len(scans.scans)


def places_of_runs(plan: ScanPlan) -> int:
    """Of what runs of a tile do to rows."""
    return plan.threads // plan.side * plan.wide


def with_relays(scans: Scanned, plan: ScanPlan) -> ScanPlan:
    """The plan with as many warps that take turns as there are registers for anyway."""
    counts = range(min(FEWEST_IN_TURN, plan.kept), min(MOST_IN_TURN, plan.kept) + 1)
    return min((replace(plan, in_turn=k) for k in counts), key=lambda p: idle_warps(scans, p))


def idle_warps(scans: Scanned, plan: ScanPlan) -> tuple[int, int]:
    """Warps for which each part of a multiprocessor has registers, and how many of all of them are none of the block's."""
    warps = block_threads(scans, plan) // WARP
    each = -(-warps // PARTITIONS)
    return each, each * PARTITIONS - warps


def composing_threads(plan: ScanPlan) -> int:
    """Threads that compose what runs of rows do, some each."""
    runs = plan.wide * (plan.threads // plan.side)
    return WARP * max(1, min(-(-plan.wide // WARP), runs // (WARP * RUNS_COMPOSED)))


def gathering_warps(plan: ScanPlan) -> int:
    """Warps for each scan of a block that tell what clusters do: a lane has a row."""
    return -(-plan.wide // (plan.cluster * WARP))


def passing_warps(plan: ScanPlan) -> int:
    """Warps for each scan that hear that, and pass it on: several take turns."""
    return plan.in_turn * gathering_warps(plan)


def told_words(scan: Scan) -> int:
    """Words of 8 bytes by which a block tells what its tile does to a scan's states, and the state after it, at the most."""
    widest = max(4, *(e.type.size for e in (*scan.parts, *scan.inits)))
    return (len(scan.parts) + 2 * len(scan.inits) + 1) * widest // 4
