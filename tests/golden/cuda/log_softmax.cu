#include "weft/dependent.cuh"
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
    weft::await_launch_before();
    weft::allow_launch_after();
    // a row a block of 64 threads; each thread holds 4 neighbouring points, 4 times
    // what the warps of a row tell each other; two of each, used in turn, so that one barrier does
    __shared__ float float_values[2][2];
    int32_t turn = 0;
    const int64_t r = blockIdx.x;
    const float* x_r = x + r * x_stride_0;
    weft::Run<float, 4> x_tile[4];
    #pragma unroll
    for (int32_t chunk = 0; chunk < 4; ++chunk) {
        const int32_t l_run = chunk * 256 + threadIdx.x * 4;
        // log_softmax.py:25: largest = max(largest, x[r, l])
        x_tile[chunk] = weft::fetch<4, 4>(x_r + l_run);
    }
    float* y_r = y + r * y_stride_0;
    float largest_own = weft::Max<float>::identity();
    #pragma unroll
    for (int32_t chunk = 0; chunk < 4; ++chunk) {
        // log_softmax.py:25: largest = max(largest, x[r, l])
        float x_run[4];
        weft::unpack(x_tile[chunk], x_run);
        #pragma unroll
        for (int32_t v = 0; v < 4; ++v) {
            // log_softmax.py:24: for l in range(length):
            largest_own = weft::Max<float>::combine(largest_own, x_run[v]);
        }
    }
    // log_softmax.py:24: for l in range(length):
    const float largest = weft::reduce<weft::Max<float>, 64>(largest_own, float_values[turn ^= 1]);
    float total_own = weft::Sum<float>::identity();
    #pragma unroll
    for (int32_t chunk = 0; chunk < 4; ++chunk) {
        // log_softmax.py:25: largest = max(largest, x[r, l])
        float x_run_2[4];
        weft::unpack(x_tile[chunk], x_run_2);
        #pragma unroll
        for (int32_t v = 0; v < 4; ++v) {
            // log_softmax.py:27: for l in range(length):
            total_own = weft::Sum<float>::combine(total_own, weft::exp_flushed(x_run_2[v] - largest));
        }
    }
    // log_softmax.py:27: for l in range(length):
    const float total = weft::reduce<weft::Sum<float>, 64>(total_own, float_values[turn ^= 1]);
    const float log = weft::log(total);
    #pragma unroll
    for (int32_t chunk = 0; chunk < 4; ++chunk) {
        const int32_t l_run = chunk * 256 + threadIdx.x * 4;
        // log_softmax.py:25: largest = max(largest, x[r, l])
        float x_run_3[4];
        weft::unpack(x_tile[chunk], x_run_3);
        float y_run[4];
        #pragma unroll
        for (int32_t v = 0; v < 4; ++v) {
            // log_softmax.py:30: y[r, l] = x[r, l] - largest - torch.log(total)
            y_run[v] = x_run_3[v] - largest - log;
        }
        weft::store<4>(y_r + l_run, y_run);
    }
}
