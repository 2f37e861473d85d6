"""States that grow by outer products as CUDA C++: a block goes through its points a chunk at a time, with products of matrices.

Where blocks share the points of a row, a launch before leaves what the points of each of them make of states of zeros, and what
they leave of others. A chunk in which something is not finite is gone through in order, as the program has it; so is all before
a block's points where the states that come to it are not: what is not finite stays so in what a launch before adds up.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, replace

from weft.emit.dependent import Dependence, dependences, include
from weft.emit.names import Names, kernel_entry
from weft.emit.outer_meetings import OuterMeetings
from weft.emit.text import Writer
from weft.emit.thread_body import parameters
from weft.emit.values import deciding
from weft.graph.outer_states import Meeting, OuterStates, Taken
from weft.graph.tile import Map, Read, uses_of_write
from weft.loops.ir import Const, Function, Let, Store, trapping
from weft.loops.schedule import Nest
from weft.plan.arguments import Facts
from weft.plan.outer_states import CHUNK, SHARED_BITS, OuterPlan, outer_steps

_TAKEN = (
    "added", "all", "before", "begin", "block", "both", "bring", "chunk", "chunks", "column", "each", "early", "end",
    "fine", "first", "first_lane", "from", "group", "h", "half", "here", "inside", "item", "keep", "kept", "lane", "late",
    "left", "lefts", "made", "memory", "n", "next", "one", "other", "outside", "own", "parts", "place", "point", "points",
    "r", "row", "scores", "segment", "Shared", "shared", "stage", "states", "stop", "sum", "sums", "thread", "to", "told",
    "total", "two", "v", "value", "values", "words", "x",
)  # fmt: skip


def emit(function: Function, nest: Nest, found: OuterStates, plan: OuterPlan, facts: Facts) -> str:
    """The kernels' translation unit: an entry for each launch, named by `outer_steps`. Each takes the slots of
    `weft.plan.arguments`; where blocks share rows, pointers to what they leave for each other; and how many share a row.
    """
    own = Nest(nest.name, nest.axes, trapping(nest.body), nest.verdicts)
    writer = Writer()
    writer.line('#include "weft/chunk.cuh"')
    varies = deciding(found.found.axes, found.found.values)
    large = varies | {s.name for s in function.scalars}
    steps = outer_steps(found, plan, kernel_entry(nest.name))
    names = [step.entry for step in steps]
    # sums of late scans need nothing of early ones: their blocks go along with those
    launches = [
        replace(d, late=d.awaits and not step.takes and not step.joins)
        for d, step in zip(dependences([k > 0 for k, _ in enumerate(steps)]), steps, strict=True)
    ]
    include(writer, launches)
    for step, dependence in zip(steps, launches, strict=True):
        writer.line()
        OuterEntry(
            function, own, facts, writer, Names(frozenset({*_TAKEN, *names})), {}, {}, varies, large,
            axes=found.found.axes, values=found.found.values, found=found, plan=plan, step=step,
        ).emit(dependence)  # fmt: skip
    return writer.text()


@dataclass
class OuterEntry(OuterMeetings):
    """One launch."""

    def emit(self, dependence: Dependence) -> None:
        given = parameters(self.function, self.nest, self.facts, self)
        for g in self.found.growths if self.plan.shared else ():
            own = g.scan.names[0]
            self.memory |= {f"{own}.{what}": self.fresh.fresh(f"{own}_{what}") for what in ("sums", "left")}
        if self.found.meetings:
            early = self.found.growths[0].scan.names[0]
            self.memory[f"{early}.kept"] = self.fresh.fresh(f"{early}_kept")
            self.memory[f"{early}.dots"] = self.fresh.fresh(f"{early}_dots")
        given += [f"float* {name}" for name in self.memory.values()]
        given += ["const int64_t parts"] if self.memory else []
        lines = ",\n    ".join(given)
        bounds = f"{self.threads}, {self.resident}" if not self.step.joins else f"{self.threads}"
        with self.writer.block(f'extern "C" __global__ void __launch_bounds__({bounds}) {self.step.entry}(\n    {lines})'):
            dependence.begin(self.writer)
            if self.step.joins:
                self.join()
                return
            self.body()
            self.end(dependence)

    def join(self) -> None:
        """Make of what blocks of a row leave the states that those of the next launch begin with."""
        line, states = self.writer.line, math.prod(self.plan.widths)
        joined = [k for k, blocks in enumerate(self.plan.joins) if blocks]
        blocks = -(-states // (4 * self.threads))
        line("// a thread has four states of a row")
        line(f"const int64_t row = blockIdx.x / {blocks * len(joined)};")
        line(f"const int32_t place = (blockIdx.x % {blocks} * {self.threads} + threadIdx.x) * 4;")
        if states % (4 * self.threads):
            line(f"if (place >= {states}) return;")
        for n, k in enumerate(joined):
            own = f"if (blockIdx.x / {blocks} % {len(joined)} == {n})" if len(joined) > 1 else ""
            with self.writer.block(own):
                line(f"const int32_t told = int32_t(parts{f' >> {SHARED_BITS * k}' if k else ''});")
                sums, left = self.left_by("sums", k), self.left_by("left", k)
                given = [f"{sums} + row * told * {self.held} + place", f"{left} + row * told", f"{self.held}", "told"]
                self.writer.wrapped(f"weft::join_states<{self.plan.pieces[k]}>(", given, ");")

    def body(self) -> None:
        self.rows()
        self.hoist(self.everything(), [*self.found.rows])
        self.declare_shared()
        self.chunks()
        self.bringing()
        self.writing()
        if self.takes:
            self.begin()
        else:
            self.writer.line("states.clear();")
            self.writer.line("float left = 1.0f;")
        self.go()

    def everything(self) -> tuple[Let | Store, ...]:
        writes = [w for w, needed in self.found.writes if needed in self.taken or (self.meets and isinstance(needed, Meeting))]
        exprs = [*(own.value for own in self.own), *self.numbers.values(), *self.growth.scan.inits]
        exprs += [e for w in writes for e in uses_of_write(w)]
        lets = [self.let(v) for v in self.needed(exprs) if isinstance(v, Read | Map)]
        return (*lets, *(Store(w.array, w.index, w.value) for w in writes))

    def end(self, dependence: Dependence) -> None:
        """What is known after a block's last point."""
        line, scan = self.writer.line, self.growth.scan
        if not self.takes:
            dependence.end(self.writer)
            line(f"states.leave({self.left_by('sums')} + int64_t(blockIdx.x) * {self.held});")
            line(f"if (threadIdx.x == 0) {self.left_by('left')}[blockIdx.x] = left;")
            return
        ends = self.found.found.ends if self.step.growth == len(self.found.growths) - 1 else ()
        if not ends:
            return
        if self.plan.shared:
            line("if (stop != chunks || first >= stop) return;")
        with self.writer.block("states.each([&](const int32_t row, const int32_t column, float& x)", "});"):
            line(f"if (row >= {self.here[0]} || column >= {self.here[1]}) return;")
            self.names |= {n: "x" for n in scan.results}
            with self.placed(sides={0: "row", 1: "column"}):
                self.leaves |= {*scan.results}
                for w in ends:
                    self.computed(uses_of_write(w))
                    self.write(w)

    # ---------------------------------------------------------------- states before the first point

    def begin(self) -> None:
        """The states before the first point of a block."""
        line, shared = self.writer.line, self.plan.shared
        if not shared:
            self.initial()
            return
        line("int32_t from = first;")
        pieces = self.plan.pieces[self.step.growth]
        times = f" * {pieces}" if pieces > 1 else ""
        if self.plan.joins[self.step.growth]:
            self.joined(times)
        else:
            self.follow(times)
        with self.writer.block("if (!__syncthreads_and(weft::all_finite(states.state)))"):
            line("// what is not finite is found again in order: not all that blocks have left may be in it")
            line("from = 0;")
            self.initial()

    def joined(self, times: str) -> None:
        """The states that a launch before has joined, besides what is left of the first ones."""
        line = self.writer.line
        joined = f"{self.left_by('sums')} + int64_t(blockIdx.x){times} * {self.held}"
        line("float left = 1.0f;")
        if not self.begins_with_zeros:
            line(f"const float* const lefts = {self.left_by('left')} + (int64_t(blockIdx.x) - segment){times};")
            line(f"for (int32_t n = 0; n < segment{times}; ++n) left *= lefts[n];")
        self.initial()
        line("// one turn, of which ptxas does not know: else it has the rows' places in registers from here on, and spills")
        line("#pragma unroll 1")
        line(f"for (int32_t n = weft::opaque(1); n > 0; --n) states.follow({joined}, left);")

    def follow(self, times: str) -> None:
        """The states after what each block before has left."""
        line = self.writer.line
        self.initial()
        line(f"#pragma unroll {max(1, 64 * self.threads // self.held)}")
        with self.writer.block(f"for (int32_t n = 0; n < segment{times}; ++n)"):
            begin = "int64_t(blockIdx.x) - segment"
            line(f"const int64_t block = {f'({begin}){times}' if times else begin} + n;")
            line(f"states.follow({self.left_by('sums')} + block * {self.held}, {self.left_by('left')}[block]);")

    @property
    def begins_with_zeros(self) -> bool:
        (init,) = self.growth.scan.inits
        return isinstance(init, Const) and not init.value

    def initial(self) -> None:
        """The states before the first point of all."""
        line, (init,) = self.writer.line, self.growth.scan.inits
        if self.begins_with_zeros:
            line("states.clear();")
            return
        with self.writer.block("states.each([&](const int32_t row, const int32_t column, float& x)", "});"):
            line("x = 0.0f;")
            line(f"if (row >= {self.here[0]} || column >= {self.here[1]}) return;")
            with self.placed(sides={0: "row", 1: "column"}):
                self.computed([init])
                line(f"x = {self.printer.value(init)};")

    # ---------------------------------------------------------------- chunks

    def go(self) -> None:
        """Go through a block's chunks."""
        line, ahead = self.writer.line, self.stages > 1
        begin = "from" if self.takes and self.plan.shared else "first"
        first = f"{begin} % 2" if ahead else "0"
        with self.writer.block(f"if ({begin} < stop)"):
            line(f"look({begin});")
            line(f"bring({begin}, {first});")
            line(f"keep({begin}, {first});")
            if self.single:
                line(f"bring_factors({begin});")
        if self.takes:
            line("states.share(shared.states);")
        if self.takes and self.groups > 1:
            line("const int32_t group = weft::warp_number() / 4;")
        with self.writer.block(f"for (int32_t chunk = {begin}; chunk < stop; ++chunk)"):
            line(f"const int32_t stage = {'weft::uniform(chunk % 2)' if ahead else '0'};")
            line("weft::meet_for_products();")
            with self.writer.block("if (chunk + 1 < stop)"):
                line("look(chunk + 1);")
                if ahead:
                    line("bring(chunk + 1, stage ^ 1);")
            if not self.takes:
                self.writer.wrapped("left *= states.add(", [*self.pair, "shared.weights"], ");")
                line("__syncthreads();")
                line("if (chunk + 1 < stop) keep(chunk + 1, stage ^ 1);")
                return
            line("bool fine = true;")
            line("float next[decltype(states)::count][4], total = 0.0f;")
            if begin == "from":
                line("if (chunk < first) fine = false;  // for its states alone, in order")
            with self.writer.block("else" if begin == "from" else ""):
                self.taking()
            if self.single:
                line("__syncthreads();  // what states are taken with makes room")
                line("if (chunk + 1 < stop) bring_factors(chunk + 1);")
            with self.writer.block("if (chunk >= first)") if begin == "from" else nullcontext():
                self.adding()
            more = "if (chunk + 1 < stop) bring(chunk + 1, 0);"
            with self.writer.block("if (__syncthreads_and(fine))"):
                if not ahead:
                    line(f"{more}  // on its way while states are shared")
                line("states.take(next, total);")
            with self.writer.block("else"):
                line("// something is not finite: only those points are to have it that have it in order")
                if self.single:
                    self.again("chunk")
                self.point_by_point()
                if self.single:
                    line("if (chunk + 1 < stop) bring_factors(chunk + 1);")
                elif not ahead:
                    line(more)
            line("states.share(shared.states);")
            line(f"if (chunk + 1 < stop) keep(chunk + 1, {'stage ^ 1' if ahead else '0'});")

    def taking(self) -> None:
        """What is taken of the states at all points of a chunk."""
        line = self.writer.line
        if self.keeps:
            self.left_of_chunk("chunk")
            line("states.leave(kept);")
        for k, t in enumerate(self.taken):
            self.read(k, t)
        if self.meets:
            with self.writer.block(""):
                self.left_of_chunk("chunks - 1 - chunk")
                self.meet()

    def read(self, k: int, taken: Taken) -> None:
        """What is taken of the states at all points of a chunk."""
        line = self.writer.line
        over = self.found.sides.index(taken.over)
        inner, outer = map(self.tile_of, self.found.inner(taken))
        groups, width = 1 if self.apart else self.groups, self.width_of(taken)
        with self.writer.block(f"if (group == {k % self.groups})" if self.apart else ""):
            line(f"float sums[{width // 8}][4], scores[4][4];")
            first = f"group * {width}" if groups > 1 else "0"
            line(f"const int32_t first_lane = {first};")
            own = "true" if taken.own is not None else "false"
            factor = self.tile_of(taken.factor)
            given = ["sums", "scores", factor, inner, "shared.states", "first_lane"]
            self.writer.wrapped(f"weft::read_states<{'false' if over else 'true'}>(", given, ");")
            if taken is self.found.dotted(self.step.growth) and (far := self.found.met(taken)) is not None:
                place = "shared.meeting.of_late" if self.meets else "dots"
                share = "group" if groups > 1 else "0"
                line(f"weft::ChunkMeeting::dots({place}[{share}], sums, {self.tile_of(far)}, first_lane);")
            given = ["sums", "scores", factor, inner, outer, "shared.weights", self.number(f"before_{k}")]
            given += [self.number(f"before_{k}" if taken.own is None else f"own_{k}"), "first_lane"]
            self.writer.wrapped(f"fine = weft::read_points<{own}>(", given, ") && fine;")
            (side,) = {0, 1} - {over}
            line("const int32_t thread = weft::own_thread();")
            line("const int32_t row = thread / 32 % 4 * 16 + thread % 32 / 4;")
            line("const int64_t lane = first_lane + thread % 4 * 2;  // so that places are found once")
            line("#pragma unroll")
            with self.writer.block("for (int32_t h = 0; h < 2; ++h)"):
                packets = [w for w in self.writes_of(taken) if self.in_packets(w, taken)]
                others = [w for w in self.writes_of(taken) if w not in packets]
                for n, _ in enumerate(packets):
                    self.write_packets(f"{k}_{n}", width)
                if not others:
                    return
                line("#pragma unroll")
                with self.writer.block(f"for (int32_t r = 0; r < {width // 8}; ++r)"):
                    if any(self.in_pairs(w, side) for w in others):
                        line(f"write_{k}_pair(chunk, row + 8 * h, lane + r * 8, sums[r][2 * h], sums[r][2 * h + 1]);")
                    else:
                        for v in range(2):
                            line(f"write_{k}(chunk, row + 8 * h, lane + r * 8 + {v}, sums[r][2 * h + {v}]);")

    def adding(self) -> None:
        """The states after the points of a chunk."""
        line, (left, right) = self.writer.line, self.pair
        line(f"fine = states.after(next, total, {left}, {right}, shared.weights) && fine;")

    # ---------------------------------------------------------------- points, one after another

    def point_by_point(self) -> None:
        """The points of a chunk one after another."""
        line, (left, right), here = self.writer.line, self.pair, f"{self.here[0]}, {self.here[1]}"
        line("float* const all = reinterpret_cast<float*>(&shared.states);")
        line("states.spread(all);")
        begin = f"chunk == 0 ? {self.before} : 0" if self.before else "0"
        left_over = f"int32_t(weft::minimum<int64_t>({CHUNK}, {self.count} - int64_t(chunk) * {CHUNK}))"
        line(f"const int32_t points = {CHUNK if self.before else left_over};")
        line("#pragma unroll 1")
        with self.writer.block(f"for (int32_t point = {begin}; point < points; ++point)"):
            with self.writer.block("if (chunk >= first)" if self.plan.shared else ""):
                self.read_point(left, right, here)
            given = ["all", "point", left, right, *(f"{self.number(n)}[point]" for n in ("decay", "weight")), here]
            self.writer.wrapped("states.step(", given, ");")
        line("states.gather(all);")

    def read_point(self, left: str, right: str, here: str) -> None:
        """What is taken of the states at one point."""
        line = self.writer.line
        for k, t in enumerate(self.taken):
            own = "true" if t.own is not None else "false"
            over = "true" if t.over == self.found.sides[0] else "false"
            factors = [f"{self.number(f'before_{k}')}[point]", "0.0f" if t.own is None else f"{self.number(f'own_{k}')}[point]"]
            with self.writer.block(f"const auto use_{k} = [&](const int32_t lane, const float sum)", "};"):
                line(f"write_{k}(chunk, point, lane, sum);")
            given = ["all", "point", self.tile_of(t.factor), left, right, *factors, here, f"use_{k}"]
            self.writer.wrapped(f"states.read_step<{over}, {own}>(", given, ");")
        if self.meets:
            self.meet_point(here)
        line("__syncthreads();")
