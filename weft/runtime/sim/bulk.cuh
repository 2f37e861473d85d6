// Bulk copies of runs of bytes and of boxes of tensors (TMA), for the simulator.
#pragma once
#include "weft/mbarrier.cuh"

namespace weft {

// ---------------------------------------------------------------- runs of bytes

template <typename T> WEFT_HOST_FUNCTION void bulk_load(T* shared, const T* global, uint32_t bytes, Mbarrier& barrier) {
    weft_bulk_load(shared, global, bytes, &barrier, 0);
}
template <typename T>
WEFT_HOST_FUNCTION void bulk_load_multicast(T* shared, const T* global, uint32_t bytes, Mbarrier& barrier, uint16_t mask) {
    weft_bulk_load(shared, global, bytes, &barrier, mask);
}
template <typename T> WEFT_HOST_FUNCTION void bulk_store(T* global, const T* shared, uint32_t bytes) {
    weft_bulk_store(global, shared, bytes);
}

// ---------------------------------------------------------------- boxes of tensors

// Encoded by weft.runtime.tensor_map for the simulator.
struct alignas(64) TensorMap {
    char opaque[128];
};

WEFT_HOST_FUNCTION void prefetch(const TensorMap&) {}

#define WEFT_LIST(...) __VA_ARGS__
#define WEFT_TENSOR(rank, parameters, coordinates)                                                                \
    template <typename T>                                                                                         \
    WEFT_HOST_FUNCTION void tensor_load(T* shared, const TensorMap& map, Mbarrier& barrier, parameters) {         \
        const int32_t first[] = {coordinates};                                                                    \
        weft_tensor_load(shared, &map, &barrier, first, rank, 0);                                                 \
    }                                                                                                             \
    template <typename T>                                                                                         \
    WEFT_HOST_FUNCTION void tensor_load_multicast(T* shared, const TensorMap& map, Mbarrier& barrier,             \
                                                  uint16_t mask, parameters) {                                    \
        const int32_t first[] = {coordinates};                                                                    \
        weft_tensor_load(shared, &map, &barrier, first, rank, mask);                                              \
    }                                                                                                             \
    template <typename T>                                                                                         \
    WEFT_HOST_FUNCTION void tensor_store(const TensorMap& map, const T* shared, parameters) {                     \
        const int32_t first[] = {coordinates};                                                                    \
        weft_tensor_store(&map, shared, first, rank);                                                             \
    }

WEFT_TENSOR(1, WEFT_LIST(int c0), WEFT_LIST(c0))
WEFT_TENSOR(2, WEFT_LIST(int c0, int c1), WEFT_LIST(c0, c1))
WEFT_TENSOR(3, WEFT_LIST(int c0, int c1, int c2), WEFT_LIST(c0, c1, c2))
WEFT_TENSOR(4, WEFT_LIST(int c0, int c1, int c2, int c3), WEFT_LIST(c0, c1, c2, c3))
WEFT_TENSOR(5, WEFT_LIST(int c0, int c1, int c2, int c3, int c4), WEFT_LIST(c0, c1, c2, c3, c4))

#undef WEFT_TENSOR
#undef WEFT_LIST

// ---------------------------------------------------------------- groups of stores, and the async proxy

WEFT_HOST_FUNCTION void bulk_commit() { weft_bulk_commit(); }
template <int n> WEFT_HOST_FUNCTION void bulk_wait_read() { weft_bulk_wait(n, true); }
template <int n> WEFT_HOST_FUNCTION void bulk_wait() { weft_bulk_wait(n, false); }
WEFT_HOST_FUNCTION void fence_proxy_async() { weft_fence_proxy(true); }
WEFT_HOST_FUNCTION void fence_proxy_async_global() { weft_fence_proxy(false); }

}  // namespace weft
