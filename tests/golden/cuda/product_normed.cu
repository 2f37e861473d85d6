#include "weft/across.cuh"
#include "weft/matrix_tile.cuh"
#include "weft/registers.cuh"
#include "weft/team.cuh"
#include "weft/dependent.cuh"

// kernels_of_products.py:753: def normed_linear(x, w, bias, g):
extern "C" __global__ void __launch_bounds__(384, 1) normed_linear(
    const weft::bfloat16* __restrict__ x,
    const weft::bfloat16* __restrict__ w,
    const weft::bfloat16* __restrict__ bias,
    const weft::bfloat16* __restrict__ g_2,
    weft::bfloat16* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t w_stride_0,
    const int64_t y_stride_0,
    const int64_t x_size_0,
    const int64_t x_size_1,
    const int64_t w_size_0,
    uint64_t* squares_told,
    const int64_t parts,
    const __grid_constant__ weft::TensorMap x_map,
    const __grid_constant__ weft::TensorMap w_map) {
    // a block has 128 x 256 results, a warpgroup 64 x 256; a turn takes 64 points
    const int32_t row_tiles = int32_t((x_size_0 + 127) / 128);
    const int32_t column_tiles = int32_t((w_size_0 + 255) / 256);
    // 4 turns have a place in shared memory
    extern __shared__ __align__(1024) unsigned char memory[];
    auto* const x_tile = reinterpret_cast<weft::MatrixTile<weft::bfloat16, 128, true>*>(memory);
    auto* const w_tile = reinterpret_cast<weft::MatrixTile<weft::bfloat16, 256, true>*>(memory + 65536);
    __shared__ weft::Mbarrier full[4], empty[4];
    if (threadIdx.x == 0) {
        for (int32_t place = 0; place < 4; ++place) {
            full[place].init(1);
            empty[place].init(8);
        }
        weft::fence_mbarrier_init();
        weft::prefetch(x_map);
        weft::prefetch(w_map);
    }
    weft::await_launch_before();
    weft::allow_launch_after();
    const int32_t squares = row_tiles * column_tiles;
    weft::clear_told<128>(squares_told, squares);
    const uint32_t round = weft::arrive_at_grid();
    const int32_t turns = (x_size_1 + 63) / 64;
    int32_t step = 0;  // turns of all squares so far
    if (threadIdx.x >= 256) {
        // this warp brings the tiles of all turns, as their places become free
        weft::decrease_registers<40>();
        if (threadIdx.x > 256) return;
        for (int32_t square = blockIdx.x; square < squares; square += gridDim.x) {
            const int32_t part = square % column_tiles;
            const int64_t first_row = int64_t(square / column_tiles) * 128;
            const int64_t first_column = int64_t(part) * 256;
            for (int32_t turn = 0; turn < turns; ++turn, ++step) {
                const int32_t place = step % 4;
                empty[place].wait((step / 4 % 2) ^ 1);
                full[place].arrive_expect(49152);
                // kernels_of_products.py:761: total += x[i, k] * w[j, k]
                weft::tensor_load(x_tile[place].element, x_map, full[place], turn * 64, int(first_row));
                weft::tensor_load(w_tile[place].element, w_map, full[place], turn * 64, int(first_column));
            }
        }
        return;
    }
    weft::increase_registers<232>();
    const int32_t own_row = threadIdx.x / 128 * 64, own_column = 0;  // of the warpgroup
    const int32_t first_own_row = own_row + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    const int32_t first_own_column = own_column + threadIdx.x % 4 * 8;
    for (int32_t square = blockIdx.x; square < squares; square += gridDim.x) {
        const int32_t part = square % column_tiles;
        const int64_t first_row = int64_t(square / column_tiles) * 128;
        const int64_t first_column = int64_t(part) * 256;
        float total_own[1][128] = {};
        for (int32_t turn = 0; turn < turns; ++turn, ++step) {
            const int32_t place = step % 4;
            full[place].wait(step / 4 % 2);
            weft::wgmma_fence(total_own[0]);
            #pragma unroll
            for (int32_t g = 0; g < 64; g += 16) {
                // kernels_of_products.py:760: for k in range(x.shape[1]):
                weft::wgmma<weft::bfloat16>(total_own[0], x_tile[place].matrix(own_row, g), w_tile[place].matrix(own_column, g), true);
            }
            weft::wgmma_commit();
            weft::wgmma_wait<1>();  // the products of the turn before: their place is free
            empty[(step - 1) % 4].arrive_if(turn > 0 && threadIdx.x % 32 == 0);
        }
        weft::wgmma_wait<0>(total_own[0]);
        empty[(step - 1) % 4].arrive_if(threadIdx.x % 32 == 0);
        weft::exchange_quads(total_own[0]);
        float squares_of_rows[2];
        #pragma unroll
        for (int32_t u = 0; u < 2; ++u) {
            squares_of_rows[u] = weft::Sum<float>::identity();
        }
        weft::Run<weft::bfloat16, 8> bias_ahead[8][1];
        const auto fetch_ahead = [&](const int32_t h) {
            const int64_t j_run = first_column + first_own_column + h * 32;
            // kernels_of_products.py:762: t[j] = total + bias[j]
            bias_ahead[h % 8][0] = weft::fetch_if<8, 8>(j_run < w_size_0, bias + j_run);
        };
        #pragma unroll
        for (int32_t h = 0; h < 7; ++h) {
            fetch_ahead(h);
        }
        #pragma unroll
        for (int32_t h = 0; h < 8; ++h) {
            const int64_t j_run_2 = first_column + first_own_column + h * 32;
            if (j_run_2 >= w_size_0) break;
            // kernels_of_products.py:762: t[j] = total + bias[j]
            float bias_run[8];
            weft::unpack(bias_ahead[h % 8][0], bias_run);
            if (h + 7 < 8) fetch_ahead(h + 7);
            #pragma unroll
            for (int32_t u = 0; u < 2; ++u) {
                const int64_t i = first_row + first_own_row + u % 2 * 8;
                if (!(i < x_size_0)) break;
                #pragma unroll
                for (int32_t v = 0; v < 8; ++v) {
                    // kernels_of_products.py:760: for k in range(x.shape[1]):
                    const float total = total_own[u / 2][(h * 8 + v) / 2 * 4 + u % 2 * 2 + (h * 8 + v) % 2];
                    // kernels_of_products.py:762: t[j] = total + bias[j]
                    const float t_1 = total + bias_run[v];
                    // kernels_of_products.py:758: for j in range(w.shape[0]):
                    squares_of_rows[u] = weft::fma(t_1, t_1, squares_of_rows[u]);
                }
            }
        }
        weft::Run<weft::bfloat16, 8> bias_ahead_2[4][1];
        weft::Run<weft::bfloat16, 8> g_ahead[4][1];
        const auto fetch_ahead_2 = [&](const int32_t h) {
            const int64_t j_run_3 = first_column + first_own_column + h * 32;
            // kernels_of_products.py:762: t[j] = total + bias[j]
            bias_ahead_2[h % 4][0] = weft::fetch_if<8, 8>(j_run_3 < w_size_0, bias + j_run_3);
            // kernels_of_products.py:766: y[i, j] = t[j] * scale * g[j]
            g_ahead[h % 4][0] = weft::fetch_if<8, 8>(j_run_3 < w_size_0, g_2 + j_run_3);
        };
        #pragma unroll
        for (int32_t h = 0; h < 3; ++h) {
            fetch_ahead_2(h);
        }
        if (square < int32_t(gridDim.x)) {
            if (threadIdx.x % 32 == 0) weft::wait_for_grid(round);  // all blocks have cleared theirs
            __syncwarp();
        }
        weft::combine_across<weft::Sum<float>, 4, 128>(squares_of_rows, squares_told + int64_t(square - part) * 128, part, first_own_row);
        #pragma unroll
        for (int32_t h = 0; h < 8; ++h) {
            const int64_t j_run_4 = first_column + first_own_column + h * 32;
            if (j_run_4 >= w_size_0) break;
            // kernels_of_products.py:762: t[j] = total + bias[j]
            float bias_run_2[8];
            weft::unpack(bias_ahead_2[h % 4][0], bias_run_2);
            // kernels_of_products.py:766: y[i, j] = t[j] * scale * g[j]
            float g_run[8];
            weft::unpack(g_ahead[h % 4][0], g_run);
            if (h + 3 < 8) fetch_ahead_2(h + 3);
            #pragma unroll
            for (int32_t u = 0; u < 2; ++u) {
                const int64_t i = first_row + first_own_row + u % 2 * 8;
                if (!(i < x_size_0)) break;
                const float squares_2 = squares_of_rows[u];
                // kernels_of_products.py:764: scale = torch.rsqrt(squares / w.shape[0] + 1e-6)
                const float scale = weft::rsqrt(squares_2 / float(w_size_0) + 1e-06f);
                float y_run[8];
                #pragma unroll
                for (int32_t v = 0; v < 8; ++v) {
                    // kernels_of_products.py:760: for k in range(x.shape[1]):
                    const float total = total_own[u / 2][(h * 8 + v) / 2 * 4 + u % 2 * 2 + (h * 8 + v) % 2];
                    // kernels_of_products.py:762: t[j] = total + bias[j]
                    const float t_1 = total + bias_run_2[v];
                    // kernels_of_products.py:766: y[i, j] = t[j] * scale * g[j]
                    y_run[v] = t_1 * scale * g_run[v];
                }
                weft::store<8>(y + i * y_stride_0 + j_run_4, y_run);
            }
        }
    }
}
