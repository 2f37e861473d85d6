"""States that grow by outer products as CUDA C++: a block goes through its points a chunk at a time, with products of matrices.

Where blocks share the points of a row, a launch before leaves what the points of each of them make of states of zeros, and what
they leave of others. A chunk in which something is not finite is gone through in order, as the program has it; so is all before
a block's points where the states that come to it are not: what is not finite stays so in what a launch before adds up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from weft.emit.dependent import Dependence, dependences, include
from weft.emit.expressions import SUM, memory_type, register_type
from weft.emit.names import Names, kernel_entry
from weft.emit.subscripts import coefficient
from weft.emit.text import Writer
from weft.emit.thread_body import parameters
from weft.emit.values import ZERO, ValueBody, deciding
from weft.graph.outer_states import Meeting, OuterStates, Taken
from weft.graph.tile import Fold, Map, Read, Write, uses_of_write
from weft.loops.ir import Const, Expr, Function, Let, Load, Ref, Store, trapping
from weft.loops.schedule import Nest
from weft.loops.types import BFLOAT16, FLOAT16, INT64
from weft.plan.arguments import Facts
from weft.plan.outer_states import (
    CHUNK,
    DOTS,
    MOST_SHARED,
    PACKET,
    SHARED_BITS,
    Brought,
    OuterPlan,
    OuterStep,
    blocks_at_once,
    brought,
    held,
    held_states,
    in_pairs,
    is_packets,
    meets,
    numbers,
    outer_steps,
    shared_bytes,
)

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
class OuterEntry(ValueBody):
    """A launch that goes through the points of one scan."""

    found: OuterStates = None  # type: ignore[assignment]
    plan: OuterPlan = None  # type: ignore[assignment]
    step: OuterStep = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.along = self.axes[self.found.found.along]
        self.growth = self.found.growths[self.step.growth]
        self.takes = self.step.takes
        self.taken = self.found.taken_of(self.step.growth) if self.takes else ()
        self.meets = meets(self.found, self.step)
        self.paired = in_pairs(self.found)
        self.keeps = self.takes and bool(self.found.meetings) and not self.meets
        self.count = ""  # of points
        self.columns = ""  # the first column of a block
        self.before = ""  # points of the first chunk that are none
        self.memory: dict[str, str] = {}  # that launches leave for each other, by what it has
        self.row = ""  # the number of a block's row
        self.tiles: dict[Expr, str] = {}
        self.numbers = numbers(self.found, self.step)
        self.places_of = {e: name for name, e in reversed(self.numbers.items())}  # equal ones have one place
        self.stages = self.step.stages(self.plan)
        self.apart = self.step.apart(self.found, self.plan)
        self.warps = self.step.warps(self.found, self.plan)
        self.threads, self.groups = 32 * self.warps, self.warps // 4
        self.held = held(self.found, self.plan, self.step)
        self.own = brought(self.function, self.found, self.plan, self.facts, self.step)

    # ---------------------------------------------------------------- the kernel

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

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor has at once."""
        size = shared_bytes(self.function, self.found, self.plan, self.facts, self.step)
        return max(1, blocks_at_once(self.found, self.plan, self.step, size, MOST_SHARED))

    def left_by(self, what: str, growth: int | None = None) -> str:
        own = self.growth if growth is None else self.found.growths[growth]
        return self.memory[f"{own.scan.names[0]}.{what}"]

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

    @contextmanager
    def placed(self, point: str = "", sides: Mapping[int, str] = MappingProxyType({})) -> Iterator[None]:
        """What is written here is so at a point, and at places along sides of the states, as far as it asks for them."""
        lines = []
        if point:
            start, stop = self.printer.index(self.along.start, SUM), self.printer.index(self.along.stop, SUM)
            place = f"{stop} - 1 - {point}" if self.growth.scan.reverse else point if start == "0" else f"{start} + {point}"
            lines.append((self.declare(self.along.name), place))
        for side, lane in sides.items():
            axis = self.axes[self.found.sides[side]]
            place = f"{self.columns} + {lane}" if side == 1 and self.columns else lane
            start = "" if axis.start == ZERO else f"{self.printer.index(axis.start, SUM)} + "
            lines.append((self.declare(axis.name), f"{start}{place}"))
        mark = self.writer.mark()
        leaves = set(self.leaves)
        yield
        self.leaves = leaves
        for name, place in lines:
            if self.writer.mentions(name, mark):
                self.writer.insert(mark, f"const int64_t {name} = {place};")

    def rows(self) -> None:
        """Which row, which of its columns and which of its points a block has."""
        line, plan, found = self.writer.line, self.plan, self.found
        (rows, columns), (first, second) = plan.widths, found.sides
        line(f"// a block has {rows} x {columns} states, and goes through its points {CHUNK} at a time")
        counts = {a: self.span(self.axes[a], f"{a}_count") for a in (*found.rows, second)}
        number = "int64_t(blockIdx.x)"
        if plan.shared:
            line("const int32_t segment = int32_t(blockIdx.x % parts);")
            number = "int64_t(blockIdx.x / parts)"
        if plan.tiled:
            tiles = self.fresh.fresh(f"{second}_tiles")
            line(f"const int64_t {tiles} = ({counts[second]} + {columns - 1}) / {columns};")
            self.columns = self.fresh.fresh(f"{second}_first")
            line(f"const int64_t {self.columns} = {number} % {tiles} * {columns};")
            number = f"{number} / {tiles}"
        self.places([self.axes[a] for a in found.rows], number, {a: counts[a] for a in found.rows})
        self.row = number
        self.count = self.span(self.along, f"{self.along.name}_count")
        sides = [self.span(self.axes[first], f"{first}_count"), counts[second]]
        self.here = [f"int32_t({sides[0]})", f"int32_t({sides[1]}{f' - {self.columns}' if self.columns else ''})"]

    def declare_shared(self) -> None:
        line, plan = self.writer.line, self.plan
        rows, columns = plan.widths
        line("// in shared memory: what products are made of, the states before a chunk, and numbers of its points")
        with self.writer.block("struct Shared", "};"):
            for own in self.own:
                wanted = own.value.name if isinstance(own.value, Ref) else "operand"
                self.tiles[own.value] = self.fresh.fresh(f"{wanted}_tile")
                line(f"weft::PartsTile<{CHUNK}, {plan.widths[own.side]}, {own.parts}> {self.tiles[own.value]}[{own.stages}];")
            if self.takes:
                line(f"weft::PartsTile<{rows}, {columns}, weft::exact_parts> states;")
            line("weft::ChunkWeights weights;")
            if self.meets:
                line(f"weft::{'ChunkPairs' if self.paired else 'ChunkMeeting'} meeting;")
            for name in self.places_of.values():
                line(f"alignas(16) float {name}[{self.stages}][{CHUNK}];")
        line("extern __shared__ __align__(1024) unsigned char memory[];")
        size = shared_bytes(self.function, self.found, plan, self.facts, self.step)
        line(f"static_assert(sizeof(Shared) <= {size});")
        line("Shared& shared = weft::kept_memory<Shared>(memory);")
        line(f"weft::OuterStates<{rows}, {columns}, {self.warps}> states;")
        line(f"static_assert(states.count * 4 == {held_states(self.found, plan, self.step)});")

    def chunks(self) -> None:
        line = self.writer.line
        line(f"const int32_t chunks = int32_t(({self.count} + {CHUNK - 1}) / {CHUNK});")
        if self.plan.shared:
            pieces = self.plan.pieces[self.step.growth]
            if self.takes or pieces == 1:
                line("const int32_t each = int32_t((chunks + parts - 1) / parts);")
                line("const int32_t first = segment * each, stop = weft::minimum<int32_t>(first + each, chunks);")
            else:
                line(f"// {pieces} blocks have the chunks that one of the next launch has")
                line(f"const int32_t all = int32_t((chunks + parts / {pieces} - 1) / (parts / {pieces}));")
                line(f"const int32_t each = (all + {pieces - 1}) / {pieces}, end = (segment / {pieces} + 1) * all;")
                line(f"const int32_t first = segment / {pieces} * all + segment % {pieces} * each;")
                line("const int32_t stop = weft::minimum<int32_t>(weft::minimum<int32_t>(first + each, end), chunks);")
        else:
            line("const int32_t first = 0, stop = chunks;")
        if self.found.meetings and self.step.growth:
            self.before = "before"
            line("// chunks are those of early states, so that the first of them may lack points")
            line(f"const int32_t before = int32_t(int64_t(chunks) * {CHUNK} - {self.count});")

    # ---------------------------------------------------------------- what comes to shared memory

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

    @property
    def single(self) -> list[Brought]:
        """What has a place for one chunk, while others have more."""
        return [own for own in self.own if own.stages < self.stages]

    def ahead(self, name: str) -> str:
        """A number of a thread's point of the next chunk."""
        return f"{self.places_of[self.numbers[name]]}_ahead"

    def number(self, name: str) -> str:
        """Where the numbers of a chunk's points are."""
        return f"shared.{self.places_of[self.numbers[name]]}[stage]"

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

    def points(self) -> None:
        """Which rows of a chunk are points."""
        if self.before:
            self.writer.line(f"const int32_t begin = chunk == 0 ? {self.before} : 0;")
        else:
            left_over = f"{self.count} - int64_t(chunk) * {CHUNK}"
            self.writer.line(f"const int32_t points = int32_t(weft::minimum<int64_t>({CHUNK}, {left_over}));")

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

    def point_of(self, row: str) -> str:
        """The number of a point, of its row in a chunk."""
        return f"int64_t(chunk) * {CHUNK} + {row}" + (f" - {self.before}" if self.before else "")

    @property
    def is_point(self) -> str:
        return "point >= 0" if self.before else f"point < {self.count}"

    def computed(self, exprs: Iterable[Expr]) -> None:
        """Compute the values that expressions need."""
        for value in self.needed(exprs):
            self.writer.cite(value.location)
            self.statements((self.let(value),))
            self.leaves.add(value.name)

    # ---------------------------------------------------------------- what is written

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

    # ---------------------------------------------------------------- states

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

    def tile_of(self, value: Expr) -> str:
        return f"shared.{self.tiles[value]}[{'0' if value in [own.value for own in self.single] else 'stage'}]"

    @property
    def pair(self) -> tuple[str, str]:
        """What is added to the states is the product of these."""
        return self.tile_of(self.growth.left), self.tile_of(self.growth.right)

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

    def again(self, chunk: str) -> None:
        """Bring what states are taken with once more, when what is on its way has come."""
        for text in ("weft::wait_copies<0>();", "__syncthreads();", f"bring_factors({chunk});", "weft::wait_copies<0>();"):
            self.writer.line(text)
        self.writer.line("__syncthreads();")

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

    def left_of_chunk(self, chunk: str) -> None:
        """Where early states before a chunk are, and what they make with what late ones add."""
        number = f"{self.row} * chunks + {chunk}"
        self.writer.line(f"float* const kept = {self.left_by('kept', 0)} + ({number}) * {self.held};")
        if self.found.dotted(0) is not None:
            place = f"{self.left_by('dots', 0)} + ({number}) * {DOTS}"
            self.writer.line(f"auto& dots = *reinterpret_cast<float(*)[4][{CHUNK}]>({place});")

    def adding(self) -> None:
        """The states after the points of a chunk."""
        line, (left, right) = self.writer.line, self.pair
        line(f"fine = states.after(next, total, {left}, {right}, shared.weights) && fine;")

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
