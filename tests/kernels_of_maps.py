"""Programs that carry nothing: pointwise, broadcast, transposed, gathered, shifted, bounded by one another and by data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import weft


@weft.kernel
def add(x, z):
    return x + z


@weft.kernel
def biased(x, b, r):
    n, m = x.shape
    y = torch.empty_like(x)
    for i in range(n):
        for j in range(m):
            t = x[i, j] + b[j]
            y[i, j] = torch.tanh(t) + r[i, j]
    return y


@weft.kernel
def of_rows(x, s):
    n, m = x.shape
    y = torch.empty_like(x)
    for i in range(n):
        scale = 1 / (1 + s[i] * s[i])
        for j in range(m):
            y[i, j] = x[i, j] * scale
    return y


@weft.kernel
def transposed(x, z):
    n, m = x.shape
    y = torch.empty_like(x)
    for i in range(n):
        for j in range(m):
            y[i, j] = x[i, j] + z[j, i]
    return y


@weft.kernel
def embedding(w, places):
    y = torch.empty(places.shape[0], w.shape[1], dtype=w.dtype)
    for i in range(places.shape[0]):
        for d in range(w.shape[1]):
            y[i, d] = w[places[i], d]
    return y


@weft.kernel
def picked(x, places):
    """A gather along the fastest axis."""
    n, m = places.shape
    y = torch.empty(n, m, dtype=x.dtype)
    for i in range(n):
        for j in range(m):
            y[i, j] = x[i, places[i, j]]
    return y


@weft.kernel
def five_points(x):
    n, m = x.shape
    y = torch.zeros_like(x)
    for i in range(1, n - 1):
        for j in range(1, m - 1):
            y[i, j] = 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]) - x[i, j]
    return y


@weft.kernel
def inside(x):
    n, m = x.shape
    y = torch.zeros_like(x)
    for i in range(1, n - 1):
        for j in range(1, m - 1):
            y[i, j] = x[i, j] * 2
    return y


@weft.kernel
def edged(x):
    """Neighbours where there are some."""
    n, m = x.shape
    y = torch.empty_like(x)
    for i in range(n):
        for j in range(m):
            above = x[i - 1, j] if i >= 1 else 0.0
            right = x[i, j + 1] if j + 1 < m else 0.0
            y[i, j] = x[i, j] - above - right
    return y


@weft.kernel
def in_place(x, s):
    n, m = x.shape
    for i in range(n):
        for j in range(m):
            if x[i, j] > 0:
                x[i, j] = x[i, j] * s[j]


@weft.kernel
def two_results(x):
    n, m = x.shape
    y = torch.empty_like(x)
    z = torch.empty(m, n)
    for i in range(n):
        for j in range(m):
            y[i, j] = -x[i, j]
            z[j, i] = x[i, j] * 2
    return y, z


@weft.kernel
def reversed_rows(x):
    n, m = x.shape
    y = torch.empty_like(x)
    for i in range(n):
        for j in range(m):
            y[i, j] = x[i, m - 1 - j]
    return y


@weft.kernel
def heads_first(x):
    b, s, h, d = x.shape
    y = torch.empty(b, h, s, d, dtype=x.dtype)
    for i in range(b):
        for j in range(h):
            for k in range(s):
                for c in range(d):
                    y[i, j, k, c] = x[i, k, j, c] * (j + 1)
    return y


@weft.kernel
def up_to_lengths(x, lengths):
    n, m = x.shape
    y = torch.zeros_like(x)
    for i in range(n):
        for j in range(lengths[i]):
            y[i, j] = x[i, j] * 2
    return y


@weft.kernel
def triangle(x, s):
    n, m = x.shape
    y = torch.zeros_like(x)
    for i in range(n):
        for j in range(i, min(m, 2 * i + 1)):
            y[i, j] = x[i, j] * s[i]
    return y


@weft.kernel
def every_other(x):
    n = x.shape[0] // 2
    y = torch.zeros_like(x)
    for i in range(n):
        y[2 * i] = x[2 * i + 1]
    return y


@weft.kernel
def where_kept(x, keep):
    """Rows that a condition of their own lets through."""
    n, m = x.shape
    y = torch.zeros_like(x)
    for i in range(n):
        for j in range(m):
            if keep[i] > 0:
                y[i, j] = 2 * x[i, j]
    return y


@weft.kernel
def paged(pages, table):
    """Rows that a table of two axes chooses, moved as they are."""
    n, m = table.shape
    k, l = pages.shape[1], pages.shape[2]
    y = torch.empty(n, m, k, l, dtype=pages.dtype)
    for i in range(n):
        for j in range(m):
            for a in range(k):
                for b in range(l):
                    y[i, j, a, b] = pages[table[i, j], a, b]
    return y


@weft.kernel
def looked_up(w, first, second):
    """Elements that are chosen twice, by data and by where they stand."""
    n, m = first.shape
    y = torch.empty(n, m, dtype=w.dtype)
    z = torch.empty(n, m, dtype=w.dtype)
    for i in range(n):
        for j in range(m):
            y[i, j] = w[second[first[i, j]]]
            z[i, j] = w[(first[i, j] + j) % len(w)]
    return y, z


def _random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def _whole(high: int, *shape: int, low: int = 0) -> Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(high))


def _unaligned(n: int, m: int) -> Tensor:
    return _random(n, m + 3)[:, 3:]


Makes = tuple[Callable[[], tuple[Any, ...]], ...]


@weft.kernel
def ahead(x, n: int):
    """On conditions: in packets of which the last has more points than there are, and from another point than the first on."""
    y = torch.empty(n, dtype=x.dtype)
    z = torch.empty(n, dtype=x.dtype)
    for j in range(n):
        y[j] = x[j + 8] if j >= 8 else 0.0
    for j in range(2, n + 2):
        z[j - 2] = x[j - 2] if j >= 4 else 0.0
    return y, z


@weft.kernel
def rotated(x, cosine, sine):
    """Each half of a row beside the other."""
    n, m = x.shape
    half = m // 2
    y = torch.empty_like(x)
    for i in range(n):
        for j in range(m):
            other = -x[i, j + half] if j < half else x[i, j - half]
            y[i, j] = x[i, j] * cosine[j] + other * sine[j]
    return y


@weft.kernel
def joined(a, b, c):
    """Beside each other, and above each other."""
    n, m = a.shape
    k = b.shape[1]
    y = torch.empty(n + c.shape[0], m + k, dtype=a.dtype)
    for i in range(n + c.shape[0]):
        for j in range(m + k):
            if i >= n:
                y[i, j] = c[i - n, j]
            else:
                y[i, j] = a[i, j] if j < m else b[i, j - m]
    return y


@weft.kernel
def stacked_gradients(a, b, c):
    """A gradient of what chooses one of three: of a row's three, at most one is anything else than 0."""
    n, m = a.shape
    y = torch.empty(n, 3, m, dtype=a.dtype)
    for i in range(n):
        for k in range(3):
            for j in range(m):
                of_a = a[i, j] if k == 0 else 0.0
                of_b = b[i, j] if k == 1 else 0.0
                of_c = c[m - 1 - j, i] if not (k != 2 or j < 2) else 0.0
                y[i, k, j] = of_a + of_b + of_c
    return y


