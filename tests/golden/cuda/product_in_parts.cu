#include "weft/product.cuh"
#include "weft/team.cuh"
#include "weft/dependent.cuh"

// kernels_of_products.py:16: def product(a, b):
extern "C" __global__ void __launch_bounds__(256) product_parts(
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
    // a block has 64 x 32 results, a thread 4 x 4; a turn takes 32 points, 2 groups of threads share the points of a turn
    const int32_t row_tiles = int32_t((a_size_0 + 63) / 64);
    const int32_t column_tiles = int32_t((b_size_1 + 31) / 32);
    const int32_t square = int32_t(blockIdx.x) / 64;
    const int64_t first_row = int64_t(square % row_tiles) * 64;
    const int64_t first_column = int64_t(square / row_tiles) * 32;
    const int32_t part = int32_t(blockIdx.x % 64);
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
    const int64_t own_points = (a_size_1 + 2047) / 2048 * 32;
    const int64_t begin = part * own_points, stop = weft::minimum<int64_t>(begin + own_points, a_size_1);
    int32_t now = 0;
    for (int64_t first_point = begin;; first_point += 32) {
        if (first_point < stop) {
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
        if (first_point > begin) {
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
        if (first_point >= stop) break;
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
    __shared__ float s_parts_2[1][16][128];
    if (group > 0) {
        #pragma unroll
        for (int32_t u = 0; u < 4; ++u) {
            #pragma unroll
            for (int32_t v = 0; v < 4; ++v) {
                s_parts_2[group - 1][u * 4 + v][threadIdx.x % 128] = s_own[u][v];
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
                s_own[u][v] = weft::Sum<float>::combine(s_own[u][v], s_parts_2[g][u * 4 + v][threadIdx.x]);
            }
        }
    }
    #pragma unroll
    for (int32_t h = 0; h < 1; ++h) {
        #pragma unroll
        for (int32_t u = 0; u < 4; ++u) {
            float part_run[4];
            #pragma unroll
            for (int32_t v = 0; v < 4; ++v) {
                part_run[v] = s_own[u][h * 4 + v];
            }
            weft::store<4>(s_parts + ((int64_t(blockIdx.x) * 64 + 4 * down + u) * 32 + 4 * across), part_run);
        }
    }
}

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
    const int64_t b_size_1,
    float* s_parts,
    const int64_t parts) {
    weft::allow_launch_after();
    // a block has 32 runs of columns; 8 warps share the parts of each
    const int32_t row_tiles = int32_t((a_size_0 + 63) / 64);
    const int32_t column_tiles = int32_t((b_size_1 + 31) / 32);
    const int32_t square = int32_t(blockIdx.x) / 16;
    const int64_t first_row = int64_t(square % row_tiles) * 64;
    const int64_t first_column = int64_t(square / row_tiles) * 32;
    const int32_t warp = threadIdx.x / 32;
    const int32_t item = int32_t(blockIdx.x % 16) * 32 + threadIdx.x % 32;
    const int32_t own_row = item / 8, own_column = item % 8 * 4;
    weft::await_launch_before();
    float s_whole[4];
    #pragma unroll
    for (int32_t v = 0; v < 4; ++v) {
        s_whole[v] = weft::Sum<float>::identity();
    }
    #pragma unroll
    for (int32_t g = 0; g < 8; ++g) {
        float part_run[4];
        weft::unpack(weft::fetch<4, 4>(s_parts + ((int64_t(blockIdx.x / 16) * 64 + warp * 8 + g) * 64 + own_row) * 32 + own_column), part_run);
        #pragma unroll
        for (int32_t v = 0; v < 4; ++v) {
            s_whole[v] = weft::Sum<float>::combine(s_whole[v], part_run[v]);
        }
    }
    __shared__ __align__(16) float s_kept[8][32][4];
    #pragma unroll
    for (int32_t v = 0; v < 4; ++v) {
        s_kept[warp][threadIdx.x % 32][v] = s_whole[v];
    }
    __syncthreads();
    if (warp > 0) return;
    float s_whole_2[4];
    #pragma unroll
    for (int32_t v = 0; v < 4; ++v) {
        s_whole_2[v] = weft::Sum<float>::identity();
    }
    #pragma unroll
    for (int32_t g = 0; g < 8; ++g) {
        float part_run[4];
        weft::unpack(weft::fetch<4, 4>(s_kept[g][threadIdx.x]), part_run);
        #pragma unroll
        for (int32_t v = 0; v < 4; ++v) {
            s_whole_2[v] = weft::Sum<float>::combine(s_whole_2[v], part_run[v]);
        }
    }
    const int64_t j_run = first_column + own_column;
    if (j_run < b_size_1) {
        #pragma unroll
        for (int32_t u = 0; u < 1; ++u) {
            const int64_t i = first_row + own_row;
            if (!(i < a_size_0)) break;
            float c_run[4];
            #pragma unroll
            for (int32_t v = 0; v < 4; ++v) {
                // kernels_of_products.py:21: for k in range(a.shape[1]):
                const float s = s_whole_2[v];
                // kernels_of_products.py:23: c[i, j] = s
                c_run[v] = s;
            }
            weft::store<4>(c + i * c_stride_0 + j_run, c_run);
        }
    }
}
