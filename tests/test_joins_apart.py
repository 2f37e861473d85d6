"""What loops join to elements that data choose, and what else they do, in loops of their own; gradients of ordinary programs
that are such loops.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import weft
from tests.test_segments import launches_of, same
from weft.loops.adjoint import adjoint
from weft.loops.analyze import schedule
from weft.plan.threads import ThreadPlan

R = torch.randn


@weft.kernel
def messages(source, target, weight, x, n: int):
    y = torch.zeros(n, x.shape[1])
    for e in range(source.shape[0]):
        for d in range(x.shape[1]):
            y[target[e], d] += weight[e] * x[source[e], d]
    return y


@weft.kernel
def combined(y, slot, weight):
    out = torch.empty(slot.shape[0], y.shape[1])
    for t in range(slot.shape[0]):
        for d in range(y.shape[1]):
            s = 0.0
            for k in range(slot.shape[1]):
                s += weight[t, k] * y[slot[t, k], d]
            out[t, d] = s
    return out


@weft.kernel
def graph_attention(starts, columns, left, right, v):
    rows, heads, d_ = starts.shape[0] - 1, left.shape[1], v.shape[2]
    y = torch.empty(rows, heads, d_)
    for r in range(rows):
        for h in range(heads):
            m = -math.inf
            for j in range(starts[r], starts[r + 1]):
                e = left[r, h] + right[columns[j], h]
                m = max(m, e if e > 0 else 0.2 * e)
            s = 0.0
            for j in range(starts[r], starts[r + 1]):
                e = left[r, h] + right[columns[j], h]
                s += torch.exp((e if e > 0 else 0.2 * e) - m)
            for d in range(d_):
                o = 0.0
                for j in range(starts[r], starts[r + 1]):
                    e = left[r, h] + right[columns[j], h]
                    o += torch.exp((e if e > 0 else 0.2 * e) - m) * v[columns[j], h, d]
                y[r, h, d] = o / (s + 1e-16)
    return y


@weft.kernel
def both(x, index, n: int):
    """Sums and counts: the sums come first, and are rounded in their own order."""
    count = torch.zeros(n)
    total = torch.zeros(x.shape[0])
    for i in range(x.shape[0]):
        s = 0.0
        for k in range(x.shape[1]):
            s += x[i, k]
            count[index[i, k]] += x[i, k]
        total[i] = s
        count[index[i, 0]] += s * s
    return count


@weft.kernel
def fed(x, index, n: int):
    """What is joined is read from what the loop stores."""
    count, seen = torch.zeros(n), torch.zeros(n)
    for i in range(x.shape[0]):
        seen[index[i]] = x[i]
        count[index[i]] += seen[index[(i + 1) % x.shape[0]]]
    return count


@weft.kernel
def under_conditions(x, index, n: int):
    y, z = torch.zeros(n), torch.zeros(x.shape[0])
    for i in range(x.shape[0]):
        k = 0.0
        if x[i] > 0:
            k = x[i] * 2
            y[index[i]] += k
        z[i] = k
        if index[i] > 1:
            y[index[i] - 1] += k
    return y + z.sum()


@weft.kernel
def loss(logits, target, ignore: int):
    total, n = 0.0, 0
    for r in range(logits.shape[0]):
        if target[r] != ignore:
            m = -math.inf
            for c in range(logits.shape[1]):
                m = max(m, logits[r, c])
            s = 0.0
            for c in range(logits.shape[1]):
                s += torch.exp(logits[r, c] - m)
            total += m + torch.log(s) - logits[r, target[r]]
            n += 1
    y = torch.empty(1)
    y[0] = total / max(n, 1)
    return y


@weft.kernel
def cross_entropy(logits, target):
    y = torch.empty(logits.shape[0])
    for r in range(logits.shape[0]):
        m = -math.inf
        for c in range(logits.shape[1]):
            m = max(m, logits[r, c])
        s = 0.0
        for c in range(logits.shape[1]):
            s += torch.exp(logits[r, c] - m)
        y[r] = m + torch.log(s) - logits[r, target[r]]
    return y


@weft.kernel
def picked_twice(x, a, b):
    """Two elements of a row that data choose, beside all of it: one of them or both are the same."""
    y = torch.empty(x.shape[0])
    for r in range(x.shape[0]):
        s = 0.0
        for c in range(x.shape[1]):
            s += x[r, c] * x[r, c]
        y[r] = s * x[r, a[r]] + x[r, b[r]]
    return y


@weft.kernel
def compact(x, keep):
    y = torch.zeros_like(x)
    k = 0
    for i in range(x.shape[0]):
        if keep[i]:
            y[k] = 2 * x[i]
            k += 1
    return y


@weft.kernel
def convolved(x, w):
    n, m = x.shape
    a, b = w.shape
    y = torch.empty(n - a + 1, m - 2 * (b - 1))
    for i in range(n - a + 1):
        for j in range(m - 2 * (b - 1)):
            s = 0.0
            for p in range(a):
                for q in range(b):
                    s += x[i + p, j + 2 * q] * w[p, q]
            y[i, j] = s
    return y


@weft.kernel
def taps_first(x, w):
    """The taps are the outer loop: an element's sum is over these all the same."""
    n, m = x.shape[0], w.shape[0]
    y = torch.zeros(n - m + 1)
    for k in range(m):
        for t in range(n - m + 1):
            y[t] += x[t + m - 1 - k] * w[k]
    return y


