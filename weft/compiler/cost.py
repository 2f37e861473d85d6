"""About how long launches take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from weft.compiler.launch import Launch
from weft.compiler.points import most_points
from weft.emit import entries
from weft.emit.names import kernel_entry
from weft.loops.intervals import Ranges, bounds
from weft.loops.ir import For, Let, Load, Stmt, bodies, free_names, walk, walk_expr
from weft.loops.wavefronts import points_of
from weft.plan.arguments import Facts, subscripts
from weft.plan.chain import ChainPlan
from weft.plan.fold import FoldPlan
from weft.plan.product import ProductPlan
from weft.plan.threads import ThreadPlan
from weft.plan.traffic import LAUNCH_SECONDS
from weft.plan.wavefront import WavefrontPlan, seconds_of_steps

# What an iteration of a loop costs in a thread that waits for memory; threads that a GPU has at a time. What one costs in which
# a thread goes through a loop, at the least: nothing of the next one is on its way meanwhile.
ITERATION_SECONDS, THREADS, OUTER_SECONDS = 2e-8, 1 << 16, 5e-7
# How many times as long iterations of loops take in which threads that share the loops around them go through loops: what
# neighbours read lies apart. And of threads that go by themselves through ranges that data decide: neighbours also wait for
# the longest.
LYING_APART = 2
# The same of loops that threads share whose iterations touch no neighbours at all: each element comes with a sector.
A_SECTOR = 8
# What a statement of a loop inside of a point takes of a step.
INSIDE_A_STEP = 0.3
# What it takes to ask a row of a range whether it reaches an element, all threads of a GPU together; the part that does, about.
ASKING_SECONDS, REACHED = 5e-13, 0.25
# Products that a GPU makes in a second, where tiles of their operands are in shared memory.
PRODUCTS_A_SECOND = {"fma": 1.5e13, "floats": 2.5e13, "mma": 1.5e14, "wgmma": 3e14}
_MOST_STOPPED = 100  # iterations of a loop that may end early, where it does: what is launched for all of them does not


def seconds_of(program: Sequence[Launch], names: Mapping[str, int], ranges: Ranges) -> float:
    """About how long launches take, as far as threads that wait for memory decide it."""
    total = 0.0
    for launch in program:
        assert launch.where is not None
        nest, own = launch.nest, dict(launch.where.ranges)
        points = 1
        for a in nest.axes:
            points *= most_points(a.start, a.stop, a.step, names, own)
            ends = (*bounds(a.start, names, own), *bounds(a.stop, names, own))
            own[a.var] = min(ends), max(ends)
        threads, turn = math.prod(launch.grid) * math.prod(launch.block), 1
        if isinstance(launch.variant.plan, ThreadPlan):
            turn = launch.variant.plan.block if launch.variant.plan.shared else 1
            threads = points * turn
        work = points * _iterations(nest.body, names, own, turn)
        if isinstance(plan := launch.variant.plan, FoldPlan) and plan.shares and launch.entry != kernel_entry(nest.name):
            work = 0  # what finds longer rows, and what combines parts of them
        seconds = ITERATION_SECONDS * work / max(1, min(threads, THREADS))
        if turn > 1 and any(isinstance(s, For) for stmt in nest.body if isinstance(stmt, For) for s in walk(stmt.body)):
            seconds *= LYING_APART
        if turn > 1 and any(_apart(stmt, launch.variant.facts) for stmt in nest.body if isinstance(stmt, For)):
            seconds *= A_SECTOR
        if isinstance(launch.variant.plan, ThreadPlan) and not launch.variant.plan.shared:
            if _data_decide(nest.body):
                seconds *= LYING_APART
            seconds = max(seconds, OUTER_SECONDS * _outer_iterations(nest.body, names, own))
        if isinstance(plan := launch.variant.plan, ChainPlan):
            multiplies = launch.entry == entries.of_chained_products(nest, plan)
            seconds = multiplies * work / PRODUCTS_A_SECOND["wgmma"]
            seconds *= max(1.0, launch.where.machine.multiprocessors / launch.grid[0])
        elif isinstance(plan, WavefrontPlan):
            seconds = _seconds_of_wavefront(launch, plan, points, names, own)
        elif isinstance(plan, ProductPlan):
            seconds = work / PRODUCTS_A_SECOND[plan.engine] * max(1.0, launch.where.machine.multiprocessors / launch.grid[0])
        once = LAUNCH_SECONDS + seconds
        inner = [s for s in launch.steps if s.var not in ranges]
        once *= math.prod(sum(g.taken) / len(g.taken) for g in launch.when)
        total += once * math.prod(most_points(s.start, s.stop, s.step, names, own) for s in inner)
    return total


def _data_decide(body: tuple[Stmt, ...]) -> bool:
    """Whether how many iterations some loop has is read from memory."""
    loops = [s for s in walk(body) if isinstance(s, For)]
    read = {s.name for s in walk(body) if isinstance(s, Let) and any(isinstance(e, Load) for e in walk_expr(s.value))}
    while more := {s.name for s in walk(body) if isinstance(s, Let) and free_names(s.value) & read} - read:
        read |= more
    return any((free_names(s.start) | free_names(s.stop)) & read for s in loops)


def seconds_of_looking(launch: Launch, names: Mapping[str, int], ranges: Ranges) -> float:
    """About how long a launch takes whose elements ask rows whether they reach them; infinitely, where some loop is empty."""
    nest, plan = launch.nest, launch.variant.plan
    assert isinstance(plan, ThreadPlan)
    asked: float = math.prod(most_points(a.start, a.stop, a.step, names, ranges) for a in nest.axes) / plan.several[1]
    total = 0.0
    for loop in nest.loops():
        asked *= most_points(loop.start, loop.stop, loop.step, names, ranges)
        total += asked
        asked *= REACHED
    return total * ASKING_SECONDS if asked else math.inf


def _seconds_of_wavefront(
    launch: Launch, plan: WavefrontPlan, items: int, names: Mapping[str, int], ranges: Ranges
) -> float:
    """About how long a wavefront takes, each step of which takes as long as a point."""
    assert launch.where is not None
    found, rows = launch.where.analysis.lowered[launch.variant.nest].wavefront, launch.nest.body[-1]
    assert found is not None and isinstance(rows, For)
    count, within = _points(rows, names, ranges)
    points = points_of(rows)
    assert points is not None
    longest, within = _points(points, names, within)
    inside_points = _iterations(tuple(s for s in points.body if isinstance(s, For)), names, within)
    steps = seconds_of_steps(plan, items, count, longest, found.slope, launch.grid[1], launch.where.machine)
    return steps * (1 + INSIDE_A_STEP * inside_points)


def _apart(loop: For, facts: Facts) -> bool:
    """Whether what a loop touches lies along memory, and never along the loop."""
    sides = [i for a, index in subscripts((loop,)) for axis, i in enumerate(index) if (a, axis) in facts.unit]
    return bool(sides) and not any(loop.var in free_names(i) for i in sides)


def _outer_iterations(body: tuple[Stmt, ...], names: Mapping[str, int], ranges: Ranges) -> float:
    """How many iterations of loops around other loops a thread goes through."""
    total = 0.0
    for stmt in body:
        for inner in bodies(stmt):
            count, ranges_inside = _points(stmt, names, ranges) if isinstance(stmt, For) else (1, ranges)
            around = isinstance(stmt, For) and any(isinstance(s, For) for s in walk(inner))
            total += count * max(around, _outer_iterations(inner, names, ranges_inside))
    return total


_UNKNOWN_ITERATIONS = 16  # of a loop whose bounds data decide


def _points(loop: For, names: Mapping[str, int], ranges: Ranges) -> tuple[int, Ranges]:
    """About how many iterations a loop has, and the ranges of variables inside of it."""
    from weft.loops.algebra.stops import stops

    try:
        first, last = bounds(loop.start, names, ranges), bounds(loop.stop, names, ranges)
        count = most_points(loop.start, loop.stop, loop.step, names, ranges)
    except KeyError:
        return _UNKNOWN_ITERATIONS, ranges
    inside = {**ranges, loop.var: (min(first[0], last[0]), max(first[1], last[1]))}
    return min(count, _MOST_STOPPED) if stops(loop, lambda _: False) else count, inside


def _iterations(body: tuple[Stmt, ...], names: Mapping[str, int], ranges: Ranges, turn: int = 1) -> float:
    """About how many statements a body executes. turn: iterations of its loops that threads share, each of which takes as long
    where there are fewer.
    """
    total = 0.0
    for stmt in body:
        if isinstance(stmt, For):
            count, inner = _points(stmt, names, ranges)
            count = -(-count // turn) * turn
            total += count * (bool(stmt.carries) + _iterations(stmt.body, names, inner))
        else:
            total += 1 + sum(_iterations(b, names, ranges) for b in bodies(stmt))
    return total
