"""Sweeps of a tile graph as CUDA C++: threads share the points of a row, and combine what each has folded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Self

from weft.emit import entries
from weft.emit.algebras import extremum_type
from weft.emit.cpp_body import factor
from weft.emit.dependent import ALONE, Dependence, dependences, include
from weft.emit.expressions import SUM, register_type
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
from weft.plan.fold import BLOCK, WARP, FoldPlan, Step, rows_alike, steps, stored_in_packets
from weft.plan.merged import told_apart

# compiler likes, sums of segments took 1.15 times as long on an H200, and products of sparse matrices 1.03 times.
_BLOCKS_OF_LINES = 5
_LISTED = ("listed_rows", "listed_before", "listed_found", "pieces")


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
    if plan.shares:
        writer.line('#include "weft/shares.cuh"')
    writer.line('#include "weft/team.cuh"')
    extrema = [f for f in sweeps.folds if f.algebra in EXTREMA]
    if extrema:
        writer.line()
    for fold in extrema:
        type_ = extremum_type(fold, "int32_t" if _few(function, sweeps, facts, fold) else "int64_t", arranged.axes)
        writer.line(f"using {alias(fold)} = {type_};")
    for step, entry, launch in zip(launched, entries.of_folds(nest, sweeps, plan), launches, strict=True):
        writer.line()
        its = SharedRows if step.longer == "share" else JoinedRows if step.longer == "join" else kind or Entry
        by = alone_in_blocks(arranged, plan) if step.longer else plan
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
    ) -> Self:
        own = {"outside", "parts", "part", "here", "v", "k", "chunk", "memory", *_LISTED, *(alias(f) for f in sweeps.folds)}
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
        left = self.sweeps.folds if self.plan.shared or self.plan.shares else ()
        left = self.columns.folds if self.columns is not None else left
        if left:
            for fold in left:
                name = self.partials[fold.results[0]] = self.fresh.fresh(f"{fold.results[0]}_parts")
                given.append(f"{self.value_type(fold)}* {name}")
            given += [f"int64_t* {name}" for name in _LISTED] if self.plan.shares else []
            given.append("const int64_t parts")
        lines = ",\n    ".join(given)
        self.writer.cite(self.function.location)
        # told of one block, the compiler keeps loads where they are instead of having more threads
        packets = self.plan.beside and self.plan.vector > 1 and not self.plan.left
        blocks = self.plan.resident or self.plan.inside or (1 if packets else 0)
        blocks = _BLOCKS_OF_LINES if self.plan.beside and self.plan.longer else blocks
        resident = f", {blocks}" if blocks else ""
        bounds = f"__launch_bounds__({self.plan.threads * self.plan.teams}{resident})"
        bounds += f" __cluster_dims__({self.plan.cluster}, 1, 1)" if self.plan.cluster > 1 else ""
        with self.writer.block(f'extern "C" __global__ void {bounds} {entry}(\n    {lines})'):
            dependence.begin(self.writer)
            mark = self.writer.mark()
            self.body()
            self.stop_outside(mark)

    def body(self) -> None:
        if not self.plan.longer:
            self.rows()
            self.stages()
            return
        longer = (ListedRows if self.plan.shares else LongerRows).among(self)
        looking = longer.blocks()
        with self.writer.block(f"if (blockIdx.x < {looking})"):
            longer.body()
        with self.writer.block("else"):
            self.block = self.fresh.fresh("block")
            self.writer.line(f"const int64_t {self.block} = int64_t(blockIdx.x) - {looking};")
            self.rows()
            with self.writer.block(f"if (!({self.longer()}))"):
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
        self.hoist(self.everything(), list(self.plan.rows[:-1] if self.plan.several > 1 else self.plan.rows))
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
            conditions += ["here"] if side == self.plan.threads else ["here", f"{self.thread} < {side}"]
        elif self.thread != "0":
            conditions.append(f"{self.thread} == 0")
        with self.writer.block(f"if ({' && '.join(conditions)})") if conditions else nullcontext():
            self.write_rows(wanted)

    def write_rows(self, wanted: list[Read | Map | Fold]) -> None:
        """What is written once a row; of neighbouring rows, in packets."""
        vector, lane = self.plan.vector, self.plan.lane
        packets = [w for w in self.sweeps.last if self.plan.longer and self.first and stored_in_packets(w, lane, self.facts)]
        tiles = {w: self.fresh.fresh(f"{w.array}_run") for w in packets}
        for w, tile in tiles.items():
            self.writer.line(f"{register_type(w.value.type)} {tile}[{vector}];")
        with self.each_row(wanted):
            if self.elsewhere:
                self.writer.line(f"if (v < {self.elsewhere}) continue;")
            for w in self.sweeps.last:
                if w in tiles:
                    self.writer.cite(w.location)
                    self.writer.line(f"{tiles[w]}[v] = {self.printer.value(w.value)};")
                else:
                    self.write(w)
        if tiles:
            with self.spelled({lane: self.first}):
                for w, tile in tiles.items():
                    self.writer.line(f"weft::store<{self.width(w.array, vector)}>({self.address(w.array, w.index)}, {tile});")


@dataclass
class LongerRows(Entry):
    """What the first blocks do, for the rows that data have given more points than a team goes through. A thread looks at one
    row, and then all of them have each of those that are longer.
    """

    @classmethod
    def among(cls, rows: Entry) -> Self:
        """Those of the rows that an entry has."""
        plan = alone_in_blocks(rows.sweeps, rows.plan)
        own = cls.begun(rows.function, rows.nest, rows.facts, rows.writer, rows.sweeps, plan, rows.step)
        own.partials = rows.partials
        own.of_axes = rows.of_axes = {a: rows.span(rows.axes[a], f"{a}_count") for a in plan.rows}
        own.fresh, own.arrays, own.names = rows.fresh, dict(rows.arrays), dict(rows.names)
        return own

    def blocks(self) -> str:
        """How many blocks look for such rows."""
        plan, counts, line = self.plan, self.of_axes, self.writer.line
        axes = [self.axes[a] for a in plan.rows]
        self.alike = axes[len(axes) - len(rows_alike(self.sweeps, plan.rows)) :]  # whose rows have the same points
        self.others = " * ".join(counts[a.name] for a in axes if a not in self.alike) or "1"
        self.along_lane = self.tiles(axes, counts) if plan.beside else ""
        each = [counts[a.name] for a in self.alike if not (plan.beside and a.name == plan.lane)]
        self.many_alike = " * ".join([*each, *([self.along_lane] if plan.beside else [])])
        looking = self.fresh.fresh("looking")
        line(f"// the first blocks look for rows of more than {plan.longer} points: all threads of one have each of them")
        blocks = f"({self.others} + {plan.looked - 1}) / {plan.looked}"
        line(f"const int64_t {looking} = {f'{blocks} * {factor(self.many_alike)}' if self.many_alike else blocks};")
        return looking

    def body(self) -> None:
        line, fresh = self.writer.line, self.fresh.fresh
        axes, counts, rows = [self.axes[a] for a in self.plan.rows], self.of_axes, self.plan.looked
        first, looked, found, left, word = (fresh(n) for n in ("first_row", "looked_at", "longer", "longer_rows", "word"))
        line(f"__shared__ uint32_t {left}[{BLOCK // WARP}];")
        own, many, begin = "", "", "int64_t(blockIdx.x)"
        if self.many_alike:
            own, many = fresh("own_row"), fresh("rows_alike")
            line(f"const int64_t {many} = {self.many_alike};  // with the same points")
            line(f"const int64_t {own} = blockIdx.x % {many};")
            begin = f"blockIdx.x / {many}"

        def begin_row(place: str) -> None:
            place = f"({place}) * {many} + {own}" if own else place
            if not self.plan.beside:
                self.begin_row(axes, place, counts)
                return
            group = fresh("group")
            line(f"const int64_t {group} = {place};")
            self.neighbours(axes, self.along_lane, group, counts)

        line(f"const int64_t {first} = {begin} * {rows};")
        line(f"const int64_t {looked} = {first} + threadIdx.x;")
        line(f"bool {found} = false;")
        among = "" if rows == BLOCK else f"threadIdx.x < {rows} && "
        with self.writer.block(f"if ({among}{looked} < {self.others})"):
            begin_row(looked)
            line(f"{found} = {self.longer()};")
        self.known.clear()
        line(f"const uint32_t {word} = __ballot_sync(0xffffffffu, {found});")
        line(f"if (threadIdx.x % {WARP} == 0) {left}[threadIdx.x / {WARP}] = {word};")
        line("__syncthreads();")
        k, rest = fresh("k"), fresh("rest")
        words = f"for (int32_t {k} = 0; {k} < {max(1, rows // WARP)}; ++{k})"
        longer = f"for (uint32_t {rest} = {left}[{k}]; {rest} != 0; {rest} &= {rest} - 1)"
        with self.writer.block(words), self.writer.block(longer):
            begin_row(f"{first} + {k} * {WARP} + __ffs({rest}) - 1")
            self.stages()
            line("__syncthreads();  // what the threads told each other is not needed any more")

    def begin_row(self, axes: Sequence[Axis], place: str, counts: dict[str, str]) -> None:
        """The names of the axes of the row at a place among all."""
        named = len(axes) == 1 and axes[0].start == ZERO
        self.row = self.declare(axes[0].name) if named else self.fresh.fresh("row")
        self.writer.line(f"const int64_t {self.row} = {place};")
        if not named:
            self.narrowly(axes, self.row, counts)


@dataclass
class ListedRows(LongerRows):
    """What the first blocks do where others share the longer rows: they find them."""

    @property
    def listed(self) -> str:
        """What is known of longer rows."""
        return f"const weft::Listed longer = {{{', '.join(_LISTED[:3])}, {self.plan.looked}}};"

    def blocks(self) -> str:
        self.writer.line(f"// the first blocks look for rows of more than {self.plan.longer} points, for launches after")
        return "parts"

    def body(self) -> None:
        line, counts = self.writer.line, self.of_axes
        axes = [self.axes[a] for a in self.plan.rows if not (self.plan.beside and a == self.plan.lane)]
        line(self.listed)
        looked, points = self.fresh.fresh("looked_at"), self.fresh.fresh("points")
        rows = " * ".join(counts[a.name] for a in axes)
        with self.writer.block(f"weft::list_rows<{BLOCK}>(longer, {rows}, [&](const int64_t {looked}) -> int64_t", "});"):
            self.begin_row(axes, looked, counts)
            longer, *_ = self.longer().rsplit(" > ", 1)
            line(f"const int64_t {points} = {longer};")
            line(f"return {points} > {self.plan.longer} ? {points} : 0;")


@dataclass
class SharedRows(ListedRows):
    """The launch for longer rows: each block has its share of the points of all of them, which may be several rows, and parts
    of others at its ends.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.piece: Mapping[str, tuple[str, str]] = {}  # by axes of points, the ends of what is gone through of a row
        self.wholes: dict[str, str] = {}  # by results of folds, what all threads have together

    def begin(self) -> None:
        """Which share a block has, and of which neighbours."""
        axes, line, fresh = [self.axes[a] for a in self.plan.rows], self.writer.line, self.fresh.fresh
        self.of_axes = {a.name: self.span(a, f"{a.name}_count") for a in axes}
        self.along_lane = self.tiles(axes, self.of_axes) if self.plan.beside else ""
        self.share, self.tile = fresh("share_number"), fresh("tile") if self.along_lane else ""
        line(f"const int64_t {self.share} = blockIdx.x{f' / {self.along_lane}' if self.along_lane else ''};")
        if self.tile:
            line(f"const int64_t {self.tile} = blockIdx.x % {self.along_lane};")

    def at_row(self, row: str) -> None:
        """The names of the axes of the neighbouring rows, or of the row, whose points are those of one that is listed."""
        axes, line = [self.axes[a] for a in self.plan.rows], self.writer.line
        if not self.along_lane:
            self.begin_row(axes, row, self.of_axes)
            return
        group = self.fresh.fresh("group")
        line(f"const int64_t {group} = {row} * {self.along_lane} + {self.tile};")
        self.neighbours(axes, self.along_lane, group, self.of_axes)

    def part(self, fold: Fold, which: str) -> str:
        """An element of the parts that shares have left."""
        kept = self.partials[fold.results[0]]
        if not self.plan.beside:
            return f"{kept}[{which}]"
        wide = f"{self.along_lane} * {self.plan.across[0][0] * self.plan.vector}"
        return f"{kept}[({which}) * {wide} + {self.row}{' + v' if self.first else ''}]"

    def body(self) -> None:
        line, fresh, plan = self.writer.line, self.fresh.fresh, self.plan
        ((sweep,),), ((across,),) = self.sweeps.stages, plan.across
        (point,) = (self.axes[a] for a in sweep.over)
        self.begin()
        line(self.listed)
        line(f"weft::Share share = weft::share_of<{BLOCK}>(longer, parts, {self.share}, {plan.shares});")
        once = f"threadIdx.x == 0 && {self.tile} == 0" if self.along_lane else "threadIdx.x == 0"
        line(f"if ({once}) pieces[2 * {self.share}] = -1;  // no row goes on behind it")
        with self.writer.block("while (share.left > 0)"):
            row = fresh("listed_row")
            line(f"const int64_t {row} = longer.rows[share.block * longer.looked + share.entry];")
            self.at_row(row)
            self.of_rows(self.needed([point.start, point.stop]))
            first, last, stop, whole = (fresh(n) for n in ("piece_first", "piece_last", "row_last", "whole"))
            line(f"const int64_t {first} = {self.printer.index(point.start, SUM)} + share.skipped;")
            line(f"const int64_t {stop} = {self.printer.index(point.stop)};")
            line(f"const int64_t {last} = weft::minimum<int64_t>({stop}, {first} + share.left);")
            line(f"const bool {whole} = share.skipped == 0 && {last} == {stop};")
            self.axes = {**self.axes, point.name: replace(point, start=self.raw(first), stop=self.raw(last))}
            self.piece = {point.name: (first, last)}
            self.hoist(self.everything(), list(plan.rows))
            self.sweep(sweep, across)
            with self.writer.block(f"if ({whole})"):
                self.ends()
            with self.writer.block("else"):
                side = plan.across[0][0] if plan.beside else 1
                owns = f"here && {self.thread} < {side}" if plan.beside else f"{self.thread} == 0"
                with self.writer.block(f"if ({owns})"), self.each_row():
                    for fold in sweep.folds:
                        own = self.own(self.wholes[fold.results[0]])
                        line(f"{self.part(fold, f'2 * {self.share} + (share.skipped == 0)')} = {own};")
                with self.writer.block(f"if (share.skipped == 0 && {once})"):
                    line(f"pieces[2 * {self.share}] = {row};")
                    line(f"pieces[2 * {self.share} + 1] = ({stop} - {last} + share.size - 1) / share.size;")
            line("__syncthreads();  // what the threads told each other is not needed any more")
            line(f"weft::next_row(longer, share, {last} - {first});")

    def ragged(self, axis: Axis) -> bool:
        return axis.name in self.piece or super().ragged(axis)

    def of_points(self, axis: Axis, axes: list[Axis]) -> bool:
        return axis.name not in self.piece and super().of_points(axis, axes)

    def combined_by_team(self, fold: Fold, own: str) -> None:
        total, name = self.total(fold, own), self.fresh.fresh(f"{fold.names[0]}_whole")
        self.declared(register_type(fold.types[0]), name)
        with self.each_row():
            self.writer.line(f"{self.own(name)} = {total};")
        self.wholes[fold.results[0]] = name
        self.joined_to_init(fold, self.own(name))


