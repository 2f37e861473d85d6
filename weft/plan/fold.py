"""The plan of sweeps: how many threads fold a row, along which axis they lie, and whether blocks share it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.graph.sweeps import Sweep, Sweeps
from weft.graph.tile import Axis, Fold, Read, names_of
from weft.loops.affine import affine
from weft.loops.algebra.table import ALGEBRAS
from weft.loops.ir import Const, Expr, Function, Load, Ref, free_names, walk_expr
from weft.loops.types import INT32, INT64, ScalarType
from weft.plan.arguments import Facts
from weft.plan.extents import extents_of

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
# Points that a thread holds; registers of a multiprocessor, and of a thread besides the points that it holds.
HELD_POINTS, REGISTERS, OTHER_REGISTERS = 16, 1 << 16, 32
_MOST_PARTS = (1 << 16) - 1
ZERO = Const(0, INT64)


@dataclass(frozen=True)
class FoldPlan:
    """lane: the axis along which neighbouring threads lie: the fastest of the rows, where it is one of them, or one that a
    sweep goes through; where a sweep lacks it, its own fastest. rows: from the slowest to the fastest. threads: of a row;
    `across` of them side by side, along the lane, in each sweep, or for rows side by side. teams: rows of a block that have
    their threads for themselves. shared: blocks share the points of a row, so every stage is a launch. vector: neighbouring
    points of the lane that a thread takes at a time, or rows that it has: what sweeps move along it moves in packets. running:
    sums are kept relative to the extrema that threads have so far. chunks: a thread holds its points of a row, so many
    times a vector of neighbours; 0: it does not. exact: a row has just as many points as its threads hold.
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
    exact: bool = False

    def arranged(self, sweeps: Sweeps) -> Sweeps:
        """The sweeps as this plan goes through them."""
        return sweeps.running if self.running and sweeps.running is not None else sweeps

    @property
    def layout(self) -> Layout:
        """(thread, (vector, chunk)) -> point of a row that is held: the runs of the threads lie side by side."""
        from weft.layout import Layout

        vector = self.vector
        return Layout((self.threads, (vector, self.chunks)), (vector, (1, vector * self.threads)))

    @property
    def beside(self) -> bool:
        """Whether neighbouring threads have rows of their own."""
        return self.lane in self.rows


@dataclass(frozen=True)
class Extents:
    """How a plan meets a call: rows, blocks of them, blocks that share each."""

    rows: int
    blocks: int
    parts: int


