"""Plain Python in float64 whose stores round: each tensor of a narrower float type is in float64 memory that remembers the
type, so that arithmetic is in float64 and what is stored is what the narrower tensor would hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from weft.loops.ir import Function, Load, Store, statement_exprs, walk, walk_expr
from weft.loops.types import FLOAT16

_CREATED = frozenset({"empty", "zeros", "ones", "full", "tensor", "as_tensor", "empty_strided"})
_CONVERTED = frozenset({"to", "type", "half", "bfloat16", "float", "double"})


def rounds(function: Function) -> bool:
    """Whether a function reads elements again that it has stored rounded: into a half type, or into a type narrower than
    another of its float types.
    """
    stored, loaded = set(), set()
    for stmt in walk(function.body):
        if isinstance(stmt, Store):
            stored.add(stmt.array)
        for top in statement_exprs(stmt):
            loaded |= {e.array for e in walk_expr(top) if isinstance(e, Load)}
    floats = {a.name: a.dtype.size for a in function.arrays if a.dtype.category == "float"}
    widest = max(floats.values(), default=0)
    again = [floats[n] for n in stored & loaded if n in floats]
    return any(size <= FLOAT16.size or size < widest for size in again)


class _Rounded(torch.autograd.Function):
    """The value that a tensor of a narrower type would hold, in float64; gradients are no stores, and pass as they are."""

    @staticmethod
    def forward(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return value.to(dtype).to(torch.float64)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient, None


def _rounded(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    wide = value.to(torch.float64)
    if dtype is torch.float64:  # a function that gives its argument back makes a view that may not be written to
        return wide
    return _Rounded.apply(wide, dtype)  # type: ignore[no-any-return,no-untyped-call]


class StoresRound(TorchFunctionMode):
    """Within it tensors of float types are float64 tensors that round what is written into them.

    given: float64 tensors, each with the type of the tensor that it stands for.
    """

    def __init__(self, given: Iterable[tuple[torch.Tensor, torch.dtype]]) -> None:
        super().__init__()
        # by the storage, which views share; it is kept, so that no other takes its place
        self._types: dict[int, tuple[Any, torch.dtype]] = {}
        for tensor, dtype in given:
            self._stands_for(tensor, dtype)

    def _stands_for(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        storage = tensor.untyped_storage()
        self._types[storage._cdata] = storage, dtype
        return tensor

    def _type(self, value: Any) -> torch.dtype | None:
        """The type of the tensor that a float64 one stands for."""
        if not isinstance(value, torch.Tensor):
            return None
        found = self._types.get(value.untyped_storage()._cdata)
        return None if found is None else found[1]

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        first = args[0] if args else None
        own = self._type(first)
        if func == torch.Tensor.dtype.__get__:  # type: ignore[attr-defined]
            return own or func(*args)
        if name == "__setitem__" and own is not None:
            place, value = args[1:]
            if not isinstance(value, torch.Tensor):
                value = torch.tensor(value, dtype=torch.float64)
            return func(first, place, _rounded(value, own))
        result = func(*args, **kwargs)
        if not isinstance(result, torch.Tensor) or not result.is_floating_point():
            return result
        if result is first:
            if isinstance(first, torch.Tensor) and own is not None and (name.endswith("_") or name.startswith("__i")):
                first.copy_(_rounded(first, own))
            return result
        if self._type(result) is not None:  # a view
            return result
        if name in _CREATED or name in _CONVERTED:
            to = result.dtype
        elif name.endswith("_like") or name.startswith("new_"):
            to = result.dtype if own is None or kwargs.get("dtype") is not None else own
        else:  # of the arithmetic
            return result
        if name in _CONVERTED and not result.dim():
            source = first.to(torch.float64) if isinstance(first, torch.Tensor) else result
            return result if to is torch.float64 else _rounded(source, to)
        if name in _CONVERTED and isinstance(first, torch.Tensor):
            result = first.to(torch.float64)
        return self._stands_for(_rounded(result, to), to)
