"""Random layouts, and their meaning written out once more: nothing here is taken from weft.layout but the class."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from weft.layout import Layout

SIZES = st.integers(1, 6)


def nested(leaf: st.SearchStrategy[Any], most: int = 4) -> st.SearchStrategy[Any]:
    return st.recursive(leaf, lambda inner: st.lists(inner, min_size=1, max_size=3).map(tuple), max_leaves=most)


@st.composite
def layouts(
    draw: st.DrawFn, low: int = 0, high: int = 24, sizes: st.SearchStrategy[int] = SIZES, most: int = 4
) -> Layout:
    """Any layout: nested, of any strides."""
    shape = draw(nested(sizes, most))
    count = len(flat(shape))
    strides = iter(draw(st.lists(st.integers(low, high), min_size=count, max_size=count)))
    return Layout(shape, refill(shape, strides))


@st.composite
def compact(draw: st.DrawFn, sizes: st.SearchStrategy[int] = SIZES, modes: int = 4) -> Layout:
    """A permutation: a flat layout whose modes lie side by side in any order."""
    shape = draw(st.lists(sizes, min_size=1, max_size=modes))
    order = draw(st.permutations(range(len(shape))))
    strides = [0] * len(shape)
    current = 1
    for m in order:
        strides[m] = current
        current *= shape[m]
    return Layout(tuple(shape), tuple(strides))


@st.composite
def injective(draw: st.DrawFn) -> Layout:
    """An injective layout whose strides divide one another, with gaps between."""
    base = draw(compact(modes=3))
    gaps = draw(st.lists(st.integers(1, 3), min_size=3, max_size=3))
    order = sorted(range(len(base.flat_shape)), key=lambda m: base.flat_stride[m])
    strides = list(base.flat_stride)
    current = 1
    for m in order:
        current *= gaps[m]
        strides[m] = current
        current *= base.flat_shape[m]
    return Layout(base.shape, tuple(strides))


@st.composite
def powers(draw: st.DrawFn, bits: int = 6, most: int = 6) -> Layout:
    """A layout of power-of-two sizes whose bits are disjoint."""
    places = draw(st.permutations(range(bits)))[: draw(st.integers(1, most))]
    return Layout((2,) * len(places), tuple([1 << p for p in places]))


def flat(t: Any) -> list[Any]:
    return [x for part in t for x in flat(part)] if isinstance(t, tuple) else [t]


def refill(profile: Any, leaves: Any) -> Any:
    return tuple([refill(p, leaves) for p in profile]) if isinstance(profile, tuple) else next(leaves)


def evaluate(layout: Layout, index: int) -> Any:
    """The definition: digits of the index, first mode fastest, the last takes what is left over."""
    shape, stride = flat(layout.shape), flat(layout.stride)
    total = 0
    for size, step in zip(shape[:-1], stride[:-1], strict=True):
        index, digit = divmod(index, size)
        total += digit * step
    return total + index * stride[-1]


def values(layout: Layout) -> list[Any]:
    count = 1
    for size in flat(layout.shape):
        count *= size
    return [evaluate(layout, i) for i in range(count)]
