"""Products of a few rows with many columns: what columns are made of is read once, from memory to the registers of the threads
that multiply it, with much of it in flight; of rows, caches have all.

The warps of a block, and the blocks of a cluster, share the points; what they have of each result is combined in their order.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.emit.cpp_body import factor
from weft.emit.expressions import memory_type, register_type
from weft.emit.products import ProductEntry, Tile
from weft.graph.products import exact_type
from weft.graph.tile import Read, uses
from weft.loops.ir import free_names
from weft.plan.fold import WARP
from weft.plan.product import FRAGMENT_ROWS, QUAD, ProductPlan, operand_read, operand_reads, runs_along, streamed_read


@dataclass
class FewRowsEntry(ProductEntry):
    """each: rows and columns of a thread, all of the block's rows by multiply-adds."""

    @classmethod
    def included(cls, plan: ProductPlan) -> str:
        return "weft/fragment.cuh" if plan.engine == "mma" else "weft/memory.cuh"

    def shape(self) -> str:
        (m, n, _), (_, across) = self.plan.tile, self.plan.each
        return f"a block has {m} x {n} results, a thread {across} columns; {self.plan.groups} warps share the points"

    def bounds(self) -> str:
        """A block has as many registers as it needs: ptxas would spill a few for a second one."""
        cluster = f" __cluster_dims__({self.plan.cluster}, 1, 1)" if self.plan.cluster > 1 else ""
        return f"__launch_bounds__({self.plan.threads}, 1){cluster}"

    @property
    def by_matrices(self) -> bool:
        return self.plan.engine == "mma"

    def body(self) -> None:
        line, plan = self.writer.line, self.plan
        self.sizes()
        self.square("int32_t(blockIdx.x)" + (f" / {plan.parts}" if plan.parts > 1 else ""))
        self.which_part()
        line(f"const int32_t warp = threadIdx.x / {WARP}, across = threadIdx.x % {WARP} / {QUAD}, down = threadIdx.x % {QUAD};")
        tiles = [Tile(*each[:3], self.fresh.fresh(f"{each[3]}_own")) for each in self.tiles()]
        self.known = {tile.tile: self.known_of_columns(tile) for tile in tiles if not tile.left}
        self.begin_totals()
        self.go_through_points(tiles)
        self.meet()

    def square(self, number: str) -> None:
        columns = self.squares["columns"]
        if self.products.batch:
            self.writer.line(f"const int32_t batch = {factor(number)} / {columns};")
            self.places([self.axes[a] for a in self.products.batch], "batch", self.counts)
            number = f"{factor(number)} % {columns}"
        self.firsts |= {"rows": "0", "columns": self.fresh.fresh("first_column")}
        self.writer.line(f"const int64_t {self.firsts['columns']} = int64_t({number}) * {self.plan.tile[1]};")

    def begin_totals(self) -> None:
        (m, n), starts = self.plan.each, []
        for f in self.products.folds:
            own = self.totals[f.results[0]] = self.fresh.fresh(f"{f.names[0]}_own")
            if self.by_matrices:
                self.writer.line(f"float {own}[{n // 2}][{m // FRAGMENT_ROWS}][4] = {{}};")
            else:
                self.writer.line(f"{register_type(f.types[0])} {own}[{m}][{n}];")
                starts.append(f"{own}[u][v] = {self.algebra(f)}::identity();")
        if starts:
            self.unrolled([f"for (int32_t u = 0; u < {m}; ++u)", f"for (int32_t v = 0; v < {n}; ++v)"], *starts)

    # ---------------------------------------------------------------- points

    def go_through_points(self, tiles: list[Tile]) -> None:
        """Each warp has runs of neighbours in flight, then multiplies them."""
        plan, line, points = self.plan, self.writer.line, self.wholes["points"]
        first = self.firsts["points"] = self.fresh.fresh("first_point")
        own = plan.run_points * QUAD  # of a warp at a time
        begin, stop = f"warp * {own * plan.stages}", points
        if plan.parts > 1:
            line(f"const int64_t own_points = ({points} + {plan.parts * own - 1}) / {plan.parts * own} * {own};")
            line(f"const int64_t stop = weft::minimum<int64_t>((part + 1) * own_points, {points});")
            begin, stop = f"part * own_points + {begin}", "stop"
        with self.writer.block(f"for (int64_t {first} = {begin}; {first} < {stop}; {first} += {plan.tile[2]})"):
            for tile in tiles:
                if not tile.left:
                    self.fetch_ahead(tile, stop)
            line("#pragma unroll")
            with self.writer.block(f"for (int32_t q = 0; q < {plan.stages}; ++q)"):
                if self.by_matrices:
                    self.multiply_fragments(tiles, stop)
                else:
                    self.multiply(tiles, stop)

    @property
    def point(self) -> str:
        """The first point that a thread has of its q-th run, counted from the warp's first."""
        return f"(q * {QUAD} + down) * {self.plan.run_points}"

    def fetch_ahead(self, tile: Tile, stop: str) -> None:
        """What a thread takes of columns, as it is in memory."""
        line, plan, (_, n) = self.writer.line, self.plan, self.plan.each
        read = streamed_read(self.products, tile.operand)
        assert read is not None
        along, vector = tile.staged.along_points, tile.staged.vector
        runs = n if along else plan.run_points
        line(f"weft::Run<{memory_type(self.function.array(read.array).dtype)}, {vector}> {tile.tile}[{plan.stages}][{runs}];")
        loops = [f"for (int32_t q = 0; q < {plan.stages}; ++q)", f"for (int32_t v = 0; v < {runs}; ++v)"]
        column, point = f"across * {n}", self.point
        with self.unrolled_block(loops):
            here = self.place_of(
                self.products.columns, self.firsts["columns"], f"{column} + v" if along else column, self.wholes["columns"]
            )
            inside = self.place_of(self.products.over, self.firsts["points"], point if along else f"{point} + v", stop)
            line(f"{tile.tile}[q][v] = {{}};")
            self.writer.cite(read.location)
            line(f"if ({here} && {inside}) {tile.tile}[q][v] = {self.fetched(tile, read, stop)};")

    def fetched(self, tile: Tile, read: Read, stop: str) -> str:
        """A run of neighbours of an operand that is what is read."""
        vector, address = tile.staged.vector, self.address(read.array, read.index)
        if tile.staged.aligned:
            return f"weft::fetch<{vector}, {self.width(read.array, vector)}>({address})"
        high = stop if tile.staged.along_points else self.wholes["columns"]
        return f"weft::fetch_anywhere<{vector}>({address}, {self.names[self.lane_of(tile)]}, 0, {high})"

    def own_row(self, tiles: list[Tile], row: str, stop: str) -> list[str]:
        """Declare what a row's operands are at the points of a run, as numbers; the names of that."""
        line, vector = self.writer.line, self.plan.run_points
        runs = [self.fresh.fresh(f"{tile.tile}_run") for tile in tiles]
        for tile, run in zip(tiles, runs, strict=True):
            line(f"{register_type(tile.operand.value.type)} {run}[{vector}] = {{}};")
        here = self.place_of(self.products.rows, self.firsts["rows"], row, self.wholes["rows"])
        inside = self.place_of(self.products.over, self.firsts["points"], self.point, stop)
        for tile, run in zip(tiles, runs, strict=True):
            read = operand_read(self.products, tile.operand)
            with self.writer.block(f"if ({here} && {inside})"):
                if read is not None and tile.staged.vector > 1:
                    self.writer.cite(read.location)
                    line(f"weft::unpack({self.fetched(tile, read, stop)}, {run});")
                else:
                    self.one_by_one(tile, run, stop)
        return runs

    def one_by_one(self, tile: Tile, run: str, stop: str) -> None:
        """The points of a run of what is computed, or does not lie side by side; reads that do come in packets."""
        line, vector, (lane,) = self.writer.line, self.plan.run_points, self.products.over
        first, there = self.names[lane], {}
        for read in operand_reads(self.products, tile.operand):
            if isinstance(read, Read) and lane in read.axes and runs_along(self.products, read, lane, self.facts):
                name = there[read.name] = self.fresh.fresh(f"{read.array}_run")
                line(f"{register_type(self.function.array(read.array).dtype)} {name}[{vector}];")
                self.writer.cite(read.location)
                packet = f"weft::fetch_anywhere<{vector}>({self.address(read.array, read.index)}, {first}, 0, {stop})"
                line(f"weft::unpack({packet}, {name});")
        line("#pragma unroll")
        with self.writer.block(f"for (int32_t e = 0; e < {vector}; ++e)"):
            own = self.fresh.fresh(lane)
            line(f"const int64_t {own} = {first} + e;")
            with self.spelled({lane: own}), self.writer.block(f"if ({own} < {stop})"):
                self.compute(tile, {n: f"{name}[e]" for n, name in there.items()}, f"{run}[e]")

    def multiply_fragments(self, tiles: list[Tile], stop: str) -> None:
        line, blocks, points = self.writer.line, self.plan.each[0] // FRAGMENT_ROWS, self.plan.run_points
        made = {}
        for tile in tiles:
            type_ = exact_type(self.function, self.products, tile.operand)
            if not tile.left:
                made[tile.tile] = f"{tile.tile}[q]"
                if operand_read(self.products, tile.operand) is None:
                    own, runs = self.computed_columns(tile, stop), self.column_runs(tile)
                    made[tile.tile] = self.fresh.fresh(f"{tile.tile}_made")
                    line(f"weft::Run<weft::{type_}, {tile.staged.vector}> {made[tile.tile]}[{runs}];")
                    text = f"{made[tile.tile]}[v] = weft::packed<weft::{type_}>({own}[v]);"
                    self.unrolled([f"for (int32_t v = 0; v < {runs}; ++v)"], text)
                continue
            line(f"weft::Run<weft::{type_}, {points}> {tile.tile}[{blocks}];")
            read = operand_read(self.products, tile.operand)
            with self.unrolled_block([f"for (int32_t u = 0; u < {blocks}; ++u)"]):
                row = f"u * {FRAGMENT_ROWS} + across"
                if read is None or tile.staged.vector == 1:
                    (run,) = self.own_row([tile], row, stop)
                    line(f"{tile.tile}[u] = weft::packed<weft::{type_}>({run});")
                    continue
                line(f"{tile.tile}[u] = {{}};")
                here = self.place_of(self.products.rows, self.firsts["rows"], row, self.wholes["rows"])
                inside = self.place_of(self.products.over, self.firsts["points"], self.point, stop)
                self.writer.cite(read.location)
                line(f"if ({here} && {inside}) {tile.tile}[u] = {self.fetched(tile, read, stop)};")
        for f in self.products.folds:
            for left, right in self.operands_of(f, tiles):
                way = "points" if right.staged.along_points else "columns"
                type_ = exact_type(self.function, self.products, right.operand)
                self.writer.cite(f.location)
                line(f"weft::multiply_{way}<weft::{type_}>({self.totals[f.results[0]]}, {left.tile}, {made[right.tile]});")

    def column_runs(self, tile: Tile) -> int:
        """How many packets a thread takes of an operand of columns at a time."""
        return self.plan.each[1] if tile.staged.along_points else self.plan.run_points

    def unpacked_columns(self, tile: Tile) -> str:
        """Declare what is read of columns, as numbers; the name of that."""
        read, runs = streamed_read(self.products, tile.operand), self.column_runs(tile)
        assert read is not None
        own = self.fresh.fresh(f"{tile.tile}_run")
        type_ = register_type(self.function.array(read.array).dtype)
        self.writer.line(f"{type_} {own}[{runs}][{tile.staged.vector}];")
        self.unrolled([f"for (int32_t v = 0; v < {runs}; ++v)"], f"weft::unpack({tile.tile}[q][v], {own}[v]);")
        return own

    def computed_columns(self, tile: Tile, stop: str) -> str:
        """Declare what is computed of what is read of columns, 0 at points beyond the last; the name of that."""
        line, (_, n), along, found = self.writer.line, self.plan.each, tile.staged.along_points, self.products
        read, runs, vector = streamed_read(found, tile.operand), self.column_runs(tile), tile.staged.vector
        assert read is not None
        there, own = self.unpacked_columns(tile), self.fresh.fresh(f"{tile.tile}_values")
        line(f"{register_type(tile.operand.value.type)} {own}[{runs}][{vector}] = {{}};")
        points, columns = ((vector, "e"), (runs, "v")) if along else ((runs, "v"), (vector, "e"))
        loops = [f"for (int32_t {name} = 0; {name} < {count}; ++{name})" for count, name in (points, columns)]
        with self.unrolled_block(loops[:1]):
            inside = self.place_of(found.over, self.firsts["points"], f"{self.point} + {points[1]}", stop)
            with self.writer.block(f"if ({inside})"), self.unrolled_block(loops[1:]):
                column = f"across * {n} + {columns[1]}"  # of one beyond the last nothing is stored
                self.place_of(found.columns, self.firsts["columns"], column, self.wholes["columns"])
                known = {name: f"{text}[{columns[1]}]" for name, text in self.known[tile.tile].items()}
                self.compute(tile, {read.name: f"{there}[v][e]", **known}, f"{own}[v][e]")
        return own

    def known_of_columns(self, tile: Tile) -> dict[str, str]:
        """Declare what an operand's points have in common in each of a thread's columns; the names of that, by values'."""
        line, (_, n), found = self.writer.line, self.plan.each, self.products
        values = operand_reads(found, tile.operand)
        steady = [v for v in values if not {*found.over} & {*v.axes}]
        moving = [e for v in values if v not in steady for e in uses(v)]
        used = {name for e in (tile.operand.value, *moving) for name in free_names(e)}
        known = {v.name: self.fresh.fresh(f"{v.name}_known") for v in steady if v.name in used}
        if not known:
            return {}
        for v in steady:
            if v.name in known:
                line(f"{register_type(v.type)} {known[v.name]}[{n}] = {{}};")
        with self.unrolled_block([f"for (int32_t v = 0; v < {n}; ++v)"]):
            column = f"across * {n} + v"
            here = self.place_of(found.columns, self.firsts["columns"], column, self.wholes["columns"])
            with self.writer.block(f"if ({here})"):
                self.statements(tuple(map(self.let, steady)))
                for name, text in known.items():
                    line(f"{text}[v] = {self.names[name]};")
        return known

    def multiply(self, tiles: list[Tile], stop: str) -> None:
        """By multiply-adds, or whatever rows and columns meet in: a row after the other."""
        line, (m, n), points = self.writer.line, self.plan.each, self.plan.run_points
        names, lefts = {}, [t for t in tiles if t.left]
        for tile in tiles:
            if tile.left:
                continue
            computed = operand_read(self.products, tile.operand) is None
            own = self.computed_columns(tile, stop) if computed else self.unpacked_columns(tile)
            names[tile.operand.name] = f"{own}[v][e]" if tile.staged.along_points else f"{own}[e][v]"
        with self.unrolled_block([f"for (int32_t u = 0; u < {m}; ++u)"]):
            runs = self.own_row(lefts, "u", stop)
            names |= {tile.operand.name: f"{run}[e]" for tile, run in zip(lefts, runs, strict=True)}
            with self.unrolled_block([f"for (int32_t e = 0; e < {points}; ++e)"]):
                if not all(map(self.products.neutral, self.products.folds)):
                    line(f"if ({self.firsts['points']} + {self.point} + e >= {stop}) break;")
                with self.unrolled_block([f"for (int32_t v = 0; v < {n}; ++v)"]), self.spelled(names):
                    for f in self.products.folds:
                        self.fold(f, f"{self.totals[f.results[0]]}[u][v]")

    # ---------------------------------------------------------------- results

    def meet(self) -> None:
        """What warps, and blocks of a cluster, have made of their points is combined in their order; a thread has results."""
        plan, line, (m, n, _) = self.plan, self.writer.line, self.plan.tile
        self.launch.end(self.writer)
        kept = {}
        for f in self.products.folds:
            name = kept[f.results[0]] = self.fresh.fresh(f"{f.names[0]}_kept")
            line(f"__shared__ __align__(16) {register_type(f.types[0])} {name}[{plan.groups}][{m}][{n}];")
        self.leave_own(kept)
        if plan.cluster == 1:
            line("__syncthreads();")
            own = "&{0}[g][own_row][own_column]"
            self.results_of_runs("threadIdx.x", plan.threads, lambda f: own.format(kept[f.results[0]]), plan.groups)
            return
        line("weft::cluster_sync();")
        first, step = f"part * {plan.threads} + threadIdx.x", plan.threads * plan.parts
        there = f"weft::peer(&{{0}}[g % {plan.groups}][own_row][own_column], g / {plan.groups})"
        self.results_of_runs(first, step, lambda f: there.format(kept[f.results[0]]), plan.groups * plan.parts)
        line("weft::cluster_sync();  // others may read what this block has")

    def leave_own(self, kept: dict[str, str]) -> None:
        """What the lanes of a warp have, in shared memory."""
        m, n = self.plan.each
        for f in self.products.folds:
            own, place = self.totals[f.results[0]], f"{kept[f.results[0]]}[warp]"
            if self.by_matrices:
                loops = [f"for (int32_t v = 0; v < {n // 2}; ++v)", f"for (int32_t u = 0; u < {m // FRAGMENT_ROWS}; ++u)",
                         "for (int32_t e = 0; e < 4; ++e)"]  # fmt: skip
                row, column = f"u * {FRAGMENT_ROWS} + down * 2 + e % 2", f"across * {n} + v * 2 + e / 2"
                self.unrolled(loops, f"{place}[{row}][{column}] = {own}[v][u][e];")
                continue
            loops = [f"for (int32_t u = 0; u < {m}; ++u)", f"for (int32_t v = 0; v < {n}; ++v)"]
            whole = f"weft::reduce_lanes<{self.algebra(f)}, {QUAD}>({own}[u][v])"
            with self.unrolled_block(loops):
                line, value = self.writer.line, self.fresh.fresh(f"{f.names[0]}_lanes")
                line(f"const auto {value} = {whole};")
                line(f"if (down == (u + v) % {QUAD}) {place}[u][across * {n} + v] = {value};")
