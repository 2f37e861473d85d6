"""Transforms of scalars and conditions: induction variables in closed form, conditions as choices between values."""

from __future__ import annotations

from dataclasses import replace

from weft.errors import InapplicableTransform
from weft.loops.accesses import collect
from weft.loops.automatic.induction import close_one
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
    filtered,
    free_names,
    has_load,
    statement_exprs,
    walk,
)
from weft.loops.names import Names
from weft.loops.polyhedra import Polyhedra
from weft.loops.simplify import zero
from weft.loops.transforms.motion import may_fail
from weft.loops.transforms.nest import Proposal, around, loaded_by, replaced, stored_in
from weft.loops.transforms.order import Order
from weft.loops.types import BOOL
from weft.loops.variables import variables


def substitute_induction(function: Function, name: str) -> Proposal:
    """A scalar that a loop carries, told by the number of the iteration alone."""
    what = f"substitution of {name}"
    shown = variables(function)
    carried = frozenset(c.name for s in walk(function.body) if isinstance(s, For) for c in s.carries if shown[c.name] == name)
    closed = close_one(function, carried)
    if not closed.transforms:
        raise InapplicableTransform(
            f"{what}: it has no closed form",
            evidence=[
                f"no loop carries {name}"
                if not carried
                else f"{name} does not grow by the same in every iteration, "
                "and is not what an iteration gives by its number alone"
            ],
            remedy=f"write {name} as a sum: {name} = {name} + constant",
        )
    told = "; ".join(f"in {var}, {', '.join(forms)}" for var, forms in closed.transforms.items())
    own = frozenset(n for n, variable in shown.of.items() if variable == name)
    function = replace(closed.function, body=_without_unused(closed.function.body, own))
    return Proposal(what, function, f"what {name} is in an iteration follows from its number: {told}")


def _without_unused(body: tuple[Stmt, ...], names: frozenset[str]) -> tuple[Stmt, ...]:
    """Statements without the Lets of these names that nothing uses."""
    while True:
        used = {n for s in walk(body) for e in statement_exprs(s) for n in free_names(e)}
        unused = names - used
        new = filtered(body, lambda s, unused=unused: not (isinstance(s, Let) and s.name in unused))  # type: ignore[misc]
        if new == body:
            return body
        body = new


def convert_if(function: Function, label: str) -> Proposal:
    """The condition around a statement as a choice of what its stores write and what its scalars are."""
    what = f"if-conversion at {label}"
    order = Order.of(function)
    branch = _innermost(function, order, label)
    if branch is None:
        known = ", ".join(s.label for s in order.program.statements)
        raise InapplicableTransform(
            f"{what}: no condition is around {label}",
            evidence=[f"the statements are {known}"],
            remedy="name a statement under an if",
        )
    inner = [s for s in (*branch.then, *branch.orelse) if not isinstance(s, (Let, Store))]
    if inner:
        raise InapplicableTransform(
            f"{what}: there is {'a loop' if isinstance(inner[0], For) else 'another condition'} under it",
            location=branch.location, remedy="convert the condition inside first, or distribute the loop",
        )  # fmt: skip
    polyhedra = Polyhedra(function)
    loops = around(function, branch)
    for s in (*branch.then, *branch.orelse):
        for access in collect((s,), loops) if isinstance(s, Store) else ():
            if not access.write:
                continue
            if not polyhedra.surely_inside(access, function.array(access.array).shape):
                raise InapplicableTransform(
                    f"{what}: {access.array} may be left where the condition does not hold", location=s.location,
                    evidence=["a choice stores into the element in any case, then its old value"],
                    remedy="bound the loop so that the element always exists",
                )  # fmt: skip
    names = Names.of(function)
    stored = stored_in((branch,))
    condition = branch.condition
    body: list[Stmt] = []
    if (
        has_load(condition)
        or not isinstance(condition, Ref)
        and (loaded_by(condition) & stored or len(branch.then) + len(branch.orelse) > 1)
    ):
        name = names.fresh("taken")
        body.append(Let(name, condition, branch.location))
        condition = Ref(name, BOOL)
    for statements, holds in ((branch.then, True), (branch.orelse, False)):
        for s in statements:
            if isinstance(s, Let):
                value = _choice(condition, holds, s.value, zero(s.value.type)) if may_fail(s.value) else s.value
                body.append(replace(s, value=value))
            elif isinstance(s, Store):
                old = Load(s.array, s.index, function.array(s.array).dtype.opmath, s.location)
                body.append(replace(s, value=_choice(condition, holds, s.value, old)))
    body += [Let(m.name, Op("where", (condition, m.then, m.orelse), m.type), branch.location) for m in branch.merges]
    why = "every element and every scalar that the condition leaves alone gets the value that it has"
    return Proposal(what, replaced(function, branch, body), why)


def _choice(condition: Expr, holds: bool, value: Expr, other: Expr | Const) -> Expr:
    sides = (value, other) if holds else (other, value)
    return Op("where", (condition, *sides), value.type)


def _innermost(function: Function, order: Order, label: str) -> If | None:
    """The innermost condition that a statement is, or is under."""
    found: If | None = None
    for s in walk(function.body):
        if isinstance(s, If) and any(order.label(x) == label for x in walk((s,))):
            found = s
    return found
