"""Integer expressions as polynomials of names: what a subscript such as `i * width + j` is, where `width` is a size."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from weft.loops.affine import Affine
from weft.loops.ir import Cast, Const, Expr, Op, Ref, with_operands
from weft.loops.types import INT64

# A product of names, sorted; () for the constant term.
Monomial = tuple[str, ...]

_MOST_TERMS = 64


@dataclass(frozen=True)
class Polynomial:
    """sum of coefficient * product of names over `terms`, sorted, no coefficient zero."""

    terms: tuple[tuple[Monomial, int], ...]

    @staticmethod
    def make(terms: Iterable[tuple[Monomial, int]]) -> Polynomial:
        total: Counter[Monomial] = Counter()
        for monomial, coefficient in terms:
            total[monomial] += coefficient
        return Polynomial(tuple(sorted((m, c) for m, c in total.items() if c)))

    @property
    def affine(self) -> Affine | None:
        """The same as an affine form; None where it has products of names."""
        if any(len(m) > 1 for m, _ in self.terms):
            return None
        return Affine.make({m[0]: c for m, c in self.terms if m}, dict(self.terms).get((), 0))

    def expr(self) -> Expr:
        """As an expression."""
        total: Expr | None = None
        for monomial, coefficient in self.terms:
            factors: list[Expr] = [Ref(name, INT64) for name in monomial]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, Const(abs(coefficient), INT64))
            term = reduce(lambda a, b: Op("mul", (a, b), INT64), factors)
            if total is None:
                total = term if coefficient > 0 else Op("neg", (term,), INT64)
            else:
                total = Op("add" if coefficient > 0 else "sub", (total, term), INT64)
        return Const(0, INT64) if total is None else total

    @property
    def factors(self) -> frozenset[str]:
        """The names in its products."""
        return frozenset(name for m, _ in self.terms if len(m) > 1 for name in m)

    def divided(self, name: str) -> tuple[Polynomial, Polynomial]:
        """(q, r) with the polynomial equal to name * q + r, and no term of r a multiple of the name."""
        quotient, rest = [], []
        for monomial, coefficient in self.terms:
            if name in monomial:
                at = monomial.index(name)
                quotient.append(((*monomial[:at], *monomial[at + 1 :]), coefficient))
            else:
                rest.append((monomial, coefficient))
        return Polynomial.make(quotient), Polynomial.make(rest)


def polynomial(expr: Expr) -> Polynomial | None:
    """expr as a polynomial of its names, or None where it is not one (or is a very long one)."""
    match expr:
        case Const(value=value, type=type_) if type_.category == "int":
            return Polynomial.make([((), int(value))])
        case Ref(name=name, type=type_) if type_ == INT64:
            return Polynomial.make([((name,), 1)])
        case Cast(value=value, type=type_) if type_ == INT64 and value.type == INT64:
            return polynomial(value)
        case Op(name="neg", args=(a,), type=type_) if type_ == INT64:
            inner = polynomial(a)
            return None if inner is None else Polynomial.make((m, -c) for m, c in inner.terms)
        case Op(name="add" | "sub" as name, args=(a, b), type=type_) if type_ == INT64:
            left, right = polynomial(a), polynomial(b)
            if left is None or right is None:
                return None
            sign = 1 if name == "add" else -1
            return Polynomial.make([*left.terms, *((m, sign * c) for m, c in right.terms)])
        case Op(name="mul", args=(a, b), type=type_) if type_ == INT64:
            left, right = polynomial(a), polynomial(b)
            if left is None or right is None or len(left.terms) * len(right.terms) > _MOST_TERMS:
                return None
            return Polynomial.make((tuple(sorted((*m, *n))), c * d) for m, c in left.terms for n, d in right.terms)
    return None


def difference(a: Expr, b: Expr) -> Polynomial:
    """a - b, of names and of what is no sum of products, which stands for itself."""

    def named(e: Expr) -> Expr:
        if isinstance(e, Const | Ref):
            return e
        if isinstance(e, Op) and e.name in ("add", "sub", "mul", "neg"):
            return with_operands(e, tuple(map(named, e.args)))
        return Ref(repr(e), INT64)

    made = polynomial(named(Op("sub", (a, b), INT64)))
    return Polynomial.make([((repr((a, b)),), 1)]) if made is None else made


def no_less(condition: Expr) -> tuple[Expr, Expr] | None:
    """What is not below what, where a condition on integers holds; None where it says no such thing."""
    match condition:
        case Op(name="lt" | "le" | "gt" | "ge" as name, args=(a, b)) if a.type == b.type == INT64:
            large, small = (a, b) if name in ("gt", "ge") else (b, a)
            return large, Op("add", (small, Const(1, INT64)), INT64) if name in ("lt", "gt") else small
    return None


def merged_subscripts(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[tuple[Expr, Expr], ...]:
    """What is equal, too, where two subscripts name one element: of `k // m, k % m` and `i, j`, k and i * m + j."""
    found = []
    for k, j in itertools.permutations(range(len(a)), 2):  # with others between them, or the other way around
        size = None if j == k + 1 else _divisor(a[k], a[j]) or _divisor(b[k], b[j])
        if size is not None:
            found.append((_joined(a[k], a[j], size), _joined(b[k], b[j], size)))
    k = 0
    while k + 1 < len(a):
        size = _divisor(a[k], a[k + 1]) or _divisor(b[k], b[k + 1])
        if size is None:
            k += 1
            continue
        a, b = ((*x[:k], _joined(x[k], x[k + 1], size), *x[k + 2 :]) for x in (a, b))
        found.append((a[k], b[k]))
        k = max(0, k - 1)
    return tuple(found)


def _divisor(quotient: Expr, remainder: Expr) -> Expr | None:
    """m of `k // m` and `k % m`."""
    match quotient, remainder:
        case Op(name="floordiv", args=(k, m)), Op(name="mod", args=(same, size)) if k == same and m == size:
            return m
    return None


def _joined(quotient: Expr, remainder: Expr, size: Expr) -> Expr:
    if _divisor(quotient, remainder) == size:
        assert isinstance(quotient, Op)
        return quotient.args[0]
    return Op("add", (Op("mul", (quotient, size), INT64), remainder), INT64)
