"""Numbers of columns as floats: those of a thread's columns are the first one's and a constant, which is added as a float; and
scalars as floats.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from weft.emit.expressions import SUM, DividingPrinter, Text
from weft.loops.affine import Affine, affine
from weft.loops.ir import Expr, Op
from weft.loops.types import FLOAT32, INT64, ScalarType

# Of a column's number, the largest multiple: where a sum is near 0, so many times the columns of a turn are exact floats.
_MOST = 1 << 10


@dataclass(frozen=True)
class ColumnPrinter(DividingPrinter):
    """column: the axis of columns, if any; beyond: a column of a thread less its first one, as C++ that unrolling makes a
    constant. first: the name of that one.

    The conversion of an integer of 64 bits takes as long as eight sums of floats. A sum with the converted first number is as
    exact as the converted sum, or two units at the most: where that number is rounded, a turn has few columns beside it.

    rounded: scalars that are there as floats.
    """

    column: str = ""
    first: str = ""
    beyond: str = ""
    rounded: dict[Expr, str] = field(default_factory=dict)

    def _cast(self, value: Expr, type_: ScalarType, wrap: bool) -> Text:
        if type_ == FLOAT32 and value in self.rounded:
            return Text(self.rounded[value])
        if self.column and type_ == FLOAT32 and value.type == INT64:
            if isinstance(value, Op) and value.name == "abs":
                inner = self._cast(value.args[0], type_, wrap)
                return Text(f"weft::absolute({inner.text})")
            form = affine(value)
            own = form.coefficient(self.column) if form is not None else 0
            if form is not None and 0 < abs(own) <= _MOST and all(map(self.bounded, form.names)):
                return self._place(form, own)
        return super()._cast(value, type_, wrap)

    def _place(self, form: Affine, own: int) -> Text:
        columns = replace(self, name=lambda ref: self.first if ref.name == self.column else self.name(ref), column="")
        first = columns._print(form.expr(), False).text
        more = self.beyond if abs(own) == 1 else f"{abs(own)} * ({self.beyond})"
        return Text(f"float({first}) {'+' if own > 0 else '-'} float({more})", SUM)
