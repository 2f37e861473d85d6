"""Turns of chained products that blocks leave out: no pair of a row and a column has the condition of a mask.

A launch before looks at the columns of each turn, and keeps the least and the largest of what the mask compares of them. The
warp that brings tiles asks for those of a tile's rows, goes through the turns that intervals leave, 32 at once, and says of
each which it is, which follows, and whether all its pairs have the condition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from weft.emit.chained_meeting import MeetingEntry
from weft.emit.cpp_body import factor
from weft.emit.expressions import SUM, register_type
from weft.graph.masks import COMPARISONS, Values, side_of
from weft.loops.affine import affine
from weft.loops.ir import Expr, Op
from weft.plan.chain import FRAGMENT_ROWS, tables_of

# How intervals are compared: which way round, and what may be and must be.
_ASKED = {
    "eq": (False, "may_equal", "must_equal"), "lt": (False, "may_be_below", "must_be_below"),
    "le": (False, "may_reach", "must_reach"), "gt": (True, "may_be_below", "must_be_below"),
    "ge": (True, "may_reach", "must_reach"),
}  # fmt: skip


@dataclass
class TurnsEntry(MeetingEntry):
    """What a kernel says of the turns that it leaves out."""

    @property
    def skips(self) -> bool:
        return self.whole_plan.skips

    @property
    def group(self) -> str:
        """Which warpgroup a thread is of."""
        return "threadIdx.x / 128"

    @property
    def rows_place(self) -> str:
        return f"rows % {self.whole_plan.row_places}" if self.whole_plan.row_places > 1 else "0"

    @property
    def rows_phase(self) -> str:
        return f"(rows / {self.whole_plan.row_places} % 2)" if self.whole_plan.row_places > 1 else "(rows % 2)"

    # ---------------------------------------------------------------- memory

    def parameters_of_parts(self) -> list[str]:
        if not self.skips:
            return super().parameters_of_parts()
        self.tables = {name: self.fresh.fresh(name.replace(".", "_")) for name, _ in tables_of(self.chain)}
        memory = [f"{register_type(type_)}* {self.tables[name]}" for name, type_ in tables_of(self.chain)]
        return ["uint32_t* tickets", *memory, "const int64_t parts"]

    def shared_turns(self) -> None:
        """Where the warp that brings tiles says which turns these are."""
        if self.skips:
            line, groups = self.writer.line, self.whole_plan.warpgroups
            line("// of a place: the turn, whether all its pairs have the condition, and all is finite")
            line(f"__shared__ int32_t turn_of[{self.plan.stages}];")
            line(f"__shared__ weft::TurnsOfGroup turns_of[{self.whole_plan.row_places}][{groups}];")

    # ---------------------------------------------------------------- who brings tiles

    def values_at(self, exprs: Iterable[Expr]) -> None:
        """Statements of the values that expressions need."""
        self.statements(tuple(map(self.let, self.needed(exprs))))

    def ask_turns(self) -> None:
        """What is told of a turn, and which turns each warpgroup has."""
        line, chain, (rows, _, columns), groups = self.writer.line, self.chain, self.plan.tile, self.whole_plan.warpgroups
        assert chain.mask is not None
        sides, row = chain.sides, self.declare(chain.row)
        if not chain.bounded:
            line(f"const int64_t last_row = weft::minimum<int64_t>(first_row + {rows}, {self.wholes['rows']}) - 1;")
        self.intervals: dict[Expr, str] = {}
        for k, e in enumerate(sides.rows):
            with self.writer.block(f"const auto of_row_{k} = [&](const int64_t {row}) WEFT_INLINE", "};"):
                self.values_at([e])
                line(f"return {self.printer.value(e)};")
            own = self.intervals[e] = f"rows_{k}"
            type_ = register_type(e.type)
            line(f"const auto {own} = weft::interval_of_rows<{type_}, {rows}>(first_row, last_row, of_row_{k});")
        if sides.finite_rows:
            with self.writer.block(f"const auto finite_of_row = [&](const int64_t {row}) WEFT_INLINE", "};"):
                self.values_at(sides.finite_rows)
                line(f"return {' && '.join(f'weft::is_number({self.printer.value(e)})' for e in sides.finite_rows)};")
            line(f"const bool finite_rows = weft::all_of_rows<{rows}>(first_row, last_row, finite_of_row);")
        with self.writer.block("const auto ask = [&](const int32_t turn) WEFT_INLINE", "};"):
            line(f"const int32_t item = turn * batches + {'int32_t(batch)' if chain.sums.batch else '0'};")
            line(f"const int32_t told_of_turn = {self.tables['told']}[item];")
            for k, e in enumerate(sides.columns):
                own = self.intervals[e] = f"columns_{k}"
                ends = ", ".join(f"{self.tables[f'{which}.{k}']}[item]" for which in ("least", "most"))
                line(f"const weft::Interval<{register_type(e.type)}> {own}{{{ends}, (told_of_turn >> {k + 1} & 1) != 0}};")
            line(f"const int64_t first_column = int64_t(turn) * {columns}, last_column = first_column + {columns - 1};")
            self.values_at(e for e in self.of_neither(chain.mask.condition))
            finite = ["(told_of_turn & 1)", *(["finite_rows"] if sides.finite_rows else [])]
            finite = finite if chain.mask.finite or chain.mask.operands else []
            may, must = (self.decided(chain.mask.condition, may) for may in (True, False))
            may = f"!({' && '.join(finite)}) || {may}" if finite else may
            told = [f"({may} ? weft::some_pair : 0u)", f"({must} ? weft::all_pairs : 0u)"]
            line(f"return {' | '.join([*told, '(told_of_turn & 1 ? weft::all_finite_there : 0u)'])};")
        line(f"int32_t from[{groups}], to[{groups}];")
        with self.unrolled_block([f"for (int32_t g = 0; g < {groups}; ++g)"]):
            if chain.bounded:
                line(f"const int32_t own_row = g * {FRAGMENT_ROWS};")
                self.rows_of_group()
            line(f"from[g] = {self.first_of_own if chain.bounded else '0'};")
            line(f"to[g] = {self.stop_of_own if chain.bounded else 'turns'};")
        line(f"weft::TurnsOfGroup counts[{groups}];")
        line("const int32_t begin = weft::count_turns(counts, from, to, first_turn, turns, ask);")
        line("const int32_t all_turns = counts[0].before + counts[0].own + counts[0].after;")
        line("weft::Turns<decltype(ask)> left(ask, begin, turns, all_turns);")

    def of_neither(self, e: Expr) -> Iterable[Expr]:
        """What is compared of neither rows nor columns."""
        if isinstance(e, Op) and e.name in ("and", "or", "not"):
            for x in e.args:
                yield from self.of_neither(x)
        elif isinstance(e, Op) and e.name in COMPARISONS:
            yield from (x for x in e.args if self.side_of(x) in ("alike", "places"))

    def side_of(self, e: Expr) -> str | None:
        return side_of(e, Values.of(self.chain.values, self.axes), self.chain.row, self.chain.column)

    def decided(self, e: Expr, may: bool) -> str:
        """Whether a condition may be true of a pair, or is of all."""
        match e:
            case Op(name="and" | "or" as name, args=args):
                return f" {'&&' if name == 'and' else '||'} ".join(factor(self.decided(x, may)) for x in args)
            case Op(name="not", args=(x,)):
                return f"!{factor(self.decided(x, not may))}"
            case Op(name=name, args=(a, b)) if name in _ASKED and a.type == b.type:
                turned, *how = _ASKED[name]
                intervals = [self.interval(x) for x in ((b, a) if turned else (a, b))]
                if None not in intervals:
                    return f"weft::{how[0 if may else 1]}({', '.join(map(str, intervals))})"
        return "true" if may else "false"

    def interval(self, e: Expr) -> str | None:
        """What is compared of a tile and a turn, from the least to the largest."""
        match self.side_of(e):
            case "row" | "column":
                return self.intervals.get(e)
            case "alike":
                return f"weft::interval_of<{register_type(e.type)}>({self.printer.value(e)})"
            case "places":
                form, chain = affine(e), self.chain
                assert form is not None
                ends = []
                for least in (True, False):
                    at = {
                        n: f"{'first' if (form.coefficient(n) > 0) == least else 'last'}_{which}"
                        for n, which in ((chain.row, "row"), (chain.column, "column"))
                    }
                    with self.spelled(at):
                        ends.append(self.printer.index(e, SUM))
                return f"weft::Interval<int64_t>{{{', '.join(ends)}}}"
        return None

    def hand_turns(self) -> None:
        """Tell those who multiply which turns they have."""
        for g in range(self.whole_plan.warpgroups):
            self.writer.line(f"turns_of[{self.rows_place}][{g}] = counts[{g}];")
