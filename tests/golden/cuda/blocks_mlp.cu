#include "weft/block.cuh"
#include "weft/team.cuh"
#include "weft/dependent.cuh"

// kernels_of_blocks.py:10: def mlp(x, w1, w2):  # type: ignore[no-untyped-def]
extern "C" __global__ void __launch_bounds__(128) mlp_1(
    const weft::float16* __restrict__ x,
    const weft::float16* __restrict__ w1,
    const weft::float16* __restrict__ w2,
    weft::float16* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t w1_stride_0,
    const int64_t w2_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t width,
    const int64_t w1_size_1,
    const int64_t w2_size_1) {
    weft::await_launch_before();
    weft::allow_launch_after();
    // a block has 32 of i, all of n, j in turns of 32, all of k
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t i_first = int64_t(blockIdx.x) * 32;
    extern __shared__ __align__(1024) unsigned char memory[];
    auto* const x_tile = reinterpret_cast<weft::BlockTile<weft::float16, 32, 64>*>(memory);
    auto* const w2_tile = reinterpret_cast<weft::BlockTile<weft::float16, 32, 64>*>(memory + 20480);  // 4 turns have a place
    auto* const w1_tile = reinterpret_cast<weft::BlockTile<weft::float16, 64, 32>*>(memory + 4096);  // 4 turns have a place
    auto* const acc_2_factor_tile = reinterpret_cast<weft::BlockTile<weft::float16, 32, 32>*>(memory + 36864);
    // kernels_of_blocks.py:17: acc += x[i, k] * w1[k, j]
    #pragma unroll
    for (int p = threadIdx.x; p < 256; p += 128) {
        const int line = p / 8, at = p % 8 * 8;
        const int64_t i = i_first + line;
        const int64_t k = at;
        x_tile->copy<8>(line, at, x + i * x_stride_0 + k, i < rows);
    }
    weft::commit_copies();
    weft::wait_copies<0>();
    __syncthreads();
    float acc_2_sums[2][2][4] = {};
    const int j_turns = int(weft::tiles<32>(w1_size_1));
    const auto bring = [&](int turn) {
        const int64_t j_first = int64_t(turn) * 32;
        // kernels_of_blocks.py:24: acc += h[i, j] * w2[j, n]
        #pragma unroll
        for (int p = threadIdx.x; p < 256; p += 128) {
            const int line = p / 8, at = p % 8 * 8;
            const int64_t j = j_first + line;
            const int64_t n = at;
            w2_tile[turn % 4].copy<8>(line, at, w2 + j * w2_stride_0 + n, true);
        }
        // kernels_of_blocks.py:17: acc += x[i, k] * w1[k, j]
        #pragma unroll
        for (int p = threadIdx.x; p < 256; p += 128) {
            const int line = p / 4, at = p % 4 * 8;
            const int64_t k = line;
            const int64_t j = j_first + at;
            w1_tile[turn % 4].copy<8>(line, at, w1 + k * w1_stride_0 + j, true);
        }
    };
    for (int turn = 0; turn < 3; ++turn) {
        if (turn < j_turns) bring(turn);
        weft::commit_copies();
    }
    for (int turn = 0; turn < j_turns; ++turn) {
        weft::wait_copies<2>();
        __syncthreads();  // what others have copied is there, and nobody reads the turn before any more
        if (turn + 3 < j_turns) bring(turn + 3);
        weft::commit_copies();
        float acc_sums[1][2][4] = {};
        // kernels_of_blocks.py:16: for k in range(width):
        weft::multiply_tiles<weft::float16, 64, true, false>(acc_sums, *x_tile, w1_tile[turn % 4], warp / 2 * 16, warp % 2 * 16);
        #pragma unroll
        for (int f = 0; f < 2; ++f) {
            const int row = warp / 2 * 16 + f * 8 + lane / 4;
            const int64_t i = i_first + row;
            #pragma unroll
            for (int g = 0; g < 2; ++g) {
                const int column = warp % 2 * 16 + g * 8 + lane % 4 * 2;
                float acc_2_factor_made[2] = {};
                if (i < rows) {
                    #pragma unroll
                    for (int v = 0; v < 2; ++v) {
                        // kernels_of_blocks.py:23: for j in range(w1.shape[1]):
                        const float acc_2_factor = weft::round_float16(weft::gelu(acc_sums[f / 2][g][f % 2 * 2 + v]));
                        acc_2_factor_made[v] = acc_2_factor;
                    }
                }
                acc_2_factor_tile->put<2>(row, column, acc_2_factor_made);
            }
        }
        __syncthreads();
        // kernels_of_blocks.py:23: for j in range(w1.shape[1]):
        weft::multiply_tiles<weft::float16, 32, true, false>(acc_2_sums, *acc_2_factor_tile, w2_tile[turn % 4], 0, warp % 4 * 16);
    }
    __syncthreads();
    #pragma unroll
    for (int f = 0; f < 4; ++f) {
        const int row = f * 8 + lane / 4;
        const int64_t i = i_first + row;
        #pragma unroll
        for (int g = 0; g < 2; ++g) {
            const int column = warp % 4 * 16 + g * 8 + lane % 4 * 2;
            const int64_t n = column;
            if (i < rows) {
                float y_made[2];
                #pragma unroll
                for (int v = 0; v < 2; ++v) {
                    y_made[v] = acc_2_sums[f / 2][g][f % 2 * 2 + v];
                }
                // kernels_of_blocks.py:25: y[i, n] = acc
                weft::store<2>(y + i * y_stride_0 + n, y_made);
            }
        }
    }
}
