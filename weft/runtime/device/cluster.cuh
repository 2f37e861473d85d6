// Blocks of a cluster: their barrier and each other's shared memory (sm_90).
#pragma once
#include "weft/mbarrier.cuh"

namespace weft {

// This block's number in its cluster, and how many there are.
WEFT_FUNCTION uint32_t cluster_rank() {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
WEFT_FUNCTION uint32_t cluster_size() {
    uint32_t size;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    return size;
}

// The barrier of all threads of all the cluster's blocks, in two halves: each thread arrives once, then waits once. What it did
// before arriving is seen by all after waiting. All the lanes of a warp call together.
WEFT_FUNCTION void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" : : : "memory"); }
// The same, and all it tells the others of is mbarriers that fence_mbarrier_init() came after: nothing else is waited for.
WEFT_FUNCTION void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" : : : "memory"); }
WEFT_FUNCTION void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" : : : "memory"); }
WEFT_FUNCTION void cluster_sync() {
    cluster_arrive();
    cluster_wait();
}

// The same place in the shared memory of the cluster's block `rank`, for loads, stores and atomics. That block must have
// started (a cluster_sync() before) and must not exit before the access (one after).
template <typename T> WEFT_FUNCTION T* peer(T* shared, uint32_t rank) {
    uint64_t there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(shared), "r"(rank));
    return reinterpret_cast<T*>(there);
}

// A bulk copy of `bytes` (a multiple of 16, as are the addresses) of this block's shared memory to block `rank`. `destination`
// and `barrier` are places of this block that stand for the same ones there; the bytes count at that barrier.
template <typename T>
WEFT_FUNCTION void bulk_send(T* destination, const T* source, uint32_t bytes, Mbarrier& barrier, uint32_t rank) {
    asm volatile("{ .reg .b32 there, barrier;"
                 " mapa.shared::cluster.u32 there, %0, %4; mapa.shared::cluster.u32 barrier, %3, %4;"
                 " cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [there], [%1], %2, [barrier]; }"
                 :
                 : "r"(detail::shared_address(destination)), "r"(detail::shared_address(source)), "r"(bytes),
                   "r"(detail::shared_address(&barrier)), "r"(rank)
                 : "memory");
}

// A value on its way to a place of block `rank`: `destination` and `barrier` are places of this block that stand for the same ones
// there, and the bytes, a multiple of 4, count at that barrier. Those who wait there see the value, and nothing else of this thread.
template <typename T> WEFT_FUNCTION void send(T* destination, const T& value, Mbarrier& barrier, uint32_t rank) {
    static_assert(sizeof(T) % 4 == 0);
    uint32_t there, counter, words[sizeof(T) / 4];
    memcpy(words, &value, sizeof(T));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(detail::shared_address(destination)), "r"(rank));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(counter) : "r"(detail::shared_address(&barrier)), "r"(rank));
#pragma unroll
    for (int k = 0; k < int(sizeof(T) / 4); ++k) {
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
                     :
                     : "r"(there + 4 * k), "r"(words[k]), "r"(counter)
                     : "memory");
    }
}

// The same where a place is used again: all that this thread, and those that it has met, have read comes before the value, which
// depends on it, so that those who wait may have what was read there written anew.
template <typename T> WEFT_FUNCTION void send_after(T* destination, const T& value, Mbarrier& barrier, uint32_t rank) {
    send(destination, value, barrier, rank);
}

}  // namespace weft
