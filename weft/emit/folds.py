"""Sweeps of a tile graph as CUDA C++: threads share the points of a row, and combine what each has folded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from types import MappingProxyType

from weft.emit import entries
from weft.emit.algebras import algebra_type, extremum_type, is_place, join
from weft.emit.cpp_body import factor
from weft.emit.dependent import ALONE, Dependence, dependences, include
from weft.emit.expressions import PRODUCT, SUM, TERNARY, DividingPrinter, register_type
from weft.emit.names import Names
from weft.emit.rough import rough_sweeps
from weft.emit.text import Writer
from weft.emit.thread_body import parameters
from weft.emit.values import ZERO, ValueBody, deciding
from weft.graph.beside import Columns
from weft.graph.running import Repair, before
from weft.graph.steady import counts_from_one
from weft.graph.sweeps import Sweep, Sweeps
from weft.graph.tile import Axis, Fold, Map, Read, Write, mapped, mapped_write, names_of, starts_neutral, uses, uses_of_write
from weft.loops.accesses import counted_from_end, not_below_0
from weft.loops.algebra.table import EXTREMA
from weft.loops.ir import (
    Cast,
    Check,
    Const,
    Expr,
    Function,
    Load,
    Op,
    Ref,
    Stmt,
    free_names,
    free_names_of,
    trapping,
    walk_expr,
)
from weft.loops.schedule import Nest
from weft.loops.types import FLOAT32, FLOATS8, INT64
from weft.plan.arguments import Facts
from weft.plan.fold import BLOCK, PACKET_BYTES, WARP, FoldPlan, Step, lane_of, rows_alike, steps, whole_runs
from weft.plan.merged import told_apart

# Points whose loads a thread has in flight, and of rows whose lengths data decide, which are often short.
_UNROLL, _FEW_ON_THE_WAY = 8, 4
# Bytes of packets that it has.
_BYTES_ON_THE_WAY = 64


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
        writer.line(f"using {_alias(fold)} = {type_};")
    for step, entry, launch in zip(launched, entries.of_folds(nest, sweeps, plan), launches, strict=True):
        writer.line()
        its, by = (LongerEntry, alone_in_blocks(sweeps, plan)) if step.longer else (kind or Entry, plan)
        its.begun(function, own, facts, writer, arranged, by, step, columns).emit(entry, launch)
    return writer.text()


def _alias(fold: Fold) -> str:
    """The C++ name of the algebra of an extremum with what goes with it."""
    return Names().fresh(f"{fold.names[0]}_algebra")


def _few(function: Function, sweeps: Sweeps, facts: Facts, fold: Fold) -> bool:
    """Whether 32 bits count the points of a fold, as an array is as long."""
    if facts.wide or len(fold.over) > 1:
        return False
    axis = sweeps.axes[fold.over[0]]
    reads = [v for v in sweeps.values if isinstance(v, Read) and axis.start == ZERO]
    return any(e == axis.stop and i == Ref(axis.name, INT64)
               for v in reads for e, i in zip(function.array(v.array).shape, v.index, strict=True))  # fmt: skip


@dataclass(frozen=True)
class Work:
    """What is done at each point of a sweep. values: those that are not the row's, in order. owns: what a thread has folded,
    by the names of results.
    """

    sweep: Sweep
    values: tuple[Read | Map, ...]
    owns: Mapping[str, str]


@dataclass(frozen=True)
class Turn:
    """Points that a thread takes at a time: how many, the axis that tells them apart, where along it the v-th is. stop: those
    from there on are none ("": there are no such).
    """

    name: str
    place: str
    count: int
    stop: str = ""


@dataclass
class Entry(ValueBody):
    """One launch of a plan."""

    sweeps: Sweeps = None  # type: ignore[assignment]
    plan: FoldPlan = None  # type: ignore[assignment]
    step: Step = None  # type: ignore[assignment]
    columns: Columns | None = None

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
        own = {"outside", "parts", "part", "here", "v", "k", "chunk", "memory", *(_alias(f) for f in sweeps.folds)}
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
        self.printer = DividingPrinter(**{f.name: getattr(self.printer, f.name) for f in fields(self.printer)})
        self.known: set[str] = set()  # the values of a row that the text has computed
        self.wanted: list[Read | Map | Fold] = []
        self.partials: dict[str, str] = {}
        self.assigned: Mapping[str, str] = {}  # what is kept of values beyond their points, and where
        self.counts: dict[str, str] = {}  # how many points axes have that tell the places of extrema
        self.last: dict[str, str] = {}  # of extrema: what sums are relative to in the end
        self.repairs = {r.sum: r for stage in self.sweeps.stages for s in stage for r in s.repairs}
        self.thread = "threadIdx.x"  # the thread's place among those of its row
        self.row = ""  # the row's place among all, "" where there is one
        self.rows_name = ""  # how many rows there are, where neighbouring threads have rows of their own and blocks share them
        self.first = ""  # the first of the neighbouring rows that a thread has, "" where it has one
        self.others = ""  # how many of these other blocks have, too

    # ---------------------------------------------------------------- the kernel

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

    def rows(self) -> None:
        """Which row a thread works for: names of the axes of rows, and what is there only in blocks that share them."""
        plan, line = self.plan, self.writer.line
        if self.step.shared:
            line("const int64_t part = blockIdx.y;")
        axes = [self.axes[a] for a in plan.rows]
        counts = {a.name: self.span(a, f"{a.name}_count") for a in axes}
        if plan.beside:
            lane, side, vector = axes[-1], plan.across[0][0], plan.vector
            count, wide = counts[lane.name], side * vector
            tiles, place = self.fresh.fresh(f"{lane.name}_tiles"), self.fresh.fresh(f"{lane.name}_place")
            each = f"{vector} of them" if vector > 1 else "one"
            line(f"// {wide} neighbours along {lane.name}, {BLOCK // side} threads for each; a thread has {each}")
            line("// and those beyond the end repeat the last")
            line(f"const int64_t {tiles} = ({count} + {wide - 1}) / {wide};")
            if plan.fewer:
                line(f"if (blockIdx.x >= {' * '.join([tiles, *(counts[a.name] for a in axes[:-1])])}) return;")
            x = f"threadIdx.x % {side}" + (f" * {vector}" if vector > 1 else "")
            line(f"const int64_t {place} = int64_t(blockIdx.x % {tiles}) * {wide} + {x};")
            line(f"const bool here = {place} < {count};")
            self.narrowly(axes[:-1], f"int64_t(blockIdx.x / {self.counted(tiles)})", counts)
            own = self.declare(lane.name) if lane.start == ZERO and vector == 1 else self.fresh.fresh(f"{lane.name}_first")
            line(f"const int64_t {own} = weft::minimum<int64_t>({place}, {count} - {vector});")
            self.first = own if vector > 1 else ""
            if lane.start != ZERO:  # in vectors rows start at 0
                line(f"const int64_t {self.declare(lane.name)} = {self.printer.index(lane.start, SUM)} + {own};")
            self.row = own
            if plan.shared and len(axes) > 1:
                self.row = self.fresh.fresh("row")
                line(f"const int64_t {self.row} = int64_t(blockIdx.x / {tiles}) * {count} + {own};")
            if plan.shared:
                self.rows_name = self.fresh.fresh("rows")
                line(f"const int64_t {self.rows_name} = {' * '.join(counts[a.name] for a in axes)};")
            return
        if not axes:
            return
        if plan.several > 1:
            self.several_rows(axes, counts)
            return
        team = f" * {plan.teams} + threadIdx.y" if plan.teams > 1 else ""
        named = len(axes) == 1 and axes[0].start == ZERO
        self.row = self.declare(axes[0].name) if named else self.fresh.fresh("row")
        line(f"const int64_t {self.row} = int64_t(blockIdx.x){team};")
        if plan.teams > 1 or plan.fewer:
            line(f"if ({self.row} >= {' * '.join(counts[a.name] for a in axes)}) return;")
        if not named:
            self.narrowly(axes, self.row, counts)

    def several_rows(self, axes: list[Axis], counts: dict[str, str]) -> None:
        """The first of the rows that the threads of one have at once; where fewer are left, some of those before go along."""
        line, (*others, last) = self.writer.line, axes
        count, groups = counts[last.name], self.fresh.fresh(f"{last.name}_groups")
        line(f"// {self.plan.several} neighbours along {last.name} at once")
        line(f"const int64_t {groups} = ({count} + {self.plan.several - 1}) / {self.plan.several};")
        self.narrowly(others, f"int64_t(blockIdx.x / {self.counted(groups)})", counts)
        wanted, place, self.others = (self.fresh.fresh(f"{last.name}_{how}") for how in ("wanted", "place", "others"))
        line(f"const int64_t {wanted} = int64_t(blockIdx.x % {self.counted(groups)}) * {self.plan.several};")
        line(f"const int64_t {place} = weft::minimum<int64_t>({wanted}, {count} - {self.plan.several});")
        line(f"const int32_t {self.others} = int32_t({wanted} - {place});")
        self.first = place
        if last.start != ZERO:
            self.first = self.fresh.fresh(f"{last.name}_first")
            line(f"const int64_t {self.first} = {self.printer.index(last.start, SUM)} + {place};")
        self.row = self.fresh.fresh("row")
        if self.step.shared or self.plan.shared:
            line(f"const int64_t {self.row} = int64_t(blockIdx.x / {self.counted(groups)}) * {count} + {place};")

    def narrowly(self, axes: Sequence[Axis], place: str, counts: dict[str, str]) -> None:
        """The coordinates of a row, or of a point of one, as its place among all tells them."""
        if len(axes) > 1:
            place, counts = self.counted(place), {a: self.counted(c) for a, c in counts.items()}
        self.places(axes, place, counts)

    def counted(self, number: str) -> str:
        """A number of rows or points, as text that is divided in as many bits as it has."""
        return f"uint32_t({number})" if self.plan.narrow else number

    # ---------------------------------------------------------------- values

    def of_rows(self, wanted: Iterable[Read | Map | Fold]) -> None:
        """Compute the values of a row that are not there yet."""
        rows, wanted = set(self.sweeps.rows), list(wanted)
        for value in wanted:
            name = names_of(value)[0]
            if name in self.known or not set(value.axes) <= rows or (self.of_each_row(value) and not isinstance(value, Fold)):
                continue
            if isinstance(value, Fold):
                left = [v for v in wanted if isinstance(v, Fold) and names_of(v)[0] not in self.known]
                together = [v for v in left if self.alone(v)]
                group = together if value in together else [value]
                self.known |= {names_of(v)[0] for v in group}
                self.gathered(group)
            else:
                self.known.add(name)
                self.statements((self.let(value),))

    def alone(self, fold: Fold) -> bool:
        """Whether the parts of a fold are combined without looking at other values."""
        return fold.results[0] not in self.repairs and fold.algebra not in EXTREMA and not free_names(fold.inits[0])

    def divisors(self, exprs: Iterable[Expr]) -> None:
        """What many points of a row are divided by is the same for all: its reciprocal is taken once. A quotient on its way to
        an integer or to 8 bits often lies between two of these: there it has the bits of a division.
        """
        assert isinstance(self.printer, DividingPrinter)
        exprs = list(exprs)
        written = {self.function.array(w.array).dtype for w in self.sweeps.writes}
        casts = [x for root in exprs for x in walk_expr(root) if isinstance(x, Cast)]
        whole = any(x.type.category == "int" and x.value.type.category == "float" for x in casts)
        exact = whole or bool(written & {*FLOATS8})
        for e in (x for root in exprs for x in walk_expr(root)):
            match e:
                case Op(name="div", args=(_, Ref(name=name) as by)) if by not in self.printer.divisors:
                    value = self.made.get(name)
                    told = name in self.names if value is None else names_of(value)[0] in self.known
                    if by.type.category == "float" and told and not self.first:
                        made = self.fresh.fresh(f"{name}_divisor")
                        self.printer.divisors[by] = made
                        kind = f"{'OrdinaryDivisor' if counts_from_one(by, self.made) else 'Divisor'}<{register_type(by.type)}>"
                        kind = "ExactDivisor" if exact and by.type == FLOAT32 else kind
                        self.writer.line(f"const weft::{kind} {made}({self.printer.value(by)});")

    # ---------------------------------------------------------------- several rows of a thread

    def of_each_row(self, value: Read | Map | Fold) -> bool:
        """Whether a value is another one in each of the neighbouring rows that a thread has."""
        return bool(self.first) and self.plan.rows[-1] in value.axes

    @property
    def many(self) -> int:
        """How many rows a thread has at once."""
        return self.plan.several if self.plan.several > 1 else self.plan.vector

    @contextmanager
    def each_row(self, wanted: Iterable[Read | Map | Fold] = ()) -> Iterator[None]:
        """What is written here is done for every row of a thread; of its values, those of a row are computed before."""
        if not self.first:
            yield
            return
        rows = set(self.sweeps.rows)
        self.writer.line("#pragma unroll")
        with self.writer.block(f"for (int32_t v = 0; v < {self.many}; ++v)"):
            name, mark = self.declare(self.plan.rows[-1]), self.writer.mark()
            own = [v for v in wanted if self.of_each_row(v) and set(v.axes) <= rows]
            self.statements(tuple(self.let(v) for v in own if not isinstance(v, Fold)))
            yield
            if self.writer.mentions(name, mark):
                self.writer.insert(mark, f"const int64_t {name} = {self.first} + v;")

    def own(self, name: str) -> str:
        """A name that a thread has for each of its rows."""
        return f"{name}[v]" if self.first else name

    def declared(self, type_: str, name: str, value: str = "") -> None:
        """Declare a name that a thread has for each of its rows."""
        if not self.first:
            self.writer.line(f"{type_} {name}{f' = {value}' if value else ''};")
            return
        self.writer.line(f"{type_} {name}[{self.many}];")
        if value:
            with self.each_row():
                self.writer.line(f"{name}[v] = {value};")

    # ---------------------------------------------------------------- sweeps

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

    def looked_at(self, axes: list[Axis], work: Work, across: int) -> None:
        """The points of a sweep. Where data decide the bounds of its axes, these tell whether an axis leaves an array that it
        is a subscript of by itself: if not, points need not look.
        """
        known = self.known_inside
        ragged = [] if self.plan.beside else [a for a in axes if self.ragged(a) and not self.of_points(a, axes)]
        told = {a.name: self.told_by_bounds(work, Ref(a.name, INT64)) for a in ragged}
        if not any(told.values()):
            self.all_points(axes, work, across)
            return

        def plain(e: Expr) -> Expr:
            for a in ragged:
                e = not_below_0(e, Ref(a.name, INT64))
            return e

        checks = []
        for a in (a for a in ragged if told[a.name]):
            extents = dict.fromkeys(self.function.array(array).shape[k] for array, k, _ in told[a.name])
            checks.append(f"{self.printer.index(a.start, SUM)} >= 0")
            checks += [f"{self.printer.index(a.stop, SUM)} <= {self.printer.index(e, SUM)}" for e in extents]
        values, self.values = self.values, tuple(mapped(v, plain) for v in self.values)
        made, self.made = self.made, {n: v for v in self.values for n in names_of(v)}
        sweep = replace(
            work.sweep,
            folds=tuple(mapped(f, plain) for f in work.sweep.folds),
            writes=tuple(mapped_write(w, plain) for w in work.sweep.writes),
        )
        own_values = tuple(mapped(v, plain) for v in work.values)
        with self.writer.block(f"if ({' && '.join(checks)})"):
            self.writer.line("// all subscripts are inside: nothing is looked at in the loop")
            self.known_inside = known | {key: text for own in told.values() for key, text in own.items()}
            self.all_points(axes, replace(work, sweep=sweep, values=own_values), across)
        self.values, self.made, self.known_inside = values, made, known
        with self.writer.block("else"):
            self.all_points(axes, work, across)

    def ragged(self, axis: Axis) -> bool:
        """Whether data decide the bounds of an axis."""
        return bool((free_names(axis.start) | free_names(axis.stop)) & self.made.keys())

    def of_points(self, axis: Axis, axes: list[Axis]) -> bool:
        """Whether the bounds of an axis are others for each point of axes around it."""
        ends, own = (axis.start, axis.stop), {a.name for a in axes}
        return not own.isdisjoint(free_names_of(ends)) or any(not own.isdisjoint(v.axes) for v in self.needed(ends))

    def told_by_bounds(self, work: Work, own: Ref) -> dict[tuple[str, int, Expr], str]:
        """The subscripts in a sweep that are its axis, or what that counts from the end where it is below 0, and that are
        looked at.
        """
        exprs = [e for v in work.values for e in uses(v)] + [e for f in work.sweep.folds for e in f.parts]
        exprs += [e for w in work.sweep.writes for e in uses_of_write(w)]
        accesses = [(x.array, x.index) for e in exprs for x in walk_expr(e) if isinstance(x, Load)]
        accesses += [(v.array, v.index) for v in work.values if isinstance(v, Read)]
        accesses += [(w.array, w.index) for w in work.sweep.writes]
        found = [(a, k, own) for a, index in accesses for k, i in enumerate(index) if counted_from_end(i)[0] == own]
        return {key: "true" for key in found if self.unproven(*key)}

    def all_points(self, axes: list[Axis], work: Work, across: int) -> None:
        """The points of a sweep, shared by the threads of a row."""
        lane = None if self.plan.beside else self.axes[lane_of(self.plan.lane, work.sweep)]
        lines = [a for a in axes if a is not lane]
        with self.spelled(self.kept_of_rows(work) if lane is not None else {}):
            if not lines:
                assert lane is not None
                self.along(lane, work, self.plan.threads, "threadIdx.x", self.step.shared)
            else:
                self.over_lines(lines, lane, work, across)

    def over_lines(self, lines: list[Axis], lane: Axis | None, work: Work, across: int) -> None:
        """The points of all axes but the lane's, shared by threads one below the other, in one loop."""
        down = self.plan.threads // across
        counts = {a.name: self.span(a, f"{a.name}_count") for a in lines}
        whole = " * ".join(counts.values())
        if self.plan.beside:
            whole = f"here ? {whole} : 0"
        total = self.fresh.fresh("lines") if len(lines) > 1 or self.plan.beside else whole
        if total != whole:
            self.writer.line(f"const int64_t {total} = {whole};")
        place = "0" if down == 1 else "threadIdx.x" if across == 1 else f"threadIdx.x / {across}"
        first = ("part" if place == "0" else f"part * {down} + {place}") if self.step.shared else place
        step = ("parts" if down == 1 else f"parts * {down}") if self.step.shared else str(down)
        line = self.declare(lines[0].name) if len(lines) == 1 and lines[0].start == ZERO else self.fresh.fresh("line")
        if lane is None:
            with self.spelled(self.kept_of_rows(work)), self.some_at_a_time(line, first, total, step, work):
                if len(lines) > 1 or lines[0].start != ZERO:
                    self.narrowly(lines, line, counts)
                if self.first:
                    self.run_of_points(self.axes[self.plan.lane], self.first, work)
                else:
                    self.point(work)
            return
        with self.writer.block(f"for (int64_t {line} = {first}; {line} < {total}; {line} += {step})"):
            if len(lines) > 1 or lines[0].start != ZERO:
                self.narrowly(lines, line, counts)
            of_line = {*self.sweeps.rows, *(a.name for a in lines)}
            early = [v for v in work.values if set(v.axes) <= of_line and not self.of_each_row(v)]
            self.statements(tuple(map(self.let, early)))
            rest = replace(work, values=tuple(v for v in work.values if v not in early))
            x = "threadIdx.x" if across == self.plan.threads else f"threadIdx.x % {across}"
            self.along(lane, rest, across, x, False)

    def kept_of_rows(self, work: Work) -> dict[str, str]:
        """What points need of each of the rows of a thread, computed before them: its elements, by the names of the values."""
        rows = [v for v in self.wanted if self.of_each_row(v) and set(v.axes) <= set(self.sweeps.rows)]
        exprs = [e for v in work.values for e in uses(v)] + [e for f in work.sweep.folds for e in f.parts]
        exprs += [e for w in work.sweep.writes for e in uses_of_write(w)]
        names = {n for e in exprs for n in free_names(e)}
        kept = {v: self.fresh.fresh(f"{v.name}_rows") for v in rows if not isinstance(v, Fold) and v.name in names}
        for v, tile in kept.items():
            self.writer.line(f"{register_type(v.type)} {tile}[{self.many}];")
        if kept:
            with self.each_row(rows):
                for v, tile in kept.items():
                    self.writer.line(f"{tile}[v] = {self.printer.value(Ref(v.name, v.type))};")
        return {v.name: f"{tile}[v]" for v, tile in kept.items()}

    @contextmanager
    def some_at_a_time(self, line: str, first: str, stop: str, step: str, work: Work) -> Iterator[None]:
        """What is written here is done for every step-th line. Between several of them there is no branch, which loads would
        not pass: those of all of them are on their way.
        """
        writer, point, begin, k = self.writer, *map(self.fresh.fresh, ("point", "begin", "k"))
        read = [self.function.array(v.array).dtype.size for v in work.values if isinstance(v, Read)]
        some = max(2, _BYTES_ON_THE_WAY // (self.plan.vector * max(1, sum(read)))) if self.first else _UNROLL
        with writer.block(f"const auto {point} = [&](const int64_t {line})", "};"):
            yield
        further = "" if step == "1" else f" * {factor(step)}"
        writer.line(f"int64_t {begin} = {first};")
        with writer.block(f"for (; {begin} + {some - 1}{further} < {stop}; {begin} += {some}{further})"):
            writer.line("#pragma unroll")
            writer.line(f"for (int32_t {k} = 0; {k} < {some}; ++{k}) {point}({begin} + {k}{further});")
        writer.line("#pragma unroll 1")
        writer.line(f"for (; {begin} < {stop}; {begin} += {step}) {point}({begin});")

    def along(self, lane: Axis, work: Work, across: int, x: str, shared: bool) -> None:
        """Neighbouring points of one axis, for neighbouring threads."""
        start, stop, vector = self.printer.index(lane.start, SUM), self.printer.index(lane.stop, SUM), self.plan.vector
        first = f"part * {across} + {x}" if shared else x if across > 1 else "0"
        step = f"parts * {across}" if shared else str(across)
        name = self.declare(lane.name)
        if vector > 1:
            run = self.fresh.fresh(f"{lane.name}_run")
            begin = first if first == "0" else f"{factor(first)} * {vector}"
            reads = [v for v in work.values if isinstance(v, Read)]
            whole = whole_runs(self.function, reads, lane, self.facts, vector)
            inside = f"{run} < {stop}" if whole else f"{run} + {vector} <= {stop}"
            by = f"parts * {across * vector}" if shared else str(across * vector)
            packets = _UNROLL // vector * (4 if work.sweep.repairs else 2)  # sums that move take longer: more on their way
            self.writer.line(f"#pragma unroll {max(1, packets)}")
            with self.writer.block(f"for (int64_t {run} = {begin}; {inside}; {run} += {by})"):
                self.run_of_points(lane, run, work)
            if whole:
                return
            first = f"{factor(stop)} / {vector} * {vector} + {first}"
        first = first if start == "0" else f"{start} + int64_t({first})"  # threadIdx.x is unsigned: below 0 it would wrap
        if vector == 1 and (work.sweep.repairs or (self.ragged(lane) and work.sweep.folds)):
            run, some = self.fresh.fresh(f"{lane.name}_run"), _UNROLL if work.sweep.repairs else _FEW_ON_THE_WAY
            by = f"parts * {across * some}" if shared else str(across * some)
            turn = Turn(name, f"{run} + v{'' if step == '1' else f' * {step}'}", some, stop)
            with self.writer.block(f"for (int64_t {run} = {first}; {run} < {stop}; {run} += {by})"):
                if work.sweep.repairs:
                    self.relative_points(work, turn)
                else:
                    with self.points(turn):
                        self.point(work)
            return
        if vector == 1:
            self.writer.line(f"#pragma unroll {max(1, _UNROLL // self.plan.several)}")
        with self.writer.block(f"for (int64_t {name} = {first}; {name} < {stop}; {name} += {step})"):
            if work.sweep.repairs:
                self.relative_points(work, Turn(name, "", 1))
            else:
                self.point(work)

    def run_of_points(self, lane: Axis, run: str, work: Work) -> None:
        """Neighbouring points of one thread: what lies along the lane moves in packets."""
        vector, name = self.plan.vector, self.names[lane.name]
        self.names[lane.name] = run
        known = {}
        for v in work.values:
            if isinstance(v, Read) and any(lane.name in free_names(i) for i in v.index):
                self.writer.cite(v.location)
                known[v.name] = tile = self.fresh.fresh(f"{v.array}_run")
                type_ = register_type(self.function.array(v.array).dtype)
                self.writer.line(f"{type_} {tile}[{vector}];")
                self.writer.line(f"weft::unpack({self.packet(v)}, {tile});")
        stores = {}
        for w in work.sweep.writes:
            stores[w] = tile = self.fresh.fresh(f"{w.array}_run")
            self.writer.line(f"{register_type(w.value.type)} {tile}[{vector}];")
        self.names[lane.name] = name
        self.places_in_run(lane, run, work)
        rest = replace(work, values=tuple(v for v in work.values if v.name not in known))
        turn = Turn(name, f"{run} + v", vector)
        with self.spelled({n: f"{tile}[v]" for n, tile in known.items()}):
            if work.sweep.repairs:
                self.relative_points(rest, turn, stores)
            else:
                with self.points(turn):
                    self.point(rest, stores)
        self.names[lane.name] = run
        for w, tile in stores.items():
            self.writer.line(f"weft::store<{self.width(w.array, self.plan.vector)}>({self.address(w.array, w.index)}, {tile});")
        self.names[lane.name] = name

    def places_in_run(self, lane: Axis, run: str, work: Work) -> None:
        """What is the same for a row and compared with the place of a point is compared with a small number, for each run."""
        assert isinstance(self.printer, DividingPrinter)
        exprs = [v.value for v in work.values if isinstance(v, Map)] + [e for f in work.sweep.folds for e in f.parts]
        exprs += [e for w in work.sweep.writes for e in uses_of_write(w)]
        places = self.printer.places
        places.clear()
        for e in (x for root in exprs for x in walk_expr(root)):
            match e:
                case Op(name="eq", args=(a, Ref(name=place))) | Op(name="eq", args=(Ref(name=place), a)):
                    if place == lane.name and e not in places and self.same_in_run(a, lane):
                        name = self.fresh.fresh(f"{lane.name}_met")
                        found = f"weft::place_in_run<{self.plan.vector}>({self.printer.value(a)}, {run})"
                        self.writer.line(f"const int32_t {name} = {found};")
                        places[e] = f"{name} == v"

    def same_in_run(self, e: Expr, lane: Axis) -> bool:
        """Whether a place is the same for the points of a run, as values of the row tell it."""
        if e.type != INT64 or self.first or any(isinstance(x, Load | Check) for x in walk_expr(e)):
            return False
        made = [self.made[n] for n in free_names(e) if n in self.made]
        return lane.name not in free_names(e) and all(set(v.axes) <= {*self.sweeps.rows} for v in made)

    def packet(self, read: Read, how: str = "fetch") -> str:
        """Neighbouring elements as they are in memory."""
        vector = self.plan.vector
        return f"weft::{how}<{vector}, {self.width(read.array, vector)}>({self.address(read.array, read.index)})"

    @contextmanager
    def points(self, turn: Turn) -> Iterator[None]:
        """What is written here is done for each point of a turn."""
        if turn.count == 1:
            mark = self.writer.mark()
            yield
            if turn.place and self.writer.mentions(turn.name, mark):
                self.writer.insert(mark, f"const int64_t {turn.name} = {turn.place};")
            return
        self.writer.line("#pragma unroll")
        with self.writer.block(f"for (int32_t v = 0; v < {turn.count}; ++v)"):
            mark = self.writer.mark()
            if turn.stop:
                with self.writer.block(f"if ({turn.name} < {turn.stop})"):
                    yield
            else:
                yield
            if self.writer.mentions(turn.name, mark):
                self.writer.insert(mark, f"const int64_t {turn.name} = {turn.place};")

    def relative_points(self, work: Work, turn: Turn, stores: Mapping[Write, str] = MappingProxyType({})) -> None:
        """The points of a turn where sums are relative to extrema: these are found first, and the sums are brought to them."""
        leading = [f for f in work.sweep.folds if any(r.extremum == f.results[0] for r in work.sweep.repairs)]
        rest = [f for f in work.sweep.folds if f not in leading]
        early = [v for v in work.values if v in self.needed(e for f in leading for e in f.parts)]
        exprs = [e for f in rest for e in f.parts] + [e for w in work.sweep.writes for e in uses_of_write(w)]
        late = [v for v in work.values if v in self.needed(exprs)]
        kept = {}  # what both loops over the points use
        for v in early if turn.count > 1 else ():
            if v in late:
                kept[v.name] = self.fresh.fresh(f"{v.name}_run")
                self.writer.line(f"{register_type(v.type)} {kept[v.name]}[{turn.count}];")
        latest = {f.results[0]: self.fresh.fresh(f"{f.names[0]}_latest") for f in leading}
        for f in leading:
            own = work.owns[f.results[0]]
            self.writer.line(f"{register_type(f.types[0])} {latest[f.results[0]]} = {own};")
        tiles = {n: f"{tile}[v]" for n, tile in kept.items()}
        with self.spelled(tiles), self.points(turn):
            self.assigned = tiles
            self.compute(early)
            self.assigned = {}
            for f in leading:
                self.writer.cite(f.location)
                taken = f"{self.algebra(f)}::combine({latest[f.results[0]]}, {self.printer.value(f.parts[0])})"
                self.writer.line(f"{latest[f.results[0]]} = {taken};")
        references = {}
        for f in leading:
            name = f.results[0]
            references[name] = self.fresh.fresh(f"{f.names[0]}_reference")
            reference = self.reference(f, latest[name])
            self.writer.line(f"const {register_type(f.types[0])} {references[name]} = {reference};")
        self.writer.line("// sums move with what they are relative to")
        for f in rest:
            if (repair := work.sweep.repair(f)) is not None:
                self.repair(f, work.owns, references[repair.extremum])
        for f in leading:
            self.writer.line(f"{work.owns[f.results[0]]} = {latest[f.results[0]]};")
        beside = [v for v in late if v.name not in kept and not (turn.count == 1 and v in early)]
        others = replace(work, sweep=replace(work.sweep, folds=tuple(rest)), values=tuple(beside))
        with self.spelled({**tiles, **references}), self.points(turn):
            self.point(others, stores)

    def compute(self, values: Iterable[Read | Map]) -> None:
        """Values at a point: names of their own, or elements of what keeps them."""
        for v in values:
            if v.name in self.assigned:
                self.writer.cite(v.location)
                self.writer.line(f"{self.assigned[v.name]} = {self.printer.value(self.let(v).value)};")
            else:
                self.statements((self.let(v),))

    def point(self, work: Work, stores: Mapping[Write, str] = MappingProxyType({})) -> None:
        """What is done at a point. stores: the runs that take what is written, where that is stored in packets."""
        if self.plan.several > 1:
            own = [v for v in work.values if self.of_each_row(v)]
            self.compute(v for v in work.values if v not in own)
            with self.each_row():
                self.compute(own)
                self.folded(work)
            return
        self.compute(work.values)
        self.folded(work)
        for w in work.sweep.writes:
            if w in stores:
                self.writer.cite(w.location)
                self.writer.line(f"{stores[w]}[v] = {self.printer.value(w.value)};")
            else:
                self.write(w)

    def folded(self, work: Work) -> None:
        """What a point folds."""
        for f in work.sweep.folds:
            self.writer.cite(f.location)
            own = self.own(work.owns[f.results[0]])
            fused = self.printer.accumulated(own, f.parts[0]) if f.algebra == "sum" else None
            taken = fused or self.taken(f, own)
            self.writer.line(f"{own} = {taken};")

    # ---------------------------------------------------------------- sums relative to extrema

    def fold(self, result: str) -> Fold:
        fold = self.made[result]
        assert isinstance(fold, Fold)
        return fold

    def reference(self, extremum: Fold, value: str) -> str:
        """What sums are relative to while an extremum has this value."""
        return f"{self.algebra(extremum)}::reference({value})"

    def factor(self, repair: Repair, old: str, new: str) -> str:
        """What brings a sum that is relative to one value of its extremum to another one."""
        self.instead |= {before(repair.extremum): old, repair.extremum: new}
        text = self.printer.value(repair.factor, PRODUCT)
        del self.instead[before(repair.extremum)], self.instead[repair.extremum]
        return text

    def repair(self, fold: Fold, owns: Mapping[str, str], new: str) -> None:
        """Bring what a thread has summed to a later value of the extremum."""
        repair = self.repairs[fold.results[0]]
        old = self.reference(self.fold(repair.extremum), owns[repair.extremum])
        self.writer.line(f"{owns[fold.results[0]]} *= {self.factor(repair, old, new)};")

    def settled(self, repair: Repair) -> str:
        """The last value of an extremum, which a sum is relative to in the end; of a row without points, a finite one."""
        fold = self.fold(repair.extremum)
        if repair.guarded:
            return self.printer.value(repair.guard, TERNARY + 1)
        last, init = self.names[repair.extremum], fold.inits[0]
        if isinstance(init, Const) and math.isfinite(init.value):
            return last
        if repair.extremum not in self.last:
            name = self.last[repair.extremum] = self.fresh.fresh(f"{fold.names[0]}_last")
            axes = [self.axes[a] for a in fold.over]
            points = " && ".join(f"{self.printer.index(a.start, SUM)} < {self.printer.index(a.stop, SUM)}" for a in axes)
            line = f"const {register_type(fold.types[0])} {name} = {points} ? {last} : {self.reference(fold, last)};"
            self.writer.line(line)
        return self.last[repair.extremum]

    # ---------------------------------------------------------------- folds

    def algebra(self, fold: Fold) -> str:
        return _alias(fold) if fold.algebra in EXTREMA else algebra_type(fold.algebra, register_type(fold.types[0]))

    def value_type(self, fold: Fold) -> str:
        """What threads have of a fold."""
        return f"{self.algebra(fold)}::Value" if fold.algebra in EXTREMA else register_type(fold.types[0])

    def taken(self, fold: Fold, own: str) -> str:
        """What a thread has of a fold after one more point."""
        if fold.algebra not in EXTREMA:
            return f"{self.algebra(fold)}::combine({own}, {self.printer.value(fold.parts[0])})"
        kept = [e for k, e in enumerate(fold.parts) if k < 2 or not is_place(fold, k - 1, self.axes)]
        return f"{self.algebra(fold)}::next({', '.join([own, self.place_of_point(fold), *map(self.printer.exact, kept)])})"

    def place_of_point(self, fold: Fold) -> str:
        """The place of a point among all of its fold, in their order."""
        text = ""
        for name in fold.over:
            start = self.axes[name].start
            own = self.names[name] + ("" if start == ZERO else f" - {self.printer.index(start, PRODUCT)}")
            text = own if not text else f"{factor(text)} * {factor(self.counts[name])} + {own}"
        return text

    def result_of_extremum(self, fold: Fold, own: str) -> None:
        """The states after an extremum with what goes with it, in all threads of its row."""
        self.writer.cite(fold.location)
        for name, init in zip(fold.results, fold.inits, strict=True):
            self.writer.line(f"{register_type(init.type)} {self.declare(name)} = {self.printer.exact(init)};")
        total, found = self.total(fold, own), self.fresh.fresh(f"{fold.names[0]}_total")
        self.writer.line(f"const auto {found} = {total};")
        results = [self.names[n] for n in fold.results]
        kept = [r for k, r in enumerate(results) if not is_place(fold, k, self.axes)]
        places, rest = {}, f"{found}.column"
        for name in reversed(fold.over):
            start = self.axes[name].start
            own_place = rest if name == fold.over[0] else f"{rest} % {factor(self.counts[name])}"
            places[name] = own_place if start == ZERO else f"{self.printer.index(start, SUM)} + {own_place}"
            rest = f"{rest} / {factor(self.counts[name])}" if name != fold.over[0] else rest
        told = [(r, fold.parts[k + 1]) for k, r in enumerate(results) if is_place(fold, k, self.axes)]
        moves = [f"{r} = {places[p.name] if isinstance(p, Ref) else f'{found}.column'};" for r, p in told]
        applied = f"{self.algebra(fold)}::apply({', '.join([found, *kept])})"
        if not moves:
            self.writer.line(f"{applied};")
        elif len(moves) == 1:
            self.writer.line(f"if ({applied}) {moves[0]}")
        else:
            with self.writer.block(f"if ({applied})"):
                for move in moves:
                    self.writer.line(move)

    def combined_by_team(self, fold: Fold, own: str) -> None:
        """The result of a fold, in all threads of its row."""
        if fold.algebra in EXTREMA:
            self.result_of_extremum(fold, own)
            return
        type_, result = register_type(fold.types[0]), self.declare(fold.results[0])
        total = self.total(fold, own)
        template = "{1}" if starts_neutral(fold) else join(fold.algebra, fold.types[0])
        self.writer.cite(fold.location)
        if self.first:
            self.declared(type_, result)
            self.names[fold.results[0]] = f"{result}[v]"
        with self.each_row(self.needed(fold.inits)):
            joined = template.format(self.printer.exact(fold.inits[0], PRODUCT), total)
            self.writer.line(f"{result}[v] = {joined};" if self.first else f"const {type_} {result} = {joined};")

    def meet(self, folds: Sequence[Fold], owns: Mapping[str, str]) -> None:
        """What comes before the totals of folds that are ready together."""

    def total(self, fold: Fold, own: str) -> str:
        """What the threads of a row have folded together."""
        threads, algebra = self.plan.threads, self.algebra(fold)
        scratch = self.fresh.fresh(f"{fold.names[0]}_scratch")
        if not self.plan.beside and threads <= 32:
            return f"weft::reduce<{algebra}, {threads}>({self.own(own)}, nullptr)"
        side = self.plan.across[0][0] if self.plan.beside else 1
        places = side * (BLOCK // max(side, 32)) if self.plan.beside else threads // 32
        each = f"[{self.many}]" if self.first else ""
        self.writer.line(f"__shared__ {self.value_type(fold)} {scratch}{each}[{places}];")
        if not self.plan.beside:
            return f"weft::reduce<{algebra}, {threads}>({self.own(own)}, {self.own(scratch)})"
        return f"weft::reduce_down<{algebra}, {side}, {threads}>({self.own(own)}, {self.own(scratch)})"

    def keep(self, fold: Fold, own: str) -> str:
        """Store what this block has folded of its row; its name."""
        kept, type_ = self.partials[fold.results[0]], self.value_type(fold)
        total, name = self.total(fold, own), self.fresh.fresh(f"{fold.names[0]}_total")
        with self.each_row():
            self.writer.line(f"const {type_} {name} = {total};")
            if self.plan.beside:
                side = self.plan.across[0][0]
                first = "here" if side == BLOCK else f"here && threadIdx.x < {side}"
                place = f"part * {self.rows_name} + {self.row}{' + v' if self.first else ''}"
                self.writer.line(f"if ({first}) {kept}[{place}] = {name};")
            else:
                own = f" && v >= {self.others}" if self.others else ""
                self.writer.line(f"if (threadIdx.x == 0{own}) {kept}[{self.place('part')}] = {name};")
        return name

    def place(self, part: str) -> str:
        """Where a part of this row is kept: the parts of a row lie side by side."""
        return f"{f'({self.row} + v)' if self.first else self.row} * parts + {part}" if self.row else part

    def gathered(self, folds: Sequence[Fold]) -> None:
        """The results of folds whose parts another launch has stored: of several, all are on their way together."""
        k, owns = self.fresh.fresh("other"), {}
        for fold in folds:
            repair, algebra = self.repairs.get(fold.results[0]), self.algebra(fold)
            if repair is not None:
                self.of_rows((self.fold(repair.extremum),))
                self.settled(repair)
            own = owns[fold.results[0]] = self.fresh.fresh(f"{fold.names[0]}_own")
            self.declared(self.value_type(fold), own, f"{algebra}::identity()")
            if fold.algebra in EXTREMA:
                self.counts |= {a: self.span(self.axes[a], f"{a}_count") for a in fold.over[1:] if a not in self.counts}
        side = self.plan.across[0][0] if self.plan.beside else 1
        first = "0" if side == BLOCK else "threadIdx.x" if side == 1 else f"threadIdx.x / {side}"
        place = f"{k} * {self.rows_name} + {self.row}" if self.plan.beside else self.place(k)
        turns = f"for (int64_t {k} = {first}; {k} < parts; {k} += {self.plan.threads // side})"
        with self.writer.block(turns):
            parts = {f.results[0]: self.parts_of_rows(f, place) for f in folds}
            with self.each_row():
                for fold in folds:
                    value, repair, own = parts[fold.results[0]], self.repairs.get(fold.results[0]), owns[fold.results[0]]
                    if repair is not None:
                        old = self.reference(self.fold(repair.extremum), f"{self.partials[repair.extremum]}[{place}]")
                        value += f" * {self.factor(repair, old, self.settled(repair))}"
                    taken = f"{self.algebra(fold)}::combine({self.own(own)}, {value})"
                    self.writer.line(f"{self.own(own)} = {taken};")
        for fold in folds:
            self.combined_by_team(fold, owns[fold.results[0]])

    def parts_of_rows(self, fold: Fold, place: str) -> str:
        """A part of a fold, as text; of neighbouring rows whose parts the nest before has left in packets, one packet."""
        kept = self.partials[fold.results[0]]
        if not (self.plan.left and self.first):
            return f"{kept}[{place}{' + v' if self.first and self.plan.beside else ''}]"
        tile, vector = self.fresh.fresh(f"{fold.names[0]}_run"), self.plan.vector
        self.writer.line(f"{register_type(fold.types[0])} {tile}[{vector}];")
        width = min(vector, PACKET_BYTES // fold.types[0].size)
        self.writer.line(f"weft::unpack(weft::fetch<{vector}, {width}>({kept} + {place}), {tile});")
        return f"{tile}[v]"

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
            if self.others:
                self.writer.line(f"if (v < {self.others}) continue;")
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
