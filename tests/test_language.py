"""The language: a parsed function, executed by its meaning, computes what the plain Python computes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given

import weft.kernels
from tests.examples import examples
from weft.errors import UnsupportedSyntax, WeftError
from weft.language import TensorType, fingerprint, infer_types, parse, read_signature, source_of
from weft.loops.interpret import interpret
from weft.loops.ir import For, Function, walk
from weft.loops.show import show
from weft.loops.types import BFLOAT16, BOOL, FLOAT32, FLOAT64, INT64, SCALAR_TYPES, ScalarType

PROGRAMS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []


def case(*args: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a program with the arguments it is run on."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS.append((function, args))
        return function

    return add


def R(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.rand(*shape, dtype=torch.float64, generator=generator)


def type_of(value: Any) -> TensorType | ScalarType | None:
    if isinstance(value, torch.Tensor):
        return TensorType(SCALAR_TYPES[str(value.dtype).removeprefix("torch.")], value.dim())
    return None if value is None else {bool: BOOL, int: INT64, float: FLOAT64}[type(value)]


def parsed(function: Any, *args: Any) -> Function:
    names = [p.arg for p in source_of(function).parameters]
    return parse(function, {n: type_of(a) for n, a in zip(names, args, strict=True)})


def check(function: Any, python: Callable[..., Any], args: tuple[Any, ...]) -> Function:
    """The meaning of the parsed function is what the Python does: results, their dtypes, arguments written."""
    nest = parsed(function, *args)
    ours, theirs = ([a.clone() if isinstance(a, torch.Tensor) else a for a in args] for _ in range(2))
    found = interpret(nest, *[a for a in ours if a is not None])
    expected = python(*theirs)
    assert nest.container == {list: "list", tuple: "tuple"}.get(type(expected), "") or len(found) != 1
    expected = () if expected is None else expected if isinstance(expected, (tuple, list)) else (expected,)
    assert len(found) == len(expected)
    for name, x, y in zip(nest.results, found, expected, strict=True):
        assert (name in nest.numbers) == (not isinstance(y, torch.Tensor))
        if name in nest.numbers:
            x = x.item()
            assert type(x) is type(y)
        else:
            assert x.dtype == y.dtype
        torch.testing.assert_close(x, y, equal_nan=True)
    for x, y in zip(ours, theirs, strict=True):
        if isinstance(x, torch.Tensor):
            torch.testing.assert_close(x, y, equal_nan=True)
    return nest


# ---------------------------------------------------------------- programs


@case(R(3, 5), R(3, 5))
def linrec(x, c):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = 0.0
        for l in range(length):
            h = c[r, l] * h + x[r, l]
            y[r, l] = h
    return y


@case(R(2, 3, 5), R(2, 3, 5))
def ref_peeled(x, c):
    y = torch.empty_like(x)
    y[..., 0] = x[..., 0]
    for l in range(1, x.shape[-1]):
        y[..., l] = y[..., l - 1] * c[..., l] + x[..., l]
    return y


@case(R(2, 3, 5), R(2, 3, 5))
def ref_guarded(x, c):
    *batch, L = x.shape
    y = torch.zeros(*batch, L, dtype=x.dtype)
    for l in range(L):
        if l > 0:
            y[..., l] = y[..., l - 1] * c[..., l] + x[..., l]
        else:
            y[..., l] = x[..., l]
    return y


@case(R(2, 3, 5), R(2, 3, 5))
def ref_clone(x, c):
    y = x.clone()
    for l in range(1, x.size(-1)):
        y[..., l] += y[..., l - 1] * c[..., l]
    return y


@case(R(2, 3, 5), R(2, 3, 5))
def ref_reversed(x, c):
    y = x.clone()
    L = x.shape[-1]
    for l in reversed(range(L - 1)):
        y[..., l] = y[..., l] + y[..., l + 1] * c[..., l + 1]
    return y


@case(R(2, 3, 7), R(2, 3, 7))
def stepped(x, c):
    y = x.clone()
    for l in range(x.shape[-1] - 1, 0, -2):
        y[..., l] -= c[..., l]
    for l in reversed(range(0, x.shape[-1], 3)):
        y[..., l : l + 1] *= 2
    return y


@case(R(4, 5), R(5, 3))
def mm(a, b):
    m, k = a.shape
    n = b.shape[1]
    c = torch.zeros(m, n, dtype=a.dtype)
    for i in range(m):
        for j in range(n):
            s = 0.0
            for p in range(k):
                s += a[i, p] * b[p, j]
            c[i, j] = s
    return c


@case(R(4, 5), R(5, 3))
def mm2(a, b):
    return a @ b


@case(R(2, 4, 5), R(2, 5, 3))
def bmm(a, b):
    return torch.matmul(a, b) * 2 + 1


@case(R(6, 4), R(7, 4), R(7, 5))
def attention(Q, K, V):
    n, d = Q.shape
    m = K.shape[0]
    o = torch.zeros(n, V.shape[1], dtype=Q.dtype)
    for i in range(n):
        big = -math.inf
        for j in range(m):
            s = Q[i] @ K[j]
            big = max(big, s)
        tot = 0.0
        for j in range(m):
            tot += torch.exp(Q[i] @ K[j] - big)
        for j in range(m):
            p = torch.exp(Q[i] @ K[j] - big) / tot
            o[i] += p * V[j]
    return o


@case(R(6, 4), R(7, 4), R(7, 5))
def online(Q, K, V):
    n = Q.shape[0]
    m = K.shape[0]
    dv = V.shape[1]
    out = torch.empty(n, dv, dtype=Q.dtype)
    for i in range(n):
        mx = float("-inf")
        l = 0.0
        acc = torch.zeros(dv, dtype=Q.dtype)
        for j in range(m):
            s = torch.dot(Q[i, :], K[j, :])
            new = max(mx, s)
            r = math.exp(mx - new)
            p = math.exp(s - new)
            l = l * r + p
            acc = acc * r + p * V[j, :]
            mx = new
        out[i, :] = acc / l
    return out


@case(R(2, 6, 4), R(2, 7, 4), R(2, 7, 5))
def attn_slices(q, k, v):
    s = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5)
    p = torch.softmax(s, dim=-1)
    return p @ v


@case(R(2, 6, 3), R(2, 6, 3), R(3, 4), R(2, 6, 4), R(2, 6, 4), R(3))
def mamba(u, delta, A, B, C, D):
    batch, length, dim = u.shape
    n = A.shape[1]
    y = torch.empty_like(u)
    for b in range(batch):
        for d in range(dim):
            h = torch.zeros(n, dtype=u.dtype)
            for l in range(length):
                acc = 0.0
                for k in range(n):
                    h[k] = torch.exp(delta[b, l, d] * A[d, k]) * h[k] + delta[b, l, d] * B[b, l, k] * u[b, l, d]
                    acc = acc + h[k] * C[b, l, k]
                y[b, l, d] = acc + D[d] * u[b, l, d]
    return y


@case(R(2, 6, 3), R(2, 6, 3), R(3, 4), R(2, 6, 4), R(2, 6, 4), R(3))
def mamba_ref(u, delta, A, B, C, D):
    batch, length, dim = u.shape
    x = torch.zeros(batch, dim, A.shape[1], dtype=u.dtype)
    y = torch.empty_like(u)
    for i in range(length):
        dA = torch.exp(delta[:, i, :, None] * A)
        dB = delta[:, i, :, None] * B[:, i, None, :]
        x = dA * x + dB * u[:, i, :, None]
        y[:, i] = (x * C[:, i, None, :]).sum(-1) + u[:, i] * D
    return y


@case(R(6, 7))
def stencil(x):
    h, w = x.shape
    y = torch.zeros_like(x)
    for i in range(1, h - 1):
        for j in range(1, w - 1):
            y[i, j] = 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])
    return y


@case(R(6, 7))
def stencil_slices(x):
    y = x.clone()
    y[1:-1, 1:-1] = 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])
    return y


@case(R(9))
def prefix_max(x):
    y = torch.empty_like(x)
    m = x[0]
    for i in range(len(x)):
        if x[i] > m:
            m = x[i]
        y[i] = m
    return y


@case(R(9), 0.3, True)
def merges(x, t, flag):
    n = x.shape[0]
    y = torch.empty_like(x)
    count = 0
    for i in range(n):
        v = x[i]
        if v > t and flag:
            v = v * 2
            count += 1
        elif v > t / 2:
            w = v + 1
            v = w
        else:
            v = -v
        y[i] = v + count
    return y


def helper(a, b, scale=2.0):
    t = a * scale
    return t + b, t - b


def rowsum(x, i):
    s = 0.0
    for j in range(x.shape[1]):
        s += x[i, j]
    return s


@case(R(4, 5))
def helpers(x):
    n, m = x.shape
    y = torch.empty_like(x)
    z = torch.empty_like(x)
    for i in range(n):
        s = rowsum(x, i)
        for j in range(m):
            y[i, j], z[i, j] = helper(x[i, j], s, scale=3)
    return y, z


@case(R(4, 5), R(4, 5))
def inplace(x, y):
    x += y
    y[0] = x[1]
    x[:, 0] = 0


@case(R(5), torch.tensor([4, 0, -1, 2]))
def gather(x, idx):
    y = torch.zeros(idx.shape[0], dtype=x.dtype)
    for i in range(idx.shape[0]):
        j = idx[i]
        y[i] = x[idx[i]] + x[j]
    return y


@case(R(4, 5))
def norm(x):
    m = x.mean(-1, keepdim=True)
    v = ((x - m) ** 2).mean(dim=-1, keepdim=True)
    return (x - m) / torch.sqrt(v + 1e-5)


@case(R(4, 5))
def total(x):
    return x.sum(), x.amax(0), x.T, x.min()


@case(torch.rand(4, 5).half())
def half(x):
    y = torch.empty(x.shape, dtype=torch.float32)
    for i in range(4):
        s = 0.0
        for j in range(5):
            s = s + x[i, j]
            y[i, j] = (x[i, j] * 2.0).float()
    return y


@case(R(3, 4))
def two_arrays(x):
    a = torch.zeros(x.shape[1], dtype=x.dtype)
    b = torch.ones(x.shape[1], dtype=x.dtype)
    for i in range(x.shape[0]):
        a, b = b, a + x[i]
    return a, b


@case(R(5))
def fib(x):
    a, b = 0.0, 1.0
    y = torch.empty_like(x)
    for i in range(len(x)):
        y[i] = a
        a, b = b, a + b * x[i]
    return y


@case(R(3, 4), R(3, 4))
def shapes(x, y):
    assert x.shape == y.shape and x.ndim == 2
    out = torch.empty((x.shape[0], 2 * x.shape[1]), dtype=x.dtype)
    out[:, ::2] = x
    out[:, 1::2] = y
    return out


@case(torch.arange(10), 3)
def ints(x, k):
    y = torch.zeros_like(x)
    z = torch.zeros(10)
    for i in range(10):
        y[i] = (x[i] // k) + (x[i] % k) * (i & 3) - (x[i] << 1) + (~i)
        z[i] = x[i] / k
    return y, z


@case(R(5))
def cond(x):
    n = x.shape[0]
    y = torch.empty_like(x)
    for i in range(n):
        y[i] = x[i - 1] if i > 0 and x[i] > 0.2 else (0.5 if 0 < i <= n - 2 else 0.0)
    return y


def prev(x, i):
    v = x[i - 1]
    return v * 2


@case(R(5))
def lazy(x):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        y[i] = prev(x, i) if i > 0 else 0.0
    return y


@case(R(5, 3), None)
def optional(x, bias=None):
    if bias is None:
        return F.silu(x)
    return x + bias


@case(R(4, 6))
def triangular(x):
    n, m = x.shape
    y = torch.zeros_like(x)
    for i in range(n):
        t = x[i, :] * 2
        u = t[:i] + 1
        for j in range(i):
            y[i, j] = t[j] + u[j]
    return y


@case(R(4, 6))
def swap_rows(x):
    y = x.clone()
    for i in range(2):
        t = y[i].clone()
        y[i] = y[3 - i]
        y[3 - i] = t
    return y


@case(R(4, 6))
def branch_arrays(x):
    a = x[0] * 1
    for i in range(4):
        if x[i, 0] > 0.5:
            a = a + x[i]
        else:
            b = a * 2
            a = b - 1
    return a


@case(R(7), R(7))
def funcs(x, y):
    a = torch.where(x > 0.5, x, y)
    b = torch.maximum(x, y).clamp(min=0.2, max=0.7) + torch.clamp(x, 0.1)
    c = F.gelu(x) + F.softplus(y) + torch.sigmoid(x) * x.tanh() + torch.relu(x - 0.5)
    d = (
        x**3
        + y**2
        + x**0.5
        + x.pow(2.5)
        + 2**y
        + 1 / x
        + x.reciprocal()
        + torch.fmod(x, 0.3)
        + torch.remainder(-x, 0.3)
    )
    return a, b, c, d, (x > y), torch.isnan(x), torch.add(x, y, alpha=2), F.gelu(x, approximate="tanh")


@case(R(5))
def stale(y):
    t = y[0]
    y[0] = 5.0
    y[1] = t


@case(R(5))
def swap(y):
    t = y[0]
    y[0] = y[1]
    y[1] = t


@case(R(6))
def stale_loop(y):
    m = y[0]
    for i in range(6):
        y[i] = y[i] + m


@case(R(6))
def carried_alias(y):
    prev = y[0]
    for i in range(1, 6):
        cur = y[i]
        y[i] = prev + cur * 2
        prev = y[i]


@case(R(6), R(6))
def param_alias(x, c):
    y = x
    for i in range(1, 6):
        y[i] = y[i - 1] * c[i]
    return y


@case(R(6), R(6))
def param_rebind(x, c):
    y = x
    for _ in range(3):
        y = y * c
    return y


@case(R(6), R(6))
def param_rebind2(x, c):
    for _ in range(3):
        x = x + c
    x = x * 2
    return x


@case(R(4, 3))
def old_new(x):
    acc = torch.zeros(3, dtype=x.dtype)
    old = torch.ones(3, dtype=x.dtype)
    for i in range(4):
        acc = acc * 0.5 + old
        old = acc
        acc = acc + x[i]
    return acc, old


@case(R(4, 3))
def old_new2(x):
    acc = torch.zeros(3, dtype=x.dtype)
    old = acc
    for i in range(4):
        if i > 1:
            acc = acc * 0.5 + old
        old = acc * 1.5
    return acc, old


@case(R(4, 3))
def inplace_alias(x):
    acc = torch.zeros(3, dtype=x.dtype)
    old = acc
    acc += x[0]
    return old, acc


@case(R(4, 3))
def multi_assign(x):
    a = x[0] * 1
    b = x[1] * 1
    a, b = a * 2, a + b
    c = d = a + b
    return a, b, c, d


@case(R(4))
def scalar_array(x):
    t = torch.zeros((), dtype=x.dtype)
    for i in range(4):
        t = t + x[i]
    return t


@case(R(4))
def scalar_array2(x):
    t = torch.zeros((), dtype=x.dtype)
    for i in range(4):
        t += x[i]
    y = torch.empty((), dtype=x.dtype)
    y[()] = t
    return y


@case(torch.rand(()), R(3))
def zero_dim(s, x):
    y = x * s
    return y


def store(y, i, v):
    y[i] = v


@case(R(4))
def helper_store(x):
    y = torch.empty_like(x)
    for i in range(4):
        store(y, i, x[i] * 2)
    return y


def inc(y):
    y[0] = y[0] + 1
    return y[0]


def view_helper(x, i):
    r = x[i]
    return r


@case(R(4, 3))
def helper_view(x):
    for i in range(4):
        v = view_helper(x, i)
        v[0] = 1.0
        v += 2


@case(R(4, 3))
def flow(x):
    n, m = x.shape
    k = n // 2
    t = torch.zeros(k, m, dtype=x.dtype)
    for i in range(k):
        for j in range(m):
            t[i, j] = x[2 * i, j]
    return t


@case(R(6, 6))
def nested_private(x):
    y = torch.zeros_like(x)
    for i in range(6):
        h = torch.zeros(6, dtype=x.dtype)
        g = torch.ones(x.shape[1] - 1, dtype=x.dtype)
        for j in range(5):
            h[j] = h[j] + x[i, j] * g[j]
            g[j] += h[j]
            y[i, j] = h[j] + g[j]
    return y


@case(R(3, 3))
def dead(x):
    y = torch.zeros_like(x)
    t = 0
    for i in range(3):
        for j in range(3):
            t = x[i, j] * 2
            y[i, j] = t
    return y


@case(R(3, 3))
def kinds(x):
    y = torch.zeros_like(x)
    t = x[0] * 1
    for i in range(3):
        t = x[i] + 1
        for j in range(3):
            y[i, j] = t[j]
    t = y[0, 0]
    for i in range(3):
        t = t + y[i, i]
    return t


@case(R(5), R(5))
def maxmin(x, y):
    o = torch.empty_like(x)
    for i in range(5):
        o[i] = min(max(x[i], 0.3), y[i], 0.9)
    return o


@case(R(3, 4), torch.rand(3, 4), torch.rand(3, 4).half(), torch.randint(0, 5, (3, 4)))
def promo(a, b, c, d):
    return (
        a + b,
        b + c,
        c * 2,
        d / 2,
        d + b,
        (d > 2) & (a > 0.5),
        d // 2,
        c + d,
        d * 1.5,
        torch.exp(d),
        a.to(torch.float32) + 1,
        c.float() * b,
    )


@case(torch.rand(4), torch.rand(4).half(), torch.randint(1, 5, (4,)))
def promo0(b, c, d):
    o = torch.empty(4, 8)
    for i in range(4):
        o[i, 0] = b[i] + 1
        o[i, 1] = (b + c[i])[i]
        o[i, 2] = d[i] / 3
        o[i, 3] = d[i] * 0.5
        o[i, 4] = math.exp(b[i])
        o[i, 5] = float(b[i]) * d[i]
        o[i, 6] = d[i] ** 2 + d[i] % 2
        o[i, 7] = int(b[i] * 10) // 3
    return o


@case(R(3, 4, 5))
def dims(x):
    return (
        x.sum(),
        x.sum(1),
        x.sum((0, 2)),
        x.mean(-1),
        x.prod(0),
        x.amax((0, 1)),
        x[:, 1].max(),
        x.permute(2, 0, 1),
        x.unsqueeze(1)[:, 0],
        x[None].squeeze(0),
        x.transpose(0, -1)[1:, ::2],
        x.mT.sum(-1, keepdim=True),
    )


@case(R(3, 4))
def ellip(x):
    y = torch.zeros(2, 3, 4, dtype=x.dtype)
    y[..., 0] = 1
    y[1, ...] = x
    y[0, :, 1:3] = x[:, -2:]
    y[:, -1] *= 2
    y[0][1][3] = 7
    return y


@case(5, R(5))
def intparam(n, x):
    y = torch.zeros(n, n + 1, dtype=x.dtype)
    for i in range(n):
        for j in range(max(0, i - 1), min(n, i + 2)):
            y[i, j] = x[j]
    return y


@case(R(8))
def even_odd(x):
    y = torch.empty_like(x)
    for i in range(0, 8, 2):
        y[i] = x[i]
        y[i + 1] = -x[i + 1]
    for i in range(8):
        if i % 2 == 0:
            y[i] += 1
    return y


@case(R(2, 2, 2, 2, 2))
def deep(x):
    s = 0
    t = 0
    y = torch.empty_like(x)
    for a in range(2):
        for b in range(2):
            for c in range(2):
                for d in range(2):
                    for e in range(2):
                        s = s + x[a, b, c, d, e]
                        t = s * 0.5 + t
                        y[a, b, c, d, e] = t
    return y


# ---- what loops run over, and functions inside functions


@case(R(4, 5))
def enumerated_rows(x):
    y = torch.zeros(x.shape[0], dtype=x.dtype)
    for i, row in enumerate(x):
        y[i] = row.sum()
    return y


@case(R(6))
def enumerated_from_one(x):
    y = torch.zeros_like(x)
    for i, v in enumerate(x, start=1):
        y[i - 1] = v * i
    return y


@case(R(6), R(4))
def as_long_as_the_shortest(x, w):
    y = torch.zeros_like(x)
    for i, (a, b) in enumerate(zip(x, w, strict=False)):
        y[i] = a - b
    return y


@case(R(6), R(6))
def equally_long(x, w):
    s = 0.0
    for a, b in zip(x, w, strict=True):
        s = s + a * b
    y = torch.zeros(1, dtype=x.dtype)
    y[0] = s
    return y


@case(R(7))
def ranges_side_by_side(x):
    n = x.shape[0]
    y = torch.zeros_like(x)
    for i, j in zip(range(n), range(n - 1, -1, -1), strict=False):
        y[i] += x[j]
    for k, i in enumerate(range(n - 1, 0, -2)):
        y[k] += x[i]
    for k, v in enumerate(reversed(x)):
        y[k] += v
    return y


@case(R(3, 4))
def rows_are_views(x):
    for row in x:
        row[0] = 1.0
        row *= 2
    for row in (x[0], x[1]):
        row[1] = row[0]


@case(R(6))
def rows_of_what_changes_later(x):
    for i, v in enumerate(x * 2):
        x[0] += v
        x[i] = v


@case(R(6))
def rows_are_read_when_their_turn_comes(x):
    n = x.shape[0]
    for i, v in enumerate(x):
        x[n - 1 - i] += v


@case(R(6))
def counting_tensors(x):
    n = x.shape[0]
    y = x * torch.arange(n) + torch.arange(1, 2 * n + 1, 2) + torch.arange(0.0, 3.0, 0.5, dtype=x.dtype)
    for i in torch.arange(n):
        y[i] += i * x[i]
    return y


@case(R(4, 6))
def first_above(x):
    n, m = x.shape
    where = torch.zeros(n, dtype=torch.int64)
    for i in range(n):
        k = -1
        for j in range(m):
            if x[i, j] > 0.7:
                k = j
                break
        where[i] = k
    return where


@case(R(4, 6))
def left_in_many_ways(x):
    n, m = x.shape
    y = torch.zeros_like(x)
    for i in range(n):
        for j in range(m):
            if x[i, j] > 0.2:
                if x[i, j] > 0.9:
                    break
                if x[i, j] > 0.6:
                    continue
                y[i, j] += 2
            y[i, j] += x[i, j]
        else:
            if i == 2:
                break
            y[i, 0] = -1.0
            continue
        y[i, 1] = 5.0
    else:
        y[0, 0] = 7.0
    return y


def sought(row, t):
    for j, v in enumerate(row):
        if v > t:
            return j, v
    return -1, 0.0


def any_above(row, t):
    for v in row:  # noqa: SIM110
        if v > t:
            return True
    return False


def limited(v):
    if v > 0.8:
        return 0.8
    elif v < 0.2:
        return 0.2
    return v


@case(R(4, 6))
def helpers_that_return_early(x):
    y = torch.zeros_like(x)
    for i in range(x.shape[0]):
        y[i, 0], y[i, 1] = sought(x[i], 0.5)
        y[i, 2] = limited(x[i, 2])
        if any_above(x[i], 0.9):
            y[i, 3] = 1.0
    return y


@case(R(6), 0)
def done_early(x, n):
    if n == 0:
        return x * 2, n
    y = torch.zeros_like(x)
    for i in range(x.shape[0]):
        y[i] = x[i] * n
    return y, n + 1


@case(R(6), 0.5)
def numbers_and_elements(x, t):
    count, total = 0, 0.0
    for v in x:
        if v > t:
            count += 1
            total = total + v
    return count, total, x[0], count > 2, 2 * t, [x.sum(), x][0]


@case(R(6), 0.5)
def place_of_the_first(x, t):
    for j in range(len(x)):
        if x[j] > t:
            return j
    return -1


@case(R(6), 0.5)
def filled_until(x, t):
    y = torch.zeros_like(x)
    for i, v in enumerate(x):
        if v > t:
            return y
        y[i] = v
    return y


@case(R(6))
def a_tuple_of_one(x):
    return (x * 2,)


@case(R(6))
def a_list(x):
    return [x * 2, len(x)]


@case(R(6), 3)
def nothing_to_do(x, n):
    if n == 0:
        return
    for i in range(x.shape[0]):
        x[i] *= n


@case(R(6))
def counted(x):
    i = 0
    s = 0.0
    y = torch.zeros(4, dtype=x.dtype)
    while i < x.shape[0]:
        s = s + x[i]
        i += 2
    y[0], y[1] = s, i
    while i >= 2:
        if x[i - 2] < 0.5:
            break
        i -= 1
    y[2] = i
    for i in range(1, x.shape[0]):  # noqa: B007
        if x[i] > 0.6:
            break
    y[2] += 10 * i
    k, v = 0, 0.0
    for k, (v, _) in enumerate(zip(x, x, strict=True)):  # noqa: B007
        if v > 0.5:
            break
    y[3] = k + v
    for w in WEIGHTS:
        if x[0] < w:
            y[3] = w
            break
    return y


@case(R(11), 3, -2)
def steps_of_the_call(x, s, t):
    y = torch.zeros_like(x)
    for i in range(0, len(x), s):
        y[i] += x[i]
    h = 0.0
    for i in range(len(x) - 1, -1, t):
        h = h + x[i]
        y[i] += h
    for k, i in enumerate(reversed(range(1, len(x), s))):
        y[k] += x[i]
    for i in range(0, len(x), t):
        y[i] = 100.0
    return y


WEIGHTS = (0.25, 0.5, 0.25)
halved = lambda v: v / 2  # noqa: E731


@case(R(6))
def constants_unrolled(x):
    taps = [2 * w for w in WEIGHTS if w > 0]
    y = torch.zeros_like(x)
    for i in range(2, x.shape[0]):
        for k, w in enumerate(taps):
            y[i] += w * x[i - k] * WEIGHTS[k]
    return y


@case(R(6))
def lambdas(x):
    square = lambda v: v * v  # noqa: E731
    y = torch.zeros_like(x)
    for i in range(x.shape[0]):
        y[i] = square(x[i]) + (lambda a, b=2: a * b)(x[i]) + halved(x[i])
    return y


@case(R(6))
def functions_inside(x):
    n = x.shape[0]
    k = 1.0

    def at(i, otherwise=0.0):
        return x[i] * k if i < n else otherwise

    def put(i, v):
        y[i] = v

    y = torch.zeros_like(x)
    for i in range(n):
        k = k + 1.0
        put(i, at(i) + at(i + 1))
    return y


def several(first, *rest, scale=2):
    return first * scale, rest[0] - rest[-1]


@case(R(6))
def helpers_with_several_results(x):
    y = torch.zeros_like(x)
    for i in range(x.shape[0]):
        a, b = several(x[i], 1.0, x[0], scale=3)
        y[i] = a - b
    return y


@case(R(6))
def tuples_hold_views(x):
    t = (x[0], [x[1], x[2]])
    x[0] = 5.0
    x[2] = 7.0
    y = torch.zeros(3, dtype=x.dtype)
    y[0], y[1], y[2] = t[0], t[1][0], t[1][1]
    return y


@pytest.mark.parametrize(("function", "args"), PROGRAMS, ids=[f.__name__ for f, _ in PROGRAMS])
def test_program_computes_what_the_python_computes(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    nest = check(function, function, args)
    assert show(nest).startswith(f"def {function.__name__}(")


@pytest.mark.parametrize(("function", "args"), PROGRAMS, ids=[f.__name__ for f, _ in PROGRAMS])
def test_signature_tells_what_is_written_and_returned(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    signature, nest = read_signature(function), parsed(function, *args)
    assert signature.names == tuple(source_of(function).node.args.args[k].arg for k in range(len(args)))
    assert signature.written == {a.name for a in nest.arrays if a.role == "inout"}
    parameters = [r if r in nest.parameters else None for r in nest.results]
    if None not in args:
        assert list(signature.results) == parameters


@pytest.mark.parametrize("name", weft.kernels.LIBRARY)
def test_library_kernels_parse_in_every_type(name: str) -> None:
    kernel = weft.kernels.LIBRARY[name]
    for dtype in (BFLOAT16, FLOAT32, FLOAT64):
        kinds = {p.name: p.kind for p in read_signature(kernel.py).parameters}
        ranks = infer_types(kernel.py)
        types = {n: TensorType(dtype, ranks[n].rank) if isinstance(ranks[n], TensorType) else FLOAT64 for n in kinds}
        nest = parse(kernel.py, types)
        assert nest.name == name and len(nest.results) == 1
        assert nest.array(nest.results[0]).dtype == dtype


# ---------------------------------------------------------------- the form


def test_names_are_the_users() -> None:
    text = show(parsed(linrec, R(3, 5), R(3, 5)))
    assert (
        text
        == """\
