"""Calls with arguments that are no tensors and numbers: None, strings, dtypes, tuples and lists, `*args`; and with tensors
in the place of numbers; and with tensors of complex numbers.

Such an argument is a part of the program: a function of the tensors and numbers alone calls the user's with the rest
written out, and that function is the kernel of the call. The floats of a tuple are arguments still; its ints are constants,
since they are what loops are written out for and shapes are compared with.

A tensor in the place of a number is an argument of that function, which says that it is a tensor. One that is used as an
int, as `n` in `range(n)`, is read before the call, as Python reads it, so that the sizes and ranges of the call are known;
its arithmetic is still a tensor's.

A tensor of complex numbers is passed as the one of their parts, which the function sees as complex numbers again.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from weft.errors import ShapeMismatch
from weft.language import Signature
from weft.language.text import function_of_text
from weft.pytorch.call import COMPLEX, as_pairs, plain
from weft.pytorch.specs import TensorSpec, parse

_USER = "as_written"  # what the user's function is called by the one that calls it
_CONSTANTS = (type(None), str, torch.dtype)
_CONTAINERS = (tuple, list, torch.Size)


def is_structured(value: Any) -> bool:
    """Whether an argument is a part of the program."""
    return type(value) in _CONSTANTS or type(value) in _CONTAINERS


def is_tensor(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, TensorSpec))


def is_complex(value: Any) -> bool:
    """Whether an argument is a tensor of complex numbers."""
    if isinstance(value, TensorSpec):
        return value.scalar.category == "complex"
    return isinstance(value, torch.Tensor) and value.dtype in COMPLEX


def read_structure(value: Any) -> Any:
    """A value with the specs among it in the place of the texts that describe them; other texts are strings of the program."""
    if type(value) is str:
        try:
            return parse(value)
        except ShapeMismatch:
            if "[" in value:
                raise
            return value
    if type(value) in (tuple, list):
        return type(value)(map(read_structure, value))
    return value


@dataclass(frozen=True)
class Variant:
    """text: a function of the leaves that calls the user's, and a key for calls like this one; leaves: its arguments.
    complexes: the tensors of complex numbers among those that were passed, by the names of their leaves.
    """

    text: str
    leaves: tuple[Any, ...]
    complexes: tuple[tuple[str, torch.Tensor], ...] = ()


def variant(
    function: types.FunctionType,
    name: str,
    signature: Signature | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Variant | None:
    """The call of a function as a call of tensors and numbers; None where an argument can be neither those nor a constant.

    signature: of the function, if it takes no `*args`. Raises TypeError where the arguments do not fit the parameters.
    """
    bound = _bound(function, signature, args, kwargs)
    if bound is None:
        return None
    kinds = {p.name: p.kind for p in signature.parameters} if signature is not None else {}
    objects = signature.objects if signature is not None else frozenset()
    taken = {name, _USER, "torch", "complex"}
    complexes: list[tuple[str, torch.Tensor]] = []
    leaves: list[tuple[str, str, Any]] = []

    def leaf(hint: str, annotation: str, value: Any) -> str:
        own = next(n for n in _names(hint) if n not in taken)
        taken.add(own)
        leaves.append((own, annotation, value))
        return own

    def spelled(hint: str, value: Any, kind: str | None) -> str:
        value = _number(value)
        if is_complex(value):
            own = leaf(hint, "torch.Tensor", value.pairs() if isinstance(value, TensorSpec) else as_pairs(value))
            if isinstance(value, torch.Tensor):
                complexes.append((own, value))
            return f"torch.view_as_complex({own})"
        if type(value) is complex:
            parts = (leaf(f"{hint}_{name}", "float", part) for name, part in (("re", value.real), ("im", value.imag)))
            return f"complex({', '.join(parts)})"
        if is_tensor(value):
            if kind == "int" and hint not in objects and _is_readable(value):
                return f"torch.tensor({leaf(hint, 'int', value.item())}, dtype=torch.int64)"
            return leaf(hint, "torch.Tensor", value)
        if type(value) in _CONSTANTS:
            return repr(value)
        if type(value) in _CONTAINERS:
            items = [spelled(f"{hint}_{k}", item, None) for k, item in enumerate(value)]
            text = ", ".join(items)
            return f"[{text}]" if type(value) is list else f"({text}{',' * (len(items) == 1)})"
        if type(value) is float or (kind is not None and type(value) in (bool, int)):
            wanted = kind if kind in ("int", "float", "bool") else type(value).__name__
            return leaf(hint, wanted, value)
        if type(value) in (bool, int):
            return repr(value)
        raise _Unknown

    given: list[str] = []
    try:
        for hint, before, value in bound:
            given.append(before + spelled(hint, value, kinds.get(hint, "number")))
    except _Unknown:
        return None
    named = ", ".join(f"{own}: {annotation}" for own, annotation, _ in leaves)
    text = f"def {name}({named}):\n    return {_USER}({', '.join(given)})\n"
    return Variant(text, tuple(value for _, _, value in leaves), tuple(complexes))


def _number(value: Any) -> Any:
    """Python's own number for one of numpy's, or of a class derived from Python's (IntEnum); anything else as it is."""
    own = plain(value)
    kind = next((k for k in (int, float) if isinstance(own, k) and type(own) not in (bool, k)), type(own))
    return kind(own) if kind in (bool, int, float) else value  # PyTorch takes the real part of numpy's complex numbers


def _bound(
    function: types.FunctionType, signature: Signature | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[tuple[str, str, Any]] | None:
    """(parameter, what is written before its argument, argument) for each; None where there is a `**`."""
    if signature is not None and not kwargs and len(args) == len(signature.parameters):
        named = len(args) - function.__code__.co_kwonlyargcount
        return [(n, f"{n}=" if k >= named else "", a) for k, (n, a) in enumerate(zip(signature.names, args, strict=True))]
    parameters = inspect.signature(function)
    bound = parameters.bind(*args, **kwargs)
    bound.apply_defaults()
    found = []
    for parameter in parameters.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            return None
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
        before = f"{parameter.name}=" if parameter.kind is parameter.KEYWORD_ONLY else stars
        found.append((parameter.name, before, bound.arguments[parameter.name]))
    return found


def _is_readable(value: Any) -> bool:
    """Whether a tensor is an int that can be read now, as `__index__` of a tensor reads it."""
    return (
        type(value) in (torch.Tensor, torch.nn.Parameter)
        and value.dim() == 0
        and value.dtype == torch.int64
        and value.device.type in ("cpu", "cuda")
        and torch._C._len_torch_dispatch_stack() == 0
        and not torch._C._functorch.is_functorch_wrapped_tensor(value)
    )


class _Unknown(Exception):  # noqa: N818 - no error: the ordinary road tells what is wrong with the argument
    pass


def _names(hint: str) -> Iterator[str]:
    yield hint
    k = 1
    while True:
        yield f"{hint}_{k}"
        k += 1


def function_of(made: Variant, function: types.FunctionType) -> types.FunctionType:
    """The function that a variant's text defines. What is wrong with it is wrong where the user's is defined."""
    return function_of_text(made.text, {_USER: function}, instead_of=function)
