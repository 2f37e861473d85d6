"""How a kernel sees what a function is called with: by views of the same memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from weft.plan.facts import Geometry
from weft.pytorch.call import DTYPES
from weft.pytorch.quick import PLAIN


@dataclass(frozen=True)
class Views:
    """How a kernel sees a call of a function. inside: its arguments, of the function's, as views of them, or themselves;
    outside: each of the function's results, a view of all of one of its own. shapes: of these; what it makes besides, the
    function does not return. positions: the function's argument that each of its own is.
    """

    inside: Callable[..., Sequence[Any]]
    outside: Callable[[torch.Tensor], torch.Tensor]
    shapes: tuple[tuple[int, ...], ...]
    positions: tuple[int, ...]

    def of_adjoint(
        self, inputs: tuple[Any, ...], outputs: tuple[Any, ...], grads: Sequence[Any], seeded: Sequence[int],
        needs: Sequence[bool],
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The arguments of a call as autograd shall know them, and those of the kernel's adjoint: recorded views of the former,
        the outputs, the first one as the kernel made it, and the gradients of those that are `seeded`. needs: which gradients
        are asked for. What is made of gradients is differentiable where gradients are recorded.
        """
        recorded = torch.is_grad_enabled()
        # each for itself, where one is another or is made of it
        known = tuple(
            a if not isinstance(a, torch.Tensor) else a.view_as(a) if recorded else a.detach().requires_grad_(need)
            for a, need in zip(inputs, needs, strict=False)
        )
        with torch.enable_grad():
            own = tuple(self.inside(*known))
        made = (self._own(k, output, recorded) for k, output in enumerate(outputs))
        return known, (*own, *made, *(self._own(k, grads[k], recorded) for k in seeded))

    def _own(self, k: int, given: torch.Tensor, recorded: bool) -> torch.Tensor:
        """What the kernel has for the k-th result, or for the gradient of it: the derivative of a view is the way back."""
        if k >= len(self.shapes):
            return given
        if not given.is_floating_point():  # which has no derivative: element by element
            places = torch.arange(given.numel(), device=given.device).view(self.shapes[k])
            return torch.empty_like(places, dtype=given.dtype).put_(self.outside(places), given)
        with torch.enable_grad():
            point = torch.empty((), dtype=given.dtype, device=given.device).expand(self.shapes[k]).requires_grad_()
            (own,) = torch.autograd.grad(self.outside(point), point, given, create_graph=recorded)
        return own

    def gradients(self, known: tuple[Any, ...], own: Sequence[Any], grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """The gradients of arguments that autograd knows of those of a kernel's own, which are recorded views of them."""
        found = [*grads]
        wanted = [k for k, g in enumerate(grads) if g is not None]
        of, given = ([items[k] for k in wanted] for items in (known, grads))
        views = [own[self.positions.index(k)] for k in wanted]
        made = torch.autograd.grad(views, of, given, create_graph=torch.is_grad_enabled(), allow_unused=True)
        for k, gradient in zip(wanted, made, strict=True):
            found[k] = gradient
        return tuple(found)


def is_same_memory(outer: Sequence[Any], inner: Sequence[Any]) -> bool:
    """Whether these are the same numbers, and tensors of the same elements, which begin at the same places."""
    for a, b in zip(outer, inner, strict=True):
        if type(a) not in PLAIN or type(b) not in PLAIN:
            if a is not b:
                return False
        elif a.dtype != b.dtype or a.numel() != b.numel() or not a.numel() or a.data_ptr() != b.data_ptr():
            return False
    return True


def geometry_of(tensor: torch.Tensor) -> Geometry:
    return Geometry(DTYPES[tensor.dtype], tuple(tensor.shape), tensor.stride(), 0)
