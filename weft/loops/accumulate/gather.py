"""Nests of their own, in which each element gathers what it gets."""

from __future__ import annotations

from dataclasses import replace

from weft.loops.accesses import counted_from_end
from weft.loops.accumulate.closure import Closure, Settled
from weft.loops.accumulate.own_nest import OwnNest
from weft.loops.accumulate.plans import Plan, planned
from weft.loops.accumulate.ranges import (
    runs_at_all,
    summing,
)
from weft.loops.accumulate.sites import Edit, Site, accumulate_into, all_of, often, sites_of
from weft.loops.accumulate.spans import by_spans
from weft.loops.affine import Affine, affine
from weft.loops.ir import Expr, For, Function, If, Let, Op, Ref, Stmt, free_arrays, free_names, substitute
from weft.loops.names import Names
from weft.loops.types import INT64


def gather(function: Function, target: str, names: Names) -> Function:
    """Turn sites whose loops do not all stand, as they are, in the index into nests of their own."""
    left: set[int] = set()
    while True:
        plans = [planned(function, s) for s in often(function, target)]
        todo = [p for p in plans if p is not None and not p.in_place and id(p.site.store) not in left]
        if not todo:
            function = by_spans(function, target, names)
            apart = _from_the_end_apart(function, target)
            if apart is None:
                return _sums_first(function, target, names)
            function = apart
            continue
        group = _neighbours(function, todo[0], plans) or [p for p in todo if p.key() == todo[0].key()]
        changed = OwnNest(function, group, names).made()
        if changed is None:
            # edits keep the identity of the stores they do not touch
            left |= {id(p.site.store) for p in group}
        else:
            function = changed


def _from_the_end_apart(function: Function, target: str) -> Function | None:
    """The function with two sites instead of each that has no plan and a subscript that counts from the end where it is below
    0: one for those below 0, one for the others. None where there are none.
    """
    edit, fixed = Edit(), {s.name for s in function.sizes} | {s.name for s in function.scalars}
    for site in often(function, target):
        index, known = site.store.index, fixed | {f.var for f in site.loops}
        bare = (form for form, counts in map(counted_from_end, index) if counts)
        if not all(affine(form) is not None and free_names(form) <= known for form in bare):
            continue
        axis = next((k for k, i in enumerate(index) if counted_from_end(i)[1]), None)
        if axis is None or planned(function, site) is not None:
            continue
        whole = index[axis]
        assert isinstance(whole, Op)
        below, *ends = whole.args
        sides = ((*index[:axis], end, *index[axis + 1 :]) for end in ends)
        then, orelse = (accumulate_into(target, i, site.value, site.store) for i in sides)
        edit.instead[id(site.store)] = [If(below, (then,), (orelse,), (), site.store.location)]
    return replace(function, body=edit.apply(function.body)) if edit.instead else None


def _sums_first(function: Function, target: str, names: Names) -> Function:
    """Let sites whose elements, or the ranges of these, data choose by some of their loops alone sum over the others first: in
    loops of their own.
    """
    edit, settled = Edit(), Settled(function)
    for site in sites_of(function.body, target):
        made = None if any(isinstance(x.stmt, If) for x in site.path) else _summed_first(function, site, settled, names)
        if made is not None:
            edit.instead[id(site.store)] = []
            edit.after.setdefault(id(site.path[0].stmt), []).extend(made)
    return replace(function, body=edit.apply(function.body))


def _summed_first(function: Function, site: Site, settled: Settled, names: Names) -> tuple[Stmt, ...] | None:
    """A site as a nest over the loops that its index is made of, with a sum over the others; None where these are inside those
    already, and where what it adds cannot be computed anew.
    """
    lets = {s.name: s.value for step in site.path for s in step.before if isinstance(s, Let)}

    def whole(e: Expr) -> Expr:
        while named := free_names(e) & lets.keys():
            e = substitute(e, {n: lets[n] for n in named})
        return e

    index = tuple(map(whole, site.store.index))
    bounds = {f.var: (whole(f.start), whole(f.stop)) for f in site.loops}
    fixed = {s.name for s in function.sizes} | {s.name for s in function.scalars}
    told = {n for i in index for n in free_names(i)} - fixed
    for f in reversed(site.loops):
        told |= {n for e in bounds[f.var] for n in free_names(e)} - fixed if f.var in told else set()
    kept, summed = ([f for f in site.loops if (f.var in told) == own] for own in (True, False))
    closure = Closure(site, 0, settled)
    if not kept or not summed or summed == list(site.loops[len(kept) :]) or not told <= {f.var for f in kept}:
        return None
    if closure.spills or not closure.repeatable or not all(map(settled, (*index, *(e for f in kept for e in bounds[f.var])))):
        return None
    if any(not free_names(e) <= fixed or free_arrays(e) for f in summed for e in bounds[f.var]):
        return None
    known: dict[str, Expr] = {}
    loops: list[For] = []
    runs = all_of(runs_at_all(replace(f, start=bounds[f.var][0], stop=bounds[f.var][1])) for f in summed)
    ranged = next((f for f in kept if any(map(free_arrays, bounds[f.var]))), None)
    for f in (*kept, *summed):
        start, stop = bounds[f.var]
        # where there is nothing to add, a range may be none of the array's
        stop = Op("where", (runs, stop, start), INT64) if f is ranged else stop
        start, stop = substitute(start, known), substitute(stop, known)
        var = names.fresh(f.var)
        known[f.var] = Ref(var, INT64)
        loops.append(replace(f, var=var, start=start, stop=stop, carries=(), body=()))
    made, value = closure.repeat(known, names)
    for f in reversed(loops[len(kept) :]):
        made, value = summing(f, made, value, site.store.array, names)
    store: Stmt = accumulate_into(site.store.array, tuple(substitute(i, known) for i in index), value, site.store)
    if ranged is None:  # and an element
        store = If(substitute(runs, known), (store,), (), (), site.store.location)
    statements: tuple[Stmt, ...] = (*made, store)
    for f in reversed(loops[: len(kept)]):
        statements = (replace(f, body=statements),)
    return statements


def _neighbours(function: Function, first: Plan, plans: list[Plan | None]) -> list[Plan]:
    """A plan and those of sites that reach neighbours of its elements: one nest over all elements serves them, each where it
    reaches. Empty where there are no others.
    """
    inside = [p for p in plans if p is not None and p.site.path and not p.summed]
    around = [p for p in inside if p.site.path[0].stmt is first.site.path[0].stmt]
    prefix = min((p.prefix for p in around), default=0)
    found = [q for p in around if (q := planned(function, p.site, prefix)) is not None and not q.summed]
    apart = [p for p in found if not p.digits and all((x.within, x.asked, x.bounds[2]) == (None, None, 1) for x in p.placed)]
    whole = [_widened(function, p) for p in apart]
    keys = [p.key() for p in whole if p.site.store is first.site.store]
    group = [p for p in whole if p.key() in keys]
    return group if len({tuple(x.reached for x in p.placed) for p in group}) > 1 else []


def _widened(function: Function, plan: Plan) -> Plan:
    """The plan with loops over whole axes of the array."""
    shape = function.array(plan.site.store.array).shape
    whole = {p.axis: affine(shape[p.axis]) for p in plan.placed}
    placed = (
        p if (extent := whole[p.axis]) is None else replace(p, bounds=(Affine((), 0), extent, 1), reached=p.bounds[:2])
        for p in plan.placed
    )
    return replace(plan, placed=tuple(placed))
