# ruff: noqa: B007 - loop variables have their names of the suite, used or not
"""The kernels of PolyBench/C 4.2 (Pouchet and Yuki, Ohio State University), restated in weft's language under their names.

Arrays that a kernel uses for itself are arguments, as there. No two sizes of a kernel are equal unless it needs them so.
"""

from __future__ import annotations

import math
import random

import torch

from tests.suites.case import Arrays, Case, Number, values

# ---------------------------------------------------------------- data mining


def correlation(data, corr, mean, stddev, eps: float):
    n, m = data.shape
    for j in range(m):
        mean[j] = 0.0
        for i in range(n):
            mean[j] += data[i, j]
        mean[j] /= n
    for j in range(m):
        stddev[j] = 0.0
        for i in range(n):
            stddev[j] += (data[i, j] - mean[j]) * (data[i, j] - mean[j])
        stddev[j] /= n
        stddev[j] = torch.sqrt(stddev[j])
        stddev[j] = 1.0 if stddev[j] <= eps else stddev[j]
    for i in range(n):
        for j in range(m):
            data[i, j] -= mean[j]
            data[i, j] /= math.sqrt(n) * stddev[j]
    for i in range(m - 1):
        corr[i, i] = 1.0
        for j in range(i + 1, m):
            corr[i, j] = 0.0
            for k in range(n):
                corr[i, j] += data[k, i] * data[k, j]
            corr[j, i] = corr[i, j]
    corr[m - 1, m - 1] = 1.0


def covariance(data, cov, mean):
    n, m = data.shape
    for j in range(m):
        mean[j] = 0.0
        for i in range(n):
            mean[j] += data[i, j]
        mean[j] /= n
    for i in range(n):
        for j in range(m):
            data[i, j] -= mean[j]
    for i in range(m):
        for j in range(i, m):
            cov[i, j] = 0.0
            for k in range(n):
                cov[i, j] += data[k, i] * data[k, j]
            cov[i, j] /= n - 1.0
            cov[j, i] = cov[i, j]


# ---------------------------------------------------------------- products of matrices and vectors


def gemm(C, A, B, alpha: float, beta: float):
    rows, columns = C.shape
    for i in range(rows):
        for j in range(columns):
            C[i, j] *= beta
        for k in range(A.shape[1]):
            for j in range(columns):
                C[i, j] += alpha * A[i, k] * B[k, j]


def gemver(A, u1, v1, u2, v2, w, x, y, z, alpha: float, beta: float):
    n = A.shape[0]
    for i in range(n):
        for j in range(n):
            A[i, j] = A[i, j] + u1[i] * v1[j] + u2[i] * v2[j]
    for i in range(n):
        for j in range(n):
            x[i] = x[i] + beta * A[j, i] * y[j]
    for i in range(n):
        x[i] = x[i] + z[i]
    for i in range(n):
        for j in range(n):
            w[i] = w[i] + alpha * A[i, j] * x[j]


def gesummv(A, B, tmp, x, y, alpha: float, beta: float):
    n = A.shape[0]
    for i in range(n):
        tmp[i] = 0.0
        y[i] = 0.0
        for j in range(n):
            tmp[i] = A[i, j] * x[j] + tmp[i]
            y[i] = B[i, j] * x[j] + y[i]
        y[i] = alpha * tmp[i] + beta * y[i]


def symm(C, A, B, alpha: float, beta: float):
    m, n = C.shape
    for i in range(m):
        for j in range(n):
            total = 0.0
            for k in range(i):
                C[k, j] += alpha * B[i, j] * A[i, k]
                total += B[k, j] * A[i, k]
            C[i, j] = beta * C[i, j] + alpha * B[i, j] * A[i, i] + alpha * total


def syr2k(C, A, B, alpha: float, beta: float):
    n, m = A.shape
    for i in range(n):
        for j in range(i + 1):
            C[i, j] *= beta
        for k in range(m):
            for j in range(i + 1):
                C[i, j] += A[j, k] * alpha * B[i, k] + B[j, k] * alpha * A[i, k]


def syrk(C, A, alpha: float, beta: float):
    n, m = A.shape
    for i in range(n):
        for j in range(i + 1):
            C[i, j] *= beta
        for k in range(m):
            for j in range(i + 1):
                C[i, j] += alpha * A[i, k] * A[j, k]


