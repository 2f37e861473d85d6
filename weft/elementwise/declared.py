"""What the parameters of a pointwise function are declared to be. Nothing is cast to it: a call that brings something else is
refused.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

from weft.errors import Location, TypeMismatch

Declared = torch.dtype | type  # the dtype of a tensor, torch.Tensor where any will do, or a kind of numbers
_NUMBERS = (bool, int, float, complex)  # of which each takes those before it, and tensors whose elements are such
_ARTICLES = {bool: "a bool", int: "an int", float: "a float", complex: "a complex number", torch.Tensor: "a tensor"}


def declared(parameters: inspect.Signature) -> dict[str, Declared]:
    """What annotations say: a dtype of PyTorch's, torch.Tensor or a kind of numbers, or their names. Others say nothing."""
    found = {n: _meant(p.annotation) for n, p in parameters.parameters.items()}
    return {n: meant for n, meant in found.items() if meant is not None}


def _meant(annotation: Any) -> Declared | None:
    if isinstance(annotation, str):
        name = annotation.strip("'\"")
        numbers = {kind.__name__: kind for kind in _NUMBERS}
        annotation = numbers.get(name) or getattr(torch, name.removeprefix("torch."), None)
    known = isinstance(annotation, torch.dtype) or annotation in (*_NUMBERS, torch.Tensor)
    return annotation if known else None


def require_as_declared(name: str, passed: Declared, wanted: Declared, function: str, location: Location | None) -> None:
    """passed: the dtype of a tensor, or a number's type. Raises TypeMismatch where it is not what is wanted."""
    tensor = isinstance(passed, torch.dtype)
    if passed == wanted or (tensor and wanted is torch.Tensor) or (wanted in _NUMBERS and _rank(passed) <= _rank(wanted)):
        return
    what, own = _described(passed), _described(wanted)
    instead = f"{name}.to({wanted})" if tensor and isinstance(wanted, torch.dtype) else own
    raise TypeMismatch(
        f"{name} is {what}, and {function} declares {own}",
        location=location,
        evidence=["nothing is cast to what is declared: a kernel is made for what it is given"],
        remedy=f"pass {instead}, or declare {what}",
    )


def _rank(of: Declared) -> int:
    """The place of a number's type, or of that of a dtype's elements, in the order of numbers."""
    if isinstance(of, torch.dtype):
        of = complex if of.is_complex else float if of.is_floating_point else bool if of == torch.bool else int
    return _NUMBERS.index(of)


def _described(of: Declared) -> str:
    return f"a tensor of {of}" if isinstance(of, torch.dtype) else _ARTICLES[of]
