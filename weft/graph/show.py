"""A tile graph as text: each value with its axes, `acc{i,j} = sum over k of a{i,k} * b{k,j}`."""

from __future__ import annotations

from collections.abc import Iterable

from weft.graph.tile import (
    IN_ORDER,
    Carried,
    Fold,
    Map,
    Moved,
    Read,
    Scan,
    TileGraph,
    Value,
    Write,
    axes_of_name,
    names_of,
    starts_neutral,
)
from weft.loops.algebra.table import in_order
from weft.loops.ir import Expr, Ref, substitute
from weft.loops.show import show_expr
from weft.loops.types import INT64


def show(graph: TileGraph) -> str:
    """The axes on the first line, then a line for each value and each write."""
    spelled = Spelling(graph.values)
    axes = ", ".join(f"{a.name} in {spelled.expr(a.start)}..{spelled.expr(a.stop)}" for a in graph.axes)
    lines = [f"{graph.name}: {axes}" if axes else f"{graph.name}:"]
    lines += [f"  {spelled.value(v)}" for v in graph.values]
    lines += [f"  {spelled.write(w)}" for w in graph.writes]
    return "\n".join(lines) + "\n"


class Spelling:
    """Values and writes of a graph as text, with the axes of values beside their names."""

    def __init__(self, values: Iterable[Value]) -> None:
        self.axes = {n: axes_of_name(v, n) for v in values for n in names_of(v)}
        self.names: dict[str, Expr] = {n: Ref(_with_axes(n, axes), INT64) for n, axes in self.axes.items()}

    def expr(self, e: Expr) -> str:
        return show_expr(substitute(e, self.names))

    def name(self, name: str) -> str:
        return show_expr(self.names[name]) if name in self.names else name

    def value(self, value: Value) -> str:
        match value:
            case Read():
                index = ", ".join(map(self.expr, value.index)) or "()"
                how = ", checked" if value.checked else "" if value.always else ", where needed"
                return f"{self.name(value.name)} = {value.array}[{index}]{how}"
            case Map():
                return f"{self.name(value.name)} = {self.expr(value.value)}"
            case Moved():
                at = dict(value.at)
                point = ",".join(self.expr(at[a]) if a in at else a for a in self.axes[value.of])
                return f"{self.name(value.name)} = {value.of}{{{point}}}"
        return self.carried(value)

    def carried(self, value: Carried) -> str:
        over = ", ".join(value.over) + (" backwards" if value.reverse and _ordered(value) else "")
        parts = value.nexts if isinstance(value, Scan) and value.algebra == IN_ORDER else value.parts
        what = ", ".join(map(self.expr, parts))
        what = what if len(parts) == 1 else f"({what})"
        inits = ", ".join(map(self.expr, value.inits))
        start = "" if starts_neutral(value) else f" from {inits}"
        algebra = value.algebra.replace(" ", "_") if value.algebra != IN_ORDER else value.algebra
        if isinstance(value, Scan):
            names = ", ".join(map(self.name, value.names))
            last = ", ".join(map(self.name, value.results))
            return f"{names} = scan over {over} {'' if algebra == IN_ORDER else 'by '}{algebra} of {what}{start}, last {last}"
        names = ", ".join(map(self.name, value.results))
        told = f"{names} = {algebra} over {over} of {what}{start}"
        if isinstance(value, Fold) and value.scale is not None:
            told += f", relative to {', '.join(map(self.name, value.relative))} by {self.expr(value.scale)}"
        return told

    def write(self, write: Write) -> str:
        index = ", ".join(map(self.expr, write.index)) or "()"
        sign = f"{write.join}=" if write.join else "="
        guard = "" if write.guard is None else f" if {self.expr(write.guard)}"
        how = ", checked" if write.checked else ""
        return f"{write.array}[{index}] {sign} {self.expr(write.value)}{guard}{how}"


def _ordered(value: Carried) -> bool:
    return isinstance(value, Scan) or in_order(value.algebra)


def _with_axes(name: str, axes: tuple[str, ...]) -> str:
    return f"{name}{{{','.join(axes)}}}" if axes else name
