"""From a nest to its tile graph, or why it is none.

Every loop is an axis, unless it carries an array in a way that is not understood. Statements are walked once, with what each
name stands for and what each store has left (`weft.graph.places`); what a loop carries becomes a fold or a scan by what the
analysis knows of it. Whatever is read again is a value: arrays of an iteration's own leave no trace.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from weft.errors import Location
from weft.graph.axes import along, counting
from weft.graph.carries import Carries, Going, Member
from weft.graph.draft import Loop, State
from weft.graph.places import Place, all_of, compare
from weft.graph.reading import Reader, chosen
from weft.graph.relative import related
from weft.graph.states import pattern
from weft.graph.tidy import Notes, tidied
from weft.graph.tile import LAST, Map, Read, TileGraph, Write, access_of, injective, overtaken
from weft.loops.accesses import Access
from weft.loops.affine import affine
from weft.loops.algebra.accumulation import accumulated
from weft.loops.algebra.linear import negation
from weft.loops.algebra.table import ALGEBRAS
from weft.loops.analyze import conflicts
from weft.loops.ir import (
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
    has_load,
    rewrite,
    statement_exprs,
    walk,
)
from weft.loops.normalize import simplify
from weft.loops.schedule import Nest, Schedule
from weft.loops.sized import EVERYWHERE, is_asked, subscript_name
from weft.loops.types import BOOL, INT64, ScalarType


def build(schedule: Schedule, nest: Nest) -> TileGraph:
    """The tile graph of a nest of a schedule. Raises NotTiles."""
    return Builder(schedule, nest).graph()


@dataclass
class Builder(Reader):
    """A graph in the making. writes: each with its place. preferred: the axes of loops that are to be those of states.
    scattered: the arrays of which the last value counts that is stored to an element.
    """

    writes: list[tuple[Place, Write]] = field(default_factory=list)
    preferred: dict[str, str] = field(default_factory=dict)
    scattered: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__post_init__()
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

    # ---- loops

    def enter(self, loop: For, taken: Collection[str] = ()) -> Loop:
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
        opened = Loop(loop.var, axis, how.reverse)
        self.open.append(opened)
        self.env[loop.var] = how.variable(axis)
        return opened

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
        with self.under(negation(condition)):
            self.block(stmt.orelse)
            others = [self.expr(m.orelse, certain=False) for m in stmt.merges]
        for m, then, orelse in zip(stmt.merges, thens, others, strict=True):
            self.let(m.name, chosen(condition, then, orelse), stmt.location)

    @contextmanager
    def under(self, condition: Expr) -> Iterator[None]:
        self.guards.append(condition)
        yield
        self.guards.pop()

    # ---- stores

    def store(self, stmt: Store) -> None:
        index = tuple(self.named(self.expr(i), "at", stmt.location) if has_load(i) else self.expr(i) for i in stmt.index)
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
        rest = negation(again)
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
        self.open += [Loop(f"{a}?", a, False) for a in own]
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
