#include "weft/memory.cuh"
#include "weft/dependent.cuh"

extern "C" __global__ void __launch_bounds__(256) up_to_lengths(
    const float* __restrict__ x,
    const int64_t* __restrict__ lengths,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t n,
    const int64_t m) {
    weft::await_launch_before();
    // each thread takes 4 neighbours, 2 times along j
    const int64_t i = int64_t(blockIdx.z) * gridDim.y + blockIdx.y;
    if (i >= n) return;
    // kernels_of_maps.py:152: for j in range(lengths[i]):
    const int64_t lengths_value = lengths[i];
    if (lengths_value <= 0) return;
    // kernels_of_maps.py:153: y[i, j] = x[i, j] * 2
    if (lengths_value > m) __trap();  // a subscript leaves x
    const float* const x_i = x + i * x_stride_0;
    float* const y_i = y + i * y_stride_0;
    for (int64_t j_piece = int64_t(blockIdx.x) * 2048; j_piece < lengths_value; j_piece += int64_t(gridDim.x) * 2048) {
        float x_tile[2][4];
        #pragma unroll
        for (int32_t turn = 0; turn < 2; ++turn) {
            const int64_t j_run = j_piece + turn * 1024 + threadIdx.x * 4;
            if (j_run >= lengths_value) break;
            weft::unpack(weft::fetch_run<4, 4>(x_i + j_run, j_run, 0, lengths_value), x_tile[turn]);
        }
        #pragma unroll
        for (int32_t turn = 0; turn < 2; ++turn) {
            const int64_t j_run = j_piece + turn * 1024 + threadIdx.x * 4;
            if (j_run >= lengths_value) break;
            float y_run[4];
            #pragma unroll
            for (int32_t v = 0; v < 4; ++v) {
                // kernels_of_maps.py:153: y[i, j] = x[i, j] * 2
                y_run[v] = x_tile[turn][v] * 2.0f;
            }
            // kernels_of_maps.py:153: y[i, j] = x[i, j] * 2
            weft::store_run<4>(y_i + j_run, j_run, 0, lengths_value, y_run);
        }
    }
}
