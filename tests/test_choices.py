"""Choices made at once: as good as the best of all combinations, and none that may not be."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.plan import choices
from weft.plan.choices import Choice, Chosen, NoChoice, Pair, Peak, choose

Programme = tuple[list[Choice], list[Pair], list[Peak]]


def drawn(count: int, seed: int) -> Programme:
    numbers = random.Random(seed)

    def cost(lowest: int) -> int | None:
        return None if numbers.random() < 0.1 else numbers.randint(lowest, 20)

    options = [numbers.randint(1, 3) for _ in range(count)]
    every = [Choice(f"c{k}", tuple(cost(0) for _ in range(n))) for k, n in enumerate(options)]
    pairs, peaks = [], []
    for _ in range(numbers.randint(0, 2 * count) if count > 1 else 0):
        a, b = numbers.sample(range(count), 2)
        pairs.append(Pair(f"c{a}", f"c{b}", tuple(tuple(cost(-5) for _ in range(options[b])) for _ in range(options[a]))))
    for _ in range(numbers.randint(0, 3)):
        there = numbers.sample(range(count), numbers.randint(1, count))
        uses = {f"c{k}": tuple(numbers.randint(0, 9) for _ in range(options[k])) for k in there}
        peaks.append(Peak(uses, numbers.randint(2, 5) * len(there)))
    return every, pairs, peaks


def least(programme: Programme) -> int | None:
    """What the best combination costs, by going through all of them."""
    every, pairs, peaks = programme
    best = None
    for taken in itertools.product(*(range(len(c.costs)) for c in every)):
        at = {c.name: k for c, k in zip(every, taken, strict=True)}
        parts = [c.costs[at[c.name]] for c in every] + [p.costs[at[p.first]][at[p.second]] for p in pairs]
        if None in parts or any(sum(u[at[n]] for n, u in p.uses.items()) > p.limit for p in peaks):
            continue
        total = sum(part for part in parts if part is not None)
        best = total if best is None else min(best, total)
    return best


@pytest.mark.parametrize("solver", [False, True])
@given(st.integers(1, 6), st.integers(0, 10_000))
def test_nothing_costs_less(solver: bool, count: int, seed: int) -> None:
    if solver:
        pytest.importorskip("ortools")
    programme = drawn(count, seed)
    with pytest.MonkeyPatch.context() as patch:
        if solver:
            patch.setattr(choices, "MOST_TRIED", 0)
        try:
            made: Chosen | None = choose(*programme)
        except NoChoice as reason:
            made = None
            assert not reason.unknown
    best = least(programme)
    if made is None:
        assert best is None
    else:
        assert made.least and made.cost == best == choices.cost_of(made.options, *programme)


def test_of_equal_ones_the_same_is_taken() -> None:
    pytest.importorskip("ortools")
    every = [Choice(f"c{k}", (1, 1, 1)) for k in range(12)]
    apart = [Pair(a.name, b.name, ((None, 0, 0), (0, None, 0), (0, 0, None))) for a, b in itertools.pairwise(every)]
    first = choose(every, apart)
    assert first.cost == 12 and first == choose(every, apart)


def test_without_a_solver_many_options_are_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "find_solver", lambda: None)
    assert choose([Choice("a", (2, 1))]).options == {"a": 1}
    with pytest.raises(NoChoice, match="not installed") as reason:
        choose([Choice(f"c{k}", (0, 1)) for k in range(20)])
    assert reason.value.unknown


def test_costs_fit_their_options() -> None:
    with pytest.raises(ValueError, match="2 by 1"):
        choose([Choice("a", (0, 1)), Choice("b", (0,))], [Pair("a", "b", ((0, 0), (1, 1)))])
