#include "weft/parts.cuh"
#include "weft/team.cuh"
#include "weft/dependent.cuh"

// kernels_of_products.py:16: def product(a, b):
extern "C" __global__ void __launch_bounds__(128) product_parts(
    const float* __restrict__ a,
    const float* __restrict__ b,
    float* __restrict__ c,
    const int64_t a_stride_0,
    const int64_t b_stride_0,
    const int64_t c_stride_0,
    const int64_t a_size_0,
    const int64_t a_size_1,
    const int64_t b_size_1,
    float* s_parts,
    const int64_t parts) {
    weft::await_launch_before();
    weft::allow_launch_after();
    // a block has 64 x 64 results, a warp 32 x 32; a turn takes 16 points
    const int32_t row_tiles = int32_t((a_size_0 + 63) / 64);
    const int32_t column_tiles = int32_t((b_size_1 + 63) / 64);
    const int32_t square = int32_t(blockIdx.x) / 4;
    const int32_t near_row = square / (8 * column_tiles) * 8;
    const int32_t near_rows = weft::minimum<int32_t>(row_tiles - near_row, 8);
    const int64_t first_row = int64_t(near_row + square % (8 * column_tiles) % near_rows) * 64;
    const int64_t first_column = int64_t(square % (8 * column_tiles) / near_rows) * 64;
    const int32_t part = int32_t(blockIdx.x % 4);
    const int32_t own_row = threadIdx.x / 32 / 2 * 32, own_column = threadIdx.x / 32 % 2 * 32;  // of the warp
    const int32_t first_own_row = own_row + threadIdx.x % 32 / 4;
    const int32_t first_own_column = own_column + threadIdx.x % 4 * 2;
    __shared__ weft::PartsOfFloats<16, 64, 4> a_tile[2];
    weft::Run<float, 4> a_next[2];
    __shared__ weft::PartsOfFloats<16, 64> b_tile[2];
    weft::Run<float, 4> b_next[2];
    float s_own[2][4][4] = {};
    const int64_t own_points = (a_size_1 + 63) / 64 * 16;
    const int64_t begin = part * own_points, stop = weft::minimum<int64_t>(begin + own_points, a_size_1);
    int32_t now = 0;
    for (int64_t first_point = begin;; first_point += 16) {
        if (first_point < stop) {
            #pragma unroll
            for (int32_t q = 0; q < 2; ++q) {
                const int32_t row = (threadIdx.x + q * 128) / 4, point = (threadIdx.x + q * 128) % 4 * 4;
                const int64_t i = first_row + row;
                const int64_t k = first_point + point;
                const bool here = i < a_size_0 && k < a_size_1;
                a_next[q] = {};
                if (here) {
                    // kernels_of_products.py:22: s += a[i, k] * b[k, j]
                    a_next[q] = weft::fetch<4, 4>(a + i * a_stride_0 + k);
                }
            }
            #pragma unroll
            for (int32_t q = 0; q < 2; ++q) {
                const int32_t row = (threadIdx.x + q * 128) % 16 * 4, point = (threadIdx.x + q * 128) / 16;
                const int64_t j = first_column + row;
                const int64_t k = first_point + point;
                const bool here = j < b_size_1 && k < a_size_1;
                b_next[q] = {};
                if (here) {
                    // kernels_of_products.py:22: s += a[i, k] * b[k, j]
                    b_next[q] = weft::fetch<4, 4>(b + k * b_stride_0 + j);
                }
            }
        }
        if (first_point > begin) {
            // kernels_of_products.py:21: for k in range(a.shape[1]):
            weft::multiply_floats(s_own, a_tile[now], b_tile[now], own_row, own_column, 0);
        }
        if (first_point >= stop) break;
        now ^= 1;
        #pragma unroll
        for (int32_t q = 0; q < 2; ++q) {
            const int32_t row = (threadIdx.x + q * 128) / 4, point = (threadIdx.x + q * 128) % 4 * 4;
            float a_own_run[4];
            weft::unpack(a_next[q], a_own_run);
            a_tile[now].put_points(point, row, a_own_run);
        }
        #pragma unroll
        for (int32_t q = 0; q < 2; ++q) {
            const int32_t row = (threadIdx.x + q * 128) % 16 * 4, point = (threadIdx.x + q * 128) / 16;
            float b_own_run[4];
            weft::unpack(b_next[q], b_own_run);
            b_tile[now].put_rows(point, row, b_own_run);
        }
        __syncthreads();
    }
    #pragma unroll
    for (int32_t h = 0; h < 4; ++h) {
        #pragma unroll
        for (int32_t u = 0; u < 4; ++u) {
            float part_run[2];
            #pragma unroll
            for (int32_t v = 0; v < 2; ++v) {
                part_run[v] = s_own[u / 2][(h * 2 + v) / 2][u % 2 * 2 + (h * 2 + v) % 2];
            }
            weft::store<2>(s_parts + ((int64_t(blockIdx.x) * 64 + first_own_row + u % 2 * 8 + u / 2 * 16) * 64 + first_own_column + h * 8), part_run);
        }
    }
}

