"""Programs that weft once computed wrongly, or refused without cause; each is compared with its plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import weft
from tests.fuzz_programs import compiled
from tests.gradients import assert_same_derivatives
from weft.errors import OutOfRange, UndefinedName
from weft.runtime import nvrtc

CASES: list[Callable[..., Any]] = []


def case(function: Callable[..., Any]) -> Callable[..., Any]:
    CASES.append(function)
    return function


def values(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) - 0.5


@case
def a_largest_that_nothing_needs_beside_a_swap(x):
    n, m = x.shape
    y = torch.zeros(n, dtype=x.dtype)
    for r in range(n):
        largest, a, b = x[r, 0] * 1, x[r, 0], 0.5
        for i in range(m):
            largest = max(largest, x[r, i - 1])
            a, b = b, a
        for i in range(m):
            largest = x[r, (i + 3) % m] if x[r, i - 1] > largest else largest
        y[r] = a
    return y


@case
def an_array_of_each_iteration_beside_a_sum_from_the_end(x):
    n, m = x.shape
    r = torch.zeros(3, dtype=x.dtype)
    for j in range(n):
        total = 0.0
        for i in range(m - 3, -1, -1):
            pair = torch.zeros(2, dtype=x.dtype)
            total -= x[j, i]
            pair[1] = x[j, i + 1] - 0.5 * total
            r[1] = pair[1]
    return r


@case
def an_array_of_each_iteration_of_loops_that_change_places(x):
    """The inner loop is the axis, so the array is fresh in every iteration of the outer one, which is inside it then."""
    n, m = x.shape
    y = torch.zeros_like(x)
    for i in range(1, n):
        for j in range(m):
            pair = torch.zeros(2, dtype=x.dtype)
            for k in range(2):
                pair[k] = pair[k] + x[i, j]
            y[i, j] = torch.tanh(y[i - 1, j]) + pair[0] * pair[1]
    return y


@case
def an_element_of_an_array_of_each_iteration_of_loops_that_change_places(x):
    n, m = x.shape
    y = torch.zeros_like(x)
    for i in range(1, n):
        for j in range(m):
            pair = torch.ones(2, dtype=x.dtype)
            pair[0] = pair[0] * 0.5 + x[i, j]
            y[i, j] = torch.tanh(y[i - 1, j]) + pair[0] * pair[1]
    return y


@case
def an_array_of_each_iteration_that_nothing_reads(x):
    n, m = x.shape
    y = torch.zeros(n, dtype=x.dtype)
    total = 0.0
    for i in range(n - 1, -1, -1):
        pair = torch.zeros(2, dtype=x.dtype)
        total -= x[i, 0]
        pair[1] = x[i, m - 1] - 0.5 * total
    return y


@case
def starts_anew_from_infinity(x):
    """0 * infinity is NaN; the program does not multiply."""
    n, m = x.shape
    y = torch.zeros_like(x)
    for i in range(n):
        h = -math.inf
        for j in range(m):
            if x[i, j] > 0:
                h = x[i, j] * 2
            y[i, j] = h
    return y


@case
def last_value_after_infinity(x):
    n, m = x.shape
    y = torch.zeros_like(x)
    for i in range(n):
        h = math.inf
        for j in range(m):
            y[i, j] = h
            h = 0.5 * x[i, j]
    return y


@case
def adds_what_it_then_overwrites(x):
    n, m = x.shape
    z = x * 2
    y = torch.zeros_like(x)
    for i in range(n):
        s = 0.5
        for j in range(m):
            s = z[i, j] + s
            z[i, j] = x[i, j] - 3
            y[i, j] = s
    return y, z


@case
def overwritten_on_one_branch(x):
    n, m = x.shape
    z = x * 2
    y = torch.zeros(n, dtype=x.dtype)
    for i in range(n):
        s = 0.0
        for j in range(m):
            s += z[i, 0] * z[i, j]
            if x[i, j] > 0:
                z[i, 0] = s
        y[i] = s
    return y


@case
def stepped_slice(x):
    y = torch.zeros_like(x)
    y[:, ::2] = 0.5 * x[:, ::2]
    y[:, 1::3] = x[:, 1::3]
    return y


@case
def halves(x):
    n, m = x.shape
    y = torch.zeros(n, (m + 1) // 2, dtype=x.dtype)
    for i in range(n):
        for j in range((m + 1) // 2):
            y[i, j] = x[i, 2 * j]
    return y


@case
def guarded_in_both_branches(x):
    n, m = x.shape
    y = torch.empty_like(x)
    for i in range(n):
        for j in range(m):
            if j == 0:
                y[i, j] = x[i, j]
            else:
                t = 0.5 * y[i, j - 1]
                y[i, j] = t + x[i, j]
    return y


@case
def flattened(x):
    n, m = x.shape
    y = torch.zeros(n * m, dtype=x.dtype)
    for i in range(n * m):
        y[i] = x[i // m, i % m]
    return y


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("shape", [(3, 7), (2, 40), (1, 1), (0, 3)])
def test_computes_what_the_python_computes(function: Callable[..., Any], shape: tuple[int, int]) -> None:
    x = values(*shape)
    found, expected = weft.kernel(function)(x.clone()), function(x.clone())
    torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("range_", ["lengths[i]", "lengths[i] - 1, -1, -1"])
def test_what_stands_beyond_a_range_that_data_decide_is_what_was_there(range_: str) -> None:
    """A loop over all of a row reads what one over a part of it stored: there alone."""
    text = f"""def program(x, lengths):
    n, m = x.shape
    y = torch.zeros_like(x)
    z = torch.zeros_like(x)
    for i in range(n):
        for j in range({range_}):
            y[i, j] = 2 * x[i, j]
        h = 0.0
        for j in range(m):
            h = 0.5 * h + y[i, j]
            z[i, j] = h
    return z
