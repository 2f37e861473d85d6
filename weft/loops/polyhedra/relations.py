"""Relations between the iterations of two accesses: which reads a write reaches, and how far apart they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce

import islpy

from weft.loops.accesses import Access
from weft.loops.ir import Expr, For, Function
from weft.loops.polyhedra.patience import TooHard, patient
from weft.loops.polyhedra.questions import Polyhedra
from weft.loops.polyhedra.systems import System, Witness, coordinates, integer_names, python_condition, sampled


@dataclass(frozen=True)
class Touch:
    """An access as isl sees it: the element that each of its iterations touches.

    time: when it happens, as counters of the text: where each loop around it is entered, then its own place.
    exact: nothing was left out, so that it happens in all these iterations.
    """

    access: Access
    time: tuple[int, ...]
    elements: islpy.Map
    exact: bool

    @property
    def loops(self) -> tuple[For, ...]:
        return self.access.loops


@dataclass(frozen=True)
class Relation:
    """Pairs of iterations of two accesses, the first before the second, for some values of the parameters."""

    parameters: tuple[str, ...]
    context: islpy.Set  # what always holds of the parameters
    first: tuple[For, ...]
    second: tuple[For, ...]
    pairs: islpy.Map

    @property
    def common(self) -> tuple[For, ...]:
        """The loops around both, outermost first."""
        shared = [a for a, b in zip(self.first, self.second, strict=False) if a.var == b.var]
        return tuple(shared)

    def __bool__(self) -> bool:
        return not self.pairs.is_empty()

    def __or__(self, other: Relation) -> Relation:
        return replace(self, pairs=self.pairs.union(other.pairs).coalesce())

    def possible_when(self, other: Relation) -> bool:
        """Whether wherever there are pairs of this one there are pairs of the other."""
        return bool(self.pairs.params().is_subset(other.pairs.params()))

    def carried(self, level: int | None) -> Relation:
        """The pairs that the common loop number `level` carries; None: those in one iteration of all of them."""
        steps = tuple(loop.step > 0 for loop in self.common)
        return replace(self, pairs=self.pairs.intersect(_order(len(self.first), len(self.second), steps, level)))

    def apart(self, vector: Sequence[int | str]) -> Relation:
        """The pairs at these distances: numbers, "<" for any that is positive, "*" for all."""
        lines = []
        for k, (distance, loop) in enumerate(zip(vector, self.common, strict=True)):
            difference = f"y{k} - x{k}" if loop.step > 0 else f"x{k} - y{k}"
            lines += {"<": [f"{difference} > 0"], "*": []}.get(str(distance), [f"{difference} = {distance}"])
        return replace(self, pairs=self.pairs.intersect(_between(len(self.first), len(self.second), lines)))

    def distance(self) -> tuple[int | str, ...]:
        """How far each common loop moves, in values of its variable along its direction: a number where it is constant,
        else its sign: "<" positive (the first iteration comes before the second), ">" negative, "<=", ">=", "*" any.
        """
        if not self.common:
            return ()
        count = self.pairs.dim(islpy.dim_type.param)
        apart = self.pairs.wrap().apply(_differences(len(self.first), len(self.second), len(self.common)))
        apart = apart.project_out(islpy.dim_type.param, 0, count)
        found: list[int | str] = []
        for k, loop in enumerate(self.common):
            low, high = apart.dim_min_val(k), apart.dim_max_val(k)
            if loop.step < 0:
                low, high = high.neg(), low.neg()
            found.append(_span(low, high))
        return tuple(found)

    def condition(self, but: Iterable[str] = ()) -> str | None:
        """For which parameters there are pairs, as a Python expression; None: for all.

        but: parameters that may be chosen so that there are pairs, as sizes that are large enough.
        """
        left_out = set(but)
        if left_out.issuperset(self.parameters):
            return None
        needed, context = self.pairs.params(), self.context
        for name in reversed(self.parameters):
            if name in left_out:
                at = self.parameters.index(name)
                needed = needed.project_out(islpy.dim_type.param, at, 1)
                context = context.project_out(islpy.dim_type.param, at, 1)
        needed = needed.gist(context).coalesce()
        if needed.plain_is_universe() or context.is_subset(needed):
            return None
        needed = needed.align_params(self.context.get_space())
        text = python_condition(needed, System(self.parameters)).replace("  ", " ")
        return re.sub(r"<= -1\b", "< 0", re.sub(r">= 1\b", "> 0", text))

    def witness(self) -> Witness:
        """One of the pairs, with the smallest parameters, without those that do not matter."""
        values = sampled(self.pairs.wrap().flatten())
        names = self.parameters, [loop.var for loop in self.first], [loop.var for loop in self.second]
        cut = len(names[0]), len(names[0]) + len(names[1])
        parts = values[: cut[0]], values[cut[0] : cut[1]], values[cut[1] :]
        sizes, first, second = (tuple(zip(n, v, strict=True)) for n, v in zip(names, parts, strict=True))
        beyond = self.pairs.gist_params(self.context)
        sizes = tuple(s for k, s in enumerate(sizes) if beyond.involves_dims(islpy.dim_type.param, k, 1))
        return Witness(sizes, first, second)


class Relations:
    """The accesses of one function as relations. An access with an empty subscript stands for its statement."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.polyhedra = Polyhedra(function)
        self.parameters = tuple(integer_names(function))
        self.context = self.polyhedra.system().build().params()

    def touch(self, access: Access, time: tuple[int, ...]) -> Touch:
        system = self.polyhedra.system()
        system.add_domain(access, {})
        # a fresh array for every iteration of a loop is told apart by that loop's variable
        fresh: tuple[str, ...] = ()
        if access.array:
            fresh = tuple(system.dimensions[var] for var in self.function.array(access.array).within)
        index = [None if form is None else system.text(form, {}) for form in access.subscript]
        exact = system.exact and None not in index
        return Touch(access, time, system.build_map([*fresh, *index]), exact)

    def meetings(self, first: Touch, second: Touch) -> Relation:
        """The iterations of two accesses that touch the same element, in any order."""
        pairs = first.elements.apply_range(second.elements.reverse())
        return Relation(self.parameters, self.context, first.loops, second.loops, pairs)

    def at_ends(self, relation: Relation, last: frozenset[str], first: frozenset[str]) -> Relation:
        """The pairs whose first iteration is the last one of some loops, and whose second is the first one of others."""
        pairs = relation.pairs
        for k, loop in enumerate(relation.first):
            if loop.var in last:
                pairs = pairs.intersect_domain(self._end(relation.first, k, latest=True))
        for k, loop in enumerate(relation.second):
            if loop.var in first:
                pairs = pairs.intersect_range(self._end(relation.second, k, latest=False))
        return replace(relation, pairs=pairs)

    def _end(self, loops: tuple[For, ...], level: int, latest: bool) -> islpy.Set:
        """The iterations that are the first, or the last, of the loop number `level`."""
        system = self.polyhedra.system()
        for loop in loops[: level + 1]:
            system.add_loop(loop, {})
        every = system.build()
        later = _order(level + 1, level + 1, tuple(loop.step > 0 for loop in loops[: level + 1]), level)
        ends = every.subtract(every.apply(later.reverse() if latest else later))
        return ends.insert_dims(islpy.dim_type.set, level + 1, len(loops) - level - 1)

    def before(self, first: Touch, second: Touch) -> Relation:
        """The iterations of two accesses that touch the same element in this order."""
        met = self.meetings(first, second)
        ordered = [met.carried(level) for level in range(len(met.common))]
        if first.time[len(met.common)] < second.time[len(met.common)]:
            ordered.append(met.carried(None))
        return replace(met, pairs=reduce(islpy.Map.union, (r.pairs for r in ordered), met.pairs.subtract(met.pairs)))

    def covers(self, read: Touch, relations: Iterable[Relation]) -> bool:
        """Whether every iteration of a read is the second one of a pair of these."""
        missing = read.elements.domain()
        for relation in relations:
            missing = missing.subtract(relation.pairs.range())
        return bool(missing.is_empty())

    def timed(self, loops: tuple[For, ...], time: Sequence[Expr]) -> islpy.Map | None:
        """From the iterations of these loops to when they happen: integer expressions in their variables, compared one
        after another. None where isl cannot be told one.
        """
        system = self.polyhedra.system()
        for loop in loops:
            system.dimension(loop.var)
        texts = [system.bound(e, {}) for e in time]
        return None if None in texts else system.build_map(texts)

    def overtaken(self, relation: Relation, first: islpy.Map, second: islpy.Map) -> Relation:
        """The pairs whose second iteration happens before the first one, at the times that `timed` gave."""
        return replace(relation, pairs=relation.pairs.intersect(first.lex_gt_map(second)))

    def moved(self, relation: Relation, first: islpy.Map, second: islpy.Map, places: Sequence[int]) -> tuple[int | str, ...]:
        """How far the pairs are apart at these places of their times, as `Relation.distance` tells it."""
        apart = relation.pairs.apply_domain(first).apply_range(second).deltas()
        apart = apart.project_out(islpy.dim_type.param, 0, apart.dim(islpy.dim_type.param))
        return tuple(_span(apart.dim_min_val(k), apart.dim_max_val(k)) for k in places)

    def flow(self, touches: Sequence[Touch]) -> dict[tuple[int, int], tuple[Relation, bool]]:
        """The writes from which each read may have its value: (place of a write, place of a read) -> the iterations, and
        whether surely all of them. A write that surely happens hides those before it.
        """
        flows: dict[tuple[int, int], tuple[Relation, bool]] = {}
        for array in dict.fromkeys(t.access.array for t in touches):
            writes = [k for k, t in enumerate(touches) if t.access.array == array and t.access.write]
            steps = {(j, k): self.before(touches[j], touches[k]) for j in writes for k in writes if touches[k].exact}
            for k, read in enumerate(touches):
                if read.access.write or read.access.array != array:
                    continue
                exact = read.exact and all(touches[j].exact for j in writes)
                reaching = {j: self.before(touches[j], read) for j in writes}
                for j, relation in reaching.items():
                    hidden = [(steps[j, m].pairs, reaching[m].pairs) for m in writes if touches[m].exact]
                    pairs = _unhidden(relation.pairs, hidden)
                    flows[j, k] = (relation, False) if pairs is None else (replace(relation, pairs=pairs), exact)
        return flows


