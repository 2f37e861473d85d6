#include "weft/memory.cuh"
#include "weft/team.cuh"

// ema.py:13: def ema(x: torch.Tensor, alpha: float) -> torch.Tensor:
// threads: of a row's team, a warp or all the warps of a block; teams: rows of a block
template <int32_t threads, int32_t teams>
__device__ __forceinline__ void ema_rows(
    const float* __restrict__ x,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length,
    const double alpha) {
    // each thread takes 4 neighbouring columns, 4 times of a tile; tile after tile
    const int32_t thread = threadIdx.x;
    constexpr int32_t tile_columns = threads * 16;
    // what the warps of a row tell each other; two of each, used in turn, so that one barrier does
    __shared__ weft::Affine<float>::Value float_maps[2][threads / 32];
    int32_t turn = 0;
    for (int64_t r = int64_t(blockIdx.x) * teams + (teams > 1 ? threadIdx.y : 0); r < rows; r += int64_t(gridDim.x) * teams) {
        const float* const x_r = x + r * x_stride_0;
        float* const y_r = y + r * y_stride_0;
        // ema.py:23: for l in range(length):
        float average_last = 0.0f;
        weft::Run<float, 4> x_next[4];
        #pragma unroll
        for (int32_t chunk = 0; chunk < 4; ++chunk) {
            const int32_t l_run = chunk * threads * 4 + thread * 4;
            if (l_run < length) {
                // ema.py:25: average = (1.0 - weight) * average + weight * x[r, l]
                x_next[chunk] = weft::fetch<4, 4>(x_r + l_run);
            }
        }
        for (int32_t tile = 0; tile < length; tile += tile_columns) {
            float x_tile[4][4];
            #pragma unroll
            for (int32_t chunk = 0; chunk < 4; ++chunk) {
                weft::unpack(x_next[chunk], x_tile[chunk]);
            }
            #pragma unroll
            for (int32_t chunk = 0; chunk < 4; ++chunk) {
                const int32_t l_run = tile + tile_columns + chunk * threads * 4 + thread * 4;
                if (l_run < length) {
                    // ema.py:25: average = (1.0 - weight) * average + weight * x[r, l]
                    x_next[chunk] = weft::fetch<4, 4>(x_r + l_run);
                }
            }
            weft::Affine<float>::Value average_own[4];  // what each run does to average_last
            #pragma unroll
            for (int32_t chunk = 0; chunk < 4; ++chunk) {
                const int32_t l_run = tile + chunk * threads * 4 + thread * 4;
                average_own[chunk] = weft::Affine<float>::identity();
                if (l_run < length) {
                    #pragma unroll
                    for (int32_t v = 0; v < 4; ++v) {
                        const int32_t l = l_run + v;
                        // ema.py:24: weight = 1.0 if l == 0 else alpha  # the first element is the first average
                        const double weight = l == 0 ? 1.0 : alpha;
                        average_own[chunk] = weft::Affine<float>::combine(average_own[chunk], {float(1.0 - weight), float(weight) * x_tile[chunk][v]});
                    }
                }
            }
            float average_before[4];  // average_last before each run
            const float average_first = average_last;
            bool average_finite = true;
            #pragma unroll
            for (int32_t chunk = 0; chunk < 4; ++chunk) {
                const auto average_prefix = weft::scan<weft::Affine<float>, threads, false>(average_own[chunk], float_maps[turn ^= 1]);
                average_before[chunk] = average_prefix.before(average_last);
                average_last = average_prefix.all(average_last);
                average_finite = average_finite && weft::is_finite(average_before[chunk]) && weft::is_finite(average_last);
            }
            // what overflows when columns are composed is computed in their order
            if (!weft::all_of_team<threads>(average_finite)) {
                average_last = average_first;
                #pragma unroll
                for (int32_t chunk = 0; chunk < 4; ++chunk) {
                    const int32_t l_run = tile + chunk * threads * 4 + thread * 4;
                    const auto step = [&](float& average) {
                        if (l_run < length) {
                            #pragma unroll
                            for (int32_t v = 0; v < 4; ++v) {
                                const int32_t l = l_run + v;
                                // ema.py:24: weight = 1.0 if l == 0 else alpha  # the first element is the first average
                                const double weight = l == 0 ? 1.0 : alpha;
                                // ema.py:25: average = (1.0 - weight) * average + weight * x[r, l]
                                const float average_1 = weft::fma(float(1.0 - weight), average, float(weight) * x_tile[chunk][v]);
                                average = average_1;
                            }
                        }
                    };
                    const auto keep = [&](float& average) { average_before[chunk] = average; };
                    weft::in_turn<threads, false>(step, keep, average_last);
                }
            }
            #pragma unroll
            for (int32_t chunk = 0; chunk < 4; ++chunk) {
                const int32_t l_run = tile + chunk * threads * 4 + thread * 4;
                if (l_run < length) {
                    float average = average_before[chunk];
                    float y_run[4];
                    #pragma unroll
                    for (int32_t v = 0; v < 4; ++v) {
                        const int32_t l = l_run + v;
                        // ema.py:24: weight = 1.0 if l == 0 else alpha  # the first element is the first average
                        const double weight = l == 0 ? 1.0 : alpha;
                        // ema.py:25: average = (1.0 - weight) * average + weight * x[r, l]
                        const float average_1 = weft::fma(float(1.0 - weight), average, float(weight) * x_tile[chunk][v]);
                        // ema.py:26: y[r, l] = average
                        y_run[v] = average_1;
                        average = average_1;
                    }
                    weft::store<4>(y_r + l_run, y_run);
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(128, 1) ema_32(
    const float* __restrict__ x,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length,
    const double alpha) {
    ema_rows<32, 4>(x, y, x_stride_0, y_stride_0, rows, length, alpha);
}

extern "C" __global__ void __launch_bounds__(128, 1) ema_128(
    const float* __restrict__ x,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length,
    const double alpha) {
    ema_rows<128, 1>(x, y, x_stride_0, y_stride_0, rows, length, alpha);
}

extern "C" __global__ void __launch_bounds__(256, 1) ema_256(
    const float* __restrict__ x,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length,
    const double alpha) {
    ema_rows<256, 1>(x, y, x_stride_0, y_stride_0, rows, length, alpha);
}
