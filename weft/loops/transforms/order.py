"""Whether a new order of a program's iterations keeps what depends on what.

Every access of the program happens at a time: counters of the text and loop variables, compared one after another. A
transform that only reorders gives the accesses new times. It is legal exactly where no two accesses of one place, one of
them writing, change their order, and isl finds the pairs that do. Places are elements of arrays, and scalars that a loop
carries: the iterations of the loops around that loop tell apart whose scalar it is.

Updates of one place by one operation that may be done in any order (`s = s + x`, `y[i] = max(y[i], x)`) may change places
among themselves: kernels combine them in an order of their own anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from weft.loops.accesses import Access, Guard, collect
from weft.loops.affine import affine
from weft.loops.dependences import Distance, Program, Statement
from weft.loops.ir import (
    Carry,
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Op,
    Ref,
    Stmt,
    Store,
    free_names,
    statement_exprs,
    walk,
    walk_expr,
)
from weft.loops.polyhedra import Relation, Relations, Witness
from weft.loops.show import user_names
from weft.loops.types import INT64
from weft.loops.variables import variables

# Operations that are associative and commutative, as far as weft promises an order at all.
COMMUTATIVE = frozenset(
    {"add", "mul", "max", "min", "maximum", "minimum", "fmax", "fmin", "and", "or", "bitand", "bitor", "bitxor"}
)

# When something happens: integer expressions in the variables of the loops around it, compared one after another.
Time = tuple[Expr, ...]


@dataclass(frozen=True)
class Instance:
    """An access of the program to a place, in all its iterations. label: its statement, "" for none with a label.

    time: counter of the text, variable of a loop, counter in it, ... (a variable that counts down is negated).
    update: the operation by which its statement updates the place where it does no more; such instances of one `update`
    may change their order among themselves. scalar: the place is a carried scalar, and `carry` its name in this loop.
    """

    label: str
    place: str
    access: Access
    time: Time
    update: str = ""
    scalar: bool = False
    carry: str = ""

    @property
    def counters(self) -> tuple[int, ...]:
        """The counters of the text in its time."""
        return tuple(int(t.value) for t in self.time[::2] if isinstance(t, Const))


@dataclass(frozen=True)
class Violation:
    """Two accesses whose order a transform would reverse.

    kind: "RAW", "WAR" or "WAW". loops, before: the loops around both and how far they move from source to sink, as in
    `dependences.Dependence`; after: how far the times of the new order move, the first number that is not 0 being negative.
    exact: whether they surely are of one place, else it cannot be excluded. example: a pair of iterations.
    """

    kind: str
    name: str
    source: Statement | None
    sink: Statement | None
    loops: tuple[str, ...]
    before: Distance
    after: Distance
    example: Witness
    exact: bool
    reorders: bool = True  # there is a new order, in which it would be reversed

    def evidence(self) -> tuple[str, ...]:
        """Facts for people."""
        ends = [s for s in dict.fromkeys((self.source, self.sink)) if s is not None]
        lines = [f"{s.label}{f' (line {s.location.line})' if s.location else ''}: {s.text}" for s in ends]
        source, sink = (s.label if s is not None else "the loop" for s in (self.source, self.sink))
        kind = {
            "RAW": "reads what {} wrote (RAW)",
            "WAR": "overwrites what {} read (WAR)",
            "WAW": "overwrites what {} wrote (WAW)",
        }
        other = source if source != sink else "it"
        what = f"{self.name}: {sink} {kind[self.kind].format(other)}"
        vector = f" at distance ({_listed(self.before)})" if self.loops else ""
        become = ""
        if self.reorders and _backwards(self.after):
            become = f", which would become ({_listed(self.after)})"
        elif self.reorders:
            become = f", and {sink} would come first" if sink != source else ", and would come first"
        lines.append(f"{what}{vector}{become}")
        if self.exact:
            lines.append(f"for example in {self.example}" if self.example.first or self.example.second else "")
        else:
            lines.append(f"perhaps: which elements of {self.name} these are is not affine in the loops")
        return tuple(line for line in lines if line)


def _backwards(vector: Distance) -> bool:
    """Whether a distance leads, or may lead, to something earlier."""
    first = next((d for d in vector if d != 0), 0)
    return first in (">", ">=", "*", "<=") if isinstance(first, str) else first < 0


def _listed(vector: Distance) -> str:
    return ", ".join(map(str, vector))


# The new time of an instance; None where it stays, () where another instance stands for it.
Retime = Callable[[Instance], Time | None]


class NotAffine(Exception):
    """The new order cannot be told to isl."""


@dataclass(frozen=True)
class Order:
    """A function as instances in their order. starts, entries: when each statement of its body and inside begins, and, of
    loops, when the iterations do, by its place in `walk`.
    """

    function: Function
    program: Program
    instances: tuple[Instance, ...]
    starts: tuple[int, ...]
    entries: tuple[int, ...]

    @staticmethod
    def of(function: Function) -> Order:
        program = Program.of(function)
        pairs = zip(walk(program.function.body), walk(function.body), strict=True)
        reader = _Reader(program, {id(folded): stmt for folded, stmt in pairs})
        reader.block(program.function.body, (), (), ())
        starts = tuple(reader.starts[id(s)] for s in walk(program.function.body))
        entries = tuple(reader.entries.get(id(s), 0) for s in walk(program.function.body))
        return Order(function, program, tuple(reader.found), starts, entries)

    @cached_property
    def _relations(self) -> Relations:
        return Relations(self.program.function)

    def start(self, stmt: Stmt) -> int:
        """When a statement of the function starts: later than all before it in the text."""
        return next(t for s, t in zip(walk(self.function.body), self.starts, strict=True) if s is stmt)

    def entry(self, loop: For) -> int:
        """The counter of a loop of the function in the times of what is in it."""
        return next(t for s, t in zip(walk(self.function.body), self.entries, strict=True) if s is loop)

    def statement(self, label: str) -> Statement | None:
        return next((s for s in self.program.statements if s.label == label), None)

    def label(self, stmt: Stmt) -> str:
        """The label of a statement of the function, "" where it has none."""
        pairs = zip(walk(self.function.body), walk(self.program.function.body), strict=True)
        return next(self.program.labels.get(id(folded), "") for s, folded in pairs if s is stmt)

    # ---- questions

    def violation(self, retime: Retime, strict: bool = False) -> Violation | None:
        """A dependence that new times would reverse: one that surely exists if there is one, else one that may. strict: the
        order of updates counts too.

        Raises NotAffine where the new times are no affine expressions.
        """
        times = [retime(i) for i in self.instances]
        unsure: Violation | None = None
        for i, j in (*self._pairs(), *(self._pairs(updates=True) if strict else ())):
            if times[i] is None and times[j] is None or () in (times[i], times[j]):
                continue
            relation, exact = self._before(i, j)
            if not relation:
                continue
            a, b = self.instances[i], self.instances[j]
            new = times[i] or a.time, times[j] or b.time
            found = self._overtaken(relation, a, b, new)
            if found is not None:
                overtaken, after = found
                violation = self.told(overtaken, a, b, after, exact)
                if exact:
                    return violation
                unsure = unsure or violation
        return unsure

    def loosened(self, retime: Retime) -> dict[str, str]:
        """The updates that new times take in another order, in words ("the sum in s"), and the places."""
        found: dict[str, str] = {}
        times = [retime(i) for i in self.instances]
        for i, j in self._pairs(updates=True):
            if times[i] and times[j]:
                relation, _ = self._before(i, j)
                a, b = self.instances[i], self.instances[j]
                if relation and self._overtaken(relation, a, b, (times[i] or (), times[j] or ())):
                    found[f"the {words_for(a.update.split()[-1])} in {self.shown(a)}"] = self.shown(a)
        return found

    def shown(self, instance: Instance) -> str:
        """The user's name of a place."""
        return variables(self.function)[instance.place] if instance.scalar else user_names(self.function)(instance.place)

    def carried(self, var: str) -> Violation | None:
        """A dependence between different iterations of a loop."""
        unsure: Violation | None = None
        for i, j in self._pairs():
            a, b = self.instances[i], self.instances[j]
            if not all(any(f.var == var for f in x.access.loops) for x in (a, b)):
                continue
            relation, exact = self._before(i, j)
            level = [f.var for f in relation.common].index(var)
            across = relation.carried(level)
            if across:
                violation = replace(self.told(across, a, b, (), exact), reorders=False)
                if exact:
                    return violation
                unsure = unsure or violation
        return unsure

    def reductions(self, var: str) -> tuple[str, ...]:
        """The updates of one place by different iterations of a loop, in words."""
        found: dict[str, None] = {}
        for i, j in self._pairs(updates=True):
            a, b = self.instances[i], self.instances[j]
            if all(any(f.var == var for f in x.access.loops) for x in (a, b)):
                relation, _ = self._before(i, j)
                if relation.carried([f.var for f in relation.common].index(var)):
                    found[f"the {words_for(a.update.split()[-1])} in {self.shown(a)}"] = None
        return tuple(found)

    def _pairs(self, updates: bool = False) -> Iterator[tuple[int, int]]:
        """Accesses of one place, one of them writing: those whose order counts, or (`updates`) those of which it does not."""
        by_place: dict[str, list[int]] = {}
        for k, instance in enumerate(self.instances):
            by_place.setdefault(instance.place, []).append(k)
        for own in by_place.values():
            for i in own:
                for j in own:
                    a, b = self.instances[i], self.instances[j]
                    same = bool(a.update) and a.update == b.update
                    if (a.access.write or b.access.write) and same == updates:
                        yield i, j

    def _before(self, i: int, j: int) -> tuple[Relation, bool]:
        a, b = (self._relations.touch(x.access, x.counters) for x in (self.instances[i], self.instances[j]))
        return self._relations.before(a, b), a.exact and b.exact

    def _overtaken(
        self, relation: Relation, a: Instance, b: Instance, new: tuple[Time, Time]
    ) -> tuple[Relation, Distance] | None:
        length = max(map(len, new))
        padded = [(*t, *(Const(0, INT64),) * (length - len(t))) for t in new]
        first = self._relations.timed(a.access.loops, padded[0])
        second = self._relations.timed(b.access.loops, padded[1])
        if first is None or second is None:
            raise NotAffine
        overtaken = self._relations.overtaken(relation, first, second)
        if not overtaken:
            return None
        both = [k for k in range(length) if not any(isinstance(t[k], Const) for t in padded)]
        return overtaken, self._relations.moved(overtaken, first, second, both)

    def told(self, pairs: Relation, a: Instance, b: Instance, after: Distance, exact: bool) -> Violation:
        kind = (
            "RAW"
            if a.access.write and (a.scalar or not b.access.write)
            else "WAR"
            if b.access.write and not a.access.write
            else "WAW"
        )
        loops = tuple(f.var for f in pairs.common)
        ends = self.statement(a.label), self.statement(b.label)
        return Violation(kind, self.shown(a), *ends, loops, pairs.distance(), after, pairs.witness(), exact)


