"""The dependence graph of a program: its statements, what each needs from which, and the cycles, as people draw it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from weft.loops.dependences import Dependence, Distance, Program, Statement
from weft.loops.ir import Function
from weft.loops.polyhedra import Witness

# "control": the source decides whether the sink runs. The others are as in `dependences`.
ArrowKind = Literal["flow", "WAR", "WAW", "control"]


@dataclass(frozen=True)
class Arrow:
    """`sink` must come after `source`. The fields are those of a `Dependence`; "control" arrows have no name."""

    source: str
    sink: str
    kind: ArrowKind
    name: str = ""
    loops: tuple[str, ...] = ()
    carrier: str | None = None
    distance: Distance = ()
    condition: str | None = None
    when: str | None = None
    exact: bool = True
    example: Witness | None = None

    def __str__(self) -> str:
        what = self.name if self.kind == "flow" else f"{self.kind} {self.name}".strip()
        carried = f", carried by {self.carrier} ({', '.join(map(str, self.distance))})" if self.carrier else ""
        condition = f", if {self.condition}" if self.condition else ""
        return what + carried + condition + ("" if self.exact else ", perhaps")


@dataclass(frozen=True)
class DependenceGraph:
    """components: the strongly connected components in an order in which they may run; a statement that needs nothing of
    itself is one alone.
    """

    name: str
    statements: tuple[Statement, ...]
    arrows: tuple[Arrow, ...]
    components: tuple[tuple[str, ...], ...]

    @property
    def cycles(self) -> tuple[tuple[str, ...], ...]:
        """The components in which something waits for itself."""
        again = {a.source for a in self.arrows if a.source == a.sink}
        return tuple(c for c in self.components if len(c) > 1 or c[0] in again)

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self) -> str:
        """Statements, arrows, cycles, and the order of the components."""
        return _text(self)

    def to_mermaid(self) -> str:
        """Boxes for statements, a box around each cycle; what a loop carries is dashed and names the loop."""
        return _mermaid(self)

    def to_json(self) -> str:
        """The graph as JSON, with these keys in every release of format 1:

        format (1), name, statements [{label, line, text, loops, under}], arrows [{source, sink, kind, name, loops,
        carrier, distance, condition, when, exact, example}], components [[label]]. They mean what they mean in `Statement`
        and `Arrow`. example: {sizes, source, sink}, each an object from names to numbers, or null.
        """
        return _json(self)


def dependence_graph(function: Function) -> DependenceGraph:
    """The graph of a function: flow from the last writes, WAR, WAW, and what conditions decide."""
    program = Program.of(function)
    return graph_of(function.name, program.statements, program.dependences())


def graph_of(name: str, statements: tuple[Statement, ...], dependences: Iterable[Dependence]) -> DependenceGraph:
    """The graph of these statements."""
    arrows = [Arrow(s.under, s.label, "control", loops=s.loops) for s in statements if s.under is not None]
    for d in dependences:
        if d.kind != "RAW":  # one that is no flow follows from a flow and the WAW between
            facts = (d.loops, d.carrier, d.distance, d.condition, d.when, d.exact, d.example)
            arrows.append(Arrow(d.source, d.sink, d.kind, d.name, *facts))
    order = {s.label: k for k, s in enumerate(statements)}
    arrows.sort(key=lambda a: (order[a.source], order[a.sink]))
    after: dict[str, set[str]] = defaultdict(set)
    for a in arrows:
        after[a.source].add(a.sink)
    components = _in_order(_components(list(order), after), after, order)
    return DependenceGraph(name, statements, tuple(arrows), tuple(components))


# ---------------------------------------------------------------- components


def _components(labels: Sequence[str], after: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    """The strongly connected components, by Tarjan: a node from which no earlier one is reached closes a component."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[tuple[str, ...]] = []

    def visit(node: str) -> None:
        number[node] = lowest[node] = len(number)
        stack.append(node)
        for other in sorted(after.get(node, ()), key=labels.index):
            if other not in number:
                visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in stack:
                lowest[node] = min(lowest[node], number[other])
        if lowest[node] == number[node]:
            at = stack.index(node)
            found.append(tuple(sorted(stack[at:], key=labels.index)))
            del stack[at:]

    for label in labels:
        if label not in number:
            visit(label)
    return found


def _in_order(
    components: list[tuple[str, ...]], after: Mapping[str, set[str]], order: Mapping[str, int]
) -> list[tuple[str, ...]]:
    """The components so that each comes after those it needs, otherwise as in the text."""
    home = {label: component for component in components for label in component}
    needs = {c: {home[a] for a in after if any(home[b] == c for b in after[a])} - {c} for c in components}
    out: list[tuple[str, ...]] = []
    while len(out) < len(components):
        ready = [c for c in components if c not in out and needs[c] <= set(out)]
        out.append(min(ready, key=lambda c: order[c[0]]))
    return out


# ---------------------------------------------------------------- text, Mermaid, JSON


def _text(graph: DependenceGraph) -> str:
    width = max((len(s.label) for s in graph.statements), default=0)
    around = {s.label: f"[{', '.join(s.loops)}]" if s.loops else "" for s in graph.statements}
    room = max(map(len, around.values()), default=0)
    lines = [f"{s.label:<{width}}  {around[s.label]:<{room}}  {s.text}".rstrip() for s in graph.statements]
    lines += [f"{a.source} -> {a.sink}  {a}" for a in graph.arrows]
    lines += [f"cycle: {', '.join(c)}" for c in graph.cycles]
    lines.append("order: " + ", ".join("{" + ", ".join(c) + "}" if len(c) > 1 else c[0] for c in graph.components))
    return "\n".join(lines) + "\n"


def _mermaid(graph: DependenceGraph) -> str:
    lines = ["flowchart TD"]
    text = {s.label: f'{s.label}["{s.label}: {quoted(s.text)}"]' for s in graph.statements}
    for component in graph.components:
        if component in graph.cycles:
            lines.append(f'  subgraph cycle_{component[0]}["cycle"]')
            lines += [f"    {text[label]}" for label in component]
            lines.append("  end")
        else:
            lines.append(f"  {text[component[0]]}")
    for a in graph.arrows:
        lines.append(f'  {a.source} {"-.->" if a.carrier else "-->"}|"{quoted(str(a))}"| {a.sink}')
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """Text inside a Mermaid label: its entities are HTML's with # for &."""
    return text.replace("#", "#35;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")


def _json(graph: DependenceGraph) -> str:
    def statement(s: Statement) -> dict[str, Any]:
        line = s.location.line if s.location is not None else None
        return {"label": s.label, "line": line, "text": s.text, "loops": s.loops, "under": s.under}

    def arrow(a: Arrow) -> dict[str, Any]:
        w = a.example
        example = None if w is None else {"sizes": dict(w.sizes), "source": dict(w.first), "sink": dict(w.second)}
        return {**vars(a), "example": example}

    whole = {
        "format": 1,
        "name": graph.name,
        "statements": list(map(statement, graph.statements)),
        "arrows": list(map(arrow, graph.arrows)),
        "components": graph.components,
    }
    return json.dumps(whole, indent=2) + "\n"
