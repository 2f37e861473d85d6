"""Chained products as C++ for the CPU: rows lie side by side in lanes, so that what a row folds is told by no other lane.

A tile of rows goes through its columns some at a time. Their scores, the values that these become and the sums have a line of
rows for each column, or lane: products are squares in registers, and all else is done to whole lines.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

from weft.emit.algebras import algebra_type
from weft.emit.cpp_body import factor
from weft.emit.expressions import PRODUCT, SUM, TERNARY, memory_type, register_type
from weft.emit.names import Names, host_entry, words
from weft.emit.text import Writer
from weft.emit.values import ZERO, ValueBody, deciding
from weft.graph.chains import Chain
from weft.graph.products import Operand, Products
from weft.graph.running import Repair, before
from weft.graph.tile import Fold, Map, Read, Write, uses, uses_of_write
from weft.loops.ir import Function, Ref, free_names
from weft.loops.schedule import Nest
from weft.loops.types import FLOAT64, INT64
from weft.plan.arguments import Facts, slots

COLUMNS = 64  # that a tile goes through at a time
PARALLEL_WORK = 32768  # multiply-adds below which threads cost more than they bring

_OWN = """
    slots threads tile tiles row_tiles first_row last_row rows columns count w c asks begin end has
    outside column_start column_stop first_column end_of_columns batch first edge fold any held holds has_column
