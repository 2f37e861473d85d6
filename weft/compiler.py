"""The road from a function to kernels, in two halves.

`analyze` depends on the types of the arguments alone and is kept on disk: normal form, dependences, schedule, block
graphs, and what a call must satisfy. `variant` decides, for the sizes, strides and addresses of one call, how each nest
runs; kernels are compiled for variants. Importing this module is quick: the analysis is imported when it is needed.
"""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from weft.emit.names import kernel_entry
from weft.errors import Location
from weft.graph.block import BlockGraph, Input, Output
from weft.graph.joins import Joins
from weft.graph.maps import Maps
from weft.graph.scans import Scanned
from weft.graph.sweeps import Sweeps
from weft.loops.affine import affine, evaluate
from weft.loops.ir import (
    Array,
    Const,
    Expr,
    For,
    Function,
    Op,
    Stmt,
    bodies,
    free_names,
    rewrite,
    trapping,
    walk,
    walk_expr,
)
from weft.loops.schedule import Axis, Nest, Requirement, Schedule, Verdict
from weft.loops.steps import Apart, Part, Ranges, bounds, expanded, taken_apart
from weft.loops.types import INT64, ScalarType
from weft.plan.arguments import Facts, Slot, nest_arrays, slots
from weft.plan.facts import Geometry, facts_of
from weft.plan.fold import MANY_ROWS, Extents, FoldPlan, part_memory, plan_folds, steps
from weft.plan.join import BLOCK as JOINING
from weft.plan.join import JoinPlan, Meeting, plan_joins
from weft.plan.machine import Machine
from weft.plan.map import MapPlan, Placed, plan_maps
from weft.plan.scan import TURNS_TOLD, ScanPlan, plan_scan, ring_bytes, told_words
from weft.plan.share import share
from weft.plan.threads import ThreadPlan, plan_threads
from weft.plan.tile import TilePlan, plan, team, team_entry
from weft.plan.unused import in_order
from weft.runtime import cache
from weft.runtime.stack import deep


@dataclass(frozen=True)
class Refused:
    """Why the loops of a nest run in order inside its threads: in one sentence, and as in errors."""

    why: str
    where: Location | None = None
    remedy: str = ""


@dataclass(frozen=True)
class Lowered:
    """The block graphs of a nest by the axis that is their columns ("" for its loops' own), or why there are none. sweeps: how
    its folds are found by threads that share them, where it has folds and nothing else that is carried. joins: the same of
    values that it joins to elements which the data choose. scans: how threads share its scans. refused: why it has none of
    them.
    """

    graphs: tuple[tuple[str, BlockGraph], ...]
    why_not: str = ""
    sweeps: Sweeps | None = None
    joins: Joins | None = None
    maps: Maps | None = None
    refused: Refused | None = None
    scans: Scanned | None = None


@dataclass(frozen=True)
class Analysis:
    """All that is known of a function before its sizes are: `schedule.function` is its normal form.

    assumed: pairs of sizes that are equal in the calls it is for. key: what the disk cache knows it by, and its sources.
    """

    schedule: Schedule
    requirements: tuple[Requirement, ...]
    lowered: tuple[Lowered, ...]
    assumed: tuple[tuple[str, str], ...] = ()
    key: str = ""

    @property
    def function(self) -> Function:
        return self.schedule.function


def analyze(function: Function, assumed: tuple[tuple[str, str], ...] = ()) -> Analysis:
    """The analysis of a function (its first half of the road)."""
    from weft.loops.analyze import requirements, schedule

    scheduled = schedule(function)
    lowered = tuple(_lower(scheduled, nest) for nest in scheduled.nests)
    return Analysis(scheduled, requirements(function), lowered, assumed)


def _lower(schedule: Schedule, nest: Nest) -> Lowered:
    from weft.graph.block import validate
    from weft.graph.lower import NotRows, lower

    mapped = _maps(schedule, nest)
    if isinstance(mapped, Maps):
        return Lowered((), maps=mapped)
    graphs = []
    why = ""
    try:
        graph = lower(schedule.function, nest, "")
        validate(graph)
        if not graph.pointwise:
            graphs.append(("", graph))
    except NotRows as reason:
        why = str(reason)
    found = _values(schedule, nest)
    if isinstance(found, Sweeps):
        return Lowered(tuple(graphs), why, sweeps=found)
    if isinstance(found, Joins):
        return Lowered(tuple(graphs), why, joins=found)
    if isinstance(found, Scanned):
        return Lowered(tuple(graphs), why, scans=found)
    return Lowered(tuple(graphs), why, refused=found or mapped or (Refused(why) if why else None))


