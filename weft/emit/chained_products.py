"""Chained products as CUDA C++ (sm_90a): scores stay in the registers of the warpgroup that has their rows.

A warpgroup multiplies the rows that it has by the columns of a turn, makes of the scores what their rows fold, and multiplies
it by what the columns have of the sums: the scores of a thread are its part of the left operand where they are. One warp more
brings the tiles of all turns, as their places become free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Self

from weft.emit import entries
from weft.emit.algebras import algebra_type
from weft.emit.column_places import ColumnPrinter
from weft.emit.cpp_body import factor
from weft.emit.dependent import Dependence, dependences, include
from weft.emit.expressions import AND, PRODUCT, SUM, TERNARY, register_type
from weft.emit.matrix_products import MatrixEntry
from weft.emit.names import Names, kernel_entry, words
from weft.emit.powers import POWER, Powers
from weft.emit.rough import rough_chain
from weft.emit.text import Writer
from weft.emit.values import ZERO, deciding
from weft.graph.chains import Chain
from weft.graph.running import Repair, before
from weft.graph.steady import counts_from_one
from weft.graph.tile import Fold, Map, Read, uses, uses_of_write
from weft.loops.ir import Expr, Function, Load, Op, Ref, Round, free_names, trapping, walk_expr
from weft.loops.schedule import Nest
from weft.loops.types import BOOL, FLOAT32
from weft.plan.arguments import Facts
from weft.plan.chain import FRAGMENT_ROWS, WARPGROUP, Brought, ChainPlan, brought
from weft.plan.product import MATRIX_POINTS, operand_read

_OWN = """
    outside here memory u v h g place turn turns batch edge fold_turn first_row first_column own_row own_column
    first_own_row first_own_column first_turn last_row near_row far_row whole_turns own_turns first_own_turn all_turns
    first_whole_turn column_start column_stop start_of stop_of start_of_tile stop_of_tile start_of_group stop_of_group
    start_of_row stop_of_row asking has point told begin end any last phase leave_turn rows_empty tile tiles
    pairs pair row_tile any_turn rows multiply_scores multiply_sums rows_full scores_full scores_empty sums_full sums_empty
    before power slope lost unit rising factor_of_scores part parts part_run item row_stop first_place place_of_row
    infinite
"""
_PAIRS = 8  # columns that a quad of threads has together, two each


def emit(function: Function, nest: Nest, chain: Chain, plan: ChainPlan, facts: Facts) -> str:
    """The kernel's translation unit. Its entry takes the slots of `weft.plan.arguments`, and the maps of its boxes."""
    from weft.emit.chained_parts import ChainedPartsEntry

    own = Nest(nest.name, nest.axes, trapping(nest.body), nest.verdicts)
    writer = Writer()
    within = ["weft/within.cuh"] if chain.bounded else ["weft/barrier.cuh"]
    within += ["weft/bounds.cuh"] if chain.told_by_rows else []
    for header in sorted(("weft/matrix_tile.cuh", "weft/power.cuh", "weft/registers.cuh", "weft/team.cuh", *within)):
        writer.line(f'#include "{header}"')
    names = entries.of_chain(nest, plan)
    launches = dependences([number > 0 for number in range(len(names))])
    include(writer, launches)
    rough = rough_chain(chain, function)
    for name, launch, kind in zip(names, launches, (ChainEntry, ChainedPartsEntry), strict=False):
        writer.line()
        kind.of(function, own, facts, writer, rough, plan, launch).emit(name)
    return writer.text()


