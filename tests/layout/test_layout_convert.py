"""Conversions between register layouts: each plan is executed and must hand over every element."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.layout import (
    AMPERE,
    HOPPER,
    Conversion,
    Cost,
    Layout,
    LayoutError,
    bank_conflicts,
    convert,
    f2,
    fragment,
    linear,
    mma,
    registers,
    wgmma,
)
from weft.layout.convert import _trips
from weft.layout.linear import LinearLayout


def held(layout: Layout) -> list[list[Any]]:
    """What each thread holds: elements named by their numbers, straight from the layout."""
    threads, values = layout[0].size(), layout[1].size()
    return [[layout(t, v) for v in range(values)] for t in range(threads)]


def check(source: Layout, target: Layout, bits: int = 32, machine: Any = AMPERE) -> Conversion:
    plan = convert(source, target, bits, machine)
    assert plan.run(held(source)) == held(target)
    return plan


def by_bits(threads: list[int], values: list[int]) -> Layout:
    return Layout(((2,) * len(threads), (2,) * len(values)), (tuple(threads), tuple(values)))


@st.composite
def distributions(draw: st.DrawFn, bits: int, warps: int, values: int) -> Layout:
    """Any bits of the element to any threads and values; where there are too few, copies."""
    places = draw(st.permutations([1 << k for k in range(bits)]))
    places = list(places) + [0] * (5 + warps + values - bits)
    if draw(st.booleans()):
        places = draw(st.permutations(places))
    return by_bits(places[: 5 + warps], places[5 + warps : 5 + warps + values])


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Layout, Layout]:
    """Two distributions of the same elements, sometimes with the same warps, threads or values."""
    warps, values = draw(st.integers(0, 2)), draw(st.integers(0, 4))
    source = draw(distributions(draw(st.integers(warps + 5, 5 + warps + values)), warps, values))
    r = registers(source)
    kind = draw(st.sampled_from(["any", "warps", "threads"]))
    if kind == "any":
        order = draw(st.permutations(r.bases))
        return source, by_bits(list(order[: 5 + warps]), list(order[5 + warps :]))
    if kind == "warps":
        order = draw(st.permutations([*r.values, *r.lanes]))
        return source, by_bits([*order[:5], *r.warps], list(order[5:]))
    order = draw(st.permutations(r.values))
    return source, by_bits([*r.lanes, *r.warps], list(order))


@settings(max_examples=120)
@given(pairs(), st.sampled_from([8, 16, 32, 64]), st.sampled_from([AMPERE, HOPPER]))
def test_every_conversion_hands_over_every_element(pair: tuple[Layout, Layout], bits: int, machine: Any) -> None:
    source, target = pair
    plan = check(source, target, bits, machine)
    # There and back again.
    back = check(target, source, bits, machine)
    assert back.run(plan.run(held(source))) == held(source)
    if plan.trip is None:
        assert plan.cost.shared_bytes == plan.cost.turns == 0
    if held(source) == held(target):
        assert plan.kind == "nothing" and plan.cost == Cost()
    elif [sorted(v) for v in held(source)] == [sorted(v) for v in held(target)]:
        assert plan.kind == "registers" and plan.cost.shuffles == 0


@given(pairs(), st.sampled_from([8, 16, 32, 64]))
def test_every_trip_through_shared_memory_is_right_and_free_of_conflicts(
    pair: tuple[Layout, Layout], bits: int
) -> None:
    source, target = pair
    src, dst = registers(source), registers(target)
    plan = convert(source, target, bits)
    trips = _trips(src, dst, bits, HOPPER, True)
    assert any(trip.store == trip.load == "vector" for trip, _ in trips)
    for trip, _ in trips:
        through = dataclasses.replace(plan, kind="shared", trip=trip, shuffles=None)
        assert through.run(held(source)) == held(target)
        for r, how, vector in ((src, trip.store, trip.store_vector), (dst, trip.load, trip.load_vector)):
            if how == "vector":
                lanes = LinearLayout(tuple([trip.address(b) for b in r.lanes]))
                asked = bits // 8 * vector << len(r.lanes)
                assert bank_conflicts(lanes, bits // 8, vector).turns <= max(1, asked // 128)


@given(st.data())
def test_targets_of_fewer_or_more_values(data: Any) -> None:
    values, more = data.draw(st.integers(0, 3)), data.draw(st.integers(-2, 2))
    source = data.draw(distributions(5 + values, 0, values))
    bases = [1 << k for k in range(5 + values)]
    wanted = max(0, values + more)
    places = list(data.draw(st.permutations(bases))) + [0] * 5
    target = by_bits(places[:5], places[5 : 5 + wanted])
    check(source, target, data.draw(st.sampled_from([16, 32])))


@given(st.lists(st.integers(0, 255), min_size=8, max_size=8))
def test_shuffles_of_any_map_of_slots(columns: list[int]) -> None:
    """Even where lanes want different registers of one lane at once."""
    from weft.layout.shuffle import plan_shuffles

    slots = LinearLayout(tuple(columns))
    plan = plan_shuffles(slots, 3, 3, 5, 32)
    source = [[t * 8 + v for v in range(8)] for t in range(32)]
    expected = [[(s >> 3) * 8 + s % 8 for s in (slots(v | t << 3) for v in range(8))] for t in range(32)]
    assert plan.run(source) == expected
    if f2.rank(columns) == 8:
        assert len(plan.rounds) == 8


def test_the_result_of_one_product_is_the_operand_of_the_next_without_moving() -> None:
    # Two C fragments side by side, m16n16, are the A fragment of m16n8k16.
    a = fragment(mma("float16", 16), "a")
    c = mma("float16", 16).c
    wide = Layout((c[0].shape, (2, 2, 2)), (c[0].stride, (16, 8, 128)))
    assert check(wide, a, 16).kind == "nothing"
    # For wgmma the same holds with 64 rows.
    p = wgmma("float16", 16)
    assert check(p.c, fragment(p, "a"), 16).kind == "nothing"


def test_kinds_worked_out() -> None:
    source = Layout((32, 4), (4, 1))
    assert check(source, source).kind == "nothing"
    assert check(source, Layout((32, (2, 2)), (4, (2, 1)))).kind == "registers"
    assert check(source, Layout((32, 2), (4, 2))).kind == "registers"
    turned = check(source, Layout((32, 4), (1, 32)))
    assert turned.kind == "shuffles" and turned.cost.shuffles == 4
    packed = check(source, Layout(((2, 16), (2, 2)), ((2, 4), (1, 64))), 16)
    assert packed.kind == "shuffles" and packed.shuffles is not None
    assert packed.shuffles.packed == 1 and packed.cost.shuffles == 2
    swapped = Layout(((2, 16), (2, 2)), ((2, 4), (1, 64)))
    assert check(swapped, source, 16).kind == "shuffles"
    across = check(Layout((128, 4), (4, 1)), Layout((128, 4), (1, 128)))
    assert across.kind == "shared" and across.cost.block_barrier and across.cost.shared_bytes == 2048
    assert across.trip is not None and across.cost.turns == 8


def test_matrix_instructions_where_they_fit() -> None:
    # A of wgmma, 64 rows of 16, from threads that hold 8 columns of a row, or 8 rows of a column; warps change.
    a = fragment(wgmma("float16", 64), "a")
    rows = by_bits([512, 4, 8, 16, 32, 1, 2], [64, 128, 256])
    loaded = check(rows, a, 16)
    assert loaded.trip is not None and (loaded.trip.load, loaded.trip.store_vector) == ("ldmatrix", 8)
    assert loaded.cost.turns == 8 and loaded.cost.block_barrier and loaded.cost.shared_bytes == 2048
    columns = by_bits([8, 16, 32, 64, 128, 256, 512], [1, 2, 4])
    loaded = check(columns, a, 16)
    assert loaded.trip is not None and (loaded.trip.load, loaded.trip.store_vector) == ("ldmatrix.trans", 8)
    # The other way, sm_90 stores by stmatrix; sm_80 has no such instruction.
    stored = check(a, rows, 16, HOPPER)
    assert stored.trip is not None and (stored.trip.store, stored.trip.load_vector) == ("stmatrix", 8)
    plain = check(a, rows, 16, AMPERE)
    assert plain.trip is not None and plain.trip.store == "vector" and plain.cost.total > stored.cost.total
    # Within a warp, shuffles of packed pairs are cheaper.
    a = fragment(mma("float16", 16), "a")
    near = check(Layout(((2, 16), 8), ((128, 1), 16)), a, 16)
    assert near.kind == "shuffles" and near.cost.shuffles == 4


@pytest.mark.parametrize(
    "call",
    [
        lambda: convert(Layout((32, 4)), Layout((64, 2)), 32),
        lambda: convert(Layout((32, 3)), Layout((32, 3)), 32),
        lambda: convert(Layout((32, 4)), Layout((32, 4)), 24),
        lambda: convert(Layout(32), Layout(32), 32),
        lambda: convert(Layout((32, 2), (1, 1)), Layout((32, 2)), 32),
    ],
)
def test_conversions_that_cannot_be_planned_are_refused(call: Any) -> None:
    with pytest.raises(LayoutError):
        call()


def test_an_element_that_nobody_holds_is_named() -> None:
    with pytest.raises(LayoutError) as caught:
        convert(Layout((32, 2)), Layout((32, 4)), 32)
    thread, value = caught.value.witness
    assert Layout((32, 4))(thread, value) == caught.value.expected == 64


def test_linear_reads_both_sides() -> None:
    assert registers(Layout((64, 2), (2, 1))).bases == linear(Layout((2, 64), (1, 2))).bases
