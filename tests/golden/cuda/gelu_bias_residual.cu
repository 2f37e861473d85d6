#include "weft/memory.cuh"
#include "weft/dependent.cuh"

extern "C" __global__ void __launch_bounds__(128) gelu_bias_residual(
    const float* __restrict__ x,
    const float* __restrict__ bias,
    const float* __restrict__ residual,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t residual_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length) {
    weft::await_launch_before();
    weft::allow_launch_after();
    // each thread takes 4 neighbours along l
    const int64_t r = int64_t(blockIdx.z) * gridDim.y + blockIdx.y;
    if (r >= rows) return;
    const float* const x_r = x + r * x_stride_0;
    const float* const residual_r = residual + r * residual_stride_0;
    float* const y_r = y + r * y_stride_0;
    const int64_t l_run = int64_t(blockIdx.x) * 512 + threadIdx.x * 4;
    if (l_run >= length) return;
    float x_tile[4];
    // gelu_bias_residual.py:24: y[r, l] = F.gelu(x[r, l] + bias[l]) + residual[r, l]
    weft::unpack(weft::fetch<4, 4>(x_r + l_run), x_tile);
    float bias_tile[4];
    weft::unpack(weft::fetch<4, 4>(bias + l_run), bias_tile);
    float residual_tile[4];
    weft::unpack(weft::fetch<4, 4>(residual_r + l_run), residual_tile);
    float y_run[4];
    #pragma unroll
    for (int32_t v = 0; v < 4; ++v) {
        const float x_1 = x_tile[v] + bias_tile[v];
        y_run[v] = weft::gelu(x_1) + residual_tile[v];
    }
    // gelu_bias_residual.py:24: y[r, l] = F.gelu(x[r, l] + bias[l]) + residual[r, l]
    weft::store<4>(y_r + l_run, y_run);
}
