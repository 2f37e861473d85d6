"""The meaning of a tile graph: every value is computed by need, point by point, and the writes are done at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from weft.graph.tile import (
    IN_ORDER,
    LAST,
    Axis,
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
)
from weft.loops.algebra.meaning import changed
from weft.loops.algebra.table import ALGEBRAS
from weft.loops.interpret import _Machine
from weft.loops.ir import Expr, Function, Load, Op, Ref

# The coordinates of some axes.
Point = Mapping[str, int]


def interpret(graph: TileGraph, function: Function, arrays: dict[str, torch.Tensor], names: Mapping[str, Any]) -> None:
    """Do what the graph's nest does to the arrays. names: the values of sizes and scalars.

    Floats are computed as Python floats; integers wrap at their register types. Raises IndexError for subscripts outside,
    ArithmeticError for checks that do not hold.
    """
    meaning = _Meaning(graph, function, arrays, dict(names))
    done = [(w, index, value) for w in graph.writes for index, value in meaning.written(w)]
    for write, index, value in done:
        if write.join:
            value = meaning.joined(write, arrays[write.array][index].item(), value)
        arrays[write.array][index] = value


class _Names(dict):  # type: ignore[type-arg]
    """What names are at a point: its coordinates, and values as they are needed."""

    def __init__(self, meaning: _Meaning, known: Mapping[str, Any]) -> None:
        super().__init__(known)
        self.meaning = meaning

    def __missing__(self, name: str) -> Any:
        return self.meaning.value(name, self)


class _Meaning:
    def __init__(self, graph: TileGraph, function: Function, arrays: dict[str, torch.Tensor], names: dict[str, Any]) -> None:
        self.graph, self.function, self.arrays, self.names = graph, function, arrays, names
        self.values: dict[str, Value] = {n: v for v in graph.values for n in names_of(v)}
        self.axes: dict[str, Axis] = {a.name: a for a in graph.axes}
        self.known: dict[tuple[str, tuple[int, ...]], Any] = {}
        self.orders: dict[tuple[str, tuple[int, ...]], list[tuple[int, ...]]] = {}

    def at(self, point: Point) -> _Names:
        return _Names(self, {**self.names, **{a: point[a] for a in self.axes if a in point}})

    def evaluate(self, e: Expr, names: _Names) -> Any:
        return _Machine(self.function, self.arrays, names).evaluate(e)

    def points(self, axes: tuple[str, ...], around: Point, reverse: bool = False) -> Iterator[dict[str, int]]:
        """The points of some axes, the first the slowest, and the coordinates around them."""
        if not axes:
            yield dict(around)
            return
        axis = self.axes[axes[0]]
        names = self.at(around)
        values = range(self.evaluate(axis.start, names), self.evaluate(axis.stop, names))
        for i in reversed(values) if reverse else values:
            yield from self.points(axes[1:], {**around, axis.name: i}, reverse)

    # ---- values

    def value(self, name: str, point: Point) -> Any:
        value = self.values[name]
        key = name, tuple(point[a] for a in axes_of_name(value, name))
        if key not in self.known:
            names = self.at({a: point[a] for a in axes_of_name(value, name)})
            match value:
                case Read():
                    self.known[key] = self.evaluate(Load(value.array, value.index, value.type), names)
                case Map():
                    self.known[key] = self.evaluate(value.value, names)
                case Moved():
                    there = {**point, **{a: self.evaluate(e, names) for a, e in value.at}}
                    self.known[key] = self.value(value.of, there)
                case Fold():
                    self.fold(value, names)
                case Scan() if value.algebra == IN_ORDER:
                    self.known[key] = self.state(value, name, names)
                case Scan():
                    self.fold(value, names)
        return self.known[key]

    def fold(self, value: Carried, names: Point) -> None:
        """All states of a scan, or the last of a fold."""
        outer = {a: names[a] for a in value.axes}
        state = [self.evaluate(e, self.at(outer)) for e in value.inits]
        exprs = changed(value.algebra, [Ref(n, e.type) for n, e in zip(value.names, value.inits, strict=True)], value.parts)
        for point in self.points(value.over, outer, value.reverse):
            if isinstance(value, Scan):
                self.know(value.names, (*value.axes, *value.over), point, state)
            here = self.at(point)
            here.update(zip(value.names, state, strict=True))
            state = [self.evaluate(e, here) for e in exprs]
        self.know(value.results, value.axes, outer, state)

    def know(self, names: tuple[str, ...], axes: tuple[str, ...], point: Point, state: list[Any]) -> None:
        for n, s in zip(names, state, strict=True):
            self.known[n, tuple(point[a] for a in axes)] = s

    def state(self, value: Scan, name: str, names: Point) -> Any:
        """A state in order: of the first point the init, of another what the point before it leaves."""
        outer = {a: names[a] for a in value.axes}
        key = value.names[0], tuple(outer.values())
        if key not in self.orders:
            self.orders[key] = [tuple(p[a] for a in value.over) for p in self.points(value.over, outer, value.reverse)]
        order = self.orders[key]
        k = (value.names if name in value.names else value.results).index(name)
        here = order.index(tuple(names[a] for a in value.over)) if name in value.names else len(order)
        own = value.names[k]
        for n in range(here):  # one after another: a state that needs all before it at once would need them all on the stack
            self.value(own, {**outer, **dict(zip(value.over, order[n], strict=True))})
        if here == 0:
            return self.evaluate(value.inits[k], self.at(outer))
        return self.evaluate(value.nexts[k], self.at({**outer, **dict(zip(value.over, order[here - 1], strict=True))}))

    # ---- writes

    def written(self, write: Write) -> list[tuple[tuple[int, ...], Any]]:
        found = []
        for point in self.points(write.axes, {}):
            names = self.at(point)
            if write.guard is None or self.evaluate(write.guard, names):
                machine = _Machine(self.function, self.arrays, names)
                value = machine.evaluate(write.value)
                found.append((machine.subscript(write.array, write.index), value))
        return found

    def joined(self, write: Write, old: Any, new: Any) -> Any:
        if write.join == LAST:
            return new
        type_ = write.value.type
        e = Op(ALGEBRAS[write.join].join, (Ref("old", type_), Ref("new", type_)), type_)
        return self.evaluate(e, _Names(self, {"old": old, "new": new}))
