"""The argument record of a kernel: one 8-byte slot an argument, in order, on every target alike.

Most slots (strides, sizes) are known when a launcher is made; those marked `Given` are written at every launch.
"""

from __future__ import annotations

import ctypes
import functools
import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

from weft.errors import OutOfRange


class Given(Enum):
    """A slot given at every launch: an address, an int64, a float64. The value is its `struct` format."""

    POINTER = "Q"
    INTEGER = "q"
    REAL = "d"


@dataclass(frozen=True)
class Slots:
    """words: the record, 8 bytes a slot, zeros where a value is given at launch. given: (position, kind), ascending."""

    words: bytes
    given: tuple[tuple[int, Given], ...]

    def __len__(self) -> int:
        return len(self.words) // 8


def pack(values: Sequence[Given | bool | int | float]) -> Slots:
    """The slots of these arguments: int and bool as int64, float as float64, `Given` left for the launch.

    Raises OutOfRange for an int beyond 64 bits.
    """
    words = bytearray()
    given: list[tuple[int, Given]] = []
    for position, value in enumerate(values):
        if isinstance(value, Given):
            given.append((position, value))
            words += bytes(8)
        elif isinstance(value, float):
            words += struct.pack("=d", value)
        else:
            try:
                words += struct.pack("=q", operator.index(value))
            except struct.error:
                message = f"argument {position} does not fit a 64-bit integer"
                raise OutOfRange(message, evidence=(f"its value is {value}",)) from None
    return Slots(bytes(words), tuple(given))


class Frame:
    """One launch's own copy of the slots. `write(*values)` puts in the given ones, in order."""

    __slots__ = ("address", "buffer", "write")

    def __init__(self, slots: Slots) -> None:
        self.buffer = (ctypes.c_uint64 * max(1, len(slots)))()
        ctypes.memmove(self.buffer, slots.words, len(slots.words))
        self.address = ctypes.addressof(self.buffer)
        self.write = _writer(slots, self.buffer)


def _writer(slots: Slots, buffer: ctypes.Array[ctypes.c_uint64]) -> Callable[..., None]:
    """A function that writes the given slots. A run of neighbours (the rule: pointers come first) is one C call."""
    runs: list[tuple[int, struct.Struct]] = []
    for _, run in groupby(enumerate(slots.given), lambda item: item[1][0] - item[0]):
        members = [member for _, member in run]
        runs.append((8 * members[0][0], struct.Struct("=" + "".join(kind.value for _, kind in members))))
    if len(runs) <= 1:
        offset, layout = runs[0] if runs else (0, struct.Struct("="))
        return functools.partial(layout.pack_into, buffer, offset)

    def write(*values: int | float) -> None:
        if len(values) != len(slots.given):
            raise TypeError(f"{len(slots.given)} values are given at launch, got {len(values)}")
        first = 0
        for offset, layout in runs:
            last = first + layout.size // 8
            layout.pack_into(buffer, offset, *values[first:last])
            first = last

    return write
