#include "weft/memory.cuh"
#include "weft/team.cuh"

// linrec.py:30: def linrec_reverse(x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
// threads: of a row's team, a warp or all the warps of a block; teams: rows of a block
template <int32_t threads, int32_t teams>
__device__ __forceinline__ void linrec_reverse_rows(
    const float* __restrict__ x,
    const float* __restrict__ c,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t c_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length) {
    // each thread takes 4 neighbouring columns, 4 times of a tile; tile after tile
    const int32_t thread = threadIdx.x;
    constexpr int32_t tile_columns = threads * 16;
    // what the warps of a row tell each other; two of each, used in turn, so that one barrier does
    __shared__ weft::Affine<float>::Value float_maps[2][threads / 32];
    int32_t turn = 0;
    for (int64_t r = int64_t(blockIdx.x) * teams + (teams > 1 ? threadIdx.y : 0); r < rows; r += int64_t(gridDim.x) * teams) {
        const float* const c_r = c + r * c_stride_0;
        const float* const x_r = x + r * x_stride_0;
        float* const y_r = y + r * y_stride_0;
        // linrec.py:39: for l in range(length - 1, -1, -1):
        float h_last = 0.0f;
        weft::Run<float, 4> c_next[4];
        weft::Run<float, 4> x_next[4];
        #pragma unroll
        for (int32_t chunk = 0; chunk < 4; ++chunk) {
            const int32_t l_run = (length + tile_columns - 1) / tile_columns * tile_columns - tile_columns + chunk * threads * 4 + thread * 4;
            if (l_run >= 0 && l_run < length) {
                // linrec.py:40: h = c[r, l] * h + x[r, l]
                c_next[chunk] = weft::fetch<4, 4>(c_r + l_run);
                x_next[chunk] = weft::fetch<4, 4>(x_r + l_run);
            }
        }
        for (int32_t tile = (length + tile_columns - 1) / tile_columns * tile_columns - tile_columns; tile >= 0; tile -= tile_columns) {
            float c_tile[4][4];
            float x_tile[4][4];
            #pragma unroll
            for (int32_t chunk = 0; chunk < 4; ++chunk) {
                weft::unpack(c_next[chunk], c_tile[chunk]);
                weft::unpack(x_next[chunk], x_tile[chunk]);
            }
            #pragma unroll
            for (int32_t chunk = 0; chunk < 4; ++chunk) {
                const int32_t l_run = tile - tile_columns + chunk * threads * 4 + thread * 4;
                if (l_run >= 0 && l_run < length) {
                    // linrec.py:40: h = c[r, l] * h + x[r, l]
                    c_next[chunk] = weft::fetch<4, 4>(c_r + l_run);
                    x_next[chunk] = weft::fetch<4, 4>(x_r + l_run);
                }
            }
            weft::Affine<float>::Value h_own[4];  // what each run does to h_last
            #pragma unroll
            for (int32_t chunk = 0; chunk < 4; ++chunk) {
                const int32_t l_run = tile + chunk * threads * 4 + thread * 4;
                h_own[chunk] = weft::Affine<float>::identity();
                if (l_run < length) {
                    #pragma unroll
                    for (int32_t v = 3; v >= 0; --v) {
                        h_own[chunk] = weft::Affine<float>::combine(h_own[chunk], {c_tile[chunk][v], x_tile[chunk][v]});
                    }
                }
            }
            float h_before[4];  // h_last before each run
            const float h_first = h_last;
            bool h_finite = true;
            #pragma unroll
            for (int32_t chunk = 3; chunk >= 0; --chunk) {
                const auto h_prefix = weft::scan<weft::Affine<float>, threads, true>(h_own[chunk], float_maps[turn ^= 1]);
                h_before[chunk] = h_prefix.before(h_last);
                h_last = h_prefix.all(h_last);
                h_finite = h_finite && weft::is_finite(h_before[chunk]) && weft::is_finite(h_last);
            }
            // what overflows when columns are composed is computed in their order
            if (!weft::all_of_team<threads>(h_finite)) {
                h_last = h_first;
                #pragma unroll
                for (int32_t chunk = 3; chunk >= 0; --chunk) {
                    const int32_t l_run = tile + chunk * threads * 4 + thread * 4;
                    const auto step = [&](float& h) {
                        if (l_run < length) {
                            #pragma unroll
                            for (int32_t v = 3; v >= 0; --v) {
                                // linrec.py:40: h = c[r, l] * h + x[r, l]
                                const float h_1 = weft::fma(c_tile[chunk][v], h, x_tile[chunk][v]);
                                h = h_1;
                            }
                        }
                    };
                    const auto keep = [&](float& h) { h_before[chunk] = h; };
                    weft::in_turn<threads, true>(step, keep, h_last);
                }
            }
            #pragma unroll
            for (int32_t chunk = 0; chunk < 4; ++chunk) {
                const int32_t l_run = tile + chunk * threads * 4 + thread * 4;
                if (l_run < length) {
                    float h = h_before[chunk];
                    float y_run[4];
                    #pragma unroll
                    for (int32_t v = 3; v >= 0; --v) {
                        // linrec.py:40: h = c[r, l] * h + x[r, l]
                        const float h_1 = weft::fma(c_tile[chunk][v], h, x_tile[chunk][v]);
                        // linrec.py:41: y[r, l] = h
                        y_run[v] = h_1;
                        h = h_1;
                    }
                    weft::store<4>(y_r + l_run, y_run);
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(128, 1) linrec_reverse_32(
    const float* __restrict__ x,
    const float* __restrict__ c,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t c_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length) {
    linrec_reverse_rows<32, 4>(x, c, y, x_stride_0, c_stride_0, y_stride_0, rows, length);
}

extern "C" __global__ void __launch_bounds__(128, 1) linrec_reverse_128(
    const float* __restrict__ x,
    const float* __restrict__ c,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t c_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length) {
    linrec_reverse_rows<128, 1>(x, c, y, x_stride_0, c_stride_0, y_stride_0, rows, length);
}

extern "C" __global__ void __launch_bounds__(256, 1) linrec_reverse_256(
    const float* __restrict__ x,
    const float* __restrict__ c,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t c_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length) {
    linrec_reverse_rows<256, 1>(x, c, y, x_stride_0, c_stride_0, y_stride_0, rows, length);
}
