"""Points of rows with many states in a text: the values there, and a thread's way through its points."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from weft.emit.algebras import join
from weft.emit.cpp_body import factor
from weft.emit.expressions import memory_type, register_type
from weft.emit.values import ZERO, ValueBody
from weft.graph.state_scans import StateScans, step_of
from weft.graph.tile import Carried, Fold, Map, Read, Scan, Write, axes_of_name, names_of, uses_of_write
from weft.loops.ir import Expr, Ref, Stmt, free_names
from weft.loops.types import FLOAT32
from weft.plan.fold import is_run
from weft.plan.state_scan import StatePlan


@dataclass
class StatePoints(ValueBody):
    """What a launch does at points, and the values that it needs there."""

    scans: StateScans = None  # type: ignore[assignment]
    plan: StatePlan = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.axis = self.axes[self.scans.along]
        self.index = "int64_t" if self.facts.wide else "int32_t"
        if self.index == "int32_t":
            self.printer = replace(self.printer, narrow=lambda name: name == self.axis.name)
        self.stems: dict[str, str] = {}
        self.first = self.end = self.length = ""  # a thread's first point of a tile; the end of rows, their length
        self.s = "s"  # the place of a state among those of a row
        self.runs: dict[str, str] = {}  # where a state has what reads read at a thread's points
        self.ahead: dict[str, str] = {}  # what has been read of the next state, by reads
        self.pointers_of_states: list[tuple[str, str]] = []  # and how far they go from one state to the next
        self.reads_ahead: list[tuple[str, str]] = []  # names of what has been read ahead, and what reads it
        # by states: the sum of what no state tells of what they are multiplied by 2 to the power of, and what does; what all of
        # them are multiplied by
        self.powers: dict[str, tuple[str, Ref]] = {}
        self.multiples: dict[str, str] = {}
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
        return self.statements_of(exprs, (*self.writes, *self.scans.ends))

    # ---------------------------------------------------------------- names

    def stem(self, wanted: str) -> str:
        """A C++ name that is made once."""
        if wanted not in self.stems:
            self.stems[wanted] = self.fresh.fresh(wanted)
        return self.stems[wanted]

    def memory_of(self, name: str) -> str:
        """The pointer to what launches leave for each other of a name."""
        return self.stem(f"{name}_{'before' if name in {n for s in self.scans.early for n in s.names} else 'parts'}_memory")

    # ---------------------------------------------------------------- values at points

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

    def values_of_states(self, exprs: Iterable[Expr]) -> None:
        """What expressions need that the points of a state have in common."""
        for value in self.needed(exprs):
            if not isinstance(value, Carried) and self.scans.along not in value.axes and not self.late(value):
                self.statements((self.let(value),))

    def late(self, value: Read | Map) -> bool:
        return value.name in self.moved or self.after_points(value)

    def kept_at_points(self, exprs: Sequence[Expr], limit: set[str], made_once: bool = False) -> None:
        """Keep what expressions use at points, of values that have no other axes than these and are made of no states.
        made_once: the compiler shall not make them again for each state.
        """
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
                    text = self.printer.value(value.value)
                    line(f"{tile} = {f'weft::opaque({text})' if made_once and value.type == FLOAT32 else text};")
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

    def taken(self, read: Read, again: bool = False) -> str:
        """What reads a thread's points of a tile, as they are in memory. again: they have been read before, and not kept."""
        points, array, axis = self.plan.points, self.function.array(read.array), step_of(read, self.scans.along)
        assert axis is not None
        unit, extent = (read.array, axis) in self.facts.unit, self.printer.index(array.shape[axis])
        start = self.printer.index(self.axis.start)
        with self.spelled({self.axis.name: self.first}):
            at = self.runs.get(read.name) or self.address(read.array, read.index)
            index = self.printer.index(read.index[axis])
        at = f"weft::opaque({at})" if again else at
        aligned = self.axis.start == ZERO and is_run(read.array, read.index, self.axis.name, self.facts)
        width = self.width(read.array, points) if aligned else 1
        low, high, first = ("0", extent, index) if not read.always else (start, self.end, self.first)
        if self.plan.whole and read.always:
            if unit:
                return f"weft::fetch<{points}, {width}>({at})"
            return f"weft::fetch_strided<{points}>({at}, {self.stride(read.array, axis)})"
        if unit:
            return f"weft::fetch_run<{points}, {width if width > 1 else 0}>({at}, {first}, {low}, {high})"
        place, size = (first, high) if low == "0" else (f"{first} - {factor(low)}", f"{high} - {factor(low)}")
        return f"weft::fetch_within<{points}>({at}, {self.stride(read.array, axis)}, {place}, {size})"

    def fetch(self, read: Read, again: bool = False) -> None:
        """Read a thread's points of a tile."""
        points, line, array = self.plan.points, self.writer.line, self.function.array(read.array)
        tile, axis = self.stem(f"{read.name}_tile"), step_of(read, self.scans.along)
        assert axis is not None
        self.writer.cite(read.location)
        taken = self.ahead.get(read.name) or self.taken(read, again)
        line(f"{register_type(array.dtype)} {tile}[{points}];")
        conditions = self.outside(read, axis)
        if self.here and any(w.array == read.array for w in self.scans.writes):
            conditions.append(self.here)  # another row's threads write what those beyond the last would read again
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

    def axes_of(self, expr: Expr) -> set[str]:
        return {a for n in free_names(expr) if n in self.made for a in axes_of_name(self.made[n], n)}

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
