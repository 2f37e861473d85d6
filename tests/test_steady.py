"""What is the same for all points of a row: taken out of sums, computed once."""

from __future__ import annotations

from typing import Any

import torch

import weft
from weft.kernels import layer_norm, log_softmax, softmax
from weft.pytorch.inspection import examine


def stages(kernel: Any, *specs: str) -> list[int]:
    """How many sums and extrema each stage of each nest finds."""
    lowered = [one.sweeps for one in examine(kernel, specs).analysis.lowered]
    return [sum(len(s.folds) for s in stage) for one in lowered if one is not None for stage in one.stages]


def weighted(x, w):
    """The mean of w, weighted by a softmax of x."""
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        largest = -torch.inf
        for l in range(length):
            largest = max(largest, x[r, l])
        total = 0.0
        for l in range(length):
            total = total + torch.exp(x[r, l] - largest)
        mean = 0.0
        for l in range(length):
            mean = mean + torch.exp(x[r, l] - largest) / total * (w[r, l] / total)
        for l in range(length):
            y[r, l] = w[r, l] - mean
    return y


def safe_norm(x):
    """What divides keeps squares from overflowing."""
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        largest = 0.0
        for l in range(length):
            largest = max(largest, torch.abs(x[r, l]))
        squares = 0.0
        for l in range(length):
            squares = squares + (x[r, l] / largest) * (x[r, l] / largest)
        for l in range(length):
            y[r, l] = x[r, l] / largest / torch.sqrt(squares)
    return y


def scaled(x, w):
    """A factor that is applied last, and to what is there without it."""
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        squares = 0.0
        for l in range(length):
            squares = squares + x[r, l] * x[r, l]
        scale = torch.rsqrt(squares / length + 1e-5)
        dot = 0.0
        for l in range(length):
            dot = dot - 2.0 * (x[r, l] * w[r, l] * scale)
        for l in range(length):
            y[r, l] = x[r, l] * dot
    return y


def told(x):
    """A sum that is a result, of rows that may be empty."""
    rows, length = x.shape
    y = torch.empty(rows, dtype=x.dtype, device=x.device)
    for r in range(rows):
        squares = 0.0
        for l in range(length):
            squares = squares + x[r, l] * x[r, l]
        scaled = 0.0
        for l in range(length):
            scaled = scaled + x[r, l] / squares
        y[r] = scaled
    return y


def test_sums_do_not_wait_for_factors_of_their_terms() -> None:
    specs = ("float32[64,512]", "float32[64,512]")
    assert stages(weft.kernel(scaled), *specs) == [2, 0]
    assert stages(weft.kernel(weighted), *specs) == [1, 2, 0]
    assert weft.kernel(scaled).check("float32[5,300]", "float32[5,300]", gradients=True).ok
    assert weft.kernel(weighted).check("float32[5,300]", "float32[5,300]", gradients=True).ok


def test_what_keeps_terms_from_overflowing_stays_where_it_is() -> None:
    kernel = weft.kernel(safe_norm)
    assert stages(kernel, "float32[64,512]") == [1, 1, 0]
    x = torch.linspace(-3e30, 3e30, 600).reshape(2, 300)
    want = (x.double() / torch.linalg.vector_norm(x.double(), dim=1, keepdim=True)).float()
    torch.testing.assert_close(kernel(x), want)
    assert kernel.check(x).ok


def test_a_sum_of_no_terms_is_0_whatever_they_are_divided_by() -> None:
    kernel = weft.kernel(told)
    assert stages(kernel, "float32[64,512]") == [1, 1]
    assert torch.equal(kernel(torch.empty(3, 0)), torch.zeros(3))


def test_gradients_of_rows_meet_at_few_barriers() -> None:
    found = {}
    for kernel, specs in ((softmax, 1), (log_softmax, 1), (layer_norm, 3)):
        shape = ("bfloat16[4,2048]", "bfloat16[2048]", "bfloat16[2048]")[:specs]
        report = kernel.check(*shape, gradients=True)
        assert report.ok
        (text,) = [one.source for one in report.launches if "grad_x" in one.source and "grad_x_r" in one.source]
        found[kernel.__name__] = text.count("__syncthreads();") + text.count("weft::reduce<")
    assert found == {"softmax": 2, "log_softmax": 2, "layer_norm": 2}


def test_what_is_written_has_what_is_the_same_for_a_row_computed_once() -> None:
    text = log_softmax.source("bfloat16[64,32000]", arch="sm_90a")
    before, after = text.split("const float log = weft::log(total);")
    assert "weft::log(" not in before + after


def chosen(x, target, mark):
    """What a row has of the element that data choose is the same for all points; no row but those with a mark has `mark`'s."""
    rows, width = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        top = -torch.inf
        for l in range(width):
            top = max(top, x[r, l])
        d = 0.0
        if target[r] >= 0:
            d = (1.5 + torch.exp(x[r, target[r]] - top)) ** 1.25
        for l in range(width):
            y[r, l] = (x[r, l] - top) * d + (d if target[r] == l else 0.0) + (
                (3.5 + torch.exp(x[r, mark[r]] - top)) ** 1.75 if 2 * mark[r] == l else 0.0
            )
    return y


def test_what_data_choose_for_a_row_is_computed_once_where_the_program_looks_at_it_anyway() -> None:
    kernel = weft.kernel(chosen)
    text = kernel.source("float32[64,1000]", "int64[64]", "int64[64]", arch="sm_90a")
    (row,) = [line for line in text.splitlines() if "1.25f" in line]
    (point,) = [line for line in text.splitlines() if "1.75f" in line]
    assert row.strip().startswith("const float") and not point.strip().startswith("const float")
    report = kernel.check(torch.randn(3, 7), torch.tensor([2, -1, 6]), torch.tensor([1, 99, -50]))  # some lie in no row
    assert report.ok, str(report)
