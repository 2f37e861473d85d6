"""Inverses, predicates, refinements, sums, vectors and other units."""

from __future__ import annotations

from itertools import product as choices
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layout_strategies import compact, evaluate, injective, layouts, values

from weft.layout import (
    ComposedLayout,
    Jumps,
    Layout,
    LayoutError,
    Swizzle,
    axis,
    collision,
    common_refinement,
    composition,
    downcast,
    equivalent,
    is_bijective,
    is_compatible,
    is_injective,
    layout_add,
    left_inverse,
    max_common_vector,
    nullspace,
    parse,
    recast,
    right_inverse,
    shared_atom,
    upcast,
    vector_width,
)

SMALL = [
    Layout(shape, stride)
    for n in (1, 2, 3)
    for shape in choices((2, 3, 4), repeat=n)
    for stride in choices((0, 1, 2, 3, 4, 6), repeat=n)
]


def test_every_small_injective_layout_has_a_left_inverse() -> None:
    one_to_one = layouts_found = 0
    for a in SMALL:
        image = values(a)
        if len(set(image)) < len(image):
            assert not is_injective(a)
            continue
        assert is_injective(a)
        one_to_one += 1
        inverse = left_inverse(a)
        layouts_found += isinstance(inverse, Layout)
        assert [inverse(v) for v in image] == list(range(len(image))), a
    # For the rest it is proven by trying all: no layout is their left inverse, and a sum of floors is given.
    assert (one_to_one, layouts_found) == (367, 291)


def test_left_inverses_worked_out() -> None:
    assert left_inverse(Layout((2, 2), (1, 3))) == Layout((3, 2), (1, 2))
    assert left_inverse(Layout((2, 2), (2, 3))) == Layout((2, 3), (1, 1))
    assert left_inverse(Layout(4, 3)) == Layout((3, 4), (0, 1))
    assert isinstance(left_inverse(Layout((3, 3), (2, 3))), Jumps)
    backwards = left_inverse(Layout(4, -2))
    assert [backwards(v) for v in (0, -2, -4, -6)] == [0, 1, 2, 3]


@given(injective())
def test_left_inverses_of_any_chain(a: Layout) -> None:
    inverse = left_inverse(a)
    assert isinstance(inverse, Layout)
    assert [inverse(v) for v in values(a)] == list(range(a.size()))
    assert equivalent(composition(inverse, a.flatten()), Layout(a.size()))


@given(layouts(high=40, most=3))
def test_every_injective_layout_has_a_left_inverse(a: Layout) -> None:
    image = values(a)
    if len(set(image)) < len(image):
        with pytest.raises(LayoutError):
            left_inverse(a)
        return
    inverse = left_inverse(a)
    assert [inverse(v) for v in image] == list(range(len(image)))


def test_left_inverses_that_do_not_exist_show_a_collision() -> None:
    with pytest.raises(LayoutError) as caught:
        left_inverse(Layout((4, (2, 3)), (1, (3, 10))))
    first, second = caught.value.witness
    a = Layout((4, (2, 3)), (1, (3, 10)))
    assert first != second and a(first) == a(second) == caught.value.expected
    with pytest.raises(LayoutError):
        left_inverse(Layout(4, axis(0)))


@given(layouts())
def test_right_inverses(a: Layout) -> None:
    inverse = right_inverse(a)
    assert isinstance(inverse, Layout)
    assert [evaluate(a, inverse(i)) for i in range(inverse.size())] == list(range(inverse.size()))


def test_a_right_inverse_takes_the_longest_way() -> None:
    assert right_inverse(Layout((4, (2, 2)), (1, (8, 4)))) == Layout((4, 2, 2), (1, 8, 4))
    assert right_inverse(Layout((4, (2, 3)), (1, (8, 4)))) == Layout((4, 2, 2), (1, 8, 4))
    # 3:1 would end at 3, where nothing starts; two steps of either mode of stride 1 lead on to 50:2.
    assert right_inverse(Layout((3, 2, 50), (1, 1, 2))).size() == 100
    assert right_inverse(Layout(4, 2)) == Layout(1, 0) == right_inverse(Layout(1, 7))


