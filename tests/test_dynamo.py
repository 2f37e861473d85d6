"""`torch.compile(backend="weft")`: eager mode's results with their gradients, strides and dtypes, and a report that is true."""

from __future__ import annotations

import contextlib
import copy
import io
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import weft
from tests.compiled import FUNCTIONS, MODELS, random_program
from weft.dynamo import fused, groups
from weft.dynamo.decompositions import decompositions
from weft.dynamo.groups import divide
from weft.dynamo.report import GraphReport
from weft.errors import CompileError

_CLOSE = {torch.bfloat16: 2e-2, torch.float16: 2e-3, torch.float32: 1e-4, torch.float64: 1e-9}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def _like_eager(function: Any, compiled: Any, *args: torch.Tensor) -> None:
    """Hold results, strides and gradients of one against the other's."""
    given = [[a.detach().clone().requires_grad_(a.is_floating_point()) for a in args] for _ in range(2)]
    expected, made = function(*given[0]), compiled(*given[1])
    _close(made, expected)
    assert made.stride() == expected.stride()
    if not expected.requires_grad:
        return
    seed = torch.randn_like(expected)
    gradients = []
    for result, own in ((expected, given[0]), (made, given[1])):
        leaves = [a for a in own if a.requires_grad]
        gradients.append(torch.autograd.grad(result, leaves, seed, allow_unused=True))
    for want, got in zip(*gradients, strict=True):
        assert (want is None) == (got is None)
        if want is not None:
            _close(got, want)


def _close(made: torch.Tensor, expected: torch.Tensor) -> None:
    bound = _CLOSE.get(expected.dtype, 0)
    torch.testing.assert_close(made, expected, atol=bound, rtol=bound, equal_nan=True)


# Of which another one is, in what is made of it
_ALIKE = {
    "binary_cross_entropy", "booleans", "causal_softmax", "clamp", "cosine_similarity", "cross_entropy_smoothed", "cumsum_last",
    "double", "glu", "huber", "log_softmax", "mse", "normalized", "permuted", "rms_norm", "selected", "sliced", "softmax",
    "standardized", "sum_of_all", "swiglu", "transposed", "trigonometry",
}  # fmt: skip


_ROUNDED_ONCE = {"running"}  # a gradient near 0 is what multiply-adds leave


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.long] if n in _ALIKE else []) for n in FUNCTIONS])
def test_functions_are_those_of_eager_mode(name: str, request: pytest.FixtureRequest) -> None:
    if name in _ROUNDED_ONCE:
        request.getfixturevalue("rounded_once")
    function, args = FUNCTIONS[name]
    backend = weft.Backend()
    _like_eager(function, torch.compile(function, backend=backend, fullgraph=True), *args)
    assert backend.report.graphs[0].taken
    assert not [t.failed for g in backend.report.graphs for t in g.taken if t.failed]


# A model for language has a block, which has a network of two layers.
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long) if n in ("block", "gelu_mlp") else n for n in MODELS]
)
def test_models_train_as_in_eager_mode(name: str) -> None:
    make, inputs = MODELS[name]
    model = make()
    own = copy.deepcopy(model)
    compiled = torch.compile(own, backend=weft.Backend(), fullgraph=True, dynamic=False)
    _train_alike(model, own, compiled, inputs(3))


def _train_alike(model: torch.nn.Module, own: torch.nn.Module, compiled: Any, x: torch.Tensor, bound: float = 1e-3) -> None:
    expected, made = model(x), compiled(x)
    torch.testing.assert_close(made, expected, atol=bound, rtol=bound)
    seed = torch.randn_like(expected)
    for module, result in ((model, expected), (own, made)):
        module.zero_grad()
        result.backward(seed)
    for want, got in zip(model.parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(got.grad, want.grad, atol=bound, rtol=bound)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n if n == "block" else pytest.param(n, marks=pytest.mark.long) for n in MODELS])
