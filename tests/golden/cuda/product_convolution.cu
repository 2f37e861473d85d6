#include "weft/matrix_tile.cuh"
#include "weft/team.cuh"

// kernels_of_products.py:212: def convolution(x, w):
extern "C" __global__ void __launch_bounds__(256) convolution_pack_1(
    const weft::bfloat16* __restrict__ x,
    const weft::bfloat16* __restrict__ w,
    weft::bfloat16* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t x_stride_1,
    const int64_t x_stride_2,
    const int64_t w_stride_0,
    const int64_t w_stride_1,
    const int64_t w_stride_2,
    const int64_t y_stride_0,
    const int64_t y_stride_1,
    const int64_t y_stride_2,
    const int64_t x_size_0,
    const int64_t x_size_1,
    const int64_t x_size_2,
    const int64_t x_size_3,
    const int64_t w_size_0,
    const int64_t w_size_2,
    const int64_t w_size_3,
    weft::bfloat16* w_packed,
    weft::bfloat16* x_packed,
    const int64_t parts) {
    const int64_t points = x_size_1 * w_size_2 * w_size_3;
    // a thread packs 8 neighbours of a line
    const int64_t packets = (points + 7) / 8;
    const int64_t place = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (place >= w_size_0 * packets) return;
    const int64_t f = place / packets;
    const int64_t first = place % packets * 8;
    float run[8] = {};
    int64_t c = first / w_size_3 / w_size_2;
    int64_t p = first / w_size_3 % w_size_2;
    int64_t q_2 = first % w_size_3;
    #pragma unroll
    for (int32_t e = 0; e < 8; ++e) {
        if (first + e < points) {
            // kernels_of_products.py:225: s += x[n, c, i + p, j + q] * w[f, c, p, q]
            const float w_value = float(w[f * w_stride_0 + c * w_stride_1 + p * w_stride_2 + q_2]);
            run[e] = w_value;
        }
        if (++q_2 == w_size_3) {
            q_2 = 0;
            if (++p == w_size_2) {
                p = 0;
                ++c;
            }
        }
    }
    weft::store<8>(w_packed + place * 8, run);
}

// kernels_of_products.py:212: def convolution(x, w):
extern "C" __global__ void __launch_bounds__(256) convolution_pack_2(
    const weft::bfloat16* __restrict__ x,
    const weft::bfloat16* __restrict__ w,
    weft::bfloat16* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t x_stride_1,
    const int64_t x_stride_2,
    const int64_t w_stride_0,
    const int64_t w_stride_1,
    const int64_t w_stride_2,
    const int64_t y_stride_0,
    const int64_t y_stride_1,
    const int64_t y_stride_2,
    const int64_t x_size_0,
    const int64_t x_size_1,
    const int64_t x_size_2,
    const int64_t x_size_3,
    const int64_t w_size_0,
    const int64_t w_size_2,
    const int64_t w_size_3,
    weft::bfloat16* w_packed,
    weft::bfloat16* x_packed,
    const int64_t parts) {
    const int64_t i_count = weft::maximum<int64_t>(x_size_2 - w_size_2 + 1, 0);
    const int64_t j_count = weft::maximum<int64_t>(x_size_3 - w_size_3 + 1, 0);
    const int64_t points = x_size_0 * i_count * j_count;
    // a thread packs 8 neighbours of a line
    const int64_t packets = (points + 7) / 8;
    const int64_t place = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (place >= x_size_1 * w_size_2 * w_size_3 * packets) return;
    const int64_t c = place / packets / w_size_3 / w_size_2;
    const int64_t p = place / packets / w_size_3 % w_size_2;
    const int64_t q_2 = place / packets % w_size_3;
    const int64_t first = place % packets * 8;
    float run[8] = {};
    int64_t n = first / j_count / i_count;
    int64_t i = first / j_count % i_count;
    int64_t j = first % j_count;
    #pragma unroll
    for (int32_t e = 0; e < 8; ++e) {
        if (first + e < points) {
            // kernels_of_products.py:225: s += x[n, c, i + p, j + q] * w[f, c, p, q]
            const float x_value = float(x[n * x_stride_0 + c * x_stride_1 + (i + p) * x_stride_2 + j + q_2]);
            run[e] = x_value;
        }
        if (++j == j_count) {
            j = 0;
            if (++i == i_count) {
                i = 0;
                ++n;
            }
        }
    }
    weft::store<8>(x_packed + place * 8, run);
}

