"""Swizzles, composed layouts, normal forms and maps over F2."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layout_strategies import layouts, powers, values

from weft.layout import (
    ComposedLayout,
    Layout,
    LayoutError,
    LinearLayout,
    Swizzle,
    as_layout,
    composition,
    equivalent,
    f2,
    linear,
    normal_form,
    parse,
    right_inverse,
    slice,
)


@st.composite
def swizzles(draw: st.DrawFn, most: int = 3) -> Swizzle:
    bits = draw(st.integers(0, most))
    return Swizzle(bits, draw(st.integers(0, 3)), draw(st.sampled_from([1, -1])) * draw(st.integers(bits, bits + 2)))


def by_hand(s: Swizzle, x: int) -> int:
    """Bit by bit."""
    result = x
    for k in range(s.bits):
        source = s.base + k + max(0, s.shift)
        target = s.base + k - min(0, s.shift)
        result ^= (x >> source & 1) << target
    return result


@given(swizzles(), st.integers(0, 1 << 14))
def test_a_swizzle_xors_one_field_into_another_and_undoes_itself(s: Swizzle, x: int) -> None:
    assert s(x) == by_hand(s, x) and s(s(x)) == x
    assert s(x) ^ x == (s(x) ^ x) & s.target


def test_swizzles_worked_out() -> None:
    assert [Swizzle(2, 0, 2)(x) for x in range(16)] == [0, 1, 2, 3, 5, 4, 7, 6, 10, 11, 8, 9, 15, 14, 13, 12]
    assert str(Swizzle(3, 4, 3)) == "Swizzle(3,4,3)" and Swizzle(0, 4, 3).is_identity


@pytest.mark.parametrize("numbers", [(3, 0, 2), (-1, 0, 3), (1, -1, 3), (1.5, 0, 3), (1, "0", 3), (2, 0, -1)])
def test_bad_swizzles_are_refused(numbers: Any) -> None:
    with pytest.raises(LayoutError):
        Swizzle(*numbers)


@given(swizzles(), layouts(), st.integers(0, 20))
def test_a_composed_layout_has_the_values_of_its_parts(s: Swizzle, a: Layout, offset: int) -> None:
    c = ComposedLayout(s, offset, a)
    expected = [by_hand(s, offset + v) for v in values(a)]
    assert c.values() == expected == [c(i) for i in range(c.size())]
    assert [c(a.coordinate(i)) for i in range(c.size())] == expected
    assert c.coalesce().values() == c.flatten().values() == expected
    assert c.cosize() == max(expected) + 1
    assert normal_form(c).values() == expected and equivalent(c, normal_form(c))
    assert parse(str(c)).values() == expected
    assert [c[m].values() for m in range(len(c))] == [[by_hand(s, offset + v) for v in mode.values()] for mode in a]


@given(swizzles(), layouts(), layouts(high=8))
def test_composition_reaches_behind_the_swizzle(s: Swizzle, a: Layout, b: Layout) -> None:
    try:
        plain = composition(a, b)
    except LayoutError:
        return
    both = composition(ComposedLayout(s, 3, a), b)
    assert both.values() == [by_hand(s, 3 + v) for v in plain.values()]
    assert composition(s, plain).values() == [by_hand(s, v) for v in plain.values()]


@given(swizzles(most=2), powers(bits=5), st.permutations(range(5)))
def test_a_layout_after_a_swizzle_is_right_or_refused(s: Swizzle, b: Layout, order: list[int]) -> None:
    a = Layout((2,) * 5, tuple([1 << k for k in order]))
    swizzled = ComposedLayout(s, 0, b)
    try:
        r = composition(a, swizzled)
    except LayoutError:
        return
    assert r.values() == [a(by_hand(s, v)) for v in values(b)]
    assert r.size() == b.size() and r.rank() == b.rank()


def test_swizzles_compose_where_they_cancel() -> None:
    s = Swizzle(2, 0, 3)
    assert composition(s, s) == Swizzle(0, 0, 0) and composition(s, Swizzle(0, 0, 0)) == s
    a = Layout((8, 8), (8, 1))
    assert composition(s, composition(s, a)) == a
    with pytest.raises(LayoutError):
        composition(s, Swizzle(1, 0, 3))
    with pytest.raises(LayoutError):
        composition(s, (4, 4))


def test_slices_of_swizzled_layouts() -> None:
    a = ComposedLayout(Swizzle(3, 0, 3), 0, Layout((8, 8), (8, 1)))
    row = slice(a, (5, None))
    assert row.values() == [a(5, c) for c in range(8)] == [5 * 8 + (c ^ 5) for c in range(8)]
    assert a(None, 2).values() == [a(r, 2) for r in range(8)]


def test_normal_forms_drop_what_does_nothing() -> None:
    # The bits that would be XORed are never set.
    assert normal_form(ComposedLayout(Swizzle(2, 0, 5), 0, Layout((4, 8)))) == Layout(32)
    # The source bit is a mode of its own, so the swizzle only changes that mode's stride.
    assert normal_form(ComposedLayout(Swizzle(1, 0, 3), 0, Layout((2, 2), (2, 8)))) == Layout((2, 2), (2, 9))
    assert normal_form(ComposedLayout(Swizzle(0, 0, 0), 5, Layout((2, 2)))) == ComposedLayout(
        Swizzle(0, 0, 0), 5, Layout(4)
    )
    one, other = Swizzle(2, 0, 3), Swizzle(2, 0, -3)
    assert not equivalent(ComposedLayout(one, 0, Layout(64)), ComposedLayout(other, 0, Layout(64)))


@given(powers(), swizzles(most=2))
def test_linear_layouts_have_the_same_values(a: Layout, s: Swizzle) -> None:
    c = ComposedLayout(s, 0, a)
    map = linear(c)
    assert [map(i) for i in range(map.size())] == c.values()
    assert as_layout(map).values() == c.values()
    assert map.is_injective() and map.rank() == len(a.flat_shape)
    inverse = map.right_inverse()
    assert [map(inverse(i)) for i in range(inverse.size())] == list(range(inverse.size()))
    assert right_inverse(c).size() == inverse.size()


@given(layouts(sizes=st.sampled_from([1, 2, 4, 8]), high=12))
def test_a_layout_is_linear_exactly_if_xor_is_its_sum(a: Layout) -> None:
    image = values(a)
    bases = [image[1 << k] for k in range(len(image).bit_length() - 1)]
    by_xor = [f2.apply(bases, i) for i in range(len(image))]
    try:
        assert linear(a).bases == tuple(bases) and by_xor == image
    except LayoutError as error:
        assert by_xor != image
        assert error.witness is not None and image[error.witness] == error.expected != error.found


@pytest.mark.parametrize("a", [Layout(3), Layout((2, 2), (1, 1)), Layout(2, -1), Layout(4, 3)])
def test_what_is_not_linear_is_refused(a: Layout) -> None:
    with pytest.raises(LayoutError):
        linear(a)


def test_linear_layouts_worked_out() -> None:
    map = linear(Swizzle(1, 0, 2), bits=3)
    assert map == LinearLayout((1, 2, 5)) and map(7) == 6 and str(map) == "F2[1,2,5]"
    assert map.after(map) == LinearLayout((1, 2, 4))
    calls: list[Any] = [
        lambda: map(8),
        lambda: linear(Swizzle(1, 0, 2)),
        lambda: map.after(LinearLayout((16,))),
        lambda: LinearLayout((2,), 1).right_inverse(),
        lambda: as_layout(LinearLayout((1, 3, 7, 6, 5))),
    ]
    for call in calls:
        with pytest.raises(LayoutError):
            call()


vectors = st.lists(st.integers(0, 255), max_size=6)


def span(basis: list[int]) -> set[int]:
    space = {0}
    for b in basis:
        space |= {x ^ b for x in space}
    return space


@given(vectors, vectors)
def test_spaces_over_f2(a: list[int], b: list[int]) -> None:
    assert span(f2.echelon(a)) == span(a) and 1 << f2.rank(a) == len(span(a))
    assert span(f2.intersection(a, b)) == span(a) & span(b)
    assert span([*a, *f2.extension(a, b)]) == span([*a, *b])
    for k in f2.kernel(a):
        assert k and f2.apply(a, k) == 0
    assert len(f2.kernel(a)) == len(a) - f2.rank(a)
    for target in (0, 3, 77, *b):
        mask = f2.combination(a, target)
        assert (mask is not None) == (target in span(a)) == f2.contains(a, target)
        assert mask is None or f2.apply(a, mask) == target


@given(vectors, vectors, st.integers(0, 4))
def test_two_spaces_have_a_common_complement(a: list[int], b: list[int], more: int) -> None:
    codimension = min(8, max(f2.rank(a), f2.rank(b)) + more)
    h = f2.common_complement(a, b, 8, codimension)
    assert f2.rank(h) == 8 - codimension
    assert span(h) & span(a) == {0} == span(h) & span(b)