// kernels_of_products.py:16: def product(a, b):
extern "C" __global__ void __launch_bounds__(128) product(
    const float* __restrict__ a,
    const float* __restrict__ b,
    float* __restrict__ c,
    const int64_t a_stride_0,
    const int64_t b_stride_0,
    const int64_t c_stride_0,
    const int64_t a_size_0,
    const int64_t a_size_1,
    const int64_t b_size_1,
    float* s_parts,
    const int64_t parts) {
    weft::allow_launch_after();
    // a block has 32 runs of columns; 4 warps share the parts of each
    const int32_t row_tiles = int32_t((a_size_0 + 63) / 64);
    const int32_t column_tiles = int32_t((b_size_1 + 63) / 64);
    const int32_t square = int32_t(blockIdx.x) / 64;
    const int32_t near_row = square / (8 * column_tiles) * 8;
    const int32_t near_rows = weft::minimum<int32_t>(row_tiles - near_row, 8);
    const int64_t first_row = int64_t(near_row + square % (8 * column_tiles) % near_rows) * 64;
    const int64_t first_column = int64_t(square % (8 * column_tiles) / near_rows) * 64;
    const int32_t warp = threadIdx.x / 32;
    const int32_t item = int32_t(blockIdx.x % 64) * 32 + threadIdx.x % 32;
    const int32_t own_row = item / 32, own_column = item % 32 * 2;
    weft::await_launch_before();
    float s_whole[2];
    #pragma unroll
    for (int32_t v = 0; v < 2; ++v) {
        s_whole[v] = weft::Sum<float>::identity();
    }
    #pragma unroll
    for (int32_t g = 0; g < 1; ++g) {
        float part_run[2];
        weft::unpack(weft::fetch<2, 2>(s_parts + ((int64_t(blockIdx.x / 64) * 4 + warp * 1 + g) * 64 + own_row) * 64 + own_column), part_run);
        #pragma unroll
        for (int32_t v = 0; v < 2; ++v) {
            s_whole[v] = weft::Sum<float>::combine(s_whole[v], part_run[v]);
        }
    }
    __shared__ __align__(16) float s_kept[4][32][2];
    #pragma unroll
    for (int32_t v = 0; v < 2; ++v) {
        s_kept[warp][threadIdx.x % 32][v] = s_whole[v];
    }
    __syncthreads();
    if (warp > 0) return;
    float s_whole_2[2];
    #pragma unroll
    for (int32_t v = 0; v < 2; ++v) {
        s_whole_2[v] = weft::Sum<float>::identity();
    }
    #pragma unroll
    for (int32_t g = 0; g < 4; ++g) {
        float part_run[2];
        weft::unpack(weft::fetch<2, 2>(s_kept[g][threadIdx.x]), part_run);
        #pragma unroll
        for (int32_t v = 0; v < 2; ++v) {
            s_whole_2[v] = weft::Sum<float>::combine(s_whole_2[v], part_run[v]);
        }
    }
    const int64_t j_run = first_column + own_column;
    if (j_run < b_size_1) {
        #pragma unroll
        for (int32_t u = 0; u < 1; ++u) {
            const int64_t i = first_row + own_row;
            if (!(i < a_size_0)) break;
            float c_run[2];
            #pragma unroll
            for (int32_t v = 0; v < 2; ++v) {
                const int64_t j = j_run + v;
                // kernels_of_products.py:21: for k in range(a.shape[1]):
                float s_sum = s_whole_2[v];
                if (!weft::is_finite(s_sum)) {
                    s_sum = weft::Sum<float>::identity();
                    #pragma unroll 1
                    for (int64_t k = 0; k < a_size_1; ++k) {
                        // kernels_of_products.py:22: s += a[i, k] * b[k, j]
                        const float a_value = a[i * a_stride_0 + k];
                        const float b_value = b[k * b_stride_0 + j];
                        // kernels_of_products.py:21: for k in range(a.shape[1]):
                        s_sum = weft::fma(a_value, b_value, s_sum);
                    }
                }
                const float s = s_sum;
                // kernels_of_products.py:23: c[i, j] = s
                c_run[v] = s;
            }
            weft::store<2>(c + i * c_stride_0 + j_run, c_run);
        }
    }
}
