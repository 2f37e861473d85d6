"""What is true of a call's arguments that a kernel is specialised to: unit strides, alignment, width of offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from weft.loops.types import ScalarType
from weft.plan.arguments import Facts

# The most elements whose alignment a kernel may rely on, and the most bytes.
_MOST_ELEMENTS, _MOST_BYTES = 8, 32
# From so many on columns are counted in 64 bits: tiles before and behind the last one fit 32 bits with the others.
MANY = 1 << 30


@dataclass(frozen=True)
class Geometry:
    """An array of a call: sizes and strides in elements, and its address or a multiple of what it is aligned to."""

    dtype: ScalarType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int

    @property
    def unit_axis(self) -> int | None:
        """The axis of stride 1: the last such one longer than 1, else the last of size 1."""
        candidates = [k for k, (n, s) in enumerate(zip(self.shape, self.strides, strict=True)) if s == 1 or n == 1]
        longer = [k for k in candidates if self.shape[k] != 1]
        return longer[-1] if longer else candidates[-1] if candidates else None

    def vector(self, most: int = _MOST_ELEMENTS) -> int:
        """A power of two of elements, `most` of them, that address, other strides and the size along the unit axis are
        multiples of.
        """
        axis = self.unit_axis
        if axis is None:
            return 1
        count = min(most, _MOST_BYTES // self.dtype.size)
        others = [s for k, (n, s) in enumerate(zip(self.shape, self.strides, strict=True)) if k != axis and n > 1]
        while count > 1 and (
            self.address % (count * self.dtype.size) or any(n % count for n in (self.shape[axis], *others))
        ):
            count //= 2
        return count

    def in_packets(self, count: int) -> bool:
        """Whether address and other strides are multiples of so many elements, however many there are along the unit axis."""
        others = [s for k, (n, s) in enumerate(zip(self.shape, self.strides, strict=True)) if k != self.unit_axis and n > 1]
        aligned = self.address % (count * self.dtype.size) == 0
        return self.unit_axis is not None and aligned and all(s % count == 0 for s in others)

    def span(self) -> int:
        """One more than the largest offset, in elements."""
        return 1 + sum(max(0, n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))


def facts_of(arrays: Mapping[str, Geometry], extents: Iterable[int]) -> Facts:
    """The facts of a call. extents: numbers of iterations of its axes."""
    unit = frozenset((name, g.unit_axis) for name, g in arrays.items() if g.unit_axis is not None)
    vectors = tuple((name, g.vector()) for name, g in arrays.items() if g.vector() > 1)
    # columns are counted in the smaller type; pointers to rows and products with strides are always 64 bits wide
    wide = any(n >= MANY for n in (*extents, *(n for g in arrays.values() for n in g.shape)))
    return Facts(unit, vectors, wide)
