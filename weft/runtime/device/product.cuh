// Tiles of operands in shared memory, of which threads take small squares: what rows and columns share.
#pragma once
#include "weft/memory.cuh"

namespace weft {

// `points` points of each of `rows` rows of an operand. Rows lie side by side, so that a thread takes neighbouring ones by an
// instruction, at one point after the other. Where memory brings `along` points of a row together (0: it brings rows), they are
// put below each other: rows are swizzled by their packet, so that the threads of a warp meet no bank twice (of words: 16 bytes
// stay together, so with more than eight packets they do).
template <typename T, int points, int rows, int along = 0> struct OperandTile {
    alignas(16) T element[points][rows];

    static constexpr int step = along && points / along < 8 ? 32 / (points / along) : 4;

    WEFT_FUNCTION static int place(int point, int row) {
        if constexpr (along) return row ^ point / along * step % 32;
        else return row;
    }

    // Neighbouring points of a row = run.
    template <int count> WEFT_FUNCTION void put_points(int point, int row, const T (&run)[count]) {
#pragma unroll
        for (int v = 0; v < count; ++v) element[point + v][place(point + v, row)] = run[v];
    }

    // A point of neighbouring rows = run.
    template <int count> WEFT_FUNCTION void put_rows(int point, int row, const T (&run)[count]) {
        constexpr int width = in_packet<T, count>;
#pragma unroll
        for (int k = 0; k < count; k += width) {
            Packet<T, width> packet;
#pragma unroll
            for (int v = 0; v < width; ++v) packet.lane[v] = run[k + v];
            *reinterpret_cast<Packet<T, width>*>(&element[point][place(point, row + k)]) = packet;
        }
    }

    // run[4 h + v] = the point of row + h * apart + v.
    template <int apart, int count> WEFT_FUNCTION void get(int point, int row, T (&run)[count]) const {
        constexpr int width = in_packet<T, 4>;
#pragma unroll
        for (int k = 0; k < count; k += width) {
            const auto packet = *reinterpret_cast<const Packet<T, width>*>(&element[point][place(point, row + k / 4 * apart + k % 4)]);
#pragma unroll
            for (int v = 0; v < width; ++v) run[k + v] = packet.lane[v];
        }
    }
};

}  // namespace weft
