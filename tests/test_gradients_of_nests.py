"""Gradients of nests with ranges of every kind are those that autograd finds for the plain Python, to the second order.

Autograd refuses values that are overwritten in place. So the Python runs on `Cells`, which hold a tensor for each element
and bind a new one where an element is stored.
"""

from __future__ import annotations

import inspect
import itertools
import linecache
import math
import random
import types
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from test_adjoint import call
from torch import Tensor

import weft
from tests.examples import examples
from weft.errors import NotDifferentiable, ShapeMismatch
from weft.language import TensorType, parse
from weft.loops.adjoint import adjoint
from weft.loops.agree import agreeing
from weft.loops.analyze import schedule
from weft.loops.show import show
from weft.loops.types import FLOAT64

pytestmark = pytest.mark.usefixtures("quickly_compiled")

torch.set_num_threads(1)

# ---------------------------------------------------------------- the oracle


class Cells:
    """A tensor as the plain Python sees it, its elements held apart."""

    def __init__(self, shape: Sequence[int], cells: dict[tuple[int, ...], Tensor], dtype: torch.dtype) -> None:
        self.shape, self.cells, self.dtype = tuple(shape), cells, dtype

    @staticmethod
    def of(tensor: Tensor) -> Cells:
        return Cells(tensor.shape, {i: tensor[i] for i in _indices(tensor.shape)}, tensor.dtype)

    @staticmethod
    def full(shape: Sequence[int], value: float, dtype: torch.dtype) -> Cells:
        return Cells(shape, {i: torch.tensor(value, dtype=dtype) for i in _indices(shape)}, dtype)

    def _key(self, index: Any) -> tuple[int, ...]:
        key = tuple(int(i) for i in (index if isinstance(index, tuple) else (index,)))
        assert key in self.cells, f"{key} is outside {self.shape}"
        return key

    def __getitem__(self, index: Any) -> Tensor:
        return self.cells[self._key(index)].clone()

    def __setitem__(self, index: Any, value: Any) -> None:
        self.cells[self._key(index)] = torch.as_tensor(value).to(self.dtype)

    def clone(self) -> Cells:
        return Cells(self.shape, dict(self.cells), self.dtype)

    def tensor(self) -> Tensor:
        return torch.stack([self.cells[i] for i in _indices(self.shape)]).reshape(self.shape)


def _indices(shape: Sequence[int]) -> list[tuple[int, ...]]:
    return list(itertools.product(*map(range, shape)))


