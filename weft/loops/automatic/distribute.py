"""Distribution: one loop becomes several, each with a part of its body, so that the loops in them may be moved outermost.

Two statements stay in one loop if each depends on the other (isl decides), or if one needs a scalar that the other makes;
what is left is ordered so that whatever is written is written before it is read, as in the loop. A scalar made from what is
loaded and from other scalars is made again in every loop that needs it, its loads being accesses of that loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from weft.loops.accesses import Access, collect
from weft.loops.automatic.branches import split_branches
from weft.loops.ir import (
    Expr,
    For,
    Function,
    Let,
    Ref,
    Stmt,
    bound_names,
    free_names,
    has_load,
    statement_exprs,
    substitute,
    substitute_statements,
    walk,
)
from weft.loops.names import Names
from weft.loops.polyhedra import Polyhedra
from weft.loops.types import INT64


@dataclass(frozen=True)
class Distributed:
    """A function with loops distributed. origin: the loop, by variable, that each of the new loops is a part of."""

    function: Function
    origin: dict[str, str]


def distributions(function: Function, stuck: frozenset[str]) -> Iterator[Distributed]:
    """The distributions of each statement of the function with one of the loops `stuck` in it, all its loops in parts: with
    its branches as they are, and with these taken apart.
    """
    for position, stmt in enumerate(function.body):
        if isinstance(stmt, For) and any(isinstance(s, For) and s.var in stuck for s in walk((stmt,))):
            names = Names.of(function)
            for whole in dict.fromkeys((stmt, split_branches(stmt, names))):
                distributor = _Distributor(function, Polyhedra(function), names)
                parts = distributor.loop(whole, ())
                if distributor.origin:
                    body = (*function.body[:position], *parts, *function.body[position + 1 :])
                    yield Distributed(replace(function, body=body), distributor.origin)


@dataclass(frozen=True)
class _Part:
    """Statements of a loop's body that stay together, by their positions in it, and the carries that they make."""

    statements: frozenset[int]
    carries: frozenset[str]


