"""What each pair of a row and a column has in memory, as masks and biases: neighbours along the columns, or bytes along the
rows, which come while scores are multiplied.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from weft.emit.chained_columns import PAIRS
from weft.emit.chained_lines import LinesEntry
from weft.emit.expressions import SUM, memory_type, register_type
from weft.graph.tile import Map, Read
from weft.loops.ir import Ref
from weft.loops.types import INT64
from weft.plan.chain import PACKET_OF_BYTES, QUAD_OF_BYTES, BroughtPairs


@dataclass(frozen=True)
class OwnPairs:
    """What a thread has of a read: along: where its rows begin in memory; own: the elements of a turn; bits: of standing ones,
    those of its rows, when all of a warp have told them each other.
    """

    read: Read
    plan: BroughtPairs
    along: str
    own: str
    bits: str = ""

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
            if plan.standing:
                self.own_pairs[v.name] = self.begin_standing(found)
                continue
            with self.each_row_of_thread([]):
                first = f"{self.arrays[v.array]} + {self.offset(v.array, v.index, frozenset({self.along(v)}))}"
                line(f"{found.along}[u] = {first.removesuffix(' + 0')};")
            count, run = (columns // QUAD_OF_BYTES, PACKET_OF_BYTES) if found.packed else (columns // PAIRS, 2)
            line(f"weft::Run<{type_}, {run}> {found.own}[{count}][2];")
            self.own_pairs[v.name] = found
        self.leaves |= self.own_pairs.keys()

    def begin_standing(self, pairs: OwnPairs) -> OwnPairs:
        """The same of packets of a warp's rows, which its eight threads of a quad's columns have of eight columns each."""
        v, line, row = pairs.read, self.writer.line, self.declare(self.chain.row)
        every = frozenset(range(len(v.index)))
        with self.unrolled_block(["for (int32_t u = 0; u < 2; ++u)"]):
            first = "first_row + first_own_row - threadIdx.x % 32 / 4 + u * 8"
            last = f"{self.counts[self.chain.row]} - {PACKET_OF_BYTES}"
            line(f"const int64_t {row} = weft::minimum<int64_t>({first}, {last});")
            first = f"{self.arrays[v.array]} + {self.offset(v.array, v.index, every & {self.along(v)})}"
            line(f"{pairs.along}[u] = {first.removesuffix(' + 0')};")
        line(f"weft::Run<weft::boolean, {PACKET_OF_BYTES}> {pairs.own}[{self.standing_steps}][2][2];")
        return replace(pairs, bits=self.fresh.fresh(f"{v.name}_bits"))

    @property
    def standing_steps(self) -> int:
        """How many pairs of columns a thread has packets of."""
        return -(-self.plan.tile[2] // (PAIRS * 8))

    def along(self, v: Read) -> int:
        """The axis along which the columns of an array lie."""
        return v.index.index(Ref(self.chain.column, INT64))

    def pair_elements(self) -> dict[str, str]:
        """The elements of a thread's columns in the turn that is folded."""
        return {
            name: f"bool({p.bits}[h] >> (v * 16 + u * 8) & 1u)"
            if p.bits
            else f"weft::element<{register_type(p.read.type)}>"
            f"({p.own}{'[h / 4][u], h % 4 * 2 + v' if p.packed else '[h][u], v'})"
            for name, p in self.own_pairs.items()
        }

    def load_pairs(self) -> None:
        """The elements of a turn are on their way, those of columns that are none the last ones that there are."""
        columns, rows = self.plan.tile[2], "for (int32_t u = 0; u < 2; ++u)"
        for p in self.own_pairs.values():
            size = self.printer.index(self.function.array(p.read.array).shape[self.along(p.read)], SUM)
            if p.bits:
                self.load_standing(p, size)
                continue
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

    def load_standing(self, pairs: OwnPairs, size: str) -> None:
        v, line, pointers = pairs.read, self.writer.line, dict(self.pointers)
        self.pointers[v.array] = f"{pairs.along}[u]", frozenset(range(len(v.index))) - {self.along(v)}
        with self.unrolled_block([f"for (int32_t k = 0; k < {self.standing_steps}; ++k)", "for (int32_t v = 0; v < 2; ++v)"]):
            place = f"(k * 8 + int32_t(threadIdx.x) % 32 / 4) * {PAIRS} + int32_t(threadIdx.x) % 4 * 2 + v"
            column = self.declare(self.chain.column)
            line(f"const int64_t {column} = weft::minimum<int32_t>(turn * {self.plan.tile[2]} + {place}, {size} - 1);")
            packet = f"weft::fetch_now<{PACKET_OF_BYTES}, {PACKET_OF_BYTES}>({self.address(v.array, v.index)})"
            self.unrolled(["for (int32_t u = 0; u < 2; ++u)"], f"{pairs.own}[k][v][u] = {packet};")
        self.pointers = pointers

    def exchange_pairs(self) -> None:
        """Packets of a turn are there, and change places."""
        for p in self.own_pairs.values():
            if p.bits:
                self.writer.line(f"uint32_t {p.bits}[{self.plan.tile[2] // PAIRS}];")
                self.writer.line(f"weft::exchange_columns({p.own}, {p.bits});")
            elif p.packed:
                each = f"for (int32_t g = 0; g < {self.plan.tile[2] // QUAD_OF_BYTES}; ++g)"
                self.unrolled([each], f"weft::exchange_pairs({p.own}[g][0], {p.own}[g][1]);")
