"""Small kernels written against weft's device functions: every function is used by one at least.

A kernel's parameters are pointers to its inputs, pointers to its outputs, then its tensor maps. bfloat16 arrays are their
bits in uint16. Most inputs are small whole numbers, so that sums are exact in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from weft.runtime.tensor_map import TensorMap, row_major

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class DeviceKernel:
    """source: CUDA C++ with one kernel called `name`. arch: the least it compiles for.

    inputs: makes the arrays it reads. reference: what it writes, from those inputs. scratch: positions of inputs that it
    also writes (counters, flags), not compared. maps: tensor maps, each of the array at a position of inputs and outputs
    counted together. shared: bytes of dynamic shared memory. cooperative: its blocks wait for each other.
    exact: the outputs equal the reference; otherwise within tolerance.
    """

    name: str
    source: str
    inputs: Callable[[np.random.Generator], tuple[Array, ...]]
    reference: Callable[..., tuple[Array, ...]]
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (128, 1, 1)
    cluster: tuple[int, int, int] = (1, 1, 1)
    shared: int = 0
    maps: tuple[tuple[int, TensorMap], ...] = ()
    scratch: tuple[int, ...] = ()
    arch: str = "sm_80"
    cooperative: bool = False
    exact: bool = True
    tolerance: float = 2e-6

    @property
    def architectures(self) -> tuple[str, ...]:
        return ("sm_80", "sm_90a") if self.arch == "sm_80" else ("sm_90a",)


def whole(generator: np.random.Generator, *shape: int, dtype: Any = np.float32, size: int = 4) -> Array:
    """Whole numbers from -size to size."""
    return generator.integers(-size, size + 1, shape).astype(dtype)


def bfloat16_bits(x: Array) -> Array:
    """float32 rounded to nearest even, as bits."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def bfloat16_values(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


# ---------------------------------------------------------------- scalar.cuh


def _scalar_reference(x: Array, y: Array) -> tuple[Array, ...]:
    a, b = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(divide="ignore"):
        powers = np.abs(a) ** b
    rows = [
        np.array([math.erf(v) for v in a]), np.exp(a), 1 / (1 + np.exp(-a)), np.mod(a, b), np.floor(a / b), a / b,
        np.where(b > a, b, a), np.maximum(a, b), np.fmin(a, b), powers, np.tanh(a), np.sign(np.nan_to_num(a)),
    ]  # fmt: skip
    return (np.concatenate(rows).astype(np.float32),)


def _scalar_inputs(generator: np.random.Generator) -> tuple[Array, ...]:
    x = generator.uniform(-6, 6, 256).astype(np.float32)
    y = (generator.uniform(0.3, 3, 256) * generator.choice([-1, 1], 256)).astype(np.float32)
    x[3], x[7], y[9] = np.nan, 0.0, np.nan
    return x, y


SCALAR_FUNCTIONS = DeviceKernel(
    "scalar_functions",
    """
#include "weft/scalar.cuh"

extern "C" __global__ void scalar_functions(const float* x, const float* y, float* out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int n = gridDim.x * blockDim.x;
    const float a = x[i], b = y[i];
    out[i] = weft::erf(a);
    out[n + i] = weft::exp(a);
    out[2 * n + i] = weft::sigmoid(a);
    out[3 * n + i] = weft::modulo(a, b);
    out[4 * n + i] = weft::floor_divide(a, b);
    out[5 * n + i] = weft::divide(a, weft::Divisor<float>(b));
    out[6 * n + i] = weft::python_max(a, b);
    out[7 * n + i] = weft::maximum(a, b);
    out[8 * n + i] = weft::drop_nan_min(a, b);
    out[9 * n + i] = weft::power(weft::absolute(a), b);
    out[10 * n + i] = weft::tanh(a);
    out[11 * n + i] = weft::sign(a);
}
""",
    _scalar_inputs,
    _scalar_reference,
    grid=(4, 1, 1),
    block=(64, 1, 1),
    exact=False,
)


