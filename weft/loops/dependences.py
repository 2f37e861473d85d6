"""The dependences of a program, exact where it is affine: which statement needs which, over which loop, and for which sizes.

A statement is a line of the source (in the loops of one nest): an assignment, a condition or a bound that reads values.
Scalars of the nest are values, each iteration's its own, so only what flows through them is a dependence. Elements of
arrays are places: reads and writes of one element depend on each other unless both are reads. What is not affine is left
out of the question put to isl, so the answer then has dependences too many, marked as not exact, never too few.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from weft.errors import Location
from weft.loops.accesses import Access, Guard, collect
from weft.loops.affine import affine
from weft.loops.ir import Carry, Expr, For, Function, If, Let, Merge, Stmt, Store, free_names, has_load, statement_exprs, walk
from weft.loops.normalize import fold_subscripts
from weft.loops.polyhedra import Relation, Relations, Touch, Witness
from weft.loops.show import show_expr, user_names
from weft.loops.types import INT64

# "RAW", "WAR", "WAW": one touches what the other wrote, or writes it, later. "flow": a RAW from the last write before.
Kind = Literal["RAW", "WAR", "WAW", "flow"]
KINDS: tuple[Kind, ...] = ("flow", "RAW", "WAR", "WAW")
_BOTH: tuple[Kind, ...] = ("RAW", "flow")

Distance = tuple[int | str, ...]


@dataclass(frozen=True)
class Statement:
    """S1, S2, ...: a line of the source. loops: the variables of the loops around it, outermost first. under: the
    statement whose condition or bounds decide whether it runs, if these read values.
    """

    label: str
    text: str
    loops: tuple[str, ...]
    under: str | None = None
    location: Location | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Dependence:
    """`sink` must come after `source`, in the iterations told by `distance`.

    name: the array or scalar. loops: those around both statements, outermost first. carrier: the outermost of them in
    whose different iterations the two are; None: they are in one iteration of all of them.
    distance: for each of `loops` how far it moves from source to sink, in values of its variable along its direction: a
    number where it is constant, else "<" (forward), ">", "<=", ">=" or "*".
    condition: for which integer scalars it exists, as Python, if sizes are large enough; None: for all. when: the same of
    scalars and sizes. exact: it exists wherever `when` holds; otherwise it may. example: where it is exact, a colliding pair
    of iterations, with the smallest sizes.
    """

    kind: Kind
    name: str
    source: str
    sink: str
    loops: tuple[str, ...]
    carrier: str | None
    distance: Distance
    condition: str | None
    when: str | None
    example: Witness | None
    exact: bool

    def __str__(self) -> str:
        vector = f" at distance ({', '.join(map(str, self.distance))})" if self.loops else ""
        carried = f", carried by {self.carrier}" if self.carrier else ""
        condition = f", if {self.condition}" if self.condition else ""
        unsure = "" if self.exact else ", perhaps"
        return f"{self.source} -> {self.sink} {self.kind} {self.name}{vector}{carried}{condition}{unsure}"


def dependences(function: Function) -> tuple[Dependence, ...]:
    """All dependences between the statements of a function, in their order."""
    return Program.of(function).dependences()


def statements(function: Function) -> tuple[Statement, ...]:
    """The statements of a function, numbered in the order of the text."""
    return Program.of(function).statements


# ---------------------------------------------------------------- statements and what they touch


@dataclass(frozen=True)
class Touched:
    """One access of a statement. time: see `polyhedra.Touch`."""

    label: str
    access: Access
    time: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """A function as statements. uses: (statement, scalar that it reads). makers: what gives each scalar its value.
    homes: the loops and guard of each statement. labels: the statement of each Let, Store, If and For, by its id.
    """

    function: Function
    statements: tuple[Statement, ...]
    touched: tuple[Touched, ...]
    uses: tuple[tuple[str, str], ...]
    makers: Mapping[str, Maker]
    homes: Mapping[str, Access]
    labels: Mapping[int, str]

    @staticmethod
    def of(function: Function) -> Program:
        reader = _Reader(fold_subscripts(function))
        reader.block(reader.function.body, (), (), (), None)
        return Program(
            reader.function,
            tuple(reader.named()),
            tuple(reader.touched),
            tuple(dict.fromkeys(reader.uses)),
            reader.makers,
            reader.homes,
            reader.labels,
        )

    def dependences(self) -> tuple[Dependence, ...]:
        relations = Relations(self.function)
        found = _Found({s.label: k for k, s in enumerate(self.statements)}, tuple(s.name for s in self.function.sizes))
        touches = [relations.touch(t.access, t.time) for t in self.touched]
        self._through_places(relations, touches, found)
        for (write, read), (flow, exact) in relations.flow(touches).items():
            _split("flow", self.touched[write], self.touched[read], flow, exact, found)
        self._through_scalars(relations, found)
        return found.result()

    def _through_places(self, relations: Relations, touches: list[Touch], found: _Found) -> None:
        by_array: dict[str, list[int]] = {}
        for k, touch in enumerate(touches):
            by_array.setdefault(touch.access.array, []).append(k)
        for places in by_array.values():
            for i in places:
                for j in places:
                    a, b = touches[i], touches[j]
                    if a.access.write or b.access.write:
                        kind: Kind = "WAW" if a.access.write and b.access.write else "RAW" if a.access.write else "WAR"
                        met = relations.meetings(a, b)
                        if met:
                            _split(kind, self.touched[i], self.touched[j], met, a.exact and b.exact, found)

    def _through_scalars(self, relations: Relations, found: _Found) -> None:
        shown = user_names(self.function)
        homes = {label: relations.touch(access, ()) for label, access in self.homes.items()}
        for sink, name in self.uses:
            for source, way in _ways(name, self.makers):
                a, b = homes[source], homes[sink]
                pairs = relations.meetings(a, b)
                crossed = dict(way.back)
                vector = [crossed.get(loop.var, 0) for loop in pairs.common]
                level = next((k for k, d in enumerate(vector) if d != 0), None)
                if level is None and source == sink:
                    continue
                steps = [d * abs(f.step) if isinstance(d, int) else d for d, f in zip(vector, pairs.common, strict=True)]
                pairs = relations.at_ends(pairs.apart(steps), way.last, way.first)
                if pairs:
                    for kind in _BOTH:
                        found.add(kind, shown(name), source, sink, level, pairs, way.sure and a.exact and b.exact)


_Key = tuple[Kind, str, str, str, str | None]


@dataclass
class _Found:
    """The pairs found so far, apart by their distance. order: the place of each label. sure: those that exist; maybe: those
    that cannot be excluded.
    """

    order: Mapping[str, int]
    sizes: tuple[str, ...]
    sure: dict[tuple[_Key, Distance], Relation] = field(default_factory=dict)
    maybe: dict[tuple[_Key, Distance], Relation] = field(default_factory=dict)

    def add(
        self, kind: Kind, name: str, source: str, sink: str, level: int | None, pairs: Relation, exact: bool
    ) -> None:
        carrier = None if level is None else pairs.common[level].var
        key = (kind, name, source, sink, carrier), pairs.distance()
        into = self.sure if exact else self.maybe
        into[key] = into[key] | pairs if key in into else pairs

    def result(self) -> tuple[Dependence, ...]:
        out = []
        for key, distance in dict.fromkeys((*self.sure, *self.maybe)):
            sure, maybe = self.sure.get((key, distance)), self.maybe.get((key, distance))
            if sure is None and any(_covers(wide, distance) for other, wide in self.maybe if other == key and wide != distance):
                continue
            pairs = sure or maybe
            assert pairs is not None
            if maybe is not None:
                pairs = pairs | maybe
            exact = sure is not None and (maybe is None or maybe.possible_when(sure))
            example = sure.witness() if sure is not None and exact else None
            loops = tuple(loop.var for loop in pairs.common)
            conditions = pairs.condition(self.sizes), pairs.condition()
            out.append(Dependence(*key[:4], loops, key[4], distance, *conditions, example, exact))
        return tuple(sorted(out, key=self._place))

    def _place(self, d: Dependence) -> tuple[int, int, int, str, int]:
        depth = -1 if d.carrier is None else d.loops.index(d.carrier)
        return self.order[d.source], self.order[d.sink], KINDS.index(d.kind), d.name, depth


def _covers(wide: Distance, narrow: Distance) -> bool:
    """Whether one distance vector says all that another says."""

    def component(a: int | str, b: int | str) -> bool:
        if a in ("*", b):
            return True
        if isinstance(b, int):
            return {"<": b > 0, ">": b < 0, "<=": b >= 0, ">=": b <= 0}.get(str(a), False)
        return (a, b) in (("<=", "<"), (">=", ">"))

    return all(map(component, wide, narrow))


def _split(kind: Kind, source: Touched, sink: Touched, pairs: Relation, exact: bool, found: _Found) -> None:
    """The pairs in the order of the program, apart by the loop that carries them."""
    common = pairs.common
    for level in range(len(common)):
        carried = pairs.carried(level)
        if carried:
            found.add(kind, source.access.array, source.label, sink.label, level, carried, exact)
    if source.label != sink.label and source.time[len(common)] < sink.time[len(common)]:
        together = pairs.carried(None)
        if together:
            found.add(kind, source.access.array, source.label, sink.label, None, together, exact)


# ---------------------------------------------------------------- numbering


@dataclass(frozen=True)
class Maker:
    """What gives a scalar its value: a statement, a carry (at the start of an iteration, or after its loop), a merge.

    label: the statement, or the one whose condition picks what a merge copies.
    """

    label: str | None = None
    carry: Carry | None = None
    loop: str = ""
    after: bool = False
    merge: Merge | None = None


class _Reader:
    """Numbers the statements of a function. A line that stands for several statements of the nest is one, if they are
    next to each other in the same loops.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.statements: list[Statement] = []
        self.otherwise: dict[str, str] = {}  # a statement as the nest has it
        self.touched: list[Touched] = []
        self.uses: list[tuple[str, str]] = []
        self.makers: dict[str, Maker] = {}
        self.homes: dict[str, Access] = {}
        self.labels: dict[int, str] = {}
        self.clock = 0
        self.shown = user_names(function)
        self.needed = {n for s in walk(function.body) for e in statement_exprs(s) for n in free_names(e)}

    def named(self) -> Iterable[Statement]:
        """The statements; lines that stand for several show what the nest has of them."""
        texts = [s.text for s in self.statements]
        for s in self.statements:
            yield s if s.text and texts.count(s.text) == 1 else replace(s, text=self.otherwise[s.label])

    def label(
        self, stmt: Stmt, loops: tuple[For, ...], guard: Guard, under: str | None, text: str
    ) -> str:
        """The statement that a part of the nest belongs to, new or the last one."""
        place, variables = stmt.location, tuple(f.var for f in loops)
        line = place.text().strip() if place is not None else ""
        if self.statements and _same_line(self.statements[-1].location, place) and self.statements[-1].loops == variables:
            label = self.statements[-1].label
        else:
            label = f"S{len(self.statements) + 1}"
            self.statements.append(Statement(label, line, variables, under, place))
            self.homes[label] = Access("", (), (), False, loops, guard, 0, place)
        self.otherwise[label] = text
        self.labels[id(stmt)] = label
        return label

    def reads(self, label: str, exprs: Iterable[Expr], loops: tuple[For, ...], guard: Guard, entered: tuple[int, ...]) -> None:
        for expr in exprs:
            self.uses += [(label, name) for name in sorted(free_names(expr))]
            self.touch(label, Let("", expr), loops, guard, entered)

    def touch(self, label: str, stmt: Let | Store, loops: tuple[For, ...], guard: Guard, entered: tuple[int, ...]) -> None:
        for access in collect((stmt,), loops, guard):
            self.clock += 1
            self.touched.append(Touched(label, access, (*entered, self.clock)))

    def block(
        self, body: tuple[Stmt, ...], loops: tuple[For, ...], guard: Guard, entered: tuple[int, ...], under: str | None
    ) -> None:
        for stmt in body:
            match stmt:
                case Let(name=name, value=value):
                    if value.type == INT64 and affine(value) is not None and name not in self.needed:
                        continue  # index arithmetic, which is part of the subscripts
                    label = self.label(stmt, loops, guard, under, f"{self.shown(name)} = {show_expr(value)}")
                    self.reads(label, (value,), loops, guard, entered)
                    self.makers[name] = Maker(label)
                case Store(array=array, index=index, value=value):
                    place = f"{array}[{', '.join(map(show_expr, index))}]"
                    label = self.label(stmt, loops, guard, under, f"{place} = {show_expr(value)}")
                    self.uses += [(label, name) for e in (*index, value) for name in sorted(free_names(e))]
                    self.touch(label, stmt, loops, guard, entered)
                case If():
                    self.branch(stmt, loops, guard, entered, under)
                case For():
                    self.loop(stmt, loops, guard, entered, under)

    def branch(
        self, stmt: If, loops: tuple[For, ...], guard: Guard, entered: tuple[int, ...], under: str | None
    ) -> None:
        decides = None
        arms = ((stmt.then, True), (stmt.orelse, False))
        if self.reads_values((stmt.condition, *(e for m in stmt.merges for e in (m.then, m.orelse) if has_load(e)))):
            decides = self.label(stmt, loops, guard, under, f"if {show_expr(stmt.condition)}:")
            self.reads(decides, (stmt.condition,), loops, guard, entered)
        for body, holds in arms:
            self.block(body, loops, (*guard, (stmt.condition, holds)), entered, decides or under)
        for merge in stmt.merges:
            inside = {label for label in map(self.made_by, (merge.then, merge.orelse)) if label in self.later(decides)}
            self.makers[merge.name] = Maker(None if inside else decides, merge=merge)
            for expr, (_, holds) in zip((merge.then, merge.orelse), arms, strict=True):
                if has_load(expr) and decides:
                    self.reads(decides, (expr,), loops, (*guard, (stmt.condition, holds)), entered)

    def loop(
        self, stmt: For, loops: tuple[For, ...], guard: Guard, entered: tuple[int, ...], under: str | None
    ) -> None:
        bounds = (stmt.start, stmt.stop)
        decides = None
        if self.reads_values((*bounds, *(e for c in stmt.carries for e in (c.init, c.next) if has_load(e)))):
            decides = self.label(stmt, loops, guard, under, f"for {stmt.var} in range({', '.join(map(show_expr, bounds))}):")
            self.reads(decides, (*bounds, *(c.init for c in stmt.carries if has_load(c.init))), loops, guard, entered)
        for carry in stmt.carries:
            self.makers[carry.name] = Maker(carry=carry, loop=stmt.var)
        self.clock += 1
        inside = (*entered, self.clock)
        self.block(stmt.body, (*loops, stmt), guard, inside, decides or under)
        for carry in stmt.carries:
            self.makers[carry.result] = Maker(carry=carry, loop=stmt.var, after=True)
            if has_load(carry.next):
                label = self.label(stmt, (*loops, stmt), guard, under, f"{self.shown(carry.name)} = {show_expr(carry.next)}")
                self.reads(label, (carry.next,), (*loops, stmt), guard, inside)

    def made_by(self, expr: Expr) -> str | None:
        """The statement that a copied name has its value from."""
        return next((self.makers[n].label for n in free_names(expr) if n in self.makers), None)

    def later(self, label: str | None) -> set[str]:
        """The statements after one."""
        labels = [s.label for s in self.statements]
        return set(labels[labels.index(label) + 1 :]) if label is not None else set()

    def reads_values(self, exprs: Iterable[Expr]) -> bool:
        """Whether expressions read what statements made, not only sizes, numbers of the call and loop variables."""
        return any(has_load(e) or free_names(e) & self.makers.keys() for e in exprs)


