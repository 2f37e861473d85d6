"""Axes by what they are for. Loops of one range are one axis in a graph, though one folds what another one only counts.

Here the axes that a fold goes over are its own, and those are one again, with each other or with the axes of what is written,
that count the same dimension of an array: what is read for both is then one value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from weft.graph.contraction import contraction
from weft.graph.tile import Axis, Fold, Map, Read, TileGraph, Value, Write, mapped, mapped_write, uses, uses_of_write
from weft.loops.ir import Expr, Ref, free_names, substitute
from weft.loops.names import Names
from weft.loops.types import INT64


def by_role(graph: TileGraph) -> TileGraph:
    """The graph, of reads, maps and folds, with axes by what they are for."""
    apart = _Apart(graph)
    writes = tuple(apart.write(w) for w in graph.writes)
    own = replace(graph, axes=tuple(apart.axes.values()), values=tuple(apart.values), writes=writes)
    return _joined(own, _alike(own))


@dataclass
class _Apart:
    """A graph made again from what is written, each fold over axes of its own."""

    graph: TileGraph
    axes: dict[str, Axis] = field(default_factory=dict)
    values: list[Value] = field(default_factory=list)
    made: dict[tuple[str, tuple[tuple[str, str], ...]], Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        taken = {a.name for a in self.graph.axes} | self.graph.made.keys()
        exprs = [e for v in self.graph.values for e in uses(v)] + [e for w in self.graph.writes for e in uses_of_write(w)]
        self.names = Names(taken | {n for e in exprs for n in free_names(e)})
        self.used: set[str] = set()
        for a in self.graph.axes:
            if any(a.name in w.axes for w in self.graph.writes):
                self.axes[a.name] = a

    def write(self, w: Write) -> Write:
        return mapped_write(w, lambda e: self.expr(e, {}))

    def expr(self, e: Expr, at: Mapping[str, str]) -> Expr:
        """An expression where axes are others."""
        found: dict[str, Expr] = {a: Ref(own, INT64) for a, own in at.items()}
        for n in sorted(free_names(e) & self.graph.made.keys()):
            value = self.value(n, at)
            name = value.results[0] if isinstance(value, Fold) else value.name  # type: ignore[union-attr]
            type_ = value.types[0] if isinstance(value, Fold) else value.type  # type: ignore[union-attr]
            found[n] = Ref(name, type_)
        return substitute(e, found)

    def value(self, name: str, at: Mapping[str, str]) -> Value:
        """A value where its axes are others."""
        value = self.graph.made[name]
        assert isinstance(value, Read | Map | Fold)
        own = {a: at.get(a, a) for a in value.axes}
        key = name, tuple(sorted(own.items()))
        if key in self.made:
            return self.made[key]
        inside = dict(own)
        if isinstance(value, Fold):
            inside |= {o: self.fresh_axis(o) for o in value.over}
        found = mapped(value, lambda e: self.expr(e, inside))
        found = replace(found, axes=tuple(own[a] for a in value.axes))
        if isinstance(found, Fold):
            over, result = tuple(inside[o] for o in found.over), self.name(name)
            state = found.names[0] if result == name else self.names.fresh(found.names[0])
            found = replace(found, over=over, names=(state,), results=(result,), relative=(), scale=None)
        else:
            found = replace(found, name=self.name(name))
        self.values.append(found)
        self.made[key] = found
        return found

    def name(self, wanted: str) -> str:
        """A name, the same the first time."""
        name = wanted if wanted not in self.used else self.names.fresh(wanted)
        self.used.add(name)
        return name

    def fresh_axis(self, axis: str) -> str:
        name = axis if axis not in self.axes else self.names.fresh(axis)
        self.axes[name] = replace(self.graph.axis(axis), name=name)
        return name


def _alike(graph: TileGraph) -> dict[str, str]:
    """Axes that are to be other ones: they count a dimension that these count, to the same end, and no value has both."""
    counted: dict[tuple[str, int], list[str]] = {}
    for item in (*graph.values, *graph.writes):
        if isinstance(item, Read | Write):
            for k, i in enumerate(item.index):
                if isinstance(i, Ref) and i.name in {a.name for a in graph.axes}:
                    counted.setdefault((item.array, k), []).append(i.name)
    together = [{*w.axes} for w in graph.writes]
    together += [{*v.axes, *(v.over if isinstance(v, Fold) else ())} for v in graph.values if isinstance(v, Read | Map | Fold)]
    written = {a for w in graph.writes for a in w.axes}
    # a product's results are made in tiles, whatever it folds; rows that are folded and written are one
    multiplied = {a for v in graph.values if isinstance(v, Fold) and contraction(graph, v) is not None for a in v.over}
    whole = {a.name: {a.name} for a in graph.axes}  # those that are one with it
    for found in counted.values():
        for one, other in ((a, b) for k, a in enumerate(found) for b in found[k + 1 :]):
            first, second = whole[one], whole[other]
            ends = {(graph.axis(a).start, graph.axis(a).stop) for a in (one, other)}
            both = first | second
            apart = first & second or len(ends) > 1 or len(both & written) > 1 or (both & written and both & multiplied)
            if not apart and not any(own & first and own & second for own in together):
                for a in both:
                    whole[a] = both
    order = [a.name for a in graph.axes]
    return {a: min(own, key=lambda n: (n not in written, order.index(n))) for a, own in whole.items()}


def _joined(graph: TileGraph, axes: Mapping[str, str]) -> TileGraph:
    """The graph, in which axes are other ones, and what is the same then is one value."""
    found: dict[str, Expr] = {a: Ref(own, INT64) for a, own in axes.items() if a != own}
    known: dict[object, str] = {}
    values: list[Value] = []

    def renamed(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(axes[a] for a in names)

    for value in graph.values:
        assert isinstance(value, Read | Map | Fold)
        own = mapped(value, lambda e: substitute(e, found))
        own = replace(own, axes=renamed(own.axes))
        if isinstance(own, Fold):
            own = replace(own, over=renamed(own.over))
        name = own.results[0] if isinstance(own, Fold) else own.name
        type_ = own.types[0] if isinstance(own, Fold) else own.type
        key = replace(own, names=("",), results=("",)) if isinstance(own, Fold) else replace(own, name="")
        if key in known:
            found[name] = Ref(known[key], type_)
            continue
        known[key] = name
        values.append(own)
    writes = tuple(replace(mapped_write(w, lambda e: substitute(e, found)), axes=renamed(w.axes)) for w in graph.writes)
    kept = {*axes.values()}
    return replace(graph, axes=tuple(a for a in graph.axes if a.name in kept), values=tuple(values), writes=writes)
