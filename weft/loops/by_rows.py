"""Sums over several axes of rows of what loops in order leave at each point, in two steps: over one axis of the rows where
their states are, then over the others.

What heads have in common, as the keys of Mamba-2, gets of each head a sum over the columns of its states: one that the states
can be taken by, as where each head has keys of its own. What heads leave, far less than states of all points are, lies in
memory, and loops of its own sum it.
"""

from __future__ import annotations

from dataclasses import replace

from weft.loops.accumulate import (
    Closure,
    Edit,
    Settled,
    Site,
    accumulate_into,
    ascending,
    ascending_loop,
    has_state_arrays,
    in_full,
    reads_of_each_point,
    sites_of,
)
from weft.loops.extents import expanded, expanded_index, extents
from weft.loops.ir import Expr, For, Function, Load, Ref, Stmt, free_arrays, free_names, name_of, substitute, walk, walk_expr
from weft.loops.names import Names
from weft.loops.simplify import number, own_exprs
from weft.loops.types import INT64


def by_rows(function: Function, targets: tuple[str, ...], names: Names) -> tuple[Function, tuple[str, ...]]:
    """The function, and the arrays that hold a sum for each of the rows and are accumulated into instead. targets: arrays
    filled with 0 that the function touches by `array[index] += value` alone.
    """
    edit, settled, arrays = Edit(), Settled(function), list(function.arrays)
    made: list[str] = []
    for site in (s for target in targets for s in sites_of(function.body, target)):
        kept = _kept(function, site, settled)
        found = None if kept is None else extents(function, kept)
        if kept is None or found is None:
            continue
        array = expanded(names.fresh(f"{site.store.array}_of_rows"), site.value.type, found, number(0, site.value.type))
        arrays.append(array)
        made.append(array.name)
        own: list[Expr] = [Ref(f.var, INT64) for f in kept]
        edit.instead[id(site.store)] = [accumulate_into(array.name, expanded_index(found, own), site.value, site.store)]
        renamed: dict[str, Expr] = {f.var: Ref(names.fresh(f.var), INT64) for f in kept}
        value = Load(array.name, expanded_index(found, [*renamed.values()]), site.value.type)
        index = tuple(substitute(in_full(site, i), renamed) for i in site.store.index)
        nest: Stmt = accumulate_into(site.store.array, index, value, site.store)
        for f in reversed(kept):
            nest = replace(ascending_loop(f, renamed), var=name_of(renamed[f.var]), body=(nest,))
        edit.after.setdefault(id(site.path[0].stmt), []).append(nest)
    return replace(function, body=edit.apply(function.body), arrays=tuple(arrays)), tuple(made)


def _kept(function: Function, site: Site, settled: Settled) -> tuple[For, ...] | None:
    """The loops for each of whose iterations a sum over one axis of rows, and over points in order, lies in memory; None where
    a site adds what no states are needed for, or has less than two such axes.
    """
    loops = site.loops
    index = tuple(in_full(site, i) for i in site.store.index)
    ordered = next((k for k, f in enumerate(loops) if has_state_arrays(f)), None)
    if ordered is None or len(loops) < len(site.path):
        return None
    if not Closure(site, 0, settled).whole and not reads_of_each_point(site):
        return None
    told = {i.name for i in index if isinstance(i, Ref)}
    rows = [f for f in loops[:ordered] if f.var not in told]
    named = {n for i in index for n in free_names(i)}
    sides = [f for f in rows if f.var not in named]
    if len(rows) < 2 or not sides:
        return None
    side = min(reversed(sides), key=lambda f: _reads(loops[0], f.var))
    kept = tuple(f for f in loops if f is not side and (f in loops[:ordered] or f.var in named))
    known = {s.name for s in function.sizes} | {s.name for s in function.scalars} | {f.var for f in kept}
    bounds = {n for f in kept for e in (f.start, f.stop) for n in free_names(e)}
    plain = all(ascending(f) is not None and not free_arrays(f.start) | free_arrays(f.stop) for f in kept)
    return kept if plain and named | bounds <= known else None


def _reads(loop: For, var: str) -> int:
    """What is read in a loop by one of its variables: rows are those of most, and sides of their states those of few."""
    loads = (x for s in walk(loop.body) for e in own_exprs(s) for x in walk_expr(e) if isinstance(x, Load))
    return len({x for x in loads if any(var in free_names(i) for i in x.index)})
