#include "weft/memory.cuh"
#include "weft/chain.cuh"
#include "weft/bulk.cuh"

extern "C" __global__ void __launch_bounds__(512, 1) linrec(
    const float* __restrict__ x,
    const float* __restrict__ c,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t c_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length,
    uint64_t* h_told,
    const int64_t parts) {
    // blocks share a row, a tile each, and tell each other what theirs does
    const int64_t part = blockIdx.y;
    const int64_t r = int64_t(blockIdx.x);
    const float* x_r = x + r * x_stride_0;
    const float* c_r = c + r * c_stride_0;
    float* y_r = y + r * y_stride_0;
    // a tile is 8192 points; a thread has 4 times 4 of them, beside those of its warp
    const int32_t l_own = threadIdx.x / 32 * 512 + threadIdx.x % 32 * 4;
    // linrec.py:22: for l in range(length):
    float h_last = 0.0f;
    const int64_t tiles = (length + 8191) / 8192;
    __shared__ weft::Affine<float>::Value h_scratch[2][16];  // in turn, so that one barrier does
    const weft::Chain<weft::Affine<float>, float, 1, 512> h_chain(h_told, r, rows, part, parts);
    __shared__ weft::Chain<weft::Affine<float>, float, 1, 512>::Both::Value h_parts[h_chain.places];
    // 3 tiles are on their way or there
    extern __shared__ __align__(128) unsigned char memory[];
    float* const c_ring = reinterpret_cast<float*>(memory);
    float* const x_ring = reinterpret_cast<float*>(memory + 98304);
    __shared__ weft::Mbarrier arrived[3];
    if (threadIdx.x == 0) {
        for (int32_t k = 0; k < 3; ++k) arrived[k].init(1);
        weft::fence_mbarrier_init();
    }
    __syncthreads();
    const int32_t turns = int32_t((tiles + parts - 1) / parts);
    const auto copy_tile = [&](int64_t tile, int32_t stage) {
        if (threadIdx.x != 0) return;
        const int64_t first = tile * 8192;
        if (first >= length) {
            arrived[stage].arrive();
            return;
        }
        const int64_t last = weft::minimum<int64_t>(first + 8192, length);
        arrived[stage].arrive_expect((last - first) * 4 + (last - first) * 4);
        weft::bulk_load(c_ring + stage * 8192, c_r + first, (last - first) * 4, arrived[stage]);
        weft::bulk_load(x_ring + stage * 8192, x_r + first, (last - first) * 4, arrived[stage]);
    };
    for (int32_t k = 0; k < 3 && k < turns; ++k) copy_tile(k * parts + part, k);
    // what blocks tell each other of a turn is heard in the next one
    weft::Affine<float>::Value h_maps[4];  // what the warp's runs before each do
    weft::Runs<weft::Affine<float>> h_composed;
    for (int32_t turn = 0; turn <= turns; ++turn) {
        weft::Affine<float>::Value h_maps_before[4];
        #pragma unroll
        for (int32_t run = 0; run < 4; ++run) {
            h_maps_before[run] = h_maps[run];
        }
        const auto h_composed_before = h_composed;
        typename decltype(h_chain)::Asked<1> h_asked;
        h_chain.ask<1>(h_asked, turn);
        if (turn < turns) {
            const int64_t tile = turn * parts + part;
            const int32_t l_first = tile * 8192 + l_own;
            const int32_t stage = turn % 3;
            arrived[stage].wait(turn / 3 & 1);
            float c_tile[4][4];
            float x_tile[4][4];
            #pragma unroll
            for (int32_t run = 0; run < 4; ++run) {
                const int32_t l_there = l_first + run * 128;
                // linrec.py:23: h = c[r, l] * h + x[r, l]
                if (l_there < length) weft::unpack(weft::fetch<4, 4>(c_ring + stage * 8192 + l_own + run * 128), c_tile[run]);
                if (l_there < length) weft::unpack(weft::fetch<4, 4>(x_ring + stage * 8192 + l_own + run * 128), x_tile[run]);
            }
            // what each run does to h
            weft::Affine<float>::Value h_own[4];
            #pragma unroll
            for (int32_t run = 0; run < 4; ++run) {
                const int32_t l_run = l_first + run * 128;
                h_own[run] = weft::Affine<float>::identity();
                if (l_run < length) {
                    #pragma unroll
                    for (int32_t v = 0; v < 4; ++v) {
                        // linrec.py:22: for l in range(length):
                        h_own[run] = weft::Affine<float>::combine(h_own[run], {c_tile[run][v], x_tile[run][v]});
                    }
                }
            }
            h_composed = weft::scan_runs<weft::Affine<float>, 512, false>(h_own, h_maps, h_scratch[turn & 1]);
            h_chain.tells_of(h_composed.all, turn + 1);
        }
        if (turn == 0) continue;
        const int64_t tile = (turn - 1) * parts + part;
        const int32_t l_first = tile * 8192 + l_own;
        const int32_t stage = (turn - 1) % 3;
        float c_tile[4][4];
        float x_tile[4][4];
        #pragma unroll
        for (int32_t run = 0; run < 4; ++run) {
            const int32_t l_there = l_first + run * 128;
            // linrec.py:23: h = c[r, l] * h + x[r, l]
            if (l_there < length) weft::unpack(weft::fetch<4, 4>(c_ring + stage * 8192 + l_own + run * 128), c_tile[run]);
            if (l_there < length) weft::unpack(weft::fetch<4, 4>(x_ring + stage * 8192 + l_own + run * 128), x_tile[run]);
        }
        float h_tile = h_last;  // before the tile
        bool h_whole = true;  // what all blocks tell can be composed
        float h_turn;
        const auto h_others = h_chain.hear(h_asked, turn, h_parts, h_whole);
        weft::Affine<float>::apply(h_others.before, h_tile);
        h_turn = h_last;
        weft::Affine<float>::apply(h_others.all, h_last);
        if ((!weft::is_finite(h_tile) || !weft::is_finite(h_last)) && !weft::is_nan(h_turn)) {
            h_last = h_turn;
            h_chain.replay(turn, h_tile, h_last);
        }
        float h_warp = h_tile;
        weft::Affine<float>::apply(h_composed_before.warp, h_warp);
        bool h_finite = h_whole && weft::is_finite(h_last);
        float h_before[4];  // before each run
        #pragma unroll
        for (int32_t run = 0; run < 4; ++run) {
            h_before[run] = h_warp;
            weft::Affine<float>::apply(h_maps_before[run], h_before[run]);
            h_finite = h_finite && weft::is_finite(h_before[run]);
        }
        // what overflows when points are composed is computed in their order
        if (!weft::all_of_team<512>(h_finite || weft::is_nan(h_turn))) {
            h_whole = weft::all_of_team<512>(h_whole);
            if (!h_whole) h_tile = h_chain.received(turn, h_turn);
            const auto change = [&](int32_t run, float& h) {
                const int32_t l_run = l_first + run * 128;
                if (l_run < length) {
                    #pragma unroll
                    for (int32_t v = 0; v < 4; ++v) {
                        // linrec.py:23: h = c[r, l] * h + x[r, l]
                        const float h_1 = weft::fma(c_tile[run][v], h, x_tile[run][v]);
                        h = h_1;
                    }
                }
            };
            const auto keep = [&](int32_t run, float& h) { h_before[run] = h; };
            weft::runs_in_turn<512, false, 4>(change, keep, h_tile);
            if (!h_whole) h_last = h_chain.handed_on(turn, h_tile);
        }
        #pragma unroll
        for (int32_t run = 0; run < 4; ++run) {
            const int32_t l_run = l_first + run * 128;
            float h = h_before[run];
            if (l_run < length) {
                float y_run[4];
                #pragma unroll
                for (int32_t v = 0; v < 4; ++v) {
                    // linrec.py:23: h = c[r, l] * h + x[r, l]
                    const float h_1 = weft::fma(c_tile[run][v], h, x_tile[run][v]);
                    // linrec.py:24: y[r, l] = h
                    y_run[v] = h_1;
                    h = h_1;
                }
                weft::store<4>(y_r + l_run, y_run);
            }
        }
        __syncthreads();  // all have gone through it
        if (turn - 1 + 3 < turns) copy_tile(tile + 3 * parts, stage);
    }
}
