"""How long a check takes: matrix products of half precision through the simulator, and the whole library through `check`.

The products are of one block of 256 threads on 64 x 64 x 64 tiles: with tensor cores (asynchronous copies, `ldmatrix`,
`mma`), and without, every operand read from shared memory element by element. Texts are compiled beforehand, as they are
from the second check on; the time is that of a launch with every access watched. The library is checked at its examples,
forward and gradients, once with nothing compiled and once again.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

import numpy as np

from bench.harness import ROOT, Options, Row
from weft.runtime.simulator import Simulation, Tensor, simulate

CPU_ONLY = True
_ROUNDS = 5

WITHOUT_TENSOR_CORES = """#include "weft/memory.cuh"
// C = A B^T: a thread has 4 x 4 of C, rows 16 apart, and reads each operand of each product from shared memory.
extern "C" __global__ void __launch_bounds__(256) product(const weft::float16* a, const weft::float16* b, float* c) {
    __shared__ alignas(16) weft::float16 left[64][72], right[64][72];
    const int t = threadIdx.x;
    for (int k = t; k < 512; k += 256) {
        using Chunk = weft::Packet<uint32_t, 4>;
        *reinterpret_cast<Chunk*>(&left[k / 8][k % 8 * 8]) = reinterpret_cast<const Chunk*>(a)[k];
        *reinterpret_cast<Chunk*>(&right[k / 8][k % 8 * 8]) = reinterpret_cast<const Chunk*>(b)[k];
    }
    __syncthreads();
    float sum[4][4] = {};
    for (int k = 0; k < 64; ++k)
        for (int i = 0; i < 4; ++i)
            for (int j = 0; j < 4; ++j)
                sum[i][j] = weft::fma(float(left[t / 16 + 16 * i][k]), float(right[t % 16 + 16 * j][k]), sum[i][j]);
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) c[(t / 16 + 16 * i) * 64 + t % 16 + 16 * j] = sum[i][j];
}
"""

WITH_TENSOR_CORES = """#include "weft/async.cuh"
#include "weft/matrix.cuh"
#include "weft/memory.cuh"
// C = A B^T: eight warps have 16 x 32 of C each. Chunks of 16 bytes are XORed with the number of their row.
extern "C" __global__ void __launch_bounds__(256) product(const weft::float16* a, const weft::float16* b, float* c) {
    __shared__ alignas(128) weft::float16 left[64 * 64], right[64 * 64];
    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    for (int k = t; k < 512; k += 256) {
        const int r = k / 8, place = r * 64 + (k % 8 ^ r % 8) * 8;
        weft::copy_async<16>(&left[place], a + 8 * k);
        weft::copy_async<16>(&right[place], b + 8 * k);
    }
    weft::commit_copies();
    weft::wait_copies<0>();
    __syncthreads();
    float sum[4][4] = {};
    const int row = warp / 2 * 16, column = warp % 2 * 32;
    for (int k = 0; k < 4; ++k) {
        uint32_t operand[4];
        const int r = row + lane % 16;
        weft::load_matrix(operand, left + r * 64 + ((2 * k + lane / 16) ^ r % 8) * 8);
        for (int j = 0; j < 4; j += 2) {
            uint32_t both[4];
            const int q = column + 8 * j + lane % 8 + lane / 16 * 8;
            weft::load_matrix(both, right + q * 64 + ((2 * k + lane / 8 % 2) ^ q % 8) * 8);
            const uint32_t first[2] = {both[0], both[1]}, second[2] = {both[2], both[3]};
            weft::mma<weft::float16>(sum[j], operand, first);
            weft::mma<weft::float16>(sum[j + 1], operand, second);
        }
    }
    for (int j = 0; j < 4; ++j)
        for (int half = 0; half < 2; ++half) {
            const float pair[2] = {sum[j][2 * half], sum[j][2 * half + 1]};
            weft::store<2>(c + (row + lane / 4 + 8 * half) * 64 + column + 8 * j + lane % 4 * 2, pair);
        }
}
"""

PRODUCTS = {
    "64 x 64 x 64 float16, tensor cores": WITH_TENSOR_CORES,
    "64 x 64 x 64 float16, element by element": WITHOUT_TENSOR_CORES,
}


def product(source: str) -> Simulation:
    """One block's product of whole numbers. Raises AssertionError where it is wrong or anything is found."""
    generator = np.random.default_rng(0)
    a, b = (generator.integers(-4, 5, (64, 64)).astype(np.float16) for _ in range(2))
    c = np.empty((64, 64), np.float32)
    arguments = [
        Tensor(name, array.ctypes.data, array.nbytes, array.itemsize, role)
        for name, array, role in (("a", a, "input"), ("b", b, "input"), ("c", c, "output"))
    ]
    made = simulate(
        source, name="product.cu", entry="product", grid=(1, 1, 1), block=(256, 1, 1), arguments=arguments
    )
    assert made.findings == ()
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)
    return made


def run(options: Options) -> list[Row]:
    rows = []
    rounds = 1 if options.quick else _ROUNDS
    for what, source in PRODUCTS.items():
        made = product(source)
        watched = sum(s.requests for s in made.sites)
        seconds = statistics.median(product(source).seconds for _ in range(rounds))
        rows.append(Row("check_speed", {"launch": what, "threads": 256, "requests": watched}, 1e3 * seconds))
    return rows if options.quick else rows + _library()


def _library() -> list[Row]:
    """The checks of all kernels of the library, in two processes one after the other that share a cache."""
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as cache:
        states = {state: _checks(cache) for state in ("nothing compiled", "compiled before")}
    what = "the library's examples, forward and gradients"
    return [
        Row("check_speed", {"check": what, "state": state, "simulator_ms": round(1e3 * simulator)}, 1e3 * whole)
        for state, (whole, simulator) in states.items()
    ]


_CHECKS = """
import time
from weft.kernels import LIBRARY
start, simulator = time.perf_counter(), 0.0
for kernel in LIBRARY.values():
    report = kernel.check(gradients=True)
    assert report.ok, report
    simulator += sum(s.seconds for launch in report.launches for s in launch.simulations)
print(time.perf_counter() - start, simulator)
"""


def _checks(cache: str) -> tuple[float, float]:
    """Seconds of all checks in a process of its own, imports not counted, and those of the simulator's launches in them;
    most of the rest is the plain Python that results are held against.
    """
    environment = {**os.environ, "WEFT_CACHE": cache}
    ran = subprocess.run(
        [sys.executable, "-c", _CHECKS], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    whole, simulator = map(float, ran.stdout.split()[-2:])
    return whole, simulator
