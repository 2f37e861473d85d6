"""Which gradients are those of a result as they are: of what a program only adds to all of a result, element by element."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from weft.loops.ir import (
    ZERO,
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
    bodies,
    statement_exprs,
    walk,
    walk_expr,
)
from weft.loops.types import INT64


def handed_on(function: Function) -> dict[str, str]:
    """Of arguments whose elements are read once, to be added to those of a result at the same places (`y[i] = x[i] + ...`): the
    result, whose gradient is the argument's where both have one shape.
    """
    stores = Counter(s.array for s in walk(function.body) if isinstance(s, Store))
    parts = [e for s in walk(function.body) for expr in statement_exprs(s) for e in walk_expr(expr)]
    loads, used = Counter(e.array for e in parts if isinstance(e, Load)), Counter(e.name for e in parts if isinstance(e, Ref))
    found: dict[str, str] = {}
    for store, loops, lets in stored(function.body, ()):
        array = function.array(store.array)
        if array.role != "result" or stores[array.name] > 1 or loads[array.name]:
            continue
        if function.results.count(array.name) != 1 or not all_of(store, loops, array.shape):
            continue
        for term in _terms(store.value, lets, used):
            if not isinstance(term, Load) or term.index != store.index or loads[term.array] > 1:
                continue
            given = function.array(term.array)
            if given.role == "input" and given.dtype == array.dtype and given.dtype.category == "float":
                found[given.name] = array.name
    return found


def stored(body: tuple[Stmt, ...], loops: tuple[For, ...]) -> Iterator[tuple[Store, tuple[For, ...], dict[str, Expr]]]:
    """What is stored whatever the data are, with the loops around it and what names of the same body are."""
    lets = {s.name: s.value for s in body if isinstance(s, Let)}
    for statement in body:
        if isinstance(statement, Store):
            yield statement, loops, lets
        elif not isinstance(statement, If):
            for inside in bodies(statement):
                assert isinstance(statement, For)
                yield from stored(inside, (*loops, statement))


def all_of(store: Store, loops: tuple[For, ...], shape: tuple[Expr, ...]) -> bool:
    """Whether each iteration of some loops stores an element of its own, and all of an array is stored."""
    if len(loops) != len(shape) or {Ref(l.var, INT64) for l in loops} != set(store.index):
        return False
    stops: dict[Expr, Expr] = {Ref(l.var, INT64): l.stop for l in loops if l.start == ZERO and l.step == 1}
    return all(stops.get(i) == extent for i, extent in zip(store.index, shape, strict=True))


def _terms(value: Expr, lets: dict[str, Expr], used: Counter[str]) -> Iterator[Expr]:
    """What is added up, each once."""
    if isinstance(value, Ref) and value.name in lets and used[value.name] == 1:
        yield from _terms(lets[value.name], lets, used)
    elif isinstance(value, Op) and value.name in ("add", "sub"):
        yield from _terms(value.args[0], lets, used)
        if value.name == "add":
            yield from _terms(value.args[1], lets, used)
    else:
        yield value
