"""Accumulations in steps: the gradient of an array that a loop overwrites again and again is 0 where a step of it begins, and
what the step adds to its elements is gathered by these, as that of a whole function is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from weft.loops.accumulate import accumulate, accumulation, reaches_all
from weft.loops.automatic.rewriting import replaced
from weft.loops.ir import For, Function, Let, Load, Scalar, Stmt, Store, bodies, free_names, map_statement, walk, walk_expr
from weft.loops.names import Names
from weft.loops.simplify import is_number, own_exprs
from weft.loops.steps import bare
from weft.loops.types import INT64


def accumulate_in_steps(function: Function, names: Names) -> Function:
    """The function, with what steps of its loops add up in local arrays in a form that runs in parallel."""
    loops = [s.var for s in walk(function.body) if isinstance(s, For) and any(isinstance(x, For) for x in s.body)]
    for array in [a.name for a in function.arrays if a.role == "local" and a.dtype.category == "float" and not a.within]:
        for var in loops:
            function = _in_steps(function, var, array, names)
    return function


def _in_steps(function: Function, var: str, array: str, names: Names) -> Function:
    way = next(_ways(function.body, var, ()), None)
    if way is None:
        return function
    loop = way[-1]
    at = next((k for k, s in enumerate(loop.body) if _clears(function, s, array)), None)
    rest = () if at is None else loop.body[at + 1 :]
    if at is None or not _adds_alone(rest, array):
        return function
    inside = [Scalar(f.var, INT64) for f in way]
    inside += [Scalar(s.name, INT64) for f in way for s in f.body if isinstance(s, Let) and s.value.type == INT64]
    part = replace(bare(function, rest), scalars=(*function.scalars, *inside))
    made = accumulate(part, (array,), names)
    known = {a.name for a in function.arrays}
    fixed = {s.name for s in function.sizes} | {s.name for s in function.scalars}
    added = [a for a in made.arrays if a.name not in known]
    if any(a.fill is not None or not {n for e in a.shape for n in free_names(e)} <= fixed for a in added):
        return function  # all steps have it in common
    before = loop.body[: at + 1]
    if any(reaches_all(made, s, loops) for s, loops in _stores(made.body, array) if accumulation(s) is None):
        before = (*loop.body[:at], *_not_cleared((loop.body[at],), array))
    body = replaced(function.body, var, lambda f: (replace(f, body=(*before, *made.body)),))
    return replace(function, body=body, arrays=(*function.arrays, *added))


def _stores(statements: tuple[Stmt, ...], array: str, around: tuple[For, ...] = ()) -> Iterator[tuple[Store, tuple[For, ...]]]:
    """The stores to an array under no condition, and the loops around each."""
    for s in statements:
        if isinstance(s, Store) and s.array == array:
            yield s, around
        elif isinstance(s, For):
            yield from _stores(s.body, array, (*around, s))


def _clears(function: Function, stmt: Stmt, array: str) -> bool:
    """Whether a statement leaves 0 in every element of an array."""
    every = [s for s in walk((stmt,)) if isinstance(s, Store) and s.array == array]
    plain = [(s, loops) for s, loops in _stores((stmt,), array) if is_number(s.value, 0)]
    return len(every) == len(plain) == 1 and reaches_all(function, *plain[0])


def _not_cleared(statements: tuple[Stmt, ...], array: str) -> tuple[Stmt, ...]:
    kept = (s for s in statements if not (isinstance(s, Store) and s.array == array))
    return tuple(map_statement(s, lambda e: e, lambda body: _not_cleared(body, array)) for s in kept)


def _adds_alone(statements: tuple[Stmt, ...], array: str) -> bool:
    """Whether statements add to elements of an array, and do nothing else with it."""
    found = False
    for s in walk(statements):
        adds = isinstance(s, Store) and s.array == array
        value = accumulation(s) if isinstance(s, Store) and adds else None
        if adds and value is None:
            return False
        found = found or adds
        own = () if adds else own_exprs(s)
        if any(isinstance(x, Load) and x.array == array for e in own for x in walk_expr(e)):
            return False
    return found


def _ways(statements: tuple[Stmt, ...], var: str, around: tuple[For, ...]) -> Iterator[tuple[For, ...]]:
    """The loops around the loop of a variable, and it."""
    for s in statements:
        own = (*around, s) if isinstance(s, For) else around
        if isinstance(s, For) and s.var == var:
            yield own
        for body in bodies(s):
            yield from _ways(body, var, own)
