"""Flags that stop a loop: once one has fallen, the iterations that are left change nothing, and need not run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from weft.loops.algebra.search import known
from weft.loops.ir import (
    FALSE,
    TRUE,
    Expr,
    For,
    If,
    Let,
    Ref,
    Stmt,
    Store,
    map_statement,
    statement_exprs,
    substitute,
    walk,
    walk_expr,
)
from weft.loops.types import BOOL

# What a name is where a flag has fallen is written out up to this size.
_LARGEST = 200


def stops(loop: For, checked: Callable[[Expr], bool]) -> tuple[Ref, ...]:
    """The carried flags after whose fall no iteration changes anything.

    checked: whether evaluating an expression may end the program; what is, must run as often as it does in the Python.
    """
    flags = [Ref(c.name, BOOL) for c in loop.carries if c.type == BOOL]
    return tuple(f for f in flags if _Fallen(f, checked).idle(loop))


def while_running(loop: For, flags: tuple[Ref, ...]) -> For:
    """The loop with what these flags decide told for iterations that begin with all of them up."""

    def expr(e: Expr) -> Expr:
        for flag in flags:
            e = known(e, flag, True)
        return e

    def block(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for stmt in statements:
            stmt = map_statement(stmt, expr, block)
            if isinstance(stmt, If) and stmt.condition in (TRUE, FALSE):
                holds = stmt.condition == TRUE
                out += stmt.then if holds else stmt.orelse
                out += [Let(m.name, m.then if holds else m.orelse, stmt.location) for m in stmt.merges]
            else:
                out.append(stmt)
        return tuple(out)

    carries = tuple(replace(c, next=expr(c.next)) for c in loop.carries)
    return replace(loop, body=block(loop.body), carries=carries)


@dataclass
class _Fallen:
    """An iteration that begins with a flag down. meanings: what names are then."""

    flag: Ref
    checked: Callable[[Expr], bool]
    meanings: dict[str, Expr] = field(default_factory=dict)

    def idle(self, loop: For) -> bool:
        """Whether it changes nothing."""
        return self._idle(loop.body) and all(
            self._meaning(c.next) == (FALSE if c.name == self.flag.name else Ref(c.name, c.type)) for c in loop.carries
        )

    def _meaning(self, e: Expr) -> Expr:
        return known(substitute(e, self.meanings), self.flag, False)

    def _bind(self, name: str, value: Expr) -> None:
        if sum(1 for _ in walk_expr(value)) <= _LARGEST:
            self.meanings[name] = value

    def _checked(self, *exprs: Expr) -> bool:
        return any(self.checked(part) for e in exprs for part in walk_expr(e))

    def _idle(self, statements: tuple[Stmt, ...]) -> bool:
        return all(map(self._has_no_effect, statements))

    def _has_no_effect(self, stmt: Stmt) -> bool:
        match stmt:
            case Let(name=name):
                value = self._meaning(stmt.value)
                self._bind(name, value)
                return not self._checked(value)
            case If():
                condition = self._meaning(stmt.condition)
                sides = [s for s, skipped in ((stmt.then, FALSE), (stmt.orelse, TRUE)) if condition != skipped]
                if self._checked(condition) or not all(map(self._idle, sides)):
                    return False
                for m in stmt.merges:
                    then, orelse = (self._meaning(e) for e in (m.then, m.orelse))
                    if condition in (TRUE, FALSE) or then == orelse:
                        self._bind(m.name, then if condition == TRUE else orelse)
                    if self._checked(*(e for e, skipped in ((then, FALSE), (orelse, TRUE)) if condition != skipped)):
                        return False
                return True
            case Store():
                return False
        inside = tuple(walk((stmt,)))
        return not any(isinstance(s, Store) or self._checked(*statement_exprs(s)) for s in inside)
