"""Cells: array elements that a loop, or a list of statements, updates in place become scalars.

`y[i] += a[i, j] * x[j]` touches one element of y in every iteration of j: it is loaded before the loop, carried through it
as a scalar and stored after it, and what was a dependence through memory is a sum. That is exact where no other access in
these statements may touch the element, where the element lies in its array whenever the program as written would touch it,
and where storing it after the loop meets no other iteration of a parallel axis. isl decides all three.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.loops.accesses import Access, Guard, collect, unknown_ranges
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
    free_names,
    has_load,
    loaded_arrays,
    map_statement,
    rewrite,
    walk,
)
from weft.loops.names import Names, names_bound_in
from weft.loops.normalize import simplify
from weft.loops.polyhedra import Polyhedra
from weft.loops.rounding import Rounding
from weft.loops.types import BOOL, ScalarType

Subscript = tuple[Affine, ...]

ALWAYS = Const(True, BOOL)


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

    def access(self, loops: tuple[For, ...], guard: Guard, write: bool = False) -> Access:
        """The access to this element in these loops, where `guard` holds."""
        return Access(self.array, self.subscript, self.index, write, loops, guard, 0, None)


@dataclass(frozen=True)
class Promotion:
    """One scalar replacement that was made, for the explanation."""

    array: str
    what: str


def subscript_of(index: tuple[Expr, ...]) -> Subscript | None:
    forms = tuple(affine(i) for i in index)
    return None if None in forms else tuple(f for f in forms if f is not None)


def zero(type_: ScalarType) -> Const:
    return Const({"bool": False, "int": 0, "float": 0.0}[type_.category], type_)


def written(statements: tuple[Stmt, ...]) -> list[str]:
    """The arrays that statements store to, in the order of their first stores."""
    return list(dict.fromkeys(s.array for s in walk(statements) if isinstance(s, Store)))


# ---------------------------------------------------------------- what the call has checked


class Inside:
    """Whether an access stays inside its array, in a call that was accepted: none of the accesses that the program writes
    down leaves its array there, as far as sizes decide it.
    """

    def __init__(self, function: Function, polyhedra: Polyhedra) -> None:
        self.function, self.polyhedra = function, polyhedra
        self.accepted: dict[str, list[tuple[Access, int]]] = {}
        for access in collect(function.body):
            if access.array in function.checked:
                continue
            unknown = unknown_ranges(function, access)
            for axis, form in enumerate(access.subscript):
                if form is not None and not form.names & unknown:
                    self.accepted.setdefault(access.array, []).append((access, axis))

    def __call__(self, access: Access) -> bool:
        shape = self.function.array(access.array).shape
        accepted = tuple(dict.fromkeys(self.accepted.get(access.array, ())))
        accepted = tuple(sorted(accepted, key=lambda other: other[0].subscript != access.subscript))  # which settle it, mostly
        return not self.polyhedra.leaves(access, shape, accepted)


# ---------------------------------------------------------------- threading one cell through statements


class Thread:
    """Follows the value of one cell through statements in order.

    keep: leave the stores in place (their values get names); else they go, and a loop that stores gets a carry.
    """

    def __init__(self, cell: Cell, type_: ScalarType, names: Names, rounding: Rounding, keep: bool) -> None:
        self.cell, self.type, self.names, self.rounding, self.keep = cell, type_, names, rounding, keep

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
                    self.rounding.meanings[name] = (value,)
                    value = Ref(name, self.type)
                if self.keep:
                    out.append(replace(stmt, value=value))
                return out, self.rounding.stored(self.cell.array, value)
            case If():
                then, after_then = self.block(stmt.then, current)
                orelse, after_else = self.block(stmt.orelse, current)
                condition = self.expr(stmt.condition, current)
                merges = tuple(
                    replace(m, then=self.expr(m.then, after_then), orelse=self.expr(m.orelse, after_else)) for m in stmt.merges
                )
                if after_then is not after_else:
                    if after_then is None or after_else is None:
                        after: Expr | None = None
                    else:
                        name = self.names.fresh(self.cell.array)
                        merges = (*merges, Merge(name, after_then, after_else))
                        after = self.rounding.note(self.cell.array, name)
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
            inner = None if self.keep else self.rounding.note(self.cell.array, self.names.fresh(self.cell.array))
        body, after = self.block(stmt.body, inner)
        carries = [replace(c, init=init, next=self.expr(c.next, after)) for c, init in zip(stmt.carries, inits, strict=True)]
        if stored and isinstance(inner, Ref):
            assert current is not None and after is not None
            result = self.names.fresh(self.cell.array)
            carries.append(Carry(inner.name, current, after, result))
            current = self.rounding.note(self.cell.array, result)
        elif stored:
            current = None
        return [replace(stmt, start=start, stop=stop, carries=tuple(carries), body=body)], current


# ---------------------------------------------------------------- the pass


class Cells:
    """Promotes the cells in the statements of one nest.

    around: the loops around the statements (the nest's axes). alone: arrays that no other nest touches.
    """

    def __init__(
        self, function: Function, around: tuple[For, ...], alone: frozenset[str], names: Names, polyhedra: Polyhedra,
        inside: Inside,
    ) -> None:  # fmt: skip
        self.function, self.around, self.alone, self.names = function, around, alone, names
        self.polyhedra, self.inside = polyhedra, inside
        self.known = {s.name for s in function.sizes} | {s.name for s in function.scalars}
        self.nest: tuple[Access, ...] = ()  # the accesses of the nest: another iteration of an axis may do any of them
        self.rounding = Rounding.of(function, ())
        self.made: list[Promotion] = []
        self._last: tuple[tuple[Stmt, ...], tuple[For, ...], tuple[Access, ...], set[str]] = ((), (), (), set())

    def run(self, statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        self.nest = collect(statements, self.around)
        self.rounding = Rounding.of(self.function, statements)
        return self._block(statements, self.around, ())

    def _block(self, statements: tuple[Stmt, ...], loops: tuple[For, ...], guard: Guard) -> tuple[Stmt, ...]:
        for array in written(statements):
            for cell in self._candidates(statements, loops, array):
                statements = self._promote(statements, loops, guard, cell, whole=not guard) or statements
        out: list[Stmt] = []
        for stmt in statements:
            match stmt:
                case For():
                    out += self._loop(stmt, loops, guard)
                case If():
                    then = self._block(stmt.then, loops, (*guard, (stmt.condition, True)))
                    orelse = self._block(stmt.orelse, loops, (*guard, (stmt.condition, False)))
                    out.append(replace(stmt, then=then, orelse=orelse))
                case _:
                    out.append(stmt)
        return tuple(out)

    def _loop(self, loop: For, loops: tuple[For, ...], guard: Guard) -> tuple[Stmt, ...]:
        """A loop with its own cells loaded before it and stored after it, and its body's promoted in turn."""
        before: tuple[Stmt, ...] = ()
        after: tuple[Stmt, ...] = ()
        alone: tuple[Stmt, ...] = (loop,)
        for array in written(alone):
            for cell in self._candidates(alone, loops, array):
                pieces = self._promote(alone, loops, guard, cell, whole=False)
                if pieces is not None:
                    at = next(k for k, p in enumerate(pieces) if isinstance(p, For))
                    promoted = pieces[at]
                    assert isinstance(promoted, For)
                    before, loop, after = (*before, *pieces[:at]), promoted, (*pieces[at + 1 :], *after)
                    alone = (loop,)
        return (*before, replace(loop, body=self._block(loop.body, (*loops, loop), guard)), *after)

    def _candidates(self, statements: tuple[Stmt, ...], loops: tuple[For, ...], array: str) -> list[Cell]:
        """The elements of `array` that these statements store, a loop among them touches, and whose subscripts stay."""
        around = {f.var for f in loops}
        if not set(self.function.array(array).within) <= around:
            return []
        reached, bound = self._looked(statements, loops)
        accesses = [a for a in reached if a.array == array]
        found = []
        for subscript in dict.fromkeys(a.subscript for a in accesses if a.write and None not in a.subscript):
            cell = Cell(array, subscript)  # type: ignore[arg-type]
            own = [a for a in accesses if a.subscript == subscript]
            looped = any(len(a.loops) > len(loops) for a in own)
            if not cell.names & bound and looped and not self._stored_once(own, frozenset(around)):
                found.append(cell)
        return found

    def _looked(self, statements: tuple[Stmt, ...], loops: tuple[For, ...]) -> tuple[tuple[Access, ...], set[str]]:
        """The accesses of some statements and the names that they bind, asked for again for each of their arrays and cells."""
        if self._last[0] is not statements or self._last[1] is not loops:
            self._last = (statements, loops, collect(statements, loops), names_bound_in(statements))
        return self._last[2:]

    def _stored_once(self, accesses: list[Access], around: frozenset[str]) -> bool:
        """Whether these accesses to an element are one store of it at most: there is nothing to keep in a scalar."""
        if not all(a.write and a.guard for a in accesses):
            return False
        return not any(self.polyhedra.precedes(a, b, apart=False, shared=around) for a in accesses for b in accesses)

    def _promote(
        self, statements: tuple[Stmt, ...], loops: tuple[For, ...], guard: Guard, cell: Cell, whole: bool
    ) -> tuple[Stmt, ...] | None:
        """The statements with the cell in a scalar; None where that might change what they do.

        whole: they are all of the nest, or of a loop's body.
        """
        array = self.function.array(cell.array)
        type_ = array.dtype.opmath
        # whether the array's life is these statements: all of the nest, or all of the loop body that it is fresh in
        fresh = bool(array.within) and array.within[-1] == loops[-1].var
        life = whole and (fresh or (loops == self.around and cell.array in self.alone))
        dead_after = life and array.role == "local"
        valid = self._valid(statements, loops, guard, cell)
        if valid is None:
            return None
        condition = guard if valid == ALWAYS else (*guard, (valid, True))
        if not self._alone(statements, loops, condition, cell) or not (dead_after or self._apart(loops, condition, cell)):
            return None
        prefix: list[Stmt] = []
        if has_load(valid):  # the statements may store to what it reads
            name = self.names.fresh(f"{cell.array}_touched")
            prefix.append(Let(name, valid))
            valid = Ref(name, BOOL)
        if life and array.role in ("local", "result"):
            # nothing was stored before: the fill, or no value at all
            initial: Expr = zero(type_) if array.fill is None else self.rounding.filled(array)
        elif valid == ALWAYS:
            initial = Load(cell.array, cell.index, type_)
        else:
            initial = Op("where", (valid, Load(cell.array, cell.index, type_), zero(type_)), type_)
        if not isinstance(initial, Const):
            name = self.names.fresh(cell.array)
            prefix.append(Let(name, initial))
            initial = self.rounding.note(cell.array, name)
        body, value = Thread(cell, type_, self.names, self.rounding, keep=False).block(statements, initial)
        assert value is not None
        self.made.append(Promotion(cell.array, "an element kept in a scalar"))
        if dead_after:
            return (*prefix, *body)
        location = next(s.location for s in walk(statements) if isinstance(s, Store) and s.array == cell.array)
        store: Stmt = Store(cell.array, cell.index, value, location)
        if valid != ALWAYS:
            store = If(valid, (store,), (), (), location)
        return (*prefix, *body, store)

    def _alone(self, statements: tuple[Stmt, ...], loops: tuple[For, ...], guard: Guard, cell: Cell) -> bool:
        """Whether no other access in the statements may touch the cell."""
        probe = cell.access(loops, guard)
        shared = frozenset(f.var for f in loops)
        accesses, _ = self._looked(statements, loops)
        others = [a for a in accesses if a.array == cell.array and a.subscript != cell.subscript]
        return not any(self.polyhedra.meet(probe, other, shared) for other in others)

    def _apart(self, loops: tuple[For, ...], guard: Guard, cell: Cell) -> bool:
        """Whether no other iteration of a parallel axis touches the cell, now that it is stored wherever `guard` holds."""
        probe = cell.access(loops, guard, write=True)
        within = frozenset(self.function.array(cell.array).within)
        others = dict.fromkeys((probe, *(a for a in self.nest if a.array == cell.array)))
        for k, axis in enumerate(self.around):
            shared = frozenset(f.var for f in self.around[:k])
            if any(self.polyhedra.crossing(probe, other, axis, axis, axis, shared, within) for other in others):
                return False
        self.nest = (*self.nest, probe)
        return True

    def _valid(self, statements: tuple[Stmt, ...], loops: tuple[For, ...], guard: Guard, cell: Cell) -> Expr | None:
        """A condition, known before the statements, that holds wherever they touch the cell, and under which it lies in its
        array or the program as written would leave the array too.
        """
        decided = cell.names <= self.known | {f.var for f in loops}
        if decided and self.inside(cell.access(loops, guard)):
            return ALWAYS
        condition, surely = self._touched(statements, cell)
        if surely or (decided and self.inside(cell.access(loops, (*guard, (condition, True))))):
            return condition
        return None

    def _touched(self, statements: tuple[Stmt, ...], cell: Cell) -> tuple[Expr, bool]:
        """A condition that holds wherever the statements touch the cell, and whether they surely do where it holds."""
        touching = []
        for stmt in statements:
            if cell.array not in loaded_arrays((stmt,)) and cell.array not in written((stmt,)):
                continue
            own = [a for a in collect((stmt,)) if a.array == cell.array and a.subscript == cell.subscript]
            if any(not a.loops and not a.guard for a in own):
                return ALWAYS, True
            if own:
                touching.append(stmt)
        if len(touching) != 1 or not isinstance(touching[0], For):
            return ALWAYS, False
        loop = touching[0]
        if (free_names(loop.start) | free_names(loop.stop)) & names_bound_in(statements):
            return ALWAYS, False  # its range is not known before the statements
        condition = simplify(Op("lt", (loop.start, loop.stop) if loop.step > 0 else (loop.stop, loop.start), BOOL))
        inner, surely = self._touched(loop.body, cell)
        if inner == ALWAYS:
            return condition, surely
        if free_names(inner) & names_bound_in((loop,)) or has_load(inner):
            return condition, False
        return simplify(Op("and", (condition, inner), BOOL)), surely
