"""Accumulations into arrays, `array[index] += value`, turned into sums over scalars that run in parallel.

An adjoint hands every derivative on to the element that it is of, in whatever order the loops of the function have.
Here the loops are put in the order of the elements: sums are carried out of the loops that an index does not name, sites
become nests of their own that gather what an element gets, and the first to reach an element stores.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from weft.loops.accesses import counted_from_end
from weft.loops.affine import Affine, affine
from weft.loops.conditions import comparisons, constraints
from weft.loops.digits import Digits, Place, digits, places, replaced
from weft.loops.extents import Extent, expanded, expanded_index, extents
from weft.loops.ir import (
    Array,
    Carry,
    Cast,
    Const,
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
    Scalar,
    Stmt,
    Store,
    bodies,
    bound_names,
    free_arrays,
    free_names,
    map_statement,
    operands,
    substitute,
    substitute_statements,
    walk,
    walk_expr,
    with_operands,
)
from weft.loops.memory import Memory
from weft.loops.names import Names
from weft.loops.polynomials import Polynomial, difference, no_less, polynomial
from weft.loops.preimages import course, first_reaching
from weft.loops.simplify import add, base_name, bound_inside, fold, neg, number
from weft.loops.types import BOOL, INT64, ScalarType

_ZERO = Const(0, INT64)


def accumulation(stmt: Store, alone: bool = True) -> Expr | None:
    """v where the statement is `array[index] += v`. alone: v may not load from the array itself."""
    own = Load(stmt.array, stmt.index, stmt.value.type)
    match stmt.value:
        case Op(name="add", args=(a, b)):
            if own in (a, b):
                v = b if a == own else a
                return None if alone and _loads(v, stmt.array) else v
        case Op(name="sub", args=(a, b)) if a == own and not (alone and _loads(b, stmt.array)):
            return neg(b)
    return None


def accumulate_into(array: str, index: tuple[Expr, ...], value: Expr, like: Store | None = None) -> Store:
    own = Load(array, index, value.type)
    return Store(array, index, Op("add", (own, value), value.type), like.location if like else None)


def _loads(expr: Expr, array: str) -> bool:
    return array in free_arrays(expr)


@dataclass(frozen=True)
class _Step:
    """A loop or branch on the way to a statement, and where in its body the next step is."""

    stmt: For | If
    taken: bool
    body: tuple[Stmt, ...]
    at: int

    @property
    def before(self) -> tuple[Stmt, ...]:
        """What stands before the next step."""
        return self.body[: self.at]


@dataclass(frozen=True)
class Site:
    """One accumulation: its statement, the value it adds, the way to it from the function's body."""

    store: Store
    value: Expr
    path: tuple[_Step, ...]

    @property
    def loops(self) -> tuple[For, ...]:
        return tuple(s.stmt for s in self.path if isinstance(s.stmt, For))


def sites_of(statements: tuple[Stmt, ...], array: str, path: tuple[_Step, ...] = ()) -> Iterator[Site]:
    for stmt in statements:
        match stmt:
            case Store() if stmt.array == array:
                value = accumulation(stmt)
                assert value is not None, f"{array} is more than accumulated into"
                yield Site(stmt, value, path)
            case For() | If():
                for n, body in enumerate(bodies(stmt)):
                    for j, inner in enumerate(body):
                        yield from sites_of((inner,), array, (*path, _Step(stmt, n == 0, body, j)))


