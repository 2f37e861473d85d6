"""From a function to its schedule: nests with parallel axes outermost, and a verdict for every loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from weft.loops.accesses import Access, Nested, collect, loops_in, pairs_in, unknown_ranges
from weft.loops.affine import is_bound
from weft.loops.algebra.accumulation import accumulated
from weft.loops.algebra.counters import distinct, settle
from weft.loops.algebra.elements import elements
from weft.loops.algebra.recurrences import match_updates, told
from weft.loops.automatic.by_digits import by_digits
from weft.loops.automatic.counters import counters
from weft.loops.automatic.delayed import delays_of_states
from weft.loops.automatic.distribute import Distributed, distributions
from weft.loops.automatic.induction import close, close_one
from weft.loops.automatic.interchange import sink
from weft.loops.automatic.joins_apart import joins_apart, sums_first
from weft.loops.automatic.last_value import last_values
from weft.loops.automatic.privatize import privatizations
from weft.loops.automatic.renaming import renamings
from weft.loops.automatic.residues import residues
from weft.loops.automatic.rewriting import Rewriting
from weft.loops.automatic.rounds import rounds
from weft.loops.automatic.segments import flattened, segments
from weft.loops.automatic.skewing import skewings
from weft.loops.automatic.splitting import splittings
from weft.loops.axes import Grouping, find_axes
from weft.loops.ir import (
    Array,
    Expr,
    For,
    Function,
    If,
    Let,
    Ref,
    Stmt,
    Store,
    bound_names,
    free_names,
    has_load,
    loaded_arrays,
    statement_exprs,
    substitute,
    substitute_statements,
    walk,
)
from weft.loops.names import Names
from weft.loops.normalize import fold_subscripts, normalize, unify_sizes
from weft.loops.polyhedra import UNDECIDED, Polyhedra, Search, SearchOver, spend
from weft.loops.promote import Promoter
from weft.loops.schedule import KINDS, Kind, Nest, Requirement, Schedule, Update, Verdict
from weft.loops.show import show_expr
from weft.loops.unused import dropped, without_unread
from weft.loops.wrapping import from_end, kernel_wraps


def requirements(function: Function) -> tuple[Requirement, ...]:
    """Every affine subscript is inside its array, or gives a condition to check when the sizes are known, unless the kernel
    checks all subscripts of that array. Subscripts of what nothing uses are among them: the Python evaluates these too.
    Those that the kernel checks give one where they may be below 0 and do not count from the end yet.
    """
    polyhedra = Polyhedra(function)
    found: dict[tuple[str, str | None, str, int], Requirement] = {}
    arrays = {a.name for a in function.arrays}
    fixed = {s.name for s in function.sizes} | {s.name for s in function.scalars}
    unified = unify_sizes(function)
    normal = close(normalize(function)).function
    written, closed = collect(fold_subscripts(function).body), dict.fromkeys(collect(by_digits(normal).body))
    whole = collect(normal.body)
    plain, places = {*written, *whole}, {(a.array, a.location): a.index for a in whole}  # with no loops over digits
    answers: dict[tuple[Any, ...], tuple[str, int] | None] = {}

    def outside(access: Access, axis: int, wraps: bool = False) -> tuple[str, int] | None:
        """As `Polyhedra.outside` says, which many accesses have in common: it is asked once for all."""
        ranges = tuple((f.var, f.start, f.stop, f.step) for f in access.loops)
        key = access.array, axis, access.subscript[axis], ranges, access.guard, wraps
        if key not in answers:
            answers[key] = polyhedra.outside(access, function.array(access.array).shape, axis, wraps)
        return answers[key]

    for access in dict.fromkeys((*written, *closed)):
        if access.array in function.checked or access.array not in arrays:
            continue
        unknown = unknown_ranges(function, access)
        for axis, form in enumerate(access.subscript):
            no_sum = form is None or form.names & unknown or not form.names <= fixed | {loop.var for loop in access.loops}
            extent = function.array(access.array).shape[axis]
            if (access.array, axis) in function.sized.axes and (no_sum or not is_bound(extent, free_names(extent))):
                continue  # the call tells
            if no_sum:
                if access in closed and kernel_wraps(function, access, axis):
                    below = _below(polyhedra, access, axis)
                    found.update({} if below is None else {(below.condition, below.beyond, below.array, axis): below})
                continue  # the kernel itself checks it
            leaving = outside(access, axis)
            if leaving is not None:
                condition, _ = leaving
                sure = condition != UNDECIDED and polyhedra.certain(access)
                own = access.index if access in plain else places.get((access.array, access.location), access.index)
                index = show_expr(own[axis])
                beyond = None
                direct = (access.array, axis) in function.direct and not from_end(unified, access, axis)
                if direct and condition != UNDECIDED and polyhedra.below(access, axis):
                    still = outside(access, axis, wraps=True)
                    beyond = "False" if still is None else still[0]
                key = condition, beyond, access.array, axis
                known = found.get(key)
                if known is None or (sure and not known.sure):
                    found[key] = Requirement(
                        condition, access.array, axis, index, access.write, sure, beyond, access.location
                    )
    return tuple(found.values())


def _below(polyhedra: Polyhedra, access: Access, axis: int) -> Requirement | None:
    """That a subscript which the kernel checks is not below 0, if it may be: there it counts from the end."""
    condition = polyhedra.below_when(access, axis)
    if condition is None:
        return None
    index = show_expr(access.index[axis])
    return Requirement(condition, access.array, axis, index, access.write, False, "False", access.location)


def schedule(function: Function) -> Schedule:
    """The nests that compute a function, and the class of each of its loops."""
    return _with_states_in_memory(transformed(function))


_latest: tuple[Function, Schedule] | None = None


def transformed(function: Function) -> Schedule:
    """The same, with the loops that carry arrays still taken to run in order: what a guard may free yet."""
    global _latest
    latest = _latest
    if latest is not None and latest[0] is function:  # guards ask for what the schedule asks for next
        return latest[1]
    found = _transformed(function)
    _latest = function, found
    return found


def _transformed(function: Function) -> Schedule:
    closed = close(normalize(function))
    transforms = dict(closed.transforms)
    if function.assumption is not None:
        for var in function.assumption.loops:
            transforms[var] = (*transforms.get(var, ()), f"guard: {function.assumption.condition}")
    found, freed = _freed(settle(joins_apart(sums_first(flattened(joins_apart(by_digits(closed.function)))))))
    for var, reasons in freed.items():
        transforms[var] = (*transforms.get(var, ()), *reasons)
    return _with_transforms(found, transforms)


def _with_states_in_memory(found: Schedule) -> Schedule:
    """The schedule, with the loops left that carry arrays as what they are: each element a state of its own, or cells that
    the data choose and one operation updates.
    """
    freed: dict[str, Verdict] = {}
    nests = []
    for nest in found.nests:
        around = tuple(For(a.var, a.start, a.stop, a.step, (), ()) for a in nest.axes)
        verdicts = dict(nest.verdicts)
        for nested in loops_in(nest.body, around):
            verdict = verdicts[nested.loop.var]
            made = _carrying_arrays(found.function, nested, verdict) if verdict.kind == "sequential" else None
            if made is not None:
                verdicts[nested.loop.var] = freed[nested.loop.var] = made
        nests.append(replace(nest, verdicts=tuple(verdicts.items())))
    loops = tuple(freed[v.var] if v.kind == "sequential" and v.var in freed else v for v in found.loops)
    return replace(found, nests=tuple(nests), loops=loops)


def _carrying_arrays(function: Function, nested: Nested, verdict: Verdict) -> Verdict | None:
    """The verdict of a loop whose conflicts are states in memory; None where they are not."""
    arrays = [a.array for a, _, _ in conflicts(function, nested)]
    cells = {array: algebra for array in arrays if (algebra := accumulated(function, nested.loop, array)) is not None}
    carried = elements(function, nested.loop, [array for array in arrays if array not in cells])
    if not arrays or carried is None:
        return None
    updates, why, _ = match_updates(carried.loop)
    if why:
        return None
    requires = verdict.requires
    if carried.states:  # what the loops over the elements do is told by them alone
        updates = tuple(replace(u, parts=()) for u in updates)
        requires = (*requires, *(f"elements of {array} as values of their own" for array in carried.states.values()))
    updates += tuple(Update((f"{array}[...]",), algebra, (), False) for array, algebra in cells.items())
    return _carrying(replace(verdict, requires=requires), updates)


def _carrying(verdict: Verdict, updates: tuple[Update, ...]) -> Verdict:
    """The verdict of a loop that carries these."""
    kind: Kind = "scan" if any(u.used for u in updates) else "reduction"
    cycle = tuple(n for u in updates for n in u.names)
    return replace(verdict, kind=kind, updates=updates, why=told(updates), cycle=cycle)


# What may free a loop, in the order in which it is tried.
_TRANSFORMS: tuple[Callable[[Function, frozenset[str]], Iterator[Rewriting]], ...] = (
    segments,
    counters,
    delays_of_states,
    renamings,
    last_values,
    splittings,
    residues,
    rounds,
    skewings,
    privatizations,
)


# So many values that change together are composed as cheaply as loops that carry one each would run.
_FEW = 2
# The search for transforms ends after so many questions about accesses, a second or two of work: what is not understood by then
# runs as it stands.
_MOST_QUESTIONS = 4_000
_QUESTIONS_OF_A_STATEMENT = 3  # to promote what it carries takes as long


def _freed(function: Function) -> tuple[Schedule, dict[str, tuple[str, ...]]]:
    """The schedule after the distributions and other transforms that take a loop out of its order, or that leave it fewer
    values to carry; which loops the others freed, and what they did. Its loops are those of the function.
    """
    origin = {s.var: s.var for s in walk(function.body) if isinstance(s, For)}
    search, known = Search(_MOST_QUESTIONS), _Known()

    def judged(
        parts: Distributed, found: Schedule, origin: Mapping[str, str]
    ) -> tuple[Schedule, dict[str, Verdict], dict[str, Verdict]]:
        loops = tuple(v for v in _of_origin(found.loops, parts.origin) if v.var in origin)
        own = {v.var: v for v in loops}
        loops = _of_origin(loops, origin, told=False)
        return replace(found, loops=loops), {v.var: v for v in loops}, own

    whole = _nests(function, known)
    found, verdicts, own = judged(Distributed(function, {v.var: v.var for v in whole.loops}), whole, origin)
    transforms: dict[str, tuple[str, ...]] = {}
    with suppress(SearchOver), search.going_on():
        found, verdicts, own = judged(*_in_parts(function, whole, known), origin)
        while True:
            stuck = frozenset(var for var, v in own.items() if v.kind == "sequential")
            wide = frozenset(var for var, v in own.items() if _width(v) > _FEW)
            candidates = (made for transform in _TRANSFORMS if stuck for made in transform(function, stuck))
            for made in itertools.chain(candidates, residues(function, wide) if wide else ()):
                # a loop that a transform made is none of the function's, nor is a copy of it
                loops = origin | {new: origin[old] for new, old in made.origin.items() if old in origin}
                after, others, parts = judged(*_in_parts(made.function, _nests(made.function, known), known), loops)
                better = {var for var, v in verdicts.items() if var in others and _freer(others[var], v)}
                left = any(v.kind == "sequential" and made.origin.get(var, var) in made.frees for var, v in parts.items())
                if better and not left and _no_worse(others, verdicts):
                    function, found, verdicts, own, origin = made.function, after, others, parts, loops
                    for var in better:
                        done = [r for old, reasons in made.reasons.items() if origin.get(old) == var for r in reasons]
                        transforms[var] = (*transforms.get(var, ()), *dict.fromkeys((*made.whatever, *done)))
                    break
            else:
                break
    return found, transforms


def _width(verdict: Verdict) -> int:
    """How many values an update of a loop changes together."""
    return max((len(u.names) for u in verdict.updates), default=0)


def _freer(after: Verdict, before: Verdict) -> bool:
    """Whether a loop no longer runs in order, or carries fewer values that change together."""
    if before.kind == "sequential":
        return after.kind != "sequential"
    return after.kind == before.kind and _width(after) < _width(before)


def _with_transforms(found: Schedule, transforms: dict[str, tuple[str, ...]]) -> Schedule:
    """The schedule, with what was done to each loop (by its variable) before the analysis among what its verdict needed."""

    def told(verdict: Verdict) -> Verdict:
        return replace(verdict, requires=(*transforms.get(verdict.var, ()), *verdict.requires))

    nests = tuple(replace(n, verdicts=tuple((var, told(v)) for var, v in n.verdicts)) for n in found.nests)
    return replace(found, nests=nests, loops=tuple(map(told, found.loops)))


class _Known:
    """What a search has found out about statements: most of those of a function that it tries are the very ones of the last.

    They are known by their identity, and by what the function says of them; fresh names are taken again where they are free.
    """

    def __init__(self) -> None:
        self._groupings: dict[tuple[Any, ...], tuple[tuple[Stmt, ...], Grouping]] = {}
        self._judged: dict[tuple[Any, ...], tuple[Grouping, _Judged, frozenset[str]]] = {}

    def axes(self, function: Function, statements: tuple[Stmt, ...]) -> Grouping:
        key = (*map(id, statements), _about(function, statements))
        if key not in self._groupings:
            self._groupings[key] = statements, find_axes(function, statements)
        return self._groupings[key][1]

    def judged(self, function: Function, group: Grouping, alone: frozenset[str], names: Names) -> _Judged:
        key = id(group), _about(function, group.body), alone
        if key in self._judged:
            _, found, fresh = self._judged[key]
            if names.taken.isdisjoint(fresh):
                names.taken |= fresh
                return found
        spend(_QUESTIONS_OF_A_STATEMENT * sum(1 for _ in walk(group.body)))
        before = frozenset(names.taken)
        found = _judged(function, group, alone, names)
        self._judged[key] = group, found, frozenset(names.taken - before)
        return found


def _about(function: Function, statements: tuple[Stmt, ...]) -> Function:
    """What a function says of some statements: itself, without its own, and of arrays those alone that these touch."""
    touched = loaded_arrays(statements) | {s.array for s in walk(statements) if isinstance(s, Store)}
    arrays = tuple(a for a in function.arrays if a.name in touched)
    return replace(function, arrays=arrays, body=(), checked=function.checked & touched)


def _nests(function: Function, known: _Known) -> Schedule:
    """Group the statements into nests, find each one's parallel axes, promote carried elements, judge the loops."""
    names = Names.of(function)
    groups = _groups(function, names, known)
    touched = [{a.array for a in collect(g.body)} for g in groups]
    nests: list[Nest] = []
    verdicts: dict[str, Verdict] = {}
    for k, group in enumerate(groups):
        others = set().union(*(t for j, t in enumerate(touched) if j != k)) if len(groups) > 1 else set()
        around = _around(group)
        renamed = {loop.var: choice.first.var for choice in group.choices for loop in choice.loops}
        function = replace(
            function,
            arrays=tuple(replace(a, within=tuple(renamed.get(v, v) for v in a.within)) for a in function.arrays),
        )
        judged = known.judged(function, group, frozenset(touched[k] - others), names)
        function = _nesting(_with_arrays(function, judged.arrays), around, judged.body)
        name = function.name if len(groups) == 1 else f"{function.name}_{k + 1}"
        nests.append(Nest(name, group.axes, judged.body, judged.verdicts))
        verdicts |= dict(judged.verdicts)
        for choice in group.choices:
            for loop in choice.loops:
                verdicts[loop.var] = _parallel(function, loop, choice.loops)
    return Schedule(function, tuple(nests), _as_written(function, verdicts))


