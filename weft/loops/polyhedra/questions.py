"""Questions about the accesses of a function: whether two of them meet, and which comes first; whether one leaves its array."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, reduce

import islpy

from weft.loops.accesses import Access, Guard, Pair
from weft.loops.affine import Affine
from weft.loops.ir import Expr, For, Function, free_names
from weft.loops.polyhedra.patience import TooHard, patient, unless_too_hard
from weft.loops.polyhedra.systems import (
    UNDECIDED,
    UNTOLD,
    Estimates,
    S,
    System,
    Witness,
    as_python,
    integer_names,
    python_condition,
    set_of,
)
from weft.loops.polynomials import merged_subscripts

_LARGE, _LONG = 64, 8  # a size and a number of iterations of calls that are worth an analysis of their own


@dataclass(frozen=True)
class Polyhedra:
    """Questions about the accesses of one function."""

    function: Function

    def system(self) -> System:
        return self._with_facts(System(integer_names(self.function)))

    def _with_facts(self, system: S) -> S:
        system.lines += [f"{system.parameters[s.name]} >= 0" for s in self.function.sizes]
        for scalar in self.function.scalars:
            value = None if scalar.value is None else system.bound(scalar.value, {})
            if value is not None:
                system.lines.append(f"{system.parameters[scalar.name]} = {value}")
        if self.function.assumption is not None:
            system.lines.append(system.condition(self.function.assumption.condition))
        return system

    def _pair(
        self, a: Access, b: Access, shared: frozenset[str], private: frozenset[str]
    ) -> tuple[System, dict[str, str], dict[str, str]]:
        """The system of (iteration of a, iteration of b) that touch the same element, equal in the shared loops.

        private: loop variables in whose every iteration the array is a fresh one.
        """
        system = self.system()
        rename_a = {loop.var: loop.var if loop.var in shared else f"{loop.var}'" for loop in a.loops}
        rename_b = {loop.var: loop.var if loop.var in shared else f"{loop.var}''" for loop in b.loops}
        system.add_domain(a, rename_a)
        system.add_domain(b, rename_b)
        for i, j in (*zip(a.index, b.index, strict=True), *merged_subscripts(a.index, b.index)):
            same = system.equal(i, j, rename_a, rename_b)
            if same is not None:
                system.lines.append(same)
        for one, other in itertools.product(a.loops, b.loops):
            system.add_segments(one, other, rename_a, rename_b)
        for var in private - shared:
            if f"{var}'" in system.dimensions and f"{var}''" in system.dimensions:
                system.lines.append(f"{system.dimensions[var + chr(39)]} = {system.dimensions[var + 2 * chr(39)]}")
        return system, rename_a, rename_b

    def apart(self, a: Access, b: Access) -> bool:
        """Whether one subscript tells two accesses of an array apart in whatever iterations, as in `y[0]` and `y[1]`: what a
        text of many such lines would ask isl of every two of them.
        """
        fixed = integer_names(self.function)
        return any(
            i is not None and j is not None and i.terms == j.terms and i.constant != j.constant and i.names.issubset(fixed)
            for i, j in zip(a.subscript, b.subscript, strict=True)
        )

    def _witness(self, system: System, points: islpy.Set) -> Witness:
        values = system.sample(points)
        sizes = tuple((n, values[n]) for n in system.parameters)
        shared = [(n, v) for n, v in values.items() if n in system.dimensions and not n.endswith("'")]
        first = [(n[:-1], v) for n, v in values.items() if n.endswith("'") and not n.endswith("''")]
        second = [(n[:-2], v) for n, v in values.items() if n.endswith("''")]
        return Witness(sizes, (*shared, *first), (*shared, *second))

    @unless_too_hard(UNTOLD)
    def carried(self, a: Access, b: Access, loop: For, private: frozenset[str]) -> Witness | None:
        """Two different iterations of `loop`, equal in the loops around it, in which a and b touch the same element.

        Both accesses lie in the loop. None proves that there are none.
        """
        outer = frozenset(f.var for f in _around(a, loop))
        system, rename_a, rename_b = self._pair(a, b, outer, private)
        x, y = system.dimensions[rename_a[loop.var]], system.dimensions[rename_b[loop.var]]
        points = system.points(f"{x} != {y}")
        return None if points.is_empty() else self._witness(system, points)

    @unless_too_hard(None)
    def free_when(self, pairs: tuple[Pair, ...], loop: For, flows_alone: bool) -> str | None:
        """A Python condition on sizes and integer scalars under which no pair is carried by the loop.

        flows_alone: only what is written and then read or written again counts. None where nothing is carried, where
        the condition leaves no large sizes or no long loops (one iteration is always free), or is not made of plain
        comparisons.
        """
        carried: islpy.Set | None = None
        for a, b, private in pairs:
            outer = frozenset(f.var for f in _around(a, loop))
            system, rename_a, rename_b = self._pair(a, b, outer, private)
            x, y = system.dimensions[rename_a[loop.var]], system.dimensions[rename_b[loop.var]]
            before = "<" if loop.step > 0 else ">"
            apart = f"{x} != {y}"
            if flows_alone and a.write != b.write:
                apart = f"{x} {before} {y}" if a.write else f"{y} {before} {x}"
            parameters = system.build(apart).params()
            carried = parameters if carried is None else carried.union(parameters)
        if carried is None or carried.is_empty():
            return None
        system = self.system()
        context = system.build().params()
        free = context.subtract(carried).coalesce()
        system.lines += [f"{system.parameters[s.name]} >= {_LARGE}" for s in self.function.sizes]
        for around in dict.fromkeys(f for a, b, _ in pairs for f in (*a.loops, *b.loops)):
            low, high = system.bound(around.start, {}), system.bound(around.stop, {})
            if low is not None and high is not None:
                system.lines.append(f"({high}) - ({low}) {'>=' if around.step > 0 else '<='} {_LONG * around.step}")
        if free.intersect(system.build().params()).is_empty():
            return None
        text = python_condition(free.gist(context), system)
        return None if re.search(r"\b(?!and\b|or\b|not\b)[A-Za-z_]\w*\s*\(|%|/|\?", text) else text

    @unless_too_hard(False)
    def follows(self, facts: Sequence[Affine], fact: Affine) -> bool:
        """Whether a form is not negative wherever all of `facts` are not; names that are no sizes may be any integers."""
        system = self.system()
        for name in dict.fromkeys(n for f in (*facts, fact) for n in sorted(f.names)):
            if name not in system.parameters:
                system.dimension(name)
        system.lines += [f"{system.text(f, {})} >= 0" for f in facts]
        return bool(system.points(f"{system.text(fact, {})} < 0").is_empty())

    @unless_too_hard(True)
    def earlier(self, a: Access, b: Access, loop: For) -> bool:
        """Whether a, in some iteration of `loop`, touches the element that b does in a later one, equal in the loops around."""
        outer = frozenset(f.var for f in _around(a, loop))
        system, rename_a, rename_b = self._pair(a, b, outer, frozenset())
        x, y = system.dimensions[rename_a[loop.var]], system.dimensions[rename_b[loop.var]]
        return not system.points(f"{x} {'<' if loop.step > 0 else '>'} {y}").is_empty()

    @unless_too_hard(True)
    def late(
        self, a: Access, b: Access, loop: For, private: frozenset[str], slope: int, places: tuple[Expr, Expr]
    ) -> bool:
        """Whether a, in some iteration of `loop`, touches the element that b does in a later one, equal in the loops around, at
        no earlier step: that is `slope` times the number of the iteration, and the place of the access in it. True where isl
        cannot be told the places.
        """
        system, rename_a, rename_b = self._pair(a, b, frozenset(f.var for f in _around(a, loop)), private)
        x, y = system.dimensions[rename_a[loop.var]], system.dimensions[rename_b[loop.var]]
        before, after = system.bound(places[0], rename_a), system.bound(places[1], rename_b)
        if before is None or after is None:
            return True
        ahead, sign = ("<", "") if loop.step > 0 else (">", "-")
        late = f"{x} {ahead} {y} and {sign}{slope}*({y} - {x}) + ({after}) - ({before}) <= 0"
        return not system.points(late).is_empty()

    @unless_too_hard(True)
    def possible(self, loops: tuple[For, ...], guard: Guard) -> bool:
        """Whether iterations of these loops in which the guard holds may exist at all."""
        system = self.system()
        system.add_domain(Access("", (), (), False, loops, guard, 0, None), {})
        return not system.points().is_empty()

    @unless_too_hard(True)
    def meet(self, a: Access, b: Access, shared: frozenset[str]) -> bool:
        """Whether some iterations of a and b, equal in the shared loops, may touch the same element."""
        if self.apart(a, b):
            return False
        system, _, _ = self._pair(a, b, shared, frozenset())
        return not system.points().is_empty()

    @unless_too_hard(False)
    def overwritten(self, store: Access, writes: Sequence[Access], loop: For, ahead: int) -> bool:
        """Whether each execution of a store that leaves `ahead` iterations of `loop` or more to come, and there are such, is
        of an element that one of the writes surely writes in a later iteration of the same run of the loop.
        """
        system = self.system()
        system.add_domain(store, {})
        var, stop = system.dimensions[loop.var], system.bound(loop.stop, {})
        if stop is None or not self._placed(store):
            return False
        up = loop.step > 0
        hidden = system.build(f"{var} + {ahead * loop.step} {'<' if up else '>'} {stop}")
        if hidden.is_empty():
            return False
        outer = frozenset(f.var for f in _around(store, loop))
        for write in writes:
            if self._sure(write):
                pair, rename_a, rename_b = self._pair(store, write, outer, frozenset())
                x, y = pair.dimensions[rename_a[loop.var]], pair.dimensions[rename_b[loop.var]]
                hidden = hidden.subtract(_first(pair.build(f"{x} {'<' if up else '>'} {y}"), len(store.loops)))
        return hidden.is_empty()

    @unless_too_hard(False)
    def covered(self, read: Access, writes: Sequence[Access], loop: For) -> bool:
        """Whether each element that is read has surely been written by one of the writes before, in the same iteration of
        `loop`.
        """
        if not self._placed(read):
            return False
        system = self.system()
        system.add_domain(read, {})
        left = system.build()
        shared = frozenset(f.var for f in _around(read, loop)) | {loop.var}
        for write in writes:
            if self._sure(write):
                pair, rename_a, rename_b = self._pair(read, write, shared, frozenset())
                order = _before(write, read, pair, rename_b, rename_a)
                if order:
                    left = left.subtract(_first(pair.build(order), len(read.loops)))
        return left.is_empty()

    def certain(self, access: Access) -> bool:
        """Whether isl knows exactly when an access happens."""
        system = self.system()
        system.add_domain(access, {})
        return system.exact

    def _sure(self, access: Access) -> bool:
        """Whether isl knows exactly when an access happens, and to which element."""
        return self.certain(access) and self._placed(access)

    def _placed(self, access: Access) -> bool:
        """Whether isl knows which element an access is of: affine forms of carried scalars tell it nothing."""
        known = {f.var for f in access.loops} | set(integer_names(self.function))
        return all(form is not None and form.names <= known for form in access.subscript)

    @unless_too_hard(True)
    def precedes(self, a: Access, b: Access, apart: bool, shared: frozenset[str] = frozenset()) -> bool:
        """Whether a may touch, before b does, the element that b touches. Their positions are in the same statements.

        apart: in another iteration of a loop that they share. shared: loops of which it is the same iteration.
        """
        system, rename_a, rename_b = self._pair(a, b, shared, frozenset())
        order = _before(a, b, system, rename_a, rename_b, apart)
        return bool(order) and not system.points(order).is_empty()

    @unless_too_hard(UNTOLD)
    def crossing(
        self, a: Access, b: Access, axis_a: For | None, axis_b: For | None, axis: For, shared: frozenset[str],
        private: frozenset[str],
    ) -> Witness | None:  # fmt: skip
        """Iterations of a and b, equal in the shared axes, that touch the same element for different values of an axis.

        axis_a, axis_b: the loop of each access that would become the axis; None: it would be repeated for every value of
        the axis, whose range `axis` gives.
        """
        if self.apart(a, b):
            return None
        system, rename_a, rename_b = self._pair(a, b, shared, private)
        symbols = []
        for own, rename, mark in ((axis_a, rename_a, "'"), (axis_b, rename_b, "''")):
            if own is None:
                name = f"axis {axis.var}{mark}"
                system.add_loop(axis, {axis.var: name})
                symbols.append(system.dimensions[name])
            else:
                symbols.append(system.dimensions[rename[own.var]])
        points = system.points(f"{symbols[0]} != {symbols[1]}")
        return None if points.is_empty() else self._witness(system, points)

    def outside(
        self, access: Access, shape: tuple[Expr, ...], only: int | None = None, wraps: bool = False
    ) -> tuple[str, int] | None:
        """For which sizes an affine subscript leaves its array: (Python condition over sizes, axis); None: for none. The
        condition may hold for more sizes than that, and is UNDECIDED where isl takes too long to tell.

        only: the one axis to look at. wraps: a subscript below 0 counts from the end.
        """
        with suppress(TooHard), patient():
            if self._inside(access, shape, only, wraps):
                return None
        try:
            with patient():
                return self._outside_when(access, shape, only, wraps)
        except TooHard:  # more may be asked of the sizes than the program needs, and never less
            bare = replace(access, guard=())
            return self.outside(bare, shape, only, wraps) if access.guard else (UNDECIDED, only or 0)

    def surely_inside(self, access: Access, shape: tuple[Expr, ...]) -> bool:
        """Whether an access is known to stay in its array, of these extents. What isl cannot be told, as bounds that data
        decide, is not.
        """
        told = all(self.tells(access, shape, axis) for axis in range(len(shape)))
        return told and self.outside(access, shape) is None

    def tells(self, access: Access, shape: tuple[Expr, ...], axis: int) -> bool:
        """Whether `outside` looks at an axis: it does where isl can be told the subscript and how long the axis is."""
        system, form = self.system(), access.subscript[axis]
        system.add_domain(access, {})
        return form is not None and _beyond(system, form, shape[axis], False) is not None

    @unless_too_hard(True)
    def below(self, access: Access, axis: int) -> bool:
        """Whether an affine subscript may be below 0 for some sizes."""
        system = self.system()
        system.add_domain(access, {})
        form = access.subscript[axis]
        index = None if form is None else system.text(form, {})
        return index is None or not system.points(f"{index} < 0").is_empty()

    @unless_too_hard(UNDECIDED)
    def below_when(self, access: Access, axis: int) -> str | None:
        """For which sizes a subscript, affine or not, may be below 0, as a Python condition on sizes and integer scalars that
        may hold for more; None: for none.
        """
        system = self._with_facts(Estimates(integer_names(self.function)))
        system.add_domain(access, {})
        points = system.build(f"{system.bound(access.index[axis], {})} < 0")
        return None if points.is_empty() else python_condition(points.params().coalesce(), system)

    def _inside(self, access: Access, shape: tuple[Expr, ...], only: int | None, wraps: bool) -> bool:
        """Whether the loops that a subscript depends on keep it in its array, whatever else is known of the access. They do so
        mostly, and are few: a small set, which many accesses have in common.
        """
        for axis, form in enumerate(access.subscript):
            if form is None or only not in (None, axis):
                continue
            names, loops = set(form.names), list[For]()
            for loop in reversed(access.loops):
                if loop.var in names:
                    names |= free_names(loop.start) | free_names(loop.stop)
                    loops.append(loop)
            system = self.system()
            for loop in reversed(loops):
                system.add_loop(loop, {})
            beyond = _beyond(system, form, shape[axis], wraps)
            if beyond is not None and not system.points(beyond).is_empty():
                return False
        return True

    def _outside_when(
        self, access: Access, shape: tuple[Expr, ...], only: int | None, wraps: bool
    ) -> tuple[str, int] | None:
        system = self.system()
        system.add_domain(access, {})
        outside: list[tuple[int, tuple[str, ...]]] = []
        for axis, (form, extent) in enumerate(zip(access.subscript, shape, strict=True)):
            if form is None or only not in (None, axis):
                continue
            beyond = _beyond(system, form, extent, wraps)
            if beyond is not None:  # else the kernel itself checks it
                outside.append((axis, system.said(beyond)))
        found = _parameters_of_any(tuple(system.parameters.values()), tuple(system.dimensions.values()), tuple(outside))
        return None if found is None else (system.named(found[0]), found[1])

    @unless_too_hard(True)
    def leaves(self, access: Access, shape: tuple[Expr, ...], accepted: tuple[tuple[Access, int], ...]) -> bool:
        """Whether an affine subscript leaves its array of this shape for sizes for which those `accepted`, each an access
        to the same array and the axis in question, do not.
        """
        bad = self._outside(access, shape, range(len(shape)))
        if bad is None:
            return False
        for other, axis in accepted:
            refused = self._outside(other, shape, (axis,))
            if refused is not None:
                bad = bad.intersect_params(refused.params().complement())
                if bad.is_empty():
                    return False
        return True

    def _outside(self, access: Access, shape: tuple[Expr, ...], axes: Iterable[int]) -> islpy.Set | None:
        """The iterations in which an access leaves its array along one of these axes, None if there are none."""
        system = self.system()
        system.add_domain(access, {})
        beyond = []
        for axis in axes:
            form = access.subscript[axis]
            index, extent = None if form is None else system.text(form, {}), system.bound(shape[axis], {})
            if index is not None and extent is not None:  # else the kernel itself checks it
                beyond.append(f"{index} < 0 or {index} >= {extent}")
        points = system.build(" or ".join(beyond)) if beyond else None
        return None if points is None or points.is_empty() else points


def _beyond(system: System, form: Affine, extent: Expr, wraps: bool) -> str | None:
    """isl's text of a subscript outside its extent; None where it is none that isl can be told."""
    index, bound = system.text(form, {}), system.bound(extent, {})
    return None if index is None or bound is None else f"{index} < {f'-({bound})' if wraps else 0} or {index} >= {bound}"


