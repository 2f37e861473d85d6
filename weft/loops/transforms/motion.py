"""Hoisting: what every iteration of a loop does alike, once before the loop; and the proof that a loop is parallel."""

from __future__ import annotations

from dataclasses import replace

from weft.errors import InapplicableTransform
from weft.loops.accesses import collect
from weft.loops.ir import Const, Expr, For, Function, If, Let, Load, Op, Stmt, Store, free_names, statement_exprs, walk_expr
from weft.loops.names import names_bound_in
from weft.loops.polyhedra import Polyhedra
from weft.loops.simplify import zero
from weft.loops.transforms.nest import Proposal, around, checked, find_loop, refusal, replaced, sentence
from weft.loops.transforms.order import Instance, Order, Time
from weft.loops.types import BOOL, FLOAT64, INT64
from weft.loops.variables import variables


def hoist(function: Function, what_: str, var: str) -> Proposal:
    """A scalar, or the statement of a label, of the body of a loop before the loop."""
    what = f"hoisting of {what_} out of {var}"
    loop = find_loop(function, var)
    order = Order.of(function)
    stmt = _named(function, order, loop, what_, what)
    bound = {var, *(c.name for c in loop.carries), *names_bound_in(loop.body)}
    depends = {n for e in statement_exprs(stmt) for n in free_names(e)} & bound
    if depends:
        names = variables(function)
        raise InapplicableTransform(
            f"{what}: it is not the same in every iteration",
            location=stmt.location,
            evidence=[f"it needs {', '.join(sorted({names[n] for n in depends}))}, which the loop over {var} changes"],
            remedy="hoist what that is made of first, or nothing",
        )
    depth = len(around(function, loop))
    begin, end = order.start(stmt), _end(order, loop, stmt)
    before = Const(order.start(loop), INT64)

    def retime(instance: Instance) -> Time | None:
        if [f.var for f in instance.access.loops][depth : depth + 1] != [var] or len(instance.time) < 2 * depth + 3:
            return None
        here = instance.time[2 * depth + 2]
        inside = isinstance(here, Const) and begin < here.value < end and not instance.scalar
        return (*instance.time[: 2 * depth], before, here) if inside else None

    violation = checked(order, retime, what, stmt.location, strict=True)
    runs = Op("lt" if loop.step > 0 else "gt", (loop.start, loop.stop), BOOL)
    if isinstance(stmt, Let):
        value = stmt.value
        if may_fail(value) and not _always_inside(function, stmt, around(function, loop)):
            value = Op("where", (runs, value, zero(value.type)), value.type)
        hoisted: Stmt = replace(stmt, value=value)
    else:
        hoisted = If(runs, (stmt,), (), (), stmt.location)
    rest = replace(loop, body=tuple(s for s in loop.body if s is not stmt))
    made = replaced(function, loop, (hoisted, rest))
    remedy = "leave it in the loop: an iteration may find what an earlier one left" if violation is not None else ""
    why = sentence(order, (loop,), f"do not change it in the loop over {var}")
    return Proposal(what, made, why, refusal(what, violation, stmt.location, remedy))


# Operators that give a value for all values.
_SAFE = frozenset(
    {"add", "sub", "mul", "neg", "abs", "max", "min", "where", "and", "or", "not", "lt", "le", "gt", "ge", "eq", "ne"}
)


def may_fail(value: Expr) -> bool:
    """Whether Python may raise an error where a value is computed though nobody needs it: a subscript, a division by 0."""
    return any(isinstance(e, Load) or isinstance(e, Op) and not gives_a_value(e) for e in walk_expr(value))


def gives_a_value(e: Op) -> bool:
    """Whether an operator never raises an error. Tensors' give infinities and NaN where those of Python's floats, which are
    float64, raise.
    """
    return e.name in _SAFE or (e.type.category == "float" and e.type != FLOAT64)


def _named(function: Function, order: Order, loop: For, name: str, what: str) -> Let | Store:
    """The statement of a loop's body that a label or a scalar names."""
    shown = variables(function)
    for s in loop.body:
        if isinstance(s, (Let, Store)) and (order.label(s) == name or isinstance(s, Let) and shown[s.name] == name):
            return s
    raise InapplicableTransform(
        f"{what}: {name} is no scalar and no statement of the body of the loop over {loop.var}",
        location=loop.location,
        evidence=["what is under a condition, or in a loop inside, is hoisted out of that first"],
        remedy="name a scalar, or a statement by its label (see .statements)",
    )


def _end(order: Order, loop: For, stmt: Stmt) -> int:
    """When what follows a statement of a loop's body starts."""
    at = next(k for k, s in enumerate(loop.body) if s is stmt)
    if at + 1 < len(loop.body):
        return order.start(loop.body[at + 1]) + 1
    inside = [i.time for i in order.instances if any(f.var == loop.var for f in i.access.loops)]
    return max((int(t.value) for time in inside for t in time if isinstance(t, Const)), default=0) + 1


def _always_inside(function: Function, stmt: Let, loops: tuple[For, ...]) -> bool:
    """Whether what is read lies in its array wherever these loops run."""
    polyhedra = Polyhedra(function)

    fails = any(isinstance(e, Op) and not gives_a_value(e) for e in walk_expr(stmt.value))
    return not fails and all(polyhedra.surely_inside(a, function.array(a.array).shape) for a in collect((stmt,), loops))


def parallel(function: Function, var: str) -> Proposal:
    """The program as it is, if no iteration of a loop needs another one."""
    what = f"the loop over {var} in parallel"
    loop = find_loop(function, var)
    order = Order.of(function)
    violation = order.carried(var)
    why = sentence(order, (loop,), f"are not carried by {var}")
    reductions = order.reductions(var)
    if reductions:
        told = " and ".join(reductions)
        why = f"{told} may be taken in any order, which is a reduction; no other dependence is carried by {var}"
    remedy = (
        "transform the loop, or take the old values from a copy: .rename(array)"
        if violation and violation.kind == "WAR"
        else ""
    )
    return Proposal(what, function, why, refusal(what, violation, loop.location, remedy))