@weft.kernel
def rotated(cache, x, slots):
    """New keys in their slots of a cache, two halves of each: no element is stored by both statements."""
    half = x.shape[1] // 2
    for t in range(x.shape[0]):
        for d in range(half):
            cache[slots[t], d] = x[t, d] - x[t, d + half]
            cache[slots[t], d + half] = x[t, d + half] + x[t, d]


@weft.kernel
def stored_twice(cache, x, slots):
    """An element may be stored by both: the order shows."""
    for t in range(x.shape[0]):
        cache[slots[t]] = x[t]
        cache[slots[t] + 1] = -x[t]


def whole(high: int, *shape: int, low: int = 0) -> torch.Tensor:
    return torch.randint(low, high, shape)


CASES: dict[str, tuple[Any, Any]] = {
    "messages": (messages, lambda: (whole(7, 40, low=-7), whole(9, 40, low=-9), R(40), R(7, 5), 9)),
    "combined": (combined, lambda: (R(9, 5), whole(9, 40, 2), R(40, 2))),
    "graph_attention": (
        graph_attention,
        lambda: (torch.tensor([0, 3, 3, 9, 14]), whole(6, 14), R(4, 3), R(6, 3), R(6, 3, 5)),
    ),
    "graph_attention of ranges that meet": (
        graph_attention,
        lambda: (torch.tensor([0, 6, 3, 9, 14]), whole(6, 14), R(4, 3), R(6, 3), R(6, 3, 5)),
    ),
    "both": (both, lambda: (R(30, 4), whole(6, 30, 4), 6)),
    "fed": (fed, lambda: (R(30), whole(6, 30), 6)),
    "under_conditions": (under_conditions, lambda: (R(30), whole(6, 30), 6)),
    "loss": (loss, lambda: (R(9, 33), whole(33, 9, low=-1), -1)),
    "loss of nothing": (loss, lambda: (R(3, 5), whole(1, 3), 0)),
    "cross_entropy": (cross_entropy, lambda: (R(9, 33), whole(33, 9, low=-33))),
    "picked_twice": (picked_twice, lambda: (R(9, 5), whole(5, 9), whole(5, 9, low=-5))),
    "compact": (compact, lambda: (R(40), R(40) > 0)),
    "convolved": (convolved, lambda: (R(9, 8), R(3, 2))),
    "convolved with itself": (convolved, lambda: (R(3, 3), R(3, 2))),
    "taps_first": (taps_first, lambda: (R(9), R(4))),
}


@pytest.mark.parametrize("name", CASES)
def test_calls_and_gradients_are_those_of_the_loops(name: str) -> None:
    torch.manual_seed(0)
    kernel, make = CASES[name]
    same(kernel, *make())


@pytest.mark.parametrize("name", ["messages", "graph_attention", "loss", "cross_entropy", "compact", "convolved", "taps_first"])
def test_the_kernels_compute_what_the_loops_do(name: str) -> None:
    torch.manual_seed(1)
    kernel, make = CASES[name]
    report = kernel.check(*make(), gradients=True)
    assert not report.findings and report.ok, str(report)


@pytest.mark.parametrize(
    "name, wanted, in_order",
    [
        ("messages", ("weight", "x"), set()),
        ("combined", ("y", "weight"), set()),
        ("graph_attention", ("left", "right", "v"), set()),
        ("loss", ("logits",), set()),
        ("compact", ("x",), set()),
        ("convolved", ("x", "w"), set()),
        ("taps_first", ("x", "w"), set()),
    ],
)
def test_nothing_of_a_gradient_stays_in_order(name: str, wanted: tuple[str, ...], in_order: set[str]) -> None:
    kernel, make = CASES[name]
    found = schedule(adjoint(function_of(kernel, make()), wanted))
    assert {v.var for v in found.loops if v.kind == "sequential"} == in_order


@pytest.mark.parametrize("kernel, shape", [(rotated, (7, 6)), (stored_twice, (7,))], ids=["rotated", "stored_twice"])
def test_stores_of_elements_that_data_choose(kernel: Any, shape: tuple[int, ...]) -> None:
    torch.manual_seed(2)
    for slots in (torch.randperm(8)[:7], whole(8, 7)):
        cache, x = R(9, *shape[1:]), R(*shape)
        ours, theirs = cache.clone(), cache.clone()
        kernel(ours, x, slots)
        kernel.py(theirs, x, slots)
        assert torch.equal(ours, theirs)
        report = kernel.check(cache, x, slots)
        assert not report.findings and report.ok, str(report)
    parts = launches_of(rotated, "float32[70001,128]", "float32[30001,128]", "int64[30001]")
    assert not any(isinstance(launch.variant.plan, ThreadPlan) for launch in parts)


def function_of(kernel: Any, args: tuple[Any, ...]) -> Any:
    from weft.pytorch.call import call_types, repeated

    return kernel.specializable.function(call_types(kernel.signature, args, repeated(kernel.signature, args)), True)


def test_sums_and_what_is_joined_beside_them_are_kernels_of_their_own() -> None:
    found = launches_of(both, "float32[3000,40]", "int64[3000,40]", 60000)
    assert not any(isinstance(launch.variant.plan, ThreadPlan) for launch in found)
