"""Sums over both sides of matrices of states, of which one side is summed anyway.

The gradient of what a point adds to its states is a sum over rows and columns, `sum of d[e, j] * v[e] * k[j]`. By the
distributive law it is that of `k[j]` and `sum of d[e, j] * v[e]`, which the gradient of `k` is made of: a product of vectors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

from weft.graph.tidy import renewed
from weft.graph.tile import (
    Fold,
    Map,
    Read,
    Scan,
    TileGraph,
    Value,
    all_uses,
    dependence,
    mapped,
    names_of,
    starts_neutral,
    uses_of_write,
)
from weft.loops.algebra.table import AFFINE
from weft.loops.ir import Expr, Op, Ref, substitute, walk_expr
from weft.loops.simplify import add, mul


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


def _terms(e: Expr) -> list[Expr]:
    return [t for a in e.args for t in _terms(a)] if isinstance(e, Op) and e.name == "add" else [e]


def _factors(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Op) and e.name == "mul":
        for a in e.args:
            yield from _factors(a)
    else:
        yield e


def with_decays(graph: TileGraph) -> TileGraph:
    """The graph, in which sums of early and late states that are multiplied by what the states are multiplied by, too, are sums
    of such products: the gradient of a decay's logarithm, of which no term lacks the decay of its own point.
    """
    decays = {v.parts[0] for v in graph.values if isinstance(v, Scan) and v.algebra == AFFINE}
    if len(decays) != 1 or not isinstance(decay := decays.pop(), Ref):
        return graph
    meeting = {v.results[0]: v for v in graph.values if isinstance(v, Fold) and len(v.over) == 2 and _is_sum(v)}
    depends = dependence(graph)
    exprs = [e for v in graph.values for e in all_uses(v)] + [e for w in graph.writes for e in uses_of_write(w)]
    used = Counter(e.name for top in exprs for e in walk_expr(top) if isinstance(e, Ref))
    changed: dict[str, Value] = {}
    for v in graph.values:
        match v:
            case Map(value=Op(name="mul", args=args)) if decay in args:
                terms = _terms(args[args[0] == decay])
                found = [meeting[e.name] for e in terms if isinstance(e, Ref) and e.name in meeting and used[e.name] == 1]
                found = [f for f in found if depends.of((decay,)) <= {*f.axes}]
                own = {f.results[0] for f in found}
                if found:
                    multiplied = (e if isinstance(e, Ref) and e.name in own else mul(e, decay) for e in terms)
                    changed[v.name] = replace(v, value=reduce(add, multiplied))
                    changed |= {f.results[0]: replace(f, parts=(mul(f.parts[0], decay),)) for f in found}
    return renewed(replace(graph, values=tuple(changed.get(names_of(v)[0], v) for v in graph.values)))
