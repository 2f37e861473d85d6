"""The names of the entries of a nest's text, in the order of their launches.

Importing this is quick: who launches a text that was made before needs no emitter.
"""

from __future__ import annotations

from weft.emit.names import kernel_entry
from weft.graph.recurrences import Recurrences
from weft.graph.state_scans import StateScans
from weft.graph.sweeps import Sweeps
from weft.loops.schedule import Nest
from weft.plan.chain import ChainPlan
from weft.plan.fold import FoldPlan, steps
from weft.plan.join import JoinPlan, join_steps
from weft.plan.map import MapPlan
from weft.plan.product import ProductPlan


def of_maps(nest: Nest, plan: MapPlan) -> tuple[str, ...]:
    """In the order of its courses."""
    name = kernel_entry(nest.name)
    return (name,) if len(plan.courses) == 1 else tuple(f"{name}_{k + 1}" for k in range(len(plan.courses)))


def of_folds(nest: Nest, sweeps: Sweeps, plan: FoldPlan) -> tuple[str, ...]:
    name = kernel_entry(nest.name)
    if plan.shares:
        return name, f"{name}_share", f"{name}_join"
    last = len(steps(sweeps, plan)) - 1
    return tuple(name if k == last else f"{name}_parts_{k + 1}" if last > 1 else f"{name}_parts" for k in range(last + 1))


def of_products(nest: Nest, plan: ProductPlan) -> tuple[str, ...]:
    """What packs operands, what leaves parts, and the product. Each may begin before the one before it has ended."""
    name, packed = kernel_entry(nest.name), sum(plan.packed)
    packs = (f"{name}_pack" if packed == 1 else f"{name}_pack_{n}" for n in range(1, packed + 1))
    return (*packs, *((f"{name}_parts",) if plan.leaves_parts else ()), name)


def of_chain(nest: Nest, plan: ChainPlan) -> tuple[str, ...]:
    """What leaves parts, and what combines them; or what tells that none is there, or no tile is taken, and all else."""
    name = kernel_entry(nest.name)
    if plan.counts:
        return f"{name}_tickets", name
    return (f"{name}_parts", name) if plan.leaves_parts else (name,)


def of_chained_products(nest: Nest, plan: ChainPlan) -> str:
    """What multiplies."""
    return of_chain(nest, plan)[plan.counts]


def of_joins(nest: Nest, plan: JoinPlan) -> tuple[str, ...]:
    name, its = kernel_entry(nest.name), join_steps(plan)
    return tuple(f"{name}_{k}_{s.kind}" for k, s in enumerate(its[:-1], 1)) + (name,)


def of_states(nest: Nest, states: StateScans | Recurrences) -> tuple[str, ...]:
    """What is known before all points, the launch that goes through them, and what is computed of what it leaves."""
    name = kernel_entry(nest.name)
    return (*([f"{name}_before"] if states.early else []), name, *([f"{name}_after"] if states.crossed else []))
