"""What a loop carries, as scans: by the algebra that the analysis has proven, else in order. Which of them are folds is told by
what uses their states, once all of the graph is there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.errors import Location
from weft.graph.draft import State
from weft.graph.reading import Reader
from weft.graph.tile import IN_ORDER, Scan
from weft.loops.algebra.elements import elements
from weft.loops.algebra.evaluation import decided_by_state
from weft.loops.algebra.match import match
from weft.loops.algebra.meaning import changed
from weft.loops.algebra.nested import composed
from weft.loops.algebra.recurrences import match_updates
from weft.loops.ir import Carry, Check, Expr, For, Let, Ref, free_names, has_load, substitute, walk, walk_expr
from weft.loops.schedule import Update
from weft.loops.simplify import is_number


@dataclass(frozen=True)
class Member:
    """One of the values that change together: the names of the state before an iteration and after the last, the first one,
    and the one after an iteration.
    """

    name: str
    result: str
    init: Expr
    next: Expr


@dataclass(frozen=True)
class Going:
    """How a loop goes over its axis."""

    over: tuple[str, ...]
    reverse: bool
    location: Location | None


@dataclass(frozen=True)
class _Element:
    """What a closed loop does to one of its carries."""

    algebra: str
    parts: tuple[Expr, ...]
    going: Going


class Carries:
    """Of the loops of a graph in the making. unsettled: the scans of sums that are told relative to the last value of another
    state, by their first name; they are what they are told from where their own states are needed after all.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.elements: dict[str, _Element] = {}
        self.unsettled: dict[str, Scan] = {}
        carries = [c for s in walk(reader.nest.body) if isinstance(s, For) for c in s.carries]
        self.results = {c.name: c.result for c in carries}

    def close(self, loop: For, going: Going, scalars: list[Member], states: list[tuple[State, Member]]) -> None:
        """Make the scans of a loop whose body has been read."""
        of = {m.name: m for m in scalars}
        arrays = {f"{s.array}[...]": m for s, m in states}
        done: set[str] = set()
        for u in self.updates(loop, [s for s, _ in states]):
            if u.name not in arrays and not of.keys() >= {*u.names}:  # what nothing here needs
                continue
            parts = self.parts(u)
            if parts is None:
                continue
            members = [arrays[u.name]] if u.name in arrays else [of[n] for n in u.names]
            done |= {*u.names}
            self.scan(u, members, parts, going)
        for state, member in states:
            if f"{state.array}[...]" not in done:
                self.alone(loop, state, member, going)
        left = [m for n, m in of.items() if n not in done]
        if left:
            self.make(left, IN_ORDER, (), going)
        self.hold([*scalars, *(m for _, m in states)], going)

    def hold(self, members: list[Member], going: Going) -> None:
        """Put into order what turned out to need its own states, through those of others."""
        for m in members:
            made = self.reader.values[m.name]
            assert isinstance(made, Scan)
            if any(self.reader.copies.reaches(e, n) for e in made.parts for n in made.names):
                self.elements.pop(made.names[0], None)
                own = [Member(*x) for x in zip(made.names, made.results, made.inits, made.nexts, strict=True)]
                self.make(own, IN_ORDER, (), going)

    def make(self, members: list[Member], algebra: str, parts: tuple[Expr, ...], going: Going) -> None:
        names, results = tuple(m.name for m in members), tuple(m.result for m in members)
        inits, nexts = tuple(m.init for m in members), tuple(m.next for m in members)
        made = Scan(names, results, (), going.over, algebra, parts, inits, going.reverse, going.location, nexts)
        self.reader.values |= dict.fromkeys((*names, *results), made)

    # ---- what is known of them

    def updates(self, loop: For, states: list[State]) -> tuple[Update, ...]:
        """What the analysis knows of what a loop carries; nothing where its states decide what is evaluated."""
        reader = self.reader
        known = reader.verdicts[loop.var].updates
        if states:
            found = elements(reader.function, loop, [s.array for s in states]) if all(s.all for s in states) else None
            known = () if found is None else match_updates(found.loop)[0]
            if found is not None:
                lets = {s.name: s.value for s in walk(found.loop.body) if isinstance(s, Let) and "[...]" in s.name}
                known = tuple(replace(u, parts=tuple(_expanded(p, lets) for p in u.parts)) for u in known)
        if not known:
            known = match_updates(loop)[0]
        risky = decided_by_state(loop) if loop.carries else ()
        bounded = reader.arguments | {f.var for f in reader.nested[loop.var].loops} | {loop.var}
        if any(isinstance(e, Check) or any(has_load(i) or free_names(i) - bounded for i in e.index) for e in risky):
            return ()  # what they evaluate is evaluated where the program does, and nowhere else
        return known

    def parts(self, u: Update) -> tuple[Expr, ...] | None:
        """The parts of an iteration's element, over values; None where they are not told."""
        reader = self.reader
        own = u.parts or u.nested
        for name in {n for e in own for n in free_names(e)} - reader.env.keys() - reader.arguments:
            value = self.inner_part(name) if "@" in name else None
            if value is None:
                return None
            reader.env[name] = value
        made = [reader.named(reader.expr(e, certain=False), f"{u.name}_{k}", None) for k, e in enumerate(own)]
        return tuple(made) or None

    def inner_part(self, name: str) -> Expr | None:
        """A part of the element that a loop inside makes of one of its carries."""
        carry, _, part = name.rpartition("@")
        own = self.elements.get(carry)
        made = None if own is None else composed(own.algebra, own.parts, part)
        if own is None or made is None:
            return None
        fresh = self.reader.names.fresh
        names = [fresh(f"{carry}_part") for _ in made.inits]
        nexts = changed(made.algebra, [Ref(n, e.type) for n, e in zip(names, made.inits, strict=True)], made.parts)
        members = [Member(n, fresh(f"{carry}_whole"), *e) for n, *e in zip(names, made.inits, nexts, strict=True)]
        self.make(members, made.algebra, made.parts, own.going)
        return Ref(members[made.result].result, made.inits[made.result].type)

    def scan(self, u: Update, members: list[Member], parts: tuple[Expr, ...], going: Going) -> None:
        self.elements[u.name] = _Element(u.algebra, parts, going)
        self.make(members, u.algebra, parts, going)
        term = self.settled(u, members[0])
        if term is not None:
            made = self.reader.values[members[0].name]
            assert isinstance(made, Scan)
            self.unsettled[members[0].name] = made
            self.make(members, "sum", (term,), going)

    def settled(self, u: Update, member: Member) -> Expr | None:
        """The term of a sum that is repaired as running values change, relative to the last of these."""
        reader = self.reader
        if u.term is None or u.used or not u.repair or not is_number(member.init, 0):
            return None
        states = {f"{s[-1].array}[...]": s[-1].result for s in reader.states.values()}
        last: dict[str, Expr] = {}
        for e in walk_expr(u.term):
            if isinstance(e, Ref) and e.name.endswith("'"):
                result = {**self.results, **states}.get(e.name[:-1])
                if result is None:
                    return None
                last[e.name] = Ref(result, e.type)
        if free_names(u.term) - reader.env.keys() - reader.arguments - last.keys():
            return None
        around = dict(reader.env)
        reader.env |= last
        term = reader.named(reader.expr(u.term, certain=False), f"{u.name}_term", None)
        reader.env = around
        return term

    def alone(self, loop: For, state: State, member: Member, going: Going) -> None:
        """A state in memory that no update is known of: matched as what the graph makes of it, else in order."""
        reader = self.reader
        whole = reader.copies.written_out(member.next, member.name)
        exact = reader.arrays[state.array].dtype == reader.arrays[state.array].dtype.opmath
        found = None
        if whole is not None and exact:
            own = Carry(member.name, member.init, whole, member.result)
            if not decided_by_state(replace(loop, carries=(own,), body=())):
                found = match(own, whole, loop)
        if found is None:
            self.make([member], IN_ORDER, (), going)
            return
        algebra, parts = found
        named = tuple(reader.named(p, f"{state.array}_{k}", None) for k, p in enumerate(parts))
        self.elements[member.name] = _Element(algebra, named, going)
        self.make([member], algebra, named, going)


def _expanded(e: Expr, lets: dict[str, Expr]) -> Expr:
    while names := {n: lets[n] for n in free_names(e) if n in lets}:
        e = substitute(e, names)
    return e
