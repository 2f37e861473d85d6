"""CUDA whose columns begin and end where numbers, other arrays or the row say."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from weft.pytorch.simulated import simulate_call
from weft.runtime.nvrtc import compile_cubin

pytestmark = pytest.mark.usefixtures("quickly_compiled")


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


# What is done with column k of rows whose data say how many there are. Those beyond the tensor's 10 are an error.
ACCESSES = {
    "load": "s += x[i, k]",
    "load under data": "if mask[k]: s += x[i, k]",
    "load of one row under data": "if mask[k]: s += x[0, k]",
    "choice": "s += x[i, k] if mask[k] else 0.0",
    "condition": "s += 1.0 if mask[k] and x[i, k] > 2 else 0.0",
    "maximum": "s = max(s, x[i, k]) if mask[k] else s",
    "recurrence": "s = 0.5 * s + x[i, k] if mask[k] else s",
    "load of stride 2": "s += z[i, 2 * k] if mask[k] else 0.0",
    "load across": "s += z[k, i] if mask[k] else 0.0",
    "store": "y[i, k] = 1.0",
    "store under data": "if mask[k]: y[i, k] = 1.0",
    "store of a scan": "s += mask[k]; y[i, k] = s",
}


def of_columns(access: str, columns: str) -> weft.Kernel:
    return weft.kernel(
        "def f(y, x, z, mask, lengths, total):\n"
        "    used = x.shape[1] + y.shape[1] + z.shape[1] + z.shape[0] + mask.shape[0]\n"
        "    for i in range(lengths.shape[0]):\n"
        "        s = 0.0\n"
        f"        for k in {columns}:\n"
        f"            {access}\n"
        "        total[i] = s\n"
    )


@pytest.mark.parametrize("columns", ["range(lengths[i])", "range(lengths[i] - 1, -1, -1)"])
@pytest.mark.parametrize("access", ACCESSES.values(), ids=ACCESSES)
def test_subscripts_are_checked_where_data_end_the_columns(access: str, columns: str) -> None:
    """Guarded or not: what is loaded outside a tensor is no 0, and nothing is stored there."""
    kernel = of_columns(access, columns)
    x, z, mask = torch.rand(3, 10), torch.rand(10, 19), torch.ones(20, dtype=torch.int64)
    for longest in (10, 11):
        args = [torch.zeros(3, 10), x, z, mask, torch.tensor([3, longest, 7]), torch.zeros(3)]
        expected = [a.clone() for a in args]
        try:
            kernel.py(*expected)
        except IndexError:
            with pytest.raises(IndexError):
                kernel(*(a.clone() for a in args))
            assert longest == 11
            found = simulate_call(kernel.program, args, "sm_90a", 0, "forward").launches
            assert {f.kind for launch in found for s in launch.simulations for f in s.findings} == {"trap"}
        else:
            assert longest == 10
            report = kernel.check(*args)
            assert report.ok, report.text()


@pytest.mark.parametrize("guard", ["", "if mask[k]: "])
def test_columns_that_the_index_keeps_inside_are_no_error(guard: str) -> None:
    kernel = of_columns(guard + "s += x[i, k] if k < x.shape[1] else 1.0", "range(lengths[i])")
    args = [torch.zeros(3, 10), torch.rand(3, 10), torch.rand(2, 2), torch.ones(20, dtype=torch.int64)]
    report = kernel.check(*args, torch.tensor([3, 14, 7]), torch.zeros(3))
    assert report.ok, report.text()


@pytest.mark.parametrize("first", [3, 2000])
@pytest.mark.parametrize(
    "columns, body",
    [
        ("range(-{0}, m - {0})", "s += x[i, k + {0}]"),
        ("range(-{0}, m - {0})", "s = 0.5 * s + x[i, k + {0}]; y[i, k + {0}] = s"),
        ("range(m - {0} - 1, -{0} - 1, -1)", "s = 0.5 * s + x[i, k + {0}]; y[i, k + {0}] = s"),
        ("range(-{0}, m - {0})", "y[i, k + {0}] = k * x[i, k + {0}]"),
        ("range(i - {0}, m - {0})", "s += x[i, k + {0}]"),
        ("range(starts[i] - {0}, m - {0})", "s += x[i, k + {0}] if k < m else 1.0"),
    ],
    ids=["sum", "scan", "reversed scan", "elements", "triangle", "data"],
)
def test_columns_may_begin_below_zero(first: int, columns: str, body: str) -> None:
    kernel = weft.kernel(
        "def f(x, y, starts, total):\n"
        "    n, m = x.shape\n"
        "    used = y.shape[1] + starts.shape[0]\n"
        "    for i in range(n):\n"
        "        s = 0.0\n"
        f"        for k in {columns.format(first)}:\n"
        f"            {body.format(first)}\n"
        "        total[i] = s\n"
    )
    x = torch.rand(3, first + 40)
    report = kernel.check(x, torch.zeros_like(x), torch.tensor([0, 2, 1]), torch.zeros(3))
    assert report.ok, report.text()
