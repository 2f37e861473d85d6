// Elements that begin anywhere, on their way to shared memory in packets of 16 bytes: there they lie as far past a packet as in
// memory.
#pragma once
#include "weft/async.cuh"
#include "weft/bulk.cuh"
#include "weft/memory.cuh"

namespace weft {

// The elements of a packet from number `low` on, before number `high`; others become 0. Both addresses are multiples of 16. Those
// of a packet that begins before `low` are copied one by one, which the thread does itself where they are less than a word: they
// are there after the block's next barrier.
template <typename T> WEFT_FUNCTION void copy_packet(T* shared, const T* global, int64_t low, int64_t high) {
    constexpr int count = 16 / sizeof(T);
    if (low <= 0) {
        copy_async_first(shared, global, uint32_t(minimum<int64_t>(maximum<int64_t>(high, 0), count) * sizeof(T)));
        return;
    }
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
        const bool there = k >= low && k < high;
        if constexpr (sizeof(T) >= 4) copy_async_or_zero<sizeof(T)>(shared + k, global + k, there);
        else shared[k] = there ? global[k] : T{};
    }
}

// The first element of the packet that an element lies in.
template <typename T> WEFT_FUNCTION const T* packet_of(const T* address) {
    return reinterpret_cast<const T*>(uint64_t(address) & ~uint64_t(15));
}

}  // namespace weft
