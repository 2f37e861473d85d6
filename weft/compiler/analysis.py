"""The first half of the road: all that is known of a function before its sizes are.

Importing this module is quick: the analysis itself is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from weft.errors import Location
from weft.graph.beside import Columns
from weft.graph.blocks import Blocks
from weft.graph.chains import Chain
from weft.graph.joins import Joins
from weft.graph.maps import Maps
from weft.graph.outer_states import OuterStates
from weft.graph.recurrences import Recurrences
from weft.graph.scans import Scanned
from weft.graph.state_scans import StateScans
from weft.graph.sweeps import Shapes, Sweeps
from weft.loops.affine import affine
from weft.loops.digits import replaced
from weft.loops.ir import Expr, Function, Let, Ref, Store, free_names, walk
from weft.loops.schedule import Nest, Requirement, Schedule
from weft.loops.wavefronts import Wavefront

if TYPE_CHECKING:
    from weft.graph.tile import NotTiles, TileGraph


@dataclass(frozen=True)
class Refused:
    """Why the loops of a nest run in order inside its threads: in one sentence, and as in errors."""

    why: str
    where: Location | None = None
    remedy: str = ""


@dataclass(frozen=True)
class Lowered:
    """What threads share of a nest. sweeps: its folds, where nothing else is carried. joins: values that it joins to elements
    which the data choose. scans, states: its scans, of one state a row and of many; recurrences: what rows carry in order;
    outer: the same, of states that grow by outer products.
    columns: what the next nest folds, where the sweeps can do that too. refused: why it has none of them. chain: products whose
    results are folded again, of such. row_folds: products whose rows fold their results, as sweeps of these. wavefront: of two
    loops in order; such a nest is nothing else. blocks: the graph of nests that are one launch; they are nothing else, too.
    looking: its elements, each with a thread, look for the rows that reach them; it is nothing else.
    """

    sweeps: Sweeps | None = None
    joins: Joins | None = None
    maps: Maps | None = None
    refused: Refused | None = None
    scans: Scanned | None = None
    states: StateScans | None = None
    recurrences: Recurrences | None = None
    outer: OuterStates | None = None
    columns: Columns | None = None
    chain: Chain | None = None
    row_folds: Sweeps | None = None
    wavefront: Wavefront | None = None
    blocks: Blocks | None = None
    looking: bool = False

    @property
    def multiplied(self) -> Sweeps | None:
        """The sweeps of which products are planned."""
        return self.sweeps or self.row_folds


@dataclass(frozen=True)
class Analysis:
    """All that is known of a function before its sizes are: `schedule.function` is its normal form.

    assumed: pairs of sizes that are equal in the calls it is for. key: what the disk cache knows it by, and its sources.
    at_once: of the nests that store what the next one folds, or read the same points, both as one nest.
    """

    schedule: Schedule
    requirements: tuple[Requirement, ...]
    lowered: tuple[Lowered, ...]
    assumed: tuple[tuple[str, str], ...] = ()
    key: str = ""
    at_once: tuple[tuple[int, Analysis], ...] = ()

    @property
    def function(self) -> Function:
        return self.schedule.function

    def known_by(self, key: str) -> Analysis:
        """The same with a key for the disk cache."""
        return replace(self, key=key, at_once=tuple((k, own.known_by(f"{key} {k} at once")) for k, own in self.at_once))


def analyze(function: Function, assumed: tuple[tuple[str, str], ...] = ()) -> Analysis:
    """The analysis of a function (its first half of the road)."""
    from weft.compiler.united import united
    from weft.graph.beside import columns
    from weft.loops.analyze import requirements, schedule
    from weft.plan.arguments import nest_arrays

    scheduled = schedule(function)
    if (plain := united(scheduled)) is not None and len((again := schedule(plain)).nests) <= len(scheduled.nests):
        scheduled = replace(again, loops=scheduled.loops)
    lowered = [lower_nest(scheduled, nest) for nest in scheduled.nests]
    for k, (one, after) in enumerate(pairwise(lowered)):
        if one.sweeps is not None and after.sweeps is not None and one.sweeps.box is after.sweeps.box is None:
            others = (*scheduled.nests[:k], *scheduled.nests[k + 2 :])
            elsewhere = frozenset(a.name for n in others for a in nest_arrays(scheduled.function, n))
            lowered[k] = replace(one, columns=columns(scheduled.function, one.sweeps, after.sweeps, elsewhere))
    return Analysis(scheduled, requirements(function), tuple(lowered), assumed, at_once=tuple(_at_once(scheduled, lowered)))


def _at_once(scheduled: Schedule, lowered: Sequence[Lowered]) -> Iterator[tuple[int, Analysis]]:
    """Nests of which one maps and the next one folds, or the other way round, as one nest: one sweep over all points."""
    from weft.loops.at_once import at_once

    # to a nest alone, what others read of it has values after it
    arrays = (replace(a, role="inout") if a.role == "local" and not a.within else a for a in scheduled.function.arrays)
    lasting = replace(scheduled.function, arrays=tuple(arrays))
    for k, (one, after) in enumerate(pairwise(lowered)):
        first = one.maps is not None
        folds = after.sweeps if first else one.sweeps
        if folds is None or (one if first else after).maps is None or sum(map(len, folds.stages)) != 1:
            continue
        own, its = scheduled.nests[k : k + 2] if first else scheduled.nests[k : k + 2][::-1]
        nest = at_once(scheduled.function, own, its, first)
        if nest is None:
            continue
        found = lower_nest(replace(scheduled, function=lasting, nests=(nest,)), nest)
        if found.sweeps is not None and found.sweeps.box is None and sum(map(len, found.sweeps.stages)) == 1:
            yield k, Analysis(replace(scheduled, nests=(nest,)), (), (found,))


def lower_nest(schedule: Schedule, nest: Nest) -> Lowered:
    """What a nest is to the planners, the first of these that it is; else why it is none, and what it may be besides."""
    if nest.rare:
        return Lowered()
    graph, sizes = _graph_of(schedule, nest), {s.name for s in schedule.function.sizes}
    kinds = {nest.verdict(loop).kind for loop in nest.loops()}
    mapped = _maps(graph) if kinds <= {"parallel"} else None
    if isinstance(mapped, Maps):
        return Lowered(maps=mapped)
    found = _values(schedule, nest, kinds, graph, sizes)
    if isinstance(found, Sweeps):
        return Lowered(sweeps=found)
    if isinstance(found, Joins):
        return Lowered(joins=found)
    if isinstance(found, Scanned):
        return Lowered(scans=found)
    if isinstance(found, StateScans):
        recurrences = _recurrences(graph)
        return Lowered(states=found, recurrences=recurrences, outer=_outer(recurrences))
    if isinstance(found, Recurrences):
        return Lowered(recurrences=found, outer=_outer(found))
    if not "reduction" in kinds <= {"parallel", "reduction"}:
        return Lowered(refused=found or mapped)
    return Lowered(refused=found or mapped, chain=_chain(graph, sizes), row_folds=_row_folds(graph))


def lower_graph(graph: TileGraph, function: Function) -> Lowered | None:
    """What a graph by need of a function is to the planners, the first of these that it is; None where it is nothing."""
    from weft.graph.scans import scanned
    from weft.graph.sweeps import sweeps
    from weft.graph.tile import NotTiles

    def own() -> TileGraph:
        return graph

    sizes = {s.name for s in function.sizes}
    ways: tuple[Callable[[], Lowered], ...] = (
        lambda: Lowered(maps=maps) if isinstance(maps := _maps(own), Maps) else Lowered(),
        lambda: Lowered(sweeps=sweeps(graph, sizes, _shapes(function))),
        lambda: Lowered(scans=scanned(graph)),
        lambda: Lowered(states=_states(own), recurrences=(found := _recurrences(own)), outer=_outer(found)),
    )
    for way in ways:
        try:
            lowered = way()
        except NotTiles:
            continue
        if lowered != Lowered():
            return lowered
    return None


# The tile graph of a nest. Raises NotTiles.
_Graph = Callable[[], "TileGraph"]


def _graph_of(schedule: Schedule, nest: Nest) -> _Graph:
    """The tile graph of a nest, built when it is first asked for; whoever asks is told the same."""
    told: list[TileGraph | NotTiles] = []

    def graph() -> TileGraph:
        from weft.graph.build import build
        from weft.graph.needs import refuse_unused
        from weft.graph.tile import NotTiles

        if not told:
            try:
                refuse_unused(schedule.function, nest)
                told.append(build(schedule, nest))
            except NotTiles as no:
                told.append(no)
        if isinstance(told[0], NotTiles):
            raise told[0]
        return told[0]

    return graph


def _chain(graph: _Graph, sizes: Collection[str]) -> Chain | None:
    """Products whose results a nest folds again; None where it is no such."""
    from weft.graph.chains import chain
    from weft.graph.tile import NotTiles

    try:
        return chain(graph(), sizes)
    except NotTiles:
        return None


def _row_folds(graph: _Graph) -> Sweeps | None:
    """Products whose rows fold what is made of their results; None where a nest is no such."""
    from weft.graph.row_folds import row_folds
    from weft.graph.tile import NotTiles

    try:
        return row_folds(graph())
    except NotTiles:
        return None


def _maps(graph: _Graph) -> Maps | Refused:
    """The maps of a nest that carries nothing, or why it has none."""
    from weft.graph.maps import maps
    from weft.graph.tile import NotTiles

    try:
        return maps(graph())
    except NotTiles as no:
        return Refused(no.why, no.where, no.remedy)


def _values(
    schedule: Schedule, nest: Nest, kinds: Collection[str], graph: _Graph, sizes: Collection[str]
) -> Sweeps | Joins | Scanned | StateScans | Recurrences | Refused | None:
    """The sweeps, joins or scans of a nest's tile graph, or why it has none; None where it is asked for none."""
    scattered = "sequential" in kinds and _scatters(nest)
    if "sequential" in kinds and not scattered:
        return _states(graph) or _recurrences(graph)
    if not scattered and not {"reduction", "scan"} & set(kinds):
        return None
    from weft.graph.joins import joins
    from weft.graph.scans import scanned
    from weft.graph.sweeps import sweeps
    from weft.graph.tile import LAST, NotTiles

    try:
        own = graph()
        if scattered and not all(w.join == LAST for w in own.writes):
            return _states(graph)
        if any(w.join for w in own.writes):
            return joins(own, schedule.function)
        if "scan" in kinds:
            return scanned(own)
        return _folded(lambda: sweeps(own, sizes, _shapes(schedule.function)), lambda: scanned(own))
    except NotTiles as no:
        if scattered:
            return _states(graph)
        own_states = (_states(graph) or _recurrences(graph)) if "scan" in kinds else None
        return own_states or Refused(no.why, no.where, no.remedy)


