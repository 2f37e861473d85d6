// Rows that data have given many points, and that blocks share: each has about as many points as the others, wherever rows end.
#pragma once
#include "weft/team.cuh"

namespace weft {

// What blocks that look for such rows leave. rows: of each block, the rows that it has found, `looked` of them at the most, and
// how many points of its own come before each; found: of each block, how many rows and points.
struct Listed {
    int64_t* rows;
    int64_t* before;
    int64_t* found;
    int64_t looked;
};

// A block looks at its rows. points: of a row, 0 where it has few.
template <int threads, class Points>
WEFT_FUNCTION void list_rows(const Listed& listed, int64_t rows, const Points& points) {
    __shared__ int64_t scratch[2][threads / 32];
    const int64_t first = int64_t(blockIdx.x) * listed.looked;
    const int64_t last = first + listed.looked < rows ? first + listed.looked : rows;
    int64_t found = 0, before = 0;
    for (int64_t begin = first; begin < last; begin += threads) {
        const int64_t row = begin + threadIdx.x;
        const int64_t own = row < last ? points(row) : 0;
        const Prefix<Sum<int64_t>> place = scan<Sum<int64_t>, threads, false>(own > 0, scratch[0]);
        const Prefix<Sum<int64_t>> point = scan<Sum<int64_t>, threads, false>(own, scratch[1]);
        if (own > 0) {
            listed.rows[first + found + place.before] = row;
            listed.before[first + found + place.before] = before + point.before;
        }
        found += place.all;
        before += point.all;
        __syncthreads();  // scratch is used again
    }
    if (threadIdx.x == 0) {
        listed.found[2 * blockIdx.x] = found;
        listed.found[2 * blockIdx.x + 1] = before;
    }
}

// Where a share of all points stands: in which row, of those that a block has found; how many points of it other shares have
// before; how many points are left. The same for all threads of a block.
struct Share {
    int64_t block, entry, skipped, left, size;
};

// The share of a block. blocks: that have looked.
template <int threads> WEFT_FUNCTION Share share_of(const Listed& listed, int64_t blocks, int64_t share, int64_t shares) {
    __shared__ int64_t scratch[threads / 32];
    __shared__ Share own;
    const int64_t each = (blocks + threads - 1) / threads, first = int64_t(threadIdx.x) * each;
    const int64_t last = first + each < blocks ? first + each : blocks;
    int64_t points = 0;
    for (int64_t block = first; block < last; ++block) points += listed.found[2 * block + 1];
    const Prefix<Sum<int64_t>> all = scan<Sum<int64_t>, threads, false>(points, scratch);
    const int64_t size = (all.all + shares - 1) / shares, begin = share * size;
    if (begin >= all.all) return {0, 0, 0, 0, size};
    if (all.before <= begin && begin < all.before + points) {  // one thread
        int64_t block = first, rest = begin - all.before;
        for (; rest >= listed.found[2 * block + 1]; ++block) rest -= listed.found[2 * block + 1];
        own = {block, 0, rest, all.all - begin < size ? all.all - begin : size, size};
    }
    __syncthreads();
    const int64_t block = own.block, rest = own.skipped, count = listed.found[2 * block];
    const int64_t* before = listed.before + block * listed.looked;
    __syncthreads();
    for (int64_t k = threadIdx.x; k < count; k += threads) {
        if (before[k] <= rest && (k + 1 == count || rest < before[k + 1])) {  // one thread
            own.entry = k;
            own.skipped = rest - before[k];
        }
    }
    __syncthreads();
    return own;
}

// Go on behind so many points of the row at which a share stands, which are all that are left of one of the two.
WEFT_FUNCTION void next_row(const Listed& listed, Share& share, int64_t points) {
    share.left -= points;
    share.skipped = 0;
    if (share.left <= 0 || ++share.entry < listed.found[2 * share.block]) return;
    share.entry = 0;
    do ++share.block;
    while (listed.found[2 * share.block] == 0);
}

}  // namespace weft
