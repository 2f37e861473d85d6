#include "weft/fragment.cuh"
#include "weft/team.cuh"
#include "weft/dependent.cuh"

// kernels_of_products.py:94: def linear_gelu(x, w, bias):
extern "C" __global__ void __launch_bounds__(256, 1) linear_gelu(
    const weft::bfloat16* __restrict__ x,
    const weft::bfloat16* __restrict__ w,
    const weft::bfloat16* __restrict__ bias,
    weft::bfloat16* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t w_stride_0,
    const int64_t y_stride_0,
    const int64_t x_size_0,
    const int64_t x_size_1,
    const int64_t w_size_0) {
    weft::await_launch_before();
    // a block has 8 x 16 results, a thread 2 columns; 8 warps share the points
    const int32_t column_tiles = int32_t((w_size_0 + 15) / 16);
    const int64_t first_column = int64_t(int32_t(blockIdx.x)) * 16;
    const int32_t warp = threadIdx.x / 32, across = threadIdx.x % 32 / 4, down = threadIdx.x % 4;
    float s_own[1][1][4] = {};
    for (int64_t first_point = warp * 128; first_point < x_size_1; first_point += 1024) {
        weft::Run<weft::bfloat16, 8> w_own[4][2];
        #pragma unroll
        for (int32_t q = 0; q < 4; ++q) {
            #pragma unroll
            for (int32_t v = 0; v < 2; ++v) {
                const int64_t n = first_column + across * 2 + v;
                const int64_t k = first_point + (q * 4 + down) * 8;
                w_own[q][v] = {};
                // kernels_of_products.py:100: s += x[b, k] * w[n, k]
                if (n < w_size_0 && k < x_size_1) w_own[q][v] = weft::fetch<8, 8>(w + n * w_stride_0 + k);
            }
        }
        #pragma unroll
        for (int32_t q = 0; q < 4; ++q) {
            weft::Run<weft::bfloat16, 8> x_own[1];
            #pragma unroll
            for (int32_t u = 0; u < 1; ++u) {
                x_own[u] = {};
                const int64_t b = u * 8 + across;
                const int64_t k = first_point + (q * 4 + down) * 8;
                // kernels_of_products.py:100: s += x[b, k] * w[n, k]
                if (b < x_size_0 && k < x_size_1) x_own[u] = weft::fetch<8, 8>(x + b * x_stride_0 + k);
            }
            // kernels_of_products.py:99: for k in range(x.shape[1]):
            weft::multiply_points<weft::bfloat16>(s_own, x_own, w_own[q]);
        }
    }
    __shared__ __align__(16) float s_kept[8][8][16];
    #pragma unroll
    for (int32_t v = 0; v < 1; ++v) {
        #pragma unroll
        for (int32_t u = 0; u < 1; ++u) {
            #pragma unroll
            for (int32_t e = 0; e < 4; ++e) {
                s_kept[warp][u * 8 + down * 2 + e % 2][across * 2 + v * 2 + e / 2] = s_own[v][u][e];
            }
        }
    }
    __syncthreads();
    for (int32_t item = threadIdx.x; item < 32; item += 256) {
        const int32_t own_row = item / 4, own_column = item % 4 * 4;
        float s_whole[4];
        #pragma unroll
        for (int32_t v = 0; v < 4; ++v) {
            s_whole[v] = weft::Sum<float>::identity();
        }
        #pragma unroll
        for (int32_t g = 0; g < 8; ++g) {
            float part_run[4];
            weft::unpack(weft::fetch<4, 4>(&s_kept[g][own_row][own_column]), part_run);
            #pragma unroll
            for (int32_t v = 0; v < 4; ++v) {
                s_whole[v] = weft::Sum<float>::combine(s_whole[v], part_run[v]);
            }
        }
        const int64_t n_run = first_column + own_column;
        if (n_run < w_size_0) {
            // kernels_of_products.py:101: z = s + bias[n]
            float bias_run[4];
            weft::unpack(weft::fetch<4, 4>(bias + n_run), bias_run);
            #pragma unroll
            for (int32_t u = 0; u < 1; ++u) {
                const int64_t b = own_row;
                if (!(b < x_size_0)) break;
                float y_run[4];
                #pragma unroll
                for (int32_t v = 0; v < 4; ++v) {
                    // kernels_of_products.py:99: for k in range(x.shape[1]):
                    const float s = s_whole[v];
                    // kernels_of_products.py:101: z = s + bias[n]
                    const float z = s + bias_run[v];
                    // kernels_of_products.py:102: y[b, n] = 0.5 * z * (1.0 + math.erf(z * 0.7071067811865476))
                    y_run[v] = 0.5f * z * float(1.0 + weft::erf(double(z * 0.70710677f)));
                }
                weft::store<4>(y + b * y_stride_0 + n_run, y_run);
            }
        }
    }
}
