"""Emits a function: statements in blocks, names, arrays, loops; and takes a block back where it must be done again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from weft.errors import Location, ShapeMismatch, UnsupportedSyntax
from weft.language.kinds import (
    by_kind,
    cast,
    choice,
    common_type,
    converted,
    expressions_of,
    holds,
    is_kind,
    is_number,
    is_rounded,
    joined,
    kinds_of,
    leaves,
    number_of,
    number_of_one,
    numbers_of,
    of_kind,
    unsure,
    unsure_of,
)
from weft.language.places import apart
from weft.language.sharing import Sharing, Slot, bind, partners, without
from weft.language.values import (
    PARTS,
    TWO,
    Loop,
    Mixed,
    Scalar,
    Unset,
    Value,
    View,
    contents,
    difference,
    each,
    has_place,
    mentions,
    one_of,
    tidy,
    whole,
)
from weft.loops.affine import Affine, affine
from weft.loops.faults import may_fail
from weft.loops.ir import (
    ONE,
    ZERO,
    Array,
    Carry,
    Const,
    Demand,
    Equality,
    Expr,
    For,
    If,
    Joint,
    Let,
    Load,
    Merge,
    Op,
    Ref,
    Stmt,
    Store,
    Widening,
    free_names,
    has_load,
    operands,
    substitute,
    walk_expr,
    with_operands,
)
from weft.loops.names import fresh
from weft.loops.types import BOOL, FLOAT32, FLOAT64, INT64, ScalarType

Environment = dict[str, Value]

# A test of more operations than this gets a name: it is asked for on every path.
_LONG = 12


@dataclass
class Builder:
    """The state of one function being emitted.

    environments: what names mean, in each frame of inlined functions. definitions: index arithmetic by the name it is
    bound to. dynamic: names that depend on what tensors hold. fixed: sizes and scalar parameters. named: the sizes that
    the user named. created: the whole view of each array made here. sharing: which names mean one tensor without
    dimensions. changes: the names whose tensor was changed in place. copies: pairs of arrays that are one tensor, or parts
    of one, in the plain Python, where a name that is rebound in a loop or a branch got an array of its own.
    given: the arrays that are arguments. carried: the scalars that the open loops carry. spare: names for what a scalar is
    on each path, which may be left out where nothing reads them. demands: conditions that a call checks. spans: the least
    and largest values of integer names, where known. choices: what a name is, or is one of.
    advances: how loops move the ints that they carry (weft.language.checks).
    widenings: what is computed in double precision because Python's floats are doubles.
    integers: the parameters that are ints. quotients: the names of numbers that the call computes from sizes and scalars.
    told: carried names, by the location of their loop, whose kind is carried too. left: which of them the result of a loop is.
    complexes: arguments of pairs as the tensors of complex numbers that they are.
    joints: what views that merge dimensions ask of strides. indirect: axes of arrays, (array, axis), of which some subscript
    is one of a part, of a slice, or of dimensions that were split or merged. spelled: the user's names of arrays made here.
    strict: whether each operation on elements rounds to their dtype, as it does in eager mode.
    parts: names for what Python looks at where a part of a tensor is made, and what looks at the same. subscripts: the arrays
    that these are accesses to, by the array and the axis (weft.language.parts). ends: subscripts below 0 that are constants.
    """

    function: str
    default_float: ScalarType = FLOAT32
    taken: set[str] = field(default_factory=set)
    arrays: dict[str, Array] = field(default_factory=dict)
    equalities: list[Equality] = field(default_factory=list)
    blocks: list[list[Stmt]] = field(default_factory=lambda: [[]])
    loops: list[Loop] = field(default_factory=list)
    environments: list[Environment] = field(default_factory=list)
    definitions: dict[str, Expr] = field(default_factory=dict)
    dynamic: set[str] = field(default_factory=set)
    fixed: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    created: dict[str, View] = field(default_factory=dict)
    sharing: Sharing = field(default_factory=dict)
    changes: list[Slot] = field(default_factory=list)
    copies: frozenset[frozenset[str]] = frozenset()
    given: frozenset[str] = frozenset()
    carried: set[str] = field(default_factory=set)
    spare: set[str] = field(default_factory=set)
    subscripts: dict[tuple[str, int], str] = field(default_factory=dict)
    parts: dict[str, Callable[[Expr | Store], bool]] = field(default_factory=dict)
    demands: list[Demand] = field(default_factory=list)
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    choices: dict[str, tuple[Expr, ...]] = field(default_factory=dict)
    advances: dict[str, object] = field(default_factory=dict)
    integers: set[str] = field(default_factory=set)
    quotients: dict[Expr, str] = field(default_factory=dict)
    joints: list[Joint] = field(default_factory=list)
    told: frozenset[tuple[Location | None, str]] = frozenset()
    left: dict[str, tuple[Location | None, str]] = field(default_factory=dict)
    complexes: dict[str, View] = field(default_factory=dict)
    indirect: set[tuple[str, int]] = field(default_factory=set)
    ends: set[tuple[str, int, int]] = field(default_factory=set)
    widenings: list[Widening] = field(default_factory=list)
    spelled: dict[str, str] = field(default_factory=dict)
    strict: bool = False
    location: Location | None = None

    # ------------------------------------------------------------ names and blocks

    def fresh(self, hint: str) -> str:
        """A name made from `hint` that nothing else in the function has."""
        return fresh(hint, self.taken)

    def emit(self, stmt: Stmt) -> None:
        self.blocks[-1].append(stmt)

    @contextmanager
    def block(self) -> Iterator[list[Stmt]]:
        """Statements emitted inside go to the list."""
        statements: list[Stmt] = []
        self.blocks.append(statements)
        depth, loops = len(self.blocks), len(self.loops)
        try:
            yield statements
        finally:
            del self.blocks[depth - 1 :]
            del self.loops[loops:]

    @contextmanager
    def path(self) -> Iterator[None]:
        """What is emitted inside is computed for one of several paths: what it asks for, no call has to see to."""
        with self.block() as statements:
            yield
        self.blocks[-1] += statements

    def snapshot(self) -> Callable[[], None]:
        """A function that brings everything back to how it is now."""
        taken, arrays, equalities = set(self.taken), dict(self.arrays), list(self.equalities)
        environments = [dict(e) for e in self.environments]
        definitions, dynamic = dict(self.definitions), set(self.dynamic)
        sharing, changes, copies = self.sharing, len(self.changes), self.copies
        demands, spans = list(self.demands), dict(self.spans)
        blocks, loops = [len(b) for b in self.blocks], list(self.loops)
        quotients, joints = dict(self.quotients), list(self.joints)
        subscripts, parts = dict(self.subscripts), dict(self.parts)

        def restore() -> None:
            self.taken, self.arrays, self.equalities = set(taken), dict(arrays), list(equalities)
            self.definitions, self.dynamic = dict(definitions), set(dynamic)
            self.sharing, self.copies = sharing, copies
            self.demands, self.spans = list(demands), dict(spans)
            self.quotients, self.joints = dict(quotients), list(joints)
            self.subscripts, self.parts = dict(subscripts), dict(parts)
            del self.changes[changes:]
            del self.environments[len(environments) :]
            for environment, old in zip(self.environments, environments, strict=True):
                environment.clear()
                environment.update(old)
            del self.blocks[len(blocks) :]
            for block, length in zip(self.blocks, blocks, strict=True):
                del block[length:]
            self.loops = list(loops)

        return restore

    # ------------------------------------------------------------ scalars

    def quotient(self, expr: Expr, hint: str = "size") -> Expr:
        """A size that is a quotient or a remainder as a number that the call computes, so that subscripts with products of
        it are told apart; any other as it is.
        """
        known = self.in_sizes(expr)
        quotient = isinstance(known, Op) and known.name in ("floordiv", "mod")
        if not quotient or has_load(known) or not free_names(known) <= self.fixed:
            return expr
        name = self.quotients.get(known)
        if name is None:
            name = self.quotients[known] = self.fresh(hint)
            self.fixed.add(name)
        return Ref(name, INT64)

    def let(self, hint: str, expr: Expr) -> Ref:
        if isinstance(expr, Op) and expr.name in ("floordiv", "mod"):
            found = self.quotient(expr, hint) if expr.type == INT64 and len(self.blocks) == 1 else expr
            if isinstance(found, Ref):
                return found
        name = self.fresh(hint)
        self.emit(Let(name, expr, self.location))
        self.choices[name] = (expr,)
        if self.is_dynamic(expr):
            self.dynamic.add(name)
        elif expr.type == INT64:
            self.definitions[name] = expr
        return Ref(name, expr.type)

    def evaluated(self, expr: Expr, value: Expr | None = None) -> None:
        """Note that Python computes an expression here, of which nothing may be left in the value that it is computed for."""
        if may_fail(expr) and (value is None or all(e != expr for e in walk_expr(value))):
            self.let("unused", expr)

    def _spare(self, hint: str, expr: Expr) -> Ref:
        name = self.let(hint, expr)
        self.spare.add(name.name)
        return name

    def frame_of(self, environment: Environment) -> int | None:
        """The number of a frame; None of one that is not open."""
        return next((k for k, e in enumerate(self.environments) if e is environment), None)

    def bind(self, frame: int, name: str, value: Value) -> None:
        """Give a name a value, which later statements change only through its objects."""
        slot, environment = (frame, name), self.environments[frame]
        if isinstance(value, Scalar) and value.typed.weight:
            objects = value.objects
            self.sharing = bind(self.sharing, slot, objects.names, objects.sure)
            environment[name] = replace(value, alias=replace(objects, names=frozenset(), sure=False))
        else:
            if isinstance(value, View) and self.created.get(value.array) == value and frame == 0:
                self.spelled[value.array] = name
            names = frozenset(n for leaf in contents(value) if isinstance(leaf, Scalar) for n in leaf.objects.names)
            self.sharing = bind(self.sharing, slot, names, False)
            environment[name] = value

    def meaning(self, frame: int | None, name: str, value: Value) -> Value:
        """The value of a name, that knows whose it is."""
        if frame is None:
            return value
        names = frozenset({(frame, name)})
        if isinstance(value, Scalar):
            return replace(value, alias=replace(value.objects, names=names, sure=True)) if value.typed.weight else value

        def one_of_several(leaf: Value) -> Value:
            if not isinstance(leaf, Scalar) or not leaf.typed.weight:
                return leaf
            return replace(leaf, alias=replace(leaf.objects, names=names, sure=False))

        return each(value, one_of_several)

    def hold(self, *values: Value) -> tuple[Value, ...]:
        """Values under names of a frame of their own, so that what happens to their objects happens to them."""
        frame = len(self.environments)
        self.environments.append({})
        for k, value in enumerate(values):
            self.bind(frame, str(k), value)
        return tuple(self.held(frame, k) for k in range(len(values)))

    def held(self, frame: int, position: int) -> Value:
        return self.meaning(frame, str(position), self.environments[frame][str(position)])

    def release(self, depth: int) -> None:
        """Close the frames from `depth` on."""
        del self.environments[depth:]
        self.sharing = without(self.sharing, lambda s: s[0] >= depth)

    def change(self, slot: Slot, value: Scalar, number: bool) -> None:
        """The tensor that a slot means was changed in place, and is `value` now, for all names that mean it.

        number: it may be a number still, where it was one.
        """
        frame, name = slot
        before = self.environments[frame][name]
        assert isinstance(before, Scalar)
        after = replace(value, alias=replace(before.objects, number=before.objects.number and number))
        self.environments[frame][name] = after
        self.changes.append(slot)
        for (place, other), same in partners(self.sharing, slot).items():
            theirs = self.environments[place][other]
            self.changes.append((place, other))
            if isinstance(theirs, Scalar) and same and not before.objects.number and theirs.typed == value.typed:
                self.environments[place][other] = replace(
                    theirs, expr=value.expr, mixed=value.mixed, exact=value.exact, number=value.number
                )
            elif not isinstance(theirs, Unset):
                copy = f"copy it where it gets its value: {other} = {name}.clone()"
                if before.objects.number:  # numbers have no clone
                    copy = f"give {name} a new value instead, as {name} = {name} + ... does"
                self.environments[place][other] = Unset(
                    f"it may be the same tensor as {name}, which was changed in place since",
                    copy,
                    self.location,
                    stale=True,
                )

    def reach(self, expr: Expr) -> set[str]:
        """The names that an integer depends on, those of what names stand for included."""
        found: set[str] = set()
        pending = list(free_names(expr))
        while pending:
            name = pending.pop()
            if name not in found:
                found.add(name)
                pending += [n for e in self.choices.get(name, ()) for n in free_names(e)]
        return found

    def share(self, value: Scalar, hint: str = "t") -> Scalar:
        """The value under a name, so that it can be used several times."""
        named = [e for e in (value.expr, value.exact, *(v.expr for v in leaves(value))) if e is not None]
        if all(isinstance(e, (Const, Ref)) for e in named):
            return value
        whole = value.expr if isinstance(value.expr, (Const, Ref)) else self.let(hint, value.expr)
        mixed = value.mixed
        if mixed is not None and mixed.test is not None:
            mixed = self._named_kinds(mixed, hint, {value.expr: whole})
        exact = value.exact
        if exact is not None and not isinstance(exact, (Const, Ref)):
            exact = self._spare(f"{hint}_exact", exact)
        number = value.number
        if number is not None and number.test is not None and self._is_long(number.test):
            number = replace(number, test=self._spare(f"{hint}_is_number", number.test))
        return replace(value, expr=whole, mixed=mixed, exact=exact, number=number)

    def _is_long(self, test: Expr) -> bool:
        """Whether a test gets a name. A short one is written out where it is used: a subscript's guard is told by it."""
        return has_load(test) or sum(1 for _ in walk_expr(test)) > _LONG

    def _named_kinds(
        self, mixed: Mixed, hint: str, known: dict[Expr, Expr], around: tuple[tuple[Expr, bool], ...] = ()
    ) -> Mixed:
        """What it is on each path under names, none of them computed on another path than its own. around: the tests of the
        paths that lead here, and what they are there.
        """
        assert mixed.test is not None
        test = asked = _on(around, mixed.test, Const(False, BOOL))
        if self._is_long(test):
            test = asked = self._spare(f"{hint}_kind", test)
        elif around:
            asked = mixed.test  # where it is asked for, the tests around it are too

        def named(side: Scalar, here: bool) -> Scalar:
            idle = cast(Const(False, BOOL), side.typed.register)
            path = ((test, True),) if here else ((asked, False), *around)
            found = side.expr if isinstance(side.expr, (Const, Ref)) else known.get(side.expr)
            inner = side.mixed
            if inner is not None and inner.test is not None:
                inner = self._named_kinds(inner, hint, known, path)
            if found is None:
                found = self._spare(f"{hint}_{side.typed.scalar}", _on(path, side.expr, idle))
            return replace(side, expr=found, mixed=inner)

        return replace(mixed, test=test, then=named(mixed.then, True), orelse=named(mixed.orelse, False))

    def is_dynamic(self, expr: Expr) -> bool:
        """Whether a value depends on what tensors hold."""
        return has_load(expr) or bool(free_names(expr) & self.dynamic)

    def steady(self, expr: Expr, hint: str = "index") -> Expr:
        """An index that stays what it is now, whatever is stored later."""
        if not has_load(expr):
            return expr
        if has_place(expr):  # of a view: the same for all of its elements
            return with_operands(expr, tuple(self.steady(e, hint) for e in operands(expr)))
        return self.let(hint, expr)

    # ------------------------------------------------------------ sizes

    def _class_of(self, expr: Expr) -> Expr:
        for equality in self.equalities:
            if expr == equality.right:
                return self._class_of(equality.left)
        return expr

    def canonical(self, expr: Expr) -> Expr:
        """A size in sizes and scalars where it is one of them, equal sizes by one name."""
        expr = self.in_sizes(expr)
        names: dict[str, Expr] = {}
        for name in free_names(expr):
            names[name] = self._class_of(Ref(name, INT64))
        return tidy(self._class_of(tidy(substitute(expr, names))))

    def in_sizes(self, expr: Expr) -> Expr:
        """Names bound to index arithmetic replaced by it, as far down as they go."""
        while True:
            names = {n: self.definitions[n] for n in free_names(expr) if n in self.definitions}
            if not names:
                return tidy(expr)
            expr = substitute(expr, names)

    def same_size(self, a: Expr, b: Expr) -> bool:
        return a == b or difference(self.canonical(a), self.canonical(b)) == 0

    def same_sizes(self, a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
        return len(a) == len(b) and all(map(self.same_size, a, b))

    def require_equal(self, a: Expr, b: Expr, what: str) -> None:
        """Two sizes agree: known while parsing, or to be checked by the call; ShapeMismatch where neither can be."""
        if self.same_size(a, b):
            return
        left, right = self.canonical(a), self.canonical(b)
        distance = difference(left, right)
        if distance is not None:
            raise ShapeMismatch(
                f"the sizes do not agree {what}",
                evidence=[f"one is larger than the other by {abs(distance)}"],
                remedy="make them equal, or one of them the constant 1",
            )
        if not (free_names(left) | free_names(right)) <= self.fixed:
            left, right = _balanced(left, right)  # n - i and m - i agree where n and m do
        if not (free_names(left) | free_names(right)) <= self.fixed:
            raise ShapeMismatch(
                f"the sizes do not provably agree {what}",
                evidence=["they depend on loop variables or on values of tensors"],
                remedy="write the loop over the elements instead of the slice",
            )
        if isinstance(right, Ref) and not isinstance(left, Ref):
            left, right = right, left
        self.equalities.append(Equality(left, right, what, self.location))

    # ------------------------------------------------------------ arrays

    def load(self, view: View, at: tuple[Expr, ...]) -> Load:
        self.walks(view)
        return Load(view.array, view.index(at), view.dtype.opmath, self.location)

    def walks(self, view: View, dim: int | None = None) -> None:
        """Note which axes of its array a view walks otherwise than the axis itself, with a dimension or with any."""
        for k, axis in enumerate(view.axes):
            walked = free_names(axis) & {f"@{dim}"} if dim is not None else not isinstance(axis, Ref) and has_place(axis)
            if walked:
                self.indirect.add((view.array, k))

    def store(self, array: str, index: tuple[Expr, ...], value: Expr) -> None:
        """Emit a store; names that are views of the stored element are read again from now on."""
        self.emit(Store(array, index, value, self.location))
        twins = {other for pair in self.copies if array in pair for other in pair - {array}}
        for twin in twins & self.given:
            raise UnsupportedSyntax(
                f"{self.called(array)} may be {twin} or a part of it, and a store into it would change {twin} too",
                remedy=f"copy it where {self.called(array)} gets its value, with .clone(), or store into {twin}",
            )

        def after(name: str, leaf: Value) -> Value:
            return self._after_store(name, leaf, array, index, twins)

        for environment in self.environments:
            for name, held in environment.items():
                now = each(held, functools.partial(after, name))
                if now is not held:
                    environment[name] = now

    def copied(self, own: str, source: str) -> None:
        """Note that array `own` holds what in the plain Python is the tensor of array `source`, or a part of it."""
        twins = {source} | {other for pair in self.copies if source in pair for other in pair}
        self.copies |= {frozenset((own, twin)) for twin in twins - {own}}

    def overwritten(self, arrays: set[str]) -> None:
        """Note that these arrays are given other tensors' values: views of what they held are lost."""
        self.copies = frozenset(pair for pair in self.copies if not pair & arrays)

        def lost(name: str, leaf: Value) -> Value:
            if not isinstance(leaf, Scalar) or not leaf.objects.arrays & arrays:
                return leaf
            return Unset(
                f"{name} is a view of an element of a tensor whose name was given another one since",
                f"copy the element where {name} gets it, with .clone()",
                self.location,
                stale=True,
            )

        for environment in self.environments:
            for name, held in environment.items():
                environment[name] = each(held, functools.partial(lost, name))

    def _after_store(self, name: str, held: Value, array: str, index: tuple[Expr, ...], twins: set[str]) -> Value:
        """What a value means after a store: elements that it is views of are read again."""
        stored = self.called(array)
        if isinstance(held, View) and held.copied and held.array == array:
            return Unset(
                f"it is a copy or a view of {stored}, as strides will have it, and {stored} was stored into since",
                "read it before the store, or copy it with .clone()",
                self.location,
                stale=True,
            )
        if any(mentions(held, twin) for twin in twins):
            return Unset(
                f"it may be the same tensor as {stored}, which was stored into since",
                "copy it where the second name gets its value, with .clone()",
                self.location,
                stale=True,
            )
        if not isinstance(held, Scalar) or array not in held.objects.arrays:
            return held
        places = held.objects.elements
        if places is not None and all(other != array or self.apart(array, place, index) for other, place in places):
            return held
        if held.objects.index is None:
            named = name.isidentifier()  # what a statement has computed so far has a number
            return Unset(
                f"{name if named else 'it'} is a view of an element of {stored}, which was stored into since",
                f"copy the element where {name} gets it: {name} = {stored}[...].clone()" if named else
                f"copy the element: {stored}[...].clone()",
                self.location,
                stale=True,
            )  # fmt: skip
        return replace(held, expr=Load(array, held.objects.index, held.typed.register, self.location))

    def apart(self, array: str, left: tuple[Expr, ...], index: tuple[Expr, ...]) -> bool:
        """Whether two subscripts of an array provably name different elements (weft.language.places)."""
        least = {name: low for name, (low, _) in self.spans.items()}
        return apart(left, index, self.arrays[array].shape, self.loops, least)

    def allocate(
        self,
        hint: str,
        dtype: ScalarType,
        dims: tuple[Expr, ...],
        fill: bool | int | float | None = None,
        contiguous: bool = False,
        like: str = "",
    ) -> View:
        """A new local array of these sizes, fresh in every iteration of the loops that are open.

        contiguous: PyTorch makes it so, whatever the strides of the arguments are. like: the argument whose order of strides
        it has.
        """
        if dtype.category == "complex":
            return self._allocate_complex(hint, dtype, dims, fill, contiguous, like)
        name = self.fresh(hint)
        self.spelled[name] = hint
        constant = None if fill is None else Const(_fit(fill, dtype), dtype.opmath)
        shape = tuple(self.in_sizes(d) for d in dims)
        if not self.loops:
            for size in shape:
                self._bounded(size, name)
        if not self.loops or all(isinstance(d, Const) for d in shape):
            within = tuple(loop.var for loop in self.loops)
            sizes = tuple(map(_not_negative, shape))
            made = Array(name, dtype, sizes, "local", constant, within, self.location, contiguous=contiguous, like=like)
            self._declare(made)
            return self._own(whole(name, dtype, dims))
        leading, offsets = [], []
        for loop in self.loops:
            extent, offset = self._unrolled(loop, name)
            leading.append(_not_negative(extent))
            offsets.append(offset)
        own = tuple(_not_negative(self._bounded(d, name)) for d in shape)
        self._declare(Array(name, dtype, (*leading, *own), "local", constant, (), self.location, contiguous=contiguous))
        view = whole(name, dtype, dims)
        return self._own(replace(view, axes=(*offsets, *view.axes)))

    def _allocate_complex(
        self,
        hint: str,
        dtype: ScalarType,
        dims: tuple[Expr, ...],
        fill: bool | int | float | None,
        contiguous: bool,
        like: str,
    ) -> View:
        """A new array of the parts of complex numbers. fill: None, or 0."""
        view = self.allocate(hint, dtype.part, (*dims, TWO), fill, contiguous, like)
        return self._own(replace(view, dtype=dtype, dims=dims, axes=(*view.axes[:-1], PARTS)))

    def called(self, array: str) -> str:
        """What the user calls an array."""
        return self.spelled.get(array, array)

    def _declare(self, array: Array) -> None:
        self.arrays[array.name] = array

    def _own(self, view: View) -> View:
        self.created[view.array] = view
        return view

    def is_free(self, view: View, name: str) -> bool:
        """Whether `view` is all of an array made here that no other name means, so that `name` may be given new values
        by storing into it.
        """
        if self.created.get(view.array) != view:
            return False
        holders = [n for e in self.environments for n, v in e.items() if mentions(v, view.array)]
        return holders in ([], [name])

    def _unrolled(self, loop: Loop, name: str) -> tuple[Expr, Expr]:
        """How many values a loop's variable has at most, and the number of the current one (not always dense)."""
        var = Ref(loop.var, INT64)
        if loop.step > 0:
            first, high = loop.start, tidy(Op("sub", (loop.stop, ONE), INT64))
        else:
            first, high = tidy(Op("add", (loop.stop, ONE), INT64)), loop.start
        low = self.in_sizes(first)
        low = low if isinstance(low, Const) and low.value >= 0 else self._bounded(low, name, lower=True)
        top = self._bounded(high, name)
        base = ZERO if isinstance(low, Const) and low.value >= 0 else low
        return tidy(Op("add", (Op("sub", (top, base), INT64), ONE), INT64)), tidy(Op("sub", (var, base), INT64))

    def _bounded(self, expr: Expr, name: str, lower: bool = False) -> Expr:
        """The largest (or smallest) value of an affine size over the loops that are open, in sizes and scalars."""
        expr = self.in_sizes(expr)
        for loop in reversed(self.loops):
            if loop.var not in free_names(expr):
                continue
            form = affine(expr)
            if form is None:
                break
            rising = (form.coefficient(loop.var) > 0) != lower
            first, last = loop.start, Op("sub", (loop.stop, Const(1 if loop.step > 0 else -1, INT64)), INT64)
            end = last if rising == (loop.step > 0) else first
            expr = self.in_sizes(substitute(expr, {loop.var: end}))
        if not free_names(expr) <= self.fixed or has_load(expr):
            raise UnsupportedSyntax(
                f"the size of {name} is not known before the loops around it",
                evidence=["it depends on values that the loops compute"],
                remedy="create it before the loops, with a size taken from the arguments",
            )
        return expr

    # ------------------------------------------------------------ loops

    @contextmanager
    def loop(self, var: str, start: Expr, stop: Expr, step: int = 1, implied: bool = False) -> Iterator[list[Carry]]:
        """Open a loop, its body emitted inside; carries are appended to the list. var: its (fresh) name."""
        carries: list[Carry] = []
        location = self.location
        with self.block() as body:
            self.loops.append(Loop(var, start, stop, step))
            yield carries
            statements = tuple(body)
        self.emit(For(var, start, stop, step, tuple(carries), statements, implied, location))

    def nest(self, dims: tuple[Expr, ...], body: Callable[[tuple[Expr, ...]], None]) -> None:
        """Implied loops over `dims`, the body inside all of them. Sizes of 1 need no loop."""

        def go(k: int, at: tuple[Expr, ...]) -> None:
            if k == len(dims):
                body(at)
            elif dims[k] == ONE:
                go(k + 1, (*at, ZERO))
            else:
                var = self.fresh(self.implied_name(dims[k]))
                with self.loop(var, ZERO, dims[k], implied=True):
                    go(k + 1, (*at, Ref(var, INT64)))

        go(0, ())

    def implied_name(self, extent: Expr) -> str:
        """A readable name for the variable of an implied loop."""
        if isinstance(extent, Ref) and extent.name in self.named:
            return f"i_{extent.name}"
        return f"i{len(self.loops)}"

    def merge(self, hint: str, one: Scalar, other: Scalar, test: Expr, merges: list[Merge]) -> Scalar:
        """What a scalar is after a branch that leaves it `one` or `other`; what it is made of is added to `merges`."""
        typed = common_type((one.typed, other.typed), self.default_float)
        dynamic = any(self.is_dynamic(e) for v in (one, other) for e in expressions_of(v)) or self.is_dynamic(test)

        def merged(name: str, then: Expr, orelse: Expr) -> Ref:
            name = self.fresh(name)
            merges.append(Merge(name, then, orelse))
            self.choices[name] = (then, orelse)
            if dynamic:
                self.dynamic.add(name)
            return Ref(name, then.type)

        whole = merged(hint, converted(one, typed.register), converted(other, typed.register))
        alias = one_of(one, other)
        kinds = joined((*kinds_of(one), *kinds_of(other)), self.default_float)
        if len(kinds) == 1:
            exact = None
            if is_rounded(one, typed.register) or is_rounded(other, typed.register):
                exact = merged(f"{hint}_exact", converted(one, FLOAT64), converted(other, FLOAT64))
                self.spare.add(exact.name)
            number = number_of_one(test, one, other, typed)
            if number is not None and number.test is not None:
                where = merged(f"{hint}_is_number", *(is_number(number_of(value, typed)) for value in (one, other)))
                number = replace(number, test=where)
                self.spare.add(where.name)
            return Scalar(whole, typed, alias, exact=exact, number=number)
        name = unsure_of(one) or unsure_of(other)
        if name and holds(typed, one) and holds(typed, other):
            return replace(unsure(whole, typed, kinds, name, numbers_of(kinds, (one, other))), alias=alias)
        made = len(merges)
        tests: list[Expr] = [
            merged(f"{hint}_is_{kind.scalar}", is_kind(one, kind), is_kind(other, kind)) for kind in kinds[:-1]
        ]
        numbers = numbers_of(kinds, (one, other))
        values = [
            Scalar(number or merged(f"{hint}_{kind.scalar}", of_kind(one, kind), of_kind(other, kind)), kind)
            for kind, number in zip(kinds, numbers, strict=True)
        ]
        self.spare.update(m.name for m in merges[made:])
        return Scalar(whole, typed, alias, by_kind(tests, values, self.default_float).mixed)

    def branch(self, condition: Expr, then: list[Stmt], orelse: list[Stmt], merges: tuple[Merge, ...]) -> None:
        self.emit(If(condition, tuple(then), tuple(orelse), merges, self.location))


def _on(path: tuple[tuple[Expr, bool], ...], value: Expr, idle: Expr) -> Expr:
    """A value where these tests, the innermost first, are what they are on a path; `idle` elsewhere."""
    for condition, here in path:
        value = choice(condition, value, idle) if here else choice(condition, idle, value)
    return value


def _balanced(left: Expr, right: Expr) -> tuple[Expr, Expr]:
    """Two sizes that agree where these do, without what is on both sides."""
    one, other = affine(left), affine(right)
    if one is None or other is None:
        return left, right
    delta = one - other
    more = Affine.make({n: c for n, c in delta.terms if c > 0}, max(0, delta.constant))
    return more.expr(), (more - delta).expr()


def _not_negative(size: Expr) -> Expr:
    """A size that is 0 where the expression is negative."""
    if isinstance(size, Ref):
        return size
    if isinstance(size, Const):
        return Const(max(0, int(size.value)), INT64)
    return Op("max", (size, ZERO), INT64)


def _fit(value: bool | int | float, dtype: ScalarType) -> bool | int | float:
    return {"bool": bool, "int": int, "float": float}[dtype.category](value)  # type: ignore[no-any-return]
