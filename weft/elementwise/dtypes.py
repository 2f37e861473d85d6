"""The dtype that operands are computed in, and what may be written into what: PyTorch's rules.

The rule of real dtypes is the language's (`weft.loops.types.promote`): tensors with dimensions outweigh those without, which
outweigh Python numbers, and a lighter operand counts only if its category is higher. A complex operand weighs what its real
part would, and makes the result complex.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch

from weft.elementwise.operands import Operand
from weft.errors import TypeMismatch
from weft.loops.types import FLOAT64, SCALAR_TYPES, ScalarType, Typed, promote

_NUMBER, _ELEMENT, _TENSOR = 0, 1, 2  # the weights of `Typed`


def common_dtype(operands: Sequence[Operand], default: torch.dtype | None = None) -> torch.dtype:
    """`torch.result_type` of any number of operands; default: the default dtype (torch's own where it is None).

    Raises TypeMismatch where PyTorch promotes a dtype with no other (uint16 with integers, float8_e5m2 ...).
    """
    default_float = _scalar(default or torch.get_default_dtype())
    classes = [[t for t in map(_typed, operands) if t.weight == weight] for weight in (_NUMBER, _ELEMENT, _TENSOR)]
    try:
        alike = [reduce(_promoted_alike, typed) for typed in classes if typed]
        result = reduce(lambda lighter, heavier: _outweighed(heavier, lighter, default_float), alike)
        scalar = default_float if result == Typed(FLOAT64, _NUMBER) else result.scalar
        dtype = _dtype(scalar)
        return dtype.to_complex() if any(operand.dtype.is_complex for operand in operands) else dtype
    except RuntimeError as refused:
        raise TypeMismatch(
            f"{', '.join(operand.name for operand in operands)} have no common dtype",
            evidence=[f"{o.name} is {'a Python ' if o.number else ''}{_name(o.dtype)}" for o in operands],
            remedy="convert them to one dtype with .to(...)",
        ) from refused


def check_cast(common: torch.dtype, out: Operand) -> None:
    """Raise TypeMismatch where what is computed in the common dtype may not be written into a result that is given.

    The rule is `torch.can_cast`'s: complex is not cast to real, float to integer, nor anything but bool to bool; narrower
    dtypes of a category are fine.
    """
    if not torch.can_cast(common, out.dtype):
        raise TypeMismatch(
            f"{out.name} is {_name(out.dtype)}, and the result is {_name(common)}",
            evidence=["complex is never cast to real, float to integer, or anything but bool to bool"],
            remedy=f"pass {out.name} as {_name(common)}, or convert the result with .to({out.dtype})",
        )


def _promoted_alike(a: Typed, b: Typed) -> Typed:
    """What two operands of one class promote to; RuntimeError where PyTorch does not promote them."""
    return promote(a, b) if _known(a, b) else Typed(_scalar(torch.promote_types(_dtype(a.scalar), _dtype(b.scalar))), a.weight)


def _outweighed(heavier: Typed, lighter: Typed, default_float: ScalarType) -> Typed:
    """What operands of two classes promote to; RuntimeError where they have to be and PyTorch does not."""
    result = promote(heavier, lighter, default_float)
    if result.scalar != heavier.scalar and not _known(heavier, lighter):
        torch.promote_types(_dtype(heavier.scalar), _dtype(lighter.scalar))
    return result


def _known(*typed: Typed) -> bool:
    """Whether the language has these types; others (uint16, float8 ...) PyTorch promotes in few cases."""
    return all(t.scalar.name in SCALAR_TYPES for t in typed)


def _typed(operand: Operand) -> Typed:
    dtype = operand.dtype.to_real() if operand.dtype.is_complex else operand.dtype
    return Typed(_scalar(dtype), _NUMBER if operand.number else _TENSOR if operand.shape else _ELEMENT)


def _scalar(dtype: torch.dtype) -> ScalarType:
    name = _name(dtype)
    if name in SCALAR_TYPES:
        return SCALAR_TYPES[name]
    return ScalarType(name, "float" if dtype.is_floating_point else "int", dtype.itemsize, dtype.is_signed)


def _dtype(scalar: ScalarType) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, scalar.name)
    return dtype


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
