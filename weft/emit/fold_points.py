"""The points of a sweep as CUDA C++: threads share those of a row, by lines and along a lane, in packets where these are
neighbours in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from types import MappingProxyType

from weft.emit.cpp_body import factor
from weft.emit.expressions import SUM, DividingPrinter, register_type
from weft.emit.fold_totals import FoldTotals
from weft.emit.values import ZERO
from weft.graph.steady import counts_from_one
from weft.graph.sweeps import Sweep
from weft.graph.tile import Axis, Fold, Map, Read, Write, mapped, mapped_write, names_of, uses, uses_of_write
from weft.loops.accesses import counted_from_end, not_below_0
from weft.loops.digits import replaced
from weft.loops.ir import Cast, Check, Expr, Load, Op, Ref, free_names, free_names_of, walk_expr
from weft.loops.types import FLOAT32, FLOATS8, INT64
from weft.plan.fold import is_run, lane_of, loaded_anyway, rows_alike, whole_runs

# Points whose loads a thread has in flight, and of rows whose lengths data decide, which are often short.
_UNROLL, _FEW_ON_THE_WAY = 8, 4
# Bytes of packets that it has.
_BYTES_ON_THE_WAY = 64
# Blocks of a multiprocessor whose threads read lines of points, of rows of several lengths. With as many registers as the
# What the launches for longer rows tell each other, beside parts of folds.


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
class FoldPoints(FoldTotals):
    """What is done at points: their values, one more point of each fold, what is written there."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.printer = DividingPrinter(**{f.name: getattr(self.printer, f.name) for f in fields(self.printer)})
        self.wanted: list[Read | Map | Fold] = []
        self.assigned: Mapping[str, str] = {}  # what is kept of values beyond their points, and where
        self.taken_where = ""  # where points are taken, "" where all are

    def looked_at(self, axes: list[Axis], work: Work, across: int) -> None:
        """The points of a sweep. Where data decide the bounds of its axes, these tell whether an axis leaves an array that it
        is a subscript of by itself: if not, points need not look.
        """
        known = self.known_inside
        ragged = [a for a in axes if self.ragged(a) and not self.of_points(a, axes)]
        if self.plan.beside and self.plan.lane not in rows_alike(self.sweeps, self.plan.rows):
            ragged = []
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

    # ---------------------------------------------------------------- which points a thread has

    def all_points(self, axes: list[Axis], work: Work, across: int) -> None:
        """The points of a sweep, shared by the threads of a row."""
        lane = None if self.plan.beside else self.axes[lane_of(self.plan.lane, work.sweep)]
        lines = [a for a in axes if a is not lane]
        with self.spelled(self.kept_of_rows(work) if lane is not None else {}):
            if not lines:
                assert lane is not None
                self.along(lane, work, self.plan.threads, self.thread, self.step.shared)
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
        place = "0" if down == 1 else self.thread if across == 1 else f"{self.thread} / {across}"
        first = ("part" if place == "0" else f"part * {down} + {place}") if self.step.shared else place
        step = ("parts" if down == 1 else f"parts * {down}") if self.step.shared else str(down)
        line = self.declare(lines[0].name) if len(lines) == 1 and lines[0].start == ZERO else self.fresh.fresh("line")
        if lane is None:
            with self.spelled(self.kept_of_rows(work)), self.some_at_a_time(line, first, total, step, work, lines):
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
            x = self.thread if across == self.plan.threads else f"{self.thread} % {across}"
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
    def some_at_a_time(
        self, line: str, first: str, stop: str, step: str, work: Work, lines: Sequence[Axis]
    ) -> Iterator[None]:
        """What is written here is done for every step-th line. Between several of them there is no branch, which loads would
        not pass: those of all of them are on their way. Of rows that are short, the last line is there again for those beyond
        the end, and not taken.
        """
        writer, point, begin, k = self.writer, *map(self.fresh.fresh, ("point", "begin", "k"))
        if work.sweep.folds and not work.sweep.writes and any(map(self.ragged, lines)):
            some, there = _FEW_ON_THE_WAY, self.fresh.fresh("there")
            self.taken_where = there
            with writer.block(f"const auto {point} = [&](const int64_t {line}, const bool {there})", "};"):
                yield
            self.taken_where = ""
            by = str(some * int(step)) if step.isdigit() else f"{some} * {factor(step)}"
            with writer.block(f"for (int64_t {begin} = {first}; {begin} < {stop}; {begin} += {by})"):
                writer.line("#pragma unroll")
                with writer.block(f"for (int32_t {k} = 0; {k} < {some}; ++{k})"):
                    own = f"{begin} + {k}" if step == "1" else f"{begin} + {k} * {factor(step)}"
                    writer.line(f"{point}(weft::minimum<int64_t>({own}, {stop} - 1), {own} < {stop});")
            return
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
        lines: dict[Expr, Expr] = {}
        by_need = self.lines_by_need(work, lane)
        told = [v for v in self.needed(i for load in by_need for i in load.index) if v in work.values]
        self.statements(tuple(map(self.let, told)))  # the same for the whole run
        work = replace(work, values=tuple(v for v in work.values if v not in told))
        for load in by_need:
            tile = self.fresh.fresh(f"{load.array}_run")
            type_ = register_type(self.function.array(load.array).dtype)
            self.writer.line(f"{type_} {tile}[{vector}] = {{}};")
            asked, width = self.checks(load.array, load.index), self.width(load.array, vector)
            packet = f"weft::fetch<{vector}, {width}>({self.address(load.array, load.index)})"
            inside = f"if ({' && '.join(asked)}) " if asked else ""
            self.writer.line(f"{inside}weft::unpack({packet}, {tile});")
            lines[load] = Ref(tile, load.type)
            known[tile] = tile
        if lines:
            folds = tuple(mapped(f, lambda e: replaced(e, lines)) for f in work.sweep.folds)
            work = replace(work, sweep=replace(work.sweep, folds=folds))
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

    # ---------------------------------------------------------------- what is done at them

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

    def compute(self, values: Iterable[Read | Map]) -> None:
        """Values at a point: names of their own, or elements of what keeps them."""
        for v in values:
            if v.name in self.assigned:
                self.writer.cite(v.location)
                self.writer.line(f"{self.assigned[v.name]} = {self.printer.value(self.let(v).value)};")
            else:
                self.statements((self.let(v),))

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

    def lines_by_need(self, work: Work, lane: Axis) -> list[Load]:
        """What is loaded at all points of a sweep by need, and lies along the lane: all else is looked at once for a run."""
        if not self.plan.beside or work.sweep.repairs:
            return []
        found = [x for f in work.sweep.folds for x in loaded_anyway(f)]
        of_lane = {lane.name, *(n for v in self.values if lane.name in v.axes for n in names_of(v))}
        return [x for x in dict.fromkeys(found) if is_run(x.array, x.index, lane.name, self.facts)
                and not any(i != Ref(lane.name, INT64) and free_names(i) & of_lane for i in x.index)]  # fmt: skip

    def folded(self, work: Work) -> None:
        """What a point folds."""
        for f in work.sweep.folds:
            self.writer.cite(f.location)
            own = self.own(work.owns[f.results[0]])
            fused = self.printer.accumulated(own, f.parts[0]) if f.algebra == "sum" else None
            taken = fused or self.taken(f, own)
            if self.taken_where:  # no branch
                after = self.fresh.fresh(f"{f.names[0]}_after")
                self.writer.line(f"const {self.value_type(f)} {after} = {taken};")
                taken = f"{self.taken_where} ? {after} : {own}"
            self.writer.line(f"{own} = {taken};")

    # ---------------------------------------------------------------- what many points of a row have alike

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
