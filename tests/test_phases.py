"""Gradients of windows that begin a stride apart (`x[i * stride + k]`): elements gather what they get by phases, and those of
convolutions are products.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from tests.test_joins_apart import function_of
from tests.test_segments import same
from weft.compiler.analysis import lower_nest
from weft.graph.products import products
from weft.loops.adjoint import adjoint
from weft.loops.analyze import schedule
from weft.loops.sized import sized

R = torch.randn


@weft.kernel
def strided(x, w, stride: int, pad: int):
    batch, ins, length = x.shape
    outs, taps = w.shape[0], w.shape[2]
    n_out = (length + 2 * pad - taps) // stride + 1
    y = torch.empty(batch, outs, n_out)
    for n in range(batch):
        for o in range(outs):
            for t in range(n_out):
                s = 0.0
                for c in range(ins):
                    for k in range(taps):
                        if 0 <= t * stride + k - pad < length:
                            s += w[o, c, k] * x[n, c, t * stride + k - pad]
                y[n, o, t] = max(s, 0.0)
    return y


@weft.kernel
def halved(x, w):
    """The strides are numbers, and so are how many places windows have."""
    ins, height, width = x.shape
    y = torch.empty(w.shape[0], (height + 1) // 2, (width + 1) // 2)
    for o in range(w.shape[0]):
        for i in range((height + 1) // 2):
            for j in range((width + 1) // 2):
                s = 0.0
                for c in range(ins):
                    for a in range(3):
                        for b in range(3):
                            if 0 <= 2 * i + a - 1 < height and 0 <= 2 * j + b - 1 < width:
                                s += w[o, c, a, b] * x[c, 2 * i + a - 1, 2 * j + b - 1]
                y[o, i, j] = s
    return y


@weft.kernel
def windows(x, w, first: int, stride: int, many: int):
    """The stride may be none."""
    y = torch.empty(many)
    for i in range(many):
        s = 0.0
        for k in range(w.shape[0]):
            s += w[k] * x[first + i * stride + k]
        y[i] = s
    return y


@weft.kernel
def dilated(x, w, d: int):
    channels, length = x.shape
    y = torch.empty_like(x)
    for c in range(channels):
        for t in range(length):
            s = 0.0
            for k in range(w.shape[1]):
                if t - k * d >= 0:
                    s += w[c, k] * x[c, t - k * d]
            y[c, t] = s
    return y


@weft.kernel
def dilated_apart(x, w, d: int):
    ins, length = x.shape
    outs, taps = w.shape[0], w.shape[2]
    y = torch.empty(outs, length - (taps - 1) * d)
    for o in range(outs):
        for t in range(length - (taps - 1) * d):
            s = 0.0
            for c in range(ins):
                for k in range(taps):
                    s += w[o, c, k] * x[c, t + k * d]
            y[o, t] = s
    return y


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "a stride": (strided, (R(2, 3, 11), R(4, 3, 5), 2, 2)),
    "more than a window": (strided, (R(2, 2, 13), R(3, 2, 2), 3, 1)),
    "a stride of 1": (strided, (R(1, 2, 6), R(2, 2, 3), 1, 1)),
    "nothing but border": (strided, (R(1, 2, 1), R(2, 2, 3), 4, 2)),
    "numbers": (halved, (R(2, 5, 6), R(3, 2, 3, 3))),
    "windows": (windows, (R(13), R(4), 1, 3, 3)),
    "windows at one place": (windows, (R(6), R(4), 1, 0, 3)),
    "windows backwards": (windows, (R(13), R(4), 8, -3, 3)),
    "no windows": (windows, (R(5), R(4), 1, 2, 0)),
    "dilated": (dilated, (R(3, 11), R(3, 4), 2)),
    "dilated the other way": (dilated_apart, (R(2, 11), R(3, 2, 3), 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_loops(name: str) -> None:
    kernel, args = CASES[name]
    same(kernel, *args)


@pytest.mark.parametrize("name", ["a stride", "numbers", "windows", "dilated", "dilated the other way"])
def test_an_element_gathers_what_it_gets(name: str) -> None:
    kernel, args = CASES[name]
    found = schedule(adjoint(function_of(kernel, args), ("x",)))
    assert all(lower_nest(found, nest).joins is None for nest in found.nests if not nest.rare)


@pytest.mark.parametrize("name", ["a stride", "numbers", "dilated the other way"])
def test_gradients_of_convolutions_are_products(name: str) -> None:
    kernel, args = CASES[name]
    found = schedule(sized(adjoint(function_of(kernel, args), ("x", "w"))))
    swept = [s for nest in found.nests if not nest.rare and (s := lower_nest(found, nest).sweeps) is not None]
    multiplied = [any(products(s, lane) is not None for lane in s.rows) for s in swept]
    assert multiplied.count(True) >= 2, multiplied
