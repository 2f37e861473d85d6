"""A planned block graph as CUDA C++."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.emit.abi import Facts, slots
from weft.emit.expressions import Printer, cpp_type, memory_type
from weft.emit.statements import StatementPrinter
from weft.emit.text import Writer
from weft.errors import Location
from weft.graph.block import BlockGraph, Input, Map, Output, Reduce, Scan, Stage
from weft.loops.affine import Affine
from weft.loops.ir import Const, Expr, Function, If, Let, Load, Ref, Store, free_names, walk, walk_expr
from weft.loops.recurrences import ALGEBRAS, definitions
from weft.loops.schedule import Nest
from weft.loops.types import INT64, ScalarType
from weft.plan.tile import TilePlan, divisible

ALGEBRA_TYPES = {
    "sum": "Sum", "product": "Product", "max": "Max", "min": "Min", "maximum": "Maximum", "minimum": "Minimum",
    "fmax": "FMax", "fmin": "FMin", "and": "And", "or": "Or", "affine": "Affine",
}  # fmt: skip


def algebra_type(name: str, type_: ScalarType) -> str:
    return f"weft::{ALGEBRA_TYPES[name]}<{cpp_type(type_)}>"


def join(algebra: str, first: str, second: str) -> str:
    """C++ for `first (algebra) second` where first is the start of it all."""
    operator = ALGEBRAS[algebra].join
    infix = {"add": "+", "mul": "*", "and": "&&", "or": "||"}
    if operator in infix:
        return f"{first} {infix[operator]} {second}"
    function = {"max": "python_max", "min": "python_min", "fmax": "drop_nan_max", "fmin": "drop_nan_min"}
    return f"weft::{function.get(operator, operator)}({first}, {second})"


@dataclass
class _Scope:
    """How names are spelled where code is being written: tiles inside the element loop, rows' scalars as they are."""

    spelled: dict[str, str] = field(default_factory=dict)


