"""Complex numbers: operators, promotion, layouts and derivatives as PyTorch's, and loops over them."""

from __future__ import annotations

import ctypes
import itertools
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import weft
from tests.fuzz_batch import all_of
from tests.test_scalar_functions import compiled
from weft.errors import NotDifferentiable, TypeMismatch, UnsupportedSyntax, WeftError
from weft.loops.operators import COMPLEX_OF_ONE
from weft.pytorch.quick import MISS
from weft.runtime import host
from weft.runtime.nvrtc import compile_cubin, gate

C64, C128 = torch.complex64, torch.complex128
FUNCTIONS = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sigmoid", "square", "reciprocal", "neg"),
    *("sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "sinc", "silu"),
    *("abs", "angle", "sgn", "real", "imag", "conj", "conj_physical", "positive", "softsign", "tanhshrink", "nan_to_num"),
    *("isnan", "isinf", "isfinite", "isreal", "logical_not"),
)
OF_TWO = (
    *("add", "sub", "rsub", "mul", "div", "true_divide", "pow", "eq", "ne", "isclose", "logaddexp", "ldexp", "float_power"),
    *("logical_and", "logical_or", "logical_xor", "l1_loss"),
)
OF_THREE = ("lerp", "addcmul", "addcdiv", "where")
REFUSED = (
    *("floor", "ceil", "trunc", "round", "frac", "sign", "erf", "lgamma", "relu", "gelu", "hardtanh", "deg2rad", "signbit"),
    *("lt", "ge", "maximum", "fmin", "atan2", "hypot", "floor_divide", "remainder", "fmod", "bitwise_and", "copysign"),
)
IN_NUMPY = {
    **{n: n for n in ("exp", "log", "log10", "log2", "log1p", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "exp2")},
    **{n: f"arc{n[1:]}" for n in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    **{n: n for n in ("abs", "angle", "square", "isnan", "isinf", "isfinite", "real", "imag")},
    **{"conj": "conj", "neg": "negative", "add": "add", "sub": "subtract", "mul": "multiply", "eq": "equal", "ne": "not_equal"},
}


pytestmark = pytest.mark.usefixtures("quickly_compiled")


def reference(name: str) -> Callable[..., Any]:
    if name == "l1_loss":
        return lambda x, y: F.l1_loss(x, y, reduction="none")
    return getattr(torch, name) if hasattr(torch, name) else getattr(F, name)  # type: ignore[no-any-return]


def numbers(*shape: int, dtype: torch.dtype = C64, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def finite(dtype: torch.dtype = C64) -> torch.Tensor:
    """Near and far, on both axes and off them, and near 1 and i."""
    parts = (0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 1e-4, 3.0, -7.5, 20.0)
    grid = [complex(a, b) for a, b in itertools.product(parts, parts)]
    return torch.cat([torch.tensor(grid, dtype=dtype), numbers(400, dtype=dtype) * 2, 1 + numbers(40, dtype=dtype) * 1e-3])


def special() -> torch.Tensor:
    parts = (0.0, -0.0, 1.0, -2.0, 1e30, math.inf, -math.inf, math.nan)
    return torch.tensor([complex(a, b) for a, b in itertools.product(parts, parts)], dtype=C64)


def given(name: str, x: torch.Tensor) -> tuple[Any, ...]:
    y = x.flip(0).contiguous()
    if name == "where":
        return x.real > 0, x, y
    if name in OF_THREE:
        return x, y, x.roll(7)
    return (x, y) if name in OF_TWO else (x,)


def outcome(name: str, device: str = "cpu") -> str:
    """What is wrong with an operator of complex64, "" where nothing is."""
    own = [a.to(device) for a in given(name, finite())]
    found = getattr(weft.ops, name)(*own).cpu()
    kinds = reference(name)(*given(name, finite()))
    if found.dtype != kinds.dtype:
        return f"{name}: {found.dtype}, not {kinds.dtype}"
    exact = reference(name)(*(a.to(C128) if a.is_complex() else a for a in given(name, finite()))).resolve_conj()
    if not kinds.is_complex() and not kinds.is_floating_point():
        if not torch.equal(found, exact) and name != "isclose":
            return f"{name}: other bools"
        return special_outcome(name, device) if device == "cpu" and name in IN_NUMPY else ""
    size = exact.abs()
    known = torch.isfinite(exact) & torch.isfinite(kinds) & (size < 1e37) & (size > 1e-37)
    # a power is as exact as the product of its exponent and a logarithm
    units = 1e-4 if name in ("pow", "float_power", "logaddexp", "ldexp", "exp2") else 4e-6
    if name in ("div", "true_divide", "addcdiv", "addcmul", "lerp", "sub", "add", "rsub", "tanhshrink", "sinc"):
        units, size = 4e-6, size + 10  # what is added may cancel
    error = ((found.to(exact.dtype) - exact).abs() / size)[known]
    if error.numel() and not error.max() < units:
        at = int(torch.where(known)[0][error.argmax()])
        points = [a[at].item() for a in given(name, finite())]
        return f"{name} at {points}: {found[at].item()}, PyTorch gives {exact[at].item()}"
    return special_outcome(name, device) if device == "cpu" and name in IN_NUMPY else ""


def special_outcome(name: str, device: str) -> str:
    """At infinities, NaN and zeros: where PyTorch and numpy agree. (A product of two is one of its parts, as on a GPU.)"""
    if name in ("mul", "square"):
        return ""
    args = given(name, special())
    found = getattr(weft.ops, name)(*(a.to(device) for a in args)).numpy()
    ours = reference(name)(*args).resolve_conj().numpy()
    with np.errstate(all="ignore"):
        theirs = getattr(np, IN_NUMPY[name])(*(a.numpy() for a in args))
    every = np.ones(len(found), bool)
    differs = ~every
    unsure = np.isnan(ours.real) | np.isnan(ours.imag)  # what is infinite then has no certain sign
    for part in (np.real, np.imag) if np.iscomplexobj(ours) else (np.asarray,):
        wanted, other, got = (np.where(unsure & np.isinf(part(v)), np.inf, part(v)) for v in (ours, theirs, found))
        every &= alike(wanted, other)
        differs |= ~alike(got, wanted)
    if not (wrong := every & differs).any():
        return ""
    at = int(np.flatnonzero(wrong)[0])
    return f"{name} at {[a[at].item() for a in args]}: {found[at]}, PyTorch and numpy give {ours[at]} ({wrong.sum()} differ)"


def alike(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        close = np.isfinite(a) & np.isfinite(b) & (np.abs(a.astype(np.float64) - b) <= 1e-5 * np.abs(b))
    return close | (np.isnan(a) & np.isnan(b)) | (np.isinf(a) & (a == b))


def test_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.build, "__defaults__", (tuple("-O1" if f == "-O3" else f for f in host.FLAGS),))  # in vectors
    all_of((*FUNCTIONS, *OF_TWO, *OF_THREE), outcome)


@pytest.mark.gpu
def test_values_on_a_gpu() -> None:
    wrong = [outcome(name, "cuda") for name in (*FUNCTIONS, *OF_TWO, *OF_THREE)]
    assert not any(wrong), "\n".join(w for w in wrong if w)


@pytest.mark.parametrize("name", REFUSED)
def test_what_pytorch_has_of_real_numbers_alone_is_refused(name: str) -> None:
    operator = getattr(weft.ops, name)
    needed = [p for p in operator._parameters.parameters.values() if p.default is p.empty]
    with pytest.raises(TypeMismatch, match="of complex numbers|bit"):
        operator(*[numbers(3)] * len(needed))


# ---------------------------------------------------------------- functions of both parts


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_functions_are_within_some_units_in_the_last_place(tmp_path: Path) -> None:
    """Of the size of the result, for float32: near 1 and i, far out, and near 0."""
    text = '#include "weft/complex.cuh"\n'
    for name in COMPLEX_OF_ONE:
        calls = " ".join(f"{p}[k] = weft::complex::{name}_{p}(x[k], y[k]);" for p in ("re", "im"))
        text += f'extern "C" void both_{name}(const float* x, const float* y, float* re, float* im, int64_t n) '
        text += f"{{ for (int64_t k = 0; k < n; ++k) {{ {calls} }} }}\n"
    library = compiled(tmp_path, text)
    random = np.random.default_rng(0)
    angle, scale = random.uniform(0, 7, 20_000), 10.0 ** random.uniform(-8, 8, 20_000)
    x = np.concatenate([random.normal(size=20_000), random.normal(size=20_000) * scale, np.cos(angle)]).astype(np.float32)
    y = np.concatenate([random.normal(size=20_000), random.normal(size=20_000) * scale[::-1], np.sin(angle)]).astype(np.float32)
    for name in COMPLEX_OF_ONE:
        re, im = np.empty_like(x), np.empty_like(x)
        library[f"both_{name}"](*(ctypes.c_void_p(a.ctypes.data) for a in (x, y, re, im)), ctypes.c_int64(len(x)))
        z = torch.complex(torch.from_numpy(x), torch.from_numpy(y)).to(C128)
        exact = getattr(torch, name)(z)
        known = (exact.abs() < 1e38) & (exact.abs() > 1e-37)
        error = (torch.complex(torch.from_numpy(re), torch.from_numpy(im)).to(C128) - exact).abs() / exact.abs()
        assert error[known].max() < 4 * torch.finfo(torch.float32).eps, name


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_nvrtc_compiles_every_function(arch: str) -> None:
    text = '#include "weft/complex.cuh"\n'
    for name, type_ in itertools.product(COMPLEX_OF_ONE, ("float", "double")):
        parts = " ".join(f"{p}[k] = weft::complex::{name}_{p}(x[k], y[k]);" for p in ("re", "im"))
        text += f'extern "C" __global__ void both_{name}_{type_}(const {type_}* x, const {type_}* y, {type_}* re, {type_}* im) '
        text += f"{{ const int64_t k = blockIdx.x * 256 + threadIdx.x; {parts} }}\n"
    assert gate(compile_cubin(text, arch, name="complex.cu")) == []


# ---------------------------------------------------------------- promotion and numbers


DTYPES = (torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float32, torch.float64, C64, C128)


def test_promotion() -> None:
    operands: dict[str, Any] = {str(number): number for number in (1j, 2, 0.5)}
    for dtype in DTYPES:
        operands |= {f"{dtype}s": torch.ones(2).to(dtype), str(dtype): torch.ones(()).to(dtype)}

    def told(pair: str) -> str:
        a, b = (operands[name] for name in pair.split(" * "))
        kinds = [v.dtype if isinstance(v, torch.Tensor) else torch.tensor(v).dtype for v in (a, b)]
        if not any(isinstance(v, torch.Tensor) for v in (a, b)) or not any(k.is_complex for k in kinds):
            return ""
        found = weft.ops.mul(a, b)
        return "" if found.dtype == torch.result_type(a, b) and torch.equal(found, a * b) else f"{pair}: {found}"

    all_of([f"{a} * {b}" for a, b in itertools.product(operands, operands)], told)


def test_complex32_is_refused() -> None:
    with pytest.raises(TypeMismatch, match="complex32"):
        weft.ops.mul(torch.ones(2, dtype=torch.float16), 1j)


def test_numbers_are_arguments_in_the_precision_of_the_arithmetic() -> None:
    x, y = numbers(9), numbers(9, dtype=C128)
    for number in (0.1 + 1j / 3, 1j, 2.5, 3):
        torch.testing.assert_close(weft.ops.mul(x, number), x * number)
        torch.testing.assert_close(weft.ops.add(y, number), y + number, rtol=1e-15, atol=0)
        torch.testing.assert_close(weft.ops.div(number, x), number / x)
    torch.testing.assert_close(weft.ops.add(x, x, 2 - 1j), torch.add(x, x, alpha=2 - 1j))
    with pytest.raises(TypeMismatch, match="alpha"):
        weft.ops.add(torch.ones(2), torch.ones(2), 1j)


@weft.pointwise
def several(a, b, shift=0.5 - 1j):
    c = a * b + shift
    return c, abs(c), c.real > 0, torch.complex(c.imag, c.real).conj()


def test_several_results() -> None:
    a, b = numbers(4, 5), torch.randn(5)
    for found, wanted in zip(several(a, b), several.py(a, b), strict=True):
        torch.testing.assert_close(found, wanted.resolve_conj())
    told = str(several.explain(numbers(4, 6), numbers(6)))
    assert "complex64, computed with as two float32; 2 elements (16 B) an access" in told


def test_a_function_of_real_numbers_may_give_complex_ones() -> None:
    @weft.pointwise
    def turned(x, angle):
        return x * torch.exp(1j * angle)

    x, angle = torch.randn(7), torch.randn(3, 1)
    torch.testing.assert_close(turned(x, angle), turned.py(x, angle))


# ---------------------------------------------------------------- iteration


def layouts() -> dict[str, torch.Tensor]:
    return {
        "contiguous": numbers(2, 3, 4, 5),
        "transposed": numbers(5, 4, 3, 2).permute(3, 2, 1, 0),
        "channels last": numbers(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "expanded": numbers(2, 1, 4, 1).expand(2, 3, 4, 5),
        "strided": numbers(4, 3, 4, 10)[::2, :, :, ::2],
        "misaligned": numbers(121)[1:].view(2, 3, 4, 5),
        "conjugate": numbers(2, 3, 4, 5).conj(),
        "real": torch.randn(2, 3, 4, 5),
        "a part": numbers(2, 3, 4, 5).imag,
    }


def test_layouts() -> None:
    def told(pair: str) -> str:
        a, b = (layouts()[name] for name in pair.split(" * "))
        found, wanted = weft.ops.mul(a, b), a * b
        if not torch.allclose(found, wanted):
            return f"{pair}: other values"
        return "" if found.stride() == wanted.stride() else f"{pair}: {found.stride()}, not {wanted.stride()}"

    names = list(layouts())
    all_of(tuple(f"{a} * {b}" for a, b in itertools.product(names, names)), told)


def test_results_that_are_given() -> None:
    x, y = numbers(5, 7), numbers(7)
    for out in (torch.empty(5, 7, dtype=C64), torch.empty(7, 5, dtype=C64).T, torch.empty(0, dtype=C128)):
        assert weft.ops.mul(x, y, out=out) is out
        torch.testing.assert_close(out, (x * y).to(out.dtype))
    own = x.clone()
    weft.ops.mul(own, y, out=own)
    torch.testing.assert_close(own, x * y)
    size = torch.empty(5, 7)
    weft.ops.abs(x, out=size)
    torch.testing.assert_close(size, x.abs())
    with pytest.raises(TypeMismatch, match="the result of mul is complex64, and out is float32"):
        weft.ops.mul(x, y, out=torch.empty(5, 7))
    with pytest.raises(UnsupportedSyntax, match="lazily conjugate"):
        weft.ops.mul(x, y, out=numbers(5, 7).conj())
    with pytest.raises(NotDifferentiable):
        weft.ops.mul(x.requires_grad_(), y, out=torch.empty(5, 7, dtype=C64))


def test_calls_again() -> None:
    """The quick way of a call is for others like it alone."""
    before = weft.ops.mul.quick = lambda *_: MISS
    x, y = numbers(4, 5), numbers(5)
    weft.ops.mul(x, y)
    assert weft.ops.mul.quick is not before
    others = [(x + 1, y), (x, y + 1j), (x.conj(), y), (x.T.contiguous().T, y), (x.real, y), (x.to(C128), y), (x, 2j), (x, 3j)]
    others += [(x, 2.0), (x, torch.randn(5)), (x[:, :1], y), (x.imag, y), (x, y.conj())]
    others.append((torch.randn(4, 5, 2), torch.randn(5, 2)))
    for a, b in others:
        for _ in range(2):
            torch.testing.assert_close(weft.ops.mul(a, b), a * b)
    weft.ops.mul(x, y)
    assert weft.ops.mul(x.clone().requires_grad_(), y).requires_grad
    torch.testing.assert_close(torch.vmap(weft.ops.mul, (0, None))(x[None], y), (x * y)[None])
    for _ in range(3):
        for found, wanted in zip(several(x, y), several.py(x, y), strict=True):
            torch.testing.assert_close(found, wanted.resolve_conj())
        assert weft.ops.abs(x.T).stride() == x.T.abs().stride()
        assert weft.ops.exp(x.T).stride() == x.T.exp().stride()


def test_sizes() -> None:
    assert weft.ops.mul(numbers(0, 3), 1j).shape == (0, 3)
    assert weft.ops.mul(torch.tensor(1 + 2j), 1j).item() == -2 + 1j
    deep = numbers(*(1,) * 12, 2, 2).expand(*(2,) * 3, *(1,) * 9, 2, 2)
    torch.testing.assert_close(weft.ops.exp(deep), deep.exp())


# ---------------------------------------------------------------- derivatives and transforms


def leaves(args: tuple[Any, ...]) -> list[Any]:
    tensors = (a.is_floating_point() or a.is_complex() if isinstance(a, torch.Tensor) else False for a in args)
    return [a.detach().clone().requires_grad_() if own else a for a, own in zip(args, tensors, strict=True)]


def gradients(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
    own = leaves(args)
    out = function(*own)
    seed = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(5))
    return torch.autograd.grad(out, [a for a in own if isinstance(a, torch.Tensor) and a.requires_grad], seed)


def differentiable() -> Iterator[str]:
    for name in (*FUNCTIONS, *OF_TWO, *OF_THREE):
        found = reference(name)(*given(name, numbers(3, dtype=C128)))
        if found.dtype != torch.bool and name not in ("silu", "nan_to_num", "float_power"):  # which autograd refuses
            yield name


def gradient_outcome(name: str) -> str:
    args = given(name, numbers(60, dtype=C128, seed=3))
    found, wanted = gradients(getattr(weft.ops, name), args), gradients(reference(name), args)
    for f, w in zip(found, wanted, strict=True):
        if not torch.allclose(f, w, 1e-7, 1e-9):
            worst = int((f - w).abs().argmax())
            at = [a[worst].item() for a in args]
            return f"gradient of {name} at {at}: {f[worst].item()}, autograd gives {w[worst].item()}"
    return ""


def test_derivatives() -> None:
    all_of(tuple(differentiable()), gradient_outcome)


def test_derivatives_of_real_operands_are_real() -> None:
    args = (numbers(4, 5, dtype=C128), torch.randn(5, dtype=torch.float64))
    for name in ("add", "mul", "div", "pow"):
        found, wanted = gradients(getattr(weft.ops, name), args), gradients(getattr(torch, name), args)
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


def test_no_derivative_at_0() -> None:
    for name in ("abs", "angle", "sgn"):
        zero = torch.zeros(3, dtype=C128)
        torch.testing.assert_close(gradients(getattr(weft.ops, name), (zero,)), gradients(getattr(torch, name), (zero,)))


def test_second_derivatives() -> None:
    x, y = (numbers(4, dtype=C128, seed=s).requires_grad_() for s in (1, 2))
    for function in (weft.ops.mul, weft.ops.div, lambda a, b: weft.ops.tanh(weft.ops.sqrt(a)) * b):
        assert torch.autograd.gradcheck(function, (x, y))
        assert torch.autograd.gradgradcheck(function, (x, y))


def test_transforms() -> None:
    x, y = numbers(4, 5), numbers(5)
    torch.testing.assert_close(torch.vmap(weft.ops.mul, (0, None))(x, y), x * y)
    torch.testing.assert_close(torch.vmap(weft.ops.abs)(x), x.abs())
    torch.testing.assert_close(torch.func.jvp(weft.ops.exp, (x,), (x,)), torch.func.jvp(torch.exp, (x,), (x,)))
    torch.testing.assert_close(torch.func.vjp(weft.ops.sin, x)[1](x), torch.func.vjp(torch.sin, x)[1](x))
    assert weft.ops.mul(x.to("meta"), y.to("meta")).dtype == C64


@pytest.mark.filterwarnings("ignore:Torchinductor does not support code generation for complex")
def test_torch_compile() -> None:
    @torch.compile(fullgraph=True, backend="aot_eager")
    def graph(x: torch.Tensor, y: torch.Tensor) -> Any:
        return weft.ops.mul(weft.ops.exp(x), y) + weft.ops.abs(x), several(x, y)

    x, y = numbers(4, 5), numbers(5)
    found, more = graph(x, y)
    torch.testing.assert_close(found, x.exp() * y + x.abs())
    for one, other in zip(more, several(x, y), strict=True):
        torch.testing.assert_close(one, other)


def test_opcheck() -> None:
    x, y = numbers(4, 5), numbers(5)
    for function, args in ((weft.ops.mul, (x, y)), (weft.ops.abs, (x,)), (weft.ops.add, (x, 1j))):
        one, own = function._inspected(args, {})
        own = tuple(a.detach().clone().requires_grad_() if isinstance(a, torch.Tensor) else a for a in own)
        torch.library.opcheck(one.program.operator.overload, own)
    kernel, own = products.specific((y, y))
    torch.library.opcheck(kernel.operator.overload, own)


@pytest.mark.parametrize("name", ["mul", "div", "exp", "abs", "acos"])
def test_cuda_on_the_simulator(name: str) -> None:
    report = getattr(weft.ops, name).check(*["complex64[40,256]"] * (2 if name in OF_TWO else 1))
    assert report.ok, report


def strided(count: int) -> torch.Tensor:
    """Complex numbers that begin at no multiple of 16 bytes."""
    return numbers(count + 1)[1:]


PACKETS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "both parts": (weft.ops.mul, (numbers(64, 96), numbers(96))),
    "rows that are cut": (weft.ops.mul, (numbers(9, 257), numbers(257))),
    "parts of rows": (weft.ops.mul, (numbers(40, 130)[:, 1:], numbers(40, 130)[:, :-1])),
    "from the middle of a packet": (weft.ops.add, (strided(5000), numbers(5000))),
    "every other element": (weft.ops.mul, (numbers(40, 64)[:, ::2], numbers(40, 32))),
    "beside real numbers": (weft.ops.mul, (numbers(63, 255), torch.randn(63, 255))),
    "to real numbers": (weft.ops.abs, (numbers(63, 256),)),
    "of real numbers": (weft.ops.complex, (torch.randn(40, 33), torch.randn(40, 33))),
    "columns": (weft.ops.mul, (numbers(64, 48).T, numbers(48, 64))),
    "columns to real numbers": (weft.ops.abs, (numbers(64, 48).T,)),
    "real columns": (weft.ops.add, (torch.randn(64, 48).T, numbers(48, 64))),
    "a column": (weft.ops.addcmul, (numbers(33, 40), torch.randn(40), numbers(33, 1))),
    "one part": (weft.ops.imag, (numbers(64, 40),)),
    "under a condition": (weft.ops.where, (torch.rand(64, 40) > 0.5, numbers(64, 40), numbers(40))),
    "doubles": (weft.ops.mul, (numbers(65, 31, dtype=C128), numbers(31, dtype=C128))),
}


@pytest.mark.parametrize("case", PACKETS)
def test_both_parts_move_together(case: str) -> None:
    function, args = PACKETS[case]
    report = function.check(*args)  # type: ignore[attr-defined]
    assert report.ok, report


def test_both_parts_are_one_packet() -> None:
    text = weft.ops.mul.source("complex64[64,1024]", "complex64[1024]", arch="sm_90a")
    assert text.count("weft::fetch<4, 4>") == 2
    assert text.count("weft::store<4>") == 1
    text = weft.ops.exp.source("complex128[64,1024]", arch="sm_90a")
    assert "weft::fetch<2, 2>" in text


@pytest.mark.gpu
@pytest.mark.parametrize("case", PACKETS)
def test_both_parts_move_together_on_a_gpu(case: str) -> None:
    function, args = PACKETS[case]
    on_gpu = [torch.empty_strided(a.shape, a.stride(), dtype=a.dtype, device="cuda").copy_(a) for a in args]
    wanted = function.py(*args)  # type: ignore[attr-defined]
    torch.testing.assert_close(function(*on_gpu).cpu(), wanted, rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------- loops


@weft.kernel
def products(x, z):
    y = torch.empty_like(x)
    for i in range(len(x)):
        y[i] = x[i] * z[i]
    return y


@weft.kernel
def inner(x, y):
    out = torch.zeros(x.shape[0], dtype=x.dtype)
    for r in range(x.shape[0]):
        s = 0
        for i in range(x.shape[1]):
            s += x[r, i] * y[r, i].conj()
        out[r] = s
    return out


@weft.kernel
def recurrence(x, c):
    y = torch.empty_like(x)
    for r in range(x.shape[0]):
        h = 0.0
        for t in range(x.shape[1]):
            h = c[r, t] * h + x[r, t]
            y[r, t] = h
    return y


@weft.kernel
def parts(x):
    y = torch.empty(x.shape)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = x[i, j].real * 2 + x[i, j].imag + abs(x[i, j])
    return y


@weft.kernel
def rotated(x, angle):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] * torch.exp(1j * angle[j]) if angle[j] > 0 else x[i, j] / (2 + 1j)
    return y


@weft.kernel
def branched(x):
    y = torch.zeros_like(x)
    for i in range(len(x)):
        if x[i].real > 0:
            t = x[i] * x[i]
            y[i] = t + 1
        else:
            t = x[i].conj() + 1j
        y[i] += t
    return y


@weft.kernel
def of_slices(x, z):
    return x * z.conj() + 1, x.sum(dim=-1), (x * z).real * 2, x @ z.T, x.mean(), x.prod(dim=0)


@weft.kernel
def of_parts(f):
    z = torch.complex(f, -f)
    return z * z, torch.polar(f.abs(), f)


@weft.kernel
def guarded(x):
    y = torch.zeros_like(x)
    for i in range(len(x)):
        y[i] = (x[i + 1] * x[i] if i + 1 < len(x) else 0) + (1 / x[i] if x[i] != 0 else 1j)
    return y


@weft.kernel
def fourier(x):
    n = len(x)
    y = torch.empty_like(x)
    for k in range(n):
        s = 0j
        for t in range(n):
            s = s + x[t] * torch.exp(torch.tensor(-2j * 3.141592653589793 * ((k * t) % n) / n))
        y[k] = s
    return y


def both(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    return numbers(*shape, seed=1), numbers(*shape, seed=2)


KERNELS: list[tuple[Any, tuple[Any, ...]]] = [
    (products, both(9)),
    (products, (numbers(9, 2)[:, 0], numbers(9).conj())),
    (inner, both(4, 90)),
    (recurrence, (numbers(3, 150), numbers(3, 150) * 0.5)),
    (parts, (numbers(4, 9),)),
    (rotated, (numbers(4, 9), torch.randn(9))),
    (branched, (numbers(20),)),
    (of_slices, both(4, 9)),
    (of_parts, (torch.randn(4, 9),)),
    (guarded, (numbers(20),)),
    (fourier, (numbers(12),)),
]


def listed(made: Any) -> list[torch.Tensor]:
    return [t.resolve_conj() for t in (made if isinstance(made, (tuple, list)) else [made])]


@pytest.mark.parametrize(("kernel", "args"), KERNELS, ids=[k.name for k, _ in KERNELS])
def test_loops(kernel: Any, args: tuple[Any, ...]) -> None:
    found, wanted = listed(kernel(*args)), listed(kernel.py(*args))
    torch.testing.assert_close(found, wanted, rtol=2e-5, atol=2e-5)
    assert [t.stride() for t in found] == [t.stride() for t in wanted]
    if any(a.is_conj() for a in args):
        return
    mine, theirs = leaves(args), leaves(args)
    made, plain = listed(kernel(*mine)), listed(kernel.py(*theirs))
    seeds = [torch.randn(t.shape, dtype=t.dtype, generator=torch.Generator().manual_seed(7)) for t in plain]
    gradient, autograd = torch.autograd.grad(made, mine, seeds), torch.autograd.grad(plain, theirs, seeds)
    torch.testing.assert_close(gradient, autograd, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(("kernel", "args"), KERNELS, ids=[k.name for k, _ in KERNELS])
def test_loops_on_the_simulator(kernel: Any, args: tuple[Any, ...]) -> None:
    report = kernel.check(*args)
    assert report.ok, report


@pytest.mark.gpu
@pytest.mark.parametrize(("kernel", "args"), KERNELS, ids=[k.name for k, _ in KERNELS])
def test_loops_on_a_gpu(kernel: Any, args: tuple[Any, ...]) -> None:
    found, wanted = listed(kernel(*(a.cuda() for a in args))), listed(kernel.py(*args))
    torch.testing.assert_close([t.cpu() for t in found], wanted, rtol=1e-4, atol=1e-4)


@weft.kernel
def scaled_(x, factor):
    for i in range(len(x)):
        x[i] *= factor
    return x


@weft.kernel
def turned_(x):
    for i in range(len(x)):
        x.real[i], x.imag[i] = x.imag[i] * 1, x.real[i] * 1


@weft.kernel
def changed_(x, z):
    x *= z
    x[:, 0] = x[:, 1].conj()
    x.real[:, 2] = 5
    x[0, :] = 2


@pytest.mark.parametrize(
    ("kernel", "args"), [(scaled_, (1.5 - 2j,)), (scaled_, (0.5,)), (turned_, ()), (changed_, (numbers(4, 5),))]
)
def test_stores(kernel: Any, args: tuple[Any, ...]) -> None:
    mine, theirs = numbers(4, 5)[:, :5], numbers(4, 5)
    if kernel is not changed_:
        mine, theirs = numbers(5), numbers(5)
    returned = kernel(mine, *args)
    kernel.py(theirs, *args)
    torch.testing.assert_close(mine, theirs)
    assert returned is None or returned is mine


def test_a_conjugate_view_is_not_written() -> None:
    with pytest.raises(UnsupportedSyntax, match="lazily conjugate"):
        scaled_(numbers(5).conj(), 2.0)


def test_views_see_stores() -> None:
    def of_element(x):
        y = torch.empty_like(x)
        for i in range(len(x)):
            t = x[i]
            x[i] = t * 2
            y[i] = t
        return y

    mine, theirs = numbers(5), numbers(5)
    torch.testing.assert_close(weft.kernel(of_element)(mine), of_element(theirs))

    def lazily(x):
        y = torch.empty_like(x)
        for i in range(len(x)):
            t = x[i].conj()
            x[i] = 1j
            y[i] = t
        return y

    with pytest.raises(WeftError, match="t is a view of an element of x|t has no value"):
        weft.kernel(lazily)(numbers(5))


def test_batches_of_kernels() -> None:
    x, y = numbers(3, 4, 9), numbers(3, 4, 9, seed=4)
    torch.testing.assert_close(torch.vmap(inner)(x, y), torch.stack([inner.py(a, b) for a, b in zip(x, y, strict=True)]))


REFUSALS: list[tuple[str, tuple[Any, ...], str]] = [
    ("def f(x, y):\n    y[0] = x[0]", (numbers(3), torch.ones(3)), "stored into a tensor of float32"),
    ("def f(x):\n    return x[0] < x[1]", (numbers(3),), "lt of complex numbers"),
    ("def f(x):\n    return torch.floor(x)", (numbers(3),), "floor of complex numbers"),
    ("def f(x):\n    return x.amax()", (numbers(3),), "amax of complex numbers"),
    ("def f(x):\n    return float(x[0])", (numbers(3),), "a complex number where a real one is needed"),
    ("def f(x):\n    return math.exp(x[0])", (numbers(3),), "a complex number where a real one is needed|math"),
    ("def f(x):\n    return x.softmax(0)", (numbers(3),), "softmax of complex64"),
    ("def f(x):\n    return x[0].item()", (numbers(3),), "returns a complex number of Python's"),
    ("def f(x):\n    return x.imag", (torch.ones(3),), "imag of a real tensor"),
]


@pytest.mark.parametrize(("text", "args", "message"), REFUSALS)
def test_refusals(text: str, args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(WeftError, match=message):
        weft.kernel(text)(*args)
