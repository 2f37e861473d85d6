"""Questions about layouts, each with an exact answer."""

from __future__ import annotations

from typing import Any

from weft.layout.coordinates import Coordinates
from weft.layout.errors import LayoutError
from weft.layout.layout import Layout
from weft.layout.swizzle import AnyLayout, ComposedLayout
from weft.layout.tuples import refines, unflatten

# Steps of the search for a collision before it is given up.
SEARCHED = 1 << 18


def is_injective(layout: AnyLayout) -> bool:
    """Whether no two coordinates have the same value. Raises LayoutError where that takes too long to tell."""
    # A swizzle and an offset are injective.
    return collision(layout.layout if isinstance(layout, ComposedLayout) else layout) is None


def is_bijective(layout: AnyLayout) -> bool:
    """Whether the values are the integers from 0 to size - 1, each once."""
    if isinstance(layout, ComposedLayout):
        return is_injective(layout) and layout.cosize() == layout.size() and min(layout.values()) == 0
    upwards = all(s == 1 or d >= 0 for s, d in zip(layout.flat_shape, layout.flat_stride, strict=True))
    return upwards and bool(layout.cosize() == layout.size()) and is_injective(layout)


def is_compatible(a: Any, b: Any) -> bool:
    """Whether every coordinate of a is a coordinate of b: the shape of b (layout or nested tuple) refines that of a."""
    return refines(_shape(b), _shape(a))


def equivalent(a: AnyLayout, b: AnyLayout) -> bool:
    """Whether the two have the same size and the same value at every index."""
    if isinstance(a, Layout) and isinstance(b, Layout):
        # A layout has one normal form.
        return a.coalesce() == b.coalesce()
    return bool(a.size() == b.size()) and (a == b or a.values() == b.values())


def collision(layout: Layout) -> tuple[Any, Any] | None:
    """Two coordinates with the same value, or None if there are none.

    Two coordinates collide if the differences y of theirs, |y_i| < s_i, sum to zero: sum_i d_i y_i = 0. The search
    goes from the largest stride down and keeps only partial sums that the smaller strides can still make up for.
    """
    modes = [(d, s, i) for i, (s, d) in enumerate(zip(layout.flat_shape, layout.flat_stride, strict=True)) if s != 1]
    for d, _, i in modes:
        if d == 0:
            return _two(layout, {i: 1})
    if any(isinstance(d, Coordinates) for d, _, _ in modes):
        return _collision_along_axes(layout, modes)
    if any(type(x) is not int for mode in modes for x in mode[:2]):
        _prove_injective(layout, modes)
        return None
    modes.sort(key=lambda mode: -abs(mode[0]))
    reach = [0] * (len(modes) + 1)
    for k in range(len(modes) - 1, -1, -1):
        reach[k] = reach[k + 1] + abs(modes[k][0]) * (modes[k][1] - 1)
    steps = 0
    # Each entry: how many modes are decided, their sum, their differences. The first that is not 0 is positive.
    stack: list[tuple[int, int, tuple[int, ...]]] = [(0, 0, ())]
    while stack:
        k, total, chosen = stack.pop()
        if k == len(modes):
            if any(chosen):
                return _two(layout, {modes[j][2]: y for j, y in enumerate(chosen)})
            continue
        d, s, _ = modes[k]
        sign = 1 if d > 0 else -1
        step = abs(d)
        low = 0 if not any(chosen) else max(-(s - 1), -((total + reach[k + 1]) // step))
        high = min(s - 1, (reach[k + 1] - total) // step)
        steps += max(0, high - low) + 1
        if steps > SEARCHED:
            raise LayoutError(f"whether {layout} is injective takes too long to tell", operation="is_injective")
        stack += [(k + 1, total + step * y, (*chosen, sign * y)) for y in range(low, high + 1)]
    return None


def _collision_along_axes(layout: Layout, modes: list[tuple[Any, Any, int]]) -> tuple[Any, Any] | None:
    """The same for strides along axes, each along one: coordinates collide if they do along every axis."""
    axes: dict[int, list[tuple[Any, Any, int]]] = {}
    for d, s, i in modes:
        steps = d.steps if isinstance(d, Coordinates) else ()
        if len(steps) != 1:
            raise LayoutError(f"whether {layout} is injective is not known for stride {d}", operation="is_injective")
        axes.setdefault(steps[0][0], []).append((steps[0][1], s, i))
    for group in axes.values():
        along = Layout(tuple([s for _, s, _ in group]), tuple([d for d, _, _ in group]))
        twice = collision(along)
        if twice is not None:
            return _two(layout, {i: b - a for (_, _, i), a, b in zip(group, *twice, strict=True)})
    return None


def _prove_injective(layout: Layout, modes: list[tuple[Any, Any, int]]) -> None:
    """Raise LayoutError unless each stride is proven to be at least what all the smaller ones reach together."""
    left = list(modes)
    reached: Any = 1
    while left:
        smallest = next((m for m in left if _is_smallest(m, left)), None)
        if smallest is None or not _at_least(smallest[0], reached):
            raise LayoutError(f"{layout} is not proven to be injective for all sizes", operation="is_injective")
        left.remove(smallest)
        reached = reached + (smallest[1] - 1) * smallest[0]


def _is_smallest(mode: tuple[Any, Any, int], modes: list[tuple[Any, Any, int]]) -> bool:
    return all(other is mode or _at_least(other[0], mode[0]) for other in modes)


def _at_least(a: Any, b: Any) -> bool:
    try:
        return bool(a >= b)
    except (LayoutError, TypeError):
        return False


def _two(layout: Layout, differences: dict[int, int]) -> tuple[Any, Any]:
    """Two coordinates that differ by these amounts in these flat modes."""
    n = len(layout.flat_shape)
    first = [max(0, -differences.get(i, 0)) for i in range(n)]
    second = [max(0, differences.get(i, 0)) for i in range(n)]
    return unflatten(first, layout.shape), unflatten(second, layout.shape)


def _shape(x: Any) -> Any:
    return x.shape if isinstance(x, (Layout, ComposedLayout)) else x