# ---------------------------------------------------------------- reading


@dataclass
class _Reader:
    """Walks a program in its order. Counters go up by 2, so that something can be put between any two.

    written: the statements of the function by those of the program, which have index arithmetic copied into its uses.
    """

    program: Program
    written: Mapping[int, Stmt]
    found: list[Instance] = field(default_factory=list)
    starts: dict[int, int] = field(default_factory=dict)
    entries: dict[int, int] = field(default_factory=dict)
    clock: int = 0

    def tick(self) -> Const:
        self.clock += 2
        return Const(self.clock, INT64)

    def add(self, label: str, stmt: Stmt, exprs: Iterable[Expr], loops: tuple[For, ...], guard: Guard, entered: Time) -> None:
        for expr in exprs:
            for access in collect((Let("", expr, stmt.location),), loops, guard):
                self.found.append(Instance(label, access.array, access, (*entered, self.tick())))

    def block(self, statements: tuple[Stmt, ...], loops: tuple[For, ...], guard: Guard, entered: Time) -> None:
        for stmt in statements:
            self.starts[id(stmt)] = self.clock + 1
            label = self.program.labels.get(id(stmt), "")
            match stmt:
                case Let(value=value):
                    self.add(label, stmt, (value,), loops, guard, entered)
                case Store():
                    self.store(label, stmt, loops, guard, entered)
                case If():
                    self.branch(label, stmt, loops, guard, entered)
                case For():
                    self.loop(label, stmt, loops, guard, entered)

    def store(self, label: str, stmt: Store, loops: tuple[For, ...], guard: Guard, entered: Time) -> None:
        operation = _update_in_place(stmt)
        update = f"{id(stmt)} {operation}" if operation else ""
        for access in collect((stmt,), loops, guard):
            own = access.write or (access.array == stmt.array and access.index == stmt.index)
            self.found.append(Instance(label, access.array, access, (*entered, self.tick()), update if own else ""))

    def branch(self, label: str, stmt: If, loops: tuple[For, ...], guard: Guard, entered: Time) -> None:
        self.add(label, stmt, (stmt.condition,), loops, guard, entered)
        for body, holds in ((stmt.then, True), (stmt.orelse, False)):
            self.block(body, loops, (*guard, (stmt.condition, holds)), entered)
        for merge in stmt.merges:
            for expr, holds in ((merge.then, True), (merge.orelse, False)):
                self.add(label, stmt, (expr,), loops, (*guard, (stmt.condition, holds)), entered)

    def loop(self, label: str, stmt: For, loops: tuple[For, ...], guard: Guard, entered: Time) -> None:
        self.add(label, stmt, (stmt.start, stmt.stop, *(c.init for c in stmt.carries)), loops, guard, entered)
        inside = (*entered, self.tick(), counted(stmt))
        self.entries[id(stmt)] = self.clock
        self.block(stmt.body, (*loops, stmt), guard, inside)
        self.add(label, stmt, (c.next for c in stmt.carries), (*loops, stmt), guard, inside)
        for carry in stmt.carries:
            self.carry(carry, stmt, loops, guard, inside)

    def carry(self, carry: Carry, loop: For, loops: tuple[For, ...], guard: Guard, inside: Time) -> None:
        """The place that a carried scalar is, unless it is only updated by an operation without an order."""
        if carry.next == Ref(carry.name, carry.type):
            return  # it stays what it is
        root, around = carry, loops
        while around and isinstance(root.init, Ref):
            outer = next((c for c in around[-1].carries if c.name == getattr(root.init, "name", None)), None)
            if outer is None:
                break
            root, around = outer, around[:-1]
        plain = self.written[id(loop)]
        assert isinstance(plain, For)
        operation = any_order(next(c for c in plain.carries if c.name == carry.name), plain)
        update = f"{root.name} {operation}" if operation else ""
        index = tuple(Ref(f.var, INT64) for f in around)
        access = Access("", tuple(affine(i) for i in index), index, True, (*loops, loop), guard, 0, loop.location)
        label = _made_by(carry.next, self.program) or self.program.labels.get(id(loop), "")
        self.found.append(Instance(label, root.name, access, (*inside, self.tick()), update, True, carry.name))


