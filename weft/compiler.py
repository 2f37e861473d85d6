"""The road from a function to kernels, in two halves.

`analyze` depends on the types of the arguments alone and is kept on disk: normal form, dependences, schedule, block
graphs, and what a call must satisfy. `variant` decides, for the sizes, strides and addresses of one call, how each nest
runs; kernels are compiled for variants. Importing this module is quick: the analysis is imported when it is needed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from weft.emit.names import kernel_entry
from weft.errors import Location
from weft.graph.block import BlockGraph, Input, Output
from weft.graph.joins import Joins
from weft.graph.sweeps import Sweeps
from weft.loops.affine import affine, evaluate
from weft.loops.ir import Expr, For, Function, Op, free_names, walk
from weft.loops.schedule import Nest, Requirement, Schedule, Verdict
from weft.loops.types import INT64, ScalarType
from weft.plan.arguments import Facts, Slot, nest_arrays, slots
from weft.plan.facts import Geometry, facts_of
from weft.plan.fold import MANY_ROWS, Extents, FoldPlan, plan_folds, steps
from weft.plan.join import BLOCK as JOINING
from weft.plan.join import JoinPlan, Meeting, plan_joins
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
    values that it joins to elements which the data choose. refused: why it has none of them.
    """

    graphs: tuple[tuple[str, BlockGraph], ...]
    why_not: str = ""
    sweeps: Sweeps | None = None
    joins: Joins | None = None
    refused: Refused | None = None


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
    from weft.graph.lower import NotRows, column_axes, lower

    graphs = []
    why = ""
    columns = [""] if nest.loops() else [a.var for a in column_axes(nest)]
    for column in columns or [""]:
        try:
            graph = lower(schedule.function, nest, column)
        except NotRows as reason:
            why = str(reason)
            continue
        validate(graph)
        graphs.append((column, graph))
    found = _sweeps(schedule, nest)
    if isinstance(found, Sweeps):
        return Lowered(tuple(graphs), why, sweeps=found)
    if isinstance(found, Joins):
        return Lowered(tuple(graphs), why, joins=found)
    return Lowered(tuple(graphs), why, refused=found or (Refused(why) if why else None))


def _sweeps(schedule: Schedule, nest: Nest) -> Sweeps | Joins | Refused | None:
    """The sweeps of a nest that folds, or its joins, or why it has none; None where it is asked for none."""
    kinds = {nest.verdict(loop).kind for loop in nest.loops()}
    if "reduction" not in kinds or not kinds <= {"reduction", "parallel"}:
        return None
    from weft.graph.build import build
    from weft.graph.joins import joins
    from weft.graph.sweeps import sweeps
    from weft.graph.tile import NotTiles

    try:
        graph = build(schedule, nest)
        if any(w.join for w in graph.writes):
            return joins(graph, schedule.function)
        return sweeps(graph, {s.name for s in schedule.function.sizes})
    except NotTiles as no:
        return Refused(no.why, no.where, no.remedy)


# ---------------------------------------------------------------- variants


@dataclass(frozen=True)
class Variant:
    """How one nest runs for some calls: tiles of a block graph, sweeps, or a thread for each iteration of the axes."""

    nest: int
    facts: Facts
    graph: BlockGraph | None
    plan: TilePlan | FoldPlan | JoinPlan | ThreadPlan

    @property
    def key(self) -> str:
        """A text that tells the variants of an analysis apart."""
        columns = None if self.graph is None else [s.column for s in self.graph.stages()]
        return f"{self.nest} {columns} {self.facts.key} {self.plan!r}"


@dataclass(frozen=True)
class Launch:
    """A launch of a variant for one call: the entry of its source, grid and block.

    resident: blocks go from row to row, so no more of them than fit at a time. partial: (name, type, elements) of the memory
    that the launches of the variant share; a pointer each follows the slots of `arguments`, and then `parts`.
    """

    variant: Variant
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    resident: bool = False
    partial: tuple[tuple[str, ScalarType, int], ...] = ()
    parts: int = 1


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


_LARGEST_GRID, _MOST_TILES = (1 << 31) - 1, (1 << 16) - 1


@deep
def launches(
    analysis: Analysis, nest: int, arrays: Mapping[str, Geometry], names: Mapping[str, int]
) -> tuple[Launch, ...]:
    """The variant of a nest for a call on CUDA, and its launches in order. names: the values of sizes and integer scalars."""
    function, own = analysis.function, analysis.schedule.nests[nest]
    used = {a.name: arrays[a.name] for a in nest_arrays(function, own)}
    extents = [_count(a.start, a.stop, a.step, names) for a in own.axes]
    facts = facts_of(used, extents)
    graph = _best_graph(analysis.lowered[nest], facts, own)
    entry = kernel_entry(own.name)
    sweeps = analysis.lowered[nest].sweeps
    found = None if sweeps is None else plan_folds(function, sweeps, facts, names)
    columns, certain = (1, True) if graph is None else _columns(graph, used, names)
    tile = None if graph is None else plan(function, graph, columns, certain)
    if sweeps is not None and found is not None:
        once = found[0].arranged(sweeps).read_once  # so holding a row would save nothing
        if tile is None or not tile.held or found[0].shared or found[0].chunks or once:
            return _launch_folds(own, sweeps, Variant(nest, facts, None, found[0]), *found)
    joins = analysis.lowered[nest].joins
    joining = None if joins is None else plan_joins(function, joins, facts, used, names)
    if joining is not None:
        return _launch_joins(own, Variant(nest, facts, None, joining[0]), *joining)
    if graph is None or tile is None:
        return (_launch_threads(Variant(nest, facts, None, plan_threads(own, facts)), entry, extents),)
    rows = math.prod(_count(a.start, a.stop, a.step, names) for a in graph.rows)
    variant = Variant(nest, facts, share(graph, 1) if tile.held else graph, tile)
    return ((_launch_spread if tile.spread else _launch_rows)(variant, tile, entry, rows, columns),)


