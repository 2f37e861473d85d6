// Tiles that change their order in shared memory: read along one of their axes, used along the other.
#pragma once
#include "weft/scalar.cuh"

namespace weft {

// A square of words. Threads are `side / vector` across; each puts and gets `vector` neighbours across at a time, what is put
// across is got down. Neighbours lie a thread's count apart, and rows are swizzled, so that no bank is met twice in a turn
// (weft.plan.map.turned_layout, which the tests prove).
template <typename T, int side, int vector> struct Turned {
    T word[side][side];

    WEFT_FUNCTION static int place(int x) { return x / vector + x % vector * (side / vector); }

    // The elements (across * vector + v, down) = tile.
    template <typename Value> WEFT_FUNCTION void put(int across, int down, const Value (&tile)[vector]) {
        const int row = place(down);
#pragma unroll
        for (int v = 0; v < vector; ++v) word[row][(across + v * (side / vector)) ^ row % 32] = T(tile[v]);
    }

    // tile = the elements (down, across * vector + v).
    template <typename Value> WEFT_FUNCTION void get(int across, int down, Value (&tile)[vector]) const {
        const int column = place(down);
#pragma unroll
        for (int v = 0; v < vector; ++v) {
            const int row = across + v * (side / vector);
            tile[v] = Value(word[row][column ^ row % 32]);
        }
    }
};

}  // namespace weft
