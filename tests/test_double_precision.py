"""Python's floats are doubles: what a kernel therefore computes in double precision of narrower elements is told, once."""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import weft
from tests.test_numbers import program

pytestmark = pytest.mark.usefixtures("quickly_compiled")

BODY = """
def f(x, a):
    y = torch.zeros_like(x)
    total = 0.0
    for i in range(x.shape[0]):
        v = float(x[i])
        {}
    return y, total
"""

TOLD = {
    "y[i] = math.exp(x[i])": "math.exp(x[i])",
    "y[i] = math.sqrt(abs(x[i] - 1)) * x[i]": "math.sqrt(abs(x[i] - 1))",
    "y[i] = math.atan2(1.0, x[i].item())": "math.atan2(1.0, x[i].item())",
    "y[i] = math.exp(v)": "math.exp(v)",
    "y[i] = math.log(v if v > 0.5 else 1.0)": "math.log(v if v > 0.5 else 1.0)",
    "y[i] = v * v": "v * v",
    "y[i] = -v / 3": "-v / 3",
    "total += x[i].item()": "total += x[i].item()",
    "total = total + float(x[i])": "total + float(x[i])",
    "y[i] = v ** 3": "v ** 3",
    "total += math.sin(x[i]) * 2": "math.sin(x[i])",
}
NOT_TOLD = (
    *("y[i] = torch.exp(x[i])", "y[i] = v", "y[i] = x[i] * v", "y[i] = max(v, 0.5)", "y[i] = 1.0 if v > 0.5 else 2.0"),
    *("y[i] = x[i] * math.exp(a)", "y[i] = x[i] * (1 - a)", "y[i] = math.sqrt(i)", "y[i] = x[i].double() * 2"),
    *("y[i] = x[int(v)]", "y[i] = abs(v)", "total = a * 2", "y[i] = math.floor(x[i])", "y[i] = a * a * x[i]"),
)


def told(function: Callable[..., Any], *args: Any) -> list[warnings.WarningMessage]:
    """The warnings of two calls of a new kernel."""
    kernel = weft.kernel(function)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        kernel(*args)
        kernel(*args)
    return [w for w in found if issubclass(w.category, weft.PerformanceWarning)]


@pytest.mark.parametrize("line", TOLD)
def test_doubles_made_of_narrower_elements_are_told_once(line: str) -> None:
    function = program(BODY.format(line))
    for dtype in (torch.float32, torch.bfloat16):
        (found,) = told(function, torch.rand(3).to(dtype), 0.5)
        assert (found.filename, found.lineno) == (function.__code__.co_filename, 7)
        text = str(found.message)
        assert f"f computes {TOLD[line]} in double precision" in text
        assert "float32" in text.rsplit(";", 1)[1], "what to write instead"


@pytest.mark.parametrize("line", NOT_TOLD)
def test_nothing_is_told_of_what_is_narrow_or_of_numbers(line: str) -> None:
    for a in (0.5, torch.tensor(0.5)):
        assert told(program(BODY.format(line)), torch.rand(3), a) == []


def test_nothing_is_told_of_doubles_and_outside_loops() -> None:
    every = "\n        ".join(TOLD)
    assert told(program(BODY.format(every)), torch.rand(3, dtype=torch.float64), 0.5) == []
    text = "def f(x, a):\n    s = math.exp(x[0]) + float(x[1]) * 2 + math.sqrt(float(a))\n    return x * s\n"
    assert told(program(text), torch.rand(3), torch.tensor(0.5)) == []


def test_what_to_write_instead_computes_in_float32() -> None:
    """Each remedy that is an expression is Python that weft compiles without another warning."""
    for line, text in TOLD.items():
        (found,) = told(program(BODY.format(line)), torch.rand(3), 0.5)
        remedy = str(found.message).rsplit("; ", 1)[1]
        if text.startswith("math.") and "v" not in text and "1.0" not in text:
            instead = remedy.split(" of elements")[0]
            ast.parse(instead)
            assert told(program(BODY.format(f"y[i] = {instead}")), torch.rand(3), 0.5) == []


def test_each_place_of_a_kernel_is_told_once_whatever_the_call_is_like() -> None:
    function = program(BODY.format("y[i] = math.exp(x[i]) * a + math.cos(x[i])"))
    kernel = weft.kernel(function)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for x in (torch.rand(3), torch.rand(4).to(torch.float16), torch.rand(3, requires_grad=True)):
            for a in (0.5, 2, torch.tensor(0.5)):
                kernel(x, a)
    assert len([w for w in found if issubclass(w.category, weft.PerformanceWarning)]) == 2


def test_it_is_silenced_as_warnings_are() -> None:
    function = program(BODY.format("y[i] = math.exp(x[i])"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=weft.PerformanceWarning)
        y, _ = weft.kernel(function)(torch.zeros(2), 0.5)
    assert torch.equal(y, torch.ones(2))
    with warnings.catch_warnings(), pytest.raises(weft.PerformanceWarning):
        warnings.simplefilter("error")
        weft.kernel(function)(torch.zeros(2), 0.5)


def test_explanations_say_it() -> None:
    kernel = weft.kernel(program(BODY.format("y[i] = math.exp(x[i])")))
    for text in (kernel.explain("float32[8]", 0.5), kernel.explain("float32[8]", 0.5, detail=True)):
        assert "math.exp(x[i]) of float32 is computed in double: torch.exp(x[i]) of elements stays in float32" in text
    assert "math.exp(x[i]) of float32 is computed in double" in kernel.explain("float32[8]", 0.5, format="html")
    assert "in double" not in kernel.explain("float64[8]", 0.5)
    assert math.isclose(float(kernel(torch.zeros(1), 0.5)[0][0]), 1.0)
