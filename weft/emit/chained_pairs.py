"""What each pair of a row and a column has in memory, as masks and biases: neighbours along the columns, which come while
scores are multiplied.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

from weft.emit.chained_columns import PAIRS
from weft.emit.chained_lines import LinesEntry
from weft.emit.expressions import SUM, memory_type, register_type
from weft.graph.tile import Map, Read
from weft.loops.ir import Ref
from weft.loops.types import INT64
from weft.plan.chain import PACKET_OF_BYTES, QUAD_OF_BYTES, BroughtPairs


@dataclass(frozen=True)
class OwnPairs:
    """What a thread has of a read: along: where its rows begin in memory; own: the elements of a turn."""

    read: Read
    plan: BroughtPairs
    along: str
    own: str

    @property
    def packed(self) -> bool:
        """Whether the four threads of a row have packets of eight columns each, of 32, and change places then."""
        return self.plan.packet == PACKET_OF_BYTES


@dataclass
class PairsEntry(LinesEntry):
    """A thread has the two columns of each eight that it has the scores of, of both its rows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.own_pairs: dict[str, OwnPairs] = {}

    def each_row_of_thread(self, of_rows: list[Read | Map]) -> AbstractContextManager[None]:
        """What is written here is done for both rows of a thread, whose values are there."""
        raise NotImplementedError

    def begin_pairs(self) -> None:
        """Where a thread's rows begin, and the registers of a turn's elements."""
        line, columns = self.writer.line, self.plan.tile[2]
        for plan in self.whole_plan.pairs:
            v = next(v for v in self.chain.values if isinstance(v, Read) and v.name == plan.read)
            type_ = memory_type(self.function.array(v.array).dtype)
            found = OwnPairs(v, plan, self.fresh.fresh(f"{v.array}_along"), self.fresh.fresh(f"{v.name}_own"))
            line(f"const {type_}* {found.along}[2];")
            with self.each_row_of_thread([]):
                first = f"{self.arrays[v.array]} + {self.offset(v.array, v.index, frozenset({self.along(v)}))}"
                line(f"{found.along}[u] = {first.removesuffix(' + 0')};")
            count, run = (columns // QUAD_OF_BYTES, PACKET_OF_BYTES) if found.packed else (columns // PAIRS, 2)
            line(f"weft::Run<{type_}, {run}> {found.own}[{count}][2];")
            self.own_pairs[v.name] = found
        self.leaves |= self.own_pairs.keys()

    def along(self, v: Read) -> int:
        """The axis along which the columns of an array lie."""
        return v.index.index(Ref(self.chain.column, INT64))

    def pair_elements(self) -> dict[str, str]:
        """The elements of a thread's columns in the turn that is folded."""
        return {
            name: f"weft::element<{register_type(p.read.type)}>"
            f"({p.own}{'[h / 4][u], h % 4 * 2 + v' if p.packed else '[h][u], v'})"
            for name, p in self.own_pairs.items()
        }

    def load_pairs(self) -> None:
        """The elements of a turn are on their way, those of columns that are none the last ones that there are."""
        columns, rows = self.plan.tile[2], "for (int32_t u = 0; u < 2; ++u)"
        for p in self.own_pairs.values():
            size = self.printer.index(self.function.array(p.read.array).shape[self.along(p.read)], SUM)
            if p.packed:
                first = f"turn * {columns} + g * {QUAD_OF_BYTES} + int32_t(threadIdx.x) % 4 * {PACKET_OF_BYTES}"
                place = f"weft::minimum<int32_t>({first}, {size} - {PACKET_OF_BYTES})"
                packet = f"weft::fetch_now<{PACKET_OF_BYTES}, {PACKET_OF_BYTES}>({p.along}[u] + {place})"
                self.unrolled([f"for (int32_t g = 0; g < {columns // QUAD_OF_BYTES}; ++g)", rows], f"{p.own}[g][u] = {packet};")
                continue
            each = [f"for (int32_t h = 0; h < {columns // PAIRS}; ++h)", rows]
            first = f"turn * {columns} + h * {PAIRS} + int32_t(threadIdx.x) % 4 * 2"
            if p.plan.packet == 2:
                place = f"weft::minimum<int32_t>({first}, {size} - 2)"
                self.unrolled(each, f"{p.own}[h][u] = weft::fetch_now<2, 2>({p.along}[u] + {place});")
            else:
                place = f"weft::minimum<int32_t>({first} + v, {size} - 1)"
                self.unrolled([*each, "for (int32_t v = 0; v < 2; ++v)"], f"{p.own}[h][u].set(v, {p.along}[u][{place}]);")

    def exchange_pairs(self) -> None:
        """Packets of a turn are there, and change places."""
        for p in self.own_pairs.values():
            if p.packed:
                each = f"for (int32_t g = 0; g < {self.plan.tile[2] // QUAD_OF_BYTES}; ++g)"
                self.unrolled([each], f"weft::exchange_pairs({p.own}[g][0], {p.own}[g][1]);")
