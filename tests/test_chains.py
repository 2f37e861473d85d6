"""Products whose results are folded again: read as such, planned, and simulated against float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import weft
from bench.workloads import gqa_decode
from tests import kernels_of_chains as kernels
from tests.graphs import built_of
from weft.compiler import kernels as planning
from weft.compiler import planning as whole_or_apart
from weft.compiler.planning import candidates
from weft.compiler.tuned import asking
from weft.graph.chains import Chain, chain
from weft.graph.tile import NotTiles
from weft.kernels.attention import attended
from weft.plan import chain as plans
from weft.plan.chain import ChainPlan
from weft.plan.leaning import Leaning, Meeting
from weft.pytorch import simulated
from weft.pytorch.call import prepare
from weft.pytorch.inspection import examine
from weft.pytorch.machines import machine_for
from weft.runtime.nvrtc import compile_cubin, gate

BF16 = torch.bfloat16
MEETINGS: tuple[Meeting, ...] = ("after", "cluster", "tickets")


def inputs(*shapes: tuple[int, ...], dtype: torch.dtype = BF16, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=generator).to(dtype) for s in shapes]


def three(batch: int, queries: int, keys: int, width: int, dtype: torch.dtype = BF16) -> list[Tensor]:
    return inputs((batch, queries, width), (batch, keys, width), (batch, keys, width), dtype=dtype)


def read(kernel: Any, *args: Any) -> Chain:
    made = built_of(kernel.__wrapped__, *args)
    return chain(made.only, [s.name for s in made.schedule.function.sizes])


def plan_of(kernel: Any, *args: Any) -> Any:
    launch, *_ = examine(kernel, args).launches()
    return launch.variant.plan


# ---------------------------------------------------------------- the reading


def test_what_is_read() -> None:
    found = read(kernels.full, *three(2, 20, 30, 64), 0.1)
    assert (found.sums.batch, found.row, found.column, found.point, found.lane) == (("b",), "i", "j", "d", "e")
    assert [f.results[0] for f in found.leading] == ["largest"]
    assert [f.results[0] for f in found.following] == ["total"]
    assert {(r.sum, r.extremum) for r in found.repairs} == {("total", "largest"), ("acc", "largest")}
    assert not found.bounded


def test_bounds_that_go_up_with_the_rows() -> None:
    causal = read(kernels.causal, *three(2, 20, 20, 64), 0.1)
    near = read(kernels.near, *three(2, 20, 20, 64), 0.1, 5)
    assert ((causal.start, causal.stop), (near.start, near.stop)) == ((0, 1), (1, 1))
    assert causal.bounded
    assert near.bounded


def test_factors_in_any_order() -> None:
    """The product of the keys with the query, and of the values with what is made of scores."""
    q, k, v = three(2, 20, 30, 64)
    assert read(kernels.squared, q, k, v).scores.left[0].name == "q"
    assert read(kernels.squared_turned, q, k, v).scores.left[0].name == "q"


def test_scores_that_nothing_is_relative_to() -> None:
    found = read(kernels.squared, *three(2, 20, 30, 64))
    assert not found.leading
    assert not found.following
    assert not found.repairs


def test_parts_of_columns() -> None:
    """Each part has its own maximum and sums: columns begin where it does, or are counted from there."""
    args = [*inputs((2, 20, 64), (2, 96, 64), (2, 96, 64)), 0.125]
    for kernel in (kernels.in_parts, kernels.counted_in_parts):
        found = read(kernel, *args)
        assert (found.sums.batch, found.row, found.bounded) == (("b", "p"), "i", True)
    made = ran(kernels.counted_in_parts, *args)
    q, k, v = (t.double() for t in args[:3])
    parts = [slice(p * 32, p * 32 + 32) for p in range(3)]
    close(made["out"], torch.stack([reference(q, k[:, own], v[:, own], 0.125) for own in parts], 1))
    close(made["sums"].exp(), torch.stack([(q @ k[:, own].mT * 0.125).exp().sum(-1) for own in parts], 1))


def test_windows_that_are_counted_from_the_row() -> None:
    q, k, v = inputs((40, 64), (100, 64), (100, 64))
    found = read(kernels.counted_from_row, q, k, v, 30)
    assert (found.row, found.start, found.stop) == ("i", 1, 1)
    own = torch.arange(40)[:, None] + torch.arange(30)
    scores = (q.double()[:, None] * k.double()[own]).sum(-1) * 0.125
    close(ran(kernels.counted_from_row, q, k, v, 30)["out"], (torch.softmax(scores, -1)[..., None] * v.double()[own]).sum(1))


def test_a_product_alone_is_no_chain() -> None:
    from tests.kernels_of_products import product

    with pytest.raises(NotTiles):
        read(product, *inputs((20, 30), (30, 40)))


# ---------------------------------------------------------------- the plan


def test_float32_is_multiplied_in_passes() -> None:
    plan = examine(kernels.full, (*three(2, 256, 256, 64, torch.float32), 0.1)).launches()
    assert not any(isinstance(launch.variant.plan, ChainPlan) for launch in plan)


def test_blocks_stay_and_take_tiles() -> None:
    plan = plan_of(kernels.causal, *three(64, 1024, 1024, 64), 0.1)
    assert isinstance(plan, ChainPlan)
    assert plan.taken
    assert not plan_of(kernels.full, *three(64, 1024, 1024, 64), 0.1).taken
    assert not plan_of(kernels.causal, *three(2, 1024, 1024, 64), 0.1).taken


@pytest.mark.parametrize("width", [pytest.param(16, marks=pytest.mark.long), 64, 128, 256])
@pytest.mark.parametrize(
    "kernel",
    [pytest.param(kernels.full, marks=pytest.mark.long), kernels.causal],  # which needs more of them
    ids=lambda k: k.name,
)
def test_registers_do(kernel: Any, width: int) -> None:
    text = kernel.source(*(f"bfloat16[64,4096,{width}]",) * 3, 0.1, arch="sm_90a")
    assert "multiply_scores" in text
    assert gate(compile_cubin(text, "sm_90a", name="chain.cu")) == []


def test_the_schedules_of_the_keys() -> None:
    """What `tune` measures: blocks that share the keys, by who combines what they have, blocks that do not, and passes through
    memory.
    """
    found = examine(kernels.decode, ("bfloat16[8,32,128]", *("bfloat16[8,4,4096,128]",) * 2, 0.1))
    machine = machine_for("sm_90a")
    own = {one.name: plan for one, plan in candidates(found.analysis, 0, found.arrays, found.names, machine)}
    chained = {name: launches[0].variant.plan for name, launches in own.items() if name != "passes through memory"}
    assert len(chained) == len(own) - 1
    assert {name: (plan.parts, plan.meeting) for name, plan in chained.items()} == {
        "as planned": (4, "tickets"), "twice as many blocks a row": (8, "tickets"), "half as many blocks a row": (2, "tickets"),
        "one block a row": (1, ""), "blocks of a cluster a row": (3, "cluster"),
        "blocks a row, and a launch after": (4, "after"),
    }  # fmt: skip


def test_explain_says_how() -> None:
    text = str(kernels.causal.explain(*three(64, 1024, 1024, 64), 0.1, detail=True))
    assert "scores of i and j stay in registers" in " ".join(text.split())


def test_explain_says_who_has_the_keys() -> None:
    args = inputs((8, 32, 128), (8, 4, 4096, 128), (8, 4, 4096, 128))
    said = {
        "after": "whose 4 parts are combined in their order", "cluster": "combine parts of its rows as a cluster",
        "tickets": "of which no block has left a part",
    }  # fmt: skip
    for meeting in MEETINGS:
        with asking({0: Leaning("", meetings=(meeting,))}):
            text = " ".join(str(kernels.decode.explain(*args, 0.1, detail=True)).split())
        assert "8 of h, which have j in common, are the rows of a tile" in text
        assert said[meeting] in text
        assert text.count("MB read") == 1


# ---------------------------------------------------------------- what they compute


def reference(q: Tensor, k: Tensor, v: Tensor, scale: float, seen: Tensor | None = None) -> Tensor:
    scores = q.double() @ k.double().transpose(-1, -2) * scale
    if seen is not None:
        scores = scores.masked_fill(~seen, -math.inf)
    return torch.softmax(scores, -1) @ torch.nan_to_num(v.double(), 0.0, 0.0, 0.0)


def close(ours: Tensor, theirs: Tensor) -> None:
    """Within what rounding the left operand of a sum and its result makes, of numbers of this size."""
    assert (ours.double() - theirs).norm() <= 4e-3 * theirs.norm()


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Plans of so many warpgroups and columns of a turn, for a device of so many multiprocessors."""

    def force(warpgroups: int, turn: int, multiprocessors: int = 2) -> None:
        monkeypatch.setattr(plans, "WARPGROUPS", (warpgroups,))
        monkeypatch.setattr(plans, "TURNS", (turn,))
        monkeypatch.setattr(whole_or_apart, "CHAIN_GAIN", 0)  # as a chain, whatever that costs
        own = plans.plan_chain

        def plan(function: Any, chain: Any, facts: Any, names: Any, machine: Any, *more: Any) -> Any:
            return own(function, chain, facts, names, replace(machine, multiprocessors=multiprocessors), *more)

        monkeypatch.setattr(planning, "plan_chain", plan)

    return force


