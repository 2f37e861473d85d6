"""What a call is given: its arguments' types, tensors that are given twice, and the values of sizes and numbers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from weft.errors import DeviceMismatch, NumberOverflow, TypeMismatch
from weft.language import ArgumentType, Signature, TensorType
from weft.loops.affine import evaluate
from weft.loops.ir import Function
from weft.loops.types import BOOL, COMPLEX_TYPES, FLOAT64, INT64, SCALAR_TYPES, ScalarType

Same = tuple[tuple[int, int], ...]  # (position, position of the earlier argument that it is)
DTYPES: dict[torch.dtype, ScalarType] = {getattr(torch, name): t for name, t in SCALAR_TYPES.items()}
COMPLEX: dict[torch.dtype, ScalarType] = {getattr(torch, name): t for name, t in COMPLEX_TYPES.items()}
_SUPPORTED = ", ".join(SCALAR_TYPES | COMPLEX_TYPES)
_SMALLER = "pass a smaller number, or a float"
_ARTICLES = {"tensor": "a tensor", "int": "an int", "float": "a float", "bool": "a bool", "number": "a number"}


def argument_types(signature: Signature, args: Sequence[Any]) -> tuple[ArgumentType, ...]:
    """The types of the arguments. Raises TypeMismatch where one does not fit its parameter."""
    return tuple(_argument_type(signature, p.name, p.kind, a) for p, a in zip(signature.parameters, args, strict=True))


def _argument_type(signature: Signature, name: str, kind: str, value: Any) -> ArgumentType:
    def refuse(what: str, remedy: str) -> TypeMismatch:
        return TypeMismatch(f"{name} {what}", location=signature.location, remedy=remedy)

    use = f"{signature.name} uses it as {_ARTICLES[kind]}"
    if isinstance(value, torch.Tensor):
        if kind not in ("tensor", "number"):
            many = f"read one element of it at a time, as {name}[i] in a loop over i, or pass a number"
            raise refuse(f"is a tensor, and {use}", many if value.dim() else f"pass {name}.item(), or a number")
        if value.is_nested:
            raise refuse("is a nested tensor", f"pass {name}.to_padded_tensor(0.0), or each of {name}.unbind()")
        if value.layout is not torch.strided:
            raise refuse(f"is a tensor of layout {value.layout}", f"pass {name}.to_dense()")
        scalar = DTYPES.get(value.dtype)
        if scalar is None:
            raise refuse(f"is a tensor of {value.dtype}, which weft does not know", f"use one of {_SUPPORTED}")
        return TensorType(scalar, value.dim())
    if kind == "tensor":
        maker = "from_numpy" if type(value).__module__ == "numpy" else "tensor"
        numbers = type(value).__module__ in ("builtins", "numpy") and not isinstance(value, dict)
        remedy = f"pass a tensor, as torch.{maker}({name})" if numbers else "pass a tensor; of an object, the tensors it holds"
        if isinstance(value, torch.fx.Proxy):
            remedy = "use torch.export or torch.compile, which see what kernels do; torch.fx.symbolic_trace has no tensors"
        raise refuse(f"is {_described(value)}, and {use}", remedy)
    if isinstance(value, bool):
        return FLOAT64 if kind == "float" else INT64 if kind == "int" else BOOL
    if isinstance(value, (int, torch.SymInt)):
        if isinstance(value, int) and kind in ("int", "number") and not -(2**63) <= value < 2**63:
            raise NumberOverflow(f"{name} is an int that leaves 64 bits", location=signature.location, remedy=_SMALLER)
        if isinstance(value, int) and kind == "float" and abs(value) > sys.float_info.max:
            raise NumberOverflow(f"{name} is an int beyond all floats", location=signature.location, remedy=_SMALLER)
        return {"float": FLOAT64, "bool": BOOL}.get(kind, INT64)
    if isinstance(value, (float, torch.SymFloat)) and kind in ("float", "number"):
        return FLOAT64
    raise refuse(f"is {_described(value)}, and {use}", f"pass {_ARTICLES[kind]}")


def _described(value: Any) -> str:
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace("a builtins.", "a ")


def as_pairs(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of complex numbers as one of their parts, which it shares its memory with unless it is lazily conjugate."""
    return torch.view_as_real(tensor.resolve_conj().resolve_neg())


def plain(value: Any) -> Any:
    """Python's number for one of numpy's; anything else as it is."""
    return value.item() if type(value).__module__ == "numpy" and value.ndim == 0 else value


