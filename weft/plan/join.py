"""The plan of joins: which axis neighbouring threads lie along, which arrays blocks join to in shared memory first, how
points are sorted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from weft.graph.joins import Joins, Ordered, Points
from weft.graph.tile import LAST, Read, Write
from weft.loops.ir import Const, Expr, Function, Load, Ref, walk_expr
from weft.loops.types import BOOL, FLOAT32, INT32, INT64, ScalarType
from weft.plan.arguments import Facts
from weft.plan.extents import extents_of
from weft.plan.facts import Geometry
from weft.plan.fold import MOST_ELEMENTS, PACKET_BYTES, axis_along, is_run
from weft.plan.latest import LastPlan, elements_of, finds, plan_store
from weft.plan.neighbours import neighbours

# Threads of a block, and blocks that a GPU has at a time.
BLOCK, MANY_BLOCKS = 256, 1056
# Bytes of shared memory for elements of a block's own; those up to which each warp has a copy, so that fewer threads meet.
SHARED_BYTES, COPIED_BYTES = 48 * 1024, 16 * 1024
# Points of a block for each element of its own, that the joins of these to memory are few.
POINTS_OF_AN_ELEMENT = 4
# Points that each thread of a block sorts: as few as leave few blocks.
ROUNDS = (4, 8, 16)
# Neighbours in the order of keys that a thread joins, the most and, of points, the fewest: as few as take no more rounds, while
# a GPU has so many threads at a time.
CHUNK, FEWEST_NEIGHBOURS, MANY_THREADS = 64, 8, 1 << 18
# Runs of a warp's threads of neighbours in the order of keys, at the most; lanes of each that a thread has. Lanes from which on
# neighbouring threads have these rather than neighbours in the order of keys, where they lie side by side.
RUNS_ABREAST, LANES_ABREAST, LANES_BESIDE = 8, 4, 16
# Points from which on sorting is worth its launches.
FEW_POINTS = 32
# Warps of a block that have few elements of their own; such blocks; points of each at the least, and for each element.
BIN_WARPS, BIN_BLOCKS, POINTS_OF_A_BLOCK, POINTS_OF_A_BIN, WARP = (8, 4, 2), 528, 2048, 8, 32
# Rows that keep a GPU busy, a warp or a thread each; elements of a row for each of its points, at the most; points that a
# thread joins one after another, at the most. Threads of a block of rows.
MANY_WARPS, ELEMENTS_OF_A_POINT, MOST_IN_ORDER, ROW_THREADS = 1024, 16, 1024, (128, 64, 32)
# Blocks that sort, up to which each adds up what the others count.
FEW_TILES = 64


@dataclass(frozen=True)
class Own:
    """The elements of an array that a block has in shared memory: of a number up to `elements`, a power of two; in `copies`."""

    array: str
    elements: int
    copies: int
    type: ScalarType


@dataclass(frozen=True)
class PointsPlan:
    """order: the axes that the grid goes through, the last along the lane. vector: neighbours of a thread, whose elements move
    in packets. own: what is joined in shared memory first.
    """

    order: tuple[str, ...]
    vector: int
    own: tuple[Own, ...]


@dataclass(frozen=True)
class SortPlan:
    """Points put in the order of their keys, and then joined by threads that each have some neighbours in it. lanes: the last
    is the one along which neighbouring threads lie. digits: of keys, by each of which they are sorted. chunks: how many
    neighbours a thread has, of points and then of what neighbours leave to those of other threads, which is joined again.
    few: blocks that sort are so few that each adds up what the others count. rounds: points that each of their threads sorts.
    abreast: where neighbouring threads have neighbours in the order of keys instead, of how many lanes a thread has each; the
    chunks are a warp's then. 0: they do not.
    """

    lanes: tuple[str, ...]
    digits: int
    chunks: tuple[int, ...]
    few: bool
    rounds: int
    abreast: int = 0


@dataclass(frozen=True)
class BinsPlan:
    """Points of few elements: each warp has `elements`, a power of two, of its own in shared memory, to which it joins
    neighbouring points in their order. What warps and blocks have is combined in the end. digits: 0: nothing is sorted.
    """

    elements: int
    warps: int
    digits: int = 0


@dataclass(frozen=True)
class RowsPlan:
    """Points whose elements are in their own row: a warp, or a thread for each lane, has `elements`, a power of two, of a row
    in shared memory, to which it joins the points of the row in their order. threads: of a block. lanes: as of `SortPlan`.
    """

    elements: int
    threads: int
    lanes: tuple[str, ...]
    digits: int = 0


@dataclass(frozen=True)
class JoinPlan:
    """What is done for each group of points, one after another."""

    groups: tuple[PointsPlan | SortPlan | BinsPlan | RowsPlan | LastPlan, ...]


@dataclass(frozen=True)
class JoinStep:
    """A launch of a plan. group: whose; number: which of its kind."""

    group: int
    kind: Literal["points", "keys", "count", "place", "move", "sum", "last", "store", "bins", "total", "rows"]
    number: int = 0


@dataclass(frozen=True)
class Meeting:
    """How a step meets a call: its grid and block; what it goes through; (name, type, elements) of the memory that it uses of
    what the steps share.
    """

    grid: tuple[int, int, int]
    count: int
    memory: tuple[tuple[str, ScalarType, int], ...] = ()
    block: tuple[int, int, int] = (BLOCK, 1, 1)


def join_steps(plan: JoinPlan) -> tuple[JoinStep, ...]:
    """The launches of a plan, in order."""
    steps: list[JoinStep] = []
    for k, group in enumerate(plan.groups):
        if isinstance(group, PointsPlan):
            steps.append(JoinStep(k, "points"))
            continue
        if isinstance(group, BinsPlan):
            steps += [JoinStep(k, "bins"), JoinStep(k, "total")]
            continue
        if isinstance(group, RowsPlan):
            steps.append(JoinStep(k, "rows"))
            continue
        steps.append(JoinStep(k, "keys"))
        kinds: tuple[Literal["count", "place", "move"], ...] = ("count", "move") if group.few else ("count", "place", "move")
        every = [JoinStep(k, kind, d) for d in range(group.digits) for kind in kinds]
        steps += every[1:]  # the first digits are counted where keys are made
        if isinstance(group, LastPlan):
            steps += [JoinStep(k, "last"), JoinStep(k, "store")]
        else:
            steps += [JoinStep(k, "sum", level) for level in range(len(group.chunks))]
    return tuple(steps)


def dependent_steps(plan: JoinPlan) -> tuple[bool, ...]:
    """Of each step whether it may begin before the one before it has ended: those of a sort, which are short."""
    steps = join_steps(plan)
    return tuple(k > 0 and step.kind not in ("points", "store", "bins", "rows") for k, step in enumerate(steps))


def memory_of(step: JoinStep, plan: JoinPlan) -> tuple[str, ...]:
    """The names of the memory that a step uses of what the steps share."""
    group, g, k = plan.groups[step.group], step.group, step.number
    if isinstance(group, PointsPlan | RowsPlan):
        return ()
    if isinstance(group, BinsPlan):
        return (f"bins_{g}",)
    before, after = (tuple(f"{what}_{g}_{n % 2}" for what in ("keys", "points")) for n in (k, k + 1))
    match step.kind:
        case "keys" | "last" | "store" if isinstance(group, LastPlan) and not group.digits:
            return f"keys_{g}_0", f"last_{g}"
        case "keys":
            return before[0], f"counts_{g}"
        case "last":
            return f"keys_{g}_{group.digits % 2}", f"points_{g}_{group.digits % 2}", f"last_{g}"
        case "store":
            return (f"last_{g}",)
        case "count":
            return before[0], f"counts_{g}"
        case "place":
            return f"counts_{g}", f"totals_{g}"
        case "move":
            return *before[: 2 if k else 1], f"counts_{g}", *(() if group.few else (f"totals_{g}",)), *after
    assert isinstance(group, SortPlan)
    sources = [(f"keys_{g}_{group.digits % 2}", f"points_{g}_{group.digits % 2}")]
    sources += [(f"left_{g}_{level}", f"sums_{g}_{level}") for level in range(len(group.chunks) - 1)]
    return tuple(name for pair in sources[k : k + 2] for name in pair)


def plan_joins(
    function: Function, joins: Joins, facts: Facts, arrays: Mapping[str, Geometry], names: Mapping[str, int]
) -> tuple[JoinPlan, tuple[Meeting, ...]] | None:
    """The plan for a call, and how its steps meet it; None where there are more points than can be counted, or so few that a
    thread is done with them before they are sorted. names: the values of sizes and integers.
    """
    extents = extents_of(joins.axes, names)
    plans: list[PointsPlan | SortPlan | BinsPlan | RowsPlan | LastPlan] = []
    met: list[Meeting] = []
    for g, group in enumerate(joins.groups):
        if isinstance(group, Ordered):
            found = _plan_ordered(function, joins, group, facts, arrays, names, g)
            if found is None:
                return None
            plans.append(found[0])
            met += found[1]
            continue
        inside = math.prod(extents[a] for a in group.inside)
        plan, meeting = _plan_points(function, joins, group, facts, extents)
        (every, *_), count = meeting.grid, meeting.count
        own = _own(group, function, arrays, count * inside, every)
        every = min([every, *(_blocks(o.elements, count * inside, every) for o in own)])
        plans.append(replace(plan, own=own))
        met.append(replace(meeting, grid=(every, 1, 1)))
    return JoinPlan(tuple(plans)), tuple(met)


def _plan_points(
    function: Function, joins: Joins, group: Points, facts: Facts, extents: Mapping[str, int]
) -> tuple[PointsPlan, Meeting]:
    """The plan of points that are joined to memory in any order, and how it meets a call."""
    order = _order(group, joins, facts, extents)
    vector = _vector(function, group, joins, facts, order)
    count = math.prod(extents[a] for a in order)
    return PointsPlan(order, vector, ()), Meeting((min(MANY_BLOCKS, -(-count // (BLOCK * vector))), 1, 1), count)


def _plan_ordered(
    function: Function,
    joins: Joins,
    group: Ordered,
    facts: Facts,
    arrays: Mapping[str, Geometry],
    names: Mapping[str, int],
    g: int,
) -> tuple[PointsPlan | SortPlan | BinsPlan | RowsPlan | LastPlan, list[Meeting]] | None:
    """The plan of what is joined in the order of keys, or in any if that leaves the same, and how its steps meet a call."""
    write, extents = group.write, extents_of(joins.axes, names)
    count, wide = math.prod(extents[a] for a in group.points), math.prod(extents[a] for a in group.lanes)
    elements = elements_of(group, arrays)
    if count < FEW_POINTS or max(count, elements) >= 1 << 31:
        return None
    if (rows := _plan_rows(function, group, facts, arrays, extents)) is not None:
        return rows
    if (bins := _plan_bins(function, group, elements, count, g)) is not None:
        return bins
    if group.alike:
        unordered = _plan_points(function, joins, group.unordered(), facts, extents)
        return unordered[0], [unordered[1]]
    rounds = next((r for r in ROUNDS if -(-count // (BLOCK * r)) <= FEW_TILES), ROUNDS[-1])
    tiles = -(-count // (BLOCK * rounds))
    highest = elements - 1 if write.guard is None else elements  # under a guard there is a key for points that join nothing
    digits, few = max(1, -(-highest.bit_length() // 8)), tiles <= FEW_TILES
    counts, grid = [count], (0, 1, 1)
    plan: SortPlan | LastPlan
    if write.join == LAST:
        found = finds(elements, count)
        course, grid = plan_store(function, joins, group, arrays, names, found)
        plan = LastPlan(0 if found else digits, few, rounds, course)
    else:
        lanes = _lanes(group, facts)
        abreast = 0 if _beside(group, lanes, facts, extents) else min(LANES_ABREAST, 1 << max(wide, 1).bit_length() - 1)
        most, fewest = (WARP * RUNS_ABREAST, WARP) if abreast else (CHUNK, FEWEST_NEIGHBOURS)
        first, threads = most, WARP * -(-wide // abreast) if abreast else wide
        while first > fewest and len(_levels(count, first // 2, most)) == len(_levels(count, first, most)):
            if -(-2 * count // first) * threads > MANY_THREADS:
                break
            first //= 2
        counts = _levels(count, first, most)
        plan = SortPlan(lanes, digits, (first, *[most] * (len(counts) - 1)), few, rounds, abreast)
    dtype = function.array(write.array).dtype
    size: dict[str, tuple[ScalarType, int]] = {f"{what}_{g}_{k}": (INT32, count) for what in ("keys", "points") for k in (0, 1)}
    size |= {f"counts_{g}": (INT32, 256 * tiles), f"totals_{g}": (INT32, 256)}
    size |= {f"last_{g}": (INT32, count if plan.digits else elements + 1)}
    for level, n in enumerate(counts[1:]):
        size |= {f"left_{g}_{level}": (INT32, n), f"sums_{g}_{level}": (dtype, n * wide)}
    met = []
    for step in join_steps(JoinPlan((plan,))):
        n = counts[step.number] if step.kind == "sum" else tiles if step.kind == "place" else count
        chunk = plan.chunks[step.number] if isinstance(plan, SortPlan) and step.kind == "sum" else CHUNK
        threads = WARP * -(-wide // plan.abreast) if isinstance(plan, SortPlan) and plan.abreast else wide
        blocks = {
            "keys": tiles if plan.digits else min(MANY_BLOCKS, -(-count // BLOCK)),
            "place": 256,
            "sum": -(-(-(-n // chunk) * threads) // BLOCK),
            "last": -(-count // BLOCK),
        }.get(step.kind, tiles)
        used = memory_of(replace(step, group=g), JoinPlan((plan,) * (g + 1)))
        memory = tuple((name, *size[name]) for name in used)
        if step.kind == "store":
            assert isinstance(plan, LastPlan)
            met.append(Meeting(grid if count * wide else (0, 1, 1), n, memory, plan.store.block))
            continue
        met.append(Meeting((blocks if count * wide else 0, 1, 1), n, memory))
    return plan, met


def _plan_bins(function: Function, group: Ordered, elements: int, count: int, g: int) -> tuple[BinsPlan, list[Meeting]] | None:
    """The plan of what is joined in the order of few keys; None where these are too many for shared memory, or for points."""
    dtype, most = function.array(group.write.array).dtype, 1 << max(0, elements - 1).bit_length()
    warps = next((w for w in BIN_WARPS if most * dtype.size * w <= SHARED_BYTES), 0)
    if group.write.join == LAST or group.lanes or dtype.opmath != dtype or not warps or count < POINTS_OF_A_BIN * elements:
        return None
    blocks = max(1, min(BIN_BLOCKS, count // max(POINTS_OF_A_BLOCK, POINTS_OF_AN_ELEMENT * elements)))
    memory = ((f"bins_{g}", dtype, blocks * elements),)
    total = Meeting((-(-elements // WARP), 1, 1), blocks, memory)
    return BinsPlan(most, warps), [Meeting((blocks, 1, 1), count, memory, (WARP * warps, 1, 1)), total]


def _plan_rows(
    function: Function, group: Ordered, facts: Facts, arrays: Mapping[str, Geometry], extents: Mapping[str, int]
) -> tuple[RowsPlan, list[Meeting]] | None:
    """The plan of what is joined to elements of rows; None where these are few, or their elements many for shared memory."""
    own, dtype = group.of_a_row, function.array(group.write.array).dtype
    rows, wide = (math.prod(extents[a] for a in axes) for axes in (group.rows, group.lanes))
    points, elements = math.prod(extents[a] for a in own.points), elements_of(own, arrays)
    most = 1 << max(0, elements - 1).bit_length()
    if group.write.join == LAST or dtype.opmath != dtype or elements > ELEMENTS_OF_A_POINT * points:
        return None
    if group.lanes:
        threads = next((t for t in ROW_THREADS if most * dtype.size * t <= SHARED_BYTES), 0)
        if not threads or rows * wide < MANY_WARPS * WARP or points > MOST_IN_ORDER:
            return None
        items, blocks = rows * wide, -(-rows * wide // threads)
    else:
        threads = WARP * next((w for w in (*BIN_WARPS, 1) if most * dtype.size * w <= SHARED_BYTES), 0)
        if not threads or rows < MANY_WARPS:
            return None
        items, blocks = rows, -(-rows * WARP // threads)
    return RowsPlan(most, threads, _lanes(group, facts)), [Meeting((blocks, 1, 1), items, (), (threads, 1, 1))]


def _levels(count: int, first: int, most: int) -> list[int]:
    """How much there is to join in each round: points, `first` neighbours at once, and what is left of them, `most` at once."""
    counts = [count]
    while (chunks := -(-counts[-1] // (first if len(counts) == 1 else most))) > 1:
        counts.append(2 * chunks)
    return counts


def _lanes(group: Ordered, facts: Facts) -> tuple[str, ...]:
    """The lanes, with that last along which elements lie side by side."""
    write = group.write
    unit = [a for a in group.lanes for k, i in enumerate(write.index) if i == Ref(a, INT64) and (write.array, k) in facts.unit]
    return tuple(a for a in group.lanes if a not in unit) + tuple(unit)


def _beside(group: Ordered, lanes: tuple[str, ...], facts: Facts, extents: Mapping[str, int]) -> bool:
    """Whether elements of neighbouring lanes lie side by side, as many as a part of a warp."""
    write, own = group.write, {Ref(a, INT64) for a in lanes[-1:] if extents[a] >= LANES_BESIDE}
    return any(i in own and (write.array, k) in facts.unit for k, i in enumerate(write.index))


def _order(points: Points, joins: Joins, facts: Facts, extents: Mapping[str, int]) -> tuple[str, ...]:
    """The axes of the grid, with that last along which most is side by side in memory."""
    votes = dict.fromkeys(points.over, 0)
    for array, index in _accesses(points, joins):
        for a in neighbours(array, index, facts):
            if a in votes:
                votes[a] += 1
    lane = max(points.over, key=lambda a: (votes[a], extents[a]), default=None)
    return tuple(a for a in points.over if a != lane) + ((lane,) if lane is not None else ())


def _accesses(points: Points, joins: Joins) -> list[tuple[str, tuple[Expr, ...]]]:
    own = {*points.over, *points.inside}
    found = [(v.array, v.index) for v in joins.values if isinstance(v, Read) and set(v.axes) <= own]
    for w in points.writes:
        exprs = (w.value, *w.index, *(() if w.guard is None else (w.guard,)))
        found += [(w.array, w.index), *((x.array, x.index) for e in exprs for x in walk_expr(e) if isinstance(x, Load))]
    return found


def _vector(function: Function, points: Points, joins: Joins, facts: Facts, order: tuple[str, ...]) -> int:
    """How many neighbouring points of the lane have their elements in whole packets."""
    if not order or points.inside:
        return 1
    lane, own = order[-1], {*points.over}
    along = [v for v in joins.values if isinstance(v, Read) and set(v.axes) <= own and lane in v.axes]
    runs = [v for v in along if is_run(v.array, v.index, lane, facts)]
    if not runs or joins.axes[lane].start != Const(0, INT64):
        return 1
    if any(function.array(v.array).shape[axis_along(v.index, lane)] != joins.axes[lane].stop for v in runs):
        return 1
    widest = max(PACKET_BYTES // function.array(v.array).dtype.size for v in runs)
    return min(MOST_ELEMENTS, widest, *(max(1, facts.vector(v.array)) for v in runs))


def _own(points: Points, function: Function, arrays: Mapping[str, Geometry], count: int, blocks: int) -> tuple[Own, ...]:
    """The arrays that are few elements, and that many points are joined to."""
    found: list[Own] = []
    left = SHARED_BYTES
    for array in dict.fromkeys(w.array for w in points.writes if w.join):
        elements = 1 << max(0, math.prod(arrays[array].shape) - 1).bit_length()
        most = -(-count // _blocks(elements, count, blocks)) + BLOCK * MOST_ELEMENTS
        type_ = _held(function.array(array).dtype, [w for w in points.writes if w.array == array], most)
        if type_ is None or elements * type_.size > left or count < POINTS_OF_AN_ELEMENT * elements:
            continue
        copies = max(1, min(BLOCK // 32, COPIED_BYTES // (elements * type_.size)))
        copies = min(copies, left // (elements * type_.size))
        copies = 1 << copies.bit_length() - 1
        found.append(Own(array, elements, copies, type_))
        left -= elements * copies * type_.size
    return tuple(found)


def _blocks(elements: int, count: int, most: int) -> int:
    """How many blocks share points, each of which has elements of its own to join to memory in the end."""
    return max(1, min(most, count // (POINTS_OF_AN_ELEMENT * elements)))


def _held(dtype: ScalarType, writes: list[Write], most: int) -> ScalarType | None:
    """The type of an element in shared memory: a word of 4 bytes, where it holds what a block joins. most: of its points."""
    if dtype.category == "float":
        return FLOAT32 if dtype.opmath == FLOAT32 else None
    if dtype == BOOL or dtype.size <= 4:
        return INT32
    added = [int(w.value.value) if w.join == "sum" and isinstance(w.value, Const) else -1 for w in writes]
    return INT32 if min(added) >= 0 and sum(added) * most < 1 << 31 else None
