"""Gradients of chained products, whose scores are computed again: derived, planned, and simulated against float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import weft
from bench.attention import in_passes, online
from bench.variants import sink
from tests import kernels_of_chains as kernels
from tests.graphs import parsed
from tests.test_chains import BF16, forced, inputs, three
from weft.compiler import cuda_source, launches
from weft.compiler.keeping import kept_folds
from weft.compiler.recomputed import recomputing
from weft.kernels.attention import attended, attended_biased_alone, attended_causal, attended_masked
from weft.loops.ir import Function
from weft.loops.show import show
from weft.plan.chain import ChainPlan
from weft.plan.fold import FoldPlan
from weft.pytorch import simulated
from weft.pytorch.call import analysis_for, argument_types, geometries
from weft.pytorch.executable import adjoint_of, keeping_of
from weft.pytorch.machines import machine_for
from weft.runtime.nvrtc import compile_cubin, gate

pytestmark = pytest.mark.usefixtures("quickly_compiled")

__all__ = ["forced"]


def derived(kernel: Any, *args: Any, wanted: tuple[str, ...] = ("q", "k", "v")) -> Function | None:
    return recomputing(parsed(kernel.__wrapped__, args), wanted)


def scores_of(kernel: Any, q: Tensor, k: Tensor, *more: Any) -> Tensor:
    """The scores of a program in float64, -inf where it has none."""
    i, j = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])
    if kernel is kernels.biased:
        bias, slope, scale, cap = more
        scores = cap * torch.tanh(q @ k.transpose(-1, -2) * scale / cap) - slope.double()[:, None, None] * (i - j).abs()
        return (scores + bias[:, None].double()).masked_fill(bias[:, None] >= 2.0, -math.inf)
    if kernel is kernels.prefix:
        return (q @ k.transpose(-1, -2) * more[1]).masked_fill((j > i) & (j >= more[0]), -math.inf)
    if kernel is kernels.from_first:
        return (q @ k.transpose(-1, -2) * more[1]).masked_fill((j > i) | (j < more[0][..., None]), -math.inf)
    if kernel is kernels.between:
        scores = q @ k.transpose(-1, -2) * more[2]
        return scores.masked_fill((j < more[0][..., None]) | (j >= more[1][..., None]), -math.inf)
    scores = q @ k.transpose(-1, -2) * more[0]
    if kernel is kernels.causal:
        return scores.masked_fill(j > i, -math.inf)
    if kernel is kernels.near:
        return scores.masked_fill((j > i) | (j < i - more[1]), -math.inf)
    return scores


def exact(kernel: Any, args: list[Any], seeds: list[Tensor]) -> tuple[Tensor, ...]:
    """The gradients of the first three arguments, in float64."""
    q, k, v = (t.detach().double().requires_grad_() for t in args[:3])
    if kernel is kernels.squared:
        results = [(q @ k.transpose(-1, -2)) ** 2 @ v]
    else:
        scores = scores_of(kernel, q, k, *args[3:])
        results = [torch.softmax(scores, -1) @ v, scores.logsumexp(-1)][: len(seeds)]
    return torch.autograd.grad(results, (q, k, v), [s.double() for s in seeds])


def close(ours: Tensor, theirs: Tensor, within: float = 5e-3) -> None:
    assert (ours.double() - theirs).norm() <= within * theirs.norm()


def begins_of_documents(batch: int, length: int) -> Tensor:
    """Where the document of each place begins."""
    begins = torch.rand(batch, length, generator=torch.Generator().manual_seed(1)) < 0.04
    return torch.where(begins, torch.arange(length), 0).cummax(1).values


def any_begins(batch: int, length: int) -> Tensor:
    """Where the keys of each place begin, in no order."""
    found = torch.randint(-5, length, (batch, length), generator=torch.Generator().manual_seed(1))
    return torch.minimum(found, torch.arange(length))


CASES: dict[str, tuple[Any, list[Any]]] = {
    "in_passes": (in_passes, [*three(2, 40, 30, 16), 0.25]),
    "of_other_widths": (kernels.full, [*inputs((2, 20, 16), (2, 30, 16), (2, 30, 24)), 0.25]),
    "causal": (kernels.causal, [*three(2, 40, 40, 16), 0.25]),
    "near": (kernels.near, [*three(2, 40, 40, 16), 0.25, 7]),
    "documents": (kernels.from_first, [*three(2, 40, 40, 16), begins_of_documents(2, 40), 0.25]),
    "from_any": (kernels.from_first, [*three(2, 40, 40, 16), any_begins(2, 40), 0.25]),
    "prefix": (kernels.prefix, [*three(2, 40, 40, 16), 13, 0.25]),
    "between": (
        kernels.between,
        [*three(2, 40, 60, 16), any_begins(2, 40), any_begins(2, 40).clamp(min=0) + torch.randint(1, 30, (2, 40)), 0.25],
    ),
    "squared": (kernels.squared, [t / 2 for t in three(2, 20, 30, 16)]),
    "biased": (
        kernels.biased,
        [*inputs((2, 2, 20, 16), (2, 2, 30, 16), (2, 2, 30, 16)), *inputs((2, 20, 30), (2,), dtype=torch.float32), 0.25, 3.0],
    ),
}
SAMPLE = ("in_passes", "near", "squared")


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        *(pytest.param(BF16, name, id=f"bfloat16-{name}") for name in CASES),
        # a kind of floats is the whole difference: of loops without and with bounds, and of scores that no softmax takes
        *(
            pytest.param(torch.float16, name, id=f"float16-{name}", marks=[] if name in SAMPLE else [pytest.mark.long])
            for name in CASES
        ),
    ],
)
def test_gradients_on_a_cpu(name: str, dtype: torch.dtype) -> None:
    kernel, args = CASES[name]
    args = [a.detach().to(dtype).requires_grad_() if k < 3 else a for k, a in enumerate(args)]
    assert derived(kernel, *args) is not None
    results = kernel(*args)
    results = list(results) if isinstance(results, tuple) else [results]
    seeds = [torch.randn(r.shape, generator=torch.Generator().manual_seed(2)).to(r.dtype) for r in results]
    found = torch.autograd.grad(results, args[:3], seeds)
    for ours, theirs in zip(found, exact(kernel, args, seeds), strict=True):
        close(ours, theirs)


def test_what_is_kept_has_an_element_for_each_row() -> None:
    """Of the scores of a row there is memory in loops alone, which a chain on a GPU does not need."""
    made = derived(kernels.causal, *CASES["causal"][1])
    assert made is not None
    saved = [a for a in made.arrays if a.name.endswith("_saved")]
    assert {len(a.shape) for a in saved} == {2}


def test_gradients_of_some_arguments() -> None:
    kernel, args = CASES["causal"]
    for k in range(3):
        own = [a.detach().requires_grad_() if j == k else a for j, a in enumerate(args)]
        out = kernel(*own)
        (found,) = torch.autograd.grad(out, own[k], torch.ones_like(out))
        close(found, exact(kernel, args, [torch.ones_like(out)])[k])


def test_gradients_of_gradients() -> None:
    q, k, v = (t.requires_grad_() for t in three(1, 12, 12, 8))
    out = kernels.causal(q, k, v, 0.25)
    (first,) = torch.autograd.grad(out.float().square().sum(), q, create_graph=True)
    (found,) = torch.autograd.grad(first.float().sum(), k)
    a, b, c = (t.detach().double().requires_grad_() for t in (q, k, v))
    scores = (a @ b.transpose(-1, -2) * 0.25).masked_fill(torch.ones(12, 12, dtype=torch.bool).triu(1), -math.inf)
    (own,) = torch.autograd.grad((torch.softmax(scores, -1) @ c).square().sum(), a, create_graph=True)
    close(found, torch.autograd.grad(own.sum(), b)[0], within=3e-2)


def test_rows_keep_what_they_fold() -> None:
    """A call that autograd records has the maximum and the sum of each row for its gradients, and the results of any call."""
    kernel, args = CASES["near"]
    types = argument_types(kernel.signature, args)
    keeping = keeping_of(kernel.program, types)
    assert keeping is not None
    out, sums, largest, total = keeping.execute(tuple(args))
    assert all(torch.equal(a, b) for a, b in zip((out, sums), kernel(*args), strict=True))
    scores = scores_of(kernel, args[0].double(), args[1].double(), *args[3:])
    torch.testing.assert_close(largest.double(), scores.amax(-1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close((largest + total.log()).double(), scores.logsumexp(-1), rtol=1e-5, atol=1e-5)
    made = recomputing(keeping.specializable.function(types, True), ("q", "k", "v"), (0, 1))
    assert made is not None
    assert "-inf" not in show(made)  # no maximum is looked for again


def test_no_scores_are_kept() -> None:
    kernel, args = CASES["squared"]
    assert keeping_of(kernel.program, argument_types(kernel.signature, args)) is None
    args = [*(t.requires_grad_() for t in three(2, 40, 40, 16, torch.float32)), 0.25]
    types = argument_types(kernels.causal.signature, args)
    assert not kept_folds(kernels.causal.program.specializable.function(types, True)).folds  # nor what is made of them
    out = kernels.causal(*args)
    seed = torch.randn(out.shape, generator=torch.Generator().manual_seed(2))
    for ours, theirs in zip(torch.autograd.grad(out, args[:3], seed), exact(kernels.causal, args, [seed]), strict=True):
        close(ours, theirs, within=1e-5)


@weft.kernel
def leaning(q, k, v, slope):
    """Some queries may need no value: where sizes do not agree, whether it is inside is asked where it is needed."""
    queries, width = q.shape
    keys = k.shape[0]
    out = torch.empty(queries, v.shape[1], dtype=q.dtype)
    for i in range(queries):
        scores = torch.empty(keys)
        for j in range(max(0, i - 2), min(i + 1, keys)):
            dot = 0.0
            for d in range(width):
                dot += q[i, d] * k[j, d]
            scores[j] = dot - slope[i] * abs(i - j)
        total = 0.0
        for j in range(max(0, i - 2), min(i + 1, keys)):
            total += torch.exp(scores[j] - 0.25)
        for e in range(v.shape[1]):
            acc = 0.0
            for j in range(max(0, i - 2), min(i + 1, keys)):
                acc += torch.exp(scores[j] - 0.25).to(q.dtype) * v[j, e]
            out[i, e] = acc / total if total > 0.0 else 0.0
    return out


@pytest.mark.parametrize("more", [0, 2], ids=["agreeing", "more slopes"])
def test_what_is_kept_where_sizes_do_not_agree(more: int) -> None:
    q, k, v = inputs((5, 3), (6, 3), (6, 4))
    slope = torch.linspace(0.1, 0.5, 5 + more)
    own = [t.requires_grad_() for t in (q, k, v)]
    assert keeping_of(leaning.program, argument_types(leaning.signature, [*own, slope])) is not None
    i, j = torch.arange(5)[:, None], torch.arange(6)
    wide = [t.detach().double().requires_grad_() for t in own]
    scores = wide[0] @ wide[1].T - slope[:5, None].double() * (i - j).abs()
    weights = torch.softmax(scores.masked_fill((j > i) | (j < i - 2), -math.inf), -1)
    seed = torch.randn(5, 4, generator=torch.Generator().manual_seed(2))
    theirs = torch.autograd.grad(weights @ wide[2], wide, seed.double())
    for ours, expected in zip(torch.autograd.grad(leaning(*own, slope), own, seed.to(BF16)), theirs, strict=True):
        close(ours, expected, within=2e-2)


def shared_heads(kernel: Any, group: int, queries: int, keys: int, width: int, lanes: int) -> tuple[list[Any], Tensor]:
    """The arguments of a kernel of the library, one of whose rows is masked, and what its scores are allowed."""
    q, k, v = inputs((2, 2, group, queries, width), (2, 2, keys, width), (2, 2, keys, lanes))
    allowed = torch.ones(2, 2, group, queries, keys, dtype=torch.bool)
    if kernel is attended_causal:
        allowed = allowed.tril()
    if kernel is attended_masked:
        allowed = torch.rand(allowed.shape, generator=torch.Generator().manual_seed(3)) < 0.5
        allowed[0, 0, 0, 3] = False
    return [q, k, v, *([allowed] if kernel is attended_masked else []), 0.25], allowed


def exact_of_shared(args: list[Any], allowed: Tensor, seed: Tensor) -> tuple[Tensor, ...]:
    q, k, v = (t.detach().double().requires_grad_() for t in args[:3])
    scores = (torch.einsum("bhgid,bhjd->bhgij", q, k) * args[-1]).masked_fill(~allowed, -1e30)
    weights = torch.softmax(scores, -1) * allowed
    return torch.autograd.grad(torch.einsum("bhgij,bhje->bihge", weights, v), (q, k, v), seed.double())


@pytest.mark.parametrize("kernel", [attended, attended_causal, attended_masked], ids=lambda k: k.name)
@pytest.mark.parametrize("lanes", [16, pytest.param(24, marks=pytest.mark.long)])
def test_heads_that_share_keys(kernel: Any, lanes: int) -> None:
    args, allowed = shared_heads(kernel, 2, 20, 24, 16, lanes)
    assert recomputing(parsed(kernel.__wrapped__, args), ("q", "k", "v")) is not None
    own = [a.requires_grad_() if k < 3 else a for k, a in enumerate(args)]
    out = kernel(*own)
    seed = torch.randn(out.shape, generator=torch.Generator().manual_seed(2)).to(out.dtype)
    for ours, theirs in zip(torch.autograd.grad(out, own[:3], seed), exact_of_shared(args, allowed, seed), strict=True):
        close(ours, theirs)


def test_rows_without_any_key_take_nothing_of_values_that_are_no_numbers() -> None:
    """All scores of one of the batch are negative infinity: its sums are 0, and so are its gradients, whatever its values."""
    q, k, v = (t[:, :, 0] for t in inputs((2, 2, 1, 20, 16), (2, 2, 1, 24, 16), (2, 2, 1, 24, 16)))
    v[1], bias = torch.nan, torch.zeros(2, 2, 20, 24)
    bias[1] = -torch.inf
    args = [q, k, v, bias, 0.25]
    assert recomputing(parsed(attended_biased_alone.__wrapped__, args), ("q", "k", "v")) is not None
    own = [t.requires_grad_() for t in (q, k, v)]
    for gradient in torch.autograd.grad(attended_biased_alone(*own, bias, 0.25).float().sum(), own):
        assert gradient.isfinite().all() and not gradient[1].any() and gradient[0].any()


def test_scores_that_no_product_is_made_of() -> None:
    q, k = (t.requires_grad_() for t in inputs((2, 20, 16), (2, 30, 16)))
    sums = kernels.log_sums(q, k, 0.25)
    seed = torch.randn(sums.shape, generator=torch.Generator().manual_seed(2))
    wide = [t.detach().double().requires_grad_() for t in (q, k)]
    exactly = torch.logsumexp(wide[0] @ wide[1].transpose(1, 2) * 0.25, -1)
    theirs = torch.autograd.grad(exactly, wide, seed.double())
    for ours, expected in zip(torch.autograd.grad(sums, (q, k), seed), theirs, strict=True):
        close(ours, expected)
    report = kernels.log_sums.check(q.detach(), k.detach(), 0.25, gradients=True)
    assert report.ok, str(report)


def test_sinks() -> None:
    """All rows of a head have its sink in common: what they hand back to it is summed, and no score is in memory."""
    args = [*inputs((2, 3, 40, 16), (2, 3, 40, 16), (2, 3, 40, 16)), torch.tensor([0.5, -1.0, 3.0]), 0.25]
    assert derived(sink, *args, wanted=("q", "k", "v", "sinks")) is not None
    own = [a.requires_grad_() if isinstance(a, Tensor) else a for a in args]
    out = sink(*own)
    seed = torch.randn(out.shape, generator=torch.Generator().manual_seed(2)).to(out.dtype)
    q, k, v, sinks = (a.detach().double().requires_grad_() for a in args[:4])
    scores = (q @ k.transpose(-1, -2) * 0.25).masked_fill(torch.ones(40, 40, dtype=torch.bool).triu(1), -math.inf)
    sums = torch.logaddexp(scores.logsumexp(-1), sinks[:, None])
    theirs = torch.autograd.grad(torch.exp(scores - sums[..., None]) @ v, (q, k, v, sinks), seed.double())
    for ours, expected in zip(torch.autograd.grad(out, own[:4], seed), theirs, strict=True):
        close(ours, expected)


def test_only_keys_that_no_query_may_have_are_filled_with_zeros_first() -> None:
    function = parsed(kernels.causal.__wrapped__, [*three(2, 40, 40, 16), 0.25])
    filled = []
    for agree in (True, False):
        made = recomputing(function, ("q", "k", "v"), agree=agree)
        assert made is not None
        filled.append([a.name for a in made.arrays if a.role == "result" and a.fill is not None])
    assert filled == [[], ["grad_k", "grad_v"]]
    q, k, v = (t.requires_grad_() for t in three(2, 40, 50, 16))
    found = torch.autograd.grad(kernels.causal(q, k, v, 0.25).sum(), (k, v))
    assert not any(g[:, 40:].any() for g in found)
    assert all(g[:, :40].any() for g in found)


# ---------------------------------------------------------------- what is differentiated otherwise


def test_gradients_for_each_score() -> None:
    """The bias of the scores has a gradient for each of them, the slope one for all: the adjoint of loops has these."""
    kernel, args = CASES["biased"]
    assert derived(kernel, *args, wanted=("q", "bias")) is None
    assert derived(kernel, *args, wanted=("slope",)) is None
    own = [a.detach().requires_grad_() if isinstance(a, Tensor) else a for a in args]
    out = kernel(*own)
    found = torch.autograd.grad(out, own[:5], torch.ones_like(out))
    wide = [a.detach().double().requires_grad_() if isinstance(a, Tensor) else a for a in args]
    scores = scores_of(kernel, wide[0], wide[1], *wide[3:])
    theirs = torch.autograd.grad(torch.softmax(scores, -1) @ wide[2], wide[:5], torch.ones_like(out).double())
    for ours, expected in zip(found, theirs, strict=True):
        assert (ours.double() - expected).norm() <= 1e-2 * expected.norm() + 1e-3


def test_float32_has_its_scores_in_memory() -> None:
    assert derived(kernels.causal, *three(2, 40, 40, 16, torch.float32), 0.25) is None


def test_factors_that_are_rounded_nowhere() -> None:
    """No tensor core multiplies them, so their scores are in memory anyway."""
    assert derived(online, *three(2, 40, 40, 64), 0.25) is None


# ---------------------------------------------------------------- kernels


def adjoint_and_arguments(kernel: Any, args: list[Any], results: Any = None) -> tuple[Any, list[Any], list[Tensor]]:
    """results: what stands for the kernel's, where their values are of no account."""
    results = kernel(*args) if results is None else results
    results = list(results) if isinstance(results, tuple) else [results]
    seeds = [torch.randn(r.shape, generator=torch.Generator().manual_seed(2)).to(r.dtype) for r in results]
    made = adjoint_of(kernel.program, argument_types(kernel.signature, args), ("q", "k", "v"))
    return made, [*args, *results, *seeds], seeds


