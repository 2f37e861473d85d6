"""Composition: right everywhere, or refused with a coordinate that fails."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_strategies import compact, evaluate, layouts, powers, values

from bench import layout_universe as universe
from bench.layout_universe import UNIVERSES, Counts, Universe, count
from weft.layout import ComposedLayout, Layout, LayoutError, Swizzle, axis, composition, equivalent, is_compatible, parse


def check(a: Layout, b: Layout) -> Layout | None:
    """Compose, and check the result or the refusal by evaluation."""
    truth = [evaluate(a, v) for v in values(b)]
    try:
        r = composition(a, b)
    except LayoutError as error:
        assert error.operation == "composition" and error.witness is not None
        assert evaluate(a, b(error.witness)) == error.expected != error.found
        return None
    assert isinstance(r, Layout)
    assert values(r) == truth and is_compatible(b, r)
    return r


@pytest.mark.parametrize("small", UNIVERSES, ids=lambda u: u.name.replace(" ", "-"))
def test_a_sample_of_the_universes(small: Universe) -> None:
    counts = count(small, 101)
    assert counts.pairs > 1000 and counts.right > counts.pairs // 3
    assert counts.faults == 0 and counts.refused_with_an_answer == 0


def test_deep_layouts_whose_jumps_cancel() -> None:
    rng = Random(5)
    counts = Counts()
    for _ in range(4000):
        shape = tuple(rng.choices((2, 3, 4, 6), k=rng.randint(3, 6)))
        stride = [rng.randint(-3, 6)]
        for size in shape[:-1]:
            stride.append(size * stride[-1] + rng.choice((0, 1, -1, 2, -2)))
        modes = rng.randint(1, 3)
        sizes = tuple(rng.choices((2, 3, 4, 6, 8, 12), k=modes))
        steps = tuple(rng.choices((0, 1, 2, 3, 4, 6, 9, 12, 24, 36, -1, -2, -6), k=modes))
        universe.check((shape, tuple(stride)), (sizes, steps), counts)
    assert counts.right > 400 and counts.faults == 0 and counts.refused_with_an_answer == 0


@settings(max_examples=150)
@given(layouts(low=-12), layouts(low=-12))
def test_any_composition_is_right_or_refused(a: Layout, b: Layout) -> None:
    check(a, b)


@settings(max_examples=100)
@given(layouts(sizes=st.sampled_from([1, 2, 4]), high=8), layouts(sizes=st.sampled_from([1, 2, 4]), high=8))
def test_powers_of_two_that_overlap_are_right_or_refused(a: Layout, b: Layout) -> None:
    check(a, b)


@given(compact(), st.data())
def test_what_divides_composes(a: Layout, data: st.DataObject) -> None:
    # Tiles of a whose modes divide those of a are always composed.
    tile = tuple([data.draw(st.sampled_from([d for d in range(1, s + 1) if s % d == 0])) for s in a.flat_shape])
    b = Layout(tile, Layout(a.shape).stride)
    r = check(a, b)
    assert r is not None and r == Layout(tile, a.stride) or a.size() == 1 or 1 in tile


def test_the_counterexample_to_injectivity() -> None:
    a, b = Layout((36, 18), (1, 72)), Layout((9, 4), (4, 9))
    assert len(set(b.values())) == 36
    with pytest.raises(LayoutError) as caught:
        composition(a, b)
    error = caught.value
    assert (error.mode, error.boundary, error.load) == (1, 36, 37)
    assert error.witness == (7, 1) and (error.expected, error.found) == (73, 37)
    wrong = [(i, j) for i in range(9) for j in range(4) if a(4 * i + 9 * j) != a(4 * i) + a(9 * j)]
    assert len(wrong) == 12


@pytest.mark.parametrize(
    ("a", "b", "r"),
    [
        ("(2,4):(1,10)", "4:3", "(2,2):(11,30)"),
        ("(5,4):(1,100)", "4:3", "(2,2):(3,101)"),
        ("(2,2,4):(1,5,7)", "(2,2):(1,3)", "(2,2):(1,6)"),
        ("(4,3,1):(3,1,0)", "24:1", "(4,3,2):(3,1,0)"),
        ("(20,2):(16,4)", "(4,5):(1,4)", "(4,5):(16,64)"),
        ("(10,2):(16,4)", "(5,4):(1,5)", "(5,(2,2)):(16,(80,4))"),
        ("(6,2):(8,2)", "(4,3):(3,1)", "((2,2),3):((24,2),8)"),
        ("8:3", "(2,(2,2)):(-1,(0,4))", "(2,(2,2)):(-3,(0,12))"),
        ("(4,8):(8,1)", "2:-1", "2:23"),
    ],
)
def test_worked_examples(a: str, b: str, r: str) -> None:
    assert str(check(plain(a), plain(b))) == r


@pytest.mark.parametrize(
    ("a", "b"),
    [("(4,4):(4,1)", "(4,4):(1,1)"), ("(3,2):(1,10)", "(2,2):(1,2)"), ("(4,8):(8,1)", "4:-1"), ("(3,4):(1,9)", "4:1")],
)
def test_lost_carries_and_broken_runs_are_refused(a: str, b: str) -> None:
    assert check(plain(a), plain(b)) is None


def plain(text: str) -> Layout:
    layout = parse(text)
    assert isinstance(layout, Layout)
    return layout


@given(layouts(sizes=st.sampled_from([1, 2, 4])), powers(), st.data())
def test_composition_is_associative_where_images_nest(a: Layout, b: Layout, data: st.DataObject) -> None:
    # Beyond the size of b, a o b goes on along its last mode, and a after b may not: the values of c stay within.
    c = data.draw(powers(bits=len(b.flat_shape)))
    try:
        left = composition(composition(a, b), c)
    except LayoutError:
        return
    assert equivalent(left, composition(a, composition(b, c)))


@given(compact(), compact(), compact())
def test_composition_is_associative_for_permutations(a: Layout, b: Layout, c: Layout) -> None:
    try:
        left, right = composition(composition(a, b), c), composition(a, composition(b, c))
    except LayoutError:
        return
    if c.size() <= b.size() <= a.size():
        assert equivalent(left, right)


@given(layouts(low=-9))
def test_the_identity_composes_to_the_same(a: Layout) -> None:
    assert composition(Layout(1000), a) == Layout(a.shape, a.stride) or 1 in a.flat_shape
    assert equivalent(composition(a, Layout(a.size())), a)
    assert composition(a, Layout(a.shape)).values() == a.values()


def test_large_layouts_are_composed_or_refused_without_evaluating_all() -> None:
    a = Layout((1 << 20, 1 << 20), (1 << 20, 1))
    tile = Layout((128, 1 << 10), (1, 1 << 20))
    assert composition(a, tile) == Layout((128, 1 << 10), (1 << 20, 1))
    with pytest.raises(LayoutError) as caught:
        composition(a, Layout((1 << 20, 1 << 20), (1, 1)))
    error = caught.value
    assert error.witness is not None and a(sum(error.witness)) == error.expected != error.found
    with pytest.raises(LayoutError) as caught:
        composition(Layout((3, 1 << 30), (1, 7)), Layout(1 << 30, 1))
    assert caught.value.witness == 3
    # The carries cancel everywhere, which is neither proven by residues nor evaluated at so many coordinates.
    half = 1 << 18
    with pytest.raises(LayoutError, match="not proven") as caught:
        composition(Layout((half, 2, 4), (1, half + 3, 2 * half + 3)), Layout((half, 2), (1, 2 * half - 1)))
    assert caught.value.witness is None


def test_by_mode_with_tuples_of_tilers() -> None:
    a = Layout((12, (4, 8)), (59, (13, 1)))
    assert composition(a, (Layout(3, 4), Layout(8, 2))) == Layout((3, (2, 4)), (236, (26, 1)))
    assert composition(a, (3, None)) == Layout((3, (4, 8)), (59, (13, 1)))
    assert composition(a, (None, (2, 4))) == Layout((12, (2, 4)), (59, (13, 1)))
    assert composition(a, 6) == Layout(6, 59)
    with pytest.raises(LayoutError, match="tilers"):
        composition(a, (1, 2, 3))
    with pytest.raises(LayoutError):
        composition(a, (1.5,))
    with pytest.raises(LayoutError):
        composition(a, "4:1")


@given(layouts(), layouts(), st.integers(0, 40))
def test_composition_after_an_offset(a: Layout, b: Layout, offset: int) -> None:
    shifted = ComposedLayout(Swizzle(0, 0, 0), offset, b)
    try:
        r = composition(a, shifted)
    except LayoutError as error:
        assert evaluate(a, offset + b(error.witness)) == error.expected != error.found
        return
    assert r.values() == [evaluate(a, offset + v) for v in values(b)]


def test_coordinates_may_be_composed_but_nothing_after_them() -> None:
    box = Layout((8, 16), (axis(0), axis(1)))
    part = composition(box, Layout((4, 2), (2, 8)))
    assert part == Layout((4, 2), (2 * axis(0), axis(1)))
    assert part(3, 1).as_tuple(2) == (6, 1)
    with pytest.raises(LayoutError, match="along axes"):
        composition(Layout((4, 4), (4, 1)), box)
