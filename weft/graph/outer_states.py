"""States that grow by outer products: matrices, a row of the batch each, that every point multiplies by a number and adds a
product of two vectors to.

Linear attention has such states: a token adds `k v^T` to them, and what it takes is a sum over them, `q^T S`. What a chunk of
points does is then products of matrices: its own states `(decays k)^T v`, and what its points take of each other,
`(decays * q k^T) v`. That follows from the distributive law over the graph's values alone, whatever made them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from weft.graph.recurrences import Recurrences
from weft.graph.tile import Fold, Map, NotTiles, Scan, Write, axes_of_name, names_of, starts_neutral, uses, uses_of_write
from weft.loops.algebra.table import AFFINE
from weft.loops.ir import Expr, Load, Op, Ref, free_names, free_names_of, reachable, walk_expr
from weft.loops.simplify import add, is_number, mul, number
from weft.loops.types import FLOAT32

_MOST_TERMS = 8


@dataclass(frozen=True)
class Growth:
    """Of a scan: `states = decay * states + weight * left * right` at each point. decay, weight: of a row's point; left has
    the first side of the states, right the second.
    """

    scan: Scan
    decay: Expr
    weight: Expr
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Taken:
    """A sum over one side of states at a point: of `factor * (before * states + own * left * right)`, states before the point.
    own: None where what the point adds is not in it. growth: the number of the states.
    """

    fold: Fold
    growth: int
    over: str
    factor: Expr
    before: Expr
    own: Expr | None


@dataclass(frozen=True)
class Meeting:
    """A sum over both sides of a product of states that are scanned in either direction, before a point, or of what it adds to
    them. factors: of the point, by whether it is early states or what is added to them, and the same of late ones.
    """

    fold: Fold
    factors: dict[tuple[bool, bool], Expr]


@dataclass(frozen=True)
class OuterStates:
    """found: the same as recurrences. rows: the axes of the batch; sides: of the states. growths: of the states, those of early
    scans first. writes: of what is taken, at points, each with the one that it needs.
    """

    found: Recurrences
    rows: tuple[str, ...]
    sides: tuple[str, str]
    growths: tuple[Growth, ...]
    taken: tuple[Taken, ...]
    meetings: tuple[Meeting, ...]
    writes: tuple[tuple[Write, Taken | Meeting], ...]

    def taken_of(self, growth: int) -> tuple[Taken, ...]:
        return tuple(t for t in self.taken if t.growth == growth)

    def operands(self, growth: int, takes: bool = True) -> dict[Expr, str]:
        """What products are made of in the launch that goes through a scan, with the side that each has. takes: with what is
        taken of the states.
        """
        first, second = self.sides
        growths = self.growths if self.meetings and takes and growth else self.growths[growth : growth + 1]
        found = {e: side for g in growths for e, side in ((g.left, first), (g.right, second))}
        if takes:
            found |= {t.factor: t.over for t in self.taken_of(growth)}
            own = self.dotted(growth)
            far = None if own is None else self.met(own)
            found |= {} if far is None else {far: self.operands_side(far)}
        return found

    def met(self, taken: Taken) -> Expr | None:
        """What sums over states are multiplied by and summed over their other side, for what early and late ones make together;
        None where other vectors than those that are added to the other states are in them.
        """
        other = self.growths[1 - taken.growth] if self.meetings else None
        pairs = () if other is None else ((other.left, other.right), (other.right, other.left))
        found = [far for near, far in pairs if near == taken.factor and self.operands_side(near) == taken.over]
        return found[0] if found else None

    def dotted(self, growth: int) -> Taken | None:
        """What is taken of states that also tells what early and late ones make together."""
        return next((t for t in self.taken_of(growth) if self.met(t) is not None), None)

    def operands_side(self, operand: Expr) -> str:
        """The side of what is added to states."""
        return self.sides[0] if operand in [g.left for g in self.growths] else self.sides[1]

    def around(self, meeting: Meeting) -> Expr | None:
        """What a sum over early states before a point and late ones after it is multiplied by, where both are multiplied by the
        same decays; None where it is another sum.
        """
        early, late = self.growths
        factors = {key: e for key, e in meeting.factors.items() if not is_number(e, 0)}
        if early.decay != late.decay or factors.keys() != {(True, True), (True, False)}:
            return None
        found = [_quotient(factors[True, own], e) for own, e in ((True, late.decay), (False, late.weight))]
        return found[0] if found[0] == found[1] else None

    def inner(self, taken: Taken) -> tuple[Expr, Expr]:
        """Of the two vectors whose product is added, the one that has the side that is summed over, and the other one."""
        own = self.growths[taken.growth]
        return (own.left, own.right) if taken.over == self.sides[0] else (own.right, own.left)


def outer_states(found: Recurrences) -> OuterStates:
    """Recurrences whose states grow by outer products. Raises NotTiles where they are others."""
    if len(found.early) > 1 or len(found.scans) != 1:
        raise NotTiles("there are several scans of states in one direction")
    return _Reading(found).made()


@dataclass
class _Term:
    """A product, by what its factors have: numbers of a point, one side or the other, states."""

    point: list[Expr]
    sides: tuple[list[Expr], list[Expr]]
    states: list[str]


class _Reading:
    def __init__(self, found: Recurrences) -> None:
        self.found, self.scans = found, (*found.early, *found.scans)
        self.made_by = {n: v for v in found.values for n in names_of(v)}
        self.states = {n: k for k, s in enumerate(self.scans) for n in s.names}
        self.along = found.along

    def made(self) -> OuterStates:
        found = self.found
        for s in self.scans:
            if s.types != (FLOAT32,) or found.state not in s.axes or s.algebra not in (AFFINE, "sum"):
                raise NotTiles(f"{s.names[0]} is multiplied by no number of a point, or is no float32", s.location)
        why, where = "no axis of the rows is a side of the states", self.scans[0].location
        for other in reversed(found.rows):
            try:
                return self.with_sides((found.state, other))
            except NotTiles as no:
                why, where = no.why, no.where
        raise NotTiles(why, where)

    def with_sides(self, sides: tuple[str, str]) -> OuterStates:
        found = self.found
        self.sides = sides
        self.grown: list[_Term] = []
        growths = tuple(map(self.growth, self.scans))
        both = {f.parts[0].name: f for f in found.crossed if isinstance(f.parts[0], Ref)}  # sums over one side, then the other
        inner = [f for f in found.totals if f.results[0] in both]
        meetings = tuple(self.meeting(f, both[f.results[0]]) for f in inner)
        outer = [m.fold for m in meetings]
        taken = tuple(self.taken(f) for f in (*found.totals, *found.crossed) if f not in inner and f not in outer)
        rows = tuple(a for a in found.rows if a != sides[1])
        written = tuple(self.written(w, (*taken, *meetings)) for w in (*found.writes, *found.after))
        self.check_ends()
        own = OuterStates(found, rows, sides, growths, taken, meetings, written)
        for e in (
            *(e for k in range(len(growths)) for e in own.operands(k)),
            *(e for g in growths for e in (g.decay, g.weight, *g.scan.inits)),
            *(e for t in taken for e in (t.before, t.own) if e is not None),
            *(e for m in meetings for e in m.factors.values()),
        ):
            if self.needs_states(e):
                raise NotTiles("what is added to the states, or taken of them, needs others", self.scans[0].location)
        return own

    def growth(self, scan: Scan) -> Growth:
        decay, added = scan.parts if scan.algebra == AFFINE else (number(1, FLOAT32), scan.parts[0])
        terms = self.terms(added)
        if self.axes(decay) & {*self.sides} or len(terms) != 1 or terms[0].states:
            raise NotTiles("states are multiplied by what differs between them", scan.location)
        if not all(terms[0].sides) or {*self.sides} - {*scan.axes}:
            raise NotTiles("what a point adds to the states is no product of two vectors", scan.location)
        self.grown.append(terms[0])
        left, right = map(_product, terms[0].sides)
        return Growth(scan, decay, _product(terms[0].point), left, right)

    # ---------------------------------------------------------------- expressions

    def axes(self, e: Expr) -> set[str]:
        found: set[str] = set()
        for name in free_names(e):
            if name in self.made_by:
                found |= {*axes_of_name(self.made_by[name], name)}
            elif name in self.found.axes:
                found.add(name)
        return found

    def needs_states(self, e: Expr) -> bool:
        """Whether an expression needs a state, or a sum over states."""
        return any(isinstance(self.made_by.get(n), Scan | Fold) for n in self.reached((e,)))

    def terms(self, e: Expr) -> list[_Term]:
        """An expression as a sum of products of factors of a point, of a side of the states, and of states. Raises NotTiles."""
        found = []
        for factors in self.products(e):
            term = _Term([], ([], []), [])
            for f in factors:
                sides = [s for s in self.sides if s in self.axes(f)]
                if isinstance(f, Ref) and f.name in self.states:
                    term.states.append(f.name)
                elif f.type != FLOAT32 or any(isinstance(x, Load) for x in walk_expr(f)):
                    raise NotTiles("a factor is no float32, or is read where it is needed")
                elif len(sides) == 2:
                    raise NotTiles("a factor has both sides of the states")
                else:
                    (term.sides[self.sides.index(sides[0])] if sides else term.point).append(f)
            found.append(term)
        return found

    def products(self, e: Expr) -> list[list[Expr]]:
        """The terms of a sum, each as its factors: taken apart as far as states and both sides are in it."""
        match e:
            case Ref(name=name) if isinstance(value := self.made_by.get(name), Map) and self.mixed(e):
                return self.products(value.value)
            case Op(name="add", args=(a, b)) if self.mixed(e):
                return self.limited([f for x in (a, b) if not is_number(x, 0) for f in self.products(x)])
            case Op(name="sub", args=(a, b)) if self.mixed(e):
                return self.limited([*self.products(a), *([number(-1, e.type), *f] for f in self.products(b))])
            case Op(name="neg", args=(a,)):
                return [[number(-1, e.type), *f] for f in self.products(a)]
            case Op(name="mul", args=(a, b)):
                return self.limited([[*f, *g] for f in self.products(a) for g in self.products(b)])
        return [[e]]

    def mixed(self, e: Expr) -> bool:
        return {*self.sides} <= self.axes(e)

    def limited(self, products: list[list[Expr]]) -> list[list[Expr]]:
        if len(products) > _MOST_TERMS:
            raise NotTiles("it is a sum of many products")
        return products

    # ---------------------------------------------------------------- what is taken, and written

    def taken(self, fold: Fold) -> Taken:
        """A sum over one side of the states."""
        why = NotTiles(f"{fold.results[0]} is no sum over one side of the states", fold.location)
        if not self.is_sum(fold) or fold.over[0] not in self.sides:
            raise why
        side, terms = self.sides.index(fold.over[0]), self.terms(fold.parts[0])
        found = {self.states[n] for t in terms for n in t.states}
        if len(found) != 1:
            raise why
        (growth,) = found
        before: list[Expr] = []
        own: list[Expr] = []
        factors: list[Counter[Expr]] = []
        for term in terms:
            if len(term.states) > 1:
                raise why
            rest = [Counter(term.sides[k]) for k in (side, 1 - side)]
            if not term.states and not self.without(rest, growth, (side, 1 - side)):
                raise why
            if not +rest[0] or +rest[1]:
                raise why
            factors.append(+rest[0])
            (before if term.states else own).append(_product(term.point))
        if not before or any(f != factors[0] for f in factors):
            raise why
        total = reduce(add, own) if own else None
        return Taken(fold, growth, fold.over[0], _product(factors[0].elements()), reduce(add, before), total)

    def meeting(self, inner: Fold, fold: Fold) -> Meeting:
        """A sum over both sides of products of early and late states."""
        why = NotTiles(f"{fold.results[0]} is no sum of products of states", fold.location)
        sums = self.is_sum(inner) and self.is_sum(fold) and {*inner.over, *fold.over} == {*self.sides}
        if len(self.scans) != 2 or not sums:
            raise why
        found: dict[tuple[bool, bool], list[Expr]] = {}
        for term in self.terms(inner.parts[0]):
            has = [term.states.count(s.names[0]) for s in self.scans]
            rest = [Counter(own) for own in term.sides]
            if max(has) > 1 or not all(n or self.without(rest, k, (0, 1)) for k, n in enumerate(has)) or +rest[0] or +rest[1]:
                raise why
            found.setdefault((bool(has[0]), bool(has[1])), []).append(_product(term.point))
        return Meeting(fold, {key: reduce(add, own) for key, own in found.items()})

    def is_sum(self, fold: Fold) -> bool:
        """Whether a fold is a sum over one axis, from 0."""
        return fold.algebra == "sum" and fold.types == (FLOAT32,) and len(fold.over) == 1 and starts_neutral(fold)

    def without(self, rest: list[Counter[Expr]], growth: int, sides: tuple[int, int]) -> bool:
        """Whether what is added to states is among the factors, which are without it then."""
        grown = [Counter(self.grown[growth].sides[k]) for k in sides]
        if any(own[f] < n for own, other in zip(rest, grown, strict=True) for f, n in other.items()):
            return False
        for own, other in zip(rest, grown, strict=True):
            own.subtract(other)
        return True

    def written(self, write: Write, found: tuple[Taken | Meeting, ...]) -> tuple[Write, Taken | Meeting]:
        """A write with what it needs of the states."""
        names = self.reached(uses_of_write(write))
        needed = [t for t in found if {*t.fold.results} & names]
        ended = {n for s in self.scans for n in (*s.names, *s.results)}
        if len(needed) == 1 and not names & ended:
            over = {*self.sides} if isinstance(needed[0], Meeting) else {needed[0].over}
            if {*write.axes} == {*self.found.rows, self.found.state, self.along} - over:
                return write, needed[0]
        raise NotTiles(f"{write.array} is made of more than one sum over the states", write.location)

    def reached(self, exprs: Iterable[Expr]) -> set[str]:
        """The names that expressions need, up to sums and states."""

        def after(name: str) -> Iterable[str]:
            value = self.made_by.get(name)
            return () if value is None or isinstance(value, Scan | Fold) else free_names_of(uses(value))

        return reachable(free_names_of(exprs), after)

    def check_ends(self) -> None:
        """What is written at the end of a row is of its last states."""
        for w in self.found.ends:
            names = self.reached(uses_of_write(w))
            folds = {n for f in (*self.found.totals, *self.found.crossed) for n in f.results}
            if names & folds or {*w.axes} != {*self.found.rows, self.found.state}:
                raise NotTiles(f"{w.array} is written otherwise than of the last states", w.location)


def _quotient(product: Expr, factor: Expr) -> Expr | None:
    """The product without a factor of it; None where it has no such one."""
    found, other = Counter(_factors(product)), Counter(_factors(factor))
    return _product((found - other).elements()) if other <= found else None


def _factors(e: Expr) -> list[Expr]:
    if isinstance(e, Op) and e.name == "mul":
        return [f for a in e.args for f in _factors(a)]
    return [] if is_number(e, 1) else [e]


def _product(factors: Iterable[Expr]) -> Expr:
    factors = [*factors]
    return reduce(mul, factors) if factors else number(1, FLOAT32)
