"""Layouts as functions: calls, sizes, coalescing, slices, printing and parsing."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layout_strategies import evaluate, flat, layouts, values

import weft.layout as wl
from weft.layout import ComposedLayout, Layout, LayoutError, parse, slice, slice_and_offset


def test_a_layout_maps_coordinates_to_offsets() -> None:
    a = Layout((4, (2, 3)), (1, (8, 4)))
    assert (a.size(), a.cosize(), a.rank(), a.depth()) == (24, 20, 2, 2)
    assert a(1, (1, 2)) == a((1, (1, 2))) == a(1, 5) == a(21) == 17
    assert a.coordinate(21) == (1, (1, 2))
    assert a[1] == Layout((2, 3), (8, 4)) == a[-1]
    assert list(a) == [Layout(4, 1), Layout((2, 3), (8, 4))] and len(a) == 2


def test_strides_left_out_are_compact() -> None:
    assert Layout((4, (2, 3))) == Layout((4, (2, 3)), (1, (4, 8)))
    assert Layout(5) == Layout(5, 1)
    assert Layout([2, [3]], [3, [1]]) == Layout((2, (3,)), (3, (1,)))


@given(layouts(low=-9), st.integers(-50, 200))
def test_the_last_mode_extends_without_bound(a: Layout, index: int) -> None:
    assert a(index) == evaluate(a, index)


@given(layouts(low=-9))
def test_values_and_coordinates_agree_with_the_definition(a: Layout) -> None:
    assert a.values() == values(a)
    assert [a(a.coordinate(i)) for i in range(a.size())] == values(a)
    assert a.cosize() >= max(values(a)) - min(values(a)) + 1
    assert max(values(a)) - min(values(a)) + 1 == a.cosize()


@given(layouts(low=-9))
def test_coalescing_keeps_values_and_is_a_normal_form(a: Layout) -> None:
    short = a.coalesce()
    assert values(short) == values(a) and short.depth() <= 1
    assert short.coalesce() == short == a.flatten().coalesce()
    modes = list(zip(short.flat_shape, short.flat_stride, strict=True))
    assert all(e != s * d for (s, d), (_, e) in zip(modes, modes[1:], strict=False))
    assert a.size() == 1 or all(s != 1 for s in short.flat_shape)


@given(layouts(), layouts())
def test_layouts_are_equivalent_exactly_if_their_values_are(a: Layout, b: Layout) -> None:
    assert wl.equivalent(a, b) == (values(a) == values(b))
    assert wl.equivalent(a, a.coalesce()) and wl.equivalent(a, a.flatten())


def test_coalescing_by_mode_keeps_the_modes() -> None:
    a = Layout((2, (1, 6)), (1, (6, 2)))
    assert a.coalesce() == Layout(12, 1)
    assert a.coalesce((1, 1)) == Layout((2, 6), (1, 2))
    assert Layout((2, 3, 4)).coalesce((None,)) == Layout((2, 3, 4))


def test_filter_drops_what_does_not_move() -> None:
    assert Layout((2, 4, 3), (0, 1, 4)).filter() == Layout(12, 1)
    assert Layout((2, 1), (0, 7)).filter() == Layout(1, 0)


def test_a_trailing_mode_of_size_one_says_how_a_layout_goes_on() -> None:
    # 12 = 4 * 3: from there on, the last mode 1:0 adds nothing.
    a = Layout((4, 3, 1), (3, 1, 0))
    assert [a(i) for i in (11, 12, 13, 24)] == [11, 0, 3, 0]


def test_slices_keep_their_offset() -> None:
    a = Layout((4, (2, 3)), (1, (8, 4)))
    assert a(2, None) == ComposedLayout(wl.Swizzle(0, 0, 0), 2, Layout((2, 3), (8, 4)))
    assert a(None, 0) == Layout(4, 1)
    assert slice_and_offset(a, (None, (1, None))) == (Layout((4, (3)), (1, 4)), 8)
    cut = a(None, (None, 2))
    assert [cut(i, j) for j in range(2) for i in range(4)] == [a(i, (j, 2)) for j in range(2) for i in range(4)]
    again = cut(3, None)
    assert [again(j) for j in range(2)] == [a(3, (j, 2)) for j in range(2)]
    assert slice(a, None) == a


@given(layouts(), st.data())
def test_a_slice_has_the_values_of_the_layout(a: Layout, data: Any) -> None:
    coordinate = data.draw(_partial(a.shape))
    part = slice(a, coordinate)
    free = [s for s, c in zip(flat(a.shape), _leaves(a.shape, coordinate), strict=True) if c is None]
    count = 1
    for s in free:
        count *= s
    assert part.size() == count
    expected = []
    for i in range(count):
        rest, full = i, []
        for s, c in zip(flat(a.shape), _leaves(a.shape, coordinate), strict=True):
            if c is None:
                rest, c = divmod(rest, s)
            full.append(c)
        expected.append(sum(c * d for c, d in zip(full, flat(a.stride), strict=True)))
    assert part.values() == expected


def _partial(shape: Any) -> st.SearchStrategy[Any]:
    whole = st.none()
    if isinstance(shape, tuple):
        return whole | st.tuples(*map(_partial, shape))
    return whole | st.integers(0, shape - 1)


def _leaves(shape: Any, coordinate: Any) -> list[Any]:
    if coordinate is None:
        return [None] * len(flat(shape))
    if isinstance(shape, tuple):
        return [x for s, c in zip(shape, coordinate, strict=True) for x in _leaves(s, c)]
    return [coordinate]


def test_layouts_are_immutable_hashable_and_travel() -> None:
    a = Layout((4, 2), (2, 1))
    with pytest.raises(AttributeError):
        a.shape = (2, 4)  # type: ignore[misc]
    assert {a: 1}[Layout((4, 2), (2, 1))] == 1
    assert pickle.loads(pickle.dumps(a)) == a == copy.deepcopy(a)
    assert a != Layout((4, 2)) and a != "(4,2):(2,1)"


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (Layout((4, (2, 3)), (1, (8, 4))), "(4,(2,3)):(1,(8,4))"),
        (Layout(7), "7:1"),
        (Layout((4,)), "(4):(1)"),
        (Layout((2, 2), (-1, 0)), "(2,2):(-1,0)"),
        (Layout((), ()), "():()"),
        (Layout((8, 16), (wl.axis(0), 2 * wl.axis(1))), "(8,16):(1@0,2@1)"),
        (ComposedLayout(wl.Swizzle(3, 4, 3), 8, Layout((8, 8), (8, 1))), "Swizzle(3,4,3) o 8 o (8,8):(8,1)"),
    ],
)
def test_printing_and_parsing(layout: Any, text: str) -> None:
    assert str(layout) == text
    assert parse(text) == layout


@given(layouts(low=-9))
def test_what_is_printed_parses_to_itself(a: Layout) -> None:
    assert parse(str(a)) == a and eval(repr(a)) == a


def test_parsing_takes_spaces_and_shapes_alone() -> None:
    assert parse(" ( 4 , ( 2, 3 ) ) : (1,(8 ,4))") == Layout((4, (2, 3)), (1, (8, 4)))
    assert parse("(4,2)") == Layout((4, 2))


@pytest.mark.parametrize(
    "text", ["", "(4", "4:", "(4,2):(1)", "4:1:2", "4 5", "(4,,2)", "a:1", "4:1@", "4:1@-1", "Swizzle(1,2) o 0 o 4:1",
             "Swizzle(3,4,3) o x o 4:1", "0:1", "-2:1", "4)"],
)  # fmt: skip
def test_text_that_is_no_layout_is_refused(text: str) -> None:
    with pytest.raises(LayoutError):
        parse(text)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Layout(0),
        lambda: Layout((4, -1)),
        lambda: Layout(4.0),
        lambda: Layout("4"),
        lambda: Layout(True),
        lambda: Layout(4, 1.5),
        lambda: Layout(4, "1"),
        lambda: Layout(4, None) if False else Layout(4, False),
        lambda: Layout((4, 2), 1),
        lambda: Layout((4, 2), (1, (2,))),
        lambda: Layout((4, 2), (1, 4, 8)),
        lambda: parse(3),  # type: ignore[arg-type]
        lambda: Layout((4, 2))[2],
        lambda: Layout((4, 2))(4, 0),
        lambda: Layout((4, 2))(-1, 0),
        lambda: Layout((4, 2))(1, 2, 3),
        lambda: Layout((4, 2))((1, 2), 0),
        lambda: Layout((4, 2))(1.0, 0),
        lambda: Layout((4, 2))(4, None),
        lambda: Layout((4, 2))(None, 2),
        lambda: Layout((4, 2))(None, -1),
        lambda: Layout((4, 2))(None, None, None),
        lambda: Layout(4).coalesce((1, 1)),
    ],
)
def test_bad_input_is_a_layout_error(make: Any) -> None:
    with pytest.raises(LayoutError) as caught:
        make()
    assert isinstance(caught.value, ValueError) and str(caught.value)


def test_an_error_says_what_is_known_and_travels() -> None:
    with pytest.raises(LayoutError) as caught:
        Layout((4, 2))(None, 5)
    error = pickle.loads(pickle.dumps(caught.value))
    assert str(error) == str(caught.value) and error.witness == 5 and "remedy" in str(error)


def test_functions_are_the_methods() -> None:
    a = Layout((4, (2, 3)), (1, (8, 4)))
    assert (wl.size(a), wl.cosize(a), wl.rank(a), wl.depth(a)) == (24, 20, 2, 2)
    assert wl.flatten(a) == a.flatten() and wl.coalesce(a) == a.coalesce() and wl.filter(a) == a.filter()
