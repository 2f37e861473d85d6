// Blocks that have columns of the same rows: each tells the others what its columns fold to. All of them run at once (a cooperative
// launch).
#pragma once
#include "weft/chain.cuh"

namespace weft {

// The memory that the blocks of a launch tell each other through, `words` for each of its squares: a block clears those of its
// own. Nobody asks before all have (`wait_for_grid`).
template <int words> WEFT_FUNCTION void clear_told(uint64_t* memory, int squares) {
    for (int square = blockIdx.x; square < squares; square += gridDim.x) {
        for (int k = threadIdx.x; k < words; k += blockDim.x) memory[int64_t(square) * words + k] = 0;
    }
}

// own[u], which the lanes of a quad share of the u-th row that their warpgroup's instructions give them, becomes what all of the
// `parts` blocks have of it, combined in their order. memory: cleared, used once: `tile` rows of each block. part: which of the
// blocks this one is. row: the quad's first one.
template <class Algebra, int parts, int tile, int rows>
WEFT_FUNCTION void combine_across(typename Algebra::Value (&own)[rows], uint64_t* memory, int part, int row) {
    using Value = typename Algebra::Value;
    constexpr int size = told_words<Value>, each = (parts + 3) / 4, together = each * size > 4 ? 1 : 2;
    static_assert(rows % together == 0);
#pragma unroll
    for (int u = 0; u < rows; ++u) own[u] = reduce_lanes<Algebra, 4>(own[u]);
    if constexpr (parts > 1) {
        const int lane = threadIdx.x % 4, first = lane * each, count = first + each < parts ? each : parts - first;
        const auto place = [&](int block, int u) { return memory + (block * tile + row + u % 2 * 8 + u / 2 * 64) * size; };
#pragma unroll
        for (int u = 0; u < rows; ++u) {
            if (lane == u % 4) tell(place(part, u), own[u], 1);
        }
#pragma unroll
        for (int u = 0; u < rows; u += together) {
            Told<Value, together, each> others;
            others.ask(place(first, u), tile, 8, count, 1);
            while (!others.there(1)) others.ask_again(place(first, u), tile, 8, 1);
#pragma unroll
            for (int v = 0; v < together; ++v) {
                Value whole = Algebra::identity();
#pragma unroll
                for (int k = 0; k < each; ++k) {
                    if (k < count) whole = Algebra::combine(whole, others.value(v, k));
                }
                own[u + v] = reduce_lanes<Algebra, 4>(whole);
            }
        }
    }
}

}  // namespace weft
