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
        self.thread = "threadIdx.x"  # the thread's place among those of its row
        self.row = ""  # the row's place among all, "" where there is one
        self.rows_name = ""  # how many rows there are, where neighbouring threads have rows of their own and blocks share them
        self.first = ""  # the first of the neighbouring rows that a thread has, "" where it has one

    def rows(self) -> None:
        """Which row a thread works for: names of the axes of rows, and what is there only in blocks that share them."""
        plan, line = self.plan, self.writer.line
        if self.step.shared:
            line("const int64_t part = blockIdx.y;")
        axes = [self.axes[a] for a in plan.rows]
        counts = {a.name: self.span(a, f"{a.name}_count") for a in axes}
        if plan.beside:
            self.rows_beside(axes, counts)
            return
        if not axes:
            return
        team = f" * {plan.teams} + threadIdx.y" if plan.teams > 1 else ""
        named = len(axes) == 1 and axes[0].start == ZERO
        self.row = self.declare(axes[0].name) if named else self.fresh.fresh("row")
        line(f"const int64_t {self.row} = int64_t(blockIdx.x){team};")
        if plan.teams > 1 or plan.fewer:
            line(f"if ({self.row} >= {' * '.join(counts[a.name] for a in axes)}) return;")
        if not named:
            self.narrowly(axes, self.row, counts)

    def rows_beside(self, axes: list[Axis], counts: dict[str, str]) -> None:
        """Neighbouring rows for neighbouring threads."""
        plan, line = self.plan, self.writer.line
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

    def narrowly(self, axes: Sequence[Axis], place: str, counts: dict[str, str]) -> None:
        """The coordinates of a row, or of a point of one, as its place among all tells them."""
        if len(axes) > 1:
            place, counts = self.counted(place), {a: self.counted(c) for a, c in counts.items()}
        self.places(axes, place, counts)

    def counted(self, number: str) -> str:
        """A number of rows or points, as text that is divided in as many bits as it has."""
        return f"uint32_t({number})" if self.plan.narrow else number

    # ---------------------------------------------------------------- several rows of a thread

    def of_each_row(self, value: Read | Map | Fold) -> bool:
        """Whether a value is another one in each of the neighbouring rows that a thread has."""
        return bool(self.first) and self.plan.lane in value.axes

    @contextmanager
    def each_row(self, wanted: Iterable[Read | Map | Fold] = ()) -> Iterator[None]:
        """What is written here is done for every row of a thread; of its values, those of a row are computed before."""
        if not self.first:
            yield
            return
        rows, lane = set(self.sweeps.rows), self.plan.lane
        self.writer.line("#pragma unroll")
        with self.writer.block(f"for (int32_t v = 0; v < {self.plan.vector}; ++v)"):
            name, mark = self.declare(lane), self.writer.mark()
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
        self.writer.line(f"{type_} {name}[{self.plan.vector}];")
        if value:
            with self.each_row():
                self.writer.line(f"{name}[v] = {value};")