def linrec(x: float64[rows, length], c: float64[c_size_0, c_size_1]):
    y = result float64[rows, length]
    for r in range(rows):
        h = 0.0
        for l in range(length):
            h_1 = c[r, l] * h + x[r, l]
            y[r, l] = h_1
            h = h_1
        h_last = h
    return y
"""
    )


def test_implied_loops_are_marked_and_sizes_that_must_agree_are_listed() -> None:
    nest = parsed(ref_peeled, R(2, 3, 5), R(2, 3, 5))
    loops = [s for s in walk(nest.body) if isinstance(s, For)]
    assert [loop.var for loop in loops if not loop.implied] == ["l"]
    assert sum(loop.implied for loop in loops) == 4
    assert {e.what for e in nest.equalities} == {
        "along dimension -1 of tensors used together",
        "along dimension -2 of tensors used together",
    }


def test_locations_are_those_of_the_file() -> None:
    nest = parsed(helpers, R(4, 5))
    lines = Path(__file__).read_text().splitlines()
    texts = {lines[s.location.line - 1].strip() for s in walk(nest.body) if s.location is not None}
    assert "for i in range(n):" in texts
    assert "t = a * scale" in texts  # inside the helper
    assert all(s.location is not None and s.location.file == __file__ for s in walk(nest.body))


def test_private_scalars_are_not_carried_and_carries_find_their_type() -> None:
    nest = parsed(dead, R(3, 3))
    assert [c.name for s in walk(nest.body) if isinstance(s, For) for c in s.carries] == []
    nest = parse(linrec, {"x": TensorType(BFLOAT16, 2), "c": TensorType(BFLOAT16, 2)})
    (carry,) = [c for s in walk(nest.body) if isinstance(s, For) for c in s.carries]
    assert (carry.name, carry.type) == ("h", FLOAT32)


def test_local_arrays_are_fresh_in_their_loops_or_get_axes_for_them() -> None:
    nest = parsed(nested_private, R(6, 6))
    assert nest.array("h").within == ("i",)
    g = nest.array("g")
    assert g.within == () and len(g.shape) == 2


def test_a_text_is_a_source_and_its_lines_render() -> None:
    text = "def twice(x):\n    return scale(x, 2)\n\ndef scale(x, k):\n    return x * k * FACTOR\n\nFACTOR = 3.0\n"
    nest = parse(text, {"x": TensorType(FLOAT64, 1)}, name="twice")
    (result,) = interpret(nest, R(4))
    torch.testing.assert_close(result, R(4) * 6)
    assert nest.body[0].location is not None and nest.body[0].location.file == "<source>"


# ---------------------------------------------------------------- signatures, inference, fingerprints

GLOBAL = 2.0


def _scaled(x, i):
    return x[i] * GLOBAL


def _with_global(x):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        y[i] = _scaled(x, i)
    return y


def test_kinds_of_parameters() -> None:
    text = """
