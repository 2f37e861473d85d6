"""Programs that join values to elements which the data choose: histograms, scatters, extrema, bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import weft


@weft.kernel
def histogram(x, bins: int):
    count = torch.zeros(bins, dtype=torch.int64)
    for i in range(len(x)):
        count[x[i]] += 1
    return count


@weft.kernel
def histogram_of_bytes(x):
    count = torch.zeros(256, dtype=torch.int32)
    for i in range(len(x)):
        count[int(x[i])] += 1
    return count


@weft.kernel
def histograms_of_rows(x, count):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            count[i % 3, x[i, j]] += 1


@weft.kernel
def added(y, index, x):
    """Where they are positive."""
    for i in range(len(index)):
        if x[i] > 0:
            y[index[i]] += x[i]


@weft.kernel
def multiplied(y, index, x):
    for i in range(len(index)):
        y[index[i]] *= x[i]


@weft.kernel
def largest(y, index, x):
    for i in range(len(index)):
        y[index[i]] = max(y[index[i]], x[i])


@weft.kernel
def smallest(y, index, x):
    for i in range(len(index)):
        y[index[i]] = torch.minimum(y[index[i]], x[i])


@weft.kernel
def bits(y, index, x):
    for i in range(len(index)):
        y[index[i]] |= x[i]


@weft.kernel
def toggled(y, index, x):
    for i in range(len(index)):
        y[index[i]] ^= x[i]


@weft.kernel
def met(y, index, x):
    for i in range(len(index)):
        y[index[i]] = y[index[i]] or x[i]


@weft.kernel
def all_of(y, index, x):
    for i in range(len(index)):
        y[index[i]] = y[index[i]] and x[i]


@weft.kernel
def rows_added(y, index, x):
    for i in range(x.shape[0]):
        for d in range(x.shape[1]):
            y[index[i], d] += x[i, d]


@weft.kernel
def both_ends(y, a, b, x):
    """Two joins at a point, and what is stored there."""
    z = torch.empty_like(x)
    for i in range(len(a)):
        y[a[i]] += x[i]
        y[b[i]] -= x[i]
        z[i] = 2 * x[i]
    return z


@weft.kernel
def stored(x, k, v):
    for i in range(k.shape[0]):
        if v[i] > 0:
            x[k[i]] = v[i] + 1


@weft.kernel
def stored_rows(x, k, v):
    for i in range(k.shape[0]):
        for h in range(x.shape[1]):
            for d in range(x.shape[2]):
                x[k[i], h, d] = v[i, h, d]


@weft.kernel
def stored_cells(x, k, v):
    for i in range(k.shape[0]):
        for j in range(k.shape[1]):
            x[k[i, j], i % 2] = v[i, j]


@weft.kernel
def stored_scaled(x, k, v, s):
    """Two axes of points, rows that lie along the points, and what a point has once."""
    for i in range(k.shape[0]):
        for j in range(k.shape[1]):
            if s[i] > 0:
                for d in range(x.shape[2]):
                    x[k[i, j], j, d] = v[d, i] * s[i]


@weft.kernel
def of_lists(y, lengths, index):
    """Points whose bounds data decide."""
    for i in range(len(lengths)):
        for k in range(lengths[i]):
            y[index[i, k]] += i


@weft.kernel
def of_one_range(y, ends, index, x):
    """Points of one axis, whose bounds data decide: there is none that a grid could have."""
    for i in range(ends[0], ends[1]):
        y[index[i]] = max(y[index[i]], x[i])


@weft.kernel
def looked_up(table, index):
    y = torch.empty(index.shape[0], table.shape[1], dtype=table.dtype)
    for i in range(index.shape[0]):
        y[i, :] = table[index[i], :]
    return y


@weft.kernel
def pairs_added(y, x, places):
    """Two axes of points, and subscripts that are numbers or an axis."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, places[i, j], 1] += x[i, j] * x[i, 0]


