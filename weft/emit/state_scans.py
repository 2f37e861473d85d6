"""Scans of many states a row as CUDA C++: a row's threads take a tile of points, and go through it once for each state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from weft.emit.algebras import algebra_of, element_of, join
from weft.emit.cpp_body import factor
from weft.emit.expressions import SUM, memory_type, register_type
from weft.emit.names import Names, kernel_entry
from weft.emit.rough import rough_scans
from weft.emit.text import Writer
from weft.emit.threads import parameters
from weft.emit.values import ZERO, ValueBody, deciding
from weft.graph.state_scans import StateScans, step_of
from weft.graph.tile import Carried, Fold, Map, Read, Scan, Write, names_of, uses_of_write
from weft.loops.algebra.table import overflows, segmented
from weft.loops.ir import Carry, Expr, Function, Let, Stmt, Store, free_names, trapping
from weft.loops.schedule import Nest
from weft.plan.arguments import Facts
from weft.plan.fold import is_run, stored_in_packets
from weft.plan.state_scan import StatePlan, kept, met_bytes


def emit(function: Function, nest: Nest, scans: StateScans, plan: StatePlan, facts: Facts) -> str:
    """The kernels' translation unit: an entry for each launch, named by `entries`. Each takes the slots of
    `weft.plan.arguments`, and where there are several, pointers to what they leave for each other and how many blocks share
    the rows along their last axis.
    """
    own = Nest(nest.name, nest.axes, trapping(nest.body), nest.verdicts)
    scans = rough_scans(scans, scans.writes, scans.ends, scans.after)
    writer = Writer()
    writer.line('#include "weft/memory.cuh"')
    writer.line('#include "weft/team.cuh"')
    taken = {*entries(nest, scans), "outside", "parts", "here", "k", "s", "p", "y", "met", "place", "point", "part", "item"}
    taken |= {"items", "state_count", "tile", "tiles", "number", "memory", "change", "keep", "all"}
    varies = deciding(scans.axes, scans.values)
    large = varies | {s.name for s in function.scalars}
    for entry in entries(nest, scans):
        writer.line()
        kind = {"_before": BeforeEntry, "_after": AfterEntry}.get(entry.removeprefix(kernel_entry(nest.name)), StateEntry)
        own_plan = plan if kind is StateEntry else plan.apart
        kind(
            function, own, facts, writer, Names(frozenset(taken)), {}, {}, varies, large,
            axes=scans.axes, values=scans.values, scans=scans, plan=own_plan,
        ).emit(entry)  # fmt: skip
    return writer.text()


def entries(nest: Nest, scans: StateScans) -> tuple[str, ...]:
    """The names of the entries, in the order of their launches."""
    name = kernel_entry(nest.name)
    return (*([f"{name}_before"] if scans.early else []), name, *([f"{name}_after"] if scans.crossed else []))


@dataclass
class StateEntry(ValueBody):
    """The launch that goes through all points, and writes what is known there."""

    scans: StateScans = None  # type: ignore[assignment]
    plan: StatePlan = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.axis = self.axes[self.scans.along]
        self.index = "int64_t" if self.facts.wide else "int32_t"
        self.stems: dict[str, str] = {}
        self.first = self.end = ""  # a thread's first point of a tile; the end of rows
        self.s = "s"  # the place of a state among those of a row
        self.here = ""  # whether a block's rows are rows, "" where they always are
        whole = self.scans
        self.own_scans: tuple[Scan, ...] = (*whole.early, *whole.scans)
        self.moved = {n for s in self.own_scans for n in names_of(s)}
        for value in self.values:  # what is made of states
            if isinstance(value, Map) and free_names(value.value) & self.moved:
                self.moved.add(value.name)

    # ---------------------------------------------------------------- what is to be done

    @property
    def totals(self) -> tuple[Fold, ...]:
        return self.scans.totals

    @property
    def writes(self) -> tuple[Write, ...]:
        return self.scans.writes

    @property
    def of_states(self) -> tuple[Write, ...]:
        """What is written at points of each state."""
        return tuple(w for w in self.writes if set(w.axes) & set(self.scans.states))

    @property
    def of_points(self) -> tuple[Write, ...]:
        return tuple(w for w in self.writes if w not in self.of_states)

    @property
    def sums_of_states(self) -> tuple[Fold, ...]:
        return tuple(f for f in self.scans.sums if set(f.axes) & set(self.scans.states))

    @property
    def sums_of_rows(self) -> tuple[Fold, ...]:
        return tuple(f for f in self.scans.sums if f not in self.sums_of_states)

    @property
    def crossed(self) -> tuple[Fold, ...]:
        return self.scans.crossed

    def state_exprs(self) -> list[Expr]:
        """What is evaluated of each state at points."""
        found = [e for s in self.own_scans for e in (*s.parts, *s.nexts)]
        found += [e for f in (*self.totals, *self.sums_of_states, *self.crossed) for e in f.parts]
        return found + [e for w in self.of_states for e in uses_of_write(w)]

    def point_exprs(self) -> list[Expr]:
        """What is evaluated at points when their states are known."""
        found = [e for f in self.sums_of_rows for e in f.parts]
        return found + [e for w in self.of_points for e in uses_of_write(w)]

    def end_exprs(self) -> list[Expr]:
        found = [e for s in self.own_scans for e in s.inits]
        found += [e for f in self.scans.sums for e in f.inits]
        return found + [e for w in self.scans.ends for e in uses_of_write(w)]

    def everything(self) -> tuple[Stmt, ...]:
        exprs = [*self.state_exprs(), *self.point_exprs(), *self.end_exprs(), *(e for f in self.totals for e in f.inits)]
        writes = (*self.writes, *self.scans.ends)
        lets: list[Stmt] = [self.let(v) for v in self.needed(exprs) if not isinstance(v, Carried)]
        return (*lets, *(Let("", e) for e in exprs), *(Store(w.array, w.index, w.value) for w in writes))

    # ---------------------------------------------------------------- names

    def stem(self, wanted: str) -> str:
        """A C++ name that is made once."""
        if wanted not in self.stems:
            self.stems[wanted] = self.fresh.fresh(wanted)
        return self.stems[wanted]

    @contextmanager
    def named(self, axis: str, text: str) -> Iterator[None]:
        """An axis has this name here."""
        before = self.names.get(axis)
        self.names[axis] = text
        yield
        if before is None:
            del self.names[axis]
        else:
            self.names[axis] = before

    def memory_of(self, name: str) -> str:
        """The pointer to what launches leave for each other of a name."""
        return self.stem(f"{name}_{'before' if name in {n for s in self.scans.early for n in s.names} else 'parts'}_memory")

    # ---------------------------------------------------------------- the kernel

    def emit(self, entry: str) -> None:
        given = parameters(self.function, self.nest, self.facts, self)
        passed = [(n, t) for s in self.scans.early for n, t in zip(s.names, s.types, strict=True)]
        passed += [(f.results[0], f.types[0]) for f in self.scans.crossed]
        given += [f"{register_type(t)}* {self.memory_of(n)}" for n, t in passed]
        given += ["const int64_t parts"] if passed else []
        lines = ",\n    ".join(given)
        bounds = self.plan.threads * self.plan.teams
        with self.writer.block(f'extern "C" __global__ void __launch_bounds__({bounds}) {entry}(\n    {lines})'):
            mark = self.writer.mark()
            self.body()
            if self.writer.mentions("outside", mark):
                self.writer.insert(mark, "int64_t outside = 0;")
                self.writer.line("if (outside) __trap();  // a subscript or a value that the data decide is out of its range")

    def body(self) -> None:
        self.rows()
        self.hoist(self.everything(), list(self.scans.rows))
        self.values_of_rows()
        self.begin()
        self.tiles()
        self.ends()

    def rows(self) -> None:
        """Which row a thread works for."""
        plan, line = self.plan, self.writer.line
        axes = [self.axes[a] for a in self.scans.rows]
        counts = {a.name: self.span(a, f"{a.name}_count") for a in axes}
        line(f"// {plan.threads} threads a row, each with {plan.points} neighbours of a tile of {plan.tile} points")
        if not axes:
            self.stems["row"] = "0"
            return
        *others, last = axes
        count, place, group = counts[last.name], self.fresh.fresh(f"{last.name}_place"), f"{last.name}_blocks"
        blocks = factor(count)
        if plan.teams > 1:
            blocks = self.fresh.fresh(group)
            line(f"const int64_t {blocks} = ({count} + {plan.teams - 1}) / {plan.teams};")
        within = f"int64_t(blockIdx.x % {blocks})" if others else "int64_t(blockIdx.x)"
        start = self.printer.index(last.start, SUM)
        if plan.teams > 1:
            line(f"const bool here = {within} * {plan.teams} + threadIdx.y < {count};  // else the last row is looked at again")
            within = f"weft::minimum<int64_t>({within} * {plan.teams} + threadIdx.y, {count} - 1)"
            self.here = "here"
        plain = last.start == ZERO
        own = self.declare(last.name) if plain else place
        line(f"const int64_t {own} = {within};")
        if not plain:
            line(f"const int64_t {self.declare(last.name)} = {start} + {own};")
        self.places(others, f"int64_t(blockIdx.x / {blocks})", counts)
        self.stems["row"] = f"(int64_t(blockIdx.x / {blocks}) * {count} + {own})" if others else own
        self.stems["others"] = f"int64_t(blockIdx.x / {blocks})" if others else "0"
        self.stems["group"] = f"blockIdx.x % {blocks}" if others else "blockIdx.x"
        self.stems["others_count"] = " * ".join(counts[a.name] for a in others) or "1"

    def count_states(self) -> None:
        """How many states a row has, and the name of a state's number."""
        axes = [self.axes[a] for a in self.scans.states]
        if len(axes) == 1 and axes[0].start == ZERO:
            self.s = self.declare(axes[0].name)
        counts = {a: self.span(self.axes[a], f"{a}_count") for a in self.scans.states}
        self.stems |= {f"{a} span": text for a, text in counts.items()}
        product = [factor(c) if len(counts) > 1 else c for c in counts.values()]
        self.writer.line(f"const int32_t state_count = {' * '.join(product)};")

    def coordinates(self) -> None:
        """Which state the s-th is, where it is not so named."""
        axes = [self.axes[a] for a in self.scans.states]
        if self.s != "s":
            return
        self.places(axes, "s", {a.name: self.stems[f"{a.name} span"] for a in axes})

    def values_of_rows(self) -> None:
        """What the points of a row have in common, computed once."""
        for value in self.needed([*self.state_exprs(), *self.point_exprs(), *self.end_exprs()]):
            if isinstance(value, Carried) or not set(value.axes) <= set(self.scans.rows) or value.name in self.moved:
                continue
            if self.after_points(value):
                continue
            self.statements((self.let(value),))
            self.leaves.add(value.name)

    def after_points(self, value: Read | Map) -> bool:
        """Whether a value is made of what is folded along a row."""
        pending, sums = [value.name], {n for f in (*self.scans.sums, *self.scans.crossed) for n in f.results}
        while pending:
            own = self.made.get(pending.pop())
            if isinstance(own, Fold) and own.results[0] in sums:
                return True
            if isinstance(own, Map):
                pending += free_names(own.value)
        return False

    # ---------------------------------------------------------------- what a row keeps

    def begin(self) -> None:
        """Shared memory for what a row keeps of each state, and what is there at first."""
        plan, line = self.plan, self.writer.line
        self.count_states()
        kinds = {n for s in self.kept_scans() for n in s.names} | {f.results[0] for f in self.sums_of_states}
        wanted = [one for one in kept(self.scans) if one[0] in kinds]
        offset, each = met_bytes(self.scans, plan) if self.crossed else 0, 0
        line("extern __shared__ __align__(16) unsigned char memory[];")
        at = 0
        for f in self.crossed:
            type_ = register_type(f.types[0])
            place = f"memory + {at}" if at else "memory"
            met = self.stem(f"{f.results[0]}_met")
            line(f"{type_}* const {met} = reinterpret_cast<{type_}*>({place});  // of all rows, in turn")
            at += 2 * plan.teams * plan.slot * f.types[0].size
        for name, kind, count in wanted:
            text = register_type(kind)
            parts = [*([str(offset)] if offset else []), *([f"state_count * {each}"] if each else [])]
            place = " + ".join(["memory", *parts])
            own = " + threadIdx.y * state_count" if plan.teams > 1 else ""
            line(f"{text}* const {self.stem(f'{name}_kept')} = reinterpret_cast<{text}*>({place}){own};")
            each += kind.size * count * plan.teams
        with self.writer.block(f"for (int32_t {self.s} = threadIdx.x; {self.s} < state_count; {self.s} += {plan.threads})"):
            self.coordinates()
            self.values_of_states([e for s in self.kept_scans() for e in s.inits])
            for s in self.kept_scans():
                self.writer.cite(s.location)
                for n, e in zip(s.names, s.inits, strict=True):
                    line(f"{self.stem(f'{n}_kept')}[{self.s}] = {self.printer.exact(e)};")
            for f in self.sums_of_states:
                line(f"{self.stem(f'{f.results[0]}_kept')}[{self.s}] = {algebra_of(f)}::identity();")
        for f in self.sums_of_rows:
            line(f"auto {self.stem(f'{f.results[0]}_own')} = {algebra_of(f)}::identity();")
        line(self.team_barrier())

    def kept_scans(self) -> tuple[Scan, ...]:
        return self.scans.scans

    def team_barrier(self) -> str:
        if self.crossed or self.plan.threads > 32:
            return "__syncthreads();"
        return f"weft::sync_team<{self.plan.threads}>();"

    def values_of_states(self, exprs: Iterable[Expr]) -> None:
        """What expressions need that the points of a state have in common."""
        for value in self.needed(exprs):
            if not isinstance(value, Carried) and self.scans.along not in value.axes and not self.late(value):
                self.statements((self.let(value),))

    def late(self, value: Read | Map) -> bool:
        return value.name in self.moved or self.after_points(value)

    # ---------------------------------------------------------------- tiles

    @property
    def reverse(self) -> bool:
        return self.scans.reverse

    def tiles(self) -> None:
        plan, line, axis = self.plan, self.writer.line, self.axis
        start, self.end = self.printer.index(axis.start, SUM), self.printer.index(axis.stop)
        length = factor(self.end) if axis.start == ZERO else f"{factor(self.end)} - {factor(start)}"
        line(f"const int64_t tiles = ({length} + {plan.tile - 1}) / {plan.tile};")
        for s in self.own_scans:
            if plan.threads > 32:
                line(f"__shared__ {algebra_of(s)}::Value {self.stem(f'{s.names[0]}_scratch')}[2][{plan.threads // 32}];")
        for f in (*self.sums_of_states, *self.sums_of_rows):
            if plan.threads > 32:
                type_ = register_type(f.types[0])
                line(f"__shared__ {type_} {self.stem(f'{f.results[0]}_scratch')}[2][{plan.threads // 32}];")
        with self.writer.block("for (int64_t tile = 0; tile < tiles; ++tile)"):
            number = "tile"
            if self.reverse:
                number = "number"
                line("const int64_t number = tiles - 1 - tile;")
            self.stems["number"] = number
            self.first = self.stem(f"{axis.name}_first")
            begin = f"{number} * {plan.tile} + threadIdx.x * {plan.points}"
            line(f"const {self.index} {self.first} = {begin if start == '0' else f'{start} + {begin}'};")
            leaves = set(self.leaves)
            self.tile()
            line(self.team_barrier())
            self.leaves = leaves

    def tile(self) -> None:
        """One tile: what its points have in common for all states, then each state, then what is known of all."""
        line = self.writer.line
        for s in self.own_scans:
            for n, type_ in zip(s.names, s.types, strict=True):
                self.places_of_states(n, register_type(type_), s)
        self.kept_at_points(self.state_exprs(), set(self.scans.rows) | {self.scans.along})
        for f in self.totals:
            own = self.stem(f"{f.results[0]}_own")
            line(f"{algebra_of(f)}::Value {own}[{self.plan.points}];")
            line("#pragma unroll")
            line(f"for (int32_t k = 0; k < {self.plan.points}; ++k) {own}[k] = {algebra_of(f)}::identity();")
        with self.writer.block(f"for (int32_t {self.s} = 0; {self.s} < state_count; ++{self.s})"):
            leaves = set(self.leaves)
            self.coordinates()
            self.state()
            self.leaves = leaves
        self.finish()

    def steps(self, body: Callable[[], None], backwards: bool) -> None:
        """Go through a thread's points of a tile."""
        points, line, name = self.plan.points, self.writer.line, self.declare(self.axis.name)
        order = f"int32_t k = {points - 1}; k >= 0; --k" if backwards else f"int32_t k = 0; k < {points}; ++k"
        line("#pragma unroll")
        with self.writer.block(f"for ({order})"):
            mark = self.writer.mark()
            if self.plan.whole:
                body()
            else:
                with self.writer.block(f"if ({name} < {self.end})"):
                    body()
            if self.writer.mentions(name, mark):
                self.writer.insert(mark, f"const {self.index} {name} = {self.first} + k;")

    # ---------------------------------------------------------------- values at points

    def kept_at_points(self, exprs: Sequence[Expr], limit: set[str]) -> None:
        """Keep what expressions use at points, of values that have no other axes than these and are made of no states."""
        points, line, along = self.plan.points, self.writer.line, self.scans.along
        wanted = [v for v in self.needed(exprs) if not isinstance(v, Carried) and along in v.axes]
        own = [v for v in wanted if set(v.axes) <= limit and not self.late(v)]
        others = [v.value for v in wanted if isinstance(v, Map) and v not in own]
        used = {n for e in (*exprs, *others) for n in free_names(e)}
        reads = [v for v in own if isinstance(v, Read) and self.in_runs(v)]
        passing = [v for v in reads if v.name not in used]  # what is made of them is kept in their place
        for read in reads:
            if read not in passing:
                self.fetch(read)
        maps = [v for v in own if isinstance(v, Map) and v.name in used]
        if not maps:
            return
        for value in maps:
            self.stem(f"{value.name}_tile")
            line(f"{register_type(value.type)} {self.stem(f'{value.name}_tile')}[{points}];")

        def body() -> None:
            made = self.needed([v.value for v in maps])
            for value in self.values:
                if value in maps:
                    assert isinstance(value, Map)
                    self.writer.cite(value.location)
                    tile = f"{self.stem(f'{value.name}_tile')}[k]"
                    line(f"{tile} = {self.printer.value(value.value)};")
                    self.names[value.name] = tile
                elif value in made and isinstance(value, Read | Map):
                    self.statements((self.let(value),))

        with self.writer.block("") if passing else nullcontext():
            for read in passing:
                self.fetch(read)
            self.steps(body, False)
        self.leaves |= {v.name for v in maps}
        self.leaves -= {v.name for v in passing}

    def in_runs(self, read: Read) -> bool:
        alone = not any(free_names(i) & self.made.keys() for i in read.index)
        return alone and step_of(read, self.scans.along) is not None

    def fetch(self, read: Read, again: bool = False) -> None:
        """Read a thread's points of a tile. again: they have not been kept since they were read before."""
        points, line, array = self.plan.points, self.writer.line, self.function.array(read.array)
        axis = step_of(read, self.scans.along)
        assert axis is not None
        unit, extent = (read.array, axis) in self.facts.unit, self.printer.index(array.shape[axis])
        tile = self.stem(f"{read.name}_tile")
        self.writer.cite(read.location)
        start = self.printer.index(self.axis.start)
        with self.named(self.axis.name, self.first):
            at, index = self.address(read.array, read.index), self.printer.index(read.index[axis])
        at = f"weft::opaque({at})" if again else at
        aligned = self.axis.start == ZERO and is_run(read.array, read.index, self.axis.name, self.facts)
        width = self.width(read.array, points) if aligned else 1
        low, high, first = ("0", extent, index) if not read.always else (start, self.end, self.first)
        if self.plan.whole and read.always:
            taken = f"weft::fetch<{points}, {width}>({at})"
            if not unit:
                taken = f"weft::fetch_strided<{points}>({at}, {self.stride(read.array, axis)})"
        elif unit:
            taken = f"weft::fetch_run<{points}, {width if width > 1 else 0}>({at}, {first}, {low}, {high})"
        else:
            place, size = (first, high) if low == "0" else (f"{first} - {factor(low)}", f"{high} - {factor(low)}")
            taken = f"weft::fetch_within<{points}>({at}, {self.stride(read.array, axis)}, {place}, {size})"
        line(f"{register_type(array.dtype)} {tile}[{points}];")
        conditions = self.outside(read, axis)
        if conditions:
            run = self.fresh.fresh(f"{read.name}_run")
            line(f"weft::Run<{memory_type(array.dtype)}, {points}> {run} = {{}};")
            line(f"if ({' && '.join(conditions)}) {run} = {taken};")
            taken = run
        line(f"weft::unpack({taken}, {tile});")
        self.names[read.name] = f"{tile}[k]"
        self.leaves.add(read.name)

    def outside(self, read: Read, axis: int) -> list[str]:
        """Conditions that a read that may leave its array does not, along the other axes of it."""
        found = []
        for k, extent in enumerate(self.function.array(read.array).shape) if not read.always else ():
            if k != axis:
                index = self.printer.index(read.index[k])
                found += [f"{index} >= 0", f"{index} < {self.printer.index(extent)}"]
        return found

    def at_point(self, exprs: Iterable[Expr]) -> None:
        """Compute what expressions need at a point."""
        for value in self.needed(exprs):
            if not isinstance(value, Carried):
                self.statements((self.let(value),))
            elif value in self.totals:
                assert isinstance(value, Fold)
                template, own = join(value.algebra, value.types[0]), f"{self.stem(f'{value.results[0]}_own')}[k]"
                name = self.declare(value.results[0])
                text = template.format(self.printer.exact(value.inits[0]), own)
                self.writer.line(f"const {register_type(value.types[0])} {name} = {text};")

    # ---------------------------------------------------------------- one state

    def state(self) -> None:
        """One state of a tile: what it is before each thread's points, and what is made of it at each of them."""
        exprs = self.state_exprs()
        inside = [v for v in self.needed(exprs) if not isinstance(v, Carried) and self.scans.along not in v.axes]
        for value in inside:
            if not self.late(value):
                self.statements((self.let(value),))
                self.leaves.add(value.name)
        self.kept_at_points(exprs, {*self.scans.rows, *self.scans.states, self.scans.along})
        kept_states: list[Scan] = []
        for s in self.own_scans:
            self.composed(s)
            if s in self.scans.early or self.followed(s):
                self.replayed(s)
                kept_states.append(s)
        self.at_states([s for s in self.own_scans if s not in kept_states])

    def followed(self, s: Scan) -> bool:
        """Whether another scan needs the states of this one at points."""
        others = [e for o in self.own_scans if o is not s for e in (*o.parts, *o.nexts)]
        used = {n for e in others for n in free_names(e)}
        used |= {n for v in self.needed(others) if isinstance(v, Map) for n in free_names(v.value)}
        return bool(used & set(s.names))

    def state_before(self, name: str) -> str:
        """The text of a state before the tile."""
        if name in {n for s in self.scans.early for n in s.names}:
            return f"{self.stem(f'{name}_tiles')}[{self.s}]"
        return f"{self.stem(f'{name}_now')}[{self.s}]"

    def places_of_states(self, name: str, type_: str, s: Scan) -> None:
        """Where a row's states are before a tile, and after it."""
        line, kept_ = self.writer.line, self.stem(f"{name}_kept")
        if s in self.scans.early:
            at = f"{self.memory_of(name)} + ({self.stems['row']} * tiles + {self.stems['number']}) * state_count"
            line(f"{type_}* const {self.stem(f'{name}_tiles')} = {at};")
        if s in self.kept_scans():
            line(f"const {type_}* const {self.stem(f'{name}_now')} = {kept_} + {self.turn('tile')};")
            line(f"{type_}* const {self.stem(f'{name}_next')} = {kept_} + {self.turn('tile + 1')};")

    def turn(self, tile: str) -> str:
        """The offset of the states before a tile."""
        rows = f"{self.plan.teams} * " if self.plan.teams > 1 else ""
        return f"({factor(tile)} & 1) * {rows}state_count"

    def composed(self, s: Scan) -> None:
        """The states before each thread's points and after the tile."""
        plan, line, algebra, stem = self.plan, self.writer.line, algebra_of(s), s.names[0]
        backwards = "true" if s.reverse else "false"
        own, found = self.stem(f"{stem}_own"), self.stem(f"{stem}_composed")
        self.writer.cite(s.location)
        types = [register_type(t) for t in s.types]
        starts, warps, lasts = ([self.stem(f"{n}_{what}") for n in s.names] for what in ("start", "warp", "after"))
        for n, t, start in zip(s.names, types, starts, strict=True):
            line(f"const {t} {start} = {self.state_before(n)};")
        line(f"auto {own} = {algebra}::identity();  // what the thread's points do to {' and '.join(s.names)}")

        def body() -> None:
            self.at_point(s.parts)
            line(f"{own} = {element_of(self.printer, s, own)};")

        self.steps(body, s.reverse)
        scratch = f"{self.stem(f'{stem}_scratch')}[{self.s} & 1]" if plan.threads > 32 else "nullptr"
        line(f"const auto {found} = weft::scan_through<{algebra}, {plan.threads}, {backwards}>({own}, {scratch});")
        several = plan.threads > 32
        for t, start, warp, last in zip(types, starts, warps, lasts, strict=True):
            line(f"{t} {last} = {start}{f', {warp} = {start}' if several else ''};")
        line(f"{algebra}::apply({found}.all, {', '.join(lasts)});")
        if several:
            line(f"{algebra}::apply({found}.warps, {', '.join(warps)});")
        for n, t, start, warp, last in zip(s.names, types, starts, warps, lasts, strict=True):
            taken = f"weft::from_lane_before<{min(plan.threads, 32)}, {backwards}>({last}, {warp if several else start})"
            line(f"{t} {self.before(n)} = {taken};")
        if overflows(s.algebra, s.types[0]):
            finite = " && ".join(f"weft::is_finite({x})" for x in lasts)
            condition = f"!weft::all_of_team<{plan.threads}>({finite})"
            if segmented(s.algebra) is None and len(s.names) == 1:
                condition += f" && !weft::is_nan({starts[0]})"
            line("// what overflows when points are composed is computed in their order")
            with self.writer.block(f"if ({condition})"):
                self.one_after_another(s, starts, lasts, backwards)
        if s in self.kept_scans():
            stores = " ".join(f"{self.stem(f'{n}_next')}[{self.s}] = {last};" for n, last in zip(s.names, lasts, strict=True))
            end = "threadIdx.x == 0" if s.reverse else f"threadIdx.x == {plan.threads - 1}"
            line(f"if ({end}) {f'{{ {stores} }}' if len(lasts) > 1 else stores}")

    def before(self, name: str) -> str:
        """The C++ name of a state before the thread's points."""
        return self.stem(f"{name}_before")

    def one_after_another(self, s: Scan, starts: list[str], lasts: list[str], backwards: str) -> None:
        """The states before each thread's points, and after the tile, found point by point."""
        line = self.writer.line
        own = [self.stem(n) for n in s.names]
        given = ", ".join(f"{register_type(t)}& {n}" for n, t in zip(own, s.types, strict=True))
        before = dict(self.names)
        with self.writer.block(f"const auto change = [&]({given})", "};"):
            self.names |= dict(zip(s.names, own, strict=True))

            def body() -> None:
                self.at_point(s.nexts)
                self.advance_states([s])

            self.steps(body, s.reverse)
        self.names = before
        kept_here = " ".join(f"{self.before(name)} = {n};" for name, n in zip(s.names, own, strict=True))
        line(f"const auto keep = [&]({given}) {{ {kept_here} }};")
        for last, start in zip(lasts, starts, strict=True):
            line(f"{last} = {start};")
        line(f"weft::in_turn<{self.plan.threads}, {backwards}>(change, keep, {', '.join(lasts)});")

    def advance_states(self, scans: Sequence[Scan]) -> None:
        self.advance(
            tuple(Carry(n, i, e, r) for s in scans for n, i, e, r in zip(s.names, s.inits, s.nexts, s.results, strict=True))
        )

    def replayed(self, s: Scan) -> None:
        """Keep the states before each point."""
        line, tiles = self.writer.line, [self.stem(f"{n}_tile") for n in s.names]
        for n, t, tile in zip(s.names, s.types, tiles, strict=True):
            line(f"{register_type(t)} {tile}[{self.plan.points}];")
            self.names[n] = self.before(n)

        def body() -> None:
            for n, tile in zip(s.names, tiles, strict=True):
                line(f"{tile}[k] = {self.names[n]};")
            self.at_point(s.nexts)
            self.advance_states([s])

        self.steps(body, s.reverse)
        self.names |= {n: f"{tile}[k]" for n, tile in zip(s.names, tiles, strict=True)}

    def at_states(self, moving: Sequence[Scan]) -> None:
        """Go through the points with the states: what is folded of them and written."""
        line = self.writer.line
        for s in moving:
            self.names |= {n: self.before(n) for n in s.names}
        for f in self.sums_of_states:
            line(f"auto {self.stem(f'{f.results[0]}_own')} = {algebra_of(f)}::identity();")
        if self.crossed:
            turn = f"({self.s} & 1)"
            row = turn if self.plan.teams == 1 else f"({turn} * {self.plan.teams} + threadIdx.y)"
            line(f"const int32_t met = {row} * {self.plan.slot} + threadIdx.x;  // where the rows of the block meet")
        exprs = [e for f in (*self.totals, *self.sums_of_states, *self.crossed) for e in f.parts]
        exprs += [e for w in self.of_states for e in uses_of_write(w)]

        def body() -> None:
            self.at_point([*exprs, *(e for s in moving for e in s.nexts)])
            for f in (*self.totals, *self.sums_of_states):
                self.writer.cite(f.location)
                own = self.stem(f"{f.results[0]}_own") + ("[k]" if f in self.totals else "")
                line(f"{own} = {element_of(self.printer, f, own)};")
            for f in self.crossed:
                self.writer.cite(f.location)
                value = self.printer.exact(f.parts[0])
                value = f"{self.here} ? {value} : {algebra_of(f)}::identity()" if self.here else value
                line(f"{self.stem(f'{f.results[0]}_met')}[met + k * {self.plan.pitch}] = {value};")
            self.written(self.of_states)
            self.advance_states(moving)

        self.steps(body, self.scans.reverse)
        for f in self.sums_of_states:
            own, total = self.stem(f"{f.results[0]}_own"), f"{self.stem(f'{f.results[0]}_kept')}[{self.s}]"
            found = self.reduced(f, own, f"{self.s} & 1")
            all_ = self.stem(f"{f.results[0]}_all")
            line(f"const auto {all_} = {found};")
            line(f"if (threadIdx.x == 0) {total} = {algebra_of(f)}::combine({total}, {all_});")
        self.meet()

    def written(self, writes: Iterable[Write]) -> None:
        for w in writes:
            if self.here:
                with self.writer.block(f"if ({self.here})"):
                    self.write(w)
            else:
                self.write(w)

    def reduced(self, f: Fold, own: str, turn: str) -> str:
        scratch = f"{self.stem(f'{f.results[0]}_scratch')}[{turn}]" if self.plan.threads > 32 else "nullptr"
        return f"weft::reduce<{algebra_of(f)}, {self.plan.threads}>({own}, {scratch})"

    def meet(self) -> None:
        """Fold the rows of a block, and leave what they make for the launch after this one."""
        plan, line = self.plan, self.writer.line
        if not self.crossed:
            return
        line("__syncthreads();")
        flat = "threadIdx.x" if plan.teams == 1 else f"threadIdx.y * {plan.threads} + threadIdx.x"
        start = self.printer.index(self.axis.start, SUM)
        length = self.end if self.axis.start == ZERO else f"{self.end} - {factor(start)}"
        threads = plan.threads * plan.teams
        block = f"({self.stems['group']} * ({self.stems['others_count']}) + {self.stems['others']})"
        for k, f in enumerate(self.crossed):
            all_, met = self.stem(f"{f.results[0]}_all"), self.stem(f"{f.results[0]}_met")
            turned = k * plan.tile % threads  # threads that have no point of one fold have points of the next one
            begin = f"({flat} + {turned}) % {threads}" if turned else flat
            with self.writer.block(f"for (int32_t p = {begin}; p < {plan.tile}; p += {threads})"):
                line(f"const int64_t point = {self.stems['number']} * {plan.tile} + p;")
                first = f"({self.s} & 1) * {plan.teams * plan.slot}"
                line(f"const int32_t place = {first} + p % {plan.points} * {plan.pitch} + p / {plan.points};")
                with nullcontext() if plan.whole else self.writer.block(f"if (point < {length})"):
                    line(f"auto {all_} = {met}[place];")
                    if plan.teams > 1:
                        line("#pragma unroll")
                        own = f"{met}[place + y * {plan.slot}]"
                        line(f"for (int32_t y = 1; y < {plan.teams}; ++y) {all_} = {algebra_of(f)}::combine({all_}, {own});")
                    memory = self.memory_of(f.results[0])
                    line(f"{memory}[({block} * state_count + {self.s}) * {factor(length)} + point] = {all_};")

    # ---------------------------------------------------------------- what is known of all states

    def finish(self) -> None:
        """What is written at points, and folded along rows."""
        line, points = self.writer.line, self.plan.points
        exprs = self.point_exprs()
        if not exprs:
            return
        folds = [v for v in self.needed(exprs) if v in self.totals]
        for v in self.needed([*exprs, *(e for f in folds for e in f.inits)]):
            if isinstance(v, Read) and self.scans.along in v.axes and self.in_runs(v):
                self.fetch(v, again=v.name in self.names)
        packed = {w: self.stem(f"{w.array}_run") for w in self.of_points if self.in_packets(w)}
        for w, run in packed.items():
            line(f"{register_type(w.value.type)} {run}[{points}];")

        def body() -> None:
            self.at_point(exprs)
            for f in self.sums_of_rows:
                self.writer.cite(f.location)
                own = self.stem(f"{f.results[0]}_own")
                line(f"{own} = {element_of(self.printer, f, own)};")
            for w, run in packed.items():
                self.writer.cite(w.location)
                line(f"{run}[k] = {self.printer.value(w.value)};")
            self.written(w for w in self.of_points if w not in packed)

        self.steps(body, self.scans.reverse)
        start = self.printer.index(self.axis.start)
        here = f"if ({self.here}) " if self.here else ""
        with self.named(self.axis.name, self.first):
            for w, run in packed.items():
                at = self.address(w.array, w.index)
                aligned = self.axis.start == ZERO
                width = self.width(w.array, points) if aligned else 1
                if self.plan.whole:
                    line(f"{here}weft::store<{width}>({at}, {run});")
                else:
                    known = width if width > 1 else 0
                    line(f"{here}weft::store_run<{known}>({at}, {self.first}, {start}, {self.end}, {run});")

    def in_packets(self, w: Write) -> bool:
        return stored_in_packets(w, self.axis.name, self.facts)

    def ends(self) -> None:
        """What is written once a row."""
        line, plan = self.writer.line, self.plan
        if not self.scans.ends:
            return
        for f in self.sums_of_rows:
            own, name = self.stem(f"{f.results[0]}_own"), self.declare(f.results[0])
            text = join(f.algebra, f.types[0]).format(self.printer.exact(f.inits[0]), self.reduced(f, own, "0"))
            line(f"const {register_type(f.types[0])} {name} = {text};")
        here = [self.here] if self.here else []
        of_rows = [w for w in self.scans.ends if not set(w.axes) & set(self.scans.states)]
        if of_rows:
            with self.writer.block(f"if ({' && '.join([*here, 'threadIdx.x == 0'])})"):
                self.at_end(of_rows)
        rest = [w for w in self.scans.ends if w not in of_rows]
        if not rest:
            return
        bound = " && ".join([*here, f"{self.s} < state_count"])
        with self.writer.block(f"for (int32_t {self.s} = threadIdx.x; {bound}; {self.s} += {plan.threads})"):
            self.coordinates()
            for s in self.scans.scans:
                for n, r in zip(s.names, s.results, strict=True):
                    self.names[r] = f"{self.stem(f'{n}_kept')}[{self.turn('tiles')} + {self.s}]"
            self.at_end(rest)

    def at_end(self, writes: Sequence[Write]) -> None:
        for value in self.needed([e for w in writes for e in uses_of_write(w)]):
            if isinstance(value, Fold) and value in self.sums_of_states:
                own, name = f"{self.stem(f'{value.results[0]}_kept')}[{self.s}]", self.declare(value.results[0])
                text = join(value.algebra, value.types[0]).format(self.printer.exact(value.inits[0]), own)
                self.writer.line(f"const {register_type(value.types[0])} {name} = {text};")
            elif not isinstance(value, Carried):
                self.statements((self.let(value),))
        for w in writes:
            self.write(w)


