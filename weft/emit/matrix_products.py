"""Products by matrix instructions: of factors that are exactly values of a 16-bit type, summed in float32, of bytes, summed in
int32, or of float64.

Tiles of the operands come to a ring of places in shared memory, some turns ahead. A warpgroup multiplies them where they are
(wgmma, sm_90a), a warp takes fragments of them to registers (mma.sync).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from weft.emit.expressions import memory_type, register_type
from weft.emit.products import Ahead, Fragment, ProductEntry, Tile
from weft.emit.rings import given_back
from weft.graph.products import SUMS, Operand
from weft.graph.tile import Fold, Read, uses_of_write
from weft.loops.types import FLOAT64
from weft.plan.fold import WARP, axis_along
from weft.plan.product import (
    LINE_PAD,
    ROOMY,
    ProductPlan,
    factor_read,
    late_reads,
    made_of,
    own_factors,
    ring_bytes,
    told_words,
)

LINE_BYTES = 128  # of a line of L2
AHEAD_WORDS = 32  # of a thread: what is read of each result by itself, of the runs of columns that come next


@dataclass
class MatrixEntry(ProductEntry):
    """each: rows and columns of a warpgroup, or of a warp."""

    @classmethod
    def included(cls, plan: ProductPlan) -> str:
        return "weft/matrix_tile.cuh"

    @property
    def by_warpgroups(self) -> bool:
        return self.plan.engine == "wgmma"

    def shape(self) -> str:
        (m, n, k), (own_m, own_n), who = self.plan.tile, self.plan.each, "warpgroup" if self.by_warpgroups else "warp"
        return f"a block has {m} x {n} results, a {who} {own_m} x {own_n}; a turn takes {k} points"

    @property
    def sets_up(self) -> bool:
        return self.plan.boxes

    @property
    def fragment(self) -> Fragment:
        m, n = self.plan.each
        rows, block = (m // 32, 64) if self.by_warpgroups else (m // 8, 16)
        row = "first_own_row + u % 2 * 8" + (f" + u / 2 * {block}" if rows > 2 else "")
        run = self.plan.run
        return Fragment(rows, row, n // (4 * run), run, f"first_own_column + h * {4 * run}")

    @property
    def lane_row(self) -> str:
        return "lane / 4"

    @property
    def lane_column(self) -> str:
        return f"lane % 4 * {self.plan.run}"

    @property
    def ahead_words(self) -> int:
        return AHEAD_WORDS

    def columns_ahead(self, reads: list[Read], own: Fragment) -> Ahead | None:
        return self.ahead(reads, own, AHEAD_WORDS, by_rows=False) if self.plan.roomy else None

    def total(self, f: Fold, column: str) -> str:
        own, at = self.totals[f.results[0]], f"({column})" if " " in column else column
        if self.by_warpgroups:
            text = f"{own}[u / 2][{at} / 2 * 4 + u % 2 * 2 + {at} % 2]"
        else:
            text = f"{own}[u / 2][{at} / 2][u % 2 * 2 + {at} % 2]"
        return text if f.types[0] == SUMS[self.plan.factors] else f"{register_type(f.types[0])}({text})"

    def body(self) -> None:
        if self.plan.boxes:
            self.sizes()
            self.go_through_squares()
        else:
            super().body()

    def fold_points(self) -> None:
        self.places_of_thread()
        tiles = self.ring()
        self.begin_totals()
        self.turns(tiles)

    def places_of_thread(self) -> None:
        line, plan, (m, n) = self.writer.line, self.plan, self.plan.each
        across = plan.tile[1] // n
        threads = 128 if self.by_warpgroups else 32
        unit = f"threadIdx.x / {threads}"
        rows = "0" if plan.crews > 1 else f"{unit} * {m}" if across == 1 else f"{unit} / {across} * {m}"
        columns = "0" if across == 1 else f"{unit} % {across} * {n}"
        line(f"const int32_t own_row = {rows}, own_column = {columns};  // of the {'warpgroup' if threads > 32 else 'warp'}")
        inner = "threadIdx.x / 32 % 4 * 16 + " if self.by_warpgroups else ""
        line(f"const int32_t first_own_row = own_row + {inner}threadIdx.x % 32 / 4;")
        line(f"const int32_t first_own_column = own_column + threadIdx.x % 4 * {self.plan.run};")

    def begin_totals(self) -> None:
        m, n = self.plan.each
        shape = f"[{m // 64}][{n // 2}]" if self.by_warpgroups else f"[{m // 16}][{n // 8}][4]"
        for f in self.products.folds:
            name = self.totals.setdefault(f.results[0], self.fresh.fresh(f"{f.names[0]}_own"))
            self.writer.line(f"{register_type(SUMS[self.plan.factors])} {name}{shape} = {{}};")

    def end(self, results: Callable[[], None]) -> None:
        if self.plan.exchanged:  # threads of a quad have pairs of columns; eight neighbours each are better to write
            for own in self.accumulators():
                self.writer.line(f"weft::exchange_quads({own});")
        if self.plan.across:
            self.fold_rows()
        results()

    def fold_rows(self) -> None:
        """What rows fold of results, stage after stage: of a thread's columns, then of all that blocks tell each other."""
        line, (m, _, _), rows = self.writer.line, self.plan.tile, self.fragment.rows
        for stage in self.products.across:
            for f in stage:
                own = self.of_rows[f.results[0]] = self.fresh.fresh(f"{f.names[0]}_of_rows")
                line(f"{register_type(f.types[0])} {own}[{rows}];")
                self.unrolled([f"for (int32_t u = 0; u < {rows}; ++u)"], f"{own}[u] = {self.algebra(f)}::identity();")
            self.go_through_results([e for f in stage for e in f.parts], (), stage)
            self.rows_known += stage
            for f in stage:
                name, place = self.of_rows[f.results[0]], "nullptr, 0"
                if self.plan.across > 1:
                    words = m * told_words(f)
                    place = f"{self.told[f.results[0]]} + int64_t({self.number} - part) * {words}, part"
                if self.plan.across > 1 and f is self.products.across[-1][-1]:  # what is written with it comes meanwhile
                    self.read_for_results()
                if self.plan.across > 1 and f is self.products.across[0][0]:
                    self.wait_for_cleared()
                template = f"{self.algebra(f)}, {self.plan.across}, {m}"
                line(f"weft::combine_across<{template}>({name}, {place}, first_own_row);")

    def wait_for_cleared(self) -> None:
        """Before the first square's fold is told, all blocks have cleared theirs, which they did while this one multiplied."""
        squares = "int32_t(gridDim.x)" if self.plan.crews == 1 else f"{self.plan.crews} * int32_t(gridDim.x)"
        with self.writer.block(f"if ({self.number} < {squares})"):
            self.writer.line("if (threadIdx.x % 32 == 0) weft::wait_for_grid(round);  // all blocks have cleared theirs")
            self.writer.line("__syncwarp();")

    def read_for_results(self) -> None:
        """Begin to read what results need along the columns, where that asks for nothing first."""
        wanted = self.wanted([e for w in self.products.sweeps.last for e in uses_of_write(w)])
        reads, _ = self.reads_along_columns(wanted)
        if not made_of(self.products, [i for v in reads for i in v.index]):
            self.on_the_way = self.columns_ahead(reads, self.fragment)

    # ---------------------------------------------------------------- operands

    def ring(self) -> list[Tile]:
        """The places of tiles in shared memory."""
        line, (m, n, k), stages, offset = self.writer.line, self.plan.tile, self.plan.stages, 0
        line(f"// {stages} turns have a place in shared memory")
        line("extern __shared__ __align__(1024) unsigned char memory[];")
        found = []
        for operand, staged, left, base in self.tiles():
            name, rows = self.fresh.fresh(f"{base}_tile"), m if left else n
            along = "true" if staged.along_points else "false"
            type_ = f"weft::MatrixTile<{self.type_of(operand)}, {rows}, {along}>"
            line(f"auto* const {name} = reinterpret_cast<{type_}*>(memory{f' + {offset}' if offset else ''});")
            offset += stages * rows * k * self.plan.factors.size
            found.append(Tile(operand, staged, left, name))
        return found

    def type_of(self, operand: Operand) -> str:
        """The C++ type of an operand's factors."""
        return memory_type(own_factors(self.function, self.plan.factors, self.products, operand))

    def types_of(self, left: Tile, right: Tile) -> str:
        """Those of an instruction: one, if both are the same."""
        return ", ".join(dict.fromkeys(self.type_of(tile.operand) for tile in (left, right)))

    def bring(self, tile: Tile, k: int) -> None:
        """A packet of the k-th operand to its place in the ring."""
        few = f"<{tile.staged.vector}>" if tile.staged.vector < self.plan.packet else ""
        with self.packets(tile, located=True):
            read = factor_read(self.function, self.plan.factors, self.products, tile.operand)
            if k in self.packed:
                address = self.packed_address(tile, k)
            else:
                assert read is not None
                self.writer.cite(read.location)
                address = self.address(read.array, read.index)
            self.writer.line(f"{tile.tile}[turn % {self.plan.stages}].copy{few}(row, point, {address}, here);")

    # ---------------------------------------------------------------- boxes

    def parameters(self) -> list[str]:
        if not self.plan.boxes:
            return super().parameters()
        self.maps = [self.fresh.fresh(f"{base}_map") for _, _, _, base in self.tiles()]
        return super().parameters() + [f"const __grid_constant__ weft::TensorMap {name}" for name in self.maps]

    def go_through_squares(self) -> None:
        """Blocks stay and go from square to square: a warp brings the tiles of all turns, as their places become free, while
        warpgroups multiply them, and write.
        """
        line, stages, own = self.writer.line, self.plan.stages, self.plan.writing
        tiles = self.ring()
        crews, warps = self.plan.crews, self.plan.folding // WARP
        line(f"__shared__ weft::Mbarrier full[{stages}], empty[{stages}]{f', called[{crews}]' if crews > 1 else ''};")
        with self.writer.block("if (threadIdx.x == 0)"):
            with self.writer.block(f"for (int32_t place = 0; place < {stages}; ++place)"):
                line("full[place].init(1);")
                line(f"empty[place].init({warps});")
            if crews > 1:
                line(f"for (int32_t crew = 0; crew < {crews}; ++crew) called[crew].init({warps});")
            line("weft::fence_mbarrier_init();")
            for name in self.maps:
                line(f"weft::prefetch({name});")
        if not self.told:
            line("__syncthreads();")
        if self.launch.early:
            self.launch.begin(self.writer)
        if self.plan.parts > 1:
            self.square(f"int32_t(blockIdx.x) / {self.plan.parts}")
            self.which_part()
        else:
            batch = "".join(f" * int32_t({self.counts[a]})" for a in self.products.batch)
            line(f"const int32_t squares = {self.squares['rows']} * {self.squares['columns']}{batch};")
        if self.told:
            self.clear_told()
        line(f"const int32_t turns = ({self.wholes['points']} + {self.plan.tile[2] - 1}) / {self.plan.tile[2]};")
        line("int32_t step = 0;  // turns of all squares so far")
        begin, stop = self.own_turns()
        turns = f"for (int32_t turn = {begin}; turn < {stop}; ++turn, ++step)"
        late = self.late_reads
        with self.writer.block(f"if (threadIdx.x >= {own})"):
            line("// this warp brings the tiles of all turns, as their places become free")
            if self.plan.roomy:
                line(f"weft::decrease_registers<{ROOMY[1]}>();")
            if self.plan.roomy or not late:
                line(f"if (threadIdx.x > {own + WARP - 1 if late else own}) return;")
            with self.each_square(), ExitStack() as stack:
                if late:
                    self.prefetch(late, own)
                    stack.callback(line, "__syncwarp();")
                    stack.enter_context(self.writer.block(f"if (threadIdx.x == {own})"))
                self.begin_window(begin)
                stack.enter_context(self.writer.block(turns))
                line(f"const int32_t place = step % {stages};")
                line(f"empty[place].wait((step / {stages} % 2) ^ 1);")
                rows = sum(self.plan.tile[0] if t.left else self.plan.tile[1] for t in tiles)
                size = rows * self.plan.tile[2] * self.plan.factors.size
                line(f"full[place].arrive_expect({size});")
                for k, tile in enumerate(tiles):
                    self.bring_box(tile, k)
                self.move_window()
            line("return;")
        if self.plan.roomy:
            line(f"weft::increase_registers<{ROOMY[0]}>();")
        self.places_of_thread()
        if crews > 1:
            line("// each of the crews has squares of its own: one multiplies while another writes")
            line(f"const int32_t crew = threadIdx.x / {self.plan.folding};")
            line("step = crew * turns;")
            line("int32_t called_before = crew == 0;  // the first need not be called")
        with self.each_square(by_crews=crews > 1):
            self.multiply_squares(tiles, turns, begin)
            self.finish()

    def clear_told(self) -> None:
        """What blocks tell each other through is 0 before any is told: a block clears what it tells of its squares."""
        for f in (f for stage in self.products.across for f in stage):
            words = self.plan.tile[0] * told_words(f)
            self.writer.line(f"weft::clear_told<{words}>({self.told[f.results[0]]}, squares);")
        self.writer.line("const uint32_t round = weft::arrive_at_grid();")

    @property
    def late_reads(self) -> list[Read]:
        """What is read of each result by itself, in packets."""
        return late_reads(self.products, self.products.columns[-1]) if self.plan.vector > 1 else []

    def prefetch(self, reads: list[Read], own: int) -> None:
        """What is read of a square's results is on its way to L2 while it is multiplied."""
        (m, n, _), line, found = self.plan.tile, self.writer.line, self.products
        lane = found.columns[-1]
        line("// and what is read of their results comes to L2 meanwhile")
        with self.writer.block(f"for (int32_t row = threadIdx.x - {own}; row < {m}; row += {WARP})"):
            line(f"if (!({self.place_of(found.rows, self.firsts['rows'], 'row', self.wholes['rows'])})) {self.beyond};")
            for v in reads:
                step = LINE_BYTES // self.function.array(v.array).dtype.size
                column = self.fresh.fresh(f"{lane}_line")
                stop = f"weft::minimum<int64_t>({self.firsts['columns']} + {n}, {self.wholes['columns']})"
                header = f"for (int64_t {column} = {self.firsts['columns']}; {column} < {stop}; {column} += {step})"
                self.writer.cite(v.location)
                with self.spelled({lane: column}), self.writer.block(header):
                    line(f"weft::prefetch_line({self.address(v.array, v.index)});")

    def multiply_squares(self, tiles: list[Tile], turns: str, begin: str) -> None:
        """All turns of a square, by warpgroups."""
        line, stages, crews = self.writer.line, self.plan.stages, self.plan.crews
        self.begin_totals()
        if crews > 1:
            line("called[crew].wait(called_before % 2);")
            line("++called_before;")
        with self.writer.block(turns):
            line(f"const int32_t place = step % {stages};")
            line(f"full[place].wait(step / {stages} % 2);")
            self.multiply_by_warpgroups(tiles, "place")
            line("weft::wgmma_wait<1>();  // the products of the turn before: their place is free")
            line(given_back(f"empty[(step - 1) % {stages}]", f"turn > {begin}"))
        if crews > 1:  # the next one waits for its tiles from now on: a wait asks for a parity, so all phases before are over
            line(given_back(f"called[(crew + 1) % {crews}]"))
        line(f"weft::wgmma_wait<0>({', '.join(self.accumulators())});")
        if self.plan.parts == 1:  # of the next square: nobody waits for the last place of the only one
            line(given_back(f"empty[(step - 1) % {stages}]"))
        if crews > 1:
            line(f"step += {'turns' if crews == 2 else f'{crews - 1} * turns'};  // those of the other crew")

    @contextmanager
    def each_square(self, by_crews: bool = False) -> Iterator[None]:
        """What is written here is done for each square of a block, which is one where blocks share squares. by_crews: for each
        of a crew's.
        """
        if self.plan.parts > 1:
            yield
            return
        number = "place_of_square" if self.products.batch else "square"
        first, step = "blockIdx.x", "gridDim.x"
        if by_crews:
            first, step = f"{first} + crew * {step}", f"{self.plan.crews} * {step}"
        with self.writer.block(f"for (int32_t {number} = {first}; {number} < squares; {number} += {step})"):
            self.square(number)
            self.number = number
            yield

    def own_turns(self) -> tuple[str, str]:
        """The first turn of a block, and the first that is none of its."""
        if self.plan.parts == 1:
            return "0", "turns"
        self.writer.line(f"const int32_t first_turn = int32_t(int64_t(part) * turns / {self.plan.parts});")
        self.writer.line(f"const int32_t stop = int32_t(int64_t(part + 1) * turns / {self.plan.parts});")
        return "first_turn", "stop"

    def lines_place(self) -> dict[str, str]:
        """Behind the ring."""
        offset, found, rows, width = ring_bytes(self.plan, self.products), {}, self.plan.line_rows, WARP + LINE_PAD
        for f in self.products.folds:
            name = found[f.results[0]] = self.fresh.fresh(f"{f.names[0]}_lines")
            type_, size = register_type(f.types[0]), f.types[0].size
            place = f"reinterpret_cast<{type_}(*)[{width}]>(memory + {offset}) + threadIdx.x / {WARP} * {rows}"
            self.writer.line(f"auto* const {name} = {place};")
            offset += self.plan.writing // WARP * rows * width * size
        return found

    def begin_window(self, turn: str) -> None:
        """Where a window is in its operand, and how many of the points that stay have been brought there."""
        if (window := self.plan.window) is None:
            return
        line, moving = self.writer.line, self.products.over[:-1]
        line(f"const int32_t chunks = {self.counts[window.along]} / {self.plan.tile[2]};")
        if turn == "0":
            line(f"int32_t chunk = 0, {', '.join(f'{self.declare(a)} = 0' for a in moving)};")
        else:
            line(f"int32_t chunk = {turn} % chunks;")
            self.places([self.axes[a] for a in moving], f"{turn} / chunks", self.counts, "")

    def move_window(self) -> None:
        """On to the next chunk of points, or the next place of the window."""
        if self.plan.window is None:
            return
        line = self.writer.line
        with ExitStack() as stack:
            stack.enter_context(self.writer.block("if (++chunk == chunks)"))
            line("chunk = 0;")
            for n, a in enumerate(reversed(moving := self.products.over[:-1])):
                if n == len(moving) - 1:
                    line(f"++{self.names[a]};")
                    break
                stack.enter_context(self.writer.block(f"if (++{self.names[a]} == {self.counts[a]})"))
                line(f"{self.names[a]} = 0;")

    def moved(self, k: int) -> str:
        """How many rows further the tile of the k-th operand is where the window is, as what is added to its first row."""
        window, found = self.plan.window, self.products
        if window is None or window.operand != k:
            return ""
        rows, moves = found.rows if k < len(found.left) else found.columns, []
        for point, row, step in window.moves:
            after = "".join(f" * {self.counts[a]}" for a in rows[rows.index(row) + 1 :])
            moves.append(f" + {self.names[point]}{f' * {step}' if step > 1 else ''}{after}")
        return "".join(moves)

    def bring_box(self, tile: Tile, k: int) -> None:
        rows, points = self.plan.tile[0] if tile.left else self.plan.tile[1], self.plan.tile[2]
        first, point, moved = self.firsts["rows" if tile.left else "columns"], f"turn * {points}", self.moved(k)
        if k in self.packed:
            rest = ["int(batch)" if self.products.batch else "0"]
        else:
            read = factor_read(self.function, self.plan.factors, self.products, tile.operand)
            assert read is not None
            side = (self.products.rows if tile.left else self.products.columns)[0]
            at = {axis_along(read.index, a) for a in (side, self.products.over[0])}
            rest = [f"int({self.printer.index(read.index[d])})" for d in reversed(range(len(read.index))) if d not in at]
            self.writer.cite(read.location)
        for begin in range(0, rows, rows if tile.staged.along_points else points):
            more = f" + {begin}" if begin else ""
            if moved:
                more, point = moved + more, f"chunk * {points}"
            place, row = f"{tile.tile}[place].element{f' + {begin * points}' if begin else ''}", f"int({first}{more})"
            pair = [point, row] if tile.staged.along_points else [row, point]
            self.writer.line(f"weft::tensor_load({place}, {self.maps[k]}, full[place], {', '.join([*pair, *rest])});")

    # ---------------------------------------------------------------- turns

    def turns(self, tiles: list[Tile]) -> None:
        line, stages, k, points = self.writer.line, self.plan.stages, self.plan.tile[2], self.wholes["points"]
        ahead = stages - 2 if self.by_warpgroups else stages - 1
        line(f"const int32_t turns = ({points} + {k - 1}) / {k};")
        first = self.firsts["points"] = self.fresh.fresh("first_point")
        with self.writer.block("const auto bring = [&](const int32_t turn)", "};"):
            line(f"const int64_t {first} = int64_t(turn) * {k};")
            for k, tile in enumerate(tiles):
                self.bring(tile, k)
            line("weft::commit_copies();")
        begin, stop = self.own_turns()
        line(f"for (int32_t turn = {begin}; turn < {begin} + {ahead}; ++turn) bring(turn);")
        with self.writer.block(f"for (int32_t turn = {begin}; turn < {stop}; ++turn)"):
            line(f"weft::wait_copies<{ahead - 1}>();")
            if self.by_warpgroups:
                line("weft::fence_proxy_async();")
            line("__syncthreads();  // all have what this turn takes, and are done with what the next copies replace")
            if self.by_warpgroups:
                self.multiply_by_warpgroups(tiles, f"turn % {stages}")
                line(f"bring(turn + {ahead});")
                line("weft::wgmma_wait<1>();  // the products of the turn before")
            else:
                begun = f"bring(turn + {ahead});"
                # products of doubles take so long that copies begin while those of the first points run; others were slower so
                if self.plan.factors != FLOAT64:
                    line(begun)
                self.multiply_by_warps(tiles, begun if self.plan.factors == FLOAT64 else "")
        if self.by_warpgroups:
            line(f"weft::wgmma_wait<0>({', '.join(self.accumulators())});")

    def each_product(self, tiles: list[Tile]) -> Iterator[tuple[Fold, tuple[Tile, Tile]]]:
        """The products of a turn, with the fold that each is summed in."""
        return ((f, pair) for f in self.products.folds for pair in self.operands_of(f, tiles))

    def accumulators(self) -> list[str]:
        blocks = self.plan.each[0] // 64
        return [f"{self.totals[f.results[0]]}[{b}]" for f in self.products.folds for b in range(blocks)]

    def multiply_by_warpgroups(self, tiles: list[Tile], place: str) -> None:
        """Start the products of a turn: nobody waits for them here."""
        line, (m, _) = self.writer.line, self.plan.each
        line(f"weft::wgmma_fence({', '.join(self.accumulators())});")
        line("#pragma unroll")
        with self.writer.block(f"for (int32_t g = 0; g < {self.plan.tile[2]}; g += {self.plan.deep})"):
            for f, (left, right) in self.each_product(tiles):
                majors = ["weft::Major::k" if t.staged.along_points else "weft::Major::rows" for t in (left, right)]
                turned = f", {', '.join(majors)}" if majors != ["weft::Major::k"] * 2 else ""
                template = self.types_of(left, right) + turned
                for b in range(m // 64):
                    row = f"own_row + {64 * b}" if b else "own_row"
                    a = f"{left.tile}[{place}].matrix({row}, g)"
                    of_right = f"{right.tile}[{place}].matrix(own_column, g)"
                    self.writer.cite(f.location)
                    line(f"weft::wgmma<{template}>({self.totals[f.results[0]]}[{b}], {a}, {of_right}, true);")
        line("weft::wgmma_commit();")

    def multiply_by_warps(self, tiles: list[Tile], bring: str) -> None:
        """The products of a turn. bring: what is begun while those of the first points run."""
        line, (m, n), stages = self.writer.line, self.plan.each, self.plan.stages
        line("#pragma unroll")
        with self.writer.block(f"for (int32_t g = 0; g < {self.plan.tile[2]}; g += {self.plan.deep})"):
            names, register = {}, "double" if self.plan.factors == FLOAT64 else "uint32_t"
            for t in tiles:
                own = names[t.tile] = self.fresh.fresh(f"{t.tile.removesuffix('_tile')}_own")
                side, count, first = ("left", m // 16, "own_row") if t.left else ("right", n // 16, "own_column")
                line(f"{register} {own}[{count}][4];")
                line("#pragma unroll")
                line(f"for (int32_t u = 0; u < {count}; ++u) {t.tile}[turn % {stages}].{side}({first} + u * 16, g, {own}[u]);")
            products = []
            for f, (left, right) in self.each_product(tiles):
                type_ = self.types_of(left, right)
                pair = f"{{{names[right.tile]}[v / 2][v % 2 * 2], {names[right.tile]}[v / 2][v % 2 * 2 + 1]}}"
                products.append(f"weft::mma<{type_}>({self.totals[f.results[0]]}[u][v], {names[left.tile]}[u], {pair});")
            self.unrolled([f"for (int32_t u = 0; u < {m // 16}; ++u)", f"for (int32_t v = 0; v < {n // 8}; ++v)"], *products)
            if bring:
                line(f"if (g == 0) {bring}")
