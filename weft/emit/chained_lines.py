"""What columns of chained products have alone, as gradients have the maximum and the sum of a query, and conditions the number
of a document: a line of elements for each turn, which the warp that brings tiles brings with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from weft.emit.chained_columns import PAIRS, ColumnsEntry
from weft.emit.expressions import SUM, register_type
from weft.graph.tile import Read
from weft.loops.ir import Ref
from weft.loops.types import INT64
from weft.plan.chain import LINE_PLACES, lines_of
from weft.plan.fold import WARP


@dataclass
class LinesEntry(ColumnsEntry):
    """Lines have twice as many places as turns: one is read when its turn's scores may have given their place to another."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.column_lines: dict[str, tuple[Read, str]] = {}

    def declare_lines(self) -> None:
        """Their places in shared memory."""
        columns, places = self.plan.tile[2], LINE_PLACES * self.plan.stages
        for v in lines_of(self.chain, self.whole_plan.skips):
            own = self.fresh.fresh(f"{v.name}_lines")
            self.column_lines[v.name] = v, own
            self.writer.line(f"__shared__ {register_type(v.type)} {own}[{places}][{columns}];")
        self.leaves |= self.column_lines.keys()

    @property
    def together_bring(self) -> bool:
        """Whether all of a warp bring tiles: they ask for turns, or have elements of their columns."""
        return self.whole_plan.skips or bool(self.column_lines)

    @property
    def line_place(self) -> str:
        return f"phase * {self.plan.stages} + place"

    def line_elements(self) -> dict[str, str]:
        """The elements of a thread's columns in the turn that is folded."""
        place = f"[{self.line_place}][threadIdx.x % 4 * 2 + h * {PAIRS} + v]"
        return {name: f"{own}{place}" for name, (_, own) in self.column_lines.items()}

    @contextmanager
    def read_in_memory(self) -> Iterator[None]:
        """Who writes here reads the elements themselves."""
        self.leaves -= self.column_lines.keys()
        yield
        self.leaves |= self.column_lines.keys()

    # ---------------------------------------------------------------- the warp that brings tiles

    def begin_lines(self) -> None:
        """Where the lines of a tile begin in memory."""
        self.lines_along: dict[str, tuple[str, frozenset[int]]] = {}
        for v, _ in self.column_lines.values():
            every, axis = frozenset(range(len(v.index))), v.index.index(Ref(self.chain.column, INT64))
            name = self.fresh.fresh(f"{v.array}_line")
            self.lines_along[v.name] = name, every - {axis}
            first = f"{self.arrays[v.array]} + {self.offset(v.array, v.index, frozenset({axis}))}"
            self.writer.line(f"const {register_type(v.type)}* const {name} = {first.removesuffix(' + 0')};")

    @property
    def line_steps(self) -> int:
        return -(-self.plan.tile[2] // WARP)

    def load_lines(self) -> None:
        """The elements of a turn, on their way to a thread of the warp each."""
        if not self.column_lines:
            return
        line, columns, pointers = self.writer.line, self.plan.tile[2], dict(self.pointers)
        self.lines_ahead = {name: self.fresh.fresh(f"{name}_ahead") for name in self.column_lines}
        for name, (v, _) in self.column_lines.items():
            line(f"{register_type(v.type)} {self.lines_ahead[name]}[{self.line_steps}];")
        line("#pragma unroll")
        with self.writer.block(f"for (int32_t k = 0; k < {self.line_steps}; ++k)"):
            sizes = [self.printer.index(self.function.array(v.array).shape[v.index.index(Ref(self.chain.column, INT64))], SUM)
                     for v, _ in self.column_lines.values()]  # fmt: skip
            place = f"int64_t(turn) * {columns} + k * {WARP} + n"
            for size in dict.fromkeys(sizes):
                place = f"weft::minimum<int64_t>({place}, {size} - 1)"
            line(f"const int64_t {self.declare(self.chain.column)} = {place};")
            for name, (v, _) in self.column_lines.items():
                self.pointers[v.array] = self.lines_along[name]
                line(f"{self.lines_ahead[name]}[k] = {self.element(v.array, v.index)};")
        self.pointers = pointers

    def store_lines(self) -> None:
        """The same at their place in shared memory, before the barrier tells that the turn comes."""
        if not self.column_lines:
            return
        line, columns = self.writer.line, self.plan.tile[2]
        line("#pragma unroll")
        with self.writer.block(f"for (int32_t k = 0; k < {self.line_steps}; ++k)"):
            if columns % WARP:
                line(f"if (k * {WARP} + n >= {columns}) break;")
            for name, (_, own) in self.column_lines.items():
                line(f"{own}[{self.line_place}][k * {WARP} + n] = {self.lines_ahead[name]}[k];")
        line("__syncwarp();")
