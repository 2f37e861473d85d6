"""An explanation as one page that needs nothing else: the source and its dependence graph side by side, linked line by
line; the verdict of each loop in the margin; the program that runs, every dependence and the plan below.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import escape
from importlib.resources import files
from pathlib import Path

from weft.errors import WeftError
from weft.explain.drawing import drawing, told
from weft.explain.explained import Explained
from weft.explain.memory import memory_lines
from weft.explain.plans import plan_line, plan_lines, value_lines
from weft.explain.source import Line, Passage, passages
from weft.explain.words import details, double_lines, kind_text, signature_text, sizes_text, unbroken, unused_lines
from weft.loops.graph import Arrow
from weft.loops.schedule import KINDS, Verdict
from weft.markup import document

_KEYWORDS = (
    "and|as|assert|def|elif|else|False|for|from|if|import|in|is|lambda|None|not|or|return|True|while|with|break|continue"
)
_TOKEN = re.compile(rf"(?P<string>\"[^\"]*\"|'[^']*')|(?P<comment>#.*)|\b(?P<keyword>{_KEYWORDS})\b")


def page(explained: Explained) -> str:
    """The whole page."""
    title = f"{explained.written.name}: its loops"
    arrows = [{"source": a.source, "sink": a.sink, "told": unbroken(told(a))} for a in explained.graph.arrows]
    data = json.dumps(arrows).replace("<", "\\u003c")
    graph, width = drawing(explained.graph)
    body = [
        *_head(explained),
        f'<main>\n<div class="pair" style="--width: {width}px">\n<section aria-label="source">',
        *(line for k, passage in enumerate(passages(explained)) for line in _source(k, passage, explained)),
        *_key(explained),
        '</section>\n<section class="graph" aria-label="dependence graph">',
        f'<div class="scroll">{graph}</div>',
        '<div class="told" id="told" aria-live="polite"><p class="soft">Point at a line, a statement or an arrow, or reach it '
        "with the Tab key: what depends on it lights up, and is told here.</p></div>",
        "</section>\n</div>",
        *_tabs(explained),
        f'</main>\n<script type="application/json" id="arrows">{data}</script>',
        f"<script>{_file('page.js')}</script>",
    ]
    return document(title, _file("page.css"), "\n".join(body))


def refusal(name: str, error: WeftError) -> str:
    """The page of a function that is not compiled: why, and what to do."""
    body = [f'<header><h1>{escape(name)}</h1><p class="summary"><b class="sequential">refused</b></p></header>']
    body.append(f'<main class="refused"><p>{escape(error.message)}</p>')
    if error.location is not None:
        body.append(f"<pre>{escape(error.location.render())}</pre>")
    facts = [("because", fact) for fact in error.evidence] + ([("remedy", error.remedy)] if error.remedy else [])
    body += ["<dl>", *(f"<dt>{what}</dt><dd>{escape(fact)}</dd>" for what, fact in facts), "</dl></main>"]
    return document(f"{name}: refused", _file("page.css"), "\n".join(body))


def _file(name: str) -> str:
    return files("weft.explain").joinpath(name).read_text(encoding="utf-8")


def _head(explained: Explained) -> Iterator[str]:
    yield f"<header>\n<h1>{escape(explained.written.name)}</h1>"
    yield '<button class="theme" id="theme" type="button" aria-label="light or dark" title="light or dark">◐</button>'
    signature = signature_text(explained.found.function)
    yield f'<p class="signature">{escape(signature)}</p>'
    sizes = sizes_text(signature, explained.sizes)
    if sizes:
        yield f'<p class="signature">with {escape(sizes)}</p>'
    verdicts = [f'<code>{escape(v.var)}</code> <b class="{v.kind}">{escape(kind_text(v))}</b>' for v in explained.loops]
    yield f'<p class="summary">{" · ".join(verdicts) or "no loops"}</p>'
    if explained.analysis is not None:
        yield f"<p>On a GPU: {escape(plan_line(explained.launches))}.</p>"
    yield from (f'<p class="soft">{escape(line)}</p>' for line in double_lines(explained.written))
    yield "</header>"


# ---------------------------------------------------------------- the source


def _source(k: int, passage: Passage, explained: Explained) -> Iterator[str]:
    yield f'<p class="file">{escape(Path(passage.file).name)}</p>'
    lines = {line.number: line for line in passage.lines}
    depth = max((len(line.rails) for line in passage.lines), default=0)
    yield f'<div class="source" style="--depth: {depth}">'
    for line in passage.lines:
        before, after = lines.get(line.number - 1), lines.get(line.number + 1)
        yield _line(k, line, before, after)
        for v in line.verdicts:
            yield from _why(v, explained)
    yield "</div>"


def _line(k: int, line: Line, before: Line | None, after: Line | None) -> str:
    rails = []
    for v in line.rails:
        ends = ["first"] if before is None or v not in before.rails else []
        ends += ["last"] if after is None or v not in after.rails else []
        rails.append(f'<i class="{" ".join([v.kind, *ends])}"></i>')
    inside = f" in {line.rails[-1].kind}" if line.rails else ""
    linked = f' data-nodes="{" ".join(line.statements)}" tabindex="0"' if line.statements else ""
    labels = f'<span class="labels">{" ".join(line.statements)}</span>' if line.statements else ""
    buttons = "".join(
        f'<button type="button" class="verdict {v.kind}" aria-expanded="false" aria-controls="why-{escape(v.var)}">'
        f"{escape(v.var)}: {escape(kind_text(v))}</button>"
        for v in line.verdicts
    )
    return (
        f'<div class="line{inside}" id="line-{k}-{line.number}"{linked}><span class="number">{line.number}</span>'
        f'<span class="rails">{"".join(rails)}</span><code>{_shown(line)}</code>'
        f'<span class="margin">{buttons}{labels}</span></div>'
    )


def _shown(line: Line) -> str:
    if line.quoted:
        return f'<span class="comment">{escape(line.text, quote=False)}</span>'
    return _highlighted(line.text) or " "


def _highlighted(text: str) -> str:
    """A line of Python with its keywords and comments marked."""
    out, at = [], 0
    for found in _TOKEN.finditer(text):
        out.append(escape(text[at : found.start()], quote=False))
        token = escape(found.group(), quote=False)
        kind = found.lastgroup
        out.append(token if kind == "string" else f'<span class="{kind}">{token}</span>')
        at = found.end()
    return "".join([*out, escape(text[at:], quote=False)])


def _why(v: Verdict, explained: Explained) -> Iterator[str]:
    yield f'<div class="why {v.kind}" id="why-{escape(v.var)}" hidden>'
    facts = details(v, explained.found.function)
    yield from (f"<p>{escape(unbroken(text))}</p>" for what, text in facts if not what)
    named = [(what, text) for what, text in facts if what]
    if v.algebra:
        named.insert(0, ("algebra", ", ".join(v.algebra)))
    if named:
        yield "<dl>" + "".join(f"<dt>{what}</dt><dd>{escape(text)}</dd>" for what, text in named) + "</dl>"
    yield "</div>"


def _key(explained: Explained) -> Iterator[str]:
    kinds = {v.kind for v in explained.loops}
    yield '<ul class="key" aria-label="key">'
    yield from (f'<li><i class="{kind}"></i>{kind}</li>' for kind in KINDS if kind in kinds)
    for look, what in (("", "in one iteration"), (" carried", "carried by a loop")):
        svg = f'<svg viewBox="0 0 30 8" aria-hidden="true"><g class="arrow{look}"><path class="line" d="M0 4L24 4"/>'
        yield f'<li>{svg}<path class="head" d="M30 4L23 1L23 7Z"/></g></svg>{what}</li>'
    yield "</ul>"


# ---------------------------------------------------------------- the tabs


def _tabs(explained: Explained) -> Iterator[str]:
    panels = [("program", "The program that runs", [f"<pre>{_program(explained.program)}</pre>"])]
    panels.append(("dependences", "Every dependence", list(_table(explained))))
    if explained.analysis is not None:
        panels.append(("plan", "The plan on a GPU", list(_plan(explained))))
    yield '<section class="tabs">\n<div role="tablist" aria-label="more">'
    for k, (name, title, _) in enumerate(panels):
        chosen = "true" if k == 0 else "false"
        yield (
            f'<button type="button" role="tab" id="tab-{name}" aria-controls="{name}" aria-selected="{chosen}"'
            f' tabindex="{0 if k == 0 else -1}">{title}</button>'
        )
    yield "</div>"
    for k, (name, _, content) in enumerate(panels):
        hidden = "" if k == 0 else " hidden"
        yield f'<div role="tabpanel" id="{name}" aria-labelledby="tab-{name}" tabindex="0"{hidden}>'
        yield from content
        yield "</div>"
    yield "</section>"


def _program(text: str) -> str:
    return "\n".join(map(_highlighted, text.splitlines()))


def _table(explained: Explained) -> Iterator[str]:
    if not explained.graph.arrows:
        yield "<p>There is none.</p>"
        return
    heads = "".join(f'<th scope="col">{h}</th>' for h in ("from", "to", "kind", "of", "distance", "in words"))
    yield f'<div class="wide"><table><tr>{heads}</tr>'
    for a in explained.graph.arrows:
        cells = (a.source, a.sink, "RAW (flow)" if a.kind == "flow" else a.kind, a.name, _vector(a), told(a))
        yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
    yield "</table></div>"


def _vector(arrow: Arrow) -> str:
    return f"({', '.join(map(str, arrow.distance))})" if arrow.loops and arrow.kind != "control" else ""


def _plan(explained: Explained) -> Iterator[str]:
    for launch in explained.launches:
        if len(explained.launches) > 1:
            yield f"<h2>{escape(launch.nest.name)}</h2>"
        yield "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in plan_lines(launch, explained.numbers)) + "</ul>"
        if values := value_lines(launch, explained.numbers):
            yield "<pre>" + escape("\n".join(values)) + "</pre>"
    if memory := memory_lines(explained.shared, explained.found.function, len(explained.launches)):
        yield "<h2>memory that launches share</h2><pre>" + escape("\n".join(memory)) + "</pre>"
    if explained.operands:
        yield "<pre>" + escape("\n".join(explained.operands)) + "</pre>"
    yield from (f"<p>{escape(unbroken(line))}</p>" for line in unused_lines(explained.unused))
