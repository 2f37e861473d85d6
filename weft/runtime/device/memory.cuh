// Moving tiles between global memory and registers: up to 16 bytes an instruction, op-math values on the register side.
#pragma once
#include "weft/scalar.cuh"

namespace weft {

// What one instruction moves.
template <typename T, int count> struct alignas(count * sizeof(T)) Packet {
    T lane[count];
};

// tile = the consecutive elements from `address` on, `width` of them an instruction; `address` is a multiple of those.
template <int width, typename T, typename Value, int count>
WEFT_FUNCTION void load(const T* address, Value (&tile)[count]) {
#pragma unroll
    for (int k = 0; k < count; k += width) {
        const Packet<T, width> packet = *reinterpret_cast<const Packet<T, width>*>(address + k);
#pragma unroll
        for (int v = 0; v < width; ++v) tile[k + v] = Value(packet.lane[v]);
    }
}

// tile[v] = address[v * stride]
template <typename T, typename Value, int count>
WEFT_FUNCTION void load_strided(const T* address, int64_t stride, Value (&tile)[count]) {
#pragma unroll
    for (int v = 0; v < count; ++v) tile[v] = Value(address[v * stride]);
}

// tile[v] = address[v * stride] where 0 <= first + v < size, elsewhere 0
template <typename T, typename Value, int count>
WEFT_FUNCTION void load_within(const T* address, int64_t stride, int64_t first, int64_t size, Value (&tile)[count]) {
#pragma unroll
    for (int v = 0; v < count; ++v) {
        tile[v] = first + v >= 0 && first + v < size ? Value(address[v * stride]) : Value(0);
    }
}

// tile[v] = row[first + v - 1]: the columns before those of an aligned run; before the row, 0
template <int width, typename T, typename Value, int count>
WEFT_FUNCTION void load_before(const T* row, int64_t first, int64_t, Value (&tile)[count]) {
    Value run[count];
    load<width>(row + first, run);
#pragma unroll
    for (int v = count - 1; v > 0; --v) tile[v] = run[v - 1];
    tile[0] = first > 0 ? Value(row[first - 1]) : Value(0);
}

// tile[v] = row[first + v + 1]: the columns after those of an aligned run; behind the row's end at `size`, 0
template <int width, typename T, typename Value, int count>
WEFT_FUNCTION void load_after(const T* row, int64_t first, int64_t size, Value (&tile)[count]) {
    Value run[count];
    load<width>(row + first, run);
#pragma unroll
    for (int v = 0; v < count - 1; ++v) tile[v] = run[v + 1];
    tile[count - 1] = first + count < size ? Value(row[first + count]) : Value(0);
}

template <int width, typename T, typename Value, int count>
WEFT_FUNCTION void store(T* address, const Value (&tile)[count]) {
#pragma unroll
    for (int k = 0; k < count; k += width) {
        Packet<T, width> packet;
#pragma unroll
        for (int v = 0; v < width; ++v) packet.lane[v] = T(tile[k + v]);
        *reinterpret_cast<Packet<T, width>*>(address + k) = packet;
    }
}

}  // namespace weft
