"""What the transforms of loops share: the function that one makes, and loops copied, replaced and moved about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from weft.loops.accumulate.ranges import upwards
from weft.loops.ir import (
    Expr,
    For,
    Function,
    If,
    Let,
    Op,
    Ref,
    Stmt,
    Store,
    map_statement,
    rewrite,
    substitute_statements,
    walk,
)
from weft.loops.names import Names, names_bound_in
from weft.loops.types import BOOL


@dataclass(frozen=True)
class Rewriting:
    """A function that computes what another one does.

    reasons: what was done to the other's loops, by variable. whatever: what was done for every loop that it frees.
    frees: loops that must not run in order then, or it is of no use. origin: the loop of the other one, by variable, that a
    new loop stands for or is a part of.
    """

    function: Function
    reasons: Mapping[str, tuple[str, ...]]
    whatever: tuple[str, ...] = ()
    frees: frozenset[str] = frozenset()
    origin: Mapping[str, str] = field(default_factory=dict)


def replaced(statements: tuple[Stmt, ...], var: str, rule: Callable[[For], tuple[Stmt, ...]]) -> tuple[Stmt, ...]:
    """The statements with the loop of a variable replaced."""
    out: list[Stmt] = []
    for stmt in statements:
        if isinstance(stmt, For) and stmt.var == var:
            out += rule(stmt)
        else:
            there = any(isinstance(s, For) and s.var == var for s in walk((stmt,)))
            out.append(map_statement(stmt, lambda e: e, lambda b: replaced(b, var, rule)) if there else stmt)
    return tuple(out)


def keeps_array(function: Function, loop: For) -> bool:
    """Whether an array is a fresh one in every iteration of a loop, or of one in it: such a loop cannot be copied."""
    variables = {s.var for s in walk((loop,)) if isinstance(s, For)}
    return any(variables & set(a.within) for a in function.arrays)


def copied(loop: For, names: Names) -> tuple[For, dict[str, str]]:
    """The same loop with fresh names for all that it binds, and the variables of its loops: new name -> old one."""
    fresh = {name: names.fresh(name) for name in sorted(names_bound_in((loop,)))}

    def expr(e: Expr) -> Expr:
        return rewrite(e, lambda x: replace(x, name=fresh[x.name]) if isinstance(x, Ref) and x.name in fresh else None)

    def block(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(statement(s) for s in statements)

    def statement(stmt: Stmt) -> Stmt:
        stmt = map_statement(stmt, expr, block)
        match stmt:
            case Let():
                return replace(stmt, name=fresh[stmt.name])
            case For():
                carries = tuple(replace(c, name=fresh[c.name], result=fresh[c.result]) for c in stmt.carries)
                return replace(stmt, var=fresh[stmt.var], carries=carries)
            case If():
                return replace(stmt, merges=tuple(replace(m, name=fresh[m.name]) for m in stmt.merges))
            case Store():
                return stmt

    made = statement(loop)
    assert isinstance(made, For)
    return made, {fresh[s.var]: s.var for s in walk((loop,)) if isinstance(s, For)}


def at_one(stmt: Stmt) -> Stmt:
    """A statement in which loops of which one iteration alone does anything, that of a number, are conditions on it."""
    match stmt:
        case For(carries=(), body=(If(Op(name="eq", args=(Ref(name=var), Ref() as at)), then, (), ()) as own,)):
            if var == stmt.var != at.name and abs(stmt.step) == 1:
                loop = upwards(stmt)
                there = Op("and", (Op("le", (loop.start, at), BOOL), Op("lt", (at, loop.stop), BOOL)), BOOL)
                return If(there, substitute_statements(then, {var: at}), (), (), own.location)
    return map_statement(stmt, lambda e: e, lambda body: tuple(map(at_one, body)))