def common_device(function: Function, tensors: Mapping[str, torch.Tensor]) -> torch.device:
    """The device all tensors lie on. Raises DeviceMismatch."""
    devices = {n: t.device for n, t in tensors.items()}
    if len(set(devices.values())) > 1:
        facts = [f"{n} lies on {d}" for n, d in devices.items()]
        raise DeviceMismatch(
            f"the tensors of {function.name} lie on different devices",
            location=function.location,
            evidence=facts,
            remedy="move them to one",
        )
    device = next(iter(devices.values()), torch.device("cpu"))
    if device.type not in ("cpu", "cuda", "meta"):
        raise DeviceMismatch(
            f"{function.name} cannot run on {device}",
            location=function.location,
            evidence=[f"{n} lies on {d}" for n, d in devices.items()],
            remedy="move the tensors to a CUDA GPU or to the CPU",
        )
    return device


def gathered(signature: Signature, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with tensors without dimensions moved from the CPU to where the others lie, as PyTorch takes them for
    numbers there; not those that are written or given back. The same tuple where there are none.
    """
    first = None
    mixed = False
    for a in args:
        if isinstance(a, torch.Tensor):
            first = a.device if first is None else first
            mixed = mixed or a.device != first
    if not mixed:
        return args
    numbers = [
        isinstance(a, torch.Tensor) and a.device.type == "cpu" and a.dim() == 0 and p.name not in signature.objects
        for p, a in zip(signature.parameters, args, strict=True)
    ]
    others = {a.device for a, is_number in zip(args, numbers, strict=True) if isinstance(a, torch.Tensor) and not is_number}
    if len(others) != 1 or not any(numbers):
        return args
    (device,) = others
    return tuple(a.to(device) if is_number else a for a, is_number in zip(args, numbers, strict=True))


@dataclass(frozen=True)
class Bound:
    """The arguments of a call by name: tensors, the values of sizes and scalars."""

    tensors: dict[str, torch.Tensor]
    names: dict[str, Any]


def bind(function: Function, args: Sequence[Any]) -> Bound:
    """Arguments by name, in the order of the function's parameters, with the sizes of tensors and what follows from them."""
    given = dict(zip(function.parameters, args, strict=True))
    tensors = {n: v for n, v in given.items() if isinstance(v, torch.Tensor)}
    names: dict[str, Any] = {s.name: given[s.name] for s in function.scalars if s.value is None}
    names |= {s.name: bool(given[s.name]) for s in function.scalars if s.type == BOOL}
    for s in function.sizes:
        names[s.name] = tensors[s.array].shape[s.axis]
    for scalar in function.scalars:
        if scalar.value is not None:
            try:
                names[scalar.name] = evaluate(scalar.value, names)
            except ZeroDivisionError:  # which is a demand's to tell
                names[scalar.name] = 0
    return Bound(tensors, names)


def repeated(signature: Signature, args: Sequence[Any]) -> tuple[tuple[int, int], ...]:
    """The arguments whose elements are those of an earlier one, at the same subscripts, one of the two being written:
    (position, position of the earlier one). They are two names of one tensor.
    """
    if len(signature.parameters) < 2 or not signature.written:
        return ()
    first: dict[Any, int] = {}
    found = []
    for k, a in enumerate(args):
        if isinstance(a, torch.Tensor):
            place = (a.untyped_storage()._cdata, a.storage_offset()) if a.is_meta else a.data_ptr()
            other = first.setdefault(place, k)
            if other != k and _same_elements(args[other], a):
                found.append((k, other))
    names = signature.names
    written = {other for k, other in found if names[k] in signature.written or names[other] in signature.written}
    return tuple((k, other) for k, other in found if other in written)


def _same_elements(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors that begin at one place are one, however PyTorch came by them."""
    if a.dtype != b.dtype or a.shape != b.shape or a.numel() == 0 or a.is_neg() != b.is_neg():
        return False
    return all(n == 1 or s == t for n, s, t in zip(a.shape, a.stride(), b.stride(), strict=True))


def single(args: Sequence[Any], same: tuple[tuple[int, int], ...]) -> tuple[Any, ...]:
    """The arguments without those that repeat an earlier one."""
    again = {k for k, _ in same}
    return tuple(a for k, a in enumerate(args) if k not in again)


def call_types(
    signature: Signature, args: Sequence[Any], same: tuple[tuple[int, int], ...]
) -> tuple[ArgumentType, ...]:
    """The types of the arguments of a call, of which some repeat others."""
    types = list(argument_types(signature, args))
    for k, other in same:
        type_ = types[k]
        assert isinstance(type_, TensorType)
        types[k] = replace(type_, same=signature.names[other])
    return tuple(types)
