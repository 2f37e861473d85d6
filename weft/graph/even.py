"""Rows whose axes bound one another, as the points of a triangle do, among the points of a box around them: what is computed at
those that the program has not is written nowhere.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from weft.graph.tile import Axis, Fold, NotTiles, Read, TileGraph, dependence, uses, uses_of_write
from weft.loops.affine import Affine, affine
from weft.loops.ir import ZERO, Check, Const, Expr, Load, Op, Ref, free_names, walk_expr
from weft.loops.normalize import simplify
from weft.loops.types import BOOL, INT64


@dataclass(frozen=True)
class Box:
    """What was asked of the program to have a box around its points. asked: reads that a plan has to see inside their arrays,
    as they are done at more points than the program has. uneven: the program's own axes.
    """

    asked: tuple[Read, ...]
    uneven: tuple[Axis, ...]


def even(graph: TileGraph) -> tuple[TileGraph, Box]:
    """The graph, of which no axis that all writes and folds have is bounded by others. Raises NotTiles where there are no such
    axes, or what the program computes at its points may not be done at others.
    """
    folds = [v for v in graph.values if isinstance(v, Fold)]
    rows = set.intersection(*(set(f.axes) for f in folds), *(set(w.axes) for w in graph.writes)) if folds else set()
    names = {a.name for a in graph.axes}
    uneven = {a.name: a for a in graph.axes if a.name in rows and (free_names(a.start) | free_names(a.stop)) & names}
    if not uneven or any((free_names(a.start) | free_names(a.stop)) & graph.made.keys() for a in uneven.values()):
        raise NotTiles("no axis is bounded by others")
    axes: dict[str, Axis] = {}
    for a in graph.axes:
        if a.name in uneven:
            a = replace(a, start=simplify(end(a.start, axes, -1)), stop=simplify(end(a.stop, axes, 1)), segment=None)  # noqa: PLW2901
        axes[a.name] = a
    depends = dependence(graph)
    touched = {*uneven}
    for a in graph.axes:  # each after those that bound it
        if depends.of((a.start, a.stop)) & touched:
            touched.add(a.name)

    def more(e: Expr) -> bool:
        """Whether an expression is computed at points that the program has not."""
        return bool(depends.of((e,)) & touched)

    for e in (*(e for v in graph.values for e in uses(v)), *(e for w in graph.writes for e in uses_of_write(w))):
        if any(isinstance(x, Load | Check) for x in walk_expr(e)) and more(e):
            raise NotTiles("data decide what is read")
    asked = tuple(v for v in graph.values if isinstance(v, Read) and {*v.axes} & touched)
    if any(v.checked or any(free_names(i) & graph.made.keys() for i in v.index) for v in asked):
        raise NotTiles("data decide what is read")
    seen = {v.name: replace(v, always=True) for v in asked}
    values = tuple(seen.get(v.name, v) if isinstance(v, Read) else v for v in graph.values)
    writes = tuple(replace(w, guard=functools.reduce(_and, _inside(uneven), w.guard)) for w in graph.writes)
    return replace(graph, axes=tuple(axes.values()), values=values, writes=writes), Box(asked, tuple(uneven.values()))


def _inside(uneven: Mapping[str, Axis]) -> list[Expr]:
    """That a point is one of the program's."""
    found: list[Expr] = []
    for a in uneven.values():
        own = Ref(a.name, INT64)
        found += [Op("le", (a.start, own), BOOL)] if a.start != ZERO else []
        found.append(Op("lt", (own, a.stop), BOOL))
    return found


def _and(first: Expr | None, second: Expr) -> Expr:
    return second if first is None else Op("and", (first, second), BOOL)


def end(e: Expr, axes: Mapping[str, Axis], side: int) -> Expr:
    """The least (-1) or the greatest (1) value of an integer over all points of the axes, about: none is beyond it. Raises
    NotTiles.
    """
    if not free_names(e) & axes.keys():
        return e
    if isinstance(e, Op) and e.name in ("min", "max", "minimum", "maximum"):
        return replace(e, args=tuple(end(a, axes, side) for a in e.args))
    own = affine(e)
    if own is None:
        raise NotTiles("an axis is bounded by others in no line")
    for name in reversed(list(axes)):  # an axis may be bounded by those before it
        if factor := own.coefficient(name):
            bound = axes[name].start if factor * side < 0 else Op("sub", (axes[name].stop, Const(1, INT64)), INT64)
            at = affine(bound)
            if at is None:
                raise NotTiles("an axis is bounded by others in no line")
            own = own + Affine(((name, 1),), 0) * -factor + at * factor
    return own.expr()
