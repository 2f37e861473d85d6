"""Gradients of kernels, to the second order, are those of PyTorch's autograd for their plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import weft
from tests.gradients import assert_same, assert_same_derivatives, derivatives, draw
from weft.kernels import rms_norm

pytestmark = pytest.mark.usefixtures("quickly_compiled")

torch.set_num_threads(1)

CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []


def case(*args: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A kernel and arguments for it."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        CASES.append((function, args))
        return function

    return register


# ---------------------------------------------------------------- one tensor, read at several constant places


@case(draw(3, 4), draw(2, 4))
def packed_parameter(x, p):
    y = torch.empty_like(x)
    for r in range(x.shape[0]):
        for d in range(x.shape[1]):
            y[r, d] = x[r, d] * p[0, d] + p[1, d]
    return y


@case(draw(3, 4), draw(3, 2))
def packed_by_rows(x, p):
    y = torch.empty_like(x)
    for r in range(x.shape[0]):
        for d in range(x.shape[1]):
            y[r, d] = x[r, d] * p[r, 0] + p[r, 1]
    return y


@case(draw(4, 4))
def rows_and_columns(x):
    """The same places in the text, once as a row and once as a column."""
    n = x.shape[0]
    y = torch.empty(n, dtype=x.dtype)
    for i in range(n):
        y[i] = x[i, 0] * x[0, i] + x[i, n - 1]
    return y


@case(draw(3, 5))
def both_ends(x):
    rows, length = x.shape
    y = torch.empty(rows, dtype=x.dtype)
    for n in range(rows):
        y[n] = x[n, 0] + 3 * x[n, length - 1]
    return y


@case(draw(4, 5), draw(4, 5), draw(2, 5))
def feature_modulation(x, z, film):
    rows, width = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        for d in range(width):
            y[r, d] = (1.0 + film[0, d]) * x[r, d] + film[1, d] * z[r, d]
    return y


@case(
    torch.tensor([[0.0, 0.1, 2.0, 2.3], [1.0, 1.2, 4.0, 3.0]], dtype=torch.float64),
    torch.tensor([[0.5, 0.4, 3.0, 2.7], [5.0, 5.0, 6.0, 6.0]], dtype=torch.float64),
)
def intersection_over_union(a, b):
    n, m = a.shape[0], b.shape[0]
    iou = torch.empty(n, m, dtype=a.dtype)
    for i in range(n):
        for j in range(m):
            w = max(min(a[i, 2], b[j, 2]) - max(a[i, 0], b[j, 0]), 0.0)
            h = max(min(a[i, 3], b[j, 3]) - max(a[i, 1], b[j, 1]), 0.0)
            inter = w * h
            area_a = (a[i, 2] - a[i, 0]) * (a[i, 3] - a[i, 1])
            area_b = (b[j, 2] - b[j, 0]) * (b[j, 3] - b[j, 1])
            iou[i, j] = inter / (area_a + area_b - inter)
    return iou


@case(draw(4, 3, 2))
def packed_attention_scores(qkv):
    """Queries, keys and values side by side: [T, 3, D]."""
    length, _, width = qkv.shape
    out = torch.empty(length, width, dtype=qkv.dtype)
    for i in range(length):
        for d in range(width):
            total = 0.0
            for j in range(length):
                s = 0.0
                for k in range(width):
                    s += qkv[i, 0, k] * qkv[j, 1, k]
                total += torch.tanh(s) * qkv[j, 2, d]
            out[i, d] = total
    return out


@case(draw(4, 2), draw(3))
def rotation(x, angle):
    n = x.shape[0]
    y = torch.empty_like(x)
    for i in range(n):
        c = torch.cos(angle[1])
        s = torch.sin(angle[1])
        y[i, 0] = c * x[i, 0] - s * x[i, 1]
        y[i, 1] = s * x[i, 0] + c * x[i, 1]
    return y


@case(draw(3, 3), draw(4, 3))
def distances(a, b):
    y = torch.empty(a.shape[0], b.shape[0], dtype=a.dtype)
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            dx = a[i, 0] - b[j, 0]
            dy = a[i, 1] - b[j, 1]
            dz = a[i, 2] - b[j, 2]
            y[i, j] = torch.sqrt(dx * dx + dy * dy + dz * dz + 0.1)
    return y


@case(draw(4, 2), draw(4))
def n_body(p, mass):
    n = p.shape[0]
    force = torch.empty_like(p)
    for i in range(n):
        fx = 0.0
        fy = 0.0
        for j in range(n):
            dx = p[j, 0] - p[i, 0]
            dy = p[j, 1] - p[i, 1]
            r = torch.rsqrt(dx * dx + dy * dy + 0.01)
            fx += mass[j] * dx * r * r * r
            fy += mass[j] * dy * r * r * r
        force[i, 0] = fx
        force[i, 1] = fy
    return force


@case(draw(6), draw(3))
def filter_taps(x, w):
    n = x.shape[0]
    y = torch.zeros_like(x)
    for t in range(2, n):
        y[t] = w[0] * x[t] + w[1] * x[t - 1] + w[2] * x[t - 2]
    return y


@case(draw(3, 6), draw(3))
def filter_taps_of_rows(x, w):
    rows, n = x.shape
    y = torch.zeros_like(x)
    for r in range(rows):
        for t in range(2, n):
            y[r, t] = w[0] * x[r, t] + w[1] * x[r, t - 1] + w[2] * x[r, t - 2]
    return y


@case(draw(3, 4), 1, 2)
def places_by_number(x, first: int, second: int):
    y = torch.empty(x.shape[0], dtype=x.dtype)
    for r in range(x.shape[0]):
        y[r] = x[r, first] + 2.0 * x[r, second] * x[r, first]
    return y


@case(draw(2, 3, 4))
def places_under_a_branch(x):
    n, _, m = x.shape
    y = torch.zeros(n, m, dtype=x.dtype)
    for i in range(n):
        for j in range(m):
            if j > 0:
                y[i, j] = x[i, 0, j - 1] * x[i, 2, j]
            else:
                y[i, j] = x[i, 1, j]
    return y


@case(draw(4, 5), draw(2, 2, 5))
def places_on_several_axes(x, p):
    rows, m = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        for d in range(m):
            y[r, d] = p[0, 1, d] * x[r, d] + p[1, 0, d] + p[1, 1, m - 1 - d] * p[0, 0, d]
    return y


# ---------------------------------------------------------------- where Python is one-sided


def row(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@case(row(0.0, 0.25, 4.0, 1.0))
def untaken_quotient(x):
    y = torch.zeros_like(x)
    for i in range(x.shape[0]):
        r = torch.sqrt(x[i])
        y[i] = 1.0 / r if r > 1.0 else x[i]
    return y


@case(row(0.0, 0.25, 4.0, 1000.0), row(1.0, math.inf, 2.0, 3.0))
def untaken_in_turn(x, w):
    """One name after the other leads to the branch; the exponential of the untaken one is infinite."""
    y = torch.zeros_like(x)
    for i in range(x.shape[0]):
        e = torch.exp(x[i])
        s = e * w[i]
        t = torch.log(s + 1.0)
        if x[i] > 20.0:
            y[i] = x[i]
        elif x[i] == 0.25:
            y[i] = 2.0 * x[i]
        else:
            y[i] = t
    return y


@case(row(0.0, 0.25), torch.tensor([[1.0, -1.0, -2.0], [3.0, 4.0, -5.0]], dtype=torch.float64))
def untaken_in_every_iteration(x, w):
    rows, n = w.shape
    y = torch.zeros_like(w)
    for r in range(rows):
        s = torch.sqrt(x[r])
        for j in range(n):
            y[r, j] = s * w[r, j] if x[r] > 0.1 else w[r, j]
    return y


@case(row(0.0, 0.0, 0.5, 0.25), row(1.0, -1.0, 1.0, -1.0))
def untaken_at_the_end_of_a_scan(x, c):
    """The last states go nowhere: what made them is not asked for its derivative."""
    n = x.shape[0]
    y = torch.zeros_like(x)
    h = 0.0
    for i in range(n - 1, -1, -1):
        h = torch.sqrt(h * x[i] + x[i])
        if c[i] < 0.0:
            y[i] = h
    return y


@case(row(0.0, 0.25, 2.0), row(0.0, 1.0, 1.0), 2)
def untaken_range(x, w, k: int):
    """A loop without iterations hands nothing on."""
    n = x.shape[0]
    y = torch.zeros_like(x)
    for i in range(n):
        s = torch.sqrt(x[i])
        for j in range(k - i, k):
            y[i] += s * w[j]
    return y


@case(row(0.0, 0.25, 4.0))
def torch_evaluates_both(x):
    y = torch.zeros_like(x)
    for i in range(x.shape[0]):
        y[i] = torch.where(x[i] > 1.0, torch.sqrt(x[i]), x[i])
    return y


@case(row(0.0, 0.25, 4.0))
def torch_takes_the_larger(x):
    """torch.maximum hands a zero to the smaller one, which its root makes NaN."""
    y = torch.zeros_like(x)
    one = torch.ones_like(x)
    for i in range(x.shape[0]):
        r = torch.sqrt(x[i])
        y[i] = torch.maximum(r, one[i]) + max(r, 0.75)
    return y


@case(row(0.0, -1.0, 1.0, 2.0, 0.5), row(0.0, -1.0, 2.0, 1.0, 0.5))
def ties(x, z):
    n = x.shape[0]
    y = torch.zeros(14, n, dtype=x.dtype)
    for i in range(n):
        a = x[i]
        b = z[i]
        y[0, i] = max(a, b)
        y[1, i] = min(a, b)
        y[2, i] = a if a >= b else b
        y[3, i] = a if a > b else b
        y[4, i] = b if a < b else a
        y[5, i] = b if a <= b else a
        y[6, i] = torch.maximum(a, b)
        y[7, i] = torch.minimum(a, b)
        y[8, i] = torch.fmax(a, b)
        y[9, i] = torch.fmin(a, b)
        y[10, i] = torch.clamp(a, b, b + 1.0)
        y[11, i] = torch.clamp(a, max=b)
        y[12, i] = a if a >= 0.0 else 0.0
        y[13, i] = max(0.0, a) + max(a, 0.0) * max(a, b, 0.0)
    return y


@case(row(0.0, -1.0, 1.0, 2.0, 0.5, -0.0))
def bounds(x):
    n = x.shape[0]
    y = torch.zeros(7, n, dtype=x.dtype)
    for i in range(n):
        y[0, i] = torch.relu(x[i])
        y[1, i] = torch.clamp(x[i], 0.0, 1.0)
        y[2, i] = torch.clamp(x[i], min=0.5)
        y[3, i] = x[i].clamp(max=0.5)
        y[4, i] = abs(x[i])
        y[5, i] = torch.nn.functional.leaky_relu(x[i])
        y[6, i] = torch.relu(x[i] * x[i] - 1.0) * x[i]
    return y


@case(torch.tensor([[2.0, 1.0, 2.0], [1.0, 1.0, 1.0], [-1.0, 0.0, 0.0]], dtype=torch.float64))
def carried_extrema(x):
    rows, n = x.shape
    y = torch.zeros(rows, 8, dtype=x.dtype)
    for r in range(rows):
        keeps = -math.inf
        replaces = -math.inf
        backwards = math.inf
        branch = 0.0
        equal = 0.0
        whole = torch.full((), 1.0, dtype=x.dtype)
        for i in range(n):
            keeps = max(keeps, x[r, i])
            replaces = max(x[r, i], replaces)
            if x[r, i] > branch:
                branch = x[r, i]
            equal = x[r, i] if x[r, i] >= equal else equal
            whole = torch.maximum(whole, x[r, i])
        for i in range(n - 1, -1, -1):
            backwards = min(backwards, x[r, i])
        y[r, 0] = keeps * keeps
        y[r, 1] = replaces
        y[r, 2] = branch
        y[r, 3] = equal
        y[r, 4] = whole
        y[r, 5] = backwards
        y[r, 6] = x[r].amax()
        y[r, 7] = x[r, 1:].amin()
    return y


@case(torch.tensor([[[2.0, 1.0, 2.0], [1.0, 2.0, 1.0]], [[-1.0, 0.0, 0.0], [0.0, -2.0, 0.0]]], dtype=torch.float64))
def extrema_over_several_loops(x):
    n, a, b = x.shape
    y = torch.zeros(n, 3, dtype=x.dtype)
    for r in range(n):
        m = -math.inf
        for i in range(a):
            for j in range(b):
                m = max(m, x[r, i, j])
        y[r, 0] = m
        y[r, 1] = x[r].amax()
        y[r, 2] = torch.amin(x[r, :, 1:], dim=(0, 1))
    return y


@case(torch.tensor([[2.0, 1.0, 2.0], [1.0, 3.0, 3.0]], dtype=torch.float64), row(1.0, 2.0, 5.0))
def what_goes_with_a_maximum(x, w):
    """The place of the maximum chooses another value: of the first, and of the last."""
    rows, n = x.shape
    y = torch.zeros(rows, 2, dtype=x.dtype)
    for r in range(rows):
        best = -math.inf
        first = 0.0
        last = 0.0
        other = -math.inf
        for i in range(n):
            if x[r, i] > best:
                best = x[r, i] + 0
                first = w[i] * best
            if x[r, i] >= other:
                other = x[r, i] + 0
                last = w[i] * other
        y[r, 0] = first
        y[r, 1] = last
    return y


def square_and_root(x):
    y = torch.empty_like(x)
    z = torch.empty_like(x)
    for i in range(x.shape[0]):
        y[i] = x[i] * x[i]
        z[i] = torch.sqrt(x[i])
    return y, z


def test_an_infinite_start_that_the_last_iteration_leaves_unused() -> None:
    """0 from no use times the infinity would be a NaN; PyTorch computes nothing there."""

    def unused(x, u):
        y = torch.zeros_like(x)
        h = -math.inf
        for i in range(x.shape[0]):
            if x[i] > 0:
                y[i] = 1.0 / h
            h = u[i] * h + 1.0
        return y

    x = torch.tensor([1.0, -1.0, 2.0, -1.0], dtype=torch.float64)
    assert_same_derivatives(weft.kernel(unused), x, x.abs() + 0.5, second=False)


def test_a_result_that_nothing_is_made_of() -> None:
    """Its derivative, infinite at 0, is not asked for."""
    kernel, x = weft.kernel(square_and_root), row(0.0, 0.25, 4.0)
    for chosen in (0, 1):
        want = derivatives(lambda x, k=chosen: square_and_root(x)[k], [x])
        assert_same(want, derivatives(lambda x, k=chosen: kernel(x)[k], [x]), "square and root")


# ---------------------------------------------------------------- what random programs found


@case(draw(4, 5).abs(), draw(4, 5, seed=1).abs())
def mirrored_rows_of_a_column(x, c):
    """In the second derivative, neighbours of an element are added under conditions that alone keep them inside."""
    n, m = x.shape
    y = torch.zeros(n, m, dtype=x.dtype)
    for i in range(2, m):
        for j in range(2):
            y[j] = torch.sqrt(c[j, i] + c[n - 1 - j, i] * c[n - 1 - j, i] + x[0])
    return y


@case(row(0.5, -1.0, 2.0), row(1.0, 0.25, -0.5))
def states_made_of_each_other(x, c):
    """In the second derivative, what one carried adjoint becomes is part of what another one does."""
    y = torch.zeros(1, dtype=x.dtype)
    a = 2.0
    b = -0.5
    d = -0.5
    for i in range(x.shape[0] - 1, -1, -1):
        a = -0.25 * a + -0.25 * b + 0.5 * d + x[i]
        b = -0.25 * b + 0.125 * d + abs(x[i])
        d = 0.125 * b + b * a + x[i] * c[i]
    y[0] = a
    return y


@case(row(1.0, 2.0, -1.5), row(0.5, -0.5, 0.7))
def an_infinite_state_that_a_loop_leaves(x, w):
    """What the loop inside starts with is saved for the adjoint; where it is infinite nothing is handed to it."""
    y = torch.zeros_like(w)
    h = -math.inf
    for i in range(x.shape[0]):
        h = x[i] * h
        for _ in range(2):
            h = w[i] if w[i] > h else h
            h = 0.5 * h + torch.sqrt(h * h + 1.0)
        y[i] = h
    return y


@case(row(0.0, 2.0, -1.5), row(0.5, -0.5, 0.7))
def what_no_one_reads_again(x, w):
    """An array of the iteration's own is stored into after it was read; the derivative of the root is infinite."""
    y = torch.zeros_like(w)
    for i in range(x.shape[0]):
        own = torch.zeros(2, dtype=x.dtype)
        own[0] = x[i] * w[i]
        y[i] = own[0] + w[i]
        own[1] = torch.sqrt(abs(x[i]))
    return y