def g(a, k):
    return a[k]

def f(x, n, scale, idx, flag=True, eps=1e-5, count=3, bias: float = 0, w=None, free=None):
    y = torch.zeros(n)
    for i in range(count):
        y[i] = g(x, i) * scale + idx[i] + torch.exp(w)[i]
    y += free
    return y, x
"""
    signature = read_signature(text)
    kinds = {p.name: p.kind for p in signature.parameters}
    assert kinds == {
        "x": "tensor", "n": "int", "scale": "number", "idx": "tensor", "flag": "bool", "eps": "float",
        "count": "int", "bias": "float", "w": "tensor", "free": "number",
    }  # fmt: skip
    assert signature["eps"].default == 1e-5 and not signature["x"].has_default
    assert signature.results == (None, "x") and signature.written == frozenset()


def test_written_through_helpers_views_and_methods() -> None:
    text = """
def put(t, v):
    t[0] = v

def f(a, b, c, d):
    row = b[0]
    put(a, 1.0)
    row[1] = 2.0
    c[0].zero_()
    e = d.clone()
    e[0] = 1.0
    return e, d[0, 0] * a[0] * c[0, 0]
"""
    assert read_signature(text).written == {"a", "b", "c"}


@pytest.mark.parametrize(
    "body",
    [
        "t = [a[i] for i in range(2)]\n    t[0][0] = 5.0",
        "rows = [row for row in a]\n    rows[0][0] = 5.0",
        "(p, q), r = (a[0], a[1]), b[0]\n    p[0] = r[0]",
        "(p, _), *_ = a[0:2], b\n    p += 1",
        "row = lambda i: a[i]\n    row(2)[0] = 7.0",
        "def both(): return a[0], a[1]\n    p, q = both()\n    p[0] = q[1]",
        "y = b.clone()\n    def put(i): y[i, 0] = 1.0\n    y = a\n    put(0)",
        "for (i, p), q in zip(enumerate(a), reversed(b)): p[0] = q[0] + i",
        "y = +a; y[0] = 1.0",
    ],
)
def test_written_by_other_names(body: str) -> None:
    """The other argument is only read: a loop over both of them, or names for parts of both, does not write into it."""
    assert read_signature(f"def f(a, b):\n    {body}\n").written == {"a"}


def test_a_store_that_the_signature_does_not_tell_is_refused() -> None:
    text = """
