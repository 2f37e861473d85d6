"""Kernels of rows, called with tensors of any number of leading dimensions.

The library writes its loops over `[rows, length]`. That is the form that reads best, its states are scalars and so
live in op-math registers (an array state in bfloat16 would be rounded at every step), and it is the form that `explain`
shows. What makes it general is here, once: the leading dimensions of a tensor are seen as one. The view costs nothing
wherever PyTorch can express it, and the order of the leading dimensions in memory does not matter; only leading
dimensions that no single stride can walk (a slice of two dimensions at once) are copied, as `Tensor.flatten` does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import update_wrapper
from typing import TYPE_CHECKING, Any

import torch
from torch.compiler import is_compiling

import weft
from weft.errors import ShapeMismatch
from weft.pytorch.quick import MISS, Ways
from weft.pytorch.viewed import called_with_views

if TYPE_CHECKING:
    from weft.check.report import Report
    from weft.pytorch.tuning import Tuning


class RowKernel:
    """A kernel over `[rows, length]` that takes its row tensors as `[..., length]`.

    kernel: the `weft.Kernel` itself. rows: the parameters that have rows; the others pass as they are.
    Everything that can be asked of a kernel can be asked of this: `py`, `name`, `example`, `explain`, `source`,
    `resources`, `check`.
    """

    def __init__(self, kernel: weft.Kernel, rows: tuple[str, ...]) -> None:
        self.kernel = kernel
        self.py: Callable[..., Any] = kernel.py
        self.name: str = kernel.name
        self.example: Mapping[str, Any] = kernel.example
        self._ways = Ways()
        self._names = tuple(inspect.signature(kernel.py).parameters)
        self._rows = tuple(self._names.index(name) for name in rows)
        update_wrapper(self, kernel.py)

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The result, in the shape of the first row tensor. Raises ShapeMismatch where leading dimensions differ."""
        given = self.kernel.bind(args, kwargs) if kwargs else args
        if not is_compiling():
            for quick in (self._ways.quick, self.kernel.quick):  # tensors like those of its last calls have two dimensions
                try:
                    made = quick(*given)
                    if made is not MISS:
                        return made  # type: ignore[no-any-return]
                except TypeError:  # another number of arguments: told below
                    pass
        given = given if len(given) == len(self._names) else self.kernel.bind(given, {})
        first = given[self._rows[0]]
        # what has no rows that could be viewed as one, the kernel refuses
        if not all(isinstance(given[i], torch.Tensor) and given[i].layout is torch.strided for i in self._rows):
            return self.kernel(*given)  # type: ignore[no-any-return]
        if all(given[i].dim() == 2 for i in self._rows):
            return self.kernel(*given)  # type: ignore[no-any-return]
        for i in self._rows:
            self._check(i, given[i], first)
        order = _memory_order(first)
        leading = [first.shape[d] for d in order]
        back = sorted(range(len(order)), key=order.__getitem__)

        def of_rows(*args: Any) -> list[Any]:
            own = [*args]
            for i in self._rows:
                own[i] = own[i].permute(*order, -1).flatten(0, -2) if order else own[i].unsqueeze(0)
            return own

        def of_any(result: torch.Tensor) -> torch.Tensor:
            return result.unflatten(0, leading).permute(*back, -1) if order else result.squeeze(0)  # type: ignore[no-untyped-call]

        return called_with_views(self.kernel, self._ways, tuple(given), of_rows, of_any)  # type: ignore[no-any-return]

    def __reduce__(self) -> str:
        return self.py.__qualname__  # as functions do: by name, so that a copy is the kernel itself

    def explain(self, *args: Any, format: str = "text", detail: bool = False) -> str:
        """As `weft.Kernel.explain`, of the loops over `[rows, length]`."""
        return self.kernel.explain(*args, format=format, detail=detail)

    def source(self, *args: Any, arch: str | None = None) -> str:
        """As `weft.Kernel.source`."""
        return self.kernel.source(*args, arch=arch)

    def tune(self, *args: Any, gradients: bool = False, seconds: float = 0.2, progress: bool = True) -> Tuning:
        """As `weft.Kernel.tune`."""
        return self.kernel.tune(*args, gradients=gradients, seconds=seconds, progress=progress)

    def resources(self, *args: Any, arch: str | None = None) -> Any:
        """As `weft.Kernel.resources`."""
        return self.kernel.resources(*args, arch=arch)

    def check(
        self, *args: Any, seeds: int = 1, arch: str = "sm_90a", tolerance: float | None = None, gradients: bool = False
    ) -> Report:
        """As `weft.Kernel.check`; tensors may have any number of leading dimensions."""
        given = [*args]
        first = given[self._rows[0]] if len(given) > max(self._rows) else None
        if isinstance(first, torch.Tensor) and first.dim() != 2:
            for i in self._rows:
                self._check(i, given[i], first)
            order = _memory_order(first)
            for i in self._rows:
                given[i] = given[i].permute(*order, -1).flatten(0, -2) if order else given[i].unsqueeze(0)
        return self.kernel.check(*given, seeds=seeds, arch=arch, tolerance=tolerance, gradients=gradients)

    def _check(self, index: int, tensor: torch.Tensor, first: torch.Tensor) -> None:
        name, first_name = self._names[index], self._names[self._rows[0]]
        if tensor.dim() == 0:
            raise ShapeMismatch(f"{name} of {self.name} has no dimension", remedy=f"pass {name} as [..., length]")
        if tensor.shape[:-1] != first.shape[:-1]:
            raise ShapeMismatch(
                f"the leading dimensions of {name} and {first_name} differ",
                evidence=[f"{name} is {list(tensor.shape)}", f"{first_name} is {list(first.shape)}"],
                remedy="expand the smaller one (`Tensor.expand` copies nothing)",
            )


def over_rows(*rows: str) -> Callable[[weft.Kernel], RowKernel]:
    """Decorate a kernel over `[rows, length]`: its parameters `rows` then take `[..., length]`."""
    return lambda kernel: RowKernel(kernel, rows)


def _memory_order(tensor: torch.Tensor) -> list[int]:
    """The leading dimensions in the order in which one stride can walk them, as they are where that already can."""
    shape, strides = tensor.shape, tensor.stride()
    leading = range(tensor.dim() - 1)
    if all(strides[d] == strides[d + 1] * shape[d + 1] for d in leading[:-1]):
        return list(leading)
    order: list[int] = []
    for d in leading:  # by insertion, largest stride first: comparisons are what torch.compile can guard on
        place = len(order)
        while place > 0 and strides[order[place - 1]] < strides[d]:
            place -= 1
        order.insert(place, d)
    return order
