"""Accumulations in steps: the gradient of an array that a loop overwrites again and again is 0 where a step of it begins, and
what the step adds to its elements is gathered by these, as that of a whole function is. So is what is added to the gradient of
an array before anything is made of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from weft.loops.accumulate import accumulate, accumulation, reaches_all
from weft.loops.automatic.rewriting import replaced
from weft.loops.ir import (
    Array,
    For,
    Function,
    Let,
    Load,
    Ref,
    Scalar,
    Stmt,
    Store,
    bodies,
    filtered,
    free_names,
    walk,
    walk_expr,
)
from weft.loops.names import Names, rename_array
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


def accumulate_before_use(function: Function, names: Names) -> Function:
    """The function, with what is added up in local arrays before anything else is done with them in a form that runs in
    parallel.
    """
    for array in [a for a in function.arrays if a.role == "local" and a.dtype.category == "float" and not a.within]:
        if array.fill is not None and is_number(array.fill, 0):
            function = _before_use(function, array, names)
    return function


def _before_use(function: Function, array: Array, names: Names) -> Function:
    """The statements that add to the array stand where each iteration of the loops around has elements of its own."""
    way, statements = list[For](), function.body
    while True:
        used = [k for k, s in enumerate(statements) if _uses_of((s,), array.name)]
        others = (j for j, k in enumerate(used) if not _adds_alone((statements[k],), array.name))
        adding = used[: next(others, len(used))]
        if adding or not used:
            break
        loop = statements[used[0]]
        if not isinstance(loop, For) or not _has_elements_of(loop, array.name):
            return function
        way.append(loop)
        statements = loop.body
    if len(adding) == len(used):
        return function
    end = adding[-1] + 1
    apart = replace(array, name=names.fresh(array.name))
    body = (*rename_array(statements[:end], array.name, apart.name), *statements[end:])
    parted = replace(function, body=_with_body(function.body, way, body), arrays=(*function.arrays, apart))
    made = accumulate(parted, (apart.name,), names)
    within = made.body if not way else next(_ways(made.body, way[-1].var, ()))[-1].body
    sides = [[len(_uses_of((s,), name)) for s in within] for name in (apart.name, array.name)]
    last = max((k for k, n in enumerate(sides[0]) if n), default=0)
    first = next((k for k, n in enumerate(sides[1]) if n), 0)
    if last >= first or sum(sides[0]) != len(_uses_of(made.body, apart.name)):
        return function  # some would come too late
    arrays = tuple(a for a in made.arrays if a.name != apart.name)
    return replace(made, body=rename_array(made.body, apart.name, array.name), arrays=arrays)


def _with_body(statements: tuple[Stmt, ...], way: Sequence[For], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The statements, with another body of the last of these loops; another body of all where there are none."""
    return replaced(statements, way[-1].var, lambda f: (replace(f, body=body),)) if way else body


def _has_elements_of(loop: For, array: str) -> bool:
    """Whether each iteration of a loop has elements of an array of its own, as one of their subscripts says."""
    own = Ref(loop.var, INT64)
    return bool(set.intersection(*({k for k, i in enumerate(x.index) if i == own} for x in _uses_of((loop,), array))))


def _uses_of(statements: tuple[Stmt, ...], array: str) -> list[Load | Store]:
    """What statements do with an array."""
    found: list[Load | Store] = []
    for s in walk(statements):
        found += [s] if isinstance(s, Store) and s.array == array else []
        found += [x for e in own_exprs(s) for x in walk_expr(e) if isinstance(x, Load) and x.array == array]
    return found


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
        before = (*loop.body[:at], *filtered((loop.body[at],), lambda s: not (isinstance(s, Store) and s.array == array)))
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
