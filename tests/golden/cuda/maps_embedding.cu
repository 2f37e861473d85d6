#include "weft/memory.cuh"
#include "weft/dependent.cuh"

extern "C" __global__ void __launch_bounds__(128) embedding(
    const weft::float16* __restrict__ w,
    const int64_t* __restrict__ places,
    weft::float16* __restrict__ y,
    const int64_t w_stride_0,
    const int64_t y_stride_0,
    const int64_t w_size_0,
    const int64_t w_size_1,
    const int64_t places_size_0) {
    weft::await_launch_before();
    // each thread takes 8 neighbours, 2 times along d
    const int64_t i = int64_t(blockIdx.x) * 2 + threadIdx.y;
    if (i >= places_size_0) return;
    // kernels_of_maps.py:56: y[i, d] = w[places[i], d]
    const int64_t places_value = places[i];
    const int64_t w_at_0 = places_value < 0 ? weft::wrapping_add(places_value, w_size_0) : places_value;
    if (w_at_0 < 0 || w_at_0 >= w_size_0) __trap();  // a subscript leaves w
    const weft::float16* const w_i = w + w_at_0 * w_stride_0;
    weft::float16* const y_i = y + i * y_stride_0;
    weft::Run<weft::float16, 8> w_tile[2];
    #pragma unroll
    for (int32_t turn = 0; turn < 2; ++turn) {
        const int64_t d_run = turn * 512 + threadIdx.x * 8;
        if (d_run >= w_size_1) break;
        w_tile[turn] = weft::fetch<8, 8>(w_i + d_run);
    }
    #pragma unroll
    for (int32_t turn = 0; turn < 2; ++turn) {
        const int64_t d_run = turn * 512 + threadIdx.x * 8;
        if (d_run >= w_size_1) break;
        // kernels_of_maps.py:56: y[i, d] = w[places[i], d]
        weft::store<8>(y_i + d_run, w_tile[turn]);
    }
}
