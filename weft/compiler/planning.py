"""How a nest runs for a call on CUDA: whole, or in parts where loops stay in order around parallel ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from weft.compiler.analysis import Analysis
from weft.compiler.apart import Repeated, reaching, repeated, skewed, staged, turned
from weft.compiler.blocks import block_launches
from weft.compiler.cost import seconds_of, seconds_of_looking
from weft.compiler.guards import guard_of
from weft.compiler.kernels import lies_apart, several_launches, shared_launches, whole_launches
from weft.compiler.launch import H200, Launch, Where
from weft.compiler.points import dense_geometry, fewest_points
from weft.compiler.tuned import leaning_of
from weft.graph.tile import TileGraph
from weft.graph.two_steps import is_product
from weft.loops.affine import affine
from weft.loops.intervals import bounds
from weft.loops.ir import free_names, trapping
from weft.loops.schedule import Axis
from weft.plan.chain import ChainPlan
from weft.plan.facts import Geometry
from weft.plan.fold import FoldPlan
from weft.plan.leaning import LEANINGS, PLANNED, Leaning
from weft.plan.machine import Machine
from weft.plan.outer_states import OuterPlan
from weft.plan.recurrence import RecurrencePlan
from weft.plan.state_scan import StatePlan
from weft.plan.threads import ThreadPlan
from weft.plan.traffic import LAUNCH_SECONDS
from weft.runtime.stack import deep

# Launches that repeat are taken where they cost this part of one launch at most, or of a chain of products, and are looked for
# where that costs so much. Attention of 8 tiles of 64 queries over 4096 keys took 36 us as a chain and 21 as passes on an
# H200, of 64 tiles 34 and 91. So are launches that do not repeat: a ring of 128 x 256 places, 512 rounds of it in each thread,
# took 122 us on an H100.
GAIN, CHAIN_GAIN, ONCE_GAIN, WORTH_SECONDS = 0.5, 0.75, 0.75, 2e-5
MOST_CANDIDATES = 8
_DEEPEST = 4  # how often a nest is taken apart
_MOST_BYTES = 1 << 33  # of memory that its parts share


def _planned(where: Where, nest: int) -> Where:
    """Where a nest stands by itself, as planned: nests that may be one launch are asked one by one, and say the same."""
    return replace(where, path=str(nest), first=nest == 0, leaning=PLANNED)


@deep
def launches(
    analysis: Analysis,
    nest: int,
    arrays: Mapping[str, Geometry],
    names: Mapping[str, int],
    machine: Machine = H200,
    leaning: Leaning | None = None,
) -> tuple[Launch, ...]:
    """How a nest runs for a call on CUDA: launches in order. names: the values of sizes and integer scalars.
    machine: what the device has. leaning: of its plans; None: the one that was measured to be the fastest, if that was done.
    """
    if leaning is None:
        leaning = leaning_of(analysis, nest, names, machine)
    where = Where(analysis, arrays, path=str(nest), machine=machine, leaning=leaning, first=nest == 0)
    together = block_launches(where, nest, names, lambda k: _launches(_planned(where, k), k, names, _DEEPEST))
    return _launches(where, nest, names, _DEEPEST) if together is None else together


def candidates(
    analysis: Analysis, nest: int, arrays: Mapping[str, Geometry], names: Mapping[str, int], machine: Machine = H200
) -> tuple[tuple[Leaning, tuple[Launch, ...]], ...]:
    """The different ways in which a nest may run for a call, the planner's own choice first."""
    found: list[tuple[Leaning, tuple[Launch, ...]]] = []
    for leaning in LEANINGS:
        one = launches(analysis, nest, arrays, names, machine, leaning)
        if all(one != other for _, other in found):
            found.append((leaning, one))
    return tuple(found[:MOST_CANDIDATES])


def _launches(where: Where, nest: int, names: Mapping[str, int], depth: int) -> tuple[Launch, ...]:
    found = _whole_or_apart(where, nest, names, depth)
    looking = _looking(where, nest, names, depth, found)
    if looking is not None:
        return looking
    several = None
    if len(found) == 1 and found[0].where == where and not where.analysis.schedule.nests[nest].rare:
        several = several_launches(where, found[0], names)
    return several or found


def _looking(
    where: Where, nest: int, names: Mapping[str, int], depth: int, found: tuple[Launch, ...]
) -> tuple[Launch, ...] | None:
    """The launches of a nest whose elements look for the rows that reach them; None where it is none, or that takes longer."""
    if depth == 0 or where.leaning.apart:
        return None
    seconds = seconds_of(found, names, where.ranges)
    apart = reaching(where.analysis, nest) if seconds >= WORTH_SECONDS else None
    if apart is None:
        return None
    made = _repeated_launches(apart, where, names, 0)
    if made is None:
        return None
    (looking,) = (one for one in made if one.where is not None and one.where.analysis is apart.parts[-2][1])
    pays = seconds_of_looking(looking, names, where.ranges) + len(made) * LAUNCH_SECONDS < seconds
    return made if pays else None


