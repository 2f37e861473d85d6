"""Counters that data choose, and that a loop reads as it counts: the place of each point among those of its key."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from tests.test_joins_apart import function_of
from weft.loops.analyze import schedule


@weft.kernel
def routed(expert, experts: int):
    place = torch.empty_like(expert)
    count = torch.zeros(experts, dtype=torch.int64)
    for t in range(expert.shape[0]):
        e = expert[t]
        place[t] = count[e]
        count[e] += 1
    return place, count


@weft.kernel
def loads(expert, load, experts: int):
    """What there is after each point, of those that have a load; the first two are left out."""
    after = torch.zeros_like(load)
    total = torch.full((experts,), 7, dtype=torch.int32)
    for t in range(2, expert.shape[0]):
        if load[t] > 0:
            total[expert[t]] += load[t]
        after[t] = total[expert[t]]
    return after, total


@weft.kernel
def slots(expert, experts: int, capacity: int):
    """The tokens of each expert, in their order, as far as there is room."""
    buffer = torch.full((experts, capacity), -1, dtype=torch.int64)
    count = torch.zeros(experts, dtype=torch.int64)
    for t in range(expert.shape[0]):
        e = expert[t]
        p = count[e]
        if p < capacity:
            buffer[e, p] = t
        count[e] = p + 1
    return buffer, count


@weft.kernel
def routed_twice(expert, experts: int):
    rows, n, several = expert.shape
    place = torch.empty_like(expert)
    count = torch.zeros(rows, experts, dtype=torch.int64)
    for b in range(rows):
        for t in range(n):
            for k in range(several):
                place[b, t, k] = count[b, expert[b, t, k]]
                count[b, expert[b, t, k]] += 1
    return place, count


@weft.kernel
def sorted_by_key(keys, bins: int):
    first = torch.zeros(bins + 1, dtype=torch.int64)
    for i in range(keys.shape[0]):
        first[keys[i] + 1] += 1
    for k in range(bins):
        first[k + 1] += first[k]
    order = torch.empty_like(keys)
    for i in range(keys.shape[0]):
        order[first[keys[i]]] = i
        first[keys[i]] += 1
    return order


def keys(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(0))


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "routed": (routed, (keys(5, 300), 5)),
    "more keys than points": (routed, (keys(50, 40), 50)),
    "keys from the end": (routed, (keys(5, 70) - 5, 5)),
    "no points": (routed, (keys(5, 0), 5)),
    "loads": (loads, (keys(4, 90), keys(9, 90).int() - 3, 4)),
    "slots": (slots, (keys(3, 100), 3, 20)),
    "several keys a point": (routed_twice, (keys(7, 2, 40, 2), 7)),
    "sorted": (sorted_by_key, (keys(6, 80), 6)),
}


@pytest.mark.parametrize("name", CASES)
def test_counters_are_those_of_the_loops(name: str) -> None:
    kernel, args = CASES[name]
    found, wanted = kernel(*args), kernel.py(*args)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", ["routed", "slots"])
def test_the_kernels_compute_what_the_loops_do(name: str) -> None:
    kernel, args = CASES[name]
    report = kernel.check(*args)
    assert not report.findings and report.ok, str(report)


@pytest.mark.parametrize("name", ["routed", "loads", "slots", "several keys a point", "sorted"])
def test_no_loop_runs_in_order(name: str) -> None:
    kernel, args = CASES[name]
    found = schedule(function_of(kernel, args))
    assert {v.kind for v in found.loops} <= {"parallel", "reduction", "scan"}
    assert any("runs of" in r for v in found.loops for r in v.requires)


@weft.kernel
def full(expert, experts: int, capacity: int):
    """What a counter is decides whether it counts."""
    place = torch.empty_like(expert)
    count = torch.zeros(experts, dtype=torch.int64)
    for t in range(expert.shape[0]):
        place[t] = -1
        if count[expert[t]] < capacity:
            place[t] = count[expert[t]]
            count[expert[t]] += 1
    return place


def test_a_counter_that_decides_what_it_counts_is_counted_in_order() -> None:
    args = keys(3, 60), 3, 9
    torch.testing.assert_close(full(*args), full.py(*args))
    assert [v.kind for v in schedule(function_of(full, args)).loops] == ["sequential"]


def test_a_key_that_is_none_of_the_counters_is_said_to_leave_them() -> None:
    with pytest.raises(weft.errors.OutOfRange, match="leaves count$|leaves count\n"):
        routed(torch.tensor([0, 7]), 5)
