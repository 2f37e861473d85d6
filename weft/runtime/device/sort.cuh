// A stable sort of points by whole numbers, eight bits at a time from the lowest on: up to three launches for each. Blocks have 256
// threads, and take `rounds` of them of neighbours: the tile of a block.
#pragma once
#include "weft/team.cuh"

namespace weft {

namespace detail {
template <int shift> WEFT_FUNCTION int digit(int32_t key) { return int(uint32_t(key) >> shift & 255u); }
}  // namespace detail

// How many keys of a tile have each digit, in shared memory: none at first; one more; counts[digit * tiles + tile] of all.
WEFT_FUNCTION void begin_digits(int32_t (&own)[256]) {
    own[threadIdx.x] = 0;
    __syncthreads();
}
template <int shift> WEFT_FUNCTION void count_digit(int32_t (&own)[256], int32_t key) {
    atomicAdd(&own[detail::digit<shift>(key)], 1);
}
WEFT_FUNCTION void leave_digits(const int32_t (&own)[256], int32_t* counts) {
    __syncthreads();
    counts[int64_t(threadIdx.x) * gridDim.x + blockIdx.x] = own[threadIdx.x];
}

// The same of keys in memory. A block for each tile.
template <int shift, int rounds> WEFT_FUNCTION void count_digits(const int32_t* keys, int64_t count, int32_t* counts) {
    __shared__ int32_t own[256];
    begin_digits(own);
    const int64_t first = int64_t(blockIdx.x) * (256 * rounds) + threadIdx.x;
#pragma unroll
    for (int k = 0; k < rounds; ++k) {
        if (first + 256 * k < count) count_digit<shift>(own, keys[first + 256 * k]);
    }
    leave_digits(own, counts);
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

// Keys, and what goes with them, in the order of a digit; those of one digit stay in theirs. few: counts are as they were counted,
// and totals are not looked at. points: nullptr for the keys' places. A tile is sorted in shared memory, so that what has a digit
// in common is stored side by side.
template <int shift, int rounds, bool few>
WEFT_FUNCTION void move_by_digit(const int32_t* keys, const int32_t* points, int64_t count, const int32_t* counts,
                                 const int32_t* totals, int32_t* keys_after, int32_t* points_after) {
    __shared__ int32_t scratch[2][8];
    __shared__ int32_t places[8][256];  // of each warp's next key of a digit
    __shared__ int32_t moves[256];      // of a digit: from the place in the tile to that among all
    __shared__ int32_t tile_keys[256 * rounds], tile_points[256 * rounds];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int w = 0; w < 8; ++w) places[w][threadIdx.x] = 0;
    int32_t earlier = 0, all = 0;
    const int32_t* const own_counts = counts + int64_t(threadIdx.x) * gridDim.x;
    if constexpr (few) {
        for (uint32_t tile = 0; tile < gridDim.x; ++tile) {
            const int32_t there = own_counts[tile];
            earlier += tile < blockIdx.x ? there : 0;
            all += there;
        }
    } else {
        earlier = own_counts[blockIdx.x];
        all = totals[threadIdx.x];
    }
    const int32_t before = scan<Sum<int32_t>, 256, false>(all, scratch[0]).before;
    __syncthreads();
    const int64_t tile = int64_t(blockIdx.x) * (256 * rounds), first = tile + warp * (32 * rounds) + lane;
    int32_t own[rounds], rank[rounds];
#pragma unroll
    for (int k = 0; k < rounds; ++k) own[k] = first + 32 * k < count ? keys[first + 32 * k] : 0;
#pragma unroll
    for (int k = 0; k < rounds; ++k) {
        const bool here = first + 32 * k < count;
        const int digit = detail::digit<shift>(own[k]);
        const uint32_t same = __match_any_sync(0xffffffffu, here ? digit : 256);
        rank[k] = places[warp][digit] + __popc(same & ((1u << lane) - 1));
        __syncwarp();
        if (here && (same & ((1u << lane) - 1)) == 0) places[warp][digit] += __popc(same);
        __syncwarp();
    }
    __syncthreads();
    int32_t held = 0;
#pragma unroll
    for (int w = 0; w < 8; ++w) held += places[w][threadIdx.x];
    int32_t next = scan<Sum<int32_t>, 256, false>(held, scratch[1]).before;
    moves[threadIdx.x] = before + earlier - next;
#pragma unroll
    for (int w = 0; w < 8; ++w) {
        const int32_t warps = places[w][threadIdx.x];
        places[w][threadIdx.x] = next;
        next += warps;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < rounds; ++k) {
        const int64_t at = first + 32 * k;
        if (at >= count) break;
        const int32_t to = places[warp][detail::digit<shift>(own[k])] + rank[k];
        tile_keys[to] = own[k];
        tile_points[to] = points == nullptr ? int32_t(at) : points[at];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < rounds; ++k) {
        const int32_t at = threadIdx.x + 256 * k;
        if (tile + at >= count) break;
        const int32_t key = tile_keys[at], to = moves[detail::digit<shift>(key)] + at;
        keys_after[to] = key;
        points_after[to] = tile_points[at];
    }
}

// How many keys from a place on are that of the place before, up to as many as a warp has lanes.
WEFT_FUNCTION int32_t keys_beyond(const int32_t* keys, int64_t place, int64_t count) {
    if (place == 0) return 0;
    const int64_t at = place + threadIdx.x % 32;
    const uint32_t others = __ballot_sync(0xffffffffu, at >= count || keys[at] != keys[place - 1]);
    return others == 0 ? 32 : __ffs(int32_t(others)) - 1;
}

// Points in the order of keys, of which each lane of a warp has one. before: bit k tells whether the lane 2^k before has the same
// key; steps: how many of these bits any lane has. Those that have a key in common lie beside each other.
struct Neighbours {
    uint32_t before;
    int steps;
};
WEFT_FUNCTION Neighbours neighbours_of(int32_t key) {
    Neighbours found{0, 0};
#pragma unroll
    for (int k = 0; k < 5; ++k) {
        const bool same = shuffle_up(key, 1 << k) == key && int(threadIdx.x % 32) >= 1 << k;
        if (same) found.before |= 1u << k;
        if (__any_sync(0xffffffffu, same)) found.steps = k + 1;
    }
    return found;
}

// Of each lane the sum of those up to it that have its key.
template <class A> WEFT_FUNCTION typename A::Value combine_neighbours(typename A::Value value, const Neighbours& same) {
#pragma unroll
    for (int k = 0; k < 5; ++k) {
        if (k >= same.steps) break;
        const auto others = shuffle_up(value, 1 << k);
        if (same.before >> k & 1) value = A::combine(others, value);
    }
    return value;
}

}  // namespace weft
