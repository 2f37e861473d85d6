// Copies from global to shared memory that run while the thread goes on (cp.async), for the simulator.
#pragma once
#include "weft/mbarrier.cuh"

namespace weft {

template <int bytes, typename T> WEFT_HOST_FUNCTION void copy_async(T* shared, const T* global) {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "a copy is of 4, 8 or 16 bytes");
    static_assert(bytes % sizeof(T) == 0, "a copy is of whole elements");
    weft_copy_async(shared, global, bytes, bytes);
}

// The same, but zeros are written where not `inside`; `global` is not read then.
template <int bytes, typename T> WEFT_HOST_FUNCTION void copy_async_or_zero(T* shared, const T* global, bool inside) {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "a copy is of 4, 8 or 16 bytes");
    static_assert(bytes % sizeof(T) == 0, "a copy is of whole elements");
    weft_copy_async(shared, global, bytes, inside ? bytes : 0);
}

// 16 bytes, of which the first `read` are read and others are zeros.
template <typename T> WEFT_HOST_FUNCTION void copy_async_first(T* shared, const T* global, uint32_t read) {
    weft_copy_async(shared, global, 16, read);
}

WEFT_HOST_FUNCTION void commit_copies() { weft_commit_copies(); }

template <int n> WEFT_HOST_FUNCTION void wait_copies() { weft_wait_copies(n); }

WEFT_HOST_FUNCTION void arrive_on_copies(Mbarrier& barrier) { weft_arrive_on_copies(&barrier); }

}  // namespace weft