@dataclass
class _Distributor:
    function: Function
    polyhedra: Polyhedra
    names: Names
    origin: dict[str, str] = field(default_factory=dict)

    def loop(self, loop: For, loops: tuple[For, ...]) -> tuple[For, ...]:
        """The loops that compute what this one does, in order."""
        body: list[Stmt] = []
        for s in loop.body:
            body += self.loop(s, (*loops, loop)) if isinstance(s, For) else [s]
        loop = replace(loop, body=tuple(body))
        fresh_here = any(loop.var in a.within for a in self.function.arrays)
        again = (loop.start, loop.stop, *(c.init for c in loop.carries))  # evaluated by every part, or by a later one
        if fresh_here or any(has_load(e) for e in again):
            return (loop,)
        parts = self._ordered(loop, loops, self._parts(loop))
        if len(parts) < 2:
            return (loop,)
        taken: set[str] = set()
        return tuple(self._part(loop, part, taken) for part in parts)

    # ---- what stays together

    def _parts(self, loop: For) -> list[_Part]:
        """The smallest parts of a body that share no scalar but those that each can make itself."""
        makers = {n: k for k, s in enumerate(loop.body) for n in bound_names(s)}
        carried = {c.name for c in loop.carries}

        def needed(names: set[str]) -> tuple[set[int], set[str]]:
            """The statements and the carries that these names come from."""
            statements: set[int] = set()
            carries: set[str] = set()
            pending = set(names)
            while pending:
                name = pending.pop()
                if name in carried:
                    carries.add(name)
                elif name in makers and makers[name] not in statements:
                    statements.add(makers[name])
                    pending |= _needs(loop.body[makers[name]])
            return statements, carries

        parts = []
        for k, s in enumerate(loop.body):
            if not isinstance(s, Let):
                statements, carries = needed(_needs(s))
                parts.append(_Part(frozenset({k, *statements}), frozenset(carries)))
        for c in loop.carries:
            statements, carries = needed(set(free_names(c.next)))
            parts.append(_Part(frozenset(statements), frozenset({c.name, *carries})))
        merged: list[_Part] = []
        for part in parts:
            alike = [m for m in merged if m.carries & part.carries or _effects(loop, m) & _effects(loop, part)]
            merged = [m for m in merged if m not in alike]
            merged.append(_union((*alike, part)))
        return merged

    def _ordered(self, loop: For, loops: tuple[For, ...], parts: list[_Part]) -> list[_Part]:
        """The parts, those that depend on each other in one, in an order in which none depends on a later one."""
        around = (*loops, loop)
        accesses = [collect((s,), around) for s in loop.body]
        ends = {c.name: collect((Let(c.name, c.next),), around) for c in loop.carries}
        touched = [
            [(k, a) for k in sorted(part.statements) for a in accesses[k]]
            + [(len(loop.body), a) for name in sorted(part.carries) for a in ends[name]]
            for part in parts
        ]
        count = len(parts)
        reaches = [[i != j and self._depends(touched[i], touched[j], around) for j in range(count)] for i in range(count)]
        for k in range(count):
            for i in range(count):
                for j in range(count):
                    reaches[i][j] = reaches[i][j] or (reaches[i][k] and reaches[k][j])
        left = list(range(count))
        out = []
        while left:
            # the first part, as written, all of whose predecessors are done or in a cycle with it
            first = next(
                i
                for i in sorted(left, key=lambda i: min(_effects(loop, parts[i]), default=len(loop.body)))
                if all(reaches[i][j] for j in left if j != i and reaches[j][i])
            )
            cycle = [i for i in left if i == first or (reaches[first][i] and reaches[i][first])]
            out.append(_union(tuple(parts[i] for i in cycle)))
            left = [i for i in left if i not in cycle]
        return out

    def _depends(self, before: list[tuple[int, Access]], after: list[tuple[int, Access]], loops: tuple[For, ...]) -> bool:
        """Whether one part touches an element, with a write, before another part does. Accesses have their statements."""
        shared = frozenset(f.var for f in loops)
        for i, a in before:
            for j, b in after:
                if a.array == b.array and (a.write or b.write):
                    same = i < j and self.polyhedra.meet(a, b, shared)
                    if same or self.polyhedra.earlier(a, b, loops[-1]):
                        return True
        return False

    # ---- the loop of one part

    def _part(self, loop: For, part: _Part, taken: set[str]) -> For:
        """The loop of a part; what an earlier one has bound too gets names of its own."""
        names: dict[str, Expr] = {}
        body: list[Stmt] = []
        for k in sorted(part.statements):
            stmt = loop.body[k]
            if isinstance(stmt, Let):
                value = substitute(stmt.value, names)
                if stmt.name in taken:
                    own = self.names.fresh(stmt.name)
                    names[stmt.name] = Ref(own, value.type)
                    stmt = replace(stmt, name=own)
                taken.add(stmt.name)
                body.append(replace(stmt, value=value))
            else:
                body += substitute_statements((stmt,), names)
        carries = tuple(replace(c, next=substitute(c.next, names)) for c in loop.carries if c.name in part.carries)
        made = replace(loop, carries=carries, body=tuple(body))
        if loop.var not in taken:
            taken.add(loop.var)
            self.origin.setdefault(loop.var, loop.var)
            return made
        var = self.names.fresh(loop.var)
        self.origin[var] = self.origin.get(loop.var, loop.var)
        return replace(made, var=var, body=substitute_statements(made.body, {loop.var: Ref(var, INT64)}), carries=tuple(
            replace(c, next=substitute(c.next, {loop.var: Ref(var, INT64)})) for c in carries
        ))  # fmt: skip


def _effects(loop: For, part: _Part) -> set[int]:
    """The statements of a part that cannot be repeated."""
    return {k for k in part.statements if not isinstance(loop.body[k], Let)}


def _union(parts: tuple[_Part, ...]) -> _Part:
    return _Part(frozenset().union(*(p.statements for p in parts)), frozenset().union(*(p.carries for p in parts)))


def _needs(stmt: Stmt) -> set[str]:
    """The names that a statement, or one inside it, uses."""
    return {n for s in walk((stmt,)) for e in statement_exprs(s) for n in free_names(e)}
