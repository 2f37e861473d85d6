"""Sums over several axes in two steps, where the first one is of use.

Passes go through memory once for the folds of one group of axes. What is folded over all points of a row, beside what is folded
over some of its axes (the gradient of a group norm: sums of a group, and of each of its channels), is folded over these axes
there, and the few parts that it has are folded after. And a sum of three factors, `x[i] * a[i, j] * z[j]`, is a product of
matrices, the sum over i for each j, whose results are multiplied by the third factor, and summed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from weft.graph.contraction import contraction
from weft.graph.steady import names_in, of_some
from weft.graph.tile import Fold, Map, Read, TileGraph, Value, dependence, starts_neutral, uses
from weft.loops.algebra.table import ALGEBRAS
from weft.loops.ir import Expr, Op, Ref
from weft.loops.names import Names


def in_two_steps(graph: TileGraph) -> TileGraph:
    """The graph, whose folds by one operator begin with its identity, with folds over several axes in two steps where another
    fold goes through the same points for more results, or where the first step is a product of matrices.
    """
    taken = names_in(graph)
    values: list[Value] = []
    for v in graph.values:
        steps = _steps(graph, v, taken) if isinstance(v, Fold) else None
        values += (v,) if steps is None else steps
    return replace(graph, values=tuple(values))


def is_product(graph: TileGraph, fold: Fold) -> bool:
    """Whether a sum has a product of matrices as its first step."""
    return _product(graph, fold) is not None


def _steps(graph: TileGraph, fold: Fold, taken: Names) -> tuple[Value, ...] | None:
    if len(fold.over) < 2 or fold.algebra not in ALGEBRAS or fold.relative or not starts_neutral(fold):
        return None
    product = _product(graph, fold)
    first, factor = product if product is not None else (_finer(graph, fold), None)
    if first is None:
        return None
    name = taken.fresh(f"{fold.names[0]}_parts")
    part: Expr = Ref(name, fold.types[0])
    first = replace(first, names=(name,), results=(name,))
    last = replace(fold, over=tuple(a for a in fold.over if a not in first.over))
    if factor is None:
        return first, replace(last, parts=(part,))
    whole = Ref(taken.fresh(f"{fold.names[0]}_whole"), fold.types[0])
    last = replace(last, names=(whole.name,), results=(whole.name,), parts=(Op("mul", (part, factor), part.type),))
    return first, last, Map(fold.results[0], fold.axes, of_some(graph, whole, first), fold.location)


def _finer(graph: TileGraph, fold: Fold) -> Fold | None:
    """The fold over the axes alone over which another one goes through the same points and reads what this one reads, if that
    does not need it.
    """
    before = graph.below(uses(fold))
    for other in graph.values:
        if not isinstance(other, Fold) or not set(other.over) < set(fold.over):
            continue
        if {*other.axes, *other.over} != {*fold.axes, *fold.over}:
            continue
        own = _over(graph, fold, other.over, fold.parts[0])
        after = graph.below(uses(other))
        if own is None or own.axes != other.axes or {*fold.results} & after:
            continue
        both = (graph.made.get(n) for n in before & after)
        if any(isinstance(v, Read) and {*v.axes} == {*fold.axes, *fold.over} for v in both):
            return own
    return None


def _product(graph: TileGraph, fold: Fold) -> tuple[Fold, Expr] | None:
    """The product of matrices that is the first step of a sum, and the factor of its results. It sums what the program makes
    before it multiplies that by the factor, so that no number is larger than what the program thought of.
    """
    if fold.algebra != "sum" or fold.types[0].category != "float" or contraction(graph, fold) is not None:
        return None
    term = _term(graph, fold.parts[0])
    if not isinstance(term, Op) or term.name != "mul":
        return None
    a, b = term.args
    for inside, factor in ((a, b), (b, a)):
        over = tuple(o for o in fold.over if o not in dependence(graph).of((factor,)))
        if not over or len(over) == len(fold.over):
            continue
        first = _over(graph, fold, over, inside)
        if first is not None and contraction(graph, first) is not None:
            return first, factor
    return None


def _over(graph: TileGraph, fold: Fold, over: Collection[str], part: Expr) -> Fold | None:
    """The fold of a part over some of its axes; None where these bound others of them."""
    depends = dependence(graph)
    if depends.of_bounds(a for a in fold.over if a not in over) & {*over}:
        return None
    own = replace(fold, over=tuple(a for a in fold.over if a in over), parts=(part,))
    inside = depends.of_value(own)
    return replace(own, axes=tuple(a.name for a in graph.axes if a.name in inside))


def _term(graph: TileGraph, e: Expr) -> Expr:
    """An expression, of a map what it stands for."""
    while isinstance(e, Ref) and isinstance(value := graph.made.get(e.name), Map):
        e = value.value
    return e
