"""The explanation of a kernel: its loops and their classes, the cycles, the transforms, the statements, the plan."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from weft.compiler import Analysis, Launch
from weft.errors import Location, TypeMismatch
from weft.explain.statements import StatementGraph, statement_graph
from weft.loops.graph import quoted
from weft.loops.ir import For, Function, Stmt, bodies
from weft.loops.schedule import Schedule, Verdict
from weft.loops.show import renamed, show_expr, user_names
from weft.plan.threads import ThreadPlan


@dataclass(frozen=True)
class Explained:
    """What an explanation is made from. sizes: the values of sizes and numbers, for which `launches` were planned."""

    analysis: Analysis
    sizes: Mapping[str, object]
    launches: Sequence[Launch]

    @property
    def function(self) -> Function:
        return self.analysis.function


def explain(explained: Explained, format: str = "text") -> str:
    """The explanation of a kernel. format: "text", "mermaid" or "html". Raises TypeMismatch for another."""
    writers = {"text": _text, "mermaid": _mermaid, "html": _html}
    if format not in writers:
        raise TypeMismatch(f"{format!r} is no format of an explanation", remedy=f"use one of {', '.join(writers)}")
    return writers[format](explained)


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


# ---------------------------------------------------------------- text


def _text(explained: Explained) -> str:
    function, schedule = explained.function, explained.analysis.schedule
    signature = signature_text(function)
    sizes = ", ".join(f"{n} = {v}" for n, v in explained.sizes.items() if re.search(rf"\b{n}\b", signature))
    lines = [signature, *([f"  with {sizes}"] if sizes else []), "", "Loops"]
    lines += [f"  {line}" for line in loop_lines(schedule)]
    for nest, launch in zip(schedule.nests, explained.launches, strict=True):
        several = f" of {nest.name}" if len(schedule.nests) > 1 else ""
        graph = statement_graph(function, nest)
        lines += ["", f"Statements{several}", *(f"  {line}" for line in _graph_lines(graph))]
        lines += ["", f"Plan{several} on a GPU", *(f"  {line}" for line in _plan(explained.analysis, launch))]
    return "\n".join(lines) + "\n"


def signature_text(function: Function) -> str:
    """`name(x: float32[rows, length], eps: float) -> y: float32[rows, length]`."""
    scalars = {s.name: s.type.category for s in function.scalars}

    def typed(name: str) -> str:
        if name in scalars:
            return f"{name}: {scalars[name]}"
        array = function.array(name)
        return f"{name}: {array.dtype}[{', '.join(map(show_expr, array.shape))}]"

    results = ", ".join(map(typed, function.results))
    return f"{function.name}({', '.join(map(typed, function.parameters))})" + (f" -> {results}" if results else "")


def loop_lines(schedule: Schedule) -> list[str]:
    """For each loop its variable, class, place and source line; under it why, the cycles and the transforms."""
    shown = user_names(schedule.function)
    depths = _depths(schedule.function.body)
    width = max((len(v.var) for v in schedule.loops), default=1)
    kinds = max((len(kind_text(v)) for v in schedule.loops), default=1)
    places = max((len(_place(v.location)) for v in schedule.loops), default=1)
    lines: list[str] = []
    for v in schedule.loops:
        depth, implied = depths.get(v.var, (0, False))
        source = v.location.text().strip() if v.location is not None else ""
        head = f"{v.var:<{width}}  {kind_text(v):<{kinds}}  {_place(v.location):<{places}}  {'  ' * depth}{source}"
        lines.append((head + ("  (implied)" if implied else "")).rstrip())
        details = [renamed(v.why, shown)] if v.why else []
        details += [f"cycle: {renamed(cycle, shown)}" for cycle in cycles(v)]
        details += [f"transform: {renamed(transform, shown)}" for transform in v.requires]
        details += [f"remedy: {renamed(v.remedy, shown)}"] if v.remedy else []
        lines += [f"{'':<{width}}  {detail}" for detail in details]
    return lines or ["none"]


def _place(location: Location | None) -> str:
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


def _graph_lines(graph: StatementGraph) -> list[str]:
    around = {s.label: f"[{', '.join(s.loops)}]" if s.loops else "" for s in graph.statements}
    width = max((len(text) for text in around.values()), default=0)
    labels = max((len(label) for label in around), default=0)
    lines = [f"{s.label:<{labels}}  {around[s.label]:<{width}}  {s.text}" for s in graph.statements]
    for a in graph.arrows:
        lines.append(f"{a.source} -> {a.target}  {a.through}" + (f", carried by {a.carried}" if a.carried else ""))
    return lines


def _plan(analysis: Analysis, launch: Launch) -> list[str]:
    """How a nest runs on a GPU, in words."""
    nest = analysis.schedule.nests[launch.variant.nest]
    plan, (threads, teams, _) = launch.variant.plan, launch.block
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    grid = f"{_count(blocks, 'block')} of {_count(threads * teams, 'thread')}"
    if isinstance(plan, ThreadPlan):
        why = renamed(analysis.lowered[launch.variant.nest].why_not, user_names(analysis.function))
        if not plan.order:
            return ["one thread does it all: no loop outside is parallel", grid]
        return [f"a thread for each ({', '.join(plan.order)})" + (f", since {why}" if why else ""), grid]
    graph = launch.variant.graph
    assert graph is not None
    rows = ", ".join(a.var for a in graph.rows) or "a single one"
    columns = ", ".join(dict.fromkeys(s.column for s in graph.stages()))
    tile = threads * plan.vector * plan.chunks
    if plan.spread:
        how = f"columns are independent: blocks share a row, {tile} columns each"
    elif plan.held:
        how = f"{threads} threads a row, which is read once and held in registers"
    else:
        how = f"{threads} threads a row, tile after tile of {tile} columns"
    return [
        f"rows: {rows}; columns: {columns}",
        how,
        f"layout (thread, (vector, chunk)) -> column: {replace(plan, threads=threads).layout}",
        grid + (f", {teams} rows each" if teams > 1 else ""),
        *([] if nest.axes else ["one block works: no loop outside is parallel"]),
    ]


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


# ---------------------------------------------------------------- Mermaid and HTML


def _mermaid(explained: Explained) -> str:
    """The dependence graph: a box for each statement, dotted arrows for what a loop carries."""
    lines = ["flowchart TD"]
    for nest in explained.analysis.schedule.nests:
        graph = statement_graph(explained.function, nest)
        lines.append(f'  subgraph {nest.name}["{nest.name}"]')
        lines += [f'    {nest.name}_{s.label}["{s.label}: {quoted(s.text)}"]' for s in graph.statements]
        lines.append("  end")
        for a in graph.arrows:
            line, label = ("-.->", f"{a.through}, carried by {a.carried}") if a.carried else ("-->", a.through)
            lines.append(f'  {nest.name}_{a.source} {line}|"{quoted(label)}"| {nest.name}_{a.target}')
    return "\n".join(lines) + "\n"


_STYLE = (
    "body{font:15px/1.5 system-ui;margin:2rem auto;max-width:64rem;padding:0 1rem;color-scheme:light dark}"
    "table{border-collapse:collapse}td,th{padding:.3rem .8rem;text-align:left;vertical-align:top}"
    "pre{overflow:auto}.parallel .kind{color:#2a7}.reduction .kind,.scan .kind{color:#27c}.sequential .kind{color:#c42}"
)


def _html(explained: Explained) -> str:
    """One page that needs nothing else: the loops as a table, then the whole text."""
    name, schedule = html.escape(explained.function.name), explained.analysis.schedule
    shown = user_names(explained.function)
    rows = []
    for v in schedule.loops:
        source = v.location.text().strip() if v.location is not None else ""
        facts = [renamed(v.why, shown), *(f"cycle: {renamed(c, shown)}" for c in cycles(v)), *v.requires]
        cells = [f"<td><code>{html.escape(source or v.var)}</code>", f"<td class=kind>{html.escape(kind_text(v))}"]
        cells.append("<td>" + "<br>".join(html.escape(fact) for fact in facts if fact))
        rows.append(f"<tr class={v.kind}>{''.join(cells)}")
    head = f"<!doctype html><html lang=en><meta charset=utf-8><title>{name}</title><style>{_STYLE}</style>"
    table = f"<table><tr><th>loop<th>class<th>why\n{chr(10).join(rows)}</table>"
    return f"{head}\n<h1>{name}</h1>\n{table}\n<pre>{html.escape(_text(explained))}</pre>\n"