def ran(kernel: Any, *args: Any, seed: int = 0) -> Any:
    """The arrays that the simulated kernel leaves, which has no findings."""
    found = simulated.simulate_call(kernel.program, list(args), "sm_90a", seed, "call")
    findings = [f for launch in found.launches for s in launch.simulations for f in s.findings]
    assert not findings, findings
    return found.arrays


@pytest.mark.parametrize(
    ("warpgroups", "turn", "dtype"), [(1, 80, BF16), (2, 128, BF16), (3, 64, BF16), (2, 128, torch.float16)], ids=str
)
def test_full(forced: Callable[..., None], warpgroups: int, turn: int, dtype: torch.dtype) -> None:
    forced(warpgroups, turn)
    args = three(2, 200, 150, 64, dtype)
    results = [ran(kernels.full, *args, 0.125, seed=seed)["out"] for seed in ((0, 1) if warpgroups == 3 else (0,))]
    close(results[0], reference(*args, 0.125))
    assert all(torch.equal(r, results[0]) for r in results)


@pytest.mark.parametrize(("width", "lanes", "same"), [(64, 48, True), (80, 72, True), (40, 40, True), (96, 64, False)])
def test_values_that_are_in_the_tiles_of_keys(forced: Callable[..., None], width: int, lanes: int, same: bool) -> None:
    forced(2, 64)
    q, k, _ = three(1, 130, 150, width)
    plan = plan_of(kernels.of_keys, q, k, 0.125, lanes)
    assert isinstance(plan, ChainPlan)
    assert bool(plan.same) == same
    close(ran(kernels.of_keys, q, k, 0.125, lanes)["out"], reference(q, k, k[..., :lanes], 0.125))


