#include "weft/memory.cuh"

// kernels_of_steps.py:45: def back_and_forth(u, steps: int):
extern "C" __global__ void __launch_bounds__(256) back_and_forth_1(
    const float* __restrict__ u,
    float* __restrict__ a,
    float* __restrict__ b,
    const int64_t u_stride_0,
    const int64_t a_stride_0,
    const int64_t b_stride_0,
    const int64_t n,
    const int64_t m) {
    // each thread takes 4 neighbouring columns, 2 times; blocks share the columns of a row
    const int32_t thread = threadIdx.x;
    const int32_t threads = blockDim.x;
    const int32_t tile_columns = threads * 8;
    for (int64_t i_n = int64_t(blockIdx.x) * blockDim.y + threadIdx.y; i_n < n; i_n += int64_t(gridDim.x) * blockDim.y) {
        const float* const u_i_n = u + i_n * u_stride_0;
        float* const a_i_n = a + i_n * a_stride_0;
        float* const b_i_n = b + i_n * b_stride_0;
        for (int32_t tile = blockIdx.y * tile_columns; tile < m; tile += gridDim.y * tile_columns) {
            float u_tile[2][4];
            #pragma unroll
            for (int32_t chunk = 0; chunk < 2; ++chunk) {
                const int32_t i_m_run = tile + chunk * threads * 4 + thread * 4;
                if (i_m_run < m) {
                    // kernels_of_steps.py:48: a = u.clone()
                    weft::unpack(weft::fetch<4, 4>(u_i_n + i_m_run), u_tile[chunk]);
                }
            }
            #pragma unroll
            for (int32_t chunk = 0; chunk < 2; ++chunk) {
                const int32_t i_m_run = tile + chunk * threads * 4 + thread * 4;
                if (i_m_run < m) {
                    float a_run[4];
                    float b_run[4];
                    #pragma unroll
                    for (int32_t v = 0; v < 4; ++v) {
                        // kernels_of_steps.py:48: a = u.clone()
                        a_run[v] = u_tile[chunk][v];
                        // kernels_of_steps.py:49: b = u.clone()
                        b_run[v] = u_tile[chunk][v];
                    }
                    weft::store<4>(a_i_n + i_m_run, a_run);
                    weft::store<4>(b_i_n + i_m_run, b_run);
                }
            }
        }
    }
}

#include "weft/memory.cuh"

// kernels_of_steps.py:45: def back_and_forth(u, steps: int):
extern "C" __global__ void __launch_bounds__(256) back_and_forth_2_t_1(
    const float* __restrict__ a,
    float* __restrict__ b,
    const int64_t a_stride_0,
    const int64_t b_stride_0,
    const int64_t n,
    const int64_t m) {
    // each thread takes 4 neighbouring columns, 2 times; blocks share the columns of a row
    const int32_t thread = threadIdx.x;
    const int32_t threads = blockDim.x;
    const int32_t tile_columns = threads * 8;
    for (int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y; row < weft::maximum<int64_t>(n - 1 - 1, 0); row += int64_t(gridDim.x) * blockDim.y) {
        const int64_t i = 1 + row;
        const float* const a_i = a + (i - 1) * a_stride_0;
        const float* const a_i_1 = a + (i + 1) * a_stride_0;
        const float* const a_i_2 = a + i * a_stride_0;
        float* const b_i = b + i * b_stride_0;
        for (int32_t tile = 1 / tile_columns * tile_columns + blockIdx.y * tile_columns; tile < m - 1; tile += gridDim.y * tile_columns) {
            float a_tile[2][4];
            float a_tile_1[2][4];
            float a_tile_2[2][4];
            float a_tile_3[2][4];
            #pragma unroll
            for (int32_t chunk = 0; chunk < 2; ++chunk) {
                const int32_t j_run = tile + chunk * threads * 4 + thread * 4;
                // kernels_of_steps.py:54: b[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])
                weft::unpack(weft::fetch_within<4>(a_i + j_run, 1, j_run - 1, m - 2), a_tile[chunk]);
                weft::unpack(weft::fetch_within<4>(a_i_1 + j_run, 1, j_run - 1, m - 2), a_tile_1[chunk]);
                weft::unpack(weft::fetch_within<4>(a_i_2 + j_run - 1, 1, j_run - 1, m - 2), a_tile_2[chunk]);
                weft::unpack(weft::fetch_within<4>(a_i_2 + j_run + 1, 1, j_run - 1, m - 2), a_tile_3[chunk]);
            }
            #pragma unroll
            for (int32_t chunk = 0; chunk < 2; ++chunk) {
                const int32_t j_run = tile + chunk * threads * 4 + thread * 4;
                #pragma unroll
                for (int32_t v = 0; v < 4; ++v) {
                    const int32_t j = j_run + v;
                    if (j >= 1 && j < m - 1) {
                        // kernels_of_steps.py:54: b[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])
                        b_i[j] = 0.25f * (a_tile[chunk][v] + a_tile_1[chunk][v] + a_tile_2[chunk][v] + a_tile_3[chunk][v]);
                    }
                }
            }
        }
    }
}

