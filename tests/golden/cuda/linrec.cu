#include "weft/dependent.cuh"
#include "weft/memory.cuh"
#include "weft/team.cuh"

extern "C" __global__ void __launch_bounds__(64) linrec(
    const float* __restrict__ x,
    const float* __restrict__ c,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t c_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length) {
    weft::await_launch_before();
    weft::allow_launch_after();
    const int64_t r = int64_t(blockIdx.x);
    const float* x_r = x + r * x_stride_0;
    const float* c_r = c + r * c_stride_0;
    float* y_r = y + r * y_stride_0;
    // a row is one tile of 1024 points at the most; a thread has 4 times 4 of them, beside those of its warp
    const int32_t l_own = threadIdx.x / 32 * 512 + threadIdx.x % 32 * 4;
    // linrec.py:22: for l in range(length):
    float h_last = 0.0f;
    __shared__ weft::Affine<float>::Value h_scratch[1][2];
    weft::Run<float, 4> c_next[4];
    weft::Run<float, 4> x_next[4];
    const int32_t l_first = l_own;
    #pragma unroll
    for (int32_t run = 0; run < 4; ++run) {
        const int32_t l_ahead = l_first + run * 128;
        // linrec.py:23: h = c[r, l] * h + x[r, l]
        if (l_ahead < length) c_next[run] = weft::fetch<4, 4>(c_r + l_ahead);
        if (l_ahead < length) x_next[run] = weft::fetch<4, 4>(x_r + l_ahead);
    }
    float c_tile[4][4];
    float x_tile[4][4];
    #pragma unroll
    for (int32_t k = 0; k < 4; ++k) {
        weft::unpack(c_next[k], c_tile[k]);
        weft::unpack(x_next[k], x_tile[k]);
    }
    // what each run does to h
    weft::Affine<float>::Value h_own[4];
    #pragma unroll
    for (int32_t run = 0; run < 4; ++run) {
        const int32_t l_run = l_first + run * 128;
        h_own[run] = weft::Affine<float>::identity();
        if (l_run < length) {
            #pragma unroll
            for (int32_t v = 0; v < 4; ++v) {
                // linrec.py:22: for l in range(length):
                h_own[run] = weft::Affine<float>::combine(h_own[run], {c_tile[run][v], x_tile[run][v]});
            }
        }
    }
    weft::Affine<float>::Value h_maps[4];  // what the warp's runs before each do
    const auto h_composed = weft::scan_runs<weft::Affine<float>, 64, false>(h_own, h_maps, h_scratch[0]);
    float h_tile = h_last;  // before the tile
    weft::Affine<float>::apply(h_composed.all, h_last);
    float h_warp = h_tile;
    weft::Affine<float>::apply(h_composed.warp, h_warp);
    bool h_finite = weft::is_finite(h_last);
    float h_before[4];  // before each run
    #pragma unroll
    for (int32_t run = 0; run < 4; ++run) {
        h_before[run] = h_warp;
        weft::Affine<float>::apply(h_maps[run], h_before[run]);
        h_finite = h_finite && weft::is_finite(h_before[run]);
    }
    // what overflows when points are composed is computed in their order
    if (!weft::all_of_team<64>(h_finite || weft::is_nan(h_tile))) {
        h_last = h_tile;
        const auto change = [&](int32_t run, float& h) {
            const int32_t l_run = l_first + run * 128;
            if (l_run < length) {
                #pragma unroll
                for (int32_t v = 0; v < 4; ++v) {
                    // linrec.py:23: h = c[r, l] * h + x[r, l]
                    const float h_1 = weft::fma(c_tile[run][v], h, x_tile[run][v]);
                    h = h_1;
                }
            }
        };
        const auto keep = [&](int32_t run, float& h) { h_before[run] = h; };
        weft::runs_in_turn<64, false, 4>(change, keep, h_last);
    }
    #pragma unroll
    for (int32_t run = 0; run < 4; ++run) {
        const int32_t l_run = l_first + run * 128;
        float h = h_before[run];
        if (l_run < length) {
            float y_run[4];
            #pragma unroll
            for (int32_t v = 0; v < 4; ++v) {
                // linrec.py:23: h = c[r, l] * h + x[r, l]
                const float h_1 = weft::fma(c_tile[run][v], h, x_tile[run][v]);
                // linrec.py:24: y[r, l] = h
                y_run[v] = h_1;
                h = h_1;
            }
            weft::store<4>(y_r + l_run, y_run);
        }
    }
}