@dataclass
class BeforeEntry(StateEntry):
    """The launch that finds the states of early scans before each tile."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.own_scans = self.scans.early

    totals = writes = sums_of_states = sums_of_rows = crossed = property(lambda self: ())

    def end_exprs(self) -> list[Expr]:
        return [e for s in self.own_scans for e in s.inits]

    def everything(self) -> tuple[Stmt, ...]:
        exprs = [*self.state_exprs(), *self.end_exprs()]
        lets: list[Stmt] = [self.let(v) for v in self.needed(exprs) if not isinstance(v, Carried)]
        return (*lets, *(Let("", e) for e in exprs))

    @property
    def reverse(self) -> bool:
        return not self.scans.reverse

    def kept_scans(self) -> tuple[Scan, ...]:
        return self.scans.early

    def state_before(self, name: str) -> str:
        return f"{self.stem(f'{name}_now')}[{self.s}]"

    def state(self) -> None:
        exprs = self.state_exprs()
        for value in self.needed(exprs):
            if not isinstance(value, Carried) and self.scans.along not in value.axes and not self.late(value):
                self.statements((self.let(value),))
                self.leaves.add(value.name)
        self.kept_at_points(exprs, {*self.scans.rows, *self.scans.states, self.scans.along})
        first = " && ".join([*([self.here] if self.here else []), "threadIdx.x == 0"])
        for s in self.own_scans:
            self.composed(s)
            for n in s.names:
                self.writer.line(f"if ({first}) {self.stem(f'{n}_tiles')}[{self.s}] = {self.stem(f'{n}_start')};")
            if self.followed(s):
                self.replayed(s)

    def finish(self) -> None:
        """Nothing is written."""

    def ends(self) -> None:
        """Nothing is known at the end."""


@dataclass
class AfterEntry(StateEntry):
    """The launch that folds what blocks have left of the rows that they have, a thread for each point."""

    def body(self) -> None:
        line, axes = self.writer.line, [self.axes[a] for a in (*self.scans.rows[:-1], *self.scans.states, self.scans.along)]
        counts = {a.name: self.span(a, f"{a.name}_count") for a in axes}
        line(f"const int64_t items = {' * '.join(factor(counts[a.name]) for a in axes)};")
        each = self.plan.threads * self.plan.teams
        flat = "threadIdx.x" if self.plan.teams == 1 else f"threadIdx.y * {self.plan.threads} + threadIdx.x"
        step = f"item += int64_t(gridDim.x) * {each}"
        with self.writer.block(f"for (int64_t item = int64_t(blockIdx.x) * {each} + {flat}; item < items; {step})"):
            self.places(axes, "item", counts)
            for f in self.crossed:
                all_ = self.stem(f"{f.results[0]}_all")
                line(f"auto {all_} = {algebra_of(f)}::identity();")
                memory = f"{self.memory_of(f.results[0])}[part * items + item]"
                combined = f"{all_} = {algebra_of(f)}::combine({all_}, {memory});"
                line(f"for (int64_t part = 0; part < parts; ++part) {combined}")
            for value in self.needed([e for w in self.scans.after for e in uses_of_write(w)]):
                if isinstance(value, Fold):
                    self.writer.cite(value.location)
                    own, name = self.stem(f"{value.results[0]}_all"), self.declare(value.results[0])
                    text = join(value.algebra, value.types[0]).format(self.printer.exact(value.inits[0]), own)
                    line(f"const {register_type(value.types[0])} {name} = {text};")
                else:
                    self.statements((self.let(value),))
            for w in self.scans.after:
                self.write(w)


