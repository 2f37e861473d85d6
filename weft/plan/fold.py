"""The plan of sweeps: how many threads fold a row, along which axis they lie, and whether blocks share it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from weft.graph.beside import Columns
from weft.graph.sweeps import Sweep, Sweeps
from weft.graph.tile import Axis, Fold, Read, Write, names_of, uses
from weft.loops.algebra.table import ALGEBRAS
from weft.loops.ir import ZERO as ZERO
from weft.loops.ir import Const, Expr, Function, Load, Op, Ref, free_names, operands, walk_expr
from weft.loops.types import INT32, INT64, ScalarType
from weft.plan.arguments import Facts
from weft.plan.extents import extents_of, typical
from weft.plan.facts import Geometry
from weft.plan.leaning import PLANNED, Leaning, shifted
from weft.plan.machine import Machine
from weft.plan.merged import Pairs, merged, pairs_in_memory
from weft.plan.neighbours import neighbours
from weft.plan.several import Work, work_of

if TYPE_CHECKING:
    from weft.layout import Layout

# Threads of a block. Blocks that a GPU has at a time, and of threads with several rows, which need more registers.
# Up to the last number of them, blocks leave so much of it idle that several share a row.
BLOCK, MANY_BLOCKS, MANY_BESIDE, FEW_BLOCKS = 256, 1056, 528, 264
# Rows from which on a thread for each fills a GPU; points of a row from which on a team is worth its meeting.
MANY_ROWS, FEW_POINTS, MANY_POINTS = 1 << 19, 32, 1024
# Bytes that neighbouring threads with rows of their own read side by side; bytes and elements that one instruction moves.
LINE_BYTES, PACKET_BYTES, MOST_ELEMENTS = 256, 16, 8
# Points of a row that a block has at least, where blocks share it.
POINTS_OF_A_PART = 4096
# Points of a row from which on threads that lie along it share it; bytes that those of a short row read side by side; the
# threads of a block that holds several such rows.
FEWEST_POINTS, SIDE_BYTES, SMALL_BLOCK = 8, 128, 128
# Points of a short row that a thread has at the most. Points that a thread holds: many, so that what threads tell each other
# is little beside them; more of a long row. Points up to which it also keeps what it has computed of them. Registers of a
# multiprocessor, the most of a thread, and those besides the points that it holds.
FEW_HELD, HELD_POINTS, KEPT_POINTS = 16, (32, 64, 128), 32
# The same of a row that has a multiprocessor for itself: nothing else is done while its threads wait.
HELD_OF_FEW = (16, 32)
# The same of rows whose lengths data decide, about.
FEW_OF_RAGGED = 4
# Times that a team goes through that many points for each of its threads; longer rows have all threads of a block.
TURNS_OF_RAGGED = 32
# Bytes of a line from which on threads lie along it rather than along the points of such rows; threads that keep a GPU busy.
SHORTEST_LINE, MANY_LANES = 32, 1 << 17
# Blocks for each multiprocessor, among which rows that may be longer are divided, at the least.
LOOKING = 16
REGISTERS, MOST_REGISTERS, OTHER_REGISTERS = 1 << 16, 255, 32
# Who may hold a row, in the order in which they are tried: blocks of a cluster, the most threads of each, and how many blocks a
# multiprocessor has at least. Of two blocks one reads while the other one writes.
HOLDERS = ((1, 512, 2), (1, 1024, 1), (4, 256, 4), (8, 256, 4), (8, 512, 2))
# Points of a row that a thread holds in registers rather than that the row lies in shared memory.
FEWEST_HELD = 32
# Blocks of a multiprocessor that hold rows in shared memory, at least, and as many as let one read, one compute and one write;
# the threads of a multiprocessor up to which each has registers enough.
FEWEST_INSIDE, MANY_INSIDE, MANY_THREADS = 2, 3, 1024
# Rows of a block that stays which are on their way in shared memory, and bytes of that besides rows. Bytes of all such rows of
# a multiprocessor: with more of them some get ahead of others, which end last. On an H200 gradients of rms_norm took 1.15 times
# as long with 96 KB (rows of 768), 1.14 times with 128 KB (rows of 8192).
STAGES, OTHER_SHARED, ON_THE_WAY = 2, 2 * 1024, 64 * 1024
# Of a thread that folds columns too: the points that it holds, registers besides them and the next row's, and besides those and
# what it has unpacked; rows that each team goes through at least.
COLUMN_POINTS, COLUMN_REGISTERS, UNPACKED_REGISTERS, FEWEST_TURNS = 16, 48, 12, 4
# Threads of which each quarter of a multiprocessor, which has registers of its own, has a warp.
QUARTERS = 128
# Of what combines parts of columns: the most threads side by side and the fewest, which read a sector, and columns of each.
PARTS_SIDE, PARTS_SECTOR, PARTS_VECTOR = 8, 2, 4
_MOST_PARTS = (1 << 16) - 1
# Rows that threads have at once, the most of them, and what points cost then, at the most, of what they do row by row.
# Instructions, about, of a line of points for each of them, and as many as what is read from L2 takes as long as.
MOST_SEVERAL, SEVERAL_GAIN, LINE_OF_POINTS, APART = 8, 0.7, 40, 16
NARROW = 1 << 31  # rows, and points of a row, up to which they are counted in 32 bits
WARP = 32


@dataclass(frozen=True)
class FoldPlan:
    """lane: the axis along which neighbouring threads lie: the fastest of the rows, where it is one of them, or one that a
    sweep goes through; where a sweep lacks it, its own fastest. rows: from the slowest to the fastest. threads: of a row;
    `across` of them side by side, along the lane, in each sweep, or for rows side by side. teams: rows of a block that have
    their threads for themselves. shared: blocks share the points of a row, so every stage is a launch. vector: neighbouring
    points of the lane that a thread takes at a time, or rows that it has: what sweeps move along it moves in packets. running:
    sums are kept relative to the extrema that threads have so far. chunks: a thread holds its points of a row, so many
    times a vector of neighbours; 0: it does not. cluster: blocks that hold a row together, of so many threads each. inside:
    rows are held in shared memory, where bulk copies bring them, and so many blocks are on a multiprocessor; 0: they are held
    in registers. resident: blocks stay, and their teams go from row to row; so many are on a multiprocessor, 0: teams have one.
    stages: so many of their next rows are copied to shared memory meanwhile; 0: threads fetch the next one. columns: they fold
    what the next nest folds over the rows. left: only parts are combined, which the nest before has left. whole: every row has
    all points of so many of the chunks, and registers are enough for what is unpacked of them at once. merged: axes that are
    counted as one; those of the plan are what is left. fewer: loops around decide how many rows there are, and a launch may
    have blocks for more. longer: rows for which data decide that they have more points than so many are left to the first
    blocks of the launch, of which each looks at `looked` rows, and all of its threads have those; 0: there are no such. shares:
    these blocks tell which rows are longer, and so many of a launch after share the points of all of them evenly, and one more
    combines what they have of the same row; 0: each such row has a block. alike: they also hold, from the
    beginning, what is the same row for all. narrow: rows of several axes, and their points, are counted in 32 bits.
    several: threads have so many neighbouring rows along the last axis of the rows at once, and do what these have in common
    once a point.
    """

    rows: tuple[str, ...]
    lane: str
    across: tuple[tuple[int, ...], ...]
    threads: int = BLOCK
    teams: int = 1
    shared: bool = False
    vector: int = 1
    running: bool = False
    chunks: int = 0
    cluster: int = 1
    whole: int = 0
    merged: Pairs = ()
    inside: int = 0
    resident: int = 0
    stages: int = 0
    columns: bool = False
    left: bool = False
    fewer: bool = False
    longer: int = 0
    looked: int = BLOCK
    shares: int = 0
    alike: bool = False
    narrow: bool = False
    several: int = 1

    def arranged(self, sweeps: Sweeps) -> Sweeps:
        """The sweeps as this plan goes through them."""
        return merged(sweeps.running if self.running and sweeps.running is not None else sweeps, self.merged)

    @property
    def layout(self) -> Layout:
        """(thread, (vector, chunk)) -> point of a row that is held: the runs of the threads lie side by side."""
        from weft.layout import Layout

        vector, threads = self.vector, self.threads * self.cluster
        if self.inside:
            part = self.threads * vector * self.chunks
            return Layout(((self.threads, self.cluster), (vector, self.chunks)), ((vector, part), (1, vector * self.threads)))
        return Layout((threads, (vector, self.chunks)), (vector, (1, vector * threads)))

    @property
    def holds(self) -> int:
        """How many points of a row its threads hold."""
        return self.threads * self.cluster * self.vector * self.chunks

    @property
    def beside(self) -> bool:
        """Whether neighbouring threads have rows of their own."""
        return self.lane in self.rows

    def blocks(self, extents: Mapping[str, int]) -> int:
        """How many blocks have so many rows, each block its own."""
        rows = math.prod(extents[a] for a in self.rows)
        if not self.beside:
            return -(-_groups(rows, self, extents) // self.teams) * self.cluster
        lane = extents[self.lane]
        return -(-(-(-lane // (self.across[0][0] * self.vector)) * (rows // max(1, lane))) // self.teams)


def _groups(rows: int, plan: FoldPlan, extents: Mapping[str, int]) -> int:
    """How many groups of rows there are, each of which has threads of its own."""
    last = extents[plan.rows[-1]] if plan.several > 1 else 1
    return rows // max(1, last) * -(-last // plan.several)


@dataclass(frozen=True)
class Extents:
    """How a plan meets a call: rows, blocks of them, blocks that share each, or that look for longer rows. longer: those
    that share these.
    """

    rows: int
    blocks: int
    parts: int
    longer: int = 0


def plan_folds(
    function: Function,
    sweeps: Sweeps,
    facts: Facts,
    names: Mapping[str, int],
    machine: Machine,
    leaning: Leaning = PLANNED,
    arrays: Mapping[str, Geometry] = MappingProxyType({}),
) -> tuple[FoldPlan, Extents] | None:
    """The plan for a call; None where a thread for each row does as well. names: the values of sizes and integers. arrays:
    where they lie, if that is the same for all launches.
    """
    extents = extents_of(sweeps.axes, names)
    pairs = pairs_in_memory(function, sweeps, arrays, extents) if arrays else ()
    apart = pairs_in_memory(function, sweeps, arrays, extents, apart=True) if arrays else ()
    if apart != pairs:  # looking for what is told by one of the axes costs less than reading rows again
        found = _plan(function, merged(sweeps, apart), facts, names, machine, leaning, apart, arrays)
        if found is not None and found[0].chunks:
            return _counted(*found, sweeps, extents)
    found = _plan(function, merged(sweeps, pairs), facts, names, machine, leaning, pairs, arrays)
    return None if found is None else _counted(*found, sweeps, extents)


def _counted(
    plan: FoldPlan, found: Extents, sweeps: Sweeps, extents: Mapping[str, int]
) -> tuple[FoldPlan, Extents]:
    """The plan, with rows and points counted in as many bits as that takes: divisions of 64 bits are long, and rows short."""
    over = [s.over for stage in plan.arranged(sweeps).stages for s in stage]
    divided = len(plan.rows) > 1 or any(len(axes) > 2 - plan.beside for axes in over)
    points = max(math.prod(extents[a] for a in s.over) for stage in sweeps.stages for s in stage)
    return replace(plan, narrow=divided and max(found.rows, points) < NARROW - BLOCK), found


def _plan(
    function: Function,
    sweeps: Sweeps,
    facts: Facts,
    names: Mapping[str, int],
    machine: Machine,
    leaning: Leaning,
    pairs: Pairs,
    arrays: Mapping[str, Geometry],
) -> tuple[FoldPlan, Extents] | None:
    """The plan of sweeps over axes that count these pairs as one."""
    extents = extents_of(sweeps.axes, names)
    ragged = [a for a in extents if a not in sweeps.rows and not _told(sweeps.axes[a], sweeps.axes, names)]
    deciding: dict[str, set[str]] = {}  # by axes whose bounds data decide, those that these are told by
    for axis in (sweeps.axes[a] for a in ragged):
        bounds = free_names(axis.start) | free_names(axis.stop)
        deciding[axis.name] = {a for v in sweeps.values if bounds & {*names_of(v)} for a in v.axes}
        extents[axis.name] = typical(function, axis.name, deciding[axis.name], extents, _accesses(sweeps), names)
    rows = math.prod(extents[a] for a in sweeps.rows)
    points = max(math.prod(extents[a] for a in s.over) for stage in sweeps.stages for s in stage)
    bounded = [s.over[-1] for stage in sweeps.stages for s in stage if s.bounded]
    lines = _lane_of_lines(function, sweeps, facts, extents) if ragged and not bounded else None
    lane = bounded[0] if bounded else _lane(sweeps, facts, extents, deciding) if lines is None else lines
    told = not leaning.again and _told(sweeps.axes[lane], sweeps.axes, names)
    holding = tuple(shifted(p, leaning.points) for p in HELD_POINTS)
    held = None
    if told and rows <= machine.multiprocessors and extents[lane] <= HOLDERS[0][1] * max(HELD_OF_FEW):
        of_few = tuple(shifted(p, leaning.points) for p in HELD_OF_FEW)
        held = _held(function, sweeps, facts, lane, extents, machine, of_few, leaning.packets, alike=True)
    elif told:
        held = _held(function, sweeps, facts, lane, extents, machine, holding, leaning.packets, inside=True)
    running = sweeps.running is not None and lane not in sweeps.rows
    if sweeps.running is not None and running:
        sweeps = sweeps.running
    order = tuple(a for a in sweeps.rows if a != lane) + ((lane,) if lane in sweeps.rows else ())
    fewest = FEW_POINTS if lane in sweeps.rows else FEWEST_POINTS
    if lines is None and points < fewest and (lane in sweeps.rows or not ragged):
        return None
    if rows >= MANY_ROWS and any(len({*ragged} & {*s.over}) > 1 for stage in sweeps.stages for s in stage):
        return None  # a thread for each: it finds how far several of them go at once
    wide, several = 1, 1  # neighbouring rows of a block, or of the threads of one
    if lane in sweeps.rows:
        if rows >= MANY_ROWS and lines is None:
            return None
        vector = _vector_of_rows(function, sweeps, facts, lane)
        sizes = [function.array(a).dtype.size for a, i, _ in _accesses(sweeps) if any(lane in free_names(e) for e in i)]
        line = LINE_BYTES if vector > 1 else LINE_BYTES // 2
        most = max(1, line // (min(sizes, default=4) * vector))
        whole = power_of_two(-(-extents[lane] // vector))
        side = whole if vector > 1 and whole <= WARP else min(whole, most)  # a warp has all of a short line
        side = side if lines is None else min(side, WARP)
        across: tuple[tuple[int, ...], ...] = tuple((side,) * len(stage) for stage in sweeps.stages)
        wide = side * vector
        groups = -(-extents[lane] // wide) * (rows // max(1, extents[lane]))
        threads = BLOCK if lines is None else _down(groups * side, points) * side
        threads = threads if threads <= WARP else BLOCK
        teams = BLOCK // threads
        blocks = -(-groups // teams)
    else:
        vector = max(1, _vector(function, sweeps, facts, lane) >> leaning.packets)
        threads = BLOCK
        if rows >= MANY_BLOCKS and points <= MANY_POINTS:
            sizes = [function.array(v.array).dtype.size for v in sweeps.values if isinstance(v, Read) and lane in v.axes]
            team = _team(points, vector, min(sizes, default=4), FEW_HELD)
            # rows of several lengths follow each other in memory
            threads = min(32, power_of_two(-(-max(points, FEWEST_POINTS) // FEW_OF_RAGGED)) if ragged else team)
            alone = (ragged and points <= FEW_OF_RAGGED) or (points <= FEW_POINTS and _windows(sweeps, lane))
            alone = alone or (extents[order[-1]] >= WARP and _in_common(sweeps, lane, order[-1]))
            alone = alone or (bool(ragged) and extents[order[-1]] >= WARP and _lines_of_points(sweeps, facts, lane, order[-1]))
            if rows >= MANY_ROWS and alone:
                threads = 1  # a team would meet as often as it adds, and what rows have in common is at hand
        if arrays and held is None and threads == BLOCK and vector == 1 and not ragged:
            order, several = _several(sweeps, points, extents, machine)
        teams = BLOCK // threads
        sides = [
            [_side(-(-extents[lane_of(lane, s)] // vector), threads) if len(s.over) > 1 else threads for s in stage]
            for stage in sweeps.stages
        ]
        across = tuple(map(tuple, sides))
        blocks = -(-(rows // max(1, extents[order[-1]]) * -(-extents[order[-1]] // several) if several > 1 else rows) // teams)
    parts = 1
    most = MANY_BESIDE if lane in sweeps.rows and vector > 1 else MANY_BLOCKS  # more would wait for the first to end
    # rows that no registers hold are shared where three blocks for each fit at a time
    if 0 < blocks <= (FEW_BLOCKS // held.cluster if held is not None else max(FEW_BLOCKS, most // 3)):
        parts = max(1, min(most // blocks, points * wide // POINTS_OF_A_PART, _MOST_PARTS))
        parts = leaning.shared_by(parts, _MOST_PARTS)
    if parts > 1 and lane not in sweeps.rows:
        across = tuple(
            tuple(_long_side(side, threads, parts, s, lane, extents) for side, s in zip(sides, stage, strict=True))
            for sides, stage in zip(across, sweeps.stages, strict=True)
        )
    if held is not None and parts == 1:
        return replace(held, merged=pairs), Extents(rows, -(-rows // held.teams) * held.cluster, 1)
    plan = FoldPlan(order, lane, across, threads, teams, parts > 1, vector, running, merged=pairs, several=several)
    if ragged and threads < BLOCK and parts == 1 and _of_one_length(sweeps):
        down = threads // across[0][0] if plan.beside else threads
        fewest = TURNS_OF_RAGGED * FEW_OF_RAGGED * down
        longer = max(fewest, power_of_two(FEW_OF_RAGGED * points)) if down == 1 else fewest
        alike = rows_alike(sweeps, order)
        apart = rows // max(1, math.prod(extents[a] for a in alike))
        many = math.prod(-(-extents[a] // wide) if a == lane else extents[a] for a in alike)
        # a range of many rows is one for many blocks
        if _shared_evenly(sweeps) and {*order} - _deciding(sweeps) == ({lane} if plan.beside else set()):
            looked = max(BLOCK, -(-apart // MANY_BLOCKS))
            plan = replace(plan, longer=longer, looked=looked, shares=MANY_BESIDE)
            looking = -(-apart // looked)
            return plan, Extents(rows, looking + blocks, looking, MANY_BESIDE * many)
        looked = min(BLOCK, power_of_two(-(-apart // (LOOKING * machine.multiprocessors))))
        looking = -(-apart // looked) * many
        return replace(plan, longer=longer, looked=looked), Extents(rows, looking + blocks, parts, looking)
    return plan, Extents(rows, blocks, parts)


def _several(
    sweeps: Sweeps, points: int, extents: Mapping[str, int], machine: Machine
) -> tuple[tuple[str, ...], int]:
    """The axes of rows, and how many rows along the last of them threads have at once: those by which points cost least."""
    (stage, *others), order, (cost, many) = sweeps.stages, sweeps.rows, (SEVERAL_GAIN, 1)
    (sweep, *more) = stage
    if others or more or sweep.writes or sweep.repairs or any(f.algebra not in ALGEBRAS for f in sweep.folds):
        return order, many
    ends = {n for a in sweep.over for e in (sweeps.axes[a].start, sweeps.axes[a].stop) for n in free_names(e)}
    own = [v for v in sweeps.values if not isinstance(v, Fold) and {*v.axes} & {*sweep.over}]
    exprs = [e for v in own for e in uses(v)] + [e for f in sweep.folds for e in f.parts]
    for axis in sweeps.rows:
        names = {axis, *(n for v in sweeps.values if axis in v.axes for n in names_of(v))}
        if names & ends or "." in axis:  # rows of other points; axes that are counted as one
            continue
        work = sum((work_of(e, names) for e in exprs), Work(LINE_OF_POINTS, APART * _reads_apart(sweeps, sweep, axis)))
        for together in range(2, min(extents[axis], MOST_SEVERAL) + 1):
            groups = -(-extents[axis] // together)
            blocks = math.prod(extents[a] for a in sweeps.rows if a != axis) * groups
            fills = blocks * max(1, points // POINTS_OF_A_PART) >= 2 * machine.multiprocessors
            own_cost = groups * (work.alike + together * work.own) / (extents[axis] * (work.alike + work.own))
            if fills and own_cost < cost:
                order, cost, many = (*(a for a in sweeps.rows if a != axis), axis), own_cost, together
    return order, many


def _reads_apart(sweeps: Sweeps, sweep: Sweep, row: str) -> int:
    """How many reads at points lie elsewhere for each row along an axis, no row reading what another one reads nearby."""
    found = 0
    for _, index, axes in _accesses(sweeps):
        along = [i for i in index if row in free_names(i)] if axes & {*sweep.over} else []
        found += bool(along) and not any(free_names(i) & {*sweep.over} for i in along)
    return found


def _lane_of_lines(function: Function, sweeps: Sweeps, facts: Facts, extents: Mapping[str, int]) -> str | None:
    """The fastest axis of rows, where all along it have the same points, of which each has a line of memory for them; None
    where that is not so, or the lines are short.
    """
    if not sweeps.rows or not _of_one_length(sweeps) or sweeps.running is not None:
        return None
    lane, over = sweeps.rows[-1], sweeps.stages[0][0].over
    swept = [(a, i) for a, i, axes in _accesses(sweeps) if {*over} & axes and lane in neighbours(a, i, facts)]
    if lane not in rows_alike(sweeps, sweeps.rows) or not swept:
        return None
    moving = {*over} | {n for v in sweeps.values if {*over} & {*getattr(v, "axes", ())} for n in names_of(v)}
    size = min(function.array(a).dtype.size for a, i in swept)
    lines = any(free_names(e) & moving for _, i in swept for e in i)
    return lane if lines and extents[lane] * size >= SHORTEST_LINE else None


def _down(lanes: int, points: int) -> int:
    """How many threads share the points of rows of several lengths, where so many lanes have one at least: a power of two."""
    wanted = power_of_two(-(-MANY_LANES // max(1, lanes)))
    return max(1, min(wanted, BLOCK, power_of_two(points // FEW_OF_RAGGED)))


def _shared_evenly(sweeps: Sweeps) -> bool:
    """Whether blocks may have any part of a row: what they fold of it is all that is done with its points."""
    (sweep, *others), *later = sweeps.stages
    one = not (others or later or sweep.repairs) and len(sweep.over) == 1
    return one and sweeps.read_once and all(f.algebra in ALGEBRAS for f in sweeps.folds)


def _of_one_length(sweeps: Sweeps) -> bool:
    """Whether all sweeps of a row go through the same ranges."""
    every = [s.over for stage in sweeps.stages for s in stage]
    return len({tuple((sweeps.axes[a].start, sweeps.axes[a].stop) for a in over) for over in every}) == 1


def held_reads(sweeps: Sweeps, lane: str, alike: bool = False) -> tuple[Read, ...]:
    """What of a row can be read before any of it is computed: along its points, and another row for each. alike: also what is
    the same row for all.
    """
    made = {n for v in sweeps.values for n in names_of(v)}
    own = alike or not sweeps.rows
    reads = [v for v in sweeps.values if isinstance(v, Read) and lane in v.axes and (own or len(v.axes) > 1)]
    return tuple(v for v in reads if not any(free_names(i) & made for i in v.index))


def _held(
    function: Function,
    sweeps: Sweeps,
    facts: Facts,
    lane: str,
    extents: Mapping[str, int],
    machine: Machine,
    most: Iterable[int],
    packets: int = 0,
    inside: bool = False,
    alike: bool = False,
) -> FoldPlan | None:
    """The plan whose threads hold the points of a row, if that saves reading them again and they fit. most: points that a
    thread may hold, in the order in which they are tried. packets: how often a packet is halved. inside: where blocks of few
    threads have no room for a row in their registers, it may lie in shared memory. alike: they hold what is the same row for
    all as well.
    """
    every = [s for stage in sweeps.stages for s in stage]
    reads = held_reads(sweeps, lane, alike)
    if (sweeps.running or sweeps).read_once or not reads or any(s.over != (lane,) for s in every):
        return None
    if extents[lane] < FEWEST_POINTS:
        return None
    columns = power_of_two(extents[lane])
    vector = max(1, min(_vector(function, sweeps, facts, lane), columns) >> packets)
    if not whole_runs(function, reads, sweeps.axes[lane], facts, vector):
        vector = 1
    sizes = [function.array(v.array).dtype.size for v in reads]
    holders = [h for h in HOLDERS if h[0] == 1 or (h[0] <= machine.cluster and sweeps.rows and not sweeps.apart)]
    for (cluster, most_threads, fewest), points in itertools.product(holders, most):
        threads = _team(columns // cluster, vector, min(sizes), points)
        chunks = columns // (threads * cluster * vector)
        # as they are in memory, where packets are; else each element has a register
        words = sum(max(1, chunks * vector * min(4, size if vector > 1 else 4) // 4) for size in sizes)
        fits = words + OTHER_REGISTERS <= min(MOST_REGISTERS, REGISTERS // (threads * fewest))
        if fits and threads <= most_threads and (cluster == 1 or threads > WARP):
            first = (cluster, most_threads, fewest) == HOLDERS[0] and points <= FEWEST_HELD
            break
    else:
        first, threads = False, 0
    whole = (vector == 1 and _run_by_run(sweeps, facts, lane)) or (vector > 1 and _in_bulk(function, sweeps, facts, lane))
    if inside and not first and machine.bulk and whole:
        copied = _inside(sweeps, lane, extents[lane], vector, sum(sizes), max(h[0] for h in holders), machine)
        if copied is not None:
            return copied
    if not threads:
        return None
    threads = _fewest(threads, -(-extents[lane] // (cluster * vector * chunks)))
    across = tuple((threads,) * len(stage) for stage in sweeps.stages)
    teams = SMALL_BLOCK // threads if sweeps.rows and threads <= 32 else 1
    # without a branch around each run the compiler keeps what it has unpacked of all of them, in as many registers again
    unpacked = chunks * vector * len(reads) + OTHER_REGISTERS <= REGISTERS // (threads * fewest)
    holds = threads * cluster * vector * chunks
    full = chunks if chunks > 1 and unpacked and extents[lane] == holds and sweeps.axes[lane].start == ZERO else 0
    return FoldPlan(
        sweeps.rows, lane, across, threads, teams, vector=vector, chunks=chunks, cluster=cluster, whole=full, alike=alike
    )


def _inside(
    sweeps: Sweeps, lane: str, points: int, vector: int, size: int, most: int, machine: Machine
) -> FoldPlan | None:
    """The plan whose blocks hold the points of a row in shared memory: as few blocks of a row as let a multiprocessor have
    several. size: bytes of a point. most: blocks of a row.
    """
    plan = None
    for cluster in (1 << k for k in range(most.bit_length())):
        runs = -(-points // (cluster * BLOCK * vector)) * BLOCK
        blocks = machine.shared // (runs * vector * size + OTHER_SHARED)
        if blocks < FEWEST_INSIDE:
            continue
        threads = BLOCK if blocks >= MANY_INSIDE else 2 * BLOCK
        chunks, across = -(-runs // threads), tuple((threads,) * len(stage) for stage in sweeps.stages)
        side = min(blocks, MANY_THREADS // threads)
        plan = FoldPlan(sweeps.rows, lane, across, threads, vector=vector, chunks=chunks, cluster=cluster, inside=side)
        if blocks >= MANY_INSIDE:
            break
    return plan


def part_bytes(plan: FoldPlan, size: int) -> int:
    """Bytes of what a block has in shared memory of a row of elements of this size, which may begin between packets."""
    return plan.holds // plan.cluster * size + (PACKET_BYTES if plan.vector == 1 else 0)


def row_bytes(function: Function, plan: FoldPlan, reads: Iterable[Read]) -> int:
    """Bytes of a row in shared memory."""
    return plan.holds * sum(function.array(v.array).dtype.size for v in reads)


def same_reads(sweeps: Sweeps, plan: FoldPlan) -> tuple[Read, ...]:
    """What blocks that stay keep in shared memory beside rows: along the points of a row, and the same for every row."""
    stored = {w.array for w in sweeps.writes}
    reads = [v for v in sweeps.values if isinstance(v, Read) and v.axes == (plan.lane,) and v.array not in stored]
    return tuple(v for v in reads if plan.stages and v.index == (Ref(plan.lane, INT64),))


def _in_bulk(function: Function, sweeps: Sweeps, facts: Facts, lane: str) -> bool:
    """Whether there are rows of their own that are held, each one bulk copy in whole packets."""
    reads = held_reads(sweeps, lane)
    if not reads:
        return False
    sizes = [function.array(v.array).dtype.size for v in reads]
    packets = all(facts.vector(v.array) * n % PACKET_BYTES == 0 for v, n in zip(reads, sizes, strict=True))
    whole = whole_runs(function, reads, sweeps.axes[lane], facts, max(1, PACKET_BYTES // min(sizes)))
    return _run_by_run(sweeps, facts, lane) and packets and whole


def _run_by_run(sweeps: Sweeps, facts: Facts, lane: str) -> bool:
    """Whether a row of each read that is held is side by side in memory, with as many points for all rows."""
    reads, axis = held_reads(sweeps, lane), sweeps.axes[lane]
    made = {*sweeps.rows, *(n for v in sweeps.values for n in names_of(v))}
    if (free_names(axis.start) | free_names(axis.stop)) & made or axis.start != ZERO:
        return False
    return all(is_run(v.array, v.index, lane, facts) for v in reads)


def plan_columns(
    function: Function,
    sweeps: Sweeps,
    columns: Columns,
    facts: Facts,
    names: Mapping[str, int],
    machine: Machine,
    arrays: Mapping[str, Geometry],
) -> tuple[FoldPlan, Extents] | None:
    """The plan of rows that are held, whose threads also fold their points of each column; None where that does not pay."""
    folds, extents = columns.folds, extents_of(sweeps.axes, names)
    counted = any(free_names(e) & {*sweeps.rows} for f in folds for e in f.parts)
    pairs = () if counted else pairs_in_memory(function, columns.beside(sweeps), arrays, extents, rows=True)
    sweeps = merged(sweeps, pairs)
    extents = extents_of(sweeps.axes, names)
    ((lane,),) = {s.over for stage in sweeps.stages for s in stage}
    reads, rows = held_reads(sweeps, lane), math.prod(extents[a] for a in sweeps.rows)
    size = sum(function.array(v.array).dtype.size for v in reads)
    plan = _held(function, sweeps, facts, lane, extents, machine, (COLUMN_POINTS,))
    if plan is None or plan.cluster > 1:
        return None
    points, threads, alike = plan.chunks * plan.vector, plan.threads * plan.teams, same_reads(sweeps, replace(plan, stages=1))
    same = row_bytes(function, plan, alike)
    summed = points * sum(f.types[0].size for f in folds) // 4
    for bulk in (True, False) if machine.bulk and plan.teams == 1 and _in_bulk(function, sweeps, facts, lane) else (False,):
        held = points * size // 4 if bulk else points * size // 2 + same * points // (4 * plan.holds)  # and the next row
        blocks = REGISTERS // (threads * (held + summed + COLUMN_REGISTERS))
        if bulk:
            ring = STAGES * row_bytes(function, plan, reads)
            blocks = min(blocks, max(1, round(ON_THE_WAY / ring)), machine.shared // (ring + same + OTHER_SHARED))
        parts = machine.multiprocessors * blocks
        if blocks and rows >= FEWEST_TURNS * parts * plan.teams:
            unpacked = held + summed + points * len(reads) + points * len(alike) // 2 + UNPACKED_REGISTERS
            whole = 0
            given = REGISTERS // (-(-threads * blocks // QUARTERS) * QUARTERS)
            if plan.chunks > 1 and unpacked <= given and sweeps.axes[lane].start == ZERO:
                whole = extents[lane] // (plan.threads * plan.vector)
            plan = replace(plan, resident=blocks, stages=STAGES if bulk else 0, columns=True, whole=whole, merged=pairs)
            return plan, Extents(rows, parts, parts)
    return None


def plan_parts(below: FoldPlan, across: Extents, machine: Machine) -> tuple[FoldPlan, Extents]:
    """The plan that combines what blocks have left of each column, in float32 or wider: few columns a block, since there are
    not many, and many threads below one another.
    """
    vector, side = min(below.vector, PARTS_VECTOR), PARTS_SIDE
    while side > PARTS_SECTOR and 2 * across.rows < side * vector * machine.multiprocessors:
        side //= 2
    plan = replace(below, shared=True, left=True, vector=vector, across=tuple((side,) * len(a) for a in below.across))
    return plan, replace(across, blocks=-(-across.rows // (side * vector)))


def _team(points: int, vector: int, size: int, held: int) -> int:
    """How many threads a row of so many points has, of elements of this size: few points for each, but side by side."""
    points = power_of_two(points)
    return max(1, min(points // vector, max(points // held, SIDE_BYTES // (vector * size))))


def _fewest(threads: int, wanted: int) -> int:
    """How many of so many threads do, in whole warps and eighths of the threads: rows of many lengths have a kernel."""
    unit = max(WARP, threads // 8)
    return threads if threads <= WARP else -(-wanted // unit) * unit


def whole_runs(function: Function, reads: Iterable[Read], lane: Axis, facts: Facts, vector: int) -> bool:
    """Whether the points of the lane are whole runs, since they are so many, or an array that is known to have whole ones is as
    long.
    """
    if isinstance(lane.stop, Const) and lane.start == ZERO:
        return lane.stop.value % vector == 0
    return any(
        is_run(v.array, v.index, lane.name, facts)
        and facts.vector(v.array) >= vector
        and function.array(v.array).shape[axis_along(v.index, lane.name)] in (lane.stop, *_factors(lane.stop))
        for v in reads
    )


def _side(runs: int, threads: int) -> int:
    """How many threads lie side by side along a line of so many runs, one line below the other: as many as leave the fewest
    idle, a warp's if there are so many runs.
    """
    least = min(threads, WARP, power_of_two(runs))
    sides = [s for k in range(threads.bit_length()) if least <= (s := 1 << k) <= threads]
    return min(sides, key=lambda s: (-(-runs // s) * s, -s))


def _long_side(side: int, threads: int, parts: int, sweep: Sweep, lane: str, extents: Mapping[str, int]) -> int:
    """How many threads lie side by side where blocks share lines: more, where lines are fewer than those below one another."""
    lines = math.prod(extents[a] for a in sweep.over if a != lane_of(lane, sweep))
    while len(sweep.over) > 1 and side < threads and parts * (threads // side) > lines:
        side *= 2
    return side


def _factors(stop: Expr) -> tuple[Expr, ...]:
    """The numbers of points of two axes that are counted as one."""
    return stop.args if isinstance(stop, Op) and stop.name == "mul" else ()


@dataclass(frozen=True)
class Step:
    """A launch of a plan: the stages that it goes through, whether it ends the rows, whether blocks share them, whether it
    is one after that of rows, of the longer ones.
    """

    stages: tuple[int, ...]
    ends: bool
    shared: bool
    longer: Literal["", "share", "join"] = ""


def steps(sweeps: Sweeps, plan: FoldPlan) -> tuple[Step, ...]:
    """The launches of a plan, in order."""
    sweeps = plan.arranged(sweeps)
    if plan.left:
        return (Step((), True, False),)
    if not plan.shared:
        whole = Step(tuple(range(len(sweeps.stages))), True, False)
        if not plan.shares:
            return (whole,)
        return whole, replace(whole, longer="share"), Step((), True, False, "join")
    *before, final = [Step((k,), False, True) for k in range(len(sweeps.stages))]
    if not sweeps.apart and not any(s.folds for s in sweeps.stages[-1]):
        return (*before, Step(final.stages, True, True))
    return (*before, final, *((Step((), True, False),) if sweeps.last else ()))


def part_memory(fold: Fold) -> tuple[ScalarType, int]:
    """What keeps a part of a fold: of an extremum with what goes with it, as many words as that can be."""
    return (fold.types[0], 1) if fold.algebra in ALGEBRAS else (INT32, 6 + 4 * len(fold.types))


def share_memory(function: Function, sweeps: Sweeps, plan: FoldPlan, extents: Extents) -> list[tuple[str, ScalarType, int]]:
    """What blocks that share longer rows tell each other: two parts of each fold, for the neighbouring rows of a lane; the rows
    that are found, the points before each, and how many of both; the row that a share begins and does not end, and how many
    shares it goes on in.
    """
    wide = plan.vector * plan.across[0][0] * (extents.longer // plan.shares) if plan.beside else 1
    found = [(f.results[0], f.types[0], 2 * plan.shares * wide) for f in sweeps.folds]
    blocks, pieces = 2 * extents.parts, 2 * plan.shares
    listed = [("listed.rows", INT64, plan.looked * extents.parts), ("listed.before", INT64, plan.looked * extents.parts)]
    return [*found, *listed, ("listed.found", INT64, blocks), ("pieces", INT64, pieces)]


def lane_of(lane: str, sweep: Sweep) -> str:
    """The axis of a sweep along which neighbouring threads lie."""
    return lane if lane in sweep.over and not sweep.bounded else sweep.over[-1]


def _vector(function: Function, sweeps: Sweeps, facts: Facts, lane: str) -> int:
    """How many neighbouring points of the lane every array that is read or written along it has in whole packets."""
    most = MOST_ELEMENTS
    along: list[str] = []
    for stage in sweeps.stages:
        for sweep in stage:
            axis = lane_of(lane, sweep)
            if sweeps.axes[axis].start != Const(0, INT64) or any(w.guard is not None for w in sweep.writes):
                return 1
            for array, index, axes in _accesses(sweeps):
                if axis not in axes or not any(axis in free_names(i) for i in index):
                    continue
                if not is_run(array, index, axis, facts):
                    return 1
                along.append(array)
    if not along:
        return 1
    for array in along:
        most = min(most, max(facts.vector(array), 1))
    widest = max(PACKET_BYTES // function.array(a).dtype.size for a in along)
    return min(most, widest)


def _vector_of_rows(function: Function, sweeps: Sweeps, facts: Facts, lane: str) -> int:
    """How many neighbouring rows all that sweeps read and write has in whole packets, which the rows are a multiple of."""
    swept = [
        (v.array, v.index)
        for v in sweeps.values
        if isinstance(v, Read) and lane in v.axes and any(a not in sweeps.rows for a in v.axes)
    ]
    swept += [(x.array, x.index) for f in sweeps.folds for x in loaded_anyway(f) if any(lane in free_names(i) for i in x.index)]
    if any(f.algebra not in ALGEBRAS for f in sweeps.folds):
        return 1
    differs = {lane, *(name for v in sweeps.values if lane in v.axes for name in names_of(v))}
    if any((free_names(a.start) | free_names(a.stop)) & differs for a in sweeps.axes.values()):
        return 1  # each row of a packet would have points of its own
    writes = [w for t in sweeps.stages for s in t for w in s.writes]
    if not swept or sweeps.axes[lane].start != Const(0, INT64) or not all(stored_in_packets(w, lane, facts) for w in writes):
        return 1
    swept += [(w.array, w.index) for w in writes]
    if not all(is_run(array, index, lane, facts) for array, index in swept):
        return 1
    if not any(function.array(a).shape[axis_along(i, lane)] == sweeps.axes[lane].stop for a, i in swept):
        return 1
    widest = max(PACKET_BYTES // function.array(a).dtype.size for a, _ in swept)
    return min(MOST_ELEMENTS, widest, *(facts.vector(a) for a, _ in swept))


def loaded_anyway(fold: Fold) -> list[Load]:
    """What each point of a fold loads, whatever it is, written out in it."""

    def loads(e: Expr) -> Iterable[Load]:
        below: Iterable[Expr] = operands(e)
        if isinstance(e, Op) and e.name in ("where", "and", "or"):
            below = e.args[:1]
        if isinstance(e, Load):
            yield e
        for o in below:
            yield from loads(o)

    return [x for e in fold.parts for x in loads(e)]


def axis_along(index: tuple[Expr, ...], axis: str) -> int:
    """The axis of an array whose subscript has an axis of a graph."""
    return next(k for k, i in enumerate(index) if axis in free_names(i))


def is_run(array: str, index: tuple[Expr, ...], axis: str, facts: Facts) -> bool:
    """Whether neighbouring points of an axis are neighbours in memory, from the array's start on."""
    along = [k for k, i in enumerate(index) if axis in free_names(i)]
    return len(along) == 1 and (array, along[0]) in facts.unit and index[along[0]] == Ref(axis, INT64)