@given(compact())
def test_a_permutation_has_both_inverses(a: Layout) -> None:
    inverse = right_inverse(a)
    assert inverse.size() == a.size() and is_bijective(a) and is_bijective(inverse)
    assert equivalent(composition(a, inverse), Layout(a.size()))
    assert equivalent(composition(inverse, a), Layout(a.size()))


@pytest.mark.parametrize("swizzle", [Swizzle(2, 0, 3), Swizzle(3, 0, 3), Swizzle(2, 1, -3)])
def test_inverses_of_swizzled_permutations(swizzle: Swizzle) -> None:
    a = ComposedLayout(swizzle, 0, Layout((8, 8), (8, 1)))
    for inverse in (right_inverse(a), left_inverse(a)):
        assert [a(inverse(i)) for i in range(64)] == list(range(64))
    assert is_bijective(a) and is_injective(a)


@given(layouts(low=-6, high=12))
def test_injectivity_is_decided_exactly(a: Layout) -> None:
    image = values(a)
    assert is_injective(a) == (len(set(image)) == len(image))
    twice = collision(a)
    if twice is not None:
        assert twice[0] != twice[1] and a(twice[0]) == a(twice[1])
    assert is_bijective(a) == (sorted(image) == list(range(len(image))))


def test_injectivity_of_large_layouts() -> None:
    assert is_injective(Layout((1 << 20, 1 << 20), (1 << 20, 1)))
    assert not is_injective(Layout((1 << 20, 1 << 20), ((1 << 20) - 1, 1)))
    assert is_injective(Layout((8, 4), (axis(0), axis(1)))) and not is_injective(Layout((8, 4), (axis(0), axis(0))))


def test_compatibility() -> None:
    assert is_compatible(24, (4, 6)) and is_compatible((4, 6), ((2, 2), 6)) and is_compatible(Layout(24), Layout((24,)))
    assert not is_compatible((4, 6), 24) and not is_compatible((4, 6), ((2, 3), 4)) and not is_compatible((4, 6), (4,))


@given(layouts(low=-9), layouts(low=-9))
def test_sums_are_right_or_refused(a: Layout, b: Layout) -> None:
    if a.size() != b.size():
        with pytest.raises(LayoutError):
            layout_add(a, b)
        return
    total = [v + w for v, w in zip(values(a), values(b), strict=True)]
    try:
        assert layout_add(a, b).values() == total
    except LayoutError as error:
        assert error.boundary is not None
        assert left_is_no_layout(total)


