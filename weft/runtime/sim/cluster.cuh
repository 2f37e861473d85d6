// Blocks of a cluster: their barrier and each other's shared memory, for the simulator.
#pragma once
#include "weft/mbarrier.cuh"

namespace weft {

WEFT_HOST_FUNCTION uint32_t cluster_rank() { return weft_self().cluster_rank; }
WEFT_HOST_FUNCTION uint32_t cluster_size() { return weft_self().cluster_size; }

WEFT_HOST_FUNCTION void cluster_arrive() { weft_cluster_arrive(); }
WEFT_HOST_FUNCTION void cluster_arrive_relaxed() { weft_cluster_arrive_relaxed(); }
WEFT_HOST_FUNCTION void cluster_wait() { weft_cluster_wait(); }
WEFT_HOST_FUNCTION void cluster_sync() {
    cluster_arrive();
    cluster_wait();
}

template <typename T> WEFT_HOST_FUNCTION T* peer(T* shared, uint32_t rank) {
    return static_cast<T*>(weft_peer(shared, rank));
}

template <typename T>
WEFT_HOST_FUNCTION void bulk_send(T* destination, const T* source, uint32_t bytes, Mbarrier& barrier, uint32_t rank) {
    weft_bulk_send(destination, source, bytes, &barrier, rank);
}

template <typename T> WEFT_HOST_FUNCTION void send(T* destination, const T& value, Mbarrier& barrier, uint32_t rank) {
    static_assert(sizeof(T) % 4 == 0);
    weft_send(destination, &value, sizeof(T), &barrier, rank, false);
}
template <typename T> WEFT_HOST_FUNCTION void send_after(T* destination, const T& value, Mbarrier& barrier, uint32_t rank) {
    static_assert(sizeof(T) % 4 == 0);
    weft_send(destination, &value, sizeof(T), &barrier, rank, true);
}

}  // namespace weft
