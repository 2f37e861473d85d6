"""Products as CUDA C++: a block has a square of results, and takes the points of its operands a tile at a time.

How a tile comes to shared memory and what makes results of it differs: `weft.emit.square_products` and
`weft.emit.matrix_products`. This is what they have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Self

from weft.emit.algebras import algebra_type, join
from weft.emit.cpp_body import factor
from weft.emit.dependent import Dependence
from weft.emit.expressions import PRODUCT, SUM, TERNARY, memory_type, register_type
from weft.emit.names import Names, kernel_entry, words
from weft.emit.text import Writer
from weft.emit.thread_body import parameters
from weft.emit.values import ZERO, ValueBody, deciding
from weft.graph.products import Operand, Products
from weft.graph.sweeps import Sweep
from weft.graph.tile import Fold, Map, Read, Write, names_of, starts_neutral, uses, uses_of_write
from weft.loops.ir import Const, Expr, Function, Op, Ref, free_names, free_names_of, reachable
from weft.loops.schedule import Nest
from weft.plan.arguments import Facts
from weft.plan.fold import PACKET_BYTES, WARP
from weft.plan.merged import told_apart
from weft.plan.product import (
    LINE_PAD,
    RUN,
    WORD,
    ProductPlan,
    Staged,
    made_of,
    operand_reads,
    packed_type,
    result_reads,
)

# Points that are folded for a result by itself whose loads are in flight.
ENDING_UNROLL = 16
# Names that texts declare.
_OWN = """
    outside here row point place square memory u v h g q e group across down now turn turns lane full empty step
    round near_row near_rows batch parts part item first_turn stop begin own_points own_row own_column first_own_row
    first_own_column squares bring run warp part_run rank lane line_row line_column first_line crew called called_before
    first packet packets tile line lines chunk chunks
    pitch
