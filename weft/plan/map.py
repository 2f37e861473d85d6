"""The plan of maps: which axes are counted as one, along which neighbouring threads lie, what moves in packets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING

from weft.graph.maps import Course, Maps, read_at_need
from weft.graph.tile import Axis, Map, Read, Write
from weft.graph.within import Within, limits
from weft.loops.affine import affine, evaluate, is_bound
from weft.loops.ir import ONE, ZERO, Check, Expr, Function, Load, Op, Ref, free_names, rewrite, substitute, walk_expr
from weft.loops.types import INT64
from weft.plan.extents import typical
from weft.plan.facts import Geometry
from weft.plan.fold import power_of_two
from weft.plan.leaning import PLANNED, Leaning, shifted

if TYPE_CHECKING:
    from weft.layout.swizzle import AnyLayout

# Threads of a block; bytes and elements that one instruction moves; elements that a thread has in flight.
BLOCK, PACKET_BYTES, MOST_ELEMENTS, IN_FLIGHT = 256, 16, 8, 8
# Threads of a block to which all comes in whole packets: each has one of the result's. Small blocks that come and go in the
# order of addresses keep memory busier than those that wait for their last warp: by up to 3 % on an H200.
STREAMING_BLOCK = 128
# Bytes and elements that a thread has in flight of rows that data choose, since it waits for where they are first: with 16 it
# waits too often, with 64 the last blocks end late (1.07 and 1.02 times as long on an H200). Bytes that threads read side by
# side.
FAR_BYTES, FAR_ELEMENTS, SIDE_BYTES = 32, 32, 256
# Bytes of memory that a multiprocessor gets while its L1 serves a line, and the part of that time that lines may take.
_BYTES_A_LINE, _BUSY = 19, 0.5
# Points of two axes from which on a square of them is worth its trip through shared memory, of which a block has so much.
_WORTH_TURNING, _SHARED_BYTES = 16, 48 << 10
# Points of an axis whose bounds data decide, where a grid is chosen; more are gone through in turns.
_UNTOLD = 1 << 12
# What addresses are known modulo of, in bytes.
_ALIGNMENT = 32
# Rows up to which they are counted in 32 bits; blocks that a grid has along its second axis.
_NARROW, _MOST_BLOCKS = 1 << 31, (1 << 16) - 1

# A width of which the address decides, packets that are shifted where it is none of theirs; of what is no run.
ANY, NO_RUN = 0, -1


@dataclass(frozen=True)
class CoursePlan:
    """How a course is gone through. alone: axes of one point. axes: from the slowest to the fastest, the lane; those that
    follow each other in memory everywhere are counted as one. still: (array, axis) along which it stands still.

    A thread takes `turns` runs of `vector` neighbours along the lane, `across` of a block's `threads` lie side by side, those
    that are left one row below the other; several: blocks share a row. shift: how far the first point of a row is past a
    packet of the result; None: the row's address tells it. whole: rows are whole runs. narrow: rows are counted in 32 bits.
    widths: of each read and of each write, how many elements one instruction moves. loose: bounds differ from launch to launch.

    wrapped: reads by their numbers in `widths`, and how far they step along the lane, which begin elsewhere in each row, where
    everything else goes on from row to row: then the last two of `axes` are the lane, and what is wrapped looks for its row.

    pairs: accesses by their numbers in `widths`, to the one and to the other part of complex numbers: these move in packets of
    the first's, in which both parts follow each other, and `widths` counts them as one element.

    at_need: the reads that happen on conditions, and do so where they are needed, element by element: others move in whole
    packets, and what holds for the first element of one holds for all.

    turned: the axis along which what else is read or written lies side by side, the accesses of `turns_over` by their numbers
    in `widths`: it changes its order in shared memory, a square of `side` points of both axes a block, of which a thread has a
    run below the other.
    """

    alone: tuple[str, ...]
    axes: tuple[tuple[str, ...], ...]
    still: tuple[tuple[str, int], ...]
    vector: int
    turns: int
    across: int
    several: bool
    shift: int | None
    whole: bool
    narrow: bool
    widths: tuple[int, ...]
    loose: bool = False
    wrapped: tuple[tuple[int, int], ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    turned: str = ""
    turns_over: tuple[int, ...] = ()
    threads: int = BLOCK
    at_need: tuple[str, ...] = ()

    @property
    def side(self) -> int:
        return self.across * self.vector

    @property
    def down(self) -> int:
        """Rows of a block."""
        return self.threads // self.across if len(self.axes) - bool(self.wrapped) > 1 else 1

    @property
    def lane(self) -> tuple[str, ...]:
        """The axes that are counted as one, along which neighbouring threads lie."""
        return tuple(a for group in self.axes[-2 if self.wrapped else -1 :] for a in group)

    @property
    def block(self) -> tuple[int, int, int]:
        return self.across, self.down, 1


def turned_layout(side: int, vector: int) -> AnyLayout:
    """(across, down) of a square of words -> its place in shared memory, as `weft/turn.cuh` has it: neighbours lie as far apart
    as there are threads across, and the last bits of a row are XORed into its columns.
    """
    from weft.layout import Layout, Swizzle
    from weft.layout.swizzle import composed

    across = side // vector
    square = Layout(((vector, across), (vector, across)), ((across, 1), (side * across, side)))
    return composed(Swizzle(5, 0, side.bit_length() - 1), 0, square)


@dataclass(frozen=True)
class MapPlan:
    """courses: one for each of the maps', each a launch."""

    courses: tuple[CoursePlan, ...]


