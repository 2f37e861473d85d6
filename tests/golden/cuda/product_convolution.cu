#include "weft/matrix_tile.cuh"
#include "weft/team.cuh"
#include "weft/dependent.cuh"

// kernels_of_products.py:227: def convolution(x, w):
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
    weft::await_launch_before();
    weft::allow_launch_after();
    const int32_t f_own = int32_t(w_size_0);
    const int32_t c_own = int32_t(x_size_1);
    const int32_t p_own = int32_t(w_size_2);
    const int32_t q_own = int32_t(w_size_3);
    const int32_t points = c_own * p_own * q_own;
    // a thread packs 8 neighbours of a line
    const int32_t packets = (points + 7) / 8;
    const int32_t place = blockIdx.x * 256 + threadIdx.x;
    if (place >= f_own * packets) return;
    const int32_t pitch = (points + 63) / 64 * 64;
    const int64_t f = place / packets;
    const int32_t first = place % packets * 8;
    float run[8] = {};
    int64_t c = first / q_own / p_own;
    int64_t p = first / q_own % p_own;
    int64_t q_2 = first % q_own;
    if (q_2 + 8 <= q_own) {
        // kernels_of_products.py:240: s += x[n, c, i + p, j + q] * w[f, c, p, q]
        weft::unpack(weft::fetch_anywhere<8>(w + f * w_stride_0 + c * w_stride_1 + p * w_stride_2 + q_2, q_2, 0, q_own), run);
    }
    else {
        #pragma unroll
        for (int32_t e = 0; e < 8; ++e) {
            if (first + e < points) {
                // kernels_of_products.py:240: s += x[n, c, i + p, j + q] * w[f, c, p, q]
                const float w_value = float(w[f * w_stride_0 + c * w_stride_1 + p * w_stride_2 + q_2]);
                run[e] = w_value;
            }
            if (++q_2 == q_own) {
                q_2 = 0;
                if (++p == p_own) {
                    p = 0;
                    ++c;
                }
            }
        }
    }
    weft::store<8>(w_packed + int64_t(place / packets) * pitch + place % packets * 8, run);
}

// kernels_of_products.py:227: def convolution(x, w):
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
    weft::allow_launch_after();
    weft::await_launch_before();
    const int32_t c_own = int32_t(x_size_1);
    const int32_t p_own = int32_t(w_size_2);
    const int32_t q_own = int32_t(w_size_3);
    const int32_t n_own = int32_t(x_size_0);
    const int64_t i_count = weft::maximum<int64_t>(x_size_2 - w_size_2 + 1, 0);
    const int32_t i_own = int32_t(i_count);
    const int64_t j_count = weft::maximum<int64_t>(x_size_3 - w_size_3 + 1, 0);
    const int32_t j_own = int32_t(j_count);
    const int32_t points = n_own * i_own * j_own;
    // a thread packs 8 neighbours of a line
    const int32_t packets = (points + 7) / 8;
    const int32_t place = blockIdx.x * 256 + threadIdx.x;
    if (place >= c_own * p_own * q_own * packets) return;
    const int32_t pitch = (points + 63) / 64 * 64;
    const int64_t c = place / packets / q_own / p_own;
    const int64_t p = place / packets / q_own % p_own;
    const int64_t q_2 = place / packets % q_own;
    const int32_t first = place % packets * 8;
    float run[8] = {};
    int64_t n = first / j_own / i_own;
    int64_t i = first / j_own % i_own;
    int64_t j = first % j_own;
    if (j + 8 <= j_own) {
        // kernels_of_products.py:240: s += x[n, c, i + p, j + q] * w[f, c, p, q]
        weft::unpack(weft::fetch_anywhere<8>(x + n * x_stride_0 + c * x_stride_1 + (i + p) * x_stride_2 + j + q_2, j, 0, j_own), run);
    }
    else {
        #pragma unroll
        for (int32_t e = 0; e < 8; ++e) {
            if (first + e < points) {
                // kernels_of_products.py:240: s += x[n, c, i + p, j + q] * w[f, c, p, q]
                const float x_value = float(x[n * x_stride_0 + c * x_stride_1 + (i + p) * x_stride_2 + j + q_2]);
                run[e] = x_value;
            }
            if (++j == j_own) {
                j = 0;
                if (++i == i_own) {
                    i = 0;
                    ++n;
                }
            }
        }
    }
    weft::store<8>(x_packed + int64_t(place / packets) * pitch + place % packets * 8, run);
}

