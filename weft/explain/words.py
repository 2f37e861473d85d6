"""The words of an explanation: the class of a loop, its cycles and transforms, the plan of a nest."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from weft.compiler import Launch, Unused
from weft.emit.joins import entries
from weft.errors import Location
from weft.loops.ir import For, Function, Stmt, bodies
from weft.loops.schedule import Schedule, Verdict
from weft.loops.show import renamed, show_expr, user_names
from weft.plan.fold import FoldPlan
from weft.plan.join import JoinPlan, PointsPlan, SortPlan, join_steps
from weft.plan.map import MapPlan
from weft.plan.scan import ScanPlan
from weft.plan.threads import ThreadPlan

_LONGEST = 104  # letters of a line under a loop
_KEPT = "\u00a0"  # a space at which no line ends


def kind_text(verdict: Verdict) -> str:
    """The class of a loop: `scan (affine)`."""
    return f"{verdict.kind} ({', '.join(verdict.algebra)})" if verdict.algebra else verdict.kind


def cycles(verdict: Verdict) -> list[str]:
    """The cycles of a loop: each scalar that an algebra understands is one, what none does is one together."""
    if not verdict.cycle:
        return []
    if verdict.updates:
        return [f"{name} -> {name}" for name in verdict.cycle]
    return [" -> ".join((*verdict.cycle, verdict.cycle[0]))]


def details(verdict: Verdict, function: Function) -> list[tuple[str, str]]:
    """What else there is to say of a loop: (what it is, the words), in the user's names. The first has no name: why."""
    shown = user_names(function)
    found = [("", verdict.why), *(("cycle", cycle) for cycle in cycles(verdict))]
    found += [("transform", transform) for transform in verdict.requires]
    found.append(("remedy", verdict.remedy))
    return [(what, renamed(text, shown)) for what, text in found if text]


def signature_text(function: Function) -> str:
    """`name(x: float32[rows, length], eps: float) -> y: float32[rows, length]`."""
    scalars = {s.name: s.type.category for s in function.scalars}

    def typed(name: str) -> str:
        if name in scalars:
            return f"{name}: {scalars[name]}"
        array = function.array(name)
        if name in function.numbers:
            return f"{name}: {array.dtype.category}"
        return f"{name}: {array.dtype}[{', '.join(map(show_expr, array.shape))}]"

    results = ", ".join(map(typed, function.results))
    return f"{function.name}({', '.join(map(typed, function.parameters))})" + (f" -> {results}" if results else "")


def sizes_text(signature: str, sizes: Mapping[str, object]) -> str:
    """`rows = 64, length = 1024`: the sizes and numbers that a signature names."""
    return ", ".join(f"{n} = {v}" for n, v in sizes.items() if re.search(rf"\b{n}\b", signature))


def loop_lines(schedule: Schedule, detail: bool = True) -> list[str]:
    """For each loop its variable, class, place and source line; with detail, under it why, the cycles, the transforms and
    the remedy.
    """
    depths = _depths(schedule.function.body)
    width = max((len(v.var) for v in schedule.loops), default=1)
    kinds = max((len(kind_text(v)) for v in schedule.loops), default=1)
    places = max((len(place(v.location)) for v in schedule.loops), default=1)
    lines: list[str] = []
    for v in schedule.loops:
        depth, implied = depths.get(v.var, (0, False))
        source = v.location.text().strip() if v.location is not None else ""
        head = f"{v.var:<{width}}  {kind_text(v):<{kinds}}  {place(v.location):<{places}}  {'  ' * depth}{source}"
        lines.append((head + ("  (implied)" if implied else "")).rstrip())
        if detail:
            for what, text in details(v, schedule.function):
                first, *rest = wrapped(f"{what}: {text}" if what else text)
                lines += [f"{'':<{width}}  {first}", *(f"{'':<{width}}    {line}" for line in rest)]
    return lines or ["no loops"]


def double_lines(function: Function) -> list[str]:
    """What is computed in double precision of narrower elements, a line for each place."""
    return [f"{place(w.location)}  {w.text} of {w.dtype} is computed in double: {w.instead}" for w in function.widenings]


