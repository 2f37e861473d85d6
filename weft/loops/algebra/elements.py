"""Arrays that a loop carries element by element: `acc[e] = acc[e] * old + p * v[j, e]` for all e, in every iteration of j.

Each element is a state of its own, and all change alike. So the loop is matched with one of them in place of the array: the
loops over the elements become straight code for some e, and the element a carried scalar.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace

from weft.loops.accesses import collect
from weft.loops.ir import (
    Carry,
    Cast,
    Const,
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
    bound_names,
    free_arrays,
    free_names,
    rewrite,
    statement_exprs,
    substitute_statements,
    walk,
    walk_expr,
)
from weft.loops.names import names_bound_in
from weft.loops.types import FLOAT64, INT64, ScalarType


@dataclass(frozen=True)
class Elements:
    """A loop with one element of some arrays in the place of these. states: the array of each new carry. over: of each
    array the first loop over its elements, and the element that an iteration of that touches.
    """

    loop: For
    states: dict[str, str]
    over: dict[str, tuple[For, tuple[Expr, ...]]]


def elements(function: Function, loop: For, arrays: Iterable[str]) -> Elements | None:
    """The loop with one element of each of these arrays carried as a scalar; None where it is none that stands for all:
    loops of the same range, directly in the body, each touch their own element alone.
    """
    states: dict[str, str] = {}
    over: dict[str, tuple[For, tuple[Expr, ...]]] = {}
    for array in arrays:
        first = next((s for s in loop.body if isinstance(s, For) and _touches((s,), array)), None)
        made = _with_element(function, loop, array)
        if made is None:
            return None
        assert first is not None
        (index,) = _subscripts(first, array)
        loop = made
        states[_state(array)] = array
        over[array] = first, index
    return Elements(loop, states, over)


def _state(array: str) -> str:
    return f"{array}[...]"


def _with_element(function: Function, loop: For, array: str) -> For | None:
    type_ = function.array(array).dtype.opmath
    if function.array(array).dtype != type_:
        return None  # every store rounds: the state is not what the next iteration computes with
    current: Expr = Ref(_state(array), type_)
    first: For | None = None
    body: list[Stmt] = []
    for stmt in loop.body:
        if not _touches((stmt,), array):
            body.append(stmt)
            continue
        if not isinstance(stmt, For) or abs(stmt.step) != 1:
            return None
        made = _made_of(stmt, array)
        gathered = [c for c in stmt.carries if c.name in made]
        along = [c for c in stmt.carries if c.name not in made]  # from element to element
        if any(c.type.category != "float" for c in gathered):
            return None
        if first is None:
            first = stmt
            if not _own_elements(stmt, array, names_bound_in((loop,))):
                return None
            body.append(Let(stmt.var, Const(0, INT64)))  # some element
        else:
            same = (stmt.start, stmt.stop, stmt.step) == (first.start, first.stop, first.step)
            if not same or not _own_elements(stmt, array, names_bound_in((loop,))):
                return None
        inner = stmt.body if stmt is first else substitute_statements(stmt.body, {stmt.var: Ref(first.var, INT64)})
        body += [Let(c.name, _unknown(c.type, current)) for c in gathered]
        body += [Let(c.name, _unknown(c.type, c.init)) for c in along]
        straight = _straight(inner, array, current, len(body))
        if straight is None:
            return None
        statements, current = straight
        body += statements
        body += [Let(c.result, _unknown(c.type, current)) for c in gathered]
        body += [Let(c.result, _unknown(c.type, c.init, c.next)) for c in along]
    if first is None or names_bound_in((loop,)) & _names(_subscripts(first, array)) - {first.var}:
        return None
    carry = Carry(_state(array), Const(0.0 if type_.category == "float" else 0, type_), current, f"{array}[...] last")
    if type_.category == "bool":
        return None
    return replace(loop, carries=(*loop.carries, carry), body=tuple(body))


def _made_of(loop: For, array: str) -> set[str]:
    """The names of a loop's body, and of what it carries, that are made of elements of an array."""
    found: set[str] = set()
    known = -1
    while known < len(found):
        known = len(found)
        for stmt in walk(loop.body):
            exprs = statement_exprs(stmt)
            if any(free_names(e) & found or array in free_arrays(e) for e in exprs):
                found |= set(bound_names(stmt))
        found |= {c.name for c in loop.carries if free_names(c.next) & found or array in free_arrays(c.next)}
    return found


def _unknown(type_: ScalarType, *values: Expr) -> Expr:
    """What a loop makes of these, and of all elements where here is one, by what no algebra knows: it matches no state."""
    floats = [e if e.type == FLOAT64 else Cast(e, FLOAT64) for e in values]
    made: Expr = Op("tanh", (functools.reduce(lambda a, b: Op("add", (a, b), FLOAT64), floats),), FLOAT64)
    return made if type_ == FLOAT64 else Cast(made, type_)


def _touches(statements: tuple[Stmt, ...], array: str) -> bool:
    return any(a.array == array for a in collect(statements))


def _subscripts(loop: For, array: str) -> set[tuple[Expr, ...]]:
    return {a.index for a in collect(loop.body) if a.array == array}


def _names(subscripts: set[tuple[Expr, ...]]) -> set[str]:
    return {e.name for index in subscripts for i in index for e in walk_expr(i) if isinstance(e, Ref)}


def _own_elements(loop: For, array: str, bound: set[str]) -> bool:
    """Whether each iteration touches one element of the array, another one than the others, the same wherever it does."""
    subscripts = _subscripts(loop, array)
    if len(subscripts) != 1:
        return False
    (index,) = subscripts
    own = [i for i in index if i == Ref(loop.var, INT64)]
    return len(own) == 1 and not any(isinstance(e, Load) for i in index for e in walk_expr(i)) and not (
        _names({tuple(i for i in index if i not in own)}) & bound
    )


def _straight(
    statements: tuple[Stmt, ...], array: str, current: Expr, number: int
) -> tuple[list[Stmt], Expr] | None:
    """Straight code with the element's value in the place of its loads and stores, and its value afterwards."""
    out: list[Stmt] = []
    for k, stmt in enumerate(statements):
        match stmt:
            case Let():
                out.append(replace(stmt, value=_reading(stmt.value, array, current)))
            case Store(array=stored) if stored == array:
                name = f"{_state(array)} {number}.{k}"
                out.append(Let(name, _reading(stmt.value, array, current)))
                current = Ref(name, stmt.value.type)
            case Store():
                out.append(replace(stmt, value=_reading(stmt.value, array, current)))
            case If() | For():
                inside = [s for b in bodies(stmt) for s in b]
                if _touches((stmt,), array) or any(isinstance(s, For) for s in walk(tuple(inside))):
                    return None
                out.append(stmt)
    return out, current


def _reading(e: Expr, array: str, current: Expr) -> Expr:
    return rewrite(e, lambda x: current if isinstance(x, Load) and x.array == array else None)

