#include "weft/memory.cuh"
#include "weft/dependent.cuh"

extern "C" __global__ void __launch_bounds__(128) rotated(
    const weft::bfloat16* __restrict__ x,
    const weft::bfloat16* __restrict__ cosine,
    const weft::bfloat16* __restrict__ sine,
    weft::bfloat16* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t n,
    const int64_t m,
    const int64_t half) {
    weft::await_launch_before();
    // each thread takes 8 neighbours along j
    const int64_t i = int64_t(blockIdx.x) * 16 + threadIdx.y;
    if (i >= n) return;
    const weft::bfloat16* const x_i = x + i * x_stride_0;
    weft::bfloat16* const y_i = y + i * y_stride_0;
    const int64_t j_run = threadIdx.x * 8;
    if (j_run >= m) return;
    float x_tile[8];
    // kernels_of_maps.py:251: y[i, j] = x[i, j] * cosine[j] + other * sine[j]
    weft::unpack(weft::fetch<8, 8>(x_i + j_run), x_tile);
    float cosine_tile[8];
    weft::unpack(weft::fetch<8, 8>(cosine + j_run), cosine_tile);
    float sine_tile[8];
    weft::unpack(weft::fetch<8, 8>(sine + j_run), sine_tile);
    float x_tile_2[8];
    weft::unpack(weft::fetch_if<8, 8>(j_run < half, x_i + half + j_run), x_tile_2);
    float x_tile_3[8];
    weft::unpack(weft::fetch_if<8, 8>(j_run >= half, x_i + j_run - half), x_tile_3);
    float y_run[8];
    #pragma unroll
    for (int32_t v = 0; v < 8; ++v) {
        const int64_t j = j_run + v;
        y_run[v] = weft::fma(x_tile[v], cosine_tile[v], (j < half ? -x_tile_2[v] : x_tile_3[v]) * sine_tile[v]);
    }
    // kernels_of_maps.py:251: y[i, j] = x[i, j] * cosine[j] + other * sine[j]
    weft::store<8>(y_i + j_run, y_run);
}
