"""What the texts of scans have in common: reading ahead, composing what points do, going through points with the states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import ClassVar

from weft.emit.algebras import algebra_of, element_of, extremum_type, is_place, join
from weft.emit.cpp_body import factor
from weft.emit.dependent import Dependence
from weft.emit.expressions import SUM, memory_type, register_type
from weft.emit.thread_body import parameters
from weft.emit.values import ZERO, ValueBody
from weft.graph.scans import Scanned, ahead
from weft.graph.tile import Axis, Carried, Map, Read, Scan, Write, uses_of_write
from weft.loops.algebra.table import EXTREMA, overflows, segmented
from weft.loops.ir import Const, Expr, Let, Op, Ref, Stmt, free_names
from weft.loops.types import BOOL, INT64
from weft.plan.scan import SLOT_ALIGNMENT, ScanPlan, block_threads, ring_reads, slot_bytes


@dataclass
class ScanBody(ValueBody):
    """The one launch of a plan. A thread has runs of points: several of one row, or one of each of its rows."""

    scans: Scanned = None  # type: ignore[assignment]
    plan: ScanPlan = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.axis: Axis = self.axes[self.scans.along]
        self.row, self.all_rows = "", "1"  # the row's place among all, "" where there is one; how many there are
        self.first = ""  # the first of the neighbouring rows that a thread has, "" where it has one
        self.place = self.lane_count = ""  # of a thread's first row along the lane; how many there are
        self.end = self.begin = ""  # of the row; the first of a thread's points in a tile
        self.known: set[str] = set()  # values that a row's points have in common
        self.ended: set[str] = set()  # values that are known at the end of a row
        self.buffers: dict[str, tuple[str, str]] = {}  # of reads made a tile ahead: what is on its way, what is there
        self.slots: dict[str, tuple[str, int]] = {}  # of reads in the ring: its name, the elements of a tile
        self.stems: dict[str, str] = {}
        self.past = ""  # how far a row's first element is past a packet, where that is not known to be 0
        # tiles lie at multiples of their size, so that what is aligned moves in packets
        start = self.axis.start
        near = isinstance(start, Const) and 0 <= int(start.value) < self.plan.tile
        self.origin: Expr = ZERO if near else start
        self.index = "int64_t" if self.facts.wide or self.plan.beside else "int32_t"
        if self.index == "int32_t":
            self.printer = replace(self.printer, narrow=lambda name: name == self.axis.name)

    def stem(self, wanted: str) -> str:
        """A C++ name that is made once."""
        if wanted not in self.stems:
            self.stems[wanted] = self.fresh.fresh(wanted)
        return self.stems[wanted]

    @property
    def turn(self) -> str:
        """Which of two places in shared memory a tile has."""
        if self.plan.single:
            return "0"
        return "turn & 1" if self.plan.shared else "tile & 1"

    @property
    def number(self) -> str:
        """Of the turn whose states are found; turns count from 1."""
        return "turn" if self.plan.delayed else "turn + 1"

    @property
    def backwards(self) -> str:
        return "true" if self.scans.reverse else "false"

    # ---------------------------------------------------------------- the two ways in which threads lie

    def rows(self) -> None:
        """Which row a thread works for."""
        raise NotImplementedError

    def goes_along(self) -> bool:
        """Whether threads without a row, where there are such, go along with another one's."""
        return False

    def own(self, name: str) -> str:
        """A name that a thread has for each of its runs, in one of them."""
        raise NotImplementedError

    def declared(self, type_: str, name: str) -> None:
        """Declare a name that a thread has for each of its runs."""
        raise NotImplementedError

    @contextmanager
    def each_row(self) -> Iterator[None]:
        """What is written here is done for every row of a thread."""
        raise NotImplementedError
        yield

    def buffer(self, read: Read) -> tuple[str, str, str]:
        """Of a read made a tile ahead: the type of what is on its way, the dimensions of what is there, an element's index."""
        raise NotImplementedError

    def fetched(self, read: Read, target: str, name: str) -> None:
        """Write what reads at the point (the first of a run) that has this name."""
        raise NotImplementedError

    def points(self, body: Callable[[], None], begin: Callable[[], None], stored: Sequence[tuple[Write, str]] = ()) -> None:
        """Go through a thread's points of a tile, in order. begin: at the start of each run. stored: the names of the runs
        that go to memory in packets.
        """
        raise NotImplementedError

    def in_packets(self, w: Write) -> bool:
        raise NotImplementedError

    def combine(self, s: Scan, own: str) -> None:
        """Combine what the runs of all threads do."""
        raise NotImplementedError

    def composed(self, s: Scan, own: str) -> None:
        """From what runs do to a scan's states, the states before each of them, and after the tile."""
        raise NotImplementedError

    # ---------------------------------------------------------------- the kernel

    def emit(self, entry: str, launch: Dependence) -> None:
        plan, line = self.plan, self.writer.line
        given = parameters(self.function, self.nest, self.facts, self)
        if plan.shared:
            given += [f"uint64_t* {self.stem(f'{s.names[0]}_told')}" for s in self.scans.scans]
            given.append("const int64_t parts")
        lines = ",\n    ".join(given)
        threads = block_threads(self.scans, plan)
        bounds = f"{threads}, {plan.resident}" if plan.resident else f"{threads}"
        bounds = f"__launch_bounds__({bounds}){self.cluster()}"
        with self.writer.block(f'extern "C" __global__ void {bounds} {entry}(\n    {lines})'):
            launch.begin(self.writer)
            mark = self.writer.mark()
            if plan.shared:
                line("// blocks share a row, a tile each, and tell each other what theirs does")
                self.part()
            for s in self.scans.scans:
                if s.algebra in EXTREMA:
                    line(f"using {self.algebra(s)} = {extremum_type(s, self.index)};")
            self.rows()
            self.values_of_rows()
            self.states()
            self.tiles()
            self.ends()
            self.stop_outside(mark)

    def cluster(self) -> str:
        """What the text says of blocks that run together."""
        return ""

    def part(self) -> None:
        """Which of the tiles of a turn a block has."""
        self.writer.line("const int64_t part = blockIdx.y;")

    def algebra(self, s: Carried) -> str:
        """The C++ type of what changes states."""
        return self.stem(f"{s.names[0]}_extremum") if s.algebra in EXTREMA else algebra_of(s)

    def exprs(self) -> list[Expr]:
        """All that is evaluated."""
        found = [e for s in self.scans.scans for e in (*s.parts, *s.inits, *s.nexts)]
        found += [e for f in self.scans.folds for e in (*f.parts, *f.inits)]
        return found + [e for w in (*self.scans.writes, *self.scans.last) for e in uses_of_write(w)]

    def everything(self) -> tuple[Stmt, ...]:
        """The same as statements."""
        return self.statements_of(self.exprs(), (*self.scans.writes, *self.scans.last))

    def values_of_rows(self) -> None:
        """What a row's points have in common, computed once."""
        self.ended = {n for v in (*self.scans.scans, *self.scans.folds) for n in v.results}
        wanted = self.needed([*self.exprs(), self.axis.start, self.axis.stop])
        for value in wanted:
            if isinstance(value, Carried) or not set(value.axes) <= set(self.plan.rows):
                continue
            if isinstance(value, Map) and free_names(value.value) & self.ended:
                self.ended.add(value.name)
                continue
            self.known.add(value.name)
            self.value_of_row(value)

    def value_of_row(self, value: Read | Map) -> None:
        self.statements((self.let(value),))

    def states(self) -> None:
        """The states before the first tile; what folds start from."""
        for scan in self.scans.scans:
            self.writer.cite(scan.location)
            for result, init in zip(scan.results, scan.inits, strict=True):
                name = self.stem(result)
                self.names[result] = self.of_row(name)
                self.starts(register_type(init.type), name, init)
        for f in self.scans.folds:
            name = self.stem(f"{f.names[0]}_own")
            self.of_each_row(register_type(f.types[0]), name)
            with self.each_row():
                self.writer.line(f"{self.of_row(name)} = {self.algebra(f)}::identity();")

    def of_row(self, name: str) -> str:
        """A name that a thread has for each of its rows, in one of them."""
        return name

    def of_each_row(self, type_: str, name: str) -> None:
        self.writer.line(f"{type_} {name};")

    def starts(self, type_: str, name: str, init: Expr) -> None:
        """Declare a state with what it is before the first point."""
        self.writer.line(f"{type_} {name} = {self.printer.exact(init)};")

    # ---------------------------------------------------------------- reading ahead

    def read_ahead(self) -> None:
        """Declare what is on its way of the tiles whose turns come next."""
        if self.plan.stages:
            self.ring()
        for value in self.values:
            if isinstance(value, Read) and value.name not in self.slots and self.axis.name in value.axes and self.ahead(value):
                array = self.function.array(value.array)
                self.buffers[value.name] = (self.fresh.fresh(f"{value.array}_next"), self.fresh.fresh(f"{value.array}_tile"))
                type_, _, _ = self.buffer(value)
                self.writer.line(f"{type_.format(memory_type(array.dtype))} {self.buffers[value.name][0]}[{self.plan.runs}];")

    def ring(self) -> None:
        """Shared memory for tiles that copies bring by themselves, and what tells that they have come."""
        line, plan, offset = self.writer.line, self.plan, 0
        reads = ring_reads(self.function, self.scans, plan, self.facts)
        line(f"// {plan.stages} tiles are on their way or there")
        line(f"extern __shared__ __align__({SLOT_ALIGNMENT}) unsigned char memory[];")
        for read in reads:
            array = self.function.array(read.array)
            type_, name = memory_type(array.dtype), self.fresh.fresh(f"{read.array}_ring")
            line(f"{type_}* const {name} = reinterpret_cast<{type_}*>(memory{f' + {offset}' if offset else ''});")
            size = slot_bytes(self.function, self.scans, plan, read, self.facts)
            self.slots[read.name] = (name, size // array.dtype.size)
            self.buffers[read.name] = (name, self.fresh.fresh(f"{read.array}_tile"))
            offset += size * plan.stages
        line(f"__shared__ weft::Mbarrier arrived[{plan.stages}];")
        with self.writer.block("if (threadIdx.x == 0)"):
            line(f"for (int32_t k = 0; k < {plan.stages}; ++k) arrived[k].init({self.copying()});")
            line("weft::fence_mbarrier_init();")
        line("__syncthreads();")

    def copying(self) -> int:
        """How many threads start the copies of a tile."""
        return 1

    def copied(self, tile: str, stage: str) -> None:
        """Start the copies of a tile to its place in the ring."""
        raise NotImplementedError

    def begun_copies(self) -> None:
        """What follows the first copies."""

    def before_copies(self) -> None:
        """What comes before the barrier after which other copies may begin."""

    def of_ring(self) -> list[Read]:
        return [v for v in self.values if isinstance(v, Read) and v.name in self.slots]

    def unpacked_ring(self) -> None:
        """Take this turn's tile out of the ring, and start the copies of the one that takes its place."""
        line, plan = self.writer.line, self.plan
        number = "turn" if plan.shared else "tile"
        line(f"const int32_t stage = {number} % {plan.stages};")
        line(f"arrived[stage].wait({number} / {plan.stages} & 1);")
        self.staged()
        self.take()
        self.before_copies()
        line("__syncthreads();  // all have taken theirs")
        if plan.shared:
            line(f"if (turn + {plan.stages} < turns) copy_tile(tile + {plan.stages} * parts, stage);")
        else:
            line(f"if (tile + {plan.stages} < tiles) copy_tile(tile + {plan.stages}, stage);")

    def take(self) -> None:
        """Take the thread's points of the tile at this stage out of the ring."""
        line, plan = self.writer.line, self.plan
        name, k = self.stem(f"{self.axis.name}_there"), "step" if plan.beside else "run"
        line("#pragma unroll")
        with self.writer.block(f"for (int32_t {k} = 0; {k} < {plan.runs}; ++{k})"), self.spelled({self.axis.name: name}):
            line(f"const {self.index} {name} = {self.point_of(self.begin, k)};")
            for read in self.of_ring():
                self.writer.cite(read.location)
                self.taken(read, name)

    def take_again(self) -> None:
        """The same a turn later, to go through the points."""
        self.take()

    def begun(self) -> None:
        """What follows from where a tile begins."""

    def staged(self) -> None:
        """What follows from which place in the ring it has."""

    def taken(self, read: Read, name: str) -> None:
        """Take a run at the point of that name out of the ring."""
        raise NotImplementedError

    def ahead(self, read: Read) -> bool:
        alone = not any(free_names(i) & self.made.keys() for i in read.index)
        return alone and ahead(read, self.axes) and set(read.axes) <= {*self.plan.rows, self.axis.name}

    def reads(self) -> list[Read]:
        """Those that are on their way in registers."""
        return [v for v in self.values if isinstance(v, Read) and v.name in self.buffers and v.name not in self.slots]

    def fetch(self, tile: str) -> None:
        """Read what a tile needs."""
        if self.reads():
            begin = self.stem(f"{self.axis.name}_begin")
            self.writer.line(f"const {self.index} {begin} = {self.first_of(tile)};")
            self.fetch_run(begin)

    def fetch_run(self, begin: str) -> None:
        """Read what points from there on need."""
        if not self.reads():
            return
        name, k = self.stem(f"{self.axis.name}_ahead"), "step" if self.plan.beside else "run"
        self.writer.line("#pragma unroll")
        with self.writer.block(f"for (int32_t {k} = 0; {k} < {self.plan.runs}; ++{k})"), self.spelled({self.axis.name: name}):
            self.writer.line(f"const {self.index} {name} = {self.point_of(begin, k)};")
            for read in self.reads():
                self.writer.cite(read.location)
                self.fetched(read, f"{self.buffers[read.name][0]}[{k}]", name)

    def point_of(self, begin: str, k: str) -> str:
        """The first point of the k-th run, or the k-th point of the one run."""
        stride = 1 if self.plan.beside else min(32, self.plan.threads) * self.plan.vector
        return f"{begin} + {k}{f' * {stride}' if stride > 1 else ''}"

    def first_of(self, tile: str) -> str:
        """The first of a thread's points in a tile."""
        origin = self.printer.index(self.origin, SUM)
        number = f"(tiles - 1 - {factor(tile)})" if self.scans.reverse and not self.plan.single else factor(tile)
        own = self.stems.get(f"{self.axis.name}_own", "")
        place = [] if number == "0" else [f"{number} * {self.plan.tile}"]
        return " + ".join([*([] if origin == "0" else [origin]), *place, *([own] if own else [])]) or "0"

    def inside(self, name: str) -> list[str]:
        """Conditions that a point is one of the row's."""
        start = self.axis.start
        below = start != self.origin or self.past or (self.scans.reverse and self.plan.shared)
        return [*([f"{name} >= {self.printer.index(start)}"] if below else []), f"{name} < {self.end}"]

    def outside(self, read: Read, axes: Iterable[int]) -> list[str]:
        """Conditions that a read that may leave its array does not along these axes of it."""
        found = []
        for k in filter(partial(self.may_leave, read), axes):
            text, extent = self.printer.index(read.index[k]), self.function.array(read.array).shape[k]
            found += [f"{text} >= 0", f"{text} < {self.printer.index(extent)}"]
        return found

    def may_leave(self, read: Read, k: int) -> bool:
        """Whether a read may leave its array along an axis of it."""
        index = read.index[k]
        own = next((a for a in self.axes.values() if index == Ref(a.name, INT64)), None)
        whole = own is not None and own.start == ZERO and own.stop == self.function.array(read.array).shape[k]
        return not read.always and not whole

    def let(self, value: Read | Map) -> Let:
        """What may leave its array where nobody needs it is read inside alone."""
        made = super().let(value)
        if not isinstance(value, Read):
            return made
        inside: list[Expr] = []
        for k in filter(partial(self.may_leave, value), range(len(value.index))):
            index, extent = value.index[k], self.function.array(value.array).shape[k]
            inside += [Op("ge", (index, ZERO), BOOL), Op("lt", (index, extent), BOOL)]
        if not inside:
            return made
        every = reduce(lambda a, b: Op("and", (a, b), BOOL), inside)
        return replace(made, value=Op("where", (every, made.value, Const(0, made.value.type)), made.value.type))

    # ---------------------------------------------------------------- tiles

    def tiles(self) -> None:
        plan, line = self.plan, self.writer.line
        self.row_stop()
        if plan.single:
            for scan in self.scans.scans:
                self.scratch(scan)
            self.read_ahead()
            self.begin = self.stem(f"{self.axis.name}_first")
            line(f"const {self.index} {self.begin} = {self.first_of('0')};")
            self.fetch_run(self.begin)
            self.tile("", "")
            return
        stop, origin = self.printer.index(self.axis.stop, SUM), self.printer.index(self.origin)
        length = factor(stop) if origin == "0" else f"{factor(stop)} - {factor(origin)}"
        length += f" + {self.past}" if self.past else ""
        line(f"const int64_t tiles = ({length} + {plan.tile - 1}) / {plan.tile};")
        for scan in self.scans.scans:
            self.scratch(scan)
        self.read_ahead()
        if plan.shared:
            line("const int32_t turns = int32_t((tiles + parts - 1) / parts);")
        if plan.stages:
            with self.writer.block("const auto copy_tile = [&](int64_t tile, int32_t stage)", "};"):
                self.copied("tile", "stage")
            turns, tile = ("turns", "k * parts + part") if plan.shared else ("tiles", "k")
            line(f"for (int32_t k = 0; k < {plan.stages} && k < {turns}; ++k) copy_tile({tile}, k);")
            self.begun_copies()
        if self.reads():
            with self.writer.block("" if plan.shared else "if (tiles > 0)"):
                self.fetch("part" if plan.shared else "0")
        if plan.delayed:
            self.delayed()
        elif plan.shared:
            with self.writer.block("for (int32_t turn = 0; turn < turns; ++turn)"):
                line("const int64_t tile = turn * parts + part;")
                self.tile("tile + parts", "turn + 1 < turns")
        else:
            with self.writer.block("for (int64_t tile = 0; tile < tiles; ++tile)"):
                self.tile("tile + 1", "tile + 1 < tiles")

    kept: ClassVar[tuple[str, ...]] = ()  # what a block has of a scan's tile from one turn to the next

    def declare_kept(self, s: Scan) -> None:
        raise NotImplementedError

    def copy_kept(self, s: Scan) -> None:
        """Keep what the turn before has left, as `_before`."""
        raise NotImplementedError

    def delayed(self) -> None:
        """Turns in which a block composes its tile, and goes through the one before, of which the others have told since."""
        plan, line = self.plan, self.writer.line
        (level,) = self.scans.levels
        line("// what blocks tell each other of a turn is heard in the next one")
        for s in level:
            self.declare_kept(s)
        with self.writer.block("for (int32_t turn = 0; turn <= turns; ++turn)"):
            for s in level:
                self.copy_kept(s)
                self.asked(s)  # before it is needed
            self.begin = self.stem(f"{self.axis.name}_first")
            with self.writer.block("if (turn < turns)"):
                line("const int64_t tile = turn * parts + part;")
                line(f"const {self.index} {self.begin} = {self.first_of('tile')};")
                self.begun()
                line(f"const int32_t stage = turn % {plan.stages};")
                line(f"arrived[stage].wait(turn / {plan.stages} & 1);")
                self.staged()
                self.declare_tiles()
                self.take()
                self.compose(level, [])
            line("if (turn == 0) continue;")
            line("const int64_t tile = (turn - 1) * parts + part;")
            line(f"const {self.index} {self.begin} = {self.first_of('tile')};")
            self.begun()
            line(f"const int32_t stage = (turn - 1) % {plan.stages};")
            self.staged()
            self.declare_tiles()
            self.take_again()
            for s in level:
                kept = {f"{s.names[0]}_{what}": self.stem(f"{s.names[0]}_{what}") for what in self.kept}
                self.stems |= {name: self.stem(f"{name}_before") for name in kept}
                self.composed(s, "")
                self.stems |= kept
            self.finish(level)
            self.before_copies()
            line("__syncthreads();  // all have gone through it")
            line(f"if (turn - 1 + {plan.stages} < turns) copy_tile(tile + {plan.stages} * parts, stage);")

    def declare_tiles(self) -> None:
        for read in (*self.of_ring(), *self.reads()):
            _, shape, _ = self.buffer(read)
            type_ = register_type(self.function.array(read.array).dtype)
            self.writer.line(f"{type_} {self.buffers[read.name][1]}[{self.plan.runs}]{shape};")

    def row_stop(self) -> None:
        """Name the end of the row."""
        self.end = self.printer.index(self.axis.stop, SUM)
        if not isinstance(self.axis.stop, (Const, Ref)):
            self.end = self.stem(f"{self.axis.name}_stop")
            self.writer.line(f"const int64_t {self.end} = {self.printer.index(self.axis.stop)};")

    def scratch(self, scan: Scan) -> None:
        """Shared memory for what the threads of a block compose."""
        raise NotImplementedError

    def tile(self, following: str, more: str) -> None:
        """One tile: its values, the next one's on their way, the states before each run, and then its points."""
        plan, line = self.plan, self.writer.line
        self.declare_tiles()
        self.begin = self.stem(f"{self.axis.name}_first")
        if not plan.single:
            line(f"const {self.index} {self.begin} = {self.first_of('tile')};")
            self.begun()
        if plan.stages:
            self.unpacked_ring()
        if self.reads():
            line("#pragma unroll")
            with self.writer.block(f"for (int32_t k = 0; k < {plan.runs}; ++k)"):
                for read in self.reads():
                    coming, there = self.buffers[read.name]
                    type_ = register_type(self.function.array(read.array).dtype)
                    line(
                        f"weft::unpack({coming}[k], {there}[k]);"
                        if self.buffer(read)[1]
                        else f"{there}[k] = {type_}({coming}[k]);"
                    )
            if not plan.shared and not plan.single:
                with self.writer.block(f"if ({more})"):
                    self.fetch(following)
        done: list[Scan] = []
        for level in self.scans.levels:
            self.compose(level, done)
            done += level
        if self.reads() and plan.shared:  # what blocks tell each other would wait behind it
            with self.writer.block(f"if ({more})"):
                self.fetch(following)
        self.finish(done)

    # ---------------------------------------------------------------- points

    def at_point(self, exprs: Iterable[Expr]) -> None:
        """Compute what expressions need at a point."""
        for value in self.needed(exprs):
            if isinstance(value, Carried) or value.name in self.known:
                continue
            if value.name in self.buffers:
                self.names[value.name] = self.buffers[value.name][1] + self.buffer(value)[2]
            else:
                self.statements((self.let(value),))

    def replayed(self, exprs: Sequence[Expr], among: Sequence[Scan]) -> tuple[Scan, ...]:
        """The scans whose states at points expressions need, themselves or by the states of others."""
        found: list[Scan] = []
        wanted = list(exprs)
        while True:
            used = [*wanted, *(v.value for v in self.needed(wanted) if isinstance(v, Map))]
            names = {n for e in used for n in free_names(e)}
            more = [s for s in among if s not in found and set(s.names) & names]
            if not more:
                return tuple(s for s in among if s in found)
            found += more
            wanted += [e for s in more for e in s.nexts]

    def begin_states(self, scans: Sequence[Scan]) -> None:
        """The states with which a run starts."""
        raise NotImplementedError

    def before(self, name: str) -> str:
        """The states before each of a thread's runs."""
        return self.stem(f"{name}_before")

    # ---------------------------------------------------------------- what states need and what needs them

    def compose(self, level: Sequence[Scan], done: Sequence[Scan]) -> None:
        """The states of a level's scans before each run, those of the levels before being there."""
        parts = [e for s in level for e in s.parts]
        replayed = self.replayed(parts, done)
        owns = {s.names[0]: self.stem(f"{s.names[0]}_own") for s in level}
        for s in level:
            self.writer.line(f"// what each run does to {' and '.join(s.names)}")
            self.declared(f"{self.algebra(s)}::Value", owns[s.names[0]])

        def begin() -> None:
            with self.each_row():
                for s in level:
                    self.writer.line(f"{self.own(owns[s.names[0]])} = {self.algebra(s)}::identity();")
            self.begin_states(replayed)

        def body() -> None:
            self.at_point([*parts, *(e for s in replayed for e in s.nexts)])
            for s in level:
                self.writer.cite(s.location)
                own = self.own(owns[s.names[0]])
                self.writer.line(f"{own} = {self.taken_in(s, own)};")
            self.advance_states(replayed)

        self.points(body, begin)
        for s in level:
            self.combine(s, owns[s.names[0]])
            if not self.plan.delayed:
                self.composed(s, owns[s.names[0]])

    def changed_in_order(self, s: Scan, states: Sequence[str], call: str, parameters: str, keeps: str) -> None:
        """For what overflows when points are composed: threads change the states one after another."""
        replayed = self.replayed(s.nexts, [x for x in self.scans.scans if x is not s])
        names = ", ".join(f"{register_type(t)}& {self.stem(n)}" for n, t in zip(s.names, s.types, strict=True))

        def begin() -> None:
            self.begin_states(replayed)
            self.names |= {n: self.stem(n) for n in s.names}

        def body() -> None:
            self.at_point([*s.nexts, *(e for x in replayed for e in x.nexts)])
            self.advance_states((*replayed, s))

        with self.writer.block(f"const auto change = [&]({parameters}{names})", "};"):
            self.points_of_one(body, begin)
        kept = " ".join(f"{self.before(n)}{keeps} = {self.stem(n)};" for n in s.names)
        self.writer.line(f"const auto keep = [&]({parameters}{names}) {{ {kept} }};")
        self.writer.line(f"{call}(change, keep, {', '.join(states)});")

    def points_of_one(self, body: Callable[[], None], begin: Callable[[], None]) -> None:
        """Go through the points of one run of a thread."""
        raise NotImplementedError

    def taken_in(self, s: Scan, own: str) -> str:
        """What has been combined so far, with what a point does."""
        if s.algebra not in EXTREMA:
            return element_of(self.printer, s, own)
        kept = [e for k, e in enumerate(s.parts) if k < 2 or not is_place(s, k - 1)]
        found = f"{self.names[self.axis.name]}, {', '.join(map(self.printer.value, kept))}"
        algebra = self.algebra(s)
        return f"{algebra}::combine({own}, {algebra}::step({found}))" if s.reverse else f"{algebra}::next({own}, {found})"

    def applied(self, s: Scan, element: str, states: Sequence[str]) -> None:
        if s.algebra not in EXTREMA:
            self.writer.line(f"{self.algebra(s)}::apply({element}, {', '.join(states)});")
            return
        kept = [x for k, x in enumerate(states) if not is_place(s, k)]
        places = [f"{x} = {element}.column;" for k, x in enumerate(states) if is_place(s, k)]
        moved = f"{{ {' '.join(places)} }}" if len(places) > 1 else "".join(places)
        changed = f"{self.algebra(s)}::apply({element}, {', '.join(kept)})"
        self.writer.line(f"if ({changed}) {moved}" if places else f"{changed};")

    def may_overflow(self, s: Scan) -> bool:
        """Whether what is composed may overflow where no state does."""
        return overflows(s.algebra, s.types[0])

    # ---------------------------------------------------------------- blocks that share a row

    def chain(self, s: Scan, across: int, values: int = 1) -> None:
        """How blocks tell each other what their tiles do."""
        algebra, stem, line = self.algebra(s), s.names[0], self.writer.line
        type_ = f"weft::Chain<{algebra}, {register_type(s.types[0])}, {across}, {self.plan.threads}>"
        name = self.stem(f"{stem}_chain")
        row, told = self.row or "0", self.stem(f"{stem}_told")
        if self.plan.beside:  # what lies beyond hears what the last rows hear
            row = self.stem(f"{stem}_row")
            last = f"weft::minimum<int64_t>({self.place}, {self.lane_count} - {self.plan.vector})"
            line(f"const int64_t {row} = {self.row.format(self.place if self.goes_along() else last)};")
        tells = ", here" if self.plan.beside else ""
        line(f"const {type_} {name}({told}, {row}, {self.all_rows}, part, parts{tells});")
        places = f"{name}.places" if values == 1 else f"{values} * {name}.places"
        line(f"__shared__ {type_}::Both::Value {self.stem(f'{stem}_parts')}[{places}];")

    def asked(self, s: Scan) -> None:
        """Ask for what the other blocks have told."""
        chain, asked = self.stem(f"{s.names[0]}_chain"), self.stem(f"{s.names[0]}_asked")
        values = self.plan.vector if self.plan.beside else 1
        self.writer.line(f"typename decltype({chain})::Asked<{values}> {asked};")
        self.writer.line(f"{chain}.ask<{values}>({asked}, {self.number});")

    def replayed_chain(self, s: Scan, total: str, tiles: Sequence[str], lasts: Sequence[str], value: str) -> None:
        """The states after the tiles of all blocks; where composing overflows, from one to the other."""
        if not self.may_overflow(s):
            self.applied(s, total, lasts)
            return
        (tile,), (last,), line = tiles, lasts, self.writer.line
        first = self.of_row(self.stem(f"{s.names[0]}_turn"))
        line(f"{first} = {last};")
        self.applied(s, total, lasts)
        number = f" && !weft::is_nan({first})" if self.sticks(s) else ""
        with self.writer.block(f"if ((!weft::is_finite({tile}) || !weft::is_finite({last})){number})"):
            line(f"{last} = {first};")
            line(f"{self.stem(f'{s.names[0]}_chain')}.replay({self.number}, {tile}, {last}{value});")

    @contextmanager
    def turns_of_blocks(self, s: Scan, tiles: Sequence[str], lasts: Sequence[str], value: str = "") -> Iterator[None]:
        """Around what changes the states in order: where a tile cannot be composed, blocks do so one after another."""
        if not self.plan.shared:
            yield
            return
        stem, line, (tile,), (last,) = s.names[0], self.writer.line, tiles, lasts
        chain, first, whole = (self.stem(f"{stem}_{what}") for what in ("chain", "turn", "whole"))
        first = self.of_row(first)
        line(f"{whole} = weft::all_of_team<{self.plan.threads}>({whole});")
        line(f"if (!{whole}) {tile} = {chain}.received({self.number}, {first}{value});")
        yield
        line(f"if (!{whole}) {last} = {chain}.handed_on({self.number}, {tile}{value});")

    def settled(self, s: Scan, finite: str, tiles: Sequence[str]) -> str:
        """The condition that composing has done no harm. What is not a number before a tile is so after it in any order."""
        first = self.of_row(self.stem(f"{s.names[0]}_turn")) if self.plan.shared else tiles[0]
        return f"{finite} || weft::is_nan({first})" if self.sticks(s) else finite

    def sticks(self, s: Scan) -> bool:
        """Whether a state that is not a number stays so."""
        return segmented(s.algebra) is None and len(s.names) == 1

    def finish(self, done: Sequence[Scan]) -> None:
        """What is folded and written at points."""
        writes, folds = self.scans.writes, self.scans.folds
        if not writes and not folds:
            return
        stored = [(w, self.stem(f"{w.array}_run")) for w in writes if self.in_packets(w)]
        runs = dict(stored)
        exprs = [e for f in folds for e in f.parts] + [w.value for w in writes]
        exprs += [e for w in writes if w not in runs for e in uses_of_write(w)]
        replayed = self.replayed(exprs, done)

        def body() -> None:
            self.at_point([*exprs, *(e for s in replayed for e in s.nexts)])
            for f in folds:
                self.writer.cite(f.location)
                own = self.of_row(self.stem(f"{f.names[0]}_own"))
                self.writer.line(f"{own} = {element_of(self.printer, f, own)};")
            for w in writes:
                if w in runs:
                    self.writer.cite(w.location)
                    self.writer.line(f"{runs[w]}[v] = {self.printer.value(w.value)};")
                else:
                    self.write(w)
            self.advance_states(replayed)

        self.points(body, lambda: self.begin_states(replayed), stored)

    def ends(self) -> None:
        """What is written once a row."""
        if not self.scans.last:
            return
        for f in self.scans.folds:
            self.folded(f.names[0])
        if self.scans.continues:
            self.writer.line(f"weft::sync_team<{self.plan.threads}>();  // all have begun with what is replaced here")
        conditions = (["part == 0"] if self.plan.shared else []) + self.one_of_row()
        with self.writer.block(f"if ({' && '.join(conditions)})"), self.each_row():
            exprs = [e for w in self.scans.last for e in uses_of_write(w)]
            late = [v for v in self.needed(exprs) if isinstance(v, Map) and v.name in self.ended]
            self.statements(tuple(self.let(v) for v in late))
            for w in self.scans.last:
                self.write(w)

    def one_of_row(self) -> list[str]:
        """Conditions that one thread of a row meets."""
        raise NotImplementedError

    def folded(self, name: str) -> None:
        """Combine what the threads of a row have folded."""
        f = next(f for f in self.scans.folds if f.names[0] == name)
        result, type_, algebra = self.stem(f.results[0]), register_type(f.types[0]), self.algebra(f)
        self.writer.cite(f.location)
        own, scratch = self.stem(f"{name}_own"), self.stem(f"{name}_scratch")
        self.of_each_row(type_, result)
        self.names[f.results[0]] = self.of_row(result)
        places = self.fold_places()
        if places:
            self.writer.line(f"__shared__ {type_} {scratch}{self.dimension()}[{places}];")
        with self.each_row():
            total = self.reduced(algebra, self.of_row(own), self.of_row(scratch) if places else "nullptr")
            template = join(f.algebra, f.types[0])
            self.writer.line(f"{self.names[f.results[0]]} = {template.format(self.printer.exact(f.inits[0]), total)};")

    def dimension(self) -> str:
        return ""

    def fold_places(self) -> int:
        raise NotImplementedError

    def reduced(self, algebra: str, own: str, scratch: str) -> str:
        raise NotImplementedError
