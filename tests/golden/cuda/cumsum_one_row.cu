#include "weft/memory.cuh"
#include "weft/team.cuh"

// cumsum.py:13: def cumsum(x: torch.Tensor) -> torch.Tensor:
// threads: of a row's team, a warp or all the warps of a block; teams: rows of a block
template <int32_t threads, int32_t teams>
__device__ __forceinline__ void cumsum_rows(
    const weft::float16* __restrict__ x,
    weft::float16* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length) {
    // each thread takes 8 neighbouring columns, 2 times of a tile; tile after tile
    const int32_t thread = threadIdx.x;
    constexpr int32_t tile_columns = threads * 16;
    // what the warps of a row tell each other; two of each, used in turn, so that one barrier does
    __shared__ weft::Sum<float>::Value float_values[2][threads / 32];
    int32_t turn = 0;
    for (int64_t r = int64_t(blockIdx.x) * teams + (teams > 1 ? threadIdx.y : 0); r < rows; r += int64_t(gridDim.x) * teams) {
        const weft::float16* const x_r = x + r * x_stride_0;
        weft::float16* const y_r = y + r * y_stride_0;
        // cumsum.py:22: for l in range(length):
        float total_last = 0.0f;
        weft::Run<weft::float16, 8> x_next[2];
        #pragma unroll
        for (int32_t chunk = 0; chunk < 2; ++chunk) {
            const int32_t l_run = chunk * threads * 8 + thread * 8;
            // cumsum.py:23: total = total + x[r, l]
            x_next[chunk] = weft::fetch_within<8>(x_r + l_run, 1, l_run, length);
        }
        for (int32_t tile = 0; tile < length; tile += tile_columns) {
            float x_tile[2][8];
            #pragma unroll
            for (int32_t chunk = 0; chunk < 2; ++chunk) {
                weft::unpack(x_next[chunk], x_tile[chunk]);
            }
            #pragma unroll
            for (int32_t chunk = 0; chunk < 2; ++chunk) {
                const int32_t l_run = tile + tile_columns + chunk * threads * 8 + thread * 8;
                // cumsum.py:23: total = total + x[r, l]
                x_next[chunk] = weft::fetch_within<8>(x_r + l_run, 1, l_run, length);
            }
            weft::Sum<float>::Value total_own[2];  // what each run does to total_last
            #pragma unroll
            for (int32_t chunk = 0; chunk < 2; ++chunk) {
                const int32_t l_run = tile + chunk * threads * 8 + thread * 8;
                total_own[chunk] = weft::Sum<float>::identity();
                #pragma unroll
                for (int32_t v = 0; v < 8; ++v) {
                    const int32_t l = l_run + v;
                    if (l < length) {
                        total_own[chunk] = weft::Sum<float>::combine(total_own[chunk], x_tile[chunk][v]);
                    }
                }
            }
            float total_before[2];  // total_last before each run
            #pragma unroll
            for (int32_t chunk = 0; chunk < 2; ++chunk) {
                const auto total_prefix = weft::scan<weft::Sum<float>, threads, false>(total_own[chunk], float_values[turn ^= 1]);
                total_before[chunk] = total_last + total_prefix.before;
                total_last = total_last + total_prefix.all;
            }
            #pragma unroll
            for (int32_t chunk = 0; chunk < 2; ++chunk) {
                const int32_t l_run = tile + chunk * threads * 8 + thread * 8;
                float total = total_before[chunk];
                #pragma unroll
                for (int32_t v = 0; v < 8; ++v) {
                    const int32_t l = l_run + v;
                    if (l < length) {
                        // cumsum.py:23: total = total + x[r, l]
                        const float total_1 = total + x_tile[chunk][v];
                        // cumsum.py:24: y[r, l] = total
                        y_r[l] = total_1;
                        total = total_1;
                    }
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(128) cumsum_32(
    const weft::float16* __restrict__ x,
    weft::float16* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length) {
    cumsum_rows<32, 4>(x, y, x_stride_0, y_stride_0, rows, length);
}

extern "C" __global__ void __launch_bounds__(128) cumsum_128(
    const weft::float16* __restrict__ x,
    weft::float16* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length) {
    cumsum_rows<128, 1>(x, y, x_stride_0, y_stride_0, rows, length);
}

extern "C" __global__ void __launch_bounds__(256) cumsum_256(
    const weft::float16* __restrict__ x,
    weft::float16* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length) {
    cumsum_rows<256, 1>(x, y, x_stride_0, y_stride_0, rows, length);
}
