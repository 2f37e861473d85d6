"""What a value needs, to be computed elsewhere."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from weft.loops.accumulate.sites import Edit, Site, accumulate_into, in_full
from weft.loops.extents import expanded, expanded_index, extents
from weft.loops.ir import (
    Array,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Merge,
    Op,
    Ref,
    Round,
    Stmt,
    Store,
    bound_names,
    free_names,
    name_of,
    substitute,
    walk,
    walk_expr,
)
from weft.loops.memory import Memory
from weft.loops.names import Names
from weft.loops.simplify import base_name, number
from weft.loops.types import INT64, ScalarType


def bindings(stmt: Stmt) -> tuple[tuple[str, ScalarType], ...]:
    """Names that a statement binds for what follows it, with their types."""
    match stmt:
        case Let(name=name, value=value):
            return ((name, value.type),)
        case For(carries=carries):
            return tuple((c.result, c.type) for c in carries)
        case If(merges=merges):
            return tuple((m.name, m.type) for m in merges)
    return ()


class Closure:
    """The computation of a site's value, to be repeated where its loop variables have other names.

    depth: the steps of the path that stay around the new place. certain: the branches on the path that are always taken
    there. spills: what cannot be repeated, by the step in whose body it is bound.
    """

    def __init__(self, site: Site, depth: int, settled: Settled, certain: frozenset[int] = frozenset()) -> None:
        self.site, self.depth, self.certain = site, depth, certain
        self.blocks: list[list[Let]] = []
        self.spills: dict[str, int] = {}
        self.types: dict[str, ScalarType] = {}
        self.innermost = max((k for k, s in enumerate(site.path) if isinstance(s.stmt, For)), default=-1)
        needed = free_names(site.value)
        self.repeatable = settled(site.value)
        tainted = self._tainted(settled)
        for k in range(len(site.path) - 1, depth - 1, -1):
            step = site.path[k]
            lets: list[Let] = []
            for stmt in reversed(step.before):
                if isinstance(stmt, Let) and stmt.name in needed and stmt.name not in tainted[k]:
                    lets.append(stmt)
                    needed |= free_names(stmt.value)
                    continue
                for name, type_ in bindings(stmt):
                    if name in needed:
                        self._spill(name, type_, k)
            self.blocks.insert(0, lets[::-1])
            if isinstance(step.stmt, For):
                for c in step.stmt.carries:
                    if c.name in needed:
                        self._spill(c.name, c.type, k)
            else:
                needed |= free_names(step.stmt.condition)
                self.repeatable = self.repeatable and settled(step.stmt.condition)

    def _tainted(self, settled: Settled) -> list[set[str]]:
        """For each step of the path: the bindings of its body that are better saved than repeated.

        These are the results of loops and branches and, outside the innermost loop, all that is made from them; there, also
        what is computed of two elements alone and would be computed again for many, as the factor of a product of matrices,
        and what another site has saved.
        """
        below: set[str] = set()
        out: list[set[str]] = []
        factors = factors_of(self.site)
        for k, step in enumerate(self.site.path):
            if k < self.depth:
                out.append(set())
                continue
            if isinstance(step.stmt, For):
                below |= {c.name for c in step.stmt.carries}
            here: set[str] = set()
            for stmt in step.before:
                names = {n for n, _ in bindings(stmt)}
                cheap = isinstance(stmt, Let) and settled(stmt.value)
                made = isinstance(stmt, Let) and bool(free_names(stmt.value) & (below | here))
                saved = not names.isdisjoint(settled.saved) and self.site.value == Ref(*bindings(stmt)[0])
                if not cheap or saved or ((made or not names.isdisjoint(factors | settled.saved)) and k < self.innermost):
                    here |= names
            below |= here
            out.append(here)
        return out

    def _spill(self, name: str, type_: ScalarType, step: int) -> None:
        self.spills[name] = step
        self.types[name] = type_

    @property
    def whole(self) -> bool:
        """Whether the value itself must be spilled: it cannot be repeated, or needs as much memory as it is."""
        return not self.repeatable or any(k >= self.innermost for k in self.spills.values())

    @property
    def guarded(self) -> bool:
        """Whether the value is added under a condition only."""
        steps = range(self.depth, len(self.site.path))
        return any(isinstance(self.site.path[k].stmt, If) and k not in self.certain for k in steps)

    def repeat(
        self, known: dict[str, Expr], names: Names, use: Callable[[Expr], Stmt] | None = None
    ) -> tuple[list[Stmt], Expr]:
        """The statements and the value, with `known` in place of the names that the new place gives.

        use: what is done with the value; without it, the value is 0 where its conditions do not hold.
        """
        return self._from(0, dict(known), names, use)

    def _from(
        self, k: int, known: dict[str, Expr], names: Names, use: Callable[[Expr], Stmt] | None
    ) -> tuple[list[Stmt], Expr]:
        if k == len(self.blocks):
            value = substitute(self.site.value, known)
            return ([] if use is None else [use(value)]), value
        step = self.site.path[self.depth + k]
        lets: list[Stmt] = []
        condition = None
        if isinstance(step.stmt, If) and self.depth + k not in self.certain:
            condition = substitute(step.stmt.condition, known)
        for let in self.blocks[k]:
            name = names.fresh(let.name)
            lets.append(replace(let, name=name, value=substitute(let.value, known)))
            known[let.name] = Ref(name, let.value.type)
        below, value = self._from(k + 1, known, names, use)
        if condition is None:
            return [*lets, *below], value
        zero = number(0, value.type)
        name = names.fresh(f"{self.site.store.array}_part")
        merge = Merge(name, value, zero) if step.taken else Merge(name, zero, value)
        sides: tuple[tuple[Stmt, ...], tuple[Stmt, ...]] = ((*lets, *below), ())
        then, orelse = sides if step.taken else sides[::-1]
        return [If(condition, then, orelse, (merge,), self.site.store.location)], Ref(name, value.type)


def factors_of(site: Site) -> set[str]:
    """The names that are computed of a loop which sums and of one which does not, but not of all that do not."""
    loops = {f.var for f in site.loops}
    placed = loops & {n for i in site.store.index for n in free_names(in_full(site, i))}
    of: dict[str, set[str]] = {v: {v} for v in loops}
    computed: set[str] = set()
    for let in (s for step in site.path for s in step.before if isinstance(s, Let)):
        used = free_names(let.value)
        of[let.name] = {v for n in used for v in of.get(n, ())}
        if used & computed or any(isinstance(e, Op) for e in walk_expr(let.value)):
            computed.add(let.name)
    return {n for n in computed if of[n] - placed and of[n] & placed and placed - of[n]}


def _made_of(site: Site) -> list[Expr]:
    """A site's value, and those of the names that it is made of."""
    found, used = [site.value], set(free_names(site.value))
    for let in (s for step in reversed(site.path) for s in reversed(step.before) if isinstance(s, Let)):
        if let.name in used:
            found.append(let.value)
            used |= free_names(let.value)
    return found


