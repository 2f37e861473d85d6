"""Which names a function binds, by Python's rules of scope."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import lru_cache

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def bound_in(statements: Iterable[ast.AST]) -> list[str]:
    """The names that statements bind, each once, in the order of the text; those of inner functions are their own."""
    found: dict[str, None] = {}
    for stmt in statements:
        found |= dict.fromkeys(_bound_by(stmt))
    return list(found)


@lru_cache(maxsize=4096)
def _bound_by(stmt: ast.AST) -> tuple[str, ...]:
    """Of one statement, whose tree nobody changes: loops ask for it each time that they are gone through."""
    return tuple(_bound(stmt, False))


def _bound(node: ast.AST, comprehension: bool) -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
            return
        case ast.Lambda():
            return
        case ast.NamedExpr(target=ast.Name(id=name)):  # of the function, even inside a comprehension
            yield name
        case ast.Name(ctx=ast.Store()) if not comprehension:
            yield node.id
        case ast.Import() | ast.ImportFrom():
            yield from (a.asname or a.name.split(".")[0] for a in node.names)
    comprehension = comprehension or isinstance(node, _COMPREHENSIONS)
    for child in ast.iter_child_nodes(node):
        yield from _bound(child, comprehension)


def names_in(node: ast.AST) -> set[str]:
    """Every name that appears in a tree."""
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    names |= {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
    return names | {n.name for n in ast.walk(node) if isinstance(n, ast.FunctionDef)}
