"""Scalars in formulas: `0.5 * x * (1 + erf(x))` makes the expression that it says."""

from __future__ import annotations

from dataclasses import dataclass

from weft.language.arithmetic import as_type, choose, convert, differentiated, floating, operate, power
from weft.language.builder import Builder
from weft.language.values import Scalar, number
from weft.loops.types import ScalarType


@dataclass(frozen=True, eq=False)
class Term:
    """A scalar and the builder that it is computed with. Operators are PyTorch's on elements, a comparison gives a Term."""

    builder: Builder
    scalar: Scalar

    @staticmethod
    def of(value: bool | float, like: Term) -> Term:
        """A Python number."""
        return Term(like.builder, number(value))

    @property
    def dtype(self) -> ScalarType:
        return self.scalar.typed.scalar

    @property
    def is_float(self) -> bool:
        return self.dtype.category == "float"

    def apply(self, operator: str, *others: Operand) -> Term:
        """An operator of weft.loops.operators, this the first operand."""
        values = (self.scalar, *(_scalar(o) for o in others))
        return Term(self.builder, operate(operator, values, self.builder.default_float))

    def shared(self) -> Term:
        """The same under a name, so that it is computed once."""
        return Term(self.builder, self.builder.share(self.scalar, "t"))

    def floating(self) -> Term:
        """The same as a float, an integer as one of PyTorch's default dtype."""
        return Term(self.builder, as_type(self.scalar, floating(self.scalar.typed, self.builder.default_float)))

    def like(self, other: Term) -> Term:
        """The same as the type of another."""
        return Term(self.builder, as_type(self.scalar, other.scalar.typed))

    def to(self, dtype: ScalarType) -> Term:
        return Term(self.builder, convert(self.scalar, dtype))

    def differentiated(self, rule: str) -> Term:
        """The same with another rule for its derivative."""
        return Term(self.builder, differentiated(self.scalar, rule))

    def power(self, exponent: Term) -> Term:
        return Term(self.builder, power(self.scalar, exponent.scalar, self.builder.default_float))

    def equals(self, other: Operand) -> Term:
        return self.apply("eq", other)

    def __add__(self, other: Operand) -> Term:
        return self.apply("add", other)

    def __radd__(self, other: Operand) -> Term:
        return self._of(other).apply("add", self)

    def __sub__(self, other: Operand) -> Term:
        return self.apply("sub", other)

    def __rsub__(self, other: Operand) -> Term:
        return self._of(other).apply("sub", self)

    def __mul__(self, other: Operand) -> Term:
        return self.apply("mul", other)

    def __rmul__(self, other: Operand) -> Term:
        return self._of(other).apply("mul", self)

    def __truediv__(self, other: Operand) -> Term:
        return self.apply("div", other)

    def __rtruediv__(self, other: Operand) -> Term:
        return self._of(other).apply("div", self)

    def __neg__(self) -> Term:
        return self.apply("neg")

    def __abs__(self) -> Term:
        return self.apply("abs")

    def __lt__(self, other: Operand) -> Term:
        return self.apply("lt", other)

    def __le__(self, other: Operand) -> Term:
        return self.apply("le", other)

    def __gt__(self, other: Operand) -> Term:
        return self.apply("gt", other)

    def __ge__(self, other: Operand) -> Term:
        return self.apply("ge", other)

    def __and__(self, other: Operand) -> Term:
        """Both conditions."""
        return self.apply("and", other)

    def __or__(self, other: Operand) -> Term:
        """Either condition."""
        return self.apply("or", other)

    def _of(self, value: Operand) -> Term:
        return Term(self.builder, _scalar(value))


Operand = Term | float


def _scalar(value: Operand) -> Scalar:
    return value.scalar if isinstance(value, Term) else number(value)


def where(condition: Term, then: Operand, orelse: Operand) -> Term:
    """The one or the other as the type that they have in common; what is not chosen is not computed and has no gradient."""
    b = condition.builder
    return Term(b, choose(condition.scalar, _scalar(then), _scalar(orelse), b.default_float))
