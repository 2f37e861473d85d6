"""Programs whose folds threads share: sums over all axes, the first, the middle, rows with a gather, several sweeps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import weft


@weft.kernel
def total(x):
    y = torch.empty(1)
    s = 0.0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            s = s + x[i, j]
    y[0] = s
    return y


@weft.kernel
def total_of_three(x):
    y = torch.empty((), dtype=torch.float64)
    s = 2.5
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            for k in range(x.shape[2]):
                s += x[i, j, k] * x[i, j, k]
    y[()] = s
    return y


@weft.kernel
def column_sums(x):
    n, m = x.shape
    y = torch.empty(m)
    for j in range(m):
        s = 0.0
        for i in range(n):
            s += x[i, j]
        y[j] = s
    return y


@weft.kernel
def middle_maximum(x):
    a, b, c = x.shape
    y = torch.empty(a, c)
    for i in range(a):
        for k in range(c):
            m = -math.inf
            for j in range(b):
                m = max(m, x[i, j, k])
            y[i, k] = m
    return y


@weft.kernel
def cross_entropy(x, target):
    n, m = x.shape
    loss = torch.empty(n)
    for r in range(n):
        high = -math.inf
        for j in range(m):
            high = max(high, x[r, j])
        s = 0.0
        for j in range(m):
            s += torch.exp(x[r, j] - high)
        loss[r] = torch.log(s) + high - x[r, target[r]]
    return loss


@weft.kernel
def log_sum_exp(x):
    n, m = x.shape
    y = torch.empty(n)
    for r in range(n):
        high = -math.inf
        for j in range(m):
            high = max(high, x[r, j])
        s = 0.0
        for j in range(m):
            s += torch.exp((x[r, j] - high) * 0.5)
        y[r] = torch.log(s) + high
    return y


@weft.kernel
def log_sum_exp_of_two(x):
    """Over two axes, which no thread holds."""
    n, m, k = x.shape
    y = torch.empty(n)
    for r in range(n):
        high = -math.inf
        for i in range(m):
            for j in range(k):
                high = max(high, x[r, i, j])
        s = 0.0
        for i in range(m):
            for j in range(k):
                s += torch.exp((x[r, i, j] - high) * 0.5)
        y[r] = torch.log(s) + high
    return y


@weft.kernel
def exponentials(x):
    """The sum of exponentials alone, relative to what starts with 0."""
    n, m = x.shape
    y = torch.empty(n)
    for r in range(n):
        high = 0.0
        for j in range(m):
            high = max(high, x[r, j])
        s = 3.0
        for j in range(m):
            s += torch.exp2(x[r, j] - high)
        y[r] = s
    return y


@weft.kernel
def softmin_mean(x, w):
    """Two sums relative to a least element of tensors, over two axes, of what is computed on the way."""
    n, m, k = x.shape
    y = torch.empty(n)
    for r in range(n):
        low = math.inf
        for i in range(m):
            for j in range(k):
                low = min(low, x[r, i, j] * w[i])
        s, t = 0.0, 0.0
        for i in range(m):
            for j in range(k):
                e = torch.exp(low - x[r, i, j] * w[i])
                s += e
                t += e * x[r, i, j]
        y[r] = t / s
    return y


@weft.kernel
def standardised(x, w, picked):
    """Rows of two axes, less what is picked of each, over their deviation; a weight for each column and each first axis."""
    a, b, m = x.shape
    y = torch.empty_like(x)
    largest = torch.empty(a, b)
    for i in range(a):
        for k in range(b):
            s = 0.0
            for j in range(m):
                s += x[i, k, j]
            mean = s / m
            v, high = 0.0, -math.inf
            for j in range(m):
                v += (x[i, k, j] - mean) ** 2
                high = max(high, x[i, k, j] * w[i, j])
            for j in range(m):
                y[i, k, j] = (x[i, k, j] - x[i, k, picked[k]]) / torch.sqrt(v / m + 1.0) * w[i, j] + j
            largest[i, k] = high
    return y, largest


@weft.kernel
def lower_triangle(x):
    """Shares of what is left of the diagonal, from the second column on."""
    n, m = x.shape
    y = torch.zeros_like(x)
    for i in range(n):
        s = 0.0
        for j in range(1, min(i + 1, m)):
            s += torch.exp(x[i, j])
        for j in range(1, min(i + 1, m)):
            y[i, j] = torch.exp(x[i, j]) / s
    return y


@weft.kernel
def shares(x):
    """Of a vector, which is one row."""
    y = torch.empty_like(x)
    s = 0.0
    for i in range(len(x)):
        s += torch.abs(x[i])
    for i in range(len(x)):
        y[i] = x[i] / s
    return y


@weft.kernel
def column_shares(x):
    """What each thread has of several columns is divided by another sum for each."""
    n, m = x.shape
    y = torch.empty(m)
    for j in range(m):
        s = 0.0
        for i in range(n):
            s += torch.abs(x[i, j])
        t = 0.0
        for i in range(n):
            t += (x[i, j] / s) ** 2
        y[j] = t
    return y


@weft.kernel
def largest_of_rows(x, z):
    """The first largest of each row, where it is, and what goes with it."""
    n, m = x.shape
    y, at, also = torch.empty(n), torch.empty(n, dtype=torch.int64), torch.empty(n)
    for i in range(n):
        best, k, w = -math.inf, -1, 0.5
        for j in range(m):
            if x[i, j] > best:
                best, k, w = x[i, j], j, z[i, j]
        y[i] = best
        at[i] = k
        also[i] = w
    return y, at, also


@weft.kernel
def largest_of_all(x):
    n, m = x.shape
    at = torch.empty(3, dtype=torch.int64)
    best, a, b, c = -math.inf, -1, -1, -1
    for i in range(n):
        for j in range(m):
            if x[i, j] > best:
                best, a, b, c = x[i, j], i, j, i * m + j
    at[0] = a
    at[1] = b
    at[2] = c
    return at


@weft.kernel
def last_least_of_columns(x):
    """Of equal ones the last, from the second row on."""
    n, m = x.shape
    at = torch.empty(m, dtype=torch.int64)
    for j in range(m):
        best, k = x[0, j], 0
        for i in range(1, n):
            if x[i, j] <= best:
                best, k = x[i, j], i
        at[j] = k
    return at


@weft.kernel
def least_of_the_middle(x):
    """From the end, of places that begin below 0."""
    a, b, c = x.shape
    at = torch.empty(a, c, dtype=torch.int32)
    for i in range(a):
        for k in range(c):
            best, p = 1000.0, 7
            for j in range(b - 3, -3, -1):
                if x[i, j + 2, k] < best:
                    best, p = x[i, j + 2, k], j
            at[i, k] = p
    return at


@weft.kernel
def first_above(x, limit: float):
    n, m = x.shape
    at = torch.empty(n, dtype=torch.int64)
    for i in range(n):
        k = -1
        for j in range(m):
            if x[i, j] > limit:
                k = j
                break
        at[i] = k
    return at


@weft.kernel
def below_the_largest(x):
    """Held rows, and where their largest is."""
    n, m = x.shape
    y, at = torch.empty_like(x), torch.empty(n, dtype=torch.int64)
    for i in range(n):
        best, k = -math.inf, 0
        for j in range(m):
            if x[i, j] > best:
                best, k = x[i, j], j
        for j in range(m):
            y[i, j] = x[i, j] - best if j != k else 1.0
        at[i] = k
    return y, at


@weft.kernel
def softmax_of_tensors(x):
    return torch.softmax(x.double(), -1)


@weft.kernel
def log_softmax_of_some(x, lengths):
    """Rows of their own lengths, perhaps of none; what is written needs the sum."""
    n, m = x.shape
    y = torch.zeros_like(x)
    for r in range(n):
        high = -math.inf
        for j in range(lengths[r]):
            high = max(high, x[r, j])
        s = 0.0
        for j in range(lengths[r]):
            s += torch.exp(x[r, j] - high)
        for j in range(lengths[r]):
            y[r, j] = x[r, j] - high - torch.log(s)
    return y


@weft.kernel
def mean_taken_away(x):
    n, m = x.shape
    y = torch.empty_like(x)
    s = 0.0
    for i in range(n):
        for j in range(m):
            s += x[i, j]
    mean = s / (n * m)
    for i in range(n):
        for j in range(m):
            y[i, j] = x[i, j] - mean
    return y


@weft.kernel
def masked_sum(x, lengths):
    n, m = x.shape
    y = torch.empty(n)
    for r in range(n):
        s = 1.0
        for j in range(lengths[r]):
            if x[r, j] > 0:
                s += x[r, j]
        y[r] = s
    return y


@weft.kernel
def triangle_sums(x):
    n, m = x.shape
    y = torch.empty(2)
    s, p = 0.0, 1.0
    for i in range(n):
        for j in range(min(i + 1, m)):
            s += x[i, j]
            p = p * (1.0 + 0.001 * x[i, j])
    y[0] = s
    y[1] = p
    return y


@weft.kernel
def counts(x, low: int):
    """How many are low, the bits of all, whether any is the largest, all together."""
    n = len(x)
    y = torch.zeros(4, dtype=torch.int64)
    few, bits, any_high, least = 0, 0, False, 1000000
    for i in range(n):
        if x[i] < low:
            few += 1
        bits = bits ^ int(x[i])
        any_high = any_high or x[i] > 120
        least = min(least, int(x[i]))
    y[0] = few
    y[1] = bits
    y[2] = int(any_high)
    y[3] = least
    return y


@weft.kernel
def in_place(x):
    """Each row less its own mean, where it lies."""
    n, m = x.shape
    for r in range(n):
        s = 0.0
        for j in range(m):
            s += x[r, j]
        for j in range(m):
            x[r, j] = x[r, j] - s / m


@weft.kernel
def gathered(x, places):
    y = torch.empty(1)
    s = 0.0
    for i in range(len(places)):
        s += x[places[i]]
    y[0] = s
    return y


@weft.kernel
def norms_of_chosen(x, places, weight):
    """Rows that the data choose have only a weight beside them, which is the same for all."""
    rows, length = len(places), x.shape[1]
    y = torch.empty(rows, length)
    for r in range(rows):
        squares = 0.0
        for l in range(length):
            squares += x[places[r], l] * x[places[r], l]
        for l in range(length):
            y[r, l] = x[places[r], l] * torch.rsqrt(squares / length + 1e-6) * weight[l]
    return y


@weft.kernel
def least_and_largest(x):
    """NaN are dropped, as Python's min and max drop what they do not start with."""
    y = torch.empty(2)
    low, high = math.inf, -math.inf
    for i in range(len(x)):
        low = min(low, x[i])
        high = max(high, x[i])
    y[0] = low
    y[1] = high
    return y


