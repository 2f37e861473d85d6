"""Scans of many states whose points lie apart in memory, beside maps that turn what they read and write.

A thread of such a scan has neighbouring points of a row. Where an array lies along the rows (`u[batch, time, channel]`), each
of these comes with a sector of its own. Turned before, and what is written after, all goes through memory once more, by whole
packets, which is little beside what is done for every state at every point.
"""

from __future__ import annotations

from dataclasses import replace

from weft.graph.stages import Stages
from weft.graph.tile import NotTiles, Read, Scan, TileGraph, Write
from weft.loops.extents import expanded, expanded_index, extents
from weft.loops.ir import Array, Function, Load, Ref
from weft.loops.names import Names
from weft.loops.types import INT64, ScalarType


def along_memory(graph: TileGraph, function: Function, names: Names) -> Stages:
    """A graph that is of a nest of the function, with what lies along others than its points turned before and after. names:
    those that are taken there. Raises NotTiles where nothing lies so.
    """
    over = {v.over for v in graph.values if isinstance(v, Scan)}
    if len(over) != 1 or len(along := next(iter(over))) != 1:
        raise NotTiles("states are scanned along several axes, or none")
    turning = _Turning(graph, function, names, along[0])
    stored = {w.array for w in graph.writes}
    reads = [v for v in graph.values if isinstance(v, Read) and v.always and v.array not in stored and turning.lies_apart(v)]
    writes = [w for w in graph.writes if not (w.guard or w.join or w.array in graph.read) and turning.lies_apart(w)]
    if not reads and not writes:
        raise NotTiles("all lies along the points")
    places = {r.name: turning.place(r.name, r, function.array(r.array).dtype) for r in reads}
    results = {w.array: turning.place(w.array, w, function.array(w.array).dtype) for w in writes}
    there = {r.name: replace(r, array=places[r.name].array, index=places[r.name].index) for r in reads}
    inner = replace(
        graph,
        values=tuple(there.get(v.name, v) if isinstance(v, Read) else v for v in graph.values),
        writes=tuple(
            replace(w, array=results[w.array].array, index=results[w.array].index) if w in writes else w for w in graph.writes
        ),
    )
    before = [(r, Write(there[r.name].array, r.axes, there[r.name].index, Ref(r.name, r.type))) for r in reads]
    after = []
    for w in writes:
        place = results[w.array]
        made = Read(names.fresh(w.array), w.axes, place.array, place.index, w.value.type, always=True)
        after.append((made, replace(w, value=Ref(made.name, made.type))))
    return Stages((*turning.maps(before), inner, *turning.maps(after)), tuple(turning.memory))


class _Turning:
    def __init__(self, graph: TileGraph, function: Function, names: Names, along: str) -> None:
        self.graph, self.function, self.names, self.along = graph, function, names, along
        self.memory: list[Array] = []

    def lies_apart(self, access: Read | Write) -> bool:
        """Whether an array has an element for each point of an access, and the points of the scan are not its last axis."""
        index = [i.name for i in access.index if isinstance(i, Ref)]
        plain = len(index) == len(access.index) == len({*index}) and {*index} == {*access.axes}
        return plain and self.along in index[:-1]

    def place(self, name: str, access: Read | Write, type_: ScalarType) -> Load:
        """Memory for what an access has, with the points of the scan last."""
        axes = (*(a for a in access.axes if a != self.along), self.along)
        reach = extents(self.function, [self.graph.axis(a).loop() for a in axes])
        if reach is None:
            raise NotTiles(f"it is not told how many elements {name} has")
        array = expanded(self.names.fresh(name), type_, reach)
        self.memory.append(array)
        return Load(array.name, expanded_index(reach, [Ref(a, INT64) for a in axes]), type_)

    def maps(self, moves: list[tuple[Read, Write]]) -> list[TileGraph]:
        """Graphs that move what is read to where it is written, one for all of the same axes."""
        found: dict[tuple[str, ...], TileGraph] = {}
        for read, write in moves:
            axes = tuple(a for a in self.graph.axes if a.name in read.axes)
            empty = TileGraph(self.names.fresh(f"{self.graph.name}_turned"), axes, (), ())
            own = found.get(read.axes, empty)
            found[read.axes] = replace(own, values=(*own.values, read), writes=(*own.writes, write))
        return [*found.values()]
