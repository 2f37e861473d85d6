#include "weft/matrix_tile.cuh"
#include "weft/team.cuh"
#include "weft/dependent.cuh"

// kernels_of_products.py:698: def quantised_linear(x, w, of_rows, of_columns, bias):
extern "C" __global__ void __launch_bounds__(128) quantised_linear(
    const int8_t* __restrict__ x,
    const int8_t* __restrict__ w,
    const float* __restrict__ of_rows,
    const float* __restrict__ of_columns,
    const float* __restrict__ bias,
    weft::bfloat16* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t w_stride_0,
    const int64_t y_stride_0,
    const int64_t x_size_0,
    const int64_t x_size_1,
    const int64_t w_size_0) {
    weft::await_launch_before();
    weft::allow_launch_after();
    // a block has 64 x 64 results, a warp 32 x 32; a turn takes 128 points
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
    auto* const left_tile = reinterpret_cast<weft::MatrixTile<int8_t, 64, true>*>(memory);
    auto* const right_tile = reinterpret_cast<weft::MatrixTile<int8_t, 64, true>*>(memory + 32768);
    int32_t s_1_own[2][4][4] = {};
    const int32_t turns = (x_size_1 + 127) / 128;
    const auto bring = [&](const int32_t turn) {
        const int64_t first_point = int64_t(turn) * 128;
        #pragma unroll
        for (int32_t q = 0; q < 4; ++q) {
            const int32_t row = (threadIdx.x + q * 128) / 8, point = (threadIdx.x + q * 128) % 8 * 16;
            const int64_t i = first_row + row;
            const int64_t k = first_point + point;
            const bool here = i < x_size_0 && k < x_size_1;
            // kernels_of_products.py:704: s += x[i, k].to(torch.int32) * w[j, k].to(torch.int32)
            left_tile[turn % 4].copy(row, point, x + i * x_stride_0 + k, here);
        }
        #pragma unroll
        for (int32_t q = 0; q < 4; ++q) {
            const int32_t row = (threadIdx.x + q * 128) / 8, point = (threadIdx.x + q * 128) % 8 * 16;
            const int64_t j = first_column + row;
            const int64_t k = first_point + point;
            const bool here = j < w_size_0 && k < x_size_1;
            // kernels_of_products.py:704: s += x[i, k].to(torch.int32) * w[j, k].to(torch.int32)
            right_tile[turn % 4].copy(row, point, w + j * w_stride_0 + k, here);
        }
        weft::commit_copies();
    };
    for (int32_t turn = 0; turn < 0 + 3; ++turn) bring(turn);
    for (int32_t turn = 0; turn < turns; ++turn) {
        weft::wait_copies<2>();
        __syncthreads();  // all have what this turn takes, and are done with what the next copies replace
        bring(turn + 3);
        #pragma unroll
        for (int32_t g = 0; g < 128; g += 32) {
            uint32_t left_own[2][4];
            #pragma unroll
            for (int32_t u = 0; u < 2; ++u) left_tile[turn % 4].left(own_row + u * 16, g, left_own[u]);
            uint32_t right_own[2][4];
            #pragma unroll
            for (int32_t u = 0; u < 2; ++u) right_tile[turn % 4].right(own_column + u * 16, g, right_own[u]);
            #pragma unroll
            for (int32_t u = 0; u < 2; ++u) {
                #pragma unroll
                for (int32_t v = 0; v < 4; ++v) {
                    weft::mma<int8_t>(s_1_own[u][v], left_own[u], {right_own[v / 2][v % 2 * 2], right_own[v / 2][v % 2 * 2 + 1]});
                }
            }
        }
    }
    #pragma unroll
    for (int32_t h = 0; h < 4; ++h) {
        const int64_t j_run = first_column + first_own_column + h * 8;
        if (j_run >= w_size_0) break;
        // kernels_of_products.py:705: y[i, j] = s.to(torch.float32) * (of_rows[i] * of_columns[j]) + bias[j]
        float of_columns_run[2];
        weft::unpack(weft::fetch<2, 2>(of_columns + j_run), of_columns_run);
        float bias_run[2];
        weft::unpack(weft::fetch<2, 2>(bias + j_run), bias_run);
        #pragma unroll
        for (int32_t u = 0; u < 4; ++u) {
            const int64_t i = first_row + first_own_row + u % 2 * 8 + u / 2 * 16;
            if (!(i < x_size_0)) break;
            const float of_rows_value = of_rows[i];
            float y_run[2];
            #pragma unroll
            for (int32_t v = 0; v < 2; ++v) {
                // kernels_of_products.py:703: for k in range(x.shape[1]):
                const int32_t s_1 = s_1_own[u / 2][(h * 2 + v) / 2][u % 2 * 2 + (h * 2 + v) % 2];
                // kernels_of_products.py:705: y[i, j] = s.to(torch.float32) * (of_rows[i] * of_columns[j]) + bias[j]
                y_run[v] = weft::fma(float(s_1), of_rows_value * of_columns_run[v], bias_run[v]);
            }
            weft::store<2>(y + i * y_stride_0 + j_run, y_run);
        }
    }
}
