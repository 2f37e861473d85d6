"""What Python raises in values that nothing uses: such a value is left out, and what may be wrong with it is kept.

A fault that only data decide is a check in an expression (`Check`, or a subscript that the kernel looks at). Where nothing uses
the expression, its checks alone are stored into an element that nobody reads, one of every iteration's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from weft.language.builder import Builder
from weft.language.checks import leaves_64_bits
from weft.language.values import ZERO
from weft.loops.affine import affine
from weft.loops.ir import (
    Array,
    Check,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    Op,
    Stmt,
    Store,
    free_names,
    operands,
    statement_exprs,
    walk,
    walk_expr,
)
from weft.loops.normalize import drop_unused
from weft.loops.types import BOOL, INT64

_TRUE = Const(True, BOOL)


def with_faults(b: Builder, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The statements, with the checks of what no store depends on stored by themselves. Their arrays are added to the
    builder's.
    """
    exprs = (e for s in walk(body) for top in statement_exprs(s) for e in walk_expr(top))
    if not any(isinstance(e, (Check, Load)) for e in exprs):
        return body
    if not _Reader(b).made(body)[1]:
        return body
    made, faults = _Reader(b, every=True).made(body)
    b.arrays |= faults
    return drop_unused(made)  # what may be wrong with it is said once


@dataclass
class _Reader:
    """Walks statements backwards; `needed` are the names that what follows uses. every: loads that the call looks at are
    stored too.
    """

    b: Builder
    every: bool = False
    arrays: dict[str, Array] = field(default_factory=dict)

    def made(self, body: tuple[Stmt, ...]) -> tuple[tuple[Stmt, ...], dict[str, Array]]:
        """The statements, and the arrays of faults among what they store."""
        made = self.block(body, set(), (), frozenset())
        stored = {s.array for s in walk(made) if isinstance(s, Store)}
        return made, {name: array for name, array in self.arrays.items() if name in stored}

    def block(
        self, body: tuple[Stmt, ...], needed: set[str], loops: tuple[str, ...], unsure: frozenset[str]
    ) -> tuple[Stmt, ...]:
        """loops: the variables around. unsure: those of them whose ranges data end."""
        out: tuple[Stmt, ...] = ()
        for stmt in reversed(body):
            made: tuple[Stmt, ...]
            match stmt:
                case Let(name=name, value=value) if name not in needed:
                    idle = () if name in self.b.spare else self.stores((value,), stmt, needed, loops, unsure)
                    made = (stmt, *idle)
                case If():
                    made = self.branch(stmt, needed, loops, unsure)
                case For():
                    made = self.loop(stmt, needed, loops, unsure)
                case _:
                    needed |= _names(statement_exprs(stmt))
                    made = (stmt,)
            out = (*made, *out)
        return out

    def branch(self, stmt: If, needed: set[str], loops: tuple[str, ...], unsure: frozenset[str]) -> tuple[Stmt, ...]:
        merges = [m for m in stmt.merges if m.name in needed]
        idle = [m for m in stmt.merges if m.name not in needed and m.name not in self.b.spare]
        sides = []
        for body, values, unused in (
            (stmt.then, [m.then for m in merges], [m.then for m in idle]),
            (stmt.orelse, [m.orelse for m in merges], [m.orelse for m in idle]),
        ):
            needed |= _names(values)
            stores = self.stores(unused, stmt, needed, loops, unsure)
            sides.append((*self.block(body, needed, loops, unsure), *stores))
        then, orelse = sides
        if merges or _stores(then) or _stores(orelse):
            needed |= free_names(stmt.condition)
            return (replace(stmt, then=then, orelse=orelse),)
        return (*self.stores((stmt.condition,), stmt, needed, loops, unsure), stmt)

    def loop(self, stmt: For, needed: set[str], loops: tuple[str, ...], unsure: frozenset[str]) -> tuple[Stmt, ...]:
        b = self.b
        bounds = (stmt.start, stmt.stop)
        inner = unsure | {stmt.var} if any(b.is_dynamic(e) or free_names(e) & unsure for e in bounds) else unsure
        kept = {c.name for c in stmt.carries if c.result in needed}
        while True:
            inside = _names(c.next for c in stmt.carries if c.name in kept)
            unused = [c.next for c in stmt.carries if c.name not in kept and c.name not in b.spare]
            stores = self.stores(unused, stmt, inside, (*loops, stmt.var), inner)
            body = (*self.block(stmt.body, inside, (*loops, stmt.var), inner), *stores)
            more = {c.name for c in stmt.carries if c.name in inside} - kept
            if not more:
                break
            kept |= more
        inits = [c.init for c in stmt.carries if c.name not in kept and c.name not in b.spare]
        needed |= inside | _names(c.init for c in stmt.carries if c.name in kept)
        if kept or _stores(body):
            needed |= _names(bounds)
            return (*self.stores(inits, stmt, needed, loops, unsure), replace(stmt, body=body))
        return (*self.stores((*inits, *bounds), stmt, needed, loops, unsure), stmt)

    def stores(
        self, exprs: Iterable[Expr], stmt: Stmt, needed: set[str], loops: tuple[str, ...], unsure: frozenset[str]
    ) -> tuple[Stmt, ...]:
        """What may be wrong with expressions that nothing uses."""
        out = []
        for fault in (f for e in exprs for f in self.faults(e, unsure)):
            name = self.b.fresh("unused")
            one = (Const(1, INT64),)
            self.arrays[name] = Array(name, fault.type, one, "local", None, loops, stmt.location, contiguous=True)
            out.append(Store(name, (ZERO,), fault, stmt.location))
            needed |= free_names(fault)
        return tuple(out)

    def faults(self, expr: Expr, unsure: frozenset[str]) -> list[Expr]:
        """The checks of an expression, each evaluated where the expression would evaluate it; a sum that leaves 64 bits is no
        fault of Python's.
        """
        match expr:
            case Op(name="where", args=(condition, then, orelse)):
                sides = [_where(condition, True, f) for f in self.faults(then, unsure)]
                sides += [_where(condition, False, f) for f in self.faults(orelse, unsure)]
                return [*self.faults(condition, unsure), *sides]
            case Op(name="and" | "or" as name, args=(left, right)):
                return [*self.faults(left, unsure), *(_where(left, name == "and", f) for f in self.faults(right, unsure))]
        found = [f for o in operands(expr) for f in self.faults(o, unsure)]
        match expr:
            case Check(args=(_, condition)) if not leaves_64_bits(expr):
                found.append(replace(expr, args=(_TRUE, condition), type=BOOL))
            case Load() if self.every or any(self.unknown(i, unsure) for i in expr.index):
                found.append(expr)
        return found

    def unknown(self, index: Expr, unsure: frozenset[str]) -> bool:
        """Whether the call cannot tell where a subscript is."""
        if isinstance(index, Op) and index.name == "where":
            return any(self.unknown(e, unsure) for e in index.args[1:])
        known = self.b.in_sizes(index)
        return self.b.is_dynamic(index) or affine(known) is None or bool(free_names(known) & unsure)


def _where(condition: Expr, holds: bool, value: Expr) -> Expr:
    """A value where a condition holds, or does not."""
    other = Const(0.0 if value.type.category == "float" else False if value.type == BOOL else 0, value.type)
    return Op("where", (condition, value, other) if holds else (condition, other, value), value.type)


def _names(exprs: Iterable[Expr]) -> set[str]:
    return {n for e in exprs for n in free_names(e)}


def _stores(body: tuple[Stmt, ...]) -> bool:
    return any(isinstance(s, Store) for s in walk(body))