"""


def emit(function: Function, nest: Nest, chain: Chain, facts: Facts) -> str:
    """The translation unit of one nest, as `weft.emit.cpp.emit` has it."""
    return ChainRows.of(function, nest, chain, facts).text()


@dataclass
class ChainRows(ValueBody):
    """whole: the nest, whose slots the function takes."""

    chain: Chain = field(kw_only=True)
    whole: Nest = field(kw_only=True)

    @classmethod
    def of(cls, function: Function, nest: Nest, chain: Chain, facts: Facts) -> Self:
        varies = deciding(chain.axes, chain.values)
        large = varies | {s.name for s in function.scalars}
        return cls(
            function, Nest(nest.name, nest.axes, (), nest.verdicts), facts, Writer(), Names(frozenset(words(_OWN))), {}, {},
            varies, large, axes=chain.axes, values=chain.values, chain=chain, whole=nest,
        )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        self.printer = replace(self.printer, fuses=False)  # which is left to the compiler
        self.leaves = {n for f in self.chain.folds for n in f.results}
        self.type = register_type(self.chain.folds[0].types[0])
        self.counts: dict[str, str] = {}

    # ---------------------------------------------------------------- the unit

    def text(self) -> str:
        line, chain = self.writer.line, self.chain
        line('#include "weft/rows.hpp"')
        line()
        entry = host_entry(self.nest.name)
        with self.writer.block(f'extern "C" WEFT_WIDEST int64_t {entry}(const weft_slot* slots, int threads)'):
            taken, mark = self.taken(), self.writer.mark()
            line(f"constexpr int rows = weft::rows_of_tile<{self.type}>, columns = {COLUMNS};")
            for axis in (*chain.sums.batch, chain.row, chain.point, *chain.sums.columns):
                self.counts[axis] = self.span(self.axes[axis], f"{axis}_count")
            line(f"const int64_t row_tiles = ({factor(self.counts[chain.row])} + rows - 1) / rows;")
            line(f"const int64_t tiles = {' * '.join(['row_tiles', *(factor(self.counts[a]) for a in chain.sums.batch)])};")
            if chain.looked_at:
                line("uint64_t outside = 0;")
            work = f"double(tiles) * {factor(self.counts[chain.point])} * rows * columns"
            self.writer.pragma(f"omp parallel num_threads(threads) if ({work} > {PARALLEL_WORK})")
            with self.writer.block(""):
                self.buffers()
                self.writer.pragma(f"omp for schedule(dynamic){' reduction(max : outside)' if chain.looked_at else ''}")
                with self.writer.block("for (int64_t tile = 0; tile < tiles; ++tile)"):
                    self.tile()
            line("return int64_t(outside);" if chain.looked_at else "return 0;")
            for name, text in reversed(taken):
                if self.writer.mentions(name, mark):
                    self.writer.insert(mark, text)
        return self.writer.text()

    def taken(self) -> list[tuple[str, str]]:
        """The names of the arguments, and how each is declared."""
        found = []
        for position, slot in enumerate(slots(self.function, self.whole, self.facts)):
            name, given = self.fresh.fresh(slot.name), f"slots[{position}]"
            if slot.kind == "pointer":
                self.arrays[slot.array], array = name, self.function.array(slot.array)
                kind = f"{'const ' if array.role == 'input' else ''}{memory_type(array.dtype)}*"
                found.append((name, f"{kind} __restrict__ {name} = static_cast<{kind}>({given}.pointer);"))
                continue
            self.names[slot.name] = name
            scalar = next((s for s in self.function.scalars if s.name == slot.name), None)
            kind = register_type(slot.type if scalar is None else scalar.type)
            value = f"{given}.{'number' if slot.type == FLOAT64 else 'integer'}{' != 0' if kind == 'bool' else ''}"
            found.append((name, f"const {kind} {name} = {value};"))
        return found

    def buffers(self) -> None:
        """What a thread keeps of a tile, line by line."""
        chain, point = self.chain, factor(self.counts[self.chain.point])
        self.lines: dict[Any, str] = {}
        for o in chain.scores.left:
            self.buffer(("left", o.value), o.name, f"{point} * rows")
        for f in chain.scores.folds:
            self.buffer(f.results[0], f.names[0], "columns * rows")
        for v in self.kept:
            self.buffer(v.name, v.name, "columns * rows")
        for o in chain.sums.left:
            self.buffer(("part", o.value), "part", "columns * rows")
        for f in chain.sums.folds:
            self.buffer(f.results[0], f.names[0], f"{factor(self.counts[chain.lane])} * rows")
        if chain.given is not None:
            self.writer.line("const weft::Scratch<bool> held(columns * rows);  // whether a row has a column by the condition")
        for product in (chain.scores, chain.sums):
            for o in product.right:
                if self.plain(product, o) is None:
                    axis = chain.point if product is chain.scores else chain.lane
                    self.buffer(("right", o.value), o.name, f"columns * {factor(self.counts[axis])}")

    def buffer(self, of: Any, wanted: str, elements: str) -> None:
        if of not in self.lines:
            name = self.lines[of] = self.fresh.fresh(f"{wanted if 'operand.' not in wanted else 'operand'}_lines")
            self.writer.line(f"const weft::Scratch<{self.type}> {name}({elements});")

    # ---------------------------------------------------------------- a tile of rows

    def tile(self) -> None:
        line, chain = self.writer.line, self.chain
        if chain.sums.batch:
            line("const int64_t batch = tile / row_tiles;")
            self.places([self.axes[a] for a in chain.sums.batch], "batch", self.counts)
        line("const int64_t first_row = tile % row_tiles * rows;")
        line(f"const int last_row = int(std::min<int64_t>(rows, {factor(self.counts[chain.row])} - first_row)) - 1;")
        self.statements(tuple(self.let(v) for v in self.told if set(v.axes) <= {*chain.sums.batch}))
        self.values_of_rows()
        self.left_operands()
        self.begin_folds()
        column = self.axes[chain.column]
        ends = ("first_column", "end_of_columns") if chain.bounded else (
            self.printer.index(column.start, SUM), self.printer.index(column.stop, SUM)
        )  # fmt: skip
        with self.writer.block(f"for (int64_t first = {ends[0]}; first < {ends[1]}; first += columns)"):
            line(f"const int count = int(std::min<int64_t>(columns, {factor(ends[1])} - first));")
            if chain.bounded:
                line("int32_t begin[rows], end[rows];")
                line("bool edge = false;")
                with self.each_row(simd=True):
                    for which, bound in (("begin", "start"), ("end", "stop")):
                        line(f"{which}[w] = int32_t(std::clamp<int64_t>(column_{bound}[w] - first, 0, count));")
                    line("edge |= begin[w] > 0 || end[w] < count;")
                self.ask_pairs()
            for f in chain.scores.folds:
                self.multiply(chain.scores, f, "count", self.counts[chain.point])
            self.fold_columns()
            for f in chain.sums.folds:
                self.multiply(chain.sums, f, self.counts[chain.lane], "count")
        self.end_folds()
        self.write_rows()

    def ask_pairs(self) -> None:
        """Which columns rows have; by a condition, it may be that none has any."""
        line, given = self.writer.line, self.chain.given
        held = ""
        if given is not None:
            own = [v for v in self.needed((given,)) if v not in self.told]
            line("bool any = false;")
            with self.each_place([v for v in own if self.chain.row not in v.axes], {}, simd=False):  # it joins lanes
                self.statements(tuple(self.let(v) for v in own if self.chain.row in v.axes))
                line(f"const bool holds = {self.printer.value(given)};")
                line("held[c * rows + w] = holds;")
                line("any |= holds && c >= begin[w] && c < end[w];")
                line("edge |= !holds;")
            line("if (!any) continue;")
            held = " && held[c * rows + w]"
        line(f"const auto has_column = [&](const int64_t c, const int w) {{ return c >= begin[w] && c < end[w]{held}; }};")

    @contextmanager
    def each_row(self, *, simd: bool = False, few: bool = False) -> Iterator[None]:
        """What is written here is done for each row of a tile; those that are not there repeat the last one. few: not these."""
        if simd:
            self.writer.pragma("omp simd")
        with self.writer.block(f"for (int w = 0; {'w <= last_row' if few else 'w < rows'}; ++w)"):
            mark, row = self.writer.mark(), self.declare(self.chain.row)
            yield
            if self.writer.mentions(row, mark):
                self.writer.insert(mark, f"const int64_t {row} = first_row + {'w' if few else 'std::min(w, last_row)'};")

    @contextmanager
    def each_of(self, axis: str) -> Iterator[str]:
        """What is written here is done at each place of an axis, whose name it is given."""
        place = self.declare(axis)
        with self.writer.block(f"for (int64_t {place} = 0; {place} < {self.counts[axis]}; ++{place})"):
            yield place

    def values_of_rows(self) -> None:
        """What has an element for each row, and the columns that each has."""
        line, chain = self.writer.line, self.chain
        own = [v for v in self.told if chain.row in v.axes and set(v.axes) <= {*chain.sums.batch, chain.row}]
        names = {v.name: self.fresh.fresh(f"{v.name}_of_rows") for v in own}
        for v in own:
            line(f"{register_type(v.type)} {names[v.name]}[rows];")
        if chain.bounded:
            line("int64_t column_start[rows], column_stop[rows], first_column = INT64_MAX, end_of_columns = INT64_MIN;")
        if own or chain.bounded:
            with self.each_row():
                for v in own:
                    self.statements((self.let(v),))
                    line(f"{names[v.name]}[w] = {self.names[v.name]};")
                if chain.bounded:
                    axis = self.axes[chain.column]
                    line(f"column_start[w] = {self.printer.index(axis.start, SUM)};")
                    line(f"column_stop[w] = {self.printer.index(axis.stop, SUM)};")
                    with self.writer.block("if (column_start[w] < column_stop[w])"):
                        for array, d in chain.looked_at:
                            declared = self.function.array(array)
                            size = self.printer.index(declared.shape[d], SUM)
                            beyond = f"column_start[w] < 0 || column_stop[w] > {size}"
                            line(f"if ({beyond}) outside = {self.function.arrays.index(declared) + 1};")
                        line("first_column = std::min(first_column, column_start[w]);")
                        line("end_of_columns = std::max(end_of_columns, column_stop[w]);")
        if chain.looked_at:
            line("if (outside) continue;  // a subscript leaves an array")
        for name, lines in names.items():
            self.names[name] = f"{lines}[w]"

    def left_operands(self) -> None:
        line, chain = self.writer.line, self.chain
        for o in chain.scores.left:
            inner = [v for v in self.needed((o.value,)) if chain.point in v.axes]
            with self.each_row(), self.each_of(chain.point) as point:
                self.statements(tuple(map(self.let, inner)))
                line(f"{self.lines['left', o.value]}[{point} * rows + w] = {self.printer.value(o.value)};")

    def multiply(self, product: Products, fold: Fold, count: str, points: str) -> None:
        """The sums of a product of rows: of the columns that a tile goes through now, or over them."""
        line, chain, own = self.writer.line, self.chain, self.lines[fold.results[0]]
        ((left, right),) = product.terms(fold)
        lefts, rights = ({o.name: o for o in side} for side in (product.left, product.right))
        scores = product is chain.scores
        lines = self.lines["left" if scores else "part", lefts[left].value]
        pointer, step, stride = self.right_operand(product, rights[right])
        self.writer.cite(fold.location)
        if scores:
            line(f"std::fill_n(+{own}, count * rows, {self.type}(0));")
        given = f"+{own}, +{lines}, {pointer}, {count}, {points}, {step}, {stride}"
        whole = f"weft::multiply_rows<{self.type}>({given});"
        if scores or not chain.bounded:
            line(whole)
            return
        line(f"if (edge) weft::multiply_rows_within<{self.type}>({given}, has_column);")
        line(f"else {whole}")

    def plain(self, product: Products, o: Operand) -> tuple[Read, dict[str, int]] | None:
        """The read that an operand is, and which axis of its array each of its own is, if these are subscripts alone, and its
        elements what is multiplied.
        """
        read = self.made.get(o.value.name) if isinstance(o.value, Ref) else None
        if not isinstance(read, Read) or memory_type(self.function.array(read.array).dtype) != self.type:
            return None
        own, found = {product.columns[0], product.over[0]}, {}
        for axis, i in enumerate(read.index):
            if free_names(i) & own:
                if not isinstance(i, Ref) or i.name in found:
                    return None
                found[i.name] = axis
        return (read, found) if found.keys() == own else None

    def right_operand(self, product: Products, o: Operand) -> tuple[str, str, str]:
        """Where an operand is, of the columns that a tile goes through now; the steps from one result to the next, and from one
        point to the next.
        """
        chain = self.chain
        inner = chain.point if product is chain.scores else chain.lane
        found = self.plain(product, o)
        if found is not None:
            read, axes = found
            with self.spelled({chain.column: "first", inner: "0"}):
                pointer = self.address(read.array, tuple(ZERO if i == Ref(inner, INT64) else i for i in read.index))
            steps = [self.stride(read.array, axes[a]) for a in (product.columns[0], product.over[0])]
            return pointer, steps[0], steps[1]
        lines, column = self.lines["right", o.value], self.declare(chain.column)
        needed, count = self.needed((o.value,)), self.counts[inner]
        with self.writer.block("for (int c = 0; c < count; ++c)"):
            self.writer.line(f"const int64_t {column} = first + c;")
            self.statements(tuple(self.let(v) for v in needed if chain.column in v.axes and inner not in v.axes))
            self.writer.pragma("omp simd")
            with self.each_of(inner) as point:
                self.statements(tuple(self.let(v) for v in needed if inner in v.axes))
                self.writer.line(f"{lines}[c * {factor(count)} + {point}] = {self.printer.value(o.value)};")
        return (f"+{lines}", count, "1") if product is chain.scores else (f"+{lines}", "1", count)

    # ---------------------------------------------------------------- what rows fold

    def begin_folds(self) -> None:
        line, chain = self.writer.line, self.chain
        self.rows_own = {f.results[0]: self.fresh.fresh(f"{f.names[0]}_own") for f in (*chain.leading, *chain.following)}
        for f in (*chain.leading, *chain.following):
            line(f"{register_type(f.types[0])} {self.rows_own[f.results[0]]}[rows];")
            line(f"std::fill_n({self.rows_own[f.results[0]]}, rows, {self.algebra(f)}::identity());")
        for f in chain.sums.folds:
            line(f"std::fill_n(+{self.lines[f.results[0]]}, {factor(self.counts[chain.lane])} * rows, {self.type}(0));")

    def fold_columns(self) -> None:
        """Fold the columns that a tile goes through now, and make the left operands of the sums."""
        line, chain = self.writer.line, self.chain
        if not chain.bounded:
            self.fold_those_there("")
            return
        with self.writer.block("const auto fold = [&](const auto asks)", "};"):
            self.fold_those_there("asks")
        line("if (edge) fold(std::true_type());")
        line("else fold(std::false_type());")

    def fold_those_there(self, asks: str) -> None:
        line, chain = self.writer.line, self.chain
        lines = {n: f"{own}[c * rows + w]" for n, own in self.lines.items() if isinstance(n, str)}
        scores = {f.results[0]: lines[f.results[0]] for f in chain.scores.folds}
        kept = {v.name: lines[v.name] for v in self.kept}
        latest = {f.results[0]: self.fresh.fresh(f"{f.names[0]}_latest") for f in chain.leading}
        for f in chain.leading:
            line(f"{register_type(f.types[0])} {latest[f.results[0]]}[rows];")
            line(f"std::copy_n({self.rows_own[f.results[0]]}, rows, {latest[f.results[0]]});")
        if chain.leading:
            with self.each_place([v for v in self.early if chain.row not in v.axes], scores):
                self.inner_values(self.early, asks)
                for v in self.kept:
                    line(f"{kept[v.name]} = {self.names[v.name]};")
                for f in chain.leading:
                    self.take_in(f, f"{latest[f.results[0]]}[w]", asks)
        moved = {r.extremum for r in chain.repairs}
        if moved:
            line("// sums move with what they are relative to")
            now = {n: self.fresh.fresh(f"{self.made[n].names[0]}_reference") for n in moved}  # type: ignore[union-attr]
            for name in now.values():
                line(f"{self.type} {name}[rows];")
            with self.moving(chain.repairs):
                for f in chain.leading:
                    if f.results[0] in moved:
                        line(f"{now[f.results[0]]}[w] = {self.algebra(f)}::reference({latest[f.results[0]]}[w]);")
                self.bring({n: f"{self.rows_own[n]}[w]" for n in moved}, {n: f"{own}[w]" for n, own in now.items()})
            kept |= {n: f"{own}[w]" for n, own in now.items()}
        for f in chain.leading:
            line(f"std::copy_n({latest[f.results[0]]}, rows, {self.rows_own[f.results[0]]});")
        if not (chain.following or chain.sums.folds):
            return
        with self.each_place([v for v in self.late if chain.row not in v.axes], {**scores, **kept}):
            self.inner_values(self.late, asks)
            for f in chain.following:
                self.take_in(f, f"{self.rows_own[f.results[0]]}[w]", asks)
            for o in chain.sums.left:
                value = self.printer.value(o.value, TERNARY + 1)
                line(f"{self.lines['part', o.value]}[c * rows + w] = {f'has ? {value} : {self.type}(0)' if asks else value};")

    @contextmanager
    def each_place(
        self, of_columns: Sequence[Read | Map], spelled: Mapping[str, str], *, simd: bool = True
    ) -> Iterator[None]:
        """What is written here is done for each row and column. of_columns: values that are the same for all rows."""
        chain = self.chain
        with self.writer.block("for (int c = 0; c < count; ++c)"):
            mark, column = self.writer.mark(), self.declare(chain.column)
            self.statements(tuple(self.let(v) for v in of_columns if chain.column in v.axes))
            with self.each_row(simd=simd), self.spelled(spelled):
                yield
            if self.writer.mentions(column, mark):
                self.writer.insert(mark, f"const int64_t {column} = first + c;")

    def inner_values(self, values: Sequence[Read | Map], asks: str) -> None:
        """The values of a row and a column. Where some read memory, columns that a row does not have are left out."""
        inner = [v for v in values if self.chain.row in v.axes]
        if asks:
            self.writer.line(f"const bool has = !{asks} || has_column(c, w);")
            if any(isinstance(v, Read) for v in inner):
                for o in self.chain.sums.left if values is self.late else ():
                    self.writer.line(f"{self.lines['part', o.value]}[c * rows + w] = {self.type}(0);")
                self.writer.line("if (!has) continue;")
        self.statements(tuple(map(self.let, inner)))

    def take_in(self, f: Fold, own: str, asks: str) -> None:
        self.writer.cite(f.location)
        both = f"{self.algebra(f)}::combine({own}, {self.printer.value(f.parts[0])})"
        self.writer.line(f"{own} = {f'has ? {both} : {own}' if asks else both};")

    @contextmanager
    def moving(self, repairs: Sequence[Repair]) -> Iterator[None]:
        """What is written here brings sums to other extrema: those of rows at once, those of lanes by factors that stay."""
        lanes = {f.results[0] for f in self.chain.sums.folds}
        self.factors_of = {r.sum: self.fresh.fresh("factor") for r in repairs if r.sum in lanes}
        for name in self.factors_of.values():
            self.writer.line(f"{self.type} {name}[rows];")
        with self.each_row(simd=True):
            yield
        for sum_, name in self.factors_of.items():
            with self.each_of(self.chain.lane) as lane, self.each_row(simd=True):
                self.writer.line(f"{self.lines[sum_]}[{lane} * rows + w] *= {name}[w];")

    def bring(self, old: Mapping[str, str], new: Mapping[str, str], *, settled: bool = False) -> None:
        """Multiply sums of a row by what brings them from some extrema to others. settled: which stay as they are."""
        for r in self.chain.repairs:
            fold = next(f for f in self.chain.leading if f.results[0] == r.extremum)
            self.instead[r.extremum] = new[r.extremum]
            if settled and r.guarded:
                self.instead[r.extremum] = self.printer.value(r.guard, TERNARY + 1)
            self.instead[before(r.extremum)] = f"{self.algebra(fold)}::reference({old[r.extremum]})"
            text = self.printer.value(r.factor, PRODUCT)
            if r.sum in self.rows_own:
                self.writer.line(f"{self.rows_own[r.sum]}[w] *= {text};")
            else:
                self.writer.line(f"{self.factors_of[r.sum]}[w] = {text};")
            del self.instead[before(r.extremum)], self.instead[r.extremum]

    def end_folds(self) -> None:
        """Sums are relative to the last extrema; where a row has no columns, to what they began with."""
        chain, line = self.chain, self.writer.line
        moved = {r.extremum: f"{self.rows_own[r.extremum]}[w]" for r in chain.repairs}
        if moved:
            with self.moving(chain.repairs):
                last = dict(moved)
                for f in chain.leading if chain.bounded else ():
                    if f.results[0] in moved:
                        own, name = moved[f.results[0]], self.fresh.fresh(f"{f.names[0]}_last")
                        last[f.results[0]] = name
                        any_ = "column_start[w] < column_stop[w]"
                        line(f"const {self.type} {name} = {any_} ? {own} : {self.algebra(f)}::reference({own});")
                self.bring(moved, last, settled=True)
        for name, own in self.rows_own.items():
            self.names[name] = f"{own}[w]"

    # ---------------------------------------------------------------- results

    def write_rows(self) -> None:
        chain, last = self.chain, self.chain.sums.sweeps.last
        with self.each_row(few=True):
            if chain.writes:
                self.write_all(chain.writes, {})
            if last:
                lane = self.declare(chain.lane)
                own = {f.results[0]: f"{self.lines[f.results[0]]}[{lane} * rows + w]" for f in chain.sums.folds}
                needed = self.waiting(last)
                self.statements(tuple(self.let(v) for v in needed if chain.lane not in v.axes))
                with self.writer.block(f"for (int64_t {lane} = 0; {lane} < {self.counts[chain.lane]}; ++{lane})"):
                    self.write_all(last, own)

    def write_all(self, writes: Sequence[Write], spelled: Mapping[str, str]) -> None:
        lanes = {*self.chain.sums.columns} if spelled else set()
        with self.spelled(spelled):
            self.statements(tuple(self.let(v) for v in self.waiting(writes) if not spelled or lanes & {*v.axes}))
            for w in writes:
                self.write(w)

    def waiting(self, writes: Sequence[Write]) -> list[Read | Map]:
        """The values that writes need and that are not there before rows are folded."""
        return [v for v in self.needed(e for w in writes for e in uses_of_write(w)) if v not in self.told]

    # ---------------------------------------------------------------- values

    def algebra(self, f: Fold) -> str:
        return algebra_type(f.algebra, register_type(f.types[0]))

    @functools.cached_property
    def told(self) -> list[Read | Map]:
        """The values that no fold is needed for, and that are of a row, or of many: they are there before it is folded."""
        chain = self.chain
        exprs = [e for f in (*chain.leading, *chain.following) for e in f.parts]
        exprs += [o.value for p in (chain.scores, chain.sums) for o in (*p.left, *p.right)]
        exprs += [e for w in (*chain.writes, *chain.sums.sweeps.last) for e in uses_of_write(w)]
        exprs += [e for end in (self.axes[chain.column],) for e in (end.start, end.stop)]
        exprs += [chain.given] if chain.given is not None else []
        own = {*chain.sums.batch, chain.row}
        return [v for v in self.needed(exprs) if set(v.axes) <= own and not self.waits(v)]

    def waits(self, value: Read | Map) -> bool:
        """Whether a fold is needed for a value."""
        names = {n for e in uses(value) for n in free_names(e)}
        return bool(names & self.leaves) or any(self.waits(self.made[n]) for n in names & self.made.keys())  # type: ignore[arg-type]

    @functools.cached_property
    def early(self) -> list[Read | Map]:
        """The values that leading folds are made of."""
        return [v for v in self.needed(e for f in self.chain.leading for e in f.parts) if v not in self.told]

    @functools.cached_property
    def late(self) -> list[Read | Map]:
        """The values that are made where leading folds are known."""
        exprs = [e for f in self.chain.following for e in f.parts] + [o.value for o in self.chain.sums.left]
        kept = {v.name for v in self.kept}
        self.leaves |= kept
        found = [v for v in self.needed(exprs) if v not in self.told]
        self.leaves -= kept
        return found

    @functools.cached_property
    def kept(self) -> list[Read | Map]:
        """The values of a row and a column that are made before leading folds are known and needed after."""
        exprs = [e for f in self.chain.following for e in f.parts] + [o.value for o in self.chain.sums.left]
        used = {n for v in self.needed(exprs) if v not in self.early for e in uses(v) for n in free_names(e)}
        used |= {n for e in exprs for n in free_names(e)}
        return [v for v in self.early if v.name in used and self.chain.row in v.axes and self.chain.column in v.axes]