"""


@dataclass(frozen=True)
class Tile:
    """An operand in this kernel: the names of its tile in shared memory, of what a thread has of it, and of what it has read of
    the next turn, by the reads' names. packed: which operand it is of those in packets, if it is one.
    """

    operand: Operand
    staged: Staged
    left: bool
    tile: str
    own: str = ""
    reads: Mapping[str, str] = field(default_factory=dict)
    packed: int | None = None

    @property
    def whole(self) -> bool:
        """Whether the operand is what is read."""
        return self.packed is not None or isinstance(self.operand.value, Ref) and [*self.reads] == [self.operand.value.name]


@dataclass(frozen=True)
class Fragment:
    """The results that a thread has: the u-th of `rows`, or what `each` is; of columns, runs of `run` neighbours, the h-th of
    which begins at `column`. As C++, counted from the block's first.
    """

    rows: int
    row: str
    runs: int
    run: int
    column: str
    each: str = "u"


@dataclass(frozen=True)
class Ahead:
    """What is read of results before their runs of columns are gone through: `depth` runs of them. fetch: the name of what
    begins to read those of a run; packets: where they are, by the names of reads; row: of those of a run, as C++.
    """

    depth: int
    fetch: str
    packets: Mapping[str, str]
    row: str


@dataclass
class ProductEntry(ValueBody):
    """The one launch of a plan."""

    products: Products = None  # type: ignore[assignment]
    plan: ProductPlan = None  # type: ignore[assignment]
    launch: Dependence = Dependence()

    @classmethod
    def included(cls, plan: ProductPlan) -> str:
        """What a text includes for its tiles."""
        raise NotImplementedError

    @classmethod
    def begun(
        cls,
        function: Function,
        nest: Nest,
        facts: Facts,
        writer: Writer,
        products: Products,
        plan: ProductPlan,
        launch: Dependence,
    ) -> Self:
        own = words(_OWN)
        sweeps = products.sweeps
        told = {a.name: a for a in sweeps.axes.values() if "." not in a.name}  # axes that are counted as one are boxes
        parts = told_apart(sweeps, plan.merged)
        varies = deciding(told, [v for v in sweeps.values if not parts & {*names_of(v)}])
        large = varies | {s.name for s in function.scalars} | {o.name for o in (*products.operands, *products.owns)}  # wraps
        return cls(
            function, nest, facts, writer, Names(frozenset({*own, kernel_entry(nest.name)})), {}, {}, varies, large,
            axes=sweeps.axes, values=sweeps.values, products=products, plan=plan, launch=launch,
        )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        self.parts: dict[str, str] = {}  # where they are
        self.counts: dict[str, str] = {}
        self.firsts: dict[str, str] = {}  # of rows, columns and points: the first of the block, or of the turn
        self.wholes: dict[str, str] = {}  # how many there are
        self.packed: dict[int, str] = {}  # where operands are in packets
        self.squares: dict[str, str] = {}  # tiles of rows and of columns
        self.totals: dict[str, str] = {}
        self.told: dict[str, str] = {}  # what blocks tell each other through
        self.of_rows: dict[str, str] = {}  # what rows fold
        self.rows_known: tuple[Fold, ...] = ()  # of that, what has been folded
        self.on_the_way: Ahead | None = None  # what all rows of the results that come next have in common
        self.number = ""  # of a square
        self.known_early: set[str] = set()  # what is known of a thread's one result before its totals
        self.whole: dict[str, str] = {}  # where a column's total is, when it is no register of `total`

    # ---------------------------------------------------------------- the kernel

    def emit(self, entry: str) -> None:
        lines = ",\n    ".join(self.parameters())
        self.writer.cite(self.function.location)
        with self.kernel(entry, lines, self.bounds()):
            self.body()

    def bounds(self) -> str:
        """How many threads a block has, and blocks a multiprocessor and a cluster."""
        resident = f", {self.plan.resident}" if self.plan.resident > 1 or self.plan.roomy else ""
        cluster = f" __cluster_dims__({self.plan.cluster}, 1, 1)" if self.plan.cluster > 1 else ""
        return f"__launch_bounds__({self.plan.threads}{resident}){cluster}"

    @property
    def sets_up(self) -> bool:
        """Whether it makes barriers, before it awaits the launch before it."""
        return False

    @contextmanager
    def kernel(self, entry: str, parameters: str, bounds: str) -> Iterator[None]:
        """The kernel's text around its body, at whose end it stops where data have decided what is out of its range."""
        with self.writer.block(f'extern "C" __global__ void {bounds} {entry}(\n    {parameters})'):
            if not (self.sets_up and self.launch.early):
                self.launch.begin(self.writer)
            mark = self.writer.mark()
            yield
            self.stop_outside(mark)

    def body(self) -> None:
        self.sizes()
        self.square(f"int32_t(blockIdx.x){f' / {self.plan.parts}' if self.plan.parts > 1 else ''}")
        self.which_part()
        self.fold_points()
        self.finish()

    def which_part(self) -> None:
        """Which of a square's parts a block has."""
        if self.plan.parts > 1:
            self.writer.line(f"const int32_t part = int32_t(blockIdx.x % {self.plan.parts});")

    def finish(self) -> None:
        """What is done with the totals."""
        self.launch.end(self.writer)
        if self.plan.parts > 1:
            self.end(self.leave_parts)
        else:
            self.end(self.lines if self.plan.lines else self.results)

    def parameters(self) -> list[str]:
        given = parameters(self.function, self.nest, self.facts, self)
        for k, (operand, _, _, base) in enumerate(self.tiles()):
            if self.plan.packed and self.plan.packed[k]:
                type_ = packed_type(self.function, self.plan, self.products, operand)
                name = self.packed[k] = self.fresh.fresh(f"{base}_packed")
                given.append(f"{memory_type(type_)}* {name}")
        if self.plan.leaves_parts:
            for f in self.products.folds:
                name = self.parts[f.results[0]] = self.fresh.fresh(f"{f.names[0]}_parts")
                given.append(f"{register_type(f.types[0])}* {name}")
        if self.plan.across > 1:
            for f in (f for stage in self.products.across for f in stage):
                name = self.told[f.results[0]] = self.fresh.fresh(f"{f.names[0]}_told")
                given.append(f"uint64_t* {name}")
        return [*given, "const int64_t parts"] if self.packed or self.parts or self.told else given

    def shape(self) -> str:
        """What a block and a thread have, in words."""
        raise NotImplementedError

    def places_of_thread(self) -> None:
        """Declare where the rows and the columns of a thread begin in the block's."""
        raise NotImplementedError

    def begin_totals(self) -> None:
        """Declare what a thread has folded."""
        raise NotImplementedError

    def fold_points(self) -> None:
        """Go through all points, or those of a part."""
        raise NotImplementedError

    def end(self, results: Callable[[], None]) -> None:
        """After all points: totals are then what `total` says."""
        results()

    def total(self, f: Fold, column: str) -> str:
        """What is folded for the thread's u-th row and this of its columns."""
        raise NotImplementedError

    @property
    def fragment(self) -> Fragment:
        raise NotImplementedError

    def sizes(self) -> None:
        """How many results and points there are, and squares of them: less than 2^31, as the plan has seen to it."""
        plan, found, line = self.plan, self.products, self.writer.line
        line(f"// {self.shape()}")
        for what, axes in (("rows", found.rows), ("columns", found.columns), ("points", found.over), ("batch", found.batch)):
            self.counts |= {a: self.span(self.axes[a], f"{a}_count") for a in axes}
            if len(axes) > 1:  # numbers of them are divided by these
                for a in axes:
                    count, self.counts[a] = self.counts[a], self.fresh.fresh(f"{a}_own")
                    line(f"const int32_t {self.counts[a]} = int32_t({count});")
            whole = " * ".join(self.counts[a] for a in axes)
            if len(axes) > 1:
                self.wholes[what] = self.fresh.fresh(what)
                line(f"const int32_t {self.wholes[what]} = {whole};")
            else:
                self.wholes[what] = whole
        rows = () if plan.streamed else (("rows", plan.tile[0]),)  # all of which a block has
        for what, own in (*rows, ("columns", plan.tile[1])):
            name = self.squares[what] = self.fresh.fresh(f"{what.removesuffix('s')}_tiles")
            line(f"const int32_t {name} = int32_t(({factor(self.wholes[what])} + {own - 1}) / {own});")

    def square(self, number: str) -> None:
        """The first row and column of a square, and of which of the batch it is. Squares of some tiles below each other follow
        each other: they read the same columns.
        """
        plan, line, rows, columns = self.plan, self.writer.line, self.squares["rows"], self.squares["columns"]
        if self.products.batch:
            line(f"const int32_t batch = {factor(number)} / ({rows} * {columns});")
            self.places([self.axes[a] for a in self.products.batch], "batch", self.counts)
            number = f"{factor(number)} % ({rows} * {columns})"
        if not number.isidentifier():
            line(f"const int32_t square = {number};")
        if plan.across:
            row, column = f"square / {columns}", "part" if plan.across > 1 else "0"
            if plan.across > 1:
                line(f"const int32_t part = square % {columns};")
        elif plan.near > 1:
            line(f"const int32_t near_row = square / ({plan.near} * {columns}) * {plan.near};")
            line(f"const int32_t near_rows = weft::minimum<int32_t>({rows} - near_row, {plan.near});")
            row = f"near_row + square % ({plan.near} * {columns}) % near_rows"
            column = f"square % ({plan.near} * {columns}) / near_rows"
        else:
            row, column = f"square % {rows}", f"square / {rows}"
        for what, tile, own in (("rows", row, plan.tile[0]), ("columns", column, plan.tile[1])):
            name = self.firsts.setdefault(what, self.fresh.fresh(f"first_{what.removesuffix('s')}"))
            line(f"const int64_t {name} = int64_t({tile}) * {own};")

    # ---------------------------------------------------------------- operands

    def tiles(self) -> Iterator[tuple[Operand, Staged, bool, str]]:
        """The operands, whether they are left, and what their names are made of."""
        found = self.products
        for k, (operand, staged) in enumerate(zip(found.operands, self.plan.staged, strict=True)):
            left = k < len(found.left)
            yield operand, staged, left, operand.name if "operand." not in operand.name else "left" if left else "right"

    def fetches(self, tile: Tile) -> int:
        """How many packets of an operand a thread brings in a turn, at the most."""
        m, n, k = self.plan.tile
        return max(1, (m if tile.left else n) * k // tile.staged.vector // self.plan.threads)

    @contextmanager
    def packets(self, tile: Tile, located: bool) -> Iterator[None]:
        """What is written here is done for each packet that a thread brings of an operand, at its place in the tile (`row`,
        `point`). located: and among all; `here` says whether it is there.
        """
        m, n, k = self.plan.tile
        vector, rows = tile.staged.vector, m if tile.left else n
        count, threads, line = self.fetches(tile), self.plan.threads, self.writer.line
        own = "threadIdx.x" if count == 1 else f"(threadIdx.x + q * {threads})"
        if count > 1:
            line("#pragma unroll")
            header = f"for (int32_t q = 0; q < {count}; ++q)"
        else:
            packets = rows * k // vector
            header = f"if (threadIdx.x < {packets})" if packets < threads else ""
        with self.writer.block(header):
            by = f" * {vector}" if vector > 1 else ""
            if tile.staged.along_points:
                line(f"const int32_t row = {own} / {k // vector}, point = {own} % {k // vector}{by};")
            else:
                line(f"const int32_t row = {own} % {rows // vector}{by}, point = {own} / {rows // vector};")
            if located:
                line(f"const bool here = {' && '.join(self.located(tile))};")
            yield

    def located(self, tile: Tile) -> list[str]:
        """Declare the coordinates of an element at this place of its tile; that its row is there, and that its point is."""
        side, axes = ("rows", self.products.rows) if tile.left else ("columns", self.products.columns)
        return [
            self.place_of(axes, self.firsts[side], "row", self.wholes[side]),
            self.place_of(self.products.over, self.firsts["points"], "point", self.wholes["points"]),
        ]

    def place_of(self, axes: tuple[str, ...], first: str, own: str, whole: str) -> str:
        """Declare the coordinates of a row, a column or a point; that it is there."""
        if len(axes) == 1 and self.axes[axes[0]].start == ZERO:
            name = self.declare(axes[0])
            self.writer.line(f"const int64_t {name} = {sum_of(first, own)};")
            return f"{name} < {factor(whole)}"
        place = self.fresh.fresh(f"{own}_place" if own.isidentifier() else "place_here")
        number = sum_of(first, own)
        self.writer.line(f"const int32_t {place} = {number if first == '0' else f'int32_t({number})'};")
        self.places([self.axes[a] for a in axes], place, self.counts)
        return " && ".join([f"{place} < {factor(whole)}", *self.before_ends(axes)])

    def before_ends(self, axes: Iterable[str]) -> list[str]:
        """That places of axes that go on are before the program's ends."""
        ends = [] if self.plan.window is None else [(a, self.plan.window.end(a)) for a in axes]
        return [f"{self.names[a]} < {self.printer.index(e, SUM)}" for a, e in ends if e is not None]

    @property
    def beyond(self) -> str:
        """What is done where no result is: none comes after it, unless there are some between that are none."""
        return "break" if self.plan.window is None else "continue"

    def packed_address(self, tile: Tile, k: int) -> str:
        """Where a packet of an operand is that is in packets."""
        side = "rows" if tile.left else "columns"
        line, lines, first, own = "points", side, "point", "row"
        if not tile.staged.along_points:
            line, lines, first, own = side, "points", "row", "point"
        packet = tile.staged.vector
        width = f"(({self.wholes[line]} + {packet - 1}) / {packet} * {packet})"
        place = f"{self.firsts[lines]} + {own}"
        place = f"(batch * {factor(self.wholes[lines])} + {place})" if self.products.batch else f"({place})"
        return f"{self.packed[k]} + {place} * {width} + {self.firsts[line]} + {first}"

    def lane_of(self, tile: Tile) -> str:
        """The axis along which an operand is brought."""
        own = self.products.over if tile.staged.along_points else self.products.rows if tile.left else self.products.columns
        return own[-1]

    def compute(self, tile: Tile, there: Mapping[str, str], value: str) -> None:
        """`value` = an operand at a point. there: the names of its reads that have been read."""
        with self.spelled(there):
            wanted = [w for w in operand_reads(self.products, tile.operand) if w.name not in there]
            reached = self.reached(tile.operand.value, wanted)
            self.statements(tuple(self.let(w) for w in wanted if w.name in reached))
            self.writer.line(f"{value} = {self.printer.value(tile.operand.value)};")

    def reached(self, value: Expr, values: list[Read | Map]) -> set[str]:
        """Those of some values that an expression is made of, without what others are."""
        by_name = {v.name: v for v in values}

        def after(exprs: Iterable[Expr]) -> set[str]:
            return free_names_of(exprs) & by_name.keys()

        return reachable(after((value,)), lambda name: after(uses(by_name[name])))

    # ---------------------------------------------------------------- folds and results

    def algebra(self, f: Fold) -> str:
        return algebra_type(f.algebra, register_type(f.types[0]))

    def operands_of(self, f: Fold, tiles: list[Tile]) -> list[tuple[Tile, Tile]]:
        """The left and the right tile of each product that a fold sums."""
        named = {t.operand.name: t for t in tiles}
        return [(named[left], named[right]) for left, right in self.products.terms(f)]

    def fold(self, f: Fold, own: str) -> None:
        """`own` = it and a point of a fold."""
        self.writer.cite(f.location)
        part, text = f.parts[0], "{}"
        match part:
            case Op(name="where", args=(condition, taken, Const(value=0))) if f.algebra == "sum":
                part, text = taken, f"{self.printer.value(condition, TERNARY + 1)} ? {{}} : {own}"
        fused = self.printer.accumulated(own, part) if f.algebra == "sum" else None
        text = text.format(fused or f"{self.algebra(f)}::combine({own}, {self.printer.value(part)})")
        self.writer.line(f"{own} = {text};")

    def leave_parts(self) -> None:
        """What a thread has folded of its part of the points, for the next launch: squares of results as they lie."""
        (m, n, _), own = self.plan.tile, self.fragment
        for f in self.products.folds:
            type_, name = f.types[0], self.parts[f.results[0]]
            with self.each_run():
                self.writer.line(f"{register_type(type_)} part_run[{own.run}];")
                value = self.total(f, f"h * {own.run} + v")
                self.unrolled([f"for (int32_t v = 0; v < {own.run}; ++v)"], f"part_run[v] = {value};")
                place = f"{name} + ((int64_t(blockIdx.x) * {m} + {own.row}) * {n} + {own.column})"
                self.writer.line(f"weft::store<{min(own.run, PACKET_BYTES // type_.size)}>({place}, part_run);")

    @contextmanager
    def each_run(self) -> Iterator[None]:
        """What is written here is done for each run of columns, and each row, that a thread has."""
        own = self.fragment
        with self.unrolled_block([f"for (int32_t h = 0; h < {own.runs}; ++h)", f"for (int32_t u = 0; u < {own.rows}; ++u)"]):
            yield

    def results_of_runs(self, first: str, step: int, part: Callable[[Fold], str], count: int) -> None:
        """Results that are there in parts, the g-th at an address: a thread has every so manieth run of columns of a square."""
        (m, n, _), run = self.plan.tile, self.plan.run
        runs = m * n // run
        with self.writer.block(f"for (int32_t item = {first}; item < {runs}; item += {step})"):
            self.place_of_run("item")
            self.combine_runs(part, count)
            self.results()

    def place_of_run(self, number: str) -> None:
        """The row and the first column of a run of a square."""
        n, run = self.plan.tile[1], self.plan.run
        self.writer.line(f"const int32_t own_row = {number} / {n // run}, own_column = {number} % {n // run} * {run};")

    def combine_runs(self, part: Callable[[Fold], str], count: int) -> None:
        """The totals of a run, of parts in their order; from here on these are a thread's."""
        line, run = self.writer.line, self.plan.run
        for f in self.products.folds:
            type_, own = register_type(f.types[0]), self.fresh.fresh(f"{f.names[0]}_whole")
            line(f"{type_} {own}[{run}];")
            self.unrolled([f"for (int32_t v = 0; v < {run}; ++v)"], f"{own}[v] = {self.algebra(f)}::identity();")
            with self.unrolled_block([f"for (int32_t g = 0; g < {count}; ++g)"]):
                line(f"{type_} part_run[{run}];")
                width = min(run, PACKET_BYTES // f.types[0].size)
                line(f"weft::unpack(weft::fetch<{run}, {width}>({part(f)}), part_run);")
                text = f"{own}[v] = {self.algebra(f)}::combine({own}[v], part_run[v]);"
                self.unrolled([f"for (int32_t v = 0; v < {run}; ++v)"], text)
            self.whole[f.results[0]] = f"{own}[{{0}}]"

    def unrolled(self, headers: list[str], *actions: str) -> None:
        """Loops one in the other, unrolled."""
        if not headers:
            for action in actions:
                self.writer.line(action)
            return
        self.writer.line("#pragma unroll")
        with self.writer.block(headers[0]):
            self.unrolled(headers[1:], *actions)

    @contextmanager
    def unrolled_block(self, headers: list[str]) -> Iterator[None]:
        """What is written here is in loops one in the other, unrolled."""
        if not headers:
            yield
            return
        self.writer.line("#pragma unroll")
        with self.writer.block(headers[0]):
            if headers[1:]:
                with self.unrolled_block(headers[1:]):
                    yield
            else:
                yield

    def lines(self) -> None:
        """The results of a warp, a line of its columns after the other: what threads have of a few rows goes through memory
        that they share, so that neighbouring threads write neighbours.
        """
        line, plan, own, kept = self.writer.line, self.plan, self.fragment, self.lines_place()
        rows, across, step = plan.line_rows, WARP // plan.line_rows, RUN if plan.engine == "fma" else 1
        together = max(1, WARP // (across * own.run))  # runs of a thread in a line
        line(f"const int32_t lane = threadIdx.x % {WARP}, line_row = {self.lane_row}, line_column = {self.lane_column};")
        steps = f"h += {together}" if together > 1 else "++h"
        with self.unrolled_block(
            [f"for (int32_t h = 0; h < {own.runs}; {steps})", f"for (int32_t u = 0; u < {own.rows}; ++u)"]
        ):
            for f in self.products.folds:
                for e in range(together):
                    more = f" + {e}" if e else ""
                    place = f"{kept[f.results[0]]}[line_row][line_column{f' + {e * across * own.run}' if e else ''} + v]"
                    column = f"(h{more}) * {own.run} + v" if e else f"h * {own.run} + v"
                    text = f"{place} = {self.total(f, column)};"
                    self.unrolled([f"for (int32_t v = 0; v < {own.run}; ++v)"], text)
            line("__syncwarp();")
            line(f"const int32_t first_line = weft::shuffle({own.row}, 0, 32);")
            line(f"const int32_t own_column = weft::shuffle({own.column}, 0, 32) + lane;")
            self.whole = {r: f"{name}[g][lane]" for r, name in kept.items()}
            by = f" * {step}" if step > 1 else ""
            self.results(Fragment(rows, f"first_line + g{by}", 1, 1, "own_column", "g"))
            self.whole = {}
            line("__syncwarp();  // all have read what the next lines replace")

    def lines_place(self) -> dict[str, str]:
        """Declare where the lines of a warp are, such that rows below each other lie in other banks."""
        found, plan = {}, self.plan
        warps, width = plan.writing // WARP, WARP + LINE_PAD
        for f in self.products.folds:
            name = self.fresh.fresh(f"{f.names[0]}_lines")
            type_ = register_type(f.types[0])
            self.writer.line(f"__shared__ __align__(16) {type_} {name}[{warps}][{plan.line_rows}][{width}];")
            found[f.results[0]] = f"{name}[threadIdx.x / {WARP}]"
        return found

    @property
    def lane_row(self) -> str:
        """Of a thread of a warp: which of the rows its are that a line each is told of together."""
        raise NotImplementedError

    @property
    def lane_column(self) -> str:
        """The same of columns, the first of a run."""
        raise NotImplementedError

    def results(self, own: Fragment | None = None) -> None:
        """What is written once a result."""
        writes = self.products.sweeps.last
        self.go_through_results([e for w in writes for e in uses_of_write(w)], writes, (), own)

    def go_through_results(
        self, exprs: Sequence[Expr], writes: Sequence[Write], folds: Sequence[Fold], own: Fragment | None = None
    ) -> None:
        """What is written, or folded, once a result: columns in runs, each in all of the thread's rows. exprs: of these."""
        line, found, vector = self.writer.line, self.products, self.plan.vector
        own = own or (Fragment(1, "own_row", 1, self.plan.run, "own_column") if self.whole else self.fragment)
        wanted = self.wanted(exprs)
        once = [v for v in wanted if set(v.axes) <= set(found.batch)]
        self.statements(tuple(map(self.let, once)))
        wanted = [v for v in wanted if v not in once]
        lane = found.columns[-1]
        of_columns, of_both = self.reads_along_columns(wanted)
        begin, count = self.runs_of(own)
        run = ""
        loop = [] if self.whole and count == 1 else [f"for (int32_t h = 0; h < {count}; ++h)"]
        ahead = self.ahead(of_both, own, self.ahead_words) if loop else None
        of_columns_ahead, self.on_the_way = self.on_the_way or (self.columns_ahead(of_columns, own) if loop else None), None
        with self.unrolled_block(loop):
            if vector == 1:
                here = self.place_of(found.columns, self.firsts["columns"], begin, self.wholes["columns"])
            else:
                run = self.fresh.fresh(f"{lane}_run")
                line(f"const int64_t {run} = {sum_of(self.firsts['columns'], begin)};")
                here = f"{run} < {self.wholes['columns']}"
            if loop:
                line(f"if (!({here})) {self.beyond};" if vector == 1 else f"if ({run} >= {self.wholes['columns']}) break;")
            with nullcontext() if loop else self.writer.block(f"if ({here})"):
                known = self.run_reads(of_columns, lane, run, of_columns_ahead)
                for asked in (a for a in (of_columns_ahead, ahead) if a is not None and a.depth <= count):
                    line(f"if (h + {asked.depth - 1} < {count}) {asked.fetch}(h + {asked.depth - 1});")
                line("#pragma unroll")
                with self.writer.block(f"for (int32_t {own.each} = 0; {own.each} < {own.rows}; ++{own.each})"):
                    here = self.place_of(found.rows, self.firsts["rows"], own.row, self.wholes["rows"])
                    line(f"if (!({here})) {self.beyond};")
                    known |= self.run_reads(of_both, lane, run, ahead)
                    self.row(wanted, known, lane, run, "h" if loop else "0", writes, folds)

    def wanted(self, exprs: Sequence[Expr]) -> list[Read | Map]:
        """What results are made of beside what is folded, and not known yet."""
        wanted = self.needed([*exprs, *self.products.inits])
        return [v for v in wanted if not isinstance(v, Fold) and v.name not in self.known_early]

    def reads_along_columns(self, wanted: list[Read | Map]) -> tuple[list[Read], list[Read]]:
        """Those of them that are read in packets: that all rows have in common, and that each result has of its own."""
        reads = result_reads(self.products, self.products.columns[-1]) if self.plan.vector > 1 else []
        reads = [v for v in reads if v in wanted]
        of_columns = [v for v in reads if not set(v.axes) & set(self.products.rows)]
        return of_columns, [v for v in reads if v not in of_columns]

    def runs_of(self, own: Fragment) -> tuple[str, int]:
        """The first column of the h-th run of what is written together, and how many these are."""
        vector, inside = self.plan.vector, own.run // self.plan.vector
        begin = own.column if inside == 1 else f"{own.column.replace('h', f'(h / {inside})')} + h % {inside}"
        return begin + (f" * {vector}" if inside > 1 and vector > 1 else ""), own.runs * inside

    @property
    def ahead_words(self) -> int:
        """What a thread has of results that come next, at the most."""
        return 0

    def columns_ahead(self, reads: list[Read], own: Fragment) -> Ahead | None:
        """Begin to read what all rows have in common; None where there is nothing, or no room."""
        return None

    def ahead(self, reads: list[Read], own: Fragment, room: int, by_rows: bool = True) -> Ahead | None:
        """Begin to read what each result has of its own, some runs of columns before they are gone through; None where there is
        nothing, or no room. by_rows: else what all rows have in common.
        """
        line, vector, (begin, count), lane = self.writer.line, self.plan.vector, self.runs_of(own), self.products.columns[-1]
        rows = own.rows if by_rows else 1
        words = sum(rows * vector * self.function.array(v.array).dtype.size // WORD for v in reads)
        depth = min(count, room // words) if words else 0
        if depth < 2:
            return None
        packets = {v.name: self.fresh.fresh(f"{v.array}_ahead") for v in reads}
        for v in reads:
            type_ = memory_type(self.function.array(v.array).dtype)
            line(f"weft::Run<{type_}, {vector}> {packets[v.name]}[{depth}][{rows}];")
        fetch = self.fresh.fresh("fetch_ahead")
        with self.writer.block(f"const auto {fetch} = [&](const int32_t h)", "};"):
            run = self.fresh.fresh(f"{lane}_run")
            line(f"const int64_t {run} = {sum_of(self.firsts['columns'], begin)};")
            if not by_rows:
                self.fetch_packets(reads, packets, run, f"[h % {depth}][0]", f"{run} < {self.wholes['columns']}")
            else:
                line("#pragma unroll")
                with self.writer.block(f"for (int32_t {own.each} = 0; {own.each} < {own.rows}; ++{own.each})"):
                    here = self.place_of(self.products.rows, self.firsts["rows"], own.row, self.wholes["rows"])
                    here = f"{run} < {self.wholes['columns']} && {here}"
                    self.fetch_packets(reads, packets, run, f"[h % {depth}][{own.each}]", here)
        self.unrolled([f"for (int32_t h = 0; h < {depth - 1}; ++h)"], f"{fetch}(h);")
        return Ahead(depth, fetch, packets, own.each if by_rows else "0")

    def fetch_packets(self, reads: list[Read], packets: Mapping[str, str], run: str, place: str, here: str) -> None:
        """Begin to read a run of columns."""
        for v in reads:
            self.writer.cite(v.location)
            with self.spelled({self.products.columns[-1]: run}):
                address, width = self.address(v.array, v.index), self.width(v.array, self.plan.vector)
                asked = f"weft::fetch_if<{self.plan.vector}, {width}>({here}, {address})"
                self.writer.line(f"{packets[v.name]}{place} = {asked};")

    def run_reads(self, reads: list[Read], lane: str, run: str, ahead: Ahead | None = None) -> dict[str, str]:
        """Read what lies along the columns, in packets, or take what has been read."""
        known, vector = {}, self.plan.vector
        for v in reads:
            self.writer.cite(v.location)
            known[v.name] = tile = self.fresh.fresh(f"{v.array}_run")
            self.writer.line(f"{register_type(self.function.array(v.array).dtype)} {tile}[{vector}];")
            with self.spelled({lane: run}):
                if ahead is None:
                    packet = f"weft::fetch<{vector}, {self.width(v.array, vector)}>({self.address(v.array, v.index)})"
                else:
                    packet = f"{ahead.packets[v.name]}[h % {ahead.depth}][{ahead.row}]"
                self.writer.line(f"weft::unpack({packet}, {tile});")
        return known

    def row(
        self,
        wanted: list[Read | Map],
        known: dict[str, str],
        lane: str,
        run: str,
        which: str,
        writes: Sequence[Write],
        folds: Sequence[Fold],
    ) -> None:
        """The columns of a run in one row. which: the number of the run, as C++."""
        for f in self.rows_known:
            self.folded(f, f"{self.of_rows[f.results[0]]}[u]")
        vector, line, found = self.plan.vector, self.writer.line, self.products
        wanted = [v for v in wanted if v.name not in known]
        early = [v for v in wanted if not set(v.axes) & set(found.columns)] if vector > 1 else []
        self.statements(tuple(self.let(v) for v in early))
        wanted = [v for v in wanted if v not in early]
        if vector == 1:
            guard = None if folds else self.common_guard(writes)
            with nullcontext() if guard is None else self.writer.block(f"if ({self.printer.value(guard)})"):
                self.result(wanted, which)
                for w in writes:
                    self.write(w if guard is None else replace(w, guard=None))
                for f in folds:
                    self.fold(f, f"{self.of_rows[f.results[0]]}[u]")
            return
        stores = {}
        for w in writes:
            stores[w] = self.fresh.fresh(f"{w.array}_run")
            line(f"{register_type(w.value.type)} {stores[w]}[{vector}];")
        line("#pragma unroll")
        with self.writer.block(f"for (int32_t v = 0; v < {vector}; ++v)"):
            mark, name = self.writer.mark(), self.declare(lane)
            with self.spelled({n: f"{tile}[v]" for n, tile in known.items()}):
                self.result(wanted, "v" if which == "0" else f"{which} * {vector} + v")
                for w, tile in stores.items():
                    self.writer.cite(w.location)
                    line(f"{tile}[v] = {self.printer.value(w.value)};")
                for f in folds:
                    self.fold(f, f"{self.of_rows[f.results[0]]}[u]")
            if self.writer.mentions(name, mark):
                self.writer.insert(mark, f"const int64_t {name} = {run} + v;")
        with self.spelled({lane: run}):
            for w, tile in stores.items():
                width = min(vector, PACKET_BYTES // self.function.array(w.array).dtype.size)
                line(f"weft::store<{width}>({self.address(w.array, w.index)}, {tile});")

    def common_guard(self, writes: Sequence[Write]) -> Expr | None:
        """What all writes are guarded by, where it is told of places alone: what only they need is not read elsewhere."""
        made = {n for v in (*self.products.sweeps.values, *self.products.folds) for n in names_of(v)}
        (guard, *others) = {w.guard for w in writes}
        return None if others or guard is None or free_names(guard) & made else guard

    def result(self, values: list[Read | Map], column: str) -> None:
        """The values of one result: what folds start with, these, and the rest."""
        first = [v for v in made_of(self.products, self.products.inits) if v in values]
        self.statements(tuple(map(self.let, first)))
        for f in self.products.folds:
            self.writer.cite(f.location)
            total = self.whole[f.results[0]].format(column) if self.whole else self.total(f, column)
            wrong = self.wrong(f)
            self.folded(f, self.looked_at(self.whole_fold(f), total, wrong) if wrong else total)
        for sweep in self.products.ending:
            if not {f.results[0] for f in sweep.folds} <= self.known_early:
                self.fold_ending(sweep)
        self.statements(tuple(self.let(v) for v in values if v not in first))

    def folded(self, f: Fold, total: str) -> None:
        """Declare the result of a fold: what it begins with, and what of it has been folded."""
        template = "{1}" if starts_neutral(f) else join(f.algebra, f.types[0])
        value = template.format(self.printer.exact(f.inits[0], PRODUCT), total)
        self.writer.line(f"const {register_type(f.types[0])} {self.declare(f.results[0])} = {value};")

    def fold_ending(self, sweep: Sweep) -> None:
        """What is folded for one result by itself."""
        own = {f.results[0]: self.fresh.fresh(f"{f.names[0]}_own") for f in sweep.folds}
        for f in sweep.folds:
            self.writer.line(f"{register_type(f.types[0])} {own[f.results[0]]} = {self.algebra(f)}::identity();")
        self.each_point(sweep.over, sweep.folds, own, ENDING_UNROLL)
        for f in sweep.folds:
            self.folded(f, own[f.results[0]])

    def wrong(self, f: Fold) -> str:
        """Which totals are summed again, as a predicate in C++: of sums on conditions those where what is multiplied by 0
        instead is infinite or no number; of floats as sums those that are not finite, unless who folded them has seen to that.
        """
        if self.plan.engine == "floats":
            return "!weft::is_finite" if self.plan.parts > 1 else ""
        return "weft::is_nan" if f.results[0] in {e.results[0] for e in self.products.exact} else ""

    def whole_fold(self, f: Fold) -> Fold:
        """A fold as it was before its points were operands."""
        return next(own for own in self.products.sweeps.folds if own.results == f.results)

    def looked_at(self, f: Fold, total: str, wrong: str) -> str:
        """A total, which is summed again where it is wrong."""
        name, line = self.fresh.fresh(f"{f.names[0]}_sum"), self.writer.line
        line(f"{register_type(f.types[0])} {name} = {total};")
        with self.writer.block(f"if ({wrong}({name}))"):
            line(f"{name} = {self.algebra(f)}::identity();")
            self.each_point(self.products.over, (f,), {f.results[0]: name}, 1)
        return name

    def each_point(self, over: tuple[str, ...], folds: tuple[Fold, ...], own: Mapping[str, str], unroll: int) -> None:
        """Fold all points for one result."""
        with ExitStack() as stack:
            for axis in (self.axes[a] for a in over):
                if axis.name == over[-1]:
                    self.writer.line(f"#pragma unroll {unroll}")
                start, stop, name = self.printer.index(axis.start), self.printer.index(axis.stop, SUM), self.declare(axis.name)
                stack.enter_context(self.writer.block(f"for (int64_t {name} = {start}; {name} < {stop}; ++{name})"))
            wanted = [v for v in self.needed([e for f in folds for e in f.parts]) if not isinstance(v, Fold)]
            self.statements(tuple(map(self.let, wanted)))
            for f in folds:
                self.fold(f, own[f.results[0]])


def sum_of(first: str, more: str) -> str:
    """The text of a sum, whose first may be 0."""
    return more if first == "0" else f"{first} + {more}"
