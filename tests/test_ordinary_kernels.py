"""Kernels as a new user writes them, at the sizes that kernels forget: without rows, in place, with two results, of mixed
types. Executed by the simulator, values and races.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import weft

R = torch.randn


@weft.kernel
def two_results(x):
    lo = torch.zeros(1)
    hi = torch.zeros(1)
    a = math.inf
    b = -math.inf
    for i in range(x.shape[0]):
        a = min(a, x[i])
        b = max(b, x[i])
    lo[0] = a
    hi[0] = b
    return lo, hi


@weft.kernel
def variance_two_pass(x):
    n = x.shape[0]
    y = torch.empty_like(x)
    s = 0.0
    for i in range(n):
        s += x[i]
    m = s / max(n, 1)
    v = 0.0
    for i in range(n):
        v += (x[i] - m) * (x[i] - m)
    r = 1.0 / math.sqrt(v + 1.0)
    for i in range(n):
        y[i] = (x[i] - m) * r
    return y


@weft.kernel
def mixed_dtypes(x, k):
    y = torch.zeros(x.shape[0], dtype=torch.float64)
    s = 0
    for i in range(x.shape[0]):
        s += k[i]
        y[i] = x[i] * s
    return y


@weft.kernel
def in_place_normalise(x):
    n, m = x.shape
    for r in range(n):
        s = 1.0
        for i in range(m):
            s += x[r, i] * x[r, i]
        for i in range(m):
            x[r, i] /= s


@weft.kernel
def dot_and_axpy(x, z):
    s = 0.0
    for i in range(x.shape[0]):
        s += x[i] * z[i]
    for i in range(x.shape[0]):
        z[i] = z[i] - s * x[i]


@weft.kernel
def rows_two_scans(x):
    n, m = x.shape
    y = torch.empty_like(x)
    z = torch.empty_like(x)
    for r in range(n):
        s = 0.0
        for i in range(m):
            s += x[r, i]
            y[r, i] = s
        t = s
        for i in range(m - 1, -1, -1):
            t = t * 0.5 + x[r, i]
            z[r, i] = t
    return y, z


@weft.kernel
def last_element(x):
    y = torch.zeros(1)
    for i in range(x.shape[0]):
        y[0] = x[i]
    return y


@weft.kernel
def diff_in_place(x):
    for i in range(x.shape[0] - 1):
        x[i] = x[i + 1] - x[i]


@weft.kernel
def uint8_sum(x):
    y = torch.zeros(1, dtype=torch.uint8)
    for i in range(x.shape[0]):
        y[0] += x[i]
    return y


@weft.kernel
def int_scan_back(x):
    y = torch.zeros_like(x)
    s = 0
    for i in range(x.shape[0] - 1, -1, -1):
        s = max(s - 1, x[i])
        y[i] = s
    return y


@weft.kernel
def argmax1d(x):
    y = torch.zeros(1, dtype=torch.int64)
    m = -math.inf
    k = -1
    for i in range(x.shape[0]):
        if x[i] > m:
            m = x[i]
            k = i
    y[0] = k
    return y


@weft.kernel
def cross_product_sum(x, z, y):
    for r in range(y.shape[0]):
        s = y[r]
        for i in range(x.shape[0]):
            s = s + x[i] * z[r, i]
        y[r] = s


CASES: dict[weft.Kernel, Callable[[int], tuple[Any, ...]]] = {
    two_results: lambda n: (R(n),),
    variance_two_pass: lambda n: (R(n),),
    mixed_dtypes: lambda n: (R(n).half(), torch.randint(0, 5, (n,), dtype=torch.int32)),
    in_place_normalise: lambda n: (R(3, n),),
    dot_and_axpy: lambda n: (R(n), R(n)),
    rows_two_scans: lambda n: (R(3, n),),
    last_element: lambda n: (R(n),),
    diff_in_place: lambda n: (R(n),),
    uint8_sum: lambda n: (torch.randint(0, 255, (n,), dtype=torch.uint8),),
    int_scan_back: lambda n: (torch.randint(0, 9, (n,), dtype=torch.int32),),
    argmax1d: lambda n: (R(n),),
    cross_product_sum: lambda n: (R(n), R(3, n), R(3)),
}


@pytest.mark.parametrize("kernel", CASES, ids=lambda k: k.name)
def test_nothing_is_found_at_any_size(kernel: weft.Kernel) -> None:
    torch.manual_seed(0)
    for n in (0, 1, 33):
        report = kernel.check(*CASES[kernel](n))
        assert report.ok, report.text()