def plan_folds(
    function: Function, sweeps: Sweeps, facts: Facts, names: Mapping[str, int]
) -> tuple[FoldPlan, Extents] | None:
    """The plan for a call; None where a thread for each row does as well. names: the values of sizes and integers."""
    extents = extents_of(sweeps.axes, names)
    rows = math.prod(extents[a] for a in sweeps.rows)
    points = max(math.prod(extents[a] for a in s.over) for stage in sweeps.stages for s in stage)
    bounded = [s.over[-1] for stage in sweeps.stages for s in stage if s.bounded]
    lane = bounded[0] if bounded else _lane(sweeps, facts, extents)
    held = _held(function, sweeps, facts, lane, extents) if _told(sweeps.axes[lane], sweeps.axes, names) else None
    running = sweeps.running is not None and lane not in sweeps.rows
    if sweeps.running is not None and running:
        sweeps = sweeps.running
    order = tuple(a for a in sweeps.rows if a != lane) + ((lane,) if lane in sweeps.rows else ())
    if points < (FEW_POINTS if lane in sweeps.rows else FEWEST_POINTS):
        return None
    wide = 1  # neighbouring rows of a block
    if lane in sweeps.rows:
        if rows >= MANY_ROWS:
            return None
        vector = _vector_of_rows(function, sweeps, facts, lane)
        sizes = [function.array(a).dtype.size for a, i, _ in _accesses(sweeps) if any(lane in free_names(e) for e in i)]
        line = LINE_BYTES if vector > 1 else LINE_BYTES // 2
        side = min(power_of_two(-(-extents[lane] // vector)), max(1, line // (min(sizes, default=4) * vector)))
        across: tuple[tuple[int, ...], ...] = tuple((side,) * len(stage) for stage in sweeps.stages)
        wide = side * vector
        blocks = -(-extents[lane] // wide) * (rows // max(1, extents[lane]))
        threads, teams = BLOCK, 1
    else:
        vector = _vector(function, sweeps, facts, lane)
        threads = BLOCK
        if rows >= MANY_BLOCKS and points <= MANY_POINTS:
            sizes = [function.array(v.array).dtype.size for v in sweeps.values if isinstance(v, Read) and lane in v.axes]
            threads = min(32, _team(points, vector, min(sizes, default=4)))
        teams = BLOCK // threads
        sides = [
            [power_of_two(-(-extents[lane_of(lane, s)] // vector)) if len(s.over) > 1 else threads for s in stage]
            for stage in sweeps.stages
        ]
        across = tuple(tuple(min(threads, s) for s in stage) for stage in sides)
        blocks = -(-rows // teams)
    parts = 1
    most = MANY_BESIDE if lane in sweeps.rows and vector > 1 else MANY_BLOCKS  # more would wait for the first to end
    if 0 < blocks <= FEW_BLOCKS:
        parts = max(1, min(most // blocks, points * wide // POINTS_OF_A_PART, _MOST_PARTS))
    if held is not None and parts == 1:
        return held, Extents(rows, -(-rows // held.teams), 1)
    plan = FoldPlan(order, lane, across, threads, teams, parts > 1, vector, running)
    return plan, Extents(rows, blocks, parts)


def held_reads(sweeps: Sweeps, lane: str) -> tuple[Read, ...]:
    """What of a row can be read before any of it is computed: along its points, and another row for each."""
    made = {n for v in sweeps.values for n in names_of(v)}
    reads = [v for v in sweeps.values if isinstance(v, Read) and lane in v.axes and (not sweeps.rows or len(v.axes) > 1)]
    return tuple(v for v in reads if not any(free_names(i) & made for i in v.index))


def _held(
    function: Function, sweeps: Sweeps, facts: Facts, lane: str, extents: Mapping[str, int]
) -> FoldPlan | None:
    """The plan whose threads hold the points of a row, if that saves reading them again and they fit."""
    every = [s for stage in sweeps.stages for s in stage]
    reads = held_reads(sweeps, lane)
    if sweeps.read_once or not reads or any(s.over != (lane,) for s in every) or extents[lane] < FEWEST_POINTS:
        return None
    columns = power_of_two(extents[lane])
    vector = min(_vector(function, sweeps, facts, lane), columns)
    if not whole_runs(function, reads, sweeps.axes[lane], facts, vector):
        vector = 1
    threads = min(1024, _team(columns, vector, min(function.array(v.array).dtype.size for v in reads)))
    chunks = columns // (threads * vector)
    # a row's own points, those of the next one, which are fetched meanwhile, and what else a thread needs
    if chunks * vector * (len(reads) + 1) + OTHER_REGISTERS > REGISTERS // threads:
        return None
    across = tuple((threads,) * len(stage) for stage in sweeps.stages)
    teams = SMALL_BLOCK // threads if sweeps.rows and threads <= 32 else 1
    exact = chunks > 1 and extents[lane] == columns and sweeps.axes[lane].start == ZERO
    return FoldPlan(sweeps.rows, lane, across, threads, teams, vector=vector, chunks=chunks, exact=exact)


def _team(points: int, vector: int, size: int) -> int:
    """How many threads a row of so many points has, of elements of this size: few points for each, but side by side."""
    points = power_of_two(points)
    return max(1, min(points // vector, max(points // HELD_POINTS, SIDE_BYTES // (vector * size))))


def whole_runs(function: Function, reads: Iterable[Read], lane: Axis, facts: Facts, vector: int) -> bool:
    """Whether the points of the lane are whole runs, since an array that is known to have whole ones is as long."""
    return any(
        is_run(v.array, v.index, lane.name, facts)
        and facts.vector(v.array) >= vector
        and function.array(v.array).shape[axis_along(v.index, lane.name)] == lane.stop
        for v in reads
    )


@dataclass(frozen=True)
class Step:
    """A launch of a plan: the stages that it goes through, whether it ends the rows, whether blocks share them."""

    stages: tuple[int, ...]
    ends: bool
    shared: bool


def steps(sweeps: Sweeps, plan: FoldPlan) -> tuple[Step, ...]:
    """The launches of a plan, in order."""
    sweeps = plan.arranged(sweeps)
    if not plan.shared:
        return (Step(tuple(range(len(sweeps.stages))), True, False),)
    *before, final = [Step((k,), False, True) for k in range(len(sweeps.stages))]
    if not sweeps.apart and not any(s.folds for s in sweeps.stages[-1]):
        return (*before, Step(final.stages, True, True))
    return (*before, final, *((Step((), True, False),) if sweeps.last else ()))


def part_memory(fold: Fold) -> tuple[ScalarType, int]:
    """What keeps a part of a fold: of an extremum with what goes with it, as many words as that can be."""
    return (fold.types[0], 1) if fold.algebra in ALGEBRAS else (INT32, 6 + 4 * len(fold.types))


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
    """How many neighbouring rows all that sweeps read has in whole packets, which the rows are a multiple of."""
    swept = [
        (v.array, v.index)
        for v in sweeps.values
        if isinstance(v, Read) and lane in v.axes and any(a not in sweeps.rows for a in v.axes)
    ]
    if any(f.algebra not in ALGEBRAS for f in sweeps.folds):
        return 1
    if not swept or sweeps.axes[lane].start != Const(0, INT64) or any(s.writes for t in sweeps.stages for s in t):
        return 1
    if not all(is_run(array, index, lane, facts) for array, index in swept):
        return 1
    if not any(function.array(a).shape[axis_along(i, lane)] == sweeps.axes[lane].stop for a, i in swept):
        return 1
    widest = max(PACKET_BYTES // function.array(a).dtype.size for a, _ in swept)
    if widest <= PACKET_BYTES // 4:
        return 1  # neighbouring threads fill a line of memory by themselves, and more of them are in flight: measured
    return min(MOST_ELEMENTS, widest, *(facts.vector(a) for a, _ in swept))


def axis_along(index: tuple[Expr, ...], axis: str) -> int:
    """The axis of an array whose subscript has an axis of a graph."""
    return next(k for k, i in enumerate(index) if axis in free_names(i))


def is_run(array: str, index: tuple[Expr, ...], axis: str, facts: Facts) -> bool:
    """Whether neighbouring points of an axis are neighbours in memory, from the array's start on."""
    along = [k for k, i in enumerate(index) if axis in free_names(i)]
    return len(along) == 1 and (array, along[0]) in facts.unit and index[along[0]] == Ref(axis, INT64)


def power_of_two(n: int) -> int:
    """The least power of two that is no less."""
    return 1 << (max(1, n) - 1).bit_length()


def _told(lane: Axis, axes: Mapping[str, Axis], names: Collection[str]) -> bool:
    """Whether sizes and integers decide how many points an axis has, at most."""
    bounds = free_names(lane.start) | free_names(lane.stop)
    return all(n in names or (n in axes and _told(axes[n], axes, names)) for n in bounds)


def _lane(sweeps: Sweeps, facts: Facts, extents: Mapping[str, int]) -> str:
    """The axis along which most of what is loaded and stored lies side by side."""
    votes = dict.fromkeys(extents, 0)
    for array, index, axes in _accesses(sweeps):
        for k, i in enumerate(index):
            form = affine(i)
            if (array, k) in facts.unit and form is not None:
                for a in axes & form.names:
                    if abs(form.coefficient(a)) == 1:
                        votes[a] += math.prod(extents[x] for x in axes)
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
