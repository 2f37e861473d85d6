"""Quotients and remainders that 32 bits hold in a call: a GPU divides in them in a tenth of the time that 64 take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from weft.graph.joins import Joins
from weft.graph.maps import Maps
from weft.graph.recurrences import Recurrences
from weft.graph.scans import Scanned
from weft.graph.state_scans import StateScans
from weft.graph.sweeps import Sweeps
from weft.graph.tile import Axis, Map, Value, Write, uses, uses_of_write
from weft.loops.intervals import Intervals, NeverRuns, Untold
from weft.loops.ir import Expr, For, If, Let, Op, Stmt, statement_exprs, walk_expr
from weft.loops.types import INT64

_UNSIGNED, _SIGNED = (0, (1 << 32) - 1), (-(1 << 31), (1 << 31) - 1)

Graph = Maps | Sweeps | Joins | Scanned | StateScans | Recurrences
Short = tuple[tuple[Expr, str], ...]


def short_of_graph(graph: Graph, names: Mapping[str, int], loops: Mapping[str, tuple[int, int]]) -> Short:
    """Those of a graph, and the type of each. names: the values of sizes and integers; loops: the ranges of variables."""
    found: dict[Expr, str] = {}
    for axes, values, writes in _parts(graph):
        ranges = _started(names, loops)
        try:
            for axis in axes:
                _open(ranges, axis.loop())
        except NeverRuns:
            continue
        for value in values:
            found |= _short(uses(value), ranges)
            if isinstance(value, Map):
                _bind(ranges, value.name, value.value)
        found |= _short((e for w in writes for e in uses_of_write(w)), ranges)
    return tuple(found.items())


def short_of_statements(body: tuple[Stmt, ...], names: Mapping[str, int], loops: Mapping[str, tuple[int, int]]) -> Short:
    """The same for the statements of a nest."""
    found: dict[Expr, str] = {}
    ranges = _started(names, loops)

    def block(statements: tuple[Stmt, ...]) -> None:
        for stmt in statements:
            match stmt:
                case For():
                    try:
                        _open(ranges, stmt)
                    except NeverRuns:
                        continue
                    found.update(_short(statement_exprs(stmt), ranges))
                    block(stmt.body)
                case If():
                    found.update(_short(statement_exprs(stmt), ranges))
                    block(stmt.then)
                    block(stmt.orelse)
                case _:
                    found.update(_short(statement_exprs(stmt), ranges))
                    if isinstance(stmt, Let):
                        _bind(ranges, stmt.name, stmt.value)

    block(body)
    return tuple(found.items())


def _parts(graph: Graph) -> Iterator[tuple[Iterable[Axis], tuple[Value, ...], tuple[Write, ...]]]:
    match graph:
        case Maps():
            for course in graph.courses:
                yield course.axes, course.values, course.writes
        case Sweeps():
            yield graph.axes.values(), graph.values, (*(w for s in graph.stages for x in s for w in x.writes), *graph.last)
        case Joins():
            yield graph.axes.values(), graph.values, ()
        case _:
            yield graph.axes.values(), graph.values, graph.writes


def _started(names: Mapping[str, int], loops: Mapping[str, tuple[int, int]]) -> Intervals:
    ranges = Intervals(names)
    ranges.known |= loops
    return ranges


def _open(ranges: Intervals, loop: For) -> None:
    try:
        ranges.open(loop)
    except Untold:
        ranges.known.pop(loop.var, None)


def _bind(ranges: Intervals, name: str, value: Expr) -> None:
    try:
        if value.type == INT64:
            ranges.known[name] = ranges.of(value)
    except Untold:
        return


def _short(exprs: Iterable[Expr], ranges: Intervals) -> dict[Expr, str]:
    found: dict[Expr, str] = {}
    for top in exprs:
        for e in walk_expr(top):
            if not isinstance(e, Op) or e.name not in ("floordiv", "mod") or e.type != INT64:
                continue
            try:
                (low, high), (least, most) = (ranges.of(a) for a in e.args)
            except Untold:
                continue
            if least > 0 and low >= _UNSIGNED[0] and max(high, most) <= _UNSIGNED[1]:
                found[e] = "uint32_t"
            elif least > 0 and low >= _SIGNED[0] and max(high, most) <= _SIGNED[1]:
                found[e] = "int32_t"
    return found
