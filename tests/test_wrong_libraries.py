"""Libraries of pointwise operators that are wrong in one way each, and what finds them: weft's own passes it.

The oracle computes elements of half types in float32, numbers never rounded, and rounds once, as PyTorch does on a GPU; its CPU
rounds numbers first, so it is none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import weft

HARD = (0.1, 1 / 3, 70000.0, 2049.0, 1e-7)  # numbers that no half type has
HALVES = (torch.float16, torch.bfloat16)


def right(function: Callable[..., torch.Tensor], *args: Any, alpha: float = 1.0) -> torch.Tensor:
    """The oracle's result: PyTorch's dtype and strides, float32's values rounded once."""
    like = function(*(torch.empty_like(a, device="meta") if isinstance(a, torch.Tensor) else a for a in args))
    wide = [a.float() if isinstance(a, torch.Tensor) else torch.tensor(a, dtype=torch.float32) for a in args]
    wide[1] = wide[1] * torch.tensor(alpha, dtype=torch.float32)
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype).copy_(function(*wide))


def operands(dtype: torch.dtype) -> Iterator[tuple[torch.Tensor, Any]]:
    """Tensors beside numbers, tensors without dimensions, and tensors of other layouts."""
    x = torch.tensor([1.0, 3.0, 0.5, 1000.0, -2.0, 0.1, 7.0, -0.3], dtype=dtype)
    yield from ((x, s) for s in HARD)
    yield x, torch.tensor(0.1, dtype=torch.float64)
    matrix = torch.arange(12.0).reshape(3, 4).to(dtype) / 7
    layouts = (matrix, matrix.t().contiguous().t(), matrix.repeat(1, 2)[:, ::2], matrix[0].expand(3, 4), matrix[:, :1])
    yield from itertools.product(layouts[:3], layouts)


def judged(add: Callable[..., torch.Tensor], mul: Callable[..., torch.Tensor], div: Callable[..., torch.Tensor]) -> set[str]:
    """The rules that a library breaks."""
    broken: set[str] = set()
    for dtype in HALVES:
        for a, b in operands(dtype):
            for own, function in ((add, torch.add), (mul, torch.mul), (div, torch.div)):
                found, wanted = own(a, b), right(function, a, b)
                if found.dtype != wanted.dtype:
                    broken.add("dtype")
                elif found.stride() != wanted.stride():
                    broken.add("strides")
                elif not torch.equal(found.nan_to_num(), wanted.nan_to_num()):
                    broken.add("values")
        x = torch.tensor([1.0, 0.25, -3.0], dtype=dtype)
        small = torch.tensor([1e-3, 2e-3, 1e-3], dtype=dtype)
        for alpha in HARD:
            found, wanted = add(x, small, alpha=alpha), right(torch.add, x, small, alpha=alpha)
            if not torch.allclose(found.float(), wanted.float(), rtol=2 * torch.finfo(dtype).eps, atol=0):
                broken.add("values")
    return broken


def test_wefts_own_breaks_no_rule(quickly_compiled: None) -> None:
    assert judged(weft.ops.add, weft.ops.mul, weft.ops.div) == set()


def oracles(name: str) -> Callable[..., torch.Tensor]:
    function: Callable[..., torch.Tensor] = getattr(torch, name)
    return lambda a, b, alpha=1.0: right(function, a, b, alpha=alpha)


RIGHT = {name: oracles(name) for name in ("add", "mul", "div")}


def test_the_oracle_breaks_no_rule() -> None:
    assert judged(**RIGHT) == set()


def of_halves(a: torch.Tensor, b: Any) -> Any:
    return torch.tensor(b).to(a.dtype).item() if isinstance(b, float) else b


def intermediate(a: torch.Tensor, b: Any, alpha: float = 1.0) -> torch.Tensor:
    product = (torch.as_tensor(b).float() * alpha).to(a.dtype)
    return right(torch.add, a, product.expand(torch.as_tensor(b).shape) if product.dim() else product.item())


def reciprocal(a: torch.Tensor, b: Any, alpha: float = 1.0) -> torch.Tensor:
    if isinstance(b, float):
        return right(torch.mul, a, torch.tensor(1 / b).to(a.dtype).item())
    return right(torch.div, a, b)


def promoting(a: torch.Tensor, b: Any, alpha: float = 1.0) -> torch.Tensor:
    made = right(torch.add, a, b, alpha=alpha)
    return made.to(torch.promote_types(a.dtype, b.dtype)) if isinstance(b, torch.Tensor) and not b.dim() else made


def in_memory_order(a: torch.Tensor, b: Any, alpha: float = 1.0) -> torch.Tensor:
    made = right(torch.add, a, b, alpha=alpha)
    if not isinstance(b, torch.Tensor) or b.dim() < 2 or b.shape != a.shape:
        return made
    flat = b.as_strided(b.shape, torch.empty(b.shape, device="meta").stride())  # strides ignored
    return right(torch.add, a, flat, alpha=alpha)


WRONG: dict[str, tuple[str, Callable[..., torch.Tensor], str]] = {
    "a number rounded to the half": ("mul", lambda a, b, alpha=1.0: right(torch.mul, a, of_halves(a, b)), "values"),
    "alpha rounded to the half": (
        "add", lambda a, b, alpha=1.0: right(torch.add, a, b, alpha=of_halves(a, float(alpha))), "values"
    ),
    "an intermediate rounded to the half": ("add", intermediate, "values"),
    "a reciprocal in the half": ("div", reciprocal, "values"),
    "a tensor without dimensions promotes": ("add", promoting, "dtype"),
    "strides are ignored": ("add", in_memory_order, "values"),
    "results are always contiguous": ("add", lambda *args, **options: RIGHT["add"](*args, **options).contiguous(), "strides"),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_library_is_found(fault: str) -> None:
    name, function, rule = WRONG[fault]
    assert rule in judged(**{**RIGHT, name: function})
