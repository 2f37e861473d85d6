// Bulk copies: one thread starts the copy of a whole run or of a box of a tensor (sm_90: cp.async.bulk, TMA).
//
// Loads count their bytes at an Mbarrier. Stores belong to the thread's bulk groups: bulk_commit() closes one, bulk_wait<n>()
// waits for all but the n latest. These copies see memory through the async proxy: shared memory that threads have written
// by ordinary stores needs fence_proxy_async() by the writers, then a barrier, before a copy reads it.
#pragma once
#include "weft/mbarrier.cuh"

namespace weft {

// ---------------------------------------------------------------- runs of bytes

// Addresses and `bytes` are multiples of 16.
template <typename T> WEFT_FUNCTION void bulk_load(T* shared, const T* global, uint32_t bytes, Mbarrier& barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :
                 : "r"(detail::shared_address(shared)), "l"(detail::global_address(global)), "r"(bytes),
                   "r"(detail::shared_address(&barrier))
                 : "memory");
}

// The same to every block of the cluster whose bit is set in `mask`: to the same place, counted at its own barrier there.
template <typename T>
WEFT_FUNCTION void bulk_load_multicast(T* shared, const T* global, uint32_t bytes, Mbarrier& barrier, uint16_t mask) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
                 " [%0], [%1], %2, [%3], %4;"
                 :
                 : "r"(detail::shared_address(shared)), "l"(detail::global_address(global)), "r"(bytes),
                   "r"(detail::shared_address(&barrier)), "h"(mask)
                 : "memory");
}

template <typename T> WEFT_FUNCTION void bulk_store(T* global, const T* shared, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 : : "l"(detail::global_address(global)), "r"(detail::shared_address(shared)), "r"(bytes) : "memory");
}

// ---------------------------------------------------------------- boxes of tensors

// A tensor and a box of it, encoded by the driver (weft.runtime.tensor_map). A kernel takes it as
// `const __grid_constant__ weft::TensorMap name`.
struct alignas(64) TensorMap {
    char opaque[128];
};

WEFT_FUNCTION void prefetch(const TensorMap& map) { asm volatile("prefetch.tensormap [%0];" : : "l"(&map) : "memory"); }

// tensor_load(shared, map, barrier, c0, c1, ...): the box whose first element has these coordinates (in elements, the
// contiguous dimension first; they may lie outside the tensor) to `shared`, packed, in the map's swizzle. c0 is a multiple of
// 16 bytes: the hardware calls another an illegal instruction. `shared` is a multiple of 128 bytes, of 8 times the swizzle's
// where it has one. The barrier counts the bytes of the whole box, those outside the tensor included.
// tensor_load_multicast(shared, map, barrier, mask, c0, ...): as bulk_load_multicast.
// tensor_store(map, shared, c0, ...): the other way; elements outside the tensor are not written.
#define WEFT_LIST(...) __VA_ARGS__
#define WEFT_TENSOR(rank, coordinates, p, q, r, s, parameters, operands)                                                 \
    template <typename T>                                                                                                \
    WEFT_FUNCTION void tensor_load(T* shared, const TensorMap& map, Mbarrier& barrier, parameters) {                     \
        asm volatile("cp.async.bulk.tensor." rank ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"            \
                     " [" p "], [" q ", {" coordinates "}], [" r "];"                                                    \
                     :                                                                                                   \
                     : operands, "r"(detail::shared_address(shared)), "l"(&map), "r"(detail::shared_address(&barrier))   \
                     : "memory");                                                                                        \
    }                                                                                                                    \
    template <typename T>                                                                                                \
    WEFT_FUNCTION void tensor_load_multicast(T* shared, const TensorMap& map, Mbarrier& barrier, uint16_t mask,          \
                                             parameters) {                                                               \
        asm volatile("cp.async.bulk.tensor." rank ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"            \
                     ".multicast::cluster [" p "], [" q ", {" coordinates "}], [" r "], " s ";"                          \
                     :                                                                                                   \
                     : operands, "r"(detail::shared_address(shared)), "l"(&map), "r"(detail::shared_address(&barrier)),  \
                       "h"(mask)                                                                                         \
                     : "memory");                                                                                        \
    }                                                                                                                    \
    template <typename T> WEFT_FUNCTION void tensor_store(const TensorMap& map, const T* shared, parameters) {           \
        asm volatile("cp.async.bulk.tensor." rank ".global.shared::cta.tile.bulk_group"                                  \
                     " [" q ", {" coordinates "}], [" p "];"                                                             \
                     : : operands, "r"(detail::shared_address(shared)), "l"(&map) : "memory");                           \
    }

WEFT_TENSOR("1d", "%0", "%1", "%2", "%3", "%4", WEFT_LIST(int c0), WEFT_LIST("r"(c0)))
WEFT_TENSOR("2d", "%0, %1", "%2", "%3", "%4", "%5", WEFT_LIST(int c0, int c1), WEFT_LIST("r"(c0), "r"(c1)))
WEFT_TENSOR("3d", "%0, %1, %2", "%3", "%4", "%5", "%6", WEFT_LIST(int c0, int c1, int c2),
            WEFT_LIST("r"(c0), "r"(c1), "r"(c2)))
WEFT_TENSOR("4d", "%0, %1, %2, %3", "%4", "%5", "%6", "%7", WEFT_LIST(int c0, int c1, int c2, int c3),
            WEFT_LIST("r"(c0), "r"(c1), "r"(c2), "r"(c3)))
WEFT_TENSOR("5d", "%0, %1, %2, %3, %4", "%5", "%6", "%7", "%8", WEFT_LIST(int c0, int c1, int c2, int c3, int c4),
            WEFT_LIST("r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)))

#undef WEFT_TENSOR
#undef WEFT_LIST

// ---------------------------------------------------------------- groups of stores, and the async proxy

// This thread's stores since its last bulk_commit() are a group.
WEFT_FUNCTION void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" : : : "memory"); }

// Wait until all groups but the n latest have read their shared memory, which may then be written again.
template <int n> WEFT_FUNCTION void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" : : "n"(n) : "memory");
}

// Wait until all groups but the n latest have written global memory too.
template <int n> WEFT_FUNCTION void bulk_wait() { asm volatile("cp.async.bulk.wait_group %0;" : : "n"(n) : "memory"); }

// What this thread has seen or done of shared memory by ordinary accesses comes before what bulk copies and wgmma do to it
// later.
WEFT_FUNCTION void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }

// The same of global memory.
WEFT_FUNCTION void fence_proxy_async_global() { asm volatile("fence.proxy.async.global;" : : : "memory"); }

}  // namespace weft
