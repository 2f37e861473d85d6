// Copies from global to shared memory that run while the thread goes on (cp.async).
//
// A thread's copies since its last commit_copies() are a group; wait_copies<n>() waits for all its groups but the n latest.
// It waits for this thread's copies alone: a barrier must follow before others read them.
#pragma once
#include "weft/mbarrier.cuh"

namespace weft {

// 4, 8 or 16 bytes; both addresses are multiples of them. 16 bytes bypass the first-level cache.
template <int bytes, typename T> WEFT_FUNCTION void copy_async(T* shared, const T* global) {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "a copy is of 4, 8 or 16 bytes");
    static_assert(bytes % sizeof(T) == 0, "a copy is of whole elements");
    if constexpr (bytes == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                     : : "r"(detail::shared_address(shared)), "l"(detail::global_address(global)) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
                     : : "r"(detail::shared_address(shared)), "l"(detail::global_address(global)), "n"(bytes) : "memory");
    }
}

// The same, but zeros are written where not `inside`; `global` is not read then.
template <int bytes, typename T> WEFT_FUNCTION void copy_async_or_zero(T* shared, const T* global, bool inside) {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "a copy is of 4, 8 or 16 bytes");
    static_assert(bytes % sizeof(T) == 0, "a copy is of whole elements");
    const uint32_t read = inside ? bytes : 0;
    if constexpr (bytes == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     : : "r"(detail::shared_address(shared)), "l"(detail::global_address(global)), "r"(read) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                     : : "r"(detail::shared_address(shared)), "l"(detail::global_address(global)), "n"(bytes), "r"(read)
                     : "memory");
    }
}

// 16 bytes, of which the first `read` are read and others are zeros.
template <typename T> WEFT_FUNCTION void copy_async_first(T* shared, const T* global, uint32_t read) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 : : "r"(detail::shared_address(shared)), "l"(detail::global_address(global)), "r"(read) : "memory");
}

WEFT_FUNCTION void commit_copies() { asm volatile("cp.async.commit_group;" : : : "memory"); }

template <int n> WEFT_FUNCTION void wait_copies() { asm volatile("cp.async.wait_group %0;" : : "n"(n) : "memory"); }

// One arrival at the barrier, when all copies that this thread has issued so far are done; it is one of the `count` that
// the barrier was initialised with.
WEFT_FUNCTION void arrive_on_copies(Mbarrier& barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" : : "r"(detail::shared_address(&barrier)) : "memory");
}

}  // namespace weft