def _maps(schedule: Schedule, nest: Nest) -> Maps | Refused | None:
    """The maps of a nest that carries nothing, or why it has none; None where it is asked for none."""
    if any(nest.verdict(loop).kind != "parallel" for loop in nest.loops()):
        return None
    from weft.graph.build import build
    from weft.graph.maps import maps
    from weft.graph.needs import refuse_unused
    from weft.graph.tile import NotTiles

    try:
        refuse_unused(schedule.function, nest)
        return maps(build(schedule, nest))
    except NotTiles as no:
        return Refused(no.why, no.where, no.remedy)


def _values(schedule: Schedule, nest: Nest) -> Sweeps | Joins | Scanned | Refused | None:
    """The sweeps, joins or scans of a nest's tile graph, or why it has none; None where it is asked for none."""
    kinds = {nest.verdict(loop).kind for loop in nest.loops()}
    if not kinds & {"reduction", "scan"} or not kinds <= {"reduction", "scan", "parallel"}:
        return None
    from weft.graph.build import build
    from weft.graph.joins import joins
    from weft.graph.needs import refuse_unused
    from weft.graph.scans import scanned
    from weft.graph.sweeps import sweeps
    from weft.graph.tile import NotTiles

    try:
        refuse_unused(schedule.function, nest)
        graph = build(schedule, nest)
        if any(w.join for w in graph.writes):
            return joins(graph, schedule.function)
        return scanned(graph) if "scan" in kinds else sweeps(graph, {s.name for s in schedule.function.sizes})
    except NotTiles as no:
        return Refused(no.why, no.where, no.remedy)


# ---------------------------------------------------------------- loops in order


@dataclass(frozen=True)
class Repeated:
    """Parts of a nest that run one after another, as `weft.loops.steps` has them, and their analyses.
    memory: the arrays that they have beside those of the nest's own function.
    """

    parts: tuple[tuple[Part, Analysis], ...]
    memory: tuple[Array, ...]


_repeated: dict[tuple[int, int], tuple[Analysis, Repeated | None]] = {}


def repeated(analysis: Analysis, nest: int) -> Repeated | None:
    """A nest taken apart around the loops that stay in order; None where it is one kernel. From the disk cache where it is
    there: only calls on a GPU with enough to do ask for it.
    """
    known = _repeated.get((id(analysis), nest))
    if known is None:  # the analysis is kept, so that its id stays its own
        key = cache.key("repeated", analysis.key, str(nest)) if analysis.key else ""
        found = _recalled_repeated(key)
        if found is None:
            found = (_repeat(analysis, nest),)
            if key:
                cache.store(key, pickle.dumps(found, protocol=pickle.HIGHEST_PROTOCOL))
        known = _repeated[id(analysis), nest] = (analysis, found[0])
    return known[1]


def _recalled_repeated(key: str) -> tuple[Repeated | None] | None:
    kept = cache.load(key) if key else None
    if kept is None:
        return None
    try:
        found = pickle.loads(kept)
    except Exception:  # written by another Python: any failure to read it is a miss
        return None
    return found if isinstance(found, tuple) else None


def _repeat(analysis: Analysis, nest: int) -> Repeated | None:
    own = analysis.schedule.nests[nest]
    stored = expanded(analysis.function, own)
    found = None if stored is None else _analysed(analysis, nest, stored, "stored")
    if found is None:
        apart = taken_apart(analysis.function, own)
        found = None if apart is None else _analysed(analysis, nest, apart, "part")
    return found


def _analysed(analysis: Analysis, nest: int, apart: Apart, what: str) -> Repeated | None:
    """A nest taken apart, with the analyses of its parts; None where it is whole in them too."""
    from weft.loops.analyze import schedule

    parts = []
    for k, part in enumerate(apart.parts):
        found = schedule(part.function)
        if len(apart.parts) == 1 and part.loop is None and len(found.nests) < 2:
            return None
        lowered = tuple(_lower(found, inner) for inner in found.nests)
        found = replace(found, function=_with_roles(found.function, analysis.function, apart.memory))
        if any(a.fill is not None and a.role == "local" and not a.within for a in found.function.arrays):
            return None  # memory of its own that would have to be filled before each of its runs
        key = cache.key(what, analysis.key, f"{nest} {k}") if analysis.key else ""
        parts.append((part, Analysis(found, (), lowered, key=key)))
    if all(part.loop is None for part, _ in parts) and sum(len(a.schedule.nests) for _, a in parts) < 2:
        return None
    return Repeated(tuple(parts), apart.memory)


def _with_roles(function: Function, whole: Function, memory: Sequence[Array]) -> Function:
    """The function of a part with its arrays as they are in the whole one: to an analysis all have values before it and after,
    which they have not to a kernel.
    """
    roles = {a.name: a.role for a in whole.arrays} | {a.name: "local" for a in memory}
    return replace(function, arrays=tuple(replace(a, role=roles.get(a.name, a.role)) for a in function.arrays))


