#include "weft/memory.cuh"
#include "weft/chain.cuh"
#include "weft/bulk.cuh"

extern "C" __global__ void __launch_bounds__(512, 1) log_cumulative(
    const float* __restrict__ x,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length,
    uint64_t* high_told,
    uint64_t* total_told,
    const int64_t parts) {
    // blocks share a row, a tile each, and tell each other what theirs does
    const int64_t part = blockIdx.y;
    const int64_t r = int64_t(blockIdx.x);
    const float* x_r = x + r * x_stride_0;
    float* y_r = y + r * y_stride_0;
    // a tile is 8192 points; a thread has 4 times 4 of them, beside those of its warp
    const int32_t t_own = threadIdx.x / 32 * 512 + threadIdx.x % 32 * 4;
    // kernels_of_scans.py:73: for t in range(length):
    float high_last = -INFINITY;
    float total_last = 0.0f;
    const int64_t tiles = (length + 8191) / 8192;
    __shared__ weft::Max<float>::Value high_scratch[2][16];  // in turn, so that one barrier does
    const weft::Chain<weft::Max<float>, float, 1, 512> high_chain(high_told, r, rows, part, parts);
    __shared__ weft::Chain<weft::Max<float>, float, 1, 512>::Both::Value high_parts[high_chain.places];
    __shared__ weft::Affine<float>::Value total_scratch[2][16];  // in turn, so that one barrier does
    const weft::Chain<weft::Affine<float>, float, 1, 512> total_chain(total_told, r, rows, part, parts);
    __shared__ weft::Chain<weft::Affine<float>, float, 1, 512>::Both::Value total_parts[total_chain.places];
    // 4 tiles are on their way or there
    extern __shared__ __align__(128) unsigned char memory[];
    float* const x_ring = reinterpret_cast<float*>(memory);
    __shared__ weft::Mbarrier arrived[4];
    if (threadIdx.x == 0) {
        for (int32_t k = 0; k < 4; ++k) arrived[k].init(1);
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
        arrived[stage].arrive_expect((last - first) * 4);
        weft::bulk_load(x_ring + stage * 8192, x_r + first, (last - first) * 4, arrived[stage]);
    };
    for (int32_t k = 0; k < 4 && k < turns; ++k) copy_tile(k * parts + part, k);
    for (int32_t turn = 0; turn < turns; ++turn) {
        const int64_t tile = turn * parts + part;
        float x_tile[4][4];
        const int32_t t_first = tile * 8192 + t_own;
        const int32_t stage = turn % 4;
        arrived[stage].wait(turn / 4 & 1);
        #pragma unroll
        for (int32_t run = 0; run < 4; ++run) {
            const int32_t t_there = t_first + run * 128;
            // kernels_of_scans.py:74: new = max(high, x[r, t])
            if (t_there < length) weft::unpack(weft::fetch<4, 4>(x_ring + stage * 8192 + t_own + run * 128), x_tile[run]);
        }
        __syncthreads();  // all have taken theirs
        if (turn + 4 < turns) copy_tile(tile + 4 * parts, stage);
        // what each run does to high
        weft::Max<float>::Value high_own[4];
        #pragma unroll
        for (int32_t run = 0; run < 4; ++run) {
            const int32_t t_run = t_first + run * 128;
            high_own[run] = weft::Max<float>::identity();
            if (t_run < length) {
                #pragma unroll
                for (int32_t v = 0; v < 4; ++v) {
                    // kernels_of_scans.py:73: for t in range(length):
                    high_own[run] = weft::Max<float>::combine(high_own[run], x_tile[run][v]);
                }
            }
        }
        weft::Max<float>::Value high_maps[4];  // what the warp's runs before each do
        const auto high_composed = weft::scan_runs<weft::Max<float>, 512, false>(high_own, high_maps, high_scratch[turn & 1]);
        float high_tile = high_last;  // before the tile
        bool high_whole = true;  // what all blocks tell can be composed
        high_chain.tells_of(high_composed.all, turn + 1);
        typename decltype(high_chain)::Asked<1> high_asked;
        high_chain.ask<1>(high_asked, turn + 1);
        const auto high_others = high_chain.hear(high_asked, turn + 1, high_parts, high_whole);
        weft::Max<float>::apply(high_others.before, high_tile);
        weft::Max<float>::apply(high_others.all, high_last);
        float high_warp = high_tile;
        weft::Max<float>::apply(high_composed.warp, high_warp);
        float high_before[4];  // before each run
        #pragma unroll
        for (int32_t run = 0; run < 4; ++run) {
            high_before[run] = high_warp;
            weft::Max<float>::apply(high_maps[run], high_before[run]);
        }
        // what each run does to total
        weft::Affine<float>::Value total_own[4];
        #pragma unroll
        for (int32_t run = 0; run < 4; ++run) {
            const int32_t t_run = t_first + run * 128;
            total_own[run] = weft::Affine<float>::identity();
            float high = high_before[run];
            if (t_run < length) {
                #pragma unroll
                for (int32_t v = 0; v < 4; ++v) {
                    // kernels_of_scans.py:74: new = max(high, x[r, t])
                    const float new_ = weft::python_max(high, x_tile[run][v]);
                    const float exp = weft::exp_flushed(high - new_);
                    const float exp_1 = weft::exp_flushed(x_tile[run][v] - new_);
                    // kernels_of_scans.py:73: for t in range(length):
                    total_own[run] = weft::Affine<float>::combine(total_own[run], {exp, exp_1});
                    high = new_;
                }
            }
        }
        weft::Affine<float>::Value total_maps[4];  // what the warp's runs before each do
        const auto total_composed = weft::scan_runs<weft::Affine<float>, 512, false>(total_own, total_maps, total_scratch[turn & 1]);
        float total_tile = total_last;  // before the tile
        bool total_whole = true;  // what all blocks tell can be composed
        float total_turn;
        total_chain.tells_of(total_composed.all, turn + 1);
        typename decltype(total_chain)::Asked<1> total_asked;
        total_chain.ask<1>(total_asked, turn + 1);
        const auto total_others = total_chain.hear(total_asked, turn + 1, total_parts, total_whole);
        weft::Affine<float>::apply(total_others.before, total_tile);
        total_turn = total_last;
        weft::Affine<float>::apply(total_others.all, total_last);
        if ((!weft::is_finite(total_tile) || !weft::is_finite(total_last)) && !weft::is_nan(total_turn)) {
            total_last = total_turn;
            total_chain.replay(turn + 1, total_tile, total_last);
        }
        float total_warp = total_tile;
        weft::Affine<float>::apply(total_composed.warp, total_warp);
        bool total_finite = total_whole && weft::is_finite(total_last);
        float total_before[4];  // before each run
        #pragma unroll
        for (int32_t run = 0; run < 4; ++run) {
            total_before[run] = total_warp;
            weft::Affine<float>::apply(total_maps[run], total_before[run]);
            total_finite = total_finite && weft::is_finite(total_before[run]);
        }
        // what overflows when points are composed is computed in their order
        if (!weft::all_of_team<512>(total_finite || weft::is_nan(total_turn))) {
            total_whole = weft::all_of_team<512>(total_whole);
            if (!total_whole) total_tile = total_chain.received(turn + 1, total_turn);
            const auto change = [&](int32_t run, float& total) {
                const int32_t t_run = t_first + run * 128;
                float high = high_before[run];
                if (t_run < length) {
                    #pragma unroll
                    for (int32_t v = 0; v < 4; ++v) {
                        // kernels_of_scans.py:74: new = max(high, x[r, t])
                        const float new_ = weft::python_max(high, x_tile[run][v]);
                        const float exp = weft::exp_flushed(high - new_);
                        const float exp_1 = weft::exp_flushed(x_tile[run][v] - new_);
                        // kernels_of_scans.py:75: total = total * torch.exp(high - new) + torch.exp(x[r, t] - new)
                        const float total_1 = weft::fma(total, exp, exp_1);
                        high = new_;
                        total = total_1;
                    }
                }
            };
            const auto keep = [&](int32_t run, float& total) { total_before[run] = total; };
            weft::runs_in_turn<512, false, 4>(change, keep, total_tile);
            if (!total_whole) total_last = total_chain.handed_on(turn + 1, total_tile);
        }
        #pragma unroll
        for (int32_t run = 0; run < 4; ++run) {
            const int32_t t_run = t_first + run * 128;
            float high = high_before[run];
            float total = total_before[run];
            if (t_run < length) {
                float y_run[4];
                #pragma unroll
                for (int32_t v = 0; v < 4; ++v) {
                    // kernels_of_scans.py:74: new = max(high, x[r, t])
                    const float new_ = weft::python_max(high, x_tile[run][v]);
                    const float exp = weft::exp_flushed(high - new_);
                    const float exp_1 = weft::exp_flushed(x_tile[run][v] - new_);
                    // kernels_of_scans.py:75: total = total * torch.exp(high - new) + torch.exp(x[r, t] - new)
                    const float total_1 = weft::fma(total, exp, exp_1);
                    // kernels_of_scans.py:77: y[r, t] = torch.log(total) + high
                    y_run[v] = weft::log(total_1) + new_;
                    high = new_;
                    total = total_1;
                }
                weft::store<4>(y_r + t_run, y_run);
            }
        }
    }
}
