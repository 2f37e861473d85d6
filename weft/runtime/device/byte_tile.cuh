// Matrices of bytes on their way from lines along the rows to lines along the points.
#pragma once
#include "weft/memory.cuh"

namespace weft {

// 128 points of 128 rows. A packet = 16 rows of a point; packets are swizzled by 16 points, so that no bank is met twice.
struct ByteTile {
    Packet<uint32_t, 4> packet[128][8];

    WEFT_FUNCTION static int place(int point, int number) { return number ^ point / 16; }

    // The 16 rows from 16 `number` on of a point = run.
    template <typename T> WEFT_FUNCTION void put(int point, int number, const Run<T, 16>& run) {
        static_assert(sizeof(T) == 1, "a tile of bytes");
        Packet<T, 16> own;
#pragma unroll
        for (int v = 0; v < 16; ++v) own.lane[v] = run.lane[v];
        *reinterpret_cast<Packet<T, 16>*>(&packet[point][place(point, number)]) = own;
    }

    // line[r] = the 16 points from `point` on, a multiple of 16, of row 4 four + r.
    WEFT_FUNCTION void get(int point, int four, Packet<uint32_t, 4> (&line)[4]) const {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            uint32_t own[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) own[e] = packet[point + 4 * k + e][place(point, four / 4)].lane[four % 4];
            const uint32_t even = __byte_perm(own[0], own[1], 0x5140), even_after = __byte_perm(own[2], own[3], 0x5140);
            const uint32_t odd = __byte_perm(own[0], own[1], 0x7362), odd_after = __byte_perm(own[2], own[3], 0x7362);
            line[0].lane[k] = __byte_perm(even, even_after, 0x5410);
            line[1].lane[k] = __byte_perm(even, even_after, 0x7632);
            line[2].lane[k] = __byte_perm(odd, odd_after, 0x5410);
            line[3].lane[k] = __byte_perm(odd, odd_after, 0x7632);
        }
    }
};

}  // namespace weft
