"""Sizes that are known by name alone: polynomials in positive integers, with what is known of their divisors.

Every comparison and every division is either proven for all values the names can take, or refused as Undecided; so an
operation on layouts that goes through with symbolic sizes is right for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import prod
from typing import Any, NamedTuple

from weft.layout.errors import LayoutError


class Undecided(LayoutError):
    """A question about symbolic sizes whose answer depends on their values."""


class Variable(NamedTuple):
    """The integer k >= least that the size called `name` is `multiple_of` times."""

    name: str
    multiple_of: int
    least: int


Monomial = tuple[tuple[Variable, int], ...]
Terms = dict[Monomial, int]


def symbol(name: str, *, multiple_of: int = 1, at_least: int = 1) -> Size:
    """A size known to be a multiple of an integer and at least another; LayoutError for facts that make no sense."""
    if not name.isidentifier():
        raise LayoutError(f"{name!r} cannot name a size", remedy="use a name that Python would take")
    if multiple_of < 1:
        raise LayoutError(f"a size is a multiple of a positive integer, not of {multiple_of}")
    least = max(1, -(-at_least // multiple_of))
    return Size({((Variable(name, multiple_of, least), 1),): multiple_of})


class Size:
    """A polynomial with integer coefficients, immutable. Made by `symbol` and arithmetic; constants become ints."""

    __slots__ = ("_terms", "_hash")

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._hash = hash(frozenset(terms.items()))

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, (int, Size)):
            return NotImplemented
        terms = dict(self._terms)
        for monomial, c in _terms(other).items():
            terms[monomial] = terms.get(monomial, 0) + c
        return _simplest(terms)

    __radd__ = __add__

    def __neg__(self) -> Any:
        return Size({m: -c for m, c in self._terms.items()})

    def __sub__(self, other: Any) -> Any:
        return self + -other if isinstance(other, (int, Size)) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, (int, Size)):
            return NotImplemented
        terms: Terms = {}
        for m, c in self._terms.items():
            for n, e in _terms(other).items():
                both = _times(m, n)
                terms[both] = terms.get(both, 0) + c * e
        return _simplest(terms)

    __rmul__ = __mul__

    def __divmod__(self, other: Any) -> Any:
        return _divide(self, other) if isinstance(other, (int, Size)) else NotImplemented

    def __rdivmod__(self, other: Any) -> Any:
        return _divide(other, self) if isinstance(other, int) else NotImplemented

    def __floordiv__(self, other: Any) -> Any:
        return divmod(self, other)[0]

    def __rfloordiv__(self, other: Any) -> Any:
        return divmod(other, self)[0]

    def __mod__(self, other: Any) -> Any:
        return divmod(self, other)[1]

    def __rmod__(self, other: Any) -> Any:
        return divmod(other, self)[1]

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __eq__(self, other: object) -> bool:
        """Whether the two are the same polynomial (unequal polynomials may agree for some values)."""
        return self._terms == other._terms if isinstance(other, Size) else False

    def __hash__(self) -> int:
        return self._hash

    def __bool__(self) -> bool:
        return True

    def __lt__(self, other: Any) -> bool:
        return _below(self, other, strictly=True)

    def __le__(self, other: Any) -> bool:
        return _below(self, other, strictly=False)

    def __gt__(self, other: Any) -> bool:
        return not _below(self, other, strictly=False)

    def __ge__(self, other: Any) -> bool:
        return not _below(self, other, strictly=True)

    def substitute(self, values: Mapping[str, int]) -> int:
        """The integer for these values of the names. LayoutError for one left out or at odds with its facts."""
        total = 0
        for monomial, c in self._terms.items():
            for variable, power in monomial:
                if variable.name not in values:
                    raise LayoutError(f"no value is given for {variable.name}")
                k, rest = divmod(values[variable.name], variable.multiple_of)
                if rest or k < variable.least:
                    raise LayoutError(
                        f"{variable.name} = {values[variable.name]} is not a multiple of {variable.multiple_of} "
                        f"that is at least {variable.least * variable.multiple_of}"
                    )
                c *= k**power
            total += c
        return total

    def __str__(self) -> str:
        text = ""
        for monomial, c in sorted(self._terms.items(), key=lambda term: (-len(term[0]), term[0])):
            scale = Fraction(c, prod(v.multiple_of**power for v, power in monomial))
            names = [v.name if power == 1 else f"{v.name}^{power}" for v, power in monomial]
            number = abs(scale.numerator)
            body = "*".join(([str(number)] if number != 1 or not names else []) + names)
            body += f"/{scale.denominator}" if scale.denominator != 1 else ""
            text += ("-" if scale < 0 else "+" if text else "") + body
        return text

    __repr__ = __str__


def _terms(x: Any) -> Terms:
    if isinstance(x, Size):
        return x._terms
    return {(): int(x)} if x else {}


def _simplest(terms: Terms) -> Any:
    kept = {m: c for m, c in terms.items() if c}
    if not kept:
        return 0
    if len(kept) == 1 and () in kept:
        return kept[()]
    return Size(kept)


def _times(a: Monomial, b: Monomial) -> Monomial:
    powers = dict(a)
    for variable, power in b:
        powers[variable] = powers.get(variable, 0) + power
    return tuple(sorted(powers.items()))


def _over(a: Monomial, b: Monomial) -> Monomial | None:
    """a / b, or None where that is no monomial."""
    powers = dict(a)
    for variable, power in b:
        powers[variable] = powers.get(variable, 0) - power
        if powers[variable] < 0:
            return None
    return tuple(sorted((v, p) for v, p in powers.items() if p))


def _divide(a: Any, b: Any) -> tuple[Any, Any]:
    """Quotient and remainder with 0 <= remainder < b, for positive b. Raises Undecided where they depend on values."""
    if a == b:
        return 1, 0
    divisors = _terms(b)
    if not divisors:
        raise LayoutError("division by zero")
    quotient: Any = 0
    rest: Any = a
    if len(divisors) == 1:
        ((monomial, c),) = divisors.items()
        rest = 0
        for m, e in _terms(a).items():
            smaller = _over(m, monomial) if c > 0 else None
            q, r = divmod(e, c) if smaller is not None else (0, e)
            if smaller is not None and q:
                quotient = quotient + _simplest({smaller: q})
            rest = rest + _simplest({m: r})
        if rest == 0:
            return quotient, 0
    if _never_negative(rest) and _never_negative(b - rest - 1):
        return quotient, rest
    raise Undecided(
        f"whether {b} divides {a} depends on their values",
        remedy="say what divides the size: symbol(..., multiple_of=...)",
    )


def _below(a: Any, b: Any, *, strictly: bool) -> bool:
    gap = b - a - 1 if strictly else b - a
    if _never_negative(gap):
        return True
    if _never_negative(-gap - 1):
        return False
    raise Undecided(
        f"whether {a} is below {b} depends on their values",
        remedy="bound the size from below: symbol(..., at_least=...)",
    )


def _never_negative(x: Any) -> bool:
    """Whether x >= 0 is proven: no coefficient is negative in the excess of each variable over its least value."""
    return all(c >= 0 for c in (_from_least(x) if isinstance(x, Size) else _terms(x)).values())


def _from_least(x: Size) -> Terms:
    """The polynomial in the excess of each variable over its least value."""
    total: Any = 0
    for monomial, c in x._terms.items():
        term: Any = c
        for variable, power in monomial:
            excess = Size({((variable, 1),): 1})
            for _ in range(power):
                term = term * (excess + variable.least)
        total = total + term
    return _terms(total)


def substitute(t: Any, values: Mapping[str, int]) -> Any:
    """A nested tuple with every symbolic size replaced by its value."""
    if isinstance(t, tuple):
        return tuple([substitute(x, values) for x in t])
    known: Callable[[Mapping[str, int]], Any] | None = getattr(t, "substitute", None)
    return t if known is None else known(values)
