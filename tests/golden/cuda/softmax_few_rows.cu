#include "weft/dependent.cuh"
#include "weft/memory.cuh"
#include "weft/team.cuh"

// softmax.py:15: def softmax(x: torch.Tensor) -> torch.Tensor:
extern "C" __global__ void __launch_bounds__(256) softmax_parts(
    const weft::bfloat16* __restrict__ x,
    weft::bfloat16* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length,
    float* largest_parts,
    float* total_parts,
    const int64_t parts) {
    weft::await_launch_before();
    weft::allow_launch_after();
    const int64_t part = blockIdx.y;
    const int64_t r = int64_t(blockIdx.x);
    const weft::bfloat16* x_r = x + r * x_stride_0;
    float largest_own = weft::Max<float>::identity();
    float total_own = weft::Sum<float>::identity();
    #pragma unroll 4
    for (int64_t l_run = (part * 256 + threadIdx.x) * 8; l_run < length; l_run += parts * 2048) {
        // softmax.py:25: largest = max(largest, x[r, l])
        float x_run[8];
        weft::unpack(weft::fetch<8, 8>(x_r + l_run), x_run);
        float largest_latest = largest_own;
        #pragma unroll
        for (int32_t v = 0; v < 8; ++v) {
            // softmax.py:24: for l in range(length):
            largest_latest = weft::Max<float>::combine(largest_latest, x_run[v]);
        }
        const float largest_reference = weft::Max<float>::reference(largest_latest);
        // sums move with what they are relative to
        total_own *= weft::exp_flushed(weft::Max<float>::reference(largest_own) - largest_reference);
        largest_own = largest_latest;
        #pragma unroll
        for (int32_t v = 0; v < 8; ++v) {
            const float exp = weft::exp_flushed(x_run[v] - largest_reference);
            // softmax.py:27: for l in range(length):
            total_own = weft::Sum<float>::combine(total_own, exp);
        }
    }
    __shared__ float largest_scratch[8];
    const float largest_total = weft::reduce<weft::Max<float>, 256>(largest_own, largest_scratch);
    if (threadIdx.x == 0) largest_parts[r * parts + part] = largest_total;
    total_own *= weft::exp_flushed(weft::Max<float>::reference(largest_own) - weft::Max<float>::reference(largest_total));
    __shared__ float total_scratch[8];
    const float total_total = weft::reduce<weft::Sum<float>, 256>(total_own, total_scratch);
    if (threadIdx.x == 0) total_parts[r * parts + part] = total_total;
}

// softmax.py:15: def softmax(x: torch.Tensor) -> torch.Tensor:
extern "C" __global__ void __launch_bounds__(256) softmax(
    const weft::bfloat16* __restrict__ x,
    weft::bfloat16* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length,
    float* largest_parts,
    float* total_parts,
    const int64_t parts) {
    weft::allow_launch_after();
    weft::await_launch_before();
    const int64_t part = blockIdx.y;
    const int64_t r = int64_t(blockIdx.x);
    const weft::bfloat16* x_r = x + r * x_stride_0;
    weft::bfloat16* y_r = y + r * y_stride_0;
    float largest_own = weft::Max<float>::identity();
    for (int64_t other = threadIdx.x; other < parts; other += 256) {
        largest_own = weft::Max<float>::combine(largest_own, largest_parts[r * parts + other]);
    }
    __shared__ float largest_scratch[8];
    // softmax.py:24: for l in range(length):
    const float largest = weft::reduce<weft::Max<float>, 256>(largest_own, largest_scratch);
    const float largest_last = 0 < length ? largest : weft::Max<float>::reference(largest);
    float total_own = weft::Sum<float>::identity();
    for (int64_t other_2 = threadIdx.x; other_2 < parts; other_2 += 256) {
        total_own = weft::Sum<float>::combine(total_own, total_parts[r * parts + other_2] * weft::exp_flushed(weft::Max<float>::reference(largest_parts[r * parts + other_2]) - largest_last));
    }
    __shared__ float total_scratch[8];
    // softmax.py:27: for l in range(length):
    const float total = weft::reduce<weft::Sum<float>, 256>(total_own, total_scratch);
    const weft::OrdinaryDivisor<float> total_divisor(total);
    #pragma unroll 2
    for (int64_t l_run = (part * 256 + threadIdx.x) * 8; l_run < length; l_run += parts * 2048) {
        // softmax.py:25: largest = max(largest, x[r, l])
        float x_run[8];
        weft::unpack(weft::fetch<8, 8>(x_r + l_run), x_run);
        float y_run[8];
        #pragma unroll
        for (int32_t v = 0; v < 8; ++v) {
            const float exp = weft::exp_flushed(x_run[v] - largest);
            // softmax.py:30: y[r, l] = torch.exp(x[r, l] - largest) / total
            y_run[v] = weft::divide(exp, total_divisor);
        }
        weft::store<8>(y_r + l_run, y_run);
    }
}