def simulated_gradients(kernel: Any, args: list[Any], seed: int = 0) -> tuple[list[Tensor], list[Tensor]]:
    """The gradients that the simulated kernels leave, which are chains and have no findings; the seeds."""
    made, given, seeds = adjoint_and_arguments(kernel, args)
    found = simulated.simulate_call(made, given, "sm_90a", seed, "gradient")
    findings = [f for launch in found.launches for s in launch.simulations for f in s.findings]
    assert not findings, findings
    return [found.arrays[r] for r in found.results], seeds


@pytest.mark.parametrize(("warpgroups", "turn"), [(1, 80), (2, 64)])
def test_causal(forced: Callable[..., None], warpgroups: int, turn: int) -> None:
    forced(warpgroups, turn)
    args = [*three(2, 150, 150, 64), 0.125]
    found, seeds = simulated_gradients(kernels.causal, args)
    for ours, theirs in zip(found, exact(kernels.causal, args, seeds), strict=True):
        close(ours, theirs)


def test_keys_and_queries_of_other_numbers(forced: Callable[..., None]) -> None:
    forced(1, 64)
    args = [*three(2, 70, 140, 32), 0.125]
    found, seeds = simulated_gradients(in_passes, args)
    for ours, theirs in zip(found, exact(in_passes, args, seeds), strict=True):
        close(ours, theirs)