@dataclass
class ChainEntry(MatrixEntry):
    """The one launch of a plan. Its products are the sums, which end it."""

    chain: Chain = None  # type: ignore[assignment]
    whole_plan: ChainPlan = None  # type: ignore[assignment]

    @classmethod
    def of(
        cls, function: Function, nest: Nest, facts: Facts, writer: Writer, chain: Chain, plan: ChainPlan, launch: Dependence
    ) -> Self:
        varies = deciding(chain.axes, chain.values)
        large = varies | {s.name for s in function.scalars}
        return cls(
            function, nest, facts, writer, Names(frozenset({*words(_OWN), kernel_entry(nest.name)})), {}, {}, varies, large,
            axes=chain.axes, values=chain.values, products=chain.sums, plan=plan.sums, launch=launch, chain=chain,
            whole_plan=plan,
        )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        self.printer = ColumnPrinter(**{f.name: getattr(self.printer, f.name) for f in fields(self.printer)})

    def shape(self) -> str:
        (rows, lanes, columns), chain = self.plan.tile, self.chain
        own = f"{rows} x {lanes} of {chain.row} and {chain.lane}" if chain.sums.folds else f"{rows} of {chain.row}"
        return f"a block has {own}, a warpgroup {FRAGMENT_ROWS} of its rows; a turn takes {columns} of {chain.column}"

    def bounds(self) -> str:
        return f"__launch_bounds__({self.whole_plan.threads}, 1)"

    def parameters(self) -> list[str]:
        self.tiles_of = brought(self.whole_plan, self.chain)
        bases = [b.operand.name if "operand." not in b.operand.name else "right" for b in self.tiles_of]
        self.tile_names = [self.fresh.fresh(f"{base}_tile") for base in bases]
        self.maps = [self.fresh.fresh(f"{base}_map") for base in bases]
        maps = [f"const __grid_constant__ weft::TensorMap {name}" for name in self.maps]
        return [*self.parameters_of_slots(), *self.parameters_of_parts(), *maps]

    def parameters_of_slots(self) -> list[str]:
        return super(MatrixEntry, self).parameters()

    def parameters_of_parts(self) -> list[str]:
        """Where parts of rows are left."""
        if self.whole_plan.parts == 1:
            return []
        folds = (*self.chain.leading, *self.chain.following, *self.chain.sums.folds)
        self.left_in = {f.results[0]: self.fresh.fresh(f"{f.names[0]}_parts") for f in folds}
        return [*(f"{register_type(f.types[0])}* {self.left_in[f.results[0]]}" for f in folds), "const int64_t parts"]

    # ---------------------------------------------------------------- the kernel

    def body(self) -> None:
        line, own = self.writer.line, self.whole_plan.warpgroups * WARPGROUP
        self.sizes_of_call()
        self.number_of_tiles()
        self.rings()
        bring, take = self.whole_plan.registers
        with self.writer.block(f"if (threadIdx.x >= {own})"):
            line("// one of these threads brings the tiles of all turns, as their places become free")
            if bring != take:
                line(f"weft::decrease_registers<{take}>();")
            line(f"if (threadIdx.x > {own + 31 if self.chain.asks_rows else own}) return;")
            self.bring_all(f"if (threadIdx.x == {own})" if self.chain.asks_rows else "")
            line("return;")
        if bring != take:
            line(f"weft::increase_registers<{bring}>();")
        self.places_of_thread()
        if self.whole_plan.warpgroups > 1:
            line(f"if ({self.group} == {self.whole_plan.warpgroups - 1}) weft::barrier_arrive(1, 256);  // the first may begin")
        if self.chain.bounded and self.chain.sums.folds:
            line(f"__shared__ int32_t told[{self.whole_plan.warpgroups}][4];")
        self.begin_places()
        with self.each_tile():
            self.begin_folds()
            self.begin_totals()
            self.fold_lambda()
            self.go_through_columns()
            self.end_folds()
            if self.whole_plan.parts > 1:
                self.leave_parts()
            else:
                if self.chain.sums.folds:
                    self.divisors()
                    self.end(self.results)
                self.write_rows()
        if self.whole_plan.warpgroups > 1:
            line(f"if ({self.group} == 0) weft::barrier_sync(1, 256);  // what the last one has handed over")

    def sizes_of_call(self) -> None:
        line, chain, rows = self.writer.line, self.chain, str(self.plan.tile[0])
        line(f"// {self.shape()}")
        for axis in (*chain.sums.batch, chain.row, *chain.sums.columns, *([] if chain.bounded else [chain.column])):
            self.counts[axis] = self.span(self.axes[axis], f"{axis}_count")
        self.wholes["rows"] = self.counts[chain.row]
        if chain.sums.folds:
            self.wholes["columns"] = self.counts[chain.lane]
        self.firsts = {"rows": "first_row", "columns": "0"}
        tiles = self.squares["rows"] = self.fresh.fresh("row_tiles")
        if chain.together is not None:
            rows = self.fresh.fresh("rows_together")
            line(f"const int32_t {rows} = {self.printer.index(chain.together)};  // of a tile, which have columns in common")
        self.row_step = rows
        more = f"{int(rows) - 1}" if rows.isdigit() else f"{rows} - 1"
        line(f"const int32_t {tiles} = ({factor(self.counts[chain.row])} + {more}) / {rows};")

    def number_of_tiles(self) -> None:
        """How many tiles of rows there are, or parts of these."""
        line, tiles = self.writer.line, self.squares["rows"]
        each = tiles
        if self.whole_plan.paired:
            line(f"const int32_t pairs = ({tiles} + 1) / 2;  // of tiles, the n-th and the n-th last: as many columns")
            each = "2 * pairs"
        batch = "".join(f" * {self.counts[a]}" for a in self.chain.sums.batch)
        parts = f" * {self.whole_plan.parts}" if self.whole_plan.parts > 1 else ""
        line(f"const int32_t tiles = {each}{batch}{parts};")

    @contextmanager
    def each_tile(self) -> Iterator[None]:
        """What is written here is done for each tile of rows of a block, at its place."""
        paired = self.whole_plan.paired
        first, step = ("2 * blockIdx.x", "tile % 2 ? 2 * gridDim.x - 1 : 1") if paired else ("blockIdx.x", "gridDim.x")
        with self.writer.block(f"for (int32_t tile = {first}; tile < tiles; tile += {step})"):
            self.place_of_tile(f"tile / {self.whole_plan.parts}" if self.whole_plan.parts > 1 else "tile")
            self.turns_of_tile()
            yield

    def place_of_tile(self, number: str) -> None:
        """The first row of a tile of this number, and of which of the batch it is."""
        line, chain, tiles, paired = self.writer.line, self.chain, self.squares["rows"], self.whole_plan.paired
        each = "(2 * pairs)" if paired else tiles
        if chain.sums.batch:
            line(f"const int32_t batch = {number} / {each};")
            self.places([self.axes[a] for a in chain.sums.batch], "batch", self.counts)
            number = f"{number} % {each}"
        if paired:
            line(f"const int32_t pair = {number} / 2, row_tile = tile % 2 ? pair : {tiles} - 1 - pair;")
            line(f"if (tile % 2 && 2 * pair + 1 == {tiles}) continue;  // the one in the middle is its own pair")
        elif chain.stop == 1 and not chain.told_by_rows:
            line(f"const int32_t row_tile = {tiles} - 1 - {number};  // the rows with the most columns first")
        else:
            line(f"const int32_t row_tile = {number};")
        line(f"const int64_t first_row = int64_t(row_tile) * {self.row_step};")
        if chain.together is not None:
            line(f"const int64_t row_stop = weft::minimum<int64_t>(first_row + {self.row_step}, {self.counts[chain.row]});")
            self.wholes["rows"] = "row_stop"

    def turns_of_tile(self) -> None:
        """The turns that some row of a tile has, or those of a part of them."""
        line, chain, columns, parts = self.writer.line, self.chain, self.plan.tile[2], self.whole_plan.parts
        begin, end = "0", factor(self.counts.get(chain.column, ""))
        turns = f"({end} + {columns - 1}) / {columns}"
        if chain.bounded:
            rows = self.wholes["rows"]
            self.statements(tuple(self.let(v) for v in self.of_bounds if chain.row not in v.axes))
            line(f"const int64_t last_row = weft::minimum<int64_t>(first_row + {self.plan.tile[0]}, {rows}) - 1;")
            self.bounds_of_each()
            self.bounds_of_rows("tile", "first_row", "last_row")
            begin = self.bound("start", "tile", least=True)
            begin = f"({begin}) / {columns}" if begin != "0" else "0"
            end = self.bound("stop", "tile", least=False)
            turns = f"weft::maximum<int64_t>({end} + {columns - 1}, 0) / {columns}"
        if parts == 1:
            line(f"const int32_t first_turn = {begin};")
            line(f"const int32_t turns = {turns};")
            return
        line(f"const int32_t begin = {begin}, all_turns = weft::maximum<int32_t>({turns} - begin, 0);")
        line(f"const int32_t part = tile % {parts};  // of {parts}")
        line(f"const int32_t first_turn = begin + all_turns * part / {parts};")
        line(f"const int32_t turns = begin + all_turns * (part + 1) / {parts};")

    @property
    def of_bounds(self) -> list[Read | Map]:
        """The values that the bounds of the columns are made of."""
        axis = self.axes[self.chain.column]
        return list(self.needed((axis.start, axis.stop)))

    def places_of_thread(self) -> None:
        if self.chain.sums.folds:
            super().places_of_thread()
            return
        self.writer.line(f"const int32_t own_row = {self.group} * {FRAGMENT_ROWS};  // of the warpgroup")
        self.writer.line("const int32_t first_own_row = own_row + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;")

    @property
    def which(self) -> tuple[str, ...]:
        """The products whose columns come to shared memory in each turn."""
        return ("scores", "sums") if self.chain.sums.folds else ("scores",)

    def begin_places(self) -> None:
        """Where in the rings a thread is, over all turns of all tiles."""
        self.writer.line("int32_t place = 0;")
        self.writer.line("uint32_t phase = 0;  // how often all places have been taken")
        self.writer.line("uint32_t rows = 0;  // of so many tiles so far")

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
        with self.spelled({chain.row: first if (direction >= 0) == least else last}):
            return self.printer.index(e, SUM)

    def bound_of_row(self, which: str) -> str:
        """A bound of the u-th row of a thread."""
        axis = self.axes[self.chain.column]
        asked = which in self.each_asked
        return f"{which}_of_row[u]" if asked else self.printer.index(axis.start if which == "start" else axis.stop, SUM)

    def rings(self) -> None:
        line, offset, stages = self.writer.line, 0, self.plan.stages
        line(f"// {stages} turns have a place in shared memory, and the rows of {self.whole_plan.row_places} tiles")
        line("extern __shared__ __align__(1024) unsigned char memory[];")
        for b, name in zip(self.tiles_of, self.tile_names, strict=True):
            along = "true" if b.along_points else "false"
            points = f", {b.points}" if b.points != MATRIX_POINTS else ""
            type_ = f"weft::MatrixTile<weft::{self.plan.type}, {b.rows}, {along}{points}>"
            if b.tiles > 1:
                line(f"auto* const {name} = reinterpret_cast<{type_}(*)[{b.tiles}]>(memory{f' + {offset}' if offset else ''});")
            else:
                line(f"auto* const {name} = reinterpret_cast<{type_}*>(memory{f' + {offset}' if offset else ''});")
            offset += b.bytes * (self.whole_plan.row_places if b.once else stages)
        rings = ", ".join(f"{which}_{state}[{stages}]" for which in self.which for state in ("full", "empty"))
        rows = self.whole_plan.row_places
        line(f"__shared__ weft::Mbarrier rows_full[{rows}], rows_empty[{rows}], {rings};")
        with self.writer.block("if (threadIdx.x == 0)"):
            with self.writer.block(f"for (int32_t place = 0; place < {rows}; ++place)"):
                line("rows_full[place].init(1);")
                line(f"rows_empty[place].init({self.whole_plan.warpgroups});")
            with self.writer.block(f"for (int32_t place = 0; place < {stages}; ++place)"):
                for which in self.which:
                    line(f"{which}_full[place].init(1);")
                    line(f"{which}_empty[place].init({self.whole_plan.warpgroups});")
            line("weft::fence_mbarrier_init();")
        line("__syncthreads();")

    def bring_all(self, alone: str) -> None:
        """alone: which thread does, where all of a warp ask rows."""
        groups: dict[str, list[int]] = {"rows": [], "scores": [], "sums": []}
        for k, b in enumerate(self.tiles_of):
            groups["rows" if b.once else "scores" if b.product is self.chain.scores else "sums"].append(k)
        size = {which: sum(self.tiles_of[k].bytes for k in own) for which, own in groups.items()}
        self.begin_places()
        with self.each_tile():
            self.look()
            with self.writer.block(alone) if alone else nullcontext():
                self.bring_turns(groups, size)

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
            return
        self.look_at(self.printer.index(axis.start, SUM), self.bound("stop", "tile", least=False))

    def look_at(self, start: str, stop: str) -> None:
        for array, d in self.chain.looked_at:
            size = self.printer.index(self.function.array(array).shape[d], SUM)
            outside = f"{stop} > {size}" if start == "0" else f"({start} < 0 || {stop} > {size})"
            self.writer.line(f"if ({start} < {stop} && {outside}) __trap();  // a subscript leaves {array}")

    def bring_turns(self, groups: Mapping[str, list[int]], size: Mapping[str, int]) -> None:
        line, columns = self.writer.line, self.plan.tile[2]
        with self.writer.block("for (int32_t turn = first_turn; turn < turns; ++turn)"):
            for which in self.which:
                line(f"{which}_empty[place].wait(phase ^ 1);")
                line(f"{which}_full[place].arrive_expect({size[which]});")
                for k in groups[which]:
                    self.bring_boxes(k, f"{which}_full[place]", "place", f"turn * {columns}")
            line(self.next_place)
            line("if (turn > first_turn) continue;")
            line("// the rows of a tile come after its first columns, which need not wait for those of the tile before")
            line(f"rows_empty[{self.rows_place}].wait({self.rows_phase} ^ 1);")
            line(f"rows_full[{self.rows_place}].arrive_expect({size['rows']});")
            for k in groups["rows"]:
                self.bring_boxes(k, f"rows_full[{self.rows_place}]", self.rows_place, "first_row")
            line("++rows;")

    @property
    def next_place(self) -> str:
        return f"if (++place == {self.plan.stages}) place = 0, phase ^= 1;"

    @property
    def rows_place(self) -> str:
        return f"rows % {self.whole_plan.row_places}" if self.whole_plan.row_places > 1 else "0"

    @property
    def rows_phase(self) -> str:
        return f"(rows / {self.whole_plan.row_places} % 2)" if self.whole_plan.row_places > 1 else "(rows % 2)"

    def bring_boxes(self, k: int, barrier: str, place: str, first: str) -> None:
        """The boxes of the k-th operand's tiles. first: the first row, or the first column."""
        b, name, map_ = self.tiles_of[k], self.tile_names[k], self.maps[k]
        read = operand_read(b.product, b.operand)
        assert read is not None
        axes = {b.product.rows[0] if b.once else b.product.columns[0], b.product.over[0]}
        with self.spelled({self.chain.row: "first_row"}):
            rest = [f"int({self.printer.index(i)})" for i in reversed(read.index) if not free_names(i) & axes]
        self.writer.cite(read.location)
        of_sums = b.product is self.chain.sums  # whose points are the columns
        for t in range(b.tiles):
            tile = self.tile_at(name, b, place, str(t))
            for begin in range(0, b.rows, b.rows if b.along_points else MATRIX_POINTS):
                point, row = (_plus(first, t * b.points), str(begin)) if of_sums else (str(t * b.points), _plus(first, begin))
                pair = [point, f"int({row})" if row.startswith("first") else row]
                pair = pair if b.along_points else pair[::-1]
                element = f"{tile}.element{f' + {begin * b.points}' if begin else ''}"
                self.writer.line(f"weft::tensor_load({element}, {map_}, {barrier}, {', '.join([*pair, *rest])});")

    def tile_at(self, name: str, b: Brought, place: str, t: str) -> str:
        return f"{name}[{place}]" if b.tiles == 1 else f"{name}[{place}][{t}]"

    # ---------------------------------------------------------------- scores and sums

    def go_through_columns(self) -> None:
        """All turns of a warpgroup. The sums of a turn are multiplied with the scores of the next one, so that warpgroups take
        turns at the tensor cores: one has them while others make what they multiply next.
        """
        line, chain = self.writer.line, self.chain
        before = chain.bounded and self.axes[chain.column].start != ZERO
        edge = f"turn >= whole_turns{' || turn < first_whole_turn' if before else ''}"
        edge += " || asking" if chain.given is not None else ""
        self.product_lambdas()
        self.turns_of_warpgroup()
        line("int32_t turn = first_turn;")
        if chain.bounded:
            line("const bool any_turn = first_turn < turns;")
        line(f"{'if (any_turn) ' if chain.bounded else ''}rows_full[{self.rows_place}].wait{self.rows_phase};")
        if chain.bounded:
            with self.writer.block("const auto leave_turn = [&]", "};"):
                line("// no row of the warpgroup has any of these columns")
                for which in self.which:
                    line(f"{which}_full[place].wait(phase);")
                    line(_done(which, "place"))
                self.take_turn()
                self.hand_over()
                line(self.next_place)
            if before:
                line("for (; turn < first_own_turn && turn < turns; ++turn) leave_turn();")
        if not self.whole_plan.overlapped:
            self.take_turns_alone(edge)
        else:
            self.overlap_turns(edge)
        if chain.bounded:
            line("for (; turn < turns; ++turn) leave_turn();")

    def take_turns_alone(self, edge: str) -> None:
        """Turns one after another, whose sums are multiplied before the scores of the next one."""
        line, chain, sums = self.writer.line, self.chain, self.accumulators()
        with self.writer.block(f"for (; turn < {'own_turns' if chain.bounded else 'turns'}; ++turn)"):
            line("scores_full[place].wait(phase);")
            self.take_turn()
            self.start()
            line(_done("scores", "place"))
            line(f"const bool edge = {edge};")
            self.fold_at_edges()
            if sums:
                line("sums_full[place].wait(phase);")
                if chain.bounded:
                    with self.within(f"edge && {self.any_infinite('place')}", "turn", "place"):
                        pass
                with self.writer.block("else") if chain.bounded else nullcontext():
                    line("multiply_sums(place);")
                    line("weft::wgmma_commit();")
                    line(f"weft::wgmma_wait<0>({', '.join(sums)});")
                line(_done("sums", "place"))
            line(self.next_place)
        with self.writer.block("if (any_turn)") if chain.bounded else nullcontext():
            self.leave_rows()

    def fold_at_edges(self) -> None:
        """What is made of a turn: where columns that rows do not have need be left out, there are two texts of it."""
        if self.masked:
            self.writer.line("fold_turn(turn, edge);")
        else:
            self.writer.line("if (edge) fold_turn(turn, true);")
            self.writer.line("else fold_turn(turn, false);")

    def overlap_turns(self, edge: str) -> None:
        """Turns whose sums are multiplied together with the scores of the next one."""
        line, chain, sums = self.writer.line, self.chain, self.accumulators()
        with self.writer.block("if (turn < own_turns)") if chain.bounded else nullcontext():
            line("scores_full[place].wait(phase);")
            self.take_turn()
            self.start()
            if chain.bounded:
                line("bool edge;")
            with self.writer.block("while (true)"):
                line(_done("scores", "place"))
                line(f"{'' if chain.bounded else 'const bool '}edge = {edge};")
                self.fold_at_edges()
                line(f"if (++turn == {'own_turns' if chain.bounded else 'turns'}) break;")
                line("const int32_t last = place;")
                line("sums_full[last].wait(phase);")
                if chain.bounded:
                    line(f"const bool infinite = edge && {self.any_infinite('last')};")
                line(self.next_place)
                line("scores_full[place].wait(phase);")
                self.take_turn()
                if chain.bounded:
                    with self.within("infinite", "turn - 1", "last"):
                        self.start()
                with self.writer.block("else") if chain.bounded else nullcontext():
                    self.start("last")
                line(_done("sums", "last"))
            self.leave_rows()
            line("sums_full[place].wait(phase);")
            if self.apart:
                with self.writer.block("if (edge)"):
                    self.multiply_apart()
            elif chain.bounded:
                with self.within(f"edge && {self.any_infinite('place')}", "turn - 1", "place"):
                    pass
            with self.writer.block("else") if chain.bounded else nullcontext():
                line("multiply_sums(place);")
                line("weft::wgmma_commit();")
                line(f"weft::wgmma_wait<0>({', '.join(sums)});")
            line(_done("sums", "place"))
            line(self.next_place)
        if chain.bounded:
            with self.writer.block("else if (any_turn)"):
                self.leave_rows()

    @property
    def apart(self) -> bool:
        """Whether the sums of a last turn, in which rows lack columns, have room where the scores have been."""
        chain, (_, lanes, columns) = self.chain, self.plan.tile
        return chain.bounded and len(chain.scores.folds) == 1 and len(chain.sums.folds) * lanes <= columns

    def multiply_apart(self) -> None:
        """The sums of a last turn by themselves, which tell whether there was an infinity."""
        line, chain, lanes = self.writer.line, self.chain, self.plan.tile[1]
        own = {f.results[0]: self.fresh.fresh(f"{f.names[0]}_last") for f in chain.sums.folds}
        line(f"float {', '.join(f'{name}[{lanes // 2}]' for name in own.values())};")
        self.multiply(chain.sums, [*own.values()], fresh=True)
        line("weft::wgmma_commit();")
        line(f"weft::wgmma_wait<0>({', '.join(own.values())});")
        finite = " && ".join(f"weft::all_finite({name})" for name in own.values())
        with self.writer.block(f"if (__all_sync(0xffffffffu, {finite}))"):
            totals = [f"{self.totals[result]}[0][h] += {name}[h];" for result, name in own.items()]
            self.unrolled([f"for (int32_t h = 0; h < {lanes // 2}; ++h)"], *totals)
        with self.writer.block("else"):
            self.multiply_within("turn - 1", "place")
        line(f"weft::barrier_sync({self.barrier_of_group}, 128);  // all have read the tiles")

    @property
    def barrier_of_group(self) -> str:
        return f"{1 + self.whole_plan.warpgroups} + {self.group}"

    def leave_rows(self) -> None:
        self.writer.line(_done("rows", self.rows_place))
        self.writer.line("++rows;")

    def start(self, sums: str = "") -> None:
        """The products of a turn, until they are done: sums of the turn before, where these are wanted, and scores. The tensor
        cores are handed over while scores are under way: earlier, two warpgroups would share them, and wait for them together.
        """
        line = self.writer.line
        if sums:
            line(f"multiply_sums({sums});")
            line("weft::wgmma_commit();")
        line("multiply_scores(place);")
        line("weft::wgmma_commit();")
        if sums:
            line(f"weft::wgmma_wait<1>({', '.join(self.accumulators())});")
        self.hand_over()
        line(f"weft::wgmma_wait<0>({', '.join(self.scores.values())});")

    @property
    def group(self) -> str:
        return "threadIdx.x / 128"

    def take_turn(self) -> None:
        if self.whole_plan.warpgroups > 1:
            self.writer.line(f"weft::barrier_sync(1 + {self.group}, 256);")

    def hand_over(self) -> None:
        """The next warpgroup may have the tensor cores."""
        count = self.whole_plan.warpgroups
        if count > 1:
            self.writer.line(f"weft::barrier_arrive({self.group} == {count - 1} ? 1 : 2 + {self.group}, 256);")

    def turns_of_warpgroup(self) -> None:
        """The turns in which all rows of a warpgroup have all columns, and, where rows have some alone, those in which any has
        any.
        """
        line, chain, columns = self.writer.line, self.chain, self.plan.tile[2]
        axis, rows = self.axes[chain.column], self.wholes["rows"]
        stop = self.counts.get(chain.column, "")
        if chain.bounded:
            line(f"const int64_t near_row = weft::minimum<int64_t>(first_row + own_row, {rows} - 1);")
            line(f"const int64_t far_row = weft::minimum<int64_t>(near_row + {FRAGMENT_ROWS}, {rows}) - 1;")
            self.bounds_of_rows("group", "near_row", "far_row")
            stop = self.bound("stop", "group", least=True)
        whole = f"({stop}) / {columns}" if " " in stop else f"{stop} / {columns}"
        line(f"const int32_t whole_turns = {whole};  // in which all rows have all columns")
        if not chain.bounded:
            return
        most = self.bound("stop", "group", least=False)
        own = f"({most} + {columns - 1}) / {columns}"
        own = f"weft::minimum<int64_t>({own}, turns)" if self.whole_plan.parts > 1 else own
        line(f"const int32_t own_turns = {own};  // in which some row has some")
        if axis.start != ZERO:
            ends = [self.bound("start", "group", least) for least in (True, False)]
            line(f"const int32_t first_own_turn = ({ends[0]}) / {columns};")
            line(f"const int32_t first_whole_turn = ({ends[1]} + {columns - 1}) / {columns};")

    def any_infinite(self, place: str) -> str:
        """Whether the other operands of sums have an infinity, as all threads of a warpgroup are told."""
        infinite = [f"weft::any_infinite<{self.tiles_of[k].tiles}>({self.tiles_at(k, place)})" for k in self.of_sums()]
        return f"weft::any_of_warpgroup({' || '.join(infinite)}, told[{self.group}], {self.barrier_of_group})"

    def of_sums(self) -> list[int]:
        return [self.pair(f, self.chain.sums)[1] for f in self.chain.sums.folds]

    def tiles_at(self, k: int, place: str) -> str:
        return f"{self.tile_names[k]}{f'[{place}]' if self.tiles_of[k].tiles > 1 else f' + {place}'}"

    @contextmanager
    def within(self, condition: str, turn: str, place: str) -> Iterator[None]:
        """Where columns that a row does not have hold an infinity, sums of those that it has; and what is written here."""
        with self.writer.block(f"if ({condition})"):
            self.multiply_within(turn, place)
            self.writer.line(f"weft::barrier_sync({self.barrier_of_group}, 128);  // all have read the tiles")
            yield

    def multiply_within(self, turn: str, place: str) -> None:
        line, chain, columns = self.writer.line, self.chain, self.plan.tile[2]
        line("// 0 times an infinity that a row does not have is none of its: these products leave it out")
        line("int32_t begin[2], end[2];")
        with self.writer.block("for (int32_t u = 0; u < 2; ++u)"):
            row = self.declare(chain.row)
            line(f"const int64_t {row} = first_row + first_own_row + u * 8;")
            for name, which in (("begin", "start"), ("end", "stop")):
                near = f"weft::maximum<int64_t>({self.bound_of_row(which)} - ({turn}) * {columns}, 0)"
                line(f"{name}[u] = weft::minimum<int64_t>({near}, {columns});")
        if chain.given is not None:
            with self.writer.block("const auto has = [&](const int32_t u, const int32_t point) WEFT_INLINE", "};"):
                row, column = self.declare(chain.row), self.declare(chain.column)
                line(f"const int64_t {row} = weft::minimum<int64_t>(first_row + first_own_row + u * 8, last_row);")
                line(f"const int64_t {column} = int64_t({turn}) * {columns} + point;")
                self.statements(tuple(map(self.let, self.of_pairs)))
                line(f"return {self.printer.value(self.asked)};")
        for f, k in zip(chain.sums.folds, self.of_sums(), strict=True):
            total, left = self.totals[f.results[0]], self.left[f.results[0]]
            has = ", has" if chain.given is not None else ""
            line(f"weft::multiply_within({total}[0], {left}, {self.tiles_at(k, place)}, begin, end{has});")

    def product_lambdas(self) -> None:
        """The products of a turn."""
        chain, of_sums = self.chain, [f"{self.totals[f.results[0]]}[0]" for f in self.chain.sums.folds]
        with self.writer.block("const auto multiply_scores = [&](const int32_t place) WEFT_INLINE", "};"):
            self.multiply(chain.scores, [self.scores[f.results[0]] for f in chain.scores.folds], fresh=True)
        if of_sums:
            with self.writer.block("const auto multiply_sums = [&](const int32_t place) WEFT_INLINE", "};"):
                self.multiply(chain.sums, of_sums, fresh=False)

    def multiply(self, product: object, totals: list[str], fresh: bool) -> None:
        """The products of a turn, from the first to the last. fresh: nothing is added up yet."""
        line, chain = self.writer.line, self.chain
        of_scores = product is chain.scores
        found = chain.scores if of_scores else chain.sums
        points = self.whole_plan.scores.tile[2] if of_scores else self.plan.tile[2]
        registers = totals if of_scores else [*totals, *dict.fromkeys(self.left.values())]
        line(f"weft::wgmma_fence({', '.join(registers)});")
        line("#pragma unroll")
        with self.writer.block(f"for (int32_t g = 0; g < {points}; g += 16)"):
            for f, total in zip(found.folds, totals, strict=True):
                left, right = self.pair(f, found)
                own = self.tiles_of[right]
                turned = "weft::Major::k" if own.along_points else "weft::Major::rows"
                tile = self.tile_at(self.tile_names[right], own, "place", f"g / {own.points}")
                b = f"{tile}.matrix(0, g{f' % {own.points}' if own.tiles > 1 else ''})"
                if of_scores:
                    rows = self.tiles_of[left]
                    first = "weft::Major::k" if rows.along_points else "weft::Major::rows"
                    template = "" if (first, turned) == ("weft::Major::k",) * 2 else f", {first}, {turned}"
                    a = self.tile_at(self.tile_names[left], rows, self.rows_place, f"g / {MATRIX_POINTS}")
                    a += f".matrix(own_row, g{f' % {MATRIX_POINTS}' if rows.tiles > 1 else ''})"
                else:
                    template = f", {turned}" if turned != "weft::Major::k" else ""
                    a = f"{self.left[f.results[0]]}[g / 16]"
                self.writer.cite(f.location)
                line(f"weft::wgmma<weft::{self.plan.type}{template}>({total}, {a}, {b}, {'g > 0' if fresh else 'true'});")

    def pair(self, f: Fold, found: object) -> tuple[int, int]:
        """Which tiles the operands of a product are; of sums, the right one."""
        names = free_names(f.parts[0])
        mine = [k for k, b in enumerate(self.tiles_of) if b.product is found and b.operand.name in names]
        left = next((k for k in mine if self.tiles_of[k].once), -1)
        return left, next(k for k in mine if not self.tiles_of[k].once)

    # ---------------------------------------------------------------- folds of rows

    def begin_folds(self) -> None:
        line, chain, columns = self.writer.line, self.chain, self.plan.tile[2]
        for which in self.each_asked:
            rows = (f"weft::minimum<int64_t>(first_row + first_own_row{more}, last_row)" for more in ("", " + 8"))
            line(f"const int32_t {which}_of_row[2] = {{{', '.join(f'{which}_of({row})' for row in rows)}}};")
        self.scores: dict[str, str] = {}
        self.rows_own: dict[str, str] = {}
        for f in (*chain.leading, *chain.following):
            own = self.rows_own[f.results[0]] = self.fresh.fresh(f"{f.names[0]}_own")
            identity = f"{self.algebra(f)}::identity()"
            pair = f"{{{identity}, {identity}}}"
            if f in chain.following:  # a thread's columns in two parts, which wait for each other half as often
                line(f"{register_type(f.types[0])} {own}[2][2] = {{{pair}, {pair}}};")
            else:
                line(f"{register_type(f.types[0])} {own}[2] = {pair};")
        for f in chain.scores.folds:
            own = self.scores[f.results[0]] = self.fresh.fresh(f"{f.names[0]}_own")
            line(f"float {own}[{columns // 2}];")
        self.left: dict[str, str] = {}
        self.left_of: dict[Expr, str] = {}
        for f in chain.sums.folds:
            value = self.left_value(f)
            if value not in self.left_of:
                base = value.name if isinstance(value, Ref) else "left"
                self.left_of[value] = self.fresh.fresh(f"{base}_own")
                line(f"uint32_t {self.left_of[value]}[{columns // 16}][4];")
            self.left[f.results[0]] = self.left_of[value]
        exprs = [e for v in self.middle for e in uses(v)] + [e for f in (*chain.leading, *chain.following) for e in f.parts]
        loads = any(isinstance(x, Load) for e in (*exprs, *self.left_of) for x in walk_expr(e))
        middle: list[Read | Map] = [*self.middle]
        middle += [] if chain.given is None else [v for v in self.needed((chain.given,)) if v not in middle]
        self.reads_rows = loads or any(isinstance(v, Read) and chain.row in v.axes for v in middle)
        told = self.of_bounds if chain.bounded else []
        of_batch = [v for v in middle if set(v.axes) <= {*chain.sums.batch} and v not in told]
        self.statements(tuple(map(self.let, of_batch)))
        self.conditions()
        self.divide_alike()

    def conditions(self) -> None:
        """What is asked of each row and column, and whether that need be asked at all in a tile."""
        if self.chain.given is None:
            return
        batch = {*self.chain.sums.batch}
        pending, enough, rest = [self.chain.given], list[Expr](), list[Expr]()
        while pending:
            match pending.pop(0):
                case Op(name="or", args=args):
                    pending = [*args, *pending]
                case e:
                    (enough if self.axes_of(e) <= batch else rest).append(e)
        self.asked = rest[0]
        for e in rest[1:]:
            self.asked = Op("or", (self.asked, e), BOOL)
        self.of_pairs: list[Read | Map] = [v for v in self.needed((self.asked,)) if set(v.axes) - batch]
        told = " || ".join(self.printer.value(e, AND) for e in enough)
        self.writer.line(f"const bool asking = {f'!({told})' if told else 'true'};  // which columns rows have")

    def divide_alike(self) -> None:
        """What all scores of a tile are divided by: its reciprocal is taken once."""
        assert isinstance(self.printer, ColumnPrinter)
        exprs = [e for v in self.middle for e in uses(v)]
        exprs += [e for f in (*self.chain.leading, *self.chain.following) for e in f.parts]
        self.alike, self.before_scores = dict[Expr, str](), self.writer.mark()
        for e in (x for root in (*exprs, *self.left_of) for x in walk_expr(root)):
            match e:
                case Op(name="div", args=(_, by), type=type_) if type_ == FLOAT32 and by not in self.alike:
                    if self.axes_of(by) <= {*self.chain.sums.batch} and not any(isinstance(x, Load) for x in walk_expr(by)):
                        self.alike[by] = self.fresh.fresh("divisor")
        self.printer.divisors.update(self.alike)

    def declare_divisors(self) -> None:
        for by, name in self.alike.items():
            if self.writer.mentions(name, self.before_scores):
                self.writer.insert(self.before_scores, f"const auto {name} = weft::Divisor<float>({self.printer.exact(by)});")

    def axes_of(self, e: Expr) -> set[str]:
        """The axes that a value depends on."""
        found = {n for n in free_names(e) if n in self.axes}
        return found.union(*({*self.made[n].axes} for n in free_names(e) if n in self.made))

    def left_value(self, f: Fold) -> Expr:
        """What a left operand of sums is, before it is rounded."""
        value = next(o.value for o in self.chain.sums.left if o.name in free_names(f.parts[0]))
        made = self.made.get(value.name) if isinstance(value, Ref) else None
        value = made.value if isinstance(made, Map) and isinstance(made.value, Round) else value
        return value.value if isinstance(value, Round) else value

    @property
    def middle(self) -> list[Read | Map]:
        """The values that scores become."""
        chain = self.chain
        exprs = [e for f in (*chain.leading, *chain.following) for e in f.parts]
        exprs += [self.left_value(f) for f in chain.sums.folds]
        return [v for v in self.needed(exprs) if not isinstance(v, Fold)]

    def fold_lambda(self) -> None:
        """What is made of the scores of a turn."""
        chain, line, columns = self.chain, self.writer.line, self.plan.tile[2]
        inner = [v for v in self.middle if chain.column in v.axes]
        of_rows = [v for v in self.middle if v not in inner and set(v.axes) - {*chain.sums.batch}]
        early = [v for v in inner if v in self.needed(e for f in chain.leading for e in f.parts)]
        late_exprs = [e for f in chain.following for e in f.parts] + [*self.left_of]
        late = [v for v in inner if v in self.needed(late_exprs)]
        kept = self.kept(early, late, late_exprs)
        late = [v for v in late if v.name not in kept]
        elements = {n: f"{own}[h * 4 + u * 2 + v]" for n, own in (*self.scores.items(), *kept.items())}
        self.masked = self.masks(late, late_exprs, elements)
        self.powers = Powers.of(chain, early, late, late_exprs, {**self.scores, **kept}) if self.masked else None
        if self.powers is not None:
            self.powers.slope(self.writer, "" if self.powers.unit is None else self.printer.value(self.powers.unit))
        moved = list(dict.fromkeys(r.extremum for r in chain.repairs))
        references = {n: self.fresh.fresh(f"{self.made[n].names[0]}_reference") for n in moved}  # type: ignore[union-attr]
        axis = self.axes[chain.column]
        bounds = {"column_start": "start"} if axis.start != ZERO else {}
        bounds["column_stop"] = "stop"
        with self.writer.block("const auto fold_turn = [&](const int32_t turn, const bool edge) WEFT_INLINE", "};"):
            line(f"const int64_t first_column = int64_t(turn) * {columns} + threadIdx.x % 4 * 2;")
            line(f"int32_t {', '.join(f'{name}[2]' for name in bounds)};")
            if moved:
                line(f"float {', '.join(f'{name}[2]' for name in references.values())};")
            if self.powers is not None:
                line("weft::MaximumPower power[2];")
                if self.powers.unit is not None:
                    of_each = [f"for (int32_t h = 0; h < {columns // 2}; ++h)"]
                    with self.writer.block("if (!rising)"):
                        self.unrolled(of_each, f"{self.powers.own}[h] {self.powers.by}= factor_of_scores;")
            first = self.needed(e for f in chain.leading for e in f.parts)
            with self.each_row_of_thread([v for v in of_rows if v in first]):
                for name, which in bounds.items():
                    line(f"{name}[u] = weft::minimum<int64_t>({self.bound_of_row(which)} - first_column, {columns});")
                if self.masked:
                    self.make(early, elements, kept)
                else:
                    self.move(self.lead(early, elements, kept), references)
            if self.masked:
                self.mask()
                with self.unrolled_block(["for (int32_t u = 0; u < 2; ++u)"]):
                    self.move(self.lead([], elements, kept), references)
            if self.powers is not None:
                self.bring_far(references)
            self.follow(late, of_rows, elements, {n: f"{own}[u]" for n, own in references.items()})
        self.declare_divisors()

    @contextmanager
    def each_row_of_thread(self, of_rows: list[Read | Map]) -> Iterator[None]:
        """What is written here is done for both rows of a thread, whose values are there."""
        self.writer.line("#pragma unroll")
        with self.writer.block("for (int32_t u = 0; u < 2; ++u)"):
            mark, row = self.writer.mark(), self.declare(self.chain.row)
            self.statements(tuple(map(self.let, of_rows)))
            yield
            if self.writer.mentions(row, mark):
                own = "first_row + first_own_row + u * 8"
                if self.reads_rows:  # a row that is not there reads what the last one does
                    own = f"weft::minimum<int64_t>({own}, {self.counts[self.chain.row]} - 1)"
                self.writer.insert(mark, f"const int64_t {row} = {own};")

    def kept(self, early: list[Read | Map], late: list[Read | Map], exprs: list[Expr]) -> dict[str, str]:
        """Values that are made before the leading folds end, and taken after: in the place of scores that are not needed then,
        by the names of these, or in registers of their own.
        """
        wanted = [v for v in early if v in late and isinstance(v, Map) and v.type == FLOAT32]
        taken = {v.name for v in wanted}
        # of values that are made of one another, what is nearest to the end
        inner = {n for v in wanted for n in self.below(v) if n in taken}
        later = {n for v in late if v not in wanted for n in self.direct(v)} | {n for e in exprs for n in free_names(e)}
        wanted = [v for v in wanted if v.name not in inner or v.name in later]
        free = [own for n, own in self.scores.items() if n not in later]
        found = {}
        for v in wanted:
            if free:
                found[v.name] = free.pop(0)
            else:
                found[v.name] = self.fresh.fresh(f"{v.name}_own")
                self.writer.line(f"float {found[v.name]}[{self.plan.tile[2] // 2}];")
        return found

    def direct(self, v: Read | Map) -> frozenset[str]:
        exprs = v.index if isinstance(v, Read) else (v.value,)
        return frozenset(n for e in exprs for n in free_names(e))

    def below(self, v: Read | Map) -> set[str]:
        return {w.name for w in self.needed([Ref(n, FLOAT32) for n in self.direct(v)]) if isinstance(w, Read | Map)}

    def masks(self, late: list[Read | Map], exprs: list[Expr], elements: Mapping[str, str]) -> dict[str, str]:
        """What the columns that a row does not have are made, if they need not be left out: identities of the maximum, in the
        place of its parts, if all that is taken of these later is an exponential of what they are below it, which is 0 then.
        """
        own = {f.parts[0].name: f for f in self.chain.leading if isinstance(f.parts[0], Ref)}
        own = {n: f for n, f in own.items() if n in elements and f.algebra in ("max", "maximum")}
        values = {v.name: v.value for v in late if isinstance(v, Map)}

        def vanishes(e: Expr) -> bool:
            match values.get(e.name, e) if isinstance(e, Ref) else e:
                case Op(name="exp_flushed", args=(Op(name="sub", args=(Ref(name=x), Ref(name=m))),)):
                    return x in own and m == own[x].results[0]
            return False

        if self.chain.given is not None:
            return {}
        reads = any(isinstance(x, Load) for v in self.middle for e in uses(v) for x in walk_expr(e))
        reads = reads or any(isinstance(v, Read) and self.chain.column in v.axes for v in self.middle)
        if reads or len(self.chain.leading) != len(own) or not all(map(vanishes, (*values.values(), *exprs))):
            return {}
        return {elements[n]: f"{self.algebra(f)}::identity()" for n, f in own.items()}

    @property
    def outside(self) -> str:
        """Whether a row does not have a column that a thread has."""
        beyond = f"h * {_PAIRS} + v >= column_stop[u]"
        return beyond if self.axes[self.chain.column].start == ZERO else f"h * {_PAIRS} + v < column_start[u] || {beyond}"

    @contextmanager
    def columns(self, spelled: Mapping[str, str]) -> Iterator[None]:
        """What is written here is done for both columns of a run that a thread has, where they are there or masked."""
        line, chain = self.writer.line, self.chain
        line("#pragma unroll")
        with self.writer.block("for (int32_t v = 0; v < 2; ++v)"), self.spelled(spelled):
            if not self.masked:
                line(f"if (edge && {factor(self.outside) if '||' in self.outside else self.outside}) continue;")
            if chain.given is not None:
                column = self.declare(chain.column)
                with self.writer.block("if (edge && asking)"):
                    line(f"const int64_t {column} = first_column + h * {_PAIRS} + v;")
                    self.statements(tuple(map(self.let, self.of_pairs)))
                    line(f"if (!({self.printer.value(self.asked)})) continue;")
            mark, column = self.writer.mark(), self.declare(chain.column)
            plain, beyond = self.printer, f"h * {_PAIRS} + v"
            self.printer = replace(plain, column=chain.column, first="first_column", beyond=beyond)  # type: ignore[call-arg]
            yield
            self.printer = plain
            if self.writer.mentions(column, mark):
                self.writer.insert(mark, f"const int64_t {column} = first_column + h * {_PAIRS} + v;")

    @property
    def runs(self) -> str:
        return f"for (int32_t h = 0; h < {self.plan.tile[2] // _PAIRS}; ++h)"

    def lead(self, early: list[Read | Map], elements: Mapping[str, str], kept: Mapping[str, str]) -> dict[str, str]:
        """Fold what waits for nothing; the names of what the row has then."""
        line, chain, latest = self.writer.line, self.chain, {}
        if not chain.leading:
            return {}
        for f in chain.leading:
            name = latest[f.results[0]] = self.fresh.fresh(f"{f.names[0]}_latest")
            own = f"{self.rows_own[f.results[0]]}[u]"
            line(f"{register_type(f.types[0])} {name}[2] = {{{own}, {self.algebra(f)}::identity()}};")
        if self.masked:
            with self.unrolled_block([self.runs]), self.columns(elements):
                self.take_in(latest)
        else:
            self.make(early, elements, kept, latest)
        return latest

    def make(
        self,
        early: list[Read | Map],
        elements: Mapping[str, str],
        kept: Mapping[str, str],
        latest: Mapping[str, str] | None = None,
    ) -> None:
        """The values that leading folds are made of, and what is kept of them; and these folds, if they are at hand."""
        if self.powers is not None and self.powers.unit is not None:
            early = []
        if not early and latest is None:
            return
        with self.unrolled_block([self.runs]), self.columns({n: e for n, e in elements.items() if n in self.scores}):
            for v in early:
                if v.name in kept:
                    self.writer.cite(v.location)
                    self.writer.line(f"{kept[v.name]}[h * 4 + u * 2 + v] = {self.printer.value(self.let(v).value)};")
                    self.names[v.name] = elements[v.name]
                else:
                    self.statements((self.let(v),))
            if latest is not None:
                self.take_in(latest)
        for name in kept.keys() & self.names.keys():
            del self.names[name]

    def mask(self) -> None:
        """Make columns that rows do not have what they need not be left out for."""
        of_each = ["for (int32_t u = 0; u < 2; ++u)", self.runs, "for (int32_t v = 0; v < 2; ++v)"]
        with self.writer.block("if (edge)"), self.unrolled_block(of_each):
            for own, identity in self.masked.items():
                self.writer.line(f"if ({self.outside}) {own} = {identity};")

    def take_in(self, latest: Mapping[str, str]) -> None:
        for f in self.chain.leading:
            self.writer.cite(f.location)
            own = f"{latest[f.results[0]]}[v]"
            self.writer.line(f"{own} = {self.taken_in(f, own)};")

    def taken_in(self, f: Fold, own: str) -> str:
        fused = self.printer.accumulated(own, f.parts[0]) if f.algebra == "sum" else None
        return fused or f"{self.algebra(f)}::combine({own}, {self.printer.value(f.parts[0])})"

    def move(self, latest: Mapping[str, str], references: Mapping[str, str]) -> None:
        """Bring what the row has to the folds so far, which values are relative to then."""
        line, chain = self.writer.line, self.chain
        for f in chain.leading:
            name = f.results[0]
            whole = f"{self.algebra(f)}::combine({latest[name]}[0], {latest[name]}[1])"
            if name in references:
                whole = f"weft::reduce_lanes<{self.algebra(f)}, 4>({whole})"
                line(f"{latest[name]}[0] = {whole};  // of the four threads of a row")
                line(f"{references[name]}[u] = {self.algebra(f)}::reference({latest[name]}[0]);")
            else:
                line(f"{latest[name]}[0] = {whole};")
        if self.powers is not None:
            ((name, own),) = references.items()
            line("// sums move with what they are relative to")
            algebra = self.algebra(self.chain.leading[0])
            line(f"const float before = {algebra}::reference({self.rows_own[name]}[u]);")
            line(f"power[u] = weft::maximum_power({own}[u], slope);")
            lost = "power[u].lost - weft::maximum_power(before, slope).lost"
            self.bring_to(f"weft::exp2_estimate(weft::fma(before - {own}[u], slope, {lost}))", [r.sum for r in chain.repairs])
        elif chain.repairs:
            line("// sums move with what they are relative to")
            old = {n: f"{self.rows_own[n]}[u]" for n in references}
            for text, sums in self.factors(old, {n: f"{own}[u]" for n, own in references.items()}).items():
                self.bring_to(text, sums)
        for f in chain.leading:
            line(f"{self.rows_own[f.results[0]]}[u] = {latest[f.results[0]]}[0];")

    def bring_to(self, factor_: str, sums: list[str]) -> None:
        """Multiply sums of a row by a factor."""
        line, own = self.writer.line, self.fresh.fresh("factor")
        line(f"const float {own} = {factor_};")
        for name in sums:
            if name in self.rows_own:
                for v in (0, 1):
                    line(f"{self.rows_own[name]}[u][{v}] *= {own};")
                continue
            self.unrolled(
                [f"for (int32_t h = 0; h < {self.plan.tile[1] // _PAIRS}; ++h)", "for (int32_t v = 0; v < 2; ++v)"],
                f"{self.totals[name]}[0][h * 4 + u * 2 + v] *= {own};",
            )

    def factors(self, old: Mapping[str, str], new: Mapping[str, str], *, settled: bool = False) -> dict[str, list[str]]:
        """What brings sums relative to some extrema to others, and the sums. settled: which stay as they are."""
        found: dict[str, list[str]] = {}
        for r in self.chain.repairs:
            f = self.extremum(r)
            before_it = f"{self.algebra(f)}::reference({old[r.extremum]})"
            self.instead[r.extremum] = new[r.extremum]
            if settled and r.guarded:
                self.instead[r.extremum] = self.printer.value(r.guard, TERNARY + 1)
            self.instead[before(r.extremum)] = before_it
            found.setdefault(self.printer.value(r.factor, PRODUCT), []).append(r.sum)
            del self.instead[before(r.extremum)], self.instead[r.extremum]
        return found

    def extremum(self, repair: Repair) -> Fold:
        return next(f for f in self.chain.leading if f.results[0] == repair.extremum)

    def bring_far(self, references: Mapping[str, str]) -> None:
        """Where a power is none, scores are made relative themselves."""
        assert self.powers is not None
        ((_, own),) = references.items()
        with self.writer.block("if (power[0].far || power[1].far)"), self.unrolled_block(
            ["for (int32_t u = 0; u < 2; ++u)", self.runs, "for (int32_t v = 0; v < 2; ++v)"]
        ):
            element = f"{self.powers.own}[h * 4 + u * 2 + v]"
            self.writer.line(f"if (power[u].far) {element} -= {own}[u];")

    def follow(
        self, late: list[Read | Map], of_rows: list[Read | Map], elements: Mapping[str, str], references: Mapping[str, str]
    ) -> None:
        """Fold what waits for others, and make the left operands of the sums."""
        line = self.writer.line
        pairs = {own: self.fresh.fresh(f"{own}_pair") for own in self.left_of.values()}
        wanted = [v for v in of_rows if v in self.needed(e for v in late for e in uses(v))]
        with self.unrolled_block([self.runs]), self.each_row_of_thread(wanted):
            for pair in pairs.values():
                line(f"float {pair}[2] = {{}};")
            if self.powers is not None:
                late = [self.powers.told(v) for v in late]
                element = f"{self.powers.own}[h * 4 + u * 2 + v]"
                self.instead[POWER] = f"weft::exp2_estimate(weft::fma({element}, slope, -power[u].power))"
            with self.columns({**elements, **references}):
                self.statements(tuple(map(self.let, late)))
                for f in self.chain.following:
                    self.writer.cite(f.location)
                    own = f"{self.rows_own[f.results[0]]}[u][v]"
                    line(f"{own} = {self.taken_in(f, own)};")
                for value, own in self.left_of.items():
                    line(f"{pairs[own]}[v] = {self.printer.value(value)};")
            for own, pair in pairs.items():
                line(f"{own}[h / 2][h % 2 * 2 + u] = weft::pack<weft::{self.plan.type}>({pair}[0], {pair}[1]);")

    def algebra(self, f: Fold) -> str:
        return algebra_type(f.algebra, register_type(f.types[0]))

    # ---------------------------------------------------------------- the end

    def end_folds(self) -> None:
        """What the threads of a row have folded meets; sums are relative to the last extrema."""
        line, chain = self.writer.line, self.chain
        moved = {r.extremum for r in chain.repairs}
        folded = bool(chain.leading or chain.following or chain.repairs)
        with self.unrolled_block(["for (int32_t u = 0; u < 2; ++u)"]) if folded else nullcontext():
            power = "" if self.powers is None else self.end_powers(self.powers)
            for f in (*chain.leading, *chain.following):
                name = f.results[0]
                own = f"{self.rows_own[name]}[u]"
                if f in chain.following:
                    whole = f"{self.algebra(f)}::combine({own}[0], {own}[1])"
                    line(f"{own}[0] = weft::reduce_lanes<{self.algebra(f)}, 4>({whole});")
                elif name not in moved:
                    line(f"{own} = weft::reduce_lanes<{self.algebra(f)}, 4>({own});")
            last = {n: f"{self.rows_own[n]}[u]" for n in moved}
            if self.whole_plan.parts == 1:  # else what combines them does
                extrema = dict(last)
                if chain.bounded and moved:
                    last = self.of_columns("first_row + first_own_row + u * 8", last)
                for text, sums in self.factors(extrema, last, settled=True).items():
                    self.bring_to(f"{text} * {power}" if power else text, sums)
            elif power:
                self.bring_to(power, [r.sum for r in chain.repairs])
        halves = {f.results[0] for f in chain.following}
        for name, own in self.rows_own.items():
            self.names[name] = f"{own}[u][0]" if name in halves else f"{own}[u]"

    def divisors(self) -> None:
        """What all lanes of a row are divided by is the same: its reciprocal is taken once."""
        assert isinstance(self.printer, ColumnPrinter)
        rows = {f.results[0] for f in (*self.chain.leading, *self.chain.following)}
        written = self.needed(e for w in self.products.sweeps.last for e in uses_of_write(w))
        exprs = [v.value for v in written if isinstance(v, Map)] + [w.value for w in self.products.sweeps.last]
        for e in (x for root in exprs for x in walk_expr(root)):
            match e:
                case Op(name="div", args=(_, Ref(name=name) as by)) if name in rows and by not in self.printer.divisors:
                    kind = f"weft::{'OrdinaryDivisor' if counts_from_one(by, self.made) else 'Divisor'}<float>"
                    self.printer.divisors[by] = self.divisor(self.fresh.fresh(f"{name}_divisor"), kind, self.names[name])

    def divisor(self, name: str, kind: str, value: str) -> str:
        """Declare what the rows of a thread are divided by; its name for the u-th of them."""
        each = (f"{kind}({value.replace('[u]', f'[{u}]', 1)})" for u in (0, 1))
        self.writer.line(f"const {kind} {name}[2] = {{{', '.join(each)}}};")
        return f"{name}[u]"

    def leave_parts(self) -> None:
        """What a thread has of a part of the columns, for the next launch: tiles of rows as they lie."""
        line, chain, (rows, lanes, _) = self.writer.line, self.chain, self.plan.tile
        with self.unrolled_block(["for (int32_t u = 0; u < 2; ++u)"]):
            line(f"if (first_row + first_own_row + u * 8 >= {self.wholes['rows']}) break;")
            line(f"const int64_t place_of_row = int64_t(tile) * {rows} + first_own_row + u * 8;")
            with self.writer.block("if (threadIdx.x % 4 == 0)"):
                for f in (*chain.leading, *chain.following):
                    line(f"{self.left_in[f.results[0]]}[place_of_row] = {self.names[f.results[0]]};")
            for f in chain.sums.folds:
                own, place = f"{self.totals[f.results[0]]}[0]", f"place_of_row * {lanes} + threadIdx.x % 4 * 2 + h * {_PAIRS}"
                pair = f"{{{own}[h * 4 + u * 2], {own}[h * 4 + u * 2 + 1]}}"
                with self.unrolled_block([f"for (int32_t h = 0; h < {lanes // _PAIRS}; ++h)"]):
                    line(f"const float part_run[2] = {pair};")
                    line(f"weft::store<2>({self.left_in[f.results[0]]} + {place}, part_run);")

    def end_powers(self, powers: Powers) -> str:
        """The maximum as the program has it, and what brings sums of powers to it."""
        own = f"{self.rows_own[powers.maximum]}[u]"
        reference = f"{self.algebra(self.chain.leading[0])}::reference({own})"
        self.writer.line(f"const float lost = weft::maximum_power({reference}, slope).lost;")
        if powers.unit is not None:
            self.writer.line(f"{own} {powers.by}= unit;")
        return "weft::exp2_estimate(-lost)"

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

    def write_rows(self) -> None:
        """What is written once a row."""
        if not self.chain.writes:
            return
        with self.writer.block("if (threadIdx.x % 4 == 0)"), self.unrolled_block(["for (int32_t u = 0; u < 2; ++u)"]):
            row = self.declare(self.chain.row)
            self.writer.line(f"const int64_t {row} = first_row + first_own_row + u * 8;")
            self.writer.line(f"if ({row} >= {factor(self.wholes['rows'])}) break;")
            self.write_row()

    def write_row(self) -> None:
        exprs = [e for w in self.chain.writes for e in uses_of_write(w)]
        wanted = [v for v in self.needed(exprs) if not isinstance(v, Fold)]
        self.statements(tuple(map(self.let, wanted)))
        for w in self.chain.writes:
            self.write(w)


def _done(which: str, place: str) -> str:
    return f"if (threadIdx.x % 128 == 0) {which}_empty[{place}].arrive();"


def _plus(first: str, more: int) -> str:
    return f"{first} + {more}" if more else first
