"""Makes a failing program small: takes statements away and puts parts of expressions in their place while it still fails."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.fuzz_programs import Program


def shrink(program: Program, fails: Callable[[Program], bool], tries: int = 2000) -> Program:
    """The smallest program found that still fails. tries: how many programs are looked at."""
    tree = ast.parse(program.source)
    best = program
    while True:
        for candidate in _smaller(tree):
            tries -= 1
            if tries < 0:
                return best
            source = ast.unparse(ast.fix_missing_locations(candidate)) + "\n"
            if len(source) >= len(best.source) and best is not program:
                continue
            attempt = replace(best, source=source)
            if _fails(attempt, fails):
                best, tree = attempt, ast.parse(source)
                break
        else:
            return best


def _fails(program: Program, fails: Callable[[Program], bool]) -> bool:
    try:
        return fails(program)
    except Exception:  # a candidate that is no program at all
        return False


def _smaller(tree: ast.Module) -> Iterator[ast.Module]:
    """Programs one step smaller, the largest steps first."""
    places = [n for n in ast.walk(tree) if isinstance(n, (ast.Module, ast.FunctionDef, ast.For, ast.If))]
    for k in range(len(places)):
        for field in ("body", "orelse"):
            statements = getattr(places[k], field, [])
            for at in range(len(statements)):
                yield from _without(tree, k, field, at)
    count = sum(1 for n in ast.walk(tree) if isinstance(n, ast.expr))
    for k in range(count):
        yield from _with_part(tree, k)


def _nth(tree: ast.Module, k: int, kinds: tuple[type, ...]) -> ast.AST:
    return [n for n in ast.walk(tree) if isinstance(n, kinds)][k]


def _without(tree: ast.Module, k: int, field: str, at: int) -> Iterator[ast.Module]:
    """Without a statement, or with its body in its stead."""
    for inner in (None, "body", "orelse"):
        made = copy.deepcopy(tree)
        statements = getattr(_nth(made, k, (ast.Module, ast.FunctionDef, ast.For, ast.If)), field)
        statement = statements[at]
        if inner is None:
            new: list[ast.stmt] = []
        elif isinstance(statement, ast.If) and getattr(statement, inner):
            new = getattr(statement, inner)
        else:
            continue
        statements[at : at + 1] = new
        if not statements and field == "body":
            statements.append(ast.Pass())
        yield made


def _with_part(tree: ast.Module, k: int) -> Iterator[ast.Module]:
    """With one of its operands, or a number, in the place of an expression."""
    node = _nth(tree, k, (ast.expr,))
    if isinstance(node, (ast.Constant, ast.Name)) or isinstance(getattr(node, "ctx", None), ast.Store):
        return
    parts = [c for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)]
    for part in [*parts, ast.Constant(1)]:
        made = copy.deepcopy(tree)
        target = _nth(made, k, (ast.expr,))
        swap = _Swap(target, copy.deepcopy(part))
        swap.visit(made)
        yield made


class _Swap(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.expr) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)
