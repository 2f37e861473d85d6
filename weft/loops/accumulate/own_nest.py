"""A nest of its own in which each element sums what sites add to it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace

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
from weft.loops.accumulate.sites import Edit, Step, accumulate_into, all_of, between, mapped
from weft.loops.affine import Affine
from weft.loops.digits import replaced
from weft.loops.ir import ZERO, Const, Expr, For, Function, If, Merge, Op, Ref, Stmt, free_names, substitute
from weft.loops.names import Names
from weft.loops.simplify import add, fold, number
from weft.loops.types import BOOL, INT64


class OwnNest:
    """A nest in which each element sums what the sites of a group add to it: loops over the elements, around loops that sum.

    variables: of the element, by axis. ordered: the loops that sum where a site stands; summed: those that the nest has for
    it, sums: what their variables are called. parts: loops over what else tells an iteration, by the variables that they had.
    inside: whether all elements are the array's.
    """

    def __init__(self, function: Function, group: list[Plan], names: Names) -> None:
        first = group[0]
        self.function, self.group, self.first, self.names = function, group, first, names
        self.target, self.type = first.site.store.array, first.site.value.type
        self.variables = {p.axis: names.fresh(_plain_name(p.var)) for p in first.placed}
        self.ordered = _summed_in_order(function, group)
        self.summed = tuple(f for f in first.summed if f not in self.ordered)
        self.sums = [names.fresh(f.var) for f in self.summed]
        self.parts = {f.var: replace(f, var=names.fresh(_plain_name(f.var))) for f in first.parts}
        placed = {axis: Ref(v, INT64) for axis, v in self.variables.items()}
        self.index = tuple(placed.get(axis, i) for axis, i in enumerate(first.site.store.index))
        self.loops = [*first.site.loops[: first.prefix], *_placed_loops(first, self.variables)]
        self.shape = function.array(self.target).shape
        self.inside = surely_inside(function, self.target, self.index, self.loops)
        self.edit, self.arrays, self.settled = Edit(), list(function.arrays), Settled(function)

    def made(self) -> Function | None:
        """The function with the nest; None where there is none."""
        first, group = self.first, self.group
        if not self.inside and (first.digits or any(p.windows or any(x.stride > 1 for x in p.placed) for p in group)):
            return None
        guarded = [p for p in group if any(isinstance(x.stmt, If) and k not in p.certain for k, x in _below(p))]
        use: Callable[[Expr], Stmt] | None = None
        if guarded and not self.inside and not first.summed:
            alone = ((p, planned(self.function, p.site)) for p in guarded)
            self.group = [p for p, own in alone if own is not None and not own.in_place][:1]
            if not self.group:
                return None
            self.first = self.group[0]
            use = self.store
        closures = [Closure(p.site, p.depth, self.settled, p.certain) for p in self.group]
        added = self.added(closures, use)
        if added is None:
            return None
        loops = self.loops_that_sum()
        statements, value = self.summed_up(*added, loops)
        if use is None:
            stored = self.stored(value, loops, guarded=bool(guarded))
            if stored is None:
                return None
            statements.append(stored)
        for around in reversed(_placed_loops(self.first, self.variables)):
            if guarded and not self.inside and use is None:  # it may be outside where no condition holds
                around = clipped(around, self.shape[self.index.index(Ref(around.var, INT64))])
            statements = [replace(around, body=tuple(statements))]
        if not self.first.prefix and any(factors_of(c.site) & c.spills.keys() for c in closures):
            statements = [replace(s, apart=True) if isinstance(s, For) else s for s in statements]
        last = self.group[-1]
        place = last.site.path[last.depth].stmt
        self.edit.after.setdefault(id(place), []).extend(statements)
        if not _stands_where_backwards(self.function, self.group, self.settled, self.names, self.edit):
            return None
        return replace(self.function, body=self.edit.apply(self.function.body), arrays=tuple(self.arrays))

    def store(self, value: Expr) -> Stmt:
        """An element gets this besides."""
        return accumulate_into(self.target, self.index, value, self.first.site.store)

    def added(self, closures: list[Closure], use: Callable[[Expr], Stmt] | None) -> tuple[list[Stmt], Expr] | None:
        """What an iteration of the loops that sum computes, and adds; None where it is not known. use: what is done with it
        where conditions decide whether there is any.
        """
        apart = [c for c in closures if c.whole]
        values, named = {c.site.value for c in apart}, {n for c in apart for n in c.spills}
        by_name = len(named) <= len(values) > 1 and all(c.repeatable for c in apart)  # one array serves several sites
        keeping: dict[tuple[Expr, tuple[Expr, ...]], str] = {}
        statements: list[Stmt] = []
        total: Expr = number(0, self.type)
        for plan, closure in zip(self.group, closures, strict=True):
            own = tuple(f for f in plan.summed if f not in self.ordered)
            known: dict[str, Expr] = {f.var: Ref(v, INT64) for f, v in zip(own, self.sums, strict=True)}
            known |= {v: Ref(f.var, INT64) for v, f in self.parts.items()}
            known |= {x.name: x.of(known) for x in plan.products}
            found = _iteration_at(plan, self.variables, known, self.ordered)
            if found is None:
                return None
            known, ranges, divided = found
            parts = (self.names, self.edit, self.arrays, keeping, use, self.ordered)
            again = repeated(self.function, closure, by_name, known, *parts)
            if again is None:
                return None
            made, part = again
            if divided:

                def undivided(e: Expr, known: Mapping[Expr, Expr] = divided) -> Expr:
                    return replaced(e, known)

                made, part = [*mapped(tuple(made), undivided)], undivided(part)
            if ranges:
                merge = Merge(self.names.fresh(f"{self.target}_part"), part, number(0, self.type))
                made = [If(all_of(ranges), tuple(made), (), (merge,), plan.site.store.location)]
                part = Ref(merge.name, self.type)
            statements += made
            total = add(total, part)
        return statements, total

    def loops_that_sum(self) -> dict[str, For]:
        """The loops that sum, which ascend here, by the variables that they had."""
        first = self.first
        shown: dict[str, Expr] = {p.var: Ref(self.variables[p.axis], INT64) for p in first.placed}
        shown |= {f.var: Ref(v, INT64) for f, v in zip(self.summed, self.sums, strict=True)}
        return {f.var: ascending_loop(f, shown) for f in first.summed}

    def summed_up(self, statements: list[Stmt], value: Expr, loops: Mapping[str, For]) -> tuple[list[Stmt], Expr]:
        """What an iteration adds, with loops around it; and their sum."""
        windows = {self.first.summed[w.loop].var: w for w in self.first.windows}
        carrying: list[For] = []
        for f, var in zip(self.summed, self.sums, strict=True):
            loop, window = replace(loops[f.var], var=var), windows.get(f.var)
            carrying.append(loop if window is None else window.around(Ref(self.variables[window.axis], INT64), loop))
        for loop in reversed((*carrying, *self.parts.values())):
            statements, value = summing(loop, statements, value, self.target, self.names)
        return statements, value

    def stored(self, value: Expr, loops: Mapping[str, For], guarded: bool) -> Stmt | None:
        """What an element gets, where there is one; None where that depends on iterations. guarded: whether conditions tell if
        sites add anything.
        """
        store, place = self.store(value), self.first.site.store.location
        if not self.inside and not guarded:  # it may be outside where a loop that sums does not run
            runs = dict.fromkeys(fold(runs_at_all(f)) for f in loops.values() if f.var not in self.first.turned)
            for certain in (Const(True, BOOL), *(fold(runs_at_all(f)) for f in self.loops)):
                runs.pop(certain, None)
            if any(free_names(r) & {*self.sums} for r in runs):
                return None
            return If(all_of(runs), (store,), (), (), place) if runs else store
        if not self.inside:  # nor do all conditions tell where no loop is, as of `c[1, j]`
            others = [x for axis, x in enumerate(zip(self.index, self.shape, strict=True)) if axis not in self.variables]
            kept = [between(i, ZERO, extent) for i, extent in others if not in_range(i, extent, self.loops)]
            return If(all_of(kept), (store,), (), (), place) if kept else store
        return store


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
