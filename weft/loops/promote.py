"""Scalar replacement: array elements that a loop carries become carried scalars, so that recurrences through memory are
seen for what they are, and what was just stored is not loaded again.

Three forms, each exact:
  cell        every access of an array in some statements names the same element: a scalar lives in its stead;
  recurrence  a loop stores one element an iteration and loads those of earlier iterations: `y[l - 1]` is a carry;
  forwarding  a load of what a statement or an earlier parallel loop stored takes the stored value itself.
A carried value is the op-math one: it is not rounded to the array's memory type on the way.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from weft.loops.accesses import Access, Guard, collect, rewrite_loads
from weft.loops.affine import Affine, affine
from weft.loops.ir import (
    Carry,
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
    Stmt,
    Store,
    bound_names,
    free_names,
    map_statement,
    rewrite,
    substitute,
    walk,
    walk_expr,
)
from weft.loops.normalize import simplify
from weft.loops.polyhedra import Polyhedra
from weft.loops.recurrences import definitions, expand, overwritten_after
from weft.loops.types import BOOL, ScalarType

Subscript = tuple[Affine, ...]

# A recurrence reaches back at most this many iterations.
_REACH = 4


@dataclass(frozen=True)
class Cell:
    """An array element: the array and its affine subscript."""

    array: str
    subscript: Subscript

    @property
    def index(self) -> tuple[Expr, ...]:
        return tuple(a.expr() for a in self.subscript)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(n for a in self.subscript for n in a.names)


@dataclass
class Names:
    """Fresh names for one function, made from the user's."""

    taken: set[str] = field(default_factory=set)

    @staticmethod
    def of(function: Function) -> Names:
        taken = (
            {s.name for s in function.sizes} | {s.name for s in function.scalars} | {a.name for a in function.arrays}
        )
        for stmt in walk(function.body):
            taken |= set(bound_names(stmt))
            if isinstance(stmt, For):
                taken |= {stmt.var, *(c.name for c in stmt.carries)}
        return Names(taken)

    def fresh(self, base: str) -> str:
        name, k = base, 0
        while name in self.taken:
            k += 1
            name = f"{base}_{k}"
        self.taken.add(name)
        return name


def subscript_of(index: tuple[Expr, ...]) -> Subscript | None:
    forms = tuple(affine(i) for i in index)
    return None if None in forms else tuple(f for f in forms if f is not None)


def zero(type_: ScalarType) -> Const:
    return Const({"bool": False, "int": 0, "float": 0.0}[type_.category], type_)


def touches(stmt: Stmt, array: str) -> bool:
    return any(a.array == array for a in collect((stmt,)))


def loaded_arrays(statements: tuple[Stmt, ...]) -> set[str]:
    return {a.array for a in collect(statements) if not a.write}


# ---------------------------------------------------------------- threading one cell through statements


