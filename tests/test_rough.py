"""Which exponentials need not be right to the last bit of float32, and how far off they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import weft
from bench.selective_scan import arguments, selective_scan
from weft.kernels import log_softmax, softmax

EXACT, ROUGH, FLUSHED = "weft::exp(", "weft::exp_rough(", "weft::exp_flushed("
BOTH = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])


def _exponentials(kernel: Any, *specs: str) -> set[str]:
    """The kinds of exponentials in the text for a GPU."""
    text = kernel.source(*specs, arch="sm_90a")
    return {kind for kind in (EXACT, ROUGH, FLUSHED) if kind in text}


def product(x, w):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        y[i] = torch.exp(x[i]) * w[i] - 1.0
    return y


def compared(x, w):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        y[i] = w[i] if torch.exp(x[i]) > 0.5 else x[i]
    return y


def nested(x, w):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        y[i] = torch.log(torch.exp(x[i])) * torch.exp(w[i])
    return y


def named_twice(x, w):
    """Where it decides something its name is exact, and that is all of them."""
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        e = torch.exp(x[i])
        y[i] = e * w[i] if e > 1.0 else e
    return y


def scattered(x, w):
    y = torch.zeros_like(x)
    for i in range(x.shape[0]):
        y[i // 2] += torch.exp(x[i]) * w[i]
    return y


def naive(x, w):
    """A softmax without the maximum: exponentials far below 1 are not 0 beside one another."""
    y = torch.empty_like(x)
    for r in range(x.shape[0]):
        total = 0.0
        for l in range(x.shape[1]):  # noqa: E741
            total += torch.exp(x[r, l])
        for l in range(x.shape[1]):  # noqa: E741
            y[r, l] = torch.exp(x[r, l]) / total
    return y


@pytest.mark.parametrize(
    ("program", "narrow", "wide"),
    [
        (product, {ROUGH}, {EXACT}),
        (compared, {EXACT}, {EXACT}),
        (nested, {EXACT, ROUGH}, {EXACT}),
        (named_twice, {EXACT}, {EXACT}),
        (scattered, {EXACT}, {EXACT}),
    ],
)
def test_exponentials_are_rough_on_the_way_to_16_bits(program: Callable[..., Any], narrow: set[str], wide: set[str]) -> None:
    kernel = weft.kernel(program)
    assert _exponentials(kernel, "bfloat16[4096]", "bfloat16[4096]") == narrow
    assert _exponentials(kernel, "float32[4096]", "float32[4096]") == wide
    assert _exponentials(kernel, "float64[4096]", "float64[4096]") == wide


def _activated(x, w):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        tail = 1.0 + torch.exp(-x[i])
        y[i] = x[i] / tail * w[i] + 0.5 * x[i] * (1.0 + torch.tanh(w[i]))
    return y


def _layer(x, w):
    y = torch.empty(x.shape[0], w.shape[0], dtype=x.dtype)
    for i in range(x.shape[0]):
        for j in range(w.shape[0]):
            s = 0.0
            for k in range(x.shape[1]):
                s += x[i, k] * w[j, k]
            y[i, j] = s / (1.0 + torch.exp(-s)) + 1.0 / s
    return y


def test_quotients_of_what_is_1_or_more_and_tanh_above_its_least() -> None:
    text = weft.kernel(_activated).source("bfloat16[4096]", "bfloat16[4096]", arch="sm_90a")
    assert "weft::divide_rough(" in text and "weft::one_and_tanh(" in text
    text = weft.kernel(_activated).source("float32[4096]", "float32[4096]", arch="sm_90a")
    assert "divide_rough(" not in text and "one_and_tanh(" not in text
    text = weft.kernel(_layer).source("bfloat16[512, 512]", "bfloat16[512, 512]", arch="sm_90a")
    assert text.count("weft::divide_rough(") == 1 and "1.0f / s" in text and ROUGH in text


def test_exponentials_relative_to_their_maximum() -> None:
    assert _exponentials(softmax, "bfloat16[4096, 1024]") == {FLUSHED}
    assert _exponentials(softmax, "float32[4096, 1024]") == {EXACT}  # they are results too
    assert _exponentials(log_softmax, "float32[4096, 1024]") == {FLUSHED}  # summed alone
    assert _exponentials(softmax, "float64[4096, 1024]") == {EXACT}
    assert _exponentials(weft.kernel(naive), "float16[4096, 1024]", "float16[1]") == {ROUGH}
    assert _exponentials(weft.kernel(naive), "float32[4096, 1024]", "float32[1]") == {EXACT}


def test_what_states_are_multiplied_by() -> None:
    given = arguments((1, 8, 40, 5), torch.float32, torch.device("cpu"))
    assert "weft::exp2_estimate(dt_tile[k] * rate)" in selective_scan.source(*given, arch="sm_90a")


def test_a_cpu_computes_them_all_exactly() -> None:
    assert "exp_" not in softmax.source("bfloat16[64, 1024]", arch="cpu")


# ---------------------------------------------------------------- on a GPU


@BOTH
@pytest.mark.gpu
def test_rough_exponentials_are_rounded_as_exact_ones(dtype: torch.dtype) -> None:
    """Within 0.51 units of the last place of 16 bits, at 4 million points from one end to the other."""
    x = torch.linspace(-110, 89, 1 << 22, device="cuda").to(torch.float32)
    found = weft.kernel(_exp_of_float32)(x, torch.empty(0, dtype=dtype, device="cuda"))
    assert found.dtype == dtype
    exact = x.double().exp()
    unit = torch.finfo(dtype).eps * torch.exp2(torch.floor(torch.log2(exact)))
    unit = unit.clamp_min(torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps)
    inside = exact < torch.finfo(dtype).max
    assert ((found.double() - exact).abs()[inside] <= 0.51 * unit[inside]).all()
    assert (found[~inside].double() >= torch.finfo(dtype).max).all()


def _exp_of_float32(x, like):
    y = torch.empty(x.shape[0], dtype=like.dtype)
    for i in range(x.shape[0]):
        y[i] = torch.exp(x[i])
    return y


def _sigmoid_of_float32(x, like):
    y = torch.empty(x.shape[0], dtype=like.dtype)
    for i in range(x.shape[0]):
        y[i] = 1.0 / (1.0 + torch.exp(x[i]))
    return y


def _tanh_of_float32(x, like):
    y = torch.empty(x.shape[0], dtype=like.dtype)
    for i in range(x.shape[0]):
        y[i] = 1.0 + torch.tanh(x[i])
    return y


def _slope_of_float32(x, like):
    y = torch.empty(x.shape[0], dtype=like.dtype)
    for i in range(x.shape[0]):
        t = torch.tanh(x[i])
        y[i] = 1.0 - t * t
    return y


def test_the_slope_of_tanh_is_no_difference_of_what_is_nearly_equal() -> None:
    text = weft.kernel(_slope_of_float32).source("float32[4096]", "bfloat16[0]", arch="sm_90a")
    assert "weft::one_less_tanh_squared(t)" in text and "weft::tanh(" not in text
    assert "weft::tanh(" in weft.kernel(_slope_of_float32).source("float32[4096]", "float32[0]", arch="sm_90a")


@BOTH
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("program", "exact"),
    [
        (_sigmoid_of_float32, lambda x: torch.sigmoid(-x)),
        (_tanh_of_float32, lambda x: 2 * torch.sigmoid(2 * x)),
        (_slope_of_float32, lambda x: 4 * torch.sigmoid(2 * x) * torch.sigmoid(-2 * x)),
    ],
)
def test_rough_quotients_are_rounded_as_exact_ones(program: Any, exact: Callable[..., Any], dtype: torch.dtype) -> None:
    x = torch.linspace(-43, 43, 1 << 22, device="cuda").to(torch.float32)
    found, wanted = weft.kernel(program)(x, torch.empty(0, dtype=dtype, device="cuda")), exact(x.double())
    unit = torch.finfo(dtype).eps * torch.exp2(torch.floor(torch.log2(wanted)))
    unit = unit.clamp_min(torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps)
    assert ((found.double() - wanted).abs() <= 0.51 * unit).all()
    ends = torch.tensor([float("nan"), float("inf"), -float("inf")], device="cuda")
    assert weft.kernel(program)(ends, torch.empty(0, dtype=dtype, device="cuda")).isnan().tolist() == [True, False, False]


@BOTH
@pytest.mark.gpu
def test_rough_exponentials_of_special_values(dtype: torch.dtype) -> None:
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0], device="cuda")
    found = weft.kernel(_exp_of_float32)(x, torch.empty(0, dtype=dtype, device="cuda")).float()
    assert found[0].isnan() and found[1:].tolist() == [float("inf"), 0.0, 1.0, 1.0]


@BOTH
@pytest.mark.gpu
def test_small_exponentials_beside_one_another(dtype: torch.dtype) -> None:
    x = torch.full((8, 700), -95.0, dtype=dtype, device="cuda")
    found = weft.kernel(naive)(x, x[0, :1])
    torch.testing.assert_close(found.float(), torch.full_like(found, 1 / 700).float(), rtol=1e-2, atol=0)


@BOTH
@pytest.mark.gpu
def test_rows_with_infinities(dtype: torch.dtype) -> None:
    x = torch.randn(64, 3000, device="cuda").to(dtype)
    x[:, ::7] = -float("inf")
    x[3] = -float("inf")
    x[4, 5] = float("inf")
    for kernel, eager in ((softmax, torch.softmax), (log_softmax, torch.log_softmax)):
        torch.testing.assert_close(kernel(x), eager(x, -1), equal_nan=True, rtol=1.6e-2, atol=1e-5)
