"""Scalar replacement: array elements that a loop carries become carried scalars, so that recurrences through memory are
seen for what they are, and what was just stored is not loaded again.

Three forms, each exact:
  cell        an element that a loop updates in place lives in a scalar meanwhile (weft.loops.cells);
  recurrence  a loop stores one element an iteration and loads those of earlier iterations: `y[l - 1]` is a carry;
  forwarding  a load of what a statement or an earlier parallel loop stored takes the stored value itself.
A value that was stored is what the array holds of it: rounded to its memory type (weft.loops.rounding).
"""

from __future__ import annotations

from dataclasses import replace

from weft.loops.accesses import Access, Guard, collect, rewrite_loads
from weft.loops.affine import Affine, affine
from weft.loops.algebra.recurrences import definitions, expand, overwritten_after
from weft.loops.cells import Cell, Cells, Inside, Promotion, Subscript, Thread, subscript_of, written, zero
from weft.loops.ir import (
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
    Stmt,
    Store,
    free_names,
    loaded_arrays,
    map_statement,
    rewrite,
    statement_exprs,
    substitute,
    walk,
    walk_expr,
)
from weft.loops.names import Names, names_bound_in
from weft.loops.normalize import fold_names, simplify
from weft.loops.polyhedra import Polyhedra
from weft.loops.rounding import Rounding
from weft.loops.types import BOOL
from weft.loops.unused import dropped

# A recurrence reaches back at most this many iterations.
_REACH = 4


# ---------------------------------------------------------------- the pass


