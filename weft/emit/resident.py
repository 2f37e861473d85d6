"""Blocks that stay, as CUDA C++: they go from row to row and fold columns too. The next rows are on their way while one is
worked on: bulk copies bring them to shared memory by themselves, or threads fetch the next one to registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from weft.emit.cpp_body import factor
from weft.emit.expressions import DividingPrinter, memory_type
from weft.emit.fold_points import Turn, Work
from weft.emit.held import HeldEntry
from weft.graph.sweeps import Sweep
from weft.graph.tile import Axis, Fold, Map, Read, uses, uses_of_write
from weft.loops.ir import Cast, Op, Ref, walk_expr
from weft.loops.types import FLOAT32
from weft.plan.fold import PACKET_BYTES, row_bytes, same_reads
from weft.plan.scan import SLOT_ALIGNMENT


@dataclass
class ResidentEntry(HeldEntry):
    """The one launch of a plan whose blocks go from row to row."""

    def __post_init__(self) -> None:
        if self.columns is not None:  # what only the next nest would read
            last = tuple(w for w in self.sweeps.last if w.array not in self.columns.unread)
            self.sweeps = replace(self.sweeps, last=last)
        super().__post_init__()
        self.column_owns: dict[str, str] = {}
        self.waiting: dict[str, str] = {}  # where the next row is
        self.arrived = self.stage = self.phase = ""
        self.next_row: list[str] = []  # what starts on it, as soon as all have taken this one
        self.kept_runs: dict[str, str] = {}  # where what is the same for every row lies
        self.several -= {v.name for v in same_reads(self.sweeps, self.plan)}

    def all_rows(self, axes: list[Axis], counts: dict[str, str], tiles: dict[str, str]) -> None:
        plan, line, total = self.plan, self.writer.line, " * ".join(counts.values())
        row = self.row = self.row_name(axes)
        fetch_row = self.fresh.fresh("fetch_row")
        if plan.stages:
            with self.writer.block(f"const auto {fetch_row} = [&](const int64_t {row}, const int32_t {self.stage})", "};"):
                self.copied_row(axes, counts)
        else:
            for v in self.reads:
                self.waiting[v.name] = self.fresh.fresh(f"{v.name}_next")
                self.declare_run(v, self.waiting[v.name])
            with self.writer.block(f"const auto {fetch_row} = [&](const int64_t {row})", "};"):
                self.fetched_row(axes, counts)
        first, step = "blockIdx.x", "parts"
        if plan.teams > 1:
            first, step = self.fresh.fresh("first_row"), self.fresh.fresh("row_step")
            line(f"const int64_t {first} = int64_t(blockIdx.x) * {plan.teams} + threadIdx.y, {step} = parts * {plan.teams};")
        if plan.stages:
            with self.writer.block(f"for (int32_t k = 0; k < {plan.stages}; ++k)"):
                line(f"if ({first} + k * {step} < {total}) {fetch_row}({first} + k * {step}, k);")
            line(f"int32_t {self.stage} = 0;")
            line(f"uint32_t {self.phase} = 0;")
        else:
            line(f"if ({first} < {total}) {fetch_row}({first});")
        self.begin_columns()
        self.same_divisors()
        self.same_runs()
        with self.writer.block(f"for (int64_t {row} = {first}; {row} < {total}; {row} += {step})"):
            self.begin_row(axes, counts)
            if plan.stages:
                self.declare_tiles(tiles)
                line(f"{self.arrived}[{self.stage}].wait({self.phase});")
                with self.runs():
                    for v in self.reads:
                        line(self.taken_over(v, self.next_run(v), f"{tiles[v.name]}{self.chunk}"))
                ahead = f"{row} + {plan.stages} * {step}"
                self.next_row = [f"if ({ahead} < {total}) {fetch_row}({ahead}, {self.stage});  // all have taken theirs"]
                self.held(tiles)
            else:
                self.declare_tiles(tiles)
                with self.runs():
                    for v in self.reads:
                        line(self.taken_over(v, self.next_run(v), f"{tiles[v.name]}{self.chunk}"))
                line(f"if ({row} + {step} < {total}) {fetch_row}({row} + {step});")
                self.held(tiles)
            self.stages()
            self.fold_columns()
            if plan.stages:
                line(f"{self.stage} = ({self.stage} + 1) % {plan.stages};")
                line(f"if ({self.stage} == 0) {self.phase} ^= 1;")
        self.leave_columns()

    def same_divisors(self) -> None:
        """A size that something of every row is divided by: its reciprocal is taken once."""
        assert isinstance(self.printer, DividingPrinter)
        sizes = {s.name for s in self.function.sizes}
        exprs = [e for v in self.values if isinstance(v, Map) and set(v.axes) <= {*self.plan.rows} for e in uses(v)]
        for e in (x for root in exprs for x in walk_expr(root)):
            match e:
                case Op(name="div", args=(_, Cast(value=Ref(name=name)) as by)) if name in sizes and e.type == FLOAT32:
                    if by not in self.printer.divisors:
                        made = self.fresh.fresh(f"{name}_divisor")
                        self.writer.line(f"const weft::ExactDivisor {made}{{{self.printer.value(by)}}};")
                        self.printer.divisors[by] = made

    def same_runs(self) -> None:
        """What is the same for every row lies in shared memory too: every thread brings there what it needs itself, once."""
        offset = self.plan.stages * row_bytes(self.function, self.plan, self.reads)
        for v in same_reads(self.sweeps, self.plan):
            size, name = self.function.array(v.array).dtype.size, self.fresh.fresh(f"{v.name}_kept")
            type_ = f"weft::Run<{memory_type(self.function.array(v.array).dtype)}, {self.plan.vector}>"
            self.writer.line(f"{type_}* const {name} = reinterpret_cast<{type_}*>(memory + {offset});")
            offset += self.plan.holds * size
            with self.runs():
                self.writer.cite(v.location)
                self.writer.line(f"{name}[{self.run} / {self.plan.vector}] = {self.fetched(v)};")
            self.kept_runs[v.name] = name

    def same_for_every_row(self, work: Work) -> None:
        others = tuple(v for v in work.values if v.name not in self.kept_runs)
        super().same_for_every_row(replace(work, values=others))

    def from_memory(self, read: Read, how: str) -> str:
        """Neighbouring elements where they lie."""
        if read.name in self.kept_runs:
            return f"{self.kept_runs[read.name]}[{self.run} / {self.plan.vector}]"
        return super().from_memory(read, how)

    def sweep(self, sweep: Sweep, across: int) -> None:
        super().sweep(sweep, across)
        if self.next_row and sweep.folds and self.plan.threads > 32:  # at whose barrier all have taken their row
            self.fetch_next()

    def stages(self) -> None:
        super().stages()
        if self.next_row:
            self.writer.line("__syncthreads();")
            self.fetch_next()

    def fetch_next(self) -> None:
        """Start on the row that takes the place of this one."""
        for text in self.next_row:
            self.writer.line(text)
        self.next_row = []

    # ---------------------------------------------------------------- the next rows

    def begin(self) -> None:
        if not self.plan.stages:
            super().begin()
            return
        line, stages, offset = self.writer.line, self.plan.stages, 0
        self.arrived, self.stage, self.phase = (self.fresh.fresh(n) for n in ("arrived", "stage", "phase"))
        line(f"// {stages} rows are on their way or there")
        line(f"extern __shared__ __align__({SLOT_ALIGNMENT}) unsigned char memory[];")
        for v in self.reads:
            dtype = self.function.array(v.array).dtype
            type_, name = memory_type(dtype), self.fresh.fresh(f"{v.name}_ring")
            line(f"{type_}* const {name} = reinterpret_cast<{type_}*>(memory{f' + {offset}' if offset else ''});")
            self.waiting[v.name] = name
            offset += stages * self.plan.holds * dtype.size
        line(f"__shared__ weft::Mbarrier {self.arrived}[{stages}];")
        with self.writer.block("if (threadIdx.x == 0)"):
            line(f"for (int32_t k = 0; k < {stages}; ++k) {self.arrived}[k].init(1);")
            line("weft::fence_mbarrier_init();")
        line("__syncthreads();")

    def copied_row(self, axes: list[Axis], counts: dict[str, str]) -> None:
        """Start the copy of a row to its place in the ring."""
        line = self.writer.line
        line("if (threadIdx.x != 0) return;")
        self.begin_row(axes, counts)
        sizes = [self.function.array(v.array).dtype.size for v in self.reads]
        whole = f"uint32_t({self.extent})"
        line(f"{self.arrived}[{self.stage}].arrive_expect({whole} * {sum(sizes)});")
        for v, size in zip(self.reads, sizes, strict=True):
            with self.spelled({self.lane.name: "0"}):
                row = self.address(v.array, v.index).removesuffix(" + 0")
            place = f"{self.waiting[v.name]} + {self.stage} * {self.plan.holds}"
            line(f"weft::bulk_load({place}, {row}, {whole} * {size}, {self.arrived}[{self.stage}]);")

    def fetched_row(self, axes: list[Axis], counts: dict[str, str]) -> None:
        """Fetch the runs that a thread has of a row."""
        self.begin_row(axes, counts)
        pointers = dict(self.pointers)
        self.hoist(tuple(map(self.let, self.reads)), list(self.plan.rows))
        with self.runs():
            for v in self.reads:
                self.writer.cite(v.location)
                self.writer.line(f"{self.waiting[v.name]}{self.chunk} = {self.fetched(v)};")
        self.asked_for()
        self.pointers = pointers

    def next_run(self, read: Read) -> str:
        """A run of the next row, as it is in memory."""
        there = self.waiting[read.name]
        if not self.plan.stages:
            return f"{there}{self.chunk}"
        place = f"{there} + {self.stage} * {self.plan.holds} + {self.run}"
        if self.plan.vector == 1:
            return f"*({place})"
        return f"weft::fetch<{self.plan.vector}, {self.width(read.array, self.plan.vector)}>({place})"

    # ---------------------------------------------------------------- columns

    def begin_columns(self) -> None:
        """What a thread has folded of the columns in which its points lie."""
        for f in self.columns.folds if self.columns is not None else ():
            name = self.column_owns[f.results[0]] = self.fresh.fresh(f"{f.names[0]}_own")
            self.writer.line(f"{self.value_type(f)} {name}{self.shape};")
            with self.each_chunk(), self.points(Turn(self.run, "", self.plan.vector)):
                self.writer.line(f"{name}{self.place_in_tile} = {self.algebra(f)}::identity();")

    def fold_columns(self) -> None:
        if self.columns is not None and not self.beside_last:
            self.all_points([self.lane], self.with_columns(Sweep((self.lane.name,), False, (), ())), self.plan.threads)

    @property
    def beside_last(self) -> bool:
        """Whether columns are folded where the points of a row are gone through last."""
        return not self.sweeps.stages[-1][-1].folds

    def with_columns(self, sweep: Sweep) -> Work:
        """A sweep that folds the columns too."""
        assert self.columns is not None
        folds = self.columns.folds
        wanted = self.needed([*(e for f in folds for e in f.parts), *(e for w in sweep.writes for e in uses_of_write(w))])
        self.of_rows(wanted)
        owns = {name: f"{own}{self.place_in_tile}" for name, own in self.column_owns.items()}
        values = tuple(v for v in wanted if not isinstance(v, Fold) and not set(v.axes) <= set(self.sweeps.rows))
        self.writer.line("// of each column")
        return Work(replace(sweep, folds=folds), values, owns)

    def all_points(self, axes: list[Axis], work: Work, across: int) -> None:
        if self.columns is not None and self.beside_last and work.sweep is self.sweeps.stages[-1][-1]:
            work = self.with_columns(work.sweep)
        super().all_points(axes, work, across)

    def leave_columns(self) -> None:
        """Every block, or cluster, leaves its part of each column."""
        for f in self.columns.folds if self.columns is not None else ():
            kept, own = self.partials[f.results[0]], f"{self.column_owns[f.results[0]]}{self.chunk}"
            place = f"int64_t(blockIdx.x) * {factor(self.extent)}"
            if self.plan.teams > 1:
                self.leave_column_of_teams(f, own, f"{kept}[{place}")
                continue
            with self.runs():
                if self.plan.vector > 1:
                    width = min(self.plan.vector, PACKET_BYTES // f.types[0].size)
                    self.writer.line(f"weft::store<{width}>({kept} + {place} + {self.run}, {own});")
                else:
                    self.writer.line(f"{kept}[{place} + {self.run}] = {own};")

    def leave_column_of_teams(self, fold: Fold, own: str, kept: str) -> None:
        """What the teams of a block have of each column is combined in their order."""
        line, plan, type_ = self.writer.line, self.plan, self.value_type(fold)
        of_teams, column, total = (self.fresh.fresh(f"{fold.names[0]}_{what}") for what in ("of_teams", "column", "total"))
        line(f"__shared__ {type_} {of_teams}[{plan.teams}][{plan.holds}];")
        with self.runs():
            if plan.vector > 1:
                line("#pragma unroll")
                line(f"for (int32_t v = 0; v < {plan.vector}; ++v) {of_teams}[threadIdx.y][{self.run} + v] = {own}[v];")
            else:
                line(f"{of_teams}[threadIdx.y][{self.run}] = {own};")
        line("__syncthreads();")
        first, step = f"threadIdx.y * {plan.threads} + threadIdx.x", plan.threads * plan.teams
        with self.writer.block(f"for (int32_t {column} = {first}; {column} < {self.extent}; {column} += {step})"):
            line(f"{type_} {total} = {of_teams}[0][{column}];")
            line("#pragma unroll")
            combined = f"{self.algebra(fold)}::combine({total}, {of_teams}[k][{column}])"
            line(f"for (int32_t k = 1; k < {plan.teams}; ++k) {total} = {combined};")
            line(f"{kept} + {column}] = {total};")

    @contextmanager
    def each_chunk(self) -> Iterator[None]:
        """What is written here is done for each run that a thread may have."""
        if self.plan.chunks == 1:
            yield
            return
        self.writer.line("#pragma unroll")
        with self.writer.block(f"for (int32_t chunk = 0; chunk < {self.plan.chunks}; ++chunk)"):
            yield
