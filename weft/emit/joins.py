"""Joins of values to elements that the data choose, as CUDA C++: by atomics where the order cannot show."""

from __future__ import annotations

from dataclasses import dataclass

from weft.emit import entries
from weft.emit.algebras import algebra_type
from weft.emit.bins import BinsBody
from weft.emit.dependent import dependences, include
from weft.emit.expressions import PRODUCT, SUM, register_type
from weft.emit.latest import emit_store
from weft.emit.names import Names
from weft.emit.rows_of_joins import RowsBody
from weft.emit.sorts import SortBody
from weft.emit.sums_abreast import AbreastBody
from weft.emit.text import Writer
from weft.emit.thread_body import parameters
from weft.emit.values import ValueBody, deciding
from weft.graph.joins import Joins, Points
from weft.graph.tile import Read, Write, uses_of_write
from weft.loops.ir import Const, Expr, Function, Let, Ref, trapping
from weft.loops.schedule import Nest
from weft.loops.types import BOOL, INT64, ScalarType
from weft.plan.arguments import Facts
from weft.plan.fold import is_run
from weft.plan.join import (
    BLOCK,
    BinsPlan,
    JoinPlan,
    Own,
    PointsPlan,
    RowsPlan,
    SortPlan,
    dependent_steps,
    join_steps,
    memory_of,
)
from weft.plan.latest import LastPlan

# How a join of bools is one of the words that stand for them.
_OF_WORDS = {"and": "bitand", "or": "bitor"}


def emit(function: Function, nest: Nest, joins: Joins, plan: JoinPlan, facts: Facts) -> str:
    """The kernels' translation unit: an entry for each step of the plan, named by `entries.of_joins`. Each takes the slots of
    `weft.plan.arguments`; of a sort, then a pointer for each name of `memory_of` and how much there is to go through.
    """
    own = Nest(nest.name, nest.axes, trapping(nest.body), nest.verdicts)
    writer = Writer()
    launches = dependences(dependent_steps(plan))
    include(writer, launches)
    writer.line('#include "weft/memory.cuh"')
    if any(isinstance(p, PointsPlan) for p in plan.groups):
        writer.line('#include "weft/join.cuh"')
    if any(isinstance(p, SortPlan) or (isinstance(p, LastPlan) and p.digits) for p in plan.groups):
        writer.line('#include "weft/sort.cuh"')
    if any(isinstance(p, BinsPlan | RowsPlan) for p in plan.groups):
        writer.line('#include "weft/bins.cuh"')
    if any(isinstance(p, LastPlan) for p in plan.groups):
        writer.line('#include "weft/latest.cuh"')
    if any(isinstance(p, LastPlan) and p.store.turned for p in plan.groups):
        writer.line('#include "weft/turn.cuh"')
    for step, entry, dependence in zip(join_steps(plan), entries.of_joins(nest, plan), launches, strict=True):
        group, how = joins.groups[step.group], plan.groups[step.group]
        writer.line()
        if isinstance(how, PointsPlan):
            points = group if isinstance(group, Points) else group.unordered()
            _Entry.begun(function, own, facts, writer, joins, points, how).emit(entry)
            continue
        assert not isinstance(group, Points)
        if isinstance(how, LastPlan) and step.kind == "store":
            emit_store(function, own, facts, writer, joins, group, how, entry, memory_of(step, plan))
        elif isinstance(how, RowsPlan):
            own_row = group.of_a_row
            RowsBody.begun(function, own, facts, writer, joins, own_row, how).emit(entry, step, (), dependence)
        elif isinstance(how, BinsPlan):
            BinsBody.begun(function, own, facts, writer, joins, group, how).emit(entry, step, memory_of(step, plan), dependence)
        else:
            body = AbreastBody if isinstance(how, SortPlan) and how.abreast else SortBody
            body.begun(function, own, facts, writer, joins, group, how).emit(entry, step, memory_of(step, plan), dependence)
    return writer.text()


