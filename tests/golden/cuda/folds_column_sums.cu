#include "weft/dependent.cuh"
#include "weft/memory.cuh"
#include "weft/team.cuh"

// kernels_of_folds.py:39: def column_sums(x):
extern "C" __global__ void __launch_bounds__(256, 1) column_sums_parts(
    const float* __restrict__ x,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t n,
    const int64_t m,
    float* s_parts,
    const int64_t parts) {
    weft::await_launch_before();
    weft::allow_launch_after();
    const int64_t part = blockIdx.y;
    // 64 neighbours along j, 16 threads for each; a thread has 4 of them
    // and those beyond the end repeat the last
    const int64_t j_tiles = (m + 63) / 64;
    const int64_t j_place = int64_t(blockIdx.x % j_tiles) * 64 + threadIdx.x % 16 * 4;
    const bool here = j_place < m;
    const int64_t j_first = weft::minimum<int64_t>(j_place, m - 4);
    const int64_t rows = m;
    float s_own[4];
    #pragma unroll
    for (int32_t v = 0; v < 4; ++v) {
        s_own[v] = weft::Sum<float>::identity();
    }
    const int64_t lines = here ? n : 0;
    const auto point = [&](const int64_t i) {
        // kernels_of_folds.py:45: s += x[i, j]
        float x_run[4];
        weft::unpack(weft::fetch<4, 4>(x + i * x_stride_0 + j_first), x_run);
        #pragma unroll
        for (int32_t v = 0; v < 4; ++v) {
            // kernels_of_folds.py:44: for i in range(n):
            s_own[v] = weft::Sum<float>::combine(s_own[v], x_run[v]);
        }
    };
    int64_t begin = part * 16 + threadIdx.x / 16;
    for (; begin + 3 * (parts * 16) < lines; begin += 4 * (parts * 16)) {
        #pragma unroll
        for (int32_t k_2 = 0; k_2 < 4; ++k_2) point(begin + k_2 * (parts * 16));
    }
    #pragma unroll 1
    for (; begin < lines; begin += parts * 16) point(begin);
    __shared__ float s_scratch[4][128];
    #pragma unroll
    for (int32_t v = 0; v < 4; ++v) {
        const float s_total = weft::reduce_down<weft::Sum<float>, 16, 256>(s_own[v], s_scratch[v]);
        if (here && threadIdx.x < 16) s_parts[part * rows + j_first + v] = s_total;
    }
}

// kernels_of_folds.py:39: def column_sums(x):
extern "C" __global__ void __launch_bounds__(256, 1) column_sums(
    const float* __restrict__ x,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t n,
    const int64_t m,
    float* s_parts,
    const int64_t parts) {
    weft::allow_launch_after();
    weft::await_launch_before();
    // 64 neighbours along j, 16 threads for each; a thread has 4 of them
    // and those beyond the end repeat the last
    const int64_t j_tiles = (m + 63) / 64;
    const int64_t j_place = int64_t(blockIdx.x % j_tiles) * 64 + threadIdx.x % 16 * 4;
    const bool here = j_place < m;
    const int64_t j_first = weft::minimum<int64_t>(j_place, m - 4);
    const int64_t rows = m;
    float s_own[4];
    #pragma unroll
    for (int32_t v = 0; v < 4; ++v) {
        s_own[v] = weft::Sum<float>::identity();
    }
    for (int64_t other = threadIdx.x / 16; other < parts; other += 16) {
        #pragma unroll
        for (int32_t v = 0; v < 4; ++v) {
            s_own[v] = weft::Sum<float>::combine(s_own[v], s_parts[other * rows + j_first + v]);
        }
    }
    __shared__ float s_scratch[4][128];
    // kernels_of_folds.py:44: for i in range(n):
    float s[4];
    #pragma unroll
    for (int32_t v = 0; v < 4; ++v) {
        s[v] = weft::reduce_down<weft::Sum<float>, 16, 256>(s_own[v], s_scratch[v]);
    }
    if (here && threadIdx.x < 16) {
        #pragma unroll
        for (int32_t v = 0; v < 4; ++v) {
            const int64_t j = j_first + v;
            // kernels_of_folds.py:46: y[j] = s
            y[j] = s[v];
        }
    }
}