def stored_in_packets(write: Write, axis: str, facts: Facts) -> bool:
    """Whether neighbouring points of an axis are stored together: at all of them, and where nothing has to be looked at."""
    return write.guard is None and not write.checked and is_run(write.array, write.index, axis, facts)


def power_of_two(n: int) -> int:
    """The least power of two that is no less."""
    return 1 << (max(1, n) - 1).bit_length()


def _told(lane: Axis, axes: Mapping[str, Axis], names: Collection[str]) -> bool:
    """Whether sizes and integers decide how many points an axis has, at most."""
    bounds = free_names(lane.start) | free_names(lane.stop)
    return all(n in names or (n in axes and _told(axes[n], axes, names)) for n in bounds)


def _windows(sweeps: Sweeps, lane: str) -> bool:
    """Whether neighbouring rows read the same points along a lane, as those of a convolution do."""
    rows = set(sweeps.rows)
    return any(lane in free_names(i) and free_names(i) & rows for _, index, _ in _accesses(sweeps) for i in index)


def rows_alike(sweeps: Sweeps, rows: tuple[str, ...]) -> tuple[str, ...]:
    """The fastest axes of rows on which it does not depend what points these have."""
    deciding = _deciding(sweeps)
    free = itertools.takewhile(lambda a: a not in deciding, reversed(rows))
    return tuple(reversed([*free]))


