#include "weft/memory.cuh"
#include "weft/chain.cuh"

extern "C" __global__ void __launch_bounds__(512, 1) cumsum(
    const float* __restrict__ x,
    float* __restrict__ y,
    const int64_t x_stride_1,
    const int64_t y_stride_1,
    const int64_t rows,
    const int64_t length,
    uint64_t* total_told,
    const int64_t parts) {
    // blocks share a row, a tile each, and tell each other what theirs does
    const int64_t part = blockIdx.y;
    // 32 neighbours along r, 16 threads for each; a thread has one,
    // and 16 points of a tile of 256
    const int64_t r_tiles = (rows + 31) / 32;
    const int64_t r = int64_t(blockIdx.x % r_tiles) * 32 + threadIdx.x % 32;
    const bool here = r < rows;
    const float* x_r = x + r;
    float* y_r = y + r;
    const int64_t l_own = threadIdx.x / 32 * 16;
    // cumsum.py:22: for l in range(length):
    float total_last = {};
    const int64_t l_stop = here ? length : 0;  // what lies beyond has no points
    const int64_t tiles = (length + 255) / 256;
    __shared__ weft::Sum<float>::Value total_scratch[2][512];  // in turn
    const int64_t total_row = weft::minimum<int64_t>(r, rows - 1);
    const weft::Chain<weft::Sum<float>, float, 32, 512> total_chain(total_told, total_row, rows, part, parts, here);
    __shared__ weft::Chain<weft::Sum<float>, float, 32, 512>::Both::Value total_parts[total_chain.places];
    float x_next[16];
    const int64_t turns = (tiles + parts - 1) / parts;
    {
        const int64_t l_begin = part * 256 + l_own;
        #pragma unroll
        for (int32_t step = 0; step < 16; ++step) {
            const int64_t l_ahead = l_begin + step;
            // cumsum.py:23: total = total + x[r, l]
            if (l_ahead < l_stop) x_next[step] = x_r[l_ahead * x_stride_1];
        }
    }
    for (int64_t turn = 0; turn < turns; ++turn) {
        const int64_t tile = turn * parts + part;
        float x_tile[16];
        const int64_t l_first = tile * 256 + l_own;
        #pragma unroll
        for (int32_t k = 0; k < 16; ++k) {
            x_tile[k] = float(x_next[k]);
        }
        // what each run does to total
        weft::Sum<float>::Value total_own;
        total_own = weft::Sum<float>::identity();
        #pragma unroll
        for (int32_t step = 0; step < 16; ++step) {
            const int64_t l = l_first + step;
            if (l < l_stop) {
                // cumsum.py:22: for l in range(length):
                total_own = weft::Sum<float>::combine(total_own, x_tile[step]);
            }
        }
        weft::Prefix<weft::Sum<float>> total_composed;
        weft::scan_down<weft::Sum<float>, 32, 512, false>(total_own, total_composed, total_scratch[turn & 1]);
        float total_tile;
        float total_before;
        bool total_whole = true;  // what all blocks tell can be composed
        total_chain.tells_of(total_composed.all, turn + 1);
        const auto total_others = total_chain.hear(turn + 1, total_parts, total_whole);
        total_tile = total_last;  // before the tile
        weft::Sum<float>::apply(total_others.before, total_tile);
        weft::Sum<float>::apply(total_others.all, total_last);
        total_before = total_tile;
        weft::Sum<float>::apply(total_composed.before, total_before);
        if (turn + 1 < turns) {
            const int64_t l_begin = (tile + parts) * 256 + l_own;
            #pragma unroll
            for (int32_t step = 0; step < 16; ++step) {
                const int64_t l_ahead = l_begin + step;
                // cumsum.py:23: total = total + x[r, l]
                if (l_ahead < l_stop) x_next[step] = x_r[l_ahead * x_stride_1];
            }
        }
        float total;
        total = total_before;
        #pragma unroll
        for (int32_t step = 0; step < 16; ++step) {
            const int64_t l = l_first + step;
            if (l < l_stop) {
                // cumsum.py:23: total = total + x[r, l]
                const float total_1 = total + x_tile[step];
                // cumsum.py:24: y[r, l] = total
                y_r[l * y_stride_1] = total_1;
                total = total_1;
            }
        }
    }
}
