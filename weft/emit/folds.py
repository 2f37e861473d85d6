"""Sweeps of a tile graph as CUDA C++: threads share the points of a row, and combine what each has folded."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from weft.emit import entries
from weft.emit.algebras import extremum_type
from weft.emit.dependent import ALONE, Dependence, dependences, include
from weft.emit.expressions import SUM
from weft.emit.fold_points import FoldPoints, Work
from weft.emit.fold_totals import alias
from weft.emit.names import Names
from weft.emit.rough import rough_sweeps
from weft.emit.text import Writer
from weft.emit.thread_body import parameters
from weft.emit.values import ZERO, deciding
from weft.graph.beside import Columns
from weft.graph.sweeps import Sweep, Sweeps
from weft.graph.tile import Axis, Fold, Map, Read, names_of, uses_of_write
from weft.loops.algebra.table import EXTREMA
from weft.loops.ir import Function, Ref, Stmt, trapping
from weft.loops.schedule import Nest
from weft.loops.types import INT64
from weft.plan.arguments import Facts
from weft.plan.fold import BLOCK, WARP, FoldPlan, Step, rows_alike, steps
from weft.plan.merged import told_apart


def emit(
    function: Function,
    nest: Nest,
    sweeps: Sweeps,
    plan: FoldPlan,
    facts: Facts,
    kind: type[Entry] | None = None,
    columns: Columns | None = None,
    around: Dependence = ALONE,
) -> str:
    """The kernels' translation unit: an entry for each launch of the plan, named by `entries.of_folds`. Each takes the slots of
    `weft.plan.arguments`, and where blocks share rows, a pointer for the parts of each fold and the number of parts. columns:
    what is folded over the rows too.
    """
    own = Nest(nest.name, nest.axes, trapping(nest.body), nest.verdicts)
    arranged, columns = rough_sweeps(plan.arranged(sweeps if columns is None else columns.beside(sweeps)), columns, function)
    if columns is not None:
        columns = replace(columns, folds=tuple(replace(f, over=arranged.rows) for f in columns.folds))
    writer = Writer()
    launched = steps(sweeps, plan)
    begun = [plan.left or number > 0 for number in range(len(launched))]
    launches = dependences(begun, replace(around, allows=around.allows or plan.columns))
    include(writer, launches)
    if plan.cluster > 1:
        writer.line('#include "weft/cluster_team.cuh"')
    if plan.stages or plan.inside:
        writer.line(f'#include "weft/{"row" if plan.inside and plan.vector == 1 else "bulk"}.cuh"')
    writer.line('#include "weft/memory.cuh"')
    writer.line('#include "weft/team.cuh"')
    extrema = [f for f in sweeps.folds if f.algebra in EXTREMA]
    if extrema:
        writer.line()
    for fold in extrema:
        type_ = extremum_type(fold, "int32_t" if _few(function, sweeps, facts, fold) else "int64_t", arranged.axes)
        writer.line(f"using {alias(fold)} = {type_};")
    for step, entry, launch in zip(launched, entries.of_folds(nest, sweeps, plan), launches, strict=True):
        writer.line()
        its, by = (LongerEntry, alone_in_blocks(sweeps, plan)) if step.longer else (kind or Entry, plan)
        its.begun(function, own, facts, writer, arranged, by, step, columns).emit(entry, launch)
    return writer.text()


def _few(function: Function, sweeps: Sweeps, facts: Facts, fold: Fold) -> bool:
    """Whether 32 bits count the points of a fold, as an array is as long."""
    if facts.wide or len(fold.over) > 1:
        return False
    axis = sweeps.axes[fold.over[0]]
    reads = [v for v in sweeps.values if isinstance(v, Read) and axis.start == ZERO]
    return any(e == axis.stop and i == Ref(axis.name, INT64)
               for v in reads for e, i in zip(function.array(v.array).shape, v.index, strict=True))  # fmt: skip


@dataclass
class Entry(FoldPoints):
    """One launch of a plan."""

    @classmethod
    def begun(
        cls,
        function: Function,
        nest: Nest,
        facts: Facts,
        writer: Writer,
        sweeps: Sweeps,
        plan: FoldPlan,
        step: Step,
        columns: Columns | None = None,
    ) -> Entry:
        own = {"outside", "parts", "part", "here", "v", "k", "chunk", "memory", *(alias(f) for f in sweeps.folds)}
        taken = own | {*entries.of_folds(nest, sweeps, plan)}
        told = {a.name: a for a in sweeps.axes.values() if "." not in a.name}  # axes that are counted as one are boxes
        parts = told_apart(sweeps, plan.merged)
        varies = deciding(told, [v for v in sweeps.values if not parts & {*names_of(v)}])
        large = varies | {s.name for s in function.scalars}
        return cls(
            function, nest, facts, writer, Names(frozenset(taken)), {}, {}, varies, large,
            axes=sweeps.axes, values=sweeps.values, sweeps=sweeps, plan=plan, step=step, columns=columns,
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.parts = told_apart(self.sweeps, self.plan.merged)  # axes that are counted in others, as values

    def emit(self, entry: str, dependence: Dependence) -> None:
        given = parameters(self.function, self.nest, self.facts, self)
        left = self.sweeps.folds if self.plan.shared else self.columns.folds if self.columns is not None else ()
        if left:
            for fold in left:
                name = self.partials[fold.results[0]] = self.fresh.fresh(f"{fold.results[0]}_parts")
                given.append(f"{self.value_type(fold)}* {name}")
            given.append("const int64_t parts")
        lines = ",\n    ".join(given)
        self.writer.cite(self.function.location)
        # told of one block, the compiler keeps loads where they are instead of having more threads
        packets = self.plan.beside and self.plan.vector > 1 and not self.plan.left
        blocks = self.plan.resident or self.plan.inside or (1 if packets else 0)
        resident = f", {blocks}" if blocks else ""
        bounds = f"__launch_bounds__({self.plan.threads * self.plan.teams}{resident})"
        bounds += f" __cluster_dims__({self.plan.cluster}, 1, 1)" if self.plan.cluster > 1 else ""
        with self.writer.block(f'extern "C" __global__ void {bounds} {entry}(\n    {lines})'):
            dependence.begin(self.writer)
            mark = self.writer.mark()
            self.body()
            self.stop_outside(mark)

    def body(self) -> None:
        self.rows()
        if self.plan.longer:
            self.writer.line(f"if ({self.longer()}) return;  // has a block of the launch after")
        self.stages()

    def longer(self) -> str:
        """Whether the row has more points than its threads go through."""
        axes = [self.axes[a] for a in self.sweeps.stages[0][0].over]
        self.of_rows(self.needed([e for a in axes for e in (a.start, a.stop)]))
        points = [f"{self.printer.index(a.stop, SUM)} - {self.printer.index(a.start, SUM + 1)}" for a in axes]
        if len(axes) > 1:
            points = [f"weft::maximum<int64_t>({own}, 0)" for own in points]
        return f"{' * '.join(points)} > {self.plan.longer}"

    def stages(self) -> None:
        """What is done for a row."""
        self.hoist(self.everything(), list(self.plan.rows))
        for k in self.step.stages:
            for sweep, across in zip(self.sweeps.stages[k], self.plan.across[k], strict=True):
                self.sweep(sweep, across)
        if self.step.ends:
            self.ends()

    def everything(self) -> tuple[Stmt, ...]:
        """What this launch evaluates at points, as statements."""
        exprs = [e for k in self.step.stages for s in self.sweeps.stages[k] for f in s.folds for e in (*f.parts, *f.inits)]
        writes = [w for k in self.step.stages for s in self.sweeps.stages[k] for w in s.writes]
        writes += self.sweeps.last if self.step.ends else ()
        return self.statements_of([*exprs, *(e for w in writes for e in uses_of_write(w))], writes)

    def sweep(self, sweep: Sweep, across: int) -> None:
        exprs = [e for f in sweep.folds for e in f.parts] + [e for w in sweep.writes for e in uses_of_write(w)]
        axes = [self.axes[a] for a in sweep.over]
        wanted = [v for v in self.needed([*exprs, *(e for a in axes for e in (a.start, a.stop))]) if v not in sweep.folds]
        self.of_rows(wanted)
        self.divisors([*exprs, *(v.value for v in wanted if isinstance(v, Map) and not set(v.axes) <= set(self.sweeps.rows))])
        if sweep.writes and self.apart() and not self.step.shared:
            self.writer.line(f"weft::sync_team<{self.plan.threads}>();  // all has been read that is now written")
        owns = {f.results[0]: self.fresh.fresh(f"{f.names[0]}_own") for f in sweep.folds}
        for f in sweep.folds:
            self.declared(self.value_type(f), owns[f.results[0]], f"{self.algebra(f)}::identity()")
            if f.algebra in EXTREMA:
                self.counts |= {a: self.span(self.axes[a], f"{a}_count") for a in f.over[1:] if a not in self.counts}
        self.wanted = wanted
        own = (v for v in wanted if not isinstance(v, Fold) and not set(v.axes) <= set(self.sweeps.rows))
        work = Work(sweep, tuple(own), owns)
        self.looked_at(axes, work, across)
        if self.step.shared:
            totals: dict[str, str] = {}
            for f in sweep.folds:
                if (repair := sweep.repair(f)) is not None:
                    extremum = self.fold(repair.extremum)
                    self.repair(f, owns, self.reference(extremum, totals[repair.extremum]))
                totals[f.results[0]] = self.keep(f, owns[f.results[0]])
        else:
            self.meet(sweep.folds, owns)
            for f in sweep.folds:
                self.known.add(f.results[0])
                self.of_rows(self.needed(f.inits))
                if (repair := sweep.repair(f)) is not None:
                    self.repair(f, owns, self.settled(repair))
                self.combined_by_team(f, owns[f.results[0]])

    def apart(self) -> bool:
        """Whether all reads of a row come before what is stored last."""
        return self.sweeps.apart

    def ends(self) -> None:
        """What is written once a row."""
        if not self.sweeps.last:
            return
        wanted = self.needed([e for w in self.sweeps.last for e in uses_of_write(w)])
        self.of_rows(wanted)
        if self.apart():
            self.writer.line(f"weft::sync_team<{self.plan.threads}>();  // all has been read that is now written")
        conditions = ["part == 0"] if self.step.shared else []
        if self.plan.beside:
            side = self.plan.across[0][0]
            conditions += ["here"] if side == BLOCK else ["here", f"threadIdx.x < {side}"]
        else:
            conditions.append(f"{self.thread} == 0")
        with self.writer.block(f"if ({' && '.join(conditions)})"), self.each_row(wanted):
            for w in self.sweeps.last:
                self.write(w)


@dataclass
class LongerEntry(Entry):
    """The launch for the rows that data have given more points than a team goes through. A thread looks at one row, and then
    all of them have each of those that are longer.
    """

    def body(self) -> None:
        line, fresh = self.writer.line, self.fresh.fresh
        axes = [self.axes[a] for a in self.plan.rows]
        counts = {a.name: self.span(a, f"{a.name}_count") for a in axes}
        alike = axes[len(axes) - len(rows_alike(self.sweeps, self.plan)) :]  # whose rows have the same points
        others = " * ".join(counts[a.name] for a in axes if a not in alike) or "1"
        first, looked, found, left, word = (fresh(n) for n in ("first_row", "looked_at", "longer", "longer_rows", "word"))
        rows = self.plan.looked
        line(f"// {rows} rows, of which those of more than {self.plan.longer} points have all threads each")
        line(f"__shared__ uint32_t {left}[{BLOCK // WARP}];")
        if alike:
            item, own, many = fresh("item"), fresh("own_row"), fresh("rows_alike")
            line(f"const int64_t {many} = {' * '.join(counts[a.name] for a in alike)};  // with the same points")
            items = f"int64_t {item} = blockIdx.x; {item} < ({others} + {rows - 1}) / {rows} * {many}; {item} += gridDim.x"
            blocks, begin = f"for ({items})", f"{item} / {many} * {rows}"
        else:
            blocks, begin = "", f"int64_t(blockIdx.x) * {rows}"
        with self.writer.block(blocks) if alike else nullcontext():
            line(f"const int64_t {first} = {begin};")
            if alike:
                line(f"const int64_t {own} = {item} % {many};")
            line(f"const int64_t {looked} = {first} + threadIdx.x;")
            line(f"bool {found} = false;")
            among = "" if rows == BLOCK else f"threadIdx.x < {rows} && "
            with self.writer.block(f"if ({among}{looked} < {others})"):
                self.begin_row(axes, f"{looked} * {many} + {own}" if alike else looked, counts)
                line(f"{found} = {self.longer()};")
            self.known.clear()
            line(f"const uint32_t {word} = __ballot_sync(0xffffffffu, {found});")
            line(f"if (threadIdx.x % {WARP} == 0) {left}[threadIdx.x / {WARP}] = {word};")
            line("__syncthreads();")
            k, rest = fresh("k"), fresh("rest")
            words = f"for (int32_t {k} = 0; {k} < {max(1, rows // WARP)}; ++{k})"
            longer = f"for (uint32_t {rest} = {left}[{k}]; {rest} != 0; {rest} &= {rest} - 1)"
            with self.writer.block(words), self.writer.block(longer):
                place = f"{first} + {k} * {WARP} + __ffs({rest}) - 1"
                self.begin_row(axes, f"({place}) * {many} + {own}" if alike else place, counts)
                self.stages()
                line("__syncthreads();  // what the threads told each other is not needed any more")
            if alike:
                line("__syncthreads();  // nor is which rows are longer")

    def begin_row(self, axes: Sequence[Axis], place: str, counts: dict[str, str]) -> None:
        """The names of the axes of the row at a place among all."""
        named = len(axes) == 1 and axes[0].start == ZERO
        self.row = self.declare(axes[0].name) if named else self.fresh.fresh("row")
        self.writer.line(f"const int64_t {self.row} = {place};")
        if not named:
            self.narrowly(axes, self.row, counts)


def alone_in_blocks(sweeps: Sweeps, plan: FoldPlan) -> FoldPlan:
    """The plan of rows that have all threads of a block each; of several axes of points, warps have lines."""
    across = tuple(
        tuple(BLOCK if len(s.over) == 1 else WARP for s in stage) for stage in plan.arranged(sweeps).stages
    )
    return replace(plan, threads=BLOCK, teams=1, across=across)
