"""The words of what launches leave for each other: how much memory that takes, and where each of it lies when."""

from __future__ import annotations

import re

from weft.compiler import Workspace
from weft.explain.plans import bytes_text
from weft.loops.ir import Function
from weft.loops.show import renamed, user_names


def memory_lines(shared: Workspace, function: Function, launches: int) -> list[str]:
    """A line for the whole, and one for each intermediate; none where there are none. launches: of the call."""
    if not shared.tenants:
        return []
    placement, names = shared.placement, user_names(function)
    lines = [f"{bytes_text(shared.size)} in one allocation"]
    if placement.apart > placement.size:
        lines[0] += f", {bytes_text(placement.apart)} if each had its own"
    if placement.bound < placement.size:
        lines[0] += f"; {bytes_text(placement.bound)} are there at one time"
    zero = {t.name for own in shared.cleared.values() for t in own}
    rows = []
    for t in shared.tenants:
        name = renamed(re.sub(r"^(\d+\.)+", "", t.name), names)
        when = f"launch {t.first + 1}" if t.first == t.last else f"launches {t.first + 1} to {t.last + 1}"
        when = "" if launches == 1 else f"  {when}"
        cleared = ", 0 at first" if t.name in zero else ""
        rows.append((name, bytes_text(t.bytes), f"at {placement.offsets[t.name]:,}", f"{when}{cleared}"))
    widths = [max(len(row[k]) for row in rows) for k in range(3)]
    for name, size, place, when in rows:
        lines.append(f"{name:<{widths[0]}}  {size:>{widths[1]}} {place:<{widths[2]}}{when}".rstrip())
    return lines
