"""Privatisation: an array that every iteration writes before it reads is one array for each iteration.

In `for r: for p: acc[p] = ...; for p: y[r, p] = acc[p]` no iteration of r reads what another one left in `acc`. Each then
writes to a part of its own of a larger array, and reads from it; `acc` itself is written by the last iteration only, and not
at all if nobody sees it. isl proves that whatever is read has surely been written in the same iteration.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from weft.loops.accesses import Access, Nested, collect, loops_in
from weft.loops.affine import Affine, affine, is_bound
from weft.loops.automatic.last_value import guard_stores
from weft.loops.automatic.rewriting import Rewriting, copied, replaced
from weft.loops.cells import written
from weft.loops.ir import (
    Array,
    Const,
    Expr,
    For,
    Function,
    Load,
    Op,
    Stmt,
    Store,
    bodies,
    statement_exprs,
    walk_expr,
    with_copies,
)
from weft.loops.names import Names, rename_array
from weft.loops.polyhedra import Polyhedra
from weft.loops.types import BOOL, INT64


def privatizations(function: Function, stuck: frozenset[str]) -> Iterator[Rewriting]:
    """The function with an array for every iteration of one of the loops `stuck`, or of several, one inside another."""
    chains: list[tuple[Nested, tuple[For, ...]]] = []
    for nested in loops_in(function.body):
        if nested.loop.var in stuck:
            around = tuple(f for f in nested.loops if f.var in stuck)
            chains += [(nested, (*around[k:], nested.loop)) for k in range(len(around) + 1)]
    for nested, chain in sorted(chains, key=lambda c: -len(c[1])):
        for array in written(nested.loop.body):
            made = _private(function, nested, chain, function.array(array))
            if made is not None:
                reasons = {loop.var: (f"privatisation: {array} of its own for every iteration",) for loop in chain}
                yield Rewriting(made, reasons, frees=frozenset(reasons))


def _private(function: Function, nested: Nested, chain: tuple[For, ...], array: Array) -> Function | None:
    """The function with an array of its own for each iteration of the loops `chain`, the last of them the loop `nested`."""
    if array.within or not _reads_own(function, nested, array.name):
        return None
    polyhedra = Polyhedra(function)
    known = {s.name for s in function.sizes} | {s.name for s in function.scalars if s.type == INT64}
    extents: list[Expr] = []
    for loop in chain:
        start, stop = affine(loop.start), affine(loop.stop)
        if start is None or stop is None or not (start.names | stop.names) <= known or loop.step != 1:
            return None
        count = (stop - start).expr()
        negative = Op("lt", (count, Const(0, INT64)), BOOL)
        extents.append(Op("max", (Const(0, INT64), count), INT64) if polyhedra.possible((), ((negative, True),)) else count)
    names = Names.of(function)
    private = names.fresh(f"{array.name}_private")
    where = tuple((Affine(((loop.var, 1),), 0) - affine(loop.start)).expr() for loop in chain)  # type: ignore[operator]
    seen = array.role != "local" or _loaded_outside(function, nested.loop, array.name)
    body = rename_array(nested.loop.body, array.name, private, where)
    if seen:
        copies = _copies(nested.loop, array, private, where, known | {f.var for f in (*nested.loops, nested.loop)}, names)
        if copies is None:
            return None
        body = (*body, *copies)
    loop = replace(nested.loop, body=body)
    larger = Array(private, array.dtype, (*extents, *array.shape), "local", location=array.location)
    made = replace(function, body=replaced(function.body, loop.var, lambda _: (loop,)))
    made = with_copies(made, {array.name: larger})
    if not seen:
        return made
    guarded = guard_stores(made, tuple(f.var for f in reversed(chain)), array.name)
    return None if guarded is None else guarded[0]


def _reads_own(function: Function, nested: Nested, array: str) -> bool:
    """Whether every read of an array in a loop finds what the same iteration has written before."""
    polyhedra = Polyhedra(function)
    accesses = [a for a in collect((nested.loop,), nested.loops, nested.guard) if a.array == array]
    inside = [a for a in accesses if any(f.var == nested.loop.var for f in a.loops)]
    writes = [a for a in inside if a.write]
    return len(inside) == len(accesses) and all(polyhedra.covered(a, writes, nested.loop) for a in inside if not a.write)


def _loaded_outside(function: Function, loop: For, array: str) -> bool:
    def loads(statements: tuple[Stmt, ...]) -> bool:
        for stmt in statements:
            if isinstance(stmt, For) and stmt.var == loop.var:
                continue
            if any(isinstance(e, Load) and e.array == array for x in statement_exprs(stmt) for e in walk_expr(x)):
                return True
            if any(loads(body) for body in bodies(stmt)):
                return True
        return False

    return loads(function.body)


def _copies(
    loop: For, array: Array, private: str, where: tuple[Expr, ...], known: set[str], names: Names
) -> tuple[Stmt, ...] | None:
    """Loops that copy what an iteration of a loop has written from the private array; None where it is not known what."""
    stores = [a for a in collect((loop,)) if a.write and a.array == array.name]
    every: dict[tuple[tuple[str, ...], tuple[Expr, ...]], Access] = {}
    for store in stores:
        inner = store.loops[1:]
        if store.guard or None in store.subscript or not all(is_bound(e, known | {f.var for f in inner}) for e in store.index):
            return None
        bounds = [e for f in inner for e in (f.start, f.stop)]
        if not all(is_bound(e, known | {f.var for f in inner}) for e in bounds):
            return None
        every[tuple(f.var for f in inner), store.index] = store
    out: list[Stmt] = []
    for (around, index), store in every.items():
        if any(around[: len(other)] == other and around != other and index == same for other, same in every):
            continue  # a store in fewer of these loops is of the same elements
        load = Load(private, (*where, *index), array.dtype.opmath)
        copy: Stmt = Store(array.name, index, load, store.location)
        for over in reversed(store.loops[1:]):
            copy = replace(over, carries=(), body=(copy,), implied=True)
        out.append(copied(copy, names)[0] if isinstance(copy, For) else copy)
    return tuple(out)
