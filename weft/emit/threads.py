"""A nest as CUDA C++ with a thread for every iteration of its axes, which works through the whole body in order; or with a
block, whose threads share the loops of the body.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from weft.emit.cpp import varying, without_unused
from weft.emit.cpp_body import Body
from weft.emit.dependent import ALONE, Dependence, dependences, include
from weft.emit.expressions import PRODUCT, SUM, literal, memory_type, register_type
from weft.emit.names import Names, kernel_entry
from weft.emit.text import Writer
from weft.loops.accesses import not_below_0
from weft.loops.ir import (
    Array,
    Const,
    For,
    Function,
    Let,
    Load,
    Op,
    Ref,
    Stmt,
    Store,
    free_arrays,
    map_statement,
    statement_exprs,
    trapping,
    walk,
    walk_expr,
)
from weft.loops.operators import OPERATORS
from weft.loops.schedule import Axis, Nest
from weft.loops.types import BOOL, FLOAT64, INT64, ScalarType
from weft.plan.arguments import Facts, nest_arrays, slots
from weft.plan.several import differing
from weft.plan.threads import ThreadPlan

# Iterations of an innermost loop that the compiler may overlap: loads of later ones go out before earlier ones end. Of one in
# which nothing is looked at.
_UNROLL, _UNROLL_INSIDE = 4, 8


class ThreadBody(Body):
    """The statements of one thread."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.printer = replace(self.printer, fuses=True)

    def pragma_simd(self, text: str, body: object) -> None:
        """A thread has no lanes of its own."""

    def several(self, axis: Axis, place: str, count: str) -> None:
        """Begin with some iterations of an axis, whose places among `count` are told with their number among these."""

    def loop(self, loop: For) -> None:
        self.writer.cite(loop.location)
        for c in loop.carries:
            init = self.printer.value(c.init)
            self.names[c.result] = self.declare(c.name)
            self.writer.line(f"{register_type(c.type)} {self.names[c.name]} = {init};")
        if any(isinstance(s, For) for s in walk(loop.body)):
            self.in_order(loop, self.printer.index(loop.start))
            return
        inside, own = self.all_inside(loop)
        if own is None:
            self.writer.line(f"#pragma unroll {_UNROLL}")
            self.in_order(loop, self.printer.index(loop.start))
            return
        start, stop = self.printer.index(loop.start), self.stop(loop)
        extents = dict.fromkeys(self.printer.index(self.function.array(a).shape[k], SUM) for a, k, _ in inside)
        known = dict(self.known_inside)
        checks = [] if start.isdigit() else [f"{self.printer.index(loop.start, SUM)} >= 0"]
        checks += [f"{stop} <= {extent}" for extent in extents]
        with self.writer.block(f"if ({' && '.join(checks)})"):
            self.writer.line("// all subscripts are inside: nothing is looked at in the loop")
            self.writer.line(f"#pragma unroll {_UNROLL_INSIDE}")
            self.known_inside |= {key: "true" for key in inside}
            self.in_order(own, start, stop)
            self.known_inside = known
        with self.writer.block("else"):
            self.in_order(loop, start, stop)

    def all_inside(self, loop: For) -> tuple[list[tuple[str, int, Ref]], For | None]:
        """The subscripts of a loop that are its variable, or what that counts from the end where it is below 0, and that are
        looked at; and the loop as it is where bounds tell that the variable is inside. None where there is nothing to gain.
        """
        var = Ref(loop.var, INT64)

        def rewritten(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
            return tuple(map_statement(s, lambda e: not_below_0(e, var), rewritten) for s in statements)

        if loop.step != 1:
            return [], None
        carries = tuple(replace(c, next=not_below_0(c.next, var)) for c in loop.carries)
        own = replace(loop, body=rewritten(loop.body), carries=carries)
        exprs = [e for s in walk(own.body) for e in statement_exprs(s)] + [c.next for c in carries]
        accesses = [(e.array, e.index) for x in exprs if free_arrays(x) for e in walk_expr(x) if isinstance(e, Load)]
        accesses += [(s.array, s.index) for s in walk(own.body) if isinstance(s, Store)]
        found = [(a, k, var) for a, index in accesses for k, i in enumerate(index) if i == var and self.unproven(a, k, i)]
        return found, own if found else None

    def stop(self, loop: For) -> str:
        return self.printer.index(loop.stop)

    def in_order(self, loop: For, start: str, stop: str = "") -> None:
        if not _crashes_nvrtc(loop):
            return super().in_order(loop, start, stop)
        counter = self.fresh.fresh(f"{loop.var}_counter")
        with self.writer.block(self.header(loop, counter, start, stop or self.stop(loop))):
            self.writer.line("// a number that NVRTC does not follow: it crashes where it splits this loop at one")
            self.writer.line(f"const int64_t {self.declare(loop.var)} = weft::opaque({counter});")
            self.local_arrays(loop.var)
            self.statements(loop.body)
            self.advance(loop.carries)

    def _local(self, array: Array) -> None:
        name = self.arrays[array.name] = self.fresh.fresh(array.name)
        sizes = [int(e.value) for e in array.shape if isinstance(e, Const)]
        elements = 1
        for size in sizes:
            elements *= size
        self.writer.cite(array.location)
        shape = "".join(f"[{max(1, s)}]" for s in sizes) or "[1]"
        self.writer.line(f"{memory_type(array.dtype)} {name}{shape};")
        if array.fill is not None:
            value = literal(array.fill.value, array.dtype.opmath, typed=True)
            k = self.fresh.fresh("k")
            first = f"(&{name}{'[0]' * max(1, len(sizes))})[{k}]"
            self.writer.line(f"for (int32_t {k} = 0; {k} < {max(1, elements)}; ++{k}) {first} = {value};")


def emit(function: Function, nest: Nest, plan: ThreadPlan, facts: Facts, around: Dependence = ALONE) -> str:
    """The kernel's translation unit. Its one entry has the nest's name and takes the slots of `weft.plan.arguments`."""
    own = Nest(nest.name, nest.axes, trapping(without_unused(function, nest)), nest.verdicts)
    writer = Writer()
    fresh = Names(frozenset({kernel_entry(nest.name), "item", "outside"}))
    large = varying(own, {s.name for s in function.scalars})
    var, many = plan.several
    if many == 1:
        body = ThreadBody(function, own, facts, writer, fresh, {}, {}, varying(own, set()), large)
    else:
        from weft.emit.several import SeveralBody

        names = differing(own.body, var)
        assert names is not None
        body = SeveralBody(function, own, facts, writer, fresh, {}, {}, varying(own, set()), large,
                           differing=names, axis=var, many=many)  # fmt: skip
    (launch,) = dependences([False], around)
    include(writer, (launch,))
    writer.line('#include "weft/memory.cuh"')
    writer.line()
    with writer.block(_signature(function, nest, facts, plan, body)):
        launch.begin(writer)
        _threads(own, plan, body)
    return writer.text()


def _crashes_nvrtc(loop: For) -> bool:
    """Whether NVRTC may crash on a loop whose counter it knows: one that carries what a function of doubles, which branches
    inside, makes of it in the iterations that a comparison of integers tells (NVRTC 13.5 does, for sm_80 and sm_90a).
    """
    made = [e for stmt in walk(loop.body) for x in statement_exprs(stmt) for e in walk_expr(x)]
    made += [e for c in loop.carries for e in walk_expr(c.next)]
    operators = [(OPERATORS[e.name], e) for e in made if isinstance(e, Op)]
    compares = any(o.rule == "comparison" and e.args[0].type.category == "int" for o, e in operators)
    calls = any(e.type == FLOAT64 and (o.name == "pow" or (o.rule == "float" and "{" not in o.spelling)) for o, e in operators)
    return bool(loop.carries) and compares and calls


def _signature(function: Function, nest: Nest, facts: Facts, plan: ThreadPlan, body: ThreadBody) -> str:
    lines = ",\n    ".join(parameters(function, nest, facts, body))
    return f'extern "C" __global__ void __launch_bounds__({plan.block}) {kernel_entry(nest.name)}(\n    {lines})'


def parameters(function: Function, nest: Nest, facts: Facts, body: Body) -> list[str]:
    """The parameters of a kernel that takes the slots of its nest, whose names the body knows from then on."""
    touched = {a.name for a in nest_arrays(function, nest)}
    alone = all(a.role != "inout" for a in function.arrays)
    # what a launch before writes is as it is there only from where that is awaited on
    read = {x.array for s in walk(nest.body) for e in statement_exprs(s) for x in walk_expr(e) if isinstance(x, Load)}
    found = []
    for slot in slots(function, nest, facts):
        name = body.fresh.fresh(slot.name)
        if slot.kind == "pointer":
            assert slot.array in touched
            body.arrays[slot.array] = name
            given = function.array(slot.array).role == "input"
            restrict = " __restrict__" if alone and (given or slot.array not in read) else ""
            found.append(f"{'const ' if given else ''}{memory_type(slot.type)}*{restrict} {name}")
        else:
            body.names[slot.name] = name
            found.append(f"const {_parameter_type(function, slot.name, slot.type)} {name}")
    return found


def _parameter_type(function: Function, name: str, type_: ScalarType) -> str:
    # a bool comes as an int64, as every integer slot does
    scalar = next((s for s in function.scalars if s.name == name), None)
    return "int64_t" if scalar is not None and scalar.type == BOOL else register_type(type_)


def _threads(nest: Nest, plan: ThreadPlan, body: ThreadBody) -> None:
    writer = body.writer
    checked = body.checked(nest.body)
    if checked:
        writer.line("int64_t outside = 0;")
    axes = {a.var: a for a in nest.axes}
    order = [axes[v] for v in plan.order]
    if not order:
        with writer.block("if (blockIdx.x == 0)" if plan.shared else "if (blockIdx.x == 0 && threadIdx.x == 0)"):
            _iteration(nest, plan, body)
    else:
        counts, number = [], "uint32_t" if plan.narrow else "int64_t"
        for axis in order:
            count = body.fresh.fresh(f"{axis.var}_count")
            counts.append(count)
            writer.line(f"const {number} {count} = {count_of(axis, body)};")
        groups = dict(zip(plan.order, counts, strict=True))
        several, each = plan.several
        group = ""
        if several:
            group = body.fresh.fresh(f"{several}_group")
            groups[several] = body.fresh.fresh(f"{several}_groups")
            writer.line(f"const {number} {groups[several]} = ({counts[plan.order.index(several)]} + {each - 1}) / {each};")
        if plan.shared:
            writer.line(f"// a block for each ({plan.each}); its threads share the loops inside")
        else:
            writer.line(f"// a thread for each ({plan.each}); neighbours along {plan.order[-1]}")
        block, blocks = ("blockIdx.x", "gridDim.x") if plan.narrow else ("int64_t(blockIdx.x)", "int64_t(gridDim.x)")
        first = block if plan.shared else f"{block} * {plan.block} + threadIdx.x"
        step = blocks if plan.shared else f"{blocks} * {plan.block}"
        with writer.block(f"for ({number} item = {first}; item < {' * '.join(groups.values())}; item += {step})"):
            rest = "item"
            lines = []
            for k in range(len(order) - 1, -1, -1):
                own = order[k].var
                position = f"{rest} % {groups[own]}" if k else rest
                name, value = (group, position) if own == several else (body.declare(own), value_of(order[k], position, body))
                lines.append(f"const int64_t {name} = {value};")
                rest = f"{rest} / {groups[own]}"
            for line in reversed(lines):
                writer.line(line)
            variables = [a.var for a in nest.axes]
            body.hoist(nest.body, variables)
            if several:
                body.several(axes[several], f"{group} + {{}} * {groups[several]}", counts[plan.order.index(several)])
            for var in variables:
                body.local_arrays(var)
            _iteration(nest, plan, body)
    if checked:
        writer.line(
            "if (outside) __trap();  // a subscript left its array, or an integer its range: as PyTorch's own kernels do"
        )


def _iteration(nest: Nest, plan: ThreadPlan, body: ThreadBody) -> None:
    """What is done in an iteration of the axes."""
    if not plan.shared:
        body.statements(nest.body)
        return
    for k, (single, statements) in enumerate(itertools.groupby(nest.body, lambda s: isinstance(s, Let))):
        for n, stmt in enumerate((tuple(statements),) if single else zip(statements, strict=True)):
            if k or n:
                body.writer.line("__syncthreads();")
            if single:
                body.statements(stmt)
            else:
                _share(stmt[0], plan, body)


def _share(stmt: Stmt, plan: ThreadPlan, body: ThreadBody) -> None:
    """A loop whose iterations the threads of a block share, or a store of one of them."""
    if not isinstance(stmt, For):
        with body.writer.block("if (threadIdx.x == 0)"):
            body.statements((stmt,))
        return
    body.writer.cite(stmt.location)
    size, sign = abs(stmt.step), "+" if stmt.step > 0 else "-"
    place = "int64_t(threadIdx.x)" if stmt.step < 0 else "threadIdx.x"
    start = body.printer.index(stmt.start, SUM)
    own = place if size == 1 else f"{place} * {size}"
    first = own if start == "0" and stmt.step > 0 else f"{start} {sign} {own}"
    body.in_order(replace(stmt, step=stmt.step * plan.block), first)


def count_of(axis: Axis, body: ThreadBody) -> str:
    low, high = (axis.start, axis.stop) if axis.step > 0 else (axis.stop, axis.start)
    span = body.printer.index(high, SUM)
    if low != Const(0, INT64):
        span += f" - {body.printer.index(low, PRODUCT)}"
    size = abs(axis.step)
    if size == 1:
        sizes = {s.name for s in body.function.sizes}
        never_negative = isinstance(high, Const) or (isinstance(high, Ref) and high.name in sizes)
        simple = low == Const(0, INT64) and axis.step > 0 and never_negative
        return span if simple else f"weft::maximum<int64_t>({span}, 0)"
    return f"(weft::maximum<int64_t>({span}, 0) + {size - 1}) / {size}"


def value_of(axis: Axis, position: str, body: ThreadBody) -> str:
    if abs(axis.step) != 1:
        position = f"({position}) * {abs(axis.step)}" if " " in position else f"{position} * {abs(axis.step)}"
    start = body.printer.index(axis.start, SUM)
    if axis.step < 0:
        return f"{start} - {f'({position})' if ' ' in position else position}"
    return position if axis.start == Const(0, INT64) else f"{start} + {position}"
