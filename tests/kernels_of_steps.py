"""Programs with loops that stay in order around parallel ones: time steps, sweeps of elimination, recurrences by rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

import weft


@weft.kernel
def jacobi(u, steps: int):
    n, m = u.shape
    a = u.clone()
    b = u.clone()
    for _ in range(steps):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                b[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                a[i, j] = b[i, j]
    return a


@weft.kernel
def by_parity(u, steps: int):
    """Two arrays in one, whose first subscript changes with the step."""
    n, m = u.shape
    w = torch.empty(2, n, m)
    w[0] = u
    w[1] = u
    for t in range(steps):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                s = w[t % 2, i - 1, j] + w[t % 2, i + 1, j] + w[t % 2, i, j - 1] + w[t % 2, i, j + 1]
                w[(t + 1) % 2, i, j] = 0.25 * s
    return w


@weft.kernel
def back_and_forth(u, steps: int):
    """Two arrays that take turns."""
    n, m = u.shape
    a = u.clone()
    b = u.clone()
    for t in range(steps):
        if t % 2 == 0:
            for i in range(1, n - 1):
                for j in range(1, m - 1):
                    b[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])
        else:
            for i in range(1, n - 1):
                for j in range(1, m - 1):
                    a[i, j] = 0.25 * (b[i - 1, j] + b[i + 1, j] + b[i, j - 1] + b[i, j + 1])
    return a, b


@weft.kernel
def in_place(u, steps: int):
    """The argument itself is written; only some steps change the other one."""
    n = u.shape[0]
    v = torch.zeros_like(u)
    for t in range(steps):
        for i in range(1, n - 1):
            v[i] = 0.5 * (u[i - 1] + u[i + 1]) + t
        if t % 3 == 1:
            for i in range(n):
                u[i] = v[i]
    return v


@weft.kernel
def heat(u, left, steps: int, rate: float):
    """The end of a rod has a temperature of its own in every second step, told by data."""
    n = u.shape[0]
    a = u.clone()
    b = torch.zeros_like(u)
    for t in range(0, steps, 2):
        a[0] = left[t]
        for i in range(1, n - 1):
            b[i] = a[i] + rate * (a[i - 1] - 2 * a[i] + a[i + 1])
        for i in range(1, n - 1):
            a[i] = b[i]
    return a


@weft.kernel
def floyd_warshall(d):
    n = d.shape[0]
    e = d.clone()
    for k in range(n):
        for i in range(n):
            for j in range(n):
                e[i, j] = min(e[i, j], e[i, k] + e[k, j])
    return e


@weft.kernel
def by_rows(d):
    """The same with the row and the column of a step set aside."""
    n = d.shape[0]
    e = d.clone()
    for k in range(n):
        row = e[k].clone()
        column = e[:, k].clone()
        for i in range(n):
            for j in range(n):
                e[i, j] = min(e[i, j], column[i] + row[j])
    return e


@weft.kernel
def viterbi(a, b, o):
    """The likeliest states behind observations: forward by maxima, then back."""
    size, count = a.shape[0], o.shape[0]
    v = torch.empty(count, size)
    back = torch.zeros(count, size, dtype=torch.int64)
    path = torch.empty(count, dtype=torch.int64)
    for s in range(size):
        v[0, s] = b[s, o[0]]
    for t in range(1, count):
        for s in range(size):
            best = -math.inf
            arg = 0
            for p in range(size):
                score = v[t - 1, p] + a[p, s]
                if score > best:
                    best = score
                    arg = p
            v[t, s] = best + b[s, o[t]]
            back[t, s] = arg
    best = -math.inf
    arg = 0
    for p in range(size):
        if v[count - 1, p] > best:
            best = v[count - 1, p]
            arg = p
    path[count - 1] = arg
    for t in range(count - 2, -1, -1):
        path[t] = back[t + 1, path[t + 1]]
    return v, path


@weft.kernel
def power_iteration(a, x, steps: int):
    """A norm is summed in one loop and used in the next, and its last value after all steps."""
    n = x.shape[0]
    v = x.clone()
    w = torch.empty_like(x)
    largest = x.new_zeros(())
    for _ in range(steps):
        for i in range(n):
            s = 0.0
            for j in range(n):
                s += a[i, j] * v[j]
            w[i] = s
        norm = 0.0
        for i in range(n):
            norm += w[i] * w[i]
        for i in range(n):
            v[i] = w[i] / torch.sqrt(norm)
        largest[()] = norm
    return v, largest


@weft.kernel
def value_iteration(reward, move, steps: int, discount: float):
    n, actions = reward.shape
    v = torch.zeros(n)
    w = torch.zeros(n)
    for _ in range(steps):
        for s in range(n):
            best = -math.inf
            for a in range(actions):
                best = max(best, reward[s, a] + discount * v[move[s, a]])
            w[s] = best
        for s in range(n):
            v[s] = w[s]
    return v


@weft.kernel
def recurrent(x, w):
    """A batch of few sequences: the axis of the batch goes inside of the steps."""
    batch, length, size = x.shape
    h = torch.zeros(batch, length + 1, size)
    for b in range(batch):
        for t in range(length):
            for i in range(size):
                s = 0.0
                for j in range(size):
                    s += w[i, j] * h[b, t, j]
                h[b, t + 1, i] = torch.tanh(x[b, t, i] + s)
    return h


@weft.kernel
def own_arrays(x, w):
    """Each sequence has a state of its own, and each of its steps another array."""
    batch, length, size = x.shape
    y = torch.empty(batch, size)
    for b in range(batch):
        h = torch.zeros(8)
        total = 0.0
        for t in range(length):
            g = torch.zeros(8)
            for i in range(8):
                for j in range(8):
                    g[i] += w[i, j] * h[j]
            for i in range(8):
                h[i] = torch.tanh(x[b, t, i] + g[i])
            total = 0.5 * total + h[0]
        for i in range(size):
            y[b, i] = h[i % 8] + total
    return y


@weft.kernel
def elimination(a):
    """Rows and columns that are left get fewer with every step."""
    n = a.shape[0]
    m = a.clone()
    for k in range(n):
        for i in range(k + 1, n):
            m[i, k] = m[i, k] / m[k, k]
        for i in range(k + 1, n):
            for j in range(k + 1, n):
                m[i, j] = m[i, j] - m[i, k] * m[k, j]
    return m


@weft.kernel
def nested(x, rounds: int):
    """Steps in steps: the inner ones are as many as the outer one tells."""
    n, m = x.shape
    y = x.clone()
    for r in range(rounds, 0, -1):
        for i in range(r, n):
            for j in range(m):
                y[i, j] = y[i, j] + 0.5 * y[i - r, m - 1 - j]
    return y


@weft.kernel
def carried(x, steps: int):
    """What a step makes of numbers that the steps carry."""
    n = x.shape[0]
    y = x.clone()
    a, b = 1.0, 0.5
    for _ in range(steps):
        s = 0.0
        for i in range(n):
            s += y[i]
        a, b = b, a + 0.25 * b
        for i in range(n):
            y[i] = y[i] * a - s * 0.01
    return y, torch.tensor(a)


@weft.kernel
def backwards(x):
    length, n = x.shape
    y = torch.zeros_like(x)
    for t in range(length - 3, -1, -2):
        for i in range(1, n - 1):
            y[t, i] = x[t, i] + 0.25 * (y[t + 2, i - 1] + y[t + 2, i + 1])
    return y


@weft.kernel
def there_and_back(w, x, steps: int):
    """What an iteration of i sums is used by all of the next array: i stays in order unless the sums are stored."""
    n = x.shape[0]
    y = torch.zeros(steps + 1, n)
    y[0] = x
    for t in range(steps):
        for i in range(n):
            s = 0.0
            for j in range(n):
                s += w[i, j] * y[t, j]
            s = torch.tanh(s)
            for j in range(n):
                y[t + 1, j] += s * w[j, i]
    return y


@weft.kernel
def scaled_rows(a):
    """Loops of either direction and a single store, one after another in each row."""
    x = a.clone()
    n, m = x.shape
    for i in range(n):
        f = x[i, 0]
        for j in range(m - 1, 0, -2):
            x[i, j] = x[i, j] * f
        x[i, 0] = x[i, m - 1] + x[i, m - 2]
        for j in range(m - 2, 0, -2):
            x[i, j] = x[i, j] + x[i, 0] * x[i, j + 1]
    return x


@weft.kernel
def pairs_across(x):
    """Distances of what comes before a step to what comes after it: of the most pairs in the middle."""
    n, width = x.shape
    y = torch.zeros(n, n)
    z = x.clone()
    for t in range(n):
        for i in range(t):
            for j in range(t, n):
                total = 0.0
                for e in range(width):
                    total += abs(z[i, e] - z[j, e])
                y[i, j] = 0.5 * y[i, j] + total
        for i in range(n):
            for e in range(width):
                z[i, e] = 0.5 * z[i, e] + y[i, 0]
    return y


@weft.kernel
def fewer_rows(x):
    """A softmax of the rows that a step has left, fewer from step to step."""
    batch, n, width = x.shape
    y = x.clone()
    for t in range(n):
        for b in range(batch):
            for j in range(t, n):
                largest = -math.inf
                for e in range(width):
                    largest = max(largest, y[b, j, e] + 0.0)
                total = 0.0
                for e in range(width):
                    total += torch.exp(y[b, j, e] - largest)
                for e in range(width):
                    y[b, j, e] = torch.exp(y[b, j, e] - largest) / total
    return y


@weft.kernel
def fewer_columns(x):
    """Sums over rows, of fewer columns from step to step."""
    n, width = x.shape
    z = x.clone()
    y = torch.zeros(3, width)
    for t in range(4):
        for k in range(3):
            for e in range(20 * t, width):
                total = 0.0
                for j in range(n):
                    total += abs(z[j, e] - z[k, e])
                y[k, e] += total
        for j in range(n):
            for e in range(width):
                z[j, e] = 0.5 * z[j, e] + y[j % 3, 0]
    return y


def _plane(*shape: int) -> torch.Tensor:
    return torch.rand(*shape)


# (kernel, arguments, whether its gradients are checked too)
CASES: dict[str, tuple[Any, Callable[[], tuple[Any, ...]], bool]] = {
    "jacobi": (jacobi, lambda: (_plane(9, 11), 3), True),
    "one_step": (jacobi, lambda: (_plane(6, 5), 1), False),
    "no_steps": (jacobi, lambda: (_plane(6, 5), 0), False),
    "by_parity": (by_parity, lambda: (_plane(7, 6), 3), False),
    "back_and_forth": (back_and_forth, lambda: (_plane(7, 6), 3), False),
    "in_place": (in_place, lambda: (_plane(20), 5), False),
    "heat": (heat, lambda: (_plane(30), _plane(9), 9, 0.2), True),
    "floyd_warshall": (floyd_warshall, lambda: (_plane(9, 9),), False),
    "by_rows": (by_rows, lambda: (_plane(9, 9),), False),
    "viterbi": (viterbi, lambda: (_plane(7, 7), _plane(7, 4), torch.arange(6) * 7 % 4), False),
    "power_iteration": (power_iteration, lambda: (_plane(9, 9), _plane(9), 3), False),
    "value_iteration": (value_iteration, lambda: (_plane(8, 3), torch.arange(24).reshape(8, 3) * 5 % 8, 4, 0.9), False),
    "recurrent": (recurrent, lambda: (_plane(3, 4, 8), _plane(8, 8)), True),
    "own_arrays": (own_arrays, lambda: (_plane(3, 4, 9), _plane(8, 8)), False),
    "elimination": (elimination, lambda: (_plane(9, 9) + 9 * torch.eye(9),), False),
    "nested": (nested, lambda: (_plane(9, 6), 4), False),
    "carried": (carried, lambda: (_plane(20), 4), False),
    "there_and_back": (there_and_back, lambda: (_plane(7, 7) - 0.5, _plane(7), 3), True),
    "backwards": (backwards, lambda: (_plane(8, 9),), True),
    "pairs_across": (pairs_across, lambda: (_plane(8, 300),), False),
    "fewer_rows": (fewer_rows, lambda: (_plane(2, 4, 300),), False),
    "fewer_columns": (fewer_columns, lambda: (_plane(70, 90),), False),
}
