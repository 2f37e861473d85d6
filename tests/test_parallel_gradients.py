"""Gradients of filters, transforms, norms and samplers as they are written: what is proven parallel runs in parallel."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import weft
from tests.gradients import examined_gradient
from tests.test_segments import same
from weft.compiler import unused
from weft.loops.intervals import bounds, farthest_apart
from weft.loops.ir import Const, Op, Ref
from weft.loops.preimages import course, first_reaching
from weft.loops.types import INT64
from weft.plan.threads import ThreadPlan
from weft.pytorch.inspection import sources

R = torch.randn


@weft.kernel
def biquad(x, c):
    batch, channels, length = x.shape
    y = torch.empty_like(x)
    for n in range(batch):
        for k in range(channels):
            x1, x2, y1, y2 = 0.0, 0.0, 0.0, 0.0
            for t in range(length):
                v = c[k, 0] * x[n, k, t] + c[k, 1] * x1 + c[k, 2] * x2 - c[k, 3] * y1 - c[k, 4] * y2
                x2 = x1
                x1 = x[n, k, t]
                y2 = y1
                y1 = v
                y[n, k, t] = v
    return y


@weft.kernel
def moved(x, c):
    """How far an average moves, and how far two steps before."""
    rows, length = x.shape
    y = torch.empty_like(x)
    for n in range(rows):
        h, before, earlier = 0.5, 0.25, 0.0
        for t in range(length):
            earlier = before
            before = h
            h = c[0] * h + c[-1] * x[n, t]
            y[n, t] = h - before + earlier * earlier
    return y


@weft.kernel
def butterflies(x, levels: int):
    rows, n = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        for i in range(n):
            y[r, i] = x[r, i]
    for s in range(levels):
        h = 1 << s
        z = torch.empty_like(x)
        for r in range(rows):
            for i in range(n):
                if i // h % 2 == 0:
                    z[r, i] = y[r, i] + y[r, i + h]
                else:
                    z[r, i] = y[r, i - h] - y[r, i]
        for r in range(rows):
            for i in range(n):
                y[r, i] = z[r, i] * z[r, i]
    return y


@weft.kernel
def smoothed(x, steps: int):
    """Each step from the one before, over a line whose first element comes after its last."""
    n = x.shape[0]
    y = torch.empty_like(x)
    for i in range(n):
        y[i] = x[i]
    for s in range(steps):
        z = torch.empty_like(x)
        for i in range(n):
            z[i] = y[i] + y[i - s] / 2
        for i in range(n):
            y[i] = z[i]
    return y


@weft.kernel
def instance_norm(x, w, b, eps: float):
    batch, channels, height, width = x.shape
    y = torch.empty_like(x)
    for n in range(batch):
        for c in range(channels):
            s = 0.0
            q = 0.0
            for i in range(height):
                for j in range(width):
                    s += x[n, c, i, j]
            mean = s / (height * width)
            for i in range(height):
                for j in range(width):
                    q += (x[n, c, i, j] - mean) * (x[n, c, i, j] - mean)
            r = torch.rsqrt(q / (height * width) + eps)
            for i in range(height):
                for j in range(width):
                    y[n, c, i, j] = (x[n, c, i, j] - mean) * r * w[c] + b[c]
    return y


@weft.kernel
def sampled(x, grid):
    channels, height, width = x.shape
    h = grid.shape[0]
    y = torch.empty(channels, h)
    for c in range(channels):
        for i in range(h):
            top, left = int(torch.floor(grid[i, 0])), int(torch.floor(grid[i, 1]))
            s = 0.0
            for a in range(2):
                for b in range(2):
                    if 0 <= top + a < height and 0 <= left + b < width:
                        s += x[c, top + a, left + b] * (a + 1) * (b + 2)
            y[c, i] = s
    return y


@weft.kernel
def sharpened(x):
    height, width = x.shape
    y = torch.empty_like(x)
    for i in range(height):
        for j in range(width):
            s = 0.0
            for a in range(-2, 3):
                for b in range(3):
                    s += x[min(max(i + a, 0), height - 1), min(max(2 * j + b, 0) // 2, width - 1)] * (a + b)
            y[i, j] = x[i, j] - s
    return y


@weft.kernel
def blurred(x, seen, reach: int):
    """Means over what a mask leaves of windows that end where the image does; of rows, a window that lies ahead."""
    height, width = x.shape
    y = torch.empty_like(x)
    for i in range(height):
        for j in range(width):
            s, count = 0.0, 0
            for a in range(max(i + 1, 2), min(i + 4, height)):
                for b in range(max(j - reach, 0), min(j + reach + 1, width)):
                    if seen[a, b]:
                        s += x[a, b] * x[a, b] * (a - i)
                        count += 1
            y[i, j] = s / max(count, 1)
    return y


@weft.kernel
def banded(x, z, reach: int):
    """What near positions have in common, counted from the last one backwards."""
    n, width = x.shape
    y = torch.zeros(n)
    for i in range(n):
        s = 0.0
        for k in range(min(i + reach, n) - 1, max(i - 2, 0) - 1, -1):
            for d in range(width):
                s += x[i, d] * z[k, d]
        y[i] = s
    return y


@weft.kernel
def centred(x, w):
    """A filter around each point, as far as there are points."""
    n, taps = x.shape[0], w.shape[0]
    y = torch.empty_like(x)
    for i in range(n):
        s = 0.0
        for k in range(max(i - taps // 2, 0), min(i + taps - taps // 2, n)):
            s += x[k] * w[k - i + taps // 2]
        y[i] = s
    return y


@weft.kernel
def largest_of_ranges(x, first, last):
    """Of ranges that data decide, which may meet: an element may be the largest of several."""
    many, width = first.shape[0], x.shape[1]
    y = torch.empty(many, width)
    for s in range(many):
        for d in range(width):
            m = -math.inf
            for t in range(first[s], last[s]):
                m = max(m, x[t, d])
            y[s, d] = m
    return y


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "centred": (centred, (R(7), R(3))),
    "centred of many taps": (centred, (R(3), R(8))),
    "largest of ranges": (largest_of_ranges, (R(9, 2), torch.tensor([0, 3, 2, 5, 5]), torch.tensor([4, 9, 5, 9, 5]))),
    "largest of ranges apart": (largest_of_ranges, (R(9, 2), torch.tensor([0, 3, 5]), torch.tensor([3, 5, 8]))),
    "blurred": (blurred, (R(7, 6), R(7, 6) > 0, 2)),
    "blurred of wide windows": (blurred, (R(5, 3), R(5, 3) > -1, 4)),
    "blurred of no windows": (blurred, (R(6, 3), R(6, 3) > -1, -1)),
    "banded": (banded, (R(7, 2), R(7, 2), 3)),
    "banded of one": (banded, (R(1, 2), R(1, 2), 0)),
    "biquad": (biquad, (R(2, 3, 7), R(3, 5) / 2)),
    "one step": (biquad, (R(2, 1, 1), R(1, 5))),
    "no step": (biquad, (R(2, 1, 0), R(1, 5))),
    "moved": (moved, (R(3, 6), R(4) / 2)),
    "butterflies": (butterflies, (R(3, 8) / 3, 3)),
    "smoothed": (smoothed, (R(7) / 2, 3)),
    "instance norm": (instance_norm, (R(2, 3, 4, 5), R(3), R(3), 1e-5)),
    "sampled": (sampled, (R(2, 4, 5), R(9, 2) * 4)),
    "sharpened": (sharpened, (R(4, 5),)),
    "sharpened line": (sharpened, (R(1, 1),)),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_loops(name: str) -> None:
    kernel, args = CASES[name]
    same(kernel, *args)


LARGE: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "biquad": (biquad, ("float32[64,20,16000]", "float32[20,5]")),
    "moved": (moved, ("float32[9001,1001]", "float32[4]")),
    "butterflies": (butterflies, ("float32[8192,1024]", 10)),
    "instance norm": (instance_norm, ("float32[31,65,101,99]", "float32[65]", "float32[65]", 1e-5)),
    "sampled": (sampled, ("float32[33,201,301]", "float32[60000,2]")),
}


@pytest.mark.parametrize("name", LARGE)
def test_no_thread_goes_through_points_in_order(name: str) -> None:
    kernel, specs = LARGE[name]
    found = examined_gradient(kernel, *specs)
    plans = [(one, one.variant.plan) for one in found.launches() if isinstance(one.variant.plan, ThreadPlan)]
    launches = [one for one, plan in plans if plan.several[1] == 1]  # others take several at once
    assert all(one.block[0] * one.grid[0] <= 128 for one in launches), launches  # what is left of coefficients
    assert len([one for one in found.launches() if one.steps]) <= 4
    assert sources(found, "sm_90a")  # also of elements at constant places, which a row may not have


def test_elements_gather_from_windows_that_end_at_the_ends() -> None:
    calls: list[tuple[Any, tuple[Any, ...]]] = [
        (blurred, ("float32[700,801]", "bool[700,801]", 3)),
        (banded, ("float32[30001,48]", "float32[30001,48]", 5)),
        (centred, ("float32[9000001]", "float32[11]")),
        (largest_of_ranges, ("float32[30011,96]", "int64[5003]", "int64[5003]")),
    ]
    for kernel, specs in calls:
        launches = examined_gradient(kernel, *specs).launches()
        assert not any(one.steps for one in launches)
        threads = [one for one in launches if isinstance(one.variant.plan, ThreadPlan)]
        assert all(one.block[0] * one.grid[0] > 30000 for one in threads), launches


def test_bounds_tell_their_iterations() -> None:
    """Nothing is looked up where sums, bounds and quotients of a variable choose the element."""
    found = examined_gradient(sharpened, "float32[700,800]")
    assert len(found.launches()) == 1
    assert all(a.role != "local" for a in found.analysis.function.arrays)
    assert not unused(found.launches()[0], found.names)  # each of the few is next to the element


def test_few_iterations_reach_an_element_at_the_end_of_windows() -> None:
    """Threads of a block would share them otherwise: as many as there are elements."""
    place, element, height = Ref("a", INT64), Ref("p", INT64), Ref("height", INT64)
    past = Op("add", (element, Const(1, INT64)), INT64)
    moved = Op("max", (Op("add", (Ref("i", INT64), place), INT64), Const(0, INT64)), INT64)
    clamped = Op("min", (moved, Op("sub", (height, Const(1, INT64)), INT64)), INT64)
    ends = [first_reaching(clamped, "i", e, Const(0, INT64), height) for e in (element, past)]
    assert ends[0] is not None and ends[1] is not None
    ranges = {"a": (-2, 2), "p": (0, 699)}
    assert farthest_apart(ends[0], ends[1], {"height": 700}, ranges) == 3
    assert bounds(ends[0], {"height": 700}, ranges)[1] <= 701


def test_what_reaches_a_value_follows_from_it() -> None:
    def evaluate(e: Any, i: int) -> int:
        match e:
            case Const(value=value):
                return int(value)
            case Ref():
                return i
            case Op(name=name, args=args):
                a, b, *rest = [*(evaluate(x, i) for x in args), 0]
                if name == "where":
                    return b if a else rest[0]
                if name == "neg":
                    return -a
                return {"add": a + b, "sub": a - b, "mul": a * b, "floordiv": a // b if b else 0, "max": max(a, b),
                        "min": min(a, b), "le": a <= b}[name]  # fmt: skip
        raise AssertionError(e)

    def op(name: str, a: Any, b: Any) -> Op:
        a, b = (Const(x, INT64) if isinstance(x, int) else x for x in (a, b))
        return Op(name, (a, b), INT64)

    var, start, stop = Ref("i", INT64), 2, 19
    told = [
        op("min", op("max", op("add", var, -5), 0), 7),
        op("floordiv", op("add", op("mul", 3, var), 1), 2),
        op("max", op("floordiv", op("sub", var, 4), 3), -1),
        op("min", 4, op("mul", op("max", var, 6), 2)),
    ]
    for e in told:
        assert course(e, "i") == "up"
        for target in range(-12, 40):
            first = first_reaching(e, "i", Const(target, INT64), Const(start, INT64), Const(stop, INT64))
            assert first is not None
            want = next((i for i in range(start, stop) if evaluate(e, i) >= target), stop)
            assert min(max(evaluate(first, 0), start), stop) == want
    turning = Op("abs", (op("sub", var, 4),), INT64)
    assert course(turning, "i") is None and first_reaching(turning, "i", var, var, var) is None
    assert course(op("sub", 9, var), "i") == "down"


def test_ranges_that_count_from_0_store_each_element_once() -> None:
    """Subscripts that data decide may be below 0; of ranges that are looked at none is."""

    @weft.kernel
    def sums(x, starts):
        rows, width = starts.shape[0] - 1, x.shape[1]
        y = torch.empty(rows, width)
        for s in range(rows):
            for d in range(width):
                total = 0.0
                for i in range(starts[s], starts[s + 1]):
                    total += x[i, d]
                y[s, d] = total
        return y

    found = examined_gradient(sums, "float32[5000,64]", "int64[21]")
    made = next(a for a in found.analysis.function.arrays if a.name == "grad_x")
    assert made.fill is None and not any(isinstance(one.variant.plan, ThreadPlan) for one in found.launches()[:-1])


def test_numbers_of_ranges_that_sum_over_columns_run_side_by_side() -> None:
    """The gradient of a bag's weights: a thread for each bag had all of its sums, 359 ms of 400,000 weights on an H200."""

    @weft.kernel
    def bags(table, index, weight, starts):
        y = torch.empty(starts.shape[0] - 1, table.shape[1])
        for b in range(starts.shape[0] - 1):
            for d in range(table.shape[1]):
                total = 0.0
                for k in range(starts[b], starts[b + 1]):
                    total += weight[k] * table[index[k], d]
                y[b, d] = total
        return y

    found = examined_gradient(bags, "float32[50000,64]", "int64[400000]", "float32[400000]", "int64[20001]")
    assert ["k"] in [[axis.var for axis in nest.axes] for nest in found.analysis.schedule.nests]
