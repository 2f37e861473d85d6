#include "weft/dependent.cuh"
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
    weft::await_launch_before();
    // 16 rows a block, 8 threads each; each thread holds 4 neighbouring points, 4 times
    const int64_t r = int64_t(blockIdx.x) * 16 + threadIdx.y;
    if (r >= rows) return;
    const float* x_r = x + r * x_stride_0;
    weft::Run<float, 4> x_tile[4];
    #pragma unroll
    for (int32_t chunk = 0; chunk < 4; ++chunk) {
        const int32_t l_run = chunk * 32 + threadIdx.x * 4;
        if (l_run < length) {
            // softmax.py:25: largest = max(largest, x[r, l])
            x_tile[chunk] = weft::fetch<4, 4>(x_r + l_run);
        }
    }
    float* y_r = y + r * y_stride_0;
    float largest_own = weft::Max<float>::identity();
    #pragma unroll
    for (int32_t chunk = 0; chunk < 4; ++chunk) {
        const int32_t l_run = chunk * 32 + threadIdx.x * 4;
        if (l_run < length) {
            // softmax.py:25: largest = max(largest, x[r, l])
            float x_run[4];
            weft::unpack(x_tile[chunk], x_run);
            #pragma unroll
            for (int32_t v = 0; v < 4; ++v) {
                // softmax.py:24: for l in range(length):
                largest_own = weft::Max<float>::combine(largest_own, x_run[v]);
            }
        }
    }
    // softmax.py:24: for l in range(length):
    const float largest = weft::reduce<weft::Max<float>, 8>(largest_own, nullptr);
    float total_own = weft::Sum<float>::identity();
    float exp_tile[4][4];
    #pragma unroll
    for (int32_t chunk = 0; chunk < 4; ++chunk) {
        const int32_t l_run = chunk * 32 + threadIdx.x * 4;
        if (l_run < length) {
            // softmax.py:25: largest = max(largest, x[r, l])
            float x_run_2[4];
            weft::unpack(x_tile[chunk], x_run_2);
            #pragma unroll
            for (int32_t v = 0; v < 4; ++v) {
                exp_tile[chunk][v] = weft::exp(x_run_2[v] - largest);
                // softmax.py:27: for l in range(length):
                total_own = weft::Sum<float>::combine(total_own, exp_tile[chunk][v]);
            }
        }
    }
    // softmax.py:27: for l in range(length):
    const float total = weft::reduce<weft::Sum<float>, 8>(total_own, nullptr);
    const weft::OrdinaryDivisor<float> total_divisor(total);
    #pragma unroll
    for (int32_t chunk = 0; chunk < 4; ++chunk) {
        const int32_t l_run = chunk * 32 + threadIdx.x * 4;
        if (l_run < length) {
            float y_run[4];
            #pragma unroll
            for (int32_t v = 0; v < 4; ++v) {
                // softmax.py:30: y[r, l] = torch.exp(x[r, l] - largest) / total
                y_run[v] = weft::divide(exp_tile[chunk][v], total_divisor);
            }
            weft::store<4>(y_r + l_run, y_run);
        }
    }
}
