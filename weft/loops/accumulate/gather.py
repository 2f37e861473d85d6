"""Nests of their own, in which each element gathers what it gets."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace

from weft.loops.accesses import counted_from_end
from weft.loops.accumulate.closure import Closure, Settled, as_it_stands, factors_of, repeated
from weft.loops.accumulate.plans import Plan, counting_loops, planned
from weft.loops.accumulate.ranges import (
    ascending_loop,
    clipped,
    has_state_arrays,
    in_range,
    no_less_than_0,
    runs_at_all,
    summing,
    surely_inside,
)
from weft.loops.accumulate.sites import Edit, Site, Step, accumulate_into, all_of, between, mapped, often, sites_of
from weft.loops.accumulate.spans import by_spans
from weft.loops.affine import Affine, affine
from weft.loops.digits import replaced
from weft.loops.ir import ZERO, Const, Expr, For, Function, If, Let, Merge, Op, Ref, Stmt, free_arrays, free_names, substitute
from weft.loops.names import Names
from weft.loops.simplify import add, fold, number
from weft.loops.types import BOOL, INT64


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
        changed = _own_nest(function, group, names)
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


def _own_nest(function: Function, group: list[Plan], names: Names) -> Function | None:
    """The function with a nest in which each element sums what the sites of a group add to it; None where there is none."""
    first = group[0]
    target = first.site.store.array
    type_ = first.site.value.type
    variables = {p.axis: names.fresh(_plain_name(p.var)) for p in first.placed}
    ordered = _summed_in_order(function, group)
    summed = tuple(f for f in first.summed if f not in ordered)
    sums = [names.fresh(f.var) for f in summed]
    index = list(first.site.store.index)
    for p in first.placed:
        index[p.axis] = Ref(variables[p.axis], INT64)
    parts = {f.var: replace(f, var=names.fresh(_plain_name(f.var))) for f in first.parts}
    edit, arrays, settled = Edit(), list(function.arrays), Settled(function)
    statements: list[Stmt] = []
    total: Expr = number(0, type_)
    loops = [*first.site.loops[: first.prefix], *_placed_loops(first, variables)]
    shape, inside = function.array(target).shape, surely_inside(function, target, tuple(index), loops)
    if not inside and (first.digits or any(p.windows or any(x.stride > 1 for x in p.placed) for p in group)):
        return None
    guarded = [p for p in group if any(isinstance(x.stmt, If) and k not in p.certain for k, x in _below(p))]
    use: Callable[[Expr], Stmt] | None = None
    if guarded and not inside and not first.summed:
        group = [p for p in guarded if (alone := planned(function, p.site)) is not None and not alone.in_place][:1]
        if not group:
            return None
        first = group[0]

        def use(value: Expr) -> Stmt:
            return accumulate_into(target, tuple(index), value, first.site.store)

    closures = [Closure(p.site, p.depth, settled, p.certain) for p in group]
    apart = [c for c in closures if c.whole]
    values, named = {c.site.value for c in apart}, {n for c in apart for n in c.spills}
    by_name = len(named) <= len(values) > 1 and all(c.repeatable for c in apart)  # one array serves several sites
    keeping: dict[tuple[Expr, tuple[Expr, ...]], str] = {}
    for plan, closure in zip(group, closures, strict=True):
        own = tuple(f for f in plan.summed if f not in ordered)
        known: dict[str, Expr] = {f.var: Ref(v, INT64) for f, v in zip(own, sums, strict=True)}
        known |= {v: Ref(f.var, INT64) for v, f in parts.items()}
        known |= {x.name: x.of(known) for x in plan.products}
        found = _iteration_at(plan, variables, known, ordered)
        if found is None:
            return None
        known, ranges, divided = found
        again = repeated(function, closure, by_name, known, names, edit, arrays, keeping, use, ordered)
        if again is None:
            return None
        made, part = again
        if divided:

            def undivided(e: Expr, known: Mapping[Expr, Expr] = divided) -> Expr:
                return replaced(e, known)

            made, part = [*mapped(tuple(made), undivided)], undivided(part)
        if ranges:
            condition = all_of(ranges)
            merge = Merge(names.fresh(f"{target}_part"), part, number(0, type_))
            made, part = [If(condition, tuple(made), (), (merge,), plan.site.store.location)], Ref(merge.name, type_)
        statements += made
        total = add(total, part)
    shown: dict[str, Expr] = {p.var: Ref(variables[p.axis], INT64) for p in first.placed}
    shown |= _names_of(summed, sums)
    around_sum = {f.var: ascending_loop(f, shown) for f in first.summed}
    value = total
    windows = {first.summed[w.loop].var: w for w in first.windows}
    carrying: list[For] = []
    for f, var in zip(summed, sums, strict=True):
        loop = replace(around_sum[f.var], var=var)
        window = windows.get(f.var)
        carrying.append(loop if window is None else window.around(Ref(variables[window.axis], INT64), loop))
    for loop in reversed((*carrying, *parts.values())):
        statements, value = summing(loop, statements, value, target, names)
    if use is None:
        store: Stmt = accumulate_into(target, tuple(index), value, first.site.store)
        if not inside and not guarded:  # it may be outside where a loop that sums does not run
            runs = dict.fromkeys(fold(runs_at_all(f)) for f in around_sum.values() if f.var not in first.turned)
            for certain in (Const(True, BOOL), *(fold(runs_at_all(f)) for f in loops)):
                runs.pop(certain, None)
            if any(free_names(r) & {*sums} for r in runs):
                return None
            if runs:
                store = If(all_of(runs), (store,), (), (), first.site.store.location)
        elif not inside:  # nor do all conditions tell where no loop is, as of `c[1, j]`
            others = [x for axis, x in enumerate(zip(index, shape, strict=True)) if axis not in variables]
            kept = [between(i, ZERO, extent) for i, extent in others if not in_range(i, extent, loops)]
            store = If(all_of(kept), (store,), (), (), first.site.store.location) if kept else store
        statements.append(store)
    for around in reversed(_placed_loops(first, variables)):
        if guarded and not inside and use is None:  # it may be outside where no condition holds
            around = clipped(around, shape[index.index(Ref(around.var, INT64))])
        statements = [replace(around, body=tuple(statements))]
    if not first.prefix and any(factors_of(c.site) & c.spills.keys() for c in closures):
        statements = [replace(s, apart=True) if isinstance(s, For) else s for s in statements]
    last = group[-1].site
    place = last.path[group[-1].depth].stmt
    edit.after.setdefault(id(place), []).extend(statements)
    if not _stands_where_backwards(function, group, settled, names, edit):
        return None
    return replace(function, body=edit.apply(function.body), arrays=tuple(arrays))


def _iteration_at(
    plan: Plan, variables: Mapping[int, str], known: Mapping[str, Expr], ordered: tuple[For, ...]
) -> tuple[dict[str, Expr], list[Expr], dict[Expr, Expr]] | None:
    """What the variables of a site are where it reaches an element, beside those that are known; the conditions under which
    they are an iteration; and what subscripts make of digits, by these. variables: of the element, by axis. None where a range
    needs a variable of the loops that are summed in order.
    """
    known = dict(known)
    ranges: list[Expr] = []
    divided: dict[Expr, Expr] = {}
    for p in plan.placed:
        at = (Affine(((variables[p.axis], 1),), 0) - p.rest) * p.sign
        if p.within is not None and not plan.variables(p.rest).isdisjoint(f.var for f in ordered):
            return None
        told = substitute(at.expr(), known)
        if p.places and p.whole is not None:
            known |= {x.var: x.of(told) for x in p.places}
            ranges += [Op("ge", (told, ZERO), BOOL)] if p.rest != Affine((), 0) else []
            ranges.append(Op("lt", (known[p.var], p.whole), BOOL))
            continue
        if p.stride > 1:
            stride = number(p.stride, INT64)
            ranges.append(Op("eq", (Op("mod", (told, stride), INT64), ZERO), BOOL))
            told = Op("floordiv", (told, stride), INT64)
        known[p.var] = told
        if p.whole is not None:
            ranges.append(between(told, ZERO, p.whole))
        if p.reached not in (None, p.bounds[:2]):
            ranges.append(between(Ref(variables[p.axis], INT64), *(e.expr() for e in p.reached)))
        if p.asked is not None:
            if any(free_names(e) & {f.var for f in ordered} for e in p.asked):
                return None
            ranges.append(between(told, *(substitute(e, known) for e in p.asked)))
        if p.within is not None and not any(w.axis == p.axis for w in plan.windows):
            ends = (e.expr() for e in p.within)
            ranges.append(between(told, *ends))
    for d in plan.digits:
        one = known[d.var] = substitute(d.value, known)
        divided |= {substitute(e, {d.var: one}): substitute(by, known) for e, by in d.named}
        ranges += [] if d.inside is None else [substitute(d.inside, known)]
    counts = [x.extent for p in plan.placed for x in p.places if x.extent is not None]
    above = dict.fromkeys((*(e for d in plan.digits for e in d.divisors), *counts))
    ranges += [Op("lt", (ZERO, e), BOOL) for e in above if not isinstance(e, Const)]
    return known, ranges, divided


def _stands_where_backwards(function: Function, group: list[Plan], settled: Settled, names: Names, edit: Edit) -> bool:
    """Have sites stand as they are where a divisor is below 0, which the nest is not for; False where that is not known."""
    divisors = dict.fromkeys(e for d in group[0].digits for e in d.divisors if not no_less_than_0(function, e))
    backwards: list[Expr] = [Op("lt", (e, ZERO), BOOL) for e in divisors]
    for plan in group if backwards else ():
        late = as_it_stands(function, plan.site, settled, names)
        if late is None:
            return False
        below = functools.reduce(lambda a, b: Op("or", (a, b), BOOL), backwards)
        top = If(below, late, (), (), plan.site.store.location, rare=True)
        edit.after.setdefault(id(plan.site.path[0].stmt), []).append(top)
    return True


def _summed_in_order(function: Function, group: list[Plan]) -> tuple[For, ...]:
    """The loops that sum what a site adds where it stands: they run in order in any case, since states that are arrays go
    through them, and what they sum has one element for all their iterations.
    """
    if len(group) > 1:
        return ()
    (plan,) = group
    if not Closure(plan.site, plan.depth, Settled(function), plan.certain).whole:
        return ()
    loops = plan.site.loops
    ordered = tuple(f for f in plan.summed if f is not loops[-1] and has_state_arrays(f))
    bounded = {n for f in loops for e in (f.start, f.stop) for n in free_names(e)}
    return ordered if not bounded & {f.var for f in ordered} else ()


def _names_of(summed: tuple[For, ...], sums: list[str]) -> dict[str, Expr]:
    return {f.var: Ref(v, INT64) for f, v in zip(summed, sums, strict=True)}


def _plain_name(digit: str) -> str:
    """What a digit of a variable is called in the text."""
    return digit.partition("'")[0]


def _placed_loops(plan: Plan, variables: dict[int, str]) -> list[For]:
    by_var = {f.var: f for f in counting_loops(plan.site, plan.digits)}
    return [
        For(
            variables[p.axis],
            p.bounds[0].expr(),
            p.bounds[1].expr(),
            p.bounds[2],
            (),
            (),
            location=by_var[p.var].location,
        )
        for p in plan.placed
    ]


def _below(plan: Plan) -> list[tuple[int, Step]]:
    """The steps of a plan's path that its new nest replaces."""
    return list(enumerate(plan.site.path))[plan.depth :]