def test_one_graph_does_for_all_batches(name: str) -> None:
    make, inputs = MODELS[name]
    model, backend = make(), weft.Backend()
    own = copy.deepcopy(model)
    compiled = torch.compile(own, backend=backend, fullgraph=True, dynamic=True)
    for batch in (3, 5, 4):
        _train_alike(model, own, compiled, inputs(batch))
    assert [g.kind for g in backend.report.graphs] == ["forward", "backward"]
    assert not [t.failed for g in backend.report.graphs for t in g.taken if t.failed]


def test_sizes_are_arguments() -> None:
    backend = weft.Backend()

    @torch.compile(backend=backend, dynamic=True)
    def centred(x: torch.Tensor) -> torch.Tensor:
        return (x[1:] - x.mean(0)) / x.shape[0]

    for rows in (4, 9, 300):
        x = torch.randn(rows, 6)
        torch.testing.assert_close(centred(x), (x[1:] - x.mean(0)) / rows)
    (graph,) = backend.report.graphs
    assert len(graph.taken) == 1 and not graph.taken[0].failed


def test_a_chain_is_one_kernel_and_a_product_stays() -> None:
    backend = weft.Backend()
    model = MODELS["gated_mlp"][0]()
    with torch.no_grad():
        torch.compile(model, backend=backend)(torch.randn(2, 7, 32))
    (graph,) = backend.report.graphs
    assert graph.kind == "inference"
    assert [sorted({*t.operators}) for t in graph.taken] == [
        ["aten.add", "aten.mean", "aten.mul", "aten.pow", "aten.rsqrt"],
        ["aten.mul", "aten.sigmoid"],
    ]
    assert ("aten.mm", "a product, which PyTorch's libraries compute") in graph.left
    assert ("aten.add", "alone: one launch with weft or without") in graph.left
    assert "weft_0: pow, mean, add, rsqrt, mul x2" in str(backend.report)


def _division(function: Any, *args: torch.Tensor) -> groups.Division:
    return divide(make_fx(function)(*args).graph)


