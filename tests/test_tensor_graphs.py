"""Tensor graphs: what they compute and its gradients, as PyTorch's operators do in float64."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

import weft
from bench import workloads
from bench.workloads import WORKLOADS, Workload, tensors
from tests.examples import chunks
from tests.fuzz_batch import Batch
from tests.random_tensor_graphs import disagreement, draw
from weft.graph import BlockGraph, KernelGraph
from weft.tensors.builder import Value

UNARY = ("exp", "silu", "gelu", "relu", "square", "sqrt")


pytestmark = pytest.mark.usefixtures("quickly_compiled")


def agrees(graph: KernelGraph, *given: torch.Tensor, tolerance: float = 2e-3, gradients: bool = True) -> None:
    """Whether a graph's results and gradients are those of its reference in float64, of the largest magnitude there is."""
    given = tuple(t.detach().requires_grad_(gradients) for t in given)
    made, exact = (r if isinstance(r, tuple) else (r,) for r in (graph(*given), graph.reference(*given, double=True)))
    for a, e in zip(made, exact, strict=True):
        near(a, e, tolerance)
    if not gradients:
        return
    weights = [torch.rand(e.shape, dtype=torch.float64) for e in exact]
    own, wanted = (
        torch.autograd.grad([(w * r).sum() for w, r in zip(weights, results, strict=True)], given, allow_unused=True)
        for results in (made, exact)
    )
    for t, a, e in zip(given, own, wanted, strict=True):
        near(torch.zeros_like(t) if a is None else a, torch.zeros_like(t) if e is None else e, 4 * tolerance)


def near(made: torch.Tensor, exact: torch.Tensor, tolerance: float) -> None:
    assert made.shape == exact.shape
    made, exact = made.detach().double(), exact.detach().double()
    assert not made.numel() or (made - exact).abs().max() <= tolerance * (1e-30 + exact.abs().max()), (made, exact)


def halves(*shape: int, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(shape) * scale).half()


# ---------------------------------------------------------------- the six workloads


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
def test_workloads(workload: Workload) -> None:
    graph = workload.graph(*workload.small)
    given = tensors(graph)
    agrees(graph, *given)
    near(graph(*given), workload.eager(*(t.double() for t in given)), 2e-3)
    assert KernelGraph.from_json(graph.to_json()) == graph


@pytest.mark.parametrize(
    ("operators", "blocks"),
    [(workloads.rms_linear, workloads.rms_linear_block), (workloads.gated_mlp, workloads.gated_mlp_block)],
)
def test_blocks_and_operators_reach_the_same_plan(operators: Callable[..., Any], blocks: Callable[..., Any]) -> None:
    first, second = (str(f(16, 4096, 4096).explain()).split("plan on a GPU:")[1] for f in (operators, blocks))
    assert first == second


@weft.kernel
def gated(x, gate, up):
    result = torch.empty((x.shape[0], gate.shape[1]), dtype=torch.float16, device=x.device)
    for i in range(x.shape[0]):
        for j in range(gate.shape[1]):
            matmul = 0.0
            for k in range(x.shape[1]):
                matmul += x[i, k] * gate[k, j]
            matmul_1 = 0.0
            for k in range(x.shape[1]):
                matmul_1 += x[i, k] * up[k, j]
            result[i, j] = torch.nn.functional.silu(matmul) * matmul_1
    return result


def test_loops_and_graphs_reach_the_same_plan() -> None:
    specs = ["float16[16,4096]", "float16[4096,4096]", "float16[4096,4096]"]
    both = gated, workloads.gated_mlp(16, 4096, 4096)
    by_loops, by_graph = (str(f.explain(*specs)).split("plan on a GPU:")[1] for f in both)
    assert by_loops == by_graph


# ---------------------------------------------------------------- silent errors of others


def unary(graph: Any, operator: str, x: Value) -> Value:
    made: Value = graph.sqrt(graph.add(graph.square(x), 1.0)) if operator == "sqrt" else getattr(graph, operator)(x)
    return made