class Promoter:
    """Scalar replacement in the statements of one nest.

    around: the loops around the statements (the nest's axes). alone: arrays that no other nest touches.
    """

    def __init__(self, function: Function, around: tuple[For, ...], alone: frozenset[str], names: Names) -> None:
        self.function, self.around, self.alone, self.names = function, around, alone, names
        self.polyhedra = Polyhedra(function)
        self.inside = Inside(function, self.polyhedra)
        self.rounding = Rounding.of(function, ())
        self.made: list[Promotion] = []

    def run(self, statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        cells = Cells(self.function, self.around, self.alone, self.names, self.polyhedra, self.inside)
        statements = cells.run(statements)
        if cells.made:  # a branch that stored to a cell may now be a choice of values, without what it stored over
            self.function = dropped(replace(self.function, body=statements), self.around, self.names)
            statements = fold_names(self.function.body, {}, self.function.checked)
        self.made += cells.made
        self.rounding = Rounding.of(self.function, statements)
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
            elif isinstance(s, If) and stmt.carries and s.merges:
                loaded = {e.array for e in walk_expr(s.condition) if isinstance(e, Load)}
                if loaded & {x.array for x in walk(stmt.body) if isinstance(x, Store)}:
                    name = self.names.fresh("chosen")
                    body.append(Let(name, s.condition, s.location))
                    s = replace(s, condition=Ref(name, BOOL))
            body.append(s)
        return replace(stmt, body=tuple(body))

    # ---- recurrences

    def recurrences(self, statements: tuple[Stmt, ...], loops: tuple[For, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for stmt in statements:
            match stmt:
                case For():
                    stmt = replace(stmt, body=self.recurrences(stmt.body, (*loops, stmt)))
                    for array in _stored_and_loaded(stmt.body):
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
        bound = names_bound_in(loop.body) | {c.name for c in loop.carries}
        if loop.var not in target.names or target.names & bound:
            return loop
        reaches: dict[int, list[Access]] = {}
        for access in accesses:
            distance = self._distance(access, target, loop)
            if not access.write and distance:
                reaches.setdefault(distance, []).append(access)
        type_ = self.function.array(array).dtype.opmath
        thread = Thread(target, type_, self.names, self.rounding, keep=True)
        body, stored = thread.block(loop.body, None)
        if not reaches or stored is None:
            # no recurrence, but what an iteration stores it need not load again
            made = replace(loop, body=body, carries=self._threaded_carries(thread, loop, stored))
            by_data = bool(target.names - self._outer_names((*loops, loop)))
            return loop if by_data and _loads_of(made, array) == _loads_of(loop, array) else made
        initials = [self._initial(loop, loops, target, k, reaches) for k in range(1, max(reaches) + 1)]
        if any(i is None for i in initials):
            return loop
        previous = [self.names.fresh(f"{array}_previous") for _ in initials]
        for name in previous:
            self.rounding.note(array, name)

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
    def _threaded_carries(thread: Thread, loop: For, stored: Expr | None) -> tuple[Carry, ...]:
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
                    if free_names(here) <= self._outer_names(loops) and not any(isinstance(e, Load) for e in walk_expr(here)):
                        condition = Op("and", (condition, here if holds else Op("not", (here,), BOOL)), BOOL)
                condition = simplify(condition)
                wanted = condition if wanted is None else Op("or", (wanted, condition), BOOL)
        if wanted is None or wanted == Const(False, BOOL):
            return zero(type_)
        wanted = simplify(wanted)
        if not self.inside(cell.access(loops, ((wanted, True),))):
            return None
        load = Load(target.array, cell.index, type_)
        if self.inside(cell.access(loops, ())):
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
                    available = {c: v for c, v in available.items() if not may_meet(c, stmt.array, form)}
                    filled = [f for f in filled if f[1].array != stmt.array]
                    if form is not None and stmt.array in loaded_arrays(statements[position + 1 :]):
                        if not isinstance(value, (Ref, Const)):
                            name = self.names.fresh(stmt.array)
                            out.append(Let(name, value, stmt.location))
                            self.rounding.meanings[name] = (value,)
                            value = Ref(name, value.type)
                        available[Cell(stmt.array, form)] = self.rounding.stored(stmt.array, value)
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
                    for array in written((stmt,)):
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
                    for array in written((stmt,)):
                        available = {c: v for c, v in available.items() if c.array != array}
                        filled = [f for f in filled if f[1].array != array]
                    out.append(stmt)
        return tuple(out)

    def _reads_what_it_writes(self, loop: For, loops: tuple[For, ...]) -> bool:
        """Whether a load in the loop may see what another of its iterations, or an earlier statement of this one, stored: of
        its body, and of what it carries on.
        """
        accesses = [a for a in collect((loop,), loops) if any(f.var == loop.var for f in a.loops)]
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
            inner = names_bound_in(loop.body)
            used = free_names(value) | {n for a in form for n in a.names}
            if all(self.function.array(n).role == "input" for n in loaded) and not used & inner:
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
                return self.rounding.stored(store.array, substitute(store.value, {loop.var: at.expr()}))
        return None

    def _always_between(self, at: Affine, low: Affine, high: Affine, around: tuple[For, ...], guard: Guard) -> bool:
        probe = Access("", (at - low,), (), False, around, guard, 0, None)
        return self.polyhedra.surely_inside(probe, ((high - low).expr(),))


def _stored_and_loaded(body: tuple[Stmt, ...]) -> list[str]:
    """The arrays that the body of a loop stores to, though not in a loop inside it, and that it loads from."""
    deeper = {array for s in walk(body) if isinstance(s, For) for array in written(s.body)}
    return [array for array in written(body) if array in loaded_arrays(body) - deeper]


def _loads_of(loop: For, array: str) -> int:
    exprs = (e for s in walk((loop,)) for e in statement_exprs(s))
    return sum(isinstance(x, Load) and x.array == array for e in exprs for x in walk_expr(e))


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
                Affine.make({n: k for n, k in u.terms if n != var}, u.constant) + at * u.coefficient(var) for u in target
            )
            return at if matched == form else None
    return None


def may_meet(cell: Cell, array: str, form: Subscript | None) -> bool:
    """Whether a store to this element of an array (None: to any) may be to the cell."""
    if cell.array != array or form is None:
        return cell.array == array
    for a, b in zip(cell.subscript, form, strict=True):
        difference = a - b
        if not difference.terms and difference.constant:
            return False
    return True
