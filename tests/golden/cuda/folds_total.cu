#include "weft/dependent.cuh"
#include "weft/memory.cuh"
#include "weft/team.cuh"

// kernels_of_folds.py:16: def total(x):
extern "C" __global__ void __launch_bounds__(256) total_parts(
    const weft::bfloat16* __restrict__ x,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t x_size_0,
    const int64_t x_size_1,
    float* s_parts,
    const int64_t parts) {
    weft::await_launch_before();
    weft::allow_launch_after();
    const int64_t part = blockIdx.y;
    float s_own = weft::Sum<float>::identity();
    #pragma unroll 2
    for (int64_t i_j_run = (part * 256 + threadIdx.x) * 8; i_j_run < x_size_0 * x_size_1; i_j_run += parts * 2048) {
        // kernels_of_folds.py:21: s = s + x[i, j]
        float x_run[8];
        weft::unpack(weft::fetch<8, 8>(x + i_j_run), x_run);
        #pragma unroll
        for (int32_t v = 0; v < 8; ++v) {
            // kernels_of_folds.py:19: for i in range(x.shape[0]):
            s_own = weft::Sum<float>::combine(s_own, x_run[v]);
        }
    }
    __shared__ float s_scratch[8];
    const float s_total = weft::reduce<weft::Sum<float>, 256>(s_own, s_scratch);
    if (threadIdx.x == 0) s_parts[part] = s_total;
}

// kernels_of_folds.py:16: def total(x):
extern "C" __global__ void __launch_bounds__(256) total(
    const weft::bfloat16* __restrict__ x,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t x_size_0,
    const int64_t x_size_1,
    float* s_parts,
    const int64_t parts) {
    weft::allow_launch_after();
    weft::await_launch_before();
    float s_own = weft::Sum<float>::identity();
    for (int64_t other = threadIdx.x; other < parts; other += 256) {
        s_own = weft::Sum<float>::combine(s_own, s_parts[other]);
    }
    __shared__ float s_scratch[8];
    // kernels_of_folds.py:19: for i in range(x.shape[0]):
    const float s = weft::reduce<weft::Sum<float>, 256>(s_own, s_scratch);
    if (threadIdx.x == 0) {
        // kernels_of_folds.py:22: y[0] = s
        y[0] = s;
    }
}
