"""A dependence graph as SVG: statements as boxes, every cycle in a frame, carried dependences dashed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from weft.explain.layout import Box, Layout, Link, Point, layered
from weft.loops.dependences import Statement
from weft.loops.evidence import example
from weft.loops.graph import Arrow, DependenceGraph

_LETTER, _SMALL = 7.25, 6.65  # the width of a letter in a box and in a label
_BOX, _LINE = 28.0, 15.0  # the height of a box, and of a line of a label
_FRAME = 12.0  # from a frame to what it holds
_STRIP = 16.0  # where a frame says that it is a cycle
_LOOP = 24.0  # how far an arrow from a box to itself reaches
_LONGEST = 38  # letters of a statement that are shown


@dataclass(frozen=True)
class _Bundle:
    """The arrows from one statement to another that are drawn as one line, by their numbers in the graph."""

    source: str
    sink: str
    carried: bool
    arrows: tuple[tuple[int, Arrow], ...]

    @property
    def size(self) -> Point:
        return max(len(label(a)) for _, a in self.arrows) * _SMALL + 2, len(self.arrows) * _LINE


@dataclass
class _Drawn:
    """Where things are: left upper corners of boxes and frames, paths and label corners of bundles."""

    boxes: dict[str, Point] = field(default_factory=dict)
    frames: list[tuple[float, float, float, float, str]] = field(default_factory=list)
    paths: dict[_Bundle, list[Sequence[Point]]] = field(default_factory=dict)
    labels: dict[_Bundle, Point] = field(default_factory=dict)


def label(arrow: Arrow) -> str:
    """What stands at an arrow: `h`, `WAR a`, `h · l (0, 1)`."""
    what = {"flow": arrow.name, "control": "decides"}.get(arrow.kind, f"{arrow.kind} {arrow.name}")
    carried = f" · {arrow.carrier} ({', '.join(map(str, arrow.distance))})" if arrow.carrier else ""
    return what + carried + ("" if arrow.exact else " ?")


def told(arrow: Arrow) -> str:
    """An arrow in words: its kind, array, vector and two iterations."""
    if arrow.kind == "control":
        return f"{arrow.source} decides whether {arrow.sink} runs"
    kind = "RAW (flow)" if arrow.kind == "flow" else arrow.kind
    vector = f" at distance ({', '.join(map(str, arrow.distance))})" if arrow.loops else ""
    how = f", carried by {arrow.carrier}" if arrow.carrier else ", within an iteration" if arrow.loops else ""
    condition = f", if {arrow.condition}" if arrow.condition else ""
    unsure = "" if arrow.exact else ", perhaps"
    return f"{arrow.source} → {arrow.sink}: {kind} of {arrow.name}{vector}{how}{condition}{unsure}{example(arrow.example)}"


def drawing(graph: DependenceGraph) -> tuple[str, int]:
    """The graph as an SVG element, and its width; its statements carry `data-node`, its lines and labels `data-arrows`."""
    bundles = _bundles(graph)
    drawn, width, height = _placed(graph, bundles)
    statements = {s.label: s for s in graph.statements}
    lines = [
        f'<svg viewBox="-1 -1 {width + 2:.0f} {height + 2:.0f}" role="group" '
        f'aria-label="dependence graph of {escape(graph.name)}" width="{width + 2:.0f}" height="{height + 2:.0f}">'
    ]
    for x, y, w, h, name in drawn.frames:
        lines.append(f'<g class="frame"><rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="8"/>')
        middle = x + _STRIP - 3, y + h / 2
        turned = f'transform="rotate(-90 {middle[0]:.1f} {middle[1]:.1f})"'
        lines.append(f'<text x="{middle[0]:.1f}" y="{middle[1]:.1f}" {turned}>{name}</text></g>')
    for bundle, pieces in drawn.paths.items():
        lines += _line(bundle, pieces)
    for name, (x, y) in drawn.boxes.items():
        lines += _box(statements[name], x, y, _height(name, bundles))
    for bundle, (x, y) in drawn.labels.items():
        for k, (number, arrow) in enumerate(bundle.arrows):
            lines.append(
                f'<text class="label" x="{x:.1f}" y="{y + k * _LINE + 11:.1f}" data-arrows="{number}" tabindex="0" role="img" '
                f'aria-label="{escape(told(arrow))}">{escape(label(arrow))}</text>'
            )
    return "\n".join([*lines, "</svg>"]), round(width + 2)


# ---------------------------------------------------------------- where things are


def _bundles(graph: DependenceGraph) -> list[_Bundle]:
    found: dict[tuple[str, str, bool], list[tuple[int, Arrow]]] = {}
    for k, a in enumerate(graph.arrows):
        found.setdefault((a.source, a.sink, a.carrier is not None), []).append((k, a))
    return [_Bundle(*key, tuple(arrows)) for key, arrows in found.items()]


def _text(statement: Statement) -> str:
    text = statement.text.strip()
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _height(name: str, bundles: Sequence[_Bundle]) -> float:
    return max(_BOX, *(b.size[1] for b in bundles if b.source == b.sink == name), 0.0)


def _statement(statement: Statement, bundles: Sequence[_Bundle]) -> Box:
    own = [b for b in bundles if b.source == b.sink == statement.label]
    beside = max((_LOOP + b.size[0] for b in own), default=0.0)
    width = (len(statement.label) + 2 + len(_text(statement))) * _LETTER + 18
    return Box(statement.label, width, _height(statement.label, bundles), beside)


def _placed(graph: DependenceGraph, bundles: Sequence[_Bundle]) -> tuple[_Drawn, float, float]:
    """Each cycle is laid out by itself, with places at its ends where arrows come in and go out; then the whole is, with
    a box for each cycle.
    """
    statements = {s.label: s for s in graph.statements}
    home = {s: component for component in graph.components for s in component}
    framed = {c: _cycle(c, statements, bundles) for c in graph.cycles}
    boxes, links = [], []
    for component in graph.components:
        if component in framed:
            inner = framed[component].layout
            boxes.append(Box(component[0], inner.width + 2 * _FRAME + _STRIP, inner.height + 2 * _FRAME))
        else:
            boxes.append(_statement(statements[component[0]], bundles))
    between = [b for b in bundles if home[b.source] != home[b.sink]]
    for b in between:
        source, sink = home[b.source], home[b.sink]
        tail = framed[source].port(b, "last") if source in framed else None
        head = framed[sink].port(b, "first") if sink in framed else None
        links.append(Link(source[0], sink[0], *b.size, tail, head))
    whole = layered(boxes, links)
    drawn = _Drawn()
    for component in graph.components:
        x, y = whole.corners[component[0]]
        if component in framed:
            inner = framed[component].layout
            drawn.frames.append((x, y, inner.width + 2 * _FRAME + _STRIP, inner.height + 2 * _FRAME, "cycle"))
            framed[component].put(drawn, x + _FRAME + _STRIP, y + _FRAME)
        else:
            drawn.boxes[component[0]] = (x, y)
    for b, route in zip(between, whole.routes, strict=True):
        _put(drawn, b, route.points, route.label, 0.0, 0.0)
    for bundle in bundles:  # an arrow from one cycle to another: out of the one, between them, into the other
        drawn.paths.get(bundle, []).sort(key=lambda piece: piece[0][1])
    for b in bundles:
        if b.source == b.sink:
            _put_loop(drawn, b, _statement(statements[b.source], bundles))
    return drawn, whole.width, whole.height


@dataclass(frozen=True)
class _Cycle:
    """The layout of one cycle, its links in the order of `bundles`, those inside first."""

    layout: Layout
    bundles: tuple[_Bundle, ...]
    statements: tuple[str, ...]
    ports: Mapping[tuple[_Bundle, str], str]

    def port(self, bundle: _Bundle, end: str) -> float:
        """How far from the left edge of the frame an arrow passes it."""
        return self.layout.corners[self.ports[bundle, end]][0] + _FRAME + _STRIP

    def put(self, drawn: _Drawn, x: float, y: float) -> None:
        for name in self.statements:
            left, top = self.layout.corners[name]
            drawn.boxes[name] = (x + left, y + top)
        for bundle, route in zip(self.bundles, self.layout.routes, strict=True):
            points = [(x + a, y + b) for a, b in route.points]
            if (bundle, "first") in self.ports:
                points[0] = (points[0][0], points[0][1] - _FRAME)
            elif (bundle, "last") in self.ports:
                points[-1] = (points[-1][0], points[-1][1] + _FRAME)
            _put(drawn, bundle, points, route.label, x, y)


def _cycle(component: tuple[str, ...], statements: Mapping[str, Statement], bundles: Sequence[_Bundle]) -> _Cycle:
    inside = [b for b in bundles if b.source in component and b.sink in component and b.source != b.sink]
    coming = [b for b in bundles if b.sink in component and b.source not in component]
    going = [b for b in bundles if b.source in component and b.sink not in component]
    ports = {(b, end): f"{end} {k}" for end, own in (("first", coming), ("last", going)) for k, b in enumerate(own)}
    boxes = [Box(ports[b, "first"], 0, 0, end="first") for b in coming]
    boxes += [_statement(statements[s], bundles) for s in component]
    boxes += [Box(ports[b, "last"], 0, 0, end="last") for b in going]
    links = [Link(b.source, b.sink, *b.size) for b in inside]
    links += [Link(ports[b, "first"], b.sink) for b in coming]
    links += [Link(b.source, ports[b, "last"]) for b in going]
    return _Cycle(layered(boxes, links), (*inside, *coming, *going), component, ports)


def _put(drawn: _Drawn, bundle: _Bundle, points: Sequence[Point], label_at: Point | None, x: float, y: float) -> None:
    drawn.paths.setdefault(bundle, []).append(points)
    if label_at is not None:
        drawn.labels[bundle] = (x + label_at[0], y + label_at[1])


def _put_loop(drawn: _Drawn, bundle: _Bundle, box: Box) -> None:
    """An arrow from a box to itself, at its right side; the label beside it."""
    x, y = drawn.boxes[bundle.source]
    right, middle = x + box.width, y + box.height / 2
    drawn.paths[bundle] = [[(right, middle - 8), (right, middle + 8)]]
    drawn.labels[bundle] = (right + _LOOP, middle - bundle.size[1] / 2)


# ---------------------------------------------------------------- SVG


def _line(bundle: _Bundle, pieces: Sequence[Sequence[Point]]) -> Iterator[str]:
    if bundle.source == bundle.sink:
        (x, y), (_, z) = pieces[0]
        path = f"M{x:.1f} {y:.1f}C{x + _LOOP:.1f} {y - 6:.1f} {x + _LOOP:.1f} {z + 6:.1f} {x + 6:.1f} {z:.1f}"
        head = _head((x, z), (-1.0, 0.0))
    else:
        path = "".join(_path(piece, start=k == 0) for k, piece in enumerate(pieces))
        start, *_, end = pieces[-1]
        head = _head(end, (0.0, 1.0 if end[1] >= start[1] else -1.0))
    numbers = " ".join(str(k) for k, _ in bundle.arrows)
    look = "arrow carried" if bundle.carried else "arrow"
    yield f'<g class="{look}" data-arrows="{numbers}"><path class="hit" d="{path}"/><path class="line" d="{path}"/>'
    yield f'<path class="head" d="{head}"/></g>'


def _path(points: Sequence[Point], start: bool) -> str:
    """Straight, bent, straight, ...: a bend leaves and arrives vertically."""
    (x, y), *rest = points
    out = [f"{'M' if start else 'L'}{x:.1f} {y:.1f}"]
    for k, (a, b) in enumerate(rest):
        if k % 2 == 0:
            out.append(f"L{a:.1f} {b:.1f}")
        else:
            middle = (y + b) / 2
            out.append(f"C{x:.1f} {middle:.1f} {a:.1f} {middle:.1f} {a:.1f} {b:.1f}")
        x, y = a, b
    return "".join(out)


def _head(tip: Point, direction: Point) -> str:
    (x, y), (dx, dy) = tip, direction
    a = x - 7 * dx + 3.2 * dy, y - 7 * dy + 3.2 * dx
    b = x - 7 * dx - 3.2 * dy, y - 7 * dy - 3.2 * dx
    return f"M{x:.1f} {y:.1f}L{a[0]:.1f} {a[1]:.1f}L{b[0]:.1f} {b[1]:.1f}Z"


def _box(statement: Statement, x: float, y: float, height: float) -> Iterator[str]:
    text = _text(statement)
    width = (len(statement.label) + 2 + len(text)) * _LETTER + 18
    place = f", line {statement.location.line}" if statement.location is not None else ""
    said = escape(f"{statement.label}{place}: {statement.text}")
    yield f'<g class="node" data-node="{statement.label}" tabindex="0" role="img" aria-label="{said}">'
    yield f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="4"/>'
    base = y + height / 2 + 4.3
    at = x + 9 + (len(statement.label) + 1.2) * _LETTER
    yield f'<text class="name" x="{x + 9:.1f}" y="{base:.1f}">{statement.label}</text>'
    yield f'<text x="{at:.1f}" y="{base:.1f}">{escape(text)}</text></g>'