@pytest.mark.parametrize("operator", [*UNARY, "clamp", "mul_scalar"])
def test_an_operator_on_the_product_of_each_turn(operator: str) -> None:
    g = KernelGraph()
    a, b = g.input("a", (6, 24), "float16"), g.input("b", (24, 9), "float16")
    block = BlockGraph((3,), 4)
    product = block.matmul(block.input(a, (-1,), 1), block.input(b, (1,), 0))
    if operator == "clamp":
        turned = block.clamp(product, -0.5, 0.25)
    elif operator == "mul_scalar":
        turned = block.mul_scalar(product, -3.5)
    else:
        turned = unary(block, operator, product)
    block.output(block.accumulate(turned), (1,))
    g.output(*g.customized((a, b), block))
    agrees(g, halves(6, 24), halves(24, 9))


@pytest.mark.parametrize("operator", ["add", "sub", "mul", "div"])
@pytest.mark.parametrize("shape", [(64, 1), (1, 64), (1, 1), (64, 64)])
def test_columns_and_rows_are_repeated(operator: str, shape: tuple[int, int]) -> None:
    g = KernelGraph()
    x, y = g.input("x", (64, 64)), g.input("y", shape)
    block = BlockGraph((4, 2))
    tiles = block.input(x, (0, 1)), block.input(y, (0 if shape[0] > 1 else -1, 1 if shape[1] > 1 else -1))
    block.output(getattr(block, operator)(*tiles), (0, 1))
    g.output(*g.customized((x, y), block))
    agrees(g, torch.rand(64, 64) + 0.5, torch.rand(shape) + 0.5, tolerance=1e-6)


def test_clamp_has_its_bounds() -> None:
    g = KernelGraph()
    g.output(g.clamp(g.input("x", (5,)), -10, 10))
    assert g(torch.tensor([-300.0, -10.0, 0.5, 10.0, 300.0])).tolist() == [-10, -10, 0.5, 10, 10]