@dataclass
class JoinedRows(SharedRows):
    """The launch after, which combines what shares have of the same row."""

    def body(self) -> None:
        line, side = self.writer.line, self.plan.across[0][0] if self.plan.beside else 1
        self.begin()
        row, others, k = self.fresh.fresh("listed_row"), self.fresh.fresh("others"), self.fresh.fresh("other")
        line(f"const int64_t {row} = pieces[2 * {self.share}];")
        line(f"if ({row} < 0) return;  // none that begins in this share goes on in another")
        line(f"const int64_t {others} = pieces[2 * {self.share} + 1];")
        self.at_row(row)
        self.hoist(self.everything(), list(self.plan.rows))
        owns = {f.results[0]: self.fresh.fresh(f"{f.names[0]}_own") for f in self.sweeps.folds}
        for f in self.sweeps.folds:
            self.declared(self.value_type(f), owns[f.results[0]], f"{self.algebra(f)}::identity()")
        first = "threadIdx.x" if side == 1 else f"threadIdx.x / {side}"
        every = f"for (int64_t {k} = {first}; {k} <= {others}; {k} += {self.plan.threads // side})"
        with self.writer.block(every), self.each_row():
            for f in self.sweeps.folds:
                own, part = self.own(owns[f.results[0]]), self.part(f, f"2 * ({self.share} + {k}) + ({k} == 0)")
                line(f"{own} = {self.algebra(f)}::combine({own}, {part});")
        for f in self.sweeps.folds:
            self.known.add(f.results[0])
            self.of_rows(self.needed(f.inits))
            self.combined_by_team(f, owns[f.results[0]])
        self.ends()


def alone_in_blocks(sweeps: Sweeps, plan: FoldPlan) -> FoldPlan:
    """The plan of such rows; of several axes of points, warps have lines."""
    if plan.beside:
        return replace(plan, threads=BLOCK, teams=1)
    across = tuple(tuple(BLOCK if len(s.over) == 1 else WARP for s in stage) for stage in sweeps.stages)
    return replace(plan, threads=BLOCK, teams=1, across=across)