def _unhidden(pairs: islpy.Map, detours: Sequence[tuple[islpy.Map, islpy.Map]]) -> islpy.Map | None:
    """The pairs between which none of the detours leads; None where that is too hard to tell."""
    try:
        with patient():
            for there, back in detours:
                if pairs.is_empty():
                    break
                pairs = pairs.subtract(there.apply_range(back)).coalesce()
    except TooHard:
        return None
    return pairs


def _span(low: islpy.Val, high: islpy.Val) -> int | str:
    """Numbers from `low` to `high`: the number where it is one, else their sign as `Relation.distance` tells it."""
    if low.eq(high):
        return int(low.to_python())
    if low.is_nonneg():
        return "<" if low.is_pos() else "<="
    if high.is_nonpos():
        return ">" if high.is_neg() else ">="
    return "*"


@cache
def _order(first: int, second: int, steps: tuple[bool, ...], level: int | None) -> islpy.Map:
    """Iterations that agree in the common loops before `level` and in order there. steps: whether each counts upwards."""
    lines = [f"x{k} = y{k}" for k in range(len(steps) if level is None else level)]
    if level is not None:
        lines.append(f"x{level} {'<' if steps[level] else '>'} y{level}")
    return _between(first, second, lines)


def _between(first: int, second: int, lines: Sequence[str]) -> islpy.Map:
    holds = " and ".join(lines) or "true"
    return islpy.Map(f"{{ {coordinates('x', first)} -> {coordinates('y', second)} : {holds} }}")


@cache
def _differences(first: int, second: int, common: int) -> islpy.Map:
    """From a pair of iterations to how far the variables of the common loops are apart."""
    apart = ", ".join(f"y{k} - x{k}" for k in range(common))
    return islpy.Map(f"{{ [{coordinates('x', first)} -> {coordinates('y', second)}] -> [{apart}] }}")
