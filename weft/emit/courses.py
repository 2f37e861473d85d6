"""A course of maps as CUDA C++: every thread computes neighbouring points, and moves in packets what lies side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Self

from weft.emit.dependent import ALONE, Dependence
from weft.emit.expressions import PRODUCT, SUM, DividingPrinter, memory_type, register_type
from weft.emit.names import Names
from weft.emit.subscripts import at, coefficient, constant, sub
from weft.emit.text import Writer
from weft.emit.thread_body import parameters
from weft.emit.values import TRAP, ZERO, ValueBody, deciding
from weft.errors import Location
from weft.graph.maps import Course
from weft.graph.tile import Axis, Map, Read, Value, Write, names_of, uses
from weft.loops.algebra.match import conjunction
from weft.loops.cells import zero
from weft.loops.ir import Const, Expr, Function, If, Let, Load, Op, Ref, Round, Stmt, Store, checks_in, free_names, walk_expr
from weft.loops.schedule import Nest
from weft.loops.types import BFLOAT16, FLOAT16, FLOAT32, INT64, ScalarType
from weft.plan.arguments import Facts
from weft.plan.map import ANY, NO_RUN, CoursePlan, accesses, group_name, row_guard

_WORTH_A_RECIPROCAL = 4  # points of a thread: the reciprocal costs about as much as two divisions
_WORDS = frozenset({"outside", "row", "v", "turn"})


@dataclass(frozen=True)
class Tile:
    """What a thread has of a read: `name[turn][v]`. parts: 2 where both parts of complex numbers are read together."""

    read: Read
    name: str
    width: int
    parts: int = 1


@dataclass
class Entry(ValueBody):
    """One course of a plan. lane: the axis along which a thread has neighbours, if there is one."""

    course: Course = None  # type: ignore[assignment]
    plan: CoursePlan = None  # type: ignore[assignment]
    entry: str = ""
    guard: Expr | None = None  # the condition on which a row stores

    @classmethod
    def begun(
        cls, function: Function, nest: Nest, facts: Facts, writer: Writer, course: Course, plan: CoursePlan, entry: str,
        **more: object,
    ) -> Self:
        """more: fields of a kind of its own."""
        guard = None if plan.turned else row_guard(course)
        writes = [replace(w, value=_before_rounding(w.value, function.array(w.array).dtype)) for w in course.writes]
        course = replace(course, writes=tuple(writes if guard is None else (replace(w, guard=None) for w in writes)))
        axes = {a.name: a for a in course.axes}
        told = {a.name: a for a in course.axes if "." not in a.name}  # axes that are counted as one are boxes
        varies = deciding(told, course.values)
        large = varies | {s.name for s in function.scalars}
        names = Names(_WORDS | {entry})
        own = {"axes": axes, "values": course.values, "course": course, "plan": plan, "entry": entry, "guard": guard, **more}
        return cls(function, nest, facts, writer, names, {}, {}, varies, large, **own)  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.printer = DividingPrinter(**{f.name: getattr(self.printer, f.name) for f in fields(self.printer)})
        self.lane = self.course.axes[-1] if self.course.axes else None
        self.rows = {a.name for a in self.course.axes[:-1]}
        self.run = ""  # the first of the neighbours that a thread has at a time
        self.origin, self.bounds = "", ("", "")  # where runs are counted from, and the lane's first and last point
        self.row_size = ""  # how many points a row has of those that the lane goes through
        reads = [v for v in self.course.values if isinstance(v, Read)]
        widths = dict(zip([r.name for r in reads], self.plan.widths, strict=False))
        self.write_widths = self.plan.widths[len(reads) :]
        self.across = {self.lane.name, self.plan.turned} - {""} if self.lane else set[str]()
        # the reads that look for their rows, and how far they step along the lane
        self.over = {reads[k].name: step for k, step in self.plan.wrapped}
        # of the lane: the axis that counts rows, and that of a row's points
        self.parts = [group_name(group) for group in self.plan.axes[-2:]] if self.over else []
        self.across |= {*self.parts}
        self.within = {w.read: w.conditions for w in self.course.within}
        own = [r for r in reads if self.of_lane(r) and not (r.name in self.within and self.unproven_access(r.array, r.index))]
        self.early = [
            r for r in own if r.name in self.over or not any(self.late(r.array, k, i) for k, i in enumerate(r.index))
        ]
        # of complex numbers, the accesses to the second part that those to the first do with their own
        self.seconds = {reads[j].name: reads[k].name for k, j in self.plan.pairs if j < len(reads)}
        self.firsts = {*self.seconds.values()}
        self.write_pairs = {k - len(reads): j - len(reads) for k, j in self.plan.pairs if k >= len(reads)}
        self.tiles = [
            Tile(r, "", widths[r.name], 2 if r.name in self.firsts else 1) for r in self.early if r.name not in self.seconds
        ]
        self.mark = 0  # where the body begins
        self.looked: set[str] = set()  # what has been asked of them
        self.told: set[tuple[str, tuple[Expr, ...]]] = set()  # accesses whose rows are known to be inside
        self.packed = self.plan.vector > 1 or bool(self.plan.turned or self.plan.pairs)  # a thread has arrays of neighbours
        self.moved = self.moves()  # writes of reads that are only moved, as they are in memory
        self.known: list[Value] = []  # the values of a row that the text has computed
        self.pointed: dict[tuple[str, str], str] = {}

    def moves(self) -> dict[Write, str]:
        """The writes that move elements of half types, whose runs are not converted, and the reads' names."""
        if not self.packed or self.plan.turned or self.plan.pairs:
            return {}
        runs = {t.read.name: t.read.array for t in self.tiles if t.width != NO_RUN or t.read.name in self.over}
        found = {}
        for w, width in zip(self.course.writes, self.write_widths, strict=True):
            if width != NO_RUN and w.guard is None and isinstance(w.value, Ref) and w.value.name in runs:
                dtype = self.function.array(w.array).dtype
                if dtype in (FLOAT16, BFLOAT16) and dtype == self.function.array(runs[w.value.name]).dtype:
                    found[w] = w.value.name
        others = [e for v in self.course.values for e in uses(v)]
        others += [e for w in self.course.writes for e in (*w.index, *(() if w in found else (w.value,)), *_guards(w))]
        read = {n for e in others for n in free_names(e)}
        return {w: name for w, name in found.items() if name not in read}

    # ---------------------------------------------------------------- what depends on what

    def of_lane(self, value: Value) -> bool:
        return self.lane is not None and self.lane.name in value.axes

    def of_turn(self, value: Value) -> bool:
        """Whether a value is the same along the lane, and another one in each turn."""
        return not self.of_lane(value) and self.plan.turned in value.axes

    def moving(self, index: Expr) -> bool:
        """Whether a subscript is no row's."""
        return any(n in self.across or (n in self.made and self.across & {*self.made[n].axes}) for n in free_names(index))

    def late(self, array: str, axis: int, index: Expr) -> bool:
        """Whether it is known only where a point is computed that its subscript is inside, or what it is."""
        if not self.moving(index):
            return False
        assert self.lane is not None
        if free_names(index) & self.made.keys():
            return True
        steady = free_names(index) <= (self.names_known() | {self.lane.name}) and coefficient(index, self.lane.name) == 1
        return self.unproven(array, axis, index) and not (steady and self.course.ragged)

    def names_known(self) -> set[str]:
        return ({a.name for a in self.course.axes} | {s.name for s in self.function.sizes}) - self.varies

    # ---------------------------------------------------------------- the kernel

    def emit(self, launch: Dependence = ALONE) -> None:
        lines, threads = ",\n    ".join(self.parameters()), self.plan.threads
        with self.writer.block(f'extern "C" __global__ void __launch_bounds__({threads}) {self.entry}(\n    {lines})'):
            launch.begin(self.writer)
            mark = self.mark = self.writer.mark()
            self.comment()
            self.place_rows()
            if self.course.ragged:
                self.ragged_bounds()
            self.values_of_rows()
            sure = [t.read for t in self.tiles if t.read.name not in self.over.keys() | self.within.keys()]
            self.check_rows([(r.array, r.index, r.location) for r in sure])
            if not self.waits:
                self.leave_rows()
            self.check_rows([(w.array, w.index, w.location) for w in self.course.writes if self.whole_rows(w)])
            self.point_to_rows()
            if self.lane is None:
                self.points({})
            else:
                self.along(self.lane)
            self.stop_outside(mark)

    def parameters(self) -> list[str]:
        return parameters(self.function, self.nest, self.facts, self)

    @property
    def waits(self) -> bool:
        """Whether a row's points are read before it is known whether it stores."""
        return False

    def leave_rows(self) -> None:
        """Threads of a row that stores nothing are done."""
        if self.guard is None:
            return
        if self.writer.mentions("outside", self.mark):
            self.writer.line(TRAP)
        self.writer.cite(self.course.writes[0].location)
        self.writer.line(f"if (!({self.printer.value(self.guard)})) return;")

    def comment(self) -> None:
        plan, lane = self.plan, self.lane
        if lane is None:
            return
        run = f"{plan.vector} neighbours" if plan.vector > 1 else "an element"
        turns = f", {plan.turns} times" if plan.turns > 1 else ""
        together = plan.lane
        one = f"({', '.join(together)}), which are counted as one" if len(together) > 1 else lane.name
        self.writer.line(f"// each thread takes {run}{turns} along {one}")

    def place_rows(self) -> None:
        """Which row a thread works for."""
        plan, axes, line = self.plan, list(self.course.axes[:-1]), self.writer.line
        if not axes:
            return
        counts = {a.name: self.span(a, f"{a.name}_count") for a in axes}
        narrow = len(axes) > 1 and plan.narrow
        place = "blockIdx.x" if narrow else "int64_t(blockIdx.x)"
        if plan.several:
            place = f"{'blockIdx.z' if narrow else 'int64_t(blockIdx.z)'} * gridDim.y + blockIdx.y"
        if plan.down > 1:
            place = f"{f'({place})' if plan.several else place} * {plan.down} + threadIdx.y"
        count = " * ".join(counts[a.name] for a in axes)
        guarded = plan.down > 1 or plan.several or plan.loose
        if len(axes) == 1:
            axis = axes[0]
            own = self.declare(axis.name) if axis.start == ZERO else "row"
            line(f"const int64_t {own} = {place};")
            if guarded:
                line(f"if ({own} >= {count}) return;")
            if axis.start != ZERO:
                line(f"const int64_t {self.declare(axis.name)} = {self.printer.index(axis.start, SUM)} + row;")
            return
        if narrow:
            counts = {a: f"uint32_t({c})" for a, c in counts.items()}
            count = f"uint32_t({count})"
        line(f"const {'uint32_t' if narrow else 'int64_t'} row = {place};")
        if guarded:
            line(f"if (row >= {count}) return;")
        self.places(axes, "row", counts)

    def ragged_bounds(self) -> None:
        """The bounds of a lane that are not the same everywhere; rows without points end here."""
        lane = self.course.axes[-1]
        self.values_of_rows(self.needed((lane.start, lane.stop)))
        start, stop = (self.bound(e, f"{lane.name}_{end}") for e, end in ((lane.start, "start"), (lane.stop, "stop")))
        self.writer.line(f"if ({stop} <= {start}) return;")
        self.bounds = start, stop

    def bound(self, e: Expr, wanted: str) -> str:
        text = self.printer.index(e)
        if isinstance(e, (Ref, Const)):
            return text
        name = self.fresh.fresh(wanted)
        self.writer.line(f"const int64_t {name} = {text};")
        return name

    def values_of_rows(self, wanted: Iterable[Value] = ()) -> None:
        """What is the same along the lane, computed once: these values, or all."""
        for v in wanted or self.course.values:
            if self.of_lane(v) or self.of_turn(v) or v in self.known:
                continue
            assert isinstance(v, (Read, Map))
            self.known.append(v)
            self.statements((self.let(v),))

    def check_rows(self, wanted: Iterable[tuple[str, tuple[Expr, ...], Location | None]]) -> None:
        """Look once a row at the subscripts that data decide of these accesses, where all of its points have to be inside."""
        for array, index, location in wanted:
            self.told.add((array, index))
            for k, (i, extent) in enumerate(zip(index, self.function.array(array).shape, strict=True)):
                if not self.unproven(array, k, i):
                    continue
                size = self.printer.index(extent, PRODUCT)
                if self.moving(i):
                    first, last = (self.at_bound(i, end) for end in self.bounds)
                    check = f"{first} < 0 || {last} > {size}" if first != "0" else f"{last} > {size}"
                else:
                    place = self.printer.index(i, PRODUCT)
                    check = f"{place} < 0 || {place} >= {size}"
                if check not in self.looked:
                    self.writer.cite(location)
                    self.writer.line(f"if ({check}) __trap();  // a subscript leaves {array}")
                self.looked.add(check)

    def at_bound(self, index: Expr, bound: str) -> str:
        """A subscript where the lane is at one of its bounds."""
        assert self.lane is not None
        instead = Const(int(bound), INT64) if bound.isdigit() else self.raw(bound)
        return self.printer.index(at(index, self.lane.name, instead), PRODUCT)

    def whole_rows(self, w: Write) -> bool:
        """Whether all points of a row store, where one look tells that they are inside."""
        return w.guard is None and not any(self.late(w.array, k, i) for k, i in enumerate(w.index))

    def checks(self, array: str, index: tuple[Expr, ...]) -> list[str]:
        return [] if (array, index) in self.told else super().checks(array, index)

    # ---------------------------------------------------------------- where elements lie

    def row_axes(self, array: str, index: tuple[Expr, ...]) -> frozenset[int]:
        """The axes of an array that are told once a row."""
        told = (array, index) in self.told
        return frozenset(
            k for k, i in enumerate(index) if not self.moving(i) and (told or not self.unproven(array, k, i)) and self.ready(i)
        )

    def ready(self, index: Expr) -> bool:
        return not any(isinstance(x, Load) for x in walk_expr(index))

    def row_offset(self, array: str, index: tuple[Expr, ...]) -> str:
        return self.offset(array, index, frozenset(range(len(index))) - self.row_axes(array, index))

    def point_to_rows(self) -> None:
        """Pointers to the rows of what is read and written along the lane."""
        if self.lane is None:
            return
        wanted = [t.read for t in self.tiles]
        wanted += [v for v in self.course.values if isinstance(v, Read) and self.of_lane(v) and v not in wanted]
        given = [(r.array, r.index) for r in wanted] + [(w.array, w.index) for w in self.course.writes]
        given += [(array, index) for array, index in accesses(self.course) if any(map(self.moving, index))]
        for array, index in given:
            offset = self.row_offset(array, index)
            if offset == "0" or (array, offset) in self.pointed:
                continue
            taken = self.row_axes(array, index)
            used = [a.name for a in self.course.axes if any(self.depends(index[k], a) for k in taken)]
            name = self.fresh.fresh("_".join((array, *used)))
            own = self.function.array(array)
            type_ = f"{'const ' if own.role == 'input' else ''}{memory_type(own.dtype)}*"
            self.writer.line(f"{type_} const {name} = {self.arrays[array]} + {offset};")
            self.pointed[array, offset] = name

    def depends(self, index: Expr, axis: Axis) -> bool:
        names = free_names(index)
        return axis.name in names or any(n in self.made and axis.name in self.made[n].axes for n in names)

    def base(self, array: str, index: tuple[Expr, ...]) -> tuple[str, frozenset[int]]:
        """A pointer to the row, and the axes that it has taken."""
        pointer = self.pointed.get((array, self.row_offset(array, index)))
        if pointer is not None:
            return pointer, self.row_axes(array, index)
        return self.arrays[array], frozenset()

    def element(self, array: str, index: tuple[Expr, ...]) -> str:
        pointer, done = self.base(array, index)
        return f"{pointer}[{self.offset(array, index, done)}]"

    def address(self, array: str, index: tuple[Expr, ...]) -> str:
        """Where the run of an access begins."""
        assert self.lane is not None
        with self.standing(self.lane.name, self.run):
            pointer, done = self.base(array, index)
            offset = self.offset(array, index, done)
        return pointer if offset == "0" else f"{pointer} + {offset}"

    @contextmanager
    def standing(self, axis: str, place: str) -> Iterator[None]:
        """What is spelled here has an axis at this place."""
        own = self.names.get(axis)
        self.names[axis] = place
        yield
        del self.names[axis]
        if own is not None:
            self.names[axis] = own

    # ---------------------------------------------------------------- along the lane

    def ends(self, axis: Axis) -> tuple[str, str]:
        """The first point of an axis, and the one after its last."""
        if "." in axis.name:
            return "0", self.bound(axis.stop, f"{axis.name}_count")
        return self.printer.index(axis.start), self.printer.index(axis.stop, SUM)

    def along(self, lane: Axis) -> None:
        """All that a thread does along the lane: first all that it reads, then what it makes of it."""
        plan = self.plan
        if not self.course.ragged:
            self.bounds = self.ends(lane)
        if self.over:
            assert isinstance(lane.stop, Op)
            self.row_size = self.bound(lane.stop.args[1], f"{self.parts[1]}_count")
        self.past_row(lane)
        self.run = self.declare(lane.name) if not self.packed else self.fresh.fresh(f"{lane.name}_run")
        self.tiles = [replace(t, name=self.fresh.fresh(f"{t.read.array}_tile")) for t in self.tiles]
        wide = plan.across * plan.vector * plan.turns
        if not self.course.ragged:
            if plan.several:
                self.origin = _sum(self.origin, f"int64_t(blockIdx.x) * {wide}")
            self.turns("return;")
            return
        piece = self.fresh.fresh(f"{lane.name}_piece")
        first, step = (f"int64_t(blockIdx.x) * {wide}", f"int64_t(gridDim.x) * {wide}") if plan.several else ("0", str(wide))
        first = _sum(self.origin, first)
        self.origin = piece
        with self.writer.block(f"for (int64_t {piece} = {first}; {piece} < {self.bounds[1]}; {piece} += {step})"):
            self.turns("break;")

    def turns(self, leave: str) -> None:
        plan = self.plan
        if plan.turns == 1:
            self.place_run(leave)
            self.place_in_row()
            for t in self.tiles:
                if self.packed:
                    self.declare_tile(t)
                self.fetch(t)
            self.divide_once()
            self.compute()
            return
        for t in self.tiles:
            self.declare_tile(t)
        if self.tiles:
            with self.each_turn():
                self.place_in_row()
                for t in self.tiles:
                    self.fetch(t)
        self.divide_once()
        with self.each_turn():
            self.compute()

    def declare_tile(self, t: Tile) -> None:
        """What a thread has of a read in all of its turns."""
        plan, dtype = self.plan, self.function.array(t.read.array).dtype
        turns = f"[{plan.turns}]" if plan.turns > 1 else ""
        if t.read.name in self.moved.values():
            self.writer.line(f"weft::Run<{memory_type(dtype)}, {plan.vector}> {t.name}{turns};")
            return
        own = f"[{plan.vector * t.parts}]" if self.packed else ""
        # what lies beyond the end is computed with, and not stored
        begun = " = {}" if self.packed and t.width == NO_RUN and not plan.whole else ""
        self.writer.line(f"{register_type(dtype)} {t.name}{turns}{own}{begun};")

    def past_row(self, lane: Axis) -> None:
        """What a run's place is counted from: the row's first point, less how far that is past a packet."""
        plan, start = self.plan, self.bounds[0]
        if plan.shift is not None:
            self.origin = self.printer.index(sub(lane.start, constant(plan.shift)))
            return
        widths = zip(self.course.writes, self.write_widths, strict=True)
        k, write = next((k, w) for k, (w, width) in enumerate(widths) if width != NO_RUN and w.guard is None)
        elements, half = (2 * plan.vector, " / 2") if k in self.write_pairs else (plan.vector, "")
        self.run = start
        name = self.fresh.fresh("past")
        address = self.address(write.array, write.index)
        self.writer.line(f"const int64_t {name} = weft::past_packet<{elements}>({address}){half};")
        self.origin = f"-{name}" if lane.start == ZERO else f"{start} - {name}"

    def place_run(self, leave: str) -> None:
        """Declare where this turn's points begin; leave where that is past the end."""
        plan = self.plan
        terms = [f"turn * {plan.across * plan.vector}"] if plan.turns > 1 else []
        if plan.across > 1:
            terms.append("threadIdx.x" if plan.vector == 1 else f"threadIdx.x * {plan.vector}")
        self.writer.line(f"const int64_t {self.run} = {_sum(self.origin, ' + '.join(terms))};")
        self.writer.line(f"if ({self.run} >= {self.bounds[1]}) {leave}")

    def place_in_row(self) -> None:
        """Declare in which row of those that the lane goes through this turn's points begin, and where there."""
        if not self.over:
            return
        (row, place), run, size = map(self.declare, self.parts), self.run, self.row_size
        quotient = f"uint32_t({run}) / uint32_t({size})" if self.plan.narrow else f"{run} / {size}"
        self.writer.line(f"const int64_t {row} = {quotient};")
        self.writer.line(f"const int64_t {place} = {run} - {row} * {size};")

    @contextmanager
    def each_turn(self) -> Iterator[None]:
        self.writer.line("#pragma unroll")
        with self.writer.block(f"for (int32_t turn = 0; turn < {self.plan.turns}; ++turn)"):
            self.place_run("break;")
            yield

    def tile(self, t: Tile) -> str:
        return t.name if self.plan.turns == 1 else f"{t.name}[turn]"

    def fetch(self, t: Tile) -> None:
        """Load what this turn needs of a read."""
        plan, read, tile = self.plan, t.read, self.tile(t)
        self.writer.cite(read.location)
        if not self.packed:
            text = self.printer.value(self.let(read).value)
            self.writer.line(f"const {register_type(read.type)} {tile} = {text};" if plan.turns == 1 else f"{tile} = {text};")
            return
        if read.name in self.over:
            self.keep(t, self.over_rows(read))
            return
        if t.width == NO_RUN:
            with self.each_element(self.plan.whole):
                self.writer.line(f"{tile}[v] = {self.printer.value(self.let(read).value)};")
            return
        address = self.address(read.array, read.index)
        vector, width = plan.vector * t.parts, t.width * t.parts
        if read.name in self.within:
            assert self.lane is not None
            with self.standing(self.lane.name, self.run):
                condition = self.printer.value(conjunction(self.within[read.name]))
            where = "" if self.plan.whole else f", {self.bounds_of(t.parts)}"
            self.keep(t, f"weft::fetch_if<{vector}, {width}>({condition}, {address}{where})")
        elif plan.whole and t.width:
            self.keep(t, f"weft::fetch<{vector}, {width}>({address})")
        else:
            bounds = self.bounds_of(t.parts)
            written = any(w.array == read.array for w in self.course.writes)
            how = f"anywhere<{vector}>" if t.width == ANY and not written else f"run<{vector}, {width}>"
            self.keep(t, f"weft::fetch_{how}({address}, {bounds})")

    def keep(self, t: Tile, run: str) -> None:
        """Have what has been read."""
        moved = t.read.name in self.moved.values()
        self.writer.line(f"{self.tile(t)} = {run};" if moved else f"weft::unpack({run}, {self.tile(t)});")

    def bounds_of(self, parts: int) -> str:
        """Where this turn's run begins, and where the row does and ends, in elements of which a point has so many."""
        places = (self.run, *self.bounds)
        return ", ".join(places if parts == 1 else (p if p == "0" else f"{parts} * {_factor(p)}" for p in places))

    def let(self, value: Read | Map) -> Let:
        made = super().let(value)
        if value.name not in self.within:
            return made
        where = conjunction(self.within[value.name])
        return replace(made, value=Op("where", (where, made.value, zero(value.type)), value.type))

    def over_rows(self, read: Read) -> str:
        """A run of what begins elsewhere in each row: where this turn's points are, and from the next row on."""
        here = self.address(read.array, read.index)
        row, place = (self.names[a] for a in self.parts)
        with self.standing(self.parts[0], f"({row} + 1)"), self.standing(self.parts[1], f"({place} - {self.row_size})"):
            beyond = self.address(read.array, read.index)
        left = f"{self.bounds[1]} - {self.run}"
        how = f"{self.plan.vector}, {self.over[read.name]}"
        return f"weft::fetch_over<{how}>({here}, {beyond}, {place}, {self.row_size}, {left})"

    @contextmanager
    def each_element(self, whole: bool) -> Iterator[None]:
        """A loop over the neighbours that a thread has at a time."""
        assert self.lane is not None
        self.writer.line("#pragma unroll")
        with self.writer.block(f"for (int32_t v = 0; v < {self.plan.vector}; ++v)"):
            name, mark = self.declare(self.lane.name), self.writer.mark()
            if not whole:
                before = f"{name} < {self.bounds[0]} || " if self.plan.shift != 0 else ""
                self.writer.line(f"if ({before}{name} >= {self.bounds[1]}) continue;")
            yield
            if self.writer.mentions(name, mark):
                self.writer.insert(mark, f"const int64_t {name} = {self.run} + v;")

    # ---------------------------------------------------------------- points

    def compute(self) -> None:
        """Compute and store what this turn's points are."""
        plan, kept = self.plan, self.kept()
        self.statements(tuple(self.let(v) for v in self.course.values if self.of_turn(v)))
        tiles = {t.read.name: self.tile(t) for t in self.tiles}
        here = {t.read.name: self.tile(t) + self.place(t.parts, 0) for t in self.tiles}
        here |= {second: self.tile(t) + self.place(2, 1) for second, first in self.seconds.items()
                 for t in self.tiles if t.read.name == first}  # fmt: skip
        before = {name: self.names.get(name) for name in here}
        self.names |= here
        runs: dict[Write, tuple[str, int, int]] = {}
        stores = {w: f"{name}[v]" for w, name in kept.items()}
        others = {self.course.writes[j] for j in self.write_pairs.values()} | kept.keys() | self.moved.keys()
        for k, (w, width) in enumerate(zip(self.course.writes, self.write_widths, strict=True)):
            if self.packed and width != NO_RUN and w.guard is None and w not in others:
                second = self.write_pairs.get(k)
                parts = 1 if second is None else 2
                name = self.fresh.fresh(f"{w.array}_run")
                runs[w] = name, width, parts
                self.writer.line(f"{register_type(w.value.type)} {name}[{plan.vector * parts}];")
                stores[w] = name + self.place(parts, 0)
                if second is not None:
                    stores[self.course.writes[second]] = name + self.place(2, 1)
        if self.packed and len(self.moved) < len(self.course.writes):
            with self.each_element(plan.whole or self.harmless(stores)):
                self.points(stores)
        elif not self.packed:
            self.points({})
        for w, width in zip(self.course.writes, self.write_widths, strict=True):
            if w in runs:
                name, _, parts = runs[w]
                self.put(w, width, name, parts)
            elif w in self.moved:
                self.put(w, width, tiles[self.moved[w]])
        for name, was in before.items():
            del self.names[name]
            if was is not None:
                self.names[name] = was

    def place(self, parts: int, part: int) -> str:
        """The subscript of a point, or of one of its parts, in the run that has it."""
        if not self.packed:
            return ""
        return "[v]" if parts == 1 else "[2 * v]" if part == 0 else "[2 * v + 1]"

    def divide_once(self) -> None:
        """Of what a thread divides all of its points by, have the reciprocal, where they are enough to pay for it."""
        assert isinstance(self.printer, DividingPrinter)
        if self.plan.vector * self.plan.turns < _WORTH_A_RECIPROCAL:
            return
        same = {s.name for s in self.function.scalars} | {s.name for s in self.function.sizes}
        same |= {n for v in self.known for n in names_of(v)}
        for e in (x for root in self.course.expressions() for x in walk_expr(root)):
            match e:
                case Op(name="div", args=(a, by)) if e.type == FLOAT32 and by not in self.printer.divisors:
                    if free_names(a) <= same or not free_names(by) <= same or not _uneven(by):
                        continue
                    made = self.fresh.fresh("divisor")
                    self.writer.line(f"const weft::ExactDivisor {made}{{{self.printer.value(by)}}};")
                    self.printer.divisors[by] = made

    def kept(self) -> dict[Write, str]:
        """The arrays that keep what is stored later on."""
        return {}

    def put(self, w: Write, width: int, run: str, parts: int = 1) -> None:
        """Store a run."""
        width *= parts
        address = self.address(w.array, w.index)
        self.writer.cite(w.location)
        if self.plan.whole and width:
            self.writer.line(f"weft::store<{width}>({address}, {run});")
        else:
            bounds = self.bounds_of(parts)
            self.writer.line(f"weft::store_run<{width}>({address}, {bounds}, {run});")

    def harmless(self, stores: Mapping[Write, str]) -> bool:
        """Whether points past the end may be computed: they read nothing, check nothing, and are not stored."""
        late = any(isinstance(v, Read) and self.of_lane(v) and v not in self.early for v in self.course.values)
        loads = any(isinstance(x, Load) for e in self.course.expressions() for x in walk_expr(e))
        made: list[Stmt] = [self.let(v) for v in self.course.values]
        made += [Store(w.array, w.index, w.value) for w in self.course.writes]
        every = len(stores) + len(self.moved) == len(self.course.writes)
        return not late and not loads and not checks_in(tuple(made)) and every

    def points(self, stores: Mapping[Write, str]) -> None:
        """What is done at a point. stores: the places in runs that take what is written."""
        known = {t.read.name for t in self.tiles} | self.seconds.keys()
        self.statements(tuple(self.let(v) for v in self.course.values if self.of_lane(v) and v.name not in known))
        for w in self.course.writes:
            if w in self.moved:
                continue
            if w in stores:
                self.writer.cite(w.location)
                self.writer.line(f"{stores[w]} = {self.printer.value(w.value)};")
                continue
            store = Store(w.array, w.index, w.value, w.location)
            self.statements((store,) if w.guard is None else (If(w.guard, (store,), (), (), w.location),))


def _before_rounding(value: Expr, dtype: ScalarType) -> Expr:
    """What is rounded to the type in memory, which a store does too."""
    if isinstance(value, Round) and value.to == dtype and value.value.type == dtype.opmath:
        return value.value
    return value


def _guards(w: Write) -> tuple[Expr, ...]:
    return () if w.guard is None else (w.guard,)


def _uneven(by: Expr) -> bool:
    """Whether dividing by this may be more than a product with a number that the text has."""
    if isinstance(by, Const):
        return by.value != 0 and abs(math.frexp(by.value)[0]) != 0.5
    parts = list(walk_expr(by))
    zeros = any(isinstance(e, Const) and e.value == 0 for e in parts)  # those of both signs are equal, and no key
    return not zeros and not any(isinstance(e, Load) for e in parts)


def _factor(place: str) -> str:
    return place if place.isidentifier() or place.isdigit() else f"({place})"


def _sum(origin: str, place: str) -> str:
    """A place from an origin on, computed in 64 bits."""
    if origin in ("", "0"):
        return place or "0"
    if not place or place == "0":
        return origin
    if origin.startswith("-"):
        return f"{place if 'int64_t' in place else f'int64_t({place})'} - {origin[1:]}"
    return f"{origin} + {place}"
