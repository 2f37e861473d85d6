#include "weft/memory.cuh"
#include "weft/team.cuh"

// kernels_of_folds.py:39: def column_sums(x):
extern "C" __global__ void __launch_bounds__(256) column_sums_parts(
    const float* __restrict__ x,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t n,
    const int64_t m,
    float* s_parts,
    const int64_t parts) {
    const int64_t part = blockIdx.y;
    // 32 neighbours along j, 8 threads for each; a thread has one
    // and those beyond the end repeat the last
    const int64_t j_tiles = (m + 31) / 32;
    const int64_t j_place = int64_t(blockIdx.x % j_tiles) * 32 + threadIdx.x % 32;
    const bool here = j_place < m;
    const int64_t j = weft::minimum<int64_t>(j_place, m - 1);
    const int64_t rows = m;
    const float* x_j = x + j;
    float s_own = weft::Sum<float>::identity();
    const int64_t lines = here ? n : 0;
    #pragma unroll 8
    for (int64_t i = part * 8 + threadIdx.x / 32; i < lines; i += parts * 8) {
        // kernels_of_folds.py:45: s += x[i, j]
        const float x_value = x_j[i * x_stride_0];
        // kernels_of_folds.py:44: for i in range(n):
        s_own = weft::Sum<float>::combine(s_own, x_value);
    }
    __shared__ float s_scratch[256];
    const float s_total = weft::reduce_down<weft::Sum<float>, 32, 256>(s_own, s_scratch);
    if (here && threadIdx.x < 32) s_parts[part * rows + j] = s_total;
}

// kernels_of_folds.py:39: def column_sums(x):
extern "C" __global__ void __launch_bounds__(256) column_sums(
    const float* __restrict__ x,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t n,
    const int64_t m,
    float* s_parts,
    const int64_t parts) {
    // 32 neighbours along j, 8 threads for each; a thread has one
    // and those beyond the end repeat the last
    const int64_t j_tiles = (m + 31) / 32;
    const int64_t j_place = int64_t(blockIdx.x % j_tiles) * 32 + threadIdx.x % 32;
    const bool here = j_place < m;
    const int64_t j = weft::minimum<int64_t>(j_place, m - 1);
    const int64_t rows = m;
    float* y_j = y + j;
    float s_own = weft::Sum<float>::identity();
    for (int64_t other = threadIdx.x / 32; other < parts; other += 8) {
        s_own = weft::Sum<float>::combine(s_own, s_parts[other * rows + j]);
    }
    __shared__ float s_scratch[256];
    // kernels_of_folds.py:44: for i in range(n):
    const float s = weft::reduce_down<weft::Sum<float>, 32, 256>(s_own, s_scratch);
    if (here && threadIdx.x < 32) {
        // kernels_of_folds.py:46: y[j] = s
        y_j[0] = s;
    }
}
