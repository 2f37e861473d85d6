"""What a load finds after a store: the value as the array's memory type holds it.

Arithmetic runs in op-math types and stores round, so a value that is kept in a scalar instead of being loaded again is
rounded first. Where its memory type holds it as it is, because it was loaded from such an array or chosen among such
values, nothing is to be done: a running maximum of bfloat16 elements remains one.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from weft.loops.ir import Array, Cast, Const, Expr, For, Function, If, Let, Load, Op, Ref, Round, Stmt, walk
from weft.loops.types import BFLOAT16, BOOL, FLOAT8_E4M3FN, FLOAT16, FLOATS8, ScalarType, saturates

# Operators that give one of their operands or its opposite. (`fmin` and `max` may choose a NaN, which every type holds.)
_CHOOSING = ("neg", "abs", "max", "min", "maximum", "minimum", "fmax", "fmin")


@dataclass
class Rounding:
    """Values as arrays hold them. meanings: of names, the expressions that any of their values comes from. known: names of
    values that were rounded to a type.
    """

    arrays: dict[str, Array]
    meanings: dict[str, tuple[Expr, ...]] = field(default_factory=dict)
    known: dict[str, ScalarType] = field(default_factory=dict)

    @staticmethod
    def of(function: Function, statements: Iterable[Stmt] | None = None) -> Rounding:
        """statements: those whose names are to be looked through, the function's own if None."""
        made = Rounding({a.name: a for a in function.arrays})
        for stmt in walk(tuple(function.body if statements is None else statements)):
            match stmt:
                case Let(name=name, value=value):
                    made.meanings[name] = (value,)
                case For():
                    for c in stmt.carries:
                        made.meanings[c.name] = made.meanings[c.result] = (c.init, c.next)
                case If():
                    for m in stmt.merges:
                        made.meanings[m.name] = (m.then, m.orelse)
        return made

    def rounds(self, array: str) -> bool:
        """Whether a store to an array may change the value."""
        held = self.arrays[array]
        return held.rounds and held.dtype != held.dtype.opmath

    def stored(self, array: str, value: Expr) -> Expr:
        """What a load finds after the store of a value."""
        if not self.rounds(array):
            return value
        dtype = self.arrays[array].dtype
        if isinstance(value, Const):
            return Const(rounded(value.value, dtype), value.type)
        return value if self.holds(dtype, value) else Round(value, dtype)

    def filled(self, array: Array) -> Const:
        """What the elements of an array are filled with."""
        assert array.fill is not None
        filled = self.stored(array.name, Const(array.fill.value, array.dtype.opmath))
        assert isinstance(filled, Const)
        return filled

    def note(self, array: str, name: str) -> Ref:
        """A new name of a value as the array holds it."""
        held = self.arrays[array].dtype
        self.known[name] = held
        return Ref(name, held.opmath)

    def holds(self, dtype: ScalarType, value: Expr) -> bool:
        """Whether a memory type holds a value as it is."""
        return self._holds(dtype, value, set())

    def _holds(self, dtype: ScalarType, value: Expr, assumed: set[str]) -> bool:
        match value:
            case Const(value=number):
                return rounded(number, dtype) == number or number != number
            case Round(to=to):
                return to == dtype
            case Load(array=array):
                return self.arrays[array].dtype == dtype and self.arrays[array].rounds
            case Cast(value=inner):
                return inner.type == BOOL
            case Ref(name=name):
                if name in assumed or self.known.get(name) == dtype:
                    return True
                # what a loop carries is held if it is to begin with, and after an iteration whenever before it
                sources = self.meanings.get(name, ())
                return bool(sources) and all(self._holds(dtype, e, assumed | {name}) for e in sources)
            case Op(name="where", args=(_, then, orelse)):
                return self._holds(dtype, then, assumed) and self._holds(dtype, orelse, assumed)
            case Op(name=name, args=args) if name in _CHOOSING:
                return all(self._holds(dtype, a, assumed) for a in args)
        return False


def rounded(value: float, dtype: ScalarType) -> float:
    """A number as float16, bfloat16 or a float of 8 bits holds it, after float32."""
    if not math.isfinite(value):
        return value if dtype != FLOAT8_E4M3FN or math.isnan(value) else _too_large(value)
    try:
        (single,) = struct.unpack("<f", struct.pack("<f", value))
        if dtype == FLOAT16:
            return float(struct.unpack("<e", struct.pack("<e", single))[0])
    except OverflowError:
        return math.copysign(math.inf, value)
    if dtype in FLOATS8:
        digits, least, largest = (4, -9, 448.0) if dtype == FLOAT8_E4M3FN else (3, -16, 57344.0)
        unit = math.ldexp(1.0, max(math.frexp(single)[1] - digits, least))
        near = round(single / unit) * unit  # to the nearest, ties to even
        if abs(near) <= largest:
            return near if near else math.copysign(0.0, value)
        return _too_large(value) if dtype == FLOAT8_E4M3FN else math.copysign(math.inf, value)
    assert dtype == BFLOAT16
    (bits,) = struct.unpack("<I", struct.pack("<f", single))
    upper = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000  # to the nearest, ties to even
    return float(struct.unpack("<f", struct.pack("<I", upper))[0])


def _too_large(value: float) -> float:
    return math.copysign(448.0, value) if saturates() else math.nan
