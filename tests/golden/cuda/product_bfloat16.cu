#include "weft/matrix_tile.cuh"
#include "weft/team.cuh"
#include "weft/dependent.cuh"

// kernels_of_products.py:94: def linear_gelu(x, w, bias):
extern "C" __global__ void __launch_bounds__(160) linear_gelu(
    const weft::bfloat16* __restrict__ x,
    const weft::bfloat16* __restrict__ w,
    const weft::bfloat16* __restrict__ bias,
    weft::bfloat16* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t w_stride_0,
    const int64_t y_stride_0,
    const int64_t x_size_0,
    const int64_t x_size_1,
    const int64_t w_size_0,
    const __grid_constant__ weft::TensorMap x_map,
    const __grid_constant__ weft::TensorMap w_map) {
    // a block has 64 x 64 results, a warpgroup 64 x 64; a turn takes 64 points
    const int32_t row_tiles = int32_t((x_size_0 + 63) / 64);
    const int32_t column_tiles = int32_t((w_size_0 + 63) / 64);
    // 14 turns have a place in shared memory
    extern __shared__ __align__(1024) unsigned char memory[];
    auto* const x_tile = reinterpret_cast<weft::MatrixTile<weft::bfloat16, 64, true>*>(memory);
    auto* const w_tile = reinterpret_cast<weft::MatrixTile<weft::bfloat16, 64, true>*>(memory + 114688);
    __shared__ weft::Mbarrier full[14], empty[14];
    if (threadIdx.x == 0) {
        for (int32_t place = 0; place < 14; ++place) {
            full[place].init(1);
            empty[place].init(4);
        }
        weft::fence_mbarrier_init();
        weft::prefetch(x_map);
        weft::prefetch(w_map);
    }
    __syncthreads();
    weft::await_launch_before();
    weft::allow_launch_after();
    const int32_t squares = row_tiles * column_tiles;
    const int32_t turns = (x_size_1 + 63) / 64;
    int32_t step = 0;  // turns of all squares so far
    if (threadIdx.x >= 128) {
        // this warp brings the tiles of all turns, as their places become free
        if (threadIdx.x > 128) return;
        for (int32_t square = blockIdx.x; square < squares; square += gridDim.x) {
            const int32_t near_row = square / (8 * column_tiles) * 8;
            const int32_t near_rows = weft::minimum<int32_t>(row_tiles - near_row, 8);
            const int64_t first_row = int64_t(near_row + square % (8 * column_tiles) % near_rows) * 64;
            const int64_t first_column = int64_t(square % (8 * column_tiles) / near_rows) * 64;
            for (int32_t turn = 0; turn < turns; ++turn, ++step) {
                const int32_t place = step % 14;
                empty[place].wait((step / 14 % 2) ^ 1);
                full[place].arrive_expect(16384);
                // kernels_of_products.py:100: s += x[b, k] * w[n, k]
                weft::tensor_load(x_tile[place].element, x_map, full[place], turn * 64, int(first_row));
                weft::tensor_load(w_tile[place].element, w_map, full[place], turn * 64, int(first_column));
            }
        }
        return;
    }
    const int32_t own_row = threadIdx.x / 128 * 64, own_column = 0;  // of the warpgroup
    const int32_t first_own_row = own_row + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    const int32_t first_own_column = own_column + threadIdx.x % 4 * 8;
    for (int32_t square = blockIdx.x; square < squares; square += gridDim.x) {
        const int32_t near_row = square / (8 * column_tiles) * 8;
        const int32_t near_rows = weft::minimum<int32_t>(row_tiles - near_row, 8);
        const int64_t first_row = int64_t(near_row + square % (8 * column_tiles) % near_rows) * 64;
        const int64_t first_column = int64_t(square % (8 * column_tiles) / near_rows) * 64;
        float s_own[1][32] = {};
        for (int32_t turn = 0; turn < turns; ++turn, ++step) {
            const int32_t place = step % 14;
            full[place].wait(step / 14 % 2);
            weft::wgmma_fence(s_own[0]);
            #pragma unroll
            for (int32_t g = 0; g < 64; g += 16) {
                // kernels_of_products.py:99: for k in range(x.shape[1]):
                weft::wgmma<weft::bfloat16>(s_own[0], x_tile[place].matrix(own_row, g), w_tile[place].matrix(own_column, g), true);
            }
            weft::wgmma_commit();
            weft::wgmma_wait<1>();  // the products of the turn before: their place is free
            empty[(step - 1) % 14].arrive_if(turn > 0 && threadIdx.x % 32 == 0);
        }
        weft::wgmma_wait<0>(s_own[0]);
        empty[(step - 1) % 14].arrive_if(threadIdx.x % 32 == 0);
        weft::exchange_quads(s_own[0]);
        #pragma unroll
        for (int32_t h = 0; h < 2; ++h) {
            const int64_t n_run = first_column + first_own_column + h * 32;
            if (n_run >= w_size_0) break;
            // kernels_of_products.py:101: z = s + bias[n]
            float bias_run[8];
            weft::unpack(weft::fetch<8, 8>(bias + n_run), bias_run);
            #pragma unroll
            for (int32_t u = 0; u < 2; ++u) {
                const int64_t b = first_row + first_own_row + u % 2 * 8;
                if (!(b < x_size_0)) break;
                float y_run[8];
                #pragma unroll
                for (int32_t v = 0; v < 8; ++v) {
                    // kernels_of_products.py:99: for k in range(x.shape[1]):
                    const float s = s_own[u / 2][(h * 8 + v) / 2 * 4 + u % 2 * 2 + (h * 8 + v) % 2];
                    // kernels_of_products.py:101: z = s + bias[n]
                    const float z = s + bias_run[v];
                    // kernels_of_products.py:102: y[b, n] = 0.5 * z * (1.0 + math.erf(z * 0.7071067811865476))
                    y_run[v] = 0.5f * z * float(1.0 + weft::erf(double(z * 0.70710677f)));
                }
                weft::store<8>(y + b * y_stride_0 + n_run, y_run);
            }
        }
    }
}
