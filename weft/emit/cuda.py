"""A planned block graph as CUDA C++."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from weft.emit.algebras import algebra_type, join
from weft.emit.expressions import PRODUCT, SUM, TERNARY, UNARY, DividingPrinter, Text, literal, memory_type, register_type
from weft.emit.names import Names, kernel_entry
from weft.emit.text import Writer
from weft.graph.block import BlockGraph, Carried, Input, Map, Operator, Output, Reduce, Scan, Stage, Step, made
from weft.loops.affine import Affine, affine
from weft.loops.algebra.table import AFFINE, ALGEBRAS, EXTREMA, LINEAR, overflows
from weft.loops.ir import (
    Const,
    Expr,
    Function,
    If,
    Let,
    Load,
    Op,
    Ref,
    Stmt,
    Store,
    bound_names,
    free_names,
    statement_exprs,
    walk,
    walk_expr,
)
from weft.loops.schedule import Axis, Nest
from weft.loops.types import INT64
from weft.plan.arguments import Facts, slots, stride_name
from weft.plan.tile import TilePlan, divisible, team_entry

# The words of the kernel itself; a user's name that is one of them keeps it, and ours gives way.
_WORDS = ("thread", "threads", "teams", "row", "tile", "tile_columns", "chunk", "v", "turn", "outside", "step", "keep")

ZERO = Const(0, INT64)
HERE = Affine((), 0)


def user_names(function: Function, nest: Nest, graph: BlockGraph) -> list[str]:
    """Every name of the function that the kernel may spell."""
    names = [a.name for a in function.arrays] + [z.name for z in function.sizes] + [z.name for z in function.scalars]
    names += [a.var for a in graph.rows] + [z.column for z in graph.stages()]
    for stmt in walk(nest.body):
        names += bound_names(stmt)
    for stage in graph.stages():
        names += [n for o in stage.operators for n in made(o)]
        names += [r for o in stage.carried() for r in o.results]
    return names


def emit(function: Function, nest: Nest, graph: BlockGraph, plan: TilePlan, facts: Facts) -> str:
    """The kernel's translation unit. Its one entry has the nest's name and takes the slots of `weft.plan.arguments`."""
    return _TileEmitter(function, nest, graph, plan, facts).emit()


def difference(a: Expr, b: Expr) -> Expr:
    """a - b, as an affine form where both are."""
    left, right = affine(a), affine(b)
    if left is None or right is None:
        return a if b == ZERO else Op("sub", (a, b), INT64)
    return (left - right).expr()


def arrays_stored(step: Step) -> set[str]:
    if isinstance(step, Stage):
        return {o.array for o in step.outputs()}
    return {s.array for s in walk((step,)) if isinstance(s, Store)}


def elements_read(step: Let | If | Stage) -> set[str]:
    """The arrays of which all threads of a team read elements, apart from the columns that each has for itself."""
    if isinstance(step, (Let, If)):
        values = [e for s in walk((step,)) for e in statement_exprs(s)]
    else:
        values = [e for o in step.operators for e in expressions(o)] + [i for o in step.carried() for i in o.inits]
    return {x.array for e in values for x in walk_expr(e) if isinstance(x, Load)}


def is_column(o: Carried, stage: Stage, k: int) -> bool:
    """Whether the k-th value of an extremum's state is the column where it is."""
    return k > 0 and o.parts[k + 1] == Ref(stage.column, INT64)


def composed_of(o: Carried, stage: Stage) -> tuple[Expr, ...]:
    """What a column's element is made of: its parts, and where an extremum is."""
    return (*o.parts, Ref(stage.column, INT64)) if o.algebra in EXTREMA else o.parts


def element_type(o: Carried, stage: Stage, index: str) -> str:
    """The C++ type of the algebra that changes a state. index: that of columns."""
    types = [register_type(e.type) for e in o.inits]
    if o.algebra == LINEAR:
        return f"weft::Linear<{types[0]}, {len(types)}>"
    if o.algebra in EXTREMA:
        ties = o.algebra.endswith("_last")
        flags = [o.algebra.startswith("argmax"), ties != o.reverse, ties]
        kept = [t for k, t in enumerate(types) if not is_column(o, stage, k)]
        return f"weft::Extremum<{', '.join([*('true' if f else 'false' for f in flags), index, *kept])}>"
    return algebra_type(o.algebra, types[0])


def expressions(o: Operator) -> tuple[Expr, ...]:
    """The expressions of an operator that are evaluated column by column."""
    match o:
        case Map(value=value):
            return (value,)
        case Output(value=value, guard=guard):
            return (value,) if guard is None else (value, guard)
        case Reduce() | Scan():
            return (*o.parts, *o.nexts)
        case Input():
            return ()


