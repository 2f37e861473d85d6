"""Maps of a tile graph as CUDA C++: a translation unit with an entry for each course."""

from __future__ import annotations

from weft.emit import entries
from weft.emit.courses import Entry
from weft.emit.dependent import ALONE, Dependence, dependences, include
from weft.emit.rough import rough_maps
from weft.emit.text import Writer
from weft.emit.turned import TurnedEntry
from weft.graph.maps import Maps
from weft.loops.ir import Function, trapping
from weft.loops.schedule import Nest
from weft.plan.arguments import Facts
from weft.plan.map import MapPlan, counted


def emit(function: Function, nest: Nest, maps: Maps, plan: MapPlan, facts: Facts, around: Dependence = ALONE) -> str:
    """The kernels' translation unit: an entry for each course, named by `entries.of_maps`. Each takes the slots of
    `weft.plan.arguments`.
    """
    own = Nest(nest.name, nest.axes, trapping(nest.body), nest.verdicts)
    writer = Writer()
    writer.line('#include "weft/memory.cuh"')
    if any(its.turned for its in plan.courses):
        writer.line('#include "weft/turn.cuh"')
    maps = rough_maps(maps, function)
    launches = dependences([number > 0 for number in range(len(plan.courses))], around)
    include(writer, launches)
    for course, its, entry, launch in zip(maps.courses, plan.courses, entries.of_maps(nest, plan), launches, strict=True):
        writer.line()
        kind = TurnedEntry if its.turned else Entry
        kind.begun(function, own, facts, writer, counted(course, its), its, entry).emit(launch)
    return writer.text()