def _around(group: Grouping) -> tuple[For, ...]:
    """The axes of a group as the loops around its body."""
    return tuple(For(a.var, a.start, a.stop, a.step, (), ()) for a in group.axes)


def _nesting(function: Function, around: tuple[For, ...], body: tuple[Stmt, ...]) -> Function:
    """The function, whose arrays name the loops that they are fresh in as these loops are nested, the innermost last."""
    order = {f.var: k for k, f in enumerate((*around, *(s for s in walk(body) if isinstance(s, For))))}

    def nested(array: Array) -> Array:
        if not array.within or not order.keys() >= {*array.within}:
            return array
        return replace(array, within=tuple(sorted(array.within, key=order.__getitem__)))

    return replace(function, arrays=tuple(map(nested, function.arrays)))


@dataclass(frozen=True)
class _Judged:
    """The body of a nest with promoted elements, the arrays that it has beside the function's or instead of them, and its
    loops' verdicts.
    """

    body: tuple[Stmt, ...]
    arrays: tuple[Array, ...]
    verdicts: tuple[tuple[str, Verdict], ...]


def _with_arrays(function: Function, arrays: tuple[Array, ...]) -> Function:
    """The function with these arrays, instead of those of its own that have their names."""
    own = {a.name: a for a in function.arrays} | {a.name: a for a in arrays}
    return replace(function, arrays=tuple(own.values()))


