#include "weft/memory.cuh"
#include "weft/dependent.cuh"

extern "C" __global__ void __launch_bounds__(128) back_and_forth_1(
    const float* __restrict__ u,
    float* __restrict__ a,
    float* __restrict__ b,
    const int64_t n,
    const int64_t m) {
    weft::await_launch_before();
    weft::allow_launch_after();
    // each thread takes 4 neighbours along (i_n, i_m), which are counted as one
    const int64_t i_n_i_m_count = n * m;
    const int64_t i_n_i_m_run = int64_t(blockIdx.x) * 512 + threadIdx.x * 4;
    if (i_n_i_m_run >= i_n_i_m_count) return;
    float u_tile[4];
    // kernels_of_steps.py:48: a = u.clone()
    weft::unpack(weft::fetch<4, 4>(u + i_n_i_m_run), u_tile);
    float a_run[4];
    float b_run[4];
    #pragma unroll
    for (int32_t v = 0; v < 4; ++v) {
        a_run[v] = u_tile[v];
        // kernels_of_steps.py:49: b = u.clone()
        b_run[v] = u_tile[v];
    }
    // kernels_of_steps.py:48: a = u.clone()
    weft::store<4>(a + i_n_i_m_run, a_run);
    // kernels_of_steps.py:49: b = u.clone()
    weft::store<4>(b + i_n_i_m_run, b_run);
}

#include "weft/memory.cuh"

extern "C" __global__ void __launch_bounds__(256) back_and_forth_2_t_1(
    float* a,
    float* __restrict__ b,
    const int64_t a_stride_0,
    const int64_t b_stride_0,
    const int64_t n,
    const int64_t m) {
    // each thread takes an element, 8 times along j
    const int64_t i_count = weft::maximum<int64_t>(n - 2, 0);
    const int64_t row = int64_t(blockIdx.x);
    const int64_t i = 1 + row;
    float* const a_i = a + (i - 1) * a_stride_0;
    float* const a_i_2 = a + (i + 1) * a_stride_0;
    float* const a_i_3 = a + i * a_stride_0;
    float* const b_i = b + i * b_stride_0;
    float a_tile[8];
    float a_tile_2[8];
    float a_tile_3[8];
    float a_tile_4[8];
    #pragma unroll
    for (int32_t turn = 0; turn < 8; ++turn) {
        const int64_t j = 1 + turn * 256 + threadIdx.x;
        if (j >= m - 1) break;
        // kernels_of_steps.py:54: b[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])
        a_tile[turn] = a_i[j];
        a_tile_2[turn] = a_i_2[j];
        a_tile_3[turn] = a_i_3[j - 1];
        a_tile_4[turn] = a_i_3[j + 1];
    }
    #pragma unroll
    for (int32_t turn = 0; turn < 8; ++turn) {
        const int64_t j = 1 + turn * 256 + threadIdx.x;
        if (j >= m - 1) break;
        // kernels_of_steps.py:54: b[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])
        b_i[j] = 0.25f * (a_tile[turn] + a_tile_2[turn] + a_tile_3[turn] + a_tile_4[turn]);
    }
}

#include "weft/memory.cuh"

extern "C" __global__ void __launch_bounds__(256) back_and_forth_2_t_2(
    float* __restrict__ a,
    float* b,
    const int64_t a_stride_0,
    const int64_t b_stride_0,
    const int64_t n,
    const int64_t m) {
    // each thread takes an element, 8 times along j_1
    const int64_t i_1_count = weft::maximum<int64_t>(n - 2, 0);
    const int64_t row = int64_t(blockIdx.x);
    const int64_t i_1 = 1 + row;
    float* const b_i_1 = b + (i_1 - 1) * b_stride_0;
    float* const b_i_1_2 = b + (i_1 + 1) * b_stride_0;
    float* const b_i_1_3 = b + i_1 * b_stride_0;
    float* const a_i_1 = a + i_1 * a_stride_0;
    float b_tile[8];
    float b_tile_2[8];
    float b_tile_3[8];
    float b_tile_4[8];
    #pragma unroll
    for (int32_t turn = 0; turn < 8; ++turn) {
        const int64_t j_1 = 1 + turn * 256 + threadIdx.x;
        if (j_1 >= m - 1) break;
        // kernels_of_steps.py:58: a[i, j] = 0.25 * (b[i - 1, j] + b[i + 1, j] + b[i, j - 1] + b[i, j + 1])
        b_tile[turn] = b_i_1[j_1];
        b_tile_2[turn] = b_i_1_2[j_1];
        b_tile_3[turn] = b_i_1_3[j_1 - 1];
        b_tile_4[turn] = b_i_1_3[j_1 + 1];
    }
    #pragma unroll
    for (int32_t turn = 0; turn < 8; ++turn) {
        const int64_t j_1 = 1 + turn * 256 + threadIdx.x;
        if (j_1 >= m - 1) break;
        // kernels_of_steps.py:58: a[i, j] = 0.25 * (b[i - 1, j] + b[i + 1, j] + b[i, j - 1] + b[i, j + 1])
        a_i_1[j_1] = 0.25f * (b_tile[turn] + b_tile_2[turn] + b_tile_3[turn] + b_tile_4[turn]);
    }
}
