"""Branches between the loops of a row, on values too large to be computed on both sides: every thread of the row decides."""

from __future__ import annotations

import pytest
import torch

import weft
from weft.runtime.nvrtc import compile_cubin


@weft.kernel
def rescaled(x, w):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        s = 0.0
        for l in range(length):
            s = s + x[r, l]
        if s > 0.0:
            a = s * w[0] + w[1]
            a = a * a + a * w[2] + w[3] * s
            a = a * a + a * w[4] + w[5] * s
            scale = a * a + a * w[6] + w[7] * s
        else:
            b = s * w[7] + w[6]
            b = b * b - b * w[5] + w[4] * s
            b = b * b - b * w[3] + w[2] * s
            scale = b * b - b * w[1] + w[0] * s
        for l in range(length):
            y[r, l] = x[r, l] * scale
    return y


@weft.kernel
def rescaled_and_told(x, w):
    """The branch stores too, in one of its sides."""
    rows, length = x.shape
    y = torch.empty_like(x)
    side = torch.zeros(rows)
    for r in range(rows):
        s = 0.0
        for l in range(length):
            s = s + x[r, l]
        if s > 0.0:
            a = s * w[0] + w[1]
            a = a * a + a * w[2] + w[3] * s
            a = a * a + a * w[4] + w[5] * s
            scale = a * a + a * w[6] + w[7] * s
            side[r] = a
        else:
            b = s * w[7] + w[6]
            b = b * b - b * w[5] + w[4] * s
            b = b * b - b * w[3] + w[2] * s
            scale = b * b - b * w[1] + w[0] * s
            if s < -1.0:
                scale = b * w[3] - b * b * w[2] + s * w[1] - s * s * w[0] + b * s
                side[r] = scale * s
        for l in range(length):
            y[r, l] = x[r, l] * scale
    return y, side


@weft.kernel
def rescaled_in_place(x, w):
    """In a nest without rows."""
    s = 0.0
    for l in range(x.shape[0]):
        s = s + x[l]
    if s > 0.0:
        a = s * w[0] + w[1]
        a = a * a + a * w[2] + w[3] * w[4]
        a = a * a + a * w[4] + w[5] * w[6]
        scale = a * a + a * w[6] + w[7] * w[7]
    else:
        b = s * w[7] + w[7]
        b = b * b - b * w[5] + w[4] * w[6]
        b = b * b - b * w[3] + w[2] * w[4]
        scale = b * b - b * w[1] + w[0] * w[1]
    for l in range(x.shape[0]):
        x[l] = x[l] * scale


KERNELS = {rescaled: (6,), rescaled_and_told: (6,), rescaled_in_place: ()}


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_every_thread_of_a_row_decides(kernel: weft.Kernel) -> None:
    generator = torch.Generator().manual_seed(0)
    for n in (5, 700):
        x = torch.randn(*KERNELS[kernel], n, generator=generator) / n
        w = torch.randn(8, generator=generator)
        for sign in (1.0, -1.0):
            report = kernel.check(sign * x, w)
            assert report.ok, report.text()
    compile_cubin(kernel.source(x, w, arch="sm_90a"), "sm_90a", name="f.cu")
