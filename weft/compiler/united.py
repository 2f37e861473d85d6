"""Programs that fold an axis in parts and then the parts, as the plain passes of the whole (`weft.graph.parts`).

Attention whose keys are split into parts is written so, each part relative to its own maximum, and a loop that combines them
after. How many parts there are is a plan's to say, which knows the device: of the whole it has a kernel, where the program says
two, and memory between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from weft.compiler.recomputed import may_chain
from weft.loops.ir import For, Function, Load, Op, Stmt, Store, free_arrays, free_names, statement_exprs, walk, walk_expr
from weft.loops.names import Names, names_bound_in
from weft.loops.schedule import Nest, Schedule, Verdict

_EXTREMA = ("max", "maximum", "fmax", "min", "minimum", "fmin")


def united(schedule: Schedule) -> Function | None:
    """The function of a schedule without parts; None where it has none, or they are more than how its work is shared. Several
    nests that are one chain together are that, too.
    """
    function = schedule.function
    several = len(schedule.nests) > 1 and may_chain(function)
    if function.checked or not (_folds_exponentials(function.body) and (several or _has_tiles(function.body))):
        return None
    if any(n.rare for n in schedule.nests) or any(isinstance(s, For) and s.apart for s in walk(function.body)):
        return None
    from weft.graph.build import build
    from weft.graph.chains import chain
    from weft.graph.parts import whole, without_single_points
    from weft.graph.passes import passes
    from weft.graph.tile import NotTiles

    body = tuple(s for n in schedule.nests for s in n.in_loops())
    axes = tuple((a.var, Verdict(a.var, "parallel")) for n in schedule.nests for a in n.axes)
    nest = Nest(function.name, (), body, (*axes, *(v for n in schedule.nests for v in n.verdicts)))
    names = Names.of(function)
    names.taken |= names_bound_in(body)
    try:
        graph, sizes = build(replace(schedule, nests=(nest,)), nest), {s.name for s in function.sizes}
        found = whole(graph, sizes)
        if found is None:
            if not several:
                return None
            found = without_single_points(graph)
            chain(found, sizes)
        made = passes(found, function, names, together=True)
    except NotTiles:
        return None
    plain = tuple(s for own in made.nests for s in own)
    touched = set(_arrays(plain))
    arrays = tuple(a for a in (*function.arrays, *made.memory) if a.role != "local" or a.name in touched)
    return replace(function, body=plain, arrays=arrays)


def _folds_exponentials(statements: tuple[Stmt, ...]) -> bool:
    """Whether there are exponentials, and extrema that they may be relative to."""
    exprs = (e for s in walk(statements) for top in statement_exprs(s) for e in walk_expr(top))
    names = {e.name for e in exprs if isinstance(e, Op)}
    return bool(names & {"exp", "exp2"} and names & {*_EXTREMA})


def _has_tiles(statements: tuple[Stmt, ...]) -> bool:
    """Whether there are bounds or subscripts that several loops tell together."""
    loops = [s for s in walk(statements) if isinstance(s, For)]
    variables = {f.var for f in loops}
    if any(free_names(e) & variables for f in loops for e in (f.start, f.stop)):
        return True
    loads = (e for s in walk(statements) for top in statement_exprs(s) for e in walk_expr(top) if isinstance(e, Load))
    return any(len(free_names(i) & variables) > 1 for e in loads for i in e.index)


def _arrays(statements: tuple[Stmt, ...]) -> Iterator[str]:
    for s in walk(statements):
        yield from (a for e in statement_exprs(s) for a in free_arrays(e))
        if isinstance(s, Store):
            yield s.array
