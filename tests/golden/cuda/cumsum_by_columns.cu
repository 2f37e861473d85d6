#include "weft/memory.cuh"
#include "weft/chain.cuh"
#include "weft/packet.cuh"

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
    // 8 neighbours along r, 32 threads for each; a thread has one,
    // and 32 points of a tile of 1024
    const int64_t r_tiles = (rows + 7) / 8;
    const int64_t r_block = int64_t(blockIdx.x % r_tiles) * 8;  // of the block's rows
    const int64_t r = r_block + threadIdx.x % 8;
    const bool here = r < rows;
    const int64_t l_own = threadIdx.x / 8 * 32;
    // cumsum.py:22: for l in range(length):
    float total_last = {};
    const int64_t l_stop = here ? length : 0;  // what lies beyond has no points
    const int64_t tiles = (length + 1023) / 1024;
    __shared__ weft::Sum<float>::Value total_scratch[2][64];  // in turn
    const int64_t total_row = weft::minimum<int64_t>(r, rows - 1);
    const weft::Chain<weft::Sum<float>, float, 8, 256> total_chain(total_told, total_row, rows, part, parts, here);
    __shared__ weft::Chain<weft::Sum<float>, float, 8, 256>::Both::Value total_parts[total_chain.places];
    // 3 tiles are on their way or there
    extern __shared__ __align__(128) unsigned char memory[];
    float* const x_ring = reinterpret_cast<float*>(memory);
    __shared__ weft::Mbarrier arrived[3];
    if (threadIdx.x == 0) {
        for (int32_t k = 0; k < 3; ++k) arrived[k].init(256);
        weft::fence_mbarrier_init();
    }
    __syncthreads();
    const int32_t l_slot = threadIdx.x / 8 * 264 + threadIdx.x % 8;  // of its first point in a tile
    const int32_t turns = int32_t((tiles + parts - 1) / parts);
    const auto copy_tile = [&](int64_t tile, int32_t stage) {
        const int64_t first = tile * 1024;
        const int32_t place = threadIdx.x / 2, beside = threadIdx.x % 2 * 4;
        const int64_t r_copied = r_block + beside;
        const int32_t left = r_copied < rows ? int32_t(weft::minimum<int64_t>(weft::maximum<int64_t>(length - first, 0), 1024)) : 0;
        const float* x_from = x + r_copied + (first + place) * x_stride_1;
        #pragma unroll
        for (int32_t k = 0; k < 8; ++k) {
            if (place + k * 128 < left) {
                const int32_t slot = stage * 8448 + (place + k * 128) * 8 + (place + k * 128) / 32 * 8 + beside;
                // cumsum.py:23: total = total + x[r, l]
                weft::copy_async<16>(x_ring + slot, x_from);
            }
            x_from += 128 * x_stride_1;
        }
        weft::arrive_on_copies(arrived[stage]);
    };
    for (int32_t k = 0; k < 3 && k < turns; ++k) copy_tile(k * parts + part, k);
    // what blocks tell each other of a turn is heard in the next one
    weft::Prefix<weft::Sum<float>> total_composed;
    for (int32_t turn = 0; turn <= turns; ++turn) {
        const auto total_composed_before = total_composed;
        typename decltype(total_chain)::Asked<1> total_asked;
        total_chain.ask<1>(total_asked, turn);
        if (turn < turns) {
            const int64_t tile = turn * parts + part;
            const int64_t l_first = tile * 1024 + l_own;
            const int32_t points = int32_t(weft::minimum<int64_t>(weft::maximum<int64_t>(l_stop - l_first, 0), 32));  // of its own
            const int32_t stage = turn % 3;
            arrived[stage].wait(turn / 3 & 1);
            // what each run does to total
            weft::Sum<float>::Value total_own;
            total_own = weft::Sum<float>::identity();
            const auto go = [&](const bool whole) {
                #pragma unroll
                for (int32_t step = 0; step < 32; ++step) {
                    if (whole || step < points) {
                        const float x_tile = float(x_ring[stage * 8448 + l_slot + step * 8]);
                        // cumsum.py:22: for l in range(length):
                        total_own = weft::Sum<float>::combine(total_own, x_tile);
                    }
                }
            };
            if (points == 32) go(true);
            else go(false);
            weft::scan_down<weft::Sum<float>, 8, 256, false>(total_own, total_composed, total_scratch[turn & 1]);
            total_chain.tells_of(total_composed.all, turn + 1);
        }
        if (turn == 0) continue;
        const int64_t tile = (turn - 1) * parts + part;
        const int64_t l_first = tile * 1024 + l_own;
        const int32_t points = int32_t(weft::minimum<int64_t>(weft::maximum<int64_t>(l_stop - l_first, 0), 32));  // of its own
        const int32_t stage = (turn - 1) % 3;
        float total_tile;
        float total_before;
        bool total_whole = true;  // what all blocks tell can be composed
        const auto total_others = total_chain.hear(total_asked, turn, total_parts, total_whole);
        total_tile = total_last;  // before the tile
        weft::Sum<float>::apply(total_others.before, total_tile);
        weft::Sum<float>::apply(total_others.all, total_last);
        total_before = total_tile;
        weft::Sum<float>::apply(total_composed_before.before, total_before);
        float total;
        total = total_before;
        const auto go_2 = [&](const bool whole) {
            float* y_to = y + r + l_first * y_stride_1;
            #pragma unroll
            for (int32_t step = 0; step < 32; ++step) {
                if (whole || step < points) {
                    const float x_tile = float(x_ring[stage * 8448 + l_slot + step * 8]);
                    // cumsum.py:23: total = total + x[r, l]
                    const float total_1 = total + x_tile;
                    // cumsum.py:24: y[r, l] = total
                    y_to[0] = total_1;
                    total = total_1;
                }
                y_to += y_stride_1;
            }
        };
        if (points == 32) go_2(true);
        else go_2(false);
        __syncthreads();  // all have gone through it
        if (turn - 1 + 3 < turns) copy_tile(tile + 3 * parts, stage);
    }
}
