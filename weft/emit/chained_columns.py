"""Which columns the rows of chained products have: bounds that are told or asked, conditions on each pair, masks of scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from weft.emit.algebras import algebra_type
from weft.emit.cpp_body import factor
from weft.emit.expressions import SUM, register_type
from weft.emit.matrix_products import MatrixEntry
from weft.emit.values import ZERO
from weft.graph.chains import Chain
from weft.graph.tile import Fold, Map, Read
from weft.loops.affine import Affine, affine
from weft.loops.ir import Expr, Op, Ref, free_names
from weft.loops.types import INT64
from weft.plan.chain import FRAGMENT_ROWS, MOST_TILES, ChainPlan, several

PAIRS = 8  # columns that a quad of threads has together, two each
_ROW = "{row}"


@dataclass
class ColumnsEntry(MatrixEntry):
    """What a kernel of chained products says of the columns of its rows. Its products are the sums, which end it."""

    chain: Chain = None  # type: ignore[assignment]
    whole_plan: ChainPlan = None  # type: ignore[assignment]
    stripped: bool = False  # scores are without the condition of the mask: they are masked as those beyond bounds are
    held: bool = False  # values take what the condition is of each pair from bits

    def __post_init__(self) -> None:
        super().__post_init__()
        column = Ref(self.chain.column, INT64)  # which `look` has looked at before its tile comes
        self.known_inside |= {(array, axis, column): "true" for array, axis in self.chain.looked_at}

    # ---------------------------------------------------------------- bounds

    @property
    def of_bounds(self) -> list[Read | Map]:
        """The values that the bounds of the columns are made of."""
        axis = self.axes[self.chain.column]
        return list(self.needed((axis.start, axis.stop)))

    @property
    def each_asked(self) -> dict[str, Expr]:
        """The bounds of columns that each row is asked for."""
        chain, axis = self.chain, self.axes[self.chain.column]
        bounds = {"start": (chain.start, axis.start), "stop": (chain.stop, axis.stop)}
        return {which: e for which, (direction, e) in bounds.items() if direction is None}

    def bounds_of_each(self) -> None:
        """What tells bounds of a row."""
        for which, e in self.each_asked.items():
            row = self.declare(self.chain.row)
            with self.writer.block(f"const auto {which}_of = [&](const int64_t {row}) WEFT_INLINE", "};"):
                own = [v for v in self.of_bounds if v in self.needed((e,)) and self.chain.row in v.axes]
                self.statements(tuple(map(self.let, own)))
                self.writer.line(f"return weft::bound_of_columns({self.printer.index(e)});")

    def bounds_of_rows(self, rows: str, first: str, last: str) -> None:
        """What some rows are told together."""
        count = self.plan.tile[0] if rows == "tile" else FRAGMENT_ROWS
        for which in self.each_asked:
            asked = f"weft::bounds_of_rows<{count}>({first}, {last}, {which}_of)"
            self.writer.line(f"const weft::Bounds {which}_of_{rows} = {asked};")

    def bound(self, which: str, rows: str, least: bool) -> str:
        """The least or the largest start or stop of the columns of some rows."""
        chain, axis = self.chain, self.axes[self.chain.column]
        e, direction = (axis.start, chain.start) if which == "start" else (axis.stop, chain.stop)
        if direction is None:
            return f"{which}_of_{rows}.{'least' if least else 'most'}"
        first, last = ("first_row", "last_row") if rows == "tile" else ("near_row", "far_row")
        return self.bound_of(which, first if (direction >= 0) == least else last)

    def bound_of_row(self, which: str) -> str:
        """A bound of the u-th row of a thread."""
        return f"{which}_of_row[u]" if which in self.each_asked else self.bound_of(which, self.declare(self.chain.row))

    def bound_of(self, which: str, row: str) -> str:
        """A bound of the columns of a row; where each has its own, in 32 bits: 0 where it is less, and more than all columns
        where it is that.
        """
        axis = self.axes[self.chain.column]
        e = axis.start if which == "start" else axis.stop
        if e == ZERO or not self.chain.bounded:
            return self.printer.index(e, SUM)
        short, wide = self.short_bounds.get(which), row in ("first_row", self.declare(self.chain.row))
        if short is not None:
            return f"weft::bound_of_columns({short.replace(_ROW, f'int32_t({row})' if wide else row)})"
        with self.spelled({self.chain.row: row if wide else f"int64_t({row})"}):
            return f"weft::bound_of_columns({self.printer.index(e)})"

    def shorten_bounds(self) -> None:
        """Find bounds that 32 bits tell as well, and what they add to the number of a row, the same in all of a call."""
        axis = self.axes[self.chain.column]
        shifts: dict[Expr, str] = {}
        found = {which: self.shortened(e, shifts) for which, e in (("start", axis.start), ("stop", axis.stop))}
        self.short_bounds = {which: text for which, text in found.items() if text is not None}
        for e, name in shifts.items():
            self.writer.line(f"const int32_t {name} = weft::shift_of_rows({self.printer.index(e)});")

    def shortened(self, e: Expr, shifts: dict[Expr, str]) -> str | None:
        """The number of a row and another one in 32 bits, or the least or largest of such, as C++."""
        if isinstance(e, Op) and e.name in ("max", "min"):
            first, second = (self.shortened(x, shifts) for x in e.args)
            return None if first is None or second is None else f"weft::{e.name}imum<int32_t>({first}, {second})"
        form, row = affine(e), self.chain.row
        known = {s.name for s in self.function.sizes} | {s.name for s in self.function.scalars}
        if form is None or form.coefficient(row) not in (0, 1) or not form.names <= known | {row}:
            return None
        rest = form - Affine.make({row: form.coefficient(row)}, 0)
        if not rest.names and abs(rest.constant) > MOST_TILES:
            return None
        if rest.names and rest.expr() not in shifts:
            shifts[rest.expr()] = self.fresh.fresh("shift")
        shift = shifts[rest.expr()] if rest.names else str(rest.constant)
        return shift if not form.coefficient(row) else _ROW if shift == "0" else f"{_ROW} + {shift}"

    @property
    def based(self) -> bool:
        """Whether the turns of a tile begin with its first column, so that rows with a few columns each take few turns; others
        begin with a multiple of their columns, as where turns are left out, which are counted for all tiles.
        """
        chain, plan = self.chain, self.whole_plan
        moves = chain.start is not None and self.axes[chain.column].start != ZERO
        return moves and plan.parts == 1 and not (plan.skips or chain.pages or several(chain))

    @property
    def starts(self) -> bool:
        """Whether rows have columns from one of their own on."""
        return self.chain.bounded and self.axes[self.chain.column].start != ZERO

    def first_of(self, turn: str, type_: str = "") -> str:
        """The first column of a turn, as C++."""
        first = f"{f'{type_}({turn})' if type_ else turn} * {self.plan.tile[2]}"
        return f"column_base + {first}" if self.based else first

    def within_turns(self, column: str) -> str:
        """A column, counted from where the turns begin."""
        return f"{column} - column_base" if self.based else column

    def turns_of_tile(self) -> None:
        """The turns that some row of a tile has, or those of a part of them."""
        line, chain, columns, parts = self.writer.line, self.chain, self.plan.tile[2], self.whole_plan.parts
        begin, end = "0", factor(self.counts.get(chain.column, ""))
        turns = f"({end} + {columns - 1}) / {columns}"
        if chain.bounded:
            rows = self.wholes["rows"]
            self.statements(tuple(self.let(v) for v in self.of_bounds if chain.row not in v.axes))
            line(f"const int32_t last_row = weft::minimum<int32_t>(first_row + {self.plan.tile[0]}, {rows}) - 1;")
            self.bounds_of_each()
            self.bounds_of_rows("tile", "first_row", "last_row")
            begin = self.bound("start", "tile", least=True)
            end = self.bound("stop", "tile", least=False)
            if self.based:
                line(f"const int32_t column_base = weft::minimum({begin}, {end});  // with which the first turn begins")
            begin = f"{begin} / {columns}" if begin != "0" and not self.based else "0"
            end = self.within_turns(end)
            turns = f"({end} + {columns - 1}) / {columns}"
        if parts == 1:
            line(f"const int32_t first_turn = {begin};")
            line(f"const int32_t turns = {turns};")
            return
        line(f"const int32_t begin = {begin}, all_turns = weft::maximum<int32_t>({turns} - begin, 0);")
        line(f"const int32_t part = tile % {parts};  // of {parts}")
        line(f"const int32_t first_turn = begin + all_turns * part / {parts};")
        line(f"const int32_t turns = begin + all_turns * (part + 1) / {parts};")

    def turns_of_warpgroup(self) -> None:
        """The turns in which all rows of a warpgroup have all columns, and, where rows have some alone, those in which any has
        any.
        """
        line, chain, columns = self.writer.line, self.chain, self.plan.tile[2]
        stop = self.counts.get(chain.column, "")
        if chain.bounded:
            self.rows_of_group()
            stop = self.within_turns(self.bound("stop", "group", least=True))
        whole = f"({stop}) / {columns}" if self.based else f"{stop} / {columns}"
        line(f"const int32_t whole_turns = {whole};  // in which all rows have all columns")
        if not chain.bounded:
            return
        if not self.whole_plan.skips:
            line(f"const int32_t own_turns = {self.stop_of_own};  // in which some row has some")
        if self.axes[chain.column].start != ZERO:
            if not self.whole_plan.skips:
                line(f"const int32_t first_own_turn = {self.first_of_own};")
            end = self.within_turns(self.bound("start", "group", least=False))
            line(f"const int32_t first_whole_turn = ({end} + {columns - 1}) / {columns};")

    def rows_of_group(self) -> None:
        """The first and the last row of a warpgroup, and what these are told together."""
        line, rows = self.writer.line, self.wholes["rows"]
        line(f"const int32_t near_row = weft::minimum<int32_t>(first_row + own_row, {rows} - 1);")
        line(f"const int32_t far_row = weft::minimum<int32_t>(near_row + {FRAGMENT_ROWS}, {rows}) - 1;")
        self.bounds_of_rows("group", "near_row", "far_row")

    @property
    def stop_of_own(self) -> str:
        """Before which turn some row of a warpgroup has some column."""
        columns = self.plan.tile[2]
        own = f"({self.within_turns(self.bound('stop', 'group', least=False))} + {columns - 1}) / {columns}"
        return f"weft::minimum<int32_t>({own}, turns)" if self.whole_plan.parts > 1 else own

    @property
    def first_of_own(self) -> str:
        """The first of these turns."""
        return f"({self.within_turns(self.bound('start', 'group', least=True))}) / {self.plan.tile[2]}"

    def of_columns(self, row_: str, extrema: Mapping[str, str]) -> dict[str, str]:
        """What sums of a row are relative to in the end: extrema, but where it has no columns what its sums began with."""
        line, chain = self.writer.line, self.chain
        mark, row = self.writer.mark(), self.declare(chain.row)
        line(f"const bool any = {self.bound_of_row('start')} < {self.bound_of_row('stop')};")
        if self.writer.mentions(row, mark):
            self.writer.insert(mark, f"const int64_t {row} = {row_};")
        found = {}
        for name, own in extrema.items():
            fold = next(f for f in chain.leading if f.results[0] == name)
            found[name] = self.fresh.fresh(f"{fold.names[0]}_last")
            line(f"const {register_type(fold.types[0])} {found[name]} = any ? {own} : {self.algebra(fold)}::reference({own});")
        return found

    # ---------------------------------------------------------------- columns that data decide

    def look(self) -> None:
        """Whether columns that data decide are inside their arrays."""
        if not self.chain.looked_at:
            return
        chain, axis = self.chain, self.axes[self.chain.column]
        if self.chain.asks_rows:
            row = self.declare(chain.row)
            with self.writer.block(f"for (int64_t {row} = first_row + threadIdx.x % 32; {row} <= last_row; {row} += 32)"):
                self.statements(tuple(self.let(v) for v in self.of_bounds if chain.row in v.axes))
                self.look_at(self.printer.index(axis.start, SUM), self.printer.index(axis.stop, SUM))
            self.writer.line("__syncwarp();  // before any tile comes")
            return
        self.look_at(self.printer.index(axis.start, SUM), self.bound("stop", "tile", least=False))

    def look_at(self, start: str, stop: str) -> None:
        sizes = {self.printer.index(self.function.array(array).shape[d], SUM): array for array, d in self.chain.looked_at}
        for size, array in sizes.items():
            outside = f"{stop} > {size}" if start == "0" else f"({start} < 0 || {stop} > {size})"
            self.writer.line(f"if ({start} < {stop} && {outside}) __trap();  // a subscript leaves {array}")

    @property
    def asked(self) -> Expr | None:
        """What is asked of each row and column, apart from scores."""
        mask, skips = self.chain.mask, self.whole_plan.skips
        return mask.condition if skips and mask is not None and (self.stripped or self.held) else self.chain.given

    @property
    def of_pairs(self) -> list[Read | Map]:
        """The values of rows and columns that this is made of."""
        return [] if self.asked is None else [v for v in self.needed((self.asked,)) if set(v.axes) - {*self.chain.sums.batch}]

    @property
    def unsure(self) -> str:
        """Whether some pair of a turn may lack what is asked."""
        return "!sure" if self.whole_plan.skips else "true"

    def inside(self, place: str, values: Iterable[Read | Map]) -> str:
        """The number of a column, or of the last one that all arrays have that are read at these."""
        column = Ref(self.chain.column, INT64)
        sizes = dict.fromkeys(
            self.printer.index(self.function.array(v.array).shape[d], SUM)
            for v in values if isinstance(v, Read) for d, i in enumerate(v.index) if i == column
        )  # fmt: skip
        for size in sizes:
            place = f"weft::minimum<int64_t>({place}, {size} - 1)"
        return place

    def axes_of(self, e: Expr) -> set[str]:
        """The axes that a value depends on."""
        found = {n for n in free_names(e) if n in self.axes}
        return found.union(*({*self.made[n].axes} for n in free_names(e) if n in self.made))

    @property
    def outside(self) -> str:
        """Whether a row does not have a column that a thread has."""
        beyond = f"h * {PAIRS} + v >= column_stop[u]"
        return beyond if self.axes[self.chain.column].start == ZERO else f"h * {PAIRS} + v < column_start[u] || {beyond}"

    def algebra(self, f: Fold) -> str:
        return algebra_type(f.algebra, register_type(f.types[0]))
