// Products whose rows take some of the points alone, where the others may hold infinities or NaN: 0 times these is none.
#pragma once
#include "weft/barrier.cuh"
#include "weft/matrix_tile.cuh"
#include "weft/memory.cuh"

namespace weft {

// The bits of an exponent of a 16-bit type: all of them in an infinity and in a NaN.
template <typename T> inline constexpr uint32_t exponent_bits = 0x7c00u;
template <> inline constexpr uint32_t exponent_bits<bfloat16> = 0x7f80u;

// Whether any thread of a warpgroup says so; all of them ask. told: a word of each of its warps, which nothing else uses.
WEFT_FUNCTION bool any_of_warpgroup(bool own, int32_t (&told)[4], int barrier) {
    const bool any = __any_sync(0xffffffffu, own);
    if (threadIdx.x % 32 == 0) told[threadIdx.x / 32 % 4] = any;
    barrier_sync(barrier, 128);
    const bool found = told[0] || told[1] || told[2] || told[3];
    barrier_sync(barrier, 128);  // before the words are used again
    return found;
}

// Whether an infinity or a NaN is in the part of some tiles that a thread of a warpgroup looks at.
template <int tiles, typename T, int rows, bool along_points, int points>
WEFT_FUNCTION bool any_infinite(const MatrixTile<T, rows, along_points, points>* tile) {
    // all bits of an exponent: one more at its end comes to the sign's place, which has been 0
    constexpr uint32_t number = 0x7fff7fffu, one = (0x8000u - exponent_bits<T>) * 0x10001u;
    uint32_t found = 0;
    for (int t = 0; t < tiles; ++t) {
        const auto* const words = reinterpret_cast<const Packet<uint32_t, 4>*>(tile[t].element);
#pragma unroll
        for (int k = 0; k < rows * points / 8; k += 128) {
            if (rows * points / 8 % 128 != 0 && k + int(threadIdx.x) % 128 >= rows * points / 8) break;
            const auto packet = words[k + threadIdx.x % 128];
#pragma unroll
            for (int w = 0; w < 4; ++w) found |= (packet.lane[w] & number) + one;
        }
    }
    return found & ~number;
}

// Whether none of some numbers is an infinity or a NaN.
template <int count> WEFT_FUNCTION bool all_finite(const float (&values)[count]) {
    float none[4] = {};  // each of which waits for itself alone
#pragma unroll
    for (int k = 0; k < count; ++k) none[k % 4] = fma(values[k], 0.0f, none[k % 4]);
    return (none[0] + none[1]) + (none[2] + none[3]) == 0.0f;
}

// Whether the u-th row of a thread has a point: all between its bounds.
struct AllPoints {
    WEFT_FUNCTION bool operator()(int, int) const { return true; }
};

// sums += left right as by wgmma, whose fragments these are; but the two rows of a thread take the points from `begin` to `end`
// of the tiles alone, of those which they have. One point after another: it is for the few tiles with an infinity.
template <typename T, int rows, bool along_points, int points, int steps, int count, class Has = AllPoints>
WEFT_FUNCTION void multiply_within(
    float (&sums)[count], const uint32_t (&left)[steps][4], const MatrixTile<T, rows, along_points, points>* tile,
    const int32_t (&begin)[2], const int32_t (&end)[2], const Has& has = {}) {
    uint32_t own[steps * 4];  // these are found by their places: they lie in memory, and take no registers
    float total[count];
#pragma unroll
    for (int k = 0; k < steps * 4; ++k) own[k] = left[k / 4][k % 4];
#pragma unroll
    for (int k = 0; k < count; ++k) total[k] = sums[k];
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int point = 0; point < steps * 16; ++point) {
#pragma unroll 1
        for (int u = 0; u < 2; ++u) {
            const uint32_t word = shuffle(own[point / 16 * 4 + point % 16 / 8 * 2 + u], lane / 4 * 4 + point % 8 / 2, 32);
            float pair[2];
            unpack<T>(word, pair[0], pair[1]);
            const float factor = point % 2 ? pair[1] : pair[0];
            if (point < begin[u] || point >= end[u] || !has(u, point)) continue;
#pragma unroll 1
            for (int k = 0; k < count / 2; ++k) {
                const int column = k / 2 * 8 + lane % 4 * 2 + k % 2;
                const int place = MatrixTile<T, rows, along_points, points>::place(column, point % points);
                float& sum = total[k / 2 * 4 + u * 2 + k % 2];
                sum = fma(factor, float(tile[point / points].element[place]), sum);
            }
        }
    }
#pragma unroll
    for (int k = 0; k < count; ++k) sums[k] = total[k];
}

}  // namespace weft
