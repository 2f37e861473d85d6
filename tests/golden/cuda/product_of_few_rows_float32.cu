#include "weft/cluster.cuh"
#include "weft/memory.cuh"
#include "weft/team.cuh"
#include "weft/dependent.cuh"

// kernels_of_products.py:16: def product(a, b):
extern "C" __global__ void __launch_bounds__(256, 1) __cluster_dims__(8, 1, 1) product(
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
    // a block has 4 x 32 results, a thread 4 columns; 8 warps share the points
    const int32_t column_tiles = int32_t((b_size_1 + 31) / 32);
    const int64_t first_column = int64_t(int32_t(blockIdx.x) / 8) * 32;
    const int32_t part = int32_t(blockIdx.x % 8);
    const int32_t warp = threadIdx.x / 32, across = threadIdx.x % 32 / 4, down = threadIdx.x % 4;
    float s_own[4][4];
    #pragma unroll
    for (int32_t u = 0; u < 4; ++u) {
        #pragma unroll
        for (int32_t v = 0; v < 4; ++v) {
            s_own[u][v] = weft::Sum<float>::identity();
        }
    }
    const int64_t own_points = (a_size_1 + 127) / 128 * 16;
    const int64_t stop = weft::minimum<int64_t>((part + 1) * own_points, a_size_1);
    for (int64_t first_point = part * own_points + warp * 32; first_point < stop; first_point += 256) {
        weft::Run<float, 4> b_own[2][4];
        #pragma unroll
        for (int32_t q = 0; q < 2; ++q) {
            #pragma unroll
            for (int32_t v = 0; v < 4; ++v) {
                const int64_t j = first_column + across * 4;
                const int64_t k = first_point + (q * 4 + down) * 4 + v;
                b_own[q][v] = {};
                // kernels_of_products.py:22: s += a[i, k] * b[k, j]
                if (j < b_size_1 && k < stop) b_own[q][v] = weft::fetch<4, 4>(b + k * b_stride_0 + j);
            }
        }
        #pragma unroll
        for (int32_t q = 0; q < 2; ++q) {
            float b_own_run[4][4];
            #pragma unroll
            for (int32_t v = 0; v < 4; ++v) {
                weft::unpack(b_own[q][v], b_own_run[v]);
            }
            #pragma unroll
            for (int32_t u = 0; u < 4; ++u) {
                float a_own_run[4] = {};
                const int64_t i = u;
                const int64_t k = first_point + (q * 4 + down) * 4;
                if (i < a_size_0 && k < stop) {
                    // kernels_of_products.py:22: s += a[i, k] * b[k, j]
                    weft::unpack(weft::fetch<4, 4>(a + i * a_stride_0 + k), a_own_run);
                }
                #pragma unroll
                for (int32_t e = 0; e < 4; ++e) {
                    #pragma unroll
                    for (int32_t v = 0; v < 4; ++v) {
                        // kernels_of_products.py:21: for k in range(a.shape[1]):
                        s_own[u][v] = weft::fma(a_own_run[e], b_own_run[e][v], s_own[u][v]);
                    }
                }
            }
        }
    }
    __shared__ __align__(16) float s_kept[8][4][32];
    #pragma unroll
    for (int32_t u = 0; u < 4; ++u) {
        #pragma unroll
        for (int32_t v = 0; v < 4; ++v) {
            const auto s_lanes = weft::reduce_lanes<weft::Sum<float>, 4>(s_own[u][v]);
            if (down == (u + v) % 4) s_kept[warp][u][across * 4 + v] = s_lanes;
        }
    }
    weft::cluster_sync();
    for (int32_t item = part * 256 + threadIdx.x; item < 32; item += 2048) {
        const int32_t own_row = item / 8, own_column = item % 8 * 4;
        float s_whole[4];
        #pragma unroll
        for (int32_t v = 0; v < 4; ++v) {
            s_whole[v] = weft::Sum<float>::identity();
        }
        #pragma unroll
        for (int32_t g = 0; g < 64; ++g) {
            float part_run[4];
            weft::unpack(weft::fetch<4, 4>(weft::peer(&s_kept[g % 8][own_row][own_column], g / 8)), part_run);
            #pragma unroll
            for (int32_t v = 0; v < 4; ++v) {
                s_whole[v] = weft::Sum<float>::combine(s_whole[v], part_run[v]);
            }
        }
        const int64_t j_run = first_column + own_column;
        if (j_run < b_size_1) {
            #pragma unroll
            for (int32_t u = 0; u < 1; ++u) {
                const int64_t i = own_row;
                if (!(i < a_size_0)) break;
                float c_run[4];
                #pragma unroll
                for (int32_t v = 0; v < 4; ++v) {
                    // kernels_of_products.py:21: for k in range(a.shape[1]):
                    const float s = s_whole[v];
                    // kernels_of_products.py:23: c[i, j] = s
                    c_run[v] = s;
                }
                weft::store<4>(c + i * c_stride_0 + j_run, c_run);
            }
        }
    }
    weft::cluster_sync();  // others may read what this block has
}
