"""Branches taken apart: one `if` around several statements becomes an `if` around each, so that distribution may part them."""

from __future__ import annotations

from dataclasses import replace

from weft.loops.ir import (
    Expr,
    For,
    If,
    Let,
    Load,
    Op,
    Ref,
    Stmt,
    Store,
    bound_names,
    substitute,
    substitute_statements,
    walk,
    walk_expr,
)
from weft.loops.names import Names
from weft.loops.types import BOOL


def split_branches(loop: For, names: Names) -> For:
    """The loop with the branches in its body, and in those of the loops in it, taken apart where they make no scalar.

    A condition on elements is evaluated once, before anything that the branches store.
    """
    body: list[Stmt] = []
    for stmt in loop.body:
        if isinstance(stmt, For):
            body.append(split_branches(stmt, names))
            continue
        pieces = _pieces(stmt) if isinstance(stmt, If) else []
        if not isinstance(stmt, If) or len(pieces) < 2:
            body.append(stmt)
            continue
        condition = stmt.condition
        if any(isinstance(e, Load) for e in walk_expr(condition)):
            name = names.fresh("taken")
            body.append(Let(name, condition, stmt.location))
            condition = Ref(name, BOOL)
        for piece, holds in pieces:
            needed = condition if holds else Op("not", (condition,), BOOL)
            body.append(If(needed, (piece,), (), (), stmt.location))
    return replace(loop, body=tuple(body))


def _pieces(stmt: If) -> list[tuple[Stmt, bool]]:
    """The statements of both branches, and in which each is, with the names bound there written out; [] where that is not
    the same.
    """
    if stmt.merges:
        return []
    stored = {s.array for s in walk((stmt,)) if isinstance(s, Store)}
    pieces: list[tuple[Stmt, bool]] = []
    for branch, holds in ((stmt.then, True), (stmt.orelse, False)):
        lets: dict[str, Expr] = {}
        for s in branch:
            if not isinstance(s, Let):
                pieces.append((substitute_statements((s,), lets)[0], holds))
                if not isinstance(s, (Store, If)) or bound_names(s):
                    return []  # what it binds may be needed by the pieces after it
                continue
            lets[s.name] = substitute(s.value, lets)
            if any(isinstance(e, Load) and e.array in stored for e in walk_expr(s.value)):
                return []
    return pieces
