"""What is known of a function before its adjoint is written: what is active, how arrays are kept, what results hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from weft.loops.accumulate import accumulation
from weft.loops.adjoint.activity import active_in, infinite_in
from weft.loops.adjoint.extrema import extremum_of
from weft.loops.adjoint.passing import name_passing_loads
from weft.loops.adjoint.scope import returned
from weft.loops.algebra.half_sums import half_sums
from weft.loops.algebra.recurrences import dependents
from weft.loops.derivatives import cancels, sources
from weft.loops.ir import Array, Expr, For, Function, If, Let, Load, Ref, Stmt, Store, bodies, bound_names, free_names, walk
from weft.loops.memory import Memory
from weft.loops.names import Names
from weft.loops.types import ScalarType

# How the adjoint of a written array is kept.
# direct: it is the gradient of the result, for no element is loaded with a gradient or stored twice. once: the gradient of the
# result, if it is one, plus what later loads contributed, in an array. copied: an array that starts as the gradient and is
# updated backwards through every store.
Kept = Literal["direct", "once", "copied"]


@dataclass(frozen=True)
class Facts:
    """A function, and what its adjoint asks of it.

    named: the array of each name of a load of an element that changes later. homes: of each written array, the loops whose
    iterations have it to themselves. final: the loads that read what is there in the end. kept: how the adjoint of each written
    array is kept. stored: where results hold what a name had. infinite: what is made of constants that are infinite or NaN.
    """

    function: Function
    wanted: tuple[str, ...]
    seeded: tuple[int, ...]
    memory: Memory
    named: dict[str, str]
    active: frozenset[str]
    active_arrays: frozenset[str]
    infinite: frozenset[str]
    half_sums: dict[str, ScalarType]
    homes: dict[str, tuple[str, ...]]
    final: frozenset[tuple[str, tuple[Expr, ...]]]
    kept: dict[str, Kept]
    stored: dict[str, Load]

    @cached_property
    def arrays(self) -> dict[str, Array]:
        return {a.name: a for a in self.function.arrays}

    @property
    def written(self) -> Iterable[str]:
        return self.homes.keys()

    @property
    def copied(self) -> list[str]:
        """The arrays whose adjoint is an array of its own."""
        return [n for n, k in self.kept.items() if k != "direct"]

    @cached_property
    def lets(self) -> dict[str, Expr]:
        return {s.name: s.value for s in walk(self.function.body) if isinstance(s, Let)}

    @cached_property
    def unchanging(self) -> frozenset[str]:
        """Sizes, scalars and variables of loops."""
        variables = {s.var for s in walk(self.function.body) if isinstance(s, For)}
        return frozenset({s.name for s in self.function.sizes} | {s.name for s in self.function.scalars} | variables)


def facts_of(function: Function, wanted: tuple[str, ...], seeded: tuple[int, ...], names: Names) -> Facts:
    """The facts of a function whose loads of elements that change later have names."""
    function, named = name_passing_loads(function, Memory.of(function), names)
    memory = Memory.of(function)
    active, active_arrays = active_in(function, wanted, tuple(function.results[k] for k in seeded))
    written = tuple(dict.fromkeys(s.array for s in walk(function.body) if isinstance(s, Store)))
    final = frozenset(
        (a.array, a.index)
        for a in memory.accesses
        if not a.write and a.array in written and memory.last(a.array, a.index, False)
    )
    differentiated = (e for s in walk(function.body) for top in _differentiated(s) for e in sources(top))
    loaded = {e.array for e in differentiated if isinstance(e, Load)}
    return Facts(
        function, wanted, seeded, memory, named, active - _stabilisers(function, active), active_arrays, infinite_in(function),
        half_sums(function), {a: _home(memory, function.array(a)) for a in written}, final,
        {a: _kept(function, memory, a, loaded) for a in written if a in active_arrays}, _stored_values(function, memory),
    )  # fmt: skip


def _stored_values(function: Function, memory: Memory) -> dict[str, Load]:
    """Names that depend on what a loop carries and that every iteration stores, unrounded, in a result; what a loop has
    carried in the end, where it is stored so.
    """
    found = _stored_ends(function.body, function, memory)
    for loop in walk(function.body):
        if not isinstance(loop, For):
            continue
        lets = {s.name for s in loop.body if isinstance(s, Let)}
        carried = {n for c in loop.carries for n in dependents(loop.body, c.name)}
        for s in loop.body:
            if not (isinstance(s, Store) and isinstance(s.value, Ref) and s.value.name in lets & carried):
                continue
            if _returned_as_stored(s, function, memory):
                found.setdefault(s.value.name, Load(returned(s.array), s.index, s.value.type))
    return found


def _returned_as_stored(s: Store, function: Function, memory: Memory) -> bool:
    """Whether a result holds in the end what a statement stores there, unrounded."""
    exact = function.array(s.array).dtype == s.value.type and s.array in function.results
    return exact and memory.last(s.array, s.index, write=True)


def _stored_ends(statements: tuple[Stmt, ...], function: Function, memory: Memory) -> dict[str, Load]:
    """What loops have carried in the end and the statements beside them store in a result, at places known before."""
    found: dict[str, Load] = {}
    for k, loop in enumerate(statements):
        found |= {n: load for body in bodies(loop) for n, load in _stored_ends(body, function, memory).items()}
        ends = {c.result for c in loop.carries} if isinstance(loop, For) else set()
        later = {n for s in statements[k:] for n in bound_names(s)} if ends else set()
        for s in statements[k + 1 :] if ends else ():
            if not (isinstance(s, Store) and isinstance(s.value, Ref) and s.value.name in ends):
                continue
            if _returned_as_stored(s, function, memory) and not any(free_names(i) & later for i in s.index):
                found.setdefault(s.value.name, Load(returned(s.array), s.index, s.value.type))
    return found


def _stabilisers(function: Function, active: frozenset[str]) -> frozenset[str]:
    """Carried extrema that cancel: however they are chosen, the results are the same."""
    found: set[str] = set()
    for loop in walk(function.body):
        if isinstance(loop, For):
            for c in loop.carries:
                if c.result in active and extremum_of(loop, c) and cancels(function, c.result):
                    found |= {c.result, c.name}
    return frozenset(found)


def _home(memory: Memory, array: Array) -> tuple[str, ...]:
    """The outermost loops that all accesses share and whose iterations have the array to themselves."""
    mine = [a for a in memory.accesses if a.array == array.name]
    written = [a for a in mine if a.write]
    within = frozenset(array.within)
    path: list[str] = []
    for k, loop in enumerate(mine[0].loops):
        if not all(len(a.loops) > k and a.loops[k].var == loop.var for a in mine):
            break
        carried = (memory.polyhedra.carried(a, b, loop, within) for a in written for b in mine)
        if loop.var not in within and any(c is not None for c in carried):
            break
        path.append(loop.var)
    return tuple(path)


def _kept(function: Function, memory: Memory, array: str, loaded: set[str]) -> Kept:
    """loaded: the arrays that derivatives are handed on to."""
    stores = [s for s in walk(function.body) if isinstance(s, Store) and s.array == array]
    summed = all(accumulation(s, alone=False) is not None for s in stores)
    once = summed or function.array(array).saves or memory.stored_once(array)
    if array in loaded or not once:
        return "once" if once and not summed else "copied"
    return "direct"


def _differentiated(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions of a statement that a derivative passes through."""
    match stmt:
        case Let():
            return (stmt.value,)
        case Store():
            own = accumulation(stmt, alone=False)
            return (stmt.value,) if own is None else (own,)
        case For():
            return tuple(e for c in stmt.carries for e in (c.init, c.next))
        case If():
            return tuple(e for m in stmt.merges for e in (m.then, m.orelse))
    raise TypeError(stmt)
