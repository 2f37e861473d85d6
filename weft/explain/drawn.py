"""A launch as a person would draw it: what it reads, makes and writes, and where each of these is kept."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from weft.compiler import Launch
from weft.emit import entries
from weft.emit.names import kernel_entry
from weft.graph.blocks import Blocks
from weft.graph.chains import Chain
from weft.graph.joins import Joins, Points
from weft.graph.maps import Course, read_at_need
from weft.graph.outer_states import Meeting, OuterStates, Taken
from weft.graph.products import Products
from weft.graph.recurrences import Recurrences
from weft.graph.scans import Scanned
from weft.graph.show import Spelling
from weft.graph.state_scans import StateScans
from weft.graph.sweeps import Sweeps
from weft.graph.tile import Fold, Map, Moved, Read, Scan, Value, Write, names_of, uses, uses_of_write
from weft.loops.ir import Expr, free_names
from weft.loops.show import renamed, user_names
from weft.plan.block import BlockPlan
from weft.plan.chain import ChainPlan
from weft.plan.extents import extents_of
from weft.plan.fold import FoldPlan, held_reads, steps
from weft.plan.join import JoinPlan, PointsPlan, join_steps
from weft.plan.map import CoursePlan, MapPlan
from weft.plan.outer_states import OuterPlan, OuterStep, numbers, outer_steps
from weft.plan.product import ProductPlan, operand_reads
from weft.plan.recurrence import RecurrencePlan
from weft.plan.scan import ScanPlan, ring_reads
from weft.plan.state_scan import StatePlan
from weft.plan.traffic import Access, Traffic, traffic


@dataclass(frozen=True)
class Drawn:
    """values: each value and write of a launch as `m{i} = max over j of x{i,j}`, with where it is kept and what makes it.
    traffic: the bytes of memory that it moves.
    """

    values: tuple[tuple[str, str], ...]
    traffic: Traffic


@dataclass(frozen=True)
class _Homed:
    """A value or a write of a launch. sweeps: how often it is read or made."""

    what: Value | Write
    home: str
    sweeps: int = 1


def drawn(launch: Launch, numbers: Mapping[str, int]) -> Drawn | None:
    """What a launch computes; None where a thread goes through loops as they are. numbers: the values of sizes and integers."""
    where, plan = launch.where, launch.variant.plan
    assert where is not None
    lowered = where.analysis.lowered[launch.variant.nest]
    if isinstance(plan, MapPlan) and lowered.maps is not None:
        course = read_at_need(lowered.maps.courses[launch.course], plan.courses[launch.course].at_need)
        made: Sequence[Value] = course.values
        axes, homed = {a.name: a for a in course.axes}, _of_maps(launch, course, plan.courses[launch.course])
    elif isinstance(plan, FoldPlan) and lowered.sweeps is not None:
        sweeps = plan.arranged(lowered.sweeps)
        made, axes, homed = sweeps.values, dict(sweeps.axes), _of_sweeps(launch, lowered.sweeps, plan)
    elif isinstance(plan, ProductPlan) and lowered.multiplied is not None:
        if launch.entry != entries.of_products(launch.nest, plan)[sum(plan.packed)]:
            return None  # what packs operands, or combines parts
        found = plan.arranged(lowered.multiplied)
        made, axes, homed = found.sweeps.values, dict(found.sweeps.axes), _of_products(found, plan)
    elif isinstance(plan, BlockPlan) and lowered.blocks is not None:
        made, axes, homed = lowered.blocks.graph.values, lowered.blocks.axes, _of_blocks(lowered.blocks, plan)
    elif isinstance(plan, ChainPlan) and lowered.chain is not None:
        if launch.entry != entries.of_chained_products(launch.nest, plan):
            return None  # what combines parts, or tells that none is there
        chain = plan.arranged(lowered.chain)
        made, axes, homed = chain.values, dict(chain.axes), _of_chain(chain, plan)
    elif isinstance(plan, ScanPlan) and lowered.scans is not None:
        made, axes, homed = lowered.scans.values, dict(lowered.scans.axes), _of_scans(launch, lowered.scans, plan)
    elif isinstance(plan, StatePlan) and lowered.states is not None and not launch.entry.endswith(("_before", "_after")):
        made, axes, homed = lowered.states.values, dict(lowered.states.axes), _of_states(lowered.states)
    elif isinstance(plan, OuterPlan) and lowered.outer is not None:
        entry = kernel_entry(launch.nest.name)
        own = next(s for s in outer_steps(lowered.outer, plan, entry) if s.entry == launch.entry)
        if not own.takes:
            return None  # what blocks leave for each other
        made, axes = lowered.outer.found.values, dict(lowered.outer.found.axes)
        homed = _of_outer_states(lowered.outer, own)
    elif isinstance(plan, RecurrencePlan) and lowered.recurrences is not None:
        made, axes = lowered.recurrences.values, dict(lowered.recurrences.axes)
        homed = _of_recurrences(lowered.recurrences)
    elif isinstance(plan, JoinPlan) and lowered.joins is not None:
        step = dict(zip(entries.of_joins(launch.nest, plan), join_steps(plan), strict=True))[launch.entry]
        group, points = lowered.joins.groups[step.group], plan.groups[step.group]
        if not isinstance(points, PointsPlan):
            return None
        group = group if isinstance(group, Points) else group.unordered()
        made, axes, homed = lowered.joins.values, dict(lowered.joins.axes), _of_points(lowered.joins, group, points)
    else:
        return None
    values, spelling, shown = tuple(homed), Spelling(made), user_names(where.analysis.function)
    lines = tuple((renamed(_text(spelling, h.what), shown), h.home) for h in values)
    known = {**numbers, **{v: most for v, (_, most) in where.ranges.items()}}
    return Drawn(lines, traffic(_accesses(values), where.arrays, extents_of(axes, known), known))


def _text(spelling: Spelling, what: Value | Write) -> str:
    return spelling.write(what) if isinstance(what, Write) else spelling.value(what)


def _accesses(values: Sequence[_Homed]) -> Iterator[Access]:
    for h in values:
        if isinstance(h.what, Read):
            yield Access(h.what.array, h.what.index, h.what.axes, sweeps=h.sweeps)
        elif isinstance(h.what, Write):
            yield Access(h.what.array, h.what.index, h.what.axes, True)


# ---------------------------------------------------------------- by the kind of plan


def _of_maps(launch: Launch, course: Course, plan: CoursePlan) -> Iterator[_Homed]:
    lane = set(plan.lane)
    accesses = [*(v for v in course.values if isinstance(v, Read)), *course.writes]
    for what in (*course.values, *course.writes):
        if isinstance(what, Map):
            yield _Homed(what, "registers" if set(what.axes) & lane else _once("a register", what.axes))
            continue
        k = next(k for k, a in enumerate(accesses) if a is what)
        parts = 1 + any(k in pair for pair in plan.pairs)
        each = _moved(launch, what.array, plan.widths[k] * parts)
        if isinstance(what, Write):
            yield _Homed(what, f"memory, {each}")
        elif k in plan.turns_over:
            yield _Homed(what, f"shared memory, a square of {plan.side} x {plan.side}, {each}")
        else:
            yield _Homed(what, f"registers, {each}" if set(what.axes) & lane else _once("a register", what.axes))


def _once(home: str, axes: Collection[str]) -> str:
    """What a row has one of."""
    return f"{home}, once a row" if axes else f"{home}, once"


def _of_sweeps(launch: Launch, sweeps: Sweeps, plan: FoldPlan) -> Iterator[_Homed]:
    rows = set(plan.rows)
    step = dict(zip(entries.of_folds(launch.nest, sweeps, plan), steps(sweeps, plan), strict=True))[launch.entry]
    arranged = plan.arranged(sweeps)
    own = [s for k in step.stages for s in arranged.stages[k]]
    folded = [f for s in own for f in s.folds]
    writes = [*(w for s in own for w in s.writes), *(arranged.last if step.ends else ())]
    made = {n: v for v in arranged.values for n in names_of(v)}
    counts = [_reached([e for f in s.folds for e in (*f.parts, *f.inits)] + _written(s.writes), made) for s in own]
    counts.append(_reached(_written(arranged.last if step.ends else ()), made))
    held = {r.name for r in held_reads(arranged, plan.lane, plan.alike)} if plan.chunks else set()
    for value in arranged.values:
        times = sum(any(n in c for n in names_of(value)) for c in counts)
        if isinstance(value, Fold):
            if value in folded:
                yield _Homed(value, _folded(launch, plan, value, sweeps))
        elif not times:
            continue
        elif set(value.axes) <= rows:
            yield _Homed(value, _once("a register", value.axes))
        elif isinstance(value, Map):
            yield _Homed(value, "registers")
        elif value.name in held:
            whole = "shared memory, all that a block has of a row, by a bulk copy"
            yield _Homed(value, whole if plan.inside else "registers, all that a thread has of a row, read once")
        else:
            again = f", in {times} sweeps" if times > 1 else ""
            yield _Homed(value, f"registers, {_moved(launch, value.array, plan.vector)}{again}", times)
    for write in writes:
        along = not set(write.axes) <= rows
        each = _moved(launch, write.array, plan.vector)
        yield _Homed(write, f"memory, {each}" if along else _once("memory", write.axes))


def _written(writes: Sequence[Write]) -> list[Expr]:
    return [e for w in writes for e in uses_of_write(w)]


def _reached(exprs: Sequence[Expr], made: Mapping[str, Value]) -> set[str]:
    """The names that expressions need, without what folds themselves need."""
    found: set[str] = set()
    pending = [n for e in exprs for n in free_names(e)]
    while pending:
        name = pending.pop()
        if name in made and name not in found:
            found.add(name)
            if not isinstance(made[name], (Fold, Scan)):
                pending += [n for e in uses(made[name]) for n in free_names(e)]
    return found


def _of_products(found: Products, plan: ProductPlan) -> Iterator[_Homed]:
    operands = {v.name for o in found.operands for v in operand_reads(found, o)}
    folded = {n for f in found.folds for n in f.results}
    for v in found.sweeps.values:
        if isinstance(v, Fold) and folded.isdisjoint(v.results):
            yield _Homed(v, "registers, of the four threads of a row")
        elif isinstance(v, Fold):
            yield _Homed(v, f"registers, {plan.each[0]} x {plan.each[1]} a thread")
        else:
            tiled = v.name in operands and v.name not in folded and not plan.streamed
            yield _Homed(v, "shared memory, by tiles" if tiled else "registers")
    for w in found.sweeps.last:
        yield _Homed(w, f"memory, {plan.vector} together" if plan.vector > 1 else "memory")


def _of_blocks(found: Blocks, plan: BlockPlan) -> Iterator[_Homed]:
    kept = {t.value: t for t in plan.tiles}
    for v in found.graph.values:
        tile = next((kept[n] for n in names_of(v) if n in kept), None)
        home = "registers"
        if isinstance(v, Fold):
            home = "fragments of warps" if v.results[0] in found.multiplied else "a state a thread, then of lanes"
        copied = f"copied to shared memory at {tile.offset}" if tile and isinstance(v, Read) else ""
        yield _Homed(v, copied or (f"{home}, then shared memory at {tile.offset}" if tile else home))
    for w in found.graph.writes:
        yield _Homed(w, "memory")


def _of_chain(found: Chain, plan: ChainPlan) -> Iterator[_Homed]:
    boxes = {n for p in (found.scores, found.sums) for o in p.operands for n in free_names(o.value)}
    results = {f.results[0] for f in (*found.scores.folds, *found.sums.folds)}
    for v in found.values:
        if isinstance(v, Read) and v.name in boxes:
            yield _Homed(v, "shared memory, by tiles")
        elif isinstance(v, Fold) and v.results[0] in results:
            scores = any(v.results == f.results for f in found.scores.folds)
            yield _Homed(v, f"registers, 64 x {plan.sums.tile[2] if scores else plan.sums.tile[1]} a warpgroup")
        else:
            yield _Homed(v, "registers, of the four threads of a row" if isinstance(v, Fold) else "registers")
    for w in found.sums.sweeps.last:
        yield _Homed(w, f"memory, {plan.sums.vector} together" if plan.sums.vector > 1 else "memory")
    for w in found.writes:
        yield _Homed(w, "memory, once a row")


def _folded(launch: Launch, plan: FoldPlan, fold: Fold, sweeps: Sweeps) -> str:
    """Who combines the states of a fold."""
    threads = plan.threads // plan.across[0][0] if plan.beside else plan.threads
    home = "a state a thread"
    if threads > 1:
        home += ", then of lanes" if threads <= 32 else ", then of lanes and warps"
    if plan.running and any(s.repair(fold) for t in plan.arranged(sweeps).stages for s in t):
        home += ", relative to the extremum so far"
    return home + (f"; the parts of {launch.parts:,} blocks in memory" if plan.shared else "")


def _of_scans(launch: Launch, scans: Scanned, plan: ScanPlan) -> Iterator[_Homed]:
    assert launch.where is not None
    ring = ring_reads(launch.where.analysis.function, scans, plan, launch.variant.facts) if plan.stages else ()
    for value in scans.values:
        if isinstance(value, Read) and scans.along in value.axes:
            if value in ring:
                how = "copies of all threads" if plan.beside and plan.cluster == 1 else "bulk copies"
                yield _Homed(value, f"shared memory, {plan.stages} tiles, by {how}")
            else:
                yield _Homed(value, f"registers, a tile ahead, {_moved(launch, value.array, plan.vector)}")
        elif isinstance(value, Scan):
            how = "a thread's points composed, then those of lanes" + (" and warps" if plan.threads > 32 else "")
            yield _Homed(value, how + (f", then those of {launch.parts:,} blocks" if plan.shared else ""))
        elif isinstance(value, Fold):
            yield _Homed(value, "a state a thread, then of the row's")
        elif isinstance(value, Moved):
            yield _Homed(value, "registers")
        else:
            yield _Homed(value, "registers" if scans.along in value.axes else _once("a register", value.axes))
    for write in scans.writes:
        yield _Homed(write, f"memory, {_moved(launch, write.array, plan.vector)}")
    for write in scans.last:
        yield _Homed(write, _once("memory", write.axes))


def _of_states(scans: StateScans) -> Iterator[_Homed]:
    each = f", anew for each {' and '.join(scans.states)}"
    for value in scans.values:
        along, own = scans.along in value.axes, bool(set(value.axes) & set(scans.states))
        if isinstance(value, Scan):
            yield _Homed(value, "registers: a thread's points composed, then those of lanes; shared memory between tiles")
        elif value in scans.totals:
            yield _Homed(value, "registers, one for each point")
        elif isinstance(value, Fold):
            yield _Homed(value, "shared memory, folded by the block")
        elif along:
            yield _Homed(value, "registers, a thread's points of the tile" + (each if own else ""))
        else:
            yield _Homed(value, f"a register{each}" if own else _once("a register", value.axes))
    for write in (*scans.writes, *scans.ends):
        yield _Homed(write, "memory" if scans.along in write.axes else _once("memory", write.axes))


def _of_recurrences(found: Recurrences) -> Iterator[_Homed]:
    for value in found.values:
        own = "registers" if found.state in value.axes else "a register"
        if isinstance(value, Read) and found.along in value.axes:
            yield _Homed(value, f"{own}, from shared memory, where it is read ahead")
        elif isinstance(value, Scan):
            yield _Homed(value, f"{own}, which stay")
        else:
            yield _Homed(value, own if found.along in value.axes else _once(own, value.axes))
    for write in (*found.writes, *found.ends):
        yield _Homed(write, "memory" if found.along in write.axes else _once("memory", write.axes))


def _of_outer_states(found: OuterStates, step: OuterStep) -> Iterator[_Homed]:
    """Of a launch that goes through one of the scans."""
    last = step.growth == len(found.growths) - 1
    taken: list[Taken | Meeting] = [*found.taken_of(step.growth), *(found.meetings if last else ())]
    needed = _reached(
        [
            *(e for e in (*found.operands(step.growth), *numbers(found, step).values())),
            *(e for w, own in found.writes if own in taken for e in uses_of_write(w)),
        ],
        {n: v for v in found.found.values for n in names_of(v)},
    )
    scan = found.growths[step.growth].scan
    for value in found.found.values:
        if value == scan:
            yield _Homed(value, "registers, and shared memory as sums of three bfloat16")
        elif isinstance(value, Fold) and value in [own.fold for own in taken]:
            yield _Homed(value, "registers, by products of matrices")
        elif isinstance(value, Read | Map) and value.name in needed:
            home = "shared memory, a chunk ahead" if found.found.along in value.axes else _once("a register", value.axes)
            yield _Homed(value, home)
    for write, own in found.writes:
        if own in taken:
            yield _Homed(write, "memory")
    for write in found.found.ends if last else ():
        yield _Homed(write, _once("memory", write.axes))


def _of_points(whole: Joins, group: Points, plan: PointsPlan) -> Iterator[_Homed]:
    needed = _reached(_written(group.writes), {n: v for v in whole.values for n in names_of(v)})
    for value in whole.values:
        if value.name in needed:
            yield _Homed(value, "registers")
    own = {o.array for o in plan.own}
    for write in group.writes:
        first = "shared memory first, then " if write.array in own else ""
        yield _Homed(write, f"{first}memory, by atomics" if write.join else "memory")


def _moved(launch: Launch, array: str, elements: int) -> str:
    """How many bytes an instruction moves of an array."""
    assert launch.where is not None
    if elements <= 1:
        return "an element at a time" if elements else "packets that are shifted"
    return f"{elements * launch.where.analysis.function.array(array).dtype.size} bytes at a time"