// kernels_of_products.py:227: def convolution(x, w):
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
    weft::allow_launch_after();
    weft::await_launch_before();
    // a block has 64 x 64 results, a warpgroup 64 x 64; a turn takes 64 points
    const int64_t i_count = weft::maximum<int64_t>(x_size_2 - w_size_2 + 1, 0);
    const int64_t j_count = weft::maximum<int64_t>(x_size_3 - w_size_3 + 1, 0);
    const int32_t n_own = int32_t(x_size_0);
    const int32_t i_own = int32_t(i_count);
    const int32_t j_own = int32_t(j_count);
    const int32_t columns = n_own * i_own * j_own;
    const int32_t c_own = int32_t(x_size_1);
    const int32_t p_own = int32_t(w_size_2);
    const int32_t q_own = int32_t(w_size_3);
    const int32_t points = c_own * p_own * q_own;
    const int32_t row_tiles = int32_t((w_size_0 + 63) / 64);
    const int32_t column_tiles = int32_t((columns + 63) / 64);
    // 13 turns have a place in shared memory
    extern __shared__ __align__(1024) unsigned char memory[];
    auto* const w_tile = reinterpret_cast<weft::MatrixTile<weft::bfloat16, 64, true>*>(memory);
    auto* const x_tile = reinterpret_cast<weft::MatrixTile<weft::bfloat16, 64, false>*>(memory + 106496);
    __shared__ weft::Mbarrier full[13], empty[13];
    if (threadIdx.x == 0) {
        for (int32_t place = 0; place < 13; ++place) {
            full[place].init(1);
            empty[place].init(4);
        }
        weft::fence_mbarrier_init();
        weft::prefetch(w_map);
        weft::prefetch(x_map);
    }
    __syncthreads();
    const int32_t squares = row_tiles * column_tiles;
    const int32_t turns = (points + 63) / 64;
    int32_t step = 0;  // turns of all squares so far
    if (threadIdx.x >= 128) {
        // this warp brings the tiles of all turns, as their places become free
        if (threadIdx.x > 128) return;
        for (int32_t square = blockIdx.x; square < squares; square += gridDim.x) {
            const int64_t first_row = int64_t(square % row_tiles) * 64;
            const int64_t first_column = int64_t(square / row_tiles) * 64;
            for (int32_t turn = 0; turn < turns; ++turn, ++step) {
                const int32_t place = step % 13;
                empty[place].wait((step / 13 % 2) ^ 1);
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
    for (int32_t square = blockIdx.x; square < squares; square += gridDim.x) {
        const int64_t first_row = int64_t(square % row_tiles) * 64;
        const int64_t first_column = int64_t(square / row_tiles) * 64;
        float s_own[1][32] = {};
        for (int32_t turn = 0; turn < turns; ++turn, ++step) {
            const int32_t place = step % 13;
            full[place].wait(step / 13 % 2);
            weft::wgmma_fence(s_own[0]);
            #pragma unroll
            for (int32_t g = 0; g < 64; g += 16) {
                // kernels_of_products.py:237: for c in range(x.shape[1]):
                weft::wgmma<weft::bfloat16, weft::Major::k, weft::Major::rows>(s_own[0], w_tile[place].matrix(own_row, g), x_tile[place].matrix(own_column, g), true);
            }
            weft::wgmma_commit();
            weft::wgmma_wait<1>();  // the products of the turn before: their place is free
            empty[(step - 1) % 13].arrive_if(turn > 0 && threadIdx.x % 32 == 0);
        }
        weft::wgmma_wait<0>(s_own[0]);
        empty[(step - 1) % 13].arrive_if(threadIdx.x % 32 == 0);
        weft::exchange_quads(s_own[0]);
        auto* const s_lines = reinterpret_cast<float(*)[36]>(memory + 212992) + threadIdx.x / 32 * 8;
        const int32_t lane = threadIdx.x % 32, line_row = lane / 4, line_column = lane % 4 * 8;
        #pragma unroll
        for (int32_t h = 0; h < 2; ++h) {
            #pragma unroll
            for (int32_t u = 0; u < 2; ++u) {
                #pragma unroll
                for (int32_t v = 0; v < 8; ++v) {
                    s_lines[line_row][line_column + v] = s_own[u / 2][(h * 8 + v) / 2 * 4 + u % 2 * 2 + (h * 8 + v) % 2];
                }
                __syncwarp();
                const int32_t first_line = weft::shuffle(first_own_row + u % 2 * 8, 0, 32);
                const int32_t own_column = weft::shuffle(first_own_column + h * 32, 0, 32) + lane;
                const int32_t own_column_place = int32_t(first_column + own_column);
                const int64_t n = own_column_place / j_own / i_own;
                const int64_t i = own_column_place / j_own % i_own;
                const int64_t j = own_column_place % j_own;
                if (own_column_place < columns) {
                    #pragma unroll
                    for (int32_t g = 0; g < 8; ++g) {
                        const int64_t f = first_row + first_line + g;
                        if (!(f < w_size_0)) break;
                        // kernels_of_products.py:237: for c in range(x.shape[1]):
                        const float s = s_lines[g][lane];
                        // kernels_of_products.py:241: y[n, f, i, j] = s
                        y[n * y_stride_0 + f * y_stride_1 + i * y_stride_2 + j] = s;
                    }
                }
                __syncwarp();  // all have read what the next lines replace
            }
        }
    }
}
