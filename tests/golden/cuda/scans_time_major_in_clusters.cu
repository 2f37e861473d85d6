#include "weft/memory.cuh"
#include "weft/relay.cuh"
#include "weft/packet.cuh"

extern "C" __global__ void __launch_bounds__(576, 1) __cluster_dims__(8, 1, 1) time_major(
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
    // 64 neighbours along d, 16 threads for each; a thread has 2 of them,
    // and 12 points of a tile of 192
    const int64_t d_tiles = (channels + 63) / 64;
    const int64_t d_block = int64_t(group % d_tiles) * 64;  // of the block's rows
    const int64_t d_first = d_block + threadIdx.x % 32 * 2;
    const bool here = d_first < channels;
    const int64_t b = int64_t(group / d_tiles);
    const weft::bfloat16* x_b = x + b * x_stride_0;
    const weft::bfloat16* c_b = c + b * c_stride_0;
    weft::bfloat16* y_b = y + b * y_stride_0;
    const int64_t t_own = threadIdx.x / 32 * 12;
    const int32_t rows_here = int32_t(weft::minimum<int64_t>(channels - d_block, 64));
    const int32_t d_heard = weft::minimum<int32_t>(threadIdx.x % 32 * 2, rows_here - 2);  // what lies beyond hears of the last
    // kernels_of_scans.py:23: for t in range(length):
    float h_last[2] = {};
    const int64_t t_stop = here ? length : 0;  // what lies beyond has no points
    const int64_t tiles = (length + 191) / 192;
    __shared__ weft::Affine<float>::Value h_scratch[2][1024];  // in turn
    __shared__ weft::Relay<weft::Affine<float>, float, 64, 8, 4, 2>::Shared h_relayed;
    const weft::Relay<weft::Affine<float>, float, 64, 8, 4, 2> h_relay(h_relayed, h_told, int64_t(group / d_tiles) * channels + d_block, batch * channels, rows_here, part, parts);
    if (threadIdx.x == 0) h_relay.init();
    #pragma unroll
    for (int32_t v = 0; v < 2; ++v) {
        if (here && threadIdx.x < 32) h_relayed.first[threadIdx.x % 32 * 2 + v] = h_last[v];
    }
    // 4 tiles are on their way or there
    extern __shared__ __align__(128) unsigned char memory[];
    weft::bfloat16* const c_ring = reinterpret_cast<weft::bfloat16*>(memory);
    weft::bfloat16* const x_ring = reinterpret_cast<weft::bfloat16*>(memory + 98304);
    __shared__ weft::Mbarrier arrived[4];
    if (threadIdx.x == 0) {
        for (int32_t k = 0; k < 4; ++k) arrived[k].init(512);
        weft::fence_mbarrier_init();
    }
    __syncthreads();
    const int32_t t_slot = threadIdx.x / 32 * 768 + threadIdx.x % 32 * 2;  // of its first point in a tile
    const int32_t turns = int32_t((tiles + parts - 1) / parts);
    weft::cluster_sync();  // all blocks of it have begun
    if (threadIdx.x >= 512) {
        const int warp = int(threadIdx.x) / 32 - 16;
        h_relay.pass_on<true, true, false>(turns, warp % 2);
        weft::cluster_sync();  // until then others send to this block
        return;
    }
    const auto copy_tile = [&](int64_t tile, int32_t stage) {
        const int64_t first = tile * 192;
        const int32_t place = threadIdx.x / 8, beside = threadIdx.x % 8 * 8;
        const int64_t d_copied = d_block + beside;
        const int32_t left = d_copied < channels ? int32_t(weft::minimum<int64_t>(weft::maximum<int64_t>(length - first, 0), 192)) : 0;
        const weft::bfloat16* c_from = c_b + (first + place) * c_stride_1 + d_copied;
        const weft::bfloat16* x_from = x_b + (first + place) * x_stride_1 + d_copied;
        #pragma unroll
        for (int32_t k = 0; k < 3; ++k) {
            if (place + k * 64 < left) {
                const int32_t slot = stage * 12288 + (place + k * 64) * 64 + beside;
                // kernels_of_scans.py:24: h = c[b, t, d] * h + x[b, t, d]
                weft::copy_async<16>(c_ring + slot, c_from);
                weft::copy_async<16>(x_ring + slot, x_from);
            }
            c_from += 64 * c_stride_1;
            x_from += 64 * x_stride_1;
        }
        weft::arrive_on_copies(arrived[stage]);
    };
    for (int32_t k = 0; k < 4 && k < turns; ++k) copy_tile(k * parts + part, k);
    // what blocks tell each other of a turn is heard 2 turns later
    weft::Prefix<weft::Affine<float>> h_composed[2];
    weft::Affine<float>::Value h_kept[2][2];  // before runs of the turns before
    for (int32_t turn = 0; turn < turns + 2; ++turn) {
        #pragma unroll
        for (int32_t v = 0; v < 2; ++v) {
            h_kept[1][v] = h_kept[0][v];
            h_kept[0][v] = h_composed[v].before;
        }
        if (turn < turns) {
            const int64_t tile = turn * parts + part;
            const int64_t t_first = tile * 192 + t_own;
            const int32_t points = int32_t(weft::minimum<int64_t>(weft::maximum<int64_t>(t_stop - t_first, 0), 12));  // of its own
            const int32_t stage = turn % 4;
            arrived[stage].wait(turn / 4 & 1);
            // what each run does to h
            weft::Affine<float>::Value h_own[2];
            #pragma unroll
            for (int32_t v = 0; v < 2; ++v) {
                h_own[v] = weft::Affine<float>::identity();
            }
            const auto go = [&](const bool whole) {
                #pragma unroll
                for (int32_t step = 0; step < 12; ++step) {
                    if (whole || step < points) {
                        float c_tile[2];
                        weft::unpack(weft::fetch<2, 2>(c_ring + stage * 12288 + t_slot + step * 64), c_tile);
                        float x_tile[2];
                        weft::unpack(weft::fetch<2, 2>(x_ring + stage * 12288 + t_slot + step * 64), x_tile);
                        #pragma unroll
                        for (int32_t v = 0; v < 2; ++v) {
                            // kernels_of_scans.py:23: for t in range(length):
                            h_own[v] = weft::Affine<float>::combine(h_own[v], {c_tile[v], x_tile[v]});
                        }
                    }
                }
            };
            if (points == 12) go(true);
            else go(false);
            weft::scan_down<weft::Affine<float>, 32, 512, false, 1>(h_own, h_composed, h_scratch[turn & 1]);
            if (threadIdx.x == 0) h_relay.expect(turn + 1);
            #pragma unroll
            for (int32_t v = 0; v < 2; ++v) {
                if (here && threadIdx.x < 32) h_relay.tell(threadIdx.x % 32 * 2 + v, h_composed[v].all, turn + 1);
            }
        }
        if (turn < 2) continue;
        const int64_t tile = (turn - 2) * parts + part;
        const int64_t t_first = tile * 192 + t_own;
        const int32_t points = int32_t(weft::minimum<int64_t>(weft::maximum<int64_t>(t_stop - t_first, 0), 12));  // of its own
        const int32_t stage = (turn - 2) % 4;
        h_relay.hear((turn - 1));
        float h_tile[2];
        float h_before[2];
        bool h_asked[2];
        bool h_finite = true;
        #pragma unroll
        for (int32_t v = 0; v < 2; ++v) {
            const auto h_known = h_relay.known(d_heard + v, (turn - 1));  // before the tile
            h_tile[v] = h_before[v] = h_known.value;
            weft::Affine<float>::apply(h_kept[1][v], h_before[v]);
            h_asked[v] = h_known.asked[0];
            h_finite = h_finite && !h_asked[v] && (weft::is_finite(h_before[v]) || weft::is_nan(h_tile[v]));
        }
        // what overflows when points are composed is computed in their order
        if (!weft::all_of_threads<512>(h_finite, (turn - 1), h_relayed.failed)) {
            #pragma unroll
            for (int32_t v = 0; v < 2; ++v) {
                const auto change = [&](float& h) {
                    #pragma unroll
                    for (int32_t step = 0; step < 12; ++step) {
                        if (step < points) {
                            float c_tile[2];
                            weft::unpack(weft::fetch<2, 2>(c_ring + stage * 12288 + t_slot + step * 64), c_tile);
                            float x_tile[2];
                            weft::unpack(weft::fetch<2, 2>(x_ring + stage * 12288 + t_slot + step * 64), x_tile);
                            // kernels_of_scans.py:24: h = c[b, t, d] * h + x[b, t, d]
                            const float h_1 = weft::fma(c_tile[v], h, x_tile[v]);
                            h = h_1;
                        }
                    }
                };
                const auto keep = [&](float& h) { h_before[v] = h; };
                weft::down_in_turn<32, 512, false, 1>(change, keep, h_tile[v]);
                if (here && threadIdx.x < 32 && h_asked[v]) h_relay.answer(threadIdx.x % 32 * 2 + v, h_tile[v], (turn - 1));
            }
        }
        float h[2];
        #pragma unroll
        for (int32_t v = 0; v < 2; ++v) {
            h[v] = h_before[v];
        }
        const auto go_2 = [&](const bool whole) {
            weft::bfloat16* y_to = y_b + t_first * y_stride_1 + d_first;
            #pragma unroll
            for (int32_t step = 0; step < 12; ++step) {
                if (whole || step < points) {
                    float c_tile[2];
                    weft::unpack(weft::fetch<2, 2>(c_ring + stage * 12288 + t_slot + step * 64), c_tile);
                    float x_tile[2];
                    weft::unpack(weft::fetch<2, 2>(x_ring + stage * 12288 + t_slot + step * 64), x_tile);
                    float y_run[2];
                    #pragma unroll
                    for (int32_t v = 0; v < 2; ++v) {
                        // kernels_of_scans.py:24: h = c[b, t, d] * h + x[b, t, d]
                        const float h_1 = weft::fma(c_tile[v], h[v], x_tile[v]);
                        // kernels_of_scans.py:25: y[b, t, d] = h
                        y_run[v] = h_1;
                        h[v] = h_1;
                    }
                    weft::store<2>(y_to, y_run);
                }
                y_to += y_stride_1;
            }
        };
        if (points == 12) go_2(true);
        else go_2(false);
        weft::barrier_sync(1, 512);  // all have gone through it
        if (turn - 2 + 4 < turns) copy_tile(tile + 4 * parts, stage);
    }
    weft::cluster_sync();  // until then others send to this block
}