def _judged(function: Function, group: Grouping, alone: frozenset[str], names: Names) -> _Judged:
    """A nest, judged; loops that add up in arrays moved inside."""
    around = _around(group)

    def judge(
        statements: tuple[Stmt, ...], function: Function = function
    ) -> tuple[Function, tuple[Stmt, ...], dict[str, Verdict]]:
        own = _nesting(function, around, statements)
        promoter = Promoter(own, around, alone, names)
        body = promoter.run(statements)
        own = dropped(replace(promoter.function, body=body), around, names)
        made = tuple(dict.fromkeys(f"scalar replacement of {p.array}: {p.what}" for p in promoter.made))
        own, body = replace(own, body=function.body), own.body
        return own, body, {inner.loop.var: _judge(own, inner, made) for inner in loops_in(body, around)}

    kept, body, verdicts = judge(group.body)
    stuck = frozenset(v.var for v in verdicts.values() if v.kind == "sequential")
    if stuck:

        def free(loop: For, loops: tuple[For, ...]) -> bool:
            return memory_conflict(function, Nested(loop, loops, ())) is None

        swapped = sink(group.body, around, stuck, free)
        whole, other, after = judge(swapped) if swapped != group.body else (kept, body, verdicts)
        moved = {var for var in stuck & after.keys() if after[var].kind != "sequential"}
        if moved and _no_worse(after, verdicts):
            kept, body, verdicts = whole, other, dict(after)
            for var in moved:
                requires = ("interchange: moved into the loop in it", *verdicts[var].requires)
                verdicts[var] = replace(verdicts[var], requires=requires)
    stuck = frozenset(v.var for v in verdicts.values() if v.kind == "sequential")
    promoted = {c.name for s in walk(body) if isinstance(s, For) and s.var in stuck for c in s.carries}
    if promoted:  # an element that is overwritten unread is told by the iteration that does it
        closed, reasons = _closed(kept, around, body, frozenset(promoted))
        if reasons:
            whole, other, after = judge(closed, kept)
            if _no_worse(after, verdicts) and any(after[var].kind != "sequential" for var in stuck & after.keys()):
                kept, body, verdicts = whole, other, dict(after)
                for var in stuck & after.keys() & reasons.keys():
                    verdicts[var] = replace(verdicts[var], requires=(*reasons[var], *verdicts[var].requires))
    known = set(function.arrays)
    body = without_unread(kept, around, body, alone)
    return _Judged(body, tuple(a for a in kept.arrays if a not in known), tuple(verdicts.items()))


