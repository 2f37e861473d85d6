"""Products in any grouping, for scans of many states: what is multiplied at each point of each state is multiplied as seldom as
may be.

A row's points are gone through once for every state. So a product of what no state tells is made before, once a point; what no
point tells, once a state; and what several products have in common, once. A factor that no state tells, of what is summed over
the states, goes to the sum: `sum(g * b * u)` is `u * sum(g * b)`. And an exponential of a product is a power of 2, whose base's
logarithm goes to the factor that no point tells.

A product is rounded as often as before, so its relative error stays what it is. It differs where a product of some of its
factors is beyond the largest number or below the smallest though that of all of them is not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import TypeVar

from weft.graph.state_scans import StateScans
from weft.graph.tile import Fold, Map, Scan, Value, axes_of_name, names_of, uses_of_write
from weft.loops.algebra.table import AFFINE
from weft.loops.ir import Check, Const, Expr, Load, Op, Ref, free_names, free_names_of, operands, reachable, rewrite, walk_expr
from weft.loops.types import FLOAT32, FLOAT64

_FLOATS = (FLOAT32, FLOAT64)
_PRODUCT = "product"  # an operator of any number of factors, here alone
_T = TypeVar("_T", Scan, Fold)


def regrouped(scans: StateScans) -> StateScans:
    """The scans with products in the grouping that takes the fewest multiplications."""
    made = _Products(scans)
    made.flatten()
    made.powers()
    made.split_sums()
    made.name_factors()
    made.share()
    return made.result()


@dataclass
class _Products:
    """values: in order, each under one of its names. Products are flat until `result`."""

    scans: StateScans
    values: list[Value] = field(default_factory=list)
    totals: list[Fold] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.values, self.totals = list(self.scans.values), list(self.scans.totals)
        self.states, self.along = set(self.scans.states), self.scans.along
        self.taken = {n for v in self.values for n in names_of(v)} | set(self.scans.axes)
        self.taken |= {n for e in self.expressions() for n in free_names(e)}
        self.of_states = [w for w in self.scans.writes if set(w.axes) & self.states]

    # ---------------------------------------------------------------- what is evaluated at each point of each state

    def inner(self, value: Value) -> bool:
        """Whether a map is evaluated at each point of each state."""
        return isinstance(value, Map) and bool(set(value.axes) & self.states) and self.along in value.axes

    def folds(self) -> list[Fold]:
        rest = [f for f in (*self.scans.sums, *self.scans.crossed) if set(f.axes) & self.states]
        return [*self.totals, *rest]

    def expressions(self) -> Iterator[Expr]:
        """What is evaluated at points of states, of what is used there."""
        roots: list[Expr] = []
        for value in self.values:
            if isinstance(value, Scan):
                roots += [*(value.parts[:1] if composed_by_step(value) else value.parts), *value.nexts]
            elif isinstance(value, Fold) and value.results[0] in {f.results[0] for f in self.folds()}:
                roots += value.parts
        roots += [e for w in self.scans.writes if set(w.axes) & self.states for e in uses_of_write(w)]
        made = {v.name: v for v in self.values if isinstance(v, Map) and self.inner(v)}
        found = reachable(free_names_of(roots), lambda name: free_names(made[name].value) if name in made else ())
        yield from roots
        yield from (v.value for name, v in made.items() if name in found)

    def change(self, rule: Callable[[Expr], Expr]) -> None:
        """Change what is evaluated at points of states."""
        folded = {f.results[0] for f in self.folds()}
        for k, value in enumerate(self.values):
            match value:
                case Map() if self.inner(value):
                    self.values[k] = replace(value, value=rule(value.value))
                case Scan():
                    self.values[k] = replace(value, parts=tuple(map(rule, value.parts)), nexts=tuple(map(rule, value.nexts)))
                case Fold() if value.results[0] in folded:
                    self.values[k] = replace(value, parts=tuple(map(rule, value.parts)))
        self.of_states = [replace(w, value=rule(w.value)) for w in self.of_states]
        self.totals = self.newest(self.totals)

    def newest(self, given: Iterable[_T]) -> list[_T]:
        """What scans and folds have become."""
        known = {names_of(v): v for v in self.values}
        return [known[names_of(v)] for v in given]  # type: ignore[misc]

    def axes_of(self, expr: Expr) -> set[str]:
        known = {n: v for v in self.values for n in names_of(v)}
        names = free_names(expr)
        return {a for n in names if n in known for a in axes_of_name(known[n], n)} | (names & self.scans.axes.keys())

    # ---------------------------------------------------------------- products, flat

    def flatten(self) -> None:
        """Products of all their factors, those of maps among them, and no zeros added to what changes a state."""
        known: dict[str, Expr] = {}

        def flat(e: Expr) -> Expr:
            match e:
                case Op(name="add", args=(Const(value=0), x) | (x, Const(value=0))) if e.type in _FLOATS:
                    return x  # the sign of a zero is not kept
                case Op(name="mul", args=args) if e.type in _FLOATS:
                    own = [known.get(a.name, a) if isinstance(a, Ref) else a for a in args]
                    return product([f for a in own for f in factors(a)])
            return e

        for k, value in enumerate(self.values):
            if isinstance(value, Map) and self.inner(value):
                made = rewrite(value.value, flat)
                self.values[k] = replace(value, value=made)
                if is_product(made):
                    known[value.name] = made
        self.change(partial(rewrite, rule=flat))

    def unused(self, wanted: str) -> str:
        """A name that nothing has."""
        name, count = wanted, 2
        while name in self.taken:
            name, count = f"{wanted}_{count}", count + 1
        self.taken.add(name)
        return name

    def define(self, name: str, value: Expr) -> None:
        """A new map, at the first place where what it needs is there."""
        needed, axes = free_names(value), self.axes_of(value)
        place = max((k + 1 for k, v in enumerate(self.values) if needed & set(names_of(v))), default=0)
        ordered = tuple(a for a in (*self.scans.rows, *self.scans.states, self.along) if a in axes)
        location = getattr(self.values[place - 1], "location", None) if place else None
        self.values.insert(place, Map(name, ordered, value, location))

    def powers(self) -> None:
        """Exponentials whose argument has a factor that no point tells."""
        rates: dict[Expr, Ref] = {}

        def power(e: Expr) -> Expr | None:
            if not (isinstance(e, Op) and e.name == "exp_flushed"):
                return None
            (x,) = e.args
            negated = isinstance(x, Op) and x.name == "neg"
            own = factors(operands(x)[0] if negated else x)
            fixed = [f for f in own if self.along not in self.axes_of(f) and self.plain(f)]
            rest = [f for f in own if f not in fixed]
            if not fixed or not rest or not any(self.axes_of(f) & self.states for f in fixed):
                return None
            rate = multiplied([*fixed, Const(math.log2(math.e) * (-1.0 if negated else 1.0), FLOAT32)])
            if rate not in rates:
                rates[rate] = Ref(self.unused("rate"), FLOAT32)
                self.define(rates[rate].name, rate)
            return Op("exp2_flushed", (product([*rest, rates[rate]]),), FLOAT32)

        for value in [v for v in self.values if isinstance(v, Map) and self.inner(v)]:
            made = rewrite(value.value, power)
            if made != value.value:
                self.values = [replace(v, value=made) if v is value else v for v in self.values]

    # ---------------------------------------------------------------- sums over the states

    def split_sums(self) -> None:
        """Sums without the factors that no state tells, where that makes no more of them."""
        parts: dict[str, list[tuple[list[Expr], list[Expr]]]] = {}
        for f in self.totals:
            if f.algebra == "sum" and f.types[0] in _FLOATS:
                terms = [self.divided(t) for t in added(f.parts[0])]
                if all(rest for _, rest in terms):
                    parts[f.results[0]] = terms
        sums: dict[frozenset[tuple[Expr, int]], list[Expr]] = {}
        for terms in parts.values():
            for _, rest in terms:
                sums.setdefault(frozenset(Counter(rest).items()), rest)
        if len(sums) > len(parts) or not any(outer for terms in parts.values() for outer, _ in terms):
            return
        folds: dict[frozenset[tuple[Expr, int]], Ref] = {}
        values: list[Value] = []
        for value in self.values:
            if not isinstance(value, Fold) or value.results[0] not in parts:
                values.append(value)
                continue
            (own,), (init,) = value.results, value.inits
            found = init if not (isinstance(init, Const) and init.value == 0) else None
            for outer, rest in parts[own]:
                key = frozenset(Counter(rest).items())
                if key not in folds:
                    name = self.unused(f"{own}_of_states")
                    folds[key] = Ref(name, value.types[0])
                    zero = Const(0.0, value.types[0])
                    names = (self.unused(f"{name}_before"),)
                    made = replace(value, names=names, results=(name,), parts=(product(rest),), inits=(zero,))
                    self.totals.append(made)
                    values.append(made)
                term = multiplied([*outer, folds[key]])
                found = term if found is None else Op("add", (found, term), value.types[0])
            assert found is not None
            values.append(Map(own, value.axes, found, value.location))
        self.values = values
        self.totals = [f for f in self.totals if f.results[0] not in parts]

    def divided(self, term: Expr) -> tuple[list[Expr], list[Expr]]:
        """The factors of a term that no state tells, and the others."""
        own = factors(term)
        outer = [f for f in own if not self.axes_of(f) & self.states and self.plain(f)]
        return outer, [f for f in own if f not in outer]

    def plain(self, expr: Expr) -> bool:
        """Whether something may be evaluated anywhere."""
        return not any(isinstance(e, Load | Check) for e in walk_expr(expr))

    # ---------------------------------------------------------------- what products have in common

    def name_factors(self) -> None:
        """Name what no state tells and is more than a name: it is made once a point."""
        names: dict[Expr, Expr] = {}

        def named(e: Expr) -> Expr | None:
            return product([names.get(f, f) for f in operands(e)]) if is_product(e) else None

        for e in (e for expr in list(self.expressions()) for e in walk_expr(expr) if is_product(e)):
            for f in operands(e):
                compound = isinstance(f, Op) and self.plain(f) and self.along in self.axes_of(f)
                if compound and f not in names and not self.axes_of(f) & self.states:
                    name = self.unused("factor")
                    names[f] = Ref(name, f.type)
                    self.define(name, f)
        self.change(partial(rewrite, rule=named))

    def share(self) -> None:
        """Name products of two factors, those first that are not made at each point of each state."""
        while (best := self.best_pair()) is not None:
            name = self.unused("_".join(e.name if isinstance(e, Ref) else "x" for e in best))
            made = Ref(name, best[0].type)

            def shared(e: Expr, pair: tuple[Expr, Expr] = best, made: Ref = made) -> Expr | None:
                own = list(operands(e)) if is_product(e) else []
                if Counter(pair) - Counter(own):
                    return None
                own[own.index(pair[0])] = made
                own.remove(pair[1])
                return product(own)

            self.change(partial(rewrite, rule=shared))
            self.define(name, product(best))

    def best_pair(self) -> tuple[Expr, Expr] | None:
        """The factors to be multiplied first."""
        pairs: dict[frozenset[Expr], tuple[Expr, Expr]] = {}
        saved: Counter[frozenset[Expr]] = Counter()  # multiplications
        summed = {id(e) for v in self.values if isinstance(v, Fold) and v.algebra == "sum" for e in v.parts}
        for expr in self.expressions():
            added_to = {id(a) for e in walk_expr(expr) if isinstance(e, Op) and e.name in ("add", "sub") for a in e.args}
            for e in filter(is_product, walk_expr(expr)):
                alone = len(operands(e)) == 2 and id(e) in added_to | summed  # what is added is multiplied by the way
                for pair in combinations(filter(self.plain, operands(e)), 2):
                    pairs.setdefault(frozenset(pair), pair)
                    saved[frozenset(pair)] += not alone
        once = {key for key, pair in pairs.items() if self.made_once(product(pair))}
        worth = [key for key in pairs if saved[key] > (0 if key in once else 1)]
        return pairs[max(worth, key=lambda key: (key in once, saved[key]))] if worth else None

    def made_once(self, expr: Expr) -> bool:
        """Whether something is made once a point, or once a state."""
        axes = self.axes_of(expr)
        return not axes & self.states or self.along not in axes

    # ---------------------------------------------------------------- as they were

    def result(self) -> StateScans:
        def binary(e: Expr) -> Expr | None:
            return multiplied(operands(e)) if is_product(e) else None

        self.change(partial(rewrite, rule=binary))
        self.values = [replace(v, value=rewrite(v.value, binary)) if isinstance(v, Map) else v for v in self.values]
        s = self.scans
        kept = iter(self.of_states)
        writes = tuple(next(kept) if set(w.axes) & self.states else w for w in s.writes)
        return replace(
            s, values=tuple(self.values), early=tuple(self.newest(s.early)), scans=tuple(self.newest(s.scans)),
            totals=tuple(self.newest(self.totals)), sums=tuple(self.newest(s.sums)), crossed=tuple(self.newest(s.crossed)),
            writes=writes,
        )  # fmt: skip


def composed_by_step(scan: Scan) -> bool:
    """Whether what points do to a state is composed by taking the steps from 0, and multiplying their coefficients."""
    return scan.algebra == AFFINE


def is_product(expr: Expr) -> bool:
    return isinstance(expr, Op) and expr.name == _PRODUCT


def factors(expr: Expr) -> list[Expr]:
    return list(operands(expr)) if is_product(expr) else [expr]


def added(expr: Expr) -> list[Expr]:
    """The terms of a sum."""
    if isinstance(expr, Op) and expr.name == "add":
        return [t for a in expr.args for t in added(a)]
    return [expr]


def product(own: Sequence[Expr]) -> Expr:
    return own[0] if len(own) == 1 else Op(_PRODUCT, tuple(own), own[0].type)


def multiplied(own: Sequence[Expr]) -> Expr:
    """A product of two factors at a time."""
    made = own[0]
    for e in own[1:]:
        made = Op("mul", (made, e), made.type)
    return made