def left_is_no_layout(total: list[int]) -> bool:
    """By trying every factorisation."""

    def factorisations(n: int) -> list[tuple[int, ...]]:
        return [(n,)] + [(f, *rest) for f in range(2, n) if n % f == 0 for rest in factorisations(n // f)]

    for shape in factorisations(len(total)):
        inner, strides = 1, []
        for s in shape:
            strides.append(total[inner] if inner < len(total) else 0)
            inner *= s
        if values(Layout(shape, tuple(strides))) == total:
            return False
    return True


@given(st.sampled_from([(12,), (2, 6), (3, 4), (2, 2, 3), (4, 3)]), st.sampled_from([(12,), (6, 2), (2, 6), (2, 3, 2)]),
       st.lists(st.integers(-5, 20), min_size=6, max_size=6))  # fmt: skip
def test_sums_of_equal_sizes(one: Any, other: Any, strides: list[int]) -> None:
    a, b = Layout(one, tuple(strides[: len(one)])), Layout(other, tuple(strides[3 : 3 + len(other)]))
    total = [v + w for v, w in zip(values(a), values(b), strict=True)]
    try:
        assert layout_add(a, b).values() == total
    except LayoutError:
        assert left_is_no_layout(total)
    try:
        first, second = common_refinement(a, b)
    except LayoutError:
        return
    assert first.shape == second.shape and values(first) == values(a) and values(second) == values(b)
    assert layout_add(a, b).values() == total


def test_refinements_worked_out() -> None:
    first, second = common_refinement(Layout((4, 6), (6, 1)), Layout((8, 3), (1, 8)))
    assert (str(first), str(second)) == ("(4,6):(6,1)", "(4,6):(1,4)")
    first, second = common_refinement(Layout((4, 6), (6, 1)), Layout((8, 3), (1, 50)))
    assert (str(first), str(second)) == ("(4,2,3):(6,1,2)", "(4,2,3):(1,4,50)")
    with pytest.raises(LayoutError) as caught:
        common_refinement(Layout((4, 3), (1, 9)), Layout((6, 2), (1, 9)))
    assert caught.value.boundary == 4


def brute_vector(a: Any, b: Any) -> int:
    """The longest run of values 0, 1, 2 ... that both take at the same indices."""
    where = {v: i for i, v in reversed(list(enumerate(a.values())))}
    there = b.values()
    run = 0
    while run in where and there[where[run]] == run:
        run += 1
    return max(1, run)


@given(compact(sizes=st.sampled_from([1, 2, 3, 4])), compact(sizes=st.sampled_from([1, 2, 3, 4])))
def test_common_vectors_are_common(a: Layout, b: Layout) -> None:
    if a.size() == b.size():
        assert max_common_vector(a, b) <= brute_vector(a, b)
        assert max_common_vector(a, a) == a.size() == brute_vector(a, a)


@given(st.permutations(range(6)), st.permutations(range(6)))
def test_common_vectors_of_powers_of_two_are_the_longest(p: list[int], q: list[int]) -> None:
    a, b = (Layout((2,) * 6, tuple([1 << k for k in order])) for order in (p, q))
    longest = 1
    while longest < 64 and a.flat_stride.index(longest) == b.flat_stride.index(longest):
        longest *= 2
    assert max_common_vector(a, b) == longest


def vectors_are_right(a: Any, b: Any, width: int) -> bool:
    """Whether both layouts split into runs of `width` at multiples of it, over the same indices."""
    runs: dict[int, list[tuple[int, int, int]]] = {}
    for v, w in zip(a.values(), b.values(), strict=True):
        runs.setdefault(v // width, []).append((v % width, w // width, w % width))
    return all(len({w for _, w, _ in run}) == 1 and all(v == k for v, _, k in run) and len(run) == width
               for run in runs.values())  # fmt: skip


@given(compact(sizes=st.sampled_from([1, 2, 4, 6])), st.permutations(range(4)), st.integers(0, 3))
def test_vector_widths_are_safe_and_the_widest(a: Layout, order: list[int], pad: int) -> None:
    strides = list(a.flat_stride)
    strides = [d if d == 1 else d + pad * (d % 2 == 0) for d in strides]
    b = Layout(a.shape, tuple(strides))
    if not is_injective(b):
        return
    width = vector_width(a, b, 2)
    assert vectors_are_right(a, b, width)
    assert width == 8 or not vectors_are_right(a, b, 2 * width)


def test_vector_widths_worked_out() -> None:
    row = Layout((8, 64), (64, 1))
    assert vector_width(row, shared_atom(128, 16), 2) == 8 == max_common_vector(row, shared_atom(128, 16))
    assert vector_width(row, Layout((8, 64), (72, 1)), 2) == 8
    assert vector_width(row, Layout((8, 64), (68, 1)), 2) == 4
    assert vector_width(row, Layout((8, 64), (1, 8)), 2) == 1
    assert vector_width(row, row, 2, source_alignment=4) == 2 and vector_width(row, row, 2, widest=8) == 4
    assert vector_width(row, row, 4) == 4 and vector_width(row, row, 16) == 1
    assert vector_width(row, ComposedLayout(Swizzle(0, 0, 0), 4, row), 2) == 4
    # A swizzle that reads bit 2 parts elements 4 and up from those below.
    assert vector_width(row, ComposedLayout(Swizzle(2, 2, -2), 0, row), 2) == 4
    calls: list[Any] = [lambda: vector_width(row, row, 3), lambda: vector_width(row, Layout(8), 2)]
    for call in calls:
        with pytest.raises(LayoutError):
            call()


@pytest.mark.parametrize(
    ("a", "count", "wide"),
    [
        (Layout((8, 64), (64, 1)), 8, Layout((8, 8), (8, 1))),
        (Layout((4, 2, 3), (2, 1, 8)), 8, Layout((1, 1, 3), (0, 0, 1))),
        (Layout((2, 8), (0, 1)), 4, Layout((2, 2), (0, 1))),
    ],
)
def test_upcasts(a: Layout, count: int, wide: Layout) -> None:
    assert upcast(a, count) == wide
    assert sorted({v // count for v in values(a)}) == sorted(set(values(wide)))


BROKEN = ["6:1", "8:2", "8:4", "8:3", "(2,4):(1,8)", "(2,2):(1,1)", "4:-1"]


@pytest.mark.parametrize("text", BROKEN)
def test_upcasts_that_break_units_are_refused(text: str) -> None:
    a = parse(text)
    assert isinstance(a, Layout)
    with pytest.raises(LayoutError):
        upcast(a, 4)


@given(injective(), st.sampled_from([1, 2, 3, 4]))
def test_casts_there_and_back(a: Layout, count: int) -> None:
    try:
        narrow = downcast(a, count)
    except LayoutError:
        return
    assert sorted(values(narrow)) == sorted(count * v + k for v in values(a) for k in range(count))
    assert values(upcast(narrow, count)) == values(a)


def test_casts_of_swizzled_layouts() -> None:
    tile = shared_atom(128, 16)
    assert isinstance(tile, ComposedLayout)
    chunks = upcast(tile, 8)
    assert chunks == ComposedLayout(Swizzle(3, 0, 3), 0, Layout((8, 8), (8, 1)))
    assert [chunks(r, c) for r in range(8) for c in range(8)] == [
        tile(r, 8 * c) // 8 for r in range(8) for c in range(8)
    ]
    assert downcast(chunks, 8) == tile and recast(tile, 16, 8) == shared_atom(128, 8)
    assert nullspace(tile) == Layout(1, 0)
    shifted = ComposedLayout(Swizzle(0, 0, 0), 4, Layout(8))
    calls: list[Any] = [lambda: upcast(tile, 16), lambda: upcast(shifted, 8), lambda: nullspace(shifted)]
    for call in calls:
        with pytest.raises(LayoutError):
            call()


def test_recast_between_units() -> None:
    a = Layout((8, 64), (64, 1))
    assert recast(a, 16, 128) == Layout((8, 8), (8, 1)) and recast(a, 16, 16) == a
    assert recast(a, 16, 8) == Layout((8, 128), (128, 1))
    assert recast(Layout(6, 1), 8, 12) == Layout(4, 1)
    calls: list[Any] = [
        lambda: recast(a, 0, 8),
        lambda: downcast(Layout(4, 2), 2),
        lambda: upcast(Layout(4, axis(0)), 2),
    ]
    for call in calls:
        with pytest.raises(LayoutError):
            call()


@given(layouts(low=-4, high=6))
def test_nullspaces_hold_exactly_the_zeros(a: Layout) -> None:
    zeros = [i for i, v in enumerate(values(a)) if v == 0]
    try:
        assert sorted(nullspace(a).values()) == zeros
    except LayoutError:
        assert len(zeros) > len([1 for v in values(Layout(a.shape, a.stride)) if v == 0]) - 1
        assert min(a.flat_stride) < 0 < max(a.flat_stride)