@dataclass(frozen=True)
class Placed:
    """A plan for a call. grids: of its launches. counted: (array, axis) whose stride no text needs."""

    plan: MapPlan
    grids: tuple[tuple[int, int, int], ...]
    counted: frozenset[tuple[str, int]]


def plan_maps(
    function: Function,
    maps: Maps,
    arrays: Mapping[str, Geometry],
    names: Mapping[str, int],
    ranges: Mapping[str, tuple[int, int]],
    leaning: Leaning,
) -> Placed | None:
    """The plan for a call; None where sizes do not tell the axes. names: the values of sizes and integers. ranges: the lowest
    and highest value of scalars that differ from launch to launch.
    """
    plans, grids, used = [], [], set()
    for course in maps.courses:
        try:
            plan, grid = plan_course(function, course, arrays, names, ranges, leaning)
        except KeyError:
            return None
        plans.append(plan)
        grids.append(grid)
        used |= {(a, k) for a, index in accesses(counted(course, plan)) for k, i in enumerate(index) if i != ZERO}
    everywhere = {(a, k) for a, g in arrays.items() for k in range(len(g.shape))}
    return Placed(MapPlan(tuple(plans)), tuple(grids), frozenset(everywhere - used))


def plan_course(
    function: Function,
    course: Course,
    arrays: Mapping[str, Geometry],
    names: Mapping[str, int],
    ranges: Mapping[str, tuple[int, int]] = MappingProxyType({}),
    leaning: Leaning = PLANNED,
) -> tuple[CoursePlan, tuple[int, int, int]]:
    """The plan of a course for a call, and its grid. Raises KeyError where sizes do not tell the axes."""
    return _Call(function, arrays, names, ranges, leaning).planned(course)


def accesses(course: Course) -> list[tuple[str, tuple[Expr, ...]]]:
    """Arrays and subscripts of all that a course reads and writes: its reads and its writes first, in order."""
    found = [(v.array, v.index) for v in course.values if isinstance(v, Read)]
    found += [(w.array, w.index) for w in course.writes]
    return found + [(x.array, x.index) for e in course.expressions() for x in walk_expr(e) if isinstance(x, Load)]


# ---------------------------------------------------------------- the axes that are counted


def counted(course: Course, plan: CoursePlan) -> Course:
    """The course over the axes that its plan counts, in their order."""
    own = _counted(read_at_need(course, plan.at_need), plan.alone, plan.axes, plan.still)
    return _wrapped(own, {k for k, _ in plan.wrapped}) if plan.wrapped else own


def group_name(group: tuple[str, ...]) -> str:
    """The name of the axis that counts these as one, which is none of the user's."""
    return group[0] if len(group) == 1 else f"{group[0]}.{group[-1]}"


