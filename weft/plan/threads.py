"""The plan of a nest whose iterations share nothing: a thread works through the whole body of one."""

from __future__ import annotations

from dataclasses import dataclass

from weft.loops.accesses import collect
from weft.loops.affine import Affine
from weft.loops.ir import For
from weft.loops.schedule import Nest
from weft.plan.arguments import Facts


@dataclass(frozen=True)
class ThreadPlan:
    """order: the axes from the slowest to the fastest, along which neighbouring threads lie. block: threads a block."""

    order: tuple[str, ...]
    block: int


def plan_threads(nest: Nest, facts: Facts) -> ThreadPlan:
    """Neighbouring threads take neighbours in memory: the fastest axis is the one most arrays have unit stride along."""
    around = tuple(For(a.var, a.start, a.stop, a.step, (), ()) for a in nest.axes)
    votes = {a.var: 0 for a in nest.axes}
    for access in collect(nest.body, around):
        for axis, form in enumerate(access.subscript):
            if (access.array, axis) in facts.unit and form is not None:
                for var in votes:
                    votes[var] += form == Affine(((var, 1),), form.constant)
    order = [a.var for a in nest.axes]
    if order:
        fastest = max(reversed(order), key=lambda v: votes[v])
        order.remove(fastest)
        order.append(fastest)
    return ThreadPlan(tuple(order), 128)