# ---------------------------------------------------------------- variants


@dataclass(frozen=True)
class Variant:
    """How one nest runs for some calls: tiles of a block graph, sweeps, scans, or a thread for each iteration of the axes."""

    nest: int
    facts: Facts
    graph: BlockGraph | None
    plan: TilePlan | FoldPlan | JoinPlan | MapPlan | ScanPlan | ThreadPlan

    @property
    def key(self) -> str:
        """A text that tells the variants of an analysis apart."""
        columns = None if self.graph is None else [s.column for s in self.graph.stages()]
        return f"{self.nest} {columns} {self.facts.key} {self.plan!r}"


H200 = Machine()  # stands for a device that is not told


@dataclass(frozen=True)
class Where:
    """Where a nest stands in a call: its analysis, the geometries of all arrays that this one has. memory: of those that the
    call makes for it alone, what tells them from others. path: tells the nest from others. machine: the device.
    """

    analysis: Analysis
    arrays: Mapping[str, Geometry]
    memory: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[Axis, ...] = ()
    ranges: Ranges = field(default_factory=dict)
    path: str = ""
    when: tuple[Guard, ...] = ()
    machine: Machine = H200


@dataclass(frozen=True)
class Guard:
    """Whether something runs in an iteration of loops. turns: (variable, its first value, after how many values it is the same
    again) of those that decide it; taken: 1 or 0 for each of their values, the last variable's the fastest.
    """

    turns: tuple[tuple[str, int, int], ...]
    taken: bytes
    condition: Expr

    def holds(self, values: Mapping[str, int]) -> bool:
        place = 0
        for var, first, period in self.turns:
            place = place * period + (values[var] - first) % period
        return bool(self.taken[place])


@dataclass(frozen=True)
class Launch:
    """A launch of a variant for one call: the entry of its source, grid and block.

    resident: blocks go from row to row, so no more of them than fit at a time. partial: (name, type, elements) of the memory
    that the launches of the variant share; a pointer each follows the slots of `arguments`, and then `parts`. together: all
    blocks run at once, and the memory is 0 at first. shared: bytes of memory that a block has beside its own.
    steps: the loops around it, outermost first: it is launched in every iteration, but for those in which a guard of `when`
    does not hold; launches one after another that have a loop in common are so together. The loops' variables are scalars of
    its function. course: of maps.
    """

    variant: Variant
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    resident: bool = False
    partial: tuple[tuple[str, ScalarType, int], ...] = ()
    parts: int = 1
    together: bool = False
    course: int = 0
    shared: int = 0
    where: Where | None = field(default=None, compare=False, repr=False)
    steps: tuple[Axis, ...] = ()
    when: tuple[Guard, ...] = ()

    @property
    def nest(self) -> Nest:
        assert self.where is not None
        return self.where.analysis.schedule.nests[self.variant.nest]


@dataclass(frozen=True)
class Unused:
    """A loop that is proven parallel, a reduction or a scan, and runs in order inside one thread of a GPU; why, and what to
    write instead, in the user's names. where: what is in the way, if it is not the loop itself.
    """

    loop: Verdict
    name: str
    why: str
    where: Location | None
    remedy: str


_LARGEST_GRID = (1 << 31) - 1


# What a launch costs, and an iteration of a loop in a thread that waits for memory; threads that a GPU has at a time. Launches
# that repeat are taken where they cost this part of one launch at most, and are looked for where that costs so much.
LAUNCH_SECONDS, ITERATION_SECONDS, THREADS, GAIN, WORTH_SECONDS = 2.5e-6, 2e-8, 1 << 16, 0.5, 2e-5
_DEEPEST = 4  # how often a nest is taken apart
_MOST_BYTES = 1 << 30  # of memory that its parts share
_MOST_STOPPED = 100  # iterations of a loop that may end early, where it does: what is launched for all of them does not


@deep
def launches(
    analysis: Analysis, nest: int, arrays: Mapping[str, Geometry], names: Mapping[str, int], machine: Machine = H200
) -> tuple[Launch, ...]:
    """How a nest runs for a call on CUDA: launches in order. names: the values of sizes and integer scalars.
    machine: what the device has.
    """
    where = Where(analysis, arrays, path=str(nest), machine=machine)
    return _launches(where, nest, names, _DEEPEST)


def _launches(where: Where, nest: int, names: Mapping[str, int], depth: int) -> tuple[Launch, ...]:
    whole = _whole_launches(where, nest, names)
    if depth == 0 or len(whole) != 1 or not isinstance(whole[0].variant.plan, ThreadPlan):
        return whole
    seconds = _seconds(whole, names, where.ranges)
    if seconds < WORTH_SECONDS:
        return whole
    apart = repeated(where.analysis, nest)
    found = None if apart is None else _repeated_launches(apart, where, nest, names, depth - 1)
    return whole if found is None or _seconds(found, names, where.ranges) > GAIN * seconds else found


