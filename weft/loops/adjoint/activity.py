"""What the derivative touches, of a function as it stands: the names and arrays through which it passes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from weft.loops.derivatives import sources
from weft.loops.ir import Const, Expr, For, Function, If, Let, Load, Ref, Store, reachable, walk, walk_expr

# Names of scalars and arrays, told apart; one with expressions that its value is.
_Node = tuple[Literal["name", "array"], str]
_Made = tuple[_Node, tuple[Expr, ...]]


def active_in(
    function: Function, wanted: tuple[str, ...], seeded: tuple[str, ...]
) -> tuple[frozenset[str], frozenset[str]]:
    """The scalars and the arrays that depend on a wanted input and on which a seeded result depends."""
    after: dict[_Node, set[_Node]] = {}
    before: dict[_Node, set[_Node]] = {}
    for target, exprs in _made(function):
        for s in (s for e in exprs for s in sources(e)):
            source: _Node = ("array", s.array) if isinstance(s, Load) else ("name", s.name)
            after.setdefault(source, set()).add(target)
            before.setdefault(target, set()).add(source)
    varied = reachable([("array", n) for n in wanted], lambda node: after.get(node, ()))
    useful = reachable([("array", n) for n in seeded], lambda node: before.get(node, ()))
    both = varied & useful
    return frozenset(n for k, n in both if k == "name"), frozenset(n for k, n in both if k == "array")


def infinite_in(function: Function) -> frozenset[str]:
    """The scalars and arrays with values that are made of constants which are infinite or NaN."""
    after: dict[str, set[str]] = {}
    found: set[str] = set()
    fills: list[_Made] = [(("array", a.name), (a.fill,)) for a in function.arrays if a.fill is not None]
    for (_, name), exprs in (*fills, *_made(function)):
        for e in (e for top in exprs for e in walk_expr(top)):
            if isinstance(e, Const) and not math.isfinite(e.value):
                found.add(name)
            elif isinstance(e, (Ref, Load)):
                after.setdefault(e.array if isinstance(e, Load) else e.name, set()).add(name)
    return frozenset(reachable(found, lambda name: after.get(name, ())))


def _made(function: Function) -> Iterator[_Made]:
    """What each statement binds or stores, and the expressions that its value is."""
    for stmt in walk(function.body):
        match stmt:
            case Let():
                yield ("name", stmt.name), (stmt.value,)
            case Store():
                yield ("array", stmt.array), (stmt.value,)
            case For():
                for c in stmt.carries:
                    yield ("name", c.name), (c.init, c.next)
                    yield ("name", c.result), (c.init, c.next)
            case If():
                for m in stmt.merges:
                    yield ("name", m.name), (m.then, m.orelse)