def _whole_or_apart(where: Where, nest: int, names: Mapping[str, int], depth: int) -> tuple[Launch, ...]:
    whole = whole_launches(where, nest, names)
    rare = where.analysis.schedule.nests[nest].rare
    alone = len(whole) == 1 and isinstance(whole[0].variant.plan, ThreadPlan)
    plan, leaning = whole[0].variant.plan, where.leaning
    # few blocks of chained products leave most of a GPU idle, and many of them nothing
    blocks = max(one.grid[0] for one in whole)
    busy = isinstance(plan, ChainPlan) and plan.parts == 1 and blocks >= where.machine.multiprocessors
    chained = isinstance(plan, ChainPlan) and (leaning.apart or not (busy or leaning.alone))
    if isinstance(plan, RecurrencePlan) and depth > 0:
        # products of matrices in the place of all that goes through the points one by one
        stages = _apart_launches(where, staged(where.analysis, nest), names)
        ways = {type(s.variant.plan) for s in stages or ()}
        return stages if stages and OuterPlan in ways and RecurrencePlan not in ways else whole
    if isinstance(plan, StatePlan) and depth > 0 and lies_apart(where, nest, whole[0].variant.facts):
        dear = seconds_of(whole, names, where.ranges) >= WORTH_SECONDS
        return (_apart_launches(where, turned(where.analysis, nest), names) if dear else None) or whole
    if rare or depth == 0 or not (alone or chained or _of_several_products(where.analysis, nest, whole)):
        return whole
    seconds = seconds_of(whole, names, where.ranges)
    if seconds < WORTH_SECONDS and not leaning.apart:
        return whole
    stages = _apart_launches(where, staged(where.analysis, nest), names) if alone else None
    apart = repeated(where.analysis, nest) if stages is None else None
    found = [stages, *([shared_launches(where, whole[0], names)] if alone else [])]
    inside = replace(where, leaning=PLANNED) if leaning.apart else where
    found.append(None if apart is None else _repeated_launches(apart, inside, names, depth - 1))
    found += [] if (own := skewed(where.analysis, nest)) is None else [_repeated_launches(own, inside, names, depth - 1)]
    costs = [(seconds_of(own, names, where.ranges), own) for own in found if own is not None]
    least, best = min(costs, key=lambda cost: cost[0], default=(math.inf, whole))
    gain = CHAIN_GAIN if chained else GAIN if any(one.steps != where.steps for one in best) else ONCE_GAIN
    return best if leaning.apart or least <= gain * seconds else whole


def _apart_launches(where: Where, apart: Repeated | None, names: Mapping[str, int]) -> tuple[Launch, ...] | None:
    """The launches of graphs that a nest is; None where there are none, or where threads share nothing of one of them."""
    made = None if apart is None else _repeated_launches(apart, where, names, 0)
    return None if made is None or any(isinstance(one.variant.plan, ThreadPlan) for one in made) else made


def _of_several_products(analysis: Analysis, nest: int, whole: tuple[Launch, ...]) -> bool:
    """Whether folds over different axes are swept for each result by itself, or one is the sum of a product's results: apart,
    each may share what rows and columns have in common.
    """
    sweeps = analysis.lowered[nest].sweeps
    if sweeps is None or not isinstance(whole[0].variant.plan, FoldPlan):
        return False
    if len(sweeps.rows) > 1 and sum(map(len, sweeps.stages)) > 1:
        return True
    graph = TileGraph("", tuple(sweeps.axes.values()), sweeps.values, ())
    return any(len(f.over) > 1 and is_product(graph, f) for f in sweeps.folds)


def _repeated_launches(
    apart: Repeated, where: Where, names: Mapping[str, int], depth: int
) -> tuple[Launch, ...] | None:
    """The launches of the parts of a nest; None where what they need is not known before they run."""
    out: list[Launch] = []
    path = where.path
    try:
        shared = {a.name: dense_geometry(a, names, where.ranges) for a in apart.memory}
        if sum(g.span() * g.dtype.size for g in shared.values()) > _MOST_BYTES:
            return None
        arrays = {**where.arrays, **shared}
        memory = {**where.memory, **{a.name: f"{path}.{a.name}" for a in apart.memory}}
        for k, (part, analysis) in enumerate(apart.parts):
            inside = replace(where, analysis=analysis, arrays=arrays, memory=memory, path=f"{path}.{k}")
            if part.loop is not None:
                inside = _inside(inside, part.loop, names)
            if part.when is not None:
                guard = guard_of(part.when, names, inside.ranges)
                if not any(guard.taken):
                    continue
                inside = inside if all(guard.taken) else replace(inside, when=(*inside.when, guard))
            made = [a for a in analysis.function.arrays if a.name not in arrays and not a.within and a.role == "local"]
            inside = replace(
                inside,
                arrays={**arrays, **{a.name: dense_geometry(a, names, inside.ranges) for a in made}},
                memory={**memory, **{a.name: f"{inside.path}.{a.name}" for a in made}},
            )
            for own in range(len(analysis.schedule.nests)):
                if _loses_faults(inside, own, names):
                    return None
                first = where.first and k == own == 0
                out += _launches(replace(inside, path=f"{inside.path}.{own}", first=first), own, names, depth)
    except KeyError:
        return None
    return tuple(out)


def _inside(where: Where, loop: Axis, names: Mapping[str, int]) -> Where:
    """The place inside of a loop. Raises KeyError where its bounds are not known, or no sums of the variables around it."""
    for end in (loop.start, loop.stop):
        if free_names(end) & where.ranges.keys() and affine(end) is None:
            raise KeyError(loop.var)
    starts, stops = (bounds(e, names, where.ranges) for e in (loop.start, loop.stop))
    ends = (starts[0], stops[1] - 1) if loop.step > 0 else (stops[0] + 1, starts[1])
    low, high = ends if ends[0] <= ends[1] else (starts[0], starts[0])  # where it never runs, any value does
    return replace(where, steps=(*where.steps, loop), ranges={**where.ranges, loop.var: (low, high)})


def _loses_faults(where: Where, nest: int, names: Mapping[str, int]) -> bool:
    """Whether some iteration of the loops around has no points of an axis, and the Python could fail there all the same."""
    from weft.loops.faults import Faults

    own, function = where.analysis.schedule.nests[nest], where.analysis.function
    if all(fewest_points(a, names, where.ranges) > 0 for a in own.axes):
        return False
    return Faults(replace(function, body=trapping(own.body)), own.around()).possible
