"""What comes to shared memory for a chunk of points, as CUDA C++: operands by copies, numbers by way of registers."""

from __future__ import annotations

from dataclasses import dataclass

from weft.emit.expressions import register_type
from weft.emit.outer_frame import OuterFrame
from weft.emit.subscripts import coefficient
from weft.graph.tile import Read
from weft.loops.ir import Const, Load
from weft.loops.types import INT64
from weft.plan.outer_states import CHUNK, PACKET, Brought


@dataclass
class OuterOperands(OuterFrame):
    """What brings the points of a chunk."""

    def bringing(self) -> None:
        """What brings the points of a chunk: operands by copies, numbers by way of registers."""
        line = self.writer.line
        with self.writer.block("const auto bring = [&](const int32_t chunk, const int32_t stage)", "};"):
            line("// found anew for each chunk: places of all copies would take registers from the products")
            line(f"const int32_t thread = weft::opaque(int32_t(threadIdx.x)) & {self.threads - 1};")
            self.points()
            for own in self.own:
                if own.stages > 1 or self.stages == 1:
                    self.bring(own)
            line("weft::commit_copies();")
        # what numbers are made of is read a chunk ahead: threads wait for it where they make them
        reads = [v for v in self.needed(self.places_of) if isinstance(v, Read) and not self.needed(v.index)]
        names = {v.name: self.fresh.fresh(f"{v.name}_ahead") for v in reads}
        for v in reads:
            line(f"{register_type(v.type)} {names[v.name]} = {{}};")
        with self.writer.block("const auto look = [&](const int32_t chunk)", "};"):
            line("const int32_t thread = weft::own_thread();")
            line(f"const int64_t point = {self.point_of(f'thread % {CHUNK}')};")
            with self.writer.block(f"if (thread < {2 * CHUNK} && {self.is_point})"), self.placed("point"):
                for v in reads:
                    self.writer.cite(v.location)
                    line(f"{names[v.name]} = {self.printer.value(Load(v.array, v.index, v.type))};")
        if self.single:
            with self.writer.block("const auto bring_factors = [&](const int32_t chunk)", "};"):
                line(f"const int32_t thread = weft::opaque(int32_t(threadIdx.x)) & {self.threads - 1};")
                self.points()
                for own in self.single:
                    self.bring(own)
                line("weft::commit_copies();")
        with self.writer.block("const auto keep = [&](const int32_t chunk, const int32_t stage)", "};"):
            for name in self.places_of.values():  # points that are none add nothing, and leave all as it is
                line(f"float {name}_ahead = 1.0f;")
            line("const int32_t thread = weft::own_thread();")
            line(f"const int64_t point = {self.point_of(f'thread % {CHUNK}')};")
            here = self.writer.block(f"if (thread < {2 * CHUNK} && {self.is_point})")
            with here, self.placed("point"), self.spelled(names):
                self.leaves |= names.keys()
                self.computed(self.places_of)
                for value, name in self.places_of.items():
                    line(f"{name}_ahead = {self.printer.value(value)};")
            with self.writer.block(f"if (thread < {CHUNK})"):
                for name in self.places_of.values():
                    line(f"shared.{name}[stage][thread] = {name}_ahead;")
            line("__syncwarp();")
            taking = "true" if self.taken or self.meets else "false"
            given = [self.number("decay"), self.ahead("decay"), self.ahead("weight")]
            self.writer.wrapped(f"shared.weights.weigh<{taking}>(", given, ");")
            if self.meets and not self.paired:
                line(f"shared.meeting.weigh({self.ahead('early_decay')}, {self.ahead('early_weight')});")

    def bring(self, own: Brought) -> None:
        line, plan = self.writer.line, self.plan
        width, tile, packet = plan.widths[own.side], self.tile_of(own.value), PACKET if own.copied else 1
        items = CHUNK * width // packet
        rows = self.threads * packet // width  # of the threads' packets at once
        if own.copied is not None and items % self.threads == 0 and (step := self.step_of(own.copied, rows)) is not None:
            self.bring_in_steps(own.copied, own.side, tile, rows, step)
            return
        line("#pragma unroll" if own.copied else "#pragma unroll 4")
        with self.writer.block(f"for (int32_t n = 0; n < {-(-items // self.threads)}; ++n)"):
            line(f"const int32_t item = thread + n * {self.threads};")
            if items % self.threads:
                line(f"if (item >= {items}) break;")
            across = width // packet
            line(f"const int32_t row = item / {across}, lane = item % {across}{f' * {packet}' if packet > 1 else ''};")
            line(f"const int64_t point = {self.point_of('row')};")
            line(f"const bool here = {self.is_point} && lane < {self.here[own.side]};")
            with self.placed("point", {own.side: "lane"}):
                if own.copied is not None:
                    self.writer.cite(own.copied.location)
                    self.computed(own.copied.index)
                    line(f"{tile}.copy(row, lane, {self.address(own.copied.array, own.copied.index)}, here);")
                    return
                line("float value = 0.0f;")
                with self.writer.block("if (here)"):
                    self.computed([own.value])
                    line(f"value = {self.printer.value(own.value)};")
                line(f"{tile}.set(row, lane, value);")

    def step_of(self, read: Read, rows: int) -> str | None:
        """How many elements are from a packet of a thread to its next one, so many rows further on; None where what is read
        lies in no such steps."""
        if CHUNK % rows or any(True for _ in self.needed(read.index)):
            return None
        by = [coefficient(i, self.along.name) for i in read.index]
        if None in by:
            return None
        turn = -rows if self.growth.scan.reverse else rows
        return self.offset(read.array, tuple(Const(n * turn, INT64) for n in by if n is not None))

    def bring_in_steps(self, read: Read, side: int, tile: str, rows: int, step: str) -> None:
        """Copies of packets, whose places a thread finds once."""
        line, across = self.writer.line, self.plan.widths[side] // PACKET
        with self.writer.block(""):
            line(f"const int32_t row = thread / {across}, lane = thread % {across} * {PACKET};")
            line(f"const int64_t point = {self.point_of('row')};")
            line(f"const bool inside = lane < {self.here[side]};")
            with self.placed("point", {side: "lane"}):
                self.writer.cite(read.location)
                line(f"const auto* const from = {self.address(read.array, read.index)};")
            line("#pragma unroll")
            with self.writer.block(f"for (int32_t n = 0; n < {CHUNK // rows}; ++n)"):
                own = f"row + n * {rows}"
                here = f"{own} >= begin" if self.before else f"{own} < points"
                line(f"{tile}.copy({own}, lane, from + n * ({step}), inside && {here});")

    def again(self, chunk: str) -> None:
        """Bring what states are taken with once more, when what is on its way has come."""
        for text in ("weft::wait_copies<0>();", "__syncthreads();", f"bring_factors({chunk});", "weft::wait_copies<0>();"):
            self.writer.line(text)
        self.writer.line("__syncthreads();")
