#include "weft/memory.cuh"
#include "weft/dependent.cuh"

extern "C" __global__ void __launch_bounds__(128) add(
    const weft::float16* __restrict__ x,
    const weft::float16* __restrict__ z,
    weft::float16* __restrict__ result,
    const int64_t x_stride_0,
    const int64_t x_stride_1,
    const int64_t x_stride_2,
    const int64_t z_stride_0,
    const int64_t z_stride_1,
    const int64_t z_stride_2,
    const int64_t result_stride_0,
    const int64_t result_stride_1,
    const int64_t result_stride_2,
    const int64_t x_size_0,
    const int64_t x_size_1,
    const int64_t x_size_2,
    const int64_t x_size_3) {
    weft::await_launch_before();
    // each thread takes 8 neighbours along i3
    const uint32_t row = blockIdx.x * 16 + threadIdx.y;
    if (row >= uint32_t(x_size_0 * x_size_1 * x_size_2)) return;
    const int64_t i0 = row / uint32_t(x_size_2) / uint32_t(x_size_1);
    const int64_t i1 = row / uint32_t(x_size_2) % uint32_t(x_size_1);
    const int64_t i2 = row % uint32_t(x_size_2);
    const weft::float16* const x_i0_i1_i2 = x + i0 * x_stride_0 + i1 * x_stride_1 + i2 * x_stride_2;
    const weft::float16* const z_i0_i1_i2 = z + i0 * z_stride_0 + i1 * z_stride_1 + i2 * z_stride_2;
    weft::float16* const result_i0_i1_i2 = result + i0 * result_stride_0 + i1 * result_stride_1 + i2 * result_stride_2;
    const int64_t i3_run = threadIdx.x * 8;
    if (i3_run >= x_size_3) return;
    float x_tile[8];
    // kernels_of_maps.py:15: def add(x, z):
    weft::unpack(weft::fetch<8, 8>(x_i0_i1_i2 + i3_run), x_tile);
    float z_tile[8];
    weft::unpack(weft::fetch<8, 8>(z_i0_i1_i2 + i3_run), z_tile);
    float result_run[8];
    #pragma unroll
    for (int32_t v = 0; v < 8; ++v) {
        result_run[v] = x_tile[v] + z_tile[v];
    }
    // kernels_of_maps.py:15: def add(x, z):
    weft::store<8>(result_i0_i1_i2 + i3_run, result_run);
}
