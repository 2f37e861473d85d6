"""A report as one page: the findings, then the user's source beside the generated code, every line with what it costs.

The page needs no script and nothing from elsewhere: lines that belong together are linked by anchors, and light up
together by a rule of its style sheet for each line of the source.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from html import escape

from weft.check import words
from weft.check.found import Checked, Cost, Found, Launched, costs
from weft.markup import document
from weft.runtime.simulator import Place

_CITED = re.compile(r"^\s*// (?P<file>[^\s:]+\.py):(?P<line>\d+):")
# Lines of the user's source shown around those that a kernel cites.
_AROUND = 3

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --ground: #fff; --panel: #f6f8fa; --edge: #d0d7de;
  --good: #116329; --bad: #b3261e; --moved: #0969da; --wasted: #d1570a; --link: #fff1b8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9aa4af; --ground: #0d1117; --panel: #161b22;
  --edge: #30363d; --good: #57c46c; --bad: #ff8a80; --moved: #58a6ff; --wasted: #ff9d4d; --link: #4d4214; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 110rem; padding: 1.5rem; font: 15px/1.5 system-ui, sans-serif;
  color: var(--ink); background: var(--ground); }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; } h3 { font-size: 1rem; margin: 0; }
a { color: inherit; } code, pre, .code { font: 13px/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.verdict { font-size: 1.1rem; font-weight: 600; margin: .3rem 0; } .good { color: var(--good); } .bad { color: var(--bad); }
.soft { color: var(--soft); } ul.plain { list-style: none; margin: 0; padding: 0; }
article { border: 1px solid var(--edge); border-left: 4px solid var(--bad); border-radius: 4px; padding: .6rem 1rem;
  margin: .7rem 0; background: var(--panel); }
article dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .8rem; margin: .4rem 0 0; }
article dt { color: var(--soft); } article dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; }
th, td { padding: .2rem .9rem .2rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--edge); }
td.n, th.n { text-align: right; white-space: nowrap; }
.pair { display: grid; margin-top: .6rem; grid-template-columns: minmax(0, 2fr) minmax(0, 3fr); gap: 1rem; align-items: start; }
@media (max-width: 70rem) { .pair { grid-template-columns: minmax(0, 1fr); } }
.pair > section { border: 1px solid var(--edge); border-radius: 4px; background: var(--panel); min-width: 0; }
@media (min-width: 70rem) { .pair > section:first-child { position: sticky; top: 1rem; } }
.pair h3 { padding: .4rem .8rem; border-bottom: 1px solid var(--edge); }
.code { overflow: auto; max-height: 85vh; padding: .4rem 0; }
.line { display: grid; grid-template-columns: 2.8rem 7rem max-content; white-space: pre; min-width: max-content;
  border-left: 4px solid transparent; scroll-margin-top: 3rem; }
.line > * { padding: 0 .4rem; } .line > .number, .line > .cost { text-align: right; color: var(--soft); }
.line > .number a { text-decoration: none; }
.costly { background: color-mix(in srgb, var(--moved) calc(8% + var(--share) * 32%), transparent); border-color: var(--moved); }
.wasteful { background: color-mix(in srgb, var(--wasted) calc(12% + var(--share) * 38%), transparent);
  border-color: var(--wasted); }
.line:target { outline: 2px solid var(--moved); outline-offset: -2px; }
.note { display: block; white-space: normal; margin: 0 0 .2rem 10.2rem; padding: .1rem .6rem; max-width: 60rem;
  border-left: 4px solid var(--bad); color: var(--bad); font: 13px/1.45 system-ui, sans-serif; }
.key { display: inline-block; width: 1.6rem; height: .9rem; vertical-align: -.1rem; --share: 1; }
"""


def page(report: Checked) -> str:
    """The whole page."""
    every = costs(report)
    panes = [_Pane(report, k, launch, every) for k, launch in enumerate(report.launches)]
    style = _STYLE + "".join(rule for pane in panes for rule in pane.rules())
    code = [line for pane in panes for line in pane.lines()]
    lines = {name for line in code for name in re.findall(r' id="([^"]+)"', line)}
    body = [
        *_head(report),
        *_findings(report, lines),
        *_problems(report),
        *_results(report),
        *_table(report, every, lines),
        *code,
    ]
    return document(f"{report.kernel}: {words.verdict(report)}", style, "\n".join(body))


def _head(report: Checked) -> Iterator[str]:
    mood = "good" if report.ok else "bad"
    yield "<header>"
    yield f'<h1>{escape(report.kernel)} <span class="soft">on {escape(report.arch)} ({escape(report.device)})</span></h1>'
    yield f'<p class="verdict {mood}">{escape(words.verdict(report))}</p>'
    yield '<ul class="plain soft">' + "".join(f"<li>{escape(x)}</li>" for x in words.circumstances(report)) + "</ul>"
    yield "</header>"