def _launch_folds(nest: Nest, sweeps: Sweeps, variant: Variant, plan: FoldPlan, extents: Extents) -> tuple[Launch, ...]:
    from weft.emit.folds import entries

    partial = tuple((f.results[0], f.types[0], extents.rows * extents.parts) for f in sweeps.folds) if plan.shared else ()
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


def _launch_threads(variant: Variant, name: str, extents: list[int]) -> Launch:
    assert isinstance(variant.plan, ThreadPlan)
    block = variant.plan.block
    return Launch(variant, name, (min(_LARGEST_GRID, -(-math.prod(extents) // block)), 1, 1), (block, 1, 1))


def _launch_rows(variant: Variant, tile: TilePlan, name: str, rows: int, columns: int) -> Launch:
    threads, teams = team(tile, rows, columns)
    entry = name if tile.held else team_entry(name, threads)
    return Launch(variant, entry, (min(_LARGEST_GRID, -(-rows // teams)), 1, 1), (threads, teams, 1), tile.held)


def _launch_spread(variant: Variant, tile: TilePlan, name: str, rows: int, columns: int) -> Launch:
    """Threads across the columns as far as they go, the rest of a block down the rows."""
    per_thread = tile.vector * tile.chunks
    across = min(tile.block, 1 << (max(1, -(-columns // per_thread)) - 1).bit_length())
    tiles = -(-columns // (across * per_thread))
    assert variant.graph is not None
    if not variant.graph.rows:
        return Launch(variant, name, (min(_LARGEST_GRID, tiles), 1, 1), (across, 1, 1))
    down = tile.block // across
    grid = (min(_LARGEST_GRID, -(-rows // down)), min(_MOST_TILES, tiles), 1)
    return Launch(variant, name, grid, (across, down, 1))


def _count(start: Expr, stop: Expr, step: int, names: Mapping[str, int]) -> int:
    return len(range(evaluate(start, names), evaluate(stop, names), step))


def _columns(graph: BlockGraph, arrays: Mapping[str, Geometry], names: Mapping[str, int]) -> tuple[int, bool]:
    """The most columns of a stage, one at least, and whether no row can have more, nor columns below 0: where data decide how
    many there are, no more than the arrays have that every column loads, if there are such.
    """
    most, certain = 1, True
    for stage in graph.stages():
        try:
            lowest = -_largest(Op("neg", (stage.start,), INT64), graph, names)
        except KeyError:
            loaded = (o.offset for o in stage.inputs() if o.always and not o.offset.terms)
            lowest = max((-offset.constant for offset in loaded), default=-1)
        certain = certain and lowest >= 0
        try:
            most = max(most, _largest(stage.stop, graph, names))
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


def _largest(expr: Expr, graph: BlockGraph, names: Mapping[str, int]) -> int:
    """The largest value of an expression in any row. Raises KeyError where sizes, integers and rows do not tell it."""
    if affine(expr) is None or not free_names(expr) & {a.var for a in graph.rows}:
        return evaluate(expr, names)
    ends = []
    for a in graph.rows:
        values = range(evaluate(a.start, names), evaluate(a.stop, names), a.step)
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
    variant = launch.variant
    if not isinstance(variant.plan, ThreadPlan):
        return ()
    nest, lowered = analysis.schedule.nests[variant.nest], analysis.lowered[variant.nest]
    threads = math.prod(_count(a.start, a.stop, a.step, names) for a in nest.axes)
    if lowered.sweeps is not None or (lowered.graphs and threads >= MANY_ROWS):
        return ()  # a thread for each does as well
    inside = in_order(nest, names)
    if not inside:
        return ()
    from weft.loops.show import renamed, user_names

    shown, found = user_names(analysis.function), []
    for loop in inside:
        why, where, remedy = _in_the_way(nest, loop, lowered.refused, variant.plan)
        name, why, remedy = (renamed(text, shown) for text in (loop.var, why, remedy))
        found.append(Unused(nest.verdict(loop), name, why, where, remedy))
    return tuple(found)


_ALONE = "write it as a kernel of its own, which takes what is computed before it from arrays and leaves there what it finds"


def _in_the_way(nest: Nest, loop: For, refused: Refused | None, plan: ThreadPlan) -> tuple[str, Location | None, str]:
    """Why a loop runs in order inside a thread, what is in its way, and what to write instead."""
    around = [o for o in nest.loops() if nest.verdict(o).kind == "sequential" and any(s is loop for s in walk(o.body))]
    if around:
        outer = around[0].var
        step = f"write what is inside {outer} as a kernel of its own, and call it for each {outer}"
        return f"loop {outer} around it runs in order", around[0].location, step
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
