"""Parallel axes: which loops of a group of statements may run outermost and at once, and the rewriting that puts them there.

Choosing one loop above every store of the group and making these one axis is legal exactly if no two iterations with
different values of the axis touch the same element with a write among them: then nothing depends across the axis, and
fusion and interchange of the chosen loops follow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.loops.accesses import Access, collect
from weft.loops.affine import Affine, affine, is_bound
from weft.loops.ir import Expr, For, Function, If, Let, Ref, Stmt, Store, substitute_statements, walk
from weft.loops.polyhedra import Polyhedra, Witness
from weft.loops.schedule import Axis
from weft.loops.types import INT64

# Where a loop starts and stops, as affine forms or else as written, and its step.
Range = tuple[Affine | Expr, Affine | Expr, int]


@dataclass(frozen=True)
class Choice:
    """One axis: the loops that become it (by variable), and the first of them."""

    loops: tuple[For, ...]

    @property
    def first(self) -> For:
        return self.loops[0]

    def of(self, access: Access) -> For | None:
        chosen = {loop.var for loop in self.loops}
        return next((loop for loop in access.loops if loop.var in chosen), None)


def _range(loop: For, invariant: frozenset[str]) -> Range | None:
    """The bounds of a loop, if sizes and scalar parameters alone decide them."""
    if not (is_bound(loop.start, invariant) and is_bound(loop.stop, invariant)):
        return None
    return affine(loop.start) or loop.start, affine(loop.stop) or loop.stop, loop.step


def _cover(statements: tuple[Stmt, ...], key: Range, skip: int, invariant: frozenset[str]) -> list[For] | None:
    """One loop of range `key` above each store, passing over the first `skip` that would do; None if a store has none."""
    chosen: list[For] = []
    for stmt in statements:
        match stmt:
            case Store():
                return None
            case If():
                for body in (stmt.then, stmt.orelse):
                    below = _cover(body, key, skip, invariant)
                    if below is None:
                        return None
                    chosen += below
            case For():
                here = not stmt.carries and _range(stmt, invariant) == key
                if here and skip == 0:
                    chosen.append(stmt)
                    continue
                if not any(isinstance(s, Store) for s in walk(stmt.body)):
                    return None  # a reduction is not to be repeated for every value of the axis
                below = _cover(stmt.body, key, skip - 1 if here else skip, invariant)
                if below is None:
                    if not here:
                        return None
                    chosen.append(stmt)  # the only loop of this range on the way
                else:
                    chosen += below if below or not here else [stmt]
            case Let():
                pass
    return chosen


@dataclass(frozen=True)
class Grouping:
    """Parallel axes found for a group: the axes, the statements left inside them, the loops that each axis took."""

    axes: tuple[Axis, ...]
    body: tuple[Stmt, ...]
    choices: tuple[Choice, ...]
    refused: tuple[tuple[str, Witness], ...] = ()


def find_axes(function: Function, statements: tuple[Stmt, ...]) -> Grouping:
    """All the parallel axes of a group of statements, outermost first, and its body inside them."""
    invariant = frozenset(s.name for s in function.sizes) | {s.name for s in function.scalars if s.type == INT64}
    polyhedra = Polyhedra(function)
    axes: list[Axis] = []
    choices: list[Choice] = []
    body = statements
    refused: dict[str, Witness] = {}
    while True:
        choice, witnesses = _next_axis(function, polyhedra, body, tuple(axes), invariant)
        refused |= witnesses
        if choice is None:
            return Grouping(tuple(axes), body, tuple(choices), tuple(refused.items()))
        first = choice.first
        axes.append(Axis(first.var, first.start, first.stop, first.step))
        choices.append(choice)
        body = _strip(body, {loop.var for loop in choice.loops}, first.var)


def _next_axis(
    function: Function, polyhedra: Polyhedra, body: tuple[Stmt, ...], axes: tuple[Axis, ...], invariant: frozenset[str]
) -> tuple[Choice | None, dict[str, Witness]]:
    keys: list[Range] = []
    for stmt in walk(body):
        if isinstance(stmt, For):
            key = _range(stmt, invariant)
            if key is not None and key not in keys:
                keys.append(key)
    # an axis found already is a loop around everything that is left
    around = tuple(For(a.var, a.start, a.stop, a.step, (), ()) for a in axes)
    accesses = collect(body, around)
    refused: dict[str, Witness] = {}
    for key in keys:
        tried: list[list[str]] = []
        for skip in range(4):
            loops = _cover(body, key, skip, invariant)
            if not loops or [f.var for f in loops] in tried:
                break
            tried.append([f.var for f in loops])
            choice = Choice(tuple(loops))
            witness = conflict(function, polyhedra, accesses, choice, frozenset(a.var for a in axes))
            if witness is None:
                return choice, refused
            for loop in loops:
                refused.setdefault(loop.var, witness)
    return None, refused


def conflict(
    function: Function, polyhedra: Polyhedra, accesses: tuple[Access, ...], choice: Choice, shared: frozenset[str]
) -> Witness | None:
    """Two iterations with different values of the axis that touch one element, one of them writing it."""
    written = {a.array for a in accesses if a.write}
    by_array: dict[str, list[Access]] = {}
    for access in accesses:
        if access.array in written:
            by_array.setdefault(access.array, []).append(access)
    for name, group in by_array.items():
        within = frozenset(function.array(name).within)
        seen: set[tuple[object, ...]] = set()
        for i, a in enumerate(group):
            for b in group[i:]:
                if not (a.write or b.write):
                    continue
                key = (a.subscript, a.loops, a.guard, b.subscript, b.loops, b.guard)
                if None not in a.subscript and None not in b.subscript and key in seen:
                    continue
                seen.add(key)
                axis_a, axis_b = choice.of(a), choice.of(b)
                witness = polyhedra.crossing(a, b, axis_a, axis_b, choice.first, shared, within)
                if witness is not None:
                    return witness
    return None


def _strip(statements: tuple[Stmt, ...], chosen: set[str], var: str) -> tuple[Stmt, ...]:
    """The statements without the chosen loops; their variables become `var`."""
    out: list[Stmt] = []
    for stmt in statements:
        match stmt:
            case For() if stmt.var in chosen:
                names: dict[str, Expr] = {} if stmt.var == var else {stmt.var: Ref(var, INT64)}
                out += substitute_statements(stmt.body, names)
            case For():
                out.append(replace(stmt, body=_strip(stmt.body, chosen, var)))
            case If():
                then, orelse = _strip(stmt.then, chosen, var), _strip(stmt.orelse, chosen, var)
                out.append(replace(stmt, then=then, orelse=orelse))
            case _:
                out.append(stmt)
    return tuple(out)