@weft.kernel
def padded(x, chosen):
    """With what lies around it, the first of two rows only where chosen says so."""
    n, m = x.shape
    y = torch.zeros(n + 2, m + 4, dtype=x.dtype)
    sums = torch.zeros(n, m, dtype=x.dtype)
    for i in range(n + 2):
        for j in range(m + 4):
            if i >= 1 and i <= n and j >= 3 and j < m + 3:
                y[i, j] = x[i - 1, j - 3]
    for i in range(n):
        for j in range(m):
            before = x[i, j - 1] if j > 0 else x[i, j]
            after = x[i, j + 1] if not (j + 1 == m or j + 1 > m) else before
            above = x[i - 1, j] if chosen[i] > 0 and i > 0 else after
            sums[i, j] = before + after + above
    return y, sums


CASES: dict[str, tuple[Any, Makes]] = {
    "add": (
        add,
        (
            lambda: (_random(7, 33), _random(7, 33)),
            lambda: (_random(3, 4, 5, 6).half(), _random(3, 4, 5, 6).transpose(1, 2).contiguous().transpose(1, 2).half()),
            lambda: (_random(2, 5, 64), _random(64).expand(2, 5, 64)),
            lambda: (_unaligned(9, 130), _random(9, 130).bfloat16()),
            lambda: (_random(1, 70), _random(1, 70)),
            lambda: (_random(0, 3), _random(0, 3)),
            lambda: (_random(2, 4200)[:, ::2], _random(2, 2100)),
            lambda: (_whole(100, 5, 9).to(torch.uint8), _whole(100, 5, 9)),
            lambda: (_random(2, 40, 3, 33), _random(2, 33, 3, 40).transpose(1, 3)),
            lambda: (_random(70, 66) > 0, _random(66, 70).T > 0),
            lambda: (_random(9, 37).bfloat16(), _unaligned(9, 37).bfloat16()),
            lambda: (_random(3, 5, 13).half(), _random(5, 1).expand(3, 5, 13)),
            lambda: (_whole(100, 7, 21).to(torch.uint8), _whole(100, 21).double().expand(7, 21)),
            lambda: (_random(2, 300).bfloat16()[:, 1:], _random(2, 305).bfloat16()[:, 3:-3]),
        ),
    ),
    "biased": (
        biased,
        (
            lambda: (_random(20, 64).bfloat16(), _random(64), _random(20, 64).bfloat16()),
            lambda: (_random(5, 77), _random(77), _random(5, 77)),
            lambda: (_random(3, 2100).half(), _random(2100).half(), _unaligned(3, 2100)),
            lambda: (_random(4, 1), _random(1), _random(4, 1)),
        ),
    ),
    "of_rows": (of_rows, (lambda: (_random(9, 40), _random(9)), lambda: (_random(9, 4100).bfloat16(), _random(9)))),
    "ahead": (ahead, (lambda: (_random(26), 18),)),
    "rotated": (
        rotated,
        (
            lambda: (_random(5, 64).bfloat16(), _random(64).bfloat16(), _random(64)),
            lambda: (_random(4, 52), _random(52), _random(52)),
            lambda: (_random(3, 37).half(), _random(37).half(), _random(37)),
            lambda: (_random(6, 130).bfloat16()[:, 1:], _random(129), _random(129)),
            lambda: (_random(40, 34).T, _random(40), _random(40)),
            lambda: (_random(2, 1), _random(1), _random(1)),
        ),
    ),
    "joined": (
        joined,
        (
            lambda: (_random(3, 64).bfloat16(), _random(3, 32).bfloat16(), _random(2, 96).bfloat16()),
            lambda: (_random(3, 61), _random(3, 5), _random(2, 66)),
            lambda: (_whole(9, 4, 33) > 4, _whole(9, 4, 40) > 4, _whole(9, 1, 73) > 4),
            lambda: (_random(3, 8).double(), _random(3, 0).double(), _random(0, 8).double()),
            lambda: (_random(64, 70).T, _random(70, 66), _random(130, 2).T),
        ),
    ),
    "stacked_gradients": (
        stacked_gradients,
        (
            lambda: (_random(3, 64).bfloat16(), _random(3, 64).bfloat16(), _random(64, 3).bfloat16()),
            lambda: (_random(40, 37), _random(40, 37), _random(37, 40)),
        ),
    ),
    "padded": (
        padded,
        (
            lambda: (_random(5, 64).bfloat16(), _whole(3, 5) - 1),
            lambda: (_random(4, 37), _whole(3, 4) - 1),
            lambda: (_random(70, 41).T, _whole(3, 41) - 1),
        ),
    ),
    "paged": (
        paged,
        (
            lambda: (_random(9, 4, 40).bfloat16(), _whole(9, 5, 7, low=-9)),
            lambda: (_random(9, 3, 35).half(), _whole(9, 5, 7)),
            lambda: (_random(9, 3, 37).half()[:, :, 1:-1], _whole(9, 5, 7)),
            lambda: (_random(4, 3, 1001), _whole(4, 7, 5).T),
            lambda: (_random(40, 1, 6).double(), _whole(40, 50, 3)),
            lambda: (_random(40, 2, 700) > 0, _whole(40, 5, 3)),
        ),
    ),
    "looked_up": (
        looked_up,
        (
            lambda: (_random(30), _whole(50, 20, 33), _whole(30, 50)),
            lambda: (_random(30).half(), _whole(50, 20, 32), _whole(30, 50).int()),
        ),
    ),
    "where_kept": (
        where_kept,
        (
            lambda: (_random(20, 64).bfloat16(), _random(20)),
            lambda: (_random(9, 35), _random(9)),
            lambda: (_unaligned(3, 2100).half(), torch.tensor([-1, 2, 0])),
        ),
    ),
    "transposed": (
        transposed,
        (
            lambda: (_random(70, 130), _random(130, 70)),
            lambda: (_random(64, 128).half(), _random(128, 64).half()),
            lambda: (_random(33, 50).double(), _unaligned(50, 33).double()),
            lambda: (_random(5, 50), _random(50, 5)),
            lambda: (_whole(100, 40, 67).to(torch.int8), _whole(100, 67, 40).to(torch.int16)),
        ),
    ),
    "embedding": (
        embedding,
        (
            lambda: (_random(9, 40).bfloat16(), _whole(9, 30, low=-9)),
            lambda: (_random(9, 2100), _whole(9, 5)),
            lambda: (_random(9, 35).half(), _whole(9, 5).int()),
            lambda: (_random(0, 35), _whole(9, 0)),
        ),
    ),
    "picked": (picked, (lambda: (_random(5, 60), _whole(60, 5, 33, low=-60)),)),
    "five_points": (
        five_points,
        (
            lambda: (_random(20, 40),),
            lambda: (_random(9, 33).bfloat16(),),
            lambda: (_random(2, 9),),
            lambda: (_random(3, 2101),),
        ),
    ),
    "inside": (inside, (lambda: (_random(9, 64),), lambda: (_random(5, 2101).half(),), lambda: (_random(3, 3),))),
    "edged": (edged, (lambda: (_random(20, 40),), lambda: (_random(4, 33).half(),))),
    "in_place": (in_place, (lambda: (_random(20, 40), _random(40)), lambda: (_random(4, 33).half(), _random(33)))),
    "two_results": (two_results, (lambda: (_random(40, 72),), lambda: (_random(4, 33),))),
    "reversed_rows": (reversed_rows, (lambda: (_random(4, 72),),)),
    "heads_first": (heads_first, (lambda: (_random(2, 7, 3, 64).bfloat16(),), lambda: (_random(2, 3, 5, 7),))),
    "up_to_lengths": (
        up_to_lengths,
        (lambda: (_random(9, 300), _whole(300, 9)), lambda: (_random(3, 5000).half(), _whole(5001, 3))),
    ),
    "triangle": (triangle, (lambda: (_random(40, 60), _random(40)), lambda: (_random(9, 5).half(), _random(9)))),
    "every_other": (every_other, (lambda: (_random(4099),), lambda: (_random(20).bfloat16(),))),
}
