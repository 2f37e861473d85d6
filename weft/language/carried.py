"""What a loop carries: it is emitted as what is known of its names says, until that holds at the end of an iteration too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from weft.errors import Location
from weft.language import spans, tensors
from weft.language.arithmetic import common, operate
from weft.language.builder import Builder, Environment
from weft.language.kinds import (
    Numbers,
    by_kind,
    cast,
    converted,
    expressions_of,
    holds,
    is_half,
    is_kind,
    is_number,
    joined,
    kinds_of,
    number_of,
    number_of_one,
    numbers_of,
    of_kind,
    unsure,
)
from weft.language.places import left_behind, left_to_later
from weft.language.sharing import Sharing, either, without
from weft.language.values import (
    Alias,
    Loop,
    Mixed,
    Number,
    Pending,
    Range,
    Scalar,
    Sequence,
    Static,
    Tuple,
    Unset,
    Value,
    View,
    any_of,
    describe,
    integer,
    mentions,
    one_of,
)
from weft.loops.ir import ZERO, Carry, Const, Expr, Load, Ref, free_names
from weft.loops.types import BOOL, INT64, ScalarType, Typed


@dataclass
class Head:
    """What is known of the names that a loop carries when its body starts; grown until it holds at the body's end.

    scalars: the type of each carried scalar and what it may be a view of. kinds: the kinds it may be of. told: those
    whose kind is carried too, since something depends on it. numbers: those that are a Python number in some iterations.
    moving: those that are not always one number where they are a Python number. unset: names without a usable value.
    own: names whose array must be their own. held: other names (frame, name) whose meaning a store in the body changes.
    dynamic: carried scalars that depend on what tensors hold. carries: the user's name by that of its carry.
    also: names that the body does not bind, but changes in place by another name. sharing: which names mean one tensor.
    copies: which arrays stand for one tensor, those of names in `own` by ".name".
    wide: carried ints that may leave 64 bits, so that what they get is checked.
    """

    scalars: dict[str, tuple[Typed, Alias]] = field(default_factory=dict)
    kinds: dict[str, tuple[Typed, ...]] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    numbers: set[str] = field(default_factory=set)
    moving: set[str] = field(default_factory=set)
    unset: dict[str, Unset] = field(default_factory=dict)
    own: set[str] = field(default_factory=set)
    held: dict[tuple[int, str], Value] = field(default_factory=dict)
    dynamic: set[str] = field(default_factory=set)
    carries: dict[str, str] = field(default_factory=dict)
    also: set[str] = field(default_factory=set)
    sharing: Sharing | None = None
    copies: frozenset[frozenset[str]] = frozenset()
    wide: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Carried:
    """A scalar that a loop carries, in one part, or in parts that tell its kind: the common value, the tests of the kinds
    but the last, a value for each kind. names: of the parts' carries. inits: what they start from; first: the value
    that this is. numbers: as `numbers_of` gives them. may_be_number: an element of a half type that is a Python number in some
    iterations; of two names, the second's part says in which.
    """

    names: tuple[str, ...]
    inits: tuple[Expr, ...]
    typed: Typed
    kinds: tuple[Typed, ...]
    numbers: Numbers
    first: Scalar
    may_be_number: bool = False

    @staticmethod
    def start(b: Builder, name: str, value: Scalar, head: Head, numbers: Numbers) -> Carried:
        (typed, _), kinds, told = head.scalars[name], head.kinds[name], name in head.told
        may = name in head.numbers and is_half(typed) and len(kinds) == 1
        name = name.replace(".", "_")  # an item of a tuple
        own = Carried((b.fresh(name),), (converted(value, typed.register),), typed, kinds, numbers, value, may)
        if not told or len(kinds) == 1 and not may:
            return own
        if may:
            own = replace(own, names=(*own.names, b.fresh(f"{name}_is_number")))
            return replace(own, inits=own.parts(value))
        tests = (b.fresh(f"{name}_is_{kind.scalar}") for kind in kinds[:-1])
        names = (*own.names, *tests, *(b.fresh(name) for _ in kinds))
        told_apart = replace(own, names=names)
        return replace(told_apart, inits=told_apart.parts(value))

    def parts(self, value: Scalar) -> tuple[Expr, ...]:
        """A value as these parts."""
        whole = converted(value, self.typed.register)
        if len(self.names) == 1:
            return (whole,)
        if self.may_be_number:
            return whole, is_number(number_of(value, self.typed))
        tests = (is_kind(value, kind) for kind in self.kinds[:-1])
        return (whole, *tests, *(of_kind(value, kind) for kind in self.kinds))

    def numbers_with(self, end: Scalar) -> Numbers:
        """The numbers that it is on all paths, if this is the value at the end of an iteration."""
        return numbers_of(self.kinds, (self.first, end))

    def value(self, names: tuple[str, ...], default_float: ScalarType) -> Scalar:
        """The scalar whose parts have these names."""
        whole = Ref(names[0], self.typed.register)
        if self.may_be_number:
            return Scalar(whole, self.typed, number=Number(Ref(names[1], BOOL) if names[1:] else None, name=names[0]))
        if len(self.kinds) == 1:
            return Scalar(whole, self.typed)
        if len(names) == 1:
            return unsure(whole, self.typed, self.kinds, names[0], self.numbers)
        tests: list[Expr] = [Ref(n, BOOL) for n in names[1 : len(self.kinds)]]
        parts = zip(names[len(self.kinds) :], self.kinds, self.numbers, strict=True)
        values = [Scalar(Ref(name, kind.register) if number is None else number, kind) for name, kind, number in parts]
        return Scalar(whole, self.typed, mixed=by_kind(tests, values, default_float).mixed)


@dataclass
class Attempt:
    """A loop as its head says that it is. environment, frame: of the function. over: what it goes over. target: its variable,
    as it is written; targets: the names in that. names: those that the body binds. turn: executes an iteration for an item.
    """

    builder: Builder
    environment: Environment
    frame: int
    over: Range | Sequence
    target: str
    targets: list[str]
    names: list[str]
    head: Head
    turn: Callable[[Value], None]

    def __post_init__(self) -> None:
        self.location = self.builder.location
        # a target is carried where it had a value before: that is what it keeps if the loop does not run
        bound = [n for n in self.names if n not in self.targets]
        bound += [n for n in self.targets if isinstance(self.environment.get(n), Scalar)]
        self.bound = [*bound, *sorted(self.head.also - set(bound))]
        self.carried: dict[str, Carried] = {}
        self.results: dict[str, Scalar] = {}
        self.tuples: dict[str, Tuple] = {}  # by name: those whose items are carried, each by a name of its own

    def holds(self) -> bool:
        """Emit the loop; False where its head was not all there is to know (and has grown)."""
        b, head, env = self.builder, self.head, self.environment
        self._take_apart()
        own = self._own_arrays()
        self.outside = frozenset(b.arrays)
        b.copies |= _renamed(head.copies, {f".{name}": array for name, array in own.items()})
        copies = b.copies
        before = [dict(e) for e in b.environments]
        self.before = dict(env)
        self._carry()
        head.sharing = b.sharing if head.sharing is None else either(head.sharing, b.sharing)
        b.sharing = head.sharing
        over = self.over
        if isinstance(over, Range):
            start, stop, step, hint = over.start, over.stop, over.step, self.targets[0]
        else:
            start, stop, step, hint = ZERO, over.count, 1, b.implied_name(over.count)
        loop = Loop(b.fresh(hint), start, stop, step)
        with b.loop(loop.var, start, stop, step) as carries:
            for name in self.targets:
                env.pop(name, None)
            self._put_together()
            self.turn(integer(Ref(loop.var, INT64)) if isinstance(over, Range) else over.item(Ref(loop.var, INT64)))
            b.location = self.location
            grown = self._take_apart_again()
            grown |= self._learn()
            self._copy_back()
            for name, carry in self.carried.items():
                found = self._carries(name, carry, loop)
                grown |= found is None
                carries += found or ()
        b.copies |= copies  # which is all there is where it does not run
        b.carried -= set(head.carries)
        grown |= self._other_names(before)
        grown |= self._other_objects({array: f".{name}" for name, array in own.items()})
        if grown or any(name not in self.results for name in self.carried if name not in head.unset):
            return False
        if any(n in head.own and self.before.get(n) != env.get(n) for n in self.bound):
            return False
        self._after()
        self._put_together()
        for name in self.tuples:
            for item in _items(name, self.tuples[name]):
                del env[item]
        return True

    def _take_apart(self) -> None:
        """Give each item of a tuple of numbers, which the body binds anew, a name of its own."""
        for name in self.bound:
            value = self.environment.get(name)
            if isinstance(value, Tuple) and name not in self.head.unset and all(map(_is_scalar, _items(name, value).values())):
                self.tuples[name] = value
                self.environment |= _items(name, value)
        apart = [[*_items(n, self.tuples[n])] if n in self.tuples else [n] for n in self.bound]
        self.bound = [name for names in apart for name in names]

    def _put_together(self) -> None:
        """The tuples of what their items are by now."""
        for name, value in self.tuples.items():
            self.environment[name] = _with_items(name, value, self.environment)

    def _take_apart_again(self) -> bool:
        """The items of the tuples that an iteration leaves; True where one of them is none of as many numbers any more."""
        other = False
        for name, value in self.tuples.items():
            now = self.environment.get(name)
            if isinstance(now, Tuple) and _items(name, now).keys() == _items(name, value).keys():
                self.environment |= _items(name, now)
                continue
            self.head.unset[name] = now if isinstance(now, Unset) else _different(self.builder.location)
            other = True
        return other

    def _own_arrays(self) -> dict[str, str]:
        """Start with what stores change, and with arrays of their own: these, by name."""
        b, head = self.builder, self.head
        for (frame, name), changed in head.held.items():
            b.environments[frame][name] = changed
        head.own -= head.unset.keys()
        for name in sorted(head.own):
            view = self.environment[name]
            assert isinstance(view, View)
            own = tensors.materialise(b, view, name)
            b.copied(own.array, view.array)
            self.environment[name] = own
        return {name: view.array for name in head.own if isinstance(view := self.environment[name], View)}

    def _carry(self) -> None:
        """Start with what the loop carries."""
        head, env = self.head, self.environment
        head.carries.clear()
        for name in self.bound:
            value: Value | None = self.before.get(name)
            if isinstance(value, Pending) and name in head.scalars:
                value = nothing(Scalar(ZERO, *head.scalars[name]))
            if name in head.unset:
                env[name] = head.unset[name]
            elif isinstance(value, Scalar):
                self._carry_scalar(name, value)
            elif value is None:
                env[name] = Unset(
                    f"only an earlier iteration of the loop over {self.target} would give it one",
                    f"give {name} a value before the loop", self.location,
                )  # fmt: skip

    def _carry_scalar(self, name: str, value: Scalar) -> None:
        b, head = self.builder, self.head
        typed, alias = head.scalars.setdefault(name, (value.typed, value.objects))
        kinds = head.kinds.setdefault(name, joined(kinds_of(value), b.default_float))
        if len(kinds) > 1 and not holds(typed, value):
            head.told.add(name)
        numbers = numbers_of(kinds, (value,)) if name not in head.moving else (None,) * len(kinds)
        if number_of(value, typed) is not None:
            head.numbers.add(name)
        carry = Carried.start(b, name, value, head, numbers)
        head.carries |= {n: name for n in carry.names}
        b.carried.update(carry.names)
        self.carried[name] = carry
        self.environment[name] = replace(carry.value(carry.names, b.default_float), alias=alias if typed.weight else None)
        if typed == Typed(INT64, 0) and len(kinds) == 1 and name not in head.wide:
            values = spans.assumed(b, carry.inits[0], len(b.loops))
            if values is not None:
                b.spans[carry.names[0]] = values
        if name in head.dynamic:
            b.dynamic.update(carry.names)

    def _carries(self, name: str, carry: Carried, loop: Loop) -> list[Carry] | None:
        """The carries of a scalar at the end of the body; None where its head has grown."""
        b, head = self.builder, self.head
        end = self._end_of(name, self.environment.get(name))
        if end is None or self._grow(name, end):
            return None
        if len(carry.kinds) > 1 and name not in head.moving and carry.numbers != carry.numbers_with(end):
            head.moving.add(name)
            return None
        names = [b.fresh(f"{n}_last") for n in carry.names]
        ends = carry.parts(end)
        if carry.names[0] in b.spans:
            advance = spans.Advance(carry.inits[0], ends[0], carry.names[0], loop)
            if not spans.stays(b, advance, len(b.loops) - 1):
                head.wide.add(name)
                return None
            b.spans[names[0]] = b.spans[carry.names[0]]
            b.choices[names[0]] = (carry.inits[0], ends[0])
            b.advances[names[0]] = advance
        b.left[names[0]] = (self.location, name)
        self.results[name] = self._last(carry, tuple(names), carry.first, end, loop)
        return list(map(Carry, carry.names, carry.inits, ends, names))

    def _learn(self) -> bool:
        """Take the types of names that were pending before the loop from what an iteration leaves. Whether any has one."""
        b, head, found = self.builder, self.head, False
        for name in self.bound:
            value = self.environment.get(name)
            if isinstance(self.before.get(name), Pending) and isinstance(value, Scalar) and name not in head.scalars:
                objects = left_to_later(value.objects, b.loops, b.fixed)
                head.scalars[name] = (value.typed, replace(objects, index=None, places=objects.elements))
                found = True
        return found

    def _last(self, carry: Carried, names: tuple[str, ...], init: Scalar, end: Scalar, loop: Loop) -> Scalar:
        """What a carried scalar is after the loop."""
        b = self.builder
        found = carry.value(names, b.default_float)
        if carry.may_be_number and number_of(end, carry.typed) is None:  # it is one if the loop does not run
            ran = operate("lt" if loop.step > 0 else "gt", (integer(loop.start), integer(loop.stop)), b.default_float)
            return replace(found, number=number_of_one(ran.expr, end, init, carry.typed))
        if found.mixed is None or found.mixed.test is not None or len(joined(kinds_of(end), b.default_float)) > 1:
            return found
        # it is of the last kind if the loop runs at all
        ran = operate("lt" if loop.step > 0 else "gt", (integer(loop.start), integer(loop.stop)), b.default_float)
        last = Scalar(cast(found.expr, end.typed.register), end.typed)
        if isinstance(ran.expr, Const):
            return last if ran.expr.value else init
        return replace(found, mixed=Mixed(ran.expr, last, init))

    def _end_of(self, name: str, value: Value | None) -> Scalar | None:
        """The value at the end of an iteration of a name that the loop carries; None where it is no scalar."""
        if isinstance(value, Scalar):
            return value
        if isinstance(value, Unset):
            self.head.unset[name] = value
        else:
            what = describe(value) if value is not None else "nothing"
            self.head.unset[name] = Unset(
                f"it is a number before the loop and {what} after an iteration",
                f"use two names, or give {name} its shape before the loop (torch.zeros...)",
                self.builder.location,
            )
        return None

    def _grow(self, name: str, end: Scalar) -> bool:
        """Widen what head says of a carried scalar to hold for `end` too; whether it grew."""
        b, head, default = self.builder, self.head, self.builder.default_float
        typed, alias = head.scalars[name]
        wider = common((Scalar(Ref("a", typed.register), typed), end), default)
        kinds = joined((*head.kinds[name], *kinds_of(end)), default)
        place = any_of(alias, left_to_later(end.objects, b.loops, b.fixed)) or Alias()
        grown = (wider, place) != (typed, alias) or kinds != head.kinds[name]
        if is_half(wider) and name not in head.numbers and number_of(end, wider) is not None:
            head.numbers.add(name)
            grown = True
        head.scalars[name], head.kinds[name] = (wider, place), kinds
        if not grown and len(kinds) > 1 and name not in head.told and not holds(wider, end):
            head.told.add(name)
            grown = True
        if self.builder.is_dynamic(end.expr) and name not in head.dynamic:
            head.dynamic.add(name)
            grown |= wider.scalar.category == "int"
        return grown

    def _copy_back(self) -> None:
        """Bring the arrays of rebound names back to those they had when the iteration started."""
        b, env, head = self.builder, self.environment, self.head
        moved: list[tuple[str, View, View]] = []
        for name in self.bound:
            old, new = self.before.get(name), env.get(name)
            if not isinstance(old, View) or name in head.unset or old == new:
                continue
            if isinstance(new, Unset):
                head.unset[name] = new
            elif not isinstance(new, View) or new.dtype != old.dtype or not b.same_sizes(old.dims, new.dims):
                what = "of another shape or dtype" if isinstance(new, View) else describe(new)
                head.unset[name] = Unset(
                    f"it is {describe(old)} before the loop and {what} after an iteration", "use two names", b.location
                )
            elif b.created.get(old.array) != old or name not in head.own:
                head.own.add(name)
            else:
                moved.append((name, old, new))
        targets = {old.array for _, old, _ in moved}
        b.overwritten(targets)
        twins: dict[str, list[str]] = {}
        for _, old, new in moved:
            if new.array not in targets:
                twins.setdefault(new.array, []).append(old.array)
        moved = [
            (name, old, tensors.materialise(b, new, name) if any(mentions(new, t) for t in targets) else new)
            for name, old, new in moved
        ]
        for name, old, new in moved:
            tensors.assign(b, old, new)
            b.bind(self.frame, name, old)
        for array, own in twins.items():
            for one in own:
                b.copied(one, array)

    def _other_names(self, before: list[Environment]) -> bool:
        """Names that the body does not bind, but whose meaning a store changed: they start changed. Whether any did."""
        b, head, grown = self.builder, self.head, False
        for frame, (old, new) in enumerate(zip(before, b.environments, strict=True)):
            for name, value in old.items():
                own = self.environment is b.environments[frame]
                if own and (name in self.bound or name in self.targets or name in self.tuples):
                    continue
                now = new.get(name)
                if now is None or now is value:
                    continue
                if now == value:
                    if isinstance(now, Scalar) and isinstance(value, Scalar) and now.objects != value.objects:
                        left = left_behind(now.objects, b.loops, b.fixed)
                        head.held[frame, name] = replace(value, alias=one_of(replace(now, alias=left), value))
                        grown = True
                elif isinstance(now, Scalar) and not isinstance(now.expr, Load):  # changed in place by another name
                    if own:
                        head.also.add(name)
                    else:
                        head.held[frame, name] = _changed_in_place(name, self.builder.location)
                    grown = True
                else:
                    head.held[frame, name] = now
                    grown = True
        for name in self.bound:
            old_value, new_value = before[self.frame].get(name), self.environment.get(name)
            plain = not isinstance(old_value, (Scalar, View, Unset, Pending)) and old_value is not None
            if plain and old_value != new_value and name not in head.unset:
                head.unset[name] = _different(self.builder.location)
                grown = True
        return grown

    def _other_objects(self, own: dict[str, str]) -> bool:
        """Widen what head says of names and arrays that are one in the plain Python; whether it grew. own: the names of the
        arrays that the loop has for names in `head.own`.
        """
        b, head = self.builder, self.head
        assert head.sharing is not None
        sharing = either(head.sharing, without(b.sharing, lambda slot: slot[0] > self.frame))
        copies = head.copies | _renamed(frozenset(pair for pair in b.copies if pair <= self.outside), own)
        grown = (sharing, copies) != (head.sharing, head.copies)
        head.sharing, head.copies = sharing, copies
        b.sharing = sharing
        return grown

    def _after(self) -> None:
        """What names mean after the loop."""
        b, env, head = self.builder, self.environment, self.head
        b.location = self.location
        for name in self.bound:
            if name in self.results:
                typed, alias = head.scalars[name]
                left = left_behind(alias, b.loops, b.fixed)
                env[name] = replace(self.results[name], alias=left if typed.weight else None)
                if name in head.dynamic:
                    b.dynamic |= {n for e in expressions_of(self.results[name]) for n in free_names(e)}
            elif name in head.unset:
                env[name] = head.unset[name]
            elif self.before.get(name) is None:
                env[name] = Unset(
                    f"the loop over {self.target} gives it one only if it runs",
                    f"give {name} a value before the loop", b.location,
                )  # fmt: skip
            elif isinstance(self.before[name], Unset):
                env[name] = self.before[name]
            elif isinstance(self.before[name], Pending):
                now = env.get(name)
                kept = isinstance(now, View) and now.is_whole() and now.array in self.outside
                if not kept and not isinstance(now, (Static, Pending)):
                    what = describe(now) if now is not None else "nothing"
                    why = f"it is {what} of an iteration"
                    env[name] = Unset(why, "store what is returned, and leave by break", self.location)
            # arrays and known values are what they were
        for name in (n for n in self.targets if n not in self.results):
            env[name] = Unset(
                "it is the variable of a loop that has ended, and has one only if the loop ran",
                f"give {name} a value before the loop", b.location,
            )  # fmt: skip


def _different(location: Location | None) -> Unset:
    return Unset("it is a different thing after an iteration", "use another name", location)


def _is_scalar(value: Value) -> bool:
    return isinstance(value, Scalar)


def _items(name: str, value: Tuple) -> dict[str, Value]:
    """What a tuple has in it, and in the tuples inside, by names of its own."""
    found: dict[str, Value] = {}
    for k, item in enumerate(value.items):
        found |= _items(f"{name}.{k}", item) if isinstance(item, Tuple) else {f"{name}.{k}": item}
    return found


def _with_items(name: str, value: Tuple, known: Environment) -> Tuple:
    """The tuple of what these names mean."""
    items = (
        _with_items(f"{name}.{k}", item, known) if isinstance(item, Tuple) else known[f"{name}.{k}"]
        for k, item in enumerate(value.items)
    )
    return replace(value, items=tuple(items))


def _renamed(copies: frozenset[frozenset[str]], names: dict[str, str]) -> frozenset[frozenset[str]]:
    """Pairs of arrays, by other names."""
    return frozenset(frozenset(names.get(array, array) for array in pair) for pair in copies)


def nothing(like: Scalar) -> Scalar:
    """A value in place of `like` for paths where nothing reads it."""
    zero = cast(Const(0, INT64), like.typed.register)
    return replace(like, expr=zero)


def _changed_in_place(name: str, location: Location | None) -> Unset:
    return Unset(
        "the tensor that it means is changed in place by another name in the loop",
        f"copy it where {name} gets its value, with .clone()",
        location,
        stale=True,
    )
