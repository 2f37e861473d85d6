"""Nests that follow each other as one launch, whose blocks keep what they tell each other."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from weft.compiler.analysis import Analysis, Lowered, Refused
from weft.compiler.launch import Launch, Variant, Where
from weft.emit.names import kernel_entry
from weft.graph.tile import NotTiles, Read, Write
from weft.loops.ir import Ref
from weft.loops.schedule import Schedule
from weft.loops.types import INT64
from weft.plan.arguments import Facts, nest_arrays
from weft.plan.block import REACHED, BlockPlan, Pinned, plan_block, work
from weft.plan.chain import ChainPlan
from weft.plan.extents import extents_of
from weft.plan.facts import facts_of
from weft.plan.product import ProductPlan
from weft.runtime import cache

# Seconds that a launch takes at the least, among others: of products, and of anything else. (Measured on an H200.)
PRODUCT_SECONDS, OTHER_SECONDS = 2.6e-6, 1.2e-6
# What part of the time of separate launches one may take at the most; what these multiply by tensor cores in a second.
GAIN, PRODUCTS_A_SECOND = 0.9, 3e14


def runs(schedule: Schedule) -> Iterator[tuple[int, int]]:
    """The first and the last of nests that tell each other something through arrays of the call's own, or of one alone, with
    several loops that fold.
    """
    function, nests = schedule.function, schedule.nests
    own = {a.name for a in function.arrays if a.role == "local" and not a.within}
    touched = [{a.name for a in nest_arrays(function, n)} for n in nests]
    first = 0
    for k in range(len(nests)):
        if k + 1 < len(nests) and own & touched[k + 1] & set().union(*touched[first : k + 1]):
            continue
        run = nests[first : k + 1]
        kinds = [n.verdict(loop).kind for n in run for loop in n.loops()]
        if not any(n.rare for n in run) and {*kinds} <= {"parallel", "reduction"} and kinds.count("reduction") > 1:
            yield first, k
        first = k + 1


# The first and the last of nests, and all of them as one nest, or why they are none.
Run = tuple[int, int, Analysis | Refused]
_runs: dict[int, tuple[Analysis, tuple[Run, ...]]] = {}  # the analysis is kept, so that its id stays its own


def runs_as_blocks(analysis: Analysis) -> tuple[Run, ...]:
    """The nests that may be one launch. From the disk cache where it is there: only calls on a GPU ask for it."""
    known = _runs.get(id(analysis))
    if known is None:
        found: tuple[Run, ...] = ()
        if any(True for _ in runs(analysis.schedule)):
            key = cache.key("blocks", analysis.key) if analysis.key else ""
            kept = cache.load(key) if key else None
            found = _recalled(kept) if kept is not None else tuple(_as_blocks(analysis))
            if key and kept is None:
                cache.store(key, pickle.dumps(found, protocol=pickle.HIGHEST_PROTOCOL))
        known = _runs[id(analysis)] = analysis, found
    return known[1]


def _recalled(kept: bytes) -> tuple[Run, ...]:
    try:
        found = pickle.loads(kept)
    except Exception:  # written by another Python: nests are launches of their own
        return ()
    return found if isinstance(found, tuple) else ()


def _as_blocks(analysis: Analysis) -> Iterator[Run]:
    from weft.graph.blocks import blocks
    from weft.graph.build import build
    from weft.graph.needs import refuse_unused
    from weft.loops.together import together

    schedule = analysis.schedule
    for first, last in runs(schedule):
        key = f"{analysis.key} {first} to {last}" if analysis.key else ""
        nest = together(schedule.nests[first : last + 1])
        own = replace(schedule, nests=(nest,))
        try:
            refuse_unused(schedule.function, nest)
            found = blocks(build(own, nest), schedule.function)
            if len(found.folds) > 1:
                yield first, last, Analysis(own, (), (Lowered(blocks=found),), key=key)
        except NotTiles as no:
            if last > first or schedule.function.tiles:
                yield first, last, Refused(no.why, no.where, no.remedy)


# The analysis is kept, so that its id stays its own; of what says why there is no plan the reason alone: an exception has the
# frames of the call that met it, and these the tensors of that call.
_known: dict[object, tuple[Analysis, BlockPlan | Refused]] = {}
_MOST_KNOWN = 256


# The launches of a nest by itself.
Separate = Callable[[int], tuple[Launch, ...]]


def block_launches(where: Where, nest: int, names: Mapping[str, int], separate: Separate) -> tuple[Launch, ...] | None:
    """The launch of the nests of which this one is, none where it is not the first of these; None where they are separate."""
    found = next((run for run in runs_as_blocks(where.analysis) if run[0] <= nest <= run[1]), None)
    if found is None or where.steps or where.ranges:
        return None
    first, last, analysis = found
    alone = first == last and where.leaning.apart  # several nests lean together, or one of them would be left out
    if isinstance(analysis, Refused) or alone:
        return None
    plan = planned(where, analysis, names, lambda: [one for k in range(first, last + 1) for one in separate(k)])
    if isinstance(plan, Refused):
        return None
    return (launch_of(where, first, analysis, plan, names),) if nest == first else ()


def why_apart(where: Where, nest: int, names: Mapping[str, int]) -> str:
    """Why a nest is a launch by itself, and not one with those after it; "" where nobody would expect that."""
    found = next((run for run in runs_as_blocks(where.analysis) if run[0] == nest), None)
    if found is None or where.steps or where.ranges:
        return ""
    first, last, analysis = found
    if isinstance(analysis, Refused):
        return analysis.why
    _, plan = _known.get(_key(where, analysis, names), (analysis, None))
    return plan.why if isinstance(plan, Refused) and (last > first or analysis.function.tiles) else ""


def facts_for(where: Where, analysis: Analysis) -> Facts:
    """What is true of the arrays that nests together touch in a call."""
    (own,) = analysis.schedule.nests
    return facts_of({a.name: where.arrays[a.name] for a in nest_arrays(analysis.function, own) if a.name in where.arrays}, [])


def _key(where: Where, analysis: Analysis, names: Mapping[str, int]) -> object:
    numbers = tuple(sorted((n, v) for n, v in names.items() if isinstance(v, int)))
    return id(analysis), facts_for(where, analysis).key, numbers, where.machine


def planned(
    where: Where, analysis: Analysis, names: Mapping[str, int], separate: Callable[[], Sequence[Launch]]
) -> BlockPlan | Refused:
    """The plan, or why there is none that is worth it. separate: the launches that there would be."""
    (lowered,) = analysis.lowered
    assert lowered.blocks is not None
    key, facts = _key(where, analysis, names), facts_for(where, analysis)
    if key not in _known:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        try:
            pinned = pinned_of(analysis, names)
            limit = math.inf if pinned is not None else GAIN * apart(where, analysis, names, separate())
            plan = plan_block(analysis.function, lowered.blocks, facts, names, where.machine, pinned, limit)
            _known[key] = analysis, plan
        except NotTiles as no:
            _known[key] = analysis, Refused(no.why, no.where, no.remedy)
    return _known[key][1]


def pinned_of(analysis: Analysis, names: Mapping[str, int]) -> Pinned | None:
    """The cuts that the program asks for, of the axes that are subscripts of its arrays there. Raises NotTiles."""
    blocks = analysis.lowered[0].blocks
    assert blocks is not None
    if not analysis.function.tiles:
        return None
    extents = extents_of(blocks.axes, names)
    found: dict[str, dict[str, int]] = {"grid": {}, "turns": {}}
    for array, dim, by, parts in analysis.function.tiles:
        if array not in blocks.arrays:
            raise NotTiles(f"{array} is no array that they read or write in memory, so no tiles of it can be asked for")
        for item in (*blocks.graph.values, *blocks.graph.writes):
            at = item.index[dim] if isinstance(item, Read | Write) and item.array == array else None
            if isinstance(at, Ref) and at.type == INT64 and at.name in blocks.axes:
                found[by][at.name] = -(-extents[at.name] // parts)
    return Pinned(tuple(found["grid"].items()), tuple(found["turns"].items()))


def apart(where: Where, analysis: Analysis, names: Mapping[str, int], launches: Sequence[Launch]) -> float:
    """About how many seconds separate launches take."""
    blocks = analysis.lowered[0].blocks
    assert blocks is not None
    moved, multiplied = work(analysis.function, blocks, extents_of(blocks.axes, names))
    each = [PRODUCT_SECONDS if isinstance(one.variant.plan, ProductPlan | ChainPlan) else OTHER_SECONDS for one in launches]
    return sum(each) + max(moved / (REACHED * where.machine.bandwidth), multiplied / PRODUCTS_A_SECOND)


def launch_of(where: Where, first: int, analysis: Analysis, plan: BlockPlan, names: Mapping[str, int]) -> Launch:
    """The one launch of nests that follow each other. first: the number of the first one."""
    (own,), (lowered,) = analysis.schedule.nests, analysis.lowered
    assert lowered.blocks is not None
    inside = frozenset(a.name for a in nest_arrays(analysis.function, own)) - lowered.blocks.arrays
    facts = replace(facts_for(where, analysis), without=inside)
    variant = Variant(0, facts, plan, overlaps=True, first=first == 0)
    together = replace(where, analysis=analysis, path=f"{first} together")
    blocks = plan.grid(extents_of(lowered.blocks.axes, names))
    return Launch(
        variant, kernel_entry(own.name), (blocks, 1, 1), (plan.threads, 1, 1), shared=plan.shared, dependent=True,
        first=first == 0, where=together,
    )  # fmt: skip