def trmm(A, B, alpha: float):
    m, n = B.shape
    for i in range(m):
        for j in range(n):
            for k in range(i + 1, m):
                B[i, j] += A[k, i] * B[k, j]
            B[i, j] = alpha * B[i, j]


def two_mm(tmp, A, B, C, D, alpha: float, beta: float):
    rows, middle = tmp.shape
    for i in range(rows):
        for j in range(middle):
            tmp[i, j] = 0.0
            for k in range(A.shape[1]):
                tmp[i, j] += alpha * A[i, k] * B[k, j]
    for i in range(rows):
        for j in range(D.shape[1]):
            D[i, j] *= beta
            for k in range(middle):
                D[i, j] += tmp[i, k] * C[k, j]


def three_mm(E, A, B, F, C, D, G):
    for i in range(E.shape[0]):
        for j in range(E.shape[1]):
            E[i, j] = 0.0
            for k in range(A.shape[1]):
                E[i, j] += A[i, k] * B[k, j]
    for i in range(F.shape[0]):
        for j in range(F.shape[1]):
            F[i, j] = 0.0
            for k in range(C.shape[1]):
                F[i, j] += C[i, k] * D[k, j]
    for i in range(G.shape[0]):
        for j in range(G.shape[1]):
            G[i, j] = 0.0
            for k in range(E.shape[1]):
                G[i, j] += E[i, k] * F[k, j]


def atax(A, x, y, tmp):
    m, n = A.shape
    for i in range(n):
        y[i] = 0.0
    for i in range(m):
        tmp[i] = 0.0
        for j in range(n):
            tmp[i] = tmp[i] + A[i, j] * x[j]
        for j in range(n):
            y[j] = y[j] + A[i, j] * tmp[i]


def bicg(A, s, q, p, r):
    n, m = A.shape
    for i in range(m):
        s[i] = 0.0
    for i in range(n):
        q[i] = 0.0
        for j in range(m):
            s[j] = s[j] + r[i] * A[i, j]
            q[i] = q[i] + A[i, j] * p[j]


def doitgen(A, C4, total):
    for r in range(A.shape[0]):
        for q in range(A.shape[1]):
            for p in range(A.shape[2]):
                total[p] = 0.0
                for s in range(A.shape[2]):
                    total[p] += A[r, q, s] * C4[s, p]
            for p in range(A.shape[2]):
                A[r, q, p] = total[p]


def mvt(x1, x2, y1, y2, A):
    n = A.shape[0]
    for i in range(n):
        for j in range(n):
            x1[i] = x1[i] + A[i, j] * y1[j]
    for i in range(n):
        for j in range(n):
            x2[i] = x2[i] + A[j, i] * y2[j]


# ---------------------------------------------------------------- solvers


def cholesky(A):
    n = A.shape[0]
    for i in range(n):
        for j in range(i):
            for k in range(j):
                A[i, j] -= A[i, k] * A[j, k]
            A[i, j] /= A[j, j]
        for k in range(i):
            A[i, i] -= A[i, k] * A[i, k]
        A[i, i] = torch.sqrt(A[i, i])


def durbin(r, y, z):
    n = r.shape[0]
    y[0] = -r[0]
    beta = 1.0
    alpha = -r[0]
    for k in range(1, n):
        beta = (1.0 - alpha * alpha) * beta
        total = 0.0
        for i in range(k):
            total += r[k - i - 1] * y[i]
        alpha = -(r[k] + total) / beta
        for i in range(k):
            z[i] = y[i] + alpha * y[k - i - 1]
        for i in range(k):
            y[i] = z[i]
        y[k] = alpha


def gramschmidt(A, R, Q):
    m, n = A.shape
    for k in range(n):
        norm = 0.0
        for i in range(m):
            norm += A[i, k] * A[i, k]
        R[k, k] = torch.sqrt(norm)
        for i in range(m):
            Q[i, k] = A[i, k] / R[k, k]
        for j in range(k + 1, n):
            R[k, j] = 0.0
            for i in range(m):
                R[k, j] += Q[i, k] * A[i, j]
            for i in range(m):
                A[i, j] = A[i, j] - Q[i, k] * R[k, j]


def lu(A):
    n = A.shape[0]
    for i in range(n):
        for j in range(i):
            for k in range(j):
                A[i, j] -= A[i, k] * A[k, j]
            A[i, j] /= A[j, j]
        for j in range(i, n):
            for k in range(i):
                A[i, j] -= A[i, k] * A[k, j]


