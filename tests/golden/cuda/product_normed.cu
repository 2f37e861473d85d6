#include "weft/matrix_tile.cuh"
#include "weft/team.cuh"
#include "weft/dependent.cuh"

// kernels_of_products.py:753: def normed_linear(x, w, bias, g):
extern "C" __global__ void __launch_bounds__(160) normed_linear_1(
    const weft::bfloat16* __restrict__ x,
    const weft::bfloat16* __restrict__ w,
    float* __restrict__ total_4,
    const int64_t x_stride_0,
    const int64_t w_stride_0,
    const int64_t total_4_stride_0,
    const int64_t x_size_0,
    const int64_t x_size_1,
    const int64_t w_size_0,
    const __grid_constant__ weft::TensorMap x_map,
    const __grid_constant__ weft::TensorMap w_map) {
    weft::allow_launch_after();
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
    }
    __syncthreads();
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
                // kernels_of_products.py:761: total += x[i, k] * w[j, k]
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
        float total_3_own[1][32] = {};
        for (int32_t turn = 0; turn < turns; ++turn, ++step) {
            const int32_t place = step % 14;
            full[place].wait(step / 14 % 2);
            weft::wgmma_fence(total_3_own[0]);
            #pragma unroll
            for (int32_t g = 0; g < 64; g += 16) {
                // kernels_of_products.py:760: for k in range(x.shape[1]):
                weft::wgmma<weft::bfloat16>(total_3_own[0], x_tile[place].matrix(own_row, g), w_tile[place].matrix(own_column, g), true);
            }
            weft::wgmma_commit();
            weft::wgmma_wait<1>();  // the products of the turn before: their place is free
            empty[(step - 1) % 14].arrive_if(turn > 0 && threadIdx.x % 32 == 0);
        }
        weft::wgmma_wait<0>(total_3_own[0]);
        empty[(step - 1) % 14].arrive_if(threadIdx.x % 32 == 0);
        weft::exchange_quads(total_3_own[0]);
        #pragma unroll
        for (int32_t h = 0; h < 2; ++h) {
            const int64_t j_2_run = first_column + first_own_column + h * 32;
            if (j_2_run >= w_size_0) break;
            #pragma unroll
            for (int32_t u = 0; u < 2; ++u) {
                const int64_t i_1 = first_row + first_own_row + u % 2 * 8;
                if (!(i_1 < x_size_0)) break;
                float total_4_run[8];
                #pragma unroll
                for (int32_t v = 0; v < 8; ++v) {
                    // kernels_of_products.py:760: for k in range(x.shape[1]):
                    const float total_3 = total_3_own[u / 2][(h * 8 + v) / 2 * 4 + u % 2 * 2 + (h * 8 + v) % 2];
                    total_4_run[v] = total_3;
                }
                weft::store<4>(total_4 + i_1 * total_4_stride_0 + j_2_run, total_4_run);
            }
        }
    }
}

#include "weft/dependent.cuh"
#include "weft/memory.cuh"
#include "weft/team.cuh"

// kernels_of_products.py:753: def normed_linear(x, w, bias, g):
extern "C" __global__ void __launch_bounds__(128) normed_linear_2(
    const weft::bfloat16* __restrict__ bias,
    const weft::bfloat16* __restrict__ g,
    weft::bfloat16* __restrict__ y,
    float* total_4,
    const int64_t y_stride_0,
    const int64_t total_4_stride_0,
    const int64_t x_size_0,
    const int64_t w_size_0) {
    weft::await_launch_before();
    // 8 rows a block, 16 threads each; each thread holds 8 neighbouring points, 4 times
    const int64_t i_2 = int64_t(blockIdx.x) * 8 + threadIdx.y;
    if (i_2 >= x_size_0) return;
    float* total_4_i_2 = total_4 + i_2 * total_4_stride_0;
    weft::Run<float, 8> total_4_tile[4];
    #pragma unroll
    for (int32_t chunk = 0; chunk < 4; ++chunk) {
        const int32_t j_3_run = chunk * 128 + threadIdx.x * 8;
        // kernels_of_products.py:762: t[j] = total + bias[j]
        total_4_tile[chunk] = weft::fetch<8, 4>(total_4_i_2 + j_3_run);
    }
    weft::bfloat16* y_i_2 = y + i_2 * y_stride_0;
    float squares_3_own = weft::Sum<float>::identity();
    const weft::bfloat16* const bias_row = weft::opaque(bias);
    weft::Run<weft::bfloat16, 8> bias_packets[4];
    #pragma unroll
    for (int32_t chunk = 0; chunk < 4; ++chunk) {
        const int32_t j_3_run = chunk * 128 + threadIdx.x * 8;
        // kernels_of_products.py:762: t[j] = total + bias[j]
        float total_4_run[8];
        weft::unpack(total_4_tile[chunk], total_4_run);
        float bias_run[8];
        bias_packets[chunk] = weft::fetch<8, 8>(bias_row + j_3_run);
        weft::unpack(bias_packets[chunk], bias_run);
        #pragma unroll
        for (int32_t v = 0; v < 8; ++v) {
            const float t_1_1 = total_4_run[v] + bias_run[v];
            // kernels_of_products.py:758: for j in range(w.shape[0]):
            squares_3_own = weft::fma(t_1_1, t_1_1, squares_3_own);
        }
    }
    // kernels_of_products.py:758: for j in range(w.shape[0]):
    const float squares_3 = weft::reduce<weft::Sum<float>, 16>(squares_3_own, nullptr);
    // kernels_of_products.py:764: scale = torch.rsqrt(squares / w.shape[0] + 1e-6)
    const float scale_1 = weft::rsqrt(squares_3 / float(w_size_0) + 1e-06f);
    const weft::bfloat16* const g_row = weft::opaque(g);
    #pragma unroll
    for (int32_t chunk = 0; chunk < 4; ++chunk) {
        const int32_t j_3_run = chunk * 128 + threadIdx.x * 8;
        // kernels_of_products.py:762: t[j] = total + bias[j]
        float total_4_run_2[8];
        weft::unpack(total_4_tile[chunk], total_4_run_2);
        float bias_run_2[8];
        weft::unpack(bias_packets[chunk], bias_run_2);
        // kernels_of_products.py:766: y[i, j] = t[j] * scale * g[j]
        float g_run[8];
        weft::unpack(weft::fetch<8, 8>(g_row + j_3_run), g_run);
        float y_run[8];
        #pragma unroll
        for (int32_t v = 0; v < 8; ++v) {
            // kernels_of_products.py:762: t[j] = total + bias[j]
            const float t_1_1 = total_4_run_2[v] + bias_run_2[v];
            // kernels_of_products.py:766: y[i, j] = t[j] * scale * g[j]
            y_run[v] = t_1_1 * scale_1 * g_run[v];
        }
        weft::store<8>(y_i_2 + j_3_run, y_run);
    }
}
