"""Sites of accumulations: `array[index] += value` in its loops and branches, and edits of many of them at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from weft.loops.ir import (
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
    bodies,
    free_arrays,
    free_names,
    map_statement,
    substitute,
    walk,
)
from weft.loops.simplify import neg
from weft.loops.types import BOOL, INT64


def accumulation(stmt: Store, alone: bool = True) -> Expr | None:
    """v where the statement is `array[index] += v`. alone: v may not load from the array itself."""
    own = Load(stmt.array, stmt.index, stmt.value.type)
    match stmt.value:
        case Op(name="add", args=(a, b)):
            if own in (a, b):
                v = b if a == own else a
                return None if alone and _loads(v, stmt.array) else v
        case Op(name="sub", args=(a, b)) if a == own and not (alone and _loads(b, stmt.array)):
            return neg(b)
    return None


def accumulate_into(array: str, index: tuple[Expr, ...], value: Expr, like: Store | None = None) -> Store:
    own = Load(array, index, value.type)
    return Store(array, index, Op("add", (own, value), value.type), like.location if like else None)


def _loads(expr: Expr, array: str) -> bool:
    return array in free_arrays(expr)


@dataclass(frozen=True)
class Step:
    """A loop or branch on the way to a statement, and where in its body the next step is."""

    stmt: For | If
    taken: bool
    body: tuple[Stmt, ...]
    at: int

    @property
    def before(self) -> tuple[Stmt, ...]:
        """What stands before the next step."""
        return self.body[: self.at]


@dataclass(frozen=True)
class Site:
    """One accumulation: its statement, the value it adds, the way to it from the function's body."""

    store: Store
    value: Expr
    path: tuple[Step, ...]

    @property
    def loops(self) -> tuple[For, ...]:
        return tuple(s.stmt for s in self.path if isinstance(s.stmt, For))


def sites_of(statements: tuple[Stmt, ...], array: str, path: tuple[Step, ...] = ()) -> Iterator[Site]:
    for stmt in statements:
        match stmt:
            case Store() if stmt.array == array:
                value = accumulation(stmt)
                assert value is not None, f"{array} is more than accumulated into"
                yield Site(stmt, value, path)
            case For() | If():
                for n, body in enumerate(bodies(stmt)):
                    for j, inner in enumerate(body):
                        yield from sites_of((inner,), array, (*path, Step(stmt, n == 0, body, j)))


@dataclass
class Edit:
    """Changes to statements, found by identity: replaced, followed by others, or begun (loops) by others."""

    instead: dict[int, list[Stmt]] = field(default_factory=dict)
    after: dict[int, list[Stmt]] = field(default_factory=dict)
    start: dict[int, list[Stmt]] = field(default_factory=dict)

    def apply(self, statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for stmt in statements:
            mark = id(stmt)
            if mark in self.instead:
                out += self.instead[mark]
            elif isinstance(stmt, For):
                out.append(replace(stmt, body=(*self.start.get(mark, ()), *self.apply(stmt.body))))
            elif isinstance(stmt, If):
                out.append(replace(stmt, then=self.apply(stmt.then), orelse=self.apply(stmt.orelse)))
            else:
                out.append(stmt)
            out += self.after.get(mark, ())
        return tuple(out)


def names_alone(index: tuple[Expr, ...]) -> set[str]:
    return {i.name for i in index if isinstance(i, Ref)}


def in_full(site: Site, index: Expr, around: tuple[Stmt, ...] = ()) -> Expr:
    """An index with what integers on the way to its site stand for. around: the statements that the way leads through first."""
    before = (*around, *(s for step in site.path for s in step.before))
    named = {s.name: s.value for s in before if isinstance(s, Let) and s.value.type == INT64}
    while names := free_names(index) & named.keys():
        index = substitute(index, {n: named[n] for n in names})
    return index


def conditions_of(function: Function, site: Site) -> dict[int, Expr]:
    """What holds where the path of a site goes through a branch, by the branch's place on the path."""
    found: dict[int, Expr] = {}
    if not any(isinstance(step.stmt, If) for step in site.path):
        return found
    named = {s.name: s.value for s in walk(function.body) if isinstance(s, Let) and s.value.type == BOOL}
    for k, step in enumerate(site.path):
        if isinstance(step.stmt, If):
            condition = step.stmt.condition
            while isinstance(condition, Ref) and condition.name in named:
                condition = named[condition.name]
            found[k] = condition if step.taken else Op("not", (condition,), BOOL)
    return found


def often(function: Function, target: str) -> list[Site]:
    """The sites under no condition that nobody expects to hold."""
    return [s for s in sites_of(function.body, target) if not any(isinstance(x.stmt, If) and x.stmt.rare for x in s.path)]


def all_of(conditions: Iterable[Expr]) -> Expr:
    return functools.reduce(lambda a, b: Op("and", (a, b), BOOL), conditions)


def mapped(statements: tuple[Stmt, ...], change: Callable[[Expr], Expr]) -> tuple[Stmt, ...]:
    return tuple(map_statement(s, change, lambda body: mapped(body, change)) for s in statements)


def between(e: Expr, low: Expr, high: Expr) -> Expr:
    return Op("and", (Op("le", (low, e), BOOL), Op("lt", (e, high), BOOL)), BOOL)