def _deciding(sweeps: Sweeps) -> set[str]:
    """The axes that decide what points there are."""
    over = [sweeps.axes[a] for s in sweeps.stages[0] for a in s.over]
    bounds = {n for a in over for e in (a.start, a.stop) for n in free_names(e)}
    return bounds | {a for v in sweeps.values if bounds & {*names_of(v)} for a in v.axes}


def _lines_of_points(sweeps: Sweeps, facts: Facts, lane: str, row: str) -> bool:
    """Whether points have lines of memory, of which neighbouring rows, along this axis, read neighbours."""
    moving = {lane} | {n for v in sweeps.values if lane in getattr(v, "axes", ()) for n in names_of(v)}
    return any(
        row in neighbours(array, index, facts) and any(free_names(i) & moving for i in index)
        for array, index, _ in _accesses(sweeps)
    )


def _in_common(sweeps: Sweeps, lane: str, row: str) -> bool:
    """Whether neighbouring rows, along this axis, read the same at all points: those of a warp read it once."""
    read = [axes | {n for i in index for n in free_names(i)} for _, index, axes in _accesses(sweeps)]
    return all(row not in axes for axes in read if lane in axes)


def _lane(sweeps: Sweeps, facts: Facts, extents: Mapping[str, int], deciding: Mapping[str, Collection[str]]) -> str:
    """The axis along which most of what is loaded and stored lies side by side, for as many threads as a warp has. deciding: of
    axes, those that tell which points they have.
    """
    votes = dict.fromkeys(extents, 0)
    for array, index, axes in dict.fromkeys(_accesses(sweeps)):
        points = math.prod(extents[x] for x in axes.union(*(deciding.get(a, ()) for a in axes)))
        for a in neighbours(array, index, facts):
            if a in axes:
                votes[a] += points * min(extents[a], WARP)
    best = max(votes, key=lambda a: (votes[a], a not in sweeps.rows))
    return best if votes[best] else sweeps.stages[0][0].over[-1]


def _accesses(sweeps: Sweeps) -> list[tuple[str, tuple[Expr, ...], frozenset[str]]]:
    """Arrays, subscripts, and the axes of the points at which they are loaded or stored."""
    found = [(v.array, v.index, frozenset(v.axes)) for v in sweeps.values if isinstance(v, Read)]
    for stage in sweeps.stages:
        for sweep in stage:
            axes = frozenset((*sweeps.rows, *sweep.over))
            exprs = [e for f in sweep.folds for e in f.parts]
            for w in sweep.writes:
                found.append((w.array, w.index, axes))
                exprs += [w.value, *w.index, *(() if w.guard is None else (w.guard,))]
            found += [(x.array, x.index, axes) for e in exprs for x in walk_expr(e) if isinstance(x, Load)]
    return found
