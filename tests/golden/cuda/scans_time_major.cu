#include "weft/memory.cuh"
#include "weft/chain.cuh"

extern "C" __global__ void __launch_bounds__(512, 1) time_major(
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
    // 32 neighbours along d, 16 threads for each; a thread has one,
    // and 16 points of a tile of 256
    const int64_t d_tiles = (channels + 31) / 32;
    const int64_t d = int64_t(blockIdx.x % d_tiles) * 32 + threadIdx.x % 32;
    const bool here = d < channels;
    const int64_t b = int64_t(blockIdx.x / d_tiles);
    const float* x_b_d = x + b * x_stride_0 + d;
    const float* c_b_d = c + b * c_stride_0 + d;
    float* y_b_d = y + b * y_stride_0 + d;
    const int64_t t_own = threadIdx.x / 32 * 16;
    // kernels_of_scans.py:23: for t in range(length):
    float h_last = {};
    const int64_t t_stop = here ? length : 0;  // what lies beyond has no points
    const int64_t tiles = (length + 255) / 256;
    __shared__ weft::Affine<float>::Value h_scratch[2][512];  // in turn
    const int64_t h_row = int64_t(blockIdx.x / d_tiles) * channels + weft::minimum<int64_t>(d, channels - 1);
    const weft::Chain<weft::Affine<float>, float, 32, 512> h_chain(h_told, h_row, batch * channels, part, parts, here);
    __shared__ weft::Chain<weft::Affine<float>, float, 32, 512>::Both::Value h_parts[h_chain.places];
    float c_next[16];
    float x_next[16];
    const int64_t turns = (tiles + parts - 1) / parts;
    {
        const int64_t t_begin = part * 256 + t_own;
        #pragma unroll
        for (int32_t step = 0; step < 16; ++step) {
            const int64_t t_ahead = t_begin + step;
            // kernels_of_scans.py:24: h = c[b, t, d] * h + x[b, t, d]
            if (t_ahead < t_stop) c_next[step] = c_b_d[t_ahead * c_stride_1];
            if (t_ahead < t_stop) x_next[step] = x_b_d[t_ahead * x_stride_1];
        }
    }
    for (int64_t turn = 0; turn < turns; ++turn) {
        const int64_t tile = turn * parts + part;
        float c_tile[16];
        float x_tile[16];
        const int64_t t_first = tile * 256 + t_own;
        #pragma unroll
        for (int32_t k = 0; k < 16; ++k) {
            c_tile[k] = float(c_next[k]);
            x_tile[k] = float(x_next[k]);
        }
        // what each run does to h
        weft::Affine<float>::Value h_own;
        h_own = weft::Affine<float>::identity();
        #pragma unroll
        for (int32_t step = 0; step < 16; ++step) {
            const int64_t t = t_first + step;
            if (t < t_stop) {
                // kernels_of_scans.py:23: for t in range(length):
                h_own = weft::Affine<float>::combine(h_own, {c_tile[step], x_tile[step]});
            }
        }
        weft::Prefix<weft::Affine<float>> h_composed;
        weft::scan_down<weft::Affine<float>, 32, 512, false>(h_own, h_composed, h_scratch[turn & 1]);
        float h_tile;
        float h_before;
        bool h_whole = true;  // what all blocks tell can be composed
        float h_turn;
        h_chain.tells_of(h_composed.all, turn + 1);
        const auto h_others = h_chain.hear(turn + 1, h_parts, h_whole);
        bool h_finite = h_whole;
        h_tile = h_last;  // before the tile
        weft::Affine<float>::apply(h_others.before, h_tile);
        h_turn = h_last;
        weft::Affine<float>::apply(h_others.all, h_last);
        if ((!weft::is_finite(h_tile) || !weft::is_finite(h_last)) && !weft::is_nan(h_turn)) {
            h_last = h_turn;
            h_chain.replay(turn + 1, h_tile, h_last);
        }
        h_before = h_tile;
        weft::Affine<float>::apply(h_composed.before, h_before);
        h_finite = h_finite && ((weft::is_finite(h_last) && weft::is_finite(h_before)) || weft::is_nan(h_turn));
        // what overflows when points are composed is computed in their order
        if (!weft::all_of_team<512>(h_finite)) {
            h_whole = weft::all_of_team<512>(h_whole);
            if (!h_whole) h_tile = h_chain.received(turn + 1, h_turn);
            const auto change = [&](float& h) {
                #pragma unroll
                for (int32_t step = 0; step < 16; ++step) {
                    const int64_t t = t_first + step;
                    if (t < t_stop) {
                        // kernels_of_scans.py:24: h = c[b, t, d] * h + x[b, t, d]
                        const float h_1 = weft::fma(c_tile[step], h, x_tile[step]);
                        h = h_1;
                    }
                }
            };
            const auto keep = [&](float& h) { h_before = h; };
            weft::down_in_turn<32, 512, false>(change, keep, h_tile);
            if (!h_whole) h_last = h_chain.handed_on(turn + 1, h_tile);
        }
        if (turn + 1 < turns) {
            const int64_t t_begin = (tile + parts) * 256 + t_own;
            #pragma unroll
            for (int32_t step = 0; step < 16; ++step) {
                const int64_t t_ahead = t_begin + step;
                // kernels_of_scans.py:24: h = c[b, t, d] * h + x[b, t, d]
                if (t_ahead < t_stop) c_next[step] = c_b_d[t_ahead * c_stride_1];
                if (t_ahead < t_stop) x_next[step] = x_b_d[t_ahead * x_stride_1];
            }
        }
        float h;
        h = h_before;
        #pragma unroll
        for (int32_t step = 0; step < 16; ++step) {
            const int64_t t = t_first + step;
            if (t < t_stop) {
                // kernels_of_scans.py:24: h = c[b, t, d] * h + x[b, t, d]
                const float h_1 = weft::fma(c_tile[step], h, x_tile[step]);
                // kernels_of_scans.py:25: y[b, t, d] = h
                y_b_d[t * y_stride_1] = h_1;
                h = h_1;
            }
        }
    }
}