@pytest.mark.parametrize(("warpgroups", "turn"), [(1, 80), (2, 128), (3, 64)])
def test_causal_with_infinities_that_no_row_has_yet(forced: Callable[..., None], warpgroups: int, turn: int) -> None:
    forced(warpgroups, turn)
    q, k, v = three(2, 330, 330, 64)
    v[0, 130, 3], v[0, 60, 5], v[1, 329, :] = math.inf, -math.inf, math.nan
    out = ran(kernels.causal, q, k, v, 0.125)["out"]
    seen = torch.ones(330, 330, dtype=torch.bool).tril()
    expected = reference(q, k, v, 0.125, seen)
    expected[0, 130:, 3], expected[0, 60:, 5], expected[1, 329] = math.inf, -math.inf, math.nan
    finite = expected.isfinite()
    assert torch.equal(finite, out.isfinite())
    assert torch.equal(out[~finite].double().nan_to_num(7.0), expected[~finite].nan_to_num(7.0))
    close(torch.where(finite, out, 0.0), torch.where(finite, expected, 0.0))


@pytest.mark.parametrize("reach", [0, 40, 2**31])
def test_near_keys(forced: Callable[..., None], reach: int) -> None:
    forced(2, 64)
    args = three(1, 300, 300, 32)
    found = ran(kernels.near, *args, 0.2, reach)
    i, j = torch.arange(300)[:, None], torch.arange(300)
    seen = (j <= i) & (j >= i - reach)
    close(found["out"], reference(*args, 0.2, seen))
    scores = args[0].double() @ args[1].double().transpose(-1, -2) * 0.2
    torch.testing.assert_close(found["sums"].double(), scores.masked_fill(~seen, -math.inf).logsumexp(-1), rtol=1e-4, atol=1e-4)


def test_near_keys_with_infinities_that_other_rows_have(forced: Callable[..., None]) -> None:
    """In a first turn, which begins with the first key of a tile, in one between, and in a last one."""
    forced(2, 64)
    q, k, v = three(1, 330, 330, 32)
    v[0, 60, 5], v[0, 101, 3], v[0, 240, 7] = -math.inf, math.inf, math.nan
    out = ran(kernels.near, q, k, v, 0.2, 90)["out"]
    i, j = torch.arange(330)[:, None], torch.arange(330)
    seen = (j <= i) & (j >= i - 90)
    expected = reference(q, k, v.nan_to_num(0.0, 0.0, 0.0), 0.2, seen)
    for key, lane in ((60, 5), (101, 3), (240, 7)):
        expected[0, seen[:, key], lane] = math.nan
    infinite = expected.isnan()
    assert torch.equal(infinite, ~out.isfinite())
    close(out.masked_fill(infinite, 0.0), expected.masked_fill(infinite, 0.0))


