"""Loops that stay in order around parallel ones: a nest taken apart into what runs once for each of their iterations.

`for t: (for i: ...); (for j: ...)` has no parallel loop outermost. For a fixed t its inner loops may well be parallel, so the
body becomes a function of its own, of which t is a scalar: that is analysed like any other, and repeated for every t. The
axes of the nest, whose iterations share nothing, go inside of t.

What a scalar held from one part to another is then an element of an array (for each point of the axes one), and so is what
t carries; an array that was fresh in every iteration of the axes or of t lies in memory for all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from weft.loops.affine import Affine, affine, is_bound
from weft.loops.ir import (
    Array,
    Assumption,
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
    bound_names,
    bound_scalars,
    checks_in,
    free_arrays,
    free_names,
    statement_exprs,
    substitute,
    substitute_statements,
    walk,
    walk_expr,
)
from weft.loops.names import Names, rename_array
from weft.loops.schedule import Axis, Nest
from weft.loops.types import BOOL, INT64, ScalarType


@dataclass(frozen=True)
class Part:
    """What `function` does, once, or once for every iteration of `loop` in order, whose variable is a scalar of it. Parts of
    one loop that follow each other run together in each. when: only where this condition on sizes, integers and variables of
    loops holds.
    """

    function: Function
    loop: Axis | None = None
    when: Expr | None = None


@dataclass(frozen=True)
class Apart:
    """A nest as parts that run one after another. memory: arrays that they share beside those of the nest's own function,
    none of which has values at first.
    """

    parts: tuple[Part, ...]
    memory: tuple[Array, ...]


def taken_apart(
    function: Function, nest: Nest, own: frozenset[str] = frozenset(), whole: frozenset[str] = frozenset()
) -> Apart | None:
    """The parts of a nest: one for each loop in its body that stays in order and has loops in it, and for what lies between
    these; without such a loop, all its statements one after another. None where that leaves it whole. own: local arrays that
    this nest alone touches. whole: loops, by their variables, that are parts of their own.
    """
    body = _branches_apart(function, nest.body)
    ordered = {s.var for s in body if isinstance(s, For) and s.var not in whole and _stays(function, nest, s)}
    effects = [s for s in body if not isinstance(s, Let)]
    if not ordered and len(effects) < 2:
        return None
    if any(not is_bound(e, _integers(function)) for a in nest.axes for e in (a.start, a.stop)):
        return None
    return _Taker(function, nest, body, ordered, whole, own=own).apart()


def with_folds(function: Function, nest: Nest, own: frozenset[str]) -> Apart | None:
    """The parts of a nest whose loops in order leave at points what statements after them fold at the same ones: those are one
    part with these, which need not be kept then. None where there are none. own: local arrays that this nest alone touches.
    """
    if any(not is_bound(e, _integers(function)) for a in nest.axes for e in (a.start, a.stop)):
        return None
    body, together = list(nest.body), set[int]()
    k = 0
    while k < len(body):
        loop = body[k]
        left = _stored((loop,)) & own
        if isinstance(loop, For) and left and _in_order(nest, loop):
            for s in body[k + 1 :]:
                between = body[k + 1 : next(j for j, x in enumerate(body) if x is s)]
                if _folds_at_points(s, left) and _are_apart(between, s):
                    body.remove(s)
                    k += 1
                    body.insert(k, s)
                    together.add(k)
        k += 1
    if not together:
        return None
    taker = _Taker(function, nest, tuple(body), set(), together=frozenset(together), own=own)
    return taker.apart()


def _in_order(nest: Nest, loop: For) -> bool:
    """Whether a loop is, or has in it, one that goes through its iterations in order, with loops in it."""
    inside = [s for s in walk((loop,)) if isinstance(s, For)]
    return any(nest.verdict(f).kind in ("scan", "sequential") and any(isinstance(s, For) for s in f.body) for f in inside)


def _folds_at_points(stmt: Stmt, left: Collection[str]) -> bool:
    """Whether a loop reads some of these arrays, each of them at points of its own loops alone."""
    variables = {s.var for s in walk((stmt,)) if isinstance(s, For)}
    exprs = (e for s in walk((stmt,)) for top in statement_exprs(s) for e in walk_expr(top))
    reads = [e for e in exprs if isinstance(e, Load) and e.array in left]
    plain = all(isinstance(i, Ref) for e in reads for i in e.index)
    return isinstance(stmt, For) and plain and any(free_names(i) & variables for e in reads for i in e.index)


def _are_apart(between: Iterable[Stmt], stmt: Stmt) -> bool:
    """Whether a statement may come before others."""
    touched = _arrays_of_all((stmt,))
    for other in between:
        if _stored((other,)) & touched or _stored((stmt,)) & _arrays_of_all((other,)) or {*bound_names(other)} & _used(stmt):
            return False
    return not checks_in((stmt,))


def _stored(statements: tuple[Stmt, ...]) -> set[str]:
    return {s.array for s in walk(statements) if isinstance(s, Store)}


def _arrays_of_all(statements: tuple[Stmt, ...]) -> set[str]:
    return {x for s in walk(statements) for x in _arrays_of(s)}


def expanded(function: Function, nest: Nest) -> Apart | None:
    """A nest whose loops in order around others keep in memory what a statement of an iteration makes for others, an element
    for each iteration: these may then be loops of their own. None where there is nothing of that kind.
    """
    ordered = {s.var for s in nest.body if isinstance(s, For) and _stays(function, nest, s)}
    if any(not is_bound(e, _integers(function)) for a in nest.axes for e in (a.start, a.stop)):
        return None
    return _Taker(function, nest, nest.body, ordered).expanded()


def one_after_another(function: Function, name: str, nests: Sequence[tuple[Stmt, ...]], memory: Sequence[Array]) -> Apart:
    """Loop nests as parts that run in this order. memory: what they tell each other through, none of which has values at first.
    """
    arrays = (*map(_lasting, function.arrays), *map(_lasting, memory))
    parts = (
        Part(replace(bare(function, nest), name=f"{name}_{k}" if len(nests) > 1 else name, arrays=arrays))
        for k, nest in enumerate(nests, 1)
    )
    return Apart(tuple(parts), tuple(memory))


def bare(function: Function, body: tuple[Stmt, ...]) -> Function:
    """These statements alone as a function, which has what a call of the whole one has checked."""
    return replace(
        function, parameters=(), body=body, results=(), numbers=(), container="", demands=(), joints=(), idle=(), widenings=(),
    )  # fmt: skip


def _integers(function: Function) -> set[str]:
    return {s.name for s in function.sizes} | {s.name for s in function.scalars if s.type == INT64}


def _stays(function: Function, nest: Nest, loop: For) -> bool:
    """Whether a loop runs in order around others, as often as is known before it starts."""
    if nest.verdict(loop).kind == "parallel" or not any(isinstance(s, For) for s in walk(loop.body)):
        return False
    return all(is_bound(e, _integers(function)) for e in (loop.start, loop.stop))


def _branches_apart(function: Function, body: tuple[Stmt, ...], others: Iterable[str] = ()) -> tuple[Stmt, ...]:
    """The statements, with a branch for each of those under a condition that sizes, scalars and others decide, where it has
    loops.
    """
    known = {s.name for s in function.sizes} | {s.name for s in function.scalars} | {*others}
    meanings: dict[str, Expr] = {}
    for s in body:
        if isinstance(s, Let) and not free_arrays(s.value) and free_names(s.value) <= known and not checks_in((s,)):
            known.add(s.name)
            meanings[s.name] = substitute(s.value, meanings)
    out: list[Stmt] = []
    for s in body:
        if isinstance(s, If):
            s = replace(s, condition=substitute(s.condition, meanings))
        steady = isinstance(s, If) and not free_arrays(s.condition) and free_names(s.condition) <= known
        if not steady or not isinstance(s, If) or s.merges or checks_in((replace(s, then=(), orelse=()),)):
            out.append(s)
            continue
        inner = (*s.then, *s.orelse)
        if not any(isinstance(x, For) for x in inner) or any(bound_names(x) for x in inner):
            out.append(s)
            continue
        contrary = Op("not", (s.condition,), BOOL)
        out += [replace(s, then=(x,), orelse=()) for x in s.then]
        out += [replace(s, condition=contrary, then=(x,), orelse=()) for x in s.orelse]
    return tuple(out)


@dataclass(frozen=True)
class _Unit:
    """Statements that stay together, in the axes of the nest. whole: they have loops over all they touch of their own. when: a
    condition under which alone they run.
    """

    statements: tuple[Stmt, ...]
    whole: bool = False
    when: Expr | None = None


@dataclass
class _Taker:
    function: Function
    nest: Nest
    body: tuple[Stmt, ...]
    ordered: set[str]
    whole: frozenset[str] = frozenset()  # loops that are parts of their own
    together: frozenset[int] = frozenset()  # statements that are one part with the one before
    own: frozenset[str] = frozenset()  # local arrays that the nest alone touches
    names: Names = field(init=False)
    memory: list[Array] = field(default_factory=list)
    cells: dict[str, Load] = field(default_factory=dict)  # names whose values lie in memory
    again: dict[str, Let] = field(default_factory=dict)  # names that every part may compute by itself

    def __post_init__(self) -> None:
        self.names = Names.of(self.function)
        around = {a.var for a in self.nest.axes}
        self.names.taken |= around | Names.of(replace(self.function, body=self.body)).taken
        # none of these is stored to
        self.steady = {a.name for a in self.function.arrays} - {s.array for s in walk(self.body) if isinstance(s, Store)}
        self.known = {s.name for s in self.function.sizes} | {s.name for s in self.function.scalars} | around | self.ordered
        self.moved: dict[str, Array] = {}
        self.checked = self.function.checked

    def apart(self) -> Apart | None:
        groups = [0]
        for k, (before, after) in enumerate(itertools.pairwise(self.body), 1):
            alone = not self.ordered or self.stands_alone(before) or self.stands_alone(after)
            groups.append(groups[-1] + (alone and k not in self.together))
        fills = self.lifted(groups)
        parts: list[Part] = []
        pending: list[_Unit] = list(fills[""])

        def flush() -> None:
            if pending:
                parts.append(self.part(pending, None))
                pending.clear()

        for item in self.units(self.body, groups):
            if isinstance(item, _Unit):
                alone = any(map(self.stands_alone, item.statements))
                if alone:
                    flush()
                pending.append(item)
                if alone or not self.ordered:
                    flush()
                continue
            starting, inside = self.step(item, fills.get(item.var, ()))
            pending += starting
            flush()
            for _, run in itertools.groupby(inside, lambda unit: unit.when):
                parts.append(self.part(list(run), item))
        flush()
        if len(parts) == 1 and parts[0].loop is None and len(parts[0].function.body) < 2:
            return None
        return Apart(tuple(self.named(parts)), tuple(self.memory))

    def expanded(self) -> Apart | None:
        body = tuple(self.stored(s) if isinstance(s, For) and self.is_ordered(s) else s for s in self.body)
        if not self.memory:
            return None
        self.ordered = set()  # no loop is taken away
        return Apart(tuple(self.named([self.part([_Unit(body)], None)])), tuple(self.memory))

    def stored(self, loop: For) -> For:
        """A loop in which statements leave in memory what later ones use of them."""
        axes = (*self.nest.axes, Axis(loop.var, loop.start, loop.stop, loop.step))
        known = self.known | {loop.var}
        for s in loop.body:
            if isinstance(s, Let) and not free_arrays(s.value) and free_names(s.value) <= known:
                known.add(s.name)
        body: list[Stmt] = []
        cells: dict[str, Expr] = {}
        for k, s in enumerate(loop.body):
            (stmt,) = substitute_statements((s,), cells)
            body.append(stmt)
            others = [t for t in loop.body[k + 1 :] if not (isinstance(s, Let) and isinstance(t, Let))]
            for name, type_ in bound_scalars(stmt):
                if name not in known and any(name in _used(t) for t in others):
                    cell = self.cell(name, type_, axes)
                    body.append(Store(cell.array, cell.index, Ref(name, type_)))
                    cells[name] = cell
        carries = tuple(replace(c, next=substitute(c.next, cells)) for c in loop.carries)
        return replace(loop, body=tuple(body), carries=carries)

    def named(self, parts: Sequence[Part]) -> Iterable[Part]:
        for k, part in enumerate(parts):
            alone = sum(other.loop == part.loop for other in parts) == 1
            number = () if alone else (str(k + 1),)
            name = "_".join((self.nest.name, *((part.loop.var,) if part.loop is not None else ()), *number))
            own = {s.name for s in self.memory}
            arrays = (*(a for a in self.function.arrays if a.name not in self.moved), *self.memory)
            arrays = tuple(replace(a, within=self.renamed_within(a, part.function)) if a.name not in own else a for a in arrays)
            elsewhere = {x for other in parts if other is not part for x in _arrays_of_all(other.function.body)}
            fresh = self.own - elsewhere if part.loop is None else frozenset[str]()
            arrays = tuple(a if a.name in fresh else _lasting(a) for a in arrays)
            yield replace(part, function=replace(part.function, name=name, arrays=arrays))

    def is_ordered(self, stmt: Stmt) -> bool:
        return isinstance(stmt, For) and stmt.var in self.ordered

    def stands_alone(self, stmt: Stmt) -> bool:
        return self.is_ordered(stmt) or (isinstance(stmt, For) and stmt.var in self.whole)

    # ---- memory

    def extents(self, axes: Iterable[Axis]) -> tuple[Expr, ...]:
        out = []
        for a in axes:
            low, high = (a.start, a.stop) if a.step > 0 else (a.stop, a.start)
            out.append(high if low == Const(0, INT64) else _tidy(Op("sub", (high, low), INT64)))
        return tuple(out)

    def places(self, axes: Iterable[Axis]) -> tuple[Expr, ...]:
        """The subscripts of what every point of the axes has one of."""
        out: list[Expr] = []
        for a in axes:
            here = Ref(a.var, INT64)
            if a.step > 0:
                out.append(here if a.start == Const(0, INT64) else _tidy(Op("sub", (here, a.start), INT64)))
            else:
                out.append(_tidy(Op("sub", (a.start, here), INT64)))
        return tuple(out)

    def cell(self, name: str, type_: ScalarType, axes: tuple[Axis, ...] | None = None) -> Load:
        """A place in memory for a scalar, which stands for it from now on; one for each point of the axes."""
        axes = self.nest.axes if axes is None else axes
        array = Array(self.names.fresh(name), type_, self.extents(axes), "inout")
        self.memory.append(array)
        return Load(array.name, self.places(axes), type_)

    def lifted(self, groups: Sequence[int]) -> dict[str, list[_Unit]]:
        """Arrays that are fresh in each iteration of the axes, or of a loop in order, as memory of all of the axes, where parts
        share them; the units that fill them, by the variable of the loop in whose iterations they are fresh. groups: of each
        statement.
        """
        axes = {a.var: a for a in self.nest.axes}
        touched = {x for s in walk(self.body) for x in _arrays_of(s)}
        fills: dict[str, list[_Unit]] = {"": []}
        for array in self.function.arrays:
            steps = [v for v in array.within if v in self.ordered]
            if not array.within or array.name not in touched or not {*array.within} <= axes.keys() | {*steps}:
                continue
            users = [k for k, s in enumerate(self.body) if array.name in _arrays_of_all((s,))]
            if len({groups[k] for k in users}) == 1 and (self.together or len(users) == 1) and not self.ordered:
                continue  # as fresh in that part
            own = [a for a in self.nest.axes if a.var in array.within]
            shape = (*self.extents(own), *array.shape)
            made = replace(array, name=self.names.fresh(array.name), shape=shape, role="inout", fill=None, within=(),
                           called=array.user_name, contiguous=True)  # fmt: skip
            self.memory.append(made)
            self.moved[array.name] = made
            if array.name in self.function.checked:
                self.checked |= {made.name}
            self.body = rename_array(self.body, array.name, made.name, self.places(own))
            if array.fill is not None:
                fills.setdefault(steps[0] if steps else "", []).append(self.filled(made, array.fill))
        return fills

    def filled(self, array: Array, value: Const) -> _Unit:
        variables = [self.names.fresh("k") for _ in array.shape]
        stmt: Stmt = Store(array.name, tuple(Ref(v, INT64) for v in variables), value, array.location)
        for v, extent in reversed(list(zip(variables, array.shape, strict=True))):
            stmt = For(v, Const(0, INT64), extent, 1, (), (stmt,), location=array.location)
        return _Unit((stmt,), whole=True)

    def renamed_within(self, array: Array, part: Function) -> tuple[str, ...]:
        """The loops around an array's creation, as they are in a part that touches it."""
        if not array.within:
            return ()
        inner = [v for v in array.within if v not in self.ordered]
        around = _loops_around(part.body, array.name)
        return tuple(self.renamings.get((around, v), v) for v in inner) if around is not None else tuple(inner)

    # ---- units

    def repeatable(self, stmt: Let) -> bool:
        """Whether every part that needs a value may compute it by itself: nothing stores to what it reads."""
        if checks_in((stmt,)) or not free_names(stmt.value) <= self.known | self.again.keys():
            return False
        own = {load.array for load in self.cells.values()}
        loads = [e for e in walk_expr(stmt.value) if isinstance(e, Load) and e.array not in own]
        steady = self.steady - self.checked
        return all(e.array in steady and all(affine(i) is not None for i in e.index) for e in loads)

    def units(
        self, body: tuple[Stmt, ...], groups: Sequence[int], conditions: Sequence[Expr | None] = (), ends: int = 0
    ) -> Iterator[For | _Unit]:
        """The statements in units, in order; a loop that stays in order as it is. groups: of each statement; what one of
        them makes and another uses lies in memory. conditions: those of branches that become units under them. ends: so
        many last ones stay together: they store to what others read.
        """
        users: dict[str, set[int]] = {}
        for k, s in enumerate(body):
            for name in _used(s):
                users.setdefault(name, set()).add(groups[k])
        tied: list[tuple[set[str], list[Stmt]]] = []  # the names that statements of the group make, and these
        kept: dict[str, Load] = {}
        for k, s in enumerate(body):
            if k and groups[k] != groups[k - 1]:
                yield from self.closed(tied, kept)
            if conditions and conditions[k] is not None:
                assert isinstance(s, If)
                yield _Unit(substitute_statements(s.then, dict(self.cells)), when=conditions[k])
                continue
            (stmt,) = substitute_statements((s,), dict(self.cells))
            ending = k >= len(body) - ends
            if isinstance(stmt, Let) and not ending and self.repeatable(stmt):
                self.again[stmt.name] = stmt
                continue
            if isinstance(stmt, For) and self.is_ordered(stmt):
                yield stmt  # whoever takes it says where the values are that it leaves
                continue
            made, stmts = set(bound_names(stmt)), [stmt]
            for name, type_ in bound_scalars(stmt):
                if users.get(name, set()) - {groups[k]}:
                    cell = kept[name] = self.cell(name, type_)
                    stmts.append(Store(cell.array, cell.index, Ref(name, type_)))
            needs = _used(stmt)
            first = next((j for j, (names, _) in enumerate(tied) if names & needs), len(tied))
            first = min(first, len(tied) - (ending and k > len(body) - ends))
            for names, before in reversed(tied[first:]):
                made |= names
                stmts = [*before, *stmts]
            tied[first:] = [(made, stmts)]
        yield from self.closed(tied, kept)

    def closed(self, tied: list[tuple[set[str], list[Stmt]]], kept: dict[str, Load]) -> Iterator[_Unit]:
        """The units of a group that ends, whose values others find in memory from now on."""
        units = [_Unit(tuple(stmts)) for _, stmts in tied]
        if self.together:
            units = [_Unit(tuple(s for unit in units for s in unit.statements))] if units else []
        tied.clear()
        self.cells |= kept
        kept.clear()
        yield from units

    def step(self, loop: For, fills: Sequence[_Unit]) -> tuple[list[_Unit], list[_Unit]]:
        """What is stored before a loop in order, and the units of one iteration of it."""
        cells = {c.name: self.cell(c.name, c.type) for c in loop.carries}
        before = [
            Store(cells[c.name].array, cells[c.name].index, substitute(c.init, dict(self.cells))) for c in loop.carries
        ]
        self.cells |= cells
        ends = [(c, cells[c.name]) for c in loop.carries if c.next != Ref(c.name, c.type)]
        names = [self.names.fresh(f"{c.name}_next") for c, _ in ends]
        lets: list[Stmt] = [Let(n, c.next) for n, (c, _) in zip(names, ends, strict=True)]
        stores = [Store(m.array, m.index, Ref(n, c.type)) for n, (c, m) in zip(names, ends, strict=True)]
        body = (*_branches_apart(self.function, loop.body, self.known), *lets, *stores)
        conditions = [self.condition(s) for s in body]
        groups = [0]
        for one, other in itertools.pairwise(conditions):
            groups.append(groups[-1] + (one is not None or other is not None))
        units = list(self.units(body, groups, conditions, len(lets) + len(stores)))
        self.cells |= {c.result: cells[c.name] for c in loop.carries}
        return ([_Unit(tuple(before))] if before else []), [*fills, *(u for u in units if isinstance(u, _Unit))]

    def condition(self, stmt: Stmt) -> Expr | None:
        """The condition of a branch with loops that is known before it runs."""
        if not isinstance(stmt, If) or stmt.orelse or stmt.merges or not any(isinstance(s, For) for s in stmt.then):
            return None
        known = {s.name for s in self.function.sizes} | self.ordered
        known |= {s.name for s in self.function.scalars if s.type in (INT64, BOOL)}
        whole = all(e.type in (INT64, BOOL) and not isinstance(e, Load) for e in walk_expr(stmt.condition))
        return stmt.condition if whole and free_names(stmt.condition) <= known else None

    # ---- the function of a part

    def part(self, units: Sequence[_Unit], loop: For | None) -> Part:
        body: list[Stmt] = []
        taken = False
        for unit in units:
            if unit.whole:
                body += unit.statements
                continue
            body += self.around(self.with_again(unit.statements), again=taken)
            taken = True
        own = replace(bare(self.function, tuple(body)), checked=self.checked)
        if loop is None:
            return Part(own, None, units[0].when)
        scalars, assumption = (*own.scalars, Scalar(loop.var, INT64)), _assumed(own.assumption, loop)
        axis = Axis(loop.var, loop.start, loop.stop, loop.step)
        return Part(replace(own, scalars=scalars, assumption=assumption), axis, units[0].when)

    def with_again(self, statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """The statements after what they need of the values that every part computes by itself."""
        own = {n for s in statements for n in bound_names(s)}
        needed = {n for s in statements for n in _used(s)} - own
        for let in reversed(list(self.again.values())):
            if let.name in needed:
                needed |= free_names(let.value)
        lets = [let for name, let in self.again.items() if name in needed]
        fresh: dict[str, Expr] = {let.name: Ref(self.names.fresh(let.name), let.value.type) for let in lets}
        copies = [replace(let, name=fresh[let.name].name, value=substitute(let.value, fresh)) for let in lets]  # type: ignore[union-attr]
        return (*copies, *substitute_statements(statements, fresh))

    renamings: dict[tuple[str, str], str] = field(default_factory=dict)

    def around(self, statements: tuple[Stmt, ...], again: bool) -> tuple[Stmt, ...]:
        """The statements in loops over the axes. again: other units of the part have these too."""
        if not self.nest.axes:
            return statements
        variables = {a.var: self.names.fresh(a.var) if again else a.var for a in self.nest.axes}
        body = substitute_statements(statements, {v: Ref(n, INT64) for v, n in variables.items() if v != n})
        for a in reversed(self.nest.axes):
            body = (For(variables[a.var], a.start, a.stop, a.step, (), body),)
        outermost = variables[self.nest.axes[0].var]
        self.renamings |= {(outermost, v): n for v, n in variables.items()}
        return body


def _loops_around(body: tuple[Stmt, ...], array: str) -> str | None:
    """The variable of the outermost loop in which an array is touched."""
    return next((s.var for s in body if isinstance(s, For) and any(array in _arrays_of(x) for x in walk((s,)))), None)


def _arrays_of(stmt: Stmt) -> set[str]:
    own = {stmt.array} if isinstance(stmt, Store) else set()
    return own.union(*(free_arrays(e) for e in statement_exprs(stmt)))


def _used(stmt: Stmt) -> set[str]:
    return {n for s in walk((stmt,)) for e in statement_exprs(s) for n in free_names(e)}


def _lasting(array: Array) -> Array:
    """An array of the nest's function as one of a part: it has values before, and they count after."""
    return array if array.role == "input" or array.within else replace(array, role="inout", fill=None)


def _tidy(expr: Expr) -> Expr:
    form = affine(expr)
    return expr if form is None else form.expr()


def _assumed(assumption: Assumption | None, loop: For) -> Assumption | None:
    """What is known of the variable of a loop in one of its iterations, and of other numbers."""
    here = Affine(((loop.var, 1),), 0)
    start, stop = affine(loop.start), affine(loop.stop)
    facts = [] if assumption is None else [f"({assumption.condition})"]
    for bound, compare in ((start, ">=" if loop.step > 0 else "<="), (stop, "<" if loop.step > 0 else ">")):
        if bound is not None:
            facts.append(f"{_text(here - bound)} {compare} 0")
    return Assumption(" and ".join(facts), ()) if facts else None


def _text(form: Affine) -> str:
    return " + ".join([*(f"{c} * {n}" for n, c in form.terms), str(form.constant)])