@dataclass
class Edit:
    """Changes to statements, found by identity: replaced, followed by others, or begun (loops) by others."""

    instead: dict[int, list[Stmt]] = field(default_factory=dict)
    after: dict[int, list[Stmt]] = field(default_factory=dict)
    start: dict[int, list[Stmt]] = field(default_factory=dict)

    def apply(self, statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for stmt in statements:
            mark = id(stmt)
            if mark in self.instead:
                out += self.instead[mark]
            elif isinstance(stmt, For):
                out.append(replace(stmt, body=(*self.start.get(mark, ()), *self.apply(stmt.body))))
            elif isinstance(stmt, If):
                out.append(replace(stmt, then=self.apply(stmt.then), orelse=self.apply(stmt.orelse)))
            else:
                out.append(stmt)
            out += self.after.get(mark, ())
        return tuple(out)


def accumulate(function: Function, targets: tuple[str, ...], names: Names) -> Function:
    """Give the accumulations into the arrays `targets` a form that runs in parallel.

    targets: arrays filled with 0 that the function touches by `array[index] += value` alone. Where an element gets
    many values, they become a sum carried by a loop of its own; where it gets one, a plain store. What cannot be
    brought into either form stays as it is.
    """
    for target in targets:
        steady = Steady(function, names)
        function = steady.named(function)
        function = replace(function, body=_hoist(function, function.body, target, (), names))
        function = steady.written_out(_gather(function, target, names))
        function = _spread(function, target, names)
        function = _merge(function, target, names)
        function = store_once(function, target)
    return function


class Steady:
    """Names for what is the same in all iterations and no sum of names, as `width // 2`: subscripts and bounds that are sums
    of it and of variables are affine in those names. What the program itself names so is a number of the call meanwhile.
    """

    def __init__(self, function: Function, names: Names) -> None:
        self.names, self.made = names, dict[Expr, Ref]()
        self.fixed = {s.name for s in function.sizes} | {s.name for s in function.scalars}
        self.lets: list[Let] = []
        for s in function.body:
            if isinstance(s, Let) and s.value.type == INT64 and free_names(s.value) <= self.fixed and not free_arrays(s.value):
                self.lets.append(s)
                self.fixed.add(s.name)

    def named(self, function: Function) -> Function:
        arrays = tuple(replace(a, shape=tuple(map(self._name, a.shape))) for a in function.arrays)
        body = _mapped(tuple(s for s in function.body if s not in self.lets), self._name)
        own = (*((s.name, s.value) for s in self.lets), *((ref.name, e) for e, ref in self.made.items()))
        scalars = (*function.scalars, *(Scalar(name, INT64, e) for name, e in own))
        return replace(function, arrays=arrays, body=body, scalars=scalars)

    def written_out(self, function: Function) -> Function:
        arrays = tuple(replace(a, shape=tuple(map(self.in_full, a.shape))) for a in function.arrays)
        known: dict[str, Expr] = {ref.name: e for e, ref in self.made.items()}
        own = known.keys() | {s.name for s in self.lets}
        scalars = tuple(s for s in function.scalars if s.name not in own)
        body = (*self.lets, *substitute_statements(function.body, known))
        return replace(function, arrays=arrays, body=body, scalars=scalars)

    def in_full(self, e: Expr) -> Expr:
        """An expression of sizes and numbers of a call alone."""
        known: dict[str, Expr] = {ref.name: e for e, ref in self.made.items()} | {s.name: s.value for s in self.lets}
        while names := free_names(e) & known.keys():
            e = substitute(e, {n: known[n] for n in names})
        return e

    def _name(self, e: Expr, term: bool = False) -> Expr:
        """term: it is one of a sum, in which a product is a number like others; by itself it may be told by its factors."""
        no_sum = isinstance(e, Op) and e.type == INT64 and e.name in ("floordiv", "mod", "min", "max")
        no_sum = no_sum or (term and isinstance(e, Op) and e.name == "mul" and all(map(free_names, e.args)))
        if no_sum and free_names(e) and free_names(e) <= self.fixed and not free_arrays(e):
            return self.made.setdefault(e, Ref(self.names.fresh("steady"), INT64))
        terms = isinstance(e, Op) and e.name in ("add", "sub")
        below = operands(e)
        return with_operands(e, tuple(self._name(o, terms) for o in below)) if below else e


# ---- sums carried out of the loops that an index does not name


def _plain(index: tuple[Expr, ...]) -> set[str]:
    return {i.name for i in index if isinstance(i, Ref)}


def surely_inside(function: Function, array: str, index: tuple[Expr, ...], loops: Collection[For]) -> bool:
    """Whether the index is inside the array for all iterations of these loops, as their bounds alone show."""
    return all(in_range(i, extent, loops) for i, extent in zip(index, function.array(array).shape, strict=True))


def in_range(i: Expr, extent: Expr, loops: Collection[For]) -> bool:
    """Whether a subscript is the variable of a loop that an axis of this extent has all points of."""
    loop = next((f for f in loops if isinstance(i, Ref) and f.var == i.name), None)
    found = None if loop is None else ascending(loop)
    return found is not None and not found[0].terms and found[0].constant >= 0 and found[1] == affine(extent)


def summed_outside(function: Function, statements: tuple[Stmt, ...], target: str, names: Names) -> tuple[Stmt, ...]:
    """The statements, which do nothing with the array `target` but `array[index] += value`, with sums that are carried out of
    the loops that an index does not name.
    """
    return _hoist(function, statements, target, (), names)


def _hoist(
    function: Function, statements: tuple[Stmt, ...], target: str, around: tuple[For, ...], names: Names
) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for stmt in statements:
        match stmt:
            case For():
                stmt = replace(stmt, body=_hoist(function, stmt.body, target, (*around, stmt), names))
                pieces: list[Stmt] = []
                while True:
                    found = _hoist_one(function, stmt, target, around, names)
                    if found is None:
                        break
                    stmt, after = found
                    pieces.append(after)
                out += [stmt, *pieces]
            case If():
                then = _hoist(function, stmt.then, target, around, names)
                out.append(replace(stmt, then=then, orelse=_hoist(function, stmt.orelse, target, around, names)))
            case _:
                out.append(stmt)
    return tuple(out)


def _hoist_one(
    function: Function, loop: For, target: str, around: tuple[For, ...], names: Names
) -> tuple[For, Stmt] | None:
    bound = bound_inside(loop)
    nested = any(isinstance(s, For) for s in walk(loop.body))
    stored = {s.array for s in walk(loop.body) if isinstance(s, Store)}
    for site in sites_of(loop.body, target):
        index = tuple(in_full(site, i, loop.body) if free_names(i) & bound else i for i in site.store.index)
        if site.loops or any(free_names(i) & bound or free_arrays(i) & stored for i in index):
            continue
        if nested and not _sums(loop) and not (around and all(f.var in _plain(index) for f in around)):
            continue
        inside = surely_inside(function, target, index, around)
        if site.path and not inside:
            continue
        type_ = site.value.type
        total, result = Ref(names.fresh(f"{target}_sum"), type_), Ref(names.fresh(f"{target}_sum"), type_)
        body, end = _thread(loop.body, site, total, names)
        carry = Carry(total.name, number(0, type_), end, result.name)
        after: Stmt = accumulate_into(target, index, result, site.store)
        if not inside:
            after = If(_runs(loop), (after,), (), (), site.store.location)
        return replace(loop, carries=(*loop.carries, carry), body=body), after
    return None


def _sums(loop: For) -> bool:
    """Whether a loop carries sums, and nothing else."""
    nexts = ((Ref(c.name, c.type), c.next) for c in loop.carries)
    return bool(loop.carries) and all(isinstance(e, Op) and e.name == "add" and own in e.args for own, e in nexts)


def _runs(loop: For) -> Expr:
    """Whether a loop has an iteration."""
    bounds = ascending(loop)
    if bounds is not None:
        return Op("lt", (bounds[0].expr(), bounds[1].expr()), BOOL)
    return Op("lt", (loop.start, loop.stop) if loop.step > 0 else (loop.stop, loop.start), BOOL)


def _thread(statements: tuple[Stmt, ...], site: Site, total: Expr, names: Names) -> tuple[tuple[Stmt, ...], Expr]:
    """The statements without the site's store, and the total with its value added."""
    out: list[Stmt] = []
    end = total
    for stmt in statements:
        if stmt is site.store:
            end = add(total, site.value)
        elif isinstance(stmt, If) and any(s.stmt is stmt for s in site.path):
            then, after_then = _thread(stmt.then, site, total, names)
            orelse, after_else = _thread(stmt.orelse, site, total, names)
            merge = Merge(names.fresh(f"{site.store.array}_sum"), after_then, after_else)
            out.append(replace(stmt, then=then, orelse=orelse, merges=(*stmt.merges, merge)))
            end = Ref(merge.name, merge.type)
        else:
            out.append(stmt)
    return tuple(out), end


# ---- what a value needs, to be computed elsewhere


def ascending(loop: For) -> tuple[Affine, Affine, int] | None:
    """The same iterations as range(start, stop, step) with step > 0."""
    start, stop = affine(loop.start), affine(loop.stop)
    if start is None or stop is None:
        return None
    if loop.step > 0:
        return start, stop, loop.step
    return (stop + Affine((), 1), start + Affine((), 1), 1) if loop.step == -1 else None


def _bindings(stmt: Stmt) -> tuple[tuple[str, ScalarType], ...]:
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
                for name, type_ in _bindings(stmt):
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
        factors = _factors(self.site)
        for k, step in enumerate(self.site.path):
            if k < self.depth:
                out.append(set())
                continue
            if isinstance(step.stmt, For):
                below |= {c.name for c in step.stmt.carries}
            here: set[str] = set()
            for stmt in step.before:
                names = {n for n, _ in _bindings(stmt)}
                cheap = isinstance(stmt, Let) and settled(stmt.value)
                made = isinstance(stmt, Let) and bool(free_names(stmt.value) & (below | here))
                saved = not names.isdisjoint(settled.saved) and self.site.value == Ref(*_bindings(stmt)[0])
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


def _factors(site: Site) -> set[str]:
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


def _is_product(function: Function, site: Site) -> bool:
    """Whether what a site adds is a product of matrices with a factor that is saved alone: in loops of its own no point
    computes it again, and nothing is read that each point has for itself. Sums of what each point has are found where that
    is made.
    """
    if not _factors(site) & {n for e in _made_of(site) for n in free_names(e)}:
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


# ---- nests of their own


@dataclass(frozen=True)
class _Placed:
    """An index axis that a loop variable decides: index = sign * stride * variable + rest; the index runs over a range. within:
    the range of the variable, where others in `rest` leave some of it out. reached: the elements, where the index runs over
    more. whole: how many iterations the variable has, of a digit, whose index runs over the whole axis. places: where the index
    tells several variables.
    """

    axis: int
    var: str
    sign: int
    rest: Affine
    bounds: tuple[Affine, Affine, int]
    within: tuple[Affine, Affine] | None = None
    reached: tuple[Affine, Affine] | None = None
    stride: int = 1
    whole: Expr | None = None
    places: tuple[Place, ...] = ()


@dataclass(frozen=True)
class _Window:
    """index = stride * variable + place + rest, of a window that begins at each iteration of a loop: its places tell an index,
    and what reaches an element are few iterations of the loop. places: their range.
    """

    axis: int
    loop: int
    stride: int
    rest: Affine
    places: tuple[Affine, Affine]

    def around(self, element: Expr, loop: For) -> For:
        """The iterations of a loop whose windows have the element."""

        def last(form: Affine) -> Expr:
            past = fold(Op("sub", (element, form.expr()), INT64))
            return add(Op("floordiv", (past, number(self.stride, INT64)), INT64), number(1, INT64))

        first, past = (last(self.rest + end) for end in reversed(self.places))
        return replace(loop, start=Op("max", (loop.start, first), INT64), stop=Op("min", (loop.stop, past), INT64))


@dataclass(frozen=True)
class _Product:
    """name: what stands for a loop's variable, or for none, times a factor that is the same in all iterations."""

    name: str
    var: str | None
    factor: Expr

    def of(self, known: Mapping[str, Expr]) -> Expr:
        if self.var is None:
            return self.factor
        return Op("mul", (known.get(self.var, Ref(self.var, INT64)), self.factor), INT64)


@dataclass(frozen=True)
class _Plan:
    """How a site becomes a nest: `prefix` loops stay, `placed` index axes get loops, `summed` loops carry a sum.

    certain: the branches on the path that the bounds of the new loops make certain to be taken. windows: of summed loops over
    windows, those that an element is in. digits: of loop variables, those that tell them; parts: those that are summed.
    products: what names in `rest` stand for that are products with loop variables. turned: summed loops with the iterations
    that reach an element, of which each has one at least.
    """

    site: Site
    prefix: int
    placed: tuple[_Placed, ...]
    summed: tuple[For, ...]
    certain: frozenset[int] = frozenset()
    windows: tuple[_Window, ...] = ()
    digits: tuple[Digits, ...] = ()
    parts: tuple[For, ...] = ()
    products: tuple[_Product, ...] = ()
    turned: frozenset[str] = frozenset()

    def variables(self, form: Affine) -> set[str]:
        """The names in a form, and in what its names stand for."""
        return {*form.names} | {x.var for x in self.products if x.name in form.names and x.var is not None}

    @property
    def in_place(self) -> bool:
        return not self.placed and not self.summed

    @property
    def depth(self) -> int:
        """Steps of the path that stay around the new nest."""
        loops = [k for k, s in enumerate(self.site.path) if isinstance(s.stmt, For)]
        return 0 if self.prefix == 0 else loops[self.prefix - 1] + 1

    def key(self) -> tuple[object, ...]:
        """Equal for sites that one nest can serve: the same loops around the same elements, in the same order."""
        around = tuple(id(s.stmt) for s in self.site.path[: self.depth])
        positions = {p.var: f"axis {p.axis}" for p in self.placed}
        elements = {p.axis: p.bounds for p in self.placed}
        index = tuple(elements.get(axis) or affine(i) for axis, i in enumerate(self.site.store.index))
        summed = tuple(_renamed(ascending(f), positions) for f in self.summed)
        return around, index, summed, self.windows, id(self.site.store) if self.digits else None


def _renamed(bounds: tuple[Affine, Affine, int] | None, names: dict[str, str]) -> object:
    if bounds is None:
        return None
    forms = tuple(Affine.make({names.get(n, n): c for n, c in b.terms}, b.constant) for b in bounds[:2])
    return (*forms, bounds[2])


def _plan(function: Function, site: Site, most: int | None = None) -> _Plan | None:
    """most: of the loops that may stay."""
    fixed = {s.name for s in function.sizes} | {s.name for s in function.scalars}
    subscripts, by_digits = _by_digits(function, site, fixed)
    counting = _counting(site, by_digits)
    loops, parts = {f.var: f for f in counting}, {f.var for d in by_digits for f in d.loops}
    found: dict[str, tuple[int, int, Affine]] = {}
    several: dict[str, _Placed] = {}
    products: dict[str, _Product] = {}
    for axis, i in enumerate(subscripts):
        if by_digits and (several_told := _places(function, site, axis, i, counting, fixed)) is not None:
            own_names = {p.var for p in several_told.places}
            if own_names & (found.keys() | several.keys()):
                return None
            several |= dict.fromkeys(own_names, several_told)
            continue
        form = _of_products(i, loops, fixed, products)
        if form is None:
            return None
        own = _telling(function, site, axis, form, counting)
        rest = Affine.make({n: c for n, c in form.terms if n not in own}, form.constant)
        if not rest.names <= fixed | loops.keys() | products.keys() or (form.names & loops.keys() and not own):
            return None
        if not rest.names.isdisjoint(products):
            along = function.array(site.store.array).shape[axis]
            if not own or by_digits or not as_long(function, loops[own[0]], along):
                return None
        for var in own:
            factor = form.coefficient(var)
            if var in found:
                return None
            found[var] = (axis, factor, rest)
    strided = any(abs(factor) != 1 for _, factor, _ in found.values())
    if strided and by_digits:
        return None
    if strided and not any(_overlapping(loops, fixed, abs(factor), rest) for _, factor, rest in found.values()):
        return None
    windows: dict[str, tuple[str, _Window]] = {}
    for var, (axis, factor, rest) in [*found.items()]:
        inside = _window(loops, fixed, axis, var, factor, rest) if factor > 1 else None
        if inside is not None and inside[0] not in found:
            place, window = windows[var] = inside
            del found[var]
            found[place] = axis, 1, Affine.make({var: factor}, 0) + window.rest
    prefix = 0
    if not _is_product(function, site):
        in_place = (loop.var in found and found[loop.var][1:] == (1, Affine((), 0)) for loop in site.loops[:most])
        prefix = sum(itertools.takewhile(bool, in_place))
    if several.keys() & found.keys():
        return None
    known = fixed | {f.var for f in site.loops[:prefix]}
    branches, decided = conditions_of(function, site), dict[int, set[int]]()
    placed: list[_Placed] = []
    turns: dict[str, For] = {}
    for loop in counting[prefix:]:
        if loop.var not in found:
            continue
        axis, factor, rest = found[loop.var]
        sign, stride = (1 if factor > 0 else -1), abs(factor)
        if loop.var in parts:
            length = affine(function.array(site.store.array).shape[axis])
            if length is None:
                return None
            all_of_it = (sign, rest, affine(loop.stop)) == (1, Affine((), 0), length)
            asked = None if all_of_it else loop.stop
            placed.append(_Placed(axis, loop.var, sign, rest, (Affine((), 0), length, 1), whole=asked))
            continue
        bounds = ascending(loop)
        if bounds is not None and sign == stride == 1 and not rest.terms and rest.constant == 0:
            turned = _turned(loop.var, bounds, [f for f in counting[prefix:] if f.var not in {*found, *several, *parts}], known)
            if turned is not None:
                bounds, other = turned
                turns[other.var] = other
        if bounds is None or not (bounds[0].names | bounds[1].names) <= known:
            return None
        start, stop, step = bounds
        if step == 1:
            start, stop = _tightened(branches, loop.var, Affine.make({loop.var: 1}, 0), (start, stop), known, decided)
        within = (start, stop) if stride > 1 or rest.names - fixed else None
        moved = sign < 0 or rest != Affine((), 0)
        span = _span(rest, loops, fixed) if moved and stride == 1 else None
        # elements ask what iterations reach them
        if stride > 1 or (moved and span is None) or any(place == loop.var for place, _ in windows.values()):
            extent = affine(function.array(site.store.array).shape[axis])
            if step != 1 or extent is None:
                return None
            start, stop = Affine((), 0), extent
        elif span is not None:
            if step != 1:
                return None
            one, (low, high) = Affine((), 1), span
            start, stop = (start + low, stop + high) if sign > 0 else (low - stop + one, high - start + one)
            index = Affine.make({loop.var: sign}, 0) + rest
            start, stop = _tightened(branches, loop.var, index, (start, stop), known, decided)
        placed.append(_Placed(axis, loop.var, sign, rest, (start, stop, step), within, stride=stride))
    if {(products[n].var or "") if n in products else n for p in placed for n in p.rest.names - fixed} & found.keys():
        return None
    placed += dict.fromkeys(several.values())
    placed.sort(key=lambda p: p.axis)
    known |= {p.var for p in placed if p.sign > 0 and p.rest == Affine((), 0) and not p.places and p.var not in parts}
    summed: list[For] = []
    for loop in counting[prefix:]:
        if loop.var in found or loop.var in several or loop.var in parts:
            continue
        loop = turns.get(loop.var, loop)
        bounds = ascending(loop)
        if bounds is None or not (bounds[0].names | bounds[1].names) <= known:
            return None
        known.add(loop.var)
        summed.append(loop)
    said = {k: comparisons(branches[k], True) for k in decided}
    certain = frozenset(k for k, told in said.items() if told.exact and len(decided[k]) == len(told.all))
    certain |= asking_inside(function, site, [p.axis for p in placed if p.bounds[:2] == _whole(function, site, p.axis)])
    found_windows = tuple(replace(windows[f.var][1], loop=k) for k, f in enumerate(summed) if f.var in windows)
    left = tuple(f for f in counting if f.var in parts and f.var not in found and f.var not in several)
    used = tuple(x for x in products.values() if any(x.name in p.rest.names for p in placed))
    return _Plan(site, prefix, tuple(placed), tuple(summed), certain, found_windows, by_digits, left, used, frozenset(turns))


def _turned(
    var: str, bounds: tuple[Affine, Affine, int], summed: list[For], known: set[str]
) -> tuple[tuple[Affine, Affine, int], For] | None:
    """Of `for t in range(a, b): for var in range(c, t + d)`, and where t bounds the start, the same points with the variable
    outside: its range, and for each of its values the loop over t. None where that takes more than sums, or nothing bounds so.
    """
    start, stop, step = bounds
    one = Affine((), 1)
    own = [f for f in summed if f.var in start.names | stop.names]
    around = ascending(own[0]) if len(own) == 1 else None
    if around is None or step != 1 or around[2] != 1 or not (around[0].names | around[1].names) <= known:
        return None
    t, here = Affine(((own[0].var, 1),), 0), Affine(((var, 1),), 0)
    below, above = start - t, stop - t
    if above.names <= known and start.names <= known and _is_no_more(around[0], start - above + one):
        outer = (start, around[1] - one + above, 1)
        inner = here - above + one, around[1]
    elif below.names <= known and stop.names <= known and _is_no_more(stop - below, around[1]):
        outer = (around[0] + below, stop, 1)
        inner = around[0], here - below + one
    else:
        return None
    return outer, replace(own[0], start=inner[0].expr(), stop=inner[1].expr(), step=1)


def _is_no_more(a: Affine, b: Affine) -> bool:
    """Whether a is at most b, as their constants alone show."""
    apart = b - a
    return not apart.terms and apart.constant >= 0


def _whole(function: Function, site: Site, axis: int) -> tuple[Affine, Affine | None]:
    return Affine((), 0), affine(function.array(site.store.array).shape[axis])


def _of_products(e: Expr, loops: Mapping[str, For], fixed: set[str], known: dict[str, _Product]) -> Affine | None:
    """An index as an affine form of names, of which some stand for products of a loop's variable and what is fixed."""
    form = affine(e)
    found = polynomial(e) if form is None else None
    if found is None:
        return form
    terms: Counter[str] = Counter()
    for monomial, factor in found.terms:
        own = next((n for n in monomial if n in loops), None)
        left = list(monomial)
        if own is not None:
            left.remove(own)
        if len(monomial) > 1 and not {*left} <= fixed:
            return None
        name = "*".join(monomial)
        if len(monomial) > 1:
            known[name] = _Product(name, own, Polynomial.make([(tuple(left), 1)]).expr())
        terms[name] += factor
    constant = terms.pop("", 0)
    return Affine.make(terms, constant)


def as_long(function: Function, loop: For, extent: Expr) -> bool:
    """Whether how often a loop runs has to do with how long an axis is."""
    values = {s.name: s.value for s in function.scalars if s.value is not None}

    def sizes(e: Expr) -> set[str]:
        return {n for name in free_names(e) for n in (sizes(values[name]) if name in values else {name})}

    return bool(sizes(loop.stop if loop.step > 0 else loop.start) & sizes(extent))


def asking_inside(function: Function, site: Site, axes: Collection[int]) -> frozenset[int]:
    """The branches of a site that ask whether its element is inside of these axes of the array, and nothing else."""
    shape = function.array(site.store.array).shape
    inside = set[Polynomial]()
    for axis in axes:
        at = in_full(site, site.store.index[axis])
        inside |= {difference(at, _ZERO), difference(shape[axis], Op("add", (at, number(1, INT64)), INT64))}

    said = _said(function, site)
    return frozenset(k for k, forms in said.items() if all(form is not None and form in inside for form in forms))


def _said(function: Function, site: Site) -> dict[int, list[Polynomial | None]]:
    """What is not below 0 where the path of a site goes through a branch, of each part of its condition, if that says so."""

    def parts(condition: Expr) -> Iterator[Expr]:
        if isinstance(condition, Op) and condition.name == "and":
            for part in condition.args:
                yield from parts(part)
        else:
            yield condition

    def form(condition: Expr) -> Polynomial | None:
        pair = no_less(condition)
        return None if pair is None else difference(*pair)

    return {k: [*map(form, parts(in_full(site, c)))] for k, c in conditions_of(function, site).items()}


def from_the_start(function: Function, targets: tuple[str, ...]) -> Function:
    """The function, in whose accumulations no subscript counts from the end where a condition on the way says that it is not
    below 0.
    """
    edit = Edit()
    for site in (s for target in targets for s in sites_of(function.body, target)):
        bare = [counted_from_end(i) for i in site.store.index]
        if any(counts for _, counts in bare):
            known = [form for forms in _said(function, site).values() for form in forms]
            pairs = zip(site.store.index, bare, strict=True)
            index = tuple(a if counts and difference(in_full(site, a), _ZERO) in known else i for i, (a, counts) in pairs)
            edit.instead[id(site.store)] = [accumulate_into(site.store.array, index, site.value, site.store)]
    return replace(function, body=edit.apply(function.body))


def _by_digits(function: Function, site: Site, fixed: set[str]) -> tuple[tuple[Expr, ...], tuple[Digits, ...]]:
    """The index of a site, and the digits of loop variables that it is of, if it is of any. Sums of what is not below 0 do not
    count from the end.
    """
    index = tuple(in_full(site, i) for i in site.store.index)
    bare = tuple(counted_from_end(i)[0] for i in index)
    found = digits(site.loops, bare, fixed)
    if found is not None:
        above = {e for d in found[0] for e in d.divisors}
        above |= {Ref(f.var, INT64) for f in _counting(site, found[0]) if f.start == _ZERO and f.step == 1}
        if all(i == j or no_less_than_0(function, k, above) for i, j, k in zip(index, bare, found[1], strict=True)):
            return found[1], found[0]
    return site.store.index, ()


def _counting(site: Site, told: tuple[Digits, ...]) -> list[For]:
    """The loops of a site, with those over digits in place of those of the variables that they tell."""
    by = {d.var: d.loops for d in told}
    return [one for f in site.loops for one in by.get(f.var, (f,))]


def _places(
    function: Function, site: Site, axis: int, index: Expr, loops: list[For], fixed: set[str]
) -> _Placed | None:
    """An index whose places are variables that count from 0, as `i * width + j`; None where it is another."""
    own = [f for f in loops if f.var in free_names(index)]
    counts = all(f.start == _ZERO and f.step == 1 and free_names(f.stop) <= fixed for f in own)
    found = places(index, own) if counts and len(own) > 1 else None
    extent = affine(function.array(site.store.array).shape[axis])
    if found is None or extent is None or (rest := found[1].affine) is None or not rest.names <= fixed:
        return None
    last = found[0][-1].var
    stop = next(f.stop for f in own if f.var == last)
    return _Placed(axis, last, 1, rest, (Affine((), 0), extent, 1), whole=stop, places=found[0])


def _overlapping(loops: Mapping[str, For], fixed: set[str], stride: int, rest: Affine) -> bool:
    """Whether windows that begin a stride apart, `rest` telling places in them, may have elements in common: others are reached
    once as it is, and the loops that reach them run in parallel.
    """
    span = _span(rest, loops, fixed) if rest.names - fixed else None
    if span is None:
        return False
    reach = span[1] - span[0]
    return bool(reach.terms) or reach.constant >= stride


def _window(
    loops: Mapping[str, For], fixed: set[str], axis: int, var: str, stride: int, rest: Affine
) -> tuple[str, _Window] | None:
    """The variable that tells places in windows that a loop begins a stride apart, and the windows; None where none does."""
    inside = rest.names - fixed
    bounds = ascending(loops[next(iter(inside))]) if len(inside) == 1 and inside <= loops.keys() else None
    around = ascending(loops[var])
    if bounds is None or around is None or bounds[2] != 1 or around[2] != 1:
        return None
    (place,) = inside
    if rest.coefficient(place) != 1 or not (bounds[0].names | bounds[1].names) <= fixed:
        return None
    return place, _Window(axis, 0, stride, rest - Affine.make({place: 1}, 0), bounds[:2])


def in_full(site: Site, index: Expr, around: tuple[Stmt, ...] = ()) -> Expr:
    """An index with what integers on the way to its site stand for. around: the statements that the way leads through first."""
    before = (*around, *(s for step in site.path for s in step.before))
    named = {s.name: s.value for s in before if isinstance(s, Let) and s.value.type == INT64}
    while names := free_names(index) & named.keys():
        index = substitute(index, {n: named[n] for n in names})
    return index


def no_less_than_0(function: Function, e: Expr, known: Collection[Expr] = ()) -> bool:
    """Whether an integer is not below 0. known: those that are not."""
    match e:
        case _ if e in known:
            return True
        case Const(value=value):
            return value >= 0
        case Ref(name=name):
            made = next((s.value for s in function.scalars if s.name == name), None)
            return any(s.name == name for s in function.sizes) or (made is not None and no_less_than_0(function, made, known))
        case Op(name="max", args=args):
            return any(no_less_than_0(function, a, known) for a in args)
        case Op(name="add" | "mul" | "floordiv" | "min", args=args):
            return all(no_less_than_0(function, a, known) for a in args)
    return False


def _telling(function: Function, site: Site, axis: int, form: Affine, loops: list[For]) -> list[str]:
    """The loop whose variable tells an index, if any does: of several, the outermost of those that are as long as the array,
    else, of those that sizes bound if any is, the one that moves it farthest, the innermost of such; the others are summed.
    """
    own = [f for f in loops if f.var in form.names]
    if len(own) > 1:
        extent = affine(function.array(site.store.array).shape[axis])
        ends = {f.var: ascending(f) for f in own}
        long = [f for f in own if extent is not None and (e := ends[f.var]) is not None and e[1].names & extent.names]
        sized = [f for f in own if (e := ends[f.var]) is not None and e[1].names] or own
        own = long or sorted(sized[::-1], key=lambda f: -abs(form.coefficient(f.var)))
    return [f.var for f in own[:1]]


def _span(rest: Affine, loops: Mapping[str, For], fixed: set[str]) -> tuple[Affine, Affine] | None:
    """The least and the largest value of a form, whose loops have bounds of these names alone and run."""
    low = high = Affine.make({n: c for n, c in rest.terms if n in fixed}, rest.constant)
    for name, c in rest.terms:
        if name in fixed:
            continue
        bounds = ascending(loops[name]) if name in loops else None
        if bounds is None or bounds[2] != 1 or not (bounds[0].names | bounds[1].names) <= fixed:
            return None
        ends = bounds[0], bounds[1] + Affine((), -1)
        low, high = low + ends[c < 0] * c, high + ends[c > 0] * c
    return low, high


def _tightened(
    branches: Mapping[int, Expr], var: str, place: Affine, ends: tuple[Affine, Affine], known: Iterable[str],
    decided: dict[int, set[int]],
) -> tuple[Affine, Affine]:
    """The range of a place, a variable or an index that it decides, without what branches on the path leave out.

    Adds to `decided`, for each branch, which of its constraints hold in all that is left.
    """  # fmt: skip
    start, stop = ends
    for k, condition in branches.items():
        for n, (form, sign) in enumerate(constraints(condition, True)):
            own = form.coefficient(var) * place.coefficient(var)
            rest = form - place * own
            if abs(own) != 1 or not rest.names <= {*known} or sign in ("=", "!="):
                continue
            if sign in ("<", "<="):
                own, rest = -own, rest * -1
            margin = Affine((), 1 if sign in ("<", ">") else 0)
            # own * place + rest >= margin
            bound = margin - rest if own > 0 else rest - margin + Affine((), 1)
            moved = bound - (start if own > 0 else stop)
            if moved.terms:
                continue
            if own > 0 and moved.constant > 0:
                start = bound
            elif own < 0 and moved.constant < 0:
                stop = bound
            decided.setdefault(k, set()).add(n)
    return start, stop


def conditions_of(function: Function, site: Site) -> dict[int, Expr]:
    """What holds where the path of a site goes through a branch, by the branch's place on the path."""
    found: dict[int, Expr] = {}
    if not any(isinstance(step.stmt, If) for step in site.path):
        return found
    named = {s.name: s.value for s in walk(function.body) if isinstance(s, Let) and s.value.type == BOOL}
    for k, step in enumerate(site.path):
        if isinstance(step.stmt, If):
            condition = step.stmt.condition
            while isinstance(condition, Ref) and condition.name in named:
                condition = named[condition.name]
            found[k] = condition if step.taken else Op("not", (condition,), BOOL)
    return found


def _gather(function: Function, target: str, names: Names) -> Function:
    """Turn sites whose loops do not all stand, as they are, in the index into nests of their own."""
    left: set[int] = set()
    while True:
        plans = [_plan(function, s) for s in often(function, target)]
        todo = [p for p in plans if p is not None and not p.in_place and id(p.site.store) not in left]
        if not todo:
            function = _by_spans(function, target, names)
            apart = _from_the_end_apart(function, target)
            if apart is None:
                return _sums_first(function, target, names)
            function = apart
            continue
        group = _neighbours(function, todo[0], plans) or [p for p in todo if p.key() == todo[0].key()]
        changed = _own_nest(function, group, names)
        if changed is None:
            # edits keep the identity of the stores they do not touch
            left |= {id(p.site.store) for p in group}
        else:
            function = changed


def often(function: Function, target: str) -> list[Site]:
    """The sites under no condition that nobody expects to hold."""
    return [s for s in sites_of(function.body, target) if not any(isinstance(x.stmt, If) and x.stmt.rare for x in s.path)]


def _from_the_end_apart(function: Function, target: str) -> Function | None:
    """The function with two sites instead of each that has no plan and a subscript that counts from the end where it is below
    0: one for those below 0, one for the others. None where there are none.
    """
    edit, fixed = Edit(), {s.name for s in function.sizes} | {s.name for s in function.scalars}
    for site in often(function, target):
        index, known = site.store.index, fixed | {f.var for f in site.loops}
        bare = (form for form, counts in map(counted_from_end, index) if counts)
        if not all(affine(form) is not None and free_names(form) <= known for form in bare):
            continue
        axis = next((k for k, i in enumerate(index) if counted_from_end(i)[1]), None)
        if axis is None or _plan(function, site) is not None:
            continue
        whole = index[axis]
        assert isinstance(whole, Op)
        below, *ends = whole.args
        sides = ((*index[:axis], end, *index[axis + 1 :]) for end in ends)
        then, orelse = (accumulate_into(target, i, site.value, site.store) for i in sides)
        edit.instead[id(site.store)] = [If(below, (then,), (orelse,), (), site.store.location)]
    return replace(function, body=edit.apply(function.body)) if edit.instead else None


def _by_spans(function: Function, target: str, names: Names) -> Function:
    """Let elements gather from sites of which each subscript is a function of a variable of its own (`i * h // height`,
    `int(u)`, `abs(i - pad)`), or of that and of places in a window (`max(i + a - 1, 0)`). Of sums, bounds and quotients the
    element tells its iterations. Of others the subscripts, and of each element the least and the largest iteration, are found
    first, once; those between are asked where a subscript may turn (`abs`).
    """
    settled, tops = Settled(function), dict[int, list[_Spanned]]()
    for site in often(function, target):
        one = _spanned(function, site, settled)
        if one is not None:
            tops.setdefault(id(site.path[0].stmt), []).append(one)
    edit, arrays = Edit(), list(function.arrays)
    for top, sites in tops.items():
        spans: dict[tuple[Expr, ...], _Span] = {}
        nests: list[Stmt] = []
        for one in sites:
            for axis, (loop, subscript, around) in one.functions.items():
                extent = function.array(target).shape[axis]
                if _told(loop, subscript, _ZERO) is not None:
                    continue
                own = (*around, loop)
                bare = substitute(subscript, {f.var: Ref(str(k), INT64) for k, f in enumerate(own)})
                key = bare, extent, *(e for f in own for e in (f.start, f.stop))
                if key not in spans:
                    spans[key] = _Span.made(function, loop, around, extent, names)
                    nests += spans[key].found(loop, around, subscript, names)
                    arrays += spans[key].arrays
                one.spans[axis] = spans[key]
        for one in sites:
            nests.append(_gathering(function, one, names, edit, arrays))
        edit.after.setdefault(top, []).extend(nests)
    return replace(function, body=edit.apply(function.body), arrays=tuple(arrays))


@dataclass(frozen=True)
class _Span:
    """What a subscript is in each iteration of a loop, and the least and the largest iteration of each element, of one without
    any none between them: for each place in a window, if it hangs on any.
    """

    at: Array
    first: Array
    last: Array
    reach: tuple[Extent, ...]

    @staticmethod
    def made(function: Function, loop: For, places: tuple[For, ...], extent: Expr, names: Names) -> _Span:
        reach = extents(function, (*places, loop))
        assert reach is not None, "the bounds of the loops are of sizes"
        at = expanded(names.fresh(f"{loop.var}_at"), INT64, reach)
        first, last = (
            Array(names.fresh(f"{loop.var}_{name}"), INT64, (*at.shape[:-1], extent), "local", Const(fill, INT64))
            for name, fill in (("first", 1 << 62), ("last", -1))
        )
        return _Span(at, first, last, reach)

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.at, self.first, self.last

    def of(self, var: Expr, places: Iterable[Expr]) -> Load:
        """The subscript of an iteration."""
        return Load(self.at.name, expanded_index(self.reach, (*places, var)), INT64)

    def end(self, which: Array, element: Expr, places: Iterable[Expr]) -> Load:
        """The least or the largest iteration of an element."""
        return Load(which.name, (*expanded_index(self.reach[:-1], tuple(places)), element), INT64)

    def found(self, loop: For, places: tuple[For, ...], subscript: Expr, names: Names) -> tuple[Stmt, ...]:
        (one, *own), (other, *others) = ([Ref(names.fresh(f.var), INT64) for f in (loop, *places)] for _ in range(2))
        known: dict[str, Expr] = {f.var: ref for f, ref in zip((loop, *places), (one, *own), strict=True)}
        told = Store(self.at.name, self.of(one, own).index, substitute(subscript, known), loop.location)
        at = self.of(other, others)
        ends = tuple(
            Store(a.name, end.index, Op(how, (end, other), INT64), loop.location)
            for a, how in ((self.first, "min"), (self.last, "max"))
            for end in (self.end(a, at, others),)
        )
        # where other loops have no iteration, it may be none of the array's
        inside = If(between(at, _ZERO, self.first.shape[-1]), ends, (), (), loop.location)
        made: tuple[Stmt, ...] = (
            replace(loop, var=one.name, carries=(), body=(told,)),
            replace(loop, var=other.name, carries=(), body=(inside,), apart=not places),
        )
        for k, f in reversed([*enumerate(places)]):
            made = tuple(
                replace(f, var=refs[k].name, carries=(), body=(s,), apart=k == 0 and refs is others)
                for s, refs in zip(made, (own, others), strict=True)
            )
        return made


@dataclass(frozen=True)
class _Spanned:
    """A site whose axes are functions of a loop's variable, and of places in windows, or variables by themselves; the spans of
    the functions.
    """

    site: Site
    closure: Closure
    functions: Mapping[int, tuple[For, Expr, tuple[For, ...]]]
    plain: Mapping[int, For]
    spans: dict[int, _Span] = field(default_factory=dict)


def _spanned(function: Function, site: Site, settled: Settled) -> _Spanned | None:
    lets = {s.name: s.value for step in site.path for s in step.before if isinstance(s, Let)}
    fixed = {s.name for s in function.sizes} | {s.name for s in function.scalars}
    loops = {f.var: _upwards(f) for f in site.loops}
    functions: dict[int, tuple[For, Expr, tuple[For, ...]]] = {}
    plain: dict[int, For] = {}
    told = set[str]()
    if any(isinstance(step.stmt, If) for step in site.path):
        return None  # a subscript may be evaluated where the condition holds alone
    for axis, i in enumerate(site.store.index):
        while named := free_names(i) & lets.keys():
            i = substitute(i, {n: lets[n] for n in named})
        own = free_names(i) & loops.keys()
        if not own or not free_names(i) <= fixed | own or own & told or free_arrays(i):
            return None
        told |= own
        extent = function.array(site.store.array).shape[axis]
        long = [f for v, f in loops.items() if v in own and (len(own) == 1 or as_long(function, f, extent))]
        if len(long) != 1:
            return None
        (loop,) = long
        if i == Ref(loop.var, INT64):
            plain[axis] = loop
        elif _tame(i, loop.var):
            functions[axis] = loop, i, tuple(f for v, f in loops.items() if v in own and f is not loop)
        else:
            return None
    closure = Closure(site, 0, settled)
    if not functions:
        return None
    if told == loops.keys() and all(affine(i) is not None for _, i, _ in functions.values()):
        return None  # each iteration adds to an element of its own
    if any(f.step != 1 or not free_names(f.start) | free_names(f.stop) <= fixed for f in loops.values()):
        return None
    if extents(function, site.loops) is None:
        return None
    around = [f for f in loops.values() if f.var in told]
    sure = all(in_range(Ref(f.var, INT64), function.array(site.store.array).shape[a], around) for a, f in plain.items())
    return _Spanned(site, closure, functions, plain) if sure else None


def _upwards(loop: For) -> For:
    """A loop whose iterations are in ascending order, if it goes down by one."""
    if loop.step != -1:
        return loop
    start, stop = (fold(add(e, Const(1, INT64))) for e in (loop.stop, loop.start))
    return replace(loop, start=start, stop=stop, step=1)


def _tame(e: Expr, var: str) -> bool:
    """Whether neighbouring iterations have neighbouring values: e goes up or down with the variable, or turns."""
    if var not in free_names(e):
        return True
    match e:
        case Ref():
            return True
        case Cast(value=value) | Round(value=value):
            return _tame(value, var)
        case Op(name="where", args=(condition, then, orelse)):
            return all(_tame(x, var) for x in (*operands(condition), then, orelse))
        case Op(name="add" | "sub" | "mul" | "div" | "floordiv" | "min" | "max" as name, args=(a, b)):
            apart = var not in free_names(b) or (var not in free_names(a) and name not in ("div", "floordiv"))
            return apart and _tame(a, var) and _tame(b, var)
        case Op(name="neg" | "abs" | "floor" | "ceil" | "trunc" | "round", args=(a,)):
            return _tame(a, var)
    return False


def _told(loop: For, subscript: Expr, element: Expr) -> tuple[Expr, Expr] | None:
    """The first iteration that gives a subscript an element, and the one past the last, as the element tells them."""
    past = add(element, Const(1, INT64))
    first, last = (first_reaching(subscript, loop.var, e, loop.start, loop.stop) for e in (element, past))
    return None if first is None or last is None else (first, last)


def _gathering(function: Function, one: _Spanned, names: Names, edit: Edit, arrays: list[Array]) -> Stmt:
    """A nest over elements, each of which sums what the iterations in its spans add to it."""
    site, shape = one.site, function.array(one.site.store.array).shape
    index: list[Expr] = []
    over: list[For] = []
    here: list[Expr] = []
    windows = [f for _, _, places in one.functions.values() for f in places]
    known: dict[str, Expr] = {f.var: Ref(names.fresh(f.var), INT64) for f in windows}
    within = [replace(f, var=_name_of(known[f.var]), carries=(), body=()) for f in windows]
    for axis, extent in enumerate(shape):
        loop, *function_of = one.functions.get(axis) or (one.plain[axis],)
        places = [known[f.var] for f in one.functions[axis][2]] if function_of else []
        element = Ref(names.fresh(loop.var), INT64)
        index.append(element)
        over.append(For(element.name, _ZERO, extent, 1, (), (), location=loop.location))
        if not function_of:
            known[loop.var] = element
            continue
        var = Ref(names.fresh(loop.var), INT64)
        known[loop.var] = var
        subscript = substitute(one.functions[axis][1], {f: e for f, e in known.items() if f != loop.var})
        ends = _told(loop, subscript, element)
        if ends is None:
            span = one.spans[axis]
            ends = span.end(span.first, element, places), add(span.end(span.last, element, places), Const(1, INT64))
            if course(subscript, loop.var) is None:
                here.append(Op("eq", (span.of(var, places), element), BOOL))
        # iterations of the loop, as its bounds tell: no subscript of what they read is looked at
        first, past = Op("max", (ends[0], loop.start), INT64), Op("min", (ends[1], loop.stop), INT64)
        within.append(For(var.name, first, past, 1, (), (), location=loop.location))
    for loop in map(_upwards, site.loops):
        if loop.var not in known:
            var = Ref(names.fresh(loop.var), INT64)
            known[loop.var] = var
            within.append(replace(loop, var=var.name, carries=(), body=()))
    again = repeated(function, one.closure, False, known, names, edit, arrays, {}, None, ())
    assert again is not None, "the bounds of the loops are of sizes"
    made, value = again
    merge = Merge(names.fresh(f"{site.store.array}_part"), value, number(0, value.type))
    statements: list[Stmt] = list(made)
    if here:
        statements, value = [If(all_of(here), tuple(made), (), (merge,), site.store.location)], Ref(merge.name, merge.type)
    for loop in reversed(within):
        statements, value = _summing(loop, statements, value, site.store.array, names)
    body: tuple[Stmt, ...] = (*statements, accumulate_into(site.store.array, tuple(index), value, site.store))
    for loop in reversed(over):
        body = (replace(loop, body=body),)
    return body[0]


def _sums_first(function: Function, target: str, names: Names) -> Function:
    """Let sites whose elements, or the ranges of these, data choose by some of their loops alone sum over the others first: in
    loops of their own.
    """
    edit, settled = Edit(), Settled(function)
    for site in sites_of(function.body, target):
        made = None if any(isinstance(x.stmt, If) for x in site.path) else _summed_first(function, site, settled, names)
        if made is not None:
            edit.instead[id(site.store)] = []
            edit.after.setdefault(id(site.path[0].stmt), []).extend(made)
    return replace(function, body=edit.apply(function.body))


def _summed_first(function: Function, site: Site, settled: Settled, names: Names) -> tuple[Stmt, ...] | None:
    """A site as a nest over the loops that its index is made of, with a sum over the others; None where these are inside those
    already, and where what it adds cannot be computed anew.
    """
    lets = {s.name: s.value for step in site.path for s in step.before if isinstance(s, Let)}

    def whole(e: Expr) -> Expr:
        while named := free_names(e) & lets.keys():
            e = substitute(e, {n: lets[n] for n in named})
        return e

    index = tuple(map(whole, site.store.index))
    bounds = {f.var: (whole(f.start), whole(f.stop)) for f in site.loops}
    fixed = {s.name for s in function.sizes} | {s.name for s in function.scalars}
    told = {n for i in index for n in free_names(i)} - fixed
    for f in reversed(site.loops):
        told |= {n for e in bounds[f.var] for n in free_names(e)} - fixed if f.var in told else set()
    kept, summed = ([f for f in site.loops if (f.var in told) == own] for own in (True, False))
    closure = Closure(site, 0, settled)
    if not kept or not summed or summed == list(site.loops[len(kept) :]) or not told <= {f.var for f in kept}:
        return None
    if closure.spills or not closure.repeatable or not all(map(settled, (*index, *(e for f in kept for e in bounds[f.var])))):
        return None
    if any(not free_names(e) <= fixed or free_arrays(e) for f in summed for e in bounds[f.var]):
        return None
    known: dict[str, Expr] = {}
    loops: list[For] = []
    runs = all_of(_runs(replace(f, start=bounds[f.var][0], stop=bounds[f.var][1])) for f in summed)
    ranged = next((f for f in kept if any(map(free_arrays, bounds[f.var]))), None)
    for f in (*kept, *summed):
        start, stop = bounds[f.var]
        # where there is nothing to add, a range may be none of the array's
        stop = Op("where", (runs, stop, start), INT64) if f is ranged else stop
        start, stop = substitute(start, known), substitute(stop, known)
        var = names.fresh(f.var)
        known[f.var] = Ref(var, INT64)
        loops.append(replace(f, var=var, start=start, stop=stop, carries=(), body=()))
    made, value = closure.repeat(known, names)
    for f in reversed(loops[len(kept) :]):
        made, value = _summing(f, made, value, site.store.array, names)
    store: Stmt = accumulate_into(site.store.array, tuple(substitute(i, known) for i in index), value, site.store)
    if ranged is None:  # and an element
        store = If(substitute(runs, known), (store,), (), (), site.store.location)
    statements: tuple[Stmt, ...] = (*made, store)
    for f in reversed(loops[: len(kept)]):
        statements = (replace(f, body=statements),)
    return statements


def _summing(loop: For, body: Iterable[Stmt], value: Expr, target: str, names: Names) -> tuple[list[Stmt], Expr]:
    """A loop that sums a value of its body, and the sum."""
    carried, result = names.fresh(f"{target}_sum"), names.fresh(f"{target}_sum")
    carry = Carry(carried, number(0, value.type), add(Ref(carried, value.type), value), result)
    return [replace(loop, carries=(carry,), body=tuple(body))], Ref(result, value.type)


def _neighbours(function: Function, first: _Plan, plans: list[_Plan | None]) -> list[_Plan]:
    """A plan and those of sites that reach neighbours of its elements: one nest over all elements serves them, each where it
    reaches. Empty where there are no others.
    """
    inside = [p for p in plans if p is not None and p.site.path and not p.summed]
    around = [p for p in inside if p.site.path[0].stmt is first.site.path[0].stmt]
    prefix = min((p.prefix for p in around), default=0)
    found = [q for p in around if (q := _plan(function, p.site, prefix)) is not None and not q.summed]
    apart = [p for p in found if not p.digits and all((x.within, x.bounds[2]) == (None, 1) for x in p.placed)]
    whole = [_widened(function, p) for p in apart]
    keys = [p.key() for p in whole if p.site.store is first.site.store]
    group = [p for p in whole if p.key() in keys]
    return group if len({tuple(x.reached for x in p.placed) for p in group}) > 1 else []


def _widened(function: Function, plan: _Plan) -> _Plan:
    """The plan with loops over whole axes of the array."""
    shape = function.array(plan.site.store.array).shape
    whole = {p.axis: affine(shape[p.axis]) for p in plan.placed}
    placed = (
        p if (extent := whole[p.axis]) is None else replace(p, bounds=(Affine((), 0), extent, 1), reached=p.bounds[:2])
        for p in plan.placed
    )
    return replace(plan, placed=tuple(placed))


def _own_nest(function: Function, group: list[_Plan], names: Names) -> Function | None:
    first = group[0]
    target = first.site.store.array
    type_ = first.site.value.type
    variables = {p.axis: names.fresh(_plain_name(p.var)) for p in first.placed}
    ordered = _summed_in_order(function, group)
    summed = tuple(f for f in first.summed if f not in ordered)
    sums = [names.fresh(f.var) for f in summed]
    index = list(first.site.store.index)
    for p in first.placed:
        index[p.axis] = Ref(variables[p.axis], INT64)
    parts = {f.var: replace(f, var=names.fresh(_plain_name(f.var))) for f in first.parts}
    edit, arrays, settled = Edit(), list(function.arrays), Settled(function)
    statements: list[Stmt] = []
    total: Expr = number(0, type_)
    loops = [*first.site.loops[: first.prefix], *_placed_loops(first, variables)]
    shape, inside = function.array(target).shape, surely_inside(function, target, tuple(index), loops)
    if not inside and (first.digits or any(p.windows or any(x.stride > 1 for x in p.placed) for p in group)):
        return None
    guarded = [p for p in group if any(isinstance(x.stmt, If) and k not in p.certain for k, x in _below(p))]
    use: Callable[[Expr], Stmt] | None = None
    if guarded and not inside and not first.summed:
        group = [p for p in guarded if (alone := _plan(function, p.site)) is not None and not alone.in_place][:1]
        if not group:
            return None
        first = group[0]

        def use(value: Expr) -> Stmt:
            return accumulate_into(target, tuple(index), value, first.site.store)

    closures = [Closure(p.site, p.depth, settled, p.certain) for p in group]
    apart = [c for c in closures if c.whole]
    values, named = {c.site.value for c in apart}, {n for c in apart for n in c.spills}
    by_name = len(named) <= len(values) > 1 and all(c.repeatable for c in apart)  # one array serves several sites
    keeping: dict[tuple[Expr, tuple[Expr, ...]], str] = {}
    for plan, closure in zip(group, closures, strict=True):
        own = tuple(f for f in plan.summed if f not in ordered)
        known: dict[str, Expr] = {f.var: Ref(v, INT64) for f, v in zip(own, sums, strict=True)}
        known |= {v: Ref(f.var, INT64) for v, f in parts.items()}
        known |= {x.name: x.of(known) for x in plan.products}
        ranges: list[Expr] = []
        divided: dict[Expr, Expr] = {}
        for p in plan.placed:
            at = (Affine(((variables[p.axis], 1),), 0) - p.rest) * p.sign
            if p.within is not None and not plan.variables(p.rest).isdisjoint(f.var for f in ordered):
                return None
            told = substitute(at.expr(), known)
            if p.places and p.whole is not None:
                known |= {x.var: x.of(told) for x in p.places}
                ranges += [Op("ge", (told, _ZERO), BOOL)] if p.rest != Affine((), 0) else []
                ranges.append(Op("lt", (known[p.var], p.whole), BOOL))
                continue
            if p.stride > 1:
                stride = number(p.stride, INT64)
                ranges.append(Op("eq", (Op("mod", (told, stride), INT64), _ZERO), BOOL))
                told = Op("floordiv", (told, stride), INT64)
            known[p.var] = told
            if p.whole is not None:
                ranges.append(between(told, _ZERO, p.whole))
            if p.reached not in (None, p.bounds[:2]):
                ranges.append(between(Ref(variables[p.axis], INT64), *(e.expr() for e in p.reached)))
            if p.within is not None and not any(w.axis == p.axis for w in plan.windows):
                ends = (e.expr() for e in p.within)
                ranges.append(between(told, *ends))
        for d in plan.digits:
            one = known[d.var] = substitute(d.value, known)
            divided |= {substitute(e, {d.var: one}): substitute(by, known) for e, by in d.named}
            ranges += [] if d.inside is None else [substitute(d.inside, known)]
        counts = [x.extent for p in plan.placed for x in p.places if x.extent is not None]
        above = dict.fromkeys((*(e for d in plan.digits for e in d.divisors), *counts))
        ranges += [Op("lt", (_ZERO, e), BOOL) for e in above if not isinstance(e, Const)]
        again = repeated(function, closure, by_name, known, names, edit, arrays, keeping, use, ordered)
        if again is None:
            return None
        made, part = again
        if divided:

            def undivided(e: Expr, known: Mapping[Expr, Expr] = divided) -> Expr:
                return replaced(e, known)

            made, part = [*_mapped(tuple(made), undivided)], undivided(part)
        if ranges:
            condition = all_of(ranges)
            merge = Merge(names.fresh(f"{target}_part"), part, number(0, type_))
            made, part = [If(condition, tuple(made), (), (merge,), plan.site.store.location)], Ref(merge.name, type_)
        statements += made
        total = add(total, part)
    shown: dict[str, Expr] = {p.var: Ref(variables[p.axis], INT64) for p in first.placed if not first.digits}
    shown |= _names_of(summed, sums)
    around_sum = {f.var: ascending_loop(f, shown) for f in first.summed}
    value = total
    windows = {first.summed[w.loop].var: w for w in first.windows}
    carrying: list[For] = []
    for f, var in zip(summed, sums, strict=True):
        loop = replace(around_sum[f.var], var=var)
        window = windows.get(f.var)
        carrying.append(loop if window is None else window.around(Ref(variables[window.axis], INT64), loop))
    for loop in reversed((*carrying, *parts.values())):
        statements, value = _summing(loop, statements, value, target, names)
    if use is None:
        store: Stmt = accumulate_into(target, tuple(index), value, first.site.store)
        if not inside and not guarded:  # it may be outside where a loop that sums does not run
            runs = dict.fromkeys(fold(_runs(f)) for f in around_sum.values() if f.var not in first.turned)
            for certain in (Const(True, BOOL), *(fold(_runs(f)) for f in loops)):
                runs.pop(certain, None)
            if any(free_names(r) & {*sums} for r in runs):
                return None
            if runs:
                store = If(all_of(runs), (store,), (), (), first.site.store.location)
        elif not inside:  # nor do all conditions tell where no loop is, as of `c[1, j]`
            others = [x for axis, x in enumerate(zip(index, shape, strict=True)) if axis not in variables]
            kept = [between(i, _ZERO, extent) for i, extent in others if not in_range(i, extent, loops)]
            store = If(all_of(kept), (store,), (), (), first.site.store.location) if kept else store
        statements.append(store)
    for around in reversed(_placed_loops(first, variables)):
        if guarded and not inside and use is None:  # it may be outside where no condition holds
            around = _clipped(around, shape[index.index(Ref(around.var, INT64))])
        statements = [replace(around, body=tuple(statements))]
    if not first.prefix and any(_factors(c.site) & c.spills.keys() for c in closures):
        statements = [replace(s, apart=True) if isinstance(s, For) else s for s in statements]
    last = group[-1].site
    place = last.path[group[-1].depth].stmt
    edit.after.setdefault(id(place), []).extend(statements)
    divisors = dict.fromkeys(e for d in first.digits for e in d.divisors if not no_less_than_0(function, e))
    backwards: list[Expr] = [Op("lt", (e, _ZERO), BOOL) for e in divisors]
    for plan in group if backwards else ():
        late = as_it_stands(function, plan.site, settled, names)
        if late is None:
            return None
        below = functools.reduce(lambda a, b: Op("or", (a, b), BOOL), backwards)
        top = If(below, late, (), (), plan.site.store.location, rare=True)
        edit.after.setdefault(id(plan.site.path[0].stmt), []).append(top)
    return replace(function, body=edit.apply(function.body), arrays=tuple(arrays))


def _clipped(loop: For, extent: Expr) -> For:
    """The iterations of an ascending loop that are inside an axis."""
    if in_range(Ref(loop.var, INT64), extent, (loop,)):
        return loop
    start = loop.start if loop.start == number(0, INT64) else Op("max", (loop.start, number(0, INT64)), INT64)
    return replace(loop, start=start, stop=Op("min", (loop.stop, extent), INT64))


def all_of(conditions: Iterable[Expr]) -> Expr:
    return functools.reduce(lambda a, b: Op("and", (a, b), BOOL), conditions)


def as_it_stands(function: Function, site: Site, settled: Settled, names: Names) -> tuple[Stmt, ...] | None:
    """A site in loops of its own, in the order that it has; None where what it adds cannot be computed anew."""
    closure, fixed = Closure(site, 0, settled), {s.name for s in function.sizes} | {s.name for s in function.scalars}
    bounds = {n for f in site.loops for e in (f.start, f.stop) for n in free_names(e)}
    if closure.spills or not closure.repeatable or not bounds <= fixed | {f.var for f in site.loops}:
        return None
    known: dict[str, Expr] = {f.var: Ref(names.fresh(f.var), INT64) for f in site.loops}
    index = tuple(substitute(in_full(site, i), known) for i in site.store.index)
    bound = {n for step in site.path for s in step.before for n, _ in _bindings(s)}
    if any(free_names(i) & bound for i in index):
        return None
    body, _ = closure.repeat(known, names, lambda value: accumulate_into(site.store.array, index, value, site.store))
    for f in reversed(site.loops):
        start, stop, var = substitute(f.start, known), substitute(f.stop, known), known[f.var]
        assert isinstance(var, Ref)
        body = [replace(f, var=var.name, start=start, stop=stop, carries=(), body=tuple(body))]
    return tuple(body)


def _mapped(statements: tuple[Stmt, ...], change: Callable[[Expr], Expr]) -> tuple[Stmt, ...]:
    return tuple(map_statement(s, change, lambda body: _mapped(body, change)) for s in statements)


def between(e: Expr, low: Expr, high: Expr) -> Expr:
    return Op("and", (Op("le", (low, e), BOOL), Op("lt", (e, high), BOOL)), BOOL)


def ascending_loop(loop: For, names: dict[str, Expr]) -> For:
    """The iterations of a loop in ascending order, with other names in its bounds and nothing in it."""
    bounds = ascending(loop)
    assert bounds is not None
    start, stop = (fold(substitute(b.expr(), names)) for b in bounds[:2])
    return For(loop.var, start, stop, bounds[2], (), (), location=loop.location)


def _summed_in_order(function: Function, group: list[_Plan]) -> tuple[For, ...]:
    """The loops that sum what a site adds where it stands: they run in order in any case, since states that are arrays go
    through them, and what they sum has one element for all their iterations.
    """
    if len(group) > 1:
        return ()
    (plan,) = group
    if not Closure(plan.site, plan.depth, Settled(function), plan.certain).whole:
        return ()
    loops = plan.site.loops
    ordered = tuple(f for f in plan.summed if f is not loops[-1] and has_state_arrays(f))
    bounded = {n for f in loops for e in (f.start, f.stop) for n in free_names(e)}
    return ordered if not bounded & {f.var for f in ordered} else ()


def has_state_arrays(loop: For) -> bool:
    """Whether iterations of a loop store to the same elements, and not just add to them."""
    stores = [s for s in walk(loop.body) if isinstance(s, Store) and accumulation(s) is None]
    return any(not any(loop.var in free_names(i) for i in s.index) for s in stores)


def _name_of(variable: Expr) -> str:
    assert isinstance(variable, Ref)
    return variable.name


def _names_of(summed: tuple[For, ...], sums: list[str]) -> dict[str, Expr]:
    return {f.var: Ref(v, INT64) for f, v in zip(summed, sums, strict=True)}


def _plain_name(digit: str) -> str:
    """What a digit of a variable is called in the text."""
    return digit.partition("'")[0]


def _placed_loops(plan: _Plan, variables: dict[int, str]) -> list[For]:
    by_var = {f.var: f for f in _counting(plan.site, plan.digits)}
    return [
        For(
            variables[p.axis],
            p.bounds[0].expr(),
            p.bounds[1].expr(),
            p.bounds[2],
            (),
            (),
            location=by_var[p.var].location,
        )
        for p in plan.placed
    ]


def _below(plan: _Plan) -> list[tuple[int, _Step]]:
    """The steps of a plan's path that its new nest replaces."""
    return list(enumerate(plan.site.path))[plan.depth :]


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


# ---- sites in place


def _spread(function: Function, target: str, names: Names) -> Function:
    """Let loops over all elements of a row add what is added to one of them before, which data choose, perhaps under a
    condition: each asks if it is that. The element is one of the array: the program has read it.
    """
    while True:
        sites = list(sites_of(function.body, target))
        pairs = ((a, b) for k, a in enumerate(sites) for b in sites[k + 1 :])
        found = next(((a, b, which) for a, b in pairs if (which := _one_of(function, a, b)) is not None), None)
        if found is None:
            return function
        a, b, which = found
        edit, type_ = Edit(), a.value.type
        told = [Let(names.fresh(f"{target}_there"), a.value, a.store.location)]
        told += [Let(names.fresh("there"), place, a.store.location) for place, _ in which]
        given: tuple[Stmt, ...] = tuple(told)
        top: Stmt = a.store
        for step in reversed(a.path[_in_common(a, b) :]):  # a branch that is not taken adds 0
            assert isinstance(step.stmt, If)
            inside, told = told, [replace(let, name=names.fresh(base_name(let.name))) for let in told]
            sides = [(Ref(x.name, x.value.type), number(0, x.value.type)) for x in inside]
            merges = [Merge(let.name, *(s if step.taken else s[::-1])) for let, s in zip(told, sides, strict=True)]
            body = (*step.before, *given, *step.body[step.at + 1 :])
            then, orelse = (body, step.stmt.orelse) if step.taken else (step.stmt.then, body)
            given = (replace(step.stmt, then=then, orelse=orelse, merges=(*step.stmt.merges, *merges)),)
            top = step.stmt
        value, *places = (Ref(let.name, let.value.type) for let in told)
        here = [Op("eq", (place, Ref(var, INT64)), BOOL) for place, (_, var) in zip(places, which, strict=True)]
        own = Op("where", (all_of(here), value, number(0, type_)), type_)
        edit.instead[id(top)] = [*given]
        edit.instead[id(b.store)] = [accumulate_into(target, b.store.index, add(b.value, own), b.store)]
        function = replace(function, body=edit.apply(function.body))


def _in_common(a: Site, b: Site) -> int:
    """How many steps the ways to two sites have in common."""
    pairs = zip(a.path, b.path, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda p: p[0].stmt is p[1].stmt and p[0].taken == p[1].taken, pairs))


