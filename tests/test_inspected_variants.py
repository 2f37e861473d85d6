"""`explain`, `source` and `check` take the arguments that a call takes: None, strings, dtypes, tuples and lists too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import weft
from weft.errors import ShapeMismatch


def scaled(x, bias, mode):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        v = 2 * x[i] if mode == "double" else x[i]
        if bias is not None:
            v = v + bias[i]
        y[i] = v
    return y


def summed(xs):
    y = torch.zeros_like(xs[0])
    for x in xs:
        for i in range(y.shape[0]):
            y[i] += x[i]
    return y


def variadic(*xs):
    y = torch.zeros_like(xs[0])
    for x in xs:
        for i in range(y.shape[0]):
            y[i] += x[i]
    return y


CALLS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (scaled, ("float32[40]", None, "double")),
    (scaled, ("float32[40]", "float32[40]", "plain")),
    (scaled, (torch.ones(40), torch.ones(40), "double")),
    (summed, (["float32[40]", "float32[40]"],)),
    (summed, ((torch.ones(40), "float32[40]", torch.ones(40)),)),
    (variadic, ("float32[40]", "float32[40]")),
]


@pytest.mark.parametrize(("function", "args"), CALLS)
def test_what_a_call_takes_is_taken(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    kernel = weft.kernel(function)
    assert "parallel" in str(kernel.explain(*args))
    assert "__global__" in kernel.source(*args, arch="sm_90a")
    report = kernel.check(*args, gradients=True)
    assert report.ok, report.text()
    assert any(c.name.startswith("gradient of") for c in report.comparisons)


def test_the_text_of_a_tensor_that_is_none_is_told() -> None:
    with pytest.raises(ShapeMismatch):
        weft.kernel(scaled).check("float32[40", None, "double")
