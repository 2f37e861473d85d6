"""What a kernel returns is what its Python returns: tensors, numbers, and the tuples and lists of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft


@weft.kernel
def summary(x, limit: float):
    y = torch.empty_like(x)
    count, total = 0, 0.0
    for i, v in enumerate(x):
        y[i] = 2 * v
        if v > limit:
            count += 1
            total = total + v
    results = (y, count, total, limit)
    return results


@weft.kernel
def place(x, limit: float):
    for i, v in enumerate(x):
        if v > limit:
            return i
    return -1


@weft.kernel
def doubled(x):
    return (2 * x[:],)


def _same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, tuple):
        for a, b in zip(found, expected, strict=True):
            _same(a, b)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected)
    else:
        assert found == expected


@pytest.mark.parametrize("gradient", [False, True])
def test_numbers_are_numbers_on_every_road(gradient: bool) -> None:
    x = torch.tensor([0.1, 0.9, 0.3, 0.7], requires_grad=gradient)
    for _ in range(2):  # the second call is prepared
        found, expected = summary(x, 0.5), summary.py(x.detach(), 0.5)
        _same(tuple(f.detach() if isinstance(f, torch.Tensor) else f for f in found), expected)
        _same(place(x, 0.5), 1)
        _same(place(x, 1.5), -1)
        (two,) = doubled(x)
        _same(two.detach(), 2 * x.detach())
    if gradient:
        y, _, total, _ = summary(x, 0.5)
        y.sum().backward()
        torch.testing.assert_close(x.grad, torch.full((4,), 2.0))


def test_checks_hold_numbers_against_the_python() -> None:
    found = place.check("float32[3]", 0.5)
    assert [c.name for c in found.comparisons] == ["result"]


def test_compiled_graphs_do_not_return_numbers() -> None:
    x = torch.rand(4)
    with pytest.raises(Exception, match="cannot record a call of place"):
        torch.compile(lambda x: place(x, 0.5), backend="eager", fullgraph=True)(x)


def test_a_step_of_zero_is_the_error_that_it_is_in_python() -> None:
    @weft.kernel
    def stepped(x, step: int):
        for i in range(0, len(x), step):
            x[i] = 1.0

    for function in (stepped, stepped.py):
        with pytest.raises(ValueError, match="must not be zero"):
            function(torch.rand(4), 0)
