// Launches of which one begins before the one before it on the stream has ended (from sm_90 on: programmatic dependent launch;
// before, it begins afterwards and these do nothing).
#pragma once
#include "weft/scalar.cuh"

namespace weft {

// Wait until the launch before this one has ended, which this one may have begun before: what it did is then seen. By every
// thread, before it accesses memory.
WEFT_FUNCTION void await_launch_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

// The launch after this one may begin, where it is one that awaits this one: as soon as all blocks are here.
WEFT_FUNCTION void allow_launch_after() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
#endif
}

}  // namespace weft
