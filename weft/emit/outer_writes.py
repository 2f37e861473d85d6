"""What is stored of the sums that threads have at a point, as CUDA C++: one by one, by pairs, and by packets of eight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from weft.emit.expressions import memory_type
from weft.emit.outer_operands import OuterOperands
from weft.graph.outer_states import Meeting, Taken
from weft.graph.tile import Fold, Read, Write, uses_of_write
from weft.loops.ir import Expr
from weft.loops.types import BFLOAT16, FLOAT16
from weft.plan.outer_states import is_packets


@dataclass
class OuterWrites(OuterOperands):
    """What threads do with sums."""

    def writing(self) -> None:
        """What threads do with sums that they have at a point: of one place, and of two where something is written so."""
        line = self.writer.line
        for k, t in enumerate(self.taken):
            (side,) = {0, 1} - {self.found.sides.index(t.over)}
            place, writes = "const int32_t chunk, const int32_t row, const int64_t lane", self.writes_of(t)
            packets = [w for w in writes if self.in_packets(w, t)]
            writes = [w for w in writes if w not in packets]
            pairs = [w for w in writes if self.in_pairs(w, side)]
            one, both = (f"const auto write_{k}{name} = [&]({place}, {given})" for name, given in
                         (("", "const float value"), ("_pair", "const float value, const float other")))  # fmt: skip
            with self.writer.block(one, "};"):
                line(f"const int64_t point = {self.point_of('row')};")
                line(f"if (!({self.is_point}) || int32_t(lane) >= {self.here[side]}) return;")
                with self.placed("point", {side: "lane"}):
                    for w in self.writes_of(t):
                        self.with_sum(t.fold, "value", partial(self.write, w), uses_of_write(w))
            for n, w in enumerate(packets):
                self.write_packet(f"{k}_{n}", w, t, side)
            if not pairs:
                continue
            with self.writer.block(both, "};"):
                line(f"const int64_t point = {self.point_of('row')};")
                line(f"if (!({self.is_point}) || int32_t(lane) >= {self.here[side]}) return;")
                with self.placed("point"):
                    for w in pairs:
                        self.write_pair(w, t, side)
                for lane, sum_ in (("lane", "value"), ("lane + 1", "other")) if len(pairs) < len(writes) else ():
                    with self.writer.block(""), self.placed("point", {side: lane}):
                        for w in writes:
                            if w not in pairs:
                                self.with_sum(t.fold, sum_, partial(self.write, w), uses_of_write(w))
        for k, m in enumerate(self.found.meetings if self.meets else ()):
            given = "const int32_t chunk, const int32_t row, const float sum"
            with self.writer.block(f"const auto write_met_{k} = [&]({given})", "};"):
                line(f"const int64_t point = {self.point_of('row')};")
                line(f"if (!({self.is_point})) return;")
                with self.placed("point"):
                    for w in self.writes_of(m):
                        self.with_sum(m.fold, "sum", partial(self.write, w), uses_of_write(w))

    def writes_of(self, needed: Taken | Meeting) -> list[Write]:
        return [w for w, of in self.found.writes if of is needed]

    def in_pairs(self, w: Write, side: int) -> bool:
        """Whether two neighbours are stored by one instruction: an instruction of a warp has all bytes of eight runs then."""
        return w.guard is None and is_packets(w, self.found, self.plan, self.found.sides[side], self.facts)

    def in_packets(self, w: Write, taken: Taken) -> bool:
        """Whether eight neighbours, of which four threads have two each, are stored by one instruction: by pairs, the halves of
        what memory moves at once come by two."""
        half = self.function.array(w.array).dtype in (BFLOAT16, FLOAT16)
        return half and self.width_of(taken) % 32 == 0 and self.in_pairs(w, 1 - self.found.sides.index(taken.over))

    def width_of(self, taken: Taken) -> int:
        """Places along the side that is left, of which a group of four warps has sums."""
        return self.plan.widths[1 - self.found.sides.index(taken.over)] // (1 if self.apart else self.groups)

    # ---------------------------------------------------------------- pairs and packets

    def write_pair(self, w: Write, taken: Taken, side: int) -> None:
        self.make_pair(w, taken, side)
        with self.placed(sides={side: "lane"}):
            type_ = memory_type(self.function.array(w.array).dtype)
            self.writer.line(f"weft::store_pair(static_cast<{type_}*>({self.address(w.array, w.index)}), one, two);")

    def make_pair(self, w: Write, taken: Taken, side: int) -> None:
        line = self.writer.line
        line("float one, two;  // no array: ptxas would have stored it")
        for made, lane, sum_ in (("one", "lane", "value"), ("two", "lane + 1", "other")):
            with self.writer.block(""), self.placed(sides={side: lane}):
                use = lambda: line(f"{made} = {self.printer.value(w.value)};")  # noqa: B023, E731
                self.with_sum(taken.fold, sum_, use, uses_of_write(w))

    def write_packet(self, name: str, w: Write, taken: Taken, side: int) -> None:
        """What threads do with two neighbours, and with eight that four threads have made."""
        line, place = self.writer.line, "const int32_t chunk, const int32_t row, const int64_t lane"
        type_ = memory_type(self.function.array(w.array).dtype)
        with self.writer.block(f"const auto pack_{name} = [&]({place}, const float value, const float other)", "};"):
            if any(isinstance(v, Read) for v in self.needed(uses_of_write(w))):
                line(f"const int64_t point = {self.point_of('row')};")
                line(f"if (!({self.is_point}) || int32_t(lane) >= {self.here[side]}) return uint32_t(0);")
            with self.placed(f"({self.point_of('row')})"):
                self.make_pair(w, taken, side)
                line(f"return weft::pack<{type_}>(one, two);")
        with self.writer.block(f"const auto store_{name} = [&]({place}, const uint32_t (&words)[4])", "};"):
            line(f"const int64_t point = {self.point_of('row')};")
            line(f"if (!({self.is_point}) || int32_t(lane) >= {self.here[side]}) return;")
            with self.placed("point", {side: "lane"}):
                line(f"auto* const to = reinterpret_cast<uint32_t*>({self.address(w.array, w.index)});")
                line("weft::put_streaming(to, weft::Packet<uint32_t, 4>{words[0], words[1], words[2], words[3]});")

    def write_packets(self, name: str, width: int) -> None:
        """What a group has at a point, by packets: a thread takes those of one block of eight neighbours in four."""
        line = self.writer.line
        line("#pragma unroll")
        with self.writer.block(f"for (int32_t r = 0; r < {width // 8}; r += 4)"):
            line("uint32_t words[4];")
            line("#pragma unroll")
            with self.writer.block("for (int32_t n = 0; n < 4; ++n)"):
                given = ["chunk", "row + 8 * h", "lane + (r + n) * 8", "sums[r + n][2 * h]", "sums[r + n][2 * h + 1]"]
                self.writer.wrapped(f"words[n] = pack_{name}(", given, ");")
            line("weft::exchange_square(words, thread % 4);")
            line(f"store_{name}(chunk, row + 8 * h, first_lane + (r + thread % 4) * 8, words);")

    def with_sum(self, fold: Fold, value: str, use: Callable[[], None], exprs: Sequence[Expr]) -> None:
        """What is done with the result of a fold, which has this value."""
        (result,) = fold.results
        leaves, names = set(self.leaves), dict(self.names)
        self.names[result] = self.fresh.fresh(result)
        self.writer.line(f"const float {self.names[result]} = {value};")
        self.leaves.add(result)
        self.computed(exprs)
        use()
        self.leaves, self.names = leaves, names
