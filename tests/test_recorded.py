"""Calls that autograd records: the ways of calls like ones before, and what must still see them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import weft
from weft.errors import NotDifferentiable
from weft.kernels import attention, linrec, rms_norm
from weft.pytorch.call import CallPlan


def rows(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What went a long way."""
    seen: list[Any] = []
    way = CallPlan.known

    def known(plan: CallPlan, *args: Any) -> Any:
        seen.append(plan)
        return way(plan, *args)

    monkeypatch.setattr(CallPlan, "known", known)
    yield seen


def same_gradients(ours: Callable[..., Tensor], theirs: Callable[..., Tensor], *args: Any) -> None:
    tensors = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
    made, want = ours(*args), theirs(*args)
    torch.testing.assert_close(made, want)
    seed = torch.randn_like(want)
    for g, w in zip(torch.autograd.grad(made, tensors, seed), torch.autograd.grad(want, tensors, seed), strict=True):
        torch.testing.assert_close(g, w)


def normed(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, weight.shape, weight, 1e-6)


def headed(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)


def attended(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    return attention(q, k, v, is_causal=True, scale=scale)


@pytest.mark.parametrize("leading", [(4,), (2, 3), (2, 1, 3), ()])
def test_calls_like_ones_before_go_the_quick_way_there_and_back(leading: tuple[int, ...], long: list[Any]) -> None:
    x, weight = rows(*leading, 24), rows(24)
    for _ in range(3):
        long.clear()
        same_gradients(rms_norm, normed, x, weight)  # eps is left out
    assert not long
    same_gradients(lambda x, w: rms_norm(x, eps=1e-6, weight=w), normed, x, weight)
    same_gradients(lambda x, w: rms_norm(x.mul(1), eps=1e-6, weight=w), normed, torch.stack([x, x]), weight)


def test_another_scale_is_another_number_in_the_same_way(long: list[Any]) -> None:
    q, k, v = (rows(2, 5, 2, 8).transpose(1, 2).detach().requires_grad_() for _ in range(3))
    for scale in (0.3, 0.1, 0.2):
        same_gradients(attended, headed, q, k, v, scale)
    long.clear()
    same_gradients(attended, headed, q, k, v, 0.7)
    assert not long


def test_what_hooks_hand_back_with_other_strides() -> None:
    """Of saved tensors a call's own views are taken again, wherever their elements lie by then."""
    weight, q, k, v = rows(8), *(rows(2, 5, 2, 8) for _ in range(3))

    def crossed(f: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *t: f(*(a.transpose(1, 2) for a in t), 0.3)

    for _ in range(3):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(memory_format=torch.contiguous_format), lambda t: t):
            same_gradients(lambda x, w: rms_norm(x.transpose(0, 2), w), lambda x, w: normed(x.transpose(0, 2), w), q, weight)
            same_gradients(crossed(attended), crossed(headed), q, k, v)


def test_gradients_of_gradients_through_views() -> None:
    x, weight = rows(2, 3, 8), rows(8)
    for _ in range(3):
        found = []
        for f in (rms_norm, normed):
            first = torch.autograd.grad(f(x, weight).sin().sum(), (x, weight), create_graph=True)
            found.append((*first, *torch.autograd.grad(sum(g.square().sum() for g in first), (x, weight))))
        for g, w in zip(*found, strict=True):
            torch.testing.assert_close(g, w)


def test_one_tensor_twice_and_one_made_of_the_other() -> None:
    x = rows(3, 4)
    for _ in range(3):
        found = []
        for f in (weft.ops.mul, torch.mul):
            made = f(x, x).sin().sum() + f(x, x.t().exp().t()).sum()
            (first,) = torch.autograd.grad(made, x, create_graph=True)
            found.append((first, *torch.autograd.grad(first.square().sum(), x)))
        for g, w in zip(*found, strict=True):
            torch.testing.assert_close(g, w)


def test_what_is_computed_again_saves_what_it_saved_before() -> None:
    """A checkpoint compares them, and the second call goes the quick way."""
    x, weight = rows(2, 3, 8), rows(8)
    for f in (weft.kernel(rms_norm.py), rms_norm):
        y = x.flatten(0, 1) if f is not rms_norm else x
        made = checkpoint(lambda x, f=f: weft.ops.mul(f(x, weight, 1e-6), x), y, use_reentrant=False)
        want = normed(y, weight) * y
        found = (torch.autograd.grad(made.sum(), (x, weight)), torch.autograd.grad(want.sum(), (x, weight)))
        for g, w in zip(*found, strict=True):
            torch.testing.assert_close(g, w)


def test_another_default_dtype_is_another_program() -> None:
    x, weight = rows(2, 3, 8), rows(8)
    for dtype in (torch.float32, torch.float64, torch.float32):
        torch.set_default_dtype(dtype)
        try:
            same_gradients(rms_norm, normed, x, weight)
        finally:
            torch.set_default_dtype(torch.float32)


def test_numbers_of_numpy() -> None:
    x = rows(3, 4)
    for _ in range(2):
        same_gradients(lambda x: weft.ops.mul(x, np.float64(2.0)), lambda x: x * 2.0, x)


def test_recorded_and_not_under_autocast_and_not(long: list[Any]) -> None:
    x, c = rows(4, 24), rows(4, 24)
    for _ in range(2):
        for grad in (True, False):
            for cast in (True, False):
                with torch.set_grad_enabled(grad), torch.autocast("cpu", torch.bfloat16, enabled=cast):
                    long.clear()
                    assert linrec(x, c).requires_grad is grad
    assert not long


def test_only_what_asks_for_a_gradient_gets_one(long: list[Any]) -> None:
    x, c = torch.randn(4, 24), torch.rand(4, 24)
    for _ in range(2):
        for first in (True, False):
            a, b = x.clone().requires_grad_(first), c.clone().requires_grad_(not first)
            long.clear()
            linrec(a, b).sum().backward()
            assert (a.grad is not None, b.grad is not None) == (first, not first)
    assert not long


@weft.kernel
def scaled_by(x, factor: float):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        y[i] = x[i] * factor * OUTSIDE
    return y


OUTSIDE = 2.0


def test_what_is_read_outside_is_asked_for_by_recorded_calls_too(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(8, requires_grad=True)
    for outside in (2.0, 2.0, 3.0, 2.0):
        monkeypatch.setitem(scaled_by.py.__globals__, "OUTSIDE", outside)
        made = scaled_by(x, 0.5)
        assert torch.autograd.grad(made.sum(), x)[0].tolist() == [0.5 * outside] * 8


def test_what_a_call_keeps_for_gradients_lives_no_longer_than_it() -> None:
    """No way of an earlier call holds its tensors."""
    q, k, v = (rows(1, 2, 5, 8) for _ in range(3))
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    for _ in range(2):
        attention(q, k, v, mask).sum().backward()
    kept = [weakref.ref(t) for t in (q, k, v, mask)]
    del q, k, v, mask
    gc.collect()
    assert [r() is None for r in kept] == [True] * 4


def test_saved_tensors_that_were_written_are_told_of() -> None:
    x, c = rows(4, 24), rows(4, 24)
    for _ in range(2):
        made = linrec(x, c)
        with torch.no_grad():
            c.mul_(0.5)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            made.sum().backward()


def test_elementwise_calls_that_are_recorded_take_quick_ways() -> None:
    x, row, other = rows(4, 6), rows(6), rows(6, 4).t().detach().requires_grad_()
    for second in (row, other, row, other):
        same_gradients(weft.ops.mul, torch.mul, x, second)
    assert repr(weft.ops.mul.quick(x, row)) != "MISS"


def turned(a, b, cosine, sine):
    return a * cosine - b * sine, b * cosine + a * sine


def test_several_results_of_which_some_have_gradients(long: list[Any]) -> None:
    ours = weft.pointwise(turned)
    args = rows(2, 3, 4), rows(2, 3, 4), rows(3, 1), rows(4)
    for k in range(3):
        for picked in ((0, 1), (0,), (1,)):
            long.clear()
            found = []
            for f in (ours, turned):
                made = f(*args)
                found.append(torch.autograd.grad([made[p] for p in picked], args, [torch.ones_like(made[p]) for p in picked]))
            for g, w in zip(*found, strict=True):
                torch.testing.assert_close(g, w)
            assert k < 2 or not long


def test_what_a_kernel_writes_has_no_gradient_whatever_else_it_returns() -> None:
    def scaled_in_place(x, y):
        for i in range(x.shape[0]):
            x[i] = 2.0 * x[i]
        return x * y

    kernel, x = weft.kernel(scaled_in_place), torch.ones(3)
    kernel(x, torch.ones(3))
    for args in ((torch.ones(3, requires_grad=True), x), (x, torch.ones(3, requires_grad=True))):
        with pytest.raises(NotDifferentiable, match="writes in place"):
            kernel(*args)
    assert torch.equal(x, torch.full((3,), 2.0))


def squared(x, z):
    y = x * x * z
    return y, y > 1.0


def test_results_of_bools_beside_those_that_are_differentiated() -> None:
    ours = weft.pointwise(squared)
    x, z = (rows(5, 7, 3).detach().transpose(0, 2).requires_grad_() for _ in range(2))
    for _ in range(2):
        (y, large), (wanted, also) = ours(x, z), squared(x, z)
        assert torch.equal(large, also) and large.stride() == also.stride()
        torch.testing.assert_close(torch.autograd.grad(y.sum(), x), torch.autograd.grad(wanted.sum(), x))


def test_operators_in_graphs_take_the_quick_way_too(long: list[Any]) -> None:
    x, c = rows(4, 24).detach(), rows(4, 24).detach()
    for _ in range(2):
        long.clear()
        torch.testing.assert_close(linrec.kernel.operator(x, c), linrec(x, c))
    assert not long


def test_a_kernel_is_called_by_the_dispatcher_where_it_has_to_be() -> None:
    """Modes see the operator; eager calls have none between."""
    seen = []

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x, c = rows(4, 24), rows(4, 24)
    for _ in range(2):
        linrec(x, c)
    with Watching():
        linrec(x, c).sum().backward()
    assert any("linrec" in name for name in seen)

