"""Which row, columns and points a block has of states that grow by outer products, and what lies in its shared memory, as
CUDA C++.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

from weft.emit.expressions import SUM
from weft.emit.values import ZERO, ValueBody
from weft.graph.outer_states import OuterStates
from weft.loops.ir import Expr, Ref
from weft.plan.outer_states import (
    CHUNK,
    MOST_SHARED,
    Brought,
    OuterPlan,
    OuterStep,
    blocks_at_once,
    brought,
    held,
    held_states,
    in_pairs,
    meets,
    numbers,
    shared_bytes,
)


@dataclass
class OuterFrame(ValueBody):
    """A launch that goes through the points of one scan: what it has, and where."""

    found: OuterStates = None  # type: ignore[assignment]
    plan: OuterPlan = None  # type: ignore[assignment]
    step: OuterStep = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.along = self.axes[self.found.found.along]
        self.growth = self.found.growths[self.step.growth]
        self.takes = self.step.takes
        self.taken = self.found.taken_of(self.step.growth) if self.takes else ()
        self.meets = meets(self.found, self.step)
        self.paired = in_pairs(self.found)
        self.keeps = self.takes and bool(self.found.meetings) and not self.meets
        self.count = ""  # of points
        self.columns = ""  # the first column of a block
        self.before = ""  # points of the first chunk that are none
        self.memory: dict[str, str] = {}  # that launches leave for each other, by what it has
        self.row = ""  # the number of a block's row
        self.tiles: dict[Expr, str] = {}
        self.numbers = numbers(self.found, self.step)
        self.places_of = {e: name for name, e in reversed(self.numbers.items())}  # equal ones have one place
        self.stages = self.step.stages(self.plan)
        self.apart = self.step.apart(self.found, self.plan)
        self.warps = self.step.warps(self.found, self.plan)
        self.threads, self.groups = 32 * self.warps, self.warps // 4
        self.held = held(self.found, self.plan, self.step)
        self.own = brought(self.function, self.found, self.plan, self.facts, self.step)

    # ---------------------------------------------------------------- what launches have

    def left_by(self, what: str, growth: int | None = None) -> str:
        own = self.growth if growth is None else self.found.growths[growth]
        return self.memory[f"{own.scan.names[0]}.{what}"]

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor has at once."""
        size = shared_bytes(self.function, self.found, self.plan, self.facts, self.step)
        return max(1, blocks_at_once(self.found, self.plan, self.step, size, MOST_SHARED))

    def rows(self) -> None:
        """Which row, which of its columns and which of its points a block has."""
        line, plan, found = self.writer.line, self.plan, self.found
        (rows, columns), (first, second) = plan.widths, found.sides
        line(f"// a block has {rows} x {columns} states, and goes through its points {CHUNK} at a time")
        counts = {a: self.span(self.axes[a], f"{a}_count") for a in (*found.rows, second)}
        number = "int64_t(blockIdx.x)"
        if plan.shared:
            line("const int32_t segment = int32_t(blockIdx.x % parts);")
            number = "int64_t(blockIdx.x / parts)"
        if plan.tiled:
            tiles = self.fresh.fresh(f"{second}_tiles")
            line(f"const int64_t {tiles} = ({counts[second]} + {columns - 1}) / {columns};")
            self.columns = self.fresh.fresh(f"{second}_first")
            line(f"const int64_t {self.columns} = {number} % {tiles} * {columns};")
            number = f"{number} / {tiles}"
        self.places([self.axes[a] for a in found.rows], number, {a: counts[a] for a in found.rows})
        self.row = number
        self.count = self.span(self.along, f"{self.along.name}_count")
        sides = [self.span(self.axes[first], f"{first}_count"), counts[second]]
        self.here = [f"int32_t({sides[0]})", f"int32_t({sides[1]}{f' - {self.columns}' if self.columns else ''})"]

    def declare_shared(self) -> None:
        line, plan = self.writer.line, self.plan
        rows, columns = plan.widths
        line("// in shared memory: what products are made of, the states before a chunk, and numbers of its points")
        with self.writer.block("struct Shared", "};"):
            for own in self.own:
                wanted = own.value.name if isinstance(own.value, Ref) else "operand"
                self.tiles[own.value] = self.fresh.fresh(f"{wanted}_tile")
                line(f"weft::PartsTile<{CHUNK}, {plan.widths[own.side]}, {own.parts}> {self.tiles[own.value]}[{own.stages}];")
            if self.takes:
                line(f"weft::PartsTile<{rows}, {columns}, weft::exact_parts> states;")
            line("weft::ChunkWeights weights;")
            if self.meets:
                line(f"weft::{'ChunkPairs' if self.paired else 'ChunkMeeting'} meeting;")
            for name in self.places_of.values():
                line(f"alignas(16) float {name}[{self.stages}][{CHUNK}];")
        line("extern __shared__ __align__(1024) unsigned char memory[];")
        size = shared_bytes(self.function, self.found, plan, self.facts, self.step)
        line(f"static_assert(sizeof(Shared) <= {size});")
        line("Shared& shared = weft::kept_memory<Shared>(memory);")
        line(f"weft::OuterStates<{rows}, {columns}, {self.warps}> states;")
        line(f"static_assert(states.count * 4 == {held_states(self.found, plan, self.step)});")

    def chunks(self) -> None:
        line = self.writer.line
        line(f"const int32_t chunks = int32_t(({self.count} + {CHUNK - 1}) / {CHUNK});")
        if self.plan.shared:
            pieces = self.plan.pieces[self.step.growth]
            if self.takes or pieces == 1:
                line("const int32_t each = int32_t((chunks + parts - 1) / parts);")
                line("const int32_t first = segment * each, stop = weft::minimum<int32_t>(first + each, chunks);")
            else:
                line(f"// {pieces} blocks have the chunks that one of the next launch has")
                line(f"const int32_t all = int32_t((chunks + parts / {pieces} - 1) / (parts / {pieces}));")
                line(f"const int32_t each = (all + {pieces - 1}) / {pieces}, end = (segment / {pieces} + 1) * all;")
                line(f"const int32_t first = segment / {pieces} * all + segment % {pieces} * each;")
                line("const int32_t stop = weft::minimum<int32_t>(weft::minimum<int32_t>(first + each, end), chunks);")
        else:
            line("const int32_t first = 0, stop = chunks;")
        if self.found.meetings and self.step.growth:
            self.before = "before"
            line("// chunks are those of early states, so that the first of them may lack points")
            line(f"const int32_t before = int32_t(int64_t(chunks) * {CHUNK} - {self.count});")

    # ---------------------------------------------------------------- places

    @contextmanager
    def placed(self, point: str = "", sides: Mapping[int, str] = MappingProxyType({})) -> Iterator[None]:
        """What is written here is so at a point, and at places along sides of the states, as far as it asks for them."""
        lines = []
        if point:
            start, stop = self.printer.index(self.along.start, SUM), self.printer.index(self.along.stop, SUM)
            place = f"{stop} - 1 - {point}" if self.growth.scan.reverse else point if start == "0" else f"{start} + {point}"
            lines.append((self.declare(self.along.name), place))
        for side, lane in sides.items():
            axis = self.axes[self.found.sides[side]]
            place = f"{self.columns} + {lane}" if side == 1 and self.columns else lane
            start = "" if axis.start == ZERO else f"{self.printer.index(axis.start, SUM)} + "
            lines.append((self.declare(axis.name), f"{start}{place}"))
        mark = self.writer.mark()
        leaves = set(self.leaves)
        yield
        self.leaves = leaves
        for name, place in lines:
            if self.writer.mentions(name, mark):
                self.writer.insert(mark, f"const int64_t {name} = {place};")

    def points(self) -> None:
        """Which rows of a chunk are points."""
        if self.before:
            self.writer.line(f"const int32_t begin = chunk == 0 ? {self.before} : 0;")
        else:
            left_over = f"{self.count} - int64_t(chunk) * {CHUNK}"
            self.writer.line(f"const int32_t points = int32_t(weft::minimum<int64_t>({CHUNK}, {left_over}));")

    def point_of(self, row: str) -> str:
        """The number of a point, of its row in a chunk."""
        return f"int64_t(chunk) * {CHUNK} + {row}" + (f" - {self.before}" if self.before else "")

    @property
    def is_point(self) -> str:
        return "point >= 0" if self.before else f"point < {self.count}"

    def computed(self, exprs: Iterable[Expr]) -> None:
        """Compute the values that expressions need."""
        for value in self.needed(exprs):
            self.writer.cite(value.location)
            self.statements((self.let(value),))
            self.leaves.add(value.name)

    # ---------------------------------------------------------------- what is in shared memory

    @property
    def single(self) -> list[Brought]:
        """What has a place for one chunk, while others have more."""
        return [own for own in self.own if own.stages < self.stages]

    def ahead(self, name: str) -> str:
        """A number of a thread's point of the next chunk."""
        return f"{self.places_of[self.numbers[name]]}_ahead"

    def number(self, name: str) -> str:
        """Where the numbers of a chunk's points are."""
        return f"shared.{self.places_of[self.numbers[name]]}[stage]"

    def tile_of(self, value: Expr) -> str:
        return f"shared.{self.tiles[value]}[{'0' if value in [own.value for own in self.single] else 'stage'}]"

    @property
    def pair(self) -> tuple[str, str]:
        """What is added to the states is the product of these."""
        return self.tile_of(self.growth.left), self.tile_of(self.growth.right)
