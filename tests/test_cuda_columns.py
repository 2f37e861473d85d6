"""CUDA whose columns begin and end where numbers, other arrays or the row say."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from weft.pytorch.simulated import simulate_call
from weft.runtime.nvrtc import compile_cubin


@weft.kernel
def first_columns(y, w, q: int):
    for i in range(min(q, y.shape[0])):
        y[i] = w[i] - y[i]


@weft.kernel
def middle_columns(y, w, q: int):
    for i in range(max(q, 1), min(w.shape[0], y.shape[0]) - 1):
        y[i] = 2 * w[i]


@weft.kernel
def columns_of_all(y, w, u):
    for i, (a, b) in enumerate(zip(w, u)):  # noqa: B905 - as a user writes it
        y[i] = a + b


@weft.kernel
def first_half(y, w):
    m = y.shape[0]
    for i in range(1, m - 1):
        y[i] = w[i]
        y[m - 1 - i] = y[i] + 1


@weft.kernel
def columns_of_rows(y, c, mask, q: int):
    n, m = y.shape
    for r in range(n):
        for i in range(min(q, m)):
            if mask[i] and i + 1 < m:
                y[r, i] = c[r, i + 1]


@weft.kernel
def once_a_row(y):
    n, m = y.shape
    for i in range(2, n, 3):
        for j in range(1, m - 1):
            for _k in range(i, -1, -1):
                y[i, j] = i + 1


@weft.kernel
def stored_twice(y, w):
    for i in range(y.shape[0]):
        y[i] = w[i] + 1
        y[i] = w[i] + 1


@pytest.mark.parametrize("dtype", ["uint8", "float64"])
@pytest.mark.parametrize(
    "kernel, shapes",
    [
        (first_columns, ("[13]", "[21]", 9)),
        (middle_columns, ("[13]", "[11]", 3)),
        (columns_of_all, ("[21]", "[13]", "[9]")),
        (first_half, ("[11]", "[13]")),
        (columns_of_rows, ("[3,13]", "[5,21]", "[40]", 9)),
        (once_a_row, ("[5,5]",)),
        (stored_twice, ("[16]", "[16]")),
    ],
    ids=lambda k: k.name if isinstance(k, weft.Kernel) else "",
)
def test_columns_that_no_size_alone_ends(kernel: weft.Kernel, shapes: tuple[Any, ...], dtype: str) -> None:
    given = [s if isinstance(s, int) else f"{dtype}{s}" for s in shapes]
    compile_cubin(kernel.source(*given, arch="sm_80"), "sm_80", name="columns.cu")
    if dtype == "float64":
        report = kernel.check(*given)
        assert report.ok, report.text()


@weft.kernel
def sums_up_to_the_row(y):
    for i in range(y.shape[0]):
        s = 0.0
        for k in range(4 * i):
            s += k * 0.5
        y[i] = s


@weft.kernel
def sums_of_lengths(y, lengths):
    for i in range(y.shape[0]):
        s = 0.0
        for k in range(lengths[i]):
            s += k * 0.5
        y[i] = s


@weft.kernel
def sums_of_shifted_lengths(y, x, lengths):
    for i in range(y.shape[0]):
        s = 0.0
        for k in range(3, lengths[i] + 3):
            s += x[i, k - 3]
        y[i] = s


def test_rows_are_held_only_where_none_is_longer() -> None:
    """Rows have as many columns as the row's number, or an element, says: no array has so many."""
    lengths = torch.tensor([3, 200, 64])
    for kernel, args in (
        (sums_up_to_the_row, (torch.zeros(60),)),
        (sums_of_lengths, (torch.zeros(3), lengths)),
        (sums_of_shifted_lengths, (torch.zeros(3), torch.rand(3, 256), lengths + 56)),
    ):
        report = kernel.check(*args)
        assert report.ok, report.text()


def test_lengths_beyond_the_columns_stop_the_kernel() -> None:
    """As a CPU raises OutOfRange: no sum of what is inside."""
    args = [torch.zeros(3), torch.rand(3, 40), torch.tensor([3, 41, 40])]
    ran = simulate_call(sums_of_shifted_lengths.program, args, "sm_90a", 0, "forward")
    assert [f.kind for x in ran.launches for s in x.simulations for f in s.findings] == ["trap"]


def value_of_a_branch_stored_under_another(x, b, flip):
    n = x.shape[0]
    for i in range(n):
        if i != 2:
            v = min(b[n - 1 - i], -1)
            if i % 2 == flip:
                x[i] = -v
            else:
                x[i] = v


def test_what_a_branch_binds_is_told_in_the_branches_in_it() -> None:
    x, b = torch.zeros(40, dtype=torch.int32), torch.arange(40, dtype=torch.int32) - 20
    report = weft.kernel(value_of_a_branch_stored_under_another).check(x, b, 1)
    assert report.ok, str(report)


def sized_by_a_product(x):
    n, m = x.shape
    a = torch.zeros(n * (m * m + 3), dtype=x.dtype)
    for i in range(m):
        a[i] += x[0, i]
    return a


def test_a_kernel_knows_the_sizes_that_it_checks() -> None:
    kernel = weft.kernel(sized_by_a_product)
    x = torch.randn(2, 5)
    torch.testing.assert_close(kernel(x), sized_by_a_product(x))
    report = kernel.check(x)
    assert report.ok, str(report)