@pytest.mark.parametrize(("warpgroups", "turn"), [(1, 80), (2, 64), (3, 64)])
def test_keys_of_documents(forced: Callable[..., None], warpgroups: int, turn: int) -> None:
    """Where the document of a query begins, and infinities in the others."""
    forced(warpgroups, turn)
    q, k, v = three(2, 330, 330, 64)
    begins = torch.rand(2, 330, generator=torch.Generator().manual_seed(1)) < 0.02
    first = torch.where(begins, torch.arange(330), -3).cummax(1).values
    assert isinstance(plan_of(kernels.from_first, q, k, v, first, 0.125), ChainPlan)
    j = torch.arange(330)
    seen = (j >= first[..., None]) & (j <= j[:, None])
    v[0, 150, 3], v[1, 7, :] = math.inf, math.nan
    out = ran(kernels.from_first, q, k, v, first, 0.125)["out"]
    expected = reference(q, k, v, 0.125, seen)
    expected[0, seen[0, :, 150], 3], expected[1, seen[1, :, 7]] = math.inf, math.nan
    finite = expected.isfinite()
    assert torch.equal(finite, out.isfinite())
    close(torch.where(finite, out, 0.0), torch.where(finite, expected, 0.0))


@pytest.mark.parametrize("sides", ["any", "empty", "far"])
def test_keys_between_bounds_of_each_query(forced: Callable[..., None], sides: str) -> None:
    forced(2, 64)
    q, k, v = three(2, 150, 260, 64)
    bounds = torch.randint(-20, 280, (2, 2, 150), generator=torch.Generator().manual_seed(1)).sort(0).values
    first, last = bounds
    if sides == "empty":
        first[0, 10:90], last[1, :70] = last[0, 10:90], -(1 << 40)
    elif sides == "far":
        first[:, ::3], last[:, 1::3] = -(1 << 40), 1 << 40
        first[:, ::7] = 1 << 40
    assert isinstance(plan_of(kernels.between, q, k, v, first, last, 0.125), ChainPlan)
    seen = (torch.arange(260) >= first[..., None]) & (torch.arange(260) < last[..., None])
    close(ran(kernels.between, q, k, v, first, last, 0.125)["out"], reference(q, k, v, 0.125, seen).nan_to_num(0.0))


def test_what_is_done_to_scores(forced: Callable[..., None]) -> None:
    forced(2, 64)
    q, k, v = inputs((2, 2, 70, 64), (2, 2, 90, 64), (2, 2, 90, 64))
    bias, slope = torch.randn(2, 70, 90) + 1.0, torch.rand(2)
    out = ran(kernels.biased, q, k, v, bias, slope, 0.1, 3.0)["out"]
    distance = (torch.arange(70)[:, None] - torch.arange(90)).abs()
    scores = 3.0 * torch.tanh(q.double() @ k.double().transpose(-1, -2) * 0.1 / 3.0) - slope[None, :, None, None] * distance
    scores = (scores + bias[:, None]).masked_fill(bias[:, None] >= 2.0, -math.inf)
    close(out, torch.softmax(scores, -1) @ v.double())


def test_lengths_of_each_of_the_batch(forced: Callable[..., None]) -> None:
    """A row that has no key at all is NaN in the Python, and so it is here."""
    forced(1, 64)
    q, k, v = three(3, 40, 150, 32)
    lengths = torch.tensor([3, 150, 0])
    out = ran(kernels.of_lengths, q, k, v, lengths, 0.2)["out"]
    seen = (torch.arange(150) < lengths[:, None])[:, None, :].expand(3, 40, 150)
    close(out[:2], reference(q, k, v, 0.2, seen)[:2])
    assert out[2].isnan().all()


@pytest.mark.parametrize("least", [-1e9, -1e10, -1e30, torch.finfo(torch.float32).min], ids=str)
def test_rows_of_masked_keys(least: float) -> None:
    """All of a row, or its first turn: what masks a key is a number far below the others, relative to which it is none."""
    q, k, v = inputs((2, 1, 70, 64), (2, 1, 200, 64), (2, 1, 200, 64))
    bias = torch.zeros(2, 70, 200)
    bias[0, ::2], bias[0, 1::2, :150] = least, least
    out = ran(kernels.biased, q, k, v, bias, torch.zeros(1), 0.1, 3.0)["out"]
    scores = 3.0 * torch.tanh(q.float() @ k.float().transpose(-1, -2) * 0.1 / 3.0) + bias[:, None]
    close(out, torch.softmax(scores.double(), -1) @ v.double())


def test_bounds_of_the_batch(forced: Callable[..., None]) -> None:
    """What lies beyond the columns of one of the batch holds numbers of others, infinities among them."""
    forced(1, 64)
    assert isinstance(plan_of(kernels.by_batch, *three(80, 70, 90, 64), 0.1), ChainPlan)
    q, k, v = three(3, 70, 90, 64)
    v[0, 1:], v[1, 2:] = math.inf, math.nan
    seen = (torch.arange(90) <= torch.arange(3)[:, None])[:, None, :].expand(3, 70, 90)
    close(ran(kernels.by_batch, q, k, v, 0.1)["out"], reference(q, k, v, 0.1, seen))


