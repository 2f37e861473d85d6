// What the threads of a row do together where the blocks of a cluster share it (sm_90).
#pragma once
#include "weft/cluster.cuh"
#include "weft/team.cuh"

namespace weft {

// A value as `send` moves it.
template <typename T> struct alignas(alignof(T) < 4 ? 4 : alignof(T)) Slot {
    T value;
};

// Both halves of the combination of the values of the threads of all of a cluster's blocks, in the order of blocks and threads.
// Every warp tells every block what its lanes combine to; then come the phase of `met`, at which the bytes of all `slots` count,
// and what has been told. `slots` has room for a value of each warp of the cluster, and is used once. All blocks have started.
template <class Algebra, int threads, int blocks>
WEFT_FUNCTION void tell_cluster(typename Algebra::Value value, Slot<typename Algebra::Value>* slots, Mbarrier& met) {
    const Slot<typename Algebra::Value> own{reduce_lanes<Algebra, 32>(value)};
    if (threadIdx.x % 32 < blocks) send(slots + cluster_rank() * (threads / 32) + threadIdx.x / 32, own, met, threadIdx.x % 32);
}
template <class Algebra, int threads, int blocks>
WEFT_FUNCTION typename Algebra::Value told_cluster(const Slot<typename Algebra::Value>* slots) {
    constexpr int all = threads / 32 * blocks, lanes = all < 32 ? power_of_two<all> : 32, each = (all + lanes - 1) / lanes;
    const int first = threadIdx.x % lanes * each;
    auto value = first < all ? slots[first].value : Algebra::identity();
#pragma unroll
    for (int k = 1; k < each; ++k) {
        if (first + k < all) value = Algebra::combine(value, slots[first + k].value);
    }
    return reduce_lanes<Algebra, lanes>(value);
}

}  // namespace weft
