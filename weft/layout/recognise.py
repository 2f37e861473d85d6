"""The layout of a list of values, if there is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Misfit(NamedTuple):
    """Why values are those of no layout: one right before `position` gives `found` there, not `value`."""

    position: int
    value: Any
    found: Any
    reason: str


def recognise(values: Sequence[Any], total: int | None) -> tuple[list[int], list[Any]] | Misfit | None:
    """Sizes and strides of the one coalesced layout with these values, the first of which is zero.

    The first run of constant steps must be the first mode: its length must divide the whole and the same run must start
    at each of its multiples. Then the values at those multiples are read the same way. total: how many values there
    are, where only the first of them are given; the answer is then a misfit among these, or None for no answer.
    """
    sizes: list[int] = []
    strides: list[Any] = []
    scale = 1
    while len(values) > 1:
        n = len(values)
        whole = n if total is None else total // scale
        step = values[1]
        run = 2
        while run < n and values[run] == run * step:
            run += 1
        if run < n:
            if whole % run:
                reason = f"a run of {run * scale} ends there, and {run} does not divide {whole}"
                return Misfit(run * scale, values[run], run * step, reason)
            for start in range(run, n, run):
                for j in range(1, min(run, n - start)):
                    found = values[start] + j * step
                    if values[start + j] != found:
                        reason = f"the run of the first {run} steps is not repeated there"
                        return Misfit((start + j) * scale, values[start + j], found, reason)
        sizes.append(run)
        strides.append(step)
        values = values[::run]
        scale *= run
    return (sizes, strides) if total is None or total == scale else None
