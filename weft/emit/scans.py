"""Scans of a tile graph as CUDA C++: a tile is read, composed across its threads, and gone through with the states."""

from __future__ import annotations

from weft.emit.dependent import ALONE, Dependence, dependences, include
from weft.emit.names import Names, kernel_entry
from weft.emit.rough import rough_scans
from weft.emit.scans_along import ScansAlong
from weft.emit.scans_beside import ScansBeside
from weft.emit.scans_relayed import ScansRelayed
from weft.emit.text import Writer
from weft.emit.values import deciding
from weft.graph.scans import Scanned
from weft.loops.ir import Function, trapping
from weft.loops.schedule import Nest
from weft.plan.arguments import Facts
from weft.plan.scan import ScanPlan


def emit(
    function: Function, nest: Nest, scans: Scanned, plan: ScanPlan, facts: Facts, around: Dependence = ALONE
) -> str:
    """The kernel's translation unit. Its entry takes the slots of `weft.plan.arguments`, and where blocks share rows, a pointer
    to the words by which they tell each other what each scan does, and the number of parts.
    """
    own = Nest(nest.name, nest.axes, trapping(nest.body), nest.verdicts)
    scans = rough_scans(scans, scans.writes, scans.last)
    writer = Writer()
    (launch,) = dependences([False], around)
    include(writer, (launch,))
    writer.line('#include "weft/memory.cuh"')
    shares = "relay" if plan.cluster > 1 else "chain" if plan.shared else "team"
    writer.line(f'#include "weft/{shares}.cuh"')
    if plan.stages:
        writer.line(f'#include "weft/{"packet" if plan.beside else "bulk"}.cuh"')
    writer.line()
    kind = ScansRelayed if plan.cluster > 1 else ScansBeside if plan.beside else ScansAlong
    taken = {kernel_entry(nest.name), "outside", "part", "parts", "row", "here", "v", "run", "step", "change", "keep"}
    taken |= {"tile", "tiles", "turn", "turns", "k", "stage", "arrived", "memory", "copy_tile", "first", "last", "whole"}
    taken |= {"place", "beside", "rows_here", "bytes", "group", "warp"}
    if plan.cluster > 1:
        taken |= {"member", "low", "high", "from", "to", "own", "emptied", "composed", "made", "sent", "place_made"}
    varies = deciding(scans.axes, scans.values)
    large = varies | {s.name for s in function.scalars}
    kind(
        function, own, facts, writer, Names(frozenset(taken)), {}, {}, varies, large,
        axes=scans.axes, values=scans.values, scans=scans, plan=plan,
    ).emit(kernel_entry(nest.name), launch)  # fmt: skip
    return writer.text()