@weft.kernel
def scaled_rows(y, index, x):
    """Products, where a row is positive; what stands beside them is stored."""
    z = torch.empty_like(x)
    for i in range(x.shape[0]):
        for d in range(x.shape[1]):
            if x[i, 0] > 0:
                y[index[i], d] *= x[i, d]
            z[i, d] = -x[i, d]
    return z


@weft.kernel
def offsets(x, bins: int):
    """Where those of each bin begin: what is joined is then gone through in order."""
    count = torch.zeros(bins + 1, dtype=torch.int64)
    for i in range(len(x)):
        count[x[i] + 1] += 1
    for j in range(bins):
        count[j + 1] += count[j]
    return count


@weft.kernel
def joined_twice(x, k):
    first, second = torch.zeros(100), torch.zeros(100)
    for i in range(len(x)):
        first[k[i]] += x[i]
    for i in range(len(x)):
        second[k[i]] += first[k[i]] * x[i]
    return second


def whole(high: int, *shape: int, low: int = 0, dtype: torch.dtype = torch.int64) -> Tensor:
    generator = torch.Generator().manual_seed(high + sum(shape))
    return torch.randint(low, high, shape, generator=generator).to(dtype)


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


# Kernels, and arguments of several sizes: few elements that blocks have for themselves, and many.
CASES: dict[str, tuple[Any, tuple[Callable[[], tuple[Any, ...]], ...]]] = {
    "histogram": (
        histogram,
        (lambda: (whole(9, 3000, low=-9), 9), lambda: (whole(20000, 900), 20000), lambda: (whole(9, 0), 9)),
    ),
    "histogram_of_bytes": (
        histogram_of_bytes,
        (lambda: (whole(256, 4096, dtype=torch.uint8),), lambda: (whole(256, 1003, dtype=torch.uint8),)),
    ),
    "histograms_of_rows": (
        histograms_of_rows,
        (
            lambda: (whole(7, 40, 64), torch.zeros(3, 7, dtype=torch.int16)),
            lambda: (whole(7, 9, 5), torch.zeros(14, 3, dtype=torch.int8).T[:, ::2]),
        ),
    ),
    "added": (
        added,
        (
            lambda: (whole(90, 5, dtype=torch.int8), whole(5, 2000), whole(90, 2000, low=-90, dtype=torch.int8)),
            lambda: (whole(90, 5000, dtype=torch.uint8)[3:], whole(4000, 700), whole(90, 700, dtype=torch.uint8)),
            lambda: (whole(90, 5000), whole(4000, 700, low=-900), whole(1 << 40, 700)),
        ),
    ),
    "multiplied": (
        multiplied,
        (
            lambda: (whole(9, 5, dtype=torch.int16) + 1, whole(5, 300), 2 * whole(4, 300, dtype=torch.int16) + 1),
            lambda: (whole(9, 500) + 1, whole(500, 300), 2 * whole(4, 300) + 1),
        ),
    ),
    "largest": (
        largest,
        (
            lambda: (drawn(5, dtype=torch.bfloat16), whole(5, 600), drawn(600, dtype=torch.bfloat16)),
            lambda: (drawn(500), whole(500, 600), drawn(600)),
            lambda: (whole(90, 9, low=-90), whole(9, 600), whole(90, 600, low=-90)),
        ),
    ),
    "smallest": (
        smallest,
        (
            lambda: (drawn(5, dtype=torch.float16), whole(5, 600), drawn(600, dtype=torch.float16)),
            lambda: (drawn(500).double(), whole(500, 600), drawn(600).double()),
            lambda: (whole(90, 700, dtype=torch.uint8), whole(700, 600), whole(90, 600, dtype=torch.uint8)),
        ),
    ),
    "bits": (bits, (lambda: (whole(3, 6, dtype=torch.uint8), whole(6, 600), whole(9, 600, dtype=torch.uint8)),)),
    "toggled": (toggled, (lambda: (whole(99, 60), whole(60, 600), whole(99, 600)),)),
    "met": (
        met,
        (
            lambda: (whole(2, 60, dtype=torch.bool), whole(60, 90), whole(2, 90, dtype=torch.bool)),
            lambda: (whole(2, 6, dtype=torch.bool), whole(6, 90), whole(2, 90, dtype=torch.bool)),
        ),
    ),
    "all_of": (
        all_of,
        (
            lambda: (whole(2, 60, dtype=torch.bool), whole(60, 90), whole(2, 90, dtype=torch.bool)),
            lambda: (whole(2, 6, dtype=torch.bool), whole(6, 90), whole(2, 90, dtype=torch.bool)),
        ),
    ),
    "rows_added": (
        rows_added,
        (
            lambda: (whole(9, 70, 12, dtype=torch.int32), whole(70, 90), whole(9, 90, 12, dtype=torch.int32)),
            lambda: (whole(9, 7, 5, dtype=torch.int32), whole(7, 90), whole(9, 90, 5, dtype=torch.int32)),
        ),
    ),
    "both_ends": (
        both_ends,
        (lambda: (whole(9, 40), whole(40, 300), whole(40, 300), whole(9, 300)),),
    ),
    "added_floats": (
        added,
        (
            lambda: (drawn(50), whole(50, 900, low=-50), drawn(900)),
            lambda: (drawn(50).double()[::3], whole(17, 9000), drawn(9000).double()),
            lambda: (drawn(70000), whole(70000, 500), drawn(500)),
            lambda: (drawn(5), whole(5, 0), drawn(0)),
        ),
    ),
    "multiplied_floats": (multiplied, (lambda: (drawn(5), whole(5, 90), 1 + 0.1 * drawn(90)),)),
    "rows_added_floats": (
        rows_added,
        (
            lambda: (drawn(40, 12), whole(40, 700), drawn(700, 12)),
            lambda: (drawn(6, 40).T, whole(40, 70), drawn(70, 6)),
        ),
    ),
    "both_ends_floats": (both_ends, (lambda: (drawn(40), whole(40, 300), whole(40, 300), drawn(300)),)),
    "pairs_added": (pairs_added, (lambda: (drawn(7, 5, 2), drawn(7, 90), whole(5, 7, 90)),)),
    "scaled_rows": (scaled_rows, (lambda: (drawn(9, 6), whole(9, 50), 1 + 0.1 * drawn(50, 6)),)),
    "stored": (
        stored,
        (
            lambda: (drawn(7), whole(7, 900, low=-7), drawn(900)),
            lambda: (drawn(60000).half(), whole(60000, 300), drawn(300)),
        ),
    ),
    "stored_rows": (
        stored_rows,
        (
            lambda: (drawn(9, 3, 8).bfloat16(), whole(9, 100), drawn(100, 3, 8)),
            lambda: (drawn(8, 3, 9).transpose(0, 2), whole(9, 100), drawn(100, 3, 8)),
            lambda: (drawn(30, 3, 7), whole(30, 50, low=-30), drawn(50, 3, 7)),
            lambda: (drawn(50, 2, 37).half()[:, :, 1:-3], whole(50, 40).int(), drawn(40, 2, 34).half()[:, :, 1:]),
            lambda: (drawn(5, 1, 2200).bfloat16(), whole(5, 40), drawn(40, 1, 2200).bfloat16()),
        ),
    ),
    "stored_cells": (stored_cells, (lambda: (whole(9, 7, 2, dtype=torch.uint8), whole(7, 30, 4), whole(300, 30, 4)),)),
    "stored_scaled": (
        stored_scaled,
        (
            lambda: (drawn(9, 4, 20), whole(9, 70, 4), drawn(20, 70), drawn(70)),
            lambda: (drawn(400, 2, 33).bfloat16(), whole(400, 20, 2), drawn(33, 20), drawn(20)),
        ),
    ),
    "of_one_range": (of_one_range, (lambda: (drawn(9), torch.tensor([3, 20]), whole(9, 30, low=-9), drawn(30)),)),
    "of_lists": (
        of_lists,
        (lambda: (whole(9, 40), whole(10, 30), whole(40, 30, 10)),),
    ),
}