def _closed(
    function: Function, around: tuple[For, ...], body: tuple[Stmt, ...], names: frozenset[str]
) -> tuple[tuple[Stmt, ...], dict[str, tuple[str, ...]]]:
    """The body of a nest without those of these carries that have a closed form, and what was done to its loops."""
    for loop in reversed(around):
        body = (replace(loop, body=body),)
    closed = close_one(replace(function, body=body), names)
    body = closed.function.body
    for _ in around:
        (inner,) = body
        assert isinstance(inner, For)
        body = inner.body
    return body, closed.transforms


def _no_worse(after: Mapping[str, Verdict], before: Mapping[str, Verdict]) -> bool:
    """Whether every loop is at least as free as it was; one that is gone has no effect."""
    return all(
        KINDS.index(after[var].kind) <= KINDS.index(verdict.kind) for var, verdict in before.items() if var in after
    )


def _in_parts(function: Function, found: Schedule, known: _Known) -> tuple[Distributed, Schedule]:
    """The function and its schedule after the distributions that take a loop out of its order."""
    origin = {v.var: v.var for v in found.loops}
    while stuck := frozenset(v.var for v in found.loops if v.kind == "sequential"):
        for distributed in distributions(function, stuck):
            after = _nests(distributed.function, known)
            whole = {var: origin[own] for var, own in distributed.origin.items()}
            old, new = ({v.var: v for v in _of_origin(s.loops, o)} for s, o in ((found, origin), (after, origin | whole)))
            if any(new[v].kind != old[v].kind for v in new) and _no_worse(new, old):
                function, found, origin = distributed.function, after, origin | whole
                break
        else:
            break
    return Distributed(function, origin), found


