"""Digits of loop variables: subscripts made of quotients and remainders are sums of loops over these.

Of `x[c * r + i % r, i // r]` the digits of i are `i // r` and `i % r`: with a loop for each, subscripts are sums of variables,
and an element tells its iterations as it does of other sums. Of `(i + s) % n`, where i counts up to n, it is the one digit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from weft.loops.affine import affine
from weft.loops.ir import ONE, ZERO, Const, Expr, For, Op, Ref, free_arrays, free_names, operands, with_operands
from weft.loops.polynomials import Polynomial, polynomial
from weft.loops.simplify import fold
from weft.loops.types import BOOL, INT64


@dataclass(frozen=True)
class Product:
    """A product of a number above 0 and of expressions, as it is written; each divisor of a chain divides the next one."""

    number: int
    factors: tuple[Expr, ...] = ()

    @staticmethod
    def of(e: Expr) -> Product | None:
        match e:
            case Const(value=value):
                return Product(int(value)) if value > 0 else None
            case Op(name="mul", args=(a, b)):
                left, right = Product.of(a), Product.of(b)
                return None if left is None or right is None else left.times(right)
        return Product(1, (fold(e),))

    def times(self, other: Product) -> Product:
        return Product(self.number * other.number, tuple(sorted((*self.factors, *other.factors), key=repr)))

    def over(self, other: Product) -> Product | None:
        """The quotient, where it is a product."""
        left, less = Counter(self.factors), Counter(other.factors)
        if self.number % other.number or less - left:
            return None
        return Product(self.number // other.number, tuple(sorted((left - less).elements(), key=repr)))

    def expr(self) -> Expr:
        numbers = [Const(self.number, INT64)] if self.number != 1 or not self.factors else []
        return reduce(lambda a, b: Op("mul", (a, b), INT64), (*numbers, *self.factors))


@dataclass(frozen=True)
class Digits:
    """A loop variable told by digits. loops: over each of them, the outermost first. value: the variable. named: what
    programs make of it, of digits. inside: whether it is an iteration, where digits reach more. divisors: what is to be
    above 0.
    """

    var: str
    loops: tuple[For, ...]
    value: Expr
    named: tuple[tuple[Expr, Expr], ...]
    inside: Expr | None
    divisors: tuple[Expr, ...]


@dataclass(frozen=True)
class _Slice:
    """`var // low % (high / low)`; high: None where nothing bounds it."""

    var: str
    low: Product
    high: Product | None


def digits(
    loops: Sequence[For], index: Sequence[Expr], fixed: Collection[str]
) -> tuple[tuple[Digits, ...], tuple[Expr, ...]] | None:
    """The digits of loop variables that subscripts name, and the subscripts of digits. None where some variable is met as no
    digits are, and where none has any. fixed: the names that are the same in all iterations.
    """
    counting = {f.var: f for f in loops if f.start == ZERO and f.step == 1 and free_names(f.stop) <= {*fixed}}
    slices: dict[Expr, _Slice] = {}
    turned: dict[Expr, Digits] = {}
    for i in index:
        _find(i, counting, frozenset(fixed), slices, turned)
    named = {s.var for s in slices.values() if (s.low, s.high) != (Product(1), None)}
    if not named | {d.var for d in turned.values()}:
        return None
    found = [*turned.values()]
    for var in sorted(named):
        own = _of_slices(counting[var], {e: s for e, s in slices.items() if s.var == var})
        if own is None:
            return None
        found.append(own)
    if len({d.var for d in found}) < len(found):
        return None
    known = {e: by for d in found for e, by in d.named}
    told = {d.var for d in found}
    after = tuple(replaced(i, known) for i in index)
    return None if any(free_names(i) & told for i in after) else (tuple(found), after)


def replaced(e: Expr, known: Mapping[Expr, Expr]) -> Expr:
    """The expression with others in place of the largest of its parts that have any."""
    if e in known:
        return known[e]
    below = operands(e)
    return with_operands(e, tuple(replaced(o, known) for o in below)) if below else e


def _find(
    e: Expr, loops: Mapping[str, For], fixed: frozenset[str], slices: dict[Expr, _Slice], turned: dict[Expr, Digits]
) -> None:
    if (own := _slice(e, loops, fixed)) is not None:
        slices[e] = own
    elif (turn := _turned(e, loops, fixed)) is not None:
        turned[e] = turn
    else:
        for below in operands(e):
            _find(below, loops, fixed, slices, turned)


def _slice(e: Expr, loops: Mapping[str, For], fixed: frozenset[str]) -> _Slice | None:
    match e:
        case Ref(name=name) if name in loops:
            return _Slice(name, Product(1), None)
        case Op(name="floordiv" | "mod" as name, args=(a, divisor), type=type_) if type_ == INT64:
            inner = _slice(a, loops, fixed)
            by = Product.of(divisor) if free_names(divisor) <= fixed and not free_arrays(divisor) else None
            if inner is None or by is None:
                return None
            end = inner.low.times(by)
            if inner.high is not None and inner.high.over(end) is None:
                return None
            return _Slice(inner.var, end, inner.high) if name == "floordiv" else _Slice(inner.var, inner.low, end)
    return None


def _turned(e: Expr, loops: Mapping[str, For], fixed: frozenset[str]) -> Digits | None:
    """`(i + s) % n`, or with -i, of an i that counts up to n."""
    match e:
        case Op(name="mod", args=(a, n), type=type_) if type_ == INT64 and (form := affine(a)) is not None:
            own = [x for x in form.names if x in loops]
            if len(own) != 1 or abs(form.coefficient(own[0])) != 1 or not form.names <= fixed | {own[0]}:
                return None
            (var,), sign = own, form.coefficient(own[0])
            if fold(loops[var].stop) != fold(n) or isinstance(n, Const) and n.value <= 0:
                return None
            here = Ref(f"{var}'", INT64)
            shift = fold(Op("sub", (a, Op("mul", (Const(sign, INT64), Ref(var, INT64)), INT64)), INT64))
            back = Op("sub", (here, shift) if sign > 0 else (shift, here), INT64)
            loop = For(here.name, ZERO, n, 1, (), (), location=loops[var].location)
            return Digits(var, (loop,), Op("mod", (back, n), INT64), ((e, here),), None, ())
    return None


def _of_slices(loop: For, slices: Mapping[Expr, _Slice]) -> Digits | None:
    units = {Product(1)} | {s.low for s in slices.values()} | {s.high for s in slices.values() if s.high is not None}
    chain = sorted(units, key=lambda u: (len(u.factors), u.number))
    steps = [b.over(a) for a, b in zip(chain, chain[1:], strict=False)]
    whole = Product.of(loop.stop)
    if any(s is None for s in steps) or whole is None:
        return None
    last = whole.over(chain[-1])
    unit = at_least_1(chain[-1].expr())
    past = Op("add", (loop.stop, Op("sub", (unit, ONE), INT64)), INT64)
    stops = [s.expr() for s in steps if s is not None]
    stops.append(Op("floordiv", (past, unit), INT64) if last is None else last.expr())
    names = [Ref(f"{loop.var}'{k}", INT64) for k in range(len(chain))]

    def total(low: Product, high: Product | None) -> Expr:
        first, end = chain.index(low), len(chain) if high is None else chain.index(high)
        terms = []
        for k in range(first, end):
            scale = chain[k].over(low)
            assert scale is not None
            terms.append(names[k] if scale == Product(1) else Op("mul", (names[k], scale.expr()), INT64))
        return reduce(lambda a, b: Op("add", (b, a), INT64), terms)

    value = total(Product(1), None)
    own = [For(n.name, ZERO, s, 1, (), (), location=loop.location) for n, s in zip(names, stops, strict=True)]
    inside = Op("lt", (value, loop.stop), BOOL) if last is None else None
    named = {e: total(s.low, s.high) for e, s in slices.items()}
    for e in slices:
        match e:  # quotients and remainders by the same are digits where no subscript has them, too
            case Op(name="floordiv" | "mod", args=(Ref(), divisor)) if (by := Product.of(divisor)) is not None:
                named[replace(e, name="floordiv")] = total(by, None)
                named[replace(e, name="mod")] = total(Product(1), by)
    divisors = tuple(s.expr() for s in steps if s is not None)
    return Digits(loop.var, tuple(reversed(own)), value, tuple(named.items()), inside, divisors)


@dataclass(frozen=True)
class Place:
    """A variable of a sum of several: `element // unit % extent`; the outermost has no extent."""

    var: str
    unit: Expr
    extent: Expr | None

    def of(self, element: Expr) -> Expr:
        own = element if self.unit == ONE else Op("floordiv", (element, at_least_1(self.unit)), INT64)
        return own if self.extent is None else Op("mod", (own, at_least_1(self.extent)), INT64)


def at_least_1(divisor: Expr) -> Expr:
    """A divisor that is above 0 where it counts."""
    return divisor if isinstance(divisor, Const) else Op("max", (divisor, ONE), INT64)


def places(index: Expr, loops: Iterable[For]) -> tuple[tuple[Place, ...], Polynomial] | None:
    """How an element tells the variables of a sum, each of which counts as far as the next one's unit, and what else the sum is
    of; None where it does not. Innermost first.
    """
    form = polynomial(index)
    if form is None:
        return None
    units: dict[str, Polynomial] = {}
    by_var = {f.var: f for f in loops}
    for var in by_var:
        own, form = form.divided(var)
        if own.terms:
            units[var] = own
    if any(name in by_var for p in (form, *units.values()) for m, _ in p.terms for name in m):
        return None
    found: list[Place] = []
    unit = Polynomial.make([((), 1)])
    while units:
        here = next((v for v, u in units.items() if u == unit), None)
        extent = None if here is None else polynomial(by_var[here].stop)
        if here is None or (extent is None and len(units) > 1):
            return None
        found.append(Place(here, unit.expr(), by_var[here].stop if len(units) > 1 else None))
        del units[here]
        if extent is not None:
            product = polynomial(Op("mul", (unit.expr(), extent.expr()), INT64))
            if product is None:
                return None
            unit = product
    return tuple(found), form
