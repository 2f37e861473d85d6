"""Every function of the language at the points where its derivative is not what it is nearby, against PyTorch."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

import weft
from tests.fuzz_programs import compiled
from tests.gradients import assert_same_derivatives, draw

pytestmark = pytest.mark.usefixtures("quickly_compiled")

torch.set_num_threads(1)

_INFINITY, _NAN = math.inf, math.nan
_POINTS = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 20.0, 800.0, -800.0, _INFINITY, _NAN)
_UNARY = [
    *(f"torch.{name}({{a}})" for name in (
        "abs", "neg", "exp", "exp2", "expm1", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
        "asinh", "acosh", "atanh", "erf", "erfc", "sqrt", "log", "log2", "log10", "log1p", "rsqrt", "sigmoid",
        "floor", "ceil", "trunc", "round", "sign", "square", "reciprocal", "relu",
    )),
    *(f"torch.nn.functional.{name}({{a}})" for name in ("relu", "leaky_relu", "softplus", "silu", "logsigmoid", "gelu")),
    *(f"{{a}} ** {power}" for power in ("0", "1", "2", "3", "0.5", "-0.5", "-1", "-2", "2.5")),
    "torch.clamp({a}, 0.0, 1.0)", "torch.clamp({a}, min=1.0)", "torch.clamp({a}, max=-1.0)", "torch.clamp({a}, 1.0, 0.5)",
    "max({a}, 0.5)", "max(0.5, {a})", "min({a}, 0.5)", "min(0.5, {a})", "abs({a})", "{a} % 1.0", "2.0 ** {a}", "1.0 / {a}",
    "torch.where({a} > 0.5, {a}, 1.0)", "{a} if {a} >= 0.5 else 0.5 * {a}",
]  # fmt: skip
_PAIRS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0, _INFINITY, _NAN)
_BINARY = [
    *(f"torch.{name}({{a}}, {{b}})" for name in (
        "maximum", "minimum", "fmax", "fmin", "atan2", "hypot", "copysign", "fmod", "remainder",
    )),
    # what the gradient of 0 ** 0 makes of a cotangent is NaN in PyTorch's reverse mode, and 0 in its forward mode
    "torch.pow({a}, {b} if {a} != 0.0 or {b} != 0.0 else 1.0)",
    "{a} / {b}", "{a} * {b}", "{a} % {b}", "max({a}, {b})", "min({a}, {b})", "{a} if {a} >= {b} else {b}",
    "{a} if {a} <= {b} else {b}", "torch.clamp({a}, min={b})", "torch.clamp({a}, max={b})", "torch.clamp({a}, {b}, {b} * 1.0)",
    "torch.clamp({a}, {b} - 1.0, {b} + 1.0)", "torch.where({a} > {b}, {a}, {b})",
]  # fmt: skip


def program(expressions: list[str], names: str) -> Any:
    """A kernel with a row of arguments and of results for each expression."""
    stores = "".join(
        f"        y[{k}, i] = {e.format(a=f'a[{k}, i]', b=f'b[{k}, i]')}\n" for k, e in enumerate(expressions)
    )
    source = (
        f"def program({names}):\n    rows, n = a.shape\n    y = torch.zeros_like(a)\n"
        f"    for i in range(n):\n{stores}    return y\n"
    )
    return weft.kernel(compiled(source, f"<special points of {expressions[0]}, {len(names)}>"))


def repeated(values: Any, rows: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64).repeat(rows, 1)


@pytest.mark.parametrize("of", [_UNARY[:25], _UNARY[25:50], _UNARY[50:]], ids=["functions", "more functions", "choices"])
def test_functions_of_one_number(of: list[str]) -> None:
    assert_same_derivatives(program(of, "a"), repeated(_POINTS, len(of)))


@pytest.mark.parametrize("of", [_BINARY[:10], _BINARY[10:]], ids=["functions", "choices"])
def test_functions_of_two_numbers(of: list[str]) -> None:
    a, b = zip(*itertools.product(_PAIRS, _PAIRS), strict=True)
    assert_same_derivatives(program(of, "a, b"), repeated(a, len(of)), repeated(b, len(of)))


@pytest.mark.parametrize("of", [_BINARY[:10], [*_BINARY[10:], "torch.pow({a}, {b})"]], ids=["functions", "choices"])
def test_forward_mode_is_the_transposed_gradient(of: list[str]) -> None:
    kernel = program(of, "a, b")
    points = [repeated(p, len(of)) for p in zip(*itertools.product(_PAIRS, _PAIRS), strict=True)]
    tangents = [draw(*p.shape, seed=k) for k, p in enumerate(points)]
    leaves = [p.clone().requires_grad_() for p in points]
    gradients = torch.autograd.grad(kernel.py(*leaves).sum(), leaves)
    want = sum(torch.where(g == 0, 0.0, g * t) for g, t in zip(gradients, tangents, strict=True))
    _, found = torch.func.jvp(kernel, tuple(points), tuple(tangents))
    found = torch.where(found.isfinite() | want.isfinite(), found, want)
    torch.testing.assert_close(found, want, equal_nan=True)
