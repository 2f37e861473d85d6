"""Complements, divisions and products."""

from __future__ import annotations

from itertools import product as choices
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from layout_strategies import compact, injective, layouts, values

from weft.layout import (
    ComposedLayout,
    Layout,
    LayoutError,
    Swizzle,
    blocked_product,
    complement,
    composition,
    flat_divide,
    flat_product,
    is_injective,
    logical_divide,
    logical_product,
    raked_product,
    tiled_divide,
    tiled_product,
    zipped_divide,
    zipped_product,
)


def covers_once(a: Layout, rest: Layout, size: int) -> bool:
    """Whether each integer from 0 to at least `size` is a sum of one value of each (broadcasts counted once)."""
    sums = sorted(v + w for v in set(values(a)) for w in values(rest))
    return sums == list(range(len(sums))) and len(sums) >= size


def test_every_small_complement_covers_once_or_is_refused() -> None:
    right = refused = 0
    for n in (1, 2, 3):
        for shape in choices((2, 3, 4), repeat=n):
            for stride in choices((0, 1, 2, 3, 4, 6), repeat=n):
                a = Layout(shape, stride)
                try:
                    rest = complement(a)
                except LayoutError as error:
                    refused += 1
                    assert error.mode is not None and a(error.witness) == stride[error.mode] == error.load
                    assert error.load % error.boundary != 0
                    continue
                right += 1
                assert covers_once(a, rest, a.cosize()) and values(rest) == sorted(values(rest))
    assert right + refused == 6174 and right > 1000


@given(injective(), st.integers(1, 200))
def test_a_complement_covers_any_size(a: Layout, size: int) -> None:
    assert covers_once(a, complement(a, size), size)
    assert covers_once(a, complement(a), a.cosize())


@pytest.mark.parametrize(
    ("a", "size", "rest"),
    [
        (Layout(4, 1), 24, Layout(6, 4)),
        (Layout(6, 4), 24, Layout(4, 1)),
        (Layout((4, 6)), 24, Layout(1, 0)),
        (Layout(4, 2), 24, Layout((2, 3), (1, 8))),
        (Layout((2, 4), (1, 6)), 24, Layout(3, 2)),
        (Layout((2, 2), (1, 6)), 24, Layout((3, 2), (2, 12))),
        (Layout((4, 4), (0, 0)), 3, Layout(3, 1)),
    ],
)
def test_complements_worked_out(a: Layout, size: int, rest: Layout) -> None:
    assert complement(a, size) == rest


@pytest.mark.parametrize(
    "call",
    [
        lambda: complement(Layout((2, 2), (1, 3))),
        lambda: complement(Layout((4, 4), (1, 1))),
        lambda: complement(Layout(4, -1)),
        lambda: complement(Layout(4), 0),
        lambda: complement(Layout(4), 2.5),
        lambda: logical_divide(Layout(10), 4),
        lambda: logical_divide(Layout((4, 6)), (3, 2)),
        lambda: logical_divide(Layout(12), Layout((2, 2), (1, 3))),
        lambda: logical_divide(Layout((4, 6)), (2, 2, 2)),
        lambda: logical_divide(Layout(12), 0),
        lambda: logical_divide(Layout(12), "4"),
        lambda: zipped_divide(Layout(12), None),
        lambda: logical_product(Layout((2, 2), (1, 3)), 4),
        lambda: logical_product(Layout(4), Layout(4, -1)),
        lambda: logical_product(Layout(4), Swizzle(1, 0, 1)),
    ],
)
def test_what_cannot_be_divided_or_multiplied_is_refused(call: Any) -> None:
    with pytest.raises(LayoutError):
        call()


@pytest.mark.parametrize(
    ("a", "tiler", "divided"),
    [
        (Layout((4, 2, 3), (2, 1, 8)), Layout(4, 2), "((2,2),(2,3)):((4,1),(2,8))"),
        (Layout((9, (4, 8)), (59, (13, 1))), (Layout(3, 3), Layout((2, 4), (1, 8))),
         "((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))"),
        (Layout((8, 6)), (4, None), "((4,2),6):((1,4),8)"),
    ],
)  # fmt: skip
def test_divisions_worked_out(a: Layout, tiler: Any, divided: str) -> None:
    assert str(logical_divide(a, tiler)) == divided


def test_divisions_arrange_tiles_and_rest() -> None:
    a = Layout((8, 6, 5))
    tiles = (4, 3)
    assert str(zipped_divide(a, tiles)) == "((4,3),(2,2,5)):((1,8),(4,24,48))"
    assert str(tiled_divide(a, tiles)) == "((4,3),2,2,5):((1,8),4,24,48)"
    assert str(flat_divide(a, tiles)) == "(4,3,2,2,5):(1,8,4,24,48)"
    assert str(zipped_divide(a, (None, 3))) == "((3),(8,2,5)):((8),(1,24,48))"
    assert zipped_divide(a, (4, (3,))) != zipped_divide(a, tiles)


