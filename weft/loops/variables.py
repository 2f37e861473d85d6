"""Variables for a nest: which of its names, each bound once, can be one variable that is assigned several times.

A carried scalar is three names in the nest (at the start of an iteration, at its end, after the loop) and mostly one
variable in Python. Two names share a variable where one is a copy of the other and neither is bound while the other is
still needed; else the copy is written out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from weft.loops.ir import Expr, For, Function, If, Let, Ref, Stmt, Store, free_names
from weft.loops.names import names_bound_in


@dataclass(frozen=True)
class Variables:
    """of: the variable of each name that a Let, a Carry or a Merge binds. stored: (name, array) where elements of the array
    are stored while the name is still needed.
    """

    of: Mapping[str, str]
    stored: frozenset[tuple[str, str]]

    def __getitem__(self, name: str) -> str:
        return self.of.get(name, name)


def variables(function: Function) -> Variables:
    """The variables of a function: as few as copies allow, each with the shortest of its names."""
    found = _Liveness()
    found.block(function.body, set())
    groups = {name: {name} for name in found.bound}
    for a, b in (*found.same, *found.copies):
        one, other = groups.get(a), groups.get(b)
        if one is None or other is None or one is other:
            continue
        if (a, b) in found.same or not any(y in found.together.get(x, ()) for x in one for y in other):
            one |= other
            for name in other:
                groups[name] = one
    order = {name: k for k, name in enumerate(found.bound)}
    names = {name: min(group, key=lambda n: (len(n), order[n])) for name, group in groups.items()}
    return Variables(names, frozenset(found.stored))


@dataclass
class _Liveness:
    """One walk backwards. bound: names in the order in which they are found. together: names that must not share a variable.
    same: (carry, its result), always one variable. copies: other names with the same value somewhere.
    """

    bound: dict[str, None] = field(default_factory=dict)
    together: dict[str, set[str]] = field(default_factory=dict)
    same: list[tuple[str, str]] = field(default_factory=list)
    copies: list[tuple[str, str]] = field(default_factory=list)
    stored: set[tuple[str, str]] = field(default_factory=set)

    def define(self, names: Iterable[str], live: set[str]) -> None:
        """These names get their values at once, and `live` are needed afterwards."""
        names = tuple(names)
        for name in names:
            self.bound.setdefault(name)
            for other in (live | set(names)) - {name}:
                self.together.setdefault(name, set()).add(other)
                self.together.setdefault(other, set()).add(name)

    def copy(self, name: str, value: Expr) -> None:
        if isinstance(value, Ref):
            self.copies.append((name, value.name))

    def block(self, statements: tuple[Stmt, ...], live: set[str]) -> set[str]:
        """What is needed before some statements, given what is needed after them."""
        for stmt in reversed(statements):
            match stmt:
                case Let(name=name, value=value):
                    self.define((name,), live)
                    self.copy(name, value)
                    live = (live - {name}) | free_names(value)
                case Store():
                    self.stored |= {(name, stmt.array) for name in live}
                    live = live | _free(stmt.index) | free_names(stmt.value)
                case If():
                    live = self.branch(stmt, live)
                case For():
                    live = self.loop(stmt, live)
        return live

    def branch(self, stmt: If, live: set[str]) -> set[str]:
        names = [m.name for m in stmt.merges]
        self.define(names, live)
        for merge in stmt.merges:
            self.copy(merge.name, merge.then)
            self.copy(merge.name, merge.orelse)
        after = live - set(names)
        then = self.block(stmt.then, after | _free(m.then for m in stmt.merges))
        orelse = self.block(stmt.orelse, after | _free(m.orelse for m in stmt.merges))
        return then | orelse | free_names(stmt.condition)

    def loop(self, stmt: For, live: set[str]) -> set[str]:
        names = [c.name for c in stmt.carries]
        self.define((c.result for c in stmt.carries), live)
        after = live - {c.result for c in stmt.carries}
        # what comes from outside is needed by every later iteration
        outside = _Liveness().block(stmt.body, _free(c.next for c in stmt.carries))
        outside -= {stmt.var, *names, *names_bound_in(stmt.body)}
        throughout = after | outside
        head = throughout | self.block(stmt.body, throughout | _free(c.next for c in stmt.carries))
        self.define(names, head)
        for carry in stmt.carries:
            self.same.append((carry.name, carry.result))
            self.copy(carry.name, carry.next)
            self.copy(carry.name, carry.init)
        return (head - {stmt.var, *names}) | _free((stmt.start, stmt.stop, *(c.init for c in stmt.carries)))


def _free(exprs: Iterable[Expr]) -> set[str]:
    return {name for e in exprs for name in free_names(e)}
