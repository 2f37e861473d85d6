"""Reductions of whole tensors and slices: dtypes and errors are PyTorch's."""

from __future__ import annotations

import pytest
import torch

import weft
from tests.fuzz_programs import compiled
from weft.errors import OutOfRange, TypeMismatch

pytestmark = pytest.mark.usefixtures("quickly_compiled")

_INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int64)


def kernel(expression: str) -> weft.Kernel:
    return weft.kernel(compiled(f"def program(x):\n    return {expression}\n", f"<{expression}>"))


@pytest.mark.parametrize("dtype", _INTEGERS, ids=str)
@pytest.mark.parametrize("expression", ["x.any()", "x.all(dim=1)", "x.any(0, keepdim=True)", "x[0].all()", "x[:, 1:].any(1)"])
def test_any_and_all_of_uint8_are_uint8(expression: str, dtype: torch.dtype) -> None:
    made = kernel(expression)
    x = torch.tensor([[0, 3, 0], [0, 0, 0], [1, 2, 200]]).to(dtype)
    found, want = made(x), made.py(x)
    assert found.dtype == want.dtype
    assert torch.equal(found, want)


@pytest.mark.parametrize("dtype", _INTEGERS, ids=str)
@pytest.mark.parametrize("expression", ["x.softmax(dim=-1)", "torch.log_softmax(x, 0)"])
def test_softmax_of_integers_is_refused(expression: str, dtype: torch.dtype) -> None:
    made = kernel(expression)
    x = torch.ones(2, 3, dtype=dtype)
    with pytest.raises(NotImplementedError):
        made.py(x)
    with pytest.raises(TypeMismatch, match="softmax of"):
        made(x)


def test_products_of_bools_are_refused() -> None:
    with pytest.raises(TypeMismatch, match="@ of bool"):
        kernel("x @ x")(torch.ones(3, 3, dtype=torch.bool))


@pytest.mark.parametrize("expression", ["x.amax()", "x.max()", "x.min()", "x.amin(dim=1)", "x[0].amax()", "x.amax(dim=(0, 1))"])
def test_an_extremum_of_no_elements_is_an_error(expression: str) -> None:
    made = kernel(expression)
    assert torch.equal(made(torch.ones(2, 3)), made.py(torch.ones(2, 3)))
    with pytest.raises((RuntimeError, IndexError)):
        made.py(torch.ones(2, 0))
    with pytest.raises(OutOfRange, match="without elements"):
        made(torch.ones(2, 0))


def test_an_extremum_over_elements_of_none_is_empty() -> None:
    made = kernel("x.amax(dim=0)")
    assert made(torch.ones(2, 0)).shape == made.py(torch.ones(2, 0)).shape


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32], ids=str)
def test_whether_all_of_each_row_hold(dtype: torch.dtype) -> None:
    def each(x):
        y = torch.zeros(len(x), dtype=torch.bool)
        for i in range(len(x)):
            holds, last = True, True
            for j in range(x.shape[1]):
                holds = holds and bool(x[i, j])
            for j in range(x.shape[1]):
                last = bool(x[i, j]) and last
            y[i] = holds and last
        return y

    x = (torch.rand(9, 40, generator=torch.Generator().manual_seed(1)) < 0.97).to(dtype)
    for made in (weft.kernel(each), kernel("x.all(dim=1)")):
        assert made(x).tolist() == x.bool().all(dim=1).tolist()


SLICES = ["x[i:k].amin()", "x[:i].amax()", "x[k:].amax()", "x[max(0, i - k):i + 1].amax()", "x[i:min(i + k, 4)].amin()"]


@pytest.mark.parametrize("use", ["t", "1.0"])
@pytest.mark.parametrize("part", SLICES)
def test_the_extremum_of_an_empty_slice_is_an_error_in_any_iteration(part: str, use: str) -> None:
    kernel = weft.kernel(
        "def f(x, b, k: int):\n"
        "    y = torch.zeros(3)\n"
        "    for i in range(3):\n"
        "        if b[i] > 0:\n"
        f"            t = {part}\n"
        f"            y[i] = {use}\n"
        "    return y\n"
    )
    x = torch.tensor([1.0, 3.0, 0.0, 2.0])
    for b in (torch.zeros(3), torch.ones(3), torch.tensor([0.0, 1.0, 0.0])):
        for k in (0, 1, 2, 3, 4):
            try:
                want = kernel.py(x, b, k)
            except RuntimeError:
                with pytest.raises(OutOfRange):
                    kernel(x, b, k)
            else:
                torch.testing.assert_close(kernel(x, b, k), want)


@pytest.mark.parametrize("dtype", (*_INTEGERS, torch.float16, torch.float64), ids=str)
def test_sums_and_products_on_the_way(dtype: torch.dtype) -> None:
    x = torch.tensor([[0, 3, 0, 1], [1, 1, 2, 1], [1, 2, 1, 0]]).to(dtype)
    made = kernel("x.cumsum(-1), torch.cumprod(x[:, 1:], 0), (x + 1).cumsum(dim=1, dtype=torch.float32), x.prod(0).cumprod(0)")
    for argument in (x, x[:0], x[:, :1]):
        for found, want in zip(made(argument), made.py(argument), strict=True):
            assert found.dtype == want.dtype and torch.equal(found, want)


def test_gradients_of_sums_on_the_way() -> None:
    x = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(kernel("x.softmax(-1).cumsum(-1) * x.cumprod(0)"), (x,))


def test_sums_on_the_way_need_their_dimension_and_real_numbers() -> None:
    with pytest.raises(TypeMismatch, match="cumsum of complex numbers"):
        kernel("x.cumsum(0)")(torch.ones(2, dtype=torch.complex64))
    with pytest.raises(TypeMismatch, match="dim"):
        kernel("x.cumsum()")(torch.ones(2))
