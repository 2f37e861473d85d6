#include "weft/dependent.cuh"
#include "weft/memory.cuh"
#include "weft/team.cuh"

// kernels_of_folds.py:324: def mean_taken_away(x):
extern "C" __global__ void __launch_bounds__(256) mean_taken_away_parts(
    const float* __restrict__ x,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t n,
    const int64_t m,
    float* s_parts,
    const int64_t parts) {
    weft::await_launch_before();
    weft::allow_launch_after();
    const int64_t part = blockIdx.y;
    float s_own = weft::Sum<float>::identity();
    #pragma unroll 8
    for (int64_t i_j = part * 256 + threadIdx.x; i_j < n * m; i_j += parts * 256) {
        // kernels_of_folds.py:330: s += x[i, j]
        const float x_value = x[i_j];
        // kernels_of_folds.py:328: for i in range(n):
        s_own = weft::Sum<float>::combine(s_own, x_value);
    }
    __shared__ float s_scratch[8];
    const float s_total = weft::reduce<weft::Sum<float>, 256>(s_own, s_scratch);
    if (threadIdx.x == 0) s_parts[part] = s_total;
}

// kernels_of_folds.py:324: def mean_taken_away(x):
extern "C" __global__ void __launch_bounds__(256) mean_taken_away(
    const float* __restrict__ x,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t n,
    const int64_t m,
    float* s_parts,
    const int64_t parts) {
    weft::allow_launch_after();
    weft::await_launch_before();
    const int64_t part = blockIdx.y;
    float s_own = weft::Sum<float>::identity();
    for (int64_t other = threadIdx.x; other < parts; other += 256) {
        s_own = weft::Sum<float>::combine(s_own, s_parts[other]);
    }
    __shared__ float s_scratch[8];
    // kernels_of_folds.py:328: for i in range(n):
    const float s = weft::reduce<weft::Sum<float>, 256>(s_own, s_scratch);
    // kernels_of_folds.py:331: mean = s / (n * m)
    const float mean = s / float(n * m);
    #pragma unroll 8
    for (int64_t i_j = part * 256 + threadIdx.x; i_j < n * m; i_j += parts * 256) {
        // kernels_of_folds.py:330: s += x[i, j]
        const float x_value = x[i_j];
        // kernels_of_folds.py:334: y[i, j] = x[i, j] - mean
        y[i_j] = x_value - mean;
    }
}
