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
template <typename T> WEFT_FUNCTION T* packet_of(T* address) { return reinterpret_cast<T*>(uint64_t(address) & ~uint64_t(15)); }

// Elements of shared memory from a row to the next, at least so many: as far past a frame as those of memory.
template <int frame> WEFT_FUNCTION int32_t pitch_of(uint32_t least, uint32_t stride) {
    return int32_t(least + (stride - least) % frame);
}

// The same where not all places can stay in registers. Of a sum with a constant, the compiler would add both terms to each place.
template <int frame> WEFT_FUNCTION int32_t one_pitch_of(uint32_t least, uint32_t stride) {
    const uint32_t past = stride % frame;
    return opaque(int32_t((least + frame - 1 - past) / frame * frame + past));
}

#if __CUDA_ARCH__ >= 900
// A run of elements, which lies as far past a packet in shared memory as in global memory: packets by one bulk copy, which is
// announced here; where some of a packet are not the array's, single elements, which are there as `copy_packet` says. before,
// after: how many elements beside the run are the array's.
template <typename T>
WEFT_FUNCTION void copy_run(T* shared, const T* global, int32_t count, int64_t before, int64_t after, Mbarrier& barrier) {
    constexpr int32_t packet = 16 / sizeof(T);
    if (count <= 0) return;
    const int32_t past = int32_t(past_packet<packet>(global)), beyond = (past + count) % packet, rest = packet - beyond;
    const int32_t begin = past <= before ? -past : packet - past;
    const int32_t end = beyond == 0 ? count : rest <= after ? count + rest : count - beyond;
    if (begin < end) {
        const uint32_t bytes = uint32_t(end - begin) * sizeof(T);
        barrier.expect(bytes);
        bulk_load(shared + begin, global + begin, bytes, barrier);
    }
    const auto single = [&](int32_t first, int32_t last) {
#pragma unroll 1
        for (int32_t k = first; k < last; ++k) {
            if constexpr (sizeof(T) >= 4) copy_async<sizeof(T)>(shared + k, global + k);
            else shared[k] = global[k];
        }
    };
    single(0, minimum(begin, count));
    single(maximum(end, maximum(begin, 0)), count);
}

// The other way: packets by a bulk copy, which belongs to this thread's groups; others may write the rest of those at both ends,
// whose elements go one by one.
template <typename T> WEFT_FUNCTION void send_run(T* global, const T* shared, int32_t count) {
    constexpr int32_t packet = 16 / sizeof(T);
    if (count <= 0) return;
    const int32_t past = int32_t(past_packet<packet>(global)), begin = past == 0 ? 0 : packet - past;
    const int32_t end = count - (past + count) % packet;
    if (begin < end) bulk_store(global + begin, shared + begin, uint32_t(end - begin) * sizeof(T));
#pragma unroll 1
    for (int32_t k = 0; k < minimum(begin, count); ++k) global[k] = shared[k];
#pragma unroll 1
    for (int32_t k = maximum(end, minimum(begin, count)); k < count; ++k) global[k] = shared[k];
}
#endif

// Zeros but for the elements from number `low` on, before number `high`, by so many threads, of which this is one.
template <typename T>
WEFT_FUNCTION void zero_but(T* shared, int32_t count, int64_t low, int64_t high, int32_t thread, int32_t threads) {
    if (low <= 0 && high >= count) return;
#pragma unroll 1
    for (int32_t k = thread; k < count; k += threads) {
        if (k < low || k >= high) shared[k] = T{};
    }
}

}  // namespace weft