def _same_line(a: Location | None, b: Location | None) -> bool:
    return a is not None and b is not None and (a.file, a.line) == (b.file, b.line)


# ---------------------------------------------------------------- flow through scalars


@dataclass(frozen=True)
class _Way:
    """How a value comes to where it is read. name: what holds it, seen backwards. back: the iterations it crosses of each
    loop, "<" for any number of them, "*" where it came round an outer loop. first: the loops in whose first iteration it
    is read; last: those in whose last it was made. sure: no branch decides whether it comes this way.
    """

    name: str
    back: tuple[tuple[str, int | str], ...] = ()
    first: frozenset[str] = frozenset()
    last: frozenset[str] = frozenset()
    sure: bool = True

    def over(self, var: str, distance: int | str) -> _Way:
        return replace(self, back=tuple(sorted({**dict(self.back), var: distance}.items())))


def _ways(name: str, makers: Mapping[str, Maker]) -> list[tuple[str, _Way]]:
    """The statements from which a scalar may have its value where it is read, and how it comes from there."""
    found: list[tuple[str, _Way]] = []
    seen: set[_Way] = set()
    waiting = [_Way(name)]
    while waiting:
        way = waiting.pop()
        maker = makers.get(way.name)
        if maker is None or way in seen:
            continue
        seen.add(way)
        if maker.label is not None:
            found.append((maker.label, replace(way, sure=way.sure and maker.merge is None)))
        if maker.merge is not None:
            names = free_names(maker.merge.then) | free_names(maker.merge.orelse)
            waiting += [replace(way, name=n, sure=False) for n in sorted(names)]
        if maker.carry is not None:
            init = replace(way, sure=False) if maker.after else replace(way, first=way.first | {maker.loop})
            waiting += [replace(init, name=n) for n in sorted(free_names(maker.carry.init))]
            if maker.after:
                next_ = replace(way.over(maker.loop, "*"), last=way.last | {maker.loop})
            else:
                crossed = dict(way.back).get(maker.loop, 0)
                again = any(w.name == way.name and dict(w.back).get(maker.loop, 0) != crossed for w in seen)
                further = crossed + 1 if isinstance(crossed, int) and not again else "<"
                next_ = way.over(maker.loop, "*" if crossed == "*" else further)
                next_ = replace(next_, sure=way.sure and further != "<")
            waiting += [replace(next_, name=n) for n in sorted(free_names(maker.carry.next))]
    return found