class _Thread:
    """Follows the value of one cell through statements in order.

    keep: leave the stores in place (their values get names); else they go, and a loop that stores gets a carry.
    """

    def __init__(self, cell: Cell, type_: ScalarType, names: Names, keep: bool) -> None:
        self.cell, self.type, self.names, self.keep = cell, type_, names, keep

    def matches(self, array: str, index: tuple[Expr, ...]) -> bool:
        return array == self.cell.array and subscript_of(index) == self.cell.subscript

    def expr(self, e: Expr, current: Expr | None) -> Expr:
        if current is None:
            return e
        return rewrite(e, lambda x: current if isinstance(x, Load) and self.matches(x.array, x.index) else None)

    def block(self, statements: tuple[Stmt, ...], current: Expr | None) -> tuple[tuple[Stmt, ...], Expr | None]:
        out: list[Stmt] = []
        for stmt in statements:
            new, current = self.statement(stmt, current)
            out += new
        return tuple(out), current

    def statement(self, stmt: Stmt, current: Expr | None) -> tuple[list[Stmt], Expr | None]:
        match stmt:
            case Store() if self.matches(stmt.array, stmt.index):
                value = self.expr(stmt.value, current)
                out: list[Stmt] = []
                if not isinstance(value, (Ref, Const)):
                    name = self.names.fresh(self.cell.array)
                    out.append(Let(name, value, stmt.location))
                    value = Ref(name, self.type)
                if self.keep:
                    out.append(replace(stmt, value=value))
                return out, value
            case If():
                then, after_then = self.block(stmt.then, current)
                orelse, after_else = self.block(stmt.orelse, current)
                condition = self.expr(stmt.condition, current)
                merges = tuple(
                    replace(m, then=self.expr(m.then, after_then), orelse=self.expr(m.orelse, after_else))
                    for m in stmt.merges
                )
                if after_then is not after_else:
                    if after_then is None or after_else is None:
                        after: Expr | None = None
                    else:
                        name = self.names.fresh(self.cell.array)
                        merges = (*merges, Merge(name, after_then, after_else))
                        after = Ref(name, self.type)
                else:
                    after = after_then
                return [replace(stmt, condition=condition, then=then, orelse=orelse, merges=merges)], after
            case For():
                return self.loop(stmt, current)
        return [map_statement(stmt, lambda e: self.expr(e, current), lambda b: b)], current

    def loop(self, stmt: For, current: Expr | None) -> tuple[list[Stmt], Expr | None]:
        start, stop = self.expr(stmt.start, current), self.expr(stmt.stop, current)
        inits = [self.expr(c.init, current) for c in stmt.carries]
        stored = any(isinstance(s, Store) and self.matches(s.array, s.index) for s in walk(stmt.body))
        inner: Expr | None = current
        if stored:
            inner = None if self.keep else Ref(self.names.fresh(self.cell.array), self.type)
        body, after = self.block(stmt.body, inner)
        carries = [
            replace(c, init=init, next=self.expr(c.next, after)) for c, init in zip(stmt.carries, inits, strict=True)
        ]
        if stored and isinstance(inner, Ref):
            assert current is not None and after is not None
            result = self.names.fresh(self.cell.array)
            carries.append(Carry(inner.name, current, after, result))
            current = Ref(result, self.type)
        elif stored:
            current = None
        return [replace(stmt, start=start, stop=stop, carries=tuple(carries), body=body)], current


# ---------------------------------------------------------------- the pass


@dataclass(frozen=True)
class Promotion:
    """One scalar replacement that was made, for the explanation."""

    array: str
    what: str


