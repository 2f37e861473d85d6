"""Gradients of what data choose where it is stored (`y[place[i]] = x[i]`): of what is stored to one element, the last has it.

Backwards, that is the first iteration to come: it takes what the element has, and leaves 0 to the others, which so wait for it.
Which iteration that is needs no order: the largest of the numbers of those that name an element. All others have 0.
"""

from __future__ import annotations

from dataclasses import replace

from weft.loops.accumulate.ranges import upwards
from weft.loops.handed_on import all_of, stored
from weft.loops.ir import (
    ONE,
    ZERO,
    Array,
    Const,
    Expr,
    For,
    Function,
    Let,
    Load,
    Op,
    Ref,
    Stmt,
    Store,
    free_arrays,
    free_names,
    loaded_arrays,
    statement_exprs,
    substitute,
    walk,
    walk_expr,
)
from weft.loops.names import Names, rename_array
from weft.loops.simplify import fold
from weft.loops.types import BOOL, INT64


def taken_once(function: Function) -> Function:
    """The function, in which iterations that each take what is left of an element need not wait for each other."""
    names, fixed = Names.of(function), {s.name for s in function.sizes} | {s.name for s in function.scalars}
    for k, top in enumerate(function.body):
        loops, inside = _nest(top)
        if any(f.carries or abs(f.step) != 1 or not free_names(f.start) | free_names(f.stop) <= fixed for f in loops):
            continue
        if any(not isinstance(s, Let | Store) for s in inside):
            continue
        for store in (s for s in inside if isinstance(s, Store)):
            made = _apart(function, k, loops, inside, store, names)
            if made is not None:
                return taken_once(made)
    return function


def _nest(top: Stmt) -> tuple[tuple[For, ...], tuple[Stmt, ...]]:
    """The loops one inside another, and the statements in the innermost."""
    if not isinstance(top, For):
        return (), (top,)
    inside = top.body
    if len(inside) == 1 and isinstance(inside[0], For):
        loops, statements = _nest(inside[0])
        return (top, *loops), statements
    return (top,), inside


def _apart(
    function: Function, k: int, loops: tuple[For, ...], inside: tuple[Stmt, ...], store: Store, names: Names
) -> Function | None:
    """The function with what the k-th statement takes of an array told by numbers; None where it takes nothing so."""
    array = function.array(store.array)
    lets = {s.name: s.value for s in inside if isinstance(s, Let)}
    taking = [s for s in inside if isinstance(s, Let) and s.value == Load(array.name, store.index, array.dtype.opmath)]
    loads = sum(isinstance(e, Load) and e.array == array.name for s in inside for x in statement_exprs(s) for e in walk_expr(x))
    others = sum(isinstance(s, Store) and s.array == array.name for s in inside)
    zero = isinstance(store.value, Const) and store.value.value == 0
    if array.role != "local" or array.within or not zero or len(taking) != 1 or (loads, others) != (1, 1):
        return None
    if inside.index(taking[0]) > inside.index(store):
        return None
    index = tuple(_whole(i, lets) for i in store.index)
    read = {a for i in index for a in free_arrays(i)}
    if not read or read & {s.array for s in walk(function.body) if isinstance(s, Store)}:
        return None  # sizes decide, or what chooses changes
    taken = Array(names.fresh(f"{array.name}_taken"), INT64, array.shape, "local", ZERO)
    before, at, number = _again(loops, index, names)
    asked = Load(taken.name, at, INT64)
    count = _around(before, (Store(taken.name, at, Op("max", (asked, number), INT64), store.location),))
    own = Op("eq", (Load(taken.name, store.index, INT64), _number(loops)), BOOL)
    value = Op("where", (own, taking[0].value, Const(0.0, taking[0].value.type)), taking[0].value.type)
    body = tuple(replace(s, value=value) if s is taking[0] else s for s in inside if s is not store)
    statements = [_alone(count), _alone(_around(loops, body))]  # any iteration may name an element
    later = function.body[k + 1 :]
    if array.name in loaded_arrays(later) or any(s.array == array.name for s in _stores(later)):
        after, at, _ = _again(loops, index, names)
        statements.append(_alone(_around(after, (replace(store, index=at),))))
    made = replace(function, body=(*function.body[:k], *statements, *function.body[k + 1 :]), arrays=(*function.arrays, taken))
    return _as_it_was(made, array)


def _stores(body: tuple[Stmt, ...]) -> list[Store]:
    return [s for s in walk(body) if isinstance(s, Store)]


def _whole(e: Expr, lets: dict[str, Expr]) -> Expr:
    while named := free_names(e) & lets.keys():
        e = substitute(e, {n: lets[n] for n in named})
    return e


def _again(loops: tuple[For, ...], index: tuple[Expr, ...], names: Names) -> tuple[tuple[For, ...], tuple[Expr, ...], Expr]:
    """The loops with variables of their own, in any order, and an index and the number of an iteration in these."""
    own = tuple(replace(f, var=names.fresh(f.var)) for f in loops)
    known: dict[str, Expr] = {f.var: Ref(o.var, INT64) for f, o in zip(loops, own, strict=True)}
    return tuple(map(upwards, own)), tuple(substitute(i, known) for i in index), _number(own)


def _around(loops: tuple[For, ...], body: tuple[Stmt, ...]) -> Stmt:
    for f in reversed(loops):
        body = (replace(f, body=body),)
    return body[0]


def _alone(nest: Stmt) -> Stmt:
    return replace(nest, apart=True) if isinstance(nest, For) else nest


def _number(loops: tuple[For, ...]) -> Expr:
    """The number of an iteration, from 1 on: the first to come has the largest."""
    found: Expr = ZERO
    for f in loops:
        var, (low, high) = Ref(f.var, INT64), (f.start, f.stop) if f.step > 0 else (f.stop, f.start)
        left = _less(_less(high, var), ONE) if f.step > 0 else _less(_less(var, low), ONE)
        found = Op("add", (Op("mul", (found, _less(high, low)), INT64), left), INT64)
    return fold(Op("add", (found, ONE), INT64))


def _less(a: Expr, b: Expr) -> Expr:
    return fold(Op("sub", (a, b), INT64))


def _as_it_was(function: Function, array: Array) -> Function:
    """The function without an array that is only a copy of an argument."""
    stores = [s for s in _stores(function.body) if s.array == array.name]
    for k, top in enumerate(function.body):
        for store, loops, _ in stored((top,), ()):
            given = store.value
            if stores != [store] or not isinstance(given, Load) or given.index != store.index:
                continue
            source = function.array(given.array)
            if source.role != "input" or source.dtype != array.dtype or not all_of(store, loops, array.shape):
                continue
            if len([*walk((top,))]) > len(loops) + 1:
                continue
            body = rename_array((*function.body[:k], *function.body[k + 1 :]), array.name, source.name)
            return replace(function, body=body, arrays=tuple(a for a in function.arrays if a.name != array.name))
    return function
