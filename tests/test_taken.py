"""Gradients of what data choose where it is stored: the last that was stored to an element has its gradient, in no order."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from tests.test_joins_apart import function_of
from tests.test_segments import same
from weft.compiler.analysis import lower_nest
from weft.loops.adjoint import adjoint
from weft.loops.analyze import schedule


@weft.kernel
def unpooled(x, place, size: int):
    channels, n = x.shape
    y = torch.zeros(channels, size)
    for c in range(channels):
        for i in range(n):
            y[c, place[c, i]] = x[c, i] * x[c, i]
    return y


@weft.kernel
def stored_over(x, v, index):
    """Some rows of what there is are others."""
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        for d in range(x.shape[1]):
            y[i, d] = 2 * x[i, d]
    for i in range(index.shape[0]):
        for d in range(x.shape[1]):
            y[index[i], d] = v[i, d]
    return y


@weft.kernel
def backwards(x, index, size: int):
    y = torch.zeros(size)
    for i in range(x.shape[0] - 1, -1, -1):
        y[index[i]] = x[i]
    return y


PLACES = torch.tensor([[1, 1, -1, 0, 4], [4, 4, 4, -2, 0]])
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "unpooled": (unpooled, (torch.randn(2, 5), PLACES, 6)),
    "nothing": (unpooled, (torch.randn(2, 0), PLACES[:, :0], 6)),
    "stored over": (stored_over, (torch.randn(6, 3), torch.randn(5, 3), PLACES[0])),
    "backwards": (backwards, (torch.randn(5), PLACES[1], 5)),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_loops(name: str) -> None:
    kernel, args = CASES[name]
    same(kernel, *args)


def test_the_kernels_compute_what_the_loops_do() -> None:
    kernel, args = CASES["stored over"]
    report = kernel.check(*args, gradients=True)
    assert not report.findings and report.ok, str(report)


@pytest.mark.parametrize("name, wanted", [("unpooled", ("x",)), ("stored over", ("x", "v")), ("backwards", ("x",))])
def test_no_loop_runs_in_order(name: str, wanted: tuple[str, ...]) -> None:
    kernel, args = CASES[name]
    found = schedule(adjoint(function_of(kernel, args), wanted))
    assert all(lower_nest(found, nest).joins or lower_nest(found, nest).maps for nest in found.nests)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["unpooled", "stored over"])
def test_on_a_gpu(name: str) -> None:
    kernel, args = CASES[name]

    def gradients(device: str) -> list[torch.Tensor]:
        given = [a.to(device) if isinstance(a, torch.Tensor) else a for a in args]
        floats = [a.requires_grad_() for a in given if isinstance(a, torch.Tensor) and a.is_floating_point()]
        y = kernel(*given)
        weights = torch.arange(y.numel(), device=device).view_as(y) + 1.0
        return [g.cpu() for g in torch.autograd.grad((y * weights).sum(), floats)]

    for a, b in zip(gradients("cuda"), gradients("cpu"), strict=True):
        torch.testing.assert_close(a, b)
