#include "weft/memory.cuh"
#include "weft/join.cuh"

extern "C" __global__ void __launch_bounds__(256) histogram(
    const int32_t* __restrict__ x,
    int64_t* count,
    const int64_t x_size_0,
    const int64_t bins) {
    int64_t outside = 0;
    // the elements of count that this block joins to, 8 times: in shared memory until all is done
    __shared__ int32_t count_shared[2048];
    for (int32_t k = threadIdx.x; k < 2048; k += 256) count_shared[k] = weft::Sum<int32_t>::identity();
    int32_t* const count_own = count_shared + threadIdx.x / 32 % 8 * 256;
    __syncthreads();
    for (int64_t place = int64_t(blockIdx.x) * 256 + threadIdx.x; place < x_size_0 / 4; place += int64_t(gridDim.x) * 256) {
        const int64_t i_first = place * 4;
        // kernels_of_joins.py:18: count[x[i]] += 1
        int32_t x_run[4];
        weft::unpack(weft::fetch<4, 4>(x + i_first), x_run);
        #pragma unroll
        for (int32_t v = 0; v < 4; ++v) {
            const int64_t index = int64_t(x_run[v]);
            const int64_t count_at = index < 0 ? weft::wrapping_add(bins, index) : index;
            if (weft::inside(count_at, bins, 2, outside)) weft::join<weft::Sum<int32_t>>(count_own + count_at, 1);
        }
    }
    __syncthreads();
    for (int32_t k = threadIdx.x; k < bins; k += 256) {
        int32_t total = count_shared[k];
        #pragma unroll
        for (int32_t v = 1; v < 8; ++v) total = weft::joined<weft::Sum<int32_t>>(total, count_shared[v * 256 + k]);
        if (total != weft::Sum<int32_t>::identity()) weft::join<weft::Sum<int64_t>>(&count[k], total);
    }
    if (outside) __trap();  // a subscript or a value that the data decide is out of its range
}
