#include "weft/dependent.cuh"
#include "weft/memory.cuh"
#include "weft/team.cuh"

using best_algebra = weft::Extremum<true, false, false, int64_t, float>;

// kernels_of_folds.py:228: def largest_of_all(x):
extern "C" __global__ void __launch_bounds__(256) largest_of_all_parts(
    const weft::bfloat16* __restrict__ x,
    int64_t* __restrict__ at,
    const int64_t x_stride_0,
    const int64_t n,
    const int64_t m,
    best_algebra::Value* best_parts,
    const int64_t parts) {
    weft::await_launch_before();
    weft::allow_launch_after();
    const int64_t part = blockIdx.y;
    best_algebra::Value best_own = best_algebra::identity();
    for (int64_t i = part; i < n; i += parts) {
        #pragma unroll 2
        for (int64_t j_run = threadIdx.x * 8; j_run < m; j_run += 2048) {
            // kernels_of_folds.py:234: if x[i, j] > best:
            float x_run[8];
            weft::unpack(weft::fetch<8, 8>(x + i * x_stride_0 + j_run), x_run);
            #pragma unroll
            for (int32_t v = 0; v < 8; ++v) {
                const int64_t j = j_run + v;
                // kernels_of_folds.py:232: for i in range(n):
                best_own = best_algebra::next(best_own, i * m + j, x_run[v], true);
            }
        }
    }
    __shared__ best_algebra::Value best_scratch[8];
    const best_algebra::Value best_total = weft::reduce<best_algebra, 256>(best_own, best_scratch);
    if (threadIdx.x == 0) best_parts[part] = best_total;
}

// kernels_of_folds.py:228: def largest_of_all(x):
extern "C" __global__ void __launch_bounds__(256) largest_of_all(
    const weft::bfloat16* __restrict__ x,
    int64_t* __restrict__ at,
    const int64_t x_stride_0,
    const int64_t n,
    const int64_t m,
    best_algebra::Value* best_parts,
    const int64_t parts) {
    weft::allow_launch_after();
    weft::await_launch_before();
    best_algebra::Value best_own = best_algebra::identity();
    for (int64_t other = threadIdx.x; other < parts; other += 256) {
        best_own = best_algebra::combine(best_own, best_parts[other]);
    }
    // kernels_of_folds.py:232: for i in range(n):
    float best = -INFINITY;
    int64_t a = int64_t(-1);
    int64_t b = int64_t(-1);
    int64_t c = int64_t(-1);
    __shared__ best_algebra::Value best_scratch[8];
    const auto best_total = weft::reduce<best_algebra, 256>(best_own, best_scratch);
    if (best_algebra::apply(best_total, best)) {
        a = best_total.column / m;
        b = best_total.column % m;
        c = best_total.column;
    }
    if (threadIdx.x == 0) {
        // kernels_of_folds.py:236: at[0] = a
        at[0] = a;
        // kernels_of_folds.py:237: at[1] = b
        at[1] = b;
        // kernels_of_folds.py:238: at[2] = c
        at[2] = c;
    }
}