// kernels_of_products.py:212: def convolution(x, w):
extern "C" __global__ void __launch_bounds__(160) convolution(
    const weft::bfloat16* __restrict__ x,
    const weft::bfloat16* __restrict__ w,
    weft::bfloat16* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t x_stride_1,
    const int64_t x_stride_2,
    const int64_t w_stride_0,
    const int64_t w_stride_1,
    const int64_t w_stride_2,
    const int64_t y_stride_0,
    const int64_t y_stride_1,
    const int64_t y_stride_2,
    const int64_t x_size_0,
    const int64_t x_size_1,
    const int64_t x_size_2,
    const int64_t x_size_3,
    const int64_t w_size_0,
    const int64_t w_size_2,
    const int64_t w_size_3,
    weft::bfloat16* w_packed,
    weft::bfloat16* x_packed,
    const int64_t parts,
    const __grid_constant__ weft::TensorMap w_map,
    const __grid_constant__ weft::TensorMap x_map) {
    // a block has 64 x 64 results, a warpgroup 64 x 64; a turn takes 64 points
    const int64_t i_count = weft::maximum<int64_t>(x_size_2 - w_size_2 + 1, 0);
    const int64_t j_count = weft::maximum<int64_t>(x_size_3 - w_size_3 + 1, 0);
    const int64_t columns = x_size_0 * i_count * j_count;
    const int64_t points = x_size_1 * w_size_2 * w_size_3;
    const int64_t row_tiles = (w_size_0 + 63) / 64;
    const int64_t column_tiles = (columns + 63) / 64;
    // 12 turns have a place in shared memory
    extern __shared__ __align__(1024) unsigned char memory[];
    auto* const w_tile = reinterpret_cast<weft::MatrixTile<weft::bfloat16, 64, true>*>(memory);
    auto* const x_tile = reinterpret_cast<weft::MatrixTile<weft::bfloat16, 64, false>*>(memory + 98304);
    __shared__ weft::Mbarrier full[12], empty[12];
    if (threadIdx.x == 0) {
        for (int32_t place = 0; place < 12; ++place) {
            full[place].init(1);
            empty[place].init(1);
        }
        weft::fence_mbarrier_init();
    }
    __syncthreads();
    const int64_t squares = row_tiles * column_tiles;
    const int32_t turns = (points + 63) / 64;
    int32_t step = 0;  // turns of all squares so far
    if (threadIdx.x >= 128) {
        // this warp brings the tiles of all turns, as their places become free
        if (threadIdx.x > 128) return;
        for (int64_t square = blockIdx.x; square < squares; square += gridDim.x) {
            const int64_t first_row = (square % row_tiles) * 64;
            const int64_t first_column = (square / row_tiles) * 64;
            for (int32_t turn = 0; turn < turns; ++turn, ++step) {
                const int32_t place = step % 12;
                empty[place].wait((step / 12 % 2) ^ 1);
                full[place].arrive_expect(16384);
                weft::tensor_load(w_tile[place].element, w_map, full[place], turn * 64, int(first_row), 0);
                weft::tensor_load(x_tile[place].element, x_map, full[place], int(first_column), turn * 64, 0);
            }
        }
        return;
    }
    const int32_t own_row = threadIdx.x / 128 * 64, own_column = 0;  // of the warpgroup
    const int32_t first_own_row = own_row + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    const int32_t first_own_column = own_column + threadIdx.x % 4 * 8;
    for (int64_t square = blockIdx.x; square < squares; square += gridDim.x) {
        const int64_t first_row = (square % row_tiles) * 64;
        const int64_t first_column = (square / row_tiles) * 64;
        float s_own[1][32] = {};
        for (int32_t turn = 0; turn < turns; ++turn, ++step) {
            const int32_t place = step % 12;
            full[place].wait(step / 12 % 2);
            weft::wgmma_fence(s_own[0]);
            #pragma unroll
            for (int32_t g = 0; g < 64; g += 16) {
                // kernels_of_products.py:222: for c in range(x.shape[1]):
                weft::wgmma<weft::bfloat16, weft::Major::k, weft::Major::rows>(s_own[0], w_tile[place].matrix(own_row, g), x_tile[place].matrix(own_column, g), true);
            }
            weft::wgmma_commit();
            weft::wgmma_wait<1>();  // the products of the turn before: their place is free
            if (turn > 0 && threadIdx.x % 128 == 0) empty[(step - 1) % 12].arrive();
        }
        weft::wgmma_wait<0>(s_own[0]);
        if (threadIdx.x % 128 == 0) empty[(step - 1) % 12].arrive();
        weft::exchange_quads(s_own[0]);
        #pragma unroll
        for (int32_t h = 0; h < 16; ++h) {
            const int64_t place_here = first_column + first_own_column + (h / 8) * 32 + h % 8;
            const int64_t n = place_here / j_count / i_count;
            const int64_t i = place_here / j_count % i_count;
            const int64_t j = place_here % j_count;
            if (!(place_here < columns)) break;
            #pragma unroll
            for (int32_t u = 0; u < 2; ++u) {
                const int64_t f = first_row + first_own_row + u % 2 * 8;
                if (!(f < w_size_0)) break;
                // kernels_of_products.py:222: for c in range(x.shape[1]):
                const float s = s_own[u / 2][h / 2 * 4 + u % 2 * 2 + h % 2];
                // kernels_of_products.py:226: y[n, f, i, j] = s
                y[n * y_stride_0 + f * y_stride_1 + i * y_stride_2 + j] = s;
            }
        }
    }
}
