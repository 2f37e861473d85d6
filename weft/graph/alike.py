"""Axes that only look alike. Sibling loops of one range are one axis of a graph, whatever they run over: the rows of a matrix
of states and the columns, in programs whose matrices are square. What goes along with what is told by the values: an axis of
one is that of another which is used at its points.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from weft.graph.steady import names_in
from weft.graph.tidy import renewed
from weft.graph.tile import (
    IN_ORDER,
    Axis,
    Carried,
    Fold,
    Map,
    Moved,
    NotTiles,
    Read,
    Scan,
    TileGraph,
    Value,
    Write,
    all_uses,
    axes_of_name,
    mapped,
    mapped_write,
    names_of,
    uses,
    uses_of_write,
)
from weft.loops.ir import Expr, Op, Ref, free_names, free_names_of, substitute
from weft.loops.types import INT64


def of_their_own(graph: TileGraph) -> TileGraph:
    """The graph, in which only axes that go along with each other are one, states are used at their own points, and folds are
    relative to nothing. Raises NotTiles where some states are used at others, or bounds of axes are not the same everywhere.
    """
    given = graph.made.keys() | {a.name for a in graph.axes}
    if any(free_names_of((a.start, a.stop)) & given for a in graph.axes):
        raise NotTiles("the bounds of an axis are not the same everywhere")
    return _Alike(graph).made()


# An axis of a value, by the first of its names, or of a write, by its number.
_Side = tuple[str, str]


@dataclass
class _Alike:
    graph: TileGraph
    same: dict[_Side, _Side] = field(default_factory=dict)  # sides that are one axis, towards the one that stands for all
    own: dict[_Side, Axis] = field(default_factory=dict)  # the axis of what stands for its like
    values: list[Value] = field(default_factory=list)
    copies: dict[tuple[str, tuple[str, ...]], str] = field(default_factory=dict)  # of values, by axes
    instead: dict[str, Expr] = field(default_factory=dict)  # what states at their own points are

    def made(self) -> TileGraph:
        graph = self.graph
        self.axes = {a.name: a for a in graph.axes}
        self.plain = self.made_of_reads()
        carried = [v for v in graph.values if not {*names_of(v)} & self.plain]
        for v in carried:
            if isinstance(v, Moved):
                self.tie_moved(v)
            else:
                self.tie(names_of(v)[0], all_uses(v))
        for k, w in enumerate(graph.writes):
            self.tie(f"{k}", uses_of_write(w))
        self.taken = names_in(graph)
        for v in carried:
            self.put(v)
        writes = tuple(self.written(k, w) for k, w in enumerate(graph.writes))
        order = [*self.axes]
        axes = [a for _, a in sorted(((order.index(side[1]), a) for side, a in self.own.items()), key=lambda one: one[0])]
        values = [_summed(mapped(v, lambda e: substitute(e, self.instead))) for v in self.values]
        writes = tuple(mapped_write(w, lambda e: substitute(e, self.instead)) for w in writes)
        return renewed(replace(graph, axes=tuple(axes), values=tuple(values), writes=writes))

    def made_of_reads(self) -> set[str]:
        """The names of reads, and of what is made of them point by point: there are as many of these as there are uses."""
        found: set[str] = set()
        for v in self.graph.values:
            if isinstance(v, Read | Map) and free_names_of(uses(v)) & self.graph.made.keys() <= found:
                found.add(v.name)
        return found

    # ---- what is along what

    def side(self, side: _Side) -> _Side:
        while side in self.same:
            side = self.same[side]
        return side

    def one(self, a: _Side, b: _Side) -> None:
        a, b = self.side(a), self.side(b)
        if a != b:
            self.same[b] = a

    def tie(self, user: str, exprs: Iterable[Expr]) -> None:
        """What expressions need has the axes of their user."""
        for name in sorted(free_names_of(exprs) - self.plain):
            if name in self.graph.made:
                value = self.graph.made[name]
                for a in axes_of_name(value, name):
                    self.one((names_of(value)[0], a), (user, a))

    def tie_moved(self, value: Moved) -> None:
        of, at = self.graph.made[value.of], dict(value.at)
        for a in axes_of_name(of, value.of):
            there = at.get(a, Ref(a, INT64))
            if not isinstance(there, Ref) or there.name not in self.axes:
                raise NotTiles(f"{value.of} is read at other points")
            self.one((names_of(of)[0], a), (value.name, there.name))

    # ---- the graph by its axes

    def axis(self, side: _Side) -> str:
        stands = self.side(side)
        if stands not in self.own:
            self.own[stands] = replace(self.axes[stands[1]], name=self.taken.fresh(stands[1]))
        like, own = self.own[stands], self.axes[side[1]]
        if (like.start, like.stop) != (own.start, own.stop) or like.segment or own.segment:
            raise NotTiles(f"{own.name} goes along with another range")
        return like.name

    def places(self, key: str, axes: Iterable[str]) -> dict[str, str]:
        """The axes of what has this key, by what they were."""
        found = {a: self.axis((key, a)) for a in axes}
        if len({*found.values()}) < len(found):
            raise NotTiles(f"{key} is read at other points")
        return found

    def put(self, value: Value) -> None:
        key = names_of(value)[0]
        at = self.places(key, (*value.axes, *(value.over if isinstance(value, Carried) else ())))
        if isinstance(value, Moved):
            of = self.graph.made[value.of]
            own = {a: self.axis((names_of(of)[0], a)) for a in axes_of_name(of, value.of)}
            if any(self.expr(e, at) != Ref(own[a], INT64) for a, e in value.at if a in own):
                raise NotTiles(f"{value.of} is read at other points")
            self.instead[value.name] = Ref(value.of, value.type)
            return
        made = replace(mapped(value, lambda e: self.expr(e, at)), axes=tuple(at[a] for a in value.axes))
        if isinstance(made, Carried):
            made = replace(made, over=tuple(at[a] for a in made.over))
        if isinstance(made, Fold):
            made = replace(made, relative=(), scale=None)
        self.values.append(made)

    def written(self, k: int, write: Write) -> Write:
        at = self.places(f"{k}", write.axes)
        return replace(mapped_write(write, lambda e: self.expr(e, at)), axes=tuple(at[a] for a in write.axes))

    def expr(self, e: Expr, at: Mapping[str, str]) -> Expr:
        known: dict[str, Expr] = {a: Ref(b, INT64) for a, b in at.items()}
        known |= {n: self.copy(n, at) for n in sorted(free_names(e) & self.plain)}
        return substitute(e, known)

    def copy(self, name: str, at: Mapping[str, str]) -> Expr:
        """A value that is made of reads, at points of these axes."""
        value = self.graph.made[name]
        assert isinstance(value, Read | Map)
        axes = tuple(at[a] for a in value.axes)
        if (name, axes) not in self.copies:
            own = self.copies[name, axes] = self.taken.fresh(name)
            made = mapped(value, lambda e: self.expr(e, at))
            self.values.append(replace(made, name=own, axes=axes))
        return Ref(self.copies[name, axes], value.type)


def _summed(value: Value) -> Value:
    """A scan in order that adds to its state what is not made of it, as such a sum."""
    if not isinstance(value, Scan) or value.algebra != IN_ORDER or len(value.names) > 1:
        return value
    match value.nexts:
        case (Op(name="add", args=(Ref(name=name), part)),) if name in value.names and name not in free_names(part):
            return replace(value, algebra="sum", parts=(part,))
    return value
