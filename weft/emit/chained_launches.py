"""The translation unit of chained products: the launch that multiplies, and the one beside it."""

from __future__ import annotations

from dataclasses import replace

from weft.emit import entries
from weft.emit.chained_parts import ChainedPartsEntry, TicketsEntry
from weft.emit.chained_products import ChainEntry
from weft.emit.dependent import ALONE, Dependence, dependences, include
from weft.emit.rough import rough_chain
from weft.emit.text import Writer
from weft.graph.chains import Chain
from weft.loops.ir import Function, trapping
from weft.loops.schedule import Nest
from weft.plan.arguments import Facts
from weft.plan.chain import ChainPlan


def emit(
    function: Function, nest: Nest, chain: Chain, plan: ChainPlan, facts: Facts, around: Dependence = ALONE
) -> str:
    """The kernel's translation unit. Its entry takes the slots of `weft.plan.arguments`, and the maps of its boxes."""
    own = Nest(nest.name, nest.axes, trapping(nest.body), nest.verdicts)
    writer = Writer()
    within = ["weft/within.cuh"] if chain.bounded else ["weft/barrier.cuh"]
    within += ["weft/bounds.cuh"] if chain.told_by_rows else []
    within += ["weft/atomic.cuh"] if plan.counts else []
    within += ["weft/turns.cuh"] if plan.skips else []
    within += ["weft/within.cuh"] if plan.skips and not chain.bounded else []
    within += ["weft/cluster.cuh"] if plan.cluster > 1 else []
    for header in sorted(("weft/matrix_tile.cuh", "weft/power.cuh", "weft/registers.cuh", "weft/team.cuh", *within)):
        writer.line(f'#include "{header}"')
    names = entries.of_chain(nest, plan)
    # what it multiplies may be what launches before have made: those after it, which read it too, begin when that is awaited
    launches = dependences([number > 0 for number in range(len(names))], replace(around, ahead=False))
    kinds: tuple[type[ChainEntry], ...] = (ChainEntry, ChainedPartsEntry)
    if plan.counts:
        kinds = (TicketsEntry, ChainEntry)
    if plan.meeting == "tickets":
        launches = (launches[0], replace(launches[1], late=True))
    launches = tuple(replace(one, full=kind is ChainEntry) for one, kind in zip(launches, kinds, strict=False))
    include(writer, launches)
    rough = rough_chain(chain, function)
    for name, launch, kind in zip(names, launches, kinds, strict=False):
        writer.line()
        kind.of(function, own, facts, writer, rough, plan, launch).emit(name)
    return writer.text()