def _of_origin(verdicts: tuple[Verdict, ...], origin: Mapping[str, str], told: bool = True) -> tuple[Verdict, ...]:
    """The verdicts of loops as they were before they were taken apart: the least free part decides.

    told: it was distribution that took them apart, which is told among what a verdict needed.
    """
    parts: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        parts.setdefault(origin.get(verdict.var, verdict.var), []).append(verdict)
    out = []
    for var, own in parts.items():
        worst = max(own, key=lambda v: KINDS.index(v.kind))
        parted = (f"distribution: in {len(own)} loops",) if told and len(own) > 1 else ()
        out.append(replace(worst, var=var, requires=(*parted, *worst.requires)))
    return tuple(out)


def _as_written(function: Function, verdicts: dict[str, Verdict]) -> tuple[Verdict, ...]:
    """The verdicts of the function's loops in textual order; a loop that was optimised away is parallel."""
    out = []
    for loop in walk(function.body):
        if isinstance(loop, For):
            out.append(
                verdicts.get(loop.var, Verdict(loop.var, "parallel", why="it has no effect", location=loop.location))
            )
    return tuple(out)


def _self_contained(function: Function, items: list[tuple[Stmt, ...]], names: Names) -> list[tuple[Stmt, ...]]:
    """Each group of statements with scalars of its own where it uses those that sizes and arguments alone decide."""
    known = {s.name for s in function.sizes} | {s.name for s in function.scalars}
    steady: dict[str, Let] = {}
    out: list[tuple[Stmt, ...]] = []
    for item in items:
        own = {n for s in item for n in bound_names(s)}
        needed = {n for s in walk(item) for e in statement_exprs(s) for n in free_names(e)} - own
        for let in reversed(list(steady.values())):
            if let.name in needed:
                needed |= free_names(let.value)
        again = [let for name, let in steady.items() if name in needed]
        fresh: dict[str, Expr] = {let.name: Ref(names.fresh(let.name), let.value.type) for let in again}
        lets = [replace(let, name=fresh[let.name].name, value=substitute(let.value, fresh)) for let in again]  # type: ignore[union-attr]
        for s in item:
            if isinstance(s, Let) and not has_load(s.value) and free_names(s.value) <= known | steady.keys():
                steady[s.name] = s
        out.append((*lets, *(substitute_statements(item, fresh) if fresh else item)))
    return out