def unused_text(unused: Unused) -> str:
    """Which loop is left in order inside a thread, and why."""
    at = place(unused.loop.location)
    there = f" ({place(unused.where)})" if unused.where is not None and place(unused.where) != at else ""
    head = f"{unused.name}{f' ({at})' if at else ''}, {kind_text(unused.loop)}"
    return f"{head}, runs in order inside a thread: {unused.why}{there}"


def unused_lines(found: Sequence[Unused]) -> list[str]:
    """A line for each loop that could run in parallel and does not, with its remedy."""
    return [f"unused parallelism: {unused_text(u)}" + (f"; remedy: {u.remedy}" if u.remedy else "") for u in found]


def unbroken(text: str) -> str:
    """A sentence whose lines do not end inside `(i = 0, j = 1)` or `n = 2`."""
    text = re.sub(r"\([^()]*=[^()]*\)", lambda m: m.group().replace(" ", _KEPT), text)
    return text.replace(" = ", f"{_KEPT}={_KEPT}")


def wrapped(text: str) -> list[str]:
    lines = textwrap.wrap(unbroken(text), _LONGEST, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_KEPT, " ") for line in lines]


def place(location: Location | None) -> str:
    """`file.py:12`."""
    return f"{Path(location.file).name}:{location.line}" if location is not None else ""


def _depths(statements: tuple[Stmt, ...], depth: int = 0) -> dict[str, tuple[int, bool]]:
    """How many loops lie around each loop, and whether it is implied by a slice."""
    found: dict[str, tuple[int, bool]] = {}
    for stmt in statements:
        if isinstance(stmt, For):
            found[stmt.var] = (depth, stmt.implied)
        for body in bodies(stmt):
            found |= _depths(body, depth + isinstance(stmt, For))
    return found


# ---------------------------------------------------------------- the plan


def plan_lines(launch: Launch) -> list[str]:
    """How a nest runs on a GPU."""
    return [*([f"launched {each}, in order"] if (each := _each(launch)) else []), *_kernel_lines(launch)]


def _each(launch: Launch) -> str:
    """`once for each t`, of a launch in a loop; nothing of others."""
    steps = ", ".join(a.var for a in launch.steps)
    when = f" with {' and '.join(show_expr(g.condition) for g in launch.when)}" if launch.when else ""
    return f"once for each {f'({steps})' if len(launch.steps) > 1 else steps}{when}" if steps else ""


def _kernel_lines(launch: Launch) -> list[str]:
    nest, where = launch.nest, launch.where
    assert where is not None
    plan, (threads, teams, _) = launch.variant.plan, launch.block
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    grid = f"{_count(blocks, 'block')} of {_count(threads * teams, 'thread')}"
    if isinstance(plan, ThreadPlan):
        why = renamed(where.analysis.lowered[launch.variant.nest].why_not, user_names(where.analysis.function))
        why = re.sub(r"(is sequential): .*", r"\1", why)  # the loop's verdict says the rest
        if not plan.order:
            return ["one thread does it all: no loop outside is parallel", grid]
        return [f"a thread for each ({', '.join(plan.order)})" + (f", since {why}" if why else ""), grid]
    if isinstance(plan, FoldPlan):
        return [*_folding(launch, plan), grid + (f", {teams} rows each" if teams > 1 else "")]
    if isinstance(plan, JoinPlan):
        return [*_joining(launch, plan), grid]
    if isinstance(plan, MapPlan):
        return [*_mapping(launch, plan), grid]
    if isinstance(plan, ScanPlan):
        return [*_scanning(launch, plan), grid + (f", {teams} rows each" if teams > 1 else "")]
    graph = launch.variant.graph
    assert graph is not None
    rows = ", ".join(a.var for a in graph.rows) or "none"
    columns = ", ".join(dict.fromkeys(s.column for s in graph.stages()))
    tile = threads * plan.vector * plan.chunks
    team = f"{threads} threads{' a row' if graph.rows else ''}"
    if plan.held:
        how = f"{team}, {'which' if graph.rows else 'what they take'} is read once and held in registers"
    else:
        how = f"{team}, tile after tile of {tile} columns"
    return [
        f"rows: {rows}; columns: {columns}",
        how,
        f"layout (thread, (vector, chunk)) -> column: {replace(plan, threads=threads).layout}",
        grid + (f", {teams} rows each" if teams > 1 else ""),
        *([] if nest.axes else ["one block works: no loop outside is parallel"]),
    ]


