"""What a loop evaluates only where the values that it carries say so: `found or x[i] > t` loads no more once it is found.

Where iterations run in another order than theirs, or together, those values are not known as each begins: what an element
is made of is then evaluated in every one of them, and must be something that may be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from weft.loops.algebra.flow import Flow
from weft.loops.ir import Check, Expr, For, If, Load, Op, Stmt, free_names, operands, statement_exprs


def decided_by_state(loop: For) -> tuple[Load | Check, ...]:
    """The loads and checks in a loop's body that happen or not by what the loop carries, and nowhere else anyway."""
    state = Flow.of(loop.body, [c.name for c in loop.carries]).names
    found = list(_in_block(loop.body, state, False))
    found += [x for c in loop.carries for x in _in_expr(c.next, state, False)]
    always = {e for e, decided in found if not decided}
    return tuple(dict.fromkeys(e for e, decided in found if decided and e not in always))


def _in_block(statements: tuple[Stmt, ...], state: Collection[str], decided: bool) -> Iterator[tuple[Load | Check, bool]]:
    for stmt in statements:
        match stmt:
            case If():
                yield from _in_expr(stmt.condition, state, decided)
                inside = decided or _depends(stmt.condition, state)
                yield from _in_block((*stmt.then, *stmt.orelse), state, inside)
                for m in stmt.merges:
                    yield from _in_expr(m.then, state, inside)
                    yield from _in_expr(m.orelse, state, inside)
            case For():
                inside = decided or _depends(stmt.start, state) or _depends(stmt.stop, state)
                yield from _in_block(stmt.body, state, inside)
                for e in statement_exprs(stmt):
                    yield from _in_expr(e, state, inside)
            case _:
                for e in statement_exprs(stmt):
                    yield from _in_expr(e, state, decided)


def _in_expr(e: Expr, state: Collection[str], decided: bool) -> Iterator[tuple[Load | Check, bool]]:
    if isinstance(e, (Load, Check)):
        yield e, decided
    first, *rest = operands(e) or (None,)
    if first is None:
        return
    yield from _in_expr(first, state, decided)
    inside = decided or (isinstance(e, Op) and e.name in ("where", "and", "or") and _depends(first, state))
    for operand in rest:
        yield from _in_expr(operand, state, inside)


def _depends(e: Expr, state: Collection[str]) -> bool:
    return not free_names(e).isdisjoint(state)
