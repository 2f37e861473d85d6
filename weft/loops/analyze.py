"""From a function to its schedule: nests with parallel axes outermost, and a verdict for every loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from weft.loops.accesses import Access, Guard, collect, unknown_ranges
from weft.loops.axes import Grouping, find_axes
from weft.loops.distribute import Distributed, distributions
from weft.loops.induction import close
from weft.loops.interchange import sink
from weft.loops.ir import (
    For,
    Function,
    Let,
    Stmt,
    Store,
    bound_names,
    free_names,
    statement_exprs,
    walk,
)
from weft.loops.names import Names
from weft.loops.normalize import drop_unused, fold_subscripts, normalize
from weft.loops.polyhedra import Polyhedra
from weft.loops.promote import Promoter
from weft.loops.recurrences import WORDS, match_updates
from weft.loops.renaming import renamings
from weft.loops.schedule import KINDS, Nest, Requirement, Schedule, Verdict
from weft.loops.show import show_expr


def requirements(function: Function) -> tuple[Requirement, ...]:
    """Every affine subscript is inside its array, or gives a condition to check when the sizes are known.

    Subscripts of what nothing uses are among them, since the Python evaluates these too.
    """
    polyhedra = Polyhedra(function)
    found: dict[tuple[str, str, int], Requirement] = {}
    for access in dict.fromkeys((*collect(fold_subscripts(function).body), *collect(close(normalize(function)).function.body))):
        shape = function.array(access.array).shape
        unknown = unknown_ranges(function, access)
        for axis, form in enumerate(access.subscript):
            if form is None or form.names & unknown:
                continue  # the kernel itself checks it
            outside = polyhedra.outside(access, shape, axis)
            if outside is not None:
                condition, _ = outside
                index = show_expr(access.index[axis])
                requirement = Requirement(condition, access.array, axis, index, access.write, access.location)
                found.setdefault((condition, access.array, axis), requirement)
    return tuple(found.values())


def schedule(function: Function) -> Schedule:
    """The nests that compute a function, and the class of each of its loops."""
    closed = close(normalize(function))
    transforms = dict(closed.transforms)
    if function.assumption is not None:
        for var in function.assumption.loops:
            transforms[var] = (*transforms.get(var, ()), f"guard: {function.assumption.condition}")
    found, freed = _freed(closed.function)
    for var, reasons in freed.items():
        transforms[var] = (*transforms.get(var, ()), *reasons)
    return _with_transforms(found, transforms)


def _freed(function: Function) -> tuple[Schedule, dict[str, tuple[str, ...]]]:
    """The schedule after the distributions and renamings that take a loop out of its order; which loops a renaming freed,
    and its reason. Its loops are those of the function.
    """
    own = {s.var for s in walk(function.body) if isinstance(s, For)}

    def analysed(renamed: Function) -> tuple[Schedule, dict[str, Verdict]]:
        parts, found = _in_parts(renamed, _nests(renamed))
        loops = tuple(v for v in _of_origin(found.loops, parts.origin) if v.var in own)
        return replace(found, loops=loops), {v.var: v for v in loops}

    found, verdicts = analysed(function)
    transforms: dict[str, tuple[str, ...]] = {}
    while stuck := frozenset(v.var for v in found.loops if v.kind == "sequential"):
        for renaming in renamings(function, stuck):
            after, others = analysed(renaming.function)
            freed = {var for var in stuck if others[var].kind != "sequential"}
            if freed and _no_worse(others, verdicts):
                function, found, verdicts = renaming.function, after, others
                for var in freed:
                    transforms[var] = (*transforms.get(var, ()), *renaming.reasons(var))
                break
        else:
            break
    return found, transforms


def _with_transforms(found: Schedule, transforms: dict[str, tuple[str, ...]]) -> Schedule:
    """The schedule, with what was done to each loop (by its variable) before the analysis among what its verdict needed."""

    def told(verdict: Verdict) -> Verdict:
        return replace(verdict, requires=(*transforms.get(verdict.var, ()), *verdict.requires))

    nests = tuple(replace(n, verdicts=tuple((var, told(v)) for var, v in n.verdicts)) for n in found.nests)
    return replace(found, nests=nests, loops=tuple(map(told, found.loops)))


def _nests(function: Function) -> Schedule:
    """Group the statements into nests, find each one's parallel axes, promote carried elements, judge the loops."""
    groups = _groups(function)
    touched = [{a.array for a in collect(g.body)} for g in groups]
    names = Names.of(function)
    nests: list[Nest] = []
    verdicts: dict[str, Verdict] = {}
    for k, group in enumerate(groups):
        others = set().union(*(t for j, t in enumerate(touched) if j != k)) if len(groups) > 1 else set()
        around = tuple(For(a.var, a.start, a.stop, a.step, (), ()) for a in group.axes)
        renamed = {loop.var: choice.first.var for choice in group.choices for loop in choice.loops}
        function = replace(
            function,
            arrays=tuple(replace(a, within=tuple(renamed.get(v, v) for v in a.within)) for a in function.arrays),
        )
        body, judged = _judged(function, group, around, frozenset(touched[k] - others), names)
        name = function.name if len(groups) == 1 else f"{function.name}_{k + 1}"
        nests.append(Nest(name, group.axes, body, judged))
        verdicts |= dict(judged)
        for choice in group.choices:
            for loop in choice.loops:
                verdicts[loop.var] = _parallel(function, loop, choice.loops)
    return Schedule(function, tuple(nests), _as_written(function, verdicts))


