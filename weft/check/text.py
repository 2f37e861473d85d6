"""A report in a terminal: the verdict, the findings as errors look, the comparison, launches, costs by line."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from weft.check import words
from weft.check.found import Checked, Found, Launched, costs
from weft.runtime.simulator import Place

# Lines of the table of costs.
_MOST_COSTS = 12


def plain(report: Checked, width: int) -> str:
    """The report without colours."""
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None, force_terminal=False, legacy_windows=False)
    console.print(rendered(report))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def rendered(report: Checked) -> Group:
    """The report for rich."""
    return Group(*_parts(report))


def _parts(report: Checked) -> Iterator[RenderableType]:
    colour = "green" if report.ok else "red"
    yield Text.assemble((f"{report.kernel} on {report.arch}: ", "bold"), (words.verdict(report), f"bold {colour}"))
    for line in words.circumstances(report):
        yield _indented(Text(line, "dim"))
    for found in report.findings:
        yield Text()
        yield from _finding(report, found)
    yield from _section("Problems", [Text(p, "red") for p in report.problems])
    results = [
        Text.assemble((f"{c.name}  ", "bold"), (words.compared(c), "" if c.ok else "red")) for c in report.comparisons
    ]
    yield from _section("Results", results)
    yield from _section("Launches", [line for launch in report.launches for line in _launch(launch)])
    yield from _costs(report)


def _section(title: str, lines: list[Text]) -> Iterator[RenderableType]:
    if lines:
        yield Text()
        yield Text(title, "bold")
        yield from (_indented(line) for line in lines)


def _indented(item: RenderableType, by: int = 2) -> Padding:
    return Padding(item, (0, 0, 0, by))


def _finding(report: Checked, found: Found) -> Iterator[RenderableType]:
    finding = found.finding
    yield Text.assemble((f"{finding.kind}: ", "bold red"), (finding.message, "bold"))
    yield from _place(report, None, "at", finding.user)
    yield from _place(report, found.launch, "in", finding.place)
    yield from _place(report, None, "by", finding.header)
    for fact in finding.evidence:
        yield _indented(Text(f"because: {fact}"))
    if finding.remedy:
        yield _indented(Text.assemble(("remedy: ", "bold"), finding.remedy))
    yield _indented(Text(words.occurrences(found, report), "dim"))


def _place(report: Checked, launch: Launched | None, word: str, place: Place | None) -> Iterator[RenderableType]:
    """Where: the file and the line, and the line itself."""
    if place is None:
        return
    yield _indented(Text(f"{word} {words.at(place)}", "cyan"))
    line = report.line(launch, place)
    if line:
        yield _indented(Text(line), 6)


def _launch(launch: Launched) -> Iterator[Text]:
    part = "  (gradient)" if launch.part == "gradient" else ""
    yield Text.assemble((launch.entry, "bold"), f"  {words.launched(launch)}{part}")
    if launch.resources is not None:
        yield from (Text(f"  {note}", "yellow") for note in launch.resources.notes)


def _costs(report: Checked) -> Iterator[RenderableType]:
    every = costs(report)
    if not every:
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for heading in ("source", "kernel", "access"):
        table.add_column(heading, overflow="fold")
    for heading in ("requests", "a request", "moved", "excess"):
        table.add_column(heading, justify="right", no_wrap=True)
    for cost in every[:_MOST_COSTS]:
        site = cost.site
        style = "red" if cost.ratio >= 2 else "yellow" if cost.excess > 0 else ""
        table.add_row(
            words.at(site.user) if site.user is not None else "-",
            words.at(site.place),
            words.access(cost),
            f"{site.requests:,}",
            words.per_request(cost),
            words.moved(cost),
            Text(words.excess(cost), style),
        )
    yield Text()
    yield Text("Costs, worst first", "bold")
    yield _indented(table)
    left = every[_MOST_COSTS:]
    if left:
        waste = sum(c.excess > 0 for c in left)
        rest = f"{len(left)} more, {waste} of them with an excess" if waste else f"{len(left)} more without excess"
        yield _indented(Text(rest, "dim"))
    yield _indented(Text(words.LEGEND, "dim"))
