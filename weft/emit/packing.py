"""Operands of products in whole packets: a launch before writes them to memory, line after line, for copies to bring."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from dataclasses import dataclass

from weft.emit.cpp_body import factor
from weft.emit.expressions import SUM, register_type
from weft.emit.products import ProductEntry, Tile
from weft.graph.tile import Axis, Read
from weft.plan.product import PACK_BLOCK, in_a_run, operand_read


@dataclass
class PackEntry(ProductEntry):
    """The launch for one operand."""

    def pack(self, entry: str, k: int) -> None:
        operand, staged, left, base = list(self.tiles())[k]
        lines = ",\n    ".join(self.parameters())
        self.writer.cite(self.function.location)
        with self.kernel(entry, lines, f"__launch_bounds__({PACK_BLOCK})"):
            self.packed_operand(Tile(operand, staged, left, base), k)

    def packed_operand(self, tile: Tile, k: int) -> None:
        line, found = self.writer.line, self.products
        rows = found.rows if tile.left else found.columns
        lane, lines = (found.over, rows) if tile.staged.along_points else (rows, found.over)
        lines = (*found.batch, *lines)
        for a in (*lines, *lane):  # what is packed has less than 2^31 elements
            count = self.span(self.axes[a], f"{a}_count")
            self.counts[a] = self.fresh.fresh(f"{a}_own")
            line(f"const int32_t {self.counts[a]} = int32_t({count});")
        whole = " * ".join(self.counts[a] for a in lane)
        if len(lane) > 1:
            line(f"const int32_t points = {whole};")
            whole = "points"
        packet = tile.staged.vector
        line(f"// a thread packs {packet} neighbours of a line")
        line(f"const int32_t packets = ({whole} + {packet - 1}) / {packet};")
        line(f"const int32_t place = blockIdx.x * {PACK_BLOCK} + threadIdx.x;")
        line(f"if (place >= {' * '.join(factor(self.counts[a]) for a in lines)} * packets) return;")
        self.places([self.axes[a] for a in lines], "place / packets", self.counts)
        line(f"const int32_t first = place % packets * {packet};")
        read = operand_read(found, tile.operand)
        line(f"{register_type(tile.operand.value.type)} run[{packet}] = {{}};")
        if read is not None and not in_a_run(found, tile.operand, lane[-1], self.facts):
            read = None  # that comes in packets
        if len(lane) == 1 and read is not None:
            self.names[lane[0]] = "first"
            self.run_of(tile, read, lane[0])
        else:
            axes = [self.axes[a] for a in lane]
            self.places(axes, "first", self.counts, "")
            if read is not None:  # within one line of the fastest axis
                with self.writer.block(f"if ({self.names[lane[-1]]} + {packet} <= {self.counts[lane[-1]]})"):
                    self.run_of(tile, read, lane[-1])
            with self.writer.block("else") if read is not None else nullcontext():
                self.one_by_one(tile, axes, whole)
        line(f"weft::store<{packet}>({self.packed[k]} + int64_t(place) * {packet}, run);")

    def run_of(self, tile: Tile, read: Read, lane: str) -> None:
        """The elements of a packet that lie side by side in memory."""
        self.writer.cite(read.location)
        along = f"{self.names[lane]}, 0, {self.counts[lane]}"
        fetched = f"weft::fetch_anywhere<{tile.staged.vector}>({self.address(read.array, read.index)}, {along})"
        self.writer.line(f"weft::unpack({fetched}, run);")

    def one_by_one(self, tile: Tile, lane: list[Axis], whole: str) -> None:
        """The elements of a packet: their coordinates are counted up."""
        line = self.writer.line
        line("#pragma unroll")
        with self.writer.block(f"for (int32_t e = 0; e < {tile.staged.vector}; ++e)"):
            with self.writer.block(f"if (first + e < {whole})"):
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
