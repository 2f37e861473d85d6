#include "weft/memory.cuh"
#include "weft/turn.cuh"
#include "weft/dependent.cuh"

extern "C" __global__ void __launch_bounds__(256) transposed(
    const weft::float16* __restrict__ x,
    const weft::float16* __restrict__ z,
    weft::float16* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t z_stride_0,
    const int64_t y_stride_0,
    const int64_t n,
    const int64_t m) {
    weft::await_launch_before();
    // a block takes 64 x 64 of i and j, a thread 8 neighbours, 2 times
    const int64_t i_first = (int64_t(blockIdx.z) * gridDim.y + blockIdx.y) * 64;
    if (i_first >= n) return;
    const int64_t j_first = int64_t(blockIdx.x) * 64;
    const int64_t j_run = j_first + threadIdx.x * 8, i_run = i_first + threadIdx.x * 8;
    __shared__ weft::Turned<float, 64, 8> z_square;
    float z_tile[2][8] = {};
    float x_tile[2][8];
    #pragma unroll
    for (int32_t turn = 0; turn < 2; ++turn) {
        const int64_t j = j_first + turn * 32 + threadIdx.y;
        if (j >= m || i_run >= n) break;
        // kernels_of_maps.py:47: y[i, j] = x[i, j] + z[j, i]
        weft::unpack(weft::fetch<8, 8>(z + j * z_stride_0 + i_run), z_tile[turn]);
    }
    #pragma unroll
    for (int32_t turn = 0; turn < 2; ++turn) {
        const int64_t i = i_first + turn * 32 + threadIdx.y;
        if (i >= n || j_run >= m) break;
        // kernels_of_maps.py:47: y[i, j] = x[i, j] + z[j, i]
        weft::unpack(weft::fetch<8, 8>(x + i * x_stride_0 + j_run), x_tile[turn]);
    }
    #pragma unroll
    for (int32_t turn = 0; turn < 2; ++turn) {
        z_square.put(threadIdx.x, turn * 32 + threadIdx.y, z_tile[turn]);
    }
    __syncthreads();
    #pragma unroll
    for (int32_t turn = 0; turn < 2; ++turn) {
        const int64_t i = i_first + turn * 32 + threadIdx.y;
        if (i >= n || j_run >= m) break;
        z_square.get(threadIdx.x, turn * 32 + threadIdx.y, z_tile[turn]);
        float y_run[8];
        #pragma unroll
        for (int32_t v = 0; v < 8; ++v) {
            // kernels_of_maps.py:47: y[i, j] = x[i, j] + z[j, i]
            y_run[v] = x_tile[turn][v] + z_tile[turn][v];
        }
        // kernels_of_maps.py:47: y[i, j] = x[i, j] + z[j, i]
        weft::store<8>(y + i * y_stride_0 + j_run, y_run);
    }
}
