"""Sums over both sides of matrices of states, of which one side is summed anyway.

The gradient of what a point adds to its states is a sum over rows and columns, `sum of d[e, j] * v[e] * k[j]`. By the
distributive law it is that of `k[j]` and `sum of d[e, j] * v[e]`, which the gradient of `k` is made of: a product of vectors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from weft.graph.tidy import renewed
from weft.graph.tile import Fold, Map, Read, TileGraph, Value, dependence, mapped, starts_neutral
from weft.loops.ir import Expr, Op, Ref, substitute
from weft.loops.simplify import mul


def of_one_side(graph: TileGraph) -> TileGraph:
    """The graph, in which sums over two axes are of products of sums that there are over one, and of factors of the other."""
    depends, written_out = dependence(graph), [*_written_out(graph)]
    sums = [v for v in written_out if isinstance(v, Fold) and _is_sum(v)]

    def by_one(value: Value) -> Value:
        if not isinstance(value, Fold) or len(value.over) != 2 or not _is_sum(value):
            return value
        factors = Counter(_factors(value.parts[0]))
        for inner in sums:
            own = Counter(_factors(inner.parts[0]))
            sides, rest = {*value.over} - {*inner.over}, factors - own
            if len(inner.over) == len(sides) == 1 and own <= factors and depends.of(rest) & {*value.over} <= sides:
                part: Expr = Ref(inner.results[0], inner.types[0])
                for factor in rest.elements():
                    part = mul(part, factor)
                return replace(value, over=tuple(sides), parts=(part,))
        return value

    return renewed(replace(graph, values=tuple(map(by_one, written_out))))


def _is_sum(fold: Fold) -> bool:
    return fold.algebra == "sum" and starts_neutral(fold) and fold.types[0].category == "float"


def _written_out(graph: TileGraph) -> Iterator[Value]:
    """The values, with folds of what is made of states rather than of its names: what is alike looks alike then."""
    arrays = [*({*v.axes} for v in graph.values if isinstance(v, Read)), *({*w.axes} for w in graph.writes)]
    known: dict[str, Expr] = {}
    for v in graph.values:
        if isinstance(v, Map) and not any({*v.axes} <= own for own in arrays):
            known[v.name] = substitute(v.value, known)
        yield mapped(v, lambda e: substitute(e, known)) if isinstance(v, Fold) else v


def _factors(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Op) and e.name == "mul":
        for a in e.args:
            yield from _factors(a)
    else:
        yield e