class Promoter:
    """Scalar replacement in the statements of one nest.

    around: the loops around the statements (the nest's axes). alone: arrays that no other nest touches.
    """

    def __init__(self, function: Function, around: tuple[For, ...], alone: frozenset[str], names: Names) -> None:
        self.function, self.around, self.alone, self.names = function, around, alone, names
        self.polyhedra = Polyhedra(function)
        self.made: list[Promotion] = []

    def run(self, statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        statements = self.cells(statements, self.around)
        statements = self.recurrences(statements, self.around)
        statements = self.forward(statements, self.around)
        return tuple(self.name_overwritten(s) for s in statements)

    # ---- loads that the iteration overwrites later

    def name_overwritten(self, stmt: Stmt) -> Stmt:
        """Give a name to what a loop body loads before it stores to that array, apart from what is computed with it: an
        update `s + z[l]` of a carry can then be told at the end of the body, though z[l] is another by then.
        """
        if isinstance(stmt, If):
            then, orelse = (tuple(map(self.name_overwritten, b)) for b in (stmt.then, stmt.orelse))
            return replace(stmt, then=then, orelse=orelse)
        if not isinstance(stmt, For):
            return stmt
        body: list[Stmt] = []
        for s in map(self.name_overwritten, stmt.body):
            if isinstance(s, Let) and stmt.carries and not isinstance(s.value, Load):
                overwritten = set(overwritten_after(stmt.body, s.name))

                def rule(load: Load, guard: Guard, arrays: set[str] = overwritten, at: Let = s) -> Expr | None:
                    if guard or load.array not in arrays:
                        return None
                    name = self.names.fresh(load.array)
                    body.append(Let(name, load, load.location or at.location))
                    return Ref(name, load.type)

                s = replace(s, value=rewrite_loads(s.value, rule))
            body.append(s)
        return replace(stmt, body=tuple(body))

    # ---- cells

    def cells(self, statements: tuple[Stmt, ...], loops: tuple[For, ...]) -> tuple[Stmt, ...]:
        fixed = frozenset(f.var for f in loops)
        for array in self._written(statements):
            cell = self._single_cell(statements, loops, array, fixed)
            if cell is not None:
                statements = self._promote_cell(statements, loops, cell, whole=True)
        out: list[Stmt] = []
        for stmt in statements:
            pieces = [stmt]
            if isinstance(stmt, For):
                at = 0  # where the loop is among the pieces: promoting puts a load before it and a store after
                for array in self._written((stmt,)):
                    cell = self._single_cell((pieces[at],), loops, array, fixed)
                    if cell is not None:
                        pieces[at : at + 1] = self._promote_cell((pieces[at],), loops, cell, whole=False)
                        at = next(k for k, p in enumerate(pieces) if isinstance(p, For))
                loop = pieces[at]
                assert isinstance(loop, For)
                pieces[at] = replace(loop, body=self.cells(loop.body, (*loops, loop)))
            out += pieces
        return tuple(out)

    def _written(self, statements: tuple[Stmt, ...]) -> list[str]:
        return list(dict.fromkeys(s.array for s in walk(statements) if isinstance(s, Store)))

    def _single_cell(
        self, statements: tuple[Stmt, ...], loops: tuple[For, ...], array: str, fixed: frozenset[str]
    ) -> Cell | None:
        """The one element of `array` that these statements touch, if a loop among them touches it."""
        accesses = [a for a in collect(statements, loops) if a.array == array]
        if not any(len(a.loops) > len(loops) for a in accesses):
            return None
        within = self.function.array(array).within
        if any(v not in fixed for v in within):
            return None
        subscripts = {a.subscript for a in accesses}
        if len(subscripts) != 1 or None in next(iter(subscripts)):
            return None
        cell = Cell(array, next(iter(subscripts)))  # type: ignore[arg-type]
        bound = {n for s in walk(statements) for n in bound_names(s)}
        bound |= {s.var for s in walk(statements) if isinstance(s, For)}
        return None if cell.names & bound else cell

    def _promote_cell(
        self, statements: tuple[Stmt, ...], loops: tuple[For, ...], cell: Cell, whole: bool
    ) -> tuple[Stmt, ...]:
        array = self.function.array(cell.array)
        type_ = array.dtype.opmath
        # whether the array's life is these statements: all of the nest, or all of the loop body that it is fresh in
        fresh = bool(array.within) and array.within[-1] == loops[-1].var
        life = whole and (fresh or (loops == self.around and cell.array in self.alone))
        dead_after = life and array.role == "local"
        valid = self._valid(statements, loops, cell)
        if valid is None:
            return statements
        if life and array.role in ("local", "result"):
            # nothing was stored before: the fill, or no value at all
            initial: Expr = zero(type_) if array.fill is None else Const(array.fill.value, type_)
        elif valid == Const(True, BOOL):
            initial = Load(cell.array, cell.index, type_)
        else:
            initial = Op("where", (valid, Load(cell.array, cell.index, type_), zero(type_)), type_)
        prefix: list[Stmt] = []
        if not isinstance(initial, Const):
            name = self.names.fresh(cell.array)
            prefix.append(Let(name, initial))
            initial = Ref(name, type_)
        body, value = _Thread(cell, type_, self.names, keep=False).block(statements, initial)
        assert value is not None
        self.made.append(Promotion(cell.array, "an element kept in a scalar"))
        if dead_after:
            return (*prefix, *body)
        location = next(s.location for s in walk(statements) if isinstance(s, Store) and s.array == cell.array)
        store: Stmt = Store(cell.array, cell.index, value, location)
        if valid != Const(True, BOOL):
            store = If(valid, (store,), (), (), location)
        return (*prefix, *body, store)

    def _valid(self, statements: tuple[Stmt, ...], loops: tuple[For, ...], cell: Cell) -> Expr | None:
        """A condition, known before the statements, under which the cell lies in its array."""
        shape = self.function.array(cell.array).shape

        def inside(condition: Expr) -> bool:
            access = Access(cell.array, cell.subscript, cell.index, False, loops, ((condition, True),), 0, None)
            return self.polyhedra.outside(access, shape) is None

        always = Const(True, BOOL)
        if inside(always):
            return always
        for stmt in statements:
            if isinstance(stmt, Store) and stmt.array == cell.array:
                return always  # it is accessed whatever else happens
            if isinstance(stmt, For) and touches(stmt, cell.array):
                ends = (stmt.start, stmt.stop) if stmt.step > 0 else (stmt.stop, stmt.start)
                condition = simplify(Op("lt", ends, BOOL))
                return condition if inside(condition) else None
        return None

    # ---- recurrences

    def recurrences(self, statements: tuple[Stmt, ...], loops: tuple[For, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for stmt in statements:
            match stmt:
                case For():
                    stmt = replace(stmt, body=self.recurrences(stmt.body, (*loops, stmt)))
                    for array in self._written(stmt.body):
                        stmt = self._recurrence(stmt, loops, array)
                case If():
                    then, orelse = self.recurrences(stmt.then, loops), self.recurrences(stmt.orelse, loops)
                    stmt = replace(stmt, then=then, orelse=orelse)
            out.append(stmt)
        return tuple(out)

    def _recurrence(self, loop: For, loops: tuple[For, ...], array: str) -> For:
        accesses = [a for a in collect(loop.body, (*loops, loop)) if a.array == array]
        stores = [a for a in accesses if a.write]
        if len(stores) == len(accesses):
            return loop
        subscripts = {a.subscript for a in stores}
        if len(subscripts) != 1 or None in stores[0].subscript or any(len(a.loops) > len(loops) + 1 for a in stores):
            return loop
        target = Cell(array, stores[0].subscript)  # type: ignore[arg-type]
        inner = {n for s in loop.body for n in bound_names(s)}
        if loop.var not in target.names or target.names & inner:
            return loop
        reaches: dict[int, list[Access]] = {}
        for access in accesses:
            distance = self._distance(access, target, loop)
            if not access.write and distance:
                reaches.setdefault(distance, []).append(access)
        type_ = self.function.array(array).dtype.opmath
        thread = _Thread(target, type_, self.names, keep=True)
        body, stored = thread.block(loop.body, None)
        if not reaches or stored is None:
            # no recurrence, but what an iteration stores it need not load again
            return replace(loop, body=body, carries=self._threaded_carries(thread, loop, stored))
        initials = [self._initial(loop, loops, target, k, reaches) for k in range(1, max(reaches) + 1)]
        if any(i is None for i in initials):
            return loop
        previous = [self.names.fresh(f"{array}_previous") for _ in initials]

        def read(e: Expr) -> Expr | None:
            if isinstance(e, Load) and e.array == array:
                form = subscript_of(e.index)
                if form is not None:
                    distance = _steps_back(form, target.subscript, loop)
                    if distance and distance in reaches:
                        return Ref(previous[distance - 1], type_)
            return None

        def block(inner_statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
            return tuple(map_statement(s, lambda e: rewrite(e, read), block) for s in inner_statements)

        carries = [replace(c, next=rewrite(c.next, read)) for c in self._threaded_carries(thread, loop, stored)]
        for k, (name, initial) in enumerate(zip(previous, initials, strict=True)):
            assert initial is not None
            after = rewrite(stored, read) if k == 0 else Ref(previous[k - 1], type_)
            carries.append(Carry(name, initial, after, self.names.fresh(f"{array}_last")))
        self.made.append(Promotion(array, f"the elements of {max(reaches)} earlier iteration(s) kept in scalars"))
        return replace(loop, body=block(body), carries=tuple(carries))

    @staticmethod
    def _threaded_carries(thread: _Thread, loop: For, stored: Expr | None) -> tuple[Carry, ...]:
        return tuple(replace(c, next=thread.expr(c.next, stored)) for c in loop.carries)

    @staticmethod
    def _distance(access: Access, target: Cell, loop: For) -> int | None:
        if None in access.subscript:
            return None
        return _steps_back(access.subscript, target.subscript, loop)  # type: ignore[arg-type]

    def _initial(
        self, loop: For, loops: tuple[For, ...], target: Cell, k: int, reaches: dict[int, list[Access]]
    ) -> Expr | None:
        """The element of k iterations before the first, guarded so that it is loaded only where the loop would."""
        start = affine(loop.start)
        if start is None:
            return None
        shift = start + Affine((), -k * loop.step)
        subscript = tuple(
            Affine.make({n: c for n, c in a.terms if n != loop.var}, a.constant) + shift * a.coefficient(loop.var)
            for a in target.subscript
        )
        type_ = self.function.array(target.array).dtype.opmath
        cell = Cell(target.array, subscript)
        # iteration number j (from 0) reaches it if it looks k + j back
        wanted: Expr | None = None
        for distance, accesses in reaches.items():
            if distance < k:
                continue
            at = (start + Affine((), (distance - k) * loop.step)).expr()
            order = (at, loop.stop) if loop.step > 0 else (loop.stop, at)
            for access in accesses:
                condition: Expr = Op("lt", order, BOOL)
                for guard, holds in access.guard:
                    here = simplify(substitute(guard, {loop.var: at}))
                    if free_names(here) <= self._outer_names(loops) and not any(
                        isinstance(e, Load) for e in walk_expr(here)
                    ):
                        condition = Op("and", (condition, here if holds else Op("not", (here,), BOOL)), BOOL)
                condition = simplify(condition)
                wanted = condition if wanted is None else Op("or", (wanted, condition), BOOL)
        if wanted is None or wanted == Const(False, BOOL):
            return zero(type_)
        wanted = simplify(wanted)
        shape = self.function.array(target.array).shape
        probe = Access(target.array, subscript, cell.index, False, loops, ((wanted, True),), 0, None)
        if self.polyhedra.outside(probe, shape) is not None:
            return None
        load = Load(target.array, cell.index, type_)
        always = Access(target.array, subscript, cell.index, False, loops, (), 0, None)
        if self.polyhedra.outside(always, shape) is None:
            return load
        return Op("where", (wanted, load, zero(type_)), type_)

    def _outer_names(self, loops: tuple[For, ...]) -> set[str]:
        names = {s.name for s in self.function.sizes} | {s.name for s in self.function.scalars}
        return names | {f.var for f in loops}

    # ---- forwarding

    def forward(self, statements: tuple[Stmt, ...], loops: tuple[For, ...]) -> tuple[Stmt, ...]:
        available: dict[Cell, Expr] = {}
        filled: list[tuple[For, Store]] = []  # parallel loops that stored a pure value at every iteration
        out: list[Stmt] = []

        def read(e: Expr, around: tuple[For, ...]) -> Expr:
            def rule(x: Load, guard: Guard) -> Expr | None:
                form = subscript_of(x.index)
                if form is None:
                    return None
                if Cell(x.array, form) in available:
                    return available[Cell(x.array, form)]
                return self._from_filled(x, form, filled, around, guard)

            return rewrite_loads(e, rule)

        for position, stmt in enumerate(statements):
            match stmt:
                case Store():
                    value = read(stmt.value, loops)
                    index = tuple(read(i, loops) for i in stmt.index)
                    form = subscript_of(index)
                    available = {c: v for c, v in available.items() if not _may_meet(c, stmt.array, form)}
                    filled = [f for f in filled if f[1].array != stmt.array]
                    if form is not None and stmt.array in loaded_arrays(statements[position + 1 :]):
                        if not isinstance(value, (Ref, Const)):
                            name = self.names.fresh(stmt.array)
                            out.append(Let(name, value, stmt.location))
                            value = Ref(name, value.type)
                        available[Cell(stmt.array, form)] = value
                    out.append(replace(stmt, index=index, value=value))
                case For() if not self._reads_what_it_writes(stmt, loops):
                    filled_here = list(filled)

                    def inner(body: tuple[Stmt, ...], around: tuple[For, ...]) -> tuple[Stmt, ...]:
                        done: list[Stmt] = []
                        for s in body:
                            deeper = (*around, s) if isinstance(s, For) else around
                            done.append(
                                map_statement(s, lambda e, a=around: read(e, a), lambda b, d=deeper: inner(b, d))  # type: ignore[misc]
                            )
                        return tuple(done)

                    carries = tuple(
                        replace(c, init=read(c.init, loops), next=read(c.next, (*loops, stmt))) for c in stmt.carries
                    )
                    stmt = replace(stmt, carries=carries, body=inner(stmt.body, (*loops, stmt)))
                    for array in self._written((stmt,)):
                        available = {c: v for c, v in available.items() if c.array != array}
                        filled = [f for f in filled_here if f[1].array != array]
                        filled_here = filled
                    filled += self._fills(stmt)
                    out.append(stmt)
                case _:
                    if isinstance(stmt, Let):
                        stmt = replace(stmt, value=read(stmt.value, loops))
                    elif isinstance(stmt, If):  # what it merges may be what its branches stored
                        stmt = replace(stmt, condition=read(stmt.condition, loops))
                    elif isinstance(stmt, For):
                        carries = tuple(replace(c, init=read(c.init, loops)) for c in stmt.carries)
                        stmt = replace(stmt, carries=carries)
                    for array in self._written((stmt,)):
                        available = {c: v for c, v in available.items() if c.array != array}
                        filled = [f for f in filled if f[1].array != array]
                    out.append(stmt)
        return tuple(out)

    def _reads_what_it_writes(self, loop: For, loops: tuple[For, ...]) -> bool:
        """Whether a load in the loop may see what another of its iterations, or an earlier statement of this one, stored."""
        accesses = collect(loop.body, (*loops, loop))
        for a in accesses:
            for b in accesses:
                if a.array != b.array or a.write or not b.write:
                    continue
                within = frozenset(self.function.array(a.array).within)
                if self.polyhedra.carried(a, b, loop, within) is not None:
                    return True
                if b.position < a.position:
                    return True
        return False

    def _fills(self, loop: For) -> list[tuple[For, Store]]:
        """The stores of a loop whose value is a pure function of its variable and of arrays that the nest never writes."""
        if loop.carries or abs(loop.step) != 1:
            return []
        found = []
        count: dict[str, int] = {}
        for s in walk(loop.body):
            if isinstance(s, Store):
                count[s.array] = count.get(s.array, 0) + 1
        for s in loop.body:
            if not isinstance(s, Store) or count[s.array] != 1:
                continue
            form = subscript_of(s.index)
            if form is None or not any(abs(a.coefficient(loop.var)) == 1 for a in form):
                continue
            lets = definitions(loop.body)
            value = expand(s.value, lets, set(lets))
            loaded = {e.array for e in walk_expr(value) if isinstance(e, Load)}
            inner = {n for b in loop.body for n in bound_names(b)}
            if all(self.function.array(n).role == "input" for n in loaded) and not free_names(value) & inner:
                found.append((loop, replace(s, value=value)))
        return found

    def _from_filled(
        self, load: Load, form: Subscript, filled: list[tuple[For, Store]], around: tuple[For, ...], guard: Guard
    ) -> Expr | None:
        for loop, store in filled:
            if store.array != load.array:
                continue
            target = subscript_of(store.index)
            assert target is not None
            at = _solve(form, target, loop.var)
            if at is None:
                continue
            ends = (loop.start, loop.stop) if loop.step > 0 else (loop.stop, loop.start)
            shift = 0 if loop.step > 0 else 1
            low, high = affine(ends[0]), affine(ends[1])
            if low is None or high is None:
                continue
            if self._always_between(at, low + Affine((), shift), high + Affine((), shift), around, guard):
                return substitute(store.value, {loop.var: at.expr()})
        return None

    def _always_between(self, at: Affine, low: Affine, high: Affine, around: tuple[For, ...], guard: Guard) -> bool:
        probe = Access("", (at - low,), (), False, around, guard, 0, None)
        return self.polyhedra.outside(probe, ((high - low).expr(),)) is None


def _steps_back(form: Subscript, target: Subscript, loop: For) -> int | None:
    """d in 0 .. reach such that `form` in an iteration is `target` d iterations earlier; None if there is none."""
    for distance in range(_REACH + 1):
        moved = tuple(a + Affine((), a.coefficient(loop.var) * loop.step * distance) for a in form)
        if moved == target:
            return distance
    return None


def _solve(form: Subscript, target: Subscript, var: str) -> Affine | None:
    """The value of `var` for which target == form, if there is one and it is unique."""
    for f, t in zip(form, target, strict=True):
        c = t.coefficient(var)
        if abs(c) == 1:
            rest = Affine.make({n: k for n, k in t.terms if n != var}, t.constant)
            at = (f - rest) * c
            matched = tuple(
                Affine.make({n: k for n, k in u.terms if n != var}, u.constant) + at * u.coefficient(var)
                for u in target
            )
            return at if matched == form else None
    return None


def _may_meet(cell: Cell, array: str, form: Subscript | None) -> bool:
    if cell.array != array or form is None:
        return cell.array == array
    for a, b in zip(cell.subscript, form, strict=True):
        difference = a - b
        if not difference.terms and difference.constant:
            return False
    return True