def ludcmp(A, b, x, y):
    n = A.shape[0]
    for i in range(n):
        for j in range(i):
            w = A[i, j]
            for k in range(j):
                w = w - A[i, k] * A[k, j]
            A[i, j] = w / A[j, j]
        for j in range(i, n):
            w = A[i, j]
            for k in range(i):
                w = w - A[i, k] * A[k, j]
            A[i, j] = w
    for i in range(n):
        w = b[i]
        for j in range(i):
            w = w - A[i, j] * y[j]
        y[i] = w
    for i in range(n - 1, -1, -1):
        w = y[i]
        for j in range(i + 1, n):
            w = w - A[i, j] * x[j]
        x[i] = w / A[i, i]


def trisolv(L, x, b):
    n = L.shape[0]
    for i in range(n):
        x[i] = b[i]
        for j in range(i):
            x[i] -= L[i, j] * x[j]
        x[i] = x[i] / L[i, i]


# ---------------------------------------------------------------- dynamic programs, graphs, images


def deriche(source, result, y1, y2, alpha: float):
    w, h = source.shape
    k = (1.0 - math.exp(-alpha)) * (1.0 - math.exp(-alpha)) / (1.0 + 2.0 * alpha * math.exp(-alpha) - math.exp(2.0 * alpha))
    a2 = k * math.exp(-alpha) * (alpha - 1.0)
    a3 = k * math.exp(-alpha) * (alpha + 1.0)
    a4 = -k * math.exp(-2.0 * alpha)
    b1 = 2.0 ** (-alpha)
    b2 = -math.exp(-2.0 * alpha)
    for i in range(w):
        before = 0.0
        earlier = 0.0
        pixel = 0.0
        for j in range(h):
            value = k * source[i, j] + a2 * pixel + b1 * before + b2 * earlier
            y1[i, j] = value
            pixel = source[i, j]
            earlier = before
            before = value
    for i in range(w):
        before = 0.0
        earlier = 0.0
        pixel = 0.0
        last = 0.0
        for j in range(h - 1, -1, -1):
            value = a3 * pixel + a4 * last + b1 * before + b2 * earlier
            y2[i, j] = value
            last = pixel
            pixel = source[i, j]
            earlier = before
            before = value
    for i in range(w):
        for j in range(h):
            result[i, j] = y1[i, j] + y2[i, j]
    for j in range(h):
        pixel = 0.0
        before = 0.0
        earlier = 0.0
        for i in range(w):
            value = k * result[i, j] + a2 * pixel + b1 * before + b2 * earlier
            y1[i, j] = value
            pixel = result[i, j]
            earlier = before
            before = value
    for j in range(h):
        pixel = 0.0
        last = 0.0
        before = 0.0
        earlier = 0.0
        for i in range(w - 1, -1, -1):
            value = a3 * pixel + a4 * last + b1 * before + b2 * earlier
            y2[i, j] = value
            last = pixel
            pixel = result[i, j]
            earlier = before
            before = value
    for i in range(w):
        for j in range(h):
            result[i, j] = y1[i, j] + y2[i, j]


def floyd_warshall(path):
    n = path.shape[0]
    for k in range(n):
        for i in range(n):
            for j in range(n):
                path[i, j] = path[i, j] if path[i, j] < path[i, k] + path[k, j] else path[i, k] + path[k, j]


def nussinov(sequence, table):
    n = sequence.shape[0]
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            table[i, j] = max(table[i, j], table[i, j - 1])
            if i + 1 < n:
                table[i, j] = max(table[i, j], table[i + 1, j])
            if i + 1 < n:
                if i < j - 1:
                    pair = 1.0 if sequence[i] + sequence[j] == 3 else 0.0
                    table[i, j] = max(table[i, j], table[i + 1, j - 1] + pair)
                else:
                    table[i, j] = max(table[i, j], table[i + 1, j - 1])
            for k in range(i + 1, j):
                table[i, j] = max(table[i, j], table[i, k] + table[k + 1, j])


# ---------------------------------------------------------------- stencils


