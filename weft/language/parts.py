"""Parts of tensors, as `row = x[k]`: Python looks at the subscript where a part is made, whether or not it is read.

What reads an element of the part is seen to be inside its tensor itself. A part of which nothing is surely read needs an access
of its own, to an array that has one element for each subscript of the axis, and no other use.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

from weft.language import bounds
from weft.language.builder import Builder
from weft.language.values import View, place
from weft.loops.ir import (
    FALSE,
    TRUE,
    Array,
    Check,
    Expr,
    For,
    Idle,
    If,
    Let,
    Load,
    Op,
    Stmt,
    Store,
    certain_in,
    free_names,
    has_load,
    map_statement,
    walk_expr,
)
from weft.loops.normalize import simplify
from weft.loops.types import BOOL

# What is loaded or stored, and conditions under each of which it is not.
Evaluated = tuple[Expr | Store, tuple[Expr, ...]]


def made(b: Builder, view: View, dim: int, index: Expr) -> None:
    """Note that a subscript of a dimension, which is all of an axis of its array, makes a part."""
    axis = view.axes.index(place(dim))
    size = b.arrays[view.array].shape[axis]
    if bounds.certain(b, index, index, size):
        return
    name = b.subscripts.get((view.array, axis))
    if name is None:
        name = b.subscripts[view.array, axis] = b.fresh(f"{view.array}_axis_{axis}")
        b.spelled[name] = b.called(view.array)
        own = Array(name, BOOL, (size,), "local", FALSE, location=b.location, contiguous=True)
        b.arrays[name] = replace(own, stands_for=axis)

    def same(e: Expr | Store) -> bool:
        return isinstance(e, (Load, Store)) and e.array == view.array and e.index[axis] == index

    b.parts[b.let("unused", Load(name, (index,), BOOL, b.location)).name] = same


def made_inside(b: Builder, inside: Expr) -> None:
    """The same of a part of a part, whose subscripts are inside where the condition holds."""
    check = bounds.checked(TRUE, inside, b)

    def same(e: Expr | Store) -> bool:
        return isinstance(e, Check) and any(x == inside for x in walk_expr(e.args[1]))

    b.parts[b.let("unused", check).name] = same


def told(b: Builder, body: tuple[Stmt, ...], checked: frozenset[str]) -> tuple[tuple[Stmt, ...], tuple[Idle, ...]]:
    """The statements without the accesses for parts of which something is surely read beside, and where loops that read it may
    not run. checked: arrays whose accesses stay.
    """
    idle: dict[Idle, None] = {}

    def needless(stmt: Stmt, statements: tuple[Stmt, ...]) -> bool:
        if not isinstance(stmt, Let) or stmt.name not in b.parts:
            return False
        array = stmt.value.array if isinstance(stmt.value, Load) else None
        found = [loops for e, loops in _evaluated(b, statements, ()) if b.parts[stmt.name](e)]
        if not found or array in checked:
            return False
        fewest = min(found, key=len)
        if fewest and (array is None or not all(free_names(e) <= b.fixed and not has_load(e) for e in fewest)):
            return False
        if fewest and array is not None:
            condition = functools.reduce(lambda one, other: Op("or", (one, other), BOOL), fewest)
            idle.setdefault(Idle(array, condition))
        return True

    def block(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        kept = (s for s in statements if not needless(s, statements))
        return tuple(map_statement(s, lambda e: e, block) for s in kept)

    return (block(body), tuple(idle)) if b.parts else (body, ())


def _evaluated(b: Builder, statements: tuple[Stmt, ...], loops: tuple[Expr, ...]) -> Iterator[Evaluated]:
    """What statements surely load and store if their loops run."""
    for stmt in statements:
        exprs: tuple[Expr, ...] = ()
        match stmt:
            case Let(name=name, value=value):
                exprs = () if name in b.parts else (value,)
            case Store():
                yield stmt, loops
                exprs = (*stmt.index, stmt.value)
            case If(condition=condition):
                exprs = (condition,)
            case For():
                exprs = (stmt.start, stmt.stop, *(c.init for c in stmt.carries))
                never = Op("ge" if stmt.step > 0 else "le", (b.in_sizes(stmt.start), b.in_sizes(stmt.stop)), BOOL)
                ends = (e for c in stmt.carries for e in certain_in(c.next))
                inner = loops if simplify(never) == FALSE else (*loops, never)
                yield from ((e, inner) for e in ends)
                yield from _evaluated(b, stmt.body, inner)
        for e in exprs:
            yield from ((x, loops) for x in certain_in(e))