def test_names_of_a_thread_are_none_of_the_users(forced: Callable[..., None]) -> None:
    forced(1, 64)
    q, k, v = (t / 4 for t in three(1, 20, 70, 64))
    assert isinstance(plan_of(kernels.named, q, k, v, 0.5, 2.0), ChainPlan)
    scores = q.double() @ k.double().transpose(-1, -2)
    left = torch.exp(scores - scores.amax(-1, keepdim=True))
    close(ran(kernels.named, q, k, v, 0.5, 2.0)["out"], left @ v.double())


def test_what_is_read_once_a_row(forced: Callable[..., None]) -> None:
    """The tile of a warpgroup has more rows than there are: nothing is read for those."""
    forced(1, 64)
    q, k, v = three(1, 70, 90, 32)
    sharp = torch.rand(1, 70, generator=torch.Generator().manual_seed(0))
    scores = q.double() @ k.double().transpose(-1, -2) * sharp.double()[:, :, None]
    close(ran(kernels.sharpened, q, k, v, sharp)["out"], torch.softmax(scores, -1) @ v.double())


def test_scores_that_are_squared(forced: Callable[..., None]) -> None:
    forced(2, 64)
    q, k, v = (t / 4 for t in three(2, 100, 130, 64))
    out = ran(kernels.squared, q, k, v)["out"]
    close(out, (q.double() @ k.double().transpose(-1, -2)) ** 2 @ v.double())


@pytest.mark.parametrize(("queries", "keys", "width"), [(1, 1, 8), (1, 200, 64), (65, 3, 24), (64, 129, 80), (130, 64, 136)])
def test_sizes(queries: int, keys: int, width: int) -> None:
    args = three(1, queries, keys, width)
    close(ran(kernels.full, *args, 0.1)["out"], reference(*args, 0.1))


def test_operands_that_lie_otherwise() -> None:
    """k and v are stored with the keys side by side; v has a width of its own."""
    q, k, v = inputs((2, 70, 64), (2, 64, 136), (2, 40, 136))
    k, v = k.transpose(1, 2), v.transpose(1, 2)
    close(ran(kernels.full, q, k, v, 0.125)["out"], reference(q, k, v, 0.125))


@pytest.mark.parametrize("keys", [40, 72, 200])
def test_keys_along_columns_come_in_lines_of_64(keys: int) -> None:
    graph = gqa_decode(2, 20, keys, 16)
    q, k, v = inputs((2, 20, 16), (2, 16, keys), (2, keys, 16), dtype=torch.float16)
    plan = plan_of(graph.kernel, q, k, v)
    assert isinstance(plan, ChainPlan) and plan.scores.tile[1] % 64 == 0
    report = graph.check(q, k, v)
    assert report.ok and not report.findings, str(report)


def test_blocks_share_the_columns_of_few_tiles() -> None:
    for heads, shared in ((2, True), (64, False)):
        shapes = (heads, 256, 64), (heads, 64, 4096), (heads, 4096, 64)
        specs = [f"float16[{','.join(map(str, s))}]" for s in shapes]
        plan = examine(gqa_decode(heads, 256, 4096, 64).kernel, specs).launches()[0].variant.plan
        assert isinstance(plan, ChainPlan)
        assert (plan.parts > 1) == shared


def test_the_rows_of_one_query_are_its_heads() -> None:
    """Of axes that no key has, rows are those by which keys are read least often."""
    q, k, v = inputs((1, 2, 5, 1, 64), (1, 2, 300, 64), (1, 2, 300, 64))
    assert plan_of(attended, q, k, v, 0.125).row == "g"
    assert plan_of(attended, *inputs((1, 2, 5, 90, 64), (1, 2, 300, 64), (1, 2, 300, 64)), 0.125).row == "i"
    out = ran(attended, q, k, v, 0.125)["out"]
    close(out.permute(0, 2, 3, 1, 4), reference(q, k[:, :, None], v[:, :, None], 0.125))


def test_large_scores_and_one_key_that_has_all() -> None:
    q, k, v = three(1, 70, 140, 64)
    q = q * 100
    close(ran(kernels.full, q, k, v, 1.0)["out"], reference(q, k, v, 1.0))


@pytest.mark.parametrize("scale", [-0.2, 0.0, 1e-3])
def test_factors_of_scores(forced: Callable[..., None], scale: float) -> None:
    """The maximum of products is not the product of the maximum where the factor is below 0."""
    forced(1, 64)
    args = three(1, 70, 150, 64)
    close(ran(kernels.full, *args, scale)["out"], reference(*args, scale))