class _TileEmitter:
    def __init__(self, function: Function, nest: Nest, graph: BlockGraph, plan: TilePlan, facts: Facts) -> None:
        self.function, self.nest, self.graph, self.plan, self.facts = function, nest, graph, plan, facts
        self.out = Writer()
        self.index = "int64_t" if facts.wide else "int32_t"
        self.spelled: dict[str, str] = {}  # how tiles are spelled in the loop over their elements
        self.pointers: dict[tuple[str, tuple[Expr, ...], int], str] = {}
        self.pipelines = 0  # stages so far whose tiles are fetched ahead
        self.loaded: set[str] = set()  # tiles of a held row that are in registers
        self.written = {s.array for s in walk(nest.body) if isinstance(s, Store)}
        self.fresh = Names()
        self.identifiers: dict[str, str] = {}
        self.slots = slots(function, nest, facts)
        for slot in self.slots:
            self.identifier(slot.name)
        for name in user_names(function, nest, graph):
            self.identifier(name)
        self.words = {w: self.fresh.fresh(w) for w in _WORDS}
        self.derived_names: dict[str, str] = {}
        known = {s.name for s in function.sizes} | {a.var for a in graph.rows}
        bounded = known | {s.column for s in graph.stages()}
        # subscripts of sizes, numbers and places in the grid are checked at the call, others here
        self.checked_at_call = known | {s.name for s in function.scalars} | {s.column for s in graph.stages() if s.told}
        columns = set() if facts.wide else {s.column for s in graph.stages()}
        self.printer = DividingPrinter(
            self.name,
            self.element,
            lambda n: n in bounded,
            fuses=True,
            narrow=lambda n: n in columns,
            fault=lambda fault: f"{len(function.arrays) + 1}, $outside",
        )

    # ---------------------------------------------------------------- spelling

    def identifier(self, name: str) -> str:
        """The C++ name of one of the user's names: the name itself where C++ allows it."""
        if name not in self.identifiers:
            self.identifiers[name] = self.fresh.fresh(name)
        return self.identifiers[name]

    def derived(self, name: str) -> str:
        """A C++ name made of one of the user's, as `h_before`; the same for the same name, never the user's own."""
        if name not in self.derived_names:
            self.derived_names[name] = self.fresh.fresh(name)
        return self.derived_names[name]

    def name(self, ref: Ref) -> str:
        return self.spelled.get(ref.name) or self.identifier(ref.name)

    def element(self, load: Load) -> Text:
        """A load that is part of no tile: one element, where it is used."""
        array = self.function.array(load.array)
        access = f"{self.identifier(load.array)}[{self.offset(load.array, load.index)}]"
        type_ = register_type(array.dtype)
        text = access if memory_type(array.dtype) == type_ else f"{type_}({access})"
        checks = self.checks(load.array, load.index)
        return Text(f"{checks} ? {text} : {literal(0, array.dtype.opmath, typed=True)}", TERNARY) if checks else Text(text)

    def checks(self, array: str, index: tuple[Expr, ...]) -> str:
        """The condition that subscripts which only the kernel knows are inside their array; "" if there are none."""
        declared = self.function.array(array)
        number = self.function.arrays.index(declared) + 1
        return " && ".join(
            f"weft::inside({self.printer.index(i)}, {self.printer.index(extent)}, {number}, $outside)"
            for i, extent in zip(index, declared.shape, strict=True)
            if free_names(i) - self.checked_at_call
        )

    def checks_any(self) -> bool:
        """Whether any subscript is checked in the kernel."""
        indices = [s.index for s in walk(self.nest.body) if isinstance(s, Store)]
        exprs = [e for s in walk(self.nest.body) for x in statement_exprs(s) for e in walk_expr(x)]
        indices += [e.index for e in exprs if isinstance(e, Load)]
        ranges = any(s.checked for s in self.graph.stages())
        return ranges or any(free_names(i) - self.checked_at_call for index in indices for i in index)

    def check_range(self, stage: Stage) -> None:
        """The columns that data give a stage are inside its arrays, before any of them is loaded."""
        for name, axis, offset in stage.checked:
            array = self.function.array(name)
            number = self.function.arrays.index(array) + 1
            start, stop = (self.printer.index(e, SUM) for e in (stage.start, stage.stop))
            extent = self.printer.index(array.shape[axis])
            inside = " && ".join(
                f"weft::inside({self.plus(place, shift)}, {extent}, {number}, $outside)"
                for place, shift in ((start, offset), (stop, offset - Affine((), 1)))
            )
            self.out.line(f"if ({start} < {stop} && !({inside})) __trap();  // the data give columns outside {name}")

    def stride(self, array: str, axis: int) -> str:
        return "1" if (array, axis) in self.facts.unit else self.identifier(stride_name(array, axis))

    def offset(self, array: str, index: tuple[Expr, ...]) -> str:
        terms = []
        for axis, i in enumerate(index):
            if i != ZERO:
                stride = self.stride(array, axis)
                terms.append(self.printer.index(i, SUM) if stride == "1" else self.times(i, stride))
        return " + ".join(terms) or "0"

    def times(self, i: Expr, stride: str) -> str:
        return f"{self.printer.index(i, PRODUCT)} * {stride}"

    def plus(self, name: str, offset: Affine) -> str:
        if offset == HERE:
            return name
        text = self.printer.index(offset.expr(), SUM)
        return f"{name} - {text[1:]}" if text.startswith("-") else f"{name} + {text}"

    # ---------------------------------------------------------------- the kernel

    def emit(self) -> str:
        self.out.line('#include "weft/memory.cuh"')
        self.out.line('#include "weft/team.cuh"')
        self.out.line()
        self.out.cite(self.function.location)
        if self.plan.held:
            with self.out.block(self.signature(kernel_entry(self.nest.name), self.launch_bounds(self.plan.block))):
                self.body()
        else:
            self.for_every_team()
        return re.sub(rf"\$({'|'.join(_WORDS)})\b", lambda m: self.words[m[1]], self.out.text())

    def for_every_team(self) -> None:
        """One body, and an entry for each size of team, so that no length needs another compilation."""
        name = self.fresh.fresh(f"{self.nest.name}_rows")
        head = self.signature(name, "").replace('extern "C" __global__ void', "__device__ __forceinline__ void")
        if self.plan.alone:
            self.out.line("// $threads: of the one team, a warp or all the warps of a block")
            self.out.line("template <int32_t $threads>")
        else:
            self.out.line("// $threads: of a row's team, a warp or all the warps of a block; $teams: rows of a block")
            self.out.line("template <int32_t $threads, int32_t $teams>")
        with self.out.block(head):
            self.body()
        arguments = ", ".join(self.identifier(slot.name) for slot in self.slots)
        for threads, teams in self.plan.shapes:
            self.out.line()
            bounds = self.launch_bounds(threads * teams)
            with self.out.block(self.signature(team_entry(kernel_entry(self.nest.name), threads), bounds)):
                own = f"{threads}" if self.plan.alone else f"{threads}, {teams}"
                self.out.line(f"{name}<{own}>({arguments});")

    def launch_bounds(self, threads: int) -> str:
        """What the compiler may count on. Where a scan may be run in order, it is told that one block suffices: left to
        itself it spills a few registers of the loop for the sake of another block, as if that branch were taken.
        """
        branches = any(overflows(o.algebra, o.type) for stage in self.graph.stages() for o in stage.scans())
        return f"__launch_bounds__({threads}{', 1' if branches else ''})"

    def signature(self, name: str, bounds: str) -> str:
        restrict = "" if any(a.role == "inout" for a in self.function.arrays) else " __restrict__"
        parameters = []
        for slot in self.slots:
            own = self.identifier(slot.name)
            if slot.kind == "pointer":
                const = "" if slot.array in self.written else "const "
                parameters.append(f"{const}{memory_type(slot.type)}*{restrict} {own}")
            else:
                parameters.append(f"const {register_type(slot.type)} {own}")
        lines = ",\n    ".join(parameters)
        return f'extern "C" __global__ void {bounds}{" " if bounds else ""}{name}(\n    {lines})'

    def body(self) -> None:
        checked = self.checks_any()
        self.prologue()
        if checked:
            self.out.line("int64_t $outside = 0;")
        self.rows()
        if checked:
            self.out.line("if ($outside) __trap();  // a subscript that the data decide left its array")

    def prologue(self) -> None:
        out, plan = self.out, self.plan
        runs = f"{plan.vector} neighbouring columns" + (f", {plan.chunks} times" if plan.chunks > 1 else "")
        scratch = {}
        for stage in self.graph.stages():
            for o in stage.carried():
                scratch[self.scratch(o)] = f"{self.algebra(o)}::Value"
                type_ = element_type(o, stage, self.index)
                if self.algebra(o) != type_:
                    out.line(f"using {self.algebra(o)} = {type_};")
        if plan.held:
            if plan.alone:
                whose = f"one block of {plan.threads} threads"
            elif plan.teams > 1:
                whose = f"{plan.teams} rows a block, a warp each"
            else:
                whose = f"a row a block of {plan.threads} threads"
            out.line(f"// {whose}; each thread holds {runs}")
        else:
            out.line(f"// each thread takes {runs} of a tile; tile after tile")
        out.line("const int32_t $thread = threadIdx.x;")
        if not plan.held:
            out.line(f"constexpr int32_t $tile_columns = $threads * {plan.vector * plan.chunks};")
        if plan.threads > 32 and scratch:
            out.line("// what the warps of a row tell each other; two of each, used in turn, so that one barrier does")
            warps = str(plan.threads // 32) if plan.held else "$threads / 32"
            for name, type_ in scratch.items():
                out.line(f"__shared__ {type_} {name}[2][{warps}];")
            out.line("int32_t $turn = 0;")

    def scratch(self, o: Scan | Reduce) -> str:
        if o.algebra not in ALGEBRAS and o.algebra != AFFINE:
            return self.derived(f"{o.name}_elements")
        type_ = register_type(o.type).removesuffix("_t")
        return self.derived(f"{type_}_maps" if o.algebra == AFFINE else f"{type_}_values")

    def algebra(self, o: Carried) -> str:
        """The C++ type of the algebra of a state: by a name of its own where it is long."""
        if o.algebra in ALGEBRAS or o.algebra == AFFINE:
            return algebra_type(o.algebra, register_type(o.type))
        return self.derived(f"{o.name}_algebra")

    def team_size(self) -> str:
        return str(self.plan.threads) if self.plan.held else "$threads"

    def scratch_argument(self, o: Scan | Reduce) -> str:
        if self.plan.threads > 32:
            return f"{self.scratch(o)}[$turn ^= 1]"
        return f"({self.algebra(o)}::Value*)nullptr"

    # ---------------------------------------------------------------- rows

    def rows(self) -> None:
        out, plan = self.out, self.plan
        total = self.row_total()
        if not self.graph.rows:
            self.steps()
        else:
            row = self.row_name()
            if plan.held and plan.teams == 1:
                first, step = "blockIdx.x", "gridDim.x"
            elif plan.held:
                first = f"int64_t(blockIdx.x) * {plan.teams} + threadIdx.y"
                step = f"int64_t(gridDim.x) * {plan.teams}"
            else:
                # a row of a whole block is the same for all its threads, and shall look so to the compiler
                first, step = (
                    "int64_t(blockIdx.x) * $teams + ($teams > 1 ? threadIdx.y : 0)",
                    "int64_t(gridDim.x) * $teams",
                )
            if plan.held:
                self.held_rows(row, first, step, total)
                return
            with out.block(f"for (int64_t {row} = {first}; {row} < {total}; {row} += {step})"):
                self.row_indices(row)
                self.steps()

    def held_rows(self, row: str, first: str, step: str, total: str) -> None:
        """Row after row, the next one fetched while this one is worked on."""
        out, stage = self.out, self.graph.stages()[0]
        inputs = {o.name: o for s in reversed(self.graph.stages()) for o in s.inputs()}  # the first to use each
        vars_ = {a.var for a in self.graph.rows}
        own = tuple(o for o in inputs.values() if any(free_names(i) & vars_ for i in o.index))
        self.declare_runs(own, "next")
        pointers = dict(self.pointers)
        with out.block(f"const auto fetch_row = [&](const int64_t {row})", "};"):
            self.row_indices(row)
            self.row_pointers(own)
            with self.runs(stage, "0"):
                self.fetch(stage, own, "next")
        self.pointers = pointers
        out.line(f"if ({first} < {total}) fetch_row({first});")
        with out.block(f"for (int64_t {row} = {first}; {row} < {total}; {row} += {step})"):
            self.row_indices(row)
            self.declare(own)
            with self.runs(stage, "0"), self.in_range(stage):
                self.unpack(own, "next")
            self.loaded |= {o.name for o in own}
            out.line(f"if ({row} + {step} < {total}) fetch_row({row} + {step});")
            self.steps()

    def row_name(self) -> str:
        """The loop over rows runs over the axis itself where there is just one, from 0 by 1."""
        rows = self.graph.rows
        plain = len(rows) == 1 and rows[0].start == ZERO and rows[0].step == 1
        return self.identifier(rows[0].var) if plain else "$row"

    def row_total(self) -> str:
        rows = self.graph.rows
        if not rows:
            return "1"
        if len(rows) == 1:
            return self.count(rows[0])
        for axis in rows:
            self.out.line(f"const int64_t {self.derived(f'{axis.var}_count')} = {self.count(axis)};")
        return " * ".join(self.derived(f"{a.var}_count") for a in rows)

    def count(self, axis: Axis) -> str:
        if axis.start == ZERO and axis.step == 1:
            return self.printer.index(axis.stop, SUM)
        low, high = (axis.start, axis.stop) if axis.step > 0 else (axis.stop, axis.start)
        span = self.printer.index(high, SUM)
        if low != ZERO:
            span += f" - {self.printer.index(low, PRODUCT)}"
        size = abs(axis.step)
        if size == 1:
            return f"weft::maximum<int64_t>({span}, 0)"
        return f"(weft::maximum<int64_t>({span}, 0) + {size - 1}) / {size}"

    def row_indices(self, row: str) -> None:
        rows = self.graph.rows
        if not rows or row == self.identifier(rows[0].var):
            return
        rest = row
        for k in range(len(rows) - 1, -1, -1):
            axis, name = rows[k], self.identifier(rows[k].var)
            count = self.derived(f"{axis.var}_count")
            position = f"{rest} % {count}" if k else rest
            if abs(axis.step) != 1:
                position = f"({position}) * {abs(axis.step)}"
            if axis.step < 0:
                position = f"{self.printer.index(axis.start, SUM)} - ({position})"
            elif axis.start != ZERO:
                position = f"{self.printer.index(axis.start, SUM)} + {position}"
            self.out.line(f"const int64_t {name} = {position};")
            rest = f"{rest} / {count}"

    def aligned(self, stage: Stage) -> str:
        """The first column of the first tile: tiles begin at multiples of their size wherever a stage starts."""
        if stage.start == ZERO:
            return "0"
        if self.below_zero(stage):
            return f"weft::floor_divide<int64_t>({self.printer.index(stage.start)}, $tile_columns) * $tile_columns"
        return f"{self.printer.index(stage.start, PRODUCT)} / $tile_columns * $tile_columns"

    def below_zero(self, stage: Stage) -> bool:
        """Whether a stage may have columns below 0."""
        known = {s.name for s in self.function.sizes}
        known |= {a.var for a in self.graph.rows if isinstance(a.start, Const) and a.start.value >= 0 and a.step > 0}

        def from_zero(e: Expr) -> bool:
            match e:
                case Const(value=value):
                    return value >= 0
                case Ref(name=name):
                    return name in known
                case Op(name="add" | "mul" | "min" | "floordiv", args=args):
                    return all(map(from_zero, args))
                case Op(name="max", args=args):
                    return any(map(from_zero, args))
            return False

        return not from_zero(stage.start)

    # ---------------------------------------------------------------- steps

    def steps(self) -> None:
        elements: set[str] = set()  # arrays of which every thread may still be reading an element,
        tiles: set[str] = set()  # and those of which each may be reading its columns
        for step in self.graph.steps:
            stored = arrays_stored(step)
            if stored & elements or (not isinstance(step, Stage) and stored & tiles):
                self.out.line(f"weft::sync_team<{self.team_size()}>();")
                elements, tiles = set(), set()
            merges = isinstance(step, If) and bool(step.merges)
            if isinstance(step, (Let, Stage)) or (isinstance(step, If) and merges):
                elements |= elements_read(step)
            if isinstance(step, Stage):
                tiles |= {o.array for o in step.inputs()}
            match step:
                case Stage():
                    self.stage(step)
                case Let() | If() if merges or isinstance(step, Let):
                    self.out.cite(step.location)
                    self.statement(step)
                case Store() | If():
                    self.out.cite(step.location)
                    with self.out.block("if ($thread == 0)"):
                        self.statement(step)

    def value(self, e: Expr) -> str:
        return self.printer.value(e)

    def statement(self, stmt: Stmt) -> None:
        """A statement on row scalars."""
        out = self.out
        match stmt:
            case Let():
                out.line(
                    f"const {register_type(stmt.value.type)} {self.identifier(stmt.name)} = {self.value(stmt.value)};"
                )
            case Store():
                out.line(self.store_text(stmt.array, stmt.index, stmt.value))
            case If():
                for m in stmt.merges:
                    out.line(f"{register_type(m.type)} {self.identifier(m.name)};")
                then = [(m.name, m.then) for m in stmt.merges]
                orelse = [(m.name, m.orelse) for m in stmt.merges]
                with out.block(f"if ({self.value(stmt.condition)})"):
                    self.branch(stmt.then, then)
                if stmt.orelse or orelse:
                    with out.block("else"):
                        self.branch(stmt.orelse, orelse)

    def branch(self, body: tuple[Stmt, ...], merged: list[tuple[str, Expr]]) -> None:
        for stmt in body:
            self.statement(stmt)
        for name, value in merged:
            self.out.line(f"{self.identifier(name)} = {self.value(value)};")

    def store_text(self, array: str, index: tuple[Expr, ...], value: Expr, guard: Expr | None = None) -> str:
        place = f"{self.identifier(array)}[{self.offset(array, index)}] = {self.value(value)};"
        return self.guarded(place, guard, self.checks(array, index))

    def guarded(self, statement: str, guard: Expr | None, checks: str = "") -> str:
        tests = [checks] if checks else []
        if guard is not None:
            text = self.value(guard)
            tests.insert(0, f"({text})" if checks and not text.isidentifier() else text)
        return f"if ({' && '.join(tests)}) {statement}" if tests else statement

    def stage(self, stage: Stage) -> None:
        out = self.out
        self.check_range(stage)
        self.row_pointers(tuple(o for o in stage.operators if not (isinstance(o, Input) and o.name in self.loaded)))
        for o in stage.scans():
            out.cite(o.location)
            for result, init in zip(o.results, o.inits, strict=True):
                out.line(f"{register_type(init.type)} {self.identifier(result)} = {self.value(init)};")
        for r in stage.reductions():
            out.cite(r.location)
            value = register_type(r.type) if r.algebra in ALGEBRAS else "auto"
            out.line(f"{value} {self.partial(r)} = {self.algebra(r)}::identity();")
        for m in stage.operators:
            if isinstance(m, Map) and m.kept:
                name = self.identifier(m.name)
                out.line(f"{register_type(m.value.type)} {name}[{self.plan.chunks}][{self.plan.vector}];")
                self.spelled[m.name] = f"{name}[$chunk][$v]"
        self.divisors(stage)
        if self.plan.held:
            self.load_tile(stage, "0")
            self.scans(stage, "0")
            self.compute(stage, "0")
        elif stage.scans() and stage.inputs():
            self.pipelined(stage)
        else:
            with out.block(self.tile_loop(stage)):
                self.load_tile(stage, "$tile")
                self.scans(stage, "$tile")
                self.compute(stage, "$tile")
        for r in stage.reductions():
            out.cite(r.location)
            algebra = self.algebra(r)
            total = f"weft::reduce<{algebra}, {self.team_size()}>({self.partial(r)}, {self.scratch_argument(r)})"
            if r.algebra in ALGEBRAS:
                (result,), (init,) = r.results, r.inits
                if init != ALGEBRAS[r.algebra].identity(init.type):
                    template = join(r.algebra, r.type)
                    infix = template.startswith("{0}")
                    total = template.format(self.printer.exact(init, UNARY if infix else TERNARY), total)
                out.line(f"const {register_type(init.type)} {self.identifier(result)} = {total};")
                continue
            for result, init in zip(r.results, r.inits, strict=True):
                out.line(f"{register_type(init.type)} {self.identifier(result)} = {self.value(init)};")
            found = self.derived(f"{r.name}_total")
            out.line(f"const auto {found} = {total};")
            self.apply(r, stage, found, [self.identifier(result) for result in r.results])

    def divisors(self, stage: Stage) -> None:
        """What the columns are divided by is the same for the whole row: its reciprocal is taken once."""
        tiles = {stage.column} | {n for o in stage.operators for n in made(o)}
        for o in stage.operators:
            for e in (x for root in expressions(o) for x in walk_expr(root)):
                match e:
                    case Op(name="div", args=(_, by)) if isinstance(by, Ref) and by.name not in tiles:
                        if by not in self.printer.divisors:
                            name = self.derived(f"{by.name}_divisor")
                            self.printer.divisors[by] = name
                            self.out.line(f"const weft::Divisor<{register_type(by.type)}> {name}({self.value(by)});")

    def partial(self, r: Reduce) -> str:
        return self.derived(f"{r.name}_partial")

    def tile_loop(self, stage: Stage) -> str:
        first, step = self.first_tile(stage), "$tile_columns"
        if stage.reverse:
            return f"for ({self.index} $tile = {first}; $tile >= {self.aligned(stage)}; $tile -= {step})"
        stop = self.printer.index(stage.stop, SUM)
        return f"for ({self.index} $tile = {first}; $tile < {stop}; $tile += {step})"

    def first_tile(self, stage: Stage) -> str:
        if not stage.reverse:
            return self.aligned(stage)
        # the last tile that has a column; for an empty range it lies before the first
        return f"({self.printer.index(stage.stop, SUM)} + $tile_columns - 1) / $tile_columns * $tile_columns - $tile_columns"

    def pipelined(self, stage: Stage) -> None:
        """Tile after tile, the next one fetched while this one is scanned."""
        out = self.out
        inputs = stage.inputs()
        self.pipelines += 1
        ahead = "next" if self.pipelines == 1 else f"next_{self.pipelines}"  # another loop may fetch the same tiles
        self.declare_runs(inputs, ahead)
        with self.runs(stage, self.first_tile(stage)):
            self.fetch(stage, inputs, ahead)
        with out.block(self.tile_loop(stage)):
            self.declare(inputs)
            with self.runs(stage, None):
                self.unpack(inputs, ahead)
            step = "-" if stage.reverse else "+"
            with self.runs(stage, f"$tile {step} $tile_columns"):
                self.fetch(stage, inputs, ahead)
            self.scans(stage, "$tile")
            self.compute(stage, "$tile")

    # ---------------------------------------------------------------- tiles

    @contextmanager
    def runs(self, stage: Stage, base: str | None, backwards: bool = False) -> Iterator[None]:
        """The loop over a thread's runs of neighbouring columns; the first column of the run is `<column>_run`."""
        plan = self.plan
        (thread_stride, (_, chunk_stride)) = plan.layout.stride
        order = (
            f"int32_t $chunk = {plan.chunks - 1}; $chunk >= 0; --$chunk"
            if backwards
            else f"int32_t $chunk = 0; $chunk < {plan.chunks}; ++$chunk"
        )
        self.out.line("#pragma unroll")
        with self.out.block(f"for ({order})"):
            if base is not None:
                run = f"$chunk * {chunk_stride}" if plan.held else f"$chunk * $threads * {thread_stride}"
                parts = (
                    ([] if base == "0" else [base])
                    + ([run] if plan.chunks > 1 else [])
                    + [f"$thread * {thread_stride}"]
                )
                self.out.line(f"const {self.index} {self.run(stage)} = {' + '.join(parts)};")
            yield

    @contextmanager
    def lanes(self, backwards: bool = False) -> Iterator[None]:
        """The loop over the columns of a run."""
        vector = self.plan.vector
        self.out.line("#pragma unroll")
        order = f"int32_t $v = {vector - 1}; $v >= 0; --$v" if backwards else f"int32_t $v = 0; $v < {vector}; ++$v"
        with self.out.block(f"for ({order})"):
            yield

    @contextmanager
    def columns(self, stage: Stage, exprs: tuple[Expr, ...], backwards: bool) -> Iterator[None]:
        """The loop over a run's columns that are in the stage's range; tiles are spelled as their elements."""
        whole = self.whole(stage)
        self.spelled |= {o.name: f"{self.identifier(o.name)}[$chunk][$v]" for o in stage.inputs()}
        names = {n for e in exprs for n in free_names(e)}
        with self.lanes(backwards):
            column = self.identifier(stage.column)
            if stage.column in names or not whole:
                self.out.line(f"const {self.index} {column} = {self.run(stage)} + $v;")
            if whole:
                yield
            else:
                low = "" if stage.start == ZERO else f"{column} >= {self.printer.index(stage.start, SUM)} && "
                with self.out.block(f"if ({low}{column} < {self.printer.index(stage.stop, SUM)})"):
                    yield
        for o in stage.inputs():
            del self.spelled[o.name]

    @contextmanager
    def in_range(self, stage: Stage, ahead: bool = False) -> Iterator[None]:
        """Only runs that are in the stage's range, where runs are wholly in or out. ahead: of a tile still to come."""
        condition = []
        if ahead and stage.reverse:
            condition.append(f"{self.run(stage)} >= {self.aligned(stage) if self.below_zero(stage) else 0}")
        if self.whole(stage):
            condition.append(f"{self.run(stage)} < {self.printer.index(stage.stop, SUM)}")
        if condition:
            with self.out.block(f"if ({' && '.join(condition)})"):
                yield
        else:
            yield

    def whole(self, stage: Stage) -> bool:
        return divisible(stage, self.function, self.facts, self.plan.vector)

    def run(self, stage: Stage) -> str:
        return self.derived(f"{stage.column}_run")

    def run_name(self, o: Input, suffix: str) -> str:
        return self.derived(f"{o.name.removesuffix('_tile')}_{suffix}")

    def declare(self, inputs: tuple[Input, ...]) -> None:
        for o in inputs:
            self.out.line(f"{register_type(o.type)} {self.identifier(o.name)}[{self.plan.chunks}][{self.plan.vector}];")

    def declare_runs(self, inputs: tuple[Input, ...], suffix: str) -> None:
        for o in inputs:
            type_ = memory_type(self.function.array(o.array).dtype)
            run = f"weft::Run<{type_}, {self.plan.vector}>"
            self.out.line(f"{run} {self.run_name(o, suffix)}[{self.plan.chunks}];")

    def unpack(self, inputs: tuple[Input, ...], suffix: str) -> None:
        for o in inputs:
            self.out.line(f"weft::unpack({self.run_name(o, suffix)}[$chunk], {self.identifier(o.name)}[$chunk]);")

    def fetch(self, stage: Stage, inputs: tuple[Input, ...], suffix: str) -> None:
        """Inside a loop over runs: the runs that are in the stage's range, as they are in memory."""
        with self.in_range(stage, ahead=True):
            for o in inputs:
                self.out.cite(o.location)
                self.out.line(f"{self.run_name(o, suffix)}[$chunk] = {self.fetched(stage, o)};")

    def load_tile(self, stage: Stage, base: str) -> None:
        inputs = tuple(o for o in stage.inputs() if o.name not in self.loaded)
        if not inputs:
            return
        self.declare(inputs)
        with self.runs(stage, base), self.in_range(stage):
            for o in inputs:
                self.out.cite(o.location)
                self.out.line(f"weft::unpack({self.fetched(stage, o)}, {self.identifier(o.name)}[$chunk]);")
        if self.plan.held:
            self.loaded |= {o.name for o in inputs}

    def row_pointers(self, operators: tuple[Operator, ...]) -> None:
        """For each array along the columns, a pointer to the row's."""
        for o in operators:
            if not isinstance(o, (Input, Output)) or o.axis is None:
                continue
            key = self.pointer_key(o)
            if key in self.pointers:
                continue
            if all(i == ZERO for i in key[1]):
                self.pointers[key] = self.identifier(o.array)
                if self.plan.held and not self.plan.alone and o.array not in self.written:
                    # the same for every row, and too much to keep in registers from one to the next: the cache keeps it
                    self.pointers[key] = self.derived(f"{o.array}_row")
                    type_ = memory_type(self.function.array(o.array).dtype)
                    self.out.line(
                        f"const {type_}* const {self.pointers[key]} = weft::opaque({self.identifier(o.array)});"
                    )
                continue
            vars_ = [a.var for a in self.graph.rows if any(a.var in free_names(i) for i in key[1])]
            name, k = self.derived("_".join([o.array, *(vars_ or ["row"])])), 1
            while name in self.pointers.values():
                name, k = self.derived("_".join([o.array, *(vars_ or ["row"]), str(k)])), k + 1
            self.pointers[key] = name
            const = "" if o.array in self.written else "const "
            type_ = memory_type(self.function.array(o.array).dtype)
            self.out.line(
                f"{const}{type_}* const {name} = {self.identifier(o.array)} + {self.offset(o.array, key[1])};"
            )

    @staticmethod
    def pointer_key(o: Input | Output) -> tuple[str, tuple[Expr, ...], int]:
        assert o.axis is not None
        return o.array, tuple(ZERO if k == o.axis else i for k, i in enumerate(o.index)), o.axis

    def fetched(self, stage: Stage, o: Input) -> str:
        """The elements of one run. Those outside the array are not loaded, nor are those of columns outside the stage where
        the call has checked the others: an array made here may have no values there.
        """
        assert o.axis is not None
        pointer, count = self.pointers[self.pointer_key(o)], self.plan.vector
        run, extent = self.run(stage), self.function.array(o.array).shape[o.axis]
        unit = (o.array, o.axis) in self.facts.unit
        stride = self.stride(o.array, o.axis)
        width = self.width(o.array) if unit else 1
        # the run is all inside the array: it is as long as the stage, or the call has checked every column of the stage
        inside = self.whole(stage) and (extent == stage.stop or (o.always and o.offset == HERE))
        if inside and o.offset == HERE:
            if unit:
                return f"weft::fetch<{count}, {width}>({pointer} + {run})"
            return f"weft::fetch_strided<{count}>({pointer} + int64_t({run}) * {stride}, {stride})"
        if inside and unit and o.offset == Affine((), -1):
            return f"weft::fetch_before<{count}, {width}>({pointer}, {run})"
        if inside and unit and o.offset == Affine((), 1):
            size = self.printer.index(extent, SUM)
            return f"weft::fetch_after<{count}, {width}>({pointer}, {run}, {size})"
        first = self.plus(run, o.offset)
        address = f"{pointer} + {first}" if unit else f"{pointer} + int64_t({first}) * {stride}"
        if o.always and stage.told:
            start = affine(stage.start)
            first = f"{run} - {self.printer.index(stage.start, PRODUCT)}" if start is None else self.plus(run, HERE - start)
            size = self.printer.index(difference(stage.stop, stage.start), SUM)
        else:
            size = self.printer.index(extent, SUM)
        return f"weft::fetch_within<{count}>({address}, {stride}, {first}, {size})"

    def width(self, array: str) -> int:
        """How many neighbours one instruction moves: 16 bytes at most."""
        return min(self.facts.vector(array), self.plan.vector, 16 // self.function.array(array).dtype.size)

    # ---------------------------------------------------------------- scans

    def needed(self, stage: Stage, exprs: tuple[Expr, ...]) -> tuple[Map, ...]:
        """The maps that these expressions need, in order."""
        maps = {m.name: m for m in stage.operators if isinstance(m, Map)}
        wanted: set[str] = set()
        pending = {n for e in exprs for n in free_names(e)}
        while pending:
            name = pending.pop()
            if name in maps and name not in wanted:
                wanted.add(name)
                pending |= free_names(maps[name].value)
        return tuple(m for m in stage.operators if isinstance(m, Map) and m.name in wanted)

    def maps(self, maps: tuple[Map, ...]) -> None:
        for m in maps:
            self.out.cite(m.location)
            if m.kept:
                self.out.line(f"{self.spelled[m.name]} = {self.value(m.value)};")
                continue
            self.out.line(f"const {register_type(m.value.type)} {self.identifier(m.name)} = {self.value(m.value)};")

    def scans(self, stage: Stage, base: str) -> None:
        known: list[Scan] = []
        for o in stage.scans():
            self.scan(stage, base, o, tuple(known))
            known.append(o)

    def replayed(self, stage: Stage, exprs: tuple[Expr, ...], known: tuple[Scan, ...]) -> tuple[Scan, ...]:
        """The scans whose states these expressions need."""
        found: list[Scan] = []
        for o in reversed(known):
            used = (*exprs, *(e for p in found for e in p.nexts))
            maps = self.needed(stage, used)
            if any(free_names(e) & set(o.names) for e in (*used, *(m.value for m in maps))):
                found.append(o)
        return tuple(reversed(found))

    def scan(self, stage: Stage, base: str, o: Scan, known: tuple[Scan, ...]) -> None:
        """The state before each run: combine a thread's columns, scan over the team, apply to the state so far."""
        out, algebra = self.out, self.algebra(o)
        own, state = (self.derived(f"{o.name}_{s}") for s in ("own", "prefix"))
        results = [self.identifier(r) for r in o.results]
        befores = [self.before(n) for n in o.names]
        exprs = composed_of(o, stage)
        replayed = self.replayed(stage, exprs, known)
        exprs = (*exprs, *(e for k in replayed for e in k.nexts))
        maps = self.needed(stage, exprs)
        out.line(f"{algebra}::Value {own}[{self.plan.chunks}];  // what each run does to {', '.join(results)}")
        with self.runs(stage, base):
            out.line(f"{own}[$chunk] = {algebra}::identity();")
            with self.in_range(stage):
                self.begin(replayed)
                with self.columns(stage, (*exprs, *(m.value for m in maps)), stage.reverse):
                    self.maps(maps)
                    out.line(f"{own}[$chunk] = {self.combined(f'{own}[$chunk]', o, stage)};")
                    self.advance(replayed)
        for init, before, result in zip(o.inits, befores, results, strict=True):
            out.line(f"{register_type(init.type)} {before}[{self.plan.chunks}];  // {result} before each run")
        checked = overflows(o.algebra, o.type)
        firsts = [self.derived(f"{n}_first") for n in o.names]
        finite = self.derived(f"{o.name}_finite")
        if checked:
            for init, first, result in zip(o.inits, firsts, results, strict=True):
                out.line(f"const {register_type(init.type)} {first} = {result};")
            out.line(f"bool {finite} = true;")
        backwards = "true" if stage.reverse else "false"
        with self.runs(stage, None, stage.reverse):
            scan = f"weft::scan<{algebra}, {self.team_size()}, {backwards}>"
            out.line(f"const auto {state} = {scan}({own}[$chunk], {self.scratch_argument(o)});")
            targets = [f"{before}[$chunk]" for before in befores]
            if o.algebra == AFFINE:
                out.line(f"{targets[0]} = {state}.before({results[0]});")
                out.line(f"{results[0]} = {state}.all({results[0]});")
            elif o.algebra in ALGEBRAS:
                out.line(f"{targets[0]} = {join(o.algebra, o.type).format(results[0], f'{state}.before')};")
                out.line(f"{results[0]} = {join(o.algebra, o.type).format(results[0], f'{state}.all')};")
            else:
                for target, result in zip(targets, results, strict=True):
                    out.line(f"{target} = {result};")
                self.apply(o, stage, f"{state}.before", targets)
                self.apply(o, stage, f"{state}.all", results)
            if checked:
                known_finite = " && ".join(f"weft::is_finite({s})" for s in (*targets, *results))
                out.line(f"{finite} = {finite} && {known_finite};")
        if not checked:
            return
        out.line("// what overflows when columns are composed is computed in their order")
        with out.block(f"if (!weft::all_of_team<{self.team_size()}>({finite}))"):
            for first, result in zip(firsts, results, strict=True):
                out.line(f"{result} = {first};")
            with self.runs(stage, base, stage.reverse):
                self.in_order(stage, o, known, results)

    def in_order(self, stage: Stage, o: Scan, known: tuple[Scan, ...], results: list[str]) -> None:
        """One run of a scan, column by column and thread by thread, from its results so far."""
        out = self.out
        replayed = self.replayed(stage, o.nexts, known)
        wanted = tuple(e for k in (*replayed, o) for e in k.nexts)
        maps = self.needed(stage, wanted)
        names = [self.identifier(n) for n in o.names]
        state = ", ".join(f"{register_type(e.type)}& {n}" for n, e in zip(names, o.inits, strict=True))
        with out.block(f"const auto $step = [&]({state})", "};"), self.in_range(stage):
            self.begin(replayed)
            with self.columns(stage, (*wanted, *(m.value for m in maps)), stage.reverse):
                self.maps(maps)
                self.advance((*replayed, o))
        kept = " ".join(f"{self.before(n)}[$chunk] = {self.identifier(n)};" for n in o.names)
        out.line(f"const auto $keep = [&]({state}) {{ {kept} }};")
        backwards = "true" if stage.reverse else "false"
        out.line(f"weft::in_turn<{self.team_size()}, {backwards}>($step, $keep, {', '.join(results)});")

    def apply(self, o: Scan | Reduce, stage: Stage, element: str, state: list[str]) -> None:
        """Change a state as an element says."""
        if o.algebra not in EXTREMA:
            self.out.line(f"{self.algebra(o)}::apply({element}, {', '.join(state)});")
            return
        columns = [s for k, s in enumerate(state) if is_column(o, stage, k)]
        others = [s for k, s in enumerate(state) if not is_column(o, stage, k)]
        changed = f"{self.algebra(o)}::apply({element}, {', '.join(others)})"
        places = " ".join(f"{s} = {element}.column;" for s in columns)
        if len(columns) > 1:
            places = f"{{ {places} }}"
        self.out.line(f"if ({changed}) {places}" if columns else f"{changed};")

    def before(self, name: str) -> str:
        """The states of a scan before each run."""
        return self.derived(f"{name}_before")

    def begin(self, scans: tuple[Scan, ...]) -> None:
        """The states with which a run starts."""
        for o in scans:
            for name, init in zip(o.names, o.inits, strict=True):
                self.out.line(f"{register_type(init.type)} {self.identifier(name)} = {self.before(name)}[$chunk];")

    def combined(self, name: str, o: Scan | Reduce, stage: Stage) -> str:
        """A partial result with what this column does: as the replay of a scan adds it, so a sum of products fuses."""
        algebra = self.algebra(o)
        kept = [e for k, e in enumerate(o.parts) if not (o.algebra in EXTREMA and k > 1 and is_column(o, stage, k - 1))]
        parts = ", ".join(map(self.value, kept))
        if o.algebra in ALGEBRAS:
            fused = self.printer.accumulated(name, o.parts[0]) if o.algebra == "sum" else None
            return fused or f"{algebra}::combine({name}, {parts})"
        if o.algebra == AFFINE:
            return f"{algebra}::combine({name}, {{{parts}}})"
        if o.algebra in EXTREMA:
            column = f"{self.identifier(stage.column)}, {parts}"
            if isinstance(o, Reduce):
                return f"{algebra}::next({name}, {column})"
            parts = column
        return f"{algebra}::combine({name}, {algebra}::step({parts}))"

    # ---------------------------------------------------------------- the columns themselves

    def compute(self, stage: Stage, base: str) -> None:
        """Maps, partial reductions and stores of a tile; the states of scans are replayed column by column."""
        out = self.out
        outputs, scans, reductions = stage.outputs(), stage.scans(), stage.reductions()
        runs = {k: self.run_of(k, outputs) for k, o in enumerate(outputs) if self.stored_at_once(stage, o)}
        wanted: tuple[Expr, ...] = tuple(o.value for o in outputs)
        wanted += tuple(o.guard for o in outputs if o.guard is not None)
        wanted += tuple(i for k, o in enumerate(outputs) if k not in runs for i in o.index)
        wanted += tuple(e for r in reductions for e in composed_of(r, stage))
        if not wanted:
            return
        replayed = self.replayed(stage, wanted, scans)
        wanted += tuple(e for o in replayed for e in o.nexts)
        maps = self.needed(stage, wanted)
        backwards = stage.reverse and bool(replayed)
        with self.runs(stage, base), self.in_range(stage):
            self.begin(replayed)
            for k, name in runs.items():
                out.line(f"{register_type(outputs[k].value.type)} {name}[{self.plan.vector}];")
            with self.columns(stage, (*wanted, *(m.value for m in maps)), backwards):
                stored = 0
                for op in stage.operators:
                    if isinstance(op, Map) and op in maps:
                        self.maps((op,))
                    elif isinstance(op, Output):
                        out.cite(op.location)
                        if stored in runs:
                            out.line(f"{runs[stored]}[$v] = {self.value(op.value)};")
                        else:
                            out.line(self.store_element(op))
                        stored += 1
                for r in reductions:
                    out.cite(r.location)
                    out.line(f"{self.partial(r)} = {self.combined(self.partial(r), r, stage)};")
                self.advance(replayed)
            for k, name in runs.items():
                output = outputs[k]
                address = f"{self.pointers[self.pointer_key(output)]} + {self.run(stage)}"
                out.line(f"weft::store<{self.width(output.array)}>({address}, {name});")

    def store_element(self, o: Output) -> str:
        if o.axis is None:
            return self.store_text(o.array, o.index, o.value, o.guard)
        stride = self.stride(o.array, o.axis)
        column = self.printer.index(o.index[o.axis], SUM if stride == "1" else PRODUCT)
        column = column if stride == "1" else f"{column} * {stride}"
        checks = "" if o.told else self.checks(o.array, o.index)
        return self.guarded(f"{self.pointers[self.pointer_key(o)]}[{column}] = {self.value(o.value)};", o.guard, checks)

    def advance(self, scans: tuple[Scan, ...]) -> None:
        """The states after this column; where one needs another's state before it, through a copy."""
        moving = [(n, e) for o in scans for n, e in zip(o.names, o.nexts, strict=True) if e != Ref(n, e.type)]
        after = {}
        for k, (name, next_) in enumerate(moving):
            if any(name in free_names(e) for _, e in moving[k + 1 :]):
                after[name] = self.derived(f"{name}_after")
                self.out.line(f"const {register_type(next_.type)} {after[name]} = {self.value(next_)};")
        for name, next_ in moving:
            if name not in after:
                self.out.line(f"{self.identifier(name)} = {self.value(next_)};")
        for name, copy in after.items():
            self.out.line(f"{self.identifier(name)} = {copy};")

    def run_of(self, k: int, outputs: tuple[Output, ...]) -> str:
        """The name of what the k-th of these outputs stores; one array may be stored twice, and alike."""
        array = outputs[k].array
        same = [j for j, o in enumerate(outputs) if o.array == array]
        return self.derived(f"{array}_run" if len(same) == 1 else f"{array}_run_{same.index(k)}")

    def stored_at_once(self, stage: Stage, o: Output) -> bool:
        """Whether a run is stored as vectors: neighbours in memory, all or none of them in the range."""
        if o.axis is None or o.guard is not None or o.offset != HERE or not self.whole(stage):
            return False
        return (o.array, o.axis) in self.facts.unit
