"""The function's values in its adjoint: read from what was returned, from local copies, or from arrays that save them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

from weft.errors import Location, NotDifferentiable
from weft.loops.adjoint.facts import Facts
from weft.loops.adjoint.frame import frame
from weft.loops.adjoint.scope import RETURNED, Lost, Scope, returned, without_bound
from weft.loops.extents import expanded, expanded_index, extents
from weft.loops.ir import (
    FALSE,
    Array,
    Carry,
    Const,
    Expr,
    For,
    Function,
    Let,
    Load,
    Op,
    Ref,
    Round,
    Stmt,
    Store,
    bound_names,
    loaded_arrays,
    name_of,
    operands,
    substitute,
    with_operands,
)
from weft.loops.names import Names
from weft.loops.simplify import base_name, fold, number, select
from weft.loops.types import BOOL, INT64, ScalarType

# A carried value is computed again from what the iteration before stored and read where that takes at most as many operations
# and loads, a name that is used twice counted twice; else it is saved.
_MOST_READ_BACK = 64


class Values:
    """The function's values, wherever the adjoint asks for them."""

    def __init__(self, facts: Facts, names: Names) -> None:
        self.facts, self.names = facts, names
        self.frame = frame(facts.function, facts.wanted, facts.seeded, names)
        self.arrays = [*self.frame.function.arrays]
        self.owner: dict[str, str] = {}  # the function's array that a copy or an adjoint stands for
        self.sums: list[str] = []  # adjoints of arrays that start as zero and are added to alone
        self.handed: dict[str, str] = {}  # where something was handed to the elements that save a scalar, by their adjoint
        self.tapes: dict[str, tuple[str, tuple[For, ...]]] = {}
        self.asked: dict[Expr, Location | None] = {}  # sizes above 0, without which no tape's size were known
        self.broken: dict[str, Lost] = {}
        self.temporary: set[str] = set()
        self.rounded: dict[str, ScalarType] = {}  # names that are bound to numbers of such a type, exactly
        self.location: Location | None = None  # of the statement that is looked at

    def _within(self, array: Array, scope: Scope) -> tuple[str, ...]:
        return tuple(name_of(scope.names[v]) for v in array.within)

    def _copy_array(self, name: str, scope: Scope) -> str:
        """A local array with the life of an array of the function."""
        array = self.facts.arrays[name]
        fresh = self.names.fresh(f"{name}_again")
        within = self._within(array, scope)
        self.arrays.append(replace(array, name=fresh, role="local", within=within))
        self.owner[fresh] = name
        return fresh

    def _adjoint_array(self, name: str, scope: Scope) -> str:
        array = self.facts.arrays[name]
        type_ = array.dtype.opmath
        fresh = self.names.fresh(f"d_{name}")
        self.owner[fresh] = name
        whole = array.role == "result" and self.facts.kept[name] == "copied"
        if self.facts.kept[name] == "once":
            self.sums.append(fresh)
            if array.saves:
                there = self.handed[fresh] = self.names.fresh(f"{fresh}_there")
                self.owner[there] = name
                self.arrays.append(Array(there, BOOL, array.shape, "local", FALSE))
        fill = None if whole else number(0, type_)
        self.arrays.append(Array(fresh, type_, array.shape, "local", fill, self._within(array, scope)))
        return fresh

    def _bind(self, value: Expr, name: str, out: list[Stmt]) -> Expr:
        if isinstance(value, (Ref, Const)):
            return value
        fresh = self.names.fresh(name)
        self.temporary.add(fresh)
        if isinstance(value, Round):
            self.rounded[fresh] = value.to
        out.append(Let(fresh, value, self.location))
        return Ref(fresh, value.type)

    def primal(self, e: Expr, scope: Scope) -> Expr:
        """An expression of the function, evaluated in the adjoint."""
        match e:
            case Ref(name=name):
                return scope.names.get(name, e)
            case Load():
                index = tuple(self.primal(i, scope) for i in e.index)
                source = self._source(e, scope)
                if source is None:
                    return self._unavailable(e)
                return replace(e, array=source, index=index)
        old = operands(e)
        new = tuple(self.primal(o, scope) for o in old)
        return with_operands(e, new) if any(a is not b for a, b in zip(old, new, strict=True)) else e

    def _source(self, load: Load, scope: Scope) -> str | None:
        """The array of the adjoint that holds what a load of the function yields."""
        array = load.array
        if array.startswith(RETURNED):
            return self.frame.saved[array.removeprefix(RETURNED)]
        if self.facts.arrays[array].role == "input":
            return array
        if array in self.frame.saved and (array not in self.facts.written or (array, load.index) in self.facts.final):
            return self.frame.saved[array]
        if array in scope.sweeping or (array, load.index) in self.facts.final:
            return scope.copies.get(array)
        return None

    def _unavailable(self, load: Load) -> Expr:
        array = self.facts.arrays[load.array]
        if array.name in self.facts.written:
            why = f"an element of {array.name} is read here and overwritten later"
            return self._lost(Lost(why, load.location), load.type)
        if array.fill is not None:
            return Const(array.fill.value, load.type)
        return self._lost(Lost(f"no element of {array.name} is ever stored", load.location), load.type)

    def _lost(self, lost: Lost, type_: ScalarType) -> Expr:
        """A value that cannot be had: an error, should the gradient turn out to need it."""
        name = self.names.fresh("lost")
        self.arrays.append(Array(name, type_, (), "local"))
        self.broken[name] = lost
        return Load(name, (), type_)

    def _check(self, made: Function) -> None:
        """Refuse what needs values that cannot be had."""
        needed = loaded_arrays(made.body) & self.broken.keys()
        for name in sorted(needed):
            lost = self.broken[name]
            raise NotDifferentiable(
                f"the gradient of {self.facts.function.name} needs values that are gone when it is computed",
                location=lost.location or self.facts.function.location,
                evidence=[lost.why],
                remedy=lost.remedy,
            )

    def _tape(self, name: str, type_: ScalarType, loops: tuple[For, ...]) -> str | None:
        """The array that saves a name in every iteration of the loops around it; None where their sizes are unknown."""
        if name not in self.tapes:
            asked: list[Expr] = []
            found = extents(self.facts.function, loops, asked)
            if found is None:
                return None
            if asked:
                unbounded = next(f for k, f in enumerate(loops) if extents(self.facts.function, loops[: k + 1]) is None)
                self.asked |= dict.fromkeys(asked, unbounded.location)
            tape = self.names.fresh(f"{name}_saved")
            self.arrays.append(replace(expanded(tape, type_, found), saves=True))
            self.tapes[name] = (tape, loops)
        return self.tapes[name][0]

    def _tape_index(self, name: str, scope: Scope) -> tuple[Expr, ...]:
        loops = self.tapes[name][1]
        found = extents(self.facts.function, loops, [])
        assert found is not None
        return expanded_index(found, (scope.names[f.var] for f in loops))

    def _save(self, name: str, value: Ref, loops: tuple[For, ...], scope: Scope, out: list[Stmt]) -> None:
        tape = self._tape(name, value.type, loops)
        if tape is not None:
            out.append(Store(tape, self._tape_index(name, scope), value))

    def _saved_value(self, name: str, type_: ScalarType, scope: Scope) -> Expr:
        if name in self.tapes:
            return Load(self.tapes[name][0], self._tape_index(name, scope), type_)
        loops = scope.loops
        unbounded = next(f for k, f in enumerate(loops) if extents(self.facts.function, loops[: k + 1], []) is None)
        return self._lost(without_bound(self.facts.named.get(name, base_name(name)), unbounded), type_)

    def _before(self, loop: For, c: Carry, scope: Scope) -> Expr:
        """The value of a carried scalar when an iteration starts, in the adjoint's iteration."""
        back = self._read_back(loop, c)
        if back is not None:
            return self.primal(back, scope)
        return self._saved_value(c.name, c.type, scope)

    def _read_back(self, loop: For, c: Carry) -> Expr | None:
        """The value at the start of an iteration, from what the iteration before stored, or from what it read."""
        stored: dict[Expr, Load] = {}
        for s in loop.body:
            if isinstance(s, Store) and s.array in self.frame.saved and self.facts.memory.last(s.array, s.index, write=True):
                stored.setdefault(s.value, Load(returned(s.array), s.index, s.value.type))
        lets = {s.name: s.value for s in loop.body if isinstance(s, Let)}
        inside = {n for s in loop.body for n in bound_names(s)} | {k.name for k in loop.carries}

        nodes = itertools.count()  # of what is written out, in which a name that is used twice is there twice

        def resolve(e: Expr) -> Expr | None:
            if next(nodes) > _MOST_READ_BACK:
                return None
            if e in stored:
                target = stored[e]
                index = [resolve(i) for i in target.index]
                found = [i for i in index if i is not None]
                return replace(target, index=tuple(found)) if len(found) == len(index) else None
            if isinstance(e, Ref) and e.name in inside:
                return resolve(lets[e.name]) if e.name in lets and e.name not in self.facts.named else None
            if isinstance(e, Load) and e.array in self.facts.written:
                if (e.array, e.index) not in self.facts.final or e.array not in self.frame.saved:
                    return None
                e = replace(e, array=returned(e.array))
            old = operands(e)
            new = [resolve(o) for o in old]
            known = tuple(o for o in new if o is not None)
            if len(known) != len(old):
                return None
            return with_operands(e, known) if known != old else e

        after = resolve(c.next)
        if after is None:
            return None
        var = Ref(loop.var, INT64)
        earlier = fold(Op("sub", (var, Const(loop.step, INT64)), INT64))
        later = Op("gt" if loop.step > 0 else "lt", (var, loop.start), BOOL)
        moved = _substituted(after, {loop.var: earlier})
        return select(later, moved, c.init)


def elementwise(
    array: str, shape: tuple[Expr, ...], value: Callable[[tuple[Expr, ...]], Expr], names: Names
) -> list[Stmt]:
    """Store `value(index)` to every element."""
    variables = [names.fresh("i") for _ in shape]
    index = tuple(Ref(v, INT64) for v in variables)
    stmt: Stmt = Store(array, index, value(index))
    for v, extent in reversed(list(zip(variables, shape, strict=True))):
        stmt = For(v, number(0, INT64), extent, 1, (), (stmt,))
    return [stmt]


def _substituted(expr: Expr, names: dict[str, Expr]) -> Expr:
    """Substitute and fold the indices, keeping the shape of the expression around them."""
    if isinstance(expr, Load):
        return replace(expr, index=tuple(fold(substitute(i, names)) for i in expr.index))
    if isinstance(expr, Ref):
        return names.get(expr.name, expr)
    old = operands(expr)
    new = tuple(_substituted(o, names) for o in old)
    return with_operands(expr, new) if any(a is not b for a, b in zip(old, new, strict=True)) else expr
