#include "weft/matrix_tile.cuh"
#include "weft/team.cuh"
#include "weft/dependent.cuh"

// kernels_of_products.py:94: def linear_gelu(x, w, bias):
extern "C" __global__ void __launch_bounds__(128) linear_gelu(
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
    weft::allow_launch_after();
    // a block has 64 x 64 results, a warp 32 x 32; a turn takes 64 points
    const int32_t row_tiles = int32_t((x_size_0 + 63) / 64);
    const int32_t column_tiles = int32_t((w_size_0 + 63) / 64);
    const int32_t square = int32_t(blockIdx.x);
    const int32_t near_row = square / (8 * column_tiles) * 8;
    const int32_t near_rows = weft::minimum<int32_t>(row_tiles - near_row, 8);
    const int64_t first_row = int64_t(near_row + square % (8 * column_tiles) % near_rows) * 64;
    const int64_t first_column = int64_t(square % (8 * column_tiles) / near_rows) * 64;
    const int32_t own_row = threadIdx.x / 32 / 2 * 32, own_column = threadIdx.x / 32 % 2 * 32;  // of the warp
    const int32_t first_own_row = own_row + threadIdx.x % 32 / 4;
    const int32_t first_own_column = own_column + threadIdx.x % 4 * 2;
    // 4 turns have a place in shared memory
    extern __shared__ __align__(1024) unsigned char memory[];
    auto* const x_tile = reinterpret_cast<weft::MatrixTile<weft::bfloat16, 64, true>*>(memory);
    auto* const w_tile = reinterpret_cast<weft::MatrixTile<weft::bfloat16, 64, true>*>(memory + 32768);
    float s_own[2][4][4] = {};
    const int32_t turns = (x_size_1 + 63) / 64;
    const auto bring = [&](const int32_t turn) {
        const int64_t first_point = int64_t(turn) * 64;
        #pragma unroll
        for (int32_t q = 0; q < 4; ++q) {
            const int32_t row = (threadIdx.x + q * 128) / 8, point = (threadIdx.x + q * 128) % 8 * 8;
            const int64_t b = first_row + row;
            const int64_t k = first_point + point;
            const bool here = b < x_size_0 && k < x_size_1;
            // kernels_of_products.py:100: s += x[b, k] * w[n, k]
            x_tile[turn % 4].copy(row, point, x + b * x_stride_0 + k, here);
        }
        #pragma unroll
        for (int32_t q = 0; q < 4; ++q) {
            const int32_t row = (threadIdx.x + q * 128) / 8, point = (threadIdx.x + q * 128) % 8 * 8;
            const int64_t n = first_column + row;
            const int64_t k = first_point + point;
            const bool here = n < w_size_0 && k < x_size_1;
            // kernels_of_products.py:100: s += x[b, k] * w[n, k]
            w_tile[turn % 4].copy(row, point, w + n * w_stride_0 + k, here);
        }
        weft::commit_copies();
    };
    for (int32_t turn = 0; turn < 0 + 3; ++turn) bring(turn);
    for (int32_t turn = 0; turn < turns; ++turn) {
        weft::wait_copies<2>();
        __syncthreads();  // all have what this turn takes, and are done with what the next copies replace
        bring(turn + 3);
        #pragma unroll
        for (int32_t g = 0; g < 64; g += 16) {
            uint32_t x_own[2][4];
            #pragma unroll
            for (int32_t u = 0; u < 2; ++u) x_tile[turn % 4].left(own_row + u * 16, g, x_own[u]);
            uint32_t w_own[2][4];
            #pragma unroll
            for (int32_t u = 0; u < 2; ++u) w_tile[turn % 4].right(own_column + u * 16, g, w_own[u]);
            #pragma unroll
            for (int32_t u = 0; u < 2; ++u) {
                #pragma unroll
                for (int32_t v = 0; v < 4; ++v) {
                    weft::mma<weft::bfloat16>(s_own[u][v], x_own[u], {w_own[v / 2][v % 2 * 2], w_own[v / 2][v % 2 * 2 + 1]});
                }
            }
        }
    }
    #pragma unroll
    for (int32_t h = 0; h < 4; ++h) {
        const int64_t n_run = first_column + first_own_column + h * 8;
        if (n_run >= w_size_0) break;
        // kernels_of_products.py:101: z = s + bias[n]
        float bias_run[2];
        weft::unpack(weft::fetch<2, 2>(bias + n_run), bias_run);
        #pragma unroll
        for (int32_t u = 0; u < 4; ++u) {
            const int64_t b = first_row + first_own_row + u % 2 * 8 + u / 2 * 16;
            if (!(b < x_size_0)) break;
            float y_run[2];
            #pragma unroll
            for (int32_t v = 0; v < 2; ++v) {
                // kernels_of_products.py:99: for k in range(x.shape[1]):
                const float s = s_own[u / 2][(h * 2 + v) / 2][u % 2 * 2 + (h * 2 + v) % 2];
                // kernels_of_products.py:101: z = s + bias[n]
                const float z = s + bias_run[v];
                // kernels_of_products.py:102: y[b, n] = 0.5 * z * (1.0 + math.erf(z * 0.7071067811865476))
                y_run[v] = 0.5f * z * float(1.0 + weft::erf(double(z * 0.70710677f)));
            }
            weft::store<2>(y + b * y_stride_0 + n_run, y_run);
        }
    }
}
