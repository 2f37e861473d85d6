"""The values of a graph in the making, and what its axes, its arrays and the loops around them are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from weft.errors import Location
from weft.graph.axes import Axes
from weft.graph.tile import Axis, Map, Moved, NotTiles, Read, Scan, Value
from weft.loops.accesses import Access, collect, loops_in
from weft.loops.affine import affine
from weft.loops.ir import Array, Const, Expr, For, Ref, Store, free_names, walk, walk_expr
from weft.loops.names import Names, names_bound_in
from weft.loops.polyhedra import Polyhedra
from weft.loops.rounding import Rounding
from weft.loops.schedule import Nest, Schedule
from weft.loops.simplify import zero
from weft.loops.types import ScalarType


@dataclass(frozen=True)
class Loop:
    """An open loop: its variable, its axis, whether it goes down the axis."""

    var: str
    axis: str
    reverse: bool


@dataclass(frozen=True)
class State:
    """An array that an open loop carries element by element: `name` is the element at `index` before an iteration, `result`
    after the last, `init` before the first, all over the axes `own` too. all: every iteration stores to all of them, or may.
    """

    array: str
    name: str
    result: str
    index: tuple[Expr, ...]
    own: tuple[str, ...]
    init: Expr
    all: bool


@dataclass
class Draft:
    """open: the loops around the statement that is read. values: by each of their names. states: the arrays that open loops
    carry, the innermost last.
    """

    schedule: Schedule
    nest: Nest
    open: list[Loop] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    states: dict[str, list[State]] = field(default_factory=dict)
    location: Location | None = None

    def __post_init__(self) -> None:
        self.function = function = self.schedule.function
        nest = self.nest
        arguments = {s.name for s in function.sizes} | {s.name for s in function.scalars}
        self.names = Names(arguments | names_bound_in(nest.body))
        self.axes = Axes(Names(arguments | {n for n in names_bound_in(nest.body)} - {f.var for f in nest.loops()}))
        self.arguments = arguments
        self.arrays: dict[str, Array] = {a.name: a for a in function.arrays}
        self.stored = {s.array for s in walk(nest.body) if isinstance(s, Store)}
        elsewhere = {a.array for n in self.schedule.nests if n.name != nest.name for a in collect(n.body)}
        self.inner = {
            a.name for a in function.arrays if a.within or (a.role == "local" and a.name not in elsewhere | {*function.results})
        }
        self.rounding = Rounding.of(function, nest.body)
        self.polyhedra = Polyhedra(function)
        self.verdicts = dict(nest.verdicts)
        around = tuple(For(a.var, a.start, a.stop, a.step, (), ()) for a in nest.axes)
        self.nested = {n.loop.var: n for n in loops_in(nest.body, around)}
        self.maps: dict[Expr, str] = {}
        self.reads: dict[tuple[str, tuple[Expr, ...]], str] = {}
        self.seen: dict[str, list[tuple[bool, frozenset[str]]]] = {}
        self.copied: dict[object, Scan] = {}
        self.helpers: set[str] = set()
        self.opened: dict[str, frozenset[str]] = {}
        self.moves: dict[tuple[str, tuple[tuple[str, Expr], ...]], str] = {}

    def refuse(self, why: str, kind: str, remedy: str = "", where: Location | None = None) -> NotTiles:
        return NotTiles(why, where or self.location, remedy, kind)

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(f.var for f in self.open)

    @property
    def open_axes(self) -> tuple[str, ...]:
        return tuple(f.axis for f in self.open)

    # ---- axes

    def bounds(self, axis: str) -> tuple[Expr, Expr]:
        own: Axis = self.axes[axis]
        return own.start, own.stop

    def range(self, axis: str) -> tuple[int, int] | None:
        own = next((a for a in self.axes.axes if a.name == axis), None)
        if own is None or not (isinstance(own.start, Const) and isinstance(own.stop, Const)):
            return None
        return int(own.start.value), int(own.stop.value)

    def domain(self, within: set[str]) -> tuple[For, ...]:
        """Axes as loops, with those that their bounds need."""
        wanted = set(within)
        for axis in reversed(self.axes.axes):
            if axis.name in wanted:
                wanted |= free_names(axis.start) | free_names(axis.stop)
        return tuple(a.loop() for a in self.axes.axes if a.name in wanted)

    # ---- values

    def named(self, value: Expr, base: str, location: Location | None) -> Expr:
        if isinstance(value, (Ref, Const)) or not any(isinstance(e, Ref) and e.name in self.values for e in walk_expr(value)):
            return value
        known = self.maps.get(value)
        if known is None:
            self.maps[value] = known = self.names.fresh(base)
            self.values[known] = Map(known, (), value, location)
            self.helpers.add(known)
        return Ref(known, value.type)

    def moved(self, name: str, at: Mapping[str, Expr], type_: ScalarType) -> Expr:
        """A state at other points."""
        where = tuple(sorted(at.items()))
        known = self.moves.get((name, where))
        if known is None:
            known = self.moves[name, where] = self.names.fresh(f"{name}_at")
            self.values[known] = Moved(known, (), name, where, type_)
        return Ref(known, type_)

    def before(
        self, array: str, index: tuple[Expr, ...], type_: ScalarType, certain: bool, location: Location | None
    ) -> Expr:
        """An element as it is when the nest begins."""
        if array in self.inner and self.arrays[array].role == "local":
            held = self.arrays[array]
            if held.fill is not None:
                return self.rounding.filled(held)
            if held.within or array in self.stored:
                return zero(type_)  # no one has stored it: it may be anything
        key = array, index
        name = self.reads.get(key)
        if name is None:
            name = self.reads[key] = self.names.fresh(array)
            self.values[name] = Read(name, (), array, index, type_, False, self.checked(array, index), location)
        self.seen.setdefault(name, []).append((certain, frozenset(self.open_axes)))
        return Ref(name, type_)

    def checked(self, array: str, index: tuple[Expr, ...]) -> bool:
        """Whether data decide if a subscript is inside its array: by its value, or by whether it is evaluated."""
        if array in self.function.checked:
            return True
        told = self.function.sized.axes
        asked = [a for a, i in enumerate(index) if (array, a) not in told or (affine(i) is not None and not self.by_data(i))]
        forms = [affine(index[a]) for a in asked]
        if None in forms:
            return True
        names = {n for f in forms if f is not None for n in f.names} - self.arguments
        axes = {a.name: a for a in self.axes.axes}
        if not names <= axes.keys():
            return True
        ragged = {n for n in names if self.ragged(n)}
        if not ragged:
            return False
        if any(axes[n].segment is None for n in ragged):
            return True
        own, shape = (tuple(e[a] for a in asked) for e in (index, self.arrays[array].shape))
        access = Access(array, tuple(forms), own, False, self.domain(names), (), 0, None)
        return self.polyhedra.outside(access, shape) is not None

    def by_data(self, index: Expr) -> bool:
        """Whether a subscript is of axes whose bounds data decide."""
        return any(self.ragged(a.name) for a in self.axes.axes if a.name in free_names(index))

    def ragged(self, axis: str) -> bool:
        """Whether data decide the bounds of an axis."""
        names = {n for e in self.bounds(axis) for n in free_names(e)}
        axes = {a.name for a in self.axes.axes}
        return bool(names & self.values.keys()) or any(self.ragged(n) for n in names & axes)
