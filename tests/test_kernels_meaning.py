"""The library's loops, run as plain Python, mean what PyTorch means; leading dimensions change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import weft
from weft.errors import ShapeMismatch, TypeMismatch
from weft.kernels import LIBRARY, rows
from weft.pytorch.quick import Ways
from weft.pytorch.viewed import called_with_views

pytestmark = pytest.mark.usefixtures("optimised")


def _recurrence(x: Tensor, c: Tensor, reverse: bool = False) -> Tensor:
    """By products of coefficients rather than by steps: y[l] = sum over k <= l of x[k] * c[k+1] * ... * c[l]."""
    if reverse:
        return _recurrence(x.flip(-1), c.flip(-1)).flip(-1)
    length = x.shape[-1]
    y = torch.zeros_like(x)
    for l in range(length):
        for k in range(l + 1):
            y[..., l] += x[..., k] * c[..., k + 1 : l + 1].prod(-1)
    return y


def _ema(x: Tensor, alpha: float) -> Tensor:
    c = torch.full_like(x, 1 - alpha)
    weighted = alpha * x
    weighted[..., :1] = x[..., :1]
    return _recurrence(weighted, c)


ORACLES: dict[str, Callable[..., Tensor]] = {
    "linrec": _recurrence,
    "linrec_reverse": lambda x, c: _recurrence(x, c, reverse=True),
    "cumsum": lambda x: torch.cumsum(x, -1),
    "ema": _ema,
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "rms_norm": lambda x, weight, eps: F.rms_norm(x, x.shape[-1:], weight, eps),
    "layer_norm": lambda x, weight, bias, eps: F.layer_norm(x, x.shape[-1:], weight, bias, eps),
    "gelu_bias_residual": lambda x, bias, residual: F.gelu(x + bias) + residual,
}
NUMBERS = {"alpha": 0.3, "eps": 1e-5}
COLUMNS = ("weight", "bias")


def inputs(name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> list[Tensor | float]:
    """Random arguments of a kernel whose row tensors have this shape."""
    generator = torch.Generator().manual_seed(0)
    arguments: list[Tensor | float] = []
    for parameter in LIBRARY[name].example:
        if parameter in NUMBERS:
            arguments.append(NUMBERS[parameter])
        else:
            size = shape[-1:] if parameter in COLUMNS else shape
            arguments.append(torch.randn(size, dtype=dtype, generator=generator))
    return arguments


def test_every_kernel_has_an_oracle_and_says_its_shapes() -> None:
    assert set(ORACLES) == set(LIBRARY)
    for kernel in LIBRARY.values():
        assert "[..., length]" in (kernel.py.__doc__ or "")


@pytest.mark.parametrize("name", LIBRARY)
@pytest.mark.parametrize("shape", [(3, 7), (1, 1), (2, 16), (0, 5)])
def test_the_plain_python_means_what_pytorch_means(name: str, shape: tuple[int, int]) -> None:
    arguments = inputs(name, shape)
    torch.testing.assert_close(LIBRARY[name].py(*arguments), ORACLES[name](*arguments))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_large_and_infinite_values(name: str) -> None:
    inf = float("inf")
    x = torch.tensor([[1e30, -1e30, 0.0], [-inf, 0.0, 1.0], [inf, 0.0, 1.0], [float("nan"), 0.0, 1.0]]).double()
    torch.testing.assert_close(LIBRARY[name].py(x), ORACLES[name](x), equal_nan=True)


@pytest.mark.parametrize("name", LIBRARY)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(9,), (3, 9), (2, 3, 9), (2, 1, 3, 9), (2, 0, 9)])
def test_any_number_of_leading_dimensions(name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    arguments = inputs(name, shape, dtype)
    result = LIBRARY[name](*arguments)
    expected = ORACLES[name](*(a.double() if isinstance(a, Tensor) else a for a in arguments)).to(dtype)
    assert result.shape == shape
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("name", LIBRARY)
def test_leading_dimensions_in_any_order_in_memory(name: str) -> None:
    batch_head_length = [
        a.reshape(2, 5, 3, 8).transpose(1, 2) if isinstance(a, Tensor) and a.dim() > 1 else a
        for a in inputs(name, (30, 8))
    ]
    result = LIBRARY[name](*batch_head_length)
    assert result.shape == (2, 3, 5, 8)
    assert result.stride() == (120, 8, 24, 1), "the result lies in memory as the input does"
    torch.testing.assert_close(result, ORACLES[name](*batch_head_length))


@pytest.mark.parametrize("name", LIBRARY)
def test_slices_that_no_stride_can_walk(name: str) -> None:
    sliced = [a[:2, 1:3] if isinstance(a, Tensor) and a.dim() > 1 else a for a in inputs(name, (3, 4, 2, 8))]
    torch.testing.assert_close(LIBRARY[name](*sliced), ORACLES[name](*sliced))


def test_leading_dimensions_that_differ_are_refused() -> None:
    with pytest.raises(ShapeMismatch, match="leading dimensions of c and x differ") as caught:
        LIBRARY["linrec"](torch.zeros(2, 3, 4), torch.zeros(6, 1, 4))
    assert "c is [6, 1, 4]" in str(caught.value) and caught.value.remedy


def test_arguments_by_name_and_by_default() -> None:
    x, weight = torch.randn(2, 8), torch.randn(8)
    expected = F.rms_norm(x, (8,), weight, 1e-6)
    torch.testing.assert_close(LIBRARY["rms_norm"](x, weight), expected)
    torch.testing.assert_close(LIBRARY["rms_norm"](x, weight=weight, eps=1e-6), expected)
    with pytest.raises(TypeMismatch, match="needs its argument 'weight'"):
        LIBRARY["rms_norm"](x)
    with pytest.raises(TypeMismatch, match="takes \\(x, weight, eps\\)"):
        LIBRARY["rms_norm"](x, weight, x=x)


@pytest.mark.parametrize("name", LIBRARY)
def test_leading_dimensions_are_traced_without_a_graph_break(name: str) -> None:
    arguments = inputs(name, (2, 3, 9))
    torch._dynamo.reset()  # all kernels share one code object, and recompilations of it are counted
    compiled = torch.compile(lambda *given: LIBRARY[name](*given), fullgraph=True, backend="eager", dynamic=True)
    torch.testing.assert_close(compiled(*arguments), ORACLES[name](*arguments))


@pytest.mark.parametrize("name", LIBRARY)
def test_the_view_of_leading_dimensions_copies_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    def spied(kernel: weft.Kernel, ways: Ways, args: tuple[Any, ...], inside: Callable[..., Any], outside: Any) -> Any:
        seen.extend(a for a in inside(*args) if isinstance(a, Tensor))
        return called_with_views(kernel, ways, args, inside, outside)

    monkeypatch.setattr(rows, "called_with_views", spied)
    monkeypatch.setattr(LIBRARY[name], "_ways", Ways())
    arguments = [
        a.reshape(2, 5, 3, 8).transpose(1, 2) if isinstance(a, Tensor) and a.dim() > 1 else a
        for a in inputs(name, (30, 8))
    ]
    LIBRARY[name](*arguments)
    assert {t.data_ptr() for t in seen} == {a.data_ptr() for a in arguments if isinstance(a, Tensor)}
