"""Delays of states: what an iteration takes from the one before, made of what a recurrence leaves, is read from memory.

A filter hands on `x2 = x1; x1 = v`, where v is what a state of the loop has become: x1 and x2 follow no rule of their own, and
are what earlier iterations made. With the recurrence in a loop of its own, that stores what others use of its states, the rest
is a loop that reads these, and what it takes from the iteration before is read where that one found it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from weft.loops.accesses import Nested, loops_in
from weft.loops.automatic.induction import close
from weft.loops.automatic.rewriting import Rewriting, copied, keeps_array, replaced
from weft.loops.extents import expanded, expanded_index, extents
from weft.loops.ir import (
    Array,
    Carry,
    Expr,
    For,
    Function,
    Let,
    Load,
    Ref,
    Stmt,
    Store,
    bound_names,
    free_names,
    has_load,
    loaded_arrays,
    statement_exprs,
    walk,
)
from weft.loops.names import Names
from weft.loops.normalize import normalize
from weft.loops.types import INT64, ScalarType


def delays_of_states(function: Function, stuck: frozenset[str]) -> Iterator[Rewriting]:
    """The function with one of the loops `stuck` in two: the recurrences that its delays need, and the rest."""
    for nested in loops_in(function.body):
        if nested.loop.var in stuck and nested.loop.carries:
            made = _apart(function, nested, stuck)
            if made is not None:
                yield made


@dataclass(frozen=True)
class _Needs:
    """What names of a loop's body come from: statements of it, by their positions, and carries."""

    statements: frozenset[int]
    carries: frozenset[str]


class _Body:
    """What follows from what in the body of a loop."""

    def __init__(self, loop: For) -> None:
        self.loop = loop
        self.makers = {n: k for k, s in enumerate(loop.body) for n in bound_names(s)}
        self.carried = {c.name: c for c in loop.carries}

    def needs(self, names: frozenset[str], kept: frozenset[str] = frozenset()) -> _Needs:
        """What these names come from in their iteration. kept: names that come from nothing."""
        statements, carries, pending = set[int](), set[str](), set(names - kept)
        while pending:
            name = pending.pop()
            if name in self.carried:
                carries.add(name)
            elif name in self.makers and self.makers[name] not in statements:
                statements.add(self.makers[name])
                pending |= _used(self.loop.body[self.makers[name]]) - kept
        return _Needs(frozenset(statements), frozenset(carries))

    def reach(self) -> dict[str, set[str]]:
        """The carries whose earlier values those of each one come from, in the iteration before or in any."""
        found = {c.name: set(self.needs(free_names(c.next)).carries) for c in self.loop.carries}
        for k in found:
            for n in found:
                if k in found[n]:
                    found[n] |= found[k]
        return found


def _used(stmt: Stmt) -> frozenset[str]:
    return frozenset(n for s in walk((stmt,)) for e in statement_exprs(s) for n in free_names(e))


def _apart(function: Function, nested: Nested, stuck: frozenset[str]) -> Rewriting | None:
    loop, loops = nested.loop, [f for f in nested.loops if f.var not in stuck]  # what is kept is of one step of the others
    body, reach = _Body(loop), _Body(loop).reach()
    delays = [n for n, earlier in reach.items() if n not in earlier and earlier]
    core = frozenset[str]().union(*(reach[n] for n in delays)) - {*delays}
    found = extents(function, (*loops, loop))
    if not core or found is None or keeps_array(function, loop) or has_load(loop.start) or has_load(loop.stop):
        return None
    own = body.needs(frozenset(n for c in core for n in free_names(body.carried[c].next)))
    statements = tuple(s for k, s in enumerate(loop.body) if k in own.statements)
    stored = {s.array for s in walk(loop.body) if isinstance(s, Store)}
    if not all(isinstance(s, Let) for s in statements) or loaded_arrays((*statements, *_ends(loop, core))) & stored:
        return None
    kept = _kept(body, core, own.statements)
    names = Names.of(function)
    index = expanded_index(found, [Ref(f.var, INT64) for f in (*loops, loop)])
    values = {name: expanded(names.fresh(f"{name}_kept"), type_, found) for name, type_ in kept.items()}
    stores = tuple(Store(a.name, index, Ref(name, a.dtype), loop.location) for name, a in values.items())
    first, results = _first(loop, (*statements, *stores), core, names)
    rest = _rest(loop, body, own.statements, core, values, index)
    body_of_parts = replaced(function.body, loop.var, lambda _: (first, *results, rest))
    closed = close(normalize(replace(function, body=body_of_parts, arrays=(*function.arrays, *values.values()))))
    why = f"scalar expansion: {' and '.join(kept)} {'is' if len(kept) == 1 else 'are'} kept of every iteration"
    reasons = {**closed.transforms, loop.var: (why, *closed.transforms.get(loop.var, ()))}
    return Rewriting(closed.function, reasons, frees=frozenset({loop.var}), origin={first.var: loop.var})


def _ends(loop: For, core: frozenset[str]) -> tuple[Stmt, ...]:
    return tuple(Let(c.name, c.next) for c in loop.carries if c.name in core)


def _kept(body: _Body, core: frozenset[str], own: frozenset[int]) -> dict[str, ScalarType]:
    """The names, and their types, that others use of a recurrence, and that only its states tell."""
    loop = body.loop
    others = [s for k, s in enumerate(loop.body) if k not in own]
    used = frozenset(n for s in others for n in _used(s))
    used |= frozenset(n for c in loop.carries if c.name not in core for n in free_names(c.next))
    found: dict[str, ScalarType] = {}
    pending, seen = set(used), set[str]()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in core:
            found[name] = body.carried[name].type
        elif body.makers.get(name) in own:
            made = loop.body[body.makers[name]]
            assert isinstance(made, Let)
            if free_names(made.value) & core:
                found[name] = made.value.type
            else:
                pending |= free_names(made.value)
    return dict(sorted(found.items()))


def _first(
    loop: For, statements: tuple[Stmt, ...], core: frozenset[str], names: Names
) -> tuple[For, tuple[Let, ...]]:
    """The loop of the recurrence, with names of its own, and its results by the names that they had."""
    carries = tuple(c for c in loop.carries if c.name in core)
    made, _ = copied(replace(loop, carries=carries, body=statements), names)
    results = (Let(c.result, Ref(own.result, c.type), loop.location) for c, own in zip(carries, made.carries, strict=True))
    return made, tuple(results)


def _rest(
    loop: For, body: _Body, own: frozenset[int], core: frozenset[str], values: dict[str, Array], index: tuple[Expr, ...]
) -> For:
    """The loop of all else, which reads what is kept."""
    carries: tuple[Carry, ...] = tuple(c for c in loop.carries if c.name not in core)
    others = frozenset(n for k, s in enumerate(loop.body) if k not in own for n in _used(s))
    others |= frozenset(n for c in carries for n in free_names(c.next))
    again = body.needs(others, frozenset(values)).statements
    loads = tuple(Let(name, Load(a.name, index, a.dtype), loop.location) for name, a in values.items())
    statements = (s for k, s in enumerate(loop.body) if (k not in own or k in again) and not {*bound_names(s)} & values.keys())
    return replace(loop, carries=carries, body=(*loads, *statements))