@pytest.mark.parametrize("by", [8.0, -8.0, math.inf])
def test_divisors_of_scores(forced: Callable[..., None], by: float) -> None:
    forced(1, 64)
    args = three(1, 70, 150, 64)
    close(ran(kernels.divided, *args, by)["out"], reference(*args, 1 / by))


@pytest.mark.parametrize("size", [1e5, 1e8, 1e20])
def test_scores_far_from_0(forced: Callable[..., None], size: float) -> None:
    """Powers of two that are rounded there would be wrong by more than all that is between the scores."""
    forced(1, 64)
    q, k, v = three(1, 70, 150, 64)
    q[0, ::3] *= size
    q[0, 1::3], k[0, 1::2] = 0.0, k[0, ::2]
    scores = (q.double() @ k.double().transpose(-1, -2)).float() * 0.5
    close(ran(kernels.full, q, k, v, 0.5)["out"], torch.softmax(scores.double(), -1) @ v.double())


def test_numbers_of_rows_in_scores_and_in_results(forced: Callable[..., None]) -> None:
    forced(1, 64)
    q, k, v = three(2, 100, 100, 32)
    heat = torch.rand(2, 100, generator=torch.Generator().manual_seed(1)) + 0.1
    assert isinstance(plan_of(kernels.tempered, q, k, v, heat), ChainPlan)
    seen, warm = torch.ones(100, 100, dtype=torch.bool).tril(), heat[..., None]
    expected = reference(q.double() * warm, k, v, 1.0, seen) * warm
    close(ran(kernels.tempered, q, k, v, heat)["out"], expected)


def test_the_largest_weight_is_1_of_scores_of_thousands(forced: Callable[..., None]) -> None:
    """Else what is rounded of it and what is summed would differ, and nearly every result be off by a unit."""
    forced(1, 64)
    q, k, v = three(1, 64, 90, 16, torch.float16)
    q, k = q * 100, k * 100
    exact = reference(q, k, v, 0.25)
    error = (ran(kernels.full, q, k, v, 0.25)["out"].double() - exact).abs().max()
    assert error <= 1.5 * (exact.half().double() - exact).abs().max()


def test_heads_that_share_keys(forced: Callable[..., None]) -> None:
    forced(2, 64)
    q, k, v = inputs((1, 6, 70, 64), (1, 2, 90, 64), (1, 2, 90, 64))
    assert isinstance(plan_of(kernels.grouped, q, k, v, 0.1), ChainPlan)
    expected = reference(q, k.repeat_interleave(3, 1), v.repeat_interleave(3, 1), 0.1)
    close(ran(kernels.grouped, q, k, v, 0.1)["out"], expected)


def test_heads_that_have_no_keys_are_checked_as_they_run() -> None:
    """The last of 7 heads has the keys of a fourth, which is not there."""
    q, k, v = inputs((1, 7, 70, 64), (1, 3, 90, 64), (1, 3, 90, 64))
    assert not isinstance(plan_of(kernels.grouped, q, k, v, 0.1), ChainPlan)


def test_values_that_queries_share_but_not_their_keys() -> None:
    with pytest.raises(NotTiles, match="together"):
        read(kernels.values_of_two, *inputs((1, 70, 64), (1, 90, 64), (1, 35, 90, 64)), 0.1)


@pytest.mark.parametrize("multiprocessors", [1, 4, 30])
def test_one_query(forced: Callable[..., None], multiprocessors: int) -> None:
    """The heads that share keys are the rows of a tile; blocks share the keys of one."""
    forced(1, 64, multiprocessors)
    q, k, v = inputs((2, 6, 64), (2, 2, 700, 64), (2, 2, 700, 64))
    found = [ran(kernels.decode, q, k, v, 0.1, seed=seed) for seed in (0, 1)]
    k, v = (t.repeat_interleave(3, 1) for t in (k, v))
    close(found[0]["out"], reference(q[:, :, None], k, v, 0.1)[:, :, 0])
    sums = (q.double()[:, :, None] @ k.double().transpose(-1, -2) * 0.1).logsumexp(-1)[:, :, 0]
    torch.testing.assert_close(found[0]["sums"].double(), sums, rtol=1e-5, atol=1e-5)
    assert all(torch.equal(a, b) for a, b in zip(found[0].values(), found[1].values(), strict=True))


