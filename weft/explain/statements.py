"""The statements of a function as a dependence graph: what each binds or stores, and what it needs."""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import Location
from weft.loops.ir import Expr, For, If, Let, Load, Stmt, Store, free_names, statement_exprs, walk_expr
from weft.loops.schedule import Nest


@dataclass(frozen=True)
class Statement:
    """S1, S2, ...: what it defines (names and arrays), its source line, the loops around it."""

    label: str
    defines: str
    text: str
    loops: tuple[str, ...]
    location: Location | None


@dataclass(frozen=True)
class Arrow:
    """`target` needs what `source` makes: through the scalar or array `through`; carried: by which loop, or ""."""

    source: str
    target: str
    through: str
    carried: str = ""


@dataclass(frozen=True)
class StatementGraph:
    statements: tuple[Statement, ...]
    arrows: tuple[Arrow, ...]


def statement_graph(nest: Nest) -> StatementGraph:
    """The statements of a nest and the flow between them; carried scalars give the arrows that go round a loop."""
    statements: list[Statement] = []
    makers: dict[str, str] = {}  # name or array -> the statement that made it last
    arrows: list[Arrow] = []
    late: list[tuple[str, str, str]] = []  # (carried name, the expression's maker, loop)

    def needs(exprs: tuple[Expr, ...]) -> list[str]:
        found: list[str] = []
        for e in exprs:
            found += sorted(free_names(e))
            found += [x.array for x in walk_expr(e) if isinstance(x, Load)]
        return list(dict.fromkeys(found))

    def add(stmt: Stmt, defines: str, exprs: tuple[Expr, ...], loops: tuple[str, ...]) -> str:
        label = f"S{len(statements) + 1}"
        text = stmt.location.text().strip() if stmt.location is not None else ""
        statements.append(Statement(label, defines, text, loops, stmt.location))
        for name in needs(exprs):
            if name in makers:
                arrows.append(Arrow(makers[name], label, name))
            for carried, _, loop in late:
                if carried == name:
                    pending.append((name, label, loop))
        makers[defines] = label
        return label

    pending: list[tuple[str, str, str]] = []

    def block(body: tuple[Stmt, ...], loops: tuple[str, ...]) -> None:
        for stmt in body:
            match stmt:
                case Let():
                    add(stmt, stmt.name, statement_exprs(stmt), loops)
                case Store():
                    add(stmt, stmt.array, statement_exprs(stmt), loops)
                case If():
                    block(stmt.then, loops)
                    block(stmt.orelse, loops)
                    for m in stmt.merges:
                        add(stmt, m.name, (stmt.condition, m.then, m.orelse), loops)
                case For():
                    for c in stmt.carries:
                        late.append((c.name, "", stmt.var))
                    block(stmt.body, (*loops, stmt.var))
                    for c in stmt.carries:
                        inner = sorted(free_names(c.next) & makers.keys())
                        if inner and not free_names(c.next) - {inner[-1]} and c.next == _same(c.next, inner[-1]):
                            maker = makers[inner[-1]]
                        else:
                            maker = add(stmt, c.name, (c.next,), (*loops, stmt.var))
                        for name, label, loop in pending:
                            if name == c.name:
                                arrows.append(Arrow(maker, label, name, loop))
                        makers[c.result] = maker

    block(nest.body, tuple(a.var for a in nest.axes))
    return StatementGraph(tuple(statements), tuple(dict.fromkeys(arrows)))


def _same(expr: Expr, name: str) -> Expr | None:
    from weft.loops.ir import Ref

    return expr if isinstance(expr, Ref) and expr.name == name else None
