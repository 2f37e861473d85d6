#include "weft/atomic.cuh"
#include "weft/bounds.cuh"
#include "weft/matrix_tile.cuh"
#include "weft/power.cuh"
#include "weft/registers.cuh"
#include "weft/team.cuh"
#include "weft/within.cuh"
#include "weft/dependent.cuh"

// attention.py:53: def causal(q, k, v, scale: float):
extern "C" __global__ void __launch_bounds__(128) causal_adjoint_3_tickets(
    const weft::bfloat16* __restrict__ q,
    const weft::bfloat16* __restrict__ k,
    const weft::bfloat16* __restrict__ v_2,
    const weft::bfloat16* __restrict__ grad_out,
    weft::bfloat16* __restrict__ grad_q,
    float* power_saved,
    float* d_total_saved,
    const int64_t q_stride_0,
    const int64_t q_stride_1,
    const int64_t k_stride_0,
    const int64_t k_stride_1,
    const int64_t v_stride_0,
    const int64_t v_stride_1,
    const int64_t grad_out_stride_0,
    const int64_t grad_out_stride_1,
    const int64_t grad_q_stride_0,
    const int64_t grad_q_stride_1,
    const int64_t power_saved_stride_0,
    const int64_t d_total_saved_stride_0,
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
extern "C" __global__ void __launch_bounds__(384, 1) causal_adjoint_3(
    const weft::bfloat16* __restrict__ q,
    const weft::bfloat16* __restrict__ k,
    const weft::bfloat16* __restrict__ v_2,
    const weft::bfloat16* __restrict__ grad_out,
    weft::bfloat16* __restrict__ grad_q,
    float* power_saved,
    float* d_total_saved,
    const int64_t q_stride_0,
    const int64_t q_stride_1,
    const int64_t k_stride_0,
    const int64_t k_stride_1,
    const int64_t v_stride_0,
    const int64_t v_stride_1,
    const int64_t grad_out_stride_0,
    const int64_t grad_out_stride_1,
    const int64_t grad_q_stride_0,
    const int64_t grad_q_stride_1,
    const int64_t power_saved_stride_0,
    const int64_t d_total_saved_stride_0,
    const int64_t batch_2,
    const int64_t queries,
    const int64_t width,
    const double scale,
    uint32_t* tickets,
    const int64_t parts,
    const __grid_constant__ weft::TensorMap q_map,
    const __grid_constant__ weft::TensorMap grad_out_map,
    const __grid_constant__ weft::TensorMap k_map,
    const __grid_constant__ weft::TensorMap v_map) {
    weft::await_launch_before();
    // a block has 128 x 64 of i_3 and d_6, a warpgroup 64 of its rows; a turn takes 96 of j_7
    const int32_t row_tiles = (queries + 127) / 128;
    // 4 turns have a place in shared memory, and the rows of 2 tiles
    extern __shared__ __align__(1024) unsigned char memory[];
    auto* const q_tile = reinterpret_cast<weft::MatrixTile<weft::bfloat16, 128, true>*>(memory);
    auto* const grad_out_tile = reinterpret_cast<weft::MatrixTile<weft::bfloat16, 128, true>*>(memory + 32768);
    auto* const k_tile = reinterpret_cast<weft::MatrixTile<weft::bfloat16, 96, true>*>(memory + 65536);
    auto* const v_tile = reinterpret_cast<weft::MatrixTile<weft::bfloat16, 96, true>*>(memory + 114688);
    auto* const k_tile_2 = reinterpret_cast<weft::MatrixTile<weft::bfloat16, 64, false, 96>*>(k_tile);  // by its points: lines are the same
    __shared__ weft::Mbarrier rows_full[2], rows_empty[2], scores_full[4], scores_empty[4];
    // of the tiles that these are of: the number among tiles of rows, b_3
    __shared__ int32_t taken[2][2];
    if (threadIdx.x == 0) {
        for (int32_t place = 0; place < 2; ++place) {
            rows_full[place].init(1);
            rows_empty[place].init(8);
        }
        for (int32_t place = 0; place < 4; ++place) {
            scores_full[place].init(1);
            scores_empty[place].init(8);
        }
        weft::fence_mbarrier_init();
        weft::prefetch(q_map);
        weft::prefetch(grad_out_map);
        weft::prefetch(k_map);
        weft::prefetch(v_map);
    }
    __syncthreads();
    if (threadIdx.x >= 256) {
        // one of these threads brings the tiles of all turns, as their places become free
        weft::decrease_registers<24>();
        if (threadIdx.x > 256) return;
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
            const int64_t b_3 = batch;
            const int32_t row_tile = row_tiles - 1 - nth;
            const int64_t first_row = int64_t(row_tile) * 128;
            const int32_t last_row = weft::minimum<int32_t>(first_row + 128, queries) - 1;
            const int32_t first_turn = 0;
            const int32_t turns = (weft::bound_of_columns(last_row + 1) + 95) / 96;
            for (int32_t turn = first_turn; turn < turns; ++turn) {
                scores_empty[place].wait(phase ^ 1);
                scores_full[place].arrive_expect(24576);
                // attention.py:62: dot += q[b, i, d] * k[b, j, d]
                weft::tensor_load(k_tile[place].element, k_map, scores_full[place], 0, turn * 96, int(b_3));
                // attention.py:73: acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, j, d]
                weft::tensor_load(v_tile[place].element, v_map, scores_full[place], 0, turn * 96, int(b_3));
                if (++place == 4) place = 0, phase ^= 1;
                if (turn > first_turn) continue;
                // the rows of a tile come after its first columns, which need not wait for those of the tile before
                rows_empty[rows % 2].wait((rows / 2 % 2) ^ 1);
                taken[rows % 2][0] = row_tile;
                taken[rows % 2][1] = b_3;
                rows_full[rows % 2].arrive_expect(32768);
                // attention.py:62: dot += q[b, i, d] * k[b, j, d]
                weft::tensor_load(q_tile[rows % 2].element, q_map, rows_full[rows % 2], 0, int(first_row), int(b_3));
                // attention.py:61: for d in range(width):
                weft::tensor_load(grad_out_tile[rows % 2].element, grad_out_map, rows_full[rows % 2], 0, int(first_row), int(b_3));
                ++rows;
            }
            if (first_turn >= turns) {
                rows_empty[rows % 2].wait((rows / 2 % 2) ^ 1);
                taken[rows % 2][0] = row_tile;
                taken[rows % 2][1] = b_3;
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
    weft::increase_registers<240>();
    const int32_t own_row = threadIdx.x / 128 * 64, own_column = 0;  // of the warpgroup
    const int32_t first_own_row = own_row + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    const int32_t first_own_column = own_column + threadIdx.x % 4 * 8;
    if (threadIdx.x / 128 == 1) weft::barrier_arrive(1, 256);  // the first may begin
    __shared__ int32_t told[2][4];
    int32_t place = 0;
    uint32_t phase = 0;  // how often all places have been taken
    uint32_t rows = 0;  // of so many tiles so far
    const float scale_float = weft::opaque(float(scale));
    while (true) {
        rows_full[rows % 2].wait(rows / 2 % 2);
        const int32_t row_tile = taken[rows % 2][0];
        if (row_tile < 0) break;
        const int64_t b_3 = taken[rows % 2][1];
        __syncwarp();  // all of a warp have read it, before it gives their place back
        const int64_t first_row = int64_t(row_tile) * 128;
        const int32_t last_row = weft::minimum<int32_t>(first_row + 128, queries) - 1;
        const int32_t first_turn = 0;
        const int32_t turns = (weft::bound_of_columns(last_row + 1) + 95) / 96;
        float dot_6_own[48];
        float d_2_part_own[48];
        uint32_t weight_2_1_own[6][4];
        float power_saved_of_row[2];
        float d_total_saved_of_row[2];
        #pragma unroll
        for (int32_t u = 0; u < 2; ++u) {
            const int64_t i_3 = weft::minimum<int64_t>(first_row + first_own_row + u * 8, queries - 1);
            // attention.py:61: for d in range(width):
            const float power_saved_value = power_saved[b_3 * power_saved_stride_0 + i_3];
            const float d_total_saved_value = d_total_saved[b_3 * d_total_saved_stride_0 + i_3];
            power_saved_of_row[u] = power_saved_value;
            d_total_saved_of_row[u] = d_total_saved_value;
        }
        float d_q_part_own[1][32] = {};
        const int32_t near_row = weft::minimum<int32_t>(first_row + own_row, queries - 1);
        const int32_t far_row = weft::minimum<int32_t>(near_row + 64, queries) - 1;
        const int32_t whole_turns = weft::bound_of_columns(near_row + 1) / 96;  // in which all rows have all columns
        const int32_t own_turns = (weft::bound_of_columns(far_row + 1) + 95) / 96;  // in which some row has some
        const auto fold_turn = [&](const int32_t turn, const bool edge) WEFT_INLINE {
            const int64_t first_column = int64_t(turn) * 96 + threadIdx.x % 4 * 2;
            int32_t column_stop[2];
            #pragma unroll
            for (int32_t u = 0; u < 2; ++u) {
                const int64_t i_3 = weft::minimum<int64_t>(first_row + first_own_row + u * 8, queries - 1);
                column_stop[u] = weft::minimum<int64_t>(weft::bound_of_columns(int32_t(i_3) + 1) - first_column, 96);
            }
            #pragma unroll
            for (int32_t h = 0; h < 12; ++h) {
                #pragma unroll
                for (int32_t u = 0; u < 2; ++u) {
                    float weight_2_1_own_pair[2] = {};
                    #pragma unroll
                    for (int32_t v = 0; v < 2; ++v) {
                        const bool has = !(edge && h * 8 + v >= column_stop[u]);
                        const float weight_4 = weft::exp2_estimate(weft::fma(dot_6_own[h * 4 + u * 2 + v], scale_float * 1.442695f, -power_saved_of_row[u]));
                        const float weight_2_1 = weight_4 * (d_2_part_own[h * 4 + u * 2 + v] - d_total_saved_of_row[u]);
                        weight_2_1_own_pair[v] = has ? weight_2_1 : 0.0f;
                    }
                    weight_2_1_own[h / 2][h % 2 * 2 + u] = weft::pack<weft::bfloat16>(weight_2_1_own_pair[0], weight_2_1_own_pair[1]);
                }
            }
        };
        const auto multiply_scores = [&](const int32_t place) WEFT_INLINE {
            weft::wgmma_fence(dot_6_own, d_2_part_own);
            #pragma unroll
            for (int32_t g = 0; g < 64; g += 16) {
                // attention.py:61: for d in range(width):
                weft::wgmma<weft::bfloat16>(dot_6_own, q_tile[rows % 2].matrix(own_row, g), k_tile[place].matrix(0, g), g > 0);
                weft::wgmma<weft::bfloat16>(d_2_part_own, grad_out_tile[rows % 2].matrix(own_row, g), v_tile[place].matrix(0, g), g > 0);
            }
        };
        const auto multiply_sums = [&](const int32_t place) WEFT_INLINE {
            weft::wgmma_fence(d_q_part_own[0], weight_2_1_own);
            #pragma unroll
            for (int32_t g = 0; g < 96; g += 16) {
                weft::wgmma<weft::bfloat16, weft::Major::rows>(d_q_part_own[0], weight_2_1_own[g / 16], k_tile_2[place].matrix(0, g), true);
            }
        };
        int32_t turn = first_turn;
        const auto leave_turn = [&] {
            // no row of the warpgroup has any of these columns
            scores_full[place].wait(phase);
            weft::barrier_sync(1 + threadIdx.x / 128, 256);
            scores_empty[place].arrive_if(threadIdx.x % 32 == 0);
            weft::barrier_arrive(threadIdx.x / 128 == 1 ? 1 : 2 + threadIdx.x / 128, 256);
            if (++place == 4) place = 0, phase ^= 1;
        };
        const bool any_own = turn < own_turns;
        if (any_own) {
            bool edge;
            scores_full[place].wait(phase);
            weft::barrier_sync(1 + threadIdx.x / 128, 256);
            multiply_scores(place);
            weft::wgmma_commit();
            weft::barrier_arrive(threadIdx.x / 128 == 1 ? 1 : 2 + threadIdx.x / 128, 256);
            weft::wgmma_wait<0>(dot_6_own, d_2_part_own);
            while (true) {
                edge = turn >= whole_turns;
                if (edge) fold_turn(turn, true);
                else fold_turn(turn, false);
                if (++turn == own_turns) break;
                const int32_t last = place;
                const bool infinite = edge && weft::any_of_warpgroup(weft::any_infinite<1>(k_tile_2 + last), told[threadIdx.x / 128], 3 + threadIdx.x / 128);
                if (++place == 4) place = 0, phase ^= 1;
                scores_full[place].wait(phase);
                weft::barrier_sync(1 + threadIdx.x / 128, 256);
                if (infinite) {
                    // 0 times an infinity that a row does not have is none of its: these products leave it out
                    int32_t begin[2], end[2];
                    for (int32_t u = 0; u < 2; ++u) {
                        const int64_t i_3 = first_row + first_own_row + u * 8;
                        begin[u] = weft::minimum<int64_t>(weft::maximum<int64_t>(0 - (turn - 1) * 96, 0), 96);
                        end[u] = weft::minimum<int64_t>(weft::maximum<int64_t>(weft::bound_of_columns(int32_t(i_3) + 1) - (turn - 1) * 96, 0), 96);
                    }
                    weft::multiply_within(d_q_part_own[0], weight_2_1_own, k_tile_2 + last, begin, end);
                    weft::barrier_sync(3 + threadIdx.x / 128, 128);  // all have read the tiles
                    multiply_scores(place);
                    weft::wgmma_commit();
                    weft::barrier_arrive(threadIdx.x / 128 == 1 ? 1 : 2 + threadIdx.x / 128, 256);
                    weft::wgmma_wait<0>(dot_6_own, d_2_part_own);
                }
                else {
                    multiply_sums(last);
                    weft::wgmma_commit();
                    multiply_scores(place);
                    weft::wgmma_commit();
                    weft::wgmma_wait<1>(d_q_part_own[0]);
                    weft::barrier_arrive(threadIdx.x / 128 == 1 ? 1 : 2 + threadIdx.x / 128, 256);
                    weft::wgmma_wait<0>(dot_6_own, d_2_part_own);
                }
                scores_empty[last].arrive_if(threadIdx.x % 32 == 0);
            }
            rows_empty[rows % 2].arrive_if(threadIdx.x % 32 == 0);
            ++rows;
            if (edge && weft::any_of_warpgroup(weft::any_infinite<1>(k_tile_2 + place), told[threadIdx.x / 128], 3 + threadIdx.x / 128)) {
                // 0 times an infinity that a row does not have is none of its: these products leave it out
                int32_t begin[2], end[2];
                for (int32_t u = 0; u < 2; ++u) {
                    const int64_t i_3 = first_row + first_own_row + u * 8;
                    begin[u] = weft::minimum<int64_t>(weft::maximum<int64_t>(0 - (turn - 1) * 96, 0), 96);
                    end[u] = weft::minimum<int64_t>(weft::maximum<int64_t>(weft::bound_of_columns(int32_t(i_3) + 1) - (turn - 1) * 96, 0), 96);
                }
                weft::multiply_within(d_q_part_own[0], weight_2_1_own, k_tile_2 + place, begin, end);
                weft::barrier_sync(3 + threadIdx.x / 128, 128);  // all have read the tiles
            }
            else {
                multiply_sums(place);
                weft::wgmma_commit();
                weft::wgmma_wait<0>(d_q_part_own[0]);
            }
            scores_empty[place].arrive_if(threadIdx.x % 32 == 0);
            if (++place == 4) place = 0, phase ^= 1;
        }
        for (; turn < turns; ++turn) leave_turn();
        if (!any_own) {
            rows_empty[rows % 2].arrive_if(threadIdx.x % 32 == 0);
            ++rows;
        }
        weft::exchange_quads(d_q_part_own[0]);
        #pragma unroll
        for (int32_t h = 0; h < 2; ++h) {
            const int64_t d_6_run = first_own_column + h * 32;
            if (d_6_run >= width) break;
            #pragma unroll
            for (int32_t u = 0; u < 2; ++u) {
                const int64_t i_3 = first_row + first_own_row + u % 2 * 8;
                if (!(i_3 < queries)) break;
                float grad_q_run[8];
                #pragma unroll
                for (int32_t v = 0; v < 8; ++v) {
                    const float d_q_part = d_q_part_own[u / 2][(h * 8 + v) / 2 * 4 + u % 2 * 2 + (h * 8 + v) % 2];
                    const float d_q_1_1 = d_q_part * scale_float;
                    grad_q_run[v] = d_q_1_1;
                }
                weft::store<8>(grad_q + b_3 * grad_q_stride_0 + i_3 * grad_q_stride_1 + d_6_run, grad_q_run);
            }
        }
    }
    if (threadIdx.x / 128 == 0) weft::barrier_sync(1, 256);  // what the last one has handed over
    weft::allow_launch_after();
}
