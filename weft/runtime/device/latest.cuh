// The last point of each key: what it stores stays. Blocks have 256 threads, each a point; keys are from 0 to `elements`, and those
// that are `elements` have none.
#pragma once
#include "weft/atomic.cuh"

namespace weft {

// last[key], -1 at first, becomes the last point of each key.
WEFT_FUNCTION void last_points(const int32_t* keys, int64_t count, int32_t elements, int32_t* last) {
    // later points come first, so that most of the earlier ones see that they are not the last
    const int64_t point = count - 1 - (int64_t(blockIdx.x) * 256 + threadIdx.x);
    const int32_t key = point >= 0 ? keys[point] : elements;
    const uint32_t same = __match_any_sync(0xffffffffu, key);
    const bool first = (same & ((1u << threadIdx.x % 32) - 1)) == 0;
    if (!first || key >= elements) return;
    if (load_relaxed<Scope::gpu>(last + key) < int32_t(point)) atomicMax(last + key, int32_t(point));
}

// Of points in the order of their keys, those of one in their own: last[point] becomes the key of those that are the last of
// theirs, and -1 of the others.
WEFT_FUNCTION void last_in_order(const int32_t* keys, const int32_t* points, int64_t count, int32_t elements, int32_t* last) {
    const int64_t at = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (at >= count) return;
    const int32_t key = keys[at];
    const bool is_last = key < elements && (at + 1 == count || keys[at + 1] != key);
    last[points[at]] = is_last ? key : -1;
}

}  // namespace weft