def _before(
    a: Access, b: Access, system: System, rename_a: dict[str, str], rename_b: dict[str, str], apart: bool = False
) -> str:
    """isl's text of a happening before b, in other iterations of a loop around both if `apart`; "" where it never does.
    Their positions are in the same statements.
    """
    orders: list[str] = []
    equal: list[str] = []
    for own, other in zip(a.loops, b.loops, strict=False):
        if own.var != other.var:
            break
        x, y = system.dimensions[rename_a[own.var]], system.dimensions[rename_b[own.var]]
        orders.append(" and ".join([*equal, f"{x} {'<' if own.step > 0 else '>'} {y}"]))
        equal.append(f"{x} = {y}")
    if a.position < b.position and not apart:
        orders.append(" and ".join(equal) or "true")
    return " or ".join(f"({o})" for o in orders)


def _first(points: islpy.Set, count: int) -> islpy.Set:
    """A set in its first coordinates."""
    return points.project_out(islpy.dim_type.set, count, points.dim(islpy.dim_type.set) - count)


def _around(access: Access, loop: For) -> tuple[For, ...]:
    names = [f.var for f in access.loops]
    return access.loops[: names.index(loop.var)]


@lru_cache(maxsize=4096)
def _parameters_of_any(
    parameters: tuple[str, ...], dimensions: tuple[str, ...], sets: tuple[tuple[int, tuple[str, ...]], ...]
) -> tuple[str, int] | None:
    """For which parameters any of these sets, told by their constraints, has points, as a Python expression, and the number of
    the first that has; None for none. Many accesses of a program are in the same loops.
    """
    found = [(number, points) for number, lines in sets if not (points := set_of(parameters, dimensions, lines)).is_empty()]
    if not found:
        return None
    any_of = reduce(islpy.Set.union, (points for _, points in found))
    return as_python(any_of.params().coalesce(), parameters), found[0][0]