def adi(u, v, p, q, steps: int, a: float, b: float, d: float, f: float):
    n = u.shape[0]
    c = a
    e = d
    for t in range(1, steps + 1):
        for i in range(1, n - 1):
            v[0, i] = 1.0
            p[i, 0] = 0.0
            q[i, 0] = v[0, i]
            for j in range(1, n - 1):
                p[i, j] = -c / (a * p[i, j - 1] + b)
                q[i, j] = (-d * u[j, i - 1] + (1.0 + 2.0 * d) * u[j, i] - f * u[j, i + 1] - a * q[i, j - 1]) / (
                    a * p[i, j - 1] + b
                )
            v[n - 1, i] = 1.0
            for j in range(n - 2, 0, -1):
                v[j, i] = p[i, j] * v[j + 1, i] + q[i, j]
        for i in range(1, n - 1):
            u[i, 0] = 1.0
            p[i, 0] = 0.0
            q[i, 0] = u[i, 0]
            for j in range(1, n - 1):
                p[i, j] = -f / (d * p[i, j - 1] + e)
                q[i, j] = (-a * v[i - 1, j] + (1.0 + 2.0 * a) * v[i, j] - c * v[i + 1, j] - d * q[i, j - 1]) / (
                    d * p[i, j - 1] + e
                )
            u[i, n - 1] = 1.0
            for j in range(n - 2, 0, -1):
                u[i, j] = p[i, j] * u[i, j + 1] + q[i, j]


def fdtd_2d(ex, ey, hz, source):
    nx, ny = ex.shape
    for t in range(source.shape[0]):
        for j in range(ny):
            ey[0, j] = source[t]
        for i in range(1, nx):
            for j in range(ny):
                ey[i, j] = ey[i, j] - 0.5 * (hz[i, j] - hz[i - 1, j])
        for i in range(nx):
            for j in range(1, ny):
                ex[i, j] = ex[i, j] - 0.5 * (hz[i, j] - hz[i, j - 1])
        for i in range(nx - 1):
            for j in range(ny - 1):
                hz[i, j] = hz[i, j] - 0.7 * (ex[i, j + 1] - ex[i, j] + ey[i + 1, j] - ey[i, j])


def heat_3d(A, B, steps: int):
    n = A.shape[0]
    for t in range(1, steps + 1):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                for k in range(1, n - 1):
                    B[i, j, k] = (
                        0.125 * (A[i + 1, j, k] - 2.0 * A[i, j, k] + A[i - 1, j, k])
                        + 0.125 * (A[i, j + 1, k] - 2.0 * A[i, j, k] + A[i, j - 1, k])
                        + 0.125 * (A[i, j, k + 1] - 2.0 * A[i, j, k] + A[i, j, k - 1])
                        + A[i, j, k]
                    )
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                for k in range(1, n - 1):
                    A[i, j, k] = (
                        0.125 * (B[i + 1, j, k] - 2.0 * B[i, j, k] + B[i - 1, j, k])
                        + 0.125 * (B[i, j + 1, k] - 2.0 * B[i, j, k] + B[i, j - 1, k])
                        + 0.125 * (B[i, j, k + 1] - 2.0 * B[i, j, k] + B[i, j, k - 1])
                        + B[i, j, k]
                    )


def jacobi_1d(A, B, steps: int):
    n = A.shape[0]
    for t in range(steps):
        for i in range(1, n - 1):
            B[i] = 0.33333 * (A[i - 1] + A[i] + A[i + 1])
        for i in range(1, n - 1):
            A[i] = 0.33333 * (B[i - 1] + B[i] + B[i + 1])


def jacobi_2d(A, B, steps: int):
    n = A.shape[0]
    for t in range(steps):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                B[i, j] = 0.2 * (A[i, j] + A[i, j - 1] + A[i, j + 1] + A[i + 1, j] + A[i - 1, j])
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                A[i, j] = 0.2 * (B[i, j] + B[i, j - 1] + B[i, j + 1] + B[i + 1, j] + B[i - 1, j])


def seidel_2d(A, steps: int):
    n = A.shape[0]
    for t in range(steps):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                total = A[i - 1, j - 1] + A[i - 1, j] + A[i - 1, j + 1] + A[i, j - 1] + A[i, j]
                A[i, j] = (total + A[i, j + 1] + A[i + 1, j - 1] + A[i + 1, j] + A[i + 1, j + 1]) / 9.0


# ---------------------------------------------------------------- the suite