#include "weft/memory.cuh"

// kernels_of_steps.py:45: def back_and_forth(u, steps: int):
extern "C" __global__ void __launch_bounds__(256) back_and_forth_2_t_2(
    float* __restrict__ a,
    const float* __restrict__ b,
    const int64_t a_stride_0,
    const int64_t b_stride_0,
    const int64_t n,
    const int64_t m) {
    // each thread takes 4 neighbouring columns, 2 times; blocks share the columns of a row
    const int32_t thread = threadIdx.x;
    const int32_t threads = blockDim.x;
    const int32_t tile_columns = threads * 8;
    for (int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y; row < weft::maximum<int64_t>(n - 1 - 1, 0); row += int64_t(gridDim.x) * blockDim.y) {
        const int64_t i_1 = 1 + row;
        const float* const b_i_1 = b + (i_1 - 1) * b_stride_0;
        const float* const b_i_1_1 = b + (i_1 + 1) * b_stride_0;
        const float* const b_i_1_2 = b + i_1 * b_stride_0;
        float* const a_i_1 = a + i_1 * a_stride_0;
        for (int32_t tile = 1 / tile_columns * tile_columns + blockIdx.y * tile_columns; tile < m - 1; tile += gridDim.y * tile_columns) {
            float b_tile[2][4];
            float b_tile_1[2][4];
            float b_tile_2[2][4];
            float b_tile_3[2][4];
            #pragma unroll
            for (int32_t chunk = 0; chunk < 2; ++chunk) {
                const int32_t j_1_run = tile + chunk * threads * 4 + thread * 4;
                // kernels_of_steps.py:58: a[i, j] = 0.25 * (b[i - 1, j] + b[i + 1, j] + b[i, j - 1] + b[i, j + 1])
                weft::unpack(weft::fetch_within<4>(b_i_1 + j_1_run, 1, j_1_run - 1, m - 2), b_tile[chunk]);
                weft::unpack(weft::fetch_within<4>(b_i_1_1 + j_1_run, 1, j_1_run - 1, m - 2), b_tile_1[chunk]);
                weft::unpack(weft::fetch_within<4>(b_i_1_2 + j_1_run - 1, 1, j_1_run - 1, m - 2), b_tile_2[chunk]);
                weft::unpack(weft::fetch_within<4>(b_i_1_2 + j_1_run + 1, 1, j_1_run - 1, m - 2), b_tile_3[chunk]);
            }
            #pragma unroll
            for (int32_t chunk = 0; chunk < 2; ++chunk) {
                const int32_t j_1_run = tile + chunk * threads * 4 + thread * 4;
                #pragma unroll
                for (int32_t v = 0; v < 4; ++v) {
                    const int32_t j_1 = j_1_run + v;
                    if (j_1 >= 1 && j_1 < m - 1) {
                        // kernels_of_steps.py:58: a[i, j] = 0.25 * (b[i - 1, j] + b[i + 1, j] + b[i, j - 1] + b[i, j + 1])
                        a_i_1[j_1] = 0.25f * (b_tile[chunk][v] + b_tile_1[chunk][v] + b_tile_2[chunk][v] + b_tile_3[chunk][v]);
                    }
                }
            }
        }
    }
}
