#include "weft/memory.cuh"

extern "C" __global__ void __launch_bounds__(256) gelu_bias_residual(
    const float* __restrict__ x,
    const float* __restrict__ bias,
    const float* __restrict__ residual,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t residual_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length) {
    // each thread takes 4 neighbours, 2 times along l
    const int64_t r = int64_t(blockIdx.x) * 2 + threadIdx.y;
    if (r >= rows) return;
    const float* const x_r = x + r * x_stride_0;
    const float* const residual_r = residual + r * residual_stride_0;
    float* const y_r = y + r * y_stride_0;
    float x_tile[2][4];
    float bias_tile[2][4];
    float residual_tile[2][4];
    #pragma unroll
    for (int32_t turn = 0; turn < 2; ++turn) {
        const int64_t l_run = turn * 512 + threadIdx.x * 4;
        if (l_run >= length) break;
        // gelu_bias_residual.py:24: y[r, l] = F.gelu(x[r, l] + bias[l]) + residual[r, l]
        weft::unpack(weft::fetch<4, 4>(x_r + l_run), x_tile[turn]);
        weft::unpack(weft::fetch<4, 4>(bias + l_run), bias_tile[turn]);
        weft::unpack(weft::fetch<4, 4>(residual_r + l_run), residual_tile[turn]);
    }
    #pragma unroll
    for (int32_t turn = 0; turn < 2; ++turn) {
        const int64_t l_run = turn * 512 + threadIdx.x * 4;
        if (l_run >= length) break;
        float y_run[4];
        #pragma unroll
        for (int32_t v = 0; v < 4; ++v) {
            // gelu_bias_residual.py:24: y[r, l] = F.gelu(x[r, l] + bias[l]) + residual[r, l]
            const float x_1 = x_tile[turn][v] + bias_tile[turn][v];
            y_run[v] = weft::gelu(x_1) + residual_tile[turn][v];
        }
        // gelu_bias_residual.py:24: y[r, l] = F.gelu(x[r, l] + bias[l]) + residual[r, l]
        weft::store<4>(y_r + l_run, y_run);
    }
}
