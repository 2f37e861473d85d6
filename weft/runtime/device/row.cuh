// Rows on their way to shared memory, wherever they begin (sm_90).
#pragma once
#include "weft/bulk.cuh"

namespace weft {

// A row that begins at any element, by all threads of a block: a bulk copy brings what is whole packets of 16 bytes, and its bytes
// are what one arrival at `barrier` announces; threads bring the elements before and after, before the block's next barrier.
// `room`, a multiple of 16 bytes, has 16 more than the row. Gives where the row begins in it: as far past a packet as in memory.
template <typename T> WEFT_FUNCTION T* bulk_row(T* room, const T* row, int32_t count, Mbarrier& barrier) {
    constexpr int packet = 16 / sizeof(T);
    const int past = int(uint64_t(row) / sizeof(T) % packet);
    T* const there = room + past;
    const int before = past == 0 ? 0 : count < packet - past ? count : packet - past;
    const int whole = (count - before) / packet * packet, end = before + whole;
    if (threadIdx.x == 0) {
        barrier.arrive_expect(uint32_t(whole * sizeof(T)));
        if (whole > 0) bulk_load(there + before, row + before, uint32_t(whole * sizeof(T)), barrier);
    }
    if (int(threadIdx.x) < before) there[threadIdx.x] = row[threadIdx.x];
    if (int(threadIdx.x) < count - end) there[end + threadIdx.x] = row[end + threadIdx.x];
    return there;
}

}  // namespace weft
