"""Who attains an extremum: loops over its elements, in the adjoint, that find those to which the derivative goes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from weft.loops.adjoint.extrema import Extremum
from weft.loops.adjoint.facts import Facts
from weft.loops.adjoint.scope import Scope
from weft.loops.adjoint.seeds import Seed, both
from weft.loops.adjoint.sweep import Sweep
from weft.loops.derivatives import sources
from weft.loops.ir import TRUE, Carry, Cast, Const, Expr, For, Let, Load, Op, Ref, Round, Stmt, free_names, operands
from weft.loops.live import Uses
from weft.loops.names import Names
from weft.loops.simplify import add, div, fold, mul, number, select, sub
from weft.loops.types import BOOL, INT64

# Operators whose value is one of their arguments, or exact: it has the same bits wherever it is computed.
_EXACT = frozenset(
    (
        *("max", "min", "maximum", "minimum", "fmax", "fmin", "where", "neg", "abs"),
        *("and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite"),
    )
)
# Operators that round once, and to the same bits unless they are contracted with what they are made of.
_ROUNDED_ONCE = frozenset({"add", "sub", "mul"})


@dataclass(frozen=True)
class Element:
    """A place of a loop over elements. before: what is carried there. place: which element it is. out: the loop's body."""

    before: tuple[Expr, ...]
    place: Expr
    scope: Scope
    out: list[Stmt]


def _element_of(extremum: str) -> str:
    return f"{extremum}_element"


def _there_of(extremum: str) -> str:
    return f"{extremum}_there"


def _moved(index: Expr, by: int) -> Expr:
    return fold(Op("add", (index, Const(by, INT64)), INT64))


