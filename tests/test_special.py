"""The special functions: within so many units of the last place of what 40 digits give, PyTorch's at the edges, derivatives."""

from __future__ import annotations

import ctypes
import itertools
import math
import shutil
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import torch

import weft
from tests.gradients import assert_same_derivatives
from tests.test_elementwise import agree, kernel_of, points, rows_of
from tests.test_scalar_functions import SPECIAL, call, compiled, program
from weft.errors import NotDifferentiable, TypeMismatch
from weft.loops.operators import POLYNOMIALS, SPECIAL_OF_ONE
from weft.runtime.nvrtc import compile_cubin

torch.set_num_threads(1)
pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="no g++"),
    pytest.mark.usefixtures("quickly_compiled"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compiled(tmp_path_factory.mktemp("special"), program(SPECIAL))


def _inverse(q: mpmath.mpf) -> mpmath.mpf:
    """The y with erfc(y) = q, for q below 1."""
    near = mpmath.sqrt(-mpmath.log(q)) if q < 1e-3 else mpmath.erfinv(1 - q)
    return mpmath.findroot(lambda y: mpmath.log(mpmath.erfc(y) / q), near)


def _log_of_half(x: mpmath.mpf, rest: mpmath.mpf) -> mpmath.mpf:
    """log(x / 2), where 2 - x is known."""
    return mpmath.log(x / 2) if x < 1 else mpmath.log1p(-rest / 2)


def _scaled(function: Callable[..., mpmath.mpf], order: int, sign: int) -> Callable[[mpmath.mpf], mpmath.mpf]:
    return lambda x: function(order, x) * mpmath.exp(sign * abs(x))


# What each is, from where to where it is asked, and within how many units of the last place it is.
MEASURES: dict[str, tuple[Callable[[mpmath.mpf], mpmath.mpf], float, float, float]] = {
    "erfcx": (lambda x: mpmath.exp(x * x) * mpmath.erfc(x), -8, 60, 5),
    "ndtr": (lambda x: mpmath.erfc(-x / mpmath.sqrt(2)) / 2, -12, 8, 5),
    "log_ndtr": (lambda x: _log_of_half(mpmath.erfc(-x / mpmath.sqrt(2)), mpmath.erfc(x / mpmath.sqrt(2))), -12, 8, 5),
    "ndtri": (lambda p: mpmath.sqrt(2) * (-_inverse(2 * p) if p < 0.5 else mpmath.erfinv(2 * p - 1)), 1e-30, 0.9, 5),
    "erfinv": (mpmath.erfinv, -0.9999, 0.9999, 4),
    "entr": (lambda x: -x * mpmath.log(x), 0.01, 0.9, 3),
    "lgamma": (lambda x: mpmath.loggamma(x).real, 3, 100, 4),
    "digamma": (mpmath.digamma, 2, 100, 6),
    "i0": (lambda x: mpmath.besseli(0, x), -80, 80, 6),
    "i1": (lambda x: mpmath.besseli(1, x), -80, 80, 16),
    "i0e": (_scaled(mpmath.besseli, 0, -1), -80, 80, 6),
    "i1e": (_scaled(mpmath.besseli, 1, -1), -80, 80, 16),
    "modified_bessel_k0": (lambda x: mpmath.besselk(0, x), 1e-3, 80, 8),
    "modified_bessel_k1": (lambda x: mpmath.besselk(1, x), 1e-3, 80, 6),
    "scaled_modified_bessel_k0": (_scaled(mpmath.besselk, 0, 1), 1e-3, 200, 8),
    "scaled_modified_bessel_k1": (_scaled(mpmath.besselk, 1, 1), 1e-3, 200, 6),
    "bessel_j0": (lambda x: mpmath.besselj(0, x), -2, 2, 6),
    "bessel_j1": (lambda x: mpmath.besselj(1, x), -3, 3, 6),
    "bessel_y0": (lambda x: mpmath.bessely(0, x), 1, 3, 6),
    "bessel_y1": (lambda x: mpmath.bessely(1, x), 0.01, 2, 6),
    "spherical_bessel_j0": (mpmath.sinc, -3, 3, 4),
    "airy_ai": (mpmath.airyai, -2, 90, 6),
}


def test_every_special_function_is_measured() -> None:
    assert {*MEASURES} | {"polygamma", "zeta", "igamma", "igammac", *POLYNOMIALS} == {*SPECIAL}


def units(got: np.ndarray, exact: list[mpmath.mpf]) -> float:
    """The largest distance in units of the last place, of the smallest normal number's at least."""
    least = np.finfo(got.dtype).tiny
    unit = [float(np.spacing(got.dtype.type(max(abs(float(e)), least)))) for e in exact]
    return max(float(abs(mpmath.mpf(float(g)) - e) / u) for g, e, u in zip(got, exact, unit, strict=True))


@pytest.mark.parametrize("name", MEASURES)
def test_accuracy(library: ctypes.CDLL, name: str) -> None:
    function, low, high, most = MEASURES[name]
    random = np.random.default_rng(0)
    sizes = 10.0 ** random.uniform(math.log10(max(low, 1e-6)), math.log10(high), 20)
    drawn = np.concatenate([random.uniform(low, high, 20), sizes, -sizes if low < 0 else sizes])
    with mpmath.workdps(40):
        for dtype in (np.float32, np.float64):
            x = drawn[(drawn >= low) & (drawn <= high)].astype(dtype)
            got = call(library, f"{name}_{np.dtype(dtype).name}", x, result=dtype)
            assert units(got, [function(mpmath.mpf(float(v))) for v in x]) <= most


def test_accuracy_of_polygamma_and_zeta(library: ctypes.CDLL) -> None:
    """zeta of whole s > 1 is psi of s - 1, times (-1)^s / (s - 1)!."""
    random = np.random.default_rng(0)
    with mpmath.workdps(40):
        for dtype in (np.float32, np.float64):
            order, x = random.integers(1, 8, 30).astype(dtype), (10.0 ** random.uniform(-2, 3, 30)).astype(dtype)
            x[:10], order[:10] = -random.uniform(0.1, 8, 10), 1
            exact = [mpmath.psi(int(n), mpmath.mpf(float(v))) for n, v in zip(order, x, strict=True)]
            assert units(call(library, f"polygamma_{np.dtype(dtype).name}", order, x, result=dtype), exact) <= 40
            zetas = [e * (-1) ** int(n + 1) / mpmath.factorial(int(n)) for n, e in zip(order[10:], exact[10:], strict=True)]
            one = dtype(1)
            assert units(call(library, f"zeta_{np.dtype(dtype).name}", order[10:] + one, x[10:], result=dtype), zetas) <= 8


def incomplete_gamma(a: float, x: float) -> tuple[mpmath.mpf, mpmath.mpf]:
    """P(a, x) and Q(a, x)."""
    low, high = (mpmath.gammainc(mpmath.mpf(a), *ends, regularized=True) for ends in ((0, x), (x, mpmath.inf)))
    return low, high


def test_accuracy_of_incomplete_gamma_functions(library: ctypes.CDLL) -> None:
    """The exponent of a small one is a large number, whose rounding shows; PyTorch's are off by 1e-9 beside a large `a`."""
    random = np.random.default_rng(0)
    a = 10.0 ** random.uniform(-3, 3, 60)
    a = np.concatenate([a, a, a, 10.0 ** random.uniform(-6, 0, 40)])
    x = np.concatenate([a[:60] * random.uniform(0.6, 1.4, 60), a[:60] + random.normal(size=60) * np.sqrt(a[:60]),
                        10.0 ** random.uniform(-3, 3, 60), 10.0 ** random.uniform(-4, 0.3, 40)])  # fmt: skip
    x, a = (np.abs(v).astype(np.float32).astype(np.float64) for v in (x, a))
    with mpmath.workdps(60):
        exact = [incomplete_gamma(*map(float, pair)) for pair in zip(a, x, strict=True)]
        for dtype in (np.float32, np.float64):
            for k, name in enumerate(("igamma", "igammac")):
                got = call(library, f"{name}_{np.dtype(dtype).name}", a.astype(dtype), x.astype(dtype), result=dtype)
                least = np.finfo(dtype).tiny
                logs = [abs(float(mpmath.log(e[k]))) if e[k] > least else 0.0 for e in exact]
                apart = [units(got[i : i + 1], [e[k]]) / (16 + 4 * logs[i]) for i, e in enumerate(exact)]
                assert max(apart) <= 1, (name, dtype, a[int(np.argmax(apart))], x[int(np.argmax(apart))])


def test_incomplete_gamma_functions_at_the_edges_and_beside_very_large_numbers(library: ctypes.CDLL) -> None:
    values = [0.0, -0.0, -1.0, 0.3, 1.0, 25.0, 1e30, math.inf, math.nan]
    a, x = (np.array(v) for v in zip(*itertools.product(values, repeat=2), strict=True))
    for name in ("igamma", "igammac"):
        for dtype in (np.float32, np.float64):
            got = call(library, f"{name}_{np.dtype(dtype).name}", a.astype(dtype), x.astype(dtype), result=dtype)
            given = [torch.from_numpy(v.astype(dtype)) for v in (a, x)]
            want = getattr(torch, name)(*given)
            torch.testing.assert_close(torch.from_numpy(got), want, equal_nan=True, rtol=1e-5, atol=1e-30)


def test_airy_far_below_zero(library: ctypes.CDLL) -> None:
    """Within units of what its amplitude is: it has zeros."""
    x = np.concatenate([-np.linspace(2, 120, 200), -(10.0 ** np.linspace(2, 4, 40))]).astype(np.float32)
    with mpmath.workdps(40):
        exact = [mpmath.airyai(mpmath.mpf(float(v))) for v in x]
        for dtype in (np.float32, np.float64):
            got = call(library, f"airy_ai_{np.dtype(dtype).name}", x.astype(dtype), result=dtype)
            amplitude = 0.5641895835477563 * np.abs(x.astype(np.float64)) ** -0.25
            apart = [abs(float(g) - float(e)) for g, e in zip(got, exact, strict=True)]
            assert max(apart / amplitude) <= 4 * np.finfo(dtype).eps
    assert np.isnan(call(library, "airy_ai_float32", np.array([np.inf, -np.inf, np.nan], np.float32), result=np.float32)).all()


def in_pytorch(name: str) -> str:
    return f"S.{name}({{a}})" if hasattr(torch.special, name) else f"torch.{name}({{a}})"


# PyTorch's own Bessel functions of the first and second kind are off by 1e-7, its polygamma(1, x) by 1e-9.
LIKE_PYTORCH = [in_pytorch(name) for name in ("lgamma", "digamma", "erfinv", "i0", "gammaln", "psi", *SPECIAL_OF_ONE)
                if not name.startswith(("bessel", "ndtr", "log_ndtr", "airy"))] + [
    "S.ndtr({a}.clamp_min(-1.0))", "S.log_ndtr({a}.clamp_max(4.0))", "S.ndtri({a})",
    "S.modified_bessel_i0({a})", "S.modified_bessel_i1({a})", "S.polygamma(0, {a})",
    "torch.polygamma(2, {a}.abs().clamp_max(1e4))", "{a}.clamp(-9.5, 1e4).polygamma(3)",
    "torch.mvlgamma({a}.abs() + 2, 3)",
    "S.multigammaln({a}.abs() + 2, 2)",
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_values_at_the_edges_are_pytorchs(dtype: torch.dtype) -> None:
    (x,) = points(dtype, 1)
    agree(LIKE_PYTORCH, [x[(x == 0) | ~(x.abs() < 1e-40)]], exact=False, ulps=64)  # of less, PyTorch's K0 is infinite


def test_halves_are_computed_as_floats() -> None:
    """PyTorch has most of them for no halves."""
    kernel = kernel_of([in_pytorch(name) for name in SPECIAL_OF_ONE], "halves")
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.linspace(0.1, 0.9, 9).to(dtype)
        for got, want in zip(kernel(x), kernel.py(x.float()), strict=True):
            torch.testing.assert_close(got, want.to(dtype), rtol=2 * torch.finfo(dtype).eps, atol=0)


def test_integers_become_floats() -> None:
    for dtype in (torch.int32, torch.uint8):
        expressions = ["torch.lgamma({a})", "S.i0e({a})", "S.erfcx({a})", "torch.polygamma(2, {a})"]
        agree(expressions, [torch.arange(0, 9, dtype=dtype)], exact=False, ulps=64)


def test_polynomials() -> None:
    rows = itertools.product((0.0, 1.0, -1.0, 0.5, -0.3, 2.0, -3.0, 0.9, math.nan, math.inf), range(-1, 9))
    x, n = (torch.tensor(c, dtype=torch.float64) for c in zip(*rows, strict=True))
    kernel = kernel_of([f"S.{name}({{a}}, {{b}})" for name in POLYNOMIALS], "polynomials")
    torch.testing.assert_close(kernel(x, n), kernel.py(x, n), rtol=1e-12, atol=1e-13, equal_nan=True)


# Those of which PyTorch has the derivative, at points where it is accurate.
_HAVE = ["lgamma", "digamma", "erfinv", "i0", "erfcx", "ndtr", "log_ndtr", "ndtri", "entr", "i0e", "i1", "i1e"]


def test_derivatives() -> None:
    expressions = [*map(in_pytorch, _HAVE), "torch.polygamma(2, {a})", "S.zeta(3.0, {a})", "torch.mvlgamma({a} + 2, 2)"]
    expressions += ["torch.igamma(torch.full_like({a}, 1.5), {a})", "S.gammaincc(torch.full_like({a}, 0.3), 2 * {a})"]
    x = torch.tensor([0.12, 0.3, 0.55, 0.91], dtype=torch.float64).repeat(len(expressions), 1)
    assert_same_derivatives(rows_of(expressions, "derivatives of special functions"), x, second=False)


def test_derivatives_that_pytorch_has_not() -> None:
    names = [n for n in SPECIAL_OF_ONE if n not in (*_HAVE, "airy_ai")]
    kernel = rows_of([f"S.{n}({{a}})" for n in names], "derivatives of Bessel functions")
    x = torch.tensor([0.3, 0.9, 1.7, 4.2], dtype=torch.float64).repeat(len(names), 1).requires_grad_()
    assert torch.autograd.gradcheck(kernel, x, fast_mode=True)
    assert torch.autograd.gradgradcheck(kernel, x, fast_mode=True)


def test_derivatives_that_are_not_known_are_refused() -> None:
    x = torch.rand(3, requires_grad=True)
    with pytest.raises(NotDifferentiable, match="hermite_polynomial_h"):
        weft.kernel(lambda x: torch.special.hermite_polynomial_h(x, 3))(x).sum().backward()
    with pytest.raises(NotDifferentiable, match="airy_ai"):
        weft.ops.airy_ai(x).sum().backward()
    for function in (weft.ops.igamma, weft.ops.igammac):
        with pytest.raises(NotDifferentiable, match="igamma"):
            function(x, x.detach()).sum().backward()
    with pytest.raises(TypeMismatch, match="polygamma"):
        weft.kernel(lambda x: torch.polygamma(x, x))(x)


def test_the_text_for_the_device() -> None:
    """NVRTC compiles it and the simulator runs it; the functions are called, not written out for every element."""

    @weft.kernel
    def several(x, y):
        S = torch.special
        z = torch.empty_like(x)
        for i in range(x.shape[0]):
            z[i] = S.i0e(x[i]) + S.erfcx(y[i]) + S.ndtri(x[i]) + S.zeta(3.0, 1 + y[i]) + S.hermite_polynomial_h(x[i], 3)
        return z

    x, y = torch.rand(200), torch.rand(200)
    assert several.check(x, y).ok
    source = several.source(x, y, arch="sm_90a")
    cubin = compile_cubin(source, "sm_90a", name="several.cu")
    assert cubin.spill_stores == 0 and not cubin.warnings