def _repeated_launches(
    apart: Repeated, where: Where, nest: int, names: Mapping[str, int], depth: int
) -> tuple[Launch, ...] | None:
    """The launches of the parts of a nest; None where what they need is not known before they run."""
    out: list[Launch] = []
    path = f"{where.path}"
    try:
        shared = {a.name: _dense(a, names, where.ranges) for a in apart.memory}
        if sum(g.span() * g.dtype.size for g in shared.values()) > _MOST_BYTES:
            return None
        arrays = {**where.arrays, **shared}
        memory = {**where.memory, **{a.name: f"{path}.{a.name}" for a in apart.memory}}
        for k, (part, analysis) in enumerate(apart.parts):
            inside = replace(where, analysis=analysis, arrays=arrays, memory=memory, path=f"{path}.{k}")
            if part.loop is not None:
                inside = _inside(inside, part.loop, names)
            if part.when is not None:
                guard = _guard(part.when, names, inside.ranges)
                if not any(guard.taken):
                    continue
                inside = inside if all(guard.taken) else replace(inside, when=(*inside.when, guard))
            made = [a for a in analysis.function.arrays if a.name not in arrays and not a.within and a.role == "local"]
            inside = replace(
                inside,
                arrays={**arrays, **{a.name: _dense(a, names, inside.ranges) for a in made}},
                memory={**memory, **{a.name: f"{inside.path}.{a.name}" for a in made}},
            )
            for own in range(len(analysis.schedule.nests)):
                if _loses_faults(inside, own, names):
                    return None
                out += _launches(replace(inside, path=f"{inside.path}.{own}"), own, names, depth)
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
    if all(_least(a, names, where.ranges) > 0 for a in own.axes):
        return False
    return Faults(replace(function, body=trapping(own.body)), own.around()).possible


def _least(axis: Axis, names: Mapping[str, int], ranges: Ranges) -> int:
    """The fewest points of an axis, whatever the values of the variables around it."""
    (start_low, start_high), (stop_low, stop_high) = bounds(axis.start, names, ranges), bounds(axis.stop, names, ranges)
    return len(range(start_high, stop_low, axis.step) if axis.step > 0 else range(start_low, stop_high, axis.step))


_MOST_GUARDED = 1 << 16  # values of variables for which a condition is evaluated before anything runs


def _guard(condition: Expr, names: Mapping[str, int], ranges: Ranges) -> Guard:
    """A condition, for all the iterations in which it is asked for. Raises KeyError where it is evaluated for too many."""
    turns = []
    for var in sorted(free_names(condition) & ranges.keys()):
        first, last = ranges[var]
        count = last - first + 1
        turns.append((var, first, min(count, _period(condition, var) or count)))
    if math.prod(period for *_, period in turns) > _MOST_GUARDED:
        raise KeyError(condition)
    variables = [var for var, *_ in turns]
    values = itertools.product(*(range(first, first + period) for _, first, period in turns))
    taken = bytes(bool(evaluate(condition, {**names, **dict(zip(variables, v, strict=True))})) for v in values)
    return Guard(tuple(turns), taken, condition)


def _period(condition: Expr, var: str) -> int:
    """After how many steps of a variable a condition is the same again, by its remainders; 0 where they do not tell."""
    divisors = {
        e: int(e.args[1].value) for e in walk_expr(condition)
        if isinstance(e, Op) and e.name == "mod" and isinstance(e.args[1], Const) and affine(e.args[0]) is not None
    }  # fmt: skip
    rest = rewrite(condition, lambda e: Const(0, INT64) if e in divisors else None)
    return 0 if var in free_names(rest) else math.lcm(*divisors.values())


def _dense(array: Array, names: Mapping[str, int], ranges: Ranges) -> Geometry:
    """Where an array lies that the call makes for a nest alone."""
    shape = [max(0, bounds(e, names, ranges)[1]) for e in array.shape]
    strides = [math.prod(max(1, n) for n in shape[k + 1 :]) for k in range(len(shape))]
    return Geometry(array.dtype, tuple(shape), tuple(strides), 0)


# Launches in order; a loop with those that are repeated in each of its iterations.
Grouped = list["Launch | tuple[Axis, Grouped]"]


def grouped(program: Sequence[Launch], depth: int = 0) -> Grouped:
    """Launches with the loops around them, from the depth-th on."""
    out: Grouped = []
    for var, run in itertools.groupby(program, lambda one: one.steps[depth].var if len(one.steps) > depth else None):
        together = list(run)
        out += together if var is None else [(together[0].steps[depth], grouped(together, depth + 1))]
    return out


