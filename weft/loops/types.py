"""Scalar types, PyTorch's promotion of them, and the type arithmetic runs in.

Memory types are what tensors hold. Register types are what expressions compute in: the op-math
type of the memory type (float32 for floats of 16 and 8 bits, as PyTorch's `opmath_t`), the type itself otherwise.
Floats of 8 bits are converted and moved alone: PyTorch has no arithmetic on them.

Complex types are the language's alone: a number of one is two of its part's type in a loop nest (weft.language.pairs).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from weft.errors import TypeMismatch

Category = Literal["bool", "int", "float", "complex"]
CATEGORIES: tuple[Category, ...] = ("bool", "int", "float", "complex")
_CATEGORY_ORDER = {name: k for k, name in enumerate(CATEGORIES)}


@dataclass(frozen=True, eq=False)
class ScalarType:
    """A scalar type: PyTorch's name for it, its category, its size in memory in bytes. There is one object of each name: types
    are compared and hashed with every expression.
    """

    name: str
    category: Category
    size: int
    signed: bool = True

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)  # and not by its address, so that a seed of hashes gives one order

    def __reduce__(self) -> tuple[Callable[[str], ScalarType], tuple[str]]:
        return _of_name, (self.name,)

    @property
    def opmath(self) -> ScalarType:
        """The register type that arithmetic on this memory type runs in."""
        return FLOAT32 if self in (FLOAT16, BFLOAT16, *FLOATS8) else self

    @property
    def part(self) -> ScalarType:
        """The type of the real and of the imaginary part of a complex type; a real type itself."""
        return self if self.category != "complex" else FLOAT32 if self == COMPLEX64 else FLOAT64


BOOL = ScalarType("bool", "bool", 1, signed=False)
UINT8 = ScalarType("uint8", "int", 1, signed=False)
INT8 = ScalarType("int8", "int", 1)
INT16 = ScalarType("int16", "int", 2)
INT32 = ScalarType("int32", "int", 4)
INT64 = ScalarType("int64", "int", 8)
FLOAT16 = ScalarType("float16", "float", 2)
BFLOAT16 = ScalarType("bfloat16", "float", 2)
FLOAT8_E4M3FN = ScalarType("float8_e4m3fn", "float", 1)
FLOAT8_E5M2 = ScalarType("float8_e5m2", "float", 1)
FLOATS8 = (FLOAT8_E4M3FN, FLOAT8_E5M2)
FLOAT32 = ScalarType("float32", "float", 4)
FLOAT64 = ScalarType("float64", "float", 8)

COMPLEX64 = ScalarType("complex64", "complex", 8)
COMPLEX128 = ScalarType("complex128", "complex", 16)

_INTEGERS = (UINT8, INT8, INT16, INT32, INT64)
SCALAR_TYPES = {t.name: t for t in (BOOL, *_INTEGERS, *FLOATS8, FLOAT16, BFLOAT16, FLOAT32, FLOAT64)}

COMPLEX_TYPES = {t.name: t for t in (COMPLEX64, COMPLEX128)}
COMPLEX_OF = {t.part: t for t in COMPLEX_TYPES.values()}


def _of_name(name: str) -> ScalarType:
    return SCALAR_TYPES.get(name) or COMPLEX_TYPES[name]


def complex_of(part: ScalarType) -> ScalarType:
    """The complex type that a float of this type becomes beside a complex number of less weight. Raises TypeMismatch."""
    if part.name == "float16":
        raise TypeMismatch(
            "float16 beside a complex number is complex32 in PyTorch, which weft does not have",
            remedy="convert the float16 with .float() first",
        )
    return COMPLEX128 if part == FLOAT64 else COMPLEX64


def no_arithmetic(type_: ScalarType) -> TypeMismatch:
    return TypeMismatch(f"PyTorch has no arithmetic on {type_}", remedy="convert elements first: .float(), .to(dtype)")


def saturates() -> bool:
    """Whether a number that is too large for float8_e4m3fn becomes its largest one; NaN otherwise. That is what PyTorch does,
    one version or another.
    """
    torch = sys.modules.get("torch")
    return torch is not None and _saturates(torch)


@functools.cache
def _saturates(torch: Any) -> bool:
    return float(torch.tensor(1e6).to(torch.float8_e4m3fn)) == 448.0


def promote_types(a: ScalarType, b: ScalarType) -> ScalarType:
    """`torch.promote_types(a, b)`."""
    if a == b:
        return a
    for type_ in (a, b):
        if type_ in FLOATS8:
            raise no_arithmetic(type_)
    if "complex" in (a.category, b.category):
        return COMPLEX128 if FLOAT64 in (a.part, b.part) else COMPLEX64
    if a.category != b.category:
        return a if _CATEGORY_ORDER[a.category] > _CATEGORY_ORDER[b.category] else b
    if a.category == "float":
        if a.size == b.size:  # float16 with bfloat16
            return FLOAT32
        return a if a.size > b.size else b
    # integers: an unsigned with a signed of its size or less needs the next signed one
    if a.signed == b.signed:
        return a if a.size > b.size else b
    unsigned, signed = (b, a) if a.signed else (a, b)
    if signed.size > unsigned.size:
        return signed
    return {1: INT16, 2: INT32, 4: INT64}[unsigned.size]


@dataclass(frozen=True)
class Typed:
    """The type of a Python-level value, before registers: its scalar type and how much it weighs.

    weight 2: a tensor with dimensions; 1: one element of a tensor (a 0-dim tensor in the plain Python);
    0: a Python number (bool, int as int64, float as float64, complex as complex128).
    """

    scalar: ScalarType
    weight: int

    @property
    def register(self) -> ScalarType:
        return self.scalar.opmath


def promote(a: Typed, b: Typed, default_float: ScalarType) -> Typed:
    """The type of `a + b` in PyTorch: a lighter operand counts only if its category is higher."""
    if a.weight < b.weight:
        a, b = b, a
    if a.weight == b.weight:
        return Typed(promote_types(a.scalar, b.scalar), a.weight)
    if _CATEGORY_ORDER[b.scalar.category] <= _CATEGORY_ORDER[a.scalar.category]:
        return a
    if b.scalar.category == "complex" and (a.scalar.category == "float" or b.weight == 0):
        return Typed(complex_of(a.scalar if a.scalar.category == "float" else default_float), a.weight)
    if b.weight == 0:
        scalar = {"int": INT64, "float": default_float, "bool": BOOL}[b.scalar.category]
        return Typed(scalar, a.weight)
    return Typed(b.scalar, a.weight)
