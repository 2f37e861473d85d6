"""Turns of chained products that no pair of a row and a column has, as data tell: left out, to the same values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests import kernels_of_masks as kernels
from tests.test_chain_gradients import adjoint_and_arguments, close
from tests.test_chains import forced, plan_of, ran, three
from weft.plan.chain import ChainPlan
from weft.pytorch import simulated

__all__ = ["forced"]


def documents(kind: str, batch: int, length: int) -> Tensor:
    """Numbers of documents: in order, negative ones; of a few kinds, in no order; of floats, NaN among them."""
    generator = torch.Generator().manual_seed(1)
    if kind == "in order":
        return (torch.rand(batch, length, generator=generator) < 0.02).cumsum(1) - 5
    found = torch.randint(-2, 3, (batch, length // 30 + 1), generator=generator).repeat_interleave(30, 1)[:, :length]
    if kind == "any":
        return found
    return torch.where(torch.rand(batch, length, generator=generator) < 0.02, math.nan, found.float())


def attended(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, scale: float) -> Tensor:
    return torch.softmax((q @ k.transpose(-1, -2) * scale).masked_fill(~seen, -math.inf), -1) @ v


def seen_by(document: Tensor) -> Tensor:
    length = document.shape[1]
    return (document[:, :, None] == document[:, None]) & torch.ones(length, length, dtype=torch.bool).tril()


@pytest.mark.parametrize(("kind", "warpgroups", "turn"), [("in order", 2, 64), ("any", 1, 80), ("nan", 2, 64)])
def test_documents_by_number(forced: Callable[..., None], kind: str, warpgroups: int, turn: int) -> None:
    """A row that is in no document, its number NaN, has no key, not its own: NaN, as in the loops."""
    forced(warpgroups, turn)
    q, k, v = three(1, 250, 250, 32)
    document = documents(kind, 1, 250)
    plan = plan_of(kernels.causal_documents, q, k, v, document, 0.125)
    assert isinstance(plan, ChainPlan)
    assert plan.skips
    out = ran(kernels.causal_documents, q, k, v, document, 0.125)["out"]
    expected = attended(q.double(), k.double(), v.double(), seen_by(document), 0.125)
    assert torch.equal(expected.isnan(), out.isnan())
    close(out.nan_to_num(), expected.nan_to_num())


def test_an_infinity_that_a_mask_leaves_out(forced: Callable[..., None]) -> None:
    """0 times an infinity is NaN, in turns that no query needs as well."""
    forced(2, 64)
    q, k, v = three(1, 330, 330, 64)
    v[0, 3, 5] = math.inf
    document = torch.arange(330)[None] // 100
    out = ran(kernels.causal_documents, q, k, v, document, 0.125)["out"]
    assert (out[0, :3, 5].isfinite()).all()
    assert not out[0, 3:, 5].isfinite().any()
    assert out[0, :, :5].isfinite().all()


def test_conjunctions_and_places(forced: Callable[..., None]) -> None:
    forced(2, 64)
    q, k, v = three(2, 150, 260, 64)
    generator = torch.Generator().manual_seed(1)
    time = torch.rand(2, 260, generator=generator).sort(1).values.float()
    when = torch.rand(2, 150, generator=generator).float() * 0.7 + 0.3
    lengths = torch.tensor([250, 100])
    i, j = torch.arange(150)[:, None], torch.arange(260)
    seen = (time[:, None] <= when[..., None]) & (i - j < 100) & (j < lengths[:, None, None])
    assert plan_of(kernels.until, q, k, v, time, when, lengths, 100, 0.125).skips
    out = ran(kernels.until, q, k, v, time, when, lengths, 100, 0.125)["out"]
    expected = attended(q.double(), k.double(), v.double(), seen, 0.125)
    assert torch.equal(expected.isnan(), out.isnan())
    close(out.nan_to_num(), expected.nan_to_num())


@pytest.mark.usefixtures("separate_launches")
def test_what_is_compared_is_a_part_of_scores(forced: Callable[..., None]) -> None:
    forced(1, 64)
    q, k, v = three(1, 60, 90, 16)
    generator = torch.Generator().manual_seed(1)
    time = torch.rand(1, 90, generator=generator).sort(1).values
    when = torch.rand(1, 60, generator=generator) * 0.5 + 0.5
    assert plan_of(kernels.since, q, k, v, time, when, 0.125).skips
    out = ran(kernels.since, q, k, v, time, when, 0.125)["out"]
    scores = q.double() @ k.double().transpose(-1, -2) * 0.125 - (when[..., None] - time[:, None]).double()
    close(out, torch.softmax(scores.masked_fill(time[:, None] > when[..., None], -math.inf), -1) @ v.double())


@pytest.mark.parametrize(("kind", "warpgroups", "turn"), [("in order", 2, 64), ("any", 1, 80)])
def test_gradients(forced: Callable[..., None], kind: str, warpgroups: int, turn: int) -> None:
    forced(warpgroups, turn)
    args: list[Any] = [*three(1, 200, 200, 64), documents(kind, 1, 200), 0.125]
    given = [a.double().requires_grad_() for a in args[:3]]
    out = attended(*given, seen_by(args[3]), 0.125)
    made, own, seeds = adjoint_and_arguments(kernels.causal_documents, args, out.detach().to(args[0].dtype))
    found = simulated.simulate_call(made, own, "sm_90a", 0, "gradient")
    assert not [f for launch in found.launches for s in launch.simulations for f in s.findings]
    for result, theirs in zip(found.results, torch.autograd.grad(out, given, seeds[0].double()), strict=True):
        close(found.arrays[result], theirs)


@pytest.mark.parametrize(("kind", "infinite"), [("nan", None), ("any", "k"), ("any", "seed")])
def test_what_is_not_finite_reaches_whom_it_does_in_the_loops(forced: Callable[..., None], kind: str, infinite: str) -> None:
    """Rows without any key, and infinities, in gradients of turns that no pair has."""
    forced(1, 64)
    args: list[Any] = [*three(1, 150, 150, 32), documents(kind, 1, 150), 0.125]
    if infinite == "k":
        args[1][0, 70, 3] = math.inf
    made, given, _ = adjoint_and_arguments(kernels.causal_documents, args)
    if infinite == "seed":
        given[-1][0, 130, 3] = math.inf
    found = simulated.simulate_call(made, given, "sm_90a", 0, "gradient")
    for result, theirs in zip(found.results, made.execute(tuple(given)), strict=True):
        ours = found.arrays[result]
        assert torch.equal(ours.isnan(), theirs.isnan())
        finite = ours.isfinite() & theirs.isfinite()
        close(ours[finite], theirs[finite])