def _on_numbers(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *args: function(*(a if isinstance(a, Tensor) else torch.tensor(a, dtype=torch.float64) for a in args))


_TORCH = types.SimpleNamespace(
    **{name: _on_numbers(getattr(torch, name)) for name in ("tanh", "sin", "exp", "sqrt", "sigmoid")},
    zeros=lambda *shape, dtype: Cells.full(shape, 0.0, dtype),
    zeros_like=lambda x: Cells.full(x.shape, 0.0, x.dtype),
    empty_like=lambda x: Cells.full(x.shape, math.nan, x.dtype),
    int64=torch.int64,
)


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The Python on cells, taking and returning tensors."""
    own = types.FunctionType(function.__code__, {**function.__globals__, "torch": _TORCH}, function.__name__)

    def run(*args: Any) -> tuple[Tensor, ...]:
        made = own(*(Cells.of(a) if isinstance(a, Tensor) else a for a in args))
        return tuple(c.tensor() for c in (made if isinstance(made, tuple) else (made,)))

    return run


def derivatives(function: Callable[..., Any], args: Sequence[Any]) -> list[Tensor]:
    """The results, the gradients of a weighted sum of them, and the gradients of a weighted sum of those."""
    leaves = [a.clone().requires_grad_(a.is_floating_point()) if isinstance(a, Tensor) else a for a in args]
    inputs = [a for a in leaves if isinstance(a, Tensor) and a.requires_grad]
    generator = torch.Generator().manual_seed(5)

    def weighted(tensors: Sequence[Tensor]) -> Tensor:
        zero = sum(((i * 0.0).sum() for i in inputs), start=torch.zeros((), dtype=torch.float64))
        moving = [t for t in tensors if t.is_floating_point()]
        return sum(((t * torch.randn(t.shape, dtype=t.dtype, generator=generator)).sum() for t in moving), start=zero)

    made = function(*leaves)
    results = list(made) if isinstance(made, tuple) else [made]
    options = {"allow_unused": True, "materialize_grads": True}
    first = torch.autograd.grad(weighted(results), inputs, create_graph=True, **options)
    second = torch.autograd.grad(weighted(first), inputs, **options)
    return [t.detach() for t in (*results, *first, *second)]


def compare(found: Callable[..., Any], function: Callable[..., Any], args: Sequence[Any]) -> None:
    want, got = derivatives(plain(function), args), derivatives(found, args)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)


def double(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + sum(shape)))


# ---------------------------------------------------------------- random nests


class Writer:
    """Writes a program over x [n], w [n] and a [n, n]: triangles, strides, windows, states, elements overwritten."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0
        self.budget = self.random.randint(2, 6)

    def pick(self, *options: str) -> str:
        return self.random.choice(options)

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def fresh(self, base: str) -> str:
        self.count += 1
        return f"{base}{self.count}"

    def source(self) -> str:
        self.line(0, "def f(x, w, a):")
        self.line(1, "n = x.shape[0]")
        self.line(1, self.pick("y = torch.zeros_like(x)", "y = x.clone()", "y = w.clone()"))
        self.line(1, self.pick("z = torch.zeros_like(a)", "z = a.clone()"))
        self.line(1, self.pick("t = torch.zeros_like(x)", "t = w.clone()"))
        for _ in range(self.random.choice([1, 1, 2, 3])):
            self.loop(1, [], [])
        self.line(1, f"return {self.pick('y, z', 'y', 'z', 'y, t', 't, z')}")
        return "\n".join(self.lines) + "\n"

    def range(self, outer: list[str]) -> str:
        bounds = ["n", "n", "n - 1, -1, -1", "0, n, 2", "1, n", "1, n, 2", "n - 1, 0, -2"]
        if outer:
            i = self.pick(*outer)
            bounds += [i, i, f"{i} + 1", f"{i}, n", f"{i} + 1, n", f"{i}, -1, -1", f"{i}, n, 2", f"n - {i}"]
            bounds += [f"max(0, {i} - 1), min(n, {i} + 2)", f"max(0, {i} - 2), {i} + 1"]
        return f"range({self.pick(*bounds)})"

    def index(self, outer: list[str]) -> str:
        if not outer:
            return self.pick("0", "n - 1")
        i = self.pick(*outer)
        return self.pick(i, i, i, f"n - 1 - {i}")

    def element(self, outer: list[str], arrays: str) -> str:
        array = self.pick(*arrays)
        if array in "az":
            return f"{array}[{self.index(outer)}, {self.index(outer)}]"
        return f"{array}[{self.index(outer)}]"

    def expr(self, outer: list[str], scalars: list[str], depth: int = 2) -> str:
        if depth == 0 or self.random.random() < 0.15:
            if scalars and self.random.random() < 0.4:
                return self.pick(*scalars)
            return self.element(outer, "xwytazytz")
        a, b = self.expr(outer, scalars, depth - 1), self.expr(outer, scalars, self.random.randint(0, depth - 1))
        return self.pick(f"({a} + {b})", f"({a} - 0.5 * {b})", f"{a} * {b}", f"0.5 * {a} * {b}", f"torch.sin({a})",
                         f"torch.tanh({a})", f"({a} if {b} > 0.1 else 0.5 * {b})")  # fmt: skip

    def store(self, depth: int, outer: list[str], scalars: list[str]) -> None:
        at, e = self.element(outer, "yytzz"), self.expr(outer, scalars)
        self.line(depth, self.pick(f"{at} = torch.tanh({e})", f"{at} = {at} + torch.tanh({e})",
                                   f"{at} += torch.sin({e})", f"{at} = {at} * torch.tanh({e})",
                                   f"{at} = 0.5 * {at} + torch.tanh({e})"))  # fmt: skip

    def loop(self, depth: int, outer: list[str], scalars: list[str]) -> None:
        var = self.fresh("i")
        state = self.fresh("s") if self.random.random() < 0.45 else None
        if state:
            self.line(depth, f"{state} = {self.pick('0.0', '0.5')}")
        self.line(depth, f"for {var} in {self.range(outer)}:")
        inner, known = [*outer, var], [*scalars, *([state] if state else [])]
        self.block(depth + 1, inner, known)
        if not state:
            return
        e = self.expr(inner, known)
        self.line(depth + 1, self.pick(f"{state} = torch.tanh({e}) + 0.5 * {state}",
                                       f"{state} = {state} + torch.sin({e})",
                                       f"{state} = 0.5 * {state} * torch.tanh({e}) + {self.element(inner, 'xyt')}",
                                       f"{state} = torch.sin({state} + {e})"))  # fmt: skip
        if self.random.random() < 0.5:
            self.store(depth + 1, inner, known)
        scalars.append(state)
        if self.random.random() < 0.7:
            self.line(depth, f"{self.pick('y', 't')}[{self.index(outer)}] = torch.tanh({state})")

    def block(self, depth: int, outer: list[str], scalars: list[str]) -> None:
        for _ in range(self.random.choice([1, 1, 2, 3])):
            kind = self.random.random()
            if kind < 0.35 and len(outer) < 3 and self.budget > 0:
                self.budget -= 1
                self.loop(depth, outer, scalars)
            elif kind < 0.5:
                name = self.fresh("u")
                self.line(depth, f"{name} = 1.0 * {self.expr(outer, scalars)}")
                scalars.append(name)
            elif kind < 0.62:
                self.line(depth, f"if {self.expr(outer, scalars, 1)} > 0.0:")
                self.store(depth + 1, outer, list(scalars))
                if self.random.random() < 0.4:
                    self.line(depth, "else:")
                    self.store(depth + 1, outer, list(scalars))
            else:
                self.store(depth, outer, scalars)


def defined(source: str, label: str) -> Callable[..., Any]:
    linecache.cache[label] = (len(source), None, source.splitlines(True), label)
    scope: dict[str, Any] = {"torch": torch}
    exec(compile(source, label, "exec"), scope)
    function: Callable[..., Any] = scope["f"]
    return function


_TYPES = {"x": TensorType(FLOAT64, 1), "w": TensorType(FLOAT64, 1), "a": TensorType(FLOAT64, 2)}


@given(st.integers(0, 10**9), st.integers(1, 5))
@examples(4)
def test_random_nests(seed: int, n: int) -> None:
    """No random nest is refused: what its gradient needs of values that are overwritten is saved."""
    source = Writer(seed).source()
    function = defined(source, f"<nest {seed}>")
    compare(call(parse(function, _TYPES)), function, [double(n), double(n, seed=1), double(n, n, seed=2)])


# ---------------------------------------------------------------- ranges that minima, maxima and data decide


def decaying_sums(x: Tensor, c: Tensor, lengths: Tensor) -> Tensor:
    y = torch.zeros(x.shape[0], dtype=x.dtype)
    for b in range(x.shape[0]):
        h = 0.0
        for t in range(lengths[b]):
            h = c[b, t] * h + torch.tanh(h) * x[b, t]
        y[b] = h
    return y


def ragged_softmax(x: Tensor, c: Tensor, lengths: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    for b in range(x.shape[0]):
        m = -math.inf
        s = 0.0
        for t in range(lengths[b]):
            new = max(m, x[b, t])
            s = s * torch.exp(m - new) + torch.exp(x[b, t] - new)
            m = new
        for t in range(lengths[b]):
            y[b, t] = torch.exp(x[b, t] - m) / s * c[b, t]
    return y


def packed_products(x: Tensor, ends: Tensor) -> Tensor:
    n = ends.shape[0] - 1
    y = torch.zeros(n, dtype=x.dtype)
    for i in range(n):
        s = 1.0
        for e in range(ends[i], ends[i + 1]):
            s = s * torch.sin(x[e])
        y[i] = s
    return y


def packed_rows(x: Tensor, ends: Tensor) -> Tensor:
    """States of as many numbers as rows have: the columns show how far the rows go."""
    y = torch.zeros(ends.shape[0] - 1, x.shape[1], dtype=x.dtype)
    for s in range(ends.shape[0] - 1):
        h = torch.zeros(x.shape[1], dtype=x.dtype)
        for t in range(ends[s], ends[s + 1]):
            for d in range(x.shape[1]):
                h[d] = torch.sin(h[d] * 1) + x[t, d]
        for d in range(x.shape[1]):
            y[s, d] = h[d]
    return y


def packed_states(x: Tensor, ends: Tensor) -> Tensor:
    n = ends.shape[0] - 1
    y = torch.zeros(n, dtype=x.dtype)
    for i in range(n):
        h = 0.5
        for t in range(ends[i + 1] - ends[i]):
            h = torch.tanh(h * x[ends[i] + t])
        y[i] = h
    return y


def windows(x: Tensor, c: Tensor, width: int) -> Tensor:
    n = x.shape[0]
    y = torch.zeros_like(x)
    for i in range(n):
        s = 0.0
        for j in range(max(0, i - width + 1), min(n, i + width)):
            s = torch.tanh(s) * c[j] + x[j] * x[i]
        y[i] = s
    return y


def banded_attention(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
    n, d = q.shape
    y = torch.zeros_like(q)
    for i in range(n):
        total = 0.0
        for j in range(max(0, i - width + 1), i + 1):
            s = 0.0
            for e in range(d):
                s += q[i, e] * k[j, e]
            p = torch.exp(s)
            total = total + p
            for e in range(d):
                y[i, e] += p * v[j, e]
        for e in range(d):
            y[i, e] = y[i, e] / total
    return y


def halved(x: Tensor, c: Tensor) -> Tensor:
    n = x.shape[0]
    y = torch.zeros_like(x)
    for i in range(n):
        h = 0.5
        for j in range(i % 3, (n + i) // 2):
            h = torch.sin(h * x[j] + c[i])
        y[i] = h
    return y


def _lengths(*values: int) -> Tensor:
    return torch.tensor(values)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (decaying_sums, (double(3, 6), double(3, 6, seed=1), _lengths(2, 0, 6))),
        (ragged_softmax, (double(3, 6), double(3, 6, seed=1), _lengths(2, 1, 6))),
        (packed_products, (double(10), _lengths(0, 3, 3, 7, 10))),
        (packed_states, (double(10), _lengths(0, 3, 3, 7, 10))),
        (packed_rows, (double(10, 3), _lengths(0, 3, 3, 7, 10))),
        (windows, (double(8), double(8, seed=1), 3)),
        (windows, (double(2), double(2, seed=1), 9)),
        (banded_attention, (double(6, 3), double(6, 3, seed=1), double(6, 3, seed=2), 2)),
        (halved, (double(7), double(7, seed=1))),
    ],
    ids=lambda p: p.__name__ if callable(p) else "",
)
def test_ranges(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    kernel = weft.kernel(function)
    compare(kernel, kernel.py, args)


def test_states_of_ranges_that_only_columns_bound_need_one() -> None:
    result = weft.kernel(packed_rows)(double(10, 0).requires_grad_(), _lengths(0, 4))
    with pytest.raises(ShapeMismatch, match=r"how far this loop goes where x.shape\[1\] is above 0 alone"):
        result.sum().backward()


def test_states_of_ranges_that_nothing_bounds_are_refused() -> None:
    def iterated(x: Tensor, counts: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        for b in range(x.shape[0]):
            h = x[b]
            for t in range(counts[b]):
                h = torch.sin(h + t)
            y[b] = h
        return y

    kernel = weft.kernel(iterated)
    result = kernel(double(3).requires_grad_(), _lengths(1, 0, 4))
    with pytest.raises(NotDifferentiable) as caught:
        result.sum().backward()
    text = str(caught.value)
    assert "h takes a new value in every iteration of the loop over t, and data decide how many there are" in text
    assert "for t in range(counts[b]):" in text and "x[t]" in text


# ---------------------------------------------------------------- loops without iterations


def overwritten(x: Tensor, c: Tensor, steps: int) -> Tensor:
    y = torch.zeros_like(x)
    for _ in range(1, steps):
        for j in range(x.shape[0]):
            y[j] = c[1, j] * x[j]
    return y


def gone_through(x: Tensor, c: Tensor, steps: int) -> Tensor:
    y = x.clone()
    for i in range(steps):
        for j in range(x.shape[0]):
            for k in range(i, steps):
                y[j] = torch.sin(y[j]) * c[1, j] + k
    return y


def overwritten_sums(x: Tensor, c: Tensor, steps: int) -> Tensor:
    y = torch.zeros_like(x)
    for _ in range(steps):
        for j in range(x.shape[0]):
            y[j] = 1.0
            for k in range(2, x.shape[0]):
                y[j] = y[j] * x[k] * c[1, j]
    return y


def summed(x: Tensor, c: Tensor, steps: int) -> Tensor:
    y = torch.zeros_like(x)
    for j in range(x.shape[0]):
        for _ in range(steps):
            for k in range(2, x.shape[0]):
                y[j] += x[k] * c[1, j]
    return y


def of_one_element(x: Tensor, c: Tensor, steps: int) -> Tensor:
    y = torch.zeros_like(x)
    for _ in range(steps):
        for j in range(1, x.shape[0]):
            y[j] = y[j - 1] + x[j] * c[1, 0]
    return y


@pytest.mark.parametrize("function", [overwritten, gone_through, overwritten_sums, summed, of_one_element])
def test_what_no_iteration_reads_may_be_outside(function: Callable[..., Any]) -> None:
    """c has no second row where no iteration would read it."""
    kernel = weft.kernel(function)
    empty = {(s, n) for s in (0, 1, 2) for n in (1, 2, 3) if _reads_no_more(function, double(n), s)}
    assert empty
    for steps, n in itertools.product((0, 1, 2), (1, 2, 3)):
        args = double(n), double(1 if (steps, n) in empty else 2, n, seed=1), steps
        compare(kernel, kernel.py, args)


def _reads_no_more(function: Callable[..., Any], x: Tensor, steps: int) -> bool:
    """Whether a function reads nothing of the second row."""
    try:
        plain(function)(x, double(1, len(x)), steps)
    except AssertionError:
        return False
    return True


# ---------------------------------------------------------------- memory


def mixed(x: Tensor, v: Tensor) -> Tensor:
    n, d = x.shape
    y = torch.empty_like(v)
    for i in range(n):
        for e in range(d):
            y[i, e] = 0.0
        for j in range(n):
            s = 0.0
            for e in range(d):
                s = s + x[i, e] * x[j, e]
            p = torch.sin(s)
            for e in range(d):
                y[i, e] = y[i, e] + p * v[j, e]
    return y


def test_sums_are_repeated_from_what_is_settled_in_memory() -> None:
    """The gradient of v sums p times an adjoint that an array holds: p is saved, not each of the products."""
    types_ = {"x": TensorType(FLOAT64, 2), "v": TensorType(FLOAT64, 2)}
    made = adjoint(agreeing(parse(mixed, types_))[0], ("x", "v"))
    assert max(len(a.shape) for a in made.arrays) == 2
    args = double(4, 3), double(4, 3, seed=1)
    compare(call(parse(mixed, types_)), mixed, args)


# ---------------------------------------------------------------- convolutions and stencils


def causal_convolution(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    batch, length = x.shape
    y = torch.empty_like(x)
    for b in range(batch):
        for l in range(length):
            s = 0.0
            for k in range(4):
                if l + k >= 3:
                    s += weight[k] * x[b, l + k - 3]
            y[b, l] = torch.tanh(s + bias[0])
    return y


def padded_convolution(x: Tensor, weight: Tensor) -> Tensor:
    height, width = x.shape
    y = torch.empty_like(x)
    for i in range(height):
        for j in range(width):
            s = 0.0
            for a in range(3):
                for b in range(3):
                    if 0 <= i + a - 1 < height and 0 <= j + b - 1 < width:
                        s += weight[a, b] * x[i + a - 1, j + b - 1]
            y[i, j] = s
    return y


def mirrored(x: Tensor, weight: Tensor) -> Tensor:
    """Places go down as the loops go up, and the condition holds for some."""
    n = x.shape[0]
    y = torch.zeros_like(x)
    for i in range(n):
        for k in range(2):
            if not (n - 2 - i + k < 0) and x[i] > -10.0:
                y[i] += weight[k] * x[n - 2 - i + k]
    return y


def either_end(x: Tensor) -> Tensor:
    n = x.shape[0]
    y = torch.empty_like(x)
    for i in range(n):
        left = x[i - 1] if i > 0 else 0.0
        right = x[i + 1] if i < n - 1 else 0.0
        y[i] = left * right + x[i] * x[i]
    return y


def heated(u: Tensor) -> Tensor:
    n, m = u.shape
    y = u.clone()
    for a in range(1, n - 1):
        for b in range(1, m - 1):
            around = u[a - 1, b] + u[a + 1, b] + u[a, b - 1] + u[a, b + 1]
            y[a, b] = u[a, b] + 0.1 * (around - 4 * u[a, b]) * u[a, b - 1]
    return y


def differences(x: Tensor) -> Tensor:
    """Rows as they are, and columns that reach two apart."""
    rows, n = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        for i in range(n):
            y[r, i] = x[r, i]
        for i in range(n - 2):
            y[r, i] = x[r, i] * x[r, i + 2] - x[r, i + 1]
    return y


def strided_convolution(x: Tensor, weight: Tensor) -> Tensor:
    """Windows begin two and three apart, as wide as a tensor says."""
    height, width = x.shape
    rows, columns = weight.shape
    y = torch.zeros_like(x)
    for i in range((height - rows) // 2 + 1):
        for j in range((width - columns) // 3 + 1):
            s = 0.0
            for a in range(rows):
                for b in range(columns):
                    s += weight[a, b] * x[2 * i + a, 3 * j + b]
            y[i, j] = s
    return y


def padded_windows(x: Tensor, weight: Tensor) -> Tensor:
    """Three apart, the first of them before the row."""
    rows, n = x.shape
    y = torch.zeros_like(x)
    for r in range(rows):
        for i in range((n + 1) // 3):
            for k in range(4):
                if 0 <= 3 * i + k - 1 < n:
                    y[r, i] += weight[r, k] * x[r, 3 * i + k - 1]
    return y


def largest_of_windows(x: Tensor) -> Tensor:
    rows, n = x.shape
    y = torch.zeros_like(x)
    for r in range(rows):
        for i in range((n - 3) // 2 + 1):
            m = -math.inf
            for k in range(3):
                m = max(m, x[r, 2 * i + k])
            y[r, i] = m
    return y


def biased_by_distance(x: Tensor, weight: Tensor) -> Tensor:
    """No loop is as long as the table."""
    n, m = x.shape
    y = torch.empty_like(x)
    for i in range(n):
        for j in range(m):
            y[i, j] = x[i, j] * weight[i - j + m - 1, 0]
    return y


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (strided_convolution, [(double(n, m), double(3, 4, seed=1)) for n, m in ((7, 8), (3, 4), (8, 9))]),
        (padded_windows, [(double(2, n), double(2, 4, seed=1)) for n in (1, 2, 5, 6, 10)]),
        (largest_of_windows, [(double(2, n),) for n in (3, 4, 7)]),
        (biased_by_distance, [(double(n, m), double(n + m - 1, 1, seed=1)) for n, m in ((3, 4), (1, 3), (4, 1))]),
        (causal_convolution, [(double(2, n), double(k), double(1, seed=2)) for n, k in ((7, 4), (3, 4), (1, 4), (5, 6))]),
        (padded_convolution, [(double(n, m), double(3, 3, seed=1)) for n, m in ((4, 5), (1, 1), (2, 6))]),
        (mirrored, [(double(n), double(2, seed=1)) for n in (1, 2, 6)]),
        (either_end, [(double(n),) for n in (1, 2, 3, 6)]),
        (heated, [(double(n, m),) for n, m in ((5, 6), (3, 3), (2, 4), (1, 1))]),
        (differences, [(double(2, n),) for n in (2, 3, 4, 7)]),
    ],
    ids=lambda p: p.__name__ if callable(p) else "",
)  # fmt: skip
def test_neighbours(function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> None:
    kernel = weft.kernel(function)
    for args in calls:
        compare(kernel, kernel.py, args)


@pytest.mark.parametrize(
    "function",
    [
        causal_convolution,
        padded_convolution,
        heated,
        differences,
        strided_convolution,
        padded_windows,
        largest_of_windows,
        biased_by_distance,
    ],
)
def test_gradients_of_neighbours_run_in_parallel(function: Callable[..., Any]) -> None:
    ranks = {"x": 2, "u": 2, "weight": 1 if function is causal_convolution else 2, "bias": 1}
    types_ = {n: TensorType(FLOAT64, ranks[n]) for n in inspect.signature(function).parameters}
    made = schedule(adjoint(agreeing(parse(function, types_))[0], tuple(types_)))
    assert all(v.kind in ("parallel", "reduction") for nest in made.nests for _, v in nest.verdicts)


def alike_in_windows(x: Tensor, weight: Tensor) -> Tensor:
    n, m = x.shape
    y = torch.zeros_like(x)
    for i in range(n - 2):
        for j in range(m - 1):
            s = 0.0
            for a in range(3):
                for b in range(2):
                    s += x[i + a, j + b] * weight[i + a, j + b]
            y[i, j] = s
    return y


def test_gradients_of_windows_sum_over_their_few_points_whatever_array_the_sizes_are_of() -> None:
    types_ = {"x": TensorType(FLOAT64, 2), "weight": TensorType(FLOAT64, 2)}
    text = show(adjoint(parse(alike_in_windows, types_), ("x", "weight")))
    assert all(text.count(f"in range({points}):") == 2 for points in (3, 2))
    compare(weft.kernel(alike_in_windows), alike_in_windows, (double(5, 6), double(5, 6, seed=1)))


def test_windows_that_reach_an_element_are_gone_through_alone() -> None:
    """Of those that begin two apart and are three wide there are two, each read inside of its array without being asked."""
    kernel = weft.kernel(largest_of_windows)
    x = torch.rand(3, 70)
    report = kernel.check(x, gradients=True)
    assert report.ok, report.text()
    types_ = {"x": TensorType(FLOAT64, 2)}
    made = adjoint(agreeing(parse(largest_of_windows, types_))[0], ("x",))
    assert "for i_1 in range(max(0, (k_1 - 3) // 2 + 1), min((n - 3) // 2 + 1, k_1 // 2 + 1))" in show(made)


# ---------------------------------------------------------------- tensors longer than their loops


def weighted(x: Tensor, w: Tensor) -> Tensor:
    y = torch.empty_like(x)
    for t in range(x.shape[0]):
        y[t] = x[t] * w[t] * w[t]
    return y


def advantages(rewards: Tensor, values: Tensor, gamma: float) -> Tensor:
    steps = rewards.shape[0]
    y = torch.empty_like(rewards)
    run = 0.0
    for t in range(steps - 1, -1, -1):
        delta = rewards[t] + gamma * values[t + 1] - values[t]
        run = delta * delta + 0.95 * gamma * run
        y[t] = run
    return y


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    rows, length, d = x.shape
    y = torch.empty_like(x)
    for b in range(rows):
        for t in range(length):
            for j in range(d // 2):
                y[b, t, 2 * j] = x[b, t, 2 * j] * cos[t, j] - x[b, t, 2 * j + 1] * sin[t, j]
                y[b, t, 2 * j + 1] = x[b, t, 2 * j] * sin[t, j] + x[b, t, 2 * j + 1] * cos[t, j]
    return y


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (weighted, [(double(5), double(8)), (double(5), double(5, seed=1)), (double(1), double(3))]),
        (advantages, [(double(6), double(7), 0.9), (double(6), double(9), 0.9)]),
        (rotated, [(double(2, 4, 6), double(n, 3), double(m, 3, seed=1)) for n, m in ((4, 4), (9, 9), (4, 6))]),
    ],
    ids=lambda p: p.__name__ if callable(p) else "",
)
def test_tensors_longer_than_their_loops(function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> None:
    """What no iteration reads has the gradient zero, whichever call comes first."""
    kernel = weft.kernel(function)
    for args in calls:
        compare(kernel, kernel.py, args)


def test_sizes_that_agree_as_expected_cost_no_zeros() -> None:
    """The adjoint for such calls stores each gradient once and fills nothing."""
    types_ = {"x": TensorType(FLOAT64, 1), "w": TensorType(FLOAT64, 1)}
    any_sizes = parse(weighted, types_)
    assert adjoint(any_sizes, ("x", "w")).array("grad_w").fill is not None
    made, pairs = agreeing(adjoint(agreeing(any_sizes)[0], ("x", "w")))
    assert made.array("grad_w").fill is None
    assert ("x_size_0", "w_size_0") in pairs


# ---------------------------------------------------------------- results that are indices


def best(x: Tensor) -> tuple[Tensor, Tensor]:
    rows, length = x.shape
    value = torch.empty(rows, dtype=x.dtype)
    at = torch.empty(rows, dtype=torch.int64)
    for r in range(rows):
        highest = -math.inf
        place = 0
        for l in range(length):
            if x[r, l] > highest:
                highest = x[r, l]
                place = l
        value[r] = highest
        at[r] = place
    return value, at


def routed(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    rows, experts = x.shape
    at = torch.zeros(rows, count, dtype=torch.int64)
    share = torch.zeros(rows, count, dtype=x.dtype)
    taken = torch.zeros(rows, experts, dtype=torch.bool)
    for r in range(rows):
        for k in range(count):
            highest = -math.inf
            place = 0
            for e in range(experts):
                if not taken[r, e] and x[r, e] > highest:
                    highest = x[r, e]
                    place = e
            taken[r, place] = True
            at[r, k] = place
        total = 0.0
        for k in range(count):
            total += torch.exp(x[r, at[r, k]])
        for k in range(count):
            share[r, k] = torch.exp(x[r, at[r, k]]) / total
    return at, share


def test_results_that_are_indices_have_no_gradient() -> None:
    kernel = weft.kernel(best)
    x = double(3, 5).requires_grad_()
    value, at = kernel(x)
    assert value.requires_grad and not at.requires_grad
    assert torch.equal(at, x.argmax(1))
    assert torch.autograd.gradcheck(kernel, (x,))
    assert torch.autograd.gradgradcheck(kernel, (x,))


def test_indices_before_the_values_they_choose() -> None:
    kernel = weft.kernel(routed)
    x = double(4, 6).requires_grad_()
    at, share = kernel(x, 2)
    assert share.requires_grad and not at.requires_grad
    # the gradient check of PyTorch takes results that are no floats after those that are
    assert torch.autograd.gradcheck(lambda x: kernel(x, 2)[1], (x,))
    assert torch.autograd.gradgradcheck(lambda x: kernel(x, 2)[1], (x,))
    grad = torch.autograd.grad((share * share).sum(), x)[0]
    chosen, order = x.topk(2, 1)
    assert torch.equal(order, at)
    want = torch.autograd.grad((chosen.softmax(1) ** 2).sum(), x)[0]
    torch.testing.assert_close(grad, want)
