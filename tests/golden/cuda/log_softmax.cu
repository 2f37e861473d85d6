#include "weft/memory.cuh"
#include "weft/team.cuh"

// log_softmax.py:15: def log_softmax(x: torch.Tensor) -> torch.Tensor:
extern "C" __global__ void __launch_bounds__(64) log_softmax(
    const float* __restrict__ x,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length) {
    // a row a block of 64 threads; each thread holds 4 neighbouring columns, 4 times
    const int32_t thread = threadIdx.x;
    // what the warps of a row tell each other; two of each, used in turn, so that one barrier does
    __shared__ weft::Sum<float>::Value float_values[2][2];
    int32_t turn = 0;
    weft::Run<float, 4> x_next[4];
    const auto fetch_row = [&](const int64_t r) {
        const float* const x_r = x + r * x_stride_0;
        #pragma unroll
        for (int32_t chunk = 0; chunk < 4; ++chunk) {
            const int32_t l_run = chunk * 256 + thread * 4;
            if (l_run < length) {
                // log_softmax.py:25: largest = max(largest, x[r, l])
                x_next[chunk] = weft::fetch<4, 4>(x_r + l_run);
            }
        }
    };
    if (blockIdx.x < rows) fetch_row(blockIdx.x);
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        float x_tile[4][4];
        #pragma unroll
        for (int32_t chunk = 0; chunk < 4; ++chunk) {
            const int32_t l_run = chunk * 256 + thread * 4;
            if (l_run < length) {
                weft::unpack(x_next[chunk], x_tile[chunk]);
            }
        }
        if (r + gridDim.x < rows) fetch_row(r + gridDim.x);
        // log_softmax.py:24: for l in range(length):
        float largest_partial = weft::Max<float>::identity();
        #pragma unroll
        for (int32_t chunk = 0; chunk < 4; ++chunk) {
            const int32_t l_run = chunk * 256 + thread * 4;
            if (l_run < length) {
                #pragma unroll
                for (int32_t v = 0; v < 4; ++v) {
                    largest_partial = weft::Max<float>::combine(largest_partial, x_tile[chunk][v]);
                }
            }
        }
        // log_softmax.py:24: for l in range(length):
        const float largest_last = weft::reduce<weft::Max<float>, 64>(largest_partial, float_values[turn ^= 1]);
        // log_softmax.py:27: for l in range(length):
        float total_partial = weft::Sum<float>::identity();
        #pragma unroll
        for (int32_t chunk = 0; chunk < 4; ++chunk) {
            const int32_t l_1_run = chunk * 256 + thread * 4;
            if (l_1_run < length) {
                #pragma unroll
                for (int32_t v = 0; v < 4; ++v) {
                    total_partial = weft::Sum<float>::combine(total_partial, weft::exp(x_tile[chunk][v] - largest_last));
                }
            }
        }
        // log_softmax.py:27: for l in range(length):
        const float total_last = weft::reduce<weft::Sum<float>, 64>(total_partial, float_values[turn ^= 1]);
        float* const y_r = y + r * y_stride_0;
        #pragma unroll
        for (int32_t chunk = 0; chunk < 4; ++chunk) {
            const int32_t l_2_run = chunk * 256 + thread * 4;
            if (l_2_run < length) {
                float y_run[4];
                #pragma unroll
                for (int32_t v = 0; v < 4; ++v) {
                    // log_softmax.py:30: y[r, l] = x[r, l] - largest - torch.log(total)
                    y_run[v] = x_tile[chunk][v] - largest_last - weft::log(total_last);
                }
                weft::store<4>(y_r + l_2_run, y_run);
            }
        }
    }
}