def test_products_are_taken_where_one_launch_does_for_several() -> None:
    def gated(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(x @ gate.T) * (x @ up.T) @ gate

    with FakeTensorMode():
        gate, up = (torch.empty(2048, 2048, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        few, many = (torch.empty(rows, 2048, device="cuda", dtype=torch.bfloat16) for rows in (8, 128))
        (group,) = _division(gated, few, gate, up).groups
        assert [n.name for n in group.members] == ["mm", "sigmoid", "mm_1", "mul"]
        (group,) = _division(gated, many, gate, up).groups
        assert [n.name for n in group.members] == ["sigmoid", "mul"]


@pytest.mark.parametrize("name", ["gelu_mlp", "gated_mlp"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_products_of_few_rows_are_taken(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "has_few_rows", lambda node: True)  # which asks for a GPU and large matrices
    model, backend = MODELS[name][0]().to(dtype), weft.Backend()
    x = torch.randn(5, 1, 32, dtype=dtype)
    with torch.no_grad():
        _close(torch.compile(model, backend=backend)(x), model(x))
    (graph,) = backend.report.graphs
    (taken,) = graph.taken
    assert not graph.left and not taken.failed
    if dtype is torch.bfloat16:  # what a product reads is rounded as in eager mode: the norm, the gate, and the result
        assert taken.program.count("dtype=torch.bfloat16") == 3


def test_products_of_few_rows_differentiate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "has_few_rows", lambda node: True)
    model = MODELS["gelu_mlp"][0]()
    own = copy.deepcopy(model)
    _train_alike(model, own, torch.compile(own, backend=weft.Backend()), torch.randn(3, 2, 32))


def test_what_weft_does_not_have_stays_with_the_reason() -> None:
    backend = weft.Backend()

    def sorted_softmax(x: torch.Tensor) -> torch.Tensor:
        return F.softmax(torch.sort(x * 2 + 1, -1).values, -1)

    x = torch.randn(4, 9)
    torch.testing.assert_close(torch.compile(sorted_softmax, backend=backend)(x), sorted_softmax(x))
    (graph,) = backend.report.graphs
    assert len(graph.taken) == 2 and graph.left == [("aten.sort", "weft has no such operator")]


def test_a_group_waits_for_nothing_that_waits_for_it() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        a = x.exp() + 1
        b = torch.sort(a, -1).values  # reads one group and is read by the next
        return a * b + a.sin()

    x = torch.randn(4, 9)
    backend = weft.Backend()
    torch.testing.assert_close(torch.compile(f, backend=backend)(x), f(x))
    assert len(backend.report.graphs[0].taken) == 2


def test_random_numbers_are_those_of_eager_mode() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = F.dropout(x * 2 + 1, 0.5)
        return (torch.rand_like(x) + y) * torch.rand_like(x).exp()

    x = torch.randn(5, 7)
    torch.manual_seed(3)
    expected = f(x)
    torch.manual_seed(3)
    torch.testing.assert_close(torch.compile(f, backend=weft.Backend())(x), expected)


def test_arguments_are_written() -> None:
    def f(x: torch.Tensor, running: torch.Tensor) -> torch.Tensor:
        running.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return (x - running) * 2

    x, own = torch.randn(4, 6), torch.randn(6)
    other = own.clone()
    torch.testing.assert_close(torch.compile(f, backend=weft.Backend())(x, own), f(x, other))
    torch.testing.assert_close(own, other)


@pytest.mark.parametrize("dynamic", [None, True])
def test_constants_of_a_program(dynamic: bool | None) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * torch.tensor([1.0, 2.0, 3.0])
        y[..., 0] = 0.25
        return torch.exp(y) + 1

    for rows in (4, 5):
        _like_eager(function, torch.compile(function, backend=weft.backend, dynamic=dynamic), torch.randn(rows, 3))


def test_what_the_program_rounds_is_rounded() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x * 1.001).bfloat16().float() - x

    x = torch.randn(100)
    assert torch.equal(torch.compile(f, backend=weft.Backend())(x), f(x))


def test_elements_outside_are_an_error() -> None:
    def f(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x.exp().gather(1, index) * 2

    compiled = torch.compile(f, backend=weft.Backend())
    x = torch.randn(3, 4)
    compiled(x, torch.tensor([[0], [3], [1]]))
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([[0], [4], [1]]))


def test_a_kernel_that_fails_leaves_its_group_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = weft.Backend()
    compiled = torch.compile(lambda x, a: (x.T * a).softmax(0).sum(), backend=backend, dynamic=True)
    monkeypatch.setattr(fused, "_kernel", lambda text: _Refusing())
    monkeypatch.setattr(fused, "_require_results", lambda *_: None)
    x, a = torch.randn(5, 3), torch.tensor(2.0)
    torch.testing.assert_close(compiled(x, a), (x.T * a).softmax(0).sum())
    assert "run by PyTorch: no compiler" in str(backend.report)


class _Refusing:
    def __call__(self, *_: Any) -> Any:
        raise CompileError("no compiler", remedy="install one")


def test_options_are_refused() -> None:
    with pytest.raises(Exception, match="no option mode"):
        torch.compile(torch.sin, backend=weft.Backend(), mode="max-autotune")(torch.randn(3))


def test_pytorch_finds_the_backend_by_its_name() -> None:
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    (value,) = project["project"]["entry-points"]["torch_dynamo_backends"].values()
    assert EntryPoint("weft", value, "torch_dynamo_backends").load() is weft.backend


def test_the_document_prints_what_it_says() -> None:
    text = (Path(__file__).parent.parent / "docs" / "torch-compile.md").read_text()
    program, shown = re.findall(r"```(?:python)?\n(.*?)```", text, re.DOTALL)[:2]
    weft.backend.report.graphs.clear()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(program, {})
    assert printed.getvalue() == "True\n" + shown


def test_equal_groups_share_a_kernel() -> None:
    fused._kernel.cache_clear()
    backend = weft.Backend()

    def f(x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.sort(F.softmax(x * 2, -1), -1).values
        return x

    x = torch.randn(4, 9)
    torch.testing.assert_close(torch.compile(f, backend=backend)(x), f(x))
    assert len(backend.report.graphs[0].taken) == 4 and fused._kernel.cache_info().currsize == 1


def test_long_chains_are_taken() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        for k in range(90):
            x = x.T * 0.99 + k
        return x

    backend = weft.Backend()
    x = torch.randn(3, 4)
    torch.testing.assert_close(torch.compile(f, backend=backend)(x), f(x))
    assert not any(t.failed for t in backend.report.graphs[0].taken)


def test_loops_over_rows_are_not_loops_over_columns_that_are_as_many() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.exp() * 2
        return y, y.sum(0)

    backend = weft.Backend()
    x = torch.randn(6, 6)
    for made, expected in zip(torch.compile(f, backend=backend)(x), f(x), strict=True):
        torch.testing.assert_close(made, expected)
    program = backend.report.graphs[0].taken[0].program
    assert "n0 = a0.shape[0]" in program and "n1 = a0.shape[1]" in program and "range(6)" not in program


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_random_programs_divide_into_what_they_were(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "_kernel", lambda text: _Refusing())  # so that PyTorch runs the groups
    monkeypatch.setattr(fused, "_require_results", lambda *_: None)
    for seed in range(first, first + 10):
        function = random_program(seed)
        args = torch.randn(6, 4), torch.randn(6, 4)
        module = make_fx(function, decomposition_table=decompositions(), tracing_mode="fake")(*args)
        divided = fused.fused(module, divide(module.graph), GraphReport("inference"))
        for made, expected in zip(divided(*args), function(*args), strict=True):
            torch.testing.assert_close(made, expected)
            assert made.stride() == expected.stride()


# ---------------------------------------------------------------- on a GPU


_ON_A_GPU = (
    "batch_norm", "channels_last", "convolution_by_taps", "cumsum", "cumsum_last", "group_norm", "halves",
    "integers_and_halves", "layer_norm", "number_without_dimensions", "rms_norm", "rotated", "running", "selected", "softmax",
    "standardized", "swiglu",
)  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("name", _ON_A_GPU)
def test_functions_on_a_gpu(name: str) -> None:
    function, args = FUNCTIONS[name]
    backend = weft.Backend()
    _like_eager(function, torch.compile(function, backend=backend, fullgraph=True), *(a.cuda() for a in args))
    assert not [t.failed for g in backend.report.graphs for t in g.taken if t.failed]


@pytest.mark.gpu
@pytest.mark.parametrize("name", MODELS)
def test_models_train_on_a_gpu(name: str) -> None:
    make, inputs = MODELS[name]
    model = make().cuda()
    own = copy.deepcopy(model)
    _train_alike(model, own, torch.compile(own, backend=weft.Backend()), inputs(3).cuda(), bound=5e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 8])
def test_a_gate_of_few_rows_on_a_gpu(rows: int) -> None:
    gate, up = (torch.randn(1024, 2048, device="cuda").bfloat16() / 45 for _ in range(2))
    x = torch.randn(rows, 2048, device="cuda").bfloat16()

    def gated(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return F.silu(F.linear(x, gate)) * F.linear(x, up)

    backend = weft.Backend()
    made = torch.compile(gated, backend=backend)(x, gate, up)
    torch.testing.assert_close(made.double(), gated(x.double(), gate.double(), up.double()), atol=2e-2, rtol=2e-2)
    assert not backend.report.graphs[0].left


@pytest.mark.gpu
def test_a_cuda_graph_captures_a_compiled_model() -> None:
    model = MODELS["block"][0]().cuda()
    compiled = torch.compile(model, backend=weft.Backend())
    x = torch.randn(2, 7, 32, device="cuda")
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = compiled(x)
        for _ in range(2):
            x.normal_()
            graph.replay()
            torch.testing.assert_close(y, model(x), atol=1e-3, rtol=1e-3)
