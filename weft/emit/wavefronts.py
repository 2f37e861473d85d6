"""A wavefront as CUDA C++: a thread for each row, which goes through its points in order, some steps behind the row before.

A block has a strip of rows beside each other, whose threads wait for each other after every step. Where blocks share the
strips, each tells the next one how many steps are done; it never waits for a later one.
"""

from __future__ import annotations

from dataclasses import replace

from weft.emit.cpp import varying, without_unused
from weft.emit.expressions import SUM, register_type
from weft.emit.names import Names, kernel_entry, words
from weft.emit.text import Writer
from weft.emit.thread_body import ThreadBody, count_of, parameters, value_of
from weft.loops.ir import (
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Op,
    Ref,
    Stmt,
    Store,
    certain_in,
    free_arrays,
    free_names,
    map_statement,
    rewrite,
    statement_exprs,
    substitute,
    trapping,
    walk,
)
from weft.loops.schedule import Axis, Nest
from weft.loops.types import INT64
from weft.loops.wavefronts import Wavefront, counted, points_of
from weft.plan.arguments import Facts
from weft.plan.wavefront import CHUNK, RESIDENT, WavefrontPlan

_TAKEN = words(
    """
    item outside told parts strip rows mine row begin end begin_row end_row steps until step origin words turn done before
    after behind place next first ahead
    """
)


def emit(function: Function, nest: Nest, found: Wavefront, plan: WavefrontPlan, facts: Facts) -> str:
    """The kernel's translation unit. Its one entry takes the slots of `weft.plan.arguments`, and where blocks share strips, a
    pointer to a word for each strip of each item, which is 0 at first, and the number of strips.
    """
    own = Nest(nest.name, nest.axes, trapping(without_unused(function, nest)), nest.verdicts)
    writer = Writer()
    fresh = Names(_TAKEN | {kernel_entry(nest.name)})
    large = varying(own, {s.name for s in function.scalars})
    body = _Rows(function, own, facts, writer, fresh, {}, {}, varying(own, set()), large, found=found, plan=plan)
    writer.line('#include "weft/memory.cuh"')
    if plan.shared:
        writer.line('#include "weft/atomic.cuh"')
    writer.line()
    body.emit()
    return writer.text()


