// Named barriers, for the simulator.
#pragma once
#include "weft/scalar.cuh"

namespace weft {

// Arrive and wait for the others.
WEFT_HOST_FUNCTION void barrier_sync(int id, int threads) { weft_barrier(uint32_t(id), uint32_t(threads), true); }

// Arrive and go on: others wait by barrier_sync.
WEFT_HOST_FUNCTION void barrier_arrive(int id, int threads) { weft_barrier(uint32_t(id), uint32_t(threads), false); }

}  // namespace weft
