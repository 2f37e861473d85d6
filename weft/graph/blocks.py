"""Graphs of which a block of threads computes every value's tile, for its place of the grid: reads, maps, folds by one operator
and writes over axes that are as long for all.

Values of several nests are one graph: what one stores and another one reads is a value like any. Factors of products that
tensor cores can take are values of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from weft.graph.contraction import contraction
from weft.graph.needs import by_need
from weft.graph.passes import folded_alone
from weft.graph.roles import by_role
from weft.graph.tile import Axis, Fold, Map, NotTiles, Read, TileGraph, Value, dependence, uses, uses_of_write
from weft.loops.algebra.table import ALGEBRAS
from weft.loops.ir import Const, Expr, Function, Load, Op, Ref, Round, free_names, walk_expr
from weft.loops.names import Names
from weft.loops.types import BFLOAT16, FLOAT16, FLOAT32, INT64, ScalarType


@dataclass(frozen=True)
class Multiplied:
    """A fold that is the sum over `over` of left * right, two values that are exact in `type`. rows, columns: the axes of its
    results that the left one has alone, and the right one; batch: those that both have.
    """

    result: str
    left: str
    right: str
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    over: tuple[str, ...]
    type: ScalarType


@dataclass(frozen=True)
class Blocks:
    """graph: its values are reads, maps and folds that begin with nothing. products: those that tensor cores can take."""

    graph: TileGraph
    products: tuple[Multiplied, ...]

    @cached_property
    def axes(self) -> dict[str, Axis]:
        return {a.name: a for a in self.graph.axes}

    @cached_property
    def multiplied(self) -> dict[str, Multiplied]:
        return {p.result: p for p in self.products}

    @property
    def folds(self) -> tuple[Fold, ...]:
        return tuple(v for v in self.graph.values if isinstance(v, Fold))

    @property
    def arrays(self) -> frozenset[str]:
        """What is read and written in memory."""
        read = {v.array for v in self.graph.values if isinstance(v, Read)}
        return frozenset(read | {w.array for w in self.graph.writes})

    def uses(self, name: str) -> frozenset[str]:
        """The values that a value is made of."""
        return frozenset(n for e in uses(self.graph.made[name]) for n in free_names(e) if n in self.graph.made)


def blocks(graph: TileGraph, function: Function) -> Blocks:
    """The graph for blocks. Raises NotTiles where it has anything else."""
    graph = folded_alone(by_need(graph))
    made = graph.made
    for axis in graph.axes:
        if axis.start != Const(0, INT64) or free_names(axis.stop) & ({a.name for a in graph.axes} | made.keys()):
            raise NotTiles(f"{axis.name} has other points for each point of what is around it")
    for value in graph.values:
        if isinstance(value, Fold) and (value.algebra not in ALGEBRAS or len(value.results) != 1):
            raise NotTiles(f"{value.results[0]} is folded by no single operator")
    exprs = [e for v in graph.values for e in uses(v)] + [e for w in graph.writes for e in uses_of_write(w)]
    if any(isinstance(x, Load) for e in exprs for x in walk_expr(e)):
        raise NotTiles("it reads what may be outside of its array where that is not needed")
    if any(w.guard is not None for w in graph.writes):
        raise NotTiles("it stores on a condition")
    read = {v.array for v in graph.values if isinstance(v, Read)}
    for w in graph.writes:
        if w.array in read:
            raise NotTiles(f"{w.array} is read and written, perhaps by several blocks", w.location)
    return _multiplying(by_role(graph), function)


def _multiplying(graph: TileGraph, function: Function) -> Blocks:
    """The graph with exact factors of products as values of their own."""
    used = (n for v in graph.values for e in uses(v) for n in free_names(e))
    names = Names({*graph.made, *(a.name for a in graph.axes), *used})
    depends, order = dependence(graph), [a.name for a in graph.axes]
    named: dict[Expr, str] = {}
    values: list[Value] = []
    products = []
    for v in graph.values:
        found = contraction(graph, v) if isinstance(v, Fold) and v.types[0] == FLOAT32 else None
        if found is not None and isinstance(v, Fold) and len(found.left) == len(found.right) == 1:
            sides = found.left[0], found.right[0]
            types = {_exact(graph, function, e) for e in sides}
            (type_,) = types if len(types) == 1 else (None,)
            if type_ in (FLOAT16, BFLOAT16):
                factors = []
                for e in sides:
                    if not isinstance(e, Ref) and e not in named:
                        own = depends.of([e])
                        named[e] = names.fresh(f"{v.names[0]}_factor")
                        values.append(Map(named[e], tuple(a for a in order if a in own), e, v.location))
                    factors.append(e if isinstance(e, Ref) else Ref(named[e], e.type))
                values.append(replace(v, parts=(Op("mul", tuple(factors), FLOAT32),)))
                left, right = (f.name for f in factors)
                products.append(
                    Multiplied(v.results[0], left, right, found.batch, found.rows, found.columns, found.over, type_)
                )
                continue
        values.append(v)
    return Blocks(replace(graph, values=tuple(values)), tuple(products))


def _exact(graph: TileGraph, function: Function, e: Expr) -> ScalarType | None:
    """The 16-bit type of which an expression is a value, if it is one."""
    if isinstance(e, Round):
        return e.to
    value = graph.made.get(e.name) if isinstance(e, Ref) else None
    if isinstance(value, Read):
        return function.array(value.array).dtype
    if isinstance(value, Map):
        return _exact(graph, function, value.value)
    return None


def memory_of(blocks: Blocks, function: Function, name: str) -> ScalarType:
    """The type in which a tile of a value holds all that it may be."""
    value = blocks.graph.made[name]
    if isinstance(value, Read):
        return function.array(value.array).dtype
    if isinstance(value, Map):
        return _exact(blocks.graph, function, value.value) or value.type
    assert isinstance(value, Fold)
    return value.types[0]


