"""What states that grow early and late make together, as CUDA C++: at all points of a chunk, and at one point."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from weft.emit.outer_writes import OuterWrites
from weft.plan.outer_states import CHUNK, DOTS


@dataclass
class OuterMeetings(OuterWrites):
    """Sums over the states of both scans."""

    def left_of_chunk(self, chunk: str) -> None:
        """Where early states before a chunk are, and what they make with what late ones add."""
        number = f"{self.row} * chunks + {chunk}"
        self.writer.line(f"float* const kept = {self.left_by('kept', 0)} + ({number}) * {self.held};")
        if self.found.dotted(0) is not None:
            place = f"{self.left_by('dots', 0)} + ({number}) * {DOTS}"
            self.writer.line(f"auto& dots = *reinterpret_cast<float(*)[4][{CHUNK}]>({place});")

    def meet(self) -> None:
        """What early and late states make together at all points of a chunk."""
        line, first, groups = self.writer.line, self.found.growths[0], self.groups
        early, late = tuple(map(self.tile_of, (first.left, first.right))), self.pair
        if self.found.dotted(1) is None:
            line(f"weft::ChunkMeeting::across(shared.meeting.of_late, {early[0]}, shared.states, {early[1]}, {groups});")
        line("const int32_t thread = weft::own_thread();")
        if self.found.dotted(0) is not None:
            with self.writer.block(f"if (thread < {self.dotting(0) * CHUNK})"):
                place = f"thread / {CHUNK}", f"thread % {CHUNK}"
                line(f"shared.meeting.of_early[{place[0]}][{place[1]}] = dots[{place[0]}][{CHUNK - 1} - {place[1]}];")
        line("decltype(states) early;")
        line("early.find(kept);")
        ahead = f"kept - {self.held} + thread * {self.held // self.threads}"
        line(f"if (chunk + 1 < stop) weft::prefetch_line({ahead});  // those of the next chunk, which come from far")
        if self.found.dotted(0) is None:
            self.both_states()
            line("__syncthreads();")
            line("early.share(shared.states);")
            line("__syncthreads();")
            line(f"weft::ChunkMeeting::across(shared.meeting.of_early, {late[0]}, shared.states, {late[1]}, {groups});")
        mine = f"if (group == {self.groups - 1})" if self.groups > 1 else ""
        if self.paired:
            self.meet_in_pairs([*early, *late])
            return
        if self.found.dotted(0) is not None:
            self.both_states()
        line("weft::ChunkMeeting::Cells cells;")
        with self.writer.block(mine):
            self.writer.wrapped("shared.meeting.multiply(", ["cells", *early, *late, "shared.weights"], ");")
        line("__syncthreads();")
        with self.writer.block(mine):
            line("const int32_t point = weft::ChunkMeeting::point_of(threadIdx.x);")
            for k, _ in enumerate(self.found.meetings):
                factors = [self.number(n) for n in ("decay", "weight", *(f"met_{k}_{c}" for c in ("11", "10", "01", "00")))]
                given = ["cells", "shared.weights", *factors, str(self.warps), str(self.dotting(0)), str(self.dotting(1))]
                self.writer.wrapped(f"const float sum_{k} = shared.meeting.go(", given, ");")
                line(f"fine = weft::is_finite(sum_{k}) && fine;")
                line(f"if (threadIdx.x % 32 < 16) write_met_{k}(chunk, point, sum_{k});")

    def both_states(self) -> None:
        """What the states before a chunk make together."""
        self.writer.line("const float both = states.products(early);")
        self.writer.line("if (thread % 32 == 0) shared.meeting.of_both[thread / 32] = both;")

    def meet_in_pairs(self, tiles: Sequence[str]) -> None:
        """The same by pairs of points, of which two groups of warps have half each."""
        line = self.writer.line
        weight, shares = self.number("early_weight"), [str(self.dotting(0)), str(self.dotting(1))]
        mine = {1: "for (int32_t half = 1; half >= 0; --half)", 2: ""}.get(self.groups, "if (group < 2)")
        half = "half" if self.groups == 1 else "group ^ 1"
        with self.writer.block(mine) if mine else nullcontext():
            self.writer.wrapped("shared.meeting.multiply(", [*tiles, "shared.weights", weight, half], ");")
        if self.found.dotted(0) is not None:
            self.both_states()  # when early ones have come
        line("__syncthreads();")
        with self.writer.block("if (group == 0)" if self.groups > 1 else ""):
            line("const int32_t point = weft::warp_number() % 4 * 16 + thread % 16;")
            given = ["shared.weights", weight, str(self.warps), *shares]
            self.writer.wrapped("const float sum = shared.meeting.go(", given, ");")
            for k, _ in enumerate(self.found.meetings):
                line(f"const float sum_{k} = {self.number(f'met_{k}')}[point] * sum;")
                line(f"fine = weft::is_finite(sum_{k}) && fine;")
                line(f"if (thread % 32 < 16) write_met_{k}(chunk, point, sum_{k});")

    def dotting(self, growth: int) -> int:
        """Groups of four warps that have part each of what states make with what a point adds to the others."""
        if self.found.dotted(growth) is None:
            return self.groups
        step = replace(self.step, growth=growth)
        return 1 if step.apart(self.found, self.plan) else step.warps(self.found, self.plan) // 4

    def meet_point(self, here: str) -> None:
        """What early and late states make together at one point: the early ones go to it again from the chunk's last one on."""
        line, first = self.writer.line, self.found.growths[0]
        (left, right), (own_left, own_right) = map(self.tile_of, (first.left, first.right)), self.pair
        line("decltype(states) early;")
        line(f"early.find({self.left_by('kept', 0)} + ({self.row} * chunks + chunks - 1 - chunk) * {self.held});")
        with self.writer.block(f"for (int32_t n = {CHUNK - 1}; n > point; --n)"):
            given = ["n", left, right, *(f"{self.number(n)}[n]" for n in ("early_decay", "early_weight")), here]
            self.writer.wrapped("early.step_here(", given, ");")
        for k, m in enumerate(self.found.meetings):
            parameters = "const int32_t row, const int32_t column, const float x"
            with self.writer.block(f"const auto made_{k} = [&]({parameters})", "};"):
                line(f"const float added = {left}.get(point, row) * {right}.get(point, column);")
                line(f"const float own = {own_left}.get(point, row) * {own_right}.get(point, column);")
                line(f"const float late = all[row * {self.plan.widths[1]} + column];")
                words = {e: f"({'x' if e[0] else 'added'} * {'late' if e[1] else 'own'})" for e in m.factors}
                if self.paired:
                    late = " + ".join(f"{self.number(n)}[point] * {words[True, n == 'decay']}" for n in ("decay", "weight"))
                    line(f"return {self.number(f'met_{k}')}[point] * ({late});")
                else:
                    terms = [f"{self.number(f'met_{k}_{e:d}{l:d}')}[point] * {words[e, l]}" for e, l in m.factors]
                    line(f"return {' + '.join(terms)};")
            line(f"const float sum_{k} = early.sum_here(shared.meeting.of_both, {here}, made_{k});")
            line(f"if (threadIdx.x == 0) write_met_{k}(chunk, point, sum_{k});")
