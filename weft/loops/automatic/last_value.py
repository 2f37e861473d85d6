"""Last values: of several iterations that write an element which none of them reads, only the last one need write it.

A store whose element a later iteration surely writes again, and that no iteration reads meanwhile, is of use only in the
iterations that have no such successor: the last ones of the loop, however many there are. Guarded so, it is no longer in the
way of running the iterations at once. What may be wrong with it stays in all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from weft.loops.accesses import Nested, collect, loops_in
from weft.loops.affine import Affine
from weft.loops.automatic.rewriting import Rewriting, replaced
from weft.loops.cells import Cell, subscript_of, written
from weft.loops.faults import Faults
from weft.loops.ir import (
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
    has_load,
    map_statement,
    rewrite,
    statement_exprs,
    walk,
    walk_expr,
)
from weft.loops.names import Names
from weft.loops.normalize import drop_unused, fold_names, simplify
from weft.loops.polyhedra import Polyhedra
from weft.loops.promote import Promoter, may_meet
from weft.loops.rounding import Rounding
from weft.loops.types import BOOL
from weft.loops.unused import dropped

# A later iteration is at most this many after the one that writes the element first.
_FARTHEST = 4


def last_values(function: Function, stuck: frozenset[str]) -> Iterator[Rewriting]:
    """The function with the stores of one of the loops `stuck` guarded: as it is, or where what is stored and loaded again
    is kept in scalars first.
    """
    variables = [s.var for s in walk(function.body) if isinstance(s, For) and s.var in stuck]
    promoted = _promoted(function)
    for whole in dict.fromkeys((function, promoted)):
        for var in variables:
            guarded = guard_stores(whole, (var,))
            if guarded is not None:
                yield Rewriting(guarded[0], {var: guarded[1]}, frees=frozenset({var}))


def guard_stores(
    function: Function, variables: tuple[str, ...], array: str | None = None
) -> tuple[Function, tuple[str, ...]] | None:
    """The function with the stores (to one array, or to any) that only the last iterations need guarded, in each of these
    loops in turn, and what was done; None where one of the loops has none.
    """
    arrays: dict[str, None] = {}
    for var in variables:
        nested = next((n for n in loops_in(function.body) if n.loop.var == var), None)
        ahead = {} if nested is None else _unneeded(function, nested, array)
        if nested is None or not ahead:
            return None
        stores = [s for s in walk((nested.loop,)) if isinstance(s, Store)]
        arrays |= dict.fromkeys(stores[k].array for k in ahead)
        faults = Faults(function)
        loop = _Guarding(nested, ahead, faults).loop
        function = faults.stored_in(replaced(function.body, var, lambda _, loop=loop: (loop,)))  # type: ignore[misc]
    return function, (f"last value: {' and '.join(arrays)} written by the last iterations only",)


def _unneeded(function: Function, nested: Nested, array: str | None) -> dict[int, int]:
    """The stores of a loop that a later iteration overwrites unread, by their number in its text, each with how many
    iterations later.
    """
    loop, polyhedra = nested.loop, Polyhedra(function)
    if has_load(loop.stop):
        return {}
    accesses = [a for a in collect((loop,), nested.loops, nested.guard) if any(f.var == loop.var for f in a.loops)]
    stores = [a for a in accesses if a.write]
    outer = frozenset(f.var for f in nested.loops)
    found: dict[int, int] = {}
    for number, store in enumerate(stores):
        if array not in (None, store.array):
            continue
        reads = [a for a in accesses if a.array == store.array and not a.write]
        # a read in another run of the loop finds what the last iterations have left
        read = any(polyhedra.precedes(store, a, apart=False, shared=outer) for a in reads)
        checked = store.array in function.checked  # the kernel sees where it goes
        if read or checked or function.array(store.array).within:
            continue
        writes = [a for a in stores if a.array == store.array]
        for steps in range(1, _FARTHEST + 1):
            if polyhedra.overwritten(store, writes, loop, steps):
                found[number] = steps
                break
    return found


class _Guarding:
    """A loop with some of its stores guarded, each by whether there is an iteration so many after it."""

    def __init__(self, nested: Nested, ahead: dict[int, int], faults: Faults) -> None:
        self.whole, self.ahead, self.faults, self.number = nested.loop, ahead, faults, -1
        around = tuple(f.var for f in (*nested.loops, nested.loop))
        self.loop = replace(nested.loop, body=self._block(nested.loop.body, around))

    def _block(self, body: tuple[Stmt, ...], loops: tuple[str, ...]) -> tuple[Stmt, ...]:
        return tuple(self._statement(s, loops) for s in body)

    def _statement(self, stmt: Stmt, loops: tuple[str, ...]) -> Stmt:
        if not isinstance(stmt, Store):
            inner = (*loops, stmt.var) if isinstance(stmt, For) else loops
            return map_statement(stmt, lambda e: e, lambda body: self._block(body, inner))
        self.number += 1
        if self.number not in self.ahead:
            return stmt
        loop = self.whole
        after = Affine(((loop.var, 1),), self.ahead[self.number] * loop.step).expr()
        last = Op("ge" if loop.step > 0 else "le", (after, loop.stop), BOOL)
        return If(simplify(last), (stmt,), self.faults.stores((*stmt.index, stmt.value), loops, stmt), (), stmt.location)


# ---------------------------------------------------------------- what is stored and loaded again


def _promoted(function: Function) -> Function:
    """The function with what a loop's earlier iterations stored, and what the iteration itself has, kept in scalars."""
    names = Names.of(function)
    promoter = Promoter(function, (), frozenset(), names)
    promoter.rounding = rounding = Rounding.of(function)
    body = _forwarded(promoter.recurrences(function.body, ()), names, rounding)
    kept = dropped(replace(function, body=body), (), names)
    return replace(kept, body=drop_unused(fold_names(kept.body, {}, kept.checked)))


def _forwarded(statements: tuple[Stmt, ...], names: Names, rounding: Rounding) -> tuple[Stmt, ...]:
    """Loads of what a statement before, in the same list, has stored take the value itself."""
    known: dict[Cell, Expr] = {}
    loaded = {e.array for s in walk(statements) for x in statement_exprs(s) for e in walk_expr(x) if isinstance(e, Load)}
    out: list[Stmt] = []

    def read(e: Expr) -> Expr:
        def rule(x: Expr) -> Expr | None:
            form = subscript_of(x.index) if isinstance(x, Load) else None
            return known.get(Cell(x.array, form)) if isinstance(x, Load) and form is not None else None

        return rewrite(e, rule)

    for stmt in statements:
        if isinstance(stmt, (Let, Store)):
            stmt = map_statement(stmt, read, lambda b: b)
        else:
            stmt = map_statement(stmt, lambda e: e, lambda b: _forwarded(b, names, rounding))
        form = subscript_of(stmt.index) if isinstance(stmt, Store) else None
        if isinstance(stmt, Store) and form is not None and stmt.array in loaded and not isinstance(stmt.value, (Ref, Const)):
            name = names.fresh(stmt.array)
            out.append(Let(name, stmt.value, stmt.location))
            rounding.meanings[name] = (stmt.value,)
            stmt = replace(stmt, value=Ref(name, stmt.value.type))
        for array in written((stmt,)):
            known = {c: v for c, v in known.items() if not may_meet(c, array, form)}
        if isinstance(stmt, Store) and form is not None:
            known[Cell(stmt.array, form)] = rounding.stored(stmt.array, stmt.value)
        out.append(stmt)
    return tuple(out)