def _seconds(program: Sequence[Launch], names: Mapping[str, int], ranges: Ranges) -> float:
    """About how long launches take, as far as threads that wait for memory decide it."""
    total = 0.0
    for launch in program:
        assert launch.where is not None
        nest, own = launch.nest, dict(launch.where.ranges)
        points = math.prod(_most(a.start, a.stop, a.step, names, own) for a in nest.axes)
        threads = math.prod(launch.grid) * math.prod(launch.block)
        if isinstance(launch.variant.plan, ThreadPlan):
            threads = points
        work = points * _iterations(nest.body, names, own)
        once = LAUNCH_SECONDS + ITERATION_SECONDS * work / max(1, min(threads, THREADS))
        inner = [s for s in launch.steps if s.var not in ranges]
        once *= math.prod(sum(g.taken) / len(g.taken) for g in launch.when)
        total += once * math.prod(_most(s.start, s.stop, s.step, names, own) for s in inner)
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
                count = _most(stmt.start, stmt.stop, stmt.step, names, ranges)
                count = min(count, _MOST_STOPPED) if stops(stmt, lambda _: False) else count
                inner = {**ranges, stmt.var: (low, high)}
            except KeyError:
                count = _UNKNOWN_ITERATIONS
            total += count * _iterations(stmt.body, names, inner)
        else:
            total += 1 + sum(_iterations(b, names, ranges) for b in bodies(stmt))
    return total


def _most(start: Expr, stop: Expr, step: int, names: Mapping[str, int], ranges: Ranges) -> int:
    """The most iterations of a loop, whatever the values of the variables around it."""
    (start_low, start_high), (stop_low, stop_high) = bounds(start, names, ranges), bounds(stop, names, ranges)
    return len(range(start_low, stop_high, step) if step > 0 else range(start_high, stop_low, step))


def _whole_launches(where: Where, nest: int, names: Mapping[str, int]) -> tuple[Launch, ...]:
    """A nest as one kernel, or one for each stage of its folds."""
    analysis, arrays, ranges = where.analysis, where.arrays, where.ranges
    function, own = analysis.function, analysis.schedule.nests[nest]
    used = {a.name: arrays[a.name] for a in nest_arrays(function, own)}
    extents = [_most(a.start, a.stop, a.step, names, ranges) for a in own.axes]
    facts = facts_of(used, extents)
    entry = kernel_entry(own.name)
    maps = analysis.lowered[nest].maps
    placed = None if maps is None else plan_maps(function, maps, used, names, ranges)
    sweeps = analysis.lowered[nest].sweeps
    found = None if sweeps is None else _plan_folds(function, sweeps, facts, names, ranges)
    graph = None if found is not None else _best_graph(analysis.lowered[nest], facts, own)
    columns, certain = (1, True) if graph is None else _columns(graph, used, names, ranges)
    tile = None if graph is None else plan(function, graph, columns, certain)
    joining = _plan_joins(function, analysis.lowered[nest].joins, facts, used, names, ranges)
    scan = _plan_scan(where, nest, facts, names)
    if placed is not None:
        made = _launch_maps(own, Variant(nest, replace(facts, unused=placed.counted), None, placed.plan), placed)
    elif sweeps is not None and found is not None:
        made = _launch_folds(own, sweeps, Variant(nest, facts, None, found[0]), *found)
    elif joining is not None:
        made = _launch_joins(own, Variant(nest, facts, None, joining[0]), *joining)
    elif scan is not None and (graph is None or scan[0].resident or scan[0].beside):
        made = (_launch_scan(function, analysis.lowered[nest].scans, Variant(nest, facts, None, scan[0]), entry, *scan),)
    elif graph is None or tile is None:
        made = (_launch_threads(Variant(nest, facts, None, plan_threads(own, facts)), entry, extents),)
    else:
        rows = math.prod(_most(a.start, a.stop, a.step, names, ranges) for a in graph.rows)
        variant = Variant(nest, facts, share(graph, 1) if tile.held else graph, tile)
        made = (_launch_rows(variant, tile, entry, rows, columns),)
    return tuple(replace(launch, where=where, steps=where.steps, when=where.when) for launch in made)


def _plan_scan(where: Where, nest: int, facts: Facts, names: Mapping[str, int]) -> tuple[ScanPlan, Extents] | None:
    """The plan of scans; None where their points differ from iteration to iteration of the loops around."""
    scans, ranges = where.analysis.lowered[nest].scans, where.ranges
    if scans is None or any(free_names(e) & ranges.keys() for a in scans.axes.values() for e in (a.start, a.stop)):
        return None
    # what blocks tell each other is told once: not in the iterations of a loop
    machine = None if where.steps else where.machine
    known = {**names, **{v: low for v, (low, _) in ranges.items()}}
    return plan_scan(where.analysis.function, scans, facts, known, machine)


