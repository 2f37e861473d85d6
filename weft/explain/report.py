"""The explanation of a kernel: its loops and their classes, the cycles, the transforms, the plan."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.errors import TypeMismatch
from weft.explain.statements import StatementGraph, statement_graph
from weft.loops.schedule import Verdict
from weft.plan.threads import ThreadPlan

if TYPE_CHECKING:
    from weft.compiler import Launch
    from weft.pytorch.inspection import Examined
    from weft.pytorch.kernel import Kernel


def explain(kernel: Kernel, args: Sequence[Any], format: str = "text") -> str:
    """The explanation of a kernel at these arguments. format: "text", "mermaid" or "html"."""
    from weft.pytorch.inspection import examine

    writers = {"text": _text, "mermaid": _mermaid, "html": _html}
    if format not in writers:
        raise TypeMismatch(f"{format!r} is no format of an explanation", remedy=f"use one of {', '.join(writers)}")
    return writers[format](kernel.name, examine(kernel, args))


def kind_text(verdict: Verdict) -> str:
    return f"{verdict.kind} ({', '.join(verdict.algebra)})" if verdict.algebra else verdict.kind


def _text(name: str, examined: Examined) -> str:
    function, schedule = examined.analysis.function, examined.analysis.schedule
    arguments = []
    for parameter in function.parameters:
        array = next((a for a in function.arrays if a.name == parameter), None)
        if array is None:
            arguments.append(parameter)
        else:
            arguments.append(f"{parameter}: {array.dtype}[{', '.join(_size(e) for e in array.shape)}]")
    lines = [f"{name}({', '.join(arguments)})", "", "Loops"]
    width = max((len(v.var) for v in schedule.loops), default=1)
    for v in schedule.loops:
        where = f"{v.location.file.rsplit('/', 1)[-1]}:{v.location.line}" if v.location else ""
        lines.append(f"  {v.var:<{width}}  {kind_text(v):<20} {where:<18} {v.why}")
        if v.cycle:
            lines.append(f"  {'':<{width}}  cycle: {' -> '.join((*v.cycle, v.cycle[0]))}")
        lines += [f"  {'':<{width}}  by {r}" for r in v.requires]
        if v.remedy:
            lines.append(f"  {'':<{width}}  remedy: {v.remedy}")
    for nest, launch in zip(schedule.nests, examined.launches(), strict=True):
        graph = statement_graph(nest)
        lines += ["", f"Statements of {nest.name}"]
        for s in graph.statements:
            around = f"[{', '.join(s.loops)}]" if s.loops else ""
            lines.append(f"  {s.label:<4} {s.defines:<12} {around:<10} {s.text}")
        for a in graph.arrows:
            lines.append(f"  {a.source} -> {a.target}  {a.through}" + (f"  carried by {a.carried}" if a.carried else ""))
        lines += ["", f"Plan of {nest.name}", *(f"  {line}" for line in _plan(examined, launch))]
    return "\n".join(lines) + "\n"


def _size(expr: object) -> str:
    from weft.loops.show import show_expr

    return show_expr(expr)  # type: ignore[arg-type]


def _plan(examined: Examined, launch: Launch) -> list[str]:
    """How a nest runs on a GPU, in words."""
    nest = examined.analysis.schedule.nests[launch.variant.nest]
    plan = launch.variant.plan
    grid = f"grid {launch.grid[0]} of {launch.block[0] * launch.block[1]} threads"
    if isinstance(plan, ThreadPlan):
        why = examined.analysis.lowered[launch.variant.nest].why_not
        reason = f"a thread for each ({', '.join(plan.order)})" + (f": {why}" if why else "")
        return [reason, grid]
    graph = launch.variant.graph
    assert graph is not None
    rows = ", ".join(a.var for a in graph.rows) or "one row"
    columns = ", ".join(dict.fromkeys(s.column for s in graph.stages()))
    if plan.spread:
        how = "columns are independent: blocks share them"
    elif plan.held:
        how = f"{plan.threads} threads a row, which is read once and held in registers"
    else:
        how = f"{plan.threads} threads a row, tile after tile of {plan.vector * plan.chunks} columns a thread"
    return [
        f"rows: {rows}; columns: {columns}",
        how,
        f"layout (thread, (vector, chunk)) -> column: {plan.layout}",
        grid + (f"; {plan.teams} rows a block" if plan.teams > 1 else ""),
    ] + ([] if nest.axes else ["one block: no loop outside is parallel"])


def _mermaid(name: str, examined: Examined) -> str:
    """The dependence graph: a box a statement, carried arrows dashed and labelled with their loop."""
    lines = ["flowchart TD"]
    for nest in examined.analysis.schedule.nests:
        graph = statement_graph(nest)
        lines.append(f'  subgraph {nest.name}["{nest.name}"]')
        lines += [f"    {nest.name}_{line}" for line in _nodes(graph)]
        lines.append("  end")
        for a in graph.arrows:
            source, target = f"{nest.name}_{a.source}", f"{nest.name}_{a.target}"
            if a.carried:
                lines.append(f"  {source} -. {a.through}, carried by {a.carried} .-> {target}")
            else:
                lines.append(f"  {source} -- {a.through} --> {target}")
    return "\n".join(lines) + "\n"


def _nodes(graph: StatementGraph) -> list[str]:
    return [f'{s.label}["{s.label}: {(s.text or s.defines).replace(chr(34), chr(39))}"]' for s in graph.statements]


def _html(name: str, examined: Examined) -> str:
    """One page that needs nothing else: the loops, the statements and the plan."""
    rows = "".join(
        f"<tr class='{v.kind}'><td><code>{html.escape(v.var)}</code></td><td>{html.escape(kind_text(v))}</td>"
        f"<td>{html.escape(v.why)}</td></tr>"
        for v in examined.analysis.schedule.loops
    )
    style = (
        "body{font:15px system-ui;margin:2rem auto;max-width:60rem;color-scheme:light dark}"
        "td,th{padding:.3rem .8rem;text-align:left;vertical-align:top}pre{overflow:auto}"
        ".parallel td:nth-child(2){color:#2a7}.reduction td:nth-child(2),.scan td:nth-child(2){color:#27c}"
        ".sequential td:nth-child(2){color:#c42}"
    )
    return (
        f"<!doctype html><meta charset=utf-8><title>{html.escape(name)}</title><style>{style}</style>"
        f"<h1>{html.escape(name)}</h1><table><tr><th>loop<th>class<th>why</tr>{rows}</table>"
        f"<pre>{html.escape(_text(name, examined))}</pre>\n"
    )