# Sizes of each kernel, by array; the numbers it takes.
_SHAPES: dict[str, tuple[dict[str, tuple[int, ...]], dict[str, Number]]] = {
    "correlation": ({"data": (6, 7), "corr": (7, 7), "mean": (7,), "stddev": (7,)}, {"eps": 0.125}),
    "covariance": ({"data": (6, 7), "cov": (7, 7), "mean": (7,)}, {}),
    "gemm": ({"C": (5, 7), "A": (5, 6), "B": (6, 7)}, {"alpha": 3.0, "beta": 2.0}),
    "gemver": (
        {"A": (6, 6), **{name: (6,) for name in ("u1", "v1", "u2", "v2", "w", "x", "y", "z")}},
        {"alpha": 3.0, "beta": 2.0},
    ),
    "gesummv": ({"A": (6, 6), "B": (6, 6), "tmp": (6,), "x": (6,), "y": (6,)}, {"alpha": 3.0, "beta": 2.0}),
    "symm": ({"C": (7, 5), "A": (7, 7), "B": (7, 5)}, {"alpha": 3.0, "beta": 2.0}),
    "syr2k": ({"C": (6, 6), "A": (6, 7), "B": (6, 7)}, {"alpha": 3.0, "beta": 2.0}),
    "syrk": ({"C": (6, 6), "A": (6, 7)}, {"alpha": 3.0, "beta": 2.0}),
    "trmm": ({"A": (7, 7), "B": (7, 5)}, {"alpha": 3.0}),
    "two_mm": ({"tmp": (4, 5), "A": (4, 6), "B": (6, 5), "C": (5, 7), "D": (4, 7)}, {"alpha": 3.0, "beta": 2.0}),
    "three_mm": (
        {"E": (4, 5), "A": (4, 6), "B": (6, 5), "F": (5, 7), "C": (5, 8), "D": (8, 7), "G": (4, 7)},
        {},
    ),
    "atax": ({"A": (6, 7), "x": (7,), "y": (7,), "tmp": (6,)}, {}),
    "bicg": ({"A": (6, 7), "s": (7,), "q": (6,), "p": (7,), "r": (6,)}, {}),
    "doitgen": ({"A": (4, 5, 6), "C4": (6, 6), "total": (6,)}, {}),
    "mvt": ({"A": (7, 7), "x1": (7,), "x2": (7,), "y1": (7,), "y2": (7,)}, {}),
    "cholesky": ({"A": (7, 7)}, {}),
    "durbin": ({"r": (8,), "y": (8,), "z": (8,)}, {}),
    "gramschmidt": ({"A": (8, 6), "R": (6, 6), "Q": (8, 6)}, {}),
    "lu": ({"A": (7, 7)}, {}),
    "ludcmp": ({"A": (7, 7), "b": (7,), "x": (7,), "y": (7,)}, {}),
    "trisolv": ({"L": (8, 8), "x": (8,), "b": (8,)}, {}),
    "deriche": ({"source": (6, 7), "result": (6, 7), "y1": (6, 7), "y2": (6, 7)}, {"alpha": 0.25}),
    "floyd_warshall": ({"path": (6, 6)}, {}),
    "nussinov": ({"sequence": (8,), "table": (8, 8)}, {}),
    "adi": (
        {"u": (7, 7), "v": (7, 7), "p": (7, 7), "q": (7, 7)},
        {"steps": 4, "a": 3.0, "b": 7.0, "d": 2.0, "f": 5.0},
    ),
    "fdtd_2d": ({"ex": (5, 6), "ey": (5, 6), "hz": (5, 6), "source": (4,)}, {}),
    "heat_3d": ({"A": (6, 6, 6), "B": (6, 6, 6)}, {"steps": 4}),
    "jacobi_1d": ({"A": (9,), "B": (9,)}, {"steps": 4}),
    "jacobi_2d": ({"A": (6, 6), "B": (6, 6)}, {"steps": 4}),
    "seidel_2d": ({"A": (7, 7)}, {"steps": 4}),
}


def _case(name: str) -> Case:
    shapes, numbers = _SHAPES[name]

    def draw(generator: random.Random) -> Arrays:
        arrays = {k: values(generator, *shape) for k, shape in shapes.items()}
        if name == "floyd_warshall":
            arrays["path"] = arrays["path"].abs()
        if name == "nussinov":
            arrays = {"sequence": arrays["sequence"].abs() % 4, "table": torch.zeros(8, 8, dtype=torch.float64)}
        return arrays

    return Case(globals()[name], draw, (numbers,))


SUITE: dict[str, Case] = {name: _case(name) for name in _SHAPES}