def _one_of(function: Function, a: Site, b: Site) -> list[tuple[Expr, str]] | None:
    """The subscripts that data choose of the one element that `a` adds to, each with the variable of `b` that runs over all it
    may be; None where `b` does not follow, or does not add to all those elements.
    """
    depth = _in_common(a, b)
    if depth == 0 or len(b.path) <= depth or any(isinstance(s.stmt, For) for s in a.path[depth:]):
        return None
    inner = {s.stmt.var: s.stmt for s in b.path[depth:] if isinstance(s.stmt, For)}
    if len(inner) < len(b.path) - depth or a.path[depth - 1].at > b.path[depth - 1].at:
        return None
    which: list[tuple[Expr, str]] = []
    for i, j, extent in zip(a.store.index, b.store.index, function.array(a.store.array).shape, strict=True):
        loop = inner.pop(j.name, None) if isinstance(j, Ref) else None
        if loop is None:
            if fold(i) != fold(j) or free_names(j) & {f.var for f in b.loops[len(a.loops) :]}:
                return None
        elif ascending(loop) != (Affine((), 0), affine(extent), 1):
            return None
        else:
            which.append((i, loop.var))
    return None if inner or not which else which


def _merge(function: Function, target: str, names: Names) -> Function:
    """Let the last of several sites over the same elements add what the others would."""
    refused: set[tuple[int, int]] = set()
    while True:
        sites, settled = list(sites_of(function.body, target)), Settled(function)
        pairs = (
            (a, b)
            for k, a in enumerate(sites)
            for b in reversed(sites[k + 1 :])
            if (id(a.store), id(b.store)) not in refused
        )
        for a, b in pairs:
            changed = _merge_pair(function, settled, a, b, names)
            if changed is not None:
                function = changed
                break
            refused.add((id(a.store), id(b.store)))
        else:
            return function


