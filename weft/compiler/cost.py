"""About how long launches take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from weft.compiler.launch import Launch
from weft.compiler.points import most_points
from weft.loops.ir import For, Stmt, bodies
from weft.loops.steps import Ranges, bounds
from weft.plan.chain import ChainPlan
from weft.plan.product import ProductPlan
from weft.plan.threads import ThreadPlan
from weft.plan.traffic import LAUNCH_SECONDS

# What an iteration of a loop costs in a thread that waits for memory; threads that a GPU has at a time.
ITERATION_SECONDS, THREADS = 2e-8, 1 << 16
# Products that a GPU makes in a second, where tiles of their operands are in shared memory.
PRODUCTS_A_SECOND = {"fma": 1.5e13, "mma": 1.5e14, "wgmma": 3e14}
_MOST_STOPPED = 100  # iterations of a loop that may end early, where it does: what is launched for all of them does not


def seconds_of(program: Sequence[Launch], names: Mapping[str, int], ranges: Ranges) -> float:
    """About how long launches take, as far as threads that wait for memory decide it."""
    total = 0.0
    for launch in program:
        assert launch.where is not None
        nest, own = launch.nest, dict(launch.where.ranges)
        points = math.prod(most_points(a.start, a.stop, a.step, names, own) for a in nest.axes)
        threads = math.prod(launch.grid) * math.prod(launch.block)
        if isinstance(launch.variant.plan, ThreadPlan):
            threads = points * (launch.variant.plan.block if launch.variant.plan.shared else 1)
        work = points * _iterations(nest.body, names, own)
        seconds = ITERATION_SECONDS * work / max(1, min(threads, THREADS))
        if isinstance(launch.variant.plan, ChainPlan):
            seconds = work / PRODUCTS_A_SECOND["wgmma"]
        elif isinstance(plan := launch.variant.plan, ProductPlan):
            seconds = work / PRODUCTS_A_SECOND[plan.engine] * max(1.0, launch.where.machine.multiprocessors / launch.grid[0])
        once = LAUNCH_SECONDS + seconds
        inner = [s for s in launch.steps if s.var not in ranges]
        once *= math.prod(sum(g.taken) / len(g.taken) for g in launch.when)
        total += once * math.prod(most_points(s.start, s.stop, s.step, names, own) for s in inner)
    return total


_UNKNOWN_ITERATIONS = 16  # of a loop whose bounds data decide


def _iterations(body: tuple[Stmt, ...], names: Mapping[str, int], ranges: Ranges) -> float:
    """About how many statements a body executes."""
    from weft.loops.algebra.stops import stops

    total = 0.0
    for stmt in body:
        if isinstance(stmt, For):
            inner = ranges
            try:
                first, last = bounds(stmt.start, names, ranges), bounds(stmt.stop, names, ranges)
                low, high = min(first[0], last[0]), max(first[1], last[1])
                count = most_points(stmt.start, stmt.stop, stmt.step, names, ranges)
                count = min(count, _MOST_STOPPED) if stops(stmt, lambda _: False) else count
                inner = {**ranges, stmt.var: (low, high)}
            except KeyError:
                count = _UNKNOWN_ITERATIONS
            total += count * (bool(stmt.carries) + _iterations(stmt.body, names, inner))
        else:
            total += 1 + sum(_iterations(b, names, ranges) for b in bodies(stmt))
    return total