def _linked(place: Place, anchor: str, lines: Set[str]) -> str:
    """A place, as a link to its line where the page shows it."""
    text = escape(words.at(place))
    return f'<a href="#{anchor}-{place.line}">{text}</a>' if f"{anchor}-{place.line}" in lines else text


def _findings(report: Checked, lines: Set[str]) -> Iterator[str]:
    found = report.findings
    if not found:
        return
    yield '<section aria-labelledby="findings">\n<h2 id="findings">Findings</h2>'
    for k, item in enumerate(found):
        yield from _finding(report, k, item, lines)
    yield "</section>"


def _finding(report: Checked, k: int, found: Found, lines: Set[str]) -> Iterator[str]:
    finding, launch = found.finding, report.launches.index(found.launch)
    yield f'<article id="finding-{k}">'
    yield f'<h3><span class="bad">{escape(finding.kind)}</span>: {escape(finding.message)}</h3>\n<dl>'
    places = (
        ("source", finding.user, None, f"user-{launch}"),
        ("kernel", finding.place, found.launch, f"kernel-{launch}"),
        ("header", finding.header, None, ""),
    )
    for what, place, of, anchor in places:
        if place is not None:
            line = escape(report.line(of, place))
            yield f"<dt>{what}</dt><dd>{_linked(place, anchor, lines)} <code>{line}</code></dd>"
    for fact in finding.evidence:
        yield f"<dt>because</dt><dd>{escape(fact)}</dd>"
    if finding.remedy:
        yield f"<dt>remedy</dt><dd>{escape(finding.remedy)}</dd>"
    yield f"<dt>seen</dt><dd>{escape(words.occurrences(found, report))}</dd>"
    yield "</dl>\n</article>"


def _problems(report: Checked) -> Iterator[str]:
    if report.problems:
        yield '<section aria-labelledby="problems">\n<h2 id="problems">Problems</h2>\n<ul class="bad">'
        yield from (f"<li>{escape(problem)}</li>" for problem in report.problems)
        yield "</ul>\n</section>"


def _results(report: Checked) -> Iterator[str]:
    yield '<section aria-labelledby="results">\n<h2 id="results">Results</h2>\n<div class="scroll"><table>'
    for c in report.comparisons:
        mood = "" if c.ok else ' class="bad"'
        yield f'<tr><th scope="row">{escape(c.name)}</th><td{mood}>{escape(words.compared(c))}</td></tr>'
    yield "</table></div>\n</section>"


def _table(report: Checked, every: Sequence[Cost], lines: Set[str]) -> Iterator[str]:
    if not every:
        return
    numbers = ("requests", "a request", "moved", "excess")
    yield '<section aria-labelledby="costs">\n<h2 id="costs">Costs, worst first</h2>\n<div class="scroll"><table>'
    heads = "".join(f'<th scope="col">{h}</th>' for h in ("source", "kernel", "access"))
    yield f"<tr>{heads}" + "".join(f'<th scope="col" class="n">{h}</th>' for h in numbers) + "</tr>"
    for cost in every:
        site, launch = cost.site, report.launches.index(cost.launch)
        user = _linked(site.user, f"user-{launch}", lines) if site.user is not None else "-"
        kernel = _linked(site.place, f"kernel-{launch}", lines)
        cells = f"{site.requests:,}", words.per_request(cost), words.moved(cost), words.excess(cost)
        row = "".join(f'<td class="n">{escape(cell)}</td>' for cell in cells)
        yield f"<tr><td>{user}</td><td>{kernel}</td><td>{escape(words.access(cost))}</td>{row}</tr>"
    yield f'</table></div>\n<p class="soft">{escape(words.LEGEND)}</p>'
    yield (
        '<p class="soft">In the code below <span class="key costly"></span> is a line that moves memory and '
        '<span class="key wasteful"></span> one that moves more than it needs, the stronger the larger its share; '
        "a line's number leads to the line it comes from, or to the first that comes from it.</p>\n</section>"
    )


@dataclass(frozen=True)
class _Line:
    """What is shown beside a line: the share of the launch's cost, the words for it."""

    share: float = 0.0
    wasted: bool = False
    words: str = ""