def _made_by(expr: Expr, program: Program) -> str | None:
    """The statement that a value comes from."""
    seen: set[str] = set()
    waiting = sorted(free_names(expr))
    while waiting:
        name = waiting.pop(0)
        maker = program.makers.get(name)
        if maker is None or name in seen:
            continue
        seen.add(name)
        if maker.label is not None:
            return maker.label
        if maker.merge is not None:
            waiting += sorted(free_names(maker.merge.then) | free_names(maker.merge.orelse))
        if maker.carry is not None and maker.after:
            waiting += sorted(free_names(maker.carry.next))
    return None


def counted(loop: For) -> Expr:
    """What grows from one iteration of a loop to the next."""
    var = Ref(loop.var, INT64)
    return var if loop.step > 0 else Op("neg", (var,), INT64)


# ---------------------------------------------------------------- updates in any order


def _update_in_place(stmt: Store) -> str:
    """The operation of `y[i] = y[i] + e`, where it may be done in any order and e reads no such element of y; "" else."""
    operation, value = "", stmt.value

    def own(e: Expr) -> bool:
        return isinstance(e, Load) and e.array == stmt.array and e.index == stmt.index

    def free(e: Expr) -> bool:
        return not any(own(x) for x in walk_expr(e))

    match value:
        case Op(name=name, args=(a, b)) if name in COMMUTATIVE:
            for mine, other, first in ((a, b, True), (b, a, False)):
                if own(mine) and free(other) and in_any_order(name, other, first, value.type.category == "float"):
                    operation = name
        case Op(name="sub", args=(a, b)) if own(a) and free(b):
            operation = "add"
    return operation if all(free(i) for i in stmt.index) else ""


