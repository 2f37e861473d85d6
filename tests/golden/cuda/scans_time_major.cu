#include "weft/memory.cuh"
#include "weft/chain.cuh"
#include "weft/packet.cuh"

extern "C" __global__ void __launch_bounds__(256, 2) time_major(
    const float* __restrict__ x,
    const float* __restrict__ c,
    float* __restrict__ y,
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
    const int64_t part = blockIdx.y;
    // 32 neighbours along d, 8 threads for each; a thread has one,
    // and 17 points of a tile of 136
    const int64_t d_tiles = (channels + 31) / 32;
    const int64_t d_block = int64_t(blockIdx.x % d_tiles) * 32;  // of the block's rows
    const int64_t d = d_block + threadIdx.x % 32;
    const bool here = d < channels;
    const int64_t b = int64_t(blockIdx.x / d_tiles);
    const float* x_b = x + b * x_stride_0;
    const float* c_b = c + b * c_stride_0;
    float* y_b = y + b * y_stride_0;
    const int64_t t_own = threadIdx.x / 32 * 17;
    // kernels_of_scans.py:23: for t in range(length):
    float h_last = {};
    const int64_t t_stop = here ? length : 0;  // what lies beyond has no points
    const int64_t tiles = (length + 135) / 136;
    __shared__ weft::Affine<float>::Value h_scratch[2][256];  // in turn
    const int64_t h_row = int64_t(blockIdx.x / d_tiles) * channels + weft::minimum<int64_t>(d, channels - 1);
    const weft::Chain<weft::Affine<float>, float, 32, 256> h_chain(h_told, h_row, batch * channels, part, parts, here);
    __shared__ weft::Chain<weft::Affine<float>, float, 32, 256>::Both::Value h_parts[h_chain.places];
    // 3 tiles are on their way or there
    extern __shared__ __align__(128) unsigned char memory[];
    float* const c_ring = reinterpret_cast<float*>(memory);
    float* const x_ring = reinterpret_cast<float*>(memory + 52224);
    __shared__ weft::Mbarrier arrived[3];
    if (threadIdx.x == 0) {
        for (int32_t k = 0; k < 3; ++k) arrived[k].init(256);
        weft::fence_mbarrier_init();
    }
    __syncthreads();
    const int32_t t_slot = threadIdx.x / 32 * 544 + threadIdx.x % 32;  // of its first point in a tile
    const int32_t turns = int32_t((tiles + parts - 1) / parts);
    const auto copy_tile = [&](int64_t tile, int32_t stage) {
        const int64_t first = tile * 136;
        const int32_t place = threadIdx.x / 8, beside = threadIdx.x % 8 * 4;
        const int64_t d_copied = d_block + beside;
        const int32_t left = d_copied < channels ? int32_t(weft::minimum<int64_t>(weft::maximum<int64_t>(length - first, 0), 136)) : 0;
        const float* c_from = c_b + (first + place) * c_stride_1 + d_copied;
        const float* x_from = x_b + (first + place) * x_stride_1 + d_copied;
        #pragma unroll
        for (int32_t k = 0; k < 5; ++k) {
            if (place + k * 32 < left) {
                const int32_t slot = stage * 4352 + (place + k * 32) * 32 + beside;
                // kernels_of_scans.py:24: h = c[b, t, d] * h + x[b, t, d]
                weft::copy_async<16>(c_ring + slot, c_from);
                weft::copy_async<16>(x_ring + slot, x_from);
            }
            c_from += 32 * c_stride_1;
            x_from += 32 * x_stride_1;
        }
        weft::arrive_on_copies(arrived[stage]);
    };
    for (int32_t k = 0; k < 3 && k < turns; ++k) copy_tile(k * parts + part, k);
    // what blocks tell each other of a turn is heard in the next one
    weft::Prefix<weft::Affine<float>> h_composed;
    for (int32_t turn = 0; turn <= turns; ++turn) {
        const auto h_composed_before = h_composed;
        typename decltype(h_chain)::Asked<1> h_asked;
        h_chain.ask<1>(h_asked, turn);
        if (turn < turns) {
            const int64_t tile = turn * parts + part;
            const int64_t t_first = tile * 136 + t_own;
            const int32_t points = int32_t(weft::minimum<int64_t>(weft::maximum<int64_t>(t_stop - t_first, 0), 17));  // of its own
            const int32_t stage = turn % 3;
            arrived[stage].wait(turn / 3 & 1);
            // what each run does to h
            weft::Affine<float>::Value h_own;
            h_own = weft::Affine<float>::identity();
            const auto go = [&](const bool whole) {
                #pragma unroll
                for (int32_t step = 0; step < 17; ++step) {
                    if (whole || step < points) {
                        const float c_tile = float(c_ring[stage * 4352 + t_slot + step * 32]);
                        const float x_tile = float(x_ring[stage * 4352 + t_slot + step * 32]);
                        // kernels_of_scans.py:23: for t in range(length):
                        h_own = weft::Affine<float>::combine(h_own, {c_tile, x_tile});
                    }
                }
            };
            if (points == 17) go(true);
            else go(false);
            weft::scan_down<weft::Affine<float>, 32, 256, false>(h_own, h_composed, h_scratch[turn & 1]);
            h_chain.tells_of(h_composed.all, turn + 1);
        }
        if (turn == 0) continue;
        const int64_t tile = (turn - 1) * parts + part;
        const int64_t t_first = tile * 136 + t_own;
        const int32_t points = int32_t(weft::minimum<int64_t>(weft::maximum<int64_t>(t_stop - t_first, 0), 17));  // of its own
        const int32_t stage = (turn - 1) % 3;
        float h_tile;
        float h_before;
        bool h_whole = true;  // what all blocks tell can be composed
        float h_turn;
        const auto h_others = h_chain.hear(h_asked, turn, h_parts, h_whole);
        bool h_finite = h_whole;
        h_tile = h_last;  // before the tile
        weft::Affine<float>::apply(h_others.before, h_tile);
        h_turn = h_last;
        weft::Affine<float>::apply(h_others.all, h_last);
        if ((!weft::is_finite(h_tile) || !weft::is_finite(h_last)) && !weft::is_nan(h_turn)) {
            h_last = h_turn;
            h_chain.replay(turn, h_tile, h_last);
        }
        h_before = h_tile;
        weft::Affine<float>::apply(h_composed_before.before, h_before);
        h_finite = h_finite && ((weft::is_finite(h_last) && weft::is_finite(h_before)) || weft::is_nan(h_turn));
        // what overflows when points are composed is computed in their order
        if (!weft::all_of_team<256>(h_finite)) {
            h_whole = weft::all_of_team<256>(h_whole);
            if (!h_whole) h_tile = h_chain.received(turn, h_turn);
            const auto change = [&](float& h) {
                #pragma unroll
                for (int32_t step = 0; step < 17; ++step) {
                    if (step < points) {
                        const float c_tile = float(c_ring[stage * 4352 + t_slot + step * 32]);
                        const float x_tile = float(x_ring[stage * 4352 + t_slot + step * 32]);
                        // kernels_of_scans.py:24: h = c[b, t, d] * h + x[b, t, d]
                        const float h_1 = weft::fma(c_tile, h, x_tile);
                        h = h_1;
                    }
                }
            };
            const auto keep = [&](float& h) { h_before = h; };
            weft::down_in_turn<32, 256, false>(change, keep, h_tile);
            if (!h_whole) h_last = h_chain.handed_on(turn, h_tile);
        }
        float h;
        h = h_before;
        const auto go_2 = [&](const bool whole) {
            float* y_to = y_b + t_first * y_stride_1 + d;
            #pragma unroll
            for (int32_t step = 0; step < 17; ++step) {
                if (whole || step < points) {
                    const float c_tile = float(c_ring[stage * 4352 + t_slot + step * 32]);
                    const float x_tile = float(x_ring[stage * 4352 + t_slot + step * 32]);
                    // kernels_of_scans.py:24: h = c[b, t, d] * h + x[b, t, d]
                    const float h_1 = weft::fma(c_tile, h, x_tile);
                    // kernels_of_scans.py:25: y[b, t, d] = h
                    y_to[0] = h_1;
                    h = h_1;
                }
                y_to += y_stride_1;
            }
        };
        if (points == 17) go_2(true);
        else go_2(false);
        __syncthreads();  // all have gone through it
        if (turn - 1 + 3 < turns) copy_tile(tile + 3 * parts, stage);
    }
}
