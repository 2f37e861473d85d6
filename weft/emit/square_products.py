"""Products by multiply-adds, or by what else rows and columns meet in: a thread has a square of results in registers.

While a tile of the operands is gone through, what the next one is made of is on its way to registers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace

from weft.emit.cpp_body import factor
from weft.emit.expressions import AND, memory_type, register_type
from weft.emit.products import Fragment, ProductEntry, Tile
from weft.graph.products import Operand
from weft.graph.tile import Fold, Read, names_of
from weft.loops.ir import Expr, free_names
from weft.plan.product import (
    ACROSS,
    DOWN,
    NEAREST,
    RUN,
    ProductPlan,
    Staged,
    asked_of,
    made_of,
    operand_reads,
    packed_type,
    placed,
)

# The place of a thread among those of its warp, as C++: of four below each other, and of eight beside each other.
LANE_ROW = f"threadIdx.x % {NEAREST} + threadIdx.x % 32 / {NEAREST * ACROSS} * {NEAREST}"
LANE_COLUMN = f"threadIdx.x / {NEAREST} % {ACROSS}"


@dataclass(frozen=True)
class Placed:
    """An operand that comes one by one: what it is read from, and what its subscripts have of the point; the names of where a
    thread's rows are, of whether they are there, and of what is added to that at the points of a turn.
    """

    tile: Tile
    read: Read
    of_points: tuple[Expr, ...]
    rows: str
    points: str
    there: str


@dataclass
class SquareEntry(ProductEntry):
    @classmethod
    def included(cls, plan: ProductPlan) -> str:
        return "weft/product.cuh"

    def shape(self) -> str:
        (m, n, k), (own_m, own_n), groups = self.plan.tile, self.plan.each, self.plan.groups
        shared = f", {groups} groups of threads share the points of a turn" if groups > 1 else ""
        return f"a block has {m} x {n} results, a thread {own_m} x {own_n}; a turn takes {k} points{shared}"

    @property
    def fragment(self) -> Fragment:
        (m, n), (rows, columns, _) = self.plan.each, self.plan.tile
        row = f"{RUN} * down + u" if m == RUN else f"{RUN} * down + u / {RUN} * {rows * RUN // m} + u % {RUN}"
        column = f"{RUN} * across" if n == RUN else f"{RUN} * across + h * {columns * RUN // n}"
        return Fragment(m, row, n // RUN, RUN, column)

    @property
    def lane_row(self) -> str:
        return LANE_ROW

    @property
    def lane_column(self) -> str:
        return f"{LANE_COLUMN} * {RUN}"

    def total(self, f: Fold, column: str) -> str:
        return f"{self.totals[f.results[0]]}[u][{column}]"

    def fold_points(self) -> None:
        self.places_of_thread()
        tiles = [self.begun_tile(k, *each) for k, each in enumerate(self.tiles())]
        self.begin_totals()
        self.owns = {own.name: self.own(own) for own in self.products.owns}
        self.turns(tiles)

    def end(self, results: Callable[[], None]) -> None:
        if self.plan.groups > 1:
            self.meet(results)
        else:
            results()

    def begin_totals(self) -> None:
        (m, n), starts = self.plan.each, []
        for f in self.products.folds:
            own = self.totals[f.results[0]] = self.fresh.fresh(f"{f.names[0]}_own")
            self.writer.line(f"{register_type(f.types[0])} {own}[{m}][{n}];")
            starts.append(f"{own}[u][v] = {self.algebra(f)}::identity();")
        self.unrolled(self.each_result(), *starts)

    def own(self, own: Operand) -> str:
        """Declare what each of a thread's results has of its own."""
        (m, n), at, line, found = self.plan.each, self.fragment, self.writer.line, self.products
        name = self.fresh.fresh("of_result" if own.name.startswith("own.") else f"{own.name}_of_result")
        line(f"{register_type(own.value.type)} {name}[{m}][{n}] = {{}};")
        with self.each_run(), self.unrolled_block([f"for (int32_t v = 0; v < {at.run}; ++v)"]):
            row = self.place_of(found.rows, self.firsts["rows"], at.row, self.wholes["rows"])
            column = self.place_of(found.columns, self.firsts["columns"], f"{at.column} + v", self.wholes["columns"])
            with self.writer.block(f"if ({row} && {column})"):
                self.statements(tuple(map(self.let, made_of(found, (own.value,)))))
                line(f"{name}[u][h * {at.run} + v] = {self.printer.value(own.value)};")
        return name

    def each_result(self) -> list[str]:
        m, n = self.plan.each
        return [f"for (int32_t u = 0; u < {m}; ++u)", f"for (int32_t v = 0; v < {n}; ++v)"]

    def places_of_thread(self) -> None:
        plan, line = self.plan, self.writer.line
        down, across = plan.squares
        alone = down * across
        own = "threadIdx.x"
        if plan.groups > 1:
            line(f"const int32_t group = threadIdx.x / {alone};")
            own = f"threadIdx.x % {alone}"
        warps = across // ACROSS
        x = LANE_COLUMN + (f" + {own} / 32 % {warps} * {ACROSS}" if warps > 1 else "")
        y = LANE_ROW + (f" + {own} / {32 * warps} * {DOWN}" if down > DOWN else "")
        line(f"const int32_t across = {x}, down = {y};")

    def begun_tile(self, place: int, operand: Operand, staged: Staged, left: bool, base: str) -> Tile:
        name, own = self.fresh.fresh(f"{base}_tile"), self.fresh.fresh(f"{base}_own")
        found = Tile(operand, staged, left, name, own, packed=place if place in self.packed else None)
        self.writer.line(f"__shared__ weft::{self.tile_type(found)} {name}[2];")
        count, next_ = self.fetches(found), {v.name: (v.array, self.function.array(v.array).dtype) for v in self.fetched(found)}
        if found.packed is not None:
            next_ = {operand.name: (base, packed_type(self.function, self.plan, self.products, operand))}
        reads = {}
        for v, (of, dtype) in next_.items():
            reads[v] = self.fresh.fresh(f"{of}_next")
            run = f"weft::Run<{memory_type(dtype)}, {staged.vector}>"
            self.writer.line(f"{run} {reads[v]}{f'[{count}]' if count > 1 else ''};")
        return replace(found, reads=reads)

    def tile_type(self, tile: Tile) -> str:
        return f"OperandTile<{register_type(tile.operand.value.type)}, {self.tile_shape(tile)}>"

    def tile_shape(self, tile: Tile) -> str:
        """Points and rows of a tile, and how many of the former come together, if they do."""
        m, n, k = self.plan.tile
        along = f", {tile.staged.vector}" if tile.staged.along_points else ""
        return f"{k}, {m if tile.left else n}{along}"

    def fetched(self, tile: Tile) -> list[Read]:
        """What is read a turn ahead: all that needs no other read and no check."""
        reads = [v for v in operand_reads(self.products, tile.operand) if isinstance(v, Read)]
        made = {n for v in self.values for n in names_of(v)}
        return [v for v in reads if v.always and not v.checked and not any(free_names(i) & made for i in v.index)]

    def packet(self, tile: Tile) -> str:
        """What tells the packets of a thread apart."""
        return "[q]" if self.fetches(tile) > 1 else ""

    # ---------------------------------------------------------------- turns

    def turns(self, tiles: list[Tile]) -> None:
        """Each turn fetches its points, while those of the turn before are gone through."""
        line, k, points = self.writer.line, self.plan.tile[2], self.wholes["points"]
        first = self.firsts["points"] = self.fresh.fresh("first_point")
        begin, stop = "0", points
        if self.plan.parts > 1:
            line(f"const int64_t own_points = ({points} + {self.plan.parts * k - 1}) / {self.plan.parts * k} * {k};")
            line(f"const int64_t begin = part * own_points, stop = weft::minimum<int64_t>(begin + own_points, {points});")
            begin, stop = "begin", "stop"
        line("int32_t now = 0;")
        found = [p for t in tiles if (p := self.begun_places(t)) is not None]
        if found:
            self.points_of_turn(found, begin)
            line("__syncthreads();")
        with self.writer.block(f"for (int64_t {first} = {begin};; {first} += {k})"):
            with self.writer.block(f"if ({first} < {stop})"):
                for tile in tiles:
                    own = next((p for p in found if p.tile is tile), None)
                    if tile.reads:
                        with self.packets(tile, located=own is None):
                            self.fetch(tile) if own is None else self.fetch_placed(own)
            with self.writer.block(f"if ({first} > {begin})"):
                self.multiply(tiles, stop)
            line(f"if ({first} >= {stop}) break;")
            line("now ^= 1;")
            if found:
                self.points_of_turn(found, f"{first} + {k}")
            for tile in tiles:
                with self.packets(tile, located=not tile.whole):
                    self.put(tile)
            line("__syncthreads();")

    def begun_places(self, tile: Tile) -> Placed | None:
        """Declare where the rows of an operand are that a thread brings, and room for what is added to that at the points of
        two turns; None where it does not come so.
        """
        told = placed(self.products, tile.operand) if tile.staged.placed and tile.packed is None else None
        if told is None:
            return None
        read, of_rows, of_points = told
        side, axes = ("rows", self.products.rows) if tile.left else ("columns", self.products.columns)
        rows, points, there = (self.fresh.fresh(f"{read.array}_{n}") for n in ("rows", "points", "there"))
        count, hoisted = self.fetches(tile), self.pointers.get(read.array, ("", frozenset[int]()))[1]
        self.writer.line(f"__shared__ int64_t {points}[2][{self.plan.tile[2]}];")
        self.writer.line(f"int64_t {rows}[{count}];")
        self.writer.line(f"bool {there}[{count}];")
        with self.packets(tile, located=False):
            at = "q" if count > 1 else "0"
            here = self.place_of(axes, self.firsts[side], "row", self.wholes[side])
            self.writer.line(f"{rows}[{at}] = {self.offset(read.array, of_rows, hoisted)};")
            self.writer.line(f"{there}[{at}] = {here};")
        return Placed(tile, read, of_points, rows, points, there)

    def points_of_turn(self, found: list[Placed], first: str) -> None:
        """What is added to where rows are at the points of a turn: a thread finds that of one of them."""
        k = self.plan.tile[2]
        with self.writer.block(f"if (threadIdx.x < {k})"):
            self.place_of(self.products.over, first, "threadIdx.x", self.wholes["points"])
            for own in found:
                hoisted = self.pointers.get(own.read.array, ("", frozenset[int]()))[1]
                offset = self.offset(own.read.array, own.of_points, hoisted)
                self.writer.line(f"{own.points}[now][threadIdx.x] = {offset};")

    def fetch_placed(self, own: Placed) -> None:
        """Begin to read an element from where its row and its point say."""
        (there,), line, at = own.tile.reads.values(), self.writer.line, "q" if self.fetches(own.tile) > 1 else "0"
        line(f"{there}{self.packet(own.tile)} = {{}};")
        with self.writer.block(f"if ({own.there}[{at}] && {self.firsts['points']} + point < {factor(self.wholes['points'])})"):
            self.writer.cite(own.read.location)
            pointer = self.pointers.get(own.read.array, (self.arrays[own.read.array], frozenset[int]()))[0]
            place = f"{pointer} + {own.rows}[{at}] + {own.points}[now][point]"
            line(f"{there}{self.packet(own.tile)} = weft::fetch<1, 1>({place});")

    def fetch(self, tile: Tile) -> None:
        """Begin to read what a packet is made of."""
        vector, line = tile.staged.vector, self.writer.line
        for name in tile.reads.values():
            line(f"{name}{self.packet(tile)} = {{}};")
        with self.writer.block("if (here)"):
            if tile.packed is not None:
                (there,), address = tile.reads.values(), self.packed_address(tile, tile.packed)
                line(f"{there}{self.packet(tile)} = weft::fetch<{vector}, {vector}>({address});")
                return
            asked = asked_of(self.products, tile.operand)
            if asked is None:
                self.fetch_packet(tile)
            elif vector == 1:
                with self.writer.block(f"if ({self.printer.value(asked)})"):
                    self.fetch_packet(tile)
            else:
                self.fetch_asked(tile, asked)

    def fetch_packet(self, tile: Tile) -> None:
        """Begin to read a packet of all that an operand is made of."""
        vector, line, lane = tile.staged.vector, self.writer.line, self.lane_of(tile)
        for read in self.fetched(tile):
            self.writer.cite(read.location)
            run = f"{tile.reads[read.name]}{self.packet(tile)}"
            if vector > 1 and lane not in read.axes:
                same = f"for (int32_t v = 0; v < {vector}; ++v) {run}.set(v, {self.element(read.array, read.index)});"
                line("#pragma unroll")
                line(same)
            elif not tile.staged.aligned:
                along = f"{self.names[lane]}, 0, {self.end_of(tile)}"
                line(f"{run} = weft::fetch_anywhere<{vector}>({self.address(read.array, read.index)}, {along});")
            else:
                width = self.width(read.array, vector)
                line(f"{run} = weft::fetch<{vector}, {width}>({self.address(read.array, read.index)});")

    def fetch_asked(self, tile: Tile, asked: Expr) -> None:
        """The same of a packet that is asked of in part: memory of which nobody asks may be nobody's."""
        vector, lane, line = tile.staged.vector, self.lane_of(tile), self.writer.line
        every, own, header = self.fresh.fresh("asked"), self.fresh.fresh(lane), f"for (int32_t v = 0; v < {vector}; ++v)"
        first = f"const int64_t {own} = {self.names[lane]} + v;"
        with self.spelled({lane: own}):
            conditions = [self.printer.value(asked, AND)]
        if tile.staged.aligned:
            line(f"bool {every} = true;")
            self.unrolled([header], first, f"{every} = {every} && {conditions[0]};")
            with self.writer.block(f"if ({every})"):
                self.fetch_packet(tile)
        else:  # what is about it comes with a packet
            conditions.insert(0, f"{own} < {self.end_of(tile)}")
        with self.writer.block("else") if tile.staged.aligned else nullcontext(), self.unrolled_block([header]):
            line(first)
            line(f"if (!({' && '.join(conditions)})) continue;")
            with self.spelled({lane: own}):
                for read in self.fetched(tile):
                    self.writer.cite(read.location)
                    run = f"{tile.reads[read.name]}{self.packet(tile)}"
                    line(f"{run}.set(v, {self.element(read.array, read.index)});")

    def end_of(self, tile: Tile) -> str:
        """Where the axis ends along which an operand is brought."""
        return self.wholes["points" if tile.staged.along_points else "rows" if tile.left else "columns"]

    def put(self, tile: Tile) -> None:
        """A packet's values to shared memory."""
        vector, line = tile.staged.vector, self.writer.line
        run, type_ = self.fresh.fresh(f"{tile.own}_run"), register_type(tile.operand.value.type)
        line(f"{type_} {run}[{vector}]{'' if tile.whole else ' = {}'};")
        if tile.whole:
            (there,) = tile.reads.values()
            line(f"weft::unpack({there}{self.packet(tile)}, {run});")
        else:
            with self.writer.block("if (here)"):
                self.put_made(tile, run)
        way = "points" if tile.staged.along_points else "rows"
        line(f"{tile.tile}[now].put_{way}(point, row, {run});")

    def put_made(self, tile: Tile, run: str) -> None:
        """What an operand is at the points of a packet."""
        line, vector, lane = self.writer.line, tile.staged.vector, self.lane_of(tile)
        values = {}
        for read in self.fetched(tile):
            name = values[read.name] = self.fresh.fresh(f"{read.array}_run")
            line(f"{register_type(self.function.array(read.array).dtype)} {name}[{vector}];")
            line(f"weft::unpack({tile.reads[read.name]}{self.packet(tile)}, {name});")
        first = self.names[lane]
        line("#pragma unroll")
        with self.writer.block(f"for (int32_t v = 0; v < {vector}; ++v)"):
            mark, own = self.writer.mark(), first if vector == 1 else self.fresh.fresh(lane)
            with self.spelled({lane: own}):
                self.compute(tile, {n: f"{there}[v]" for n, there in values.items()}, f"{run}[v]")
            if vector > 1 and self.writer.mentions(own, mark):
                self.writer.insert(mark, f"const int64_t {own} = {first} + v;")

    def multiply(self, tiles: list[Tile], stop: str) -> None:
        """The points of a turn: those of a thread's rows meet those of its columns."""
        (m, n), (rows, columns, k), line = self.plan.each, self.plan.tile, self.writer.line
        own = k // self.plan.groups
        line("#pragma unroll")
        with self.writer.block(f"for (int32_t g = 0; g < {own}; ++g)"):
            point = f"group * {own} + g" if self.plan.groups > 1 else "g"
            if not all(map(self.products.neutral, self.products.folds)):
                line(f"if ({self.firsts['points']} - {k} + {point} >= {stop}) break;")
            for t in tiles:
                each, all_, place = (m, rows, "down") if t.left else (n, columns, "across")
                line(f"{register_type(t.operand.value.type)} {t.own}[{each}];")
                line(f"{t.tile}[now].get<{all_ * RUN // each}>({point}, {RUN} * {place}, {t.own});")
            line("#pragma unroll")
            with self.writer.block(f"for (int32_t u = 0; u < {m}; ++u)"):
                line("#pragma unroll")
                names = {t.operand.name: f"{t.own}[{'u' if t.left else 'v'}]" for t in tiles}
                names |= {operand: f"{own}[u][v]" for operand, own in self.owns.items()}
                with self.writer.block(f"for (int32_t v = 0; v < {n}; ++v)"), self.spelled(names):
                    for f in self.products.folds:
                        self.fold(f, self.total(f, "v"))

    def meet(self, results: Callable[[], None]) -> None:
        """What groups have made of their points is combined, in their order, by the first."""
        line, groups, (m, n) = self.writer.line, self.plan.groups, self.plan.each
        threads = self.plan.threads // groups
        kept = {}
        for f in self.products.folds:
            kept[f.results[0]] = self.fresh.fresh(f"{f.names[0]}_parts")
            line(f"__shared__ {register_type(f.types[0])} {kept[f.results[0]]}[{groups - 1}][{m * n}][{threads}];")
        with self.writer.block("if (group > 0)"):
            place = f"[group - 1][u * {n} + v][threadIdx.x % {threads}]"
            puts = [f"{name}{place} = {self.totals[r]}[u][v];" for r, name in kept.items()]
            self.unrolled(self.each_result(), *puts)
        line("__syncthreads();")
        joins = []
        for f in self.products.folds:
            own, other = self.total(f, "v"), f"{kept[f.results[0]]}[g][u * {n} + v][threadIdx.x]"
            joins.append(f"{own} = {self.algebra(f)}::combine({own}, {other});")
        loops = [f"for (int32_t g = 0; g < {groups - 1}; ++g)", *self.each_result()]
        line("if (group > 0) return;")
        self.unrolled(loops, *joins)
        results()