def in_any_order(operation: str, other: Expr, first: bool, floats: bool) -> bool:
    """Whether an update by `other` may be done in any order. first: what is updated is the operation's first operand.

    Python's max(s, x) drops a NaN in x, while max(x, s) keeps it until the next x. `s and x` reads x only where s holds.
    """
    if operation in ("max", "min") and floats:
        return first
    if operation in ("and", "or") and first:
        return not any(isinstance(e, Load) for e in walk_expr(other))
    return True


def any_order(carry: Carry, loop: For) -> str:
    """The one operation by which a loop updates a scalar that it carries and does not otherwise use; "" where there is none."""
    chain = {carry.name}
    reader = _Updates({carry.name}, loop.body)
    operations = reader.operations(carry.next)
    if operations is None or len(operations) != 1:
        return ""
    chain |= reader.names
    uses = sum(1 for top in _exprs_of(loop.body) for e in walk_expr(top) if isinstance(e, Ref) and e.name in chain)
    ends = sum(1 for c in loop.carries if c is not carry for e in walk_expr(c.next) if isinstance(e, Ref) and e.name in chain)
    return next(iter(operations)) if uses + ends == reader.uses - reader.at_end else ""


def _exprs_of(statements: tuple[Stmt, ...]) -> Iterator[Expr]:
    for stmt in walk(statements):
        yield from statement_exprs(stmt)