def _judged(
    function: Function, group: Grouping, around: tuple[For, ...], alone: frozenset[str], names: Names
) -> tuple[tuple[Stmt, ...], tuple[tuple[str, Verdict], ...]]:
    """The body of a nest with promoted elements, and its loops' verdicts; loops that add up in arrays moved inside."""

    def judge(statements: tuple[Stmt, ...]) -> tuple[tuple[Stmt, ...], dict[str, Verdict]]:
        promoter = Promoter(function, around, alone, names)
        body = drop_unused(promoter.run(statements))
        made = tuple(dict.fromkeys(f"scalar replacement of {p.array}: {p.what}" for p in promoter.made))
        return body, {inner.loop.var: _judge(function, inner, made, group) for inner in _nested(body, around)}

    body, verdicts = judge(group.body)
    stuck = frozenset(v.var for v in verdicts.values() if v.kind == "sequential")
    if stuck:
        swapped = sink(group.body, around, stuck, lambda loop, loops: memory_conflict(function, loop, loops) is None)
        other, after = judge(swapped) if swapped != group.body else (body, verdicts)
        moved = {var for var in stuck & after.keys() if after[var].kind != "sequential"}
        if moved and _no_worse(after, verdicts):
            body, verdicts = other, dict(after)
            for var in moved:
                requires = ("interchange: moved into the loop in it", *verdicts[var].requires)
                verdicts[var] = replace(verdicts[var], requires=requires)
    return body, tuple(verdicts.items())


def _no_worse(after: Mapping[str, Verdict], before: Mapping[str, Verdict]) -> bool:
    """Whether every loop is at least as free as it was; one that is gone has no effect."""
    return all(
        KINDS.index(after[var].kind) <= KINDS.index(verdict.kind) for var, verdict in before.items() if var in after
    )


def _in_parts(function: Function, found: Schedule) -> tuple[Distributed, Schedule]:
    """The function and its schedule after the distributions that take a loop out of its order."""
    origin = {v.var: v.var for v in found.loops}
    while stuck := frozenset(v.var for v in found.loops if v.kind == "sequential"):
        for distributed in distributions(function, stuck):
            after = _nests(distributed.function)
            whole = {var: origin[own] for var, own in distributed.origin.items()}
            old, new = ({v.var: v for v in _of_origin(s.loops, o)} for s, o in ((found, origin), (after, origin | whole)))
            if any(new[v].kind != old[v].kind for v in new) and _no_worse(new, old):
                function, found, origin = distributed.function, after, origin | whole
                break
        else:
            break
    return Distributed(function, origin), found


def _of_origin(verdicts: tuple[Verdict, ...], origin: Mapping[str, str]) -> tuple[Verdict, ...]:
    """The verdicts of loops as they were before they were distributed: the least free part decides."""
    parts: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        parts.setdefault(origin.get(verdict.var, verdict.var), []).append(verdict)
    out = []
    for var, own in parts.items():
        worst = max(own, key=lambda v: KINDS.index(v.kind))
        told = (f"distribution: in {len(own)} loops", *worst.requires) if len(own) > 1 else worst.requires
        out.append(replace(worst, var=var, requires=told))
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


