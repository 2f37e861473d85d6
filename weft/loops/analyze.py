"""From a function to its schedule: nests with parallel axes outermost, and a verdict for every loop."""

from __future__ import annotations

from dataclasses import replace

from weft.loops.accesses import Access, collect
from weft.loops.affine import is_bound
from weft.loops.axes import Grouping, find_axes
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
from weft.loops.normalize import drop_unused, fold_subscripts, normalize
from weft.loops.polyhedra import Polyhedra
from weft.loops.promote import Names, Promoter
from weft.loops.recurrences import WORDS, match_updates
from weft.loops.schedule import Nest, Requirement, Schedule, Verdict
from weft.loops.show import show_expr


def requirements(function: Function) -> tuple[Requirement, ...]:
    """Every affine subscript is inside its array, or gives a condition to check when the sizes are known.

    Subscripts of what nothing uses are among them, since the Python evaluates these too.
    """
    polyhedra = Polyhedra(function)
    found: dict[tuple[str, str, int], Requirement] = {}
    for access in dict.fromkeys((*collect(fold_subscripts(function).body), *collect(normalize(function).body))):
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


def unknown_ranges(function: Function, access: Access) -> set[str]:
    """The loops around an access whose bounds data decide."""
    known = {s.name for s in function.sizes} | {s.name for s in function.scalars}
    unknown = set()
    for loop in access.loops:
        if is_bound(loop.start, known) and is_bound(loop.stop, known):
            known.add(loop.var)
        else:
            unknown.add(loop.var)
    return unknown


def schedule(function: Function) -> Schedule:
    """Group the statements into nests, find each one's parallel axes, promote carried elements, judge the loops."""
    function = normalize(function)
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
        promoter = Promoter(function, around, frozenset(touched[k] - others), names)
        body = drop_unused(promoter.run(group.body))
        transforms = tuple(dict.fromkeys(f"scalar replacement of {p.array}: {p.what}" for p in promoter.made))
        judged = tuple(
            (loop.var, _judge(function, loop, loops, transforms, group)) for loop, loops in _nested(body, around)
        )
        name = function.name if len(groups) == 1 else f"{function.name}_{k + 1}"
        nests.append(Nest(name, group.axes, body, judged))
        verdicts |= dict(judged)
        for choice in group.choices:
            for loop in choice.loops:
                verdicts[loop.var] = _parallel(function, loop, choice.loops)
    return Schedule(function, tuple(nests), _as_written(function, verdicts))


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


def _nested(statements: tuple[Stmt, ...], loops: tuple[For, ...]) -> list[tuple[For, tuple[For, ...]]]:
    """All loops with the loops around each."""
    out: list[tuple[For, tuple[For, ...]]] = []
    for stmt in statements:
        match stmt:
            case For():
                out.append((stmt, loops))
                out += _nested(stmt.body, (*loops, stmt))
            case Let() | Store():
                pass
            case _:
                out += _nested(stmt.then, loops) + _nested(stmt.orelse, loops)
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


def memory_conflict(function: Function, loop: For, loops: tuple[For, ...]) -> tuple[Access, Access, str] | None:
    """Two accesses in different iterations of a loop that touch one element, one of them writing, and the witness."""
    polyhedra = Polyhedra(function)
    accesses = collect((loop,), loops)
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


def _judge(
    function: Function, loop: For, loops: tuple[For, ...], transforms: tuple[str, ...], group: Grouping
) -> Verdict:
    conflict = memory_conflict(function, loop, loops)
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