def f(x):
    def first(): return x[0]
    def second(): return first()
    t = second()
    t[1] = 2.0
"""
    with pytest.raises(UnsupportedSyntax, match="a store into x by a name that does not tell so") as caught:
        weft.kernel(text)(torch.zeros(2, 2))
    assert caught.value.location is not None and caught.value.location.line == 6


def test_types_are_inferred_from_use() -> None:
    text = """
def f(x, w, idx, table, scale, n: int, q):
    *batch, L = x.shape
    y = torch.zeros_like(x)
    for l in range(idx.shape[0]):
        j = idx[l]
        y[..., l] = x[..., l] * w[l, j] + table[l][j][0] * scale + q.T[0, 0]
    return y
"""
    types = infer_types(text)
    assert types == {
        "x": TensorType(FLOAT32, 2), "w": TensorType(FLOAT32, 2), "idx": TensorType(INT64, 1),
        "table": TensorType(FLOAT32, 3), "scale": FLOAT64, "n": INT64, "q": TensorType(FLOAT32, 2),
    }  # fmt: skip


def test_fingerprint_follows_helpers_and_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(_with_global)
    assert before == fingerprint(_with_global)
    monkeypatch.setattr(f"{__name__}.GLOBAL", 3.0)
    changed = fingerprint(_with_global)
    assert changed != before
    monkeypatch.setattr(f"{__name__}._scaled", rowsum)
    assert fingerprint(_with_global) not in (before, changed)


# ---------------------------------------------------------------- random programs

NUMBERS = st.sampled_from(["0.5", "1.25", "-2.0", "3", "a", "0"])
ELEMENTS = st.sampled_from(
    ["x[i, j]", "x[i, 0]", "x[-1, j]", "y[i, j]", "c[j]", "h", "t", "x[i - 1, j] if i > 0 else h"]
)
LEAVES = NUMBERS | ELEMENTS


def _combine(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(lambda p: f"({p[0]}) {p[1]} ({p[2]})"),
        st.tuples(st.sampled_from(["max", "min"]), inner, inner).map(lambda p: f"{p[0]}({p[1]}, {p[2]})"),
        inner.map(lambda e: f"-abs({e})"),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} if ({p[1]}) > ({p[2]}) else {p[2]})"),
    )


EXPRESSIONS = st.recursive(LEAVES, _combine, max_leaves=4)
TARGETS = st.sampled_from(["h = {}", "t = {}", "y[i, j] = {}", "y[i, j] += {}", "z[j] = {}", "h = h * 0.5 + {}"])


@st.composite
def blocks(draw: st.DrawFn, depth: int = 2) -> list[str]:
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        if depth and draw(st.integers(0, 3)) == 0:
            condition = draw(EXPRESSIONS)
            lines += [f"if ({condition}) > 0.25:", *("    " + line for line in draw(blocks(depth - 1)))]
            if draw(st.booleans()):
                lines += ["else:", *("    " + line for line in draw(blocks(depth - 1)))]
        else:
            lines.append(draw(TARGETS).format(draw(EXPRESSIONS)))
    return lines


@given(body=blocks(), step=st.sampled_from(["n", "1, n", "n - 1, -1, -1", "0, n, 2"]), keep=st.booleans())
@examples(30)
def test_random_loops(body: list[str], step: str, keep: bool) -> None:
    lines = ["n, m = x.shape", "y = torch.zeros_like(x)", "z = torch.zeros_like(c)", "h = 0.0", "t = x[0, 0] * 1"]
    lines += [f"for i in range({step}):", *([] if keep else ["    h = 0.0"]), "    for j in range(m):"]
    lines += ["        " + line for line in body]
    lines += ["return y, z, h + x[0, 0] * t"]
    _check_text(lines)


@st.composite
def leaving(draw: st.DrawFn, exits: tuple[str, ...], depth: int = 2) -> list[str]:
    """Statements with exits anywhere among them; inner loops have exits of their own."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.integers(0, 5 if depth else 1))
        condition = draw(EXPRESSIONS)
        if kind < 2:
            lines.append(draw(TARGETS).format(draw(EXPRESSIONS)))
        elif kind == 2:
            lines += [f"if ({condition}) > 0.25:", f"    h = {draw(EXPRESSIONS)}", f"    {draw(st.sampled_from(exits))}"]
        elif kind < 5:
            lines += [f"if ({condition}) > 0.0:", *("    " + line for line in draw(leaving(exits, depth - 1)))]
            if draw(st.booleans()):
                lines += ["else:", *("    " + line for line in draw(leaving(exits, depth - 1)))]
        else:
            own = tuple(dict.fromkeys(("break", "continue", *(e for e in exits if e.startswith("return")))))
            lines += ["for j in range(m):", *("    " + line for line in draw(leaving(own, depth - 1)))]
            if draw(st.booleans()):
                lines += ["else:", "    h = h + 1.0", *(["    " + draw(st.sampled_from(exits))] * draw(st.integers(0, 1)))]
                lines += ["j = 1"]
            else:
                lines += ["j = 0"]
    return lines


