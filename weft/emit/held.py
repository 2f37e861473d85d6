"""Rows that the registers of their threads hold as they are in memory, as CUDA C++: read once, gone through as often as their
folds need it, written from there. A block, or a cluster of blocks, has a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from weft.emit.expressions import PRODUCT, SUM, memory_type, register_type
from weft.emit.fold_points import Turn, Work
from weft.emit.folds import Entry
from weft.emit.values import ZERO
from weft.graph.sweeps import Sweep
from weft.graph.tile import Axis, Fold, Map, Read, uses, uses_of_write
from weft.loops.ir import Expr, Let, Op, Ref, Stmt, free_arrays, free_names, walk_expr
from weft.loops.operators import COSTLY
from weft.loops.types import INT64
from weft.plan.fold import KEPT_POINTS, WARP, held_reads


@dataclass
class HeldEntry(Entry):
    """The one launch of a plan whose threads hold the points of rows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        plan = self.plan
        self.lane = self.axes[plan.lane]
        self.reads = held_reads(self.sweeps, plan.lane, plan.alike)
        self.keeps = self.kept()
        self.extent = ""  # how many points a row has
        self.steady = True  # all rows have as many
        self.run = self.fresh.fresh(f"{plan.lane}_run")  # the first of a run of neighbouring points, from the row's first on
        self.scratch: dict[str, str] = {}
        self.quotients: dict[str, str] = {}  # what tells the axes that are counted in others
        self.totals: dict[str, str] = {}  # of folds that have met
        self.rounds: list[tuple[Fold, ...]] = []  # the folds that meet in a cluster, each time
        self.met = ""
        along = [v for v in self.values if isinstance(v, Read) and any(plan.lane in free_names(i) for i in v.index)]
        self.several = {v.name for v in along if plan.vector > 1 and v not in self.reads and self.users(v) > 1}
        self.once: dict[str, str] = {}  # packets of what is the same for every row and needed by several stages
        self.packed = {v.name for v in self.reads} if plan.vector > 1 else set()  # held as they are in memory
        self.fetched_once: set[str] = set()
        sizes = [n for n in (plan.chunks, plan.vector) if n > 1]
        self.shape = "".join(f"[{n}]" for n in sizes)  # of what a thread holds of a row, and the place of a point in it
        self.chunk = "[chunk]" if plan.chunks > 1 else ""
        self.at_once = plan.vector > 1 and plan.threads >= WARP and len(self.reads) > 1
        self.place_in_tile = self.chunk + ("[v]" if plan.vector > 1 else "")

    def kept(self) -> Map | None:
        """What is costly and needed by several stages is computed once: one such value, for each takes the room of a row."""
        found: list[tuple[int, int, Map]] = []
        for k, v in enumerate(self.values):
            if self.plan.chunks * self.plan.vector > KEPT_POINTS:
                return None  # what is computed takes twice the room of what is read
            if not isinstance(v, Map) or v.name in self.parts:
                continue
            if self.plan.lane in v.axes and _costly(v.value) and (users := self.users(v)) > 1:
                found.append((users, k, v))
        return max(found, key=lambda f: f[:2])[2] if found else None

    def users(self, value: Map | Read) -> int:
        """How many stages need a value at their points."""
        return sum(value in self.needed(e for s in stage for e in _exprs(s)) for stage in self.sweeps.stages)

    # ---------------------------------------------------------------- rows

    def body(self) -> None:
        plan, line = self.plan, self.writer.line
        points = f"{plan.vector} neighbouring points" if plan.vector > 1 else "a point"
        times = f", {plan.chunks} times" if plan.chunks > 1 else ""
        line(f"// {self.whose()}; each thread {'has' if plan.inside else 'holds'} {points}{times}")
        self.shared_memory()
        if plan.cluster > 1:
            self.thread = self.fresh.fresh("thread")
            line(f"const int32_t {self.thread} = int32_t(weft::cluster_rank() * {plan.threads} + threadIdx.x);")
        self.begin()
        if plan.chunks == 1 and not plan.inside:
            line(f"const int32_t {self.run} = {self.first_run()};")
        bounds = free_names(self.lane.start) | free_names(self.lane.stop)
        self.steady = not bounds & {*plan.rows, *self.made}
        if self.steady:
            self.extent = self.span(self.lane, f"{plan.lane}_count")
        tiles = {v.name: self.fresh.fresh(f"{v.name}_tile") for v in self.reads}
        axes = [self.axes[a] for a in plan.rows]
        counts = {a.name: self.span(a, f"{a.name}_count") for a in axes}
        self.all_rows(axes, counts, tiles)

    def whose(self) -> str:
        """Who has a row."""
        plan = self.plan
        team = "a warp" if plan.threads == 32 else f"{plan.threads} threads" if plan.threads > 1 else "a thread"
        if plan.cluster > 1:
            return f"a row a cluster of {plan.cluster} blocks of {plan.threads} threads"
        return f"{plan.teams} rows a block, {team} each" if plan.teams > 1 else f"a row a block of {plan.threads} threads"

    def begin(self) -> None:
        """What comes before all rows."""

    def all_rows(self, axes: list[Axis], counts: dict[str, str], tiles: dict[str, str]) -> None:
        """The rows that a block has: one."""
        plan, line = self.plan, self.writer.line
        if axes:
            self.row = self.row_name(axes)
            first = "blockIdx.x" if plan.teams == 1 else f"int64_t(blockIdx.x) * {plan.teams} + threadIdx.y"
            line(f"const int64_t {self.row} = {first if plan.cluster == 1 else f'blockIdx.x / {plan.cluster}'};")
            if plan.teams > 1 or plan.fewer:
                line(f"if ({self.row} >= {' * '.join(counts.values())}) return;")
            self.begin_row(axes, counts)
        self.read_row(tiles)
        self.stages()

    def row_name(self, axes: list[Axis]) -> str:
        """The place of a row among all: where there is one axis, and it starts at 0, its own."""
        return self.declare(axes[0].name) if len(axes) == 1 and axes[0].start == ZERO else self.fresh.fresh("row")

    def begin_row(self, axes: list[Axis], counts: dict[str, str]) -> None:
        """Where a row lies, and how many points it has."""
        if self.row != self.names.get(axes[0].name):
            self.narrowly(axes, self.row, counts)
        if not self.steady:
            self.extent = self.span(self.lane, f"{self.plan.lane}_count")

    def read_row(self, tiles: dict[str, str]) -> None:
        """The one row that a thread has a part of."""
        pointers = dict(self.pointers)
        self.hoist(tuple(map(self.let, self.reads)), list(self.plan.rows))
        self.declare_tiles(tiles)
        with self.runs():
            for v in self.reads:
                self.writer.cite(v.location)
                self.writer.line(self.taken_over(v, self.fetched(v), f"{tiles[v.name]}{self.chunk}"))
        self.asked_for()
        self.pointers = pointers
        self.held(tiles)
        self.of_rows(self.told_early())

    def told_early(self) -> list[Read]:
        """What else a row needs of memory, which can be read before any of it is computed."""
        sweeps = [s for stage in self.sweeps.stages for s in stage]
        exprs = [e for s in sweeps for f in s.folds for e in f.inits] + [e for s in sweeps for e in _exprs(s)]
        needed = self.needed([*exprs, *(e for w in self.sweeps.last for e in uses_of_write(w))])
        reads = [v for v in needed if isinstance(v, Read) and set(v.axes) <= {*self.plan.rows}]
        return [v for v in reads if not {n for e in v.index for n in free_names(e)} & self.made.keys()]

    def asked_for(self) -> None:
        """All loads of a row come before what waits for one of them."""
        if self.at_once:
            self.writer.line("__syncwarp();  // all of the row is on its way")

    def taken_over(self, read: Read, memory: str, tile: str) -> str:
        """What brings a run from memory to what a thread holds."""
        dtype = self.function.array(read.array).dtype
        same = self.plan.vector > 1 or memory_type(dtype) == register_type(dtype)
        return f"{tile} = {memory if same else f'{register_type(dtype)}({memory})'};"

    def declare_tiles(self, tiles: dict[str, str]) -> None:
        for v in self.reads:
            if v.name in self.packed:
                self.declare_run(v, tiles[v.name])
            else:
                self.writer.line(f"{register_type(v.type)} {tiles[v.name]}{self.shape};")

    def declare_run(self, read: Read, name: str) -> None:
        """Runs of neighbouring points, as they are in memory: two of a 16-bit type share a register."""
        type_ = memory_type(self.function.array(read.array).dtype)
        run = f"weft::Run<{type_}, {self.plan.vector}>" if self.plan.vector > 1 else type_
        self.writer.line(f"{run} {name}{f'[{self.plan.chunks}]' if self.plan.chunks > 1 else ''};")

    def held(self, tiles: dict[str, str]) -> None:
        """From here on these values are in registers."""
        if self.packed:
            self.once |= tiles
            self.fetched_once |= tiles.keys()
            return
        self.names |= {n: f"{tile}{self.place_in_tile}" for n, tile in tiles.items()}
        self.leaves |= tiles.keys()

    def everything(self) -> tuple[Stmt, ...]:
        return tuple(s for s in super().everything() if not (isinstance(s, Let) and s.name in self.packed))

    def apart(self) -> bool:
        """Threads store to what they alone have read, unless more is read than what they hold."""
        stored = self.stored()
        read = {v.array for v in self.values if isinstance(v, Read) and v not in self.reads}
        exprs = [e for v in self.values if not isinstance(v, Read) for e in uses(v)]
        exprs += [e for stage in self.sweeps.stages for s in stage for e in _exprs(s)]
        exprs += [e for w in self.sweeps.last for e in uses_of_write(w)]
        return self.sweeps.apart and bool(stored & (read | {a for e in exprs for a in free_arrays(e)}))

    def stored(self) -> set[str]:
        """The arrays that are stored to."""
        return {w.array for stage in self.sweeps.stages for s in stage for w in s.writes} | {w.array for w in self.sweeps.last}

    def shared_memory(self) -> None:
        """What the warps of a row tell each other."""
        if self.plan.threads <= 32:
            return
        if self.plan.cluster > 1:
            self.cluster_memory()
            return
        line, plan = self.writer.line, self.plan
        together: dict[str, int] = {}  # values of each type that meet at a barrier
        for sweep in (s for stage in self.sweeps.stages for s in stage if s.folds):
            for type_, count in Counter(self.value_type(f) for f in sweep.folds).items():
                together[type_] = max(together.get(type_, 1), count if self.meets(sweep.folds) else 1)
        if together:
            line("// what the warps of a row tell each other; two of each, used in turn, so that one barrier does")
        for type_, count in together.items():
            self.scratch[type_] = self.fresh.fresh(f"{type_.removesuffix('::Value').removesuffix('_t')}_values")
            line(f"__shared__ {type_} {self.scratch[type_]}[2][{count * (plan.threads // 32)}];")
        self.turn = self.fresh.fresh("turn")
        line(f"int32_t {self.turn} = 0;")

    def cluster_memory(self) -> None:
        """What the warps of a cluster tell each other, and the barriers at which it arrives: both used once."""
        line = self.writer.line
        self.rounds = [s.folds for stage in self.sweeps.stages for s in stage if s.folds]
        self.met = self.fresh.fresh("met")
        line("// what the warps of a row tell each other, and where they wait for it")
        for fold in (f for folds in self.rounds for f in folds):
            name = self.scratch[fold.results[0]] = self.fresh.fresh(f"{fold.names[0]}_told")
            room = self.plan.threads // 32 * self.plan.cluster
            line(f"__shared__ __align__(16) weft::Slot<{self.value_type(fold)}> {name}[{room}];")
        line(f"__shared__ weft::Mbarrier {self.met}[{len(self.rounds)}];")
        with self.writer.block("if (threadIdx.x == 0)"):
            line(f"for (int32_t k = 0; k < {len(self.rounds)}; ++k) {self.met}[k].init(1);")
            line("weft::fence_mbarrier_init();")
            for k, folds in enumerate(self.rounds):
                line(f"{self.met}[{k}].arrive_expect({' + '.join(f'sizeof {self.scratch[f.results[0]]}' for f in folds)});")
        line("weft::cluster_arrive_relaxed();")

    def meets(self, folds: Sequence[Fold]) -> bool:
        """Whether several folds meet at one barrier."""
        return len(folds) > 1 and self.plan.threads > 32

    def meet(self, folds: Sequence[Fold], owns: Mapping[str, str]) -> None:
        if self.plan.cluster > 1:
            self.meet_in_cluster(folds, owns)
            return
        if not self.meets(folds):
            return
        line, places = self.writer.line, Counter[str]()
        line(f"{self.turn} ^= 1;")
        for fold in folds:
            type_, algebra = self.value_type(fold), self.algebra(fold)
            place = f"{self.scratch[type_]}[{self.turn}]"
            if places[type_]:
                place += f" + {places[type_] * (self.plan.threads // 32)}"
            places[type_] += 1
            line(f"weft::tell<{algebra}>({owns[fold.results[0]]}, {place});")
            self.totals[fold.results[0]] = f"weft::told<{algebra}, {self.plan.threads}>({place})"
        line("__syncthreads();")

    def meet_in_cluster(self, folds: Sequence[Fold], owns: Mapping[str, str]) -> None:
        if not folds:
            return
        line, k = self.writer.line, self.rounds.index(tuple(folds))
        if k == 0:
            line("weft::cluster_wait();  // all of its blocks are there")
        for fold in folds:
            slots, kind = self.scratch[fold.results[0]], f"{self.algebra(fold)}, {self.plan.threads}, {self.plan.cluster}"
            line(f"weft::tell_cluster<{kind}>({owns[fold.results[0]]}, {slots}, {self.met}[{k}]);")
            self.totals[fold.results[0]] = f"weft::told_cluster<{kind}>({slots})"
        line(f"{self.met}[{k}].wait<weft::Scope::cluster>(0);")

    def total(self, fold: Fold, own: str) -> str:
        if fold.results[0] in self.totals:
            return self.totals[fold.results[0]]
        scratch = f"{self.scratch[self.value_type(fold)]}[{self.turn} ^= 1]" if self.plan.threads > 32 else "nullptr"
        return f"weft::reduce<{self.algebra(fold)}, {self.plan.threads}>({own}, {scratch})"

    # ---------------------------------------------------------------- points

    def first_run(self) -> str:
        return f"{self.thread} * {self.plan.vector}" if self.plan.vector > 1 else self.thread

    @contextmanager
    def runs(self) -> Iterator[None]:
        """What is written here is done for each run of points that a thread has of a row."""
        plan = self.plan
        if plan.chunks == 1:
            with self.writer.block(f"if ({self.run} < {self.extent})"):
                yield
            return
        self.writer.line("#pragma unroll")
        with self.writer.block(f"for (int32_t chunk = 0; chunk < {plan.chunks}; ++chunk)"):
            mark = self.writer.mark()
            if plan.whole == plan.chunks:
                yield
            else:
                some = f"chunk < {plan.whole} || " if plan.whole else ""
                with self.writer.block(f"if ({some}{self.run} < {self.extent})"):
                    yield
            if self.writer.mentions(self.run, mark):
                place = f"chunk * {plan.threads * plan.cluster * plan.vector} + {self.first_run()}"
                self.writer.insert(mark, f"const int32_t {self.run} = {place};")

    def first_point(self) -> str:
        """The first point of a run."""
        return self.run if self.lane.start == ZERO else f"{self.printer.index(self.lane.start, SUM)} + {self.run}"

    def fetched(self, read: Read) -> str:
        """The points of a run, as they are in memory."""
        with self.spelled({self.lane.name: self.first_point()}):
            if self.plan.vector == 1:
                return self.element(read.array, read.index)
            return super().packet(read, "fetch_now" if self.at_once else "fetch")

    def packet(self, read: Read, how: str = "fetch") -> str:
        """Neighbouring elements as they are in memory, or in registers, where an earlier stage has needed them too."""
        if read.name not in self.once:
            return self.from_memory(read, how)
        place = f"{self.once[read.name]}{self.chunk}"
        if read.name not in self.fetched_once:
            self.writer.line(f"{place} = {self.from_memory(read, how)};")
        return place

    def from_memory(self, read: Read, how: str) -> str:
        """Neighbouring elements where they lie."""
        return super().packet(read, how)

    def all_points(self, axes: list[Axis], work: Work, across: int) -> None:
        lane, name = self.lane, self.declare(self.lane.name)
        if self.keeps in work.values:
            assert self.keeps is not None
            tile = self.fresh.fresh(f"{self.keeps.name}_tile")
            self.writer.line(f"{register_type(self.keeps.type)} {tile}{self.shape};")
            self.names[self.keeps.name] = f"{tile}{self.place_in_tile}"
            self.assigned = {self.keeps.name: self.names[self.keeps.name]}
            self.leaves.add(self.keeps.name)
        self.same_for_every_row(work)
        for v in work.values:
            if isinstance(v, Read) and v.name in self.several and v.name not in self.once:
                self.once[v.name] = self.fresh.fresh(f"{v.name}_packets")
                self.declare_run(v, self.once[v.name])
        self.divide(work)
        with self.runs():
            if self.plan.vector > 1:
                self.run_of_points(lane, self.run, self.same_along_runs(work))
            else:
                with self.points(Turn(name, self.first_point(), 1)):
                    self.point(work)
        self.assigned = {}
        self.fetched_once |= self.once.keys()

    # ---------------------------------------------------------------- axes that are counted as one

    def divide(self, work: Work) -> None:
        """What tells the axes that are counted in others."""
        for v in work.values:
            if v.name in self.parts and v.name not in self.quotients:
                assert isinstance(v, Map) and isinstance(v.value, Op)
                size, name = v.value.args[1], self.fresh.fresh(f"{v.name}_quotient")
                self.quotients[v.name] = name
                self.writer.line(f"const weft::Quotient {name}({self.printer.index(size)});")

    def let(self, value: Read | Map) -> Let:
        if value.name not in self.quotients:
            return super().let(value)
        assert isinstance(value, Map) and isinstance(value.value, Op)
        place, size = value.value.args
        text = f"{self.quotients[value.name]}(int32_t({self.printer.index(place)}))"
        if value.value.name == "mod":
            text = f"{self.printer.index(place, SUM)} - {text} * {self.printer.index(size, PRODUCT)}"
        return Let(value.name, self.raw(text), value.location)

    def same_along_runs(self, work: Work) -> Work:
        """Compute what is the same for the points of a run; the rest. Arrays whose packets are whole begin a line with one, so
        where lines are counted as one a run is in one of them.
        """
        same: list[Read | Map] = []
        moving = {self.lane.name}
        for v in work.values:
            if v.name in self.parts and isinstance(v, Map) and isinstance(v.value, Op):
                line = v.value.name == "floordiv" and v.value.args[0] == Ref(self.lane.name, INT64)
            else:
                line = bool(same) and not moving & {n for e in uses(v) for n in free_names(e)}
            if line:
                same.append(v)
            else:
                moving.add(v.name)
        with self.spelled({self.lane.name: self.run}):
            self.statements(tuple(map(self.let, same)))
        return replace(work, values=tuple(v for v in work.values if v not in same))

    def same_for_every_row(self, work: Work) -> None:
        """What is the same for every row is too much to keep in registers from one to the next: the cache keeps it."""
        known = self.stored() | self.pointers.keys()
        for v in work.values if self.sweeps.rows else ():
            if isinstance(v, Read) and v not in self.reads and v.array not in known and not set(v.axes) & set(self.sweeps.rows):
                name, type_ = self.fresh.fresh(f"{v.array}_row"), memory_type(self.function.array(v.array).dtype)
                self.writer.line(f"const {type_}* const {name} = weft::opaque({self.arrays[v.array]});")
                self.pointers[v.array] = (name, frozenset())
                known.add(v.array)


def _exprs(sweep: Sweep) -> list[Expr]:
    return [e for f in sweep.folds for e in f.parts] + [e for w in sweep.writes for e in uses_of_write(w)]


def _costly(e: Expr) -> bool:
    return any(isinstance(x, Op) and x.name in COSTLY for x in walk_expr(e))