def _groups(function: Function, names: Names, known: _Known) -> list[Grouping]:
    """Consecutive statements that share their parallel axes, as few groups as that allows."""
    items: list[tuple[Stmt, ...]] = []
    pending: list[Stmt] = []
    for stmt in function.body:
        pending.append(stmt)
        if not isinstance(stmt, Let):
            items.append(tuple(pending))
            pending = []
    if pending and items:
        items[-1] = (*items[-1], *pending)
    items = _self_contained(function, items, names)
    alone = [known.axes(function, item) for item in items]
    groups: list[tuple[tuple[Stmt, ...], Grouping]] = []
    for k, (item, own) in enumerate(zip(items, alone, strict=True)):
        if groups:
            before, grouping = groups[-1]
            defined = {n for s in before for n in bound_names(s)}
            later = [s for rest in items[k:] for s in rest]
            tied = any(free_names(e) & defined for s in walk(tuple(later)) for e in statement_exprs(s))
            union = known.axes(function, (*before, *item))
            fewest = min(len(grouping.axes), len(own.axes))
            together = len(union.axes) == fewest and _outermost(union, grouping) and _outermost(union, own)
            together = together and not _rare((*before, *item)) and not (fewest == 0 and _feeds(before, item))
            together = together and not any(isinstance(s, For) and s.apart for s in item)
            if tied or (together and (fewest > 0 or not (grouping.axes or own.axes))):
                groups[-1] = ((*before, *item), union)
                continue
        groups.append((item, own))
    return [grouping for _, grouping in groups]


