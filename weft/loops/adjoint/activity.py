"""What the derivative touches, of a function as it stands: the names and arrays through which it passes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from weft.loops.derivatives import sources
from weft.loops.ir import Const, Expr, For, Function, If, Let, Load, Ref, Store, walk, walk_expr


def active_in(
    function: Function, wanted: tuple[str, ...], seeded: tuple[str, ...]
) -> tuple[frozenset[str], frozenset[str]]:
    """The scalars and the arrays that depend on a wanted input and on which a seeded result depends."""
    after: dict[tuple[str, str], set[tuple[str, str]]] = {}

    def flow(target: tuple[str, str], *exprs: Expr) -> None:
        for e in exprs:
            for s in sources(e):
                key = ("array", s.array) if isinstance(s, Load) else ("name", s.name)
                after.setdefault(key, set()).add(target)

    for stmt in walk(function.body):
        match stmt:
            case Let():
                flow(("name", stmt.name), stmt.value)
            case Store():
                flow(("array", stmt.array), stmt.value)
            case For():
                for c in stmt.carries:
                    flow(("name", c.name), c.init, c.next)
                    flow(("name", c.result), c.init, c.next)
            case If():
                for m in stmt.merges:
                    flow(("name", m.name), m.then, m.orelse)
    before: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for source, targets in after.items():
        for target in targets:
            before.setdefault(target, set()).add(source)
    varied = _reached({("array", n) for n in wanted}, after)
    useful = _reached({("array", n) for n in seeded}, before)
    both = varied & useful
    return frozenset(n for k, n in both if k == "name"), frozenset(n for k, n in both if k == "array")


def infinite_in(function: Function) -> frozenset[str]:
    """The scalars and arrays with values that are made of constants which are infinite or NaN."""
    made: dict[str, list[Expr]] = {a.name: [a.fill] for a in function.arrays if a.fill is not None}
    for stmt in walk(function.body):
        match stmt:
            case Let():
                made.setdefault(stmt.name, []).append(stmt.value)
            case Store():
                made.setdefault(stmt.array, []).append(stmt.value)
            case For():
                for c in stmt.carries:
                    made.setdefault(c.name, []).extend((c.init, c.next))
                    made.setdefault(c.result, []).extend((c.init, c.next))
            case If():
                for m in stmt.merges:
                    made.setdefault(m.name, []).extend((m.then, m.orelse))
    after: dict[tuple[str, str], set[tuple[str, str]]] = {}
    found: set[tuple[str, str]] = set()
    for name, exprs in made.items():
        for e in (e for top in exprs for e in walk_expr(top)):
            if isinstance(e, Const) and not math.isfinite(e.value):
                found.add(("", name))
            elif isinstance(e, (Ref, Load)):
                after.setdefault(("", e.array if isinstance(e, Load) else e.name), set()).add(("", name))
    return frozenset(n for _, n in _reached(found, after)) if found else frozenset()


def _reached(
    start: set[tuple[str, str]], edges: Mapping[tuple[str, str], set[tuple[str, str]]]
) -> set[tuple[str, str]]:
    seen, pending = set(start), list(start)
    while pending:
        for node in edges.get(pending.pop(), ()):
            if node not in seen:
                seen.add(node)
                pending.append(node)
    return seen
