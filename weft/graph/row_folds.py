"""Products whose rows fold what is made of their results, as a reading of a tile graph: the norm of a linear layer's rows, the
statistics of a softmax of scores, a largest result.

The results are all there before their rows have folded them: whoever has some columns of a row tells the others what these fold
to, and keeps the results meanwhile.
"""

from __future__ import annotations

from weft.graph.needs import by_need
from weft.graph.steady import steady
from weft.graph.sweeps import Sweep, Sweeps
from weft.graph.tile import Fold, Map, NotTiles, Read, TileGraph
from weft.loops.algebra.table import ALGEBRAS
from weft.loops.ir import Const, free_names


def row_folds(graph: TileGraph) -> Sweeps:
    """The graph as sweeps over the points of its results, which are of rows and columns; what rows fold of these is among the
    values (`weft.graph.products.Products.across`). Raises NotTiles.
    """
    graph = steady(by_need(graph))
    folds = [v for v in graph.values if isinstance(v, Fold)]
    inner = [f for f in folds if any(set(f.axes) & set(g.over) for g in folds)]
    outer = [f for f in folds if f not in inner]
    if len({(f.axes, f.over) for f in inner}) != 1 or len({(f.axes, f.over) for f in outer}) != 1:
        raise NotTiles("no rows of a product fold its results")
    points, rows, columns = inner[0].over, outer[0].axes, outer[0].over
    results = tuple(a.name for a in graph.axes if a.name in {*rows, *columns})
    if set(inner[0].axes) != {*results} or set(points) & {*results}:
        raise NotTiles("its rows fold over other axes than those of its results")
    if not all(f.algebra in ALGEBRAS and all(isinstance(e, Const) for e in f.inits) for f in outer):
        raise NotTiles("its rows fold by what blocks cannot tell each other")
    axes = {a.name: a for a in graph.axes if a.name in {*results, *points}}
    made = graph.made.keys() | axes.keys()
    if len(axes) != len(graph.axes) or any(free_names(e) & made for a in axes.values() for e in (a.start, a.stop)):
        raise NotTiles("the bounds of its axes are not the same everywhere")
    if graph.copied or any(w.join or w.guard is not None or set(w.axes) != {*results} for w in graph.writes):
        raise NotTiles("not all that is written is written once a result")
    if {w.array for w in graph.writes} & graph.read:
        raise NotTiles("what is written is read")
    values = tuple(v for v in graph.values if isinstance(v, Read | Map | Fold))
    if len(values) != len(graph.values):
        raise NotTiles("it has states at other points")
    return Sweeps(axes, results, values, ((Sweep(points, False, tuple(inner), ()),),), graph.writes, False)
