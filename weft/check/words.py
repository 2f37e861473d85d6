"""Sentences and numbers that the text and the page of a report share."""

from __future__ import annotations

import math
import re

from weft.check.found import SECTOR, Checked, Comparison, Cost, Found, Launched
from weft.runtime.simulator import Place


def verdict(report: Checked) -> str:
    """One line: what was found, and whether the results are the Python's."""
    found = len(report.findings)
    parts = [counted(found, "finding") if found else "no findings"]
    worse = [c.name for c in report.differences]
    equal = "equal to " + re.sub(r" \([^)]*\)", "", report.reference)
    parts.append(f"{_listed(worse)} differ{'s' if len(worse) == 1 else ''}" if worse else equal)
    if report.problems:
        parts.append(counted(len(report.problems), "problem") + " of resources")
    return "; ".join(parts)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def circumstances(report: Checked) -> list[str]:
    """What was run: arguments, how they were made, schedules, what it was compared with."""
    seeds = len(report.seeds)
    which = f"seed {report.seeds[0]}" if seeds == 1 else f"seeds {report.seeds[0]} to {report.seeds[-1]}"
    schedules = f"{counted(seeds, 'schedule')} of the threads ({which})"
    lines = [", ".join(report.arguments)] if report.arguments else []
    lines += [report.inputs] if report.inputs else []
    return [*lines, f"{schedules}; compared with {report.reference}"]


def compared(c: Comparison) -> str:
    """How one array compares with the reference."""
    whole = f"{c.dtype}[{', '.join(map(str, c.shape))}]"
    if not c.elements:
        return f"{whole}: no elements"
    if not c.error and c.ok:
        return f"{whole}: every element equal"
    at = f"{c.name}[{', '.join(map(str, c.index))}]" if c.index else c.name
    ulps = f" ({number(c.ulps)} ulp)" if math.isfinite(c.ulps) and "float" in c.dtype else ""
    off = f": off by {c.error:.2g}{ulps}" if math.isfinite(c.error) else ""
    worst = f"{at} is {c.got:.9g}, the reference {c.want:.9g}{off}"
    if c.ok:
        beyond = " or what rounding does to it" if c.sensitive else ""
        return f"{whole}: equal within {c.tolerance:g}{beyond}; worst {worst}"
    parts = [f"{c.differing:,} of {c.elements:,} elements differ by more than {c.tolerance:g}"] if c.differing else []
    if c.unwritten:
        parts.append(f"{c.unwritten:,} of {c.elements:,} elements are never written")
    if c.differing_seeds:
        parts.append(f"the bits change with the schedule (seeds {', '.join(map(str, c.differing_seeds))})")
    return f"{whole}: {'; '.join(parts)}; worst {worst}"


def launched(launch: Launched) -> str:
    """The size of a launch and what it takes."""
    parts = [f"{counted(launch.blocks, 'block')} of {counted(launch.threads, 'thread')}"]
    r = launch.resources
    if r is None:
        parts.append("registers unknown without NVRTC")
    else:
        parts.append(f"{r.registers} registers")
        parts += [f"{r.shared:,} B shared"] if r.shared else []
        parts.append(f"{counted(r.blocks, 'block')} a multiprocessor (by {r.limit})")
    if launch.simulations:
        barriers = launch.simulations[0].barriers
        parts += [counted(barriers, "barrier")] if barriers else []
    return ", ".join(parts)


def at(place: Place) -> str:
    """`linrec.cu:40`, or the file alone where the line is not known."""
    return f"{place.file}:{place.line}" if place.line else place.file


def access(cost: Cost) -> str:
    """`load of x, 16 B`: the bytes are those of a lane."""
    site = cost.site
    of = f" of {site.array}" if site.array else f" of {site.space} memory"
    return f"{site.action}{of}, {site.width} B"


def per_request(cost: Cost) -> str:
    """What a request costs on average, and in brackets the least it could: sectors, or turns of the banks and the
    worst conflict of a request.
    """
    site = cost.site
    requests = max(1, site.requests)
    got, least, unit = (
        (site.turns, site.ideal_turns, "turn") if site.space == "shared" else (site.sectors, site.ideal_sectors, "sector")
    )
    text = f"{number(got / requests)} {unit}{'' if got == requests else 's'}"
    if got == least:
        return text
    worst = f", worst {site.degree}-way" if site.space == "shared" else ""
    return f"{text} (ideal {number(least / requests)}{worst})"


def excess(cost: Cost) -> str:
    """What is wasted, beside what is needed."""
    return f"+{100 * (cost.ratio - 1):.0f}%" if cost.excess > 0 else "-"


def moved(cost: Cost) -> str:
    return "-" if cost.site.space == "shared" else size(cost.moved)


def size(count: int) -> str:
    """Bytes in the unit that suits them: 4.2 MB."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError


def counted(count: int, what: str) -> str:
    """`1 block`, `2,000 blocks`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def number(value: float) -> str:
    """At most one digit after the point, none where it is whole."""
    return f"{value:,.0f}" if value == round(value) or abs(value) >= 100 else f"{value:,.1f}"


def occurrences(found: Found, report: Checked) -> str:
    """How often a finding showed, and under which schedules."""
    times = "once" if found.finding.times == 1 else f"{found.finding.times:,} times"
    if len(report.seeds) == 1:
        return times
    if len(found.seeds) == len(report.seeds):
        return f"{times}, under every schedule"
    return f"{times}, with seed{'' if len(found.seeds) == 1 else 's'} {', '.join(map(str, found.seeds))}"


LEGEND = (
    f"A sector is {SECTOR} B of global memory, the least that moves; a turn is one pass of the 32 banks of shared memory. "
    "Both are counted a request, which is one instruction of a warp; the bytes of an access are those of a lane."
)