def _plan_joins(
    function: Function,
    joins: Joins | None,
    facts: Facts,
    arrays: Mapping[str, Geometry],
    names: Mapping[str, int],
    ranges: Ranges,
) -> tuple[JoinPlan, tuple[Meeting, ...]] | None:
    """The plan of joins; None where the points of an axis differ from iteration to iteration of the loops around."""
    if joins is None or any(free_names(e) & ranges.keys() for a in joins.axes.values() for e in (a.start, a.stop)):
        return None
    return plan_joins(function, joins, facts, arrays, {**names, **{v: low for v, (low, _) in ranges.items()}})


def _plan_folds(
    function: Function, sweeps: Sweeps, facts: Facts, names: Mapping[str, int], ranges: Ranges
) -> tuple[FoldPlan, Extents] | None:
    """The plan of sweeps, for all values of the variables in ranges."""
    ends = [{**names, **{v: e[k] for v, e in ranges.items()}} for k in (0, 1)]
    if not any(free_names(e) & ranges.keys() for a in sweeps.axes.values() for e in (a.start, a.stop)):
        return plan_folds(function, sweeps, facts, ends[0])
    plans = [p for at in ends if (p := plan_folds(function, sweeps, facts, at)) is not None]
    if not plans:
        return None
    plans = [p for p in plans if not p[0].chunks] or plans  # rows too long for threads to hold them, in some iterations
    folds, extents = max(plans, key=lambda p: (p[0].threads * p[0].vector * p[0].chunks, p[1].rows * p[1].parts))
    inside, most = dict(ranges), {}
    try:
        for a in sweeps.axes.values():
            most[a.name] = _most(a.start, a.stop, 1, names, inside)
            low, high = bounds(a.start, names, inside)[0], bounds(a.stop, names, inside)[1] - 1
            inside[a.name] = (low, max(low, high))
    except KeyError:
        return (folds, extents) if not folds.shared and not folds.chunks else None
    if folds.chunks and most[folds.lane] > folds.threads * folds.vector * folds.chunks:
        return None
    rows = math.prod(most[a] for a in sweeps.rows)
    return replace(folds, exact=False), replace(extents, rows=max(rows, extents.rows))


def _launch_folds(nest: Nest, sweeps: Sweeps, variant: Variant, plan: FoldPlan, extents: Extents) -> tuple[Launch, ...]:
    from weft.emit.folds import entries

    partial: tuple[tuple[str, ScalarType, int], ...] = ()
    if plan.shared:
        memory = [(f.results[0], *part_memory(f)) for f in sweeps.folds]
        partial = tuple((name, type_, words * extents.rows * extents.parts) for name, type_, words in memory)
    block = (plan.threads, plan.teams, 1)
    resident = bool(plan.chunks and sweeps.rows)
    blocks = min(_LARGEST_GRID, extents.blocks)
    return tuple(
        Launch(variant, entry, (blocks, extents.parts if step.shared else 1, 1), block, resident, partial, extents.parts)
        for entry, step in zip(entries(nest, sweeps, plan), steps(sweeps, plan), strict=True)
    )


def _launch_joins(own: Nest, variant: Variant, plan: JoinPlan, met: tuple[Meeting, ...]) -> tuple[Launch, ...]:
    from weft.emit.joins import entries

    block = (JOINING, 1, 1)
    return tuple(
        Launch(variant, name, (m.blocks, 1, 1), block, partial=m.memory, parts=m.count)
        for name, m in zip(entries(own, plan), met, strict=True)
    )


def _launch_maps(nest: Nest, variant: Variant, placed: Placed) -> tuple[Launch, ...]:
    from weft.emit.maps import entries

    return tuple(
        Launch(variant, entry, placed.grids[k], placed.plan.courses[k].block, course=k)
        for k, entry in enumerate(entries(nest, placed.plan))
    )


def _launch_scan(
    function: Function, scans: Scanned | None, variant: Variant, entry: str, plan: ScanPlan, extents: Extents
) -> Launch:
    assert scans is not None
    words = TURNS_TOLD * extents.rows * extents.parts
    partial = tuple((f"{s.names[0]}.told", INT64, words * told_words(s)) for s in scans.scans) if plan.shared else ()
    grid = (min(_LARGEST_GRID, extents.blocks), extents.parts, 1)
    block = (plan.threads, plan.teams, 1)
    ring = ring_bytes(function, scans, plan, variant.facts)
    return Launch(
        variant, entry, grid, block, partial=partial, parts=extents.parts, together=plan.shared, shared=ring
    )