class TileEmitter:
    """Writes one kernel."""

    def __init__(self, function: Function, nest: Nest, graph: BlockGraph, plan: TilePlan, facts: Facts) -> None:
        self.function, self.nest, self.graph, self.plan, self.facts = function, nest, graph, plan, facts
        self.out = Writer()
        self.spelled: dict[str, str] = {}
        self.pointers: dict[tuple[str, tuple[Expr, ...], int | None], str] = {}
        self.loaded: set[str] = set()  # tiles of a held row that are in registers already
        self.index = "int64_t" if facts.wide else "int32_t"
        self.printer = Printer(self.name_of, self.load_of)
        self.shown: Location | None = None
        self.row_loops = 0

    # ---- names

    def name_of(self, ref: Ref) -> str:
        return self.spelled.get(ref.name, ref.name)

    def expr(self, e: Expr) -> str:
        return self.printer.text(e)

    def load_of(self, load: Load) -> str:
        """A load that is not part of a tile: one element, where it is used."""
        array = self.function.array(load.array)
        type_ = cpp_type(array.dtype.opmath)
        access = f"{load.array}[{self.offset(load.array, load.index)}]"
        return access if memory_type(array.dtype) == type_ else f"{type_}({access})"

    def stride(self, array: str, axis: int) -> str:
        return "1" if (array, axis) in self.facts.unit else f"{array}_stride_{axis}"

    def offset(self, array: str, index: tuple[Expr, ...]) -> str:
        terms = []
        for axis, i in enumerate(index):
            if i == Const(0, INT64):
                continue
            stride = self.stride(array, axis)
            text = self.printer.text(i) if stride == "1" else self.printer.factor(i)
            terms.append(text if stride == "1" else f"{text} * {stride}")
        return " + ".join(terms) or "0"

    # ---- the kernel

    def emit(self) -> str:
        out = self.out
        out.line('#include "weft/memory.cuh"')
        if not self.graph.pointwise:
            out.line('#include "weft/team.cuh"')
        out.line()
        self.signature()
        with out.block():
            self.prologue()
            self.row_loop()
        return out.text()

    def signature(self) -> None:
        written = {s.array for s in walk(self.nest.body) if isinstance(s, Store)}
        alone = all(a.role != "inout" for a in self.function.arrays)
        parameters = []
        for slot in slots(self.function, self.nest, self.facts):
            if slot.kind == "pointer":
                const = "" if slot.array in written else "const "
                restrict = " __restrict__" if alone else ""
                parameters.append(f"{const}{memory_type(slot.type)}*{restrict} {slot.name}")
            else:
                parameters.append(f"{cpp_type(slot.type)} {slot.name}")
        bound = 256 if self.plan.spread else self.plan.block
        self.out.line(f'extern "C" __global__ void __launch_bounds__({bound}) {self.nest.name}(')
        for k, parameter in enumerate(parameters):
            self.out.line("    " + parameter + (")" if k == len(parameters) - 1 else ","))

    def cites(self, location: Location | None) -> None:
        """The user's line, above the code that came from it."""
        if location is None or (self.shown and (location.file, location.line) == (self.shown.file, self.shown.line)):
            return
        self.shown = location
        name = location.file.rsplit("/", 1)[-1]
        self.out.line(f"// {name}:{location.line}: {location.text().strip()}")

    def prologue(self) -> None:
        out, plan = self.out, self.plan
        vector, chunks = plan.vector, plan.chunks
        if plan.spread:
            out.line(f"// a block's rows of threads take {vector} neighbouring columns a thread, {chunks} times")
            out.line("const int32_t thread = threadIdx.x;")
            out.line("const int32_t threads = blockDim.x;")
        else:
            whose = f"{plan.teams} rows" if plan.teams > 1 else "one row"
            how = f"{plan.threads} threads a row, {chunks} times {vector} neighbouring columns a thread"
            out.line(f"// {whose} a block; {how}")
            thread = "threadIdx.x" if plan.teams == 1 else f"threadIdx.x % {plan.threads}"
            out.line(f"const int32_t thread = {thread};")
        self.scratch()

    def scratch(self) -> None:
        """Shared memory through which the warps of a team exchange, two of each kind, used in turn."""
        if self.plan.threads <= 32 or self.plan.spread:
            return
        kinds = []
        for stage in self.graph.stages():
            for o in (*stage.scans(), *stage.reductions()):
                if self.scratch_of(o) not in [k for k, _ in kinds]:
                    kinds.append((self.scratch_of(o), f"{algebra_type(o.algebra, o.init.type)}::Value"))
        for name, type_ in kinds:
            self.out.line(f"__shared__ {type_} {name}[2][{self.plan.threads // 32}];")
        if kinds:
            self.out.line("int32_t turn = 0;")

    def scratch_of(self, o: Scan | Reduce) -> str:
        if self.plan.threads <= 32:
            return ""
        kind = "maps" if o.algebra == "affine" else "values"
        return f"{kind}_{cpp_type(o.init.type)}".removesuffix("_t")

    def scratch_argument(self, o: Scan | Reduce) -> str:
        if self.plan.threads <= 32:
            return "nullptr"
        return f"{self.scratch_of(o)}[turn ^= 1]"

    def extent_of(self, k: int) -> str:
        axis = self.graph.rows[k]
        return f"{axis.var}_count"

    def row_loop(self) -> None:
        out, plan, rows = self.out, self.plan, self.graph.rows
        counts = []
        for axis in rows:
            counts.append(self.count(axis.start, axis.stop, axis.step))
        if len(rows) > 1:
            for axis, count in zip(rows, counts, strict=True):
                out.line(f"const {self.index} {axis.var}_count = {count};")
            total = " * ".join(["int64_t(" + f"{rows[0].var}_count" + ")", *(f"{a.var}_count" for a in rows[1:])])
        else:
            total = counts[0] if counts else "1"
        if plan.spread:
            self.spread_loop(total)
            return
        single = len(rows) == 1 and rows[0].start == Const(0, INT64) and rows[0].step == 1
        row = rows[0].var if single else "row"
        first = "blockIdx.x" if plan.teams == 1 else f"int64_t(blockIdx.x) * {plan.teams} + threadIdx.x / {plan.threads}"
        step = "gridDim.x" if plan.teams == 1 else f"int64_t(gridDim.x) * {plan.teams}"
        if not rows:
            self.steps()
            return
        if plan.threads > 32 or plan.teams == 1:
            with out.block(f"for (int64_t {row} = {first}; {row} < {total}; {row} += {step})"):
                self.row_body(row, single)
            return
        # lanes of a warp exchange by shuffles: all of them stay, those beyond the last row work on it again
        with out.block(f"for (int64_t {row} = {first}; {row} - thread / 32 < {total}; {row} += {step})"):
            self.row_body(row, single)

    def row_body(self, row: str, single: bool) -> None:
        self.row_indices(row, single)
        self.steps()

    def count(self, start: Expr, stop: Expr, step: int) -> str:
        """Iterations of an axis."""
        if start == Const(0, INT64) and step == 1:
            return self.expr(stop)
        low, high = (start, stop) if step > 0 else (stop, start)
        span = self.expr(high) if low == Const(0, INT64) else f"{self.expr(high)} - ({self.expr(low)})"
        if abs(step) == 1:
            return f"weft::python_max(int64_t({span}), int64_t(0))"
        return f"(weft::python_max(int64_t({span}), int64_t(0)) + {abs(step) - 1}) / {abs(step)}"

    def row_indices(self, row: str, single: bool) -> None:
        if single:
            return
        rest = row
        for k in range(len(self.graph.rows) - 1, -1, -1):
            axis = self.graph.rows[k]
            position = f"{rest} % {axis.var}_count" if k else rest
            if axis.step != 1:
                position = f"({position}) * {axis.step}" if axis.step > 0 else f"-({position}) * {-axis.step}"
            if axis.start != Const(0, INT64):
                position = f"{self.expr(axis.start)} + {position}"
            self.out.line(f"const int64_t {axis.var} = {position};")
            if k:
                rest = f"{rest} / {axis.var}_count" if "/" not in rest else f"({rest}) / {axis.var}_count"

    # ---- pointwise: blocks share the columns of a row

    def spread_loop(self, total: str) -> None:
        out, rows, plan = self.out, self.graph.rows, self.plan
        stage = self.graph.stages()[0]
        stop = self.expr(stage.stop)
        out.line(f"const {self.index} tile_columns = threads * {plan.vector * plan.chunks};")
        out.line(f"const int64_t tiles = ({stop} + tile_columns - 1) / tile_columns;")
        group = f"({total} + blockDim.y - 1) / blockDim.y" if rows else "1"
        with out.block(f"for (int64_t block = blockIdx.x; block < tiles * ({group}); block += gridDim.x)"):
            if rows:
                single = len(rows) == 1 and rows[0].start == Const(0, INT64) and rows[0].step == 1
                row = rows[0].var if single else "row"
                out.line(f"const int64_t {row} = block / tiles * blockDim.y + threadIdx.y;")
                out.line(f"if ({row} >= {total}) continue;")
                self.row_indices(row, single)
                out.line(f"const {self.index} first_column = block % tiles * tile_columns;")
            else:
                out.line(f"const {self.index} first_column = block * tile_columns;")
            self.row_pointers(stage)
            self.tile("first_column", stage)

    # ---- rows

    def steps(self) -> None:
        for step in self.graph.steps:
            match step:
                case Stage():
                    self.stage(step)
                case Let():
                    self.cites(step.location)
                    self.out.line(f"const {cpp_type(step.value.type)} {step.name} = {self.expr(step.value)};")
                case Store() | If():
                    self.cites(step.location)
                    with self.out.block("if (thread == 0)"):
                        StatementPrinter(self.out, self.printer, self.store_text, self.cites).statement(step)

    def store_text(self, array: str, index: tuple[Expr, ...], value: Expr) -> str:
        return f"{array}[{self.offset(array, index)}] = {self.expr(value)};"

    def row_pointers(self, stage: Stage) -> None:
        """For each array of the stage a pointer to the row's columns."""
        for o in stage.operators:
            if not isinstance(o, (Input, Output)) or o.axis is None:
                continue
            others = tuple(Const(0, INT64) if k == o.axis else i for k, i in enumerate(o.index))
            key = (o.array, others, o.axis)
            if key in self.pointers or all(i == Const(0, INT64) for i in others):
                self.pointers.setdefault(key, o.array)
                continue
            names = sorted({n for i in others for n in free_names(i)} & {a.var for a in self.graph.rows})
            name = self.unique("_".join([o.array, *(names or ["row"])]))
            self.pointers[key] = name
            array = self.function.array(o.array)
            const = "const " if isinstance(o, Input) and not self.is_written(o.array) else ""
            self.out.line(f"{const}{memory_type(array.dtype)}* const {name} = {o.array} + {self.offset(o.array, others)};")

    def is_written(self, array: str) -> bool:
        return any(isinstance(s, Store) and s.array == array for s in walk(self.nest.body))

    def unique(self, name: str) -> str:
        taken = set(self.pointers.values()) | {a.name for a in self.function.arrays} | {s.name for s in self.function.sizes}
        k, candidate = 0, name
        while candidate in taken:
            k += 1
            candidate = f"{name}_{k}"
        return candidate

    def pointer(self, o: Input | Output) -> str:
        others = tuple(Const(0, INT64) if k == o.axis else i for k, i in enumerate(o.index))
        return self.pointers[o.array, others, o.axis]

    # ---- a stage

    def stage(self, stage: Stage) -> None:
        self.row_pointers(stage)
        self.cites(stage.location)
        for o in stage.scans():
            self.out.line(f"{cpp_type(o.init.type)} {o.result} = {self.expr(o.init)};")
        for r in stage.reductions():
            self.out.line(f"{cpp_type(r.init.type)} {self.partial(r)} = {algebra_type(r.algebra, r.init.type)}::identity();")
        if self.plan.held:
            self.tile("0", stage)
        else:
            self.tile_loop(stage)
        for r in stage.reductions():
            self.cites(r.location)
            algebra = algebra_type(r.algebra, r.init.type)
            total = f"weft::reduce<{algebra}, {self.plan.threads}>({self.partial(r)}, {self.scratch_argument(r)})"
            neutral = ALGEBRAS[r.algebra].identity(r.init.type)
            value = total if r.init == neutral else join(r.algebra, self.expr(r.init), total)
            self.out.line(f"const {cpp_type(r.init.type)} {r.result} = {value};")

    def partial(self, r: Reduce) -> str:
        return f"{r.name}_partial"

    def tile_loop(self, stage: Stage) -> None:
        columns = self.plan.columns
        start, stop = self.expr(stage.start), self.expr(stage.stop)
        zero = stage.start == Const(0, INT64)
        first = "0" if zero else f"{self.printer.factor(stage.start)} / {columns} * {columns}"
        if stage.reverse:
            last = f"({stop} - 1) / {columns} * {columns}"
            low = "0" if zero else f"{start} - {columns - 1}"
            head = f"for ({self.index} tile = {last}; tile >= {low} && {stop} > {start}; tile -= {columns})"
        else:
            head = f"for ({self.index} tile = {first}; tile < {stop}; tile += {columns})"
        with self.out.block(head):
            self.tile("tile", stage)

    def tile(self, base: str, stage: Stage) -> None:
        """The stage's operators on the tile that begins at column `base`."""
        new = [o for o in stage.inputs() if o.name not in self.loaded]
        for o in new:
            type_ = cpp_type(o.type)
            self.out.line(f"{type_} {o.name}[{self.plan.chunks}][{self.plan.vector}];")
        if new:
            with self.chunks(base, stage):
                whole = divisible(stage, self.function, self.facts, self.plan.vector)
                for o in new:
                    self.cites(o.location)
                    self.load(o, stage, whole)
        if self.plan.held:
            self.loaded |= {o.name for o in new}
        known: list[Scan] = []
        for o in stage.scans():
            self.scan(base, stage, o, known)
            known.append(o)
        self.compute(base, stage)

    def chunks(self, base: str, stage: Stage, backwards: bool = False):  # type: ignore[no-untyped-def]
        """The loop over a thread's runs of columns; `column` is the first of the run."""
        return _Chunks(self, base, stage, backwards)

    # ---- loads and stores of runs

    def load(self, o: Input, stage: Stage, whole: bool) -> None:
        assert o.axis is not None
        pointer, tile = self.pointer(o), f"{o.name}[chunk]"
        column = stage.column
        unit = (o.array, o.axis) in self.facts.unit
        width = min(self.facts.vector(o.array), self.plan.vector) if unit else 1
        extent = self.expr(self.function.array(o.array).shape[o.axis])
        shift = self.plus(column, o.offset)
        if o.offset == Affine((), 0) and whole and self.covers(stage, o):
            if unit:
                self.out.line(f"weft::load<{width}>({pointer} + {column}, {tile});")
            else:
                stride = self.stride(o.array, o.axis)
                self.out.line(f"weft::load_strided({pointer} + {column} * {stride}, {stride}, {tile});")
            return
        neighbour = o.offset.constant if not o.offset.terms else 0
        if unit and whole and self.covers(stage, o) and abs(neighbour) == 1 and width == self.plan.vector:
            which = "load_shifted_up" if neighbour == -1 else "load_shifted_down"
            self.out.line(f"weft::{which}<{width}>({pointer}, {column}, {extent}, {tile});")
            return
        stride = "1" if unit else self.stride(o.array, o.axis)
        address = f"{pointer} + {shift}" if unit else f"{pointer} + ({shift}) * {stride}"
        if o.offset == Affine((), 0) and unit:
            with self.out.block(f"if ({column} + {self.plan.vector} <= {extent})"):
                self.out.line(f"weft::load<{width}>({address}, {tile});")
            with self.out.block("else"):
                self.out.line(f"weft::load_within({address}, {stride}, {shift}, {extent}, {tile});")
            return
        self.out.line(f"weft::load_within({address}, {stride}, {shift}, {extent}, {tile});")

    def covers(self, stage: Stage, o: Input | Output) -> bool:
        """Whether the array's extent along the columns is the stage's, so that a column of the stage is one of the array."""
        assert o.axis is not None
        return self.function.array(o.array).shape[o.axis] == stage.stop

    def plus(self, column: str, offset: Affine) -> str:
        if offset == Affine((), 0):
            return column
        if not offset.terms:
            sign = "+" if offset.constant > 0 else "-"
            return f"{column} {sign} {abs(offset.constant)}"
        return f"{column} + {self.printer.factor(offset.expr())}"

    # ---- scans

    def step_of(self, o: Scan) -> str:
        return f"{o.name}_step"

    def needed(self, stage: Stage, exprs: tuple[Expr, ...]) -> list[Map]:
        """The maps that these expressions need, in order."""
        maps = {m.name: m for m in stage.operators if isinstance(m, Map)}
        wanted: set[str] = set()
        pending = {n for e in exprs for n in free_names(e)}
        while pending:
            name = pending.pop()
            if name in maps and name not in wanted:
                wanted.add(name)
                pending |= free_names(maps[name].value)
        return [m for m in stage.operators if isinstance(m, Map) and m.name in wanted]

    def scan(self, base: str, stage: Stage, o: Scan, known: list[Scan]) -> None:
        """Find the state before each run of columns: combine a thread's columns, scan over the team, apply to the state."""
        out, type_ = self.out, cpp_type(o.init.type)
        algebra = algebra_type(o.algebra, o.init.type)
        own, before = f"{o.name}_own", f"{o.name}_before"
        chunks, threads = self.plan.chunks, self.plan.threads
        out.line(f"// what a thread's columns do to {o.result}")
        out.line(f"{algebra}::Value {own}[{chunks}];")
        with self.chunks(base, stage, stage.reverse) as loop:
            loop.open()
            out.line(f"{own}[chunk] = {algebra}::identity();")
            exprs = (o.addend,) if o.coefficient is None else (o.coefficient, o.addend)
            used = self.needed(stage, exprs)
            replay = [k for k in known if self.depends(used, exprs, k.name)]
            for k in replay:
                out.line(f"{cpp_type(k.init.type)} {k.name} = {k.name}_before[chunk];")
            with loop.elements(reads_state=bool(replay)):
                more = self.needed(stage, (*exprs, *(k.next for k in replay)))
                self.maps(more)
                if o.coefficient is not None:
                    value = f"{{{self.expr(o.coefficient)}, {self.expr(o.addend)}}}"
                    out.line(f"{own}[chunk] = {algebra}::combine({own}[chunk], {value});")
                else:
                    out.line(f"{own}[chunk] = {algebra}::combine({own}[chunk], {self.expr(o.addend)});")
                for k in replay:
                    out.line(f"{k.name} = {self.expr(k.next)};")
        out.line(f"{type_} {before}[{chunks}];  // {o.result} before each run")
        backwards = "true" if stage.reverse else "false"
        order = f"int32_t chunk = {chunks - 1}; chunk >= 0; --chunk" if stage.reverse else f"int32_t chunk = 0; chunk < {chunks}; ++chunk"
        out.line("#pragma unroll")
        with out.block(f"for ({order})"):
            scan = f"weft::scan<{algebra}, {threads}, {backwards}>({own}[chunk], {self.scratch_argument(o)})"
            out.line(f"const auto {self.step_of(o)} = {scan};")
            if o.algebra == "affine":
                out.line(f"{before}[chunk] = {self.step_of(o)}.before({o.result});")
                out.line(f"{o.result} = {self.step_of(o)}.all({o.result});")
            else:
                out.line(f"{before}[chunk] = {join(o.algebra, o.result, self.step_of(o) + '.before')};")
                out.line(f"{o.result} = {join(o.algebra, o.result, self.step_of(o) + '.all')};")

    def depends(self, maps: list[Map], exprs: tuple[Expr, ...], name: str) -> bool:
        return any(name in free_names(e) for e in (*exprs, *(m.value for m in maps)))

    def maps(self, maps: list[Map]) -> None:
        for m in maps:
            self.cites(m.location)
            self.out.line(f"const {cpp_type(m.value.type)} {m.name} = {self.expr(m.value)};")

    # ---- the element loops

    def compute(self, base: str, stage: Stage) -> None:
        """Maps, reductions and stores of a tile, with the scans' states replayed column by column."""
        out, plan = self.out, self.plan
        outputs, scans, reductions = stage.outputs(), stage.scans(), stage.reductions()
        whole = divisible(stage, self.function, self.facts, plan.vector)
        with self.chunks(base, stage, stage.reverse and bool(scans)) as loop:
            loop.open()
            for o in scans:
                out.line(f"{cpp_type(o.init.type)} {o.name} = {o.name}_before[chunk];")
            runs = {id(o): self.run_name(o, outputs) for o in outputs if self.as_run(o, stage, whole)}
            for o in outputs:
                if id(o) in runs:
                    out.line(f"{cpp_type(o.value.type)} {runs[id(o)]}[{plan.vector}];")
            with loop.elements(reads_state=bool(scans)):
                wanted = (
                    *(o.value for o in outputs), *(o.guard for o in outputs if o.guard is not None),
                    *(i for o in outputs for i in o.index), *(r.addend for r in reductions), *(o.next for o in scans),
                )  # fmt: skip
                done: set[str] = set()
                for o in stage.operators:
                    needed = {m.name for m in self.needed(stage, wanted)}
                    match o:
                        case Map() if o.name in needed and o.name not in done:
                            done.add(o.name)
                            self.maps([o])
                        case Output():
                            self.cites(o.location)
                            if id(o) in runs:
                                out.line(f"{runs[id(o)]}[v] = {self.expr(o.value)};")
                            else:
                                self.store_element(o)
                for r in reductions:
                    self.cites(r.location)
                    algebra = algebra_type(r.algebra, r.init.type)
                    name = self.partial(r)
                    out.line(f"{name} = {algebra}::combine({name}, {self.expr(r.addend)});")
                for o in scans:
                    if o.next != Ref(o.name, o.next.type):
                        out.line(f"{o.name} = {self.expr(o.next)};")
            for o in outputs:
                if id(o) in runs:
                    self.cites(o.location)
                    width = min(self.facts.vector(o.array), plan.vector)
                    out.line(f"weft::store<{width}>({self.pointer(o)} + {stage.column}, {runs[id(o)]});")

    def run_name(self, o: Output, outputs: tuple[Output, ...]) -> str:
        same = [p for p in outputs if p.array == o.array]
        return f"{o.array}_run" if len(same) == 1 else f"{o.array}_run_{same.index(o)}"

    def as_run(self, o: Output, stage: Stage, whole: bool) -> bool:
        """Whether a run of columns is stored at once."""
        if o.axis is None or o.guard is not None or o.offset != Affine((), 0) or not whole:
            return False
        return (o.array, o.axis) in self.facts.unit

    def store_element(self, o: Output) -> None:
        text = f"{o.array}[{self.offset(o.array, o.index)}] = {self.expr(o.value)};"
        if o.guard is None:
            self.out.line(text)
        else:
            self.out.line(f"if ({self.expr(o.guard)}) {text}")


