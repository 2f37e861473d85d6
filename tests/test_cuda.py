"""Kernels on a GPU against the same kernels on the CPU in float64, and against the plain Python's own rules."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from tests import kernels_for_tests as own
from weft.kernels import LIBRARY
from weft.runtime import nvrtc

GPU = pytest.mark.gpu
SHAPES = [(1, 1), (3, 5), (7, 33), (130, 1000), (64, 4096), (5, 4097), (1056, 700), (2, 70000), (0, 16), (9, 0)]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def library_arguments(name: str, shape: tuple[int, int], dtype: torch.dtype, seed: int = 0) -> tuple[Any, ...]:
    """Arguments of a library kernel: states stay bounded, since coefficients are below 1."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype)
    c = torch.rand(shape, dtype=torch.float64, generator=generator).mul(0.95).to(dtype)
    w, b = (torch.randn(shape[1], dtype=torch.float64, generator=generator).to(dtype) for _ in range(2))
    given = {
        "linrec": (x, c), "linrec_reverse": (x, c), "cumsum": (x,), "ema": (x, 0.3), "softmax": (x,),
        "log_softmax": (x,), "rms_norm": (x, w), "layer_norm": (x, w, b), "gelu_bias_residual": (x, b, c),
    }  # fmt: skip
    return given[name]


def to(args: tuple[Any, ...], where: Any) -> tuple[Any, ...]:
    """The tensors on a device, or the floating-point ones in a dtype."""
    keeps = isinstance(where, torch.dtype)
    return tuple(
        a.to(where) if isinstance(a, torch.Tensor) and (a.is_floating_point() or not keeps) else a for a in args
    )


