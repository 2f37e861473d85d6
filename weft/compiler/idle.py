"""Loops that could run in parallel and do not, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weft.compiler.analysis import Refused
from weft.compiler.launch import Launch
from weft.errors import Location
from weft.loops.ir import For, walk
from weft.loops.schedule import Nest, Verdict
from weft.plan.idle import in_order
from weft.plan.join import JoinPlan
from weft.plan.threads import ThreadPlan
from weft.runtime.stack import deep


@dataclass(frozen=True)
class Unused:
    """A loop that is proven parallel, a reduction or a scan, and runs in order inside one thread of a GPU; why, and what to
    write instead, in the user's names. where: what is in the way, if it is not the loop itself.
    """

    loop: Verdict
    name: str
    why: str
    where: Location | None
    remedy: str


@deep
def unused(launch: Launch, names: Mapping[str, int]) -> tuple[Unused, ...]:
    """The loops of a launch for a call that could run in parallel and do not. names: as of `launches`."""
    variant, at = launch.variant, launch.where
    assert at is not None
    nest, lowered = launch.nest, at.analysis.lowered[variant.nest]
    if not isinstance(variant.plan, ThreadPlan | JoinPlan) or nest.rare or lowered.looking:
        return ()
    box = None if lowered.sweeps is None else lowered.sweeps.box
    if lowered.sweeps is not None and box is None:
        return ()  # a thread for each does as well
    uneven = None if box is None else Refused(f"the bounds of {box.uneven[0].name} are not the same everywhere")
    refused = uneven or lowered.refused
    inside = in_order(nest, {**names, **{v: most for v, (_, most) in at.ranges.items()}})
    if isinstance(variant.plan, JoinPlan):
        assert lowered.joins is not None
        inside = tuple(loop for loop in inside if loop.var in lowered.joins.inside)
    elif variant.plan.shared:
        inside = tuple(loop for loop in inside if loop not in nest.body)
    if not inside:
        return ()
    from weft.loops.show import renamed, user_names

    shown, found = user_names(at.analysis.function), []
    for loop in inside:
        why, where, remedy = _in_the_way(nest, loop, refused, variant.plan)
        name, why, remedy = (renamed(text, shown) for text in (loop.var, why, remedy))
        found.append(Unused(nest.verdict(loop), name, why, where, remedy))
    return tuple(found)


_ALONE = "write it as a kernel of its own, which takes what is computed before it from arrays and leaves there what it finds"


def _in_the_way(
    nest: Nest, loop: For, refused: Refused | None, plan: ThreadPlan | JoinPlan
) -> tuple[str, Location | None, str]:
    """Why a loop runs in order inside a thread, what is in its way, and what to write instead."""
    around = [o for o in nest.loops() if nest.verdict(o).kind == "sequential" and any(s is loop for s in walk(o.body))]
    if around:
        outer = around[0].var
        step = f"write what is inside {outer} as a kernel of its own, and call it for each {outer}"
        return f"loop {outer} around it runs in order", around[0].location, step
    if isinstance(plan, JoinPlan):
        return f"the bounds of {loop.var} are not the same everywhere", None, ""
    if refused is None and not plan.order:
        return f"no loop around {loop.var} has threads for its iterations", None, _ALONE
    if refused is None:
        return f"neighbours in memory lie along {plan.order[-1]}, so each of them has a thread", None, _ALONE
    beside = [o for o in nest.loops() if not any(s is loop for s in walk((o,))) and not any(s is o for s in walk((loop,)))]
    return refused.why, refused.where, refused.remedy or (_ALONE if beside else "")
