#include "weft/matrix_tile.cuh"
#include "weft/team.cuh"
#include "weft/dependent.cuh"

// kernels_of_products.py:16: def product(a, b):
extern "C" __global__ void __launch_bounds__(128) product_parts(
    const double* __restrict__ a,
    const double* __restrict__ b,
    double* __restrict__ c,
    const int64_t a_stride_0,
    const int64_t b_stride_0,
    const int64_t c_stride_0,
    const int64_t a_size_0,
    const int64_t a_size_1,
    const int64_t b_size_1,
    double* s_parts,
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
    // 4 turns have a place in shared memory
    extern __shared__ __align__(1024) unsigned char memory[];
    auto* const a_tile = reinterpret_cast<weft::MatrixTile<double, 64, true>*>(memory);
    auto* const b_tile = reinterpret_cast<weft::MatrixTile<double, 64, false>*>(memory + 32768);
    double s_own[2][4][4] = {};
    const int32_t turns = (a_size_1 + 15) / 16;
    const auto bring = [&](const int32_t turn) {
        const int64_t first_point = int64_t(turn) * 16;
        #pragma unroll
        for (int32_t q = 0; q < 4; ++q) {
            const int32_t row = (threadIdx.x + q * 128) / 8, point = (threadIdx.x + q * 128) % 8 * 2;
            const int64_t i = first_row + row;
            const int64_t k = first_point + point;
            const bool here = i < a_size_0 && k < a_size_1;
            // kernels_of_products.py:22: s += a[i, k] * b[k, j]
            a_tile[turn % 4].copy(row, point, a + i * a_stride_0 + k, here);
        }
        #pragma unroll
        for (int32_t q = 0; q < 4; ++q) {
            const int32_t row = (threadIdx.x + q * 128) % 32 * 2, point = (threadIdx.x + q * 128) / 32;
            const int64_t j = first_column + row;
            const int64_t k = first_point + point;
            const bool here = j < b_size_1 && k < a_size_1;
            // kernels_of_products.py:22: s += a[i, k] * b[k, j]
            b_tile[turn % 4].copy(row, point, b + k * b_stride_0 + j, here);
        }
        weft::commit_copies();
    };
    const int32_t first_turn = int32_t(int64_t(part) * turns / 4);
    const int32_t stop = int32_t(int64_t(part + 1) * turns / 4);
    for (int32_t turn = first_turn; turn < first_turn + 3; ++turn) bring(turn);
    for (int32_t turn = first_turn; turn < stop; ++turn) {
        weft::wait_copies<2>();
        __syncthreads();  // all have what this turn takes, and are done with what the next copies replace
        #pragma unroll
        for (int32_t g = 0; g < 16; g += 8) {
            double a_own[2][4];
            #pragma unroll
            for (int32_t u = 0; u < 2; ++u) a_tile[turn % 4].left(own_row + u * 16, g, a_own[u]);
            double b_own[2][4];
            #pragma unroll
            for (int32_t u = 0; u < 2; ++u) b_tile[turn % 4].right(own_column + u * 16, g, b_own[u]);
            #pragma unroll
            for (int32_t u = 0; u < 2; ++u) {
                #pragma unroll
                for (int32_t v = 0; v < 4; ++v) {
                    weft::mma<double>(s_own[u][v], a_own[u], {b_own[v / 2][v % 2 * 2], b_own[v / 2][v % 2 * 2 + 1]});
                }
            }
            if (g == 0) bring(turn + 3);
        }
    }
    #pragma unroll
    for (int32_t h = 0; h < 4; ++h) {
        #pragma unroll
        for (int32_t u = 0; u < 4; ++u) {
            double part_run[2];
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
    const double* __restrict__ a,
    const double* __restrict__ b,
    double* __restrict__ c,
    const int64_t a_stride_0,
    const int64_t b_stride_0,
    const int64_t c_stride_0,
    const int64_t a_size_0,
    const int64_t a_size_1,
    const int64_t b_size_1,
    double* s_parts,
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
    double s_whole[2];
    #pragma unroll
    for (int32_t v = 0; v < 2; ++v) {
        s_whole[v] = weft::Sum<double>::identity();
    }
    #pragma unroll
    for (int32_t g = 0; g < 1; ++g) {
        double part_run[2];
        weft::unpack(weft::fetch<2, 2>(s_parts + ((int64_t(blockIdx.x / 64) * 4 + warp * 1 + g) * 64 + own_row) * 64 + own_column), part_run);
        #pragma unroll
        for (int32_t v = 0; v < 2; ++v) {
            s_whole[v] = weft::Sum<double>::combine(s_whole[v], part_run[v]);
        }
    }
    __shared__ __align__(16) double s_kept[4][32][2];
    #pragma unroll
    for (int32_t v = 0; v < 2; ++v) {
        s_kept[warp][threadIdx.x % 32][v] = s_whole[v];
    }
    __syncthreads();
    if (warp > 0) return;
    double s_whole_2[2];
    #pragma unroll
    for (int32_t v = 0; v < 2; ++v) {
        s_whole_2[v] = weft::Sum<double>::identity();
    }
    #pragma unroll
    for (int32_t g = 0; g < 4; ++g) {
        double part_run[2];
        weft::unpack(weft::fetch<2, 2>(s_kept[g][threadIdx.x]), part_run);
        #pragma unroll
        for (int32_t v = 0; v < 2; ++v) {
            s_whole_2[v] = weft::Sum<double>::combine(s_whole_2[v], part_run[v]);
        }
    }
    const int64_t j_run = first_column + own_column;
    if (j_run < b_size_1) {
        #pragma unroll
        for (int32_t u = 0; u < 1; ++u) {
            const int64_t i = first_row + own_row;
            if (!(i < a_size_0)) break;
            double c_run[2];
            #pragma unroll
            for (int32_t v = 0; v < 2; ++v) {
                // kernels_of_products.py:21: for k in range(a.shape[1]):
                const double s = s_whole_2[v];
                // kernels_of_products.py:23: c[i, j] = s
                c_run[v] = s;
            }
            weft::store<2>(c + i * c_stride_0 + j_run, c_run);
        }
    }
}