class _Rows(ThreadBody):
    """The rows of a nest."""

    def __init__(self, *args: object, found: Wavefront, plan: WavefrontPlan) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.found, self.plan = found, plan
        loop = self.nest.body[-1]
        assert isinstance(loop, For)
        points = points_of(loop)
        assert points is not None
        self.rows, self.points = loop, points
        at = next(k for k, s in enumerate(loop.body) if s is points)
        self.first: tuple[Stmt, ...] = loop.body[:at]
        self.last: tuple[Stmt, ...] = loop.body[at + 1 :]
        self.delayed = tuple(s for s in self.first if isinstance(s, Let) and s.name in found.before)
        self.given = {load: self.raw(self.fresh.fresh(f"{load.array}_here"), load.type).name for load in self.steady_loads()}
        self.ahead = {load: name for load, name in self.given.items() if points.var in free_names(load)}
        self.points = self.with_given(points)

    def steady_loads(self) -> tuple[Load, ...]:
        """What every point reads, at places that are told by it alone, of arrays that no row writes."""
        stored = {s.array for s in walk((self.rows,)) if isinstance(s, Store)}
        known = {self.points.var, self.rows.var, *(a.var for a in self.nest.axes)}
        known |= {s.name for s in self.function.sizes} | {s.name for s in self.function.scalars}
        exprs: list[Expr] = []
        for s in self.points.body:  # of a branch only its condition is evaluated whichever side is taken
            exprs += [s.condition] if isinstance(s, If) else [] if isinstance(s, For) else statement_exprs(s)
        exprs += [c.next for c in self.points.carries]
        loads = [e for x in exprs for e in certain_in(x) if isinstance(e, Load)]
        return tuple(dict.fromkeys(
            e for e in loads
            if e.array not in stored and not self.function.array(e.array).within and free_names(e) <= known
            and not any(map(free_arrays, e.index)) and not self.unproven_access(e.array, e.index)
        ))  # fmt: skip

    def with_given(self, points: For) -> For:
        """The loop with names for what is read ahead."""

        def expr(e: Expr) -> Expr:
            return rewrite(e, lambda x: Ref(self.given[x], x.type) if isinstance(x, Load) and x in self.given else None)

        def block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
            return tuple(map_statement(s, expr, block) for s in body)

        carries = tuple(replace(c, next=expr(c.next)) for c in points.carries)
        return replace(points, carries=carries, body=block(points.body))

    def emit(self) -> None:
        line, plan, axes = self.writer.line, self.plan, {a.var: a for a in self.nest.axes}
        given = parameters(self.function, self.nest, self.facts, self)
        given += ["uint64_t* told", "const int64_t parts"] if plan.shared else []
        lines = ",\n    ".join(given)
        bounds = f"__launch_bounds__({plan.threads}, {RESIDENT})"
        with self.writer.block(f'extern "C" __global__ void {bounds} {kernel_entry(self.nest.name)}(\n    {lines})'):
            checked = self.checked(self.nest.body)
            if checked:
                line("int64_t outside = 0;")
            counts = []
            for var in plan.order:
                counts.append(self.fresh.fresh(f"{var}_count"))
                line(f"const int64_t {counts[-1]} = {count_of(axes[var], self)};")
            items = " * ".join(counts) or "1"
            with self.writer.block(f"for (int64_t item = blockIdx.x; item < {items}; item += gridDim.x)"):
                rest, decoded = "item", []
                for k in range(len(counts) - 1, -1, -1):
                    position = f"{rest} % {counts[k]}" if k else rest
                    axis = axes[plan.order[k]]
                    decoded.append(f"const int64_t {self.declare(axis.var)} = {value_of(axis, position, self)};")
                    rest = f"{rest} / {counts[k]}"
                for text in reversed(decoded):
                    line(text)
                variables = [a.var for a in self.nest.axes]
                self.hoist(self.nest.body, variables)
                for var in variables:
                    self.local_arrays(var)
                self.statements(self.nest.body[:-1])
                self.strips()
            if checked:
                line("if (outside) __trap();  // a subscript left its array: as PyTorch's own kernels do")

    def strips(self) -> None:
        """All rows of an item that a block has."""
        line, plan, loop = self.writer.line, self.plan, self.rows
        self.writer.cite(loop.location)
        axis = Axis(loop.var, loop.start, loop.stop, loop.step)
        line(f"const int64_t rows = {count_of(axis, self)};")
        first, step = ("blockIdx.y", "gridDim.y") if plan.shared else ("0", "1")
        if plan.shared:
            line(f"const int64_t origin = {self.least('0', 'rows - 1')};")
        stepping = "++strip" if step == "1" else f"strip += {step}"
        with self.writer.block(f"for (int64_t strip = {first}; strip * {plan.threads} < rows; {stepping})"):
            late = f"{self.found.slope} step{'s' * (self.found.slope > 1)} later than in the row before"
            line(f"// a row of the strip for each thread: a point happens {late}")
            line(f"const int64_t begin_row = strip * {plan.threads};")
            line(f"const int64_t end_row = weft::minimum<int64_t>(begin_row + {plan.threads}, rows) - 1;")
            line("const int64_t row = weft::minimum<int64_t>(begin_row + threadIdx.x, end_row);")
            line("const bool mine = begin_row + threadIdx.x <= end_row;")
            if plan.shared and self.ahead:
                line(f"int64_t begin = {self.least('begin_row', 'end_row')};")
                line(f"begin -= (begin - origin) % {plan.ahead};")
            else:
                line(f"const int64_t begin = {self.least('begin_row', 'end_row')};")
            line(f"const int64_t end = {self.most('begin_row', 'end_row')};")
            line(f"const int64_t {self.declare(loop.var)} = {value_of(axis, 'row', self)};")
            self.prologue()
            if plan.shared:
                self.told()
            else:
                self.steps("begin", "end")

    def place(self, expr: Expr, row: str) -> str:
        """A place of the points' variable, counted upwards, in the row of that number."""
        loop = self.rows
        if row == "row":
            return self.printer.index(counted(expr, self.points), SUM)
        sign = "add" if loop.step > 0 else "sub"
        at = Op(sign, (loop.start, self.raw(f"({row})" if " " in row else row)), INT64)
        if loop.start == Const(0, INT64) and loop.step > 0:
            at = self.raw(f"({row})" if " " in row else row)  # type: ignore[assignment]
        return self.printer.index(counted(substitute(expr, {loop.var: at}), self.points), SUM)

    def shifted(self, place: str, row: str) -> str:
        """A place of a row as a step."""
        if row == "0":
            return place
        slope, wrapped = self.found.slope, f"({row})" if " " in row else row
        return f"{place} + {wrapped if slope == 1 else f'{slope} * {wrapped}'}"

    def first_place(self, row: str) -> str:
        """Where the points of a row begin, or what comes after them where there are none."""
        return f"weft::minimum<int64_t>({self.place(self.points.start, row)}, {self.place(self.points.stop, row)})"

    def least(self, low: str, high: str) -> str:
        """The first step of rows: bounds are sums, so that the first or the last of them begins first."""
        if self.alike():
            return self.shifted(self.first_place(low), low)
        return f"weft::minimum<int64_t>({', '.join(self.shifted(self.first_place(r), r) for r in (low, high))})"

    def most(self, low: str, high: str) -> str:
        """The step after the last one of rows."""
        ends = [self.shifted(self.place(self.points.stop, r), r) for r in ((high,) if self.alike() else (low, high))]
        last = ends[0] if self.alike() else f"weft::maximum<int64_t>({', '.join(ends)})"
        return f"{last} + 1" if self.stores_last() else last

    def alike(self) -> bool:
        """Whether all rows have the same points."""
        return self.rows.var not in free_names(self.points.start) | free_names(self.points.stop)

    def stores_last(self) -> bool:
        return any(isinstance(s, Store) for s in self.last)

    def prologue(self) -> None:
        """What a row keeps in registers, and what it reads before all steps."""
        line, before = self.writer.line, self.found.before
        self.statements(tuple(s for s in self.first if not isinstance(s, Let) or s.name not in before))
        for s in self.delayed:
            line(f"{register_type(s.value.type)} {self.declare(s.name)} = {{}};")
        for c in self.points.carries:
            self.names[c.result] = self.declare(c.name)
            line(f"{register_type(c.type)} {self.names[c.name]} = {{}};")
        slope = self.found.slope
        line(f"const int64_t behind = {'row' if slope == 1 else f'{slope} * row'};")
        line(f"const int64_t before = {self.first_place('row')}, after = {self.place(self.points.stop, 'row')};")
        same = {load: name for load, name in self.given.items() if self.points.var not in free_names(load)}
        for load, name in same.items():
            line(f"{register_type(load.type)} {self.names[name]} = {{}};")
        if same:
            with self.writer.block("if (before < after)"):
                line("// what is the same for all points of a row")
                for load, name in same.items():
                    line(f"{self.names[name]} = {self.printer.value(load)};")
        for load, name in self.ahead.items():
            line(f"{register_type(load.type)} {self.names[name]}[{self.plan.ahead}];")
        if self.ahead:
            line("#pragma unroll")
            with self.writer.block(f"for (int ahead = 0; ahead < {self.plan.ahead}; ++ahead)"):
                self.fetch("begin + ahead - behind")

    def fetch(self, place: str) -> None:
        """Read what a point needs that no row writes, some steps before it."""
        line, points = self.writer.line, self.points
        line(f"const int64_t next = {place};")
        with self.writer.block("if (mine && next >= before && next < after)"):
            at = self.raw("next" if points.step > 0 else "-next")
            for load, name in self.ahead.items():
                line(f"{self.names[name]}[ahead] = {self.printer.value(substitute(load, {points.var: at}))};")

    def told(self) -> None:
        """The steps of a strip, of which blocks tell each other."""
        line = self.writer.line
        line("uint64_t* const words = told + item * parts + strip;")
        line("// words count up, from launch to launch: the upper half is that of this one")
        line("const uint64_t turn = threadIdx.x == 0 ? ((*words >> 32) + 1) << 32 : 0;")
        line("int64_t steps = begin;")
        with self.writer.block("while (steps < end)"):
            line(f"// to a multiple of {CHUNK} steps: all rows before have done these")
            line(f"const int64_t until = weft::minimum<int64_t>(origin + ((steps - origin) / {CHUNK} + 1) * {CHUNK}, end);")
            line("const uint64_t done = turn + uint64_t(until - origin);")
            with self.writer.block("if (strip)"):
                line("if (threadIdx.x == 0) while (weft::load_acquire<weft::Scope::gpu>(words - 1) < done) {}")
                line("__syncthreads();")
            self.steps("steps", "until")
            line("if (threadIdx.x == 0) weft::store_release<weft::Scope::gpu>(words, done);")
            line("steps = until;")
        with self.writer.block("if (threadIdx.x == 0)"):
            line("// whoever waits for this strip waits for all before it")
            line("const uint64_t done = turn + 0xffffffffu;")
            line("if (strip) while (weft::load_acquire<weft::Scope::gpu>(words - 1) < done) {}")
            line("weft::store_release<weft::Scope::gpu>(words, done);")

    def steps(self, begin: str, end: str) -> None:
        line, ahead = self.writer.line, self.plan.ahead
        if not self.ahead:
            with self.writer.block(f"for (int64_t step = {begin}; step < {end}; ++step)"):
                self.step()
            return
        with self.writer.block(f"for (int64_t first = {begin}; first < {end}; first += {ahead})"):
            line("#pragma unroll")
            with self.writer.block(f"for (int ahead = 0; ahead < {ahead}; ++ahead)"):
                line("const int64_t step = first + ahead;")
                self.step()

    def step(self) -> None:
        """A point of each row."""
        line, points = self.writer.line, self.points
        line("const int64_t place = step - behind;")
        with self.writer.block("if (mine)"):
            if self.delayed or points.carries:
                with self.writer.block("if (place == before)"):
                    for s in self.delayed:
                        line(f"{self.names[s.name]} = {self.printer.value(s.value)};")
                    for c in points.carries:
                        line(f"{self.names[c.name]} = {self.printer.value(c.init)};")
            with self.writer.block("if (place >= before && place < after)"):
                line(f"const int64_t {self.declare(points.var)} = {'' if points.step > 0 else '-'}place;")
                self.local_arrays(points.var)
                for name in self.ahead.values():
                    self.names[name] += "[ahead]"
                self.statements(points.body)
                self.advance(points.carries)
                for name in self.ahead.values():
                    self.names[name] = self.names[name].removesuffix("[ahead]")
            if self.stores_last():
                with self.writer.block("if (place == after)"):
                    self.statements(self.last)
        if self.ahead:
            self.fetch(f"place + {self.plan.ahead}")
        line("__syncthreads();")
