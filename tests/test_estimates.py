"""Device functions built on the hardware's estimates: their errors for every error that an estimate may have, and on a GPU."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - as PyTorch's own documents import it

import weft
from weft import ops
from weft.runtime import host
from weft.runtime.include import resolve

Array = npt.NDArray[np.float32]
Wide = npt.NDArray[np.float64]

# The device's arithmetic on the host, each estimate so many units beside the nearest number, or now this, now that side.
_MODEL = """
#include <cstdint>
#include <cstring>
static int units = 0;
static float beside(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    if ((bits & 0x7f800000u) == 0x7f800000u || (bits & 0x7fffffffu) == 0) return value;
    bits += units == 9 ? int(((bits * 2654435761u) >> 16) % 3) - 1 : units;
    std::memcpy(&value, &bits, 4);
    return value;
}
#define __CUDA_ARCH__ 900
#define WEFT_ESTIMATE(value) beside(value)
#include "weft/scalar.cuh"
extern "C" void model(const float* x, float* sigmoid, float* gelu, int n, int by) {
    units = by;
    for (int i = 0; i < n; ++i) {
        sigmoid[i] = weft::sigmoid(x[i]);
        gelu[i] = weft::gelu(x[i]);
    }
}
extern "C" void tanh_of(const float* x, float* found, int n, int by) {
    units = by;
    for (int i = 0; i < n; ++i) found[i] = weft::detail::tanh_estimated(x[i]);
}
extern "C" void quotients(const float* a, const float* b, float* quotient, int n, int many) {
    for (int i = 0; i < n; ++i) {
        const weft::ExactDivisor divisor(b[i]);
        for (int j = 0; j < many; ++j) quotient[i * many + j] = weft::divide(a[i * many + j], divisor);
    }
}
"""


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    flags = ("-std=c++17", "-O2", "-march=native", "-fPIC", "-shared", "-ffp-contract=off")
    built = host.build(resolve(_MODEL, "model"), "model", flags)
    return host._open(built.binary, built.place, "model", ctypes.CDLL)


@pytest.fixture(scope="module")
def model(library: ctypes.CDLL) -> Callable[[Array, int], tuple[Array, Array]]:
    def run(x: Array, by: int) -> tuple[Array, Array]:
        found = np.empty_like(x), np.empty_like(x)
        library.model(*(ctypes.c_void_p(a.ctypes.data) for a in (x, *found)), x.size, by)
        return found

    return run


def every(step: int) -> Array:
    """One of so many floats, of all signs and exponents, and those that are special."""
    bits = np.arange(0, 2**32, step, dtype=np.uint64).astype(np.uint32)
    special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 104.0, -104.0, 16.0, -16.0], np.float32)
    return np.concatenate([bits.view(np.float32), special])


def wide(x: Array) -> Wide:
    with np.errstate(invalid="ignore"):  # there are signaling NaNs among them
        return x.astype(np.float64)


def true_sigmoid(x: Wide) -> Wide:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(x < 0, np.exp(np.minimum(x, 0)) / (1 + np.exp(np.minimum(x, 0))), 1 / (1 + np.exp(-x)))


def true_gelu(x: Wide) -> Wide:
    tail = torch.special.erfc(torch.from_numpy(x * -math.sqrt(0.5))).numpy()
    with np.errstate(invalid="ignore"):
        return np.asarray(x * 0.5 * tail)


def units(found: Array, true: Wide) -> Wide:
    """The error in units of the last place of the true value; NaN and infinities where both are alike are right."""
    with np.errstate(invalid="ignore", over="ignore"):
        rounded = true.astype(np.float32)
        unit = np.spacing(np.abs(rounded)).astype(np.float64)
        alike = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
        return np.where(alike, 0.0, np.abs(found - true) / unit)


def hold_sigmoid(x: Array, found: Array) -> None:
    true = true_sigmoid(wide(x))
    error = np.where(true < 2.0**-126, 0.0, units(found, true))
    assert error[~(x < 0)].max() <= 2 and error[x < 0].max() <= 6
    assert found[(true < 2.0**-126) & ~np.isnan(x)].max() < 2.0**-125


def hold_gelu(x: Array, found: Array) -> None:
    true = true_gelu(wide(x))
    near = ~(x <= -1)
    assert units(found[near], true[near]).max() <= 5
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.abs(found - true) / np.abs(true)
    for low, most in ((-1.5, 1e-6), (-3, 1e-5), (-4, 1e-3), (-12.5, 0.2)):
        assert relative[(x <= -1) & (x >= low)].max() <= most, low
    no_number = np.isneginf(x) | np.isnan(x)
    assert (np.abs(found[(x < -12.5) & ~no_number]) < 1e-34).all()
    assert np.isnan(found[no_number]).all()


@pytest.mark.parametrize("by", [0, 1, -1, 9])
def test_the_error_of_an_estimate_grows_little(model: Callable[[Array, int], tuple[Array, Array]], by: int) -> None:
    x = every(4001)
    sigmoid, gelu = model(x, by)
    hold_sigmoid(x, sigmoid)
    hold_gelu(x, gelu)


def hold_tanh(x: Array, found: Array) -> None:
    with np.errstate(invalid="ignore"):
        error = units(found, np.tanh(wide(x)))
    assert error.max() <= 3
    number = ~np.isnan(x)
    assert np.array_equal(np.signbit(found[number]), np.signbit(x[number]))


@pytest.mark.parametrize("by", [0, 1, -1, 9])
def test_tanh_is_near_the_true_one(library: ctypes.CDLL, by: int) -> None:
    x = every(4001)
    x = np.concatenate([x[np.abs(x) < 40], np.linspace(-10, 10, 200_001, dtype=np.float32)])  # the model's 2^x ends at 2^127
    found = np.empty_like(x)
    library.tanh_of(*(ctypes.c_void_p(a.ctypes.data) for a in (x, found)), x.size, by)
    hold_tanh(x, found)


@pytest.mark.gpu
def test_tanh_on_a_gpu_is_near_the_true_one() -> None:
    x = every(101)
    hold_tanh(x, ops.tanh(torch.from_numpy(x).cuda()).cpu().numpy())


@pytest.mark.gpu
def test_sigmoid_and_gelu_on_a_gpu_are_near_the_true_ones() -> None:
    x = every(101)
    on_device = torch.from_numpy(x).cuda()
    hold_sigmoid(x, ops.sigmoid(on_device).cpu().numpy())
    hold_gelu(x, ops.gelu(on_device).cpu().numpy())
    for dtype in (torch.float16, torch.bfloat16):  # every one of them: as rounded as PyTorch's, but for a step at a tie
        half = torch.arange(-(2**15), 2**15, dtype=torch.int16, device="cuda").view(dtype)
        for ours, theirs in ((ops.sigmoid, torch.sigmoid), (ops.gelu, F.gelu), (ops.silu, F.silu)):
            torch.testing.assert_close(ours(half), theirs(half), equal_nan=True)


def test_gelu_of_infinities_is_that_of_pytorch_on_a_gpu() -> None:
    found = ops.gelu(torch.tensor([math.inf, -math.inf, math.nan, -0.0]))
    assert found[0] == math.inf and bool(found[1:3].isnan().all())
    assert found[3] == 0 and bool(found[3].signbit())


def test_gelu_far_below_0_is_nearer_to_the_true_one_than_pytorch() -> None:
    x = torch.linspace(-12, -1, 5000)
    true = x.double() * 0.5 * torch.special.erfc(-x.double() * math.sqrt(0.5))
    ours, theirs = ((f(x).double() - true).abs().view(-1, 100).amax(1) for f in (ops.gelu, F.gelu))
    assert bool((ours <= theirs).all())


def divisors(generator: np.random.Generator, n: int) -> Array:
    """Of all exponents, subnormal ones, small whole numbers, and those that are special."""
    bits = generator.integers(0, 2**32, (4, n), dtype=np.uint64).astype(np.uint32)
    any_of_them, subnormal = bits[0].view(np.float32), (bits[1] & 0x807FFFFF).view(np.float32)
    whole = (bits[2] % 4096 + 1).astype(np.float32)
    scaled = np.ldexp((bits[3] % 65536 | 1).astype(np.float32), (bits[2] % 250).astype(np.int32) - 140)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -3.0, 0.9, 3.4028235e38, 2.0**-126, 2.0**-149], np.float32)
    return np.concatenate([any_of_them, subnormal, whole, scaled.astype(np.float32), special])


def dividends(generator: np.random.Generator, by: Array) -> Array:
    """[divisors, many]: any, small, special ones, and those whose quotient is halfway between two floats, or next to that."""
    shape = (by.size, 8)
    bits = generator.integers(0, 2**32, (3, *shape), dtype=np.uint64).astype(np.uint32)
    with np.errstate(all="ignore"):
        halfway = np.ldexp((bits[0] % 8192 | 1).astype(np.float64), -150)
        rounded = (bits[1] & 0x007FFFFF | 0x3F800000).view(np.float32).astype(np.float64) + 2.0**-24
        near = [(between * by[:, None]).astype(np.float32) for between in (halfway, rounded)]
        near += [np.nextafter(a, np.float32(0)) for a in near]
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 3.4028235e38, 2.0**-149, -(2.0**-126)], np.float32)
    given = [bits[0].view(np.float32), (bits[2] & 0x83FFFFFF).view(np.float32), *near, np.tile(special, (by.size, 1))]
    return np.concatenate(given, axis=1)


def hold_quotients(a: Array, b: Array, found: Array) -> None:
    """The bits of a division, or within two units of the last place where the quotient is very small or very large."""
    with np.errstate(all="ignore"):
        true = a / b[:, None]
        size = np.abs(true)
        exact = (a == 0) | np.isinf(a) | ((size >= 2.0**-100) & (size <= 2.0**127))
    numbers = [np.where(x.view(np.int32) < 0, -(x.view(np.int32) & 0x7FFFFFFF), x.view(np.int32)) for x in (found, true)]
    alike = (found.view(np.uint32) == true.view(np.uint32)) | (np.isnan(found) & np.isnan(true))
    near = np.signbit(found) == np.signbit(true)
    near &= np.abs(numbers[0].astype(np.int64) - numbers[1]) <= 2
    wrong = ~np.where(exact, alike, alike | near)
    assert not wrong.any(), [(float(a[i, j]).hex(), float(b[i]).hex()) for i, j in np.argwhere(wrong)[:5]]


def test_a_product_with_a_reciprocal_has_the_bits_of_the_quotient(library: ctypes.CDLL) -> None:
    generator = np.random.default_rng(1)
    b = divisors(generator, 20000)
    a = dividends(generator, b)
    found = np.empty_like(a)
    library.quotients(*(ctypes.c_void_p(array.ctypes.data) for array in (a, b, found)), b.size, a.shape[1])
    hold_quotients(a, b, found)


def test_it_has_them_for_every_dividend(library: ctypes.CDLL) -> None:
    """Of one exponent: what is computed of others is the same but for a power of two."""
    a = np.arange(0x3F800000, 0x40000000, dtype=np.uint32).view(np.float32)[None]
    found = np.empty_like(a)
    for b in np.array([0x3F800001, 0x3FB504F3, 0x3FFFFFFE, 0x3FFFFFFF], np.uint32).view(np.float32):
        library.quotients(*(ctypes.c_void_p(array.ctypes.data) for array in (a, np.full(1, b), found)), 1, a.size)
        assert (found == a / b).all(), float(b).hex()


def thirds(x):
    return x / 3.0, x / math.inf, x / 4.0


def test_a_power_of_two_has_a_reciprocal_in_the_text() -> None:
    text = weft.pointwise(thirds).source("float32[64,256]", arch="sm_90a")
    assert "weft::ExactDivisor divisor{3.0f};" in text
    assert "divisor{4.0f}" not in text


@pytest.mark.gpu
def test_elements_divided_by_a_number_have_the_bits_of_the_quotient_on_a_gpu() -> None:
    generator = np.random.default_rng(0)
    for b in divisors(generator, 20).tolist():
        a = dividends(generator, np.full(1000, b, np.float32)).reshape(1, -1)
        hold_quotients(a, np.full(1, b, np.float32), ops.div(torch.from_numpy(a).cuda(), b).cpu().numpy())


def masked(kept, x, other):
    return torch.where(kept, F.gelu(x), 0.0), torch.where(kept, torch.lgamma(x), 0.0)


def test_both_sides_of_a_choice_are_computed_where_neither_takes_a_branch() -> None:
    """A branch around the function would be one for each element; what takes branches itself is left out where it can be."""
    text = weft.pointwise(masked).source("bool[64,256]", "float16[64,256]", "float16[64,256]", arch="sm_90a")
    assert "weft::select(kept_tile[v], weft::gelu(" in text
    assert "kept_tile[v] ? weft::special::lgamma(" in text


@pytest.mark.parametrize("length", [256, 257, 12, 6])
def test_bools_are_read_four_at_a_time(length: int) -> None:
    shapes = [f"{dtype}[5,{length}]" for dtype in ("bool", "float16", "float16")]
    found = weft.pointwise(masked).check(*shapes)
    assert not found.findings