@weft.kernel
def shifted(x):
    """A fold whose points begin below 0."""
    n, m = x.shape
    y = torch.empty(n)
    for i in range(n):
        s = 0.0
        for k in range(-3, m - 3):
            s += x[i, k + 3] * k
        y[i] = s
    return y


@weft.kernel
def column_norms(x, c):
    """Two folds, one of which needs the other; a factor of each column."""
    n, m = x.shape
    y = torch.empty(m)
    for j in range(m):
        s = 1.0
        for i in range(n):
            s += x[i, j] * c[j]
        mean = s / n
        v = 0.0
        for i in range(n):
            v += (x[i, j] - mean) * (x[i, j] - mean)
        y[j] = v * c[j]
    return y


def _with_nan(n: int) -> Tensor:
    x = _random(n)
    x[::7] = math.nan
    x[3], x[5] = math.inf, -math.inf
    return x


def _few(*shape: int) -> Tensor:
    """Few values, so that many are equal; NaN and infinities among them."""
    values = torch.tensor([0.0, 1.0, 2.0, -1.0, math.nan, -math.inf])
    return values[_whole(6, *shape)]


def _special(n: int, m: int) -> Tensor:
    """Rows without a finite largest element, with one that comes late, with infinities and NaN."""
    x = 30 * _random(n, m)
    x[0] = -math.inf
    x[1, : m - 1] = -math.inf
    x[2, m // 2] = math.inf
    x[3, 5::7] = -math.inf
    x[4, 3] = math.nan
    x[5], x[5, m // 3] = -math.inf, math.nan
    x[6] = -torch.finfo(x.dtype).max
    x[7] = torch.linspace(-1e4, 1e4, m)
    return x


@weft.kernel
def grouped_norm(x, weight, bias):
    """Rows of two axes, of which one alone tells a weight."""
    n, channels, pixels = x.shape
    y = torch.empty_like(x)
    for i in range(n):
        s = 0.0
        for c in range(channels):
            for p in range(pixels):
                s += x[i, c, p]
        mean = s / (channels * pixels)
        v = 0.0
        for c in range(channels):
            for p in range(pixels):
                v += (x[i, c, p] - mean) * (x[i, c, p] - mean)
        for c in range(channels):
            for p in range(pixels):
                y[i, c, p] = (x[i, c, p] - mean) * weight[c] / torch.sqrt(v + 1e-5) + bias[i, c]
    return y


@weft.kernel
def placed_softmax(x, a, b, where):
    """Rows of three axes, and what one or two of them tell: in every sweep, as numbers, and as a condition."""
    n, m, k, l = x.shape
    y = torch.zeros_like(x)
    for r in range(n):
        top = -math.inf
        for i in range(m):
            for j in range(k):
                for d in range(l):
                    top = max(top, x[r, i, j, d] + a[d])
        s = 0.0
        for i in range(m):
            for j in range(k):
                for d in range(l):
                    s += torch.exp(x[r, i, j, d] + a[d] - top) * b[i, j]
        for i in range(m):
            for j in range(k):
                for d in range(l):
                    if where[j] > 0:
                        y[r, i, j, d] = torch.exp(x[r, i, j, d] + a[d] - top) / s + j - i
    return y


def _random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def _whole(high: int, *shape: int) -> Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(high))


# Kernels, and arguments of several sizes: too few for teams, rows for each, and few that blocks share.
@weft.kernel
def norm_of_heads(x, weight, bias):
    """Rows of several axes, whose weights are the same for all."""
    batch, heads, length = x.shape
    y = torch.empty_like(x)
    for b in range(batch):
        for h in range(heads):
            squares = 0.0
            for l in range(length):
                squares += x[b, h, l] * x[b, h, l]
            scale = torch.rsqrt(squares / length + 1e-6)
            for l in range(length):
                y[b, h, l] = x[b, h, l] * scale * weight[l] + bias[l]
    return y


CASES: dict[str, tuple[Any, tuple[Callable[[], tuple[Any, ...]], ...]]] = {
    "norms_of_chosen": (
        norms_of_chosen,
        (lambda: (_random(7, 64), torch.tensor([6, 0, 3]), _random(64)),),
    ),
    "total": (
        total,
        (
            lambda: (_random(3, 5),),
            lambda: (_random(130, 301),),
            lambda: (_random(64, 320),),
            lambda: (_random(20000, 3),),
            lambda: (_random(0, 4),),
        ),
    ),
    "total_of_three": (
        total_of_three,
        (lambda: (_random(7, 30, 41).double(),), lambda: (_random(300, 4, 5).double(),)),
    ),
    "column_sums": (
        column_sums,
        (
            lambda: (_random(300, 40),),
            lambda: (_random(5000, 3),),
            lambda: (_random(64, 300),),
            lambda: (_random(200, 72).bfloat16(),),
        ),
    ),
    "middle_maximum": (
        middle_maximum,
        (lambda: (_random(3, 200, 17),), lambda: (_random(2, 4000, 5),), lambda: (_random(40, 64, 1),)),
    ),
    "cross_entropy": (
        cross_entropy,
        (
            lambda: (_random(5, 700), _whole(700, 5)),
            lambda: (_random(2, 9000), _whole(9000, 2)),
            lambda: (_random(3000, 40), _whole(40, 3000)),
        ),
    ),
    "log_sum_exp": (
        log_sum_exp,
        (
            lambda: (_special(8, 3000),),
            lambda: (_special(9, 1401).bfloat16(),),
            lambda: (_special(8, 36000),),
            lambda: (_special(2000, 40),),
        ),
    ),
    "log_sum_exp_of_two": (
        log_sum_exp_of_two,
        (lambda: (_special(8, 3000).reshape(8, 30, 100),), lambda: (_special(9, 1407).bfloat16().reshape(9, 7, 201),)),
    ),
    "exponentials": (
        exponentials,
        (lambda: (_special(8, 2000).half(),), lambda: (_random(2, 9001),), lambda: (_random(3, 0),)),
    ),
    "softmin_mean": (
        softmin_mean,
        (
            lambda: (_random(3, 40, 72), _random(40)),
            lambda: (_random(2, 100, 99).double(), _random(100).double()),
            lambda: (_random(300, 7, 16).bfloat16(), _random(7)),
        ),
    ),
    "standardised": (
        standardised,
        (
            lambda: (_random(3, 100, 96), _random(3, 96), _whole(96, 100)),
            lambda: (_random(2, 3, 1024).bfloat16(), _random(2, 1024), _whole(1024, 3)),
            lambda: (_random(2, 200, 333).half(), _random(2, 333).half(), _whole(333, 200)),
            lambda: (_random(2, 2, 3000).double(), _random(2, 3000).double(), _whole(3000, 2)),
            lambda: (_random(0, 3, 40), _random(0, 40), _whole(40, 3)),
        ),
    ),
    "lower_triangle": (lower_triangle, (lambda: (_random(90, 90),), lambda: (_random(300, 200),))),
    "shares": (shares, (lambda: (_random(700),), lambda: (_random(1024).bfloat16(),), lambda: (_random(20000),))),
    "column_shares": (column_shares, (lambda: (_random(300, 40).bfloat16(),), lambda: (_random(300, 41),))),
    "largest_of_rows": (
        largest_of_rows,
        (
            lambda: (_special(8, 3000), _random(8, 3000)),
            lambda: (_few(9, 20000).bfloat16(), _random(9, 20000).bfloat16()),
            lambda: (_few(2000, 45), _random(2000, 45)),
            lambda: (torch.full((3, 50), -math.inf), _random(3, 50)),
        ),
    ),
    "largest_of_all": (
        largest_of_all,
        (lambda: (_few(7, 9),), lambda: (_few(200, 160),), lambda: (-_random(131, 77).abs(),), lambda: (_random(0, 5),)),
    ),
    "last_least_of_columns": (
        last_least_of_columns,
        (lambda: (_few(300, 40),), lambda: (_few(90, 600).bfloat16(),), lambda: (_random(5000, 3),)),
    ),
    "least_of_the_middle": (
        least_of_the_middle,
        (lambda: (_few(3, 200, 17).double(),), lambda: (_few(2, 4000, 5),), lambda: (_few(40, 64, 1),)),
    ),
    "first_above": (
        first_above,
        (lambda: (_random(8, 900), 2.5), lambda: (_random(2, 9000), 3.0), lambda: (_random(2000, 40), 1.0)),
    ),
    "below_the_largest": (
        below_the_largest,
        (lambda: (_few(8, 300),), lambda: (_random(5, 1024).half(),), lambda: (_few(2, 20000),)),
    ),
    "softmax_of_tensors": (softmax_of_tensors, (lambda: (_special(10, 9000).bfloat16(),), lambda: (_special(8, 20003),))),
    "log_softmax_of_some": (
        log_softmax_of_some,
        (lambda: (_special(8, 700), _whole(700, 8) * (torch.arange(8) != 3)), lambda: (_random(600, 70), _whole(70, 600))),
    ),
    "mean_taken_away": (mean_taken_away, (lambda: (_random(40, 50),), lambda: (_random(130, 100),))),
    "masked_sum": (
        masked_sum,
        (lambda: (_random(6, 400), _whole(400, 6)), lambda: (_random(2000, 64), _whole(65, 2000))),
    ),
    "triangle_sums": (triangle_sums, (lambda: (_random(90, 70),), lambda: (_random(200, 150),))),
    "counts": (
        counts,
        (lambda: (_whole(127, 900).to(torch.int8), 5), lambda: (_whole(100, 20000).to(torch.int8), 7)),
    ),
    "in_place": (
        in_place,
        (
            lambda: (_random(5, 300),),
            lambda: (_random(2, 9000),),
            lambda: (_random(70, 12),),
            lambda: (_random(33, 31).half(),),
        ),
    ),
    "least_and_largest": (
        least_and_largest,
        (lambda: (_with_nan(600),), lambda: (_with_nan(9000),), lambda: (_random(0),)),
    ),
    "column_norms": (
        column_norms,
        (
            lambda: (_random(300, 40).bfloat16(), _random(40)),
            lambda: (_random(300, 41), _random(41)),
            lambda: (_random(40, 36).half(), _random(36)),
            lambda: (_random(1200, 8), _random(8)),
        ),
    ),
    "grouped_norm": (
        grouped_norm,
        (
            lambda: (_random(9, 5, 7), _random(5), _random(9, 5)),
            lambda: (_random(300, 3, 37), _random(3), _random(300, 3)),
            lambda: (_random(40, 6, 64).bfloat16(), _random(6).bfloat16(), _random(40, 6)),
            lambda: (_random(40, 10, 12).half(), _random(10), _random(40, 10)),
            lambda: (_random(3, 70, 301), _random(70), _random(3, 70)),
            lambda: (_random(7, 40, 1), _random(40), _random(7, 40)),
            lambda: (_random(9, 7, 5).transpose(1, 2), _random(5), _random(9, 5)),
        ),
    ),
    "placed_softmax": (
        placed_softmax,
        (
            lambda: (_random(9, 3, 4, 6), _random(6), _random(3, 4), _random(4)),
            lambda: (_random(40, 2, 3, 16).bfloat16(), _random(16), _random(2, 3), _random(3)),
        ),
    ),
    "shifted": (shifted, (lambda: (_random(3, 50),), lambda: (_random(2, 9000),))),
    "gathered": (
        gathered,
        (lambda: (_random(50), _whole(50, 700)), lambda: (_random(500), _whole(500, 9000))),
    ),
}
