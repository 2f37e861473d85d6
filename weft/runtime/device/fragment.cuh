// Products of a few rows with many columns, by matrix instructions whose fragments come from memory as they are (mma.sync).
//
// A matrix instruction takes 16 of one side and 8 of the other, and of each side every thread has points of its own; which points
// these are is of no account, as long as both sides have the same. So a thread takes neighbouring points, in packets.
#pragma once
#include "weft/matrix.cuh"
#include "weft/memory.cuh"

namespace weft {

// Elements that are values of a 16-bit type, as they are in memory.
template <typename T, int count> WEFT_FUNCTION Run<T, count> packed(const float (&value)[count]) {
    Run<T, count> run;
#pragma unroll
    for (int v = 0; v < count; v += 2) run.pair[v / 2] = pack<T>(value[v], value[v + 1]);
    return run;
}

// Of a warp: sums += products of `blocks` times 8 rows and 8 times `2 pairs` columns. Lane l has the rows l / 4 of each 8, the
// neighbouring columns from l / 4 * 2 pairs on, and of both the points of l % 4. sums[j][b][e]: of the lane's column 2 j + e / 2
// and row 8 b + l % 4 * 2 + e % 2.
template <typename T, int pairs, int blocks, int points>
WEFT_FUNCTION void multiply(float (&sums)[pairs][blocks][4], const Run<T, points> (&rows)[blocks],
                            const uint32_t (&columns)[2 * pairs][points / 2]) {
    static_assert(points % 4 == 0);
#pragma unroll
    for (int k = 0; k < points / 2; k += 2) {
#pragma unroll
        for (int j = 0; j < pairs; ++j) {
            const uint32_t own[4] = {columns[2 * j][k], columns[2 * j + 1][k], columns[2 * j][k + 1], columns[2 * j + 1][k + 1]};
#pragma unroll
            for (int b = 0; b < blocks; ++b) {
                const uint32_t other[2] = {rows[b].pair[k], rows[b].pair[k + 1]};
                mma<T>(sums[j][b], own, other);
            }
        }
    }
}

// columns[c]: points of column c, as they are in memory.
template <typename T, int pairs, int blocks, int points>
WEFT_FUNCTION void multiply_points(float (&sums)[pairs][blocks][4], const Run<T, points> (&rows)[blocks],
                                   const Run<T, points> (&columns)[2 * pairs]) {
    uint32_t own[2 * pairs][points / 2];
#pragma unroll
    for (int c = 0; c < 2 * pairs; ++c) {
#pragma unroll
        for (int k = 0; k < points / 2; ++k) own[c][k] = columns[c].pair[k];
    }
    multiply<T>(sums, rows, own);
}

// columns[k]: the columns of point k, as they are in memory: two points of a column come to one register.
template <typename T, int pairs, int blocks, int points>
WEFT_FUNCTION void multiply_columns(float (&sums)[pairs][blocks][4], const Run<T, points> (&rows)[blocks],
                                    const Run<T, 2 * pairs> (&columns)[points]) {
    uint32_t own[2 * pairs][points / 2];
#pragma unroll
    for (int k = 0; k < points; k += 2) {
#pragma unroll
        for (int j = 0; j < pairs; ++j) {
            const uint32_t first = columns[k].pair[j], second = columns[k + 1].pair[j];
            own[2 * j][k / 2] = (first & 0xffffu) | second << 16;
            own[2 * j + 1][k / 2] = first >> 16 | (second & 0xffff0000u);
        }
    }
    multiply<T>(sums, rows, own);
}

}  // namespace weft
