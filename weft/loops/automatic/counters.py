"""Counters by key: what a loop reads of elements that data choose, and adds to.

`for t: place[t] = count[e[t]]; count[e[t]] += 1` must know in each iteration what those before it have counted for its key. The
iterations are cut into runs. What each run adds to each element is found first, for all runs at once; then each element adds up
its runs, which is a scan; and then the runs count once more, side by side, each with elements of its own, which begin as those
before it have left them, and save what the loop reads. After that it only reads what is saved. A run is as long as there are
elements, so that all of theirs take as much memory as a value of each iteration. Sums of integers are the same in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

from weft.loops.affine import is_bound
from weft.loops.automatic.rewriting import Rewriting, copied, keeps_array
from weft.loops.extents import expanded, expanded_index, extents
from weft.loops.ir import (
    ONE,
    ZERO,
    Array,
    Carry,
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Op,
    Ref,
    Scalar,
    Stmt,
    Store,
    bodies,
    certain_in,
    free_arrays,
    free_names,
    loaded_arrays,
    map_statement,
    rewrite,
    statement_exprs,
    substitute,
    substitute_statements,
    walk,
    walk_expr,
)
from weft.loops.names import Names
from weft.loops.types import BOOL, INT64

# Iterations of a run, at the least; what counts runs.
_FEWEST, _RUN = 32, "run"


def counters(function: Function, stuck: frozenset[str]) -> Iterator[Rewriting]:
    """The function with the iterations of a loop of `stuck` in runs, where an array of integers is only added to."""
    for position, top in enumerate(function.body):
        if not isinstance(top, For) or keeps_array(function, top):
            continue
        path = _path(top, stuck)
        if path is None:
            continue
        for array in dict.fromkeys(s.array for s in walk(path[-1].body) if isinstance(s, Store)):
            made = _Counter(function, position, path, array).made()
            if made is not None:
                yield made


def _path(top: For, stuck: frozenset[str]) -> tuple[For, ...] | None:
    """The loops down to the one of `stuck`, with nothing beside them; None where there is no such."""
    path = [top]
    while path[-1].var not in stuck:
        loop = path[-1]
        if loop.carries or len(loop.body) != 1 or not isinstance(loop.body[0], For):
            return None
        path.append(loop.body[0])
    return tuple(path) if not path[-1].carries and path[-1].step == 1 else None


class _Counter:
    """An array that the last loop of a path adds to and reads."""

    def __init__(self, function: Function, position: int, path: tuple[For, ...], array: str) -> None:
        self.function, self.position, self.path, self.array = function, position, path, function.array(array)
        self.names = Names.of(function)
        self.known = {s.name for s in function.sizes} | {s.name for s in function.scalars}
        self.saved: list[Array] = []
        self.loop = path[-1]

    def made(self) -> Rewriting | None:
        array, loop, outer = self.array, self.loop, {f.var for f in self.path[:-1]}
        around = all(is_bound(e, self.known | outer) for f in self.path for e in (f.start, f.stop))
        if not around or array.dtype.category != "int" or not free_names(loop.start) | free_names(loop.stop) <= self.known:
            return None
        body = self._with_names(loop.body)
        found = None if body is None else self._added(body)
        if body is None or found is None:
            return None
        store, added = found
        keys = [k for k, i in enumerate(store.index) if not (isinstance(i, Ref) and i.name in outer)]
        told = self._told(body, self.path)
        if not keys or told is None or not self.saved:
            return None
        count = replace(store, value=Op("add", (Load(store.array, store.index, array.dtype), added), store.value.type))
        length, run, runs = (Ref(self.names.fresh(n), INT64) for n in (f"{loop.var}_length", "run_length", "runs"))
        elements = reduce(lambda a, b: Op("mul", (a, b), INT64), (array.shape[k] for k in keys))
        scalars = (
            Scalar(length.name, INT64, loop.stop if loop.start == ZERO else Op("sub", (loop.stop, loop.start), INT64)),
            Scalar(run.name, INT64, Op("max", (Const(_FEWEST, INT64), elements), INT64)),
            Scalar(runs.name, INT64, Op("floordiv", (Op("add", (length, Op("sub", (run, ONE), INT64)), INT64), run), INT64)),
        )
        shape, zero = (*array.shape, runs), Const(0, array.dtype)
        name, called = self.names.fresh(f"{array.name}_of_runs"), array.called or array.name
        parts = Array(name, array.dtype, shape, "local", zero, location=array.location, called=called)
        (saving, after), kept = told, {a.name for a in self.saved}
        adding, telling = (_storing(s, names, count) for s, names in ((body, set[str]()), (saving, kept)))
        counted, _ = copied(self._in_runs(runs, run, length, parts, adding), self.names)
        in_order, origin = copied(self._in_runs(runs, run, length, parts, telling), self.names)
        last = replace(loop, body=after)
        # what is stored to elements that data choose, and not read, is in any order but for the last of each
        if not {x.array for x in walk(after) if isinstance(x, Store)} & loaded_arrays(after):
            fresh = self.names.fresh(loop.var)
            last = replace(loop, var=fresh, body=substitute_statements(after, {loop.var: Ref(fresh, INT64)}))
        for f in reversed(self.path[:-1]):
            last = replace(f, body=(last,))
        made = replace(
            self.function,
            scalars=(*self.function.scalars, *scalars),
            arrays=(*self.function.arrays, parts, *self.saved),
            body=(
                *self.function.body[: self.position], counted, self._before(parts, runs), in_order, last,
                *self.function.body[self.position + 1 :],
            ),
        )  # fmt: skip
        reason = f"counters: what runs of {loop.var} add to each element of {called} is added up first"
        number = next(new for new, old in origin.items() if old == _RUN)
        return Rewriting(made, {loop.var: (reason,)}, frees=frozenset({loop.var}), origin={number: loop.var})

    def _with_names(self, statements: tuple[Stmt, ...]) -> tuple[Stmt, ...] | None:
        """The statements with a name for each element of the array that they read, beside the one that they store; None where
        one may not be read.
        """
        out: list[Stmt] = []
        for s in statements:
            own = {e for x in statement_exprs(s) for e in walk_expr(x) if isinstance(e, Load) and e.array == self.array.name}
            if isinstance(s, Store) and s.array == self.array.name:
                own = set()
            if own and not (isinstance(s, Let) and s.value in own):
                certain = {e for x in statement_exprs(s) for e in certain_in(x)}
                if not isinstance(s, Let | Store) or not own <= certain:
                    return None
                named = {e: Ref(self.names.fresh(f"{self.array.name}_there"), e.type) for e in sorted(own, key=repr)}
                out += [Let(ref.name, e, self.loop.location) for e, ref in named.items()]
                s = map_statement(s, lambda e, named=named: rewrite(e, named.get), lambda b: b)  # type: ignore[misc]
            below = [self._with_names(b) for b in bodies(s)]
            if any(b is None for b in below):
                return None
            inside = iter(below)
            out.append(map_statement(s, lambda e: e, lambda b, inside=inside: next(inside) or ()))  # type: ignore[misc]
        return tuple(out)

    def _added(self, body: tuple[Stmt, ...]) -> tuple[Store, Expr] | None:
        """The one store to the array, and what it adds; None where anything else is done with it than to read its element, or
        where that decides whether, where, and what is added.
        """
        stores = [s for s in walk(body) if isinstance(s, Store) and s.array == self.array.name]
        if len(stores) != 1:
            return None
        (store,) = stores
        lets = {s.name: s.value for s in walk(body) if isinstance(s, Let)}
        stored = {s.array for s in walk(body) if isinstance(s, Store)}
        steady = {n: v for n, v in lets.items() if not free_arrays(v) & stored}
        cell = _told(Load(store.array, store.index, store.value.type), steady)
        reads = [e for s in walk(body) for x in statement_exprs(s) for e in walk_expr(x) if isinstance(e, Load)]
        if any(_told(e, steady) != cell for e in reads if e.array == store.array):
            return None
        cells = {n: cell for n, v in lets.items() if _told(v, steady) == cell}
        match _told(substitute(store.value, cells), steady):
            case Op(name="add", args=(a, b)) if cell in (a, b) and a != b:
                added = b if a == cell else a
            case _:
                return None
        plain = self.known | {f.var for f in self.path}
        plain |= {f.var for f in walk(body) if isinstance(f, For) and not f.carries and is_bound(f.stop, plain)}
        pending, seen = [added, *store.index, *_conditions(body, store)], set[str]()
        while pending:
            e = pending.pop()
            if free_arrays(e) & stored:
                return None
            pending += [lets[n] for n in free_names(e) - seen if n in lets]
            if not free_names(e) <= plain | lets.keys():
                return None
            seen |= free_names(e)
        return store, added

    def _told(self, statements: tuple[Stmt, ...], loops: tuple[For, ...]) -> tuple[tuple[Stmt, ...], tuple[Stmt, ...]] | None:
        """The statements with what they read of the array saved, and as they are after that; None where there is no telling how
        often they do.
        """
        saving: list[Stmt] = []
        after: list[Stmt] = []
        for s in statements:
            if isinstance(s, Let) and isinstance(s.value, Load) and s.value.array == self.array.name:
                fixed = self.known | {f.var for f in loops}
                plain = all(is_bound(e, fixed) for f in loops for e in (f.start, f.stop))
                found = extents(self.function, loops) if plain else None
                if found is None:
                    return None
                array = expanded(self.names.fresh(f"{s.name}_saved"), self.array.dtype, found)
                self.saved.append(array)
                index = expanded_index(found, [Ref(f.var, INT64) for f in loops])
                saving += [s, Store(array.name, index, Ref(s.name, s.value.type), s.location)]
                after.append(replace(s, value=Load(array.name, index, s.value.type)))
                continue
            saving.append(s)
            if isinstance(s, Store) and s.array == self.array.name:
                continue
            below = [self._told(b, (*loops, s) if isinstance(s, For) else loops) for b in bodies(s)]
            if any(b is None for b in below):
                return None
            if below:
                first, second = (iter([b[k] for b in below if b is not None]) for k in (0, 1))
                saving[-1] = map_statement(s, lambda e: e, lambda b, first=first: next(first))  # type: ignore[misc]
                s = map_statement(s, lambda e: e, lambda b, second=second: next(second))  # type: ignore[misc]
            after.append(s)
        return tuple(saving), tuple(after)

    def _in_runs(self, runs: Ref, run: Ref, length: Ref, parts: Array, body: tuple[Stmt, ...]) -> For:
        """The loops with runs side by side, each of which has elements of its own."""
        loop, here, at = self.loop, Ref(_RUN, INT64), Ref(self.names.fresh(self.loop.var), INT64)
        place: Expr = Op("add", (Op("mul", (here, run), INT64), at), INT64)
        of_loop = place if loop.start == ZERO else Op("add", (loop.start, place), INT64)
        own = _of_run(substitute_statements(body, {loop.var: of_loop}), self.array.name, parts.name, here)
        inside = If(Op("lt", (place, length), BOOL), own, (), (), loop.location)
        made = replace(loop, var=at.name, start=ZERO, stop=run, body=(inside,))
        made = replace(loop, var=_RUN, start=ZERO, stop=runs, body=(made,))
        for f in reversed(self.path[:-1]):
            made = replace(f, body=(made,))
        return made

    def _before(self, parts: Array, runs: Ref) -> Stmt:
        """Loops over all elements that put what there is before each run in the place of what it adds, and what there is after
        all of them in the array.
        """
        array, location = self.array, self.loop.location
        index = tuple(Ref(self.names.fresh("key"), INT64) for _ in array.shape)
        number = Ref(self.names.fresh(_RUN), INT64)
        so_far, whole = (Ref(self.names.fresh(f"{array.name}_{n}"), array.dtype) for n in ("before", "after"))
        added = Ref(self.names.fresh(f"{array.name}_added"), array.dtype)
        body = (
            Let(added.name, Load(parts.name, (*index, number), array.dtype), location),
            Store(parts.name, (*index, number), so_far, location),
        )
        total = Op("add", (so_far, added), array.dtype)
        carry = Carry(so_far.name, Load(array.name, index, array.dtype), total, whole.name)
        made: Stmt = For(number.name, ZERO, runs, 1, (carry,), body, location=location)
        statements: tuple[Stmt, ...] = (made, Store(array.name, index, whole, location))
        for i, extent in reversed(list(zip(index, array.shape, strict=True))):
            statements = (For(i.name, ZERO, extent, 1, (), statements, location=location),)
        return statements[0]


def _told(e: Expr, names: dict[str, Expr]) -> Expr:
    """The expression without these names."""
    while own := free_names(e) & names.keys():
        e = substitute(e, {n: names[n] for n in own})
    return e


def _conditions(statements: tuple[Stmt, ...], store: Store) -> list[Expr]:
    """What decides whether the store is reached, and how often."""
    for s in statements:
        if any(x is store for b in bodies(s) for x in walk(b)):
            own = [s.condition] if isinstance(s, If) else [s.start, s.stop] if isinstance(s, For) else []
            return [*own, *_conditions(tuple(x for b in bodies(s) for x in b), store)]
    return []


def _storing(statements: tuple[Stmt, ...], arrays: set[str], count: Store) -> tuple[Stmt, ...]:
    """The statements that store to some arrays, and to the one of `count`, which they do as it does; and what they need."""

    def kept(statements: tuple[Stmt, ...], needed: set[str]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for s in reversed(statements):
            if isinstance(s, Store) and s.array == count.array:
                s = count
            elif bodies(s):
                inside = iter([kept(b, needed) for b in bodies(s)])
                s = map_statement(s, lambda e: e, lambda b, inside=inside: next(inside))  # type: ignore[misc]
                s = replace(s, merges=()) if isinstance(s, If) else s
            wanted = isinstance(s, Let) and s.name in needed or isinstance(s, Store) and s.array in {*arrays, count.array}
            if wanted or any(b for b in bodies(s)):
                out.append(s)
                needed |= {n for e in statement_exprs(s) for n in free_names(e)}
        return tuple(reversed(out))

    return kept(statements, set())


def _of_run(statements: tuple[Stmt, ...], array: str, parts: str, number: Expr) -> tuple[Stmt, ...]:
    """The statements with the elements of a run in place of those of the array."""

    def load(e: Expr) -> Expr | None:
        return replace(e, array=parts, index=(*e.index, number)) if isinstance(e, Load) and e.array == array else None

    def moved(s: Stmt) -> Stmt:
        s = map_statement(s, lambda e: rewrite(e, load), lambda body: tuple(map(moved, body)))
        return replace(s, array=parts, index=(*s.index, number)) if isinstance(s, Store) and s.array == array else s

    return tuple(map(moved, statements))
