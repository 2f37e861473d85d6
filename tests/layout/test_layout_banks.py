"""Bank conflicts against counting, and the search for layouts without."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_strategies import layouts, powers

from weft.layout import (
    Access,
    ComposedLayout,
    Conflicts,
    Layout,
    LayoutError,
    Swizzle,
    axis,
    bank_conflicts,
    find_padding,
    find_swizzle,
    linear,
    shared_atom,
)


def counted(offsets: list[int], element_bytes: int, vector: int) -> Conflicts:
    """Phase by phase, bank by bank: the distinct words that each bank is asked for."""
    width = element_bytes * vector
    lanes = min(32, 128 // width)
    phases = [offsets[start : start + lanes] for start in range(0, len(offsets), lanes)]
    if lanes < 32:  # two phases are one where neighbours want the same
        pairs = [sum(phases[k : k + 2], []) for k in range(0, len(phases), 2)]
        for k, pair in reversed(list(enumerate(pairs))):
            one = all(pair[i] == pair[i ^ 1] for i in range(len(pair)) if i ^ 1 < len(pair))
            two = all(pair[i] == pair[i ^ 2] for i in range(len(pair)) if i ^ 2 < len(pair))
            if one or two:
                phases[2 * k : 2 * k + 2] = [pair]
    turns = []
    for phase in phases:
        banks: dict[int, set[int]] = {}
        for offset in phase:
            for byte in range(offset * element_bytes, offset * element_bytes + width):
                banks.setdefault(byte // 4 % 32, set()).add(byte // 4)
        turns.append(max(map(len, banks.values())))
    return Conflicts(max(turns), sum(turns))


WIDTHS = [(size, vector) for size in (1, 2, 4, 8, 16) for vector in (1, 2, 4, 8, 16) if size * vector <= 16]


@settings(max_examples=150)
@given(layouts(high=70, sizes=st.sampled_from([1, 2, 3, 4, 5, 8]), most=3), st.sampled_from(WIDTHS), st.integers(0, 9))
def test_conflicts_of_any_layout(a: Layout, width: tuple[int, int], offset: int) -> None:
    size, vector = width
    scaled = Layout(a.shape, Layout(a.shape, a.stride).stride) if vector == 1 else _times(a, vector)
    if scaled.size() > 32:
        with pytest.raises(LayoutError):
            bank_conflicts(scaled, size, vector)
        return
    assert bank_conflicts(scaled, size, vector) == counted(scaled.values(), size, vector)
    moved = ComposedLayout(Swizzle(0, 0, 0), offset * vector, scaled)
    assert bank_conflicts(moved, size, vector) == counted(moved.values(), size, vector)


def _times(a: Layout, count: int) -> Layout:
    return Layout(a.flat_shape, tuple([d * count for d in a.flat_stride]))


@given(powers(bits=11, most=5), st.sampled_from(WIDTHS), st.integers(0, 3), st.integers(0, 4), st.integers(0, 3))
def test_conflicts_of_swizzled_layouts(a: Layout, width: tuple[int, int], bits: int, base: int, more: int) -> None:
    size, vector = width
    base += vector.bit_length() - 1
    swizzled = ComposedLayout(Swizzle(bits, base, bits + more), 0, _times(a, vector))
    expected = counted(swizzled.values(), size, vector)
    assert bank_conflicts(swizzled, size, vector) == expected == bank_conflicts(linear(swizzled), size, vector)


def test_conflicts_worked_out() -> None:
    assert bank_conflicts(Layout(32), 4) == Conflicts(1, 1)
    assert bank_conflicts(Layout(32, 32), 4) == Conflicts(32, 32)
    assert bank_conflicts(Layout(32, 33), 4) == Conflicts(1, 1)
    assert bank_conflicts(Layout(32, 0), 4) == Conflicts(1, 1)
    assert bank_conflicts(Layout(32, 2), 4) == Conflicts(2, 2)
    assert bank_conflicts(Layout(32), 2) == Conflicts(1, 1)
    assert bank_conflicts(Layout(32, 4), 4, 4) == Conflicts(1, 4)
    assert bank_conflicts(Layout((8, 32), (32, 1)), 4, lanes=Layout(32, 1)) == Conflicts(8, 8)


def test_the_128_byte_swizzle_serves_ldmatrix() -> None:
    tile, plain = shared_atom(128, 16), Layout((8, 64), (64, 1))
    rows = Layout(8, 1)
    assert bank_conflicts(plain, 2, 8, lanes=rows) == Conflicts(8, 8)
    assert bank_conflicts(tile, 2, 8, lanes=rows) == Conflicts(1, 1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: bank_conflicts(Layout(64), 4),
        lambda: bank_conflicts(Layout(33), 4),
        lambda: bank_conflicts(Layout(32), 4, 3),
        lambda: bank_conflicts(Layout(32), 4, 8),
        lambda: bank_conflicts(Layout(32, 3), 4, 2),
        lambda: bank_conflicts(Layout(3, 1), 4, 2),
        lambda: bank_conflicts(ComposedLayout(Swizzle(0, 0, 0), 1, Layout(4, 4)), 4, 4),
        lambda: bank_conflicts(Layout(32, axis(0)), 4),
    ],
)
def test_accesses_that_cannot_be_are_refused(call: Any) -> None:
    with pytest.raises(LayoutError):
        call()


ROW, COLUMN = Layout(32, 32), Layout(32, 1)


def test_a_swizzle_is_found_for_rows_and_columns() -> None:
    tile = Layout((32, 32), (32, 1))
    found = find_swizzle(tile, [Access(ROW), Access(COLUMN)], 4)
    assert str(found) == "Swizzle(5,0,5) o 0 o (32,32):(32,1)"
    for lanes in (ROW, COLUMN):
        assert bank_conflicts(found, 4, lanes=lanes).degree == 1
    assert find_swizzle(tile, [Access(ROW)], 4) == tile


def test_a_swizzle_keeps_vectors_together() -> None:
    # Rows are stored 8 halves at a time, 8 rows are read at once by ldmatrix.
    tile = Layout((64, 64), (64, 1))
    store, load = Access(Layout((8, 4), (512, 1)), 8), Access(Layout((8, 4), (1, 512)), 8)
    found = find_swizzle(tile, [store, load], 2)
    assert str(found) == "Swizzle(3,3,3) o 0 o (64,64):(64,1)"
    assert all(bank_conflicts(found, 2, 8, lanes=access.lanes).degree == 1 for access in (store, load))


def test_where_there_is_no_swizzle_that_is_proven() -> None:
    # Of 48 elements a swizzle keeps the last 16 among themselves, on the same banks as the first 16.
    tile, lanes = Layout(48), Layout((16, 2), (1, 32))
    with pytest.raises(LayoutError, match="tried") as caught:
        find_swizzle(tile, [Access(lanes)], 4)
    every = [Swizzle(b, m, s) for b in range(4) for m in range(8) for s in range(-8, 9) if abs(s) >= b]
    inside = [s for s in every if sorted(s(v) for v in range(48)) == list(range(48))]
    best = min(counted([s(lanes(i)) for i in range(32)], 4, 1).degree for s in inside)
    assert len(inside) > 1 and caught.value.load == best == 2


def test_padding_is_the_least_that_works() -> None:
    tile = Layout((32, 32), (32, 1))
    assert find_padding(tile, [Access(ROW), Access(COLUMN)], 4) == Layout((32, 32), (33, 1))
    assert find_padding(tile, [Access(ROW)], 4) == tile
    halves = Layout((64, 64), (64, 1))
    assert find_padding(halves, [Access(Layout((8, 4), (1, 512)), 8)], 2) == Layout((64, 64), (72, 1))
    deep = Layout((4, 8, 32), (256, 32, 1))
    padded = find_padding(deep, [Access(Layout((8, 4), (4, 1)))], 4)
    assert padded.shape == deep.shape and bank_conflicts(padded, 4, lanes=Layout((8, 4), (4, 1))).degree == 1


def test_where_no_padding_helps_that_is_proven() -> None:
    # Pairs of neighbours start at odd offsets, whatever the rows are padded to.
    with pytest.raises(LayoutError, match="no padding") as caught:
        find_padding(Layout((8, 32), (32, 1)), [Access(Layout((8, 4), (1, 64)), 1), Access(Layout(32, 8), 2)], 4)
    assert caught.value.load == 33