# a break that is never come to, behind a loop whose else always goes on
_NEVER = ["if 0.5 > 0.0:", "    h = 0.5", "else:", "    for j in range(m):", "        h = 0.5", "    else:"]
_NEVER += ["        h = h + 1.0", "        continue", "    j = 1", "    if 0.5 > 0.25:", "        h = 0.5", "        break"]


@given(body=leaving(("break", "continue")), step=st.sampled_from(["n", "n - 1, -1, -1", "0, n, 2"]))
@example(body=_NEVER, step="n")
@examples(15)
def test_random_exits_of_loops(body: list[str], step: str) -> None:
    lines = ["n, m = x.shape", "y = torch.zeros_like(x)", "z = torch.zeros_like(c)", "h = 0.0", "t = x[0, 0] * 1", "k = 9"]
    lines += [f"for i in range({step}):", "    j = 0", *("    " + line for line in body), "    k = i"]
    lines += ["else:", "    t = 3.0", "return y, z, h + x[0, 0] * t + k"]
    _check_text(lines)


@given(body=leaving(("break", "continue", "return h, j", "return t, j + 1")))
@examples(30)
def test_random_returns(body: list[str]) -> None:
    inner = ["n, m = x.shape", "h = 0.0", "t = x[0, 0] * 1", "j = 0", "for i in range(n):", "    j = 0"]
    inner += [*("    " + line for line in body), "return h, 7"]
    lines = ["z = torch.zeros_like(c)", "y = torch.zeros_like(x)", "def inner(a):", *("    " + line for line in inner)]
    lines += ["for k in range(2):", "    h, j = inner(k - 0.5)", "    z[k] = h + j", "return y, z"]
    _check_text(lines)


