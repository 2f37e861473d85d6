#include "weft/dependent.cuh"
#include "weft/memory.cuh"
#include "weft/team.cuh"

extern "C" __global__ void __launch_bounds__(64) cumsum(
    const float* __restrict__ x,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length) {
    weft::await_launch_before();
    weft::allow_launch_after();
    const int64_t r = int64_t(blockIdx.x);
    const float* x_r = x + r * x_stride_0;
    float* y_r = y + r * y_stride_0;
    // a row is one tile of 1024 points at the most; a thread has 4 times 4 of them, beside those of its warp
    const int32_t l_own = threadIdx.x / 32 * 512 + threadIdx.x % 32 * 4;
    // cumsum.py:22: for l in range(length):
    float total_last = 0.0f;
    __shared__ weft::Sum<float>::Value total_scratch[1][2];
    weft::Run<float, 4> x_next[4];
    const int32_t l_first = l_own;
    #pragma unroll
    for (int32_t run = 0; run < 4; ++run) {
        const int32_t l_ahead = l_first + run * 128;
        // cumsum.py:23: total = total + x[r, l]
        if (l_ahead < length) x_next[run] = weft::fetch<4, 4>(x_r + l_ahead);
    }
    float x_tile[4][4];
    #pragma unroll
    for (int32_t k = 0; k < 4; ++k) {
        weft::unpack(x_next[k], x_tile[k]);
    }
    // what each run does to total
    weft::Sum<float>::Value total_own[4];
    #pragma unroll
    for (int32_t run = 0; run < 4; ++run) {
        const int32_t l_run = l_first + run * 128;
        total_own[run] = weft::Sum<float>::identity();
        if (l_run < length) {
            #pragma unroll
            for (int32_t v = 0; v < 4; ++v) {
                // cumsum.py:22: for l in range(length):
                total_own[run] = weft::Sum<float>::combine(total_own[run], x_tile[run][v]);
            }
        }
    }
    weft::Sum<float>::Value total_maps[4];  // what the warp's runs before each do
    const auto total_composed = weft::scan_runs<weft::Sum<float>, 64, false>(total_own, total_maps, total_scratch[0]);
    float total_tile = total_last;  // before the tile
    weft::Sum<float>::apply(total_composed.all, total_last);
    float total_warp = total_tile;
    weft::Sum<float>::apply(total_composed.warp, total_warp);
    float total_before[4];  // before each run
    #pragma unroll
    for (int32_t run = 0; run < 4; ++run) {
        total_before[run] = total_warp;
        weft::Sum<float>::apply(total_maps[run], total_before[run]);
    }
    #pragma unroll
    for (int32_t run = 0; run < 4; ++run) {
        const int32_t l_run = l_first + run * 128;
        float total = total_before[run];
        if (l_run < length) {
            float y_run[4];
            #pragma unroll
            for (int32_t v = 0; v < 4; ++v) {
                // cumsum.py:23: total = total + x[r, l]
                const float total_1 = total + x_tile[run][v];
                // cumsum.py:24: y[r, l] = total
                y_run[v] = total_1;
                total = total_1;
            }
            weft::store<4>(y_r + l_run, y_run);
        }
    }
}
