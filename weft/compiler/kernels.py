"""A nest as one kernel, or one for each stage of its folds: the first plan that fits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from weft.compiler.launch import Launch, Variant, Where
from weft.compiler.points import most_points
from weft.emit import entries
from weft.emit.names import kernel_entry
from weft.graph.chains import Chain
from weft.graph.joins import Joins
from weft.graph.outer_states import OuterStates
from weft.graph.recurrences import Recurrences
from weft.graph.scans import Scanned
from weft.graph.state_scans import StateScans
from weft.graph.sweeps import Sweeps
from weft.graph.tile import Axis, Read
from weft.loops.algebra.table import LINEAR
from weft.loops.intervals import Ranges, bounds
from weft.loops.ir import For, Function, free_names
from weft.loops.schedule import Nest
from weft.loops.types import INT64, ScalarType
from weft.plan.arguments import Facts, nest_arrays
from weft.plan.asked import ASKING, ROWS, Asked, asked_loops, tile_of
from weft.plan.chain import PARTS_BLOCK, ChainPlan, chain_boxes, looked_at, parts_of, pieces_of, plan_chain, turns_of
from weft.plan.chain import shared_bytes as chain_bytes
from weft.plan.extents import extents_of, fits
from weft.plan.facts import Geometry, facts_of
from weft.plan.fold import (
    BLOCK,
    WARP,
    Extents,
    FoldPlan,
    held_reads,
    is_run,
    part_bytes,
    part_memory,
    plan_columns,
    plan_folds,
    plan_parts,
    row_bytes,
    same_reads,
    share_memory,
    steps,
)
from weft.plan.join import JoinPlan, Meeting, dependent_steps, plan_joins
from weft.plan.map import MapPlan, Placed, plan_maps
from weft.plan.outer_states import OuterExtents, OuterPlan, outer_memory, outer_steps, plan_outer_states
from weft.plan.outer_states import shared_bytes as outer_bytes
from weft.plan.product import (
    PACK_BLOCK,
    ProductPlan,
    boxes_of,
    pack_blocks,
    packed_elements,
    packed_name,
    packed_type,
    told_words,
)
from weft.plan.product import shared_bytes as product_bytes
from weft.plan.product_search import plan_products
from weft.plan.quotients import Short, short_of_graph, short_of_statements
from weft.plan.recurrence import RecurrenceExtents, RecurrencePlan, plan_recurrences, recurrence_memory
from weft.plan.recurrence import shared_bytes as recurrence_bytes
from weft.plan.scan import TURNS_TOLD, ScanPlan, block_threads, plan_scan, ring_bytes
from weft.plan.scan import told_words as told_words_of_scan
from weft.plan.several import plan_several
from weft.plan.state_scan import StateExtents, StatePlan, plan_states, shared_bytes, state_memory
from weft.plan.threads import ThreadPlan, plan_sharing, plan_threads
from weft.plan.wavefront import plan_wavefront

_LARGEST_GRID = (1 << 31) - 1
_RARE_GRID = 256  # blocks that mostly find that there is nothing to do
# Plans whose texts await what is launched before them.
_AWAITING = (ChainPlan, FoldPlan, MapPlan, ProductPlan, ScanPlan, ThreadPlan)
_MOST_CORNERS = 16  # first and last values of loops around, for which plans are made


def whole_launches(where: Where, nest: int, names: Mapping[str, int]) -> tuple[Launch, ...]:
    """A nest as one kernel, or one for each stage of its folds."""
    analysis, arrays, ranges = where.analysis, where.arrays, where.ranges
    function, own = analysis.function, analysis.schedule.nests[nest]
    used = {a.name: arrays[a.name] for a in nest_arrays(function, own)}
    extents = [most_points(a.start, a.stop, a.step, names, ranges) for a in own.axes]
    facts = replace(facts_of(used, extents), short=_short(where, nest, names))
    entry = kernel_entry(own.name)
    if analysis.lowered[nest].wavefront is not None:
        return (_launch_wavefront(where, Variant(nest, facts, plan_threads(own, facts, math.prod(extents))), extents, names),)
    maps = analysis.lowered[nest].maps
    placed = None if maps is None else plan_maps(function, maps, used, names, ranges, where.leaning)
    sweeps = analysis.lowered[nest].sweeps
    if sweeps is not None and not fits(sweeps.axes, sweeps.box, names, arrays):
        sweeps = None
    for first in (nest - 1, nest):
        joint = _joint_launches(where, first, names) or _launches_at_once(where, first, names)
        if joint is not None:
            return (joint[nest - first],)
    row_folds = None if where.leaning.apart else analysis.lowered[nest].row_folds
    products = sweeps or row_folds
    multiplied = None if products is None else _plan_products(where, products, facts, used, names)
    found = None if sweeps is None or multiplied is not None else _plan_folds(where, sweeps, facts, used, names)
    joining = _plan_joins(function, analysis.lowered[nest].joins, facts, used, names, ranges)
    scan = _plan_scan(where, nest, facts, names)
    chained = _plan_chain(where, analysis.lowered[nest].chain, facts, used, names)
    grown = _plan_outer(where, nest, facts, names)
    ordered = _plan_recurrences(where, nest, names)
    in_order = ordered is not None and (lies_apart(where, nest, facts) or _dear(where, nest, *ordered))
    states = None if in_order else _plan_states(where, nest, facts, names)
    if placed is not None:
        made = _launch_maps(own, Variant(nest, replace(facts, unused=placed.counted), placed.plan), placed)
    elif products is not None and multiplied is not None:
        facts = replace(facts, without=frozenset(used) - products.arrays)
        made = _launch_products(function, own, products, Variant(nest, facts, multiplied[0]), used, names, *multiplied)
    elif sweeps is not None and found is not None:
        facts = replace(facts, without=frozenset(used) - sweeps.arrays)
        made = _launch_folds(function, own, sweeps, Variant(nest, facts, found[0]), *found)
    elif joining is not None:
        made = _launch_joins(own, Variant(nest, facts, joining[0]), *joining)
    elif grown is not None:
        outer = analysis.lowered[nest].outer
        assert outer is not None
        facts = replace(facts, without=frozenset(used) - outer.found.arrays)
        made = _launch_outer(function, own, outer, Variant(nest, facts, grown[0]), *grown)
    elif states is not None:
        scanned = analysis.lowered[nest].states
        assert scanned is not None
        facts = replace(facts, without=frozenset(used) - scanned.arrays)
        made = _launch_states(function, own, scanned, Variant(nest, facts, states[0]), *states)
    elif scan is not None:
        scanned_rows = analysis.lowered[nest].scans
        assert scanned_rows is not None
        facts = replace(facts, without=frozenset(used) - scanned_rows.arrays)
        made = (_launch_scan(function, scanned_rows, Variant(nest, facts, scan[0]), entry, *scan),)
    elif chained is not None:
        chain, plan, blocks = chained
        facts = replace(facts, without=frozenset(used) - chain.arrays)
        made = _launch_chain(chain, own, Variant(nest, facts, plan), used, names, blocks)
    elif ordered is not None:
        carried = analysis.lowered[nest].recurrences
        assert carried is not None
        facts = replace(facts, without=frozenset(used) - carried.arrays)
        made = _launch_recurrences(own, carried, Variant(nest, facts, ordered[0]), *ordered)
    else:
        threads = plan_threads(own, facts, math.prod(extents))
        made = (_launch_threads(Variant(nest, facts, threads), entry, extents, _RARE_GRID if own.rare else _LARGEST_GRID),)
    alone = where.steps or where.when or made[0].zero  # memory is 0 when all before has ended
    if not alone and isinstance(made[0].variant.plan, _AWAITING):
        variant = replace(made[0].variant, overlaps=True, first=where.first, crowded=_crowds(where, made))
        made = tuple(replace(one, variant=variant) for one in made)
        made = (replace(made[0], dependent=True, first=where.first), *made[1:])
    return tuple(replace(launch, where=where, steps=where.steps, when=where.when) for launch in made)


def _crowds(where: Where, made: tuple[Launch, ...]) -> bool:
    """Whether a call is one launch of more blocks than multiprocessors: those of the next such call, begun early, crowd on the
    ones that are free first. Blocks that stay do not: a multiprocessor has room for no more of them than its share.
    """
    alone = where.first and len(where.analysis.schedule.nests) == len(made) == 1
    plan = made[0].variant.plan
    stays = isinstance(plan, ProductPlan) and plan.resident > 0
    return alone and not stays and math.prod(made[0].grid) > where.machine.multiprocessors


def _short(where: Where, nest: int, names: Mapping[str, int]) -> Short:
    """The quotients of a nest that 32 bits hold in a call."""
    lowered, own = where.analysis.lowered[nest], where.analysis.schedule.nests[nest]
    graphs = lowered.maps, lowered.sweeps, lowered.joins, lowered.scans, lowered.states, lowered.recurrences
    found = dict(short_of_statements((*own.around(), *own.body), names, where.ranges))
    for graph in graphs:
        found |= {} if graph is None else dict(short_of_graph(graph, names, where.ranges))
    return tuple(found.items())


def shared_launches(where: Where, launch: Launch, names: Mapping[str, int]) -> tuple[Launch, ...] | None:
    """The launch with a block for each iteration, whose threads share the loops inside; None where these are no such loops."""
    extents = [most_points(a.start, a.stop, a.step, names, where.ranges) for a in launch.nest.axes]
    found = plan_sharing(where.analysis.function, launch.nest, launch.variant.facts, math.prod(extents))
    if found is None:
        return None
    return _in_threads(where, launch, replace(launch.variant, plan=found), extents)


def several_launches(where: Where, launch: Launch, names: Mapping[str, int]) -> tuple[Launch, ...] | None:
    """The launch of a thread for each iteration, or row, with threads that take several, or whose blocks ask what reaches them;
    None where that saves too little.
    """
    plan, mapped = launch.variant.plan, isinstance(launch.variant.plan, MapPlan)
    alone = (isinstance(plan, ThreadPlan) and not plan.shared) or (isinstance(plan, FoldPlan) and _alone(plan))
    nest, machine = launch.nest, where.machine
    extents = [most_points(a.start, a.stop, a.step, names, where.ranges) for a in nest.axes]
    asked: tuple[Asked, ...] = ()
    if alone or (isinstance(plan, FoldPlan) and _of_teams(plan) and math.prod(extents) >= machine.multiprocessors * ASKING):
        asked = asked_loops(where.analysis.function, nest)
        asked = tuple(a for a in asked if most_points(a.start, a.stop, 1, names, where.ranges) >= ROWS)
    if not (alone or mapped or asked):
        return None
    facts = replace(launch.variant.facts, unused=frozenset(), without=frozenset())
    apart = {v for a in asked for v in a.axes}
    found = plan_several(where.analysis.function, nest, facts, extents, machine.multiprocessors, mapped, apart)
    if found is None and asked:
        found = plan_threads(nest, facts, math.prod(extents))
    if found is None:
        return None
    var, many = found.several
    counts = {a.var: -(-n // many) if a.var == var else n for a, n in zip(nest.axes, extents, strict=True)}
    if asked:
        found = replace(found, tile=tile_of(found.order, asked, counts, found.block))
    tile = dict(found.tile)
    blocks = [-(-n // tile.get(v, 1)) for v, n in counts.items()]
    return _in_threads(where, launch, replace(launch.variant, facts=facts, plan=found), blocks)


def _in_threads(where: Where, launch: Launch, variant: Variant, extents: list[int]) -> tuple[Launch, ...]:
    """A launch of threads that stands for another one. extents: how many threads, or blocks, each axis has."""
    own = _launch_threads(variant, launch.entry, extents)
    return (replace(own, where=where, steps=where.steps, when=where.when, dependent=launch.dependent, first=launch.first),)


def _of_teams(plan: FoldPlan) -> bool:
    """Whether rows have some threads of a block each."""
    return plan.cluster == 1 and not (plan.shared or plan.chunks or plan.resident or plan.longer)


def _alone(plan: FoldPlan) -> bool:
    """Whether a thread goes through each row by itself."""
    return plan.threads == 1 and _of_teams(plan)


def _vary(axes: Iterable[Axis], ranges: Ranges) -> bool:
    """Whether the points of some axes differ from iteration to iteration of the loops around, whose variables have ranges."""
    return any(free_names(e) & ranges.keys() for a in axes for e in (a.start, a.stop))


def _plan_scan(where: Where, nest: int, facts: Facts, names: Mapping[str, int]) -> tuple[ScanPlan, Extents] | None:
    """The plan of scans; None where their rows differ from iteration to iteration of the loops around."""
    scans, ranges = where.analysis.lowered[nest].scans, where.ranges
    if scans is None or any(free_names(e) & ranges.keys() for a in scans.rows for e in scans.bounds(a)):
        return None
    # what blocks tell each other is told once: not in the iterations of a loop
    machine = None if where.steps else where.machine
    return plan_scan(where.analysis.function, scans, facts, names, machine, where.leaning)


def _plan_states(
    where: Where, nest: int, facts: Facts, names: Mapping[str, int]
) -> tuple[StatePlan, StateExtents] | None:
    """The plan of scans of many states; None where their points differ from iteration to iteration of the loops around."""
    states, ranges = where.analysis.lowered[nest].states, where.ranges
    if states is None or _vary(states.axes.values(), ranges):
        return None
    known = {**names, **{v: low for v, (low, _) in ranges.items()}}
    return plan_states(where.analysis.function, states, facts, known, where.machine)


def lies_apart(where: Where, nest: int, facts: Facts) -> bool:
    """Whether what is read of each state lies apart from point to point: tiles of points would come in single elements."""
    scans = where.analysis.lowered[nest].states
    if scans is None:
        return False
    reads = [v for v in scans.values if isinstance(v, Read) and {scans.along, *scans.states} <= {*v.axes}]
    return any(not is_run(v.array, v.index, scans.along, facts) for v in reads)


def _dear(where: Where, nest: int, plan: RecurrencePlan, extents: RecurrenceExtents) -> bool:
    """Whether points of states of several values that need each other are composed as matrices, which takes far longer than
    their steps, and there are rows enough to go through the points of all of them in order.
    """
    scans = where.analysis.lowered[nest].states
    several = scans is not None and any(s.algebra == LINEAR for s in (*scans.early, *scans.scans))
    return several and extents.blocks(plan) >= where.machine.multiprocessors


def _plan_recurrences(where: Where, nest: int, names: Mapping[str, int]) -> tuple[RecurrencePlan, RecurrenceExtents] | None:
    """The plan of recurrences; None where their rows differ from iteration to iteration of the loops around."""
    found = where.analysis.lowered[nest].recurrences
    if found is None or _vary(found.axes.values(), where.ranges):
        return None
    return plan_recurrences(where.analysis.function, found, names, where.machine)


def _plan_outer(where: Where, nest: int, facts: Facts, names: Mapping[str, int]) -> tuple[OuterPlan, OuterExtents] | None:
    """The plan of states that grow by outer products; None where their rows differ from iteration to iteration of the loops
    around.
    """
    outer = where.analysis.lowered[nest].outer
    if outer is None or _vary(outer.found.axes.values(), where.ranges):
        return None
    return plan_outer_states(where.analysis.function, outer, facts, names, where.machine)


def _plan_joins(
    function: Function,
    joins: Joins | None,
    facts: Facts,
    arrays: Mapping[str, Geometry],
    names: Mapping[str, int],
    ranges: Ranges,
) -> tuple[JoinPlan, tuple[Meeting, ...]] | None:
    """The plan of joins; None where the points of an axis differ from iteration to iteration of the loops around."""
    if joins is None or _vary(joins.axes.values(), ranges):
        return None
    return plan_joins(function, joins, facts, arrays, names)


def _plan_folds(
    where: Where, sweeps: Sweeps, facts: Facts, arrays: Mapping[str, Geometry], names: Mapping[str, int]
) -> tuple[FoldPlan, Extents] | None:
    """The plan of sweeps, for all values of the variables in ranges."""
    function, ranges, machine, leaning = where.analysis.function, where.ranges, where.machine, where.leaning
    corners = itertools.product(*(dict.fromkeys(ranges[v]) for v in ranges))
    ends = [{**names, **dict(zip(ranges, corner, strict=True))} for corner in itertools.islice(corners, _MOST_CORNERS)]
    if not _vary(sweeps.axes.values(), ranges):
        return plan_folds(function, sweeps, facts, ends[0], machine, leaning, arrays)
    plans = [p for at in ends if (p := plan_folds(function, sweeps, facts, at, machine, leaning)) is not None]
    if not plans:
        return None
    plans = [p for p in plans if not p[0].chunks] or plans  # rows too long for threads to hold them, in some iterations
    folds, extents = max(plans, key=lambda p: (p[0].holds, p[1].rows * p[1].parts))
    inside, most = dict(ranges), {}
    try:
        for a in sorted(sweeps.axes.values(), key=lambda a: a.name not in sweeps.rows):
            most[a.name] = most_points(a.start, a.stop, 1, names, inside)
            low, high = bounds(a.start, names, inside)[0], bounds(a.stop, names, inside)[1] - 1
            inside[a.name] = (low, max(low, high))
    except KeyError:
        if folds.shared or folds.chunks or not most.keys() >= set(sweeps.rows):
            return None
    if folds.chunks and most[folds.lane] > folds.holds:
        return None
    folds = replace(folds, whole=0, narrow=False, longer=0, shares=0)  # who looks for longer rows has as many in all iterations
    ends_of_rows = [e for a in sweeps.rows for e in (sweeps.axes[a].start, sweeps.axes[a].stop)]
    if not any(free_names(e) & ranges.keys() for e in ends_of_rows):
        return folds, extents
    rows = max(extents.rows, math.prod(most[a] for a in sweeps.rows))
    return replace(folds, fewer=True), replace(extents, rows=rows, blocks=max(extents.blocks, folds.blocks(most)))


def _plan_products(
    where: Where, sweeps: Sweeps, facts: Facts, arrays: Mapping[str, Geometry], names: Mapping[str, int]
) -> tuple[ProductPlan, Extents] | None:
    """The plan of products; None where their axes differ from iteration to iteration of the loops around."""
    if _vary(sweeps.axes.values(), where.ranges):
        return None
    return plan_products(where.analysis.function, sweeps, facts, names, where.machine, arrays)


def _plan_chain(
    where: Where, chain: Chain | None, facts: Facts, arrays: Mapping[str, Geometry], names: Mapping[str, int]
) -> tuple[Chain, ChainPlan, int] | None:
    """The plan of chained products; None where their axes differ from iteration to iteration of the loops around."""
    if chain is None or _vary(chain.axes.values(), where.ranges):
        return None
    found = plan_chain(where.analysis.function, chain, facts, names, where.machine, arrays, where.leaning)
    return None if found is None else (found[0].arranged(chain), *found)


def _launch_chain(
    chain: Chain,
    nest: Nest,
    variant: Variant,
    arrays: Mapping[str, Geometry],
    names: Mapping[str, int],
    blocks: int,
) -> tuple[Launch, ...]:
    plan = variant.plan
    assert isinstance(plan, ChainPlan)
    extents = extents_of(chain.axes, names)
    boxes, shared = chain_boxes(chain, plan, arrays, extents), chain_bytes(plan, chain)
    tiles = math.prod(extents[a] for a in chain.sums.batch) * -(-extents[chain.row] // plan.step)
    turns = turns_of(chain, plan, names, arrays) if plan.skips else 0
    partial = parts_of(chain, plan, tiles, turns) if plan.leaves_parts or plan.counts else ()
    names_of_entries, block = entries.of_chain(nest, plan), (PARTS_BLOCK, 1, 1)
    launch = Launch(
        variant, names_of_entries[0], (blocks, 1, 1), (plan.threads, 1, 1), partial=partial, shared=shared, boxes=boxes,
        cluster=plan.cluster,
    )  # fmt: skip
    if plan.counts:
        grid = (max(turns, 1) if plan.taken else -(-tiles // PARTS_BLOCK), 1, 1)
        launch = replace(launch, parts=blocks if plan.taken else 1)
        before = Launch(variant, names_of_entries[0], grid, block, partial=partial, parts=launch.parts)
        if plan.skips and (looked := looked_at(chain, plan)):  # a turn's tiles of these operands
            before = replace(before, shared=sum(b.bytes for b in looked), boxes=boxes)
        return before, replace(launch, entry=names_of_entries[1], dependent=True)
    if plan.meeting == "after":
        grid = (tiles * pieces_of(plan), 1, 1)
        return launch, Launch(variant, names_of_entries[1], grid, block, partial=partial, dependent=True)
    return (launch,)


def _launch_products(
    function: Function,
    nest: Nest,
    sweeps: Sweeps,
    variant: Variant,
    arrays: Mapping[str, Geometry],
    names: Mapping[str, int],
    plan: ProductPlan,
    extents: Extents,
) -> tuple[Launch, ...]:
    found = plan.arranged(sweeps)
    sizes = extents_of(found.sweeps.axes, names)
    ring = 0 if plan.by_threads or plan.streamed else product_bytes(plan, found)
    boxes = boxes_of(function, found, plan, arrays, sizes) if plan.boxes else ()
    partial, grids = [], []
    for k in range(len(found.operands)):
        if plan.packed and plan.packed[k]:
            type_, elements = packed_type(function, plan, found, found.operands[k]), packed_elements(plan, found, k, sizes)
            partial.append((packed_name(found, k), type_, elements))
            grids.append(pack_blocks(function, plan, found, k, variant.facts, sizes))
    if plan.leaves_parts:
        squares = extents.parts
        partial += [(f"{f.names[0]}.parts", f.types[0], squares * plan.parts * math.prod(plan.tile[:2])) for f in found.folds]
        grids.append(extents.blocks)
    if plan.across > 1:
        told = extents.parts * plan.tile[0]
        partial += [(f"{f.names[0]}.told", INT64, told * told_words(f)) for stage in found.across for f in stage]
    grids.append(extents.parts * plan.pieces if plan.leaves_parts else extents.blocks)
    product = len(grids) - (2 if plan.leaves_parts else 1)  # before it what packs operands, after it what combines parts
    launches = []
    for k, (entry, blocks) in enumerate(zip(entries.of_products(nest, plan), grids, strict=True)):
        threads = plan.threads if k == product else PACK_BLOCK if k < product else WARP * plan.combining
        own = Launch(
            variant, entry, (blocks, 1, 1), (threads, 1, 1), partial=tuple(partial), dependent=k > 0, together=plan.across > 1
        )
        launches.append(replace(own, shared=ring, boxes=boxes, cluster=plan.cluster) if k == product else own)
    return tuple(launches)


def _launch_folds(
    function: Function, nest: Nest, sweeps: Sweeps, variant: Variant, plan: FoldPlan, extents: Extents
) -> tuple[Launch, ...]:
    partial: tuple[tuple[str, ScalarType, int], ...] = ()
    if plan.shared:
        memory = [(f.results[0], *part_memory(f)) for f in sweeps.folds]
        partial = tuple((name, type_, words * extents.rows * extents.parts) for name, type_, words in memory)
    block = (BLOCK, 1, 1) if plan.longer else (plan.threads, plan.teams, 1)
    blocks = min(_LARGEST_GRID // plan.cluster * plan.cluster, extents.blocks)
    grids = {"": blocks, "share": extents.longer, "join": extents.longer}
    if plan.shares:
        partial = tuple(share_memory(function, sweeps, plan, extents))
    reads = held_reads(plan.arranged(sweeps), plan.lane) if plan.inside else ()
    shared = sum(part_bytes(plan, function.array(v.array).dtype.size) for v in reads)
    made = [
        Launch(
            variant, entry, (grids[step.longer], extents.parts if step.shared else 1, 1), block, partial=partial,
            parts=extents.parts, cluster=plan.cluster, shared=shared, dependent=k > 0,
        )
        for k, (entry, step) in enumerate(zip(entries.of_folds(nest, sweeps, plan), steps(sweeps, plan), strict=True))
    ]  # fmt: skip
    return tuple(made)


def _joint_launches(where: Where, nest: int, names: Mapping[str, int]) -> tuple[Launch, Launch] | None:
    """Rows that are held and folds of their columns: one launch goes through all points, one combines what its blocks have."""
    analysis = where.analysis
    columns = analysis.lowered[nest].columns if 0 <= nest < len(analysis.lowered) else None
    if columns is None or where.steps or where.ranges:
        return None
    facts, sweeps = [], []
    for k in (nest, nest + 1):
        own, its = analysis.schedule.nests[k], analysis.lowered[k].sweeps
        assert its is not None
        used = {a.name: where.arrays[a.name] for a in nest_arrays(analysis.function, own)}
        told = facts_of(used, [most_points(a.start, a.stop, a.step, names, {}) for a in own.axes])
        facts.append(replace(told, without=frozenset(used) - its.arrays))
        sweeps.append(its)
    folds = columns.folds
    held = plan_columns(analysis.function, sweeps[0], columns, facts[0], names, where.machine, where.arrays)
    combined = plan_folds(analysis.function, sweeps[1], facts[1], names, where.machine, where.leaning)
    if held is None or combined is None or not combined[0].beside:
        return None
    (rows, extents), (below, across) = held, plan_parts(*combined, where.machine)
    partial = tuple((f.results[0], f.types[0], across.rows * extents.parts) for f in folds)
    inside = replace(where, path=str(nest))  # what one leaves and the other one takes is the same memory
    arranged = rows.arranged(sweeps[0])
    waiting = rows.stages * row_bytes(analysis.function, rows, held_reads(arranged, rows.lane))
    waiting += row_bytes(analysis.function, rows, same_reads(arranged, rows))
    found = [
        Launch(
            Variant(k, fact, plan, overlaps=True, first=k == 0), entry, (blocks, 1, 1), (plan.threads, plan.teams, 1),
            partial=partial, parts=extents.parts, shared=shared, dependent=True,
        )
        for k, fact, its, plan, blocks, shared in zip(
            (nest, nest + 1), facts, sweeps, (rows, below), (extents.blocks, across.blocks), (waiting, 0), strict=True
        )
        for entry in entries.of_folds(analysis.schedule.nests[k], its, plan)
    ]  # fmt: skip
    return replace(found[0], where=inside, first=nest == 0), replace(found[1], where=inside)


def _launches_at_once(where: Where, nest: int, names: Mapping[str, int]) -> tuple[Launch, Launch] | None:
    """A nest that maps what the next one folds: one launch goes through all points, one combines what its blocks have; None
    where nobody shares rows, or they come in no packets.
    """
    analysis = dict(where.analysis.at_once).get(nest)
    if analysis is None or where.steps or where.ranges or _joint_launches(where, nest + 1, names) is not None:
        return None
    (own,), (lowered,) = analysis.schedule.nests, analysis.lowered
    sweeps = lowered.sweeps
    assert sweeps is not None
    used = {a.name: where.arrays[a.name] for a in nest_arrays(analysis.function, own)}
    facts = facts_of(used, [most_points(a.start, a.stop, a.step, names, {}) for a in own.axes])
    found = plan_folds(analysis.function, sweeps, facts, names, where.machine, arrays=used)
    if found is None or not found[0].shared or not found[0].beside or found[0].vector == 1:
        return None
    inside = replace(where, analysis=analysis, path=str(nest))  # what one leaves and the other one takes is the same memory
    facts = replace(facts, without=frozenset(used) - sweeps.arrays)
    variant = Variant(0, facts, found[0], overlaps=True, first=nest == 0)
    through, combined = _launch_folds(analysis.function, own, sweeps, variant, *found)
    return replace(through, where=inside, dependent=True, first=nest == 0), replace(combined, where=inside)


def _launch_joins(own: Nest, variant: Variant, plan: JoinPlan, met: tuple[Meeting, ...]) -> tuple[Launch, ...]:
    return tuple(
        Launch(variant, name, m.grid, m.block, partial=m.memory, parts=m.count, dependent=dependent)
        for name, m, dependent in zip(entries.of_joins(own, plan), met, dependent_steps(plan), strict=True)
    )


def _launch_maps(nest: Nest, variant: Variant, placed: Placed) -> tuple[Launch, ...]:
    return tuple(
        Launch(variant, entry, placed.grids[k], placed.plan.courses[k].block, course=k, dependent=k > 0)
        for k, entry in enumerate(entries.of_maps(nest, placed.plan))
    )


def _launch_scan(
    function: Function, scans: Scanned, variant: Variant, entry: str, plan: ScanPlan, extents: Extents
) -> Launch:
    words = max(TURNS_TOLD, plan.kept if plan.cluster > 1 else 0) * extents.rows * extents.parts
    partial = tuple((f"{s.names[0]}.told", INT64, words * told_words_of_scan(s)) for s in scans.scans) if plan.shared else ()
    grid = (min(_LARGEST_GRID, extents.blocks), extents.parts, 1)
    block = (plan.threads, plan.teams, 1)
    if plan.cluster > 1:  # of blocks that share rows
        grid, block = (extents.blocks * extents.parts, 1, 1), (block_threads(scans, plan), 1, 1)
    ring = ring_bytes(function, scans, plan, variant.facts)
    return Launch(
        variant, entry, grid, block, partial=partial, parts=extents.parts, zero=plan.shared, together=plan.shared, shared=ring,
        cluster=plan.cluster,
    )  # fmt: skip


def _launch_states(
    function: Function, nest: Nest, scans: StateScans, variant: Variant, plan: StatePlan, extents: StateExtents
) -> tuple[Launch, ...]:
    groups = extents.groups(plan)
    partial = tuple(state_memory(scans, plan, extents))
    points = extents.others * extents.states * extents.length
    found = []
    for entry in entries.of_states(nest, scans):
        own = plan if entry == kernel_entry(nest.name) else plan.apart
        after = entry.endswith("_after")
        blocks = -(-points // (own.threads * own.teams)) if after else extents.groups(own) * extents.others
        shared = 0 if after else shared_bytes(function, scans, own, variant.facts, extents.states, meets=own is plan)
        grid, block = (min(_LARGEST_GRID, blocks), 1, 1), (own.threads, own.teams, 1)
        found.append(Launch(variant, entry, grid, block, partial=partial, parts=groups, shared=shared))
    return tuple(found)


def _launch_recurrences(
    nest: Nest, found: Recurrences, variant: Variant, plan: RecurrencePlan, extents: RecurrenceExtents
) -> tuple[Launch, ...]:
    partial = tuple(recurrence_memory(found, plan, extents))
    launches = []
    for entry in entries.of_states(nest, found):
        grid, block = (extents.blocks(plan), 1, 1), (plan.threads, plan.teams, 1)
        if entry.endswith("_after"):
            grid, block = (-(-extents.others * extents.length * extents.states // BLOCK), 1, 1), (BLOCK, 1, 1)
        shared = recurrence_bytes(found, plan) if entry == kernel_entry(nest.name) else 0
        launches.append(Launch(variant, entry, grid, block, partial=partial, parts=extents.groups(plan), shared=shared))
    return tuple(launches)


def _launch_outer(
    function: Function, nest: Nest, found: OuterStates, variant: Variant, plan: OuterPlan, extents: OuterExtents
) -> tuple[Launch, ...]:
    partial = tuple(outer_memory(found, plan, extents))
    return tuple(
        Launch(
            variant, step.entry, (extents.blocks(plan, step), 1, 1), (32 * step.warps(found, plan), 1, 1), partial=partial,
            parts=extents.sharing(plan, step), shared=outer_bytes(function, found, plan, variant.facts, step), dependent=k > 0,
        )
        for k, step in enumerate(outer_steps(found, plan, kernel_entry(nest.name)))
    )  # fmt: skip


def _launch_wavefront(where: Where, variant: Variant, extents: Sequence[int], names: Mapping[str, int]) -> Launch:
    """The wavefront of a nest."""
    nest, items = where.analysis.schedule.nests[variant.nest], math.prod(extents)
    ranges = dict(where.ranges)
    for a in nest.axes:
        ends = (*bounds(a.start, names, ranges), *bounds(a.stop, names, ranges))
        ranges[a.var] = min(ends), max(ends)
    loop = nest.body[-1]
    assert isinstance(loop, For) and isinstance(variant.plan, ThreadPlan)
    rows = most_points(loop.start, loop.stop, loop.step, names, ranges)
    plan, strips, blocks = plan_wavefront(variant.plan.order, items, rows, where.machine)
    partial = (("told", INT64, max(1, items) * strips),) if plan.shared else ()
    return Launch(
        replace(variant, plan=plan), kernel_entry(nest.name), (min(_LARGEST_GRID, items), blocks, 1), (plan.threads, 1, 1),
        partial=partial, parts=strips, zero=plan.shared, together=plan.shared, where=where, steps=where.steps,
        when=where.when,
    )  # fmt: skip


def _launch_threads(variant: Variant, name: str, extents: list[int], most: int = _LARGEST_GRID) -> Launch:
    assert isinstance(variant.plan, ThreadPlan)
    block, iterations = variant.plan.block, math.prod(extents)
    blocks = iterations if variant.plan.shared or variant.plan.tile else -(-iterations // block)
    return Launch(variant, name, (min(most, blocks), 1, 1), (block, 1, 1))