def test_a_partial_division_runs_over_the_end() -> None:
    assert logical_divide(Layout(10), 4, partial=True) == Layout((4, 3), (1, 4))
    assert zipped_divide(Layout((10, 8), (8, 1)), (4, 8), partial=True) == Layout(((4, 8), (3, 1)), ((8, 1), (32, 0)))


@given(compact(), st.data())
def test_division_covers_every_element_once(a: Layout, data: Any) -> None:
    tiles = tuple([data.draw(st.sampled_from([d for d in range(1, s + 1) if s % d == 0])) for s in a.flat_shape])
    divided = logical_divide(a, tiles)
    assert sorted(divided.values()) == sorted(values(a))
    for form in (zipped_divide, tiled_divide, flat_divide):
        other = form(a, tiles)
        assert sorted(other.values()) == sorted(values(a))
    tile, rest = zipped_divide(a, tiles)
    assert [v + w for w in values(rest) for v in values(tile)] == zipped_divide(a, tiles).values()


@given(compact(), layouts(high=6, most=2))
def test_a_division_by_a_layout_covers_or_is_refused(a: Layout, tiler: Layout) -> None:
    try:
        divided = logical_divide(a, tiler)
    except LayoutError:
        return
    assert set(divided.values()) == set(values(a))
    assert divided[0].values() == [a(v) for v in values(tiler)]


@given(injective(), injective())
def test_products_of_injective_layouts_are_injective(block: Layout, tiler: Layout) -> None:
    for form in (logical_product, zipped_product, tiled_product, flat_product, blocked_product, raked_product):
        try:
            result = form(block, tiler)
        except LayoutError as error:
            # The translates that the tiler picks lie on both sides of a gap of the block.
            assert error.operation == "composition"
            return
        assert len(set(result.values())) == block.size() * tiler.size() == result.size()
    both = logical_product(block, tiler)
    assert both[0] == Layout(block.shape, block.stride)
    # Copies are where the tiler puts them among all translates of the block.
    translates = complement(block, block.size() * tiler.cosize())
    assert values(both[1]) == [translates(v) for v in values(tiler)]


def test_a_product_by_an_integer_repeats() -> None:
    assert logical_product(Layout((2, 2), (4, 1)), 6) == Layout(((2, 2), (2, 3)), ((4, 1), (2, 8)))
    assert logical_product(Layout(4), 3) == Layout((4, 3), (1, 4))


def test_products_worked_out() -> None:
    block, tiler = Layout((2, 5), (5, 1)), Layout((3, 4), (1, 3))
    assert str(blocked_product(block, tiler)) == "((2,3),(5,4)):((5,10),(1,30))"
    assert str(raked_product(block, tiler)) == "((3,2),(4,5)):((10,5),(30,1))"
    spaced = Layout((4, 2), (1, 100))
    assert str(zipped_product(spaced, (2, None))) == "((4,2),(2)):((1,100),(4))"
    assert str(tiled_product(Layout(4), 3)) == "(4,3):(1,4)"


def test_products_by_mode_repeat_each_mode() -> None:
    result = logical_product(Layout((4, 2), (1, 100)), (2, None))
    assert result == Layout(((4, 2), 2), ((1, 4), 100))
    with pytest.raises(LayoutError) as caught:
        logical_product(Layout((4, 2)), (2, 3))
    assert caught.value.expected == caught.value.found


@given(compact(), st.sampled_from([Swizzle(2, 0, 3), Swizzle(1, 1, 2)]), st.integers(0, 9))
def test_division_and_product_reach_behind_swizzles(a: Layout, swizzle: Swizzle, offset: int) -> None:
    s = ComposedLayout(swizzle, offset, a)
    tiles = tuple([1 if n % 2 else 2 for n in a.flat_shape])
    for form in (logical_divide, zipped_divide, tiled_divide, flat_divide):
        assert form(s, tiles).values() == [swizzle(offset + v) for v in form(a, tiles).values()]
    product = logical_product(s, 2)
    assert product.values() == [swizzle(offset + v) for v in logical_product(a, 2).values()]


@given(injective(), layouts(high=12, most=3))
def test_divided_tiles_compose_as_the_tiler_does(a: Layout, tiler: Layout) -> None:
    try:
        divided, direct = logical_divide(a, tiler), composition(a, tiler)
    except LayoutError:
        assume(False)
    assert divided[0].values() == direct.values()
    assert not is_injective(tiler) or len(set(divided.values())) == divided.size()
