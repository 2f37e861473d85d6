"""Recurrences as CUDA C++: a few threads have the states of a row in their registers, and go through its points in order.

Where the states of a way there are needed on the way back, a launch before keeps them at each tile of points; from there its
points are gone through once more, and leave theirs in shared memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from weft.emit import entries
from weft.emit.algebras import algebra_of, element_of, join
from weft.emit.expressions import SUM, memory_type, register_type
from weft.emit.names import Names, kernel_entry
from weft.emit.text import Writer
from weft.emit.thread_body import parameters
from weft.emit.values import ZERO, ValueBody, deciding
from weft.graph.recurrences import Recurrences
from weft.graph.tile import Carried, Fold, Map, Read, Scan, Write, axes_of_name, names_of, starts_neutral, uses_of_write
from weft.loops.ir import Expr, Function, Let, Store, free_names, trapping
from weft.loops.schedule import Nest
from weft.plan.arguments import Facts
from weft.plan.fold import BLOCK, PACKET_BYTES, WARP
from weft.plan.recurrence import RecurrencePlan, kept_bytes, met_bytes, packet, units

_UNROLL = 4  # points whose instructions the compiler may mix: those of a total that no state waits for


def emit(function: Function, nest: Nest, found: Recurrences, plan: RecurrencePlan, facts: Facts) -> str:
    """The kernels' translation unit: an entry for each launch, named by `entries.of_states`. Each takes the slots of
    `weft.plan.arguments`, and where there are several, pointers to what they leave for each other and how many blocks share the
    rows along their last axis.
    """
    own = Nest(nest.name, nest.axes, trapping(nest.body), nest.verdicts)
    writer = Writer()
    writer.line('#include "weft/memory.cuh"')
    writer.line('#include "weft/team.cuh"')
    taken = {"here", "v", "n", "item", "first", "point", "points", "bring", "keep", "thread", "memory", "parts", "place", "met"}
    taken |= {"packet", "outside"}
    varies = deciding(found.axes, found.values)
    large = varies | {s.name for s in function.scalars}
    for entry in entries.of_states(nest, found):
        writer.line()
        kind = {"_before": BeforeEntry, "_after": AfterEntry}.get(entry.removeprefix(kernel_entry(nest.name)), RecurrenceEntry)
        kind(
            function, own, facts, writer, Names(frozenset(taken | {*entries.of_states(nest, found)})), {}, {}, varies, large,
            axes=found.axes, values=found.values, found=found, plan=plan,
        ).emit(entry)  # fmt: skip
    return writer.text()


@dataclass
class RecurrenceEntry(ValueBody):
    """The launch that goes through all points, and writes what is known there."""

    found: Recurrences = None  # type: ignore[assignment]
    plan: RecurrencePlan = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.here = ""  # whether a block's rows are rows, "" where they always are
        self.run = ""  # a thread's first state
        self.tiles: dict[str, str] = {}  # by reads, where their points are in shared memory
        self.between: dict[str, str] = {}  # memory that launches leave for each other, by what it has
        self.places_of: dict[str, str] = {}  # and shared memory, of states and folds
        self.count = ""  # of points
        # numbers: of a row, of those around the last axis, of a block along it, and of its first row
        self.row = self.other = self.group = self.first_row = ""
        self.number = self.around = ""  # of a point, and how many there are around the last axis, after all blocks

    def emit(self, entry: str) -> None:
        given = parameters(self.function, self.nest, self.facts, self)
        passed = [(f"{n}.before", t) for s in self.found.early for n, t in zip(s.names, s.types, strict=True)]
        passed += [(f"{f.results[0]}.parts", f.types[0]) for f in self.found.crossed]
        for name, type_ in passed:
            self.between[name] = self.fresh.fresh(f"{name.replace('.', '_')}_memory")
            given.append(f"{register_type(type_)}* {self.between[name]}")
        given += ["const int64_t parts"] if passed else []
        lines = ",\n    ".join(given)
        with self.writer.block(f'extern "C" __global__ void __launch_bounds__({self.block}) {entry}(\n    {lines})'):
            self.body()

    @property
    def block(self) -> int:
        return self.plan.block

    @property
    def own_scans(self) -> tuple[Scan, ...]:
        """The scans whose states stay in registers from tile to tile."""
        return self.found.scans

    @property
    def order(self) -> bool:
        """Whether the first point of all is the last: as the scans go that begin with it."""
        return self.found.reverse != bool(self.found.early)

    def body(self) -> None:
        self.rows()
        self.hoist(self.everything(), [a for a in self.found.rows if a != self.plan.last])
        start = self.printer.index(self.axes[self.found.state].start, SUM)
        self.run = self.fresh.fresh(f"{self.found.state}_run")
        place = f"threadIdx.x * {self.plan.states}"
        self.writer.line(f"const int64_t {self.run} = {place if start == '0' else f'{start} + {place}'};")
        inits = [e for s in self.own_scans for e in s.inits]
        self.computed([v for v in self.reached([*self.at_points(), *inits]) if self.of_row(v)])
        self.begin()
        self.all_points()
        self.ends()

    def everything(self) -> tuple[Let | Store, ...]:
        lets = [self.let(v) for v in self.values if isinstance(v, Read | Map)]
        writes = (*self.found.writes, *self.found.ends, *self.found.after)
        return (*lets, *(Store(w.array, w.index, w.value) for w in writes))

    def at_points(self) -> list[Expr]:
        """What is evaluated at each point."""
        found = [e for s in (*self.found.early, *self.found.scans) for e in s.nexts]
        found += [e for f in self.found.crossed for e in f.parts]
        return found + [e for w in self.found.writes for e in uses_of_write(w)]

    def reached(self, exprs: Iterable[Expr]) -> list[Read | Map | Fold | Scan]:
        """The values that expressions need, in order, and those that totals among them are made of."""
        exprs = list(exprs)
        found: list[Read | Map | Fold | Scan] = []
        while True:
            more = self.needed([*exprs, *(e for f in found if isinstance(f, Fold) for e in (*f.parts, *f.inits))])
            if len(more) == len(found):
                return found
            found = more

    def of_row(self, value: Read | Map | Fold | Scan) -> bool:
        """Whether all points of a row have a value in common, before the first of them."""
        late = isinstance(value, Map) and bool(free_names(value.value) & {n for s in self.found.scans for n in s.results})
        return not isinstance(value, Carried) and self.found.along not in value.axes and not late

    # ---------------------------------------------------------------- rows and states

    def rows(self) -> None:
        """Which row a thread works for."""
        plan, line, axes = self.plan, self.writer.line, self.axes
        counts = {a: self.span(axes[a], f"{a}_count") for a in self.found.rows}
        line(f"// a row has {plan.threads} threads with {plan.states} neighbouring states each, a block {plan.teams} rows")
        last, count = axes[plan.last], counts[plan.last]
        blocks = self.fresh.fresh(f"{plan.last}_blocks")
        line(f"const int64_t {blocks} = ({count} + {plan.teams - 1}) / {plan.teams};")
        self.first_row = self.fresh.fresh(f"{plan.last}_first")
        line(f"const int64_t {self.first_row} = int64_t(blockIdx.x % {blocks}) * {plan.teams};")
        place = f"{self.first_row} + threadIdx.y"
        if not plan.full:
            self.here = "here"
            line(f"const bool here = {place} < {count};  // else the last row is looked at again")
            place = f"weft::minimum<int64_t>({place}, {count} - 1)"
        start = self.printer.index(last.start, SUM)
        line(f"const int64_t {self.declare(last.name)} = {place if start == '0' else f'{start} + {place}'};")
        others = [axes[a] for a in self.found.rows if a != plan.last]
        self.group, self.other = f"blockIdx.x % {blocks}", f"int64_t(blockIdx.x / {blocks})"
        self.places(others, self.other, {a.name: counts[a.name] for a in others})
        own = self.declare(last.name) if start == "0" else f"({self.declare(last.name)} - {start})"
        self.row = f"({self.other} * {count} + {own})"

    def of_states(self, name: str) -> bool:
        value = self.made.get(name)
        return value is not None and self.found.state in axes_of_name(value, name)

    @contextmanager
    def each_state(self) -> Iterator[None]:
        """A loop over a thread's states."""
        line, state = self.writer.line, self.found.state
        line("#pragma unroll")
        with self.writer.block(f"for (int32_t v = 0; v < {self.plan.states}; ++v)"):
            mark, name = self.writer.mark(), self.declare(state)
            yield
            if self.writer.mentions(name, mark):
                self.writer.insert(mark, f"const int64_t {name} = {self.run} + v;")

    def inside(self) -> str:
        """Whether a thread has a state, "" where it always has."""
        if self.plan.whole:
            return ""
        return f"{self.declare(self.found.state)} < {self.printer.index(self.axes[self.found.state].stop, SUM)}"

    def begin(self) -> None:
        """The states before the first point."""
        for s in self.own_scans:
            self.writer.cite(s.location)
            for name, init, type_ in zip(s.names, s.inits, s.types, strict=True):
                own = self.register(name, register_type(type_))
                if not self.of_states(name):
                    self.writer.line(f"{own} = {self.printer.exact(init)};")
                else:
                    with self.each_state():
                        self.writer.line(f"{self.names[name]} = {self.printer.exact(init)};")
            self.leaves |= set(s.names)

    def register(self, name: str, type_: str) -> str:
        """Declare the registers of a state."""
        own = self.fresh.fresh(name)
        self.writer.line(f"{type_} {own}[{self.plan.states}];" if self.of_states(name) else f"{type_} {own};")
        self.names[name] = f"{own}[v]" if self.of_states(name) else own
        return own

    # ---------------------------------------------------------------- points

    def all_points(self) -> None:
        """Go through all points, a tile at a time: the first tile last where the way back needs states of the way there."""
        plan, line, axis = self.plan, self.writer.line, self.axes[self.found.along]
        self.count = self.span(axis, f"{axis.name}_count")
        self.shared()
        reads = [v for v in self.reached(self.at_points()) if isinstance(v, Read) and self.found.along in v.axes]
        self.brought(reads)
        back = self.backwards
        begin, going = "0", f"first < {self.count}; first += {plan.points}"
        following = f"first + {plan.points}"
        if back:
            begin, going = f"({self.count} - 1) / {plan.points} * {plan.points}", f"first >= 0; first -= {plan.points}"
            following = f"first - {plan.points}"
        line(f"bring({begin});")
        with self.writer.block(f"for (int64_t first = {begin}; {going})"):
            line("keep();")
            line("__syncthreads();")
            line(f"bring({following});")
            line(f"const int32_t points = weft::minimum<int64_t>({plan.points}, {self.count} - first);")
            self.tile()
            line("__syncthreads();")
            self.meet()

    @property
    def backwards(self) -> bool:
        """Whether the last tile comes first."""
        return bool(self.found.early)

    def shared(self) -> None:
        """Shared memory for what early states are at points, and for what rows meet in."""
        sizes = [*kept_bytes(self.found, self.plan), *met_bytes(self.found, self.plan)]
        if not sizes:
            return
        types = {n: t for s in self.found.early for n, t in zip(s.names, s.types, strict=True)}
        types |= {f.results[0]: f.types[0] for f in self.found.crossed}
        self.writer.line("extern __shared__ __align__(16) unsigned char memory[];")
        at = 0
        for name, size in sizes:
            own = self.places_of[name] = self.fresh.fresh(f"{name}_{'met' if name in self.crossed_names else 'kept'}")
            type_ = register_type(types[name])
            self.writer.line(f"{type_}* const {own} = reinterpret_cast<{type_}*>(memory + {at});")
            at += -(-size // 16) * 16

    @property
    def crossed_names(self) -> set[str]:
        return {f.results[0] for f in self.found.crossed}

    def tile(self) -> None:
        """The points of a tile."""
        if not self.found.early:
            with self.points():
                self.point()
            return
        outer = dict(self.names)
        leaves = set(self.leaves)
        with self.writer.block(""):
            self.early_states()
            with self.points():
                self.keep_states()
                self.computed(self.reached(e for s in self.found.early for e in s.nexts))
                self.move(self.found.early)
                self.leaves = leaves | {n for s in self.found.early for n in s.names}
        self.names, self.leaves = outer, leaves
        with self.points(back=True):
            self.take_states()
            self.point()

    @contextmanager
    def points(self, back: bool = False) -> Iterator[None]:
        axis = self.axes[self.found.along]
        self.writer.line(f"#pragma unroll {_UNROLL}")
        order = "int32_t point = points - 1; point >= 0; --point" if back else "int32_t point = 0; point < points; ++point"
        with self.writer.block(f"for ({order})"):
            mark, name = self.writer.mark(), self.declare(axis.name)
            leaves = set(self.leaves)
            yield
            self.leaves = leaves
            if self.writer.mentions(name, mark):
                self.writer.insert(mark, f"const int64_t {name} = {self.point_of('first + point')};")

    def point_of(self, number: str) -> str:
        """The point of a number, in the order of the scans that begin with the first."""
        axis = self.axes[self.found.along]
        if self.order:
            return f"{self.printer.index(axis.stop, SUM)} - 1 - ({number})"
        return number if axis.start == ZERO else f"{self.printer.index(axis.start, SUM)} + {number}"

    def brought(self, reads: Sequence[Read]) -> None:
        """What brings the reads of several points to registers, and what keeps them in shared memory from there."""
        plan, line = self.plan, self.writer.line
        line(f"const int32_t thread = threadIdx.y * {plan.threads} + threadIdx.x;")
        kept: list[tuple[str, str, str, int, int]] = []
        for read in reads:
            type_ = memory_type(self.function.array(read.array).dtype)
            width = packet(self.function, self.found, read, plan, self.facts)
            elements = plan.points * units(self.found, read, plan)
            items = elements // width
            tile, ahead = self.fresh.fresh(f"{read.name}_tile"), self.fresh.fresh(f"{read.name}_ahead")
            self.tiles[read.name] = tile
            whole = f"weft::Packet<{type_}, {width}>"
            line(f"__shared__ __align__(16) {type_} {tile}[{elements}];")
            line(f"{whole} {ahead}[{-(-items // plan.block)}];")
            kept.append((tile, ahead, whole, width, items))
        with self.writer.block("const auto bring = [&](int64_t first)", end="};"):
            if self.backwards:
                line("if (first < 0) return;")
            for read, (_, ahead, whole, width, items) in zip(reads, kept, strict=True):
                line("#pragma unroll")
                with self.writer.block(f"for (int32_t n = 0; n < {-(-items // plan.block)}; ++n)"):
                    self.item(read, ahead, whole, width, items)
        with self.writer.block("const auto keep = [&]()", end="};"):
            for tile, ahead, whole, _, items in kept:
                line("#pragma unroll")
                with self.writer.block(f"for (int32_t n = 0; n < {-(-items // plan.block)}; ++n)"):
                    line(f"const int32_t item = thread + n * {plan.block};")
                    guard = "" if items % plan.block == 0 else f"if (item < {items}) "
                    line(f"{guard}reinterpret_cast<{whole}*>({tile})[item] = {ahead}[n];")

    def item(self, read: Read, ahead: str, whole: str, width: int, items: int) -> None:
        """One of a thread's packets of what a read has at several points."""
        plan, line, found = self.plan, self.writer.line, self.found
        line(f"const int32_t item = thread + n * {plan.block};")
        place, spelled, conditions = "item", {}, [f"item < {items}"] if items % plan.block else []
        for axis, own, first in ((found.state, plan.width // width, "0"), (plan.last, plan.teams, self.first_row)):
            if axis not in read.axes:
                continue
            name, start = self.fresh.fresh(f"{axis}_item"), self.printer.index(self.axes[axis].start, SUM)
            at = f"{place} % {own}" + (f" * {width}" if axis == found.state and width > 1 else "")
            sums = [t for t in (start, first) if t != "0"]
            line(f"const int64_t {name} = {' + '.join([*sums, at])};")
            place, spelled[axis] = f"{place} / {own}", name
            if not (plan.whole if axis == found.state else plan.full):
                conditions.append(f"{name} < {self.printer.index(self.axes[axis].stop, SUM)}")
        number, at = self.fresh.fresh(f"{found.along}_number"), self.fresh.fresh(f"{found.along}_item")
        line(f"const int64_t {number} = first + {place};")
        line(f"const int64_t {at} = {self.point_of(number)};")
        conditions.append(f"{number} < {self.count}")
        line(f"{ahead}[n] = {{}};")
        with self.spelled({**spelled, found.along: at}):
            address = self.address(read.array, read.index)
        line(f"if ({' && '.join(conditions)}) {ahead}[n] = *reinterpret_cast<const {whole}*>({address});")

    def point(self) -> None:
        """One point: what it has of its reads, what is made of the states, and the states after it."""
        self.computed(self.reached(self.of_point()))
        self.crossing()
        self.written(self.found.writes)
        self.move(self.own_scans)

    def of_point(self) -> list[Expr]:
        """What is evaluated at a point for other things than early states."""
        found = [e for s in self.own_scans for e in s.nexts] + [e for f in self.found.crossed for e in f.parts]
        return found + [e for w in self.found.writes for e in uses_of_write(w)]

    def move(self, scans: Sequence[Scan]) -> None:
        """The states after a point, all at once."""
        line = self.writer.line
        moving = [(s, k) for s in scans for k in range(len(s.names))]
        inner = [(s, k) for s, k in moving if self.of_states(s.names[k])]

        def advanced(pairs: Iterable[tuple[Scan, int]]) -> Iterator[tuple[str, str]]:
            for s, k in pairs:
                name = self.fresh.fresh(f"{s.names[k]}_next")
                line(f"const {register_type(s.types[k])} {name} = {self.printer.value(s.nexts[k])};")
                yield self.names[s.names[k]], name

        after = list(advanced(one for one in moving if one not in inner))
        if inner:
            with self.each_state():
                for own, name in list(advanced(inner)):
                    line(f"{own} = {name};")
        for own, name in after:
            line(f"{own} = {name};")

    # ---------------------------------------------------------------- states of the way there

    def early_names(self) -> list[tuple[str, str, int]]:
        """The early states: name, type and packet."""
        named = [(n, t) for s in self.found.early for n, t in zip(s.names, s.types, strict=True)]
        return [(n, register_type(t), min(self.plan.states, PACKET_BYTES // t.size)) for n, t in named]

    def before_tile(self, name: str) -> str:
        """Where a state before a tile is in memory."""
        tile = f"({self.row} * (({self.count} + {self.plan.points - 1}) / {self.plan.points}) + first / {self.plan.points})"
        if not self.of_states(name):
            return f"{self.between[f'{name}.before']}[{tile}]"
        return f"{self.between[f'{name}.before']}[{tile} * {self.state_count()} + {self.state_place()}]"

    def packet_before_tile(self, name: str, type_: str, width: int) -> str:
        """The same for a thread's packet of states, where it has all of them."""
        tile = f"({self.row} * (({self.count} + {self.plan.points - 1}) / {self.plan.points}) + first / {self.plan.points})"
        place = f"{tile} * {self.plan.width // width} + threadIdx.x * {self.plan.states // width} + n"
        return f"reinterpret_cast<weft::Packet<{type_}, {width}>*>({self.between[f'{name}.before']})[{place}]"

    def state_count(self) -> str:
        axis = self.axes[self.found.state]
        stop = self.printer.index(axis.stop, SUM)
        return stop if axis.start == ZERO else f"({stop} - {self.printer.index(axis.start)})"

    def state_place(self) -> str:
        axis = self.axes[self.found.state]
        own = self.declare(self.found.state)
        return own if axis.start == ZERO else f"{own} - {self.printer.index(axis.start)}"

    def early_states(self) -> None:
        """The states before a tile, as the launch before has kept them."""
        for name, type_, width in self.early_names():
            self.register(name, type_)
            if not self.of_states(name):
                self.writer.line(f"{self.names[name]} = {self.before_tile(name)};")
                continue
            if self.plan.whole:
                self.packets(name, type_, width, keeps=False, at=self.packet_before_tile(name, type_, width))
                continue
            with self.each_state():
                within = self.inside()
                at = self.before_tile(name)
                self.writer.line(f"{self.names[name]} = {f'{within} ? {at} : {type_}(0)' if within else at};")
        self.leaves |= {n for s in self.found.early for n in s.names}

    def kept(self, name: str, type_: str, width: int) -> str:
        """Where a thread's packet of a state at a point is."""
        place = f"point * {self.plan.states // width} + n" if self.of_states(name) else "point"
        factor = f"({place})" if " " in place else place
        packets = f"reinterpret_cast<weft::Packet<{type_}, {width}>*>({self.places_of[name]})"
        return f"{packets}[{factor} * {self.plan.block} + thread]"

    def keep_states(self) -> None:
        """Leave early states of a point in shared memory, where their thread finds them."""
        for name, type_, width in self.early_names():
            self.packets(name, type_, width, keeps=True)

    def take_states(self) -> None:
        for name, type_, width in self.early_names():
            self.register(name, type_)
            self.packets(name, type_, width, keeps=False)
        self.leaves |= {n for s in self.found.early for n in s.names}

    def packets(self, name: str, type_: str, width: int, keeps: bool, at: str = "") -> None:
        """Leave a thread's packets of a state somewhere, or take them. at: where; "": where they are kept at a point."""
        line, own = self.writer.line, self.names[name].removesuffix("[v]")
        if not self.of_states(name):
            at = self.kept(name, type_, 1)
            line(f"{at}.lane[0] = {own};" if keeps else f"{own} = {at}.lane[0];")
            return
        at = at or self.kept(name, type_, width)
        line("#pragma unroll")
        with self.writer.block(f"for (int32_t n = 0; n < {self.plan.states // width}; ++n)"):
            line(f"weft::Packet<{type_}, {width}> packet;" if keeps else f"const weft::Packet<{type_}, {width}> packet = {at};")
            line("#pragma unroll")
            one, other = "packet.lane[v]", f"{own}[n * {width} + v]"
            one, other = (one, other) if keeps else (other, one)
            line(f"for (int32_t v = 0; v < {width}; ++v) {one} = {other};")
            if keeps:
                line(f"{at} = packet;")

    # ---------------------------------------------------------------- where rows meet

    def crossing(self) -> None:
        """Leave what a row has at a point where the rows of its block meet."""
        for f in self.found.crossed:
            self.writer.cite(f.location)
            name, line = f.results[0], self.writer.line
            slot = f"point * {self.plan.teams} + threadIdx.y"
            value = self.printer.exact(f.parts[0])
            if not self.of_states(name):
                text = f"here ? {value} : {algebra_of(f)}::identity()" if self.here else value
                with self.writer.block("if (threadIdx.x == 0)"):
                    line(f"{self.places_of[name]}[{slot}] = {text};")
                continue
            text = f"{self.here} ? {value} : {algebra_of(f)}::identity()" if self.here else value
            at = f"({slot}) * {self.plan.pitch} + v * {self.plan.threads} + threadIdx.x"
            if self.plan.folded == 1:
                with self.each_state():
                    line(f"{self.places_of[name]}[{at}] = {text};")
                continue
            own = self.fresh.fresh(f"{name}_own")
            line(f"{register_type(f.types[0])} {own}[{self.plan.states}];")
            with self.each_state():
                line(f"{own}[v] = {text};")
            line(f"weft::fold_rows<{algebra_of(f)}, {self.plan.threads}>({own});")
            each = self.plan.states // self.plan.folded
            place = f"((point * {self.plan.slots} + thread / 32) * {each} + v) * 32 + thread % 32"
            line("#pragma unroll")
            line(f"for (int32_t v = 0; v < {each}; ++v) {self.places_of[name]}[{place}] = {own}[v];")

    def meet(self) -> None:
        """Fold what the rows of a block have left at the points of a tile, in their order, for the launch after."""
        plan, line = self.plan, self.writer.line
        for f in self.found.crossed:
            name, type_ = f.results[0], register_type(f.types[0])
            width, pitch = (plan.width, plan.pitch) if self.of_states(name) else (1, 1)
            with self.writer.block(f"for (int32_t item = thread; item < points * {width}; item += {plan.block})"):
                point = f"item / {width}" if width > 1 else "item"
                place = f"item % {width}" if width > 1 else "0"
                line(f"{type_} met = {algebra_of(f)}::identity();")
                line("#pragma unroll")
                each, slots = plan.states // plan.folded, plan.slots if width > 1 else plan.teams
                slot = f"{place} % {each} * {plan.threads * plan.folded} + {place} / {plan.states} % {plan.threads}"
                slot += f" + {place} % {plan.states} / {each} * {plan.threads}" if plan.folded > 1 else ""
                at = f"({point} * {slots} + n) * {pitch} + {slot}" if width > 1 else f"{point} * {slots} + n"
                one = f"{self.places_of[name]}[{at}]"
                line(f"for (int32_t n = 0; n < {slots}; ++n) met = {algebra_of(f)}::combine(met, {one});")
                own = f"(({self.group}) * (gridDim.x / parts) + {self.other}) * {self.count} + first + {point}"
                if width > 1:
                    own = f"({own}) * {self.state_count()} + {place}"
                guard = f"if ({place} < {self.state_count()}) " if width > 1 and not plan.whole else ""
                line(f"{guard}{self.between[f'{name}.parts']}[{own}] = met;")

    # ---------------------------------------------------------------- values

    def computed(self, values: Iterable[Read | Map | Fold | Scan]) -> None:
        """Compute values in order: those of states for all that a thread has."""
        line, states = self.writer.line, self.plan.states
        for value in values:
            if isinstance(value, Scan) or {*names_of(value)} <= self.leaves:
                continue
            self.writer.cite(value.location)
            if isinstance(value, Fold):
                self.total(value)
                continue
            if isinstance(value, Read) and value.name in self.tiles:
                self.taken(value)
            elif not self.of_states(value.name):
                self.statements((self.let(value),))
            else:
                own = self.fresh.fresh(f"{value.name}_run")
                line(f"{register_type(value.type)} {own}[{states}];")
                let = self.let(value)
                with self.each_state():
                    within = self.inside() if isinstance(value, Read) else ""
                    made = self.printer.value(let.value)
                    line(f"{own}[v] = {f'{within} ? {made} : {register_type(value.type)}(0)' if within else made};")
                self.names[value.name] = f"{own}[v]"
            self.leaves.add(value.name)

    def taken(self, read: Read) -> None:
        """What a read has at a point, from shared memory."""
        plan, line = self.plan, self.writer.line
        place = f"point * {plan.teams} + threadIdx.y" if plan.last in read.axes else "point"
        tile, type_ = self.tiles[read.name], register_type(read.type)
        if not self.of_states(read.name):
            name = self.names[read.name] = self.fresh.fresh(f"{read.name}_value")
            line(f"const {type_} {name} = {type_}({tile}[{place}]);")
            return
        own = self.fresh.fresh(f"{read.name}_run")
        width = min(plan.states, PACKET_BYTES // self.function.array(read.array).dtype.size)
        factor = f"({place})" if " " in place else place
        line(f"{type_} {own}[{plan.states}];")
        at = f"{tile} + {factor} * {plan.width} + threadIdx.x * {plan.states}"
        line(f"weft::unpack(weft::fetch<{plan.states}, {width}>({at}), {own});")
        self.names[read.name] = f"{own}[v]"

    def total(self, fold: Fold) -> None:
        """A fold over the states of a row: a thread's own, then those of the others."""
        line, algebra, type_ = self.writer.line, algebra_of(fold), register_type(fold.types[0])
        own = self.fresh.fresh(f"{fold.results[0]}_own")
        line(f"{type_} {own} = {algebra}::identity();")
        with self.each_state():
            within = self.inside()
            line(f"{f'if ({within}) ' if within else ''}{own} = {element_of(self.printer, fold, own)};")
        together = self.plan.block >= WARP  # rows of a warp, which go on side by side
        call, last = ("reduce_lanes", "") if together else ("reduce", ", nullptr")
        all_ = f"weft::{call}<{algebra}, {self.plan.threads}>({own}{last})" if self.plan.threads > 1 else own
        self.joined(fold, all_)

    def joined(self, fold: Fold, all_: str) -> None:
        """The result of a fold, of all that has been combined."""
        total = self.fresh.fresh(fold.results[0])
        if not starts_neutral(fold):
            all_ = join(fold.algebra, fold.types[0]).format(self.printer.exact(fold.inits[0]), all_)
        self.writer.line(f"const {register_type(fold.types[0])} {total} = {all_};")
        self.names[fold.results[0]] = total
        self.leaves.add(fold.results[0])

    # ---------------------------------------------------------------- writes

    def ends(self) -> None:
        """What is written when a row has gone through its points."""
        for s in self.own_scans:
            self.names |= {r: self.names[n] for r, n in zip(s.results, s.names, strict=True)}
            self.leaves |= set(s.results)
        self.computed(self.reached(e for w in self.found.ends for e in uses_of_write(w)))
        self.written(self.found.ends)

    def written(self, writes: Sequence[Write]) -> None:
        """Writes of a row by one of its threads, those of states by each that has them."""
        for w in writes:
            conditions = [self.here] if self.here else []
            if self.found.state in w.axes:
                with self.each_state():
                    self.under([*conditions, *([within] if (within := self.inside()) else [])], w)
            else:
                self.under([*conditions, *(["threadIdx.x == 0"] if self.plan.threads > 1 else [])], w)

    def under(self, conditions: Sequence[str], w: Write) -> None:
        if not conditions:
            self.write(w)
            return
        with self.writer.block(f"if ({' && '.join(conditions)})"):
            self.write(w)


@dataclass
class BeforeEntry(RecurrenceEntry):
    """The launch that goes the other way before, and keeps the states before each tile."""

    @property
    def own_scans(self) -> tuple[Scan, ...]:
        return self.found.early

    @property
    def backwards(self) -> bool:
        return False

    def at_points(self) -> list[Expr]:
        return [e for s in self.found.early for e in s.nexts]

    def shared(self) -> None:
        """Nothing lies there but what is read."""

    def tile(self) -> None:
        for name, type_, width in self.early_names():
            conditions = [self.here] if self.here else []
            if self.of_states(name) and self.plan.whole:
                with self.writer.block(f"if ({self.here})") if self.here else nullcontext():
                    self.packets(name, type_, width, keeps=True, at=self.packet_before_tile(name, type_, width))
            elif self.of_states(name):
                with self.each_state():
                    conditions += [within] if (within := self.inside()) else []
                    guard = f"if ({' && '.join(conditions)}) " if conditions else ""
                    self.writer.line(f"{guard}{self.before_tile(name)} = {self.names[name]};")
            else:
                conditions += ["threadIdx.x == 0"] if self.plan.threads > 1 else []
                guard = f"if ({' && '.join(conditions)}) " if conditions else ""
                self.writer.line(f"{guard}{self.before_tile(name)} = {self.names[name]};")
        with self.points():
            self.computed(self.reached(self.at_points()))
            self.move(self.found.early)

    def meet(self) -> None:
        """Rows meet on the way back."""

    def ends(self) -> None:
        """Nothing is written but the states before each tile."""


@dataclass
class AfterEntry(RecurrenceEntry):
    """The launch that folds what the rows of blocks have met in, in their order."""

    @property
    def block(self) -> int:
        return BLOCK

    def body(self) -> None:
        found, line = self.found, self.writer.line
        others = [self.axes[a] for a in found.rows if a != self.plan.last]
        along, state = self.axes[found.along], self.axes[found.state]
        counts = {a.name: self.span(a, f"{a.name}_count") for a in (*others, along, state)}
        self.count = counts[along.name]
        line(f"const int64_t item = int64_t(blockIdx.x) * {BLOCK} + threadIdx.x;")
        line(f"if (item >= {' * '.join(counts.values())}) return;")
        line(f"const int64_t place = item % {counts[state.name]};")
        start = self.printer.index(state.start, SUM)
        line(f"const int64_t {self.declare(state.name)} = {'place' if start == '0' else f'{start} + place'};")
        number = self.fresh.fresh(f"{along.name}_number")
        line(f"const int64_t {number} = item / {counts[state.name]} % {self.count};")
        line(f"const int64_t {self.declare(along.name)} = {self.point_of(number)};")
        self.other = f"(item / {counts[state.name]} / {self.count})"
        self.places(others, self.other[1:-1], {a.name: counts[a.name] for a in others})
        around = " * ".join(counts[a.name] for a in others) or "1"
        for w in found.after:
            with self.writer.block("if (place == 0)" if found.state not in w.axes else ""):
                leaves, names = set(self.leaves), dict(self.names)
                self.number, self.around = number, around
                guard = [w.guard] if w.guard is not None else []
                self.computed(self.needed(guard))
                with self.writer.block(f"if ({self.printer.value(guard[0])})" if guard else ""):
                    self.computed(self.needed(uses_of_write(w)))
                    self.statements((Store(w.array, w.index, w.value, w.location),))
                self.leaves, self.names = leaves, names

    def of_states(self, name: str) -> bool:
        """A thread has one state."""
        return False

    def total(self, fold: Fold) -> None:
        """A fold over the rows, of the parts of blocks."""
        line, name, type_ = self.writer.line, fold.results[0], register_type(fold.types[0])
        own, states = self.fresh.fresh(f"{name}_own"), self.found.state in fold.axes
        line(f"{type_} {own} = {algebra_of(fold)}::identity();")
        at = f"(n * ({self.around}) + {self.other}) * {self.count} + {self.number}"
        at = f"({at}) * {self.state_count()} + place" if states else at
        memory = self.between[f"{name}.parts"]
        line(f"for (int64_t n = 0; n < parts; ++n) {own} = {algebra_of(fold)}::combine({own}, {memory}[{at}]);")
        self.joined(fold, own)
