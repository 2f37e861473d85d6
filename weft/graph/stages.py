"""Scans that need sums over the states of others, as graphs that run one after another.

What is normalised by a sum over states of its own (`y = (q C) / max(|q n|, 1)`, the memory of an mLSTM) has a gradient in which
later states need sums over all rows of earlier ones: rows would have to wait for each other at every point. But no sum that
states need is made of these states themselves, so all points of the one may come before all points of the other. Such sums are
left in memory, which has an element for each of their points; states, which are more than these, are scanned again where a
later graph needs them. So each of the graphs has scans that need nothing of each other, and is what such scans are by
themselves: linear attention, a scan of many states, one of one state a row, or folds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from weft.graph.alike import of_their_own
from weft.graph.needs import by_need
from weft.graph.sides import of_one_side, with_decays
from weft.graph.steady import names_in, steady
from weft.graph.tidy import renewed
from weft.graph.tile import (
    Fold,
    Map,
    NotTiles,
    Read,
    Scan,
    TileGraph,
    Value,
    Write,
    all_uses,
    axes_of_name,
    names_of,
    uses,
    uses_of_write,
)
from weft.loops.extents import expanded, expanded_index, extents
from weft.loops.ir import Array, Expr, Function, Load, Op, Ref, free_names, free_names_of, has_check, reachable, walk_expr
from weft.loops.names import Names
from weft.loops.operators import COSTLY
from weft.loops.types import INT64, ScalarType


@dataclass(frozen=True)
class Stages:
    """graphs: in the order in which they run. memory: the arrays through which they tell each other values, none of which has
    any at first.
    """

    graphs: tuple[TileGraph, ...]
    memory: tuple[Array, ...]


def stages(graph: TileGraph, function: Function, names: Names) -> Stages:
    """A graph that is of a nest of the function, in stages. names: those that are taken there. Raises NotTiles where it is one,
    or has others than reads that are inside everywhere, maps, sums and scans.
    """
    graph = with_decays(of_one_side(steady(by_need(of_their_own(graph)), every=True)))
    names.taken |= names_in(graph).taken
    exprs = [e for v in graph.values for e in all_uses(v)] + [e for w in graph.writes for e in uses_of_write(w)]
    if any(map(has_check, exprs)) or any(w.join or w.checked for w in graph.writes):
        raise NotTiles("it is checked as it goes, or joins values to an array")
    if graph.copied:
        raise NotTiles(f"{graph.copied[0]} is read at other elements than it is written at")
    found = _Stages(graph, function, names).made()
    if len(found.graphs) < 2:
        raise NotTiles("it is one stage")
    return found


# What goes through all of its points before another one begins.
_Gone = Fold | Scan | Map


@dataclass
class _Stage:
    """level: all that is needed of other stages is at lower ones, or before it at the same one. scans: those that are scanned
    again among them.
    """

    level: int
    folds: list[Fold] = field(default_factory=list)
    scans: list[Scan] = field(default_factory=list)
    maps: list[Map] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)

    @property
    def carried(self) -> tuple[_Gone, ...]:
        return (*self.folds, *self.scans, *self.maps)

    @property
    def names(self) -> set[str]:
        """The names of what is found here."""
        return {n for v in self.carried for n in names_of(v)}

    @property
    def rows(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The axes that what is folded has, and those that it is folded over: the same of all, where nothing is scanned."""
        return _rows(self.carried[0])

    @property
    def size(self) -> int:
        """The most axes that something in it has."""
        return max((sum(map(len, _rows(v))) for v in self.carried), default=0)


