#include "weft/atomic.cuh"
#include "weft/bounds.cuh"
#include "weft/matrix_tile.cuh"
#include "weft/power.cuh"
#include "weft/registers.cuh"
#include "weft/team.cuh"
#include "weft/within.cuh"
#include "weft/dependent.cuh"

// attention.py:53: def causal(q, k, v, scale: float):
extern "C" __global__ void __launch_bounds__(128) causal_tickets(
    const weft::bfloat16* __restrict__ q,
    const weft::bfloat16* __restrict__ k,
    const weft::bfloat16* __restrict__ v_2,
    weft::bfloat16* __restrict__ out,
    const int64_t q_stride_0,
    const int64_t q_stride_1,
    const int64_t k_stride_0,
    const int64_t k_stride_1,
    const int64_t v_stride_0,
    const int64_t v_stride_1,
    const int64_t out_stride_0,
    const int64_t out_stride_1,
    const int64_t batch_2,
    const int64_t queries,
    const int64_t width,
    const int64_t k_size_1,
    const int64_t v_size_1,
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
extern "C" __global__ void __launch_bounds__(384, 1) causal(
    const weft::bfloat16* __restrict__ q,
    const weft::bfloat16* __restrict__ k,
    const weft::bfloat16* __restrict__ v_2,
    weft::bfloat16* __restrict__ out,
    const int64_t q_stride_0,
    const int64_t q_stride_1,
    const int64_t k_stride_0,
    const int64_t k_stride_1,
    const int64_t v_stride_0,
    const int64_t v_stride_1,
    const int64_t out_stride_0,
    const int64_t out_stride_1,
    const int64_t batch_2,
    const int64_t queries,
    const int64_t width,
    const int64_t k_size_1,
    const int64_t v_size_1,
    const double scale,
    uint32_t* tickets,
    const int64_t parts,
    const __grid_constant__ weft::TensorMap q_map,
    const __grid_constant__ weft::TensorMap k_map,
    const __grid_constant__ weft::TensorMap v_map) {
    weft::await_launch_before();
    // a block has 128 x 64 of i and d, a warpgroup 64 of its rows; a turn takes 192 of j
    const int32_t row_tiles = (queries + 127) / 128;
    // 4 turns have a place in shared memory, and the rows of 2 tiles
    extern __shared__ __align__(1024) unsigned char memory[];
    auto* const q_tile = reinterpret_cast<weft::MatrixTile<weft::bfloat16, 128, true>*>(memory);
    auto* const k_tile = reinterpret_cast<weft::MatrixTile<weft::bfloat16, 192, true>*>(memory + 32768);
    auto* const v_tile = reinterpret_cast<weft::MatrixTile<weft::bfloat16, 64, false, 192>*>(memory + 131072);
    __shared__ weft::Mbarrier rows_full[2], rows_empty[2], scores_full[4], scores_empty[4], sums_full[4], sums_empty[4];
    // of the tiles that these are of: the number among tiles of rows, b
    __shared__ int32_t taken[2][2];
    if (threadIdx.x == 0) {
        for (int32_t place = 0; place < 2; ++place) {
            rows_full[place].init(1);
            rows_empty[place].init(8);
        }
        for (int32_t place = 0; place < 4; ++place) {
            scores_full[place].init(1);
            scores_empty[place].init(8);
            sums_full[place].init(1);
            sums_empty[place].init(8);
        }
        weft::fence_mbarrier_init();
        weft::prefetch(q_map);
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
            const int64_t b = batch;
            const int32_t row_tile = row_tiles - 1 - nth;
            const int64_t first_row = int64_t(row_tile) * 128;
            const int32_t last_row = weft::minimum<int32_t>(first_row + 128, queries) - 1;
            const int32_t first_turn = 0;
            const int32_t turns = (weft::bound_of_columns(last_row + 1) + 191) / 192;
            for (int32_t turn = first_turn; turn < turns; ++turn) {
                scores_empty[place].wait(phase ^ 1);
                scores_full[place].arrive_expect(24576);
                // attention.py:62: dot += q[b, i, d] * k[b, j, d]
                weft::tensor_load(k_tile[place].element, k_map, scores_full[place], 0, turn * 192, int(b));
                sums_empty[place].wait(phase ^ 1);
                sums_full[place].arrive_expect(24576);
                // attention.py:73: acc += torch.exp(scores[j] - largest).to(q.dtype) * v[b, j, d]
                weft::tensor_load(v_tile[place].element, v_map, sums_full[place], 0, turn * 192, int(b));
                if (++place == 4) place = 0, phase ^= 1;
                if (turn > first_turn) continue;
                // the rows of a tile come after its first columns, which need not wait for those of the tile before
                rows_empty[rows % 2].wait((rows / 2 % 2) ^ 1);
                taken[rows % 2][0] = row_tile;
                taken[rows % 2][1] = b;
                rows_full[rows % 2].arrive_expect(16384);
                // attention.py:62: dot += q[b, i, d] * k[b, j, d]
                weft::tensor_load(q_tile[rows % 2].element, q_map, rows_full[rows % 2], 0, int(first_row), int(b));
                ++rows;
            }
            if (first_turn >= turns) {
                rows_empty[rows % 2].wait((rows / 2 % 2) ^ 1);
                taken[rows % 2][0] = row_tile;
                taken[rows % 2][1] = b;
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
        const int64_t b = taken[rows % 2][1];
        __syncwarp();  // all of a warp have read it, before it gives their place back
        const int64_t first_row = int64_t(row_tile) * 128;
        const int32_t last_row = weft::minimum<int32_t>(first_row + 128, queries) - 1;
        const int32_t first_turn = 0;
        const int32_t turns = (weft::bound_of_columns(last_row + 1) + 191) / 192;
        float largest_own[2] = {weft::Max<float>::identity(), weft::Max<float>::identity()};
        float total_own[2][2] = {{weft::Sum<float>::identity(), weft::Sum<float>::identity()}, {weft::Sum<float>::identity(), weft::Sum<float>::identity()}};
        float dot_own[96];
        uint32_t exp_own[12][4];
        float acc_own[1][32] = {};
        const int32_t near_row = weft::minimum<int32_t>(first_row + own_row, queries - 1);
        const int32_t far_row = weft::minimum<int32_t>(near_row + 64, queries) - 1;
        const int32_t whole_turns = weft::bound_of_columns(near_row + 1) / 192;  // in which all rows have all columns
        const int32_t own_turns = (weft::bound_of_columns(far_row + 1) + 191) / 192;  // in which some row has some
        const float factor_of_scores = scale_float;
        const bool rising = 0x1.715476p+0f * factor_of_scores > 0.0f;  // the maximum goes up with the scores
        const float unit = rising ? factor_of_scores : 1.0f, slope = 0x1.715476p+0f * unit;
        const auto fold_turn = [&](const int32_t turn, const bool summing, const int32_t summed) WEFT_INLINE {
            const int64_t first_column = int64_t(turn) * 192 + threadIdx.x % 4 * 2;
            float largest_reference[2];
            float factor[2];  // what brings sums to these
            weft::MaximumPower power[2];
            if (!rising) {
                #pragma unroll
                for (int32_t h = 0; h < 96; ++h) {
                    dot_own[h] *= factor_of_scores;
                }
            }
            if (turn >= whole_turns) {
                #pragma unroll
                for (int32_t u = 0; u < 2; ++u) {
                    const int64_t i = first_row + first_own_row + u * 8;
                    const int32_t column_stop = weft::minimum<int64_t>(weft::bound_of_columns(int32_t(i) + 1) - first_column, 192);
                    #pragma unroll
                    for (int32_t h = 0; h < 24; ++h) {
                        #pragma unroll
                        for (int32_t v = 0; v < 2; ++v) {
                            if (h * 8 + v >= column_stop) dot_own[h * 4 + u * 2 + v] = weft::Max<float>::identity();
                        }
                    }
                }
            }
            #pragma unroll
            for (int32_t u = 0; u < 2; ++u) {
                float largest_latest[4] = {largest_own[u], weft::Max<float>::identity(), weft::Max<float>::identity(), weft::Max<float>::identity()};
                #pragma unroll
                for (int32_t h = 0; h < 24; ++h) {
                    #pragma unroll
                    for (int32_t v = 0; v < 2; ++v) {
                        // attention.py:65: for j in range(i + 1):
                        largest_latest[h % 2 * 2 + v] = weft::Max<float>::combine(largest_latest[h % 2 * 2 + v], dot_own[h * 4 + u * 2 + v]);
                    }
                }
                largest_latest[0] = weft::reduce_lanes<weft::Max<float>, 4>(weft::Max<float>::combine(weft::Max<float>::combine(largest_latest[0], largest_latest[1]), weft::Max<float>::combine(largest_latest[2], largest_latest[3])));  // of the four threads of a row
                largest_reference[u] = weft::Max<float>::reference(largest_latest[0]);
                const float before = weft::Max<float>::reference(largest_own[u]);
                power[u] = weft::maximum_power(largest_reference[u], slope);
                factor[u] = weft::exp2_estimate(weft::fma(before - largest_reference[u], slope, power[u].lost - weft::maximum_power(before, slope).lost));
                total_own[u][0] *= factor[u];
                total_own[u][1] *= factor[u];
                largest_own[u] = largest_latest[0];
            }
            if (power[0].far || power[1].far) {
                #pragma unroll
                for (int32_t u = 0; u < 2; ++u) {
                    #pragma unroll
                    for (int32_t h = 0; h < 24; ++h) {
                        #pragma unroll
                        for (int32_t v = 0; v < 2; ++v) {
                            if (power[u].far) dot_own[h * 4 + u * 2 + v] -= largest_reference[u];
                        }
                    }
                }
            }
            if (summing) {
                weft::wgmma_wait<0>(acc_own[0]);
                sums_empty[summed].arrive_if(threadIdx.x % 32 == 0);
            }
            #pragma unroll
            for (int32_t u = 0; u < 2; ++u) {
                #pragma unroll
                for (int32_t h = 0; h < 8; ++h) {
                    #pragma unroll
                    for (int32_t v = 0; v < 2; ++v) {
                        acc_own[0][h * 4 + u * 2 + v] *= factor[u];
                    }
                }
            }
            #pragma unroll
            for (int32_t h = 0; h < 24; ++h) {
                #pragma unroll
                for (int32_t u = 0; u < 2; ++u) {
                    float exp_own_pair[2] = {};
                    #pragma unroll
                    for (int32_t v = 0; v < 2; ++v) {
                        const float exp = weft::exp2_estimate(weft::fma(dot_own[h * 4 + u * 2 + v], slope, -power[u].power));
                        // attention.py:68: for j in range(i + 1):
                        total_own[u][v] = weft::Sum<float>::combine(total_own[u][v], exp);
                        exp_own_pair[v] = exp;
                    }
                    exp_own[h / 2][h % 2 * 2 + u] = weft::pack<weft::bfloat16>(exp_own_pair[0], exp_own_pair[1]);
                }
            }
        };
        const auto multiply_scores = [&](const int32_t place) WEFT_INLINE {
            const int32_t at = weft::uniform(place), near = weft::uniform(own_row), of = weft::uniform(rows % 2);
            weft::wgmma_fence(dot_own);
            #pragma unroll
            for (int32_t g = 0; g < 64; g += 16) {
                // attention.py:61: for d in range(width):
                weft::wgmma<weft::bfloat16>(dot_own, q_tile[of].matrix(near, g), k_tile[at].matrix(0, g), g > 0);
            }
        };
        const auto multiply_sums = [&](const int32_t place) WEFT_INLINE {
            const int32_t at = weft::uniform(place);
            weft::wgmma_fence(acc_own[0], exp_own);
            #pragma unroll
            for (int32_t g = 0; g < 192; g += 16) {
                // attention.py:72: for j in range(i + 1):
                weft::wgmma<weft::bfloat16, weft::Major::rows>(acc_own[0], exp_own[g / 16], v_tile[at].matrix(0, g), true);
            }
        };
        int32_t turn = first_turn;
        const auto leave_turn = [&] {
            // no row of the warpgroup has any of these columns
            scores_full[place].wait(phase);
            sums_full[place].wait(phase);
            weft::barrier_sync(1 + threadIdx.x / 128, 256);
            scores_empty[place].arrive_if(threadIdx.x % 32 == 0);
            sums_empty[place].arrive_if(threadIdx.x % 32 == 0);
            weft::barrier_arrive(threadIdx.x / 128 == 1 ? 1 : 2 + threadIdx.x / 128, 256);
            if (++place == 4) place = 0, phase ^= 1;
        };
        const bool any_own = turn < own_turns;
        if (any_own) {
            bool edge;
            while (true) {
                scores_full[place].wait(phase);
                weft::barrier_sync(1 + threadIdx.x / 128, 256);
                multiply_scores(place);
                weft::wgmma_commit();
                weft::barrier_arrive(threadIdx.x / 128 == 1 ? 1 : 2 + threadIdx.x / 128, 256);
                weft::wgmma_wait<0>(dot_own);
                scores_empty[place].arrive_if(threadIdx.x % 32 == 0);
                sums_full[place].wait(phase);
                edge = turn >= whole_turns;
                fold_turn(turn, false, place);
                while (++turn != own_turns) {
                    if (edge && weft::any_of_warpgroup(weft::any_infinite<1>(v_tile + place), told[threadIdx.x / 128], 3 + threadIdx.x / 128)) break;
                    const int32_t last = place;
                    if (++place == 4) place = 0, phase ^= 1;
                    scores_full[place].wait(phase);
                    weft::barrier_sync(1 + threadIdx.x / 128, 256);
                    multiply_scores(place);
                    weft::wgmma_commit();
                    multiply_sums(last);
                    weft::wgmma_commit();
                    weft::wgmma_wait<1>(dot_own);
                    weft::barrier_arrive(threadIdx.x / 128 == 1 ? 1 : 2 + threadIdx.x / 128, 256);
                    scores_empty[place].arrive_if(threadIdx.x % 32 == 0);
                    sums_full[place].wait(phase);
                    edge = turn >= whole_turns;
                    fold_turn(turn, true, last);
                }
                if (turn == own_turns) break;
                // 0 times an infinity that a row does not have is none of its: these products leave it out
                int32_t begin[2], end[2];
                for (int32_t u = 0; u < 2; ++u) {
                    const int64_t i = first_row + first_own_row + u * 8;
                    begin[u] = weft::minimum<int64_t>(weft::maximum<int64_t>(0 - (turn - 1) * 192, 0), 192);
                    end[u] = weft::minimum<int64_t>(weft::maximum<int64_t>(weft::bound_of_columns(int32_t(i) + 1) - (turn - 1) * 192, 0), 192);
                }
                weft::multiply_within(acc_own[0], exp_own, v_tile + place, begin, end);
                weft::barrier_sync(3 + threadIdx.x / 128, 128);  // all have read the tiles
                sums_empty[place].arrive_if(threadIdx.x % 32 == 0);
                if (++place == 4) place = 0, phase ^= 1;
            }
            rows_empty[rows % 2].arrive_if(threadIdx.x % 32 == 0);
            ++rows;
            if (edge) {
                float acc_last[32];
                const int32_t at = weft::uniform(place);
                weft::wgmma_fence(acc_last, exp_own);
                #pragma unroll
                for (int32_t g = 0; g < 192; g += 16) {
                    // attention.py:72: for j in range(i + 1):
                    weft::wgmma<weft::bfloat16, weft::Major::rows>(acc_last, exp_own[g / 16], v_tile[at].matrix(0, g), g > 0);
                }
                weft::wgmma_commit();
                weft::wgmma_wait<0>(acc_last);
                if (__all_sync(0xffffffffu, weft::all_finite(acc_last))) {
                    #pragma unroll
                    for (int32_t h = 0; h < 32; ++h) {
                        acc_own[0][h] += acc_last[h];
                    }
                }
                else {
                    // 0 times an infinity that a row does not have is none of its: these products leave it out
                    int32_t begin[2], end[2];
                    for (int32_t u = 0; u < 2; ++u) {
                        const int64_t i = first_row + first_own_row + u * 8;
                        begin[u] = weft::minimum<int64_t>(weft::maximum<int64_t>(0 - (turn - 1) * 192, 0), 192);
                        end[u] = weft::minimum<int64_t>(weft::maximum<int64_t>(weft::bound_of_columns(int32_t(i) + 1) - (turn - 1) * 192, 0), 192);
                    }
                    weft::multiply_within(acc_own[0], exp_own, v_tile + place, begin, end);
                    __syncwarp();  // all of a warp have read the tiles
                }
            }
            else {
                multiply_sums(place);
                weft::wgmma_commit();
                weft::wgmma_wait<0>(acc_own[0]);
            }
            sums_empty[place].arrive_if(threadIdx.x % 32 == 0);
            if (++place == 4) place = 0, phase ^= 1;
        }
        for (; turn < turns; ++turn) leave_turn();
        if (!any_own) {
            rows_empty[rows % 2].arrive_if(threadIdx.x % 32 == 0);
            ++rows;
        }
        #pragma unroll
        for (int32_t u = 0; u < 2; ++u) {
            const float lost = weft::maximum_power(weft::Max<float>::reference(largest_own[u]), slope).lost;
            largest_own[u] *= unit;
            total_own[u][0] = weft::reduce_lanes<weft::Sum<float>, 4>(weft::Sum<float>::combine(total_own[u][0], total_own[u][1]));
            const int64_t i = first_row + first_own_row + u * 8;
            const bool any = 0 < weft::bound_of_columns(int32_t(i) + 1);
            const float largest_last = any ? largest_own[u] : weft::Max<float>::reference(largest_own[u]);
            const float factor_2 = weft::exp_flushed(weft::Max<float>::reference(largest_own[u]) - largest_last) * weft::exp2_estimate(-lost);
            total_own[u][0] *= factor_2;
            total_own[u][1] *= factor_2;
            #pragma unroll
            for (int32_t h = 0; h < 8; ++h) {
                #pragma unroll
                for (int32_t v = 0; v < 2; ++v) {
                    acc_own[0][h * 4 + u * 2 + v] *= factor_2;
                }
            }
        }
        const weft::OrdinaryDivisor<float> total_divisor[2] = {weft::OrdinaryDivisor<float>(total_own[0][0]), weft::OrdinaryDivisor<float>(total_own[1][0])};
        weft::exchange_quads(acc_own[0]);
        #pragma unroll
        for (int32_t h = 0; h < 2; ++h) {
            const int64_t d_run = first_own_column + h * 32;
            if (d_run >= width) break;
            #pragma unroll
            for (int32_t u = 0; u < 2; ++u) {
                const int64_t i = first_row + first_own_row + u % 2 * 8;
                if (!(i < queries)) break;
                float out_run[8];
                #pragma unroll
                for (int32_t v = 0; v < 8; ++v) {
                    // attention.py:72: for j in range(i + 1):
                    const float acc = acc_own[u / 2][(h * 8 + v) / 2 * 4 + u % 2 * 2 + (h * 8 + v) % 2];
                    // attention.py:74: out[b, i, d] = acc / total
                    out_run[v] = weft::divide(acc, total_divisor[u]);
                }
                weft::store<8>(out + b * out_stride_0 + i * out_stride_1 + d_run, out_run);
            }
        }
    }
    if (threadIdx.x / 128 == 0) weft::barrier_sync(1, 256);  // what the last one has handed over
    weft::allow_launch_after();
}
