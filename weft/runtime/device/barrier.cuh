// Named barriers: some of the warps of a block wait for each other.
#pragma once
#include "weft/scalar.cuh"

namespace weft {

// A barrier counts arrivals until `threads` (a multiple of 32) have come, then starts over. `id` is 1 to 15; barrier 0 is
// that of __syncthreads. All the lanes of a warp call together. What a thread did before it arrived is seen by those that
// sync.

// Arrive and wait for the others.
WEFT_FUNCTION void barrier_sync(int id, int threads) {
    asm volatile("barrier.sync.aligned %0, %1;" : : "r"(id), "r"(threads) : "memory");
}

// Arrive and go on: others wait by barrier_sync.
WEFT_FUNCTION void barrier_arrive(int id, int threads) {
    asm volatile("barrier.arrive.aligned %0, %1;" : : "r"(id), "r"(threads) : "memory");
}

}  // namespace weft
