"""Nests taken apart around the loops that stay in order, with the analyses of their parts."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from weft.compiler.analysis import Analysis, Lowered, lower_graph, lower_nest
from weft.compiler.settled import asks_no_more, in_passes
from weft.loops.ir import Array, For, Function, walk
from weft.loops.names import Names, names_bound_in
from weft.loops.schedule import Nest, Schedule, Verdict
from weft.loops.steps import Apart, Part, bare, expanded, one_after_another, taken_apart, with_folds
from weft.loops.wavefronts import wavefront, wavefront_of
from weft.plan.arguments import nest_arrays
from weft.runtime import cache

if TYPE_CHECKING:
    from weft.graph.stages import Stages
    from weft.graph.tile import TileGraph


@dataclass(frozen=True)
class Repeated:
    """Parts of a nest that run one after another, as `weft.loops.steps` has them, and their analyses.
    memory: the arrays that they have beside those of the nest's own function.
    """

    parts: tuple[tuple[Part, Analysis], ...]
    memory: tuple[Array, ...]


_known: dict[tuple[str, int, int], tuple[Analysis, Repeated | None]] = {}


def repeated(analysis: Analysis, nest: int) -> Repeated | None:
    """A nest taken apart around the loops that stay in order; None where it is one kernel. From the disk cache where it is
    there: only calls on a GPU with enough to do ask for it.
    """
    return _kept("repeated", analysis, nest, _repeat)


def skewed(analysis: Analysis, nest: int) -> Repeated | None:
    """A nest as its wavefronts, and what is before, between and after them; None where it has none."""
    return _kept("skewed", analysis, nest, _skew)


def staged(analysis: Analysis, nest: int) -> Repeated | None:
    """A nest whose scans need sums over the states of others, one after another; None where it has no such, or where one of
    the stages is nothing that threads share.
    """
    from weft.graph.stages import stages

    return _kept("staged", analysis, nest, lambda analysis, nest: _in_graphs(analysis, nest, stages))


def turned(analysis: Analysis, nest: int) -> Repeated | None:
    """A nest whose scans have points that lie apart, with what they read and write turned; None where it has no such."""
    from weft.graph.along import along_memory

    return _kept("turned", analysis, nest, lambda analysis, nest: _in_graphs(analysis, nest, along_memory))


def reaching(analysis: Analysis, nest: int) -> Repeated | None:
    """A nest whose elements look for the rows that reach them; None where it joins no values by ranges that data decide."""
    return _kept("reaching", analysis, nest, _reach)


def _kept(
    what: str, analysis: Analysis, nest: int, make: Callable[[Analysis, int], Repeated | None]
) -> Repeated | None:
    """What is made of a nest, from the disk cache where it is there."""
    known = _known.get((what, id(analysis), nest))
    if known is None:  # the analysis is kept, so that its id stays its own
        key = cache.key(what, analysis.key, str(nest)) if analysis.key else ""
        found = _recalled_repeated(key)
        if found is None:
            found = (make(analysis, nest),)
            if key:
                cache.store(key, pickle.dumps(found, protocol=pickle.HIGHEST_PROTOCOL))
        known = _known[what, id(analysis), nest] = (analysis, found[0])
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
    ways: dict[str, Callable[[], Apart | None]] = {
        "pass": lambda: _in_passes(analysis, nest),
        "stored": lambda: expanded(analysis.function, own),
        "folds": lambda: with_folds(analysis.function, own, _own_arrays(analysis, nest)),
        "part": lambda: taken_apart(analysis.function, own, _own_arrays(analysis, nest)),
    }
    for what, way in ways.items():
        apart = way()
        found = None if apart is None else _analysed(analysis, nest, apart, what)
        if found is not None and not (what == "folds" and not any(map(_has_states, found.parts))):
            return found
    return None


def _own_arrays(analysis: Analysis, nest: int) -> frozenset[str]:
    """The local arrays that a nest alone touches; none in a part, whose others may touch them."""
    function, nests = analysis.function, analysis.schedule.nests
    if not function.parameters and not function.results:
        return frozenset()
    others = {a.name for k, n in enumerate(nests) if k != nest for a in nest_arrays(function, n)}
    return frozenset(a.name for a in function.arrays if a.role == "local" and not a.within and a.name not in others)


def _has_states(part: tuple[Part, Analysis]) -> bool:
    return any(own.recurrences is not None or own.states is not None for own in part[1].lowered)


def _reach(analysis: Analysis, nest: int) -> Repeated | None:
    from weft.loops.reached import reached

    schedule, own = _lasting(analysis.schedule), analysis.schedule.nests[nest]
    apart = reached(schedule.function, own)
    found = None if apart is None else _analysed(analysis, nest, apart, "reaching")
    if found is None:
        return None
    *before, (part, looking), after = found.parts
    looking = replace(looking, lowered=(Lowered(looking=True),))
    return replace(found, parts=(*before, (part, looking), after))


def _skew(analysis: Analysis, nest: int) -> Repeated | None:
    from weft.loops.analyze import schedule

    own = analysis.schedule.nests[nest]
    bands = [s for s in own.body if isinstance(s, For) and wavefront_of(analysis.function, own, s) is not None]
    if not bands:
        return None
    apart = taken_apart(analysis.function, own, whole=frozenset(s.var for s in bands))
    if apart is None:  # nothing beside it
        alone = replace(analysis.schedule, nests=(own,))
        return Repeated((_as_wavefronts(analysis, f"{nest}", Part(analysis.function), alone),), ())
    parts = []
    for k, part in enumerate(apart.parts):
        found = schedule(part.function)
        found = replace(found, function=_with_roles(found.function, analysis.function, apart.memory))
        parts.append(_as_wavefronts(analysis, f"{nest} {k}", part, found))
    return Repeated(tuple(parts), apart.memory)


def _as_wavefronts(analysis: Analysis, which: str, part: Part, found: Schedule) -> tuple[Part, Analysis]:
    """A part with its analysis, in which nests that are wavefronts are nothing else."""
    lowered = []
    for nest in found.nests:
        own = wavefront(found.function, nest)
        lowered.append(lower_nest(found, nest) if own is None else Lowered(wavefront=own))
    key = cache.key("skewed part", analysis.key, which) if analysis.key else ""
    return part, Analysis(found, (), tuple(lowered), key=key)


def _in_passes(analysis: Analysis, nest: int) -> Apart | None:
    """A nest as the plain passes of its graph; None where it is one pass, or no graph of folds."""
    from weft.graph.needs import refuse_unused
    from weft.graph.tile import NotTiles

    schedule, own = _lasting(analysis.schedule), analysis.schedule.nests[nest]
    function = schedule.function
    names = Names.of(function)
    names.taken |= names_bound_in(own.body) | {a.var for a in own.axes}
    try:
        refuse_unused(function, own)
    except NotTiles:
        return None
    found = in_passes(schedule, own, names)
    if found is None or len(found.nests) < 2:
        return None
    whole = replace(function, body=tuple(s for n in found.nests for s in n), arrays=(*function.arrays, *found.memory))
    if not asks_no_more(whole, replace(function, body=own.in_loops())):
        return None
    return one_after_another(function, own.name, found.nests, found.memory)


def _in_graphs(
    analysis: Analysis, nest: int, make: Callable[[TileGraph, Function, Names], Stages]
) -> Repeated | None:
    """A nest as graphs that are made of its own, one after another."""
    from weft.graph.build import build
    from weft.graph.needs import refuse_unused
    from weft.graph.passes import in_turn
    from weft.graph.tile import NotTiles

    schedule, own = _lasting(analysis.schedule), analysis.schedule.nests[nest]
    if not {"scan", "sequential"} & {verdict.kind for _, verdict in own.verdicts}:
        return None
    function, names = schedule.function, Names.of(schedule.function)
    names.taken |= names_bound_in(own.body) | {a.var for a in own.axes}
    parts: list[tuple[Part, Analysis]] = []
    try:
        refuse_unused(function, own)
        found = make(build(schedule, own), function, names)
        for k, graph in enumerate(found.graphs):
            lowered = lower_graph(graph, function)
            if lowered is None:
                return None
            made = in_turn(graph, function, names)
            body = tuple(s for loops in made.nests for s in loops)
            arrays = (*function.arrays, *found.memory, *made.memory)
            whole = replace(bare(function, body), name=graph.name, arrays=arrays)
            alone = Nest(graph.name, (), body, tuple((s.var, _verdict(s)) for s in walk(body) if isinstance(s, For)))
            key = cache.key(graph.name, analysis.key, f"{nest} {k}") if analysis.key else ""
            whole = _with_roles(whole, analysis.function, found.memory)
            parts.append((Part(whole), Analysis(Schedule(whole, (alone,), ()), (), (lowered,), key=key)))
    except NotTiles:
        return None
    return Repeated(tuple(parts), found.memory)


def _verdict(loop: For) -> Verdict:
    """The class of a loop of a stage."""
    return Verdict(loop.var, "scan" if loop.carries else "parallel", location=loop.location)


def _lasting(schedule: Schedule) -> Schedule:
    """The schedule; of a part, which has no results of its own, with arrays that have values before it and after."""
    function = schedule.function
    if function.parameters or function.results:
        return schedule
    arrays = (replace(a, role="inout") if a.role == "local" and not a.within else a for a in function.arrays)
    return replace(schedule, function=replace(function, arrays=tuple(arrays)))


def _analysed(analysis: Analysis, nest: int, apart: Apart, what: str) -> Repeated | None:
    """A nest taken apart, with the analyses of its parts; None where it is whole in them too."""
    from weft.loops.analyze import schedule

    parts = []
    for k, part in enumerate(apart.parts):
        found = schedule(part.function)
        if len(apart.parts) == 1 and part.loop is None and len(found.nests) < 2:
            return None
        lowered = tuple(lower_nest(found, inner) for inner in found.nests)
        found = replace(found, function=_with_roles(found.function, analysis.function, apart.memory))
        whole = {a.name for a in analysis.function.arrays}  # the whole function fills these
        filled = (a for a in found.function.arrays if a.fill is not None and a.role == "local" and not a.within)
        if any(a.name not in whole for a in filled):
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
