"""Names of one function: fresh ones, and others for its arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from weft.loops.ir import Expr, For, Function, Load, Stmt, Store, bound_names, free_arrays, map_statement, rewrite, walk


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


def rename_array(
    statements: tuple[Stmt, ...], old: str, new: str, places: tuple[Expr, ...] = ()
) -> tuple[Stmt, ...]:
    """The statements, which load from and store in another array instead, at these subscripts before their own."""

    def expr(e: Expr) -> Expr:
        def rule(x: Expr) -> Expr | None:
            return replace(x, array=new, index=(*places, *x.index)) if isinstance(x, Load) and x.array == old else None

        return rewrite(e, rule) if old in free_arrays(e) else e

    def block(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        mapped = (map_statement(s, expr, block) for s in statements)
        return tuple(
            replace(s, array=new, index=(*places, *s.index)) if isinstance(s, Store) and s.array == old else s for s in mapped
        )

    return block(statements)
