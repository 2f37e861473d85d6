"""The translation unit of products: what packs operands, the launch that multiplies, and what combines parts left in memory."""

from __future__ import annotations

from dataclasses import replace

from weft.emit import entries
from weft.emit.dependent import ALONE, Dependence, dependences, include
from weft.emit.few_rows import FewRowsEntry
from weft.emit.float_products import FloatEntry
from weft.emit.matrix_products import MatrixEntry
from weft.emit.packing import PackEntry
from weft.emit.parts import CombineEntry
from weft.emit.products import ProductEntry
from weft.emit.rough import rough_sweeps
from weft.emit.square_products import SquareEntry
from weft.emit.text import Writer
from weft.graph.sweeps import Sweeps
from weft.loops.ir import Function, trapping
from weft.loops.schedule import Nest
from weft.plan.arguments import Facts
from weft.plan.product import ProductPlan, arrays_of_operands, turned_read


def emit(
    function: Function, nest: Nest, sweeps: Sweeps, plan: ProductPlan, facts: Facts, around: Dependence = ALONE
) -> str:
    """The kernels' translation unit: an entry for each of `entries.of_products`. Each takes the slots of `weft.plan.arguments`,
    and where operands are packed, a pointer for each of these and a number.
    """
    own = Nest(nest.name, nest.axes, trapping(nest.body), nest.verdicts)
    writer = Writer()
    kind = _kind(plan)
    found = plan.arranged(rough_sweeps(sweeps, None, function)[0])
    packed = [k for k, is_packed in enumerate(plan.packed) if is_packed]
    others = ["weft/cluster.cuh"] if plan.cluster > 1 else ["weft/across.cuh"] if plan.across else []
    others += ["weft/registers.cuh"] if plan.roomy else []
    others += ["weft/byte_tile.cuh"] if any(turned_read(function, plan, found, k, facts) is not None for k in packed) else []
    for header in sorted((kind.included(plan), "weft/team.cuh", *others)):
        writer.line(f'#include "{header}"')
    names = entries.of_products(nest, plan)
    launches = dependences([number > 0 for number in range(len(names))], around)
    operands = all(function.array(a).role == "input" for a in arrays_of_operands(found))
    if around.ahead and not packed and operands and plan.across <= 1:  # what blocks tell each other through is cleared before
        launches = (replace(launches[0], late=True), *launches[1:])
    if plan.leaves_parts:
        launches = (*launches[:-1], replace(launches[-1], late=True))
    include(writer, launches)
    for number, (name, launch) in enumerate(zip(names, launches, strict=True)):
        writer.line()
        if number < len(packed):
            PackEntry.begun(function, own, facts, writer, found, plan, launch).pack(name, packed[number])
        else:
            last = number > len(packed)
            (CombineEntry if last else kind).begun(function, own, facts, writer, found, plan, launch).emit(name)
    return writer.text()


def _kind(plan: ProductPlan) -> type[ProductEntry]:
    """What multiplies."""
    if plan.streamed:
        return FewRowsEntry
    return {"fma": SquareEntry, "floats": FloatEntry}.get(plan.engine, MatrixEntry)
