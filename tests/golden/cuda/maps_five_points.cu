#include "weft/memory.cuh"
#include "weft/dependent.cuh"

extern "C" __global__ void __launch_bounds__(256) five_points(
    const float* __restrict__ x,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t n,
    const int64_t m) {
    weft::await_launch_before();
    // each thread takes an element, 8 times along j
    const int64_t i_count = weft::maximum<int64_t>(n - 2, 0);
    const int64_t row = int64_t(blockIdx.z) * gridDim.y + blockIdx.y;
    if (row >= i_count) return;
    const int64_t i = 1 + row;
    const float* const x_i = x + (i - 1) * x_stride_0;
    const float* const x_i_2 = x + (i + 1) * x_stride_0;
    const float* const x_i_3 = x + i * x_stride_0;
    float* const y_i = y + i * y_stride_0;
    float x_tile[8];
    float x_tile_2[8];
    float x_tile_3[8];
    float x_tile_4[8];
    float x_tile_5[8];
    #pragma unroll
    for (int32_t turn = 0; turn < 8; ++turn) {
        const int64_t j = 1 + int64_t(blockIdx.x) * 2048 + turn * 256 + threadIdx.x;
        if (j >= m - 1) break;
        // kernels_of_maps.py:77: y[i, j] = 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]) - x[i, j]
        x_tile[turn] = x_i[j];
        x_tile_2[turn] = x_i_2[j];
        x_tile_3[turn] = x_i_3[j - 1];
        x_tile_4[turn] = x_i_3[j + 1];
        x_tile_5[turn] = x_i_3[j];
    }
    #pragma unroll
    for (int32_t turn = 0; turn < 8; ++turn) {
        const int64_t j = 1 + int64_t(blockIdx.x) * 2048 + turn * 256 + threadIdx.x;
        if (j >= m - 1) break;
        // kernels_of_maps.py:77: y[i, j] = 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]) - x[i, j]
        y_i[j] = weft::fma(0.25f, x_tile[turn] + x_tile_2[turn] + x_tile_3[turn] + x_tile_4[turn], -x_tile_5[turn]);
    }
}
