"""From a nest to its tile graph, or why it is none.

Every loop is an axis, unless it carries an array in a way that is not understood. Statements are walked once, with what each
name stands for and what each store has left (`weft.graph.places`); what a loop carries becomes a fold or a scan by what the
analysis knows of it. Whatever is read again is a value: arrays of an iteration's own leave no trace.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from weft.errors import Location
from weft.graph.axes import Axes, along, counting, plus
from weft.graph.carries import Carries, Going, Member
from weft.graph.copies import Copies
from weft.graph.places import Meeting, Place, Untold, all_of, compare, meeting
from weft.graph.relative import related
from weft.graph.states import pattern
from weft.graph.tidy import Notes, tidied
from weft.graph.tile import (
    LAST,
    Axis,
    Map,
    Moved,
    NotTiles,
    Read,
    Scan,
    TileGraph,
    Value,
    Write,
    access_of,
    injective,
    overtaken,
)
from weft.loops.accesses import Access, collect, loops_in
from weft.loops.affine import affine
from weft.loops.algebra.accumulation import accumulated
from weft.loops.algebra.table import ALGEBRAS
from weft.loops.analyze import conflicts
from weft.loops.ir import (
    Array,
    Check,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    Op,
    Ref,
    Round,
    Stmt,
    Store,
    free_arrays,
    free_names,
    operands,
    rewrite,
    statement_exprs,
    walk,
    walk_expr,
    with_operands,
)
from weft.loops.names import Names, names_bound_in
from weft.loops.normalize import simplify
from weft.loops.polyhedra import Polyhedra
from weft.loops.rounding import Rounding
from weft.loops.schedule import Nest, Schedule
from weft.loops.simplify import number
from weft.loops.sized import EVERYWHERE, is_asked, subscript_name
from weft.loops.types import BOOL, INT64, ScalarType


def build(schedule: Schedule, nest: Nest) -> TileGraph:
    """The tile graph of a nest of a schedule. Raises NotTiles."""
    return Builder(schedule, nest).graph()


@dataclass(frozen=True)
class _Loop:
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
class Builder:
    """A graph in the making. Expressions are either the nest's, or over values and axes, which `expr` makes of them.

    env: what the names of the nest stand for. open, guards: the loops and the conditions around the statement that is read.
    places: what stores have left, in their order. values: by each of their names. writes: each with its place. cells: the
    arrays that values are joined to here, and by which algebra; joined: those where that is over; scattered: those of which the
    last value counts that is stored to an element. states: the arrays that open
    loops carry, the innermost last. preferred: the axes of loops that are to be those of states.
    """

    schedule: Schedule
    nest: Nest
    env: dict[str, Expr] = field(default_factory=dict)
    open: list[_Loop] = field(default_factory=list)
    guards: list[Expr] = field(default_factory=list)
    places: dict[str, list[Place]] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    writes: list[tuple[Place, Write]] = field(default_factory=list)
    cells: dict[str, str] = field(default_factory=dict)
    states: dict[str, list[State]] = field(default_factory=dict)
    preferred: dict[str, str] = field(default_factory=dict)
    joined: set[str] = field(default_factory=set)
    scattered: set[str] = field(default_factory=set)
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
        self.copies = Copies(self)
        self.carries = Carries(self)

    # ---- the whole

    def graph(self) -> TileGraph:
        for axis in self.nest.axes:
            self.enter(For(axis.var, axis.start, axis.stop, axis.step, (), self.nest.body))
        self.block(self.nest.body)
        writes = [w for _, w in self.writes]
        notes = Notes(self.seen, self.helpers, self.arguments, self.carries.unsettled)
        graph = tidied(self.nest.name, self.axes.axes, self.values, writes, notes)
        values = tuple(replace(v, always=self.inside(graph, v)) if isinstance(v, Read) else v for v in graph.values)
        graph = replace(graph, values=values)
        for write in graph.writes:
            if not write.join and not injective(graph, self.polyhedra, write):
                why = f"{write.array} is stored by several iterations, of which the last decides"
                raise self.refuse(why, "several iterations store to one element", where=write.location)
        return related(replace(graph, copied=overtaken(graph, self.function)))

    def inside(self, graph: TileGraph, read: Read) -> bool:
        """Whether a read is inside its array at all points."""
        if read.always or read.checked:
            return read.always
        access = access_of(graph, read.array, read.index, read.axes, False)
        ranges, shape = {a.name: (a.start, a.stop) for a in graph.axes}, self.arrays[read.array].shape
        for axis, index in enumerate(self.written_out(graph, i) for i in read.index):
            name = subscript_name(read.array, axis) + EVERYWHERE
            if (read.array, axis) in self.function.sized.everywhere and is_asked(
                self.function.sized, name, simplify(index), ranges
            ):
                continue
            if not self.polyhedra.tells(access, shape, axis) or self.polyhedra.outside(access, shape, axis) is not None:
                return False
        return True

    def written_out(self, graph: TileGraph, e: Expr) -> Expr:
        """An expression with what the maps in it are."""
        return rewrite(e, lambda x: self.written_out(graph, graph.made[x.name].value)  # type: ignore[union-attr]
                       if isinstance(x, Ref) and isinstance(graph.made.get(x.name), Map) else None)  # fmt: skip

    def refuse(self, why: str, kind: str, remedy: str = "", where: Location | None = None) -> NotTiles:
        return NotTiles(why, where or self.location, remedy, kind)

    # ---- loops

    def enter(self, loop: For, taken: Collection[str] = ()) -> _Loop:
        """Open a loop. taken: axes that it must not be."""
        how = counting(self.expr(loop.start), self.expr(loop.stop), loop.step)
        around = {f.axis for f in self.open}
        axis = self.preferred.get(loop.var)
        if axis is None or axis in around:
            inside = {self.preferred[f.var] for f in walk(loop.body) if isinstance(f, For) and f.var in self.preferred}
            segment = loop.segment and loop.segment.mapped(self.expr)
            axis = self.axes.take(loop.var, how.start, how.stop, {*around, *taken, *inside}, along(loop), segment)
        else:
            self.axes.along[axis] |= along(loop)
        opened = _Loop(loop.var, axis, how.reverse)
        self.open.append(opened)
        self.env[loop.var] = how.variable(axis)
        return opened

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(f.var for f in self.open)

    @property
    def open_axes(self) -> tuple[str, ...]:
        return tuple(f.axis for f in self.open)

    def at(self, e: Expr, mapping: Mapping[str, Expr]) -> Expr:
        return self.copies.at(e, mapping)

    def decided(self, names: Collection[str], axes: Collection[str]) -> bool:
        known = {a.name for a in self.axes.axes}
        return any(not self.copies.axes(n, {}).isdisjoint(axes) for n in set(names) - known)

    def pinned(self, place: Place, axis: str) -> Expr | None:
        """The one point of an axis at which a store is done, as its guard says it: the last, or the first."""
        start, stop = self.bounds(axis)
        loops, guard = self.domain({*place.axes}), tuple((g, True) for g in place.guard)
        for only in (plus(stop, -1), start):
            beside = [(Op(name, (Ref(axis, INT64), only), BOOL), True) for name in ("lt", "gt")]
            if not any(self.polyhedra.possible(loops, (*guard, b)) for b in beside):
                return only
        return None

    def bounds(self, axis: str) -> tuple[Expr, Expr]:
        own: Axis = self.axes[axis]
        return own.start, own.stop

    def range(self, axis: str) -> tuple[int, int] | None:
        own = next((a for a in self.axes.axes if a.name == axis), None)
        if own is None or not (isinstance(own.start, Const) and isinstance(own.stop, Const)):
            return None
        return int(own.start.value), int(own.stop.value)

    def block(self, statements: tuple[Stmt, ...]) -> None:
        for stmt in statements:
            self.location = stmt.location or self.location
            match stmt:
                case Let():
                    self.let(stmt.name, self.expr(stmt.value), stmt.location)
                case Store():
                    self.store(stmt)
                case If():
                    self.branch(stmt)
                case For():
                    self.loop(stmt)

    def let(self, name: str, value: Expr, location: Location | None) -> None:
        """Bind a name of the nest to a value."""
        if isinstance(value, (Ref, Const)) or (value.type == INT64 and self.index_arithmetic(value)):
            self.env[name] = value
            return
        known = self.maps.get(value)
        if known is None:
            self.maps[value] = known = name
            self.values[name] = Map(name, (), value, location)
        self.env[name] = Ref(known, value.type)

    def index_arithmetic(self, value: Expr) -> bool:
        form = affine(value)
        return form is not None and not form.names & self.values.keys()

    def branch(self, stmt: If) -> None:
        condition = self.named(self.expr(stmt.condition), "taken", stmt.location)
        with self.under(condition):
            self.block(stmt.then)
            thens = [self.expr(m.then, certain=False) for m in stmt.merges]
        with self.under(negated(condition)):
            self.block(stmt.orelse)
            others = [self.expr(m.orelse, certain=False) for m in stmt.merges]
        for m, then, orelse in zip(stmt.merges, thens, others, strict=True):
            self.let(m.name, chosen(condition, then, orelse), stmt.location)

    @contextmanager
    def under(self, condition: Expr) -> Iterator[None]:
        self.guards.append(condition)
        yield
        self.guards.pop()

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

    # ---- expressions

    def expr(self, e: Expr, certain: bool = True) -> Expr:
        """The expression over values and axes. certain: it is evaluated whenever the statement is run."""
        match e:
            case Ref(name=name):
                return self.env.get(name, e)
            case Load():
                index = tuple(self.expr(i, certain) for i in e.index)
                return self.load(e.array, index, e.type, certain and not self.guards, e.location or self.location)
            case Op(name="where", args=(condition, then, orelse)):
                return chosen(self.expr(condition, certain), self.expr(then, False), self.expr(orelse, False))
            case Op(name="and" | "or", args=(a, b)):
                return replace(e, args=(self.expr(a, certain), self.expr(b, False)))
            case Check(args=(value, holds)):
                return replace(e, args=(self.expr(value, False), self.expr(holds, certain)))
        below = operands(e)
        return with_operands(e, tuple(self.expr(o, certain) for o in below)) if below else e

    def load(
        self, array: str, index: tuple[Expr, ...], type_: ScalarType, certain: bool, location: Location | None = None
    ) -> Expr:
        """What a load finds here."""
        if array in self.joined or array in self.cells:
            raise self.refuse(f"{array} is read where iterations join values to it", "reads what it joins values to")
        places = self.places.get(array, [])
        found: list[tuple[Expr, Expr]] = []
        value: Expr | None = None
        for place in reversed(places):
            met = self.meets(place, index, self.path, {*self.open_axes}, tuple(self.guards))
            if met is None:
                continue
            left = self.at(place.value, met.at)
            condition = all_of(met.when)
            if condition is None:
                value = left
                break
            found.append((condition, left))
        if value is None:
            value = self.before(array, index, type_, certain and not found, location)
        for condition, left in reversed(found):
            value = chosen(condition, left, value)
        return value

    def meets(
        self, place: Place, index: tuple[Expr, ...], path: tuple[str, ...], within: set[str], guards: tuple[Expr, ...]
    ) -> Meeting | None:
        """How the element is one of a place, with the guard of the place among the conditions."""
        try:
            met = meeting(place, index, path, within, self)
        except Untold as why:
            raise self.refuse(str(why), "it cannot be told which store a load finds") from None
        if met is None:
            return None
        when = [c for c in (*met.when, *(self.at(g, met.at) for g in place.guard)) if c not in guards]
        if any(c == Const(False, BOOL) or negated(c) in guards for c in when):
            return None
        loops = self.domain(within)
        holding = tuple((g, True) for g in guards)
        left = []
        for c in when:
            if c == Const(True, BOOL) or not self.polyhedra.possible(loops, (*holding, (c, False))):
                continue
            if not self.polyhedra.possible(loops, (*holding, (c, True))):
                return None
            left.append(c)
        return Meeting(met.at, tuple(left))

    def domain(self, within: set[str]) -> tuple[For, ...]:
        """Axes as loops, with those that their bounds need."""
        wanted = set(within)
        for axis in reversed(self.axes.axes):
            if axis.name in wanted:
                wanted |= free_names(axis.start) | free_names(axis.stop)
        return tuple(a.loop() for a in self.axes.axes if a.name in wanted)

    def before(
        self, array: str, index: tuple[Expr, ...], type_: ScalarType, certain: bool, location: Location | None
    ) -> Expr:
        """An element as it is when the nest begins."""
        if array in self.inner and self.arrays[array].role == "local":
            held = self.arrays[array]
            if held.fill is not None:
                return self.rounding.filled(held)
            if held.within or array in self.stored:
                return number(0, type_) if type_ != BOOL else Const(False, BOOL)  # no one has stored it: it may be anything
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

    # ---- stores

    def store(self, stmt: Store) -> None:
        index = tuple(self.named(self.expr(i), "at", stmt.location) if _loads(i) else self.expr(i) for i in stmt.index)
        if stmt.array in self.cells:
            self.join(stmt, index)
            return
        if stmt.array in self.scattered:
            value = self.named(self.expr(stmt.value), f"{stmt.array}_value", stmt.location)
            place = Place(stmt.array, index, value, tuple(self.guards), self.path, self.open_axes)
            self.joined_write(place, value, LAST, stmt.location)
            return
        if stmt.array in self.joined:
            raise self.refuse(f"{stmt.array} is stored and joined", "an array is stored and joined")
        value = self.named(self.expr(stmt.value), f"{stmt.array}_value", stmt.location)
        held = self.rounding.stored(stmt.array, stmt.value)
        kept = value
        if held != stmt.value:
            rounded = held if isinstance(held, Const) else Round(value, self.arrays[stmt.array].dtype)
            kept = self.named(rounded, stmt.array, stmt.location)
        guard = tuple(self.guards)
        place = Place(stmt.array, index, kept, guard, self.path, self.open_axes)
        self.keep(place, value, stmt.location)

    def keep(self, place: Place, value: Expr, location: Location | None) -> None:
        """Note what a store has left, and write it where others may see it."""
        array = place.array
        self.places.setdefault(array, []).append(place)
        if array in self.inner or array in self.states:
            return
        for k, (other, write) in enumerate(list(self.writes)):
            if other.array == array:
                self.writes[k] = other, self.overwritten(other, write, place)
        checked = self.checked(array, place.index)
        write = Write(array, place.axes, place.index, value, all_of(place.guard), "", checked, location)
        self.writes = [(p, w) for p, w in self.writes if w.guard != Const(False, BOOL)]
        self.writes.append((place, write))

    def overwritten(self, old: Place, write: Write, new: Place) -> Write:
        """A write without the elements that a later one stores to."""
        met = self.meets(new, old.index, old.path, {*old.axes}, old.guard)
        if met is None:
            return write
        again = all_of(met.when)
        if again is None:
            return replace(write, guard=Const(False, BOOL))
        rest = negated(again)
        return replace(write, guard=rest if write.guard is None else Op("and", (write.guard, rest), BOOL))

    def join(self, stmt: Store, index: tuple[Expr, ...]) -> None:
        """`a[k] = a[k] (op) v`, of cells that the data choose."""
        algebra = self.cells[stmt.array]
        type_ = stmt.value.type
        identity = ALGEBRAS[algebra].identity(type_)
        told = tuple(map(self.expr, stmt.index))

        def rule(e: Expr) -> Expr | None:
            own = isinstance(e, Load) and e.array == stmt.array and tuple(map(self.expr, e.index)) == told
            return identity if own else None

        value = self.named(self.expr(_without_identity(rewrite(stmt.value, rule), identity)), "joined", stmt.location)
        place = Place(stmt.array, index, value, tuple(self.guards), self.path, self.open_axes)
        self.joined_write(place, value, algebra, stmt.location)

    def joined_write(self, place: Place, value: Expr, algebra: str, location: Location | None) -> None:
        if any(w.array == place.array and not w.join for _, w in self.writes) or place.array in self.inner:
            raise self.refuse(f"{place.array} is stored and joined", "an array is stored and joined")
        checked = self.checked(place.array, place.index)
        write = Write(place.array, place.axes, place.index, value, all_of(place.guard), algebra, checked, location)
        self.writes.append((place, write))

    # ---- what loops carry

    def loop(self, stmt: For) -> None:
        inits = [self.expr(c.init) for c in stmt.carries]
        arrays = self.carried_arrays(stmt)
        cells = {a: op for a in arrays if a not in self.cells and (op := accumulated(self.function, stmt, a)) is not None}
        self.scattered |= {a for a in arrays if self.scatters(a)}
        arrays = [a for a in arrays if a not in cells and a not in self.cells and a not in self.scattered]
        own_states = [self.enter_state(stmt, array) for array in arrays]
        loop = self.enter(stmt, {a for s in own_states for a in s.own})
        for state in own_states:
            axes = (*self.open_axes, *state.own)
            self.opened[state.name] = frozenset(axes)
            place = Place(state.array, state.index, Ref(state.name, state.init.type), (), self.path, axes)
            self.places.setdefault(state.array, []).append(place)
            self.states.setdefault(state.array, []).append(state)
        self.cells |= cells
        for c in stmt.carries:
            self.env[c.name] = Ref(c.name, c.type)
            self.opened[c.name] = frozenset(self.open_axes)
        self.block(stmt.body)
        nexts = [self.expr(c.next) for c in stmt.carries]
        nexts = [self.named(e, f"{c.name}_next", stmt.location) for c, e in zip(stmt.carries, nexts, strict=True)]
        scalars = [Member(c.name, c.result, init, e) for c, init, e in zip(stmt.carries, inits, nexts, strict=True)]
        members = [(s, Member(s.name, s.result, s.init, self.state_after(s))) for s in own_states]
        self.carries.close(stmt, Going((loop.axis,), loop.reverse, stmt.location), scalars, members)
        self.open.pop()
        for array in cells:
            del self.cells[array]
            self.joined.add(array)
        self.leave_states(stmt, own_states)
        for own in self.function.arrays:
            if own.within and own.within[-1] == stmt.var:
                self.places.pop(own.name, None)
        for c in stmt.carries:
            self.env[c.result] = Ref(c.result, c.type)

    def scatters(self, array: str) -> bool:
        """Whether one statement, in loops that count upwards, stores to elements that data choose, and nothing reads them."""
        stores = [s for s in walk(self.nest.body) if isinstance(s, Store) and s.array == array]
        loaded = any(array in free_arrays(e) for s in walk(self.nest.body) for e in statement_exprs(s))
        upwards = all(f.step > 0 for f in self.nest.loops()) and all(a.step > 0 for a in self.nest.axes)
        if loaded or not upwards or len(stores) != 1 or array in self.inner:
            return False
        plain = {f.var for f in self.nest.loops()} | {a.var for a in self.nest.axes} | self.arguments
        return not all(free_names(i) <= plain and affine(i) is not None for i in stores[0].index)

    def carried_arrays(self, stmt: For) -> list[str]:
        """The arrays of which an iteration finds what an earlier one stored."""
        verdict = self.verdicts[stmt.var]
        if verdict.kind == "sequential":
            return list(dict.fromkeys(a.array for a, _, _ in conflicts(self.function, self.nested[stmt.var])))
        return sorted({n.removesuffix("[...]") for u in verdict.updates for n in u.names if n.endswith("[...]")})

    def enter_state(self, stmt: For, array: str) -> State:
        """An array as one state for each of its elements that the loop stores to. Raises NotTiles."""
        why = self.verdicts[stmt.var].why
        unknown = self.refuse(
            f"loop {stmt.var} carries {array}: {why}", "a loop carries an array whose elements need each other",
            self.verdicts[stmt.var].remedy, stmt.location,
        )  # fmt: skip
        held = self.arrays[array]
        found = pattern(stmt, held)
        if found is None:
            raise unknown
        own: dict[str, str] = {}
        taken = {f.axis for f in self.open}
        for o in found.own:
            how = counting(self.expr(o.start), self.expr(o.stop), o.step)
            along_it = frozenset((array, k) for k, i in enumerate(found.index) if o.name in free_names(i))
            own[o.name] = self.axes.take(o.name.strip("*"), how.start, how.stop, {*taken, *own.values()}, along_it)
        for var, name in found.follows.items():
            self.preferred.setdefault(var, own[name])
        self.env |= {name: Ref(axis, INT64) for name, axis in own.items()}
        index = tuple(self.expr(i) for i in found.index)
        init = self.element(array, index, tuple(own.values()), held.dtype.opmath)
        name = self.names.fresh(f"{array}_before")
        result = self.names.fresh(f"{array}_last")
        return State(array, name, result, index, tuple(own.values()), init, found.all)

    def element(self, array: str, index: tuple[Expr, ...], own: tuple[str, ...], type_: ScalarType) -> Expr:
        """What the elements of a state are here."""
        self.open += [_Loop(f"{a}?", a, False) for a in own]
        try:
            return self.load(array, index, type_, False)
        finally:
            del self.open[len(self.open) - len(own) :]

    def state_after(self, state: State) -> Expr:
        value = self.element(state.array, state.index, state.own, state.init.type)
        return self.named(value, f"{state.array}_next", self.location)

    def lasting(self, state: State, stored: list[Place]) -> tuple[Expr, ...]:
        """The conditions that all stores to a state are under, and that are the same in all iterations of its loop."""
        around = {*self.open_axes, *state.own}
        common = [g for g in stored[0].guard if all(g in p.guard for p in stored)] if stored else []
        closed = {a for p in stored for a in p.axes} - around
        steady = [g for g in common if not free_names(g) & closed and not self.decided(free_names(g), closed)]
        return tuple(g for g in steady if g not in self.guards)

    def run_at_all(self, state: State, stored: list[Place]) -> tuple[Expr, ...]:
        """That the loops around the stores to a state have iterations, where its elements may else be outside the array."""
        if state.array in self.inner:
            return ()
        around = (*self.open_axes, *state.own)
        access = Access(state.array, tuple(map(affine, state.index)), state.index, True, self.domain({*around}), (), 0, None)
        if self.polyhedra.outside(access, self.arrays[state.array].shape) is None:
            return ()
        found: list[Expr] = []
        for axis in dict.fromkeys(a for p in stored for a in p.axes if a not in around):
            start, stop = self.bounds(axis)
            if (free_names(start) | free_names(stop)) & ({a.name for a in self.axes.axes} - {*around} | self.values.keys()):
                raise self.refuse(f"it is not told if {state.array} is stored at all", "it is not told if a store is done")
            found.append(compare("lt", start, stop))
        return tuple(c for c in found if c != Const(True, BOOL))

    def leave_states(self, stmt: For, states: list[State]) -> None:
        for state in states:
            self.states[state.array].pop()
            if not self.states[state.array]:
                del self.states[state.array]
            inside = (*self.path, stmt.var)
            places, itself = self.places[state.array], Ref(state.name, state.init.type)
            stored = [p for p in places if p.path[: len(inside)] == inside and p.value != itself]
            self.places[state.array] = [p for p in places if p.path[: len(inside)] != inside]
            value = Ref(state.result, state.init.type)
            axes = (*self.open_axes, *state.own)
            guard = (*self.guards, *self.lasting(state, stored), *self.run_at_all(state, stored))
            place = Place(state.array, state.index, value, guard, self.path, axes)
            self.keep(place, value, stmt.location)


def chosen(condition: Expr, then: Expr, orelse: Expr) -> Expr:
    if then == orelse:
        return then
    if isinstance(condition, Const):
        return then if condition.value else orelse
    if (then, orelse) == (Const(True, BOOL), Const(False, BOOL)):
        return condition
    return Op("where", (condition, then, orelse), then.type)


def negated(condition: Expr) -> Expr:
    match condition:
        case Const(value=value):
            return Const(not value, BOOL)
        case Op(name="not", args=(inner,)):
            return inner
    return Op("not", (condition,), BOOL)


def _loads(e: Expr) -> bool:
    return any(isinstance(x, Load) for x in walk_expr(e))


def _without_identity(e: Expr, identity: Const) -> Expr:
    """e, where an operand is the identity of its operator."""
    match e:
        case Op(name="sub", args=(a, b)) if a == identity:
            return Op("neg", (b,), e.type)
        case Op(name="where" | "check"):
            return e
        case Op(args=(a, b)) if a == identity:
            return b
        case Op(args=(a, b)) if b == identity:
            return a
    return e
