// A stable sort of points by whole numbers, eight bits at a time from the lowest on: three launches for each. Blocks have 256
// threads, and take `rounds` of them of neighbours: the tile of a block.
#pragma once
#include "weft/team.cuh"

namespace weft {

namespace detail {
template <int shift> WEFT_FUNCTION int digit(int32_t key) { return int(uint32_t(key) >> shift & 255u); }
}  // namespace detail

// counts[digit * tiles + tile]: how many keys of a tile have a digit. A block for each tile.
template <int shift, int rounds> WEFT_FUNCTION void count_digits(const int32_t* keys, int64_t count, int32_t* counts) {
    __shared__ int32_t own[256];
    own[threadIdx.x] = 0;
    __syncthreads();
    const int64_t first = int64_t(blockIdx.x) * (256 * rounds) + threadIdx.x;
#pragma unroll
    for (int k = 0; k < rounds; ++k) {
        if (first + 256 * k < count) atomicAdd(&own[detail::digit<shift>(keys[first + 256 * k])], 1);
    }
    __syncthreads();
    counts[int64_t(threadIdx.x) * gridDim.x + blockIdx.x] = own[threadIdx.x];
}

// The counts of a digit become how many keys of earlier tiles have it; totals[digit]: how many have it at all. A block for each
// digit.
WEFT_FUNCTION void place_digits(int32_t* counts, int64_t tiles, int32_t* totals) {
    __shared__ int32_t scratch[8];
    int32_t* const own = counts + int64_t(blockIdx.x) * tiles;
    int32_t before = 0;
    for (int64_t first = 0; first < tiles; first += 256) {
        const int64_t at = first + threadIdx.x;
        const Prefix<Sum<int32_t>> found = scan<Sum<int32_t>, 256, false>(at < tiles ? own[at] : 0, scratch);
        if (at < tiles) own[at] = before + found.before;
        before += found.all;
        __syncthreads();
    }
    if (threadIdx.x == 0) totals[blockIdx.x] = before;
}

// Keys, and what goes with them, in the order of a digit; those of one digit stay in theirs. points: nullptr for their places.
template <int shift, int rounds>
WEFT_FUNCTION void move_by_digit(const int32_t* keys, const int32_t* points, int64_t count, const int32_t* counts,
                                 const int32_t* totals, int32_t* keys_after, int32_t* points_after) {
    __shared__ int32_t scratch[8];
    __shared__ int32_t places[8][256];  // of each warp's next key of a digit
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int w = 0; w < 8; ++w) places[w][threadIdx.x] = 0;
    const int32_t before = scan<Sum<int32_t>, 256, false>(totals[threadIdx.x], scratch).before;
    __syncthreads();
    const int64_t first = int64_t(blockIdx.x) * (256 * rounds) + warp * (32 * rounds) + lane;
    int32_t own[rounds], rank[rounds];
#pragma unroll
    for (int k = 0; k < rounds; ++k) {
        const bool here = first + 32 * k < count;
        own[k] = here ? keys[first + 32 * k] : 0;
        const int digit = detail::digit<shift>(own[k]);
        const uint32_t same = __match_any_sync(0xffffffffu, here ? digit : 256);
        rank[k] = places[warp][digit] + __popc(same & ((1u << lane) - 1));
        __syncwarp();
        if (here && (same & ((1u << lane) - 1)) == 0) places[warp][digit] += __popc(same);
        __syncwarp();
    }
    __syncthreads();
    int32_t next = before + counts[int64_t(threadIdx.x) * gridDim.x + blockIdx.x];
#pragma unroll
    for (int w = 0; w < 8; ++w) {
        const int32_t held = places[w][threadIdx.x];
        places[w][threadIdx.x] = next;
        next += held;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < rounds; ++k) {
        const int64_t at = first + 32 * k;
        if (at >= count) break;
        const int32_t to = places[warp][detail::digit<shift>(own[k])] + rank[k];
        keys_after[to] = own[k];
        points_after[to] = points == nullptr ? int32_t(at) : points[at];
    }
}

}  // namespace weft
