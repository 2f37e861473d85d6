"""Which rows have a column, where data of each row tell which columns it has: found before, as values of a tile graph.

Of documents that follow each other, the rows of a column lie side by side, and that is all there is to know. In general there
may be gaps: then all rows from the first that has the column to the last are taken, and each is asked by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from weft.graph.tile import Axis, Fold, NotTiles, Read, Write
from weft.loops.extents import expanded, expanded_index, extents
from weft.loops.ir import Array, Const, Expr, Function, Op, Ref
from weft.loops.names import Names
from weft.loops.simplify import sub
from weft.loops.types import BOOL, INT64

_NONE, _ONE = Const(0, INT64), Const(1, INT64)


@dataclass(frozen=True)
class RowsOfColumns:
    """rows: the axis of a column's rows, from the first to the last. given: whether one of them has the column, which is known
    where there are no gaps. bounds, gaps: what writes these, one after the other, to memory; values: what that and `rows` are
    made of.
    """

    rows: Axis
    given: Expr
    bounds: tuple[Write, ...]
    gaps: Write
    values: tuple[Read | Fold, ...]
    memory: tuple[Array, ...]


def rows_of_columns(
    function: Function,
    axes: Mapping[str, Axis],
    batch: tuple[str, ...],
    column: str,
    row: str,
    starts: list[Expr],
    stops: list[Expr],
    names: Names,
) -> RowsOfColumns:
    """axes: with all rows that may have a column. batch: the axes that the bounds depend on besides the row. starts, stops: of
    the columns of a row, as data of it tell them. Raises NotTiles.
    """
    values: list[Read | Fold] = []
    memory: list[Array] = []
    rows, own = axes[row], (*batch, column)
    at_column, at_row = Ref(column, INT64), Ref(row, INT64)
    asked = [Op("le", (e, at_column), BOOL) for e in starts] + [Op("lt", (at_column, e), BOOL) for e in stops]
    has = reduce(lambda a, b: Op("and", (a, b), BOOL), asked)

    def fold(name: str, of: tuple[str, ...], over: str, algebra: str, part: Expr, init: Expr) -> Ref:
        result = names.fresh(name)
        values.append(Fold((f"{result}_part",), (result,), of, (over,), algebra, (part,), (init,)))
        return Ref(result, INT64)

    def kept(name: str, of: tuple[str, ...], value: Expr) -> tuple[Write, Ref]:
        sizes = extents(function, [axes[a].loop() for a in of])
        if sizes is None:
            raise NotTiles(f"it is not told how many {column} there are")
        array, index = expanded(names.fresh(f"{name}_saved"), INT64, sizes), expanded_index(sizes, [Ref(a, INT64) for a in of])
        memory.append(array)
        values.append(Read(names.fresh(name), of, array.name, index, INT64, True))
        return Write(array.name, of, index, value), Ref(values[-1].name, INT64)  # type: ignore[union-attr]

    write, count = kept("count", own, fold("count", own, row, "sum", _where(has, _ONE, _NONE), _NONE))
    bounds, first, stop = [write], rows.start, rows.stop
    if stops:
        write, first = kept("least", own, fold("least", own, row, "min", _where(has, at_row, rows.stop), rows.stop))
        bounds.append(write)
    if starts:
        after = Op("add", (at_row, _ONE), INT64)
        write, stop = kept("most", own, fold("most", own, row, "max", _where(has, after, _NONE), _NONE))
        bounds.append(write)
    some = Op("and", (Op("lt", (_NONE, count), BOOL), Op("ne", (count, sub(stop, first)), BOOL)), BOOL)
    gaps, gap = kept("gap", batch, fold("gap", batch, column, "max", _where(some, _ONE, _NONE), _NONE))
    given = Op("or", (Op("eq", (gap, _NONE), BOOL), has), BOOL)
    start = Op("max", (rows.start, first), INT64) if stops else rows.start
    end = Op("min", (rows.stop, stop), INT64) if starts else rows.stop
    return RowsOfColumns(Axis(row, start, end), given, tuple(bounds), gaps, tuple(values), tuple(memory))


def _where(e: Expr, then: Expr, orelse: Expr) -> Op:
    return Op("where", (e, then, orelse), INT64)
