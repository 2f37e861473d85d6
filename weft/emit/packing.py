"""Operands of products in whole packets: a launch before writes them to memory, line after line, for copies to bring."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from dataclasses import dataclass

from weft.emit.cpp_body import factor
from weft.emit.expressions import AND, SUM, memory_type, register_type
from weft.emit.products import ProductEntry, Tile
from weft.graph.tile import Axis, Read
from weft.loops.ir import Expr
from weft.plan.product import (
    PACK_BLOCK,
    RUN,
    TURNED,
    asked_of,
    packed_points,
    packed_type,
    runs_along,
    turned_read,
    whole_line,
    widened_read,
)

BYTES = 16  # neighbours that come together


@dataclass
class PackEntry(ProductEntry):
    """The launch for one operand."""

    def pack(self, entry: str, k: int) -> None:
        operand, staged, left, base = list(self.tiles())[k]
        lines = ",\n    ".join(self.parameters())
        self.writer.cite(self.function.location)
        with self.kernel(entry, lines, f"__launch_bounds__({PACK_BLOCK})"):
            read = turned_read(self.function, self.plan, self.products, k, self.facts)
            if read is None:
                self.packed_operand(Tile(operand, staged, left, base), k)
            else:
                self.turned_operand(Tile(operand, staged, left, base), k, read)

    def packed_operand(self, tile: Tile, k: int) -> None:
        line, found = self.writer.line, self.products
        rows = found.rows if tile.left else found.columns
        points = packed_points(self.plan, found, k)
        self.names |= dict.fromkeys({*found.over} - {*points}, "0")  # of a window that moves over it
        lane, lines = (points, rows) if tile.staged.along_points else (rows, points)
        lines = (*found.batch, *lines)
        for a in (*lines, *lane):  # what is packed has less than 2^31 elements
            count = self.span(self.axes[a], f"{a}_count")
            self.counts[a] = self.fresh.fresh(f"{a}_own")
            line(f"const int32_t {self.counts[a]} = int32_t({count});")
        whole = " * ".join(self.counts[a] for a in lane)
        if len(lane) > 1:
            name = self.fresh.fresh("points")
            line(f"const int32_t {name} = {whole};")
            whole = name
        packet = tile.staged.vector
        line(f"// a thread packs {packet} neighbours of a line")
        line(f"const int32_t packets = ({whole} + {packet - 1}) / {packet};")
        line(f"const int32_t place = blockIdx.x * {PACK_BLOCK} + threadIdx.x;")
        whole_lines = " * ".join(factor(self.counts[a]) for a in lines)
        line(f"if (place >= {whole_lines} * packets) return;")
        unit = whole_line(self.plan, k)
        if unit > packet:
            line(f"const int32_t pitch = ({whole} + {unit - 1}) / {unit} * {unit};")
        to = f"int64_t(place / packets) * pitch + place % packets * {packet}" if unit > packet else f"int64_t(place) * {packet}"
        if len(points) < len(found.over):  # neighbouring threads have neighbouring lines, which memory has side by side
            line(f"const int32_t lines = {whole_lines};")
            self.places([self.axes[a] for a in lines], "place % lines", self.counts)
            line(f"const int32_t first = place / lines * {packet};")
            to = f"int64_t(place % lines) * pitch + place / lines * {packet}"
        else:
            self.places([self.axes[a] for a in lines], "place / packets", self.counts)
            line(f"const int32_t first = place % packets * {packet};")
        read = widened_read(found, tile.operand)
        line(f"{register_type(tile.operand.value.type)} run[{packet}] = {{}};")
        asked = asked_of(found, tile.operand)
        if asked is not None or read is not None and not runs_along(found, read, lane[-1], self.facts):
            read = None  # that comes in packets: memory of which nobody asks may be nobody's
        if len(lane) == 1 and read is not None and self.plan.window is None:
            self.names[lane[0]] = "first"
            self.run_of(tile, read, lane[0])
        else:
            axes = [self.axes[a] for a in lane]
            self.places(axes, "first", self.counts, "")
            if self.plan.window is not None:
                read = None  # a packet of it may go on beyond what there is
            if read is not None:  # within one line of the fastest axis
                with self.writer.block(f"if ({self.names[lane[-1]]} + {packet} <= {self.counts[lane[-1]]})"):
                    self.run_of(tile, read, lane[-1])
            with self.writer.block("else") if read is not None else nullcontext():
                self.one_by_one(tile, axes, whole, asked)
        line(f"weft::store<{packet}>({self.packed[k]} + {to}, run);")

    def turned_operand(self, tile: Tile, k: int, read: Read) -> None:
        """Bytes that memory has along the rows, along the points: a block turns a square of them in shared memory."""
        line, found = self.writer.line, self.products
        (row,), (point,) = found.rows if tile.left else found.columns, found.over
        for a in (*found.batch, row, point):
            self.counts[a] = self.fresh.fresh(f"{a}_own")
            line(f"const int32_t {self.counts[a]} = int32_t({self.span(self.axes[a], f'{a}_count')});")
        rows, points = self.counts[row], self.counts[point]
        first_row, first_point = map(self.fresh.fresh, ("first_row", "first_point"))
        across, type_ = TURNED // BYTES, memory_type(packed_type(self.function, self.plan, found, tile.operand))
        line(f"// a block turns {TURNED} points of {TURNED} rows, which memory has side by side")
        line("__shared__ weft::ByteTile tile;")
        line(f"const int32_t squares = ({rows} + {TURNED - 1}) / {TURNED};")
        number = "blockIdx.x"
        if found.batch:
            whole = f"(squares * (({points} + {TURNED - 1}) / {TURNED}))"
            line(f"const int32_t batch = blockIdx.x / {whole}, square = blockIdx.x % {whole};")
            self.places([self.axes[a] for a in found.batch], "batch", self.counts)
            number = "square"
        line(f"const int32_t {first_row} = {number} % squares * {TURNED}, {first_point} = {number} / squares * {TURNED};")
        line("#pragma unroll")
        with self.writer.block(f"for (int32_t q = 0; q < {TURNED * across // PACK_BLOCK}; ++q)"):
            line(f"const int32_t packet = threadIdx.x + q * {PACK_BLOCK}, across = packet % {across};")
            own_row, own_point = self.declare(row), self.declare(point)
            line(f"const int64_t {own_row} = {first_row} + across * {BYTES};")
            line(f"const int64_t {own_point} = {first_point} + packet / {across};")
            line(f"weft::Run<{type_}, {BYTES}> run = {{}};")
            self.writer.cite(read.location)
            fetched = f"weft::fetch_anywhere<{BYTES}>({self.address(read.array, read.index)}, {own_row}, 0, {rows})"
            line(f"if ({own_row} < {rows} && {own_point} < {points}) run = {fetched};")
            line(f"tile.put(packet / {across}, across, run);")
        line("__syncthreads();")
        line(f"const int32_t across = threadIdx.x % {across}, down = threadIdx.x / {across};")
        line(f"weft::Packet<uint32_t, {RUN}> line[{RUN}];")
        line(f"tile.get(across * {BYTES}, down, line);")
        unit = whole_line(self.plan, k)
        line(f"const int32_t packets = ({points} + {BYTES - 1}) / {BYTES}, place = {first_point} / {BYTES} + across;")
        line(f"const int32_t pitch = ({points} + {unit - 1}) / {unit} * {unit};")
        line("#pragma unroll")
        with self.writer.block(f"for (int32_t v = 0; v < {RUN}; ++v)"):
            line(f"const int32_t row = {first_row} + down * {RUN} + v;")
            lines = f"(int64_t(batch) * {rows} + row)" if found.batch else "int64_t(row)"
            address = f"{self.packed[k]} + {lines} * pitch + place * {BYTES}"
            line(f"if (row >= {rows} || place >= packets) break;")
            line(f"weft::put(reinterpret_cast<uint32_t*>({address}), line[v]);")

    def run_of(self, tile: Tile, read: Read, lane: str) -> None:
        """The elements of a packet that lie side by side in memory."""
        self.writer.cite(read.location)
        along = f"{self.names[lane]}, 0, {self.counts[lane]}"
        fetched = f"weft::fetch_anywhere<{tile.staged.vector}>({self.address(read.array, read.index)}, {along})"
        self.writer.line(f"weft::unpack({fetched}, run);")

    def one_by_one(self, tile: Tile, lane: list[Axis], whole: str, asked: Expr | None) -> None:
        """The elements of a packet that are asked of: their coordinates are counted up."""
        line = self.writer.line
        line("#pragma unroll")
        with self.writer.block(f"for (int32_t e = 0; e < {tile.staged.vector}; ++e)"):
            conditions = [f"first + e < {whole}", *self.before_ends(a.name for a in lane)]
            conditions += [] if asked is None else [self.printer.value(asked, AND)]
            with self.writer.block(f"if ({' && '.join(conditions)})"):
                self.compute(tile, {}, "run[e]")
            with ExitStack() as stack:
                for n, axis in enumerate(reversed(lane)):
                    name, start = self.names[axis.name], self.printer.index(axis.start, SUM)
                    if n == len(lane) - 1:
                        line(f"++{name};")
                        break
                    stop = self.counts[axis.name] if start == "0" else f"{start} + {factor(self.counts[axis.name])}"
                    stack.enter_context(self.writer.block(f"if (++{name} == {stop})"))
                    line(f"{name} = {start};")