def test_plan_of_one_query() -> None:
    args = inputs((8, 32, 128), (8, 4, 4096, 128), (8, 4, 4096, 128))
    entries = {"after": ["decode_parts", "decode"], "cluster": ["decode"], "tickets": ["decode_tickets", "decode"]}
    for meeting in MEETINGS:
        with asking({0: Leaning("", meetings=(meeting,))}):
            launches = examine(kernels.decode, (*args, 0.1)).launches()
        assert [launch.entry for launch in launches] == entries[meeting]
        plan = launches[0].variant.plan
        assert isinstance(plan, ChainPlan)
        assert plan.together == 8
        assert plan.parts > 1


@pytest.mark.usefixtures("separate_launches")
def test_parts_are_combined_to_the_same_bits_whoever_does(forced: Callable[..., None], monkeypatch: Any) -> None:
    """A launch after, the blocks of a cluster, or the block that comes last; of rows without keys too."""
    forced(1, 64, 64)
    monkeypatch.setattr(plans, "MOST_PARTS", 3)
    monkeypatch.setattr(plans, "MEETING_CYCLES", dict.fromkeys(("", *MEETINGS), 0))
    q, k, v = inputs((2, 6, 64), (2, 2, 700, 64), (2, 2, 700, 64))
    lengths = torch.tensor([150, 0, 7])
    for kernel, args in ((kernels.decode, (q, k, v, 0.1)), (kernels.of_lengths, (*three(3, 40, 150, 32), lengths, 0.2))):
        found = []
        for k, meeting in enumerate(MEETINGS):
            with asking({0: Leaning("", meetings=(meeting,))}):
                plan = plan_of(kernel, *args)
                assert (plan.parts, plan.meeting) == (3, meeting)
                found.append(ran(kernel, *args, seed=k)["out"])
        assert all(torch.equal(one.isnan(), found[0].isnan()) for one in found)
        assert all(torch.equal(one.nan_to_num(0.0), found[0].nan_to_num(0.0)) for one in found)


@pytest.mark.gpu
def test_parts_are_combined_to_the_same_bits_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MOST_PARTS", 3)
    monkeypatch.setattr(plans, "MEETING_CYCLES", dict.fromkeys(("", *MEETINGS), 0))
    q, k, v = (t.cuda() for t in inputs((8, 32, 128), (8, 4, 2000, 128), (8, 4, 2000, 128)))
    program, found = kernels.decode.program, []
    for meeting in MEETINGS:
        with asking({0: Leaning("", meetings=(meeting,))}):
            call = prepare(program.specializable, program.signature, (q, k, v, 0.1), None)
        found += [call.tensors((q, k, v, 0.1))[0] for _ in range(3)]
    assert all(torch.equal(one, found[0]) for one in found)
    keys, values = (t.cpu().repeat_interleave(8, 1) for t in (k, v))
    close(found[0].cpu(), reference(q.cpu()[:, :, None], keys, values, 0.1)[:, :, 0])


@pytest.mark.parametrize("multiprocessors", [2, 40])
def test_lengths_that_bound_the_keys(forced: Callable[..., None], multiprocessors: int) -> None:
    forced(1, 64, multiprocessors)
    q, k, v = three(3, 150, 150, 32)
    v[0, 3:] = math.inf
    lengths = torch.tensor([3, 150, 100])
    assert isinstance(plan_of(kernels.ragged, q, k, v, lengths, 0.2), ChainPlan)
    seen = (torch.arange(150) < lengths[:, None])[:, None] & torch.ones(150, 150, dtype=torch.bool).tril()
    close(ran(kernels.ragged, q, k, v, lengths, 0.2)["out"], reference(q, k, v, 0.2, seen))


def test_lengths_beyond_the_keys_stop_the_kernel(forced: Callable[..., None]) -> None:
    forced(1, 64)
    q, k, v = three(2, 70, 70, 32)
    found = simulated.simulate_call(kernels.ragged.program, [q, k[:, :50], v, torch.tensor([70, 50]), 0.2], "sm_90a", 0, "call")
    kinds = {f.kind for launch in found.launches for s in launch.simulations for f in s.findings}
    assert "trap" in kinds


def test_gradients_run_in_passes() -> None:
    q, k, v = three(1, 24, 20, 16)
    report = kernels.full.check(q, k, v, 0.25, gradients=True, tolerance=0.1)
    assert not report.findings


# ---------------------------------------------------------------- text, and planted bugs


@pytest.mark.parametrize("kernel", [kernels.full, kernels.causal, kernels.near], ids=lambda k: k.name)
def test_the_text_of_plans(kernel: Any, golden: Callable[[str, str], None]) -> None:
    more = (100,) if kernel is kernels.near else ()
    golden(f"cuda/chain_{kernel.name}.cu", kernel.source(*("bfloat16[64,4096,64]",) * 3, 0.125, *more, arch="sm_90a"))


