#include "weft/memory.cuh"
#include "weft/relay.cuh"
#include "weft/packet.cuh"

extern "C" __global__ void __launch_bounds__(512, 1) __cluster_dims__(8, 1, 1) time_major(
    const weft::bfloat16* __restrict__ x,
    const weft::bfloat16* __restrict__ c,
    weft::bfloat16* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t x_stride_1,
    const int64_t c_stride_0,
    const int64_t c_stride_1,
    const int64_t y_stride_0,
    const int64_t y_stride_1,
    const int64_t batch,
    const int64_t length,
    const int64_t channels,
    uint64_t* h_told,
    const int64_t parts) {
    // blocks share a row, a tile each, and tell each other what theirs does
    const uint32_t part = blockIdx.x % uint32_t(parts), group = blockIdx.x / uint32_t(parts);
    const int32_t member = threadIdx.x % 128;  // of those that have points
    // 64 neighbours along d, 4 threads for each; a thread has 2 of them,
    // and 16 points of a tile of 64
    const int64_t d_tiles = (channels + 63) / 64;
    const int64_t d_block = int64_t(group % d_tiles) * 64;  // of the block's rows
    const int64_t d_first = d_block + member % 32 * 2;
    const bool here = d_first < channels;
    const int64_t b = int64_t(group / d_tiles);
    const weft::bfloat16* x_b = x + b * x_stride_0;
    const weft::bfloat16* c_b = c + b * c_stride_0;
    weft::bfloat16* y_b = y + b * y_stride_0;
    const int64_t t_own = member / 32 * 16;
    const int32_t rows_here = int32_t(weft::minimum<int64_t>(channels - d_block, 64));
    const int32_t d_heard = weft::minimum<int32_t>(member % 32 * 2, rows_here - 2);  // what lies beyond hears of the last
    // kernels_of_scans.py:23: for t in range(length):
    float h_last[2] = {};
    const int64_t t_stop = here ? length : 0;  // what lies beyond has no points
    const int64_t tiles = (length + 63) / 64;
    const int32_t turns = int32_t((tiles + parts - 1) / parts);
    __shared__ weft::Affine<float>::Value h_runs[8][256];  // what runs do
    __shared__ weft::Relay<weft::Affine<float>, float, 64, 8, 4, 4, 8>::Shared h_relayed;
    const weft::Relay<weft::Affine<float>, float, 64, 8, 4, 4, 8> h_relay(h_relayed, h_told, int64_t(group / d_tiles) * channels + d_block, batch * channels, rows_here, part, parts);
    if (threadIdx.x == 0) h_relay.init<false>(1, turns);
    #pragma unroll
    for (int32_t v = 0; v < 2; ++v) {
        if (here && threadIdx.x < 32) h_relayed.first[member % 32 * 2 + v] = h_last[v];
    }
    __shared__ weft::Mbarrier emptied[11], composed[8], made[2], sent[2];
    if (threadIdx.x == 0) {
        for (int32_t k = 0; k < 11; ++k) emptied[k].init(4);
        for (int32_t k = 0; k < 8; ++k) composed[k].init(4);
        for (int32_t k = 0; k < 2; ++k) made[k].init(4), sent[k].init(1);
    }
    // 11 tiles are on their way or there
    extern __shared__ __align__(128) unsigned char memory[];
    weft::bfloat16* const c_ring = reinterpret_cast<weft::bfloat16*>(memory);
    weft::bfloat16* const x_ring = reinterpret_cast<weft::bfloat16*>(memory + 90112);
    __shared__ weft::Mbarrier arrived[11];
    if (threadIdx.x == 0) {
        for (int32_t k = 0; k < 11; ++k) arrived[k].init(64);
        weft::fence_mbarrier_init();
    }
    __syncthreads();
    const int32_t t_slot = member / 32 * 1024 + member % 32 * 2;  // of its first point in a tile
    weft::bfloat16* const y_made = reinterpret_cast<weft::bfloat16*>(memory + 180224);
    const bool c_dense = c_stride_1 == channels;  // points end where the next begin
    const bool x_dense = x_stride_1 == channels;  // points end where the next begin
    const bool at_once = c_dense && x_dense && channels == 64;  // the points of a tile are one run
    const int32_t c_pitch = 64;
    const int32_t x_pitch = 64;
    const uint32_t y_past = 0, y_pace = y_stride_1;
    const int32_t y_pitch = 64;
    const int32_t y_slot = member / 32 * 1024 + member % 32 * 2;
    weft::cluster_sync();  // all blocks of it have begun
    if (threadIdx.x < 256) {
        // these go through points, 2 groups in turn
        // what blocks tell each other is heard 6 turns later
        for (int32_t turn = threadIdx.x / 128; turn < turns + 6; turn += 2) {
            if (turn < turns) {
                const int32_t k = turn % 8;
                const int64_t tile = turn * parts + part;
                const int64_t t_first = tile * 64 + t_own;
                const int32_t points = int32_t(weft::minimum<int64_t>(weft::maximum<int64_t>(t_stop - t_first, 0), 16));  // of its own
                const int32_t stage = turn % 11;
                arrived[stage].wait(turn / 11 & 1);
                // what each run does to h
                weft::Affine<float>::Value h_own[2];
                #pragma unroll
                for (int32_t v = 0; v < 2; ++v) {
                    h_own[v] = weft::Affine<float>::identity();
                }
                const auto go = [&](const bool whole) {
                    #pragma unroll
                    for (int32_t step = 0; step < 16; ++step) {
                        if (whole || step < points) {
                            float c_tile[2];
                            weft::unpack(weft::fetch<2, 2>(c_ring + stage * 4096 + t_slot + step * 64), c_tile);
                            float x_tile[2];
                            weft::unpack(weft::fetch<2, 2>(x_ring + stage * 4096 + t_slot + step * 64), x_tile);
                            #pragma unroll
                            for (int32_t v = 0; v < 2; ++v) {
                                // kernels_of_scans.py:23: for t in range(length):
                                h_own[v] = weft::Affine<float>::combine(h_own[v], {c_tile[v], x_tile[v]});
                            }
                        }
                    }
                };
                if (points == 16) go(true);
                else go(false);
                #pragma unroll
                for (int32_t v = 0; v < 2; ++v) {
                    if (here) h_runs[k][member / 32 * 64 + d_heard + v] = h_own[v];
                }
                __syncwarp();
                composed[k].arrive_if(threadIdx.x % 32 == 0);
            }
            if (turn >= 6) {
                const int32_t k = (turn - 6) % 8, stage = (turn - 6) % 11;
                const int64_t tile = (turn - 6) * parts + part;
                const int64_t t_first_2 = tile * 64 + t_own;
                const int32_t points_2 = int32_t(weft::minimum<int64_t>(weft::maximum<int64_t>(t_stop - t_first_2, 0), 16));  // of its own
                h_relay.hear(turn - 5);
                float h_before[2];
                #pragma unroll
                for (int32_t v = 0; v < 2; ++v) {
                    const int64_t d = d_first + v;
                    const auto h_known = h_relay.known(d_heard + v, turn - 5);  // before the tile
                    h_before[v] = h_known.value;
                    weft::Affine<float>::apply(h_runs[k][member / 32 * 64 + d_heard + v], h_before[v]);
                    // what overflows when points are composed is computed in their order, as they are in memory
                    if ((!weft::is_finite(h_before[v]) && !weft::is_nan(h_known.value)) || h_known.asked[0]) {
                        const auto h_change = [&](int64_t from, int64_t to, float& h) {
                            #pragma unroll 1
                            for (int64_t t_2 = weft::maximum<int64_t>(from, 0); t_2 < weft::minimum<int64_t>(to, t_stop); ++t_2) {
                                // kernels_of_scans.py:24: h = c[b, t, d] * h + x[b, t, d]
                                const float c_value = float(c_b[t_2 * c_stride_1 + d]);
                                const float x_value = float(x_b[t_2 * x_stride_1 + d]);
                                const float h_1 = weft::fma(c_value, h, x_value);
                                h = h_1;
                            }
                        };
                        if (!weft::is_finite(h_before[v]) && !weft::is_nan(h_known.value)) {
                            h_before[v] = h_known.value;
                            h_change(t_first_2 - t_own, t_first_2, h_before[v]);
                        }
                        if (here && h_known.asked[0] && member / 32 == 3) {
                            float h_after = h_before[v];
                            h_change(t_first_2, t_first_2 - t_own + 64, h_after);
                            h_relay.answer(member % 32 * 2 + v, h_after, turn - 5);
                        }
                    }
                }
                const int32_t place_made = (turn - 6) % 2;
                sent[place_made].wait(((turn - 6) / 2 & 1) ^ 1);
                float h[2];
                #pragma unroll
                for (int32_t v = 0; v < 2; ++v) {
                    h[v] = h_before[v];
                }
                const auto go_2 = [&](const bool whole) {
                    weft::bfloat16* y_to = y_made + place_made * 4096 + y_slot;
                    #pragma unroll
                    for (int32_t step = 0; step < 16; ++step) {
                        if (whole || step < points_2) {
                            float c_tile[2];
                            weft::unpack(weft::fetch<2, 2>(c_ring + stage * 4096 + t_slot + step * 64), c_tile);
                            float x_tile[2];
                            weft::unpack(weft::fetch<2, 2>(x_ring + stage * 4096 + t_slot + step * 64), x_tile);
                            float y_run[2];
                            #pragma unroll
                            for (int32_t v = 0; v < 2; ++v) {
                                // kernels_of_scans.py:24: h = c[b, t, d] * h + x[b, t, d]
                                const float h_1_2 = weft::fma(c_tile[v], h[v], x_tile[v]);
                                // kernels_of_scans.py:25: y[b, t, d] = h
                                y_run[v] = h_1_2;
                                h[v] = h_1_2;
                            }
                            weft::keep<2>(y_to, y_run);
                        }
                        y_to += y_pitch;
                    }
                };
                if (points_2 == 16) go_2(true);
                else go_2(false);
                weft::fence_proxy_async();  // before bulk copies send what has been made
                __syncwarp();
                made[place_made].arrive_if(threadIdx.x % 32 == 0);
                __syncwarp();
                emptied[stage].arrive_if(threadIdx.x % 32 == 0);
            }
        }
    }
    else {
        if (threadIdx.x < 288) {
            // these compose what runs of a row do, and tell that
            for (int32_t turn = 0; turn < turns; ++turn) {
                composed[turn % 8].wait(turn / 8 & 1);
                for (int32_t own = threadIdx.x - 256; own < rows_here; own += 32) {
                    const auto h_all = weft::compose_runs<weft::Affine<float>, 4, false>(h_runs[turn % 8] + own, 64);
                    h_relay.tell(own, h_all, turn + 1);
                }
                __syncwarp();
                if (threadIdx.x % 32 == 0) h_relay.expect(turn + 1, threadIdx.x == 256);
            }
        }
        else if (threadIdx.x < 320) {
            // these bring tiles
            for (int32_t turn = 0; turn < turns; ++turn) {
                const int64_t tile = turn * parts + part;
                const int32_t stage = turn % 11;
                emptied[stage].wait((turn / 11 & 1) ^ 1);
                weft::fence_proxy_async();  // what threads have brought themselves comes before bulk copies to its place
                __syncwarp();
                const int64_t first = tile * 64;
                if (at_once) {
                    const weft::bfloat16* const c_rows = c_b + first * c_stride_1 + d_block;
                    weft::bfloat16* const c_to = c_ring + stage * 4096;
                    const weft::bfloat16* const x_rows = x_b + first * x_stride_1 + d_block;
                    weft::bfloat16* const x_to = x_ring + stage * 4096;
                    const int64_t c_low = weft::maximum<int64_t>(-(first), 0);  // the first point that is there
                    const int64_t c_high = weft::minimum<int64_t>(length - (first), 64);
                    // kernels_of_scans.py:24: h = c[b, t, d] * h + x[b, t, d]
                    if (threadIdx.x % 32 == 0) {
                        weft::copy_run(c_to + c_low * c_pitch, c_rows + c_low * c_pitch, int32_t((c_high - c_low - 1) * c_pitch) + rows_here,
                                       (first + c_low) * c_pitch, (length - (first) - c_high) * c_pitch, arrived[stage]);
                    }
                    const int64_t x_low = weft::maximum<int64_t>(-(first), 0);  // the first point that is there
                    const int64_t x_high = weft::minimum<int64_t>(length - (first), 64);
                    // kernels_of_scans.py:24: h = c[b, t, d] * h + x[b, t, d]
                    if (threadIdx.x % 32 == 0) {
                        weft::copy_run(x_to + x_low * x_pitch, x_rows + x_low * x_pitch, int32_t((x_high - x_low - 1) * x_pitch) + rows_here,
                                       (first + x_low) * x_pitch, (length - (first) - x_high) * x_pitch, arrived[stage]);
                    }
                }
                else {
                    const int32_t place = threadIdx.x % 32 / 8, beside = threadIdx.x % 32 % 8 * 8;
                    const int64_t d_copied = d_block + beside;
                    const int32_t left = d_copied < channels ? int32_t(weft::minimum<int64_t>(weft::maximum<int64_t>(length - first, 0), 64)) : 0;
                    const weft::bfloat16* c_from = c_b + (first + place) * c_stride_1 + d_copied;
                    const weft::bfloat16* x_from = x_b + (first + place) * x_stride_1 + d_copied;
                    #pragma unroll
                    for (int32_t k = 0; k < 16; ++k) {
                        if (place + k * 4 < left) {
                            const int32_t slot = stage * 4096 + (place + k * 4) * 64 + beside;
                            // kernels_of_scans.py:24: h = c[b, t, d] * h + x[b, t, d]
                            weft::copy_async<16>(c_ring + slot, c_from);
                            weft::copy_async<16>(x_ring + slot, x_from);
                        }
                        c_from += 4 * c_stride_1;
                        x_from += 4 * x_stride_1;
                    }
                }
                weft::arrive_on_copies(arrived[stage]);
                arrived[stage].arrive();  // what threads have brought themselves
            }
        }
        else if (threadIdx.x < 352) {
            // these send results
            for (int32_t turn = 0; turn < turns; ++turn) {
                const int64_t tile = turn * parts + part;
                const int64_t first = tile * 64;
                const int32_t low = int32_t(weft::minimum<int64_t>(weft::maximum<int64_t>(0 - first, 0), 64));
                const int32_t high = int32_t(weft::minimum<int64_t>(length - first, 64));
                const int32_t place_made = turn % 2;
                made[place_made].wait(turn / 2 & 1);
                weft::bfloat16* const y_rows = y_b + first * y_stride_1 + d_block;
                const weft::bfloat16* const y_from = y_made + place_made * 4096;
                // kernels_of_scans.py:25: y[b, t, d] = h
                if (y_pitch == int32_t(y_pace) && rows_here == y_pitch) {
                    if (threadIdx.x % 32 == 0) weft::send_run(y_rows + int64_t(low) * y_pace, y_from + low * y_pitch, (high - low) * y_pitch);
                }
                else {
                    for (int32_t place = low + threadIdx.x % 32; place < high; place += 32)
                        weft::send_run(y_rows + int64_t(place) * y_pace, y_from + place * y_pitch, rows_here);
                }
                weft::bulk_commit();
                weft::bulk_wait_read<0>();
                __syncwarp();
                sent[place_made].arrive_if(threadIdx.x % 32 == 0);
            }
            weft::bulk_wait<0>();
        }
        else {
            // these tell what the cluster does, and pass on what all clusters do
            const int warp = (int(threadIdx.x) - 352) / 32;
            if (warp < 1) h_relay.gather(turns, warp - 0);
            else if (warp < 5) h_relay.pass_on<true, true, false>(turns, warp - 1);
        }
    }
    __syncwarp();
    weft::cluster_sync();  // until then others send to this block
}