def _groups(function: Function) -> list[Grouping]:
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
    alone = [find_axes(function, item) for item in items]
    groups: list[tuple[tuple[Stmt, ...], Grouping]] = []
    for k, (item, own) in enumerate(zip(items, alone, strict=True)):
        if groups:
            before, grouping = groups[-1]
            defined = {n for s in before for n in bound_names(s)}
            later = [s for rest in items[k:] for s in rest]
            tied = any(free_names(e) & defined for s in walk(tuple(later)) for e in statement_exprs(s))
            union = find_axes(function, (*before, *item))
            fewest = min(len(grouping.axes), len(own.axes))
            together = len(union.axes) == fewest and _outermost(union, grouping) and _outermost(union, own)
            if tied or (together and (fewest > 0 or not (grouping.axes or own.axes))):
                groups[-1] = ((*before, *item), union)
                continue
        groups.append((item, own))
    return [grouping for _, grouping in groups]


def _outermost(union: Grouping, part: Grouping) -> bool:
    """Whether the axes of a union are the outermost ones that a part of it has by itself: none is lost to another."""
    for whole, own in zip(union.choices, part.choices, strict=False):
        if not {f.var for f in own.loops} <= {f.var for f in whole.loops}:
            return False
    return True


@dataclass(frozen=True)
class _Nested:
    """A loop with the loops around it, and what must hold for it to run."""

    loop: For
    loops: tuple[For, ...]
    guard: Guard


def _nested(statements: tuple[Stmt, ...], loops: tuple[For, ...], guard: Guard = ()) -> list[_Nested]:
    """All loops of some statements."""
    out: list[_Nested] = []
    for stmt in statements:
        match stmt:
            case For():
                out.append(_Nested(stmt, loops, guard))
                out += _nested(stmt.body, (*loops, stmt), guard)
            case Let() | Store():
                pass
            case _:
                for body, holds in ((stmt.then, True), (stmt.orelse, False)):
                    out += _nested(body, loops, (*guard, (stmt.condition, holds)))
    return out


def _parallel(function: Function, loop: For, fused: tuple[For, ...]) -> Verdict:
    requires = []
    if _depth(function.body, loop.var) > 0:
        requires.append("interchange: moved outermost")
    if len(fused) > 1:
        requires.append("fusion: " + ", ".join(f.var for f in fused))
    why = "no two iterations touch the same element with a write among them"
    return Verdict(loop.var, "parallel", why=why, requires=tuple(requires), location=loop.location)


def _depth(statements: tuple[Stmt, ...], var: str, depth: int = 0) -> int:
    """How many loops that carry something, or are no axis, lie around a loop; -1 if it is not there."""
    for stmt in statements:
        if isinstance(stmt, For):
            if stmt.var == var:
                return 0
            inner = _depth(stmt.body, var)
            if inner >= 0:
                return inner + 1
    return -1


def memory_conflict(
    function: Function, loop: For, loops: tuple[For, ...], guard: Guard = ()
) -> tuple[Access, Access, str] | None:
    """Two accesses in different iterations of a loop that touch one element, one of them writing, and the witness."""
    polyhedra = Polyhedra(function)
    accesses = collect((loop,), loops, guard)
    accesses = tuple(a for a in accesses if any(f.var == loop.var for f in a.loops))
    written = {a.array for a in accesses if a.write}
    for i, a in enumerate(accesses):
        for b in accesses[i:]:
            if a.array == b.array and a.array in written and (a.write or b.write):
                within = frozenset(function.array(a.array).within)
                if loop.var in within:
                    continue
                witness = polyhedra.carried(a, b, loop, within)
                if witness is not None:
                    return a, b, str(witness)
    return None


def _judge(function: Function, nested: _Nested, transforms: tuple[str, ...], group: Grouping) -> Verdict:
    loop = nested.loop
    conflict = memory_conflict(function, loop, nested.loops, nested.guard)
    location = loop.location
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
    names = ", ".join(f"{u.name} by {WORDS[u.algebra]}" for u in updates)
    kind = "scan" if any(u.used for u in updates) else "reduction"
    what = "every value is used" if kind == "scan" else "only the last value is used"
    cycle = tuple(u.name for u in updates)
    return Verdict(loop.var, kind, updates, f"it carries {names}; {what}", cycle, transforms, location=location)  # type: ignore[arg-type]
