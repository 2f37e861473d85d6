"""The tile graph: what a nest computes, as values over named axes. It says nothing of blocks, threads or memory.

A value has one element for each point of its axes, which are exactly those that it depends on. Elements have their meaning
by need: one that no write needs is not computed, and a read that would leave its array is then none. All reads find the arrays
as they are when the nest begins; what it stores and reads again is a value of the graph. `weft.graph.interpret` computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar

from weft.errors import Location
from weft.loops.accesses import Access, Guard
from weft.loops.affine import affine
from weft.loops.algebra.meaning import arity
from weft.loops.algebra.table import ALGEBRAS
from weft.loops.conditions import comparisons
from weft.loops.ir import Const, Expr, For, Function, Op, Ref, Segment, free_arrays, free_names, free_names_of, reachable
from weft.loops.types import ScalarType

if TYPE_CHECKING:  # a call that was analysed before needs the graph alone, and no polyhedra
    from weft.loops.polyhedra import Polyhedra

# The algebra of a scan whose states are computed one after another: no law lets them be grouped.
IN_ORDER = "in order"


@dataclass(frozen=True)
class Axis:
    """start <= name < stop, by one. Bounds are of sizes, scalars, the axes before it, and values over these. segment: what is
    known of bounds that data decide.
    """

    name: str
    start: Expr
    stop: Expr
    segment: Segment | None = None

    def loop(self) -> For:
        """The loop over it, without a body."""
        return For(self.name, self.start, self.stop, 1, (), (), segment=self.segment)


@dataclass(frozen=True)
class Read:
    """`array[index]`. always: it is inside the array at every point, because it is so whatever the sizes are, or because the
    program loads it there and the call has checked it. checked: data decide the index, or whether it is evaluated: where it is
    needed and outside, the program ends with an error. given: axes without whose points the program does not load it, which
    it does everywhere if all of these have some; None: whether it does is not told.
    """

    name: str
    axes: tuple[str, ...]
    array: str
    index: tuple[Expr, ...]
    type: ScalarType
    always: bool
    checked: bool = False
    location: Location | None = field(default=None, compare=False)
    given: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Map:
    name: str
    axes: tuple[str, ...]
    value: Expr
    location: Location | None = field(default=None, compare=False)

    @property
    def type(self) -> ScalarType:
        return self.value.type


@dataclass(frozen=True)
class Moved:
    """A state of a scan at other points: where the axes named in `at` are these. What needs no state is made again there."""

    name: str
    axes: tuple[str, ...]
    of: str
    at: tuple[tuple[str, Expr], ...]
    type: ScalarType


@dataclass(frozen=True)
class Carried:
    """States that every point of `over` changes by an element of an algebra (`weft.loops.algebra.table`).

    names: the states before a point; results: those after the last, which are `inits` where there is no point. axes: of the
    results: all that the parts, the inits and the bounds of `over` depend on, without `over`. over: from the slowest to the
    fastest. parts: of a point's element. reverse: the first point is the last.
    """

    names: tuple[str, ...]
    results: tuple[str, ...]
    axes: tuple[str, ...]
    over: tuple[str, ...]
    algebra: str
    parts: tuple[Expr, ...]
    inits: tuple[Expr, ...]
    reverse: bool = False
    location: Location | None = field(default=None, compare=False)

    @property
    def types(self) -> tuple[ScalarType, ...]:
        return tuple(e.type for e in self.inits)


@dataclass(frozen=True)
class Fold(Carried):
    """In any grouping; in the order of the points where the algebra asks for it. Nothing uses the states before the last.

    relative: earlier folds over the same axes that the part is relative to: part = g * scale, g without them, scale of them
    alone. A partial result moves from their values m to m' by scale' / scale.
    """

    relative: tuple[str, ...] = ()
    scale: Expr | None = None


@dataclass(frozen=True)
class Scan(Carried):
    """nexts: the states after a point as the program computes them, of any values. By `IN_ORDER` they are all that is known."""

    nexts: tuple[Expr, ...] = ()


# How values are joined of which the last one counts.
LAST = "last"


@dataclass(frozen=True)
class Write:
    """`array[index] = value` at every point of `axes` at which the guard holds. join: the algebra by which the value is joined
    to what is there instead; several points may then meet in one element, and their order is that of the axes. LAST: the last
    of these stores. checked: as of a read.
    """

    array: str
    axes: tuple[str, ...]
    index: tuple[Expr, ...]
    value: Expr
    guard: Expr | None = None
    join: str = ""
    checked: bool = False
    location: Location | None = field(default=None, compare=False)


Value = Read | Map | Moved | Fold | Scan


@dataclass(frozen=True)
class TileGraph:
    """values: each after those that it uses (but for the nexts of scans). writes: in the program's order. copied: arrays that
    are read at other elements than they are written at: whoever runs the graph sees to it that no write comes before a read.
    """

    name: str
    axes: tuple[Axis, ...]
    values: tuple[Value, ...]
    writes: tuple[Write, ...]
    copied: tuple[str, ...] = ()

    @cached_property
    def made(self) -> Mapping[str, Value]:
        """The value that makes each name."""
        return {name: v for v in self.values for name in names_of(v)}

    @cached_property
    def loaded(self) -> frozenset[str]:
        """The arrays that are read where that is needed."""
        exprs = (*(e for v in self.values for e in uses(v)), *(e for w in self.writes for e in uses_of_write(w)))
        return frozenset(a for e in exprs for a in free_arrays(e))

    @cached_property
    def read(self) -> frozenset[str]:
        """The arrays that are read."""
        return self.loaded | {v.array for v in self.values if isinstance(v, Read)}

    def axis(self, name: str) -> Axis:
        return next(a for a in self.axes if a.name == name)

    def below(self, exprs: Iterable[Expr], kinds: type | UnionType = Value) -> set[str]:
        """The names that expressions are of, and those that values among them, of some kinds, are made of."""

        def after(name: str) -> Iterable[str]:
            value = self.made.get(name)
            return free_names_of(uses(value)) if value is not None and isinstance(value, kinds) else ()

        return reachable(free_names_of(exprs), after)


def names_of(value: Value) -> tuple[str, ...]:
    """The names that other values know it by."""
    match value:
        case Scan():
            return (*value.names, *value.results)
        case Fold():
            return value.results
    return (value.name,)


def starts_neutral(value: Carried) -> bool:
    """Whether a state starts with the identity of its algebra."""
    if value.algebra not in ALGEBRAS:
        return False
    init, identity = value.inits[0], ALGEBRAS[value.algebra].identity(value.inits[0].type)
    return isinstance(init, Const) and repr(init.value) == repr(identity.value)


def axes_of_name(value: Value, name: str) -> tuple[str, ...]:
    if isinstance(value, Scan) and name in value.names:
        return (*value.axes, *value.over)
    return value.axes


def uses(value: Value) -> tuple[Expr, ...]:
    """The expressions that must be there before a value is."""
    match value:
        case Read():
            return value.index
        case Map():
            return (value.value,)
        case Moved():
            return (Ref(value.of, value.type), *(e for _, e in value.at))
    return (*value.parts, *value.inits)


def all_uses(value: Value) -> tuple[Expr, ...]:
    """The same, with what the next states are made of."""
    return (*uses(value), *(value.nexts if isinstance(value, Scan) else ()))


V = TypeVar("V", bound=Value)


def mapped(value: V, change: Callable[[Expr], Expr]) -> V:
    """A value with other expressions."""
    made: dict[str, Any] = {}
    match value:
        case Read():
            made["index"] = tuple(map(change, value.index))
        case Map():
            made["value"] = change(value.value)
        case Moved():
            of = change(Ref(value.of, value.type))
            assert isinstance(of, Ref)
            made |= {"of": of.name, "at": tuple((a, change(e)) for a, e in value.at)}
        case Fold() | Scan():
            made |= {"parts": tuple(map(change, value.parts)), "inits": tuple(map(change, value.inits))}
            made |= {"nexts": tuple(map(change, value.nexts))} if isinstance(value, Scan) else {}
    return replace(value, **made)


def mapped_write(write: Write, change: Callable[[Expr], Expr]) -> Write:
    """A write with other expressions."""
    guard = None if write.guard is None else change(write.guard)
    return replace(write, index=tuple(map(change, write.index)), value=change(write.value), guard=guard)


def uses_of_write(write: Write) -> tuple[Expr, ...]:
    return (*write.index, write.value, *(() if write.guard is None else (write.guard,)))


class NotTiles(Exception):  # noqa: N818 - it is no error: the nest runs in another way
    """Why a nest is no tile graph. why: in one sentence; kind: the same without names; where, remedy: as in errors."""

    def __init__(self, why: str, where: Location | None = None, remedy: str = "", kind: str = "") -> None:
        super().__init__(why)
        self.why, self.where, self.remedy, self.kind = why, where, remedy, kind or why


# ---------------------------------------------------------------- axes


@dataclass(frozen=True)
class Dependence:
    """Which axes expressions depend on, given those of the values in them."""

    axes: Mapping[str, Axis]
    values: Mapping[str, frozenset[str]]

    def of(self, exprs: Iterable[Expr]) -> frozenset[str]:
        found: set[str] = set()
        for e in exprs:
            for name in free_names(e):
                if name in self.axes:
                    found.add(name)
                found |= self.values.get(name, frozenset())
        return frozenset(found)

    def of_bounds(self, over: Iterable[str]) -> frozenset[str]:
        return self.of(e for name in over for e in (self.axes[name].start, self.axes[name].stop))

    def of_value(self, value: Value) -> frozenset[str]:
        """The axes of a value: of a carried one, those of its results."""
        match value:
            case Read() | Map():
                return self.of(uses(value))
            case Moved():
                return (self.of(uses(value)[:1]) - {a for a, _ in value.at}) | self.of(uses(value)[1:])
        inside = (*value.parts, *(value.nexts if isinstance(value, Scan) and value.algebra == IN_ORDER else ()))
        return (self.of(inside) | self.of_bounds(value.over) | self.of(value.inits)) - set(value.over)


# ---------------------------------------------------------------- the rules


class BrokenGraph(AssertionError):  # noqa: N818 - an internal fault, never the user's
    """A graph breaks a rule of this form. rule: its number in `validate`; evidence: what breaks it."""

    def __init__(self, rule: int, evidence: str) -> None:
        super().__init__(f"rule {rule} of tile graphs: {evidence}")
        self.rule = rule


def validate(graph: TileGraph, function: Function) -> None:
    """Raise BrokenGraph if the graph, which is of a nest of the function, breaks one of these rules.

    1. A name is given once, and used after it was made (by nexts of scans, anywhere).
    2. The axes of a value are those of what it uses, less `over`; bounds use earlier axes and values over these.
    3. An element has the parts of its algebra; inits do not depend on `over`.
    4. `relative` are earlier folds over the same axes; `scale` uses only them and values without `over`.
    5. A write's index is another one at every point of its axes, but where it joins; no two writes store to one element; an
       array that is read is written, if at all, at the same index or at other elements, or is one of `copied`.
    6. Every value reaches a write.
    """
    _names(graph, function)
    _axes(graph)
    _elements(graph)
    _relative(graph)
    _memory(graph, function)
    _reaching(graph)


def _names(graph: TileGraph, function: Function) -> None:
    known = {s.name for s in function.sizes} | {s.name for s in function.scalars}
    axes = [a.name for a in graph.axes]
    given = [*axes, *(n for v in graph.values for n in names_of(v))]
    for name in given:
        if given.count(name) > 1 or name in known:
            raise BrokenGraph(1, f"{name} is given twice")
    everything = known | set(given)
    made = known | set(axes)
    for value in graph.values:
        _known(uses(value), made, names_of(value)[0])
        made |= set(names_of(value))
        if isinstance(value, Scan):
            _known(value.nexts, everything, value.names[0])
    for write in graph.writes:
        _known(uses_of_write(write), made, f"the write to {write.array}")
    for axis in graph.axes:
        _known((axis.start, axis.stop), made, f"axis {axis.name}")


def _known(exprs: Iterable[Expr], names: set[str], what: str) -> None:
    for e in exprs:
        missing = free_names(e) - names
        if missing:
            raise BrokenGraph(1, f"{what} uses {sorted(missing)} before it is made")
        if free_arrays(e):
            raise BrokenGraph(1, f"{what} loads from {sorted(free_arrays(e))}, which is no read of the graph")


def dependence(graph: TileGraph) -> Dependence:
    values = {n: frozenset(axes_of_name(v, n)) for v in graph.values for n in names_of(v)}
    return Dependence({a.name: a for a in graph.axes}, values)


def _axes(graph: TileGraph) -> None:
    order = [a.name for a in graph.axes]
    depends = dependence(graph)
    for k, axis in enumerate(graph.axes):
        later = depends.of((axis.start, axis.stop)) - set(order[:k])
        if later:
            raise BrokenGraph(2, f"the bounds of axis {axis.name} use {sorted(later)}, which are not before it")
    for value in graph.values:
        own = depends.of_value(value)
        if set(value.axes) != own:
            raise BrokenGraph(2, f"{names_of(value)[0]} has the axes {value.axes}, what it uses has {sorted(own)}")
    for write in graph.writes:
        missing = depends.of(uses_of_write(write)) - set(write.axes)
        if missing:
            raise BrokenGraph(2, f"the write to {write.array} uses {sorted(missing)}, which are no axes of it")


def _elements(graph: TileGraph) -> None:
    depends = dependence(graph)
    for value in graph.values:
        if not isinstance(value, Carried):
            continue
        name, states = value.names[0], len(value.names)
        if not value.over:
            raise BrokenGraph(3, f"{name} is carried over no axis")
        if not states == len(value.results) == len(value.inits):
            raise BrokenGraph(3, f"{name} has {states} states, {len(value.results)} results, {len(value.inits)} inits")
        wanted = 0 if value.algebra == IN_ORDER else arity(value.algebra, states)
        if len(value.parts) != wanted:
            raise BrokenGraph(3, f"{name}: an element of {value.algebra} has {wanted} parts, not {len(value.parts)}")
        if isinstance(value, Scan) and len(value.nexts) != states:
            raise BrokenGraph(3, f"{name} has {states} states, but {len(value.nexts)} after a point")
        if isinstance(value, Fold) and value.algebra == IN_ORDER:
            raise BrokenGraph(3, f"{name} is a fold, but no algebra is known of it")
        early = depends.of(value.inits) & set(value.over)
        if early:
            raise BrokenGraph(3, f"{name} starts with what depends on {sorted(early)}")


def _relative(graph: TileGraph) -> None:
    before: dict[str, Fold] = {}
    depends = dependence(graph)
    for value in graph.values:
        if not isinstance(value, Fold):
            continue
        for name in value.relative:
            if name not in before or before[name].over != value.over:
                raise BrokenGraph(4, f"{value.results[0]} is relative to {name}, which is no earlier fold over {value.over}")
        if value.scale is not None:
            inside = depends.of((value.scale,)) & set(value.over)
            if inside:
                raise BrokenGraph(4, f"the scale of {value.results[0]} depends on {sorted(inside)}")
        before |= dict.fromkeys(value.results, value)


def _memory(graph: TileGraph, function: Function) -> None:
    from weft.loops.polyhedra import Polyhedra

    polyhedra = Polyhedra(function)
    for k, write in enumerate(graph.writes):
        if not write.join and not injective(graph, polyhedra, write):
            raise BrokenGraph(5, f"several points store to one element of {write.array}")
        for other in graph.writes[:k]:
            joined = write.join == other.join != ""
            if other.array == write.array and not joined and not _disjoint(graph, polyhedra, write, other):
                raise BrokenGraph(5, f"two writes store to one element of {write.array}")
    moved = set(overtaken(graph, function)) - set(graph.copied)
    if moved:
        raise BrokenGraph(5, f"{sorted(moved)} are read at other elements than they are written at")


def overtaken(graph: TileGraph, function: Function) -> tuple[str, ...]:
    """The arrays that are read at other elements than they are written at."""
    from weft.loops.polyhedra import Polyhedra

    polyhedra = Polyhedra(function)
    found = [
        read.array
        for read in graph.values
        if isinstance(read, Read)
        and any(w.array == read.array and not _apart(graph, polyhedra, read, w) for w in graph.writes)
    ]
    return tuple(dict.fromkeys(found))


def _disjoint(graph: TileGraph, polyhedra: Polyhedra, a: Write, b: Write) -> bool:
    """Whether two writes never store to one element. What data decide is told by who made the graph."""
    first, second = write_access(graph, a), write_access(graph, b)
    if a.index == b.index and _opposite(a.guard, b.guard):
        return True
    names = graph.made.keys()
    told = _told(graph, first) and _told(graph, second)
    if not told or not all(g is None or _is_affine(g, names) for g in (a.guard, b.guard)):
        return True
    return not polyhedra.meet(first, second, frozenset())


def _is_affine(e: Expr, data: Collection[str]) -> bool:
    """Whether the polyhedra know all that a condition says."""
    match e:
        case Op(name="and" | "or" | "not", args=args):
            return all(_is_affine(x, data) for x in args)
        case Op(args=args) if comparisons(e, True).all:
            return all((form := affine(x)) is not None and not form.names & {*data} for x in args)
    return False


def _opposite(a: Expr | None, b: Expr | None) -> bool:
    """Whether conditions never hold both."""
    facts = [{f for e in ((g,) if g is not None else ()) for f in _facts(e, True)} for g in (a, b)]
    return any((e, not holds) in facts[1] for e, holds in facts[0])


def _facts(e: Expr, holds: bool) -> tuple[tuple[Expr, bool], ...]:
    """What is known where a condition holds, or does not."""
    match e:
        case Op(name="not", args=(inner,)):
            return _facts(inner, not holds)
        case Op(name="and", args=(x, y)) if holds:
            return ((e, True), *_facts(x, True), *_facts(y, True))
        case Op(name="or", args=(x, y)) if not holds:
            return ((e, False), *_facts(x, False), *_facts(y, False))
    return ((e, holds),)


def write_access(graph: TileGraph, write: Write) -> Access:
    guard = () if write.guard is None else ((write.guard, True),)
    return access_of(graph, write.array, write.index, write.axes, True, guard)


def access_of(
    graph: TileGraph, array: str, index: tuple[Expr, ...], axes: Iterable[str], write: bool, guard: Guard = ()
) -> Access:
    """An access at all points of some axes, as the polyhedra are asked about it."""
    wanted = set(axes)
    while True:  # bounds bring their axes along
        more = {n for a in graph.axes if a.name in wanted for e in (a.start, a.stop) for n in free_names(e)}
        more &= {a.name for a in graph.axes}
        if more <= wanted:
            break
        wanted |= more
    loops = tuple(a.loop() for a in graph.axes if a.name in wanted)
    return Access(array, tuple(map(affine, index)), index, write, loops, guard, 0, None)


def injective(graph: TileGraph, polyhedra: Polyhedra, write: Write) -> bool:
    """Whether the element of a write is another one at every point of its axes. What data decide is told by who made it."""
    access = write_access(graph, write)
    if not _told(graph, access) or not (write.guard is None or _is_affine(write.guard, graph.made.keys())):
        return True
    return all(polyhedra.carried(access, access, loop, frozenset()) is None for loop in access.loops)


def _told(graph: TileGraph, access: Access) -> bool:
    """Whether the polyhedra know the subscripts of an access."""
    return all(f is not None and not f.names & graph.made.keys() for f in access.subscript)


def _apart(graph: TileGraph, polyhedra: Polyhedra, read: Read, write: Write) -> bool:
    """Whether a read finds what it should wherever the write is done: it is of the same element, or of another one always."""
    if read.index == write.index:
        return True
    mine = access_of(graph, read.array, read.index, read.axes, False)
    return not polyhedra.meet(mine, write_access(graph, write), frozenset())


def _reaching(graph: TileGraph) -> None:
    needed = reached(graph)
    for value in graph.values:
        if not needed & set(names_of(value)):
            raise BrokenGraph(6, f"{names_of(value)[0]} reaches no write")
    for axis in graph.axes:
        if axis.name not in needed:
            raise BrokenGraph(6, f"axis {axis.name} is no value's and no write's")


def needed_by(writes: Iterable[Write]) -> set[str]:
    """The names of values and axes that writes name."""
    return {n for w in writes for n in (*w.axes, *free_names_of(uses_of_write(w)))}


def reached(graph: TileGraph) -> set[str]:
    """The names of values and axes that writes need."""
    axes = {a.name: a for a in graph.axes}

    def after(name: str) -> set[str]:
        if name in axes:
            return free_names_of((axes[name].start, axes[name].stop))
        if name not in graph.made:
            return set()
        value = graph.made[name]
        exprs = (*uses(value), *(value.nexts if isinstance(value, Scan) else ()))
        return free_names_of(exprs) | set(value.over if isinstance(value, Carried) else ())

    return reachable(needed_by(graph.writes), after)
