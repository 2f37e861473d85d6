#include "weft/dependent.cuh"
#include "weft/memory.cuh"
#include "weft/team.cuh"

extern "C" __global__ void __launch_bounds__(128) cumsum(
    const weft::float16* __restrict__ x,
    weft::float16* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length) {
    weft::await_launch_before();
    weft::allow_launch_after();
    const int64_t r = int64_t(blockIdx.x) * 16 + threadIdx.y;
    if (r >= rows) return;
    const weft::float16* x_r = x + r * x_stride_0;
    weft::float16* y_r = y + r * y_stride_0;
    // a row is one tile of 128 points at the most; a thread has 2 times 8 of them, beside those of its warp
    // runs begin where packets do
    const int32_t l_past = weft::past_packet<8>(y_r);
    const bool x_r_even = weft::past_packet<8>(x_r) == l_past;
    const int32_t l_own = threadIdx.x * 8 - l_past;
    // cumsum.py:22: for l in range(length):
    float total_last = 0.0f;
    weft::Run<weft::float16, 8> x_next[2];
    const int32_t l_first = l_own;
    #pragma unroll
    for (int32_t run = 0; run < 2; ++run) {
        const int32_t l_ahead = l_first + run * 64;
        // cumsum.py:23: total = total + x[r, l]
        if (x_r_even && l_ahead >= 0 && l_ahead + 8 <= length) x_next[run] = weft::fetch<8, 8>(x_r + l_ahead);
    }
    // what no whole packet has, once the others are on their way
    #pragma unroll
    for (int32_t run = 0; run < 2; ++run) {
        const int32_t l_edge = l_first + run * 64;
        if (!(x_r_even && l_edge >= 0 && l_edge + 8 <= length)) x_next[run] = weft::fetch_run<8, 1>(x_r + l_edge, l_edge, 0, length);
    }
    float x_tile[2][8];
    #pragma unroll
    for (int32_t k = 0; k < 2; ++k) {
        weft::unpack(x_next[k], x_tile[k]);
    }
    // what each run does to total
    weft::Sum<float>::Value total_own[2];
    #pragma unroll
    for (int32_t run = 0; run < 2; ++run) {
        const int32_t l_run = l_first + run * 64;
        total_own[run] = weft::Sum<float>::identity();
        #pragma unroll
        for (int32_t v = 0; v < 8; ++v) {
            const int32_t l = l_run + v;
            if (l >= 0 && l < length) {
                // cumsum.py:22: for l in range(length):
                total_own[run] = weft::Sum<float>::combine(total_own[run], x_tile[run][v]);
            }
        }
    }
    weft::Sum<float>::Value total_maps[2];  // what the warp's runs before each do
    const auto total_composed = weft::scan_runs<weft::Sum<float>, 8, false>(total_own, total_maps, nullptr);
    float total_tile = total_last;  // before the tile
    weft::Sum<float>::apply(total_composed.all, total_last);
    float total_warp = total_tile;
    weft::Sum<float>::apply(total_composed.warp, total_warp);
    float total_before[2];  // before each run
    #pragma unroll
    for (int32_t run = 0; run < 2; ++run) {
        total_before[run] = total_warp;
        weft::Sum<float>::apply(total_maps[run], total_before[run]);
    }
    #pragma unroll
    for (int32_t run = 0; run < 2; ++run) {
        const int32_t l_run = l_first + run * 64;
        float total = total_before[run];
        float y_run[8];
        #pragma unroll
        for (int32_t v = 0; v < 8; ++v) {
            const int32_t l = l_run + v;
            if (l >= 0 && l < length) {
                // cumsum.py:23: total = total + x[r, l]
                const float total_1 = total + x_tile[run][v];
                // cumsum.py:24: y[r, l] = total
                y_run[v] = total_1;
                total = total_1;
            }
        }
        weft::store_run<8>(y_r + l_run, l_run, 0, length, y_run);
    }
}
