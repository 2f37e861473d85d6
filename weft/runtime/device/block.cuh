// Tiles that a block keeps in shared memory, and products of them by matrix instructions of its warps (mma.sync).
#pragma once
#include "weft/async.cuh"
#include "weft/matrix.cuh"
#include "weft/memory.cuh"

namespace weft {

// How many tiles of so many points there are.
template <int extent> WEFT_FUNCTION int64_t tiles(int64_t points) { return (points + extent - 1) / extent; }

// `lines` lines of `length` elements. 16 bytes of neighbours along a line are a packet. Of eight lines one after another, packets at
// one place are in different banks: they are swizzled by the line where a line has a power of two of packets; else a line is an odd
// number of packets long.
template <typename T, int lines, int length> struct BlockTile {
    static constexpr int packet = 16 / sizeof(T), packets = length / packet;
    static constexpr bool whole = length % packet == 0, power = (packets & (packets - 1)) == 0;
    static constexpr bool swizzled = whole && power && packets > 1;
    static constexpr int step = length + (whole && !power && packets % 2 == 0 ? packet : 0);
    static constexpr int ways = packets < 8 ? packets : 8;
    alignas(16) T element[lines * step];

    WEFT_FUNCTION static int place(int line, int at) {
        if constexpr (swizzled) return line * step + (at ^ line / (8 / ways) % ways * packet);
        else return line * step + at;
    }
    WEFT_FUNCTION T& at(int line, int at) { return element[place(line, at)]; }
    WEFT_FUNCTION const T& at(int line, int at) const { return element[place(line, at)]; }

    // Neighbours along a line, from a multiple of their number on, which is no more than a packet has.
    template <int count> WEFT_FUNCTION Run<T, count> fetch(int line, int at) const {
        return weft::fetch<count, count>(&element[place(line, at)]);
    }
    template <int count, typename Value> WEFT_FUNCTION void put(int line, int at, const Value (&run)[count]) {
        T* const to = &element[place(line, at)];
        if constexpr (is_half<T> && count % 2 == 0) {
            Packet<uint32_t, count / 2> packet;
#pragma unroll
            for (int v = 0; v < count; v += 2) packet.lane[v / 2] = pack<T>(run[v], run[v + 1]);
            *reinterpret_cast<Packet<uint32_t, count / 2>*>(to) = packet;
        } else {
            Packet<T, count> packet;
#pragma unroll
            for (int v = 0; v < count; ++v) packet.lane[v] = T(run[v]);
            *reinterpret_cast<Packet<T, count>*>(to) = packet;
        }
    }

    // Neighbours = those from `from` on, if they are there; or zeros. A copy of the thread's.
    template <int count> WEFT_FUNCTION void copy(int line, int at, const T* from, bool here) {
        copy_async_or_zero<count * sizeof(T)>(&element[place(line, at)], from, here);
    }

    // Of a warp: 16 rows and 16 points as the left operand of `mma`, and as two right ones of 8 rows. A line has the points of a
    // row, or a point of all rows.
    template <bool points_along> WEFT_FUNCTION void left(int row, int point, uint32_t (&a)[4]) const {
        const int lane = threadIdx.x % 32;
        if constexpr (points_along) load_matrix(a, &at(row + lane % 16, point + lane / 16 * 8));
        else load_matrix_transposed(a, &at(point + lane % 8 + lane / 16 * 8, row + lane / 8 % 2 * 8));
    }
    template <bool points_along> WEFT_FUNCTION void right(int row, int point, uint32_t (&b)[4]) const {
        const int lane = threadIdx.x % 32;
        if constexpr (points_along) load_matrix(b, &at(row + lane % 8 + lane / 16 * 8, point + lane / 8 % 2 * 8));
        else load_matrix_transposed(b, &at(point + lane % 8 + lane / 8 % 2 * 8, row + lane / 16 * 8));
    }
};

// sums += left * right, of a warp's rows from `row` on and columns from `column` on, over `points` points: sums[i][j] is what `mma`
// makes of the i-th 16 rows and the j-th 8 columns.
template <typename T, int points, bool left_along, bool right_along, int down, int across, class Left, class Right>
WEFT_FUNCTION void multiply_tiles(float (&sums)[down][across][4], const Left& left, const Right& right, int row, int column) {
    static_assert(points % 16 == 0 && across % 2 == 0, "whole matrix instructions");
#pragma unroll
    for (int point = 0; point < points; point += 16) {
        uint32_t a[down][4];
#pragma unroll
        for (int i = 0; i < down; ++i) left.template left<left_along>(row + 16 * i, point, a[i]);
#pragma unroll
        for (int j = 0; j < across; j += 2) {
            uint32_t b[4];
            right.template right<right_along>(column + 8 * j, point, b);
            const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
#pragma unroll
            for (int i = 0; i < down; ++i) {
                mma<T>(sums[i][j], a[i], first);
                mma<T>(sums[i][j + 1], a[i], second);
            }
        }
    }
}

}  // namespace weft
