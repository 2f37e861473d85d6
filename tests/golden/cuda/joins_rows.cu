#include "weft/memory.cuh"
#include "weft/join.cuh"

extern "C" __global__ void __launch_bounds__(256) rows_added(
    int32_t* y,
    const int64_t* index,
    const int32_t* x,
    const int64_t y_stride_0,
    const int64_t x_stride_0,
    const int64_t y_size_0,
    const int64_t y_size_1,
    const int64_t index_size_0) {
    int64_t outside = 0;
    for (int64_t place = int64_t(blockIdx.x) * 256 + threadIdx.x; place < index_size_0 * (y_size_1 / 4); place += int64_t(gridDim.x) * 256) {
        const int64_t i = place / (y_size_1 / 4);
        const int64_t d_run = place % (y_size_1 / 4);
        const int64_t d_first = d_run * 4;
        // kernels_of_joins.py:91: y[index[i], d] += x[i, d]
        int32_t x_run[4];
        weft::unpack(weft::fetch<4, 4>(x + i * x_stride_0 + d_first), x_run);
        const int64_t index_value = index[i];
        #pragma unroll
        for (int32_t v = 0; v < 4; ++v) {
            const int64_t d = d_first + v;
            const int64_t y_at_0 = index_value < 0 ? weft::wrapping_add(index_value, y_size_0) : index_value;
            if (weft::inside(y_at_0, y_size_0, 1, outside)) weft::join<weft::Sum<int32_t>>(&y[y_at_0 * y_stride_0 + d], x_run[v]);
        }
    }
    if (outside) __trap();  // a subscript or a value that the data decide is out of its range
}