class _Chunks:
    """`for chunk` with the run's first column, and inside it `for v` with the column itself."""

    def __init__(self, emitter: TileEmitter, base: str, stage: Stage, backwards: bool) -> None:
        self.e, self.base, self.stage, self.backwards = emitter, base, stage, backwards
        self.blocks: list[object] = []

    def __enter__(self) -> _Chunks:
        e, plan, out = self.e, self.e.plan, self.e.out
        layout = plan.layout
        thread_stride, chunk_stride = layout.stride[0], layout.stride[1][1]
        out.line("#pragma unroll")
        count = plan.chunks
        if self.backwards:
            head = f"for (int32_t chunk = {count - 1}; chunk >= 0; --chunk)"
        else:
            head = f"for (int32_t chunk = 0; chunk < {count}; ++chunk)"
        self.enter(out.block(head))
        run = f"chunk * threads * {thread_stride}" if plan.spread else f"chunk * {chunk_stride}"
        if count == 1:
            run = ""
        parts = [p for p in (self.base if self.base != "0" else "", run, f"thread * {thread_stride}") if p]
        out.line(f"const {e.index} {self.stage.column} = {' + '.join(parts)};")
        self.column = self.stage.column
        return self

    def enter(self, block: object) -> None:
        block.__enter__()  # type: ignore[attr-defined]
        self.blocks.append(block)
"""
"""