def is_product(function: Function, site: Site) -> bool:
    """Whether what a site adds is a product of matrices with a factor that is saved alone: in loops of its own no point
    computes it again, and nothing is read that each point has for itself. Sums of what each point has are found where that
    is made.
    """
    if not factors_of(site) & {n for e in _made_of(site) for n in free_names(e)}:
        return False
    return not reads_of_each_point(site) and not Closure(site, 0, Settled(function)).whole


def reads_of_each_point(site: Site) -> bool:
    """Whether what a site adds is made of elements of which each of its iterations has one for itself."""
    loads = (x for e in _made_of(site) for x in walk_expr(e) if isinstance(x, Load))
    loops = {f.var for f in site.loops}
    return any({n for i in x.index for n in free_names(in_full(site, i))} >= loops for x in loads)


class Settled:
    """Whether an expression has the same value later in a function: it loads from inputs, and elements of other arrays
    that nothing stores to any more.
    """

    def __init__(self, function: Function) -> None:
        self._arrays = {a.name: a for a in function.arrays}
        self._memory = functools.cache(lambda: Memory.of(function))
        local = {a.name for a in function.arrays if a.role == "local" and a.fill is None}
        stores = (s for s in walk(function.body) if isinstance(s, Store) and s.array in local)
        self.saved = {s.value.name for s in stores if isinstance(s.value, Ref)}  # in memory, perhaps as they are
        self._known: dict[tuple[str, tuple[Expr, ...]], bool] = {}

    def __call__(self, expr: Expr) -> bool:
        return all(self._load(e) for e in walk_expr(expr) if isinstance(e, Load))

    def _load(self, load: Load) -> bool:
        array = self._arrays[load.array]
        if array.role == "input":
            return True
        if array.within:  # gone after the iteration that it belongs to
            return False
        key = load.array, load.index
        if key not in self._known:
            self._known[key] = self._memory().last(*key, write=False)
        return self._known[key]


def as_it_stands(function: Function, site: Site, settled: Settled, names: Names) -> tuple[Stmt, ...] | None:
    """A site in loops of its own, in the order that it has; None where what it adds cannot be computed anew."""
    closure, fixed = Closure(site, 0, settled), {s.name for s in function.sizes} | {s.name for s in function.scalars}
    bounds = {n for f in site.loops for e in (f.start, f.stop) for n in free_names(e)}
    if closure.spills or not closure.repeatable or not bounds <= fixed | {f.var for f in site.loops}:
        return None
    known: dict[str, Expr] = {f.var: Ref(names.fresh(f.var), INT64) for f in site.loops}
    index = tuple(substitute(in_full(site, i), known) for i in site.store.index)
    bound = {n for step in site.path for s in step.before for n, _ in bindings(s)}
    if any(free_names(i) & bound for i in index):
        return None
    body, _ = closure.repeat(known, names, lambda value: accumulate_into(site.store.array, index, value, site.store))
    for f in reversed(site.loops):
        start, stop = substitute(f.start, known), substitute(f.stop, known)
        body = [replace(f, var=name_of(known[f.var]), start=start, stop=stop, carries=(), body=tuple(body))]
    return tuple(body)


