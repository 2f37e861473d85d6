"""Fresh names for one function."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from weft.loops.ir import For, Function, Stmt, bound_names, walk


@dataclass
class Names:
    """Fresh names for one function, made from the user's."""

    taken: set[str] = field(default_factory=set)

    @staticmethod
    def of(function: Function) -> Names:
        taken = {s.name for s in function.sizes} | {s.name for s in function.scalars} | {a.name for a in function.arrays}
        return Names(taken | names_bound_in(function.body))

    def fresh(self, base: str) -> str:
        return fresh(base, self.taken)


def fresh(base: str, taken: set[str]) -> str:
    """A name made from `base` that is not taken yet; from now on it is."""
    name, k = base, 0
    while name in taken:
        k += 1
        name = f"{base}_{k}"
    taken.add(name)
    return name


def names_bound_in(statements: Iterable[Stmt]) -> set[str]:
    """Every name bound by these statements or inside them: what may differ from one iteration of a loop to the next."""
    bound: set[str] = set()
    for stmt in walk(tuple(statements)):
        bound |= set(bound_names(stmt))
        if isinstance(stmt, For):
            bound |= {stmt.var, *(c.name for c in stmt.carries)}
    return bound
