#include "weft/atomic.cuh"
#include "weft/bounds.cuh"
#include "weft/matrix_tile.cuh"
#include "weft/power.cuh"
#include "weft/registers.cuh"
#include "weft/team.cuh"
#include "weft/within.cuh"
#include "weft/dependent.cuh"

// attention.py:53: def causal(q, k, v, scale: float):
extern "C" __global__ void __launch_bounds__(128) causal_adjoint_1_tickets(
    const weft::bfloat16* __restrict__ q,
    const weft::bfloat16* __restrict__ k,
    float* __restrict__ power_saved,
    const int64_t q_stride_0,
    const int64_t q_stride_1,
    const int64_t k_stride_0,
    const int64_t k_stride_1,
    const int64_t power_saved_stride_0,
    const int64_t batch_2,
    const int64_t queries,
    const int64_t width,
    const double scale,
    uint32_t* tickets,
    const int64_t parts) {
    weft::await_launch_before();
    weft::allow_launch_after();
    // no tile is taken but the first ones
    // parts: of the blocks, each of which begins with the tile that has its number
    if (threadIdx.x == 0) tickets[0] = parts;
}

// attention.py:53: def causal(q, k, v, scale: float):
extern "C" __global__ void __launch_bounds__(512, 1) causal_adjoint_1(
    const weft::bfloat16* __restrict__ q,
    const weft::bfloat16* __restrict__ k,
    float* __restrict__ power_saved,
    const int64_t q_stride_0,
    const int64_t q_stride_1,
    const int64_t k_stride_0,
    const int64_t k_stride_1,
    const int64_t power_saved_stride_0,
    const int64_t batch_2,
    const int64_t queries,
    const int64_t width,
    const double scale,
    uint32_t* tickets,
    const int64_t parts,
    const __grid_constant__ weft::TensorMap q_map,
    const __grid_constant__ weft::TensorMap k_map) {
    weft::await_launch_before();
    // a block has 192 of i_1, a warpgroup 64 of its rows; a turn takes 192 of j_4
    const int32_t row_tiles = (queries + 191) / 192;
    // 4 turns have a place in shared memory, and the rows of 2 tiles
    extern __shared__ __align__(1024) unsigned char memory[];
    auto* const q_tile = reinterpret_cast<weft::MatrixTile<weft::bfloat16, 192, true>*>(memory);
    auto* const k_tile = reinterpret_cast<weft::MatrixTile<weft::bfloat16, 192, true>*>(memory + 49152);
    __shared__ weft::Mbarrier rows_full[2], rows_empty[2], scores_full[4], scores_empty[4];
    // of the tiles that these are of: the number among tiles of rows, b_1
    __shared__ int32_t taken[2][2];
    if (threadIdx.x == 0) {
        for (int32_t place = 0; place < 2; ++place) {
            rows_full[place].init(1);
            rows_empty[place].init(12);
        }
        for (int32_t place = 0; place < 4; ++place) {
            scores_full[place].init(1);
            scores_empty[place].init(12);
        }
        weft::fence_mbarrier_init();
        weft::prefetch(q_map);
        weft::prefetch(k_map);
    }
    __syncthreads();
    if (threadIdx.x >= 384) {
        // one of these threads brings the tiles of all turns, as their places become free
        weft::decrease_registers<32>();
        if (threadIdx.x > 384) return;
        int32_t place = 0;
        uint32_t phase = 0;  // how often all places have been taken
        uint32_t rows = 0;  // of so many tiles so far
        const int32_t batches = batch_2;
        // of so many of these, tiles are taken side by side
        const int32_t together = weft::maximum<int32_t>(3 * int32_t(gridDim.x) / row_tiles, 1);
        const int32_t tiles = row_tiles * batches;
        for (int32_t tile = blockIdx.x; tile < tiles;) {
            const int32_t section = uint32_t(tile) / uint32_t(together * row_tiles), first_batch = section * together;
            const int32_t few = weft::minimum<int32_t>(together, batches - first_batch);
            const int32_t within_section = tile - first_batch * row_tiles, nth = uint32_t(within_section) / uint32_t(few);
            const uint32_t batch = first_batch + within_section - nth * few;
            const int64_t b_1 = batch;
            const int32_t row_tile = row_tiles - 1 - nth;
            const int64_t first_row = int64_t(row_tile) * 192;
            const int32_t last_row = weft::minimum<int32_t>(first_row + 192, queries) - 1;
            const int32_t first_turn = 0;
            const int32_t turns = (weft::bound_of_columns(last_row + 1) + 191) / 192;
            for (int32_t turn = first_turn; turn < turns; ++turn) {
                scores_empty[place].wait(phase ^ 1);
                scores_full[place].arrive_expect(24576);
                // attention.py:62: dot += q[b, i, d] * k[b, j, d]
                weft::tensor_load(k_tile[place].element, k_map, scores_full[place], 0, turn * 192, int(b_1));
                if (++place == 4) place = 0, phase ^= 1;
                if (turn > first_turn) continue;
                // the rows of a tile come after its first columns, which need not wait for those of the tile before
                rows_empty[rows % 2].wait((rows / 2 % 2) ^ 1);
                taken[rows % 2][0] = row_tile;
                taken[rows % 2][1] = b_1;
                rows_full[rows % 2].arrive_expect(24576);
                weft::tensor_load(q_tile[rows % 2].element, q_map, rows_full[rows % 2], 0, int(first_row), int(b_1));
                ++rows;
            }
            if (first_turn >= turns) {
                rows_empty[rows % 2].wait((rows / 2 % 2) ^ 1);
                taken[rows % 2][0] = row_tile;
                taken[rows % 2][1] = b_1;
                rows_full[rows % 2].arrive();
                ++rows;
            }
            uint32_t ticket = 0;
            ticket = weft::atomic_add_relaxed<weft::Scope::gpu>(tickets, 1u);
            tile = ticket;
        }
        rows_empty[rows % 2].wait((rows / 2 % 2) ^ 1);
        taken[rows % 2][0] = -1;  // no tile is left
        rows_full[rows % 2].arrive();
        return;
    }
    weft::increase_registers<160>();
    const int32_t own_row = threadIdx.x / 128 * 64;  // of the warpgroup
    const int32_t first_own_row = own_row + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    if (threadIdx.x / 128 == 2) weft::barrier_arrive(1, 256);  // the first may begin
    int32_t place = 0;
    uint32_t phase = 0;  // how often all places have been taken
    uint32_t rows = 0;  // of so many tiles so far
    const float scale_float = weft::opaque(float(scale));
    while (true) {
        rows_full[rows % 2].wait(rows / 2 % 2);
        const int32_t row_tile = taken[rows % 2][0];
        if (row_tile < 0) break;
        const int64_t b_1 = taken[rows % 2][1];
        __syncwarp();  // all of a warp have read it, before it gives their place back
        const int64_t first_row = int64_t(row_tile) * 192;
        const int32_t last_row = weft::minimum<int32_t>(first_row + 192, queries) - 1;
        const int32_t first_turn = 0;
        const int32_t turns = (weft::bound_of_columns(last_row + 1) + 191) / 192;
        float largest_3_own[2] = {weft::Max<float>::identity(), weft::Max<float>::identity()};
        float total_3_own[2][2] = {{weft::Sum<float>::identity(), weft::Sum<float>::identity()}, {weft::Sum<float>::identity(), weft::Sum<float>::identity()}};
        float dot_3_own[96];
        const int32_t near_row = weft::minimum<int32_t>(first_row + own_row, queries - 1);
        const int32_t far_row = weft::minimum<int32_t>(near_row + 64, queries) - 1;
        const int32_t whole_turns = weft::bound_of_columns(near_row + 1) / 192;  // in which all rows have all columns
        const int32_t own_turns = (weft::bound_of_columns(far_row + 1) + 191) / 192;  // in which some row has some
        const float factor_of_scores = scale_float;
        const bool rising = 0x1.715476p+0f * factor_of_scores > 0.0f;  // the maximum goes up with the scores
        const float unit = rising ? factor_of_scores : 1.0f, slope = 0x1.715476p+0f * unit;
        const auto fold_turn = [&](const int32_t turn) WEFT_INLINE {
            const int64_t first_column = int64_t(turn) * 192 + threadIdx.x % 4 * 2;
            float largest_3_reference[2];
            float factor[2];  // what brings sums to these
            weft::MaximumPower power[2];
            if (!rising) {
                #pragma unroll
                for (int32_t h = 0; h < 96; ++h) {
                    dot_3_own[h] *= factor_of_scores;
                }
            }
            if (turn >= whole_turns) {
                #pragma unroll
                for (int32_t u = 0; u < 2; ++u) {
                    const int64_t i_1 = first_row + first_own_row + u * 8;
                    const int32_t column_stop = weft::minimum<int64_t>(weft::bound_of_columns(int32_t(i_1) + 1) - first_column, 192);
                    #pragma unroll
                    for (int32_t h = 0; h < 24; ++h) {
                        #pragma unroll
                        for (int32_t v = 0; v < 2; ++v) {
                            if (h * 8 + v >= column_stop) dot_3_own[h * 4 + u * 2 + v] = weft::Max<float>::identity();
                        }
                    }
                }
            }
            #pragma unroll
            for (int32_t u = 0; u < 2; ++u) {
                float largest_3_latest[4] = {largest_3_own[u], weft::Max<float>::identity(), weft::Max<float>::identity(), weft::Max<float>::identity()};
                #pragma unroll
                for (int32_t h = 0; h < 24; ++h) {
                    #pragma unroll
                    for (int32_t v = 0; v < 2; ++v) {
                        // attention.py:65: for j in range(i + 1):
                        largest_3_latest[h % 2 * 2 + v] = weft::Max<float>::combine(largest_3_latest[h % 2 * 2 + v], dot_3_own[h * 4 + u * 2 + v]);
                    }
                }
                largest_3_latest[0] = weft::reduce_lanes<weft::Max<float>, 4>(weft::Max<float>::combine(weft::Max<float>::combine(largest_3_latest[0], largest_3_latest[1]), weft::Max<float>::combine(largest_3_latest[2], largest_3_latest[3])));  // of the four threads of a row
                largest_3_reference[u] = weft::Max<float>::reference(largest_3_latest[0]);
                const float before = weft::Max<float>::reference(largest_3_own[u]);
                power[u] = weft::maximum_power(largest_3_reference[u], slope);
                factor[u] = weft::exp2_estimate(weft::fma(before - largest_3_reference[u], slope, power[u].lost - weft::maximum_power(before, slope).lost));
                total_3_own[u][0] *= factor[u];
                total_3_own[u][1] *= factor[u];
                largest_3_own[u] = largest_3_latest[0];
            }
            if (power[0].far || power[1].far) {
                #pragma unroll
                for (int32_t u = 0; u < 2; ++u) {
                    #pragma unroll
                    for (int32_t h = 0; h < 24; ++h) {
                        #pragma unroll
                        for (int32_t v = 0; v < 2; ++v) {
                            if (power[u].far) dot_3_own[h * 4 + u * 2 + v] -= largest_3_reference[u];
                        }
                    }
                }
            }
            #pragma unroll
            for (int32_t h = 0; h < 24; ++h) {
                #pragma unroll
                for (int32_t u = 0; u < 2; ++u) {
                    #pragma unroll
                    for (int32_t v = 0; v < 2; ++v) {
                        const float exp_1 = weft::exp2_estimate(weft::fma(dot_3_own[h * 4 + u * 2 + v], slope, -power[u].power));
                        // attention.py:68: for j in range(i + 1):
                        total_3_own[u][v] = weft::Sum<float>::combine(total_3_own[u][v], exp_1);
                    }
                }
            }
        };
        const auto multiply_scores = [&](const int32_t place) WEFT_INLINE {
            weft::wgmma_fence(dot_3_own);
            #pragma unroll
            for (int32_t g = 0; g < 64; g += 16) {
                // attention.py:61: for d in range(width):
                weft::wgmma<weft::bfloat16>(dot_3_own, q_tile[rows % 2].matrix(own_row, g), k_tile[place].matrix(0, g), g > 0);
            }
        };
        int32_t turn = first_turn;
        const auto leave_turn = [&] {
            // no row of the warpgroup has any of these columns
            scores_full[place].wait(phase);
            weft::barrier_sync(1 + threadIdx.x / 128, 256);
            scores_empty[place].arrive_if(threadIdx.x % 32 == 0);
            weft::barrier_arrive(threadIdx.x / 128 == 2 ? 1 : 2 + threadIdx.x / 128, 256);
            if (++place == 4) place = 0, phase ^= 1;
        };
        for (; turn < own_turns; ++turn) {
            scores_full[place].wait(phase);
            weft::barrier_sync(1 + threadIdx.x / 128, 256);
            multiply_scores(place);
            weft::wgmma_commit();
            weft::barrier_arrive(threadIdx.x / 128 == 2 ? 1 : 2 + threadIdx.x / 128, 256);
            weft::wgmma_wait<0>(dot_3_own);
            scores_empty[place].arrive_if(threadIdx.x % 32 == 0);
            fold_turn(turn);
            if (++place == 4) place = 0, phase ^= 1;
        }
        for (; turn < turns; ++turn) leave_turn();
        rows_empty[rows % 2].arrive_if(threadIdx.x % 32 == 0);
        ++rows;
        #pragma unroll
        for (int32_t u = 0; u < 2; ++u) {
            const float lost = weft::maximum_power(weft::Max<float>::reference(largest_3_own[u]), slope).lost;
            largest_3_own[u] *= unit;
            total_3_own[u][0] = weft::reduce_lanes<weft::Sum<float>, 4>(weft::Sum<float>::combine(total_3_own[u][0], total_3_own[u][1]));
            const int64_t i_1 = first_row + first_own_row + u * 8;
            const bool any = 0 < weft::bound_of_columns(int32_t(i_1) + 1);
            const float largest_3_last = any ? largest_3_own[u] : weft::Max<float>::reference(largest_3_own[u]);
            const float factor_2 = weft::exp_flushed(weft::Max<float>::reference(largest_3_own[u]) - largest_3_last) * weft::exp2_estimate(-lost);
            total_3_own[u][0] *= factor_2;
            total_3_own[u][1] *= factor_2;
        }
        if (threadIdx.x % 4 == 0) {
            #pragma unroll
            for (int32_t u = 0; u < 2; ++u) {
                const int64_t i_1 = first_row + first_own_row + u * 8;
                if (i_1 >= queries) break;
                const float power_1 = weft::fma(largest_3_own[u], 1.442695f, weft::log2(total_3_own[u][0]));
                power_saved[b_1 * power_saved_stride_0 + i_1] = power_1;
            }
        }
    }
    if (threadIdx.x / 128 == 0) weft::barrier_sync(1, 256);  // what the last one has handed over
    weft::allow_launch_after();
}
