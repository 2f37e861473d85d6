// Bounds of columns that each row has of its own, as rows of a tile have them together.
#pragma once
#include "weft/team.cuh"

namespace weft {

// A bound of columns, of which there are fewer than 2^30, by a number of any size.
WEFT_FUNCTION int32_t bound_of_columns(int64_t bound) {
    return int32_t(minimum<int64_t>(maximum<int64_t>(bound, 0), int64_t(1) << 30));
}
WEFT_FUNCTION int32_t bound_of_columns(int32_t bound) { return minimum(maximum(bound, 0), 1 << 30); }

// What is added to the number of a row, of which there are fewer than 2^30: by so much the sum is a bound as before, and has 32 bits.
WEFT_FUNCTION int32_t shift_of_rows(int64_t shift) {
    return int32_t(minimum<int64_t>(maximum<int64_t>(shift, -(int64_t(1) << 30)), int64_t(1) << 30));
}

struct Bounds {
    int32_t least;
    int32_t most;
};

// The least and the largest bound of up to so many rows, from the first to the last. All threads of a warp ask, each of several
// rows at once.
template <int rows, class Bound> WEFT_FUNCTION Bounds bounds_of_rows(int64_t first, int64_t last, const Bound& bound) {
    Bounds found{1 << 30, 0};
#pragma unroll
    for (int k = 0; k < rows; k += 32) {
        const int32_t own = bound(minimum<int64_t>(first + k + threadIdx.x % 32, last));
        found = {minimum(found.least, own), maximum(found.most, own)};
    }
    return {reduce_lanes<Min<int32_t>, 32>(found.least), reduce_lanes<Max<int32_t>, 32>(found.most)};
}

}  // namespace weft
