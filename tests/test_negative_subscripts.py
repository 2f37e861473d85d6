"""Subscripts below 0 count from the end of their axis, as Python's do, and parts of tensors end where Python's do."""

from __future__ import annotations

import pytest
import torch

import weft
from weft.errors import OutOfRange

pytestmark = pytest.mark.usefixtures("quickly_compiled")


def circular(x):
    n = len(x)
    y = torch.empty_like(x)
    for i in range(n):
        y[i] = x[i - 1] - 2 * x[i] * x[(i + 1) % n] + x[i - 2]
    return y


def mirrored(x):
    y = torch.empty_like(x)
    for i in range(len(x)):
        y[i] = x[-1 - i] * x[i]
    return y


def stored(x):
    y = torch.zeros_like(x)
    for i in range(len(x)):
        y[i - 1] = x[i] * x[i]
    return y


def added(x):
    y = torch.zeros_like(x)
    for i in range(len(x)):
        y[i - 1] += x[i] * x[i - 3]
    return y


def carried(x):
    y = x.clone()
    for i in range(len(x)):
        y[i] = 0.5 * y[i - 1] + y[i]
    return y


def swapped(x):
    y = x.clone()
    for i in range(len(x)):
        t = y[i] * 1
        y[i] = y[i - 1] * 2
        y[i - 1] = t
    return y


def chosen(x):
    y = x.clone()
    for i in range(len(x)):
        if x[i] > 0:
            y[i] = x[i - 1] * x[i]
    return y


def counted(x):
    y = torch.zeros_like(x)
    k = -2
    for i in range(len(x)):
        y[i] = x[k] * x[i]
        k += 1
    return y


def summed(x):
    s = 0.0
    for i in range(len(x)):
        s = s + x[i] * x[i - 1]
    return s


def grid(x):
    y = torch.zeros_like(x)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = x[i - 1, j] + x[i, j - 1] * x[i - 1, j - 1]
    return y


def of_a_result(x):
    y = torch.zeros_like(x)
    t = x * 2
    for i in range(len(x)):
        y[i] = t[i - 1] + (x + 1)[i - 2]
    return y


LINE, PLANE = torch.linspace(-1, 1.5, 7), torch.linspace(-1, 1, 12).reshape(3, 4)
CIRCULAR = [circular, mirrored, stored, added, carried, swapped, chosen, counted, summed, of_a_result]


@pytest.mark.parametrize(("function", "given"), [*((f, LINE) for f in CIRCULAR), (grid, PLANE)])
def test_a_subscript_below_0_counts_from_the_end(function, given):
    own, plain = given.clone().requires_grad_(), given.clone().requires_grad_()
    made, want = weft.kernel(function)(own), function(plain)
    torch.testing.assert_close(made, want)
    made.backward(torch.ones_like(want))
    want.backward(torch.ones_like(want))
    torch.testing.assert_close(own.grad, plain.grad)


def test_what_is_below_the_beginning_is_out_of_range():
    with pytest.raises(IndexError):
        circular(LINE[:1])
    with pytest.raises(OutOfRange, match="reads x outside axis 0, at index i - 2"):
        weft.kernel(circular)(LINE[:1])


def test_one_kernel_takes_calls_of_both_kinds():
    @weft.kernel
    def shifted(x, k: int):
        y = torch.zeros_like(x)
        for i in range(len(x) - 3):
            y[i] = x[i + k]
        return y

    for k in (2, -2, 0, -7, 3):
        torch.testing.assert_close(shifted(LINE, k), shifted.py(LINE, k))
    with pytest.raises(OutOfRange):
        shifted(LINE, -8)


