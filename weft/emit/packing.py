"""Operands of products in whole packets: a launch before writes them to memory, line after line, for copies to bring."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from weft.emit.cpp_body import factor
from weft.emit.expressions import SUM, register_type
from weft.emit.products import ProductEntry, Tile
from weft.graph.tile import Axis
from weft.plan.product import MATRIX_PACKET, PACK_BLOCK, in_a_run, operand_read


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
        self.counts |= {a: self.span(self.axes[a], f"{a}_count") for a in (*lines, *lane)}
        whole = " * ".join(self.counts[a] for a in lane)
        if len(lane) > 1:
            line(f"const int64_t points = {whole};")
            whole = "points"
        line(f"// a thread packs {MATRIX_PACKET} neighbours of a line")
        line(f"const int64_t packets = ({whole} + {MATRIX_PACKET - 1}) / {MATRIX_PACKET};")
        line(f"const int64_t place = int64_t(blockIdx.x) * {PACK_BLOCK} + threadIdx.x;")
        line(f"if (place >= {' * '.join(factor(self.counts[a]) for a in lines)} * packets) return;")
        self.places([self.axes[a] for a in lines], "place / packets", self.counts)
        line(f"const int64_t first = place % packets * {MATRIX_PACKET};")
        read = operand_read(found, tile.operand)
        line(f"{register_type(tile.operand.value.type)} run[{MATRIX_PACKET}] = {{}};")
        if read is not None and len(lane) == 1 and in_a_run(found, tile.operand, lane[0], self.facts):
            self.writer.cite(read.location)
            self.names[lane[0]] = "first"
            fetched = f"weft::fetch_anywhere<{MATRIX_PACKET}>({self.address(read.array, read.index)}, first, 0, {whole})"
            line(f"weft::unpack({fetched}, run);")
        else:
            self.one_by_one(tile, [self.axes[a] for a in lane], whole)
        line(f"weft::store<{MATRIX_PACKET}>({self.packed[k]} + place * {MATRIX_PACKET}, run);")

    def one_by_one(self, tile: Tile, lane: list[Axis], whole: str) -> None:
        """The elements of a packet: their coordinates are counted up."""
        line = self.writer.line
        self.places(lane, "first", self.counts, "")
        line("#pragma unroll")
        with self.writer.block(f"for (int32_t e = 0; e < {MATRIX_PACKET}; ++e)"):
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