def _launch_threads(variant: Variant, name: str, extents: list[int]) -> Launch:
    assert isinstance(variant.plan, ThreadPlan)
    block = variant.plan.block
    return Launch(variant, name, (min(_LARGEST_GRID, -(-math.prod(extents) // block)), 1, 1), (block, 1, 1))


def _launch_rows(variant: Variant, tile: TilePlan, name: str, rows: int, columns: int) -> Launch:
    threads, teams = team(tile, rows, columns)
    entry = name if tile.held else team_entry(name, threads)
    return Launch(variant, entry, (min(_LARGEST_GRID, -(-rows // teams)), 1, 1), (threads, teams, 1), tile.held)


def _columns(
    graph: BlockGraph, arrays: Mapping[str, Geometry], names: Mapping[str, int], ranges: Ranges
) -> tuple[int, bool]:
    """The most columns of a stage, one at least, and whether no row can have more, nor columns below 0: where data decide how
    many there are, no more than the arrays have that every column loads, if there are such.
    """
    most, certain = 1, True
    for stage in graph.stages():
        try:
            lowest = -_largest(Op("neg", (stage.start,), INT64), graph, names, ranges)
        except KeyError:
            loaded = (o.offset for o in stage.inputs() if o.always and not o.offset.terms)
            lowest = max((-offset.constant for offset in loaded), default=-1)
        certain = certain and lowest >= 0
        try:
            most = max(most, _largest(stage.stop, graph, names, ranges))
        except KeyError:
            bounds, along = [], [1]
            for o in stage.operators:
                if isinstance(o, (Input, Output)) and o.axis is not None:
                    along.append(arrays[o.array].shape[o.axis])
                    if isinstance(o, Input) and o.always and not o.offset.terms:
                        bounds.append(along[-1] - o.offset.constant)
            most = max([most, min(bounds) if bounds else max(along)])
            certain = certain and bool(bounds)
    return most, certain


def _largest(expr: Expr, graph: BlockGraph, names: Mapping[str, int], ranges: Ranges) -> int:
    """The largest value of an expression in any row. Raises KeyError where sizes, integers and rows do not tell it."""
    if affine(expr) is None or not free_names(expr) & {*ranges, *(a.var for a in graph.rows)}:
        return evaluate(expr, names)
    ends = [[(v, low), (v, high)] for v, (low, high) in ranges.items()]
    for a in graph.rows:
        starts, stops = bounds(a.start, names, ranges), bounds(a.stop, names, ranges)
        values = range(starts[0], stops[1], a.step) if a.step > 0 else range(starts[1], stops[0], a.step)
        ends.append([(a.var, values[0]), (a.var, values[-1])] if values else [(a.var, 0)])
    return max(evaluate(expr, {**names, **dict(corner)}) for corner in itertools.product(*ends))


def _best_graph(lowered: Lowered, facts: Facts, nest: Nest) -> BlockGraph | None:
    """The graph whose columns are neighbours in memory for the most arrays; None where an axis of rows is so for more."""
    best: BlockGraph | None = None
    score = 0
    for _, graph in lowered.graphs:
        along = across = 0
        for stage in graph.stages():
            for o in stage.operators:
                if isinstance(o, (Input, Output)) and o.axis is not None:
                    along += (o.array, o.axis) in facts.unit
                    across += (o.array, o.axis) not in facts.unit and any(
                        (o.array, k) in facts.unit and i == _ref(a.var)
                        for k, i in enumerate(o.index) for a in graph.rows
                    )  # fmt: skip
        if best is None and along >= across or along > score:
            best, score = graph, along
    return best


def _ref(var: str) -> Expr:
    from weft.loops.ir import Ref
    from weft.loops.types import INT64

    return Ref(var, INT64)


# ---------------------------------------------------------------- what is left unused


@deep
def unused(analysis: Analysis, launch: Launch, names: Mapping[str, int]) -> tuple[Unused, ...]:
    """The loops of a launch for a call that could run in parallel and do not. names: as of `launches`."""
    variant, at = launch.variant, launch.where
    assert at is not None
    if not isinstance(variant.plan, ThreadPlan | JoinPlan):
        return ()
    nest, lowered = launch.nest, at.analysis.lowered[variant.nest]
    threads = math.prod(_most(a.start, a.stop, a.step, names, at.ranges) for a in nest.axes)
    if lowered.sweeps is not None or (lowered.graphs and threads >= MANY_ROWS):
        return ()  # a thread for each does as well
    inside = in_order(nest, {**names, **{v: most for v, (_, most) in at.ranges.items()}})
    if isinstance(variant.plan, JoinPlan):
        assert lowered.joins is not None
        inside = tuple(loop for loop in inside if loop.var in lowered.joins.inside)
    if not inside:
        return ()
    from weft.loops.show import renamed, user_names

    shown, found = user_names(at.analysis.function), []
    for loop in inside:
        why, where, remedy = _in_the_way(nest, loop, lowered.refused, variant.plan)
        name, why, remedy = (renamed(text, shown) for text in (loop.var, why, remedy))
        found.append(Unused(nest.verdict(loop), name, why, where, remedy))
    return tuple(found)


_ALONE = "write it as a kernel of its own, which takes what is computed before it from arrays and leaves there what it finds"


def _in_the_way(
    nest: Nest, loop: For, refused: Refused | None, plan: ThreadPlan | JoinPlan
) -> tuple[str, Location | None, str]:
    """Why a loop runs in order inside a thread, what is in its way, and what to write instead."""
    around = [o for o in nest.loops() if nest.verdict(o).kind == "sequential" and any(s is loop for s in walk(o.body))]
    if around:
        outer = around[0].var
        step = f"write what is inside {outer} as a kernel of its own, and call it for each {outer}"
        return f"loop {outer} around it runs in order", around[0].location, step
    if isinstance(plan, JoinPlan):
        return f"the bounds of {loop.var} are not the same everywhere", None, ""
    if refused is None:
        return f"neighbours in memory lie along {plan.order[-1]}, so each of them has a thread", None, _ALONE
    beside = [o for o in nest.loops() if not any(s is loop for s in walk((o,))) and not any(s is o for s in walk((loop,)))]
    return refused.why, refused.where, refused.remedy or (_ALONE if beside else "")


# ---------------------------------------------------------------- sources


@deep
def arguments(analysis: Analysis, nest: int, facts: Facts) -> tuple[Slot, ...]:
    """What the kernels of a nest take, on every target."""
    return slots(analysis.function, analysis.schedule.nests[nest], facts)


@deep
def cuda_source(analysis: Analysis, variant: Variant) -> str:
    """The CUDA C++ of a variant; its entry is `weft.emit.names.kernel_entry` of the nest's name."""
    return _recalled(analysis, f"cuda {variant.key}", lambda: _cuda_source(analysis, variant))


@deep
def host_source(analysis: Analysis, nest: int, facts: Facts) -> str:
    """The C++ of a nest; its entry is `weft.emit.names.host_entry` of the nest's name."""
    return _recalled(analysis, f"host {nest} {facts.key}", lambda: _host_source(analysis, nest, facts))


def _recalled(analysis: Analysis, what: str, make: Callable[[], str]) -> str:
    """A text of an analysis, from the disk cache where it is there."""
    if not analysis.key:
        return make()
    key = cache.key("source", analysis.key, what)
    kept = cache.load(key)
    if kept is not None:
        return kept.decode()
    text = make()
    cache.store(key, text.encode())
    return text


def _cuda_source(analysis: Analysis, variant: Variant) -> str:
    nest = analysis.schedule.nests[variant.nest]
    if isinstance(variant.plan, ScanPlan):
        from weft.emit.scans import emit as emit_scans

        scans = analysis.lowered[variant.nest].scans
        assert scans is not None
        return emit_scans(analysis.function, nest, scans, variant.plan, variant.facts)
    if isinstance(variant.plan, FoldPlan):
        from weft.emit.folds import emit as emit_folds
        from weft.emit.held import HeldEntry

        sweeps = analysis.lowered[variant.nest].sweeps
        assert sweeps is not None
        kind = HeldEntry if variant.plan.chunks else None
        return emit_folds(analysis.function, nest, sweeps, variant.plan, variant.facts, kind)
    if isinstance(variant.plan, JoinPlan):
        from weft.emit.joins import emit as emit_joins

        joins = analysis.lowered[variant.nest].joins
        assert joins is not None
        return emit_joins(analysis.function, nest, joins, variant.plan, variant.facts)
    if isinstance(variant.plan, MapPlan):
        from weft.emit.maps import emit as emit_maps

        maps = analysis.lowered[variant.nest].maps
        assert maps is not None
        return emit_maps(analysis.function, nest, maps, variant.plan, variant.facts)
    if variant.graph is None:
        from weft.emit.threads import emit as emit_threads

        assert isinstance(variant.plan, ThreadPlan)
        return emit_threads(analysis.function, nest, variant.plan, variant.facts)
    from weft.emit.cuda import emit

    assert isinstance(variant.plan, TilePlan)
    return emit(analysis.function, nest, variant.graph, variant.plan, variant.facts)


def _host_source(analysis: Analysis, nest: int, facts: Facts) -> str:
    from weft.emit.cpp import emit

    return emit(analysis.function, analysis.schedule.nests[nest], facts)