"""
    program = compiled(text, f"<range({range_})>")
    x, lengths = values(3, 5), torch.tensor([0, 5, 2])
    torch.testing.assert_close(weft.kernel(program)(x, lengths), program(x, lengths))


def test_gradients_of_a_part_of_a_state_are_those_of_this_part() -> None:
    def partial_sums(x, lengths):
        n, m = x.shape
        y = torch.zeros_like(x)
        z = torch.zeros(n, dtype=x.dtype)
        for i in range(n):
            h = 0.0
            for j in range(m):
                h = 0.5 * h + x[i, j]
                y[i, j] = h
            for j in range(lengths[i]):
                z[i] += y[i, j] * (j + 1)
        return z

    x, lengths = values(3, 3), torch.tensor([0, 3, 1])
    assert_same_derivatives(weft.kernel(partial_sums), x, lengths)


def test_gradients_beside_a_loop_that_does_not_run() -> None:
    """It is left out, and no other one in its place."""

    def states_and_others(x, w, b, n, k):
        z = torch.zeros_like(x)
        for r in range(x.shape[0]):
            h = b[r] * 1
            for t in range(n[r]):
                h = 0.5 * h + w[t]
                z[r, t] = h
            for t in range(1, x.shape[1]):
                if k[r] == 0:
                    z[r, t] = b[r] + z[r, 0]
        return z

    lengths = torch.tensor([1, 0, 1])
    assert_same_derivatives(weft.kernel(states_and_others), values(3, 1), values(1), values(3), lengths, lengths, second=False)


def test_what_a_row_has_in_common_may_be_none_of_its_array_where_there_are_no_points() -> None:
    """The sizes of `lengths` are what a kernel for a GPU then asks."""

    def states_and_largest(x, lengths):
        y = torch.zeros_like(x)
        largest = torch.zeros(4, dtype=x.dtype)
        for r in range(4):
            h, most = 1.0, -1.0
            for t in range(x.shape[1]):
                if t < lengths[r]:
                    h = 0.5 * h + x[r, t]
                    most = max(most, x[r, t])
                y[r, t] = h
            largest[r] = most
        return y, largest

    report = weft.kernel(states_and_largest).check(values(4, 0), torch.tensor([1]))
    assert report.ok and not report.findings, report.text()


def test_ragged_rows_run_as_far_as_the_data_say() -> None:
    def ragged(x, lengths):
        n, m = x.shape
        y = torch.zeros_like(x)
        for i in range(n):
            for j in range(int(lengths[i])):
                y[i, j] = 2 * x[i, j]
        return y

    kernel, x = weft.kernel(ragged), values(3, 5)
    lengths = torch.tensor([0, 5, 2])
    torch.testing.assert_close(kernel(x, lengths), ragged(x, lengths))
    with pytest.raises(OutOfRange, match="leaves (x|y)"):
        kernel(x, torch.tensor([0, 6, 2]))


def test_an_array_whose_size_is_no_sum_is_not_left() -> None:
    def halved(x):
        n = x.shape[0]
        y = torch.zeros(n // 2, dtype=x.dtype)
        for i in range(n):
            y[i] = x[i]
        return y

    def squared(x):
        n = x.shape[0]
        y = torch.zeros(n * n, dtype=x.dtype)
        for i in range(n * n + 1):
            y[i] = x[0]
        return y

    for function in (halved, squared):
        with pytest.raises(OutOfRange):
            weft.kernel(function)(values(6))


def test_a_subscript_of_what_nothing_uses_is_checked() -> None:
    def unused(x):
        y = torch.zeros_like(x)
        for i in range(x.shape[0]):
            t = x[i + 1]  # noqa: F841
            y[i] = 1.0
        return y

    with pytest.raises(OutOfRange, match="index i \\+ 1"):
        weft.kernel(unused)(values(4))


def test_an_element_that_may_have_two_names_is_not_read_after_a_change_in_place() -> None:
    """In the plain Python `h += 1` changes a too."""

    def one_branch(x, flag: bool):
        y = torch.zeros_like(x)
        a = x[0] * 1
        h = 0.0
        if flag:
            h = a
        h += 1
        y[0] = a
        return y

    def selected(x, flag: bool):
        y = torch.zeros_like(x)
        a, b = x[0] * 1, x[1] * 1
        h = a if flag else b
        h += 1
        y[0] = a
        return y

    def earlier_iteration(x, flag: bool):
        y = torch.zeros_like(x)
        a = x[0] * 1
        h = 1.0
        for i in range(x.shape[0]):
            if i < 2:
                h = a
            else:
                h += 1
                y[i] = h + a
        return y

    for function in (one_branch, selected, earlier_iteration):
        with pytest.raises(UndefinedName, match="may be the same tensor"):
            weft.kernel(function)(values(4), True)


def test_a_guard_on_a_parameter_that_nothing_bounds() -> None:
    def shifted(a, k: int):
        if k > 0:
            for i in range(a.shape[0] - k):
                a[i] = a[i + k]

    assert "i" in weft.analyze(shifted).loops
    kernel = weft.kernel(shifted)
    for k in (-1, 0, 1, 3, 9):
        found, expected = values(8), values(8)
        kernel(found, k)
        shifted(expected, k)
        torch.testing.assert_close(found, expected)


def test_a_column_used_as_a_number_is_an_int64() -> None:
    # in CUDA columns are counted in 32 bits where offsets fit, and (i * 7) % n, or i * k, then mixed them with 64
    @weft.kernel
    def scattered(a, k: int):
        for i in range(a.shape[0]):
            a[i] = (i * 7) % k + i * k

    text = scattered.source("float32[1000]", 11, arch="sm_90a")
    nvrtc.compile_cubin(text, "sm_90a", name="scattered.cu")
    report = scattered.check("float32[1000]", 3_000_000_001)
    assert report.ok, report.text()


def moved_to_the_left(x, times: int):
    for _ in range(times):
        for i in range(1, x.shape[-1]):
            x[i - 1] = x[i]


def marked_behind(x, times: int):
    for _ in range(times):
        for i in range(1, x.shape[-1]):
            x[i - 1] = x[i]
            x[i] = i - 1


def between_rows(x, times: int):
    for r in range(times):
        for i in range(1, x.shape[-1]):
            x[1, i] = x[r, i - 1]
            x[r, i - 1] = x[1, i - 1]


@pytest.mark.parametrize("dtype", [torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.uint8], ids=str)
@pytest.mark.parametrize("function", [moved_to_the_left, marked_behind, between_rows])
def test_sweeps_over_every_other_element(function: Callable[..., Any], dtype: torch.dtype) -> None:
    # the C++ compiler took elements that are structs for strangers, some stride apart, and ran sweeps at once
    shape = (4, 48) if function is between_rows else (48,)
    expected, found = ((torch.arange(math.prod(shape)).view(shape) % 3).to(dtype) for _ in range(2))
    function(expected[..., ::2], 4)
    weft.kernel(function)(found[..., ::2], 4)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_carried_element_is_what_the_iteration_stored_last(length: int) -> None:
    """`s += s` changes `a[n - 1]`, which s is: its next value is not what stood there before the loop."""

    def doubled(a):
        n = len(a)
        y = torch.zeros(4, dtype=torch.int32)
        s = a[n - 1]
        for i in range(n):
            y[i] = s + a[i]
            s += s
        y[n] = s
        return y

    ours, theirs = (torch.arange(2, 2 + length, dtype=torch.int32) for _ in range(2))
    assert torch.equal(weft.kernel(doubled)(ours), doubled(theirs)) and torch.equal(ours, theirs)
