#include "weft/cluster.cuh"
#include "weft/matrix_tile.cuh"
#include "weft/team.cuh"

// kernels_of_products.py:16: def product(a, b):
extern "C" __global__ void __launch_bounds__(288) __cluster_dims__(8, 1, 1) product(
    const weft::bfloat16* __restrict__ a,
    const weft::bfloat16* __restrict__ b,
    weft::bfloat16* __restrict__ c,
    const int64_t a_stride_0,
    const int64_t b_stride_0,
    const int64_t c_stride_0,
    const int64_t a_size_0,
    const int64_t a_size_1,
    const int64_t b_size_1,
    const __grid_constant__ weft::TensorMap a_map,
    const __grid_constant__ weft::TensorMap b_map) {
    // a block has 128 x 128 results, a warpgroup 64 x 128; a turn takes 64 points
    const int64_t row_tiles = (a_size_0 + 127) / 128;
    const int64_t column_tiles = (b_size_1 + 127) / 128;
    // 4 turns have a place in shared memory
    extern __shared__ __align__(1024) unsigned char memory[];
    auto* const a_tile = reinterpret_cast<weft::MatrixTile<weft::bfloat16, 128, true>*>(memory);
    auto* const b_tile = reinterpret_cast<weft::MatrixTile<weft::bfloat16, 128, false>*>(memory + 65536);
    __shared__ weft::Mbarrier full[4], empty[4];
    if (threadIdx.x == 0) {
        for (int32_t place = 0; place < 4; ++place) {
            full[place].init(1);
            empty[place].init(2);
        }
        weft::fence_mbarrier_init();
    }
    __syncthreads();
    const int64_t square = int64_t(blockIdx.x) / 8;
    const int64_t near_row = square / (4 * column_tiles) * 4;
    const int64_t near_rows = weft::minimum<int64_t>(row_tiles - near_row, 4);
    const int64_t first_row = (near_row + square % (4 * column_tiles) % near_rows) * 128;
    const int64_t first_column = (square % (4 * column_tiles) / near_rows) * 128;
    const int32_t part = int32_t(blockIdx.x % 8);
    const int32_t turns = (a_size_1 + 63) / 64;
    int32_t step = 0;  // turns of all squares so far
    const int32_t first_turn = int32_t(int64_t(part) * turns / 8);
    const int32_t stop = int32_t(int64_t(part + 1) * turns / 8);
    auto* const s_met = reinterpret_cast<float(*)[132]>(memory + 131072);
    if (threadIdx.x == 256) {
        // this warp brings the tiles of all turns, as their places become free
        for (int32_t turn = first_turn; turn < stop; ++turn, ++step) {
            const int32_t place = step % 4;
            empty[place].wait((step / 4 % 2) ^ 1);
            full[place].arrive_expect(32768);
            // kernels_of_products.py:22: s += a[i, k] * b[k, j]
            weft::tensor_load(a_tile[place].element, a_map, full[place], turn * 64, int(first_row));
            weft::tensor_load(b_tile[place].element, b_map, full[place], int(first_column), turn * 64);
            weft::tensor_load(b_tile[place].element + 4096, b_map, full[place], int(first_column + 64), turn * 64);
        }
    }
    else if (threadIdx.x < 256) {
        const int32_t own_row = threadIdx.x / 128 * 64, own_column = 0;  // of the warpgroup
        const int32_t first_own_row = own_row + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
        const int32_t first_own_column = own_column + threadIdx.x % 4 * 8;
        float s_own[1][64] = {};
        for (int32_t turn = first_turn; turn < stop; ++turn, ++step) {
            const int32_t place = step % 4;
            full[place].wait(step / 4 % 2);
            weft::wgmma_fence(s_own[0]);
            #pragma unroll
            for (int32_t g = 0; g < 64; g += 16) {
                // kernels_of_products.py:21: for k in range(a.shape[1]):
                weft::wgmma<weft::bfloat16, weft::Major::k, weft::Major::rows>(s_own[0], a_tile[place].matrix(own_row, g), b_tile[place].matrix(own_column, g), true);
            }
            weft::wgmma_commit();
            weft::wgmma_wait<1>();  // the products of the turn before: their place is free
            if (turn > first_turn && threadIdx.x % 128 == 0) empty[(step - 1) % 4].arrive();
        }
        weft::wgmma_wait<0>(s_own[0]);
        weft::exchange_quads(s_own[0]);
        #pragma unroll
        for (int32_t h = 0; h < 4; ++h) {
            #pragma unroll
            for (int32_t u = 0; u < 2; ++u) {
                #pragma unroll
                for (int32_t v = 0; v < 8; ++v) {
                    s_met[first_own_row + u % 2 * 8][first_own_column + h * 32 + v] = s_own[u / 2][(h * 8 + v) / 2 * 4 + u % 2 * 2 + (h * 8 + v) % 2];
                }
            }
        }
    }
    __syncwarp();
    weft::cluster_sync();
    for (int32_t item = part * 288 + threadIdx.x; item < 2048; item += 2304) {
        const int32_t own_row = item / 16, own_column = item % 16 * 8;
        float s_whole[8];
        #pragma unroll
        for (int32_t v = 0; v < 8; ++v) {
            s_whole[v] = weft::Sum<float>::identity();
        }
        #pragma unroll
        for (int32_t g = 0; g < 8; ++g) {
            float part_run[8];
            weft::unpack(weft::fetch<8, 4>(weft::peer(&s_met[own_row][own_column], g)), part_run);
            #pragma unroll
            for (int32_t v = 0; v < 8; ++v) {
                s_whole[v] = weft::Sum<float>::combine(s_whole[v], part_run[v]);
            }
        }
        #pragma unroll
        for (int32_t h = 0; h < 1; ++h) {
            const int64_t j_run = first_column + own_column;
            if (j_run >= b_size_1) break;
            #pragma unroll
            for (int32_t u = 0; u < 1; ++u) {
                const int64_t i = first_row + own_row;
                if (!(i < a_size_0)) break;
                float c_run[8];
                #pragma unroll
                for (int32_t v = 0; v < 8; ++v) {
                    // kernels_of_products.py:21: for k in range(a.shape[1]):
                    const float s = s_whole[h * 8 + v];
                    // kernels_of_products.py:23: c[i, j] = s
                    c_run[v] = s;
                }
                weft::store<8>(c + i * c_stride_0 + j_run, c_run);
            }
        }
    }
    weft::cluster_sync();  // others may read what this block has
}
