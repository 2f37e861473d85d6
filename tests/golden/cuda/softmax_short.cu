#include "weft/memory.cuh"
#include "weft/team.cuh"

// softmax.py:15: def softmax(x: torch.Tensor) -> torch.Tensor:
extern "C" __global__ void __launch_bounds__(128) softmax(
    const float* __restrict__ x,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length) {
    // 4 rows a block, a warp each; each thread holds 4 neighbouring columns
    const int32_t thread = threadIdx.x;
    weft::Run<float, 4> x_next[1];
    const auto fetch_row = [&](const int64_t r) {
        const float* const x_r = x + r * x_stride_0;
        #pragma unroll
        for (int32_t chunk = 0; chunk < 1; ++chunk) {
            const int32_t l_run = thread * 4;
            if (l_run < length) {
                // softmax.py:25: largest = max(largest, x[r, l])
                x_next[chunk] = weft::fetch<4, 4>(x_r + l_run);
            }
        }
    };
    if (int64_t(blockIdx.x) * 4 + threadIdx.y < rows) fetch_row(int64_t(blockIdx.x) * 4 + threadIdx.y);
    for (int64_t r = int64_t(blockIdx.x) * 4 + threadIdx.y; r < rows; r += int64_t(gridDim.x) * 4) {
        float x_tile[1][4];
        #pragma unroll
        for (int32_t chunk = 0; chunk < 1; ++chunk) {
            const int32_t l_run = thread * 4;
            if (l_run < length) {
                weft::unpack(x_next[chunk], x_tile[chunk]);
            }
        }
        if (r + int64_t(gridDim.x) * 4 < rows) fetch_row(r + int64_t(gridDim.x) * 4);
        // softmax.py:24: for l in range(length):
        float largest_partial = weft::Max<float>::identity();
        #pragma unroll
        for (int32_t chunk = 0; chunk < 1; ++chunk) {
            const int32_t l_run = thread * 4;
            if (l_run < length) {
                #pragma unroll
                for (int32_t v = 0; v < 4; ++v) {
                    largest_partial = weft::Max<float>::combine(largest_partial, x_tile[chunk][v]);
                }
            }
        }
        // softmax.py:24: for l in range(length):
        const float largest_last = weft::reduce<weft::Max<float>, 32>(largest_partial, (weft::Max<float>::Value*)nullptr);
        // softmax.py:27: for l in range(length):
        float total_partial = weft::Sum<float>::identity();
        float exp_tile[1][4];
        #pragma unroll
        for (int32_t chunk = 0; chunk < 1; ++chunk) {
            const int32_t l_1_run = thread * 4;
            if (l_1_run < length) {
                #pragma unroll
                for (int32_t v = 0; v < 4; ++v) {
                    exp_tile[chunk][v] = weft::exp(x_tile[chunk][v] - largest_last);
                    total_partial = weft::Sum<float>::combine(total_partial, exp_tile[chunk][v]);
                }
            }
        }
        // softmax.py:27: for l in range(length):
        const float total_last = weft::reduce<weft::Sum<float>, 32>(total_partial, (weft::Sum<float>::Value*)nullptr);
        float* const y_r = y + r * y_stride_0;
        const weft::Divisor<float> total_last_divisor(total_last);
        #pragma unroll
        for (int32_t chunk = 0; chunk < 1; ++chunk) {
            const int32_t l_2_run = thread * 4;
            if (l_2_run < length) {
                float y_run[4];
                #pragma unroll
                for (int32_t v = 0; v < 4; ++v) {
                    // softmax.py:30: y[r, l] = torch.exp(x[r, l] - largest) / total
                    y_run[v] = weft::divide(exp_tile[chunk][v], total_last_divisor);
                }
                weft::store<4>(y_r + l_2_run, y_run);
            }
        }
    }
}