def test_near_keys_and_the_logarithm_of_sums(forced: Callable[..., None]) -> None:
    forced(2, 64)
    args = [*three(1, 150, 150, 32), 0.2, 40]
    found, seeds = simulated_gradients(kernels.near, args)
    for ours, theirs in zip(found, exact(kernels.near, args, seeds), strict=True):
        close(ours, theirs)


@pytest.mark.parametrize(
    ("warpgroups", "turn", "begins"), [(1, 80, begins_of_documents), (2, 64, any_begins)], ids=["documents", "any"]
)
def test_keys_of_documents(forced: Callable[..., None], warpgroups: int, turn: int, begins: Any) -> None:
    """What an infinity of another document's query hands back is none of a key's."""
    forced(warpgroups, turn)
    first = begins(1, 150)
    args = [*three(1, 150, 150, 64), first, 0.125]
    found, seeds = simulated_gradients(kernels.from_first, args)
    for ours, theirs in zip(found, exact(kernels.from_first, args, seeds), strict=True):
        close(ours, theirs)
    made, given, _ = adjoint_and_arguments(kernels.from_first, args)
    given[-1][0, 130, 3] = math.inf
    arrays = simulated.simulate_call(made, given, "sm_90a", 0, "gradient")
    _, _, d_v = (arrays.arrays[r] for r in arrays.results)
    j = torch.arange(150)
    seen = (j >= first[0, 130]) & (j <= 130)
    assert torch.equal(d_v[0, :, 3].isfinite(), ~seen)
    assert d_v[0, :, :3].isfinite().all()


