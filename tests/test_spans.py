"""Gradients of what is read by functions of single variables (resized, reflected, repeated images), and of these and of
places in windows: an element asks the iterations between the least and the largest that read it.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from tests.test_joins_apart import function_of
from tests.test_segments import same
from weft.compiler.analysis import lower_nest
from weft.graph.joins import Ordered
from weft.loops.adjoint import adjoint
from weft.loops.analyze import schedule

R = torch.randn


@weft.kernel
def nearest(x, height: int, width: int):
    h, w = x.shape
    y = torch.empty(height, width)
    for i in range(height):
        for j in range(width):
            y[i, j] = x[i * h // height, j * w // width] * (i + j)
    return y


@weft.kernel
def bilinear(x, height: int, width: int):
    channels, h, w = x.shape
    y = torch.empty(channels, height, width)
    for c in range(channels):
        for i in range(height):
            for j in range(width):
                u = max((i + 0.5) * h / height - 0.5, 0.0)
                v = max((j + 0.5) * w / width - 0.5, 0.0)
                p = u - int(u)
                q = v - int(v)
                one = x[c, int(u), int(v)] * (1 - q) + x[c, int(u), min(int(v) + 1, w - 1)] * q
                two = x[c, min(int(u) + 1, h - 1), int(v)] * (1 - q) + x[c, min(int(u) + 1, h - 1), min(int(v) + 1, w - 1)] * q
                y[c, i, j] = one * (1 - p) + two * p
    return y


@weft.kernel
def reflected(x, pad: int):
    channels, width = x.shape
    y = torch.empty(channels, width + 2 * pad)
    for c in range(channels):
        for j in range(width + 2 * pad):
            k = abs(j - pad)
            if k >= width:
                k = 2 * (width - 1) - k
            y[c, j] = x[c, k] * (j + 1)
    return y


@weft.kernel
def repeated_ends(x, pad: int):
    """Of all rows the same elements are read: what rows hand back is summed as well."""
    n = x.shape[0]
    y = torch.empty(3, n + 2 * pad)
    for r in range(3):
        for j in range(n + 2 * pad):
            y[r, j] = x[min(max(j - pad, 0), n - 1)] * (r + j)
    return y


@weft.kernel
def windows_at_ends(x):
    """Places in windows that end with the image; what is handed back is chosen in each window."""
    height, width = x.shape
    y = torch.empty_like(x)
    for i in range(height):
        for j in range(width):
            w = torch.empty(9)
            for a in range(3):
                for b in range(3):
                    w[a * 3 + b] = x[min(max(i + a - 1, 0), height - 1), min(max(j + b - 1, 0), width - 1)]
            m = 0.0
            for p in range(9):
                below = 0
                for q in range(9):
                    if w[q] < w[p] or (w[q] == w[p] and q < p):
                        below += 1
                if below == 4:
                    m = w[p].clone()
            y[i, j] = m
    return y


@weft.kernel
def blurred_at_ends(x):
    height, width = x.shape
    y = torch.empty_like(x)
    for i in range(height):
        for j in range(width):
            s = 0.0
            for a in range(-1, 2):
                for b in range(-1, 2):
                    s += x[min(max(i + a, 0), height - 1), min(max(j + b, 0), width - 1)] * (a + 2)
            y[i, j] = s
    return y


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "larger": (nearest, (R(4, 5), 9, 11)),
    "smaller": (nearest, (R(7, 8), 3, 5)),
    "nothing": (nearest, (R(4, 5), 0, 3)),
    "bilinear": (bilinear, (R(2, 4, 5), 7, 6)),
    "reflected": (reflected, (R(2, 6), 3)),
    "reflected twice": (reflected, (R(2, 4), 5)),
    "ends": (repeated_ends, (R(5), 4)),
    "windows at ends": (windows_at_ends, (R(4, 5),)),
    "windows around": (blurred_at_ends, (R(3, 4),)),
    "windows wider than the image": (windows_at_ends, (R(1, 2),)),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_loops(name: str) -> None:
    kernel, args = CASES[name]
    same(kernel, *args)


def test_the_kernels_compute_what_the_loops_do() -> None:
    for kernel, args in (CASES["reflected"], CASES["windows around"]):
        report = kernel.check(*args, gradients=True)
        assert not report.findings and report.ok, str(report)


@pytest.mark.parametrize("name", ["larger", "bilinear", "reflected", "ends", "windows at ends", "windows around"])
def test_nothing_is_sorted(name: str) -> None:
    kernel, args = CASES[name]
    found = schedule(adjoint(function_of(kernel, args), ("x",)))
    joined = [x for nest in found.nests if (x := lower_nest(found, nest).joins) is not None]
    assert not any(isinstance(g, Ordered) for x in joined for g in x.groups)