def test_an_element_that_counts_from_the_end_is_a_view_of_what_is_stored_there():
    """x[i - 3] of three elements is x[i], and rows that many apart are one row."""

    def elements(x):
        y = torch.zeros_like(x)
        for i in range(len(x)):
            t = x[i - 3]
            x[i] = x[i] * 2
            y[i] = t
        return y

    def rows(x):
        for i in range(x.shape[0]):
            x[i, 1:] = x[i - 3, :-1] * 1
        return x * 1

    of_elements, of_rows = weft.kernel(elements), weft.kernel(rows)
    for size in (3, 4):
        torch.testing.assert_close(of_elements(LINE[:size].clone()), elements(LINE[:size].clone()))
        torch.testing.assert_close(of_rows(PLANE.view(4, 3)[:size].clone()), rows(PLANE.view(4, 3)[:size].clone()))


def test_ordinary_kernels_have_no_branch_for_it():
    @weft.kernel
    def ordinary(x):
        y = torch.zeros_like(x)
        for i in range(1, len(x)):
            y[i] = x[i - 1]
        return y

    torch.testing.assert_close(ordinary(LINE), ordinary.py(LINE))
    assert "?" not in ordinary.source(LINE, arch="cpu")


def strided(x, q: int):
    y = torch.zeros_like(x)
    for i in range(0, len(x), q + 1):
        y[i] = x[i - 1] * x[i]
    return y


def strided_and_carried(x, q: int):
    y = torch.zeros_like(x)
    for i in range(0, len(x), q + 1):
        y[i - 2] += x[i - 3] * x[i] + y[i - 1]
    return y


def strided_and_guarded(x, q: int):
    y = torch.zeros_like(x)
    for i in range(0, len(x), q + 1):
        if i > 0:
            y[i - 1] = x[i - 1] * 2
    return y


def multiplied(x, q: int):
    y = torch.zeros_like(x)
    for i in range(2):
        y[i * q - 1] = x[i * q - 2] * x[-q * i]
    return y


def in_a_range_that_data_decide(x, q: int):
    y = torch.zeros_like(x)
    for i in range(len(x)):
        for j in range(int(x[i] + q)):
            y[i] += x[j - 2] * x[i]
    return y


def walked(x, q: int):
    y = torch.zeros_like(x)
    k = 0
    for i in range(len(x)):
        y[k - q] += x[k - 2] * x[i]
        k = (k * 3 + q) % len(x)
    return y


