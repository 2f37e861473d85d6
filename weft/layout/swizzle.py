"""Swizzles, and layouts behind an offset and a swizzle.

A swizzle is its own inverse: it XORs a field of the offset's bits with another field, so that columns spread over the
banks of shared memory while rows stay together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from weft.layout.errors import LayoutError
from weft.layout.layout import Layout
from weft.layout.tuples import as_integer


@dataclass(frozen=True)
class Swizzle:
    """x -> x ^ ((x & source) >> shift): `bits` bits at base + shift are XORed into those at base.

    With a negative shift the source lies below its target: `bits` bits at base into those at base - shift. The two
    fields must not overlap: |shift| >= bits. bits = 0 is the identity.
    """

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        for value in (self.bits, self.base, self.shift):
            as_integer(value, "the numbers of a swizzle")
        if self.bits < 0 or self.base < 0:
            raise LayoutError(f"bits and base of a swizzle are not negative: {self}")
        if abs(self.shift) < self.bits:
            raise LayoutError(
                f"the fields of {self} overlap", remedy=f"shift by at least {self.bits}, or swizzle fewer bits"
            )

    @property
    def source(self) -> int:
        """The mask of the bits that are read."""
        return ((1 << self.bits) - 1) << (self.base + max(0, self.shift))

    @property
    def target(self) -> int:
        """The mask of the bits that change."""
        return ((1 << self.bits) - 1) << (self.base - min(0, self.shift))

    @property
    def is_identity(self) -> bool:
        return self.bits == 0

    def __call__(self, x: int) -> int:
        field = x & self.source
        return x ^ (field >> self.shift if self.shift >= 0 else field << -self.shift)

    def __str__(self) -> str:
        return f"Swizzle({self.bits},{self.base},{self.shift})"


IDENTITY = Swizzle(0, 0, 0)


@dataclass(frozen=True)
class ComposedLayout:
    """The function c -> swizzle(offset + layout(c)), of the layout's shape. == compares parts, `equivalent` functions.

    Prefer `composed`, which gives a plain Layout where swizzle and offset do nothing.
    """

    swizzle: Swizzle
    offset: Any
    layout: Layout

    @property
    def shape(self) -> Any:
        return self.layout.shape

    def __call__(self, *coordinate: Any) -> Any:
        inner = self.layout(*coordinate)
        if isinstance(inner, Layout):
            return composed(self.swizzle, self.offset, inner)
        if isinstance(inner, ComposedLayout):
            return composed(self.swizzle, self.offset + inner.offset, inner.layout)
        value = self.offset + inner
        return value if self.swizzle.is_identity else self.swizzle(value)

    def size(self) -> Any:
        return self.layout.size()

    def cosize(self) -> Any:
        """The length of the smallest interval from 0 or below that holds all values; evaluates them all."""
        if self.swizzle.is_identity and self.offset == 0:
            return self.layout.cosize()
        values = self.values()
        return max(values) + 1 - min(0, *values)

    def rank(self) -> int:
        return self.layout.rank()

    def depth(self) -> int:
        return self.layout.depth()

    def flatten(self) -> ComposedLayout:
        return self.with_layout(self.layout.flatten())

    def coalesce(self, profile: Any = None) -> ComposedLayout:
        return self.with_layout(self.layout.coalesce(profile))

    def filter(self) -> ComposedLayout:
        return self.with_layout(self.layout.filter())

    def values(self) -> list[Any]:
        """The values at the indices 0 ... size - 1, in order."""
        swizzle, offset = self.swizzle, self.offset
        return [swizzle(offset + v) for v in self.layout.values()]

    def with_layout(self, layout: Layout) -> ComposedLayout:
        """The same swizzle and offset behind another layout."""
        return ComposedLayout(self.swizzle, self.offset, layout)

    def __getitem__(self, mode: int) -> Layout | ComposedLayout:
        """The mode of this number. Raises LayoutError past the rank."""
        return composed(self.swizzle, self.offset, self.layout[mode])

    def __len__(self) -> int:
        return self.rank()

    def __iter__(self) -> Iterator[AnyLayout]:
        return map(self.__getitem__, range(self.rank()))

    def __str__(self) -> str:
        return f"{self.swizzle} o {self.offset} o {self.layout}"


AnyLayout = Layout | ComposedLayout
# What rearranges coordinates gives back what it got: a layout, or one behind a swizzle.
Kind = TypeVar("Kind", Layout, ComposedLayout)


def composed(swizzle: Swizzle, offset: Any, layout: Layout) -> AnyLayout:
    """swizzle(offset + layout(c)): a plain Layout where there is no offset and the swizzle is the identity."""
    if swizzle.is_identity:
        return layout if offset == 0 else ComposedLayout(IDENTITY, offset, layout)
    return ComposedLayout(swizzle, offset, layout)


def behind(layout: Kind, operation: Callable[[Layout], Layout]) -> Kind:
    """An operation that only rearranges coordinates, applied to what lies behind the swizzle and the offset."""
    if isinstance(layout, ComposedLayout):
        return layout.with_layout(operation(layout.layout))
    return operation(layout)
