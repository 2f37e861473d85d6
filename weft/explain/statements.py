"""The statements of a nest as a dependence graph: the user's lines, and what each needs from which."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from weft.errors import Location
from weft.loops.ir import (
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Stmt,
    Store,
    free_names,
    statement_exprs,
    walk_expr,
)
from weft.loops.schedule import Nest
from weft.loops.show import show_expr, user_names


@dataclass(frozen=True)
class Statement:
    """S1, S2, ...: a line of the source, and the loops around it."""

    label: str
    text: str
    loops: tuple[str, ...]


@dataclass(frozen=True)
class Arrow:
    """`target` needs what `source` makes: the scalar or array `through`; carried: by which loop, or ""."""

    source: str
    target: str
    through: str
    carried: str = ""


@dataclass(frozen=True)
class StatementGraph:
    statements: tuple[Statement, ...]
    arrows: tuple[Arrow, ...]


# ---------------------------------------------------------------- the graph


@dataclass
class _Builder:
    """The statements met so far. makers: of each scalar and array, the statements that made what it now holds."""

    nest: Nest
    shown: Callable[[str], str]
    statements: list[Statement] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    makers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    carried: dict[str, str] = field(default_factory=dict)  # a carried scalar -> its loop
    waiting: list[tuple[str, str]] = field(default_factory=list)  # (carried scalar, who reads it)
    reads: list[tuple[str, str]] = field(default_factory=list)  # (array, who reads it)
    writes: list[tuple[str, str]] = field(default_factory=list)
    places: dict[tuple[str, int, tuple[str, ...]], str] = field(default_factory=dict)

    def label(self, location: Location | None, loops: tuple[str, ...], otherwise: str) -> str:
        """The statement of a source line in these loops, new or met before."""
        text = location.text().strip() if location is not None else ""
        place = (location.file, location.line, loops) if location is not None and text else None
        if place is not None and place in self.places:
            return self.places[place]
        label = f"S{len(self.statements) + 1}"
        self.statements.append(Statement(label, text or otherwise, loops))
        if place is not None:
            self.places[place] = label
        return label

    def needs(self, label: str, exprs: Iterable[Expr]) -> None:
        for expr in exprs:
            for name in sorted(free_names(expr)):
                self.arrow(self.makers.get(name, ()), label, name)
                if name in self.carried:
                    self.waiting.append((name, label))
            for e in walk_expr(expr):
                if isinstance(e, Load):
                    self.arrow(self.makers.get(e.array, ()), label, e.array)
                    self.reads.append((e.array, label))

    def arrow(self, sources: Iterable[str], target: str, name: str, carried: str = "") -> None:
        for source in sources:
            if source != target or carried:
                self.arrows.append(Arrow(source, target, self.shown(name), carried))

    def block(self, body: tuple[Stmt, ...], loops: tuple[str, ...]) -> None:
        for stmt in body:
            match stmt:
                case Let(name=name):
                    label = self.label(stmt.location, loops, f"{self.shown(name)} = {show_expr(stmt.value)}")
                    self.needs(label, statement_exprs(stmt))
                    self.makers[name] = (label,)
                case Store(array=array):
                    index = ", ".join(map(show_expr, stmt.index))
                    label = self.label(stmt.location, loops, f"{array}[{index}] = {show_expr(stmt.value)}")
                    self.needs(label, statement_exprs(stmt))
                    self.makers[array] = (label,)
                    self.writes.append((array, label))
                case If():
                    self.branch(stmt, loops)
                case For():
                    self.loop(stmt, loops)

    def branch(self, stmt: If, loops: tuple[str, ...]) -> None:
        """The branches' statements need the condition; what is merged after them is made by both."""
        before = len(self.statements)
        self.block(stmt.then, loops)
        self.block(stmt.orelse, loops)
        inside = [s.label for s in self.statements[before:]]
        label = ""
        if not inside or any(free_names(stmt.condition) & self.makers.keys()):
            label = self.label(stmt.location, loops, f"if {show_expr(stmt.condition)}:")
            self.needs(label, (stmt.condition,))
            for target in inside:
                self.arrow((label,), target, "condition")
        for merge in stmt.merges:
            made = [m for e in (merge.then, merge.orelse) for n in free_names(e) for m in self.makers.get(n, ())]
            for e in (merge.then, merge.orelse):
                for name in free_names(e) & self.carried.keys():
                    self.waiting += [(name, m) for m in made or ([label] if label else [])]
            self.makers[merge.name] = tuple(dict.fromkeys([*made, *([label] if label else [])]))

    def loop(self, stmt: For, loops: tuple[str, ...]) -> None:
        for carry in stmt.carries:
            self.carried[carry.name] = stmt.var
            self.makers[carry.name] = self.made_by(carry.init)
        first = len(self.reads), len(self.writes), len(self.waiting)
        self.block(stmt.body, (*loops, stmt.var))
        for carry in stmt.carries:
            makers = self.made_by(carry.next)
            readers = [label for name, label in self.waiting[first[2] :] if name == carry.name]
            readers += [m for m in makers if carry.name in free_names(carry.next)]
            for reader in dict.fromkeys(readers):
                self.arrow(makers, reader, carry.name, stmt.var)
            for name in free_names(carry.init) & self.carried.keys():  # it starts as what a loop outside carries
                self.waiting += [(name, reader) for reader in readers]
            self.makers[carry.result] = makers
        verdict = dict(self.nest.verdicts).get(stmt.var)
        for array in verdict.cycle if verdict is not None and verdict.kind == "sequential" else ():
            writers = [label for a, label in self.writes[first[1] :] if a == array]
            readers = [label for a, label in self.reads[first[0] :] if a == array]
            for reader in dict.fromkeys(readers or writers):
                self.arrow(dict.fromkeys(writers), reader, array, stmt.var)

    def made_by(self, expr: Expr) -> tuple[str, ...]:
        return tuple(dict.fromkeys(m for n in sorted(free_names(expr)) for m in self.makers.get(n, ())))


def statement_graph(function: Function, nest: Nest) -> StatementGraph:
    """The statements of a nest and the flow between them; what a loop carries gives the arrows that go round it."""
    builder = _Builder(nest, user_names(function))
    builder.block(nest.body, tuple(a.var for a in nest.axes))
    return StatementGraph(tuple(builder.statements), tuple(dict.fromkeys(builder.arrows)))
