"""Renaming: what a loop reads before it overwrites it can be read from a copy that is made before the loop.

`a[i] = a[i + 1] + b[i]` must run in order only because the element that an iteration reads is overwritten by the next
one. No iteration reads what an earlier one wrote, so with the old elements kept in an array of their own nothing is left
that orders the iterations. The copy costs a pass over memory: whoever analyses a function takes it only where it frees
a loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from weft.loops.accesses import Access, collect
from weft.loops.affine import Affine, affine
from weft.loops.automatic.induction import close
from weft.loops.automatic.rewriting import Rewriting
from weft.loops.ir import Array, Const, Expr, For, Function, Load, Ref, Stmt, Store, map_statement, rewrite, walk, with_copies
from weft.loops.names import Names
from weft.loops.polyhedra import Polyhedra
from weft.loops.types import INT64

# The loops around a load, by variable, and its array and subscript.
Place = tuple[tuple[str, ...], str, tuple[Expr, ...]]


def renamings(function: Function, stuck: frozenset[str]) -> Iterator[Rewriting]:
    """The renamings that are legal in a statement of the function (not of a loop in it) with one of the loops `stuck` in it:
    of each array alone, and of all of them.
    """
    for position, stmt in enumerate(function.body):
        loops = [s for s in walk((stmt,)) if isinstance(s, For) and s.var in stuck]
        if not loops:
            continue
        places = _old_places(function, position, elsewhere=True)
        for arrays in _choices(places):
            made = _renamed(function, position, {name: places[name] for name in arrays})
            yield Rewriting(made, {}, whatever=_copied_first(arrays))
        if any(loop.carries for loop in loops):  # a scalar may be what an earlier iteration made of old elements
            places = _old_places(function, position, elsewhere=False)
            for arrays in _choices(places):
                closed = close(_renamed(function, position, {name: places[name] for name in arrays}))
                if closed.transforms:
                    yield Rewriting(closed.function, closed.transforms, whatever=_copied_first(arrays))


def _copied_first(arrays: tuple[str, ...]) -> tuple[str, ...]:
    return (f"renaming: {' and '.join(arrays)} {'is' if len(arrays) == 1 else 'are'} copied first",)


def old_values_kept(function: Function, position: int, name: str) -> Function | None:
    """The function with the reads of old elements of one array, in one statement, from a copy; None where there are none."""
    for elsewhere in (True, False):
        places = _old_places(function, position, elsewhere)
        if name in places:
            return _renamed(function, position, {name: places[name]})
    return None


def _choices(places: dict[str, list[Access]]) -> list[tuple[str, ...]]:
    alone: list[tuple[str, ...]] = [(name,) for name in places]
    return [*alone, tuple(places)] if len(alone) > 1 else alone


# ---------------------------------------------------------------- which loads see what was there before


def _old_places(function: Function, position: int, elsewhere: bool) -> dict[str, list[Access]]:
    """The loads in a statement, by array, of elements that it has not written by then and writes later.

    elsewhere: in another iteration.
    """
    polyhedra = Polyhedra(function)
    accesses = collect((function.body[position],))
    found: dict[str, list[Access]] = {}
    for name in dict.fromkeys(a.array for a in accesses if a.write):
        if function.array(name).within or not _has_values(function, position, name):
            continue
        writes = [a for a in accesses if a.write and a.array == name]
        groups: dict[Place, list[Access]] = {}
        for a in accesses:
            if a.array == name and not a.write:
                groups.setdefault(_place(a), []).append(a)
        for reads in groups.values():
            old = not any(polyhedra.precedes(w, r, apart=False) for r in reads for w in writes)
            if old and any(polyhedra.precedes(r, w, apart=elsewhere) for r in reads for w in writes):
                found.setdefault(name, []).append(reads[0])
    return found


def _place(access: Access) -> Place:
    return tuple(f.var for f in access.loops), access.array, access.index


def _has_values(function: Function, position: int, name: str) -> bool:
    """Whether every element of an array has a value before a statement, so that a copy reads none that no one wrote."""
    array = function.array(name)
    return array.role == "inout" or array.fill is not None or any(_fills(s, array) for s in function.body[:position])


def _fills(stmt: Stmt, array: Array) -> bool:
    """Whether a statement is nested loops around a store to every element of an array."""
    ranges: dict[str, Expr] = {}
    while isinstance(stmt, For):
        if stmt.start != Const(0, INT64) or stmt.step != 1:
            return False
        ranges[stmt.var] = stmt.stop
        stores = [s for s in stmt.body if isinstance(s, Store) and s.array == array.name]
        if stores and len(stores[-1].index) == len(ranges):
            subscript = {i.name: e for i, e in zip(stores[-1].index, array.shape, strict=True) if isinstance(i, Ref)}
            return subscript == ranges
        inner = [s for s in stmt.body if isinstance(s, For)]
        if len(inner) != 1:
            return False
        stmt = inner[0]
    return False


# ---------------------------------------------------------------- the copy


def _renamed(function: Function, position: int, places: dict[str, list[Access]]) -> Function:
    names = Names.of(function)
    copies = {name: names.fresh(f"{name}_old") for name in places}
    old = {_place(a) for reads in places.values() for a in reads}
    stmt = function.body[position]
    arrays = []
    nests: list[Stmt] = []
    for name, reads in places.items():
        array = function.array(name)
        arrays.append(Array(copies[name], array.dtype, array.shape, "local", location=array.location))
        nests.append(_copy(function, array, copies[name], reads, names, stmt))

    def block(statements: tuple[Stmt, ...], path: tuple[str, ...]) -> tuple[Stmt, ...]:
        return tuple(statement(s, path) for s in statements)

    def statement(s: Stmt, path: tuple[str, ...]) -> Stmt:
        def expr(e: Expr, inside: tuple[str, ...] = path) -> Expr:
            def rule(x: Expr) -> Expr | None:
                if isinstance(x, Load) and (inside, x.array, x.index) in old:
                    return replace(x, array=copies[x.array])
                return None

            return rewrite(e, rule)

        if not isinstance(s, For):
            return map_statement(s, expr, lambda b: block(b, path))
        inner = (*path, s.var)
        carries = tuple(replace(c, init=expr(c.init), next=expr(c.next, inner)) for c in s.carries)
        return replace(s, start=expr(s.start), stop=expr(s.stop), carries=carries, body=block(s.body, inner))

    body = (*function.body[:position], *nests, statement(stmt, ()), *function.body[position + 1 :])
    return with_copies(replace(function, body=body), dict(zip(places, arrays, strict=True)))


def _copy(function: Function, array: Array, copy: str, reads: list[Access], names: Names, stmt: Stmt) -> Stmt:
    """Loops that copy a box of an array: all that the reads may name, where that is known to lie in it, else everything."""
    whole: list[tuple[Expr, Expr]] = [(Const(0, INT64), extent) for extent in array.shape]
    location = stmt.location
    known = {s.name for s in function.sizes} | {s.name for s in function.scalars}
    boxes = (_box(array, reads, known), whole)
    for box in boxes:
        variables = [names.fresh(f"{array.name}_{axis}") for axis in range(len(box))]
        index = tuple(Ref(v, INT64) for v in variables)
        nest: Stmt = Store(copy, index, Load(array.name, index, array.dtype.opmath), location)
        for variable, (low, high) in reversed(list(zip(variables, box, strict=True))):
            nest = For(variable, low, high, 1, (), (nest,), implied=True, location=location)
        if box is whole or all(Polyhedra(function).surely_inside(a, array.shape) for a in collect((nest,))):
            break
    return nest


def _box(array: Array, reads: list[Access], known: set[str]) -> list[tuple[Expr, Expr]]:
    """Bounds along each axis of what the reads name: all of an axis where these are no sums of `known` names."""
    box: list[tuple[Expr, Expr]] = []
    for axis, extent in enumerate(array.shape):
        ends = [_ends(r.subscript[axis], r.loops) for r in reads]
        ends = [e if e is not None and (e[0].names | e[1].names) <= known else None for e in ends]
        low, high = ends[0] or (None, None)
        for end in ends[1:]:
            low = _least(low, end and end[0], 1)
            high = _least(high, end and end[1], -1)
        if low is None or high is None:
            box.append((Const(0, INT64), extent))
        else:
            box.append((low.expr(), (high + Affine((), 1)).expr()))
    return box


def _least(a: Affine | None, b: Affine | None, sign: int) -> Affine | None:
    """The smaller of two forms that differ by a number (the larger for sign -1)."""
    if a is None or b is None or (a - b).terms:
        return None
    return a if (a - b).constant * sign < 0 else b


def _ends(form: Affine | None, loops: tuple[For, ...]) -> tuple[Affine, Affine] | None:
    """The least and the largest value of a subscript in the iterations of these loops, free of their variables."""
    if form is None:
        return None
    low = high = form
    for loop in reversed(loops):
        start, stop = affine(loop.start), affine(loop.stop)
        if not (low.coefficient(loop.var) or high.coefficient(loop.var)):
            continue
        if start is None or stop is None:
            return None
        first, last = (start, stop + Affine((), -1)) if loop.step > 0 else (stop + Affine((), 1), start)
        low = _with(low, loop.var, first if low.coefficient(loop.var) > 0 else last)
        high = _with(high, loop.var, last if high.coefficient(loop.var) > 0 else first)
    return low, high


def _with(form: Affine, name: str, value: Affine) -> Affine:
    rest = Affine.make({n: c for n, c in form.terms if n != name}, form.constant)
    return rest + value * form.coefficient(name)
