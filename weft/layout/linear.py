"""Layouts over F2: the power-of-two part of the algebra, in which swizzles are linear as well.

An index of n bits goes to the XOR of the bases at its bits. A layout of power-of-two sizes is such a map if, and only
if, the values of its bits have no bit in common: only then is its sum an XOR.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from weft.layout import f2
from weft.layout.errors import LayoutError
from weft.layout.layout import from_modes
from weft.layout.swizzle import IDENTITY, AnyLayout, ComposedLayout, Swizzle, composed


@dataclass(frozen=True)
class LinearLayout:
    """x -> constant ^ (XOR of bases[k] over the bits k of x), for 0 <= x < 2 ** len(bases). Equal functions are ==."""

    bases: tuple[int, ...]
    constant: int = 0

    def __call__(self, x: int) -> int:
        """The value at an index. Raises LayoutError outside its 2 ** len(bases) indices."""
        if not 0 <= x < 1 << len(self.bases):
            raise LayoutError(f"index {x} is not within the {len(self.bases)} bits of a linear layout", witness=x)
        return self.constant ^ f2.apply(self.bases, x)

    def size(self) -> int:
        return 1 << len(self.bases)

    def rank(self) -> int:
        """The dimension of the image: 2 ** rank values are taken."""
        return f2.rank(self.bases)

    def is_injective(self) -> bool:
        return self.rank() == len(self.bases)

    def after(self, other: LinearLayout) -> LinearLayout:
        """self(other(x)). Raises LayoutError where values of `other` are no indices of self."""
        reached = other.constant
        for b in other.bases:
            reached |= b
        if reached >> len(self.bases):
            raise LayoutError(f"values of {other} reach outside the {len(self.bases)} bits of {self}")
        bases = tuple([f2.apply(self.bases, b) for b in other.bases])
        return LinearLayout(bases, self(other.constant))

    def right_inverse(self) -> LinearLayout:
        """The largest R with self(R(i)) == i for i < 2 ** k. Raises LayoutError where self never takes the value 0."""
        origin = f2.combination(self.bases, self.constant)
        if origin is None:
            raise LayoutError(f"{self} never takes the value 0", operation="right_inverse")
        bases: list[int] = []
        while (source := f2.combination(self.bases, 1 << len(bases))) is not None:
            bases.append(source)
        return LinearLayout(tuple(bases), origin)

    def __str__(self) -> str:
        constant = f" ^ {self.constant}" if self.constant else ""
        return f"F2[{','.join(map(str, self.bases))}]{constant}"


def linear(layout: AnyLayout | Swizzle, bits: int | None = None) -> LinearLayout:
    """The layout as a map over F2. bits: the width of the index of a swizzle, which has none of its own.

    Raises LayoutError where it is none: a size that is no power of two, or values of two bits that have a bit in common
    (the witness is the index where sum and XOR differ).
    """
    if isinstance(layout, Swizzle):
        if bits is None:
            raise LayoutError(f"{layout} takes indices of any width", remedy="say how many bits: linear(swizzle, bits)")
        return LinearLayout(tuple([layout(1 << k) for k in range(bits)]))
    inner = layout.layout if isinstance(layout, ComposedLayout) else layout
    bases: list[int] = []
    for s, d in zip(inner.flat_shape, inner.flat_stride, strict=True):
        if type(s) is not int or type(d) is not int or s & (s - 1) or d < 0:
            raise LayoutError(f"mode {s}:{d} of {inner} is not one of a power of two", operation="linear")
        bases += [d << k for k in range(s.bit_length() - 1)]
    offset = layout.offset if isinstance(layout, ComposedLayout) else 0
    used: int = offset
    for k, b in enumerate(bases):
        if b & used:
            other = next((j for j in range(k) if bases[j] & b), None)
            witness = (1 << k) | (0 if other is None else 1 << other)
            raise LayoutError(
                f"{layout} carries where a map over F2 cannot: bits of {b} are taken already",
                operation="linear",
                witness=witness,
                expected=offset + inner(witness),
                found=offset ^ f2.apply(bases, witness),
            )
        used |= b
    if isinstance(layout, ComposedLayout):
        return LinearLayout(tuple([layout.swizzle(b) for b in bases]), layout.swizzle(offset))
    return LinearLayout(tuple(bases))


def as_layout(map: LinearLayout) -> AnyLayout:
    """The layout, or the swizzled layout, that a map over F2 is; the swizzle with the fewest bits.

    Raises LayoutError where no single swizzle makes a layout of it.
    """
    width = max(map.constant, *map.bases, 1).bit_length()
    for swizzle in swizzles(width):
        bases = [swizzle(b) for b in map.bases]
        constant = swizzle(map.constant)
        if _disjoint([constant, *bases]):
            return composed(swizzle, constant, from_modes([2] * len(bases), bases).coalesce())
    raise LayoutError(f"{map} is no layout behind one swizzle", operation="as_layout")


def swizzles(width: int) -> Iterator[Swizzle]:
    """Every swizzle of `width` bits that differs from the others as a function: the identity, then by bits and base."""
    yield IDENTITY
    for bits in range(1, width // 2 + 1):
        for base in range(width - 2 * bits + 1):
            for shift in range(bits, width - base - bits + 1):
                yield Swizzle(bits, base, shift)
                yield Swizzle(bits, base, -shift)


def composed_inverse(layout: ComposedLayout) -> AnyLayout | LinearLayout:
    """The right inverse of a swizzled or shifted layout, through F2; as a layout behind one swizzle where it is one.

    Raises LayoutError where the layout is no map over F2.
    """
    inverse = linear(layout).right_inverse()
    try:
        return as_layout(inverse)
    except LayoutError:
        return inverse


def _disjoint(values: list[Any]) -> bool:
    used = 0
    for v in values:
        if v & used:
            return False
        used |= v
    return True