class Elements(Sweep):
    """Who attains the extrema of the function."""

    def __init__(self, facts: Facts, names: Names) -> None:
        super().__init__(facts, names)
        self.roundings: dict[str, float] = {}  # of names, where they have been asked for

    def _divided(
        self, stmt: For, extremum: Extremum, seed: Seed, scope: Scope, out: list[Stmt]
    ) -> tuple[tuple[Extremum, Expr, Seed], Seed | None]:
        """Find who attains the extremum, the start among them, and what of the adjoint each of them has; last what the start
        has, where anything is handed on to it.
        """
        c, loops = extremum.carry, (stmt, *extremum.loops)
        last, init = scope.names[c.result], self.primal(c.init, scope)
        same = self._has_same_bits(extremum)
        if not same and not extremum.wins:
            init = self._bind(init, "start", out)
            extremum, last = self._kept(extremum, loops, init, scope, out)
        starts: Expr = Op("eq", (init, last), BOOL)
        start, stop = self.primal(stmt.start, scope), self.primal(stmt.stop, scope)
        value = self._bind(seed.settled, f"d_{c.name}", out)
        share_, at = value, last
        if extremum.ties == "shared":
            infinite = isinstance(c.init, Const) and abs(float(c.init.value)) == float("inf")
            one, zero = number(1, c.type), number(0, c.type)
            count = zero if infinite else select(starts, one, zero)

            def counted(element: Element) -> tuple[Expr, ...]:
                return (add(element.before[0], select(self._attains(extremum, last, element.scope), one, zero)),)

            (count,) = self._over_elements(extremum, loops, {"ties": count}, scope, out, counted)
            if extremum.nan == "all":
                count = select(Op("isnan", (last,), BOOL), number(math.nan, c.type), count)
            share_ = self._bind(div(value, count), f"d_{c.name}", out)
        else:
            nowhere = stop if extremum.ties == "first" else _moved(start, -stmt.step // abs(stmt.step))
            if extremum.loops:
                counts = [self._count(f, scope) for f in loops]
                nowhere = functools.reduce(mul, counts) if extremum.ties == "first" else Const(-1, INT64)
            # Python's max keeps the start where it is attained by it
            if same or extremum.kept:
                # a minimum or a maximum of the iterations that attain it
                least = "min" if (extremum.ties == "first") == (stmt.step > 0) else "max"

                def placed(element: Element) -> tuple[Expr, ...]:
                    attains = self._attains(extremum, last, element.scope)
                    return (Op(least, (element.before[0], select(attains, element.place, nowhere)), INT64),)

                (at,) = self._over_elements(extremum, loops, {"place": nowhere}, scope, out, placed)
                at = self._bind(select(starts, nowhere, at) if extremum.ties == "first" else at, "place", out)
            else:
                at = self._place_of_best(extremum, loops, init, nowhere, scope, out)
            starts = Op("eq", (at, nowhere), BOOL)
        first = None
        if any(True for _ in sources(c.init)):
            starts = self._bind(starts, "starts", out)
            own = self._bind(select(starts, share_, number(0, c.type)), f"d_{c.name}", out)
            first = Seed(own, both(seed.when, starts), seed.across)
        return (extremum, at, replace(seed, value=share_, spoilt=False)), first

    def _place_of_best(
        self, extremum: Extremum, loops: tuple[For, ...], init: Expr, nowhere: Expr, scope: Scope, out: list[Stmt]
    ) -> Expr:
        """The place of the element that was the best in the end. What is compared are elements that one loop computes: others
        may be told apart from them by their last bits (sums in another order, products that are contracted with sums).
        """

        def better(element: Element) -> tuple[Expr, ...]:
            (best, place), value = element.before, self.primal(extremum.element, element.scope)
            wins: Expr = Op(extremum.wins, (value, best), BOOL)
            if extremum.condition is not None:
                wins = Op("and", (self.primal(extremum.condition, element.scope), wins), BOOL)
            return select(wins, value, best), select(wins, element.place, place)

        return self._over_elements(extremum, loops, {"best": init, "place": nowhere}, scope, out, better)[1]

    def _kept(
        self, extremum: Extremum, loops: tuple[For, ...], init: Expr, scope: Scope, out: list[Stmt]
    ) -> tuple[Extremum, Expr]:
        """The extremum with its elements saved, and its last value, found of what was saved."""
        name, type_ = extremum.carry.name, extremum.carry.type
        condition = TRUE if extremum.condition is None else extremum.condition
        innermost = extremum
        while innermost.nested is not None:
            innermost = innermost.nested[1]
        itself = Ref(innermost.carry.name, type_)

        def saved(element: Element) -> tuple[Expr, ...]:
            around = element.scope.loops
            there, value = Ref(self.names.fresh("there"), BOOL), Ref(self.names.fresh("element"), type_)
            element.out.append(Let(there.name, self.primal(condition, element.scope), self.location))
            element.out.append(Let(value.name, self.primal(extremum.element, element.scope), self.location))
            self._save(_there_of(name), there, around, element.scope, element.out)
            self._save(_element_of(name), value, around, element.scope, element.out)
            best = element.before[0]
            update = replace(extremum.update, args=tuple(best if a == itself else value for a in extremum.update.args))
            return (select(there, update, best),)

        (last,) = self._over_elements(extremum, loops, {"best": init}, scope, out, saved)
        return replace(extremum, kept=name), last

    def _has_same_bits(self, extremum: Extremum) -> bool:
        """Whether elements, and when they are any, have the same bits wherever they are computed."""
        made_of = [extremum.element] if extremum.condition is None else [extremum.element, extremum.condition]
        return all(self._roundings(e) <= 1 for e in made_of)

    def _roundings(self, e: Expr) -> float:
        """Of how many operators that round an expression is made; infinity where it may have other bits elsewhere."""
        match e:
            case Const():
                return 0
            case Ref(name=name):
                if name not in self.roundings:  # once for each name: names that are used twice would double the work each time
                    other = 0 if name in self.facts.unchanging else math.inf
                    self.roundings[name] = self._roundings(self.facts.lets[name]) if name in self.facts.lets else other
                return self.roundings[name]
            case Load():
                exact = self.facts.arrays[e.array].role == "input" and all(self._roundings(i) == 0 for i in e.index)
                return 0 if exact else math.inf
            case Op(name=name):
                inside = [self._roundings(o) for o in operands(e)]
                if name in _EXACT or e.type.category != "float" and name in _ROUNDED_ONCE:
                    return max(inside)
                return 1 + sum(inside) if name in _ROUNDED_ONCE else math.inf
            case Cast() | Round():
                return sum(self._roundings(o) for o in operands(e))
        return math.inf

    def _over_elements(
        self,
        extremum: Extremum,
        loops: tuple[For, ...],
        inits: Mapping[str, Expr],
        scope: Scope,
        out: list[Stmt],
        update: Callable[[Element], tuple[Expr, ...]],
        around: tuple[For, ...] = (),
    ) -> tuple[Expr, ...]:
        """What loops over the elements carry, by names with what they start with. around: of these loops, those that are around
        the statements already.
        """
        stmt, *inside = loops
        var = Ref(self.names.fresh(stmt.var), INT64)
        inner = replace(scope.fork(), loops=(*scope.loops, stmt))
        inner.names[stmt.var] = var
        last = scope.names[extremum.carry.result]
        body: list[Stmt] = []
        made_of = [] if extremum.kept else [extremum.element]
        made_of += [e for f in extremum.loops for e in (f.start, f.stop)]
        made_of += [] if extremum.condition is None or extremum.kept else [extremum.condition]
        uses = Uses.of(stmt.body)
        needed = uses.closure({n for e in made_of for n in free_names(e)})
        if around:  # what a loop inside carries is not saved here: it is carried again
            while more := {n for k in stmt.carries if k.name in needed for n in uses.closure(free_names(k.next))} - needed:
                needed = needed | more
        again: list[tuple[Carry, str]] = []
        for k in stmt.carries:
            if extremum.nested is not None and k.name in extremum.names:
                continue
            if k.name not in needed:  # as where it is: nothing that uses it is left
                inner.names[k.name] = number(0, k.type)
                continue
            ref = Ref(self.names.fresh(k.name), k.type)
            if around:
                again.append((k, ref.name))
            else:
                body.append(Let(ref.name, self._before(stmt, k, inner), stmt.location))
            inner.names[k.name] = ref
        body += self.sweep_block(stmt.body, inner, branch=False, save=False)
        before = [Ref(self.names.fresh(n), e.type) for n, e in inits.items()]
        results = [Ref(self.names.fresh(n), e.type) for n, e in inits.items()]
        if inside:
            inner.names[extremum.carry.result] = last
            own = dict(zip(inits, before, strict=True))
            after = self._over_elements(extremum, tuple(inside), own, inner, body, update, (*around, stmt))
        else:
            after = update(Element(tuple(before), self._place((*around, stmt), inner), inner, body))
        start, stop = self.primal(stmt.start, scope), self.primal(stmt.stop, scope)
        carries = [Carry(b.name, e, a, r.name) for b, e, a, r in zip(before, inits.values(), after, results, strict=True)]
        for k, carried in again:
            carries.append(Carry(carried, self.primal(k.init, scope), self.primal(k.next, inner), self.names.fresh(k.result)))
        out.append(For(var.name, start, stop, stmt.step, tuple(carries), tuple(body), stmt.implied, stmt.location))
        return tuple(results)

    def _place(self, loops: tuple[For, ...], scope: Scope) -> Expr:
        """Which iteration of loops in each other this is: their number, of one loop its variable."""
        if len(loops) == 1:
            return scope.names[loops[0].var]
        place: Expr = Const(0, INT64)
        for f in loops:
            place = add(mul(place, self._count(f, scope)), sub(scope.names[f.var], self.primal(f.start, scope)))
        return place

    def _count(self, loop: For, scope: Scope) -> Expr:
        return fold(sub(self.primal(loop.stop, scope), self.primal(loop.start, scope)))

    def _attains(self, extremum: Extremum, last: Expr, scope: Scope) -> Expr:
        condition = extremum.condition
        if extremum.kept:
            element = self._saved_value(_element_of(extremum.kept), extremum.carry.type, scope)
            there = None if condition is None else self._saved_value(_there_of(extremum.kept), BOOL, scope)
        else:
            element = self.primal(extremum.element, scope)
            there = None if condition is None else self.primal(condition, scope)
        attains: Expr = Op("eq", (element, last), BOOL)
        if extremum.nan != "none":
            neither: Expr = Op("isnan", (last,), BOOL)
            if extremum.nan == "nan":
                neither = Op("and", (Op("isnan", (element,), BOOL), neither), BOOL)
            attains = Op("or", (attains, neither), BOOL)
        return attains if there is None else Op("and", (there, attains), BOOL)
