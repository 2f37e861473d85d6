"""Layouts: functions from coordinates to offsets, given as shape:stride.

A coordinate counts colexicographically: the first mode is the fastest. The last mode extends without bound, so a layout
is a function of every integer index, and with prefix products p_i = s_1 ... s_i and jumps j_i = d_{i+1} - s_i d_i it is

    L(x) = d_1 x + sum_i j_i floor(x / p_i)

Every layout keeps this jump form once it has been asked for; the operations work on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from weft.layout.coordinates import Coordinates
from weft.layout.errors import LayoutError
from weft.layout.symbolic import Size, Undecided, substitute
from weft.layout.tuples import as_integer, congruent, leaves, nesting, normalise, prefix_strides, product, show, unflatten


class Jumps(NamedTuple):
    """The function x -> slope x + sum of jumps[i] floor(x / boundaries[i]): boundaries ascend, jumps are not 0.

    A function of this form is a layout where, and only where, each boundary divides the next.
    """

    slope: Any
    boundaries: tuple[Any, ...]
    jumps: tuple[Any, ...]

    def __call__(self, x: Any) -> Any:
        value = self.slope * x
        for boundary, jump in zip(self.boundaries, self.jumps, strict=True):
            value += jump * (x // boundary)
        return value


class Layout:
    """A layout, immutable and hashable.

    shape: a positive int (or symbolic size) or a nested tuple of them. stride: integers, symbolic sizes or coordinate
    strides, nested as the shape is; compact with the first mode fastest where left out. Two layouts are == if their
    shapes and strides are; `equivalent` compares them as functions. Raises LayoutError for anything else.
    """

    __slots__ = ("_shape", "_stride", "_flat_shape", "_flat_stride", "_jumps", "_size")

    _shape: Any
    _stride: Any
    _flat_shape: tuple[Any, ...]
    _flat_stride: tuple[Any, ...]
    _jumps: Jumps | None
    _size: Any

    def __init__(self, shape: Any, stride: Any = None) -> None:
        shape = normalise(shape, _size_leaf, "sizes")
        stride = prefix_strides(shape) if stride is None else normalise(stride, _stride_leaf, "strides")
        if not congruent(shape, stride):
            raise LayoutError(
                f"shape {show(shape)} and stride {show(stride)} are not nested alike",
                remedy="give one stride for each size, in the same nesting",
            )
        self._shape = shape
        self._stride = stride
        self._flat_shape = leaves(shape)
        self._flat_stride = leaves(stride)
        self._jumps = None
        self._size = None

    @property
    def shape(self) -> Any:
        return self._shape

    @property
    def stride(self) -> Any:
        return self._stride

    @property
    def jumps(self) -> Jumps:
        """The jump form: what the layout is as a function of all integers."""
        if self._jumps is None:
            self._jumps = _jump_form(self._flat_shape, self._flat_stride)
        return self._jumps

    @property
    def flat_shape(self) -> tuple[Any, ...]:
        return self._flat_shape

    @property
    def flat_stride(self) -> tuple[Any, ...]:
        return self._flat_stride

    def __call__(self, *coordinate: Any) -> Any:
        """The value at an index or a coordinate; with None among the coordinates, the slice there.

        An int stands for a coordinate wherever a tuple could; the last mode takes any int, the others only those
        within their size. Raises LayoutError for a coordinate that does not fit the shape.
        """
        c = coordinate[0] if len(coordinate) == 1 else coordinate
        if type(c) is int:
            return self.jumps(c)
        if _has_none(c):
            from weft.layout.slicing import slice

            return slice(self, c)
        return _value(normalise(c, _index_leaf, "coordinates"), self._shape, self._stride, True)

    def size(self) -> Any:
        """The number of coordinates."""
        if self._size is None:
            self._size = product(self._flat_shape)
        return self._size

    def cosize(self) -> Any:
        """The length of the smallest interval that holds all values; with no negative stride, the largest value + 1."""
        if any(isinstance(d, Coordinates) for d in self._flat_stride):
            raise LayoutError(f"{self} has coordinates as values: they lie in no interval", operation="cosize")
        reach: Any = 1
        for s, d in zip(self._flat_shape, self._flat_stride, strict=True):
            reach += (s - 1) * abs(d)
        return reach

    def rank(self) -> int:
        """The number of modes at the top."""
        return len(self._shape) if type(self._shape) is tuple else 1

    def depth(self) -> int:
        """0 for one mode alone, 1 for a flat tuple of modes, and so on."""
        return nesting(self._shape)

    def flatten(self) -> Layout:
        """The same function with every mode at the top."""
        if type(self._shape) is not tuple:
            return self
        return from_flat(self._flat_shape, self._flat_stride)

    def coalesce(self, profile: Any = None) -> Layout:
        """The shortest layout of the same values on the same indices: its only normal form.

        With a profile (any nested tuple), the modes that correspond to its leaves are coalesced one by one.
        """
        if type(profile) is tuple:
            if len(profile) > self.rank():
                raise LayoutError(f"{show(self._shape)} has fewer modes than {len(profile)}", operation="coalesce")
            parts = [mode.coalesce(p) for mode, p in zip(self, profile, strict=False)]
            return concatenate(*parts, *list(self)[len(profile) :])
        sizes: list[Any] = []
        strides: list[Any] = []
        for s, d in zip(self._flat_shape, self._flat_stride, strict=True):
            if s == 1:
                continue
            if sizes and d == sizes[-1] * strides[-1]:
                sizes[-1] = sizes[-1] * s
            else:
                sizes.append(s)
                strides.append(d)
        return from_modes(sizes, strides)

    def filter(self) -> Layout:
        """Without the modes of size 1 or stride 0, coalesced: the same values, each broadcast counted once."""
        modes = [(s, d) for s, d in zip(self._flat_shape, self._flat_stride, strict=True) if s != 1 and d != 0]
        return from_modes([s for s, _ in modes], [d for _, d in modes]).coalesce()

    def values(self) -> list[Any]:
        """The values at the indices 0 ... size - 1, in order."""
        if any(type(s) is not int for s in self._flat_shape):
            raise LayoutError(f"{self} has sizes that are not known", remedy="give them values with substitute")
        result: list[Any] = [0]
        for s, d in zip(self._flat_shape, self._flat_stride, strict=True):
            if s != 1:
                result = [v + k * d for k in range(s) for v in result]
        return result

    def substitute(self, values: Mapping[str, int]) -> Layout:
        """The layout with these values for its symbolic sizes. LayoutError for one left out, or against its facts."""
        return Layout(substitute(self._shape, values), substitute(self._stride, values))

    def coordinate(self, index: Any) -> Any:
        """The coordinate, nested as the shape, of an index; the last mode takes what is left over."""
        return coordinate_of(index, self._shape)

    def __getitem__(self, mode: int) -> Layout:
        """The mode of this number, as a layout. Raises LayoutError past the rank."""
        rank = self.rank()
        if type(mode) is not int or not -rank <= mode < rank:
            raise LayoutError(f"{self} has no mode {mode!r}", remedy=f"modes are numbered 0 to {rank - 1}")
        if type(self._shape) is not tuple:
            return self
        return _trusted(self._shape[mode], self._stride[mode])

    def __len__(self) -> int:
        return self.rank()

    def __iter__(self) -> Iterator[Layout]:
        if type(self._shape) is not tuple:
            yield self
        else:
            for s, d in zip(self._shape, self._stride, strict=True):
                yield _trusted(s, d)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        return bool(self._shape == other._shape and self._stride == other._stride)

    def __hash__(self) -> int:
        return hash((self._shape, self._stride))

    def __str__(self) -> str:
        return f"{show(self._shape)}:{show(self._stride)}"

    def __repr__(self) -> str:
        return f"Layout({self._shape!r}, {self._stride!r})"

    def __reduce__(self) -> Any:
        return (Layout, (self._shape, self._stride))


def concatenate(*layouts: Layout) -> Layout:
    """The layout whose modes are these layouts: at (c_0, c_1, ...) the sum of their values."""
    return trusted(
        tuple([a._shape for a in layouts]),
        tuple([a._stride for a in layouts]),
        tuple([s for a in layouts for s in a._flat_shape]),
        tuple([d for a in layouts for d in a._flat_stride]),
    )


def from_modes(sizes: list[Any], strides: list[Any]) -> Layout:
    """The flat layout of these modes: 1:0 for none, one mode alone for one."""
    if not sizes:
        return _trusted(1, 0)
    if len(sizes) == 1:
        return _trusted(sizes[0], strides[0])
    return from_flat(tuple(sizes), tuple(strides))


def from_flat(shape: tuple[Any, ...], stride: tuple[Any, ...]) -> Layout:
    """A flat layout of parts that are known to be right."""
    return trusted(shape, stride, shape, stride)


def trusted(shape: Any, stride: Any, flat_shape: tuple[Any, ...], flat_stride: tuple[Any, ...]) -> Layout:
    """A layout of parts that are known to be right: the way out of the operations, which need not check again."""
    layout = Layout.__new__(Layout)
    layout._shape = shape
    layout._stride = stride
    layout._flat_shape = flat_shape
    layout._flat_stride = flat_stride
    layout._jumps = None
    layout._size = None
    return layout


def _trusted(shape: Any, stride: Any) -> Layout:
    return trusted(shape, stride, leaves(shape), leaves(stride))


def coordinate_of(index: Any, shape: Any) -> Any:
    """The coordinate of an index within a shape, colexicographic; the last leaf takes what is left over."""
    sizes = leaves(shape)
    parts = []
    for s in sizes[:-1]:
        index, c = divmod(index, s)
        parts.append(c)
    if sizes:
        parts.append(index)
    return unflatten(parts, shape)


def _jump_form(sizes: tuple[Any, ...], strides: tuple[Any, ...]) -> Jumps:
    if not sizes:
        return Jumps(0, (), ())
    slope = last = strides[0]
    boundaries: list[Any] = []
    jumps: list[Any] = []
    boundary: Any = 1
    for i in range(1, len(sizes)):
        size = sizes[i - 1]
        jump = strides[i] - size * last
        last = strides[i]
        boundary = boundary * size
        if boundary == 1:
            slope = slope + jump
        elif boundaries and boundaries[-1] == boundary:
            jumps[-1] = jumps[-1] + jump
            if jumps[-1] == 0:
                del boundaries[-1], jumps[-1]
        elif jump != 0:
            boundaries.append(boundary)
            jumps.append(jump)
    return Jumps(slope, tuple(boundaries), tuple(jumps))


def _value(c: Any, shape: Any, stride: Any, last: bool) -> Any:
    if type(shape) is not tuple:
        if type(c) is tuple:
            raise LayoutError(f"coordinate {show(c)} is nested deeper than the shape {show(shape)}")
        if not last and is_outside(c, shape):
            raise LayoutError(f"coordinate {c} is not within the size {shape}", witness=c)
        return c * stride
    if type(c) is not tuple:
        if not last and is_outside(c, product(shape)):
            raise LayoutError(f"coordinate {c} is not within the shape {show(shape)}", witness=c)
        c = coordinate_of(c, shape)
    if len(c) != len(shape):
        raise LayoutError(f"coordinate {show(c)} does not fit the shape {show(shape)}")
    total: Any = 0
    for i, (x, s, d) in enumerate(zip(c, shape, stride, strict=True)):
        total += _value(x, s, d, last and i == len(shape) - 1)
    return total


def is_outside(c: Any, size: Any) -> bool:
    """Whether a coordinate is known to lie outside a size (symbolic ones may leave that open)."""
    try:
        return not 0 <= c < size
    except Undecided:
        return False


def _has_none(c: Any) -> bool:
    return c is None or (isinstance(c, (tuple, list)) and any(map(_has_none, c)))


def _size_leaf(x: Any, what: str) -> Any:
    if isinstance(x, Size):
        return x
    x = as_integer(x, what)
    if x < 1:
        raise LayoutError(f"sizes must be positive, not {x}")
    return x


def _stride_leaf(x: Any, what: str) -> Any:
    return x if isinstance(x, (Size, Coordinates)) else as_integer(x, what)


def _index_leaf(x: Any, what: str) -> Any:
    return x if isinstance(x, Size) else as_integer(x, what)
