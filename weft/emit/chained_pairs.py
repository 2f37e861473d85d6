"""What each pair of a row and a column has in memory, as masks and biases are: packets along the columns, which come while
scores are multiplied, and of which the threads of a row then give each other what they have scores of.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

from weft.emit.chained_lines import LinesEntry
from weft.emit.expressions import SUM, memory_type, register_type
from weft.graph.tile import Map, Read
from weft.loops.ir import Ref
from weft.loops.types import INT64
from weft.plan.chain import PACKET_OF_PAIRS, QUAD_OF_PAIRS


@dataclass
class PairsEntry(LinesEntry):
    """The four threads of a row have packets of eight columns each, of 32: after these change places, each has two of all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.pair_packets: dict[str, tuple[Read, str, str]] = {}

    def each_row_of_thread(self, of_rows: list[Read | Map]) -> AbstractContextManager[None]:
        """What is written here is done for both rows of a thread, whose values are there."""
        raise NotImplementedError

    def begin_pairs(self) -> None:
        """Where a thread's packets of its two rows begin, and the registers of a turn's."""
        line, column, count = self.writer.line, Ref(self.chain.column, INT64), self.plan.tile[2] // QUAD_OF_PAIRS
        for v in self.chain.values:
            if not isinstance(v, Read) or v.name not in dict(self.whole_plan.pairs):
                continue
            axis, type_ = v.index.index(column), memory_type(self.function.array(v.array).dtype)
            along, own = self.fresh.fresh(f"{v.array}_along"), self.fresh.fresh(f"{v.name}_own")
            line(f"const {type_}* {along}[2];")
            with self.each_row_of_thread([]):
                first = f"{self.arrays[v.array]} + {self.offset(v.array, v.index, frozenset({axis}))}"
                line(f"{along}[u] = {first.removesuffix(' + 0')};")
            line(f"weft::Run<{type_}, {PACKET_OF_PAIRS}> {own}[{count}][2];")
            self.pair_packets[v.name] = v, along, own
        self.leaves |= self.pair_packets.keys()

    def pair_elements(self) -> dict[str, str]:
        """The elements of a thread's columns in the turn that is folded."""
        place, found = "[h / 4][u], h % 4 * 2 + v", self.pair_packets.items()
        return {name: f"weft::element<{register_type(v.type)}>({own}{place})" for name, (v, _, own) in found}

    def load_pairs(self) -> None:
        """The packets of a turn are on their way, those of columns that are none the last ones that there are."""
        columns = self.plan.tile[2]
        for v, along, own in self.pair_packets.values():
            size = self.printer.index(self.function.array(v.array).shape[v.index.index(Ref(self.chain.column, INT64))], SUM)
            begin = f"turn * {columns} + g * {QUAD_OF_PAIRS} + int32_t(threadIdx.x) % 4 * {PACKET_OF_PAIRS}"
            place = f"weft::minimum<int32_t>({begin}, {size} - {PACKET_OF_PAIRS})"
            width = min(PACKET_OF_PAIRS, 16 // self.function.array(v.array).dtype.size)
            self.unrolled(
                [f"for (int32_t g = 0; g < {columns // QUAD_OF_PAIRS}; ++g)", "for (int32_t u = 0; u < 2; ++u)"],
                f"{own}[g][u] = weft::fetch_now<{PACKET_OF_PAIRS}, {width}>({along}[u] + {place});",
            )

    def exchange_pairs(self) -> None:
        """The packets of a turn are there, and change places."""
        for _, _, own in self.pair_packets.values():
            each = f"for (int32_t g = 0; g < {self.plan.tile[2] // QUAD_OF_PAIRS}; ++g)"
            self.unrolled([each], f"weft::exchange_pairs({own}[g][0], {own}[g][1]);")
