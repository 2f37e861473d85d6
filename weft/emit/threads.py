"""A nest as CUDA C++ with a thread for every iteration of its axes, which works through the whole body in order; or with a
block, whose threads share the loops of the body.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from weft.emit.cpp import varying, without_unused
from weft.emit.dependent import ALONE, Dependence, dependences, include
from weft.emit.expressions import SUM
from weft.emit.names import Names, kernel_entry
from weft.emit.several import SeveralBody
from weft.emit.text import Writer
from weft.emit.thread_body import ThreadBody, count_of, parameters, value_of
from weft.loops.ir import For, Function, Let, Stmt, trapping
from weft.loops.schedule import Nest
from weft.plan.arguments import Facts
from weft.plan.several import differing
from weft.plan.threads import ThreadPlan


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


def _signature(function: Function, nest: Nest, facts: Facts, plan: ThreadPlan, body: ThreadBody) -> str:
    lines = ",\n    ".join(parameters(function, nest, facts, body))
    return f'extern "C" __global__ void __launch_bounds__({plan.block}) {kernel_entry(nest.name)}(\n    {lines})'


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
