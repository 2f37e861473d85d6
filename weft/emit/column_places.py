"""Numbers of columns as floats: those of a thread's columns and rows are the first ones' and a constant, which is added as a
float; and scalars as floats.
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
    constant. first: the name of that one. row, below, first_row: the same of rows.

    The conversion of an integer of 64 bits takes as long as eight sums of floats. A sum with the converted first number is as
    exact as the converted sum, or two units at the most: where that number is rounded, a turn has few columns beside it. What
    is made of a distance, j - i, is made once where two scores have the same.

    rounded: scalars that are there as floats.
    """

    column: str = ""
    first: str = ""
    beyond: str = ""
    row: str = ""
    first_row: str = ""
    below: str = ""
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
        firsts = {self.column: self.first, self.row: self.first_row}
        thread = replace(self, name=lambda ref: firsts.get(ref.name) or self.name(ref), column="")
        first = thread._print(form.expr(), False).text
        more = _multiple(own, self.beyond)
        if below := form.coefficient(self.row):
            more += f" {'+' if below > 0 else '-'} {_multiple(abs(below), self.below)}"
        return Text(f"float({first}) + float({more})", SUM)


def _multiple(factor: int, number: str) -> str:
    return f"({number})" if factor == 1 else f"{factor} * ({number})"
