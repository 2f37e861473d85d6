"""Inverses of layouts as functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, overload

from weft.layout.coordinates import Coordinates
from weft.layout.errors import LayoutError
from weft.layout.layout import Jumps, Layout, from_modes
from weft.layout.linear import LinearLayout, composed_inverse
from weft.layout.predicates import collision, is_bijective
from weft.layout.solve import solve
from weft.layout.swizzle import AnyLayout, ComposedLayout
from weft.layout.tuples import show

# Up to this largest value, every possible left inverse is tried; up to this many values, one of another form is made.
SEARCHED = 64
TABULATED = 1024


@overload
def right_inverse(layout: Layout) -> Layout: ...
@overload
def right_inverse(layout: ComposedLayout) -> AnyLayout | LinearLayout: ...
def right_inverse(layout: AnyLayout) -> AnyLayout | LinearLayout:
    """The layout R with layout(R(i)) == i for every i < size(R), as large as modes that follow on one another make it.

    1:0 where the layout never takes the value 1. The inverse of a swizzled layout (of powers of two, else LayoutError)
    is a layout behind one swizzle where there is such a form, and a map over F2 where there is none.
    """
    if isinstance(layout, ComposedLayout):
        return composed_inverse(layout)
    modes = []
    index: Any = 1
    for s, d in zip(layout.flat_shape, layout.flat_stride, strict=True):
        if isinstance(d, Coordinates):
            raise LayoutError(f"{layout} has coordinates as values, not integers", operation="right_inverse")
        if s != 1 and d != 0:
            modes.append((d, s, index))
        index = index * s
    chain = _longest_chain(modes, 1)
    return from_modes([s for s, _ in chain], [i for _, i in chain]).coalesce()


def left_inverse(layout: AnyLayout) -> AnyLayout | LinearLayout | Jumps:
    """A function R with R(layout(i)) == i for every index i: a Layout where one has these values, else a sum of floors.

    Exists for every injective layout of integers; for strides that divide one another it is found without evaluation.
    The inverse of a swizzled layout is asked for only where it is bijective.
    Raises LayoutError for a layout that is not injective, with two coordinates of the same value.
    """
    if isinstance(layout, ComposedLayout) and is_bijective(layout):
        return right_inverse(layout)
    if not isinstance(layout, Layout) or any(type(x) is not int for x in layout.flat_shape + layout.flat_stride):
        raise LayoutError(f"{layout} is not a layout of known integers", operation="left_inverse")
    twice = collision(layout)
    if twice is not None:
        first, second = twice
        raise LayoutError(
            f"{layout} is not injective: {show(first)} and {show(second)} have the same value",
            operation="left_inverse",
            witness=twice,
            expected=layout(first),
            remedy="take the left inverse of its filter(), which counts each broadcast once",
        )
    modes = []
    index = 1
    for s, d in zip(layout.flat_shape, layout.flat_stride, strict=True):
        if s != 1:
            modes.append((d, s, index))
        index *= s
    modes.sort()
    found = _of_a_chain(modes)
    if found is None and layout.cosize() <= SEARCHED:
        found = _searched(layout)
    return found.coalesce() if found is not None else _sum_of_floors(layout)


def _longest_chain(modes: list[tuple[Any, Any, Any]], reached: Any) -> list[tuple[Any, Any]]:
    """(size, index stride) of modes (stride, size, index) of which each starts where those before it end.

    Where strides overlap there is a choice: which of several modes goes on, and whether another takes over midway.
    """
    best: list[tuple[Any, Any]] = []
    length: Any = 1
    for k, (d, s, index) in enumerate(modes):
        if d != reached:
            continue
        others = modes[:k] + modes[k + 1 :]
        for size in [s, *_takeovers(others, reached, s)]:
            rest = _longest_chain(others, reached * size)
            whole: Any = size
            for t, _ in rest:
                whole = whole * t
            if length == 1 or whole > length:
                best, length = [(size, index), *rest], whole
    return best


def _takeovers(modes: list[tuple[Any, Any, Any]], reached: Any, size: Any) -> list[int]:
    """How far a mode of `size` steps may go so that another mode starts there; for known integers."""
    if type(reached) is not int or type(size) is not int:
        return []
    return sorted(
        {d // reached for d, _, _ in modes if type(d) is int and d % reached == 0 and 1 < d // reached < size}
    )


def _of_a_chain(modes: list[tuple[int, int, int]]) -> Layout | None:
    """The left inverse where each stride is a multiple of the one before: the digits of a value are the coordinates."""
    if any(d < 0 for d, _, _ in modes):
        return None
    sizes: list[int] = []
    strides: list[int] = []
    last, step = 1, 0
    for d, _, index in modes:
        if d % last:
            return None
        sizes.append(d // last)
        strides.append(step)
        last, step = d, index
    if modes:
        sizes.append(modes[-1][1])
        strides.append(step)
    return from_modes(sizes, strides)


def _searched(layout: Layout) -> Layout | None:
    """Any layout that is a left inverse: for each choice of its sizes, the strides solve linear equations."""
    values = layout.values()
    reach = max(map(abs, values))
    order = sorted(range(len(values)), key=lambda i: abs(values[i]))
    for sizes in sorted(_factors_below(reach), key=len):
        strides = solve([_digits(values[i], sizes) for i in order], order)
        if strides is not None:
            inner = 1
            for s in sizes:
                inner *= s
            return from_modes([*sizes, reach // inner + 1], strides)
    return None


def _factors_below(limit: int) -> Iterator[tuple[int, ...]]:
    """All sequences of factors above 1 whose product is at most `limit`."""
    yield ()
    for s in range(2, limit + 1):
        for rest in _factors_below(limit // s):
            yield (s, *rest)


def _digits(x: int, sizes: tuple[int, ...]) -> list[int]:
    digits = []
    for s in sizes:
        x, c = divmod(x, s)
        digits.append(c)
    return [*digits, x]


def _sum_of_floors(layout: Layout) -> Jumps:
    """The left inverse as a sum of jumps, each placed at a value where the sum so far falls short of its index."""
    values = layout.values()
    if min(values) < 0 or len(values) > TABULATED:
        raise LayoutError(
            f"no left inverse of {layout} is found among layouts, and it is too large or negative to be tabulated",
            operation="left_inverse",
            witness=layout.coordinate(values.index(min(values))),
        )
    boundaries: list[int] = []
    jumps: list[int] = []
    for index in sorted(range(len(values)), key=values.__getitem__):
        value = values[index]
        short = index - sum([jump * (value // boundary) for boundary, jump in zip(boundaries, jumps, strict=True)])
        if short:
            boundaries.append(value)
            jumps.append(short)
    if boundaries and boundaries[0] == 1:
        return Jumps(jumps[0], tuple(boundaries[1:]), tuple(jumps[1:]))
    return Jumps(0, tuple(boundaries), tuple(jumps))