@dataclass
class _Stages:
    graph: TileGraph
    function: Function
    names: Names

    def made(self) -> Stages:
        graph = self.graph
        if not any(isinstance(v, Scan) for v in graph.values):
            raise NotTiles("nothing is scanned")
        self.gone: dict[str, _Gone] = {n: v for v in graph.values if isinstance(v, Fold | Scan) for n in names_of(v)}
        self.gone |= {v.name: v for v in self.costly()}
        self.needs = {names_of(v)[0]: self.needed(all_uses(v)) - {*names_of(v)} for v in self.carried()}
        # states that are more than all that is read or written
        self.again = {n for v in self.carried() if isinstance(v, Scan) and not self.is_small(v) for n in names_of(v)}
        self.levels: dict[str, int] = {}
        for v in self.carried():
            self.level(v, ())
        stages = self.gathered()
        for w in graph.writes:
            self.put(w, stages)
        stages = [s for s in stages if s.writes or self.left_by(s)]
        return self.through_memory(stages)

    def carried(self) -> Iterator[_Gone]:
        return (v for v in self.graph.values if isinstance(v, Fold | Scan | Map) and names_of(v)[0] in self.gone)

    def costly(self) -> list[Map]:
        """What costs much and is the same for all that folds go over, made of what is gone: it is found once for each point."""
        folded = {a for v in self.graph.values if isinstance(v, Fold) for a in v.over}
        maps = [v for v in self.graph.values if isinstance(v, Map) and self.needed((v.value,))]
        ops = {v.name: {e.name for e in walk_expr(v.value) if isinstance(e, Op)} for v in maps}
        return [v for v in maps if not folded & {*v.axes} and ops[v.name] & COSTLY]

    def needed(self, exprs: Iterable[Expr]) -> set[str]:
        """The folds and scans whose names expressions need, through reads and maps."""

        def after(name: str) -> Iterable[str]:
            value = self.graph.made.get(name)
            return free_names_of(uses(value)) if isinstance(value, Read | Map) and name not in self.gone else ()

        return {n for n in reachable(free_names_of(exprs), after) if n in self.gone}

    def level(self, value: _Gone, around: tuple[str, ...]) -> int:
        own = names_of(value)[0]
        if own in around:
            raise NotTiles(f"{own} needs what is made of it", value.location)
        if own not in self.levels:
            found = 0
            for n in self.needs[own]:
                other = self.gone[n]
                waits = isinstance(other, Fold) or n not in self.again
                found = max(found, self.level(other, (*around, own)) + waits)
            self.levels[own] = found
        return self.levels[own]

    def is_small(self, scan: Scan) -> bool:
        """Whether an array has the axes of a scan's states and points."""
        arrays = (*(v.axes for v in self.graph.values if isinstance(v, Read)), *(w.axes for w in self.graph.writes))
        return any({*scan.axes, *scan.over} <= {*axes} for axes in arrays)

    # ---- what is in which stage

    def gathered(self) -> list[_Stage]:
        """Scans, and what is folded of them, those that need the same states at points together; and folds of the same rows."""
        found: list[_Stage] = []
        for v in self.carried():
            own = self.levels[names_of(v)[0]]
            scans = [*self.scans_of(self.needs[names_of(v)[0]]), *([v] if isinstance(v, Scan) else [])]
            level = [s for s in found if s.level == own]
            alike = [s for s in level if any(x in s.scans for x in scans)]
            alike += [s for s in level if not scans and not s.scans and s.rows == _rows(v)]
            merged = _Stage(own)
            for s in alike:
                merged.folds += s.folds
                merged.maps += s.maps
                merged.scans += [x for x in s.scans if x not in merged.scans]
            merged.scans += [x for x in scans if x not in merged.scans]
            merged.folds += [v] if isinstance(v, Fold) else []
            merged.maps += [v] if isinstance(v, Map) else []
            found = [*(s for s in found if s not in alike), merged]
        return sorted(found, key=lambda s: (s.level, s.size))

    def scans_of(self, names: Collection[str]) -> list[Scan]:
        """Those that are scanned again wherever their states are needed, for others of them as well."""
        found = reachable(self.again & {*names}, lambda name: self.again & self.needs[names_of(self.gone[name])[0]])
        return [v for v in self.carried() if isinstance(v, Scan) and {*names_of(v)} & found]

    def put(self, write: Write, stages: list[_Stage]) -> None:
        """A write in the first stage that has all that it needs, or after which it is there; else in one of its own."""
        needs = self.needed(uses_of_write(write))
        scans = self.scans_of(needs)
        last = max((k for k, s in enumerate(stages) if needs & self.left_by(s)), default=0)
        for stage in stages[last:]:
            if all(x in stage.scans for x in scans) and (scans or stage is stages[last]):
                stage.writes.append(write)
                return
        stages.append(_Stage(stages[-1].level + 1, scans=scans, writes=[write]))

    def left_by(self, stage: _Stage) -> set[str]:
        """The names of what a stage is the one to tell others."""
        return stage.names - self.again

    # ---- memory between them

    def through_memory(self, stages: list[_Stage]) -> Stages:
        memory: list[Array] = []
        places: dict[str, Load] = {}
        graphs: list[TileGraph] = []
        for k, stage in enumerate(stages):
            writes = list(stage.writes)
            later = {n for s in stages[k + 1 :] for n in self.needs_of(s)}
            for name in sorted(self.left_by(stage) & later):
                value = self.gone[name]
                type_, axes = _type_of(value, name), self.ordered(axes_of_name(value, name))
                place = self.place(name, type_, axes, memory)
                places[name] = place
                writes.append(Write(place.array, axes, place.index, Ref(name, type_), location=value.location))
            graphs.append(self.of_stage(k, stage, tuple(writes), {n: p for n, p in places.items() if n not in stage.names}))
        written: set[str] = set()
        for graph in graphs:
            if written & graph.read:
                raise NotTiles(f"{min(written & graph.read)} is read after it is written")
            written |= {w.array for w in graph.writes} - {a.name for a in memory}
        return Stages(tuple(graphs), tuple(memory))

    def needs_of(self, stage: _Stage) -> set[str]:
        """What a stage needs, but for what it has itself."""
        values = {n for v in stage.carried for n in self.needs[names_of(v)[0]]}
        return (values | self.needed(e for w in stage.writes for e in uses_of_write(w))) - stage.names

    def of_stage(self, k: int, stage: _Stage, writes: tuple[Write, ...], places: dict[str, Load]) -> TileGraph:
        values: list[Value] = []
        for v in self.graph.values:
            if v in stage.carried or (isinstance(v, Read | Map) and v.name not in places):
                values.append(v)
            for name in () if v in stage.carried else names_of(v):
                if name in places:
                    own = places[name]
                    axes = self.ordered({n for i in own.index for n in free_names(i)} & {a.name for a in self.graph.axes})
                    values.append(Read(name, axes, own.array, own.index, own.type, always=True))
        there = {n for v in values for n in names_of(v)} | {a.name for a in self.graph.axes}
        known = self.graph.made.keys()
        while True:  # what is made of other stages' states goes, unless something needs it
            lost = [v for v in values if free_names_of(all_uses(v)) & known - there]
            if not lost:
                break
            there -= {n for v in lost for n in names_of(v)}
            values = [v for v in values if v not in lost]
        if not {n for w in writes for n in free_names_of(uses_of_write(w))} & known <= there:
            raise NotTiles("a stage needs what no other one leaves")
        name = f"{self.graph.name}_{k + 1}"
        return renewed(replace(self.graph, name=name, values=tuple(values), writes=writes))

    def ordered(self, names: Collection[str]) -> tuple[str, ...]:
        return tuple(a.name for a in self.graph.axes if a.name in names)

    def place(self, name: str, type_: ScalarType, axes: tuple[str, ...], memory: list[Array]) -> Load:
        """Memory for values, an element for each point of their axes, as an array lies that has them."""
        for index in (*(v.index for v in self.graph.values if isinstance(v, Read)), *(w.index for w in self.graph.writes)):
            found = tuple(i.name for i in index if isinstance(i, Ref) and i.name in axes)
            if {*found} == {*axes} and len(found) == len(axes):
                axes = found
                break
        reach = extents(self.function, [self.graph.axis(a).loop() for a in axes])
        if reach is None:
            raise NotTiles(f"it is not told how many elements {name} has")
        array = expanded(self.names.fresh(name), type_, reach)
        memory.append(array)
        return Load(array.name, expanded_index(reach, [Ref(a, INT64) for a in axes]), type_)


def _rows(value: _Gone) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return value.axes, () if isinstance(value, Map) else value.over


def _type_of(value: _Gone, name: str) -> ScalarType:
    if isinstance(value, Map):
        return value.type
    return value.types[(value.names if name in value.names else value.results).index(name)]
