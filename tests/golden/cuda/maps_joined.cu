#include "weft/memory.cuh"
#include "weft/dependent.cuh"

extern "C" __global__ void __launch_bounds__(128) joined(
    const weft::bfloat16* __restrict__ a,
    const weft::bfloat16* __restrict__ b,
    const weft::bfloat16* __restrict__ c,
    weft::bfloat16* __restrict__ y,
    const int64_t a_stride_0,
    const int64_t b_stride_0,
    const int64_t c_stride_0,
    const int64_t y_stride_0,
    const int64_t n,
    const int64_t m,
    const int64_t b_size_0,
    const int64_t k,
    const int64_t c_size_0,
    const int64_t c_size_1) {
    weft::await_launch_before();
    // each thread takes 8 neighbours along j
    const int64_t i_count = weft::maximum<int64_t>(c_size_0 + n, 0);
    const int64_t i = int64_t(blockIdx.x) * 8 + threadIdx.y;
    if (i >= i_count) return;
    const weft::bfloat16* const c_i = c + (i - n) * c_stride_0;
    const weft::bfloat16* const a_i = a + i * a_stride_0;
    const weft::bfloat16* const b_i = b + i * b_stride_0;
    weft::bfloat16* const y_i = y + i * y_stride_0;
    const int64_t j_run = threadIdx.x * 8;
    if (j_run >= k + m) return;
    float c_tile[8];
    // kernels_of_maps.py:264: y[i, j] = c[i - n, j]
    weft::unpack(weft::fetch_if<8, 8>(i >= n, c_i + j_run), c_tile);
    float a_tile[8];
    weft::unpack(weft::fetch_if<8, 8>(i < n && j_run < m, a_i + j_run), a_tile);
    float b_tile[8];
    weft::unpack(weft::fetch_if<8, 8>(i < n && j_run >= m, b_i + j_run - m), b_tile);
    float y_run[8];
    #pragma unroll
    for (int32_t v = 0; v < 8; ++v) {
        const int64_t j = j_run + v;
        y_run[v] = i >= n ? c_tile[v] : j < m ? a_tile[v] : b_tile[v];
    }
    // kernels_of_maps.py:264: y[i, j] = c[i - n, j]
    weft::store<8>(y_i + j_run, y_run);
}