def _wrapped(course: Course, wrapped: set[int]) -> Course:
    """The course with its last two axes counted as one. The reads of these numbers keep their subscripts."""
    *rows, slow, fast = course.axes
    lane = Axis(f"{slow.name.split('.')[0]}.{fast.name.split('.')[-1]}", ZERO, Op("mul", (slow.stop, fast.stop), INT64))
    instead: dict[str, Expr] = {slow.name: ZERO, fast.name: Ref(lane.name, INT64)}

    def over(axes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(lane.name if a in instead else a for a in axes))

    values, reads = [], 0
    for v in course.values:
        made: Read | Map = replace(v, axes=over(v.axes))
        if isinstance(made, Read):
            made = made if reads in wrapped else replace(made, index=tuple(substitute(i, instead) for i in made.index))
            reads += 1
        values.append(made)
    writes = [replace(w, axes=over(w.axes), index=tuple(substitute(i, instead) for i in w.index)) for w in course.writes]
    return Course((*rows, lane), tuple(values), tuple(writes))


def _counted(
    course: Course, alone: tuple[str, ...], groups: tuple[tuple[str, ...], ...], still: tuple[tuple[str, int], ...]
) -> Course:
    known = {a.name: a for a in course.axes}
    instead: dict[str, Expr] = {a: known[a].start for a in alone}
    axes: list[Axis] = []
    for group in groups:
        if len(group) == 1:
            axis = known[group_name(group)]
            axes.append(Axis(axis.name, substitute(axis.start, instead), substitute(axis.stop, instead)))
            continue
        name = group_name(group)
        axes.append(Axis(name, ZERO, reduce(lambda a, b: Op("mul", (a, b), INT64), (known[a].stop for a in group))))
        instead |= dict.fromkeys(group[:-1], ZERO) | {group[-1]: Ref(name, INT64)}

    def moved(e: Expr) -> Expr:
        return rewrite(substitute(e, instead), standing)

    def standing(e: Expr) -> Expr | None:
        return replace(e, index=at(e.array, e.index)) if isinstance(e, Load) else None

    def at(array: str, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(ZERO if (array, k) in still else moved(i) for k, i in enumerate(index))

    here: dict[str, frozenset[str]] = {a.name: frozenset({a.name}) for a in axes}
    values: list[Read | Map] = []
    conditions = {w.read: w.conditions for w in course.within}
    for v in course.values:
        made = replace(v, index=at(v.array, v.index)) if isinstance(v, Read) else replace(v, value=moved(v.value))
        uses = (*made.index, *conditions.get(v.name, ())) if isinstance(made, Read) else (made.value,)
        here[v.name] = frozenset().union(*(here.get(n, frozenset()) for e in uses for n in free_names(e)))
        values.append(replace(made, axes=tuple(a.name for a in axes if a.name in here[v.name])))
    every = tuple(a.name for a in axes)
    writes = [
        replace(
            w, axes=every, index=at(w.array, w.index), value=moved(w.value), guard=None if w.guard is None else moved(w.guard)
        )
        for w in course.writes
    ]
    within = tuple(replace(w, conditions=tuple(map(moved, w.conditions))) for w in course.within)
    return Course(tuple(axes), tuple(values), tuple(writes), course.ragged, within)


# ---------------------------------------------------------------- where elements lie


@dataclass(frozen=True)
class _Reach:
    """Where an access goes: the element of the first point, and how far each axis steps. jumps: the strides at which data
    decide, over the axes `told`; those in `direct` are themselves in such a subscript. size: bytes of what it counts in: an
    element, or two that are the parts of a complex number.
    """

    array: str
    first: int
    steps: Mapping[str, int]
    jumps: tuple[int, ...]
    told: frozenset[str]
    direct: frozenset[str]
    size: int

    def step(self, axis: str) -> int | None:
        return None if axis in self.told else self.steps.get(axis, 0)

    def follow(self, slow: str, fast: str, extent: int) -> bool:
        """Whether a step of an axis is as far as all of another one's. Of what data decide over both, these are read where that
        is so too.
        """
        if {slow, fast} & self.told and (not {slow, fast} <= self.told or {slow, fast} & self.direct):
            return False
        return self.steps.get(slow, 0) == self.steps.get(fast, 0) * extent


@dataclass(frozen=True)
class _Call:
    function: Function
    arrays: Mapping[str, Geometry]
    names: Mapping[str, int]
    ranges: Mapping[str, tuple[int, int]]
    leaning: Leaning

    def loose(self, course: Course) -> set[str]:
        """The axes whose bounds differ from launch to launch."""
        return {a.name for a in course.axes if (free_names(a.start) | free_names(a.stop)) & self.ranges.keys()}

    def reaches(self, course: Course) -> list[_Reach]:
        """Where the accesses of a course go, those to the parts of complex numbers as accesses to these."""
        found = self.apart(course)
        for pair in self.pairs(course, found):
            for k in pair:
                steps = {a: step // 2 for a, step in found[k].steps.items()}
                found[k] = replace(found[k], first=found[k].first // 2, steps=steps, size=2 * found[k].size)
        return found

    def apart(self, course: Course) -> list[_Reach]:
        unknown = {course.ragged, *self.loose(course)}
        axes = {a.name: 0 if a.name in unknown else evaluate(a.start, self.names) for a in course.axes}
        depends = {v.name: frozenset(v.axes) for v in course.values} | {a: frozenset({a}) for a in axes}
        found = []
        for array, index in accesses(course):
            first, steps, jumps, told, direct = 0, dict.fromkeys(axes, 0), [], frozenset[str](), frozenset[str]()
            for k, (i, stride) in enumerate(zip(index, self.arrays[array].strides, strict=True)):
                form = affine(i)
                if form is None or not form.names <= axes.keys() | self.names.keys() or not self.proven(array, k):
                    jumps.append(stride)
                    told = told.union(*(depends.get(n, frozenset()) for n in free_names(i)))
                    direct |= free_names(i) & axes.keys()
                    continue
                first += stride * evaluate(i, {**self.names, **axes})
                for a in form.names & axes.keys():
                    steps[a] += form.coefficient(a) * stride
            found.append(_Reach(array, first, steps, tuple(jumps), told, direct, self.size(array)))
        return found

    def pairs(self, course: Course, reaches: list[_Reach]) -> list[tuple[int, int]]:
        """The accesses, by their numbers, whose elements are the two parts of complex numbers: at one place each, of size 2."""
        named = self.named(course)
        reads = len(named) - len(course.writes)
        found: dict[tuple[object, ...], int] = {}
        pairs, within = [], {w.read for w in course.within}
        for k, (access, r) in enumerate(zip(named, reaches, strict=False)):
            geometry = self.arrays[r.array]
            apart = geometry.strides[-1:] == (1,) and geometry.shape[-1:] == (2,) and access.index[-1:] in ((ZERO,), (ONE,))
            even = not any(s % 2 for s in (*geometry.strides[:-1], *r.steps.values())) and not geometry.address % (2 * r.size)
            guarded = access.name in within if isinstance(access, Read) else access.guard is not None
            if not apart or not even or guarded or r.told or r.jumps:
                continue
            key = (r.array, k < reads, r.first // 2, tuple(r.steps.items()))
            other = found.pop(key, None)
            if other is None:
                found[key] = k
            elif reaches[other].first + 1 == r.first:
                pairs.append((other, k))
        return pairs

    def extents(self, course: Course) -> dict[str, int]:
        """How many points each axis has: of the ragged one the most, or many where data decide."""
        ends: dict[str, tuple[int, int]] = {}
        for a in sorted(course.axes, key=lambda a: a.name == course.ragged):
            corners = [{**self.names, **dict(zip(ends, corner, strict=True))} for corner in itertools.product(*ends.values())]
            if a.name != course.ragged:
                corners = [dict(self.names)]
            lasting = self.ranges.items()
            corners = [{**c, **{v: e[k] for v, e in lasting}} for c in corners for k in ((0, 1) if lasting else (0,))]
            try:
                ends[a.name] = min(evaluate(a.start, c) for c in corners), max(evaluate(a.stop, c) for c in corners) - 1
            except KeyError:
                if a.name != course.ragged:
                    raise
                ends[a.name] = 0, self.untold(course, {n: e[1] - e[0] + 1 for n, e in ends.items()}) - 1
        return {a.name: max(0, ends[a.name][1] - ends[a.name][0] + 1) for a in course.axes}

    def untold(self, course: Course, extents: Mapping[str, int]) -> int:
        """Points of the axis whose bounds data decide: some of its rows have twice as many as they all have on average."""
        (axis,) = (a for a in course.axes if a.name == course.ragged)
        bounds = free_names(axis.start) | free_names(axis.stop)
        rows = {a for v in course.values if v.name in bounds for a in v.axes}
        found = [(array, index, frozenset(extents)) for array, index in accesses(course)]
        return min(_UNTOLD, 2 * typical(self.function, axis.name, rows, extents, found, self.names, _UNTOLD // 2))

    def size(self, array: str) -> int:
        return self.function.array(array).dtype.size

    @property
    def in_flight(self) -> int:
        return shifted(IN_FLIGHT, self.leaning.points)

    # ---- the plan of a course

    def planned(self, course: Course) -> tuple[CoursePlan, tuple[int, int, int]]:
        """The plan with as many reads that happen on conditions in whole packets as move so."""
        left: tuple[str, ...] = ()
        while True:
            own = read_at_need(course, left)
            plan, grid = self.of(own)
            cut = tuple(w.read for w in own.within if not self.whole_packets(own, plan, w))
            if not cut:
                return replace(plan, at_need=left), grid
            left += cut

    def whole_packets(self, course: Course, plan: CoursePlan, within: Within) -> bool:
        """Whether conditions hold for all of each of a read's packets, or for none of it."""
        if plan.vector < 2 or plan.shift != 0 or plan.turned or len(plan.lane) > 1:
            return False
        (k,) = (k for k, access in enumerate(self.named(course)) if isinstance(access, Read) and access.name == within.read)
        if plan.widths[k] < plan.vector:
            return False
        (first,) = (a.start for a in course.axes if a.name == plan.lane[0])
        known, ends = self.names.keys() - self.ranges.keys(), limits(within.conditions, plan.lane[0])
        if not all(free_names(e) <= known for e in (first, *ends)):
            return not ends
        return all((evaluate(e, self.names) - evaluate(first, self.names)) % plan.vector == 0 for e in ends)

    def of(self, course: Course) -> tuple[CoursePlan, tuple[int, int, int]]:
        extents = self.extents(course)
        still = tuple(
            sorted(
                {(a, k) for a, index in accesses(course) for k, i in enumerate(index) if self.stands(a, k, i, extents)}
            )
        )
        alone = tuple(a for a, n in extents.items() if n == 1 and a not in {course.ragged, *self.loose(course)})
        groups = self.groups(_counted(course, alone, tuple((a,) for a in extents if a not in alone), still))
        own = _counted(course, alone, groups, still)
        start = CoursePlan(alone, groups, still, 1, self.in_flight, 1, False, 0, True, False, (), bool(self.loose(course)))
        plan = self.runs(own, start)
        wrapped = self.wrapped(own, plan)
        if wrapped:
            merged = _wrapped(own, {k for k, _ in wrapped})
            over = self.runs(merged, replace(start, wrapped=wrapped))
            if over.vector > 1 and over.shift == 0:
                return over, self.grid(merged, over)
        return plan, self.grid(own, plan)

    def wrapped(self, course: Course, plan: CoursePlan) -> tuple[tuple[int, int], ...]:
        """The reads that begin elsewhere in each row, by their numbers, and how far they step along the lane, where everything
        else goes on from row to row in packets that the rows' ends would cut.
        """
        if len(course.axes) < 2 or plan.vector < 2 or plan.whole or plan.turned or course.ragged or plan.loose or plan.pairs:
            return ()
        if course.within:
            return ()
        slow, fast = (a.name for a in course.axes[-2:])
        extents, reaches = self.extents(course), self.reaches(course)
        named = self.named(course)
        counting = {n for e in _numbers(course) for n in free_names(e)}
        of_rows = [v for v in course.values if isinstance(v, Map) and fast not in v.axes]
        if {slow, fast} & counting or of_rows or len(named) < len(reaches) or any(w.guard is not None for w in course.writes):
            return ()
        found, written = [], {w.array for w in course.writes}
        for k, r in enumerate(reaches):
            if not self.one(course, slow, fast, extents[fast], [r]):
                if isinstance(named[k], Write) or r.array in written or r.told or r.jumps or r.step(fast) not in (0, 1):
                    return ()
                found.append((k, r.steps[fast]))
        return tuple(found)

    def stands(self, array: str, axis: int, index: Expr, extents: Mapping[str, int]) -> bool:
        """Whether all subscripts along an axis of an array are of the same element."""
        form = affine(index)
        known = form is not None and form.names <= extents.keys() | self.names.keys()
        return known and self.arrays[array].strides[axis] == 0 and self.proven(array, axis)

    def proven(self, array: str, axis: int) -> bool:
        """Whether the call has told that sums of axes and sizes are inside."""
        extent = self.function.array(array).shape[axis]
        told = is_bound(extent, free_names(extent)) or (array, axis) in self.function.sized.axes
        return array not in self.function.checked and told

    def groups(self, course: Course) -> tuple[tuple[str, ...], ...]:
        """The axes in the order of memory, those that are counted as one together."""
        extents, reaches = self.extents(course), self.reaches(course)
        reads = sum(isinstance(v, Read) for v in course.values)
        main = self.main(course, reaches)
        votes = dict.fromkeys(extents, 0)
        for k, r in enumerate(reaches):
            moved = math.prod(n for a, n in extents.items() if r.step(a) != 0) * self.size(r.array)
            for a in extents:
                votes[a] += 2 * moved + (reads <= k < reads + len(course.writes)) if r.step(a) == 1 else 0
        order = sorted(extents, key=lambda a: -abs(main.steps[a]))
        if course.ragged:
            order = [a for a in order if a != course.ragged] + [course.ragged]
        elif any(votes.values()):
            lane = max(reversed(order), key=lambda a: votes[a])
            order = [a for a in order if a != lane] + [lane]
        counting = {course.ragged, *self.loose(course), *(n for e in _numbers(course) for n in free_names(e))}
        groups: list[tuple[str, ...]] = []
        for a in order:
            before = groups[-1][-1] if groups else ""
            if before and not {a, before} & counting and self.one(course, before, a, extents[a], reaches):
                groups[-1] = (*groups[-1], a)
            else:
                groups.append((a,))
        return tuple(groups)

    def one(self, course: Course, slow: str, fast: str, extent: int, reaches: Iterable[_Reach]) -> bool:
        """Whether a step of the slower axis is as far as all of the faster one's, everywhere."""
        if any(a.start != ZERO for a in course.axes if a.name in (slow, fast)):
            return False
        return all(r.follow(slow, fast, extent) for r in reaches)

    def main(self, course: Course, reaches: list[_Reach]) -> _Reach:
        """The access whose order of memory the axes have: that of the first write which no data decide, or of a read."""
        reads = sum(isinstance(v, Read) for v in course.values)
        known = [r for r in (*reaches[reads : reads + len(course.writes)], *reaches[:reads]) if not r.told]
        return known[0] if known else reaches[reads]

    def runs(self, course: Course, plan: CoursePlan) -> CoursePlan:
        """The plan with what moves in packets along its lane."""
        if not course.axes:
            return replace(plan, turns=1, widths=(NO_RUN,) * len(self.named(course)))
        *rows, lane = (a.name for a in course.axes)
        extents, reaches = self.extents(course), self.reaches(course)
        named = reaches[: len(self.named(course))]
        reads = len(named) - len(course.writes)
        unguarded = [k for k in range(reads, len(named)) if course.writes[k - reads].guard is None]
        first = next((k for k in unguarded if named[k].step(lane) == 1), None)
        along = [k for k, r in enumerate(named) if r.step(lane) == 1]
        vector = min(MOST_ELEMENTS, PACKET_BYTES // min((named[k].size for k in along), default=PACKET_BYTES))
        vector = max(1, vector >> self.leaning.packets)
        n, many = extents[lane], math.prod(extents[a] for a in rows)
        narrow = max(many, n if plan.wrapped else 0) < _NARROW - BLOCK
        pairs = tuple((k, j) for k, j in self.pairs(course, self.apart(course)) if k in along)
        turned = None if plan.wrapped or pairs else self.turned(course, named, vector if first is not None else 1)
        if turned is not None:
            return self.squares(course, plan, named, named[reads if first is None else first], *turned)
        # neighbours store one packet each: of two in turn every one is half of a sector, and memory writes it twice
        stored = max((named[k].size for k in along if k >= reads), default=1)
        vector = min(vector, PACKET_BYTES // stored)
        if row_guard(course) is not None:
            first = next((k for k in range(reads, len(named)) if named[k].step(lane) == 1), None)
        if first is None or (vector < 2 and not pairs) or n < vector:
            widths = tuple(1 if k in along else NO_RUN for k in range(len(named)))
            return self.shared(replace(plan, narrow=narrow, widths=widths), n)
        loose = self.loose(course)
        steady = (not course.ragged and lane not in loose) or course.axes[-1].start == ZERO
        shift = self.past(named[first], rows, vector) if steady else None
        found = [NO_RUN] * len(named)
        for k in along:
            found[k] = self.width(named[k], named[first], shift, rows, vector)
        for k, step in plan.wrapped:
            found[k] = ANY if step else NO_RUN
        single = {(r.array, r.first, tuple(r.steps.items())): r for r in reaches[len(named) :] if r.step(lane) == 1}
        second = {j for _, j in pairs}
        lying = [(r, found[k]) for k, r in enumerate(named) if found[k] != NO_RUN and k not in second]
        if self.crowded([*lying, *((r, 1) for r in single.values())], vector):
            return self.shared(replace(plan, narrow=narrow, widths=tuple(1 if w != NO_RUN else w for w in found)), n)
        whole = shift == 0 and n % vector == 0 and not course.ragged and lane not in loose
        far = any(named[k].told for k in along)
        streamed = all(r.step(lane) == 0 or found[k] != NO_RUN for k, r in enumerate(named))
        streamed = streamed and whole and not plan.wrapped and len(named) == len(reaches)
        own = self.far(n, vector, [named[k].size for k in along]) if far else 0
        turns = shifted(1, self.leaning.points) if streamed and not far else max(self.in_flight // vector, own)
        plan = replace(plan, threads=STREAMING_BLOCK if streamed else BLOCK, turns=max(1, turns))
        plan = replace(plan, vector=vector, shift=shift, whole=whole, narrow=narrow, widths=tuple(found), pairs=pairs)
        return self.shared(plan, n)

    def far(self, n: int, vector: int, sizes: list[int]) -> int:
        """How many runs a thread has in flight of rows of n points that data choose, of elements of these sizes."""
        most = shifted(min(FAR_ELEMENTS, FAR_BYTES // max(sizes)), self.leaning.points) // vector
        return power_of_two(min(most, n * min(sizes) // SIDE_BYTES) + 1) // 2

    def turned(self, course: Course, named: list[_Reach], vector: int) -> tuple[str, tuple[int, ...], int] | None:
        """The axis along which most of what does not lie along the lane does, those accesses, and how many neighbours of both
        are taken at a time.
        """
        *rows, lane = (a.name for a in course.axes)
        extents = self.extents(course)
        within = {w.read for w in course.within}
        guarded = [x.name in within if isinstance(x, Read) else x.guard is not None for x in self.named(course)]
        found: dict[str, list[int]] = {}
        for k, r in enumerate(named):
            across = [a for a in rows if r.step(a) == 1 and extents[a] >= _WORTH_TURNING]
            apart = r.size != self.size(r.array)  # of complex numbers, two in one place: squares are of single elements
            if len(across) == 1 and r.step(lane) not in (0, 1) and not (r.told or r.jumps or guarded[k] or apart):
                found.setdefault(across[0], []).append(k)
        if not found or extents[lane] < _WORTH_TURNING or course.ragged or self.loose(course):
            return None
        axis = max(found, key=lambda a: sum(self.size(named[k].array) for k in found[a]))
        widest = max(self.size(named[k].array) for k in found[axis])
        vector = min(vector, 2) if widest == 8 else vector  # a square of as many words as of two bytes fits no more
        word, side = max(4, widest), _side(vector)
        return axis, tuple(found[axis][: _SHARED_BYTES // (word * side * side)]), vector

    def squares(
        self, course: Course, plan: CoursePlan, named: list[_Reach], main: _Reach, axis: str, over: tuple[int, ...], vector: int
    ) -> CoursePlan:
        """The plan of squares of the lane and another axis."""
        *rows, lane = (a.name for a in course.axes)
        extents, side = self.extents(course), _side(vector)
        shift = (self.past(main, rows, vector) or 0) if main.step(lane) == 1 else 0
        widths = [NO_RUN] * len(named)
        others = [a for a in extents if a != axis]
        for k, r in enumerate(named):
            most = min(vector, PACKET_BYTES // self.size(r.array))
            if k in over:
                past = self.past(r, others, most)
                widths[k] = ANY if past is None else math.gcd(most, past)
            elif r.step(lane) == 1:
                widths[k] = self.width(r, main, shift, rows, vector)
        tiles = math.prod(extents[a] for a in rows if a != axis) * -(-extents[axis] // side)
        across = side // vector
        return replace(
            plan, vector=vector, turns=side * across // BLOCK, across=across, several=True, shift=shift,
            whole=shift == 0 and extents[lane] % vector == 0 and extents[axis] % vector == 0,
            narrow=tiles < _NARROW - BLOCK, widths=tuple(widths), turned=axis, turns_over=over,
        )  # fmt: skip

    def crowded(self, along: list[tuple[_Reach, int]], vector: int) -> bool:
        """Whether what does not lie at packets, such as the neighbours of a stencil, would keep L1 busy: threads then do better
        to take single neighbours, which share its lines.
        """
        lines = sum((vector // width if width else 2) * vector * r.size for r, width in along) / 4
        alone = sum(vector * max(4, r.size) for r, _ in along) / 4
        moved = sum({r.array: r.size for r, _ in along}.values()) * 32 * vector
        return lines > _BUSY * moved / _BYTES_A_LINE and alone < lines

    def named(self, course: Course) -> list[Read | Write]:
        return [*(v for v in course.values if isinstance(v, Read)), *course.writes]

    def past(self, r: _Reach, rows: list[str], vector: int) -> int | None:
        """How far the first point of each row is past a packet; None where rows differ."""
        if any(j % vector for j in (*self.row_steps(r, rows).values(), *r.jumps)):
            return None
        return (self.arrays[r.array].address // r.size + r.first) % vector

    def width(
        self, r: _Reach, main: _Reach, shift: int | None, rows: list[str], vector: int
    ) -> int:
        """How many elements of an access one instruction moves, where runs are cut as the rows of another lie."""
        most = min(vector, PACKET_BYTES // r.size)
        if shift is not None:
            own = self.past(r, rows, most)
            return ANY if own is None else math.gcd(most, own - shift)
        most = min(most, _ALIGNMENT // main.size)
        if any(j % most for j in (*r.jumps, *main.jumps)):
            return ANY
        here, there = self.row_steps(r, rows), self.row_steps(main, rows)
        if any((here.get(a, 0) - there.get(a, 0)) % most for a in rows):
            return ANY
        apart = [self.arrays[x.array].address // x.size + x.first for x in (r, main)]
        return most if (apart[0] - apart[1]) % most == 0 else ANY

    def row_steps(self, r: _Reach, rows: list[str]) -> dict[str, int]:
        return {a: r.steps[a] for a in rows if a not in r.told}

    def shared(self, plan: CoursePlan, n: int) -> CoursePlan:
        """The plan with the threads of a block laid out for rows of n points."""
        runs = self.count(plan, n)
        across = min(plan.threads, power_of_two(-(-runs // plan.turns)))
        turns = min(plan.turns, power_of_two(-(-runs // across)))
        return replace(plan, across=across, turns=turns, several=runs > across * turns)

    def count(self, plan: CoursePlan, n: int) -> int:
        """The most runs of a row."""
        past = plan.vector - 1 if plan.shift is None else plan.shift
        return -(-(n + past) // plan.vector)

    def grid(self, course: Course, plan: CoursePlan) -> tuple[int, int, int]:
        extents = self.extents(course)
        if not course.axes:
            return 1, 1, 1
        *rows, lane = (a.name for a in course.axes)
        many = math.prod(extents[a] for a in rows)
        if not many or not extents[lane]:
            return 0, 1, 1
        if plan.turned:
            down = many // extents[plan.turned] * -(-extents[plan.turned] // plan.side)
            tall = min(down, _MOST_BLOCKS)
            return -(-(extents[lane] + (plan.shift or 0)) // plan.side), tall, -(-down // tall)
        down = -(-many // plan.down)
        if not plan.several:
            return down, 1, 1
        tall = min(down, _MOST_BLOCKS)
        return -(-self.count(plan, extents[lane]) // (plan.across * plan.turns)), tall, -(-down // tall)


def row_guard(course: Course) -> Expr | None:
    """The condition on which whole rows store: that of all writes, the same along the lane, if it looks at no memory."""
    guards = {w.guard for w in course.writes}
    if len(guards) != 1 or not course.axes:
        return None
    (guard,), lane = guards, course.axes[-1].name
    if guard is None or any(isinstance(x, (Load, Check)) for x in walk_expr(guard)):
        return None
    return None if free_names(guard) & {lane, *(v.name for v in course.values if lane in v.axes)} else guard


def _numbers(course: Course) -> list[Expr]:
    """What is computed with, apart from the subscripts of what is read and written at every point."""
    found = [v.value for v in course.values if isinstance(v, Map)]
    found += [e for a in course.axes for e in (a.start, a.stop)]
    for w in course.writes:
        found += [w.value, *(() if w.guard is None else (w.guard,))]
    return found


def _side(vector: int) -> int:
    """The side of a square of which a thread takes so many neighbours."""
    return 64 if vector > 2 else 32