def repeated(
    function: Function,
    closure: Closure,
    by_name: bool,
    known: dict[str, Expr],
    names: Names,
    edit: Edit,
    arrays: list[Array],
    keeping: dict[tuple[Expr, tuple[Expr, ...]], str],
    use: Callable[[Expr], Stmt] | None,
    ordered: tuple[For, ...],
) -> tuple[list[Stmt], Expr] | None:
    """The value of a site computed anew, `known` naming its loop variables; what cannot be is saved in local arrays, summed
    over the loops `ordered`. by_name: the names that a value is made of rather than the value. keeping: what is saved already.
    """
    site = closure.site
    variables = [Ref(f.var, INT64) for f in site.loops]
    moved = [known.get(v.name, v) for v in variables]
    target = site.store.array
    if closure.whole and not by_name:
        apart = tuple(f for f in site.loops if f not in ordered)
        found = extents(function, apart)
        if found is None:
            return None
        if use is not None:
            return None
        guarded = any(isinstance(s.stmt, If) for s in site.path)
        fill = number(0, site.value.type) if guarded or ordered else None
        variables = [Ref(f.var, INT64) for f in apart]
        moved = [known.get(v.name, v) for v in variables]
        index = expanded_index(found, variables)
        same = keeping.get((site.value, index)) or _kept(function, site.value, index)
        if fill is None and same is not None:
            edit.instead[id(site.store)] = []
            return [], Load(same, expanded_index(found, moved), site.value.type)
        type_ = site.value.type if ordered else _memory_type(function, site.value)
        array = expanded(names.fresh(f"{target}_parts"), type_, found, fill)
        arrays.append(array)
        if fill is None:
            keeping[site.value, index] = array.name
        kept = Store(array.name, index, site.value, site.store.location)
        kept = accumulate_into(array.name, index, site.value, site.store) if ordered else kept
        edit.instead[id(site.store)] = [kept]
        return [], Load(array.name, expanded_index(found, moved), site.value.type)
    known = dict(known)
    for name, k in closure.spills.items():
        loops = tuple(s.stmt for s in site.path[: k + 1] if isinstance(s.stmt, For))
        found = extents(function, loops)
        if found is None:
            return None
        type_ = closure.types[name]
        index = expanded_index(found, variables[: len(loops)])
        if (same := keeping.get((Ref(name, type_), index)) or _kept(function, Ref(name, type_), index)) is not None:
            known[name] = Load(same, expanded_index(found, moved[: len(loops)]), type_)
            continue
        array = expanded(names.fresh(f"{base_name(name)}_saved"), _memory_type(function, Ref(name, type_)), found)
        arrays.append(array)
        keeping[Ref(name, type_), index] = array.name
        kept = Store(array.name, index, Ref(name, type_))
        step = site.path[k]
        binder = next((s for s in step.before if name in bound_names(s)), None)
        if binder is None:
            edit.start.setdefault(id(step.stmt), []).append(kept)
        else:
            edit.after.setdefault(id(binder), []).append(kept)
        known[name] = Load(array.name, expanded_index(found, moved[: len(loops)]), type_)
    edit.instead[id(site.store)] = []
    return closure.repeat(known, names, use)


def _memory_type(function: Function, value: Expr) -> ScalarType:
    """The type of an array that holds a value as it is: of what has been rounded, the type that it was rounded to."""
    if isinstance(value, Ref):
        lets = (s.value for s in walk(function.body) if isinstance(s, Let) and s.name == value.name)
        value = next(lets, value)
    return value.to if isinstance(value, Round) else value.type


def _kept(function: Function, value: Expr, index: tuple[Expr, ...]) -> str | None:
    """An array that holds this value of every iteration already, as it is."""
    type_ = _memory_type(function, value)
    made = {a.name for a in function.arrays if a.role == "local" and a.fill is None and a.dtype == type_}
    stored = [s.array for s in walk(function.body) if isinstance(s, Store)]

    def always(statements: Iterable[Stmt]) -> Iterator[Store]:
        for stmt in statements:
            if isinstance(stmt, For):
                yield from always(stmt.body)
            elif isinstance(stmt, Store):
                yield stmt

    own = (s.array for s in always(function.body) if (s.value, s.index) == (value, index) and s.array in made)
    return next((a for a in own if stored.count(a) == 1), None)
