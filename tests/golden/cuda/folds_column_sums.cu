#include "weft/memory.cuh"
#include "weft/team.cuh"

extern "C" __global__ void __launch_bounds__(256) column_sums_parts(
    const float* __restrict__ x,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t n,
    const int64_t m,
    float* s_parts,
    const int64_t parts) {
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
    #pragma unroll 4
    for (int64_t i = part * 16 + threadIdx.x / 16; i < lines; i += parts * 16) {
        // kernels_of_folds.py:45: s += x[i, j]
        float x_run[4];
        weft::unpack(weft::fetch<4, 4>(x + i * x_stride_0 + j_first), x_run);
        #pragma unroll
        for (int32_t v = 0; v < 4; ++v) {
            // kernels_of_folds.py:44: for i in range(n):
            s_own[v] = weft::Sum<float>::combine(s_own[v], x_run[v]);
        }
    }
    __shared__ float s_scratch[4][128];
    #pragma unroll
    for (int32_t v = 0; v < 4; ++v) {
        const float s_total = weft::reduce_down<weft::Sum<float>, 16, 256>(s_own[v], s_scratch[v]);
        if (here && threadIdx.x < 16) s_parts[part * rows + j_first + v] = s_total;
    }
}

extern "C" __global__ void __launch_bounds__(256) column_sums(
    const float* __restrict__ x,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t n,
    const int64_t m,
    float* s_parts,
    const int64_t parts) {
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
        s[v] = 0.0f + weft::reduce_down<weft::Sum<float>, 16, 256>(s_own[v], s_scratch[v]);
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
