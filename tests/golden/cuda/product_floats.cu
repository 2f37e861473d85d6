#include "weft/parts.cuh"
#include "weft/team.cuh"
#include "weft/dependent.cuh"

// kernels_of_products.py:16: def product(a, b):
extern "C" __global__ void __launch_bounds__(256) product(
    const float* __restrict__ a,
    const float* __restrict__ b,
    float* __restrict__ c,
    const int64_t a_stride_0,
    const int64_t b_stride_0,
    const int64_t c_stride_0,
    const int64_t a_size_0,
    const int64_t a_size_1,
    const int64_t b_size_1) {
    weft::await_launch_before();
    // a block has 128 x 128 results, a warp 64 x 32; a turn takes 16 points
    const int32_t row_tiles = int32_t((a_size_0 + 127) / 128);
    const int32_t column_tiles = int32_t((b_size_1 + 127) / 128);
    const int32_t square = int32_t(blockIdx.x);
    const int32_t near_row = square / (8 * column_tiles) * 8;
    const int32_t near_rows = weft::minimum<int32_t>(row_tiles - near_row, 8);
    const int64_t first_row = int64_t(near_row + square % (8 * column_tiles) % near_rows) * 128;
    const int64_t first_column = int64_t(square % (8 * column_tiles) / near_rows) * 128;
    const int32_t own_row = threadIdx.x / 32 / 4 * 64, own_column = threadIdx.x / 32 % 4 * 32;  // of the warp
    const int32_t first_own_row = own_row + threadIdx.x % 32 / 4;
    const int32_t first_own_column = own_column + threadIdx.x % 4 * 2;
    __shared__ weft::PartsOfFloats<16, 128, 4> a_tile[2];
    weft::Run<float, 4> a_next[2];
    __shared__ weft::PartsOfFloats<16, 128> b_tile[2];
    weft::Run<float, 4> b_next[2];
    float s_own[4][4][4] = {};
    int32_t now = 0;
    for (int64_t first_point = 0;; first_point += 16) {
        if (first_point < a_size_1) {
            #pragma unroll
            for (int32_t q = 0; q < 2; ++q) {
                const int32_t row = (threadIdx.x + q * 256) / 4, point = (threadIdx.x + q * 256) % 4 * 4;
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
                const int32_t row = (threadIdx.x + q * 256) % 32 * 4, point = (threadIdx.x + q * 256) / 32;
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
        if (first_point > 0) {
            // kernels_of_products.py:21: for k in range(a.shape[1]):
            weft::multiply_floats(s_own, a_tile[now], b_tile[now], own_row, own_column, 0);
        }
        if (first_point >= a_size_1) break;
        now ^= 1;
        #pragma unroll
        for (int32_t q = 0; q < 2; ++q) {
            const int32_t row = (threadIdx.x + q * 256) / 4, point = (threadIdx.x + q * 256) % 4 * 4;
            float a_own_run[4];
            weft::unpack(a_next[q], a_own_run);
            a_tile[now].put_points(point, row, a_own_run);
        }
        #pragma unroll
        for (int32_t q = 0; q < 2; ++q) {
            const int32_t row = (threadIdx.x + q * 256) % 32 * 4, point = (threadIdx.x + q * 256) / 32;
            float b_own_run[4];
            weft::unpack(b_next[q], b_own_run);
            b_tile[now].put_rows(point, row, b_own_run);
        }
        __syncthreads();
    }
    if (!weft::all_finite(s_own)) {
        // what is infinite, or near the largest float, is no sum of such parts
        for (int32_t item = 0; item < 64; ++item) {
            if (weft::is_finite(weft::one_of(s_own, item))) continue;
            const int64_t i = first_row + first_own_row + item / 16 * 16 + item % 4 / 2 * 8;
            const int64_t j = first_column + first_own_column + item / 4 % 4 * 8 + item % 2;
            if (!(i < a_size_0 && j < b_size_1)) continue;
            float s_sum = weft::Sum<float>::identity();
            #pragma unroll 1
            for (int64_t k = 0; k < a_size_1; ++k) {
                // kernels_of_products.py:22: s += a[i, k] * b[k, j]
                const float a_value = a[i * a_stride_0 + k];
                const float b_value = b[k * b_stride_0 + j];
                // kernels_of_products.py:21: for k in range(a.shape[1]):
                s_sum = weft::fma(a_value, b_value, s_sum);
            }
            weft::set_one(s_own, item, s_sum);
        }
    }
    #pragma unroll
    for (int32_t h = 0; h < 4; ++h) {
        const int64_t j_run = first_column + first_own_column + h * 8;
        if (j_run >= b_size_1) break;
        #pragma unroll
        for (int32_t u = 0; u < 8; ++u) {
            const int64_t i = first_row + first_own_row + u % 2 * 8 + u / 2 * 16;
            if (!(i < a_size_0)) break;
            float c_run[2];
            #pragma unroll
            for (int32_t v = 0; v < 2; ++v) {
                // kernels_of_products.py:21: for k in range(a.shape[1]):
                const float s = s_own[u / 2][(h * 2 + v) / 2][u % 2 * 2 + (h * 2 + v) % 2];
                // kernels_of_products.py:23: c[i, j] = s
                c_run[v] = s;
            }
            weft::store<2>(c + i * c_stride_0 + j_run, c_run);
        }
    }
}