@dataclass
class _Entry(ValueBody):
    """The launch of a group of points."""

    joins: Joins = None  # type: ignore[assignment]
    points: Points = None  # type: ignore[assignment]
    plan: PointsPlan = None  # type: ignore[assignment]

    @classmethod
    def begun(
        cls, function: Function, nest: Nest, facts: Facts, writer: Writer, joins: Joins, points: Points, plan: PointsPlan
    ) -> _Entry:
        taken = {"outside", "place", "places", "v", "k", "total"}
        varies = deciding(joins.axes, joins.values)
        large = varies | {s.name for s in function.scalars}
        return cls(
            function, nest, facts, writer, Names(frozenset(taken)), {}, {}, varies, large,
            axes=joins.axes, values=joins.values, joins=joins, points=points, plan=plan,
        )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        self.held: dict[str, tuple[Own, str]] = {}  # what a block has of an array, and the name of a thread's copy

    def emit(self, entry: str) -> None:
        lines = ",\n    ".join(parameters(self.function, self.nest, self.facts, self))
        with self.writer.block(f'extern "C" __global__ void __launch_bounds__({BLOCK}) {entry}(\n    {lines})'):
            mark = self.writer.mark()
            for own in self.plan.own:
                self.hold(own)
            if self.plan.own:
                self.writer.line("__syncthreads();")
            self.grid()
            if self.plan.own:
                self.writer.line("__syncthreads();")
            for own in self.plan.own:
                self.give(own)
            self.stop_outside(mark)

    # ---------------------------------------------------------------- the points

    def grid(self) -> None:
        """The points, in the order of the grid's threads; a thread has neighbours along the lane."""
        axes, vector = [self.axes[a] for a in self.plan.order], self.plan.vector
        if not axes:
            with self.writer.block("if (blockIdx.x == 0 && threadIdx.x == 0)"):
                self.inside(list(self.points.inside))
            return
        counts = {a.name: self.span(a, f"{a.name}_count") for a in axes}
        lane = axes[-1]
        if vector > 1:
            counts[lane.name] = f"({counts[lane.name]} / {vector})" if len(axes) > 1 else f"{counts[lane.name]} / {vector}"
        first, step = f"int64_t(blockIdx.x) * {BLOCK} + threadIdx.x", f"int64_t(gridDim.x) * {BLOCK}"
        whole = " * ".join(counts[a.name] for a in axes)
        with self.writer.block(f"for (int64_t place = {first}; place < {whole}; place += {step})"):
            name = self.declare(lane.name)
            if vector == 1:
                self.places(axes, "place", counts)
                self.inside(list(self.points.inside))
                return
            first, run = self.fresh.fresh(f"{lane.name}_first"), "place"
            if len(axes) > 1:
                run = self.names[lane.name] = self.fresh.fresh(f"{lane.name}_run")
                self.places(axes, "place", counts)
                self.names[lane.name] = name
            self.writer.line(f"const int64_t {first} = {run} * {vector};")
            self.runs(lane.name, first)

    def runs(self, lane: str, first: str) -> None:
        """Neighbouring points of one thread, from the first on: what lies along the lane comes in packets."""
        vector = self.plan.vector
        wanted = self.needed([e for w in self.points.writes for e in uses_of_write(w)])
        name = self.names[lane]
        self.names[lane] = first
        known = {}
        for v in wanted:
            if isinstance(v, Read) and lane in v.axes and is_run(v.array, v.index, lane, self.facts):
                self.writer.cite(v.location)
                known[v.name] = tile = self.fresh.fresh(f"{v.array}_run")
                self.writer.line(f"{register_type(self.function.array(v.array).dtype)} {tile}[{vector}];")
                width = self.width(v.array, vector)
                self.writer.line(f"weft::unpack(weft::fetch<{vector}, {width}>({self.address(v.array, v.index)}), {tile});")
        early = [v for v in wanted if v.name not in known and lane not in v.axes]
        self.statements(tuple(map(self.let, early)))
        self.names[lane] = name
        self.writer.line("#pragma unroll")
        with self.writer.block(f"for (int32_t v = 0; v < {vector}; ++v)"):
            mark = self.writer.mark()
            self.names |= {n: f"{tile}[v]" for n, tile in known.items()}
            self.point({*known, *(v.name for v in early)})
            if self.writer.mentions(name, mark):
                self.writer.insert(mark, f"const int64_t {name} = {first} + v;")

    def inside(self, axes: list[str], known: frozenset[str] = frozenset()) -> None:
        """Loops over the axes whose bounds vary, and the point."""
        if not axes:
            self.point(known)
            return
        axis = self.axes[axes[0]]
        bounds = self.needed([axis.start, axis.stop])
        early = [v for v in bounds if v.name not in known]
        self.statements(tuple(map(self.let, early)))
        name, start, stop = self.declare(axis.name), self.printer.index(axis.start), self.printer.index(axis.stop, SUM)
        with self.writer.block(f"for (int64_t {name} = {start}; {name} < {stop}; ++{name})"):
            self.inside(axes[1:], known | {v.name for v in early})

    def point(self, known: set[str] | frozenset[str]) -> None:
        wanted = self.needed([e for w in self.points.writes for e in uses_of_write(w)])
        self.statements(tuple(self.let(v) for v in wanted if v.name not in known))
        for w in self.points.writes:
            if w.join:
                self.join(w)
            else:
                self.write(w)

    # ---------------------------------------------------------------- joins

    def join(self, w: Write) -> None:
        self.writer.cite(w.location)
        if w.guard is None:
            self.joined(w)
            return
        with self.writer.block(f"if ({self.printer.value(w.guard)})"):
            self.joined(w)

    def joined(self, w: Write) -> None:
        index: list[Expr] = []
        for axis, i in enumerate(w.index):
            if self.unproven(w.array, axis, i) and not isinstance(i, Ref | Const):
                name = f"{w.array}.{axis}.{len(self.names)}"
                self.names[name] = self.fresh.fresh(f"{w.array}_at" if len(w.index) == 1 else f"{w.array}_at_{axis}")
                self.varies |= {name}
                self.statements((Let(name, i),))
                i = Ref(name, INT64)
            index.append(i)
        checks = self.checks(w.array, tuple(index))
        guard = f"if ({' && '.join(checks)}) " if checks else ""
        value = self.printer.value(w.value)
        if w.array in self.held:
            own, name = self.held[w.array]
            self.writer.line(f"{guard}weft::join<{self.algebra(w, own.type)}>({name} + {self.cell(w.array, index)}, {value});")
        else:
            algebra = self.algebra(w, self.function.array(w.array).dtype)
            self.writer.line(f"{guard}weft::join<{algebra}>(&{self.element(w.array, tuple(index))}, {value});")

    def algebra(self, w: Write, dtype: ScalarType) -> str:
        return algebra_type(_OF_WORDS.get(w.join, w.join) if dtype != BOOL else w.join, register_type(dtype))

    def cell(self, array: str, index: list[Expr]) -> str:
        """The number of an element among all of its array's."""
        text = ""
        for i, extent in zip(index, self.function.array(array).shape, strict=True):
            own = self.printer.value(i)
            text = f"({text}) * {self.printer.value(extent)} + {own}" if text else own
        return text or "0"

    # ---------------------------------------------------------------- elements of a block's own

    def hold(self, own: Own) -> None:
        """Elements in shared memory, to which nothing is joined yet."""
        name, type_, size = self.fresh.fresh(f"{own.array}_own"), register_type(own.type), own.copies * own.elements
        (write, *_) = [w for w in self.points.writes if w.array == own.array]
        every = "" if own.copies == 1 else f", {own.copies} times"
        self.writer.line(f"// the elements of {own.array} that this block joins to{every}: in shared memory until all is done")
        all_ = self.fresh.fresh(f"{own.array}_shared")
        self.writer.line(f"__shared__ {type_} {all_}[{size}];")
        identity = f"{self.algebra(write, own.type)}::identity()"
        self.writer.line(f"for (int32_t k = threadIdx.x; k < {size}; k += {BLOCK}) {all_}[k] = {identity};")
        place = all_ if own.copies == 1 else f"{all_} + threadIdx.x / 32 % {own.copies} * {own.elements}"
        self.writer.line(f"{type_}* const {name} = {place};")
        self.held[own.array] = own, name

    def give(self, own: Own) -> None:
        """Join what a block has to memory."""
        (write, *_) = [w for w in self.points.writes if w.array == own.array]
        inside, outside = (self.algebra(write, t) for t in (own.type, self.function.array(own.array).dtype))
        shape = self.function.array(own.array).shape
        count = " * ".join(self.printer.value(e, PRODUCT) for e in shape) or "1"
        shared = f"{own.array}_shared"
        with self.writer.block(f"for (int32_t k = threadIdx.x; k < {count}; k += {BLOCK})"):
            self.writer.line(f"{'' if own.copies > 1 else 'const '}{register_type(own.type)} total = {shared}[k];")
            if own.copies > 1:
                self.writer.line("#pragma unroll")
                self.writer.line(
                    f"for (int32_t v = 1; v < {own.copies}; ++v) "
                    f"total = weft::joined<{inside}>(total, {shared}[v * {own.elements} + k]);"
                )
            rest, index = "k", []
            for axis in range(len(shape) - 1, -1, -1):
                text = f"{rest} % {self.printer.value(shape[axis], PRODUCT + 1)}" if axis else rest
                index.append(self.raw(f"({text})" if " " in text else text))
                rest = f"{rest} / {self.printer.value(shape[axis], PRODUCT + 1)}"
            place = self.element(own.array, tuple(reversed(index)))
            self.writer.line(f"if (total != {inside}::identity()) weft::join<{outside}>(&{place}, total);")