def _wrap(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def _integer_reference(x: Array, y: Array) -> tuple[Array, ...]:
    rows: list[list[int]] = [[] for _ in range(9)]
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        results = (
            a % b if b else 0, _wrap(a // b) if b else 0, _wrap(a + b), _wrap(a - b), _wrap(a * b), _wrap(-a),
            _wrap(a << b) if 0 <= b < 32 else 0, a >> (b if 0 <= b < 32 else 31),
            _wrap(a**b) if b >= 0 else (a if a == 1 else (a if b % 2 else 1) if a == -1 else 0),
        )  # fmt: skip
        for row, value in zip(rows, results, strict=True):
            row.append(value)
    return (np.array(rows, dtype=np.int64).astype(np.int32).reshape(-1),)


def _integer_inputs(generator: np.random.Generator) -> tuple[Array, ...]:
    x = generator.integers(-(2**31), 2**31, 128).astype(np.int32)
    x[64:] = generator.integers(-3, 4, 64)
    y = generator.integers(-40, 41, 128).astype(np.int32)
    x[:4], y[:4] = (-(2**31), 5, -5, 7), (-1, 0, 3, -3)
    return x, y


INTEGER_FUNCTIONS = DeviceKernel(
    "integer_functions",
    """
#include "weft/scalar.cuh"

extern "C" __global__ void integer_functions(const int32_t* x, const int32_t* y, int32_t* out) {
    const int i = threadIdx.x;
    const int n = blockDim.x;
    const int32_t a = x[i], b = y[i];
    out[i] = weft::modulo(a, b);
    out[n + i] = weft::floor_divide(a, b);
    out[2 * n + i] = weft::wrapping_add(a, b);
    out[3 * n + i] = weft::wrapping_sub(a, b);
    out[4 * n + i] = weft::wrapping_mul(a, b);
    out[5 * n + i] = weft::wrapping_neg(a);
    out[6 * n + i] = weft::shift_left(a, b);
    out[7 * n + i] = weft::shift_right(a, b);
    out[8 * n + i] = weft::power(a, b);
}
""",
    _integer_inputs,
    _integer_reference,
)


def _conversion_inputs(generator: np.random.Generator) -> tuple[Array, ...]:
    x = (generator.standard_normal(256) * 10.0 ** generator.integers(-8, 5, 256)).astype(np.float32)
    x[:6] = 0.0, -0.0, np.inf, 65519.0, 65520.0, 2.0**-25
    return (x,)


def _conversion_reference(x: Array) -> tuple[Array, ...]:
    with np.errstate(over="ignore"):
        half = x.astype(np.float16)
    rounded = bfloat16_bits(x)
    values = np.concatenate([half.astype(np.float32), bfloat16_values(rounded)])
    return np.concatenate([half.view(np.uint16), rounded]), values, (x > 0).astype(np.uint8)


CONVERSIONS = DeviceKernel(
    "conversions",
    """
#include "weft/memory.cuh"

extern "C" __global__ void conversions(const float* x, uint16_t* bits, float* values, weft::boolean* positive) {
    const int n = 2 * blockDim.x;
    const int i = 2 * threadIdx.x;
    const uint32_t half = weft::pack<weft::float16>(x[i], x[i + 1]);
    const uint32_t brain = weft::pack<weft::bfloat16>(x[i], x[i + 1]);
    bits[i] = uint16_t(half);
    bits[i + 1] = uint16_t(half >> 16);
    bits[n + i] = weft::bfloat16(x[i]).bits;
    bits[n + i + 1] = uint16_t(brain >> 16);
    weft::unpack<weft::float16>(half, values[i], values[i + 1]);
    weft::unpack<weft::bfloat16>(brain, values[n + i], values[n + i + 1]);
    positive[i] = x[i] > 0.0f;
    positive[i + 1] = x[i + 1] > 0.0f;
}
""",
    _conversion_inputs,
    _conversion_reference,
)



def _float8_values(digits: int) -> Array:
    """What the 128 bytes without a sign are: of 3 digits behind the point no infinity, of 2 as the upper byte of float16."""
    found = []
    for byte in range(128):
        exponent, mantissa = byte >> digits, byte & (1 << digits) - 1
        bias = 7 if digits == 3 else 15
        value = (mantissa + (1 << digits) * (exponent > 0)) * 2.0 ** (max(exponent, 1) - bias - digits)
        special = byte == 127 if digits == 3 else byte > 0x7C
        found.append(math.nan if special else math.inf if digits == 2 and byte == 0x7C else value)
    return np.array(found)


def _float8_reference(x: Array) -> tuple[Array, ...]:
    bits = []
    for digits, saturated in ((3, False), (3, True), (2, False)):
        values = _float8_values(digits)
        finite = values[np.isfinite(values)]
        steps = np.append(finite, 2 * finite[-1] - finite[-2])  # what is nearer to the next number is too large
        gaps = np.nan_to_num(np.abs(np.abs(x.astype(np.float64))[:, None] - steps))
        near = np.argmin(gaps, axis=1)
        after = np.minimum(near + 1, len(steps) - 1)
        near += near % 2 & (np.take_along_axis(gaps, after[:, None], 1) == gaps.min(1, keepdims=True))[:, 0]  # ties to even
        most = len(finite) - saturated
        near = np.where(np.isinf(x), most, np.minimum(near, most))
        bits.append(np.where(np.isnan(x), 127, near).astype(np.uint8) | np.signbit(x).astype(np.uint8) << 7)
    values = [_float8_values(digits)[b & 127] * np.where(b & 128, -1, 1) for digits, b in zip((3, 3, 2), bits, strict=True)]
    return np.stack(bits), np.stack(values).astype(np.float32)


def _float8_inputs(generator: np.random.Generator) -> tuple[Array, ...]:
    x = (generator.standard_normal(256) * 2.0 ** generator.integers(-18, 18, 256)).astype(np.float32)
    ends = [0.0, -0.0, np.inf, -np.inf, 448, 464, 464.1, -480, 1e6, 57344, 61439.9, 61440, -65536, 2.0**-10, 1.0625]
    x[: len(ends)] = ends
    return (x,)


FLOATS8 = DeviceKernel(
    "floats8",
    """
#include "weft/memory.cuh"

extern "C" __global__ void floats8(const float* x, uint8_t* bits, float* values) {
    const int i = threadIdx.x, n = blockDim.x;
    const weft::float8_e4m3fn cut(x[i]);
    const weft::float8_e4m3fn_saturated kept(x[i]);
    const weft::float8_e5m2 wide(x[i]);
    bits[i] = cut.bits, bits[n + i] = kept.bits, bits[2 * n + i] = wide.bits;
    values[i] = float(cut), values[n + i] = weft::round_float8_e4m3fn_saturated(x[i]), values[2 * n + i] = float(wide);
}
""",
    _float8_inputs,
    _float8_reference,
    block=(256, 1, 1),
)

# ---------------------------------------------------------------- memory.cuh


def _runs_reference(x: Array) -> tuple[Array, ...]:
    flat = x.reshape(-1)
    padded = np.concatenate([np.zeros(2, x.dtype), flat, np.zeros(2, x.dtype)])
    strided = flat.reshape(4, 32).T.reshape(-1)
    rows = [flat, strided, padded[:128], padded[1:129], padded[3:131], flat, flat]
    return (np.stack(rows),)


def _runs(name: str, kind: str, dtype: Any) -> DeviceKernel:
    return DeviceKernel(
        name,
        f"""
#include "weft/memory.cuh"

using Element = {kind};

extern "C" __global__ void {name}(const Element* x, Element* y) {{
    constexpr int count = 4;
    const int first = count * threadIdx.x;
    float tile[count];
    weft::fetch_ahead(x + first);
    auto run = weft::fetch_now<count, count>(weft::opaque(x + first));
    __syncwarp();
    run.set(1, x[first + 1]);
    weft::unpack(run, tile);
    weft::store<count>(y + first, tile);
    weft::unpack(weft::fetch_strided<count>(x + threadIdx.x, 32), tile);
    weft::store<count>(y + 128 + first, tile);
    weft::unpack(weft::fetch_within<count>(x + first - 2, 1, first - 2, 128), tile);
    weft::store<2>(y + 256 + first, tile);
    weft::unpack(weft::fetch_before<count, count>(x, first), tile);
    weft::store<count>(y + 384 + first, tile);
    weft::unpack(weft::fetch_after<count, 2>(x, first, 128), tile);
    weft::store<1>(y + 512 + first, tile);
    weft::unpack(run, tile);
    weft::store_pair(y + 640 + first, tile[0], tile[1]);
    weft::store_pair(y + 642 + first, tile[2], tile[3]);
    __shared__ __align__(16) Element kept[128];
    weft::keep<2>(kept + first, tile);
    __syncwarp();
    for (int k = threadIdx.x; k < 128; k += 32) y[768 + k] = kept[k];
}}
""",
        lambda generator: (whole(generator, 4, 32, dtype=dtype, size=100),),
        _runs_reference,
        block=(32, 1, 1),
    )


GATHER = DeviceKernel(
    "gather",
    """
#include "weft/memory.cuh"

extern "C" __global__ void gather(const float* x, const int64_t* subscript, float* y, int64_t* outside) {
    const int i = threadIdx.x;
    int64_t fault = 0;
    y[i] = weft::inside(subscript[i], 128, 3, fault) ? x[subscript[i]] : 0.0f;
    if (!weft::holds(subscript[i] != 0, 7, fault)) y[i] = -1.0f;
    outside[i] = fault;
}
""",
    lambda generator: (whole(generator, 128), np.concatenate([[0, 0], generator.integers(-20, 150, 126)])),
    lambda x, s: (
        np.where(s == 0, -1, np.where((s >= 0) & (s < 128), x[np.clip(s, 0, 127)], 0)).astype(np.float32),
        np.where(s == 0, 7, np.where((s >= 0) & (s < 128), 0, 3)),
    ),
)

ROWS_ANYWHERE = DeviceKernel(
    "rows_anywhere",
    """
#include "weft/memory.cuh"

extern "C" __global__ void rows_anywhere(const float* x, float* y, float* z) {
    for (int k = threadIdx.x; k < 128; k += 32) y[k] = z[k] = 0.0f;
    __syncthreads();
    const float* const from = x + 3;
    float* const to = y + 1;
    const int64_t first = int64_t(threadIdx.x * 4) - weft::past_packet<4>(to);
    float tile[4];
    weft::unpack(weft::fetch_run<4, 0>(from + first, first, 2, 100), tile);
    weft::store_run<4>(to + first, first, 2, 100, tile);
    weft::unpack(weft::fetch_run<4, 1>(x + threadIdx.x * 4, threadIdx.x * 4, 0, 128), tile);
    float half[4];
    weft::unpack(weft::fetch_if<4, 4>(threadIdx.x < 16, x + threadIdx.x * 4), half);
    for (int v = 0; v < 4; ++v) tile[v] += half[v];
    if (weft::aligned<1>(x)) weft::store_run<0>(z + threadIdx.x * 4, threadIdx.x * 4, 0, 126, tile);
}
""",
    lambda generator: (whole(generator, 128),),
    lambda x: (
        np.concatenate([np.zeros(3), x[5:103], np.zeros(27)]).astype(np.float32),
        np.concatenate([2 * x[:64], x[64:126], np.zeros(2)]).astype(np.float32),
    ),
    block=(32, 1, 1),
)

# Rows of 10, 12 apart: runs of 4 go on from row to row.
ROWS_PASSED = DeviceKernel(
    "rows_passed",
    """
#include "weft/memory.cuh"

extern "C" __global__ void rows_passed(const float* x, float* y, float* z, float* s) {
    const int64_t first = threadIdx.x * 4, row = first / 10, place = first - row * 10, left = 100 - first;
    const float* const here = x + row * 12 + place;
    float tile[4] = {};
    if (left > 0) weft::unpack(weft::fetch_over<4, 1>(here, here + 2, place, 10, left), tile);
    weft::store<4>(y + first, tile);
    for (int v = 0; v < 4; ++v) tile[v] = 0.0f;
    if (left > 0) weft::unpack(weft::fetch_over<4, 0>(x + row, x + (row + 1), place, 10, left), tile);
    weft::store<4>(z + first, tile);
    const float* const there = x + first + 3;
    weft::prefetch_line(there);
    weft::unpack(threadIdx.x < 31 ? weft::fetch_shifted<4>(there) : weft::fetch_anywhere<4>(there, 127, 0, 128), tile);
    weft::store<4>(s + first, tile);
}
""",
    lambda generator: (whole(generator, 128),),
    lambda x: (
        np.concatenate([x[:120].reshape(10, 12)[:, :10].ravel(), np.zeros(28)]).astype(np.float32),
        np.concatenate([np.repeat(x[:10], 10), np.zeros(28)]).astype(np.float32),
        np.concatenate([x[3:], np.zeros(3)]).astype(np.float32),
    ),
    block=(32, 1, 1),
)

# ---------------------------------------------------------------- turn.cuh

TURNED = DeviceKernel(
    "turned",
    """
#include "weft/memory.cuh"
#include "weft/turn.cuh"

extern "C" __global__ void turned(const float* x, float* y) {
    __shared__ weft::Turned<float, 64, 4> square;
    float tile[4];
    for (int turn = 0; turn < 4; ++turn) {
        const int down = turn * 16 + threadIdx.y;
        weft::unpack(weft::fetch<4, 4>(x + down * 64 + threadIdx.x * 4), tile);
        square.put(threadIdx.x, down, tile);
    }
    __syncthreads();
    for (int turn = 0; turn < 4; ++turn) {
        const int down = turn * 16 + threadIdx.y;
        square.get(threadIdx.x, down, tile);
        weft::store<4>(y + down * 64 + threadIdx.x * 4, tile);
    }
}
""",
    lambda generator: (whole(generator, 64, 64, size=1000),),
    lambda x: (np.ascontiguousarray(x.T),),
    block=(16, 16, 1),
)

# ---------------------------------------------------------------- team.cuh


def _reduce_reference(x: Array, f: Array) -> tuple[Array, ...]:
    rows = [x.sum(1), np.bitwise_or.reduce(x != 0, axis=1), x.min(1), x.max(1)]
    lanes = x.reshape(len(x), -1, 8).sum(2).repeat(8, 1)
    with np.errstate(invalid="ignore"):
        floats = np.stack([np.fmax.reduce(f, axis=1), np.minimum.reduce(f, axis=1)], 1)
    return np.stack(rows, 1).astype(np.int32), lanes.astype(np.int32), floats


def _reduce_inputs(generator: np.random.Generator) -> tuple[Array, ...]:
    f = generator.standard_normal((3, 128)).astype(np.float32)
    f[1, 17] = np.nan
    return whole(generator, 3, 128, dtype=np.int32, size=1000), f


TEAM_REDUCE = DeviceKernel(
    "team_reduce",
    """
#include "weft/team.cuh"

extern "C" __global__ void team_reduce(const int32_t* x, const float* f, int32_t* y, int32_t* eights, float* g) {
    __shared__ int32_t scratch[4][4];
    __shared__ float float_scratch[2][4];
    const int row = blockIdx.x;
    const int32_t value = x[row * 128 + threadIdx.x];
    const float real = f[row * 128 + threadIdx.x];
    const int32_t sum = weft::reduce<weft::Sum<int32_t>, 128>(value, scratch[0]);
    const int32_t any = weft::reduce<weft::Or<int32_t>, 128>(value, scratch[1]);
    const int32_t least = weft::reduce<weft::Min<int32_t>, 128>(value, scratch[2]);
    const int32_t most = weft::reduce<weft::Maximum<int32_t>, 128>(value, scratch[3]);
    const float greatest = weft::reduce<weft::FMax<float>, 128>(real, float_scratch[0]);
    const float smallest = weft::reduce<weft::Minimum<float>, 128>(real, float_scratch[1]);
    eights[row * 128 + threadIdx.x] = weft::reduce_lanes<weft::Sum<int32_t>, 8>(value);
    if (threadIdx.x == 0) {
        y[row * 4] = sum;
        y[row * 4 + 1] = any;
        y[row * 4 + 2] = least;
        y[row * 4 + 3] = most;
        g[row * 2] = greatest;
        g[row * 2 + 1] = smallest;
    }
}
""",
    _reduce_inputs,
    _reduce_reference,
    grid=(3, 1, 1),
)


def _scan_reference(x: Array, c: Array) -> tuple[Array, ...]:
    n = x.shape[1]
    before, after = np.cumsum(x, 1) - x, np.cumsum(x[:, ::-1], 1)[:, ::-1] - x
    state, states = np.zeros(len(x), np.uint32), np.empty_like(x)
    for t in range(n):
        state = c[:, t] * state + x[:, t]
        states[:, t] = state
    greatest = np.full_like(x, 0)
    greatest[:, 1:] = np.maximum.accumulate(x.reshape(-1, 32), 1).reshape(x.shape)[:, :-1]
    greatest[:, ::32] = 0
    return (np.stack([before, after, states, greatest]).astype(np.uint32),)


TEAM_SCAN = DeviceKernel(
    "team_scan",
    """
#include "weft/team.cuh"

// The running sum before and after each element, the recurrence h = c h + x, and the greatest before it within its warp.
extern "C" __global__ void team_scan(const uint32_t* x, const uint32_t* c, uint32_t* y) {
    __shared__ uint32_t scratch[2][4];
    __shared__ weft::AffineMap<uint32_t> maps[4];
    const int i = blockIdx.x * 128 + threadIdx.x;
    const int n = gridDim.x * 128;
    y[i] = weft::scan<weft::Sum<uint32_t>, 128, false>(x[i], scratch[0]).before;
    y[n + i] = weft::scan<weft::Sum<uint32_t>, 128, true>(x[i], scratch[1]).before;
    const weft::AffineMap<uint32_t> map = {c[i], x[i]};
    y[2 * n + i] = map(weft::scan<weft::Affine<uint32_t>, 128, false>(map, maps).before(0u));
    y[3 * n + i] = weft::scan_lanes<weft::Max<uint32_t>, 32, false>(x[i]).before;
}
""",
    lambda generator: tuple(generator.integers(0, 2**32, (2, 128), dtype=np.uint32) for _ in range(2)),
    _scan_reference,
    grid=(2, 1, 1),
)


PACKETS_IN_BANKS = DeviceKernel(
    "packets_in_banks",
    """
#include "weft/memory.cuh"

// Packets of a tile come to shared memory one after the other, and each thread takes a run of four.
extern "C" __global__ void packets_in_banks(const float* x, float* y) {
    __shared__ __align__(16) float tile[512];
    using Packet = weft::Packet<float, 4>;
    const int i = threadIdx.x;
    for (int packet = i; packet < 128; packet += 32) {
        *reinterpret_cast<Packet*>(tile + weft::packet_place<4>(packet) * 4) = *reinterpret_cast<const Packet*>(x + packet * 4);
    }
    __syncthreads();
    float own[16];
    weft::unpack(weft::fetch_packets<16>(tile, weft::packet_place<4>(4 * i) * 4), own);
    for (int k = 0; k < 16; k += 4) weft::put_streaming(y + 16 * i + k, Packet{own[k], own[k + 1], own[k + 2], own[k + 3]});
}
""",
    lambda generator: (generator.standard_normal(512).astype(np.float32),),
    lambda x: (x,),
    block=(32, 1, 1),
)


def _states_reference(x: Array, c: Array) -> tuple[Array, ...]:
    found = np.empty((3, *x.shape), np.uint32)
    for which, (reverse, alike) in enumerate(((False, False), (True, False), (False, True))):
        for warp in range(0, len(x), 32):
            state = 7
            for lane in range(32)[:: -1 if reverse else 1]:
                state = (int(c[lane if alike else warp + lane]) * state + int(x[warp + lane])) % 2**32
                found[which, warp + lane] = state
    return (found,)


STATES_THROUGH = DeviceKernel(
    "states_of_lanes",
    """
#include "weft/team.cuh"

// The states h = c h + x after each lane of a warp, from 7 on: up and down the lanes, and multiplied as the first warp's are.
extern "C" __global__ void states_of_lanes(const uint32_t* x, const uint32_t* c, uint32_t* y) {
    using Map = weft::AffineMap<uint32_t>;
    const int i = threadIdx.x, lane = i % 32;
    const auto alike = weft::multiples_through<32, false>(lane == 0 ? 0u : c[lane]);
    const Map first = {c[i], x[i]}, shared = {c[lane], x[i]};
    Map up = {lane == 0 ? 0u : c[i], lane == 0 ? first(7u) : x[i]};
    Map down = {lane == 31 ? 0u : c[i], lane == 31 ? first(7u) : x[i]};
    weft::Multiplied<32, uint32_t> multiplied = {alike, lane == 0 ? shared(7u) : x[i]};
    weft::states_through<32, false, true, false>(up, down, multiplied);
    y[i] = up.addend;
    y[64 + i] = down.addend;
    y[128 + i] = multiplied.addend;
}
""",
    lambda generator: tuple(generator.integers(0, 2**32, 64, dtype=np.uint32) for _ in range(2)),
    _states_reference,
    block=(64, 1, 1),
)


def _rows_reference(c: Array, x: Array, told: Array) -> tuple[Array, ...]:
    states, before = np.zeros(8, np.uint32), np.empty_like(x)
    for point in range(len(x)):
        before[point] = states
        states = c[point] * states + x[point]
    totals = np.stack([x[k * 8 : k * 8 + 8].astype(np.uint64).sum(0) for k in range(len(x) // 8)]).astype(np.uint32)
    return before, totals


ROWS_OF_BLOCKS = DeviceKernel(
    "rows_of_blocks",
    """
#include "weft/chain.cuh"

// 8 rows side by side, 8 points below each other in a block, which blocks take by turns: the states before each, and the sums
// of what a block has.
extern "C" __global__ void rows_of_blocks(
    const uint32_t* c, const uint32_t* x, uint64_t* told, uint32_t* before, uint32_t* totals) {
    using Affine = weft::Affine<uint32_t>;
    using Rows = weft::Chain<Affine, uint32_t, 8, 64>;
    __shared__ Affine::Value scratch[2][16];
    __shared__ uint32_t sums[2][16];
    __shared__ Rows::Both::Value parts[Rows::places];
    const Rows rows(told, threadIdx.x % 8, 8, blockIdx.x, gridDim.x);
    uint32_t state = 0;
    for (uint32_t turn = 0; turn < 5; ++turn) {
        const int tile = turn * gridDim.x + blockIdx.x, i = tile * 64 + threadIdx.x;
        weft::Prefix<Affine> own;
        weft::scan_down<Affine, 8, 64, false>({c[i], x[i]}, own, scratch[turn & 1]);
        rows.tells_of(own.all, turn + 1);
        Rows::Asked<1> asked;
        rows.ask<1>(asked, turn + 1);
        bool whole = true;
        const auto others = rows.hear(asked, turn + 1, parts, whole);
        uint32_t mine = state;
        Affine::apply(others.before, mine);
        Affine::apply(own.before, mine);
        Affine::apply(others.all, state);
        before[i] = mine;
        const uint32_t total = weft::reduce_down<weft::Sum<uint32_t>, 8, 64>(x[i], sums[turn & 1]);
        if (threadIdx.x < 8) totals[tile * 8 + threadIdx.x] = total;
    }
}
""",
    lambda generator: (
        *(generator.integers(0, 2**32, (5 * 3 * 8, 8), dtype=np.uint32) for _ in range(2)),
        np.zeros(4 * 8 * 3 * 3, np.uint64),
    ),
    _rows_reference,
    grid=(3, 1, 1),
    block=(64, 1, 1),
    scratch=(2,),
    cooperative=True,
)


def _down_reference(c: Array, x: Array) -> tuple[Array, ...]:
    before, after, all_ = (np.empty((2, *shape), np.uint32) for shape in (x.shape, x.shape, (2, 32)))
    for way, order in enumerate((range(len(x)), range(len(x) - 1, -1, -1))):
        first, second = np.ones(32, np.uint32), np.zeros(32, np.uint32)
        for point in order:
            before[way, point], after[way, point] = first, second
            first, second = first * c[point], c[point] * second + x[point]
        all_[way] = first, second
    return before, after, all_, np.broadcast_to(x.sum(0, dtype=np.uint32), x.shape).copy()


ROWS_DOWN = DeviceKernel(
    "rows_down",
    """
#include "weft/team.cuh"

// 32 rows side by side, 16 points below each other: what those before a point do, in both directions, and all; their sums.
extern "C" __global__ void rows_down(
    const uint32_t* c, const uint32_t* x, uint32_t* first, uint32_t* second, uint32_t* all, uint32_t* sums) {
    using Affine = weft::Affine<uint32_t>;
    __shared__ Affine::Value scratch[2][512];
    __shared__ uint32_t parts[512];
    const int i = threadIdx.x;
    weft::Prefix<Affine> own[2];
    weft::scan_down<Affine, 32, 512, false>({c[i], x[i]}, own[0], scratch[0]);
    weft::scan_down<Affine, 32, 512, true>({c[i], x[i]}, own[1], scratch[1]);
    for (int way = 0; way < 2; ++way) {
        first[way * 512 + i] = own[way].before.coefficient;
        second[way * 512 + i] = own[way].before.addend;
        if (i < 32) {
            all[way * 64 + i] = own[way].all.coefficient;
            all[way * 64 + 32 + i] = own[way].all.addend;
        }
    }
    sums[i] = weft::reduce_down<weft::Sum<uint32_t>, 32, 512>(x[i], parts);
}
""",
    lambda generator: tuple(generator.integers(0, 2**32, (16, 32), dtype=np.uint32) for _ in range(2)),
    _down_reference,
    block=(512, 1, 1),
)

WARP_ROWS = DeviceKernel(
    "warp_rows",
    """
#include "weft/team.cuh"

// Rows of 8 threads, 4 in a warp, with 8 values a thread: of a warp's 4 sums of each value a row has 2.
extern "C" __global__ void warp_rows(const float* x, float* y) {
    float values[8];
    for (int k = 0; k < 8; ++k) values[k] = x[(threadIdx.y * 8 + threadIdx.x) * 8 + k];
    weft::fold_rows<weft::Sum<float>, 8>(values);
    const int row = threadIdx.y % 4, warp = threadIdx.y / 4;
    for (int k = 0; k < 2; ++k) y[(warp * 8 + threadIdx.x) * 8 + row * 2 + k] = values[k];
}
""",
    lambda generator: (whole(generator, 2, 4, 8, 8),),
    lambda x: (x.sum(axis=1),),
    block=(8, 8, 1),
)

# ---------------------------------------------------------------- barrier.cuh

NAMED_BARRIERS = DeviceKernel(
    "named_barriers",
    """
#include "weft/barrier.cuh"

// Warp 0 fills a slot, warps 1 and 2 double what is in it, four times over.
extern "C" __global__ void named_barriers(const float* x, float* y) {
    enum { full = 1, empty = 2 };
    constexpr int rounds = 4;
    __shared__ float slot[64];
    const int warp = threadIdx.x / 32;
    for (int round = 0; round < rounds; ++round) {
        if (warp == 0) {
            if (round > 0) weft::barrier_sync(empty, 96);
            slot[threadIdx.x] = x[round * 64 + threadIdx.x];
            slot[threadIdx.x + 32] = x[round * 64 + threadIdx.x + 32];
            weft::barrier_arrive(full, 96);
        } else {
            weft::barrier_sync(full, 96);
            const int i = threadIdx.x - 32;
            y[round * 64 + i] = 2.0f * slot[63 - i];
            if (round + 1 < rounds) weft::barrier_arrive(empty, 96);
        }
    }
}
""",
    lambda generator: (whole(generator, 4, 64),),
    lambda x: (2 * x[:, ::-1],),
    block=(96, 1, 1),
)

# ---------------------------------------------------------------- dependent.cuh

DEPENDENT = DeviceKernel(
    "dependent",
    """
#include "weft/dependent.cuh"

// Where no launch is to be awaited, nothing is.
extern "C" __global__ void dependent(const float* x, float* y) {
    weft::await_launch_before();
    weft::allow_launch_after();
    y[threadIdx.x] = 2.0f * x[threadIdx.x];
}
""",
    lambda generator: (whole(generator, 64),),
    lambda x: (2 * x,),
    block=(64, 1, 1),
)

# ---------------------------------------------------------------- atomic.cuh

MESSAGE = DeviceKernel(
    "message",
    """
#include "weft/atomic.cuh"

// Block 0 hands an array to block 1 through global memory.
extern "C" __global__ void message(const float* x, uint32_t* ready, float* between, float* y) {
    const int i = threadIdx.x;
    if (blockIdx.x == 0) {
        between[i] = 2.0f * x[i];
        __syncthreads();
        if (i == 0) weft::store_release<weft::Scope::gpu>(ready, 1u);
    } else {
        if (i == 0) {
            while (weft::load_acquire<weft::Scope::gpu>(ready) == 0) {
            }
        }
        __syncthreads();
        y[i] = between[127 - i] + 1.0f;
    }
}
""",
    lambda generator: (whole(generator, 128), np.zeros(1, np.uint32)),
    lambda x, ready: (2 * x, (2 * x + 1)[::-1]),
    grid=(2, 1, 1),
    scratch=(1,),
    cooperative=True,
)

MESSAGE_BY_FENCE = DeviceKernel(
    "message_by_fence",
    """
#include "weft/atomic.cuh"

// The same through relaxed accesses and fences.
extern "C" __global__ void message_by_fence(const float* x, uint32_t* ready, float* between, float* y) {
    const int i = threadIdx.x;
    if (blockIdx.x == 0) {
        between[i] = 2.0f * x[i];
        __syncthreads();
        if (i == 0) {
            weft::fence<weft::Scope::gpu>();
            weft::store_relaxed<weft::Scope::gpu>(ready, 1u);
        }
    } else {
        if (i == 0) {
            while (weft::load_relaxed<weft::Scope::gpu>(ready) == 0) {
            }
            weft::fence<weft::Scope::gpu>();
        }
        __syncthreads();
        y[i] = between[127 - i] + 1.0f;
    }
}
""",
    lambda generator: (whole(generator, 128), np.zeros(1, np.uint32)),
    lambda x, ready: (2 * x, (2 * x + 1)[::-1]),
    grid=(2, 1, 1),
    scratch=(1,),
    cooperative=True,
)

LAST_BLOCK = DeviceKernel(
    "last_block",
    """
#include "weft/atomic.cuh"
#include "weft/team.cuh"

// Each block adds up a part; the last to finish adds up the parts.
extern "C" __global__ void last_block(const int32_t* x, uint32_t* finished, int32_t* parts, int32_t* total) {
    __shared__ int32_t scratch[4];
    __shared__ bool last;
    const int32_t part = weft::reduce<weft::Sum<int32_t>, 128>(x[blockIdx.x * 128 + threadIdx.x], scratch);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = part;
        last = weft::atomic_add_acquire_release<weft::Scope::gpu>(finished, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x < 32) {
        const int32_t value = threadIdx.x < gridDim.x ? parts[threadIdx.x] : 0;
        const int32_t sum = weft::reduce_lanes<weft::Sum<int32_t>, 32>(value);
        if (threadIdx.x == 0) {
            *total = sum;
            *finished = 0;
        }
    }
}
""",
    lambda generator: (whole(generator, 6, 128, dtype=np.int32), np.zeros(1, np.uint32)),
    lambda x, finished: (x.sum(1).astype(np.int32), x.sum(keepdims=True).reshape(1).astype(np.int32)),
    grid=(6, 1, 1),
    scratch=(1,),
)

LOCK = DeviceKernel(
    "lock",
    """
#include "weft/atomic.cuh"

// A lock around an ordinary counter: one thread of each warp adds its block's number.
extern "C" __global__ void lock(uint32_t* taken, int32_t* counter, const int32_t* x, int32_t* y) {
    if (threadIdx.x % 32 == 0) {
        while (weft::atomic_compare_exchange_acquire<weft::Scope::gpu>(taken, 0u, 1u) != 0) {
        }
        *counter += x[blockIdx.x];
        weft::atomic_exchange_release<weft::Scope::gpu>(taken, 0u);
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = x[blockIdx.x];
}
""",
    lambda generator: (np.zeros(1, np.uint32), np.zeros(1, np.int32), whole(generator, 3, dtype=np.int32)),
    lambda taken, counter, x: (x.repeat(64),),
    grid=(3, 1, 1),
    block=(64, 1, 1),
    scratch=(0, 1),
)

_ORDERS = ("relaxed", "acquire", "release", "acquire_release")
_ATOMIC_SCOPES = ("block", "cluster", "gpu", "system")

EVERY_ATOMIC = DeviceKernel(
    "every_atomic",
    """
#include "weft/atomic.cuh"

extern "C" __global__ void every_atomic(uint32_t* words, uint64_t* longs, float* reals, uint32_t* y) {
    const uint32_t i = threadIdx.x;
    __shared__ uint32_t own;
    if (i == 0) own = 0;
    __syncthreads();
    uint32_t sum = 0;
"""
    + "".join(
        f"""    sum += weft::atomic_add_{order}<weft::Scope::{scope}>(words + {4 * n + m}, 1u) < 64;
    weft::atomic_add_{order}<weft::Scope::{scope}>(longs + {4 * n + m}, uint64_t(i));
    weft::atomic_add_{order}<weft::Scope::{scope}>(reals + {4 * n + m}, 0.5f);
    weft::atomic_add_{order}<weft::Scope::{scope}>(&own, 1u);
"""
        for n, order in enumerate(_ORDERS)
        for m, scope in enumerate(_ATOMIC_SCOPES)
    )
    + "".join(
        f"""    sum += weft::atomic_exchange_{order}<weft::Scope::gpu>(words + 16 + i, 7u) == i;
    sum += weft::atomic_exchange_{order}<weft::Scope::gpu>(longs + 16 + i, uint64_t(7)) == i;
    sum += weft::atomic_compare_exchange_{order}<weft::Scope::gpu>(words + 16 + i, 7u, i) == 7;
    sum += weft::atomic_compare_exchange_{order}<weft::Scope::gpu>(longs + 16 + i, uint64_t(8), uint64_t(i)) == 7;
    weft::store_release<weft::Scope::block>(longs + 16 + i, weft::load_acquire<weft::Scope::block>(longs + 16 + i) - 7 + i);
"""
        for order in _ORDERS
    )
    + """    weft::store_volatile(reals + 16 + i, 2.0f * weft::load_volatile(reals + 16 + i));
    __syncthreads();
    y[i] = sum + 1000 * own;
}
""",
    lambda generator: (
        np.concatenate([np.zeros(16, np.uint32), np.arange(64, dtype=np.uint32)]),
        np.concatenate([np.zeros(16, np.uint64), np.arange(64, dtype=np.uint64)]),
        np.zeros(16 + 64, np.float32),
    ),
    lambda words, longs, reals: (np.full(64, 16 + 16 + 1000 * 16 * 64, np.uint32),),
    block=(64, 1, 1),
    scratch=(0, 1, 2),
)


NARROW_JOINS = DeviceKernel(
    "narrow_joins",
    """
#include "weft/join.cuh"

// Every thread joins to neighbours that share words: bytes, halves, and floats whose order shows in no bit.
extern "C" __global__ void narrow_joins(const float* x, uint8_t* bytes, int16_t* halves, float* reals, uint32_t* y) {
    const uint32_t i = threadIdx.x;
    weft::join<weft::Sum<uint8_t>>(bytes + 1 + i % 5, uint8_t(i));
    weft::join<weft::Product<int16_t>>(halves + 1 + i % 3, int16_t(2 * i + 1));
    weft::join<weft::Max<float>>(reals + i % 2, x[i]);
    const uint8_t before = weft::atomic_compare_exchange_relaxed<weft::Scope::gpu>(bytes + 8 + i, uint8_t(i), uint8_t(7));
    const uint16_t two = weft::atomic_compare_exchange_relaxed<weft::Scope::gpu>(
        reinterpret_cast<uint16_t*>(halves) + 8 + i, uint16_t(9), uint16_t(1));
    __syncthreads();
    y[i] = before + 256 * two + (i < 8 ? bytes[i] : i < 16 ? uint32_t(uint16_t(halves[i - 8])) : bytes[i]) * 65536u;
    if (i < 2) y[64 + i] = weft::bits_of(reals[i]);
}
""",
    lambda generator: (
        np.where(generator.integers(0, 2, 64) > 0, np.float32(0.0), np.float32(-0.0)),
        np.concatenate([np.zeros(8, np.uint8), np.arange(64, dtype=np.uint8)]),
        np.concatenate([np.ones(8, np.int16), np.full(64, 9, np.int16)]),
        np.array([-1.0, 0.0], np.float32),
    ),
    lambda x, bytes_, halves, reals: (_narrow_reference(x, bytes_, halves, reals),),
    block=(64, 1, 1),
    scratch=(1, 2, 3),
)


def _narrow_reference(x: Array, bytes_: Array, halves: Array, reals: Array) -> Array:
    bytes_, halves, reals = bytes_.copy(), halves.copy(), reals.copy()
    for i in range(64):
        bytes_[1 + i % 5] = (int(bytes_[1 + i % 5]) + i) % 256
        halves[1 + i % 3] = np.int64(int(halves[1 + i % 3]) * (2 * i + 1)).astype(np.int16)
        # of two zeros the one above wins
        value, other = x[i], reals[i % 2]
        reals[i % 2] = value if value > other or (value == other and np.signbit(other)) else other
    bytes_[8:] = 7
    y = np.arange(64, dtype=np.uint32) + 256 * 9
    shown = np.concatenate([bytes_[:8].astype(np.uint32), halves[:8].astype(np.uint16).astype(np.uint32), bytes_[16:64]])
    return np.concatenate([y + shown.astype(np.uint32) * np.uint32(65536), reals.view(np.uint32)])


def _relaxation_reference(x: Array, counter: Array) -> tuple[Array, ...]:
    planes = [x]
    for _ in range(6):
        planes.append(np.roll(planes[-1], 1) + np.roll(planes[-1], -1))
    return (np.stack(planes[1:]),)


RELAXATION = DeviceKernel(
    "relaxation",
    """
#include "weft/atomic.cuh"

// Six rounds of neighbours' sums on a ring that all blocks share.
extern "C" __global__ void relaxation(const int32_t* x, uint32_t* counter, int32_t* planes) {
    const int n = gridDim.x * blockDim.x;
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int32_t* before = x;
    for (int round = 0; round < 6; ++round) {
        planes[i] = before[(i + n - 1) % n] + before[(i + 1) % n];
        weft::grid_sync(counter);
        before = planes;
        planes += n;
    }
}
""",
    lambda generator: (whole(generator, 256, dtype=np.int32), np.zeros(1, np.uint32)),
    _relaxation_reference,
    grid=(4, 1, 1),
    block=(64, 1, 1),
    scratch=(1,),
    cooperative=True,
)

TURNED_AROUND = DeviceKernel(
    "turned_around",
    """
#include "weft/atomic.cuh"

// Blocks read what others wrote before the barrier that they arrive at and wait for later.
extern "C" __global__ void turned_around(const int32_t* x, int32_t* between, int32_t* y) {
    const int n = gridDim.x * blockDim.x;
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    between[i] = x[i];
    const uint32_t round = weft::arrive_at_grid();
    if (threadIdx.x % 32 == 0) weft::wait_for_grid(round);
    __syncwarp();
    y[i] = between[n - 1 - i];
}
""",
    lambda generator: (whole(generator, 256, dtype=np.int32), np.zeros(256, np.int32)),
    lambda x, between: (x[::-1],),
    grid=(4, 1, 1),
    block=(64, 1, 1),
    scratch=(1,),
    cooperative=True,
)

# ---------------------------------------------------------------- async.cuh


def _tiles_reference(x: Array) -> tuple[Array, ...]:
    tiles = np.concatenate([x, np.zeros(-len(x) % 256, x.dtype)]).reshape(-1, 256)
    return (tiles + np.roll(tiles, -1, 1),)


STAGED_TILES = DeviceKernel(
    "staged_tiles",
    """
#include "weft/async.cuh"

// Tiles of 256 floats, the next one on its way while this one is added to its own neighbours; zeros after the array's end.
extern "C" __global__ void staged_tiles(const float* x, float* y) {
    constexpr int size = 1000, tile = 256, tiles = 4;
    __shared__ alignas(16) float stage[2][tile];
    const int own = 4 * threadIdx.x;
    weft::copy_async_or_zero<16>(&stage[0][own], x + own, own < size);
    weft::commit_copies();
    for (int t = 0; t < tiles; ++t) {
        if (t + 1 < tiles) {
            const int first = (t + 1) * tile + own;
            weft::copy_async_or_zero<16>(&stage[(t + 1) % 2][own], x + (first < size ? first : 0), first < size);
        }
        weft::commit_copies();
        weft::wait_copies<1>();
        __syncthreads();
        const float* here = stage[t % 2];
        for (int i = threadIdx.x; i < tile; i += blockDim.x) y[t * tile + i] = here[i] + here[(i + 1) % tile];
        __syncthreads();
    }
}
""",
    lambda generator: (whole(generator, 1000),),
    _tiles_reference,
    block=(64, 1, 1),
)

def _packets(x: Array) -> Array:
    out = np.zeros((len(x), 64), x.dtype)
    for k, row in enumerate(x):
        past = k * 45 % (16 // x.itemsize)
        out[k, past : past + 41] = row[:41]
    return out


PACKETS = DeviceKernel(
    "packets",
    """
#include "weft/packet.cuh"

template <typename T> __device__ void brought(T* room, const T* row, T* y) {
    constexpr int count = 16 / sizeof(T);
    const int at = count * threadIdx.x, first = at - int(weft::past_packet<count>(row));
    if (threadIdx.x < 64 / count) weft::copy_packet(room + at, weft::packet_of(row) + at, -first, 41 - first);
    weft::commit_copies();
    weft::wait_copies<0>();
    __syncthreads();
    for (int i = threadIdx.x; i < 64; i += blockDim.x) y[blockIdx.x * 64 + i] = room[i];
}

// 41 elements of rows that begin anywhere lie in shared memory as far past a packet as in memory, between zeros.
extern "C" __global__ void packets(const float* x, const uint16_t* h, float* y, uint16_t* g) {
    __shared__ alignas(16) float room[64];
    __shared__ alignas(16) uint16_t halves[64];
    brought(room, x + blockIdx.x * 45, y);
    brought(halves, h + blockIdx.x * 45, g);
}
""",
    lambda generator: (whole(generator, 9, 45, size=100), generator.integers(1, 2**16, (9, 45), dtype=np.uint16)),
    lambda x, h: (_packets(x), _packets(h)),
    grid=(9, 1, 1),
    block=(32, 1, 1),
)

COPY_SIZES = DeviceKernel(
    "copy_sizes",
    """
#include "weft/async.cuh"

// Copies of each size, waited for through a barrier in shared memory.
extern "C" __global__ void copy_sizes(const float* x, float* y) {
    __shared__ alignas(16) float stage[5 * 64 * 4];
    __shared__ weft::Mbarrier copied;
    const int i = threadIdx.x;
    if (i == 0) copied.init(64);
    weft::fence_mbarrier_init();
    __syncthreads();
    weft::copy_async<16>(stage + 4 * i, x + 4 * i);
    weft::copy_async<8>(stage + 256 + 4 * i, x + 4 * i);
    weft::copy_async<8>(stage + 258 + 4 * i, x + 4 * i + 2);
    weft::copy_async_or_zero<8>(stage + 512 + 4 * i, x + 4 * i, i % 2 == 0);
    weft::copy_async_or_zero<8>(stage + 514 + 4 * i, x + 4 * i, i % 2 == 1);
    for (int k = 0; k < 4; ++k) {
        weft::copy_async<4>(stage + 768 + 64 * k + i, x + 64 * k + i);
        weft::copy_async_or_zero<4>(stage + 1024 + 64 * k + i, x + 64 * k + i, i < 40);
    }
    weft::arrive_on_copies(copied);
    copied.wait(0);
    for (int k = i; k < 5 * 256; k += 64) y[k] = stage[k ^ 32];
}
""",
    lambda generator: (whole(generator, 256, size=100),),
    lambda x: (_copy_sizes(x)[np.arange(1280) ^ 32],),
    block=(64, 1, 1),
)


def _copy_sizes(x: Array) -> Array:
    fours = x.reshape(64, 4)
    halves = np.zeros((64, 4), np.float32)
    halves[0::2, :2] = fours[0::2, :2]
    halves[1::2, 2:] = fours[1::2, :2]
    cut = x.reshape(4, 64) * (np.arange(64) < 40)
    return np.concatenate([x, x, halves.reshape(-1), x, cut.reshape(-1)]).astype(np.float32)


# ---------------------------------------------------------------- mbarrier.cuh

BARRIER_RING = DeviceKernel(
    "barrier_ring",
    """
#include "weft/mbarrier.cuh"

// Warp 0 fills a ring of two slots with ordinary stores, two warps empty it.
extern "C" __global__ void barrier_ring(const float* x, float* y) {
    constexpr int slots = 2, rounds = 7;
    __shared__ float slot[slots][64];
    __shared__ weft::Mbarrier full[slots], empty[slots];
    if (threadIdx.x == 0) {
        for (int s = 0; s < slots; ++s) {
            full[s].init(32);
            empty[s].init(64);
        }
    }
    weft::fence_mbarrier_init();
    __syncthreads();
    for (int round = 0; round < rounds; ++round) {
        const int s = round % slots;
        const uint32_t parity = round / slots % 2;
        if (threadIdx.x < 32) {
            empty[s].wait(parity ^ 1);
            slot[s][threadIdx.x] = x[round * 64 + threadIdx.x];
            slot[s][threadIdx.x + 32] = x[round * 64 + threadIdx.x + 32];
            full[s].arrive();
        } else {
            const int i = threadIdx.x - 32;
            while (!full[s].test(parity)) {
            }
            y[round * 64 + i] = slot[s][63 - i] + 1.0f;
        }
        empty[s].arrive_if(threadIdx.x >= 32);
    }
    __syncthreads();
    if (threadIdx.x < slots) full[threadIdx.x].invalidate();
}
""",
    lambda generator: (whole(generator, 7, 64),),
    lambda x: (x[:, ::-1] + 1,),
    block=(96, 1, 1),
)

# ---------------------------------------------------------------- bulk.cuh

BULK_RUNS = DeviceKernel(
    "bulk_runs",
    """
#include "weft/bulk.cuh"

// A run of floats to shared memory, doubled there, and back.
extern "C" __global__ void bulk_runs(const float* x, float* y) {
    constexpr int count = 512;
    __shared__ alignas(128) float run[count];
    __shared__ weft::Mbarrier loaded;
    if (threadIdx.x == 0) {
        loaded.init(1);
        weft::fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        loaded.expect(sizeof run / 2);
        loaded.arrive_expect(sizeof run / 2);
        weft::bulk_load(run, x + blockIdx.x * count, sizeof run, loaded);
    }
    loaded.wait(0);
    for (int i = threadIdx.x; i < count; i += blockDim.x) run[i] *= 2.0f;
    weft::fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        weft::bulk_store(y + blockIdx.x * count, run, sizeof run);
        weft::bulk_commit();
        weft::bulk_wait<0>();
    }
}
""",
    lambda generator: (whole(generator, 3, 512),),
    lambda x: (2 * x,),
    grid=(3, 1, 1),
    arch="sm_90a",
)

ROW_ANYWHERE = DeviceKernel(
    "row_anywhere",
    """
#include "weft/row.cuh"

// Rows that begin at any element are doubled: of more elements and of fewer than a packet has, and of none.
extern "C" __global__ void row_anywhere(const float* x, float* y) {
    __shared__ alignas(16) float room[208];
    __shared__ weft::Mbarrier arrived;
    const int first = blockIdx.x * 205, count = blockIdx.x < 6 ? 203 : blockIdx.x - 6;
    if (threadIdx.x == 0) {
        arrived.init(1);
        weft::fence_mbarrier_init();
    }
    const float* const row = weft::bulk_row(room, x + first, count, arrived);
    __syncthreads();
    arrived.wait(0);
    for (int i = threadIdx.x; i < 205; i += blockDim.x) y[first + i] = i < count ? 2.0f * row[i] : 0.0f;
}
""",
    lambda generator: (whole(generator, 14, 205),),
    lambda x: (np.stack([np.where(np.arange(205) < (203 if k < 6 else k - 6), 2 * row, 0) for k, row in enumerate(x)]),),
    grid=(14, 1, 1),
    arch="sm_90a",
)

BULK_AFTER_STORE = DeviceKernel(
    "bulk_after_store",
    """
#include "weft/bulk.cuh"

// Global memory that threads have written by ordinary stores is read back by a bulk copy.
extern "C" __global__ void bulk_after_store(const float* x, float* between, float* y) {
    __shared__ alignas(128) float run[128];
    __shared__ weft::Mbarrier loaded;
    if (threadIdx.x == 0) {
        loaded.init(1);
        weft::fence_mbarrier_init();
    }
    between[threadIdx.x] = x[127 - threadIdx.x];
    weft::fence_proxy_async_global();
    __syncthreads();
    if (threadIdx.x == 0) {
        loaded.arrive_expect(sizeof run);
        weft::bulk_load(run, static_cast<const float*>(between), sizeof run, loaded);
    }
    loaded.wait(0);
    y[threadIdx.x] = run[threadIdx.x ^ 1];
}
""",
    lambda generator: (whole(generator, 128),),
    lambda x: (x[::-1], x[::-1][np.arange(128) ^ 1]),
    arch="sm_90a",
)


def _boxes(x: Array, box: Sequence[int]) -> Array:
    """x [outermost first] cut into boxes, zeros outside, in the order of the grid: the contiguous dimension fastest."""
    counts = [-(-n // b) for n, b in zip(x.shape, box, strict=True)]
    padded = np.pad(x, [(0, c * b - n) for n, b, c in zip(x.shape, box, counts, strict=True)])
    cut = padded.reshape([m for c, b in zip(counts, box, strict=True) for m in (c, b)])
    rank = x.ndim
    return cut.transpose([*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)]).reshape(-1, *box)


def _tensor_copy(shape: tuple[int, ...], box: tuple[int, ...]) -> DeviceKernel:
    """A tensor of any rank moved box by box, the last ones partly outside; shape and box in numpy's order."""
    rank, elements = len(shape), math.prod(box)
    counts = [-(-n // b) for n, b in zip(shape, box, strict=True)]
    name = f"tensor_copy_{rank}d"
    coordinates, rest = [], "blockIdx.x"
    for c, b in reversed(list(zip(counts, box, strict=True))):
        coordinates.append(f"int({rest} % {c}) * {b}")
        rest = f"{rest} / {c}"
    declared = "\n".join(f"    const int c{d} = {text};" for d, text in enumerate(coordinates))
    names = ", ".join(f"c{d}" for d in range(rank))
    return DeviceKernel(
        name,
        f"""
#include "weft/bulk.cuh"

extern "C" __global__ void {name}(const float* x, float* y, float* boxes, const __grid_constant__ weft::TensorMap from,
                                  const __grid_constant__ weft::TensorMap to) {{
    constexpr int elements = {elements};
    __shared__ alignas(128) float box[elements];
    __shared__ weft::Mbarrier loaded;
    if (threadIdx.x == 0) {{
        weft::prefetch(from);
        loaded.init(1);
        weft::fence_mbarrier_init();
    }}
    __syncthreads();
{declared}
    if (threadIdx.x == 0) {{
        loaded.arrive_expect(sizeof box);
        weft::tensor_load(box, from, loaded, {names});
    }}
    loaded.wait(0);
    for (int i = threadIdx.x; i < elements; i += blockDim.x) boxes[blockIdx.x * elements + i] = box[i];
    if (threadIdx.x == 0) {{
        weft::tensor_store(to, box, {names});
        weft::bulk_commit();
        weft::bulk_wait_read<0>();
    }}
}}
""",
        lambda generator: (whole(generator, *shape, size=1000),),
        lambda x: (x, _boxes(x, box)),
        grid=(math.prod(counts), 1, 1),
        block=(32, 1, 1),
        maps=((0, row_major("float32", shape, box)), (1, row_major("float32", shape, box))),
        arch="sm_90a",
    )


def _window_reference(x: Array) -> tuple[Array, ...]:
    padded = np.pad(x, 12, constant_values=np.float32(np.nan))
    zeros = np.pad(x, 12)
    return padded[12 - 1 : 12 + 3, 12 - 4 : 12 + 4], zeros[12 + 1 : 12 + 9 : 2, 12 + 16 : 12 + 24]


TENSOR_WINDOWS = DeviceKernel(
    "tensor_windows",
    """
#include "weft/bulk.cuh"

// A window that starts before the tensor, NaN outside, and one of every second row that ends after it.
extern "C" __global__ void tensor_windows(const float* x, float* first, float* second,
                                          const __grid_constant__ weft::TensorMap nan_map,
                                          const __grid_constant__ weft::TensorMap stride_map) {
    __shared__ alignas(128) float window[2][32];
    __shared__ weft::Mbarrier loaded;
    if (threadIdx.x == 0) {
        loaded.init(1);
        weft::fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        loaded.arrive_expect(sizeof window);
        weft::tensor_load(window[0], nan_map, loaded, -4, -1);
        weft::tensor_load(window[1], stride_map, loaded, 16, 1);
    }
    loaded.wait(0);
    first[threadIdx.x] = window[0][threadIdx.x];
    second[threadIdx.x] = window[1][threadIdx.x];
}
""",
    lambda generator: (whole(generator, 6, 20),),
    _window_reference,
    block=(32, 1, 1),
    maps=(
        (0, row_major("float32", (6, 20), (4, 8), fill="nan")),
        (0, TensorMap("float32", (20, 6), (80,), (8, 8), element_strides=(1, 2))),
    ),
    arch="sm_90a",
)


def swizzled(bytes_offset: Array, swizzle: int) -> Array:
    """Where a byte of a packed box lies in shared memory."""
    mask = {0: 0, 32: 1, 64: 3, 128: 7}[swizzle]
    return bytes_offset ^ (((bytes_offset >> 7) & mask) << 4)


def _swizzle(swizzle: int) -> DeviceKernel:
    width = swizzle // 2
    name = f"swizzle_{swizzle}"

    def reference(x: Array) -> tuple[Array, ...]:
        out = np.empty(16 * width, np.uint16)
        out[swizzled(np.arange(16 * width) * 2, swizzle) // 2] = x.reshape(-1)
        return (out,)

    return DeviceKernel(
        name,
        f"""
#include "weft/bulk.cuh"

extern "C" __global__ void {name}(const weft::bfloat16* x, uint16_t* y, const __grid_constant__ weft::TensorMap map) {{
    __shared__ alignas(1024) weft::bfloat16 box[16 * {width}];
    __shared__ weft::Mbarrier loaded;
    if (threadIdx.x == 0) {{
        loaded.init(1);
        weft::fence_mbarrier_init();
        loaded.arrive_expect(sizeof box);
        weft::tensor_load(box, map, loaded, 0, 0);
    }}
    __syncthreads();
    loaded.wait(0);
    for (int i = threadIdx.x; i < 16 * {width}; i += blockDim.x) y[i] = box[i].bits;
}}
""",
        lambda generator: (generator.integers(0, 2**16, (16, width)).astype(np.uint16),),
        reference,
        maps=((0, row_major("bfloat16", (16, width), (16, width), swizzle=swizzle)),),
        arch="sm_90a",
    )


MULTICAST = DeviceKernel(
    "multicast",
    """
#include "weft/bulk.cuh"
#include "weft/cluster.cuh"

// Two blocks of a cluster: each loads half a tile for both, once by its address and once by a tensor map.
extern "C" __global__ void multicast(const float* x, float* y, const __grid_constant__ weft::TensorMap map) {
    constexpr int half = 128;
    __shared__ alignas(128) float tile[4 * half];
    __shared__ weft::Mbarrier loaded;
    const int rank = weft::cluster_rank();
    if (threadIdx.x == 0) {
        loaded.init(1);
        weft::fence_mbarrier_init();
    }
    weft::cluster_sync();
    if (threadIdx.x == 0) {
        loaded.arrive_expect(sizeof tile);
        const uint16_t both = 3;
        weft::bulk_load_multicast(tile + rank * half, x + rank * half, half * sizeof(float), loaded, both);
        weft::tensor_load_multicast(tile + (2 + rank) * half, map, loaded, both, (2 + rank) * half);
    }
    loaded.wait(0);
    for (int i = threadIdx.x; i < 4 * half; i += blockDim.x) y[blockIdx.x * 4 * half + i] = tile[i] + float(rank);
}
""",
    lambda generator: (whole(generator, 512),),
    lambda x: (np.stack([x, x + 1]),),
    grid=(2, 1, 1),
    cluster=(2, 1, 1),
    maps=((0, row_major("float32", (512,), (128,))),),
    arch="sm_90a",
)

# ---------------------------------------------------------------- matrix.cuh

_LANE = np.arange(32)


def _lane_words(matrices: Array, transposed: bool) -> Array:
    """[matrices, 8, 8] of 16 bits -> [lane, matrices] of 32, as ldmatrix hands them out."""
    m = matrices.transpose(0, 2, 1) if transposed else matrices
    first = m[:, _LANE // 4, 2 * (_LANE % 4)].astype(np.uint32)
    second = m[:, _LANE // 4, 2 * (_LANE % 4) + 1].astype(np.uint32)
    return (first | second << 16).T


def _load_matrix_reference(x: Array) -> tuple[Array, ...]:
    m = x.reshape(4, 8, 8)
    parts = [_lane_words(m[:n], t).reshape(-1) for t in (False, True) for n in (1, 2, 4)]
    return (np.concatenate(parts),)


LOAD_MATRIX = DeviceKernel(
    "load_matrices",
    """
#include "weft/matrix.cuh"

template <int count> __device__ void put(uint32_t*& y, const uint32_t (&r)[count]) {
    for (int k = 0; k < count; ++k) y[threadIdx.x * count + k] = r[k];
    y += 32 * count;
}

extern "C" __global__ void load_matrices(const uint16_t* x, uint32_t* y) {
    __shared__ alignas(16) uint16_t rows[32][8];
    for (int k = 0; k < 8; ++k) rows[threadIdx.x][k] = x[threadIdx.x * 8 + k];
    __syncwarp();
    const uint16_t* row = rows[threadIdx.x];
    uint32_t one[1], two[2], four[4];
    weft::load_matrix(one, row);
    put(y, one);
    weft::load_matrix(two, row);
    put(y, two);
    weft::load_matrix(four, row);
    put(y, four);
    weft::load_matrix_transposed(one, row);
    put(y, one);
    weft::load_matrix_transposed(two, row);
    put(y, two);
    weft::load_matrix_transposed(four, row);
    put(y, four);
}
""",
    lambda generator: (generator.integers(0, 2**16, 256).astype(np.uint16),),
    _load_matrix_reference,
    block=(32, 1, 1),
)


def _store_matrix_reference(x: Array) -> tuple[Array, ...]:
    m = x.reshape(4, 8, 8)
    return (np.concatenate([(m[:n].transpose(0, 2, 1) if t else m[:n]).reshape(-1) for t in (0, 1) for n in (1, 2, 4)]),)


STORE_MATRIX = DeviceKernel(
    "store_matrices",
    """
#include "weft/matrix.cuh"

extern "C" __global__ void store_matrices(const uint16_t* x, uint16_t* y) {
    __shared__ alignas(16) uint16_t rows[14][8][8];
    const int lane = threadIdx.x;
    uint32_t r[4];
    for (int k = 0; k < 4; ++k) {
        const uint16_t* pair = x + 64 * k + 8 * (lane / 4) + 2 * (lane % 4);
        r[k] = pair[0] | uint32_t(pair[1]) << 16;
    }
    const uint32_t one[1] = {r[0]}, two[2] = {r[0], r[1]};
    uint16_t* row = &rows[0][0][0] + 8 * lane;
    weft::store_matrix(lane < 8 ? row : &rows[0][0][0], one);
    weft::store_matrix((lane < 16 ? row : &rows[0][0][0]) + 64, two);
    weft::store_matrix(row + 3 * 64, r);
    weft::store_matrix_transposed((lane < 8 ? row : &rows[0][0][0]) + 7 * 64, one);
    weft::store_matrix_transposed((lane < 16 ? row : &rows[0][0][0]) + 8 * 64, two);
    weft::store_matrix_transposed(row + 10 * 64, r);
    __syncwarp();
    for (int i = lane; i < 14 * 64; i += 32) y[i] = (&rows[0][0][0])[i];
}
""",
    lambda generator: (generator.integers(0, 2**16, 256).astype(np.uint16),),
    _store_matrix_reference,
    block=(32, 1, 1),
    arch="sm_90a",
)


def _half_bits(x: Array, dtype: str) -> Array:
    return bfloat16_bits(x) if dtype == "bfloat16" else x.astype(np.float16).view(np.uint16)


def _half_values(bits: Array, dtype: str) -> Array:
    return bfloat16_values(bits) if dtype == "bfloat16" else bits.view(np.float16).astype(np.float32)


def _mma_half(dtype: str, k: int, half_accumulator: bool = False) -> DeviceKernel:
    name = f"mma_{dtype}_k{k}" + ("_half" if half_accumulator else "")
    registers = k // 4
    accumulator = "uint32_t c[2] = {}" if half_accumulator else "float c[4] = {}"
    if half_accumulator:
        put = "\n".join(
            f"    weft::unpack<weft::float16>(c[{h}], y[(g + {8 * h}) * 8 + 2 * t], y[(g + {8 * h}) * 8 + 2 * t + 1]);"
            for h in range(2)
        )
    else:
        put = "\n".join(f"    y[(g + {8 * (v // 2)}) * 8 + 2 * t + {v % 2}] = c[{v}];" for v in range(4))
    return DeviceKernel(
        name,
        f"""
#include "weft/matrix.cuh"
#include "weft/memory.cuh"

extern "C" __global__ void {name}(const uint16_t* a, const uint16_t* b, float* y) {{
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;
    uint32_t left[{registers}], right[{registers // 2}];
    for (int r = 0; r < {registers}; ++r)
        left[r] = *reinterpret_cast<const uint32_t*>(a + (g + r % 2 * 8) * {k} + 2 * t + r / 2 * 8);
    for (int r = 0; r < {registers // 2}; ++r)
        right[r] = *reinterpret_cast<const uint32_t*>(b + g * {k} + 2 * t + r * 8);
    {accumulator};
    weft::mma<weft::{dtype}>(c, left, right);
    weft::mma<weft::{dtype}>(c, left, right);
{put}
}}
""",
        lambda generator: tuple(_half_bits(whole(generator, rows, k), dtype) for rows in (16, 8)),
        lambda a, b: (2 * _half_values(a, dtype) @ _half_values(b, dtype).T,),
        block=(32, 1, 1),
    )


def _mma_tfloat32(k: int) -> DeviceKernel:
    name = f"mma_tfloat32_k{k}"
    registers = k // 2
    return DeviceKernel(
        name,
        f"""
#include "weft/matrix.cuh"

extern "C" __global__ void {name}(const float* a, const float* b, float* y) {{
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;
    uint32_t left[{registers}], right[{registers // 2}];
    for (int r = 0; r < {registers}; ++r) left[r] = weft::tfloat32_bits(a[(g + r % 2 * 8) * {k} + t + r / 2 * 4]);
    for (int r = 0; r < {registers // 2}; ++r) right[r] = weft::tfloat32_bits(b[g * {k} + t + r * 4]);
    float c[4] = {{}};
    weft::mma<weft::tfloat32>(c, left, right);
    for (int v = 0; v < 4; ++v) y[(g + v / 2 * 8) * 8 + 2 * t + v % 2] = c[v];
}}
""",
        lambda generator: (whole(generator, 16, k) + np.float32(2.0**-12), whole(generator, 8, k)),
        # A has bits beyond those of tfloat32, and the product must not see them.
        lambda a, b: (_round_tfloat32(a) @ b.T,),
        block=(32, 1, 1),
    )


_ENDS = {"int8": (-128, 128), "uint8": (0, 256)}


def _mma_bytes(left: str, right: str) -> DeviceKernel:
    name = f"mma_{left}_{right}"
    return DeviceKernel(
        name,
        f"""
#include "weft/matrix.cuh"

extern "C" __global__ void {name}(const {left}_t* a, const {right}_t* b, int32_t* y) {{
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;
    uint32_t left[4], right[2];
    for (int r = 0; r < 4; ++r) left[r] = *reinterpret_cast<const uint32_t*>(a + (g + r % 2 * 8) * 32 + 4 * t + r / 2 * 16);
    for (int r = 0; r < 2; ++r) right[r] = *reinterpret_cast<const uint32_t*>(b + g * 32 + 4 * t + r * 16);
    int32_t c[4] = {{0x7fffff00, 0x7fffff00, 0x7fffff00, 0x7fffff00}};
    weft::mma<{left}_t, {right}_t>(c, left, right);
    for (int v = 0; v < 4; ++v) y[(g + v / 2 * 8) * 8 + 2 * t + v % 2] = c[v];
}}
""",
        lambda generator: tuple(
            generator.integers(*_ENDS[dtype], (rows, 32)).astype(dtype) for rows, dtype in ((16, left), (8, right))
        ),
        lambda a, b: ((a.astype(np.int64) @ b.T.astype(np.int64) + 0x7FFFFF00).astype(np.int32),),  # that wraps
        block=(32, 1, 1),
    )


MMA_DOUBLE = DeviceKernel(
    "mma_double",
    """
#include "weft/matrix.cuh"

extern "C" __global__ void mma_double(const double* a, const double* b, double* y) {
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;
    double left[4], right[2], c[4] = {};
    for (int r = 0; r < 4; ++r) left[r] = a[(g + r % 2 * 8) * 8 + t + r / 2 * 4];
    for (int r = 0; r < 2; ++r) right[r] = b[g * 8 + t + r * 4];
    weft::mma<double>(c, left, right);
    weft::mma<double>(c, left, right);
    for (int v = 0; v < 4; ++v) y[(g + v / 2 * 8) * 8 + 2 * t + v % 2] = c[v];
}
""",
    lambda generator: tuple(whole(generator, rows, 8, dtype=np.float64, size=1 << 20) for rows in (16, 8)),
    lambda a, b: (2 * (a @ b.T),),
    block=(32, 1, 1),
)


def _round_tfloat32(x: Array) -> Array:
    """To nearest, halves away from zero, of 10 mantissa bits."""
    return ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


# ---------------------------------------------------------------- wgmma.cuh


def _wgmma(
    dtype: str, n: int, swizzle: int = 128, a: str = "k", b: str = "k", registers: bool = False
) -> DeviceKernel:
    """C [64, n] = 2 A [64, k] B [n, k], staged by ordinary stores in the layout that the descriptor states."""
    size = 4 if dtype == "tfloat32" else 2
    step = 32 // size  # of k, for one instruction
    line = max(16, swizzle) // size
    # k-major lines hold `line` of k (two core matrices where there is no swizzle); row-major ones take one step of k
    k = (line if swizzle else step) if a == b == "k" else step
    count = n // 2
    name = f"wgmma_{dtype}_n{n}_s{swizzle}_{a}_{'registers_' if registers else ''}{b}"
    element = "float" if size == 4 else "uint16_t"

    def place(major: str) -> str:
        """The C++ of an element's byte in shared memory, from r and c."""
        if major == "k":
            if not swizzle:
                return f"(r / 8 * {k * size // 16} + c / {line}) * 128 + r % 8 * 16 + c % {line} * {size}"
            return f"r * {swizzle} + c * {size}"
        lines = max(16, swizzle)
        return f"(r / {line} * 2 + c / 8) * {8 * lines} + c % 8 * {lines} + r % {line} * {size}"

    def distances(major: str) -> tuple[int, int]:
        if major == "k":
            return (16, 8 * swizzle) if swizzle else (128, 128 * (k * size // 16))
        return (16 * swizzle, 8 * swizzle) if swizzle else (128, 256)

    mask = {0: 0, 32: 1, 64: 3, 128: 7}[swizzle]

    def elements(rows: int, major: str) -> int:
        """Of a tile, whole atoms."""
        return rows * max(k, line) if major == "k" else -(-rows // line) * line * k

    (a_lead, a_stride), (b_lead, b_stride) = distances(a), distances(b)
    majors = f"weft::Major::{b}" if registers else f"weft::Major::{a}, weft::Major::{b}"
    stage_a, left = "", "left.advanced(s * 32)"
    if not registers:
        stage_a = f"""
    for (int i = threadIdx.x; i < 64 * {k}; i += 128) {{
        const int r = i / {k}, c = i % {k};
        put(left_tile, {place(a)}, a[i]);
    }}
    const weft::SharedMatrix left = weft::shared_matrix<{swizzle}>(left_tile, {a_lead}, {a_stride});"""
        tile_a = f"    __shared__ alignas(1024) {element} left_tile[{elements(64, a)}];\n"
    else:
        tile_a, left = "", "left[s]"
        row, column = "16 * (threadIdx.x / 32) + threadIdx.x % 32 / 4 + r % 2 * 8", "threadIdx.x % 4"
        wide = f"*reinterpret_cast<const uint32_t*>(a + ({row}) * {k} + s * {step} + {column} * 2 + r / 2 * 8)"
        stage_a = f"""
    uint32_t left[{k // step}][4];
    for (int s = 0; s < {k // step}; ++s)
        for (int r = 0; r < 4; ++r) left[s][r] = {wide};"""
    return DeviceKernel(
        name,
        f"""
#include "weft/bulk.cuh"
#include "weft/wgmma.cuh"

__device__ void put({element}* tile, int byte, {element} value) {{
    tile[(byte ^ (((byte >> 7) & {mask}) << 4)) / {size}] = value;
}}

extern "C" __global__ void __launch_bounds__(128) {name}(const {element}* a, const {element}* b, float* y) {{
{tile_a}    __shared__ alignas(1024) {element} right_tile[{elements(n, b)}];{stage_a}
    for (int i = threadIdx.x; i < {n} * {k}; i += 128) {{
        const int r = i / {k}, c = i % {k};
        put(right_tile, {place(b)}, b[i]);
    }}
    const weft::SharedMatrix right = weft::shared_matrix<{swizzle}>(right_tile, {b_lead}, {b_stride});
    weft::fence_proxy_async();
    __syncthreads();
    float d[{count}];
    for (int v = 0; v < {count}; ++v) d[v] = 1000.0f;
    weft::wgmma_fence(d);
    for (int turn = 0; turn < 2; ++turn)
        for (int s = 0; s < {k // step}; ++s)
            weft::wgmma<weft::{dtype}, {majors}>(d, {left}, right.advanced(s * 32), turn + s > 0);
    weft::wgmma_commit();
    weft::wgmma_wait<0>(d);
    const int row = 16 * (threadIdx.x / 32) + threadIdx.x % 32 / 4;
    for (int v = 0; v < {count}; ++v)
        y[(row + v / 2 % 2 * 8) * {n} + v / 4 * 8 + threadIdx.x % 4 * 2 + v % 2] = d[v];
}}
""".replace("for (int s", "_Pragma(\"unroll\") for (int s").replace("for (int turn", "_Pragma(\"unroll\") for (int turn"),
        lambda generator: tuple(
            whole(generator, rows, k) if size == 4 else _half_bits(whole(generator, rows, k), dtype) for rows in (64, n)
        ),
        lambda a, b: (2 * (a @ b.T) if size == 4 else 2 * _half_values(a, dtype) @ _half_values(b, dtype).T,),
        arch="sm_90a",
    )


def _wgmma_bytes(left: str, right: str, n: int) -> DeviceKernel:
    """C [64, n] = A [64, 64] B [n, 64], lines of 64 bytes."""
    name, count = f"wgmma_{left}_{right}_n{n}", n // 2
    return DeviceKernel(
        name,
        f"""
#include "weft/bulk.cuh"
#include "weft/wgmma.cuh"

__device__ int place(int r, int c) {{ return (r * 64 + c) ^ (r / 2 % 4 * 16); }}

extern "C" __global__ void __launch_bounds__(128) {name}(const {left}_t* a, const {right}_t* b, int32_t* y) {{
    __shared__ alignas(1024) {left}_t left_tile[64 * 64];
    __shared__ alignas(1024) {right}_t right_tile[{n} * 64];
    for (int i = threadIdx.x; i < 64 * 64; i += 128) left_tile[place(i / 64, i % 64)] = a[i];
    for (int i = threadIdx.x; i < {n} * 64; i += 128) right_tile[place(i / 64, i % 64)] = b[i];
    const weft::SharedMatrix left = weft::shared_matrix<64>(left_tile, 16, 512);
    const weft::SharedMatrix right = weft::shared_matrix<64>(right_tile, 16, 512);
    weft::fence_proxy_async();
    __syncthreads();
    int32_t d[{count}];
    for (int v = 0; v < {count}; ++v) d[v] = 1000;
    weft::wgmma_fence(d);
    weft::wgmma<{left}_t, {right}_t>(d, left, right, false);
    weft::wgmma<{left}_t, {right}_t>(d, left.advanced(32), right.advanced(32), true);
    weft::wgmma_commit();
    weft::wgmma_wait<0>(d);
    const int row = 16 * (threadIdx.x / 32) + threadIdx.x % 32 / 4;
    for (int v = 0; v < {count}; ++v)
        y[(row + v / 2 % 2 * 8) * {n} + v / 4 * 8 + threadIdx.x % 4 * 2 + v % 2] = d[v];
}}
""",
        lambda generator: tuple(
            generator.integers(*_ENDS[dtype], (rows, 64)).astype(dtype) for rows, dtype in ((64, left), (n, right))
        ),
        lambda a, b: (a.astype(np.int32) @ b.T.astype(np.int32),),
        arch="sm_90a",
    )


WGMMA = (
    _wgmma("bfloat16", 8),
    _wgmma("float16", 256),
    _wgmma("bfloat16", 24, 64),
    _wgmma("float16", 40, 32),
    _wgmma("bfloat16", 64, 0),
    _wgmma("bfloat16", 128, 128, "rows", "rows"),
    _wgmma("float16", 64, 64, "rows", "k"),
    _wgmma("float16", 32, 32, "k", "rows"),
    _wgmma("bfloat16", 48, 0, "rows", "rows"),
    _wgmma("tfloat32", 96),
    _wgmma("bfloat16", 72, 128, registers=True),
    _wgmma("float16", 128, 64, b="rows", registers=True),
    _wgmma_bytes("int8", "int8", 8),
    _wgmma_bytes("uint8", "int8", 48),
    _wgmma_bytes("int8", "uint8", 256),
)

# ---------------------------------------------------------------- cluster.cuh

CLUSTER_RING = DeviceKernel(
    "cluster_ring",
    """
#include "weft/cluster.cuh"
#include "weft/bulk.cuh"

// Each block sends its row to the next block of the cluster and adds what it gets from the one before.
extern "C" __global__ void cluster_ring(const float* x, float* y) {
    __shared__ alignas(128) float own[128], got[128];
    __shared__ weft::Mbarrier full, taken;
    const uint32_t rank = weft::cluster_rank(), size = weft::cluster_size();
    if (threadIdx.x == 0) {
        full.init(1);
        taken.init(blockDim.x);
        weft::fence_mbarrier_init();
        full.arrive_expect(sizeof got);
    }
    own[threadIdx.x] = x[blockIdx.x * 128 + threadIdx.x];
    weft::fence_proxy_async();
    weft::cluster_sync();
    if (threadIdx.x == 0) weft::bulk_send(got, own, sizeof own, full, (rank + 1) % size);
    full.wait<weft::Scope::cluster>(0);
    y[blockIdx.x * 128 + threadIdx.x] = own[threadIdx.x] + 10.0f * got[127 - threadIdx.x];
    taken.arrive_at_peer((rank + size - 1) % size);
    taken.wait<weft::Scope::cluster>(0);  // what this block has sent is read: it may exit
    weft::cluster_sync();
}
""",
    lambda generator: (whole(generator, 8, 128),),
    lambda x: (x + 10 * np.roll(x.reshape(2, 4, 128), 1, 1).reshape(8, 128)[:, ::-1],),
    grid=(8, 1, 1),
    cluster=(4, 1, 1),
    arch="sm_90a",
)

CLUSTER_REDUCTION = DeviceKernel(
    "cluster_reduction",
    """
#include "weft/atomic.cuh"
#include "weft/cluster.cuh"
#include "weft/team.cuh"

// A row is spread over the blocks of a cluster: each adds up its part, sends the sum to every block, and all subtract the mean.
extern "C" __global__ void __launch_bounds__(128) cluster_reduction(const float* x, float* y, float* greatest) {
    constexpr int blocks = 4, part = 256, row = blocks * part;
    __shared__ float scratch[2][4];
    __shared__ float sums[blocks];
    __shared__ uint32_t arrived;
    const int rank = weft::cluster_rank();
    const int64_t first = int64_t(blockIdx.x / blocks) * row + rank * part;
    if (threadIdx.x == 0) arrived = 0;
    weft::cluster_arrive();
    const float a = x[first + threadIdx.x], b = x[first + 128 + threadIdx.x];
    const float sum = weft::reduce<weft::Sum<float>, 128>(a + b, scratch[0]);
    const float most = weft::reduce<weft::Max<float>, 128>(a > b ? a : b, scratch[1]);
    weft::cluster_wait();
    if (threadIdx.x < blocks) {
        *weft::peer(&sums[rank], threadIdx.x) = sum;
        weft::atomic_add_release<weft::Scope::cluster>(weft::peer(&arrived, threadIdx.x), 1u);
    }
    if (threadIdx.x == 0) {
        while (weft::load_acquire<weft::Scope::cluster>(&arrived) != blocks) {
        }
    }
    __syncthreads();
    float total = 0.0f;
    for (int k = 0; k < blocks; ++k) total += sums[k];
    const float mean = total / float(row);
    y[first + threadIdx.x] = a - mean;
    y[first + 128 + threadIdx.x] = b - mean;
    if (threadIdx.x == 0) scratch[0][0] = most;
    weft::cluster_sync();
    if (rank == 0 && threadIdx.x == 0) {
        float all = most;
        for (int k = 1; k < blocks; ++k) {
            const float there = *weft::peer(&scratch[0][0], k);
            all = there > all ? there : all;
        }
        greatest[blockIdx.x / blocks] = all;
    }
    weft::cluster_sync();
}
""",
    lambda generator: (whole(generator, 2, 1024),),
    lambda x: (x - x.mean(1, keepdims=True, dtype=np.float32), x.max(1)),
    grid=(8, 1, 1),
    cluster=(4, 1, 1),
    arch="sm_90a",
)

TWO_WORDS = DeviceKernel(
    "two_words",
    """
#include "weft/atomic.cuh"

// Every thread leaves two words by one instruction, and hears those of its neighbour.
extern "C" __global__ void two_words(const int* x, long long* y) {
    __shared__ alignas(16) uint64_t words[256];
    const int own = threadIdx.x, other = (threadIdx.x + 1) % 128;
    weft::store_two_relaxed<weft::Scope::block>(words + 2 * own, uint64_t(x[own] + 100), uint64_t(x[own] + 200));
    __syncthreads();
    uint64_t first, second;
    weft::load_two_relaxed<weft::Scope::block>(words + 2 * other, first, second);
    y[own] = (long long)(first * 1000 + second);
}
""",
    lambda generator: (whole(generator, 128, dtype=np.int32),),
    lambda x: (np.roll((x.astype(np.int64) + 100) * 1000 + x + 200, -1),),
)

CLUSTER_TOLD = DeviceKernel(
    "cluster_told",
    """
#include "weft/cluster_team.cuh"

// A row is spread over the blocks of a cluster: every warp tells every block the sum and the greatest of its part, which all
// wait for at one mbarrier.
extern "C" __global__ void __launch_bounds__(96) cluster_told(const float* x, float* y, double* last) {
    constexpr int blocks = 4, threads = 96;
    __shared__ weft::Slot<float> sums[blocks * 3], greatest[blocks * 3];
    __shared__ double from[blocks];
    __shared__ weft::Mbarrier met[2];
    if (threadIdx.x == 0) {
        for (int k = 0; k < 2; ++k) met[k].init(1);
        weft::fence_mbarrier_init();
        met[0].arrive_expect(sizeof sums + sizeof greatest);
        met[1].arrive_expect(sizeof from);
    }
    weft::cluster_arrive_relaxed();
    const float a = x[blockIdx.x * threads + threadIdx.x];
    weft::cluster_wait();
    weft::tell_cluster<weft::Sum<float>, threads, blocks>(a, sums, met[0]);
    weft::tell_cluster<weft::Max<float>, threads, blocks>(a, greatest, met[0]);
    met[0].wait<weft::Scope::cluster>(0);
    const float sum = weft::told_cluster<weft::Sum<float>, threads, blocks>(sums);
    const float most = weft::told_cluster<weft::Max<float>, threads, blocks>(greatest);
    y[blockIdx.x * threads + threadIdx.x] = a - sum * most;
    if (threadIdx.x < blocks) weft::send(from + weft::cluster_rank(), double(sum) + weft::cluster_rank(), met[1], threadIdx.x);
    met[1].wait<weft::Scope::cluster>(0);
    if (threadIdx.x == 0) last[blockIdx.x] = from[blocks - 1 - weft::cluster_rank()];
}
""",
    lambda generator: (whole(generator, 2, 384),),
    lambda x: (
        x - x.sum(1, keepdims=True, dtype=np.float32) * x.max(1, keepdims=True),
        (x.sum(1, keepdims=True, dtype=np.float64) + np.arange(3, -1, -1)).reshape(-1),
    ),
    grid=(8, 1, 1),
    block=(96, 1, 1),
    cluster=(4, 1, 1),
    arch="sm_90a",
)

CLUSTER_AROUND = DeviceKernel(
    "cluster_around",
    """
#include "weft/cluster.cuh"

// What a value is added up to that goes round the blocks of a cluster three times, by one place of each.
extern "C" __global__ void __launch_bounds__(32) cluster_around(const float* x, float* y) {
    constexpr uint32_t blocks = 4, rounds = 3;
    __shared__ float token;
    __shared__ weft::Mbarrier met;
    if (threadIdx.x == 0) {
        met.init(1);
        weft::fence_mbarrier_init();
        met.arrive_expect(sizeof token);
    }
    weft::cluster_sync();
    if (threadIdx.x == 0) {
        const uint32_t rank = weft::cluster_rank(), next = (rank + 1) % blocks;
        const float own = x[blockIdx.x];
        if (rank == 0) weft::send_after(&token, own, met, next);
        for (uint32_t round = 0; round < rounds; ++round) {
            met.wait(round & 1);
            const float sum = token + own;
            if (round + 1 < rounds) met.arrive_expect(sizeof token);
            if (round + 1 < rounds || rank > 0) weft::send_after(&token, sum, met, next);
            else y[blockIdx.x / blocks] = sum;
        }
    }
    weft::cluster_sync();
}
""",
    lambda generator: (whole(generator, 2, 4),),
    lambda x: (3 * x.sum(1, dtype=np.float32) + x[:, 0],),
    grid=(8, 1, 1),
    block=(32, 1, 1),
    cluster=(4, 1, 1),
    arch="sm_90a",
)

# ---------------------------------------------------------------- registers.cuh

REGISTER_HANDOVER = DeviceKernel(
    "register_handover",
    """
#include "weft/barrier.cuh"
#include "weft/registers.cuh"

// One warpgroup gives up registers, two take them.
extern "C" __global__ void __launch_bounds__(384, 1) register_handover(const float* x, float* y) {
    __shared__ float tile[256];
    if (threadIdx.x < 128) {
        weft::decrease_registers<40>();
        tile[threadIdx.x] = x[threadIdx.x];
        tile[threadIdx.x + 128] = x[threadIdx.x + 128];
        weft::barrier_arrive(1, 384);
    } else {
        weft::increase_registers<232>();
        weft::barrier_sync(1, 384);
        const int i = threadIdx.x - 128;
        y[i] = tile[i] + tile[255 - i];
    }
}
""",
    lambda generator: (whole(generator, 256),),
    lambda x: (x + x[::-1],),
    block=(384, 1, 1),
    arch="sm_90a",
)

# ---------------------------------------------------------------- whole kernels

PIPELINED_SCALE = DeviceKernel(
    "pipelined_scale",
    """
#include "weft/barrier.cuh"
#include "weft/bulk.cuh"

// y = 2 x + 1 in tiles of [rows, columns]: warp 0 keeps a ring of loads going, four warps compute, results leave by TMA.
extern "C" __global__ void __launch_bounds__(160)
pipelined_scale(const float* x, float* y, const __grid_constant__ weft::TensorMap from,
                const __grid_constant__ weft::TensorMap to) {
    constexpr int rows = 8, columns = 64, tiles = 10, stages = 3, consumers = 128;
    struct Tile {
        float element[rows * columns];
    };
    __shared__ alignas(128) Tile in[stages];
    __shared__ alignas(128) Tile out[2];
    __shared__ weft::Mbarrier full[stages], empty[stages];
    const int row = blockIdx.x * rows;
    if (threadIdx.x == 0) {
        for (int s = 0; s < stages; ++s) {
            full[s].init(1);
            empty[s].init(consumers / 32);
        }
        weft::fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0) {
            weft::prefetch(from);
            for (int t = 0; t < tiles; ++t) {
                const int s = t % stages;
                empty[s].wait((t / stages % 2) ^ 1);
                full[s].arrive_expect(sizeof(Tile));
                weft::tensor_load(in[s].element, from, full[s], t * columns, row);
            }
        }
    } else {
        const int thread = threadIdx.x - 32;
        for (int t = 0; t < tiles; ++t) {
            const int s = t % stages;
            Tile& result = out[t % 2];
            if (thread == 0) weft::bulk_wait_read<1>();  // the store before the last has read `result`
            weft::barrier_sync(1, consumers);
            full[s].wait(t / stages % 2);
            for (int i = thread; i < rows * columns; i += consumers) result.element[i] = 2.0f * in[s].element[i] + 1.0f;
            __syncwarp();
            if (thread % 32 == 0) empty[s].arrive();
            weft::fence_proxy_async();
            weft::barrier_sync(2, consumers);
            if (thread == 0) {
                weft::tensor_store(to, result.element, t * columns, row);
                weft::bulk_commit();
            }
        }
        if (thread == 0) weft::bulk_wait_read<0>();
    }
}
""",
    lambda generator: (whole(generator, 20, 600),),
    lambda x: (2 * x + 1,),
    grid=(3, 1, 1),
    block=(160, 1, 1),
    maps=((0, row_major("float32", (20, 600), (8, 64))), (1, row_major("float32", (20, 600), (8, 64)))),
    arch="sm_90a",
)

WGMMA_PRODUCT = DeviceKernel(
    "wgmma_product",
    """
#include "weft/bulk.cuh"
#include "weft/memory.cuh"
#include "weft/registers.cuh"
#include "weft/wgmma.cuh"

// C [m, n] = A [m, k] B [n, k] in tiles 128 x 128 x 64: a warpgroup loads by TMA, two multiply 64 rows each.
extern "C" __global__ void __launch_bounds__(384, 1)
wgmma_product(const weft::bfloat16* a, const weft::bfloat16* b, float* c, const __grid_constant__ weft::TensorMap a_map,
              const __grid_constant__ weft::TensorMap b_map) {
    constexpr int n = 256, depth = 320, side = 128, deep = 64, stages = 3, tiles = depth / deep;
    constexpr int tile_bytes = side * deep * sizeof(weft::bfloat16);
    struct Stage {
        weft::bfloat16 a[side * deep], b[side * deep];
    };
    struct Shared {
        Stage stage[stages];
        weft::Mbarrier full[stages], empty[stages];
    };
    extern __shared__ __align__(1024) unsigned char dynamic[];
    auto& [stage, full, empty] = *reinterpret_cast<Shared*>(dynamic);
    if (threadIdx.x == 0) {
        for (int s = 0; s < stages; ++s) {
            full[s].init(1);
            empty[s].init(8);  // of each warp that multiplies: it knows of its own products alone
        }
        weft::fence_mbarrier_init();
    }
    __syncthreads();
    const int row = blockIdx.y * side, column = blockIdx.x * side;
    if (threadIdx.x < 128) {
        weft::decrease_registers<40>();
        if (threadIdx.x == 0) {
            for (int t = 0; t < tiles; ++t) {
                const int s = t % stages;
                empty[s].wait((t / stages % 2) ^ 1);
                full[s].arrive_expect(2 * tile_bytes);
                weft::tensor_load(stage[s].a, a_map, full[s], t * deep, row);
                weft::tensor_load(stage[s].b, b_map, full[s], t * deep, column);
            }
        }
        return;
    }
    weft::increase_registers<232>();
    const int group = threadIdx.x / 128 - 1;
    float sum[64];
    for (int t = 0; t < tiles; ++t) {
        const int s = t % stages;
        full[s].wait(t / stages % 2);
        const weft::SharedMatrix left = weft::shared_matrix<128>(stage[s].a + group * 64 * deep, 16, 1024);
        const weft::SharedMatrix right = weft::shared_matrix<128>(stage[s].b, 16, 1024);
        weft::wgmma_fence(sum);
#pragma unroll
        for (int k = 0; k < deep / 16; ++k)
            weft::wgmma<weft::bfloat16>(sum, left.advanced(32 * k), right.advanced(32 * k), t + k > 0);
        weft::wgmma_commit();
        weft::wgmma_wait<1>();  // the products of the tile before are done: its stage is free
        if (t > 0 && threadIdx.x % 32 == 0) empty[(t - 1) % stages].arrive();
    }
    weft::wgmma_wait<0>(sum);
    const int first = row + group * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int v = 0; v < 64; v += 2) {
        const float pair[2] = {sum[v], sum[v + 1]};
        weft::store<2>(c + (first + v / 2 % 2 * 8) * n + column + v / 4 * 8 + threadIdx.x % 4 * 2, pair);
    }
}
""",
    lambda generator: (bfloat16_bits(whole(generator, 128, 320)), bfloat16_bits(whole(generator, 256, 320))),
    lambda a, b: (bfloat16_values(a) @ bfloat16_values(b).T,),
    grid=(2, 1, 1),
    block=(384, 1, 1),
    shared=3 * (2 * 128 * 64 * 2 + 2 * 8),
    maps=(
        (0, row_major("bfloat16", (128, 320), (128, 64), swizzle=128)),
        (1, row_major("bfloat16", (256, 320), (128, 64), swizzle=128)),
    ),
    arch="sm_90a",
)

HALF_PRODUCT = DeviceKernel(
    "half_product",
    """
#include "weft/async.cuh"
#include "weft/matrix.cuh"
#include "weft/memory.cuh"

// C [m, n] = A [m, k] B [n, k] in tiles 64 x 64 x 64, two stages; eight warps hold 16 x 32 of C each. Rows of a tile are eight
// chunks of 16 bytes, XORed with the row's number, so that the eight rows of a matrix lie in different banks.
extern "C" __global__ void __launch_bounds__(256) half_product(const weft::float16* a, const weft::float16* b, float* c) {
    constexpr int m = 120, n = 88, depth = 192, side = 64, tiles = depth / side;
    __shared__ alignas(128) weft::float16 stage[2][2][side * side];
    const int row = blockIdx.y * side, column = blockIdx.x * side;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    auto load = [&](int t) {
        if (t < tiles) {
#pragma unroll
            for (int turn = 0; turn < 2; ++turn) {
                const int r = threadIdx.x / 8 + turn * 32, chunk = threadIdx.x % 8;
                const int place = r * side + (chunk ^ (r % 8)) * 8;
                const int k = t * side + chunk * 8;
                const bool in_a = row + r < m, in_b = column + r < n;
                weft::copy_async_or_zero<16>(&stage[t % 2][0][place], a + (in_a ? (row + r) * depth + k : 0), in_a);
                weft::copy_async_or_zero<16>(&stage[t % 2][1][place], b + (in_b ? (column + r) * depth + k : 0), in_b);
            }
        }
        weft::commit_copies();
    };

    float sum[4][4] = {};
    const int warp_row = warp / 2 * 16, warp_column = warp % 2 * 32;
    load(0);
    for (int t = 0; t < tiles; ++t) {
        load(t + 1);
        weft::wait_copies<1>();
        __syncthreads();
        const weft::float16* left_tile = stage[t % 2][0];
        const weft::float16* right_tile = stage[t % 2][1];
#pragma unroll
        for (int k = 0; k < side / 16; ++k) {
            uint32_t left[4];
            const int left_row = warp_row + lane % 16, left_chunk = 2 * k + lane / 16;
            weft::load_matrix(left, left_tile + left_row * side + (left_chunk ^ (left_row % 8)) * 8);
#pragma unroll
            for (int j = 0; j < 4; j += 2) {
                uint32_t right[4];
                const int right_row = warp_column + 8 * j + lane % 8 + lane / 16 * 8, right_chunk = 2 * k + lane / 8 % 2;
                weft::load_matrix(right, right_tile + right_row * side + (right_chunk ^ (right_row % 8)) * 8);
                const uint32_t first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
                weft::mma<weft::float16>(sum[j], left, first);
                weft::mma<weft::float16>(sum[j + 1], left, second);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int i = row + warp_row + lane / 4 + 8 * half, k = column + warp_column + 8 * j + lane % 4 * 2;
            const float pair[2] = {sum[j][2 * half], sum[j][2 * half + 1]};
            if (i < m && k < n) weft::store<2>(c + i * n + k, pair);
        }
    }
}
""",
    lambda generator: (whole(generator, 120, 192, dtype=np.float16), whole(generator, 88, 192, dtype=np.float16)),
    lambda a, b: (a.astype(np.float32) @ b.astype(np.float32).T,),
    grid=(2, 2, 1),
    block=(256, 1, 1),
)

OPERAND_TILES = DeviceKernel(
    "operand_tiles",
    """
#include "weft/product.cuh"

// c [64, 32] = a [64, 16] b [16, 32]: a comes in packets along its rows' points, b in packets of neighbouring columns.
extern "C" __global__ void __launch_bounds__(128) operand_tiles(const float* a, const float* b, float* c) {
    __shared__ weft::OperandTile<float, 16, 64, 4> left;
    __shared__ weft::OperandTile<float, 16, 32> right;
    for (int p = threadIdx.x; p < 256; p += 128) {
        float run[4];
        weft::unpack(weft::fetch<4, 4>(a + p * 4), run);
        left.put_points(p % 4 * 4, p / 4, run);
    }
    float run[4];
    weft::unpack(weft::fetch<4, 4>(b + threadIdx.x * 4), run);
    right.put_rows(threadIdx.x / 8, threadIdx.x % 8 * 4, run);
    __syncthreads();
    const int across = threadIdx.x % 8, down = threadIdx.x / 8;
    float sums[4][4] = {};
    for (int point = 0; point < 16; ++point) {
        float rows[4], columns[4];
        left.get<64>(point, 4 * down, rows);
        right.get<32>(point, 4 * across, columns);
#pragma unroll
        for (int u = 0; u < 4; ++u)
#pragma unroll
            for (int v = 0; v < 4; ++v) sums[u][v] = weft::fma(rows[u], columns[v], sums[u][v]);
    }
    for (int u = 0; u < 4; ++u) weft::store<4>(c + (4 * down + u) * 32 + 4 * across, sums[u]);
}
""",
    lambda generator: (whole(generator, 64, 16), whole(generator, 16, 32)),
    lambda a, b: (a @ b,),
    block=(128, 1, 1),
)


DOUBLE_TILES = {
    along: DeviceKernel(
        f"double_tiles_{along}",
        f"""
#include "weft/matrix_tile.cuh"

// c [32, 32] = the product of a [32, 16] and b [32, 16], or [16, 32] each.
extern "C" __global__ void double_tiles_{along}(const double* a, const double* b, double* c) {{
    __shared__ weft::MatrixTile<double, 32, {along}> left, right;
    for (int p = threadIdx.x; p < 256; p += 32) {{
        const int row = {"p / 8, point = p % 8 * 2" if along == "true" else "p % 16 * 2, point = p / 16"};
        left.copy(row, point, a + 2 * p, true);
        right.copy(row, point, b + 2 * p, true);
    }}
    weft::commit_copies();
    weft::wait_copies<0>();
    __syncthreads();
    double sums[2][4][4] = {{}};
    for (int k = 0; k < 16; k += 8) {{
#pragma unroll
        for (int u = 0; u < 2; ++u) {{
            double a_own[4];
            left.left(u * 16, k, a_own);
#pragma unroll
            for (int v = 0; v < 4; ++v) {{
                double b_own[4];
                right.right(v / 2 * 16, k, b_own);
                weft::mma<double>(sums[u][v], a_own, {{b_own[v % 2 * 2], b_own[v % 2 * 2 + 1]}});
            }}
        }}
    }}
    const int row = threadIdx.x / 4, column = threadIdx.x % 4 * 2;
    for (int u = 0; u < 2; ++u)
        for (int v = 0; v < 4; ++v)
            for (int e = 0; e < 4; ++e) c[(u * 16 + row + e / 2 * 8) * 32 + v * 8 + column + e % 2] = sums[u][v][e];
}}
""",
        lambda generator, own=along: tuple(
            whole(generator, *((32, 16) if own == "true" else (16, 32)), dtype=np.float64) for _ in range(2)
        ),
        lambda a, b, own=along: (a @ b.T if own == "true" else a.T @ b,),
        block=(32, 1, 1),
    )
    for along in ("true", "false")
}

BYTE_TILE = DeviceKernel(
    "byte_tile",
    """
#include "weft/byte_tile.cuh"

// y = x [128, 128], turned.
extern "C" __global__ void __launch_bounds__(256) byte_tile(const int8_t* x, int8_t* y) {
    __shared__ weft::ByteTile tile;
    for (int p = threadIdx.x; p < 1024; p += 256) tile.put(p / 8, p % 8, weft::fetch<16, 16>(x + p * 16));
    __syncthreads();
    const int across = threadIdx.x % 8, down = threadIdx.x / 8;
    weft::Packet<uint32_t, 4> line[4];
    tile.get(across * 16, down, line);
    for (int v = 0; v < 4; ++v) weft::put(reinterpret_cast<uint32_t*>(y + (down * 4 + v) * 128 + across * 16), line[v]);
}
""",
    lambda generator: (generator.integers(-128, 128, (128, 128)).astype(np.int8),),
    lambda x: (np.ascontiguousarray(x.T),),
    block=(256, 1, 1),
)


def _block_tiles(left_along: bool, right_along: bool) -> DeviceKernel:
    """c [32, 32] = the product of a [32, 48] and b [32, 48], each in lines along points or rows, shifted or swizzled."""
    flags = ["true" if f else "false" for f in (left_along, right_along)]
    tiles = ["32, 48" if f else "48, 32" for f in (left_along, right_along)]
    name = f"block_tiles_{flags[0]}_{flags[1]}"

    def brought(tile: str, array: str, along: bool) -> str:
        packets = 6 if along else 4
        return f"""
    for (int p = threadIdx.x; p < 192; p += 64)
        {tile}.copy<8>(p / {packets}, p % {packets} * 8, {array} + p * 8, true);"""

    return DeviceKernel(
        name,
        f"""
#include "weft/block.cuh"

extern "C" __global__ void __launch_bounds__(64) {name}(const weft::float16* a, const weft::float16* b, float* c, int32_t* n) {{
    __shared__ weft::BlockTile<weft::float16, {tiles[0]}> left;
    __shared__ weft::BlockTile<weft::float16, {tiles[1]}> right;
    __shared__ weft::BlockTile<float, 32, 32> result;
    {brought("left", "a", left_along)}{brought("right", "b", right_along)}
    weft::commit_copies();
    weft::wait_copies<0>();
    __syncthreads();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float sums[1][4][4] = {{}};
    weft::multiply_tiles<weft::float16, 48, {flags[0]}, {flags[1]}>(sums, left, right, warp * 16, 0);
    for (int f = 0; f < 2; ++f)
        for (int g = 0; g < 4; ++g) {{
            const float pair[2] = {{sums[0][g][2 * f], sums[0][g][2 * f + 1]}};
            result.put<2>(warp * 16 + f * 8 + lane / 4, g * 8 + lane % 4 * 2, pair);
        }}
    __syncthreads();
    for (int p = threadIdx.x; p < 256; p += 64) {{
        float run[4];
        weft::unpack(result.fetch<4>(p / 8, p % 8 * 4), run);
        for (int v = 0; v < 4; ++v) c[p * 4 + v] = run[v];
        if (result.at(p / 8, p % 8 * 4) != run[0]) __trap();
    }}
    if (threadIdx.x == 0) n[0] = int32_t(weft::tiles<16>(33));
}}
""",
        lambda generator: tuple(
            whole(generator, *((32, 48) if f else (48, 32)), dtype=np.float16) for f in (left_along, right_along)
        ),
        lambda a, b: (
            (a if left_along else a.T).astype(np.float32) @ (b.T if right_along else b).astype(np.float32),
            np.array([3], np.int32),
        ),
        block=(64, 1, 1),
    )


def _matrix_tiles(by_warpgroup: bool, left_along: bool, right_along: bool) -> DeviceKernel:
    """c [64, 64] = the product of a [64, 72] and b [64, 72], each stored along its points or along its rows."""
    flags = ["true" if f else "false" for f in (left_along, right_along)]
    name = f"matrix_tiles_{'warpgroup' if by_warpgroup else 'warps'}_{flags[0]}_{flags[1]}"
    depth = 72  # a turn and a part of the next one

    def brought(tile: str, array: str, along: bool) -> str:
        place = f"row * {depth} + first + point" if along else "(first + point) * 64 + row"
        packet = "p / 8, point = p % 8 * 8" if along else "p % 8 * 8, point = p / 8"
        return f"""
        for (int p = threadIdx.x; p < 512; p += 128) {{
            const int row = {packet};
            {tile}.copy(row, point, {array} + {place}, first + point < {depth});
        }}"""

    majors = ", ".join(f"weft::Major::{'k' if f else 'rows'}" for f in (left_along, right_along))
    products = f"""
#pragma unroll
        for (int k = 0; k < 64; k += 16)
            weft::wgmma<weft::float16, {majors}>(sums, left.matrix(0, k), right.matrix(0, k), true);
        weft::wgmma_commit();
        weft::wgmma_wait<0>(sums);"""
    if not by_warpgroup:
        products = """
#pragma unroll
        for (int k = 0; k < 64; k += 16) {
            uint32_t a_own[4];
            left.left(warp * 16, k, a_own);
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                uint32_t b_own[4];
                right.right(n * 16, k, b_own);
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    auto& own = reinterpret_cast<float(&)[4]>(sums[(2 * n + half) * 4]);
                    weft::mma<weft::float16>(own, a_own, {b_own[2 * half], b_own[2 * half + 1]});
                }
            }
        }"""
    ends = """
    weft::exchange_quads(sums);
    for (int u = 0; u < 2; ++u)
        for (int h = 0; h < 2; ++h)
            for (int v = 0; v < 8; ++v)
                c[(row + 8 * u) * 64 + 32 * h + 8 * (lane % 4) + v] = sums[(8 * h + v) / 2 * 4 + 2 * u + v % 2];"""
    fences = ("weft::fence_proxy_async();", "weft::wgmma_fence(sums);") if by_warpgroup else ("", "")
    return DeviceKernel(
        name,
        f"""
#include "weft/matrix_tile.cuh"

extern "C" __global__ void __launch_bounds__(128) {name}(const weft::float16* a, const weft::float16* b, float* c) {{
    extern __shared__ __align__(1024) unsigned char memory[];
    auto& left = *reinterpret_cast<weft::MatrixTile<weft::float16, 64, {flags[0]}>*>(memory);
    auto& right = *reinterpret_cast<weft::MatrixTile<weft::float16, 64, {flags[1]}>*>(memory + 8192);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = warp * 16 + lane / 4;
    float sums[32] = {{}};
    for (int first = 0; first < {depth}; first += 64) {{{brought("left", "a", left_along)}{brought("right", "b", right_along)}
        weft::commit_copies();
        weft::wait_copies<0>();
        {fences[0]}
        __syncthreads();
        {fences[1]}{products}
        __syncthreads();
    }}{ends}
}}
""",
        lambda generator: tuple(
            whole(generator, *((64, depth) if along else (depth, 64)), dtype=np.float16) for along in (left_along, right_along)
        ),
        lambda a, b: ((a if left_along else a.T).astype(np.float32) @ (b.T if right_along else b).astype(np.float32),),
        block=(128, 1, 1),
        shared=2 * 8192,
        **({"arch": "sm_90a"} if by_warpgroup else {}),
    )


PAIRS_OF_BYTES = DeviceKernel(
    "pairs_of_bytes",
    """
#include "weft/matrix_tile.cuh"

// Threads read eight neighbours of two rows each, and write the pairs of them that products have: what they have read.
extern "C" __global__ void pairs_of_bytes(const weft::boolean* x, const int32_t* square, int32_t* y, int32_t* turned) {
    const int row = threadIdx.x / 4, q = threadIdx.x % 4;
    weft::Run<weft::boolean, 8> runs[2];
    for (int u = 0; u < 2; ++u) runs[u] = weft::fetch_now<8, 8>(x + (row + 8 * u) * 32 + 8 * q);
    weft::exchange_pairs(runs[0], runs[1]);
#pragma unroll
    for (int u = 0; u < 2; ++u)
#pragma unroll
        for (int i = 0; i < 8; ++i) y[(row + 8 * u) * 32 + i / 2 * 8 + 2 * q + i % 2] = weft::element<bool>(runs[u], i);
    int32_t own[4];
    for (int i = 0; i < 4; ++i) own[i] = square[threadIdx.x * 4 + i];
    weft::exchange_square(own, threadIdx.x % 4);
    const int first = weft::uniform(int32_t(threadIdx.x) / 32 * 4);
    for (int i = 0; i < 4; ++i) turned[(first + threadIdx.x) * 4 + i] = own[i];
}
""",
    lambda generator: (generator.integers(0, 2, (16, 32)).astype(np.uint8), np.arange(128, dtype=np.int32)),
    lambda x, square: (x.astype(np.int32), square.reshape(8, 4, 4).transpose(0, 2, 1).reshape(-1)),
    block=(32, 1, 1),
)


STANDING_BYTES = DeviceKernel(
    "standing_bytes",
    """
#include "weft/matrix_tile.cuh"

// Threads read eight rows of columns each, and write the elements of products that are theirs: what they have read.
extern "C" __global__ void standing_bytes(const weft::boolean* x, int32_t* y) {
    const int quad = threadIdx.x / 4, q = threadIdx.x % 4;
    weft::Run<weft::boolean, 8> packets[2][2][2];
    for (int k = 0; k < 2; ++k)
        for (int v = 0; v < 2; ++v)
            for (int u = 0; u < 2; ++u) {
                const int column = (8 * k + quad) * 8 + 2 * q + v;
                packets[k][v][u] = weft::fetch_now<8, 8>(x + (column < 80 ? column : 79) * 16 + 8 * u);
            }
    uint32_t pairs[10];
    weft::exchange_columns(packets, pairs);
    for (int h = 0; h < 10; ++h)
        for (int v = 0; v < 2; ++v)
            for (int u = 0; u < 2; ++u) y[(8 * h + 2 * q + v) * 16 + 8 * u + quad] = pairs[h] >> (16 * v + 8 * u) & 1;
}
""",
    lambda generator: ((generator.integers(0, 2, (80, 16)) * generator.integers(1, 256, (80, 16))).astype(np.uint8),),
    lambda x: ((x != 0).astype(np.int32),),
    block=(32, 1, 1),
)

def _parts(generator: np.random.Generator) -> tuple[Array, Array]:
    """Matrices whose products are one term each: all bits of a float of one side, times a power of two of the other one."""
    a, b = np.zeros((64, 16), np.float32), np.zeros((16, 64), np.float32)
    a[:32, :8] = generator.standard_normal((32, 8))
    b[8:, 32:] = generator.standard_normal((8, 32))
    b[generator.integers(0, 8, 32), np.arange(32)] = 2.0 ** generator.integers(-9, 9, 32)
    a[np.arange(32, 64), generator.integers(8, 16, 32)] = 2.0 ** generator.integers(-9, 9, 32)
    return a, b


FLOAT_PARTS = DeviceKernel(
    "float_parts",
    """
#include "weft/parts.cuh"

// c [64, 64] = a [64, 16] b [16, 64]: a comes in packets along its rows' points, b in packets of neighbouring columns.
extern "C" __global__ void __launch_bounds__(128) float_parts(const float* a, const float* b, float* c) {
    __shared__ weft::PartsOfFloats<16, 64, 4> left;
    __shared__ weft::PartsOfFloats<16, 64> right;
    for (int p = threadIdx.x; p < 256; p += 128) {
        float run[4];
        weft::unpack(weft::fetch<4, 4>(a + p * 4), run);
        left.put_points(p % 4 * 4, p / 4, run);
        weft::unpack(weft::fetch<4, 4>(b + p * 4), run);
        right.put_rows(p / 16, p % 16 * 4, run);
    }
    __syncthreads();
    float sums[2][4][4] = {};
    const int row = threadIdx.x / 64 * 32, column = threadIdx.x / 32 % 2 * 32;
    weft::multiply_floats(sums, left, right, row, column, 0);
    if (!weft::all_finite(sums)) return;
    for (int item = 0; item < 32; ++item) {
        const int own_row = row + item / 16 * 16 + item % 4 / 2 * 8 + threadIdx.x % 32 / 4;
        const int own_column = column + item / 4 % 4 * 8 + item % 2 + threadIdx.x % 4 * 2;
        const float own = weft::one_of(sums, item);
        weft::set_one(sums, item, 0.0f);
        c[own_row * 64 + own_column] = own + weft::one_of(sums, item);
    }
}
""",
    _parts,
    lambda a, b: ((a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32),),
    block=(128, 1, 1),
)


KERNELS: tuple[DeviceKernel, ...] = (
    SCALAR_FUNCTIONS,
    INTEGER_FUNCTIONS,
    CONVERSIONS,
    FLOATS8,
    _runs("half_runs", "weft::float16", np.float16),
    _runs("float_runs", "float", np.float32),
    GATHER,
    ROWS_ANYWHERE,
    ROWS_PASSED,
    TURNED,
    TEAM_REDUCE,
    TEAM_SCAN,
    STATES_THROUGH,
    PACKETS_IN_BANKS,
    ROWS_OF_BLOCKS,
    ROWS_DOWN,
    WARP_ROWS,
    NAMED_BARRIERS,
    DEPENDENT,
    MESSAGE,
    MESSAGE_BY_FENCE,
    LAST_BLOCK,
    LOCK,
    EVERY_ATOMIC,
    NARROW_JOINS,
    RELAXATION,
    TURNED_AROUND,
    STAGED_TILES,
    COPY_SIZES,
    PACKETS,
    BARRIER_RING,
    BULK_RUNS,
    ROW_ANYWHERE,
    BULK_AFTER_STORE,
    *(
        _tensor_copy(shape, box)
        for shape, box in (
            ((100,), (32,)),
            ((10, 24), (4, 16)),
            ((3, 6, 20), (2, 4, 8)),
            ((2, 3, 5, 12), (1, 2, 4, 8)),
            ((2, 3, 2, 3, 8), (1, 2, 2, 2, 4)),
        )
    ),
    TENSOR_WINDOWS,
    *map(_swizzle, (32, 64, 128)),
    MULTICAST,
    LOAD_MATRIX,
    STORE_MATRIX,
    *(_mma_half(dtype, k) for dtype, k in product(("float16", "bfloat16"), (8, 16))),
    *(_mma_half("float16", k, half_accumulator=True) for k in (8, 16)),
    *map(_mma_tfloat32, (4, 8)),
    *(_mma_bytes(*types) for types in product(("int8", "uint8"), repeat=2)),
    MMA_DOUBLE,
    *WGMMA,
    CLUSTER_RING,
    CLUSTER_REDUCTION,
    CLUSTER_TOLD,
    CLUSTER_AROUND,
    TWO_WORDS,
    REGISTER_HANDOVER,
    PIPELINED_SCALE,
    WGMMA_PRODUCT,
    HALF_PRODUCT,
    OPERAND_TILES,
    *DOUBLE_TILES.values(),
    BYTE_TILE,
    *(_block_tiles(*flags) for flags in product((False, True), repeat=2)),
    *(_matrix_tiles(*flags) for flags in product((False, True), repeat=3)),
    PAIRS_OF_BYTES,
    STANDING_BYTES,
    FLOAT_PARTS,
)
