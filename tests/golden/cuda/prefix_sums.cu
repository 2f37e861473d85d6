#include "weft/dependent.cuh"
#include "weft/memory.cuh"
#include "weft/team.cuh"

extern "C" __global__ void __launch_bounds__(8) prefix_sums(
    float* x,
    const int64_t x_size_0) {
    weft::await_launch_before();
    weft::allow_launch_after();
    // a row is one tile of 128 points at the most; a thread has 4 times 4 of them, beside those of its warp
    const int32_t i_own = threadIdx.x * 4;
    // test_emit_cuda.py:59: for i in range(x.shape[0]):
    float h_last = 0.0f;
    weft::Run<float, 4> x_next[4];
    const int32_t i_first = i_own;
    #pragma unroll
    for (int32_t run = 0; run < 4; ++run) {
        const int32_t i_ahead = i_first + run * 32;
        // test_emit_cuda.py:60: h = h + x[i]
        if (i_ahead < x_size_0) x_next[run] = weft::fetch<4, 4>(x + i_ahead);
    }
    float x_tile[4][4];
    #pragma unroll
    for (int32_t k = 0; k < 4; ++k) {
        weft::unpack(x_next[k], x_tile[k]);
    }
    // what each run does to h
    weft::Sum<float>::Value h_own[4];
    #pragma unroll
    for (int32_t run = 0; run < 4; ++run) {
        const int32_t i_run = i_first + run * 32;
        h_own[run] = weft::Sum<float>::identity();
        if (i_run < x_size_0) {
            #pragma unroll
            for (int32_t v = 0; v < 4; ++v) {
                // test_emit_cuda.py:59: for i in range(x.shape[0]):
                h_own[run] = weft::Sum<float>::combine(h_own[run], x_tile[run][v]);
            }
        }
    }
    weft::Sum<float>::Value h_maps[4];  // what the warp's runs before each do
    const auto h_composed = weft::scan_runs<weft::Sum<float>, 8, false>(h_own, h_maps, nullptr);
    float h_tile = h_last;  // before the tile
    weft::Sum<float>::apply(h_composed.all, h_last);
    float h_warp = h_tile;
    weft::Sum<float>::apply(h_composed.warp, h_warp);
    float h_before[4];  // before each run
    #pragma unroll
    for (int32_t run = 0; run < 4; ++run) {
        h_before[run] = h_warp;
        weft::Sum<float>::apply(h_maps[run], h_before[run]);
    }
    #pragma unroll
    for (int32_t run = 0; run < 4; ++run) {
        const int32_t i_run = i_first + run * 32;
        float h = h_before[run];
        if (i_run < x_size_0) {
            float x_run[4];
            #pragma unroll
            for (int32_t v = 0; v < 4; ++v) {
                // test_emit_cuda.py:60: h = h + x[i]
                const float h_1 = h + x_tile[run][v];
                // test_emit_cuda.py:61: x[i] = h
                x_run[v] = h_1;
                h = h_1;
            }
            weft::store<4>(x + i_run, x_run);
        }
    }
}
