"""A course of which some arrays lie along another axis than the rest: squares of both, turned in shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from weft.emit.courses import Entry, Tile
from weft.emit.expressions import SUM, memory_type, register_type
from weft.emit.subscripts import constant, sub
from weft.emit.values import ZERO
from weft.graph.tile import Axis, Read, Write
from weft.loops.types import ScalarType

_WORD = 4


@dataclass
class TurnedEntry(Entry):
    """first, run: of both axes, the first point of the square and of a thread's run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self.lane is not None
        self.packed, self.turned = True, self.axes[self.plan.turned]
        reads = [v for v in self.course.values if isinstance(v, Read)]
        over = set(self.plan.turns_over)
        names = {r.name for k, r in enumerate(reads) if k in over}
        self.direct = [t for t in self.tiles if t.read.name not in names]
        self.crossing = [t for t in self.tiles if t.read.name in names]
        self.leaving = [(w, k) for k, w in enumerate(self.course.writes, len(reads)) if k in over]
        self.keeping: dict[Write, str] = {}
        self.squares: dict[str, str] = {}
        both = (self.lane, self.turned)
        self.first, self.runs = ({a.name: self.fresh.fresh(f"{a.name}_{what}") for a in both} for what in ("first", "run"))
        self.limits: dict[str, tuple[str, str]] = {}

    def comment(self) -> None:
        side, vector = self.plan.side, self.plan.vector
        axes = " and ".join(a.name.replace(".", " to ") for a in (self.turned, self.lane) if a is not None)
        self.writer.line(f"// a block takes {side} x {side} of {axes}, a thread {vector} neighbours, {self.plan.turns} times")

    def place_rows(self) -> None:
        """Which square a block works for."""
        plan, line, axis = self.plan, self.writer.line, self.turned
        self.limits[axis.name] = self.ends(axis)
        others = [a for a in self.course.axes[:-1] if a is not axis]
        side, first = plan.side, self.first[axis.name]
        narrow = plan.narrow and bool(others)
        block = f"{'blockIdx.z' if narrow else 'int64_t(blockIdx.z)'} * gridDim.y + blockIdx.y"
        if not others:
            own = f"({block}) * {side}"
            line(f"const int64_t {first} = {own if axis.start == ZERO else f'{self.limits[axis.name][0]} + {own}'};")
            line(f"if ({first} >= {self.limits[axis.name][1]}) return;")
            return
        squares = Axis(f"{axis.name}.square", ZERO, ZERO)
        counts = {a.name: self.span(a, f"{a.name}_count") for a in others}
        many = counts[squares.name] = self.fresh.fresh(f"{axis.name}_squares")
        line(f"const int64_t {many} = ({self.printer.index(sub(axis.stop, axis.start), SUM)} + {side - 1}) / {side};")
        count = " * ".join([*(counts[a.name] for a in others), many])
        if narrow:
            counts = {a: f"uint32_t({c})" for a, c in counts.items()}
        line(f"const {'uint32_t' if narrow else 'int64_t'} row = {block};")
        line(f"if (row >= {f'uint32_t({count})' if narrow else count}) return;")
        self.places([*others, squares], "row", counts)
        own = f"{self.names[squares.name]} * {side}"
        line(f"const int64_t {first} = {own if axis.start == ZERO else f'{self.limits[axis.name][0]} + {own}'};")

    # ---------------------------------------------------------------- a square

    def along(self, lane: Axis) -> None:
        plan, line = self.plan, self.writer.line
        self.bounds = self.limits[lane.name] = self.ends(lane)
        first, run, cross = self.first[lane.name], self.runs[lane.name], self.runs[self.turned.name]
        assert plan.shift is not None
        origin = self.printer.index(sub(lane.start, constant(plan.shift)))
        block = f"int64_t(blockIdx.x) * {plan.side}"
        place = block if origin == "0" else f"{block} - {origin[1:]}" if origin.startswith("-") else f"{origin} + {block}"
        line(f"const int64_t {first} = {place};")
        own = "threadIdx.x" if plan.vector == 1 else f"threadIdx.x * {plan.vector}"
        line(f"const int64_t {run} = {first} + {own}, {cross} = {self.first[self.turned.name]} + {own};")
        self.run = run
        named = {t.read.name: Tile(t.read, self.fresh.fresh(f"{t.read.array}_tile"), t.width) for t in self.tiles}
        self.tiles = list(named.values())
        direct, crossing = ([named[t.read.name] for t in ts] for ts in (self.direct, self.crossing))
        self.declare_all(direct, crossing)
        if crossing:
            with self.each_cross():
                for t in crossing:
                    self.writer.cite(t.read.location)
                    line(f"weft::unpack({self.fetched(t)}, {self.tile(t)});")
        if direct:
            with self.each_turn():
                for t in direct:
                    self.fetch(t)
        if crossing:
            with self.each_step():
                for t in crossing:
                    line(f"{self.squares[t.name]}.put({self.here}, {self.tile(t)});")
            line("__syncthreads();")
        self.divide_once()
        with self.each_turn():
            for t in crossing:
                line(f"{self.squares[t.name]}.get({self.here}, {self.tile(t)});")
            self.compute()
        if self.leaving:
            self.leave()

    @property
    def here(self) -> str:
        return f"threadIdx.x, turn * {self.plan.down} + threadIdx.y"

    def declare_all(self, direct: list[Tile], crossing: list[Tile]) -> None:
        plan = self.plan
        each = f"[{plan.turns}][{plan.vector}]"
        for w, _ in self.leaving:
            self.keeping[w] = self.fresh.fresh(f"{w.array}_tile")
        wanted = [(t.name, t.read.array) for t in crossing] + [(name, w.array) for w, name in self.keeping.items()]
        for name, array in wanted:
            square = self.squares[name] = self.fresh.fresh(f"{array}_square")
            word = _word(self.function.array(array).dtype)
            self.writer.line(f"__shared__ weft::Turned<{word}, {plan.side}, {plan.vector}> {square};")
        for t in (*crossing, *direct):
            empty = " = {}" if t in crossing else ""
            self.writer.line(f"{register_type(self.function.array(t.read.array).dtype)} {t.name}{each}{empty};")
        for w, name in self.keeping.items():
            self.writer.line(f"{register_type(w.value.type)} {name}{each} = {{}};")

    def kept(self) -> dict[Write, str]:
        return {w: f"{name}[turn]" for w, name in self.keeping.items()}

    def leave(self) -> None:
        """Store what lies along the other axis."""
        line = self.writer.line
        with self.each_step():
            for name in self.keeping.values():
                line(f"{self.squares[name]}.put({self.here}, {name}[turn]);")
        line("__syncthreads();")
        with self.each_cross():
            for w, k in self.leaving:
                name = self.keeping[w]
                line(f"{self.squares[name]}.get({self.here}, {name}[turn]);")
                self.writer.cite(w.location)
                width, address = self.plan.widths[k], self.crossed(w)
                if self.plan.whole and width:
                    line(f"weft::store<{width}>({address}, {name}[turn]);")
                else:
                    line(f"weft::store_run<{width}>({address}, {self.cross_bounds()}, {name}[turn]);")

    # ---------------------------------------------------------------- turns

    @contextmanager
    def each_step(self) -> Iterator[None]:
        self.writer.line("#pragma unroll")
        with self.writer.block(f"for (int32_t turn = 0; turn < {self.plan.turns}; ++turn)"):
            yield

    @contextmanager
    def each_turn(self) -> Iterator[None]:
        """The points that a thread computes: runs along the lane, one below the other."""
        assert self.lane is not None
        with self.each_step(), self.below(self.turned, self.lane):
            yield

    @contextmanager
    def each_cross(self) -> Iterator[None]:
        """The points that a thread reads for others: runs along the other axis."""
        assert self.lane is not None
        with self.each_step(), self.below(self.lane, self.turned):
            yield

    @contextmanager
    def below(self, axis: Axis, along: Axis) -> Iterator[None]:
        name = self.declare(axis.name)
        self.writer.line(f"const int64_t {name} = {self.first[axis.name]} + turn * {self.plan.down} + threadIdx.y;")
        low, high = self.limits[axis.name]
        self.writer.line(f"if ({name} >= {high} || {self.runs[along.name]} >= {self.limits[along.name][1]}) break;")
        if axis is self.lane and self.plan.shift:
            self.writer.line(f"if ({name} < {low}) continue;")
        yield

    def crossed(self, access: Read | Write) -> str:
        """Where the run of an access along the other axis begins."""
        assert self.lane is not None
        with self.standing(self.turned.name, self.runs[self.turned.name]):
            pointer, done = self.base(access.array, access.index)
            offset = self.offset(access.array, access.index, done)
        return f"{pointer} + {offset}"

    def cross_bounds(self) -> str:
        return ", ".join((self.runs[self.turned.name], *self.limits[self.turned.name]))

    def fetched(self, t: Tile) -> str:
        vector, address = self.plan.vector, self.crossed(t.read)
        if self.plan.whole and t.width:
            return f"weft::fetch<{vector}, {t.width}>({address})"
        return f"weft::fetch_run<{vector}, {t.width}>({address}, {self.cross_bounds()})"


def _word(type_: ScalarType) -> str:
    """What an element is in shared memory: a word of its banks, or two."""
    own = register_type(type_)
    return own if type_.opmath.size >= _WORD and memory_type(type_) != "weft::boolean" else "int32_t"
