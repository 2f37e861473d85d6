"""The order of axes of arrays that keep a value of each iteration: that of the arrays that are read and written beside them,
where these have another axis last.

Such an array has the axes of the loops around it, outermost first. Where memory has them in another order, as the channels of a
time-major tensor, whose loop is around that of the steps, neighbours along it would lie far apart in what is kept alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

from weft.loops.accesses import Access, collect
from weft.loops.ir import Array, Expr, Function, Load, Stmt, Store, map_statement, operands, with_operands

Order = tuple[int, ...]


def ordered_as_beside(function: Function) -> Function:
    """The function, in which local arrays that are stored to once have their axes in the order of most arrays beside them,
    where the last axis of these is another one.
    """
    accesses = collect(function.body)
    of: dict[str, list[Access]] = defaultdict(list)
    beside: dict[tuple[int, ...], list[tuple[str, ...]]] = defaultdict(list)
    kept = {a.name for a in function.arrays if a.role == "local"}
    for access in accesses:
        of[access.array].append(access)
        variables = _variables(access)
        if access.array not in kept and variables is not None:
            beside[tuple(map(id, access.loops))].append(variables)
    orders: dict[str, Order] = {}
    for array in function.arrays:
        own = of[array.name]
        if _may_change(array) and sum(a.write for a in own) == 1:
            votes: Counter[Order] = Counter()
            for access in own:
                axes = _variables(access)
                others = beside[tuple(map(id, access.loops))] if axes is not None else []
                votes.update(tuple(map(axes.index, o)) for o in others if axes is not None and {*o} == {*axes})
            most = [o for o, n in votes.items() if n == max(votes.values())]
            if most and all(o[-1] != len(array.shape) - 1 for o in most):
                orders[array.name] = most[0]
    return _with_orders(function, orders) if orders else function


def _may_change(array: Array) -> bool:
    return array.role == "local" and array.fill is None and not array.within and len(array.shape) > 1


def _variables(access: Access) -> tuple[str, ...] | None:
    """The variables that tell a place along each axis, each of them one; None where it is told in another way."""
    names = [{*form.names} & {f.var for f in access.loops} if form is not None else set() for form in access.subscript]
    found = tuple(n for own in names for n in own)
    return found if all(len(own) == 1 for own in names) and len({*found}) == len(found) else None


def _with_orders(function: Function, orders: dict[str, Order]) -> Function:
    def expr(e: Expr) -> Expr:
        below = operands(e)
        e = with_operands(e, tuple(map(expr, below))) if below else e
        return replace(e, index=tuple(e.index[k] for k in orders[e.array])) if isinstance(e, Load) and e.array in orders else e

    def statement(stmt: Stmt) -> Stmt:
        made = map_statement(stmt, expr, body)
        if isinstance(made, Store) and made.array in orders:
            return replace(made, index=tuple(made.index[k] for k in orders[made.array]))
        return made

    def body(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map(statement, statements))

    arrays = tuple(
        replace(a, shape=tuple(a.shape[k] for k in orders[a.name])) if a.name in orders else a for a in function.arrays
    )
    return replace(function, body=body(function.body), arrays=arrays)
