#include "weft/dependent.cuh"
#include "weft/memory.cuh"
#include "weft/team.cuh"

// kernels_of_folds.py:64: def cross_entropy(x, target):
extern "C" __global__ void __launch_bounds__(256) cross_entropy(
    const float* __restrict__ x,
    const int64_t* __restrict__ target,
    float* __restrict__ loss,
    const int64_t x_stride_0,
    const int64_t n,
    const int64_t m) {
    weft::await_launch_before();
    int64_t outside = 0;
    const int64_t r = int64_t(blockIdx.x);
    const float* x_r = x + r * x_stride_0;
    const int64_t* target_r = target + r;
    float* loss_r = loss + r;
    float high_own = weft::Max<float>::identity();
    float s_own = weft::Sum<float>::identity();
    #pragma unroll 8
    for (int64_t j_run = threadIdx.x * 4; j_run < m; j_run += 1024) {
        // kernels_of_folds.py:70: high = max(high, x[r, j])
        float x_run[4];
        weft::unpack(weft::fetch<4, 4>(x_r + j_run), x_run);
        float high_latest = high_own;
        #pragma unroll
        for (int32_t v = 0; v < 4; ++v) {
            // kernels_of_folds.py:69: for j in range(m):
            high_latest = weft::Max<float>::combine(high_latest, x_run[v]);
        }
        const float high_reference = weft::Max<float>::reference(high_latest);
        // sums move with what they are relative to
        s_own *= weft::exp_flushed(weft::Max<float>::reference(high_own) - high_reference);
        high_own = high_latest;
        #pragma unroll
        for (int32_t v = 0; v < 4; ++v) {
            // kernels_of_folds.py:72: for j in range(m):
            s_own = weft::Sum<float>::combine(s_own, weft::exp_flushed(x_run[v] - high_reference));
        }
    }
    __shared__ float high_scratch[8];
    // kernels_of_folds.py:69: for j in range(m):
    const float high = weft::reduce<weft::Max<float>, 256>(high_own, high_scratch);
    const float high_last = 0 < m ? high : weft::Max<float>::reference(high);
    s_own *= weft::exp_flushed(weft::Max<float>::reference(high_own) - high_last);
    __shared__ float s_scratch[8];
    // kernels_of_folds.py:72: for j in range(m):
    const float s = weft::reduce<weft::Sum<float>, 256>(s_own, s_scratch);
    // kernels_of_folds.py:74: loss[r] = torch.log(s) + high - x[r, target[r]]
    const int64_t target_value = target_r[0];
    if (threadIdx.x == 0) {
        loss_r[0] = weft::log(s) + high - (weft::inside(target_value < 0 ? target_value + m : target_value, m, 1, outside) ? x_r[(target_value < 0 ? target_value + m : target_value)] : 0.0f);
    }
    if (outside) __trap();  // a subscript or a value that the data decide is out of its range
}