def _mapping(launch: Launch, plan: MapPlan) -> list[str]:
    """Which points a thread computes."""
    course = plan.courses[launch.course]
    if not course.axes:
        return ["one point"]
    *rows, lane = (f"({', '.join(group)}) as one" if len(group) > 1 else group[0] for group in course.axes)
    run = f"{course.vector} neighbours" if course.vector > 1 else "an element"
    turns = f", {course.turns} times" if course.turns > 1 else ""
    found = [f"rows: {', '.join(rows) or 'none'}; a thread takes {run} along {lane}{turns}"]
    if course.turned:
        found = [f"squares of {course.side} x {course.side} along {course.turned.replace('.', ' to ')} and {lane}"]
        found[0] += f", one of {', '.join(rows)}" if len(rows) > 1 else ""
        found.append(f"what lies along {course.turned} changes its order in shared memory")
    elif course.shift is None:
        found.append("rows begin anywhere: what is before the first packet and after the last moves by itself")
    return found


def _mapping_line(launch: Launch, plan: MapPlan) -> str:
    """The same in a few words."""
    course = plan.courses[launch.course]
    if course.turned:
        return f"squares of {course.side} x {course.side}"
    return f"{course.vector} neighbours a thread" if course.vector > 1 else "an element a thread"


def _scanning(launch: Launch, plan: ScanPlan) -> list[str]:
    """How threads share the scans of a row."""
    rows = f"rows: {', '.join(plan.rows) or 'none'}"
    if plan.beside:
        how = f"{_count(plan.side * plan.vector, 'row')} side by side along {plan.lane}, "
        how += f"{_count(plan.threads // plan.side, 'thread')} each"
    else:
        how = f"{plan.threads} threads{' a row' if plan.rows else ''}, side by side along {plan.lane}"
    whose = "a row" if plan.rows else "the points"
    shared = f"{_count(launch.parts, 'block')} share {whose}: all run at once, and tell each other what their tiles do"
    return [f"{rows}; {how}", f"tiles of {_count(plan.tile, 'point')}", *([shared] if plan.shared else [])]


def _scanning_line(launch: Launch, plan: ScanPlan) -> str:
    """The same in a few words."""
    whose = "a row" if plan.rows else "the points"
    if plan.shared:
        return f"blocks share {whose}"
    if plan.beside:
        return f"{_count(plan.threads // plan.side, 'thread')} a row"
    return f"{plan.threads} threads a row" if plan.rows else "which are one team"


def _folding(launch: Launch, plan: FoldPlan) -> list[str]:
    """How threads share the folds of a row."""
    rows = f"rows: {', '.join(plan.rows) or 'none'}"
    if plan.beside:
        side = plan.across[0][0]
        how = f"{_count(side, 'row')} side by side along {plan.lane}, {_count(plan.threads // side, 'thread')} each"
    else:
        how = f"{plan.threads} threads{' a row' if plan.rows else ''}, side by side along {plan.lane}"
    if plan.chunks:
        whose = "which is read once and held in registers" if plan.rows else "what they take is read once and held in registers"
        layout = f"layout (thread, (vector, chunk)) -> {plan.lane}: {plan.layout}"
        return [f"{rows}; points: {plan.lane}", f"{plan.threads} threads{' a row' if plan.rows else ''}, {whose}", layout]
    packets = [f"{plan.vector} neighbours at a time"] if plan.vector > 1 else []
    whose = "a row" if plan.rows else "the points"
    shared = [f"{_count(launch.parts, 'block')} share {whose}, their parts are combined in order"] if plan.shared else []
    running = ["sums are kept relative to the extrema so far, in one sweep with them"] if plan.running else []
    return [f"{rows}; {', '.join([how, *packets])}", *running, *shared]


