"""The statements of a thread that has several iterations of an axis: what differs between them is written as loops over these,
which the compiler unrolls; all else once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from weft.emit.cpp_body import Lanes
from weft.emit.expressions import register_type
from weft.emit.thread_body import ThreadBody, value_of
from weft.loops.ir import (
    Carry,
    Expr,
    For,
    If,
    Let,
    Merge,
    Op,
    Stmt,
    Store,
    bodies,
    bound_names,
    bound_scalars,
    free_arrays,
    free_names,
    free_names_of,
    map_statement,
    reachable,
    statement_exprs,
    walk,
)
from weft.loops.schedule import Axis
from weft.loops.types import BOOL, ScalarType


@dataclass
class SeveralBody(ThreadBody):
    """differing: the names that are another in each iteration of the axis. many: its iterations that a thread has. value: what
    the variable is in one of them, which is the last one where there are fewer.
    """

    differing: frozenset[str] = frozenset()
    axis: str = ""
    many: int = 1
    value: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.passed = frozenset(_passed(self.nest.body, self.differing))
        self.own = self.fresh.fresh("own")

    def several(self, axis: Axis, place: str, count: str) -> None:
        own = place.format(self.own)
        self.there = " && ".join([*([self.there] if self.there else []), f"{own} < {count}"])
        self.value = value_of(axis, f"weft::minimum<int64_t>({own}, {count} - 1)", self)
        name = self.declare(axis.var)
        if any(isinstance(s, For) for s in walk(self.nest.body)):  # else the compiler finds it anew in each iteration of these
            each = self.fresh.fresh(f"{name}_each")
            self.writer.line(f"int64_t {each}[{self.many}];")
            self.writer.line("#pragma unroll")
            self.writer.line(f"for (int32_t {self.own} = 0; {self.own} < {self.many}; ++{self.own}) "
                             f"{each}[{self.own}] = weft::opaque({self.value});")  # fmt: skip
            self.value = f"{each}[{self.own}]"

    # ------------------------------------------------------------ what differs

    @contextmanager
    def each(self) -> Iterator[None]:
        """What is done for each of the iterations."""
        self.writer.line("#pragma unroll")
        with self.writer.block(f"for (int32_t {self.own} = 0; {self.own} < {self.many}; ++{self.own})"):
            mark = self.writer.mark()
            self.lanes = Lanes(self.axis, "", self.own, str(self.many), str(self.many), tiled=False)
            yield
            self.lanes = None
            if self.writer.mentions(self.names[self.axis], mark):
                self.writer.insert(mark, f"const int64_t {self.names[self.axis]} = {self.value};")

    def declare_each(self, name: str, type_: ScalarType) -> None:
        self.writer.line(f"{register_type(type_)} {self.declare(name)}[{self.many}];")

    # ------------------------------------------------------------ statements

    def statements(self, statements: tuple[Stmt, ...]) -> None:
        if self.lanes:
            super().statements(statements)
            return
        for differs, group in itertools.groupby(statements, lambda s: _differs(s, self.differing)):
            if not differs:
                super().statements(tuple(group))
                continue
            own = tuple(group)
            for stmt in own:
                for name, type_ in bound_scalars(stmt):
                    if name in self.passed:
                        self.declare_each(name, type_)
            with self.each():
                super().statements(own)

    def loop(self, loop: For) -> None:
        own = [c for c in loop.carries if c.name in self.differing]
        if self.lanes or (not own and not any(_differs(s, self.differing) for s in walk(loop.body))):
            super().loop(loop)
            return
        self.writer.cite(loop.location)
        for c in loop.carries:
            self.names[c.result] = self.declare(c.name)
            if c in own:
                self.declare_each(c.name, c.type)
            else:
                self.writer.line(f"{register_type(c.type)} {self.names[c.name]} = {self.printer.value(c.init)};")
        if own:
            with self.each():
                for c in own:
                    self.writer.line(f"{self.names[c.name]}[{self.own}] = {self.printer.value(c.init)};")
        self.in_order(loop, self.printer.index(loop.start))

    def advance(self, carries: tuple[Carry, ...]) -> None:
        own = tuple(c for c in carries if c.name in self.differing)
        if self.lanes or not own:
            super().advance(carries)
            return
        with self.each():
            super().advance(own)
        super().advance(tuple(c for c in carries if c not in own))

    def branch(self, branch: If) -> None:
        """A branch that all iterations take alike, if it is none of one of them."""
        inside = (*branch.then, *branch.orelse)
        own = [m for m in branch.merges if m.name in self.differing]
        if self.lanes or (not own and not any(_differs(s, self.differing) for s in walk(inside))):
            super().branch(branch)
            return
        self.writer.cite(branch.location)
        others = [m for m in branch.merges if m not in own]
        for m in own:
            self.declare_each(m.name, m.type)
        for m in others:
            self.writer.line(f"{register_type(m.type)} {self.declare(m.name)};")

        def side(statements: tuple[Stmt, ...], values: dict[str, Expr]) -> None:
            self.statements(statements)
            if own:
                with self.each():
                    for m in own:
                        self.writer.line(f"{self.names[m.name]}[{self.own}] = {self.printer.value(values[m.name])};")
            for m in others:
                self.writer.line(f"{self.names[m.name]} = {self.printer.value(values[m.name])};")

        condition, otherwise = self.at_once(branch.condition), bool(branch.orelse or branch.merges)
        with self.under_condition(branch.condition), self.writer.block(f"if ({condition})", "" if otherwise else "}"):
            side(branch.then, {m.name: m.then for m in branch.merges})
        if otherwise:
            with self.writer.block("} else"):
                side(branch.orelse, {m.name: m.orelse for m in branch.merges})


def in_branches(statements: tuple[Stmt, ...], differing: frozenset[str]) -> tuple[Stmt, ...]:
    """Statements in which what all iterations ask alike is asked once: what is chosen by it is told by a branch."""
    out: list[Stmt] = []
    for stmt in statements:
        match stmt:
            case Let(name=name, value=Op(name="where", args=(condition, then, orelse))) if name in differing:
                if free_arrays(condition) and not free_names(condition) & differing:
                    out.append(If(condition, (), (), (Merge(name, then, orelse),), stmt.location))
                    continue
        out.append(map_statement(stmt, lambda e: e, lambda body: in_branches(body, differing)))
    return tuple(out)


def _differs(stmt: Stmt, names: frozenset[str]) -> bool:
    """Whether a statement is done in each of the iterations, as a whole."""
    match stmt:
        case Let(name=name):
            return name in names
        case Store():
            return True
        case If(condition=condition):
            return bool(free_names(condition) & names)
    return False


def _passed(body: tuple[Stmt, ...], names: frozenset[str]) -> Iterator[str]:
    """The names that lie in an array, since they are used in another loop over the iterations than they are made in."""
    made: dict[str, int] = {}
    used: list[tuple[int, frozenset[str]]] = []
    conditions = {s.name: free_names(s.value) for s in walk(body) if isinstance(s, Let) and s.value.type == BOOL}

    def reads(exprs: Iterator[Expr] | tuple[Expr, ...]) -> frozenset[str]:
        """With what conditions compare: subscripts are written as these have them."""
        return frozenset(reachable(free_names_of(exprs), lambda name: conditions.get(name, ())))

    def visit(statements: tuple[Stmt, ...]) -> None:
        for differs, group in itertools.groupby(statements, lambda s: _differs(s, names)):
            number = len(used) + 1
            for stmt in group:
                if differs:
                    made.update(dict.fromkeys((n for s in walk((stmt,)) for n in bound_names(s)), number))
                    used.append((number, reads(e for s in walk((stmt,)) for e in statement_exprs(s))))
                    continue
                used.append((0, reads(statement_exprs(stmt))))
                for inside in bodies(stmt):
                    visit(inside)

    visit(body)
    for stmt in walk(body):
        if isinstance(stmt, For):
            yield from (n for c in stmt.carries if c.name in names for n in (c.name, c.result))
        elif isinstance(stmt, If) and not _differs(stmt, names):
            yield from (m.name for m in stmt.merges if m.name in names)
    yield from (n for number, own in used for n in own if made.get(n, number) != number)
