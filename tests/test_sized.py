"""Subscripts that are no sums: sizes tell whether they are inside, and in how many bits their quotients are computed."""

from __future__ import annotations

import pytest
import torch

import weft
from tests.test_joins_apart import function_of
from weft.errors import OutOfRange
from weft.loops.analyze import schedule
from weft.loops.sized import sized

R = torch.randn
LINE = torch.linspace(-1, 1, 8)


@weft.kernel
def windows(x, size: int):
    height, width, channels = x.shape
    across, down = width // size, height // size
    y = torch.empty(down * across, size * size, channels)
    for w in range(down * across):
        for t in range(size * size):
            for c in range(channels):
                i = w // across * size + t // size
                y[w, t, c] = x[i, w % across * size + t % size, c]
    return y


@weft.kernel
def reflected(x, pad: int):
    n = x.shape[0]
    y = torch.empty(n + 2 * pad)
    for i in range(n + 2 * pad):
        r = abs(i - pad)
        if r >= n:
            r = 2 * (n - 1) - r
        y[i] = x[r]
    return y


@weft.kernel
def halved(x, first: int, by: int):
    y = torch.zeros_like(x)
    for i in range(x.shape[0]):
        if i >= first:
            y[i] = x[(i - first) // by] * 2
    return y


@weft.kernel
def in_ring(x, steps: int):
    n, width = x.shape
    y = torch.empty_like(x)
    ring = torch.zeros(steps, width)
    for t in range(n):
        for d in range(width):
            y[t, d] = ring[t % steps, d]
            ring[t % steps, d] = x[t, d] + 0.5 * ring[t % steps, d]
    return y


@weft.kernel
def rolled(x, by: int):
    n, m = x.shape
    y = torch.empty_like(x)
    for i in range(n):
        for j in range(m):
            y[(i + by) % n, j] = x[i, j]
    return y


def same(kernel, *args):
    torch.testing.assert_close(kernel(*args), kernel.py(*args))


def test_the_call_finds_them_inside_and_divides_in_32_bits():
    text = windows.source(torch.empty(14, 21, 8), 7, arch="sm_90a")
    assert "inside" not in text and "__trap" not in text
    assert "weft::quotient<uint32_t>(w, across)" in text and "weft::fetch<4, 4>(x_w_t" in text
    assert "inside" not in reflected.source(R(9), 3, arch="sm_90a")
    same(windows, R(4, 6, 3), 2)
    same(reflected, R(9), 8)


def test_what_sizes_do_not_show_is_looked_at():
    same(reflected, R(9), 9)  # the last one counts from the end
    assert "inside" in reflected.source(R(9), 19, arch="sm_90a")
    with pytest.raises(OutOfRange):
        reflected(R(9), 19)


def test_subscripts_below_0_count_from_the_end():
    for first, by in ((2, 2), (0, 3), (-3, 4), (20, 1)):
        same(halved, R(11), first, by)

    @weft.kernel
    def behind(x, by: int):
        y = torch.empty_like(x)
        for i in range(x.shape[0]):
            y[i] = x[i // by - 1]
        return y

    same(behind, R(7), 2)


@pytest.mark.parametrize("by", [0, -2])
def test_divisors_are_asked_for(by):
    if by == 0:
        with pytest.raises(ZeroDivisionError):
            halved.py(R(5), 0, by)
        with pytest.raises(Exception, match="zero"):
            halved(R(5), 0, by)
    else:
        same(halved, R(5), 0, by)


@pytest.mark.parametrize(("n", "steps"), [(23, 5), (20, 5), (3, 5), (6, 1), (0, 3)])
def test_a_ring_runs_place_by_place(n, steps):
    x = R(n, 3, requires_grad=True)
    own, other = in_ring(x, steps), in_ring.py(x, steps)
    torch.testing.assert_close(own, other)
    if n:
        g = R(n, 3)
        torch.testing.assert_close(*(torch.autograd.grad(y, x, g)[0] for y in (own, other)))


def test_a_ring_is_no_ring_where_its_loop_runs_without_it():
    @weft.kernel
    def beside(x, ring, steps: int):
        y = torch.zeros(x.shape[0])
        for t in range(x.shape[0]):
            y[t] = x[t] + 1
            for d in range(ring.shape[1]):
                y[t] += ring[t % steps, d]
                ring[t % steps, d] = x[t]
        return y

    for width, steps in ((2, 3), (0, -3)):
        ring = torch.zeros(3, width)
        torch.testing.assert_close(beside(LINE, ring.clone(), steps), beside.py(LINE, ring.clone(), steps))


def test_remainders_by_one_number_are_alike_where_numbers_are_or_lie_apart():
    found = schedule(sized(function_of(rolled, (R(5, 2), 3))))
    assert {v.kind for v in found.loops} == {"parallel"}
    for by in (3, -4):
        same(rolled, R(5, 2), by)
