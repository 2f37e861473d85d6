#include "weft/memory.cuh"

extern "C" __global__ void __launch_bounds__(128) cumsum(
    const float* __restrict__ x,
    float* __restrict__ y,
    const int64_t x_stride_1,
    const int64_t y_stride_1,
    const int64_t rows,
    const int64_t length) {
    const int64_t r_count = rows;
    // a thread for each (r); neighbours along r
    for (int64_t item = int64_t(blockIdx.x) * 128 + threadIdx.x; item < r_count; item += int64_t(gridDim.x) * 128) {
        const int64_t r = item;
        const float* x_r = x + r;
        float* y_r = y + r;
        // cumsum.py:22: for l in range(length):
        float total = 0.0f;
        #pragma unroll 4
        for (int64_t l = 0; l < length; ++l) {
            // cumsum.py:23: total = total + x[r, l]
            const float total_1 = total + x_r[l * x_stride_1];
            // cumsum.py:24: y[r, l] = total
            y_r[l * y_stride_1] = total_1;
            total = total_1;
        }
    }
}
