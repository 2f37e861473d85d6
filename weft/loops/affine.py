"""Affine integer expressions: sums of constant multiples of names plus a constant."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import lru_cache

from weft.loops.ir import Cast, Const, Expr, Op, Ref
from weft.loops.operators import OPERATORS
from weft.loops.types import INT64


@dataclass(frozen=True)
class Affine:
    """sum of coefficient * name over `terms` (sorted by name, no zero coefficient) + constant."""

    terms: tuple[tuple[str, int], ...]
    constant: int

    @staticmethod
    def make(terms: dict[str, int], constant: int) -> Affine:
        return Affine(tuple(sorted((n, c) for n, c in terms.items() if c)), constant)

    def coefficient(self, name: str) -> int:
        return dict(self.terms).get(name, 0)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(n for n, _ in self.terms)

    def __add__(self, other: Affine) -> Affine:
        terms = dict(self.terms)
        for name, coefficient in other.terms:
            terms[name] = terms.get(name, 0) + coefficient
        return Affine.make(terms, self.constant + other.constant)

    def __mul__(self, factor: int) -> Affine:
        return Affine.make({n: c * factor for n, c in self.terms}, self.constant * factor)

    def __sub__(self, other: Affine) -> Affine:
        return self + other * -1

    def expr(self) -> Expr:
        """As an expression, positive terms first, so that it reads `n - 1` rather than `-1 + n`."""
        parts: list[tuple[int, Expr | None]] = [(c, Ref(n, INT64)) for n, c in self.terms]
        parts.sort(key=lambda p: p[0] < 0)
        if self.constant or not parts:
            parts.append((self.constant, None))
        result: Expr | None = None
        for coefficient, ref in parts:
            size = abs(coefficient)
            if ref is None:
                term: Expr = Const(size, INT64)
            else:
                term = ref if size == 1 else Op("mul", (Const(size, INT64), ref), INT64)
            if result is None:
                if coefficient < 0:
                    term = Const(coefficient, INT64) if ref is None else Op("neg", (term,), INT64)
                result = term
            else:
                result = Op("sub" if coefficient < 0 else "add", (result, term), INT64)
        assert result is not None
        return result


@lru_cache(maxsize=1 << 14)  # the analysis asks for the same few subscripts and bounds again and again
def affine(expr: Expr) -> Affine | None:
    """expr as an affine form over its names, or None where it is not one."""
    match expr:
        case Const(value=value, type=type_) if type_.category == "int":
            return Affine((), int(value))
        case Ref(name=name, type=type_) if type_ == INT64:
            return Affine(((name, 1),), 0)
        case Cast(value=value, type=type_) if type_ == INT64 and value.type == INT64:
            return affine(value)
        case Op(name="neg", args=(a,)):
            inner = affine(a)
            return None if inner is None else inner * -1
        case Op(name="add" | "sub" as name, args=(a, b), type=type_) if type_ == INT64:
            left, right = affine(a), affine(b)
            if left is None or right is None:
                return None
            return left + right if name == "add" else left - right
        case Op(name="mul", args=(a, b), type=type_) if type_ == INT64:
            left, right = affine(a), affine(b)
            if left is None or right is None:
                return None
            if not left.terms:
                return right * left.constant
            if not right.terms:
                return left * right.constant
    return None


def is_bound(expr: Expr, names: Container[str]) -> bool:
    """Whether the polyhedra understand expr as a bound of a loop or an extent: the largest or smallest of sums of these
    names, each times a constant, with divisions and remainders by positive constants.
    """
    match expr:
        case Const(type=type_):
            return type_.category == "int"
        case Ref(name=name, type=type_):
            return type_ == INT64 and name in names
        case Op(name="neg" | "add" | "sub" | "min" | "max", args=args):
            return all(is_bound(a, names) for a in args)
        case Op(name="mul", args=(a, Const())) | Op(name="mul", args=(Const(), a)):
            return is_bound(a, names)
        case Op(name="floordiv" | "mod", args=(a, Const(value=divisor))):
            return divisor > 0 and is_bound(a, names)
    return False


def evaluate(expr: Expr, names: Mapping[str, int]) -> int:
    """The value of an integer expression without loads. Raises KeyError for a name that is not given."""
    match expr:
        case Const(value=value):
            return int(value)
        case Ref(name=name):
            return names[name]
        case Cast(value=value):
            return evaluate(value, names)
        case Op(name="where", args=(condition, then, orelse)):
            return evaluate(then if evaluate(condition, names) else orelse, names)
        case Op(name=name, args=args):
            return int(OPERATORS[name].evaluate(*(evaluate(a, names) for a in args)))
    raise KeyError(expr)
