"""Which row of a sweep a thread works for, as CUDA C++: that of its block, that of its team, or several rows side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from weft.emit.expressions import SUM
from weft.emit.values import ZERO, ValueBody
from weft.graph.beside import Columns
from weft.graph.sweeps import Sweeps
from weft.graph.tile import Axis, Fold, Map, Read
from weft.plan.fold import BLOCK, FoldPlan, Step


@dataclass
class FoldRows(ValueBody):
    """What one launch of a plan knows of the rows that its threads have."""

    sweeps: Sweeps = None  # type: ignore[assignment]
    plan: FoldPlan = None  # type: ignore[assignment]
    step: Step = None  # type: ignore[assignment]
    columns: Columns | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        several = self.plan.longer and self.plan.threads < BLOCK  # in a block that may also have one row
        one = "0" if self.plan.threads == 1 else f"threadIdx.x % {self.plan.threads}"
        self.thread = one if several else "threadIdx.x"  # the thread's place among those of its row
        self.team = f"threadIdx.x / {self.plan.threads}" if several else "threadIdx.y"  # the row's among those of its block
        self.block = "blockIdx.x"  # the block's place among those of rows
        self.of_axes: dict[str, str] = {}  # how many rows there are along each axis, where that is told before
        self.row = ""  # the row's place among all, "" where there is one
        self.rows_name = ""  # how many rows there are, where neighbouring threads have rows of their own and blocks share them
        self.first = ""  # the first of the neighbouring rows that a thread has, "" where it has one
        self.elsewhere = ""  # how many of these other blocks have, too

    def rows(self) -> None:
        """Which row a thread works for: names of the axes of rows, and what is there only in blocks that share them."""
        plan, line = self.plan, self.writer.line
        if self.step.shared:
            line("const int64_t part = blockIdx.y;")
        axes = [self.axes[a] for a in plan.rows]
        counts = self.of_axes or {a.name: self.span(a, f"{a.name}_count") for a in axes}
        if plan.beside:
            tiles, group = self.tiles(axes, counts), self.block
            if plan.teams > 1:
                group = self.fresh.fresh("group")
                line(f"const int64_t {group} = int64_t({self.block}) * {plan.teams} + {self.team};")
            if plan.fewer or plan.teams > 1:
                line(f"if ({group} >= {' * '.join([tiles, *(counts[a.name] for a in axes[:-1])])}) return;")
            self.neighbours(axes, tiles, group, counts)
            own, count = self.row, counts[axes[-1].name]
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
        team = f" * {plan.teams} + {self.team}" if plan.teams > 1 else ""
        named = len(axes) == 1 and axes[0].start == ZERO
        self.row = self.declare(axes[0].name) if named else self.fresh.fresh("row")
        line(f"const int64_t {self.row} = int64_t({self.block}){team};")
        if plan.teams > 1 or plan.fewer:
            line(f"if ({self.row} >= {' * '.join(counts[a.name] for a in axes)}) return;")
        if not named:
            self.narrowly(axes, self.row, counts)

    def narrowly(self, axes: Sequence[Axis], place: str, counts: dict[str, str]) -> None:
        """The coordinates of a row, or of a point of one, as its place among all tells them."""
        if len(axes) > 1:
            place, counts = self.counted(place), {a: self.counted(c) for a, c in counts.items()}
        self.places(axes, place, counts)

    def counted(self, number: str) -> str:
        """A number of rows or points, as text that is divided in as many bits as it has."""
        return f"uint32_t({number})" if self.plan.narrow else number

    def several_rows(self, axes: list[Axis], counts: dict[str, str]) -> None:
        """The first of the rows that the threads of one have at once; where fewer are left, some of those before go along."""
        line, (*others, last) = self.writer.line, axes
        count, groups = counts[last.name], self.fresh.fresh(f"{last.name}_groups")
        line(f"// {self.plan.several} neighbours along {last.name} at once")
        line(f"const int64_t {groups} = ({count} + {self.plan.several - 1}) / {self.plan.several};")
        self.narrowly(others, f"int64_t(blockIdx.x / {self.counted(groups)})", counts)
        wanted, place, self.elsewhere = (self.fresh.fresh(f"{last.name}_{how}") for how in ("wanted", "place", "others"))
        line(f"const int64_t {wanted} = int64_t(blockIdx.x % {self.counted(groups)}) * {self.plan.several};")
        line(f"const int64_t {place} = weft::minimum<int64_t>({wanted}, {count} - {self.plan.several});")
        line(f"const int32_t {self.elsewhere} = int32_t({wanted} - {place});")
        self.first = place
        if last.start != ZERO:
            self.first = self.fresh.fresh(f"{last.name}_first")
            line(f"const int64_t {self.first} = {self.printer.index(last.start, SUM)} + {place};")
        self.row = self.fresh.fresh("row")
        if self.step.shared or self.plan.shared:
            line(f"const int64_t {self.row} = int64_t(blockIdx.x / {self.counted(groups)}) * {count} + {place};")

    def tiles(self, axes: Sequence[Axis], counts: dict[str, str]) -> str:
        """How many groups of neighbouring rows there are along the lane."""
        lane, side, vector = axes[-1], self.plan.across[0][0], self.plan.vector
        tiles, each = self.fresh.fresh(f"{lane.name}_tiles"), f"{vector} of them" if vector > 1 else "one"
        down = self.plan.threads // side
        whose = f"{down} threads for each" if down > 1 else "a thread for each"
        self.writer.line(f"// {side * vector} neighbours along {lane.name}, {whose}; a thread has {each}")
        self.writer.line("// and those beyond the end repeat the last")
        self.writer.line(f"const int64_t {tiles} = ({counts[lane.name]} + {side * vector - 1}) / {side * vector};")
        return tiles

    def neighbours(self, axes: Sequence[Axis], tiles: str, group: str, counts: dict[str, str]) -> None:
        """The rows of a thread in a group of neighbours, by its number among all."""
        lane, side, vector, line = axes[-1], self.plan.across[0][0], self.plan.vector, self.writer.line
        count, place = counts[lane.name], self.fresh.fresh(f"{lane.name}_place")
        x = (self.thread if side == self.plan.threads else f"threadIdx.x % {side}") + (f" * {vector}" if vector > 1 else "")
        group = group if group == "blockIdx.x" else self.counted(group)
        line(f"const int64_t {place} = int64_t({group} % {self.counted(tiles)}) * {side * vector} + {x};")
        line(f"const bool here = {place} < {count};")
        self.narrowly(axes[:-1], f"int64_t({group} / {self.counted(tiles)})", counts)
        own = self.declare(lane.name) if lane.start == ZERO and vector == 1 else self.fresh.fresh(f"{lane.name}_first")
        line(f"const int64_t {own} = weft::minimum<int64_t>({place}, {count} - {vector});")
        self.first = own if vector > 1 else ""
        if lane.start != ZERO:  # in vectors rows start at 0
            line(f"const int64_t {self.declare(lane.name)} = {self.printer.index(lane.start, SUM)} + {own};")
        self.row = own

    @property
    def many(self) -> int:
        """How many rows a thread has at once."""
        return self.plan.several if self.plan.several > 1 else self.plan.vector

    # ---------------------------------------------------------------- several rows of a thread

    def of_each_row(self, value: Read | Map | Fold) -> bool:
        """Whether a value is another one in each of the neighbouring rows that a thread has."""
        return bool(self.first) and self.plan.rows[-1] in value.axes

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