@pytest.mark.parametrize("scalar", [1e-7, -1e-30, 1e30, 1 / 3, 123456789.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_keep_all_digits(scalar: float, dtype: torch.dtype) -> None:
    x = torch.rand(7, dtype=dtype)
    g = KernelGraph()
    tensor = g.input("x", (7,), dtype)
    g.output(g.mul_scalar(tensor, scalar))
    g.output(g.add(tensor, scalar))
    made, added = g(x)
    assert torch.equal(made, x * scalar) and torch.equal(added, x + scalar)


def test_sums_are_float32_whatever_is_stored() -> None:
    g = KernelGraph()
    a, b = g.input("a", (2, 8192), "float16"), g.input("b", (8192, 3), "float16")
    g.output(g.mul_scalar(g.matmul(a, b), 1 / 8192))
    g.output(g.mul_scalar(g.reduction(a, 1), 1 / 8192))
    product, total = g(torch.full((2, 8192), 0.1).half(), torch.ones(8192, 3).half())
    assert (product - 0.1).abs().max() < 1e-4 and (total - 0.1).abs().max() < 1e-4


@pytest.mark.parametrize("scale", [1e-4, 1e-3, 1.0, 300.0, 6e4])
def test_squares_of_halves_neither_overflow_nor_vanish(scale: float) -> None:
    x = (torch.rand(3, 4096) + 0.5).mul(scale / 1.5).half()
    g = KernelGraph()
    tensor = g.input("x", (3, 4096), "float16")
    block = BlockGraph((3,), 16)
    block.output(block.accumulate(block.input(tensor, (0,), 1), "rms", eps=0.0), (0,))
    g.output(g.rms_norm(tensor, eps=0.0))
    g.output(*g.customized((tensor,), block))
    agrees(g, x, tolerance=1e-3, gradients=False)


def test_rows_of_zeros_are_normalised_by_epsilon() -> None:
    g = KernelGraph()
    g.output(g.rms_norm(g.input("x", (2, 64), "float16"), eps=1e-6))
    x = torch.zeros(2, 64).half()
    x[1] = 1e-3
    made = g(x)
    assert (made[0] == 0).all()
    near(made, torch.nn.functional.rms_norm(x.double(), (64,), eps=1e-6), 1e-3)


def test_rows_of_many_magnitudes() -> None:
    scales = 10.0 ** torch.arange(-4, 5)[:, None]
    g = KernelGraph()
    x, w = g.input("x", (9, 128)), g.input("w", (128, 33))
    g.output(g.matmul(g.rms_norm(x, eps=1e-12), w))
    given = torch.randn(9, 128) * scales, torch.randn(128, 33)
    made, exact = g(*given), g.reference(*given, double=True)
    for k in range(9):
        near(made[k], exact[k], 1e-5)


def sums(x: torch.Tensor, size: int) -> torch.Tensor:
    return x.unflatten(-1, (size, x.shape[-1] // size)).sum(-1)


def test_sums_to_a_size_are_of_neighbours_everywhere() -> None:
    g = KernelGraph()
    x = g.input("x", (4, 24), "float64")
    g.output(g.reduction(x, 1, 8))
    block = BlockGraph((1,), 2)
    tile = block.input(x, (-1,), 1)
    block.output(block.accumulate(tile, "sum_to_dim", size=4), name="accumulated")
    block.output(block.accumulate(block.reduction(tile, 1, 4)), name="reduced")
    for result in g.customized((x,), block):
        g.output(result)
    given = torch.rand(4, 24, dtype=torch.float64)
    of_all, accumulated, reduced = g(given)
    near(of_all, sums(given, 8), 1e-12)
    near(accumulated, sums(given[:, :12], 4) + sums(given[:, 12:], 4), 1e-12)
    near(reduced, accumulated, 1e-12)
    agrees(g, given, tolerance=1e-12)


@pytest.mark.parametrize("kind", ["none", "sum", "mean", "rms", "max", "rescaled_sum"])
def test_accumulators(kind: str) -> None:
    g = KernelGraph()
    x, s = g.input("x", (3, 20), "float64"), g.input("s", (3, 4), "float64")
    block = BlockGraph((3,), 4)
    tile, scale = block.input(x, (0,), 1), block.input(s, (0,), 1)
    block.output(block.accumulate(tile, kind, scale=scale if kind == "rescaled_sum" else None), (0,))
    g.output(*g.customized((x, s), block))
    given = torch.randn(3, 20, dtype=torch.float64), torch.rand(3, 4, dtype=torch.float64)
    agrees(g, *given, tolerance=1e-12)
    turns = given[0].view(3, 4, 5)
    expected = {
        "none": turns.sum(1), "sum": given[0].sum(1, keepdim=True), "mean": given[0].mean(1, keepdim=True),
        "rms": (given[0].square().mean(1, keepdim=True) + 1e-6).sqrt(), "max": turns.amax(1),
        "rescaled_sum": sum(turns[:, t] * given[1][:, t + 1 :].prod(1, keepdim=True) for t in range(4)),
    }[kind]  # fmt: skip
    near(g(*given), expected, 1e-12)


@pytest.mark.parametrize("sizes", [(15, 15, 15), (96, 57, 96), (7, 13, 5), (1, 64, 1), (5, 1, 8)])
@pytest.mark.parametrize("grid", [(3, 3), (4, 4), (2, 5)])
@pytest.mark.parametrize("turns", [3, 4, 8])
def test_tiles_of_any_size(sizes: tuple[int, int, int], grid: tuple[int, int], turns: int) -> None:
    m, k, n = sizes
    g = KernelGraph()
    a, b, bias = g.input("a", (m, k), "float64"), g.input("b", (k, n), "float64"), g.input("bias", (1, n), "float64")
    block = BlockGraph(grid, turns)
    product = block.accumulate(block.matmul(block.input(a, (0, -1), 1), block.input(b, (-1, 1), 0)))
    shifted = block.add(product, block.input(bias, (-1, 1)))  # that is used after the loop alone
    block.output(block.gelu(shifted), (0, 1))
    g.output(*g.customized((a, b, bias), block))
    given = [torch.randn(s, dtype=torch.float64) for s in ((m, k), (k, n), (1, n))]
    near(g(*given), g.reference(*given), 1e-12)
    near(g(*given), torch.nn.functional.gelu(given[0] @ given[1] + given[2]), 1e-12)


def test_tiles_of_tiles() -> None:
    g = KernelGraph()
    a, b = g.input("a", (96, 57), "float64"), g.input("b", (57, 96), "float64")
    block = BlockGraph((4, 4), 3)
    tile = block.matmul(block.input(a, (0, -1), 1), block.input(b, (-1, 1), 0))
    block.output(block.accumulate(block.relu(tile)), (0, 1))
    g.output(*g.customized((a, b), block))
    agrees(g, torch.randn(96, 57, dtype=torch.float64), torch.randn(57, 96, dtype=torch.float64), tolerance=1e-12)


def test_grids_of_three_axes() -> None:
    g = KernelGraph()
    x, y = g.input("x", (5, 6, 7), "float64"), g.input("y", (5, 1, 7), "float64")
    block = BlockGraph((2, 3, 4), 2)
    tile = block.input(x, (2, 0, 1), 2)
    scaled = block.mul(block.exp(tile), block.input(y, (2, 0, -1), 2))
    block.output(block.accumulate(scaled, "sum"), (2, 0, 1))
    g.output(*g.customized((x, y), block))
    assert g.graph.nodes[-1].dims[2].size == 2  # each block along x has a sum of its own
    agrees(g, torch.rand(5, 6, 7, dtype=torch.float64), torch.rand(5, 1, 7, dtype=torch.float64), tolerance=1e-12)


def test_strides_with_gaps() -> None:
    graph = workloads.gated_mlp(4, 30, 20)
    given = [t.repeat_interleave(3, 0)[::3].T.contiguous().T for t in tensors(graph)]
    agrees(graph, *given)


def test_many_columns() -> None:
    agrees(workloads.rms_linear_block(2, 32, 18944), halves(2, 32), halves(32, 18944), gradients=False)


def test_side_by_side() -> None:
    """The low rank of a LoRA layer joined to the other operand, as one product."""
    g = KernelGraph()
    x, low = g.input("x", (4, 32), "float16"), g.input("low", (4, 16), "float16")
    w, up = g.input("w", (32, 24), "float16"), g.input("up", (16, 24), "float16")
    block = BlockGraph((3,), 4)
    rows = block.concat(block.input(x, (-1,), 1), block.input(low, (-1,), 1), 1)
    columns = block.concat(block.input(w, (1,), 0), block.input(up, (1,), 0), 0)
    block.output(block.accumulate(block.matmul(rows, columns)), (1,))
    g.output(*g.customized((x, low, w, up), block))
    given = [halves(4, 32), halves(4, 16), halves(32, 24), halves(16, 24)]
    agrees(g, *given)
    near(g(*given), given[0].double() @ given[2].double() + given[1].double() @ given[3].double(), 1e-3)


def test_powers() -> None:
    g = KernelGraph()
    x, y = g.input("x", (6,), "float64"), g.input("y", (6,), "float64")
    for result in (g.pow(x, y), g.pow(x, 3.0), g.pow(2.0, y)):
        g.output(result)
    agrees(g, torch.rand(6, dtype=torch.float64) + 0.5, torch.randn(6, dtype=torch.float64), tolerance=1e-12)


def test_rounding_is_an_operator() -> None:
    g = KernelGraph()
    x = g.input("x", (4,), "float32")
    g.output(g.sub(x, g.to(x, torch.bfloat16)))
    x = torch.tensor([1.0, 1.001, 3.14159, 1e-3])
    assert torch.equal(g(x), x - x.bfloat16().float())


@pytest.mark.parametrize("n", [1, 2, 17, 0])
def test_sizes_that_a_call_tells(n: int) -> None:
    g = KernelGraph()
    x, w = g.input("x", ("rows", "n"), "float64"), g.input("w", ("n", 8), "float64")
    block = BlockGraph((4,), 3)
    rows = block.input(x, (0,), 1)
    product = block.accumulate(block.matmul(rows, block.input(w, (-1,), 0)))
    block.output(block.div(product, block.accumulate(rows, "rms", eps=0.5)), (0,))
    g.output(*g.customized((x, w), block))
    for rows_ in (1, 4, 9):
        given = torch.rand(rows_, n, dtype=torch.float64), torch.rand(n, 8, dtype=torch.float64)
        near(g(*given), g.reference(*given), 1e-12)


def test_a_tile_of_a_dimension_that_is_cut_and_reduced() -> None:
    """What a block makes of its own tile differs from block to block."""
    g = KernelGraph()
    x = g.input("x", (4, "n"), "float64")
    block = BlockGraph((3,), 1)
    block.output(block.rms_norm(block.input(x, (1,)), eps=0.1), (1,))
    g.output(*g.customized((x,), block))
    for n in (6, 7, 11):
        agrees(g, torch.rand(4, n, dtype=torch.float64), tolerance=1e-12)


def test_a_tile_without_elements_has_a_root_in_plain_python_too() -> None:
    """The root is that of a tensor: torch.rsqrt takes no number of Python's."""
    g = KernelGraph()
    x = g.input("x", (4, 4), "float64")
    block = BlockGraph((3,), 1)
    block.output(block.rms_norm(block.input(x, (1,)), eps=0.1), (1,))
    g.output(*g.customized((x,), block))
    given = torch.rand(4, 4, dtype=torch.float64)
    near(g.kernel.py(given), g.reference(given), 1e-12)


# ---------------------------------------------------------------- random ones


@pytest.mark.parametrize("first", chunks(1000, 50, usual=1))
def test_random_graphs(first: int) -> None:
    wrong: list[str] = []

    def look(seed: int) -> None:
        torch.manual_seed(seed)
        drawn = draw(random.Random(seed))
        try:
            told = disagreement(drawn)
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
        if told:
            wrong.append(f"seed {seed}: {told}\n{drawn.graph}")

    batch = Batch()
    with batch.installed():
        batch.map(look, range(first, first + 50), 32)
    assert not wrong, "\n\n".join(wrong[:3])


@hypothesis.given(st.randoms(use_true_random=False), st.integers(0, 2**31))
def test_drawn_graphs(chooser: random.Random, seed: int) -> None:
    torch.manual_seed(seed)
    drawn = draw(chooser)
    told = disagreement(drawn)
    assert not told, f"{told}\n{drawn.graph}"


# ---------------------------------------------------------------- the emitted CUDA


@pytest.mark.parametrize("name", ["RMSNorm + matmul, blocks", "gated MLP", "LoRA", "nTrans"])
def test_workloads_on_the_simulator(name: str) -> None:
    (workload,) = (w for w in WORKLOADS if w.name == name)
    graph = workload.graph(*workload.small)
    report = graph.check(*tensors(graph))
    assert report.ok, report


def test_tiles_of_tiles_on_the_simulator() -> None:
    g = KernelGraph()
    a, b = g.input("a", (15, 15)), g.input("b", (15, 15))
    block = BlockGraph((3, 3), 3)
    tile = block.matmul(block.input(a, (0, -1), 1), block.input(b, (-1, 1), 0))
    block.output(block.accumulate(block.silu(tile)), (0, 1))
    g.output(*g.customized((a, b), block))
    report = g.check(seeds=2)
    assert report.ok, report


@pytest.mark.gpu
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
def test_workloads_on_a_gpu_on_another_stream(workload: Workload) -> None:
    graph = workload.graph(*workload.small)
    given = tensors(graph)
    with torch.cuda.stream(torch.cuda.Stream()):
        made = graph(*(t.cuda() for t in given))
    torch.cuda.synchronize()
    near(made.cpu(), graph.reference(*given, double=True), 2e-3)


# ---------------------------------------------------------------- PyTorch's transforms


def test_torch_compile() -> None:
    graph = workloads.gated_mlp(4, 30, 20)
    given = [t.requires_grad_() for t in tensors(graph)]
    compiled = torch.compile(lambda *t: graph(*t) * 2, backend="aot_eager", fullgraph=True)
    made, wanted = compiled(*given), graph(*given) * 2
    assert torch.equal(made, wanted)
    own, expected = (torch.autograd.grad(r.float().sum(), given) for r in (made, wanted))
    for a, e in zip(own, expected, strict=True):
        assert torch.equal(a, e)