@case(row(1.0, 2.0, 0.5, 1.0), row(0.5, -0.5, 0.7, 0.8))
def a_saved_state_of_windows(x, w):
    """The subscripts of what is saved do not show that each is stored once; nothing is handed to any."""
    y = torch.zeros_like(w)
    for i in range(x.shape[0]):
        h = w[i]
        for j in range(max(0, i - 2), i):
            h = torch.tanh(h + x[j] * -math.inf)
        if h < 0.0:
            h = w[i] * w[i]
        y[i] = h
    return y


@pytest.mark.parametrize(("function", "args"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_derivatives(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    assert_same_derivatives(weft.kernel(function), *args)


def test_gradients_of_calls_alike_come_the_short_way() -> None:
    """Once a backward has run, one like it takes a shorter way; what is not like it, or is looked at, takes the long one."""

    def checked(x: torch.Tensor, w: torch.Tensor, gy: torch.Tensor | None = None, **options: Any) -> tuple[torch.Tensor, ...]:
        gy = torch.randn_like(x) if gy is None else gy
        made = torch.autograd.grad(rms_norm(x, w), (x, w), gy, **options)
        torch.testing.assert_close(made, torch.autograd.grad(F.rms_norm(x, w.shape, w, 1e-6), (x, w), gy, **options))
        return made

    def given(*shape: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
        return tuple(torch.randn(s, dtype=dtype).requires_grad_() for s in (shape, shape[-1:]))  # type: ignore[return-value]

    for x, w in (given(4, 8), given(4, 8), given(4, 8, dtype=torch.float64), given(3, 8), given(8, 4)):
        checked(x, w)
    x, w = given(4, 8)
    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    y = rms_norm(x, w)
    with Mode():
        torch.autograd.grad(y, x, torch.ones_like(y))
    assert any("rms_norm_adjoint" in name for name in seen)
    kept = torch.randn(4, 8)
    made = checked(x, w, kept, create_graph=True)
    second = torch.autograd.grad(made[0].square().sum(), x)
    theirs = torch.autograd.grad(F.rms_norm(x, w.shape, w, 1e-6), x, kept, create_graph=True)[0]
    torch.testing.assert_close(second, torch.autograd.grad(theirs.square().sum(), x))
    gy = torch.randn(5, 4, 8)
    many = torch.autograd.grad(rms_norm(x, w), x, gy, is_grads_batched=True)[0]
    torch.testing.assert_close(many, torch.stack([torch.autograd.grad(rms_norm(x, w), x, g)[0] for g in gy]))