@dataclass
class _Updates:
    """Follows the value of a carried scalar from its end to its start. names: what holds it on the way. uses: how often
    these are read on the way, at_end: by the end itself.
    """

    names: set[str]
    body: tuple[Stmt, ...]
    uses: int = 0
    at_end: int = 0

    def operations(self, end: Expr) -> frozenset[str] | None:
        """The operations on the way from the start of an iteration to its end; None where it is no chain of updates."""
        self.makers: dict[str, tuple[Stmt, Expr | tuple[Expr, Expr]]] = {}
        self.inner: dict[str, Carry] = {}
        self.starts: dict[str, Carry] = {}
        for stmt in walk(self.body):
            match stmt:
                case Let(name=name, value=value):
                    self.makers[name] = (stmt, value)
                case If(merges=merges):
                    self.makers |= {m.name: (stmt, (m.then, m.orelse)) for m in merges}
                case For(carries=carries):
                    self.inner |= {c.result: c for c in carries}
                    self.starts |= {c.name: c for c in carries}
        self.start = next(iter(self.names))
        found = self._from(end, self.start)
        self.at_end = sum(1 for e in walk_expr(end) if isinstance(e, Ref) and e.name in self.names)
        return found

    def _from(self, expr: Expr, start: str) -> frozenset[str] | None:
        """How an expression updates `start`."""
        match expr:
            case Ref(name=name) if name == start:
                self.uses += 1
                return frozenset()
            case Ref(name=name) if name in self.makers:
                made = self.makers[name][1]
                first = name not in self.names
                self.names.add(name)
                self.uses += 1
                if not first:
                    return None  # read twice
                if isinstance(made, tuple):
                    stmt = self.makers[name][0]
                    assert isinstance(stmt, If)
                    sides = [self._from(side, start) for side in made]
                    if sides[0] is None or sides[1] is None:
                        return None
                    return sides[0] | sides[1]
                return self._from(made, start)
            case Ref(name=name) if name in self.inner:
                carry = self.inner[name]
                self.names |= {name, carry.name}
                self.uses += 1
                through, before = self._from(carry.next, carry.name), self._from(carry.init, start)
                return None if through is None or before is None else through | before
            case Op(name="sub", args=(a, b)) if not self._needs(b):
                return self._after("add", a, start)
            case Op(name=name, args=(a, b)) if name in COMMUTATIVE:
                for own, other, first in ((a, b, True), (b, a, False)):
                    fits = in_any_order(name, other, first, expr.type.category == "float")
                    if fits and self._needs(own) and not self._needs(other):
                        return self._after(name, own, start)
            case Op(name="where", args=(condition, a, b)) if not self._needs(condition):
                sides = [self._from(side, start) for side in (a, b)]
                return None if sides[0] is None or sides[1] is None else sides[0] | sides[1]
        return None

    def _after(self, operation: str, own: Expr, start: str) -> frozenset[str] | None:
        before = self._from(own, start)
        return None if before is None else before | {operation}

    def _needs(self, expr: Expr) -> bool:
        """Whether a value depends on the scalar, as far as names tell it."""
        seen: set[str] = set()
        waiting = list(free_names(expr))
        while waiting:
            name = waiting.pop()
            if name == self.start or name in self.names:
                return True
            if name in seen:
                continue
            seen.add(name)
            if name in self.makers:
                stmt, made = self.makers[name]
                waiting += [n for e in (made if isinstance(made, tuple) else (made,)) for n in free_names(e)]
                if isinstance(stmt, If):
                    waiting += free_names(stmt.condition)
            for carries in (self.inner, self.starts):
                if name in carries:
                    waiting += free_names(carries[name].init) | free_names(carries[name].next)
        return False


def words_for(operation: str) -> str:
    """An operation as people call it."""
    return {"add": "sum", "mul": "product"}.get(operation, operation)
