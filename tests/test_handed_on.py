"""Gradients that are those of a result as they are: of what a program only adds to it."""

from __future__ import annotations

import pytest
import torch

import weft

pytestmark = pytest.mark.usefixtures("quickly_compiled")


@weft.kernel
def added(x, b, r):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] - b[j] * r[i, j]
    return y


@weft.kernel
def both(x, z):
    y = torch.empty_like(x)
    w = torch.empty_like(x)
    for i in range(x.shape[0]):
        t = z[i] * z[i]
        y[i] = x[i] + t
        w[i] = t
    return y, w


@weft.kernel
def some(x, n: int):
    y = torch.empty(n)
    for i in range(n):
        y[i] = x[i] + 1.0
    return y


@weft.kernel
def twice(x):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        y[i] = x[i] + x[i]
    return y


@weft.kernel
def chosen(x, z):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        if z[i] > 0:
            y[i] = x[i]
        else:
            y[i] = z[i]
    return y


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, requires_grad=True)


def test_the_gradient_of_what_is_added_is_that_of_the_result() -> None:
    x, b, r, g = drawn(5, 7), drawn(7), drawn(5, 7), torch.randn(5, 7)
    want = torch.autograd.grad(x - b * r, (x, b, r), g)
    for _ in range(2):  # the second time the short way
        found = torch.autograd.grad(added(x, b, r), (x, b, r), g)
        assert found[0].data_ptr() == g.data_ptr()
        for a, c in zip(found, want, strict=True):
            torch.testing.assert_close(a, c)
    assert torch.autograd.grad(added(x, b, r), x, g)[0].data_ptr() == g.data_ptr()


def test_gradients_of_the_arguments_add_up_in_leaves_of_their_own() -> None:
    x, z = drawn(5), drawn(5)
    y, w = both(x, z)
    (y.sum() + 2 * w.sum()).backward()
    (both(x, z)[0] * 3).sum().backward()
    torch.testing.assert_close(x.grad, torch.full((5,), 4.0))
    torch.testing.assert_close(z.grad, 12 * z.detach())
    (only,) = torch.autograd.grad(both(x, z)[1].sum(), x, allow_unused=True)
    assert only is None or not only.any()


def test_derivatives_of_such_gradients() -> None:
    x, b, r = drawn(2, 3), drawn(3), drawn(2, 3)
    assert torch.autograd.gradgradcheck(added, [a.double().detach().requires_grad_() for a in (x, b, r)])


@pytest.mark.parametrize("made", [lambda x: some(x, 3), twice, lambda x: chosen(x, torch.tensor([1.0, -1, 1, -1, 1]))])
def test_what_is_not_all_of_a_result_once_has_a_gradient_of_its_own(made) -> None:
    x = drawn(5)
    y = made(x)
    g = torch.randn_like(y)
    (found,) = torch.autograd.grad(y, x, g)
    want = torch.zeros(5)
    want[: len(g)] = g if made is not twice else 2 * g
    if y.shape == x.shape and made is not twice:
        want = torch.tensor([1.0, 0, 1, 0, 1]) * g
    torch.testing.assert_close(found, want)
