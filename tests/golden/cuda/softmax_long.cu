#include "weft/dependent.cuh"
#include "weft/cluster_team.cuh"
#include "weft/bulk.cuh"
#include "weft/memory.cuh"
#include "weft/team.cuh"

// softmax.py:15: def softmax(x: torch.Tensor) -> torch.Tensor:
extern "C" __global__ void __launch_bounds__(256, 3) __cluster_dims__(8, 1, 1) softmax(
    const weft::bfloat16* __restrict__ x,
    weft::bfloat16* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length) {
    weft::await_launch_before();
    // a row a cluster of 8 blocks of 256 threads, which lies in shared memory; each thread has 8 neighbouring points, 16 times
    extern __shared__ __align__(128) unsigned char memory[];
    weft::bfloat16* const x_part = reinterpret_cast<weft::bfloat16*>(memory);
    __shared__ weft::Mbarrier arrived[1];
    if (threadIdx.x == 0) {
        for (int32_t k = 0; k < 1; ++k) arrived[k].init(1);
        weft::fence_mbarrier_init();
    }
    // what the warps of a row tell each other, and where they wait for it
    __shared__ __align__(16) weft::Slot<float> largest_told[64];
    __shared__ __align__(16) weft::Slot<float> total_told[64];
    __shared__ weft::Mbarrier met[2];
    if (threadIdx.x == 0) {
        for (int32_t k = 0; k < 2; ++k) met[k].init(1);
        weft::fence_mbarrier_init();
        met[0].arrive_expect(sizeof largest_told);
        met[1].arrive_expect(sizeof total_told);
    }
    weft::cluster_arrive_relaxed();
    const int32_t thread = int32_t(weft::cluster_rank() * 256 + threadIdx.x);
    const int32_t l_first = int32_t(weft::cluster_rank()) * 32768;
    const int64_t r = blockIdx.x / 8;
    const int32_t l_here = int32_t(weft::maximum<int64_t>(0, weft::minimum<int64_t>(32768, length - l_first)));
    if (threadIdx.x == 0) {
        // softmax.py:25: largest = max(largest, x[r, l])
        arrived[0].arrive_expect(l_here * 2);
        if (l_here > 0) weft::bulk_load(x_part, x + r * x_stride_0 + l_first, l_here * 2, arrived[0]);
    }
    __syncthreads();  // all see where they wait for it
    weft::bfloat16* y_r = y + r * y_stride_0;
    float largest_own = weft::Max<float>::identity();
    arrived[0].wait(0);
    #pragma unroll 4
    for (int32_t l_place = threadIdx.x * 8; l_place < l_here; l_place += 2048) {
        // softmax.py:25: largest = max(largest, x[r, l])
        float x_run[8];
        weft::unpack(weft::fetch<8, 8>(x_part + l_place), x_run);
        #pragma unroll
        for (int32_t v = 0; v < 8; ++v) {
            // softmax.py:24: for l in range(length):
            largest_own = weft::Max<float>::combine(largest_own, x_run[v]);
        }
    }
    weft::cluster_wait();  // all of its blocks are there
    weft::tell_cluster<weft::Max<float>, 256, 8>(largest_own, largest_told, met[0]);
    met[0].wait<weft::Scope::cluster>(0);
    // softmax.py:24: for l in range(length):
    const float largest = weft::told_cluster<weft::Max<float>, 256, 8>(largest_told);
    float total_own = weft::Sum<float>::identity();
    #pragma unroll 4
    for (int32_t l_place = threadIdx.x * 8; l_place < l_here; l_place += 2048) {
        // softmax.py:25: largest = max(largest, x[r, l])
        float x_run_2[8];
        weft::unpack(weft::fetch<8, 8>(x_part + l_place), x_run_2);
        #pragma unroll
        for (int32_t v = 0; v < 8; ++v) {
            const float exp = weft::exp_flushed(x_run_2[v] - largest);
            // softmax.py:27: for l in range(length):
            total_own = weft::Sum<float>::combine(total_own, exp);
        }
    }
    weft::tell_cluster<weft::Sum<float>, 256, 8>(total_own, total_told, met[1]);
    met[1].wait<weft::Scope::cluster>(0);
    // softmax.py:27: for l in range(length):
    const float total = weft::told_cluster<weft::Sum<float>, 256, 8>(total_told);
    const weft::OrdinaryDivisor<float> total_divisor(total);
    #pragma unroll 4
    for (int32_t l_place = threadIdx.x * 8; l_place < l_here; l_place += 2048) {
        const int32_t l_run = l_first + l_place;
        // softmax.py:25: largest = max(largest, x[r, l])
        float x_run_3[8];
        weft::unpack(weft::fetch<8, 8>(x_part + l_place), x_run_3);
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
