"""What `tests.claims` holds updates against: elements compose as the maps that they are, and other maps are told."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.claims import Element, applied, close, combined, possible, probes
from weft.loops.algebra.table import AFFINE, CLAMP, EXTREMA, LINEAR, SEGMENTED, SELECT, overflows
from weft.loops.types import FLOAT64, INT64, ScalarType

SINGLE = ("sum", "product", "max", "min", "maximum", "minimum", "fmax", "fmin")
ALONE = (*SINGLE, AFFINE, SELECT, CLAMP)
EVERY = (*ALONE, *(SEGMENTED + a for a in ("sum", "max", AFFINE, SELECT, CLAMP)), *EXTREMA, LINEAR)
NUMBERS: dict[str, list[Any]] = {"float": [-3.0, -1.0, 0.0, 0.5, 2.0, 7.0], "int": [-3, -1, 0, 1, 2, 7]}


def values(algebra: str) -> int:
    return 3 if algebra == LINEAR else 2 if algebra in EXTREMA else 1


def drawn(
    algebra: str, type_: ScalarType, choice: random.Random, numbers: dict[str, list[Any]] = NUMBERS
) -> Element:
    number = lambda: choice.choice(numbers[type_.category])  # noqa: E731
    given_ = choice.random() < 0.5
    if algebra.startswith(SEGMENTED):
        inner = drawn(algebra.removeprefix(SEGMENTED), type_, choice, numbers)
        return (True, number()) if choice.random() < 0.3 else (False, None, *inner)
    if algebra == AFFINE:
        return number(), number()
    if algebra == SELECT:
        return (True, number()) if given_ else (False, None)
    if algebra == CLAMP:
        low, high = sorted((number(), number()))
        if type_.category == "float" and choice.random() < 0.3:
            high = math.inf
        return (number() if type_.category == "float" else 0), low, high
    if algebra in EXTREMA:
        return (number(), True, number()) if given_ else (None, False, None)
    if algebra == LINEAR:
        present = [choice.random() < 0.7 for _ in range(9)]
        return (*(number() if p else None for p in present), *present, *(number() for _ in range(3)))
    return (number(),)


def agree(found: list[Any], wanted: list[Any]) -> bool:
    return all(close(a, b, 1e3) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("type_", [FLOAT64, INT64], ids=str)
@pytest.mark.parametrize("algebra", [a for a in EVERY if a not in ("maximum", "minimum", "fmax", "fmin")])
@given(seed=st.integers(0, 1 << 30))
def test_elements_compose_as_maps_in_any_grouping(algebra: str, type_: ScalarType, seed: int) -> None:
    choice = random.Random(seed)
    a, b, c = (drawn(algebra, type_, choice) for _ in range(3))
    state = [choice.choice(NUMBERS[type_.category]) for _ in range(values(algebra))]
    in_turn = state
    for element in (a, b, c):
        in_turn = applied(algebra, in_turn, element, type_)
    left = combined(algebra, combined(algebra, a, b, type_), c, type_)
    right = combined(algebra, a, combined(algebra, b, c, type_), type_)
    assert agree(applied(algebra, state, left, type_), in_turn)
    assert agree(applied(algebra, state, right, type_), in_turn)


EXTREME = {
    "float": [-1e200, -1.0, -0.0, 0.0, 1.0, 2.0, 1e200, 1.7e308],
    "int": [-(1 << 63), -(1 << 62), -1, 0, 1, 1 << 62, (1 << 63) - 1],
}


@pytest.mark.parametrize("type_", [FLOAT64, INT64], ids=str)
@pytest.mark.parametrize("algebra", [a for a in EVERY if a not in ("maximum", "minimum", "fmax", "fmin")])
@given(seed=st.integers(0, 1 << 30))
def test_extremes_compose_or_show_that_they_do_not(algebra: str, type_: ScalarType, seed: int) -> None:
    """Where every state is finite, so is what composed elements make of it and the same, or it is not finite at all: that is
    what kernels look at before they believe it. Integers wrap alike in any grouping. Sums come near the largest number.
    """
    choice = random.Random(seed)
    elements = [drawn(algebra, type_, choice, EXTREME) for _ in range(3)]
    state = [choice.choice(EXTREME[type_.category]) for _ in range(values(algebra))]
    states = [state]
    for element in elements:
        states.append(applied(algebra, states[-1], element, type_))
    if not all(math.isfinite(v) for s in states for v in s):
        return
    # What is composed is off by roundings of its own parts, and of what it is composed of, magnified by what comes after: the
    # states of the same elements without signs are as large.
    floating = type_.category == "float"
    without = lambda numbers: [abs(v) if type(v) is float else v for v in numbers]  # noqa: E731
    size, sizes = 0.0, without(state)
    for element in elements:
        sizes = applied(algebra, sizes, tuple(without(element)), type_)
        size = max(size, *map(abs, sizes)) if floating else size
    a, b, c = elements
    ab, bc = combined(algebra, a, b, type_), combined(algebra, b, c, type_)
    for part, whole in ((ab, combined(algebra, ab, c, type_)), (bc, combined(algebra, a, bc, type_))):
        found = applied(algebra, state, whole, type_)
        if not all(math.isfinite(v) for v in found):
            assert overflows(algebra, type_) or "sum" in algebra or "clamp" in algebra
        else:
            parts = [abs(v) for v in (*part, *whole) if isinstance(v, float) and not math.isnan(v)]
            scale = max(size, *parts, 0.0) if floating else 0.0
            assert all(close(x, y, scale) for x, y in zip(found, states[-1], strict=True))


@pytest.mark.parametrize("type_", [FLOAT64, INT64], ids=str)
@pytest.mark.parametrize("algebra", [a for a in EVERY if a not in ("maximum", "minimum", "fmax", "fmin")])
@given(seed=st.integers(0, 1 << 30))
def test_what_an_element_does_is_possible(algebra: str, type_: ScalarType, seed: int) -> None:
    choice = random.Random(seed)
    element = drawn(algebra, type_, choice)
    before = probes(algebra, [choice.choice(NUMBERS[type_.category]) for _ in range(values(algebra))], type_)
    assert possible(algebra, before, [applied(algebra, b, element, type_) for b in before], type_)


@pytest.mark.parametrize("algebra", [*ALONE, SEGMENTED + "sum", SEGMENTED + AFFINE, SEGMENTED + "max"])
@pytest.mark.parametrize(
    "change",
    [
        lambda h: h * h + 1.0,
        lambda h: h - 2.0 if h > 1.0 else h + 0.25,
        lambda h: 1.0 / (1.0 + h * h),
        lambda h: 4.0 if h > 2.5 else 0.5 * h,
    ],
)
def test_what_no_element_does_is_impossible(algebra: str, change: Any) -> None:
    before = [[min(max(b[0], -1e6), 1e6)] if algebra == CLAMP else b for b in probes(algebra, [0.0], FLOAT64)]
    assert not possible(algebra, before, [[change(b[0])] for b in before], FLOAT64)


def test_a_map_of_several_values_that_is_not_linear_is_told() -> None:
    before = probes(LINEAR, [0.0, 0.0], FLOAT64)
    assert possible(LINEAR, before, [[0.5 * a - b + 1.0, a] for a, b in before], FLOAT64)
    assert not possible(LINEAR, before, [[a * b, a] for a, b in before], FLOAT64)


def test_a_payload_that_its_extremum_does_not_decide_is_told() -> None:
    before = probes("argmax", [0.0, 1.0], FLOAT64)
    assert possible("argmax", before, [[2.5, 7.0] if m < 2.5 else [m, k] for m, k in before], FLOAT64)
    assert not possible("argmax", before, [[2.5, 7.0] if m < 2.5 else [m, k + 1.0] for m, k in before], FLOAT64)
    assert not possible("argmax", before, [[2.5, 7.0] if m > 2.5 else [m, k] for m, k in before], FLOAT64)