def _rare(statements: tuple[Stmt, ...]) -> bool:
    """Whether some of the statements run for inputs that nobody expects: the others are not to be held up by them."""
    return any(isinstance(s, If) and s.rare for s in statements)


def _feeds(before: tuple[Stmt, ...], item: tuple[Stmt, ...]) -> bool:
    """Whether loops find what other loops have stored: one kernel of both would have to do them in order."""
    stored = {s.array for f in before if isinstance(f, For) for s in walk(f.body) if isinstance(s, Store)}
    return bool(stored & loaded_arrays(tuple(s for s in item if isinstance(s, For))))


def _outermost(union: Grouping, part: Grouping) -> bool:
    """Whether the axes of a union are the outermost ones that a part of it has by itself: none is lost to another."""
    for whole, own in zip(union.choices, part.choices, strict=False):
        if not {f.var for f in own.loops} <= {f.var for f in whole.loops}:
            return False
    return True


def _parallel(function: Function, loop: For, fused: tuple[For, ...]) -> Verdict:
    requires = []
    if _depth(function.body, loop.var) > 0:
        requires.append("interchange: moved outermost")
    if len(fused) > 1:
        requires.append("fusion: " + ", ".join(f.var for f in fused))
    why = "no two iterations touch the same element with a write among them"
    return Verdict(loop.var, "parallel", why=why, requires=tuple(requires), location=loop.location)


def _depth(statements: tuple[Stmt, ...], var: str) -> int:
    """How many loops that carry something, or are no axis, lie around a loop; -1 if it is not there."""
    for stmt in statements:
        if isinstance(stmt, For):
            if stmt.var == var:
                return 0
            inner = _depth(stmt.body, var)
            if inner >= 0:
                return inner + 1
    return -1


Conflict = tuple[Access, Access, str]


def memory_conflict(function: Function, nested: Nested) -> Conflict | None:
    """Two accesses in different iterations of a loop that touch one element, one of them writing, and the witness."""
    return next(conflicts(function, nested), None)


def conflicts(function: Function, nested: Nested) -> Iterator[Conflict]:
    """The first conflict of each array."""
    polyhedra = Polyhedra(function)
    found: set[str] = set()
    for a, b, within in pairs_in(function, nested):
        if a.array not in found:
            witness = polyhedra.carried(a, b, nested.loop, within)
            if witness is not None and not distinct(nested.loop, a, b):
                found.add(a.array)
                yield a, b, str(witness)


def _judge(function: Function, nested: Nested, transforms: tuple[str, ...]) -> Verdict:
    loop = nested.loop
    location = loop.location
    conflict = memory_conflict(function, nested)
    if conflict is not None:
        a, b, witness = conflict
        kinds = {
            (True, False): "written, then read",
            (False, True): "read, then written",
            (True, True): "written twice",
        }
        why = f"an element of {a.array} is {kinds[a.write, b.write]} in {witness}"
        return Verdict(loop.var, "sequential", why=why, cycle=(a.array,), requires=transforms, location=location)
    updates, why, cycle = match_updates(loop)
    if why:
        return Verdict(loop.var, "sequential", why=why, cycle=cycle, requires=transforms, location=location)
    if not updates:
        why = "no two iterations touch the same element with a write among them"
        return Verdict(loop.var, "parallel", why=why, location=location)
    return _carrying(Verdict(loop.var, "reduction", requires=transforms, location=location), updates)
