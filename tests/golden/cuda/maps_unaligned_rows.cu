#include "weft/memory.cuh"

extern "C" __global__ void __launch_bounds__(256) biased(
    const weft::bfloat16* __restrict__ x,
    const weft::bfloat16* __restrict__ b,
    const weft::bfloat16* __restrict__ r,
    weft::bfloat16* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t r_stride_0,
    const int64_t y_stride_0,
    const int64_t n,
    const int64_t m) {
    // each thread takes 8 neighbours along j
    const int64_t i = int64_t(blockIdx.z) * gridDim.y + blockIdx.y;
    if (i >= n) return;
    const weft::bfloat16* const x_i = x + i * x_stride_0;
    const weft::bfloat16* const r_i = r + i * r_stride_0;
    weft::bfloat16* const y_i = y + i * y_stride_0;
    const int64_t past = weft::past_packet<8>(y_i);
    const int64_t j_run = int64_t(blockIdx.x) * 2048 - past + threadIdx.x * 8;
    if (j_run >= m) return;
    float x_tile[8];
    // kernels_of_maps.py:25: t = x[i, j] + b[j]
    weft::unpack(weft::fetch_run<8, 8>(x_i + j_run, j_run, 0, m), x_tile);
    float b_tile[8];
    weft::unpack(weft::fetch_run<8, 0>(b + j_run, j_run, 0, m), b_tile);
    float r_tile[8];
    // kernels_of_maps.py:26: y[i, j] = torch.tanh(t) + r[i, j]
    weft::unpack(weft::fetch_run<8, 8>(r_i + j_run, j_run, 0, m), r_tile);
    float y_run[8];
    #pragma unroll
    for (int32_t v = 0; v < 8; ++v) {
        // kernels_of_maps.py:25: t = x[i, j] + b[j]
        const float t = x_tile[v] + b_tile[v];
        // kernels_of_maps.py:26: y[i, j] = torch.tanh(t) + r[i, j]
        y_run[v] = weft::tanh(t) + r_tile[v];
    }
    // kernels_of_maps.py:26: y[i, j] = torch.tanh(t) + r[i, j]
    weft::store_run<8>(y_i + j_run, j_run, 0, m, y_run);
}