def _shapes(function: Function) -> Shapes:
    """What arrays have along each axis, and what is equal to it, in the names of what the program computes of sizes."""
    numbers: dict[Expr, Expr] = {s.value: Ref(s.name, s.type) for s in function.scalars if s.value is not None}

    def equal(extent: Expr) -> tuple[Expr, ...]:
        found = [extent]
        for e in found:
            sides = (s for q in function.equalities for s in ((q.left, q.right), (q.right, q.left)) if s[0] == e)
            found += [other for _, other in sides if other not in found]
        return tuple(dict.fromkeys(replaced(e, numbers) for e in found))

    return {a.name: tuple(map(equal, a.shape)) for a in function.arrays}


def _folded(swept: Callable[[], Sweeps], scanned: Callable[[], Scanned]) -> Sweeps | Scanned:
    """Folds as sweeps, or where these do not know their algebras, as scans that are used at their end. Raises NotTiles."""
    from weft.graph.tile import NotTiles

    try:
        return swept()
    except NotTiles as no:
        try:
            return scanned()
        except NotTiles:
            raise no from None


def _states(graph: _Graph) -> StateScans | None:
    """The scans of a nest whose rows have many states, whatever the order of its loops; None where it has no such."""
    from weft.graph.state_scans import state_scans
    from weft.graph.tile import NotTiles

    try:
        return state_scans(graph())
    except NotTiles:
        return None


def _recurrences(graph: _Graph) -> Recurrences | None:
    """What the rows of a nest carry in order; None where it has no such."""
    from weft.graph.recurrences import recurrences
    from weft.graph.tile import NotTiles

    try:
        return recurrences(graph())
    except NotTiles:
        return None


def _outer(found: Recurrences | None) -> OuterStates | None:
    """The same as states that grow by outer products; None where they do not."""
    from weft.graph.outer_states import outer_states
    from weft.graph.tile import NotTiles

    try:
        return None if found is None else outer_states(found)
    except NotTiles:
        return None


def _scatters(nest: Nest) -> bool:
    """Whether all that a nest stores goes to elements that data choose: loops may be in order because the last one counts."""
    stores = [s for s in walk(nest.body) if isinstance(s, Store)]
    made = {s.name for s in walk(nest.body) if isinstance(s, Let)}
    return bool(stores) and all(any(affine(i) is None or free_names(i) & made for i in s.index) for s in stores)
