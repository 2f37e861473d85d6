# ruff: noqa: B007 - loop variables have their names of the suite, used or not
"""The loops of TSVC, the test suite for vectorizing compilers (Callahan, Dongarra and Levine 1988; in C by Maleki et al.
2011), restated in weft's language: one function a loop, under its name there.

The loop that repeats each for timing is dropped, pointers into an array are offsets of its subscripts, a branch by goto is
an if, a step that is a parameter is a counted loop, and what a loop reduces to is stored in `out`. Distances that were
chosen for long arrays (63 and 64 elements) are 3 and 4, so that short ones show them.
"""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable
from typing import Any

from tests.suites.case import Arrays, Case, Number, near_zero, subscripts, values

# ---------------------------------------------------------------- linear dependence


def s000(a, b):
    for i in range(a.shape[0]):
        a[i] = b[i] + 1.0


def s111(a, b):
    for i in range(1, a.shape[0], 2):
        a[i] = a[i - 1] + b[i]


def s1111(a, b, c, d):
    for i in range(a.shape[0] // 2):
        a[2 * i] = c[i] * b[i] + d[i] * b[i] + c[i] * c[i] + d[i] * b[i] + d[i] * c[i]


def s112(a, b):
    for i in range(a.shape[0] - 2, -1, -1):
        a[i + 1] = a[i] + b[i]


def s1112(a, b):
    for i in range(a.shape[0] - 1, -1, -1):
        a[i] = b[i] + 1.0


def s113(a, b):
    for i in range(1, a.shape[0]):
        a[i] = a[0] + b[i]


def s1113(a, b):
    n = a.shape[0]
    for i in range(n):
        a[i] = a[n // 2] + b[i]


def s114(aa, bb):
    for i in range(aa.shape[0]):
        for j in range(i):
            aa[i, j] = aa[j, i] + bb[i, j]


def s115(a, aa):
    m = aa.shape[0]
    for j in range(m):
        for i in range(j + 1, m):
            a[i] -= aa[j, i] * a[j]


def s1115(aa, bb, cc):
    m = aa.shape[0]
    for i in range(m):
        for j in range(m):
            aa[i, j] = aa[i, j] * cc[j, i] + bb[i, j]


def s116(a):
    for i in range(0, a.shape[0] - 5, 5):
        a[i] = a[i + 1] * a[i]
        a[i + 1] = a[i + 2] * a[i + 1]
        a[i + 2] = a[i + 3] * a[i + 2]
        a[i + 3] = a[i + 4] * a[i + 3]
        a[i + 4] = a[i + 5] * a[i + 4]


def s118(a, bb):
    for i in range(1, bb.shape[0]):
        for j in range(i):
            a[i] += bb[j, i] * a[i - j - 1]


def s119(aa, bb):
    m = aa.shape[0]
    for i in range(1, m):
        for j in range(1, m):
            aa[i, j] = aa[i - 1, j - 1] + bb[i, j]


def s1119(aa, bb):
    m = aa.shape[0]
    for i in range(1, m):
        for j in range(m):
            aa[i, j] = aa[i - 1, j] + bb[i, j]


# ---------------------------------------------------------------- induction variables


def s121(a, b):
    for i in range(a.shape[0] - 1):
        j = i + 1
        a[i] = a[j] + b[i]


def s122(a, b, first: int, step: int):
    n = a.shape[0]
    j = 1
    k = 0
    for t in range((n - first + step) // step):
        k += j
        a[first - 1 + t * step] += b[n - k]


def s123(a, b, c, d, e):
    j = -1
    for i in range(a.shape[0] // 2):
        j += 1
        a[j] = b[i] + d[i] * e[i]
        if c[i] > 0.0:
            j += 1
            a[j] = c[i] + d[i] * e[i]


def s124(a, b, c, d, e):
    j = -1
    for i in range(a.shape[0]):
        if b[i] > 0.0:
            j += 1
            a[j] = b[i] + d[i] * e[i]
        else:
            j += 1
            a[j] = c[i] + d[i] * e[i]


def s125(flat, aa, bb, cc):
    k = -1
    for i in range(aa.shape[0]):
        for j in range(aa.shape[1]):
            k += 1
            flat[k] = aa[i, j] + bb[i, j] * cc[i, j]


def s126(flat, bb, cc):
    m = bb.shape[0]
    k = 1
    for i in range(m):
        for j in range(1, m):
            bb[j, i] = bb[j - 1, i] + flat[k - 1] * cc[j, i]
            k += 1
        k += 1


def s127(a, b, c, d, e):
    j = -1
    for i in range(a.shape[0] // 2):
        j += 1
        a[j] = b[i] + c[i] * d[i]
        j += 1
        a[j] = b[i] + d[i] * e[i]


def s128(a, b, c, d):
    j = -1
    for i in range(a.shape[0] // 2):
        k = j + 1
        a[i] = b[k] - d[i]
        j = k + 1
        b[k] = a[i] + c[k]


# ---------------------------------------------------------------- values known at compile time


def s131(a, b):
    m = 1
    for i in range(a.shape[0] - 1):
        a[i] = a[i + m] + b[i]


def s132(aa, b, c):
    m = 0
    j = m
    k = m + 1
    for i in range(1, aa.shape[1]):
        aa[j, i] = aa[k, i - 1] + b[i] * c[1]


def s141(flat, bb):
    m = bb.shape[0]
    for i in range(m):
        k = (i + 1) * i // 2 + i
        for j in range(i, m):
            flat[k] += bb[j, i]
            k += j + 1


def _add_ahead(a, b, m):
    for i in range(a.shape[0] - 1):
        a[i] = a[i + m] + b[i]


def s151(a, b):
    _add_ahead(a, b, 1)


def _add_product(a, b, c, i):
    a[i] += b[i] * c[i]


def s152(a, b, c, d, e):
    for i in range(a.shape[0]):
        b[i] = d[i] * e[i]
        _add_product(a, b, c, i)


# ---------------------------------------------------------------- control flow and symbols


def s161(a, b, c, d, e):
    for i in range(a.shape[0] - 1):
        if b[i] < 0.0:
            c[i + 1] = a[i] + d[i] * d[i]
        else:
            a[i] = c[i] + d[i] * e[i]


def s1161(a, b, c, d, e):
    for i in range(a.shape[0] - 1):
        if c[i] < 0.0:
            b[i] = a[i] + d[i] * d[i]
        else:
            a[i] = c[i] + d[i] * e[i]


def s162(a, b, c, k: int):
    if k > 0:
        for i in range(a.shape[0] - k):
            a[i] = a[i + k] + b[i] * c[i]


def s171(a, b, inc: int):
    for i in range(b.shape[0] // 2):
        a[i * inc] += b[i]


def s172(a, b, first: int, step: int):
    for t in range((a.shape[0] - first + step) // step):
        a[first - 1 + t * step] += b[first - 1 + t * step]


def s173(a, b):
    k = a.shape[0] // 2
    for i in range(k):
        a[i + k] = a[i] + b[i]


def s174(a, b, count: int):
    for i in range(count):
        a[i + count] = a[i] + b[i]


def s175(a, b, inc: int):
    for t in range((a.shape[0] - 1) // inc):
        a[t * inc] = a[t * inc + inc] + b[t * inc]


def s176(a, b, c):
    m = a.shape[0] // 2
    for j in range(m):
        for i in range(m):
            a[i] += b[i + m - j - 1] * c[j]


# ---------------------------------------------------------------- statement order


def s211(a, b, c, d, e):
    for i in range(1, a.shape[0] - 1):
        a[i] = b[i - 1] + c[i] * d[i]
        b[i] = b[i + 1] - e[i] * d[i]


def s212(a, b, c, d):
    for i in range(a.shape[0] - 1):
        a[i] *= c[i]
        b[i] += a[i + 1] * d[i]


def s1213(a, b, c, d):
    for i in range(1, a.shape[0] - 1):
        a[i] = b[i - 1] + c[i]
        b[i] = a[i + 1] * d[i]


# ---------------------------------------------------------------- distribution and recurrences


def s221(a, b, c, d):
    for i in range(1, a.shape[0]):
        a[i] += c[i] * d[i]
        b[i] = b[i - 1] + a[i] + d[i]


def s1221(a, b):
    for i in range(4, a.shape[0]):
        b[i] = b[i - 4] + a[i]


def s222(a, b, c, e):
    for i in range(1, a.shape[0]):
        a[i] += b[i] * c[i]
        e[i] = e[i - 1] * e[i - 1]
        a[i] -= b[i] * c[i]


# ---------------------------------------------------------------- interchange


def s231(aa, bb):
    for i in range(aa.shape[1]):
        for j in range(1, aa.shape[0]):
            aa[j, i] = aa[j - 1, i] + bb[j, i]


def s232(aa, bb):
    for j in range(1, aa.shape[0]):
        for i in range(1, j + 1):
            aa[j, i] = aa[j, i - 1] * aa[j, i - 1] + bb[j, i]


def s1232(aa, bb, cc):
    for j in range(aa.shape[1]):
        for i in range(j, aa.shape[0]):
            aa[i, j] = bb[i, j] + cc[i, j]


def s233(aa, bb, cc):
    m = aa.shape[0]
    for i in range(1, m):
        for j in range(1, m):
            aa[j, i] = aa[j - 1, i] + cc[j, i]
        for k in range(1, m):
            bb[k, i] = bb[k, i - 1] + cc[k, i]


def s2233(aa, bb, cc):
    m = aa.shape[0]
    for i in range(1, m):
        for j in range(1, m):
            aa[j, i] = aa[j - 1, i] + cc[j, i]
        for k in range(1, m):
            bb[i, k] = bb[i - 1, k] + cc[i, k]


def s235(a, b, c, aa, bb):
    for i in range(aa.shape[1]):
        a[i] += b[i] * c[i]
        for j in range(1, aa.shape[0]):
            aa[j, i] = aa[j - 1, i] + bb[j, i] * a[i]


# ---------------------------------------------------------------- node splitting


def s241(a, b, c, d):
    for i in range(a.shape[0] - 1):
        a[i] = b[i] * c[i] * d[i]
        b[i] = a[i] * a[i + 1] * d[i]


def s242(a, b, c, d, s1: float, s2: float):
    for i in range(1, a.shape[0]):
        a[i] = a[i - 1] + s1 + s2 + b[i] + c[i] + d[i]


def s243(a, b, c, d, e):
    for i in range(a.shape[0] - 1):
        a[i] = b[i] + c[i] * d[i]
        b[i] = a[i] + d[i] * e[i]
        a[i] = b[i] + a[i + 1] * d[i]


def s244(a, b, c, d):
    for i in range(a.shape[0] - 1):
        a[i] = b[i] + c[i] * d[i]
        b[i] = c[i] + b[i]
        a[i + 1] = b[i] + a[i + 1] * d[i]


def s1244(a, b, c, d):
    for i in range(a.shape[0] - 1):
        a[i] = b[i] + c[i] * c[i] + b[i] * b[i] + c[i]
        d[i] = a[i] + a[i + 1]


def s2244(a, b, c, e):
    for i in range(a.shape[0] - 1):
        a[i + 1] = b[i] + e[i]
        a[i] = b[i] + c[i]


# ---------------------------------------------------------------- expansion of scalars and arrays


def s251(a, b, c, d):
    for i in range(a.shape[0]):
        s = b[i] + c[i] * d[i]
        a[i] = s * s


def s1251(a, b, c, d, e):
    for i in range(a.shape[0]):
        s = b[i] + c[i]
        b[i] = a[i] + d[i]
        a[i] = s * e[i]


def s2251(a, b, c, d, e):
    s = 0.0
    for i in range(a.shape[0]):
        a[i] = s * e[i]
        s = b[i] + c[i]
        b[i] = a[i] + d[i]


def s3251(a, b, c, d, e):
    for i in range(a.shape[0] - 1):
        a[i + 1] = b[i] + c[i]
        b[i] = c[i] * e[i]
        d[i] = a[i] * e[i]


def s252(a, b, c):
    t = 0.0
    for i in range(a.shape[0]):
        s = b[i] * c[i]
        a[i] = s + t
        t = s


def s253(a, b, c, d):
    for i in range(a.shape[0]):
        if a[i] > b[i]:
            s = a[i] - b[i] * d[i]
            c[i] += s
            a[i] = s


def s254(a, b):
    x = b[b.shape[0] - 1]
    for i in range(a.shape[0]):
        a[i] = (b[i] + x) * 0.5
        x = b[i]


def s255(a, b):
    x = b[b.shape[0] - 1]
    y = b[b.shape[0] - 2]
    for i in range(a.shape[0]):
        a[i] = (b[i] + x + y) * 0.333
        y = x
        x = b[i]


def s256(a, aa, bb, d):
    for i in range(aa.shape[1]):
        for j in range(1, aa.shape[0]):
            a[j] = 1.0 - a[j - 1]
            aa[j, i] = a[j] + bb[j, i] * d[j]


def s257(a, aa, bb):
    for i in range(1, aa.shape[1]):
        for j in range(aa.shape[0]):
            a[i] = aa[j, i] - a[i - 1]
            aa[j, i] = a[i] + bb[j, i]


def s258(a, b, c, d, e, aa):
    s = 0.0
    for i in range(aa.shape[1]):
        if a[i] > 0.0:
            s = d[i] * d[i]
        b[i] = s * c[i] + d[i]
        e[i] = (s + 1.0) * aa[0, i]


def s261(a, b, c, d):
    for i in range(1, a.shape[0]):
        t = a[i] + b[i]
        a[i] = t + c[i - 1]
        t = c[i] * d[i]
        c[i] = t


# ---------------------------------------------------------------- control flow


def s271(a, b, c):
    for i in range(a.shape[0]):
        if b[i] > 0.0:
            a[i] += b[i] * c[i]


def s272(a, b, c, d, e, t: int):
    for i in range(a.shape[0]):
        if e[i] >= t:
            a[i] += c[i] * d[i]
            b[i] += c[i] * c[i]


def s273(a, b, c, d, e):
    for i in range(a.shape[0]):
        a[i] += d[i] * e[i]
        if a[i] < 0.0:
            b[i] += d[i] * e[i]
        c[i] += a[i] * d[i]


def s274(a, b, c, d, e):
    for i in range(a.shape[0]):
        a[i] = c[i] + e[i] * d[i]
        if a[i] > 0.0:
            b[i] = a[i] + b[i]
        else:
            a[i] = d[i] * e[i]


def s275(aa, bb, cc):
    for i in range(aa.shape[1]):
        if aa[0, i] > 0.0:
            for j in range(1, aa.shape[0]):
                aa[j, i] = aa[j - 1, i] + bb[j, i] * cc[j, i]


def s2275(a, b, c, d, aa, bb, cc):
    for i in range(aa.shape[1]):
        for j in range(aa.shape[0]):
            aa[j, i] = aa[j, i] + bb[j, i] * cc[j, i]
        a[i] = b[i] + c[i] * d[i]


def s276(a, b, c, d):
    middle = a.shape[0] // 2
    for i in range(a.shape[0]):
        if i + 1 < middle:
            a[i] += b[i] * c[i]
        else:
            a[i] += b[i] * d[i]


def s277(a, b, c, d, e):
    for i in range(a.shape[0] - 1):
        if a[i] < 0.0:
            if b[i] < 0.0:
                a[i] += c[i] * d[i]
            b[i + 1] = c[i] + d[i] * e[i]


def s278(a, b, c, d, e):
    for i in range(a.shape[0]):
        if a[i] > 0.0:
            c[i] = -c[i] + d[i] * e[i]
        else:
            b[i] = -b[i] + d[i] * e[i]
        a[i] = b[i] + c[i] * d[i]


def s279(a, b, c, d, e):
    for i in range(a.shape[0]):
        if a[i] > 0.0:
            c[i] = -c[i] + e[i] * e[i]
        else:
            b[i] = -b[i] + d[i] * d[i]
            if b[i] > a[i]:
                c[i] += d[i] * e[i]
        a[i] = b[i] + c[i] * d[i]


def s1279(a, b, c, d, e):
    for i in range(a.shape[0]):
        if a[i] < 0.0:  # noqa: SIM102 - two branches, as in the suite
            if b[i] > a[i]:
                c[i] += d[i] * e[i]


def s2710(a, b, c, d, e, x: int):
    n = a.shape[0]
    for i in range(n):
        if a[i] > b[i]:
            a[i] += b[i] * d[i]
            if n > 10:
                c[i] += d[i] * d[i]
            else:
                c[i] = d[i] * e[i] + 1.0
        else:
            b[i] = a[i] + e[i] * e[i]
            if x > 0:
                c[i] = a[i] + d[i] * d[i]
            else:
                c[i] += e[i] * e[i]


def s2711(a, b, c):
    for i in range(a.shape[0]):
        if b[i] != 0.0:
            a[i] += b[i] * c[i]


def s2712(a, b, c):
    for i in range(a.shape[0]):
        if a[i] > b[i]:
            a[i] += b[i] * c[i]


# ---------------------------------------------------------------- crossing thresholds, peeling, diagonals, wavefronts


def s281(a, b, c):
    n = a.shape[0]
    for i in range(n):
        x = a[n - i - 1] + b[i] * c[i]
        a[i] = x - 1.0
        b[i] = x


def s1281(a, b, c, d, e):
    for i in range(a.shape[0]):
        x = b[i] * c[i] + a[i] * d[i] + e[i]
        a[i] = x - 1.0
        b[i] = x


def s291(a, b):
    before = a.shape[0] - 1
    for i in range(a.shape[0]):
        a[i] = (b[i] + b[before]) * 0.5
        before = i


def s292(a, b):
    before = a.shape[0] - 1
    earlier = a.shape[0] - 2
    for i in range(a.shape[0]):
        a[i] = (b[i] + b[before] + b[earlier]) * 0.333
        earlier = before
        before = i


def s293(a):
    for i in range(a.shape[0]):
        a[i] = a[0]


def s2101(aa, bb, cc):
    for i in range(aa.shape[0]):
        aa[i, i] += bb[i, i] * cc[i, i]


def s2102(aa):
    m = aa.shape[0]
    for i in range(m):
        for j in range(m):
            aa[j, i] = 0.0
        aa[i, i] = 1.0


def s2111(aa):
    m = aa.shape[0]
    for j in range(1, m):
        for i in range(1, m):
            aa[j, i] = (aa[j, i - 1] + aa[j - 1, i]) / 1.9


# ---------------------------------------------------------------- reductions


def s311(a, out):
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i]
    out[0] = total


def _four(a, first):
    total = 0.0
    for i in range(4):
        total += a[first + i]
    return total


def s31111(a, out):
    total = 0.0
    total += _four(a, 0)
    total += _four(a, 4)
    total += _four(a, 8)
    out[0] = total


def s312(a, out):
    product = 1.0
    for i in range(a.shape[0]):
        product *= a[i]
    out[0] = product


def s313(a, b, out):
    dot = 0.0
    for i in range(a.shape[0]):
        dot += a[i] * b[i]
    out[0] = dot


def s314(a, out):
    largest = a[0]
    for i in range(a.shape[0]):
        if a[i] > largest:
            largest = a[i]
    out[0] = largest


def s315(a, out):
    n = a.shape[0]
    for i in range(n):
        a[i] = (i * 7) % n
    largest = a[0]
    index = 0
    for j in range(n):
        if a[j] > largest:
            largest = a[j]
            index = j
    out[0] = largest + index


def s316(a, out):
    least = a[0]
    for i in range(1, a.shape[0]):
        if a[i] < least:
            least = a[i]
    out[0] = least


def s317(a, out):
    q = 1.0
    for i in range(a.shape[0] // 2):
        q *= 0.99
    out[0] = q


def s318(a, out, inc: int):
    k = 0
    index = 0
    largest = abs(a[0])
    k += inc
    for i in range(1, a.shape[0] // 2):
        if abs(a[k]) > largest:
            index = i
            largest = abs(a[k])
        k += inc
    out[0] = largest + index


def s319(a, b, c, d, e, out):
    total = 0.0
    for i in range(a.shape[0]):
        a[i] = c[i] + d[i]
        total += a[i]
        b[i] = c[i] + e[i]
        total += b[i]
    out[0] = total


def s3110(aa, out):
    largest = aa[0, 0]
    row = 0
    column = 0
    for i in range(aa.shape[0]):
        for j in range(aa.shape[1]):
            if aa[i, j] > largest:
                largest = aa[i, j]
                row = i
                column = j
    out[0] = largest + row + column


def s13110(aa, out):
    largest = aa[0, 0]
    row = 0
    column = 0
    for i in range(aa.shape[0]):
        for j in range(aa.shape[1]):
            if aa[i, j] > largest:
                largest = aa[i, j]
                row = i
                column = j
    out[0] = largest + row + 1 + column + 1


def s3111(a, out):
    total = 0.0
    for i in range(a.shape[0]):
        if a[i] > 0.0:
            total += a[i]
    out[0] = total


def s3112(a, b, out):
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i]
        b[i] = total
    out[0] = total


def s3113(a, out):
    largest = abs(a[0])
    for i in range(a.shape[0]):
        if abs(a[i]) > largest:
            largest = abs(a[i])
    out[0] = largest


# ---------------------------------------------------------------- recurrences


def s321(a, b):
    for i in range(1, a.shape[0]):
        a[i] += a[i - 1] * b[i]


def s322(a, b, c):
    for i in range(2, a.shape[0]):
        a[i] = a[i] + a[i - 1] * b[i] + a[i - 2] * c[i]


def s323(a, b, c, d, e):
    for i in range(1, a.shape[0]):
        a[i] = b[i - 1] + c[i] * d[i]
        b[i] = a[i] + c[i] * e[i]


# ---------------------------------------------------------------- search and packing


def s331(a, out):
    last = -1
    for i in range(a.shape[0]):
        if a[i] < 0.0:
            last = i
    out[0] = last + 1.0


def s341(a, b):
    j = -1
    for i in range(a.shape[0]):
        if b[i] > 0.0:
            j += 1
            a[j] = b[i]


def s342(a, b):
    j = -1
    for i in range(a.shape[0]):
        if a[i] > 0.0:
            j += 1
            a[i] = b[j]


def s343(flat, aa, bb):
    k = -1
    for i in range(aa.shape[1]):
        for j in range(aa.shape[0]):
            if bb[j, i] > 0.0:
                k += 1
                flat[k] = aa[j, i]


# ---------------------------------------------------------------- loops unrolled by hand


def s351(a, b, c):
    alpha = c[0]
    for i in range(0, a.shape[0] - 4, 5):
        a[i] += alpha * b[i]
        a[i + 1] += alpha * b[i + 1]
        a[i + 2] += alpha * b[i + 2]
        a[i + 3] += alpha * b[i + 3]
        a[i + 4] += alpha * b[i + 4]


def s1351(a, b, c):
    for i in range(a.shape[0]):
        a[i] = b[i] + c[i]


def s352(a, b, out):
    dot = 0.0
    for i in range(0, a.shape[0] - 4, 5):
        dot = (
            dot + a[i] * b[i] + a[i + 1] * b[i + 1] + a[i + 2] * b[i + 2] + a[i + 3] * b[i + 3] + a[i + 4] * b[i + 4]
        )
    out[0] = dot


def s353(a, b, c, ip):
    alpha = c[0]
    for i in range(0, a.shape[0] - 4, 5):
        a[i] += alpha * b[ip[i]]
        a[i + 1] += alpha * b[ip[i + 1]]
        a[i + 2] += alpha * b[ip[i + 2]]
        a[i + 3] += alpha * b[ip[i + 3]]
        a[i + 4] += alpha * b[ip[i + 4]]


# ---------------------------------------------------------------- one array under two names


def s421(flat, a):
    for i in range(a.shape[0] - 1):
        flat[i] = flat[i + 1] + a[i]


def s1421(a, b):
    half = b.shape[0] // 2
    for i in range(half):
        b[i] = b[half + i] + a[i]


def s422(flat, a):
    for i in range(a.shape[0]):
        flat[4 + i] = flat[i + 8] + a[i]


def s423(flat, a):
    for i in range(a.shape[0] - 1):
        flat[i + 1] = flat[4 + i] + a[i]


def s424(flat, a):
    for i in range(a.shape[0] - 1):
        flat[3 + i + 1] = flat[i] + a[i]


# ---------------------------------------------------------------- parameters, branches, functions


def s431(a, b):
    k1 = 1
    k2 = 2
    k = 2 * k1 - k2
    for i in range(a.shape[0]):
        a[i] = a[i + k] + b[i]


def s441(a, b, c, d):
    for i in range(a.shape[0]):
        if d[i] < 0.0:
            a[i] += b[i] * c[i]
        elif d[i] == 0.0:
            a[i] += b[i] * b[i]
        else:
            a[i] += c[i] * c[i]


def s442(a, b, c, d, e, choice):
    for i in range(a.shape[0]):
        if choice[i] == 2:
            a[i] += c[i] * c[i]
        elif choice[i] == 3:
            a[i] += d[i] * d[i]
        elif choice[i] == 4:
            a[i] += e[i] * e[i]
        else:
            a[i] += b[i] * b[i]


def s443(a, b, c, d):
    for i in range(a.shape[0]):
        if d[i] <= 0.0:
            a[i] += b[i] * c[i]
        else:
            a[i] += b[i] * b[i]


def s451(a, b, c):
    for i in range(a.shape[0]):
        a[i] = math.sin(b[i]) + math.cos(c[i])


def s452(a, b, c):
    for i in range(a.shape[0]):
        a[i] = b[i] + c[i] * (i + 1)


def s453(a, b):
    s = 0.0
    for i in range(a.shape[0]):
        s += 2.0
        a[i] = s * b[i]


def _nothing(x):
    return x


def s471(x, b, c, d, e):
    for i in range(x.shape[0]):
        x[i] = b[i] + d[i] * d[i]
        unused = _nothing(i)  # noqa: F841 - the suite calls a function that does nothing here
        b[i] = c[i] + d[i] * e[i]


# ---------------------------------------------------------------- indirect addressing


def s491(a, b, c, d, ip):
    for i in range(ip.shape[0]):
        a[ip[i]] = b[i] + c[i] * d[i]


def s4112(a, b, ip, s: float):
    for i in range(a.shape[0]):
        a[i] += b[ip[i]] * s


def s4113(a, b, c, ip):
    for i in range(ip.shape[0]):
        a[ip[i]] = b[ip[i]] + c[i]


def s4114(a, b, c, d, ip, first: int):
    n = a.shape[0]
    for i in range(first - 1, n):
        k = ip[i]
        a[i] = b[i] + c[n - k - 1] * d[i]


def s4115(a, b, ip, out):
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i] * b[ip[i]]
    out[0] = total


def s4116(a, aa, ip, out, row: int, inc: int):
    total = 0.0
    for i in range(aa.shape[1] - 1):
        off = inc + i
        total += a[off] * aa[row - 1, ip[i]]
    out[0] = total


def s4117(a, b, c, d):
    for i in range(a.shape[0]):
        a[i] = b[i] + c[i // 2] * d[i]


def _times(a, b):
    return a * b


def s4121(a, b, c):
    for i in range(a.shape[0]):
        a[i] += _times(b[i], c[i])


# ---------------------------------------------------------------- the vector operations


def va(a, b):
    for i in range(a.shape[0]):
        a[i] = b[i]


def vag(a, b, ip):
    for i in range(a.shape[0]):
        a[i] = b[ip[i]]


def vas(a, b, ip):
    for i in range(ip.shape[0]):
        a[ip[i]] = b[i]


def vif(a, b):
    for i in range(a.shape[0]):
        if b[i] > 0.0:
            a[i] = b[i]


def vpv(a, b):
    for i in range(a.shape[0]):
        a[i] += b[i]


def vtv(a, b):
    for i in range(a.shape[0]):
        a[i] *= b[i]


def vpvtv(a, b, c):
    for i in range(a.shape[0]):
        a[i] += b[i] * c[i]


def vpvts(a, b, s: float):
    for i in range(a.shape[0]):
        a[i] += b[i] * s


def vpvpv(a, b, c):
    for i in range(a.shape[0]):
        a[i] += b[i] + c[i]


def vtvtv(a, b, c):
    for i in range(a.shape[0]):
        a[i] = a[i] * b[i] * c[i]


def vsumr(a, out):
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i]
    out[0] = total


def vdotr(a, b, out):
    dot = 0.0
    for i in range(a.shape[0]):
        dot += a[i] * b[i]
    out[0] = dot


def vbor(x, a, b, c, d, e, aa):
    for i in range(aa.shape[1]):
        a1 = a[i]
        b1 = b[i]
        c1 = c[i]
        d1 = d[i]
        e1 = e[i]
        f1 = aa[0, i]
        pairs = c1 * d1 + c1 * e1 + c1 * f1 + d1 * e1 + d1 * f1 + e1 * f1
        a2 = a1 * b1 * (c1 + d1 + e1 + f1) + a1 * pairs
        b2 = b1 * pairs
        c2 = c1 * (d1 * e1 + d1 * f1 + e1 * f1)
        d2 = d1 * e1 * f1
        x[i] = a2 * b2 * c2 * d2


# ---------------------------------------------------------------- the suite

NOT_EXPRESSIBLE = {
    "s332": "the loop ends at the first element found: weft has no break",
    "s481": "the program ends inside the loop: weft has no exit",
    "s482": "the loop ends at an element that its data decide: weft has no break",
}

_N, _M = 9, 7


def _draw(function: Callable[..., Any], n: int, small: tuple[str, ...]) -> Callable[[random.Random], Arrays]:
    """Tensors by the names that the suite gives its arrays: a to e and x of n elements, aa to cc square."""
    shapes = {name: (n,) for name in "abcdex"} | {name: (_M, _M) for name in ("aa", "bb", "cc")}
    shapes |= {"flat": (_M * _M + 1,), "out": (1,), "choice": (n,)}
    parameters = [p.name for p in inspect.signature(function).parameters.values() if p.annotation is p.empty]

    def draw(generator: random.Random) -> Arrays:
        arrays: Arrays = {}
        for name in parameters:
            if name == "ip":
                arrays[name] = subscripts(generator, n, min(n, _M))
            elif name == "choice":
                arrays[name] = values(generator, n).abs() % 5
            else:
                arrays[name] = (near_zero if name in small else values)(generator, *shapes[name])
        return arrays

    return draw


def _case(
    function: Callable[..., Any], *settings: dict[str, Number], n: int = _N, small: tuple[str, ...] = ()
) -> Case:
    return Case(function, _draw(function, n, small), settings or ({},))


_OWN = (
    _case(s116, n=21),
    _case(s31111, n=12),
    _case(s1221, n=17),
    _case(s422, n=17),
    _case(s423, n=17),
    _case(s424, n=17),
    _case(s351, n=21),
    _case(s352, n=21),
    _case(s353, n=21),
    _case(s2710, {"x": 1}, {"x": -1}),
    _case(s441, small=("d",)),
    _case(s443, small=("d",)),
    _case(s2711, small=("b",)),
    _case(s122, {"first": 1, "step": 1}, {"first": 2, "step": 3}, n=13),
    _case(s162, {"k": 1}, {"k": 3}, {"k": -1}),
    _case(s171, {"inc": 1}, {"inc": 2}, {"inc": 0}),
    _case(s172, {"first": 1, "step": 1}, {"first": 2, "step": 3}, n=13),
    _case(s174, {"count": 4}, {"count": 3}),
    _case(s175, {"inc": 1}, {"inc": 2}),
    _case(s242, {"s1": 1.0, "s2": 2.0}),
    _case(s272, {"t": 3}),
    _case(s318, {"inc": 1}, {"inc": 2}, n=13),
    _case(s4112, {"s": 3.0}),
    _case(s4114, {"first": 1}, {"first": 3}),
    _case(s4116, {"row": 2, "inc": 1}),
    _case(vpvts, {"s": 3.0}),
)
_NAMED = {case.name for case in _OWN}

SUITE: dict[str, Case] = {
    name: next((case for case in _OWN if case.name == name), None) or _case(function)
    for name, function in list(globals().items())
    if inspect.isfunction(function) and function.__module__ == __name__ and not name.startswith("_")
}
