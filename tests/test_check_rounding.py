"""`kernel.check` of programs that read again what they have stored into a narrower tensor: the reference rounds there too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import weft
from weft.pytorch import simulated


def running_sum(x):
    y = torch.zeros_like(x)
    for i in range(1, x.shape[0]):
        y[i] = y[i - 1] + x[i]
    return y


def split(x):
    hi = torch.empty(x.shape[0], dtype=torch.bfloat16)
    lo = torch.empty_like(x)
    for i in range(x.shape[0]):
        hi[i] = x[i]
        lo[i] = x[i] - hi[i]
    return hi, lo


def there_and_back(x):
    y = torch.empty_like(x)
    z = torch.empty_like(x)
    for i in range(x.shape[0]):
        y[i] = x[i] * 60000.0
        z[i] = y[i] / 60000.0
    return z


def grow_(x, w):
    for k in range(w.shape[0]):
        for i in range(x.shape[0]):
            x[i] += w[k] * x[i]


def of_slices(x, w: torch.Tensor):
    y = x * w
    y[1:] -= y[:-1] * 3
    z = torch.zeros_like(y)
    for i in range(1, x.shape[0]):
        z[i] = y[i] * z[i - 1] + (x[i] - y[i - 1])
    return z


def of_a_branch(x):
    y = torch.full_like(x, 0.1)
    total = torch.zeros(1, dtype=x.dtype)
    for i in range(x.shape[0]):
        total[0] += y[i] + x[i]
        if total[0] > 100:
            total[0] -= 100
        y[i] = total[0]
    return y


def counted_beside(x):
    y = torch.ones(x.shape[0], dtype=x.dtype)
    seen = torch.zeros(1)
    for i in range(x.shape[0]):
        seen[0] += 1
        y[i] += x[i] / seen[0]
    return y


ONES = torch.ones(700, dtype=torch.bfloat16)
CALLS: list[tuple[Callable[..., Any], tuple[Any, ...], bool]] = [
    (running_sum, (ONES,), True),
    (running_sum, ("float16[300]",), True),
    (split, ("float32[300]",), True),
    (counted_beside, ("float64[12]",), True),  # in whose own type nothing is rounded
    (there_and_back, (1.5 * torch.ones(40, dtype=torch.float16),), True),
    (grow_, ("bfloat16[100]", "bfloat16[50]"), False),
    (grow_, ("bfloat16[6000]", "bfloat16[50]"), False),  # held against the CPU kernel
    (of_slices, ("bfloat16[100]", "bfloat16[100]"), True),
    (of_a_branch, ("bfloat16[200]",), True),
]


@pytest.mark.parametrize(("function", "args", "gradients"), CALLS)
def test_the_reference_rounds_where_the_program_stores(
    function: Callable[..., Any], args: tuple[Any, ...], gradients: bool
) -> None:
    report = weft.kernel(function).check(*args, gradients=gradients)
    assert report.ok, report.text()
    assert "rounding" in report.reference or report.reference.startswith("weft's CPU kernel ("), report.reference


def test_rounding_is_not_asked_of_what_is_never_read_again() -> None:
    def double(x):
        y = torch.empty_like(x)
        for i in range(x.shape[0]):
            y[i] = 2 * x[i]
        return y

    assert weft.kernel(double).check("bfloat16[40]").reference == "the plain Python in float64"


def test_a_sum_that_is_not_rounded_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = simulated.cuda_source
    planted = []

    def without_rounding(*args: Any) -> str:
        text = real(*args)
        planted.append(text.replace("weft::round_bfloat16(y_1)", "y_1"))
        assert planted[-1] != text
        return planted[-1]

    monkeypatch.setattr(simulated, "cuda_source", without_rounding)
    report = weft.kernel(running_sum).check(ONES)
    (differing,) = report.differences
    assert differing.got > 600 and differing.want == 256


def test_gradients_of_a_recurrence_that_autograd_finds_overwritten() -> None:
    def recurrence(x, w):
        y = torch.zeros_like(x)
        for i in range(1, x.shape[0]):
            y[i] = x[i] * y[i - 1] + w[i]
        return y

    report = weft.kernel(recurrence).check("float32[20]", "float32[20]", gradients=True)
    assert report.ok and report.reference == "the plain Python in float64", report.text()