class _Pane:
    """The user's source and the generated code of one launch, side by side."""

    def __init__(self, report: Checked, k: int, launch: Launched, every: Sequence[Cost]) -> None:
        self.report, self.k, self.launch = report, k, launch
        own = [c for c in every if c.launch is launch]
        self._total = max(1, sum(c.total for c in own))
        self._kernel = self._costs((c.site.place, c) for c in own)
        self._user = self._costs((c.site.user, c) for c in own)
        self._notes = [(n, f) for n, f in enumerate(report.findings) if f.launch is launch]
        self._origin = _origins(launch.source)

    def _costs(self, placed: Iterable[tuple[Place | None, Cost]]) -> dict[Place, _Line]:
        at: dict[Place, list[Cost]] = defaultdict(list)
        for place, cost in placed:
            if place is not None:
                at[place].append(cost)
        lines = {}
        for place, found in at.items():
            total, excess = sum(c.total for c in found), sum(c.excess for c in found)
            ratio = f" x{total / (total - excess):.1f}" if 0 < excess < total else ""
            moved, turns = sum(c.moved for c in found), sum(c.site.turns for c in found)
            what = words.size(moved) if moved else words.counted(turns, "turn")
            lines[place] = _Line(total / self._total, excess > 0, what + ratio)
        return lines

    def rules(self) -> Iterator[str]:
        """The style by which lines that belong together light up together."""
        for place in sorted({p for p in self._origin.values() if p is not None}, key=lambda p: (p.file, p.line)):
            name = f".{self._group(place)}"
            yield f"body:has({name}:hover, {name}:focus-within) {name} {{ background: var(--link); }}\n"

    def _group(self, place: Place) -> str:
        return f"g{self.k}-{re.sub(r'[^A-Za-z0-9]', '_', place.file)}-{place.line}"

    def lines(self) -> Iterator[str]:
        launch = self.launch
        part = " (gradient)" if launch.part == "gradient" else ""
        yield f'<h2 id="launch-{self.k}">{escape(launch.entry)}{part}</h2>'
        notes = launch.resources.notes if launch.resources is not None else ()
        facts = "".join(f"<li>{escape(fact)}</li>" for fact in (words.launched(launch), *notes))
        yield f'<ul class="plain soft">{facts}</ul>\n<div class="pair">'
        cited = sorted({p.file for p in self._origin.values() if p is not None})
        yield "<section>"
        for file in cited:
            yield from self._source(file)
        if not cited:
            yield "<h3>no source is cited</h3>"
        yield f'</section>\n<section>\n<h3>{escape(launch.file)}</h3>\n<div class="code" tabindex="0" role="region"'
        yield f' aria-label="generated code of {escape(launch.entry)}">'
        for number, text in enumerate(launch.source.splitlines(), 1):
            origin = self._origin.get(number)
            back = f"user-{self.k}-{origin.line}" if origin is not None else ""
            cost = self._kernel.get(Place(launch.file, number), _Line())
            yield self._line(f"kernel-{self.k}-{number}", number, text, cost, origin, back)
            yield from self._noted(Place(launch.file, number))
        yield "</div>\n</section>\n</div>"

    def _source(self, file: str) -> Iterator[str]:
        """The part of a source file that the kernel comes from."""
        text = dict(self.report.files).get(file, "").splitlines()
        first_from: dict[int, int] = {}
        for number, origin in self._origin.items():
            if origin is not None and origin.file == file:
                first_from.setdefault(origin.line, number)
        low = max(1, min(first_from) - _AROUND)
        high = min(len(text), max(first_from) + _AROUND)
        yield f'<h3>{escape(file)}</h3>\n<div class="code" tabindex="0" role="region" aria-label="{escape(file)}">'
        for number in range(low, high + 1):
            place = Place(file, number)
            to = f"kernel-{self.k}-{first_from[number]}" if number in first_from else ""
            cost = self._user.get(place, _Line())
            origin = place if number in first_from else None
            yield self._line(f"user-{self.k}-{number}", number, text[number - 1], cost, origin, to)
            yield from self._noted(place)
        yield "</div>"

    def _noted(self, place: Place) -> Iterator[str]:
        """The findings of a line, under it."""
        for n, found in self._notes:
            if place in (found.finding.place, found.finding.user):
                message = f"{found.finding.kind}: {found.finding.message}"
                yield f'<a class="note" href="#finding-{n}">{escape(message)}</a>'

    def _line(self, name: str, number: int, text: str, cost: _Line, origin: Place | None, to: str) -> str:
        classes = ["line"]
        if cost.words:
            classes.append("wasteful" if cost.wasted else "costly")
        if origin is not None:
            classes.append(self._group(origin))
        share = f' style="--share:{cost.share:.3f}"' if cost.words else ""
        shown = f'<a href="#{to}">{number}</a>' if to else str(number)
        return (
            f'<div class="{" ".join(classes)}" id="{name}"{share}><span class="number">{shown}</span>'
            f'<span class="cost">{escape(cost.words)}</span><code>{escape(text) or " "}</code></div>'
        )


def _origins(source: str) -> dict[int, Place | None]:
    """The line of the user's source that each line of a kernel comes from: that of the nearest comment above that cites
    one, in the same function.
    """
    out: dict[int, Place | None] = {}
    origin: Place | None = None
    for number, text in enumerate(source.splitlines(), 1):
        cited = _CITED.match(text)
        if cited is not None:
            origin = Place(cited["file"], int(cited["line"]))
        elif not text.strip():
            origin = None
        out[number] = origin
    return out