def divided(x, q: int):
    y = torch.zeros_like(x)
    for i in range(len(x)):
        y[i] = x[(i - 1) % len(x)] * x[i // 2 - 2] * x[i % q - 1]
    return y


NO_SUMS = [
    strided,
    strided_and_carried,
    strided_and_guarded,
    multiplied,
    in_a_range_that_data_decide,
    walked,
    divided,
]


@pytest.mark.parametrize("function", NO_SUMS)
@pytest.mark.parametrize("q", [1, 2, 3])
def test_subscripts_that_are_no_sums_count_from_the_end_too(function, q):
    kernel = weft.kernel(function)
    own, plain = LINE.clone().requires_grad_(), LINE.clone().requires_grad_()
    made, want = kernel(own, q), function(plain, q)
    torch.testing.assert_close(made, want)
    made.backward(torch.ones_like(want))
    want.backward(torch.ones_like(want))
    torch.testing.assert_close(own.grad, plain.grad)


@pytest.mark.parametrize("function", NO_SUMS)
def test_the_kernel_of_a_gpu_counts_them_too(function):
    assert weft.kernel(function).check(LINE, 2).ok


def test_subscripts_that_are_no_sums_leave_their_array_where_pythons_do():
    @weft.kernel
    def far(x, q: int):
        y = torch.zeros_like(x)
        for i in range(0, len(x), q + 1):
            y[i] = x[i - q]
        return y

    torch.testing.assert_close(far(LINE, 7), far.py(LINE, 7))
    with pytest.raises(IndexError):
        far.py(LINE, 8)
    with pytest.raises(OutOfRange):
        far(LINE, 8)


def test_subscripts_that_are_no_sums_have_no_branch_where_they_are_not_below_0():
    @weft.kernel
    def rows(x, width: int):
        y = torch.zeros_like(x)
        for i in range(len(x) // width):
            for j in range(1, width):
                y[i * width + j] = x[i * width + j - 1]
        return y

    torch.testing.assert_close(rows(LINE[:6], 3), rows.py(LINE[:6], 3))
    assert "< 0" not in rows.source(LINE[:6], 3, arch="cpu")


def test_the_kernel_of_a_gpu_reads_the_same():
    assert weft.kernel(circular).check(LINE, gradients=True).ok
    assert weft.kernel(added).check(LINE, gradients=True).ok


# ---------------------------------------------------------------- parts


def below_a_part(x):
    y = torch.zeros_like(x)
    t = x[1:]
    for i in range(len(t)):
        y[i] = t[i - 1]
    return y


def above_a_part(x):
    y = torch.zeros_like(x)
    t = x[:3]
    for i in range(4):
        y[i] = t[i]
    return y


def stored_above_a_part(x):
    y = torch.zeros_like(x)
    t = y[:-1]
    for i in range(len(x)):
        t[i] = x[i]
    return y


def above_a_part_of_a_part(x):
    t = x[1:][0:2]
    return t[2] * 1


def slices_below(x):
    y = torch.zeros_like(x)
    for i in range(len(x)):
        y[i] = x[i - 2 : i].sum()
    return y


def cut_off(x):
    return x[-9:] * 2


@pytest.mark.parametrize(
    "function", [below_a_part, above_a_part, stored_above_a_part, above_a_part_of_a_part, slices_below, cut_off]
)
def test_what_a_part_does_not_hold_is_not_taken_from_around_it(function):
    with pytest.raises(OutOfRange):
        weft.kernel(function)(LINE)


@pytest.mark.parametrize(
    ("index", "fits"), [((0, 1, 2), True), ((0, -1, -3), True), ((0, 3, 1), False), ((0, -4, 1), False)]
)
def test_subscripts_that_tensors_hold_stay_inside_a_part(index, fits):
    @weft.kernel
    def looked_up(x, index):
        y = torch.zeros(len(index))
        t = x[:3]
        for i in range(len(index)):
            y[i] = t[index[i]]
        return y

    given = LINE, torch.tensor(index)
    if fits:
        torch.testing.assert_close(looked_up(*given), looked_up.py(*given))
        return
    with pytest.raises(IndexError):
        looked_up.py(*given)
    with pytest.raises(OutOfRange):
        looked_up(*given)


def test_a_subscript_that_data_choose_stays_inside_a_part():
    @weft.kernel
    def chosen(x, mask):
        y = torch.zeros_like(x)
        t = x[:3]
        for i in range(len(x)):
            if mask[i]:
                y[i] = t[i]
        return y

    inside, outside = torch.arange(7) < 3, torch.arange(7) < 4
    torch.testing.assert_close(chosen(LINE, inside), chosen.py(LINE, inside))
    with pytest.raises(OutOfRange):
        chosen(LINE, outside)


ENDS = {
    "read": "y[i] = x[-3]",
    "beside one that wraps": "y[i] = x[i - 1] + x[-3]",
    "under data": "y[i] = x[-3] if x[0] > 0 else 1.0",
    "store": "x[-3] = 2.0\n        y[i] = x[i - 1]",
    "of a row": "y[i] = x.view(1, -1)[0, -3]",
}


@pytest.mark.parametrize("body", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_constants_below_0_count_from_the_end_once(body: str, size: int) -> None:
    """x[-3] of 2 elements is none of them."""
    kernel = weft.kernel(f"def f(x):\n    y = torch.zeros(3)\n    for i in range(1):\n        {body}\n    return y\n")
    if size < 3:
        with pytest.raises(IndexError):
            kernel.py(torch.arange(1.0, 1.0 + size))
        with pytest.raises(IndexError):
            kernel(torch.arange(1.0, 1.0 + size))
    else:
        torch.testing.assert_close(kernel(torch.arange(1.0, 1.0 + size)), kernel.py(torch.arange(1.0, 1.0 + size)))