def _merge_pair(function: Function, settled: Settled, a: Site, b: Site, names: Names) -> Function | None:
    depth = 0
    while depth < min(len(a.path), len(b.path)):
        left, right = a.path[depth], b.path[depth]
        if left.stmt is not right.stmt or left.taken != right.taken:
            break
        depth += 1
    own = [s.stmt for s in a.path[depth:] if isinstance(s.stmt, For)]
    other = [s.stmt for s in b.path[depth:]]
    if len(own) != len(other):
        return None
    renamed: dict[str, str] = {}
    for x, y in zip(own, other, strict=True):
        if not isinstance(y, For) or ascending(x) is None:
            return None
        if _renamed(ascending(x), renamed) != _renamed(ascending(y), {}):
            return None
        renamed[x.var] = y.var
    known: dict[str, Expr] = {n: Ref(v, INT64) for n, v in renamed.items()}
    if tuple(fold(substitute(i, known)) for i in a.store.index) != tuple(map(fold, b.store.index)):
        return None
    plain = all(f.var in _plain(a.store.index) for f in a.loops)
    if not plain:
        return None
    closure = Closure(a, depth, settled)
    if closure.spills or not closure.repeatable:
        return None
    statements, value = closure.repeat(known, names)
    edit = Edit({id(a.store): []})
    edit.instead[id(b.store)] = [
        *statements,
        accumulate_into(b.store.array, b.store.index, add(value, b.value), b.store),
    ]
    return replace(function, body=edit.apply(function.body))


