"""First and second derivatives of a kernel beside those that PyTorch's autograd finds for its plain Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from weft.pytorch.call import analysis_for, argument_types, geometries, wraps_for
from weft.pytorch.executable import adjoint_of
from weft.pytorch.inspection import Examined, stand_in


def draw(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 10 * sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def derivatives(function: Callable[..., Any], args: Sequence[Any], second: bool = True) -> dict[str, Tensor]:
    """The results, the gradients of a weighted sum of them, and those of a weighted sum of the gradients and of what else
    they depend on, by name. Every floating tensor of `args` is differentiated.
    """
    given = [a.detach().clone() if isinstance(a, Tensor) else a for a in args]
    inputs = [a.requires_grad_() for a in given if isinstance(a, Tensor) and a.is_floating_point()]
    made = function(*given)
    results = [r for r in (made if isinstance(made, (tuple, list)) else (made,)) if isinstance(r, Tensor)]
    found = {f"result {k}": r.detach() for k, r in enumerate(results)}
    floating = [r for r in results if r.is_floating_point()]
    seeds = [draw(*r.shape, seed=31 + k).to(r.dtype).requires_grad_() for k, r in enumerate(floating)]

    def gradients(outputs: list[Tensor], weights: list[Tensor], of: list[Tensor], graph: bool) -> list[Tensor]:
        moving = [(o, w) for o, w in zip(outputs, weights, strict=True) if o.requires_grad]
        if not moving:
            return [torch.zeros_like(t) for t in of]
        total = torch.stack([(o * w).sum() for o, w in moving]).sum()
        return list(torch.autograd.grad(total, of, create_graph=graph, allow_unused=True, materialize_grads=True))

    first = gradients(floating, seeds, inputs, second)
    found |= {f"gradient {k}": g.detach() for k, g in enumerate(first)}
    if second:
        weights = [draw(*g.shape, seed=57 + k).to(g.dtype) for k, g in enumerate(first)]
        again = gradients(first, weights, [*inputs, *seeds], False)
        found |= {f"second derivative {k}": g.detach() for k, g in enumerate(again)}
    return found


def assert_same_derivatives(kernel: Any, *args: Any, second: bool = True) -> None:
    """A kernel's results and derivatives are those of its plain Python. Which of infinities and NaNs a second derivative is
    depends on the order of products.
    """
    assert_same(derivatives(kernel.py, args, second), derivatives(kernel, args, second), kernel.py.__name__)


def assert_same(want: dict[str, Tensor], found: dict[str, Tensor], of: str) -> None:
    assert want.keys() == found.keys()
    for name, value in want.items():
        got = found[name]
        if name.startswith("second"):
            got = torch.where(got.isfinite() | value.isfinite(), got, value)
        torch.testing.assert_close(
            got, value, equal_nan=True, msg=lambda text, name=name: f"{name} of {of}: {text}"
        )


def examined_gradient(kernel: Any, *specs: Any) -> Examined:
    """How the gradients of all floating tensors among some arguments are computed; specs: as those of `Kernel.explain`."""
    args = tuple(map(stand_in, specs))
    pairs = zip(kernel.signature.parameters, args, strict=True)
    wanted = tuple(p.name for p, a in pairs if isinstance(a, Tensor) and a.is_floating_point())
    types = argument_types(kernel.signature, args)
    made = adjoint_of(kernel.program, types, wanted, wraps=wraps_for(kernel.specializable, types, args))
    results = kernel(*args)
    results = list(results) if isinstance(results, tuple) else [results]
    seeds = [torch.empty_like(r) for r in results if r.is_floating_point()]
    analysis, bound = analysis_for(made.specializable, made.signature, (*args, *results, *seeds))
    own = made.specializable.function
    return Examined(analysis, bound.names, geometries(analysis, bound, aligned=True), lambda: own((), bool(analysis.assumed)))