SLICES = st.sampled_from(
    ["x[i]", "x[:, i].sum() * c", "x[i, :]", "c", "y[i]", "y[n - 1 - i]", "acc", "x.amax(0)", "acc[0]", "(x @ c)[i]"]
    + ["x[i] @ c", "a", "c[None, :].mean(0)", "x.T[:, i]", "y[0, 1:].sum()"]
)


def _combine_arrays(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        inner.map(lambda e: f"torch.tanh(c * {e})"),
    )


ARRAYS = st.recursive(SLICES, _combine_arrays, max_leaves=4)
FORMS = st.sampled_from(["y[i] = {}", "y[i] += {}", "acc = c * ({})", "acc = acc + {}", "y[:, i] = c * 0 + {}",
                         "y[i, 1:] = (c + ({}))[:-1]", "old = acc", "acc = old + {}"])  # fmt: skip


@given(forms=st.lists(st.tuples(FORMS, ARRAYS), min_size=1, max_size=4))
@examples(30)
def test_random_slices(forms: list[tuple[str, str]]) -> None:
    lines = ["n = x.shape[0]", "y = torch.zeros_like(x)", "acc = torch.zeros_like(c)", "old = c * 2"]
    lines += ["for i in range(n):", *("    " + form.format(value) for form, value in forms), "return y, acc, old * 1"]
    _check_text(lines)


def _check_text(lines: list[str]) -> None:
    text = "def program(x, c, a):\n" + "".join(f"    {line}\n" for line in lines)
    scope: dict[str, Any] = {"torch": torch}
    exec(text, scope)
    try:
        check(text, scope["program"], (R(4, 4) - 0.4, R(4), 0.75))
    except WeftError as refusal:  # a name that is a view of an element, which was stored into since
        assert "is a view of an element" in refusal.message or "is the variable of a loop" in refusal.message
