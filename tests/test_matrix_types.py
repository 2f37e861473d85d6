"""Which types matrix instructions multiply, what they are summed in, and floats of 8 bits: how they convert."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import weft
from tests import kernels_of_products as kernels
from tests.kernels_of_products import drawn
from tests.test_products import checked, launches, multiplied
from weft.language.types import TensorType
from weft.loops.types import FLOAT8_E4M3FN
from weft.plan import product_search
from weft.pytorch import simulated

pytestmark = pytest.mark.usefixtures("quickly_compiled")

Golden = Callable[[str, str], None]
ARCHITECTURES = ("sm_90a", "sm_80")
FLOATS8 = (torch.float8_e4m3fn, torch.float8_e5m2)


def bytes_of(*shape: int, dtype: torch.dtype = torch.int8, seed: int = 0) -> torch.Tensor:
    """All values of a type, the least and the largest among them."""
    ends = torch.iinfo(dtype)
    return torch.randint(ends.min, ends.max + 1, shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


# ---------------------------------------------------------------- plans


@pytest.mark.parametrize(
    ("kernel", "specs", "engine", "factors", "packed"),
    [
        (kernels.product, ("float64[512,512]",) * 2, "mma", "float64", (False, False)),
        (kernels.product, ("float64[512,511]", "float64[511,512]"), "mma", "float64", (False, False)),  # element by element
        (kernels.in_double, ("float32[512,512]",) * 2, "mma", "float64", (True, True)),
        (kernels.of_bytes, ("int8[512,512]", "int8[512,512]:(1,512)"), "wgmma", "int8", (False, False)),
        (kernels.of_bytes, ("int8[512,512]", "int8[512,512]"), "wgmma", "int8", (False, True)),  # bytes lie along the points
        (kernels.of_bytes, ("uint8[512,512]", "uint8[512,512]:(1,512)"), "wgmma", "uint8", (False, False)),
        (kernels.of_bytes, ("uint8[512,512]", "int8[512,512]:(1,512)"), "wgmma", "uint8", (False, False)),
        (kernels.of_bytes, ("int16[512,512]",) * 2, "fma", "", None),
        (kernels.of_wrapping_bytes, ("int8[512,512]",) * 2, "fma", "", None),
        (kernels.of_numbers, ("int8[512,512]", "int8[512,512]:(1,512)"), "wgmma", "int8", (False, False)),
        (kernels.of_numbers, ("int8[64,131071]", "int8[131071,64]"), "wgmma", "int8", None),
        (kernels.of_numbers, ("int8[64,131072]", "int8[131072,64]"), "fma", "", None),  # which may not fit into int32
        (kernels.of_floats, ("int8[512,512]", "bfloat16[512,512]"), "wgmma", "bfloat16", (True, False)),
        (kernels.of_floats, ("int8[512,512]", "uint8[512,512]"), "wgmma", "float16", (True, True)),
        (kernels.of_floats, ("float8_e4m3fn[512,512]",) * 2, "wgmma", "float16", (True, True)),
        (kernels.of_floats, ("float8_e4m3fn[512,512]", "float8_e5m2[512,512]"), "wgmma", "float16", (True, True)),
        (kernels.of_floats, ("bfloat16[512,512]", "float8_e5m2[512,512]"), "wgmma", "bfloat16", (False, True)),
        (kernels.of_floats, ("float32[512,512]", "float8_e5m2[512,512]"), "fma", "", None),
    ],
    ids=lambda v: "",
)
def test_factors_are_of_one_type(
    kernel: Any, specs: tuple[str, ...], engine: str, factors: str, packed: tuple[bool, ...] | None
) -> None:
    plan = multiplied(kernel, *specs)
    assert (plan.engine, plan.type) == (engine, factors)
    assert packed is None or plan.packed == packed
    if engine != "fma":
        assert multiplied(kernel, *specs, arch="sm_80").engine == "mma"


def test_a_quantised_layer_is_one_kernel() -> None:
    scales = ("float32[512]",) * 3
    assert len(launches(kernels.quantised_linear, "int8[512,512]", "int8[512,512]", *scales)) == 1
    wide = ("int8[4096,4096]", "float32[16]", "float32[4096]", "float32[4096]")
    assert multiplied(kernels.quantised_linear, "int8[16,4096]", *wide).tile[1] == 16


@pytest.mark.parametrize(
    ("kernel", "specs", "told"),
    [
        (kernels.of_floats, ("float8_e4m3fn[512,512]",) * 2, "as float16, exactly"),
        (kernels.of_floats, ("float8_e4m3fn[4,512]", "float8_e4m3fn[512,512]"), "of few rows"),
        (kernels.of_numbers, ("int8[64,131072]", "int8[131072,64]"), "so many products may not fit into int32"),
        (kernels.of_integers, ("int32[512,512]",) * 2, "tensor cores take int8 and uint8"),
        (kernels.of_floats, ("bfloat16[512,512]", "float16[512,512]"), "different types"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_explain_says_why(kernel: Any, specs: tuple[str, ...], told: str) -> None:
    assert told in str(kernel.explain(*specs, detail=True))


# ---------------------------------------------------------------- what kernels compute


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(
    ("kernel", "args"),
    [
        (kernels.product, (drawn(70, 46, dtype=torch.float64), drawn(46, 66, dtype=torch.float64, seed=1))),
        (kernels.product, (drawn(70, 45, dtype=torch.float64, way="offset"), drawn(67, 45, dtype=torch.float64).T)),
        (kernels.of_transposed, (drawn(50, 66, dtype=torch.float64), drawn(38, 50, dtype=torch.float64))),
        (kernels.linear_gelu, tuple(drawn(*n, dtype=torch.float64) for n in ((40, 36), (50, 36), (50,)))),
        (kernels.in_double, (drawn(33, 45), drawn(45, 30, seed=1))),
        (kernels.of_bytes, (bytes_of(70, 160), bytes_of(66, 160, seed=1).T)),
        (kernels.of_bytes, (bytes_of(165, 70).T, bytes_of(165, 66, seed=1))),
        (kernels.of_bytes, tuple(bytes_of(*n, dtype=torch.uint8) for n in ((40, 144), (144, 80)))),
        (kernels.of_bytes, (bytes_of(70, 160, dtype=torch.uint8), bytes_of(66, 160, seed=1).T)),
        (kernels.of_bytes, (bytes_of(70, 150), bytes_of(150, 66, dtype=torch.uint8))),
        (kernels.of_numbers, (bytes_of(70, 160), bytes_of(66, 160, seed=1).T)),
        (kernels.of_floats, (bytes_of(40, 50), bytes_of(50, 36, dtype=torch.uint8))),
        (kernels.batched_bytes, (bytes_of(2, 40, 45), bytes_of(2, 45, 50, seed=1))),
        (kernels.quantised_linear, (bytes_of(40, 160), bytes_of(50, 160), torch.rand(40), torch.rand(50), torch.rand(50))),
        (kernels.of_floats, (drawn(40, 50).to(FLOATS8[0]), drawn(50, 36, seed=1).to(FLOATS8[1]))),
        (kernels.of_floats, (drawn(40, 50).to(FLOATS8[0]), drawn(50, 36, seed=1).bfloat16())),
        (kernels.of_floats, (drawn(3, 160).to(FLOATS8[0]), drawn(160, 70, seed=1).to(FLOATS8[0]))),
    ],
    ids=lambda v: getattr(v, "name", ""),
)
def test_kernels_compute_what_the_loops_do(kernel: Any, args: tuple[Any, ...], arch: str) -> None:
    checked(kernel, *args, arch=arch)


@pytest.mark.parametrize("tile", product_search.OF_DOUBLES, ids=str)
def test_every_tile_of_doubles(tile: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_search, "OF_DOUBLES", (tile,))
    args = drawn(140, 68, dtype=torch.float64), drawn(68, 150, dtype=torch.float64, seed=1)
    assert multiplied(kernels.product, *args).tile[:2] == tile[0]
    checked(kernels.product, *args)


@pytest.mark.parametrize("tile", product_search.BY_WARPGROUPS[:2] + product_search.BY_WARPGROUPS[4:5], ids=str)
def test_every_tile_of_bytes(tile: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_search, "BY_WARPGROUPS", (tile,))
    args = bytes_of(300, 400), bytes_of(280, 400, seed=1).T
    assert multiplied(kernels.of_bytes, *args).tile[:2] == tile[0]
    checked(kernels.of_bytes, *args)


def test_sums_of_bytes_wrap() -> None:
    a, b = torch.full((16, 140000), -128, dtype=torch.int8), torch.full((140000, 16), -128, dtype=torch.int8)
    sums = kernels.of_bytes(a, b)
    assert sums.unique().item() == 140000 * 2**14 - 2**32
    assert multiplied(kernels.of_bytes, a, b).engine != "fma"


@pytest.mark.parametrize("rows", [1, 17, 32])
def test_few_rows_of_bytes_are_columns_of_narrow_tiles(rows: int) -> None:
    args = bytes_of(rows, 160), bytes_of(140, 160), torch.rand(rows), torch.rand(140), torch.rand(140)
    assert multiplied(kernels.quantised_linear, *args).engine == "wgmma"
    checked(kernels.quantised_linear, *args)


def test_gradients_of_floats_of_8_bits() -> None:
    a, b = (drawn(*n).to(FLOATS8[0]).requires_grad_() for n in ((20, 30), (30, 10)))
    checked(kernels.of_floats, a, b, gradients=True)


@dataclass(frozen=True)
class Planted:
    """A change of the emitted text, and a kind of finding that tells of it; none: the results do."""

    kernel: Any
    old: str
    new: str
    kind: str = ""


PLANTED = [
    Planted(kernels.product, "weft::wait_copies<2>();", ""),
    Planted(kernels.product, "MatrixTile<double, 64, true>*>(memory)", "MatrixTile<double, 64, false>*>(memory)"),
    Planted(kernels.product, "g += 8", "g += 16"),
    Planted(kernels.of_bytes, "__syncthreads();\n    const int32_t across", "const int32_t across", "race"),
    Planted(kernels.of_bytes, "g += 32", "g += 16"),
    Planted(kernels.of_bytes, "weft::wgmma_wait<0>(s_1_own[0]);", "", "registers in flight"),
]


@pytest.mark.parametrize("planted", PLANTED, ids=lambda p: f"{p.kernel.name}-{p.old[:16]}")
def test_planted_bugs_are_seen(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    emitted = simulated.cuda_source

    def changed(*args: Any) -> str:
        text = emitted(*args)
        assert planted.old in text
        return text.replace(planted.old, planted.new)

    monkeypatch.setattr(simulated, "cuda_source", changed)
    args = (bytes_of(40, 160), bytes_of(160, 48, seed=1))
    if planted.kernel is kernels.product:
        args = (drawn(40, 160, dtype=torch.float64), drawn(160, 48, dtype=torch.float64, seed=1))
    ran = simulated.simulate_call(planted.kernel.program, args, "sm_90a", 0, "call")
    findings = [f.kind for launch in ran.launches for s in launch.simulations for f in s.findings]
    wrong = not torch.allclose(ran.arrays["c"].double(), args[0].double() @ args[1].double())
    assert planted.kind in findings if planted.kind else findings or wrong


@pytest.mark.parametrize(
    ("title", "kernel", "specs", "arch"),
    [
        ("float64", kernels.product, ("float64[512,512]",) * 2, "sm_90a"),
        ("bytes", kernels.of_bytes, ("int8[512,512]",) * 2, "sm_90a"),
        ("quantised_sm_80", kernels.quantised_linear, ("int8[512,512]",) * 2 + ("float32[512]",) * 3, "sm_80"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_the_text_of_plans(title: str, kernel: Any, specs: tuple[str, ...], arch: str, golden: Golden) -> None:
    golden(f"cuda/product_{title}.cu", kernel.source(*specs, arch=arch))


# ---------------------------------------------------------------- floats of 8 bits


@weft.kernel
def widened(x):
    y = torch.empty(x.shape[0], dtype=torch.float32)
    for i in range(x.shape[0]):
        y[i] = x[i].float()
    return y


@weft.kernel
def rounded(x, like):
    y = torch.empty(x.shape[0], dtype=like.dtype)
    for i in range(x.shape[0]):
        y[i] = x[i]
    return y


@weft.kernel
def rounded_between(x, like):
    y = torch.empty(x.shape[0], dtype=torch.float32)
    for i in range(x.shape[0]):
        y[i] = x[i].to(like.dtype).float() * 2.0
    return y


@weft.kernel
def filled(like):
    return torch.full((3,), 1.0625, dtype=like.dtype)


@weft.kernel
def doubled(x):
    y = torch.empty(x.shape[0], dtype=torch.float32)
    for i in range(x.shape[0]):
        y[i] = x[i] * 2.0
    return y


@weft.kernel
def negated(x):
    y = torch.empty(x.shape[0], dtype=torch.float32)
    for i in range(x.shape[0]):
        y[i] = -x[i]
    return y


@weft.kernel
def with_float16(x, z):
    y = torch.empty(x.shape[0], dtype=torch.float32)
    for i in range(x.shape[0]):
        y[i] = x[i] + z[i]
    return y


@weft.kernel
def quantised(x, like):
    """Rows over their largest element, as is done before a product."""
    y = torch.empty(x.shape[0], x.shape[1], dtype=like.dtype)
    for i in range(x.shape[0]):
        largest = 0.0
        for j in range(x.shape[1]):
            largest = max(largest, abs(x[i, j]))
        scale = largest / 448.0
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] / scale
    return y


@weft.kernel
def quantised_to_bytes(x):
    y = torch.empty(x.shape[0], x.shape[1], dtype=torch.int8)
    for i in range(x.shape[0]):
        largest = 0.0
        for j in range(x.shape[1]):
            largest = max(largest, abs(x[i, j]))
        scale = largest / 127.0
        for j in range(x.shape[1]):
            y[i, j] = torch.round(x[i, j] / scale).to(torch.int8)
    return y


def hard_numbers() -> torch.Tensor:
    """Floats of any bits, those in reach of floats of 8 bits, and where they round to the next, or to what is no number."""
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (20000,), generator=generator).to(torch.int32).view(torch.float32)
    scales = torch.exp2(torch.randint(-18, 18, (20000,), generator=generator).float())
    near = torch.randn(20000, generator=generator) * scales
    values = torch.cat([torch.arange(256, dtype=torch.uint8).view(d).float() for d in FLOATS8])
    between = (values[:-1] + values[1:]) / 2
    around = [torch.nextafter(between, torch.tensor(end)) for end in (-torch.inf, torch.inf)]
    ends = torch.tensor([448.0, 464.0, 464.00003, 480.0, -1e6, 1e6, torch.inf, 57344.0, 61440.0, 61439.996, 65536.0])
    return torch.cat([bits, near, values, between, *around, ends, -ends])


@pytest.mark.parametrize("dtype", FLOATS8, ids=str)
def test_floats_of_8_bits_convert_as_in_pytorch(dtype: torch.dtype) -> None:
    every, x = torch.arange(256, dtype=torch.uint8).view(dtype), hard_numbers()
    assert torch.equal(widened(every).view(torch.int32), every.float().view(torch.int32)) or torch.equal(
        widened(every).nan_to_num(9e9), every.float().nan_to_num(9e9)
    )
    assert torch.equal(rounded(x, every).view(torch.uint8), x.to(dtype).view(torch.uint8))
    assert torch.equal(rounded_between(x, every).nan_to_num(9e9), (x.to(dtype).float() * 2.0).nan_to_num(9e9))
    assert torch.equal(filled(every).float(), torch.full((3,), 1.0625, dtype=dtype).float())


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("dtype", FLOATS8, ids=str)
def test_floats_of_8_bits_on_a_gpu(dtype: torch.dtype, arch: str) -> None:
    every = torch.arange(256, dtype=torch.uint8).view(dtype)
    checked(widened, every, arch=arch)
    checked(rounded, hard_numbers()[::41].contiguous(), every, arch=arch)


def test_quotients_on_their_way_to_8_bits_are_those_of_divisions() -> None:
    """Many lie between two numbers of so few bits, where another last bit would be another number."""
    x = drawn(24, 1000, dtype=torch.bfloat16)
    like, largest = torch.empty(0, dtype=FLOATS8[0]), x.float().abs().amax(1, keepdim=True)
    ran = simulated.simulate_call(quantised.program, (x, like), "sm_90a", 0, "call")
    assert torch.equal(ran.arrays["y"].float(), (x.float() / (largest / 448.0)).to(FLOATS8[0]).float())
    ran = simulated.simulate_call(quantised_to_bytes.program, (x,), "sm_90a", 0, "call")
    assert torch.equal(ran.arrays["y"], torch.round(x.float() / (largest / 127.0)).to(torch.int8))


def test_loops_over_floats_of_8_bits_are_printed_as_python() -> None:
    a, b = drawn(3, 4).to(FLOATS8[0]), drawn(4, 5).to(FLOATS8[0])
    schedule = weft.schedule(kernels.of_floats, types=dict.fromkeys("ab", TensorType(FLOAT8_E4M3FN, 2)))
    assert "a[i, k].float() * b[k, j].float()" in str(schedule)
    assert torch.allclose(schedule.py(a, b), a.float() @ b.float())


def test_there_is_no_arithmetic_on_floats_of_8_bits() -> None:
    x = torch.ones(4).to(torch.float8_e4m3fn)
    for call in (lambda: doubled(x), lambda: negated(x), lambda: with_float16(x, torch.ones(4).half())):
        with pytest.raises(weft.errors.TypeMismatch, match="no arithmetic on float8_e4m3fn"):
            call()