def flat(result: Any) -> tuple[torch.Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def assert_close(got: Any, want: Any, dtype: torch.dtype) -> None:
    for g, w in zip(flat(got), flat(want), strict=True):
        assert g.shape == w.shape
        scale = max(1.0, w.double().abs().nan_to_num(0).max().item() if w.numel() else 1.0)
        torch.testing.assert_close(
            g.cpu().double(), w.cpu().double(), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * scale
        )


@GPU
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", LIBRARY)
def test_library_on_the_gpu(name: str, dtype: torch.dtype) -> None:
    for shape in SHAPES:
        if shape[1] == 0 and name in ("rms_norm", "layer_norm"):
            continue
        args = library_arguments(name, shape, dtype)
        want = LIBRARY[name](*to(args, torch.float64))
        assert_close(LIBRARY[name](*to(args, "cuda")), want, dtype)


@GPU
@pytest.mark.parametrize("name", LIBRARY)
def test_gradients_on_the_gpu(name: str) -> None:
    for shape in [(5, 33), (16, 700)]:
        for dtype in (torch.float64, torch.float32):
            args = library_arguments(name, shape, torch.float64)
            want = _gradients(LIBRARY[name], args)
            assert_close(_gradients(LIBRARY[name], to(to(args, dtype), "cuda")), want, dtype)


def _gradients(kernel: Any, args: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
    args = tuple(a.detach().requires_grad_() if isinstance(a, torch.Tensor) else a for a in args)
    out = kernel(*args)
    weights = torch.linspace(0.5, 1.5, out.numel(), dtype=torch.float64).reshape(out.shape).to(out)
    return torch.autograd.grad((out * weights).sum(), [a for a in args if isinstance(a, torch.Tensor)])


@GPU
@pytest.mark.parametrize("name", ["linrec", "softmax", "rms_norm", "gelu_bias_residual"])
def test_any_strides(name: str) -> None:
    args = library_arguments(name, (48, 640), torch.float32)
    want = LIBRARY[name](*to(args, torch.float64))
    for change in (
        lambda t: t.t().contiguous().t(),  # rows neighbouring in memory
        lambda t: torch.stack([t, t], -1)[..., 0],  # every other element
        lambda t: torch.cat([t, t], -1)[:, 640:] if t.dim() == 2 else torch.cat([t, t])[640:],
        lambda t: torch.cat([t[:, :1], t], -1)[:, 1:] if t.dim() == 2 else torch.cat([t[:1], t])[1:],  # misaligned
    ):
        changed = tuple(
            change(a.cuda())
            if isinstance(a, torch.Tensor) and a.dim() == 2
            else (a.cuda() if isinstance(a, torch.Tensor) else a)
            for a in args
        )
        assert_close(LIBRARY[name](*changed), want, torch.float32)


OWN: dict[str, Any] = {
    "reference_loop": lambda x, c: (x, c),
    "cloned_loop": lambda x, c: (x, c),
    "state_and_last": lambda x, c: (x, c),
    "running_max_and_sum": lambda x, c: (x,),
    "gathered": lambda x, c: (x, torch.randint(-x.shape[1], x.shape[1], (x.shape[1],))),
    "masked": lambda x, c: (x, 0.1),
    "column_sums": lambda x, c: (x,),
    "logistic_map": lambda x, c: (x,),
    "neighbours": lambda x, c: (x,),
    "triangle": lambda x, c: (x,),
    "polynomial": lambda x, c: (c.reshape(-1),),
    "total": lambda x, c: (x,),
    "reversed_running_product": lambda x, c: (2 * c,),
    "matmul": lambda x, c: (x, c.t().contiguous()),
}


@GPU
@pytest.mark.parametrize("name", OWN)
def test_every_road_on_the_gpu(name: str) -> None:
    kernel = getattr(own, name)
    for shape in [(1, 1), (3, 5), (33, 130), (65, 1024), (1100, 96)]:
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(shape, dtype=torch.float64, generator=generator)
        c = torch.rand(shape, dtype=torch.float64, generator=generator).mul(0.95)
        args = OWN[name](x, c)
        for dtype in (torch.float64, torch.float32):
            if name == "reversed_running_product" and dtype == torch.float32:
                continue
            want = kernel(*to(to(args, dtype), torch.float64))
            assert_close(kernel(*to(to(args, dtype), "cuda")), want, dtype)


@GPU
def test_in_place_on_the_gpu() -> None:
    x, w = torch.randn(40, 1000, device="cuda"), torch.randn(1000, device="cuda")
    want = x * w + 0.5
    own.in_place_scale(x, w, 0.5)
    torch.testing.assert_close(x, want)


@GPU
def test_a_cuda_graph_replays_a_kernel() -> None:
    x, c = torch.randn(64, 512, device="cuda"), torch.rand(64, 512, device="cuda")
    LIBRARY["linrec"](x, c)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        LIBRARY["linrec"](x, c)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = LIBRARY["linrec"](x, c)
    x.normal_()
    graph.replay()
    torch.testing.assert_close(y, LIBRARY["linrec"](x, c))


@GPU
def test_a_new_length_of_its_class_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def called(*shapes: tuple[int, int]) -> None:
        for shape in shapes:
            x, c = torch.randn(shape, device="cuda"), torch.rand(shape, device="cuda")
            LIBRARY["linrec"](x, c)
            LIBRARY["gelu_bias_residual"](x, x[0], x)

    def compile_cubin(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("compiled")

    called((64, 520), (2000, 72), (64, 40_000))  # few blocks, many, long rows
    monkeypatch.setattr(nvrtc, "compile_cubin", compile_cubin)
    called((3, 1000), (2000, 120), (64, 65_000))


@GPU
def test_torch_compile_on_the_gpu() -> None:
    @torch.compile(fullgraph=True, dynamic=True)
    def f(x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return LIBRARY["linrec"](x * 2, c) + 1

    for length in (128, 320):
        x, c = torch.randn(16, length, device="cuda"), torch.rand(16, length, device="cuda")
        torch.testing.assert_close(f(x, c), LIBRARY["linrec"](x * 2, c) + 1)


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        pytest.param(name, arch, marks=[pytest.mark.long] if (n + k) % 2 else [])  # one of them says most of it
        for n, name in enumerate(OWN) for k, arch in enumerate(("sm_80", "sm_90a"))
    ],
)  # fmt: skip
def test_every_road_compiles(name: str, arch: str) -> None:
    x, c = torch.randn(64, 256), torch.rand(64, 256)
    args = OWN[name](x, c)
    specs = tuple(weft.TensorSpec.of(a) if isinstance(a, torch.Tensor) else a for a in args)
    for found in getattr(own, name).resources(*specs, arch=arch):
        assert found.registers > 0
