"""A nest that stores something at every point and the next one, which folds at the same points, as one sweep on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from weft.errors import OutOfRange
from weft.pytorch.inspection import examine


@weft.kernel
def stored_and_summed(x, bias):
    y = torch.empty_like(x)
    s = torch.empty_like(bias)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = torch.exp(x[i, j] + bias[j])
    for j in range(x.shape[1]):
        total = 0.0
        for i in range(x.shape[0]):
            total += y[i, j]
        s[j] = total
    return y, s


@weft.kernel
def read_by_both(x):
    """The largest square of each column of a batch; the squares of another array lie beside it."""
    y = torch.empty_like(x)
    most = torch.empty(x.shape[2], dtype=x.dtype)
    for b in range(x.shape[0]):
        for i in range(x.shape[1]):
            for j in range(x.shape[2]):
                y[b, i, j] = 2.0 * x[b, i, j]
    for j in range(x.shape[2]):
        largest = 0.0
        for b in range(x.shape[0]):
            for i in range(x.shape[1]):
                largest = max(largest, x[b, i, j] * x[b, i, j])
        most[j] = largest
    return y, most


@weft.kernel
def summed_elsewhere(x):
    y = torch.empty_like(x)
    s = torch.empty(x.shape[1], dtype=x.dtype)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = torch.exp(x[i, j])
    for j in range(x.shape[1]):
        total = 0.0
        for i in range(x.shape[0]):
            total += y[i, x.shape[1] - 1 - j]
        s[j] = total
    return y, s


@weft.kernel
def written_over(x, s):
    """The map reads what the sum writes: no sum may come before the last of its points."""
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] * s[j]
    for j in range(x.shape[1]):
        total = 0.0
        for i in range(x.shape[0]):
            total += y[i, j]
        s[j] = total
    return y


@weft.kernel
def activated(x, bias):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = torch.tanh(x[i, j] + bias[j])
    return y


def entries(kernel: Any, *args: Any) -> list[str]:
    return [launch.entry for launch in examine(kernel, args).launches()]


def test_what_is_stored_is_summed_in_the_same_sweep() -> None:
    """Rounded as the array holds it, and not read again."""
    specs = "bfloat16[4096,512]", "bfloat16[512]"
    assert entries(stored_and_summed, *specs) == ["stored_and_summed_1_parts", "stored_and_summed_1"]
    text = stored_and_summed.source(*specs, arch="sm_90a")
    assert "fetch<8, 8>(y" not in text and "round_bfloat16" in text
    report = stored_and_summed.check("bfloat16[130,64]", "bfloat16[64]")
    assert report.ok, report


def test_what_both_read_is_read_once() -> None:
    assert len(entries(read_by_both, "float32[16,256,512]")) == 2
    assert read_by_both.source("float32[16,256,512]", arch="sm_90a").count("fetch<4, 4>(x") == 1
    report = read_by_both.check("float32[5,60,64]")
    assert report.ok, report


def test_nests_that_meet_at_other_points_stay_apart() -> None:
    apart = ["summed_elsewhere_1", "summed_elsewhere_2_parts", "summed_elsewhere_2"]
    assert entries(summed_elsewhere, "float32[4096,512]") == apart
    assert entries(written_over, "float32[4096,512]", "float32[512]")[0] == "written_over_1"
    for kernel, *args in ((summed_elsewhere, "float32[200,64]"), (written_over, "float32[200,64]", "float32[64]")):
        report = kernel.check(*args)
        assert report.ok, report


def test_few_columns_and_odd_ones_stay_apart() -> None:
    """Where blocks share no rows, or elements lie between packets, a map has more threads."""
    assert entries(stored_and_summed, "float32[40,512]", "float32[512]")[0] == "stored_and_summed_1"
    assert entries(stored_and_summed, "float32[4096,511]", "float32[511]")[0] == "stored_and_summed_1"


def test_a_bias_has_its_gradient_beside_that_of_what_it_is_added_to() -> None:
    report = activated.check("bfloat16[300,64]", "bfloat16[64]", gradients=True)
    assert report.ok, report
    text = str(report.text())
    assert "activated_adjoint_1_parts" in text and "activated_adjoint_2" not in text


@weft.kernel
def summed_first(a, b):
    """A sum over rows of a view, then what else is made of the same elements: as groups of torch.compile have them."""
    assert a.shape[0] == 4
    assert a.shape[1] == 128
    assert a.shape[2] == 64
    sums = torch.empty(64)
    y = torch.empty(4, 128, 64, dtype=torch.bfloat16)
    for i in range(64):
        total = 0.0
        for r in range(512):
            total += a[r // 128, r % 128, i] * b[r // 128, r % 128, i]
        sums[i] = total
    for i in range(4):
        for j in range(128):
            for k in range(64):
                y[i, j, k] = a[i, j, k] * (b[i, j, k] if k < 32 else 2.0 * b[i, j, k])
    return sums, y


def test_a_sum_over_rows_of_a_view_meets_the_elements_that_are_stored_after_it() -> None:
    specs = "bfloat16[4,128,64]", "bfloat16[4,128,64]"
    assert entries(summed_first, *specs) == ["summed_first_2_parts", "summed_first_2"]
    text = summed_first.source(*specs, arch="sm_90a")
    assert text.count("fetch<8, 8>(a") == 1 and "floor_divide" not in text
    report = summed_first.check(*specs)
    assert report.ok, report


@weft.kernel
def in_order(x):
    """The digits of a number are gone through in its order."""
    y = torch.empty(2, 3, 4, dtype=x.dtype)
    h = torch.zeros((), dtype=x.dtype)
    for i in range(24):
        h = torch.tanh(h * x[i // 12, i // 4 % 3, i % 4]) + x[i // 12, i % 12 // 4, i % 4]
        y[i // 12, i // 4 % 3, i % 4] = h
    return y


def test_loops_over_digits_keep_their_order() -> None:
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    torch.testing.assert_close(in_order(x), in_order.py(x))
    with pytest.raises(OutOfRange, match=r"x outside axis 1, at index i // 4 % 3"):
        in_order(x[:, :2])
