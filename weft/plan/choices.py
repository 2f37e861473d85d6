"""Choices that depend on each other, made at once: a 0/1 programme.

Each choice has a few options. What they cost is a sum over single choices and over pairs of them; some pairs of options do not
go together; and at no step may what the options use of a resource, as memory, be more than there is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from weft.plan.solver import MOST_WORK, find_solver, solve

# Combinations that are gone through one by one, as quickly as the solver is imported.
MOST_TRIED = 4096


@dataclass(frozen=True)
class Choice:
    """costs: of each option, an int each; None where it may not be taken."""

    name: str
    costs: tuple[int | None, ...]


@dataclass(frozen=True)
class Pair:
    """costs: what it costs besides that `first` is one option (row) and `second` another (column); None where it may not."""

    first: str
    second: str
    costs: tuple[tuple[int | None, ...], ...]


@dataclass(frozen=True)
class Peak:
    """What the options of some choices use of a resource at one step, of which there is `limit`."""

    uses: Mapping[str, tuple[int, ...]]
    limit: int


@dataclass(frozen=True)
class Chosen:
    """The options by choice, and what they cost together. least: whether it is certain that nothing costs less."""

    options: Mapping[str, int]
    cost: int
    least: bool = True


class NoChoice(Exception):
    """No options go together; or, where `unknown`, none were found."""

    def __init__(self, message: str, unknown: bool = False) -> None:
        super().__init__(message)
        self.unknown = unknown


def choose(
    choices: Sequence[Choice], pairs: Sequence[Pair] = (), peaks: Sequence[Peak] = (), most_work: float = MOST_WORK
) -> Chosen:
    """The options that cost least; of equal ones always the same. Raises NoChoice. most_work: what the search may take."""
    for pair in pairs:
        sides = tuple(len(_of(choices, name).costs) for name in (pair.first, pair.second))
        if {(len(pair.costs), len(row)) for row in pair.costs} != {sides}:
            raise ValueError(f"the costs of {pair.first} and {pair.second} are not of {sides[0]} by {sides[1]} options")
    if math.prod(len(c.costs) for c in choices) <= MOST_TRIED:
        return _tried(choices, pairs, peaks)
    return _solved(choices, pairs, peaks, most_work)


def _of(choices: Sequence[Choice], name: str) -> Choice:
    return next(c for c in choices if c.name == name)


def cost_of(options: Mapping[str, int], choices: Sequence[Choice], pairs: Sequence[Pair], peaks: Sequence[Peak]) -> int | None:
    """What these options cost; None where they may not be taken together."""
    parts = [c.costs[options[c.name]] for c in choices] + [p.costs[options[p.first]][options[p.second]] for p in pairs]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or any(sum(u[options[n]] for n, u in peak.uses.items()) > peak.limit for peak in peaks):
        return None
    return sum(known)


# ---------------------------------------------------------------- few: one by one


def _tried(choices: Sequence[Choice], pairs: Sequence[Pair], peaks: Sequence[Peak]) -> Chosen:
    def possible() -> Iterator[tuple[int, tuple[int, ...]]]:
        names = [c.name for c in choices]
        for options in itertools.product(*(range(len(c.costs)) for c in choices)):
            cost = cost_of(dict(zip(names, options, strict=True)), choices, pairs, peaks)
            if cost is not None:
                yield cost, options

    best = min(possible(), default=None)
    if best is None:
        raise NoChoice("no options go together")
    return Chosen(dict(zip((c.name for c in choices), best[1], strict=True)), best[0])


# ---------------------------------------------------------------- many: the solver


def _solved(choices: Sequence[Choice], pairs: Sequence[Pair], peaks: Sequence[Peak], most_work: float) -> Chosen:
    cp_model = find_solver()
    if cp_model is None:
        raise NoChoice("too many options to try all of them, and OR-tools is not installed", unknown=True)
    model = cp_model.CpModel()
    taken = {c.name: [model.new_bool_var(f"{c.name} {k}") for k in range(len(c.costs))] for c in choices}
    terms = []
    for c in choices:
        model.add_exactly_one(taken[c.name])
        for literal, cost in zip(taken[c.name], c.costs, strict=True):
            if cost is None:
                model.add(literal == 0)
            elif cost:
                terms.append(cost * literal)
    for pair in pairs:
        least = min((cost for row in pair.costs for cost in row if cost is not None), default=0)
        terms.append(least)  # what is left is no less than 0, so that one implication each is enough
        for first, row in zip(taken[pair.first], pair.costs, strict=True):
            for second, cost in zip(taken[pair.second], row, strict=True):
                if cost is None:
                    model.add_bool_or(~first, ~second)
                elif cost > least:
                    both = model.new_bool_var("")
                    model.add_bool_or(~first, ~second, both)
                    terms.append((cost - least) * both)
    for peak in peaks:
        uses = [use * literal for n, every in peak.uses.items() for use, literal in zip(every, taken[n], strict=True)]
        model.add(sum(uses) <= peak.limit)
    model.minimize(sum(terms))
    solver, found, proven = solve(model, most_work)
    if not found:
        raise NoChoice("no options go together" if proven else "no options were found that go together", not proven)
    options = {n: next(k for k, t in enumerate(every) if solver.boolean_value(t)) for n, every in taken.items()}
    cost = cost_of(options, choices, pairs, peaks)
    assert cost is not None
    return Chosen(options, cost, proven)