PLANTED = {
    "a_warp_gives_places_back_for_others": (
        "sums_empty[summed].arrive_if(threadIdx.x % 32 == 0)", "sums_empty[summed].arrive_if(threadIdx.x % 128 == 0)",
        "sums_empty[place].arrive_if(threadIdx.x % 32 == 0)", "sums_empty[place].arrive_if(threadIdx.x % 128 == 0)",
        "sums_empty[place].init(4)", "sums_empty[place].init(1)",
    ),
    "columns_are_not_awaited": ("scores_full[place].wait(phase);", ""),
    "sums_are_of_the_turn_before": ("sums_full[place].wait(phase);", ""),
    "rows_are_not_awaited": ("rows_full[0].wait(rows % 2);", ""),
    "fewer_bytes_are_expected": ("scores_full[place].arrive_expect(8192)", "scores_full[place].arrive_expect(4096)"),
    "places_are_taken_early": ("sums_empty[place].wait(phase ^ 1);", ""),
    "rows_are_taken_early": ("rows_empty[0].wait((rows % 2) ^ 1);", ""),
    "scores_are_not_awaited": ("weft::wgmma_wait<0>(dot_own);", ""),
    "later_scores_are_not_awaited": ("weft::wgmma_wait<1>(dot_own);", ""),
    "sums_are_brought_before_they_are_done": ("if (summing) {", "if (false) {"),
    "lanes_lie_as_columns": ("64, false>*>(memory", "64, true>*>(memory"),
    "barriers_are_not_made_known": ("weft::fence_mbarrier_init();", ""),
    "nothing_is_outside": ("if (h * 8 + v >= column_stop) dot_own[h * 4 + u * 2 + v] = weft::Max<float>::identity();", ""),
    "sums_stay_where_they_are": ("acc_own[0][h * 4 + u * 2 + v] *= factor[u];", ""),
    "a_quad_is_not_asked": ("= weft::reduce_lanes<weft::Max<float>, 4>(", "= ("),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bugs_are_seen(name: str, forced: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    forced(1, 64, multiprocessors=1)
    monkeypatch.setattr(plans, "STAGES", (3,))
    monkeypatch.setattr(plans, "ROW_PLACES", (1,))
    changes = dict(zip(PLANTED[name][::2], PLANTED[name][1::2], strict=True))
    emitted = simulated.cuda_source

    def changed(*args: Any) -> str:
        text: str = emitted(*args)
        for old, new in changes.items():
            assert old in text, f"{old!r} is not there:\n{text}"
            text = text.replace(old, new)
        return text

    monkeypatch.setattr(simulated, "cuda_source", changed)
    args = three(2, 70, 280, 64)
    for seed in (0, 1, 2):
        found = simulated.simulate_call(kernels.full.program, [*args, 0.125], "sm_90a", seed, "call")
        findings = [f for launch in found.launches for s in launch.simulations for f in s.findings]
        expected = reference(*args, 0.125)
        error = (found.arrays["out"].double() - expected).norm()
        if findings or not error <= 4e-3 * expected.norm():
            return
    pytest.fail("nobody sees it")


@weft.kernel
def by_squares(q, k, v):
    heads, queries, width = q.shape
    out = torch.empty_like(v)
    for h in range(heads):
        for i in range(queries):
            total = torch.zeros(width, dtype=torch.float32, device=q.device)
            for j in range(i + 1):
                dot = 0.0
                for d in range(width):
                    dot += q[h, i, d] * k[h, j, d]
                p = torch.square(torch.relu(dot)).to(v.dtype)
                for e in range(width):
                    total[e] += p * v[h, j, e]
            for e in range(width):
                out[h, i, e] = total[e]
    return out


@weft.kernel
def of_each_result(q, k, v):
    """The scores of a row anew for each of its results."""
    heads, queries, width = q.shape
    out = torch.empty_like(v)
    for h in range(heads):
        for i in range(queries):
            for e in range(width):
                largest = -math.inf
                for j in range(i + 1):
                    dot = 0.0
                    for d in range(width):
                        dot += q[h, i, d] * k[h, j, d]
                    largest = max(largest, dot)
                total = 0.0
                weights = 0.0
                for j in range(i + 1):
                    dot = 0.0
                    for d in range(width):
                        dot += q[h, i, d] * k[h, j, d]
                    p = torch.exp(dot - largest)
                    weights += p
                    total += p.to(v.dtype) * v[h, j, e]
                out[h, i, e] = total / weights
    return out


@pytest.mark.parametrize("kernel", [by_squares, of_each_result])
def test_weights_need_be_no_softmax_and_scores_be_said_once(kernel: Any) -> None:
    assert isinstance(plan_of(kernel, *["bfloat16[64,4096,64]"] * 3), ChainPlan)
