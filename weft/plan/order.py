"""The order of what a block does: tasks in levels, with a barrier between one level and the next.

What a task makes is there for those of later levels, so there are as many levels as the longest chain of tasks has: no order
has fewer barriers. Among such orders the one is taken in which the most that is kept at one level is the least.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

MOST_TRIED = 4096  # orders that are gone through one by one


@dataclass(frozen=True)
class Task:
    """makes: the bytes of each tile that it makes; needs: tiles that others make. A tile that no task of these makes was there
    before. Each tile is made by one task.
    """

    name: str
    makes: Mapping[str, int]
    needs: frozenset[str] = frozenset()


def levels(tasks: Sequence[Task], kept: frozenset[str] = frozenset()) -> tuple[tuple[str, ...], ...]:
    """The tasks' names, level by level. kept: tiles that are there after the last level too."""
    makers = {tile: t for t in tasks for tile in t.makes}
    before = {t.name: {makers[n].name for n in t.needs if n in makers} for t in tasks}
    first: dict[str, int] = {}
    for t in _sorted(tasks, before):
        first[t.name] = max((first[n] + 1 for n in before[t.name]), default=0)
    depth = max(first.values(), default=-1) + 1
    last: dict[str, int] = {}
    for t in reversed(_sorted(tasks, before)):
        after = [last[o.name] - 1 for o in tasks if t.name in before[o.name]]
        last[t.name] = min(after, default=depth - 1)
    ranges = {t.name: range(first[t.name], last[t.name] + 1) for t in tasks}
    orders: Iterator[dict[str, int]] = iter((first, last))
    if math.prod(map(len, ranges.values())) <= MOST_TRIED:
        orders = (dict(zip(ranges, at, strict=True)) for at in itertools.product(*ranges.values()))
    possible = (at for at in orders if all(at[n] < at[name] for name, own in before.items() for n in own))
    best = min(possible, key=lambda at: (peak(tasks, at, kept), sum(at.values())), default={})
    return tuple(tuple(t.name for t in tasks if best[t.name] == k) for k in range(depth))


def peak(tasks: Sequence[Task], level: Mapping[str, int], kept: frozenset[str] = frozenset()) -> int:
    """The most bytes that are kept at one level, where tasks have these levels."""
    end = max(level.values(), default=0)
    spans = []
    for t in tasks:
        for tile, size in t.makes.items():
            users = [level[o.name] for o in tasks if tile in o.needs]
            spans.append((level[t.name], end if tile in kept else max(users, default=level[t.name]), size))
    return max((sum(size for low, high, size in spans if low <= k <= high) for k in range(end + 1)), default=0)


def _sorted(tasks: Sequence[Task], before: Mapping[str, set[str]]) -> list[Task]:
    """The tasks, each after those that it needs."""
    done: list[Task] = []
    names: set[str] = set()
    while len(done) < len(tasks):
        ready = [t for t in tasks if t.name not in names and before[t.name] <= names]
        assert ready, "tasks need each other"
        done += ready
        names |= {t.name for t in ready}
    return done
