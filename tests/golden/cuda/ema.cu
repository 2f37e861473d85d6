#include "weft/dependent.cuh"
#include "weft/memory.cuh"
#include "weft/team.cuh"

extern "C" __global__ void __launch_bounds__(64) ema(
    const float* __restrict__ x,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length,
    const double alpha) {
    weft::await_launch_before();
    weft::allow_launch_after();
    const int64_t r = int64_t(blockIdx.x);
    const float* x_r = x + r * x_stride_0;
    float* y_r = y + r * y_stride_0;
    // a row is one tile of 1024 points at the most; a thread has 4 times 4 of them, beside those of its warp
    const int32_t l_own = threadIdx.x / 32 * 512 + threadIdx.x % 32 * 4;
    // ema.py:23: for l in range(length):
    float average_last = 0.0f;
    __shared__ weft::Affine<float>::Value average_scratch[1][2];
    weft::Run<float, 4> x_next[4];
    const int32_t l_first = l_own;
    #pragma unroll
    for (int32_t run = 0; run < 4; ++run) {
        const int32_t l_ahead = l_first + run * 128;
        // ema.py:25: average = (1.0 - weight) * average + weight * x[r, l]
        if (l_ahead < length) x_next[run] = weft::fetch<4, 4>(x_r + l_ahead);
    }
    float x_tile[4][4];
    #pragma unroll
    for (int32_t k = 0; k < 4; ++k) {
        weft::unpack(x_next[k], x_tile[k]);
    }
    // what each run does to average
    weft::Affine<float>::Value average_own[4];
    #pragma unroll
    for (int32_t run = 0; run < 4; ++run) {
        const int32_t l_run = l_first + run * 128;
        average_own[run] = weft::Affine<float>::identity();
        if (l_run < length) {
            #pragma unroll
            for (int32_t v = 0; v < 4; ++v) {
                const int32_t l = l_run + v;
                // ema.py:24: weight = 1.0 if l == 0 else alpha  # the first element is the first average
                const double weight = l == 0 ? 1.0 : alpha;
                // ema.py:23: for l in range(length):
                average_own[run] = weft::Affine<float>::combine(average_own[run], {float(1.0 - weight), float(weight) * x_tile[run][v]});
            }
        }
    }
    weft::Affine<float>::Value average_maps[4];  // what the warp's runs before each do
    const auto average_composed = weft::scan_runs<weft::Affine<float>, 64, false>(average_own, average_maps, average_scratch[0]);
    float average_tile = average_last;  // before the tile
    weft::Affine<float>::apply(average_composed.all, average_last);
    float average_warp = average_tile;
    weft::Affine<float>::apply(average_composed.warp, average_warp);
    bool average_finite = weft::is_finite(average_last);
    float average_before[4];  // before each run
    #pragma unroll
    for (int32_t run = 0; run < 4; ++run) {
        average_before[run] = average_warp;
        weft::Affine<float>::apply(average_maps[run], average_before[run]);
        average_finite = average_finite && weft::is_finite(average_before[run]);
    }
    // what overflows when points are composed is computed in their order
    if (!weft::all_of_team<64>(average_finite || weft::is_nan(average_tile))) {
        average_last = average_tile;
        const auto change = [&](int32_t run, float& average) {
            const int32_t l_run = l_first + run * 128;
            if (l_run < length) {
                #pragma unroll
                for (int32_t v = 0; v < 4; ++v) {
                    const int32_t l = l_run + v;
                    // ema.py:24: weight = 1.0 if l == 0 else alpha  # the first element is the first average
                    const double weight = l == 0 ? 1.0 : alpha;
                    // ema.py:25: average = (1.0 - weight) * average + weight * x[r, l]
                    const float average_1 = weft::fma(float(1.0 - weight), average, float(weight) * x_tile[run][v]);
                    average = average_1;
                }
            }
        };
        const auto keep = [&](int32_t run, float& average) { average_before[run] = average; };
        weft::runs_in_turn<64, false, 4>(change, keep, average_last);
    }
    #pragma unroll
    for (int32_t run = 0; run < 4; ++run) {
        const int32_t l_run = l_first + run * 128;
        float average = average_before[run];
        if (l_run < length) {
            float y_run[4];
            #pragma unroll
            for (int32_t v = 0; v < 4; ++v) {
                const int32_t l = l_run + v;
                // ema.py:24: weight = 1.0 if l == 0 else alpha  # the first element is the first average
                const double weight = l == 0 ? 1.0 : alpha;
                // ema.py:25: average = (1.0 - weight) * average + weight * x[r, l]
                const float average_1 = weft::fma(float(1.0 - weight), average, float(weight) * x_tile[run][v]);
                // ema.py:26: y[r, l] = average
                y_run[v] = average_1;
                average = average_1;
            }
            weft::store<4>(y_r + l_run, y_run);
        }
    }
}
