// Joins of values to few elements, of which each warp has its own in shared memory. The order is that of the points, so the same
// inputs give the same bits, whatever warps do when.
#pragma once
#include "weft/team.cuh"

namespace weft {

// What the lanes of a warp have, joined to its elements; a key below 0: a lane has nothing. Those of one key are combined in the
// order of lanes, each with what is left of the lanes after it: in five steps, where any have one in common.
template <class A> WEFT_FUNCTION void join_in_order(typename A::Value* own, int32_t key, typename A::Value value) {
    const int32_t lane = threadIdx.x % 32;
    const uint32_t same = __match_any_sync(0xffffffffu, key);
    if (__any_sync(0xffffffffu, key >= 0 && (same & (same - 1)) != 0)) {
        const uint32_t after = same & ~((2u << lane) - 1);
        int32_t next = after ? __ffs(int32_t(after)) - 1 : 32;
#pragma unroll
        for (int k = 0; k < 5; ++k) {
            const auto others = shuffle(value, next % 32, 32);
            const int32_t beyond = shuffle(next, next % 32, 32);
            if (next < 32) {
                value = A::combine(value, others);
                next = beyond;
            }
        }
    }
    if (key >= 0 && (same & ((1u << lane) - 1)) == 0) own[key] = A::combine(own[key], value);
    __syncwarp();
}

}  // namespace weft
