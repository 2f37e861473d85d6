#include "weft/product.cuh"
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
    weft::allow_launch_after();
    // a block has 64 x 32 results, a thread 4 x 4; a turn takes 32 points, 2 groups of threads share the points of a turn
    const int32_t row_tiles = int32_t((a_size_0 + 63) / 64);
    const int32_t column_tiles = int32_t((b_size_1 + 31) / 32);
    const int32_t square = int32_t(blockIdx.x);
    const int32_t near_row = square / (8 * column_tiles) * 8;
    const int32_t near_rows = weft::minimum<int32_t>(row_tiles - near_row, 8);
    const int64_t first_row = int64_t(near_row + square % (8 * column_tiles) % near_rows) * 64;
    const int64_t first_column = int64_t(square % (8 * column_tiles) / near_rows) * 32;
    const int32_t group = threadIdx.x / 128;
    const int32_t across = threadIdx.x / 2 % 8, down = threadIdx.x % 2 + threadIdx.x % 32 / 16 * 2 + threadIdx.x % 128 / 32 * 4;
    __shared__ weft::OperandTile<float, 32, 64, 4> a_tile[2];
    weft::Run<float, 4> a_next[2];
    __shared__ weft::OperandTile<float, 32, 32> b_tile[2];
    weft::Run<float, 4> b_next;
    float s_own[4][4];
    #pragma unroll
    for (int32_t u = 0; u < 4; ++u) {
        #pragma unroll
        for (int32_t v = 0; v < 4; ++v) {
            s_own[u][v] = weft::Sum<float>::identity();
        }
    }
    int32_t now = 0;
    for (int64_t first_point = 0;; first_point += 32) {
        if (first_point < a_size_1) {
            #pragma unroll
            for (int32_t q = 0; q < 2; ++q) {
                const int32_t row = (threadIdx.x + q * 256) / 8, point = (threadIdx.x + q * 256) % 8 * 4;
                const int64_t i = first_row + row;
                const int64_t k = first_point + point;
                const bool here = i < a_size_0 && k < a_size_1;
                a_next[q] = {};
                if (here) {
                    // kernels_of_products.py:22: s += a[i, k] * b[k, j]
                    a_next[q] = weft::fetch<4, 4>(a + i * a_stride_0 + k);
                }
            }
            {
                const int32_t row = threadIdx.x % 8 * 4, point = threadIdx.x / 8;
                const int64_t j = first_column + row;
                const int64_t k = first_point + point;
                const bool here = j < b_size_1 && k < a_size_1;
                b_next = {};
                if (here) {
                    // kernels_of_products.py:22: s += a[i, k] * b[k, j]
                    b_next = weft::fetch<4, 4>(b + k * b_stride_0 + j);
                }
            }
        }
        if (first_point > 0) {
            #pragma unroll
            for (int32_t g = 0; g < 16; ++g) {
                float a_own[4];
                a_tile[now].get<64>(group * 16 + g, 4 * down, a_own);
                float b_own[4];
                b_tile[now].get<32>(group * 16 + g, 4 * across, b_own);
                #pragma unroll
                for (int32_t u = 0; u < 4; ++u) {
                    #pragma unroll
                    for (int32_t v = 0; v < 4; ++v) {
                        // kernels_of_products.py:21: for k in range(a.shape[1]):
                        s_own[u][v] = weft::fma(a_own[u], b_own[v], s_own[u][v]);
                    }
                }
            }
        }
        if (first_point >= a_size_1) break;
        now ^= 1;
        #pragma unroll
        for (int32_t q = 0; q < 2; ++q) {
            const int32_t row = (threadIdx.x + q * 256) / 8, point = (threadIdx.x + q * 256) % 8 * 4;
            float a_own_run[4];
            weft::unpack(a_next[q], a_own_run);
            a_tile[now].put_points(point, row, a_own_run);
        }
        {
            const int32_t row = threadIdx.x % 8 * 4, point = threadIdx.x / 8;
            float b_own_run[4];
            weft::unpack(b_next, b_own_run);
            b_tile[now].put_rows(point, row, b_own_run);
        }
        __syncthreads();
    }
    __shared__ float s_parts[1][16][128];
    if (group > 0) {
        #pragma unroll
        for (int32_t u = 0; u < 4; ++u) {
            #pragma unroll
            for (int32_t v = 0; v < 4; ++v) {
                s_parts[group - 1][u * 4 + v][threadIdx.x % 128] = s_own[u][v];
            }
        }
    }
    __syncthreads();
    if (group > 0) return;
    #pragma unroll
    for (int32_t g = 0; g < 1; ++g) {
        #pragma unroll
        for (int32_t u = 0; u < 4; ++u) {
            #pragma unroll
            for (int32_t v = 0; v < 4; ++v) {
                s_own[u][v] = weft::Sum<float>::combine(s_own[u][v], s_parts[g][u * 4 + v][threadIdx.x]);
            }
        }
    }
    #pragma unroll
    for (int32_t h = 0; h < 1; ++h) {
        const int64_t j_run = first_column + 4 * across;
        if (j_run >= b_size_1) break;
        #pragma unroll
        for (int32_t u = 0; u < 4; ++u) {
            const int64_t i = first_row + 4 * down + u;
            if (!(i < a_size_0)) break;
            float c_run[4];
            #pragma unroll
            for (int32_t v = 0; v < 4; ++v) {
                // kernels_of_products.py:21: for k in range(a.shape[1]):
                const float s = s_own[u][h * 4 + v];
                // kernels_of_products.py:23: c[i, j] = s
                c_run[v] = s;
            }
            weft::store<4>(c + i * c_stride_0 + j_run, c_run);
        }
    }
}
