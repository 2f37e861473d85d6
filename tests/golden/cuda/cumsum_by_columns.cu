#include "weft/memory.cuh"
#include "weft/chain.cuh"

extern "C" __global__ void __launch_bounds__(256, 2) cumsum(
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
    // 64 neighbours along r, 8 threads for each; a thread has 2 of them,
    // and 8 points of a tile of 64
    const int64_t r_tiles = (rows + 63) / 64;
    const int64_t r_first = int64_t(blockIdx.x % r_tiles) * 64 + threadIdx.x % 32 * 2;
    const bool here = r_first < rows;
    const int64_t l_own = threadIdx.x / 32 * 8;
    // cumsum.py:22: for l in range(length):
    float total_last[2] = {};
    const int64_t l_stop = here ? length : 0;  // what lies beyond has no points
    const int64_t tiles = (length + 63) / 64;
    __shared__ weft::Sum<float>::Value total_scratch[2][512];  // in turn
    const int64_t total_row = weft::minimum<int64_t>(r_first, rows - 2);
    const weft::Chain<weft::Sum<float>, float, 32, 256> total_chain(total_told, total_row, rows, part, parts, here);
    __shared__ weft::Chain<weft::Sum<float>, float, 32, 256>::Both::Value total_parts[2 * total_chain.places];
    weft::Run<float, 2> x_next[8];
    const int64_t turns = (tiles + parts - 1) / parts;
    {
        const int64_t l_begin = part * 64 + l_own;
        #pragma unroll
        for (int32_t step = 0; step < 8; ++step) {
            const int64_t l_ahead = l_begin + step;
            // cumsum.py:23: total = total + x[r, l]
            if (l_ahead < l_stop) x_next[step] = weft::fetch<2, 2>(x + r_first + l_ahead * x_stride_1);
        }
    }
    for (int64_t turn = 0; turn < turns; ++turn) {
        const int64_t tile = turn * parts + part;
        float x_tile[8][2];
        #pragma unroll
        for (int32_t k = 0; k < 8; ++k) {
            weft::unpack(x_next[k], x_tile[k]);
        }
        const int64_t l_first = tile * 64 + l_own;
        // what each run does to total
        weft::Sum<float>::Value total_own[2];
        #pragma unroll
        for (int32_t v = 0; v < 2; ++v) {
            total_own[v] = weft::Sum<float>::identity();
        }
        #pragma unroll
        for (int32_t step = 0; step < 8; ++step) {
            const int64_t l = l_first + step;
            if (l < l_stop) {
                #pragma unroll
                for (int32_t v = 0; v < 2; ++v) {
                    // cumsum.py:22: for l in range(length):
                    total_own[v] = weft::Sum<float>::combine(total_own[v], x_tile[step][v]);
                }
            }
        }
        weft::Prefix<weft::Sum<float>> total_composed[2];
        weft::scan_down<weft::Sum<float>, 32, 256, false>(total_own, total_composed, total_scratch[turn & 1]);
        float total_tile[2];
        float total_before[2];
        bool total_whole = true;  // what all blocks tell can be composed
        weft::Sum<float>::Value total_totals[2];
        #pragma unroll
        for (int32_t v = 0; v < 2; ++v) {
            total_totals[v] = total_composed[v].all;
        }
        weft::Prefix<weft::Sum<float>> total_others[2];
        total_chain.exchange(total_totals, total_others, turn + 1, total_parts, total_whole);
        #pragma unroll
        for (int32_t v = 0; v < 2; ++v) {
            total_tile[v] = total_last[v];  // before the tile
            weft::Sum<float>::apply(total_others[v].before, total_tile[v]);
            weft::Sum<float>::apply(total_others[v].all, total_last[v]);
            total_before[v] = total_tile[v];
            weft::Sum<float>::apply(total_composed[v].before, total_before[v]);
        }
        if (turn + 1 < turns) {
            const int64_t l_begin = (tile + parts) * 64 + l_own;
            #pragma unroll
            for (int32_t step = 0; step < 8; ++step) {
                const int64_t l_ahead = l_begin + step;
                // cumsum.py:23: total = total + x[r, l]
                if (l_ahead < l_stop) x_next[step] = weft::fetch<2, 2>(x + r_first + l_ahead * x_stride_1);
            }
        }
        float total[2];
        #pragma unroll
        for (int32_t v = 0; v < 2; ++v) {
            total[v] = total_before[v];
        }
        #pragma unroll
        for (int32_t step = 0; step < 8; ++step) {
            const int64_t l = l_first + step;
            if (l < l_stop) {
                float y_run[2];
                #pragma unroll
                for (int32_t v = 0; v < 2; ++v) {
                    // cumsum.py:23: total = total + x[r, l]
                    const float total_1 = total[v] + x_tile[step][v];
                    // cumsum.py:24: y[r, l] = total
                    y_run[v] = total_1;
                    total[v] = total_1;
                }
                weft::store<2>(y + r_first + l * y_stride_1, y_run);
            }
        }
    }
}
