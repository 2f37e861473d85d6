#include "weft/memory.cuh"
#include "weft/dependent.cuh"

extern "C" __global__ void __launch_bounds__(256) biased(
    const weft::bfloat16* __restrict__ x,
    const weft::bfloat16* __restrict__ b,
    const weft::bfloat16* __restrict__ r,
    weft::bfloat16* __restrict__ y,
    const int64_t n,
    const int64_t m) {
    weft::await_launch_before();
    // each thread takes 8 neighbours along (i, j), which are counted as one
    const int64_t i_j_count = n * m;
    const int64_t i_j_run = int64_t(blockIdx.x) * 2048 + threadIdx.x * 8;
    if (i_j_run >= i_j_count) return;
    const int64_t i = uint32_t(i_j_run) / uint32_t(m);
    const int64_t j = i_j_run - i * m;
    float x_tile[8];
    // kernels_of_maps.py:25: t = x[i, j] + b[j]
    weft::unpack(weft::fetch<8, 8>(x + i_j_run), x_tile);
    float b_tile[8];
    weft::unpack(weft::fetch_over<8, 1>(b + j, b + (j - m), j, m, i_j_count - i_j_run), b_tile);
    float r_tile[8];
    // kernels_of_maps.py:26: y[i, j] = torch.tanh(t) + r[i, j]
    weft::unpack(weft::fetch<8, 8>(r + i_j_run), r_tile);
    float y_run[8];
    #pragma unroll
    for (int32_t v = 0; v < 8; ++v) {
        // kernels_of_maps.py:25: t = x[i, j] + b[j]
        const float t = x_tile[v] + b_tile[v];
        // kernels_of_maps.py:26: y[i, j] = torch.tanh(t) + r[i, j]
        y_run[v] = weft::tanh(t) + r_tile[v];
    }
    // kernels_of_maps.py:26: y[i, j] = torch.tanh(t) + r[i, j]
    weft::store<8>(y + i_j_run, y_run);
}
