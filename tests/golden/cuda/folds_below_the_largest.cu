#include "weft/dependent.cuh"
#include "weft/memory.cuh"
#include "weft/team.cuh"

using best_algebra = weft::Extremum<true, false, false, int32_t, float>;

// kernels_of_folds.py:286: def below_the_largest(x):
extern "C" __global__ void __launch_bounds__(128) below_the_largest(
    const weft::bfloat16* __restrict__ x,
    weft::bfloat16* __restrict__ t,
    int64_t* __restrict__ t_1,
    const int64_t x_stride_0,
    const int64_t t_stride_0,
    const int64_t n,
    const int64_t m) {
    weft::await_launch_before();
    // a row a block of 128 threads; each thread holds 8 neighbouring points, 4 times
    // what the warps of a row tell each other; two of each, used in turn, so that one barrier does
    __shared__ best_algebra::Value best_algebra_values[2][4];
    int32_t turn = 0;
    const int64_t i = blockIdx.x;
    const weft::bfloat16* x_i = x + i * x_stride_0;
    weft::Run<weft::bfloat16, 8> x_tile[4];
    #pragma unroll
    for (int32_t chunk = 0; chunk < 4; ++chunk) {
        const int32_t j_run = chunk * 1024 + threadIdx.x * 8;
        if (j_run < m) {
            // kernels_of_folds.py:293: if x[i, j] > best:
            x_tile[chunk] = weft::fetch<8, 8>(x_i + j_run);
        }
    }
    weft::bfloat16* t_i = t + i * t_stride_0;
    int64_t* t_1_i = t_1 + i;
    best_algebra::Value best_own = best_algebra::identity();
    #pragma unroll
    for (int32_t chunk = 0; chunk < 4; ++chunk) {
        const int32_t j_run = chunk * 1024 + threadIdx.x * 8;
        if (j_run < m) {
            // kernels_of_folds.py:293: if x[i, j] > best:
            float x_run[8];
            weft::unpack(x_tile[chunk], x_run);
            #pragma unroll
            for (int32_t v = 0; v < 8; ++v) {
                const int64_t j = j_run + v;
                // kernels_of_folds.py:292: for j in range(m):
                best_own = best_algebra::next(best_own, j, x_run[v], true);
            }
        }
    }
    // kernels_of_folds.py:292: for j in range(m):
    float best = -INFINITY;
    int64_t k_2 = int64_t(0);
    const auto best_total = weft::reduce<best_algebra, 128>(best_own, best_algebra_values[turn ^= 1]);
    if (best_algebra::apply(best_total, best)) k_2 = best_total.column;
    #pragma unroll
    for (int32_t chunk = 0; chunk < 4; ++chunk) {
        const int32_t j_run = chunk * 1024 + threadIdx.x * 8;
        if (j_run < m) {
            // kernels_of_folds.py:293: if x[i, j] > best:
            float x_run_2[8];
            weft::unpack(x_tile[chunk], x_run_2);
            float t_run[8];
            #pragma unroll
            for (int32_t v = 0; v < 8; ++v) {
                const int64_t j = j_run + v;
                // kernels_of_folds.py:296: y[i, j] = x[i, j] - best if j != k else 1.0
                t_run[v] = j != k_2 ? x_run_2[v] - best : 1.0f;
            }
            weft::store<8>(t_i + j_run, t_run);
        }
    }
    if (threadIdx.x == 0) {
        // kernels_of_folds.py:297: at[i] = k
        t_1_i[0] = k_2;
    }
}
