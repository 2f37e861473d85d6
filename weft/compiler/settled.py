"""Programs whose adjoints need less of the plain passes that they are than of their own loops.

Online softmax keeps its sum relative to the largest element so far. An adjoint of that needs both of every iteration; of the
passes, one for the largest and one for the sum relative to it, it needs two numbers a row. Distances between all pairs by the
cosine sum the squares of a row anew for each column: the adjoint keeps them for every pair, where a pass keeps a number a row.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from weft.loops.ir import For, Function, If, Stmt, Store, walk, without_checks
from weft.loops.live import Uses
from weft.loops.names import Names, names_bound_in
from weft.loops.schedule import Nest, Schedule

if TYPE_CHECKING:
    from weft.graph.passes import Passes


def settled(function: Function) -> Function:
    """A function that computes the same, with the loops as passes whose updates are repaired, or whose folds are the same for
    all iterations of a loop around them; the function itself where it has no such loop, where its nest is no graph of folds,
    or where a pass reads what is there only if that loop has an iteration. It checks nothing as it goes.
    """
    if not _folds_again(function.body) and not any(isinstance(s, For) and _may_repair(s) for s in walk(function.body)):
        return function
    from weft.loops.analyze import schedule

    bare = replace(function, body=without_checks(function.body), demands=())
    found = schedule(bare)
    if not any(_in_part(nest) for nest in found.nests):
        return function
    names = Names.of(found.function)
    for nest in found.nests:
        names.taken |= names_bound_in(nest.body) | {a.var for a in nest.axes}
    body: list[Stmt] = []
    arrays = list(found.function.arrays)
    for nest in found.nests:
        if not _in_part(nest):
            body += nest.in_loops()
            continue
        made = in_passes(found, nest, names, together=True)
        if made is None:
            return function
        body += itertools.chain(*made.nests)
        arrays += made.memory
    plain = replace(found.function, body=tuple(body), arrays=tuple(arrays))
    return plain if asks_no_more(plain, found.function) else function


def asks_no_more(passes: Function, loops: Function) -> bool:
    """Whether passes are inside their arrays wherever the loops that they are made of are: a fold leaves loops which may have
    no iteration, and is not to read what is there only if they have.
    """
    from weft.loops.analyze import requirements

    after, before = ({(r.condition, r.array, r.axis) for r in requirements(f)} for f in (passes, loops))
    return after <= before


def in_passes(schedule: Schedule, nest: Nest, names: Names, together: bool = False) -> Passes | None:
    """A nest as the plain passes of its graph (`weft.graph.passes`); None where it is no graph of folds."""
    from weft.graph.build import build
    from weft.graph.passes import passes
    from weft.graph.tile import NotTiles

    try:
        return passes(build(schedule, nest), schedule.function, names, together)
    except NotTiles:
        return None


def _may_repair(loop: For) -> bool:
    """Whether a loop may carry a sum beside a value that it is relative to."""
    return len(loop.carries) > 1 or (bool(loop.carries) and any(isinstance(s, Store) for s in walk(loop.body)))


def _in_part(nest: Nest) -> bool:
    """Whether a nest is asked for its passes."""
    repairs = any(u.repair for _, verdict in nest.verdicts for u in verdict.updates)
    return repairs or _folds_again(nest.body, frozenset(a.var for a in nest.axes))


def _folds_again(statements: tuple[Stmt, ...], around: frozenset[str] = frozenset()) -> bool:
    """Whether a loop carries what is the same for all iterations of a loop around it. around: those around the statements."""
    uses = Uses.of(statements)

    def inside(own: tuple[Stmt, ...], around: frozenset[str]) -> bool:
        for s in own:
            if isinstance(s, If) and (inside(s.then, around) or inside(s.orelse, around)):
                return True
            if isinstance(s, For):
                if any(not around <= uses.closure((c.result,)) for c in s.carries):
                    return True
                if inside(s.body, around if s.carries else around | {s.var}):
                    return True
        return False

    return inside(statements, around)
