"""Places in one memory by lifetime: no two meet, aligned, never more than what simple ways give, least where few are there."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.plan import memory, solver
from weft.plan.memory import Placement, Tenant, placed

ALIGNMENTS = (1, 4, 16, 256)


def drawn(count: int, steps: int, most: int, seed: int) -> list[Tenant]:
    numbers = random.Random(seed)
    found = []
    for k in range(count):
        first = numbers.randrange(steps)
        last = min(steps - 1, first + int(numbers.expovariate(4 / steps)))
        found.append(Tenant(f"t{k}", numbers.randint(0, most), first, last, numbers.choice(ALIGNMENTS)))
    return found


def check(tenants: list[Tenant], placement: Placement) -> None:
    at = placement.offsets
    for t in tenants:
        assert at[t.name] % t.alignment == 0 and at[t.name] >= 0
        assert t.bytes == 0 or at[t.name] + t.bytes <= placement.size
    for a, b in itertools.combinations([t for t in tenants if t.bytes], 2):
        if a.first <= b.last and b.first <= a.last:
            assert at[a.name] + a.bytes <= at[b.name] or at[b.name] + b.bytes <= at[a.name], (a, b)
    assert placement.bound <= placement.size <= placement.apart or not tenants


def first_fit(tenants: list[Tenant]) -> int:
    """The size that tenants need when each is put at the first free place as it comes."""
    down: list[tuple[int, Tenant]] = []
    for t in sorted(tenants, key=lambda t: t.first):
        place = 0
        for offset, other in sorted((d for d in down if d[1].meets(t)), key=lambda d: d[0]):
            if place + t.bytes <= offset:
                break
            place = max(place, -(-(offset + other.bytes) // t.alignment) * t.alignment)
        down.append((place, t))
    return max((offset + t.bytes for offset, t in down), default=0)


def least(tenants: list[Tenant]) -> int:
    """The least size there is: of all orders, with the first free place each."""
    def in_order(order: tuple[Tenant, ...]) -> int:
        down: list[tuple[int, Tenant]] = []
        for t in order:
            met = sorted(((o, other) for o, other in down if other.meets(t)), key=lambda d: d[0])
            place = 0
            for offset, other in met:
                if place + t.bytes > offset:
                    place = max(place, -(-(offset + other.bytes) // t.alignment) * t.alignment)
            down.append((place, t))
        return max(offset + t.bytes for offset, t in down)

    return min(map(in_order, itertools.permutations(tenants)))


@given(st.integers(0, 60), st.integers(1, 40), st.integers(0, 10_000))
def test_what_is_there_together_lies_apart(count: int, steps: int, seed: int) -> None:
    tenants = drawn(count, steps, 1000, seed)
    placement = placed(tenants, most_work=0.05)
    check(tenants, placement)
    assert placement.size <= first_fit(tenants) + 255 or count == 0
    assert placed(tenants[::-1], most_work=0.05) == placement


@given(st.integers(1, 6), st.integers(2, 6), st.integers(0, 10_000))
def test_few_take_the_least_memory(count: int, steps: int, seed: int) -> None:
    tenants = [Tenant(t.name, 16 * (1 + t.bytes), t.first, t.last, 16) for t in drawn(count, steps, 9, seed)]
    placement = placed(tenants)
    assert placement.size == least(tenants) and placement.least


def test_thirty_take_the_least_memory() -> None:
    """Where no order of putting down reaches the least, a search does, and says so."""
    pytest.importorskip("ortools")
    shorter = 0
    for seed in range(12):
        tenants = [Tenant(t.name, 1 + t.bytes, t.first, t.last) for t in drawn(30, 12, 40, seed)]
        without = min(way.size for way in memory._put_down(tenants))
        placement = placed(tenants)
        check(tenants, placement)
        assert placement.least and placement.size <= without
        shorter += placement.size < without
    assert shorter


def test_without_a_solver_the_shortest_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "find_solver", lambda: None)
    for seed in range(12):
        tenants = drawn(30, 12, 40, seed)
        placement = placed(tenants)
        check(tenants, placement)
        assert placement.least == (placement.size == placement.bound)


def test_tenants_are_told_apart_and_sound() -> None:
    with pytest.raises(ValueError, match="one name"):
        placed([Tenant("a", 1, 0, 0), Tenant("a", 1, 1, 1)])
    with pytest.raises(ValueError, match="no tenant"):
        Tenant("a", 1, 2, 1)
    assert placed([]) == Placement({}, 0, 0, 0, True)


def test_the_solver_is_imported_where_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "find_solver", lambda: pytest.fail("asked"))
    monkeypatch.setattr(memory, "find_solver", lambda: pytest.fail("asked"))
    assert placed([Tenant("a", 64, 0, 1, 16), Tenant("b", 32, 1, 2, 16), Tenant("c", 64, 2, 3, 16)]).size == 96
