"""Sizes known by name: what is proven holds for all values, the rest is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.layout import (
    Layout,
    LayoutError,
    Size,
    Undecided,
    axis,
    complement,
    composition,
    equivalent,
    is_injective,
    layout_add,
    logical_divide,
    logical_product,
    max_common_vector,
    parse,
    right_inverse,
    symbol,
    vector_width,
    zipped_divide,
)

N = symbol("n", multiple_of=8)
M = symbol("m", at_least=3)


def test_arithmetic() -> None:
    assert N + N == 2 * N and N - N == 0 and N * M == M * N and (N + 1) - N == 1
    assert N % 8 == 0 and (N * M) // N == M and divmod(3 * N + 5, 8) == (3 * (N // 8), 5)
    assert N >= 8 and N > 7 and M >= 3 and not M < 3 and N * M > 23 and N >= 8 and M > 2
    assert (M * M + 2 * M + 1).substitute({"m": 5}) == 36
    assert str(N // 8) == "n/8" and str(2 * N * M - 3) == "2*m*n-3"
    assert len({N, symbol("n", multiple_of=8)}) == 1


@given(st.integers(-4, 4), st.integers(-4, 4), st.integers(-9, 9), st.integers(1, 9), st.integers(3, 9))
def test_what_is_decided_holds_for_all_values(a: int, b: int, c: int, n: int, m: int) -> None:
    x: Any = a * N + b * M + c
    given = {"n": 8 * n, "m": m}
    actual = x.substitute(given) if isinstance(x, Size) else x
    questions: list[tuple[Any, Any]] = [(lambda: x < 0, actual < 0), (lambda: x >= 5, actual >= 5)]
    questions += [(lambda: x % 4, actual % 4), (lambda: x // 4, actual // 4), (lambda: x <= N, actual <= 8 * n)]
    for ask, expected in questions:
        try:
            answer = ask()
        except Undecided:
            continue
        assert (answer.substitute(given) if isinstance(answer, Size) else answer) == expected


@pytest.mark.parametrize("ask", [lambda: M % 2, lambda: M < 5, lambda: N // M, lambda: abs(M - 4), lambda: N % (M + 1)])
def test_what_depends_on_values_is_undecided(ask: Any) -> None:
    with pytest.raises(Undecided):
        ask()


@pytest.mark.parametrize(
    "make",
    [
        lambda: symbol("2n"),
        lambda: symbol("n", multiple_of=0),
        lambda: N.substitute({}),
        lambda: N.substitute({"n": 12}),
        lambda: M.substitute({"m": 2}),
        lambda: N // 0,
        lambda: Layout((M, 4)).values(),
    ],
)
def test_bad_facts_are_refused(make: Any) -> None:
    with pytest.raises(LayoutError):
        make()


def test_layouts_of_unknown_size() -> None:
    a = Layout((N, 64), (64, 1))
    assert a.size() == 64 * N and str(a) == "(n,64):(64,1)" and parse(str(a), {"n": N}) == a
    assert Layout((64, N)) == Layout((64, N), (1, 64)) and Layout((64, N)).coalesce() == Layout(64 * N)
    assert a.substitute({"n": 16}) == Layout((16, 64), (64, 1))
    assert a(3, 5) == 197 and a(N - 8, 0) == 64 * N - 512


@given(st.integers(1, 6), st.integers(3, 7))
def test_operations_hold_for_every_value(n: int, m: int) -> None:
    values = {"n": 8 * n, "m": m}

    def known(x: Layout) -> Layout:
        return x.substitute(values)

    a = Layout((N, 64), (64, 1))
    tiled = zipped_divide(a, (8, 16))
    assert isinstance(tiled, Layout) and known(tiled).values() == zipped_divide(known(a), (8, 16)).values()
    b = Layout((64, N, M))
    tile = Layout((8, 4, 2), (1, 64, 64 * N))
    assert known(composition(b, tile)).values() == composition(known(b), known(tile)).values()
    assert known(complement(Layout(8, 1), N)).values() == complement(Layout(8, 1), 8 * n).values()
    divided, multiplied = logical_divide(Layout(N), 8), logical_product(Layout((4, 2)), M)
    assert isinstance(divided, Layout) and equivalent(known(divided), logical_divide(Layout(8 * n), 8))
    assert isinstance(multiplied, Layout) and equivalent(known(multiplied), Layout((8, m)))
    column = Layout((64, N), (N, 1))
    inverse = right_inverse(column)
    assert isinstance(inverse, Layout)
    assert [known(column)(known(inverse)(i)) for i in range(512 * n)] == list(range(512 * n))
    assert known(layout_add(a, Layout((N, 64), (1, 0)))).values() == [
        65 * r + c for c in range(64) for r in range(8 * n)
    ]


def test_questions_about_unknown_sizes() -> None:
    assert is_injective(Layout((64, M), (1, 64))) and is_injective(Layout((M, 4), (4, 1)))
    assert vector_width(Layout((M, N), (N, 1)), Layout((M, N), (2 * N, 1)), 2) == 8
    # The elements of rows of unknown length: together side by side, with gaps between rows not known to be aligned.
    assert vector_width(Layout((N, M), (M, 1)), Layout((N, M), (M, 1)), 2) == 8
    assert vector_width(Layout((N, M), (2 * M, 1)), Layout((N, M), (2 * M, 1)), 2) == 1
    assert max_common_vector(Layout((M, N), (N, 1)), Layout((M, N), (2 * N, 1))) == N
    with pytest.raises(LayoutError):
        is_injective(Layout((M, 4), (1, 3)))
    with pytest.raises(Undecided):
        logical_divide(Layout(M), 2)
    with pytest.raises(LayoutError):
        composition(Layout((M, 4), (1, 100)), Layout((8, 2), (1, 3)))


def test_boxes_of_coordinates() -> None:
    box = Layout((N, 64), (axis(1), axis(0)))
    part = zipped_divide(box, (8, 16))
    assert isinstance(part, Layout)
    assert part(((3, 5), (1, 2))).as_tuple(2) == (2 * 16 + 5, 8 + 3)
    assert str(part) == "((8,16),(n/8,4)):((1@1,1@0),(8@1,16@0))"
    assert box.coalesce() == box and axis(0) - axis(0) == 0 and axis(0) + 2 * axis(1) == axis(1) * 2 + axis(0)
    calls: list[Any] = [lambda: axis(-1), lambda: axis(2).as_tuple(2), lambda: box.cosize(), lambda: complement(box)]
    for call in calls:
        with pytest.raises(LayoutError):
            call()