def test_first_keys_that_all_queries_have(forced: Callable[..., None]) -> None:
    forced(2, 64)
    args = [*three(1, 150, 150, 32), 70, 0.2]
    found, seeds = simulated_gradients(kernels.prefix, args)
    for ours, theirs in zip(found, exact(kernels.prefix, args, seeds), strict=True):
        close(ours, theirs)


def test_turns_whose_sums_come_before_the_next_scores(forced: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from weft.plan import chain as plans

    forced(2, 64)
    own = plans._plans
    monkeypatch.setattr(plans, "_plans", lambda *given: (replace(p, overlapped=False) for p in own(*given)))
    args = [*three(1, 150, 150, 64), 0.125]
    for kernel in (kernels.causal, in_passes):
        found, seeds = simulated_gradients(kernel, args)
        for ours, theirs in zip(found, exact(kernel, args, seeds), strict=True):
            close(ours, theirs)


def test_infinities_that_no_column_has(forced: Callable[..., None]) -> None:
    """What the last query hands back is none of the gradients of others; the last key is the last query's alone."""
    forced(1, 64)
    q, k, v = three(1, 100, 100, 32)
    made, given, _ = adjoint_and_arguments(kernels.causal, [q, k, v, 0.125])
    given[-1][0, 99, 3] = math.inf
    k[0, 99, 2] = math.nan
    found = simulated.simulate_call(made, given, "sm_90a", 0, "gradient")
    d_q = found.arrays[found.results[0]]
    assert d_q[0, :99].isfinite().all()
    assert not d_q[0, 99].isfinite().all()


@pytest.mark.parametrize(
    ("kernel", "keys", "turn"),
    [(attended_causal, 70, 64), (attended_masked, 70, 64), (attended_masked, 72, 64), (attended_masked, 136, 80)],
    ids=lambda v: getattr(v, "name", str(v)),
)
def test_heads_that_share_keys_on_a_gpu(forced: Callable[..., None], kernel: Any, keys: int, turn: int) -> None:
    """Keys in packets of eight: bytes of masks come in such, also where keys are the rows of products."""
    forced(1, turn)
    args, allowed = shared_heads(kernel, 2, 70, keys, 32, 32)
    types = argument_types(kernel.signature, args)
    keeping = keeping_of(kernel.program, types)
    assert keeping is not None
    results = list(keeping.execute(tuple(args)))
    seed = torch.randn(results[0].shape, generator=torch.Generator().manual_seed(2)).to(BF16)
    made = adjoint_of(keeping, types, ("q", "k", "v"), (0,))
    found = simulated.simulate_call(made, [*args, *results, seed], "sm_90a", 0, "gradient")
    assert not [f for launch in found.launches for s in launch.simulations for f in s.findings]
    for name, theirs in zip(found.results, exact_of_shared(args, allowed, seed), strict=True):
        close(found.arrays[name], theirs)


def test_plans_of_all_three(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    own = simulated.launches

    def launches(*args: Any) -> Any:
        found = own(*args)
        seen.extend(launch.variant.plan for launch in found)
        return found

    monkeypatch.setattr(simulated, "launches", launches)
    simulated_gradients(kernels.causal, [*three(1, 70, 70, 16), 0.125])
    assert [type(plan) for plan in seen] == [ChainPlan, FoldPlan, ChainPlan, ChainPlan]


# ---------------------------------------------------------------- text


def test_the_text_of_gradients(golden: Callable[[str, str], None]) -> None:
    """What rows fold, the gradient of q, and those of k and v: nothing spills."""
    q, k, v = (torch.zeros(64, 1024, 64, dtype=BF16) for _ in range(3))
    made, given, _ = adjoint_and_arguments(kernels.causal, [q, k, v, 0.125], torch.zeros_like(q))
    analysis, bound = analysis_for(made.specializable, made.signature, tuple(given))
    arrays, machine = geometries(analysis, bound, aligned=True), machine_for("sm_90a")
    nests = range(len(analysis.schedule.nests))
    planned = [one for nest in nests for one in launches(analysis, nest, arrays, bound.names, machine)]
    texts = {one.nest.name: cuda_source(one.where.analysis, one.variant) for one in planned if one.where is not None}
    for name, text in texts.items():
        assert gate(compile_cubin(text, "sm_90a", name=f"{name}.cu")) == []
        if "multiply_scores" in text:
            golden(f"cuda/chain_gradients_{name.rsplit('_', 1)[-1]}.cu", text)
