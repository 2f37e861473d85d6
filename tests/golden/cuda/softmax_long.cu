#include "weft/cluster_team.cuh"
#include "weft/memory.cuh"
#include "weft/team.cuh"

// softmax.py:15: def softmax(x: torch.Tensor) -> torch.Tensor:
extern "C" __global__ void __launch_bounds__(512) __cluster_dims__(8, 1, 1) softmax(
    const weft::bfloat16* __restrict__ x,
    weft::bfloat16* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length) {
    // a row a cluster of 8 blocks of 512 threads; each thread holds 8 neighbouring points, 8 times
    // what the warps and blocks of a row tell each other; two of each, used in turn, so that one barrier does
    __shared__ float float_values[2][24];
    int32_t turn = 0;
    const int32_t thread = int32_t(weft::cluster_rank() * 512 + threadIdx.x);
    weft::cluster_sync();  // all of its blocks are there
    const int64_t r = blockIdx.x / 8;
    const weft::bfloat16* x_r = x + r * x_stride_0;
    weft::Run<weft::bfloat16, 8> x_tile[8];
    #pragma unroll
    for (int32_t chunk = 0; chunk < 8; ++chunk) {
        const int32_t l_run = chunk * 32768 + thread * 8;
        if (l_run < length) {
            // softmax.py:25: largest = max(largest, x[r, l])
            x_tile[chunk] = weft::fetch<8, 8>(x_r + l_run);
        }
    }
    weft::bfloat16* y_r = y + r * y_stride_0;
    float largest_own = weft::Max<float>::identity();
    #pragma unroll
    for (int32_t chunk = 0; chunk < 8; ++chunk) {
        const int32_t l_run = chunk * 32768 + thread * 8;
        if (l_run < length) {
            // softmax.py:25: largest = max(largest, x[r, l])
            float x_run[8];
            weft::unpack(x_tile[chunk], x_run);
            #pragma unroll
            for (int32_t v = 0; v < 8; ++v) {
                // softmax.py:24: for l in range(length):
                largest_own = weft::Max<float>::combine(largest_own, x_run[v]);
            }
        }
    }
    // softmax.py:24: for l in range(length):
    const float largest = weft::reduce_cluster<weft::Max<float>, 512, 8>(largest_own, float_values[turn ^= 1]);
    float total_own = weft::Sum<float>::identity();
    #pragma unroll
    for (int32_t chunk = 0; chunk < 8; ++chunk) {
        const int32_t l_run = chunk * 32768 + thread * 8;
        if (l_run < length) {
            // softmax.py:25: largest = max(largest, x[r, l])
            float x_run_2[8];
            weft::unpack(x_tile[chunk], x_run_2);
            #pragma unroll
            for (int32_t v = 0; v < 8; ++v) {
                const float exp = weft::exp_flushed(x_run_2[v] - largest);
                // softmax.py:27: for l in range(length):
                total_own = weft::Sum<float>::combine(total_own, exp);
            }
        }
    }
    // softmax.py:27: for l in range(length):
    const float total = weft::reduce_cluster<weft::Sum<float>, 512, 8>(total_own, float_values[turn ^= 1]);
    const weft::Divisor<float> total_divisor(total);
    #pragma unroll
    for (int32_t chunk = 0; chunk < 8; ++chunk) {
        const int32_t l_run = chunk * 32768 + thread * 8;
        if (l_run < length) {
            // softmax.py:25: largest = max(largest, x[r, l])
            float x_run_3[8];
            weft::unpack(x_tile[chunk], x_run_3);
            float y_run[8];
            #pragma unroll
            for (int32_t v = 0; v < 8; ++v) {
                const float exp = weft::exp_flushed(x_run_3[v] - largest);
                // softmax.py:30: y[r, l] = torch.exp(x[r, l] - largest) / total
                y_run[v] = weft::divide(exp, total_divisor);
            }
            weft::store<8>(y_r + l_run, y_run);
        }
    }
}
