"""Where results lie, and what is made of them when the launches are done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from weft.errors import UnsupportedSyntax
from weft.loops.affine import evaluate
from weft.loops.ir import Array, Function
from weft.pytorch.call.arguments import Bound


def strides_of(function: Function, array: Array, shape: Sequence[int], bound: Bound) -> tuple[int, ...]:
    """The strides of an argument, or of what the call makes."""
    if array.name in bound.tensors:
        return bound.tensors[array.name].stride()
    model = like(function, array)
    if model is None:
        return torch.empty(shape, device="meta").stride()
    return empty_like(bound.tensors[model], array.batches, torch.float32, torch.device("meta")).stride()


def like(function: Function, array: Array) -> str | None:
    """The tensor argument whose sizes an array has: the array then takes its order of strides, as `empty_like` does."""
    if array.contiguous or not array.shape:
        return None
    same = [p.name for p in function.arrays if p.role in ("input", "inout") and p.shape == array.shape]
    return array.like if array.like in same else next(iter(same), None)


def empty_like(model: torch.Tensor, batches: int, dtype: torch.dtype, device: torch.device | None = None) -> torch.Tensor:
    """A tensor of a model's sizes, each element of its first `batches` axes strided as `torch.empty_like` of that element."""
    if batches == 0 or model.is_contiguous():
        return torch.empty_like(model, dtype=dtype, device=device)
    shape = model.shape[batches:]
    one = torch.empty_like(torch.empty_strided(shape, model.stride()[batches:], device="meta"))
    outer = torch.empty((*model.shape[:batches], one.numel()), device="meta").stride()[:-1]
    return torch.empty_strided(model.shape, (*outer, *one.stride()), dtype=dtype, device=device or model.device)


def allocate(function: Function, array: Array, bound: Bound, device: torch.device) -> torch.Tensor:
    """A new tensor for an array that the function makes; its fill is written if it has one."""
    dtype = getattr(torch, array.dtype.name)
    model = like(function, array)
    if model is not None:
        made = empty_like(bound.tensors[model], array.batches, dtype)
    else:
        made = torch.empty([evaluate(e, bound.names) for e in array.shape], dtype=dtype, device=device)
    if array.fill is not None:
        made.fill_(array.fill.value)
    return made


def finisher(function: Function) -> Callable[[Any], Any] | None:
    """What makes of a function's results what the Python returns; None where they are that already. A number costs
    waiting for the kernel, as `.item()` does.
    """
    numbers = [r in function.numbers for r in function.results]
    if not any(numbers) and not function.container and not function.pairs:
        return None
    pairs = [r in function.pairs for r in function.results]

    def finish(made: Any) -> Any:
        results = made if isinstance(made, tuple) else (made,)
        items = [_number(function, r) if number else torch.view_as_complex(r) if pair else r
                 for r, number, pair in zip(results, numbers, pairs, strict=True)]  # fmt: skip
        if function.container:
            return tuple(items) if function.container == "tuple" else items
        return items[0] if len(items) == 1 else tuple(items)

    return finish


def _number(function: Function, result: torch.Tensor) -> bool | int | float:
    functorch: Any = torch._C._functorch
    inner = result
    while functorch.is_functorch_wrapped_tensor(inner):
        if functorch.is_batchedtensor(inner):
            raise UnsupportedSyntax(
                f"{function.name} returns a number, and under torch.vmap every element of the batch has its own",
                location=function.location,
                remedy="return a tensor: torch.tensor(...) of the number",
            )
        inner = functorch.get_unwrapped(inner)
    return result.item()