_SORTING = {
    "keys": "values are joined to {0} in the order of its elements, so that the bits are always the same: the element of each",
    "count": "sorted by element, digit {1} of {2}: how many have it",
    "place": "sorted by element, digit {1} of {2}: where those begin that have it",
    "move": "sorted by element, digit {1} of {2}: all in their place",
    "sum": "joined, {3} neighbours a thread: round {1}",
}


def _joining(launch: Launch, plan: JoinPlan) -> list[str]:
    """How values are joined to the elements that the data choose."""
    assert launch.where is not None
    joins = launch.where.analysis.lowered[launch.variant.nest].joins
    assert joins is not None
    shown = user_names(launch.where.analysis.function)
    arrays = ", ".join(dict.fromkeys(renamed(w.array, shown) for w in joins.writes if w.join))
    steps = dict(zip(entries(launch.nest, plan), join_steps(plan), strict=True))
    step = steps[launch.entry]
    group = plan.groups[step.group]
    if isinstance(group, SortPlan):
        return [_SORTING[step.kind].format(arrays, step.number + 1, group.digits, group.chunk)]
    held = [renamed(f"{o.array} first in shared memory{f', {o.copies} copies a block' if o.copies > 1 else ''}", shown)
            for o in group.own]  # fmt: skip
    how = f"values are joined to {arrays} by atomics, in any order: the same bits in each"
    return [how, *(f"joined to {text}" for text in held)]


def _folding_line(launch: Launch, plan: FoldPlan) -> str:
    """The same in a few words."""
    whose = "a row" if plan.rows else "the points"
    if plan.shared:
        return f"blocks share {whose}" if launch.grid[1] > 1 else "which combine their parts"
    if plan.beside:
        return f"{_count(plan.threads // plan.across[0][0], 'thread')} a row"
    held = ", held in registers" if plan.chunks else ""
    return (f"{plan.threads} threads a row" if plan.rows else "which are one team") + held


def _joining_line(plan: JoinPlan) -> str:
    """The same in a few words."""
    ways = ["sorted by element and joined in order"] if any(isinstance(g, SortPlan) for g in plan.groups) else []
    points = [g for g in plan.groups if isinstance(g, PointsPlan)]
    ways += ["joined by atomics" + (", in shared memory first" if any(g.own for g in points) else "")] if points else []
    return " and ".join(ways)


def plan_line(launches: Sequence[Launch]) -> str:
    """The plan of a call in one line."""
    kernels = []
    for launch in launches:
        plan, (threads, teams, _) = launch.variant.plan, launch.block
        blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
        if isinstance(plan, ThreadPlan):
            how = f"a thread for each ({', '.join(plan.order)})" if plan.order else "one thread does it all"
        elif isinstance(plan, FoldPlan):
            how = _folding_line(launch, plan)
        elif isinstance(plan, JoinPlan):
            how = _joining_line(plan)
        elif isinstance(plan, MapPlan):
            how = _mapping_line(launch, plan)
        elif isinstance(plan, ScanPlan):
            how = _scanning_line(launch, plan)
        else:
            graph = launch.variant.graph
            team = f"{threads} threads a row" if graph is not None and graph.rows else "which are one team"
            how = team + (", held in registers" if plan.held else "")
        each = f", {_each(launch)}" if launch.steps else ""
        if isinstance(plan, JoinPlan) and len(join_steps(plan)) > 1:
            kernels.append(f"{how}, in {len(join_steps(plan))} steps{each}")
            continue
        kernels.append(f"{_count(blocks, 'block')} of {_count(threads * teams, 'thread')}, {how}{each}")
    count = "" if len(kernels) == 1 else f"{len(kernels)} kernels: "
    return count + "; ".join(dict.fromkeys(kernels)) if kernels else "nothing to launch"


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
