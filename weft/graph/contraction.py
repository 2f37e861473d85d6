"""Folds as products of matrices: a reading of the graph, no part of it.

A sum of a product is one where its factors fall in two groups that each have axes of the result alone. Axes that both have, and
the sum has not, are batch: for each of their points it is a product of its own.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from weft.graph.tile import Fold, Map, TileGraph, axes_of_name
from weft.loops.ir import Expr, Op, Ref, free_names


@dataclass(frozen=True)
class Contraction:
    """sum over `over` of left * right. rows, columns: the axes of the result that left alone has, and right alone."""

    left: tuple[Expr, ...]
    right: tuple[Expr, ...]
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    over: tuple[str, ...]


def contraction(graph: TileGraph, fold: Fold) -> Contraction | None:
    """A fold as a product; None where it is none."""
    if fold.algebra != "sum" or fold.types[0].category == "bool":
        return None
    factors = _factors(graph, fold.parts[0])
    axes = [_axes(graph, f) for f in factors]
    if len(factors) < 2 or not all(any(o in a for a in axes) for o in fold.over):
        return None
    free = [a - set(fold.over) for a in axes]
    batch = frozenset(fold.axes).intersection(*(f for f in free if f))
    groups: list[set[str]] = []
    for own in (f - batch for f in free):
        if own:
            groups = [*(g for g in groups if not g & own), set(own).union(*(g for g in groups if g & own))]
    if len(groups) < 2:
        return None
    last = max(groups, key=lambda g: max(fold.axes.index(a) for a in g))
    right = tuple(f for f, a in zip(factors, free, strict=True) if a & last)
    left = tuple(f for f in factors if f not in right)  # those of the sum's axes and the batch alone among them
    rows = set().union(*groups) - last

    def ordered(axes: Collection[str]) -> tuple[str, ...]:
        return tuple(a for a in fold.axes if a in axes)

    return Contraction(left, right, ordered(batch), ordered(rows), ordered(last), fold.over)


def _factors(graph: TileGraph, e: Expr) -> tuple[Expr, ...]:
    """What is multiplied in an expression, and in values that have names."""
    match e:
        case Op(name="mul", args=(a, b)):
            return (*_factors(graph, a), *_factors(graph, b))
        case Ref(name=name):
            value = graph.made.get(name)
            if isinstance(value, Map) and isinstance(value.value, Op) and value.value.name == "mul":
                return _factors(graph, value.value)
    return (e,)


def _axes(graph: TileGraph, e: Expr) -> frozenset[str]:
    own = {a.name for a in graph.axes}
    found = {n for n in free_names(e) if n in own}
    return frozenset(found).union(*(axes_of_name(graph.made[n], n) for n in free_names(e) if n in graph.made))
