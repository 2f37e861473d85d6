"""Joins apart: what a loop joins to elements that data choose gets a loop of its own.

`for e: for d: s += g[t[e], d] * x[c[e], d]; y[c[e], d] += ...` sums for each e, and joins to elements that other e join to as
well. A kernel of both would have to do all of it in order; of the joins alone, the points are sorted by their elements, and the
sums are folds of rows side by side. So where what is joined is made of memory that the loop does not store to, the joins come
after, in a loop that computes it again; what loops inside have found is left in memory for them. So does what an iteration
does more than once to elements of its own that data choose: the loops beside it are folds of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations

from weft.loops.accesses import collect
from weft.loops.accumulate import accumulation, summed_outside
from weft.loops.affine import affine, is_bound
from weft.loops.algebra.accumulation import accumulated
from weft.loops.automatic.rewriting import copied, keeps_array
from weft.loops.extents import expanded, expanded_index, extents
from weft.loops.ir import (
    Array,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Ref,
    Stmt,
    Store,
    bodies,
    bound_names,
    free_arrays,
    free_names,
    map_statement,
    statement_exprs,
    walk,
)
from weft.loops.names import Names
from weft.loops.polyhedra import Polyhedra
from weft.loops.types import INT64


def joins_apart(function: Function) -> Function:
    """The function whose loops join values to elements that data choose, or do something else, and not both."""
    names, body = Names.of(function), list[Stmt]()
    for stmt in function.body:
        if isinstance(stmt, For) and not keeps_array(function, stmt):
            parting = _Parting(function, stmt, names)
            body += parting.parts()
            function = replace(function, arrays=(*function.arrays, *parting.memory))
        else:
            body.append(stmt)
    return function if len(body) == len(function.body) else replace(function, body=tuple(body))


def sums_first(function: Function) -> Function:
    """The function whose loops add up what the iterations of the innermost one have for one element that data choose, and join
    the sum: its points are as many fewer.
    """
    names, body = Names.of(function), list[Stmt]()
    fixed = {s.name for s in function.sizes} | {s.name for s in function.scalars}
    for stmt in function.body:
        made: tuple[Stmt, ...] = (stmt,)
        known = fixed | {f.var for f in walk(made) if isinstance(f, For)}
        for array in {s.array: None for s in walk(made) if isinstance(s, Store) and not _told(s, known)}:
            if not isinstance(stmt, For) or keeps_array(function, stmt) or accumulated(function, stmt, array) != "sum":
                continue
            stored = [s for s in walk(made) if isinstance(s, Store) and s.array == array]
            if all(accumulation(s) is not None for s in stored):
                made = summed_outside(function, made, array, names)
        body += made
    return replace(function, body=tuple(body))


@dataclass
class _Parting:
    """A loop that is taken apart. memory: what holds the results of loops inside. saved: these, by the names of the results."""

    function: Function
    loop: For
    names: Names
    memory: list[Array] = field(default_factory=list)
    saved: dict[str, Load] = field(default_factory=dict)

    def parts(self) -> list[Stmt]:
        loop = self.loop
        stores = [s for s in walk((loop,)) if isinstance(s, Store)]
        arrays = dict.fromkeys(s.array for s in stores)
        self.around = dict(_around((loop,), ()))
        variables = {f.var for f in walk((loop,)) if isinstance(f, For)}
        known = variables | {s.name for s in self.function.sizes} | {s.name for s in self.function.scalars}
        chosen = [a for a in arrays if any(s.array == a and not _told(s, known) for s in stores)]
        carries = any(f.carries for f in walk((loop,)) if isinstance(f, For))
        if not chosen or not (len(stores) > 1 or carries):
            return [loop]
        several = [a for a in chosen if self.never_meet(a)]
        joined = [a for a in chosen if a in several or accumulated(self.function, loop, a) is not None]
        joined = [a for a in joined if self.repeatable(a, {*arrays})]
        changed = [a for a in chosen if carries and a not in joined and self.changed_alone(a) and self.repeatable(a, {*arrays})]
        if not joined and not changed:
            return [loop]
        parts: list[Stmt] = []
        if set(arrays) - {*joined, *changed} or carries:
            kept = self.saving((loop,))
            others = [s for s in walk(kept) if isinstance(s, Store) and s.array not in joined and s.array not in changed]
            parts += _with(kept, others, True)
        found = self.loading((loop,))
        apart = [[s] for s in walk(found) if isinstance(s, Store) and s.array in joined]
        apart += [[s for s in walk(found) if isinstance(s, Store) and s.array == a] for a in changed]
        for own_stores in apart:
            (own,) = _with(found, own_stores, False)
            assert isinstance(own, For)
            parts.append(replace(copied(own, self.names)[0], apart=True) if parts else own)
        return parts

    def changed_alone(self, array: str) -> bool:
        """Whether an array is stored to more than once, or read by its own stores, but at elements that no other iteration of
        the loop has to do with.
        """
        own = [a for a in collect((self.loop,)) if a.array == array]
        alone = all(any(i == Ref(self.loop.var, INT64) for i in a.index) for a in own)
        others = (s for s in walk((self.loop,)) if not (isinstance(s, Store) and s.array == array))
        return alone and len(own) > 1 and not any(array in free_arrays(e) for s in others for e in statement_exprs(s))

    def never_meet(self, array: str) -> bool:
        """Whether several stores to an array, which the loop does not read, are never of one element: of each the last counts,
        whatever the others do.
        """
        polyhedra, own = Polyhedra(self.function), [a for a in collect((self.loop,)) if a.array == array]
        if len(own) < 2 or not all(a.write for a in own):
            return False
        return not any(polyhedra.meet(a, b, frozenset()) for a, b in combinations(own, 2))

    def repeatable(self, array: str, stored: set[str]) -> bool:
        """Whether what is joined to an array can be computed after the loop: of memory that is not stored to, and of what loops
        inside have found.
        """
        lets = {s.name: s for s in walk((self.loop,)) if isinstance(s, Let)}
        carried = {c.name for f in walk((self.loop,)) if isinstance(f, For) for c in f.carries}
        pending, seen, found = [*_exprs((self.loop,), array)], set[str](), list[str]()
        while pending:
            e = pending.pop()
            if free_names(e) & carried or free_arrays(e) & (stored - {array}):
                return False
            for name in free_names(e) - seen:
                seen.add(name)
                if name in lets:
                    if array in free_arrays(lets[name].value):
                        return False
                    pending.append(lets[name].value)
                elif name in self.around:
                    found.append(name)
        return all(self.save(name) for name in found)

    def save(self, name: str) -> bool:
        """Have the result of a loop or branch inside held in memory; whether it is known how much of that there is."""
        if name in self.saved:
            return True
        loops, type_ = self.around[name], next(e.type for e in _results((self.loop,)) if e.name == name)
        fixed = {s.name for s in self.function.sizes} | {s.name for s in self.function.scalars} | {f.var for f in loops}
        if not loops or not all(is_bound(e, fixed) for f in loops for e in (f.start, f.stop)):
            return False  # ranges that data decide would have memory for the longest of them each
        found = extents(self.function, loops)
        if found is None:
            return False
        self.memory.append(expanded(self.names.fresh(f"{name}_saved"), type_, found))
        index = expanded_index(found, [Ref(f.var, INT64) for f in loops])
        self.saved[name] = Load(self.memory[-1].name, index, type_)
        return True

    def saving(self, statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """The statements with stores of what is saved."""
        out: list[Stmt] = []
        for stmt in statements:
            out.append(map_statement(stmt, lambda e: e, self.saving))
            for name in bound_names(stmt):
                if name in self.saved and not isinstance(stmt, Let):
                    place = self.saved[name]
                    out.append(Store(place.array, place.index, Ref(name, place.type), stmt.location))
        return tuple(out)

    def loading(self, statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """The statements with what is saved loaded, where it was found."""
        out: list[Stmt] = []
        for stmt in statements:
            names = [n for n in bound_names(stmt) if n in self.saved and not isinstance(stmt, Let)]
            made = map_statement(stmt, lambda e: e, self.loading)
            if isinstance(made, For):
                made = replace(made, carries=tuple(c for c in made.carries if c.result not in names))
            elif isinstance(made, If):
                made = replace(made, merges=tuple(m for m in made.merges if m.name not in names))
            out += [made, *(Let(n, self.saved[n], stmt.location) for n in names)]
        return tuple(out)


def _around(statements: tuple[Stmt, ...], loops: tuple[For, ...]) -> list[tuple[str, tuple[For, ...]]]:
    """The results of loops and branches, with the loops around them."""
    found = []
    for stmt in statements:
        if isinstance(stmt, For | If):
            found += [(name, loops) for name in bound_names(stmt)]
            inner = (*loops, stmt) if isinstance(stmt, For) else loops
            for body in bodies(stmt):
                found += _around(body, inner)
    return found


def _results(statements: tuple[Stmt, ...]) -> list[Ref]:
    found = []
    for stmt in walk(statements):
        if isinstance(stmt, For):
            found += [Ref(c.result, c.type) for c in stmt.carries]
        elif isinstance(stmt, If):
            found += [Ref(m.name, m.type) for m in stmt.merges]
    return found


def _told(store: Store, known: set[str]) -> bool:
    """Whether sizes and loops tell the element."""
    return all((f := affine(i)) is not None and f.names <= known for i in store.index)


def _exprs(statements: tuple[Stmt, ...], array: str) -> list[Expr]:
    """What the stores to an array are made of, and the loops and conditions around them."""
    found: list[Expr] = []
    for stmt in statements:
        if isinstance(stmt, Store) and stmt.array == array:
            found += [*stmt.index, stmt.value]
        inner = [e for body in bodies(stmt) for e in _exprs(body, array)]
        if inner:
            found += [*inner, *((stmt.start, stmt.stop) if isinstance(stmt, For) else statement_exprs(stmt)[:1])]
    return found


def _with(statements: tuple[Stmt, ...], stores: list[Store], carries: bool) -> tuple[Stmt, ...]:
    """The statements with these of their stores alone, and what they need. carries: with what loops carry."""
    kept = _pruned(statements, {id(s) for s in stores}, carries)
    while True:
        used = {n for s in walk(kept) for e in statement_exprs(s) for n in free_names(e)}
        left = _used(kept, used)
        if left == kept:
            return kept
        kept = left


def _pruned(statements: tuple[Stmt, ...], stores: set[int], carries: bool) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for stmt in statements:
        if isinstance(stmt, Store) and id(stmt) not in stores:
            continue
        made = map_statement(stmt, lambda e: e, lambda b: _pruned(b, stores, carries))
        if not carries and isinstance(made, For):
            made = replace(made, carries=())
        elif not carries and isinstance(made, If):
            made = replace(made, merges=())
        out.append(made)
    return tuple(out)


def _used(statements: tuple[Stmt, ...], used: set[str]) -> tuple[Stmt, ...]:
    """The statements without names that nothing uses, and without loops and branches that do nothing."""
    out: list[Stmt] = []
    for stmt in statements:
        made = map_statement(stmt, lambda e: e, lambda b: _used(b, used))
        match made:
            case Let(name=name) if name not in used:
                continue
            case For() if not made.body and not made.carries:
                continue
            case If() if not made.then and not made.orelse and not made.merges:
                continue
        out.append(made)
    return tuple(out)