def store_once(function: Function, target: str) -> Function:
    """Let an accumulation store, where it is the first that reaches the element: the array is filled with 0."""
    memory = Memory.of(function)
    sites = list(sites_of(function.body, target))
    stores = memory.touching(target, True)
    edit = Edit()
    first: list[Site] = []
    for site, own in zip(sites, stores, strict=True):
        if not any(memory.before(other, own) for other in stores):
            edit.instead[id(site.store)] = [replace(site.store, value=site.value)]
            first.append(site)
    arrays = function.arrays
    array = function.array(target)
    if array.role == "result" and any(_covers(function, s) for s in first):
        arrays = tuple(replace(a, fill=None) if a.name == target else a for a in arrays)
    return replace(function, body=edit.apply(function.body), arrays=arrays)


def _covers(function: Function, site: Site) -> bool:
    """Whether the site reaches every element of its array."""
    return not any(isinstance(s.stmt, If) for s in site.path) and reaches_all(function, site.store, site.loops)


def reaches_all(function: Function, store: Store, loops: Collection[For]) -> bool:
    """Whether a store in these loops, under no condition, reaches every element of its array."""
    shape = function.array(store.array).shape
    if len(loops) != len(shape):
        return False
    for loop in loops:
        bounds = ascending(loop)
        axis = next((k for k, i in enumerate(store.index) if i == Ref(loop.var, INT64)), None)
        if axis is None or bounds is None or bounds != (Affine((), 0), affine(shape[axis]), 1):
            return False
    return True
