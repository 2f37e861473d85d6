#include "weft/byte_tile.cuh"
#include "weft/matrix_tile.cuh"
#include "weft/team.cuh"
#include "weft/dependent.cuh"

// kernels_of_products.py:647: def of_bytes(a, b):
extern "C" __global__ void __launch_bounds__(256) of_bytes_pack(
    const int8_t* __restrict__ a,
    const int8_t* __restrict__ b,
    int32_t* __restrict__ c,
    const int64_t a_stride_0,
    const int64_t b_stride_0,
    const int64_t c_stride_0,
    const int64_t a_size_0,
    const int64_t a_size_1,
    const int64_t b_size_1,
    int8_t* right_packed,
    const int64_t parts) {
    weft::await_launch_before();
    weft::allow_launch_after();
    const int32_t j_own = int32_t(b_size_1);
    const int32_t k_own = int32_t(a_size_1);
    // a block turns 128 points of 128 rows, which memory has side by side
    __shared__ weft::ByteTile tile;
    const int32_t squares = (j_own + 127) / 128;
    const int32_t first_row = blockIdx.x % squares * 128, first_point = blockIdx.x / squares * 128;
    #pragma unroll
    for (int32_t q = 0; q < 4; ++q) {
        const int32_t packet = threadIdx.x + q * 256, across = packet % 8;
        const int64_t j = first_row + across * 16;
        const int64_t k = first_point + packet / 8;
        weft::Run<int8_t, 16> run = {};
        // kernels_of_products.py:653: s += a[i, k].to(torch.int32) * b[k, j].to(torch.int32)
        if (j < j_own && k < k_own) run = weft::fetch_anywhere<16>(b + k * b_stride_0 + j, j, 0, j_own);
        tile.put(packet / 8, across, run);
    }
    __syncthreads();
    const int32_t across = threadIdx.x % 8, down = threadIdx.x / 8;
    weft::Packet<uint32_t, 4> line[4];
    tile.get(across * 16, down, line);
    const int32_t packets = (k_own + 15) / 16, place = first_point / 16 + across;
    const int32_t pitch = (k_own + 127) / 128 * 128;
    #pragma unroll
    for (int32_t v = 0; v < 4; ++v) {
        const int32_t row = first_row + down * 4 + v;
        if (row >= j_own || place >= packets) break;
        weft::put(reinterpret_cast<uint32_t*>(right_packed + int64_t(row) * pitch + place * 16), line[v]);
    }
}

// kernels_of_products.py:647: def of_bytes(a, b):
extern "C" __global__ void __launch_bounds__(160) of_bytes(
    const int8_t* __restrict__ a,
    const int8_t* __restrict__ b,
    int32_t* __restrict__ c,
    const int64_t a_stride_0,
    const int64_t b_stride_0,
    const int64_t c_stride_0,
    const int64_t a_size_0,
    const int64_t a_size_1,
    const int64_t b_size_1,
    int8_t* right_packed,
    const int64_t parts,
    const __grid_constant__ weft::TensorMap left_map,
    const __grid_constant__ weft::TensorMap right_map) {
    weft::allow_launch_after();
    weft::await_launch_before();
    // a block has 64 x 64 results, a warpgroup 64 x 64; a turn takes 128 points
    const int32_t row_tiles = int32_t((a_size_0 + 63) / 64);
    const int32_t column_tiles = int32_t((b_size_1 + 63) / 64);
    // 14 turns have a place in shared memory
    extern __shared__ __align__(1024) unsigned char memory[];
    auto* const left_tile = reinterpret_cast<weft::MatrixTile<int8_t, 64, true>*>(memory);
    auto* const right_tile = reinterpret_cast<weft::MatrixTile<int8_t, 64, true>*>(memory + 114688);
    __shared__ weft::Mbarrier full[14], empty[14];
    if (threadIdx.x == 0) {
        for (int32_t place = 0; place < 14; ++place) {
            full[place].init(1);
            empty[place].init(4);
        }
        weft::fence_mbarrier_init();
        weft::prefetch(left_map);
        weft::prefetch(right_map);
    }
    __syncthreads();
    const int32_t squares = row_tiles * column_tiles;
    const int32_t turns = (a_size_1 + 127) / 128;
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
                // kernels_of_products.py:653: s += a[i, k].to(torch.int32) * b[k, j].to(torch.int32)
                weft::tensor_load(left_tile[place].element, left_map, full[place], turn * 128, int(first_row));
                weft::tensor_load(right_tile[place].element, right_map, full[place], turn * 128, int(first_column), 0);
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
        int32_t s_1_own[1][32] = {};
        for (int32_t turn = 0; turn < turns; ++turn, ++step) {
            const int32_t place = step % 14;
            full[place].wait(step / 14 % 2);
            weft::wgmma_fence(s_1_own[0]);
            #pragma unroll
            for (int32_t g = 0; g < 128; g += 32) {
                // kernels_of_products.py:652: for k in range(a.shape[1]):
                weft::wgmma<int8_t>(s_1_own[0], left_tile[place].matrix(own_row, g), right_tile[place].matrix(own_column, g), true);
            }
            weft::wgmma_commit();
            weft::wgmma_wait<1>();  // the products of the turn before: their place is free
            empty[(step - 1) % 14].arrive_if(turn > 0 && threadIdx.x % 32 == 0);
        }
        weft::wgmma_wait<0>(s_1_own[0]);
        empty[(step - 1) % 14].arrive_if(threadIdx.x % 32 == 0);
        weft::exchange_quads(s_1_own[0]);
        #pragma unroll
        for (int32_t h = 0; h < 2; ++h) {
            const int64_t j_run = first_column + first_own_column + h * 32;
            if (j_run >= b_size_1) break;
            #pragma unroll
            for (int32_t u = 0; u < 2; ++u) {
                const int64_t i = first_row + first_own_row + u % 2 * 8;
                if (!(i < a_size_0)) break;
                int32_t c_run[8];
                #pragma unroll
                for (int32_t v = 0; v < 8; ++v) {
                    // kernels_of_products.py:652: for k in range(a.shape[1]):
                    const int32_t s_1 = s_1_own[u / 2][(h * 8 + v) / 2 * 4 + u % 2 * 2 + (h * 8 + v) % 2];
                    // kernels_of_products.py:654: c[i, j] = s
                    c_run[v] = s_1;
                }
                weft::store<4>(c + i * c_stride_0 + j_run, c_run);
            }
        }
    }
}
