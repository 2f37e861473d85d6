// What the threads of a row do together where the blocks of a cluster share it (sm_90).
#pragma once
#include "weft/cluster.cuh"
#include "weft/team.cuh"

namespace weft {

// The combination of the values of the threads of all of a cluster's blocks, in the order of blocks and threads, in all of
// them. `scratch` has room for a value of each warp of a block, then for one of each block; it may be used again after the
// cluster's next barrier. All blocks have started.
template <class Algebra, int threads, int blocks>
WEFT_FUNCTION typename Algebra::Value reduce_cluster(typename Algebra::Value value, typename Algebra::Value* scratch) {
    typename Algebra::Value* const told = scratch + threads / 32;
    value = reduce<Algebra, threads>(value, scratch);
    if (threadIdx.x < blocks) *peer(told + cluster_rank(), threadIdx.x) = value;
    cluster_sync();
    value = told[threadIdx.x % blocks];
    return reduce_lanes<Algebra, blocks>(value);
}

}  // namespace weft
