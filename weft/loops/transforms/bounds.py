"""Bounds of a band of loops in another order: exact, by Fourier-Motzkin elimination over integers.

The iterations of a band are the integer points of inequalities. The innermost loop of the new order takes all that name its
variable; what these imply for the others, the variable eliminated, bounds the loops around it. An inner loop has every
inequality of its own, so no point is gained or lost: an outer iteration too many has an empty inner loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from weft.errors import InapplicableTransform
from weft.loops.affine import Affine, affine
from weft.loops.ir import Cast, Const, Expr, Function, Op, Ref, free_names, substitute
from weft.loops.normalize import simplify
from weft.loops.polyhedra import Polyhedra
from weft.loops.transforms.nest import Header
from weft.loops.types import INT64


@dataclass
class _Atoms:
    """Expressions without variables of the band that are no sums: named, and then as good as sizes."""

    variables: frozenset[str]
    named: dict[str, Expr] = field(default_factory=dict)

    def linear(self, expr: Expr) -> Affine | None:
        form = affine(expr)
        if form is not None:
            return form
        if not free_names(expr) & self.variables:
            name = next((n for n, e in self.named.items() if e == expr), f"atom {len(self.named)}")
            self.named[name] = expr
            return Affine(((name, 1),), 0)
        match expr:
            case Cast(value=value, type=type_) if type_ == INT64 and value.type == INT64:
                return self.linear(value)
            case Op(name="add" | "sub" as name, args=(a, b)):
                left, right = self.linear(a), self.linear(b)
                if left is not None and right is not None:
                    return left + right if name == "add" else left - right
            case Op(name="mul", args=(a, Const(value=factor))) | Op(name="mul", args=(Const(value=factor), a)):
                inner = self.linear(a)
                return None if inner is None else inner * int(factor)
            case Op(name="neg", args=(a,)):
                inner = self.linear(a)
                return None if inner is None else inner * -1
        return None

    def split(self, expr: Expr, joined: str) -> list[Affine] | None:
        """The sums of which a bound is the largest ("max") or the smallest ("min")."""
        whole = self.linear(expr)
        if whole is not None:
            return [whole]
        match expr:
            case Op(name=name, args=(a, b)) if name == joined:
                left, right = self.split(a, joined), self.split(b, joined)
                return None if left is None or right is None else left + right
        return None

    def expr(self, form: Affine) -> Expr:
        return substitute(form.expr(), dict(self.named))


_ONE = Affine((), 1)


def reordered(function: Function, headers: Sequence[Header], order: Sequence[str], what: str) -> tuple[Header, ...]:
    """The headers of a band in another order. Raises InapplicableTransform where the bounds are not affine, or a loop that
    does not count by 1 bounds another one.
    """
    variables = frozenset(h.var for h in headers)
    by_var = {h.var: h for h in headers}
    if not any((free_names(h.start) | free_names(h.stop)) & variables for h in headers):
        return tuple(by_var[v] for v in order)
    atoms = _Atoms(variables)
    facts: list[Affine] = []  # each is not negative
    fixed = []
    for header in headers:
        needs = (free_names(header.start) | free_names(header.stop)) & variables
        if abs(header.step) != 1:
            if needs:
                raise _not_movable(header, what, f"it counts by {header.step}, and its bounds need {', '.join(sorted(needs))}")
            fixed.append(header.var)
            continue
        rising = header.step > 0
        first = atoms.split(header.start, "max" if rising else "min")
        last = atoms.split(header.stop, "min" if rising else "max")
        if first is None or last is None:
            raise _not_movable(header, what, "its bounds are not affine in the loops around it")
        value = Affine(((header.var, 1),), 0)
        lows, highs = (first, [f - _ONE for f in last]) if rising else ([f + _ONE for f in last], first)
        facts += [value - low for low in lows] + [high - value for high in highs]
    found: dict[str, Header] = {}
    left = list(dict.fromkeys(facts))
    for position in range(len(order) - 1, -1, -1):
        var = order[position]
        if var in fixed:
            if any(f.coefficient(var) for f in left):
                raise _not_movable(
                    by_var[var], what, f"it counts by {by_var[var].step}, and bounds a loop that would be around it"
                )
            found[var] = by_var[var]
            continue
        own = [f for f in left if f.coefficient(var)]
        others = [f for f in left if not f.coefficient(var)]
        left = list(dict.fromkeys(others + _without(own, var)))
        outer = [f for f in left if f.names & variables]
        own = _needed(function, var, own, outer)
        found[var] = _header(by_var[var], own, atoms)
    return tuple(found[v] for v in order)


def hull(function: Function, headers: Sequence[Header], what: str) -> tuple[Header, ...]:
    """Each header of a band with bounds that hold for all iterations of the others."""
    out = []
    for header in headers:
        needs = (free_names(header.start) | free_names(header.stop)) & {h.var for h in headers}
        if not needs:
            out.append(header)
            continue
        order = [header.var, *(h.var for h in headers if h.var != header.var)]
        out.append(reordered(function, headers, order, what)[0])
    return tuple(out)


def _not_movable(header: Header, what: str, why: str) -> InapplicableTransform:
    return InapplicableTransform(
        f"{what}: the bounds of the loop over {header.var} cannot be told in the new order",
        location=header.location, evidence=[why], remedy="move another loop, or count by 1",
    )  # fmt: skip


def _without(facts: Iterable[Affine], var: str) -> list[Affine]:
    """What inequalities imply that do not name a variable."""
    lows = [f for f in facts if f.coefficient(var) > 0]
    highs = [f for f in facts if f.coefficient(var) < 0]
    return [_tight(low * -high.coefficient(var) + high * low.coefficient(var)) for low in lows for high in highs]


def _tight(form: Affine) -> Affine:
    """The same inequality of integers with the smallest coefficients."""
    divisor = reduce(math.gcd, (c for _, c in form.terms), 0)
    if divisor <= 1:
        return form
    return Affine(tuple((n, c // divisor) for n, c in form.terms), form.constant // divisor)


def _needed(function: Function, var: str, own: list[Affine], outer: list[Affine]) -> list[Affine]:
    """The inequalities that the others do not imply."""
    polyhedra = Polyhedra(function)
    kept = list(dict.fromkeys(map(_tight, own)))
    for fact in list(kept):
        others = [f for f in kept if f != fact]
        both = {f.coefficient(var) > 0 for f in others}  # a loop keeps a bound at each end
        if len(both) == 2 and polyhedra.follows([*others, *outer], fact):
            kept = others
    return kept


def _header(header: Header, facts: list[Affine], atoms: _Atoms) -> Header:
    own = header.var
    lows, highs = [], []
    for fact in facts:
        factor = fact.coefficient(own)
        rest = fact - Affine(((own, factor),), 0)
        if factor > 0:  # own >= -rest / factor, rounded up
            low = atoms.expr(rest * -1 + Affine((), factor - 1))
            lows.append(low if factor == 1 else Op("floordiv", (low, Const(factor, INT64)), INT64))
        else:  # own <= rest / -factor, rounded down; one more is where it stops
            high = atoms.expr(rest + Affine((), -factor))
            highs.append(high if factor == -1 else Op("floordiv", (high, Const(-factor, INT64)), INT64))
    low, stop = _extreme("max", lows), _extreme("min", highs)
    if header.step > 0:
        return replace(header, start=low, stop=stop)
    one = Const(1, INT64)
    return replace(header, start=simplify(Op("sub", (stop, one), INT64)), stop=simplify(Op("sub", (low, one), INT64)))


def _extreme(name: str, values: list[Expr]) -> Expr:
    return reduce(lambda a, b: Op(name, (a, b), INT64), dict.fromkeys(values))


def shifted(expr: Expr, factor: int, by: str) -> Expr:
    """expr + factor * by."""
    form = affine(expr)
    if form is not None:
        return (form + Affine(((by, factor),), 0)).expr()
    term: Expr = Ref(by, INT64) if abs(factor) == 1 else Op("mul", (Const(abs(factor), INT64), Ref(by, INT64)), INT64)
    return Op("add" if factor > 0 else "sub", (expr, term), INT64)
