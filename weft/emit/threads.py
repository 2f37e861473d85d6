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
from weft.emit.several import SeveralBody, in_branches
from weft.emit.text import Writer
from weft.emit.thread_body import ThreadBody, count_of, parameters, value_of
from weft.loops.ir import For, Function, Let, Ref, Stmt, trapping
from weft.loops.schedule import Axis, Nest
from weft.loops.types import INT64
from weft.plan.arguments import Facts
from weft.plan.asked import asked_loops
from weft.plan.several import differing
from weft.plan.threads import ThreadPlan


def emit(function: Function, nest: Nest, plan: ThreadPlan, facts: Facts, around: Dependence = ALONE) -> str:
    """The kernel's translation unit. Its one entry has the nest's name and takes the slots of `weft.plan.arguments`."""
    own = Nest(nest.name, nest.axes, trapping(without_unused(function, nest)), nest.verdicts)
    writer = Writer()
    fresh = Names(frozenset({kernel_entry(nest.name), "item", "outside"}))
    large = varying(own, {s.name for s in function.scalars})
    var, many = plan.several
    asked = {a.var: a for a in asked_loops(function, own)} if plan.tile else {}
    if many == 1:
        body = ThreadBody(function, own, facts, writer, fresh, {}, {}, varying(own, set()), large, asked=asked)
    else:
        names = differing(own.body, var)
        assert names is not None
        own = replace(own, body=in_branches(own.body, names))
        body = SeveralBody(function, own, facts, writer, fresh, {}, {}, varying(own, set()), large,
                           asked=asked, differing=names, axis=var, many=many)  # fmt: skip
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
        if plan.tile:
            elements = ", ".join(f"{n} of {v}" for v, n in plan.tile if n > 1)
            writer.line(f"// a block for each ({elements}); a thread for each ({plan.each})")
        elif plan.shared:
            writer.line(f"// a block for each ({plan.each}); its threads share the loops inside")
        else:
            writer.line(f"// a thread for each ({plan.each}); neighbours along {plan.order[-1]}")
        block, blocks = ("blockIdx.x", "gridDim.x") if plan.narrow else ("int64_t(blockIdx.x)", "int64_t(gridDim.x)")
        first = block if plan.shared or plan.tile else f"{block} * {plan.block} + threadIdx.x"
        step = blocks if plan.shared or plan.tile else f"{blocks} * {plan.block}"
        tile, tiles = dict(plan.tile), dict(groups)
        for v in (v for v, n in plan.tile if n > 1):
            tiles[v] = body.fresh.fresh(f"{v}_tiles")
            writer.line(f"const {number} {tiles[v]} = ({groups[v]} + {tile[v] - 1}) / {tile[v]};")
        with writer.block(f"for ({number} item = {first}; item < {' * '.join(tiles.values())}; item += {step})"):
            rest, inner = "item", 1
            lines = list[list[str]]()
            for k in range(len(order) - 1, -1, -1):
                own = order[k].var
                position, before = f"{rest} % {tiles[own]}" if k else rest, list[str]()
                if tile.get(own, 1) > 1:
                    position, before = _in_tile(order[k], position, tile[own], inner, plan.block, groups[own], body)
                    inner *= tile[own]
                name, value = (group, position) if own == several else (body.declare(own), value_of(order[k], position, body))
                lines.append([*before, f"const int64_t {name} = {value};"])
                if own not in body.firsts:
                    body.firsts[own] = body.lasts[own] = Ref(own, INT64)
                rest = f"{rest} / {tiles[own]}"
            for line in itertools.chain(*reversed(lines)):
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


def _in_tile(
    axis: Axis, position: str, many: int, inner: int, threads: int, count: str, body: ThreadBody
) -> tuple[str, list[str]]:
    """The place along an axis of a thread whose block has `many` neighbours; what is said before of the first and the last of
    them. Where there is none for the thread, the last one stands for it. position: of the block. inner: threads for each.
    """
    first, last, own = (body.fresh.fresh(f"{axis.var}_{name}") for name in ("first", "last", "place"))
    among = "threadIdx.x" if inner == 1 else f"threadIdx.x / {inner}"
    among += f" % {many}" if inner * many < threads else ""
    lines = [
        f"const int64_t {first} = int64_t({position}) * {many};",
        f"const int64_t {last} = weft::minimum<int64_t>({first} + {many - 1}, {count} - 1);",
        f"const int64_t {own} = {first} + {among};",
    ]
    body.there = " && ".join([*([body.there] if body.there else []), f"{own} <= {last}"])
    body.firsts[axis.var], body.lasts[axis.var] = (body.raw(value_of(axis, e, body)) for e in (first, last))
    return f"weft::minimum<int64_t>({own}, {last})", lines


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
