#include "weft/memory.cuh"
#include "weft/team.cuh"

// softmax.py:15: def softmax(x: torch.Tensor) -> torch.Tensor:
// threads: of a row's team, a warp or all the warps of a block; teams: rows of a block
template <int32_t threads, int32_t teams>
__device__ __forceinline__ void softmax_rows(
    const weft::bfloat16* __restrict__ x,
    weft::bfloat16* __restrict__ y,
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
        const weft::bfloat16* const x_r = x + r * x_stride_0;
        // softmax.py:24: for l in range(length):
        float largest_partial = weft::Max<float>::identity();
        for (int32_t tile = 0; tile < length; tile += tile_columns) {
            float x_tile[2][8];
            #pragma unroll
            for (int32_t chunk = 0; chunk < 2; ++chunk) {
                const int32_t l_run = tile + chunk * threads * 8 + thread * 8;
                if (l_run < length) {
                    // softmax.py:25: largest = max(largest, x[r, l])
                    weft::unpack(weft::fetch<8, 8>(x_r + l_run), x_tile[chunk]);
                }
            }
            #pragma unroll
            for (int32_t chunk = 0; chunk < 2; ++chunk) {
                const int32_t l_run = tile + chunk * threads * 8 + thread * 8;
                if (l_run < length) {
                    #pragma unroll
                    for (int32_t v = 0; v < 8; ++v) {
                        // softmax.py:24: for l in range(length):
                        largest_partial = weft::Max<float>::combine(largest_partial, x_tile[chunk][v]);
                    }
                }
            }
        }
        // softmax.py:24: for l in range(length):
        const float largest_last = weft::reduce<weft::Max<float>, threads>(largest_partial, float_values[turn ^= 1]);
        // softmax.py:27: for l in range(length):
        float total_partial = weft::Sum<float>::identity();
        for (int32_t tile = 0; tile < length; tile += tile_columns) {
            float x_tile[2][8];
            #pragma unroll
            for (int32_t chunk = 0; chunk < 2; ++chunk) {
                const int32_t l_1_run = tile + chunk * threads * 8 + thread * 8;
                if (l_1_run < length) {
                    // softmax.py:28: total = total + torch.exp(x[r, l] - largest)
                    weft::unpack(weft::fetch<8, 8>(x_r + l_1_run), x_tile[chunk]);
                }
            }
            #pragma unroll
            for (int32_t chunk = 0; chunk < 2; ++chunk) {
                const int32_t l_1_run = tile + chunk * threads * 8 + thread * 8;
                if (l_1_run < length) {
                    #pragma unroll
                    for (int32_t v = 0; v < 8; ++v) {
                        // softmax.py:27: for l in range(length):
                        total_partial = weft::Sum<float>::combine(total_partial, weft::exp(x_tile[chunk][v] - largest_last));
                    }
                }
            }
        }
        // softmax.py:27: for l in range(length):
        const float total_last = weft::reduce<weft::Sum<float>, threads>(total_partial, float_values[turn ^= 1]);
        weft::bfloat16* const y_r = y + r * y_stride_0;
        const weft::Divisor<float> total_last_divisor(total_last);
        for (int32_t tile = 0; tile < length; tile += tile_columns) {
            float x_tile[2][8];
            #pragma unroll
            for (int32_t chunk = 0; chunk < 2; ++chunk) {
                const int32_t l_2_run = tile + chunk * threads * 8 + thread * 8;
                if (l_2_run < length) {
                    // softmax.py:30: y[r, l] = torch.exp(x[r, l] - largest) / total
                    weft::unpack(weft::fetch<8, 8>(x_r + l_2_run), x_tile[chunk]);
                }
            }
            #pragma unroll
            for (int32_t chunk = 0; chunk < 2; ++chunk) {
                const int32_t l_2_run = tile + chunk * threads * 8 + thread * 8;
                if (l_2_run < length) {
                    float y_run[8];
                    #pragma unroll
                    for (int32_t v = 0; v < 8; ++v) {
                        // softmax.py:30: y[r, l] = torch.exp(x[r, l] - largest) / total
                        y_run[v] = weft::divide(weft::exp(x_tile[chunk][v] - largest_last), total_last_divisor);
                    }
                    weft::store<8>(y_r + l_2_run, y_run);
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(128) softmax_32(
    const weft::bfloat16* __restrict__ x,
    weft::bfloat16* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length) {
    softmax_rows<32, 4>(x, y, x_stride_0, y_stride_0, rows, length);
}

extern "C" __global__ void __launch_bounds__(128) softmax_128(
    const weft::bfloat16* __restrict__ x,
    weft::bfloat16* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length) {
    softmax_rows<128, 1>(x, y, x_stride_0, y_stride_0, rows, length);
}

extern "C" __global__ void __launch_bounds__(256) softmax_256(
    const weft::bfloat16* __restrict__ x,
    weft::bfloat16* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length) {
    softmax_rows<256, 1>(x, y, x_stride_0, y_stride_0, rows, length);
}
